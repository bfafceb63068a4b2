//! Warnings that any client can provoke: logged at most once in a while, and more and more seldom
//! while they continue, so that they do not fill a log.

use amcast_kv::client::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The interval of the same warning: at first, and when it has continued for long. The first one
/// applies again after as long without a warning.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Lets a kind of warning through now and then, and counts those that it holds back.
#[derive(Default, Debug)]
pub struct RateLimitedLog(Mutex<RateState>);

#[derive(Default, Debug)]
struct RateState {
    /// The time of the last warning, and the pause before the next one.
    last: Option<(Instant, Duration)>,
    held_back: u64,
}

impl RateLimitedLog {
    /// Tells a warning, or counts it.
    pub fn warn(&self, text: impl FnOnce() -> String) {
        if let Some(held_back) = self.turn(Instant::now()) {
            match held_back {
                0 => tracing::warn!("{}", text()),
                n => tracing::warn!("{} (and {n} more like this)", text()),
            }
        }
    }

    /// Whether it is time again, and how many were held back since the last.
    fn turn(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.0);
        let mut every = EVERY.0;
        if let Some((last, pause)) = state.last {
            let since = now.saturating_duration_since(last);
            if since < pause {
                state.held_back += 1;
                return None;
            }
            // It continues if one came soon after the pause.
            if since < pause * 2 {
                every = (pause * 2).min(EVERY.1);
            }
        }
        state.last = Some((now, every));
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_warnings_is_told_more_and_more_seldom_with_its_number() {
        let (seldom, start) = (RateLimitedLog::default(), Instant::now());
        let told: Vec<(u64, u64)> = (0..36_000)
            .filter_map(|n| Some((n / 10, seldom.turn(start + Duration::from_millis(n * 100))?)))
            .collect();
        assert_eq!(told[..4], [(0, 0), (1, 9), (3, 19), (7, 39)]);
        assert!((15..25).contains(&told.len()), "{} in an hour", told.len());
        assert_eq!(told.iter().map(|(_, held_back)| held_back + 1).sum::<u64>() / 3000, 11);
        let later = start + Duration::from_secs(10_000);
        assert!(seldom.turn(later).is_some());
        assert_eq!(seldom.turn(later + EVERY.0), Some(0), "as at first");
    }
}
