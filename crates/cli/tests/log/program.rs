//! `amcast log` as a person or a script uses it.

use super::alone;
use crate::harness::{AMCAST, UpCluster, errors};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn run(up: &UpCluster, words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(AMCAST)
        .args(["log", "--data"])
        .arg(&up.data)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    child.stdin.take().expect("it is piped").write_all(input).expect("it reads its input");
    child.wait_with_output().expect("it ends")
}

fn said(up: &UpCluster, words: &[&str], input: &[u8]) -> String {
    let output = run(up, words, input);
    assert!(output.status.success(), "{words:?}: {}", errors(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn document(up: &UpCluster, words: &[&str]) -> Value {
    serde_json::from_str(&said(up, words, b"")).expect("one JSON document")
}

#[test]
fn the_program_appends_reads_trims_and_follows() {
    let _alone = alone();
    let up = UpCluster::start(&["--shards", "3"]);
    assert_eq!(said(&up, &["append", "a", "-1"], b""), "0\n");
    assert_eq!(said(&up, &["append", "a"], b"two\nlines\n"), "1\n");
    assert_eq!(said(&up, &["append", "a", "--lines"], b"x\n\ny"), "2\n3\n4\n");
    assert_eq!(said(&up, &["multi-append", "a=p=q", "b"], b"in"), "a 5\nb 0\n");
    assert_eq!(said(&up, &["append", "b"], &[0xff, 0x00]), "1\n");
    assert_eq!(said(&up, &["read", "a", "--from", "4", "--max", "9"], b""), "4\ty\n5\tp=q\n");
    let read = document(&up, &["read", "b", "--json"]);
    let values = json!([{"position": 0, "text": "in"}, {"position": 1, "hex": "ff00"}]);
    let expected = json!({"log": "b", "first": 0, "next": 2, "bytes": 4, "values": values});
    assert_eq!(read, expected);
    let none = document(&up, &["read", "b", "--json", "--from", "2"]);
    assert_eq!(none, json!({"log": "b", "first": 0, "next": 2, "bytes": 4, "values": []}));
    assert_eq!(said(&up, &["trim", "a", "4"], b""), "4 to 5, 4 bytes\n");
    // An empty value is appended on purpose, or not at all; a log is trimmed up to its end at the most.
    assert_eq!(said(&up, &["append", "c", ""], b""), "0\n");
    assert_eq!(said(&up, &["multi-append", "c="], b""), "c 1\n");
    let trimmed = run(&up, &["trim", "c", "9"], b"");
    assert!(trimmed.status.success());
    assert!(
        errors(&trimmed).contains("up to its end, position 2, and not up to 9"),
        "{}",
        errors(&trimmed)
    );
    said(&up, &["trim", "c", "2"], b"");
    let info = document(&up, &["info", "--json"]);
    let a = json!({"log": "a", "first": 4, "next": 6, "bytes": 4, "incarnation": 0});
    let b = json!({"log": "b", "first": 0, "next": 2, "bytes": 4, "incarnation": 0});
    let c = json!({"log": "c", "first": 2, "next": 2, "bytes": 0, "incarnation": 0});
    assert_eq!(info, json!({"logs": [a, b, c]}));
    assert_eq!(said(&up, &["tail", "a", "--from", "4", "--count", "2"], b""), "4\ty\n5\tp=q\n");
    for (words, code, why) in [
        (&["read", "a", "--from", "1"][..], 1, "4 is the first position that is left"),
        (&["tail", "a", "--from", "1"], 1, "a: the log was trimmed: 4 is the first position"),
        (&["read", "nowhere"], 1, "nowhere: no log has this name"),
        (&["trim", "nowhere", "1"], 1, "nowhere: no log has this name"),
        (&["delete", "nowhere"], 1, "nowhere: no log has this name"),
        (&["append", "", "x"], 2, "1 to 255 bytes"),
        (&["multi-append", "a=x", "=x"], 2, "1 to 255 bytes"),
        (&["append", "a"], 2, "standard input is empty"),
        (&["multi-append", "a", "b"], 2, "to append an empty value give a="),
        (&["trim", "a", "x"], 2, "invalid value"),
        (&["read", "a", "--at", "127.0.0.1:1"], 2, "not both"),
        (&["info", "nowhere"], 1, ""),
    ] {
        let output = run(&up, words, b"");
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", errors(&output));
        assert!(errors(&output).contains(why), "{words:?}: {}", errors(&output));
    }
    assert_eq!(said(&up, &["delete", "a"], b""), "4 to 5, 4 bytes\n");
    assert_eq!(run(&up, &["read", "a"], b"").status.code(), Some(1));
    assert_eq!(said(&up, &["append", "a", "anew"], b""), "0\n");
    let deleted = document(&up, &["delete", "a", "--json"]);
    assert_eq!(deleted["next"], 1);
    assert!(deleted["incarnation"].as_u64() > Some(0), "{deleted}");
    let keys = crate::harness::call(&mut up.connect(), &["DBSIZE"]);
    assert_eq!(keys, amcast::client::Answer::Number(0), "logs are no keys");
}

#[test]
fn lines_are_appended_together_in_their_order_and_the_one_that_is_refused_is_named() {
    let _alone = alone();
    let up = UpCluster::start(&["--shards", "3"]);
    let numbers = |numbers: std::ops::Range<u64>| numbers.map(|n| format!("{n}\n"));
    let all: String = numbers(0..8000).collect();
    assert_eq!(said(&up, &["append", "a", "--lines"], all.as_bytes()), all);
    let read: Vec<String> = numbers(0..8000).map(|n| format!("{}\t{n}", n.trim_end())).collect();
    assert_eq!(said(&up, &["read", "a"], b""), read.concat());
    let json = ["append", "b", "--lines", "--json"];
    assert_eq!(said(&up, &json, b"x\ny"), "{\"log\":\"b\",\"positions\":[0,1]}\n");
    for bytes in [1_100_000, 1_900_000] {
        let long = format!("x\ny\n{}\nz\n", "-".repeat(bytes));
        let refused = run(&up, &["append", "c", "--lines"], long.as_bytes());
        let why = errors(&refused);
        assert_eq!(refused.status.code(), Some(2), "{why}");
        assert!(why.contains("line 3: ") && why.contains("nothing was"), "{why}");
        assert!(why.contains("The 2 lines before are appended"), "{why}");
    }
    assert_eq!(said(&up, &["read", "c"], b""), "0\tx\n1\ty\n2\tx\n3\ty\n");
    // A reader that closes its input early gets no error.
    let read = ["log", "--data", up.data.to_str().expect("text"), "read", "a"];
    let mut child = Command::new(AMCAST)
        .args(read)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    drop(child.stdout.take());
    let read = child.wait_with_output().expect("it ends");
    assert_eq!((read.status.signal(), errors(&read).as_str()), (Some(13), ""));
}

#[test]
fn who_asks_at_a_wrong_port_is_told_what_it_is_and_which_one_is_right() {
    let _alone = alone();
    let up = UpCluster::start(&["--protocol", "multi-ring-memory"]);
    let file = std::fs::read_to_string(up.data.join("cluster.toml")).expect("it has a file");
    let of_nodes =
        file.lines().find_map(|line| line.strip_prefix("address = ")).expect("it says so");
    let of_nodes = of_nodes.trim_matches('"');
    let amcast = |words: &[&str]| {
        let output = Command::new(AMCAST).args(words).output().expect("the program can be started");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", errors(&output));
        errors(&output)
    };
    for (at, is) in [
        (up.log.as_str(), "for clients of the log"),
        (up.http.as_str(), "of a status page"),
        (of_nodes, "on which nodes talk to each other"),
    ] {
        let why = amcast(&["kv", "--at", at, "get", "x"]);
        assert!(why.contains(is) && why.contains(&format!("give {}", up.redis)), "{why}");
    }
    for (at, is) in [
        (up.redis.as_str(), "for Redis clients"),
        (up.http.as_str(), "of a status page"),
        (of_nodes, "on which nodes talk to each other"),
    ] {
        let why = amcast(&["log", "--at", at, "append", "a", "x"]);
        assert!(why.contains(is) && why.contains(&format!("give {}", up.log)), "{why}");
    }
}

#[test]
fn a_cluster_stops_in_good_order_though_streams_are_open() {
    let _alone = alone();
    let mut up = UpCluster::start(&[]);
    said(&up, &["append", "a", "first"], b"");
    let tails: Vec<_> = super::addresses(&up)
        .into_iter()
        .map(|at| {
            let follow = ["log", "--at", &at, "tail", "a", "--from", "0"];
            let child = Command::new(AMCAST).args(follow).stdout(Stdio::piped()).spawn();
            let mut child = child.expect("the program can be started");
            let mut line = String::new();
            let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
            out.read_line(&mut line).expect("it says what there is");
            assert_eq!(line, "0\tfirst\n");
            child
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(up.stop(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    for mut tail in tails {
        // It looks for the cluster for as long as it is asked to.
        tail.kill().and_then(|()| tail.wait()).expect("it is a child of ours");
    }
}
