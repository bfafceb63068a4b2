//! The parts of a node that exist before its application: drivers for its replicas, and where its answers go.

use super::{NodeError, NodeOptions};
use crate::cluster_dir::{LogLocation, MemoryHosts, Net, Transport, ingress_name, life_name};
use crate::connection_requests::ConnectionRequests;
use crate::disk::DiskRecord;
use crate::incarnation::{IncarnationLock, ProcessName, SharedIncarnation};
use crate::ingress::Ingress;
use crate::memory_driver::{MemoryDriver, MemoryDriverError};
use crate::memory_links::MemoryLinks;
use crate::message_driver::{BoxedProcess, MessageDriver, MessageDriverOptions};
use crate::replicas::{MemoryDrivers, Replicas};
use crate::reply_ring::{ReplyRingLayout, ReplyRingWriter};
use crate::reply_sink::ReplySink;
use crate::skips::{NodeSkips, SKIPPED};
use amcast_memory::Directory;
use amcast_smr::application::Application;

/// The parts of a node that exist before its application.
pub(super) struct NodeFoundation {
    pub(super) replicas: Box<dyn Replicas>,
    pub(super) reply_sink: ReplySink,
    pub(super) life: Option<SharedIncarnation>,
    pub(super) skips: NodeSkips,
}

impl NodeFoundation {
    /// The same where the cluster is on several hosts: with connections to the others, and a file that counts the
    /// incarnations.
    pub(super) fn on_hosts(
        options: &NodeOptions<'_>,
        hosts: &MemoryHosts,
    ) -> Result<Self, NodeError> {
        let (rank, net) = (options.rank, hosts.net());
        let path = net.dir().join(life_name(rank));
        let life = IncarnationLock::begin(&path, net.first_life(rank, None));
        let life = life.map_err(|e| NodeError::Io(path, e))?;
        let life = life.ok_or_else(|| NodeError::Runs(crate::config::node_name(rank)))?;
        let (directory, links) =
            MemoryLinks::start(hosts, options.config, (rank, &life), options.idle)
                .map_err(NodeError::Links)?;
        let (seats, reply_sink) = Self::drivers(options, &directory)?;
        let replicas = Box::new(MemoryDrivers(seats, Some(links)));
        let life = SharedIncarnation::of(life);
        hosts.name(&life);
        Ok(Self { replicas, reply_sink, life: Some(life), skips: NodeSkips::default() })
    }

    /// A driver for the replica of each group, and a writer for their answers.
    pub(super) fn in_memory(
        options: &NodeOptions<'_>,
        directory: &Directory,
    ) -> Result<Self, NodeError> {
        let (seats, reply_sink) = Self::drivers(options, directory)?;
        let replicas = Box::new(MemoryDrivers(seats, None));
        Ok(Self { replicas, reply_sink, life: None, skips: NodeSkips::default() })
    }

    fn drivers(
        options: &NodeOptions<'_>,
        directory: &Directory,
    ) -> Result<(Vec<MemoryDriver>, ReplySink), NodeError> {
        let NodeOptions { entry, config, rank, .. } = *options;
        let cluster = *config.cluster();
        let mut seats: Vec<MemoryDriver> = Vec::new();
        for group in cluster.all_groups().iter() {
            let pid = cluster.replica(group, rank);
            let node = entry.build(pid, config).map_err(NodeError::Config)?;
            let bell = seats.first().map(|s| s.bell().clone());
            let tracing = options.record.is_some();
            let seat = MemoryDriver::start(directory, &cluster, pid, node, bell, tracing);
            seats.push(seat.map_err(NodeError::MemoryDriver)?);
        }
        let bell = seats[0].bell().clone();
        let reply_rings = ReplyRingWriter::open(directory, ReplyRingLayout(cluster), rank, bell)
            .map_err(|e| NodeError::MemoryDriver(MemoryDriverError::Memory(e)))?;
        Ok((seats, ReplySink::Rings(Box::new(reply_rings))))
    }

    /// A member of each group, and an ingress for the commands of gateways.
    pub(super) fn on_net(
        options: &NodeOptions<'_>,
        net: &Net,
        app: &impl Application,
    ) -> Result<Self, NodeError> {
        let NodeOptions { entry, config, rank, .. } = *options;
        let cluster = *config.cluster();
        let path = net.dir().join(life_name(rank));
        let wrong = |e| NodeError::Io(path.clone(), e);
        // Nothing is written before: a running process of this name is not disturbed.
        let name = ProcessName::take(&path).map_err(wrong)?;
        let name = name.ok_or_else(|| NodeError::Runs(crate::config::node_name(rank)))?;
        if options.keeping.as_ref().is_some_and(|keeping| keeping.path.exists()) {
            net.check_disk(rank, &path).map_err(NodeError::Disk)?;
        }
        let keeping = options.keeping.as_ref();
        keeping.map_or(Ok(()), LogLocation::check_differs).map_err(NodeError::Differs)?;
        if let Some((keeping, disk)) = kept(options) {
            disk.prepare(&name, &keeping, cluster.all_groups()).map_err(NodeError::Disk)?;
        }
        let peer_registry = net.peer_registry((rank, cluster.replicas()), keeping);
        let mut peer_registry = peer_registry.map_err(|e| NodeError::Disk(e.to_string()))?;
        let skips = keeping.map(|keeping| NodeSkips::open(&keeping.path)).transpose();
        let skips = skips.map_err(|e| NodeError::Disk(e.to_string()))?.unwrap_or_default();
        peer_registry.decides = vec![(SKIPPED.to_string(), skips.names())];
        let life = name.begin(net.first_life(rank, keeping)).map_err(wrong)?;
        peer_registry.start = life.start();
        let mut processes: Vec<BoxedProcess> = Vec::new();
        for group in cluster.all_groups().iter() {
            let node = entry.build(cluster.replica(group, rank), config);
            match node.map_err(NodeError::Config)? {
                amcast_core::ProtocolProcess::Messages(process) => processes.push(process),
                amcast_core::ProtocolProcess::Memory(..) => {
                    return Err(NodeError::MemoryDriver(MemoryDriverError::Medium));
                }
            }
        }
        let start = MessageDriverOptions {
            rank,
            life: life.number(),
            peer_registry,
            keeping: options.keeping.clone(),
            asks: ConnectionRequests::of(config),
            tracing: options.record.is_some(),
            early: app.wants_early(),
        };
        let mut members =
            MessageDriver::start(net, &cluster, processes, start).map_err(NodeError::Net)?;
        let socket = net.dir().join(ingress_name(rank));
        let first_seq = life.first_seq();
        let serves = (cluster.all_groups(), entry.capabilities().read_index && app.can_peek());
        let ingress = Ingress::open(&socket, serves, first_seq, members.wake());
        let ingress = ingress.map_err(|e| NodeError::Io(socket, e))?;
        members.watch(ingress.ready()).map_err(NodeError::Net)?;
        let reply_sink = ReplySink::Ingress(ingress, rank);
        let life = Some(SharedIncarnation::of(life));
        Ok(Self { replicas: Box::new(members), reply_sink, life, skips })
    }
}

/// The node's data directory and its disk, if they outlast it.
pub(super) fn kept(options: &NodeOptions<'_>) -> Option<(LogLocation, DiskRecord)> {
    let Transport::Net(net) = options.ground else { return None };
    let keeping = options.keeping.clone().filter(|keeping| keeping.lasts)?;
    Some((keeping, DiskRecord::of(net.dir(), options.rank)))
}
