//! Measurements in the simulator: what the protocol costs in delays, on any machine the same.

use super::delivered::{DeliveryDigest, destination_sets};
use super::early::EarlyWatch;
use super::{BenchLoad, BenchResult, Latency, histogram, judge};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, GroupSet, MsgId, Time};
use amcast_sim::{CarrierModel, CastPace, RunOutcome, RunSettings};
use std::collections::BTreeMap;

/// Measures `messages` multicasts of `entry` in simulated time. Messages multicast before the first
/// delivery waited for the cluster to start, and are omitted.
///
/// # Errors
/// When the configuration is incomplete, or the run fails.
pub fn run(
    entry: &dyn Entry,
    config: &Config,
    load: &BenchLoad,
    model: CarrierModel,
    messages: usize,
) -> Result<BenchResult, String> {
    let pace = CastPace::Closed(load.outstanding.max(1) as u32);
    let settings = RunSettings {
        messages,
        ..RunSettings::latency(model, pace, load.payload, load.destinations)
    };
    let measured = run_of(entry, config, &settings, 1)?;
    Ok(BenchResult { early: measured.early.filter(|_| load.early), ..measured })
}

/// As [`run`], with the multicasts and surroundings of `settings`, and chance by `seed`.
///
/// # Errors
/// As [`run`].
pub fn run_of(
    entry: &dyn Entry,
    config: &Config,
    settings: &RunSettings,
    seed: u64,
) -> Result<BenchResult, String> {
    let (cluster, messages) = (*config.cluster(), settings.messages);
    let mut open: BTreeMap<MsgId, (Time, GroupSet, GroupSet)> = BTreeMap::new();
    let mut dst_of: BTreeMap<MsgId, GroupSet> = BTreeMap::new();
    let mut all: Vec<DeliveryDigest> = vec![DeliveryDigest::default(); cluster.processes()];
    let most = DeliveryDigest::most(cluster.groups() * cluster.replicas());
    all.iter_mut().for_each(|kept| *kept = DeliveryDigest::new(most.min(messages)));
    let mut latencies = histogram();
    let mut watches = vec![EarlyWatch::default(); all.len()];
    let (mut started, mut last) = (None, Time::ZERO);
    let report = amcast_sim::run(entry, config, settings, seed, &mut |event| match *event {
        TraceEvent::Cast { t, m, dst, .. } => {
            open.insert(m, (t, dst, GroupSet::EMPTY));
            dst_of.insert(m, dst);
        }
        TraceEvent::Deliver { t, p, m } => {
            let dst = dst_of.get(&m).copied().unwrap_or_default();
            all[p.index()].push(m, dst);
            watches[p.index()].deliver(t, m, true);
            let (Some(entry), Some(group)) = (open.get_mut(&m), cluster.group_of(p)) else {
                return;
            };
            entry.2 = entry.2.with(group);
            if entry.1.within(entry.2) {
                let cast = entry.0;
                open.remove(&m);
                if *started.get_or_insert(t) <= cast {
                    latencies.saturating_record(t.since(cast).0);
                    last = last.max(t);
                }
            }
        }
        TraceEvent::Early { t, p, m } => watches[p.index()].early(t, m),
        _ => {}
    });
    let report = report.map_err(|e| e.to_string())?;
    if report.outcome != RunOutcome::Settled {
        return Err(format!("the run did not settle: {:?}", report.outcome));
    }
    let Some(started) = started.filter(|_| !latencies.is_empty()) else {
        return Err("too few multicasts: all were sent before the first was delivered; give more \
                    --messages"
            .to_string());
    };
    let holds = judge(&cluster, &all)?;
    Ok(BenchResult {
        multicasts: latencies.len(),
        per_second: latencies.len() as f64 / (last.since(started).0.max(1) as f64 / 1e9),
        latency_ns: Latency::of(&latencies),
        deliveries: all.iter().map(DeliveryDigest::count).sum(),
        deliveries_judged: all.iter().map(|kept| kept.first().len() as u64).sum(),
        destination_sets: destination_sets(&all),
        holds,
        early: Some(watches.iter().map(EarlyWatch::counts).sum()),
        nodes: Vec::new(),
    })
}
