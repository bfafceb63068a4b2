//! `amcast bench --service log`: the distributed log on disk beside BookKeeper.

use super::Failure;
use super::bench::{BenchArgs, measure_service};
use crate::bench::service::{LogPlan, run_log};
use amcast_core::Entry;
use amcast_protocols::multiring;
use amcast_protocols::tram::Tram;
use serde_json::Value;

/// Clients, unless said otherwise.
const CLIENTS: [usize; 6] = [1, 10, 25, 50, 100, 200];

pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let misuse = |why: &str| Err(Failure::Misuse(why.to_string()));
    // The first is what nobody gave.
    let synced = multiring::SYNCED.name();
    if ![Tram.name(), synced].contains(&&*args.protocol) {
        return misuse(&format!(
            "the log is measured on {synced}, which syncs what it acknowledges"
        ));
    }
    if args.failover || args.rate.is_some() || !args.set.is_empty() {
        return misuse("of the log appends are measured: give no --failover, --rate or --set");
    }
    if args.replicas.is_some_and(|n| n != 3) {
        return misuse("--replicas: the log is measured on three nodes, as its rival is");
    }
    let rival = match args.rival.as_deref() {
        None | Some("bookkeeper") => true,
        Some("none") => false,
        Some(_) => return misuse("--rival: of the log give bookkeeper or none"),
    };
    let [payload] = args.payloads()[..] else {
        return misuse("--payload: give one size for a service");
    };
    let [warm_up, duration] = args.service_times(3.0);
    let plan = LogPlan {
        data: args.data.clone().unwrap_or_else(std::env::temp_dir),
        choose: "give --data",
        shards: args.groups.unwrap_or(3),
        rival,
        clients: args.clients.map_or(CLIENTS.to_vec(), |n| vec![n]),
        payload,
        rounds: args.rounds(),
        warm_up,
        duration,
    };
    measure_service(args, |tell| run_log(&plan, tell), print)
}

fn print(report: &Value) {
    let figure = |value: &Value| value["median"].as_f64().unwrap_or(f64::NAN);
    let side = |side: &Value| {
        let ms = |name: &str| figure(&side[name]) / 1e6;
        format!(
            "{:>7.0}/s  p50 {:>6.2} ms  mean {:>6.2} ms  p99 {:>7.2} ms",
            figure(&side["per_second"]),
            ms("p50_ns"),
            ms("mean_ns"),
            ms("p99_ns")
        )
    };
    for row in report["rows"].as_array().into_iter().flatten() {
        println!("{:>4} clients  amcast     {}", row["clients"], side(&row["amcast"]));
        if row["rival"].is_object() {
            println!(
                "              bookkeeper {}   {:.2} times the throughput, {:.2} of the latency",
                side(&row["rival"]),
                figure(&row["throughput_ratio"]),
                figure(&row["latency_ratio"])
            );
        }
    }
    if let Some(setting) = report["rival"].as_str() {
        println!("beside {setting}");
    }
}
