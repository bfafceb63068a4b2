//! Features that an operator relies on: gateways in every node, reports of dead nodes and lost
//! shards, histories that end, and output that nobody reads.

use crate::harness::{
    AMCAST, Record, StopOnDrop, UpCluster, bytes, call, ends_with_us, errors, exists, run, signal,
    unique, wait_until_gone,
};
use crate::write_while;
use amcast::client::{Answer, Connection};
use amcast::node::control::NodeStatus;
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where a node serves Redis clients, as the status says.
fn gateway_of(up: &UpCluster, node: usize) -> String {
    let status = up.status();
    let at = &status["nodes"][node]["fronts"]["redis"];
    at.as_str().unwrap_or_else(|| panic!("n{node} serves nobody: {status}")).to_string()
}

#[test]
fn every_node_serves_clients_and_does_so_again_when_it_was_killed() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&[]);
    let gateways: Vec<String> = (0..3).map(|n| gateway_of(&up, n)).collect();
    for (n, at) in gateways.iter().enumerate() {
        let mut c = Connection::open(at).unwrap();
        let key = format!("from-{n}");
        let pairs = ["MSET", &key, "1", "shared", &key, "third", "3"];
        assert_eq!(call(&mut c, &pairs), Answer::Word("OK".into()));
        // A write acknowledged by one gateway is seen through all others.
        for other in &gateways {
            let mut c = Connection::open(other).unwrap();
            assert_eq!(call(&mut c, &["GET", "shared"]), bytes(&key));
        }
    }
    let before = up.kill(1);
    let mut through_another = Connection::open(&gateways[2]).unwrap();
    assert_eq!(call(&mut through_another, &["GET", "from-1"]), bytes("1"));
    up.wait_for_return(1, before);
    assert_eq!(gateway_of(&up, 1), gateways[1], "clients come back to the same port");
    let mut c = Connection::open(&gateways[1]).unwrap();
    assert_eq!(call(&mut c, &["MGET", "from-0", "from-1"]), Answer::Array(vec![bytes("1"); 2]));
    let life = &up.status()["nodes"][1]["life"];
    assert_eq!(life["starts"], 2, "{life}");
    assert!(life["last_end"].as_str().is_some_and(|end| end.contains("SIGKILL")), "{life}");
}

#[test]
fn what_expired_is_freed_in_every_node_though_nobody_asks_for_it() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--workers", "2"]);
    let mut c = up.connect();
    for i in 0..300 {
        let key = format!("passes-{i}");
        assert_eq!(call(&mut c, &["SET", &key, "v", "PX", "50"]), Answer::Word("OK".into()));
    }
    assert_eq!(call(&mut c, &["SET", "stays", "v"]), Answer::Word("OK".into()));
    let held = || -> Vec<u64> {
        let of = |n: &NodeStatus| n.replicas.iter().map(|r| r.figures.items).sum();
        up.nodes().iter().flatten().map(of).collect()
    };
    let begun = Instant::now();
    while held() != [1, 1, 1] {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?} keys are held", held());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(call(&mut c, &["GET", "stays"]), bytes("v"));
}

#[test]
fn who_has_not_the_password_is_not_served() {
    let _limit = amcast_test_policy::time_limit();
    let secret = unique("secret");
    fs::write(&secret, "open sesame\n").unwrap();
    let up = UpCluster::start(&["--password-file", secret.to_str().unwrap()]);
    fs::remove_file(&secret).unwrap();
    for at in [up.redis.clone(), gateway_of(&up, 0)] {
        let mut c = Connection::open(&at).unwrap();
        assert!(call(&mut c, &["GET", "x"]).to_string().starts_with("NOAUTH"));
        assert!(c.log_in(Some("open barley")).is_err());
        assert!(call(&mut c, &["SET", "x", "1"]).is_error());
        c.log_in(Some("open sesame")).unwrap();
        assert_eq!(call(&mut c, &["SET", "x", "1"]), Answer::Word("OK".into()));
    }
    let mode = fs::metadata(up.data.join("cluster.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others can read the password");
    // The cluster's own user need not give it.
    let data = up.data.to_str().unwrap();
    assert!(run(&["kv", "--data", data, "get", "x"]).stdout.starts_with(b"1"));
    let before = up.kill(0);
    up.wait_for_return(0, before);
    let mut c = Connection::open(&gateway_of(&up, 0)).unwrap();
    assert!(call(&mut c, &["GET", "x"]).is_error(), "a node that came back asks for it, too");
    let empty = run(&["up", "--password-file", "/dev/null"]);
    assert_eq!(empty.status.code(), Some(2));
    assert!(errors(&empty).contains("no password"), "{}", errors(&empty));
}

#[test]
fn a_password_that_others_may_read_is_warned_of() {
    let _limit = amcast_test_policy::time_limit();
    let secret = unique("open-secret");
    let path = secret.to_str().unwrap();
    // Each ends for another reason: nothing is started here.
    let told = |args: &[&str]| errors(&run(&[&["up", "--protocol", "none"], args].concat()));
    let cases: [(&str, &[&str]); 2] = [
        ("open sesame\n", &["--password-file", path]),
        ("password = \"x\"\n", &["--config", path]),
    ];
    for (text, args) in cases {
        fs::write(&secret, text).unwrap();
        for (mode, warns) in [(0o640, true), (0o604, true), (0o600, false)] {
            fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
            let said = told(args);
            assert!(said.contains("no protocol is named"), "{said}");
            assert_eq!(said.contains(&format!("chmod 600 {path}")), warns, "{mode:o}: {said}");
        }
    }
    fs::write(&secret, "shards = 2\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!told(cases[1].1).contains("chmod"), "there is no password in it");
    fs::remove_file(&secret).unwrap();
}

#[test]
fn a_shard_without_its_majority_is_told_everywhere() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--shards", "2"]);
    assert!(up.page("/readyz").starts_with("HTTP/1.1 200"), "{}", up.page("/readyz"));
    up.kill_all(&[0, 2]);
    let begun = Instant::now();
    while !up.page("/readyz").contains("lost its majority") {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", up.page("/readyz"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let ready = up.page("/readyz");
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    let lost = "shard 0 has lost its majority (1 of 3 replicas hold its state); stop the cluster and \
                start anew";
    assert!(ready.contains(lost), "{ready}");
    assert!(up.page("/").contains(lost), "{}", up.page("/"));
    let output = run(&["status", "--data", &up.data.display().to_string()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(lost) && text.contains("shard 1 has lost"), "{text}");
    assert_eq!(up.status()["groups"][0]["lost"], lost);
}

#[test]
fn a_history_has_an_end_also_when_the_cluster_is_stopped_under_load() {
    let _limit = amcast_test_policy::time_limit();
    let record = Record::new("ended");
    let dir = record.display().to_string();
    let mut up = UpCluster::start(&["--record", &dir]);
    let through_node = gateway_of(&up, 1);
    let stop = AtomicBool::new(false);
    let write = |at: &str| {
        let mut c = Connection::open(at).unwrap();
        // Until the cluster closes the connection.
        let rounds = (0..).take_while(|_| !stop.load(Ordering::Relaxed));
        rounds
            .take_while(|i: &u64| c.call(&[b"SET", b"k", i.to_string().as_bytes()]).is_ok())
            .count()
    };
    let redis = up.redis.clone();
    let written: Vec<usize> = std::thread::scope(|scope| {
        let write = &write;
        let writers = [&redis, &through_node].map(|at| scope.spawn(move || write(at)));
        let stops = StopOnDrop(&stop);
        std::thread::sleep(Duration::from_millis(500));
        let before = up.kill(2);
        up.wait_for_return(2, before);
        assert_eq!(up.stop(), Some(0));
        drop(stops);
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    assert!(written.iter().all(|&n| n > 10), "{written:?}");
    let told = fs::read_to_string(record.join("supervisor.0.jsonl")).unwrap();
    assert!(told.contains("\"ev\":\"crash\"") && told.ends_with("{\"ev\":\"end\"}\n"), "{told}");
    let second = fs::read_to_string(record.join("n2.1.jsonl")).unwrap();
    assert!(second.starts_with("{\"ev\":\"recover\""), "{second}");
    let checked = run(&["check", &dir]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
    assert!(report.contains("holds       validity"), "{report}");
    let again = run(&["up", "--redis-port", "0", "--record", &dir]);
    assert_eq!(again.status.code(), Some(2));
    assert!(errors(&again).contains("earlier run"), "{}", errors(&again));
}

#[test]
fn a_history_has_what_the_gateway_of_a_killed_node_sent() {
    let _limit = amcast_test_policy::time_limit();
    let record = Record::new("killed-gateway");
    let dir = record.display().to_string();
    let mut up = UpCluster::start(&["--record", &dir]);
    let (through_node, stop) = (gateway_of(&up, 0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stop = &stop;
        let stops = StopOnDrop(stop);
        for client in 0..6 {
            let at = if client < 4 { &through_node } else { &up.redis };
            scope.spawn(move || {
                let mut c = Connection::open(at).unwrap();
                // Until the node is killed, or the cluster has served others for a while behind that.
                let rounds = (0_u64..).take_while(|_| !stop.load(Ordering::Relaxed));
                let key = format!("k{client}");
                let set = |n: u64| c.call(&[b"SET", key.as_bytes(), n.to_string().as_bytes()]);
                let done = rounds.map(set).take_while(Result::is_ok).count();
                assert!(done > 10, "{done}");
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let before = up.kill(0);
        up.wait_for_return(0, before);
        drop(stops);
    });
    assert_eq!(up.stop(), Some(0));
    let checked = run(&["check", &dir]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
    assert!(report.contains("holds       uniform-integrity"), "{report}");
}

#[test]
fn recording_may_begin_with_a_cluster_that_has_data() {
    let _limit = amcast_test_policy::time_limit();
    let (data, record) = (unique("recorded-later"), Record::new("recorded-later"));
    let dir = record.display().to_string();
    let mut up = UpCluster::start_in_bare(data.clone(), &[]);
    call(&mut up.connect(), &["SET", "old", "1"]);
    assert_eq!(up.stop(), Some(0));
    let said = unique("recorded-later.err");
    let stderr = fs::File::create(&said).unwrap().into();
    let mut up = UpCluster::start_with(data.clone(), &["--record", &dir], stderr);
    assert_eq!(call(&mut up.connect(), &["GET", "old"]), bytes("1"));
    write_while(&up, || {
        let before = up.kill(1);
        up.wait_for_return(1, before);
    });
    assert_eq!(up.stop(), Some(0));
    let told = fs::read_to_string(&said).unwrap();
    assert!(told.contains("the cluster has data from before"), "{told}");
    assert!(!told.contains("ERROR"), "{told}");
    let checked = run(&["check", &dir]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
    let says = "began with a state from before the history";
    for property in ["uniform-agreement", "uniform-prefix-order", "uniform-acyclic-order"] {
        assert!(report.contains(&format!("holds       {property}")), "{report}");
    }
    let linearizable = report.lines().find(|line| line.contains("linearizable")).unwrap();
    assert!(linearizable.starts_with("not judged") && linearizable.contains(says), "{report}");
    fs::remove_file(&said).unwrap();
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn two_signals_at_once_are_one_request_and_a_later_one_is_another() {
    let _limit = amcast_test_policy::time_limit();
    for (wait, code) in [(Duration::ZERO, 0), (Duration::from_millis(600), 1)] {
        let mut up = UpCluster::start(&[]);
        let os_pids: Vec<u32> = up.nodes().into_iter().flatten().map(|n| n.os_pid).collect();
        // The node does not end, so that the cluster is still ending when the second signal comes.
        signal(os_pids[0], Signal::STOP);
        signal(up.os_pid(), Signal::INT);
        std::thread::sleep(wait);
        // That sends the second one.
        let ended = up.stop();
        // It may have been killed.
        let hung = rustix::process::Pid::from_raw(os_pids[0] as i32).unwrap();
        let _ = rustix::process::kill_process(hung, Signal::CONT);
        wait_until_gone(&os_pids);
        assert_eq!(ended, Some(code), "after {wait:?}");
        drop(fs::remove_dir_all(&up.data));
    }
}

#[test]
fn a_node_that_hangs_at_the_start_is_named_and_others_serve_meanwhile() {
    let _limit = amcast_test_policy::time_limit();
    let (data, said) = (unique("hangs"), unique("hangs.err"));
    let mut up = UpCluster::start_in_bare(data.clone(), &[]);
    call(&mut up.connect(), &["SET", "a", "1"]);
    assert_eq!(up.stop(), Some(0));
    let dir = data.display().to_string();
    let mut up = ends_with_us(AMCAST)
        .args(["up", "--redis-port", "0", "--log-port", "0", "--http-port", "0", "--data", &dir])
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let is_late = || assert!(begun.elapsed() < Duration::from_secs(40), "see {}", said.display());
    let os_pid = || {
        let lives: serde_json::Value =
            serde_json::from_slice(&fs::read(data.join("nodes.json")).ok()?).ok()?;
        lives[1]["os_pid"].as_u64()
    };
    let hung = std::iter::from_fn(|| Some(os_pid())).inspect(|_| is_late()).flatten().next();
    let hung = hung.unwrap() as u32;
    signal(hung, Signal::STOP);
    let told = || fs::read_to_string(&said).unwrap();
    while !told().contains("the cluster serves without n1, ") {
        is_late();
        std::thread::sleep(Duration::from_millis(50));
    }
    let got = run(&["kv", "--data", &dir, "get", "a"]);
    signal(hung, Signal::CONT);
    assert_eq!(String::from_utf8_lossy(&got.stdout), "1\n", "{}", errors(&got));
    let mut line = String::new();
    BufReader::new(up.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready "), "{line}");
    signal(up.id(), Signal::TERM);
    assert_eq!(up.wait().unwrap().code(), Some(0));
    fs::remove_file(&said).unwrap();
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn recording_stops_at_its_limit_and_the_service_goes_on() {
    let _limit = amcast_test_policy::time_limit();
    let record = Record::new("limited");
    let dir = record.display().to_string();
    let mut up = UpCluster::start(&["--record", &dir, "--record-limit", "1"]);
    let begun = Instant::now();
    write_while(&up, || {
        while !exists(&record.join("stopped")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "no megabyte was recorded");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
    });
    assert_eq!(call(&mut up.connect(), &["SET", "still", "there"]), Answer::Word("OK".into()));
    assert_eq!(up.stop(), Some(0));
    for entry in fs::read_dir(&*record).unwrap() {
        let entry = entry.unwrap();
        let bytes = entry.metadata().unwrap().len();
        assert!(bytes <= 1 << 20, "{:?} has {bytes} bytes", entry.path());
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?} holds clients' data", entry.path());
    }
    let checked = run(&["check", &dir]);
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{report}{}", errors(&checked));
}

#[test]
fn output_that_nobody_reads_is_no_panic() {
    let _limit = amcast_test_policy::time_limit();
    for command in [&["config", "--explain"][..], &["protocols"], &["protocols", "--json"]] {
        let mut child = ends_with_us(AMCAST)
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(errors(&output), "", "{command:?}");
        assert_ne!(output.status.code(), Some(101), "{command:?}");
    }
}

#[test]
fn a_cluster_that_keeps_nothing_says_so_when_it_begins_and_when_its_state_is_gone() {
    let _limit = amcast_test_policy::time_limit();
    let (data, said) = (unique("forgets"), unique("forgets.err"));
    let mut up = ends_with_us(AMCAST)
        .args(["up", "--redis-port", "0", "--log-port", "0", "--http-port", "0", "--shards", "1"])
        .args(["--protocol", "bb-urcast-urcast", "--data"])
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(up.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready "), "{line}");
    let told = || fs::read_to_string(&said).unwrap();
    assert!(told().contains("bb-urcast-urcast keeps nothing on disk"), "{}", told());
    for rank in 0..3 {
        let node = amcast::node::control::status_of(&data.join(format!("n{rank}.sock")));
        signal(node.unwrap().os_pid, Signal::KILL);
    }
    let begun = Instant::now();
    while !told().contains("shard 0 has lost its majority") {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", told());
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(told().matches("stop the cluster and start anew").count(), 1, "{}", told());
    signal(up.id(), Signal::TERM);
    assert_eq!(up.wait().unwrap().code(), Some(0));
    fs::remove_file(&said).unwrap();
}
