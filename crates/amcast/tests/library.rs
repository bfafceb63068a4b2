//! The library as programs of others use it.

use amcast::node::config::ClusterFile;
use amcast::node::supervisor::NodeCommand;
use amcast::replicate::{Cluster, StartError};
use std::path::PathBuf;
use std::process::Command;

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
