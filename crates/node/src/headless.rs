//! A node without an application: the replicas of a protocol that sends messages, at their connections and
//! logs, with any layer above them. A measurement drives it; it has no other part of a node: no gateways,
//! no application, no control socket.

use crate::cluster_dir::{LogLocation, Net};
use crate::config::HostPlacement;
use crate::connection_requests::ConnectionRequests;
use crate::log_owner::LogOwner;
use crate::memory_driver::UpperLayer;
use crate::message_driver::{MessageDriver, MessageDriverOptions};
use crate::node_address::ClusterKey;
use crate::peer_registry::PeerRegistry;
use crate::replicas::Replicas;
use amcast_core::step::ProtocolStatus;
use amcast_core::{Config, Entry, Gid, GroupSet, Pid, ProtocolProcess, Span, Submission, Time};
use amcast_net::NetCounts;
use amcast_smr::application::WakeHandle;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The options of a headless node.
#[derive(Clone, Copy)]
pub struct HeadlessOptions<'a> {
    /// The protocol.
    pub entry: &'a dyn Entry,
    /// The cluster's checked configuration; it has no clients.
    pub config: &'a Config,
    /// A number of the cluster's own: nodes of another are not let in.
    pub cluster_id: u64,
    /// Where each node listens, by rank.
    pub addresses: &'a [SocketAddr],
    /// Which replica of each group it hosts.
    pub rank: usize,
    /// A directory for its logs, if its protocol keeps any: its own, and there already.
    pub logs: &'a Path,
    /// Whether its replicas deliver early, too, if their protocol can.
    pub early: bool,
}

/// A node's replicas, one of each group, and what carries their messages.
pub struct HeadlessNode {
    members: MessageDriver,
    groups: GroupSet,
}

impl HeadlessNode {
    /// Opens its sockets, and begins to connect.
    ///
    /// # Errors
    /// When the protocol does not send messages, or an address cannot be used.
    pub fn start(options: HeadlessOptions<'_>) -> Result<Self, String> {
        let HeadlessOptions { entry, config, rank, .. } = options;
        let cluster = *config.cluster();
        let process = |group: Gid| match entry.build(cluster.replica(group, rank), config) {
            Ok(ProtocolProcess::Messages(process)) => Ok(process),
            Ok(ProtocolProcess::Memory(..)) => {
                Err(format!("{} does not send messages", entry.name()))
            }
            Err(e) => Err(e.to_string()),
        };
        let groups = cluster.all_groups();
        let processes = groups.iter().map(process).collect::<Result<Vec<_>, _>>()?;
        let places = options.addresses.iter().map(|&at| HostPlacement::at(at)).collect();
        let net = Net::of(
            PathBuf::new(),
            ClusterKey { id: options.cluster_id, ..ClusterKey::default() },
            places,
        );
        let durability = entry.capabilities().durability;
        let keeping = durability.has_log().then(|| LogLocation {
            path: options.logs.to_path_buf(),
            begun: options.logs.join("begun"),
            holds: LogLocation::holds(durability),
            lasts: true,
            lived: false,
            first_life: 0,
            owner: LogOwner::of(options.cluster_id, rank),
        });
        let start = MessageDriverOptions {
            rank,
            life: 0,
            peer_registry: PeerRegistry::fleeting(cluster.replicas()),
            keeping,
            asks: ConnectionRequests::of(config),
            tracing: false,
            early: options.early,
        };
        let members = MessageDriver::start(&net, &cluster, processes, start);
        Ok(Self { members: members.map_err(|e| e.to_string())?, groups })
    }

    /// Gives each replica its first inputs. Once, before anything else.
    ///
    /// # Errors
    /// When its logs cannot be made.
    pub fn begin(&mut self, now: Time, above: &mut dyn UpperLayer) -> Result<(), String> {
        self.members.begin(now, above).map_err(|e| e.to_string())
    }

    /// Takes in what came: messages, and what logs have done. Whether there was anything.
    pub fn round(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        self.members.round(now, above)
    }

    /// Ends a round: does what is due, and sends. Whether anything was due.
    pub fn flush(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        self.members.flush(now, above)
    }

    /// Whether every replica has its place in its group.
    pub fn is_ready(&self) -> bool {
        let works = |group| {
            let (status, fit) = self.members.status(group);
            fit && status.follows
        };
        self.groups.iter().all(works)
    }

    /// The process that multicasts what goes to `dst`: the replica of the lowest group.
    pub fn sender(&self, dst: GroupSet) -> Option<Pid> {
        dst.lowest().map(|group| self.members.pid(group))
    }

    /// How many messages of `bytes` bytes to `dst` may be multicast now.
    pub fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        self.members.room(dst, bytes)
    }

    /// Multicasts. There was room; `seq` grows over all that the node multicasts.
    pub fn submit(&mut self, now: Time, submission: Submission<'_>, above: &mut dyn UpperLayer) {
        self.members.submit(now, submission, above);
    }

    /// All that the replica of `group` delivered up to `position` is done with.
    pub fn applied(&mut self, now: Time, group: Gid, position: u64, above: &mut dyn UpperLayer) {
        self.members.applied(now, group, position, above);
    }

    /// The application has the state in force that was given to it, with everything of each group up to
    /// its position.
    pub fn installed(&mut self, now: Time, positions: &[u64], above: &mut dyn UpperLayer) {
        self.members.installed(now, positions, above);
    }

    /// The application's state with everything of each group up to its position would survive the end
    /// of the machine.
    pub fn checkpointed(&mut self, now: Time, positions: &[u64], above: &mut dyn UpperLayer) {
        self.members.checkpointed(now, positions, above);
    }

    /// The status of the replica of `group`.
    pub fn status(&self, group: Gid) -> ProtocolStatus {
        self.members.status(group).0
    }

    /// Why it cannot continue, if it cannot.
    pub fn failed(&self) -> Option<String> {
        self.members.failed()
    }

    /// The counters of its connections.
    pub fn counts(&self) -> NetCounts {
        self.members.counts()
    }

    /// How often its logs were synced so far, all of them together.
    pub fn syncs(&self) -> u64 {
        self.members.syncs()
    }

    /// Wakes the loop, from any thread.
    pub fn wake(&self) -> WakeHandle {
        self.members.wake()
    }

    /// Sleeps until there may be something to do, or for `at_most`.
    pub fn sleep(&mut self, now: Time, at_most: Span) {
        self.members.sleep(now, at_most);
    }
}
