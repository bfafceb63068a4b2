//! A node of a service of your own.

use super::{StartError, entry};
use amcast_core::Capability;
use amcast_memory::Idle;
use amcast_node::cluster_dir::ClusterDir;
use amcast_node::config::{ClusterFile, node_rank};
use amcast_node::node::{Node, NodeOptions};
use amcast_node::service::ServiceNode;
use amcast_node::supervisor::obey;
use amcast_smr::{EarlyMachine, StateMachine, StateMachineAdapter, workers};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs the node `name` of the cluster whose file is `config`, until it gets SIGTERM or SIGINT or its
/// standard input ends, as it does when the supervisor has ended.
///
/// Both are what the supervisor ([`Cluster::start`](super::Cluster::start)) gave this program as its last two arguments. A
/// node of a file that somebody wrote for nodes on several hosts is refused: it would not do what
/// `amcast node` does to keep what is acknowledged there, such as to note by which disk the others know it.
///
/// # Errors
/// When it cannot be started; when no supervisor runs that has this file ([`StartError::Unsupervised`]); when the file
/// would let strangers in ([`StartError::Insecure`]).
pub fn node<S: StateMachine>(config: &Path, name: &str) -> Result<(), StartError> {
    run_node::<S>(config, name, None)
}

/// As [`node`]; beside the replicated state the `machine` executes each command as soon as this node has it, before its
/// place in the order is decided, and undoes it where the order is another one.
///
/// # Errors
/// When it cannot be started, or the protocol has no early deliveries ([`Capability::EarlyDelivery`]).
pub fn node_with_early<S: StateMachine>(
    config: &Path,
    name: &str,
    machine: Box<dyn EarlyMachine>,
) -> Result<(), StartError> {
    run_node::<S>(config, name, Some(machine))
}

fn run_node<S: StateMachine>(
    config: &Path,
    name: &str,
    early: Option<Box<dyn EarlyMachine>>,
) -> Result<(), StartError> {
    let file = ClusterFile::read(config).map_err(StartError::File)?;
    let rank = node_rank(name).filter(|&rank| rank < file.replicas);
    let rank = rank.ok_or_else(|| StartError::Name(name.to_string()))?;
    let dir = ClusterDir::of_file(config);
    if dir.file_path() != config || !dir.is_supervised() {
        return Err(StartError::Unsupervised(config.to_path_buf()));
    }
    file.check_strangers().map_err(StartError::Insecure)?;
    let entry = entry(&file.protocol)?;
    entry.require_service().map_err(StartError::Capability)?;
    if early.is_some() {
        let required = entry.require(Capability::EarlyDelivery);
        required.map_err(StartError::Capability)?;
    }
    let checked = file.check(entry).map_err(StartError::Config)?;
    let ground = dir.ground(&file, (entry.about().medium, entry.about().params), &checked)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(StartError::Io)?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = NodeOptions {
        entry,
        config: &checked,
        ground: &ground,
        nodes: dir.nodes(&file),
        rank,
        idle: Idle::for_loops(file.replicas + 1, cores),
        record: file.record.clone(),
        keeping: dir.keeping(&file, entry.capabilities().durability, rank),
        state_per_second: file.state_per_second(),
    };
    let share = file.workers.unwrap_or_else(|| workers(cores, file.replicas, file.shards));
    let mut app = ServiceNode::<StateMachineAdapter<S>>::new(file.shards, share)
        .with_clock(entry, &file, rank)
        .with_digests(entry, &file, rank);
    if let Some(machine) = early {
        app = app.with_early(machine);
    }
    let mut node = Node::start(&options, app).map_err(StartError::Node)?;
    obey(&stop, || {}).map_err(StartError::Io)?;
    node.run(&stop).map_err(StartError::Node)
}
