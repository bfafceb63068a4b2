//! The times that a gateway stamps commands with.
//!
//! Expiry is judged by the wall clock, since clients name moments of it (`EXPIREAT`), and ordered
//! time never goes back. If the wall clock is set back by an hour, time that only waited for it
//! would not advance for that hour, and so would no time to live. A gateway's stamps therefore
//! advance at half the pace until the wall clock has caught up: keys that expire then live up to
//! twice as long, and after two hours all is as before.

use amcast_kv::client::{host_us, lock, wall_us};
use amcast_smr::envelope::Stamp;
use amcast_smr::executor::AHEAD_MAX_MS;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The reading of a gateway's clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The wall clock as it is, in microseconds since 1970.
    pub wall_us: u64,
    /// The stamp of commands.
    pub stamp: Stamp,
}

/// A gateway's clock.
#[derive(Debug)]
pub struct GatewayClock {
    state: Mutex<ClockState>,
    /// Whether it is awaited that a stamp of the host's own time is accepted.
    awaits: AtomicBool,
}

#[derive(Debug)]
struct ClockState {
    steady: SteadyClock,
    /// How far the host's time of stamps is ahead of the host's clock, modulo 2^64: it may be behind, too.
    ahead_ms: u64,
    /// The same as it was at first.
    own_ahead_ms: u64,
    trust: ClockTrust,
}

/// Whether stamps are the host's own time. Ordered time does not advance while a cluster is down,
/// and continues a moment after it is up: until then the stamps of correct clocks are refused, too.
/// So the host's own time is tried once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClockTrust {
    /// They do.
    Own,
    /// They were refused first at this host's time, and say ordered time for a while.
    Doubted(u64),
    /// They say the host's own time again since then, and whether one of them was accepted.
    Retried(u64, bool),
    /// They were refused again since then: they say ordered time for longer.
    Replaced(u64),
}

/// How long after a refusal the host's own time is tried again, and how long it must not be refused then, in
/// microseconds.
const RETRY_AFTER_US: u64 = 15_000_000;
const TRUST_AFTER_US: u64 = 60_000_000;

/// A command that is answered so long after the host's own time was tried again was stamped with that: none is under way
/// for longer.
const ANSWERED_US: u64 = 20_000_000;

/// How long the time of a host is not tried again that was refused twice, in microseconds: it may be set right.
const REPLACED_US: u64 = 600_000_000;

impl ClockReading {
    /// The clocks as they are, for a report: a wall clock that was set back counts as it is now.
    pub const fn as_it_is(&self) -> Stamp {
        Stamp { wall_ms: self.wall_us / 1000, host_ms: self.stamp.host_ms }
    }
}

impl Default for GatewayClock {
    /// Begins with the time that it is.
    fn default() -> Self {
        Self::ahead(0)
    }
}

impl GatewayClock {
    /// A clock whose host's time is so many milliseconds ahead of the host's own: where the state
    /// of a service outlives its machine, time continues from its last value, though the machine's
    /// monotonic clock begins again. The same at all gateways of a cluster.
    pub fn ahead(ms: u64) -> Self {
        let steady = SteadyClock { wall_us: wall_us(), host_us: host_us() };
        let state = ClockState { steady, ahead_ms: ms, own_ahead_ms: ms, trust: ClockTrust::Own };
        Self { state: Mutex::new(state), awaits: AtomicBool::new(false) }
    }

    /// A stamp was refused since it is far from ordered time, `now_ms`: that of the hosts of this cluster's
    /// replicas. Later stamps go by that; the wall clock of stamps is left as it is: too late a one does not
    /// count. Says whether the host's own time is wrong: whether it was refused again when it was tried again.
    pub fn refused(&self, now_ms: u64) -> bool {
        lock(&self.state).refused(now_ms, host_us())
    }

    /// A write that was stamped here was executed. Cheap unless the host's own time is tried again.
    pub fn accepted(&self) {
        if self.awaits.load(Ordering::Relaxed) {
            lock(&self.state).accepted(host_us());
        }
    }

    /// The time that it is.
    pub fn now(&self) -> ClockReading {
        let mut state = lock(&self.state);
        // Read under the lock, so that no thread brings an earlier time after a later one.
        let (wall_us, host_us) = (wall_us(), host_us());
        state.try_again(host_us);
        let awaits = matches!(state.trust, ClockTrust::Retried(_, false));
        self.awaits.store(awaits, Ordering::Relaxed);
        let steady_us = state.steady.advance(wall_us, host_us);
        let host_ms = (host_us / 1000).wrapping_add(state.ahead_ms);
        ClockReading { wall_us, stamp: Stamp { wall_ms: steady_us / 1000, host_ms } }
    }
}

impl ClockState {
    /// A stamp was refused by ordered time, `now_ms`. Says whether the host's own time is wrong.
    fn refused(&mut self, now_ms: u64, host_us: u64) -> bool {
        let own_ms = (host_us / 1000).wrapping_add(self.own_ahead_ms);
        if own_ms.abs_diff(now_ms) <= AHEAD_MAX_MS {
            // It was an earlier stamp, by ordered time of before: that has reached the host's own.
            self.ahead_ms = self.own_ahead_ms;
            if matches!(self.trust, ClockTrust::Doubted(_) | ClockTrust::Replaced(_)) {
                self.trust = ClockTrust::Doubted(host_us);
            }
            return false;
        }
        self.ahead_ms = now_ms.wrapping_sub(host_us / 1000);
        self.trust = match self.trust {
            ClockTrust::Own => ClockTrust::Doubted(host_us),
            doubted @ ClockTrust::Doubted(_) => doubted,
            ClockTrust::Retried(..) => ClockTrust::Replaced(host_us),
            replaced @ ClockTrust::Replaced(_) => replaced,
        };
        matches!(self.trust, ClockTrust::Replaced(_))
    }

    /// A write was executed. That a host which sends nothing is not refused says nothing of its clock.
    fn accepted(&mut self, host_us: u64) {
        if let ClockTrust::Retried(since_us, accepted) = &mut self.trust {
            *accepted |= host_us.saturating_sub(*since_us) > ANSWERED_US;
        }
    }

    /// Goes back to the host's own time a while after it was refused first.
    fn try_again(&mut self, host_us: u64) {
        let is_over = |since_us: u64, us| host_us.saturating_sub(since_us) > us;
        match self.trust {
            ClockTrust::Doubted(since_us) if is_over(since_us, RETRY_AFTER_US) => {
                (self.ahead_ms, self.trust) =
                    (self.own_ahead_ms, ClockTrust::Retried(host_us, false));
            }
            ClockTrust::Replaced(since_us) if is_over(since_us, REPLACED_US) => {
                (self.ahead_ms, self.trust) =
                    (self.own_ahead_ms, ClockTrust::Retried(host_us, false));
            }
            ClockTrust::Retried(since_us, true) if is_over(since_us, TRUST_AFTER_US) => {
                self.trust = ClockTrust::Own;
            }
            _ => {}
        }
    }
}

/// A wall clock that does not go back, and the host's time at which it was read.
#[derive(Debug)]
struct SteadyClock {
    wall_us: u64,
    host_us: u64,
}

impl SteadyClock {
    /// The time when the wall clock has `wall_us`, in microseconds since 1970.
    fn advance(&mut self, wall_us: u64, host_us: u64) -> u64 {
        let slow_us = host_us.saturating_sub(self.host_us) / 2;
        if wall_us >= self.wall_us + slow_us {
            *self = Self { wall_us, host_us };
        } else {
            // An odd microsecond counts the next time.
            *self = Self { wall_us: self.wall_us + slow_us, host_us: self.host_us + 2 * slow_us };
        }
        self.wall_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: u64 = 3_600_000_000;

    #[test]
    fn stamps_follow_the_wall_clock_while_it_goes_on_or_is_set_ahead() {
        let mut steady = SteadyClock { wall_us: 9 * HOUR_US, host_us: 5 };
        assert_eq!(steady.advance(9 * HOUR_US + 1, 6), 9 * HOUR_US + 1);
        assert_eq!(steady.advance(20 * HOUR_US, 7), 20 * HOUR_US);
    }

    #[test]
    fn stamps_go_on_at_half_the_pace_while_the_wall_clock_is_behind() {
        let mut steady = SteadyClock { wall_us: 9 * HOUR_US, host_us: 0 };
        for passed_us in (1..=3 * HOUR_US).step_by(1_000_001) {
            let wall_us = 8 * HOUR_US + passed_us;
            let slow_us = 9 * HOUR_US + passed_us / 2;
            assert_eq!(steady.advance(wall_us, passed_us), slow_us.max(wall_us), "{passed_us}");
        }
        assert_eq!(steady.advance(11 * HOUR_US, 3 * HOUR_US), 11 * HOUR_US, "it has caught up");
    }

    #[test]
    fn both_clocks_of_a_stamp_go_on() {
        let clock = GatewayClock::default();
        let stamps: Vec<Stamp> = (0..1000).map(|_| clock.now().stamp).collect();
        assert!(stamps.is_sorted_by_key(|s| s.host_ms) && stamps.is_sorted_by_key(|s| s.wall_ms));
        assert!(stamps[0].wall_ms > 0 && stamps[0].host_ms > 0);
        let ahead = GatewayClock::ahead(5_000_000);
        assert!(!ahead.refused(70));
        let set = ahead.now().stamp.host_ms;
        assert!((70..5_000).contains(&set), "by ordered time, also where that is behind");
        let ahead = GatewayClock::ahead(5_000_000).now().stamp;
        assert!(
            ahead.host_ms >= stamps[0].host_ms + 5_000_000 && ahead.wall_ms >= stamps[0].wall_ms
        );
    }

    #[test]
    fn a_report_is_the_wall_clock_as_it_is_also_when_stamps_go_on_from_a_later_time() {
        let clock = GatewayClock::default();
        let an_hour_ahead = SteadyClock { wall_us: wall_us() + HOUR_US, host_us: host_us() };
        lock(&clock.state).steady = an_hour_ahead;
        let read = clock.now();
        assert!(read.stamp.wall_ms >= read.wall_us / 1000 + 3_500_000, "stamps do not go back");
        let report = read.as_it_is();
        assert_eq!((report.wall_ms, report.host_ms), (read.wall_us / 1000, read.stamp.host_ms));
    }

    #[test]
    fn a_clock_is_wrong_when_it_is_refused_again_and_not_when_ordered_time_stood_still() {
        let begun = || {
            let steady = SteadyClock { wall_us: 0, host_us: 0 };
            ClockState { steady, ahead_ms: 7, own_ahead_ms: 7, trust: ClockTrust::Own }
        };
        // A cluster was down from 500 s to 900 s: its time comes to that of its hosts when it is up.
        let (mut state, second_us) = (begun(), 1_000_000);
        assert!(!state.refused(500_000, 900 * second_us));
        assert_eq!(state.ahead_ms, 400_000_u64.wrapping_neg());
        assert!(!state.refused(520_000, 902 * second_us), "of the same doubt");
        state.try_again(914 * second_us);
        assert_eq!(state.ahead_ms, 382_000_u64.wrapping_neg(), "by ordered time as yet");
        state.try_again(916 * second_us);
        let retried = |accepted| ClockTrust::Retried(916 * second_us, accepted);
        assert_eq!((state.ahead_ms, state.trust), (7, retried(false)));
        state.accepted(930 * second_us);
        assert_eq!(state.trust, retried(false), "that may have been stamped before");
        state.accepted(940 * second_us);
        state.try_again(977 * second_us);
        assert_eq!((state.ahead_ms, state.trust), (7, ClockTrust::Own));
        assert!(!state.refused(1_000_000, 2000 * second_us), "so in each such doubt");

        // A stamp by ordered time is refused as too old once that has reached the host's own: late,
        // too.
        let mut state = begun();
        assert!(!state.refused(500_000, 2000 * second_us));
        assert!(!state.refused(2_001_000, 2002 * second_us));
        assert_eq!((state.ahead_ms, state.trust), (7, ClockTrust::Doubted(2002 * second_us)));
        assert!(
            !state.refused(501_000, 2003 * second_us),
            "another shard's time still does not advance"
        );
        assert!(!state.refused(2_004_000, 2004 * second_us), "and has come to it, too");
        assert_eq!((state.ahead_ms, state.trust), (7, ClockTrust::Doubted(2004 * second_us)));

        // One that is wrong is found out also when nothing is sent for long in between.
        let mut state = begun();
        assert!(!state.refused(500_000, 900 * second_us));
        state.try_again(916 * second_us);
        state.try_again(990 * second_us);
        assert!(state.refused(590_000, 990 * second_us));

        // A host's clock that is wrong is refused again, and stays replaced.
        let mut state = begun();
        assert!(!state.refused(500_000, 900 * second_us));
        state.try_again(916 * second_us);
        assert!(state.refused(516_000, 916 * second_us));
        for later in [932, 1000, 1515] {
            state.try_again(later * second_us);
            assert_eq!(state.ahead_ms, 400_000_u64.wrapping_neg());
        }
        state.try_again(1517 * second_us);
        assert_eq!(state.ahead_ms, 7, "it may have been set right");
        assert!(state.refused(1_117_000, 1517 * second_us));
    }
}
