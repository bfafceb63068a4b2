//! Bursts of OS processes over a real network: who starts them and gathers what they saw.

use super::{BurstRepeat, MEMBERS, WARM_UPS, warmed_up};
use crate::bench::child_process::answers;
use crate::bench::free_ports::free_addresses;
use amcast_core::Entry;
use amcast_core::parameters::PacketLane;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// How long members may take for all bursts.
const PATIENCE: Duration = Duration::from_secs(600);

/// The transport of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BurstMedium {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
}

impl BurstMedium {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// The value of the protocol's parameter that asks for it.
    pub const fn lane(self) -> PacketLane {
        match self {
            Self::Tcp => PacketLane::Stream,
            Self::Udp => PacketLane::Datagram,
        }
    }
}

/// The task of a member, on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BurstTask {
    pub(super) protocol: String,
    pub(super) wire: BurstMedium,
    pub(super) me: usize,
    pub(super) cluster_id: u64,
    /// By member, for streams and for datagrams.
    pub(super) addresses: Vec<(SocketAddr, SocketAddr)>,
    /// The sizes of bursts, one after the other.
    pub(super) bursts: Vec<usize>,
}

/// The report of a member at its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BurstReport {
    /// For each size of bursts.
    pub(super) seen: Vec<BurstRepeat>,
    /// Over the order of all that it delivered.
    pub(super) digest: u64,
}

/// One repeat of every size of bursts with a fresh group of processes on this machine, which the largest
/// size warms up.
///
/// # Errors
/// With what could not be set up, or that members delivered in different orders.
pub fn run(
    entry: &dyn Entry,
    wire: BurstMedium,
    bursts: &[usize],
) -> Result<Vec<BurstRepeat>, String> {
    let protocol = entry.name();
    let bursts = warmed_up(bursts);
    let addresses: Vec<_> = free_addresses(MEMBERS)?.into_iter().map(|at| (at, at)).collect();
    let cluster_id = u64::from(addresses[0].0.port()) << 32 | u64::from(std::process::id());
    let task = |me| {
        let (protocol, addresses) = (protocol.to_string(), addresses.clone());
        BurstTask { protocol, wire, me, cluster_id, addresses, bursts: bursts.clone() }
    };
    let said: Vec<BurstReport> = answers(&["bench", "--member"], (0..MEMBERS).map(task), PATIENCE)?;
    if said.iter().any(|one| one.digest != said[0].digest) {
        return Err(format!("{protocol}: members delivered in different orders"));
    }
    let of = |n: usize| BurstRepeat::of(&said.iter().map(|one| one.seen[n]).collect::<Vec<_>>());
    Ok((WARM_UPS..bursts.len()).map(of).collect())
}
