//! Phase 2 along the ring: the messages of a member to its successor, and the votes that it reports to the coordinator.
//!
//! # The successor
//! Values go from one member to the next, to each once. A slow member takes them at its own pace: its
//! unconfirmed bytes are bounded. A value that has left this process's memory is decided, so the successor
//! requests its retransmission. The coordinator excludes a member that lags far behind (`membership.rs`)
//! until it has caught up that way: the members after it in the ring do not wait for it. A member that its
//! predecessor does not reach is passed over at once.
//!
//! # The coordinator
//! Votes go directly to the coordinator from the first member that sees a quorum of them, not round the
//! rest of the ring: a member whose vote is not needed delays nothing, and one hop or more is saved.

use super::MultiRingMutant;
use super::message::{AcceptorVote, Phase2, RingMessage};
use super::ring::{RingContext, RingMember};
use super::value::{InstanceEntry, RingBallot, VALUES_BYTES_MAX};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};

/// How many times `pipeline_bytes` may be sent to the successor and not confirmed.
const UNCONFIRMED_PIPELINES: usize = 4;

/// How many members on each side exchange heartbeats with a member, besides acceptors.
pub(super) const WATCHERS: usize = 2;

/// The values sent to the successor.
#[derive(Clone, Debug, Default)]
pub(super) struct SuccessorLink {
    to: Option<Pid>,
    ballot: RingBallot,
    membership_number: u32,
    /// It was sent the ballot up to here.
    end: u64,
    /// Entries that it was sent and has not confirmed: the end of each, and its bytes.
    unconfirmed: VecDeque<(u64, usize)>,
    unconfirmed_bytes: usize,
    votes: Vec<AcceptorVote>,
    trim_end: u64,
    /// When something was sent last.
    at: Time,
    /// Whether something must be sent, because the connection is new.
    must_send: bool,
}

impl SuccessorLink {
    /// The connection to `pid` is new.
    pub(super) fn reconnected(&mut self, pid: Pid) {
        if self.to == Some(pid) {
            self.must_send = true;
        }
    }

    /// The successor holds the ballot up to `learned`.
    fn on_confirmed(&mut self, learned: u64) {
        self.end = self.end.max(learned);
        while let Some(&(_, bytes)) = self.unconfirmed.front().filter(|(end, _)| *end <= learned) {
            self.unconfirmed_bytes -= bytes;
            self.unconfirmed.pop_front();
        }
    }

    /// Whether `pid` is the successor.
    pub(super) fn is_to(&self, pid: Pid) -> bool {
        self.to == Some(pid)
    }

    /// The successor holds the ballot up to `from` only.
    pub(super) fn back_to(&mut self, from: u64) {
        self.end = from;
        while let Some(&(_, bytes)) = self.unconfirmed.back().filter(|(end, _)| *end > from) {
            self.unconfirmed_bytes -= bytes;
            self.unconfirmed.pop_back();
        }
    }

    fn sent(&mut self, entries: &[InstanceEntry]) {
        for entry in entries {
            let bytes = entry.value.size();
            self.unconfirmed.push_back((entry.end(), bytes));
            self.unconfirmed_bytes += bytes;
            self.end = entry.end();
        }
    }
}

impl RingMember {
    /// The next member that is neither excluded nor out of reach, if there is another.
    fn next_member(&self, cx: &RingContext<'_>) -> Option<Pid> {
        let at = self.topology.member(cx.me)?;
        let members = &self.topology.members;
        let mut behind = members[at + 1..].iter().chain(&members[..at]).copied();
        let passed_over = |p: &Pid| {
            self.membership.excluded.contains(p)
                || self.exchanges_heartbeats(cx.me, *p) && !cx.reaches(*p)
        };
        behind.find(|p| !passed_over(p))
    }

    /// Whether `me` and `p` exchange heartbeats for this ring.
    pub(super) fn exchanges_heartbeats(&self, me: Pid, p: Pid) -> bool {
        let Some((mine, its)) = self.topology.member(me).zip(self.topology.member(p)) else {
            return false;
        };
        let count = self.topology.members.len();
        let between = |from: usize, to: usize| (to + count - from) % count;
        let near = between(mine, its).min(between(its, mine)) <= WATCHERS;
        near || self.topology.acceptor(me).is_some() || self.topology.acceptor(p).is_some()
    }

    /// [MRP 4] Sends the successor its missing messages: proposals of the ballot, votes that may
    /// decide something, and a message in each heartbeat interval.
    pub(super) fn forward_phase2(&mut self, cx: &mut RingContext<'_>) {
        if self.membership.excluded.contains(&cx.me) {
            // The others have all this from each other.
            self.successor.to = None;
            return;
        }
        let Some(to) = self.next_member(cx).filter(|_| self.current.ballot != RingBallot::NONE)
        else {
            self.successor.to = None;
            return;
        };
        if self.successor.to != Some(to) || self.successor.ballot != self.current.ballot {
            // Of a new ballot it has nothing; of an old one it reports the first missing proposal.
            let end = if self.successor.ballot == self.current.ballot {
                self.current.end
            } else {
                self.current.start
            };
            let (to, ballot) = (Some(to), self.current.ballot);
            self.successor =
                SuccessorLink { to, ballot, end, must_send: true, ..SuccessorLink::default() };
        }
        let closes = Some(to) == self.coordinator_pid();
        if let Some(at) = self.topology.member(to).filter(|_| self.exchanges_heartbeats(cx.me, to))
        {
            self.successor.on_confirmed(self.membership.peers[at].learned.min(self.current.end));
        } else if self.successor.end < self.learner.learned {
            // A value that is no longer in memory is decided, and the successor requests its
            // retransmission.
            let held = self.log.in_memory_from(self.successor.end).min(self.learner.learned);
            self.successor.on_confirmed(held);
        }
        while self.has_news(closes, cx) {
            // [MRP 1:6]
            let entries = if closes { Vec::new() } else { self.unsent(cx) };
            self.successor.sent(&entries);
            if closes {
                self.successor.end = self.current.end;
            }
            (self.successor.at, self.successor.must_send) = (cx.now, false);
            (self.successor.membership_number, self.successor.trim_end) =
                (self.membership.number, self.trim_end);
            self.successor.votes.clone_from(&self.current.votes);
            let phase2 = self.phase2(self.successor.end, entries, cx);
            cx.send(to, RingMessage::Phase2(phase2));
        }
    }

    /// Whether more values may be sent to the successor.
    fn has_window(&self, cx: &RingContext<'_>) -> bool {
        let most = cx.config.limits.pipeline_bytes.saturating_mul(UNCONFIRMED_PIPELINES);
        let shows = self.successor.to.is_some_and(|to| self.exchanges_heartbeats(cx.me, to));
        // No value that is proposed again is known to be decided before all of them have arrived.
        let again = self.successor.end < self.current.reproposed_end;
        !shows || again || self.successor.unconfirmed_bytes < most
    }

    /// Whether something must be sent to the successor.
    fn has_news(&self, closes: bool, cx: &RingContext<'_>) -> bool {
        let link = &self.successor;
        if link.must_send
            || link.membership_number != self.membership.number
            || link.trim_end != self.trim_end
        {
            return true;
        }
        let more = !closes && link.end < self.current.end && self.has_window(cx);
        if more && self.ballot_entry(link.end).is_some() {
            return true;
        }
        if cx.now.since(link.at) >= cx.config.heartbeat {
            return true;
        }
        // An instance that the successor knows to be decided needs no more votes; the coordinator gets them
        // directly.
        let decided = self.accepted_by_quorum(&link.votes, cx);
        let sent_vote = |at: usize| link.votes.get(at).copied().unwrap_or_default();
        let matters = |(at, vote): (usize, &AcceptorVote)| {
            *vote != sent_vote(at)
                && vote.upto > decided
                && Some(self.topology.acceptors[at]) != link.to
        };
        !closes && self.current.votes.iter().enumerate().any(matters)
    }

    /// The time of the next message to the successor at the latest.
    pub(super) fn forward_at(&self, heartbeat: Span) -> Time {
        // Without a successor nothing is sent.
        let passes = self.current.ballot != RingBallot::NONE && self.successor.to.is_some();
        if passes { self.successor.at + heartbeat } else { Time::NEVER }
    }

    /// Proposals that the successor was not sent, about one packet of them.
    fn unsent(&self, cx: &RingContext<'_>) -> Vec<InstanceEntry> {
        if self.has_window(cx) {
            self.ballot_entries_from(self.successor.end, cx)
        } else {
            Vec::new()
        }
    }

    /// Proposals of the ballot from instance `at` on, about one packet of them.
    pub(super) fn ballot_entries_from(
        &self,
        mut at: u64,
        cx: &RingContext<'_>,
    ) -> Vec<InstanceEntry> {
        let (mut bytes, mut entries) = (0, Vec::new());
        let mut wire_bytes = 0;
        while at < self.current.end && bytes < cx.config.limits.pass_bytes {
            let Some(entry) = self.ballot_entry(at) else { break };
            bytes += entry.value.size();
            wire_bytes += entry.wire_bytes();
            if wire_bytes > VALUES_BYTES_MAX && !entries.is_empty() {
                break;
            }
            at = entry.end();
            entries.push(InstanceEntry { ballot: self.current.ballot, ..entry });
        }
        entries
    }

    /// A phase 2 message with these proposals, which end at `end`. With each vote goes the storage epoch in
    /// which it counts: a vote of a lost epoch counts nowhere once any vote of a process that knows of the
    /// loss is needed, too.
    pub(super) fn phase2(
        &self,
        end: u64,
        entries: Vec<InstanceEntry>,
        cx: &RingContext<'_>,
    ) -> Phase2 {
        let current = |(at, vote): (usize, &AcceptorVote)| {
            let storage_epoch = cx.storage_epochs[self.topology.acceptors[at].index()];
            let lost = vote.storage_epoch < storage_epoch
                && !cx.config.mutants.is(MultiRingMutant::SendsOnLostVotes);
            if lost { AcceptorVote { storage_epoch, upto: 0 } } else { *vote }
        };
        Phase2 {
            ring: self.id,
            ballot: self.current.ballot,
            membership_number: self.membership.number,
            excluded: self.membership.excluded.clone(),
            start: self.current.start,
            reproposed_end: self.current.reproposed_end,
            end,
            votes: self.current.votes.iter().enumerate().map(current).collect(),
            trim_end: self.trim_end,
            entries,
        }
    }

    /// Sends the state of the ballot to a live member that is excluded from the ring, so that it can follow.
    pub(super) fn send_ballot_to(&self, to: Pid, cx: &mut RingContext<'_>) {
        let phase2 = self.phase2(self.current.start, Vec::new(), cx);
        cx.send(to, RingMessage::Phase2(phase2));
    }

    /// How far the coordinator knows the ballot to be decided once it has these votes: it knows its own
    /// itself.
    fn decides(&self, votes: &[AcceptorVote], cx: &RingContext<'_>) -> u64 {
        let mut votes = votes.to_vec();
        if let Some(at) = self.coordinator_pid().and_then(|p| self.topology.acceptor(p)) {
            let storage_epoch = cx.storage_epochs[self.topology.acceptors[at].index()];
            votes[at] = AcceptorVote { storage_epoch, upto: u64::MAX };
        }
        self.accepted_by_quorum(&votes, cx)
    }

    /// Reports votes to the coordinator that decide something; and its own vote where it gets the ballot
    /// over the direct channel.
    pub(super) fn report_votes(&mut self, cx: &mut RingContext<'_>) {
        let Some(to) =
            self.coordinator_pid().filter(|&to| to != cx.me && self.acceptor.index.is_some())
        else {
            return;
        };
        let own = |votes: &[AcceptorVote]| self.acceptor.index.map_or(0, |mine| votes[mine].upto);
        let asked = self.current.asked_direct
            && own(&self.current.votes) > own(&self.current.reported_votes);
        if asked
            || self.decides(&self.current.votes, cx)
                > self.decides(&self.current.reported_votes, cx)
        {
            self.current.reported_votes.clone_from(&self.current.votes);
            let phase2 = self.phase2(self.current.start, Vec::new(), cx);
            cx.send(to, RingMessage::Phase2(phase2));
        }
    }

    /// The coordinator has these votes: the process that sent them on has reported those that decide
    /// something. If that report is lost, the ring ends at the coordinator, too.
    pub(super) fn coordinator_has_votes(&mut self, votes: &[AcceptorVote]) {
        for (held, vote) in self.current.reported_votes.iter_mut().zip(votes) {
            if (vote.storage_epoch, vote.upto) > (held.storage_epoch, held.upto) {
                *held = *vote;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::persistence::{AcceptorStorage, PendingWrites};
    use super::super::shared_bytes::SharedBytes;
    use super::super::topology::{RingKinds, RingTraversal, topologies};
    use super::super::value::{InstanceValue, RingProposal};
    use super::super::{MultiRingConfig, WRITTEN};
    use super::*;
    use crate::layers::failure_detector::FailureDetector;
    use crate::layers::routing::LinkTable;
    use amcast_core::codec::Codec;
    use amcast_core::limits::FRAME_BYTES_MAX;
    use amcast_core::{Entry as _, Gid, GroupSet, MsgId, Outbox, RawConfig};

    const BALLOT: RingBallot = RingBallot::new(1, Pid(0));

    /// A batch of one message.
    fn batch(seq: u64) -> InstanceValue {
        let (msg, dst) = (MsgId { sender: Pid(0), seq }, GroupSet::one(Gid(0)));
        let mut bytes = Vec::new();
        RingProposal { msg, incarnation: 0, number: seq + 1, dst, payload: &[7; 64] }
            .encode(&mut bytes);
        InstanceValue::Batch(SharedBytes::from(&bytes[..]))
    }

    /// A member of a ring of three that `Pid(0)` coordinates.
    struct MemberFixture {
        me: Pid,
        now: Time,
        config: MultiRingConfig,
        links: LinkTable,
        storage_epochs: Vec<u32>,
        writes: PendingWrites,
        outgoing: Vec<(Pid, RingMessage)>,
        ring: RingMember,
    }

    impl MemberFixture {
        fn new(me: Pid) -> Self {
            let set = [("pipeline_bytes", "1000"), ("pass_bytes", "500")];
            let set = set.map(|(name, value)| (name.into(), value.into())).into();
            let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
            let checked = raw.check(WRITTEN.about().params).unwrap();
            let config = MultiRingConfig::of(AcceptorStorage::Written, &checked).unwrap();
            let round =
                topologies(checked.cluster(), RingKinds::Independent, &[], RingTraversal::Nodes)
                    .remove(0);
            let detector =
                FailureDetector::new(me.index(), &[0, 1, 2], config.heartbeat, config.suspect);
            let mut member = Self {
                me,
                now: Time(1),
                links: LinkTable::new(me, Vec::new(), detector, 3),
                config,
                storage_epochs: alloc::vec![0; 3],
                writes: PendingWrites::new(AcceptorStorage::Written, 1 << 20),
                outgoing: Vec::new(),
                ring: RingMember::new(0, round, me, 3),
            };
            member.does(|ring, cx| ring.follow_ballot(BALLOT, (0, 0), cx));
            member
        }

        /// Runs a closure and the work that follows; returns the sent messages.
        fn does(
            &mut self,
            does: impl FnOnce(&mut RingMember, &mut RingContext<'_>),
        ) -> Vec<(Pid, RingMessage)> {
            let Self { me, now, config, links, storage_epochs, writes, outgoing, ring } = self;
            let mut cx = RingContext {
                now: *now,
                me: *me,
                votes: true,
                config,
                links,
                storage_epochs,
                writes,
                outgoing,
                out: &mut Outbox::default(),
                level_needs: &mut Vec::new(),
            };
            does(ring, &mut cx);
            while let Some(super::super::persistence::DurableAction::Vote {
                ballot, upto, ..
            }) = cx.writes.due.pop_front()
            {
                ring.vote(ballot, upto, &mut cx);
            }
            core::mem::take(outgoing)
        }

        fn accepts(&mut self, count: u64) {
            for _ in 0..count {
                let first = self.ring.current.end;
                let entry = InstanceEntry { first, ballot: BALLOT, value: batch(first) };
                self.does(|ring, cx| ring.accept(entry, cx));
            }
        }
    }

    /// The instances that are sent to a process.
    fn passed(messages: &[(Pid, RingMessage)], whom: Pid) -> Vec<u64> {
        let passes =
            messages.iter().filter(|(to, _)| *to == whom).filter_map(
                |(_, message)| match message {
                    RingMessage::Phase2(phase2) => Some(&phase2.entries),
                    _ => None,
                },
            );
        passes.flatten().map(|entry| entry.first).collect()
    }

    #[test]
    fn unconfirmed_bytes_to_the_successor_are_bounded() {
        let mut first = MemberFixture::new(Pid(0));
        first.accepts(500);
        let messages = first.does(|ring, cx| ring.forward_phase2(cx));
        let most = (UNCONFIRMED_PIPELINES * 1000).div_ceil(batch(0).size()) as u64;
        let sent = passed(&messages, Pid(1));
        assert_eq!(sent, (0..sent.len() as u64).collect::<Vec<_>>());
        assert!((most / 2..=most + 1).contains(&(sent.len() as u64)), "{}", sent.len());
        assert!(passed(&first.does(|ring, cx| ring.forward_phase2(cx)), Pid(1)).is_empty());
        // It confirms some, and reports that it lost the rest.
        first.ring.membership.peers[1].learned = 10;
        let more = passed(&first.does(|ring, cx| ring.forward_phase2(cx)), Pid(1));
        assert_eq!((more[0], more.len()), (sent.len() as u64, 10));
        first.does(|ring, cx| ring.on_phase2_gap(Pid(1), (BALLOT, 15), cx));
        let again = passed(&first.does(|ring, cx| ring.forward_phase2(cx)), Pid(1));
        assert_eq!((again[0], again.len()), (15, sent.len() - 5));
    }

    #[test]
    fn reproposed_values_are_sent_as_a_whole() {
        let mut first = MemberFixture::new(Pid(0));
        first.ring.current.reproposed_end = 400;
        first.accepts(500);
        let messages = first.does(|ring, cx| ring.forward_phase2(cx));
        let sent = passed(&messages, Pid(1));
        assert!((400..500).contains(&sent.len()), "{}", sent.len());
        assert_eq!(sent, (0..sent.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_member_with_a_quorum_of_votes_reports_it_and_no_other_does() {
        let mut second = MemberFixture::new(Pid(1));
        second.accepts(1);
        let messages = second.does(|ring, cx| {
            ring.forward_phase2(cx);
            ring.report_votes(cx);
        });
        assert_eq!(messages.iter().filter(|(to, _)| *to == Pid(0)).count(), 1, "{messages:?}");
        let phase2 = messages.iter().find_map(|(to, message)| match message {
            RingMessage::Phase2(phase2) if *to == Pid(2) => Some(phase2.clone()),
            _ => None,
        });
        let mut third = MemberFixture::new(Pid(2));
        third.does(|ring, cx| ring.forward_phase2(cx));
        let messages = third.does(|ring, cx| {
            ring.on_phase2(Pid(1), phase2.expect("it is passed on"), cx).unwrap();
            ring.forward_phase2(cx);
            ring.report_votes(cx);
        });
        assert_eq!((third.ring.current.end, messages.len()), (1, 0), "{messages:?}");
    }

    #[test]
    fn a_vote_of_a_lost_storage_epoch_is_not_sent_on() {
        let mut second = MemberFixture::new(Pid(1));
        second.ring.current.votes[2] = AcceptorVote { storage_epoch: 0, upto: 9 };
        second.storage_epochs[2] = 4;
        let messages = second.does(|ring, cx| ring.forward_phase2(cx));
        let votes = messages.iter().find_map(|(_, message)| match message {
            RingMessage::Phase2(phase2) => Some(phase2.votes[2]),
            _ => None,
        });
        assert_eq!(votes, Some(AcceptorVote { storage_epoch: 4, upto: 0 }));
    }

    #[test]
    fn a_lagging_member_is_excluded_as_long_as_a_quorum_of_acceptors_remains() {
        let mut first = MemberFixture::new(Pid(0));
        first.accepts(500);
        first.ring.learn_up_to(500);
        let mut out = |learned: [u64; 2], failed: &[Pid]| {
            (first.ring.membership.peers[1].learned, first.ring.membership.peers[2].learned) =
                (learned[0], learned[1]);
            let mut behind = Vec::new();
            first.does(|ring, cx| behind = ring.lagging(failed, cx));
            behind
        };
        assert_eq!(out([499, 450], &[]), []);
        assert_eq!(out([0, 500], &[]), [Pid(1)]);
        assert_eq!(out([100, 0], &[]), [Pid(2)], "the other one is needed");
        assert_eq!(out([0, 500], &[Pid(2)]), []);
    }

    #[test]
    fn proposals_fit_into_a_frame_however_small_they_are() {
        let mut first = MemberFixture::new(Pid(0));
        first.config.limits.pass_bytes = VALUES_BYTES_MAX;
        first.config.limits.pipeline_bytes = 8 << 20;
        for at in 0..300_000 {
            let value = InstanceValue::Skip(1);
            first.ring.log.put(InstanceEntry { first: at, ballot: BALLOT, value }, 0);
        }
        first.ring.current.end = 300_000;
        let messages = first.does(|ring, cx| ring.forward_phase2(cx));
        assert!(!passed(&messages, Pid(1)).is_empty());
        for (_, message) in messages {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert!(bytes.len() < FRAME_BYTES_MAX, "{}", bytes.len());
        }
    }
}
