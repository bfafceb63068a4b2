//! Messages by their timestamps: those that a group has ordered, with what their destinations have proposed so
//! far, and the proposals of other groups for what did not come here yet.
//!
//! A number under two sets of destinations is two messages here. A group orders at most one of them,
//! so proposals that count together are always for the same destinations.

use super::RamCastMutant;
use crate::mutant::Mutants;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use amcast_core::{Gid, GroupSet, MsgId, messages};

/// The proposals for a message that this group has ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageVotes {
    pub(super) dst: GroupSet,
    /// This group's timestamp.
    pub(super) own: u64,
    /// The largest proposal so far.
    largest: u64,
    proposed: GroupSet,
}

impl MessageVotes {
    pub(super) const fn is_complete(&self) -> bool {
        self.dst.within(self.proposed)
    }
}

/// The proposals for a message that did not come here yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EarlyVotes {
    largest: u64,
    pub(super) proposed: GroupSet,
}

/// Messages by their timestamps. See the [module](self).
#[derive(Debug)]
pub(super) struct TimestampQueue {
    mutants: Mutants<RamCastMutant>,
    votes: BTreeMap<MsgId, MessageVotes>,
    /// Those with votes, by the largest proposal so far.
    queue: BTreeSet<(u64, MsgId)>,
    early: BTreeMap<(MsgId, GroupSet), EarlyVotes>,
}

impl TimestampQueue {
    pub(super) const fn new(mutants: Mutants<RamCastMutant>) -> Self {
        Self { mutants, votes: BTreeMap::new(), queue: BTreeSet::new(), early: BTreeMap::new() }
    }

    /// The proposals for a message that this group has ordered and not delivered.
    pub(super) fn votes(&self, msg: MsgId) -> Option<&MessageVotes> {
        self.votes.get(&msg)
    }

    /// The message in front.
    pub(super) fn first(&self) -> Option<MsgId> {
        self.queue.first().map(|&(_, msg)| msg)
    }

    pub(super) fn arrive(&mut self, msg: MsgId, dst: GroupSet, (group, own): (Gid, u64)) {
        let early = self.early.remove(&(msg, dst)).unwrap_or_default();
        let (largest, proposed) = (early.largest.max(own), early.proposed.with(group));
        self.enter(msg, MessageVotes { dst, own, largest, proposed });
    }

    fn enter(&mut self, msg: MsgId, votes: MessageVotes) {
        self.queue.insert((votes.largest, msg));
        self.votes.insert(msg, votes);
    }

    /// A mutant's: as if all destinations had proposed.
    pub(super) fn complete(&mut self, msg: MsgId) {
        if let Some(votes) = self.votes.get_mut(&msg) {
            votes.proposed = votes.dst;
        }
    }

    /// Takes a message out that is not delivered.
    pub(super) fn forget(&mut self, msg: MsgId) {
        if let Some(votes) = self.votes.remove(&msg) {
            self.queue.remove(&(votes.largest, msg));
        }
    }

    pub(super) fn propose(&mut self, (msg, dst): (MsgId, GroupSet), from: Gid, timestamp: u64) {
        let ignored = self.mutants.is(RamCastMutant::IgnoresProposals);
        let timestamp = if ignored { 0 } else { timestamp };
        let Some(votes) = self.votes.get_mut(&msg) else {
            let early = self.early.entry((msg, dst)).or_default();
            early.proposed = early.proposed.with(from);
            early.largest = early.largest.max(timestamp);
            return;
        };
        votes.proposed = votes.proposed.with(from);
        if timestamp > votes.largest {
            let before = core::mem::replace(&mut votes.largest, timestamp);
            self.queue.remove(&(before, msg));
            self.queue.insert((timestamp, msg));
        }
    }

    /// The proposal of that group comes to nothing.
    pub(super) fn withdraw(&mut self, (msg, dst): (MsgId, GroupSet), by: Gid) {
        let Some(early) = self.early.get_mut(&(msg, dst)) else { return };
        early.proposed = early.proposed.and(GroupSet(!GroupSet::one(by).0));
        if early.proposed.is_empty() {
            self.early.remove(&(msg, dst));
        }
    }

    /// Takes out the proposals for messages of the sender of `msg` that will not be ordered any more: for
    /// `msg` itself, and for those with numbers up to `last`.
    pub(super) fn take_void(
        &mut self,
        msg: MsgId,
        last: Option<u64>,
        mut each: impl FnMut(MsgId, GroupSet, EarlyVotes),
    ) {
        if self.early.is_empty() {
            return;
        }
        let at = |seq| (MsgId { seq, ..msg }, GroupSet::EMPTY);
        let end = |seq| (MsgId { seq, ..msg }, GroupSet(u64::MAX));
        let upto = last.map(|last| at(0)..=end(last));
        for range in upto.into_iter().chain([at(msg.seq)..=end(msg.seq)]) {
            while let Some((&(msg, dst), &early)) = self.early.range(range.clone()).next() {
                self.early.remove(&(msg, dst));
                each(msg, dst, early);
            }
        }
    }

    /// Takes out the message in front, if all destinations have proposed and nothing can get in front of it any
    /// more: what comes gets a timestamp above `clock`.
    pub(super) fn take_final(&mut self, clock: u64) -> Option<(MsgId, GroupSet)> {
        let &(key, msg) = self.queue.first()?;
        let votes = self.votes.get(&msg)?;
        let hasty = self.mutants.is(RamCastMutant::WaitsForNone);
        let may_be_passed = key > clock && !self.mutants.is(RamCastMutant::RunsAhead);
        if may_be_passed || !(hasty || votes.is_complete()) {
            return None;
        }
        self.queue.remove(&(key, msg));
        let dst = votes.dst;
        self.votes.remove(&msg);
        Some((msg, dst))
    }

    /// Its state.
    pub(super) fn snapshot(&self) -> QueueSnapshot {
        QueueSnapshot {
            votes: self.votes.iter().map(|(msg, votes)| (*msg, *votes)).collect(),
            early: self.early.iter().map(|(of, early)| (*of, *early)).collect(),
        }
    }

    /// A queue in such a state.
    pub(super) fn resumed(mutants: Mutants<RamCastMutant>, state: &QueueSnapshot) -> Self {
        let mut fresh = Self::new(mutants);
        state.votes.iter().for_each(|(msg, votes)| fresh.enter(*msg, *votes));
        fresh.early.extend(state.early.iter().copied());
        fresh
    }

    /// Whether nothing is kept of any message.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.votes.is_empty() && self.queue.is_empty() && self.early.is_empty()
    }
}

/// A queue in a state transfer.
#[derive(Debug)]
pub(super) struct QueueSnapshot {
    votes: Vec<(MsgId, MessageVotes)>,
    early: Vec<((MsgId, GroupSet), EarlyVotes)>,
}

messages! {
    struct QueueSnapshot { votes, early }
}
messages! {
    struct MessageVotes { dst, own, largest, proposed }
}
messages! {
    struct EarlyVotes { largest, proposed }
}
