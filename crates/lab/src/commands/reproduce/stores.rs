//! `mrp-fig4`: YCSB on the key-value store, with and without a ring around all partitions, beside other
//! stores [MRP 8.3.2]; see [`crate::bench::ycsb`].

use super::ReproduceSession;
use super::chart::{Axes, ChartLine, lines};
use super::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use crate::bench::ycsb::{StoreKind, YcsbPlan, YcsbWorkload, run as measure};
use crate::commands::Failure;
use crate::commands::cores::progress;
use maud::html;
use serde_json::Value;
use std::time::Duration;

/// Ours in front; ratios are of the first.
const STORES: [StoreKind; 6] = [
    StoreKind::AmcastRings,
    StoreKind::AmcastIndependent,
    StoreKind::AmcastDurable,
    StoreKind::Redis,
    StoreKind::RedisAlways,
    StoreKind::Etcd,
];

/// As in the paper: partitions, and replicas of each.
const SHAPE: (usize, usize) = (3, 3);

fn plan(quick: bool) -> YcsbPlan {
    let (records, rounds, warm_up, duration) = match quick {
        true => (10_000, 1, Duration::from_millis(300), Duration::from_secs(1)),
        false => (100_000, 5, Duration::from_secs(1), Duration::from_secs(5)),
    };
    YcsbPlan {
        workloads: YcsbWorkload::ALL.to_vec(),
        kinds: STORES.to_vec(),
        must_have_all: false,
        records,
        clients: 64,
        rate: None,
        shape: SHAPE,
        rounds,
        warm_up,
        duration,
    }
}

pub(super) fn run(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let plan = plan(session.quick);
    let bar = progress(1, "stores");
    let report = measure(&plan, &mut |what| bar.set_message(what)).map_err(Failure::Failed)?;
    bar.finish_and_clear();
    let mut how = format!(
        "YCSB's workloads A to F: {} records of 1000 bytes, {} clients in one process, each with one \
         operation on the way; {} rounds of {} s, in which stores take turns. Ours: {} shards, {} replicas \
         of each. All stores, their replicas and the clients share this machine's cores and its one disk, \
         where the paper had machines for each. Cassandra and MySQL are not run: a Redis that keeps nothing \
         and replicates nothing takes the place of the store that orders nothing, a Redis that syncs every write \
         for the single server with a disk; etcd replicates and syncs.",
        plan.records,
        plan.clients,
        plan.rounds,
        plan.duration.as_secs_f64(),
        SHAPE.0,
        SHAPE.1,
    );
    for absent in report["absent"].as_array().into_iter().flatten() {
        how.push_str(&format!(" {}: {}.", absent["store"], absent["why"]));
    }
    let rows = StoreRows(&report);
    Ok(ExperimentAccount {
        how,
        parts: parts(&rows)?,
        claims: claims(&rows),
        failures: Vec::new(),
        figures: report.clone(),
    })
}

/// The measurements, row by row.
struct StoreRows<'a>(&'a Value);

impl StoreRows<'_> {
    /// The row of a workload on a store, if it was measured.
    fn row(&self, workload: char, store: StoreKind) -> Option<&Value> {
        let is =
            |row: &&Value| row["workload"] == workload.to_string() && row["store"] == store.name();
        let rows = self.0["rows"].as_array()?;
        rows.iter().find(is).filter(|row| row["per_second"]["median"].is_number())
    }

    /// Operations a second.
    fn rate(&self, workload: char, store: StoreKind) -> Option<f64> {
        self.row(workload, store)?["per_second"]["median"].as_f64()
    }

    /// By how much one store does more than another, for each workload that both did.
    fn ratios(&self, one: StoreKind, other: StoreKind) -> Vec<(char, f64)> {
        let names = YcsbWorkload::ALL.iter().map(|w| w.name);
        let ratio = |w| Some((w, self.rate(w, one)? / self.rate(w, other)?));
        let mut ratios: Vec<_> = names.filter_map(ratio).collect();
        ratios.sort_by_key(|&(w, _)| w);
        ratios
    }
}

fn parts(rows: &StoreRows<'_>) -> Result<Vec<PagePart>, Failure> {
    let mut workloads: Vec<char> = YcsbWorkload::ALL.iter().map(|w| w.name).collect();
    workloads.sort_unstable();
    let line = |store: StoreKind, of: &dyn Fn(char) -> Option<f64>| {
        let at = |(n, &w): (usize, &char)| Some((n as f64 + 1.0, of(w)?));
        let points = workloads.iter().enumerate().filter_map(at).collect();
        ChartLine { name: store.name().to_string(), points }
    };
    let latency = |w: char, store: StoreKind| {
        let ops = rows.row(w, store)?["ops"].as_object()?;
        let means: Vec<f64> =
            ops.values().filter_map(|op| op["last_round_ns"]["mean"].as_f64()).collect();
        (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64 / 1e6)
    };
    let x = "workload: 1 is A, 6 is F";
    let throughput = STORES.map(|s| line(s, &|w| rows.rate(w, s)));
    let latencies = STORES.map(|s| line(s, &|w| latency(w, s)));
    let mut parts = Vec::new();
    for (name, title, y, drawn) in [
        ("throughput", "YCSB throughput", "operations/s", throughput),
        ("latency", "YCSB latency, mean over kinds of operations", "milliseconds", latencies),
    ] {
        let svg = lines(&Axes { title, x, y }, &drawn)?;
        parts.push(PagePart::Chart { name: name.to_string(), caption: title.to_string(), svg });
    }
    let row = |store: StoreKind| {
        let rate = |&w: &char| match rows.rate(w, store) {
            Some(rate) => html! { (format!("{rate:.0}")) },
            None => html! { "-" },
        };
        std::iter::once(html! { (store.name()) }).chain(workloads.iter().map(rate)).collect()
    };
    let head = std::iter::once("store, operations/s".to_string());
    parts.push(PagePart::Table {
        caption: "Figure 4".to_string(),
        head: head.chain(workloads.iter().map(char::to_string)).collect(),
        rows: STORES.into_iter().map(row).collect(),
    });
    Ok(parts)
}

fn ratios_text(ratios: &[(char, f64)]) -> String {
    let each: Vec<String> = ratios.iter().map(|(w, ratio)| format!("{w} {ratio:.2}")).collect();
    each.join(", ")
}

/// Yes if all are at least `least`; open if nothing was compared.
fn all_at_least(ratios: &[(char, f64)], least: f64) -> ClaimVerdict {
    match ratios {
        [] => ClaimVerdict::Open,
        all => ClaimVerdict::when(all.iter().all(|(_, ratio)| *ratio >= least)),
    }
}

fn claims(rows: &StoreRows<'_>) -> Vec<PaperClaim> {
    let rings = rows.ratios(StoreKind::AmcastIndependent, StoreKind::AmcastRings);
    let server = rows.ratios(StoreKind::AmcastRings, StoreKind::RedisAlways);
    let orderless = rows.ratios(StoreKind::Redis, StoreKind::AmcastRings);
    let etcd = rows.ratios(StoreKind::AmcastDurable, StoreKind::Etcd);
    vec![
        PaperClaim {
            paper: "independent rings are cheaper than rings with one around all".to_string(),
            found: format!("independent, times the other: {}", ratios_text(&rings)),
            holds: all_at_least(&rings, 1.0),
        },
        PaperClaim {
            paper: "MRP-Store compares similarly to MySQL, one server (here: a Redis that syncs)"
                .to_string(),
            found: format!(
                "ours, times the server: {}; half of it counts as similar",
                ratios_text(&server)
            ),
            holds: all_at_least(&server, 0.5),
        },
        PaperClaim {
            paper: "a store that orders nothing is faster (here: a Redis that keeps nothing)"
                .to_string(),
            found: format!("Redis, times ours: {}", ratios_text(&orderless)),
            holds: all_at_least(&orderless, 1.0),
        },
        PaperClaim {
            paper: "(ours) synced rings do more than etcd, which syncs and orders too".to_string(),
            found: format!("ours, times etcd: {}", ratios_text(&etcd)),
            holds: all_at_least(&etcd, 1.0),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_compared_where_both_stores_have_them() {
        let row = |workload: &str, store: &str, rate: f64| json!({ "workload": workload, "store": store, "per_second": { "median": rate } });
        let report = json!({ "rows": [
            row("A", "amcast-rings", 100.0),
            row("A", "amcast-independent", 150.0),
            row("C", "amcast-rings", 100.0),
            row("C", "amcast-independent", 80.0),
            row("E", "amcast-rings", 10.0),
            json!({ "workload": "E", "store": "amcast-independent", "per_second": null }),
        ] });
        let rows = StoreRows(&report);
        let ratios = rows.ratios(StoreKind::AmcastIndependent, StoreKind::AmcastRings);
        assert_eq!(ratios, [('A', 1.5), ('C', 0.8)]);
        let claims = claims(&rows);
        assert_eq!(claims[0].holds, ClaimVerdict::No);
        assert_eq!(claims[3].holds, ClaimVerdict::Open, "etcd was not there");
        assert_eq!(all_at_least(&ratios[..1], 1.0), ClaimVerdict::Yes);
    }
}
