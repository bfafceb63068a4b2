//! The key-value store on rings while a replica is killed and comes back [MRP 8.5]: throughput and
//! latency over time, checkpoints, and how long the replica takes.
//!
//! Real nodes with their data on disk. Clients write at a rate, through the nodes that live on; a
//! write's latency counts from when it was due, so that a stall counts for all that it held up.

mod load;

use crate::bench::nodes::{BenchNodes, NODES};
use crate::bench::stop::check_stop;
use load::{Writers, fill, peak};
use serde::Serialize;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// The course of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RecoveryCourse {
    /// The protocol.
    pub protocol: String,
    /// Bytes of values that the store has before anything is measured.
    pub state_bytes: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Connections.
    pub clients: usize,
    /// Which part of the most there is the clients ask for.
    pub part_of_peak: f64,
    /// How many writes a second they ask for, if that does not depend on the most there is.
    pub per_second: Option<f64>,
    /// When the replica is killed, in seconds.
    pub kill_s: f64,
    /// Whether it comes back with an empty disk.
    pub empties_disk: bool,
    /// When it is started again.
    pub restart_s: f64,
    /// When all ends.
    pub end_s: f64,
    /// Where nodes keep their data: a new directory, which is removed.
    pub data: PathBuf,
}

/// One second.
#[derive(Clone, Debug, Serialize)]
pub struct SecondFigures {
    /// Which, from 0.
    pub at: usize,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Their mean latency, in milliseconds.
    pub mean_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Memory of each node's process, in megabytes.
    pub memory_mb: Vec<f64>,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
pub struct RecoveryEvent {
    /// When, in seconds.
    pub at_s: f64,
    /// The event.
    pub what: String,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RecoveryResult {
    /// The most that clients can write, each second, if it was looked for.
    pub peak_per_second: Option<f64>,
    /// The rate that they requested.
    pub asked_per_second: f64,
    /// Second by second.
    pub seconds: Vec<SecondFigures>,
    /// In order.
    pub events: Vec<RecoveryEvent>,
    /// From its start to when the replica had applied all that the others had a moment before, and took
    /// part, in seconds.
    pub recovery_s: Option<f64>,
    /// Writes that were refused, or lost their connection.
    pub errors: u64,
    /// The most memory that each node's process ever had, in megabytes; of the replica that was
    /// killed, since it came back.
    pub most_memory_mb: Vec<f64>,
    /// The longest time without any acknowledgement, in milliseconds.
    pub longest_silence_ms: f64,
}

/// The worst second of a time, beside those before the kill.
#[derive(Clone, Debug, Serialize)]
pub struct ThroughputDip {
    /// Which time.
    pub when: &'static str,
    /// The median of the seconds before the kill, in writes.
    pub before: u64,
    /// The least of any second, in writes.
    pub worst: u64,
    /// Which part that is.
    pub part: f64,
    /// Seconds with less than 70 % of that median.
    pub below: usize,
}

impl RecoveryResult {
    /// The worst seconds: while the node is down, and from its restart on. The first second, in
    /// which clients connect, is omitted, and so is the last, which is not a whole one.
    pub fn dips(&self, course: &RecoveryCourse) -> Vec<ThroughputDip> {
        let of = |from: f64, to: f64| -> Vec<u64> {
            let within = |s: &&SecondFigures| s.at as f64 >= from && (s.at as f64) < to;
            self.seconds.iter().filter(within).map(|s| s.acknowledged).collect()
        };
        let mut quiet = of(1.0, course.kill_s);
        quiet.sort_unstable();
        let before = quiet.get(quiet.len() / 2).copied().unwrap_or(0);
        let times = [
            ("while it is down", course.kill_s, course.restart_s),
            ("when it comes back", course.restart_s, course.end_s - 1.0),
        ];
        let dip = |(when, from, to): (&'static str, f64, f64)| {
            let seconds = of(from.floor(), to);
            let worst = seconds.iter().copied().min().unwrap_or(0);
            let part = worst as f64 / before.max(1) as f64;
            let below = seconds.iter().filter(|&&n| (n as f64) < 0.7 * before as f64).count();
            ThroughputDip { when, before, worst, part, below }
        };
        times.map(dip).into_iter().collect()
    }
}

/// The replica that is killed: not the one that coordinates, as it happens with three.
fn victim(nodes: &BenchNodes) -> usize {
    let leader = nodes.status(0).and_then(|s| s.replicas.first()?.leader.clone());
    let rank = leader.and_then(|name| name.rsplit_once("/r")?.1.parse::<usize>().ok()).unwrap_or(0);
    (rank + NODES - 1) % NODES
}

const SECOND: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the course.
///
/// # Errors
/// With what did not start or did not serve, or with an acknowledged write that is lost.
pub fn run(course: &RecoveryCourse, tell: &mut dyn FnMut(&str)) -> Result<RecoveryResult, String> {
    let told = watch(course, tell);
    let removed = std::fs::remove_dir_all(&course.data);
    let told = told?;
    removed.map_err(|e| format!("{} cannot be removed: {e}", course.data.display()))?;
    Ok(told)
}

fn watch(course: &RecoveryCourse, tell: &mut dyn FnMut(&str)) -> Result<RecoveryResult, String> {
    tell("starts three nodes");
    let mut nodes = BenchNodes::start(&course.data, (&course.protocol, 1))?;
    let victim = victim(&nodes);
    let gateways: Vec<String> = (0..NODES)
        .filter(|&rank| rank != victim)
        .map(|rank| nodes.redis(rank))
        .collect::<Result<_, _>>()?;
    tell("fills the store");
    fill(&gateways[0], course.state_bytes, course.value_bytes)?;
    let (most, asked) = match course.per_second {
        Some(asked) => (None, asked),
        None => {
            tell("looks for the most that can be written");
            let peak = peak(&gateways, course)?;
            (Some(peak), (peak * course.part_of_peak).max(1.0))
        }
    };
    tell("measures");
    let writers = Writers::start(&gateways, course, asked);
    let mut log = RecoveryTimeline::new(writers.begun(), &nodes);
    let seen = course_of(course, &mut nodes, victim, &mut log);
    let written = writers.stop()?;
    let (recovery_s, memory) = seen?;
    written.read_back(&gateways[0], course.value_bytes)?;
    let most_mb = |rank| nodes.memory(rank).map_or(f64::NAN, |(_, most)| most as f64 / 1e6);
    Ok(RecoveryResult {
        peak_per_second: most,
        asked_per_second: asked,
        seconds: written.seconds(&memory),
        longest_silence_ms: written.longest_silence_ms(),
        errors: written.errors,
        events: log.events,
        recovery_s,
        most_memory_mb: (0..NODES).map(most_mb).collect(),
    })
}

/// The events, and the nodes' storage at the last look.
struct RecoveryTimeline {
    begun: Instant,
    events: Vec<RecoveryEvent>,
    kept: Vec<(Option<u64>, usize)>,
}

impl RecoveryTimeline {
    fn new(begun: Instant, nodes: &BenchNodes) -> Self {
        let kept = |rank| {
            let (newest, segments) = nodes.kept(rank);
            (newest.map(|(position, _)| position), segments)
        };
        Self { begun, events: Vec::new(), kept: (0..NODES).map(kept).collect() }
    }

    fn add(&mut self, what: String) {
        self.events.push(RecoveryEvent { at_s: self.begun.elapsed().as_secs_f64(), what });
    }

    /// Tells of new checkpoints, and of logs that became shorter.
    fn look(&mut self, nodes: &BenchNodes) {
        for rank in 0..NODES {
            let (newest, segments) = nodes.kept(rank);
            let (before, had) = self.kept[rank];
            if let Some((position, bytes)) =
                newest.filter(|(position, _)| Some(*position) != before)
            {
                self.add(format!("n{rank}: a checkpoint of {:.1} MB", bytes as f64 / 1e6));
                self.kept[rank].0 = Some(position);
            }
            if segments < had {
                self.add(format!("n{rank}: its log is trimmed, to {segments} segments"));
            }
            self.kept[rank].1 = segments;
        }
    }
}

/// The applied position of a node's application, if the node is a full member.
fn applied(nodes: &BenchNodes, rank: usize) -> Option<u64> {
    let status = nodes.status(rank).filter(|status| status.ready)?;
    status.replicas.first().map(|replica| replica.applied)
}

/// Memory of each node by second.
type MemoryBySecond = Vec<Vec<f64>>;

/// Kills and starts the victim; gives how long it took to come back, and memory by second.
fn course_of(
    course: &RecoveryCourse,
    nodes: &mut BenchNodes,
    victim: usize,
    log: &mut RecoveryTimeline,
) -> Result<(Option<f64>, MemoryBySecond), String> {
    let mut killed = false;
    let mut started = None;
    let mut back = None;
    let mut others = u64::MAX;
    let mut memory = Vec::new();
    loop {
        check_stop()?;
        let now = log.begun.elapsed().as_secs_f64();
        if now >= course.end_s {
            return Ok((back, memory));
        }
        if !killed && now >= course.kill_s {
            killed = true;
            nodes.kill(victim)?;
            log.add(format!("n{victim} is killed"));
            if course.empties_disk {
                // Not when it starts: the others' logs are on the same disk, which has to do with that for a while.
                nodes.empty(victim)?;
            }
        }
        if started.is_none() && now >= course.restart_s {
            nodes.begin(victim)?;
            started = Some(Instant::now());
            log.add(format!("n{victim} is started again"));
        }
        if let Some(at) = started.filter(|_| back.is_none())
            && applied(nodes, victim).is_some_and(|upto| upto >= others)
        {
            back = Some(at.elapsed().as_secs_f64());
            log.add(format!("n{victim} has all that the others had a moment ago"));
        }
        others = applied(nodes, (victim + 1) % NODES).unwrap_or(u64::MAX);
        log.look(nodes);
        if log.begun.elapsed() >= SECOND * memory.len() as u32 {
            let of = |rank| nodes.memory(rank).map_or(0.0, |(now, _)| now as f64 / 1e6);
            memory.push((0..NODES).map(of).collect());
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dip_is_told_beside_the_median_before_the_kill() {
        let second = |(at, &acknowledged): (usize, &u64)| SecondFigures {
            at,
            acknowledged,
            mean_ms: 0.0,
            max_ms: 0.0,
            memory_mb: Vec::new(),
        };
        let told = RecoveryResult {
            peak_per_second: None,
            asked_per_second: 100.0,
            // It connects, is quiet, is killed at 4, comes back at 6 and ends at 9.
            seconds: [7, 100, 90, 110, 60, 100, 80, 25, 100, 3]
                .iter()
                .enumerate()
                .map(second)
                .collect(),
            events: Vec::new(),
            recovery_s: None,
            errors: 0,
            most_memory_mb: Vec::new(),
            longest_silence_ms: 0.0,
        };
        let course = RecoveryCourse {
            protocol: String::new(),
            state_bytes: 0,
            value_bytes: 0,
            clients: 0,
            part_of_peak: 1.0,
            per_second: Some(100.0),
            kill_s: 4.0,
            empties_disk: false,
            restart_s: 6.0,
            end_s: 10.0,
            data: PathBuf::new(),
        };
        let dips = told.dips(&course);
        let figures: Vec<_> = dips.iter().map(|d| (d.before, d.worst, d.part, d.below)).collect();
        assert_eq!(figures, [(100, 60, 0.6, 1), (100, 25, 0.25, 1)]);
    }
}
