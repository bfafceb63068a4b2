//! Leader election with pre-vote: the first acceptor that works, in the eyes of a quorum, becomes coordinator.
//!
//! ```text
//!                          promised > ballot                 the promised ballot's phase 2 begins
//!    +-> Following -------------------------> AwaitingPhase2 --------------------------------------+
//!    |       | its coordinator is suspected,         | its candidate is suspected, not fit,        |
//!    |       | restarted, or not fit                 | or the patience with it ends                |
//!    |       |                                       |                                             |
//!    |       +-------------------+-------------------+                                             |
//!    |                           v                                                                 |
//!    |      another acceptor is the first that works?   yes: AwaitingCandidate(it), told the promise
//!    |                           | no                                                              |
//!    |                           v                        an acceptor hears the coordinator,       |
//!    |      PreVoting: PreVote(b) to all acceptors -----> and sends the current ballot ------------+
//!    |                           | PreVoteGranted by a quorum                                      |
//!    |                           v                                                                 |
//!    |      Coordinating: phase 1 (`phase1.rs`), then phase 2 (`coordinator.rs`)                    |
//!    |                           | a higher ballot exists                                          |
//!    +---------------------------+-----------------------------------------------------------------+
//! ```
//!
//! Phase 1 deposes the coordinator. So no acceptor begins it because of its own observation alone: where
//! the link between a coordinator and one acceptor fails, the acceptors that hear both keep their
//! coordinator. Nor does an acceptor grant a pre-vote that has just promised another candidate, or is one:
//! that candidate has time to begin. Pre-vote is a matter of progress alone; phase 1 is safe when any
//! acceptor begins it, at any time. (Pre-vote: Ongaro's thesis on Raft, 9.6; the paper leaves the election
//! to ZooKeeper.)
//!
//! A coordinator that does not hear a quorum, or is not heard by one, reports that it is not fit, and may
//! be replaced.

use super::message::RingMessage;
use super::ring::{RingContext, RingMember};
use super::value::RingBallot;
use crate::layers::failure_detector::PATIENCE_MAX;
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};

/// How often the patience with a candidate doubles.
const FAILED_ATTEMPTS_MAX: u32 = 8;

/// The state of a member in the election, which follows from its ballots and from whom it hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ElectionState {
    /// It is no acceptor, or may not vote: it elects nobody.
    Passive,
    /// It coordinates, or is in phase 1.
    Coordinating,
    /// It follows the ballot that it promised, whose coordinator works.
    Following,
    /// It awaits phase 2 of the ballot that it promised, whose candidate works.
    AwaitingPhase2,
    /// No coordinator works, and it is the turn of this acceptor, the first that works, to begin.
    AwaitingCandidate(Pid),
    /// No coordinator works, and it is the turn of this process: it asks for pre-votes.
    PreVoting,
}

/// The memory of a member about the election of a coordinator.
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

/// The pre-votes that this process has gathered.
#[derive(Clone, Debug, Default)]
pub(super) struct PreVote {
    /// The ballot that it would begin.
    ballot: RingBallot,
    /// When it asked last.
    asked_at: Time,
    /// By acceptor: when it granted its pre-vote last.
    grants: Vec<Option<Time>>,
}

impl PreVote {
    fn new(ballot: RingBallot, acceptors: usize) -> Self {
        Self { ballot, asked_at: Time::ZERO, grants: alloc::vec![None; acceptors] }
    }
}

impl RingMember {
    /// Begins a pre-vote if no other acceptor coordinates, or should.
    pub(super) fn run_election(&mut self, cx: &mut RingContext<'_>) {
        let elects = self.acceptor.index.is_some() && cx.votes && self.coordinator.is_none();
        if elects && self.election.awaited_ballot != self.acceptor.promised {
            self.await_ballot(cx.now);
        }
        match self.election_state(cx) {
            ElectionState::Passive | ElectionState::Coordinating => {}
            ElectionState::Following | ElectionState::AwaitingPhase2 => {}
            ElectionState::AwaitingCandidate(first) => self.remind_candidate(first, cx),
            ElectionState::PreVoting => self.run_pre_vote(cx),
        }
    }

    /// The state of this process in the election.
    fn election_state(&self, cx: &RingContext<'_>) -> ElectionState {
        if self.acceptor.index.is_none() || !cx.votes {
            return ElectionState::Passive;
        }
        if self.coordinator.is_some() {
            return ElectionState::Coordinating;
        }
        let works = |p: Pid| p == cx.me || !cx.suspects(p) && cx.links.is_fit(p);
        let leads = self.acceptor.promised.coordinator();
        if leads == Some(cx.me) {
            // The ballot is this process's own, of an earlier incarnation.
            return ElectionState::PreVoting;
        }
        if leads.is_some_and(works) {
            if self.is_in_force() {
                return ElectionState::Following;
            }
            // The promised candidate may never have heard of the promise, or have forgotten it.
            if cx.now < self.patience_ends(cx.config.suspect) {
                return ElectionState::AwaitingPhase2;
            }
        }
        match self.topology.acceptors.iter().copied().find(|&p| works(p)) {
            Some(first) if first != cx.me => ElectionState::AwaitingCandidate(first),
            _ => ElectionState::PreVoting,
        }
    }

    /// It is the turn of `first`, which may not know the promise of this process.
    fn remind_candidate(&mut self, first: Pid, cx: &mut RingContext<'_>) {
        self.election.awaited_at = cx.now;
        if cx.now.since(self.election.pre_vote.asked_at) >= cx.config.retry {
            self.election.pre_vote.asked_at = cx.now;
            let promised = self.acceptor.promised;
            cx.send(first, RingMessage::Reject { ring: self.id, promised });
        }
    }

    /// From now on this process awaits phase 2 of the ballot that it promised.
    pub(super) fn await_ballot(&mut self, now: Time) {
        (self.election.awaited_ballot, self.election.awaited_at, self.election.promised_at) =
            (self.acceptor.promised, now, now);
    }

    /// Whether the ballot that is followed is the highest one known, and its coordinator has not restarted
    /// since.
    fn is_in_force(&self) -> bool {
        self.acceptor.promised == self.current.ballot && !self.election.coordinator_restarted
    }

    /// Until when this process awaits phase 2 of a ballot that it promised.
    pub(super) fn patience_ends(&self, suspect: Span) -> Time {
        if self.acceptor.index.is_none() || self.is_in_force() {
            return Time::NEVER;
        }
        self.election.awaited_at + self.patience(suspect)
    }

    /// How long a promised candidate has to begin phase 2: longer after failed attempts, and never longer
    /// than the failure detector is patient with any process.
    fn patience(&self, suspect: Span) -> Span {
        suspect
            .times(1 << self.election.failed_attempts.min(FAILED_ATTEMPTS_MAX))
            .min(PATIENCE_MAX.max(suspect))
    }

    /// When [`RingMember::run_election`] next has something to do that no message brings.
    pub(super) fn election_at(&self, suspect: Span, retry: Span) -> Time {
        // A candidate that got no pre-vote asks again.
        self.patience_ends(suspect).max(self.election.pre_vote.asked_at + retry)
    }

    /// Asks all acceptors for their pre-votes; begins phase 1 with those of a quorum.
    fn run_pre_vote(&mut self, cx: &mut RingContext<'_>) {
        let ballot = self.next_ballot(cx.me);
        if self.election.pre_vote.ballot != ballot {
            self.election.pre_vote = PreVote::new(ballot, self.topology.acceptors.len());
        }
        let lately = |at: &&Option<Time>| at.is_some_and(|at| cx.now.since(at) < cx.config.suspect);
        let grants = self.election.pre_vote.grants.iter().filter(lately).count();
        // Its own pre-vote is one more.
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

    /// A candidate asks for a pre-vote.
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

    /// Whether a process other than `candidate` coordinates the current ballot, or was promised the next
    /// one so lately that it may just begin it, as far as this process hears.
    fn has_coordinator(&self, candidate: Pid, cx: &RingContext<'_>) -> bool {
        // Counted from the promise: a process that awaits another acceptor's turn keeps waiting, and that
        // acceptor must be able to begin.
        let until = self.election.promised_at + self.patience(cx.config.suspect);
        let begins = self.acceptor.promised > self.current.ballot && cx.now < until;
        let counts =
            self.is_in_force() || begins && self.election.awaited_ballot == self.acceptor.promised;
        let leads = self.acceptor.promised.coordinator().filter(|&p| p != candidate && counts);
        leads.is_some_and(|p| match p == cx.me {
            true => self.coordinator.is_some() && self.may_coordinate(p, cx),
            false => {
                // The configured timeout, however patient this process has become: others need not be.
                let heard = cx.links.silence(cx.now, p) < cx.config.suspect;
                heard && !cx.suspects(p) && self.may_coordinate(p, cx)
            }
        })
    }

    /// Whether the coordinator of the promised ballot is eligible, if it is still heard. A
    /// coordinator that has just begun had answers of a quorum, even if older heartbeats deny it:
    /// where broken links had healed, two acceptors deposed each other in every round trip until
    /// the next heartbeats came.
    fn may_coordinate(&self, p: Pid, cx: &RingContext<'_>) -> bool {
        let fit = || match p == cx.me {
            true => self.reaches_quorum(cx),
            false => cx.links.is_fit(p),
        };
        cx.now < self.election.promised_at + cx.config.suspect || fit()
    }

    /// Whether this acceptor and a quorum, itself included, hear each other.
    pub(super) fn reaches_quorum(&self, cx: &RingContext<'_>) -> bool {
        let reached = self.topology.acceptors.iter().filter(|&&p| p == cx.me || cx.reaches(p));
        reached.count() >= self.topology.quorum()
    }

    /// A higher ballot exists: this process's own attempt is over. The sender may not know which ballot is
    /// followed.
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

    /// Sends the current ballot, or the promised one, to a candidate that would depose its coordinator.
    fn send_current_ballot(&self, to: Pid, cx: &mut RingContext<'_>) {
        match self.is_in_force() {
            true => self.send_ballot_to(to, cx),
            false => {
                cx.send(to, RingMessage::Reject { ring: self.id, promised: self.acceptor.promised })
            }
        }
    }
}
