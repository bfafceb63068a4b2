//! `amcast node`: one node of a cluster.

use super::listening::{Addresses, Listening, address};
use super::{Failure, entry};
use crate::service::{Reads, ServiceNode, Watch, first_partitions, host_logs, host_partitions};
use amcast_memory::Idle;
use amcast_runtime::config::{ClusterFile, node_name, node_rank};
use amcast_runtime::front::{Front, FrontOptions, Own};
use amcast_runtime::home::Home;
use amcast_runtime::node::{Node, NodeOptions};
use amcast_runtime::supervisor::obey;
use amcast_services::StoreAndLog;
use amcast_services::log::{DISK_BYTES, Logs, NODE_BYTES};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// Runs one node of a cluster in the foreground.
///
/// What it says goes to standard error and, with more detail, to the file NAME.log beside the
/// cluster's file.
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
    /// Serve Redis clients, too; 0 takes any port, if possible the one that it had before
    #[arg(long)]
    redis_port: Option<u16>,
    /// Serve the log over gRPC, too; 0 as above
    #[arg(long)]
    log_port: Option<u16>,
    /// Serve a status page and metrics, too; 0 as above
    #[arg(long)]
    http_port: Option<u16>,
}

impl Args {
    /// The node's name, as it was given.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Where its log goes. A name that is no node's gets none.
    pub(super) fn log(&self) -> PathBuf {
        let rank = node_rank(&self.name);
        rank.map_or_else(PathBuf::new, |rank| Home::of_file(&self.config).log(rank))
    }

    /// Where it serves clients, if it is to: clients come back to a node that was started again.
    fn addresses(&self, home: &Home, rank: usize) -> Result<Option<Addresses>, Failure> {
        if [self.redis_port, self.log_port, self.http_port].iter().all(Option::is_none) {
            return Ok(None);
        }
        let before = home.fronts_of(rank).ok();
        let port = |at: &String| at.parse::<SocketAddr>().ok().map(|at| at.port());
        let redis_before = before.as_ref().and_then(|f| port(&f.redis)).unwrap_or(0);
        let log_before = before.as_ref().and_then(|f| port(f.log.as_ref()?)).unwrap_or(0);
        let http_before = before.as_ref().and_then(|f| port(&f.http)).unwrap_or(0);
        let redis = address("redis", self.redis_port.filter(|&port| port != 0), redis_before)?;
        let http = address("http", self.http_port.filter(|&port| port != 0), http_before)?;
        let log = address("log", self.log_port.filter(|&port| port != 0), log_before)?;
        Ok(Some(Addresses { redis, log, http }))
    }
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
    let ground = home.ground(&file, entry.about().medium, &config).map_err(Failure::failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::failed)?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = NodeOptions {
        entry,
        config: &config,
        ground: &ground,
        nodes: home.nodes(&file),
        rank,
        idle: Idle::for_loops(file.replicas + 1, cores),
        record: file.record.clone(),
        keeping: home.keeping(&file, entry.keeps(), rank),
    };
    let share = amcast_services::workers(cores, file.replicas, file.shards);
    let workers = file.workers.unwrap_or(share).min(file.shards);
    tracing::info!("{workers} threads execute commands besides the node's own");
    host_logs(logs(&file)?);
    host_partitions(first_partitions(&file).map_err(Failure::Misuse)?.into());
    let app = ServiceNode::<StoreAndLog>::new(file.shards, workers);
    let reads = app.reads();
    let mut node = Node::start(&options, app).map_err(Failure::failed)?;
    let own = node.own();
    let begin = |at| Serving::begin(at, &options, (own, reads), &file, &home);
    let serving = args.addresses(&home, rank)?.map(begin);
    let serving = Arc::new(Mutex::new(serving.transpose()?));
    if args.until_input_ends {
        let (serving, home) = (Arc::clone(&serving), home.clone());
        let close = move || {
            if let Some(serving) = taken(&serving) {
                serving.close(&home, rank);
            }
        };
        obey(&stop, close).map_err(Failure::failed)?;
    }
    let ended = node.run(&stop);
    drop(taken(&serving));
    ended.map_err(Failure::failed)
}

/// The logs of a node, in memory or in files, as the cluster's file has it.
fn logs(file: &ClusterFile) -> Result<Logs, Failure> {
    let bytes = |mb: usize| mb.saturating_mul(1_000_000);
    let memory = file.log_mb.map_or(NODE_BYTES, bytes);
    let Some(directory) = &file.log_dir else { return Ok(Logs::new(file.shards, memory)) };
    let disk = file.log_disk_mb.map_or(DISK_BYTES, bytes);
    Logs::on_disk(file.shards, memory, disk, directory)
        .map_err(|e| Failure::Failed(format!("log_dir = {}: {e}", directory.display())))
}

/// The front of a node, until it is closed.
type Held = Mutex<Option<Serving>>;

fn taken(serving: &Held) -> Option<Serving> {
    serving.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The front of a node.
struct Serving {
    listening: Listening,
    front: Arc<Front>,
}

impl Serving {
    fn begin(
        at: Addresses,
        node: &NodeOptions<'_>,
        (own, reads): (Option<Own>, Option<Arc<Reads>>),
        file: &ClusterFile,
        home: &Home,
    ) -> Result<Self, Failure> {
        let name = node_name(node.rank);
        let cluster = *node.config.cluster();
        let watch = Watch::begin(home.clone(), name, file, cluster);
        let watch = Arc::new(watch.map_err(Failure::failed)?);
        let front = Front::start(&FrontOptions {
            entry: node.entry,
            config: node.config,
            ground: node.ground,
            own,
            idle: node.idle,
            record: node.record.clone(),
        });
        let front = Arc::new(front.map_err(Failure::failed)?);
        let listening = Listening::begin(at, &front, &watch, file, reads)?;
        home.announce_node(node.rank, &listening.fronts())?;
        Ok(Self { listening, front })
    }

    /// Serves no more clients, and ends when nothing is under way.
    fn close(self, home: &Home, rank: usize) {
        self.listening.close(&self.front);
        drop(self.front);
        if let Err(e) = home.withdraw_node(rank) {
            tracing::warn!("{e}");
        }
    }
}
