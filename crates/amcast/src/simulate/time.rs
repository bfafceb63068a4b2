//! Simulated time of the service: short timeouts, which pass within short runs.

use amcast_core::{Span, Time};

/// How much simulated time counts as a millisecond of the service's.
pub(super) const MILLISECOND: Span = Span::micros(5);

/// Simulated time as the drivers' parts have it that wait for milliseconds.
pub(super) const fn stretched(now: Time) -> Time {
    Time(now.0 * (1_000_000 / MILLISECOND.0))
}
