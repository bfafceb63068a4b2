//! The reactions of each scheme to its inputs, on a group that the test plays.

use super::message::{OrderingMessage, msg};
use super::ordering_base::{OrderingSettings, Scheme, TotalOrderProtocol};
use super::*;
use crate::layers::batch::{Batch, OpenBatch};
use crate::layers::delivery::UNKNOWN_MESSAGE;
use alloc::vec::Vec;
use amcast_core::groupcast::{GroupMember, Groupcast, GroupcastInput, GroupcastOutput, View};
use amcast_core::step::WakeReason;
use amcast_core::{GroupSet, Input, MsgId, Outbox, Output, Protocol, RawConfig, Submission, Time};

/// The requests and deliveries of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
enum MemberAction {
    Cast(OrderingMessage),
    To(u32, OrderingMessage),
    Deliver(MsgId, u64),
    Malformed(&'static str),
}

/// Member `me` of three, in its first view.
struct OrderingMember<S> {
    total: TotalOrderProtocol<S>,
    now: Time,
}

fn view(id: u64, pids: &[u32]) -> View {
    View::new(id, pids.iter().map(|&p| GroupMember { pid: Pid(p), life: 0 }).collect())
}

fn setting(me: u32) -> OrderingSettings {
    let row = &SB_URCAST;
    let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
    let config = raw.check(row.about().params).expect("a sound configuration");
    OrderingSettings { burst: 2, run_messages: 2, ..row.setting(Pid(me), &config) }
}

impl<S: Scheme> OrderingMember<S> {
    fn new(me: u32, scheme: S) -> Self {
        let mut play =
            Self { total: TotalOrderProtocol::new(setting(me), scheme), now: Time::ZERO };
        play.medium(GroupcastInput::View(&view(0, &[0, 1, 2])));
        play
    }

    fn step(&mut self, input: Input<'_, Groupcast<OrderingMessage>>) -> Vec<MemberAction> {
        let mut out = Outbox::new(false);
        self.total.step(self.now, (), input, &mut out);
        let mut taken = Vec::new();
        out.take(&mut taken);
        let did = |output| match output {
            Output::Medium(GroupcastOutput::Cast(_, word)) => Some(MemberAction::Cast(word)),
            Output::Medium(GroupcastOutput::To(p, word)) => Some(MemberAction::To(p.0, word)),
            Output::Deliver(d) => Some(MemberAction::Deliver(d.msg, d.position)),
            Output::Note(amcast_core::step::Note::Malformed(_, why)) => {
                Some(MemberAction::Malformed(why))
            }
            _ => None,
        };
        taken.into_iter().filter_map(did).collect()
    }

    fn medium(&mut self, said: GroupcastInput<'_, OrderingMessage>) -> Vec<MemberAction> {
        self.step(Input::Medium(said))
    }

    fn hear(&mut self, from: u32, word: OrderingMessage) -> Vec<MemberAction> {
        self.medium(GroupcastInput::From(Pid(from), word))
    }

    /// Submits messages, and says what is done at the end of the round.
    fn submit(&mut self, seqs: impl IntoIterator<Item = u64>) -> Vec<MemberAction> {
        for seq in seqs {
            let dst = GroupSet::first(1);
            let said = self.step(Input::Submit(Submission { seq, dst, payload: &[seq as u8] }));
            assert_eq!(said, [], "it waits for the end of the round");
        }
        match self.total.deadline() {
            Some((at, WakeReason::Flush)) if at <= self.now => self.step(Input::Wake),
            _ => Vec::new(),
        }
    }
}

fn run(seqs: impl IntoIterator<Item = u64>) -> Batch {
    let mut open = OpenBatch::default();
    seqs.into_iter().for_each(|seq| open.push(seq, &[seq as u8]));
    open.seal().expect("at least one message")
}

fn plain(seqs: impl IntoIterator<Item = u64>) -> OrderingMessage {
    OrderingMessage::Plain { run: run(seqs) }
}

fn numbered(number: u64, sender: u32, seqs: impl IntoIterator<Item = u64>) -> OrderingMessage {
    OrderingMessage::Numbered { number, sender: Pid(sender), run: run(seqs) }
}

fn delivered(sender: u32, seq: u64, position: u64) -> MemberAction {
    MemberAction::Deliver(msg(Pid(sender), seq), position)
}

#[test]
fn a_number_and_its_message_may_come_in_any_order() {
    let mut p = OrderingMember::new(1, BroadcastBroadcast::new(Grade::Plain, Grade::Plain));
    assert_eq!(p.submit([1]), [MemberAction::Cast(plain([1]))]);
    let of = alloc::vec![msg(Pid(2), 1), msg(Pid(1), 1)];
    assert_eq!(p.hear(0, OrderingMessage::Numbers { first: 1, of }), []);
    assert_eq!(p.hear(1, plain([1])), [], "its turn is after that of another");
    assert_eq!(p.hear(2, plain([1])), [delivered(2, 1, 1), delivered(1, 1, 2)]);
    let of = alloc::vec![msg(Pid(2), 2)];
    let said = p.hear(2, OrderingMessage::Numbers { first: 3, of });
    assert_eq!(said, [MemberAction::Malformed(UNKNOWN_MESSAGE)], "no sequencer");
}

#[test]
fn what_is_submitted_in_a_round_leaves_and_is_delivered_as_one() {
    let mut p = OrderingMember::new(1, super::send::SendBroadcast::new(Grade::Uniform));
    assert_eq!(p.submit([1, 2]), [MemberAction::To(0, plain([1, 2]))]);
    let said = p.submit([4, 5, 6]);
    assert_eq!(
        said,
        [MemberAction::To(0, plain([4, 5])), MemberAction::To(0, plain([6]))],
        "no larger than may be"
    );
    let said = p.hear(0, numbered(1, 1, [1, 2]));
    assert_eq!(said, [delivered(1, 1, 1), delivered(1, 2, 2)]);
    assert_eq!(p.hear(0, numbered(3, 1, [6])), []);
    let rest = [(4, 3), (5, 4), (6, 5)].map(|(seq, at)| delivered(1, seq, at));
    assert_eq!(p.hear(0, numbered(2, 1, [4, 5])), rest);
}

#[test]
fn the_sequencer_numbers_many_messages_at_once() {
    let mut p = OrderingMember::new(0, BroadcastBroadcast::new(Grade::Plain, Grade::Plain));
    assert!(p.hear(2, plain([1])).is_empty() && p.hear(1, plain([1])).is_empty());
    assert_eq!(p.total.deadline(), Some((Time::ZERO, WakeReason::Flush)));
    let of = alloc::vec![msg(Pid(2), 1), msg(Pid(1), 1)];
    assert_eq!(
        p.step(Input::Wake),
        [MemberAction::Cast(OrderingMessage::Numbers { first: 1, of })]
    );
    assert_eq!((p.step(Input::Wake), p.total.deadline()), (Vec::new(), None));
}

#[test]
fn what_has_no_number_when_the_view_ends_is_delivered_by_seniority() {
    let mut p = OrderingMember::new(1, BroadcastBroadcast::new(Grade::Plain, Grade::Plain));
    for (sender, seq) in [(2, 1), (0, 1), (2, 2), (0, 2)] {
        p.hear(sender, plain([seq]));
    }
    let of = alloc::vec![msg(Pid(1), 9), msg(Pid(2), 1)];
    assert_eq!(p.hear(0, OrderingMessage::Numbers { first: 1, of }), [], "nobody sees message 9");
    assert_eq!(p.medium(GroupcastInput::Block), []);
    let next = p.medium(GroupcastInput::View(&view(1, &[1, 2])));
    let order = [(2, 1), (0, 1), (0, 2), (2, 2)];
    let order: Vec<_> =
        order.iter().zip(1..).map(|(&(s, seq), at)| delivered(s, seq, at)).collect();
    assert_eq!(next, order);
}

#[test]
fn what_the_old_sequencer_did_not_broadcast_goes_to_the_next() {
    let mut p = OrderingMember::new(1, super::send::SendBroadcast::new(Grade::Uniform));
    assert_eq!(p.submit([1]), [MemberAction::To(0, plain([1]))]);
    assert_eq!(p.submit([2]), [MemberAction::To(0, plain([2]))]);
    assert_eq!(p.hear(0, numbered(1, 1, [1])), [delivered(1, 1, 1)]);
    p.medium(GroupcastInput::Block);
    assert_eq!(p.submit([3]), [], "it waits for the next view");
    // It is the sequencer now, and begins with number 1 again.
    let next = p.medium(GroupcastInput::View(&view(1, &[1, 2])));
    assert_eq!(
        next,
        [MemberAction::Cast(numbered(1, 1, [2])), MemberAction::Cast(numbered(2, 1, [3]))]
    );
    assert_eq!(p.hear(2, plain([7])), [MemberAction::Cast(numbered(3, 2, [7]))]);
}

#[test]
fn numbers_are_asked_for_together_and_once_at_a_time() {
    let mut p = OrderingMember::new(1, AskBroadcast::new(Grade::Plain));
    assert_eq!(p.submit([1]), [MemberAction::To(0, OrderingMessage::Ask { count: 1 })]);
    assert!(p.submit([2]).is_empty() && p.submit([3]).is_empty());
    let said = p.hear(0, OrderingMessage::Grant { first: 4, count: 1 });
    assert_eq!(
        said,
        [
            MemberAction::Cast(numbered(4, 1, [1, 2])),
            MemberAction::To(0, OrderingMessage::Ask { count: 1 })
        ]
    );
    assert_eq!(p.submit([4, 5]), [], "it has asked already");
    let said = p.hear(0, OrderingMessage::Grant { first: 7, count: 1 });
    assert_eq!(
        said,
        [
            MemberAction::Cast(numbered(7, 1, [3, 4])),
            MemberAction::To(0, OrderingMessage::Ask { count: 1 })
        ]
    );
    let mut sequencer = OrderingMember::new(0, AskBroadcast::new(Grade::Plain));
    let said = sequencer.hear(1, OrderingMessage::Ask { count: 3 });
    assert_eq!(said, [MemberAction::To(1, OrderingMessage::Grant { first: 1, count: 3 })]);
    assert_eq!(sequencer.submit([1]), [MemberAction::Cast(numbered(4, 0, [1]))]);
}

#[test]
fn holes_are_skipped_when_the_view_ends_and_not_before() {
    let mut p = OrderingMember::new(1, AskBroadcast::new(Grade::Plain));
    assert_eq!(p.hear(2, numbered(2, 2, [1])), []);
    assert_eq!(p.hear(0, numbered(1, 0, [1])), [delivered(0, 1, 1), delivered(2, 1, 2)]);
    assert_eq!(p.hear(2, numbered(4, 2, [2])), []);
    assert_eq!(p.hear(2, numbered(4, 2, [3])), [MemberAction::Malformed("a number that is taken")]);
    p.medium(GroupcastInput::Block);
    assert_eq!(p.medium(GroupcastInput::View(&view(1, &[1, 2]))), [delivered(2, 2, 3)]);
}

#[test]
fn the_token_goes_on_after_a_burst_and_rests_when_nobody_sends() {
    let mut p = OrderingMember::new(1, PrivilegeBased::new(Grade::Plain));
    let hurry =
        [MemberAction::To(0, OrderingMessage::Hurry), MemberAction::To(2, OrderingMessage::Hurry)];
    assert_eq!(p.submit([1]), hurry);
    assert!(p.submit([2]).is_empty() && p.submit([3]).is_empty(), "it has asked already");
    let said = p.hear(0, OrderingMessage::Token { next: 5, idle: 2 });
    let burst = [
        MemberAction::Cast(numbered(5, 1, [1, 2])),
        MemberAction::To(2, OrderingMessage::Token { next: 6, idle: 1 }),
    ];
    assert_eq!(said, burst);
    let said = p.hear(0, OrderingMessage::Token { next: 9, idle: 0 });
    assert_eq!(said[0], MemberAction::Cast(numbered(9, 1, [3])));
    // It went round and nobody had anything to send.
    assert_eq!(p.hear(0, OrderingMessage::Token { next: 10, idle: 3 }), []);
    let (rested, _) = p.total.deadline().expect("it rests for a while");
    assert!(rested > p.now);
    p.now = rested;
    assert_eq!(
        p.step(Input::Wake),
        [MemberAction::To(2, OrderingMessage::Token { next: 10, idle: 4 })]
    );
    p.hear(0, OrderingMessage::Token { next: 10, idle: 5 });
    let said = p.hear(2, OrderingMessage::Hurry);
    assert_eq!(
        said,
        [MemberAction::To(2, OrderingMessage::Token { next: 10, idle: 0 })],
        "somebody asked"
    );
}

#[test]
fn who_joins_begins_at_the_position_of_the_others_and_sends_what_they_have_not() {
    let mut member =
        TotalOrderProtocol::new(setting(0), super::send::SendBroadcast::new(Grade::Uniform));
    let mut out = Outbox::new(false);
    let first = view(3, &[0, 1]);
    for input in [GroupcastInput::View(&first), GroupcastInput::From(Pid(0), numbered(1, 2, [4]))] {
        member.step(Time::ZERO, (), Input::Medium(input), &mut out);
    }
    out.clear();
    let next = view(4, &[0, 1, 2]);
    member.step(Time::ZERO, (), Input::Medium(GroupcastInput::View(&next)), &mut out);
    let base = out.items().iter().find_map(|output| match output {
        Output::Medium(GroupcastOutput::Base(base)) => Some(out.bytes(*base).to_vec()),
        _ => None,
    });
    let mut p = OrderingMember::new(2, super::send::SendBroadcast::new(Grade::Uniform));
    p.submit([4]);
    p.submit([5]);
    p.medium(GroupcastInput::Excluded);
    let said = p.medium(GroupcastInput::Join(&next, &base.expect("what a joiner needs")));
    assert_eq!(said, [MemberAction::To(0, plain([5]))], "message 4 is delivered");
    assert_eq!(p.hear(0, numbered(1, 0, [1])), [delivered(0, 1, 2)]);
}

#[test]
fn room_is_what_the_window_leaves() {
    let mut p = OrderingMember::new(1, super::send::SendBroadcast::new(Grade::Plain));
    let dst = GroupSet::first(1);
    assert_eq!(p.total.room(dst, 1 << 14), 64);
    p.submit([1]);
    assert_eq!(p.total.room(dst, 1), 63);
    assert_eq!(p.total.room(dst, 1 << 22), 0, "the bytes are one short");
    p.hear(0, numbered(1, 1, [1]));
    assert_eq!(p.total.room(dst, 1 << 22), 1);
}

#[test]
fn a_shape_that_does_not_fit_is_refused_with_what_would() {
    let refused = |raw: RawConfig| {
        let config = raw.check(SB_URCAST.about().params).expect("in range");
        alloc::string::ToString::to_string(
            &SB_URCAST.build(Pid(0), &config).err().expect("refused"),
        )
    };
    assert!(refused(RawConfig::default()).contains("give groups = 1"));
    let raw = RawConfig { groups: 1, ..RawConfig::default() };
    assert!(refused(raw.clone()).contains("give clients = 0"));
    let mut raw = RawConfig { clients: 0, ..raw };
    raw.set.insert("heartbeat_us".into(), "50000".into());
    assert!(refused(raw).contains("is not below suspect_us"));
}
