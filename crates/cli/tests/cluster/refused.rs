//! A node that keeps no data and has lost the file that counts its lives.

use crate::harness::{UpCluster, bytes, call, unique};
use amcast::client::{Answer, Connection};
use std::fs;
use std::time::{Duration, Instant};

/// How long the node may take to be refused, and to be taken in.
const PATIENCE: Duration = Duration::from_secs(60);

/// The status, once `is` holds of it.
fn wait(up: &UpCluster, is: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let begun = Instant::now();
    loop {
        let status = up.status();
        if is(&status) {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "{status:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_refused_node_without_data_says_so_at_once_and_comes_back_as_its_status_says() {
    let _limit = amcast_test_policy::time_limit();
    let mut up =
        UpCluster::start_in_bare(unique("refused"), &["--storage", "memory", "--shards", "1"]);
    up.wait_until_ready();
    assert_eq!(call(&mut up.connect(), &["SET", "k", "v"]), Answer::Word("OK".into()));
    let own = up.node_gateways()[1].clone();
    // Its process holds the file; the next one finds none.
    let file = up.data.join("n1.life");
    fs::remove_file(&file).unwrap();
    let before = up.kill(1);
    let why = |status: &serde_json::Value| {
        status["nodes"][1]["status"]["why"].as_str().unwrap_or_default().to_string()
    };
    let status = wait(&up, |status| why(status).starts_with("n0 and n2 refuse n1: "));
    let remedy = format!("write 1 into {} and end the refused one", file.display());
    assert!(why(&status).contains(&remedy), "{}", why(&status));
    let group = &status["groups"][0];
    assert_eq!((&group["replicas_fit"], &group["replicas"]), (&2.into(), &3.into()), "{group}");
    // Nobody waits for it, and the others serve.
    let mut refused = Connection::open(&own).expect("its gateway listens");
    let asked = Instant::now();
    let answer = call(&mut refused, &["SET", "k", "w"]).to_string();
    assert!(answer.contains("TRYAGAIN the other nodes of the cluster refuse"), "{answer}");
    assert!(answer.ends_with("the command was not executed"), "{answer}");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(call(&mut up.connect(), &["GET", "k"]), bytes("v"));
    // The remedy.
    fs::write(&file, "1\n").unwrap();
    up.kill(1);
    up.wait_for_return(1, before);
    wait(&up, |status| status["groups"][0]["replicas_fit"] == 3);
    let mut back = Connection::open(&own).expect("its gateway listens");
    assert_eq!(call(&mut back, &["GET", "k"]), bytes("v"));
    assert_eq!(up.stop(), Some(0));
}
