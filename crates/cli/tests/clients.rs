//! Unmodified Redis clients against a real cluster, through the supervisor's gateway and a node's:
//! redis-py and go-redis, where they are installed. Where not, the test says why it is skipped.

#[allow(dead_code, reason = "the other tests of clusters use the rest of it")]
#[path = "cluster/harness.rs"]
mod harness;

use amcast_test_policy::skip;
use harness::UpCluster;
use std::path::PathBuf;
use std::process::Command;

fn clients() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// Whether a command can be run and ends well.
fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs a command to its end, which must be good; what it printed.
fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it was seen to work");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{all}");
    all
}

#[test]
fn redis_py_connects_pipelines_transacts_and_scans() {
    let _limit = amcast_test_policy::time_limit();
    let given = std::env::var("AMCAST_PYTHON").ok();
    let python = given.unwrap_or_else(|| "python3".to_string());
    if !works(Command::new(&python).args(["-c", "import redis"])) {
        return skip(
            "redis_py_connects_pipelines_transacts_and_scans",
            format_args!(
                "{python} has no redis-py (pip install redis; or name one in AMCAST_PYTHON)"
            ),
        );
    }
    let up = UpCluster::start(&[]);
    let smoke = clients().join("python/smoke.py");
    let said = printed(Command::new(&python).arg(smoke).arg(&up.redis));
    println!("{said}");
    assert!(said.contains("0 of 18 parts failed"), "{said}");
    for part in ["strings", "pipelines", "transactions", "scans"] {
        for resp in ["RESP2", "RESP3"] {
            assert!(said.contains(&format!("ok      {resp} {part}")), "{said}");
        }
    }
}

#[test]
fn go_redis_connects_pipelines_transacts_and_scans() {
    let _limit = amcast_test_policy::time_limit();
    // Only what is on this machine already: a test downloads nothing.
    let go = |args: &[&str]| {
        let mut go = Command::new("go");
        go.args(args).current_dir(clients().join("go")).env("GOPROXY", "off");
        go.env("GOFLAGS", "-mod=readonly");
        go
    };
    let test = "go_redis_connects_pipelines_transacts_and_scans";
    if !works(&mut go(&["version"])) {
        return skip(test, "there is no go");
    }
    if !works(&mut go(&["test", "-count=1", "-run", "^$", "./..."])) {
        return skip(
            test,
            "go-redis is not in the module cache (cd clients/go && go mod download)",
        );
    }
    let up = UpCluster::start(&[]);
    let status = up.status();
    let at = status["nodes"][2]["fronts"]["redis"].as_str().expect("every node serves clients");
    let said = printed(go(&["test", "-count=1", "-v", "./..."]).env("AMCAST_REDIS", at));
    println!("{said}");
    assert!(!said.contains("SKIPPED"), "{said}");
    for part in ["Strings", "Pipelines", "Transactions", "Scans"] {
        for resp in ["RESP2", "RESP3"] {
            assert!(said.contains(&format!("--- PASS: Test{part}/{resp}")), "{said}");
        }
    }
}
