//! The processes that a measurement of the service starts, and ends again.

use super::check_stop;
use crate::bench::child_process::{ChildOutput, ChildProcess, this_program};
use crate::bench::free_ports::free_addresses;
use crate::bench::scratch_dir::ScratchDir;
use amcast::client::Connection;
use amcast_core::Entry;
use amcast_memory::Directory;
use amcast_node::control::{NodeStatus, status_of};
use amcast_protocols::tram::Tram;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to start, to come back, or to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a cluster may take to serve.
const START_PATIENCE: Duration = Duration::from_secs(300);

/// A cluster of its own: `amcast up` on free ports, in a directory of its own.
pub(crate) struct OwnCluster {
    _process: ChildProcess,
    data: PathBuf,
    nodes: usize,
    /// Where its Redis gateway listens.
    pub(crate) redis: String,
    /// Its directory, where that is on disk and goes after it.
    _disk: Option<ScratchDir>,
}

impl OwnCluster {
    /// Starts one in memory and waits until it serves.
    pub(crate) fn start(
        shards: usize,
        replicas: usize,
        set: &[(String, String)],
    ) -> Result<Self, String> {
        // A name that the next `amcast up` clears away if this one is killed.
        let name = format!("amcast-up-bench-{}", std::process::id());
        let data = Directory::usual_base().join(name);
        Self::start_in((data, None), Tram.name(), (shards, replicas), (set, None))
    }

    /// Starts one of so many shards and replicas on disk, with a protocol that keeps what it orders; with so many threads for
    /// commands at each node, if not with as many as is usual.
    pub(crate) fn start_durable(
        protocol: &str,
        shape: (usize, usize),
        set: &[(String, String)],
        workers: Option<usize>,
    ) -> Result<Self, String> {
        let disk = ScratchDir::temporary("durable")?.warn_if_in_memory("set TMPDIR to");
        let data = disk.path().join("cluster");
        Self::start_in((data, Some(disk)), protocol, shape, (set, workers))
    }

    fn start_in(
        (data, disk): (PathBuf, Option<ScratchDir>),
        protocol: &str,
        (shards, replicas): (usize, usize),
        (set, workers): (&[(String, String)], Option<usize>),
    ) -> Result<Self, String> {
        let mut command = this_program(&["up"])?;
        command
            .args(["--redis-port", "0", "--log-port", "0", "--http-port", "0"])
            .args(["--protocol", protocol])
            .args(["--shards", &shards.to_string(), "--replicas", &replicas.to_string()])
            .arg("--data")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Signals to all processes of a terminal or of `timeout` are for this one, which then
            // stops the cluster: after a second signal the cluster would end at once, without
            // removing its files.
            .process_group(0);
        for (name, value) in set {
            command.arg("--set").arg(format!("{name}={value}"));
        }
        if let Some(workers) = workers {
            command.arg("--workers").arg(workers.to_string());
        }
        let mut process = ChildProcess::start("`amcast up`", &mut command)?.ends_within(PATIENCE);
        let line = process.hear(START_PATIENCE, ChildOutput::line)?;
        let redis = line.split_whitespace().find_map(|word| word.strip_prefix("redis="));
        let redis = redis.ok_or("the cluster did not start; it said why above")?.to_string();
        Ok(Self { _process: process, data, nodes: replicas, redis, _disk: disk })
    }

    /// The status of each node, if it answers.
    pub(super) fn nodes(&self) -> Vec<Option<NodeStatus>> {
        let socket = |n| self.data.join(format!("n{n}.sock"));
        (0..self.nodes).map(|n| status_of(&socket(n)).ok()).collect()
    }

    /// The nodes on which some shard's leader is, as most nodes say, by number.
    pub(super) fn leaders(&self) -> Result<Vec<usize>, String> {
        let said: Vec<NodeStatus> = self.nodes().into_iter().flatten().collect();
        let shards = said.first().map_or(0, |node| node.replicas.len());
        let mut leaders = Vec::with_capacity(shards);
        for shard in 0..shards {
            let of = said.iter().filter_map(|node| node.replicas.get(shard)?.leader.as_deref());
            let rank = |name: &str| name.rsplit_once("/r").and_then(|(_, r)| r.parse().ok());
            let mut votes = vec![0; self.nodes];
            for node in of.filter_map(rank).filter(|&r: &usize| r < self.nodes) {
                votes[node] += 1;
            }
            let best = (0..self.nodes).max_by_key(|&n| votes[n]).filter(|&n| votes[n] > 0);
            leaders.push(best.ok_or_else(|| format!("nobody knows who leads shard {shard}"))?);
        }
        Ok(leaders)
    }

    /// Kills nodes as `kill -9` does, all at once.
    pub(super) fn kill(&self, nodes: &[usize]) -> Result<Instant, String> {
        let said = self.nodes();
        let mut pids = Vec::new();
        for &node in nodes {
            let status = said[node].as_ref().ok_or_else(|| format!("n{node} does not answer"))?;
            pids.extend(Pid::from_raw(status.os_pid as i32));
        }
        let at = Instant::now();
        for pid in pids {
            kill_process(pid, Signal::KILL).map_err(|e| e.to_string())?;
        }
        Ok(at)
    }

    /// Waits until every node is a full member, and none of them is one of `gone`.
    pub(super) fn wait_until_whole(&self, gone: &[u32]) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            check_stop()?;
            let fit = |n: &NodeStatus| n.ready && !gone.contains(&n.os_pid);
            if self.nodes().iter().all(|n| n.as_ref().is_some_and(fit)) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err("killed nodes did not come back".to_string());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A single Redis server.
pub(crate) struct RedisServer {
    _process: ChildProcess,
    /// Where it listens.
    pub(crate) at: String,
    /// Where its log is, if it keeps one.
    _disk: Option<ScratchDir>,
}

impl RedisServer {
    /// Starts `program` on a free port, without persistence; none if there is no such program.
    pub(super) fn start(program: &str) -> Result<Option<Self>, String> {
        Self::start_with(program, false)
    }

    /// The same; if it `syncs`, it writes a log and syncs it before it answers.
    pub(crate) fn start_with(program: &str, syncs: bool) -> Result<Option<Self>, String> {
        let disk = syncs.then(|| ScratchDir::temporary("redis")).transpose()?;
        let disk = disk.map(|disk| disk.warn_if_in_memory("set TMPDIR to"));
        let free = free_addresses(1)?[0];
        let mut command = Command::new(program);
        if let Some(disk) = &disk {
            command.args(["--appendfsync", "always", "--dir"]).arg(disk.path());
        }
        let keeps = if syncs { "yes" } else { "no" };
        command
            .args(["--port", &free.port().to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", keeps, "--daemonize", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let Some(process) = ChildProcess::start_if_installed(program, &mut command)? else {
            return Ok(None);
        };
        let process = process.ends_within(PATIENCE);
        let at = free.to_string();
        let begun = Instant::now();
        while Connection::open(&at).and_then(|mut c| c.call(&[b"PING"])).is_err() {
            check_stop()?;
            if begun.elapsed() > PATIENCE {
                return Err(format!("{program} does not serve"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(Self { _process: process, at, _disk: disk }))
    }
}
