//! Causal multicast in one view, on casts that arrive in the order of each sender [ToTo 2.1].
//!
//! Each message carries the vector of what it follows: of each member, by rank, how many messages its sender had, with the
//! message itself. That is explicit and implicit acknowledgements in one. A message that arrives before one that it
//! follows is held until that one is there.
//!
//! # What the layer of casts does
//! It asks for casts that are missing, and any member that has one repeats it; it keeps copies until all members have them,
//! and no longer; and a sender has no more on the way than its window. A member that misses a message holds what others
//! send meanwhile, as much as passes until the repair, or until the member is excluded: nothing here bounds that.
//!
//! # When a view ends
//! A message may be held at the end for one that all its holders have failed with. Its own sender, which had that one, is
//! then among the failed, too: a member that continues has reported all that it had. All survivors were handed the
//! same casts, so they drop the same ones.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The vector of a message, and what it carries.
#[derive(Debug)]
struct UnreleasedMessage<T> {
    follows: Vec<u64>,
    content: T,
}

/// The messages of one view at one member, in causal order.
#[derive(Debug)]
pub(crate) struct CausalOrder<T> {
    /// Of each member, how many messages were released.
    had: Vec<u64>,
    /// Of each member, the vector of its last message that arrived.
    last: Vec<Vec<u64>>,
    /// Of each member, the messages that arrived and are not released, in its order.
    held: Vec<VecDeque<UnreleasedMessage<T>>>,
    /// How many of them there are.
    waiting: usize,
    /// Messages of this member in this view.
    sent: u64,
    /// A mutant: messages are released as they arrive.
    by_arrival: bool,
}

impl<T> CausalOrder<T> {
    /// A view of so many members as it begins.
    pub(crate) fn new(members: usize) -> Self {
        Self {
            had: alloc::vec![0; members],
            last: alloc::vec![alloc::vec![0; members]; members],
            held: (0..members).map(|_| VecDeque::new()).collect(),
            waiting: 0,
            sent: 0,
            by_arrival: false,
        }
    }

    /// A mutant: messages are released as they arrive.
    pub(crate) const fn ignore_vectors(&mut self) {
        self.by_arrival = true;
    }

    /// The vector of the next message of this member, which has that rank. It follows all that was released here.
    pub(crate) fn send(&mut self, rank: usize) -> Vec<u64> {
        self.sent += 1;
        let mut follows = self.had.clone();
        follows[rank] = self.sent;
        follows
    }

    /// Whether a message of this member, which has that rank, is on its way here.
    pub(crate) fn is_sending(&self, rank: usize) -> bool {
        self.sent > self.had[rank]
    }

    /// A message of that member arrives, this member's own ones, too.
    ///
    /// # Errors
    /// When its vector is none that its sender can have.
    pub(crate) fn receive(
        &mut self,
        rank: usize,
        follows: Vec<u64>,
        content: T,
    ) -> Result<(), &'static str> {
        let last = &mut self.last[rank];
        if follows.len() != last.len() || follows[rank] != last[rank] + 1 {
            return Err("a message that is not next");
        }
        if follows.iter().zip(last.iter()).any(|(now, before)| now < before) {
            return Err("a vector that shrinks");
        }
        last.clone_from(&follows);
        self.held[rank].push_back(UnreleasedMessage { follows, content });
        self.waiting += 1;
        Ok(())
    }

    /// The next message all of whose predecessors were released: the rank of its sender, its vector and its content.
    pub(crate) fn next(&mut self) -> Option<(usize, Vec<u64>, T)> {
        if self.waiting == 0 {
            return None;
        }
        let is_due = |&rank: &usize| self.held[rank].front().is_some_and(|m| self.is_due(rank, m));
        let rank = (0..self.held.len()).find(is_due)?;
        let UnreleasedMessage { follows, content } = self.held[rank].pop_front()?;
        self.waiting -= 1;
        self.had[rank] = follows[rank];
        Some((rank, follows, content))
    }

    fn is_due(&self, rank: usize, message: &UnreleasedMessage<T>) -> bool {
        let both = message.follows.iter().zip(&self.had).enumerate();
        self.by_arrival || both.into_iter().all(|(of, (follows, had))| of == rank || follows <= had)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(order: &mut CausalOrder<char>) -> Vec<char> {
        core::iter::from_fn(|| order.next()).map(|(_, _, content)| content).collect()
    }

    #[test]
    fn a_message_waits_for_those_that_it_follows() {
        let mut order = CausalOrder::new(3);
        let of = |follows: [u64; 3]| follows.to_vec();
        assert_eq!(order.receive(2, of([1, 1, 1]), 'c'), Ok(()));
        assert_eq!(order.receive(2, of([1, 1, 2]), 'd'), Ok(()));
        assert_eq!(released(&mut order), []);
        assert_eq!(order.receive(1, of([1, 1, 0]), 'b'), Ok(()));
        assert_eq!(released(&mut order), [], "it follows one of member 0");
        assert_eq!(order.receive(0, of([1, 0, 0]), 'a'), Ok(()));
        assert_eq!(released(&mut order), ['a', 'b', 'c', 'd']);
    }

    #[test]
    fn an_own_message_follows_what_was_released_and_the_own_ones_before_it() {
        let mut order = CausalOrder::new(2);
        assert_eq!(order.send(0), [1, 0]);
        assert_eq!(order.receive(1, alloc::vec![0, 1], 'x'), Ok(()));
        assert_eq!(order.send(0), [2, 0], "it arrived, and is not released");
        assert_eq!(released(&mut order), ['x']);
        assert_eq!(order.send(0), [3, 1]);
        assert!(order.is_sending(0));
        for follows in [[1, 0], [2, 0], [3, 1]] {
            assert_eq!(order.receive(0, follows.to_vec(), 'o'), Ok(()));
        }
        assert_eq!(released(&mut order).len(), 3);
        assert!(!order.is_sending(0));
    }

    #[test]
    fn a_vector_that_no_sender_has_is_refused() {
        let mut order = CausalOrder::new(2);
        assert_eq!(order.receive(1, alloc::vec![3, 1], 'a'), Ok(()));
        assert!(order.receive(1, alloc::vec![3, 1], 'b').is_err(), "it is there");
        assert!(order.receive(1, alloc::vec![3, 3], 'b').is_err(), "one is missing");
        assert!(order.receive(1, alloc::vec![2, 2], 'b').is_err(), "it shrinks");
        assert!(order.receive(1, alloc::vec![3], 'b').is_err() && order.next().is_none());
    }
}
