//! Warnings that anyone outside can provoke, told at most once in a while.

use crate::kv::client::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often the same warning is told.
const EVERY: Duration = Duration::from_secs(1);

/// Lets a kind of warning through now and then, and counts those that it holds back.
#[derive(Default, Debug)]
pub(crate) struct Seldom(Mutex<State>);

#[derive(Default, Debug)]
struct State {
    last: Option<Instant>,
    held_back: u64,
}

impl Seldom {
    /// Tells a warning, or counts it.
    pub(crate) fn warn(&self, text: impl FnOnce() -> String) {
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
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            state.held_back += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_warnings_is_told_once_a_second_with_its_number() {
        let (seldom, start) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.turn(start), Some(0));
        for n in 0..1000 {
            assert_eq!(seldom.turn(start + Duration::from_micros(n)), None);
        }
        assert_eq!(seldom.turn(start + EVERY), Some(1000));
        assert_eq!(seldom.turn(start + EVERY + EVERY), Some(0));
    }
}
