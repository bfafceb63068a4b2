//! Skeen over small networks: every order of arrival, every malformed input, every limit.

mod explore;

use super::client::SkeenClient;
use super::message::{SkeenMessage, Timestamp};
use super::replica::SkeenReplica;
use super::*;
use crate::layers::multicast_slots::MulticastHeading;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::messages::{Frames, Lane, MessageInput, MessageOutput, Messages};
use amcast_core::rng::Rng;
use amcast_core::step::{Note, ProtocolStatus, WaitReason};
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Outbox, Output, Protocol, ProtocolEvent, RawConfig, Submission,
    Time,
};

fn config(groups: usize, clients: usize, set: &[(&str, &str)]) -> Config {
    let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let raw = RawConfig { groups, replicas: 1, clients, set, ..RawConfig::default() };
    raw.check(PARAMS).unwrap()
}

fn shape(groups: usize, clients: usize, set: &[(&str, &str)]) -> SkeenShape {
    SkeenShape::of(&config(groups, clients, set)).unwrap()
}

/// The set of these groups.
fn to(groups: &[u8]) -> GroupSet {
    groups.iter().map(|&g| Gid(g)).collect()
}

type SentMessages = Vec<(Pid, SkeenMessage)>;

/// The requests of one step, sorted by kind.
#[derive(Default, Debug, PartialEq)]
struct StepRequests {
    sent: SentMessages,
    delivered: Vec<(MsgId, u64, Vec<u8>)>,
    malformed: Vec<&'static str>,
    parts: Vec<MsgId>,
}

fn step(
    process: &mut impl Protocol<Medium = Messages<SkeenMessage>>,
    input: Input<'_, Messages<SkeenMessage>>,
) -> StepRequests {
    let mut out = Outbox::default();
    process.step(Time::ZERO, (), input, &mut out);
    let mut asked = StepRequests::default();
    let mut outputs = Vec::new();
    out.take(&mut outputs);
    for output in outputs {
        match output {
            Output::Medium(MessageOutput::To(to, Lane::Stream, m)) => asked.sent.push((to, m)),
            Output::Deliver(d) => {
                asked.delivered.push((d.msg, d.position, out.bytes(d.payload).to_vec()));
            }
            Output::Note(Note::Malformed(_, why)) => asked.malformed.push(why),
            Output::Event(ProtocolEvent::Part(m)) => asked.parts.push(m),
            other => panic!("Skeen never asks for {other:?}"),
        }
    }
    asked
}

fn hear(
    process: &mut impl Protocol<Medium = Messages<SkeenMessage>>,
    from: Pid,
    message: SkeenMessage,
) -> StepRequests {
    step(process, Input::Medium(MessageInput::From(from, message)))
}

fn submit(client: &mut SkeenClient, seq: u64, dst: GroupSet, payload: &[u8]) -> StepRequests {
    step(client, Input::Submit(Submission { seq, dst, payload }))
}

fn heading(sender: Pid, seq: u64, slot: u16, dst: GroupSet) -> MulticastHeading {
    MulticastHeading { msg: MsgId { sender, seq }, slot, dst }
}

fn cast(heading: MulticastHeading) -> SkeenMessage {
    SkeenMessage::Cast { heading, payload: Arc::from(*b"pay") }
}

fn propose(heading: MulticastHeading, timestamp: u64) -> SkeenMessage {
    SkeenMessage::Propose { heading, timestamp: Timestamp(timestamp) }
}

#[test]
fn a_message_is_delivered_at_the_largest_proposal_and_acknowledged() {
    let s = shape(2, 1, &[]);
    let (g1, c) = (s.cluster.replica(Gid(1), 0), s.cluster.client(0));
    let mut r = SkeenReplica::new(Gid(0), s);
    let h = heading(c, 1, 0, to(&[0, 1]));
    let asked = hear(&mut r, c, cast(h));
    assert_eq!(asked.sent, [(g1, propose(h, 1))]);
    assert_eq!((asked.delivered.len(), asked.parts), (0, alloc::vec![h.msg]));
    let asked = hear(&mut r, g1, propose(h, 5));
    assert_eq!(asked.delivered, [(h.msg, 1, b"pay".to_vec())]);
    assert_eq!(asked.sent, [(c, SkeenMessage::Ack { slot: 0, seq: 1 })]);
    let next = heading(c, 2, 0, to(&[0, 1]));
    assert_eq!(hear(&mut r, c, cast(next)).sent, [(g1, propose(next, 6))], "the clock went on");
}

#[test]
fn a_proposal_ahead_of_its_message_is_kept() {
    let s = shape(2, 1, &[]);
    let (g1, c) = (s.cluster.replica(Gid(1), 0), s.cluster.client(0));
    let mut r = SkeenReplica::new(Gid(0), s);
    let h = heading(c, 1, 3, to(&[0, 1]));
    assert_eq!(hear(&mut r, g1, propose(h, 9)).sent, []);
    let asked = hear(&mut r, c, cast(h));
    assert_eq!(asked.sent, [(g1, propose(h, 10)), (c, SkeenMessage::Ack { slot: 3, seq: 1 })]);
    assert_eq!(asked.delivered.len(), 1);
}

#[test]
fn what_waits_says_why() {
    let s = shape(2, 2, &[]);
    let (g1, c0, c1) = (s.cluster.replica(Gid(1), 0), s.cluster.client(0), s.cluster.client(1));
    let mut r = SkeenReplica::new(Gid(0), s);
    let (a, b, far) = (
        heading(c0, 1, 0, to(&[0, 1])),
        heading(c1, 1, 0, to(&[0])),
        heading(c1, 2, 1, to(&[0, 1])),
    );
    hear(&mut r, c0, cast(a));
    hear(&mut r, c1, cast(b));
    hear(&mut r, g1, propose(far, 7));
    let mut waits = Vec::new();
    r.waiting(&mut |m, w| waits.push((m, w)));
    let expected =
        [(a.msg, WaitReason::Vote(g1)), (b.msg, WaitReason::Turn), (far.msg, WaitReason::Vote(c1))];
    assert_eq!(waits, expected);
    assert_eq!(r.status(), ProtocolStatus { backlog: 3, ..ProtocolStatus::default() });
    assert_eq!(hear(&mut r, g1, propose(a, 1)).delivered.len(), 2, "both, in one step");
    assert_eq!(
        r.status(),
        ProtocolStatus { backlog: 1, delivered: 2, decided: 2, ..ProtocolStatus::default() }
    );
}

#[test]
fn a_client_has_room_again_when_all_destinations_acknowledged() {
    let s = shape(3, 1, &[("window", "2")]);
    let mut c = SkeenClient::new(s.cluster.client(0), s);
    let both = to(&[0, 2]);
    assert_eq!((c.room(both, 10), c.room(both, 0)), (2, 2));
    assert_eq!(submit(&mut c, 1, both, b"one").sent.len(), 2);
    assert_eq!(submit(&mut c, 5, both, b"two").parts, [MsgId { sender: Pid(3), seq: 5 }]);
    assert_eq!((c.room(both, 10), c.status().backlog), (0, 2));
    hear(&mut c, Pid(0), SkeenMessage::Ack { slot: 1, seq: 5 });
    assert_eq!(c.room(both, 10), 0, "group 2 has not acknowledged");
    let mut waits = Vec::new();
    c.waiting(&mut |m, w| waits.push((m.seq, w)));
    let at = |seq, g| (seq, WaitReason::Order(Gid(g)));
    assert_eq!(waits, [at(1, 0), at(1, 2), at(5, 2)]);
    hear(&mut c, Pid(2), SkeenMessage::Ack { slot: 1, seq: 5 });
    assert_eq!((c.room(both, 10), c.status().backlog), (1, 1));
}

#[test]
fn room_is_bounded_by_bytes_and_refuses_what_can_never_be_sent() {
    let s = shape(2, 1, &[("window_bytes", "100"), ("payload_max_bytes", "60")]);
    let mut c = SkeenClient::new(s.cluster.client(0), s);
    assert_eq!((c.room(to(&[0]), 30), c.room(to(&[0]), 60), c.room(to(&[0]), 61)), (3, 1, 0));
    assert_eq!((c.room(GroupSet::EMPTY, 1), c.room(to(&[2]), 1), c.payload_max()), (0, 0, 60));
    submit(&mut c, 1, to(&[0]), &[7; 60]);
    assert_eq!((c.room(to(&[0]), 40), c.room(to(&[0]), 41), c.room(to(&[0]), 0)), (1, 0, 15));
    hear(&mut c, Pid(0), SkeenMessage::Ack { slot: 0, seq: 1 });
    assert_eq!(c.room(to(&[0]), 50), 2);
}

#[test]
fn configurations_it_cannot_serve_are_refused_with_the_way_out() {
    let check = |replicas, set: &[(&str, &str)]| {
        let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let raw = RawConfig { replicas, set, ..RawConfig::default() };
        Skeen.build(Pid(0), &raw.check(PARAMS).unwrap()).err().map(|e| e.to_string())
    };
    assert_eq!(check(1, &[]), None);
    assert!(check(3, &[]).unwrap().contains("give replicas = 1"));
    let too_small = check(1, &[("window_bytes", "1000")]).unwrap();
    assert!(too_small.starts_with("payload_max_bytes = 65536 does not fit into window_bytes"));
}

#[test]
fn nonsense_from_a_peer_is_noted_and_changes_nothing() {
    let s = shape(3, 1, &[("payload_max_bytes", "8")]);
    let (g1, g2, c) = (Pid(1), Pid(2), Pid(3));
    let mut r = SkeenReplica::new(Gid(0), s);
    let (done, open) = (heading(c, 1, 0, to(&[0])), heading(c, 2, 1, to(&[0, 1])));
    hear(&mut r, c, cast(done));
    hear(&mut r, c, cast(open));
    let twice = heading(c, 4, 2, to(&[0, 1]));
    hear(&mut r, g1, propose(twice, 1));
    let big = SkeenMessage::Cast { heading: heading(c, 3, 3, to(&[0])), payload: [0; 9].into() };
    let cases = [
        (Pid(9), cast(open), "not of this cluster"),
        (g1, cast(heading(c, 3, 3, to(&[0]))), "a multicast in another's name"),
        (g1, cast(heading(g1, 3, 3, to(&[0]))), "a multicast of one that is no client"),
        (
            Pid(2),
            propose(heading(Pid(9), 3, 3, to(&[0, 2])), 1),
            "a multicast of one that is no client",
        ),
        (c, big, "a payload that is too large"),
        (c, cast(heading(c, 3, 16, to(&[0]))), "a slot beyond the window"),
        (c, cast(heading(c, 3, 3, to(&[0, 5]))), "a destination that there is not"),
        (c, cast(heading(c, 3, 3, to(&[1]))), "a message for others"),
        (c, cast(heading(c, 3, 3, GroupSet::EMPTY)), "a message for others"),
        (c, cast(done), "a message that is behind its slot"),
        (c, cast(open), "a multicast for the second time"),
        (c, cast(heading(c, 3, 1, to(&[0]))), "a slot that holds another message"),
        (c, cast(heading(c, 2, 1, to(&[0, 2]))), "a slot that holds another message"),
        (g2, propose(open, 1), "a proposal of one that is no other destination"),
        (Pid(0), propose(open, 1), "a proposal of one that is no other destination"),
        (c, propose(open, 1), "a proposal of one that is no other destination"),
        (g1, propose(twice, 2), "a second proposal of one destination"),
        (g1, SkeenMessage::Ack { slot: 0, seq: 1 }, "a message that only clients take"),
    ];
    for (from, message, why) in cases {
        let asked = hear(&mut r, from, message.clone());
        assert_eq!(asked.malformed, [why], "{message}");
        assert_eq!((asked.sent.len(), asked.delivered.len()), (0, 0), "{message}");
    }
    let down = step(&mut r, Input::Medium(MessageInput::Down(g1)));
    assert_eq!(down.malformed, ["a stream broke, which must not be"]);
    assert_eq!(hear(&mut r, g1, propose(open, 1)).delivered.len(), 1, "it continues");
}

#[test]
fn nonsense_to_a_client_is_noted_and_frees_nothing() {
    let s = shape(2, 2, &[("window", "1")]);
    let mut c = SkeenClient::new(Pid(2), s);
    submit(&mut c, 3, to(&[0]), b"x");
    let cases = [
        (Pid(0), SkeenMessage::Ack { slot: 1, seq: 3 }, "no such slot"),
        (
            Pid(0),
            SkeenMessage::Ack { slot: 0, seq: 2 },
            "an acknowledgement of what is not awaited",
        ),
        (
            Pid(1),
            SkeenMessage::Ack { slot: 0, seq: 3 },
            "an acknowledgement of what is not awaited",
        ),
        (Pid(3), SkeenMessage::Ack { slot: 0, seq: 3 }, "an acknowledgement of a client"),
        (Pid(4), SkeenMessage::Ack { slot: 0, seq: 3 }, "not of this cluster"),
        (Pid(0), cast(heading(Pid(2), 1, 0, to(&[0]))), "a message that only replicas take"),
    ];
    for (from, message, why) in cases {
        assert_eq!(hear(&mut c, from, message).malformed, [why]);
        assert_eq!(c.room(to(&[0]), 1), 0);
    }
    assert_eq!(
        hear(&mut c, Pid(0), SkeenMessage::Ack { slot: 0, seq: 3 }),
        StepRequests::default()
    );
    assert_eq!(c.room(to(&[0]), 1), 1);
}

/// A few messages of each kind, that a replica of group 0 of two groups may hear.
fn samples() -> Vec<(Pid, SkeenMessage)> {
    let h = |slot| heading(Pid(2), u64::from(slot) + 1, slot, to(&[0, 1]));
    alloc::vec![
        (Pid(2), cast(h(0))),
        (Pid(1), propose(h(1), 4)),
        (Pid(1), propose(h(0), 2)),
        (Pid(2), cast(h(1))),
        (Pid(0), SkeenMessage::Ack { slot: 0, seq: 1 }),
    ]
}

fn frame(message: &SkeenMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

#[test]
fn encodings_are_golden() {
    let h = heading(Pid(7), 2, 3, to(&[0, 9]));
    let in_heading = [7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 1, 2, 0, 0, 0, 0, 0, 0];
    let golden = [
        (cast(h), [&[1][..], &in_heading, &[3, 0, 0, 0], b"pay"].concat()),
        (propose(h, 258), [&[2][..], &in_heading, &[2, 1, 0, 0, 0, 0, 0, 0]].concat()),
        (SkeenMessage::Ack { slot: 5, seq: 6 }, alloc::vec![3, 5, 0, 6, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (message, bytes) in golden {
        assert_eq!(frame(&message), bytes);
        assert_eq!(SkeenMessage::decode(&mut ByteReader::new(&bytes)), Ok(message));
        for n in 0..bytes.len() {
            assert!(SkeenMessage::decode(&mut ByteReader::new(&bytes[..n])).is_err());
        }
    }
    let beyond = frame(&propose(h, Timestamp::MAX.0 + 1));
    assert!(
        SkeenMessage::decode(&mut ByteReader::new(&beyond)).is_err(),
        "clocks cannot be overflowed"
    );
}

#[test]
fn messages_are_shown_to_people() {
    let shown = |m: &SkeenMessage| Skeen.show(&frame(m));
    let h = heading(Pid(7), 2, 3, to(&[0, 9]));
    assert_eq!(shown(&cast(h)), "cast p7:2 to {g0, g9} in slot 3, 3 bytes");
    assert_eq!(shown(&propose(h, 8)), "propose 8 for p7:2 to {g0, g9} in slot 3");
    assert_eq!(shown(&SkeenMessage::Ack { slot: 5, seq: 6 }), "ack number 6 in slot 5");
    assert_eq!(Skeen.show(&[9]), "no message of Skeen's: 9 is not a known tag");
    let mut long = frame(&SkeenMessage::Ack { slot: 5, seq: 6 });
    long.push(0);
    assert_eq!(Skeen.show(&long), "ack number 6 in slot 5, and 1 bytes too many");
}

/// A step of a replica of group 0 as carriers see it: the outputs as text, and their bytes.
fn frame_step(
    node: &mut dyn Protocol<Medium = Frames>,
    from: Pid,
    bytes: &[u8],
) -> (String, Vec<u8>) {
    let mut out = Outbox::new(true);
    node.step(Time::ZERO, (), Input::Medium(MessageInput::From(from, bytes)), &mut out);
    let mut all = Vec::new();
    for output in out.items() {
        if let Output::Medium(MessageOutput::To(_, _, e)) = output {
            all.extend_from_slice(out.bytes(*e));
        }
    }
    (format!("{:?}", out.items()), all)
}

fn node() -> alloc::boxed::Box<dyn Protocol<Medium = Frames> + Send> {
    match Skeen.build(Pid(0), &config(2, 1, &[])).unwrap() {
        ProtocolProcess::Messages(node) => node,
        ProtocolProcess::Memory(..) => panic!("Skeen passes messages"),
    }
}

#[test]
fn the_same_inputs_give_the_same_outputs_byte_for_byte() {
    let run = || {
        let mut n = node();
        let outputs: Vec<_> =
            samples().iter().map(|(p, m)| frame_step(&mut *n, *p, &frame(m))).collect();
        outputs
    };
    let first = run();
    assert_eq!(first, run());
    assert!(first.iter().any(|(text, _)| text.contains("Deliver")));
}

#[test]
fn frames_cut_short_flipped_or_made_up_never_panic() {
    let mut rng = Rng::new(1);
    let (mut notes, mut rounds) = (0, 0);
    for _ in 0..400 {
        let mut n = node();
        for (from, message) in samples().iter().cycle().take(50) {
            let mut bytes = frame(message);
            match rng.below(4) {
                0 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
                1 => bytes.iter_mut().for_each(|b| *b = rng.word() as u8),
                _ => {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << rng.below(8);
                }
            }
            let from = if rng.chance(100_000) { Pid(rng.below(6) as u32) } else { *from };
            notes += usize::from(frame_step(&mut *n, from, &bytes).0.contains("Malformed"));
            rounds += 1;
        }
    }
    assert!(notes > rounds / 2, "{notes} of {rounds} were found out");
}
