//! The library as programs of others use it.

#[path = "../examples/bank/machine.rs"]
#[allow(dead_code, reason = "a part of it is for the example alone")]
mod machine;

use amcast::core::{Gid, GroupSet, Outcome};
use amcast::node::cluster_dir::{ClusterRegistry, SupervisedDir};
use amcast::node::command_gateway::NoAnswer;
use amcast::node::config::ClusterFile;
use amcast::node::supervisor::NodeCommand;
use amcast::replicate::{self, CallError, Cluster, NotServing, Session, StartError};
use machine::{Bank, BankOrder, account, shard_of};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// An example, built beside this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let built = test.parent().and_then(|deps| deps.parent()).expect("it lies in target/*/deps");
    built.join("examples").join(name)
}

/// Runs the bank, whose nodes are killed meanwhile; panics if anything was lost or made.
fn bank(protocol: &[&str]) {
    let output = Command::new(example("bank")).args(protocol).output();
    let output = output.expect("examples are built with the tests");
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    let out = String::from_utf8_lossy(out);
    assert!(output.status.success(), "{out}{err}");
    let words: Vec<&str> = out.split_whitespace().collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap_or_else(|_| panic!("{out}"));
    assert!(number(0) > 0 && number(2) > 0, "nothing happened: {out}");
    assert!(out.contains("400000 in all accounts"), "{out}");
}

#[test]
fn a_state_machine_of_ones_own_loses_nothing_while_its_nodes_are_killed() {
    let _limit = amcast_test_policy::time_limit();
    bank(&[]);
}

#[test]
fn a_state_machine_of_ones_own_is_replicated_over_the_network_as_well() {
    let _limit = amcast_test_policy::time_limit();
    bank(&["bb-urcast-urcast"]);
    bank(&["multi-ring"]);
}

#[test]
fn a_display_shows_words_early_and_all_confirm_the_same_order() {
    let _limit = amcast_test_policy::time_limit();
    let run = |protocol: &str| {
        let output = Command::new(example("early")).arg(protocol).output();
        output.expect("examples are built with the tests")
    };
    let output = run("bb-rcast-urcast");
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    let out = String::from_utf8_lossy(out);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("all displays confirmed the same order of"), "{out}");
    assert!(!out.contains(": 0 words"), "{out}");
    // A protocol without early deliveries is refused, with a reason.
    let output = run("sb-rcast");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && err.contains("before its place in the order"), "{err}");
}

#[test]
fn members_that_end_and_begin_anew_have_one_log_that_says_where_each_entry_was_ordered() {
    let _limit = amcast_test_policy::time_limit();
    let output = Command::new(example("partition_log")).output();
    let output = output.expect("examples are built with the tests");
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    let out = String::from_utf8_lossy(out);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("the log of 5 entries is the same at each of 3 members"), "{out}");
}

#[test]
fn no_cluster_is_started_of_a_protocol_that_continues_in_every_component_of_a_partition() {
    let _limit = amcast_test_policy::time_limit();
    let file = ClusterFile {
        protocol: "toto-partitionable".to_string(),
        shards: 1,
        ..ClusterFile::default()
    };
    let command = NodeCommand { program: example("bank"), args: Vec::new() };
    let refused = Cluster::start(&file, None, command).map(|_| ());
    assert!(matches!(refused, Err(StartError::Capability(_))), "{refused:?}");
}

#[test]
fn a_node_of_a_file_that_no_supervisor_has_is_refused_and_so_is_one_that_lets_strangers_in() {
    let _limit = amcast_test_policy::time_limit();
    let data = empty_dir("by-hand");
    let at = |host: &str| {
        let places: String = (0..3)
            .map(|n| {
                format!("[nodes.n{n}]\naddress = \"{host}:740{n}\"\ncontrol = \"{host}:741{n}\"\n")
            })
            .collect();
        format!("protocol = \"multi-ring\"\nid = 7\n{places}")
    };
    let path = data.join("cluster.toml");
    let refused = || replicate::node::<Bank>(&path, "n0").expect_err("it is not started");
    for host in ["127.0.0.1", "10.1.1.1"] {
        std::fs::write(&path, at(host)).expect("there is room");
        let why = refused();
        assert!(matches!(why, StartError::Unsupervised(_)), "{why}");
        assert!(why.to_string().contains("Cluster::start"), "{why}");
    }
    std::fs::remove_file(&path).expect("it is there");
    let own =
        SupervisedDir::create(Some(&data), &mut ClusterFile::default(), ClusterRegistry::usual());
    let own = own.expect("the directory is empty");
    std::fs::write(&path, at("10.1.1.1")).expect("there is room");
    let why = refused();
    assert!(matches!(why, StartError::Insecure(_)), "{why}");
    assert!(why.to_string().contains("secret is missing"), "{why}");
    // Neither does the supervisor start such nodes.
    let file = ClusterFile::read(&path).expect("it is whole");
    let command = NodeCommand { program: "false".into(), args: Vec::new() };
    let why = Cluster::start(&file, None, command).err().expect("it is not started");
    assert!(matches!(why, StartError::Insecure(_)), "{why}");
    // Another file beside that of the supervisor is not the one that it has.
    let beside = data.join("mine.toml");
    std::fs::write(&beside, at("127.0.0.1")).expect("there is room");
    let why = replicate::node::<Bank>(&beside, "n0").expect_err("it is not started");
    assert!(matches!(why, StartError::Unsupervised(_)), "{why}");
    drop(own);
    std::fs::remove_dir_all(&data).expect("it is there");
}

/// A directory for this test alone.
fn empty_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("amcast-library-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("there is room");
    dir
}

fn bank_of(shards: usize, data: &Path) -> Cluster {
    bank_over("tram", shards, data)
}

fn bank_over(protocol: &str, shards: usize, data: &Path) -> Cluster {
    let file = ClusterFile { protocol: protocol.to_string(), shards, ..ClusterFile::default() };
    let command = NodeCommand { program: example("bank"), args: Vec::new() };
    Cluster::start(&file, Some(data), command).expect("it starts")
}

/// Changes a byte in the middle of what is written in the first file of a log.
fn damage(log: &Path) {
    let path = log.join("00000000000000000000.segment");
    let mut bytes = std::fs::read(&path).expect("there is a log");
    let written: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i] != 0).collect();
    bytes[written[written.len() / 2]] ^= 0xff;
    std::fs::write(&path, bytes).expect("there is room");
}

#[test]
fn a_cluster_goes_on_without_the_node_whose_log_is_damaged_and_names_it() {
    let _limit = amcast_test_policy::time_limit();
    let data = empty_dir("damaged");
    let (from, to) = (account(Gid(0), 1), account(Gid(1), 1));
    let order = BankOrder::Transfer { from, to, amount: 5 }.encode();
    let cluster = bank_over("multi-ring", 2, &data);
    let mut session = cluster.session();
    let before = balances(&mut session, [from, to]);
    for _ in 0..20 {
        session.call(both([from, to]), &order).expect("the cluster serves");
    }
    drop(cluster);
    damage(&data.join("n1.data/g1"));
    let cluster = bank_over("multi-ring", 2, &data);
    let begun = Instant::now();
    loop {
        let missing = cluster.missing();
        assert_eq!(missing.iter().map(|node| &node.name[..]).collect::<Vec<_>>(), ["n1"]);
        // One that was just started again answers for a moment.
        if missing[0].why.contains("ended with exit code 1") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", missing[0]);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(cluster.ready().is_err_and(|why| why.starts_with("n1 ")));
    let mut session = cluster.session();
    session.call(both([from, to]), &order).expect("a majority serves");
    let after = balances(&mut session, [from, to]);
    assert_eq!(after, [before[0] - 105, before[1] + 105], "nothing is lost");
    drop(cluster);
    std::fs::remove_dir_all(&data).expect("it is there");
}

#[test]
fn a_new_cluster_whose_nodes_end_at_once_is_an_error_that_says_how_they_ended() {
    let _limit = amcast_test_policy::time_limit();
    let file = ClusterFile { protocol: "tram".to_string(), ..ClusterFile::default() };
    let command = NodeCommand { program: "false".into(), args: Vec::new() };
    let begun = Instant::now();
    let why = Cluster::start(&file, None, command).err().expect("no node starts");
    assert!(matches!(why, StartError::NotReady(NotServing::CannotStart(_))), "{why}");
    assert!(why.to_string().contains("cannot be started: it ended with exit code 1"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn a_cluster_says_whether_what_it_acknowledges_survives_the_failure_of_a_node() {
    let _limit = amcast_test_policy::time_limit();
    for (protocol, is_uniform) in [("tram", true), ("sb-rcast", false)] {
        let data = empty_dir(protocol);
        assert_eq!(bank_over(protocol, 1, &data).is_uniform(), is_uniform, "{protocol}");
        std::fs::remove_dir(&data).expect("it is empty");
    }
}

/// The balances of two accounts.
fn balances(session: &mut Session, accounts: [u32; 2]) -> Vec<i64> {
    let order = BankOrder::Balances(accounts.to_vec());
    let answer = session.read(both(accounts), &order.encode()).expect("the cluster serves");
    let bytes = answer.chunks_exact(8).map(|b| b.try_into().expect("it has eight bytes"));
    bytes.map(i64::from_le_bytes).collect()
}

fn both(accounts: [u32; 2]) -> GroupSet {
    accounts.into_iter().map(shard_of).collect()
}

#[test]
fn a_command_whose_outcome_is_unknown_is_sent_again_and_executed_once() {
    let _limit = amcast_test_policy::time_limit();
    let data = empty_dir("again");
    let cluster = bank_of(2, &data);
    let mut session = cluster.session();
    let (from, to) = (account(Gid(0), 1), account(Gid(1), 1));
    let before = balances(&mut session, [from, to]);
    assert_eq!(session.again(), Err(CallError::Settled), "its outcome is known");
    let signal = |name: &str| {
        let pids = cluster.lives().into_iter().filter_map(|node| node.os_pid);
        pids.for_each(|pid| {
            let sent = Command::new("kill").args([name, &pid.to_string()]).status();
            assert!(sent.expect("there is kill").success());
        });
    };
    signal("-STOP");
    let order = BankOrder::Transfer { from, to, amount: 5 };
    let mut answer = session.call(both([from, to]), &order.encode());
    signal("-CONT");
    let why = answer.clone().expect_err("no node runs");
    assert_eq!(why.outcome(), Outcome::Unknown, "{why}");
    let begun = Instant::now();
    while let Err(why) = &answer {
        assert_eq!(why.outcome(), Outcome::Unknown, "{why}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{why}");
        answer = session.again();
    }
    assert_eq!(session.again(), Err(CallError::Settled), "its outcome is known now");
    let after = balances(&mut session, [from, to]);
    assert_eq!(after, [before[0] - 5, before[1] + 5], "it was executed once");
    drop(cluster);
    std::fs::remove_dir(&data).expect("it is empty");
}

#[test]
fn a_command_for_no_shard_is_refused_and_a_cluster_that_ends_leaves_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let data = empty_dir("nothing-left");
    let cluster = bank_of(2, &data);
    let mut session = cluster.session();
    let order = BankOrder::Change.encode();
    for shards in [GroupSet::EMPTY, GroupSet::first(3)] {
        let refused = session.call(shards, &order);
        assert_eq!(refused, Err(CallError::NoAnswer(NoAnswer::NoShard(2))));
    }
    session.call(GroupSet::first(2), &order).expect("the client serves others all the same");
    drop(cluster);
    let begun = Instant::now();
    let late = session.call(GroupSet::first(2), &order);
    assert_eq!(late, Err(CallError::NoAnswer(NoAnswer::Closed)));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let left: Vec<_> = std::fs::read_dir(&data).expect("it is there").flatten().collect();
    let names: Vec<_> = left.iter().map(|file| file.file_name()).collect();
    assert!(names.is_empty(), "{names:?}");
    std::fs::remove_dir(&data).expect("it is empty");
}
