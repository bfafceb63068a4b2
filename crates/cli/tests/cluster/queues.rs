//! Job queues: clients at several nodes wait for elements, and a node is killed.

use crate::harness::{StopOnDrop, UpCluster, call};
use amcast::client::{Answer, Connection};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Elements that are put into the queue.
const JOBS: usize = 600;

/// Moves elements until `stop` is set, with a new connection where one broke.
fn move_jobs(at: &str, stop: &AtomicBool) {
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(c) = connection.as_mut() else {
            connection = Connection::open(at).ok();
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let words: [&[u8]; 6] = [b"BLMOVE", b"jobs", b"moved", b"LEFT", b"RIGHT", b"0.5"];
        if c.call(&words).is_err() {
            connection = None;
        }
    }
}

/// The elements of a list.
fn elements(c: &mut Connection, key: &str) -> Vec<String> {
    let Answer::Array(all) = call(c, &["LRANGE", key, "0", "-1"]) else {
        panic!("{key} is no list")
    };
    all.iter().map(Answer::to_string).collect()
}

#[test]
fn each_job_is_taken_once_by_clients_that_wait_at_several_nodes_one_of_which_is_killed() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--shards", "3"]);
    let gateways: Vec<String> = up.node_gateways().into_iter().chain([up.redis.clone()]).collect();
    let stop = AtomicBool::new(false);
    let (mut pushed, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    thread::scope(|scope| {
        // Also if something panics: the others must end.
        let _stops = StopOnDrop(&stop);
        for at in gateways.iter().chain(&gateways) {
            scope.spawn(|| move_jobs(at, &stop));
        }
        let mut c = Connection::open(&gateways[2]).expect("the node serves");
        let mut before = None;
        for job in 0..JOBS {
            let name = job.to_string();
            match call(&mut c, &["RPUSH", "jobs", &name]).is_error() {
                true => unknown.insert(name),
                false => pushed.insert(name),
            };
            if job == JOBS / 3 {
                before = Some(up.kill(1));
            }
            // Clients wait most of the time.
            thread::sleep(Duration::from_millis(3));
        }
        up.wait_for_return(1, before.expect("it was killed"));
        let begun = Instant::now();
        while call(&mut c, &["EXISTS", "jobs"]).to_string() != "0" {
            assert!(begun.elapsed() < Duration::from_secs(30), "jobs stay in the queue");
            thread::sleep(Duration::from_millis(10));
        }
    });
    let moved = elements(&mut up.connect(), "moved");
    let once: BTreeSet<String> = moved.iter().cloned().collect();
    assert_eq!(moved.len(), once.len(), "none is taken twice");
    assert!(pushed.is_subset(&once), "none is lost: {:?}", pushed.difference(&once));
    let all: BTreeSet<String> = pushed.union(&unknown).cloned().collect();
    assert!(once.is_subset(&all));
    assert!(pushed.len() > JOBS / 2, "{} were put there", pushed.len());
}

/// No replica is in the process of that port: a client there looks for its keys each second.
#[test]
fn a_client_that_waits_at_the_port_of_the_cluster_is_served_after_a_push_at_a_node() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--protocol", "multi-ring", "--shards", "2"]);
    let mut c = Connection::open(&up.node_gateways()[1]).expect("the node serves");
    let mut waiting = up.connect();
    for (n, keys) in [["a", "b"], ["a", "a"], ["b", "b"]].iter().enumerate() {
        let words: [&[u8]; 4] = [b"BLPOP", keys[0].as_bytes(), keys[1].as_bytes(), b"20"];
        thread::scope(|scope| {
            let answer = scope.spawn(|| waiting.call(&words).expect("an answer"));
            // It has looked for them in vain once.
            thread::sleep(Duration::from_millis(1_200));
            let begun = Instant::now();
            call(&mut c, &["RPUSH", keys[1], &n.to_string()]);
            let answer = answer.join().expect("it waits");
            let Answer::Array(parts) = answer else { panic!("{answer}") };
            assert_eq!(parts[1].to_string(), n.to_string());
            assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        });
    }
}

#[test]
fn a_client_that_waits_at_one_node_is_served_soon_after_a_push_at_another() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--shards", "2"]);
    let gateways = up.node_gateways();
    let mut waiting = Connection::open(&gateways[0]).expect("the node serves");
    let mut c = Connection::open(&gateways[1]).expect("the node serves");
    for n in 0..20 {
        let element = n.to_string();
        let words: [&[u8]; 4] = [b"BLPOP", b"a", b"b", b"20"];
        thread::scope(|scope| {
            let answer = scope.spawn(|| waiting.call(&words).expect("an answer"));
            thread::sleep(Duration::from_millis(50));
            let begun = Instant::now();
            call(&mut c, &["RPUSH", ["a", "b"][n % 2], &element]);
            let answer = answer.join().expect("it waits");
            let Answer::Array(parts) = answer else { panic!("{answer}") };
            assert_eq!(parts[1].to_string(), element);
            // It is tried again after ten seconds in any case.
            assert!(begun.elapsed() < Duration::from_secs(8), "it was not woken");
        });
    }
}
