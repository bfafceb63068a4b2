//! `toto-regions`: beyond the paper, which expects more of ToTo where members are far apart: four regions, groups of 5 to 32
//! members, each `phi`, and the protocols with a sequencer or a token beside it.

use super::{PROTOCOLS, text};
use crate::bench::Latency;
use crate::bench::votes::{SimulatedVotes, VoteSource, run};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use crate::commands::reproduce::wide::{ONE_WAY_MS, PORT_PS_PER_BYTE, REGIONS, regions};
use amcast_core::parameters::{HEARTBEAT, RETRY, SUSPECT};
use amcast_core::{Entry, Span};
use amcast_protocols::total::{
    BB_RCAST_RCAST, BB_URCAST_URCAST, PB_RCAST, PB_URCAST, SB_RCAST, SB_URCAST,
};
use amcast_protocols::toto::{ALL_ACK, TOTO};
use amcast_sim::CarrierModel;
use amcast_sim::network::REGIONS_MAX;
use maud::html;
use serde::Serialize;
use serde_json::json;
use std::sync::{Mutex, PoisonError};

const SIZES: [usize; 5] = [5, 8, 16, 24, 32];
const QUICK_SIZES: [usize; 2] = [5, 16];

/// In percent of the members.
const PHI: [u64; 6] = [50, 60, 70, 80, 90, 100];
const QUICK_PHI: [u64; 3] = [50, 75, 100];

/// Messages a second of all members: few under way at a time, and many.
const LOADS: [u64; 2] = [20, 200];

/// Messages of a run.
const MESSAGES: usize = 1_000;
const QUICK_MESSAGES: usize = 100;

/// The protocols beside it: a sequencer that numbers broadcasts, or broadcasts what it is sent, and a token; each in the weakest form
/// and in a uniform one.
static BESIDE: [&dyn Entry; 6] =
    [&BB_RCAST_RCAST, &SB_RCAST, &PB_RCAST, &BB_URCAST_URCAST, &SB_URCAST, &PB_URCAST];

/// A protocol in a group.
#[derive(Clone, Copy)]
struct RegionJob {
    protocol: &'static dyn Entry,
    phi: Option<u64>,
    members: usize,
    per_second: u64,
}

/// Its result.
#[derive(Clone, Debug, Serialize)]
struct RegionPoint {
    protocol: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    phi: Option<u64>,
    members: usize,
    per_second: u64,
    latency_ns: Latency,
}

impl RegionPoint {
    fn mean_ms(&self) -> f64 {
        self.latency_ns.mean / 1e6
    }

    /// The protocol, with `phi` if it has one.
    fn name(&self) -> String {
        self.phi.map_or(self.protocol.to_string(), |phi| format!("{}, phi {phi} %", self.protocol))
    }
}

fn world(job: &RegionJob, messages: usize) -> SimulatedVotes {
    let mut model = CarrierModel::constant(Span::ZERO, Span::micros(250));
    model.network.port_ps_per_byte = PORT_PS_PER_BYTE;
    model.network.far = regions(REGIONS_MAX);
    model.step = Span::micros(10);
    // A process that asks again must wait for an answer from afar.
    let mut set = vec![
        HEARTBEAT.setting(Span::secs(1)),
        SUSPECT.setting(Span::secs(10)),
        RETRY.setting(Span::millis(400)),
    ];
    set.extend(job.phi.map(|phi| ("phi".to_string(), phi.to_string())));
    SimulatedVotes {
        members: job.members,
        set,
        model,
        source: VoteSource::Poisson,
        per_second: job.per_second,
        bytes: 100,
        messages,
        seed: 1,
    }
}

fn jobs(sizes: &[usize], phis: &[u64]) -> Vec<RegionJob> {
    let mut all = Vec::new();
    // The longest ones first: cores are busy to the end.
    for &members in sizes.iter().rev() {
        for per_second in LOADS {
            let job = |protocol, phi| RegionJob { protocol, phi, members, per_second };
            all.extend(phis.iter().map(|&phi| job(&TOTO as &dyn Entry, Some(phi))));
            all.push(job(&ALL_ACK, None));
            all.extend(BESIDE.iter().map(|&protocol| job(protocol, None)));
        }
    }
    all
}

fn simulate(jobs: &[RegionJob], messages: usize) -> Result<Vec<RegionPoint>, Failure> {
    let seen = Mutex::new(Vec::new());
    over_cores(jobs.len() as u64, &progress(jobs.len() as u64, "groups"), |n| {
        let RegionJob { protocol, phi, members, per_second } = jobs[n as usize];
        let found = run(protocol, &world(&jobs[n as usize], messages)).map_err(Failure::Failed)?;
        let latency_ns = Latency::of(&found.latencies);
        let point = RegionPoint { protocol: protocol.name(), phi, members, per_second, latency_ns };
        seen.lock().unwrap_or_else(PoisonError::into_inner).push((n, point));
        Ok(false)
    })?;
    let mut seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    seen.sort_by_key(|(n, point)| (point.members, *n));
    Ok(seen.into_iter().map(|(_, point)| point).collect())
}

/// Four regions.
pub(in crate::commands::reproduce) fn run_all(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    let (sizes, phis, messages): (&[usize], &[u64], _) = match session.quick {
        true => (&QUICK_SIZES, &QUICK_PHI, QUICK_MESSAGES),
        false => (&SIZES, &PHI, MESSAGES),
    };
    let seen = simulate(&jobs(sizes, phis), messages)?;
    let mut parts = Vec::new();
    for per_second in LOADS {
        parts.push(by_phi(&seen, sizes, per_second)?);
        parts.push(by_size(&seen, per_second)?);
    }
    parts.push(table(&seen));
    Ok(ExperimentAccount {
        how: format!(
            "Not in the paper. In the simulator: members spread over {}, with the delays that such regions have between each \
             other, 0.25 ms within one, 1 Gbit/s at each port, and 10 us of a processor for each input; over streams, and \
             the sequencer in the first region. Sources are random, with {} or {} messages a second of all members \
             together; members without a message vote after 0.1 ms. The latency is from the time at which a message is due to \
             its delivery at its sender. toto, all-ack, bb-rcast-rcast and sb-rcast enforce TO(NUA,WNUTO), \
             pb-rcast TO(NUA,WUTO), and the others TO(UA,SUTO). A message of ToTo takes its own way to each member and the way \
             of the votes from there, of which the farthest of a majority counts; with a sequencer it takes the way to the sequencer \
             and that from there, however far the others are. So ToTo is later where the sequencer is in the middle, as in the \
             first region, and does not depend on where a sequencer is.",
            REGIONS.join(", "),
            LOADS[0],
            LOADS[1]
        ),
        parts,
        claims: claims(&seen),
        failures: Vec::new(),
        figures: json!({ "points": seen, "regions": REGIONS, "one_way_ms": ONE_WAY_MS }),
    })
}

fn by_phi(seen: &[RegionPoint], sizes: &[usize], per_second: u64) -> Result<PagePart, Failure> {
    let line = |&members: &usize| {
        let own = seen.iter().filter(|p| p.members == members && p.per_second == per_second);
        let points = own.filter_map(|p| Some((p.phi? as f64, p.mean_ms()))).collect();
        ChartLine { name: format!("{members} members"), points }
    };
    let drawn: Vec<ChartLine> = sizes.iter().map(line).collect();
    let title = format!("{} over four regions, {per_second} messages/s", TOTO.name());
    let svg = lines(&Axes { title: &title, x: "phi, %", y: "mean latency, ms" }, &drawn)?;
    Ok(PagePart::Chart { name: format!("phi-{per_second}"), caption: title.clone(), svg })
}

/// The protocols of a chart: of ToTo the least `phi`.
fn is_drawn(point: &RegionPoint) -> bool {
    point.phi.is_none_or(|phi| phi == PHI[0])
}

fn by_size(seen: &[RegionPoint], per_second: u64) -> Result<PagePart, Failure> {
    let own = || seen.iter().filter(|p| p.per_second == per_second && is_drawn(p));
    let names = PROTOCOLS.iter().map(|p| p.name()).chain(BESIDE.iter().map(|p| p.name()));
    let line = |name: &'static str| ChartLine {
        name: name.to_string(),
        points: own()
            .filter(|p| p.protocol == name)
            .map(|p| (p.members as f64, p.mean_ms()))
            .collect(),
    };
    let drawn: Vec<ChartLine> = names.map(line).collect();
    let title = format!("protocols over four regions, {per_second} messages/s");
    let svg = lines(&Axes { title: &title, x: "members", y: "mean latency, ms" }, &drawn)?;
    Ok(PagePart::Chart { name: format!("members-{per_second}"), caption: title.clone(), svg })
}

fn table(seen: &[RegionPoint]) -> PagePart {
    let ms = |ns: u64| text(ns as f64 / 1e6);
    let row = |p: &RegionPoint| {
        vec![
            html! { (p.members) },
            html! { (p.per_second) },
            html! { (p.name()) },
            html! { (text(p.mean_ms())) },
            html! { (ms(p.latency_ns.p50)) },
            html! { (ms(p.latency_ns.p99)) },
        ]
    };
    let head = ["members", "messages/s", "protocol", "mean, ms", "median, ms", "99 %, ms"];
    PagePart::Table {
        caption: "Latency over four regions".to_string(),
        head: head.map(String::from).to_vec(),
        rows: seen.iter().map(row).collect(),
    }
}

/// The points of one group, of ToTo by `phi`.
fn groups(seen: &[RegionPoint], per_second: u64) -> impl Iterator<Item = &[RegionPoint]> {
    let groups = seen.chunk_by(|a, b| (a.members, a.per_second) == (b.members, b.per_second));
    groups.filter(move |group| group[0].per_second == per_second)
}

/// The latency of ToTo with the least `phi` in a group, as a part of that of another protocol.
fn part_of(group: &[RegionPoint], other: &dyn Entry) -> f64 {
    let of = |name: &str| {
        let point = group.iter().find(|p| p.protocol == name && is_drawn(p));
        point.map_or(f64::NAN, RegionPoint::mean_ms)
    };
    of(TOTO.name()) / of(other.name())
}

fn beside(seen: &[RegionPoint], other: &'static dyn Entry, paper: String) -> PaperClaim {
    let parts = LOADS.map(|per_second| {
        let parts: Vec<f64> = groups(seen, per_second).map(|group| part_of(group, other)).collect();
        super::extremes(parts.into_iter())
    });
    let tell = |(per_second, (least, most)): (u64, (f64, f64))| {
        format!("{least:.2} to {most:.2} of its latency at {per_second} messages/s")
    };
    PaperClaim {
        paper,
        found: LOADS.into_iter().zip(parts).map(tell).collect::<Vec<_>>().join(", "),
        holds: ClaimVerdict::when(parts.iter().all(|(_, most)| *most < 1.0)),
    }
}

/// Of each group the best `phi`, and how much it saves.
fn best_phi(seen: &[RegionPoint], per_second: u64) -> Vec<(usize, u64, f64)> {
    let best = |group: &[RegionPoint]| {
        let own = || group.iter().filter(|p| p.phi.is_some());
        let first = own().next()?;
        let best = own().min_by(|a, b| a.mean_ms().total_cmp(&b.mean_ms()))?;
        Some((first.members, best.phi?, 1.0 - best.mean_ms() / first.mean_ms()))
    };
    groups(seen, per_second).filter_map(best).collect()
}

fn claims(seen: &[RegionPoint]) -> Vec<PaperClaim> {
    let [_, busy] = LOADS;
    let best = best_phi(seen, busy);
    let tell = |&(members, phi, saves): &(usize, u64, f64)| {
        format!("{members} members: {phi} %, {:.1} % sooner than with 50 %", saves * 100.0)
    };
    let wider = PaperClaim {
        paper: "the best phi is above n/2 where members are many and far apart, and many messages are concurrent"
            .to_string(),
        found: best.iter().map(tell).collect::<Vec<_>>().join("; "),
        holds: ClaimVerdict::when(
            best.last().is_some_and(|(_, phi, saves)| *phi > PHI[0] && *saves > 0.01),
        ),
    };
    let expects =
        "ToTo is valuable over a wide area, where waiting for a certain member costs too much";
    vec![
        beside(seen, &ALL_ACK, format!("{expects}: it delivers sooner than all-ack")),
        beside(seen, &SB_RCAST, format!("{expects}: sooner than a sequencer")),
        beside(seen, &PB_RCAST, format!("{expects}: sooner than a token")),
        wider,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(protocol: &'static str, phi: Option<u64>, mean: f64) -> RegionPoint {
        let latency_ns = Latency { mean: mean * 1e6, ..Latency::default() };
        RegionPoint { protocol, phi, members: 5, per_second: 200, latency_ns }
    }

    #[test]
    fn the_best_phi_is_found_and_others_are_compared_with_the_least_one() {
        let seen = [
            point(TOTO.name(), Some(50), 40.0),
            point(TOTO.name(), Some(70), 30.0),
            point(ALL_ACK.name(), None, 50.0),
        ];
        let best = best_phi(&seen, 200);
        assert_eq!(best.len(), 1);
        let (members, phi, saves) = best[0];
        assert_eq!((members, phi), (5, 70));
        assert!((saves - 0.25).abs() < 1e-9 && best_phi(&seen, 20).is_empty());
        assert!((part_of(&seen, &ALL_ACK) - 0.8).abs() < 1e-9);
        let slower = [point(TOTO.name(), Some(50), 60.0), seen[2].clone()];
        let claim = |seen: &[RegionPoint]| beside(seen, &ALL_ACK, String::new());
        assert_eq!(claim(&slower).holds, ClaimVerdict::No, "{}", claim(&slower).found);
        assert!(claim(&seen).found.contains("0.80 to 0.80 of its latency at 200"));
    }
}
