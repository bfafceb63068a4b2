//! The distributed log beside BookKeeper, in turns [MRP 8.3.3].

use super::bookkeeper::{self, BookKeeper};
use crate::bench::appends::DurableLog;
use crate::bench::scratch_dir::ScratchDir;
use crate::bench::{HostMachine, Spread};
use amcast_core::Entry;
use amcast_protocols::multiring;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The plan of the measurement.
#[derive(Clone, Debug)]
pub struct LogPlan {
    /// In which directory logs are kept: on a disk, or what is measured is no sync.
    pub data: PathBuf,
    /// How somebody chooses another one: give --flag.
    pub choose: &'static str,
    /// Shards of our cluster, which has three nodes.
    pub shards: usize,
    /// Whether BookKeeper is measured as well.
    pub rival: bool,
    /// Clients, each with one append on the way; a row for each number.
    pub clients: Vec<usize>,
    /// Bytes of a value.
    pub payload: usize,
    /// How often each row is measured.
    pub rounds: usize,
    /// Time before each measurement.
    pub warm_up: Duration,
    /// Time of each measurement.
    pub duration: Duration,
}

/// Before the first row, with the most clients, on each side: Java is slow until it has run a while.
const FIRST_WARM_UP: Duration = Duration::from_secs(5);

/// The results of one side in one row, round by round.
#[derive(Default)]
struct LogSide {
    per_second: Vec<f64>,
    mean_ns: Vec<f64>,
    p50_ns: Vec<f64>,
    p99_ns: Vec<f64>,
}

impl LogSide {
    fn add(&mut self, per_second: f64, [mean, p50, p99]: [f64; 3]) {
        self.per_second.push(per_second);
        self.mean_ns.push(mean);
        self.p50_ns.push(p50);
        self.p99_ns.push(p99);
    }

    fn json(&self) -> Value {
        let of = |figures: &[f64]| Spread::of(figures.iter().copied());
        json!({
            "per_second": of(&self.per_second),
            "mean_ns": of(&self.mean_ns),
            "p50_ns": of(&self.p50_ns),
            "p99_ns": of(&self.p99_ns),
        })
    }
}

/// Both, as far as there are two.
struct LogSides {
    ours: DurableLog,
    theirs: Option<BookKeeper>,
    warm_up: Duration,
    duration: Duration,
}

impl LogSides {
    fn measure_ours(&mut self, clients: usize, side: &mut LogSide) -> Result<(), String> {
        let point = self.ours.measure(clients, self.warm_up, self.duration)?;
        let l = point.latency_ns;
        side.add(point.per_second, [l.mean, l.p50 as f64, l.p99 as f64]);
        Ok(())
    }

    fn measure_theirs(&mut self, clients: usize, side: &mut LogSide) -> Result<(), String> {
        let Some(theirs) = &mut self.theirs else { return Ok(()) };
        let seen = theirs.measure(clients, self.warm_up, self.duration)?;
        let per_second = seen.appends as f64 / self.duration.as_secs_f64();
        side.add(per_second, [seen.mean_ns, seen.p50_ns, seen.p99_ns]);
        Ok(())
    }
}

/// Measures synchronous appends by each number of clients; `tell` hears each row's turn.
///
/// # Errors
/// With what did not start, or did not answer.
pub fn run(plan: &LogPlan, tell: &mut dyn FnMut(String)) -> Result<Value, String> {
    let machine = HostMachine::here();
    let (base, choose) = (&plan.data, plan.choose);
    let disk = ScratchDir::under(base, "log", choose)?.warn_if_in_memory(choose);
    let ours = DurableLog::start(&disk.path().join("cluster"), plan.shards, plan.payload)?;
    let theirs = if plan.rival {
        Some(BookKeeper::start(plan.payload, ScratchDir::under(base, "bookkeeper", choose)?)?)
    } else {
        None
    };
    let mut sides = LogSides { ours, theirs, warm_up: plan.warm_up, duration: plan.duration };
    let most = plan.clients.iter().max().copied().unwrap_or(1);
    tell("warming up".to_string());
    sides.ours.measure(most, FIRST_WARM_UP, Duration::ZERO)?;
    if let Some(theirs) = &mut sides.theirs {
        theirs.measure(most, FIRST_WARM_UP, Duration::ZERO)?;
    }
    let mut rows: Vec<(usize, LogSide, LogSide)> =
        plan.clients.iter().map(|&n| (n, LogSide::default(), LogSide::default())).collect();
    for round in 0..plan.rounds {
        for (clients, we, they) in &mut rows {
            tell(format!("round {} of {}: {clients} clients", round + 1, plan.rounds));
            // The sides take turns in going first, too.
            if round % 2 == 0 {
                sides.measure_ours(*clients, we)?;
                sides.measure_theirs(*clients, they)?;
            } else {
                sides.measure_theirs(*clients, they)?;
                sides.measure_ours(*clients, we)?;
            }
        }
    }
    let row = |(clients, we, they): &(usize, LogSide, LogSide)| {
        let mut row = json!({ "clients": clients, "amcast": we.json() });
        if plan.rival {
            let ratio = |a: &[f64], b: &[f64]| Spread::of(a.iter().zip(b).map(|(a, b)| a / b));
            row["rival"] = they.json();
            row["throughput_ratio"] = json!(ratio(&we.per_second, &they.per_second));
            row["latency_ratio"] = json!(ratio(&we.p50_ns, &they.p50_ns));
        }
        row
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    Ok(json!({
        "bench": "log",
        "machine": machine,
        "protocol": multiring::SYNCED.name(),
        "shards": plan.shards,
        "replicas": 3,
        "payload_bytes": plan.payload,
        "rival": plan.rival.then_some(bookkeeper::SETTING),
        "duration_s": plan.duration.as_secs_f64(),
        "rounds": plan.rounds,
        "rows": rows,
    }))
}
