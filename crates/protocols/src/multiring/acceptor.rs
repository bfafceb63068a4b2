//! The acceptor of a ring [MRP 4]: its promise (phase 1B), its accepted values (phase 2), and for how much
//! of it it voted.
//!
//! ```text
//!                 Prepare(b), b > promised             Phase2(b), b >= promised
//!   acceptor of ----------------------------> promised -------------------------> staging the proposals
//!   an older      persist, then Promise          b                                of ballot b
//!   ballot                                                                            |
//!        ^                                                holds [start, reproposed_end) and learned >= start
//!        |                                                                            v
//!        +---- a higher ballot --------------- adopted = b: persist each entry, then vote for it
//! ```
//!
//! # Invariants
//! - *A promise holds for ever*: `promised` only grows, and its record is durable before the `Promise` is sent.
//!   (`RingMember::on_prepare`; mutant `promises-before-it-is-written`.)
//! - *A vote is durable before it counts*: `RingMember::vote` runs only once the record of the entry is
//!   where the storage mode asks for it. (`RingMember::accept`; mutant `votes-before-it-is-written`.)
//! - *No vote below the promise*: entries of a ballot count as accepted only while `ballot >= promised`.
//!   (`RingMember::adopt_ballot`; mutant `counts-below-its-promise`.)
//! - *The log is that of one ballot*: the log above `learned` holds the proposals of ballot `adopted` and
//!   nothing older, because an adopted ballot replaces all of it. (`RingMember::replace_with_staged`; mutant
//!   `keeps-leftovers`.)

use super::MultiRingMutant;
use super::instance_log::NO_RECORD;
use super::message::{AcceptorVote, RingMessage};
use super::persistence::{DurableAction, LogRecord};
use super::ring::{RingContext, RingMember, entry_from};
use super::value::{InstanceEntry, RingBallot};
use alloc::vec::Vec;
use amcast_core::{Pid, ProtocolEvent, Span, Time};
use core::mem;

/// The state of an acceptor besides its log. Other members of the ring have one, too: they follow
/// ballots, and promise and vote for nothing.
#[derive(Clone, Debug)]
pub(super) struct Acceptor {
    /// The place of this process among the acceptors; none if it is no acceptor.
    pub(super) index: Option<usize>,
    /// The highest ballot that this process promised, or has seen in force. Only grows.
    pub(super) promised: RingBallot,
    /// The ballot whose proposals the log holds above the learned instances. All of them count as accepted.
    pub(super) adopted: RingBallot,
    /// This acceptor has not voted for instances from here on, as far as it knows.
    pub(super) voted_end: u64,
    /// An instance that the others had decided by then without the vote of this acceptor.
    pub(super) outvoted: Option<(u64, Time)>,
}

impl Acceptor {
    pub(super) fn new(index: Option<usize>) -> Self {
        let (promised, adopted) = (RingBallot::NONE, RingBallot::NONE);
        Self { index, promised, adopted, voted_end: 0, outvoted: None }
    }
}

impl RingMember {
    /// Phase 1B: promises the ballot, and sends the values that this acceptor accepted before. The messages wait until
    /// the promise is durable.
    pub(super) fn on_prepare(&mut self, from: Pid, ballot: RingBallot, cx: &mut RingContext<'_>) {
        if self.acceptor.index.is_none() || !cx.votes || !ballot.is_of(&self.topology.acceptors) {
            return;
        }
        let ring = self.id;
        if ballot < self.acceptor.promised {
            return cx.send(from, RingMessage::Reject { ring, promised: self.acceptor.promised });
        }
        if ballot == self.current.ballot {
            // Its phase 2 has begun: this is a late retransmission of phase 1A.
            return;
        }
        if self.coordinator.as_ref().is_some_and(|role| role.ballot < ballot) {
            self.step_down(ballot, cx);
        }
        self.acceptor.promised = ballot;
        let mut messages: Vec<RingMessage> = self
            .undecided_entries()
            .into_iter()
            .map(|entry| RingMessage::PromisedEntry { ring, ballot, entry })
            .collect();
        if cx.config.mutants.is(MultiRingMutant::ForgetsWhatItAccepted) {
            messages.clear();
        }
        let count = messages.len() as u32;
        let of = |p: &Pid| cx.storage_epochs[p.index()];
        let storage_epochs = self.topology.acceptors.iter().map(of).collect();
        let (learned, adopted) = (self.learner.learned, self.acceptor.adopted);
        messages.push(RingMessage::Promise {
            ring,
            ballot,
            learned,
            adopted,
            count,
            storage_epochs,
        });
        let act = DurableAction::Send { to: from, messages };
        if cx.config.mutants.is(MultiRingMutant::PromisesBeforeItIsWritten) {
            cx.writes.due.push_back(act.clone());
        }
        cx.writes.write(LogRecord::Promise { ring, ballot }, Some(act));
    }

    /// Accepts the next proposal of the ballot (phase 2B); an acceptor votes for it once its record is
    /// durable.
    pub(super) fn accept(&mut self, entry: InstanceEntry, cx: &mut RingContext<'_>) {
        assert_eq!(
            (entry.first, entry.ballot),
            (self.current.end, self.current.ballot),
            "a ballot's proposals have no gaps"
        );
        self.current.end = entry.end();
        entry.value.messages().for_each(|packed| cx.out.event(ProtocolEvent::Part(packed.msg)));
        // The next gap is reported at once.
        self.current.gap_reported_at = Time::ZERO;
        let adopted = self.acceptor.adopted == self.current.ballot;
        // An acceptor that may not vote writes, too: its durable log must agree with its log in memory.
        let record = if self.acceptor.index.is_some() {
            let vote = DurableAction::Vote {
                ring: self.id,
                ballot: self.current.ballot,
                upto: self.current.end,
            };
            let vote = (adopted && cx.votes).then_some(vote);
            let ring = self.id;
            let learned = self.learner.learned;
            let entry = entry.clone();
            if cx.config.mutants.is(MultiRingMutant::VotesBeforeItIsWritten) {
                cx.writes.due.extend(vote.clone());
            }
            // [MRP 1:4] [MRP 3:1]
            cx.writes.write(LogRecord::Accept { ring, learned, adopted, entry }, vote)
        } else {
            NO_RECORD
        };
        if adopted {
            self.log.put(entry, record);
        } else {
            self.current.staged.push_back((entry, record));
            self.adopt_ballot(cx);
        }
    }

    /// Adopts the current ballot once this process holds all that its coordinator proposed again and has
    /// learned everything before: the ballot's proposals replace the values accepted in earlier ballots. So
    /// the log of an acceptor is always that of one ballot, as its coordinator proposed it. Each ballot
    /// begins with all that may be decided in earlier ones, and no proposal can be in it twice.
    pub(super) fn adopt_ballot(&mut self, cx: &mut RingContext<'_>) {
        let whole = self.current.end >= self.current.reproposed_end
            && self.learner.learned >= self.current.start;
        // To adopt is to vote: not below a ballot that was promised meanwhile, whose coordinator was not
        // told of these entries.
        let counts = cx.config.mutants.is(MultiRingMutant::CountsBelowItsPromise);
        let late = self.current.ballot < self.acceptor.promised && !counts;
        if self.acceptor.adopted == self.current.ballot || !whole || late {
            return;
        }
        self.acceptor.adopted = self.current.ballot;
        if self.acceptor.index.is_some() {
            let ring = self.id;
            let ballot = self.current.ballot;
            let from = self.learner.learned;
            let vote = DurableAction::Vote { ring, ballot, upto: self.current.end };
            cx.writes.write(LogRecord::Adopt { ring, ballot, from }, cx.votes.then_some(vote));
        }
        let leaves = cx.config.mutants.is(MultiRingMutant::KeepsLeftovers);
        self.replace_with_staged(self.learner.learned, leaves);
    }

    /// Replaces the log from instance `from` on with the staged proposals; `leaves` keeps the
    /// rest of the old ones (a mutant).
    pub(super) fn replace_with_staged(&mut self, from: u64, leaves: bool) {
        if !leaves {
            self.log.cut_off(from);
        }
        for (entry, record) in mem::take(&mut self.current.staged) {
            if entry.end() > from {
                let first = from.max(entry.first);
                self.log.put(entry_from(entry, first), record);
            }
        }
    }

    /// The vote of this acceptor for the ballot up to `upto` counts: the accepted values are as durable as the
    /// storage mode asks for.
    pub(super) fn vote(&mut self, ballot: RingBallot, upto: u64, cx: &mut RingContext<'_>) {
        if let Some(mine) = self.acceptor.index
            && self.current.ballot == ballot
            && cx.votes
        {
            let vote = &mut self.current.votes[mine];
            vote.upto = vote.upto.max(upto);
            self.acceptor.voted_end = self.acceptor.voted_end.max(upto);
            vote.storage_epoch = cx.storage_epochs[cx.me.index()];
            self.advance(cx);
        }
    }

    /// Whether the others have been ahead of this acceptor's disk for so long: they decided what it has not voted for, or
    /// promised where its own promise is not durable.
    pub(super) fn is_outvoted(&mut self, longest: Span, now: Time) -> bool {
        let Some(mine) = self.acceptor.index else { return false };
        let (voted, decided) = (self.acceptor.voted_end, self.learner.decided);
        let quorum = self.topology.quorum();
        let candidate = self.coordinator.as_ref().filter(|role| !role.is_in_phase2());
        let awaits_self = candidate.is_some_and(|role| role.phase1.awaits_only(mine, quorum));
        // A candidate's promise counts as one for the last instance.
        let ahead = if awaits_self { u64::MAX } else { decided };
        match self.acceptor.outvoted {
            Some((at, since))
                if (voted < at && at <= decided) || (at == u64::MAX && awaits_self) =>
            {
                now.since(since) >= longest
            }
            _ => {
                self.acceptor.outvoted = (ahead > voted).then_some((ahead, now));
                false
            }
        }
    }

    /// Recovery of an acceptor: takes over the values that another acceptor accepted in ballot `adopted`, as if it had
    /// been accepted here. Everything that is decided before it is learned here.
    pub(super) fn restore_accepted(
        &mut self,
        adopted: RingBallot,
        entries: Vec<InstanceEntry>,
        cx: &mut RingContext<'_>,
    ) {
        self.acceptor.adopted = adopted;
        self.current.staged.clear();
        let (ring, learned) = (self.id, self.learner.learned);
        cx.writes.write(LogRecord::Adopt { ring, ballot: adopted, from: learned }, None);
        self.log.cut_off(learned);
        for entry in entries.into_iter().filter(|entry| entry.end() > learned) {
            let first = learned.max(entry.first);
            let entry = entry_from(entry, first);
            let kept = entry.clone();
            let record = LogRecord::Accept { ring, learned, adopted: true, entry: kept };
            let number = cx.writes.write(record, None);
            self.log.put(entry, number);
        }
        // Proposals of the current ballot that came meanwhile come again.
        self.current.end = self.current.start.max(self.learner.learned);
        if self.acceptor.adopted == self.current.ballot {
            self.current.end = self.current.end.max(self.log.end());
        }
        self.current.gap_reported_at = Time::ZERO;
    }

    /// This acceptor has recovered, and votes again. Proposals accepted meanwhile were written
    /// without waiting for the disk: it votes for them once a further record is durable.
    pub(super) fn resume_voting(&mut self, cx: &mut RingContext<'_>) {
        let Some(mine) = self.acceptor.index else { return };
        self.current.votes[mine] = AcceptorVote {
            storage_epoch: cx.storage_epochs[cx.me.index()],
            upto: self.current.start,
        };
        self.assume_voted_all();
        // Not below a ballot that it learned in recovery to have promised.
        let may = self.current.ballot != RingBallot::NONE
            && self.current.ballot >= self.acceptor.promised;
        if may && self.acceptor.adopted == self.current.ballot {
            let ring = self.id;
            let ballot = self.current.ballot;
            let upto = self.current.end;
            let vote = DurableAction::Vote { ring, ballot, upto };
            if cx.config.mutants.is(MultiRingMutant::VotesForAllItAccepted) {
                cx.writes.due.push_back(vote.clone());
            }
            cx.writes
                .write(LogRecord::Promise { ring, ballot: self.acceptor.promised }, Some(vote));
        }
        self.advance(cx);
    }

    /// The entries that this process has accepted and has not learned to be decided.
    pub(super) fn undecided_entries(&self) -> Vec<InstanceEntry> {
        let mut entries = Vec::new();
        for (first, _) in self.log.from(self.learner.learned) {
            entries.extend(self.log.entry(first.max(self.learner.learned)));
        }
        entries
    }
}
