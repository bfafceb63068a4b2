//! Answers about the server and the form of its values, compared with those of Redis.

use super::{DifferentialClient, NO_REDIS, RealRedis, ours, words};
use amcast_test_policy::skip;

const FUNCTIONS: [&str; 14] = [
    "FUNCTION FLUSH",
    "function flush async",
    "FUNCTION FLUSH Sync",
    "FUNCTION FLUSH now",
    "FUNCTION FLUSH SYNC now",
    "FUNCTION LIST",
    "FUNCTION LIST WITHCODE",
    "FUNCTION LIST LIBRARYNAME * withcode",
    "FUNCTION LIST WITHCODE LIBRARYNAME lib",
    "FUNCTION LIST LIBRARYNAME",
    "FUNCTION LIST LIBRARYNAME a LIBRARYNAME b",
    "FUNCTION LIST WITHCODE WITHCODE",
    "FUNCTION LIST other",
    "FUNCTION",
];

/// Commands whose subcommands are unknown, or have the wrong arguments.
const SUBCOMMANDS: [&str; 42] = [
    "CLIENT",
    "CLIENT KILL",
    "CLIENT kill ID",
    "CLIENT KILL ID 0",
    "CLIENT KILL ID a",
    "CLIENT KILL ID 1 ADDR",
    "CLIENT KILL 1.2.3.4:5",
    "CLIENT KILL other x",
    "CLIENT KILL USER x",
    "CLIENT KILL TYPE x",
    "CLIENT KILL SKIPME x",
    "CLIENT LIST ID",
    "CLIENT LIST ID a",
    "CLIENT LIST TYPE",
    "CLIENT LIST TYPE x",
    "CLIENT LIST other",
    "CLIENT ID x",
    "CLIENT Other",
    "CLIENT HELP x",
    "CLIENT NO-EVICT",
    "CLIENT NO-EVICT maybe",
    "CLIENT REPLY",
    "CLIENT REPLY maybe",
    "CLIENT SETNAME",
    "CLIENT SETNAME a b",
    "CLIENT TrackingInfo x",
    "OBJECT HELP k",
    "OBJECT Shape k",
    "OBJECT ENCODING",
    "CONFIG",
    "CONFIG GET",
    "CONFIG SET a",
    "CONFIG other",
    "MEMORY USAGE",
    "SLOWLOG LEN a",
    "SLOWLOG get 1 2",
    "COMMAND GETKEYS",
    "COMMAND COUNT a",
    "LATENCY HISTORY",
    "CLUSTER KEYSLOT",
    "ACL WHOAMI a",
    "ACL other",
];

/// Commands that make the key `k`: of so many members, each of so many bytes.
const MADE: [&str; 5] = ["RPUSH", "SADD", "HSET", "HSET of values", "ZADD"];

/// The command of that name which makes `k`.
fn make(name: &str, members: usize, bytes: usize) -> Vec<String> {
    let text = |n: usize| format!("{n:0>bytes$}");
    let command = ["RPUSH", "SADD", "HSET", "ZADD"].iter().find(|c| name.starts_with(**c)).unwrap();
    let member = |n: usize| match name {
        "HSET" => vec![text(n), "v".to_string()],
        "HSET of values" => vec![n.to_string(), text(n)],
        "ZADD" => vec![n.to_string(), text(n)],
        _ => vec![text(n)],
    };
    [command.to_string(), "k".to_string()]
        .into_iter()
        .chain((1..=members).flat_map(member))
        .collect()
}

#[test]
fn functions_subcommands_encodings_and_their_bounds_are_told_as_by_redis() {
    let _limit = amcast_test_policy::time_limit();
    let Some(real) = RealRedis::start() else {
        return skip(
            "functions_subcommands_encodings_and_their_bounds_are_told_as_by_redis",
            NO_REDIS,
        );
    };
    let gateway = ours(1);
    let [mut theirs, mut mine] = [real.1, gateway.address()].map(DifferentialClient::connect);
    let mut both = |args: &[String], what: &str| {
        let expected = theirs.call(args);
        assert_eq!(mine.call(args), expected, "{what}");
    };
    for text in FUNCTIONS.into_iter().chain(SUBCOMMANDS) {
        both(&words(text), text);
    }
    for name in MADE {
        for members in [1, 2, 3, 127, 128, 129, 511, 512, 513] {
            for bytes in [1, 64, 65] {
                let what = format!("{name} of {members} members of {bytes} bytes");
                both(&words("DEL k"), &what);
                both(&make(name, members, bytes), &what);
                both(&words("OBJECT ENCODING k"), &what);
            }
        }
    }
    for bound in ["hash", "zset", "set", "list"] {
        for of in ["listpack-entries", "listpack-value", "intset-entries", "listpack-size"] {
            let name = format!("CONFIG GET {bound}-max-{of}");
            both(&words(&name), &name);
        }
    }
}
