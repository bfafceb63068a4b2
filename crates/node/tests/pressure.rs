//! The gateway under pressure: clients that send or ask for too much, do not read, or hang up early,
//! and backends that are slow or busy. Every client gets its answer or its error.

use amcast_core::GroupSet;
use amcast_kv::status::{ServerStatus, ShardStatus};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, LocalBackend, OnBackendAnswer,
};
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};
use support::{
    ask, bounded, bytes_until_cut_off, config, connect, done, is_cut_off, line, local, rest, serve,
    serve_with, set, wait_until_gone,
};

#[path = "pressure/batch_model.rs"]
mod batch_model;
#[path = "pressure/batches.rs"]
mod batches;
#[path = "pressure/looks.rs"]
mod looks;
#[path = "pressure/support.rs"]
mod support;
#[path = "pressure/unsent_batches.rs"]
mod unsent_batches;

#[test]
fn commands_behind_answers_of_many_mebibytes_are_answered_once_those_were_read() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(config());
    let mut stream = connect(&gateway);
    stream.write_all(&set("big", 700_000)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    assert_eq!(line(&mut reader), "+OK");
    stream.write_all("GET big\r\n".repeat(40).as_bytes()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    for _ in 0..40 {
        assert_eq!(line(&mut reader), "$700000");
        reader.read_exact(&mut vec![0; 700_002]).unwrap();
    }
    assert_eq!(line(&mut reader), "+PONG");
}

#[test]
fn a_client_that_ends_its_side_gets_all_answers_before_the_end() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(config());
    let mut stream = connect(&gateway);
    stream.write_all(&set("big", 300_000)).unwrap();
    stream.write_all("INCR n\r\nGET big\r\n".repeat(200).as_bytes()).unwrap();
    stream.write_all(b"INCR n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    assert!(rest(&mut stream, &mut all), "an orderly end");
    assert_eq!(
        all.len(),
        "+OK\r\n".len()
            + 200 * "$300000\r\n\r\n".len()
            + 200 * 300_000
            + (1..=201_u32).map(|n| n.to_string().len() + 3).sum::<usize>()
    );
    assert!(all.ends_with(b"\r\n:201\r\n"));
}

/// Is busy at first, and has room again before the gateway has heard of it.
#[derive(Default)]
struct BusyOnce {
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    was: AtomicBool,
}

impl Backend for BusyOnce {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok());
    }

    fn submit(&self, _: GroupSet, _: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let answers = self.answers.get().unwrap();
        if !self.was.swap(true, Ordering::SeqCst) {
            answers.room();
            return Err(BackendBusy);
        }
        answers.answer(token, done(b"+OK\r\n"));
        Ok(())
    }
}

#[test]
fn room_that_comes_before_the_connection_waits_for_it_is_not_missed() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = serve(config(), Arc::new(BusyOnce::default()), 10);
    assert_eq!(ask(&connect(&gateway), "SET a 1"), "+OK");
}

/// Never answers its first command, and any other with a mebibyte.
#[derive(Default)]
struct Lopsided {
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    first: Mutex<Option<u64>>,
}

impl Backend for Lopsided {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok());
    }

    fn submit(&self, _: GroupSet, _: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let mut first = self.first.lock().unwrap();
        if first.is_none() {
            *first = Some(token);
            return Ok(());
        }
        let mut answer = b"$1048576\r\n".to_vec();
        answer.resize(answer.len() + (1 << 20), b'x');
        answer.extend_from_slice(b"\r\n");
        self.answers.get().unwrap().answer(token, done(&answer));
        Ok(())
    }
}

#[test]
fn answers_held_back_behind_a_late_one_hold_the_client_back() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = bounded::<Lopsided>(|config| config.output_bytes_max = 24 << 20);
    let mut stream = connect(&gateway);
    stream.write_all("DEL a\r\n".repeat(100).as_bytes()).unwrap();
    let first = loop {
        if let Some(token) = *backend.first.lock().unwrap() {
            break token;
        }
        std::thread::yield_now();
    };
    backend.answers.get().unwrap().answer(first, done(b"+first\r\n"));
    let mut reader = BufReader::new(stream);
    assert_eq!(line(&mut reader), "+first");
    for _ in 1..100 {
        assert_eq!(line(&mut reader), "$1048576");
        reader.read_exact(&mut vec![0; (1 << 20) + 2]).unwrap();
    }
}

/// Answers no command until it is released; then each with a mebibyte.
#[derive(Default)]
struct Withheld {
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    open: Mutex<Vec<u64>>,
}

impl Backend for Withheld {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok());
    }

    fn submit(&self, _: GroupSet, _: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        self.open.lock().unwrap().push(token);
        Ok(())
    }
}

impl Withheld {
    /// Waits for `count` commands and answers all but the first.
    fn answer_all_but_the_first(&self, count: usize) {
        while self.open.lock().unwrap().len() < count {
            std::thread::yield_now();
        }
        let mut answer = b"$1048576\r\n".to_vec();
        answer.resize(answer.len() + (1 << 20), b'x');
        answer.extend_from_slice(b"\r\n");
        for token in self.open.lock().unwrap().iter().skip(1) {
            self.answers.get().unwrap().answer(*token, done(&answer));
        }
    }
}

#[test]
fn a_connection_that_holds_more_answers_than_it_may_is_cut_off() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = bounded::<Withheld>(|config| config.output_bytes_max = 8 << 20);
    let mut stream = connect(&gateway);
    stream.write_all("DEL a\r\n".repeat(12).as_bytes()).unwrap();
    backend.answer_all_but_the_first(12);
    assert_eq!(bytes_until_cut_off(&mut stream), 0, "nothing is said out of turn");
    assert!(gateway.is_serving());
}

#[test]
fn the_places_of_answers_are_counted_and_given_back() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = bounded::<Withheld>(|_| {});
    let mut stream = connect(&gateway);
    stream.write_all(("DEL a\r\n".to_string() + &"PING\r\n".repeat(1000)).as_bytes()).unwrap();
    let port = stream.local_addr().unwrap().port();
    let mut other = BufReader::new(connect(&gateway));
    let mut held = || {
        other.get_mut().write_all(b"CLIENT LIST\r\n").unwrap();
        let mut text = vec![0; line(&mut other)[1..].parse::<usize>().unwrap() + 2];
        other.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let own = text.lines().find(|line| line.contains(&format!("addr=127.0.0.1:{port} ")));
        let bytes = own.unwrap().split("tot-mem=").nth(1).unwrap();
        bytes.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    // The answers behind the first one wait for it, each with its place.
    while held() < 50_000 {
        std::thread::yield_now();
    }
    backend.answers.get().unwrap().answer(backend.open.lock().unwrap()[0], done(b":0\r\n"));
    let mut reader = BufReader::new(stream);
    assert_eq!(line(&mut reader), ":0");
    (0..1000).for_each(|_| assert_eq!(line(&mut reader), "+PONG"));
    while held() > 0 {
        std::thread::yield_now();
    }
}

/// A status that nobody can ask.
struct BrokenStatus;

impl ServerStatus for BrokenStatus {
    fn node(&self) -> String {
        "n0".to_string()
    }

    fn protocol(&self) -> String {
        "none".to_string()
    }

    fn shards(&self) -> Vec<ShardStatus> {
        panic!("the status is broken")
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_panic_of_a_task_that_all_clients_need_ends_the_gateway() {
    let _limit = amcast_test_policy::time_limit();
    let backend = Arc::new(LocalBackend::new(1, 1));
    let gateway = serve_with(config(), backend, 10, Arc::new(BrokenStatus));
    let begin = Instant::now();
    while gateway.is_serving() {
        assert!(begin.elapsed() < Duration::from_secs(20), "no key expires, and it serves");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_that_does_not_read_its_answers_is_cut_off() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = bounded::<Withheld>(|config| config.output_bytes_max = 8 << 20);
    let mut stream = connect(&gateway);
    assert_eq!(ask(&stream, "CLIENT SETNAME unread"), "+OK");
    // So many are sent before the size of an answer is known.
    let count = 12;
    stream.write_all("DEL a\r\n".repeat(count).as_bytes()).unwrap();
    while backend.open.lock().unwrap().len() < count {
        std::thread::yield_now();
    }
    // Every one has its turn when it comes: what waits, waits for the client. That is far more than a
    // connection holds by itself.
    let mut answer = b"$8388608\r\n".to_vec();
    answer.resize(answer.len() + (8 << 20), b'x');
    answer.extend_from_slice(b"\r\n");
    let tokens = backend.open.lock().unwrap().clone();
    for token in tokens {
        backend.answers.get().unwrap().answer(token, done(&answer));
    }
    wait_until_gone(&gateway, "unread");
    let mut all = Vec::new();
    rest(&mut stream, &mut all);
    assert!(all.len() < count * answer.len(), "{} bytes came", all.len());
    assert!(gateway.is_serving());
}

#[test]
fn all_connections_together_hold_no_more_than_they_may() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = bounded::<Withheld>(|config| config.held_bytes_max = 8 << 20);
    let mut streams: Vec<_> = (0..4).map(|_| connect(&gateway)).collect();
    for (n, stream) in streams.iter_mut().enumerate() {
        stream.write_all("DEL a\r\n".repeat(5).as_bytes()).unwrap();
        // One after the other, so that the first command of all is the first connection's.
        while backend.open.lock().unwrap().len() < 5 * (n + 1) {
            std::thread::yield_now();
        }
    }
    // The first of each connection stays open: 4 times 4 mebibytes are held behind those.
    let tokens = std::mem::take(&mut *backend.open.lock().unwrap());
    let mut cut = 0;
    for (tokens, stream) in tokens.chunks(5).zip(&mut streams) {
        *backend.open.lock().unwrap() = tokens.to_vec();
        backend.answer_all_but_the_first(5);
        cut += usize::from(is_cut_off(stream));
    }
    assert!((1..4).contains(&cut), "{cut} of 4 cut off");
}

#[test]
fn who_holds_most_is_cut_off_and_not_who_asks_for_a_little_more() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = bounded::<Withheld>(|config| config.held_bytes_max = 8 << 20);
    let (mut large, mut small) = (connect(&gateway), connect(&gateway));
    large.write_all("DEL a\r\n".repeat(8).as_bytes()).unwrap();
    backend.answer_all_but_the_first(8);
    backend.open.lock().unwrap().clear();
    assert_eq!(ask(&small, "PING"), "+PONG");
    small.write_all("DEL a\r\n".repeat(4).as_bytes()).unwrap();
    backend.answer_all_but_the_first(4);
    assert_eq!(bytes_until_cut_off(&mut large), 0);
    let first = backend.open.lock().unwrap()[0];
    backend.answers.get().unwrap().answer(first, done(b":1\r\n"));
    let mut reader = BufReader::new(small);
    assert_eq!((line(&mut reader), line(&mut reader)), (":1".into(), "$1048576".into()));
}

#[test]
fn the_first_read_of_a_connection_tells_how_many_may_be_under_way() {
    let _limit = amcast_test_policy::time_limit();
    for (answer, then) in [(8 << 20, 1), (10, 16)] {
        let (backend, gateway) = bounded::<Withheld>(|_| {});
        let mut stream = connect(&gateway);
        // Each is a message of its own: such reads are not batched.
        stream.write_all("GETRANGE a 0 -1\r\n".repeat(20).as_bytes()).unwrap();
        let under_way = |count: usize| {
            while backend.open.lock().unwrap().len() < count {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            std::mem::take(&mut *backend.open.lock().unwrap())
        };
        let first = under_way(1);
        assert_eq!(first.len(), 1);
        let mut bytes = format!("${answer}\r\n").into_bytes();
        bytes.resize(bytes.len() + answer, b'x');
        bytes.extend_from_slice(b"\r\n");
        backend.answers.get().unwrap().answer(first[0], done(&bytes));
        let mut reader = BufReader::new(stream);
        line(&mut reader);
        reader.read_exact(&mut vec![0; answer + 2]).unwrap();
        let more = under_way(then).len();
        assert!((then..2 * then).contains(&more), "{more} behind an answer of {answer} bytes");
    }
}

#[test]
fn what_looks_like_a_browser_is_closed_and_not_obeyed() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(config());
    let request = |bytes: &str| {
        let mut stream = connect(&gateway);
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut said = Vec::new();
        rest(&mut stream, &mut said);
        String::from_utf8(said).unwrap()
    };
    assert_eq!(request("POST / HTTP/1.1\r\nHost: here\r\n\r\nSET stolen 1\r\n"), "");
    let said = request("GET / HTTP/1.1\r\nHost: here\r\n\r\nSET stolen 1\r\n");
    assert!(said.starts_with("-ERR wrong number of arguments for 'get'"), "{said}");
    assert_eq!(said.lines().count(), 1);
    assert_eq!(ask(&connect(&gateway), "EXISTS stolen"), ":0");
}

#[test]
fn an_argument_beyond_the_protocol_is_refused_in_words_that_the_client_reads() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(config());
    let mut stream = connect(&gateway);
    stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$629145600\r\n").unwrap();
    // Like most clients this one writes all of it before it reads.
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        stream.write_all(&piece).expect("the gateway takes it, and drops it");
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut said = Vec::new();
    assert!(rest(&mut stream, &mut said), "an orderly end");
    assert_eq!(
        String::from_utf8(said).unwrap(),
        "-ERR Protocol error: invalid bulk length (at most 536870912 bytes are taken)\r\n"
    );
}

#[test]
fn one_limit_holds_for_every_command_and_is_named() {
    let _limit = amcast_test_policy::time_limit();
    let mut config = config();
    config.command_bytes_max = 1_000;
    let gateway = local(config);
    let mut stream = connect(&gateway);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let refused = "-ERR the command is larger than the limit of 1000 bytes; the command was not \
                   executed";
    // SET, the key and the value take 3 + 1 + n bytes, and 4 more each.
    for (bytes, expected) in [(984, "+OK"), (985, refused)] {
        stream.write_all(&set("k", bytes)).unwrap();
        assert_eq!(line(&mut reader), expected);
    }
    for (bytes, expected) in [(984, "+OK"), (985, refused)] {
        stream.write_all(format!("SET k {}\r\n", "x".repeat(bytes)).as_bytes()).unwrap();
        assert_eq!(line(&mut reader), expected);
    }
}

#[test]
fn a_transaction_has_few_commands_that_the_gateway_runs_itself() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = local(config());
    let stream = connect(&gateway);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut transaction = |command: &str, count: usize| -> Vec<String> {
        let text = format!("MULTI\r\n{}EXEC\r\n", format!("{command}\r\n").repeat(count));
        reader.get_mut().write_all(text.as_bytes()).unwrap();
        let mut lines: Vec<String> = (0..count + 2).map(|_| line(&mut reader)).collect();
        let answers = lines[count + 1].strip_prefix('*').map_or(0, |n| n.parse().unwrap());
        lines.extend((0..answers).map(|_| line(&mut reader)));
        lines
    };
    let most = transaction("PING", 1000);
    let most: Vec<&str> = most[1000..].iter().map(String::as_str).collect();
    assert_eq!(most[..3], ["+QUEUED", "*1000", "+PONG"]);
    let more = transaction("PING", 1001);
    assert!(more[1001].starts_with("-ERR the transaction has more than 1000 commands"), "{more:?}");
    assert!(more[1002].starts_with("-EXECABORT"), "{}", more[1002]);
    // Those of the shards are bounded by their work; and each transaction begins anew.
    let shards = transaction("INCR n", 3000);
    assert_eq!(shards[3001], "*3000");
}

#[test]
fn commands_that_the_gateway_runs_itself_leave_other_connections_their_turns() {
    let _limit = amcast_test_policy::time_limit();
    // One read takes them all from the socket.
    const COMMANDS: usize = 5_000;
    let gateway = local(config());
    let mut other = BufReader::new(connect(&gateway));
    let mut executed = || {
        other.get_mut().write_all(b"INFO commandstats\r\n").unwrap();
        let mut text = vec![0; line(&mut other)[1..].parse::<usize>().unwrap() + 2];
        other.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let calls = text.split("cmdstat_info:calls=").nth(1).unwrap_or("0,");
        calls.split(',').next().unwrap().parse::<usize>().unwrap()
    };
    for first in ["CLIENT REPLY OFF\n", ""] {
        let before = executed();
        let mut stream = connect(&gateway);
        let mut reads = stream.try_clone().unwrap();
        stream.write_all((first.to_string() + &"INFO\n".repeat(COMMANDS)).as_bytes()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || while matches!(reads.read(&mut [0; 65_536]), Ok(1..)) {});
            let mut between = 0;
            loop {
                let count = executed() - before;
                // Few of those that were counted are of this client itself.
                between += usize::from(count > COMMANDS / 5 && count < COMMANDS);
                if count >= COMMANDS {
                    break;
                }
            }
            _ = stream.shutdown(std::net::Shutdown::Both);
            assert!(between > 5, "{between} answers while they were executed");
        });
    }
}

/// So many calls of the command are counted.
fn calls(stats: &mut BufReader<TcpStream>, command: &str) -> usize {
    stats.get_mut().write_all(b"INFO commandstats\r\n").unwrap();
    let mut text = vec![0; line(stats)[1..].parse::<usize>().unwrap() + 2];
    stats.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let calls = text.split(&format!("cmdstat_{command}:calls=")).nth(1).unwrap_or("0,");
    calls.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn transactions_of_commands_that_the_gateway_runs_leave_other_connections_their_turns() {
    let _limit = amcast_test_policy::time_limit();
    const TRANSACTIONS: usize = 12;
    let gateway = local(config());
    let mut other = BufReader::new(connect(&gateway));
    let mut stream = connect(&gateway);
    // None of them has an answer, and one read takes them all from the socket.
    let transaction = format!("MULTI\n{}EXEC\n", "INFO\n".repeat(1000));
    stream.write_all(b"CLIENT REPLY OFF\n").unwrap();
    stream.write_all(transaction.repeat(TRANSACTIONS).as_bytes()).unwrap();
    let mut between = std::collections::BTreeSet::new();
    loop {
        match calls(&mut other, "exec") {
            TRANSACTIONS => break,
            0 => {}
            executed => _ = between.insert(executed),
        }
    }
    assert!(between.len() > TRANSACTIONS / 2, "others were served between {between:?} of them");
}

#[test]
fn a_connection_gives_back_the_room_for_the_answers_of_a_long_pipeline() {
    let _limit = amcast_test_policy::time_limit();
    const COMMANDS: usize = 20_000;
    let mut many = config();
    many.open_max = 800;
    let gateway = local(many);
    let mut client = BufReader::new(connect(&gateway));
    client.get_mut().write_all(b"CLIENT SETNAME long\r\n").unwrap();
    assert_eq!(line(&mut client), "+OK");
    // Each is a message of its own, and so is its answer: such commands are not batched.
    let all = "MSETNX a 1\r\n".repeat(COMMANDS);
    let mut sends = client.get_ref().try_clone().unwrap();
    let sender = std::thread::spawn(move || sends.write_all(all.as_bytes()).unwrap());
    (0..COMMANDS).for_each(|n| assert_eq!(line(&mut client), format!(":{}", usize::from(n == 0))));
    sender.join().unwrap();
    let mut other = BufReader::new(connect(&gateway));
    let mut list = || {
        other.get_mut().write_all(b"CLIENT LIST\r\n").unwrap();
        let mut text = vec![0; line(&mut other)[1..].parse::<usize>().unwrap() + 2];
        other.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let of = text.lines().find(|line| line.contains("name=long")).unwrap().to_string();
        of.split("tot-mem=").nth(1).unwrap().split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let until = Instant::now() + Duration::from_secs(5);
    let mut held = list();
    // Its other buffers stay, which are smaller than the room for so many answers.
    while held > 60_000 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
        held = list();
    }
    assert!(held <= 60_000, "{held} bytes stay with an idle connection");
}

#[test]
fn thousands_of_idle_connections_do_not_keep_others_from_being_served() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = serve(config(), Arc::new(LocalBackend::new(1, 1)), 6_000);
    // This process has both ends of each connection.
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let files = limit.current.unwrap_or(u64::MAX);
    let idle_count = 5_000.min((files as usize).saturating_sub(400) / 2);
    let idle: Vec<_> = (0..idle_count).map(|_| connect(&gateway)).collect();
    let mut busy: Vec<_> = (0..50).map(|_| connect(&gateway)).collect();
    for round in 1..=20 {
        busy.iter_mut().for_each(|c| c.write_all(b"INCR n\r\n").unwrap());
        let mut last = 0;
        for c in &mut busy {
            let number = line(&mut BufReader::new(c.try_clone().unwrap()));
            last = last.max(number[1..].parse::<i32>().unwrap());
        }
        assert_eq!(last, 50 * round);
    }
    for c in [&idle[0], &idle[idle_count / 2], &idle[idle_count - 1]] {
        assert_eq!(ask(c, "PING"), "+PONG");
    }
}

/// Executes one command only once it may, and keeps its thread until then.
struct Halting {
    local: LocalBackend,
    /// Whether that one has begun, and whether it may end.
    halts: Mutex<[bool; 2]>,
    changed: Condvar,
}

impl Halting {
    /// Sets one of the two.
    fn set(&self, which: usize) {
        self.halts.lock().unwrap()[which] = true;
        self.changed.notify_all();
    }

    /// Waits for one of the two.
    fn wait(&self, which: usize) {
        drop(self.changed.wait_while(self.halts.lock().unwrap(), |halts| !halts[which]).unwrap());
    }
}

impl Backend for Halting {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        self.local.start(answers);
    }

    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        if command.ends_with(b"halt") {
            self.set(0);
            self.wait(1);
        }
        self.local.submit(dst, command, token)
    }
}

#[test]
fn a_flood_of_connections_leaves_those_that_are_served_their_turns() {
    let _limit = amcast_test_policy::time_limit();
    const FLOOD: usize = 400;
    let local = LocalBackend::new(1, 1);
    let backend = Arc::new(Halting { local, halts: Mutex::default(), changed: Condvar::new() });
    let gateway = serve(config(), backend.clone(), 2 * FLOOD);
    let (mut halts, mut other) = (connect(&gateway), connect(&gateway));
    assert_eq!(ask(&other, "PING"), "+PONG");
    halts.write_all(b"SET a halt\r\n").unwrap();
    backend.wait(0);
    // All of them, and then a command, come while the thread does nothing else.
    let _flood: Vec<_> = (0..FLOOD).map(|_| connect(&gateway)).collect();
    other.write_all(b"INFO clients\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    backend.set(1);
    let mut other = BufReader::new(other);
    let mut text = vec![0; line(&mut other)[1..].parse::<usize>().unwrap() + 2];
    other.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let connected = text.split("connected_clients:").nth(1).unwrap();
    let connected: usize = connected.split('\r').next().unwrap().parse().unwrap();
    assert!(connected < 64, "it is served behind {connected} connections");
}

/// Fails on one command.
struct Faulty(LocalBackend);

impl Backend for Faulty {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        self.0.start(answers);
    }

    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        assert!(!command.ends_with(b"fatal"), "a fault on purpose");
        self.0.submit(dst, command, token)
    }
}

#[test]
fn a_fault_in_one_connection_ends_that_one_alone() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = serve(config(), Arc::new(Faulty(LocalBackend::new(1, 1))), 10);
    let (mut one, other) = (connect(&gateway), connect(&gateway));
    one.write_all(b"SET a fatal\r\n").unwrap();
    assert_eq!(bytes_until_cut_off(&mut one), 0);
    assert_eq!(ask(&other, "SET a 1"), "+OK");
    assert!(gateway.is_serving());
}
