//! Reads that are left to the node that their gateway listens to, while nodes are killed.

use crate::harness::{UpCluster, call, signal};
use amcast::client::Answer;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Connections, each with some messages under way: so many that the gateway listens to one node.
const CONNECTIONS: usize = 40;

/// Keys that nobody changes; each holds its number.
const KEYS: usize = 2_000;

/// Commands that a connection sends at a time.
const DEPTH: usize = 16;

/// A read waits for less than this: a gateway gives a command up after 15 s, and the next leader of a shard, where the
/// killed node led it, is there within a second on a machine that has time for it.
const PROMPT: Duration = Duration::from_secs(8);

/// Appends a command, as a client sends it.
fn push(bytes: &mut Vec<u8>, words: &[&str]) {
    write!(bytes, "*{}\r\n", words.len()).unwrap();
    words.iter().for_each(|word| write!(bytes, "${}\r\n{word}\r\n", word.len()).unwrap());
}

/// One connection's reads and writes without waiting, and what it has seen.
struct Pipelined {
    stream: BufReader<TcpStream>,
    /// A key of its own.
    own: String,
    written: usize,
    slowest: Duration,
}

impl Pipelined {
    fn open(at: &str, number: usize) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        let (own, slowest) = (format!("own{number}"), Duration::ZERO);
        Self { stream: BufReader::new(stream), own, written: 0, slowest }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    /// The next answer, which is a string.
    fn text(&mut self) -> String {
        let head = self.line();
        assert!(head.starts_with('$'), "{head}");
        if head == "$-1" { "none".to_string() } else { self.line() }
    }

    /// Sends commands, and times how long their answers take.
    fn exchange<T>(&mut self, commands: &[u8], answers: impl FnOnce(&mut Self) -> T) -> T {
        let begun = Instant::now();
        self.stream.get_mut().write_all(commands).unwrap();
        let got = answers(self);
        self.slowest = self.slowest.max(begun.elapsed());
        got
    }

    /// Reads some keys from `from` on, alone and together.
    fn read_keys(&mut self, from: usize) {
        let numbers: Vec<String> = (from..from + DEPTH).map(|n| (n % KEYS).to_string()).collect();
        let mut commands = Vec::new();
        for two in numbers.chunks(2) {
            push(&mut commands, &["GET", &two[0]]);
            push(&mut commands, &["MGET", &two[1], &two[0]]);
        }
        self.exchange(&commands, |c| {
            for two in numbers.chunks(2) {
                assert_eq!(c.text(), two[0]);
                assert_eq!(c.line(), "*2");
                assert_eq!([c.text(), c.text()], [&two[1][..], &two[0]]);
            }
        });
    }

    /// Reads its own key before, between and behind writes of it.
    fn write_own(&mut self) {
        let own = self.own.clone();
        let [before, between, behind] = [0, 1, 2].map(|more| (self.written + more).to_string());
        self.written += 2;
        let mut commands = Vec::new();
        push(&mut commands, &["GET", &own]);
        push(&mut commands, &["SET", &own, &between]);
        push(&mut commands, &["GET", &own]);
        push(&mut commands, &["SET", &own, &behind]);
        push(&mut commands, &["GET", &own]);
        self.exchange(&commands, |c| {
            assert_eq!(c.text(), before, "a read does not see a write behind it");
            assert_eq!(c.line(), "+OK");
            assert_eq!(c.text(), between, "nor where it follows a write");
            assert_eq!(c.line(), "+OK");
            assert_eq!(c.text(), behind);
        });
    }
}

/// Kills, or stops for a while, each node in turn: one of them is listened to. Waits for answers in between.
fn hurt_each_node(up: &UpCluster, answers: &AtomicU64) {
    let more = || {
        let before = answers.load(Ordering::Relaxed);
        while answers.load(Ordering::Relaxed) < before + 400 {
            thread::sleep(Duration::from_millis(5));
        }
    };
    for node in 0..3 {
        more();
        let os_pid = up.nodes()[node].as_ref().expect("the node answers").os_pid;
        signal(os_pid, Signal::STOP);
        thread::sleep(Duration::from_millis(300));
        signal(os_pid, Signal::CONT);
        more();
        let before = up.kill(node);
        more();
        up.wait_for_return(node, before);
    }
    more();
}

#[test]
fn each_read_of_a_pipeline_has_its_answer_also_if_the_node_that_is_listened_to_is_killed() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--shards", "2"]);
    let mut c = up.connect();
    for from in (0..KEYS).step_by(100) {
        let numbers: Vec<String> = (from..from + 100).map(|n| n.to_string()).collect();
        let pairs = numbers.iter().flat_map(|n| [&n[..], n]);
        let words: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
        assert_eq!(call(&mut c, &words), Answer::Word("OK".into()));
    }
    for number in 0..CONNECTIONS {
        let set = call(&mut c, &["SET", &format!("own{number}"), "0"]);
        assert_eq!(set, Answer::Word("OK".into()));
    }
    let (ends, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let slowest = Mutex::new(Duration::ZERO);
    thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let (up, ends, answers, slowest) = (&up, &ends, &answers, &slowest);
            scope.spawn(move || {
                let mut c = Pipelined::open(&up.redis, number);
                let mut from = number * 50;
                while !ends.load(Ordering::Relaxed) {
                    c.read_keys(from);
                    if from % 3 == 0 {
                        c.write_own();
                    }
                    from += DEPTH + 1;
                    answers.fetch_add(1, Ordering::Relaxed);
                }
                let mut slowest = slowest.lock().unwrap();
                *slowest = c.slowest.max(*slowest);
            });
        }
        hurt_each_node(&up, &answers);
        ends.store(true, Ordering::Relaxed);
    });
    let slowest = *slowest.lock().unwrap();
    println!("{} pipelines, the slowest took {slowest:?}", answers.load(Ordering::Relaxed));
    assert!(slowest < PROMPT, "{slowest:?}");
}
