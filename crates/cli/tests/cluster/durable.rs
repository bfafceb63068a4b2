//! Clusters that keep acknowledged writes on disk: all of them survive any kills.

use crate::harness::{
    AMCAST, StopOnDrop, UpCluster, bytes, call, ends_with_us, errors, exists, run, runs, signal,
    unique, wait_for_more_than, wait_until_gone,
};
use crate::room::{MemoryFilesystem, NO_MOUNT};
use crate::write_while;
use amcast::client::{Answer, Connection};
use amcast::node::config::ClusterFile;
use amcast_test_policy::skip;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

const DURABLE: [&str; 2] = ["--protocol", "multi-ring"];

const NODES: [usize; 3] = [0, 1, 2];

/// Checks that everything that was acknowledged is there.
pub(crate) fn all_there(up: &UpCluster, acked: &BTreeMap<String, String>) {
    let mut c = up.connect();
    let wrong: Vec<_> =
        acked.iter().filter(|(k, v)| call(&mut c, &["GET", k]) != bytes(v)).collect();
    assert!(wrong.is_empty(), "{} of {} are lost: {wrong:?}", wrong.len(), acked.len());
}

/// Kills all nodes at once, several times, while clients write; what was acknowledged.
fn kill_all_under_load(up: &UpCluster, times: usize) -> BTreeMap<String, String> {
    let acked = write_while(up, || {
        for _ in 0..times {
            thread::sleep(Duration::from_millis(500));
            up.wait_until_ready();
            for (node, before) in up.kill_all(&NODES) {
                up.wait_for_return(node, before);
            }
        }
        thread::sleep(Duration::from_millis(300));
    });
    assert!(acked.len() > 50, "only {} writes were acknowledged", acked.len());
    acked
}

/// Kills the supervisor and all nodes at once, while clients write keys that begin with `name`, when
/// `wait` is over; what was acknowledged.
pub(crate) fn kill_everything_under_load(
    up: UpCluster,
    name: &str,
    wait: impl FnOnce(),
) -> BTreeMap<String, String> {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |client: usize| {
        let (mut c, mut acked) = (up.connect(), BTreeMap::new());
        for i in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
            let (key, value) = (format!("{name}-{client}-{i}"), i.to_string());
            // Until nobody is there any more.
            match c.call(&[b"SET", key.as_bytes(), value.as_bytes()]) {
                Ok(Answer::Word(ok)) if ok == "OK" => acked.insert(key, value),
                Ok(answer) => panic!("{answer:?}"),
                Err(_) => break,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        acked
    };
    let all = thread::scope(|scope| {
        let clients = [0, 1, 2].map(|client| {
            scope.spawn({
                let write = &write;
                move || write(client)
            })
        });
        let _stops = StopOnDrop(&stop);
        wait();
        wait_for_more_than(20, &count);
        let os_pids: Vec<u32> = up.nodes().into_iter().flatten().map(|n| n.os_pid).collect();
        signal(up.os_pid(), Signal::KILL);
        os_pids.iter().filter(|&&p| runs(p)).for_each(|&p| signal(p, Signal::KILL));
        wait_until_gone(&os_pids);
        clients.map(|c| c.join().expect("no write is refused"))
    });
    let acked: BTreeMap<String, String> = all.into_iter().flatten().collect();
    assert!(acked.len() > 20, "only {} writes were acknowledged", acked.len());
    acked
}

#[test]
fn all_nodes_killed_at_once_lose_nothing_that_was_acknowledged() {
    let _limit = amcast_test_policy::time_limit();
    for protocol in ["multi-ring", "multi-ring-async"] {
        let mut up = UpCluster::start(&["--protocol", protocol]);
        let acked = kill_all_under_load(&up, 2);
        all_there(&up, &acked);
        assert_eq!(up.stop(), Some(0));
        fs::remove_dir_all(&up.data).unwrap();
    }
}

#[test]
fn a_command_that_was_under_way_when_all_nodes_were_killed_runs_once() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&DURABLE);
    let (stop, rounds) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
    let count = |client: usize| {
        let (mut c, key) = (up.connect(), format!("count{client}"));
        let mut last = 0;
        while !stop.load(Ordering::Relaxed) {
            // The gateway asks again until nodes are back; nobody else changes the key.
            let answer = call(&mut c, &["INCR", &key]);
            assert_eq!(answer, Answer::Number(last + 1), "{key} is counted once for each call");
            last += 1;
            rounds[client].fetch_add(1, Ordering::Relaxed);
        }
        (key, last)
    };
    let counted: Vec<(String, i64)> = thread::scope(|scope| {
        let clients = [0, 1, 2].map(|client| {
            let count = &count;
            scope.spawn(move || count(client))
        });
        let _stops = StopOnDrop(&stop);
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(400));
            for (node, before) in up.kill_all(&NODES) {
                up.wait_for_return(node, before);
            }
        }
        rounds.iter().for_each(|count| wait_for_more_than(10, count));
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|c| c.join().expect("every call is answered")).collect()
    });
    let mut c = up.connect();
    for (key, last) in counted {
        assert!(last > 10, "{key} was counted to {last} only");
        assert_eq!(call(&mut c, &["GET", &key]), bytes(&last.to_string()), "{key}");
    }
    let data = up.data.clone();
    drop((c, up));
    fs::remove_dir_all(data).unwrap();
}

#[test]
fn a_cluster_that_was_stopped_or_killed_goes_on_where_it_was() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&DURABLE);
    let data = up.data.clone();
    let dir = data.display().to_string();
    let mut acked = kill_all_under_load(&up, 1);
    assert_eq!(up.stop(), Some(0));
    assert!(exists(&data.join("n0.data")));
    let status = run(&["status", "--data", &dir]);
    assert!(errors(&status).contains("continues with its data"), "{}", errors(&status));
    // It knows what it is.
    let up = UpCluster::start_in_bare(data.clone(), &[]);
    all_there(&up, &acked);
    let wait = || thread::sleep(Duration::from_millis(400));
    acked.extend(kill_everything_under_load(up, "end", wait));
    let mut up = UpCluster::start_in_bare(data.clone(), &[]);
    all_there(&up, &acked);
    let counted = call(&mut up.connect(), &["INCR", "fresh"]);
    assert_eq!(counted, Answer::Number(1), "a new gateway's command is not taken for an old one");
    assert_eq!(up.stop(), Some(0));
    for (args, says) in [
        (&["--shards", "2"][..], "shards = 2, and what is there was written with 3"),
        (&["--protocol", "tram"], "protocol = tram, and what is there"),
        (&["--set", "m=7"], "set.m = 7, and what is there"),
        // It is not told as if there had been one with another value.
        (&["--set", "nope=1"], "no parameter is named \"nope\"; there are: "),
        (&["--set", "windw=1"], "no parameter is named \"windw\": did you mean window? "),
    ] {
        let refused = run(&[&["up", "--data", &dir], args].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {}", errors(&refused));
        assert!(errors(&refused).contains(says), "{args:?}: {}", errors(&refused));
    }
    fs::remove_dir_all(&data).unwrap();
}

/// Writes so much that the state is written to disk, and old records are forgotten.
#[test]
fn a_long_log_is_trimmed_behind_the_state_and_both_are_read_again() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&DURABLE);
    let data = up.data.clone();
    let value = "x".repeat(400_000);
    let mut c: Connection = up.connect();
    // Twice as much as a checkpoint comes after.
    for i in 0..350 {
        let key = format!("big{}", i % 40);
        assert_eq!(call(&mut c, &["SET", &key, &value]), Answer::Word("OK".into()), "{i}");
    }
    assert_eq!(call(&mut c, &["SET", "last", "word"]), Answer::Word("OK".into()));
    assert_eq!(up.stop(), Some(0));
    for n in NODES {
        let states = fs::read_dir(data.join(format!("n{n}.data/state"))).unwrap().count();
        assert!(states > 0, "n{n} wrote its state");
    }
    // Again and again: nodes begin with states and logs of different ages, and continue to save.
    for round in 0..4 {
        let mut up = UpCluster::start_in_bare(data.clone(), &[]);
        let mut c = up.connect();
        assert_eq!(call(&mut c, &["GET", "last"]), bytes("word"));
        assert_eq!(call(&mut c, &["STRLEN", "big39"]), Answer::Number(400_000));
        assert_eq!(call(&mut c, &["DBSIZE"]), Answer::Number(41));
        for i in 0..100 {
            let key = format!("big{}", i % 40);
            let said = call(&mut c, &["SET", &key, &value]);
            assert_eq!(said, Answer::Word("OK".into()), "{i} of round {round}");
        }
        let log = fs::read_to_string(data.join("n0.log")).unwrap();
        assert!(log.contains("continues from the state on disk"), "{log}");
        assert_eq!(up.stop(), Some(0));
    }
    fs::remove_dir_all(&data).unwrap();
}

/// A node whose disk is full says so and ends, the others continue, and it is back when there is
/// room.
#[test]
fn a_full_disk_ends_one_node_and_no_other_until_there_is_room() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&DURABLE);
    let (data, own) = (up.data.clone(), up.data.join("n2.data"));
    assert_eq!(up.stop(), Some(0));
    fs::rename(&own, data.join("before")).unwrap();
    let Some(disk) = MemoryFilesystem::at(own.clone(), 160 << 20) else {
        fs::remove_dir_all(&data).unwrap();
        return skip("a_full_disk_ends_one_node_and_no_other_until_there_is_room", NO_MOUNT);
    };
    let copied = Command::new("cp").arg("-a").arg(data.join("before/.")).arg(&own).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let mut up = UpCluster::start_in_bare(data.clone(), &[]);
    let ballast = own.join("ballast");
    let fill = Command::new("dd").args(["if=/dev/zero", "bs=1M"]).arg(of(&ballast)).output();
    assert!(fill.is_ok_and(|output| !output.status.success()), "it ends when the disk is full");
    let (mut c, value) = (up.connect(), "x".repeat(400_000));
    let begun = Instant::now();
    let mut last = 0;
    let dir = data.display().to_string();
    let status = || String::from_utf8_lossy(&run(&["status", "--data", &dir]).stdout).into_owned();
    while !status().contains("the disk is full") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", status());
        for _ in 0..5 {
            last += 1;
            let key = format!("big{}", last % 5);
            assert_eq!(call(&mut c, &["SET", &key, &value]), Answer::Word("OK".into()));
        }
    }
    assert_eq!(call(&mut c, &["SET", "last", "word"]), Answer::Word("OK".into()));
    fs::remove_file(&ballast).unwrap();
    up.wait_until_ready();
    assert_eq!(call(&mut c, &["GET", "last"]), bytes("word"));
    assert_eq!(up.stop(), Some(0));
    drop(disk);
    fs::remove_dir_all(&data).unwrap();
}

/// The word of `dd` that says where to write.
fn of(path: &Path) -> OsString {
    let mut word = OsString::from("of=");
    word.push(path);
    word
}

#[test]
fn a_node_whose_disk_was_replaced_gets_everything_back_from_the_others() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&DURABLE);
    let data = up.data.clone();
    let acked = write_while(&up, || thread::sleep(Duration::from_millis(400)));
    assert_eq!(up.stop(), Some(0));
    fs::remove_dir_all(data.join("n1.data")).unwrap();
    let mut up = UpCluster::start_in_bare(data.clone(), &[]);
    let log = fs::read_to_string(data.join("n1.log")).unwrap();
    assert!(log.contains("its log is gone"), "{log}");
    all_there(&up, &acked);
    // It counts again: without it there is no majority.
    up.wait_until_ready();
    for (node, before) in up.kill_all(&[0, 2]) {
        up.wait_for_return(node, before);
    }
    all_there(&up, &acked);
    assert_eq!(up.stop(), Some(0));
    fs::remove_dir_all(&data).unwrap();
}

/// Starts `amcast up` in a directory with nothing else said, does something, and ends it.
fn up_in(dir: &Path, more: &[&str], act: impl FnOnce(&mut Connection)) {
    let mut up = ends_with_us(AMCAST)
        .args(["up", "--redis-port", "0", "--log-port", "0", "--http-port", "0"])
        .args(more)
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut line = String::new();
    BufReader::new(up.stdout.take().expect("it is piped")).read_line(&mut line).unwrap();
    let at = line.split_whitespace().find_map(|word| word.strip_prefix("redis="));
    act(&mut Connection::open(at.expect("it is ready")).expect("it listens"));
    signal(up.id(), Signal::TERM);
    assert!(up.wait().unwrap().success());
}

#[test]
fn a_cluster_that_is_told_nothing_keeps_its_data_beside_where_it_was_started() {
    let _limit = amcast_test_policy::time_limit();
    let dir = unique("usual");
    fs::create_dir(&dir).unwrap();
    up_in(&dir, &[], |c| assert_eq!(call(c, &["SET", "k", "v"]), Answer::Word("OK".into())));
    let file = ClusterFile::read(&dir.join("amcast-data/cluster.toml")).unwrap();
    assert_eq!((file.protocol.as_str(), file.durable), ("multi-ring", true));
    up_in(&dir, &[], |c| assert_eq!(call(c, &["GET", "k"]), bytes("v")));
    fs::remove_dir_all(dir.join("amcast-data")).unwrap();
    up_in(&dir, &["--storage", "memory", "--shards", "1"], |c| {
        assert_eq!(call(c, &["GET", "k"]), Answer::Null);
    });
    assert!(fs::read_dir(&dir).unwrap().next().is_none(), "nothing is kept");
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn a_cluster_that_goes_on_with_its_data_listens_where_it_did() {
    let _limit = amcast_test_policy::time_limit();
    let data = unique("ports");
    let ports = |up: &UpCluster| {
        let own = [up.redis.clone(), up.log.clone(), up.http.clone()];
        own.into_iter().chain(up.node_gateways()).collect::<Vec<String>>()
    };
    let mut up =
        UpCluster::start_in_bare(data.clone(), &["--protocol", "multi-ring", "--shards", "1"]);
    let before = ports(&up);
    assert_eq!(up.stop(), Some(0));
    // Another process may have taken a few of them meanwhile; the cluster takes other ports then.
    let taken = std::net::TcpListener::bind(&before[0]).unwrap();
    let mut up = UpCluster::start_in_bare(data.clone(), &[]);
    let after = ports(&up);
    assert_ne!(before[0], after[0]);
    let same = before.iter().zip(&after).filter(|(a, b)| a == b).count();
    assert!(same >= before.len() / 2, "{before:?}, and then {after:?}");
    drop(taken);
    // A follower of a log follows it there.
    let dir = data.display().to_string();
    let mut tail = ends_with_us(AMCAST)
        .args(["log", "tail", "orders", "--from", "0", "--count", "2", "--data", &dir])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(run(&["log", "append", "orders", "one", "--data", &dir]).status.success());
    assert_eq!(up.stop(), Some(0));
    let held: Vec<_> = after.iter().map(std::net::TcpListener::bind).collect();
    let up = UpCluster::start_in_bare(data.clone(), &[]);
    assert!(held[1].is_err() || up.log != after[1], "that is taken");
    assert!(run(&["log", "append", "orders", "two", "--data", &dir]).status.success());
    let mut said = String::new();
    tail.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(tail.wait().unwrap().success() && said == "0\tone\n1\ttwo\n", "{said}");
    let read = run(&["log", "read", "orders", "--limit", "1", "--data", &dir]);
    assert_eq!(String::from_utf8_lossy(&read.stdout), "0\tone\n");
    drop((held, up));
    fs::remove_dir_all(&data).unwrap();
}
