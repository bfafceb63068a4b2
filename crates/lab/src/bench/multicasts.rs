//! Multicasts of clients in the simulator, under a model of the machines: latency and throughput of any plan.

use super::delivered::{DeliveryDigest, destination_sets};
use super::{BenchPlan, BenchResult, Latency, destinations, histogram, judge};
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, Config, Entry, GroupSet, MsgId, Span, Time};
use amcast_sim::run::run_plan;
use amcast_sim::{CarrierModel, CastPace, PlannedCast, RunOutcome, RunPlan, Strike};
use std::collections::BTreeMap;

/// Clients begin after this time: by then each group has a leader.
pub(super) const BEGIN: Span = Span::millis(1);

/// Clients begin so far apart at most.
const APART: Span = Span::micros(20);

/// How long the run may take in simulated time.
const SETTLE: Span = Span::secs(600);

/// Of the multicasts the first tenth is not measured.
const WARM_UP: usize = 10;

/// A multicast that was delivered in all its destinations.
#[derive(Clone, Copy, Debug)]
pub(super) struct FinishedMulticast {
    pub(super) cast: Time,
    pub(super) end: Time,
}

/// The observations of a run.
pub(super) struct MulticastWatch {
    cluster: ClusterShape,
    /// Those on the way, and where each is delivered.
    open: BTreeMap<MsgId, (Time, GroupSet, GroupSet)>,
    dst_of: BTreeMap<MsgId, GroupSet>,
    all: Vec<DeliveryDigest>,
    /// In the order in which they ended.
    pub(super) finished: Vec<FinishedMulticast>,
}

impl MulticastWatch {
    pub(super) fn new(cluster: ClusterShape, messages: usize) -> Self {
        let most = DeliveryDigest::most(cluster.groups() * cluster.replicas()).min(messages);
        Self {
            cluster,
            open: BTreeMap::new(),
            dst_of: BTreeMap::new(),
            all: (0..cluster.processes()).map(|_| DeliveryDigest::new(most)).collect(),
            finished: Vec::with_capacity(messages),
        }
    }

    pub(super) fn event(&mut self, event: &TraceEvent<'_>) {
        match *event {
            TraceEvent::Cast { t, m, dst, .. } => {
                self.open.insert(m, (t, dst, GroupSet::EMPTY));
                self.dst_of.insert(m, dst);
            }
            TraceEvent::Deliver { t, p, m } => {
                let dst = self.dst_of.get(&m).copied().unwrap_or_default();
                self.all[p.index()].push(m, dst);
                let (Some(open), Some(group)) = (self.open.get_mut(&m), self.cluster.group_of(p))
                else {
                    return;
                };
                open.2 = open.2.with(group);
                if open.1.within(open.2) {
                    self.finished.push(FinishedMulticast { cast: open.0, end: t });
                    self.open.remove(&m);
                }
            }
            // It delivers again what it had delivered, and is judged no further.
            TraceEvent::Crash { p, .. } => self.all[p.index()].close(),
            _ => {}
        }
    }

    /// Judges the order of all that was delivered.
    ///
    /// # Errors
    /// With what is wrong.
    pub(super) fn judge(&self) -> Result<Vec<&'static str>, String> {
        judge(&self.cluster, &self.all)
    }
}

/// The machines of a simulated run, and its length.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedWorld {
    /// How machines and what is between them behave.
    pub model: CarrierModel,
    /// Multicasts of all clients together.
    pub messages: usize,
    /// The seed of destinations, and of the times at which clients begin.
    pub seed: u64,
}

/// The run of a plan: each client keeps its window full until all of so many multicasts are sent. The seed draws the
/// destinations and the times at which clients begin.
pub(super) fn run_of(
    config: &Config,
    plan: &BenchPlan,
    world: &SimulatedWorld,
    strikes: Vec<Strike>,
) -> RunPlan {
    let SimulatedWorld { model, messages, seed } = *world;
    let cluster = config.cluster();
    let clients = cluster.clients().max(1);
    let mut casts = Vec::with_capacity(messages);
    for client in 0..clients {
        let mut rng = Rng::stream(seed << 32 | client as u64, "destinations");
        let at = Time::ZERO + BEGIN + Span(rng.below(APART.0));
        let mine = messages / clients + usize::from(client < messages % clients);
        for _ in 0..mine {
            let dst = destinations(config.overlay(), &mut rng, &plan.load);
            casts.push(PlannedCast {
                at,
                sender: cluster.client(client),
                dst,
                bytes: plan.load.payload,
            });
        }
    }
    casts.sort_by_key(|cast| cast.at);
    let last = strikes.iter().filter_map(|strike| match strike.at {
        amcast_sim::FaultTime::Time(at) => Some(at),
        amcast_sim::FaultTime::Event(_) => None,
    });
    RunPlan {
        model,
        casts,
        pace: CastPace::Closed(plan.load.outstanding.max(1) as u32),
        barriers: Vec::new(),
        calm: last.fold(Time::ZERO + BEGIN, Time::max) + Span::millis(1),
        strikes,
        service: false,
        drift_ppm: vec![0; cluster.processes()],
        settle: SETTLE,
        quiet: Span::millis(1),
        events_max: 4_000_000_000,
    }
}

/// Measures `messages` multicasts of a plan under a model, in simulated time. Latency is from the multicast to the first
/// delivery in the last destination group.
///
/// # Errors
/// When the configuration is incomplete, or the run fails, or the order is wrong.
pub fn run(
    entry: &dyn Entry,
    plan: &BenchPlan,
    world: &SimulatedWorld,
) -> Result<BenchResult, String> {
    let config = plan.config(entry).map_err(|e| e.to_string())?;
    let mut watch = MulticastWatch::new(*config.cluster(), world.messages);
    let whole = run_of(&config, plan, world, Vec::new());
    let sink = &mut |event: &TraceEvent<'_>| watch.event(event);
    let report = run_plan(entry, &config, whole, world.seed, sink).map_err(|e| e.to_string())?;
    if report.outcome != RunOutcome::Settled {
        return Err(format!("{}: the run did not settle: {:?}", plan.protocol, report.outcome));
    }
    let holds = watch.judge()?;
    let finished = &watch.finished[watch.finished.len() / WARM_UP..];
    let mut latencies = histogram();
    finished.iter().for_each(|m| latencies.saturating_record(m.end.since(m.cast).0));
    // At the end some clients are finished before the others.
    let middle = &finished[..finished.len() * 9 / 10];
    let (Some(first), Some(last)) = (middle.first(), middle.last()) else {
        return Err("too few multicasts to measure".to_string());
    };
    let span = last.end.since(first.end).0.max(1) as f64 / 1e9;
    Ok(BenchResult {
        multicasts: latencies.len(),
        per_second: (middle.len() - 1) as f64 / span,
        latency_ns: Latency::of(&latencies),
        deliveries: watch.all.iter().map(DeliveryDigest::count).sum(),
        deliveries_judged: watch.all.iter().map(|kept| kept.first().len() as u64).sum(),
        destination_sets: destination_sets(&watch.all),
        holds,
        early: None,
        nodes: Vec::new(),
    })
}
