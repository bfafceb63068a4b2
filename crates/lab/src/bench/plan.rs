//! The plan of a measurement: a row of a table, before there are figures in it.

use amcast_core::{Config, ConfigError, Entry, RawConfig};
use serde::{Deserialize, Serialize};

/// One measurement: a protocol in a shape, under a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchPlan {
    /// The protocol.
    pub protocol: String,
    /// Groups.
    pub groups: usize,
    /// Replicas of each group.
    pub replicas: usize,
    /// Clients.
    pub clients: usize,
    /// The tree over the groups.
    pub overlay: String,
    /// Parameters of the protocol.
    pub set: Vec<(String, String)>,
    /// The load of the clients.
    pub load: BenchLoad,
}

/// The load of the clients, and the placement of all processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchLoad {
    /// Destination groups of each multicast.
    pub destinations: usize,
    /// How they are chosen.
    pub choice: DestinationChoice,
    /// Bytes of each payload.
    pub payload: usize,
    /// Multicasts that each client has on the way, in a closed loop.
    pub outstanding: usize,
    /// Multicasts a second of each client, in an open loop; instead of a closed one.
    pub rate: Option<u64>,
    /// Seconds before measuring.
    pub warm_up_s: f64,
    /// Seconds of measuring.
    pub duration_s: f64,
    /// Parts that the processes are dealt to: all replicas of a node to one, clients to others.
    pub threads: usize,
    /// Whether each part is bound to a core.
    pub pin: bool,
    /// Whether each part is an OS process rather than a thread.
    pub processes: bool,
    /// Where replicas multicast themselves: on how many nodes they do.
    pub senders: usize,
    /// Whether replicas deliver early, too, and that is measured.
    #[serde(default)]
    pub early: bool,
    /// Whether each part is a host of its own, with connections between them in the place of shared memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hosts: bool,
    /// The provider of libfabric that carries memory between hosts; none: their connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_provider: Option<String>,
}

impl BenchLoad {
    /// Multicasts that a client may have on the way.
    pub(super) fn window(&self) -> usize {
        /// In an open loop a client falls behind only once so many are on the way.
        const OPEN: usize = 1024;
        if self.rate.is_some() { OPEN } else { self.outstanding.max(1) }
    }
}

/// How the destinations of a multicast are chosen [TRAM 8.2, 8.3].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DestinationChoice {
    /// Any groups, all sets alike.
    Uniform,
    /// Groups that hang together in the tree, so that nobody else takes part.
    Neighbouring,
}

impl BenchPlan {
    /// The protocol's entry, if there is such a protocol.
    pub fn entry(&self) -> Option<&'static dyn Entry> {
        amcast_protocols::catalog::find(&self.protocol)
    }

    /// The configuration, checked, and the protocol built with it.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn config(&self, entry: &dyn Entry) -> Result<Config, ConfigError> {
        let raw = RawConfig {
            groups: self.groups,
            replicas: self.replicas,
            clients: self.clients,
            overlay: self.overlay.clone(),
            set: self.set.iter().cloned().collect(),
        };
        let config = raw.check(entry.about().params)?;
        amcast_core::entry::build_all(entry, &config)?;
        Ok(config)
    }
}
