//! `tram-fig2`, `tram-fig5` to `tram-fig9` and `tram-tab1`: TRAM beside RamCast, Skeen and ByzCast [TRAM 3 and 8], in the
//! simulator of the paper's machines, and on this machine's memory and sockets.

mod destinations;
mod leaders;
mod messages;
mod payload;
mod replicas;
#[cfg(test)]
mod tests;
mod writes;

pub(super) use destinations::{neighbouring, uniform};
pub(super) use leaders::run as leaders;
pub(super) use messages::run as messages;
pub(super) use payload::run as payload;
pub(super) use replicas::run as replicas;
pub(super) use writes::run as writes;

#[cfg(test)]
use super::ReproduceSession;
use super::chart::{Axes, ChartLine, lines};
use super::page::{ClaimVerdict, PagePart, PaperClaim};
use crate::bench::infiniband::Infiniband;
use crate::bench::{
    self, BenchLoad, BenchPlan, BenchResult, DestinationChoice, SimulatedWorld, Spread,
    run_multicasts, run_shared,
};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use amcast_core::Entry;
use amcast_protocols::tram::{RamCast, Tram};
use maud::html;
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// The paper's groups, and the replicas of each [TRAM 8.1].
const GROUPS: usize = 8;
const REPLICAS: usize = 3;

/// Bytes of a payload, unless the figure varies them.
const PAYLOAD: usize = 64;

/// The ratios of the abstract: throughput and latency beside RamCast, and at most beside message passing.
const PAPER_THROUGHPUT: f64 = 3.0;
const PAPER_LATENCY: f64 = 2.3;
const PAPER_MESSAGES_THROUGHPUT: f64 = 5.9;
const PAPER_MESSAGES_LATENCY: f64 = 106.0;

/// The seed of all simulated runs.
const SEED: u64 = 1;

/// The simulated machines, for the page.
const MODEL: &str = "In the simulator: a machine for each process, as in the paper, whose write of a line is found by its owner \
                     after 1.31 us and whose port carries 50 Gbit/s, both as the paper says. The paper prints no cost of \
                     posting a write or of taking its completion (figure 2 is a picture), so these are assumed: 0.15 us of \
                     the processor for each write posted, 0.05 us for each completion and each look into the buffers, 0.1 us for each \
                     message that a process orders or delivers; a completion comes 0.65 us after the line. Changing a permission costs nothing. Runs \
                     follow from a seed.";

/// The measurement on this machine, for the page.
const SHARED: &str = "On this machine: the same protocols over mapped memory, all replicas in one thread and all clients in \
                      another, each bound to a core; contenders take turns within each round, and figures are medians over \
                      the rounds. A write costs its reader a cache line, and its writer next to nothing, so what is \
                      compared is the work of the processors: one core does that of all 24 replicas.";

/// A protocol on a tree.
#[derive(Clone, Copy)]
struct Contender {
    entry: &'static dyn Entry,
    overlay: &'static str,
    /// Whether the overlay matters.
    on_tree: bool,
}

impl Contender {
    const fn tram(overlay: &'static str) -> Self {
        Self { entry: &Tram, overlay, on_tree: true }
    }

    const RAMCAST: Self = Self { entry: &RamCast, overlay: "breadth", on_tree: false };

    fn name(self) -> String {
        match self.on_tree {
            true => format!("{} {}", self.entry.name(), self.overlay),
            false => self.entry.name().to_string(),
        }
    }
}

/// TRAM on the paper's three trees, and its rival.
const CONTENDERS: [Contender; 4] = [
    Contender::tram("base"),
    Contender::tram("breadth"),
    Contender::tram("depth"),
    Contender::RAMCAST,
];

/// The load of a contender.
#[derive(Clone, Copy)]
struct Demand {
    groups: usize,
    replicas: usize,
    destinations: usize,
    choice: DestinationChoice,
    payload: usize,
    /// Clients, and multicasts on the way of each.
    clients: usize,
    outstanding: usize,
}

impl Demand {
    /// One client with one multicast on the way: latency.
    const fn latency(destinations: usize, choice: DestinationChoice) -> Self {
        Self {
            groups: GROUPS,
            replicas: REPLICAS,
            destinations,
            choice,
            payload: PAYLOAD,
            clients: 1,
            outstanding: 1,
        }
    }

    /// As many clients and multicasts on the way as saturate the system: throughput.
    const fn throughput(destinations: usize, choice: DestinationChoice) -> Self {
        Self { clients: 8, outstanding: 32, ..Self::latency(destinations, choice) }
    }

    fn plan(&self, contender: Contender, quick: bool) -> BenchPlan {
        let lines = self.payload.div_ceil(56) + 2;
        // A ring holds the multicasts that a client has on the way, several times over, and not much more: there are many.
        let ring = (lines * self.outstanding * 4).next_power_of_two().clamp(1024, 1 << 15);
        let set = [("hm_lines", ring), ("log_lines", (ring * 4).max(8192))];
        BenchPlan {
            protocol: contender.entry.name().to_string(),
            groups: self.groups,
            replicas: self.replicas,
            clients: self.clients,
            overlay: contender.overlay.to_string(),
            set: set.map(|(name, value)| (name.to_string(), value.to_string())).to_vec(),
            load: BenchLoad {
                hosts: false,
                rdma_provider: None,
                destinations: self.destinations,
                choice: self.choice,
                payload: self.payload,
                outstanding: self.outstanding,
                rate: None,
                warm_up_s: if quick { 0.05 } else { 0.2 },
                duration_s: if quick { 0.1 } else { 0.5 },
                threads: 2,
                pin: true,
                processes: false,
                senders: 0,
                early: false,
            },
        }
    }
}

/// A figure of a contender: on a medium, under a demand.
#[derive(Clone, Debug, Serialize)]
struct TramPoint {
    medium: &'static str,
    contender: String,
    destinations: usize,
    payload: usize,
    replicas: usize,
    clients: usize,
    outstanding: usize,
    /// Multicasts a second.
    per_second: Spread,
    /// Microseconds: the mean in the simulator; on this machine the median, which a pause of the machine does not move.
    latency_us: Spread,
    p99_us: Spread,
    holds: Vec<&'static str>,
}

impl TramPoint {
    fn of(
        medium: &'static str,
        (contender, demand): (Contender, &Demand),
        rounds: &[BenchResult],
    ) -> Option<Self> {
        let latency = |r: &BenchResult| match medium {
            "sim" => r.latency_ns.mean / 1e3,
            _ => r.latency_ns.p50 as f64 / 1e3,
        };
        Some(Self {
            medium,
            contender: contender.name(),
            destinations: demand.destinations,
            payload: demand.payload,
            replicas: demand.replicas,
            clients: demand.clients,
            outstanding: demand.outstanding,
            per_second: Spread::of(rounds.iter().map(|r| r.per_second))?,
            latency_us: Spread::of(rounds.iter().map(latency))?,
            p99_us: Spread::of(rounds.iter().map(|r| r.latency_ns.p99 as f64 / 1e3))?,
            holds: rounds.first()?.holds.clone(),
        })
    }
}

/// Each contender under each demand.
type DemandTurn = (Contender, Demand);

/// Runs all of them in the simulator of the paper's machines, over the cores.
fn simulate(quick: bool, turns: &[DemandTurn]) -> Result<Vec<TramPoint>, Failure> {
    simulate_on(Infiniband::PAPER, quick, turns)
}

/// The same with other machines.
fn simulate_on(
    machines: Infiniband,
    quick: bool,
    turns: &[DemandTurn],
) -> Result<Vec<TramPoint>, Failure> {
    let seen: Mutex<Vec<Option<TramPoint>>> = Mutex::new(vec![None; turns.len()]);
    let bar = progress(turns.len() as u64, "simulated runs");
    over_cores(turns.len() as u64, &bar, |n| {
        let (contender, demand) = turns[n as usize];
        let plan = demand.plan(contender, quick);
        let small = match (demand.outstanding, quick) {
            (1, true) => 300,
            (1, false) => 2_000,
            (_, true) => 3_000,
            (_, false) => 20_000,
        };
        // Large ones fill the ports sooner.
        let messages = (small / (demand.payload >> 10).max(1)).max(small.min(200));
        let world = SimulatedWorld { model: machines.model(), messages, seed: SEED };
        let result = run_multicasts(contender.entry, &plan, &world).map_err(Failure::Failed)?;
        let point = TramPoint::of("sim", (contender, &demand), &[result]);
        seen.lock().unwrap_or_else(PoisonError::into_inner)[n as usize] = point;
        Ok(false)
    })?;
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(seen.into_iter().flatten().collect())
}

/// Runs all of them on this machine's memory, one after the other in each round.
fn measure(quick: bool, turns: &[DemandTurn]) -> Result<Vec<TramPoint>, Failure> {
    bench::heed_signals();
    bench::clear_left_over();
    let rounds = if quick { 1 } else { 5 };
    let bar = progress((rounds * turns.len()) as u64, "measured runs");
    let mut seen: Vec<Vec<BenchResult>> = vec![Vec::new(); turns.len()];
    for _ in 0..rounds {
        for ((contender, demand), results) in turns.iter().zip(&mut seen) {
            let plan = demand.plan(*contender, quick);
            let config = plan.config(contender.entry).map_err(Failure::failed)?;
            let result = run_shared(contender.entry, &config, &plan);
            results
                .push(result.map_err(|e| Failure::Failed(format!("{}: {e}", contender.name())))?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let point = |((contender, demand), results): (&DemandTurn, &Vec<BenchResult>)| {
        TramPoint::of("shm", (*contender, demand), results)
    };
    Ok(turns.iter().zip(&seen).filter_map(point).collect())
}

/// A claim of the paper. Where it does not hold, the result has `why` behind it.
fn claim(paper: impl Into<String>, found: String, holds: bool, why: &str) -> PaperClaim {
    let found = match holds || why.is_empty() {
        true => found,
        false => format!("{found}. {why}"),
    };
    PaperClaim { paper: paper.into(), found, holds: ClaimVerdict::when(holds) }
}

/// The points of a contender as a line.
fn line_of<'a>(
    points: impl Iterator<Item = &'a TramPoint>,
    name: &str,
    at: impl Fn(&TramPoint) -> (f64, f64),
) -> ChartLine {
    let mine = points.filter(|point| point.contender == name);
    ChartLine { name: name.to_string(), points: mine.map(at).collect() }
}

/// A chart as a part of the page.
fn chart(name: &str, axes: &Axes<'_>, drawn: &[ChartLine]) -> Result<PagePart, Failure> {
    let svg = lines(axes, drawn)?;
    Ok(PagePart::Chart { name: name.to_string(), caption: axes.title.to_string(), svg })
}

/// A number with three significant digits or so.
fn text(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// All points with every figure, as a table.
fn table(caption: &str, points: &[TramPoint]) -> PagePart {
    let spread = |s: Spread| match s.min < s.max {
        true => format!("{} ({} to {})", text(s.median), text(s.min), text(s.max)),
        false => text(s.median),
    };
    let row = |p: &TramPoint| {
        vec![
            html! { (p.medium) },
            html! { (p.contender) },
            html! { (p.destinations) },
            html! { (p.payload) },
            html! { (p.replicas) },
            html! { (p.clients) " x " (p.outstanding) },
            html! { (spread(p.latency_us)) },
            html! { (spread(p.p99_us)) },
            html! { (spread(p.per_second)) },
        ]
    };
    let head = [
        "medium",
        "protocol",
        "destinations",
        "payload, B",
        "replicas",
        "clients x on the way",
        "latency, us",
        "99 %, us",
        "multicasts/s",
    ];
    PagePart::Table {
        caption: caption.to_string(),
        head: head.map(String::from).to_vec(),
        rows: points.iter().map(row).collect(),
    }
}
