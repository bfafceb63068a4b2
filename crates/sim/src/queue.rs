//! The queue of due events, ordered by (time, sequence): ties go to the one that was put in first.

use alloc::collections::BinaryHeap;
use amcast_core::Time;
use core::cmp::Ordering;

/// A queue of things that are due.
#[derive(Debug)]
pub struct EventQueue<T> {
    heap: BinaryHeap<QueueSlot<T>>,
    sequence: u64,
}

#[derive(Debug)]
struct QueueSlot<T> {
    at: Time,
    sequence: u64,
    item: T,
}

impl<T> QueueSlot<T> {
    const fn key(&self) -> (Time, u64) {
        (self.at, self.sequence)
    }
}

impl<T> PartialEq for QueueSlot<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for QueueSlot<T> {}

impl<T> PartialOrd for QueueSlot<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for QueueSlot<T> {
    // The heap gives its greatest first; we want the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<T> EventQueue<T> {
    /// Puts in what is due at `at`.
    pub fn push(&mut self, at: Time, item: T) {
        self.sequence += 1;
        self.heap.push(QueueSlot { at, sequence: self.sequence, item });
    }

    /// When the next thing is due; [`Time::NEVER`] if nothing is.
    pub fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |slot| slot.at)
    }

    /// Takes out the next thing.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|slot| (slot.at, slot.item))
    }

    /// How many things are in it.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is due.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_first_and_ties_in_order_of_arrival() {
        let mut queue = EventQueue::default();
        for (at, item) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            queue.push(Time(at), item);
        }
        assert_eq!((queue.next(), queue.len()), (Time(3), 4));
        let order: alloc::string::String =
            core::iter::from_fn(|| queue.pop().map(|(_, c)| c)).collect();
        assert_eq!(order, "abcd");
        assert_eq!(queue.next(), Time::NEVER);
    }
}
