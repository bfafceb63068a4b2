//! The transport between the processes of a cluster: the shared memory in its cluster directory, with connections
//! to other hosts if it is on several, or connections between its nodes and sockets in the cluster directory.

use super::{ClusterDir, ClusterDirError, LogLocation, life_name};
use crate::config::{ClusterFile, HostPlacement, node_name};
use crate::incarnation::{IncarnationLock, SharedIncarnation};
use crate::memory_links::HostCarrier;
use crate::node_address::ClusterKey;
use crate::peer_registry::{PeerRegistry, peers_name};
use amcast_core::config::Param;
use amcast_core::limits::REPLICAS_MAX;
use amcast_core::{Config, MediumKind};
use amcast_memory::Directory;
use amcast_memory::remote::RemoteMemory;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Bits of a life's number that count the lives of one machine. With those that count machines they are 24,
/// as many as sessions of gateways have for it.
pub(super) const LIVES_BITS: u32 = 16;

/// The transport between the processes of a cluster.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Shared memory, for protocols that talk through it.
    Memory(Directory),
    /// Shared memory within each host and connections between them, for the same protocols.
    Hosts(MemoryHosts),
    /// The network, for protocols that send messages.
    Net(Net),
}

/// The memory of a cluster on several hosts, as one node sees it.
#[derive(Clone, Debug)]
pub struct MemoryHosts {
    directory: Directory,
    net: Net,
    /// Once the node of this process has begun: its way to the other hosts.
    remote: Arc<OnceLock<RemoteMemory>>,
    /// Once the node of this process has its name.
    incarnation: Arc<OnceLock<SharedIncarnation>>,
}

impl MemoryHosts {
    /// Of one host, whose node has not begun.
    #[cfg(test)]
    pub(crate) fn of(directory: Directory, net: Net) -> Self {
        Self { directory, net, remote: Arc::default(), incarnation: Arc::default() }
    }

    /// The network between the hosts.
    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    /// The node of this process begins, and reaches the other hosts by this. The directory in which its processes are to
    /// start.
    pub(crate) fn begin(&self, remote: RemoteMemory) -> Directory {
        let remote = self.remote.get_or_init(|| remote).clone();
        self.directory.clone().with_remote(remote)
    }

    /// The node of this process has this incarnation.
    pub(crate) fn name(&self, incarnation: &SharedIncarnation) {
        self.incarnation.get_or_init(|| incarnation.clone());
    }

    /// Sees to it that the next incarnation of the node of this process is above `incarnation`, which a process of its host
    /// begins: it is on the disk before this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn keep_above(&self, incarnation: u32) -> io::Result<()> {
        let lock = self.incarnation.get();
        let lock = lock.ok_or_else(|| io::Error::other("no node has begun in this process"))?;
        let mut lock = lock.locked();
        let kept = lock.skip_to(incarnation.saturating_add(1));
        kept.map_err(|e| io::Error::other(format!("{}: {e}", lock.path().display())))
    }

    /// The directory for a gateway in the process of a node; none if no node has begun in this process.
    pub(crate) fn of_gateway(&self) -> Option<Directory> {
        self.remote.get().map(|remote| self.directory.clone().with_remote(remote.clone()))
    }
}

/// The network of a cluster, as one host sees it.
#[derive(Clone, Debug)]
pub struct Net {
    dir: PathBuf,
    /// The secret of its nodes.
    pub(crate) key: ClusterKey,
    /// Of each node.
    pub(crate) places: Vec<HostPlacement>,
    /// The settings that decide its nodes' behaviour, and must be the same for all: names and
    /// values.
    pub(crate) decides: Vec<(String, String)>,
    /// How the memory of its hosts is carried between them.
    pub(crate) carrier: HostCarrier,
}

impl Net {
    /// Of the cluster whose nodes know this, and are at these places.
    pub(crate) fn of(dir: PathBuf, key: ClusterKey, places: Vec<HostPlacement>) -> Self {
        Self { dir, key, places, decides: Vec::new(), carrier: HostCarrier::Tcp }
    }

    /// Where a node gives its state to other hosts, and what these must know.
    pub(crate) fn control(&self, rank: usize) -> Option<(SocketAddr, ClusterKey)> {
        self.places[rank].control.map(|at| (at, self.key.clone()))
    }

    /// The least number that a life of the node `rank` may have: above those of all lives on machines
    /// that this one replaces. A node that keeps something and lost it has lived before.
    pub(crate) fn first_life(&self, rank: usize, keeping: Option<&LogLocation>) -> u32 {
        let replaced = self.places[rank].replaced << LIVES_BITS;
        let on_this_disk = keeping.map_or(0, |keeping| keeping.first_life);
        replaced.max(on_this_disk).max(u32::from(keeping.is_some_and(LogLocation::is_begun)))
    }

    /// Checks that what the node `rank` keeps here is not of a disk that was replaced since: it promised
    /// more on the later one. `life` is the file that counts its lives.
    ///
    /// # Errors
    /// When it is; the sentence says what to do.
    pub(crate) fn check_disk(&self, rank: usize, life: &Path) -> Result<(), String> {
        let replaced = self.places[rank].replaced;
        match IncarnationLock::next(life) {
            Some(next) if next <= replaced << LIVES_BITS => Err(format!(
                "{} is of a disk of {} that was replaced: `replaced` of it in the cluster's file is \
                 {replaced}, and what is here is older: {}; if it is the right one after all, nobody may \
                 have promised anything on another since",
                self.dir.display(),
                node_name(rank),
                super::begin_anew_words(&self.dir, &node_name(rank))
            )),
            _ => Ok(()),
        }
    }

    /// The peer registry of the node `rank` of so many, durable if the node's promises are: its
    /// disk gets an id, if it has none.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub(crate) fn peer_registry(
        &self,
        (rank, nodes): (usize, usize),
        keeping: Option<&LogLocation>,
    ) -> Result<PeerRegistry, ClusterDirError> {
        if !keeping.is_some_and(|keeping| keeping.lasts) {
            return Ok(PeerRegistry::fleeting(nodes));
        }
        let dir = ClusterDir { path: self.dir.clone() };
        let word = dir.disk_word(rank)?;
        let word = word.map_or_else(|| dir.give_disk_word(rank), Ok)?;
        let opened = PeerRegistry::open((&self.dir, &word), (rank, nodes));
        let mut peer_registry =
            opened.map_err(|e| ClusterDirError::Io(self.dir.join(peers_name(rank)), e))?;
        peer_registry.anew = keeping.is_some_and(LogLocation::is_anew);
        Ok(peer_registry)
    }

    /// The cluster's directory on this host.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl ClusterDir {
    /// The transport of the cluster of this file, whose protocol has this medium and these
    /// parameters.
    ///
    /// # Errors
    /// When the shared memory cannot be opened, or the file does not say where the nodes are.
    pub fn ground(
        &self,
        file: &ClusterFile,
        (medium, params): (MediumKind, &[Param]),
        config: &Config,
    ) -> Result<Transport, ClusterDirError> {
        match medium {
            MediumKind::Memory => {
                let directory = self.memory(*config.cluster())?;
                if !file.is_on_several_hosts() {
                    return Ok(Transport::Memory(directory));
                }
                let mut net = self.net(file, params)?;
                // Which processes there are, and who multicasts to whom.
                net.decides.push(("clients".to_string(), file.clients.to_string()));
                net.decides.push(("overlay".to_string(), file.overlay.clone()));
                if let Some(provider) = &file.rdma_provider {
                    net.decides.push(("rdma_provider".to_string(), provider.clone()));
                    net.carrier = HostCarrier::Rdma { provider: provider.clone() };
                }
                let (remote, incarnation) = (Arc::default(), Arc::default());
                Ok(Transport::Hosts(MemoryHosts { directory, net, remote, incarnation }))
            }
            MediumKind::Messages => self.net(file, params).map(Transport::Net),
        }
    }

    fn net(&self, file: &ClusterFile, params: &[Param]) -> Result<Net, ClusterDirError> {
        let places = file.places().map_err(ClusterDirError::Addresses)?;
        let dir = self.path.clone();
        let secret = file.read_secret().map_err(ClusterDirError::File)?;
        let key = ClusterKey { id: file.id.unwrap_or_default(), secret };
        let decides = file.decides_in_full(params);
        Ok(Net { dir, key, places, decides, carrier: HostCarrier::Tcp })
    }
}

impl Transport {
    /// The network between its hosts, if it has one.
    pub(crate) fn net(&self) -> Option<&Net> {
        match self {
            Self::Memory(_) => None,
            Self::Hosts(hosts) => Some(hosts.net()),
            Self::Net(net) => Some(net),
        }
    }

    /// A process has died: its peers learn it, where nobody else would tell them.
    ///
    /// # Errors
    /// When what it left cannot be cleared.
    pub fn clean(&self) -> Result<(), ClusterDirError> {
        match self {
            Self::Memory(directory) | Self::Hosts(MemoryHosts { directory, .. }) => {
                directory.clean().map(drop).map_err(ClusterDirError::Memory)
            }
            Self::Net(_) => Ok(()),
        }
    }

    /// Removes it; all processes have ended.
    ///
    /// # Errors
    /// When one has not, or files cannot be removed.
    pub(super) fn remove(&self) -> Result<(), ClusterDirError> {
        match self {
            Self::Memory(directory) | Self::Hosts(MemoryHosts { directory, .. }) => {
                directory.remove().map_err(ClusterDirError::Memory)
            }
            Self::Net(_) => Ok(()),
        }
    }
}

/// A node without shared memory that lives in the cluster directory at `path`.
pub(super) fn lived_in(path: &Path) -> Option<String> {
    let lives = |rank: &usize| IncarnationLock::is_lived(&path.join(life_name(*rank)));
    (0..REPLICAS_MAX).find(lives).map(crate::config::node_name)
}
