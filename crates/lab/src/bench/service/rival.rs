//! The key-value service beside a single Redis server, in turns.

use super::children::{OwnCluster, RedisServer};
use super::load::{self, ConnectionWork, LoadOp};
use crate::bench::{HostMachine, Spread};
use serde_json::{Value, json};
use std::time::Duration;

/// The plan of the measurement.
#[derive(Clone, Debug)]
pub struct RivalPlan {
    /// Shards of our cluster.
    pub shards: usize,
    /// Replicas of each shard.
    pub replicas: usize,
    /// Parameters of its protocol.
    pub set: Vec<(String, String)>,
    /// The rival's program; none to measure ours alone.
    pub rival: Option<String>,
    /// Connections.
    pub clients: usize,
    /// Bytes of a value.
    pub payload: usize,
    /// How often each row is measured.
    pub rounds: usize,
    /// Time before each measurement.
    pub warm_up: Duration,
    /// Time of each measurement.
    pub duration: Duration,
}

/// The results of one side in one row, round by round.
#[derive(Default)]
struct StoreSide {
    per_second: Vec<f64>,
    p50_ns: Vec<f64>,
    p99_ns: Vec<f64>,
    errors: u64,
}

impl StoreSide {
    fn measure(&mut self, at: &str, work: &ConnectionWork, plan: &RivalPlan) -> Result<(), String> {
        let done = load::run(at, work, plan.warm_up, plan.duration)?;
        self.per_second.push(done.per_second);
        self.p50_ns.push(done.latencies.value_at_quantile(0.5) as f64);
        self.p99_ns.push(done.latencies.value_at_quantile(0.99) as f64);
        self.errors += done.errors;
        Ok(())
    }

    fn json(&self) -> Value {
        let of = |figures: &[f64]| Spread::of(figures.iter().copied());
        json!({
            "per_second": of(&self.per_second),
            "p50_ns": of(&self.p50_ns),
            "p99_ns": of(&self.p99_ns),
            "errors": self.errors,
        })
    }
}

/// Measures SET, GET and MSET of ten, one at a time and pipelined; `tell` hears each row's turn.
///
/// # Errors
/// With what did not start, or did not answer.
pub fn run(plan: &RivalPlan, tell: &mut dyn FnMut(String)) -> Result<Value, String> {
    let machine = HostMachine::here();
    let ours = OwnCluster::start(plan.shards, plan.replicas, &plan.set)?;
    let theirs = match &plan.rival {
        Some(program) => Some(RedisServer::start(program)?.ok_or_else(|| {
            format!("{program} is not installed: install it (Debian: redis-server), or give --rival none")
        })?),
        None => None,
    };
    load::fill(&ours.redis, plan.payload)?;
    if let Some(theirs) = &theirs {
        load::fill(&theirs.at, plan.payload)?;
    }
    let (clients, payload) = (plan.clients, plan.payload);
    let mut rows = Vec::new();
    for pipeline in [1, 16] {
        for op in [LoadOp::Set, LoadOp::Get, LoadOp::Mset10] {
            let work = ConnectionWork { op, pipeline, payload, clients };
            rows.push((work, StoreSide::default(), StoreSide::default()));
        }
    }
    for round in 0..plan.rounds {
        for (work, we, they) in &mut rows {
            tell(format!(
                "round {} of {}: {:?} -P {}",
                round + 1,
                plan.rounds,
                work.op,
                work.pipeline
            ));
            // The sides take turns in going first, too.
            for turn in 0..2 {
                if (turn + round) % 2 == 0 {
                    we.measure(&ours.redis, work, plan)?;
                } else if let Some(theirs) = &theirs {
                    they.measure(&theirs.at, work, plan)?;
                }
            }
        }
    }
    let rows: Vec<Value> = rows
        .iter()
        .map(|(work, we, they)| {
            let mut row = json!(work);
            let ratios = we.per_second.iter().zip(&they.per_second).map(|(a, b)| a / b);
            row["amcast"] = we.json();
            row["ratio"] = json!(Spread::of(ratios));
            if theirs.is_some() {
                row["rival"] = they.json();
            }
            row
        })
        .collect();
    Ok(json!({
        "bench": "kv",
        "machine": machine,
        "shards": plan.shards,
        "replicas": plan.replicas,
        "set": plan.set,
        "rival": plan.rival,
        "duration_s": plan.duration.as_secs_f64(),
        "rounds": plan.rounds,
        "rows": rows,
    }))
}
