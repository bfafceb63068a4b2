//! `amcast bench --ycsb`: YCSB's core workloads on our store and on others, in turns.

use super::Failure;
use super::bench::{BenchArgs, measure_service};
use crate::bench::ycsb::{StoreKind, YcsbPlan, YcsbWorkload, run as run_ycsb};
use serde_json::Value;

/// Clients, unless said otherwise.
const CLIENTS: usize = 16;

/// Records, unless said otherwise.
const RECORDS: u64 = 10_000;

/// The workloads of `A,B`, `A..F` or `all`, in YCSB's order.
pub(super) fn workloads(text: &str) -> Result<Vec<YcsbWorkload>, String> {
    let all = || YcsbWorkload::ALL.into_iter();
    let letters: Vec<char> = match text.split_once("..") {
        _ if text.eq_ignore_ascii_case("all") => ('A'..='F').collect(),
        Some((first, last)) => match (letter(first), letter(last)) {
            (Some(first), Some(last)) => (first..=last).collect(),
            _ => Vec::new(),
        },
        None => text.split(',').map(|word| letter(word).unwrap_or('?')).collect(),
    };
    let known = |l: &char| all().any(|w| w.name == *l);
    if letters.is_empty() || !letters.iter().all(known) {
        return Err(format!("{text:?}: give letters from A to F: A,B or A..F or all"));
    }
    Ok(all().filter(|w| letters.contains(&w.name)).collect())
}

fn letter(word: &str) -> Option<char> {
    let mut chars = word.trim().chars();
    let first = chars.next()?.to_ascii_uppercase();
    chars.next().is_none().then_some(first)
}

pub(super) fn run(args: &BenchArgs, workloads: &[YcsbWorkload]) -> Result<(), Failure> {
    let rounds = args.rounds();
    let asked = !args.stores.is_empty();
    let [warm_up, duration] = args.service_times(2.0);
    let plan = YcsbPlan {
        workloads: workloads.to_vec(),
        kinds: if asked { args.stores.clone() } else { StoreKind::ALL.to_vec() },
        must_have_all: asked,
        records: args.records.unwrap_or(RECORDS),
        clients: args.clients.unwrap_or(CLIENTS),
        rate: args.rate,
        shape: (args.groups.unwrap_or(3), args.replicas.unwrap_or(3)),
        rounds,
        warm_up,
        duration,
    };
    if plan.records < 2 || plan.clients == 0 {
        return Err(Failure::Misuse("give at least 2 --records and 1 of --clients".to_string()));
    }
    measure_service(args, |tell| run_ycsb(&plan, tell), print)
}

fn print(report: &Value) {
    for row in report["rows"].as_array().into_iter().flatten() {
        let (workload, store) = (&row["workload"], row["store"].as_str().unwrap_or_default());
        let workload = workload.as_str().unwrap_or_default();
        if let Some(why) = row["left_out"].as_str() {
            println!("{workload}  {store:14} not measured: {why}");
            continue;
        }
        let figure = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let rate = &row["per_second"];
        print!(
            "{workload}  {store:14} {:>8.0}/s ({:.0} to {:.0})",
            figure(&rate["median"]),
            figure(&rate["min"]),
            figure(&rate["max"])
        );
        for (op, told) in row["ops"].as_object().into_iter().flatten() {
            let us = |q: &str| figure(&told[q]["median"]) / 1e3;
            print!("  {op} p50 {:.0} p99 {:.0} us", us("p50_ns"), us("p99_ns"));
        }
        let ratio = &row["ratio_of_the_first_store"];
        println!(
            "  the first store's rate: {:.2} of it ({:.2} to {:.2}); {} errors",
            figure(&ratio["median"]),
            figure(&ratio["min"]),
            figure(&ratio["max"]),
            row["errors"]
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_letters_a_range_or_all_and_run_in_ycsbs_order() {
        let names = |text| -> String {
            workloads(text).expect("it is right").iter().map(|w| w.name).collect()
        };
        assert_eq!(names("all"), "ABCFDE");
        assert_eq!(names("a..c"), "ABC");
        assert_eq!(names("E,B"), "BE");
        for wrong in ["", "G", "A..", "AB", "A;B"] {
            assert!(workloads(wrong).is_err(), "{wrong:?}");
        }
    }
}
