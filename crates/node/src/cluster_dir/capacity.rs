//! How much shared memory, or room for logs, a cluster takes, asked before any of it is set aside.

use super::{ClusterDir, ClusterDirError};
use crate::config::ClusterFile;
use crate::reply_ring::{ReplyRingLayout, ReplyRingReader, ReplyRingWriter};
use amcast_core::{Config, ConfigError, Durability, Entry, Pid, ProtocolProcess};
use amcast_memory::Directory;

/// The shared memory that the processes of a cluster take, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapacityCheck {
    /// All nodes together.
    pub nodes: u64,
    /// Each gateway, while it runs: the supervisor has one, and so has every node that serves clients.
    pub gateway: u64,
}

impl CapacityCheck {
    /// The shared memory of a cluster of this protocol and configuration; none if it does not use
    /// any.
    ///
    /// # Errors
    /// When a process cannot be built, or its regions fit in no file.
    pub fn of(entry: &dyn Entry, config: &Config) -> Result<Option<Self>, ConfigError> {
        let cluster = *config.cluster();
        let too_large = |e: amcast_memory::MemoryError| ConfigError::Relation(e.to_string());
        let process = |pid: Pid| match entry.build(pid, config)? {
            ProtocolProcess::Memory(_, regions) => {
                Directory::bytes_of(&regions).map(Some).map_err(too_large)
            }
            _ => Ok(None),
        };
        let places = ReplyRingLayout(cluster);
        let (mut nodes, mut gateway) = (0, 0);
        for pid in cluster.pids().filter(|&pid| cluster.group_of(pid).is_some()) {
            let Some(bytes) = process(pid)? else { return Ok(None) };
            nodes += bytes;
        }
        let reply_rings =
            Directory::bytes_of(&ReplyRingWriter::regions(places)).map_err(too_large)?;
        nodes += reply_rings * cluster.replicas() as u64;
        if cluster.clients() > 0 {
            gateway += process(cluster.client(0))?.unwrap_or(0);
            gateway += Directory::bytes_of(&ReplyRingReader::regions(places)).map_err(too_large)?;
        }
        Ok(Some(Self { nodes, gateway }))
    }

    /// All of it, with so many gateways.
    pub const fn with_gateways(self, gateways: usize) -> u64 {
        self.nodes + self.gateway * gateways as u64
    }
}

/// The size of all nodes' logs when a cluster starts, in bytes, where the protocol keeps any.
pub fn logs_bytes(file: &ClusterFile, durability: Durability) -> u64 {
    if !durability.has_log() {
        return 0;
    }
    (file.replicas * file.shards) as u64 * crate::replica_log::bytes_at_start(file.durable)
}

impl ClusterDir {
    /// Whether there is room for a cluster that takes `needed` bytes and has none of them yet. A node
    /// that is started again needs no more than that: what its last life had is given back first.
    ///
    /// # Errors
    /// When there is not, or the system does not say.
    pub fn check_room(&self, needed: u64) -> Result<(), ClusterDirError> {
        let free = Directory::free_bytes(&self.path).map_err(ClusterDirError::Memory)?;
        if free < needed {
            return Err(ClusterDirError::NoRoom { path: self.path.clone(), needed, free });
        }
        Ok(())
    }
}
