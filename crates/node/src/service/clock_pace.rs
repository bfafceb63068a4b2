//! When a node has its clock reported in its shards, and when it holds commands back until the reports came.
//!
//! Ordered time follows the reports of a majority ([`Executor::bound_time`]). A shard that ordered nothing for a while has
//! none: its time is behind by as much when it orders again. A key that is written then would end early, by that much, as
//! soon as the reports come. So a node hands in no command of a shard whose ordered time is far behind its own clock before its
//! own report and those of others have been ordered, and reports at once.
//!
//! ```text
//!            far behind                     own report is recent
//!  Current ─────────────▶ Behind { None } ◀─────────────────────▶ Behind { Some(since) }
//!     ▲                                     own report is old              │ PATIENCE passes: the others' clocks differ
//!     └── not far behind any more, from every state ── Disputed ◀──────────┘
//! ```

use amcast_core::{ClusterShape, Gid, GroupSet, Span, Time};
use amcast_smr::{AHEAD_MAX_MS, ClockReport, Executor, ShardedMachine, Stamp};

/// How often a node has its clock reported in each shard.
const REPORT_EVERY: Span = Span::secs(2);

/// The same as long as a majority has not reported, when nobody is served, and the shortest time between two reports.
const REPORT_FIRST: Span = Span::millis(100);

/// How often ordered time is compared with the clock.
const COMPARE_EVERY: Span = Span::millis(20);

/// A node's own report is recent for so long: a few of them were due since.
const RECENT_MS: u64 = 6_000;

/// From a node's own report on how long those of the others may take to be ordered. If they take longer, their clocks differ from
/// this one: nothing is gained by waiting for them.
const PATIENCE: Span = Span::secs(5);

/// How a shard's ordered time compares with the node's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeLag {
    /// A stamp of this clock counts in full.
    Current,
    /// Ordered time is so far behind that a stamp of this clock would be refused. Since when the node's own report is recent, if
    /// it is.
    Behind { since: Option<Time> },
    /// It is behind, although this node's reports are ordered: other clocks differ from this one.
    Disputed,
}

impl TimeLag {
    /// The state that follows: `is_behind` says how ordered time is now, and `is_recent` whether this node's own report is.
    fn next(self, now: Time, is_behind: bool, is_recent: bool) -> Self {
        match self {
            _ if !is_behind => Self::Current,
            _ if !is_recent => Self::Behind { since: None },
            Self::Current | Self::Behind { since: None } => Self::Behind { since: Some(now) },
            Self::Behind { since: Some(since) } if now.since(since) >= PATIENCE => Self::Disputed,
            same => same,
        }
    }
}

/// One shard of the node.
#[derive(Clone, Copy, Debug)]
struct ShardClock {
    /// When the clock was reported last, and what it said.
    reported: Option<(Time, Stamp)>,
    lag: TimeLag,
}

/// When a node reports its clock, and of which shards it holds commands back.
pub struct ClockPace {
    cluster: ClusterShape,
    rank: usize,
    shards: Vec<ShardClock>,
    compared: Option<Time>,
}

impl ClockPace {
    /// That of the node of this rank.
    pub fn new(cluster: ClusterShape, rank: usize) -> Self {
        let shard = ShardClock { reported: None, lag: TimeLag::Current };
        Self { cluster, rank, shards: vec![shard; cluster.groups()], compared: None }
    }

    /// This node's report in `shard`, if one is due; `clock` reads its clock.
    pub fn report<M: ShardedMachine>(
        &mut self,
        now: Time,
        shard: Gid,
        executor: &Executor<M>,
        clock: impl FnOnce() -> Stamp,
    ) -> Option<ClockReport> {
        let own = executor.clock_report(shard, self.cluster.replica(shard, self.rank));
        let ShardClock { reported, lag } = &mut self.shards[shard.index()];
        if let Some((at, said)) = *reported {
            // One that is under way is not repeated soon: a shard that orders nothing is to gather few of them.
            let is_ordered = own.is_some_and(|own| own.wall_ms >= said.wall_ms);
            let is_urgent = matches!(lag, TimeLag::Behind { .. }) && is_ordered;
            let pause =
                if is_urgent || !executor.knows_time() { REPORT_FIRST } else { REPORT_EVERY };
            if now.since(at) < pause {
                return None;
            }
        }
        let said = clock();
        *reported = Some((now, said));
        Some(ClockReport(said))
    }

    /// The shards whose commands are not to be handed in yet; `clock` reads this node's clock.
    pub fn held<M: ShardedMachine>(
        &mut self,
        now: Time,
        executor: &Executor<M>,
        clock: impl FnOnce() -> Stamp,
    ) -> GroupSet {
        if !executor.bounds_time() {
            return GroupSet::EMPTY;
        }
        if self.compared.is_none_or(|at| now.since(at) >= COMPARE_EVERY) {
            self.compared = Some(now);
            let wall_ms = clock().wall_ms;
            for (g, shard) in (0..).map(Gid).zip(&mut self.shards) {
                let own = executor.clock_report(g, self.cluster.replica(g, self.rank));
                let is_recent = own.is_some_and(|own| own.wall_ms + RECENT_MS >= wall_ms);
                let is_behind = executor.now_ms(g).saturating_add(AHEAD_MAX_MS) < wall_ms;
                shard.lag = shard.lag.next(now, is_behind, is_recent);
            }
        }
        let is_held = |shard: &ShardClock| matches!(shard.lag, TimeLag::Behind { .. });
        (0..).map(Gid).zip(&self.shards).filter(|(_, s)| is_held(s)).map(|(g, _)| g).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::MsgId;
    use amcast_kv::{HashSeed, Kv, Partitions};
    use amcast_smr::Limits;
    use std::sync::Arc;

    const SHARD: Gid = Gid(0);

    /// One of three nodes, whose reports and whose commands are ordered as a test has it.
    struct OneNode {
        pace: ClockPace,
        executor: Executor<Kv>,
        position: u64,
    }

    impl OneNode {
        fn new() -> Self {
            let store = Kv::over(Arc::new(Partitions::by_slot(1)), HashSeed::Fixed(1));
            let mut executor = Executor::new(store, 1, Limits::default());
            executor.bound_time(3);
            let cluster = ClusterShape::new(1, 3, 0).expect("a cluster");
            Self { pace: ClockPace::new(cluster, 0), executor, position: 0 }
        }

        /// The report of the node of this rank is ordered, when its clock says so many seconds.
        fn hears(&mut self, rank: usize, secs: u64) {
            self.position += 1;
            let sender = self.pace.cluster.replica(SHARD, rank);
            let id = MsgId { sender, seq: self.position };
            let report = ClockReport(clock(secs)).encode();
            let dst = GroupSet::one(SHARD);
            self.executor
                .deliver(SHARD, self.position, id, dst, &report, &mut |_| {})
                .expect("it has room");
        }

        /// Whether commands are held when the node's clock says so many seconds; time passes with it.
        fn holds(&mut self, secs: u64) -> bool {
            let held = self.pace.held(at(secs), &self.executor, || clock(secs));
            held.contains(SHARD)
        }

        fn reports(&mut self, secs: u64) -> bool {
            self.pace.report(at(secs), SHARD, &self.executor, || clock(secs)).is_some()
        }
    }

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::secs(secs)
    }

    fn clock(secs: u64) -> Stamp {
        Stamp { wall_ms: 1_000_000 + secs * 1000, host_ms: secs * 1000 }
    }

    /// A cluster that works, at this second.
    fn working(secs: u64) -> OneNode {
        let mut node = OneNode::new();
        (0..3).for_each(|rank| node.hears(rank, secs));
        assert!(!node.holds(secs) && node.executor.knows_time());
        node
    }

    #[test]
    fn commands_are_held_after_a_stall_until_a_majority_has_reported() {
        let mut node = working(100);
        assert!(!node.holds(109), "as far behind as stamps may be ahead");
        assert!(node.holds(140), "nothing was ordered for 40 s");
        node.hears(0, 140);
        assert!(node.holds(141), "the others' clocks may be right as well");
        node.hears(1, 141);
        assert!(!node.holds(142), "a majority has reported");
    }

    #[test]
    fn a_node_whose_clock_differs_from_the_others_hands_in_commands_after_a_while() {
        let mut node = working(100);
        // Only this node's clock is set ahead, by an hour.
        for secs in 3700..3705 {
            node.hears(0, secs);
            node.hears(1, secs - 3600);
            node.hears(2, secs - 3600);
            assert!(node.holds(secs), "{secs}");
        }
        node.hears(0, 3705);
        assert!(!node.holds(3705));
        assert!(!node.holds(3710), "its report is recent");
        assert!(node.holds(3730), "nothing was ordered since: the next stall");
    }

    #[test]
    fn a_report_is_due_at_once_where_time_is_far_behind_and_is_not_repeated_while_it_is_under_way()
    {
        let mut node = working(100);
        assert!(node.reports(100) && !node.reports(101) && node.reports(102));
        node.hears(0, 102);
        assert!(node.holds(140) && node.reports(140), "the last one was long ago");
        assert!(!node.reports(141), "it is under way");
        node.hears(0, 140);
        assert!(node.holds(141) && node.reports(141), "it was ordered, and time is behind still");
    }
}
