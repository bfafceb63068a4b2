//! Measurements: protocols on shared memory and in the simulator, and the key-value service beside
//! a rival.
//!
//! A run warms up, runs for a stated time, and afterwards judges the order of all that was
//! delivered. Latency is from the multicast (or, at a given rate, from when it was due, so that a
//! stall counts for all that it held up) to the first delivery in the last destination group, as
//! the client sees it.

mod ack_counters;
pub mod appends;
pub mod broadcasts;
pub mod bursts;
mod child_process;
mod client;
mod delivered;
mod early;
mod free_ports;
pub mod infiniband;
pub mod lan;
pub mod leader_changes;
mod machine;
pub mod message_groups;
mod multicasts;
mod nodes;
mod part;
mod plan;
pub mod recovery;
pub mod remote_writes;
mod report;
pub mod rings;
pub mod rivals;
mod scratch_dir;
pub mod service;
mod shared;
mod simulated;
mod stop;
mod task;
pub mod votes;
pub mod wire;
pub mod workload_ranking;
pub mod ycsb;

pub use machine::{HostMachine, line_one_way_ns};
pub use multicasts::{SimulatedWorld, run as run_multicasts};
pub use plan::{BenchLoad, BenchPlan, DestinationChoice};
pub use report::{ReportRow, Spread, report};
pub use shared::{child as run_part, clear_left_over, run as run_shared};
pub use simulated::{run as run_simulated, run_of as run_simulated_of};
pub use stop::{STOPPED, heed_signals};

use amcast_check::{History, PropertyVerdict, check};
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, Gid, GroupSet, Overlay, Property, Time};
use delivered::{DeliveryDigest, destination_sets};
pub use early::EarlyCounts;
use hdrhistogram::Histogram;
use serde::Serialize;

/// The result, latencies in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct BenchResult {
    /// Multicasts finished while measuring.
    pub multicasts: u64,
    /// Of these, each second.
    pub per_second: f64,
    /// Latencies.
    pub latency_ns: Latency,
    /// Deliveries of all replicas.
    pub deliveries: u64,
    /// Of these, the first ones of each replica, judged one by one; the rest by a digest of the
    /// order, which the replicas of a group must agree on.
    pub deliveries_judged: u64,
    /// How many multicasts went to each set of groups, of those that were judged one by one.
    #[serde(skip)]
    pub destination_sets: Vec<(GroupSet, u64)>,
    /// Properties that were judged and hold.
    pub holds: Vec<&'static str>,
    /// The early deliveries, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early: Option<EarlyCounts>,
    /// The resources that each node used meanwhile, where nodes are processes on a network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<wire::NodeUsage>,
}

impl BenchResult {
    /// Judges the deliveries of all processes, and gives them with these latencies as a result of `plan`.
    ///
    /// # Errors
    /// When the order is wrong.
    fn judged(
        cluster: &ClusterShape,
        plan: &BenchPlan,
        all: &[DeliveryDigest],
        latencies: &Histogram<u64>,
    ) -> Result<Self, String> {
        Ok(Self {
            multicasts: latencies.len(),
            per_second: latencies.len() as f64 / plan.load.duration_s,
            latency_ns: Latency::of(latencies),
            deliveries: all.iter().map(DeliveryDigest::count).sum(),
            deliveries_judged: all.iter().map(|kept| kept.first().len() as u64).sum(),
            destination_sets: destination_sets(all),
            holds: judge(cluster, all)?,
            early: None,
            nodes: Vec::new(),
        })
    }
}

/// Percentiles of a latency, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    /// The smallest.
    pub min: u64,
    /// Half are below.
    pub p50: u64,
    /// 90 % are below.
    pub p90: u64,
    /// 99 % are below.
    pub p99: u64,
    /// 99.9 % are below.
    pub p999: u64,
    /// The largest.
    pub max: u64,
    /// The mean.
    pub mean: f64,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |q| histogram.value_at_quantile(q);
        Self {
            min: histogram.min(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max(),
            mean: histogram.mean(),
        }
    }
}

/// Latencies up to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in range")
}

/// Draws the destinations of a multicast.
fn destinations(overlay: &Overlay, rng: &mut Rng, load: &BenchLoad) -> GroupSet {
    let all = GroupSet::first(overlay.groups());
    let mut chosen = GroupSet::EMPTY;
    for _ in 0..load.destinations {
        let from = match load.choice {
            DestinationChoice::Neighbouring if !chosen.is_empty() => {
                chosen.iter().map(|g| beside(overlay, g)).fold(GroupSet::EMPTY, GroupSet::or)
            }
            _ => all,
        };
        let free = GroupSet(from.0 & !chosen.0);
        let nth = rng.below(free.len() as u64) as usize;
        chosen = chosen.with(free.iter().nth(nth).expect("below their number"));
    }
    chosen
}

/// The groups beside `g` in the tree.
fn beside(overlay: &Overlay, g: Gid) -> GroupSet {
    overlay.parent(g).map_or(GroupSet::EMPTY, GroupSet::one).or(overlay.children(g))
}

/// Judges what every replica delivered: integrity and order.
///
/// # Errors
/// With what is wrong.
fn judge(cluster: &ClusterShape, all: &[DeliveryDigest]) -> Result<Vec<&'static str>, String> {
    const JUDGED: [Property; 3] =
        [Property::UniformIntegrity, Property::UniformPrefixOrder, Property::UniformAcyclicOrder];
    let mut history = History::new();
    let mut push = |event: TraceEvent<'_>| {
        history.push_event(&event, cluster).map_err(|e| format!("the history makes no sense: {e}"))
    };
    for p in cluster.pids() {
        let groups = cluster.group_of(p).map_or(GroupSet::EMPTY, GroupSet::one);
        push(TraceEvent::Process { p, groups })?;
    }
    let mut cast: Vec<_> = all.iter().flat_map(DeliveryDigest::first).copied().collect();
    cast.sort_unstable();
    cast.dedup();
    for (m, dst) in cast {
        push(TraceEvent::Cast { t: Time::ZERO, p: m.sender, m, dst })?;
    }
    for (p, delivered) in cluster.pids().zip(all) {
        for &(m, _) in delivered.first() {
            push(TraceEvent::Deliver { t: Time(1), p, m })?;
        }
    }
    let report = check(&history, &JUDGED);
    for (property, verdict) in &report.findings {
        if let PropertyVerdict::Violated(why) = verdict {
            return Err(format!("{property} does not hold: {why}"));
        }
    }
    for group in cluster.all_groups().iter() {
        let members: Vec<_> = cluster.members(group).map(|p| (p, &all[p.index()])).collect();
        for pair in members.windows(2) {
            let [(p, one), (q, other)] = [pair[0], pair[1]];
            if !one.agrees(other) {
                return Err(format!("{p:?} and {q:?} delivered in different orders"));
            }
        }
    }
    Ok(JUDGED.iter().map(|p| p.name()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::MsgId;

    fn kept(order: &[(MsgId, GroupSet)]) -> DeliveryDigest {
        let mut kept = DeliveryDigest::new(order.len());
        order.iter().for_each(|&(m, dst)| kept.push(m, dst));
        kept
    }

    #[test]
    fn a_wrong_order_is_found() {
        let cluster = ClusterShape::new(2, 1, 1).unwrap();
        let both = GroupSet::first(2);
        let m = |seq| (MsgId { sender: cluster.client(0), seq }, both);
        assert!(judge(&cluster, &[kept(&[m(1), m(2)]), kept(&[m(1), m(2)])]).is_ok());
        let why = judge(&cluster, &[kept(&[m(1), m(2)]), kept(&[m(2), m(1)])]).unwrap_err();
        assert!(why.contains("does not hold"), "{why}");
    }

    #[test]
    fn destinations_are_as_many_as_asked_and_neighbours_hang_together() {
        let overlay = Overlay::base(8);
        let mut rng = Rng::new(1);
        for count in 1..=8 {
            for choice in [DestinationChoice::Uniform, DestinationChoice::Neighbouring] {
                let load = BenchLoad {
                    destinations: count,
                    choice,
                    payload: 0,
                    outstanding: 1,
                    rate: None,
                    warm_up_s: 0.0,
                    duration_s: 1.0,
                    threads: 1,
                    pin: false,
                    processes: false,
                    senders: 0,
                    early: false,
                    hosts: false,
                    rdma_provider: None,
                };
                for _ in 0..100 {
                    let dst = destinations(&overlay, &mut rng, &load);
                    assert_eq!(dst.len(), count);
                    let inner = dst
                        .iter()
                        .filter(|&g| overlay.parent(g).is_some_and(|parent| dst.contains(parent)));
                    let whole = inner.count() == count - 1;
                    assert!(whole || choice == DestinationChoice::Uniform, "{dst:?}");
                }
            }
        }
    }
}
