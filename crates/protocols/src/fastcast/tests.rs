//! The reactions of a member to its inputs, on a group that the test plays.

use super::*;
use crate::layers::batch::{Batch, OpenBatch};
use crate::layers::delivery::UNKNOWN_MESSAGE;
use crate::layers::join_state::{JoinState, MALFORMED_STATE};
use alloc::string::ToString;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{
    Grade, GroupMember, Groupcast, GroupcastInput, GroupcastOutput, View,
};
use amcast_core::step::Note;
use amcast_core::{GroupSet, Input, MsgId, Outbox, Output, Protocol, RawConfig, Submission, Time};
use message::FastCastMessage;

/// The requests and deliveries of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
enum PlayedAction {
    Cast(FastCastMessage),
    To(u32, FastCastMessage),
    /// Sender, its number of the message, and the position.
    Deliver(u32, u64, u64),
    Malformed(&'static str),
}

use PlayedAction::{Cast, Deliver, Malformed, To};

/// A member of three, in its first view.
struct PlayedMember {
    member: FastCastMember,
    now: Time,
}

/// A message as it would leave at the beginning of time.
fn unstamped(message: FastCastMessage) -> FastCastMessage {
    match message {
        FastCastMessage::Data { batch, .. } => FastCastMessage::Data { sent: 0, batch },
        other => other,
    }
}

fn view(id: u64, pids: &[u32]) -> View {
    View::new(id, pids.iter().map(|&p| GroupMember { pid: Pid(p), life: 0 }).collect())
}

/// Links of 8 Mb/s, a byte in a microsecond; batches of 100 bytes; demand over a millisecond; no queue is noticed, and no bursts
/// beside one batch. Nothing is repeated
/// soon, so that numbers take little of a link.
fn played_settings(me: u32) -> FastCastSettings {
    let set = [
        ("link_mbps", "8"),
        ("batch_bytes", "100"),
        ("demand_us", "1000"),
        ("retry_us", "200000"),
        ("queue_us", "0"),
    ];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
    settings(Pid(me), &raw.check(ABOUT.params).expect("a sound configuration"))
}

impl PlayedMember {
    fn new(me: u32) -> Self {
        Self::with(played_settings(me))
    }

    fn with(set: FastCastSettings) -> Self {
        let mut played = Self { member: FastCastMember::new(set), now: Time::ZERO };
        assert_eq!(played.medium(GroupcastInput::View(&view(0, &[0, 1, 2]))), []);
        played
    }

    /// A member that has nothing to spare: another one requires the link, by the first number of the view.
    fn crowded(me: u32) -> Self {
        Self::new(me).crowd()
    }

    fn crowd(self) -> Self {
        let mut played = self;
        played.hear(0, numbers(0, &[2]));
        let ack = [To(2, FastCastMessage::Ack)];
        assert_eq!(played.hear(2, FastCastMessage::Increase { amount: 995 }), ack);
        played
    }

    fn step(&mut self, input: Input<'_, Groupcast<FastCastMessage>>) -> Vec<PlayedAction> {
        let mut out = Outbox::new(false);
        self.member.step(self.now, (), input, &mut out);
        let mut taken = Vec::new();
        out.take(&mut taken);
        let did = |output| match output {
            Output::Medium(GroupcastOutput::Cast(grade, message)) => {
                assert_eq!(grade, Grade::Stable);
                Some(Cast(unstamped(message)))
            }
            Output::Medium(GroupcastOutput::To(p, message)) => Some(To(p.0, message)),
            Output::Deliver(d) => Some(Deliver(d.msg.sender.0, d.msg.seq, d.position)),
            Output::Note(Note::Malformed(_, why)) => Some(Malformed(why)),
            _ => None,
        };
        taken.into_iter().filter_map(did).collect()
    }

    fn medium(&mut self, input: GroupcastInput<'_, FastCastMessage>) -> Vec<PlayedAction> {
        self.step(Input::Medium(input))
    }

    fn hear(&mut self, from: u32, message: FastCastMessage) -> Vec<PlayedAction> {
        self.medium(GroupcastInput::From(Pid(from), message))
    }

    /// Submits messages of `bytes` bytes each, and says what leaves at the end of the round.
    fn submit(&mut self, seqs: impl IntoIterator<Item = u64>, bytes: usize) -> Vec<PlayedAction> {
        for seq in seqs {
            let payload = alloc::vec![seq as u8; bytes];
            let dst = GroupSet::first(1);
            let did = self.step(Input::Submit(Submission { seq, dst, payload: &payload }));
            assert_eq!(did, [], "it waits for the end of the round");
        }
        self.wake()
    }

    fn wake(&mut self) -> Vec<PlayedAction> {
        match self.member.deadline() {
            Some((at, _)) if at <= self.now => self.step(Input::Wake),
            _ => Vec::new(),
        }
    }

    /// Wakes it when it asks for it, until then.
    fn run(&mut self, until: Time) -> Vec<PlayedAction> {
        let mut did = Vec::new();
        while let Some((at, _)) = self.member.deadline().filter(|(at, _)| *at <= until) {
            self.now = at.max(self.now);
            did.extend(self.step(Input::Wake));
        }
        self.now = until;
        did
    }
}

fn at_us(us: u64) -> Time {
    Time::ZERO + Span::micros(us)
}

fn batch(seqs: impl IntoIterator<Item = u64>, bytes: usize) -> Batch {
    let mut open = OpenBatch::default();
    seqs.into_iter().for_each(|seq| open.push(seq, &alloc::vec![seq as u8; bytes]));
    open.seal().expect("at least one message")
}

fn data(seqs: impl IntoIterator<Item = u64>, bytes: usize) -> FastCastMessage {
    FastCastMessage::Data { sent: 0, batch: batch(seqs, bytes) }
}

fn numbers(first: u64, of: &[u32]) -> FastCastMessage {
    FastCastMessage::Numbers { first, of: of.iter().copied().map(Pid).collect() }
}

#[test]
fn a_message_is_delivered_when_its_number_is_due() {
    let mut p = PlayedMember::new(1);
    assert_eq!(p.submit([1], 3), [Cast(data([1], 3))]);
    assert_eq!(p.hear(0, numbers(0, &[2, 1])), []);
    assert_eq!(p.hear(1, data([1], 3)), [], "its turn is after that of another");
    assert_eq!(p.hear(2, data([5, 6], 3)), [Deliver(2, 5, 1), Deliver(2, 6, 2), Deliver(1, 1, 3)]);
    assert_eq!(p.hear(2, numbers(2, &[2])), [Malformed(UNKNOWN_MESSAGE)]);
    let wrong = "numbers that do not follow the earlier ones";
    assert_eq!(p.hear(0, numbers(1, &[2])), [Malformed(wrong)]);
}

#[test]
fn the_leader_numbers_messages_as_they_arrive_and_before_all_have_them() {
    let mut p = PlayedMember::new(0);
    assert_eq!(p.medium(GroupcastInput::Received(Pid(2))), []);
    assert_eq!(p.submit([1], 3), [Cast(data([1], 3)), Cast(numbers(0, &[2, 0]))]);
    assert_eq!(p.wake(), [], "once");
    assert_eq!(p.hear(2, data([5], 3)), []);
    assert_eq!(p.hear(0, numbers(0, &[2, 0])), [Deliver(2, 5, 1)]);
    // Only the leader numbers anything.
    let mut other = PlayedMember::new(1);
    other.medium(GroupcastInput::Received(Pid(2)));
    assert_eq!(other.member.deadline(), None);
}

#[test]
fn without_contention_a_small_message_leaves_at_once_and_under_load_batches_fill() {
    let mut p = PlayedMember::crowded(1);
    assert_eq!(p.submit([1], 3), [Cast(data([1], 3))], "it is idle");
    assert_eq!(p.submit([2], 3), [], "a batch is on the way");
    assert_eq!(p.submit(3..=5, 40), [], "there is no bandwidth yet");
    p.hear(0, numbers(1, &[1, 1]));
    // Messages 2 to 4 have 119 bytes with their numbers and lengths: a full batch.
    let did = p.hear(1, data([1], 3));
    assert_eq!(did, [Deliver(1, 1, 1), Cast(FastCastMessage::Data { sent: 0, batch: mixed() })]);
    let did = p.hear(1, FastCastMessage::Data { sent: 0, batch: mixed() });
    let left = Cast(data([5], 40));
    assert_eq!(did, [Deliver(1, 2, 2), Deliver(1, 3, 3), Deliver(1, 4, 4), left]);
}

/// Messages 2 to 4 of the test above.
fn mixed() -> Batch {
    let mut open = OpenBatch::default();
    [(2, 3), (3, 40), (4, 40)]
        .into_iter()
        .for_each(|(seq, n)| open.push(seq, &alloc::vec![seq as u8; n]));
    open.seal().expect("three messages")
}

#[test]
fn a_sender_whose_batches_wait_gets_bandwidth_uses_it_and_gives_it_back() {
    let mut p = PlayedMember::crowded(1);
    // Eight full batches; seven of them wait for the first.
    assert_eq!(p.submit(1..=8, 100), [Cast(data([1], 100))]);
    let did = p.run(at_us(1000));
    // In a millisecond 166 bytes left, with their heads, and 1078 still wait: more than is left of a link of 1000 kB/s.
    assert_eq!(did, [Cast(FastCastMessage::Increase { amount: 995 })]);
    p.hear(0, numbers(1, &[1, 1]));
    assert_eq!(p.hear(1, data([1], 100)), [Deliver(1, 1, 1), Cast(data([2], 100))]);
    assert_eq!(p.hear(1, FastCastMessage::Increase { amount: 995 }), []);
    assert_eq!(p.hear(0, FastCastMessage::Ack), []);
    // All others have reduced what they send: half of the link is for this member, without waiting for deliveries.
    let ahead = [Cast(data([3], 100)), Cast(data([4], 100))];
    assert_eq!(p.hear(2, FastCastMessage::Ack), ahead);
    let rest: Vec<_> = (5..=8).map(|seq| Cast(data([seq], 100))).collect();
    assert_eq!(p.run(at_us(4000)), rest);
    assert_eq!(p.run(at_us(7000)), [], "it waits for their deliveries");
    p.hear(0, numbers(3, &[1; 7]));
    for seq in 2..=8 {
        assert_eq!(p.hear(1, data([seq], 100)), [Deliver(1, seq, seq)]);
    }
    let less = [Cast(FastCastMessage::Decrease { amount: 995 })];
    assert_eq!(p.run(at_us(20_000)), less, "it has stopped");
    assert_eq!(p.member.deadline(), None, "nothing happens any more");
}

#[test]
fn a_burst_leaves_while_something_of_the_link_is_left_and_deliveries_hold_it_back() {
    let bursts = || {
        let set = played_settings(1);
        PlayedMember::with(FastCastSettings {
            capacity: CapacitySettings { queue: Some(Span::millis(2)), ..set.capacity },
            flight_bytes: 2_000,
            ..set
        })
    };
    let left = |did: &[PlayedAction]| did.iter().filter(|did| matches!(did, Cast(_))).count();
    let mut of_share = PlayedMember::new(1);
    let paid = left(&of_share.submit(1..=20, 100));
    let mut free = bursts();
    let burst = left(&free.submit(1..=20, 100));
    assert!(paid < burst && (9..=10).contains(&burst), "{paid}, {burst}: a half of 2,000 bytes");
    assert_eq!(left(&free.run(at_us(300))), 0, "more of them wait for the share");
    free.hear(0, numbers(0, &[1]));
    assert_eq!(left(&free.hear(1, data([1], 100))), 1, "a delivery makes room for the next one");
    let mut crowded = bursts().crowd();
    assert_eq!(left(&crowded.submit(1..=20, 100)), 1, "another member requires the whole link");
}

#[test]
fn a_member_acknowledges_an_increase_of_another_and_shares() {
    let mut p = PlayedMember::new(1);
    p.hear(0, numbers(0, &[2, 2, 2]));
    let ack = [To(2, FastCastMessage::Ack)];
    assert_eq!(p.hear(2, FastCastMessage::Increase { amount: 700 }), ack);
    assert_eq!(p.hear(2, FastCastMessage::Decrease { amount: 200 }), []);
    let wrong = [Malformed("a decrease below nothing")];
    assert_eq!(p.hear(2, FastCastMessage::Decrease { amount: 501 }), wrong);
    let unasked = [Malformed("an acknowledgement of no increase")];
    assert_eq!(p.hear(0, FastCastMessage::Ack), unasked);
}

#[test]
fn members_share_what_the_least_link_carries() {
    let mut p = PlayedMember::crowded(1);
    p.hear(0, numbers(1, &[0, 0, 0]));
    let link = |p: &mut PlayedMember, rate| {
        assert_eq!(p.hear(0, FastCastMessage::Capacity { rate }), []);
        p.member.bandwidth().link()
    };
    assert_eq!(link(&mut p, 400), 400);
    // Nobody stops all others, or has them send more than links are configured to carry.
    assert_eq!(link(&mut p, 0), 99);
    assert_eq!(link(&mut p, u64::MAX), 995);
}

#[test]
fn a_view_that_ends_in_the_middle_of_an_increase_leaves_nothing_of_it() {
    let mut p = PlayedMember::crowded(1);
    assert_eq!(p.submit(1..=8, 100), [Cast(data([1], 100))]);
    assert_eq!(p.run(at_us(1000)), [Cast(FastCastMessage::Increase { amount: 995 })]);
    p.hear(0, FastCastMessage::Ack);
    p.medium(GroupcastInput::Block);
    assert_eq!(p.submit([9], 100), [], "it waits for the next view");
    // The old view ends with its message and its increase, which have no numbers.
    assert_eq!(p.hear(1, data([1], 100)), []);
    assert_eq!(p.hear(1, FastCastMessage::Increase { amount: 995 }), []);
    let did = p.medium(GroupcastInput::View(&view(1, &[1, 2])));
    let again = Cast(FastCastMessage::Increase { amount: 995 });
    let rest = (2..=6).map(|seq| Cast(data([seq], 100)));
    let all: Vec<_> = [Deliver(1, 1, 1), again].into_iter().chain(rest).collect();
    assert_eq!(did, all, "nobody requires anything now, and the link has to spare");
    // It leads now, and numbers begin anew.
    assert_eq!(p.wake(), [Cast(numbers(0, &[1; 6]))]);
    assert_eq!(p.hear(1, numbers(0, &[1; 6])), []);
    assert_eq!(p.hear(1, FastCastMessage::Increase { amount: 995 }), []);
    assert!(p.member.bandwidth().is_increasing());
    assert_eq!(p.hear(2, FastCastMessage::Ack), [], "one other member is enough");
    assert_eq!(p.member.bandwidth().required(), 995);
}

#[test]
fn survivors_skip_a_number_whose_message_nobody_has() {
    let mut p = PlayedMember::new(1);
    for (sender, seq) in [(2, 1), (0, 1), (2, 2), (0, 2)] {
        p.hear(sender, data([seq], 3));
    }
    assert_eq!(p.hear(0, numbers(0, &[1, 2])), [], "no survivor sees a message of member 1");
    assert_eq!(p.medium(GroupcastInput::Block), []);
    let did = p.medium(GroupcastInput::View(&view(1, &[1, 2])));
    assert_eq!(did, [Deliver(2, 1, 1), Deliver(0, 1, 2), Deliver(0, 2, 3), Deliver(2, 2, 4)]);
}

#[test]
fn a_joiner_begins_at_the_position_of_the_others_and_sends_what_they_have_not() {
    let mut p = PlayedMember::new(2);
    p.submit([4], 3);
    p.submit([5], 3);
    assert_eq!(p.medium(GroupcastInput::Excluded), []);
    let state = JoinState { position: 7, last: alloc::vec![1, 1, 4] };
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    let next = view(4, &[0, 1, 2]);
    let did = p.medium(GroupcastInput::Join(&next, &bytes));
    assert_eq!(did, [Cast(data([5], 3))], "message 4 is delivered");
    p.hear(0, numbers(0, &[0, 0]));
    assert_eq!(p.hear(0, data([1], 3)), [], "it is in the state");
    assert_eq!(p.hear(0, data([2], 3)), [Deliver(0, 2, 8)]);
    let malformed = [Malformed(MALFORMED_STATE)];
    let did = p.medium(GroupcastInput::Join(&next, &[1]));
    assert_eq!(did[..1], malformed);
}

#[test]
fn a_shape_that_does_not_fit_is_refused_with_a_remedy() {
    let refused = |raw: RawConfig| {
        let config = raw.check(ABOUT.params).expect("in range");
        FastCast.build(Pid(0), &config).err().expect("refused").to_string()
    };
    assert!(refused(RawConfig::default()).contains("give groups = 1"));
    let mut raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
    raw.set.insert("heartbeat_us".into(), "50000".into());
    assert!(refused(raw).contains("is not below suspect_us"));
}

#[test]
fn room_is_what_the_window_leaves() {
    let mut p = PlayedMember::new(1);
    let dst = GroupSet::first(1);
    assert_eq!(p.member.room(dst, 1 << 14), 64);
    p.submit([1], 1);
    assert_eq!((p.member.room(dst, 1), p.member.room(dst, 1 << 22)), (63, 0));
    let mut waiting = Vec::new();
    p.member.waiting(&mut |msg, _| waiting.push(msg));
    assert_eq!(waiting, [MsgId { sender: Pid(1), seq: 1 }]);
}

#[test]
fn numbers_of_a_loaded_link_leave_often_enough_that_nobody_repeats_their_messages() {
    let mut p = PlayedMember::new(0);
    // A two hundredth of the link would let one leave in 96 ms.
    assert_eq!(p.member.numbers_apart_after(1 << 20), played_settings(0).numbers_apart);
}

#[test]
fn each_link_has_a_reserve() {
    let of = |mbps: &str, retry_us: &str| {
        let mut raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let set = [("link_mbps", mbps), ("retry_us", retry_us)];
        raw.set.extend(set.map(|(name, value)| (name.to_string(), value.to_string())));
        let config = raw.check(ABOUT.params).expect("a sound configuration");
        settings(Pid(0), &config)
    };
    for (mbps, share) in [("1", 123), ("8", 995), ("942", 117_162)] {
        assert_eq!(of(mbps, "200000").link, share, "{mbps} Mbit/s");
    }
    // Where numbers leave four times in five milliseconds, they take 128 kB/s, if that is no more than a fiftieth.
    for (mbps, share) in [("1", 123), ("8", 980), ("100", 12_372), ("942", 117_162)] {
        let FastCastSettings { link, numbers_apart, .. } = of(mbps, "5000");
        assert_eq!(link, share, "{mbps} Mbit/s");
        let configured =
            amcast_core::parameters::LinkRate { mbps: mbps.parse().expect("a number") }
                .kilobytes_per_s();
        let reserve = configured - link;
        assert!((reserve + 1) * numbers_apart.0 >= 160 * 1_000_000, "{mbps} Mbit/s");
    }
}
