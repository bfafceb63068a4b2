//! `amcast bench --recovery`: the store while a node is killed (-9) and comes back, second by second.

use super::Failure;
use super::bench::{BenchArgs as Bench, measure_service};
use crate::bench::HostMachine;
use crate::bench::recovery::{RecoveryCourse, run};
use amcast_core::Entry;
use amcast_protocols::multiring;
use amcast_protocols::tram::Tram;
use serde_json::{Value, json};

/// Connections that write.
const CLIENTS: usize = 30;

/// Writes a second of each: 6,000 in all.
const RATE: u64 = 200;

/// Seconds before the kill, and after the restart.
const BEFORE_S: f64 = 15.0;
const AFTER_S: f64 = 60.0;

/// The process to kill, and the way of its return.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct BenchRecoveryArgs {
    /// Measure the store instead while a node is killed (-9) and comes back: writes of each second, at a
    /// --rate for each of --clients [200 for each of 30]. --warm-up is before the kill [15], --duration
    /// after the restart [60]
    #[arg(long, conflicts_with_all = ["service", "ycsb", "sweep"])]
    pub(super) recovery: bool,
    /// With --recovery: megabytes of values that the store is filled with before [1000]
    #[arg(long, requires = "recovery", default_value_t = 1000, value_name = "MB")]
    state_mb: u64,
    /// With --recovery: seconds between the kill and the restart [45]
    #[arg(long, requires = "recovery", default_value_t = 45, value_name = "SECONDS")]
    down: u64,
    /// With --recovery: the node comes back with an empty disk
    #[arg(long, requires = "recovery")]
    empty_disk: bool,
}

/// Runs it once.
pub(super) fn measure(args: &Bench, recovery: &BenchRecoveryArgs) -> Result<(), Failure> {
    let [payload] = args.payloads()[..] else {
        return Err(Failure::Misuse("--payload: give one size for a service".to_string()));
    };
    let clients = args.clients.unwrap_or(CLIENTS);
    let per_second = args.rate.unwrap_or(RATE) * clients as u64;
    let kill_s = args.warm_up.unwrap_or(BEFORE_S);
    let restart_s = kill_s + recovery.down as f64;
    let base = args.data.clone().unwrap_or_else(std::env::temp_dir);
    let course = RecoveryCourse {
        protocol: match &args.protocol[..] {
            given if given == Tram.name() => multiring::SYNCED.name().to_string(),
            given => given.to_string(),
        },
        state_bytes: recovery.state_mb * 1_000_000,
        value_bytes: payload,
        clients,
        part_of_peak: 1.0,
        per_second: Some(per_second as f64),
        kill_s,
        empties_disk: recovery.empty_disk,
        restart_s,
        end_s: restart_s + args.duration.unwrap_or(AFTER_S),
        data: base.join(format!("amcast-recovery-{}", std::process::id())),
    };
    let once = |tell: &mut dyn FnMut(String)| {
        let told = run(&course, &mut |what| tell(what.to_string()))?;
        let dips = told.dips(&course);
        Ok(json!({
            "bench": "kv-recovery",
            "machine": HostMachine::here(),
            "course": course,
            "told": told,
            "dips": dips,
        }))
    };
    measure_service(args, once, print)
}

fn print(report: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let told = &report["told"];
    for second in told["seconds"].as_array().into_iter().flatten() {
        let memory: Vec<String> = second["memory_mb"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|mb| format!("{:.0}", number(mb)))
            .collect();
        println!(
            "{:>4} s {:>7} writes, mean {:>8.1} ms, longest {:>8.1} ms, memory {} MB",
            second["at"],
            second["acknowledged"],
            number(&second["mean_ms"]),
            number(&second["max_ms"]),
            memory.join(" ")
        );
    }
    for event in told["events"].as_array().into_iter().flatten() {
        println!("{:>6.1} s {}", number(&event["at_s"]), event["what"].as_str().unwrap_or(""));
    }
    for dip in report["dips"].as_array().into_iter().flatten() {
        println!(
            "{}: worst second {} writes, {:.0} % of the median before the kill ({}); {} below 70 %",
            dip["when"].as_str().unwrap_or(""),
            dip["worst"],
            number(&dip["part"]) * 100.0,
            dip["before"],
            dip["below"]
        );
    }
    match told["recovery_s"].as_f64() {
        Some(took) => println!("the node was back after {took:.1} s"),
        None => println!("the node was not back at the end"),
    }
    println!(
        "{} errors, nothing acknowledged is lost; longest time without an acknowledgement {:.0} ms",
        told["errors"],
        number(&told["longest_silence_ms"])
    );
}
