//! The status of the cluster that the program knows and the gateways show.

use amcast_core::Gid;
use amcast_smr::metrics::Metric;

/// One shard, as this node sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardStatus {
    /// The shard.
    pub shard: Gid,
    /// The name of its leader, if one is known.
    pub leader: Option<String>,
    /// How many of its replicas are up, and how many there are.
    pub replicas: (usize, usize),
    /// Position up to which this node executed its commands.
    pub applied: u64,
    /// Commands delivered here that wait for other shards or for conflicting commands.
    pub waiting: usize,
    /// Keys held.
    pub keys: usize,
    /// Keys held that will expire.
    pub expiring: usize,
    /// When the first of them does, in milliseconds since 1970, if any will.
    pub due_ms: Option<u64>,
    /// Whether it waits for commands that gateways send by themselves, as where keys move.
    pub has_chore: bool,
    /// Bytes that its keys take, about.
    pub used_bytes: u64,
    /// Bytes that they may take; 0 for any number.
    pub budget_bytes: u64,
    /// Bytes of parts of commands that wait for their other parts.
    pub parts_bytes: u64,
}

/// Filled in by the program; asked by `INFO`, the status page, metrics and health checks.
pub trait ServerStatus: Send + Sync + 'static {
    /// The name of this node.
    fn node(&self) -> String;

    /// The protocol that orders commands.
    fn protocol(&self) -> String;

    /// Every shard, in order.
    fn shards(&self) -> Vec<ShardStatus>;

    /// Whether the cluster can serve commands, through any node.
    ///
    /// # Errors
    /// With the reason, for people.
    fn ready(&self) -> Result<(), String>;

    /// Whether commands that come here can be served: the cluster can, and the node that this gateway is a part
    /// of, if it is, has its place in it.
    ///
    /// # Errors
    /// With the reason, for people.
    fn ready_here(&self) -> Result<(), String> {
        self.ready()
    }

    /// Whether a write is synced on the disks of a majority before it is answered.
    fn syncs_writes(&self) -> bool {
        false
    }

    /// Problems that need attention although commands can be served, for people: a sentence each.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Which sets of shards the gateways of this process had multicasts ordered in, and how often, as a file that
    /// `amcast choose --workload` reads; none where nothing is ordered.
    fn workload(&self) -> Option<String> {
        None
    }

    /// Further metrics for the page: of the nodes, as far as this process knows them.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }
}
