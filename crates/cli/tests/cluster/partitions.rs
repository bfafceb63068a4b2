//! Keys in ranges, and how they are split and merged while a cluster runs.

use crate::harness::{UpCluster, call, run};
use amcast::client::Answer;

fn said(args: &[&str]) -> (Option<i32>, String, String) {
    let output = run(args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim_end().to_string();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn ranges_are_read_in_order_and_move_to_a_spare_shard_and_back() {
    let _limit = amcast_test_policy::time_limit();
    let options =
        ["--shards", "3", "--partition", "range", "--partitions", "2", "--boundaries", "m"];
    let up = UpCluster::start(&options);
    let data = up.data.display().to_string();
    let kv = |words: &[&str]| said(&[&["kv", "--data", &data], words].concat());
    for key in ["ant", "bee", "cat", "nut", "owl", "zoo"] {
        assert_eq!(kv(&["insert", key, &key.to_uppercase()]), (Some(0), "OK".into(), "".into()));
    }
    let (code, _, why) = kv(&["insert", "ant", "x"]);
    assert!(code == Some(1) && why.contains("ant: this key exists"), "{why}");
    let (code, _, why) = kv(&["update", "elk", "x"]);
    assert!(code == Some(1) && why.contains("elk: there is no such key"), "{why}");
    assert_eq!(kv(&["update", "bee", "-1"]).0, Some(0));
    let read = said(&["kv", "read", "bee", "--at", &up.redis]);
    assert_eq!(read, (Some(0), "-1".into(), "".into()));
    assert_eq!(kv(&["read", "gnu"]).0, Some(1));
    let all = kv(&["scan"]).1;
    assert_eq!(all, "ant\tANT\nbee\t-1\ncat\tCAT\nnut\tNUT\nowl\tOWL\nzoo\tZOO");
    let (code, out, why) = kv(&["scan", "b", "owl", "--limit", "2"]);
    assert_eq!((code, &*out), (Some(0), "bee\t-1\ncat\tCAT"));
    assert!(why.contains("there are more keys than --limit 2: the next one is nut"), "{why}");
    let (code, out, why) = kv(&["scan", "b", "owl", "--limit", "0"]);
    assert_eq!((code, &*out), (Some(0), ""));
    assert!(why.contains("there are more keys than --limit 0: the next one is bee"), "{why}");
    assert_eq!(kv(&["scan", "c", "c", "--limit", "0"]), (Some(0), "".into(), "".into()));
    let whole = kv(&["scan", "b", "owl", "--limit", "3"]);
    assert_eq!(whole, (Some(0), "bee\t-1\ncat\tCAT\nnut\tNUT".into(), "".into()));
    let found = kv(&["--json", "scan", "o"]).1;
    assert_eq!(found, r#"[{"key":"owl","value":"OWL"},{"key":"zoo","value":"ZOO"}]"#);
    assert!(kv(&["partitions"]).1.contains("from \"m\" on: shard 1"));
    let (code, out, why) = kv(&["split", "--shard", "1", "--at", "owl", "--to", "2"]);
    assert_eq!(code, Some(0), "{why}");
    let rows = "from \"\", before \"m\": shard 0\nfrom \"m\", before \"owl\": shard 1\nfrom \"owl\" on: shard 2";
    assert_eq!(out, format!("keys, epoch 2\n{rows}"));
    assert_eq!(kv(&["scan"]).1, all);
    let (code, out, _) = kv(&["merge", "--shard", "0", "--to", "2", "--json"]);
    assert_eq!(code, Some(0));
    assert!(out.starts_with(r#"{"epoch":4,"order":"keys","partitions":[{"#), "{out}");
    assert_eq!((kv(&["scan"]).1, kv(&["delete", "zoo", "ant"]).1), (all, "2".to_string()));
    assert_eq!(kv(&["delete", "zoo"]).0, Some(1));
    let (code, _, why) = kv(&["merge", "--shard", "0", "--to", "1"]);
    assert!(code == Some(1) && why.contains("shard 0 holds no keys"), "{why}");
    let mut c = up.connect();
    assert_eq!(call(&mut c, &["DBSIZE"]), Answer::Number(4));
}

#[test]
fn partitions_that_cannot_be_are_refused_before_anything_starts() {
    let _limit = amcast_test_policy::time_limit();
    for (flags, says) in [
        (&["--boundaries", "b"][..], "boundaries are for partition = \"range\""),
        (&["--partitions", "4"], "give 1 to 3"),
        (&["--partition", "range", "--boundaries", "b,a"], "not behind the one before it"),
        (&["--partition", "list"], "give hash or range"),
    ] {
        let (code, _, why) = said(&[&["up"], flags].concat());
        assert!(code == Some(2) && why.contains(says), "{why}");
    }
}

#[test]
fn rings_that_order_nothing_over_several_shards_say_so_at_once() {
    let _limit = amcast_test_policy::time_limit();
    let options = ["--protocol", "multi-ring-memory", "--set", "rings=independent"];
    let up = UpCluster::start(&options);
    let mut c = up.connect();
    for key in ["a", "b", "c", "d"] {
        assert_eq!(call(&mut c, &["SET", key, "1"]), Answer::Word("OK".into()));
    }
    let begun = std::time::Instant::now();
    let answer = call(&mut c, &["MSET", "a", "2", "b", "2", "c", "2", "d", "2"]).to_string();
    assert!(answer.contains("(rings = independent); the command was not executed"), "{answer}");
    assert!(begun.elapsed().as_secs() < 5, "at once, not when patience is over");
    assert_eq!(call(&mut c, &["GET", "a"]).to_string(), "1");
}

#[test]
fn a_declared_set_of_shards_has_a_ring_and_no_other_set_has() {
    let _limit = amcast_test_policy::time_limit();
    let range = ["--partition", "range", "--boundaries", "h,p"];
    let rings = ["--set", "rings=independent", "--set", "ring_sets=1+2"];
    let up = UpCluster::start(&[&["--protocol", "multi-ring-memory"][..], &range, &rings].concat());
    let mut c = up.connect();
    assert_eq!(call(&mut c, &["MSET", "h", "2", "p", "3"]), Answer::Word("OK".into()));
    assert_eq!(call(&mut c, &["MGET", "h", "p"]).to_string(), "2\n3");
    let answer = call(&mut c, &["MSET", "a", "1", "h", "1"]).to_string();
    assert!(answer.contains("no ring of this cluster is for all of them"), "{answer}");
    let (code, _, why) = said(&["up", "--protocol", "multi-ring", "--set", "ring_sets=1+3"]);
    assert!(code == Some(2) && why.contains("give sets of two or more"), "{why}");
}

#[test]
fn a_connection_of_a_node_that_chose_so_reads_what_it_wrote_without_an_order() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--shards", "2", "--workers", "0"]);
    let at = &up.node_gateways()[0];
    let mut c = amcast::client::Connection::open(at).expect("a node's gateway listens");
    assert_eq!(call(&mut c, &["AMCAST.CONSISTENCY"]).to_string(), "linearizable");
    assert_eq!(call(&mut c, &["AMCAST.CONSISTENCY", "SEQUENTIAL"]).to_string(), "OK");
    let positions = |up: &UpCluster| -> u64 {
        up.nodes()
            .into_iter()
            .flatten()
            .flat_map(|n| n.replicas)
            .map(|r| r.delivered)
            .max()
            .unwrap()
    };
    for i in 0..200 {
        let (key, value) = (format!("k{}", i % 7), i.to_string());
        assert_eq!(call(&mut c, &["SET", &key, &value]).to_string(), "OK");
        assert_eq!(call(&mut c, &["GET", &key]).to_string(), value);
        let both = call(&mut c, &["MGET", &key, "k0"]).to_string();
        assert!(both.starts_with(&format!("{value}\n")), "{both}");
    }
    let before = positions(&up);
    for _ in 0..100 {
        call(&mut c, &["GET", "k1"]);
    }
    let after = positions(&up);
    assert!(after < before + 50, "reads took places in the order: {before}, {after}");
    assert!(call(&mut c, &["AMCAST.CONSISTENCY", "EVENTUAL"]).is_error());
}
