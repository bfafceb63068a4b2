//! The clock of a host: one monotonic time for all processes on it.
//!
//! It continues while the host is suspended. Otherwise a command that was sent before would look young after hours, and be sent
//! again, when its session is forgotten elsewhere and with it that the command was executed.

use amcast_core::{Span, Time};
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// The host's monotonic time, in nanoseconds since it booted. Processes of one host agree on it,
/// so events of different processes can be put in order.
pub fn now() -> Time {
    let t = clock_gettime(ClockId::Boottime);
    Time(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// The processor time that this process has used so far, of all its threads.
pub fn used() -> Span {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Span(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// How far the wall clock is ahead of the host's monotonic time, in milliseconds.
pub(crate) fn ahead_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    wall_ms.saturating_sub(now().0 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let times: Vec<Time> = (0..1_000).map(|_| now()).collect();
        assert!(times.is_sorted());
        assert!(times[0] > Time::ZERO);
    }
}
