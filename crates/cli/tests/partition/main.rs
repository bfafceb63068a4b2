//! Nodes on hosts of their own, run by hand, one of which is cut off from the others. Needs root, and
//! network namespaces; where they are not to be had it says so and passes.

#[allow(dead_code, reason = "the other tests of clusters use the rest of it")]
#[path = "cluster/harness.rs"]
mod harness;

use amcast::client::{Answer, Connection};
use amcast::node::cluster_dir::ClusterDir;
use amcast::node::config::{ClusterFile, HostPlacement, Setting};
use amcast::node::control::{NodeStatus, ViewStatus, status_of};
use amcast_hosts::{HostLab, LinkSettings};
use amcast_test_policy::skip;
use harness::{AMCAST, Record, StopOnDrop, bytes, call, errors, run, signal, unique};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 4;

/// The node that is partitioned away.
const ALONE: usize = 3;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nodes on hosts, each with a directory that no other one looks into.
struct PartitionedCluster {
    hosts: HostLab,
    dirs: Vec<PathBuf>,
    record: Record,
    nodes: Vec<Child>,
}

impl PartitionedCluster {
    fn start(hosts: HostLab, protocol: &str, lane: &str) -> Self {
        let (base, record) = (unique("hosts"), Record::new("partition"));
        let mut file = ClusterFile {
            protocol: protocol.to_string(),
            set: [("lane".to_string(), Setting::Word(lane.to_string()))].into(),
            shards: 1,
            replicas: NODES,
            id: Some(4711),
            secret: Some(base.join("secret")),
            // Clients give no password.
            insecure: true,
            record: Some(record.to_path_buf()),
            ..ClusterFile::default()
        };
        for node in 0..NODES {
            let at =
                |port: u16| -> SocketAddr { SocketAddr::from((hosts.host(node).address(), port)) };
            let place = HostPlacement { control: Some(at(7401)), ..HostPlacement::at(at(7400)) };
            file.nodes.insert(format!("n{node}"), place);
        }
        let dirs: Vec<PathBuf> = (0..NODES).map(|node| base.join(format!("h{node}"))).collect();
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

    fn status(&self, node: usize) -> Option<NodeStatus> {
        status_of(&self.dirs[node].join(format!("n{node}.sock"))).ok()
    }

    /// Waits until what a node says is as wanted, and says what it was then.
    fn wait(&self, node: usize, wanted: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
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

    fn redis(&self, node: usize) -> String {
        let dir = ClusterDir::at(&self.dirs[node]).expect("its file is there");
        dir.gateways_of(node).expect("it serves").redis
    }

    /// Calls the store through a node, on its host.
    fn call(&self, node: usize, words: &[&str]) -> Answer {
        let at = self.redis(node);
        let call = || call(&mut Connection::open(&at).expect("it listens"), words);
        self.hosts.host(node).run(call).expect("the host is there")
    }

    /// Waits until clients of a node are served again. A moment may pass after the node is ready: its
    /// gateway asks the nodes from time to time which of them have their majority.
    fn wait_for_service(&self, node: usize) {
        let begun = Instant::now();
        while let refused @ Answer::Error(_) = self.call(node, &["GET", "n"]) {
            assert!(refused.to_string().contains("CLUSTERDOWN"), "{refused}");
            assert!(begun.elapsed() < PATIENCE, "n{node} still says {refused}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all nodes have executed the same. That is all that was acknowledged: who did so has it.
    fn wait_until_level(&self) {
        let begun = Instant::now();
        let executed = |node: usize| {
            let replica = self.status(node)?.replicas.into_iter().next()?;
            (replica.applied == replica.delivered).then_some(replica.applied)
        };
        loop {
            let all = std::array::from_fn::<_, NODES, _>(executed);
            if all[0].is_some() && all.iter().all(|applied| *applied == all[0]) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "they have executed {all:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops all nodes as their host would.
    fn stop(&mut self) {
        for node in &mut self.nodes {
            signal(node.id(), rustix::process::Signal::TERM);
            assert!(node.wait().expect("it is a child of ours").success());
        }
    }
}

impl Drop for PartitionedCluster {
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

/// Whether a node works in a view of all that is later than the one of this number.
fn has_all(status: &NodeStatus, later_than: Option<u64>) -> bool {
    let is_whole = |view: &ViewStatus| {
        view.members.len() == NODES && later_than.is_none_or(|number| view.number > number)
    };
    status.ready && status.view.as_ref().is_some_and(is_whole)
}

#[test]
fn a_node_that_is_cut_off_stops_and_says_why_and_comes_back_with_what_it_missed() {
    let _limit = amcast_test_policy::time_limit();
    match HostLab::new(NODES, LinkSettings::default()) {
        Ok(hosts) => cuts_one_off(PartitionedCluster::start(hosts, "bb-urcast-urcast", "stream")),
        Err(why) => skip(
            "a_node_that_is_cut_off_stops_and_says_why_and_comes_back_with_what_it_missed",
            why,
        ),
    }
}

#[test]
fn the_same_holds_where_what_is_for_all_travels_by_ip_multicast() {
    let _limit = amcast_test_policy::time_limit();
    match HostLab::new(NODES, LinkSettings::default()) {
        Ok(hosts) => {
            cuts_one_off(PartitionedCluster::start(hosts, "bb-urcast-urcast", "multicast"))
        }
        Err(why) => skip("the_same_holds_where_what_is_for_all_travels_by_ip_multicast", why),
    }
}

fn cuts_one_off(mut cluster: PartitionedCluster) {
    for node in 0..NODES {
        let gateways = cluster.dirs[node].join(format!("n{node}.fronts.json"));
        cluster.wait(node, |status| has_all(status, None) && gateways.exists());
    }
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let at = cluster.redis(0);
        let (hosts, stop, written) = (&cluster.hosts, &stop, &written);
        let writer = scope.spawn(move || {
            let writes = || {
                let mut c = Connection::open(&at).expect("n0 listens");
                for n in 1.. {
                    assert_eq!(call(&mut c, &["INCR", "n"]), Answer::Number(n));
                    written.store(n as u64, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            };
            hosts.host(0).run(writes).expect("the host is there");
        });
        let stops = StopOnDrop(stop);
        cut_off_and_heal(&cluster, written);
        drop(stops);
        writer.join().expect("every write is acknowledged");
    });
    let last = written.load(Ordering::Relaxed).to_string();
    cluster.wait_for_service(ALONE);
    assert_eq!(cluster.call(ALONE, &["GET", "n"]), bytes(&last), "through the one that was alone");
    assert_eq!(
        cluster.call(ALONE, &["INCR", "n"]),
        Answer::Number(last.parse::<i64>().unwrap() + 1)
    );
    // Now all of it is everywhere: then liveness may be judged, too.
    cluster.wait_until_level();
    cluster.stop();
    let end = cluster.record.join("end.0.jsonl");
    std::fs::write(end, "{\"ev\":\"end\"}\n").expect("a file can be written");
    let promised = "TO(UA,SUTO);linearizable;fifo-order;view-synchrony";
    let checked = run(&["check", cluster.record.to_str().unwrap(), "--require", promised]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
    assert!(report.contains("holds       SUTO"), "{report}");
}

/// Pulls one host's plug while others write, looks at what it says, and puts it in again.
fn cut_off_and_heal(cluster: &PartitionedCluster, written: &AtomicU64) {
    let wait_for_writes = |more: u64| {
        let (begun, before) = (Instant::now(), written.load(Ordering::Relaxed));
        while written.load(Ordering::Relaxed) < before + more {
            assert!(begun.elapsed() < PATIENCE, "the others do not continue");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for_writes(50);
    cluster.hosts.unplug(ALONE).expect("a plug can be moved");
    let alone = cluster.wait(ALONE, |status| status.why.contains("1 of 4 members are heard"));
    assert!(!alone.ready && alone.why.contains("it has stopped"), "{}", alone.why);
    assert!(alone.why.contains("g0/r0 is silent") && alone.why.contains("3 are needed"));
    let others = cluster.wait(0, |s| s.view.as_ref().is_some_and(|v| v.members.len() == 3));
    let view = others.view.expect("it was asked for");
    assert_eq!(view.members, ["g0/r0", "g0/r1", "g0/r2"]);
    let stands = alone.replicas[0].delivered;
    wait_for_writes(200);
    let still = cluster.status(ALONE).expect("it answers");
    assert_eq!(still.replicas[0].delivered, stands, "it delivers nothing");
    let mut status = cluster.hosts.host(ALONE).command(AMCAST);
    let shown = status.args(["status", "--data"]).arg(&cluster.dirs[ALONE]).output();
    let shown = shown.expect("the program can be started");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("it has stopped: 1 of 4 members are heard"), "{shown}");
    let refused = cluster.call(ALONE, &["SET", "alone", "1"]);
    assert!(refused.is_error() && refused.to_string().contains("majority"), "{refused}");
    cluster.hosts.plug_in(ALONE).expect("a plug can be moved");
    // It may hear the others for a moment before it learns that they continued without it.
    let back = cluster.wait(ALONE, |status| has_all(status, Some(view.number)));
    assert!(back.replicas[0].delivered > stands + 200, "{back:?}");
    wait_for_writes(50);
}
