//! Starts the nodes of a measurement, and gathers their reports.

use super::{NodeFigures, WireTask};
use crate::bench::bursts::{BurstMembers, addresses};
use crate::bench::delivered::DeliveryDigest;
use crate::bench::stop::go_on;
use crate::bench::{BenchPlan, BenchResult, Latency, histogram, judge};
use amcast_core::Config;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// The interval of checks whether to continue.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Logs of a measurement, removed when this goes out of scope.
struct BenchLogs(PathBuf);

impl BenchLogs {
    /// A directory of its own for this measurement, with one for each node.
    fn make(base: &Path, nodes: usize) -> Result<Self, String> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let logs = Self(base.join(format!("amcast-bench-{}-{run}", std::process::id())));
        for rank in 0..nodes {
            let path = logs.of(rank);
            std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(logs)
    }

    fn of(&self, rank: usize) -> PathBuf {
        self.0.join(format!("n{rank}"))
    }
}

impl Drop for BenchLogs {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{} is not removed: {e}", self.0.display());
        }
    }
}

/// A message of a node, by rank: that it is ready, or its report.
enum NodeReport {
    Ready,
    Saw(Box<NodeFigures>),
}

/// Measures a plan that was [`super::completed`]. Logs, where the protocol keeps any, are in a
/// directory of their own in `base`, which is removed afterwards.
///
/// # Errors
/// With what could not be set up, or with what was delivered in a wrong order.
pub fn run(config: &Config, plan: &BenchPlan, base: &Path) -> Result<BenchResult, String> {
    let nodes = plan.replicas;
    let logs = BenchLogs::make(base, nodes)?;
    let addresses = addresses(nodes).map_err(|e| format!("no free ports on 127.0.0.1: {e}"))?;
    let addresses: Vec<_> = addresses.iter().map(|&(tcp, _)| tcp).collect();
    let port = addresses.first().map_or(0, |at| u64::from(at.port()));
    let cluster_id = port << 32 | u64::from(std::process::id());
    let mut members = BurstMembers(Vec::new());
    let (tell, hear) = sync_channel(2 * nodes);
    let mut listeners = Vec::new();
    for rank in 0..nodes {
        let (plan, addresses, logs) = (plan.clone(), addresses.clone(), logs.of(rank));
        let task = WireTask { plan, cluster_id, rank, addresses, logs };
        listeners.push(start(&mut members, &task, tell.clone())?);
    }
    drop(tell);
    gather(&hear, nodes, |said| matches!(said, NodeReport::Ready).then_some(()))?;
    for listener in &mut listeners {
        writeln!(listener, "go").map_err(|e| format!("a node does not listen: {e}"))?;
    }
    let saw = gather(&hear, nodes, |said| match said {
        NodeReport::Saw(saw) => Some(*saw),
        NodeReport::Ready => None,
    })?;
    drop(members);
    measured(config, plan, saw)
}

/// Starts a node, gives it its task, and has what it says told on.
fn start(
    members: &mut BurstMembers,
    task: &WireTask,
    tell: SyncSender<(usize, Option<NodeReport>)>,
) -> Result<ChildStdin, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new(&program)
        .args(["bench", "--node"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("a node cannot be started: {e}"))?;
    let (to, from) = (child.stdin.take(), child.stdout.take());
    members.0.push(child);
    let mut to = to.ok_or("a node's input is not piped")?;
    let mut from = BufReader::new(from.ok_or("a node's output is not piped")?);
    let text = serde_json::to_string(task).map_err(|e| e.to_string())?;
    writeln!(to, "{text}").map_err(|e| format!("a node does not listen: {e}"))?;
    let rank = task.rank;
    let listen = move || {
        let mut line = String::new();
        let ready = from.read_line(&mut line).is_ok() && line.trim() == "ready";
        // The receiver may have given up: then the message is not needed.
        let _ = tell.send((rank, ready.then_some(NodeReport::Ready)));
        let saw = read_saw(&mut from).map(|saw| NodeReport::Saw(Box::new(saw)));
        let _ = tell.send((rank, saw));
    };
    std::thread::Builder::new().spawn(listen).map_err(|e| e.to_string())?;
    Ok(to)
}

fn read_saw(from: &mut impl Read) -> Option<NodeFigures> {
    let mut length = [0; 8];
    from.read_exact(&mut length).ok()?;
    let mut bytes = Vec::new();
    let length = u64::from_le_bytes(length);
    from.take(length).read_to_end(&mut bytes).ok()?;
    NodeFigures::read(&bytes)
}

/// Waits until all nodes have said what `want` takes; by rank.
fn gather<T>(
    hear: &Receiver<(usize, Option<NodeReport>)>,
    nodes: usize,
    want: impl Fn(NodeReport) -> Option<T>,
) -> Result<Vec<T>, String> {
    let mut all: Vec<Option<T>> = (0..nodes).map(|_| None).collect();
    while all.iter().any(Option::is_none) {
        match hear.recv_timeout(LOOK_EVERY) {
            Ok((rank, Some(said))) => all[rank] = want(said),
            Err(RecvTimeoutError::Timeout) => go_on()?,
            Ok((_, None)) | Err(RecvTimeoutError::Disconnected) => {
                go_on()?;
                return Err("a node ended before its time, and said why above".to_string());
            }
        }
    }
    Ok(all.into_iter().flatten().collect())
}

fn measured(
    config: &Config,
    plan: &BenchPlan,
    saw: Vec<NodeFigures>,
) -> Result<BenchResult, String> {
    let cluster = config.cluster();
    let mut all: Vec<DeliveryDigest> = vec![DeliveryDigest::default(); cluster.processes()];
    let (mut latencies, mut nodes) = (histogram(), Vec::new());
    for (rank, saw) in saw.into_iter().enumerate() {
        latencies.add(saw.latencies).map_err(|e| e.to_string())?;
        nodes.push(saw.used);
        for (group, kept) in cluster.all_groups().iter().zip(saw.kept) {
            all[cluster.replica(group, rank).index()] = kept;
        }
    }
    let holds = judge(cluster, &all)?;
    Ok(BenchResult {
        multicasts: latencies.len(),
        per_second: latencies.len() as f64 / plan.load.duration_s,
        latency_ns: Latency::of(&latencies),
        deliveries: all.iter().map(DeliveryDigest::count).sum(),
        deliveries_judged: all.iter().map(|kept| kept.first().len() as u64).sum(),
        holds,
        nodes,
    })
}
