//! How long things took, counted in buckets with fixed bounds.
//!
//! All histograms of the program have the same bounds, so that they can be added up and compared.

/// Decades between the shortest and the longest bound.
const DECADES: usize = 7;

/// The bounds of a decade, in tenths of its first one.
const STEPS: [u64; 9] = [10, 15, 20, 25, 30, 40, 50, 60, 80];

/// How many bounds there are.
pub const BOUNDS: usize = DECADES * STEPS.len() + 1;

/// How many buckets there are: one up to each bound, and one for all that took longer.
pub const BUCKETS: usize = BOUNDS + 1;

/// The upper bounds of the buckets in nanoseconds, inclusive: from 1 µs to 10 s.
pub const BOUNDS_NS: [u64; BOUNDS] = bounds();

const fn bounds() -> [u64; BOUNDS] {
    let mut all = [0; BOUNDS];
    let mut i = 0;
    let mut tenth = 100;
    while i < BOUNDS {
        all[i] = tenth * STEPS[i % STEPS.len()];
        i += 1;
        if i % STEPS.len() == 0 {
            tenth *= 10;
        }
    }
    all
}

/// The bucket of a duration of so many nanoseconds.
pub fn bucket(ns: u64) -> usize {
    BOUNDS_NS.partition_point(|&bound| bound < ns)
}

/// Durations, counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    /// How many there were in each bucket.
    pub buckets: [u64; BUCKETS],
    /// How long all of them took together, in nanoseconds.
    pub sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum_ns: 0 }
    }
}

impl Histogram {
    /// Counts one that took so many nanoseconds.
    pub fn observe(&mut self, ns: u64) {
        self.buckets[bucket(ns)] += 1;
        self.sum_ns += ns;
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds those of another one.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(all, more)| *all += more);
        self.sum_ns += other.sum_ns;
    }

    /// Subtracts the counts of `earlier`, which leaves those of the time since.
    pub fn subtract(&mut self, earlier: &Self) {
        let buckets = self.buckets.iter_mut().zip(&earlier.buckets);
        buckets.for_each(|(all, less)| *all = all.saturating_sub(*less));
        self.sum_ns = self.sum_ns.saturating_sub(earlier.sum_ns);
    }

    /// The bound in nanoseconds below or at which so many of a thousand are; 0 if none was counted. A longer time
    /// than the longest bound counts as that.
    pub fn permille(&self, permille: u64) -> u64 {
        let count = self.count();
        let wanted = u128::from(count) * u128::from(permille);
        let mut seen = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += n;
            if count > 0 && u128::from(seen) * 1000 >= wanted && seen > 0 {
                return BOUNDS_NS[bucket.min(BOUNDS - 1)];
            }
        }
        0
    }

    /// The bounds at 1, 2.5 and 5 of each decade from 10 µs on, in nanoseconds, each with how many took as long
    /// or less.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut seen = 0;
        let all = BOUNDS_NS.iter().zip(&self.buckets).enumerate();
        all.filter_map(move |(i, (bound, n))| {
            seen += n;
            let is_shown = i >= STEPS.len() && matches!(STEPS[i % STEPS.len()], 10 | 25 | 50);
            is_shown.then_some((*bound, seen))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn bounds_grow_from_a_microsecond_to_ten_seconds() {
        assert_eq!((BOUNDS_NS[0], BOUNDS_NS[1], BOUNDS_NS[9]), (1000, 1500, 10_000));
        assert_eq!(BOUNDS_NS[BOUNDS - 1], 10_000_000_000);
        assert!(BOUNDS_NS.windows(2).all(|two| two[0] < two[1]));
    }

    #[test]
    fn each_duration_is_in_the_bucket_of_the_first_bound_that_it_does_not_exceed() {
        let cases = [(0, 0), (1000, 0), (1001, 1), (10_000, 9), (10_000_000_000, BOUNDS - 1)];
        for (ns, wanted) in cases {
            assert_eq!(bucket(ns), wanted, "{ns} ns");
        }
        assert_eq!(bucket(u64::MAX), BOUNDS);
    }

    #[test]
    fn shares_are_the_bounds_below_which_so_many_are() {
        let mut all = Histogram::default();
        assert_eq!(all.permille(500), 0);
        (0..98).for_each(|_| all.observe(900_000));
        all.observe(3_000_000);
        all.observe(60_000_000_000);
        assert_eq!(all.permille(500), 1_000_000);
        assert_eq!(all.permille(990), 3_000_000);
        assert_eq!(all.permille(999), 10_000_000_000);
        let mut twice = all.clone();
        twice.add(&all);
        assert_eq!((twice.count(), twice.permille(990)), (200, 3_000_000));
        twice.subtract(&all);
        assert_eq!(twice, all);
    }

    #[test]
    fn bounds_that_are_shown_count_all_below_them() {
        let mut all = Histogram::default();
        for ns in [1, 10_000, 10_001, 2_500_000, 11_000_000_000] {
            all.observe(ns);
        }
        let shown: Vec<_> = all.cumulative().collect();
        assert_eq!(shown.len(), 19);
        assert_eq!(shown[..2], [(10_000, 2), (25_000, 3)]);
        assert_eq!(shown.last(), Some(&(10_000_000_000, 4)));
        assert!(shown.contains(&(1_000_000, 3)) && shown.contains(&(2_500_000, 4)));
    }
}
