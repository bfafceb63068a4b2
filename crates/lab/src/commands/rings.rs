//! `amcast rings`: rings of processes on this machine, measured without a service on them.

use super::{Failure, once_each, setting};
use crate::bench::rings::{RingLoad, RingResult, run as measure, run_member};
use crate::bench::{HostMachine, Spread};
use amcast_core::Entry;
use amcast_protocols::multiring;
use serde_json::json;
use std::path::PathBuf;

/// Measures rings of three processes on this machine, connected by TCP, without a service on them.
///
/// Each process proposes, accepts and learns. Judges that all delivered the same, in one order and
/// without gaps.
#[derive(clap::Args)]
pub struct RingsArgs {
    /// Acceptors sync (multi-ring), write (multi-ring-async), or keep all in memory
    /// (multi-ring-memory)
    #[arg(long, default_value = multiring::MEMORY.name())]
    protocol: String,
    /// Rings with a load; several have one more for all, which is idle
    #[arg(long, value_name = "N", default_value_t = 1)]
    rings: usize,
    /// Bytes of each payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    payload: usize,
    /// Messages that each process has on the way in each ring
    #[arg(long, value_name = "N", default_value_t = 256)]
    outstanding: usize,
    /// Messages a second of each process in each ring, instead of as many as there is room for
    #[arg(long, value_name = "N")]
    rate: Option<u64>,
    /// Seconds before measuring
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    warm_up: f64,
    /// Seconds of measuring
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    duration: f64,
    /// How often to measure, each time with fresh processes
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: usize,
    /// A parameter of the protocol; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Where to keep what is kept on disk; it is removed afterwards [the current directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Runs a process of a measurement
    #[arg(long, hide = true)]
    member: bool,
}

/// Does what `args` ask for.
///
/// # Errors
/// A misuse, or a failure.
pub fn run(args: &RingsArgs) -> Result<(), Failure> {
    if args.member {
        return run_member().map_err(Failure::Failed);
    }
    once_each(&args.set)?;
    let load = RingLoad {
        protocol: args.protocol.clone(),
        rings: args.rings,
        payload: args.payload,
        outstanding: args.outstanding,
        rate: args.rate,
        warm_up_s: args.warm_up,
        duration_s: args.duration,
        set: args.set.clone(),
        data: None,
    };
    let under = args.data.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut rounds = Vec::new();
    for _ in 0..args.rounds.max(1) {
        let measured = on_disk(&load, &under)?;
        if !args.json {
            println!("{}", line(&measured));
        }
        rounds.push(measured);
    }
    let per_second = Spread::of(rounds.iter().map(|m| m.per_second));
    if args.json {
        let machine = HostMachine::here();
        let document = json!({
            "bench": "rings", "machine": machine, "load": load, "per_second": per_second,
            "rounds": rounds,
        });
        println!("{document}");
    }
    Ok(())
}

/// Measures with a fresh directory under this one, which is removed.
pub(super) fn on_disk(load: &RingLoad, under: &std::path::Path) -> Result<RingResult, Failure> {
    let name = format!("amcast-rings-{}", std::process::id());
    let data = under.join(name);
    std::fs::create_dir_all(&data)
        .map_err(|e| Failure::Failed(format!("{}: {e}; give another --data", data.display())))?;
    let measured = measure(&RingLoad { data: Some(data.clone()), ..load.clone() });
    let removed = std::fs::remove_dir_all(&data);
    let measured = measured.map_err(Failure::Failed)?;
    removed.map_err(|e| Failure::Failed(format!("{} cannot be removed: {e}", data.display())))?;
    Ok(measured)
}

fn line(m: &RingResult) -> String {
    let us = |ns: u64| ns as f64 / 1e3;
    format!(
        "{:.0} messages/s, {:.1} MB/s; p50 {:.0} us, p99 {:.0} us, most {:.0} us; {:.2} us of processor \
         a message; coordinator {:.2} cores{}",
        m.per_second,
        m.megabytes_per_second,
        us(m.latency_ns.p50),
        us(m.latency_ns.p99),
        us(m.latency_ns.max),
        m.cpu_us_per_message,
        m.coordinator_cores,
        match m.left_behind {
            0 => String::new(),
            n => format!("; {n} times a process fell behind and got a state"),
        },
    )
}
