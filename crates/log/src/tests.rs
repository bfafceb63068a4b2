//! The log against a simple model, in the executor and with the store beside it.

use super::*;
use crate::store_and_log::StoreAndLog;
use amcast_core::rng::Rng;
use amcast_core::{Gid, MsgId, Pid};
use amcast_kv::{Kv, encode_args};
use amcast_smr::envelope::{Envelope, Stamp};
use amcast_smr::executor::{DeliveryResult, Executor, ExecutorFull, ExecutorState, Limits};
use std::collections::BTreeMap;

const SHARDS: usize = 3;
const MAP: SlotMap = SlotMap::new(SHARDS);

/// The bound on a shard in these tests.
const SHARD_BYTES: usize = 20_000;

fn in_memory() -> StoreAndLog {
    StoreAndLog::new(Kv::new(SHARDS, 1), Logs::new(SHARDS, SHARDS * SHARD_BYTES))
}

/// Bounded in the same way, with little in memory and small segments.
fn on_disk() -> StoreAndLog {
    let disk = LogDisk::new(&std::env::temp_dir(), 3000).expect("files can be made");
    let mut logs = Logs::new(SHARDS, SHARDS * SHARD_BYTES);
    logs.disk = Some(disk.with_small(4000, 200));
    StoreAndLog::new(Kv::new(SHARDS, 1), logs)
}

/// A node with its shards' streams.
struct LogTestNode {
    machine: fn() -> StoreAndLog,
    executor: Executor<StoreAndLog>,
    next: [u64; SHARDS],
    answers: BTreeMap<u64, Vec<u8>>,
    seq: u64,
}

impl LogTestNode {
    fn new() -> Self {
        Self::with(in_memory)
    }

    fn with(machine: fn() -> StoreAndLog) -> Self {
        let executor = Executor::new(machine(), SHARDS, Limits::default());
        Self { machine, executor, next: [1; SHARDS], answers: BTreeMap::new(), seq: 0 }
    }

    fn deliver(&mut self, shard: Gid, seq: u64, dst: GroupSet, payload: &[u8]) {
        let (position, answers) = (self.next[shard.index()], &mut self.answers);
        let id = MsgId { sender: Pid(9), seq };
        let taken: Result<DeliveryResult, ExecutorFull> =
            self.executor.deliver(shard, position, id, dst, payload, &mut |a| {
                answers.insert(a.id.seq, a.bytes.to_vec());
            });
        assert_eq!(taken, Ok(DeliveryResult::Taken));
        self.next[shard.index()] += 1;
    }

    /// Has a command delivered in all its shards; the answer.
    fn send(&mut self, dst: GroupSet, payload: &[u8]) -> Vec<u8> {
        self.seq += 1;
        let seq = self.seq;
        dst.iter().for_each(|shard| self.deliver(shard, seq, dst, payload));
        self.answers.remove(&seq).expect("it was answered")
    }

    fn run(&mut self, command: &LogCommand<'_>) -> LogAnswer {
        let (request, read_only) = (self.seq + 1, !command.writes());
        let payload = payload(request, command, read_only);
        let answer = self.send(Logs::destinations(MAP, command), &payload);
        LogAnswer::decode(&answer).expect("an answer of the log")
    }

    fn append(&mut self, log: &str, value: &[u8]) -> LogAnswer {
        self.run(&LogCommand::Append(vec![Addition { log: log.as_bytes(), value }]))
    }

    fn extent(&mut self, log: &str) -> Option<Extent> {
        match self.run(&LogCommand::Extents(vec![log.as_bytes()])) {
            LogAnswer::Extents(extents) => extents[0],
            other => panic!("{other:?}"),
        }
    }

    fn stream(&mut self, piece: usize, mut meanwhile: impl FnMut(&mut Self)) -> Vec<u8> {
        let mut out = Vec::new();
        self.executor.capture();
        while self.executor.piece(piece, &mut out) {
            meanwhile(self);
        }
        out
    }

    /// A node that was given this one's state, at the position where the snapshot was made.
    fn successor(&self, mut stream: &[u8], next: [u64; SHARDS], seq: u64) -> Self {
        let machine = (self.machine)();
        let state = ExecutorState::read(&machine, SHARDS, &mut stream).expect("it was just given");
        let mut it = Self::with(self.machine);
        drop(it.executor.adopt(state));
        (it.next, it.seq) = (next, seq);
        it
    }
}

fn payload(request: u64, command: &LogCommand<'_>, read_only: bool) -> Vec<u8> {
    let open_from = request.saturating_sub(20).max(1);
    let stamp = Stamp { wall_ms: request, host_ms: request };
    let mut bytes = Vec::new();
    Envelope { session: 1, request, open_from, stamp, read_only }.encode(&mut bytes);
    command.encode(&mut bytes);
    bytes
}

/// A log of each shard.
fn log(shard: u8) -> String {
    (0..).map(|i| format!("log{i}")).find(|l| MAP.of_key(l.as_bytes()) == Gid(shard)).unwrap()
}

fn positions(answer: LogAnswer) -> Vec<u64> {
    match answer {
        LogAnswer::Appended { positions, .. } => positions,
        other => panic!("{other:?}"),
    }
}

/// The expected log: each value ever appended, how many are trimmed, and its incarnation.
type ModelLog = (Vec<Vec<u8>>, usize, u64);

/// The expected logs.
#[derive(Clone, Default)]
struct ModelLogs {
    logs: BTreeMap<String, ModelLog>,
    deleted: [u64; SHARDS],
    /// The counted size of a log and a value, besides their own bytes.
    counts: (usize, usize),
}

impl ModelLogs {
    fn held(&self, shard: Gid) -> usize {
        let here = self.logs.iter().filter(|(name, _)| MAP.of_key(name.as_bytes()) == shard);
        let (log, value) = self.counts;
        let each = here.map(|(name, (values, first, _))| {
            let left = values[*first..].iter();
            log + 2 * name.len() + left.map(|v| value + v.len()).sum::<usize>()
        });
        each.sum()
    }

    fn extent(&self, name: &str) -> Option<Extent> {
        self.logs.get(name).map(|(values, first, incarnation)| Extent {
            first: *first as u64,
            next: values.len() as u64,
            bytes: values[*first..].iter().map(|v| v.len() as u64).sum(),
            incarnation: *incarnation,
        })
    }

    /// Appends, and takes all back if a shard has no room for it.
    fn append(&mut self, additions: &[(String, Vec<u8>)]) -> Option<Vec<u64>> {
        let (mut positions, before) = (Vec::new(), self.logs.clone());
        for (name, value) in additions {
            let incarnation = self.deleted[MAP.of_key(name.as_bytes()).index()];
            let fresh = || (Vec::new(), 0, incarnation);
            let (values, ..) = self.logs.entry(name.clone()).or_insert_with(fresh);
            positions.push(values.len() as u64);
            values.push(value.clone());
        }
        if MAP.all().iter().any(|shard| self.held(shard) > SHARD_BYTES) {
            self.logs = before;
            return None;
        }
        Some(positions)
    }

    fn trim(&mut self, name: &str, before: u64) {
        if let Some((values, first, _)) = self.logs.get_mut(name) {
            *first = (*first).max(values.len().min(before as usize));
        }
    }

    fn delete(&mut self, name: &str) {
        if self.logs.remove(name).is_some() {
            self.deleted[MAP.of_key(name.as_bytes()).index()] += 1;
        }
    }

    fn read(&self, name: &str, from: u64, values_max: u32, bytes_max: u32) -> LogAnswer {
        let Some(extent) = self.extent(name) else {
            return LogAnswer::Not(Rejection::Unknown { check: 0 });
        };
        if from < extent.first {
            return LogAnswer::Not(Rejection::Gone { first: extent.first });
        }
        let (mut values, mut bytes) = (Vec::new(), 0);
        for value in self.logs[name].0.iter().skip(from as usize).take(values_max as usize) {
            if bytes >= bytes_max as usize && !values.is_empty() {
                break;
            }
            bytes += value.len() + 8;
            values.push(value.clone());
        }
        LogAnswer::Values { from, extent, values }
    }
}

fn random_value(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.chance(100_000) { rng.below(3000) } else { rng.below(40) };
    (0..len).map(|_| rng.word() as u8).collect()
}

/// A random command, sent to the node and told to the model.
fn step(node: &mut LogTestNode, model: &mut ModelLogs, rng: &mut Rng) {
    let name = format!("l{}", rng.below(9));
    let bytes = name.as_bytes();
    match rng.below(40) {
        0..=19 => {
            let count = if rng.chance(500_000) { 1 } else { 1 + rng.below(4) };
            let pick = |_| (format!("l{}", rng.below(9)), random_value(rng));
            let additions: Vec<_> = (0..count).map(pick).collect();
            let each = additions.iter().map(|(l, v)| Addition { log: l.as_bytes(), value: v });
            let answer = node.run(&LogCommand::Append(each.collect()));
            match model.append(&additions) {
                Some(expected) => assert_eq!(positions(answer), expected),
                None => {
                    assert!(matches!(answer, LogAnswer::Not(Rejection::Full { most: 20_000, .. })))
                }
            }
        }
        20..=23 => {
            let before = rng.below(model.extent(&name).map_or(3, |e| e.next + 3));
            let answer = node.run(&LogCommand::Trim { log: bytes, before });
            model.trim(&name, before);
            match model.extent(&name) {
                Some(expected) => {
                    assert!(
                        matches!(answer, LogAnswer::Trimmed { extent, .. } if extent == expected)
                    );
                }
                None => assert!(matches!(answer, LogAnswer::Not(Rejection::Unknown { .. }))),
            }
        }
        24 => {
            let answer = node.run(&LogCommand::Delete { log: bytes });
            match model.extent(&name) {
                Some(expected) => {
                    assert!(
                        matches!(answer, LogAnswer::Deleted { extent, .. } if extent == expected)
                    );
                }
                None => assert!(matches!(answer, LogAnswer::Not(Rejection::Unknown { .. }))),
            }
            model.delete(&name);
        }
        25..=28 => {
            let names: Vec<String> = (0..4).map(|_| format!("l{}", rng.below(9))).collect();
            let answer =
                node.run(&LogCommand::Extents(names.iter().map(|n| n.as_bytes()).collect()));
            let expected = names.iter().map(|n| model.extent(n)).collect();
            assert_eq!(answer, LogAnswer::Extents(expected));
        }
        29..=32 => {
            let (after, most) = (format!("l{}", rng.below(9)), 1 + rng.below(6) as u16);
            let answer = node.run(&LogCommand::List { after: after.as_bytes(), most });
            let behind = model.logs.keys().filter(|name| **name > after).take(usize::from(most));
            let expected = behind.map(|n| (n.clone().into_bytes(), model.extent(n).unwrap()));
            assert_eq!(answer, LogAnswer::Listed(expected.collect()));
        }
        _ => {
            let from = rng.below(model.extent(&name).map_or(2, |e| e.next + 2));
            let (values_max, bytes_max) = (1 + rng.below(20) as u32, 1 + rng.below(300) as u32);
            let answer = node.run(&LogCommand::Read { log: bytes, from, values_max, bytes_max });
            assert_eq!(answer, model.read(&name, from, values_max, bytes_max));
        }
    }
}

#[test]
fn random_commands_do_what_a_simple_model_does_and_snapshots_hold_their_moment() {
    for seed in 0..12 {
        let mut rng = Rng::stream(seed, "log");
        let (machine, counts): (fn() -> StoreAndLog, _) =
            if seed % 2 == 0 { (in_memory, (256, 48)) } else { (on_disk, (512, 8)) };
        let (mut node, mut model) =
            (LogTestNode::with(machine), ModelLogs { counts, ..ModelLogs::default() });
        for _ in 0..60 {
            (0..30).for_each(|_| step(&mut node, &mut model, &mut rng));
            let (next, seq, then) = (node.next, node.seq, model.clone());
            let piece = 1 + rng.below(900) as usize;
            let stream = node.stream(piece, |node| {
                (0..rng.below(4)).for_each(|_| step(node, &mut model, &mut rng));
            });
            assert!((0..SHARDS).all(|g| node.executor.holds(Gid(g as u8)).kept == 0));
            // A node that is given the state answers what this one did at that moment.
            let mut other = node.successor(&stream, next, seq);
            for name in (0..9).map(|i| format!("l{i}")) {
                assert_eq!(other.extent(&name), then.extent(&name), "seed {seed}");
                let from = then.extent(&name).map_or(0, |e| e.first);
                let read = |m| LogCommand::Read {
                    log: name.as_bytes(),
                    from,
                    values_max: m,
                    bytes_max: READ_BYTES_MAX,
                };
                let expected = then.read(&name, from, 5000, READ_BYTES_MAX);
                assert_eq!(other.run(&read(5000)), expected, "seed {seed}, {name}");
            }
            if rng.chance(300_000) {
                (node, model) = (node.successor(&stream, next, seq), then);
            }
        }
    }
}

#[test]
fn a_repeated_append_takes_effect_once_and_gets_the_first_answer_also_from_a_new_node() {
    let (mut node, name) = (LogTestNode::new(), log(1));
    let command = LogCommand::Append(vec![Addition { log: name.as_bytes(), value: b"x" }]);
    assert_eq!(positions(node.append(&name, b"before")), [0]);
    let (dst, bytes) = (Logs::destinations(MAP, &command), payload(7, &command, false));
    let first = node.send(dst, &bytes);
    assert_eq!(positions(LogAnswer::decode(&first).unwrap()), [1]);
    assert_eq!(node.send(dst, &bytes), first);
    let stream = node.stream(100, |_| {});
    let mut other = node.successor(&stream, node.next, node.seq);
    assert_eq!(other.send(dst, &bytes), first);
    assert_eq!(other.extent(&name), Some(Extent { first: 0, next: 2, bytes: 7, incarnation: 0 }));
    // A number that was used for another command shows by the check.
    let another = LogCommand::Append(vec![Addition { log: name.as_bytes(), value: b"y" }]);
    let mut body = Vec::new();
    another.encode(&mut body);
    let answer = other.send(dst, &payload(7, &another, false));
    let Some(LogAnswer::Appended { check, .. }) = LogAnswer::decode(&answer) else { panic!() };
    assert_ne!(check, command::check(&body));
}

#[test]
fn nothing_of_an_append_to_two_shards_is_seen_before_both_have_ordered_it() {
    let (a, b) = (log(0), log(1));
    let (la, lb) = (a.as_bytes(), b.as_bytes());
    let mut node = LogTestNode::new();
    let both = LogCommand::Append(vec![
        Addition { log: la, value: b"1" },
        Addition { log: lb, value: b"1" },
    ]);
    let dst = Logs::destinations(MAP, &both);
    assert_eq!(dst, GroupSet::one(Gid(0)).with(Gid(1)));
    let bytes = payload(1, &both, false);
    let send = |node: &mut LogTestNode, shard: u8, seq: u64, command: &LogCommand<'_>| {
        let dst = Logs::destinations(MAP, command);
        node.deliver(Gid(shard), seq, dst, &payload(seq, command, true));
    };
    node.deliver(Gid(0), 1, dst, &bytes);
    send(&mut node, 0, 2, &LogCommand::Extents(vec![la]));
    send(&mut node, 1, 3, &LogCommand::Extents(vec![lb]));
    assert_eq!(node.answers.keys().collect::<Vec<_>>(), [&3], "the look at a waits");
    assert_eq!(LogAnswer::decode(&node.answers[&3]), Some(LogAnswer::Extents(vec![None])));
    // Another log of the shard waits, too: whether there is room is decided in order. A read does not.
    let third = (0..).map(|i| format!("other{i}")).find(|l| MAP.of_key(l.as_bytes()) == Gid(0));
    let third = third.unwrap();
    let append = LogCommand::Append(vec![Addition { log: third.as_bytes(), value: b"2" }]);
    node.deliver(Gid(0), 4, GroupSet::one(Gid(0)), &payload(4, &append, false));
    send(&mut node, 0, 5, &LogCommand::Extents(vec![third.as_bytes()]));
    assert_eq!(node.answers.len(), 1);
    node.deliver(Gid(1), 1, dst, &bytes);
    assert_eq!(node.answers.len(), 5);
    let one = Some(Extent { first: 0, next: 1, bytes: 1, incarnation: 0 });
    assert_eq!(LogAnswer::decode(&node.answers[&2]), Some(LogAnswer::Extents(vec![one])));
}

#[test]
fn a_full_shard_refuses_all_of_an_append_says_so_and_a_trim_makes_room() {
    let (full, free) = (log(0), log(2));
    let mut node = LogTestNode::new();
    let mut count = 0;
    let refused = loop {
        match node.append(&full, &[7; 1000]) {
            LogAnswer::Appended { .. } => count += 1,
            other => break other,
        }
    };
    assert!(matches!(refused, LogAnswer::Not(Rejection::Full { most: 20_000, .. })), "{refused:?}");
    assert_eq!(count, 18, "18 values and a log have 19125 bytes, 19 have 20173");
    let both = LogCommand::Append(vec![
        Addition { log: free.as_bytes(), value: b"" },
        Addition { log: full.as_bytes(), value: &[7; 1000] },
    ]);
    assert!(matches!(node.run(&both), LogAnswer::Not(Rejection::Full { .. })));
    assert_eq!(node.extent(&free), None, "nothing of it was appended");
    assert_eq!(positions(node.append(&free, b"there is room elsewhere")), [0]);
    node.run(&LogCommand::Trim { log: full.as_bytes(), before: 2 });
    assert_eq!(positions(node.run(&both)), [1, 18]);
    assert_eq!(node.extent(&full).map(|e| (e.first, e.next)), Some((2, 19)));
}

/// A node whose logs are in files, with these bounds for each shard.
fn filed(memory_bytes: usize, disk_bytes: usize) -> LogTestNode {
    let (memory, disk) = (SHARDS * memory_bytes, SHARDS * disk_bytes);
    let logs = Logs::on_disk(SHARDS, memory, disk, &std::env::temp_dir());
    let machine = StoreAndLog::new(Kv::new(SHARDS, 1), logs.expect("files can be made"));
    let mut node = LogTestNode::new();
    node.executor = Executor::new(machine, SHARDS, Limits::default());
    node
}

#[test]
fn in_files_values_have_the_bound_of_the_disk_and_logs_one_of_memory() {
    let (mut node, name) = (filed(20_000, 100_000), log(1));
    // Of 48 bytes of memory for each, there would be room for 364 of them.
    let append = LogCommand::Append(vec![Addition { log: name.as_bytes(), value: b"xy" }; 100]);
    let last = (0..).find_map(|n| match node.run(&append) {
        LogAnswer::Appended { .. } => None,
        other => Some((n, other)),
    });
    let (count, refused) = last.unwrap();
    assert!(
        matches!(refused, LogAnswer::Not(Rejection::Full { most: 100_000, .. })),
        "{refused:?}"
    );
    assert_eq!(count, 99, "a log and 9900 values of 10 bytes have 99520");
    node.run(&LogCommand::Trim { log: name.as_bytes(), before: 100 });
    assert_eq!(positions(node.run(&append))[0], 9900);
    let mut node = filed(20_000, 1_000_000);
    let names = (0..).map(|n| format!("l{n}")).filter(|l| MAP.of_key(l.as_bytes()) == Gid(1));
    let names: Vec<String> = names.take(40).collect();
    let last = (0..).find_map(|n| match node.append(&names[n], b"x") {
        LogAnswer::Appended { .. } => None,
        other => Some((n, other)),
    });
    let (count, refused) = last.unwrap();
    assert!(
        matches!(refused, LogAnswer::Not(Rejection::TooMany { most: 17_500, .. })),
        "{refused:?}"
    );
    assert_eq!(count, 33, "33 logs have 512 bytes and twice their name each");
    node.run(&LogCommand::Delete { log: names[0].as_bytes() });
    assert_eq!(positions(node.append(&names[33], b"x")), [0]);
}

#[test]
fn a_log_that_is_deleted_leaves_nothing_and_its_name_begins_anew() {
    for mut node in [LogTestNode::new(), filed(100_000, 20_000)] {
        let (name, other) = (log(1), log(0));
        let fill = |node: &mut LogTestNode| {
            let full =
                |answer: &LogAnswer| matches!(answer, LogAnswer::Not(Rejection::Full { .. }));
            (0..).find(|_| full(&node.append(&name, &[7; 1000]))).unwrap()
        };
        let count = fill(&mut node);
        let gone = node.run(&LogCommand::Delete { log: name.as_bytes() });
        let LogAnswer::Deleted { extent, .. } = gone else { panic!("{gone:?}") };
        assert_eq!((extent.next, extent.bytes), (count, 1000 * count));
        assert_eq!(node.extent(&name), None);
        let read =
            LogCommand::Read { log: name.as_bytes(), from: 0, values_max: 9, bytes_max: 1000 };
        assert_eq!(node.run(&read), LogAnswer::Not(Rejection::Unknown { check: 0 }));
        for command in [
            LogCommand::Delete { log: name.as_bytes() },
            LogCommand::Trim { log: name.as_bytes(), before: 3 },
        ] {
            assert!(matches!(node.run(&command), LogAnswer::Not(Rejection::Unknown { .. })));
        }
        assert_eq!(fill(&mut node), count, "all of the room is there again, from position 0");
        assert_eq!(node.extent(&name).map(|e| e.incarnation), Some(1));
        node.append(&other, b"x");
        assert_eq!(node.extent(&other).map(|e| e.incarnation), Some(0), "of another shard");
    }
}

#[test]
fn a_repeated_append_makes_no_deleted_log_anew_and_a_repeated_delete_takes_no_other() {
    let (mut node, name) = (LogTestNode::new(), log(1));
    let append = LogCommand::Append(vec![Addition { log: name.as_bytes(), value: b"x" }]);
    let delete = LogCommand::Delete { log: name.as_bytes() };
    let dst = Logs::destinations(MAP, &append);
    let (append, delete) = (payload(1, &append, false), payload(2, &delete, false));
    let (appended, deleted) = (node.send(dst, &append), node.send(dst, &delete));
    assert_eq!(node.send(dst, &append), appended);
    assert_eq!(node.extent(&name), None);
    assert_eq!(positions(node.append(&name, b"y")), [0]);
    let stream = node.stream(100, |_| {});
    let mut other = node.successor(&stream, node.next, node.seq);
    assert_eq!(other.send(dst, &delete), deleted);
    let now = Extent { first: 0, next: 1, bytes: 1, incarnation: 1 };
    assert_eq!(other.extent(&name), Some(now));
}

#[test]
fn trims_and_deletes_of_logs_that_there_are_not_leave_nothing_in_a_cut() {
    let mut shard = LogShard::new(ValueStorage::new(None), None);
    shard.append(b"there", b"value");
    shard.begin_snapshot();
    for n in 0..100_u64 {
        assert_eq!(shard.trim(&n.to_le_bytes(), 1), None);
        assert_eq!(shard.delete(&n.to_le_bytes()), None);
    }
    assert_eq!(shard.kept_aside(), 0);
    shard.delete(b"there");
    assert!(shard.kept_aside() > 0);
}

#[test]
fn the_store_and_the_log_share_the_order_and_nothing_else() {
    let mut node = LogTestNode::new();
    let (name, shard) = (log(1), GroupSet::one(Gid(1)));
    let kv = |node: &mut LogTestNode, request: u64, words: &[&[u8]]| {
        let stamp = Stamp { wall_ms: request, host_ms: request };
        let mut bytes = Vec::new();
        let head = Envelope { session: 2, request, open_from: 1, stamp, read_only: false };
        head.encode(&mut bytes);
        encode_args(words, &mut bytes);
        String::from_utf8(node.send(shard, &bytes)).unwrap()
    };
    assert_eq!(kv(&mut node, 1, &[b"SET", name.as_bytes(), b"key"]), "+OK\r\n");
    assert_eq!(positions(node.append(&name, b"value")), [0]);
    assert_eq!(node.executor.holds(Gid(1)).items, 1, "a log is no key");
    let stream = node.stream(70, |node| {
        kv(node, 2, &[b"DEL", name.as_bytes()]);
        node.run(&LogCommand::Trim { log: name.as_bytes(), before: 1 });
    });
    let mut other = node.successor(&stream, [1, 3, 1], 90);
    assert_eq!(kv(&mut other, 9, &[b"GET", name.as_bytes()]), "$3\r\nkey\r\n");
    assert_eq!(other.extent(&name), Some(Extent { first: 0, next: 1, bytes: 5, incarnation: 0 }));
    assert_eq!(kv(&mut node, 10, &[b"GET", name.as_bytes()]), "_\r\n");
    assert_eq!(node.extent(&name), Some(Extent { first: 1, next: 1, bytes: 0, incarnation: 0 }));
    // A refusal is in the language of the client.
    assert!(
        kv(&mut node, 5000, &[b"GET", b"x"])
            .starts_with("-ERR too many commands of this session are open")
    );
    let mut late = payload(5000, &LogCommand::Trim { log: name.as_bytes(), before: 0 }, false);
    late[18..26].copy_from_slice(&1_u64.to_le_bytes());
    let answer = LogAnswer::decode(&node.send(shard, &late));
    assert_eq!(answer, Some(LogAnswer::Not(Rejection::Refused(Refusal::Window))));
}

#[test]
fn nonsense_and_wrong_shards_are_refused_and_never_panic() {
    let mut rng = Rng::stream(5, "nonsense");
    let mut node = LogTestNode::new();
    let name = log(1);
    let good = payload(1, &LogCommand::Trim { log: name.as_bytes(), before: 0 }, true);
    let elsewhere = node.send(GroupSet::one(Gid(2)), &good);
    assert_eq!(LogAnswer::decode(&elsewhere), Some(LogAnswer::Not(Rejection::Malformed)));
    let append = Addition { log: name.as_bytes(), value: b"abcdef" };
    let good = payload(1, &LogCommand::Append(vec![append; 3]), true);
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..1 + rng.below(3) {
            let at = Envelope::BYTES
                + 4
                + rng.below((bytes.len() - Envelope::BYTES - 4) as u64) as usize;
            bytes[at] = rng.word() as u8;
        }
        bytes.truncate(Envelope::BYTES + 4 + rng.below((bytes.len() - 45) as u64) as usize);
        let answer = node.send(GroupSet::first(SHARDS), &bytes);
        assert!(LogAnswer::decode(&answer).is_some(), "{answer:?}");
    }
}

#[test]
fn a_state_of_before_logs_were_told_apart_is_read() {
    let mut values = b"\x01".to_vec();
    let word = |word: u64, to: &mut Vec<u8>| to.extend_from_slice(&word.to_le_bytes());
    let bytes = |bytes: &[u8], to: &mut Vec<u8>| {
        word(bytes.len() as u64, to);
        to.extend_from_slice(bytes);
    };
    bytes(b"name", &mut values);
    [4, 6].iter().for_each(|position| word(*position, &mut values));
    [&b"x"[..], b"yz"].iter().for_each(|value| bytes(value, &mut values));
    values.push(0);
    let mut stream = b"amKV\x09\x01\0\0".to_vec();
    stream.extend_from_slice(&(values.len() as u32).to_le_bytes());
    stream.extend_from_slice(&values);
    let sum = crc32c::crc32c(&stream);
    stream.extend_from_slice(&sum.to_le_bytes());
    let mut bytes = &stream[..];
    let (mut source, _) = StreamReader::begin(&mut bytes).unwrap();
    let mut shard = LogShard::new(ValueStorage::new(None), None);
    assert_eq!(shard.read_cut(&mut source), Ok(()));
    assert_eq!(shard.extent(b"name"), Some(Extent { first: 4, next: 6, bytes: 3, incarnation: 0 }));
}
