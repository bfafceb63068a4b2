//! The distributed log under synchronous appends of many clients [MRP 8.3.3].

use super::nodes::{NODES, Nodes};
use super::stop::go_on;
use super::{Latency, histogram};
use amcast_log::Client;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Logs that clients append to, by turns.
const LOGS: usize = 16;

/// What so many clients saw.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Clients, each with one append on the way.
    pub clients: usize,
    /// Appends each second.
    pub per_second: f64,
    /// From an append to its answer.
    pub latency_ns: Latency,
}

/// Runs a cluster with so many rings that have a load, and so many clients one after the other, each for
/// so long, in a new directory that is removed.
///
/// # Errors
/// With what did not start or serve.
pub fn run(
    data: &Path,
    rings: usize,
    payload: usize,
    clients: &[usize],
    time: Duration,
) -> Result<Vec<Point>, String> {
    let measured = measure(data, rings, payload, clients, time);
    let removed = std::fs::remove_dir_all(data);
    let measured = measured?;
    removed.map_err(|e| format!("{} cannot be removed: {e}", data.display()))?;
    Ok(measured)
}

fn measure(
    data: &Path,
    rings: usize,
    payload: usize,
    clients: &[usize],
    time: Duration,
) -> Result<Vec<Point>, String> {
    let nodes = Nodes::start(data, ("multi-ring", rings))?;
    let fronts = (0..NODES).map(|rank| nodes.log(rank)).collect::<Result<Vec<_>, _>>()?;
    clients.iter().map(|&count| point(&fronts, payload, count, time)).collect()
}

fn point(
    fronts: &[String],
    payload: usize,
    clients: usize,
    time: Duration,
) -> Result<Point, String> {
    let (end, begun) = (AtomicBool::new(false), Instant::now());
    // Connections are made first.
    let warm = Duration::from_millis(500);
    let seen = thread::scope(|scope| {
        let client = |n: usize| {
            let (at, end) = (fronts[n % fronts.len()].clone(), &end);
            scope.spawn(move || append(at, n, payload, (begun + warm, end)))
        };
        let threads: Vec<_> = (0..clients).map(client).collect();
        let mut stopped = Ok(());
        while begun.elapsed() < warm + time && stopped.is_ok() {
            thread::sleep(Duration::from_millis(5));
            stopped = go_on();
        }
        end.store(true, Ordering::Relaxed);
        let join = |t: thread::ScopedJoinHandle<'_, _>| {
            t.join().unwrap_or_else(|_| Err("a client panicked".to_string()))
        };
        let seen: Result<Vec<Histogram<u64>>, String> = threads.into_iter().map(join).collect();
        stopped.and(seen)
    })?;
    let mut all = histogram();
    seen.iter().try_for_each(|one| all.add(one)).map_err(|e| e.to_string())?;
    let per_second = all.len() as f64 / time.as_secs_f64();
    Ok(Point { clients, per_second, latency_ns: Latency::of(&all) })
}

/// Appends one value after the other until the end; what took how long from `from` on.
fn append(
    at: String,
    n: usize,
    payload: usize,
    (from, end): (Instant, &AtomicBool),
) -> Result<Histogram<u64>, String> {
    let mut client = Client::new(vec![at], None).map_err(|e| e.to_string())?;
    let (log, value, mut seen) = (format!("log{}", n % LOGS), vec![b'v'; payload], histogram());
    while !end.load(Ordering::Relaxed) {
        let begun = Instant::now();
        client.append(&log, value.clone()).map_err(|e| e.why)?;
        if begun >= from && !end.load(Ordering::Relaxed) {
            seen.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    Ok(seen)
}
