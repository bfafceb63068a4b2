//! The key-value store under simulated clients: commands on one key and on several, transactions over shards, values that
//! are larger than a message, keys that expire, keys that move between shards meanwhile, and in some runs little memory.

mod expiry;
mod memory;
mod store;

use super::{AnswerMeaning, Call, ReadLevel, SeenCalls, ServiceJudge, Workload};
use amcast_check::{PropertyVerdict, service};
use amcast_core::rng::Rng;
use amcast_core::{Gid, ServiceAnswer};
use amcast_kv::{
    Partitions, batch, destinations, encode_args, encode_epoch, partitions, registry, slot,
    split_epoch, stamp_refusal,
};
use amcast_node::service::calls::{AnswerForm, returned, spoken, spoken_batch};
pub use store::SimulatedStore;

/// Keys of a run: few, so that clients meet.
const KEYS: u64 = 6;

/// Keys that expire: none of them is in a command that is judged by the store's model.
const EXPIRING: u64 = 3;

/// The shortest and the longest time to live, in milliseconds: beyond what wrong clocks may shorten it by.
const TTL_MS: (u64, u64) = (18_000, 45_000);

/// Bytes of a large value: a few messages of a simulated gateway.
const LARGE_BYTES: usize = 250;

/// How far the move of keys is that the gateway knows of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeyMove {
    /// Some keys may be left.
    Going,
    /// All keys have moved, and no client has seen it.
    Over,
}

/// The gateway of a client that writes and reads the same few keys as all others.
pub struct KvWorkload {
    map: Partitions,
    moving: KeyMove,
    /// Where all keys are in one shard: what their names begin with.
    tag: &'static str,
    /// Whether pipelines hold commands over several shards, too: where no read of one shard goes without a place in the order.
    batches_over_shards: bool,
    /// Whether the run began with a memory budget.
    has_budget: bool,
}

impl KvWorkload {
    /// Of a store of so many shards.
    pub fn new(shards: usize) -> Self {
        let map = Partitions::by_slot(shards);
        Self { map, moving: KeyMove::Going, tag: "", batches_over_shards: false, has_budget: false }
    }

    fn key(&self, kind: char, number: u64) -> String {
        format!("{}{kind}{number}", self.tag)
    }

    fn call(&self, args: &[&str]) -> Call {
        let bytes: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let command = registry::lookup(bytes[0]).expect("a command of the store");
        let dst = destinations(command, &bytes, &self.map).expect("proper arguments");
        let mut body = Vec::new();
        encode_epoch(self.map.epoch(), &mut body);
        encode_args(&bytes, &mut body);
        let read_only = !command.writes();
        let args = args.iter().map(ToString::to_string).collect();
        let (op, form) = spoken(&bytes, read_only).expect("a command of the language");
        // The model knows nothing of moves.
        let op = if form == AnswerForm::Other { String::new() } else { op };
        Call { args, ..Call::new(dst, body, read_only, op) }
    }

    /// A batch of commands, as a gateway makes of those of a pipeline; a transaction where the map does not send all of
    /// them to the same shards.
    fn batch(&self, commands: &[&[&str]]) -> Call {
        let mut calls = commands.iter().map(|args| self.call(args));
        let first = calls.next().expect("a command at least");
        let mut body = first.body;
        let from = body.len() - split_epoch(&body).1.len();
        let mut go_together = true;
        for call in calls {
            go_together &= call.dst == first.dst;
            batch::push(&mut body, from, split_epoch(&call.body).1);
        }
        if !go_together {
            let mut args = vec!["EXEC".to_string(), "0".to_string(), commands.len().to_string()];
            for command in commands {
                args.push(command.len().to_string());
                args.extend(command.iter().map(ToString::to_string));
            }
            return self.call(&args.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let read_only = first.read_only;
        let (op, _) = spoken_batch(split_epoch(&body).1, read_only).expect("whole commands");
        let words = commands.join(&";").into_iter().map(str::to_string);
        let args = std::iter::once(BATCH.to_string()).chain(words).collect();
        Call { args, is_batch: true, ..Call::new(first.dst, body, read_only, op) }
    }

    /// Commands on two keys that only read, or only write.
    fn pipeline(&self, (one, other): (&str, &str), counter: &str, value: &str) -> Call {
        match value.as_bytes().last().map(|last| last % 8) {
            Some(4) if self.batches_over_shards => {
                self.batch(&[&["MGET", one, other], &["MGET", other, one]])
            }
            Some(1) if self.batches_over_shards => self.batch(&[
                &["MSET", one, value, other, value],
                &["MSET", other, "y", one, value],
                &["MSET", one, "z", other, "z"],
            ]),
            Some(0 | 4) => self.batch(&[&["GET", one], &["STRLEN", other], &["GET", counter]]),
            _ => self.batch(&[&["SET", one, value], &["INCR", counter], &["APPEND", other, "y"]]),
        }
    }

    /// A call that is judged beside the model.
    fn apart(&self, args: &[&str]) -> Call {
        Call { op: args.join(" "), is_apart: true, ..self.call(args) }
    }

    /// Keys begin to move, or the next ones of them do, or their move ends.
    fn move_keys(&self, rng: &mut Rng) -> Option<Call> {
        let shards = self.map.shards() as u64;
        if let Some((from, to)) = self.map.moving() {
            return Some(match self.moving {
                KeyMove::Going => self.call(&["AMCAST.MOVE", &text(from), &text(to)]),
                KeyMove::Over => self.call(&["AMCAST.MOVED"]),
            });
        }
        if shards < 2 {
            return None;
        }
        let key = self.key('k', rng.below(KEYS));
        let from = self.map.of_key(key.as_bytes()).shard;
        let to = Gid(((u64::from(from.0) + 1 + rng.below(shards - 1)) % shards) as u8);
        Some(match rng.below(3) {
            0 => self.call(&["AMCAST.MERGE", &text(from), &text(to)]),
            _ => {
                let slot = slot(key.as_bytes()).to_string();
                self.call(&["AMCAST.SPLIT", &text(from), &slot, &text(to)])
            }
        })
    }

    fn expiring(&self, rng: &mut Rng) -> Call {
        let key = self.key('e', rng.below(EXPIRING));
        if rng.below(3) > 0 {
            return self.apart(&["GET", &key]);
        }
        let (value, ttl_ms) = (rng.word().to_string(), TTL_MS.0 + rng.below(TTL_MS.1 - TTL_MS.0));
        self.apart(&["SET", &key, &value, "PX", &ttl_ms.to_string()])
    }

    /// Several commands at once.
    fn transaction(&self, one: &str, other: &str, counter: &str, value: &str) -> Call {
        self.call(&[
            "EXEC", "0", "3", "3", "SET", one, value, "2", "INCR", counter, "2", "GET", other,
        ])
    }
}

/// The first argument of a call with a batch; its commands follow, with a semicolon between two.
const BATCH: &str = "BATCH";

fn text(shard: Gid) -> String {
    shard.0.to_string()
}

impl Workload for KvWorkload {
    type Machine = SimulatedStore;

    fn draw_maxmemory(&self, rng: &mut Rng) -> u64 {
        memory::draw(self.map.shards(), rng)
    }

    fn begin(&mut self, level: ReadLevel, maxmemory: u64) {
        self.has_budget = maxmemory > 0;
        // Of several shards such reads promise less than one order.
        self.tag = if level == ReadLevel::Sequential { "{t}" } else { "" };
        self.batches_over_shards = level == ReadLevel::Ordered;
    }

    fn reads_here(&self) -> bool {
        true
    }

    fn next(&mut self, rng: &mut Rng) -> Call {
        let (a, b) = (rng.below(KEYS), rng.below(KEYS));
        let other = if a == b { (a + 1) % KEYS } else { b };
        let (one, other) = (self.key('k', a), self.key('k', other));
        let (counter, value) = (self.key('n', rng.below(2)), format!("v{:x}", rng.word() >> 24));
        let moves = if self.map.moving().is_some() { 6 } else { 40 };
        if rng.below(moves) == 0
            && let Some(call) = self.move_keys(rng)
        {
            return call;
        }
        // Runs without a budget draw no more than this.
        if self.has_budget && rng.below(2) == 0 {
            return self.memory_call((&one, &other), &value, rng);
        }
        match rng.below(17) {
            0..=2 => self.call(&["SET", &one, &value]),
            3..=5 => self.call(&["GET", &one]),
            6 | 7 => self.call(&["INCR", &counter]),
            8 => self.call(&["APPEND", &one, "x"]),
            9 => self.call(&["MSET", &one, &value, &other, &value]),
            10 | 11 => self.call(&["MGET", &one, &other, &counter]),
            12 => self.call(&["DEL", &one, &other]),
            13 if value.len() % 2 == 0 => self.transaction(&one, &other, &counter, &value),
            13 => self.pipeline((&one, &other), &counter, &value),
            14 => self.call(&["SET", &one, &value.repeat(LARGE_BYTES / value.len())]),
            _ => self.expiring(rng),
        }
    }

    fn closing(&self) -> Vec<Call> {
        if self.has_budget { self.closing_calls() } else { Vec::new() }
    }

    fn last(&mut self) -> Call {
        let mut keys = vec![self.key('n', 0), self.key('n', 1)];
        keys.extend((0..KEYS).map(|k| self.key('k', k)));
        if self.has_budget {
            keys.extend(self.closing_keys());
        }
        let mut args = vec!["MGET"];
        args.extend(keys.iter().map(|key| &**key));
        self.call(&args)
    }

    fn returned(&mut self, call: &Call, answer: &ServiceAnswer<'_>) -> AnswerMeaning {
        let again = |now_ms, map: &Self| {
            let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
            let anew = match *args {
                [BATCH, ref rest @ ..] => {
                    map.batch(&rest.split(|word| *word == ";").collect::<Vec<_>>())
                }
                _ if call.is_apart => map.apart(&args),
                _ => map.call(&args),
            };
            AnswerMeaning::Again { now_ms, call: Some(anew) }
        };
        if let Some((now_ms, _)) = stamp_refusal::of_refusal(&answer.bytes) {
            return again(Some(now_ms), self);
        }
        if partitions::is_refusal(&answer.bytes) {
            if let Some((map, _)) = Partitions::of_refusal(&answer.bytes)
                && map.epoch() > self.map.epoch()
            {
                (self.map, self.moving) = (map, KeyMove::Going);
            }
            return again(None, self);
        }
        if call.args[0] == "AMCAST.MOVE" && *answer.bytes == *b":1\r\n" {
            self.moving = KeyMove::Over;
        }
        let form = match call.args[0].as_str() {
            "EXEC" => AnswerForm::All,
            BATCH => AnswerForm::Batch,
            name if name.starts_with("AMCAST.") => AnswerForm::Other,
            _ => AnswerForm::Same,
        };
        returned(&form, Ok(answer)).map_or(AnswerMeaning::Unknown, AnswerMeaning::Out)
    }

    fn judge(&self, seen: &SeenCalls<'_>) -> Vec<(&'static str, PropertyVerdict)> {
        let budget = service::Budget::default();
        let mut verdicts = match seen.level {
            ReadLevel::Sequential => {
                vec![("sequential", service::sequential(seen.history, budget))]
            }
            ReadLevel::Ordered | ReadLevel::Index => {
                let verdict = service::linearizable(seen.history, budget);
                vec![(ServiceJudge::Linearizable.name(), verdict)]
            }
        };
        verdicts.extend(seen.exactly_once());
        verdicts.push((ServiceJudge::Expiry.name(), expiry::judge(seen)));
        verdicts.push((ServiceJudge::Memory.name(), memory::judge(seen)));
        verdicts
    }
}
