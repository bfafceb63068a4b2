//! A program that prepares itself for libfabric, in a process of its own: the test program starts itself again.

use amcast_fabric::{FabricEndpoint, FabricSettings, has_buffer_sizes, prepare_process};
use std::process::Command;

/// The variable that has this program be that process.
const ROLE: &str = "AMCAST_FABRIC_TEST_PREPARED";

/// Signals by which a process is asked to end: SIGINT and SIGTERM, as bits of a mask.
const ENDS: u64 = 1 << (2 - 1) | 1 << (15 - 1);

/// A number from this process's status.
fn status(name: &str, radix: u32) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("it is there");
    let value = line.trim_start_matches(':').split_whitespace().next().expect("a number");
    u64::from_str_radix(value, radix).expect("a number")
}

#[test]
fn a_program_can_be_ended_after_it_has_prepared_itself() {
    let _limit = amcast_test_policy::time_limit();
    let me = std::env::current_exe().expect("this program has a file");
    let mut command = Command::new(me);
    command.args(["--exact", "prepares_itself_if_it_was_told_to", "--nocapture"]).env(ROLE, "1");
    let output = command.output().expect("started");
    let says = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && says.contains("prepared"), "{says}");
}

#[test]
fn with_small_buffers_an_endpoint_takes_a_small_part_of_the_memory() {
    let _limit = amcast_test_policy::time_limit();
    let me = std::env::current_exe().expect("this program has a file");
    let takes = |small: bool| {
        let mut command = Command::new(&me);
        command.args(["--exact", "prepares_itself_if_it_was_told_to", "--nocapture"]);
        command.env(ROLE, "1");
        if small {
            command.env("FI_OFI_RXM_BUFFER_SIZE", "512").env("FI_OFI_RXM_MSG_RX_SIZE", "128");
        }
        let output = command.output().expect("started");
        let says = String::from_utf8_lossy(&output.stdout).into_owned();
        let kb = says.lines().find_map(|line| line.split_once("takes:"));
        kb.and_then(|(_, kb)| kb.trim().parse::<u64>().ok()).unwrap_or_else(|| panic!("{says}"))
    };
    let (default, small) = (takes(false), takes(true));
    println!("an endpoint takes {default} KB by default, and {small} KB with small buffers");
    assert!(small * 4 < default, "{small} KB, and {default} KB by default");
}

/// Not a test of its own: what the child runs. It has threads, so that its environment stays as it is.
#[test]
fn prepares_itself_if_it_was_told_to() {
    let _limit = amcast_test_policy::time_limit();
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let had = has_buffer_sizes();
    let (before, released) = (status("SigCgt", 16) & ENDS, prepare_process());
    println!("{released} signals were given back");
    // This program takes none of them itself: what was there is of a library.
    assert!(released >= before.count_ones() as usize, "{before:x}: {released} were given back");
    assert_eq!(status("SigCgt", 16) & ENDS, 0, "a library has the signals that end a program");
    assert_eq!(has_buffer_sizes(), had, "the environment is not changed beside other threads");
    let settings = FabricSettings::default();
    // The first one has the library prepare itself.
    drop(FabricEndpoint::open(&settings, 8, 8).expect("opened"));
    let begin = status("VmRSS", 10);
    let count = 8;
    let all: Vec<_> = (0..count).map(|_| FabricEndpoint::open(&settings, 8, 8)).collect();
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    println!("prepared, and each of {count} takes:{}", (status("VmRSS", 10) - begin) / count);
}
