//! Measurements over memory: the loops of nodes and clients over mapped files, as threads of
//! this process or as processes of their own, which share memory or are hosts with connections between them.

use super::ack_counters::ProcessAssignment;
use super::child_process::{ChildOutput, ChildProcess, gather};
use super::delivered::DeliveryDigest;
use super::free_ports::free_addresses;
use super::part::{self, PartResult};
use super::{BenchLoad, BenchPlan, BenchResult, histogram};
use amcast_core::{Config, Entry};
use amcast_memory::remote::RemoteMap;
use amcast_memory::{ClusterId, Directory};
use amcast_node::memory_links::{HostCarrier, MemoryLinks};
use hdrhistogram::Histogram;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The task of a child process, on its standard input.
#[derive(Serialize, Deserialize)]
struct ChildTask {
    plan: BenchPlan,
    cluster: u64,
    part: usize,
    /// Where each part takes connections, if each is a host of its own.
    hosts: Vec<SocketAddr>,
}

/// How long the parts may take beyond the time of the measurement.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the connections of a part outlast its loops.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Measurements of this process so far: each has a directory of its own.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// The beginning of the numbers of a measurement's clusters; they end with the id of the process
/// that leads it.
const BENCH: u64 = 0xbe9c;

/// Removes what measurements whose process was killed have left.
pub fn clear_left_over() {
    let base = Directory::usual_base();
    for id in Directory::clusters(&base) {
        let leader = id.0 as u32;
        let is_bench = id.0 >> 48 == BENCH;
        if !is_bench || Path::new(&format!("/proc/{leader}")).exists() {
            continue;
        }
        match Directory::discard(&base, id) {
            // It is another user's, or its last processes are just ending: the next one looks again.
            Err(e) => tracing::debug!("files of an earlier measurement cannot be removed: {e}"),
            Ok(()) => {
                tracing::info!("files that process {leader} left of a measurement are removed")
            }
        }
    }
}

fn deal_of(config: &Config, plan: &BenchPlan) -> ProcessAssignment {
    ProcessAssignment::new(*config.cluster(), plan.load.threads, plan.load.window())
}

/// The number of the directory of a part that is a host of its own. Measurements of a process count up from below.
const fn of_part(id: u64, part: usize) -> u64 {
    id | (part as u64 + 1) << 40
}

/// Where each part takes connections; empty if all share memory.
fn hosts_of(plan: &BenchPlan, deal: &ProcessAssignment) -> Result<Vec<SocketAddr>, String> {
    if !plan.load.hosts {
        return Ok(Vec::new());
    }
    free_addresses(deal.parts.len())
}

/// Runs a part in the memory that it shares with the others, or as a host of its own.
fn run_part(
    entry: &dyn Entry,
    config: &Config,
    (load, id): (&BenchLoad, u64),
    (deal, part): (&ProcessAssignment, usize),
    hosts: &[SocketAddr],
) -> Result<PartResult, String> {
    if hosts.is_empty() {
        let directory = open(id, deal)?;
        return part::run(entry, config, load, &directory, deal, part);
    }
    let own = open(of_part(id, part), deal)?;
    let map = RemoteMap {
        here: part,
        nodes: hosts.len(),
        node_of: deal.part_of_each(),
        near: vec![part],
        places: Vec::new(),
        first_incarnation: 0,
    };
    let start = (u64::from(std::process::id()) << 16) + part as u64 + 1;
    let by = load.rdma_provider.clone();
    let by = by.map_or(HostCarrier::Tcp, |provider| HostCarrier::Rdma { provider });
    let linked = MemoryLinks::between(own.clone(), (map, start), id, hosts, &by);
    let (directory, links) = linked.map_err(|e| e.to_string())?;
    let ran = part::run(entry, config, load, &directory, deal, part);
    // The last accesses reach the others before the connections end.
    std::thread::sleep(LAST_WORDS);
    drop(links);
    own.remove().map_err(|e| e.to_string())?;
    ran
}

fn open(id: u64, deal: &ProcessAssignment) -> Result<Directory, String> {
    Directory::open(&Directory::usual_base(), ClusterId(id), deal.processes(), 0)
        .map_err(|e| e.to_string())
}

/// A directory of its own for a measurement of this process.
pub(super) fn directory(deal: &ProcessAssignment) -> Result<Directory, String> {
    open(next_id(), deal)
}

fn next_id() -> u64 {
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    BENCH << 48 | u64::from(run) << 32 | u64::from(std::process::id())
}

/// Measures a plan.
///
/// # Errors
/// With what could not be set up, or with what was delivered in a wrong order.
pub fn run(entry: &dyn Entry, config: &Config, plan: &BenchPlan) -> Result<BenchResult, String> {
    let deal = deal_of(config, plan);
    let id = next_id();
    let directory = open(id, &deal)?;
    let hosts = hosts_of(plan, &deal)?;
    let ran = if plan.load.processes {
        as_processes(plan, id, &deal, &hosts)
    } else {
        as_threads(entry, config, plan, id, (&deal, &hosts))
    };
    directory.remove().map_err(|e| e.to_string())?;
    let cluster = config.cluster();
    let mut all: Vec<DeliveryDigest> = vec![DeliveryDigest::default(); cluster.processes()];
    let mut latencies = histogram();
    for (pids, ran) in deal.parts.iter().zip(ran?) {
        latencies.add(ran.latencies).map_err(|e| e.to_string())?;
        for (p, kept) in cluster.pids().zip(ran.kept) {
            if pids.contains(&p) {
                all[p.index()] = kept;
            }
        }
    }
    BenchResult::judged(cluster, plan, &all, &latencies)
}

fn as_threads(
    entry: &dyn Entry,
    config: &Config,
    plan: &BenchPlan,
    id: u64,
    (deal, hosts): (&ProcessAssignment, &[SocketAddr]),
) -> Result<Vec<PartResult>, String> {
    std::thread::scope(|scope| {
        let work = |part| move || run_part(entry, config, (&plan.load, id), (deal, part), hosts);
        let threads: Vec<_> = (0..deal.parts.len()).map(|p| scope.spawn(work(p))).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, _>| {
            t.join().unwrap_or_else(|_| Err("a loop panicked".to_string()))
        };
        threads.into_iter().map(join).collect()
    })
}

fn as_processes(
    plan: &BenchPlan,
    id: u64,
    deal: &ProcessAssignment,
    hosts: &[SocketAddr],
) -> Result<Vec<PartResult>, String> {
    let mut children = Vec::new();
    for part in 0..deal.parts.len() {
        let task = ChildTask { plan: plan.clone(), cluster: id, part, hosts: hosts.to_vec() };
        let text = serde_json::to_string(&task).map_err(|e| e.to_string())?;
        let name = format!("part {part} of the measurement");
        let mut child = ChildProcess::start_this_program(&name, &["bench", "--part"])?;
        child.tell(&text)?;
        child.end_input();
        children.push(child);
    }
    let within = Duration::from_secs_f64(plan.load.warm_up_s + plan.load.duration_s) + PATIENCE;
    let outputs = gather(&mut children, within, ChildOutput::all)?;
    children.iter_mut().try_for_each(|child| child.wait(PATIENCE))?;
    outputs.iter().map(|bytes| taken(bytes)).collect()
}

/// A child's part of a measurement: reads its task on standard input, and writes what came out to
/// standard output.
///
/// # Errors
/// With what went wrong.
pub fn child() -> Result<(), String> {
    // The leading process of the measurement may be killed, and would leave loops that spin.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| e.to_string())?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| e.to_string())?;
    let task: ChildTask = serde_json::from_str(&text).map_err(|e| format!("not a task: {e}"))?;
    let entry = task.plan.entry().ok_or("no such protocol")?;
    let config = task.plan.config(entry).map_err(|e| e.to_string())?;
    let deal = deal_of(&config, &task.plan);
    let of = (&task.plan.load, task.cluster);
    let ran = run_part(entry, &config, of, (&deal, task.part), &task.hosts)?;
    let bytes = bytes_of(&ran);
    let mut to = std::io::stdout().lock();
    to.write_all(&bytes).and_then(|()| to.flush()).map_err(|e| format!("nobody listens: {e}"))
}

/// Encodes the report of a child.
pub(super) fn bytes_of(ran: &PartResult) -> Vec<u8> {
    let mut words = vec![ran.kept.len() as u64];
    ran.kept.iter().for_each(|kept| kept.put(&mut words));
    for v in ran.latencies.iter_recorded() {
        words.extend([v.value_iterated_to(), v.count_since_last_iteration()]);
    }
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Decodes the report of a child.
pub(super) fn taken(bytes: &[u8]) -> Result<PartResult, String> {
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    let mut words = bytes.chunks_exact(8).map(word);
    read(&mut words).ok_or_else(|| "a part left half of what came out".to_string())
}

fn read(words: &mut impl Iterator<Item = u64>) -> Option<PartResult> {
    let count = words.next()?;
    let kept = (0..count).map(|_| DeliveryDigest::take(words)).collect::<Option<Vec<_>>>()?;
    let mut latencies: Histogram<u64> = histogram();
    while let Some(value) = words.next() {
        latencies.record_n(value, words.next()?).ok()?;
    }
    Some(PartResult { kept, latencies })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::DestinationChoice;

    #[test]
    fn parts_that_are_hosts_of_their_own_deliver_in_one_order() {
        let _limit = amcast_test_policy::time_limit();
        deliver_between_hosts(None);
    }

    #[cfg(feature = "rdma")]
    #[test]
    fn parts_with_remote_memory_access_between_them_deliver_in_one_order() {
        let _limit = amcast_test_policy::time_limit();
        deliver_between_hosts(Some("tcp".to_string()));
    }

    fn deliver_between_hosts(rdma_provider: Option<String>) {
        let plan = BenchPlan {
            protocol: "tram".to_string(),
            groups: 2,
            replicas: 3,
            clients: 2,
            overlay: "breadth".to_string(),
            // All parts share this machine's cores.
            set: vec![("suspect_us".to_string(), "2000000".to_string())],
            load: BenchLoad {
                destinations: 2,
                choice: DestinationChoice::Uniform,
                payload: 64,
                outstanding: 4,
                rate: None,
                warm_up_s: 0.05,
                duration_s: 0.2,
                threads: 4,
                pin: false,
                processes: false,
                senders: 0,
                early: false,
                hosts: true,
                rdma_provider,
            },
        };
        let entry = plan.entry().expect("it is there");
        let config = plan.config(entry).expect("it is sound");
        let result = run(entry, &config, &plan).expect("it is delivered in order");
        assert!(result.multicasts > 0 && result.deliveries_judged > 0);
        assert!(!result.holds.is_empty());
    }
}
