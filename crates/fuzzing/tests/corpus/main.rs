//! Every target bears its corpus, and a number of changes to it, which are the same on every machine;
//! `AMCAST_SEEDS` in the environment asks for more. [`protocols`] tests each protocol of the catalog
//! likewise, with messages that its processes exchange in a simulated run as its corpus.

mod change;
mod protocols;

use amcast_core::rng::Rng;
use amcast_fuzzing::{FuzzTarget, TARGETS};
use change::change;
use std::path::{Path, PathBuf};

/// Changed inputs of each target.
const CHANGED: u64 = 3_000;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The inputs of a target's corpus, in order of their names.
fn corpus(target: &FuzzTarget) -> Vec<(String, Vec<u8>)> {
    let dir = fuzz().join("corpus").join(target.name);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("it can be listed").path()).collect();
    files.sort();
    let read = |path: &PathBuf| std::fs::read(path).expect("it can be read");
    files.iter().map(|path| (path.display().to_string(), read(path))).collect()
}

/// Runs the target; tells the input if it panics.
fn run(target: &FuzzTarget, name: &str, input: &[u8]) {
    let ran = std::panic::catch_unwind(|| (target.run)(input));
    assert!(ran.is_ok(), "{} fails on {name}: {:?}", target.name, input.escape_ascii().to_string());
}

/// The number of changed inputs: `AMCAST_SEEDS` in the environment, or `usual`.
fn seeds(usual: u64) -> u64 {
    let given = std::env::var("AMCAST_SEEDS").ok();
    given.map_or(usual, |text| text.parse().expect("AMCAST_SEEDS is a number"))
}

fn bears(name: &str) {
    let target = amcast_fuzzing::target(name).expect("a target of that name");
    let all = corpus(target);
    assert!(!all.is_empty(), "{name} has no corpus");
    all.iter().for_each(|(name, input)| run(target, name, input));
    for seed in 0..seeds(CHANGED) {
        let mut rng = Rng::stream(seed, name);
        let mut input = all[rng.below(all.len() as u64) as usize].1.clone();
        change(&mut input, target, &all, &mut rng);
        run(target, &format!("seed {seed}"), &input);
    }
}

macro_rules! each {
    ($($test:ident = $name:literal,)*) => {
        $(#[test]
        fn $test() {
            bears($name);
        })*

        #[test]
        fn every_target_has_a_test_here_and_one_for_the_fuzzer() {
            let tested = [$($name),*];
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(tested.as_slice(), names);
            for name in names {
                let file = fuzz().join("fuzz_targets").join(format!("{name}.rs"));
                let text = std::fs::read_to_string(&file).expect("a file for the fuzzer");
                assert!(text.contains(&format!("\"{name}\"")), "{} runs another", file.display());
            }
        }
    };
}

each! {
    requests_of_redis_clients_are_cut_alike_in_any_pieces = "redis_requests",
    commands_of_redis_clients_are_answered_once = "redis_commands",
    messages_are_taken_and_answered_once = "ordered_messages",
    a_damaged_state_is_refused = "state_stream",
    a_cluster_file_is_refused_or_sound = "cluster_file",
    any_history_is_judged = "history_lines",
    a_scenario_is_refused_or_read = "scenario",
    a_status_page_is_refused_or_sound = "node_status",
    malformed_messages_stop_no_process_of_a_protocol = "protocol_messages",
    packets_of_a_group_read_back_or_are_refused = "group_packets",
    messages_of_a_group_read_back_or_are_refused = "group_messages",
    frames_of_gateways_and_nodes_read_back = "ingress_frames",
    frames_between_memories_change_nothing_that_is_not_the_senders = "memory_frames",
    frames_of_a_connection_are_cut_alike_in_any_pieces = "net_stream",
    datagrams_that_make_no_sense_stop_nobody = "net_datagrams",
    malformed_memory_stops_no_process_of_a_protocol = "protocol_memory",
    commands_of_the_log_are_answered_once_in_words_that_can_be_read = "log_commands",
    answers_of_the_log_are_none_or_read_back = "log_answers",
    a_segment_of_a_log_is_walked_to_its_end_or_its_damage = "log_segment",
    the_state_of_a_log_is_refused_or_sound = "log_state",
    how_far_a_log_was_synced_is_refused_or_sound = "log_synced",
    a_checkpoint_is_read_to_its_end_or_its_damage = "checkpoint",
}
