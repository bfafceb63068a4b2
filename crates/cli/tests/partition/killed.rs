//! Eight hosts whose links are full, one of whose nodes is killed: the others continue, in one order.
//!
//! The links are slow, so that a machine of two cores that has other work fills them. How long the others need is printed;
//! asserted is only that they continue in the time that anything here may take.

use crate::cluster::{HostCluster, PATIENCE};
use crate::harness::StopOnDrop;
use amcast::client::Connection;
use amcast::node::config::Setting;
use amcast_hosts::{HostLab, LabFeature, LinkSettings};
use amcast_test_policy::skip;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 8;

/// The node that is killed: the leader, which gives the numbers.
const KILLED: usize = 0;

/// The rate of the links, in bits per second, and what is left of it for datagrams in whole megabits.
const RATE: u64 = 10_000_000;
const LINK_MBPS: u64 = 9;

/// Clients of each node, each of which writes one value after the other, and the bytes of a value: those of all nodes
/// together have 64 KiB on the way, for which a link needs 50 ms.
const CLIENTS: usize = 2;
const VALUE_BYTES: usize = 4096;

/// By node: writes that were acknowledged through it.
type NodeWrites = [AtomicU64; NODES];

#[test]
fn eight_hosts_under_full_load_continue_in_one_order_when_one_is_killed() {
    let _limit = amcast_test_policy::time_limit();
    let test = "eight_hosts_under_full_load_continue_in_one_order_when_one_is_killed";
    if let Some(why) = HostLab::missing_feature(&[LabFeature::Rates]) {
        return skip(test, why);
    }
    let hosts = HostLab::new(NODES, LinkSettings::of_rate(RATE)).unwrap_or_else(|e| panic!("{e}"));
    let set = [
        ("lane", Setting::Word("multicast".to_string())),
        ("link_mbps", Setting::Number(LINK_MBPS)),
        // A node that waits for a core has not failed; one that is killed is noticed by its connections.
        ("heartbeat_us", Setting::Number(100_000)),
        ("suspect_us", Setting::Number(2_000_000)),
    ];
    let mut cluster = HostCluster::start(hosts, "fastcast", &set);
    cluster.wait_until_whole();
    let stop = AtomicBool::new(false);
    let writes = NodeWrites::default();
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..NODES).flat_map(|node| (0..CLIENTS).map(move |client| (node, client))).collect();
        for (node, client) in clients {
            let at = cluster.redis(node);
            let namespace = cluster.hosts.host(node).namespace().expect("it is there");
            let (stop, writes) = (&stop, &writes[node]);
            scope.spawn(move || {
                namespace.enter().expect("a thread may move");
                write(&at, &format!("{node}-{client}"), stop, writes);
            });
        }
        let stops = StopOnDrop(&stop);
        kill_one(&mut cluster, &writes);
        drop(stops);
    });
    let others: Vec<usize> = (0..NODES).filter(|&node| node != KILLED).collect();
    cluster.wait_until_level(&others);
    cluster.stop_and_judge(&others);
}

/// Writes values until `stop` is set, or its node is gone.
fn write(at: &str, key: &str, stop: &AtomicBool, writes: &AtomicU64) {
    let Ok(mut connection) = Connection::open(at) else { return };
    let value = vec![b'v'; VALUE_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match connection.call(&[b"SET", key.as_bytes(), &value]) {
            Ok(answer) if !answer.is_error() => {
                writes.fetch_add(1, Ordering::Relaxed);
            }
            // While the view changes the gateway may refuse writes.
            Ok(_) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => return,
        }
    }
}

/// Kills one node under load, and waits until writes are acknowledged through each of the others again.
fn kill_one(cluster: &mut HostCluster, writes: &NodeWrites) {
    let counts = || writes.each_ref().map(|node| node.load(Ordering::Relaxed));
    let wait = |before: [u64; NODES], more: u64, of: &dyn Fn(usize) -> bool| {
        let begun = Instant::now();
        loop {
            let now = counts();
            if (0..NODES).filter(|&node| of(node)).all(|node| now[node] >= before[node] + more) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < PATIENCE, "{before:?} writes before, and {now:?} now");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    wait(counts(), 5, &|_| true);
    cluster.kill(KILLED);
    // Answers under way then may come without another delivery: as many as a node has clients, at most.
    let lasted = wait(counts(), CLIENTS as u64 + 1, &|node| node != KILLED);
    println!("the others acknowledge new writes {:.3} s after the kill", lasted.as_secs_f64());
    wait(counts(), 5, &|node| node != KILLED);
    let view = cluster.wait(1, |status| status.view.as_ref().is_some_and(|v| v.members.len() == 7));
    assert!(view.ready, "{}", view.why);
}
