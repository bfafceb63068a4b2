//! Whose part of a large command is sent next.
//!
//! All connections of a front together have a bounded number of bytes of parts under way, so that commands of others wait
//! behind no more than these. Where more connections have parts to send they take turns, each part one turn.

use crate::kv::client::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::Waker;

/// Bytes of parts under way, of all connections together.
const OPEN_BYTES_MAX: usize = 4 << 20;

/// The parts of all connections of a front.
#[derive(Default)]
pub(super) struct Turns(Mutex<Line>);

#[derive(Default)]
struct Line {
    /// Bytes under way.
    open: usize,
    /// The lanes of connections that wait for their turn, each once.
    waiting: VecDeque<(u32, Waker)>,
}

impl Line {
    /// Wakes the connection that comes next, if there is room for a part.
    fn wake_next(&self) {
        if let Some((_, waker)) = self.waiting.front().filter(|_| self.open < OPEN_BYTES_MAX) {
            waker.wake_by_ref();
        }
    }
}

impl Turns {
    /// Whether the connection of `lane` may send a part of so many bytes now. If not, `waker` is woken when it may.
    pub(super) fn take(&self, lane: u32, bytes: usize, waker: &Waker) -> bool {
        let mut line = lock(&self.0);
        let place = line.waiting.iter().position(|(other, _)| *other == lane);
        let is_next = place == Some(0) || line.waiting.is_empty();
        if is_next && line.open < OPEN_BYTES_MAX {
            line.waiting.pop_front();
            line.open += bytes;
            line.wake_next();
            return true;
        }
        match place {
            Some(place) => line.waiting[place].1.clone_from(waker),
            None => line.waiting.push_back((lane, waker.clone())),
        }
        false
    }

    /// So many bytes are not under way any more.
    pub(super) fn end(&self, bytes: usize) {
        let mut line = lock(&self.0);
        line.open -= bytes;
        line.wake_next();
    }

    /// The connection of `lane` sends no more.
    pub(super) fn leave(&self, lane: u32) {
        let mut line = lock(&self.0);
        line.waiting.retain(|(other, _)| *other != lane);
        line.wake_next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn connections_take_turns_once_there_is_no_room_and_the_next_one_is_woken() {
        let turns = Turns::default();
        let woken: [Arc<Woken>; 3] = std::array::from_fn(|_| Arc::default());
        let take = |lane: usize| {
            turns.take(lane as u32, OPEN_BYTES_MAX / 2, &Waker::from(woken[lane].clone()))
        };
        let calls = || woken.each_ref().map(|w| w.0.load(Ordering::SeqCst));
        assert!(take(0) && take(0) && !take(0) && !take(1) && !take(2) && !take(0));
        turns.end(OPEN_BYTES_MAX / 2);
        assert_eq!(calls(), [1, 0, 0]);
        assert!(!take(1), "it is the turn of the first");
        assert!(take(0) && !take(0), "it goes behind the others");
        turns.end(OPEN_BYTES_MAX / 2);
        assert_eq!(calls(), [1, 1, 0]);
        assert!(!take(2) && take(1));
        turns.end(OPEN_BYTES_MAX / 2);
        assert_eq!(calls(), [1, 1, 1]);
        turns.leave(2);
        assert_eq!(calls(), [2, 1, 1], "one that leaves lets the next one go");
        assert!(take(0));
    }
}
