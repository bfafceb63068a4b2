//! Random pipelines, which arrive in pieces of any size and meet a backend that refuses messages at random, are answered
//! as the same commands that are sent one at a time.

use super::support::{self, config, serve_shards};
use amcast_core::GroupSet;
use amcast_core::rng::Rng;
use amcast_kv::{batch, split_epoch};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, LocalBackend, OnBackendAnswer,
};
use amcast_smr::Envelope;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

const SHARDS: usize = 3;

/// A message that was taken.
struct TakenMessage {
    dst: GroupSet,
    bytes: Vec<u8>,
    token: u64,
}

/// The random choices of an [`ErraticBackend`], and their results.
struct ErraticState {
    rng: Rng,
    taken: Vec<TakenMessage>,
    refused: usize,
    batches: usize,
}

/// Refuses any message, and executes those that it took when it is flushed, or later.
struct ErraticBackend {
    inner: LocalBackend,
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    state: Mutex<ErraticState>,
    reads_apart: bool,
}

impl ErraticBackend {
    fn new(seed: u64) -> Arc<Self> {
        let (rng, taken) = (Rng::new(seed), Vec::new());
        let state = ErraticState { rng, taken, refused: 0, batches: 0 };
        let backend = Arc::new(Self {
            inner: LocalBackend::new(SHARDS, 1),
            answers: OnceLock::new(),
            state: Mutex::new(state),
            reads_apart: seed.is_multiple_of(2),
        });
        let weak = Arc::downgrade(&backend);
        std::thread::spawn(move || Self::work(&weak));
        backend
    }

    /// Executes what was taken, and has room again and again, while it is used.
    fn work(backend: &Weak<Self>) {
        while let Some(backend) = backend.upgrade() {
            backend.execute();
            if let Some(answers) = backend.answers.get() {
                answers.room();
            }
            drop(backend);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn execute(&self) {
        // Messages to one shard keep their order: no other thread executes meanwhile.
        let mut state = self.state.lock().unwrap();
        for TakenMessage { dst, mut bytes, token } in state.taken.drain(..) {
            self.inner.submit(dst, &mut bytes, token).expect("it always has room");
        }
    }
}

impl Backend for ErraticBackend {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        self.inner.start(answers.clone());
        assert!(self.answers.set(answers).is_ok());
    }

    fn submit(&self, dst: GroupSet, message: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let mut state = self.state.lock().unwrap();
        if state.rng.below(3) == 0 {
            state.refused += 1;
            return Err(BackendBusy);
        }
        let is_batch = batch::is_batch(split_epoch(&message[Envelope::BYTES..]).1);
        state.batches += usize::from(is_batch);
        state.taken.push(TakenMessage { dst, bytes: std::mem::take(message), token });
        Ok(())
    }

    fn submit_own(
        &self,
        dst: GroupSet,
        message: &mut Vec<u8>,
        token: u64,
    ) -> Result<(), BackendBusy> {
        self.inner.submit(dst, message, token)
    }

    fn reads_apart(&self) -> bool {
        self.reads_apart
    }

    fn flush(&self) {
        let executes = self.state.lock().unwrap().rng.below(2) == 0;
        if executes {
            self.execute();
        }
    }
}

/// Inline commands, of which most are batched.
fn some_commands(rng: &mut Rng) -> String {
    let key = |rng: &mut Rng, kind: &str| format!("{kind}{}", rng.below(4));
    let word = |rng: &mut Rng| ["a", "b", "7", "x"][rng.below(4) as usize];
    match rng.below(26) {
        0 | 1 => format!("SET {} {}", key(rng, "s"), word(rng)),
        2 | 3 => format!("GET {}", key(rng, "s")),
        4 | 5 => format!("INCR {}", key(rng, "n")),
        6 => format!("APPEND {} {}", key(rng, "s"), word(rng)),
        // Few of these fit one batch.
        7 => format!("APPEND {} {}", key(rng, "s"), "long".repeat(rng.below(900) as usize + 1)),
        8 => format!("EXPIRE {} 100000", key(rng, "s")),
        9 => format!("PERSIST {}", key(rng, "s")),
        10 => format!("HSET {} {} {}", key(rng, "h"), word(rng), word(rng)),
        11 => format!("HMGET {} a b x", key(rng, "h")),
        12 => format!("HDEL {} {}", key(rng, "h"), word(rng)),
        13 => format!("RPUSH {} {}", key(rng, "l"), word(rng)),
        14 => format!("LLEN {}", key(rng, "l")),
        15 => format!("LRANGE {} 0 -1", key(rng, "l")),
        16 => format!("ZADD {} {} {}", key(rng, "z"), rng.below(9), word(rng)),
        17 => format!("MGET {} {}", key(rng, "s"), key(rng, "n")),
        18 => format!("DEL {} {}", key(rng, "s"), key(rng, "l")),
        19 => "PING".to_owned(),
        20 => format!("HGET {} a", key(rng, "s")),
        21 => format!("GET {} too many", key(rng, "s")),
        22 => format!("GETDEL {}", key(rng, "s")),
        // Its reads are refused where small answers are expected.
        23 => format!("SETRANGE {} {} y", key(rng, "s"), rng.below(300_000)),
        24 => format!("CLIENT REPLY SKIP\r\nINCR {}", key(rng, "n")),
        _ => {
            let (one, other) = (key(rng, "s"), key(rng, "n"));
            format!("MULTI\r\nSET {one} t\r\nINCR {other}\r\nGET {one}\r\nEXEC")
        }
    }
}

fn connect(gateway: &amcast_node::gateway::redis::RedisGateway) -> TcpStream {
    let stream = support::connect(gateway);
    stream.set_nodelay(true).unwrap();
    stream
}

/// The answers to one of [`some_commands`], before which nothing else is under way.
fn answer_alone(stream: &mut TcpStream, commands: &str) -> Vec<u8> {
    // No other answer has these bytes.
    let end = b"$14\r\nend-of-answers\r\n";
    stream.write_all(format!("{commands}\r\nECHO end-of-answers\r\n").as_bytes()).unwrap();
    let (mut all, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    while !all.ends_with(end) {
        let bytes = stream.read(&mut piece).expect("an answer in time");
        assert!(bytes > 0, "{commands} ends the connection");
        all.extend_from_slice(&piece[..bytes]);
    }
    all.truncate(all.len() - end.len());
    all
}

/// Writes all bytes in pieces of any size, with pauses.
fn write_in_pieces(stream: &mut TcpStream, mut bytes: &[u8], rng: &mut Rng) {
    while !bytes.is_empty() {
        let most = [3, 60, 2_000, 30_000][rng.below(4) as usize];
        let piece = bytes.len().min(1 + rng.below(most) as usize);
        stream.write_all(&bytes[..piece]).unwrap();
        bytes = &bytes[piece..];
        if rng.below(8) == 0 {
            std::thread::sleep(Duration::from_micros(rng.below(600)));
        }
    }
}

#[test]
fn pipelines_in_pieces_over_a_busy_backend_are_answered_as_commands_one_at_a_time() {
    let _limit = amcast_test_policy::time_limit();
    for seed in 1..=6 {
        let backend = ErraticBackend::new(seed);
        let together = serve_shards(config(), backend.clone(), SHARDS);
        let alone = serve_shards(config(), Arc::new(LocalBackend::new(SHARDS, 1)), SHARDS);
        let (mut many, mut single) = (connect(&together), connect(&alone));
        let mut rng = Rng::new(seed);
        for round in 0..6 {
            let count = 1 + rng.below(300) as usize;
            let commands: Vec<String> = (0..count).map(|_| some_commands(&mut rng)).collect();
            let expected: Vec<Vec<u8>> =
                commands.iter().map(|command| answer_alone(&mut single, command)).collect();
            let mut answers = vec![0; expected.iter().map(Vec::len).sum()];
            let text = commands.join("\r\n") + "\r\n";
            let mut sender = many.try_clone().unwrap();
            let mut pieces = Rng::new(rng.word());
            std::thread::scope(|scope| {
                scope.spawn(|| write_in_pieces(&mut sender, text.as_bytes(), &mut pieces));
                many.read_exact(&mut answers).expect("as many bytes of answers in time");
            });
            let mut rest = &answers[..];
            for (at, (command, expected)) in commands.iter().zip(&expected).enumerate() {
                let answer =
                    rest.split_off(..expected.len()).expect("as many bytes as are expected");
                let is_same = answer == expected;
                let text = |bytes: &[u8]| {
                    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned()
                };
                assert!(
                    is_same,
                    "seed {seed}, round {round}, command {at}: {command:.80}: {:?}, and alone {:?}",
                    text(answer),
                    text(expected)
                );
            }
        }
        // No answer is left over.
        many.write_all(b"PING\r\n").unwrap();
        let mut pong = [0; 7];
        many.read_exact(&mut pong).expect("an answer in time");
        assert_eq!(&pong, b"+PONG\r\n", "seed {seed}");
        let state = backend.state.lock().unwrap();
        assert!(state.refused > 20 && state.batches > 20, "{} {}", state.refused, state.batches);
    }
}
