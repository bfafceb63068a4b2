//! Clients that use few keys of all shards at once, in every way that the checker knows.

use crate::recording::{Calls, CheckerWords, RecordedCall, Recording, moment};
use amcast::check::{Property, check};
use amcast::client::{Answer, Connection};
use amcast::core::rng::Rng;
use amcast::core::{Gid, Outcome, Time};
use amcast::kv::SlotMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Calls that a client makes before it rests.
const BURST: u64 = 12;

/// How long it rests at most, in microseconds: a history of millions of calls teaches no more.
const REST_US_MAX: u64 = 12_000;

/// The keys of a while, spread over all shards.
#[derive(Clone, Debug)]
pub(crate) struct PeriodKeys {
    /// Changed in every way.
    pub(crate) registers: Vec<String>,
    /// Changed by INCR alone.
    counters: Vec<String>,
    /// Changed by APPEND alone.
    logs: Vec<String>,
    /// Counts transactions, from within.
    tally: String,
}

impl PeriodKeys {
    /// The keys of a round: one register, one counter and one log in each shard, but at least two.
    pub(crate) fn of_round(round: u64, shards: usize) -> Self {
        let map = SlotMap::new(shards);
        let in_shard = |kind: &str, n: usize| {
            let shard = Gid((n % shards) as u8);
            let names = (0..).map(|salt| format!("{kind}{n}.{round}.{salt}"));
            let mut fitting = names.filter(|name| map.of_key(name.as_bytes()) == shard);
            fitting.next().expect("some key is in every shard")
        };
        let several = |kind| (0..shards.max(2)).map(|n| in_shard(kind, n)).collect();
        Self {
            registers: several("reg"),
            counters: several("count"),
            logs: several("log"),
            tally: in_shard("tally", shards - 1),
        }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.registers.iter().chain(&self.counters).chain(&self.logs).chain([&self.tally])
    }
}

/// All clients of a run.
pub(crate) struct ClientLoad {
    /// The gateways: a client goes to the next one when one closes its connection.
    gateways: Vec<String>,
    /// Whether reads need no order.
    sequential: bool,
    shards: usize,
    begun: Instant,
    round: AtomicU64,
    stop: AtomicBool,
    clients: Vec<Mutex<Calls>>,
    /// The errors that clients received.
    errors: Mutex<Vec<String>>,
    /// Connections that ended before their client did.
    ends: AtomicU64,
    answered: AtomicU64,
}

/// How long it may take until some gateway takes a connection.
const PATIENCE: Duration = Duration::from_secs(60);

impl ClientLoad {
    pub(crate) fn new(redis: &str, shards: usize, clients: usize) -> Self {
        Self::at(vec![redis.to_string()], shards, clients)
    }

    /// Clients of several gateways.
    pub(crate) fn at(gateways: Vec<String>, shards: usize, clients: usize) -> Self {
        Self {
            gateways,
            sequential: false,
            shards,
            errors: Mutex::default(),
            ends: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            begun: Instant::now(),
            round: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            clients: (0..clients).map(|_| Mutex::default()).collect(),
        }
    }

    /// Clients of these gateways, of nodes, that chose reads without an order.
    pub(crate) fn sequential(gateways: Vec<String>, shards: usize, clients: usize) -> Self {
        Self { gateways, sequential: true, ..Self::new("", shards, clients) }
    }

    /// Lets the clients work while `act` acts.
    pub(crate) fn run<T>(&self, act: impl FnOnce(&Self) -> T) -> T {
        std::thread::scope(|scope| {
            for number in 0..self.clients.len() {
                scope.spawn(move || self.work(number));
            }
            let _stops = crate::harness::StopOnDrop(&self.stop);
            act(self)
        })
    }

    /// From now on the clients use other keys.
    pub(crate) fn next_round(&self) {
        self.round.fetch_add(1, Ordering::Relaxed);
    }

    /// Now, on the clock of the recording.
    pub(crate) fn now(&self) -> Time {
        moment(self.begun)
    }

    /// The errors that clients received.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().expect("no client panicked").clone()
    }

    /// How many connections ended before their client did.
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// How many calls were answered since the beginning.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until more than so many calls were answered since the beginning.
    pub(crate) fn wait_for_answers(&self, more_than: usize) {
        crate::harness::wait_for_more_than(more_than as u64, &self.answered);
    }

    /// A connection to the first gateway from the `n`th on that takes one.
    fn connect(&self, n: usize) -> Connection {
        let mut connection = self.open(n);
        if self.sequential {
            let chosen = connection.call(&[b"AMCAST.CONSISTENCY", b"SEQUENTIAL"]);
            assert_eq!(chosen.expect("an answer"), Answer::Word("OK".into()));
        }
        connection
    }

    fn open(&self, n: usize) -> Connection {
        let begun = Instant::now();
        let mut all = self.gateways.iter().cycle().skip(n % self.gateways.len());
        loop {
            let at = all.next().expect("they go round");
            match Connection::open(at) {
                Ok(connection) => return connection,
                Err(e) => assert!(begun.elapsed() < PATIENCE, "{at}: {e}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The recording of the clients' calls.
    pub(crate) fn into_recording(self) -> Recording {
        let calls = |c: Mutex<Calls>| c.into_inner().expect("no client panicked");
        Recording { clients: self.clients.into_iter().map(calls).collect() }
    }

    fn work(&self, number: usize) {
        let mut calls = self.clients[number].lock().expect("a client is one thread");
        let mut gateway = number;
        let connection = self.connect(gateway);
        let mut client = RecordedClient {
            errors: &self.errors,
            answered: &self.answered,
            number,
            connection,
            rng: Rng::new(number as u64 + 1),
            values: 0,
            begun: self.begun,
            calls: &mut calls,
        };
        let mut round = u64::MAX;
        let mut keys = PeriodKeys::of_round(0, self.shards);
        for n in 1_u64.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let now = self.round.load(Ordering::Relaxed);
            if now != round {
                (round, keys) = (now, PeriodKeys::of_round(now, self.shards));
            }
            let mut done = client.act(&keys);
            while done.is_err() {
                self.ends.fetch_add(1, Ordering::Relaxed);
                gateway += 1;
                client.connection = self.connect(gateway);
                // Calls under way may take effect at any time from here on, or never. The outcome
                // of such a call is soon decided only if no client continues to change the same
                // keys. So all clients go over to other keys, and a client that was partitioned
                // away reads the values of these.
                let next = round + 1;
                let _ =
                    self.round.compare_exchange(round, next, Ordering::Relaxed, Ordering::Relaxed);
                done = client.look(&keys);
            }
            if n.is_multiple_of(BURST) {
                std::thread::sleep(Duration::from_micros(client.rng.below(REST_US_MAX)));
            }
        }
    }
}

/// One client.
struct RecordedClient<'a> {
    number: usize,
    connection: Connection,
    rng: Rng,
    /// Values made up so far.
    values: u64,
    begun: Instant,
    calls: &'a mut Calls,
    errors: &'a Mutex<Vec<String>>,
    answered: &'a AtomicU64,
}

impl RecordedClient<'_> {
    /// A value that nobody else writes; none is the beginning of another one.
    fn value(&mut self) -> String {
        self.values += 1;
        format!("{}.{}_", self.number, self.values)
    }

    fn one<'k>(&mut self, keys: &'k [String]) -> &'k str {
        &keys[self.rng.below(keys.len() as u64) as usize]
    }

    /// Some of the keys, at least one, each once, in any order.
    fn some<'k>(&mut self, keys: impl Iterator<Item = &'k String>) -> Vec<&'k str> {
        let mut keys: Vec<&str> = keys.map(String::as_str).collect();
        let count = 1 + self.rng.below(keys.len() as u64) as usize;
        for i in 0..count {
            let j = i + self.rng.below((keys.len() - i) as u64) as usize;
            keys.swap(i, j);
        }
        keys.truncate(count);
        keys
    }

    /// One call, or one transaction.
    fn act(&mut self, keys: &PeriodKeys) -> io::Result<()> {
        let value = self.value();
        match self.rng.below(100) {
            0..14 => {
                let key = self.one(&keys.registers);
                self.call(&["SET", key, &value])
            }
            14..32 => {
                let key = self.one(&keys.registers);
                self.call(&["GET", key])
            }
            32..44 => {
                let counter = self.one(&keys.counters);
                self.call(&["INCR", counter])
            }
            44..52 => {
                let log = self.one(&keys.logs);
                self.call(&["APPEND", log, &value])
            }
            52..58 => {
                let mut words = vec!["DEL"];
                words.extend(self.some(keys.registers.iter()));
                self.call(&words)
            }
            58..69 => {
                let mut words = vec!["MSET"];
                words.extend(self.some(keys.registers.iter()).iter().flat_map(|k| [*k, &value]));
                self.call(&words)
            }
            69..82 => {
                let mut words = vec!["MGET"];
                words.extend(self.some(keys.all()));
                self.call(&words)
            }
            82..91 => self.transaction(keys, &[], &value),
            _ => self.watched(keys, &value),
        }
    }

    /// Reads all keys at one moment.
    fn look(&mut self, keys: &PeriodKeys) -> io::Result<()> {
        let words: Vec<&str> = ["MGET"].into_iter().chain(keys.all().map(String::as_str)).collect();
        self.call(&words)
    }

    /// Reads keys, and changes others only if the ones read stay as they are.
    fn watched(&mut self, keys: &PeriodKeys, value: &str) -> io::Result<()> {
        let watched = self.some(keys.registers.iter());
        let mut watch = vec!["WATCH"];
        watch.extend(&watched);
        if self.ask(&watch)?.is_error() {
            return Ok(());
        }
        let mut conditions = Vec::new();
        for key in watched {
            self.call(&["GET", key])?;
            let back = self.calls.0.last().and_then(|called| called.back.as_ref());
            let Some((_, out)) = back.filter(|(_, out)| out != REFUSED) else {
                return self.ask(&["UNWATCH"]).map(|_| ());
            };
            conditions.push((key, out.clone()));
        }
        self.transaction(keys, &conditions, value)
    }

    /// Commands on several shards at one moment, if the conditions hold.
    fn transaction(
        &mut self,
        keys: &PeriodKeys,
        conditions: &[(&str, String)],
        value: &str,
    ) -> io::Result<()> {
        let mut commands: Vec<Vec<&str>> = Vec::new();
        for (i, key) in self.some(keys.registers.iter()).into_iter().enumerate() {
            commands.push(if i % 2 == 0 { vec!["SET", key, value] } else { vec!["GET", key] });
        }
        commands.push(vec!["INCR", &keys.tally]);
        let mut queued = !self.ask(&["MULTI"])?.is_error();
        for command in &commands {
            queued &= self.ask(command)? == Answer::Word("QUEUED".to_string());
        }
        if !queued {
            return self.ask(&["DISCARD"]).map(|_| ());
        }
        let conditions = conditions.iter().map(|(key, was)| format!("IF {key} {was}"));
        let commands = commands.iter().map(|words| words.join(" "));
        let parts: Vec<String> =
            ["MULTI".to_string()].into_iter().chain(conditions).chain(commands).collect();
        self.record(CheckerWords(parts.join("; ")), &["EXEC"])
    }

    fn call(&mut self, words: &[&str]) -> io::Result<()> {
        self.record(CheckerWords::of(words), words)
    }

    /// Sends a command that is recorded as `op`.
    fn record(&mut self, op: CheckerWords, words: &[&str]) -> io::Result<()> {
        self.calls.0.push(RecordedCall { op, at: moment(self.begun), back: None });
        let answer = self.ask(words)?;
        let at = moment(self.begun);
        let between = if words[0] == "EXEC" { "; " } else { " " };
        // An error that does not say so leaves open whether the command took effect: these commands are never wrong.
        if let Answer::Error(why) = &answer
            && is_refusal(why)
            && let Some(called) = self.calls.0.last_mut()
        {
            called.back = Some((at, REFUSED.to_string()));
        }
        if let (Some(called), Some(out)) = (self.calls.0.last_mut(), told(&answer, between)) {
            called.back = Some((at, out));
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn ask(&mut self, words: &[&str]) -> io::Result<Answer> {
        let words: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
        let answer = self.connection.call(&words)?;
        if answer.is_error() {
            self.errors.lock().expect("no client panicked").push(answer.to_string());
        }
        Ok(answer)
    }
}

/// The checker's word for a call that was refused and had no effect.
const REFUSED: &str = "ERR";

/// Whether an error says that the command was not executed. If somebody reads its value all the same, no order explains
/// that.
fn is_refusal(why: &str) -> bool {
    why.ends_with(Outcome::NotExecuted.words()) || why.starts_with("OOM ")
}

#[test]
fn only_errors_that_say_so_are_refusals() {
    let _limit = amcast_test_policy::time_limit();
    for (why, is_refused) in [
        ("TRYAGAIN the node is busy; the command was not executed", true),
        ("CLUSTERDOWN no node answers; the command was not executed", true),
        ("OOM command not allowed when used memory > 'maxmemory'.", true),
        ("ERR no answer came for 15 s; whether the command took effect is not known", false),
        ("ERR something else", false),
    ] {
        assert_eq!(is_refusal(why), is_refused, "{why}");
    }
}

#[test]
fn a_call_that_was_refused_and_executed_all_the_same_is_found() {
    let _limit = amcast_test_policy::time_limit();
    let call = |op: &str, at: u64, out: &str| RecordedCall {
        op: CheckerWords(op.to_string()),
        at: Time(at),
        back: Some((Time(at + 1), out.to_string())),
    };
    for (read, holds) in [("nil", true), ("v", false)] {
        let calls = Calls(vec![call("SET k v", 1, REFUSED), call("GET k", 3, read)]);
        let recording = Recording { clients: vec![calls] };
        let judged = check(&recording.history(), &[Property::Linearizable]);
        assert_eq!(judged.all_hold(), holds, "{read}");
    }
}

/// An answer in the checker's language; nothing for an error.
fn told(answer: &Answer, between: &str) -> Option<String> {
    Some(match answer {
        Answer::Error(_) => return None,
        Answer::Null => "nil".to_string(),
        Answer::Word(word) => word.clone(),
        Answer::Number(n) => n.to_string(),
        Answer::Bytes(bytes) => String::from_utf8(bytes.clone()).expect("values are text"),
        Answer::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(|item| told(item, between)).collect();
            items?.join(between)
        }
    })
}
