//! A node that hangs while its cluster starts.

use crate::harness::{UpCluster, bytes, call, errors, run, signal, unique};
use amcast::client::Answer;
use amcast::node::cluster_dir::ClusterDir;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// How long anything here may take. A machine with much else to do takes long.
const PATIENCE: Duration = Duration::from_secs(60);

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Stops the process of a node, without its end, as soon as it is there. Its number.
fn stop_at_start(data: &Path, rank: usize) -> u32 {
    let os_pid =
        wait_for("the node starts", || ClusterDir::at(data).ok()?.lives().get(rank)?.os_pid);
    signal(os_pid, Signal::STOP);
    os_pid
}

#[test]
fn a_cluster_serves_without_a_node_that_hangs_and_says_when_that_comes() {
    let _limit = amcast_test_policy::time_limit();
    let (data, said_path) = (unique("up"), unique("said"));
    let stops = thread::spawn({
        let data = data.clone();
        move || stop_at_start(&data, 1)
    });
    let begun = Instant::now();
    let stderr = Stdio::from(File::create(&said_path).unwrap());
    let mut up = UpCluster::start_with(data.clone(), &["--protocol", "multi-ring"], stderr);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(5), "it is waited for: {took:?}");
    assert!(took < Duration::from_secs(45), "for no longer than needed: {took:?}");
    let hung = stops.join().unwrap();
    let mut c = up.connect();
    assert_eq!(call(&mut c, &["SET", "k", "v"]), Answer::Word("OK".into()));
    let said = || fs::read_to_string(&said_path).unwrap();
    assert!(said().contains("serves without n1, "), "{}", said());
    assert!(!said().contains("n1 serves now"), "{}", said());
    signal(hung, Signal::CONT);
    wait_for("it is said that the node is there", || {
        said().contains("n1 serves now, too; no other is missing").then_some(())
    });
    up.wait_until_ready();
    assert_eq!(call(&mut c, &["GET", "k"]), bytes("v"));
    assert_eq!(up.stop(), Some(0));
    fs::remove_dir_all(&data).unwrap();
    fs::remove_file(&said_path).unwrap();
}

#[test]
fn a_new_cluster_fails_for_a_node_that_ends_again_and_again_also_slowly() {
    let _limit = amcast_test_policy::time_limit();
    let data = unique("slow");
    let killed = thread::spawn({
        let data = data.clone();
        move || {
            // So many ends are too many; by the third a majority serves for long.
            for start in 1..=3 {
                let is_there = || {
                    let n1 = ClusterDir::at(&data).ok()?.lives().get(1)?.clone();
                    n1.os_pid.filter(|_| n1.starts == start)
                };
                let os_pid = wait_for("the node starts", is_there);
                signal(os_pid, Signal::STOP);
                thread::sleep(Duration::from_millis(2500));
                signal(os_pid, Signal::KILL);
            }
        }
    });
    let dir = data.display().to_string();
    let ports = ["--redis-port", "0", "--log-port", "0", "--http-port", "0"];
    let up = ["up", "--protocol", "multi-ring", "--data", &dir];
    let output = run(&[&up[..], &ports].concat());
    killed.join().unwrap();
    let said = errors(&output);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{said}");
    assert!(said.contains("n1 cannot be started: it was killed by signal 9"), "{said}");
    fs::remove_dir_all(&data).unwrap();
}
