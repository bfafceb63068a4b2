//! Connections that end, and backends that refuse, while a batch is not sent yet.

use super::support::{ask, config, connect, line, rest, serve_with};
use amcast_core::{GroupSet, Outcome};
use amcast_kv::budget::may_grow;
use amcast_kv::status::{ServerStatus, ShardStatus};
use amcast_kv::{batch, decode_args, split_epoch};
use amcast_node::gateway::redis::RedisGateway;
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, FailureCause, LocalBackend,
    OnBackendAnswer,
};
use amcast_smr::Envelope;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A message as it was submitted.
struct GatedMessage {
    dst: GroupSet,
    bytes: Vec<u8>,
    token: u64,
}

/// Whether a [`GatedBackend`] takes messages.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum GateState {
    #[default]
    Open,
    /// It has no room.
    Busy,
    /// It has room after it refused so many messages.
    BusyFor(usize),
    /// The disks have no room for commands that may grow what the store holds.
    DiskFull,
}

/// Executes messages in this process; it may be busy first, and may wait for a flush.
struct GatedBackend {
    inner: LocalBackend,
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    state: Mutex<GateState>,
    /// Messages that were refused.
    refused: Mutex<usize>,
    /// Whether messages are executed at the next flush, and not before.
    awaits_flush: bool,
    unflushed: Mutex<Vec<GatedMessage>>,
    /// The commands of each message that was taken.
    taken: Mutex<Vec<Vec<String>>>,
    /// The session of the last message.
    session: Mutex<u64>,
    /// Whether a flush would be that of a connection. The gateway flushes in its sweeps, too: after it has asked for the
    /// status, and submitted nothing since.
    is_flushable: AtomicBool,
}

impl GatedBackend {
    fn new(awaits_flush: bool) -> Arc<Self> {
        Arc::new(Self {
            inner: LocalBackend::new(1, 1),
            answers: OnceLock::new(),
            state: Mutex::default(),
            refused: Mutex::default(),
            awaits_flush,
            unflushed: Mutex::default(),
            taken: Mutex::default(),
            session: Mutex::default(),
            is_flushable: AtomicBool::new(false),
        })
    }

    fn is_now(&self, state: GateState) {
        *self.state.lock().unwrap() = state;
    }

    /// It has room from now on, and says so.
    fn open(&self) {
        self.is_now(GateState::Open);
        self.answers.get().unwrap().room();
    }

    /// Waits until it has refused a message.
    fn await_refusal(&self) {
        let begin = Instant::now();
        while *self.refused.lock().unwrap() == 0 {
            assert!(begin.elapsed() < Duration::from_secs(20), "no message comes");
            std::thread::yield_now();
        }
    }

    /// Notes a refusal, after which `next` is so.
    fn refuse(&self, next: GateState) -> Result<(), BackendBusy> {
        self.is_now(next);
        *self.refused.lock().unwrap() += 1;
        Err(BackendBusy)
    }

    /// The commands of each message that was taken since the last time.
    fn taken(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.taken.lock().unwrap())
    }
}

/// The words of each command of a message.
fn commands(message: &[u8]) -> Vec<String> {
    let text = |command: &[u8]| {
        let mut args = Vec::new();
        decode_args(command, &mut args).expect("a whole command");
        args.iter().map(|arg| String::from_utf8_lossy(arg)).collect::<Vec<_>>().join(" ")
    };
    batch::commands(split_epoch(&message[Envelope::BYTES..]).1).map(text).collect()
}

impl Backend for GatedBackend {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers.clone()).is_ok());
        self.inner.start(answers);
    }

    fn submit(&self, dst: GroupSet, message: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let state = *self.state.lock().unwrap();
        match state {
            GateState::Open | GateState::BusyFor(0) => {}
            GateState::Busy => return self.refuse(state),
            GateState::BusyFor(left) => return self.refuse(GateState::BusyFor(left - 1)),
            GateState::DiskFull if may_grow(&message[Envelope::BYTES..]) => {
                let (outcome, cause) = (Outcome::NotExecuted, FailureCause::DiskFull);
                let failure = CommandFailure::new(outcome, cause, "no disk has room");
                self.answers.get().unwrap().fail(token, &failure);
                return Ok(());
            }
            GateState::DiskFull => {}
        }
        self.taken.lock().unwrap().push(commands(message));
        let (envelope, _) = Envelope::decode(message).expect("each message has one");
        *self.session.lock().unwrap() = envelope.session;
        if !self.awaits_flush {
            return self.inner.submit(dst, message, token);
        }
        self.is_flushable.store(true, Ordering::SeqCst);
        let bytes = std::mem::take(message);
        self.unflushed.lock().unwrap().push(GatedMessage { dst, bytes, token });
        Ok(())
    }

    /// The gateway's own commands are none of the clients'.
    fn submit_own(
        &self,
        dst: GroupSet,
        message: &mut Vec<u8>,
        token: u64,
    ) -> Result<(), BackendBusy> {
        self.inner.submit(dst, message, token)
    }

    fn flush(&self) {
        if !self.is_flushable.load(Ordering::SeqCst) {
            return;
        }
        for message in std::mem::take(&mut *self.unflushed.lock().unwrap()) {
            let GatedMessage { dst, mut bytes, token } = message;
            self.inner.submit(dst, &mut bytes, token).expect("it always has room");
        }
    }
}

impl ServerStatus for GatedBackend {
    fn node(&self) -> String {
        self.inner.node()
    }

    fn protocol(&self) -> String {
        self.inner.protocol()
    }

    fn shards(&self) -> Vec<ShardStatus> {
        self.is_flushable.store(false, Ordering::SeqCst);
        self.inner.shards()
    }

    fn ready(&self) -> Result<(), String> {
        self.inner.ready()
    }
}

/// A backend that may wait for a flush, and a gateway over it.
fn gated(awaits_flush: bool) -> (Arc<GatedBackend>, RedisGateway) {
    let backend = GatedBackend::new(awaits_flush);
    let gateway = serve_with(config(), backend.clone(), 10, backend.clone());
    (backend, gateway)
}

/// Sends inline commands in one go.
fn send(mut stream: &TcpStream, commands: &[&str]) {
    stream.write_all((commands.join("\r\n") + "\r\n").as_bytes()).unwrap();
}

/// Sends inline commands in one go, and reads a line for each.
fn pipeline(stream: &TcpStream, commands: &[&str]) -> Vec<String> {
    send(stream, commands);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    commands.iter().map(|_| line(&mut reader)).collect()
}

/// All lines until an orderly end.
fn lines_until_end(stream: &mut TcpStream) -> Vec<String> {
    let mut all = Vec::new();
    assert!(rest(stream, &mut all), "an orderly end");
    String::from_utf8(all).unwrap().lines().map(str::to_owned).collect()
}

fn id_of(stream: &TcpStream) -> String {
    ask(stream, "CLIENT ID")[1..].to_owned()
}

#[test]
fn commands_before_quit_are_executed_and_answered_before_its_answer() {
    let _limit = amcast_test_policy::time_limit();
    for (is_busy, awaits_flush) in [(false, false), (false, true), (true, false), (true, true)] {
        let (backend, gateway) = gated(awaits_flush);
        let mut stream = connect(&gateway);
        if is_busy {
            backend.is_now(GateState::Busy);
        }
        send(&stream, &["INCR n", "APPEND s ab", "INCR n", "QUIT", "INCR n"]);
        if is_busy {
            backend.await_refusal();
            assert!(backend.taken().is_empty());
            backend.open();
        }
        let answers = lines_until_end(&mut stream);
        assert_eq!(answers, [":1", ":2", ":2", "+OK"], "{is_busy} {awaits_flush}");
        assert_eq!(backend.taken(), [["INCR n", "APPEND s ab", "INCR n"]]);
        assert_eq!(ask(&connect(&gateway), "INCR n"), ":3", "nothing behind QUIT was executed");
    }
}

#[test]
fn a_connection_with_an_unsent_batch_ends_another_at_once_and_keeps_its_answers() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = gated(false);
    let (stream, mut victim) = (connect(&gateway), connect(&gateway));
    let kill = format!("CLIENT KILL ID {}", id_of(&victim));
    backend.is_now(GateState::Busy);
    send(&stream, &["INCR n", "INCR n", &kill, "INCR n"]);
    assert_eq!(lines_until_end(&mut victim), [""; 0]);
    assert!(backend.taken().is_empty(), "the batch is not sent");
    backend.open();
    let mut reader = BufReader::new(stream);
    let answers: Vec<String> = (0..4).map(|_| line(&mut reader)).collect();
    assert_eq!(answers, [":1", ":2", ":1", ":3"]);
    assert_eq!(backend.taken(), [["INCR n"; 3]]);
}

#[test]
fn a_connection_that_kills_itself_gets_the_answers_of_its_unsent_batch_first() {
    let _limit = amcast_test_policy::time_limit();
    let kill_by_address = |stream: &TcpStream| {
        format!("CLIENT KILL {}", stream.local_addr().expect("it is connected"))
    };
    let kill_by_id = |stream: &TcpStream| format!("CLIENT KILL ID {} SKIPME no", id_of(stream));
    for is_busy in [false, true] {
        for (by_id, expected) in [(false, "+OK"), (true, ":1")] {
            let (backend, gateway) = gated(true);
            let mut stream = connect(&gateway);
            let kill = if by_id { kill_by_id(&stream) } else { kill_by_address(&stream) };
            if is_busy {
                backend.is_now(GateState::Busy);
            }
            send(&stream, &["INCR n", "INCR n", &kill, "INCR n"]);
            if is_busy {
                backend.await_refusal();
                backend.open();
            }
            assert_eq!(lines_until_end(&mut stream), [":1", ":2", expected], "{kill} {is_busy}");
            assert_eq!(backend.taken(), [["INCR n"; 2]]);
        }
    }
}

#[test]
fn a_connection_that_kills_itself_in_a_transaction_gets_its_answers_first() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = gated(true);
    let mut stream = connect(&gateway);
    let kill = format!("CLIENT KILL ID {} SKIPME no", id_of(&stream));
    backend.is_now(GateState::Busy);
    send(&stream, &["INCR n", "MULTI", "INCR n", &kill, "EXEC", "INCR n"]);
    backend.await_refusal();
    backend.open();
    let queued = ["+OK", "+QUEUED", "+QUEUED"];
    let answers = lines_until_end(&mut stream);
    assert_eq!(answers, [&[":1"][..], &queued, &["*2", ":2", ":1"]].concat());
    assert_eq!(ask(&connect(&gateway), "INCR n"), ":3", "nothing behind EXEC was executed");
}

#[test]
fn the_unsent_batch_of_a_killed_connection_is_never_executed() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = gated(false);
    let (mut stream, killer) = (connect(&gateway), connect(&gateway));
    assert_eq!(ask(&stream, "INCR n"), ":1");
    let session = *backend.session.lock().unwrap();
    let kill = format!("CLIENT KILL ID {}", id_of(&stream));
    backend.taken();
    backend.is_now(GateState::Busy);
    send(&stream, &["INCR n"; 5]);
    backend.await_refusal();
    assert_eq!(ask(&killer, &kill), ":1");
    assert_eq!(lines_until_end(&mut stream), [""; 0], "nothing is answered that was not executed");
    backend.open();
    // Another connection has its session, and numbers for requests that the shards have not seen.
    assert_eq!(pipeline(&connect(&gateway), &["INCR n"; 3]), [":2", ":3", ":4"]);
    assert_eq!(*backend.session.lock().unwrap(), session);
    assert_eq!(ask(&killer, "INCR n"), ":5");
    assert_eq!(backend.taken(), [&["INCR n"; 3][..], &["INCR n"]]);
}

#[test]
fn a_batch_that_is_refused_and_flushed_late_is_executed_once_and_in_order() {
    let _limit = amcast_test_policy::time_limit();
    let one = (["INCR n"; 6], [":1", ":2", ":3", ":4", ":5", ":6"]);
    let several = (
        ["INCR n", "INCR n", "EXPIRE n 9", "INCR n", "STRLEN n", "INCR n"],
        [":1", ":2", ":1", ":3", ":1", ":4"],
    );
    // One refusal is met by a second attempt; after two the connection waits until there is room, and so on.
    for refusals in 1..=5 {
        for (sent, expected) in [one, several] {
            let (backend, gateway) = gated(true);
            let stream = connect(&gateway);
            backend.is_now(GateState::BusyFor(refusals));
            send(&stream, &sent);
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let answers = std::thread::spawn(move || [(); 6].map(|()| line(&mut reader)));
            while !answers.is_finished() {
                backend.answers.get().unwrap().room();
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(answers.join().unwrap(), expected, "{refusals} refusals");
            assert_eq!(*backend.refused.lock().unwrap(), refusals);
            assert_eq!(backend.taken().concat(), sent, "{refusals} refusals");
            // No other answer is left over.
            assert_eq!(pipeline(&stream, &["PING", "PING"]), ["+PONG"; 2]);
        }
    }
}

/// The batches of growing writes, of other writes and of reads, in turns.
const MIXED: [&str; 8] = [
    "SET a 1",
    "INCR c",
    "APPEND k x",
    "EXPIRE k 100",
    "PERSIST k",
    "LPUSH l 1",
    "HDEL h f",
    "STRLEN k",
];

/// These are not mixed.
const MIXED_BATCHES: [&[&str]; 5] = [
    &["SET a 1", "INCR c", "APPEND k x"],
    &["EXPIRE k 100", "PERSIST k"],
    &["LPUSH l 1"],
    &["HDEL h f"],
    &["STRLEN k"],
];

/// A backend whose store holds what [`MIXED`] needs, its gateway, and a connection.
fn filled() -> (Arc<GatedBackend>, RedisGateway, TcpStream) {
    let (backend, gateway) = gated(true);
    let stream = connect(&gateway);
    let begin = ["SET k v", "SET c 5", "HSET h f v"];
    assert_eq!(pipeline(&stream, &begin), ["+OK", "+OK", ":1"]);
    (backend, gateway, stream)
}

#[test]
fn a_full_store_refuses_the_batched_commands_that_may_grow_and_executes_the_others() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, _gateway, stream) = filled();
    assert_eq!(ask(&stream, "AMCAST.MAXMEMORY 1"), "+OK");
    backend.taken();
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    let full = pipeline(&stream, &MIXED);
    assert_eq!(full, [oom, oom, oom, ":1", ":1", oom, ":1", ":1"]);
    assert_eq!(backend.taken(), MIXED_BATCHES);
    // The bound is reached within a batch: each command has its own answer.
    assert_eq!(pipeline(&stream, &["DEL k", "DEL c", "DEL h"]), [":1", ":1", ":0"]);
    assert_eq!(ask(&stream, "AMCAST.MAXMEMORY 1000"), "+OK");
    backend.taken();
    let names: Vec<String> = (0..8).map(|i| format!("SET key{i} value")).collect();
    let sets: Vec<&str> = names.iter().map(String::as_str).collect();
    let answers = pipeline(&stream, &sets);
    assert_eq!(backend.taken(), [sets]);
    let taken = answers.iter().take_while(|answer| *answer == "+OK").count();
    assert!((1..8).contains(&taken), "{answers:?}");
    assert!(answers[taken..].iter().all(|answer| answer == oom), "{answers:?}");
    assert_eq!(ask(&stream, "DBSIZE"), format!(":{taken}"));
    assert_eq!(ask(&stream, "AMCAST.MAXMEMORY 0"), "+OK");
    let room = pipeline(&stream, &MIXED);
    assert_eq!(room, ["+OK", ":1", ":1", ":1", ":1", ":1", ":0", ":1"]);
}

#[test]
fn full_disks_refuse_the_batched_commands_that_may_grow_and_no_others() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, _gateway, stream) = filled();
    backend.taken();
    backend.is_now(GateState::DiskFull);
    let full = "-MISCONF no disk has room; the command was not executed";
    let answers = pipeline(&stream, &MIXED);
    assert_eq!(answers, [full, full, full, ":1", ":1", full, ":1", ":1"]);
    let taken: [&[&str]; 3] = [MIXED_BATCHES[1], MIXED_BATCHES[3], MIXED_BATCHES[4]];
    assert_eq!(backend.taken(), taken);
    backend.is_now(GateState::Open);
    let room = pipeline(&stream, &MIXED);
    assert_eq!(room, ["+OK", ":6", ":2", ":1", ":1", ":1", ":0", ":2"]);
    assert_eq!(backend.taken(), MIXED_BATCHES);
}
