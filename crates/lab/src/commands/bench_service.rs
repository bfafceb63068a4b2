//! `amcast bench --service kv`: the key-value service beside a rival, and while leaders are killed.

use super::Failure;
use super::bench::{BenchArgs, measure_service};
use crate::bench::service::{FailoverPlan, RivalPlan, run_failover, run_rival};
use amcast_core::Entry;
use amcast_protocols::tram::Tram;
use serde_json::Value;
use std::time::Duration;

/// Connections, as redis-benchmark has.
const CLIENTS: usize = 50;

/// Connections that write to each shard while leaders are killed.
const WRITERS: usize = 4;

pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    if args.protocol != Tram.name() {
        return Err(Failure::Misuse(format!("the services run on {}", Tram.name())));
    }
    let [payload] = args.payloads()[..] else {
        return Err(Failure::Misuse("--payload: give one size for a service".to_string()));
    };
    let rival = args.rival.as_deref().unwrap_or("redis-server");
    if args.failover {
        let [warm_up, duration] = args.service_times(2.0);
        let plan = FailoverPlan {
            shards: args.groups.unwrap_or(2),
            replicas: args.replicas.unwrap_or(5),
            set: args.set.clone(),
            clients: args.clients.unwrap_or(WRITERS),
            rounds: args.rounds(),
            warm_up: warm_up.max(Duration::from_millis(200)),
            duration,
        };
        return measure_service(args, |tell| run_failover(&plan, tell), print_failover);
    }
    let [warm_up, duration] = args.service_times(1.0);
    let plan = RivalPlan {
        shards: args.groups.unwrap_or(3),
        replicas: args.replicas.unwrap_or(3),
        set: args.set.clone(),
        rival: Some(rival.to_string()).filter(|rival| rival != "none"),
        clients: args.clients.unwrap_or(CLIENTS),
        payload,
        rounds: args.rounds(),
        warm_up,
        duration,
    };
    measure_service(args, |tell| run_rival(&plan, tell), print_rival)
}

fn print_rival(report: &Value) {
    let figure = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    for row in report["rows"].as_array().into_iter().flatten() {
        let side = |name: &str| {
            let side = &row[name];
            format!(
                "{:>9.0}/s p50 {:>6.0} us p99 {:>6.0} us",
                figure(&side["per_second"]["median"]),
                figure(&side["p50_ns"]["median"]) / 1e3,
                figure(&side["p99_ns"]["median"]) / 1e3
            )
        };
        print!(
            "{:7} -P {:2}  {}",
            row["op"].as_str().unwrap_or(""),
            row["pipeline"],
            side("amcast")
        );
        if row["rival"].is_object() {
            let ratio = &row["ratio"];
            print!(
                "   rival {}   ratio {:.2} ({:.2} to {:.2})",
                side("rival"),
                figure(&ratio["median"]),
                figure(&ratio["min"]),
                figure(&ratio["max"])
            );
        }
        println!();
    }
}

fn print_failover(report: &Value) {
    for (name, key) in [("one leader", "one_leader"), ("all leaders", "all_leaders")] {
        let said = &report[key];
        let Some(median) = said["without_service_ms"]["median"].as_f64() else {
            println!("{name}: {}", report["all_leaders_skipped"].as_str().unwrap_or("not killed"));
            continue;
        };
        let figure = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        println!(
            "{name} ({} nodes) killed: without service {median:.1} ms ({:.1} to {:.1}); longest \
             before {:.1} ms; {} acknowledged, {} lost",
            said["nodes_killed"],
            figure(&said["without_service_ms"]["min"]),
            figure(&said["without_service_ms"]["max"]),
            figure(&said["before_the_kill_ms"]["median"]),
            said["acknowledged"],
            said["lost"]
        );
    }
}
