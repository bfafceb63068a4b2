//! Connections that send large commands at the same time, and those that begin one and do not
//! continue.

use amcast_core::GroupSet;
use amcast_kv::Partitions;
use amcast_kv::client::StoreServer;
use amcast_kv::status::ServerStatus;
use amcast_node::gateway::redis::{self, RedisGateway, RedisGatewayConfig};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, LocalBackend, OnBackendAnswer,
};
use amcast_smr::Envelope;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

fn config() -> RedisGatewayConfig {
    let mut config = RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1);
    config.command_bytes_max = redis::command_bytes_max(64);
    config
}

fn serve(config: RedisGatewayConfig, backend: Arc<impl Backend>) -> RedisGateway {
    serve_shards(1, config, backend)
}

fn serve_shards(
    shards: usize,
    config: RedisGatewayConfig,
    backend: Arc<impl Backend>,
) -> RedisGateway {
    let status: Arc<dyn ServerStatus> = Arc::new(LocalBackend::new(shards, 1));
    let server =
        Arc::new(StoreServer::new(Partitions::by_slot(shards).into(), 100, 0, None, status));
    redis::start(config, backend, server).expect("a free port")
}

fn connect(gateway: &RedisGateway) -> TcpStream {
    let stream = TcpStream::connect(gateway.address()).expect("the gateway listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// The head of `SET k` with a value of so many bytes.
fn head(len: usize) -> String {
    format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${len}\r\n")
}

fn line(stream: &mut TcpStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).expect("an answer in time");
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_string()
}

fn ask(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    line(stream)
}

/// Orders messages in another thread, in the order of their arrival, once its flag is set; or loses
/// them as long as the other flag is set.
struct OrderedLater {
    inner: Arc<LocalBackend>,
    messages: Mutex<SyncSender<(GroupSet, Vec<u8>, u64)>>,
    orders: Arc<AtomicBool>,
    loses: AtomicBool,
    lost: AtomicUsize,
}

impl OrderedLater {
    fn new(orders: bool, loses: bool) -> Arc<Self> {
        let inner = Arc::new(LocalBackend::new(1, 1));
        let (messages, queue) = mpsc::sync_channel::<(GroupSet, Vec<u8>, u64)>(1_000);
        let orders = Arc::new(AtomicBool::new(orders));
        let (to, may) = (inner.clone(), orders.clone());
        thread::spawn(move || {
            for (dst, mut message, token) in queue {
                while !may.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                to.submit(dst, &mut message, token).expect("it always has room");
            }
        });
        let (messages, loses) = (Mutex::new(messages), AtomicBool::new(loses));
        Arc::new(Self { inner, messages, orders, loses, lost: AtomicUsize::new(0) })
    }
}

impl Backend for OrderedLater {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        self.inner.start(answers);
    }

    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        if self.loses.load(Ordering::SeqCst) {
            self.lost.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        let messages = self.messages.lock().unwrap();
        messages.send((dst, std::mem::take(command), token)).expect("the thread runs");
        Ok(())
    }
}

/// A shard keeps parts of 256 MB: those of all these commands are more.
#[test]
fn more_commands_than_a_shard_keeps_are_all_executed_if_one_gateway_sends_them() {
    const LEN: usize = 16 << 20;
    const CLIENTS: usize = 20;
    let _limit = amcast_test_policy::time_limit();
    let backend = OrderedLater::new(false, false);
    let gateway = serve(config(), backend.clone());
    let (value, sent) = (vec![b'x'; LEN], Barrier::new(CLIENTS + 1));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut stream = connect(&gateway);
                stream.write_all(head(LEN).as_bytes()).unwrap();
                stream.write_all(&value).unwrap();
                stream.write_all(b"\r\n").unwrap();
                sent.wait();
                assert_eq!(line(&mut stream), "+OK");
            });
        }
        // All commands are there, or nearly so, before the first one is executed.
        sent.wait();
        thread::sleep(Duration::from_millis(300));
        backend.orders.store(true, Ordering::SeqCst);
    });
    assert_eq!(ask(&mut connect(&gateway), "STRLEN k"), format!(":{LEN}"));
}

#[test]
fn commands_that_do_not_come_whole_hold_no_more_than_they_may() {
    const SENT: usize = 6 << 20;
    const CLIENTS: usize = 20;
    let _limit = amcast_test_policy::time_limit();
    let mut config = config();
    config.held_bytes_max = 32 << 20;
    let gateway = serve(config, Arc::new(LocalBackend::new(1, 1)));
    let begin = |_| {
        let mut stream = connect(&gateway);
        stream.write_all(head(60 << 20).as_bytes()).unwrap();
        // It may be cut off meanwhile.
        let _ = stream.write_all(&vec![b'x'; SENT]);
        stream
    };
    let streams: Vec<_> = (0..CLIENTS).map(begin).collect();
    assert_eq!(ask(&mut connect(&gateway), "SET other 1"), "+OK", "others are served");
    let is_open = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        stream.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    };
    let open = streams.into_iter().filter(|s| is_open(s.try_clone().unwrap())).count();
    assert!((1..=5).contains(&open), "{open} of {CLIENTS} are left, with {SENT} bytes each");
}

/// Each command has 4 bytes and takes more than 100.
#[test]
fn a_transaction_of_many_short_commands_counts_with_the_memory_that_it_takes() {
    let _limit = amcast_test_policy::time_limit();
    let mut config = config();
    config.held_bytes_max = 8 << 20;
    let gateway = serve(config, Arc::new(LocalBackend::new(1, 1)));
    let mut stream = connect(&gateway);
    assert_eq!(ask(&mut stream, "MULTI"), "+OK");
    let (gets, mut answers) = ("GET a\r\n".repeat(1_000), vec![0; 1_000 * "+QUEUED\r\n".len()]);
    let mut gathers =
        || stream.write_all(gets.as_bytes()).is_ok() && stream.read_exact(&mut answers).is_ok();
    let gathered = (0..200).take_while(|_| gathers()).count();
    assert!((20..100).contains(&gathered), "{gathered} thousand commands were gathered");
}

#[test]
fn a_transaction_in_parts_may_take_no_longer_than_any_other() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = serve(config(), OrderedLater::new(true, false));
    let mut stream = connect(&gateway);
    let set = |len: usize| [head(len), "x".repeat(len), "\r\n".to_string()].concat();
    stream.write_all(set(20 << 20).as_bytes()).unwrap();
    assert_eq!(line(&mut stream), "+OK");
    for (times, expected) in [(3, "*4"), (3_000, "-ERR this may take too long")] {
        assert_eq!(ask(&mut stream, "MULTI"), "+OK");
        for _ in 0..times {
            assert_eq!(ask(&mut stream, "BITCOUNT k"), "+QUEUED");
        }
        // It is sent in parts, and sets another value.
        stream.write_all(set(2 << 20 | times).as_bytes()).unwrap();
        assert_eq!(line(&mut stream), "+QUEUED");
        let answer = ask(&mut stream, "EXEC");
        assert!(answer.starts_with(expected), "{answer}");
        if expected.starts_with('*') {
            (0..times).for_each(|_| assert!(line(&mut stream).starts_with(':')));
            assert_eq!(line(&mut stream), "+OK");
            stream.write_all(set(20 << 20).as_bytes()).unwrap();
            assert_eq!(line(&mut stream), "+OK");
        }
    }
    assert_eq!(ask(&mut stream, "STRLEN k"), format!(":{}", 20 << 20), "nothing was executed");
}

/// A part of 8 bytes: commands have no more of them than there may be.
#[test]
fn where_messages_are_small_the_limit_is_what_as_many_parts_hold_as_there_may_be() {
    let _limit = amcast_test_policy::time_limit();
    let mut config = config();
    config.message_bytes_max = Envelope::BYTES + 8;
    let gateway = serve(config, Arc::new(LocalBackend::new(1, 1)));
    let mut stream = connect(&gateway);
    let set = |len: usize| [head(len), "x".repeat(len), "\r\n".to_string()].concat();
    stream.write_all(set((8 << 16) - 100).as_bytes()).unwrap();
    assert_eq!(line(&mut stream), "+OK");
    stream.write_all(set(8 << 16).as_bytes()).unwrap();
    let refused = line(&mut stream);
    assert!(refused.starts_with("-ERR the command is larger than the limit of 5242"), "{refused}");
    assert_eq!(ask(&mut stream, "STRLEN k"), format!(":{}", (8 << 16) - 100));
}

/// All connections of a gateway have 4 MB of parts under way, and begin commands of 64 MB.
#[test]
fn connections_that_end_in_the_middle_of_a_command_leave_their_room_to_others() {
    let _limit = amcast_test_policy::time_limit();
    let backend = OrderedLater::new(true, true);
    let gateway = serve(config(), backend.clone());
    let begin = |len: usize| {
        let mut stream = connect(&gateway);
        stream.write_all(head(len).as_bytes()).unwrap();
        stream.write_all(&vec![b'x'; len]).unwrap();
        stream.write_all(b"\r\n").unwrap();
        stream
    };
    // The first four have parts of 4 MB under way, and the others wait.
    let _dead = [2, 2, 2, 2, 60, 60, 60].map(|mb| begin(mb << 20));
    let begun = Instant::now();
    while backend.lost.load(Ordering::SeqCst) < 16 && begun.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(backend.lost.load(Ordering::SeqCst), 16);
    let mut control = connect(&gateway);
    backend.loses.store(false, Ordering::SeqCst);
    assert_eq!(ask(&mut control, "CLIENT KILL TYPE normal SKIPME yes"), ":7");
    for len in [2 << 20, 60 << 20] {
        assert_eq!(line(&mut begin(len)), "+OK");
    }
    assert_eq!(ask(&mut control, "STRLEN k"), format!(":{}", 60 << 20));
}

/// Delays messages with this word in them until it is released.
struct HoldingBackend {
    inner: LocalBackend,
    held: Mutex<Vec<(GroupSet, Vec<u8>, u64)>>,
    holds: AtomicBool,
}

impl Backend for HoldingBackend {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        self.inner.start(answers);
    }

    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let is_held = command.windows(4).any(|word| word == b"held");
        if is_held && self.holds.load(Ordering::SeqCst) {
            self.held.lock().unwrap().push((dst, std::mem::take(command), token));
            return Ok(());
        }
        self.inner.submit(dst, command, token)
    }
}

/// The map of partitions has a number, which is in each command from the first change on.
#[test]
fn several_commands_that_no_longer_fit_a_message_after_a_change_of_the_map_are_all_executed() {
    let _limit = amcast_test_policy::time_limit();
    let (inner, held) = (LocalBackend::new(2, 1), Mutex::default());
    let backend = Arc::new(HoldingBackend { inner, held, holds: AtomicBool::new(true) });
    let mut config = config();
    // 27 bytes of the command fit, and no number beside them.
    config.message_bytes_max = Envelope::BYTES + 30;
    let gateway = serve_shards(2, config, backend.clone());
    let (mut stream, mut control) = (connect(&gateway), connect(&gateway));
    stream.write_all("INCRBY held 1\r\n".repeat(3).as_bytes()).unwrap();
    let begun = Instant::now();
    while backend.held.lock().unwrap().len() < 3 && begun.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(ask(&mut control, "AMCAST.MERGE 0 1"), ":1");
    backend.holds.store(false, Ordering::SeqCst);
    let held = std::mem::take(&mut *backend.held.lock().unwrap());
    assert_eq!(held.len(), 3);
    for (dst, mut message, token) in held {
        assert!(backend.inner.submit(dst, &mut message, token).is_ok());
    }
    assert_eq!([(); 3].map(|()| line(&mut stream)), [":1", ":2", ":3"]);
}
