//! `mrp-fig5`: the distributed log, with appends that are synced [MRP 8.3.3], with `--rivals` in turns with
//! BookKeeper; see [`crate::bench::service`].

use super::ReproduceSession;
use super::chart::{Axes, ChartLine, lines};
use super::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use crate::bench::service::{LogPlan, run_log};
use crate::commands::Failure;
use crate::commands::cores::progress;
use maud::{Markup, html};
use serde_json::Value;
use std::time::Duration;

/// As in the paper: rings with a load.
const RINGS: usize = 2;
const PAYLOAD_BYTES: usize = 1024;

/// The sides of a row, and what they are called.
const SIDES: [(&str, &str); 2] = [("amcast", "amcast's log"), ("rival", "BookKeeper")];

fn plan(session: &ReproduceSession<'_>) -> LogPlan {
    let (clients, rounds, duration) = match session.quick {
        true => (vec![1, 10, 50, 200], 1, Duration::from_secs(3)),
        false => (vec![1, 10, 25, 50, 100, 150, 200], 5, Duration::from_secs(10)),
    };
    LogPlan {
        data: session.out.to_path_buf(),
        choose: "give --out",
        shards: RINGS,
        rival: session.rivals,
        clients,
        payload: PAYLOAD_BYTES,
        rounds,
        warm_up: Duration::from_secs(1),
        duration,
    }
}

pub(super) fn run(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let plan = plan(session);
    let bar = progress(1, "logs");
    let report = run_log(&plan, &mut |what| bar.set_message(what)).map_err(Failure::Failed)?;
    bar.finish_and_clear();
    let rows = AppendRows(&report);
    let rival = match report["rival"].as_str() {
        Some(setting) => format!("in turns with {setting}"),
        None => "without BookKeeper, which --rivals runs beside it".to_string(),
    };
    Ok(ExperimentAccount {
        how: format!(
            "A cluster of three nodes on this machine, with {RINGS} rings and one around both; acceptors \
             sync before they vote. Clients append values of {PAYLOAD_BYTES} bytes over gRPC, one after \
             the other each, through all three nodes; {} rounds of {} s for each number of them, {rival}. \
             Nodes, clients and logs share the machine's cores and its one disk.",
            plan.rounds,
            plan.duration.as_secs_f64(),
        ),
        parts: rows.parts()?,
        claims: rows.claims(),
        failures: Vec::new(),
        figures: report.clone(),
    })
}

/// The measurements, by number of clients.
struct AppendRows<'a>(&'a Value);

impl AppendRows<'_> {
    fn all(&self) -> impl Iterator<Item = &Value> {
        self.0["rows"].as_array().into_iter().flatten()
    }

    /// The sides that were measured.
    fn sides(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let rival = self.0["rival"].is_string();
        SIDES.into_iter().filter(move |(side, _)| rival || *side != "rival")
    }

    fn parts(&self) -> Result<Vec<PagePart>, Failure> {
        let mut parts = Vec::new();
        for (name, title, y, what, unit) in [
            ("throughput", "synchronous appends of 1 KB", "appends/s", "per_second", 1.0),
            ("latency", "their mean latency", "milliseconds", "mean_ns", 1e6),
        ] {
            let line = |(side, called): (&str, &str)| ChartLine {
                name: called.to_string(),
                points: self
                    .all()
                    .map(|row| (median(&row["clients"]), median(&row[side][what]) / unit))
                    .collect(),
            };
            let drawn: Vec<ChartLine> = self.sides().map(line).collect();
            let svg = lines(&Axes { title, x: "clients", y }, &drawn)?;
            parts.push(PagePart::Chart { name: name.to_string(), caption: title.to_string(), svg });
        }
        let head = ["log", "clients", "appends/s", "p50, ms", "mean, ms", "p99, ms"];
        let rows = self.sides().flat_map(|(side, called)| {
            self.all().map(move |row| table_row(called, &row["clients"], &row[side]))
        });
        parts.push(PagePart::Table {
            caption: "Figure 5".to_string(),
            head: head.map(String::from).to_vec(),
            rows: rows.collect(),
        });
        Ok(parts)
    }

    fn claims(&self) -> Vec<PaperClaim> {
        let ours: Vec<f64> = self.all().map(|row| median(&row["amcast"]["per_second"])).collect();
        let told: Vec<String> = ours.iter().map(|rate| format!("{rate:.0}")).collect();
        let ratios = |what: &str| -> Vec<f64> {
            self.all()
                .filter(|row| row["rival"].is_object())
                .map(|row| median(&row[what]))
                .collect()
        };
        let (rates, waits) = (ratios("throughput_ratio"), ratios("latency_ratio"));
        let ahead = rates.iter().all(|r| *r > 1.0) && waits.iter().all(|r| *r < 1.0);
        vec![
            PaperClaim {
                paper: "throughput grows with clients, towards what the disk syncs".to_string(),
                found: format!("appends/s by clients: {}", told.join(", ")),
                holds: ClaimVerdict::when(ours.windows(2).all(|w| w[1] > w[0])),
            },
            PaperClaim {
                paper: "the log has more throughput and less latency than BookKeeper".to_string(),
                found: match rates.is_empty() {
                    true => "BookKeeper was not run beside it: --rivals does".to_string(),
                    false => format!(
                        "by clients: {} times the throughput, {} times the median latency",
                        joined(&rates),
                        joined(&waits)
                    ),
                },
                holds: if rates.is_empty() {
                    ClaimVerdict::Open
                } else {
                    ClaimVerdict::when(ahead)
                },
            },
        ]
    }
}

fn joined(figures: &[f64]) -> String {
    figures.iter().map(|f| format!("{f:.2}")).collect::<Vec<_>>().join(", ")
}

/// The median of a spread, or a number as it is.
fn median(value: &Value) -> f64 {
    value["median"].as_f64().or(value.as_f64()).unwrap_or(f64::NAN)
}

fn table_row(called: &str, clients: &Value, side: &Value) -> Vec<Markup> {
    let ms = |what: &str| html! { (format!("{:.2}", median(&side[what]) / 1e6)) };
    vec![
        html! { (called) },
        html! { (clients) },
        html! { (format!("{:.0}", median(&side["per_second"]))) },
        ms("p50_ns"),
        ms("mean_ns"),
        ms("p99_ns"),
    ]
}
