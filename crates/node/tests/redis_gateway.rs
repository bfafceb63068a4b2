//! The gateway against a backend that answers late, from another thread, in another order, has
//! commands delivered twice, and is often busy: all that its contract allows.

#[path = "redis_gateway/server.rs"]
mod server;

use amcast_core::rng::Rng;
use amcast_core::{Gid, GroupSet, MsgId, Outcome, Pid, ServiceAnswer};
use amcast_kv::client::StoreServer;
use amcast_kv::status::ServerStatus;
use amcast_kv::{Kv, Partitions, batch, encode_args};
use amcast_node::gateway::redis::{self, RedisGateway};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, LocalBackend, OnBackendAnswer,
};
use amcast_smr::{Executor, Limits, LocalRead};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

const SHARDS: usize = 3;
const ROOM: usize = 24;

struct Submitted {
    dst: GroupSet,
    command: Vec<u8>,
    token: u64,
    /// It is a read that is not ordered.
    apart: bool,
}

/// Holds what was submitted until its thread has it ordered.
#[derive(Default)]
struct Chaos {
    pool: Mutex<Vec<Submitted>>,
    more: Condvar,
}

/// The gateway's end of it.
struct Handle {
    chaos: Arc<Chaos>,
    /// Whether reads need no place in the order.
    reads_apart: bool,
}

impl Backend for Handle {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        let chaos = self.chaos.clone();
        std::thread::spawn(move || chaos.order(&*answers));
    }

    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        self.hand_in(dst, command, token, false)
    }

    fn reads_apart(&self) -> bool {
        self.reads_apart
    }

    fn read(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        assert_eq!(dst.len(), 1);
        self.hand_in(dst, command, token, true)
    }
}

impl Handle {
    fn hand_in(
        &self,
        dst: GroupSet,
        command: &mut Vec<u8>,
        token: u64,
        apart: bool,
    ) -> Result<(), BackendBusy> {
        let mut pool = self.chaos.pool.lock().unwrap();
        if pool.len() >= ROOM {
            return Err(BackendBusy);
        }
        pool.push(Submitted { dst, command: std::mem::take(command), token, apart });
        self.chaos.more.notify_one();
        Ok(())
    }
}

impl Chaos {
    /// Takes any command next, but keeps the order of those that go to the same single shard, and are ordered.
    fn pick(&self, rng: &mut Rng) -> (Submitted, bool) {
        let mut pool = self.pool.lock().unwrap();
        while pool.is_empty() {
            pool = self.more.wait(pool).unwrap();
        }
        let full = pool.len() == ROOM;
        let any = rng.below(pool.len() as u64) as usize;
        let Submitted { dst, apart, .. } = pool[any];
        let ordered = |s: &Submitted| !apart && !s.apart && dst.len() == 1 && s.dst == dst;
        let first = pool.iter().position(ordered).unwrap_or(any);
        (pool.remove(first), full)
    }

    fn order(&self, answers: &dyn BackendAnswers) {
        let mut executor = Executor::new(Kv::new(SHARDS, 3), SHARDS, Limits::default());
        let (mut rng, mut positions, mut seq) = (Rng::new(11), [0; SHARDS], 0);
        loop {
            let (next, was_full) = self.pick(&mut rng);
            if next.apart {
                let mut answer = Vec::new();
                let shard = next.dst.lowest().expect("it goes to one");
                let peeked = executor.peek_one(shard, 0, &next.command, &mut answer);
                if let LocalRead::Answered(outcome) = peeked {
                    answers.answer(next.token, ServiceAnswer::borrowed(outcome, &answer));
                    if was_full {
                        answers.room();
                    }
                    continue;
                }
            }
            let times = if rng.chance(300_000) { 2 } else { 1 };
            for turn in 0..times {
                seq += 1;
                let id = MsgId { sender: Pid(0), seq };
                for shard in next.dst.iter() {
                    positions[shard.index()] += 1;
                    let position = positions[shard.index()];
                    let mut answer = |a: amcast_smr::CommandAnswer<'_>| {
                        if turn == 0 {
                            answers.answer(next.token, ServiceAnswer::borrowed(a.outcome, a.bytes));
                        }
                    };
                    executor
                        .deliver(Gid(shard.0), position, id, next.dst, &next.command, &mut answer)
                        .expect("nothing waits for long");
                }
            }
            if was_full {
                answers.room();
            }
        }
    }
}

fn gateway() -> RedisGateway {
    gateway_of(1 << 20, true)
}

/// A gateway whose reads are ordered as writes are.
fn ordering_gateway() -> RedisGateway {
    gateway_of(1 << 20, false)
}

/// A gateway that sends in parts what does not fit so many bytes.
fn gateway_of(message_bytes_max: usize, reads_apart: bool) -> RedisGateway {
    let status: Arc<dyn ServerStatus> = Arc::new(LocalBackend::new(SHARDS, 1));
    let server =
        Arc::new(StoreServer::new(Partitions::by_slot(SHARDS).into(), 2000, 0, None, status));
    let mut config = redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1);
    config.threads = 2;
    config.message_bytes_max = message_bytes_max;
    let backend = Handle { chaos: Arc::default(), reads_apart };
    redis::start(config, Arc::new(backend), server).expect("a free port")
}

fn connect(gateway: &RedisGateway) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(gateway.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    BufReader::new(stream)
}

fn line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer in time");
    line.trim_end().to_owned()
}

/// Sends inline commands at once and reads a line for each.
fn pipeline(reader: &mut BufReader<TcpStream>, commands: &[String]) -> Vec<String> {
    reader.get_mut().write_all((commands.join("\r\n") + "\r\n").as_bytes()).unwrap();
    commands.iter().map(|_| line(reader)).collect()
}

#[test]
fn each_connection_sees_its_own_commands_in_order_and_once() {
    let _limit = amcast_test_policy::time_limit();
    work(&gateway());
}

#[test]
fn each_connection_sees_its_own_commands_in_order_and_once_where_reads_are_ordered() {
    let _limit = amcast_test_policy::time_limit();
    work(&ordering_gateway());
}

/// A message that takes 20 bytes of a command beside the envelope: most commands here have more.
const SMALL_MESSAGE: usize = amcast_smr::Envelope::BYTES + 20;

#[test]
fn each_connection_sees_its_own_commands_in_order_and_once_where_they_are_sent_in_parts() {
    let _limit = amcast_test_policy::time_limit();
    work(&gateway_of(SMALL_MESSAGE, true));
}

#[test]
fn each_connection_sees_its_own_commands_in_order_while_keys_move() {
    let _limit = amcast_test_policy::time_limit();
    work_while_keys_move(&gateway());
}

#[test]
fn each_connection_sees_its_own_commands_in_order_while_keys_move_where_reads_are_ordered() {
    let _limit = amcast_test_policy::time_limit();
    work_while_keys_move(&ordering_gateway());
}

#[test]
fn commands_in_parts_follow_keys_that_move() {
    let _limit = amcast_test_policy::time_limit();
    work_while_keys_move(&gateway_of(SMALL_MESSAGE, true));
}

fn work_while_keys_move(gateway: &RedisGateway) {
    let stop = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let (mut c, mut rounds) = (connect(gateway), 0);
            while !stop.load(Ordering::Relaxed) {
                for (from, to, at) in [(0, 1, 3000), (1, 2, 9000), (2, 0, 0), (1, 0, 0)] {
                    let begin = match at {
                        0 => format!("AMCAST.MERGE {from} {to}"),
                        at => format!("AMCAST.SPLIT {from} {at} {to}"),
                    };
                    if !pipeline(&mut c, &[begin])[0].starts_with(':') {
                        continue;
                    }
                    let step = [format!("AMCAST.MOVE {from} {to}")];
                    while pipeline(&mut c, &step) != [":1"] {}
                    assert!(pipeline(&mut c, &["AMCAST.MOVED".into()])[0].starts_with(':'));
                }
                // The keys of shard 0 are distributed again.
                for (at, to) in [(5461, 1), (10923, 2)] {
                    pipeline(&mut c, &[format!("AMCAST.SPLIT 0 {at} {to}")]);
                    let step = [format!("AMCAST.MOVE 0 {to}")];
                    while pipeline(&mut c, &step) == [":0"] {}
                    pipeline(&mut c, &["AMCAST.MOVED".into()]);
                }
                rounds += 1;
            }
            rounds
        });
        // Also if it panics: the mover must end.
        let _stops = StopOnEnd(&stop);
        work(gateway);
        stop.store(true, Ordering::Relaxed);
        mover.join().unwrap()
    });
    assert!(rounds >= 3, "keys moved {rounds} times round");
}

/// Says stop when it goes out of scope.
struct StopOnEnd<'a>(&'a AtomicBool);

impl Drop for StopOnEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has several connections work, each of which knows what its commands must come to.
fn work(gateway: &RedisGateway) {
    let workers: Vec<_> = (0..8)
        .map(|w| {
            let mut c = connect(gateway);
            std::thread::spawn(move || {
                let mut rng = Rng::new(w);
                let (mut model, mut shared) = ([0_i64; 6], 0);
                for _ in 0..40 {
                    let (mut commands, mut expected) = (Vec::new(), Vec::new());
                    for _ in 0..40 {
                        let (a, b) = (rng.below(6) as usize, rng.below(6) as usize);
                        match rng.below(8) {
                            0 if a != b => {
                                commands.push(format!("MSET w{w}k{a} 5 w{w}k{b} 7"));
                                (model[a], model[b]) = (5, 7);
                                expected.push("+OK".to_owned());
                            }
                            1 => {
                                commands.push("INCR shared".into());
                                shared += 1;
                                expected.push(String::new());
                            }
                            2 => {
                                commands.push(format!("EXISTS w{w}k{a} w{w}k{b}"));
                                let there = [a, b].iter().filter(|k| model[**k] != 0).count();
                                expected.push(format!(":{there}"));
                            }
                            5 | 6 => {
                                commands.push(format!("STRLEN w{w}k{a}"));
                                let digits = model[a].checked_ilog10().map_or(0, |log| log + 1);
                                expected.push(format!(":{digits}"));
                            }
                            3 => {
                                commands.push(format!("DEL w{w}k{a}"));
                                expected.push(format!(":{}", i64::from(model[a] != 0)));
                                model[a] = 0;
                            }
                            _ => {
                                commands.push(format!("INCRBY w{w}k{a} 1"));
                                model[a] += 1;
                                expected.push(format!(":{}", model[a]));
                            }
                        }
                    }
                    let answers = pipeline(&mut c, &commands);
                    for ((command, answer), expected) in commands.iter().zip(answers).zip(expected)
                    {
                        assert!(
                            expected.is_empty() || answer == expected,
                            "{command}: {answer}, not {expected}"
                        );
                    }
                }
                shared
            })
        })
        .collect();
    let total: i64 = workers.into_iter().map(|w| w.join().unwrap()).sum();
    let answers = pipeline(&mut connect(gateway), &["INCRBY shared 0".into()]);
    assert_eq!(answers, [format!(":{total}")]);
}

#[test]
fn a_thousand_connections_are_served_and_their_lanes_used_again() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway();
    for round in 1..=2 {
        let mut all: Vec<_> = (0..1000).map(|_| connect(&gateway)).collect();
        for c in &mut all {
            c.get_mut().write_all(b"INCR n\r\nPING\r\n").unwrap();
        }
        for c in &mut all {
            assert!(line(c).starts_with(':'));
            assert_eq!(line(c), "+PONG");
        }
        let answers = pipeline(&mut all[0], &["INCRBY n 0".into()]);
        assert_eq!(answers, [format!(":{}", 1000 * round)]);
    }
}

#[test]
fn shards_that_nobody_uses_free_what_expired() {
    let _limit = amcast_test_policy::time_limit();
    let backend = Arc::new(LocalBackend::new(SHARDS, 1));
    let status: Arc<dyn ServerStatus> = backend.clone();
    let server =
        Arc::new(StoreServer::new(Partitions::by_slot(SHARDS).into(), 100, 0, None, status));
    let config = redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1);
    let gateway = redis::start(config, backend.clone(), server).unwrap();
    let set = |i| format!("SET k{i} v PX 20");
    let mut commands: Vec<String> = (0..12_000).map(set).collect();
    commands.push("SET stays v".into());
    commands.push("SET later v PX 1000000".into());
    let mut c = connect(&gateway);
    assert!(pipeline(&mut c, &commands).iter().all(|answer| answer == "+OK"));
    // Nothing is asked for from here on.
    let held = || -> usize { backend.shards().iter().map(|s| s.keys).sum() };
    let begun = std::time::Instant::now();
    while held() > 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} keys are held", held());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(backend.shards().iter().all(|s| s.waiting == 0));
    assert_eq!(pipeline(&mut c, &["EXISTS stays later k1".into()]), [":2"]);
    let wrong = ["amcast.tidy 3", "amcast.tidy 64", "amcast.tidy -1", "amcast.tidy x"];
    let refused = pipeline(&mut c, &wrong.map(str::to_owned));
    assert!(refused.iter().all(|answer| answer == "-ERR there is no such shard"), "{refused:?}");
}

#[test]
fn a_password_is_asked_for() {
    let _limit = amcast_test_policy::time_limit();
    let backend = Arc::new(LocalBackend::new(1, 1));
    let status: Arc<dyn ServerStatus> = backend.clone();
    let server = Arc::new(StoreServer::new(
        Partitions::by_slot(1).into(),
        1,
        0,
        Some("secret".into()),
        status,
    ));
    let gateway = redis::start(
        redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1),
        backend,
        server,
    )
    .unwrap();
    let mut c = connect(&gateway);
    let commands = ["GET a", "AUTH wrong", "AUTH default secre", "AUTH secret", "SET a 1", "QUIT"];
    let answers = pipeline(&mut c, &commands.map(str::to_owned));
    assert_eq!(answers[0], "-NOAUTH Authentication required.");
    assert!(answers[1].starts_with("-WRONGPASS") && answers[2].starts_with("-WRONGPASS"));
    assert_eq!(answers[3..], ["+OK", "+OK", "+OK"]);
    assert_eq!(c.read(&mut [0]).unwrap(), 0, "closed after QUIT");
}

/// A gateway that executes by itself, with a password or without.
fn local(password: Option<&str>) -> RedisGateway {
    local_of(password, 0, Arc::new(LocalBackend::new(SHARDS, 1)))
}

/// The same with this status, where an answer proves a write of so many other replicas.
fn local_of(password: Option<&str>, certain: usize, status: Arc<dyn ServerStatus>) -> RedisGateway {
    let backend = Arc::new(LocalBackend::new(SHARDS, 1));
    let (map, password) = (Partitions::by_slot(SHARDS).into(), password.map(str::to_owned));
    let server = Arc::new(StoreServer::new(map, 100, certain, password, status));
    redis::start(redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1), backend, server)
        .unwrap()
}

#[test]
fn so_many_keys_are_watched_as_is_said_however_they_are_named() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(None);
    let mut c = connect(&gateway);
    let names = |from: usize, to: usize| (from..to).map(|i| format!(" k{i}")).collect::<String>();
    let over = "-ERR more than 10000 keys are watched";
    let commands = [
        format!("WATCH{}", names(0, 4_000)),
        // Keys that are watched already, or named twice, count once.
        format!("WATCH{}{}", names(3_000, 9_000), names(3_000, 3_100)),
        format!("WATCH{}", names(9_000, 10_001)),
        format!("WATCH{}", names(9_000, 10_000)),
        "WATCH k1 k9999".to_owned(),
        "WATCH other".to_owned(),
    ];
    assert_eq!(pipeline(&mut c, &commands), ["+OK", "+OK", over, "+OK", "+OK", over]);
    assert_eq!(pipeline(&mut connect(&gateway), &["SET k9999 1".into()]), ["+OK"]);
    let commands = ["MULTI", "SET seen 1", "EXEC", "EXISTS seen"].map(str::to_owned);
    assert_eq!(pipeline(&mut c, &commands), ["+OK", "+QUEUED", "*-1", ":0"]);
}

#[test]
fn a_key_that_is_named_often_is_watched_once() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(None);
    let mut c = connect(&gateway);
    let often = format!("WATCH{}", " a".repeat(20_000));
    assert_eq!(pipeline(&mut c, &[often.clone(), often, "WATCH a".into()]), ["+OK"; 3]);
    assert_eq!(pipeline(&mut connect(&gateway), &["SET a 1".into()]), ["+OK"]);
    let commands = ["MULTI", "SET seen 1", "EXEC", "EXISTS seen"].map(str::to_owned);
    assert_eq!(pipeline(&mut c, &commands), ["+OK", "+QUEUED", "*-1", ":0"]);
}

#[test]
fn an_exec_with_arguments_spoils_its_transaction() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(None);
    let commands = ["MULTI", "SET a 1", "EXEC x", "EXEC", "EXISTS a"].map(str::to_owned);
    let answers = pipeline(&mut connect(&gateway), &commands);
    let wrong = "-ERR wrong number of arguments for 'exec' command";
    let discarded = "-EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(answers, ["+OK", "+QUEUED", wrong, discarded, ":0"]);
}

#[test]
fn a_command_names_few_clients_and_commands() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(None);
    let mut c = connect(&gateway);
    let filters = |count: usize| format!("CLIENT KILL{}", " ID 999999".repeat(count));
    let clients = |count: usize| format!("CLIENT LIST ID{}", " 999999".repeat(count));
    let commands = |which: &str, count: usize| format!("COMMAND {which}{}", " none".repeat(count));
    let all =
        [filters(16), filters(17), clients(1001), commands("DOCS", 1001), commands("INFO", 1001)];
    let expected = [
        ":0",
        "-ERR more than 16 filters are given",
        "-ERR more than 1000 clients are named",
        "-ERR more than 1000 commands are named",
        "-ERR more than 1000 commands are named",
    ];
    assert_eq!(pipeline(&mut c, &all), expected);
    let own = c.get_ref().local_addr().unwrap();
    let kill = format!("CLIENT KILL ADDR {own} SKIPME no");
    assert_eq!(pipeline(&mut connect(&gateway), &[kill]), [":1"]);
    assert_eq!(line(&mut c), "", "it is closed");
}

#[test]
fn the_bytes_of_watched_keys_are_bounded_too() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(None);
    let mut c = connect(&gateway);
    let key = |name: char| name.to_string().repeat(200_000);
    let watch = |name| format!("*2\r\n$5\r\nWATCH\r\n$200000\r\n{}\r\n", key(name));
    for (name, expected) in [
        ('a', "+OK"),
        ('b', "+OK"),
        ('a', "+OK"),
        ('c', "-ERR the keys that are watched have more than 524288 bytes"),
    ] {
        c.get_mut().write_all(watch(name).as_bytes()).unwrap();
        assert_eq!(line(&mut c), expected);
    }
    assert_eq!(pipeline(&mut c, &["UNWATCH".into()]), ["+OK"]);
    c.get_mut().write_all(watch('c').as_bytes()).unwrap();
    assert_eq!(line(&mut c), "+OK");
}

#[test]
fn replies_come_again_once_they_are_wanted_again() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(None);
    let mut reader = connect(&gateway);
    let say = "CLIENT REPLY SKIP\r\nPING lost\r\nPING kept\r\nCLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\n\
               PING on\r\nCLIENT REPLY OFF\r\nPING lost\r\nCLIENT REPLY ON\r\nECHO end\r\n";
    reader.get_mut().write_all(say.as_bytes()).unwrap();
    let lines: Vec<_> = (0..8).map(|_| line(&mut reader)).collect();
    assert_eq!(lines, ["$4", "kept", "+OK", "$2", "on", "+OK", "$3", "end"]);
}

#[test]
fn commands_are_listed_by_what_is_asked_for() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(None);
    let mut reader = connect(&gateway);
    let mut ask = |command: &str| -> Vec<String> {
        reader.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let count = line(&mut reader);
        let Some(count) = count.strip_prefix('*') else { return vec![count] };
        let count: usize = count.parse().unwrap();
        (0..2 * count).map(|_| line(&mut reader)).skip(1).step_by(2).collect()
    };
    assert_eq!(ask("COMMAND LIST FILTERBY PATTERN incrby*"), ["incrby", "incrbyfloat"]);
    let (all, read) = (ask("COMMAND LIST"), ask("COMMAND LIST FILTERBY ACLCAT read"));
    assert!(
        read.len() < all.len() && read.contains(&"get".into()) && !read.contains(&"set".into())
    );
    assert_eq!(ask("COMMAND LIST FILTERBY MODULE json").len(), 0);
    for wrong in ["COMMAND LIST FILTERBY", "COMMAND LIST FILTERBY COLOUR red", "COMMAND LIST all"] {
        assert_eq!(ask(wrong), ["-ERR syntax error"], "{wrong}");
    }
}

/// Gives commands back as refused, in bytes that are none, and answers the last ones; those of some keys in other ways.
#[derive(Default)]
struct Garbler {
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    given: Mutex<VecDeque<Vec<u8>>>,
}

impl Backend for Garbler {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok());
    }

    fn submit(&self, _: GroupSet, message: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let given = self.given.lock().unwrap().pop_front();
        let answers = self.answers.get().expect("it was started");
        let has = |key: &[u8]| message.windows(key.len()).any(|bytes| bytes == key);
        let (outcome, answer) = match given {
            Some(args) => (Outcome::NotExecuted, [b"?5\n", &args[..]].concat()),
            None if has(b"fails") => (Outcome::Unknown, b"-ERR nobody knows\r\n".to_vec()),
            None if has(b"cut") => {
                let mut answer = Vec::new();
                batch::begin_answers(&mut answer);
                batch::put_answer(&mut answer, |to| {
                    to.extend_from_slice(b"+OK\r\n");
                    Outcome::Executed
                });
                (Outcome::Executed, answer)
            }
            None => (Outcome::Executed, b"+OK\r\n".to_vec()),
        };
        answers.answer(token, ServiceAnswer::borrowed(outcome, &answer));
        Ok(())
    }
}

/// A gateway to a [`Garbler`] that gives these back first.
fn garbling(given: &[Vec<u8>]) -> RedisGateway {
    let given = Mutex::new(given.iter().cloned().collect());
    let garbler = Garbler { given, ..Garbler::default() };
    let status: Arc<dyn ServerStatus> = Arc::new(LocalBackend::new(SHARDS, 1));
    let map = Partitions::by_slot(SHARDS).into();
    let server = Arc::new(StoreServer::new(map, 100, 0, None, status));
    let config = redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1);
    redis::start(config, Arc::new(garbler), server).expect("a free port")
}

#[test]
fn a_refusal_that_holds_no_command_is_an_error_and_ends_no_connection() {
    let _limit = amcast_test_policy::time_limit();
    let encoded = |args: &[&[u8]]| {
        let mut bytes = Vec::new();
        encode_args(args, &mut bytes);
        bytes
    };
    let (none, cut) = (encoded(&[]), encoded(&[b"SET", b"a", b"1"])[..9].to_vec());
    let given = [none, cut, encoded(&[b"NOSUCH"]), encoded(&[b"SET"])];
    let gateway = garbling(&given);
    let mut client = connect(&gateway);
    // Each is a message of its own: such commands are not batched.
    let answers =
        pipeline(&mut client, &(0..6).map(|n| format!("MSETNX a {n}")).collect::<Vec<_>>());
    let errors = answers.iter().filter(|answer| answer.starts_with("-ERR")).count();
    assert_eq!((errors, &answers[4..]), (4, &["+OK".to_string(), "+OK".to_string()][..]));
    let is_clear = |answer: &&String| answer.contains("bytes that are no command");
    assert_eq!(answers.iter().filter(is_clear).count(), 4, "{answers:?}");
    assert_eq!(pipeline(&mut client, &["PING".to_string()]), ["+PONG"]);
}

#[test]
fn commands_of_a_batch_that_is_refused_are_sent_again_each_as_one() {
    let _limit = amcast_test_policy::time_limit();
    let mut given = Vec::new();
    encode_args(&[b"SET", b"a", b"1"], &mut given);
    let mut other = Vec::new();
    encode_args(&[b"GET", b"b"], &mut other);
    batch::push(&mut given, 0, &other);
    batch::push(&mut given, 0, b"no command");
    // Six commands are refused, and the refusal holds two of them, which are not batched again.
    let gateway = garbling(&[given]);
    let mut client = connect(&gateway);
    let sets: Vec<String> = (0..6).map(|n| format!("SET a {n}")).collect();
    let answers = pipeline(&mut client, &sets);
    assert_eq!(answers[..2], ["+OK", "+OK"]);
    let is_clear = |answer: &String| answer.contains("bytes that are no command");
    assert!(answers[2..].iter().all(is_clear), "{answers:?}");
    assert_eq!(pipeline(&mut client, &sets), ["+OK"; 6], "nothing is refused any more");
}

#[test]
fn commands_of_a_batch_that_fails_as_a_whole_have_its_error() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = garbling(&[]);
    let mut client = connect(&gateway);
    let sets: Vec<String> = (0..3).map(|n| format!("SET fails {n}")).collect();
    let answers = pipeline(&mut client, &sets);
    assert_eq!(answers, ["-ERR nobody knows"; 3]);
    let cut = pipeline(&mut client, &["SET cut 1", "SET cut 2", "SET cut 3"].map(String::from));
    assert_eq!(cut[0], "+OK");
    assert!(cut[1..].iter().all(|answer| answer.contains("answered fewer commands")), "{cut:?}");
    assert_eq!(pipeline(&mut client, &["PING".to_string()]), ["+PONG"]);
}

#[test]
fn commands_of_a_batch_are_silent_and_answer_in_a_version_each_for_itself() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = ordering_gateway();
    let mut client = connect(&gateway);
    assert_eq!(pipeline(&mut client, &["HSET h f v".to_string()]), [":1"]);
    let sent = "HGET h f\r\nCLIENT REPLY SKIP\r\nHGET h f\r\nHGET h none\r\nHELLO 3\r\nHGET h none\r\n\
                CLIENT REPLY OFF\r\nHGET h f\r\nHGET h none\r\nCLIENT REPLY ON\r\nHGET h none\r\n";
    client.get_mut().write_all(sent.as_bytes()).unwrap();
    assert_eq!([line(&mut client), line(&mut client)], ["$1", "v"]);
    assert_eq!(line(&mut client), "$-1", "the one before was to be silent");
    while line(&mut client) != "modules" {}
    assert_eq!(line(&mut client), "*0");
    // Of the third version, in which nothing is `_`.
    assert_eq!([line(&mut client), line(&mut client), line(&mut client)], ["_", "+OK", "_"]);
}

#[test]
fn a_transaction_of_the_gateways_own_commands_is_silent_too() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(None);
    let mut client = connect(&gateway);
    let sent = "CLIENT REPLY OFF\r\nMULTI\r\nPING\r\nECHO a\r\nEXEC\r\nCLIENT REPLY ON\r\n\
                MULTI\r\nPING\r\nEXEC\r\nPING\r\n";
    client.get_mut().write_all(sent.as_bytes()).unwrap();
    let lines: Vec<String> = (0..6).map(|_| line(&mut client)).collect();
    assert_eq!(lines, ["+OK", "+OK", "+QUEUED", "*1", "+PONG", "+PONG"]);
}
