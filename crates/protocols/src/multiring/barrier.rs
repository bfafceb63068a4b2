//! Barriers: how a process sees that it has delivered all that any replica of its group had delivered when
//! it asked, without a place in the order.
//!
//! What is decided, a majority of its ring's acceptors has voted for. So the process asks the acceptors of
//! the rings that it subscribes to how far they have voted ([`Word::Probe`]). Once a majority of each ring
//! has answered, nothing behind the furthest answer was decided when it asked: any majority that had
//! decided it has an acceptor among those who answered. When all up to there is merged, the barrier is
//! passed. Nothing is proposed for that, and no disk is waited for but by what was under way.
//!
//! An acceptor counts instances that hold messages only: skips behind the last of them are merged when
//! somebody needs that. What it has not voted for yet, since its disk is slow, it does not count, and what it
//! voted for once it goes on to count until another run has taken its place. One that has lost its memory
//! does not answer before it has it back (`recovery.rs`).
//!
//! An answer may be about what is never decided: a coordinator that failed proposed it. So where a barrier is
//! not passed in time, acceptors are asked again. What they say to a later question bounds all earlier
//! barriers, too: the least that any round of questions since has found is enough, and barriers are passed in
//! the order in which they were set.

use super::Mutant;
use super::process::MultiRing;
use super::ring::Ring;
use super::rings::RingId;
use super::value::{INSTANCE_MAX, Value};
use super::word::{Packet, Word};
use crate::mutant::Mutants;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::step::Ticket;
use amcast_core::{Outbox, Output, Pid, Span, Time};
use core::mem;

/// How many times as long as `retry` it is waited for what acceptors have voted for, before they are asked
/// again.
const PATIENCE: u64 = 4;

/// The barriers of a process that are not passed.
#[derive(Clone, Debug, Default)]
pub(super) struct Barriers {
    /// They were set since acceptors were asked last.
    fresh: Vec<Ticket>,
    /// The number of the last round of questions.
    number: u64,
    /// The round that is under way.
    round: Option<Round>,
    /// When the last one began.
    asked_at: Time,
    /// Those for which it is known how far the rings must be merged, the oldest first.
    goals: VecDeque<Goal>,
}

/// Questions to all acceptors.
#[derive(Clone, Debug)]
struct Round {
    tickets: Vec<Ticket>,
    answered: Vec<Pid>,
    /// By ring that is subscribed to: how many acceptors have answered, and how far they have voted.
    heads: Vec<(usize, u64)>,
}

/// How far the rings that are subscribed to must be merged, in their order.
#[derive(Clone, Debug)]
struct Goal {
    tickets: Vec<Ticket>,
    since: Time,
    upto: Vec<u64>,
}

impl Barriers {
    /// The driver sets a barrier.
    pub(super) fn set(&mut self, ticket: Ticket) {
        self.fresh.push(ticket);
    }

    /// When something is asked again.
    pub(super) fn due(&self, retry: Span) -> Time {
        match (&self.round, self.goals.is_empty()) {
            (Some(_), _) => self.asked_at + retry,
            (None, false) => self.asked_at + retry.times(PATIENCE),
            (None, true) => Time::NEVER,
        }
    }

    /// Whether to begin a round now: for new barriers, or since what others wait for may never be decided.
    fn asks(&self, now: Time, retry: Span) -> bool {
        let late = !self.goals.is_empty() && now.since(self.asked_at) >= retry.times(PATIENCE);
        late || !self.fresh.is_empty()
    }

    /// A round has found how far the rings must be merged for its own barriers; for earlier ones that is
    /// enough.
    fn found(&mut self, round: Round, now: Time) {
        let upto: Vec<u64> = round.heads.into_iter().map(|(_, furthest)| furthest).collect();
        for goal in &mut self.goals {
            goal.upto.iter_mut().zip(&upto).for_each(|(old, new)| *old = (*old).min(*new));
        }
        if !round.tickets.is_empty() {
            self.goals.push_back(Goal { tickets: round.tickets, since: now, upto });
        }
    }
}

impl Ring {
    /// What this acceptor holds counts as voted for: another life, or the memory that came back, may
    /// have done so.
    pub(super) fn has_voted_for_all(&mut self) {
        self.voted = self.voted.max(self.book.end());
    }

    /// Behind the last instance with messages that this acceptor has voted for, or further.
    fn voted_messages(&self, mutants: &Mutants<Mutant>) -> u64 {
        let voted = if mutants.is(Mutant::AnswersKnown) { 0 } else { self.voted };
        let upto = self.known.max(voted.min(self.book.end()));
        let open = self.book.from(self.known).take_while(|(first, _)| *first < upto);
        let messages = open.filter(|(_, slot)| !matches!(slot.value, Some(Value::Skip(_))));
        let last = messages.last().map(|(first, slot)| first + slot.instances);
        // Whether what was trimmed held any is not known.
        last.unwrap_or_else(|| self.said.max(self.book.floor()))
    }
}

impl MultiRing {
    /// Asks how far acceptors have voted, for the barriers that were set meanwhile; once more who has not
    /// answered in time.
    pub(super) fn ask_for_barriers(&mut self) {
        let (now, retry) = (self.now, self.shape.retry);
        let barriers = &mut self.barriers;
        match &barriers.round {
            None if !self.begun || !barriers.asks(now, retry) => return,
            None => {
                barriers.number += 1;
                let tickets = mem::take(&mut barriers.fresh);
                let heads = alloc::vec![(0, 0); self.merge.rings.len()];
                barriers.round = Some(Round { tickets, answered: Vec::new(), heads });
            }
            Some(_) if now.since(barriers.asked_at) < retry => return,
            Some(_) => {}
        }
        barriers.asked_at = now;
        let round = barriers.number;
        for p in self.unanswered() {
            if p == self.me {
                self.on_probe(p, round);
            } else {
                self.say(p, Word::Probe { round });
            }
        }
    }

    /// The acceptors of the rings that this process subscribes to, without those that have answered.
    fn unanswered(&self) -> Vec<Pid> {
        let Some(round) = &self.barriers.round else { return Vec::new() };
        let rings = self.merge.rings.iter().map(|&id| &self.shape.rings[usize::from(id)]);
        let mut all: Vec<Pid> = rings.flat_map(|ring| ring.acceptors.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|p| !round.answered.contains(p));
        if self.shape.mutants.is(Mutant::PassesAlone) {
            all.retain(|p| *p == self.me);
        }
        all
    }

    /// Says how far this process has voted in the rings that `from` is a member of.
    pub(super) fn on_probe(&mut self, from: Pid, round: u64) {
        if !self.may_vote() {
            return;
        }
        let shared = |ring: &&Ring| ring.my_vote.is_some() && ring.shape.member(from).is_some();
        let voted = self.rings.iter().flatten().map(|ring| &**ring).filter(shared);
        let rings: Vec<(RingId, u64)> =
            voted.map(|r| (r.id, r.voted_messages(&self.shape.mutants))).collect();
        let life = if from == self.me { self.life } else { self.lives[from.index()] };
        self.say(from, Word::Voted { life, round, rings });
    }

    /// Takes an answer to a question of this life.
    pub(super) fn on_voted(
        &mut self,
        from: Pid,
        number: u64,
        rings: &[(RingId, u64)],
    ) -> Result<(), &'static str> {
        let Some(round) = self.barriers.round.as_mut().filter(|_| number == self.barriers.number)
        else {
            return Ok(());
        };
        if round.answered.contains(&from) {
            return Ok(());
        }
        round.answered.push(from);
        for &(id, upto) in rings {
            let shape = self.shape.rings.get(usize::from(id)).ok_or("no ring of the cluster")?;
            if shape.acceptor(from).is_none() || upto > INSTANCE_MAX {
                return Err("a vote that makes no sense");
            }
            if let Some(at) = self.merge.rings.iter().position(|&ring| ring == id) {
                let (count, furthest) = &mut round.heads[at];
                (*count, *furthest) = (*count + 1, upto.max(*furthest));
            }
        }
        let quorum = |id: RingId| match self.shape.mutants.is(Mutant::PassesAlone) {
            true => 0,
            false => self.shape.rings[usize::from(id)].quorum(),
        };
        let ids = self.merge.rings.iter();
        if ids.zip(&round.heads).all(|(&id, &(count, _))| count >= quorum(id)) {
            let round = self.barriers.round.take().expect("it is under way");
            self.barriers.found(round, self.now);
        }
        Ok(())
    }

    /// Says which barriers are passed; what is missing for others is asked of rings that stand still.
    pub(super) fn pass_barriers(&mut self, out: &mut Outbox<Messages<Packet>>) {
        while let Some(goal) = self.barriers.goals.front() {
            let (merge, retry) = (&self.merge, self.shape.retry);
            let passed = |at| merge.order.passed(merge.point, at);
            let open = (0..goal.upto.len()).find(|&at| passed(at) < goal.upto[at]);
            let Some(at) = open else {
                let goal = self.barriers.goals.pop_front();
                let tickets = goal.into_iter().flat_map(|goal| goal.tickets);
                tickets.for_each(|ticket| out.push(Output::Passed { ticket }));
                continue;
            };
            if self.now.since(goal.since) >= retry {
                let last = goal.upto[at] - 1;
                let others = (0..merge.rings.len()).filter(|other| *other != at);
                let needs = others.map(|o| (merge.rings[o], merge.order.needs(at, last, o)));
                let behind = |(id, upto): &(RingId, u64)| {
                    self.rings[usize::from(*id)].as_ref().is_some_and(|ring| ring.end < *upto)
                };
                self.wants.extend(needs.filter(behind));
            }
            return;
        }
    }
}
