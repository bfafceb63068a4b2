//! Clusters whose words nobody reads: standard error and standard output are full pipes.

use crate::harness::{AMCAST, UpCluster, call, ends_with_us, run, runs, signal, unique};
use amcast::client::{Answer, Connection};
use amcast::node::cluster_dir::ClusterDir;
use amcast::node::config::ClusterFile;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pipe that is full, and that nobody reads as long as its reading end is only held.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    // The next writer waits.
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

fn sets(up: &UpCluster, key: &str) {
    let answer = call(&mut up.connect(), &["SET", key, "v"]);
    assert_eq!(answer, Answer::Word("OK".into()), "{key}");
}

/// Something else than a node comes to the port of each where others connect: a line for people.
fn strangers(file: &ClusterFile) {
    for place in file.nodes.values() {
        let mut stream = TcpStream::connect(place.address).unwrap();
        stream.write_all(&[b'h'; 60]).unwrap();
        // The node closes it.
        let _ = stream.read(&mut [0; 8]);
    }
}

#[test]
fn a_cluster_whose_words_nobody_reads_goes_on_and_starts_a_dead_node_again() {
    let _limit = amcast_test_policy::time_limit();
    let (reader, writer) = full_pipe();
    let data = unique("unread");
    let mut up = UpCluster::start_with(data.clone(), &["--protocol", "multi-ring"], writer.into());
    let file = ClusterFile::read(&data.join("cluster.toml")).unwrap();
    strangers(&file);
    // Each node has told of its stranger where it can be read.
    let begun = Instant::now();
    for node in 0..3 {
        let told = || fs::read_to_string(data.join(format!("n{node}.log"))).unwrap();
        while !told().contains("is not this program") {
            assert!(begun.elapsed() < PATIENCE, "n{node}: {}", told());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    (0..20).for_each(|n| sets(&up, &format!("a{n}")));
    // The supervisor has something to say, too.
    let before = up.kill(1);
    up.wait_for_return(1, before);
    (0..20).for_each(|n| sets(&up, &format!("b{n}")));
    assert_eq!(up.stop(), Some(0), "it stops also when its last words are not read");
    drop(reader);
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn what_was_said_while_nobody_read_is_there_for_who_reads_again() {
    let _limit = amcast_test_policy::time_limit();
    let (mut reader, writer) = full_pipe();
    let data = unique("unread");
    let mut up = UpCluster::start_with(data.clone(), &["--protocol", "multi-ring"], writer.into());
    let before = up.kill(2);
    up.wait_for_return(2, before);
    let mut text = String::new();
    let begun = Instant::now();
    while !text.contains(&format!("amcast: n2 (process {before}) was killed by signal 9")) {
        assert!(begun.elapsed() < PATIENCE, "{text}");
        let mut bytes = [0; 4096];
        let count = reader.read(&mut bytes).unwrap();
        text += std::str::from_utf8(&bytes[..count]).unwrap().trim_start_matches('x');
    }
    assert_eq!(up.stop(), Some(0));
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_cluster_whose_ready_line_nobody_reads_serves_and_stops() {
    let _limit = amcast_test_policy::time_limit();
    let (_reader, writer) = full_pipe();
    let data = unique("unread");
    let mut child = ends_with_us(AMCAST)
        .args(["up", "--redis-port", "0", "--log-port", "0", "--http-port", "0", "--data"])
        .arg(&data)
        .stdout(Stdio::from(writer))
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let gateways = loop {
        // It is not there at first.
        if let Some(gateways) = ClusterDir::at(&data).ok().and_then(|dir| dir.gateways().ok()) {
            break gateways;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not become ready");
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut connection = Connection::open(&gateways.redis).unwrap();
    assert_eq!(call(&mut connection, &["SET", "a", "1"]), Answer::Word("OK".into()));
    // The line has been tried, most likely.
    std::thread::sleep(Duration::from_millis(200));
    signal(child.id(), Signal::TERM);
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < 2 * PATIENCE, "it does not stop");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_program_that_ends_with_an_error_waits_for_its_words_and_not_for_long() {
    let _limit = amcast_test_policy::time_limit();
    let wrong = ["node", "--config", "/nonexistent/cluster.toml", "--name", "n0"];
    let said = run(&wrong);
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("/nonexistent/cluster.toml"));
    let (_reader, writer) = full_pipe();
    let mut child = ends_with_us(AMCAST).args(wrong).stderr(Stdio::from(writer)).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(!runs(child.id()));
}
