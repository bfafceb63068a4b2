//! Changes of the leaders of all groups at once, under load [TRAM 8.7, table 1]: how long the messages that they delay take,
//! how long a group is without a delivery, and how much of that passes before a dead leader is suspected.

mod shared;
mod simulated;

pub use shared::run as run_shared;
pub use simulated::run as run_simulated;

use super::BenchPlan;
use super::multicasts::FinishedMulticast;
use amcast_core::{Pid, Span, Time};
use serde::Serialize;

/// Messages before a change whose latencies are kept.
const BEFORE_MAX: usize = 500;

/// Why leaders change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeCause {
    /// An oracle names another leader for each group, at one time: the leaders before are suspected, and live.
    Suspicion,
    /// The leader of each group stops, at one time, and the others find that out.
    Death,
}

/// How leaders change.
#[derive(Clone, Debug)]
pub struct LeaderChangeLoad {
    /// The groups, and the clients: each has one message on the way.
    pub plan: BenchPlan,
    /// Why.
    pub cause: ChangeCause,
    /// How often, one after the other.
    pub changes: usize,
    /// The time before the first change, and from one to the next.
    pub apart: Span,
}

/// Times of one kind, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct TimeSummary {
    /// How many.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Half are below.
    pub median: u64,
    /// Their standard deviation.
    pub deviation: f64,
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

impl TimeSummary {
    /// Of any number of times.
    pub fn of(times: &[u64]) -> Self {
        let count = times.len();
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let mean = times.iter().sum::<u64>() as f64 / count.max(1) as f64;
        let squares = times.iter().map(|&t| (t as f64 - mean).powi(2)).sum::<f64>();
        Self {
            count,
            mean,
            median: sorted.get(count.saturating_sub(1) / 2).copied().unwrap_or(0),
            deviation: (squares / count.saturating_sub(1).max(1) as f64).sqrt(),
            min: sorted.first().copied().unwrap_or(0),
            max: sorted.last().copied().unwrap_or(0),
        }
    }
}

/// The times of one change of all leaders, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LeaderChange {
    /// Latencies of the messages that it delayed: on the way when it began, or multicast before every group had a delivery
    /// by its new leader, and delivered everywhere only after the first of those.
    pub delayed_ns: Vec<u64>,
    /// Latencies of messages that ended before it, the last ones.
    pub before_ns: Vec<u64>,
    /// From a leader's death until another replica of its group tries to lead, by group; none without a death, or where that
    /// is not seen.
    pub detection_ns: Vec<u64>,
    /// From the beginning until another replica leads, by group.
    pub leading_ns: Vec<u64>,
    /// From the suspicion (or that attempt) to the first delivery by the new leader, by group.
    pub takeover_ns: Vec<u64>,
    /// From the beginning to that delivery, by group.
    pub whole_ns: Vec<u64>,
}

/// The times of a group in a change.
#[derive(Clone, Copy, Debug, Default)]
struct GroupTimes {
    /// The largest epoch of any replica when the change began.
    epoch: u64,
    /// When a replica is in a larger one.
    tries: Option<Time>,
    /// The new leader, from when on it leads.
    leads: Option<(Time, Pid)>,
    delivers: Option<Time>,
}

/// A change on its way.
#[derive(Clone, Debug)]
struct ChangeTimes {
    begun: Time,
    groups: Vec<GroupTimes>,
}

impl ChangeTimes {
    fn new(begun: Time, groups: usize) -> Self {
        Self { begun, groups: vec![GroupTimes::default(); groups] }
    }

    /// A replica is in this epoch when the change begins.
    fn epoch_before(&mut self, group: usize, epoch: u64) {
        let times = &mut self.groups[group];
        times.epoch = times.epoch.max(epoch);
    }

    /// A replica is in this epoch: a larger one than before says that someone tries to lead.
    fn sees_epoch(&mut self, now: Time, group: usize, epoch: u64) {
        let times = &mut self.groups[group];
        if epoch > times.epoch {
            times.tries.get_or_insert(now);
        }
    }

    /// A replica leads its group from now on.
    fn leads(&mut self, now: Time, group: usize, p: Pid) {
        self.groups[group].leads.get_or_insert((now, p));
    }

    /// A replica delivers.
    fn delivers(&mut self, now: Time, group: usize, p: Pid) {
        let times = &mut self.groups[group];
        if times.leads.is_some_and(|(_, leader)| leader == p) {
            times.delivers.get_or_insert(now);
        }
    }

    /// Whether every group has had a delivery by its new leader.
    fn is_over(&self) -> bool {
        self.groups.iter().all(|times| times.delivers.is_some())
    }

    /// Whether a multicast of that time that has not ended was on the way in the change, which is over.
    fn has_delayed(&self, cast: Time) -> bool {
        self.groups.iter().filter_map(|times| times.delivers).max().is_some_and(|last| cast <= last)
    }

    /// The account, with what the clients saw.
    ///
    /// # Errors
    /// When a group has had no delivery by a new leader.
    fn account(
        &self,
        cause: ChangeCause,
        finished: &[FinishedMulticast],
    ) -> Result<LeaderChange, String> {
        let delivers = self.groups.iter().map(|times| times.delivers);
        let delivers: Option<Vec<Time>> = delivers.collect();
        let delivers = delivers.ok_or("a group has had no delivery by a new leader")?;
        let (first, last) = (delivers.iter().min().copied(), delivers.iter().max().copied());
        let (Some(first), Some(last)) = (first, last) else { return Err("no groups".to_string()) };
        let delayed = |m: &&FinishedMulticast| m.cast <= last && m.end >= first;
        let tries = |times: &GroupTimes| match cause {
            ChangeCause::Suspicion => self.begun,
            ChangeCause::Death => times.tries.unwrap_or(self.begun),
        };
        let begins = self.groups.iter().map(tries);
        let detection = self.groups.iter().filter_map(|times| times.tries);
        let before = finished.iter().filter(|m| m.end < self.begun).rev().take(BEFORE_MAX);
        Ok(LeaderChange {
            before_ns: before.map(|m| m.end.since(m.cast).0).collect(),
            delayed_ns: finished.iter().filter(delayed).map(|m| m.end.since(m.cast).0).collect(),
            detection_ns: match cause {
                ChangeCause::Suspicion => Vec::new(),
                ChangeCause::Death => detection.map(|at| at.since(self.begun).0).collect(),
            },
            leading_ns: self
                .groups
                .iter()
                .filter_map(|times| Some(times.leads?.0.since(self.begun).0))
                .collect(),
            takeover_ns: begins.zip(&delivers).map(|(from, to)| to.since(from).0).collect(),
            whole_ns: delivers.iter().map(|to| to.since(self.begun).0).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_tells_what_it_delayed_and_how_long_groups_took() {
        let mut change = ChangeTimes::new(Time(100), 2);
        change.delivers(Time(110), 0, Pid(1));
        change.leads(Time(120), 0, Pid(1));
        change.leads(Time(125), 1, Pid(4));
        change.delivers(Time(130), 0, Pid(1));
        change.delivers(Time(140), 1, Pid(5));
        assert!(!change.is_over(), "a follower's delivery tells nothing");
        change.delivers(Time(150), 1, Pid(4));
        assert!(change.is_over());
        assert!(change.has_delayed(Time(150)) && !change.has_delayed(Time(151)));
        let m = |cast, end| FinishedMulticast { cast: Time(cast), end: Time(end) };
        let finished = [m(50, 105), m(90, 160), m(140, 170), m(151, 180)];
        let account = change.account(ChangeCause::Suspicion, &finished).unwrap();
        assert_eq!((account.delayed_ns, account.takeover_ns), (vec![70, 30], vec![30, 50]));
        let summary = TimeSummary::of(&[10, 20, 30]);
        assert_eq!((summary.count, summary.min, summary.max), (3, 10, 30));
        assert!((summary.mean - 20.0).abs() < 1e-9 && (summary.deviation - 10.0).abs() < 1e-9);
    }
}
