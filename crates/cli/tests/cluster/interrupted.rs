//! Measurements that are stopped, or killed, halfway.

use crate::harness::{AMCAST, ends_with_us, errors, exists, run, signal};
use amcast::memory::Directory;
use amcast_test_policy::skip;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A measurement that would take a minute for each row.
fn begin(more: &[&str]) -> Child {
    let mut bench = ends_with_us(AMCAST);
    bench.args(["bench", "--duration", "60", "--warm-up", "0", "--rounds", "1"]).args(more);
    let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped());
    bench.spawn().expect("the program can be started")
}

/// The shared memory of the first measurement of a process.
fn memory(os_pid: u32) -> PathBuf {
    Directory::usual_base().join(format!("amcast-be9c0000{os_pid:08x}"))
}

/// How many processes of the protocol have their memory.
fn started(os_pid: u32) -> usize {
    let entries = fs::read_dir(memory(os_pid)).into_iter().flatten().flatten();
    entries.filter(|e| e.file_name().to_string_lossy().starts_with('p')).count()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "not yet: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_measurement_that_is_stopped_ends_soon_and_leaves_no_shared_memory() {
    let _limit = amcast_test_policy::time_limit();
    for (more, by) in [(&[][..], Signal::INT), (&["--processes"], Signal::TERM)] {
        let mut bench = begin(more);
        let os_pid = bench.id();
        wait_until("it has its memory", || started(os_pid) >= 4);
        signal(os_pid, by);
        wait_until("it ends", || bench.try_wait().unwrap().is_some());
        let output = bench.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{more:?}: {}", errors(&output));
        assert!(errors(&output).contains("stopped after 0 of 1"), "{}", errors(&output));
        assert!(!exists(&memory(os_pid)), "{more:?}");
    }
}

#[test]
fn what_a_killed_measurement_left_is_removed_by_the_next() {
    let _limit = amcast_test_policy::time_limit();
    let mut killed = begin(&[]);
    let os_pid = killed.id();
    wait_until("it has its memory", || started(os_pid) >= 4);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(exists(&memory(os_pid)));
    // So short a run may end with any result.
    let next = run(&["bench", "--quick"]);
    assert!(!exists(&memory(os_pid)), "{}", errors(&next));
}

#[test]
fn rows_are_told_as_they_come_where_there_is_no_terminal() {
    let _limit = amcast_test_policy::time_limit();
    let output = run(&["bench", "--quick", "--payload", "8,16", "--medium", "sim"]);
    assert!(output.status.success(), "{}", errors(&output));
    let told = errors(&output);
    assert!(told.contains("[1/2] tram") && told.contains("[2/2] tram"), "{told}");
}

#[test]
fn a_measured_service_that_is_stopped_with_all_its_processes_leaves_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let mut bench = Command::new("timeout");
    bench.args(["--signal", "INT", "4", AMCAST, "bench", "--service", "kv", "--rival", "none"]);
    let bench = bench.args(["--groups", "1", "--set", "hm_lines=4096"]).stderr(Stdio::piped());
    let before = benches();
    let child = match bench.spawn() {
        Ok(child) => child,
        Err(e) => {
            return skip(
                "a_measured_service_that_is_stopped_with_all_its_processes_leaves_nothing",
                format_args!("timeout does not start: {e}"),
            );
        }
    };
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let left: Vec<_> = benches().into_iter().filter(|path| !before.contains(path)).collect();
    assert!(left.is_empty(), "{left:?}: {}", errors(&output));
}

/// The directories of services that are measured.
fn benches() -> Vec<PathBuf> {
    let entries = fs::read_dir(Directory::usual_base()).unwrap().flatten().map(|e| e.path());
    entries.filter(|path| path.to_string_lossy().contains("amcast-up-bench-")).collect()
}
