//! A command that ends every node that executes it, also at each start, and the decision to skip it.

use crate::by_hand::{NODES, ThreeHosts};
use crate::harness::{
    AMCAST, UpCluster, call, ends_with_us, errors, left_by_killed_tests, run, signal, unique,
};
use amcast::client::{Answer, Connection};
use amcast::node::control::NodeStatus;
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(100);

/// The name of directories of clusters with a poisoned command.
const POISONED: &str = "poisoned";

/// How long one command may make a string, nearly.
const POISON_BYTES: u64 = 60_000_000;

/// The free memory of nodes: enough to work, and less than the poisoned command needs, also in an
/// incarnation that executes it before all its threads run.
const ROOM_BYTES: u64 = 16_000_000;

const OPTIONS: [&str; 6] = ["--protocol", "multi-ring", "--shards", "2", "--workers", "0"];

/// Memory is taken as it is needed, and not reserved for each thread.
const PLAIN_MEMORY: [&str; 2] = ["env", "MIMALLOC_DISALLOW_ARENA_ALLOC=1"];

fn skip(words: &[&str], paths: &[&Path]) -> (Option<i32>, String) {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let mut all = vec!["log-file", "skip"];
    all.extend_from_slice(words);
    all.extend(paths.iter().map(String::as_str));
    let Output { status, stdout, stderr } = run(&all);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout) + &text(&stderr))
}

fn log_of(data: &Path, node: usize) -> String {
    fs::read_to_string(data.join(format!("n{node}.log"))).unwrap_or_default()
}

/// The notes in memory of a node, which are found by the inode of its directory.
fn notes_in_memory(data: &Path, node: usize) -> Vec<PathBuf> {
    let Ok(found) = fs::metadata(data.join(format!("n{node}.data"))) else { return Vec::new() };
    let end = format!("-{:x}", found.ino());
    let is_of_node = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("amcast-executing-") && name.ends_with(&end)
    };
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_of_node).collect()
}

/// Removes a cluster's directory, and the notes of its nodes in memory.
fn remove(data: &Path) -> io::Result<()> {
    for notes in (0..3).flat_map(|n| notes_in_memory(data, n)) {
        fs::remove_file(notes)?;
    }
    fs::remove_dir_all(data)
}

/// The address space of a process, in bytes.
fn size_of(os_pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{os_pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// A cluster whose processes may have so many bytes.
fn up_within(limit: &str, data: &Path) -> Command {
    let mut up = ends_with_us("env");
    up.args(["MIMALLOC_DISALLOW_ARENA_ALLOC=1", "prlimit", limit, AMCAST, "up"]);
    up.args(["--redis-port", "0", "--log-port", "0", "--http-port", "0", "--data"]).arg(data);
    up.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    up
}

/// The message that a node was executing when it ended, with its place, as the tool says it.
fn place(told: &str) -> String {
    let line = told.lines().find(|line| line.contains("while it executed ")).expect(told);
    let place = line.split("while it executed ").nth(1).unwrap().split(',').next().unwrap();
    place.to_string()
}

/// A cluster in a directory, and how much memory each of its processes may have.
struct PoisonedCluster {
    data: PathBuf,
    limit: String,
}

impl PoisonedCluster {
    /// With some keys, and as much memory as its nodes need for them.
    fn new() -> Self {
        // On a disk, for the notes of what is executed to be apart from it.
        let data = env::temp_dir().join(unique(POISONED).file_name().unwrap());
        for left in left_by_killed_tests(&env::temp_dir(), POISONED) {
            // Another test may be doing the same.
            let _ = remove(&left);
        }
        let mut up = UpCluster::start_under(&PLAIN_MEMORY, data.clone(), &OPTIONS);
        up.wait_until_ready();
        let mut c = up.connect();
        for i in 0..40 {
            assert_eq!(
                call(&mut c, &["SET", &format!("k{i}"), "before"]),
                Answer::Word("OK".into())
            );
        }
        let sizes = up.nodes().into_iter().flatten().map(|node| size_of(node.os_pid));
        let limit = format!("--as={}", sizes.max().unwrap() + ROOM_BYTES);
        assert_eq!(up.stop(), Some(0));
        Self { data, limit }
    }

    fn start(&self) -> UpCluster {
        let limited = [&PLAIN_MEMORY[..], &["prlimit", &self.limit]].concat();
        let up = UpCluster::start_under(&limited, self.data.clone(), &OPTIONS);
        up.wait_until_ready();
        up
    }

    /// It does not start: its nodes end again and again.
    fn ends(&self) {
        let ended = up_within(&self.limit, &self.data).output().unwrap();
        assert!(!ended.status.success() && ended.stdout.is_empty(), "{}", errors(&ended));
    }

    /// A transaction for which no node has memory, twice as much as one string may take: each start executes it again.
    fn poison(&self) {
        let mut up = self.start();
        let (mut c, size) = (up.connect(), POISON_BYTES.to_string());
        assert_eq!(call(&mut c, &["MULTI"]), Answer::Word("OK".into()));
        for key in ["poison", "{poison}too"] {
            let queued = call(&mut c, &["SETRANGE", key, &size, "x"]);
            assert_eq!(queued, Answer::Word("QUEUED".into()));
        }
        let answer = c.call(&[b"EXEC"]);
        let failed = answer.as_ref().map_or(true, Answer::is_error);
        assert!(failed, "{answer:?}");
        // Two nodes that end together may leave the third no time in which it comes to it.
        let names_it = |n| log_of(&self.data, n).contains("2 times in a row while it executed ");
        wait_for("named in a log", || (0..3).any(names_it), || log_of(&self.data, 0));
        let first = (0..3).find(|n| names_it(*n)).unwrap();
        assert!(log_of(&self.data, first).contains("amcast log-file skip"));
        // They are in memory, where there is a place for that which outlasts the program, and else beside its data.
        let beside = self.data.join(format!("n{first}.data/executing"));
        assert_eq!(beside.exists(), notes_in_memory(&self.data, first).is_empty());
        up.stop();
    }

    /// Decides about the message, for one alone first and then for all.
    fn decide(&self) -> String {
        let data = &*self.data;
        let (code, told) = skip(&[], &[data]);
        assert_eq!(code, Some(0), "{told}");
        let place = place(&told);
        let message = place.split('@').next().unwrap().to_string();
        assert!(told.contains("n2 skips nothing"), "{told}");
        let (code, asked) = skip(&["--message", &message], &[data]);
        assert_eq!(code, Some(1), "{asked}");
        let command = format!("\"SETRANGE\" \"poison\" \"{POISON_BYTES}\"");
        for words in [&command[..], "n1 has it ahead", "nothing was changed"] {
            assert!(asked.contains(words), "{asked}");
        }
        assert!(!data.join("n0.data/skipped").exists());
        // With its place, for a node that may not have reached it.
        let (code, told) = skip(&["--message", &place, "--yes"], &[&data.join("n0.data")]);
        assert_eq!(code, Some(0), "{told}");
        assert!(told.contains("for each of the others"), "{told}");
        assert!(told.contains(&format!("--message {place}")), "{told}");
        // One alone talks to none of the others.
        let mut up = up_within(&self.limit, data);
        let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let refused = "have not decided to skip the same messages";
        wait_for("refused", || log_of(data, 0).contains(refused), || log_of(data, 0));
        signal(up.id(), rustix::process::Signal::TERM);
        assert!(up.wait().unwrap().success(), "it stops when it is asked to");
        let (code, told) = skip(&["--list"], &[data]);
        let alone = "has not met all others with the same decision";
        assert!(code == Some(0) && told.contains(alone), "{told}");
        let (code, told) = skip(&["--message", &message, "--yes"], &[data]);
        assert_eq!(code, Some(0), "{told}");
        assert!(told.contains("decided for n1, n2"), "{told}");
        assert!(!told.contains("for each of the others"), "{told}");
        message
    }
}

/// Waits until something is so; what to say if it does not come to be.
fn wait_for(what: &str, is_so: impl Fn() -> bool, said: impl Fn() -> String) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not {what}: {}", said());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Everything else is there, at each node, and all of them hold the same.
fn all_but_the_poison(up: &UpCluster) {
    let mut gateways = up.node_gateways();
    gateways.push(up.redis.clone());
    for gateway in gateways {
        let mut c = Connection::open(&gateway).unwrap();
        assert_eq!(call(&mut c, &["EXISTS", "poison"]), Answer::Number(0));
        assert_eq!(call(&mut c, &["DBSIZE"]), Answer::Number(40));
        assert_eq!(call(&mut c, &["GET", "k7"]), crate::bytes("before"));
    }
    let held = || -> Vec<Vec<(u64, u64)>> {
        let figures = |node: NodeStatus| {
            node.replicas.iter().map(|r| (r.figures.items, r.figures.used_bytes)).collect()
        };
        up.nodes().into_iter().flatten().map(figures).collect()
    };
    // A node may be a command behind the others.
    let alike = || held().len() == 3 && held().iter().all(|of| *of == held()[0]);
    wait_for("alike", alike, || format!("{:?}", held()));
}

#[test]
fn a_command_that_ends_every_node_is_skipped_by_all_and_not_by_one() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PoisonedCluster::new();
    let data = &*cluster.data;
    cluster.poison();
    cluster.ends();
    let message = cluster.decide();
    let mut up = cluster.start();
    all_but_the_poison(&up);
    assert_eq!(call(&mut up.connect(), &["SET", "k7", "before"]), Answer::Word("OK".into()));
    assert_eq!(up.stop(), Some(0));

    // It stays skipped, from the states that have it behind them, and nobody takes that back.
    let (code, told) = skip(&["--undo", "--message", &message, "--yes"], &[data]);
    assert!(code == Some(1) && told.contains("that stays for ever"), "{told}");
    let mut up = cluster.start();
    all_but_the_poison(&up);
    assert_eq!(up.stop(), Some(0));
    // Without its decision no node starts from such a state; nor does one skip what it has executed.
    fs::remove_file(data.join("n1.data/skipped")).unwrap();
    let mut up = UpCluster::start_under(&PLAIN_MEMORY, cluster.data.clone(), &OPTIONS);
    let refused = "was skipped in it, and this node has no decision";
    wait_for("refused", || log_of(data, 1).contains(refused), || log_of(data, 1));
    up.stop();
    let (code, told) = skip(&["--message", "p0:1@g0/1", "--yes"], &[data]);
    assert!(code == Some(1) && told.contains("has executed p0:1@g0/1"), "{told}");
    remove(data).unwrap();
}

#[test]
fn nodes_with_different_decisions_refuse_each_other_and_a_decision_waits_for_all() {
    let _limit = amcast_test_policy::time_limit();
    // A message that nobody comes to: what counts here is who has the decision.
    let far = "p0:4294967000@g0/1000000000";
    let mut hosts = ThreeHosts::new();
    hosts.start(0..NODES);
    hosts.wait_until_ready(0..NODES);
    hosts.kill(0..NODES);
    let disk = |hosts: &ThreeHosts, node: usize| hosts.disk(node).join(format!("n{node}.data"));
    let decide = |hosts: &ThreeHosts, node: usize| {
        let (code, told) = skip(&["--message", far, "--yes"], &[&disk(hosts, node)]);
        assert_eq!(code, Some(0), "{told}");
    };
    decide(&hosts, 0);
    // The others continue without it.
    hosts.start(0..NODES);
    hosts.wait_until_ready(1..NODES);
    let says = |node: &NodeStatus, words: &[&str]| words.iter().all(|word| node.why.contains(word));
    let words =
        ["refuse", "not decided to skip the same messages", "n0 skips p0:4294967000@g0/1000000000"];
    hosts.wait(0, "refused", |node| says(node, &words));
    hosts.ask(1, &["SET", "a", "1"]);
    let told = || (1..NODES).any(|n| log_of(&hosts.disk(n), n).contains("n0 at 127.0.0.1"));
    wait_for("told by the others", told, || log_of(&hosts.disk(1), 1));
    hosts.kill(0..NODES);
    // It may have been used since, for all that this host knows.
    let (code, told) =
        skip(&["--undo", "--message", "p0:4294967000", "--yes"], &[&disk(&hosts, 0)]);
    assert!(code == Some(1) && told.contains("n0 has started with that decision"), "{told}");
    decide(&hosts, 1);
    decide(&hosts, 2);
    // One that has not started since takes it back by itself.
    let (code, told) =
        skip(&["--undo", "--message", "p0:4294967000", "--yes"], &[&disk(&hosts, 2)]);
    assert_eq!(code, Some(0), "{told}");
    assert!(!disk(&hosts, 2).join("skipped").exists());
    decide(&hosts, 2);
    hosts.start(0..2);
    hosts.wait(0, "waiting", |node| says(node, &["is skipped only once every node", "n2"]));
    hosts.start(2..3);
    hosts.wait_until_ready(0..NODES);
    let (code, told) = skip(&["--list"], &[&disk(&hosts, 0)]);
    assert!(code == Some(2) && told.contains("n0 runs; end it first"), "{told}");
    assert_eq!(hosts.ask(0, &["GET", "a"]), crate::bytes("1"));
    hosts.kill(0..NODES);
    let (_, told) = skip(&["--list"], &[&disk(&hosts, 0)]);
    assert!(told.contains("all nodes have it"), "{told}");
    // From now on a majority is enough.
    hosts.start(0..2);
    hosts.wait_until_ready(0..2);
}
