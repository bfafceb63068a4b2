//! The order in which connections send parts of large commands.
//!
//! All connections of a gateway together have a bounded number of bytes of parts under way, so that commands of others
//! wait behind no more than these. Where more connections have parts to send they take turns, each part one turn.
//!
//! Shards keep parts until their command is whole, and refuse those for which they have no room. So a gateway begins a
//! command only when those that it has begun leave room for it; the others wait in the order in which they came.

use amcast_kv::client::lock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::task::Waker;

/// Bytes of parts under way, of all connections together.
const OPEN_BYTES_MAX: usize = 4 << 20;

/// Bytes of commands that were begun and not answered, of all connections together; one may be larger. A shard keeps
/// four times as much: where more than four gateways have as much for one shard, it refuses some.
const BEGUN_BYTES_MAX: usize = 64 << 20;

/// The parts of all connections of a gateway.
#[derive(Default)]
pub(super) struct PartAdmission(Mutex<AdmissionState>);

#[derive(Default)]
struct AdmissionState {
    /// Bytes under way.
    open: usize,
    /// The bytes of commands that were begun, by their connections' lanes.
    begun: BTreeMap<u32, usize>,
    /// Connections that wait until they may begin.
    entrance: LaneQueue,
    /// Connections that wait for their turn.
    waiting: LaneQueue,
}

/// Lanes of connections that wait, each once, the one that comes next in front.
#[derive(Default)]
struct LaneQueue(VecDeque<(u32, Waker)>);

impl LaneQueue {
    /// Whether nobody waits in front of `lane`.
    fn is_next(&self, lane: u32) -> bool {
        self.0.front().is_none_or(|(first, _)| *first == lane)
    }

    /// Has `lane` wait, and `waker` be woken when it comes next.
    fn wait(&mut self, lane: u32, waker: &Waker) {
        match self.0.iter_mut().find(|(other, _)| *other == lane) {
            Some((_, old)) => old.clone_from(waker),
            None => self.0.push_back((lane, waker.clone())),
        }
    }

    fn remove(&mut self, lane: u32) {
        self.0.retain(|(other, _)| *other != lane);
    }

    fn wake_next(&self) {
        if let Some((_, waker)) = self.0.front() {
            waker.wake_by_ref();
        }
    }
}

impl AdmissionState {
    /// Wakes the connection that comes next, if there is room for a part.
    fn wake_next(&self) {
        if self.open < OPEN_BYTES_MAX {
            self.waiting.wake_next();
        }
    }
}

impl PartAdmission {
    /// Whether the connection of `lane` may send parts of its command, which has so many bytes. If not, `waker` is woken
    /// when it may.
    pub(super) fn begin(&self, lane: u32, bytes: usize, waker: &Waker) -> bool {
        let mut line = lock(&self.0);
        if line.begun.contains_key(&lane) {
            return true;
        }
        let begun: usize = line.begun.values().sum();
        let has_room = begun == 0 || begun + bytes <= BEGUN_BYTES_MAX;
        if !has_room || !line.entrance.is_next(lane) {
            line.entrance.wait(lane, waker);
            return false;
        }
        line.entrance.remove(lane);
        line.begun.insert(lane, bytes);
        // There may be room for another one.
        line.entrance.wake_next();
        true
    }

    /// Whether the connection of `lane` may send a part of so many bytes now. If not, `waker` is woken when it may.
    pub(super) fn take(&self, lane: u32, bytes: usize, waker: &Waker) -> bool {
        let mut line = lock(&self.0);
        if line.waiting.is_next(lane) && line.open < OPEN_BYTES_MAX {
            line.waiting.remove(lane);
            line.open += bytes;
            line.wake_next();
            return true;
        }
        line.waiting.wait(lane, waker);
        false
    }

    /// So many bytes are not under way any more.
    pub(super) fn end(&self, bytes: usize) {
        let mut line = lock(&self.0);
        line.open -= bytes;
        line.wake_next();
    }

    /// The connection of `lane` sends no more of its command, which is answered or given up.
    pub(super) fn leave(&self, lane: u32) {
        let mut line = lock(&self.0);
        line.begun.remove(&lane);
        line.entrance.remove(lane);
        line.waiting.remove(lane);
        line.entrance.wake_next();
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
    struct TurnWakeCount(AtomicUsize);

    impl Wake for TurnWakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn connections_take_turns_once_there_is_no_room_and_the_next_one_is_woken() {
        let turns = PartAdmission::default();
        let woken: [Arc<TurnWakeCount>; 3] = std::array::from_fn(|_| Arc::default());
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

    #[test]
    fn commands_begin_in_their_order_when_those_before_leave_room() {
        let turns = PartAdmission::default();
        let woken: [Arc<TurnWakeCount>; 4] = std::array::from_fn(|_| Arc::default());
        let begin = |lane: usize, bytes: usize| {
            turns.begin(lane as u32, bytes, &Waker::from(woken[lane].clone()))
        };
        let calls = || woken.each_ref().map(|w| w.0.load(Ordering::SeqCst));
        assert!(begin(0, 2 * BEGUN_BYTES_MAX), "one may be larger");
        assert!(begin(0, 2 * BEGUN_BYTES_MAX), "it has begun");
        assert!(!begin(1, BEGUN_BYTES_MAX / 2) && !begin(2, 1) && !begin(3, BEGUN_BYTES_MAX / 2));
        turns.leave(0);
        assert_eq!(calls(), [0, 1, 0, 0]);
        assert!(!begin(2, 1), "another one comes first");
        assert!(begin(1, BEGUN_BYTES_MAX / 2));
        assert_eq!(calls(), [0, 1, 1, 0]);
        assert!(!begin(3, BEGUN_BYTES_MAX / 2) && begin(2, 1));
        assert_eq!(calls(), [0, 1, 1, 1]);
        assert!(!begin(3, BEGUN_BYTES_MAX / 2), "a byte is missing");
        assert!(!begin(0, 1), "it is behind that one");
        turns.leave(3);
        assert_eq!(calls(), [1, 1, 1, 1], "one that leaves lets the next one begin");
        assert!(begin(0, 1));
    }
}
