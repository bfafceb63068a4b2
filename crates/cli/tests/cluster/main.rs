//! Clusters of real processes: what a user sees who starts, uses, hurts and stops one.

mod by_hand;
mod damaged;
mod differs;
mod directories;
mod durable;
mod ends;
mod files_differ;
mod harness;
mod interrupted;
mod large_answers;
mod large_commands;
mod late;
mod listened;
mod operating;
mod orphan;
mod partitions;
mod queues;
mod refused;
mod replaced;
mod reported;
mod room;
mod short_lives;
mod shortened;
mod skipped;
mod unread;
mod wire;

use amcast::client::Answer;
use harness::{
    Record, StopOnDrop, UpCluster, bytes, call, errors, exists, run, unique, wait_for_more_than,
    wait_until_gone,
};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_cluster_serves_redis_commands_over_all_shards_and_stops_without_a_trace() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&[]);
    let mut c = up.connect();
    assert_eq!(call(&mut c, &["SET", "greeting", "hello"]), Answer::Word("OK".into()));
    assert_eq!(call(&mut c, &["GET", "greeting"]), bytes("hello"));
    let pairs = ["MSET", "a", "1", "b", "2", "c", "3", "d", "4"];
    assert_eq!(call(&mut c, &pairs), Answer::Word("OK".into()));
    let all = call(&mut c, &["MGET", "a", "b", "c", "d", "none"]);
    let expected = vec![bytes("1"), bytes("2"), bytes("3"), bytes("4"), Answer::Null];
    assert_eq!(all, Answer::Array(expected));
    assert!(call(&mut c, &["NOSUCH"]).is_error());
    let long = "x".repeat(100_000);
    assert_eq!(call(&mut c, &["SET", "long", &long]), Answer::Word("OK".into()));
    // An answer longer than the ring that it comes through.
    let six = call(&mut c, &["MGET", "long", "long", "long", "long", "long", "long"]);
    assert_eq!(six, Answer::Array(vec![bytes(&long); 6]));
    let os_pids: Vec<u32> = up.nodes().into_iter().flatten().map(|n| n.os_pid).collect();
    assert_eq!(os_pids.len(), 3);
    assert_eq!(up.stop(), Some(0));
    wait_until_gone(&os_pids);
    assert!(!exists(&up.data), "{} stays", up.data.display());
}

/// Several clients write until told to stop, each its own keys; what was acknowledged: more than a hundred.
pub(crate) fn write_while(up: &UpCluster, act: impl FnOnce()) -> BTreeMap<String, String> {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let acked = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for client in 0..3 {
            let (stop, count, acked) = (&stop, &count, &acked);
            scope.spawn(move || {
                let mut c = up.connect();
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let (key, twin) = (format!("k{client}-{i}"), format!("t{client}-{i}"));
                    let value = i.to_string();
                    let answer = if i % 3 == 0 {
                        call(&mut c, &["MSET", &key, &value, &twin, &value])
                    } else {
                        call(&mut c, &["SET", &key, &value])
                    };
                    if answer == Answer::Word("OK".into()) {
                        acked.lock().unwrap().insert(key, value);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // Also if `act` panics: the scope waits for the writers.
        let _stops = StopOnDrop(&stop);
        act();
        wait_for_more_than(100, &count);
    });
    acked.into_inner().unwrap()
}

/// Kills each node in turn under load: nothing that was acknowledged is lost, and all come back.
pub(crate) fn survives_kills_in_turn(up: &UpCluster) {
    let acked = write_while(up, || {
        for node in 0..3 {
            std::thread::sleep(Duration::from_millis(300));
            // A replica that lags on a busy machine counts as failed until it is caught up: killing
            // another one then would be a second failure of three.
            up.wait_until_ready();
            let before = up.kill(node);
            up.wait_for_return(node, before);
        }
    });
    assert!(acked.len() > 100, "only {} writes were acknowledged", acked.len());
    let mut c = up.connect();
    let wrong: Vec<_> =
        acked.iter().filter(|(k, v)| call(&mut c, &["GET", k]) != bytes(v)).collect();
    assert!(wrong.is_empty(), "{} of {} are lost: {wrong:?}", wrong.len(), acked.len());
}

#[test]
fn nodes_killed_in_turn_lose_nothing_that_was_acknowledged_and_come_back() {
    let _limit = amcast_test_policy::time_limit();
    let record = Record::new("record");
    let record_dir = record.display().to_string();
    let mut up = UpCluster::start(&["--record", &record_dir]);
    survives_kills_in_turn(&up);
    assert_eq!(up.stop(), Some(0));
    let checked = run(&["check", &record_dir]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
    assert!(report.contains("holds       uniform-agreement"), "{report}");
}

#[test]
fn two_clusters_run_beside_each_other() {
    let _limit = amcast_test_policy::time_limit();
    let (one, two) = (UpCluster::start(&[]), UpCluster::start(&["--shards", "1"]));
    call(&mut one.connect(), &["SET", "who", "one"]);
    assert_eq!(call(&mut two.connect(), &["GET", "who"]), Answer::Null);
    assert_eq!(call(&mut one.connect(), &["GET", "who"]), bytes("one"));
}

#[test]
fn the_status_names_leaders_and_replicas() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&[]);
    let data = up.data.display().to_string();
    let output = run(&["status", "--json", "--data", &data]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["ready"], true);
    for (gateway, at) in [("redis", &up.redis), ("log", &up.log), ("http", &up.http)] {
        assert_eq!(status["fronts"][gateway], at.as_str());
    }
    for g in 0..3 {
        let group = &status["groups"][g];
        assert_eq!(group["group"], format!("g{g}"));
        assert_eq!(group["replicas_fit"], 3, "{group}");
        let leader = group["leader"].as_str().unwrap_or_default();
        assert!(leader.starts_with(&format!("g{g}/r")), "{group}");
    }
    let got = run(&["kv", "--data", &data, "get", "nothing"]);
    assert_eq!(String::from_utf8_lossy(&got.stdout), "(nil)\n");
}

#[test]
fn a_port_in_use_is_an_error_that_names_the_flag() {
    let _limit = amcast_test_policy::time_limit();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let begun = Instant::now();
    for flag in ["--redis-port", "--log-port", "--http-port"] {
        let output = run(&["up", "--protocol", "tram", flag, &port]);
        assert_eq!(output.status.code(), Some(2));
        assert!(errors(&output).contains(flag), "{}", errors(&output));
        assert!(output.stdout.is_empty());
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_is_misused_exits_with_2_and_says_what_to_do() {
    let _limit = amcast_test_policy::time_limit();
    let path = unique("wrong.toml");
    std::fs::write(&path, "shards = 3\nshard_count = 4\n").unwrap();
    let file = path.display().to_string();
    let (nested, data) = (unique("nested.toml"), unique("nested"));
    std::fs::write(&nested, format!("data = {data:?}\nrecord = {:?}\n", data.join("h"))).unwrap();
    let within = nested.display().to_string();
    let cases: [(&[&str], &str); 21] = [
        (&["node", "--config", &within, "--name", "n0"], "the directory of the cluster itself"),
        (&["up", "--config", &within], "the directory of the cluster itself"),
        (&["config", "check", "/dev/zero"], "it is a device or a socket; give a file"),
        (&["up", "--config", "/dev/zero"], "it is a device or a socket; give a file"),
        (&["up", "--redis-port", "7", "--http-port", "7"], "ports.redis and ports.http are both 7"),
        (
            &["up", "--data", "/nonexistent/a/b"],
            "/nonexistent/a/b: the directory that it is to be in",
        ),
        (&["kv", "--at", "nonsense", "get", "a"], "host:port"),
        (&["up", "--config", &file], "shard_count"),
        (&["config", "check", &file], "shard_count"),
        (&["up", "--shards", "65"], "shards = 65: give 1 to 64"),
        (&["up", "--record", "/etc/passwd"], "/etc/passwd: is not a directory"),
        (&["up", "--set", "no_such=1"], "no_such"),
        (&["up", "--set", "a=1", "--set", "b=2", "--set", "a=3"], "--set a is given twice"),
        (&["sim", "--set", "a=1", "--set", "a=1"], "--set a is given twice"),
        (&["bench", "--set", "a=1", "--set", "a=1"], "--set a is given twice"),
        (&["up", "--data", "/proc/amcast"], "/proc/amcast"),
        (&["up", "--log-mb", "0"], "log_mb = 0: every append would be refused"),
        (&["up", "--log-dir", "/tmp", "--log-disk-mb", "0"], "log_disk_mb = 0: every append"),
        (
            &["up", "--data", "/tmp/.", "--record", "/tmp/amcast-test-rec"],
            "the directory of the cluster itself",
        ),
        (&["up", "--protocol", "nope"], "tram"),
        (&["check", "/dev/null", "--require", "nope"], "validity"),
    ];
    for (args, says) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", errors(&output));
        assert!(errors(&output).contains(says), "{args:?}: {}", errors(&output));
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&nested).unwrap();
    // A node makes it for its log.
    std::fs::remove_dir_all(&data).unwrap();
}
