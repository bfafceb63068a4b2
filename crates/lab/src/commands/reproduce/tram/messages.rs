//! `tram-fig9`: TRAM and RamCast over shared memory beside their counterparts in message passing, ByzCast and Skeen.

use super::{
    Contender, Demand, DemandTurn, GROUPS, PAPER_MESSAGES_LATENCY, PAPER_MESSAGES_THROUGHPUT,
    TramPoint, chart, claim, line_of, table, text,
};
use crate::bench::message_groups;
use crate::bench::{self, BenchResult, DestinationChoice, run_shared};
use crate::commands::Failure;
use crate::commands::cores::progress;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine};
use crate::commands::reproduce::page::{ExperimentAccount, PagePart, PaperClaim};
use amcast_protocols::byzcast::ByzCast;
use amcast_protocols::skeen::Skeen;
use serde_json::json;

/// Replicas of a group over memory: as in the paper, and as few as message passing has here and there.
const REPLICAS: [usize; 2] = [super::REPLICAS, 1];

/// Over memory, and its counterpart in message passing.
const PAIRS: [(Contender, Contender); 2] = [
    (Contender::tram("base"), Contender { entry: &ByzCast, overlay: "base", on_tree: true }),
    (Contender::RAMCAST, Contender { entry: &Skeen, overlay: "breadth", on_tree: false }),
];

fn demands(session: &ReproduceSession<'_>) -> Vec<Demand> {
    let all: &[usize] = match session.quick {
        true => &[1, 2, 4, 8],
        false => &[1, 2, 3, 4, 5, 6, 7, 8],
    };
    let choice = DestinationChoice::Uniform;
    all.iter().flat_map(|&n| [Demand::latency(n, choice), Demand::throughput(n, choice)]).collect()
}

/// One measurement of a contender on its medium.
fn once(
    session: &ReproduceSession<'_>,
    (contender, demand): DemandTurn,
    over_tcp: bool,
) -> Result<BenchResult, String> {
    if over_tcp {
        let plan = demand.plan(contender, session.quick);
        let plan = bench::BenchPlan { set: Vec::new(), ..plan };
        return message_groups::run(contender.entry, &message_groups::completed(plan));
    }
    let plan = demand.plan(contender, session.quick);
    let config = plan.config(contender.entry).map_err(|e| e.to_string())?;
    run_shared(contender.entry, &config, &plan)
}

/// Figure 9.
pub(in crate::commands::reproduce) fn run(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    bench::heed_signals();
    bench::clear_left_over();
    let demands = demands(session);
    let sides = |demand: Demand| {
        PAIRS.into_iter().flat_map(move |(memory, tcp)| {
            let over_memory =
                REPLICAS.map(|replicas| ((memory, Demand { replicas, ..demand }), false));
            let over_tcp = ((tcp, Demand { replicas: 1, ..demand }), true);
            over_memory.into_iter().chain([over_tcp])
        })
    };
    let turns: Vec<(DemandTurn, bool)> = demands.iter().flat_map(|&demand| sides(demand)).collect();
    let rounds = if session.quick { 1 } else { 5 };
    let bar = progress((rounds * turns.len()) as u64, "measured runs");
    let mut seen: Vec<Vec<BenchResult>> = vec![Vec::new(); turns.len()];
    for _ in 0..rounds {
        for (&(turn, over_tcp), results) in turns.iter().zip(&mut seen) {
            let why = |e| Failure::Failed(format!("{}: {e}", turn.0.name()));
            results.push(once(session, turn, over_tcp).map_err(why)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let point =
        |(&((contender, demand), over_tcp), results): (&(DemandTurn, bool), &Vec<BenchResult>)| {
            let medium = if over_tcp { "tcp" } else { "shm" };
            TramPoint::of(medium, (contender, &demand), results)
        };
    let points: Vec<TramPoint> = turns.iter().zip(&seen).filter_map(point).collect();
    let mut parts = charts(&points)?;
    parts.push(table("Figure 9", &points));
    Ok(ExperimentAccount {
        how: format!(
            "On this machine, {GROUPS} groups, 64 B, uniform destinations. Over mapped memory: TRAM on the base tree and RamCast \
             with three replicas a group, as in the paper, and with one, as the rivals have; replicas in one thread and clients in \
             another. Over TCP on the loopback: ByzCast on the \
             base tree and Skeen, one process a group and none replicated, as in the paper; each group and each client is an \
             OS process, which sleeps when it has nothing to do, since there are more processes than cores. All take turns \
             within each round. Latency with one multicast on the way, throughput with 8 clients and 32 on the way of each. The \
             paper's message passing runs between machines and in Java, ours is Rust over one machine's loopback with two cores for \
             all processes: only the ratios' order of magnitude can be compared."
        ),
        parts,
        claims: claims(&points),
        failures: Vec::new(),
        figures: json!({ "figure": 9, "points": points }),
    })
}

fn charts(points: &[TramPoint]) -> Result<Vec<PagePart>, Failure> {
    let draw = |what: &str, y: &str, loaded: bool| {
        let mine = || points.iter().filter(|p| (p.outstanding > 1) == loaded);
        let at = |p: &TramPoint| {
            let value = if loaded { p.per_second.median } else { p.latency_us.median };
            (p.destinations as f64, value.log10())
        };
        let drawn: Vec<ChartLine> = PAIRS
            .into_iter()
            .flat_map(|(memory, tcp)| [(memory, REPLICAS[0]), (memory, REPLICAS[1]), (tcp, 1)])
            .map(|(c, replicas)| {
                let mine = mine().filter(|p| p.replicas == replicas);
                let points = line_of(mine, &c.name(), at).points;
                ChartLine { name: format!("{}, {replicas} replicas", c.name()), points }
            })
            .collect();
        let title = format!("{what} beside message passing");
        chart(what, &Axes { title: &title, x: "destination groups", y }, &drawn)
    };
    Ok(vec![
        draw("latency", "microseconds, as a power of ten", false)?,
        draw("throughput", "multicasts a second, as a power of ten", true)?,
    ])
}

/// The ratios of a pair: by destinations, how many times the throughput, or how many times the latency of message passing.
fn ratios(
    points: &[TramPoint],
    ((memory, tcp), replicas): ((Contender, Contender), usize),
    loaded: bool,
) -> Vec<(usize, f64)> {
    let of = |c: Contender, replicas: usize, n: usize| {
        let fits = |p: &&TramPoint| {
            let shape = p.destinations == n && p.replicas == replicas;
            p.contender == c.name() && shape && (p.outstanding > 1) == loaded
        };
        points.iter().find(fits)
    };
    let mut all: Vec<usize> = points.iter().map(|p| p.destinations).collect();
    all.sort_unstable();
    all.dedup();
    let ratio = |n: usize| {
        let (memory, tcp) = (of(memory, replicas, n)?, of(tcp, 1, n)?);
        Some(match loaded {
            true => (n, memory.per_second.median / tcp.per_second.median),
            false => (n, tcp.latency_us.median / memory.latency_us.median),
        })
    };
    all.into_iter().filter_map(ratio).collect()
}

fn claims(points: &[TramPoint]) -> Vec<PaperClaim> {
    let mut claims = Vec::new();
    for (pair, replicas) in PAIRS.into_iter().flat_map(|pair| REPLICAS.map(|n| (pair, n))) {
        let (memory, tcp) = (pair.0.name(), pair.1.name());
        for (what, loaded, paper) in [
            ("throughput is higher by up to", true, PAPER_MESSAGES_THROUGHPUT),
            ("latency is lower by up to", false, PAPER_MESSAGES_LATENCY),
        ] {
            let seen = ratios(points, (pair, replicas), loaded);
            let most = seen.iter().map(|r| r.1).fold(0.0, f64::max);
            let each: Vec<String> =
                seen.iter().map(|(n, r)| format!("{n}: {}", text(*r))).collect();
            claims.push(claim(
                format!("{memory} with {replicas} replicas beside {tcp}: {what} {paper} times"),
                format!("times, by destinations: {}", each.join(", ")),
                most >= paper,
                if loaded { WHY_THROUGHPUT } else { WHY_LATENCY },
            ));
        }
    }
    claims
}

/// Why ratios are smaller here.
const WHY_LATENCY: &str = "Over the loopback of one machine a message takes a few tens of microseconds, mostly to wake a process, \
                           where the paper's rivals have Java and a network; and one core does the work of all replicas over \
                           memory, one after the other, where the paper has a machine for each.";
const WHY_THROUGHPUT: &str = "One core does the work of all replicas over memory, and two cores that of message passing, which \
                              replicates nothing: where the paper adds machines with the groups, this machine divides its cores.";
