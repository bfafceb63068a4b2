//! Clients of the Redis gateway that ask for large answers: few are asked for at a time, and commands with small answers wait
//! for none of them.

use amcast_core::{GroupSet, Outcome, ServiceAnswer};
use amcast_kv::client::StoreServer;
use amcast_kv::{
    Partitions, batch, encode_args, encode_epoch, size_refusal, stamp_refusal, wants_small_answer,
};
use amcast_node::gateway::redis::{self, RedisGateway, RedisGatewayConfig};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, LocalBackend, OnBackendAnswer,
};
use amcast_smr::envelope::Envelope;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// A time in which a gateway sends what it may send.
const A_WHILE: Duration = Duration::from_millis(200);

/// Keeps the tokens of all commands until a test answers them, each with whether only a small answer is wanted.
#[derive(Default)]
struct KeptCommands {
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    open: Mutex<Vec<(u64, bool)>>,
}

impl Backend for KeptCommands {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok());
    }

    fn submit(&self, _: GroupSet, body: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        self.open.lock().unwrap().push((token, wants_small_answer(&body[Envelope::BYTES..])));
        Ok(())
    }
}

/// The answer to a `GET` whose value has so many bytes.
fn value(bytes: usize) -> Vec<u8> {
    let mut answer = format!("${bytes}\r\n").into_bytes();
    answer.resize(answer.len() + bytes, b'x');
    answer.extend_from_slice(b"\r\n");
    answer
}

impl KeptCommands {
    fn open(&self) -> usize {
        self.open.lock().unwrap().len()
    }

    /// Waits until so many commands are there, and sees that no more come.
    fn await_just(&self, count: usize) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.open() < count {
            assert!(Instant::now() < until, "{} of {count} commands came", self.open());
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(A_WHILE);
        assert_eq!(self.open(), count);
    }

    /// Answers the oldest commands with so many bytes each.
    fn answer(&self, count: usize, bytes: usize) {
        self.answer_with(count, Outcome::Executed, &value(bytes));
    }

    /// Refuses the oldest commands, each a `GETDEL a`, since the shards' time is another one: they are to be sent again.
    fn refuse(&self, count: usize) {
        let mut command = Vec::new();
        encode_epoch(0, &mut command);
        encode_args(&[b"GETDEL", b"a"], &mut command);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let mut refusal = Vec::new();
        stamp_refusal::refuse(now.as_millis() as u64, &command, &mut refusal);
        self.answer_with(count, Outcome::NotExecuted, &refusal);
    }

    /// Refuses the oldest commands, each a `GET a` whose answer is larger than was wanted.
    fn refuse_size(&self, count: usize) {
        let mut args = Vec::new();
        encode_args(&[b"GET", b"a"], &mut args);
        let mut refusal = Vec::new();
        size_refusal::refuse(&args, &mut refusal);
        self.answer_with(count, Outcome::NotExecuted, &refusal);
    }

    /// Answers the first commands of a message with so many bytes each, and refuses the others, each a `GET a`, since their
    /// answers are larger than was thought.
    fn answer_some_of(&self, (count, bytes): (usize, usize), all: usize) {
        let mut args = Vec::new();
        encode_args(&[b"GET", b"a"], &mut args);
        let mut answer = Vec::new();
        batch::begin_answers(&mut answer);
        for at in 0..all {
            batch::put_answer(&mut answer, |answer| {
                if at < count {
                    answer.extend_from_slice(&value(bytes));
                    return Outcome::Executed;
                }
                size_refusal::refuse(&args, answer);
                Outcome::NotExecuted
            });
        }
        self.answer_with(1, Outcome::Executed, &answer);
    }

    /// Whether only small answers are wanted to the open commands.
    fn want_small(&self) -> Vec<bool> {
        self.open.lock().unwrap().iter().map(|(_, only_small)| *only_small).collect()
    }

    fn answer_with(&self, count: usize, outcome: Outcome, answer: &[u8]) {
        let tokens: Vec<(u64, bool)> = self.open.lock().unwrap().drain(..count).collect();
        let shown = ServiceAnswer::borrowed(outcome, answer);
        let answers = self.answers.get().unwrap();
        tokens.iter().for_each(|(token, _)| answers.answer(*token, shown.clone()));
    }
}

struct KeptGateway {
    gateway: RedisGateway,
    backend: Arc<KeptCommands>,
}

impl KeptGateway {
    fn start() -> Self {
        let backend = Arc::new(KeptCommands::default());
        let status = Arc::new(LocalBackend::new(1, 1));
        let server =
            Arc::new(StoreServer::new(Partitions::by_slot(1).into(), 100, 0, None, status));
        let config = RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1);
        let gateway = redis::start(config, Arc::clone(&backend), server).expect("a free port");
        Self { gateway, backend }
    }

    /// A client that has asked for a value.
    fn client(&self) -> BufReader<TcpStream> {
        self.client_with(b"GET a\r\n")
    }

    /// A client that has asked for a value by a command that also writes: a node does not refuse it.
    fn writing_client(&self) -> BufReader<TcpStream> {
        self.client_with(b"GETDEL a\r\n")
    }

    fn client_with(&self, command: &[u8]) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.gateway.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(command).unwrap();
        BufReader::new(stream)
    }
}

/// Reads a value of so many bytes.
fn read_value(client: &mut BufReader<TcpStream>, bytes: usize) {
    let mut line = String::new();
    client.read_line(&mut line).expect("an answer in time");
    assert_eq!(line.trim_end(), format!("${bytes}"));
    client.read_exact(&mut vec![0; bytes + 2]).expect("all of it");
}

#[test]
fn of_answers_whose_size_nobody_knows_few_are_asked_for_at_a_time() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let backend = &gateway.backend;
    let mut clients: Vec<_> = (0..20).map(|_| gateway.writing_client()).collect();
    backend.await_just(8);
    // One place is free, and there is one more, since the answer was small.
    backend.answer(1, 10);
    backend.await_just(9);
    backend.answer(1, 10);
    backend.await_just(10);
    // After a large answer there are as many as at first.
    backend.answer(1, 1 << 20);
    backend.await_just(9);
    backend.answer(9, 1 << 20);
    backend.await_just(8);
    backend.answer(8, 10);
    for client in &mut clients {
        let mut line = String::new();
        client.read_line(&mut line).expect("every client has its answer");
    }
}

#[test]
fn commands_that_are_refused_have_their_turn_again() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let backend = &gateway.backend;
    let mut clients: Vec<_> = (0..20).map(|_| gateway.writing_client()).collect();
    backend.await_just(8);
    // Others have the places of those that are refused, which wait for new ones.
    backend.refuse(8);
    backend.await_just(8);
    let mut answered = 0;
    while answered < 20 {
        let open = backend.open();
        backend.answer(open, 10);
        answered += open;
        std::thread::sleep(Duration::from_millis(5));
    }
    clients.iter_mut().for_each(|client| read_value(client, 10));
}

#[test]
fn large_answers_are_asked_for_as_room_for_them_comes_and_small_ones_at_once() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let (backend, large) = (&gateway.backend, (4 << 20) - 100);
    let mut small = gateway.client();
    backend.await_just(1);
    backend.answer(1, 10);
    read_value(&mut small, 10);
    let mut clients: Vec<_> = (0..9).map(|_| gateway.client()).collect();
    backend.await_just(9);
    backend.refuse_size(9);
    // Nobody knows yet by how much they are too large.
    backend.await_just(2);
    let mut answered = 0;
    while answered < 9 {
        let open = backend.open();
        backend.answer(open, large);
        answered += open;
        std::thread::sleep(Duration::from_millis(5));
    }
    // Now it is known how large they are: of nine answers eight are asked for.
    for client in &mut clients {
        read_value(client, large);
        client.get_mut().write_all(b"GET a\r\n").unwrap();
    }
    backend.await_just(8);
    small.get_mut().write_all(b"GET b\r\nSET c 1\r\n").unwrap();
    backend.await_just(10);
    backend.answer(1, large);
    backend.await_just(10);
    backend.answer(7, large);
    backend.answer(2, 10);
    backend.answer(1, large);
    clients.iter_mut().for_each(|client| read_value(client, large));
    (0..2).for_each(|_| read_value(&mut small, 10));
}

#[test]
fn a_client_that_just_connected_waits_for_none_that_ask_for_large_answers() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let (backend, large) = (&gateway.backend, 30 << 20);
    let mut hogs: Vec<_> = (0..40).map(|_| gateway.client()).collect();
    backend.await_just(40);
    assert_eq!(backend.want_small(), [true; 40]);
    backend.refuse_size(40);
    backend.await_just(2);
    assert_eq!(backend.want_small(), [false; 2], "they have places now");
    // The next ones are sent at once, also if they write, and in a pipeline.
    let mut next = [gateway.client(), gateway.writing_client()];
    next[0].get_mut().write_all(&b"GET b\r\n".repeat(3)).unwrap();
    let begun = Instant::now();
    while backend.open() < 4 {
        assert!(begun.elapsed() < Duration::from_secs(20), "they wait behind others");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(begun.elapsed() < Duration::from_millis(900), "they have waited for a place");
    // Now it is known how large the answers of the others are: one is asked for at a time.
    backend.answer(2, large);
    backend.await_just(3);
    assert_eq!(backend.want_small(), [true, false, false], "a new client's that writes, too");
    hogs.clear();
}

#[test]
fn reads_that_turn_out_to_be_large_are_sent_again_one_at_a_time() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let (backend, large) = (&gateway.backend, 30 << 20);
    let mut client = gateway.client();
    backend.await_just(1);
    backend.answer(1, 10);
    read_value(&mut client, 10);
    // Many small answers under way take no places, and one that is larger is not prepared. They share messages, of as
    // many as are small together.
    client.get_mut().write_all(&b"GET a\r\n".repeat(12)).unwrap();
    backend.await_just(3);
    assert_eq!(backend.want_small(), [true; 3]);
    [2, 0, 0].into_iter().for_each(|count| backend.answer_some_of((count, 10), 4));
    (0..2).for_each(|_| read_value(&mut client, 10));
    for _ in 0..10 {
        backend.await_just(1);
        assert_eq!(backend.want_small(), [false], "it has a place now");
        backend.answer(1, large);
        read_value(&mut client, large);
    }
}

#[test]
fn a_write_behind_a_read_of_its_key_waits_for_the_answer_to_that() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let backend = &gateway.backend;
    let mut client = gateway.writing_client();
    backend.await_just(1);
    backend.answer(1, 10);
    read_value(&mut client, 10);
    // The read would be read anew if its node were lost, and would see the write behind it.
    client.get_mut().write_all(b"INCR a\r\nGET a\r\nINCR a\r\nGET a\r\nSET b 1\r\n").unwrap();
    backend.await_just(2);
    assert_eq!(backend.want_small(), [false, true]);
    backend.answer(1, 10);
    backend.await_just(1);
    backend.answer(1, 10);
    backend.await_just(3);
    backend.answer(3, 10);
    (0..5).for_each(|_| read_value(&mut client, 10));
}

#[test]
fn the_place_of_a_client_that_is_cut_off_is_free_after_a_second_and_its_turn_at_once() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let backend = &gateway.backend;
    let mut placed: Vec<_> = (0..8).map(|_| gateway.writing_client()).collect();
    backend.await_just(8);
    let _waiting: Vec<_> = (0..5).map(|_| gateway.writing_client()).collect();
    std::thread::sleep(A_WHILE);
    let mut admin = TcpStream::connect(gateway.gateway.address()).unwrap();
    admin.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    admin.write_all(b"CLIENT KILL TYPE normal SKIPME yes\r\n").unwrap();
    let mut killed = String::new();
    BufReader::new(admin).read_line(&mut killed).expect("an answer");
    assert_eq!(killed, ":13\r\n");
    let end = placed[0].read(&mut [0]);
    let is_end = end.map_or_else(|e| e.kind() == ErrorKind::ConnectionReset, |bytes| bytes == 0);
    assert!(is_end, "it is closed");
    let begun = Instant::now();
    let _next = gateway.writing_client();
    while backend.open() < 9 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody gives the places back");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(begun.elapsed() >= Duration::from_millis(700), "the nodes are still at work");
    backend.await_just(9);
}

#[test]
fn a_client_that_stops_reading_does_not_hold_up_the_large_answers_of_others() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let (backend, large) = (&gateway.backend, 10 << 20);
    let mut hog = gateway.client_with(b"LRANGE a 0 -1\r\n");
    backend.await_just(1);
    backend.answer(1, 10);
    read_value(&mut hog, 10);
    hog.get_mut().write_all(&b"LRANGE a 0 -1\r\n".repeat(5)).unwrap();
    backend.await_just(5);
    backend.refuse_size(5);
    backend.await_just(1);
    backend.answer(1, large);
    read_value(&mut hog, large);
    // There is room for three, and the fourth one waits: then the client stops reading.
    backend.await_just(3);
    backend.answer(3, large);
    std::thread::sleep(A_WHILE);
    let mut other = gateway.client();
    backend.await_just(1);
    backend.refuse_size(1);
    backend.await_just(1);
    assert_eq!(backend.want_small(), [false], "it has a place now");
    backend.answer(1, 1 << 20);
    read_value(&mut other, 1 << 20);
    (0..3).for_each(|_| read_value(&mut hog, large));
    backend.await_just(1);
    backend.answer(1, large);
    read_value(&mut hog, large);
}

#[test]
fn reads_behind_writes_on_a_new_connection_tell_how_large_answers_are_first() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let backend = &gateway.backend;
    let mut client = gateway.client_with(&b"APPEND a x\r\nGET a\r\n".repeat(8));
    // The first read waits for the write in front of it, and all others for the read.
    backend.await_just(1);
    backend.answer(1, 10);
    backend.await_just(1);
    assert_eq!(backend.want_small(), [true]);
    backend.answer(1, 10);
    (0..2).for_each(|_| read_value(&mut client, 10));
}

/// How long a command with an answer of unknown size takes to the backend, while reads of other new connections wait for
/// the writes in front of them.
fn wait_beside_reads_behind_writes() -> Duration {
    let gateway = KeptGateway::start();
    let backend = &gateway.backend;
    let reading: Vec<_> =
        (0..80).map(|_| gateway.client_with(b"APPEND a x\r\nGET a\r\n")).collect();
    backend.await_just(reading.len());
    let begun = Instant::now();
    let _client = gateway.client_with(b"GETDEL a\r\n");
    backend.await_just(reading.len() + 1);
    begun.elapsed() - A_WHILE
}

#[test]
fn reads_that_wait_for_writes_keep_no_places_of_other_clients() {
    let _limit = amcast_test_policy::time_limit();
    // A place that nobody gives back is free after a second. The machine may take as long for other reasons, once.
    let waits: Vec<_> = (0..5).map(|_| wait_beside_reads_behind_writes()).collect();
    assert!(waits.iter().any(|wait| *wait < Duration::from_millis(500)), "{waits:?}");
}

#[test]
fn reads_for_which_a_batch_had_no_room_are_sent_again_as_small_ones() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let backend = &gateway.backend;
    let mut client = gateway.client();
    backend.await_just(1);
    backend.answer(1, 10);
    read_value(&mut client, 10);
    client.get_mut().write_all(&b"GET a\r\n".repeat(4)).unwrap();
    backend.await_just(1);
    backend.answer_some_of((2, 40_000), 4);
    (0..2).for_each(|_| read_value(&mut client, 40_000));
    backend.await_just(2);
    assert_eq!(backend.want_small(), [true; 2], "each of them may be small");
    backend.answer(2, 10);
    (0..2).for_each(|_| read_value(&mut client, 10));
}

#[test]
fn reads_that_did_not_fit_behind_tiny_answers_of_a_batch_are_sent_again_in_places() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = KeptGateway::start();
    let backend = &gateway.backend;
    let mut client = gateway.client();
    backend.await_just(1);
    backend.answer(1, 10);
    read_value(&mut client, 10);
    client.get_mut().write_all(&b"GET a\r\n".repeat(4)).unwrap();
    backend.await_just(1);
    backend.answer_some_of((1, 10), 4);
    read_value(&mut client, 10);
    let mut left = 3;
    while left > 0 {
        let small = backend.want_small();
        assert!(!small.contains(&true), "each has a place, as its answer is large");
        backend.answer(small.len(), 1 << 20);
        small.iter().for_each(|_| read_value(&mut client, 1 << 20));
        left -= small.len();
    }
}
