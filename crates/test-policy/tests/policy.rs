//! The policy as tests feel it: this binary starts itself with a test that hangs, and with a test that
//! skips, and looks at how they end.

use amcast_test_policy::{LIMIT_S, SKIPS, skip, time_limit, time_limit_of};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Set for the tests that are started by others.
const STARTED: &str = "AMCAST_TEST_POLICY_STARTED";

/// Runs one test of this binary by itself.
fn start(test: &str, more: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("it has a name"));
    command.args(["--exact", test]).args(more).env(STARTED, "1").env_remove(SKIPS);
    command.envs(environment.iter().copied()).output().expect("it starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn all(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(output)
}

/// Not a test of its own: hangs, if another test starts it.
#[test]
fn hangs_if_started() {
    let _limit = time_limit();
    while std::env::var_os(STARTED).is_some() {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// Not a test of its own: skips, if another test starts it.
#[test]
fn skips_if_started() {
    let _limit = time_limit();
    if std::env::var_os(STARTED).is_some() {
        skip("skips_if_started", "there is no such thing here");
    }
}

#[test]
fn a_test_that_hangs_is_failed_by_name() {
    let _limit = time_limit();
    let begun = Instant::now();
    let ended = start("hangs_if_started", &[], &[(LIMIT_S, "1")]);
    assert!(!ended.status.success() && begun.elapsed() < Duration::from_secs(50), "{ended:?}");
    let says = stderr(&ended);
    assert!(says.contains("test hangs_if_started (") && says.contains("after 1 s"), "{says}");
    // On one thread in all, the place is what tells which test it is.
    let ended = start("hangs_if_started", &["--test-threads=1"], &[(LIMIT_S, "1")]);
    let says = stderr(&ended);
    assert!(!ended.status.success() && says.contains("tests/policy.rs:"), "{says}");
}

#[test]
fn a_limit_that_is_lifted_ends_nothing() {
    drop(time_limit_of(Duration::from_millis(50)));
    let _limit = time_limit();
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn a_skip_passes_with_its_reason_unless_the_list_does_not_name_it() {
    let _limit = time_limit();
    let list = |name: &str, text: &str| -> PathBuf {
        let path = std::env::temp_dir().join(format!("amcast-skips-{name}-{}", std::process::id()));
        std::fs::write(&path, text).expect("a file can be written");
        path
    };
    let listed = list("listed", "# Why.\nskips_if_started: it is only asked for\n");
    let other = list("other", "another_test: for another reason\n");
    let wrong = list("wrong", "skips_if_started\n");
    let with = |path: &PathBuf| {
        let path = path.to_str().expect("it is UTF-8");
        start("skips_if_started", &[], &[(SKIPS, path)])
    };
    let says = "skipped: skips_if_started: there is no such thing here";
    for passes in [start("skips_if_started", &[], &[]), with(&listed)] {
        assert!(passes.status.success() && stderr(&passes).contains(says), "{passes:?}");
    }
    let fails = with(&other);
    assert!(!fails.status.success(), "{fails:?}");
    assert!(all(&fails).contains("does not permit it"), "{fails:?}");
    let fails = with(&wrong);
    assert!(!fails.status.success() && all(&fails).contains("line 1"), "{fails:?}");
    for path in [listed, other, wrong] {
        std::fs::remove_file(path).expect("it is there");
    }
}
