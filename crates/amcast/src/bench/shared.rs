//! Measurements on shared memory: the loops of nodes and clients over mapped files, as threads of
//! this process or as processes of their own.

use super::acks::Deal;
use super::delivered::Kept;
use super::part::{self, Ran};
use super::{Latency, Measured, Plan, histogram, judge};
use amcast_core::{Config, Entry};
use amcast_memory::{ClusterId, Directory};
use hdrhistogram::Histogram;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a child process is told on its standard input.
#[derive(Serialize, Deserialize)]
struct Task {
    plan: Plan,
    cluster: u64,
    part: usize,
    /// Where it leaves what came out.
    file: PathBuf,
}

/// Measurements of this process so far: each has a directory of its own.
static RUNS: AtomicU32 = AtomicU32::new(0);

fn deal_of(config: &Config, plan: &Plan) -> Deal {
    Deal::new(*config.cluster(), plan.load.threads, plan.load.window())
}

fn open(id: u64, deal: &Deal) -> Result<Directory, String> {
    Directory::open(&Directory::usual_base(), ClusterId(id), deal.processes(), 0)
        .map_err(|e| e.to_string())
}

/// Measures a plan.
///
/// # Errors
/// With what could not be set up, or with what was delivered in a wrong order.
pub fn run(entry: &dyn Entry, config: &Config, plan: &Plan) -> Result<Measured, String> {
    let deal = deal_of(config, plan);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let id = 0xbe9c << 48 | u64::from(run) << 32 | u64::from(std::process::id());
    let directory = open(id, &deal)?;
    let ran = if plan.load.processes {
        as_processes(plan, id, &deal)
    } else {
        as_threads(entry, config, plan, &directory, &deal)
    };
    directory.remove().map_err(|e| e.to_string())?;
    let cluster = config.cluster();
    let mut all: Vec<Kept> = vec![Kept::default(); cluster.processes()];
    let mut latencies = histogram();
    for (pids, ran) in deal.parts.iter().zip(ran?) {
        latencies.add(ran.latencies).map_err(|e| e.to_string())?;
        for (p, kept) in cluster.pids().zip(ran.kept) {
            if pids.contains(&p) {
                all[p.index()] = kept;
            }
        }
    }
    let holds = judge(cluster, &all)?;
    Ok(Measured {
        multicasts: latencies.len(),
        per_second: latencies.len() as f64 / plan.load.duration_s,
        latency_ns: Latency::of(&latencies),
        deliveries: all.iter().map(Kept::count).sum(),
        deliveries_judged: all.iter().map(|kept| kept.first().len() as u64).sum(),
        holds,
    })
}

fn as_threads(
    entry: &dyn Entry,
    config: &Config,
    plan: &Plan,
    directory: &Directory,
    deal: &Deal,
) -> Result<Vec<Ran>, String> {
    std::thread::scope(|scope| {
        let work = |part| move || part::run(entry, config, &plan.load, directory, deal, part);
        let threads: Vec<_> = (0..deal.parts.len()).map(|p| scope.spawn(work(p))).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, _>| {
            t.join().unwrap_or_else(|_| Err("a loop panicked".to_string()))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Children that are ended when this goes out of scope, whatever happened.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already cannot be killed: that is as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn as_processes(plan: &Plan, id: u64, deal: &Deal) -> Result<Vec<Ran>, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut children = Children(Vec::new());
    let mut files = Vec::new();
    for part in 0..deal.parts.len() {
        let name = format!("amcast-bench-{}-{id:x}-{part}", std::process::id());
        let file = Directory::usual_base().join(name);
        let task = Task { plan: plan.clone(), cluster: id, part, file: file.clone() };
        let text = serde_json::to_string(&task).map_err(|e| e.to_string())?;
        let mut child = Command::new(&program)
            .args(["bench", "--part"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("a part cannot be started: {e}"))?;
        let said = child.stdin.take().map(|mut to| to.write_all(text.as_bytes()));
        children.0.push(child);
        files.push(file);
        said.transpose().map_err(|e| format!("a part does not listen: {e}"))?;
    }
    let mut failed = None;
    for (part, child) in children.0.iter_mut().enumerate() {
        let status = child.wait().map_err(|e| e.to_string())?;
        if !status.success() {
            failed = Some(format!("part {part} of the measurement failed: {status}"));
        }
    }
    let ran = files.iter().map(|file| taken(file)).collect::<Result<Vec<_>, _>>();
    for file in files {
        // One that failed may have left none.
        let _ = fs::remove_file(file);
    }
    failed.map_or(ran, Err)
}

/// A child's part of a measurement: reads its task on standard input.
///
/// # Errors
/// With what went wrong.
pub fn child() -> Result<(), String> {
    // Whoever leads the measurement may be killed, and would leave loops that spin.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| e.to_string())?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| e.to_string())?;
    let task: Task = serde_json::from_str(&text).map_err(|e| format!("not a task: {e}"))?;
    let entry = task.plan.entry().ok_or("no such protocol")?;
    let config = task.plan.config(entry).map_err(|e| e.to_string())?;
    let deal = deal_of(&config, &task.plan);
    let directory = open(task.cluster, &deal)?;
    let ran = part::run(entry, &config, &task.plan.load, &directory, &deal, task.part)?;
    let mut words = vec![ran.kept.len() as u64];
    ran.kept.iter().for_each(|kept| kept.put(&mut words));
    for v in ran.latencies.iter_recorded() {
        words.extend([v.value_iterated_to(), v.count_since_last_iteration()]);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    fs::write(&task.file, bytes).map_err(|e| format!("{}: {e}", task.file.display()))
}

/// What a child left.
fn taken(file: &Path) -> Result<Ran, String> {
    let bytes = fs::read(file).map_err(|e| format!("a part left nothing: {e}"))?;
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    let mut words = bytes.chunks_exact(8).map(word);
    read(&mut words).ok_or_else(|| "a part left half of what came out".to_string())
}

fn read(words: &mut impl Iterator<Item = u64>) -> Option<Ran> {
    let count = words.next()?;
    let kept = (0..count).map(|_| Kept::take(words)).collect::<Option<Vec<_>>>()?;
    let mut latencies: Histogram<u64> = histogram();
    while let Some(value) = words.next() {
        latencies.record_n(value, words.next()?).ok()?;
    }
    Some(Ran { kept, latencies })
}
