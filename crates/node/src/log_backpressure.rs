//! Whether the logs of a node keep its commands waiting for so long that its clients do better at another node.
//!
//! A node multicasts no command of its clients while one of its logs has no room: as many records wait for the disk as may.
//! That is usual for a moment. Where it lasts, because the disk hangs or is slower than what the other nodes order, the
//! node's *log is stuck*: its gateways hand their commands to other nodes, which order them without this one.
//!
//! ```text
//!   has room --no room--> full --for STUCK_AFTER--> stuck
//!      ^                    |                          |
//!      +----any room--------+                          |
//!      +----half of the room---------------------------+
//! ```
//!
//! Half, because a disk that is a little too slow has some room after each sync, and clients would come back to wait again.
//! Where the logs of all nodes are stuck, nobody hands in commands, so that they have room soon.

use amcast_core::{Span, Time};

/// For how long a log may have no room.
const STUCK_AFTER: Span = Span::secs(1);

/// The room of a log, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogRoom {
    /// The bytes that it takes before the disk must catch up.
    pub(crate) free: usize,
    /// The same where no record waits for the disk.
    pub(crate) most: usize,
}

/// The state of a node's logs together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum LogPressure {
    #[default]
    HasRoom,
    /// One of them has no room, since then.
    Full(Time),
    /// That has lasted for too long.
    Stuck(Time),
}

/// Tells when the logs of a node are stuck.
#[derive(Debug, Default)]
pub(crate) struct LogBackpressure(LogPressure);

impl LogBackpressure {
    /// Looks at the room of all logs.
    pub(crate) fn look(&mut self, now: Time, rooms: impl Iterator<Item = LogRoom> + Clone) {
        let is_full = rooms.clone().any(|room| room.free == 0);
        let is_half_full = || rooms.clone().any(|room| room.free < room.most / 2);
        self.0 = match self.0 {
            LogPressure::Stuck(since) if is_half_full() => LogPressure::Stuck(since),
            LogPressure::Full(since) if is_full && now.since(since) >= STUCK_AFTER => {
                LogPressure::Stuck(since)
            }
            LogPressure::Full(since) if is_full => LogPressure::Full(since),
            _ if is_full => LogPressure::Full(now),
            _ => LogPressure::HasRoom,
        };
    }

    /// Since when a log has had no room, if it is stuck.
    pub(crate) const fn stuck_since(&self) -> Option<Time> {
        match self.0 {
            LogPressure::Stuck(since) => Some(since),
            LogPressure::HasRoom | LogPressure::Full(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The room of two logs at each time, in tenths of a second; since when they are stuck then.
    fn looks(rooms: &[(u64, [usize; 2])]) -> Vec<Option<u64>> {
        let mut logs = LogBackpressure::default();
        let look = |&(tenths, free): &(u64, [usize; 2])| {
            let now = Time::ZERO + Span::millis(100 * tenths);
            logs.look(now, free.iter().map(|&free| LogRoom { free, most: 8 }));
            logs.stuck_since().map(|since| since.0 / Span::millis(100).0)
        };
        rooms.iter().map(look).collect()
    }

    #[test]
    fn a_log_is_stuck_after_a_second_without_room_and_until_half_of_it_is_free() {
        let one =
            [(1, [0, 8]), (10, [0, 8]), (11, [0, 8]), (12, [3, 8]), (90, [0, 8]), (91, [4, 8])];
        assert_eq!(looks(&one), [None, None, Some(1), Some(1), Some(1), None]);
    }

    #[test]
    fn logs_that_have_some_room_now_and_then_are_not_stuck() {
        let slow = (1..100).map(|tenths| (tenths, [usize::from(tenths % 9 == 0), 0]));
        assert!(looks(&slow.clone().collect::<Vec<_>>()).contains(&Some(1)), "the other one is");
        let slow: Vec<_> = slow.map(|(tenths, [free, _])| (tenths, [free, 8])).collect();
        assert_eq!(looks(&slow), [None; 99]);
    }

    #[test]
    fn a_log_that_was_stuck_is_so_again_after_another_second_only() {
        let twice =
            [(1, [0, 8]), (11, [0, 8]), (12, [8, 8]), (13, [0, 8]), (22, [0, 8]), (23, [0, 8])];
        assert_eq!(looks(&twice), [None, Some(1), None, None, None, Some(13)]);
    }
}
