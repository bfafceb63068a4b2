//! Nodes on hosts of their own, run by hand: one is cut off from the others, or is killed under load. Needs root, and
//! network namespaces; where they are not to be had it says so and passes.

mod cluster;
#[allow(dead_code, reason = "the other tests of clusters use the rest of it")]
#[path = "../cluster/harness.rs"]
mod harness;
mod killed;

use amcast::client::{Answer, Connection};
use amcast::node::config::Setting;
use amcast_hosts::{Direction, HostLab, LabFeature, LinkSettings};
use amcast_test_policy::skip;
use cluster::{HostCluster, PATIENCE, has_all};
use harness::{AMCAST, StopOnDrop, bytes, call};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 4;

/// The node that is partitioned away.
const ALONE: usize = 3;

/// How a host is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HostCut {
    /// Its plug is pulled.
    Unplugged,
    /// Nothing passes between it and the others.
    BothWays,
    /// It receives what the others send, and they receive nothing of it.
    FromIt,
    /// The others receive what it sends, and it receives nothing.
    ToIt,
}

impl HostCut {
    fn cut(self, hosts: &HostLab) {
        for other in 0..ALONE {
            match self {
                Self::Unplugged => return hosts.unplug(ALONE).expect("a plug can be moved"),
                Self::BothWays => hosts.cut(other, ALONE, Direction::BothWays),
                Self::FromIt => hosts.cut(ALONE, other, Direction::OneWay),
                Self::ToIt => hosts.cut(other, ALONE, Direction::OneWay),
            }
            .expect("links can be cut");
        }
    }

    fn heal(self, hosts: &HostLab) {
        match self {
            Self::Unplugged => hosts.plug_in(ALONE).expect("a plug can be moved"),
            _ => hosts.heal().expect("links can be healed"),
        }
    }
}

/// The setting of the transport.
fn lane(name: &str) -> [(&'static str, Setting); 1] {
    [("lane", Setting::Word(name.to_string()))]
}

#[test]
fn a_node_that_is_cut_off_stops_and_says_why_and_comes_back_with_what_it_missed() {
    let _limit = amcast_test_policy::time_limit();
    match HostLab::new(NODES, LinkSettings::default()) {
        Ok(hosts) => {
            let cluster = HostCluster::start(hosts, "bb-urcast-urcast", &lane("stream"));
            cuts_one_off(cluster, &[HostCut::Unplugged]);
        }
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
            let cluster = HostCluster::start(hosts, "bb-urcast-urcast", &lane("multicast"));
            cuts_one_off(cluster, &[HostCut::Unplugged]);
        }
        Err(why) => skip("the_same_holds_where_what_is_for_all_travels_by_ip_multicast", why),
    }
}

#[test]
fn a_host_of_fastcast_that_is_cut_off_both_ways_or_one_way_stops_and_comes_back() {
    let _limit = amcast_test_policy::time_limit();
    let test = "a_host_of_fastcast_that_is_cut_off_both_ways_or_one_way_stops_and_comes_back";
    if let Some(why) = HostLab::missing_feature(&[LabFeature::Faults]) {
        return skip(test, why);
    }
    let hosts = HostLab::new(NODES, LinkSettings::default()).unwrap_or_else(|e| panic!("{e}"));
    let cluster = HostCluster::start(hosts, "fastcast", &lane("multicast"));
    cuts_one_off(cluster, &[HostCut::BothWays, HostCut::FromIt, HostCut::ToIt]);
}

fn cuts_one_off(mut cluster: HostCluster, cuts: &[HostCut]) {
    cluster.wait_until_whole();
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
        cuts.iter().for_each(|cut| cut_off_and_heal(&cluster, *cut, written));
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
    let all: Vec<usize> = (0..NODES).collect();
    cluster.wait_until_level(&all);
    cluster.stop_and_judge(&all);
}

/// Cuts one host off while others write, looks at what it says, and heals it.
fn cut_off_and_heal(cluster: &HostCluster, cut: HostCut, written: &AtomicU64) {
    let wait_for_writes = |more: u64| {
        let (begun, before) = (Instant::now(), written.load(Ordering::Relaxed));
        while written.load(Ordering::Relaxed) < before + more {
            assert!(begun.elapsed() < PATIENCE, "{cut:?}: the others do not continue");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for_writes(50);
    cut.cut(&cluster.hosts);
    // One that hears the others, which do not hear it, is not alone: it waits until they take it in again.
    let hears = cut == HostCut::FromIt;
    let says =
        if hears { "it waits to be taken into the group" } else { "1 of 4 members are heard" };
    let alone = cluster.wait(ALONE, |status| status.why.contains(says));
    assert!(!alone.ready, "{cut:?}: {}", alone.why);
    if !hears {
        assert!(alone.why.contains("it has stopped"), "{cut:?}: {}", alone.why);
        assert!(alone.why.contains("g0/r0 is silent") && alone.why.contains("3 are needed"));
    }
    let others = cluster.wait(0, |s| s.view.as_ref().is_some_and(|v| v.members.len() == 3));
    let view = others.view.expect("it was asked for");
    assert_eq!(view.members, ["g0/r0", "g0/r1", "g0/r2"]);
    let stands = alone.replicas[0].delivered;
    wait_for_writes(200);
    let still = cluster.status(ALONE).expect("it answers");
    assert_eq!(still.replicas[0].delivered, stands, "{cut:?}: it delivers nothing");
    let mut status = cluster.hosts.host(ALONE).command(AMCAST);
    let shown = status.args(["status", "--data"]).arg(&cluster.dirs[ALONE]).output();
    let shown = shown.expect("the program can be started");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(says), "{cut:?}: {shown}");
    let refused = cluster.call(ALONE, &["SET", "alone", "1"]);
    assert!(refused.is_error() && refused.to_string().contains("majority"), "{cut:?}: {refused}");
    cut.heal(&cluster.hosts);
    // It may hear the others for a moment before it learns that they continued without it.
    let back = cluster.wait(ALONE, |status| has_all(status, NODES, Some(view.number)));
    assert!(back.replicas[0].delivered > stands + 200, "{cut:?}: {back:?}");
    wait_for_writes(50);
}
