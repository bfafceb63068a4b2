//! `amcast node`: one node of a cluster.

use super::{Failure, entry};
use crate::service::KvNode;
use amcast_memory::Idle;
use amcast_runtime::config::{ClusterFile, node_rank};
use amcast_runtime::home::Home;
use amcast_runtime::node::{Node, NodeOptions};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs one node of a cluster in the foreground.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The cluster's file, in the cluster's directory
    #[arg(long)]
    config: PathBuf,
    /// Stop when standard input ends: whoever started this node has ended
    #[arg(long, hide = true)]
    until_input_ends: bool,
    /// Which node: n0, n1, ..
    #[arg(long)]
    name: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let file = ClusterFile::read(&args.config).map_err(Failure::misuse)?;
    let rank = node_rank(&args.name).filter(|&rank| rank < file.replicas).ok_or_else(|| {
        let all: Vec<_> = file.nodes().collect();
        Failure::Misuse(format!("no node is named {}; there are: {}", args.name, all.join(", ")))
    })?;
    let entry = entry(&file.protocol)?;
    let config = file.check(entry).map_err(Failure::misuse)?;
    let home = Home::of_file(&args.config);
    let directory = home.memory(*config.cluster()).map_err(Failure::failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::failed)?;
    }
    if args.until_input_ends {
        watch_input(&stop)?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = NodeOptions {
        entry,
        config: &config,
        directory: &directory,
        sockets: home.path().to_path_buf(),
        rank,
        idle: Idle::for_loops(file.replicas + 1, cores),
        record: file.record.clone(),
    };
    let mut node = Node::start(&options, KvNode::new(file.shards)).map_err(Failure::failed)?;
    node.run(&stop);
    Ok(())
}

fn watch_input(stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let stop = Arc::clone(stop);
    let watch = move || {
        let mut rest = [0; 64];
        // Nothing is ever written: a read returns when the other end is closed.
        while matches!(std::io::stdin().read(&mut rest), Ok(1..)) {}
        stop.store(true, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new().name("input".to_string()).spawn(watch);
    thread.map(drop).map_err(Failure::failed)
}
