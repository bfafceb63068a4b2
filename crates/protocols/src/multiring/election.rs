//! Who should coordinate a ring: the first of its acceptors that works, in the eyes of the others too.
//!
//! ```text
//!      candidate          acceptors
//!   suspects  ----canvass--->  do they hear the coordinator?
//!   the       <----pass------  yes: the run that they follow goes on, and this is it
//!   coordi-   <---consent----  no
//!   nator     with consents of a quorum: phase 1 (`coordinator.rs`)
//! ```
//!
//! Phase 1 deposes whoever leads, so nobody begins it for what only it cannot see: where the way between
//! a coordinator and another acceptor fails, those who hear both keep the one that they have. What a
//! candidate is told is a matter of progress alone; phase 1 is safe whoever begins it, and when. Nor does
//! one consent who has just promised another candidate, or is one: that one has time to begin.
//! (Ongaro's thesis on Raft calls this pre-vote, 9.6; the paper leaves the election to ZooKeeper.)
//!
//! A coordinator that hears no quorum itself, or is heard by none, shows that it is not fit, and others may
//! replace it.

use super::message::RingMessage;
use super::ring::{Ring, RingContext};
use super::value::RingBallot;
use crate::layers::heartbeat::PATIENCE_MAX;
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};

/// How often the time that is waited for a coordinator doubles.
const FAILED_ATTEMPTS_MAX: u32 = 8;

/// What a member knows of the election of a coordinator.
#[derive(Clone, Debug, Default)]
pub(super) struct Election {
    /// This process asks whether it should begin phase 1.
    pub(super) pre_vote: PreVote,
    /// The promised ballot whose phase 2 this process awaits.
    pub(super) awaited_ballot: RingBallot,
    /// Since when it awaits that; later where it is another candidate's turn.
    pub(super) awaited_at: Time,
    /// When it promised that ballot.
    pub(super) promised_at: Time,
    /// The coordinator of the ballot that is followed has restarted since: it does not coordinate any more.
    pub(super) coordinator_restarted: bool,
    /// How often this process began phase 1 since it followed a ballot.
    pub(super) failed_attempts: u32,
}

/// Whether others would have a new coordinator, as far as they were asked.
#[derive(Clone, Debug, Default)]
pub(super) struct PreVote {
    /// The ballot that would be begun.
    ballot: RingBallot,
    /// When they were asked last.
    asked_at: Time,
    /// By acceptor: when it consented last.
    grants: Vec<Option<Time>>,
}

impl PreVote {
    fn new(ballot: RingBallot, acceptors: usize) -> Self {
        Self { ballot, asked_at: Time::ZERO, grants: alloc::vec![None; acceptors] }
    }
}

impl Ring {
    /// Makes this process coordinator if nobody who should be is.
    pub(super) fn run_election(&mut self, cx: &mut RingContext<'_>) {
        if self.acceptor.index.is_none() || !cx.votes || self.coordinator.is_some() {
            return;
        }
        let works = |p: Pid| p == cx.me || !cx.suspects(p) && cx.heartbeat.is_fit(p.index());
        if self.election.awaited_ballot != self.acceptor.promised {
            self.await_ballot(cx.now);
        }
        let leads = self.acceptor.promised.coordinator();
        if leads == Some(cx.me) {
            // Its own attempt, of an earlier life.
            return self.run_pre_vote(cx);
        }
        // Who was promised something may never have heard of it, or have forgotten it.
        let waits = self.is_in_force() || cx.now < self.patience_ends(cx.config.suspect);
        if waits && leads.is_some_and(works) {
            return;
        }
        match self.topology.acceptors.iter().copied().find(|&p| works(p)) {
            Some(first) if first != cx.me => {
                // It is another's turn, who may not know what this process promised.
                self.election.awaited_at = cx.now;
                if cx.now.since(self.election.pre_vote.asked_at) >= cx.config.retry {
                    self.election.pre_vote.asked_at = cx.now;
                    cx.send(
                        first,
                        RingMessage::Reject { ring: self.id, promised: self.acceptor.promised },
                    );
                }
            }
            _ => self.run_pre_vote(cx),
        }
    }

    /// The run of the ballot that was promised is waited for from now on.
    pub(super) fn await_ballot(&mut self, now: Time) {
        (self.election.awaited_ballot, self.election.awaited_at, self.election.promised_at) =
            (self.acceptor.promised, now, now);
    }

    /// Whether the run that is followed is that of the highest ballot known, and its coordinator has begun
    /// no new life since.
    fn is_in_force(&self) -> bool {
        self.acceptor.promised == self.current.ballot && !self.election.coordinator_restarted
    }

    /// How long it is waited for the run of a ballot that was promised.
    pub(super) fn patience_ends(&self, suspect: Span) -> Time {
        if self.acceptor.index.is_none() || self.is_in_force() {
            return Time::NEVER;
        }
        self.election.awaited_at + self.patience(suspect)
    }

    /// How long a candidate that was promised a ballot has to begin it: longer after failed attempts, and never
    /// longer than the failure detector is patient with anybody.
    fn patience(&self, suspect: Span) -> Span {
        suspect
            .times(1 << self.election.failed_attempts.min(FAILED_ATTEMPTS_MAX))
            .min(PATIENCE_MAX.max(suspect))
    }

    /// When [`Ring::elect`] has something to do, whatever happens.
    pub(super) fn election_at(&self, suspect: Span, retry: Span) -> Time {
        // Who was not given the consent that it asked for asks again.
        self.patience_ends(suspect).max(self.election.pre_vote.asked_at + retry)
    }

    /// Asks the others whether they would have a new coordinator, too; begins phase 1 with enough of them.
    fn run_pre_vote(&mut self, cx: &mut RingContext<'_>) {
        let ballot = self.next_ballot(cx.me);
        if self.election.pre_vote.ballot != ballot {
            self.election.pre_vote = PreVote::new(ballot, self.topology.acceptors.len());
        }
        let lately = |at: &&Option<Time>| at.is_some_and(|at| cx.now.since(at) < cx.config.suspect);
        let grants = self.election.pre_vote.grants.iter().filter(lately).count();
        // Its own is one more.
        if grants + 1 >= self.topology.quorum() {
            self.election.pre_vote = PreVote::default();
            return self.prepare(cx);
        }
        let asked = self.election.pre_vote.asked_at;
        if asked == Time::ZERO || cx.now.since(asked) >= cx.config.retry {
            self.election.pre_vote.asked_at = cx.now;
            let others = self.topology.acceptors.iter().filter(|&&p| p != cx.me);
            let message = |&p| (p, RingMessage::PreVote { ring: self.id, ballot });
            cx.outgoing.extend(others.map(message));
        }
    }

    /// One asks whether it should begin this ballot.
    pub(super) fn on_pre_vote(&mut self, from: Pid, ballot: RingBallot, cx: &mut RingContext<'_>) {
        if self.acceptor.index.is_none() || !cx.votes || !ballot.is_of(&self.topology.acceptors) {
            return;
        }
        let ring = self.id;
        if self.has_coordinator(from, cx) {
            self.send_current_ballot(from, cx);
        } else if ballot <= self.acceptor.promised {
            cx.send(from, RingMessage::Reject { ring, promised: self.acceptor.promised });
        } else {
            cx.send(from, RingMessage::PreVoteGranted { ring, ballot });
        }
    }

    pub(super) fn on_pre_vote_granted(&mut self, from: Pid, ballot: RingBallot, now: Time) {
        if let Some(at) = self.topology.acceptor(from)
            && self.election.pre_vote.ballot == ballot
            && let Some(grant) = self.election.pre_vote.grants.get_mut(at)
        {
            *grant = Some(now);
        }
    }

    /// Whether somebody other than `candidate` leads the run that is followed, or has been promised the next
    /// one so lately that it may just begin it, as far as can be heard.
    fn has_coordinator(&self, candidate: Pid, cx: &RingContext<'_>) -> bool {
        // Counted from the promise: who waits for another's turn waits on, and that one must be able to begin.
        let until = self.election.promised_at + self.patience(cx.config.suspect);
        let begins = self.acceptor.promised > self.current.ballot && cx.now < until;
        let counts =
            self.is_in_force() || begins && self.election.awaited_ballot == self.acceptor.promised;
        let leads = self.acceptor.promised.coordinator().filter(|&p| p != candidate && counts);
        leads.is_some_and(|p| match p == cx.me {
            true => self.coordinator.is_some() && self.may_coordinate(p, cx),
            false => {
                // However patient this process has become: others need not be.
                let heard = cx.heartbeat.silence(cx.now, p.index()) < cx.config.suspect;
                heard && !cx.suspects(p) && self.may_coordinate(p, cx)
            }
        })
    }

    /// Whether the coordinator of the ballot that was promised is fit for that, if it is still heard. Who has just
    /// begun had answers of a quorum, whatever signs of life say that are older: where broken ways had healed,
    /// two that had them deposed each other in every round trip until the next ones came.
    fn may_coordinate(&self, p: Pid, cx: &RingContext<'_>) -> bool {
        let fit = || match p == cx.me {
            true => self.reaches_quorum(cx),
            false => cx.heartbeat.is_fit(p.index()),
        };
        cx.now < self.election.promised_at + cx.config.suspect || fit()
    }

    /// Whether this acceptor hears so many, and they it, that together they could decide something.
    pub(super) fn reaches_quorum(&self, cx: &RingContext<'_>) -> bool {
        let reached = self.topology.acceptors.iter().filter(|&&p| p == cx.me || cx.reaches(p));
        reached.count() >= self.topology.quorum()
    }

    /// A higher ballot is about: the own attempt is over. Who says so may not know whose run it is.
    pub(super) fn on_reject(&mut self, from: Pid, promised: RingBallot, cx: &mut RingContext<'_>) {
        if !promised.is_of(&self.topology.acceptors) {
            return;
        }
        if self.coordinator.as_ref().is_some_and(|role| role.ballot < promised) {
            self.step_down(promised, cx);
        }
        self.acceptor.promised = self.acceptor.promised.max(promised);
        let lacks = self.topology.acceptor(from).is_some() && promised <= self.current.ballot;
        if lacks && self.has_coordinator(from, cx) {
            self.send_current_ballot(from, cx);
        }
    }

    /// Tells one who would have another coordinator of the run that goes on, or of the ballot that will.
    fn send_current_ballot(&self, to: Pid, cx: &mut RingContext<'_>) {
        match self.is_in_force() {
            true => self.send_ballot_to(to, cx),
            false => {
                cx.send(to, RingMessage::Reject { ring: self.id, promised: self.acceptor.promised })
            }
        }
    }
}
