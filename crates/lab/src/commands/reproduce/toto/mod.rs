//! `toto-tab1` to `toto-tab5`, `toto-fig5`, `toto-fig6`, `toto-regions` and `toto-uniform`: ToTo beside all-ack [ToTo 6], in
//! the simulator on the paper's network and on real sockets, and beside sequencers and tokens where members are far apart.

mod index;
mod latency;
mod model;
mod printed;
mod regions;
mod sockets;
mod uniform;
mod votes_table;

pub(super) use index::{periodic as index_periodic, poisson as index_poisson};
pub(super) use latency::{periodic as latency_periodic, poisson as latency_poisson};
pub(super) use model::{periodic as model_periodic, poisson as model_poisson};
pub(super) use regions::run_all as regions;
pub(super) use uniform::run_all as uniform;
pub(super) use votes_table::run as votes_table;

use super::ReproduceSession;
use crate::bench::Latency;
use crate::bench::votes::{IndexCounts, SimulatedVotes, VoteResult, VoteSource, run};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use amcast_core::parameters::{HEARTBEAT, LANE, PacketLane, RETRY, SUSPECT};
use amcast_core::{Entry, Span};
use amcast_protocols::toto::{ALL_ACK, TOTO, VotedOrder};
use amcast_sim::CarrierModel;
use printed::{PrintedRow, printed};
use serde::Serialize;
use std::cell::OnceCell;
use std::sync::{Mutex, PoisonError};

/// Members, each of which sends; with `phi` = 50 % a message needs the votes of five of them at least.
const MEMBERS: usize = 8;
const INDEX_LEAST: usize = MEMBERS / 2 + 1;

/// Messages a second of all members together.
const LOADS: [u64; 4] = [50, 100, 150, 200];
const QUICK_LOADS: [u64; 2] = [50, 200];

/// Bytes of a message. The paper gives this size for its measurement of throughput, and none for latencies.
const MESSAGE_BYTES: usize = 1_000;

/// Messages of a run.
const MESSAGES: usize = 4_000;
const QUICK_MESSAGES: usize = 1_000;

/// Runs with other times of the sources: two periodic sources of one run keep their distance all the time.
const REPEATS: u64 = 20;
const QUICK_REPEATS: u64 = 2;

/// 10 Mbit/s.
const BUS_PS_PER_BYTE: u64 = 800_000;

/// The bytes that a packet occupies besides its own: 38 of Ethernet, with the gap between two frames, and 28 of UDP over IP.
const HEAD_BYTES: u64 = 66;

/// From one end of the cable to the other.
const CABLE: Span = Span::micros(10);

/// How long a host is busy with an input. One that takes in a message has two: the message, and that its delivery is over.
const INPUT: Span = Span::millis(1);

/// The world, for the page.
const MODEL: &str = "In the simulator: eight hosts on a cable of 10 Mbit/s, which carries one frame at a time, and each multicast \
                     once, without collisions. A host takes 1 ms for each input, so 2 ms for each message of others, with \
                     its delivery: 500 messages a second at most, twice the 250 that the paper measured, as a footnote there \
                     says of a newer version. Messages have 1 kB. Nobody votes alone: all members are sources, and their next \
                     messages are the votes, as in the paper. The protocols are those that run on the wire; hosts and network are \
                     a model.";

/// The two, ours first.
static PROTOCOLS: [&VotedOrder; 2] = [&TOTO, &ALL_ACK];

/// Both sources' runs, of which tables and figures are views.
#[derive(Default)]
pub(super) struct VotedRuns {
    periodic: OnceCell<Vec<VotedPoint>>,
    poisson: OnceCell<Vec<VotedPoint>>,
}

/// A protocol at a load: all runs together.
#[derive(Debug, Serialize)]
struct VotedPoint {
    protocol: &'static str,
    per_second: u64,
    /// From the time at which a message is due to its delivery at its sender.
    latency_ns: Latency,
    /// The means of the runs: the least and the most, in milliseconds.
    repeats_ms: [f64; 2],
    mean_index: f64,
    mean_concurrency: f64,
    counts: IndexCounts,
    overflows: u64,
}

impl VotedPoint {
    fn of(protocol: &'static str, per_second: u64, runs: &[VoteResult]) -> Option<Self> {
        let (first, others) = runs.split_first()?;
        let mut all = first.clone();
        for run in others {
            all.latencies += &run.latencies;
            all.counts.merge(&run.counts);
            all.overflows += run.overflows;
        }
        let means = || runs.iter().map(|run| run.latencies.mean() / 1e6);
        Some(Self {
            protocol,
            per_second,
            latency_ns: Latency::of(&all.latencies),
            repeats_ms: [means().fold(f64::INFINITY, f64::min), means().fold(0.0, f64::max)],
            mean_index: all.counts.mean_index(),
            mean_concurrency: all.counts.mean_concurrency(),
            counts: all.counts,
            overflows: all.overflows,
        })
    }

    fn mean_ms(&self) -> f64 {
        self.latency_ns.mean / 1e6
    }

    /// From one message of a source to its next one, on average, in milliseconds.
    fn interval_ms(&self) -> f64 {
        MEMBERS as f64 * 1e3 / self.per_second as f64
    }

    fn printed(&self, source: VoteSource) -> Option<PrintedRow> {
        printed(source, self.per_second, self.protocol == TOTO.name())
    }
}

/// Both protocols at a load.
fn pairs(points: &[VotedPoint]) -> impl Iterator<Item = (&VotedPoint, &VotedPoint)> {
    points.chunks_exact(2).map(|pair| (&pair[0], &pair[1]))
}

/// How many times as long a message takes with all-ack.
fn speed_up((toto, all_ack): (&VotedPoint, &VotedPoint)) -> f64 {
    all_ack.mean_ms() / toto.mean_ms()
}

fn text(value: f64) -> String {
    format!("{value:.2}")
}

/// The least and the most.
fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), v| (l.min(v), m.max(v)))
}

fn world(source: VoteSource, per_second: u64, messages: usize, seed: u64) -> SimulatedVotes {
    let mut model = CarrierModel::constant(Span::ZERO, CABLE);
    model.network.port_ps_per_byte = BUS_PS_PER_BYTE;
    model.network.head_bytes = HEAD_BYTES;
    model.network.bus = true;
    model.step = INPUT;
    let quiet = [
        LANE.setting(PacketLane::Multicast),
        HEARTBEAT.setting(Span::secs(2)),
        SUSPECT.setting(Span::secs(60)),
        RETRY.setting(Span::secs(10)),
        // Acknowledgements that free memory travel with messages, too.
        ("ack_us".to_string(), "1000000".to_string()),
        ("vote_us".to_string(), "10000000".to_string()),
    ];
    let (members, bytes) = (MEMBERS, MESSAGE_BYTES);
    SimulatedVotes {
        members,
        set: quiet.to_vec(),
        model,
        source,
        per_second,
        bytes,
        messages,
        seed,
    }
}

/// Runs both protocols at all loads, over the cores.
fn simulate(
    session: &ReproduceSession<'_>,
    source: VoteSource,
) -> Result<Vec<VotedPoint>, Failure> {
    let (loads, messages, repeats): (&[u64], _, _) = match session.quick {
        true => (&QUICK_LOADS, QUICK_MESSAGES, QUICK_REPEATS),
        false => (&LOADS, MESSAGES, REPEATS),
    };
    let jobs: Vec<_> =
        loads.iter().flat_map(|&load| PROTOCOLS.iter().map(move |p| (*p, load))).collect();
    let seen = Mutex::new(vec![Vec::new(); jobs.len()]);
    let count = jobs.len() as u64 * repeats;
    over_cores(count, &progress(count, "runs"), |n| {
        let at = n as usize % jobs.len();
        let (protocol, load) = jobs[at];
        let seed = n / jobs.len() as u64 + 1;
        let found = run(protocol, &world(source, load, messages, seed)).map_err(Failure::Failed)?;
        seen.lock().unwrap_or_else(PoisonError::into_inner)[at].push((seed, found));
        Ok(false)
    })?;
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    let of = |(&(protocol, load), mut runs): (&(&VotedOrder, u64), Vec<(u64, VoteResult)>)| {
        runs.sort_by_key(|(seed, _)| *seed);
        let runs: Vec<_> = runs.into_iter().map(|(_, run)| run).collect();
        VotedPoint::of(protocol.name(), load, &runs)
    };
    Ok(jobs.iter().zip(seen).filter_map(of).collect())
}

/// The points of a source, by load, ToTo before all-ack. They are simulated once for all experiments of a call.
fn points<'a>(
    session: &'a ReproduceSession<'_>,
    source: VoteSource,
) -> Result<&'a [VotedPoint], Failure> {
    let cell = match source {
        VoteSource::Periodic => &session.votes.periodic,
        VoteSource::Poisson => &session.votes.poisson,
    };
    if let Some(points) = cell.get() {
        return Ok(points);
    }
    let made = simulate(session, source)?;
    Ok(cell.get_or_init(|| made))
}

/// The points with indices that no run may have, at any times of the sources.
fn impossible(points: &[VotedPoint]) -> Vec<String> {
    let wrong = |point: &&VotedPoint| {
        let least = if point.protocol == TOTO.name() { INDEX_LEAST } else { MEMBERS };
        point.counts.probabilities().any(|(index, _, _)| index < least)
    };
    let says = |point: &VotedPoint| {
        format!("{} at {}/s: an index below the least one", point.protocol, point.per_second)
    };
    points.iter().filter(wrong).map(says).collect()
}
