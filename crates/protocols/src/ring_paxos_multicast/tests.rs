//! The reactions of a member to its inputs, on a group that the test plays.

use super::*;
use crate::layers::batch::{Batch, OpenBatch};
use crate::layers::delivery::UNKNOWN_MESSAGE;
use crate::layers::join_state::{JoinState, MALFORMED_STATE};
use crate::layers::vsync::Dissemination;
use alloc::string::ToString;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{
    Grade, GroupMember, Groupcast, GroupcastInput, GroupcastOutput, View,
};
use amcast_core::step::Note;
use amcast_core::{GroupSet, Input, MsgId, Outbox, Output, Protocol, RawConfig, Submission, Time};
use message::{ProposedValue, RingPaxosMessage, ValueId};

/// The requests and deliveries of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
enum RingPaxosAction {
    Cast(RingPaxosMessage),
    To(u32, RingPaxosMessage),
    /// Sender, its number of the message, and the position.
    Deliver(u32, u64, u64),
    Malformed(&'static str),
}

use RingPaxosAction::{Cast, Deliver, Malformed, To};

/// A member of a group in its first view.
struct RingPaxosPlay {
    member: RingPaxosMember,
}

fn view(id: u64, pids: &[u32]) -> View {
    View::new(id, pids.iter().map(|&p| GroupMember { pid: Pid(p), life: 0 }).collect())
}

/// Values of 100 bytes, and three instances at a time.
fn played_settings(me: u32, replicas: usize) -> RingPaxosSettings {
    let set = [("batch_bytes", "100"), ("instances", "3")];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
    settings(Pid(me), &raw.check(ABOUT.params).expect("a sound configuration"))
}

impl RingPaxosPlay {
    fn new(me: u32, members: &[u32]) -> Self {
        let set = played_settings(me, members.len());
        let mut played = Self { member: RingPaxosMember::new(set) };
        assert_eq!(played.medium(GroupcastInput::View(&view(0, members))), []);
        played
    }

    fn step(&mut self, input: Input<'_, Groupcast<RingPaxosMessage>>) -> Vec<RingPaxosAction> {
        let mut out = Outbox::new(false);
        self.member.step(Time::ZERO, (), input, &mut out);
        let mut taken = Vec::new();
        out.take(&mut taken);
        let did = |output| match output {
            Output::Medium(GroupcastOutput::Cast(grade, message)) => {
                assert_eq!(grade, Grade::Plain);
                Some(Cast(message))
            }
            Output::Medium(GroupcastOutput::To(p, message)) => Some(To(p.0, message)),
            Output::Deliver(d) => Some(Deliver(d.msg.sender.0, d.msg.seq, d.position)),
            Output::Note(Note::Malformed(_, why)) => Some(Malformed(why)),
            _ => None,
        };
        taken.into_iter().filter_map(did).collect()
    }

    fn medium(&mut self, input: GroupcastInput<'_, RingPaxosMessage>) -> Vec<RingPaxosAction> {
        self.step(Input::Medium(input))
    }

    fn hear(&mut self, from: u32, message: RingPaxosMessage) -> Vec<RingPaxosAction> {
        self.medium(GroupcastInput::From(Pid(from), message))
    }

    /// Submits messages of `bytes` bytes each, and says what leaves at the end of the round.
    fn submit(
        &mut self,
        seqs: impl IntoIterator<Item = u64>,
        bytes: usize,
    ) -> Vec<RingPaxosAction> {
        for seq in seqs {
            let payload = alloc::vec![seq as u8; bytes];
            let dst = GroupSet::first(1);
            let did = self.step(Input::Submit(Submission { seq, dst, payload: &payload }));
            assert_eq!(did, [], "it waits for the end of the round");
        }
        self.wake()
    }

    /// Wakes it if it asks for that.
    fn wake(&mut self) -> Vec<RingPaxosAction> {
        match self.member.deadline() {
            Some(_) => self.step(Input::Wake),
            None => Vec::new(),
        }
    }
}

fn batch(seqs: impl IntoIterator<Item = u64>, bytes: usize) -> Batch {
    let mut open = OpenBatch::default();
    seqs.into_iter().for_each(|seq| open.push(seq, &alloc::vec![seq as u8; bytes]));
    open.seal().expect("at least one message")
}

const fn id(round: u64, instance: u64) -> ValueId {
    ValueId { round, instance }
}

fn propose(seqs: impl IntoIterator<Item = u64>, bytes: usize) -> RingPaxosMessage {
    RingPaxosMessage::Propose { batch: batch(seqs, bytes) }
}

/// The value of an instance of round 0, a message of 3 bytes of each proposer.
fn value(instance: u64, of: &[(u32, u64)], decided: u64) -> RingPaxosMessage {
    let batches = of.iter().map(|&(proposer, seq)| (Pid(proposer), batch([seq], 3))).collect();
    RingPaxosMessage::Phase2A { id: id(0, instance), value: ProposedValue { batches }, decided }
}

const fn vote(instance: u64) -> RingPaxosMessage {
    RingPaxosMessage::Phase2B { id: id(0, instance) }
}

const fn decision(instance: u64) -> RingPaxosMessage {
    RingPaxosMessage::Decision { id: id(0, instance) }
}

#[test]
fn a_proposer_sends_all_messages_of_a_round_of_its_loop_to_the_coordinator() {
    let mut p = RingPaxosPlay::new(2, &[0, 1, 2]);
    assert_eq!(p.submit([1, 2], 3), [To(0, propose([1, 2], 3))]);
    assert_eq!(p.submit([3], 3), [To(0, propose([3], 3))], "it waits for nothing");
    assert_eq!(p.wake(), [], "once");
    let mut p = RingPaxosPlay::new(0, &[0, 1, 2]);
    assert_eq!(p.submit([1], 3), [Cast(value(1, &[(0, 1)], 0))], "it coordinates itself");
}

#[test]
fn the_first_acceptor_votes_for_what_it_holds_and_delivers_what_is_decided() {
    let mut p = RingPaxosPlay::new(1, &[0, 1, 2]);
    assert_eq!(p.hear(0, value(1, &[(2, 1)], 0)), []);
    assert_eq!(p.wake(), [To(0, vote(1))]);
    assert_eq!(p.wake(), [], "once");
    p.hear(0, value(2, &[(1, 1)], 0));
    assert_eq!(p.hear(0, value(3, &[(2, 2)], 1)), [Deliver(2, 1, 1)], "with the next value");
    assert_eq!(p.wake(), [To(0, vote(3))], "a vote for both");
    assert_eq!(p.hear(0, decision(3)), [Deliver(1, 1, 2), Deliver(2, 2, 3)]);
}

#[test]
fn an_acceptor_in_the_middle_passes_on_the_votes_for_what_it_holds() {
    let mut p = RingPaxosPlay::new(2, &[0, 1, 2, 3, 4]);
    p.hear(1, vote(1));
    assert_eq!(p.wake(), [], "it does not hold the value");
    p.hear(0, value(1, &[(3, 1)], 0));
    assert_eq!(p.wake(), [To(0, vote(1))]);
    p.hear(0, value(2, &[(3, 2)], 0));
    assert_eq!(p.wake(), [], "the first acceptor has not voted");
    // A learner outside of the ring does not vote.
    let mut p = RingPaxosPlay::new(3, &[0, 1, 2, 3, 4]);
    p.hear(0, value(1, &[(3, 1)], 0));
    assert_eq!(p.wake(), []);
    assert_eq!(p.hear(0, decision(1)), [Deliver(3, 1, 1)]);
}

#[test]
fn the_coordinator_multicasts_values_and_its_vote_decides() {
    let mut p = RingPaxosPlay::new(0, &[0, 1, 2]);
    assert_eq!(p.hear(2, propose([1], 3)), []);
    assert_eq!(p.wake(), [Cast(value(1, &[(2, 1)], 0))]);
    assert_eq!(p.hear(0, value(1, &[(2, 1)], 0)), [], "it holds the value itself");
    assert_eq!(p.hear(1, vote(1)), [Deliver(2, 1, 1)]);
    assert_eq!(p.wake(), [Cast(decision(1))], "at once, as nothing else is to leave");
    assert_eq!(p.hear(0, decision(1)), []);
    assert_eq!(p.member.deadline(), None, "nothing happens any more");
}

#[test]
fn decisions_ride_on_the_next_value_and_values_fill_while_instances_are_open() {
    let mut p = RingPaxosPlay::new(0, &[0, 1, 2]);
    p.hear(2, propose([1], 3));
    assert_eq!(p.wake(), [Cast(value(1, &[(2, 1)], 0))]);
    p.hear(0, value(1, &[(2, 1)], 0));
    p.hear(1, propose([1], 3));
    p.hear(2, propose([2], 3));
    assert_eq!(p.wake(), [], "an instance is open, and the value is small");
    assert_eq!(p.hear(1, vote(1)), [Deliver(2, 1, 1)]);
    assert_eq!(p.wake(), [Cast(value(2, &[(1, 1), (2, 2)], 1))], "with the decision");
    p.hear(0, value(2, &[(1, 1), (2, 2)], 1));
    // Full values need not wait for decisions, up to three instances.
    let full = |of: &RingPaxosAction| match of {
        Cast(RingPaxosMessage::Phase2A { id, value, .. }) => (id.instance, value.batches.len()),
        other => panic!("{other:?}"),
    };
    p.hear(2, propose([3], 60));
    p.hear(2, propose([4], 60));
    p.hear(1, propose([2], 100));
    p.hear(1, propose([3], 100));
    let did: Vec<_> = p.wake().iter().map(full).collect();
    assert_eq!(did, [(3, 2), (4, 1)], "the fourth one waits");
    assert_eq!(p.hear(1, vote(2)).len(), 2);
    let did: Vec<_> = p.wake().iter().map(full).collect();
    assert_eq!(did, [(5, 1)]);
}

#[test]
fn the_coordinator_leaves_room_for_the_acknowledgements_of_proposals_on_its_link() {
    let bytes = 1 << 20;
    // How long the next value waits for the link.
    let waits = |mut p: RingPaxosPlay| match p.member.deadline() {
        Some((at, _)) => {
            assert_eq!(p.wake(), [], "the link is busy");
            at.since(Time::ZERO).0
        }
        None => panic!("a value waits"),
    };
    let mut own = RingPaxosPlay::new(0, &[0, 1, 2]);
    assert_eq!(own.submit([1], bytes).len(), 1);
    assert_eq!(own.submit([2], bytes), []);
    let mut foreign = RingPaxosPlay::new(0, &[0, 1, 2]);
    foreign.hear(1, propose([1], bytes));
    assert_eq!(foreign.wake().len(), 1);
    foreign.hear(1, propose([2], bytes));
    let [own, foreign] = [own, foreign].map(waits);
    // One part in a hundred of the link is reserved.
    let more = 8 * bytes as u64 / 44 * 1000 / 932;
    assert!((more - 1000..more + 1000).contains(&(foreign - own)), "{own}, {foreign}, {more}");
}

#[test]
fn members_that_propose_share_what_may_be_on_the_way_however_long_a_value_takes() {
    let set = RingPaxosSettings { proposed_bytes: 400, ..played_settings(1, 4) };
    let mut p = RingPaxosPlay { member: RingPaxosMember::new(set) };
    assert_eq!(p.medium(GroupcastInput::View(&view(0, &[0, 1, 2, 3]))), []);
    // Each message is a batch of its own, and a quarter of what may be on the way.
    let mut proposed = p.submit(1..=40, 100).len();
    let deliver = |p: &mut RingPaxosPlay, instance: u64, proposer: u32, seq: u64| {
        let batches = alloc::vec![(Pid(proposer), batch([seq], 100))];
        let (id, value) = (id(0, instance), ProposedValue { batches });
        let message = RingPaxosMessage::Phase2A { id, value, decided: instance };
        assert_eq!(p.hear(0, message), [Deliver(proposer, seq, instance)]);
        let is_proposal =
            |did: &&RingPaxosAction| matches!(did, To(0, RingPaxosMessage::Propose { .. }));
        p.wake().iter().filter(is_proposal).count()
    };
    let mut on_the_way = Vec::new();
    for seq in 1..=9 {
        proposed += deliver(&mut p, seq, 1, seq);
        on_the_way.push(proposed - seq as usize);
    }
    assert_eq!(on_the_way[..6], [1; 6], "any of the others may propose, too");
    assert_eq!(on_the_way[8], 4, "none of them does");
    proposed += deliver(&mut p, 10, 2, 1);
    for seq in 10..=13 {
        proposed += deliver(&mut p, seq + 1, 1, seq);
    }
    assert_eq!(proposed - 13, 2, "another one does");
    // One that begins takes a quarter, as if all began.
    let mut other =
        RingPaxosPlay { member: RingPaxosMember::new(RingPaxosSettings { me: Pid(3), ..set }) };
    assert_eq!(other.medium(GroupcastInput::View(&view(0, &[0, 1, 2, 3]))), []);
    (1..=9).for_each(|seq| assert_eq!(deliver(&mut other, seq, 1, seq), 0));
    assert_eq!(other.submit(1..=4, 100).len(), 1);
}

#[test]
fn survivors_finish_what_they_hold_and_proposers_propose_the_rest_again() {
    let mut p = RingPaxosPlay::new(1, &[0, 1, 2]);
    assert_eq!(p.submit([1], 3), [To(0, propose([1], 3))]);
    assert_eq!(p.submit([2], 3), [To(0, propose([2], 3))]);
    p.hear(0, value(1, &[(2, 1)], 0));
    assert_eq!(p.wake(), [To(0, vote(1))]);
    assert_eq!(p.medium(GroupcastInput::Block), []);
    p.hear(0, value(2, &[(1, 1)], 0));
    assert_eq!(p.wake(), [], "the round is over for it");
    assert_eq!(p.submit([3], 3), []);
    let did = p.medium(GroupcastInput::View(&view(1, &[1, 2])));
    assert_eq!(did, [Deliver(2, 1, 1), Deliver(1, 1, 2)], "decided or not");
    // It coordinates now: its own proposals are a value, and instances begin anew.
    let batches = [2, 3].map(|seq| (Pid(1), batch([seq], 3))).into();
    let next = ProposedValue { batches };
    let next = RingPaxosMessage::Phase2A { id: id(1, 1), value: next, decided: 0 };
    assert_eq!(p.wake(), [Cast(next.clone())]);
    assert_eq!(p.hear(1, next), []);
    let old = "a value of another round";
    assert_eq!(p.hear(2, vote(1)), [Malformed(old)]);
    let did = p.hear(2, RingPaxosMessage::Phase2B { id: id(1, 1) });
    assert_eq!(did, [Deliver(1, 2, 3), Deliver(1, 3, 4)]);
}

#[test]
fn a_member_that_was_excluded_proposes_what_the_others_do_not_have() {
    let mut p = RingPaxosPlay::new(2, &[0, 1, 2]);
    p.submit([4], 3);
    p.submit([5], 3);
    p.hear(0, value(1, &[(2, 4)], 0));
    assert_eq!(p.medium(GroupcastInput::Excluded), [], "nothing is decided for it");
    let state = JoinState { position: 7, last: alloc::vec![1, 1, 4] };
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    let next = view(4, &[0, 1, 2]);
    assert_eq!(p.medium(GroupcastInput::Join(&next, &bytes)), []);
    assert_eq!(p.wake(), [To(0, propose([5], 3))], "message 4 is delivered");
    let batches = alloc::vec![(Pid(0), batch([1, 2], 3))];
    let value = ProposedValue { batches };
    p.hear(0, RingPaxosMessage::Phase2A { id: id(4, 1), value, decided: 0 });
    let did = p.hear(0, RingPaxosMessage::Decision { id: id(4, 1) });
    assert_eq!(did, [Deliver(0, 2, 8)], "the other one is in the state");
    let malformed = [Malformed(MALFORMED_STATE)];
    assert_eq!(p.medium(GroupcastInput::Join(&next, &[1])), malformed);
}

#[test]
fn what_makes_no_sense_from_a_member_is_refused() {
    let mut p = RingPaxosPlay::new(2, &[0, 1, 2]);
    let unsaid = [Malformed(UNKNOWN_MESSAGE)];
    assert_eq!(p.hear(1, value(1, &[(1, 1)], 0)), unsaid, "it does not coordinate");
    assert_eq!(p.hear(1, decision(1)), unsaid);
    assert_eq!(p.hear(1, propose([1], 3)), unsaid);
    let astray = "a vote that does not come along the ring";
    assert_eq!(p.hear(1, vote(1)), [Malformed(astray)]);
    assert_eq!(p.hear(0, value(2, &[(1, 1)], 0)), [Malformed("a value out of turn")]);
    assert_eq!(p.hear(0, decision(1)), [Malformed("a decision without its value")]);
    // A message of a process that is not configured is delivered by nobody.
    p.hear(0, value(1, &[(9, 1)], 0));
    assert_eq!(p.hear(0, decision(1)), []);
}

#[test]
fn a_shape_that_does_not_fit_is_refused_with_a_remedy() {
    let refused = |raw: RawConfig| {
        let config = raw.check(ABOUT.params).expect("in range");
        RingPaxosMulticast.build(Pid(0), &config).err().expect("refused").to_string()
    };
    assert!(refused(RawConfig::default()).contains("give groups = 1"));
    let mut raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
    raw.set.insert("heartbeat_us".into(), "50000".into());
    assert!(refused(raw).contains("is not below suspect_us"));
}

#[test]
fn values_are_multicast_and_proposals_and_votes_take_streams() {
    let layer = |lane: &str| {
        let set = [("lane".to_string(), lane.to_string())].into();
        let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
        let config = raw.check(ABOUT.params).expect("a sound configuration");
        check_group(RingPaxosMulticast.name(), &config).expect("a sound shape");
        let layer = layer(Pid(0), &config);
        (
            layer.lane,
            layer.dissemination == Dissemination::Group,
            layer.window_bytes <= DATAGRAMS_BYTES_MAX,
        )
    };
    assert_eq!(layer("multicast"), (Lane::Stream, true, true));
    assert_eq!(layer("datagram"), (Lane::Datagram, false, true));
    assert_eq!(layer("stream"), (Lane::Stream, false, false));
}

#[test]
fn room_is_what_the_window_leaves() {
    let mut p = RingPaxosPlay::new(1, &[0, 1, 2]);
    let dst = GroupSet::first(1);
    assert_eq!(p.member.room(dst, 1 << 14), 64);
    p.submit([1], 1);
    assert_eq!((p.member.room(dst, 1), p.member.room(dst, 1 << 22)), (63, 0));
    let mut waiting = Vec::new();
    p.member.waiting(&mut |msg, _| waiting.push(msg));
    assert_eq!(waiting, [MsgId { sender: Pid(1), seq: 1 }]);
}
