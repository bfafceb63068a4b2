//! `to-fig4` and `to-fig5`: latency and throughput under bursts [TO 4.2] of all protocols that broadcast, on real
//! processes of this machine and in the simulator; see [`crate::bench::bursts`]. With `--rivals` programs
//! of others take turns with them: `versus.rs` compares.

use super::ReproduceSession;
use super::chart::{Axes, ChartLine, lines};
use super::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use super::versus::{self, RivalComparison};
use crate::bench::bursts::{
    BurstMedium, BurstPoint, BurstRepeat, MEMBERS, PAYLOAD_BYTES, ROUNDS, RepeatRange, WINDOW,
};
use crate::bench::bursts::{config, rows, rows_over, run_on, run_simulated, settings};
use crate::bench::rivals::{AbsentRival, Rival, RivalGroup};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use amcast_core::Entry;
use amcast_protocols::total::{BB_RCAST_RCAST, PB_RCAST, PB_URCAST, SB_RCAST, TotalOrderRow};
use maud::html;
use serde_json::json;
use std::sync::{Mutex, PoisonError};

const REPEATS: usize = 10;
const QUICK_REPEATS: usize = 3;
const BURSTS: [usize; 11] = [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
const QUICK_BURSTS: [usize; 3] = [1, 10, 100];
const MEDIA: [&str; 3] = ["tcp", "udp", "sim"];

/// The results of all turns.
#[derive(Default)]
pub(super) struct BurstTurns {
    points: Vec<BurstPoint>,
    versus: Vec<RivalComparison>,
    /// Rivals that were asked for and could not be measured, and why.
    absent: Vec<String>,
}

fn bursts(session: &ReproduceSession<'_>) -> &'static [usize] {
    if session.quick { &QUICK_BURSTS } else { &BURSTS }
}

const fn repeats(session: &ReproduceSession<'_>) -> usize {
    if session.quick { QUICK_REPEATS } else { REPEATS }
}

fn simulated(session: &ReproduceSession<'_>) -> Result<Vec<BurstPoint>, Failure> {
    let (bursts, repeats) = (bursts(session), repeats(session) as u64);
    let jobs: Vec<_> = rows().flat_map(|row| bursts.iter().map(move |b| (row, *b))).collect();
    let points = Mutex::new(Vec::new());
    over_cores(jobs.len() as u64, &progress(jobs.len() as u64, "bursts"), |n| {
        let (row, burst) = jobs[n as usize];
        let config = config(row, &[]).map_err(Failure::misuse)?;
        let repeats = (0..repeats).map(|seed| run_simulated(row, &config, burst, seed));
        let repeats = repeats.collect::<Result<Vec<_>, _>>().map_err(Failure::Failed)?;
        let point = BurstPoint::of(row.name(), "sim", burst, &repeats);
        points.lock().unwrap_or_else(PoisonError::into_inner).push((n, point));
        Ok(false)
    })?;
    let mut points = points.into_inner().unwrap_or_else(PoisonError::into_inner);
    points.sort_by_key(|(n, _)| *n);
    Ok(points.into_iter().map(|(_, point)| point).collect())
}

/// The groups of rivals that can be measured here; for the others the reason is printed.
fn rivals(
    session: &ReproduceSession<'_>,
    wire: BurstMedium,
    turns: &mut BurstTurns,
) -> Vec<(Rival, RivalGroup)> {
    let mut up = Vec::new();
    for &rival in Rival::over(wire).iter().filter(|_| session.rivals) {
        match rival.start(session.quick) {
            Ok(group) => up.push((rival, group)),
            Err(AbsentRival(why)) => {
                let why = format!("{} over {} is not measured: {why}", rival.name(), wire.name());
                eprintln!("amcast: {why}");
                turns.absent.push(why);
            }
        }
    }
    up
}

/// Real processes: in each repeat all protocols take turns, and rivals with them.
fn on_the_wire(
    session: &ReproduceSession<'_>,
    wire: BurstMedium,
    turns: &mut BurstTurns,
) -> Result<(), Failure> {
    let bursts = bursts(session);
    let rows: Vec<_> = rows_over(wire).collect();
    let mut rivals = rivals(session, wire, turns);
    let sides = rows.len() + rivals.len();
    // By side, size and repeat.
    let mut seen: Vec<Vec<Vec<BurstRepeat>>> = vec![vec![Vec::new(); bursts.len()]; sides];
    let count = repeats(session) * sides;
    let bar = progress(count as u64, &format!("groups over {}", wire.name()));
    for turn in 0..repeats(session) {
        // Each begins once: what else the machine does meets all alike.
        for at in (0..sides).map(|at| (at + turn) % sides) {
            let repeat = match rows.get(at) {
                Some(row) => run_on(*row, wire, bursts),
                None => rivals[at - rows.len()].1.run(bursts),
            };
            let repeat = repeat.map_err(Failure::Failed)?;
            seen[at].iter_mut().zip(repeat).for_each(|(all, one)| all.push(one));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let names = rows.iter().map(|row| row.name());
    let names = names.chain(rivals.iter().map(|(rival, _)| rival.name()));
    for (name, seen) in names.zip(&seen) {
        let point = |(burst, all): (&usize, &Vec<BurstRepeat>)| {
            BurstPoint::of(name, wire.name(), *burst, all)
        };
        turns.points.extend(bursts.iter().zip(seen).map(point));
    }
    for ((rival, _), theirs) in rivals.iter().zip(&seen[rows.len()..]) {
        let ours = rows.iter().zip(&seen);
        for (n, &burst) in bursts.iter().enumerate() {
            let ours = ours.clone().map(|(row, seen)| (*row, &seen[n][..]));
            turns.versus.extend(versus::compare(*rival, burst, ours, &theirs[n]));
        }
    }
    Ok(())
}

fn measure(session: &ReproduceSession<'_>) -> Result<BurstTurns, Failure> {
    let mut turns = BurstTurns::default();
    on_the_wire(session, BurstMedium::Tcp, &mut turns)?;
    on_the_wire(session, BurstMedium::Udp, &mut turns)?;
    turns.points.extend(simulated(session)?);
    Ok(turns)
}

fn turns<'a>(session: &'a ReproduceSession<'_>) -> Result<&'a BurstTurns, Failure> {
    if session.bursts.get().is_none() {
        let made = measure(session)?;
        session.bursts.get_or_init(|| made);
    }
    Ok(session.bursts.get_or_init(BurstTurns::default))
}

/// Figure 4.
pub(super) fn latency(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let turns = turns(session)?;
    let points = &turns.points;
    let mut claims = versus::claims(&turns.versus, versus::BurstFigure::Latency);
    for medium in MEDIA {
        let at = |row: &TotalOrderRow| value(points, medium, row.name(), |p| p.latency_us.mean);
        let sequencer = (at(&BB_RCAST_RCAST) + at(&SB_RCAST)) / 2.0;
        claims.push(claim(
            "with a token, uniform delivery costs 1.2 times the latency (Spread Safe, Agreed)",
            (medium, at(&PB_URCAST) / at(&PB_RCAST)),
            |r| (1.0..=1.5).contains(&r),
            "times",
        ));
        claims.push(claim(
            "a token has 2 to 5 times the latency of a sequencer (Spread, Ensemble)",
            (medium, at(&PB_RCAST) / sequencer),
            |r| (2.0..=5.0).contains(&r),
            "times",
        ));
        claims.push(claim(
            "broadcast-broadcast and send-broadcast perform almost the same (Ensemble)",
            (medium, at(&BB_RCAST_RCAST) / at(&SB_RCAST)),
            |r| (0.8..1.25).contains(&r),
            "of the latency",
        ));
    }
    let axes = ["average message latency, four processes", "burst size B", "microseconds"];
    account(session, turns, axes, |p| p.latency_us, claims)
}

/// Figure 5.
pub(super) fn throughput(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let turns = turns(session)?;
    let points = &turns.points;
    let mut claims = versus::claims(&turns.versus, versus::BurstFigure::Throughput);
    for medium in MEDIA {
        let at = |row: &TotalOrderRow| value(points, medium, row.name(), |p| p.per_second.mean);
        let sequencer = (at(&BB_RCAST_RCAST) + at(&SB_RCAST)) / 2.0;
        claims.push(claim(
            "with a token, uniform delivery costs 15 % of the throughput (Spread Safe, Agreed)",
            (medium, at(&PB_URCAST) / at(&PB_RCAST)),
            |r| (0.7..=1.0).contains(&r),
            "of it is left",
        ));
        claims.push(claim(
            "a token has half of the throughput of a sequencer (Spread, Ensemble)",
            (medium, at(&PB_RCAST) / sequencer),
            |r| (0.4..0.65).contains(&r),
            "of it",
        ));
    }
    let axes = ["overall throughput, four processes", "burst size B", "deliveries a second"];
    account(session, turns, axes, |p| p.per_second, claims)
}

/// A figure of a protocol with the largest bursts.
fn value(points: &[BurstPoint], medium: &str, name: &str, of: impl Fn(&BurstPoint) -> f64) -> f64 {
    let own = points.iter().filter(|p| p.protocol == name && p.medium == medium);
    own.max_by_key(|p| p.burst).map_or(f64::NAN, of)
}

fn claim(
    paper: &str,
    (medium, found): (&str, f64),
    holds: impl Fn(f64) -> bool,
    unit: &str,
) -> PaperClaim {
    PaperClaim {
        paper: paper.to_string(),
        found: format!("{found:.2} {unit}, with bursts of 100, {}", on(medium)),
        holds: ClaimVerdict::when(holds(found)),
    }
}

fn on(medium: &str) -> &'static str {
    match medium {
        "tcp" => "over TCP",
        "udp" => "over UDP",
        _ => "in the simulator",
    }
}

/// Each of these settings is of the protocols that have the parameter.
fn settings_json(wire: BurstMedium) -> serde_json::Map<String, serde_json::Value> {
    let all = rows_over(wire).flat_map(|row| settings(row, wire));
    all.map(|(name, value)| (name, value.into())).collect()
}

fn account(
    session: &ReproduceSession<'_>,
    turns: &BurstTurns,
    [title, x, y]: [&str; 3],
    of: impl Fn(&BurstPoint) -> RepeatRange,
    claims: Vec<PaperClaim>,
) -> Result<ExperimentAccount, Failure> {
    let BurstTurns { points, versus, absent } = turns;
    let mut parts = Vec::new();
    for medium in MEDIA {
        let here = || points.iter().filter(|p| p.medium == medium);
        let mut names: Vec<&str> = here().map(|p| &*p.protocol).collect();
        names.dedup();
        let line = |name: &str| ChartLine {
            name: name.to_string(),
            points: here()
                .filter(|p| p.protocol == name)
                .map(|p| (p.burst as f64, of(p).mean))
                .collect(),
        };
        let drawn: Vec<_> = names.into_iter().map(line).collect();
        let title = format!("{title}, {}", on(medium));
        let svg = lines(&Axes { title: &title, x, y }, &drawn)?;
        let caption = format!("Means of {} repeats.", repeats(session));
        parts.push(PagePart::Chart { name: medium.to_string(), caption, svg });
    }
    let rows = points.iter().map(|p| {
        let seen = of(p);
        vec![
            html! { (p.protocol) },
            html! { (p.medium) },
            html! { (p.burst) },
            html! { (format!("{:.0}", seen.mean)) },
            html! { (format!("{:.0} to {:.0}", seen.least, seen.most)) },
        ]
    });
    let head = ["protocol", "medium", "burst", y, "least and most of the repeats"];
    let head = head.map(String::from).to_vec();
    parts.push(PagePart::Table { caption: title.to_string(), head, rows: rows.collect() });
    parts.extend(versus::table(versus));
    Ok(ExperimentAccount {
        how: format!(
            "{MEMBERS} processes, {ROUNDS} rounds, {} repeats, payloads of {PAYLOAD_BYTES} bytes. Over \
             TCP and UDP: OS processes on this machine, which share its cores; in each repeat all \
             protocols take turns. In the simulator: 100 Mbit/s at every port, 60 us for a message \
             besides its bytes, 10 us of a processor for each. The paper measured other programs, on \
             computers of its time: what can be compared are ratios.{}",
            repeats(session),
            versus::describe_rivals(versus, absent)
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({
            "points": points,
            "versus": versus,
            "absent": absent,
            "parameters": {
                "all": { "members": MEMBERS, "rounds": ROUNDS, "payload_bytes": PAYLOAD_BYTES,
                         "window": WINDOW.to_string() },
                "tcp": settings_json(BurstMedium::Tcp),
                "udp": settings_json(BurstMedium::Udp),
                "sim": { "mbit": 100, "latency_us": 60, "step_us": 10 },
            },
        }),
    })
}
