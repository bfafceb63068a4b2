//! Skip dissemination: a large ring sends decided skips to all its members at once [MRP 4].
//!
//! A ring is the cheapest way for bytes, and the longest for a message: under load it takes a tenth of a
//! second to go round two hundred members. Skips have few bytes, and learners of all groups wait for them.
//! So once a skip is decided the coordinator of a ring of `spread` members or more sends it to some of
//! them, those to others, in a tree with the coordinator at its root; failed members are passed over. The
//! message is a decided instance as in a retransmission: if it is lost or comes too early nothing is amiss,
//! because the skip goes round the ring, too.

use super::message::DecidedEntries;
use super::message::RingMessage;
use super::ring::{Ring, RingContext, shorten};
use super::value::{InstanceEntry, InstanceValue};
use alloc::vec::Vec;
use amcast_core::Pid;

/// The fan-out of the tree.
const FAN_OUT: usize = 8;

impl Ring {
    /// Sends the skips that were decided since the last time, if this process coordinates.
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

    /// The decided skips from instance `from` on.
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

    /// Sends a skip to this process's children in the tree.
    fn send_skip(&self, entry: &InstanceEntry, cx: &mut RingContext<'_>) {
        let Some(root) = entry.ballot.coordinator().and_then(|p| self.topology.member(p)) else {
            return;
        };
        for to in self.branches(cx.me, root) {
            cx.send(to, RingMessage::DecidedSkip { ring: self.id, entry: entry.clone() });
        }
    }

    /// The children of `of` in the tree whose root is the member at place `root`.
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

    /// All that are sent a skip, as often as they are, if `failed` have failed.
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
