//! `to-fig4` and `to-fig5`: latency and throughput of the ten protocols under bursts [TO 4.2], on real
//! processes of this machine and in the simulator; see [`crate::bench::bursts`].

use super::Session;
use super::chart::{Axes, Line, lines};
use super::page::{Account, Claim, Holds, Part};
use crate::bench::bursts::{MEMBERS, PAYLOAD_BYTES, Point, ROUNDS, Repeat, Seen, WINDOW, Wire};
use crate::bench::bursts::{config, parameters, run_on, run_simulated};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use amcast_core::Entry;
use amcast_protocols::total::TABLE_3;
use maud::html;
use serde_json::json;
use std::sync::{Mutex, PoisonError};

const REPEATS: usize = 10;
const QUICK_REPEATS: usize = 3;
const BURSTS: [usize; 11] = [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
const QUICK_BURSTS: [usize; 3] = [1, 10, 100];
const MEDIA: [&str; 3] = ["tcp", "udp", "sim"];

fn bursts(session: &Session<'_>) -> &'static [usize] {
    if session.quick { &QUICK_BURSTS } else { &BURSTS }
}

const fn repeats(session: &Session<'_>) -> usize {
    if session.quick { QUICK_REPEATS } else { REPEATS }
}

fn simulated(session: &Session<'_>) -> Result<Vec<Point>, Failure> {
    let (bursts, repeats) = (bursts(session), repeats(session) as u64);
    let jobs: Vec<_> =
        TABLE_3.iter().flat_map(|row| bursts.iter().map(move |b| (*row, *b))).collect();
    let points = Mutex::new(Vec::new());
    over_cores(jobs.len() as u64, &progress(jobs.len() as u64, "bursts"), |n| {
        let (row, burst) = jobs[n as usize];
        let config = config(row, &[]).map_err(Failure::misuse)?;
        let repeats = (0..repeats).map(|seed| run_simulated(row, &config, burst, seed));
        let repeats = repeats.collect::<Result<Vec<_>, _>>().map_err(Failure::Failed)?;
        let point = Point::of(row.name(), "sim", burst, &repeats);
        points.lock().unwrap_or_else(PoisonError::into_inner).push((n, point));
        Ok(false)
    })?;
    let mut points = points.into_inner().unwrap_or_else(PoisonError::into_inner);
    points.sort_by_key(|(n, _)| *n);
    Ok(points.into_iter().map(|(_, point)| point).collect())
}

/// Real processes: in each repeat all protocols take turns.
fn on_the_wire(session: &Session<'_>, wire: Wire) -> Result<Vec<Point>, Failure> {
    let bursts = bursts(session);
    let mut seen: Vec<Vec<Vec<Repeat>>> = vec![vec![Vec::new(); bursts.len()]; TABLE_3.len()];
    let turns = repeats(session) * TABLE_3.len();
    let bar = progress(turns as u64, &format!("groups over {}", wire.name()));
    for turn in 0..repeats(session) {
        // Each begins once: what else the machine does meets all alike.
        for at in (0..TABLE_3.len()).map(|at| (at + turn) % TABLE_3.len()) {
            let repeat = run_on(TABLE_3[at].name(), wire, bursts).map_err(Failure::Failed)?;
            seen[at].iter_mut().zip(repeat).for_each(|(all, one)| all.push(one));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let of_row = |(row, seen): (&&amcast_protocols::total::Row, Vec<Vec<Repeat>>)| {
        let name = row.name();
        let point =
            move |(burst, all): (&usize, Vec<Repeat>)| Point::of(name, wire.name(), *burst, &all);
        bursts.iter().zip(seen).map(point).collect::<Vec<_>>()
    };
    Ok(TABLE_3.iter().zip(seen).flat_map(of_row).collect())
}

fn measure(session: &Session<'_>) -> Result<Vec<Point>, Failure> {
    let mut points = on_the_wire(session, Wire::Tcp)?;
    points.extend(on_the_wire(session, Wire::Udp)?);
    points.extend(simulated(session)?);
    Ok(points)
}

fn points<'a>(session: &'a Session<'_>) -> Result<&'a [Point], Failure> {
    if session.bursts.get().is_none() {
        let made = measure(session)?;
        session.bursts.get_or_init(|| made);
    }
    Ok(session.bursts.get().map_or(&[], |points| points))
}

/// Figure 4.
pub(super) fn latency(session: &Session<'_>) -> Result<Account, Failure> {
    let points = points(session)?;
    let mut claims = Vec::new();
    for medium in MEDIA {
        let at = |name: &str| value(points, medium, name, |p| p.latency_us.mean);
        let sequencer = (at("bb-rcast-rcast") + at("sb-rcast")) / 2.0;
        claims.push(claim(
            "with a token, uniform delivery costs 1.2 times the latency (Spread Safe, Agreed)",
            (medium, at("pb-urcast") / at("pb-rcast")),
            |r| (1.0..=1.5).contains(&r),
            "times",
        ));
        claims.push(claim(
            "a token has 2 to 5 times the latency of a sequencer (Spread, Ensemble)",
            (medium, at("pb-rcast") / sequencer),
            |r| (2.0..=5.0).contains(&r),
            "times",
        ));
        claims.push(claim(
            "broadcast-broadcast and send-broadcast perform almost the same (Ensemble)",
            (medium, at("bb-rcast-rcast") / at("sb-rcast")),
            |r| (0.8..1.25).contains(&r),
            "of the latency",
        ));
    }
    let axes = ["average message latency, four processes", "burst size B", "microseconds"];
    account(session, points, axes, |p| p.latency_us, claims)
}

/// Figure 5.
pub(super) fn throughput(session: &Session<'_>) -> Result<Account, Failure> {
    let points = points(session)?;
    let mut claims = Vec::new();
    for medium in MEDIA {
        let at = |name: &str| value(points, medium, name, |p| p.per_second.mean);
        let sequencer = (at("bb-rcast-rcast") + at("sb-rcast")) / 2.0;
        claims.push(claim(
            "with a token, uniform delivery costs 15 % of the throughput (Spread Safe, Agreed)",
            (medium, at("pb-urcast") / at("pb-rcast")),
            |r| (0.7..=1.0).contains(&r),
            "of it is left",
        ));
        claims.push(claim(
            "a token has half of the throughput of a sequencer (Spread, Ensemble)",
            (medium, at("pb-rcast") / sequencer),
            |r| (0.4..0.65).contains(&r),
            "of it",
        ));
    }
    let axes = ["overall throughput, four processes", "burst size B", "deliveries a second"];
    account(session, points, axes, |p| p.per_second, claims)
}

/// A figure of a protocol with the largest bursts.
fn value(points: &[Point], medium: &str, name: &str, of: impl Fn(&Point) -> f64) -> f64 {
    let own = points.iter().filter(|p| p.protocol == name && p.medium == medium);
    own.max_by_key(|p| p.burst).map_or(f64::NAN, of)
}

fn claim(
    paper: &str,
    (medium, found): (&str, f64),
    holds: impl Fn(f64) -> bool,
    unit: &str,
) -> Claim {
    Claim {
        paper: paper.to_string(),
        found: format!("{found:.2} {unit}, with bursts of 100, {}", on(medium)),
        holds: Holds::when(holds(found)),
    }
}

fn on(medium: &str) -> &'static str {
    match medium {
        "tcp" => "over TCP",
        "udp" => "over UDP",
        _ => "in the simulator",
    }
}

fn told(wire: Wire) -> serde_json::Map<String, serde_json::Value> {
    parameters(wire).into_iter().map(|(name, value)| (name.to_string(), value.into())).collect()
}

fn account(
    session: &Session<'_>,
    points: &[Point],
    [title, x, y]: [&str; 3],
    of: impl Fn(&Point) -> Seen,
    claims: Vec<Claim>,
) -> Result<Account, Failure> {
    let mut parts = Vec::new();
    for medium in MEDIA {
        let line = |row: &&amcast_protocols::total::Row| Line {
            name: row.name().to_string(),
            points: points
                .iter()
                .filter(|p| p.protocol == row.name() && p.medium == medium)
                .map(|p| (p.burst as f64, of(p).mean))
                .collect(),
        };
        let drawn: Vec<_> = TABLE_3.iter().map(line).collect();
        let title = format!("{title}, {}", on(medium));
        let svg = lines(&Axes { title: &title, x, y }, &drawn)?;
        let caption = format!("Means of {} repeats.", repeats(session));
        parts.push(Part::Chart { name: medium.to_string(), caption, svg });
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
    parts.push(Part::Table { caption: title.to_string(), head, rows: rows.collect() });
    Ok(Account {
        how: format!(
            "{MEMBERS} processes, {ROUNDS} rounds, {} repeats, payloads of {PAYLOAD_BYTES} bytes. Over \
             TCP and UDP: OS processes on this machine, which share its cores; in each repeat all \
             protocols take turns. In the simulator: 100 Mbit/s at every port, 60 us for a message \
             besides its bytes, 10 us of a processor for each. The paper measured other programs, on \
             computers of its time: what can be compared are ratios.",
            repeats(session)
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({
            "points": points,
            "parameters": {
                "all": { "members": MEMBERS, "rounds": ROUNDS, "payload_bytes": PAYLOAD_BYTES,
                         "window": WINDOW },
                "tcp": told(Wire::Tcp),
                "udp": told(Wire::Udp),
                "sim": { "mbit": 100, "latency_us": 60, "step_us": 10 },
            },
        }),
    })
}
