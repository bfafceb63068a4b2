//! Decided skips, told to all members of a large ring at once.
//!
//! A ring is the shortest way for bytes, and the longest for a word: what goes round two hundred members
//! under load takes a tenth of a second. Of skips there are no bytes to save, and learners of all groups
//! wait for them. So once a skip is decided the coordinator of a ring of `spread` members or more tells
//! it to some of them, those tell some others, and so on, in a tree with the coordinator at its root; whoever
//! has failed is passed over. Such a word is a decided instance as any that is fetched: if it is lost or
//! comes too early, nothing is amiss, since the skip still goes round the ring.

use super::message::DecidedEntries;
use super::message::RingMessage;
use super::ring::{Ring, RingContext, shorten};
use super::value::{InstanceEntry, InstanceValue};
use alloc::vec::Vec;
use amcast_core::Pid;

/// How many members each one tells.
const FAN_OUT: usize = 8;

impl Ring {
    /// Tells of the skips that are decided since the last time, if this process leads.
    pub(super) fn disseminate_skips(&mut self, cx: &mut RingContext<'_>) {
        if self.topology.members.len() < cx.config.spread || !self.coordinates() {
            self.skips_sent_upto = self.learner.learned;
            return;
        }
        for entry in self.skips_from(self.skips_sent_upto) {
            self.send_skip(&entry, cx);
        }
        self.skips_sent_upto = self.learner.learned;
    }

    /// The skips from instance `from` on that are decided.
    fn skips_from(&self, from: u64) -> Vec<InstanceEntry> {
        let mut entries = Vec::new();
        let decided = self.log.from(from).take_while(|(first, _)| *first < self.learner.learned);
        for (first, slot) in decided {
            if matches!(slot.value, Some(InstanceValue::Skip(_))) {
                let entry = self.log.entry(first.max(from));
                entries.extend(entry.map(|entry| shorten(entry, self.learner.learned)));
            }
        }
        entries
    }

    /// Tells those of a skip whom this process is to tell.
    fn send_skip(&self, entry: &InstanceEntry, cx: &mut RingContext<'_>) {
        let Some(root) = entry.ballot.coordinator().and_then(|p| self.topology.member(p)) else {
            return;
        };
        for to in self.branches(cx.me, root) {
            cx.send(to, RingMessage::DecidedSkip { ring: self.id, entry: entry.clone() });
        }
    }

    /// Whom `of` tells, if the member at place `root` began.
    fn branches(&self, of: Pid, root: usize) -> Vec<Pid> {
        let members = &self.topology.members;
        let Some(place) = self.topology.member(of) else { return Vec::new() };
        let (mut tellers, mut tells) = (Vec::new(), Vec::new());
        tellers.push((place + members.len() - root) % members.len());
        while let Some(at) = tellers.pop() {
            let branches = at * FAN_OUT + 1..=at * FAN_OUT + FAN_OUT;
            for branch in branches.take_while(|&branch| branch < members.len()) {
                let to = members[(branch + root) % members.len()];
                if self.membership.excluded.contains(&to) {
                    tellers.push(branch);
                } else {
                    tells.push(to);
                }
            }
        }
        tells
    }

    /// A skip is decided.
    pub(super) fn on_decided_skip(
        &mut self,
        from: Pid,
        entry: InstanceEntry,
        cx: &mut RingContext<'_>,
    ) -> Result<(), &'static str> {
        let learned = self.learner.learned;
        if !matches!(entry.value, InstanceValue::Skip(_)) {
            return Err("a skip that is none");
        }
        let entries = [entry.clone()].into();
        let decided = DecidedEntries { entries, learned: entry.end(), floor: 0, table: None };
        self.on_retransmission(from, decided, cx)?;
        if self.learner.learned > learned {
            self.send_skip(&entry, cx);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::topology::{RingKinds, RingTraversal, topologies};
    use super::*;
    use alloc::collections::BTreeSet;
    use amcast_core::Cluster;

    /// Everyone who is told, and by how many, if `failed` has failed.
    fn told(failed: &[Pid]) -> Vec<Pid> {
        let cluster = Cluster::new(40, 3, 0).unwrap();
        let shape =
            topologies(&cluster, RingKinds::Global, &[], RingTraversal::Nodes).pop().unwrap();
        let mut ring = Ring::new(40, shape, Pid(1), cluster.processes());
        ring.membership.excluded = failed.to_vec();
        let (mut all, mut next) = (Vec::new(), alloc::vec![Pid(1)]);
        while let Some(teller) = next.pop() {
            let branches = ring.branches(teller, ring.topology.member(Pid(1)).unwrap());
            next.extend(&branches);
            all.extend(branches);
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn everybody_but_the_first_is_told_once() {
        let all: Vec<Pid> = (0..120).map(Pid).filter(|&p| p != Pid(1)).collect();
        assert_eq!(told(&[]), all);
    }

    #[test]
    fn who_would_be_told_by_one_that_failed_is_told_by_another() {
        let failed = [Pid(3), Pid(4), Pid(60), Pid(119)];
        let told = told(&failed);
        let lives: BTreeSet<Pid> = (0..120).map(Pid).filter(|p| !failed.contains(p)).collect();
        assert_eq!(told.len() + 1, lives.len());
        assert!(told.iter().all(|p| lives.contains(p)));
    }
}
