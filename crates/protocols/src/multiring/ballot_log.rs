//! The proposals of one ballot, as a member of the ring follows them, and the votes of acceptors for them.
//!
//! A coordinator numbers its proposals without gaps from instance `start` on: first the values that it proposes again
//! because it may be decided in an earlier ballot, up to `reproposed_end`, then new values. So a vote is a
//! counter: it says up to which instance an acceptor has accepted the ballot, and what a quorum of counters
//! has passed is decided.

use super::MultiRingMutant;
use super::message::AcceptorVote;
use super::ring::{RingContext, RingMember, entry_from, entry_upto};
use super::value::{InstanceEntry, RingBallot};
use crate::layers::routing::DirectChannel;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::Time;

/// The ballot that a member follows.
#[derive(Clone, Debug)]
pub(super) struct BallotLog {
    pub(super) ballot: RingBallot,
    /// The first instance of the ballot: all before it were decided when phase 2 began.
    pub(super) start: u64,
    /// The coordinator proposed the instances below again; new values begin here.
    pub(super) reproposed_end: u64,
    /// This process holds the proposals of the ballot up to here.
    pub(super) end: u64,
    /// The proposals of the ballot from `start` on with their log records, until the ballot is adopted: before
    /// that none of them counts as accepted.
    pub(super) staged: VecDeque<(InstanceEntry, u64)>,
    /// By acceptor: its vote.
    pub(super) votes: Vec<AcceptorVote>,
    /// By acceptor: its vote that the coordinator knows, from any process.
    pub(super) reported_votes: Vec<AcceptorVote>,
    /// This process asked the coordinator itself for proposals that it misses.
    pub(super) asked_direct: bool,
    /// When this process reported last that it misses proposals; zero if it must report the next gap at once.
    pub(super) gap_reported_at: Time,
}

impl BallotLog {
    /// No ballot yet.
    pub(super) fn new(acceptors: usize) -> Self {
        let votes = alloc::vec![AcceptorVote::default(); acceptors];
        Self {
            ballot: RingBallot::NONE,
            start: 0,
            reproposed_end: 0,
            end: 0,
            staged: VecDeque::new(),
            reported_votes: votes.clone(),
            votes,
            asked_direct: false,
            gap_reported_at: Time::ZERO,
        }
    }
}

impl RingMember {
    /// Follows a higher ballot from its phase 2 on. Its coordinator proposes `start` to `reproposed_end`
    /// again.
    pub(super) fn follow_ballot(
        &mut self,
        ballot: RingBallot,
        (start, reproposed_end): (u64, u64),
        cx: &mut RingContext<'_>,
    ) {
        debug_assert!(ballot > self.current.ballot);
        if let Some(role) = &self.coordinator
            && role.ballot < ballot
        {
            self.step_down(ballot, cx);
        }
        self.acceptor.promised = self.acceptor.promised.max(ballot);
        (self.current.ballot, self.current.start, self.current.reproposed_end) =
            (ballot, start, reproposed_end);
        (
            self.election.coordinator_restarted,
            self.election.failed_attempts,
            self.current.asked_direct,
        ) = (false, 0, false);
        self.direct = DirectChannel::default();
        (self.membership.number, self.membership.excluded) = (0, Vec::new());
        self.current.reported_votes.fill(AcceptorVote::default());
        for vote in &mut self.current.votes {
            vote.upto = start;
        }
        self.learner.decided = self.learner.decided.max(start);
        self.current.staged.clear();
        // The coordinator proposes again all that is decided. Entries of this ballot that were accepted
        // before a restart are still in the log.
        self.current.end = start.max(self.learner.learned);
        if self.acceptor.adopted == ballot {
            self.current.end = self.current.end.max(self.log.end());
            if let Some(mine) = self.acceptor.index.filter(|_| cx.votes) {
                let storage_epoch = cx.storage_epochs[cx.me.index()];
                self.current.votes[mine] = AcceptorVote { storage_epoch, upto: self.current.end };
            }
        }
        self.advance(cx);
    }

    /// Takes in votes. A vote of a storage epoch that was lost does not count.
    pub(super) fn count_votes(&mut self, votes: &[AcceptorVote], cx: &mut RingContext<'_>) {
        for (at, vote) in votes.iter().enumerate() {
            let acceptor = self.topology.acceptors[at];
            if acceptor == cx.me {
                continue;
            }
            let storage_epoch = &mut cx.storage_epochs[acceptor.index()];
            *storage_epoch = (*storage_epoch).max(vote.storage_epoch);
            let held = &mut self.current.votes[at];
            if vote.storage_epoch > held.storage_epoch {
                *held = *vote;
            } else if vote.storage_epoch == held.storage_epoch {
                held.upto = held.upto.max(vote.upto);
            }
        }
    }

    /// Up to which instance a quorum has accepted the ballot, by these votes: everything below is decided.
    pub(super) fn accepted_by_quorum(&self, votes: &[AcceptorVote], cx: &RingContext<'_>) -> u64 {
        let current = |(at, vote): (usize, &AcceptorVote)| {
            let storage_epoch = cx.storage_epochs[self.topology.acceptors[at].index()];
            (vote.storage_epoch == storage_epoch).then_some(vote.upto)
        };
        let mut uptos: Vec<u64> = votes.iter().enumerate().filter_map(current).collect();
        uptos.sort_unstable();
        let quorum = match cx.config.mutants.is(MultiRingMutant::FewerVotes) {
            true => self.topology.quorum() - 1,
            false => self.topology.quorum(),
        };
        let short = uptos.len().checked_sub(quorum.max(1));
        short.map_or(self.current.start, |at| uptos[at].max(self.current.start))
    }

    /// The proposal of the ballot for this instance, from there on.
    pub(super) fn ballot_entry(&self, at: u64) -> Option<InstanceEntry> {
        if self.acceptor.adopted == self.current.ballot || at < self.learner.learned {
            return self.log.entry(at).map(|entry| {
                match self.acceptor.adopted == self.current.ballot {
                    true => entry,
                    false => entry_upto(entry, self.learner.learned),
                }
            });
        }
        let (entry, _) = self.current.staged.iter().find(|(e, _)| e.first <= at && at < e.end())?;
        Some(entry_from(entry.clone(), at))
    }
}
