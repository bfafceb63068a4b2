//! A cluster of three nodes of the services with data on disk, each of which can be killed and started
//! again by hand.

use amcast_node::cluster_dir::ClusterDir;
use amcast_node::config::{ClusterFile, HostPlacement, node_name};
use amcast_node::control::{NodeStatus, status_of};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Nodes of the cluster.
pub(in crate::bench) const NODES: usize = 3;

/// How long a node may take to serve.
const PATIENCE: Duration = Duration::from_secs(120);

/// The nodes, by rank. They end with this.
pub(in crate::bench) struct BenchNodes {
    home: PathBuf,
    running: Vec<Option<Child>>,
}

impl Drop for BenchNodes {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            // One that has ended already cannot be killed: that is as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn failed(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl BenchNodes {
    /// Starts all nodes in a directory, which is made, and waits until they serve.
    pub(in crate::bench) fn start(
        home: &Path,
        (protocol, shards): (&str, usize),
    ) -> Result<Self, String> {
        fs::create_dir_all(home).map_err(|e| format!("{}: {e}", home.display()))?;
        let home = home.canonicalize().map_err(failed)?;
        let ports = addresses().map_err(|e| format!("no free ports on 127.0.0.1: {e}"))?;
        let place = |(rank, &port): (usize, &u16)| {
            (node_name(rank), HostPlacement::at((Ipv4Addr::LOCALHOST, port).into()))
        };
        let file = ClusterFile {
            protocol: protocol.to_string(),
            shards,
            replicas: NODES,
            id: Some(u64::from(std::process::id()) << 16 | u64::from(ports[0])),
            nodes: ports.iter().enumerate().map(place).collect(),
            durable: true,
            log_dir: Some(PathBuf::from(".")),
            ..ClusterFile::default()
        };
        file.write(&home.join("cluster.toml")).map_err(failed)?;
        let mut nodes = Self { home, running: (0..NODES).map(|_| None).collect() };
        (0..NODES).try_for_each(|rank| nodes.begin(rank))?;
        (0..NODES).try_for_each(|rank| nodes.wait_for(rank))?;
        Ok(nodes)
    }

    /// Starts a node; it serves some time later.
    pub(in crate::bench) fn begin(&mut self, rank: usize) -> Result<(), String> {
        let program = std::env::current_exe().map_err(failed)?;
        let child = Command::new(program)
            .arg("node")
            .arg("--config")
            .arg(self.home.join("cluster.toml"))
            .args([
                "--name",
                &node_name(rank),
                "--redis-port",
                "0",
                "--log-port",
                "0",
                "--until-input-ends",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // It writes a log of its own beside its data.
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("a node cannot be started: {e}"))?;
        self.running[rank] = Some(child);
        Ok(())
    }

    /// Ends it as `kill -9` does.
    pub(in crate::bench) fn kill(&mut self, rank: usize) -> Result<(), String> {
        let Some(mut child) = self.running[rank].take() else { return Ok(()) };
        child.kill().and_then(|()| child.wait().map(drop)).map_err(failed)
    }

    /// Removes what a node that does not run keeps, except its log for people.
    pub(in crate::bench) fn empty(&self, rank: usize) -> Result<(), String> {
        let (name, failed) = (format!("{}.", node_name(rank)), |e: io::Error| e.to_string());
        for entry in fs::read_dir(&self.home).map_err(failed)? {
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
        status_of(&self.home.join(format!("{}.sock", node_name(rank)))).ok()
    }

    /// Whether it is a full member.
    pub(in crate::bench) fn is_ready(&self, rank: usize) -> bool {
        self.status(rank).is_some_and(|status| status.ready)
    }

    fn wait_for(&mut self, rank: usize) -> Result<(), String> {
        let begun = Instant::now();
        while !self.is_ready(rank) {
            crate::bench::stop::go_on()?;
            let ended = self.running[rank]
                .as_mut()
                .is_some_and(|c| c.try_wait().is_ok_and(|s| s.is_some()));
            if ended || begun.elapsed() > PATIENCE {
                let log = self.home.join(format!("{}.log", node_name(rank)));
                return Err(format!("{} does not serve: see {}", node_name(rank), log.display()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Where a node serves Redis clients.
    pub(in crate::bench) fn redis(&self, rank: usize) -> Result<String, String> {
        let fronts = ClusterDir::at(&self.home).and_then(|home| home.fronts_of(rank));
        fronts.map(|fronts| fronts.redis).map_err(failed)
    }

    /// Where a node serves the log.
    pub(in crate::bench) fn log(&self, rank: usize) -> Result<String, String> {
        let fronts = ClusterDir::at(&self.home).and_then(|home| home.fronts_of(rank));
        fronts.map_err(failed)?.log.ok_or_else(|| "a node does not serve logs".to_string())
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
        let data = self.home.join(format!("{}.data", node_name(rank)));
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

/// Free ports, by node: for streams and for datagrams. They are free a moment later, too, unless
/// somebody is very quick.
fn addresses() -> io::Result<Vec<u16>> {
    let one = |_| {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let udp = UdpSocket::bind(tcp.local_addr()?)?;
        Ok((tcp, udp))
    };
    let held = (0..NODES).map(one).collect::<io::Result<Vec<_>>>()?;
    held.iter().map(|(tcp, _)| Ok(tcp.local_addr()?.port())).collect()
}
