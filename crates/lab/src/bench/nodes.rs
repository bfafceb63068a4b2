//! A cluster of three nodes of the services with data on disk, each of which can be killed and started
//! again by hand.

use super::child_process::{ChildProcess, this_program};
use super::free_ports::free_addresses;
use amcast_node::cluster_dir::ClusterDir;
use amcast_node::config::{ClusterFile, HostPlacement, node_name};
use amcast_node::control::{NodeStatus, status_of};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Nodes of the cluster.
pub(in crate::bench) const NODES: usize = 3;

/// How long a node may take to serve.
const PATIENCE: Duration = Duration::from_secs(120);

/// The nodes, by rank. They end with this.
pub(in crate::bench) struct BenchNodes {
    dir: PathBuf,
    running: Vec<Option<ChildProcess>>,
}

fn failed(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl BenchNodes {
    /// Starts all nodes in a directory, which is made, and waits until they serve.
    pub(in crate::bench) fn start(
        dir: &Path,
        (protocol, shards): (&str, usize),
    ) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let dir = dir.canonicalize().map_err(failed)?;
        let addresses = free_addresses(NODES)?;
        let place = |(rank, &at): (usize, &SocketAddr)| (node_name(rank), HostPlacement::at(at));
        let file = ClusterFile {
            protocol: protocol.to_string(),
            shards,
            replicas: NODES,
            id: Some(u64::from(std::process::id()) << 16 | u64::from(addresses[0].port())),
            nodes: addresses.iter().enumerate().map(place).collect(),
            durable: true,
            log_dir: Some(PathBuf::from(".")),
            ..ClusterFile::default()
        };
        file.write(&dir.join("cluster.toml")).map_err(failed)?;
        let mut nodes = Self { dir, running: (0..NODES).map(|_| None).collect() };
        (0..NODES).try_for_each(|rank| nodes.begin(rank))?;
        (0..NODES).try_for_each(|rank| nodes.wait_for(rank))?;
        Ok(nodes)
    }

    /// Starts a node; it serves some time later.
    pub(in crate::bench) fn begin(&mut self, rank: usize) -> Result<(), String> {
        let name = node_name(rank);
        let mut command = this_program(&["node", "--name", &name, "--until-input-ends"])?;
        command
            .args(["--redis-port", "0", "--log-port", "0"])
            .arg("--config")
            .arg(self.dir.join("cluster.toml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // It writes a log of its own beside its data.
            .stderr(Stdio::null());
        self.running[rank] = Some(ChildProcess::start(&name, &mut command)?);
        Ok(())
    }

    /// Ends it as `kill -9` does.
    pub(in crate::bench) fn kill(&mut self, rank: usize) -> Result<(), String> {
        self.running[rank].take().map_or(Ok(()), ChildProcess::kill)
    }

    /// Removes what a node that does not run keeps, except its log for people.
    pub(in crate::bench) fn empty(&self, rank: usize) -> Result<(), String> {
        let (name, failed) = (format!("{}.", node_name(rank)), |e: io::Error| e.to_string());
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let own = path
                .file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|n| n.strip_prefix(&name).is_some_and(|rest| rest != "log"));
            match own {
                true if path.is_dir() => fs::remove_dir_all(&path).map_err(failed)?,
                true => fs::remove_file(&path).map_err(failed)?,
                false => {}
            }
        }
        Ok(())
    }

    /// The status of a node, if it answers.
    pub(in crate::bench) fn status(&self, rank: usize) -> Option<NodeStatus> {
        status_of(&self.dir.join(format!("{}.sock", node_name(rank)))).ok()
    }

    /// Whether it is a full member.
    pub(in crate::bench) fn is_ready(&self, rank: usize) -> bool {
        self.status(rank).is_some_and(|status| status.ready)
    }

    fn wait_for(&mut self, rank: usize) -> Result<(), String> {
        let begun = Instant::now();
        while !self.is_ready(rank) {
            crate::bench::stop::check_stop()?;
            let ended = self.running[rank].as_mut().and_then(ChildProcess::status);
            if ended.is_some() || begun.elapsed() > PATIENCE {
                let log = self.dir.join(format!("{}.log", node_name(rank)));
                return Err(format!("{} does not serve: see {}", node_name(rank), log.display()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Where a node serves Redis clients.
    pub(in crate::bench) fn redis(&self, rank: usize) -> Result<String, String> {
        let gateways = ClusterDir::at(&self.dir).and_then(|dir| dir.gateways_of(rank));
        gateways.map(|gateways| gateways.redis).map_err(failed)
    }

    /// Where a node serves the log.
    pub(in crate::bench) fn log(&self, rank: usize) -> Result<String, String> {
        let gateways = ClusterDir::at(&self.dir).and_then(|dir| dir.gateways_of(rank));
        gateways.map_err(failed)?.log.ok_or_else(|| "a node does not serve logs".to_string())
    }

    /// Memory of a node's process that is in use, and the most there was, in bytes.
    pub(in crate::bench) fn memory(&self, rank: usize) -> Option<(u64, u64)> {
        let child = self.running[rank].as_ref()?;
        let text = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok().map(|kb| kb << 10)
        };
        Some((of("VmRSS:")?, of("VmHWM:")?))
    }

    /// The newest checkpoint of a node, by position, with its bytes; and how many segments its log has.
    pub(in crate::bench) fn kept(&self, rank: usize) -> (Option<(u64, u64)>, usize) {
        let data = self.dir.join(format!("{}.data", node_name(rank)));
        let numbered = |path: &Path, ending: &str| -> Vec<(u64, u64)> {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let number = |entry: &fs::DirEntry| {
                entry.file_name().to_str()?.strip_suffix(ending)?.parse::<u64>().ok()
            };
            let sized = |entry: fs::DirEntry| {
                Some((number(&entry)?, entry.metadata().map_or(0, |meta| meta.len())))
            };
            entries.filter_map(sized).collect()
        };
        let newest = numbered(&data.join("state"), ".checkpoint").into_iter().max();
        (newest, numbered(&data.join("g0"), ".segment").len())
    }
}
