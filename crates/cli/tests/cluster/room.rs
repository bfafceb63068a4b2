//! Clusters where shared memory is short.

use crate::harness::{UpCluster, bytes, call, errors, exists, run, signal, unique};
use amcast::client::Answer;
use amcast::node::cluster_dir::CapacityCheck;
use amcast::node::config::{ClusterFile, Setting};
use amcast::protocols::catalog;
use amcast_test_policy::skip;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The shared memory of a cluster of the harness, with a gateway in every process.
fn needed_bytes() -> u64 {
    let protocol = "tram".to_string();
    let mut file = ClusterFile { protocol, shards: 1, ..ClusterFile::default() };
    for (name, value) in [("hm_lines", 4096), ("log_lines", 16384)] {
        file.set.insert(name.to_string(), Setting::Number(value));
    }
    let entry = catalog::find("tram").unwrap();
    let room = CapacityCheck::of(entry, &file.check(entry).unwrap()).unwrap();
    room.expect("it talks through memory").with_gateways(4)
}

/// Bytes that the files of a cluster take.
fn taken_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let taken = entries.map(|e| match e.metadata().unwrap() {
        m if m.is_dir() => taken_bytes(&e.path()),
        m if e.file_name().to_string_lossy().starts_with('p') => m.blocks() * 512,
        _ => 0,
    });
    taken.sum()
}

#[test]
fn a_cluster_takes_as_much_shared_memory_as_it_says() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--shards", "1"]);
    assert_eq!(taken_bytes(&up.data), needed_bytes());
}

/// Why there is no small memory.
pub(crate) const NO_MOUNT: &str = "this user may not mount a tmpfs";

/// A memory of its own for one test, of a certain size.
pub(crate) struct MemoryFilesystem(PathBuf);

impl MemoryFilesystem {
    /// None where this user may not have one.
    fn new(bytes: u64) -> Option<Self> {
        Self::at(unique("memory"), bytes)
    }

    /// The same, in a directory that is not there yet.
    pub(crate) fn at(path: PathBuf, bytes: u64) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let size = format!("size={bytes},mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Self(path));
        }
        fs::remove_dir(&path).unwrap();
        None
    }
}

impl Drop for MemoryFilesystem {
    fn drop(&mut self) {
        // Open files end with their processes.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn nodes_come_back_in_a_memory_that_is_just_large_enough_to_start_in() {
    let _limit = amcast_test_policy::time_limit();
    // A megabyte for logs and the like, and none for a second life of anybody.
    let Some(memory) = MemoryFilesystem::new(needed_bytes() + (1 << 20)) else {
        return skip("nodes_come_back_in_a_memory_that_is_just_large_enough_to_start_in", NO_MOUNT);
    };
    let up = UpCluster::start_in(memory.0.join("data"), &["--shards", "1"]);
    let mut c = up.connect();
    for round in 0..2 {
        for node in 0..3 {
            let value = format!("{round}.{node}");
            assert_eq!(call(&mut c, &["SET", "k", &value]), Answer::Word("OK".into()));
            let before = up.kill(node);
            up.wait_for_return(node, before);
            assert_eq!(call(&mut c, &["GET", "k"]), bytes(&value));
        }
    }
    drop(up);
}

#[test]
fn a_cluster_that_does_not_fit_is_refused_at_once_with_what_it_needs_and_leaves_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let data = unique("huge");
    let file = unique("huge.toml");
    // The first process of each node asks for 256 GiB.
    fs::write(&file, "protocol = \"tram\"\nclients = 256\n[set]\nhm_lines = 16777216\n").unwrap();
    let path = file.display().to_string();
    let ports = ["--redis-port", "0", "--log-port", "0", "--http-port", "0"];
    let start = ["up", "--data", &data.display().to_string(), "--config", &path];
    let output = run(&[&start[..], &ports].concat());
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let said = errors(&output);
    assert!(said.contains(": the cluster takes ") && said.contains("are free there"), "{said}");
    assert!(!said.contains("n0"), "no node was tried: {said}");
    assert!(!exists(&data));
    let checked = run(&["config", "check", &path]);
    assert!(checked.status.success(), "another machine may have it");
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(report.contains("Shared memory of 3 shards of 3 replicas: "), "{report}");
    assert!(errors(&checked).contains("warning: "), "{}", errors(&checked));
    fs::remove_file(&file).unwrap();
}

#[test]
fn a_cluster_whose_logs_do_not_fit_is_refused_at_once() {
    let _limit = amcast_test_policy::time_limit();
    let Some(memory) = MemoryFilesystem::new(64 << 20) else {
        return skip("a_cluster_whose_logs_do_not_fit_is_refused_at_once", NO_MOUNT);
    };
    let data = memory.0.join("data");
    let ports = ["--redis-port", "0", "--log-port", "0", "--http-port", "0"];
    for storage in ["disk", "async"] {
        let dir = data.display().to_string();
        let start = ["up", "--storage", storage, "--data", &dir];
        let output = run(&[&start[..], &ports].concat());
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        let said = errors(&output);
        assert!(said.contains("the cluster takes 288 MB, and ") && !said.contains("n0"), "{said}");
    }
}

#[test]
fn where_disks_have_too_little_room_growth_is_refused_and_reads_and_deletes_are_served() {
    let _limit = amcast_test_policy::time_limit();
    let (data, file) = (unique("scarce"), unique("scarce.toml"));
    // So much no disk has.
    fs::write(&file, "disk_reserve_mb = 1000000000000\ncommand_max_mb = 8\n").unwrap();
    let mut up = UpCluster::start_in_bare(data.clone(), &["--config", &file.display().to_string()]);
    let (mut c, begun) = (up.connect(), Instant::now());
    // The gateway hears it from the nodes soon.
    let refused = loop {
        match call(&mut c, &["SET", "k", "v"]) {
            Answer::Word(ok) => assert_eq!(ok, "OK"),
            refused => break refused,
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it is taken");
    };
    let said = refused.to_string();
    for words in ["MISCONF", "too little room (n0 has ", "; the command was not executed"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(call(&mut c, &["RPUSH", "l", "v"]).is_error());
    let large = call(&mut c, &["SET", "large", &"v".repeat(3 << 20)]).to_string();
    assert!(large.contains("MISCONF") && large.contains("not executed"), "{large}");
    assert_eq!(call(&mut c, &["EXISTS", "large"]), Answer::Number(0));
    assert_eq!(call(&mut c, &["EXISTS", "l"]), Answer::Number(0));
    assert!(matches!(call(&mut c, &["DEL", "k"]), Answer::Number(_)));
    assert_eq!(call(&mut c, &["EXISTS", "k"]), Answer::Number(0));
    let append = run(&["log", "--at", &up.log, "append", "a", "value"]);
    let said = errors(&append);
    assert!(!append.status.success() && said.contains("too little room"), "{said}");
    assert!(up.page("/readyz").contains("200"), "it serves");
    let status = run(&["status", "--data", &data.display().to_string()]).stdout;
    let said = String::from_utf8_lossy(&status);
    assert!(said.contains("too little room (n0 has "), "{said}");
    assert_eq!(up.stop(), Some(0));
    fs::remove_dir_all(data).unwrap();
    fs::remove_file(file).unwrap();
}

#[test]
fn a_node_that_finds_no_room_says_so_in_the_status_and_comes_back_when_there_is_room() {
    let _limit = amcast_test_policy::time_limit();
    let Some(memory) = MemoryFilesystem::new(needed_bytes() + (2 << 20)) else {
        return skip(
            "a_node_that_finds_no_room_says_so_in_the_status_and_comes_back_when_there_is_room",
            NO_MOUNT,
        );
    };
    let up = UpCluster::start_in(memory.0.join("data"), &["--shards", "1"]);
    let os_pids: Vec<u32> = up.nodes().into_iter().flatten().map(|n| n.os_pid).collect();
    // One that hangs does not let go of what the dead one had.
    signal(os_pids[1], Signal::STOP);
    signal(os_pids[2], Signal::KILL);
    let dir = up.data.display().to_string();
    let status = || String::from_utf8_lossy(&run(&["status", "--data", &dir]).stdout).into_owned();
    let begun = Instant::now();
    let said = loop {
        let said = status();
        if said.contains("MB are needed and") {
            break said;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{said}");
    };
    assert!(said.contains(&format!("n1     {:<8} does not answer", os_pids[1])), "{said}");
    let words = up.status()["nodes"][2]["last_words"].as_str().unwrap_or_default().to_string();
    assert!(words.contains("MB are needed and"), "{words}");
    signal(os_pids[1], Signal::CONT);
    up.wait_for_return(2, os_pids[2]);
}
