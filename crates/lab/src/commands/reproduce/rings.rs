//! `mrp-fig3` and `mrp-fig6`: rings of real processes on this machine, without a service on them
//! [MRP 8.3.1, 8.4.1]; see [`crate::bench::rings`].

use super::ReproduceSession;
use super::chart::{Axes, ChartLine, lines, log_lines};
use super::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use crate::bench::Spread;
use crate::bench::rings::{MEMBERS, RingLoad, RingResult};
use crate::commands::Failure;
use crate::commands::cores::progress;
use crate::commands::rings::on_disk;
use amcast_core::Entry;
use amcast_protocols::multiring;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::json;

/// The storage of accepted values, by protocol.
fn storages() -> [(&'static str, &'static str); 3] {
    [
        (multiring::MEMORY.name(), "in memory"),
        (multiring::WRITTEN.name(), "asynchronous disk"),
        (multiring::SYNCED.name(), "synchronous disk"),
    ]
}

/// The paper's proposers have so many threads, each of which has one request on the way.
const THREADS: usize = 10;

/// The load of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum LoadStyle {
    /// Ten requests of each process, and none packed with another.
    Paper,
    /// As many as it takes, packed to 32 KB.
    Full,
}

impl LoadStyle {
    fn name(self) -> &'static str {
        match self {
            Self::Paper => "10 requests a process, nothing packed",
            Self::Full => "many requests, packed",
        }
    }

    fn load(self, protocol: &str, payload: usize, duration_s: f64) -> RingLoad {
        let (outstanding, set) = match self {
            Self::Paper => (THREADS, vec![("pack_bytes".to_string(), "1".to_string())]),
            Self::Full => ((2 << 20) / payload.max(2048), Vec::new()),
        };
        RingLoad {
            protocol: protocol.to_string(),
            rings: 1,
            payload,
            outstanding,
            rate: None,
            warm_up_s: 0.5,
            duration_s,
            set,
            data: None,
        }
    }
}

/// A picture's name, title and unit, and what of each point is in it.
type Picture<P> = (&'static str, &'static str, &'static str, fn(&P) -> f64);

/// A point of figure 3: what was seen each time.
#[derive(Debug, Serialize)]
struct RingPoint {
    protocol: &'static str,
    style: LoadStyle,
    payload: usize,
    per_second: f64,
    megabits_per_second: f64,
    p50_us: f64,
    mean_us: f64,
    p99_us: f64,
    coordinator_cores: f64,
    cpu_us_per_message: f64,
    rounds: Vec<RingResult>,
}

fn middle(rounds: &[RingResult], of: impl Fn(&RingResult) -> f64) -> f64 {
    Spread::of(rounds.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
}

impl RingPoint {
    fn of(
        protocol: &'static str,
        style: LoadStyle,
        payload: usize,
        rounds: Vec<RingResult>,
    ) -> Self {
        Self {
            protocol,
            style,
            payload,
            per_second: middle(&rounds, |m| m.per_second),
            megabits_per_second: middle(&rounds, |m| m.megabytes_per_second * 8.0),
            p50_us: middle(&rounds, |m| m.latency_ns.p50 as f64 / 1e3),
            mean_us: middle(&rounds, |m| m.latency_ns.mean / 1e3),
            p99_us: middle(&rounds, |m| m.latency_ns.p99 as f64 / 1e3),
            coordinator_cores: middle(&rounds, |m| m.coordinator_cores),
            cpu_us_per_message: middle(&rounds, |m| m.cpu_us_per_message),
            rounds,
        }
    }

    /// Which part of the messages took less than that.
    fn within(&self, us: f64) -> f64 {
        let below = |m: &RingResult| {
            let points = m.cdf.iter().filter(|(ns, _)| (*ns as f64) < us * 1e3);
            points.map(|(_, part)| *part).fold(0.0, f64::max)
        };
        middle(&self.rounds, below)
    }
}

/// Measures each load so often; all take turns.
fn in_turns(
    session: &ReproduceSession<'_>,
    loads: &[RingLoad],
) -> Result<Vec<Vec<RingResult>>, Failure> {
    let rounds = if session.quick { 1 } else { 5 };
    let mut seen: Vec<Vec<RingResult>> = loads.iter().map(|_| Vec::new()).collect();
    let bar = progress((rounds * loads.len()) as u64, "rings");
    for round in 0..rounds {
        // Each begins once: what else the machine does meets all alike.
        for at in (0..loads.len()).map(|at| (at + round) % loads.len()) {
            seen[at].push(on_disk(&loads[at], session.out)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(seen)
}

/// Figure 3.
pub(super) fn storage(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let (payloads, duration_s): (&[usize], f64) = match session.quick {
        true => (&[512, 4096, 32768], 1.0),
        false => (&[512, 1024, 2048, 4096, 8192, 16384, 32768], 10.0),
    };
    let mut rows = Vec::new();
    for (protocol, _) in storages() {
        for style in [LoadStyle::Paper, LoadStyle::Full] {
            rows.extend(payloads.iter().map(|&payload| (protocol, style, payload)));
        }
    }
    let loads: Vec<RingLoad> =
        rows.iter().map(|&(name, style, payload)| style.load(name, payload, duration_s)).collect();
    let seen = in_turns(session, &loads)?;
    let point = |((name, style, payload), rounds)| RingPoint::of(name, style, payload, rounds);
    let points: Vec<RingPoint> = rows.into_iter().zip(seen).map(point).collect();
    Ok(ExperimentAccount {
        how: format!(
            "One ring of {MEMBERS} processes on this machine, connected by TCP, each proposer, \
             acceptor and learner. As in the paper: {THREADS} requests of each process on the way, \
             and no packing. And with as many as it takes and packing to 32 KB, which the paper does \
             not show. Medians of the runs, which took turns; the machine's cores are shared by all three \
             processes, and its one disk by their logs. Ours writes what waits to the disk together, \
             also when synchronous; the paper's wrote instances one by one."
        ),
        parts: figure_3(&points)?,
        claims: claims_3(&points),
        failures: Vec::new(),
        figures: json!({ "points": points }),
    })
}

fn drawn(points: &[RingPoint], of: fn(&RingPoint) -> f64) -> Vec<ChartLine> {
    let mut drawn = Vec::new();
    for (protocol, says) in storages() {
        for style in [LoadStyle::Paper, LoadStyle::Full] {
            let own = points.iter().filter(|p| p.protocol == protocol && p.style == style);
            let points = own.map(|p| (p.payload as f64, of(p))).collect();
            drawn.push(ChartLine { name: format!("{says}, {}", style.name()), points });
        }
    }
    drawn
}

fn figure_3(points: &[RingPoint]) -> Result<Vec<PagePart>, Failure> {
    let x = "payload, bytes";
    let mut parts = Vec::new();
    let logarithmic: [Picture<RingPoint>; 2] = [
        ("throughput", "throughput of a ring", "Mbit/s", |p| p.megabits_per_second),
        ("latency", "mean latency of a ring", "milliseconds", |p| p.mean_us / 1e3),
    ];
    for (name, title, y, of) in logarithmic {
        let svg = log_lines(&Axes { title, x, y }, &drawn(points, of))?;
        parts.push(PagePart::Chart { name: name.to_string(), caption: title.to_string(), svg });
    }
    let title = "processor time of the coordinator";
    let svg = lines(
        &Axes { title, x, y: "per cent of a core" },
        &drawn(points, |p| p.coordinator_cores * 100.0),
    )?;
    parts.push(PagePart::Chart { name: "cpu".to_string(), caption: title.to_string(), svg });
    parts.push(distribution(points)?);
    let head = [
        "storage",
        "load",
        "payload",
        "messages/s",
        "Mbit/s",
        "p50, us",
        "mean, us",
        "p99, us",
        "coordinator, cores",
        "processor time a message, us",
    ];
    parts.push(PagePart::Table {
        caption: "Figure 3".to_string(),
        head: head.map(String::from).to_vec(),
        rows: points.iter().map(row).collect(),
    });
    Ok(parts)
}

fn row(p: &RingPoint) -> Vec<Markup> {
    let name = storages().iter().find(|(name, _)| *name == p.protocol).map_or("", |(_, says)| says);
    let number = |v: f64, digits: usize| html! { (format!("{v:.digits$}")) };
    vec![
        html! { (name) },
        html! { (p.style.name()) },
        html! { (p.payload) },
        number(p.per_second, 0),
        number(p.megabits_per_second, 1),
        number(p.p50_us, 0),
        number(p.mean_us, 0),
        number(p.p99_us, 0),
        number(p.coordinator_cores, 2),
        number(p.cpu_us_per_message, 1),
    ]
}

/// How latencies of the largest payload are distributed, as the paper loads the ring.
fn distribution(points: &[RingPoint]) -> Result<PagePart, Failure> {
    let largest = points.iter().map(|p| p.payload).max().unwrap_or(0);
    let of = points.iter().filter(|p| p.payload == largest && p.style == LoadStyle::Paper);
    let line = |p: &RingPoint| ChartLine {
        name: storages().iter().find(|(n, _)| *n == p.protocol).map_or("", |(_, s)| s).to_string(),
        points: p.rounds.first().map_or(Vec::new(), |m| {
            m.cdf.iter().filter(|c| c.1 <= 0.99).map(|c| (c.0 as f64 / 1e6, c.1)).collect()
        }),
    };
    let drawn: Vec<ChartLine> = of.map(line).collect();
    let title = format!("latency of payloads of {largest} bytes, up to the 99th percentile");
    let axes = Axes { title: &title, x: "milliseconds", y: "part of the messages" };
    let svg = lines(&axes, &drawn)?;
    Ok(PagePart::Chart { name: "cdf".to_string(), caption: title.clone(), svg })
}

fn claims_3(points: &[RingPoint]) -> Vec<PaperClaim> {
    let at = |protocol: &str, payload: usize| {
        let mut own =
            points.iter().filter(|p| p.style == LoadStyle::Paper && p.protocol == protocol);
        own.find(|p| p.payload == payload)
    };
    let mut claims = Vec::new();
    for (protocol, says) in storages() {
        let own = points.iter().filter(|p| p.style == LoadStyle::Paper && p.protocol == protocol);
        let all: Vec<f64> = own.map(|p| p.megabits_per_second).collect();
        let told: Vec<String> = all.iter().map(|v| format!("{v:.0}")).collect();
        claims.push(PaperClaim {
            paper: format!("throughput grows with the size of requests ({says})"),
            found: format!("Mbit/s by size: {}", told.join(", ")),
            holds: ClaimVerdict::when(all.windows(2).all(|w| w[1] > w[0])),
        });
    }
    if let Some(synced) = at(multiring::SYNCED.name(), 32768) {
        let part = synced.within(10_000.0);
        claims.push(PaperClaim {
            paper: "over 90 % of synchronous requests of 32 KB take less than 10 ms".to_string(),
            found: format!(
                "{:.1} %; three logs sync on one disk here, where the paper's acceptors have one each",
                part * 100.0
            ),
            holds: ClaimVerdict::when(part > 0.9),
        });
    }
    let cores = |protocol| at(protocol, 4096).map_or(f64::NAN, |p| p.coordinator_cores);
    let [memory, written, synced] = storages().map(|(protocol, _)| cores(protocol));
    claims.push(PaperClaim {
        paper: "in memory, the coordinator's processor is the limit; with a synchronous disk it is \
                not"
            .to_string(),
        found: format!(
            "coordinator at 4 KB: {memory:.2} cores in memory, {written:.2} asynchronous, {synced:.2} \
             synchronous; three processes share the machine's cores, and wait for each other before one \
             core is busy"
        ),
        holds: ClaimVerdict::when(memory > synced),
    });
    claims.push(PaperClaim {
        paper: "the coordinator's processor time is highest in asynchronous mode".to_string(),
        found: format!(
            "{written:.2} cores against {memory:.2} in memory and {synced:.2} synchronous; a thread of the \
             log writes, and what it costs is nearly the same with and without a sync"
        ),
        holds: ClaimVerdict::when(written > memory && written > synced),
    });
    claims
}

/// A point of figure 6.
#[derive(Debug, Serialize)]
struct RingsPoint {
    rings: usize,
    per_second: f64,
    mean_us: f64,
    p99_us: f64,
    rounds: Vec<RingResult>,
}

/// Figure 6.
pub(super) fn vertical(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let duration_s = if session.quick { 2.0 } else { 20.0 };
    let load = |rings: usize| RingLoad {
        protocol: multiring::SYNCED.name().to_string(),
        rings,
        payload: 1024,
        // A proxy of the paper's has one packet of 32 KB on the way for each ring.
        outstanding: 31,
        rate: None,
        warm_up_s: 0.7,
        duration_s,
        set: Vec::new(),
        data: None,
    };
    let loads: Vec<RingLoad> = (1..=5).map(load).collect();
    let seen = in_turns(session, &loads)?;
    let point = |(load, rounds): (&RingLoad, Vec<RingResult>)| RingsPoint {
        rings: load.rings,
        per_second: middle(&rounds, |m| m.per_second),
        mean_us: middle(&rounds, |m| m.latency_ns.mean / 1e3),
        p99_us: middle(&rounds, |m| m.latency_ns.p99 as f64 / 1e3),
        rounds,
    };
    let points: Vec<RingsPoint> = loads.iter().zip(seen).map(point).collect();
    let line = |of: fn(&RingsPoint) -> f64| {
        let points = points.iter().map(|p| (p.rings as f64, of(p))).collect();
        vec![ChartLine { name: "synchronous disk, 1 KB".to_string(), points }]
    };
    let x = "rings with a load";
    let mut parts = Vec::new();
    let pictures: [Picture<RingsPoint>; 2] = [
        ("throughput", "throughput of all rings", "messages/s", |p| p.per_second),
        ("latency", "mean latency", "milliseconds", |p| p.mean_us / 1e3),
    ];
    for (name, title, y, of) in pictures {
        let svg = lines(&Axes { title, x, y }, &line(of))?;
        parts.push(PagePart::Chart { name: name.to_string(), caption: title.to_string(), svg });
    }
    parts.push(table_6(&points));
    let steady = points.windows(2).all(|w| w[1].per_second > w[0].per_second);
    let last = points.last().map_or(f64::NAN, |p| p.per_second / points[0].per_second);
    Ok(ExperimentAccount {
        how: format!(
            "Rings of {MEMBERS} processes on this machine, each ring with a log of its own at each \
             process; the machine has one disk, and the logs share it: what can grow is how much of it \
             is used at once. From two rings on there is one more to which all subscribe, without a \
             load. 31 requests of 1 KB of each process on the way in each ring, packed to 32 KB; a \
             synchronous disk. Medians of runs that took turns. The paper's learners subscribe to all \
             rings; ours to their own and the common one."
        ),
        parts,
        claims: vec![PaperClaim {
            paper: "throughput grows steadily with the number of rings, a disk each".to_string(),
            found: format!(
                "{last:.2} times that of one ring with five; but on one disk, which fewer rings may fill: the \
                 claim is of a disk for each"
            ),
            holds: ClaimVerdict::when(steady),
        }],
        failures: Vec::new(),
        figures: json!({ "points": points }),
    })
}

fn table_6(points: &[RingsPoint]) -> PagePart {
    let mut rows = Vec::new();
    let mut before: Option<&RingsPoint> = None;
    for p in points {
        // As the paper's percentages: what was gained, of what a further ring like the others gives.
        let linear = before.map(|b| p.per_second / b.per_second * b.rings as f64 / p.rings as f64);
        rows.push(vec![
            html! { (p.rings) },
            html! { (format!("{:.0}", p.per_second)) },
            html! { (linear.map_or(String::new(), |l| format!("{:.0} %", l * 100.0))) },
            html! { (format!("{:.0}", p.mean_us)) },
            html! { (format!("{:.0}", p.p99_us)) },
        ]);
        before = Some(p);
    }
    let head = ["rings", "messages/s", "of linear, to the one before", "mean, us", "p99, us"];
    let head = head.map(String::from).to_vec();
    PagePart::Table { caption: "Figure 6".to_string(), head, rows }
}
