//! `mrp-fig5`: the distributed log, with appends that are synced [MRP 8.3.3]; see
//! [`crate::bench::appends`].

use super::Session;
use super::chart::{Axes, Line, lines};
use super::page::{Account, Claim, Holds, Part};
use crate::bench::appends::{Point, run as measure};
use crate::commands::Failure;
use maud::html;
use serde_json::json;
use std::time::Duration;

/// As in the paper: rings with a load.
const RINGS: usize = 2;
const PAYLOAD_BYTES: usize = 1024;

pub(super) fn run(session: &Session<'_>) -> Result<Account, Failure> {
    let (clients, time): (&[usize], _) = match session.quick {
        true => (&[1, 10, 50, 200], Duration::from_secs(3)),
        false => (&[1, 10, 25, 50, 100, 150, 200], Duration::from_secs(30)),
    };
    let data = session.directory("mrp-fig5")?.join("cluster");
    let points = measure(&data, RINGS, PAYLOAD_BYTES, clients, time).map_err(Failure::Failed)?;
    let line = |of: fn(&Point) -> f64| Line {
        name: "amcast's log".to_string(),
        points: points.iter().map(|p| (p.clients as f64, of(p))).collect(),
    };
    let mut parts = Vec::new();
    for (name, title, y, drawn) in [
        ("throughput", "synchronous appends of 1 KB", "appends/s", line(|p| p.per_second)),
        ("latency", "their mean latency", "milliseconds", line(|p| p.latency_ns.mean / 1e6)),
    ] {
        let svg = lines(&Axes { title, x: "clients", y }, &[drawn])?;
        parts.push(Part::Chart { name: name.to_string(), caption: title.to_string(), svg });
    }
    let row = |p: &Point| {
        let ms = |ns: f64| html! { (format!("{:.2}", ns / 1e6)) };
        vec![
            html! { (p.clients) },
            html! { (format!("{:.0}", p.per_second)) },
            ms(p.latency_ns.p50 as f64),
            ms(p.latency_ns.mean),
            ms(p.latency_ns.p99 as f64),
        ]
    };
    let head = ["clients", "appends/s", "p50, ms", "mean, ms", "p99, ms"].map(String::from);
    parts.push(Part::Table {
        caption: "Figure 5".to_string(),
        head: head.to_vec(),
        rows: points.iter().map(row).collect(),
    });
    let grows = points.windows(2).all(|w| w[1].per_second > w[0].per_second);
    let told: Vec<String> = points.iter().map(|p| format!("{:.0}", p.per_second)).collect();
    Ok(Account {
        how: format!(
            "A cluster of three nodes on this machine, with {RINGS} rings and one around both; acceptors \
             sync before they vote. Clients append values of {PAYLOAD_BYTES} bytes over gRPC, one after \
             the other each, through all three nodes. Nodes, clients and logs share the machine's cores \
             and its one disk."
        ),
        parts,
        claims: vec![
            Claim {
                paper: "throughput grows with clients, towards what the disk syncs".to_string(),
                found: format!("appends/s by clients: {}", told.join(", ")),
                holds: Holds::when(grows),
            },
            Claim {
                paper: "the log has more throughput and less latency than BookKeeper".to_string(),
                found:
                    "BookKeeper was not run beside it here: `amcast bench --service log` measures \
                        both in turns"
                        .to_string(),
                holds: Holds::Open,
            },
        ],
        failures: Vec::new(),
        figures: json!({ "points": points, "rings": RINGS, "payload_bytes": PAYLOAD_BYTES }),
    })
}
