//! The pace of datagrams that leave: a token bucket, where the rate of the link is known.
//!
//! The kernel could do it (`SO_MAX_PACING_RATE`), but for UDP only where the device has the queueing discipline `fq`, which many
//! kernels have not, and which is no device's default; without it the option is accepted and does nothing. A bucket here
//! works everywhere, and keeps what is not due in this process, where it is counted as backlog, and not in a queue of the
//! system that drops without a word. It is as exact as the loop that sends: one that parks wakes up some tens of
//! microseconds late, and then sends what was due meanwhile.

use std::time::{Duration, Instant};

/// How far a sender may be ahead of the rate, in time: so a late wake-up costs no throughput.
const AHEAD: Duration = Duration::from_millis(1);

/// How far it may be ahead at least, in bytes: one datagram that is the longest there is.
const AHEAD_BYTES_MIN: u64 = 64 << 10;

/// A token bucket that datagrams empty, and time fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramPace {
    bytes_per_s: u64,
    /// Bytes that left and that time has not paid for yet.
    owed: u64,
    /// Up to when time has paid.
    paid: Instant,
}

impl DatagramPace {
    /// Datagrams leave at this rate, which is not 0.
    pub(crate) fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self { bytes_per_s, owed: 0, paid: now }
    }

    /// How many bytes may leave now: a datagram may leave if any may.
    pub(crate) fn allows(&mut self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.paid).as_nanos();
        let bytes = passed.saturating_mul(u128::from(self.bytes_per_s)) / 1_000_000_000;
        if bytes >= u128::from(self.owed) {
            (self.owed, self.paid) = (0, now);
        } else {
            self.owed -= bytes as u64;
            // Less than a byte is paid later.
            self.paid += self.time_of(bytes as u64);
        }
        self.ahead().saturating_sub(self.owed)
    }

    /// So many bytes left.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.owed += bytes as u64;
    }

    /// When a datagram may leave, after [`DatagramPace::allows`] allowed none.
    pub(crate) fn next_at(&self) -> Instant {
        let over = (self.owed + 1).saturating_sub(self.ahead());
        self.paid + self.time_of(over)
    }

    fn ahead(&self) -> u64 {
        let bytes = u128::from(self.bytes_per_s) * AHEAD.as_nanos() / 1_000_000_000;
        (bytes as u64).max(AHEAD_BYTES_MIN)
    }

    fn time_of(&self, bytes: u64) -> Duration {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
        Duration::from_nanos(ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_is_the_rate_and_what_may_be_ahead() {
        let begin = Instant::now();
        // A byte in a microsecond.
        let mut pace = DatagramPace::new(1_000_000, begin);
        let mut left = 0;
        for us in 0..500_000 {
            let now = begin + Duration::from_micros(us);
            if pace.allows(now) > 0 {
                pace.spend(1400);
                left += 1400;
            } else {
                assert!(pace.next_at() > now, "{us}");
                assert!(pace.next_at() <= now + Duration::from_micros(1402), "{us}");
            }
        }
        let most = 500_000 + AHEAD_BYTES_MIN;
        assert!((most - 1400..most + 1400).contains(&left), "{left}");
    }

    #[test]
    fn idle_time_is_not_saved_and_a_fast_link_is_a_millisecond_ahead() {
        let begin = Instant::now();
        let mut pace = DatagramPace::new(1_000_000_000, begin);
        assert_eq!(pace.allows(begin + Duration::from_secs(9)), 1_000_000);
        pace.spend(1_000_000);
        assert_eq!(pace.allows(begin + Duration::from_secs(9)), 0);
        let next = pace.next_at();
        assert!(next > begin + Duration::from_secs(9));
        assert!(pace.allows(next + Duration::from_nanos(1)) > 0);
    }
}
