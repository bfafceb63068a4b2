//! How fast a node does what nobody waits for as much as for commands: giving its state to another node, and
//! writing it to its own disk.
//!
//! The loop that orders commands takes the state out piece by piece, and what is taken goes to a disk or a
//! network that commands need as well. So a piece may be taken when two things hold:
//!
//! - On average no more bytes go out in a second than there may.
//! - After each piece the loop has had [`RESTS`] times as long for everything else as it took. The time by the
//!   clock counts: on a host that is busy with other things a piece takes longer, and the next one waits longer.
//!
//! Long transfers and checkpoints must end all the same: while a state is on its way others keep
//! the log from there on, and each start reads the log again. So both bounds give way by half after
//! each [`PATIENCE`].

use amcast_core::{Span, Time};

/// How many times as long as a piece took the loop has for other things.
const RESTS: u64 = 3;

/// After so long the bounds are half as strict, and again after as long.
const PATIENCE: Span = Span::secs(20);

/// How often they give way: what is left then bounds nothing.
const GIVES_WAY_MAX: u64 = 20;

/// The longest that one piece makes the next one wait: who waits for a state gives up after some seconds without
/// any of it, and a piece may be as long as the longest command.
const WAIT_MAX: Span = Span::secs(2);

/// Bytes that were not used are made up for later, as far as they are not older than this.
const CREDIT: Span = Span::millis(5);

/// When pieces of one state may be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bytes in a second, at first; none for any number.
    per_second: Option<u64>,
    begun: Time,
    /// When there are bytes for another piece.
    due: Time,
    /// Until when the loop does other things.
    rests: Time,
}

impl Pace {
    /// At most so many bytes in a second; none for any number.
    pub(crate) const fn new(per_second: Option<u64>) -> Self {
        Self { per_second, begun: Time::ZERO, due: Time::ZERO, rests: Time::ZERO }
    }

    /// Another state is begun.
    pub(crate) const fn begin(&mut self, now: Time) {
        (self.begun, self.due, self.rests) = (now, now, now);
    }

    /// How many times the bounds were halved.
    fn gave_way(&self, now: Time) -> u64 {
        (now.since(self.begun).0 / PATIENCE.0).min(GIVES_WAY_MAX)
    }

    /// Whether a piece may be taken now.
    pub(crate) fn may(&self, now: Time) -> bool {
        self.per_second.is_none() || now >= self.due && now >= self.rests
    }

    /// A piece of so many bytes was taken between these moments.
    pub(crate) fn took(&mut self, bytes: usize, from: Time, to: Time) {
        let Some(per_second) = self.per_second else { return };
        let gave_way = self.gave_way(to);
        let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(per_second.max(1));
        let least = Time(to.0.saturating_sub(CREDIT.0));
        let nanos = u64::try_from(nanos >> gave_way).unwrap_or(u64::MAX);
        let latest = to + WAIT_MAX;
        self.due = Time(self.due.max(least).0.saturating_add(nanos)).min(latest);
        let rests = Span(to.since(from).0.saturating_mul(RESTS) >> gave_way);
        self.rests = (to + rests).min(latest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 64 << 10;

    /// Takes pieces that each take so long, whenever that may be, asked after each `step`, for so long; how many
    /// bytes were taken, and for how long the loop did nothing else.
    fn run(pace: &mut Pace, took: Span, step: Span, whole: Span) -> (u64, Span) {
        let (mut now, mut bytes, mut busy) = (Time(1_000), 0, Span(0));
        let end = now + whole;
        pace.begin(now);
        while now < end {
            if pace.may(now) {
                pace.took(PIECE, now, now + took);
                (bytes, busy, now) = (bytes + PIECE as u64, busy + took, now + took);
            } else {
                now += step;
            }
        }
        (bytes, busy)
    }

    #[test]
    fn no_more_bytes_go_out_in_a_second_than_may() {
        let _limit = amcast_test_policy::time_limit();
        for per_second in [1_000_000, 10_000_000, 50_000_000] {
            for step in [Span::micros(3), Span::millis(1)] {
                let mut pace = Pace::new(Some(per_second));
                let (bytes, _) = run(&mut pace, Span::micros(50), step, Span::secs(10));
                let most = per_second * 10 + per_second / 100 + 2 * PIECE as u64;
                assert!(bytes <= most && bytes > per_second * 9, "{per_second}: {bytes}");
            }
        }
    }

    #[test]
    fn a_loop_for_which_a_piece_takes_long_has_most_of_its_time_for_other_things() {
        let _limit = amcast_test_policy::time_limit();
        let mut pace = Pace::new(Some(1_000_000_000));
        let (took, whole) = (Span::millis(2), Span::secs(10));
        let (bytes, busy) = run(&mut pace, took, Span::micros(10), whole);
        assert!(busy.0 <= whole.0 / 4 + took.0, "{busy:?}");
        assert!(bytes > 70 << 20, "{bytes}");
    }

    #[test]
    fn what_takes_long_comes_to_an_end_because_the_bounds_give_way() {
        let _limit = amcast_test_policy::time_limit();
        let in_time = |whole| {
            let mut pace = Pace::new(Some(10_000_000));
            run(&mut pace, Span::micros(50), Span::millis(1), whole).0 / 1_000_000
        };
        let after = [20, 40, 60].map(|s| in_time(Span::secs(s)));
        assert!(after[0] <= 202 && after[1] <= 604 && after[2] <= 1406, "{after:?}");
        assert!(after[1] > 550 && after[2] > 1200, "{after:?}");
        let mut slow = Pace::new(Some(1_000_000));
        assert!(run(&mut slow, Span::micros(50), Span::millis(1), Span::secs(400)).0 > 4 << 30);
    }

    #[test]
    fn bytes_that_were_not_used_are_not_made_up_for_all_at_once() {
        let _limit = amcast_test_policy::time_limit();
        let mut pace = Pace::new(Some(10_000_000));
        pace.begin(Time(1));
        let later = Time(1) + Span::secs(15);
        let mut taken = 0;
        while pace.may(later) {
            pace.took(PIECE, later, later);
            taken += PIECE;
        }
        assert!(taken <= 2 * PIECE, "{taken}");
    }

    #[test]
    fn who_waits_for_a_state_hears_of_it_however_slow_it_comes() {
        let _limit = amcast_test_policy::time_limit();
        let mut pace = Pace::new(Some(1_000_000));
        pace.begin(Time(1));
        let ended = Time(1) + Span::secs(9);
        pace.took(128 << 20, Time(1), ended);
        assert!(!pace.may(ended + Span::secs(1)) && pace.may(ended + Span::secs(2)));
    }

    #[test]
    fn without_a_bound_a_piece_may_be_taken_at_any_time() {
        let _limit = amcast_test_policy::time_limit();
        let mut pace = Pace::new(None);
        pace.begin(Time(5));
        pace.took(PIECE, Time(5), Time(5) + Span::secs(1));
        assert!(pace.may(Time(6)));
    }
}
