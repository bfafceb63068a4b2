//! `fastcast-tab1` to `fastcast-tab3` and `fastcast-fig5` to `fastcast-fig8`: FastCast beside protocols whose messages
//! travel a ring [FastCast 4]: in the simulator on the paper's network, and the figures on real sockets, too. `fastcast-strangers`
//! goes beyond the paper: strangers on the links.

mod latency;
mod low_load;
mod shares;
mod sockets;
mod strangers;
mod tables;
mod throughput;

pub(super) use latency::{low_load, response};
pub(super) use shares::follow;
pub(super) use strangers::run as strangers;
pub(super) use tables::{first, second, third};
pub(super) use throughput::run as throughput;

use super::chart::ChartLine;
use crate::bench::broadcasts::{
    BroadcastLoad, BroadcastResult, LINK_MBPS, SimulatedBroadcasts, run,
};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use amcast_core::Entry;
use amcast_core::Span;
use amcast_core::parameters::{HEARTBEAT, RETRY, SUSPECT};
use amcast_protocols::fastcast::FastCast;
use amcast_protocols::lcr::Lcr;
use amcast_protocols::ring_paxos_multicast::RingPaxosMulticast;
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// Bytes of each message, as in the paper.
const MESSAGE_BYTES: usize = 10_000;

/// The protocols that are compared.
static PROTOCOLS: [ComparedProtocol; 3] = [
    ComparedProtocol { entry: &FastCast, set: &[("lane", "multicast")] },
    ComparedProtocol { entry: &Lcr, set: &[("lane", "datagram"), ("ack_us", "5000")] },
    ComparedProtocol { entry: &RingPaxosMulticast, set: &[("lane", "multicast")] },
];

/// A protocol of the comparison, and the parameters that it sets besides those that all have.
struct ComparedProtocol {
    entry: &'static dyn Entry,
    set: &'static [(&'static str, &'static str)],
}

/// The network and its processes, for the page.
const MODEL: &str = "In the simulator: ports of 1 Gbit/s, of which 942 Mbit/s carry the bytes of datagrams, 30 us from one \
                     port to another, 2 us of a processor for each packet, 512 KiB in front of each port of the switch \
                     and 4 MiB in the buffer of a socket. The protocols are those that run on the wire; machines and \
                     network are a model.";

/// A protocol in a world.
struct ComparedRun {
    protocol: &'static dyn Entry,
    world: SimulatedBroadcasts,
}

/// Its result.
#[derive(Serialize)]
struct ComparedResult {
    protocol: &'static str,
    #[serde(flatten)]
    found: BroadcastResult,
}

/// Parameters that all have, and those of one.
fn parameters(own: &[(&str, &str)]) -> Vec<(String, String)> {
    // A message is one packet, which the network splits.
    let shared = [("packet_bytes", "12000"), ("window", "256")];
    let pairs = shared.iter().chain(own).map(|(name, value)| (name.to_string(), value.to_string()));
    let timers = [
        HEARTBEAT.setting(Span::millis(20)),
        SUSPECT.setting(Span::secs(2)),
        RETRY.setting(Span::millis(50)),
    ];
    pairs.chain(timers).collect()
}

/// A run for each protocol.
fn compared(members: usize, load: &BroadcastLoad) -> impl Iterator<Item = ComparedRun> {
    PROTOCOLS.iter().map(move |protocol| ComparedRun {
        protocol: protocol.entry,
        world: SimulatedBroadcasts {
            members,
            set: parameters(protocol.set),
            payload: MESSAGE_BYTES,
            load: load.clone(),
        },
    })
}

/// Runs all, over the cores; in the order given.
fn simulate(runs: &[ComparedRun]) -> Result<Vec<ComparedResult>, Failure> {
    let seen = Mutex::new(Vec::new());
    over_cores(runs.len() as u64, &progress(runs.len() as u64, "runs"), |n| {
        let ComparedRun { protocol, world } = &runs[n as usize];
        let found = run(*protocol, world).map_err(Failure::Failed)?;
        let result = ComparedResult { protocol: protocol.name(), found };
        seen.lock().unwrap_or_else(PoisonError::into_inner).push((n, result));
        Ok(false)
    })?;
    let mut seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    seen.sort_by_key(|(n, _)| *n);
    Ok(seen.into_iter().map(|(_, one)| one).collect())
}

/// A line for each protocol.
fn drawn(
    seen: &[ComparedResult],
    point: impl Fn(&BroadcastResult) -> (f64, f64),
) -> Vec<ChartLine> {
    let line = |name: &'static str| ChartLine {
        name: name.to_string(),
        points: seen.iter().filter(|s| s.protocol == name).map(|s| point(&s.found)).collect(),
    };
    PROTOCOLS.iter().map(|protocol| line(protocol.entry.name())).collect()
}

/// `N/(N-1)` of a link: the most that can be delivered.
fn optimum_mbps(members: usize) -> f64 {
    LINK_MBPS * members as f64 / (members - 1) as f64
}
