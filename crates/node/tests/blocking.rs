//! Clients that wait for elements of keys.

use amcast_kv::blocked_clients::BlockedClients;
use amcast_kv::client::StoreServer;
use amcast_kv::status::ServerStatus;
use amcast_kv::{Kv, Partitions};
use amcast_node::gateway::LocalBackend;
use amcast_node::gateway::redis::{self, RedisGateway};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

#[path = "blocking/looks.rs"]
mod looks;
#[path = "blocking/observed.rs"]
mod observed;

const SHARDS: usize = 3;

/// A gateway whose replicas are in its process, and tell of changes if they are to.
fn gateway(replicas_tell: bool) -> RedisGateway {
    let blocked: Arc<BlockedClients> = Arc::default();
    let store = Kv::new(SHARDS, 1);
    let store = if replicas_tell { store.with_blocked(blocked.clone()) } else { store };
    let backend = Arc::new(LocalBackend::over(SHARDS, store));
    let status: Arc<dyn ServerStatus> = backend.clone();
    let map = Partitions::by_slot(SHARDS).into();
    let server = StoreServer::new(map, 100, 0, None, status).with_blocked(blocked);
    let config = redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1);
    redis::start(config, backend, Arc::new(server)).expect("a free port")
}

struct QueueClient(BufReader<TcpStream>);

impl QueueClient {
    fn new(gateway: &RedisGateway) -> Self {
        let stream = TcpStream::connect(gateway.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        Self(BufReader::new(stream))
    }

    fn send(&mut self, command: &str) {
        self.send_bytes(format!("{command}\r\n").as_bytes());
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("it reads");
    }

    /// The next answer, in words: elements of arrays in brackets.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer in time");
        let line = line.trim_end();
        let count = || line[1..].parse::<i64>().expect("a number");
        match line.bytes().next() {
            Some(b'$') if count() < 0 => "nil".to_owned(),
            Some(b'$') => {
                let mut bytes = vec![0; count() as usize + 2];
                self.0.read_exact(&mut bytes).expect("a whole answer");
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            Some(b'*') if count() < 0 => "nil array".to_owned(),
            Some(kind @ (b'*' | b'%')) => {
                let count = count() * if kind == b'%' { 2 } else { 1 };
                let parts: Vec<String> = (0..count).map(|_| self.answer()).collect();
                format!("[{}]", parts.join(" "))
            }
            _ => line.to_owned(),
        }
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.answer()
    }

    /// Waits until as many clients wait for keys.
    fn await_blocked(&mut self, count: usize) {
        let begun = Instant::now();
        while !self.ask("INFO clients").contains(&format!("blocked_clients:{count}\r\n")) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{count} clients should wait");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn with_both(test: impl Fn(&RedisGateway)) {
    let _limit = amcast_test_policy::time_limit();
    [true, false].map(gateway).iter().for_each(test);
}

#[test]
fn what_is_there_is_taken_at_once() {
    with_both(|gateway| {
        let mut c = QueueClient::new(gateway);
        c.ask("RPUSH l 1 2 3 4 5 6");
        c.ask("ZADD z 1 a 2 b 3 c 4 d");
        for (command, answer) in [
            ("BLPOP none l 0", "[l 1]"),
            ("BRPOP l none 0", "[l 6]"),
            ("BLMPOP 0 2 none l RIGHT COUNT 2", "[l [5 4]]"),
            ("BLMOVE l other LEFT RIGHT 0", "2"),
            ("BRPOPLPUSH l other 0", "3"),
            ("LRANGE other 0 -1", "[3 2]"),
            ("BZPOPMIN none z 0", "[z a 1]"),
            ("BZPOPMAX z 0", "[z d 4]"),
            ("BZMPOP 0 1 z MIN COUNT 5", "[z [[b 2] [c 3]]]"),
            ("SET s x", "+OK"),
            ("EXISTS l z", ":0"),
        ] {
            assert_eq!(c.ask(command), answer, "{command}");
        }
        for wrong in ["BLPOP s 0", "BZPOPMIN s 0", "BLMOVE other s LEFT LEFT 0"] {
            assert!(c.ask(wrong).starts_with("-WRONGTYPE"), "{wrong}");
        }
        assert_eq!(c.ask("BLPOP l -1"), "-ERR timeout is negative");
        assert_eq!(c.ask("BLPOP l x"), "-ERR timeout is not a float or out of range");
        assert_eq!(c.ask("BLPOP l"), "-ERR wrong number of arguments for 'blpop' command");
        assert_eq!(c.ask("LRANGE other 0 -1"), "[3 2]");
    });
}

#[test]
fn a_client_waits_until_one_of_its_keys_has_an_element_whatever_put_it_there() {
    with_both(|gateway| {
        let (mut waiting, mut c) = (QueueClient::new(gateway), QueueClient::new(gateway));
        for (command, puts, answer) in [
            ("BLPOP a b c 0", "RPUSH b 1 2", "[b 1]"),
            ("BRPOP d a 0", "LPUSH a 1", "[a 1]"),
            ("BLMPOP 0 1 l LEFT COUNT 9", "RPUSH l 1 2 3", "[l [1 2 3]]"),
            ("BLMOVE l to RIGHT LEFT 0", "RPUSH l 7", "7"),
            ("BRPOPLPUSH l to 0", "RPUSH l 8", "8"),
            ("BLPOP renamed 0", "RENAME to renamed", "[renamed 8]"),
            ("BLPOP sorted 0", "SORT renamed STORE sorted", "[sorted 7]"),
            ("BLPOP copied 0", "COPY renamed copied", "[copied 7]"),
            ("BZPOPMIN z 0", "ZADD z 2 m", "[z m 2]"),
            ("BZPOPMAX z 0", "ZINCRBY z 2 m", "[z m 2]"),
            ("BZMPOP 0 2 x y MAX", "ZADD y 1 p 2 q", "[y [[q 2]]]"),
            ("BZPOPMIN w 0", "ZUNIONSTORE w 1 y", "[w p 1]"),
        ] {
            waiting.send(command);
            c.await_blocked(1);
            c.ask(puts);
            assert_eq!(waiting.answer(), answer, "{command}");
        }
        // A transaction is one change.
        waiting.send("BLPOP t 0");
        c.await_blocked(1);
        c.ask("MULTI");
        c.ask("RPUSH t 1");
        c.ask("DEL t");
        assert_eq!(c.ask("EXEC"), "[:1 :1]");
        assert_eq!(c.ask("RPUSH t 2"), ":1");
        assert_eq!(waiting.answer(), "[t 2]");
        c.await_blocked(0);
    });
}

#[test]
fn a_client_that_waits_for_a_list_is_not_answered_by_keys_of_other_types() {
    with_both(|gateway| {
        let (mut waiting, mut c) = (QueueClient::new(gateway), QueueClient::new(gateway));
        waiting.send("BLPOP k 0");
        c.await_blocked(1);
        for other in ["SET k v", "DEL k", "ZADD k 1 m", "DEL k", "SADD k m", "DEL k"] {
            c.ask(other);
        }
        thread::sleep(Duration::from_millis(50));
        c.await_blocked(1);
        c.ask("RPUSH k x");
        assert_eq!(waiting.answer(), "[k x]");
        waiting.send("BRPOPLPUSH k to 0");
        c.await_blocked(1);
        c.ask("SET to v");
        c.ask("RPUSH k x");
        assert!(waiting.answer().starts_with("-WRONGTYPE"));
        assert_eq!(c.ask("LRANGE k 0 -1"), "[x]");
    });
}

#[test]
fn a_wait_ends_in_time_and_by_command_and_leaves_no_trace() {
    with_both(|gateway| {
        let (mut waiting, mut c) = (QueueClient::new(gateway), QueueClient::new(gateway));
        let begun = Instant::now();
        for command in ["BLPOP a b 0.05", "BZPOPMIN a 0.05", "BLMOVE a b LEFT LEFT 0.05"] {
            assert_eq!(waiting.ask(command), "nil array", "{command}");
        }
        assert!(begun.elapsed() >= Duration::from_millis(150));
        let id = waiting.ask("CLIENT ID")[1..].to_owned();
        assert_eq!(c.ask(&format!("CLIENT UNBLOCK {id}")), ":0");
        for (how, answer) in [
            ("", "nil array"),
            (" TIMEOUT", "nil array"),
            (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        ] {
            waiting.send("BLPOP a 0");
            c.await_blocked(1);
            let flags = |c: &mut QueueClient| {
                let list = c.ask(&format!("CLIENT LIST ID {id}"));
                list.split(' ').find_map(|field| field.strip_prefix("flags=")).map(str::to_owned)
            };
            let begun = Instant::now();
            while flags(&mut c).as_deref() != Some("b") {
                assert!(begun.elapsed() < Duration::from_secs(20));
            }
            assert_eq!(c.ask(&format!("CLIENT UNBLOCK {id}{how}")), ":1");
            assert_eq!(waiting.answer(), answer);
            assert_eq!(flags(&mut c).as_deref(), Some("N"));
        }
        let reason = "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
        assert_eq!(c.ask(&format!("CLIENT UNBLOCK {id} NOW")), reason);
        c.ask("RPUSH a 1");
        c.await_blocked(0);
        assert_eq!(c.ask("LRANGE a 0 -1"), "[1]", "nobody waits for it any more");
    });
}

#[test]
fn commands_behind_one_that_waits_wait_too_and_in_a_transaction_none_does() {
    with_both(|gateway| {
        let (mut waiting, mut c) = (QueueClient::new(gateway), QueueClient::new(gateway));
        waiting.send("SET before 1\r\nBLPOP a 0\r\nSET behind 1\r\nGET before");
        assert_eq!(waiting.answer(), "+OK");
        c.await_blocked(1);
        assert_eq!(c.ask("EXISTS before behind"), ":1");
        c.ask("RPUSH a x");
        let answers: Vec<String> = (0..3).map(|_| waiting.answer()).collect();
        assert_eq!(answers, ["[a x]", "+OK", "1"]);
        c.ask("RPUSH a y");
        c.ask("ZADD z 1 m");
        c.ask("MULTI");
        let queued = ["BLPOP a 0", "BLPOP a 0", "BLMOVE a b LEFT LEFT 0", "BZPOPMAX z 0", "PING"];
        for command in queued {
            assert_eq!(c.ask(command), "+QUEUED", "{command}");
        }
        assert_eq!(c.ask("EXEC"), "[[a y] nil array nil [z m 1] +PONG]");
        c.ask("MULTI");
        assert_eq!(c.ask("BLPOP a x"), "-ERR timeout is not a float or out of range");
        assert!(c.ask("EXEC").starts_with("-EXECABORT"));
        c.ask("HELLO 3");
        c.ask("RPUSH a x");
        assert_eq!(c.ask("BLPOP a 0"), "[a x]");
        assert_eq!(c.ask("BLPOP a 0.01"), "_");
    });
}

#[test]
fn those_that_wait_are_served_in_turn_each_element_once() {
    with_both(|gateway| {
        let mut c = QueueClient::new(gateway);
        let mut waiting: Vec<QueueClient> = (0..5)
            .map(|n| {
                let mut client = QueueClient::new(gateway);
                client.send("BLPOP a b 0");
                c.await_blocked(n + 1);
                client
            })
            .collect();
        // One change for all but the last two.
        c.ask("RPUSH a 0 1 2");
        for (n, client) in waiting[..3].iter_mut().enumerate() {
            assert_eq!(client.answer(), format!("[a {n}]"));
        }
        c.await_blocked(2);
        // The one whose turn it is leaves: it is the turn of the next one.
        waiting.remove(3);
        c.await_blocked(1);
        c.ask("RPUSH b 4");
        assert_eq!(waiting[3].answer(), "[b 4]");
        assert_eq!(c.ask("EXISTS a b"), ":0");
    });
}

#[test]
fn a_client_that_waits_for_a_key_with_a_computed_hash_keeps_nobody_waiting_for_another_key() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(true);
    let mut c = QueueClient::new(&gateway);
    let (mut other, mut waiting) = (QueueClient::new(&gateway), QueueClient::new(&gateway));
    // By a hash without a key these bytes are as `jobs`.
    let key = b"\xf7\x9a\x79\xef\x71\x9d\xb6\xe8";
    other.send_bytes(&[b"*3\r\n$5\r\nBLPOP\r\n$8\r\n", &key[..], b"\r\n$1\r\n0\r\n"].concat());
    c.await_blocked(1);
    waiting.send("BLPOP jobs 0");
    c.await_blocked(2);
    let begun = Instant::now();
    c.ask("RPUSH jobs a");
    assert_eq!(waiting.answer(), "[jobs a]");
    // It was woken, and did not look by itself.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_client_that_does_not_read_its_answers_keeps_no_element_from_those_behind_it() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(true);
    let mut c = QueueClient::new(&gateway);
    let element = "x".repeat(1_000_000);
    for n in 0..15 {
        // It is too large to be sent inline.
        let key = format!("large{n}");
        let head = format!("*3\r\n$5\r\nRPUSH\r\n${}\r\n{key}\r\n${}", key.len(), element.len());
        assert_eq!(c.ask(&format!("{head}\r\n{element}")), ":1");
    }
    let (mut full, mut waiting) = (QueueClient::new(&gateway), QueueClient::new(&gateway));
    let pops: String = (0..15).map(|n| format!("LPOP large{n}\r\n")).collect();
    full.send(&format!("{pops}BLPOP k 0"));
    c.await_blocked(1);
    waiting.send("BLPOP k 0");
    c.await_blocked(2);
    let begun = Instant::now();
    c.ask("RPUSH k 1");
    assert_eq!(waiting.answer(), "[k 1]");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // Nobody else waits: it takes the next one once it has read.
    c.ask("RPUSH k 2");
    for _ in 0..15 {
        assert_eq!(full.answer().len(), element.len());
    }
    assert_eq!(full.answer(), "[k 2]");
    // It has its turn as before.
    full.send("BLPOP k 0");
    c.await_blocked(1);
    c.ask("RPUSH k 3");
    assert_eq!(full.answer(), "[k 3]");
}

#[test]
fn a_client_that_left_takes_nothing_also_behind_commands_that_were_not_read() {
    let _limit = amcast_test_policy::time_limit();
    // Where no replica tells of changes, clients are looked at each second.
    let gateway = gateway(false);
    let mut c = QueueClient::new(&gateway);
    let (mut gone, mut behind) = (QueueClient::new(&gateway), QueueClient::new(&gateway));
    gone.send("BLPOP a 0");
    behind.send("BLPOP a 0");
    c.await_blocked(2);
    behind.send("PING");
    drop(gone);
    c.await_blocked(1);
    drop(behind);
    c.await_blocked(0);
    c.ask("RPUSH a 1");
    assert_eq!(c.ask("LRANGE a 0 -1"), "[1]");
}

#[test]
fn a_client_that_has_just_left_takes_nothing() {
    with_both(|gateway| {
        let mut c = QueueClient::new(gateway);
        for (n, behind) in ["", "PING"].into_iter().cycle().take(20).enumerate() {
            let mut gone = QueueClient::new(gateway);
            gone.send("BLPOP a 0");
            c.await_blocked(1);
            if !behind.is_empty() {
                gone.send(behind);
            }
            drop(gone);
            c.ask("RPUSH a 1");
            c.await_blocked(0);
            assert_eq!(c.ask("LPOP a"), "1", "round {n}");
        }
    });
}

#[test]
fn many_that_wait_and_many_that_push_lose_nothing_and_repeat_nothing() {
    with_both(|gateway| {
        const EACH: usize = 200;
        let takers: Vec<_> = (0..8)
            .map(|n| {
                let mut client = QueueClient::new(gateway);
                let command = match n % 3 {
                    0 => "BLPOP a b c 0",
                    1 => "BRPOP c b 0",
                    _ => "BLMPOP 0 3 b a c LEFT",
                };
                thread::spawn(move || {
                    let mut taken = Vec::new();
                    loop {
                        let answer = client.ask(command);
                        let element = answer.trim_matches(['[', ']']).rsplit([' ', '[']).next();
                        match element.expect("an element") {
                            "end" => return taken,
                            element => taken.push(element.to_owned()),
                        }
                    }
                })
            })
            .collect();
        let pushers: Vec<_> = (0..4)
            .map(|n| {
                let mut client = QueueClient::new(gateway);
                thread::spawn(move || {
                    for i in 0..EACH {
                        let key = ["a", "b", "c"][(n + i) % 3];
                        client.ask(&format!("RPUSH {key} {n}-{i}"));
                    }
                })
            })
            .collect();
        pushers.into_iter().for_each(|pusher| pusher.join().expect("it pushes"));
        let mut c = QueueClient::new(gateway);
        while c.ask("EXISTS a b c") != ":0" {
            thread::sleep(Duration::from_millis(2));
        }
        c.ask("RPUSH b end end end end end end end end");
        let taken = takers.into_iter().flat_map(|taker| taker.join().expect("it takes"));
        let mut taken: Vec<String> = taken.collect();
        taken.sort_unstable();
        let mut pushed: Vec<String> =
            (0..4).flat_map(|n| (0..EACH).map(move |i| format!("{n}-{i}"))).collect();
        pushed.sort_unstable();
        assert_eq!(taken, pushed);
    });
}

#[test]
fn a_gateway_that_ends_answers_those_that_wait() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(true);
    let (mut waiting, mut c) = (QueueClient::new(&gateway), QueueClient::new(&gateway));
    waiting.send("BLPOP a 0");
    c.await_blocked(1);
    gateway.leave();
    let answer = waiting.answer();
    assert!(answer.starts_with("-UNBLOCKED the gateway ends"), "{answer}");
    assert_eq!(waiting.0.read(&mut [0]).expect("it is closed in order"), 0);
}
