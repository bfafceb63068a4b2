//! `mrp-fig7` and `mrp-rings`: many rings, in the simulator: over four regions of the world [MRP 8.4.2],
//! and in one place, up to as many as a cluster has groups.

use super::ReproduceSession;
use super::chart::{Axes, ChartLine, lines, log_lines};
use super::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use crate::bench::rings::{MEMBERS, SimulatedRingResult, SimulatedRings, run_simulated};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use amcast_core::Entry;
use amcast_core::Span;
use amcast_core::parameters::{HEARTBEAT, RETRY, SUSPECT};
use amcast_protocols::multiring;
use amcast_sim::network::{FarRegions, REGIONS_MAX};
use maud::html;
use serde_json::json;
use std::sync::{Mutex, PoisonError};

/// In the order in which they are added. Latencies are measured in the first.
pub(super) const REGIONS: [&str; REGIONS_MAX] =
    ["us-west-2", "us-west-1", "us-east-1", "eu-west-1"];

/// One way, in milliseconds: half of what round trips between these regions take.
pub(super) const ONE_WAY_MS: [[u64; REGIONS_MAX]; REGIONS_MAX] =
    [[0, 11, 35, 65], [11, 0, 32, 69], [35, 32, 0, 38], [65, 69, 38, 0]];

/// 1 Gbit/s.
pub(super) const PORT_PS_PER_BYTE: u64 = 8_000;

/// So many of the regions.
pub(super) fn regions(count: usize) -> FarRegions {
    FarRegions { regions: count, one_way: ONE_WAY_MS.map(|row| row.map(Span::millis)) }
}

/// Parameters of the rings, and how often processes show that they live and how long they may be silent.
fn set(pairs: &[(&str, &str)], heartbeat: Span, suspect: Span) -> Vec<(String, String)> {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string()));
    pairs.chain([HEARTBEAT.setting(heartbeat), SUSPECT.setting(suspect)]).collect()
}

/// A region for each ring, and a ring around all.
fn wide(session: &ReproduceSession<'_>, rings: usize) -> SimulatedRings {
    SimulatedRings {
        rings,
        // The paper's parameters across regions; what asks again must wait for an answer from afar.
        set: {
            let rings = [
                ("m", "1"),
                ("leveling", "paced"),
                ("delta_us", "20000"),
                ("lambda", "2000"),
                ("around", "groups"),
            ];
            let mut set = set(&rings, Span::millis(20), Span::secs(2));
            set.push(RETRY.setting(Span::millis(400)));
            set
        },
        latency: Span::micros(250),
        port_ps_per_byte: PORT_PS_PER_BYTE,
        step: Span::micros(10),
        far: regions(rings),
        payload: 1024,
        // Packets of 32 KB, some of them on the way.
        outstanding: 128,
        messages: if session.quick { 3_000 } else { 20_000 },
    }
}

/// Runs all, over the cores.
fn simulate(worlds: &[SimulatedRings], what: &str) -> Result<Vec<SimulatedRingResult>, Failure> {
    let entry: &dyn Entry = &multiring::MEMORY;
    let seen = Mutex::new(Vec::new());
    over_cores(worlds.len() as u64, &progress(worlds.len() as u64, what), |n| {
        let one = run_simulated(entry, &worlds[n as usize]).map_err(Failure::Failed)?;
        seen.lock().unwrap_or_else(PoisonError::into_inner).push((n, one));
        Ok(false)
    })?;
    let mut seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    seen.sort_by_key(|(n, _)| *n);
    Ok(seen.into_iter().map(|(_, one)| one).collect())
}

/// How much of a linear growth from the one before was reached, in per cent.
fn linear(all: &[SimulatedRingResult], at: usize) -> Option<f64> {
    let (before, one) = (all.get(at.checked_sub(1)?)?, all.get(at)?);
    let grown = one.per_second / before.per_second;
    Some(100.0 * grown * before.rings as f64 / one.rings as f64)
}

/// Figure 7.
pub(super) fn horizontal(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let worlds: Vec<SimulatedRings> = (1..=REGIONS_MAX).map(|rings| wide(session, rings)).collect();
    let seen = simulate(&worlds, "regions")?;
    let x = "regions, a ring each";
    let points = |of: &dyn Fn(&SimulatedRingResult) -> f64| -> Vec<(f64, f64)> {
        seen.iter().map(|one| (one.rings as f64, of(one))).collect()
    };
    let throughput = ChartLine { name: "all rings".to_string(), points: points(&|s| s.per_second) };
    let mean = |s: &SimulatedRingResult| s.latency_ns[0].mean / 1e6;
    let latency = ChartLine { name: REGIONS[0].to_string(), points: points(&mean) };
    let mut parts = Vec::new();
    for (name, title, y, line) in [
        ("throughput", "throughput of all regions", "messages/s", throughput),
        ("latency", "mean latency in us-west-2", "milliseconds", latency),
    ] {
        let svg = lines(&Axes { title, x, y }, &[line])?;
        parts.push(PagePart::Chart { name: name.to_string(), caption: title.to_string(), svg });
    }
    parts.push(cdf_7(&seen)?);
    parts.push(table_7(&seen));
    let (one, four) = (mean(&seen[0]), mean(&seen[REGIONS_MAX - 1]));
    let first = |s: &SimulatedRingResult| s.per_ring[0];
    let (alone, beside) = (first(&seen[0]), first(&seen[REGIONS_MAX - 1]));
    let grown = seen[REGIONS_MAX - 1].per_second / seen[0].per_second;
    Ok(ExperimentAccount {
        how: format!(
            "In the simulator: in each region a ring of {MEMBERS} processes, and one ring around all; \
             1 Gbit/s at every port, 0.25 ms within a region, and between regions what such regions \
             have; 10 us of a processor for each input. Rates levelled every 20 ms to 2000 instances a \
             second, M = 1. Each process has 128 messages of 1 KB on the way, to its own region only, \
             packed to 32 KB. The protocol is the one that runs on the wire; machines and network are \
             a model."
        ),
        parts,
        claims: vec![
            PaperClaim {
                paper: "throughput grows as regions are added".to_string(),
                found: format!("{grown:.2} times that of one region with {REGIONS_MAX}"),
                holds: ClaimVerdict::when(
                    seen.windows(2).all(|w| w[1].per_second > w[0].per_second),
                ),
            },
            PaperClaim {
                paper: "latency is almost constant with the number of rings (us-west-2)"
                    .to_string(),
                found: format!("{one:.1} ms with one region, {four:.1} ms with {REGIONS_MAX}"),
                holds: ClaimVerdict::when(four < one * 1.5 || four - one < 20.0),
            },
            PaperClaim {
                paper: "the local throughput of a region is not influenced by others".to_string(),
                found: format!("us-west-2: {alone:.0} messages/s alone, {beside:.0} beside three"),
                holds: ClaimVerdict::when(beside > 0.9 * alone),
            },
        ],
        failures: Vec::new(),
        figures: json!({ "points": seen, "regions": REGIONS, "one_way_ms": ONE_WAY_MS,
                         "set": worlds[0].set }),
    })
}

fn cdf_7(seen: &[SimulatedRingResult]) -> Result<PagePart, Failure> {
    let line = |one: &SimulatedRingResult| ChartLine {
        name: format!("{} regions", one.rings),
        points: one.cdf.iter().map(|&(ns, part)| (ns as f64 / 1e6, part)).collect(),
    };
    let drawn: Vec<ChartLine> = seen.iter().map(line).collect();
    let title = "latency in us-west-2";
    let svg = lines(&Axes { title, x: "milliseconds", y: "part of the messages" }, &drawn)?;
    Ok(PagePart::Chart { name: "cdf".to_string(), caption: title.to_string(), svg })
}

fn table_7(seen: &[SimulatedRingResult]) -> PagePart {
    let row = |(at, one): (usize, &SimulatedRingResult)| {
        let told = |of: &dyn Fn(usize) -> String| (0..one.rings).map(of).collect::<Vec<_>>();
        let rates = told(&|r| format!("{:.0}", one.per_ring[r]));
        let latencies = told(&|r| format!("{:.1}", one.latency_ns[r].mean / 1e6));
        vec![
            html! { (REGIONS[..one.rings].join(", ")) },
            html! { (format!("{:.0}", one.per_second)) },
            html! { (linear(seen, at).map_or(String::new(), |l| format!("{l:.0} %"))) },
            html! { (rates.join(", ")) },
            html! { (latencies.join(", ")) },
        ]
    };
    let head = ["regions", "messages/s", "of linear", "of each", "mean latency of each, ms"];
    let head = head.map(String::from).to_vec();
    let rows = seen.iter().enumerate().map(row).collect();
    PagePart::Table { caption: "Figure 7".to_string(), head, rows }
}

/// How rings hang together: not at all, or by one more ring for all.
const TOGETHER: [(&str, &str); 2] =
    [("independent", "independent rings"), ("global", "with a ring around all")];

/// The clusters that hang together in one way, by their number of rings.
struct ClusterKind {
    name: &'static str,
    seen: Vec<SimulatedRingResult>,
}

/// Simulates up to 64 rings of each kind.
fn kinds(session: &ReproduceSession<'_>) -> Result<Vec<ClusterKind>, Failure> {
    let counts = [1, 2, 4, 8, 16, 32, 64];
    let world = |kind: &str, rings: usize| SimulatedRings {
        rings,
        // Each process has a machine of its own, so no order of nodes is worth keeping; and signs of life
        // of two hundred, to each acceptor, are seldom enough for one processor.
        set: set(&[("rings", kind), ("around", "groups")], Span::millis(50), Span::secs(2)),
        latency: Span::micros(60),
        port_ps_per_byte: PORT_PS_PER_BYTE,
        step: Span::micros(10),
        far: FarRegions::NONE,
        payload: 1024,
        outstanding: 64,
        messages: if session.quick { 1_000 } else { 5_000 },
    };
    let kind = |&(kind, name): &(&str, &'static str)| {
        // The longest one first: cores are busy to the end.
        let worlds: Vec<SimulatedRings> =
            counts.iter().rev().map(|&rings| world(kind, rings)).collect();
        let seen = simulate(&worlds, "clusters")?.into_iter().rev().collect();
        Ok(ClusterKind { name, seen })
    };
    TOGETHER.iter().map(kind).collect()
}

/// In microseconds, over all rings.
fn mean_us(s: &SimulatedRingResult) -> f64 {
    s.latency_ns.iter().map(|l| l.mean).sum::<f64>() / s.latency_ns.len() as f64 / 1e3
}

/// Up to 64 rings.
pub(super) fn many(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let kinds = kinds(session)?;
    let drawn = |value: fn(&SimulatedRingResult) -> f64| -> Vec<ChartLine> {
        let line = |kind: &ClusterKind| ChartLine {
            name: kind.name.to_string(),
            points: kind.seen.iter().map(|s| (s.rings as f64, value(s))).collect(),
        };
        kinds.iter().map(line).collect()
    };
    let mut parts = Vec::new();
    for (name, title, y, lines) in [
        ("throughput", "throughput of all rings", "messages/s", drawn(|s| s.per_second)),
        ("latency", "mean latency", "microseconds", drawn(mean_us)),
    ] {
        let svg = log_lines(&Axes { title, x: "rings", y }, &lines)?;
        parts.push(PagePart::Chart { name: name.to_string(), caption: title.to_string(), svg });
    }
    parts.push(table_of_many(&kinds));
    let claim = |kind: &ClusterKind| {
        let last = kind.seen.last().map_or(f64::NAN, |s| s.per_second);
        let part = last / kind.seen[0].per_second / 64.0;
        PaperClaim {
            paper: format!("throughput grows near linearly up to 64 rings ({})", kind.name),
            found: format!("64 rings have {:.0} % of 64 times the throughput of one", part * 100.0),
            holds: ClaimVerdict::when(part > 0.8),
        }
    };
    let figures: Vec<_> =
        kinds.iter().map(|kind| json!({ "kind": kind.name, "points": kind.seen })).collect();
    Ok(ExperimentAccount {
        how: format!(
            "In the simulator: each ring has {MEMBERS} processes with a port of 1 Gbit/s and a \
             processor of their own, which takes 10 us for each input; 60 us from one to another. Each \
             process has 64 messages of 1 KB on the way, to its own ring. Messages go round the ring of all \
             group by group, and processes show every 50 ms that they live. The paper goes up to five \
             rings on disks and four regions; this experiment goes beyond them."
        ),
        parts,
        claims: kinds.iter().map(claim).collect(),
        failures: Vec::new(),
        figures: json!({ "kinds": figures }),
    })
}

fn table_of_many(kinds: &[ClusterKind]) -> PagePart {
    let mut rows = Vec::new();
    for ClusterKind { name, seen } in kinds {
        for (at, s) in seen.iter().enumerate() {
            rows.push(vec![
                html! { (name) },
                html! { (s.rings) },
                html! { (format!("{:.0}", s.per_second)) },
                html! { (linear(seen, at).map_or(String::new(), |l| format!("{l:.0} %"))) },
                html! { (format!("{:.0}", mean_us(s))) },
            ]);
        }
    }
    let head = ["rings", "number", "messages/s", "of linear", "mean latency, us"];
    let head = head.map(String::from).to_vec();
    PagePart::Table { caption: "Rings".to_string(), head, rows }
}
