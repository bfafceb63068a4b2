//! The answers of a gateway about itself and its cluster: `INFO`, `CONFIG`, `WAIT` and `LASTSAVE`.

use super::{SHARDS, connect, line, local, local_of, pipeline};
use amcast_kv::status::{ServerStatus, ShardStatus};
use amcast_node::gateway::LocalBackend;
use amcast_node::gateway::redis::RedisGateway;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// A cluster of five replicas that syncs writes, with one node that is down.
struct SyncingCluster;

impl ServerStatus for SyncingCluster {
    fn node(&self) -> String {
        "gateway".into()
    }

    fn protocol(&self) -> String {
        "multi-ring".into()
    }

    fn shards(&self) -> Vec<ShardStatus> {
        let of = |shard| ShardStatus { replicas: (4, 5), ..shard };
        LocalBackend::new(SHARDS, 1).shards().into_iter().map(of).collect()
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn syncs_writes(&self) -> bool {
        true
    }
}

#[test]
fn nothing_is_said_to_be_set_that_has_no_effect_but_encodings() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(Some("secret"));
    let mut c = connect(&gateway);
    let cases = [
        ("AUTH secret", "+OK"),
        ("CONFIG SET save ''", "+OK"),
        ("CONFIG SET appendonly no maxmemory 0", "+OK"),
        (
            "CONFIG SET appendonly no maxmemory 1gb",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - it holds for all \
             nodes: AMCAST.MAXMEMORY sets it",
        ),
        (
            "CONFIG SET SAVE '60 1'",
            "-ERR CONFIG SET failed (possibly related to argument 'save') - can't set immutable \
             config",
        ),
        (
            "CONFIG SET requirepass other",
            "-ERR CONFIG SET failed (possibly related to argument 'requirepass') - a password \
             holds for all gateways of a cluster: start it with --password-file",
        ),
        ("CONFIG SET list-max-ziplist-size 4 hash-max-listpack-value 9", "+OK"),
        (
            "CONFIG SET list-max-ziplist-size 5 save x",
            "-ERR CONFIG SET failed (possibly related to argument 'save') - can't set immutable \
             config",
        ),
        (
            "CONFIG SET zset-max-ziplist-value many",
            "-ERR CONFIG SET failed (possibly related to argument 'zset-max-ziplist-value') - \
             argument couldn't be parsed into an integer",
        ),
        (
            "CONFIG SET no-such 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'no-such'",
        ),
    ];
    let (commands, expected): (Vec<_>, Vec<_>) =
        cases.into_iter().map(|(c, e)| (c.to_owned(), e.to_owned())).unzip();
    assert_eq!(pipeline(&mut c, &commands), expected);
    // A new client is still admitted with the first password.
    let commands = ["AUTH other", "AUTH secret", "CONFIG GET maxmemory"].map(str::to_owned);
    let answers = pipeline(&mut connect(&gateway), &commands);
    assert!(answers[0].starts_with("-WRONGPASS"), "{answers:?}");
    assert_eq!(answers[1..], ["+OK", "*2"]);
    // By both of its names.
    let commands = ["AUTH secret", "CONFIG GET list-max-*"].map(str::to_owned);
    assert_eq!(pipeline(&mut connect(&gateway), &commands), ["+OK", "*4"]);
}

/// The fields of `INFO`, by name.
fn info(gateway: &RedisGateway) -> std::collections::BTreeMap<String, String> {
    let mut c = connect(gateway);
    c.get_mut().write_all(b"INFO\r\n").unwrap();
    let bytes: usize = line(&mut c)[1..].parse().unwrap();
    let mut text = vec![0; bytes];
    c.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let facts = text.lines().filter_map(|l| l.split_once(':'));
    facts.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn info_claims_nothing_that_is_not_so() {
    let _limit = amcast_test_policy::time_limit();
    let (one, other) = (info(&local(None)), info(&local(None)));
    assert_eq!((&*one["aof_enabled"], &*one["connected_slaves"]), ("0", "0"), "in memory, alone");
    let synced = info(&local_of(None, 2, Arc::new(SyncingCluster)));
    assert_eq!((&*synced["aof_enabled"], &*synced["connected_slaves"]), ("1", "3"));
    for unknown in ["master_replid", "master_repl_offset"] {
        assert!(!one.contains_key(unknown), "{unknown}");
    }
    assert_eq!(one["run_id"].len(), 40);
    assert!(one["run_id"].bytes().all(|b| b.is_ascii_hexdigit()), "{}", one["run_id"]);
    assert_ne!(one["run_id"], other["run_id"], "no two servers are the same");
    let bytes = |name: &str| one[name].parse::<u64>().unwrap();
    assert!(bytes("used_memory") > 100_000 && bytes("used_memory_rss") >= bytes("used_memory"));
}

#[test]
fn durability_and_copies_are_told_as_the_cluster_has_them() {
    let _limit = amcast_test_policy::time_limit();
    let ask = |gateway: &RedisGateway, command: &str| {
        let mut c = connect(gateway);
        c.get_mut().write_all(format!("{command}\r\nPING\r\n").as_bytes()).unwrap();
        let lines = std::iter::repeat_with(|| line(&mut c)).take_while(|line| line != "+PONG");
        lines.collect::<Vec<_>>().join(" ")
    };
    let now_s = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let saved_s = |gateway| ask(gateway, "LASTSAVE")[1..].parse::<u64>().unwrap();
    let (memory, begun_s) = (local(None), now_s());
    let disk = local_of(None, 2, Arc::new(SyncingCluster));
    assert_eq!(ask(&memory, "CONFIG GET append*"), "*2 $10 appendonly $2 no");
    let synced = "*4 $11 appendfsync $6 always $10 appendonly $3 yes";
    assert_eq!(ask(&disk, "CONFIG GET append*"), synced);
    assert_eq!((ask(&memory, "WAIT 1 0"), ask(&disk, "WAIT 4 100")), (":0".into(), ":2".into()));
    let refusals = ["WAIT x 0", "WAIT 1 x", "WAIT 1 -1"].map(|command| ask(&disk, command));
    assert!(refusals[0].starts_with("-ERR value is not an integer"), "{refusals:?}");
    assert!(refusals[1].starts_with("-ERR timeout is not an integer"), "{refusals:?}");
    assert_eq!(refusals[2], "-ERR timeout is negative");
    // In memory alone nothing is saved after the start.
    std::thread::sleep(Duration::from_millis(1100));
    assert!(saved_s(&memory) <= begun_s && saved_s(&disk) > begun_s);
}
