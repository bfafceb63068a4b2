//! ByzCast message by message: its way down the tree, every malformed input, every limit.

use super::client::ByzCastClient;
use super::message::ByzCastMessage;
use super::replica::ByzCastReplica;
use super::*;
use crate::layers::multicast_slots::MulticastHeading;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::messages::{Lane, MessageInput, MessageOutput, Messages};
use amcast_core::step::Note;
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Outbox, Output, Protocol, ProtocolEvent, RawConfig, Submission,
    Time,
};

/// Group 0 is the parent of group 1, which is that of groups 2 and 3; and one client.
fn shape(set: &[(&str, &str)]) -> ByzCastShape {
    let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let overlay = "-1,0,1,1".to_string();
    let raw = RawConfig { groups: 4, replicas: 1, clients: 1, overlay, set };
    ByzCastShape::of(&raw.check(PARAMS).unwrap()).unwrap()
}

const CLIENT: Pid = Pid(4);

fn to(groups: &[u8]) -> GroupSet {
    groups.iter().map(|&g| Gid(g)).collect()
}

/// The requests of one step, sorted by kind.
#[derive(Default, Debug, PartialEq)]
struct TreeStep {
    sent: Vec<(Pid, ByzCastMessage)>,
    delivered: Vec<(MsgId, u64, Vec<u8>)>,
    malformed: Vec<&'static str>,
    parts: Vec<MsgId>,
}

fn step(
    process: &mut impl Protocol<Medium = Messages<ByzCastMessage>>,
    input: Input<'_, Messages<ByzCastMessage>>,
) -> TreeStep {
    let mut out = Outbox::default();
    process.step(Time::ZERO, (), input, &mut out);
    let (mut asked, mut outputs) = (TreeStep::default(), Vec::new());
    out.take(&mut outputs);
    for output in outputs {
        match output {
            Output::Medium(MessageOutput::To(to, Lane::Stream, m)) => asked.sent.push((to, m)),
            Output::Deliver(d) => {
                asked.delivered.push((d.msg, d.position, out.bytes(d.payload).to_vec()));
            }
            Output::Note(Note::Malformed(_, why)) => asked.malformed.push(why),
            Output::Event(ProtocolEvent::Part(m)) => asked.parts.push(m),
            other => panic!("it never asks for {other:?}"),
        }
    }
    asked
}

fn hear(
    process: &mut impl Protocol<Medium = Messages<ByzCastMessage>>,
    from: Pid,
    message: ByzCastMessage,
) -> TreeStep {
    step(process, Input::Medium(MessageInput::From(from, message)))
}

fn heading(seq: u64, slot: u16, dst: &[u8]) -> MulticastHeading {
    MulticastHeading { msg: MsgId { sender: CLIENT, seq }, slot, dst: to(dst) }
}

fn cast(heading: MulticastHeading) -> ByzCastMessage {
    ByzCastMessage::Cast { heading, payload: Arc::from(*b"pay") }
}

fn ack(slot: u16, seq: u64) -> ByzCastMessage {
    ByzCastMessage::Ack { slot, seq }
}

fn submit(client: &mut ByzCastClient, seq: u64, dst: &[u8]) -> TreeStep {
    step(client, Input::Submit(Submission { seq, dst: to(dst), payload: b"pay" }))
}

#[test]
fn a_client_sends_to_the_lowest_common_ancestor_and_awaits_all_destinations() {
    let mut client = ByzCastClient::new(CLIENT, shape(&[("window", "1")]));
    let both = heading(1, 0, &[2, 3]);
    let asked = submit(&mut client, 1, &[2, 3]);
    assert_eq!((asked.sent, asked.parts), (alloc::vec![(Pid(1), cast(both))], [both.msg].to_vec()));
    assert_eq!(client.room(to(&[2]), 1), 0);
    hear(&mut client, Pid(2), ack(0, 1));
    assert_eq!(client.room(to(&[2]), 1), 0, "group 3 has not acknowledged");
    hear(&mut client, Pid(3), ack(0, 1));
    assert_eq!(client.room(to(&[2]), 1), 1);
    assert_eq!(submit(&mut client, 2, &[3]).sent, [(Pid(3), cast(heading(2, 0, &[3])))]);
    for (from, message, why) in [
        (Pid(2), ack(0, 2), "an acknowledgement of what is not awaited"),
        (Pid(3), ack(7, 2), "no such slot"),
        (Pid(3), cast(both), "a message that only replicas take"),
        (CLIENT, ack(0, 2), "an acknowledgement of a client"),
        (Pid(9), ack(0, 2), "not of this cluster"),
    ] {
        assert_eq!(hear(&mut client, from, message).malformed, [why]);
        assert_eq!(client.room(to(&[2]), 1), 0);
    }
}

#[test]
fn a_message_goes_down_the_paths_to_its_destinations_and_no_other() {
    let mut of: Vec<_> = (0..4).map(|g| ByzCastReplica::new(Gid(g), shape(&[]))).collect();
    // Group 1 orders it and is no destination.
    let below = heading(1, 0, &[2, 3]);
    let asked = hear(&mut of[1], CLIENT, cast(below));
    assert_eq!(asked.sent, [(Pid(2), cast(below)), (Pid(3), cast(below))]);
    assert_eq!((asked.delivered.len(), asked.parts), (0, alloc::vec![below.msg]));
    let asked = hear(&mut of[3], Pid(1), cast(below));
    assert_eq!(asked.delivered, [(below.msg, 1, b"pay".to_vec())]);
    assert_eq!(asked.sent, [(CLIENT, ack(0, 1))]);
    // Of the root and a leaf: through group 1, and not to group 2.
    let far = heading(2, 1, &[0, 3]);
    let asked = hear(&mut of[0], CLIENT, cast(far));
    assert_eq!(asked.sent, [(Pid(1), cast(far)), (CLIENT, ack(1, 2))]);
    assert_eq!(asked.delivered.len(), 1);
    let asked = hear(&mut of[1], Pid(0), cast(far));
    assert_eq!((asked.sent, asked.delivered.len()), (alloc::vec![(Pid(3), cast(far))], 0));
    assert_eq!(hear(&mut of[3], Pid(1), cast(far)).delivered[0].1, 2, "the second one here");
    assert_eq!(of[3].status().delivered, 2);
}

#[test]
fn nonsense_is_noted_and_neither_relayed_nor_delivered() {
    let mut r = ByzCastReplica::new(Gid(1), shape(&[("payload_max_bytes", "8")]));
    hear(&mut r, CLIENT, cast(heading(3, 0, &[1, 2])));
    let big = ByzCastMessage::Cast { heading: heading(4, 1, &[1]), payload: [0; 9].into() };
    let of = |sender, dst: &[u8]| {
        cast(MulticastHeading { msg: MsgId { sender, seq: 4 }, ..heading(4, 1, dst) })
    };
    let cases = [
        (Pid(9), cast(heading(4, 1, &[1])), "not of this cluster"),
        (CLIENT, big, "a payload that is too large"),
        (CLIENT, of(Pid(0), &[1]), "a multicast of one that is no client"),
        (CLIENT, of(Pid(9), &[1]), "a multicast of one that is no client"),
        (CLIENT, cast(heading(4, 16, &[1])), "a slot beyond the window"),
        (CLIENT, cast(heading(4, 1, &[1, 5])), "destinations that there are not"),
        (CLIENT, cast(heading(4, 1, &[])), "destinations that there are not"),
        (CLIENT, cast(heading(4, 1, &[0, 1])), "a message that another group orders first"),
        (CLIENT, cast(heading(4, 1, &[2])), "a message that another group orders first"),
        (CLIENT, cast(heading(3, 0, &[1, 2])), "a message that is behind its slot"),
        (CLIENT, cast(heading(2, 0, &[1, 2])), "a message that is behind its slot"),
        (Pid(2), cast(heading(4, 1, &[1])), "a multicast in another's name"),
        (
            Pid(0),
            cast(heading(4, 1, &[1, 2])),
            "a message that the parent has no part in, or this group has none",
        ),
        (
            Pid(0),
            cast(heading(4, 1, &[0])),
            "a message that the parent has no part in, or this group has none",
        ),
        (Pid(0), ack(0, 3), "a message that only clients take"),
    ];
    for (from, message, why) in cases {
        let asked = hear(&mut r, from, message.clone());
        assert_eq!(asked.malformed, [why], "{message}");
        assert_eq!((asked.sent.len(), asked.delivered.len()), (0, 0), "{message}");
    }
    let down = step(&mut r, Input::Medium(MessageInput::Down(Pid(0))));
    assert_eq!(down.malformed, ["a stream broke, which must not be"]);
    assert_eq!(hear(&mut r, CLIENT, cast(heading(4, 1, &[1]))).delivered.len(), 1, "it continues");
}

#[test]
fn configurations_it_cannot_serve_are_refused_with_the_way_out() {
    let check = |replicas, set: &[(&str, &str)]| {
        let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let raw = RawConfig { replicas, set, ..RawConfig::default() };
        ByzCast.build(Pid(0), &raw.check(PARAMS).unwrap()).err().map(|e| e.to_string())
    };
    assert_eq!(check(1, &[]), None);
    assert!(check(3, &[]).unwrap().contains("give replicas = 1"));
    let too_small = check(1, &[("window_bytes", "1000")]).unwrap();
    assert!(too_small.starts_with("payload_max_bytes = 65536 does not fit into window_bytes"));
}

#[test]
fn encodings_are_golden_and_shown_to_people() {
    let frame = |message: &ByzCastMessage| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    };
    let in_heading = [4, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    let golden = [
        (
            cast(heading(2, 3, &[0, 2])),
            [&[1][..], &in_heading, &[3, 0, 0, 0], b"pay"].concat(),
            "cast p4:2 to {g0, g2} in slot 3, 3 bytes",
        ),
        (ack(5, 6), alloc::vec![2, 5, 0, 6, 0, 0, 0, 0, 0, 0, 0], "ack number 6 in slot 5"),
    ];
    for (message, bytes, shown) in golden {
        assert_eq!(frame(&message), bytes);
        assert_eq!(ByzCast.show(&bytes), shown);
        for n in 0..bytes.len() {
            assert!(ByzCastMessage::decode(&mut ByteReader::new(&bytes[..n])).is_err());
        }
    }
    assert_eq!(ByzCast.show(&[9]), "no message of ByzCast's: 9 is not a known tag");
    let mut long = frame(&ack(5, 6));
    long.push(0);
    assert_eq!(ByzCast.show(&long), "ack number 6 in slot 5, and 1 bytes too many");
}
