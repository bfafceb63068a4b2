//! The learner of a ring: which instances are decided, which of them it holds, and how far its application has
//! applied them.
//!
//! ```text
//!   0 ------- trimmed ------- applied ------- learned ------- decided ------- end
//!             floor of        by the          decided and     by a quorum     proposed in the
//!             the log         application     held here       of votes        ballot, as known here
//! ```
//!
//! # Invariants
//! - `learned` only grows, and every instance below it is decided: it advances to what a quorum has
//!   accepted (`RingMember::advance`, mutant `decides-with-one-vote-less`), by a retransmission of decided
//!   entries (`catch_up.rs`), or over instances that all others have trimmed (`RingMember::jump_to`, mutant
//!   `forgets-what-it-passed`).
//! - Only a log that was adopted from the current ballot tells which value is decided (`RingMember::advance`).

use super::catch_up::CatchUp;
use super::message::{PeerProgress, ProposalTable};
use super::persistence::DurableAction;
use super::ring::{RingContext, RingMember};
use super::value::{InstanceValue, RingBallot};
use alloc::collections::VecDeque;

/// The instances of a ring that a member has learned.
#[derive(Clone, Debug, Default)]
pub(super) struct Learner {
    /// All instances below are decided; this process may lack some of them.
    pub(super) decided: u64,
    /// All instances below are decided and held, or are trimmed everywhere. Only grows.
    pub(super) learned: u64,
    /// The end of the last learned instance that holds messages, or a later instance.
    pub(super) messages_end: u64,
    /// Learned entries that the application has not applied: the end of each, and its bytes.
    pub(super) unapplied: VecDeque<(u64, usize)>,
    pub(super) unapplied_bytes: usize,
    /// The progress that this process reports to its peers.
    pub(super) progress: PeerProgress,
    pub(super) catch_up: CatchUp,
}

/// The last proposal of each process that is decided, so that a retried proposal is recognised. Only acceptors
/// keep it.
#[derive(Clone, Debug)]
pub(super) struct DecidedProposals {
    /// By process; empty where this process is no acceptor.
    pub(super) table: ProposalTable,
    /// The table holds all proposals in instances below.
    pub(super) at: u64,
    /// The table as of this instance is durable.
    pub(super) durable_at: u64,
    /// The table as of this instance is being written.
    pub(super) written_at: u64,
}

impl DecidedProposals {
    /// A table for so many processes.
    pub(super) fn new(processes: usize) -> Self {
        Self { table: alloc::vec![(0, 0); processes], at: 0, durable_at: 0, written_at: 0 }
    }
}

impl RingMember {
    /// Whether the application or the disk lags so far behind that this member takes in no more.
    pub(super) fn is_full(&self, cx: &RingContext<'_>) -> bool {
        let held = cx.config.limits.held_bytes;
        self.learner.unapplied_bytes > held || cx.writes.pending_bytes() > held
    }

    /// Counts votes again: advances `decided`, and `learned` as far as the decided entries are held here.
    pub(super) fn advance(&mut self, cx: &mut RingContext<'_>) {
        self.learner.decided =
            self.learner.decided.max(self.accepted_by_quorum(&self.current.votes, cx));
        if self.current.ballot != RingBallot::NONE {
            self.adopt_ballot(cx);
        }
        if self.learner.learned >= self.current.start
            && self.acceptor.adopted == self.current.ballot
        {
            // [MRP 1:7]
            self.learn_up_to(self.learner.decided.min(self.current.end));
        }
    }

    /// All instances below `upto` are decided and held: records their proposals as decided.
    pub(super) fn learn_up_to(&mut self, upto: u64) {
        if upto <= self.learner.learned {
            return;
        }
        let tracks = self.acceptor.index.is_some() && self.proposals.at == self.learner.learned;
        for (first, slot) in self.log.from(self.learner.learned) {
            if first >= upto {
                break;
            }
            let size = slot.value.as_ref().map_or(0, InstanceValue::size);
            self.learner.unapplied.push_back((first + slot.instances, size));
            self.learner.unapplied_bytes += size;
            if !matches!(slot.value, Some(InstanceValue::Skip(_))) {
                self.learner.messages_end = first + slot.instances;
            }
            for packed in slot.value.iter().filter(|_| tracks).flat_map(InstanceValue::messages) {
                self.proposals.table[packed.msg.sender.index()] =
                    (packed.incarnation, packed.number);
                if let Some(role) = &mut self.coordinator {
                    role.acknowledge(packed.msg.sender, packed.incarnation, packed.number);
                }
            }
        }
        if tracks {
            self.proposals.at = upto;
        }
        self.learner.learned = upto;
    }

    /// The application has reached this position. An acceptor lets no instance be trimmed before its
    /// table of decided proposals is durable beyond it: a majority of acceptors must keep that table,
    /// or no coordinator could recognise retried proposals.
    pub(super) fn set_progress(&mut self, applied: u64, trimmable: u64, cx: &mut RingContext<'_>) {
        if self.acceptor.index.is_some()
            && trimmable > self.proposals.written_at
            && self.proposals.at >= trimmable
        {
            self.proposals.written_at = self.proposals.at;
            let noted =
                DurableAction::TableDurable { ring: self.id, at: self.proposals.written_at };
            cx.writes.write(self.trim_base(), Some(noted));
        }
        let trimmable = if self.acceptor.index.is_some() {
            trimmable.min(self.proposals.durable_at)
        } else {
            trimmable
        };
        self.learner.progress = PeerProgress { learned: self.learner.learned, applied, trimmable };
        while let Some(&(_, size)) =
            self.learner.unapplied.front().filter(|(end, _)| *end <= applied)
        {
            self.learner.unapplied_bytes -= size;
            self.learner.unapplied.pop_front();
        }
    }

    /// The table as of instance `at` is durable.
    pub(super) fn table_is_durable(&mut self, at: u64) {
        self.proposals.durable_at = self.proposals.durable_at.max(at);
    }

    /// Staged proposals below `learned` are useless.
    pub(super) fn skip_to_learned(&mut self) {
        if self.current.ballot != RingBallot::NONE && self.learner.learned > self.current.end {
            self.current.end = self.learner.learned;
            self.current.staged.clear();
        }
    }

    /// Whether this process holds everything from `learned` to `upto`.
    pub(super) fn holds_up_to(&self, upto: u64) -> bool {
        let mut at = self.learner.learned;
        for (first, slot) in self.log.from(at) {
            if first > at || at >= upto {
                break;
            }
            at = first + slot.instances;
        }
        at >= upto
    }
}
