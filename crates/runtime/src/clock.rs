//! The clock of a host: one monotonic time for all processes on it.

use amcast_core::Time;
use rustix::time::{ClockId, clock_gettime};

/// The host's monotonic time, in nanoseconds since it booted. Processes of one host agree on it,
/// so events of different processes can be put in order.
pub fn now() -> Time {
    let t = clock_gettime(ClockId::Monotonic);
    Time(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
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
