//! The order of one view: vector clocks, and the batches that are not delivered yet.
//!
//! A batch carries the clock of its sender: how many batches of each member the sender had when it sent it, that one
//! included. Where one of two senders had the batch of the other, the other batch is first. Two that are concurrent are
//! in the order in which the last member of the ring receives them: the batch of the member that is nearer to it, on the
//! way to it, is first.
//!
//! ```text
//! p0 --a--> p1 --b, a--> p2        p1 sends b before it forwards a: p2 receives b first, and all deliver b first
//! ```
//! Clocks let each member see that order for itself: of the senders with ranks `i < j`, the batch of `i` is first if and
//! only if the clock of `j`'s batch counts it. So a clock needs the counts of the members in front of its sender
//! only, and its own.

use super::message::LcrMessage;
use crate::layers::batch::Batch;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// The place of a batch in the order: its sender by rank, and the sender's clock, up to its own count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BatchStamp {
    rank: usize,
    clock: Vec<u64>,
}

/// A batch that is not delivered yet.
#[derive(Clone, Debug)]
struct PendingBatch {
    stamp: BatchStamp,
    batch: Batch,
}

/// How one member orders the batches of a view.
#[derive(Debug)]
pub(super) struct RingOrder {
    /// How many batches of each member it has, by rank.
    clock: Vec<u64>,
    /// How many of them all members have.
    stable: Vec<u64>,
    /// Those that are not delivered, in their order.
    pending: VecDeque<PendingBatch>,
    /// For a mutant: batches stay in the order in which they arrive.
    by_arrival: bool,
}

impl BatchStamp {
    /// The sender's number of the batch.
    fn number(&self) -> u64 {
        self.clock[self.rank]
    }

    /// Whether this batch is delivered before the other one.
    fn precedes(&self, other: &Self) -> bool {
        match self.rank.cmp(&other.rank) {
            Ordering::Less => self.number() <= other.clock[self.rank],
            Ordering::Equal => self.number() < other.number(),
            Ordering::Greater => !other.precedes(self),
        }
    }
}

impl RingOrder {
    /// The order of a view of so many members as it begins.
    pub(super) fn new(members: usize) -> Self {
        Self {
            clock: alloc::vec![0; members],
            stable: alloc::vec![0; members],
            pending: VecDeque::new(),
            by_arrival: false,
        }
    }

    /// A mutant: batches are delivered in the order in which they arrive.
    pub(super) const fn ignore_clocks(&mut self) {
        self.by_arrival = true;
    }

    /// A batch of this member, which has that rank: it is pending from here on. Gives the message that carries it.
    pub(super) fn send(&mut self, rank: usize, batch: Batch) -> LcrMessage {
        self.clock[rank] += 1;
        let clock = self.clock[..=rank].to_vec();
        let stamp = BatchStamp { rank, clock: clock.clone() };
        self.insert(PendingBatch { stamp, batch: batch.clone() });
        LcrMessage { clock, batch }
    }

    /// A batch of another member arrives.
    ///
    /// # Errors
    /// When its clock is none that its sender can have.
    pub(super) fn receive(&mut self, rank: usize, message: LcrMessage) -> Result<(), &'static str> {
        let LcrMessage { clock, batch } = message;
        if clock.len() != rank + 1 || clock[rank] != self.clock[rank] + 1 {
            return Err("a batch that is not next");
        }
        // Casts arrive in causal order, and at the end of a view those of lower ranks are handed over first.
        if clock.iter().zip(&self.clock).take(rank).any(|(theirs, here)| theirs > here) {
            return Err("a batch before one that its sender had");
        }
        self.clock[rank] += 1;
        self.insert(PendingBatch { stamp: BatchStamp { rank, clock }, batch });
        Ok(())
    }

    fn insert(&mut self, new: PendingBatch) {
        let mut at = self.pending.len();
        while at > 0 && !self.by_arrival && new.stamp.precedes(&self.pending[at - 1].stamp) {
            at -= 1;
        }
        self.pending.insert(at, new);
    }

    /// All members have one more batch of the member of that rank.
    ///
    /// # Errors
    /// When it is not here.
    pub(super) fn stable(&mut self, rank: usize) -> Result<(), &'static str> {
        if self.stable[rank] >= self.clock[rank] {
            return Err("a stable batch that is not here");
        }
        self.stable[rank] += 1;
        Ok(())
    }

    /// The next batch to deliver: the first one in the order, once all members have it. Nothing that comes later precedes
    /// it, because a sender that could still send such a batch has not forwarded this one.
    pub(super) fn next(&mut self) -> Option<(usize, Batch)> {
        let BatchStamp { rank, .. } = self.pending.front()?.stamp;
        let number = self.pending.front()?.stamp.number();
        let is_stable = number <= self.stable[rank];
        is_stable.then(|| self.pending.pop_front()).flatten().map(|first| (rank, first.batch))
    }

    /// All that is left when the view ends, in its order: every survivor has the same, and each batch that any member
    /// has delivered is in front of it.
    pub(super) fn settle(&mut self) -> Vec<(usize, Batch)> {
        self.pending.drain(..).map(|left| (left.stamp.rank, left.batch)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::batch::OpenBatch;

    fn batch(seq: u64) -> Batch {
        let mut open = OpenBatch::default();
        open.push(seq, b"x");
        open.seal().expect("one message")
    }

    fn taken(order: &mut RingOrder) -> Vec<(usize, u64)> {
        core::iter::from_fn(|| order.next()).map(|(rank, batch)| (rank, batch.first())).collect()
    }

    fn stamp(rank: usize, clock: &[u64]) -> BatchStamp {
        BatchStamp { rank, clock: clock.to_vec() }
    }

    #[test]
    fn what_a_sender_had_is_before_its_batch_and_of_concurrent_ones_the_higher_rank() {
        // Member 0 sends a; member 1 sends b before it has a, and c after it; member 2 sends d with none of them.
        let a = stamp(0, &[1]);
        let b = stamp(1, &[0, 1]);
        let c = stamp(1, &[1, 2]);
        let d = stamp(2, &[0, 0, 1]);
        let order = [&d, &b, &a, &c];
        for (at, first) in order.iter().enumerate() {
            for (other_at, second) in order.iter().enumerate() {
                assert_eq!(first.precedes(second), at < other_at, "{first:?}, {second:?}");
            }
        }
    }

    #[test]
    fn a_batch_waits_until_it_is_stable_and_those_before_it_are_delivered() {
        let mut order = RingOrder::new(3);
        // Member 0 of three: its own batch, then one of member 2 that is concurrent, and so is first.
        let sent = order.send(0, batch(7));
        assert_eq!(sent.clock, [1]);
        assert_eq!(
            order.receive(2, LcrMessage { clock: alloc::vec![0, 0, 1], batch: batch(8) }),
            Ok(())
        );
        assert_eq!(order.stable(0), Ok(()));
        assert_eq!(taken(&mut order), [], "the one before it is not stable");
        assert_eq!(order.stable(2), Ok(()));
        assert_eq!(taken(&mut order), [(2, 8), (0, 7)]);
        assert!(order.stable(2).is_err(), "there is no other one");
        assert_eq!(order.send(0, batch(9)).clock, [2]);
    }

    #[test]
    fn the_rest_of_a_view_is_in_the_order_of_clocks_and_not_of_arrival() {
        let of = |rank, clock: &[u64], seq| {
            (rank, LcrMessage { clock: clock.to_vec(), batch: batch(seq) })
        };
        let all = [of(0, &[1], 1), of(0, &[2], 2), of(1, &[1, 1], 3), of(2, &[0, 1, 1], 4)];
        let mut order = RingOrder::new(3);
        for (rank, message) in all {
            assert_eq!(order.receive(rank, message), Ok(()));
        }
        let left: Vec<_> = order.settle().into_iter().map(|(_, batch)| batch.first()).collect();
        assert_eq!(left, [1, 3, 4, 2]);
    }

    #[test]
    fn a_clock_that_no_sender_has_is_refused() {
        let mut order = RingOrder::new(3);
        let mut refused = |rank, clock: &[u64]| {
            order.receive(rank, LcrMessage { clock: clock.to_vec(), batch: batch(1) }).is_err()
        };
        assert!(refused(1, &[0]) && refused(1, &[0, 1, 0]) && refused(1, &[0, 2]), "not its next");
        assert!(refused(1, &[1, 1]), "it had none of member 0 that is not here");
        assert!(!refused(1, &[0, 1]));
    }
}
