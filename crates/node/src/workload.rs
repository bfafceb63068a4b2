//! The workload of a cluster: which sets of shards its multicasts go to, how often, and how large they are.
//!
//! Gateways count what they have ordered ([`WorkloadCounter`]), and the page `/workload` of a node gives the
//! counts as a file; `amcast bench --record` writes such a file, too, and `amcast choose --workload` reads them.

use amcast_core::{Gid, GroupSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Sets of destinations that a counter tells apart; multicasts to others are counted together. A power of 2.
const SETS_MAX: usize = 1024;

/// How many places are looked at for a set before it counts with the others.
const PROBES: usize = 16;

/// Groups of a cluster at most, as [`amcast_core::ClusterShape`] takes.
const GROUPS_MAX: usize = 64;

/// Counts multicasts by their destinations, from the first one on. Any thread may count: a multicast costs three additions,
/// and neither a lock nor an allocation.
pub struct WorkloadCounter {
    places: Box<[CountedSet]>,
    unlisted: AtomicU64,
    made: Instant,
    /// When the first one was counted, in nanoseconds since then and 1; 0 as long as there is none.
    begun: AtomicU64,
}

/// A set of destinations, its multicasts, and the bytes of their payloads. No multicast goes to the empty set: it
/// marks a free place.
#[derive(Default)]
struct CountedSet {
    set: AtomicU64,
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Default for WorkloadCounter {
    fn default() -> Self {
        let places = (0..SETS_MAX).map(|_| CountedSet::default()).collect();
        Self { places, unlisted: AtomicU64::new(0), made: Instant::now(), begun: AtomicU64::new(0) }
    }
}

impl WorkloadCounter {
    /// A multicast of so many bytes to `dst`.
    pub fn count(&self, dst: GroupSet, bytes: usize) {
        if self.begun.load(Ordering::Relaxed) == 0 {
            let since = self.made.elapsed().as_nanos() as u64 + 1;
            // Of two threads at a time either is right.
            let _ = self.begun.compare_exchange(0, since, Ordering::Relaxed, Ordering::Relaxed);
        }
        let hash = (dst.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        for probe in 0..PROBES {
            let place = &self.places[(hash + probe) % SETS_MAX];
            let found = match place.set.load(Ordering::Relaxed) {
                0 => {
                    let taken =
                        place.set.compare_exchange(0, dst.0, Ordering::Relaxed, Ordering::Relaxed);
                    taken.map_or_else(|found| found, |_| dst.0)
                }
                found => found,
            };
            if found == dst.0 {
                place.count.fetch_add(1, Ordering::Relaxed);
                place.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                return;
            }
        }
        self.unlisted.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins anew: for one that has counted what no client sent.
    pub fn clear(&self) {
        for place in &self.places {
            place.count.store(0, Ordering::Relaxed);
            place.bytes.store(0, Ordering::Relaxed);
        }
        self.unlisted.store(0, Ordering::Relaxed);
        self.begun.store(0, Ordering::Relaxed);
    }

    /// Since when it counts, in seconds; none before the first multicast.
    fn seconds(&self) -> Option<f64> {
        let since = self.begun.load(Ordering::Relaxed).checked_sub(1)?;
        Some((self.made.elapsed().as_nanos() as u64).saturating_sub(since).max(1) as f64 / 1e9)
    }

    /// The counts so far, in a cluster of so many groups.
    pub fn workload(&self, groups: usize) -> RecordedWorkload {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let counted = |place: &CountedSet| {
            let (set, count) = (GroupSet(load(&place.set)), load(&place.count));
            (count > 0).then(|| (set, count, load(&place.bytes)))
        };
        let counted: Vec<_> = self.places.iter().filter_map(counted).collect();
        let (count, bytes) = counted.iter().fold((0, 0), |(n, b), &(_, m, c)| (n + m, b + c));
        let mut sets: BTreeMap<GroupSet, u64> = BTreeMap::new();
        for (set, count, _) in counted {
            // Two threads that took a place at a time may have counted a set in two.
            *sets.entry(set).or_default() += count;
        }
        RecordedWorkload {
            groups,
            seconds: self.seconds(),
            payload_bytes: bytes.checked_div(count).unwrap_or(0),
            unlisted: load(&self.unlisted),
            sets: sets.into_iter().map(|(set, count)| DestinationCount::of(set, count)).collect(),
        }
    }
}

/// Which sets of groups multicasts go to, how often, and how large they are.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedWorkload {
    /// Groups of the cluster.
    pub groups: usize,
    /// How long it was counted, in seconds; without it the file says nothing about rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The mean payload, in bytes.
    pub payload_bytes: u64,
    /// Multicasts to sets that are not listed: there were too many sets.
    #[serde(default)]
    pub unlisted: u64,
    /// The sets, and how often each.
    #[serde(rename = "set")]
    pub sets: Vec<DestinationCount>,
}

/// How often multicasts went to one set of groups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationCount {
    /// The groups, by number.
    pub groups: Vec<u8>,
    /// Multicasts to exactly these.
    pub count: u64,
}

impl DestinationCount {
    /// So many multicasts to a set.
    pub fn of(set: GroupSet, count: u64) -> Self {
        Self { groups: set.iter().map(|g| g.0).collect(), count }
    }

    /// The groups as a set.
    fn set(&self) -> GroupSet {
        self.groups.iter().map(|g| Gid(*g)).collect()
    }
}

/// Why a file is no workload, or several are none together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkloadError {
    /// It cannot be read as one.
    Syntax(String),
    /// A cluster has 1 to 64 groups.
    Groups(usize),
    /// This set, counted from 1, is empty, names a group twice or one that there is not, or has a count of 0.
    Set(usize),
    /// Nothing was counted.
    Nothing,
    /// It was counted in no time, or in one that is no number.
    Seconds,
    /// The files are of clusters with different numbers of groups.
    Differ(usize, usize),
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(why) => write!(f, "not a workload: {why}"),
            Self::Groups(groups) => write!(f, "groups = {groups}: a cluster has 1 to {GROUPS_MAX}"),
            Self::Set(nth) => write!(
                f,
                "set {nth}: give each set at least one group of the cluster, each once, and a \
                 count of at least 1"
            ),
            Self::Nothing => f.write_str("no multicast was counted"),
            Self::Seconds => f.write_str("seconds must be a number above 0"),
            Self::Differ(one, other) => {
                write!(f, "one file is of {one} groups, another of {other}")
            }
        }
    }
}

impl std::error::Error for WorkloadError {}

impl RecordedWorkload {
    /// Reads such a file (TOML).
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let workload: Self =
            toml::from_str(text).map_err(|e| WorkloadError::Syntax(e.to_string()))?;
        workload.check()?;
        Ok(workload)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        if !(1..=GROUPS_MAX).contains(&self.groups) {
            return Err(WorkloadError::Groups(self.groups));
        }
        if self.seconds.is_some_and(|s| !(s.is_finite() && s > 0.0)) {
            return Err(WorkloadError::Seconds);
        }
        let sound = |of: &DestinationCount| {
            of.count > 0
                && !of.groups.is_empty()
                && of.groups.iter().all(|g| usize::from(*g) < self.groups)
                && of.set().len() == of.groups.len()
        };
        if let Some(nth) = self.sets.iter().position(|of| !sound(of)) {
            return Err(WorkloadError::Set(nth + 1));
        }
        if self.sets.is_empty() { Err(WorkloadError::Nothing) } else { Ok(()) }
    }

    /// The file. One in which nothing was counted is shown, and not read again.
    ///
    /// # Errors
    /// When it cannot be written as TOML.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// The counts of several nodes, made at the same time.
    ///
    /// # Errors
    /// When they are of different clusters, or there is none.
    pub fn merged(all: &[Self]) -> Result<Self, WorkloadError> {
        let first = all.first().ok_or(WorkloadError::Nothing)?;
        let mut sets: BTreeMap<GroupSet, u64> = BTreeMap::new();
        let (mut bytes, mut unlisted) = (0.0, 0_u64);
        for one in all {
            if one.groups != first.groups {
                return Err(WorkloadError::Differ(first.groups, one.groups));
            }
            for of in &one.sets {
                let count = sets.entry(of.set()).or_default();
                *count = count.saturating_add(of.count);
            }
            bytes += one.payload_bytes as f64 * one.total();
            unlisted = unlisted.saturating_add(one.unlisted);
        }
        let total: f64 = all.iter().map(Self::total).sum();
        // Nodes count side by side: the longest time is that of all.
        let seconds = all.iter().map(|one| one.seconds).reduce(|a, b| Some(a?.max(b?))).flatten();
        Ok(Self {
            groups: first.groups,
            seconds,
            payload_bytes: (bytes / total.max(1.0)).round() as u64,
            unlisted,
            sets: sets.into_iter().map(|(set, count)| DestinationCount::of(set, count)).collect(),
        })
    }

    /// Multicasts to listed sets.
    fn total(&self) -> f64 {
        self.sets.iter().map(|of| of.count as f64).sum()
    }

    /// Multicasts a second, if the file says how long they were counted.
    pub fn per_second(&self) -> Option<f64> {
        Some((self.total() + self.unlisted as f64) / self.seconds?)
    }

    /// The sets with their counts.
    pub fn weights(&self) -> Vec<(GroupSet, u64)> {
        self.sets.iter().map(|of| (of.set(), of.count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "groups = 4\nseconds = 2.0\npayload_bytes = 100\n\n[[set]]\ngroups = [0, 3]\n\
                        count = 30\n\n[[set]]\ngroups = [1]\ncount = 10\n";

    #[test]
    fn a_file_is_read_and_written_alike() {
        let _limit = amcast_test_policy::time_limit();
        let workload = RecordedWorkload::parse(TEXT).unwrap();
        assert_eq!(workload.per_second(), Some(20.0));
        assert_eq!(workload.weights(), [(GroupSet(0b1001), 30), (GroupSet(0b10), 10)]);
        assert_eq!(RecordedWorkload::parse(&workload.text().unwrap()), Ok(workload));
    }

    #[test]
    fn what_is_none_is_refused_with_the_reason() {
        let _limit = amcast_test_policy::time_limit();
        let with =
            |from: &str, to: &str| RecordedWorkload::parse(&TEXT.replace(from, to)).unwrap_err();
        assert_eq!(with("groups = 4", "groups = 65"), WorkloadError::Groups(65));
        assert_eq!(with("groups = 4", "groups = 3"), WorkloadError::Set(1));
        assert_eq!(with("[0, 3]", "[3, 3]"), WorkloadError::Set(1));
        assert_eq!(with("[1]", "[]"), WorkloadError::Set(2));
        assert_eq!(with("count = 10", "count = 0"), WorkloadError::Set(2));
        for seconds in ["0.0", "-1.0", "nan", "inf"] {
            assert_eq!(
                with("seconds = 2.0", &format!("seconds = {seconds}")),
                WorkloadError::Seconds
            );
        }
        let unknown = with("payload_bytes", "payload");
        assert!(
            matches!(&unknown, WorkloadError::Syntax(why) if why.contains("payload")),
            "{unknown}"
        );
        let nothing = RecordedWorkload::parse("groups = 1\npayload_bytes = 0\nset = []\n");
        assert_eq!(nothing, Err(WorkloadError::Nothing));
    }

    #[test]
    fn files_of_several_nodes_add_up() {
        let _limit = amcast_test_policy::time_limit();
        let one = RecordedWorkload::parse(TEXT).unwrap();
        let mut other = one.clone();
        (other.payload_bytes, other.seconds) = (300, Some(4.0));
        let both = RecordedWorkload::merged(&[one.clone(), other]).unwrap();
        assert_eq!((both.payload_bytes, both.seconds), (200, Some(4.0)));
        assert_eq!(both.weights(), [(GroupSet(0b10), 20), (GroupSet(0b1001), 60)]);
        let wide = RecordedWorkload { groups: 5, ..one.clone() };
        assert_eq!(RecordedWorkload::merged(&[one, wide]), Err(WorkloadError::Differ(4, 5)));
        assert_eq!(RecordedWorkload::merged(&[]), Err(WorkloadError::Nothing));
    }

    #[test]
    fn a_counter_tells_sets_apart_until_there_are_too_many() {
        let _limit = amcast_test_policy::time_limit();
        let counter = WorkloadCounter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..3000 {
                        counter.count(GroupSet(1 + i % 3), 10);
                    }
                });
            }
        });
        let workload = counter.workload(2);
        assert_eq!(
            (workload.total(), workload.payload_bytes, workload.unlisted),
            (12_000.0, 10, 0)
        );
        assert_eq!(workload.weights(), [1, 2, 3].map(|set| (GroupSet(set), 4000)));
        (1..=5000).for_each(|set| counter.count(GroupSet(set), 10));
        assert!(counter.seconds().is_some_and(|seconds| seconds > 0.0));
        let workload = counter.workload(13);
        assert!(workload.sets.len() <= SETS_MAX && workload.unlisted > 3000);
        assert_eq!(workload.total() + workload.unlisted as f64, 17_000.0);
        counter.clear();
        let none = counter.workload(2);
        assert_eq!((none.sets, none.unlisted, none.seconds), (vec![], 0, None));
        counter.count(GroupSet(3), 8);
        assert_eq!(counter.workload(2).weights(), [(GroupSet(3), 1)]);
    }
}
