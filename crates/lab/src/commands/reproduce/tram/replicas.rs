//! `tram-fig8`: latency against the number of replicas.

use super::{
    Contender, Demand, DemandTurn, MODEL, SHARED, TramPoint, chart, claim, line_of, measure,
    simulate, table, text,
};
use crate::bench::DestinationChoice;
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine};
use crate::commands::reproduce::page::{ExperimentAccount, PaperClaim};
use serde_json::json;

/// A root with two children.
const SIMPLE: Contender = Contender::tram("-1,0,0");
const GROUPS: usize = 3;
const REPLICAS: [usize; 4] = [3, 5, 7, 9];

/// Latencies count as nearly constant within this factor.
const CONSTANT: f64 = 1.35;

fn turns() -> Vec<DemandTurn> {
    let choice = DestinationChoice::Uniform;
    let each = |replicas: usize| {
        (1..=GROUPS).map(move |n| {
            (SIMPLE, Demand { groups: GROUPS, replicas, ..Demand::latency(n, choice) })
        })
    };
    REPLICAS.into_iter().flat_map(each).collect()
}

/// Figure 8.
pub(in crate::commands::reproduce) fn run(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    let turns = turns();
    let mut points = simulate(session.quick, &turns)?;
    points.extend(measure(session.quick, &turns)?);
    let mut parts = Vec::new();
    let mut claims = Vec::new();
    for (medium, place) in [("sim", "simulated"), ("shm", "this machine")] {
        let of = |n: usize| {
            let mine = points.iter().filter(move |p| p.medium == medium && p.destinations == n);
            let at = |p: &TramPoint| (p.replicas as f64, p.latency_us.median);
            let points = line_of(mine, &SIMPLE.name(), at).points;
            ChartLine { name: format!("{n} destination groups"), points }
        };
        let drawn: Vec<ChartLine> = (1..=GROUPS).map(of).collect();
        let title = format!("latency against replicas, simple tree, {place}");
        let (x, y) = ("replicas of each group", "microseconds");
        let axes = Axes { title: &title, x, y };
        parts.push(chart(medium, &axes, &drawn)?);
        claims.extend(drawn.iter().map(|line| is_constant((medium, place), line)));
    }
    parts.push(table("Figure 8", &points));
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} {SHARED} A root group with two children, one client with one multicast on the way, 64 B."
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({ "figure": 8, "points": points }),
    })
}

fn is_constant((medium, place): (&str, &str), line: &ChartLine) -> PaperClaim {
    let least = line.points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let most = line.points.iter().map(|p| p.1).fold(0.0, f64::max);
    let each: Vec<String> =
        line.points.iter().map(|p| format!("{:.0}: {}", p.0, text(p.1))).collect();
    let why = match medium {
        "shm" => {
            "Here the writes are not parallel: one core steps all replicas, in turn with the leaders, so each further \
             replica is work in the way of a message."
        }
        _ => "Each further replica is a write to post for the client and for each leader.",
    };
    claim(
        format!("{place}, {}: almost constant in the number of replicas", line.name),
        format!("us by replicas: {}", each.join(", ")),
        !line.points.is_empty() && most <= least * CONSTANT,
        why,
    )
}
