//! The reactions of a member to its inputs, on a group that the test plays.

use super::*;
use crate::layers::batch::{Batch, OpenBatch};
use crate::layers::join_state::{JoinState, MALFORMED_STATE};
use alloc::string::ToString;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{
    Grade, GroupMember, Groupcast, GroupcastInput, GroupcastOutput, View,
};
use amcast_core::step::Note;
use amcast_core::{GroupSet, Input, MsgId, Outbox, Output, Protocol, RawConfig, Submission, Time};
use message::LcrMessage;

/// The requests and deliveries of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
enum RingAction {
    Cast(LcrMessage),
    /// Sender, its number of the message, and the position.
    Deliver(u32, u64, u64),
    Malformed(&'static str),
}

use RingAction::{Cast, Deliver, Malformed};

/// A member of three, in its first view.
struct PlayedRingMember(LcrMember);

fn view(id: u64, pids: &[u32]) -> View {
    View::new(id, pids.iter().map(|&p| GroupMember { pid: Pid(p), life: 0 }).collect())
}

impl PlayedRingMember {
    /// Its batches have 100 bytes.
    fn new(me: u32) -> Self {
        Self::with(me, &[])
    }

    fn with(me: u32, own: &[(&str, &str)]) -> Self {
        let set = [("batch_bytes", "100")].iter().chain(own);
        let set = set.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
        let config = raw.check(ABOUT.params).expect("a sound configuration");
        let mut played = Self(LcrMember::new(settings(Pid(me), &config)));
        assert_eq!(played.medium(GroupcastInput::View(&view(0, &[0, 1, 2]))), []);
        played
    }

    fn step(&mut self, input: Input<'_, Groupcast<LcrMessage>>) -> Vec<RingAction> {
        let mut out = Outbox::new(false);
        self.0.step(Time::ZERO, (), input, &mut out);
        let mut taken = Vec::new();
        out.take(&mut taken);
        let did = |output| match output {
            Output::Medium(GroupcastOutput::Cast(grade, message)) => {
                assert_eq!(grade, Grade::Plain);
                Some(Cast(message))
            }
            Output::Deliver(d) => Some(Deliver(d.msg.sender.0, d.msg.seq, d.position)),
            Output::Note(Note::Malformed(_, why)) => Some(Malformed(why)),
            _ => None,
        };
        taken.into_iter().filter_map(did).collect()
    }

    fn medium(&mut self, input: GroupcastInput<'_, LcrMessage>) -> Vec<RingAction> {
        self.step(Input::Medium(input))
    }

    /// A batch arrives.
    fn hear(&mut self, from: u32, message: LcrMessage) -> Vec<RingAction> {
        self.medium(GroupcastInput::From(Pid(from), message))
    }

    /// A batch is acknowledged.
    fn stable(&mut self, from: u32) -> Vec<RingAction> {
        self.medium(GroupcastInput::Stable(Pid(from)))
    }

    /// Submits messages of `bytes` bytes each, and says what leaves at the end of the round.
    fn submit(&mut self, seqs: impl IntoIterator<Item = u64>, bytes: usize) -> Vec<RingAction> {
        for seq in seqs {
            let payload = alloc::vec![seq as u8; bytes];
            let dst = GroupSet::first(1);
            let did = self.step(Input::Submit(Submission { seq, dst, payload: &payload }));
            assert_eq!(did, [], "it waits for the end of the round");
        }
        match self.0.deadline() {
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

fn data(clock: &[u64], seqs: impl IntoIterator<Item = u64>, bytes: usize) -> LcrMessage {
    LcrMessage { clock: clock.to_vec(), batch: batch(seqs, bytes) }
}

#[test]
fn a_message_is_delivered_when_it_is_stable_and_those_before_it_are_delivered() {
    let mut p = PlayedRingMember::new(1);
    assert_eq!(p.submit([1], 3), [Cast(data(&[0, 1], [1], 3))]);
    assert_eq!(p.hear(1, data(&[0, 1], [1], 3)), [], "its own is there already");
    assert_eq!(p.hear(0, data(&[1], [4, 5], 3)), []);
    assert_eq!(p.stable(0), [], "the one of the higher rank is first, and not stable");
    assert_eq!(p.stable(1), [Deliver(1, 1, 1), Deliver(0, 4, 2), Deliver(0, 5, 3)]);
    assert_eq!(p.stable(0), [Malformed("a stable batch that is not here")]);
    assert_eq!(p.hear(0, data(&[1], [6], 3)), [Malformed("a batch that is not next")]);
    // Its next one follows what it had.
    assert_eq!(p.submit([2], 3), [Cast(data(&[1, 2], [2], 3))]);
}

#[test]
fn without_contention_a_small_message_leaves_at_once_and_under_load_batches_fill() {
    let mut p = PlayedRingMember::new(0);
    assert_eq!(p.submit([1], 3), [Cast(data(&[1], [1], 3))], "it is idle");
    assert_eq!(p.submit([2], 3), [], "a batch is on the way");
    let full = LcrMessage { clock: alloc::vec![2], batch: mixed() };
    assert_eq!(p.submit(3..=5, 40), [Cast(full)], "a full batch leaves at once");
    assert_eq!(p.stable(0), [Deliver(0, 1, 1)]);
    let left = Cast(data(&[3], [5], 40));
    assert_eq!(p.stable(0), [Deliver(0, 2, 2), Deliver(0, 3, 3), Deliver(0, 4, 4), left]);
}

/// Messages 2 to 4 of the test above: 119 bytes with their numbers and lengths.
fn mixed() -> Batch {
    let mut open = OpenBatch::default();
    let of = [(2, 3), (3, 40), (4, 40)];
    of.into_iter().for_each(|(seq, n)| open.push(seq, &alloc::vec![seq as u8; n]));
    open.seal().expect("three messages")
}

#[test]
fn a_batch_beyond_the_bound_of_the_ring_waits_until_all_have_an_earlier_one() {
    let mut p = PlayedRingMember::with(1, &[("ring_bytes", "200")]);
    assert_eq!(p.submit([1], 100), [Cast(data(&[0, 1], [1], 100))]);
    assert_eq!(p.hear(2, data(&[0, 0, 1], [8], 3)), []);
    assert_eq!(p.submit([2], 100), [Cast(data(&[0, 2], [2], 100))], "that is full");
    assert_eq!(p.submit([3, 4], 100), [], "both have more than the bound");
    // The one of member 2 is before it, and not stable: nothing is delivered.
    assert_eq!(p.stable(1), [Cast(data(&[0, 3], [3], 100))]);
    let all = [Deliver(2, 8, 1), Deliver(1, 1, 2)];
    assert_eq!(p.stable(2), all, "deliveries make no room on the ring");
    // The rest of the view is delivered, and the ring is empty.
    let did = p.medium(GroupcastInput::View(&view(1, &[1, 2])));
    assert_eq!(did, [Deliver(1, 2, 3), Deliver(1, 3, 4), Cast(data(&[1], [4], 100))]);
    assert_eq!(p.submit([5], 100), [Cast(data(&[2], [5], 100))]);
    assert_eq!(p.submit([6], 100), []);
}

#[test]
fn a_view_that_ends_in_the_middle_of_a_lap_delivers_the_rest_in_the_order_of_clocks() {
    let mut p = PlayedRingMember::new(1);
    p.submit([1], 3);
    p.submit([2], 3);
    p.hear(0, data(&[1], [7], 3));
    p.hear(2, data(&[0, 0, 1], [8], 3));
    assert_eq!(p.stable(1), [], "that of member 2 is first");
    assert_eq!(p.medium(GroupcastInput::Block), []);
    assert_eq!(p.submit([3], 3), [], "it waits for the next view");
    // Casts that another survivor had, of the member that failed.
    assert_eq!(p.hear(0, data(&[2], [9], 3)), []);
    let did = p.medium(GroupcastInput::View(&view(1, &[1, 2])));
    let left = [Deliver(2, 8, 1), Deliver(1, 1, 2), Deliver(0, 7, 3), Deliver(0, 9, 4)];
    assert_eq!(did[..4], left);
    // It is the first of the ring now, and clocks begin anew.
    assert_eq!(did[4..], [Cast(data(&[1], [2, 3], 3))]);
}

#[test]
fn a_joiner_begins_at_the_position_of_the_others_and_sends_what_they_have_not() {
    let mut p = PlayedRingMember::new(2);
    p.submit([4], 3);
    p.submit([5], 3);
    assert_eq!(p.medium(GroupcastInput::Excluded), []);
    let state = JoinState { position: 7, last: alloc::vec![1, 1, 4] };
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    let next = view(4, &[0, 1, 2]);
    let did = p.medium(GroupcastInput::Join(&next, &bytes));
    assert_eq!(did, [Cast(data(&[0, 0, 1], [5], 3))], "message 4 is delivered");
    assert_eq!(p.stable(2), [Deliver(2, 5, 8)]);
    p.hear(0, data(&[1], [1], 3));
    assert_eq!(p.stable(0), [], "it is in the state");
    let malformed = [Malformed(MALFORMED_STATE)];
    let did = p.medium(GroupcastInput::Join(&next, &[1]));
    assert_eq!(did[..1], malformed);
}

#[test]
fn a_shape_that_does_not_fit_is_refused_with_a_remedy() {
    let refused = |raw: RawConfig| {
        let config = raw.check(ABOUT.params).expect("in range");
        Lcr.build(Pid(0), &config).err().expect("refused").to_string()
    };
    assert!(refused(RawConfig::default()).contains("give groups = 1"));
    let mut raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
    raw.set.insert("heartbeat_us".into(), "50000".into());
    assert!(refused(raw).contains("is not below suspect_us"));
}

#[test]
fn room_is_what_the_window_leaves() {
    let mut p = PlayedRingMember::new(1);
    let dst = GroupSet::first(1);
    assert_eq!(p.0.room(dst, 1 << 14), 64);
    p.submit([1], 1);
    assert_eq!((p.0.room(dst, 1), p.0.room(dst, 1 << 22)), (63, 0));
    let mut waiting = Vec::new();
    p.0.waiting(&mut |msg, _| waiting.push(msg));
    assert_eq!(waiting, [MsgId { sender: Pid(1), seq: 1 }]);
}
