//! `tram-fig7`: latency and throughput against the size of the payload, with all groups as destinations.

use super::{
    Contender, Demand, DemandTurn, GROUPS, MODEL, SHARED, TramPoint, chart, claim, line_of,
    measure, simulate, table, text,
};
use crate::bench::DestinationChoice;
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::Axes;
use crate::commands::reproduce::page::{ExperimentAccount, PaperClaim};
use serde_json::json;

/// TRAM's trees, as in the paper: one for latency, and one for throughput.
const FOR_LATENCY: Contender = Contender::tram("breadth");
const FOR_THROUGHPUT: Contender = Contender::tram("depth");

/// The size at which both protocols converge in the paper, in bytes.
const CONVERGES: usize = 16 << 10;

/// Results count as similar within this factor.
const SIMILAR: f64 = 1.3;

fn turns(session: &ReproduceSession<'_>) -> Vec<DemandTurn> {
    let sizes: &[usize] = match session.quick {
        true => &[64, 1 << 10, CONVERGES],
        false => &[64, 256, 1 << 10, 4 << 10, CONVERGES, 64 << 10],
    };
    let choice = DestinationChoice::Uniform;
    let each = |&payload: &usize| {
        let latency = Demand { payload, ..Demand::latency(GROUPS, choice) };
        // Of large payloads few on the way saturate the system.
        let outstanding = (CONVERGES / payload).clamp(2, 32);
        let throughput = Demand { payload, outstanding, ..Demand::throughput(GROUPS, choice) };
        [
            (FOR_LATENCY, latency),
            (Contender::RAMCAST, latency),
            (FOR_THROUGHPUT, throughput),
            (Contender::RAMCAST, throughput),
        ]
    };
    sizes.iter().flat_map(each).collect()
}

/// Figure 7.
pub(in crate::commands::reproduce) fn run(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    let turns = turns(session);
    let mut points = simulate(session.quick, &turns)?;
    points.extend(measure(session.quick, &turns)?);
    let mut parts = Vec::new();
    let mut claims = Vec::new();
    for (medium, place) in [("sim", "simulated"), ("shm", "this machine")] {
        for (what, y, loaded) in
            [("latency", "microseconds", false), ("throughput", "multicasts a second", true)]
        {
            let mine =
                || points.iter().filter(|p| p.medium == medium && (p.outstanding > 1) == loaded);
            let at = |p: &TramPoint| {
                let value = if loaded { p.per_second.median } else { p.latency_us.median };
                ((p.payload as f64).log2(), value)
            };
            let own = if loaded { FOR_THROUGHPUT } else { FOR_LATENCY };
            let drawn =
                [own, Contender::RAMCAST].map(|contender| line_of(mine(), &contender.name(), at));
            let title = format!("{what} against the payload, {place}");
            let x = "payload, as a power of two of bytes";
            parts.push(chart(&format!("{medium}-{what}"), &Axes { title: &title, x, y }, &drawn)?);
            claims.extend(claims_of((place, what), &mine().collect::<Vec<_>>(), loaded));
        }
    }
    parts.push(table("Figure 7", &points));
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} {SHARED} All {GROUPS} groups are destinations; TRAM has the breadth tree for latency, with one multicast \
             on the way, and the depth tree for throughput, with 8 clients of as many on the way as make 16 kB, 2 to 32."
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({ "figure": 7, "points": points }),
    })
}

/// By how much TRAM is ahead at a size: a number above one says that it is.
fn ahead(points: &[&TramPoint], payload: usize, loaded: bool) -> f64 {
    let rival = Contender::RAMCAST.name();
    let of = |is_rival: bool| {
        let fits = |p: &&&TramPoint| p.payload == payload && (p.contender == rival) == is_rival;
        points.iter().find(fits).map_or(f64::NAN, |p| match loaded {
            true => p.per_second.median,
            false => 1.0 / p.latency_us.median,
        })
    };
    of(false) / of(true)
}

fn claims_of((place, what): (&str, &str), points: &[&TramPoint], loaded: bool) -> Vec<PaperClaim> {
    let mut sizes: Vec<usize> = points.iter().map(|p| p.payload).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let Some(&least) = sizes.first() else { return Vec::new() };
    let each: Vec<String> = sizes
        .iter()
        .map(|&size| format!("{size} B: {}", text(ahead(points, size, loaded))))
        .collect();
    let found = format!("times RamCast's performance, by payload: {}", each.join(", "));
    let (small, large) = (ahead(points, least, loaded), ahead(points, CONVERGES, loaded));
    vec![
        claim(
            format!("{place}, {what}: TRAM outperforms RamCast with small payloads"),
            found.clone(),
            small > 1.0,
            "",
        ),
        claim(
            format!(
                "{place}, {what}: the gap narrows as the payload grows, and both are similar at 16 kB"
            ),
            found,
            large < small && (1.0 / SIMILAR..SIMILAR).contains(&large),
            match (place, loaded) {
                ("simulated", true) => {
                    "A leader of the depth tree sends each payload five times, to two followers and to three replicas of the \
                     child; one of RamCast's sends it twice, and eight clients' ports carry the rest."
                }
                _ => {
                    "Here a payload costs the copies that two cores make, and no port: the steps of RamCast's exchange still count at 16 kB."
                }
            },
        ),
    ]
}
