//! `to-fig4` and `to-fig5`: latency and throughput of the ten protocols under bursts [TO 4.2].
//!
//! Four processes, ten rounds: in each every process broadcasts a burst of B messages of 8 bytes, and
//! waits until it has delivered the bursts of all. Latency is of a process's own messages, averaged
//! over its messages and then over processes; throughput is the sum, over processes, of what one
//! delivers each second of a round, averaged over rounds.

use super::Session;
use super::chart::{Axes, Line, lines};
use super::page::{Account, Claim, Holds, Part};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use amcast_core::trace::Event;
use amcast_core::{Config, Entry, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::total::TABLE_3;
use amcast_sim::{Cast, Choices, Model, Outcome, Pace, Plan, Recorded};
use maud::html;
use serde::Serialize;
use serde_json::json;
use std::sync::{Mutex, PoisonError};

const MEMBERS: usize = 4;
const ROUNDS: usize = 10;
/// A sender's identifier and a timestamp [TO 4.2].
const PAYLOAD_BYTES: usize = 8;
const REPEATS: u64 = 10;
const BURSTS: [usize; 11] = [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
const QUICK_BURSTS: [usize; 3] = [1, 10, 100];

/// The paper's network: 100 Mbit/s, switched; a message takes this long besides its bytes.
const LATENCY: Span = Span::micros(60);
/// Picoseconds that a byte occupies a port of 100 Mbit/s.
const PORT_PS_PER_BYTE: u64 = 80_000;
/// How long a process of that time is busy with one message.
const STEP: Span = Span::micros(10);
/// Processes begin a repeat at most so far apart.
const APART: Span = Span::micros(200);

/// What was seen of one protocol with bursts of one size: the mean over repeats, and the extremes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) protocol: &'static str,
    pub(super) medium: &'static str,
    pub(super) burst: usize,
    pub(super) latency_us: Seen,
    pub(super) per_second: Seen,
    /// Packets that left all processes, for each delivery.
    pub(super) repeats: usize,
}

/// The mean over repeats, and the extremes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Seen {
    pub(super) mean: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Seen {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count().max(1) as f64;
        Self {
            mean: values.clone().sum::<f64>() / count,
            least: values.clone().fold(f64::INFINITY, f64::min),
            most: values.fold(0.0, f64::max),
        }
    }
}

/// One repeat: mean latency in microseconds, and deliveries each second of the system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    latency_us: f64,
    per_second: f64,
}

/// What a process saw, to be made a [`Repeat`] of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// When each own message was broadcast.
    casts: Vec<Time>,
    own: usize,
    delivered: usize,
    latency_ns: u64,
    /// What it delivered each second of each round.
    rates: Vec<f64>,
}

impl Watch {
    pub(super) fn cast(&mut self, now: Time) {
        self.casts.push(now);
    }

    /// A delivery, of an own message or another's, with bursts of `burst` by [`MEMBERS`].
    pub(super) fn deliver(&mut self, now: Time, own: bool, burst: usize) {
        if own {
            self.latency_ns += self.casts.get(self.own).map_or(0, |cast| now.since(*cast).0);
            self.own += 1;
        }
        self.delivered += 1;
        let round = burst * MEMBERS;
        if self.delivered.is_multiple_of(round) {
            let first = self.casts.get((self.delivered / round - 1) * burst);
            let lasted = first.map_or(1, |cast| now.since(*cast).0.max(1));
            self.rates.push(round as f64 * 1e9 / lasted as f64);
        }
    }
}

fn repeat_of(watches: &[Watch]) -> Repeat {
    let mean = |w: &Watch| w.latency_ns as f64 / w.own.max(1) as f64 / 1e3;
    let rate = |w: &Watch| w.rates.iter().sum::<f64>() / w.rates.len().max(1) as f64;
    Repeat {
        latency_us: watches.iter().map(mean).sum::<f64>() / watches.len() as f64,
        per_second: watches.iter().map(rate).sum(),
    }
}

/// One repeat in the simulator; processes begin at times drawn from `seed`.
fn simulate(
    entry: &dyn Entry,
    config: &Config,
    burst: usize,
    seed: u64,
) -> Result<Repeat, Failure> {
    let mut model = Model::constant(Span::micros(2), LATENCY);
    model.network.port_ps_per_byte = PORT_PS_PER_BYTE;
    model.step = STEP;
    let mut rng = amcast_core::rng::Rng::new(seed);
    let begins: Vec<_> = (0..MEMBERS).map(|_| Time(rng.below(APART.0))).collect();
    let cast = |n: usize| Cast {
        at: begins[n % MEMBERS],
        sender: Pid((n % MEMBERS) as u32),
        dst: GroupSet::first(1),
        bytes: PAYLOAD_BYTES,
    };
    let mut casts: Vec<_> = (0..MEMBERS * burst * ROUNDS).map(cast).collect();
    casts.sort_by_key(|cast| cast.at);
    let plan = Plan {
        model,
        casts,
        pace: Pace::Rounds(burst as u32),
        strikes: Vec::new(),
        calm: Time::ZERO + Span::millis(1),
        drift_ppm: vec![0; MEMBERS],
        settle: Span::secs(600),
        quiet: Span::millis(1),
        events_max: 600_000_000,
    };
    let mut watches = vec![Watch::default(); MEMBERS];
    let recorded = Recorded { plan, choices: Choices::default() };
    let report = amcast_sim::replay(entry, config, &recorded, &mut |event| match *event {
        Event::Cast { t, p, .. } => watches[p.index()].cast(t),
        Event::Deliver { t, p, m } => watches[p.index()].deliver(t, m.sender == p, burst),
        _ => {}
    });
    let report = report.map_err(Failure::misuse)?;
    if report.outcome != Outcome::Settled {
        return Err(Failure::Failed(format!("{}: the run did not settle", entry.name())));
    }
    Ok(repeat_of(&watches))
}

fn config(entry: &dyn Entry) -> Result<Config, Failure> {
    // A burst leaves at once.
    let set = [("window".to_string(), "128".to_string())].into();
    let raw = RawConfig { groups: 1, replicas: MEMBERS, clients: 0, set, ..RawConfig::default() };
    raw.check(entry.about().params).map_err(Failure::misuse)
}

fn simulated(session: &Session<'_>) -> Result<Vec<Point>, Failure> {
    let bursts = if session.quick { &QUICK_BURSTS[..] } else { &BURSTS };
    let jobs: Vec<_> =
        TABLE_3.iter().flat_map(|row| bursts.iter().map(move |b| (*row, *b))).collect();
    let points = Mutex::new(Vec::new());
    over_cores(jobs.len() as u64, &progress(jobs.len() as u64, "bursts"), |n| {
        let (row, burst) = jobs[n as usize];
        let config = config(row)?;
        let repeats = (0..REPEATS).map(|seed| simulate(row, &config, burst, seed));
        let repeats = repeats.collect::<Result<Vec<_>, _>>()?;
        let point = point(row.name(), "sim", burst, &repeats);
        points.lock().unwrap_or_else(PoisonError::into_inner).push((n, point));
        Ok(false)
    })?;
    let mut points = points.into_inner().unwrap_or_else(PoisonError::into_inner);
    points.sort_by_key(|(n, _)| *n);
    Ok(points.into_iter().map(|(_, point)| point).collect())
}

fn point(protocol: &'static str, medium: &'static str, burst: usize, repeats: &[Repeat]) -> Point {
    Point {
        protocol,
        medium,
        burst,
        latency_us: Seen::of(repeats.iter().map(|r| r.latency_us)),
        per_second: Seen::of(repeats.iter().map(|r| r.per_second)),
        repeats: repeats.len(),
    }
}

fn points<'a>(session: &'a Session<'_>) -> Result<&'a [Point], Failure> {
    if session.bursts.get().is_none() {
        let made = simulated(session)?;
        session.bursts.get_or_init(|| made);
    }
    Ok(session.bursts.get().map_or(&[], |points| points))
}

/// Figure 4.
pub(super) fn latency(session: &Session<'_>) -> Result<Account, Failure> {
    let points = points(session)?;
    let at = |name: &str| value(points, name, |p| p.latency_us.mean);
    let uniform = |a: &str, b: &str| at(a) / at(b);
    let sequencer = (at("bb-rcast-rcast") + at("sb-rcast")) / 2.0;
    let claims = vec![
        claim(
            "with a token, uniform delivery costs 1.2 times the latency (Spread Safe, Agreed)",
            uniform("pb-urcast", "pb-rcast"),
            |r| r <= 1.4,
            "times, with bursts of 100",
        ),
        claim(
            "a token has 2 to 5 times the latency of a sequencer (Spread, Ensemble)",
            at("pb-rcast") / sequencer,
            |r| (2.0..=5.0).contains(&r),
            "times, with bursts of 100",
        ),
        claim(
            "broadcast-broadcast and send-broadcast perform almost the same (Ensemble)",
            at("bb-rcast-rcast") / at("sb-rcast"),
            |r| (0.8..1.25).contains(&r),
            "of the latency, with bursts of 100",
        ),
    ];
    let axes = ["average message latency, four processes", "burst size B", "microseconds"];
    account(points, axes, |p| p.latency_us, claims)
}

/// Figure 5.
pub(super) fn throughput(session: &Session<'_>) -> Result<Account, Failure> {
    let points = points(session)?;
    let at = |name: &str| value(points, name, |p| p.per_second.mean);
    let sequencer = (at("bb-rcast-rcast") + at("sb-rcast")) / 2.0;
    let claims = vec![
        claim(
            "with a token, uniform delivery costs 15 % of the throughput (Spread Safe, Agreed)",
            at("pb-urcast") / at("pb-rcast"),
            |r| r >= 0.75,
            "of it is left, with bursts of 100",
        ),
        claim(
            "a token has half of the throughput of a sequencer (Spread, Ensemble)",
            at("pb-rcast") / sequencer,
            |r| (0.4..0.65).contains(&r),
            "of it, with bursts of 100",
        ),
    ];
    let axes = ["overall throughput, four processes", "burst size B", "deliveries a second"];
    account(points, axes, |p| p.per_second, claims)
}

/// A figure of a protocol with the largest bursts.
fn value(points: &[Point], name: &str, of: impl Fn(&Point) -> f64) -> f64 {
    let own = points.iter().filter(|p| p.protocol == name);
    own.max_by_key(|p| p.burst).map_or(f64::NAN, of)
}

fn claim(paper: &str, found: f64, holds: impl Fn(f64) -> bool, unit: &str) -> Claim {
    Claim {
        paper: paper.to_string(),
        found: format!("{found:.2} {unit}"),
        holds: Holds::when(holds(found)),
    }
}

fn account(
    points: &[Point],
    [title, x, y]: [&str; 3],
    of: impl Fn(&Point) -> Seen,
    claims: Vec<Claim>,
) -> Result<Account, Failure> {
    let line = |row: &&'static amcast_protocols::total::Row| Line {
        name: row.name().to_string(),
        points: points
            .iter()
            .filter(|p| p.protocol == row.name())
            .map(|p| (p.burst as f64, of(p).mean))
            .collect(),
    };
    let drawn: Vec<_> = TABLE_3.iter().map(line).collect();
    let rows = points.iter().map(|p| {
        let seen = of(p);
        vec![
            html! { (p.protocol) },
            html! { (p.burst) },
            html! { (format!("{:.0}", seen.mean)) },
            html! { (format!("{:.0} to {:.0}", seen.least, seen.most)) },
        ]
    });
    let head = ["protocol", "burst", y, "least and most of ten repeats"];
    Ok(Account {
        how: format!(
            "{MEMBERS} processes, {ROUNDS} rounds, {REPEATS} repeats, payloads of {PAYLOAD_BYTES} \
             bytes. In the simulator: 100 Mbit/s at every port, {} us for a message besides its \
             bytes, {} us of a processor for each. The paper measured other programs, on computers \
             of its time: what can be compared are ratios.",
            LATENCY.0 / 1000,
            STEP.0 / 1000
        ),
        parts: vec![
            Part::Chart {
                name: "sim".to_string(),
                caption: "In the simulator, means of ten repeats.".to_string(),
                svg: lines(&Axes { title, x, y }, &drawn)?,
            },
            Part::Table {
                caption: title.to_string(),
                head: head.map(String::from).to_vec(),
                rows: rows.collect(),
            },
        ],
        claims,
        failures: Vec::new(),
        figures: json!({ "points": points }),
    })
}
