//! The life cycle of a cluster's directory, and the discovery of a running cluster.

use crate::harness::{
    AMCAST, UpCluster, bytes, call, ends_with_us, errors, exists, run, signal, unique,
    wait_until_gone,
};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::process::Child;
use std::time::{Duration, Instant};

#[test]
fn nodes_end_when_their_supervisor_is_killed_and_its_directory_is_taken_over() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&[]);
    let data = up.data.clone();
    let os_pids: Vec<u32> = up.nodes().into_iter().flatten().map(|n| n.os_pid).collect();
    assert_eq!(os_pids.len(), 3);
    call(&mut up.connect(), &["SET", "old", "data"]);
    signal(up.os_pid(), Signal::KILL);
    // At once: the nodes may still be ending.
    let mut next = UpCluster::start_in(data.clone(), &[]);
    wait_until_gone(&os_pids);
    drop(up);
    assert_eq!(call(&mut next.connect(), &["DBSIZE"]), amcast::client::Answer::Number(0));
    assert_eq!(next.stop(), Some(0));
    // It was there before, so it stays, and it is empty.
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    fs::remove_dir(&data).unwrap();
}

#[test]
fn a_directory_of_the_user_keeps_what_is_not_the_cluster_s() {
    let _limit = amcast_test_policy::time_limit();
    let data = unique("own");
    fs::create_dir(&data).unwrap();
    let mut up = UpCluster::start_in(data.clone(), &[]);
    fs::write(data.join("notes.txt"), "keep").unwrap();
    let refused = run(&["up", "--data", &data.display().to_string(), "--redis-port", "0"]);
    assert_eq!(refused.status.code(), Some(1));
    let who = format!("process {}", up.os_pid());
    assert!(errors(&refused).contains(&who), "{}", errors(&refused));
    assert_eq!(up.stop(), Some(0));
    let left: Vec<_> = fs::read_dir(&data).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
    let refused = run(&["up", "--data", &data.display().to_string(), "--redis-port", "0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(errors(&refused).contains("notes.txt"), "{}", errors(&refused));
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_wrong_directory_is_refused_for_what_it_is() {
    let _limit = amcast_test_policy::time_limit();
    let (none, empty) = (unique("none"), unique("empty"));
    fs::create_dir(&empty).unwrap();
    for (path, says) in [(&none, "does not exist"), (&empty, "not the directory of a cluster")] {
        let data = path.display().to_string();
        for command in [&["status", "--data", &data][..], &["kv", "--data", &data, "get", "a"]] {
            let output = run(command);
            assert_eq!(output.status.code(), Some(2), "{command:?}: {}", errors(&output));
            assert!(errors(&output).contains(says), "{command:?}: {}", errors(&output));
        }
    }
    assert!(!exists(&none));
    fs::remove_dir(&empty).unwrap();
}

#[test]
fn a_cluster_whose_supervisor_was_killed_is_said_not_to_run() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&[]);
    let os_pids: Vec<u32> = up.nodes().into_iter().flatten().map(|n| n.os_pid).collect();
    signal(up.os_pid(), Signal::KILL);
    wait_until_gone(&os_pids);
    let data = up.data.display().to_string();
    for command in [&["status", "--data", &data][..], &["kv", "--data", &data, "get", "a"]] {
        let output = run(command);
        assert_eq!(output.status.code(), Some(1));
        assert!(errors(&output).contains("was killed"), "{}", errors(&output));
    }
    fs::remove_dir_all(&up.data).unwrap();
}

#[test]
fn without_a_directory_none_of_several_clusters_that_run_is_taken_and_all_are_named() {
    let _limit = amcast_test_policy::time_limit();
    let (one, two) = (UpCluster::start(&["--shards", "1"]), UpCluster::start(&["--shards", "1"]));
    let output = run(&["kv", "dbsize"]);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("clusters run: give --data"), "{said}");
    // Other tests run clusters, too: these two are among them.
    for up in [&one, &two] {
        assert!(said.contains(&up.data.display().to_string()), "{said}");
    }
    assert_eq!(call(&mut two.connect(), &["ECHO", "still"]), bytes("still"));
}

#[test]
fn a_cluster_that_cannot_start_says_why_and_where_its_logs_are() {
    let _limit = amcast_test_policy::time_limit();
    let data = unique("stuck");
    let dir = data.display().to_string();
    // A node finds its address taken.
    let taken = [0; 3].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let at = |n: usize| taken[n].local_addr().unwrap();
    let place = |n| format!("[nodes.n{n}]\naddress = \"{}\"\n", at(n));
    let text = ["protocol = \"bb-urcast-urcast\"\nshards = 1\n", &place(0), &place(1), &place(2)];
    let file = unique("taken.toml");
    fs::write(&file, text.concat()).unwrap();
    let ports = ["--redis-port", "0", "--log-port", "0", "--http-port", "0"];
    let start = ["up", "--data", &dir, "--config", &file.display().to_string()];
    let output = run(&[&start[..], &ports].concat());
    fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let said = errors(&output);
    assert!(said.contains("cannot be started: it ended with exit code 1"), "{said}");
    assert!(said.contains("amcast n0: "), "{said}");
    assert!(said.contains(&format!("the logs of the nodes are in {dir}")), "{said}");
    let log = fs::read_to_string(data.join("n0.log")).unwrap();
    assert!(log.contains("amcast n0: "), "{log}");
    assert!(
        fs::read_dir(&data)
            .unwrap()
            .all(|e| { e.is_ok_and(|e| e.file_name().to_string_lossy().ends_with(".log")) })
    );
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn nodes_that_were_started_by_hand_are_found_in_their_directory() {
    let _limit = amcast_test_policy::time_limit();
    let data = unique("hand");
    fs::create_dir(&data).unwrap();
    let file = data.join("cluster.toml");
    fs::write(
        &file,
        "protocol = \"tram\"\nshards = 1\n[set]\nhm_lines = 4096\nlog_lines = 16384\n",
    )
    .unwrap();
    let start = |n| {
        let mut node = ends_with_us(AMCAST);
        node.args(["node", "--config", &file.display().to_string(), "--name", &format!("n{n}")]);
        let child = node.args(["--redis-port", "0", "--http-port", "0"]).spawn();
        ByHand(child.expect("the program can be started"))
    };
    let nodes: Vec<ByHand> = (0..3).map(start).collect();
    let dir = data.display().to_string();
    let begun = Instant::now();
    loop {
        let set = run(&["kv", "--data", &dir, "set", "who", "hand"]);
        if set.status.success() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", errors(&set));
    }
    let got = run(&["kv", "--data", &dir, "get", "who"]);
    assert_eq!(String::from_utf8_lossy(&got.stdout), "hand\n", "{}", errors(&got));
    // Two nodes serve before the third is ready: on a busy machine it may lag first.
    loop {
        let status = run(&["status", "--data", &dir]);
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        if status.status.success() && said.contains("3/3") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{said}{}", errors(&status));
    }
    let os_pids: Vec<u32> = nodes.iter().map(|node| node.0.id()).collect();
    drop(nodes);
    wait_until_gone(&os_pids);
    let got = run(&["kv", "--data", &dir, "get", "who"]);
    assert_eq!(got.status.code(), Some(1));
    assert!(errors(&got).contains("does not run"), "{}", errors(&got));
    fs::remove_dir_all(&data).unwrap();
}

/// A node that a test has started itself.
struct ByHand(Child);

impl Drop for ByHand {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::TERM);
        let _ = self.0.wait();
    }
}
