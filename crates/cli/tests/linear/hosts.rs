//! Three nodes on hosts of their own that find each other through etcd, and what operators do with
//! them: etcd is stopped, a host is partitioned away, all nodes are restarted in turn, and one is
//! replaced by a machine at another address, while clients on a host of their own continue. Needs
//! root, network namespaces and etcd; where they are not available it says so and passes.
//!
//! etcd is stopped for ten seconds; with `AMCAST_LONG=1` in the environment for a minute.

use crate::clients::ClientLoad;
use crate::harness::{AMCAST, run, signal, unique};
use crate::{alone, judge_events};
use amcast::core::Time;
use amcast::node::config::{ClusterFile, EtcdSettings, HostPlacement};
use amcast::node::control::{NodeStatus, status_of};
use amcast_hosts::{HostLab, LinkSettings};
use amcast_test_policy::skip;
use rustix::process::Signal;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NODES: usize = 3;

/// The hosts besides those of the nodes: etcd's, the clients', and one that replaces another.
const ETCD: usize = 3;
const CLIENTS: usize = 4;
const SPARE: usize = 5;

const PATIENCE: Duration = Duration::from_secs(40);

/// How long the cluster serves between two events.
const PEACE: Duration = Duration::from_millis(700);

struct HostedCluster {
    hosts: HostLab,
    base: PathBuf,
    etcd: Option<Child>,
    /// By rank: the host that it is on, and its process.
    nodes: Vec<(usize, Child)>,
}

fn end(child: &mut Child) {
    // One that has ended already is what we want.
    let _ = child.kill();
    let _ = child.wait();
}

impl HostedCluster {
    fn start(hosts: HostLab) -> Self {
        let base = unique("deploy");
        fs::create_dir_all(&base).expect("a directory can be made");
        let mut cluster = Self { hosts, base, etcd: None, nodes: Vec::new() };
        cluster.start_etcd();
        for rank in 0..NODES {
            let node = cluster.start_node(rank, rank);
            cluster.nodes.push((rank, node));
        }
        cluster
    }

    fn at(&self, host: usize, port: u16) -> SocketAddr {
        SocketAddr::from((self.hosts.host(host).address(), port))
    }

    fn start_etcd(&mut self) {
        let (url, peer) = (format!("http://{}", self.at(ETCD, 2379)), self.at(ETCD, 2380));
        let peer = format!("http://{peer}");
        let mut command = self.hosts.host(ETCD).command("etcd");
        command.arg("--data-dir").arg(self.base.join("etcd")).args(["--name", "e"]);
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("e={peer}")]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.etcd = Some(command.spawn().expect("etcd can be started"));
    }

    fn stop_etcd(&mut self) {
        self.etcd.take().iter_mut().for_each(end);
    }

    /// The value of a key in etcd.
    fn in_etcd(&self, key: &str) -> String {
        let url = format!("http://{}", self.at(ETCD, 2379));
        let key = format!("/amcast/4711/{key}");
        let mut command = self.hosts.host(ETCD).command("etcdctl");
        command.env("ETCDCTL_API", "3").args([
            "--endpoints",
            &url,
            "get",
            "--print-value-only",
            &key,
        ]);
        let output = command.output().expect("etcdctl can be started");
        String::from_utf8_lossy(&output.stdout).trim_end().to_string()
    }

    fn dir(&self, host: usize) -> PathBuf {
        self.base.join(format!("h{host}"))
    }

    /// Starts a node on a host, whose file says where it is and where etcd is, and no more.
    fn start_node(&self, rank: usize, host: usize) -> Child {
        let place = HostPlacement {
            control: Some(self.at(host, 7401)),
            redis: Some(self.at(host, 6379)),
            log: Some(self.at(host, 6380)),
            ..HostPlacement::at(self.at(host, 7400))
        };
        let etcd = EtcdSettings {
            endpoints: vec![format!("http://{}", self.at(ETCD, 2379))],
            prefix: "/amcast".to_string(),
            ca: None,
            cert: None,
            key: None,
            user: None,
            password_file: None,
            lease_s: 2,
        };
        let file = ClusterFile {
            id: Some(4711),
            secret: Some(self.base.join("secret")),
            // Clients give no password.
            insecure: true,
            data: Some(self.dir(host)),
            nodes: [(format!("n{rank}"), place)].into(),
            etcd: Some(etcd),
            ..ClusterFile::default()
        };
        amcast::node::secret::make(&self.base.join("secret")).expect("a file can be written");
        let path = self.base.join(format!("h{host}.toml"));
        file.write(&path).expect("a file can be written");
        let checked = run(&["config", "check", &path.display().to_string()]);
        assert!(checked.status.success(), "{}", crate::harness::errors(&checked));
        let mut command = self.hosts.host(host).command(AMCAST);
        command.arg("node").arg("--config").arg(path).args(["--name", &format!("n{rank}")]);
        command.spawn().expect("a node can be started")
    }

    fn status(&self, rank: usize) -> Option<NodeStatus> {
        let host = self.nodes[rank].0;
        status_of(&self.dir(host).join(format!("n{rank}.sock"))).ok()
    }

    fn wait(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !so(self) {
            let all: Vec<_> = (0..NODES).map(|rank| self.status(rank).map(|s| s.why)).collect();
            assert!(begun.elapsed() < PATIENCE, "{what}: {all:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_until_ready(&self) {
        let ready = |rank| self.status(rank).is_some_and(|s| s.ready);
        self.wait("all are ready", |_| (0..NODES).all(ready));
    }

    /// Ends a node in good order, and starts it again.
    fn restart(&mut self, rank: usize) {
        let (host, node) = &mut self.nodes[rank];
        signal(node.id(), Signal::TERM);
        assert!(node.wait().expect("it is a child of ours").success(), "n{rank} ends well");
        let host = *host;
        self.nodes[rank].1 = self.start_node(rank, host);
        self.wait_until_ready();
    }
}

impl Drop for HostedCluster {
    fn drop(&mut self) {
        self.nodes.iter_mut().for_each(|(_, node)| end(node));
        self.stop_etcd();
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// The operations on the cluster, with their times on the clock of the recording.
fn operate(cluster: &mut HostedCluster, load: &ClientLoad) -> Vec<(&'static str, Time, Time)> {
    let away = crate::lasting(Duration::from_secs(10)).min(Duration::from_secs(60));
    let mut done = Vec::new();
    let mut event = |what, act: &mut dyn FnMut()| {
        load.next_round();
        std::thread::sleep(PEACE);
        let begun = load.now();
        act();
        done.push((what, begun, load.now()));
    };
    event("etcd is stopped", &mut || {
        cluster.stop_etcd();
        let begun = Instant::now();
        while begun.elapsed() < away {
            std::thread::sleep(PEACE);
            load.next_round();
        }
        cluster.wait_until_ready();
        cluster.start_etcd();
    });
    event("a host is cut off", &mut || {
        cluster.hosts.unplug(2).expect("a plug can be moved");
        std::thread::sleep(2 * PEACE);
        load.next_round();
        std::thread::sleep(PEACE);
        let others = |rank| cluster.status(rank).is_some_and(|s| s.ready);
        assert!(others(0) && others(1), "the others continue");
        cluster.hosts.plug_in(2).expect("a plug can be moved");
        cluster.wait_until_ready();
    });
    event("all nodes are restarted in turn", &mut || {
        for rank in 0..NODES {
            cluster.restart(rank);
            std::thread::sleep(PEACE / 2);
        }
    });
    event("a node is replaced", &mut || {
        end(&mut cluster.nodes[1].1);
        // Its disk is gone with it.
        fs::remove_dir_all(cluster.dir(1)).expect("it is ours");
        std::thread::sleep(PEACE);
        let node = cluster.start_node(1, SPARE);
        cluster.nodes[1] = (SPARE, node);
        cluster.wait_until_ready();
    });
    event("the one that gave it the state is killed", &mut || {
        // The new one counts: without it there is no majority.
        end(&mut cluster.nodes[0].1);
        std::thread::sleep(2 * PEACE);
        let node = cluster.start_node(0, 0);
        cluster.nodes[0].1 = node;
        cluster.wait_until_ready();
    });
    // The log is beside the store, in the same order and the same time: each host takes appends.
    for (n, host) in [0, SPARE, 2].into_iter().enumerate() {
        let gateway = cluster.at(host, 6380).to_string();
        let mut log = amcast_log::LogSession::new(vec![gateway], None).expect("an address");
        for log_name in ["a", "b", "c", "d"] {
            assert_eq!(log.append(log_name, b"value".to_vec()).expect("it is taken"), n as u64);
        }
    }
    std::thread::sleep(PEACE);
    load.wait_for_answers(1000);
    done
}

#[test]
fn three_hosts_with_etcd_bear_what_operators_do() {
    let _alone = alone();
    let test = "three_hosts_with_etcd_bear_what_operators_do";
    let there = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return skip(test, "no etcd (apt install etcd-server etcd-client)");
    }
    let hosts = match HostLab::new(SPARE + 1, LinkSettings::default()) {
        Ok(hosts) => hosts,
        Err(why) => return skip(test, why),
    };
    let mut cluster = HostedCluster::start(hosts);
    cluster.wait_until_ready();
    let gateway = |host| cluster.at(host, 6379).to_string();
    let load = ClientLoad::at([0, 1, 2, SPARE].map(gateway).to_vec(), 3, 8);
    // A thread of the clients' host starts its clients there.
    let cluster = &mut cluster;
    let namespace = cluster.hosts.host(CLIENTS).namespace().expect("it is there");
    let (done, [moved, coordinates, map]) = std::thread::scope(|scope| {
        let operates = || {
            namespace.enter().expect("a thread may move");
            let done = load.run(|load| operate(&mut *cluster, load));
            let told = ["nodes/n1", "leads/g0", "map"].map(|key| cluster.in_etcd(key));
            // Here, because what a thread started is ended with it.
            for (_, node) in &mut cluster.nodes {
                signal(node.id(), Signal::TERM);
                assert!(node.wait().expect("it is a child of ours").success());
            }
            (done, told)
        };
        scope.spawn(operates).join().expect("the cluster bears it")
    });
    let recording = judge_events(load, &done, "hosts");
    let place: HostPlacement = serde_json::from_str(&moved).expect("a place");
    assert_eq!((place.address, place.replaced), (cluster.at(SPARE, 7400), 1), "{moved}");
    assert!(coordinates.starts_with('n') && map.contains("\"shards\":3"), "{coordinates} {map}");
    assert!(recording.answered() > 1000, "{}", recording.figures());
}
