//! The processes that a measurement of the service starts, and ends again.

use super::go_on;
use amcast::client::Connection;
use amcast_core::Entry;
use amcast_memory::Directory;
use amcast_node::control::{NodeStatus, status_of};
use amcast_protocols::tram::Tram;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a process may take to start, to come back, or to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A child that ends with this, by its number and by no name.
pub(super) struct OwnedChild(pub(super) Child);

impl Drop for OwnedChild {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        if let Some(pid) = Pid::from_raw(self.0.id() as i32) {
            // It is not reaped yet, so the number is still its own.
            let _ = kill_process(pid, Signal::TERM);
        }
        let begun = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ = self.0.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A directory on disk for this measurement, removed with this.
pub(super) struct PrivateDir(PathBuf);

impl PrivateDir {
    /// Makes one in the temporary directory.
    pub(super) fn make(name: &str) -> Result<Self, String> {
        Self::under(&std::env::temp_dir(), name, "set TMPDIR to")
    }

    /// Makes one under `base`; `choose` says how somebody gives another one than that.
    pub(super) fn under(base: &Path, name: &str, choose: &str) -> Result<Self, String> {
        let path = base.join(format!("amcast-bench-{name}-{}", std::process::id()));
        let wrong = |e| format!("{}: {e}; {choose} another directory", path.display());
        std::fs::create_dir_all(&path).map_err(wrong)?;
        // Those that work in it may be elsewhere.
        let path = path.canonicalize().map_err(wrong)?;
        if is_in_memory(&path) {
            tracing::warn!(
                "{} is in memory, where a sync costs nothing; {choose} a directory on a disk",
                base.display()
            );
        }
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// Whether what is in a directory is in memory only.
fn is_in_memory(path: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let kind = rustix::fs::statfs(path).map(|system| system.f_type);
    kind.is_ok_and(|kind| kind == TMPFS || kind == RAMFS)
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{} is not removed: {e}", self.0.display());
        }
    }
}

/// A cluster of its own: `amcast up` on free ports, in a directory of its own.
pub(crate) struct OwnCluster {
    _child: OwnedChild,
    _stdout: BufReader<ChildStdout>,
    data: PathBuf,
    nodes: usize,
    /// Where its Redis front listens.
    pub(crate) redis: String,
    /// Its directory, where that is on disk and goes after it.
    _disk: Option<PrivateDir>,
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
        // Several may run beside each other.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let disk = PrivateDir::make(&format!("durable{nth}"))?;
        let data = disk.path().join("cluster");
        Self::start_in((data, Some(disk)), protocol, shape, (set, workers))
    }

    fn start_in(
        (data, disk): (PathBuf, Option<PrivateDir>),
        protocol: &str,
        (shards, replicas): (usize, usize),
        (set, workers): (&[(String, String)], Option<usize>),
    ) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command
            .args(["up", "--redis-port", "0", "--log-port", "0", "--http-port", "0"])
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
        let mut child = command.spawn().map_err(|e| format!("`amcast up` does not start: {e}"))?;
        let stdout = child.stdout.take();
        let child = OwnedChild(child);
        let mut stdout = BufReader::new(stdout.ok_or("standard output is not piped")?);
        let mut line = String::new();
        stdout.read_line(&mut line).map_err(|e| e.to_string())?;
        let redis = line.split_whitespace().find_map(|word| word.strip_prefix("redis="));
        let redis = redis.ok_or("the cluster did not start; it said why above")?.to_string();
        Ok(Self { _child: child, _stdout: stdout, data, nodes: replicas, redis, _disk: disk })
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
            go_on()?;
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
    _child: OwnedChild,
    /// Where it listens.
    pub(crate) at: String,
    /// Where its log is, if it keeps one.
    _disk: Option<PrivateDir>,
}

impl RedisServer {
    /// Starts `program` on a free port, without persistence; none if there is no such program.
    pub(super) fn start(program: &str) -> Result<Option<Self>, String> {
        Self::start_with(program, false)
    }

    /// The same; if it `syncs`, it writes a log and syncs it before it answers.
    pub(crate) fn start_with(program: &str, syncs: bool) -> Result<Option<Self>, String> {
        let disk = if syncs { Some(PrivateDir::make("redis")?) } else { None };
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
        let port = free.map_err(|e| e.to_string())?.port();
        let mut command = Command::new(program);
        if let Some(disk) = &disk {
            command.args(["--appendfsync", "always", "--dir"]).arg(disk.path());
        }
        let keeps = if syncs { "yes" } else { "no" };
        let spawned = command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", keeps, "--daemonize", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let child = match spawned {
            Ok(child) => OwnedChild(child),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(format!("{program}: {e}")),
        };
        let at = format!("127.0.0.1:{port}");
        let begun = Instant::now();
        while Connection::open(&at).and_then(|mut c| c.call(&[b"PING"])).is_err() {
            go_on()?;
            if begun.elapsed() > PATIENCE {
                return Err(format!("{program} does not serve"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(Self { _child: child, at, _disk: disk }))
    }
}
