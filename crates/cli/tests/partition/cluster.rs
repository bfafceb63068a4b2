//! Nodes on hosts of their own, run by hand, whose history is recorded.

use crate::harness::{AMCAST, Record, call, errors, run, signal, unique};
use amcast::client::{Answer, Connection};
use amcast::node::cluster_dir::ClusterDir;
use amcast::node::config::{ClusterFile, HostPlacement, Setting};
use amcast::node::control::{NodeStatus, ViewStatus, status_of};
use amcast_hosts::HostLab;
use rustix::time::{ClockId, clock_gettime};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Nodes on hosts, each with a directory that no other one looks into.
pub(crate) struct HostCluster {
    pub(crate) hosts: HostLab,
    pub(crate) dirs: Vec<PathBuf>,
    pub(crate) record: Record,
    nodes: Vec<Child>,
}

impl HostCluster {
    /// Starts a node on each host, of a protocol with these settings.
    pub(crate) fn start(hosts: HostLab, protocol: &str, set: &[(&str, Setting)]) -> Self {
        let (base, record) = (unique("hosts"), Record::new("partition"));
        let mut file = ClusterFile {
            protocol: protocol.to_string(),
            set: set.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            shards: 1,
            replicas: hosts.hosts(),
            id: Some(4711),
            secret: Some(base.join("secret")),
            // Clients give no password.
            insecure: true,
            record: Some(record.to_path_buf()),
            ..ClusterFile::default()
        };
        for node in 0..hosts.hosts() {
            let at = |port: u16| SocketAddr::from((hosts.host(node).address(), port));
            let place = HostPlacement { control: Some(at(7401)), ..HostPlacement::at(at(7400)) };
            file.nodes.insert(format!("n{node}"), place);
        }
        let dirs: Vec<PathBuf> =
            (0..hosts.hosts()).map(|node| base.join(format!("h{node}"))).collect();
        std::fs::create_dir_all(&base).expect("a directory can be made");
        amcast::node::secret::make(&base.join("secret")).expect("a file can be written");
        let start = |(node, dir): (usize, &PathBuf)| {
            std::fs::create_dir_all(dir).expect("a directory can be made");
            let path = dir.join("cluster.toml");
            file.write(&path).expect("a file can be written");
            let mut command = hosts.host(node).command(AMCAST);
            command.args(["node", "--until-input-ends", "--redis-port", "0", "--http-port", "0"]);
            command.arg("--config").arg(path).args(["--name", &format!("n{node}")]);
            command.stdin(Stdio::piped()).spawn().expect("a node can be started")
        };
        let nodes = dirs.iter().enumerate().map(start).collect();
        Self { hosts, dirs, record, nodes }
    }

    /// Waits until all nodes work in one view, and their gateways listen.
    pub(crate) fn wait_until_whole(&self) {
        let all = self.hosts.hosts();
        for node in 0..all {
            let gateways = self.dirs[node].join(format!("n{node}.fronts.json"));
            self.wait(node, |status| has_all(status, all, None) && gateways.exists());
        }
    }

    /// The status of a node, if it answers.
    pub(crate) fn status(&self, node: usize) -> Option<NodeStatus> {
        status_of(&self.dirs[node].join(format!("n{node}.sock"))).ok()
    }

    /// Waits until what a node says is as wanted, and says what it was then.
    pub(crate) fn wait(&self, node: usize, wanted: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
        let begun = Instant::now();
        loop {
            let status = self.status(node);
            if let Some(status) = status.clone().filter(&wanted) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "n{node} is still so: {status:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where a node takes clients of the store.
    pub(crate) fn redis(&self, node: usize) -> String {
        let dir = ClusterDir::at(&self.dirs[node]).expect("its file is there");
        dir.gateways_of(node).expect("it serves").redis
    }

    /// Calls the store through a node, on its host.
    pub(crate) fn call(&self, node: usize, words: &[&str]) -> Answer {
        let at = self.redis(node);
        let call = || call(&mut Connection::open(&at).expect("it listens"), words);
        self.hosts.host(node).run(call).expect("the host is there")
    }

    /// Waits until clients of a node are served again. A moment may pass after the node is ready: its
    /// gateway asks the nodes from time to time which of them have their majority.
    pub(crate) fn wait_for_service(&self, node: usize) {
        let begun = Instant::now();
        while let refused @ Answer::Error(_) = self.call(node, &["GET", "n"]) {
            assert!(refused.to_string().contains("CLUSTERDOWN"), "{refused}");
            assert!(begun.elapsed() < PATIENCE, "n{node} still says {refused}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until these nodes have executed the same. That is all that was acknowledged: who did so has it.
    pub(crate) fn wait_until_level(&self, nodes: &[usize]) {
        let begun = Instant::now();
        let executed = |node: &usize| {
            let replica = self.status(*node)?.replicas.into_iter().next()?;
            (replica.applied == replica.delivered).then_some(replica.applied)
        };
        loop {
            let all: Vec<Option<u64>> = nodes.iter().map(executed).collect();
            if all[0].is_some() && all.iter().all(|applied| *applied == all[0]) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "they have executed {all:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends a node as `kill -9` does, and writes that into the history.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].kill().expect("it runs");
        self.nodes[node].wait().expect("it is a child of ours");
        self.note_crash(node);
    }

    /// The node is not counted as correct from now on.
    fn note_crash(&self, node: usize) {
        // The histories' time is that of the machine.
        let now = clock_gettime(ClockId::Boottime);
        let ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        let crash = format!("{{\"ev\":\"crash\",\"t\":{ns},\"p\":\"g0/r{node}\"}}\n");
        let file = self.record.join(format!("crash{node}.0.jsonl"));
        std::fs::write(file, crash).expect("a file can be written");
    }

    /// Stops these nodes as their host would, and has their whole history judged.
    pub(crate) fn stop_and_judge(&mut self, nodes: &[usize]) {
        let quorum = self.nodes.len() / 2 + 1;
        for (ended, &node) in nodes.iter().enumerate() {
            signal(self.nodes[node].id(), rustix::process::Signal::TERM);
            assert!(self.nodes[node].wait().expect("it is a child of ours").success());
            if nodes.len() - ended < quorum {
                // Its last report of its clock may have found no majority: that is no fault of the order.
                self.note_crash(node);
            }
        }
        let end = self.record.join("end.0.jsonl");
        std::fs::write(end, "{\"ev\":\"end\"}\n").expect("a file can be written");
        let promised = "TO(UA,SUTO);linearizable;fifo-order;view-synchrony";
        let checked = run(&["check", self.record.to_str().unwrap(), "--require", promised]);
        let report = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success(), "{report}{}", errors(&checked));
        assert!(report.contains("holds       SUTO"), "{report}");
    }
}

impl Drop for HostCluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // One that has ended already is what we want.
            let _ = node.kill();
            let _ = node.wait();
        }
        let base = self.dirs[0].parent().expect("it lies in one");
        let _ = std::fs::remove_dir_all(base);
    }
}

/// Whether a node works in a view of so many that is later than the one of this number.
pub(crate) fn has_all(status: &NodeStatus, members: usize, later_than: Option<u64>) -> bool {
    let is_whole = |view: &ViewStatus| {
        view.members.len() == members && later_than.is_none_or(|number| view.number > number)
    };
    status.ready && status.view.as_ref().is_some_and(is_whole)
}
