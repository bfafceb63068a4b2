//! Rings in the simulator: processes with ports and processors of a given speed, in one place or in
//! regions that are far apart.

use super::MEMBERS;
use crate::bench::{Latency, histogram};
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, Config, Entry, Gid, GroupSet, MsgId, Pid, RawConfig, Span, Time};
use amcast_sim::network::FarRegions;
use amcast_sim::{CarrierModel, CastPace, Choices, PlannedCast, RunOutcome, RunPlan, RunRecord};
use serde::Serialize;
use std::collections::BTreeMap;

/// The setup of a run.
#[derive(Clone, Debug)]
pub struct SimulatedRings {
    /// Rings that have a load.
    pub rings: usize,
    /// Parameters of the protocol.
    pub set: Vec<(String, String)>,
    /// From one process to another of the same place.
    pub latency: Span,
    /// Picoseconds that a byte occupies a port.
    pub port_ps_per_byte: u64,
    /// How long a process is busy with one input.
    pub step: Span,
    /// Where places are far apart.
    pub far: FarRegions,
    /// Bytes of each payload.
    pub payload: usize,
    /// Messages that each process has on the way.
    pub outstanding: u32,
    /// Messages of each process.
    pub messages: usize,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct SimulatedRingResult {
    /// Rings that have a load.
    pub rings: usize,
    /// Messages ordered each second, of all rings.
    pub per_second: f64,
    /// Of each ring.
    pub per_ring: Vec<f64>,
    /// By ring: from the multicast to the delivery at its sender.
    pub latency_ns: Vec<Latency>,
    /// Of the first ring: nanoseconds, and which part of the messages took no longer.
    pub cdf: Vec<(u64, f64)>,
    /// Messages.
    pub messages: u64,
}

/// Senders begin so far apart at most.
const APART: Span = Span::micros(500);

fn config(entry: &dyn Entry, world: &SimulatedRings) -> Result<Config, String> {
    let raw = RawConfig {
        groups: world.rings,
        replicas: MEMBERS,
        clients: 0,
        set: world.set.iter().cloned().collect(),
        ..RawConfig::default()
    };
    raw.check(entry.about().params).map_err(|e| e.to_string())
}

fn plan(world: &SimulatedRings, cluster: &ClusterShape) -> RunPlan {
    let mut model = CarrierModel::constant(Span::micros(2), world.latency);
    model.network.port_ps_per_byte = world.port_ps_per_byte;
    model.network.far = world.far;
    model.step = world.step;
    let mut rng = Rng::new(world.rings as u64);
    let mut casts = Vec::new();
    for sender in cluster.pids() {
        let at = Time(rng.below(APART.0));
        let dst = cluster.group_of(sender).map_or(GroupSet::EMPTY, GroupSet::one);
        let cast = PlannedCast { at, sender, dst, bytes: world.payload };
        casts.extend(std::iter::repeat_n(cast, world.messages));
    }
    casts.sort_by_key(|cast| cast.at);
    RunPlan {
        model,
        casts,
        pace: CastPace::Closed(world.outstanding),
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm: Time::ZERO + Span::millis(1),
        service: false,
        drift_ppm: vec![0; cluster.processes()],
        settle: Span::secs(3600),
        quiet: Span::secs(1),
        events_max: 4_000_000_000,
    }
}

/// The observations of a ring's own senders.
struct SenderLatencies {
    latencies: hdrhistogram::Histogram<u64>,
    /// Deliveries at their senders, by time.
    times: Vec<Time>,
}

/// Runs it.
///
/// # Errors
/// When the configuration is incomplete, or the run did not settle.
pub fn run(entry: &dyn Entry, world: &SimulatedRings) -> Result<SimulatedRingResult, String> {
    let config = config(entry, world)?;
    let cluster = *config.cluster();
    let recorded = RunRecord { plan: plan(world, &cluster), choices: Choices::default() };
    let mut open: BTreeMap<MsgId, Time> = BTreeMap::new();
    let mut seen: Vec<SenderLatencies> = (0..world.rings)
        .map(|_| SenderLatencies { latencies: histogram(), times: Vec::new() })
        .collect();
    let group = |p: Pid| cluster.group_of(p).map_or(0, Gid::index);
    let report = amcast_sim::replay(entry, &config, &recorded, &mut |event| match *event {
        TraceEvent::Cast { t, m, .. } => _ = open.insert(m, t),
        TraceEvent::Deliver { t, p, m } if p == m.sender => {
            if let Some(cast) = open.remove(&m) {
                seen[group(p)].latencies.saturating_record(t.since(cast).0);
                seen[group(p)].times.push(t);
            }
        }
        _ => {}
    });
    let report = report.map_err(|e| e.to_string())?;
    if report.outcome != RunOutcome::Settled || !open.is_empty() {
        return Err(format!("{} rings: the run did not settle", world.rings));
    }
    let per_ring: Vec<f64> = seen.iter().map(|seen| rate(&seen.times)).collect();
    let points = (1..=100).map(|n| f64::from(n) / 100.0);
    Ok(SimulatedRingResult {
        rings: world.rings,
        per_second: per_ring.iter().sum(),
        per_ring,
        latency_ns: seen.iter().map(|seen| Latency::of(&seen.latencies)).collect(),
        cdf: points.map(|part| (seen[0].latencies.value_at_quantile(part), part)).collect(),
        messages: report.casts,
    })
}

/// How many a second, without the first and the last tenth of them: rings start and end one after the
/// other.
fn rate(times: &[Time]) -> f64 {
    let (from, to) = (times.len() / 10, times.len() * 9 / 10);
    let (Some(first), Some(last)) = (times.get(from), times.get(to)) else { return f64::NAN };
    (to - from) as f64 * 1e9 / last.since(*first).0.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_middle() {
        let mut times: Vec<Time> = (0..100).map(|n| Time(n * 1_000_000)).collect();
        times[0] = Time::ZERO;
        times[99] = Time(1 << 40);
        assert!((rate(&times) - 1000.0).abs() < 1.0, "{}", rate(&times));
        assert!(rate(&[]).is_nan());
    }

    #[test]
    fn two_rings_order_twice_as_much_as_one() {
        let entry = amcast_protocols::catalog::find("multi-ring-memory").unwrap();
        let run = |rings| {
            let world = SimulatedRings {
                rings,
                set: vec![("rings".to_string(), "independent".to_string())],
                latency: Span::micros(60),
                port_ps_per_byte: 8_000,
                step: Span::micros(2),
                far: FarRegions::NONE,
                payload: 1024,
                outstanding: 16,
                messages: 200,
            };
            run(entry, &world).unwrap()
        };
        let (one, two) = (run(1), run(2));
        assert_eq!((one.messages, two.messages), (600, 1200));
        let ratio = two.per_second / one.per_second;
        assert!((1.6..2.4).contains(&ratio), "{ratio}");
    }
}
