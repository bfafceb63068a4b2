//! The reactions of a member to its inputs, on a group that the test plays.

use crate::layers::batch::{Batch, OpenBatch};
use crate::layers::join_state::{JoinState, MALFORMED_STATE};
use crate::toto::member::{TotoMember, VoteRule};
use crate::toto::message::TotoMessage;
use crate::toto::{ALL_ACK, TOTO, TOTO_PARTITIONABLE, VotedOrder};
use alloc::string::ToString;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{
    Grade, GroupMember, Groupcast, GroupcastInput, GroupcastOutput, View,
};
use amcast_core::step::{Note, WaitReason};
use amcast_core::{
    Entry, GroupSet, Input, MsgId, Outbox, Output, Pid, Protocol, RawConfig, Span, Submission, Time,
};

/// The requests and deliveries of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
enum VoteAction {
    Cast(TotoMessage),
    /// Sender, its number of the message, and the position.
    Deliver(u32, u64, u64),
    Malformed(&'static str),
}

use VoteAction::{Cast, Deliver, Malformed};

/// A member in its first view.
struct PlayedVoter {
    member: TotoMember,
    now: Time,
}

fn view(id: u64, pids: &[u32]) -> View {
    View::new(id, pids.iter().map(|&p| GroupMember { pid: Pid(p), life: 0 }).collect())
}

impl PlayedVoter {
    /// Of four members.
    fn new(entry: &'static VotedOrder, me: u32) -> Self {
        let set = [("vote_us".to_string(), "100".to_string())].into();
        let raw = RawConfig { groups: 1, replicas: 4, clients: 0, set, ..RawConfig::default() };
        let config = raw.check(entry.about().params).expect("a sound configuration");
        let member = TotoMember::new(entry.settings(Pid(me), &config));
        let mut played = Self { member, now: Time::ZERO };
        assert_eq!(played.medium(GroupcastInput::View(&view(0, &[0, 1, 2, 3]))), []);
        played
    }

    fn step(&mut self, input: Input<'_, Groupcast<TotoMessage>>) -> Vec<VoteAction> {
        let mut out = Outbox::new(false);
        self.member.step(self.now, (), input, &mut out);
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

    fn medium(&mut self, input: GroupcastInput<'_, TotoMessage>) -> Vec<VoteAction> {
        self.step(Input::Medium(input))
    }

    fn hear(&mut self, from: u32, message: TotoMessage) -> Vec<VoteAction> {
        self.medium(GroupcastInput::From(Pid(from), message))
    }

    /// Submits messages, and says what leaves at the end of the round.
    fn submit(&mut self, seqs: impl IntoIterator<Item = u64>) -> Vec<VoteAction> {
        for seq in seqs {
            let (dst, payload) = (GroupSet::first(1), [seq as u8; 3]);
            let did = self.step(Input::Submit(Submission { seq, dst, payload: &payload }));
            assert_eq!(did, [], "it waits for the end of the round");
        }
        self.wake()
    }

    /// Wakes it at its deadline, if it has one.
    fn wake(&mut self) -> Vec<VoteAction> {
        let Some((at, _)) = self.member.deadline() else { return Vec::new() };
        self.now = self.now.max(at);
        self.step(Input::Wake)
    }
}

fn batch(seqs: impl IntoIterator<Item = u64>) -> Batch {
    let mut open = OpenBatch::default();
    seqs.into_iter().for_each(|seq| open.push(seq, &[seq as u8; 3]));
    open.seal().expect("at least one message")
}

fn data(follows: [u64; 4], seqs: impl IntoIterator<Item = u64>) -> TotoMessage {
    TotoMessage { follows: follows.to_vec(), batch: Some(batch(seqs)) }
}

fn vote(follows: [u64; 4]) -> TotoMessage {
    TotoMessage { follows: follows.to_vec(), batch: None }
}

#[test]
fn a_message_is_delivered_with_the_votes_of_a_majority_and_all_ack_waits_for_all() {
    for (entry, early) in [(&TOTO, true), (&ALL_ACK, false)] {
        let mut p = PlayedVoter::new(entry, 3);
        assert_eq!(p.hear(0, data([1, 0, 0, 0], [7, 8])), []);
        assert_eq!(p.hear(1, vote([1, 1, 0, 0])), []);
        let all = [Deliver(0, 7, 1), Deliver(0, 8, 2)];
        let first: &[VoteAction] = if early { &all } else { &[] };
        assert_eq!(p.hear(2, vote([1, 0, 1, 0])), first);
        assert_eq!(p.member.deadline().is_some(), !early, "its vote is not needed any more");
        if !early {
            assert_eq!(p.wake(), [Cast(vote([1, 1, 1, 1]))]);
            assert_eq!(p.hear(3, vote([1, 1, 1, 1])), all);
        }
    }
}

#[test]
fn a_silent_member_votes_after_the_delay_and_a_message_of_its_own_is_a_vote() {
    let mut p = PlayedVoter::new(&TOTO, 1);
    assert_eq!(p.hear(0, data([1, 0, 0, 0], [7])), []);
    let at = |p: &PlayedVoter| p.member.deadline().map(|(at, _)| at);
    assert_eq!(at(&p), Some(Time::ZERO + Span::micros(100)));
    p.now = Time::ZERO + Span::micros(60);
    assert_eq!(p.hear(2, vote([1, 0, 1, 0])), []);
    assert_eq!(at(&p), Some(Time::ZERO + Span::micros(100)), "the delay is not begun anew");
    assert_eq!(p.wake(), [Cast(vote([1, 1, 1, 0]))]);
    assert_eq!(p.wake(), [], "the vote is on its way");
    assert_eq!(p.hear(1, vote([1, 1, 1, 0])), [Deliver(0, 7, 1)]);
    // A message that is submitted in time carries the vote.
    assert_eq!(p.hear(2, data([1, 1, 2, 0], [5])), []);
    assert_eq!(p.submit([1, 2]), [Cast(data([1, 2, 2, 0], [1, 2]))]);
    assert_eq!(p.wake(), []);
}

#[test]
fn a_message_that_overtakes_one_that_it_follows_waits_for_it() {
    let mut p = PlayedVoter::new(&TOTO, 3);
    assert_eq!(p.hear(1, vote([1, 1, 0, 0])), []);
    assert_eq!(p.hear(2, data([1, 1, 1, 0], [4])), []);
    assert!(p.member.deadline().is_none(), "no candidate is here");
    assert_eq!(p.hear(0, data([1, 0, 0, 0], [7])), [Deliver(0, 7, 1)]);
    assert_eq!(p.hear(0, data([1, 0, 0, 0], [8])), [Malformed("a message that is not next")]);
    assert_eq!(p.hear(9, vote([1, 0, 0, 0])), [Malformed("a message of no member")]);
}

#[test]
fn survivors_deliver_the_rest_of_a_view_and_drop_what_follows_a_lost_message() {
    let mut p = PlayedVoter::new(&TOTO, 1);
    assert_eq!(p.submit([1]), [Cast(data([0, 1, 0, 0], [1]))]);
    assert_eq!(p.hear(1, data([0, 1, 0, 0], [1])), []);
    assert_eq!(p.hear(0, data([1, 0, 0, 0], [7])), []);
    assert_eq!(p.medium(GroupcastInput::Block), []);
    assert_eq!(p.submit([2]), [], "it waits for the next view");
    assert_eq!(p.hear(2, data([1, 0, 1, 1], [5])), [], "what it follows is lost with its sender");
    let did = p.medium(GroupcastInput::View(&view(1, &[1, 0])));
    assert_eq!(did[..2], [Deliver(0, 7, 1), Deliver(1, 1, 2)]);
    // It is the first of the view now, and vectors begin anew.
    let TotoMessage { follows, batch: sent } = match &did[2..] {
        [Cast(message)] => message.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((follows, sent), (alloc::vec![1, 0], Some(batch([2]))));
}

#[test]
fn an_excluded_member_gives_up_its_messages_and_begins_at_the_position_of_the_others() {
    let mut p = PlayedVoter::new(&TOTO, 2);
    p.submit([4]);
    p.submit([5]);
    let (dst, payload) = (GroupSet::first(1), [6]);
    assert_eq!(p.step(Input::Submit(Submission { seq: 6, dst, payload: &payload })), []);
    assert_eq!(p.medium(GroupcastInput::Excluded), [], "with the message that is not sent yet");
    assert_eq!(p.member.room(GroupSet::first(1), 1), 0);
    assert_eq!(p.submit([7]), [], "it was under way");
    let state = JoinState { position: 7, last: alloc::vec![1, 1, 4, 0] };
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    let next = view(4, &[0, 1, 3, 2]);
    let did = p.medium(GroupcastInput::Join(&next, &bytes));
    assert_eq!(did, [], "all of them may follow what nobody else has");
    assert_eq!(p.submit([8]), [Cast(data([0, 0, 0, 1], [8]))]);
    assert_eq!(p.hear(3, data([0, 0, 1, 1], [9])), []);
    assert_eq!(p.hear(2, data([0, 0, 0, 1], [8])), []);
    assert_eq!(p.hear(3, data([0, 0, 1, 1], [9])), [Malformed("a message that is not next")]);
    let malformed = [Malformed(MALFORMED_STATE)];
    assert_eq!(p.medium(GroupcastInput::Join(&next, &[1]))[..1], malformed);
}

#[test]
fn room_is_what_the_window_leaves_and_a_message_waits_for_votes() {
    let mut p = PlayedVoter::new(&TOTO, 1);
    let dst = GroupSet::first(1);
    assert_eq!(p.member.room(dst, 1 << 14), 64);
    p.submit([1]);
    assert_eq!((p.member.room(dst, 1), p.member.room(dst, 1 << 22)), (63, 0));
    let mut waiting = Vec::new();
    p.member.waiting(&mut |msg, why| waiting.push((msg, why)));
    let msg = MsgId { sender: Pid(1), seq: 1 };
    assert!(matches!(waiting[..], [(of, WaitReason::Quorum(_))] if of == msg), "{waiting:?}");
}

#[test]
fn a_shape_that_does_not_fit_is_refused_with_a_remedy() {
    for entry in [&TOTO, &ALL_ACK] {
        let config = RawConfig::default().check(entry.about().params).expect("in range");
        let refused = entry.build(Pid(0), &config).err().expect("refused").to_string();
        assert!(refused.contains(entry.name()) && refused.contains("give groups = 1"), "{refused}");
    }
}

#[test]
fn a_parameter_without_an_effect_is_refused_where_every_component_continues() {
    let check = |entry: &VotedOrder| {
        let set = [("full_us".to_string(), "1000000".to_string())].into_iter().collect();
        RawConfig { set, ..RawConfig::default() }.check(entry.about().params).map(drop)
    };
    assert!(check(&TOTO).is_ok() && check(&ALL_ACK).is_ok());
    let refused = check(&TOTO_PARTITIONABLE).expect_err("nobody continues without a member");
    assert!(refused.to_string().contains("full_us"), "{refused}");
}

#[test]
fn phi_is_rounded_down_which_changes_no_decision() {
    for members in 1..=32_usize {
        for percent in 50..=100 {
            let phi = VoteRule::Percent(percent).phi(members);
            assert!(phi >= members / 2 && phi < members, "{members}, {percent}: {phi}");
            // A hundred times as large, so that no real number is needed; at the upper end phi is below all members.
            let exact = (members * percent as usize).min(100 * members - 1);
            for count in 0..=members {
                assert_eq!(count > phi, 100 * count > exact);
                assert_eq!(count + phi < members, 100 * count + exact < 100 * members);
            }
        }
        assert_eq!(VoteRule::All.phi(members), members - 1);
        assert_eq!(VoteRule::Percent(100).phi(members), members - 1);
    }
}
