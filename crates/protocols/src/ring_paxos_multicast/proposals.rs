//! The coordinator's queue of proposals: which of them are the value of the next instance, and when it is opened.

use super::message::ProposedValue;
use crate::layers::batch::Batch;
use alloc::collections::VecDeque;
use amcast_core::Pid;

/// When the coordinator opens an instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceLimits {
    /// Payload bytes of the value, at least, while an earlier instance is open.
    pub(super) batch_bytes: usize,
    /// How many instances are open at a time, at most.
    pub(super) instances: u64,
}

/// Proposals that arrived at the coordinator and have no instance, in the order of arrival. Windows of the proposers
/// bound them.
#[derive(Debug, Default)]
pub(super) struct PendingProposals {
    waiting: VecDeque<(Pid, Batch)>,
    bytes: usize,
}

impl PendingProposals {
    /// A batch of a proposer arrives.
    pub(super) fn push(&mut self, proposer: Pid, batch: Batch) {
        self.bytes += batch.payload_bytes();
        self.waiting.push_back((proposer, batch));
    }

    /// Whether an instance is to be opened while so many are: for all that waits if none is open, for a full value as
    /// long as fewer than the most are.
    pub(super) fn is_due(&self, open: u64, limits: InstanceLimits) -> bool {
        let full = self.bytes >= limits.batch_bytes && open < limits.instances;
        !self.waiting.is_empty() && (open == 0 || full)
    }

    /// The value of the next instance, if one is due. It takes proposals until it is full.
    pub(super) fn next(&mut self, open: u64, limits: InstanceLimits) -> Option<ProposedValue> {
        if !self.is_due(open, limits) {
            return None;
        }
        let (mut value, mut bytes) = (ProposedValue::default(), 0);
        while bytes < limits.batch_bytes
            && let Some((proposer, batch)) = self.waiting.pop_front()
        {
            bytes += batch.payload_bytes();
            value.batches.push((proposer, batch));
        }
        self.bytes -= bytes;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::batch::OpenBatch;
    use alloc::vec::Vec;

    const LIMITS: InstanceLimits = InstanceLimits { batch_bytes: 100, instances: 2 };

    fn push(queue: &mut PendingProposals, proposer: u32, bytes: usize) {
        let mut open = OpenBatch::default();
        open.push(1, &alloc::vec![0; bytes]);
        queue.push(Pid(proposer), open.seal().expect("something is in it"));
    }

    fn next(queue: &mut PendingProposals, open: u64) -> Option<Vec<u32>> {
        let value = queue.next(open, LIMITS)?;
        Some(value.batches.into_iter().map(|(proposer, _)| proposer.0).collect())
    }

    #[test]
    fn an_idle_coordinator_opens_at_once_and_a_busy_one_for_a_full_value() {
        let mut queue = PendingProposals::default();
        assert_eq!(next(&mut queue, 0), None, "there is nothing");
        push(&mut queue, 1, 3);
        assert_eq!(next(&mut queue, 1), None, "it is not full");
        assert_eq!(next(&mut queue, 0), Some(alloc::vec![1]));
        for (proposer, bytes) in [(1, 60), (2, 30), (0, 50), (2, 90), (1, 20)] {
            push(&mut queue, proposer, bytes);
        }
        assert_eq!(next(&mut queue, 2), None, "as many are open as may be");
        assert_eq!(next(&mut queue, 1), Some(alloc::vec![1, 2, 0]), "until it is full");
        assert_eq!(next(&mut queue, 1), Some(alloc::vec![2, 1]));
        assert_eq!(next(&mut queue, 0), None);
    }

    #[test]
    fn messages_without_payload_are_proposed_when_nothing_is_open() {
        let mut queue = PendingProposals::default();
        push(&mut queue, 1, 0);
        push(&mut queue, 2, 0);
        assert_eq!(next(&mut queue, 1), None);
        assert_eq!(next(&mut queue, 0), Some(alloc::vec![1, 2]));
    }
}
