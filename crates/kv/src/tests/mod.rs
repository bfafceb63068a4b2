//! The executor with the store as its machine.

mod batch;
mod budget;
mod clocks;
mod collisions;
mod copies;
mod digests;
mod idle;
mod moves;
mod outcomes;
mod parts;
mod pool;
mod reads;
mod skips;
mod snapshot;
mod walks;
mod watches;

use crate::answers::assert_words_tell;
use crate::{
    Kv, Partitions, SlotMap, Store, decode_args, destinations, encode_args, registry, stamp_refusal,
};
use amcast_core::rng::Rng;
use amcast_core::{Gid, GroupSet, MsgId, Outcome, Pid};
use amcast_smr::executor::inspection::{self, LEAP_MS};
use amcast_smr::executor::{AHEAD_MAX_MS, UNORDERED};
use amcast_smr::machine::ShardPosition;
use amcast_smr::{
    CommandAnswer, DeliveryResult, Envelope, Executor, ExecutorFull, ExecutorState, Limits,
    LocalRead, SessionWrite, Stamp, WakeHandle,
};
use std::sync::Arc;

const SHARDS: usize = 3;

/// A command with all that a node needs to deliver it.
#[derive(Clone)]
struct TestCast {
    id: MsgId,
    dst: GroupSet,
    payload: Vec<u8>,
}

/// A command that was sent when both clocks had `now_ms`.
fn cast(seq: u64, request: u64, now_ms: u64, text: &str) -> TestCast {
    sent_at(Stamp { wall_ms: now_ms, host_ms: now_ms }, seq, request, text)
}

fn sent_at(stamp: Stamp, seq: u64, request: u64, text: &str) -> TestCast {
    let args: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
    let command = registry::lookup(args[0]).expect("a known command");
    let dst = destinations(command, &args, &Partitions::by_slot(SHARDS)).expect("proper arguments");
    let mut payload = Vec::new();
    let read_only = !command.writes();
    let open_from = request.saturating_sub(20).max(1);
    Envelope { session: 1, request, open_from, stamp, read_only }.encode(&mut payload);
    encode_args(&args, &mut payload);
    TestCast { id: MsgId { sender: Pid(9), seq }, dst, payload }
}

/// The same of several commands that go to the same shards, as a batch. It is a read if the first one is.
fn batch_cast(seq: u64, request: u64, now_ms: u64, lines: &[String]) -> TestCast {
    let mut all = cast(seq, request, now_ms, &lines[0]);
    for line in &lines[1..] {
        let one = cast(seq, request, now_ms, line);
        assert_eq!(one.dst, all.dst, "{line}");
        crate::batch::push(&mut all.payload, Envelope::BYTES, &one.payload[Envelope::BYTES..]);
    }
    all
}

/// A node, and the answers that it gave.
struct TestNode {
    executor: Executor<Kv>,
    next: [u64; SHARDS],
    answers: Vec<(u64, String)>,
}

/// The result of a read that was executed.
const ANSWERED: LocalRead = LocalRead::Answered(Outcome::Executed);

impl TestNode {
    fn new() -> Self {
        inspection::keep_less();
        let executor = Executor::new(Kv::new(SHARDS, 1), SHARDS, Limits::default());
        Self { executor, next: [1; SHARDS], answers: Vec::new() }
    }

    fn deliver(&mut self, shard: u8, c: &TestCast) -> Result<DeliveryResult, ExecutorFull> {
        let (shard, answers) = (Gid(shard), &mut self.answers);
        let position = self.next[shard.index()];
        let outcome = self.executor.deliver(shard, position, c.id, c.dst, &c.payload, &mut |a| {
            assert_words_tell(a.outcome, a.bytes);
            answers.push((a.id.seq, String::from_utf8_lossy(a.bytes).into_owned()));
        });
        self.next[shard.index()] += u64::from(outcome.is_ok());
        outcome
    }

    /// Delivers in all destinations, one after the other.
    fn run(&mut self, c: &TestCast) -> String {
        c.dst.iter().for_each(|g| assert_eq!(self.deliver(g.0, c), Ok(DeliveryResult::Taken)));
        self.answers.last().expect("an answer").1.clone()
    }

    /// The state of this moment, as one stream.
    fn stream(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.executor.capture();
        while self.executor.piece(1000, &mut out) {}
        out
    }

    /// Continues as a new node with this one's state.
    fn restart(&mut self) {
        let bytes = self.stream();
        self.executor = TestNode::new().executor;
        drop(self.executor.adopt(read(&bytes).unwrap()));
    }
}

fn read(mut bytes: &[u8]) -> Result<ExecutorState<Kv>, amcast_smr::machine::Corrupt> {
    ExecutorState::read(&Kv::new(SHARDS, 1), SHARDS, &mut bytes)
}

/// All that a snapshot of an executor should hold.
fn dump(executor: &Executor<Kv>) -> String {
    inspection::dump(executor, Store::dump)
}

/// The shards' data alone.
fn dump_parts(executor: &Executor<Kv>) -> String {
    inspection::dump_parts(executor, Store::dump)
}

/// A key of each shard.
fn key(shard: u8) -> String {
    let map = SlotMap::new(SHARDS);
    (0..).map(|i| format!("k{i}")).find(|k| map.of_key(k.as_bytes()) == Gid(shard)).unwrap()
}

#[test]
fn nothing_of_a_command_is_seen_before_all_its_shards_delivered_it() {
    let (x, y) = (key(0), key(1));
    let mut node = TestNode::new();
    let write = cast(1, 1, 0, &format!("MSET {x} 1 {y} 1"));
    assert_eq!(node.deliver(0, &write), Ok(DeliveryResult::Taken));
    node.deliver(0, &cast(2, 2, 0, &format!("GET {x}"))).unwrap();
    node.deliver(1, &cast(3, 3, 0, &format!("GET {y}"))).unwrap();
    assert_eq!(node.answers, [(3, "_\r\n".into())], "the read of x waits for shard 1");
    assert_eq!(node.executor.applied(Gid(0)), 0);
    node.deliver(1, &write).unwrap();
    let answers: Vec<_> = node.answers.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(answers, [3, 1, 2]);
    assert_eq!(node.answers[2].1, "$1\r\n1\r\n");
    assert_eq!((node.executor.applied(Gid(0)), node.executor.applied(Gid(1))), (2, 2));
}

#[test]
fn what_is_applied_ends_where_a_command_was_delivered_also_in_streams_with_gaps() {
    let (x, y) = (key(0), key(1));
    let mut node = TestNode::new();
    node.next = [30, 30, 30];
    node.run(&cast(1, 1, 0, &format!("SET {x} 0")));
    let write = cast(2, 2, 0, &format!("MSET {x} 1 {y} 1"));
    for position in [37, 52] {
        node.next[0] = position;
        let c = if position == 37 { write.clone() } else { cast(3, 3, 0, &format!("GET {x}")) };
        node.deliver(0, &c).unwrap();
        assert_eq!(node.executor.applied(Gid(0)), 30, "no command ends at {}", position - 1);
    }
    node.restart();
    assert_eq!(node.executor.applied(Gid(0)), 30);
    node.deliver(1, &write).unwrap();
    assert_eq!((node.executor.applied(Gid(0)), node.executor.applied(Gid(1))), (52, 30));
}

#[test]
fn what_expired_is_freed_behind_everything_that_can_still_see_it() {
    let (x, y) = (key(0), key(1));
    let mut node = TestNode::new();
    node.run(&cast(1, 1, 0, &format!("SET {x} v PX 100")));
    assert_eq!(node.executor.holds(Gid(0)).due_ms, Some(100));
    let look = cast(2, 2, 50, &format!("EXISTS {x} {y}"));
    node.deliver(0, &look).unwrap();
    node.deliver(0, &cast(3, 3, 500, "amcast.tidy 0")).unwrap();
    assert_eq!(node.executor.holds(Gid(0)).items, 1, "it waits for the look");
    node.deliver(1, &look).unwrap();
    assert_eq!(node.answers[1..], [(2, ":1\r\n".into()), (3, "+OK\r\n".into())]);
    let left = node.executor.holds(Gid(0));
    assert_eq!((left.items, left.expiring, left.due_ms), (0, 0, None));
}

#[test]
fn what_does_not_conflict_overtakes() {
    let (x, y) = (key(0), key(1));
    let other = (0..)
        .map(|i| format!("o{i}"))
        .find(|k| SlotMap::new(SHARDS).of_key(k.as_bytes()) == Gid(0))
        .unwrap();
    let mut node = TestNode::new();
    let write = cast(1, 1, 0, &format!("MSET {x} 1 {y} 1"));
    node.deliver(0, &write).unwrap();
    node.deliver(0, &cast(2, 2, 0, &format!("SET {other} 1"))).unwrap();
    assert_eq!(node.answers, [(2, "+OK\r\n".into())]);
    let count = cast(3, 3, 0, "DBSIZE");
    node.deliver(0, &count).unwrap();
    node.deliver(0, &cast(4, 4, 0, &format!("GET {other}"))).unwrap();
    assert_eq!(node.answers.len(), 1, "DBSIZE conflicts with all, so the read behind it waits");
    node.deliver(1, &write).unwrap();
    node.deliver(1, &count).unwrap();
    assert_eq!(node.answers.len(), 2);
    node.deliver(2, &count).unwrap();
    assert_eq!(node.answers[2..], [(3, ":3\r\n".into()), (4, "$1\r\n1\r\n".into())]);
}

#[test]
fn commands_go_on_when_the_wall_clock_is_set_back() {
    let (x, hour_ms) = (key(0), 3_600_000);
    let mut node = TestNode::new();
    let ahead = Stamp { wall_ms: 9 * hour_ms, host_ms: 1000 };
    assert_eq!(node.run(&sent_at(ahead, 1, 1, &format!("INCR {x}"))), ":1\r\n");
    let back = Stamp { wall_ms: 7 * hour_ms, host_ms: 2000 };
    let second = sent_at(back, 2, 2, &format!("INCR {x}"));
    assert_eq!(node.run(&second), ":2\r\n");
    assert_eq!(node.executor.now_ms(Gid(0)), 9 * hour_ms, "ordered time does not go back");
    node.restart();
    let again = |seq| TestCast { id: MsgId { sender: Pid(9), seq }, ..second.clone() };
    assert_eq!(node.run(&again(3)), ":2\r\n", "a retry is known as one");
    // Commands of others come: time does not leap.
    let session_ms = Limits::default().session_ms;
    let mut later = back;
    while later.host_ms <= 2000 + session_ms + AHEAD_MAX_MS {
        later.host_ms += LEAP_MS;
        node.run(&sent_at(later, 1000 + later.host_ms, 3, &format!("GET {x}")));
    }
    let why = node.run(&again(5));
    let (now_ms, args) =
        stamp_refusal::of_refusal(why.as_bytes()).expect("it is refused as too old");
    assert_eq!((now_ms, args.is_empty()), (later.host_ms, false));
}

#[test]
fn a_retry_gets_the_first_answer_and_has_no_effect() {
    let (x, y) = (key(0), key(1));
    let mut node = TestNode::new();
    let one = cast(1, 1, 0, &format!("INCR {x}"));
    let both = cast(2, 2, 0, &format!("EXEC 0 2 2 INCR {x} 2 INCR {y}"));
    assert_eq!(node.run(&one), ":1\r\n");
    assert_eq!(node.run(&both), "*2\r\n:2\r\n:1\r\n");
    let again = |c: &TestCast, seq| TestCast { id: MsgId { sender: Pid(9), seq }, ..c.clone() };
    assert_eq!(node.run(&again(&one, 3)), ":1\r\n");
    assert_eq!(node.run(&again(&both, 4)), "*2\r\n:2\r\n:1\r\n");
    assert_eq!(node.run(&cast(5, 3, 0, &format!("MGET {x} {y}"))), "*2\r\n$1\r\n2\r\n$1\r\n1\r\n");
    node.restart();
    assert_eq!(node.run(&again(&both, 6)), "*2\r\n:2\r\n:1\r\n", "the sessions are restored too");
    for (request, expected) in [(40, ":3\r\n"), (41, ":4\r\n")] {
        assert_eq!(node.run(&cast(100 + request, request, 0, &format!("INCR {x}"))), expected);
    }
    assert!(
        node.run(&again(&one, 7))
            .starts_with("-ERR the answer to the command is not kept any more; whether")
    );
    let late = cast(200, 42, 700_000, &format!("GET {x}"));
    assert_eq!(node.run(&late), "$1\r\n4\r\n");
    let old = node.run(&cast(201, 43, 1, &format!("INCR {x}")));
    assert!(stamp_refusal::is_refusal(old.as_bytes()), "{old}");
}

#[test]
fn keys_expire_by_ordered_time() {
    let x = key(0);
    let mut node = TestNode::new();
    node.run(&cast(1, 1, 5_000, &format!("SET {x} 1 PX 100")));
    assert_eq!(
        node.run(&cast(2, 2, 4_000, &format!("PTTL {x}"))),
        ":100\r\n",
        "time does not advance"
    );
    assert_eq!(node.run(&cast(3, 3, 5_100, &format!("GET {x}"))), "$1\r\n1\r\n");
    assert_eq!(node.run(&cast(4, 4, 5_101, &format!("EXISTS {x}"))), ":0\r\n");
    assert_eq!(node.run(&cast(5, 5, 5_000, "DBSIZE")), ":0\r\n");
}

#[test]
fn a_full_shard_refuses_and_goes_on_later() {
    let (x, y) = (key(0), key(1));
    let mut node = TestNode::new();
    let limits = Limits { waiting: 2, ..Limits::default() };
    node.executor = Executor::new(Kv::new(SHARDS, 1), SHARDS, limits);
    let write = cast(1, 1, 0, &format!("MSET {x} 1 {y} 1"));
    let read = cast(2, 2, 0, &format!("GET {x}"));
    node.deliver(0, &write).unwrap();
    node.deliver(0, &read).unwrap();
    let third = cast(3, 3, 0, &format!("GET {x}"));
    assert_eq!(node.deliver(0, &third), Err(ExecutorFull));
    node.deliver(1, &write).unwrap();
    assert_eq!(node.deliver(0, &third), Ok(DeliveryResult::Taken));
    assert_eq!(node.answers.len(), 3);
}

/// A random history: one total order of commands, some of them sent twice.
fn history(seed: u64, len: u64) -> Vec<TestCast> {
    let (mut rng, mut casts) = (Rng::new(seed), Vec::<TestCast>::new());
    for seq in 1..=len {
        let [a, b, c] = [0; 3].map(|_| format!("k{}", rng.below(8)));
        let text = match rng.below(14) {
            0..=2 => format!("SET {a} {seq}"),
            3 => format!("MSET {a} {seq} {b} {seq} {c} {seq}"),
            4 => format!("RENAME {a} {b}"),
            5 => format!("SET {a} {seq} PX {}", rng.below(30)),
            6 => format!("SADD s{a} {a} {b} {c}"),
            7 => format!("SPOP s{a}"),
            8 => format!("SMOVE s{a} s{b} {c}"),
            9 => "DBSIZE".into(),
            10 => format!("EXEC 0 2 3 SET {a} {seq} 2 GET {b}"),
            11 => format!("WATCH {a}"),
            12 => format!("MGET {a} {b}"),
            _ => format!("APPEND {a} x"),
        };
        casts.push(cast(seq, seq, 10 * seq + rng.below(40), &text));
        if rng.chance(200_000) {
            let mut retry = casts[rng.below(casts.len() as u64) as usize].clone();
            retry.id.seq = 1_000_000 + seq;
            casts.push(retry);
        }
    }
    casts
}

/// Feeds a node with the shards' streams, interleaved at random.
fn feed(casts: &[TestCast], seed: u64, restart: bool) -> TestNode {
    let mut rng = Rng::new(seed);
    let streams: Vec<Vec<&TestCast>> = (0..SHARDS as u8)
        .map(|g| casts.iter().filter(|c| c.dst.contains(Gid(g))).collect())
        .collect();
    let mut node = TestNode::new();
    let mut shard = 0;
    while (0..SHARDS).any(|g| node.next[g] as usize <= streams[g].len()) {
        if rng.chance(300_000) {
            shard = rng.below(SHARDS as u64) as usize;
        }
        match streams[shard].get(node.next[shard] as usize - 1) {
            Some(c) => assert_eq!(node.deliver(shard as u8, c), Ok(DeliveryResult::Taken)),
            None => shard = rng.below(SHARDS as u64) as usize,
        }
        if restart && rng.chance(20_000) {
            node.restart();
        }
    }
    node
}

#[test]
fn all_interleavings_and_restarts_give_the_same_answers_and_state() {
    for seed in 0..15 {
        let casts = history(seed, 400);
        let reference = {
            let mut node = TestNode::new();
            casts.iter().for_each(|c| drop(node.run(c)));
            node
        };
        let sorted = |node: &TestNode| {
            let mut answers = node.answers.clone();
            answers.sort();
            answers
        };
        let probe = |node: &mut TestNode| {
            let gets: Vec<String> = (0..8).map(|i| format!("k{i}")).collect();
            let sets = (0..8).map(|i| format!("SMEMBERS sk{i}"));
            let lines = [format!("MGET {}", gets.join(" "))].into_iter().chain(sets);
            let seqs = 2_000_000..;
            lines.zip(seqs).map(|(l, seq)| node.run(&cast(seq, 500, 0, &l))).collect::<Vec<_>>()
        };
        let mut first = reference;
        let expected = sorted(&first);
        let state = probe(&mut first);
        for turn in 0..12 {
            let mut node = feed(&casts, 100 * seed + turn, turn % 2 == 1);
            assert_eq!(sorted(&node), expected, "seed {seed}, turn {turn}");
            assert_eq!(probe(&mut node), state, "seed {seed}, turn {turn}");
        }
    }
}

#[test]
fn malformed_payloads_take_their_place_and_nothing_else() {
    let mut node = TestNode::new();
    let mut rng = Rng::new(4);
    let good = cast(1, 1, 0, &format!("MSET {} 1 {} 2", key(0), key(1)));
    for seq in 2..3000 {
        let mut bad = good.clone();
        bad.id.seq = seq;
        let at = rng.below(bad.payload.len() as u64) as usize;
        bad.payload[at] = rng.below(256) as u8;
        bad.payload.truncate(bad.payload.len() - rng.below(3) as usize);
        bad.dst = GroupSet::one(Gid(0));
        node.deliver(0, &bad).unwrap();
    }
    assert_eq!(node.executor.applied(Gid(0)), 2998);
    assert!(decode_args(&good.payload[Envelope::BYTES..], &mut Vec::new()).is_some());
    assert_eq!(node.executor.holds(Gid(1)).items, 0, "a key outside the destinations");
}

#[test]
fn a_read_without_an_order_waits_for_what_its_client_wrote_and_for_commands_of_several_shards() {
    let (x, y) = (key(0), key(1));
    let mut node = TestNode::new();
    let get = cast(0, 9, 0, &format!("GET {x}"));
    let peek = |node: &mut TestNode, written: &[(Gid, u64)]| {
        let wrote = |&(shard, request): &(Gid, u64)| SessionWrite { shard, request, host_ms: 0 };
        let written: Vec<SessionWrite> = written.iter().map(wrote).collect();
        let written = &written;
        let mut answer = Vec::new();
        let outcome = node.executor.peek(1, (get.dst, &get.payload), written, &mut answer);
        (outcome, String::from_utf8(answer).unwrap())
    };
    assert_eq!(peek(&mut node, &[]), (ANSWERED, "_\r\n".into()));
    assert_eq!(peek(&mut node, &[(Gid(0), 1)]), (LocalRead::NotYet, String::new()));
    node.run(&cast(1, 1, 0, &format!("SET {x} 1")));
    assert_eq!(peek(&mut node, &[(Gid(0), 1)]), (ANSWERED, "$1\r\n1\r\n".into()));
    // Half of a command over two shards is there: the shard is at no place of its order.
    let both = cast(2, 2, 0, &format!("MSET {x} 2 {y} 2"));
    node.deliver(0, &both).unwrap();
    assert_eq!(peek(&mut node, &[(Gid(0), 1)]), (LocalRead::NotYet, String::new()));
    node.deliver(1, &both).unwrap();
    assert_eq!(peek(&mut node, &[(Gid(0), 2)]), (ANSWERED, "$1\r\n2\r\n".into()));
    // A request that a later one declares answered was in front of it, and needs no record.
    assert_eq!(peek(&mut node, &[(Gid(0), 39)]).0, LocalRead::NotYet);
    node.run(&cast(3, 60, 0, &format!("SET {x} 2")));
    assert_eq!(peek(&mut node, &[(Gid(0), 39)]), (ANSWERED, "$1\r\n2\r\n".into()));
    // Nor does a request run that is older than any may be.
    assert_eq!(peek(&mut node, &[(Gid(0), 61)]).0, LocalRead::NotYet);
    let late_ms = Limits::default().session_ms + 1;
    node.run(&cast(4, 60, late_ms, &format!("SET {x} 4")));
    assert_eq!(peek(&mut node, &[(Gid(0), 61)]).0, ANSWERED);
    let mut set = cast(5, 3, 0, &format!("SET {x} 3"));
    assert_eq!(
        node.executor.peek(1, (set.dst, &set.payload), &[], &mut Vec::new()),
        LocalRead::Never
    );
    set.payload.truncate(3);
    assert_eq!(
        node.executor.peek(1, (set.dst, &set.payload), &[], &mut Vec::new()),
        LocalRead::Never
    );
}

#[test]
fn a_node_that_made_room_for_a_state_shows_nobody_that_it_has_none() {
    let x = key(0);
    let mut node = TestNode::new();
    node.run(&cast(1, 1, 0, &format!("SET {x} 1")));
    let get = cast(0, 9, 0, &format!("GET {x}"));
    let peek = |node: &mut TestNode| {
        let mut answer = Vec::new();
        let outcome = node.executor.peek(1, (get.dst, &get.payload), &[], &mut answer);
        (outcome, String::from_utf8(answer).unwrap())
    };
    let bytes = node.stream();
    node.executor.capture();
    let old = node.executor.clear();
    assert_eq!((old.delivered(Gid(0)), node.executor.delivered(Gid(0))), (1, 0));
    assert!(!node.executor.piece(1000, &mut Vec::new()), "what was given of it is not whole");
    assert_eq!(peek(&mut node), (LocalRead::NotYet, String::new()));
    drop(node.executor.adopt(read(&bytes).unwrap()));
    assert_eq!(peek(&mut node), (ANSWERED, "$1\r\n1\r\n".into()));
}

#[test]
fn a_read_behind_a_barrier_sees_its_shard_as_of_its_last_command_and_does_not_decide_what_expires()
{
    let (x, y) = (key(0), key(1));
    let mut node = TestNode::new();
    let at = |now_ms: u64, text: &str| cast(0, 9, now_ms, text);
    let peek = |node: &mut TestNode, get: &TestCast| {
        let mut answer = Vec::new();
        let outcome = node.executor.peek_one(Gid(0), 0, &get.payload, &mut answer);
        (outcome, String::from_utf8(answer).unwrap())
    };
    let get = at(0, &format!("GET {x}"));
    node.run(&cast(1, 1, 1000, &format!("SET {x} 1")));
    assert_eq!(peek(&mut node, &get), (ANSWERED, "$1\r\n1\r\n".into()));
    // A command that waits for another shard may be executed at another node; others do not matter.
    let both = cast(2, 2, 1000, &format!("MSET {x} 2 {y} 2"));
    node.deliver(0, &both).unwrap();
    assert_eq!(peek(&mut node, &get), (LocalRead::NotYet, String::new()));
    assert_eq!(peek(&mut node, &at(0, &format!("GET {{{x}}}other"))).0, ANSWERED);
    let all = at(0, "DBSIZE");
    assert_eq!(peek(&mut node, &all).0, LocalRead::NotYet);
    node.deliver(1, &both).unwrap();
    assert_eq!(peek(&mut node, &get), (ANSWERED, "$1\r\n2\r\n".into()));
    // As long as nothing can have expired it takes place at its own time.
    node.run(&cast(3, 3, 1000, &format!("PEXPIRE {x} 500")));
    let left = at(1200, &format!("PTTL {x}"));
    assert_eq!(peek(&mut node, &left), (ANSWERED, ":300\r\n".into()));
    assert_eq!(peek(&mut node, &at(1500, &format!("GET {x}"))).0, ANSWERED);
    assert_eq!(peek(&mut node, &at(1501, &format!("GET {x}"))).0, LocalRead::Never);
    assert_eq!(node.run(&cast(4, 4, 1501, &format!("GET {x}"))), "_\r\n");
    assert_eq!(peek(&mut node, &get), (ANSWERED, "_\r\n".into()), "it has expired for all");
    let write = at(0, &format!("SET {x} 3"));
    assert_eq!(peek(&mut node, &write).0, LocalRead::Never);
}

#[test]
fn a_read_that_is_answered_elsewhere_takes_its_place_and_is_not_run() {
    let x = key(0);
    let mut node = TestNode::new();
    node.executor.answer_only(Arc::new(|id: MsgId| id.sender == Pid(7)));
    let mut casts = [
        cast(1, 1, 0, &format!("SET {x} 1")),
        cast(2, 2, 0, &format!("GET {x}")),
        cast(3, 3, 0, &format!("GET {x}")),
    ];
    casts[2].id.sender = Pid(7);
    casts.iter().for_each(|c| assert_eq!(node.deliver(0, c), Ok(DeliveryResult::Taken)));
    assert_eq!(node.answers, [(1, "+OK\r\n".into()), (3, "$1\r\n1\r\n".into())]);
    let ran = node.executor.holds(Gid(0)).executed;
    assert_eq!((ran, node.executor.applied(Gid(0))), (2, 3));
}

#[test]
fn random_reads_differ_also_if_they_are_not_ordered() {
    let set = key(0);
    let mut node = TestNode::new();
    node.run(&cast(1, 1, 0, &format!("SADD {set} a b c d e f g h")));
    let mut drawn = std::collections::BTreeSet::new();
    for request in 2..60 {
        let draw = cast(0, request, 0, &format!("SRANDMEMBER {set}"));
        let mut answer = Vec::new();
        assert_eq!(node.executor.peek_one(Gid(0), 0, &draw.payload, &mut answer), ANSWERED);
        drawn.insert(answer);
    }
    assert!(drawn.len() > 4, "{drawn:?}");
}

#[test]
fn a_list_whose_only_element_moves_within_it_keeps_its_time_to_live() {
    let x = key(0);
    let mut node = TestNode::new();
    let mut run = |request: u64, text: &str| node.run(&cast(request, request, 1000, text));
    assert_eq!(run(1, &format!("RPUSH {x} a")), ":1\r\n");
    assert_eq!(run(2, &format!("PEXPIREAT {x} 5000")), ":1\r\n");
    for (request, moves) in (3..).step_by(2).zip(["LMOVE {x} {x} LEFT RIGHT", "RPOPLPUSH {x} {x}"])
    {
        assert_eq!(run(request, &moves.replace("{x}", &x)), "$1\r\na\r\n");
        assert_eq!(run(request + 1, &format!("PEXPIRETIME {x}")), ":5000\r\n", "{moves}");
    }
}
