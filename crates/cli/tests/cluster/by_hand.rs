//! Nodes that are started by hand, as on hosts of their own: each with a directory that no other one
//! looks into.

use crate::harness::{AMCAST, call, ends_with_us, runs, unique};
use amcast::client::{Answer, Connection};
use amcast::node::config::{ClusterFile, HostPlacement};
use amcast::node::control::{NodeStatus, status_of};
use rustix::net::{self, AddressFamily, SocketType};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const NODES: usize = 3;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port that nobody is given for connections while this is there, and that a node told of it may listen on, again and
/// again: a socket that does not listen is not in its way.
struct ReservedPort(OwnedFd);

impl ReservedPort {
    /// One whose number nobody has for datagrams either: nodes take both, and end where they cannot.
    fn hold() -> Self {
        let mut held = (0..100).map(|_| Self::hold_any());
        let is_free = |port: &Self| UdpSocket::bind(port.address()).is_ok();
        held.find(is_free).expect("not all ports have datagrams")
    }

    fn hold_any() -> Self {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        Self(socket)
    }

    fn address(&self) -> SocketAddr {
        net::getsockname(&self.0).unwrap().try_into().unwrap()
    }
}

/// Three nodes as on three hosts, each with a directory of its own.
pub(crate) struct ThreeHosts {
    pub(crate) base: PathBuf,
    _ports: Vec<ReservedPort>,
    redis: Vec<SocketAddr>,
    /// Where the log is served.
    #[allow(dead_code, reason = "the tests of the log use it")]
    pub(crate) log: Vec<String>,
    pub(crate) running: [Option<Child>; NODES],
}

impl ThreeHosts {
    pub(crate) fn new() -> Self {
        Self::with(3, |_, _, _| {})
    }

    /// With so many shards; `more` says what else is in the file of each, whose base this is.
    pub(crate) fn with(shards: usize, more: impl Fn(&Path, usize, &mut ClusterFile)) -> Self {
        let base = unique("replaced");
        fs::create_dir_all(&base).unwrap();
        let ports: Vec<ReservedPort> = (0..4 * NODES).map(|_| ReservedPort::hold()).collect();
        let at: Vec<SocketAddr> = ports.iter().map(ReservedPort::address).collect();
        amcast::node::secret::make(&base.join("secret")).unwrap();
        let mut file = ClusterFile { shards, id: Some(4711), ..ClusterFile::default() };
        file.secret = Some(base.join("secret"));
        file.protocol = "multi-ring".to_string();
        for (node, at) in at.chunks(4).enumerate() {
            let (control, redis, log) = (Some(at[1]), Some(at[2]), Some(at[3]));
            let place = HostPlacement { control, redis, log, ..HostPlacement::at(at[0]) };
            file.nodes.insert(format!("n{node}"), place);
        }
        for node in 0..NODES {
            file.data = Some(base.join(format!("d{node}")));
            let mut file = file.clone();
            more(&base, node, &mut file);
            file.write(&base.join(format!("n{node}.toml"))).unwrap();
        }
        let redis = at.chunks(4).map(|at| at[2]).collect();
        let log = at.chunks(4).map(|at| at[3].to_string()).collect();
        Self { base, _ports: ports, redis, log, running: [const { None }; NODES] }
    }

    pub(crate) fn disk(&self, node: usize) -> PathBuf {
        self.base.join(format!("d{node}"))
    }

    /// Where a node serves Redis clients.
    #[allow(dead_code, reason = "not all tests use it")]
    pub(crate) fn redis(&self, node: usize) -> SocketAddr {
        self.redis[node]
    }

    pub(crate) fn command(&self, node: usize) -> Command {
        self.command_of(node, &format!("n{node}.toml"))
    }

    /// With another file than the node's own.
    pub(crate) fn command_of(&self, node: usize, config: &str) -> Command {
        let mut command = ends_with_us(AMCAST);
        command.args(["node", "--name", &format!("n{node}"), "--config"]);
        command.arg(self.base.join(config)).stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&mut self, nodes: impl IntoIterator<Item = usize>) {
        for node in nodes {
            self.running[node] = Some(self.command(node).spawn().unwrap());
        }
    }

    pub(crate) fn kill(&mut self, nodes: impl IntoIterator<Item = usize>) {
        for mut child in nodes.into_iter().filter_map(|node| self.running[node].take()) {
            // One that has ended already is what we want.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn wait(
        &self,
        node: usize,
        what: &str,
        wanted: impl Fn(&NodeStatus) -> bool,
    ) -> NodeStatus {
        let begun = Instant::now();
        loop {
            let status = status_of(&self.disk(node).join(format!("n{node}.sock"))).ok();
            if let Some(status) = status.clone().filter(&wanted) {
                return status;
            }
            let has_ended = self.running[node].as_ref().is_some_and(|child| !runs(child.id()));
            assert!(!has_ended, "n{node} has ended, and is not {what}; standard error says why");
            assert!(begun.elapsed() < PATIENCE, "n{node} is not {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn wait_until_ready(&self, nodes: impl IntoIterator<Item = usize>) {
        for node in nodes {
            self.wait(node, "ready", |status| status.ready);
        }
    }

    pub(crate) fn ask(&self, node: usize, words: &[&str]) -> Answer {
        call(&mut Connection::open(&self.redis[node].to_string()).unwrap(), words)
    }
}

impl Drop for ThreeHosts {
    fn drop(&mut self) {
        self.kill(0..NODES);
        fs::remove_dir_all(&self.base).unwrap();
    }
}
