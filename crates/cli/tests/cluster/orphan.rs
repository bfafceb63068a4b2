//! A node whose supervisor is gone.

use crate::by_hand::ThreeHosts;
use crate::harness::{AMCAST, ends_with_us};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// How long the node may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may take to end: the five seconds that it gives itself, and what a busy machine takes.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

#[test]
fn a_node_whose_supervisor_ends_while_it_starts_ends_too_however_long_its_start_takes() {
    let _limit = amcast_test_policy::time_limit();
    let hosts = ThreeHosts::with(1, |base, _, file| file.record = Some(base.join("record")));
    // The file that bounds the record: to read this one takes for ever.
    let record = hosts.base.join("record");
    fs::create_dir_all(&record).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, record.join("limit"), FileType::Fifo, mode, 0).unwrap();
    let mut command = ends_with_us(AMCAST);
    command.args(["node", "--until-input-ends", "--name", "n0", "--config"]);
    command.arg(hosts.base.join("n0.toml")).stdin(Stdio::piped());
    let mut node = command.spawn().unwrap();
    let begun = Instant::now();
    while !hosts.disk(0).join("n0.sock").exists() {
        assert!(begun.elapsed() < PATIENCE, "the node does not begin");
        assert_eq!(node.try_wait().unwrap(), None, "standard error says why");
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(200));
    assert_eq!(node.try_wait().unwrap(), None, "it is still at it");
    drop(node.stdin.take());
    let closed = Instant::now();
    while node.try_wait().unwrap().is_none() {
        if closed.elapsed() > ENDS_WITHIN {
            node.kill().unwrap();
            node.wait().unwrap();
            panic!("the node outlives its supervisor by {:?}", closed.elapsed());
        }
        thread::sleep(Duration::from_millis(10));
    }
}
