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
use super::ring::{RingContext, RingMember, entry_upto};
use super::value::{InstanceEntry, InstanceValue};
use alloc::vec::Vec;
use amcast_core::Pid;

/// The fan-out of the tree.
const FAN_OUT: usize = 8;

impl RingMember {
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
                entries.extend(entry.map(|entry| entry_upto(entry, self.learner.learned)));
            }
        }
        entries
    }

    /// Sends a skip to this process's children in the tree.
    fn send_skip(&self, entry: &InstanceEntry, cx: &mut RingContext<'_>) {
        let Some(root) = entry.ballot.coordinator().and_then(|p| self.topology.member(p)) else {
            return;
        };
        for to in self.children_of(cx.me, root) {
            cx.send(to, RingMessage::DecidedSkip { ring: self.id, entry: entry.clone() });
        }
    }

    /// The children of `of` in the tree whose root is the member at place `root`.
    fn children_of(&self, of: Pid, root: usize) -> Vec<Pid> {
        let members = &self.topology.members;
        let Some(place) = self.topology.member(of) else { return Vec::new() };
        let (mut parents, mut children) = (Vec::new(), Vec::new());
        parents.push((place + members.len() - root) % members.len());
        while let Some(at) = parents.pop() {
            let children_of = at * FAN_OUT + 1..=at * FAN_OUT + FAN_OUT;
            for child in children_of.take_while(|&child| child < members.len()) {
                let to = members[(child + root) % members.len()];
                if self.membership.excluded.contains(&to) {
                    parents.push(child);
                } else {
                    children.push(to);
                }
            }
        }
        children
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
            return Err("a value where a skip is expected");
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
    use amcast_core::ClusterShape;

    /// All that are sent a skip, as often as they are, if `failed` have failed.
    fn recipients(failed: &[Pid]) -> Vec<Pid> {
        let cluster = ClusterShape::new(40, 3, 0).unwrap();
        let shape =
            topologies(&cluster, RingKinds::Global, &[], RingTraversal::Nodes).pop().unwrap();
        let mut ring = RingMember::new(40, shape, Pid(1), cluster.processes());
        ring.membership.excluded = failed.to_vec();
        let (mut all, mut next) = (Vec::new(), alloc::vec![Pid(1)]);
        while let Some(parent) = next.pop() {
            let children_of = ring.children_of(parent, ring.topology.member(Pid(1)).unwrap());
            next.extend(&children_of);
            all.extend(children_of);
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn every_member_but_the_root_is_sent_a_skip_once() {
        let all: Vec<Pid> = (0..120).map(Pid).filter(|&p| p != Pid(1)).collect();
        assert_eq!(recipients(&[]), all);
    }

    #[test]
    fn the_children_of_a_failed_member_are_sent_the_skip_by_another() {
        let failed = [Pid(3), Pid(4), Pid(60), Pid(119)];
        let recipients = recipients(&failed);
        let live: BTreeSet<Pid> = (0..120).map(Pid).filter(|p| !failed.contains(p)).collect();
        assert_eq!(recipients.len() + 1, live.len());
        assert!(recipients.iter().all(|p| live.contains(p)));
    }
}
