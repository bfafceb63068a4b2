//! YCSB's core workloads A to F, drawn by one generator for every store that is compared: ours, Redis
//! and etcd, each in turns, in one run.
//!
//! A record is one value of 1000 bytes, ten fields of 100: an update writes all of them, since not every
//! store has fields. Clients are closed loops, or issue so many operations a second and count latency
//! from when one was due; all of them run in one thread. `draw.rs` has the definitions, `store.rs` speaks
//! with stores, `stores.rs` starts them.

mod draw;
mod load;
mod store;
mod stores;

pub use draw::YcsbWorkload;
pub use stores::StoreKind;

use super::stop::check_stop;
use super::{HostMachine, Latency, Spread};
use load::{LoadedRecords, YcsbResult};
use serde_json::{Map, Value, json};
use std::time::Duration;
use stores::RunningStore;

/// The plan of the measurement.
#[derive(Clone, Debug)]
pub struct YcsbPlan {
    /// The workloads.
    pub workloads: Vec<YcsbWorkload>,
    /// The stores.
    pub kinds: Vec<StoreKind>,
    /// Whether a store that is not installed is an error.
    pub must_have_all: bool,
    /// Records that each store is filled with.
    pub records: u64,
    /// Clients, each with a connection of its own.
    pub clients: usize,
    /// Operations a second of each client; none: as fast as answers come.
    pub rate: Option<u64>,
    /// Shards and replicas of ours.
    pub shape: (usize, usize),
    /// How often each row is measured.
    pub rounds: usize,
    /// Time before each measurement.
    pub warm_up: Duration,
    /// Time of each measurement.
    pub duration: Duration,
}

/// A store, and what came out of each workload, round by round.
struct YcsbSide {
    running: RunningStore,
    loaded: LoadedRecords,
    /// By workload.
    rounds: Vec<Vec<YcsbResult>>,
    /// Why it cannot scan, if it cannot.
    scans_not: Option<String>,
}

/// Fills all stores, and measures the workloads; `tell` hears what is done.
///
/// # Errors
/// With what did not start, or did not answer.
pub fn run(plan: &YcsbPlan, tell: &mut dyn FnMut(String)) -> Result<Value, String> {
    let machine = HostMachine::here();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let (mut sides, mut absent) = (Vec::new(), Vec::new());
    for &kind in &plan.kinds {
        tell(format!("{} starts", kind.name()));
        match RunningStore::start(kind, plan.shape)? {
            Ok(running) => {
                tell(format!("{} is filled with {} records", kind.name(), plan.records));
                let loaded = runtime.block_on(load::fill(&running, plan.records, plan.clients))?;
                let scans_not = runtime.block_on(load::scans_not(&running));
                let rounds = vec![Vec::new(); plan.workloads.len()];
                sides.push(YcsbSide { running, loaded, rounds, scans_not });
            }
            Err(why) if plan.must_have_all => return Err(why),
            Err(why) => {
                eprintln!("amcast: {} is not measured: {why}", kind.name());
                absent.push(json!({ "store": kind.name(), "why": why }));
            }
        }
    }
    for round in 0..plan.rounds {
        for (nth, workload) in plan.workloads.iter().enumerate() {
            // The stores take turns in going first, too.
            for turn in 0..sides.len() {
                check_stop()?;
                let count = sides.len();
                let side = &mut sides[(turn + round) % count];
                if workload.scans() && side.scans_not.is_some() {
                    continue;
                }
                let store = side.running.kind.name();
                tell(format!("round {} of {}: {} {store}", round + 1, plan.rounds, workload.name));
                let measured = load::measure(&side.running, &mut side.loaded, workload, plan);
                side.rounds[nth].push(runtime.block_on(measured)?);
            }
        }
    }
    Ok(report(plan, &machine, &sides, absent))
}

fn report(plan: &YcsbPlan, machine: &HostMachine, sides: &[YcsbSide], absent: Vec<Value>) -> Value {
    let rows = plan.workloads.iter().enumerate().flat_map(|(nth, workload)| {
        sides.iter().map(move |side| row(workload, nth, side, &sides[0]))
    });
    let stores = sides.iter().map(|side| {
        json!({
            "store": side.running.kind.name(),
            "what": side.running.kind.about(),
            "fill_per_second": side.loaded.per_second,
        })
    });
    json!({
        "bench": "ycsb",
        "machine": machine,
        "records": plan.records,
        "record_bytes": draw::RECORD_BYTES,
        "clients": plan.clients,
        "rate_of_each_client": plan.rate,
        "shards": plan.shape.0,
        "replicas": plan.shape.1,
        "rounds": plan.rounds,
        "warm_up_s": plan.warm_up.as_secs_f64(),
        "duration_s": plan.duration.as_secs_f64(),
        "stores": stores.collect::<Vec<_>>(),
        "absent": absent,
        "rows": rows.collect::<Vec<_>>(),
    })
}

/// One workload on one store. `first` is what ratios are taken of: ours, unless it was not asked for.
fn row(workload: &YcsbWorkload, nth: usize, side: &YcsbSide, first: &YcsbSide) -> Value {
    let rounds = &side.rounds[nth];
    let mut ops = Map::new();
    for op in rounds.iter().flat_map(|done| done.latencies.keys()) {
        if ops.contains_key(op.name()) {
            continue;
        }
        let each = || rounds.iter().filter_map(|done| done.latencies.get(op));
        let of = |q: f64| Spread::of(each().map(|h| h.value_at_quantile(q) as f64));
        let last = each().next_back().map(Latency::of);
        ops.insert(
            op.name().to_string(),
            json!({ "p50_ns": of(0.5), "p95_ns": of(0.95), "p99_ns": of(0.99), "last_round_ns": last }),
        );
    }
    let pairs = first.rounds[nth].iter().zip(rounds);
    let ratio = Spread::of(pairs.map(|(a, b)| a.per_second / b.per_second));
    json!({
        "workload": workload.name.to_string(),
        "store": side.running.kind.name(),
        "per_second": Spread::of(rounds.iter().map(|done| done.per_second)),
        "ratio_of_the_first_store": ratio,
        "ops": ops,
        "errors": rounds.iter().map(|done| done.errors).sum::<u64>(),
        "missing": rounds.iter().map(|done| done.missing).sum::<u64>(),
        "left_out": side.scans_not.as_ref().filter(|_| workload.scans()),
    })
}
