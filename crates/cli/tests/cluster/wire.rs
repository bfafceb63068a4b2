//! Clusters whose nodes send each other messages: what a user sees of them.

use crate::harness::{
    Record, UpCluster, bytes, call, errors, exists, run, signal, wait_until_gone,
};
use crate::{survives_kills_in_turn, write_while};
use amcast::client::{Answer, Connection};
use std::fs;

const UNIFORM: [&str; 2] = ["--protocol", "bb-urcast-urcast"];

#[test]
fn a_cluster_over_messages_serves_from_every_node_and_stops_without_a_trace() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&UNIFORM);
    let mut c = up.connect();
    assert_eq!(call(&mut c, &["MSET", "a", "1", "b", "2"]), Answer::Word("OK".into()));
    let status = up.status();
    for n in 0..3 {
        let at = status["nodes"][n]["fronts"]["redis"].as_str().expect("it serves");
        let mut c = Connection::open(at).unwrap();
        let both = Answer::Array(vec![bytes("1"), bytes("2")]);
        assert_eq!(call(&mut c, &["MGET", "a", "b"]), both, "n{n}");
    }
    let long = "x".repeat(30_000);
    assert_eq!(call(&mut c, &["SET", "long", &long]), Answer::Word("OK".into()));
    let six = call(&mut c, &["MGET", "long", "long", "long", "long", "long", "long"]);
    assert_eq!(six, Answer::Array(vec![bytes(&long); 6]));
    // Far beyond a packet: it travels in parts.
    let longer = "y".repeat(1_000_000);
    assert_eq!(call(&mut c, &["SET", "longer", &longer]), Answer::Word("OK".into()));
    assert_eq!(call(&mut c, &["GET", "longer"]), bytes(&longer));
    assert!(call(&mut c, &["SET", "longest", &longer.repeat(2)]).is_error());
    let view = &status["groups"][0]["view"];
    assert!(view["members"].as_array().is_some_and(|members| members.len() == 3), "{status}");
    assert!(up.page("/readyz").starts_with("HTTP/1.1 200"), "{}", up.page("/readyz"));
    assert!(up.page("/metrics").contains("amcast_shard_replicas_up{shard=\"0\"} 3"));
    let os_pids: Vec<u32> = up.nodes().into_iter().flatten().map(|n| n.os_pid).collect();
    assert_eq!(up.stop(), Some(0));
    wait_until_gone(&os_pids);
    assert!(!exists(&up.data), "{} stays", up.data.display());
}

#[test]
fn a_cluster_over_rings_serves_several_shards_from_every_node() {
    let _limit = amcast_test_policy::time_limit();
    let record = Record::new("rings");
    let dir = record.display().to_string();
    let mut up = UpCluster::start(&["--protocol", "multi-ring-memory", "--record", &dir]);
    let mut c = up.connect();
    let pairs = ["MSET", "a", "1", "b", "2", "c", "3", "d", "4"];
    assert_eq!(call(&mut c, &pairs), Answer::Word("OK".into()));
    let status = up.status();
    for n in 0..3 {
        let at = status["nodes"][n]["fronts"]["redis"].as_str().expect("it serves");
        let mut c = Connection::open(at).unwrap();
        let all = ["1", "2", "3", "4"].map(bytes).to_vec();
        assert_eq!(call(&mut c, &["MGET", "a", "b", "c", "d"]), Answer::Array(all), "n{n}");
        assert_eq!(call(&mut c, &["INCR", &format!("n{n}")]), Answer::Number(1));
        // One connection to each of the others, for all shards.
        assert_eq!(status["nodes"][n]["status"]["network"]["connected"], 2, "{status}");
        assert_eq!(status["nodes"][n]["status"]["replicas"].as_array().map(Vec::len), Some(3));
    }
    for g in 0..3 {
        let page = up.page("/metrics");
        assert!(page.contains(&format!("amcast_shard_replicas_up{{shard=\"{g}\"}} 3")), "{page}");
    }
    // The commands so far, by the shards that they went to, as a file.
    let page = up.page("/workload");
    let (_, text) = page.split_once("\r\n\r\n").expect("a head and a body");
    let workload = amcast::node::workload::RecordedWorkload::parse(text).expect(text);
    assert_eq!((workload.groups, workload.unlisted), (3, 0), "{text}");
    assert!(workload.weights().iter().any(|(set, _)| set.len() == 3), "MSET of all: {text}");
    assert!(
        workload.payload_bytes < 500,
        "none is long, and the map of the shards is no client's: {text}"
    );
    let page = up.page("/metrics");
    for n in 0..3 {
        for figure in ["up{node=\"nN\"} 1", "ready{node=\"nN\"} 1", "starts_total{node=\"nN\"} 1"] {
            let line = format!("\namcast_node_{}\n", figure.replace('N', &n.to_string()));
            assert!(page.contains(&line), "{line} in {page}");
        }
        let memory = format!("\namcast_node_resident_memory_bytes{{node=\"n{n}\"}} ");
        assert!(page.contains(&memory), "{page}");
    }
    assert!(
        page.contains("\namcast_command_duration_seconds_count{command=\"mset\"} 1\n"),
        "{page}"
    );
    assert_eq!(up.stop(), Some(0));
    assert!(!exists(&up.data), "{} stays", up.data.display());
    let checked = run(&["check", &dir]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
    for holds in ["validity", "uniform-agreement", "uniform-acyclic-order", "linearizable"] {
        assert!(report.contains(&format!("holds       {holds}")), "{report}");
    }
}

#[test]
fn nodes_with_rings_killed_in_turn_lose_nothing_that_was_acknowledged() {
    let _limit = amcast_test_policy::time_limit();
    let record = Record::new("rings");
    let dir = record.display().to_string();
    let mut up = UpCluster::start(&["--protocol", "multi-ring-memory", "--record", &dir]);
    survives_kills_in_turn(&up);
    assert_eq!(up.stop(), Some(0));
    let checked = run(&["check", &dir]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
    for holds in ["uniform-agreement", "uniform-acyclic-order", "linearizable"] {
        assert!(report.contains(&format!("holds       {holds}")), "{report}");
    }
}

/// Kills each node in turn under load; what the recorded history is judged to be.
fn killed_in_turn(protocol: &str, lane: &str) {
    let record = Record::new("wire");
    let dir = record.display().to_string();
    let lane = format!("lane={lane}");
    let mut up = UpCluster::start(&["--protocol", protocol, "--set", &lane, "--record", &dir]);
    survives_kills_in_turn(&up);
    assert_eq!(up.stop(), Some(0));
    let told = fs::read_to_string(record.join("n0.1.jsonl")).unwrap();
    assert!(told.contains("\"ev\":\"view\""), "a node that came back entered a view");
    let promised = "TO(UA,SUTO);linearizable;fifo-order;view-synchrony";
    let checked = run(&["check", &dir, "--require", promised]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
    for holds in ["UA", "SUTO", "linearizable"] {
        assert!(report.contains(&format!("holds       {holds}")), "{report}");
    }
}

#[test]
fn nodes_with_a_sequencer_killed_in_turn_lose_nothing_and_keep_to_their_specification() {
    let _limit = amcast_test_policy::time_limit();
    killed_in_turn("bb-urcast-urcast", "stream");
}

#[test]
fn nodes_with_a_token_killed_in_turn_lose_nothing_and_keep_to_their_specification() {
    let _limit = amcast_test_policy::time_limit();
    killed_in_turn("pb-urcast", "stream");
}

#[test]
fn nodes_killed_in_turn_lose_nothing_over_datagrams_either() {
    let _limit = amcast_test_policy::time_limit();
    killed_in_turn("bb-urcast-urcast", "datagram");
}

#[test]
fn what_such_a_cluster_cannot_be_is_refused_in_a_sentence() {
    let _limit = amcast_test_policy::time_limit();
    let cases: [(&[&str], &str); 5] = [
        (&["up", "--protocol", "sb-urcast", "--shards", "2"], "give --shards 1"),
        (&["up", "--protocol", "skeen"], "assumes that no process crashes"),
        (&["up", "--protocol", "pb-urcast", "--set", "lane=pigeon"], "stream, datagram"),
        (&["up", "--protocol", "tram", "--replicas", "10"], "1 to 9"),
        (&["up", "--protocol", "pb-urcast", "--replicas", "33"], "1 to 32"),
    ];
    for (args, says) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", errors(&output));
        assert!(errors(&output).contains(says), "{args:?}: {}", errors(&output));
    }
}

#[test]
fn a_node_that_is_told_to_stop_leaves_its_group_before_and_is_no_crash() {
    let _limit = amcast_test_policy::time_limit();
    let record = Record::new("leaves");
    let dir = record.display().to_string();
    let mut up = UpCluster::start(&["--protocol", "sb-urcast", "--record", &dir]);
    let acked = write_while(&up, || {
        for node in [2, 0] {
            std::thread::sleep(std::time::Duration::from_millis(300));
            up.wait_until_ready();
            let before = up.nodes()[node].as_ref().expect("the node answers").os_pid;
            signal(before, rustix::process::Signal::TERM);
            up.wait_for_return(node, before);
        }
    });
    assert!(acked.len() > 100, "only {} writes were acknowledged", acked.len());
    let mut c = up.connect();
    assert!(acked.iter().all(|(k, v)| call(&mut c, &["GET", k]) == bytes(v)));
    assert_eq!(up.stop(), Some(0));
    for node in ["n2", "n0"] {
        let told = fs::read_to_string(record.join(format!("{node}.0.jsonl"))).unwrap();
        let left = told.lines().any(|line| line.ends_with("\"left\":true}"));
        assert!(left, "{node} ended without having left");
    }
    let checked = run(&["check", &dir, "--require", "TO(UA,SUTO);linearizable;fifo-order"]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
    // The logs of nodes that ended before the cluster stay.
    fs::remove_dir_all(&up.data).unwrap();
}
