//! The bounds of a connection hold for commands that are batched, too.

use super::support::{
    ask, bounded, bytes_until_cut_off, config, connect, done, is_cut_off, line, rest, serve_shards,
    wait_until_gone,
};
use amcast_core::{Gid, GroupSet, Outcome};
use amcast_kv::{Partitions, batch, destinations, registry, split_epoch};
use amcast_node::gateway::{Backend, BackendAnswers, BackendBusy, CommandFailure, OnBackendAnswer};
use amcast_smr::Envelope;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Commands that are batched with others like them.
const BATCHED: [&str; 4] = ["INCR a", "GET a", "SET a 1", "APPEND a x"];

/// A message that was submitted.
#[derive(Clone)]
struct BatchedMessage {
    token: u64,
    dst: GroupSet,
    commands: usize,
}

/// The reaction of a [`BatchWithheld`] to messages.
enum BackendMood {
    /// It answers each command with so many bytes.
    Answers(usize),
    Withholds,
    /// It has no room.
    Busy,
}

/// Answers the commands of messages in a form that a store has, or withholds the answers.
struct BatchWithheld {
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    mood: Mutex<BackendMood>,
    /// Whether a message was refused.
    has_refused: AtomicBool,
    /// All messages that were taken.
    taken: Mutex<Vec<BatchedMessage>>,
}

impl Default for BatchWithheld {
    fn default() -> Self {
        let mood = Mutex::new(BackendMood::Answers(1));
        let has_refused = AtomicBool::new(false);
        Self { answers: OnceLock::new(), mood, has_refused, taken: Mutex::default() }
    }
}

impl Backend for BatchWithheld {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok());
    }

    fn submit(&self, dst: GroupSet, message: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let args = split_epoch(&message[Envelope::BYTES..]).1;
        let message = BatchedMessage { token, dst, commands: batch::commands(args).count() };
        let answer_bytes = match *self.mood.lock().unwrap() {
            BackendMood::Busy => {
                self.has_refused.store(true, Ordering::SeqCst);
                return Err(BackendBusy);
            }
            BackendMood::Answers(bytes) => Some(bytes),
            BackendMood::Withholds => None,
        };
        self.taken.lock().unwrap().push(message.clone());
        if let Some(bytes) = answer_bytes {
            self.answer(&message, bytes);
        }
        Ok(())
    }
}

/// The answer to each command: so many bytes.
fn bulk(bytes: usize) -> Vec<u8> {
    let mut answer = format!("${bytes}\r\n").into_bytes();
    answer.resize(answer.len() + bytes, b'x');
    answer.extend_from_slice(b"\r\n");
    answer
}

impl BatchWithheld {
    /// Answers each command of the message with so many bytes.
    fn answer(&self, message: &BatchedMessage, bytes: usize) {
        let one = bulk(bytes);
        let all = match message.commands {
            1 => one,
            count => {
                let mut all = Vec::new();
                batch::begin_answers(&mut all);
                for _ in 0..count {
                    batch::put_answer(&mut all, |to| {
                        to.extend_from_slice(&one);
                        Outcome::Executed
                    });
                }
                all
            }
        };
        self.answers.get().unwrap().answer(message.token, done(&all));
    }

    fn is_now(&self, mood: BackendMood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Waits until so many commands were taken; the messages.
    fn await_commands(&self, count: usize) -> Vec<BatchedMessage> {
        let begin = Instant::now();
        loop {
            let taken = self.taken.lock().unwrap().clone();
            if taken.iter().map(|message| message.commands).sum::<usize>() >= count {
                return taken;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "fewer commands than {count} come");
            std::thread::yield_now();
        }
    }
}

/// Has a client send so many commands behind a `DEL`, in at least one batch, and the backend withhold their answers; the
/// messages.
fn withhold(
    backend: &BatchWithheld,
    stream: &TcpStream,
    (command, count): (&str, usize),
) -> Vec<BatchedMessage> {
    backend.is_now(BackendMood::Answers(1));
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    if command.starts_with("GET") {
        // The first read of a connection is under way alone, to tell how large answers are.
        reader.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        assert_eq!((line(&mut reader), line(&mut reader)), ("$1".into(), "x".into()));
    }
    backend.is_now(BackendMood::Withholds);
    backend.taken.lock().unwrap().clear();
    let text = format!("DEL b\r\n{}", format!("{command}\r\n").repeat(count));
    reader.get_mut().write_all(text.as_bytes()).unwrap();
    // So many are sent at most before an answer is known to be large.
    let messages = backend.await_commands(16.min(count + 1));
    assert_eq!(messages[0].commands, 1, "DEL is never in a batch");
    assert!(messages[1..].iter().any(|message| message.commands > 1), "{command} is batched");
    messages
}

#[test]
fn batched_answers_held_back_behind_a_late_one_hold_the_client_back() {
    let _limit = amcast_test_policy::time_limit();
    for command in BATCHED {
        let (backend, gateway) =
            bounded::<BatchWithheld>(|config| config.output_bytes_max = 24 << 20);
        let stream = connect(&gateway);
        let messages = withhold(&backend, &stream, (command, 100));
        for message in &messages[1..] {
            backend.answer(message, 1 << 20);
        }
        std::thread::sleep(Duration::from_millis(50));
        let under_way: usize = backend.await_commands(16).iter().map(|m| m.commands).sum();
        assert_eq!(under_way, 16, "{command}: as many as were thought to answer little");
        backend.is_now(BackendMood::Answers(1 << 20));
        backend.answer(&messages[0], 1);
        let mut reader = BufReader::new(stream);
        assert_eq!((line(&mut reader), line(&mut reader)), ("$1".into(), "x".into()));
        for _ in 0..100 {
            assert_eq!(line(&mut reader), "$1048576", "{command}");
            reader.read_exact(&mut vec![0; (1 << 20) + 2]).unwrap();
        }
        let taken = backend.taken.lock().unwrap();
        let later = &taken[messages.len()..];
        // The small answer to `DEL` lets two be under way.
        let largest = later.iter().map(|message| message.commands).max();
        assert!(largest <= Some(2), "{command}: {largest:?} although answers are large");
    }
}

#[test]
fn a_connection_that_holds_more_answers_of_batches_than_it_may_is_cut_off() {
    let _limit = amcast_test_policy::time_limit();
    for command in BATCHED {
        let (backend, gateway) =
            bounded::<BatchWithheld>(|config| config.output_bytes_max = 8 << 20);
        let mut stream = connect(&gateway);
        for message in &withhold(&backend, &stream, (command, 12))[1..] {
            backend.answer(message, 1 << 20);
        }
        assert_eq!(bytes_until_cut_off(&mut stream), 0, "{command}: no answer comes out of turn");
        assert!(gateway.is_serving());
    }
}

#[test]
fn a_client_that_does_not_read_the_answers_of_batches_is_cut_off() {
    let _limit = amcast_test_policy::time_limit();
    for command in BATCHED {
        let (backend, gateway) =
            bounded::<BatchWithheld>(|config| config.output_bytes_max = 8 << 20);
        let mut stream = connect(&gateway);
        assert_eq!(ask(&stream, "CLIENT SETNAME unread"), "+OK");
        let (count, bytes) = (12, 4 << 20);
        for message in withhold(&backend, &stream, (command, count)) {
            backend.answer(&message, bytes);
        }
        wait_until_gone(&gateway, "unread");
        let mut all = Vec::new();
        rest(&mut stream, &mut all);
        assert!(all.len() < count * bytes, "{command}: {} bytes came", all.len());
        assert!(gateway.is_serving());
    }
}

#[test]
fn all_connections_together_hold_no_more_answers_of_batches_than_they_may() {
    let _limit = amcast_test_policy::time_limit();
    for command in BATCHED {
        let (backend, gateway) = bounded::<BatchWithheld>(|config| config.held_bytes_max = 8 << 20);
        let mut streams: Vec<_> = (0..4).map(|_| connect(&gateway)).collect();
        // The `DEL` of each connection stays open: 4 times 4 mebibytes are held behind those.
        let messages: Vec<_> =
            streams.iter().map(|stream| withhold(&backend, stream, (command, 4))).collect();
        let mut cut = 0;
        for (messages, stream) in messages.iter().zip(&mut streams) {
            messages[1..].iter().for_each(|message| backend.answer(message, 1 << 20));
            cut += usize::from(is_cut_off(stream));
        }
        assert!((1..4).contains(&cut), "{command}: {cut} of 4 cut off");
    }
}

#[test]
fn the_answers_of_a_batch_tell_how_many_commands_may_be_under_way() {
    let _limit = amcast_test_policy::time_limit();
    for (answer, then) in [(8 << 20, 1), (10, 16)] {
        for command in BATCHED {
            let (backend, gateway) = bounded::<BatchWithheld>(|_| {});
            let stream = connect(&gateway);
            let messages = withhold(&backend, &stream, (command, 2));
            messages[1..].iter().for_each(|message| backend.answer(message, answer));
            backend.answer(&messages[0], 1);
            let mut reader = BufReader::new(stream);
            for bytes in [1, answer, answer] {
                assert_eq!(line(&mut reader), format!("${bytes}"));
                reader.read_exact(&mut vec![0; bytes + 2]).unwrap();
            }
            backend.taken.lock().unwrap().clear();
            reader.get_mut().write_all(format!("{command}\r\n").repeat(40).as_bytes()).unwrap();
            backend.await_commands(then);
            std::thread::sleep(Duration::from_millis(50));
            let more: usize = backend.await_commands(then).iter().map(|m| m.commands).sum();
            let is_right = (then..2 * then).contains(&more);
            assert!(is_right, "{command}: {more} behind answers of {answer} bytes");
        }
    }
}

#[test]
fn a_client_whose_batch_finds_no_room_is_held_back_and_loses_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let (backend, gateway) = bounded::<BatchWithheld>(|_| {});
    let stream = connect(&gateway);
    backend.is_now(BackendMood::Busy);
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let one = "SET a 0123456789012345678901234567890123456789\r\n";
    let text = one.repeat(2_000);
    let (mut written, most) = (one.len(), 64 << 20);
    let mut sender = stream.try_clone().unwrap();
    sender.write_all(one.as_bytes()).unwrap();
    while !backend.has_refused.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    // The client writes until the gateway takes no more.
    while written < most {
        let from = written % text.len();
        match sender.write(&text.as_bytes()[from..]) {
            Ok(bytes) => written += bytes,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(written < most, "the gateway takes all that comes");
    assert_eq!(backend.taken.lock().unwrap().len(), 0);
    let count = written.div_ceil(one.len());
    backend.is_now(BackendMood::Answers(1));
    backend.answers.get().unwrap().room();
    let mut reader = BufReader::new(stream);
    let end = count * one.len() - written;
    let sends = std::thread::spawn(move || {
        sender.set_write_timeout(None).unwrap();
        sender.write_all(&one.as_bytes()[one.len() - end..]).unwrap();
    });
    for _ in 0..count {
        assert_eq!((line(&mut reader), line(&mut reader)), ("$1".into(), "x".into()));
    }
    sends.join().unwrap();
    let messages = backend.await_commands(count);
    assert_eq!(messages.iter().map(|message| message.commands).sum::<usize>(), count);
    let largest = messages.iter().map(|message| message.commands).max();
    assert!(largest.is_some_and(|most| (2..=batch::BATCH_MAX).contains(&most)), "{largest:?}");
}

/// Some keys of a shard of three.
fn keys_of(shard: u8) -> impl Iterator<Item = String> {
    let map = Partitions::by_slot(3);
    let get = registry::lookup(b"GET").unwrap();
    (0..).map(|n| format!("key{n}")).filter(move |key| {
        destinations(get, &[b"GET", key.as_bytes()], &map).unwrap() == GroupSet::one(Gid(shard))
    })
}

#[test]
fn commands_over_the_same_shards_are_batched_and_wait_for_a_key_that_is_under_way() {
    let _limit = amcast_test_policy::time_limit();
    let backend = Arc::new(BatchWithheld::default());
    let gateway = serve_shards(config(), backend.clone(), 3);
    backend.is_now(BackendMood::Withholds);
    let mut keys = [0, 1, 2].map(keys_of);
    let mut mset = |shards: &[usize]| {
        let pairs: Vec<String> =
            shards.iter().map(|shard| format!("{} 1", keys[*shard].next().unwrap())).collect();
        format!("MSET {}\r\n", pairs.join(" "))
    };
    let first = mset(&[0, 1]);
    // The last one shares its keys with the first, and shards keep no order of commands of several.
    let text = [&first[..], &mset(&[1, 0]), &mset(&[0, 2]), &mset(&[0, 1]), &first].concat();
    let mut stream = connect(&gateway);
    stream.write_all(text.as_bytes()).unwrap();
    let messages = backend.await_commands(4);
    let (two, others) = (GroupSet::first(2), GroupSet::one(Gid(0)).with(Gid(2)));
    let seen: Vec<_> = messages.iter().map(|message| (message.dst, message.commands)).collect();
    assert_eq!(seen, [(two, 3), (others, 1)]);
    messages.iter().for_each(|message| backend.answer(message, 1));
    let last = backend.await_commands(5).pop().unwrap();
    assert_eq!((last.dst, last.commands), (two, 1));
    backend.answer(&last, 1);
    let mut reader = BufReader::new(stream);
    for _ in 0..5 {
        assert_eq!((line(&mut reader), line(&mut reader)), ("$1".into(), "x".into()));
    }
}

#[test]
fn a_batch_holds_other_clients_up_for_a_few_hundred_keys_at_most() {
    let _limit = amcast_test_policy::time_limit();
    let backend = Arc::new(BatchWithheld::default());
    let gateway = serve_shards(config(), backend.clone(), 3);
    backend.is_now(BackendMood::Withholds);
    let mut keys = keys_of(0);
    let mut mset = || {
        let pairs: Vec<String> = keys.by_ref().take(60).map(|key| format!("{key} 1")).collect();
        format!("MSET {}\r\n", pairs.join(" "))
    };
    let text: String = (0..5).map(|_| mset()).collect();
    let mut stream = connect(&gateway);
    stream.write_all(text.as_bytes()).unwrap();
    let messages = backend.await_commands(5);
    let commands: Vec<_> = messages.iter().map(|message| message.commands).collect();
    assert_eq!(commands, [4, 1], "240 keys, and the 60 that are too many");
    messages.iter().for_each(|message| backend.answer(message, 1));
    let mut reader = BufReader::new(stream);
    for _ in 0..5 {
        assert_eq!((line(&mut reader), line(&mut reader)), ("$1".into(), "x".into()));
    }
}
