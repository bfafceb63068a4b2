//! The read index (Raft 6.4, without a leader): how a process knows that it has delivered all that any
//! replica of its group had delivered when it asked, without a place in the order. A driver asks for one
//! with `Input::Barrier`.
//!
//! ```text
//!   reader                           acceptors of each of its rings
//!     |---- ReadIndexRequest(round) --->|
//!     |<--- ReadIndexResponse(voted) ---|   how far it has voted
//!     | the furthest of a quorum of each ring: nothing behind it was decided when the reader asked
//!     | ... merge up to there ...
//!     v passed
//! ```
//!
//! A quorum of the ring's acceptors has voted for each decided instance. So the process asks the acceptors
//! of the rings that it merges for their last votes. Once a quorum of each ring has answered, nothing
//! behind the furthest answer was decided when it asked: any quorum that had decided it intersects those
//! that answered. When everything up to there is merged, the read index is passed. Nothing is proposed, and
//! no disk is awaited except for votes in flight. (Mutants `passes-barriers-alone`,
//! `answers-barriers-with-what-is-known`.)
//!
//! An acceptor counts only instances that hold messages: skips behind them are merged when a learner needs
//! that. It does not count instances for which it has not voted because its disk is slow; and what it voted for once
//! it counts until another ballot has replaced it. An acceptor that has lost its storage does not answer
//! before it has recovered (`acceptor_recovery.rs`).
//!
//! An answer may be about a proposal that is never decided, of a coordinator that failed. So where a read
//! index is not passed in time, the process asks again. The answers to a later round bound all earlier read
//! indexes, too: the least that any round since has found suffices, and they are passed in the order in
//! which they were asked for.

use super::MultiRingMutant;
use super::message::{RingMessage, RingPacket};
use super::process::MultiRing;
use super::ring::RingMember;
use super::topology::RingId;
use super::value::{INSTANCE_MAX, InstanceValue};
use crate::mutant::Mutants;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::step::Ticket;
use amcast_core::{Outbox, Output, Pid, Span, Time};
use core::mem;

/// How many times `retry` the process waits for a read index to be passed before it asks the acceptors
/// again.
const PATIENCE: u64 = 4;

/// The read indexes of a process that are not passed.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadIndexQueue {
    /// They were asked for since the last round began.
    waiting: Vec<Ticket>,
    /// The number of the last round.
    number: u64,
    /// The open round.
    round: Option<ReadIndexRound>,
    /// When the last round began, or asked again.
    asked_at: Time,
    /// Read indexes for which it is known how far the rings must be merged, the oldest first.
    goals: VecDeque<ReadIndexGoal>,
}

/// A round of requests to all acceptors.
#[derive(Clone, Debug)]
struct ReadIndexRound {
    tickets: Vec<Ticket>,
    answered: Vec<Pid>,
    /// By ring that is merged: how many acceptors have answered, and how far they have voted.
    heads: Vec<(usize, u64)>,
}

/// How far the rings that are merged must come, in their order.
#[derive(Clone, Debug)]
struct ReadIndexGoal {
    tickets: Vec<Ticket>,
    since: Time,
    upto: Vec<u64>,
}

impl ReadIndexQueue {
    /// The driver asks for a read index.
    pub(super) fn set(&mut self, ticket: Ticket) {
        self.waiting.push(ticket);
    }

    /// When acceptors are asked again.
    pub(super) fn due(&self, retry: Span) -> Time {
        match (&self.round, self.goals.is_empty()) {
            (Some(_), _) => self.asked_at + retry,
            (None, false) => self.asked_at + retry.times(PATIENCE),
            (None, true) => Time::NEVER,
        }
    }

    /// Whether to begin a round: for new read indexes, or because instances that earlier ones wait for may never be
    /// decided.
    fn asks(&self, now: Time, retry: Span) -> bool {
        let late = !self.goals.is_empty() && now.since(self.asked_at) >= retry.times(PATIENCE);
        late || !self.waiting.is_empty()
    }

    /// A round has found how far the rings must be merged for its own read indexes; for earlier ones that
    /// suffices.
    fn found(&mut self, round: ReadIndexRound, now: Time) {
        let upto: Vec<u64> = round.heads.into_iter().map(|(_, furthest)| furthest).collect();
        for goal in &mut self.goals {
            goal.upto.iter_mut().zip(&upto).for_each(|(old, new)| *old = (*old).min(*new));
        }
        if !round.tickets.is_empty() {
            self.goals.push_back(ReadIndexGoal { tickets: round.tickets, since: now, upto });
        }
    }
}

impl RingMember {
    /// All that this acceptor holds counts as voted for: an earlier incarnation, or the one before it
    /// recovered, may have voted for it.
    pub(super) fn assume_voted_all(&mut self) {
        self.acceptor.voted_end = self.acceptor.voted_end.max(self.log.end());
    }

    /// The end of the last instance with messages that this acceptor has voted for, or a later instance.
    fn voted_messages(&self, mutants: &Mutants<MultiRingMutant>) -> u64 {
        let voted =
            if mutants.is(MultiRingMutant::AnswersLearned) { 0 } else { self.acceptor.voted_end };
        let upto = self.learner.learned.max(voted.min(self.log.end()));
        let open = self.log.from(self.learner.learned).take_while(|(first, _)| *first < upto);
        let messages = open.filter(|(_, slot)| !matches!(slot.value, Some(InstanceValue::Skip(_))));
        let last = messages.last().map(|(first, slot)| first + slot.instances);
        // Whether trimmed instances held messages is not known.
        last.unwrap_or_else(|| self.learner.messages_end.max(self.log.floor()))
    }
}

impl MultiRing {
    /// Begins a round for the read indexes that were asked for meanwhile; asks acceptors again that have
    /// not answered.
    pub(super) fn request_read_indexes(&mut self) {
        let (now, retry) = (self.now, self.config.retry);
        let read_indexes = &mut self.read_indexes;
        match &read_indexes.round {
            None if !self.started || !read_indexes.asks(now, retry) => return,
            None => {
                read_indexes.number += 1;
                let tickets = mem::take(&mut read_indexes.waiting);
                let heads = alloc::vec![(0, 0); self.merge.rings.len()];
                read_indexes.round = Some(ReadIndexRound { tickets, answered: Vec::new(), heads });
            }
            Some(_) if now.since(read_indexes.asked_at) < retry => return,
            Some(_) => {}
        }
        read_indexes.asked_at = now;
        let round = read_indexes.number;
        for p in self.unanswered() {
            if p == self.me {
                self.on_read_index_request(p, round);
            } else {
                self.send(p, RingMessage::ReadIndexRequest { round });
            }
        }
    }

    /// The acceptors of the rings that this process merges, without those that have answered.
    fn unanswered(&self) -> Vec<Pid> {
        let Some(round) = &self.read_indexes.round else { return Vec::new() };
        let rings = self.merge.rings.iter().map(|&id| &self.config.rings[usize::from(id)]);
        let mut all: Vec<Pid> = rings.flat_map(|ring| ring.acceptors.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|p| !round.answered.contains(p));
        if self.config.mutants.is(MultiRingMutant::ReadsAlone) {
            all.retain(|p| *p == self.me);
        }
        all
    }

    /// Answers how far this process has voted in the rings that `from` is a member of.
    pub(super) fn on_read_index_request(&mut self, from: Pid, round: u64) {
        if !self.may_vote() {
            return;
        }
        let shared = |ring: &&RingMember| {
            ring.acceptor.index.is_some() && ring.topology.member(from).is_some()
        };
        let voted = self.rings.iter().flatten().map(|ring| &**ring).filter(shared);
        let rings: Vec<(RingId, u64)> =
            voted.map(|r| (r.id, r.voted_messages(&self.config.mutants))).collect();
        let incarnation =
            if from == self.me { self.incarnation } else { self.incarnations[from.index()] };
        self.send(from, RingMessage::ReadIndexResponse { incarnation, round, rings });
    }

    /// Takes the answer of an acceptor to a request of this incarnation.
    pub(super) fn on_read_index_response(
        &mut self,
        from: Pid,
        number: u64,
        rings: &[(RingId, u64)],
    ) -> Result<(), &'static str> {
        let Some(round) =
            self.read_indexes.round.as_mut().filter(|_| number == self.read_indexes.number)
        else {
            return Ok(());
        };
        if round.answered.contains(&from) {
            return Ok(());
        }
        round.answered.push(from);
        for &(id, upto) in rings {
            let shape = self
                .config
                .rings
                .get(usize::from(id))
                .ok_or("a ring that the cluster does not have")?;
            if shape.acceptor(from).is_none() || upto > INSTANCE_MAX {
                return Err("a vote of a process that is no acceptor, or beyond the last instance");
            }
            if let Some(at) = self.merge.rings.iter().position(|&ring| ring == id) {
                let (count, furthest) = &mut round.heads[at];
                (*count, *furthest) = (*count + 1, upto.max(*furthest));
            }
        }
        let quorum = |id: RingId| match self.config.mutants.is(MultiRingMutant::ReadsAlone) {
            true => 0,
            false => self.config.rings[usize::from(id)].quorum(),
        };
        let ids = self.merge.rings.iter();
        if ids.zip(&round.heads).all(|(&id, &(count, _))| count >= quorum(id)) {
            let round = self.read_indexes.round.take().expect("it is under way");
            self.read_indexes.found(round, self.now);
        }
        Ok(())
    }

    /// Reports the read indexes that are passed; for the others, requests that rings come further that wait
    /// for nothing else.
    pub(super) fn report_read_indexes(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        while let Some(goal) = self.read_indexes.goals.front() {
            let (merge, retry) = (&self.merge, self.config.retry);
            let passed = |at| merge.order.passed(merge.next, at);
            let open = (0..goal.upto.len()).find(|&at| passed(at) < goal.upto[at]);
            let Some(at) = open else {
                let goal = self.read_indexes.goals.pop_front();
                let tickets = goal.into_iter().flat_map(|goal| goal.tickets);
                tickets.for_each(|ticket| out.push(Output::Passed { ticket }));
                continue;
            };
            if self.now.since(goal.since) >= retry {
                let last = goal.upto[at] - 1;
                let others = (0..merge.rings.len()).filter(|other| *other != at);
                let needs = others.map(|o| (merge.rings[o], merge.order.needs(at, last, o)));
                let behind = |(id, upto): &(RingId, u64)| {
                    self.rings[usize::from(*id)]
                        .as_ref()
                        .is_some_and(|ring| ring.current.end < *upto)
                };
                self.levelling.requests.extend(needs.filter(behind));
            }
            return;
        }
    }
}
