//! How long things take.

use crate::chooser::{Chooser, Concern};
use amcast_core::Span;

/// A distribution of lengths of time. The ordinary choice is always the shortest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delay {
    /// Always the same.
    Constant(Span),
    /// Anything from the first to the second, both included.
    Uniform(Span, Span),
    /// Mostly near `least`, now and then far longer: `least` and a Pareto share of `scale` on top
    /// (half of the draws add less than `scale`, one in a hundred more than 99 of it).
    HeavyTail {
        /// The shortest.
        least: Span,
        /// The bound below which half of the draws stay, beyond `least`.
        scale: Span,
        /// The longest.
        most: Span,
    },
}

/// Grains of chance in one heavy-tailed draw: the tail reaches this many times the scale.
const GRAINS: u64 = 1 << 20;

impl Delay {
    /// No time at all.
    pub const NONE: Self = Self::Constant(Span::ZERO);

    /// One draw.
    pub fn draw(self, chooser: &mut Chooser, concern: Concern) -> Span {
        match self {
            Self::Constant(span) => span,
            Self::Uniform(least, most) => {
                let width = (most - least).0.saturating_add(1);
                least + Span(chooser.spread(concern, width))
            }
            Self::HeavyTail { least, scale, most } => {
                let left = GRAINS - chooser.spread(concern, GRAINS);
                let beyond = u128::from(scale.0) * u128::from(GRAINS - left) / u128::from(left);
                let beyond = u64::try_from(beyond).unwrap_or(u64::MAX);
                (least + Span(beyond)).min(most)
            }
        }
    }

    /// The same, where no draw takes longer than this.
    pub(crate) fn within(self, limit: Span) -> Self {
        match self {
            Self::Constant(span) => Self::Constant(span.min(limit)),
            Self::Uniform(least, most) => Self::Uniform(least.min(limit), most.min(limit)),
            Self::HeavyTail { least, scale, most } => {
                Self::HeavyTail { least: least.min(limit), scale, most: most.min(limit) }
            }
        }
    }

    /// The longest that a draw can give.
    pub const fn most(self) -> Span {
        match self {
            Self::Constant(most) | Self::Uniform(_, most) | Self::HeavyTail { most, .. } => most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_within_their_bounds_and_the_tail_is_heavy() {
        let mut chooser = Chooser::seeded(1);
        let mut draws = |delay: Delay| -> alloc::vec::Vec<u64> {
            (0..2000).map(|_| delay.draw(&mut chooser, Concern::Network).0).collect()
        };
        let even = draws(Delay::Uniform(Span(10), Span(20)));
        assert!(even.iter().all(|n| (10..=20).contains(n)));
        assert!(even.contains(&10) && even.contains(&20));
        let tail = draws(Delay::HeavyTail { least: Span(5), scale: Span(10), most: Span(900) });
        assert!(tail.iter().all(|n| (5..=900).contains(n)));
        let short = tail.iter().filter(|&&n| n <= 15).count();
        assert!((800..1200).contains(&short), "{short} of 2000 below the median");
        assert!(tail.iter().any(|&n| n > 500));
    }
}
