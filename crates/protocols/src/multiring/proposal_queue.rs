//! Proposals that wait at a coordinator for their instances, and how they are packed into batches.

use super::shared_bytes::SharedBytes;
use super::value::{BATCH_MAX, proposals};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Proposals that came together, one after the other.
#[derive(Clone, Debug)]
pub(super) struct QueuedProposals {
    pub(super) bytes: SharedBytes,
    /// How many they are.
    pub(super) count: usize,
}

impl QueuedProposals {
    /// No proposals, of the same bytes.
    pub(super) fn none(bytes: &SharedBytes) -> Self {
        Self { bytes: bytes.slice(0..0), count: 0 }
    }

    /// Splits off as many at the front as fit into so many bytes and so many messages; at least one if
    /// `one`.
    fn split(&mut self, bytes_max: usize, count_max: usize, one: bool) -> Self {
        if self.bytes.len() <= bytes_max && self.count <= count_max {
            return core::mem::replace(self, Self::none(&self.bytes));
        }
        let (mut end, mut count) = (0, 0);
        for proposal in proposals(&self.bytes) {
            let fits = end + proposal.size() <= bytes_max && count < count_max;
            if !(fits || one && count == 0) {
                break;
            }
            end += proposal.size();
            count += 1;
        }
        let front = Self { bytes: self.bytes.slice(0..end), count };
        self.bytes = self.bytes.slice(end..self.bytes.len());
        self.count -= count;
        front
    }
}

/// Proposals that have no instance yet.
#[derive(Clone, Debug, Default)]
pub(super) struct ProposalQueue {
    all: VecDeque<QueuedProposals>,
    count: usize,
}

impl ProposalQueue {
    /// How many.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts some at the end.
    pub(super) fn push(&mut self, queued: QueuedProposals) {
        if queued.count > 0 {
            self.count += queued.count;
            self.all.push_back(queued);
        }
    }

    /// Takes out the next batch: as many as fit into `bytes_max`, and at least one. Proposals that
    /// arrived together are not copied.
    pub(super) fn batch(&mut self, bytes_max: usize) -> SharedBytes {
        let mut taken = Vec::new();
        let mut bytes = 0;
        let mut count = 0;
        while let Some(front) = self.all.front_mut() {
            let room = bytes_max.saturating_sub(bytes);
            let some = front.split(room, BATCH_MAX - count, taken.is_empty());
            let whole = front.count == 0;
            (bytes, count) = (bytes + some.bytes.len(), count + some.count);
            if some.count > 0 {
                taken.push(some.bytes);
            }
            if !whole {
                break;
            }
            self.all.pop_front();
        }
        self.count -= count;
        match taken.as_slice() {
            [one] => one.clone(),
            all => {
                let mut together = Vec::with_capacity(bytes);
                all.iter().for_each(|some| together.extend_from_slice(some));
                SharedBytes::from(together)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::{PROPOSAL_BYTES, RingProposal};
    use super::*;
    use amcast_core::{GroupSet, MsgId, Pid};

    /// Proposals with payloads of these sizes, numbered from `first` on.
    fn queued(first: u64, sizes: &[usize]) -> QueuedProposals {
        let mut bytes = Vec::new();
        for (number, &size) in (first..).zip(sizes) {
            let (msg, payload) = (MsgId { sender: Pid(1), seq: number }, [7; 500]);
            let (dst, payload) = (GroupSet::first(1), &payload[..size]);
            RingProposal { msg, incarnation: 0, number, dst, payload }.encode(&mut bytes);
        }
        QueuedProposals { bytes: SharedBytes::from(bytes), count: sizes.len() }
    }

    fn numbers(batch: &SharedBytes) -> Vec<u64> {
        proposals(batch).map(|one| one.number).collect()
    }

    #[test]
    fn batches_hold_what_fits_in_order_and_at_least_one() {
        let mut queue = ProposalQueue::default();
        let small = PROPOSAL_BYTES + 10;
        queue.push(queued(1, &[10, 10, 10]));
        queue.push(queued(4, &[]));
        queue.push(queued(4, &[10, 500, 10]));
        assert_eq!(queue.len(), 6);
        assert_eq!(numbers(&queue.batch(2 * small)), [1, 2]);
        assert_eq!(numbers(&queue.batch(2 * small)), [3, 4]);
        assert_eq!(numbers(&queue.batch(2 * small)), [5], "larger than a batch");
        assert_eq!(numbers(&queue.batch(1)), [6]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_batch_has_no_more_messages_than_positions_have_room_for() {
        let mut queue = ProposalQueue::default();
        (0..3).for_each(|n| queue.push(queued(1 + n * 2000, &[0; 2000])));
        let first = numbers(&queue.batch(usize::MAX));
        assert_eq!((first.len(), first[BATCH_MAX - 1]), (BATCH_MAX, BATCH_MAX as u64));
        assert_eq!(numbers(&queue.batch(usize::MAX)).len(), 6000 - BATCH_MAX);
        assert!(queue.is_empty());
    }
}
