//! The answers of a gateway about its cluster, compared with clusters that keep data and copies differently.

use crate::harness::{UpCluster, bytes, call};
use amcast::client::{Answer, Connection};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The fields of `INFO`, by name.
fn info(c: &mut Connection) -> BTreeMap<String, String> {
    let Answer::Bytes(text) = call(c, &["INFO"]) else { panic!("INFO answers a text") };
    let text = String::from_utf8(text).expect("a text");
    let facts = text.lines().filter_map(|line| line.split_once(':'));
    facts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_gateway_claims_the_disks_and_copies_that_its_cluster_has() {
    let _limit = amcast_test_policy::time_limit();
    // The protocol, whether a write is synced before its answer, and how many others have it then.
    for (protocol, syncs, others) in
        [("multi-ring", true, 1), ("multi-ring-async", false, 1), ("sb-rcast", false, 0)]
    {
        let mut up = UpCluster::start(&["--protocol", protocol]);
        up.wait_until_ready();
        let mut c = up.connect();
        call(&mut c, &["SET", "k", "1"]);
        assert_eq!(call(&mut c, &["WAIT", "2", "0"]), Answer::Number(others), "{protocol}");
        let appendonly = call(&mut c, &["CONFIG", "GET", "appendonly"]);
        let yes = if syncs { "yes" } else { "no" };
        assert_eq!(appendonly, Answer::Array(vec![bytes("appendonly"), bytes(yes)]), "{protocol}");
        assert_eq!(info(&mut c)["aof_enabled"], u8::from(syncs).to_string(), "{protocol}");
        // The gateway learns of the nodes' states a moment later.
        while info(&mut c)["connected_slaves"] != "2" {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(up.stop(), Some(0));
        // One that keeps nothing on disk has removed it itself.
        let _ = fs::remove_dir_all(&up.data);
    }
}
