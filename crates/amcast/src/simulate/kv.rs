//! The key-value store under simulated clients.

use super::{Call, Returned, Simulated, Workload};
use amcast_check::{History, PropertyVerdict, service};
use amcast_core::ServiceAnswer;
use amcast_core::rng::Rng;
use amcast_kv::{
    HashSeed, Kv, Partitions, destinations, encode_args, encode_epoch, partitions, registry,
    stamp_refusal,
};
use amcast_node::service::calls::{Form, returned, spoken};

/// Keys of a run: few, so that clients meet.
const KEYS: u64 = 6;

impl Simulated for Kv {
    fn over(shards: usize) -> Self {
        Self::over(Partitions::by_slot(shards).into(), HashSeed::Fixed(1))
    }
}

/// Clients that write and read the same few keys.
pub struct KvWorkload {
    map: Partitions,
    values: u64,
}

impl KvWorkload {
    /// Of a store of so many shards.
    pub fn new(shards: usize) -> Self {
        Self { map: Partitions::by_slot(shards), values: 0 }
    }

    fn call(&self, args: &[&str]) -> Call {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let command = registry::lookup(args[0]).expect("a command of the store");
        let dst = destinations(command, &args, &self.map).expect("proper arguments");
        let mut body = Vec::new();
        encode_epoch(self.map.epoch(), &mut body);
        encode_args(&args, &mut body);
        let read_only = !command.writes();
        let (op, form) = spoken(&args, read_only).expect("a command of the language");
        debug_assert_eq!(form, Form::Same);
        Call { dst, body, read_only, op }
    }
}

impl Workload for KvWorkload {
    type Machine = Kv;

    fn next(&mut self, rng: &mut Rng) -> Call {
        self.values += 1;
        let (a, b) = (rng.below(KEYS), rng.below(KEYS));
        let (one, value) = (format!("k{a}"), self.values.to_string());
        let other = format!("k{}", if a == b { (a + 1) % KEYS } else { b });
        let counter = format!("n{}", rng.below(2));
        match rng.below(12) {
            0..=2 => self.call(&["SET", &one, &value]),
            3 | 4 => self.call(&["GET", &one]),
            5 | 6 => self.call(&["INCR", &counter]),
            7 => self.call(&["APPEND", &one, "x"]),
            8 => self.call(&["MSET", &one, &value, &other, &value]),
            9 | 10 => self.call(&["MGET", &one, &other, &counter]),
            _ => self.call(&["DEL", &one, &other]),
        }
    }

    fn last(&mut self) -> Call {
        let keys: Vec<String> = (0..KEYS).map(|k| format!("k{k}")).collect();
        let mut args = vec!["MGET", "n0", "n1"];
        args.extend(keys.iter().map(|key| &**key));
        self.call(&args)
    }

    fn returned(&self, answer: &ServiceAnswer<'_>) -> Returned {
        if let Some((now_ms, _)) = stamp_refusal::of_refusal(&answer.bytes) {
            return Returned::Again { now_ms: Some(now_ms) };
        }
        if partitions::is_refusal(&answer.bytes) {
            return Returned::Again { now_ms: None };
        }
        returned(&Form::Same, Ok(answer)).map_or(Returned::Unknown, Returned::Out)
    }

    fn judge(&self, history: &History) -> Vec<(&'static str, PropertyVerdict)> {
        let budget = service::Budget::default();
        vec![
            ("linearizable", service::linearizable(history, budget)),
            ("exactly-once", service::exactly_once(history)),
        ]
    }
}
