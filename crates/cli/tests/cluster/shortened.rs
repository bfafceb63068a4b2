//! A node whose logs have lost their ends behind its back, while the only other one that knows what was in
//! them is away: nothing that was acknowledged is missing without an error, and replicas do not differ.

use crate::by_hand::{NODES, ThreeHosts};
use crate::harness::run;
use std::fs;
use std::path::{Path, PathBuf};

/// How many keys are written.
const KEYS: usize = 300;

/// The last segment of the log of a group of node 1.
fn last_segment(hosts: &ThreeHosts, group: usize) -> PathBuf {
    let log = hosts.disk(1).join(format!("n1.data/g{group}"));
    let files = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    let segments = files.filter(|path| path.extension().is_some_and(|e| e == "segment"));
    segments.max().unwrap()
}

/// Half of what is written in a file is zero from now on, or gone with all behind it.
fn shorten(path: &Path, zero: bool) {
    let mut bytes = fs::read(path).unwrap();
    let half = bytes.iter().rposition(|&byte| byte != 0).unwrap() / 2;
    if zero {
        bytes[half..].fill(0)
    } else {
        bytes.truncate(half)
    }
    fs::write(path, bytes).unwrap();
}

fn key(n: usize) -> String {
    format!("key{n}")
}

/// Node `node` has every key.
fn has_all(hosts: &ThreeHosts, node: usize) {
    for n in 0..KEYS {
        let value = hosts.ask(node, &["GET", &key(n)]).to_string();
        assert_eq!(value, n.to_string(), "n{node} is missing an acknowledged write");
    }
}

fn loses_nothing(zero: bool) {
    let mut hosts = ThreeHosts::new();
    hosts.start(0..NODES);
    hosts.wait_until_ready(0..NODES);
    hosts.kill([2]);
    for n in 0..KEYS {
        // The first may find that its coordinator was at n2.
        let set = || hosts.ask(0, &["SET", &key(n), &n.to_string()]).to_string();
        let begun = std::time::Instant::now();
        while set() != "OK" {
            assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{} is not set", key(n));
        }
    }
    hosts.kill(0..NODES);
    for group in 0..3 {
        let segment = last_segment(&hosts, group);
        shorten(&segment, zero);
        let log = segment.parent().unwrap().to_str().unwrap();
        assert_eq!(run(&["log-file", "verify", log]).status.code(), Some(1), "g{group}");
    }
    // n0 alone knows all of it: the two others are a majority, and must not continue without it.
    hosts.start([1, 2]);
    let waits = |why: &str| why.contains("asks the others") && why.contains("r0");
    let status = hosts.wait(1, "waiting for n0", |status| waits(&status.why));
    assert!(!status.ready);
    // Zeros are nothing to keep.
    for group in (0..3).filter(|_| !zero) {
        let log = hosts.disk(1).join(format!("n1.data/g{group}"));
        let names = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().file_name());
        let is_kept = |name: std::ffi::OsString| name.to_string_lossy().ends_with(".cut");
        assert!(names.into_iter().any(is_kept), "what was cut off g{group} is kept");
    }
    hosts.start([0]);
    hosts.wait_until_ready(0..NODES);
    (0..NODES).for_each(|node| has_all(&hosts, node));
    // The others know n0's writes without it now.
    hosts.kill([0]);
    hosts.wait_until_ready([1, 2]);
    has_all(&hosts, 1);
}

#[test]
fn a_node_whose_logs_end_in_zeros_asks_the_others_before_it_votes() {
    let _limit = amcast_test_policy::time_limit();
    loses_nothing(true);
}

#[test]
fn a_node_whose_logs_are_cut_to_half_asks_the_others_before_it_votes() {
    let _limit = amcast_test_policy::time_limit();
    loses_nothing(false);
}
