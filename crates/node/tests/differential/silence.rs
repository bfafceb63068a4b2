//! `CLIENT REPLY` before, inside and behind transactions: the bytes of the answers are those of Redis, which are no
//! well-formed arrays where a transaction changes whether it is answered.

use super::{NO_REDIS, RealRedis, ours};
use amcast_core::rng::Rng;
use amcast_test_policy::skip;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CASES: [&str; 14] = [
    "CLIENT REPLY OFF; MULTI; SET a 6; CLIENT REPLY ON; GET a; EXEC; PING",
    "MULTI; SET a 6; CLIENT REPLY OFF; GET a; EXEC; PING; CLIENT REPLY ON; PING",
    "MULTI; SET a 6; CLIENT REPLY SKIP; GET a; ECHO x; EXEC; PING; PING",
    "MULTI; CLIENT REPLY SKIP; CLIENT REPLY ON; EXEC; PING; PING",
    "MULTI; CLIENT REPLY OFF; CLIENT REPLY ON; EXEC; PING",
    "MULTI; CLIENT REPLY maybe; CLIENT REPLY OFF; CLIENT REPLY maybe; EXEC; PING; CLIENT REPLY ON; PING",
    "CLIENT REPLY SKIP; MULTI; GET a; CLIENT REPLY ON; EXEC; PING",
    "CLIENT REPLY OFF; MULTI; CLIENT REPLY SKIP; PING; CLIENT REPLY ON; PING; EXEC; PING",
    "CLIENT REPLY OFF; MULTI; LPUSH a x; INCR a; CLIENT REPLY ON; INCR a; EXEC; PING",
    "CLIENT REPLY OFF; MULTI; CLIENT REPLY ON; NOSUCH; EXEC; CLIENT REPLY ON; PING",
    "CLIENT REPLY OFF; WATCH a; SET a 1; MULTI; CLIENT REPLY ON; GET a; EXEC; PING",
    "MULTI; CLIENT REPLY OFF; DISCARD; PING",
    "MULTI; CLIENT REPLY SKIP; EXEC; CLIENT REPLY OFF; PING; CLIENT REPLY ON; PING",
    "MULTI; MSET a 1 b 2 c 3; CLIENT REPLY OFF; MGET a b c; CLIENT REPLY ON; MGET a b c; EXEC; PING; PING",
];

const COMMANDS: [&str; 11] = [
    "GET a",
    "SET a 1",
    "INCR b",
    "CLIENT REPLY ON",
    "CLIENT REPLY OFF",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY x",
    "PING",
    "MGET a b c",
    "LPUSH a 1",
    "MSET b 1 c 2",
];

/// All that comes until the end of the case, which each connection has for itself.
fn answers(address: SocketAddr, case: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let lines = ["FLUSHALL"].into_iter().chain(case.split("; "));
    let lines = lines.chain(["CLIENT REPLY ON", "ECHO end-of-case"]);
    let sent: String = lines.map(|line| format!("{line}\r\n")).collect();
    stream.write_all(sent.as_bytes()).unwrap();
    let (mut came, mut bytes) = (Vec::new(), [0; 4096]);
    while !came.ends_with(b"end-of-case\r\n") {
        let count = stream.read(&mut bytes).expect("an answer");
        assert!(count > 0, "the connection is closed in {case}");
        came.extend_from_slice(&bytes[..count]);
    }
    String::from_utf8_lossy(&came).into_owned()
}

/// A transaction of random commands, with commands before and behind it.
fn random(rng: &mut Rng) -> String {
    let mut some = |from: &[&'static str], most: u64| -> Vec<&'static str> {
        (0..rng.below(most)).map(|_| from[rng.below(from.len() as u64) as usize]).collect()
    };
    let before = some(&COMMANDS[3..8], 2);
    let inside = some(&COMMANDS, 6);
    let behind = some(&["PING", "GET a", "CLIENT REPLY ON"], 3);
    [before, vec!["MULTI"], inside, vec!["EXEC"], behind].concat().join("; ")
}

#[test]
fn a_transaction_that_changes_whether_it_is_answered_is_answered_as_by_redis() {
    let _limit = amcast_test_policy::time_limit();
    let Some(redis) = RealRedis::start() else {
        skip("a_transaction_that_changes_whether_it_is_answered_is_answered_as_by_redis", NO_REDIS);
        return;
    };
    let mut rng = Rng::new(7);
    let random: Vec<String> = (0..200).map(|_| random(&mut rng)).collect();
    for shards in [1, 3] {
        let gateway = ours(shards);
        for case in CASES.into_iter().chain(random.iter().map(String::as_str)) {
            let expected = answers(redis.1, case);
            assert_eq!(answers(gateway.address(), case), expected, "{shards} shards: {case}");
        }
    }
}
