//! Commands that come in parts, against the same commands that come whole: on nodes that deliver their shards'
//! streams at different paces, with workers, and started again from their state between any two messages.

use super::budget::OOM;
use super::pool::probe;
use super::snapshot::any;
use super::*;
use amcast_smr::envelope::ClockReport;
use amcast_smr::executor::inspection::{self, BYTES_MAX_IN_TESTS, ExecutorMutant, PARTS_MS};
use amcast_smr::parts::{Assembly, CommandPart, KEPT};
use std::collections::BTreeMap;

const INCOMPLETE: &str = "-ERR the shard has given up parts of the command before the last one came; the command was \
                          not executed\r\n";

/// Takes a place in the order and does nothing.
fn nothing() -> Vec<u8> {
    ClockReport(Stamp::default()).encode().to_vec()
}

/// A command with the messages that bring it: its parts, from request `first` of `session` on, and their assembly.
struct SplitCommand {
    /// Without envelope.
    body: Vec<u8>,
    dst: GroupSet,
    session: u64,
    first: u64,
    part_bytes: usize,
}

impl SplitCommand {
    fn of(text: &str, map: &Partitions, (session, first): (u64, u64), part_bytes: usize) -> Self {
        let args: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let command = registry::lookup(args[0]).expect("a known command");
        let dst = destinations(command, &args, map).expect("proper arguments");
        let mut body = Vec::new();
        crate::encode_epoch(map.epoch(), &mut body);
        encode_args(&args, &mut body);
        Self { body, dst, session, first, part_bytes }
    }

    fn count(&self) -> u64 {
        self.body.len().div_ceil(self.part_bytes) as u64
    }

    fn request(&self) -> u64 {
        self.first + self.count()
    }

    fn envelope(&self, request: u64, open_from: u64, now_ms: u64) -> Envelope {
        let stamp = Stamp { wall_ms: now_ms, host_ms: now_ms };
        Envelope { session: self.session, request, open_from, stamp, read_only: false }
    }

    fn part(&self, seq: u64, index: u64, now_ms: u64) -> TestCast {
        let envelope = self.envelope(self.first + index, self.first, now_ms);
        let bytes = self.body.chunks(self.part_bytes).nth(index as usize).expect("it has it");
        let mut payload = Vec::new();
        CommandPart { envelope, bytes }.encode(&mut payload);
        let lowest = self.dst.lowest().expect("it has destinations");
        TestCast { id: MsgId { sender: Pid(9), seq }, dst: GroupSet::one(lowest), payload }
    }

    fn assembly(&self, seq: u64, now_ms: u64) -> TestCast {
        let envelope = self.envelope(self.request(), self.request(), now_ms);
        let (parts, bytes) = (self.count() as u32, self.body.len() as u64);
        let sum = crc32c::crc32c(&self.body);
        let mut payload = Vec::new();
        Assembly { envelope, parts, bytes, sum }.encode(&mut payload);
        TestCast { id: MsgId { sender: Pid(9), seq }, dst: self.dst, payload }
    }

    /// The same command in one message.
    fn whole(&self, seq: u64, now_ms: u64) -> TestCast {
        let mut payload = Vec::new();
        self.envelope(self.request(), self.request(), now_ms).encode(&mut payload);
        payload.extend_from_slice(&self.body);
        TestCast { id: MsgId { sender: Pid(9), seq }, dst: self.dst, payload }
    }
}

/// One order of messages in two forms, of as many positions.
#[derive(Default)]
struct TwoFormOrder {
    parts: Vec<TestCast>,
    whole: Vec<TestCast>,
    /// Commands of which a part is missing.
    incomplete: Vec<u64>,
}

impl TwoFormOrder {
    fn next(&self) -> u64 {
        self.parts.len() as u64 + 1
    }

    fn both(&mut self, cast: TestCast) {
        self.whole.push(cast.clone());
        self.parts.push(cast);
    }

    fn only_in_parts(&mut self, cast: TestCast) {
        self.whole.push(TestCast { payload: nothing(), ..cast.clone() });
        self.parts.push(cast);
    }
}

/// The next command of a session, and the earlier ones.
struct PartSession {
    split: SplitCommand,
    /// Parts to be sent; the assembly follows them.
    left: Vec<u64>,
    misses: bool,
    /// Its earlier commands, to be sent again, with whether each was whole.
    before: Vec<(SplitCommand, u64, bool)>,
}

fn command(rng: &mut Rng, seq: u64) -> String {
    loop {
        let text = any(rng, seq);
        // Versions of keys are positions, which are the same here, and are in the answer to nothing else.
        if !text.starts_with("WATCH") {
            return text;
        }
    }
}

impl PartSession {
    fn new(rng: &mut Rng, seq: u64, session: u64, before: Vec<(SplitCommand, u64, bool)>) -> Self {
        let first = before.last().map_or(1, |(split, ..)| split.request() + 1);
        let text = match command(rng, seq) {
            text if text.starts_with("GET") => "APPEND s1 x".to_string(),
            text => text,
        };
        let map = Partitions::by_slot(SHARDS);
        let split = SplitCommand::of(&text, &map, (session, first), 1 + rng.below(60) as usize);
        let mut left: Vec<u64> = (0..split.count()).collect();
        (1..left.len()).for_each(|i| left.swap(i, rng.below(i as u64 + 1) as usize));
        let misses = rng.chance(150_000);
        if misses {
            left.pop();
        }
        Self { split, left, misses, before }
    }
}

fn order(seed: u64, len: usize) -> TwoFormOrder {
    let (mut rng, mut order) = (Rng::new(seed), TwoFormOrder::default());
    let mut sessions: Vec<PartSession> =
        (2..6).map(|session| PartSession::new(&mut rng, session, session, Vec::new())).collect();
    while order.parts.len() < len {
        let seq = order.next();
        let now_ms = 10 * seq;
        if rng.chance(400_000) {
            let text = command(&mut rng, seq);
            order.both(cast(seq, seq, now_ms, &text));
            continue;
        }
        let mine = rng.below(sessions.len() as u64) as usize;
        let mut session = sessions.swap_remove(mine);
        if let Some((split, sent_ms, was_whole)) = session.before.last()
            && rng.chance(200_000)
        {
            // A retry that comes late: of a part, or of the assembly while the session has sent nothing else.
            let sent =
                session.left.len() as u64 + u64::from(session.misses) < session.split.count();
            match sent || rng.chance(500_000) {
                true => {
                    let part = split.part(seq, rng.below(split.count()), *sent_ms);
                    order.only_in_parts(part);
                }
                false if *was_whole => {
                    order.whole.push(split.whole(seq, *sent_ms));
                    order.parts.push(split.assembly(seq, *sent_ms));
                }
                false => {
                    order.incomplete.push(seq);
                    order.only_in_parts(split.assembly(seq, *sent_ms));
                }
            }
            sessions.push(session);
            continue;
        }
        match session.left.pop() {
            Some(index) => {
                order.only_in_parts(session.split.part(seq, index, 0));
                if rng.chance(100_000) {
                    let again = session.split.part(order.next(), index, 0);
                    order.only_in_parts(again);
                }
            }
            None => {
                if session.misses {
                    order.incomplete.push(seq);
                    order.only_in_parts(session.split.assembly(seq, now_ms));
                } else {
                    order.whole.push(session.split.whole(seq, now_ms));
                    order.parts.push(session.split.assembly(seq, now_ms));
                }
                let PartSession { split, misses, mut before, .. } = session;
                let number = split.session;
                before.push((split, now_ms, !misses));
                session = PartSession::new(&mut rng, seq, number, before);
            }
        }
        sessions.push(session);
    }
    order
}

/// The answers to all that is no part.
fn answers(node: &TestNode) -> BTreeMap<u64, String> {
    let is_part = |answer: &String| answer.as_bytes() == KEPT;
    let answers = node.answers.iter().filter(|(seq, answer)| *seq < 1_000_000 && !is_part(answer));
    answers.cloned().collect()
}

/// Whether commands in parts come to what the same come to that are whole; how many were in parts.
fn agrees(seed: u64, workers: usize) -> Result<usize, String> {
    let order = order(seed, 260);
    let mut whole = TestNode::new();
    for (c, g) in order.whole.iter().flat_map(|c| c.dst.iter().map(move |g| (c, g))) {
        assert_eq!(whole.deliver(g.0, c), Ok(DeliveryResult::Taken));
    }
    let (mut expected, end) = (answers(&whole), probe(&mut whole));
    let of_parts = |c: &TestCast| CommandPart::decode(&c.payload).is_some();
    let mut rng = Rng::new(seed + 1);
    let mut node = match workers {
        0 => TestNode::new(),
        _ => TestNode::with_workers(workers, Limits::default()),
    };
    node.feed(&order.parts, &mut rng.clone(), &mut |node| {
        if workers == 0 && rng.chance(60_000) {
            node.restart();
        }
    });
    let count = order.parts.len();
    node.until(count);
    expected.extend(order.incomplete.iter().map(|seq| (*seq, INCOMPLETE.to_string())));
    let mut given = answers(&node);
    // A late part is refused in words that nobody waits for.
    given.retain(|seq, _| !of_parts(&order.parts[*seq as usize - 1]));
    if let Some(seq) = expected.keys().chain(given.keys()).find(|s| expected.get(s) != given.get(s))
    {
        return Err(format!("{seq}: {:?}, whole {:?}", given.get(seq), expected.get(seq)));
    }
    match probe(&mut node) == end {
        true => Ok(order.parts.iter().filter(|c| Assembly::decode(&c.payload).is_some()).count()),
        false => Err("another state".to_string()),
    }
}

#[test]
fn a_budget_that_comes_in_parts_holds_for_what_is_behind_it_on_all_replicas() {
    let _limit = amcast_test_policy::time_limit();
    let (x, y, map) = (key(0), key(1), Partitions::by_slot(SHARDS));
    let split = SplitCommand::of("EXEC 0 1 2 AMCAST.MAXMEMORY 600", &map, (7, 1), 16);
    let set = |key: &str, seq, value: &str| cast(seq, seq, 4, &format!("SET {key} {value}"));
    let mut casts = vec![set(&x, 1, &"v".repeat(900)), set(&y, 2, &"v".repeat(900))];
    casts.extend((0..split.count()).map(|i| split.part(3 + i, i, 4)));
    let next = 3 + split.count();
    casts.extend([split.assembly(next, 4), set(&x, next + 1, "1"), set(&y, next + 2, "1")]);
    for seed in 0..40 {
        let (mut rng, mut node, mut at) = (Rng::new(seed), TestNode::new(), [0; SHARDS]);
        while at.iter().any(|i| *i < casts.len()) {
            let shard = rng.below(SHARDS as u64) as u8;
            let from = at[usize::from(shard)];
            let found = (from..casts.len()).find(|i| casts[*i].dst.contains(Gid(shard)));
            at[usize::from(shard)] = found.map_or(casts.len(), |i| i + 1);
            if let Some(i) = found {
                node.deliver(shard, &casts[i]).unwrap();
            }
        }
        let answer = |seq| node.answers.iter().find(|(of, _)| *of == seq).map(|(_, a)| a.as_str());
        let expected = ["*1\r\n+OK\r\n", OOM, OOM].map(Some);
        assert_eq!([next, next + 1, next + 2].map(answer), expected, "seed {seed}");
    }
}

#[test]
fn commands_in_parts_are_executed_as_whole_ones_in_their_place() {
    let _limit = amcast_test_policy::time_limit();
    let mut assembled = 0;
    for seed in 0..60 {
        let workers = if seed % 4 == 3 { 2 } else { 0 };
        assembled += agrees(seed, workers).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(assembled > 500, "{assembled} commands came in parts");
}

#[test]
fn executors_that_lose_parts_or_do_without_them_are_found() {
    let _limit = amcast_test_policy::time_limit();
    for mutant in [
        ExecutorMutant::RunsIncomplete,
        ExecutorMutant::ForgetsAtCut,
        ExecutorMutant::KeepsLateParts,
    ] {
        let found = inspection::with(mutant, || (0..40).any(|seed| agrees(seed, 0).is_err()));
        assert!(found, "{mutant:?} passes");
    }
}

/// Sessions that send parts of commands which they finish, or not, while time advances: all
/// answers, those to parts included, of nodes that deliver at different paces. Returns the number
/// of parts for which there was no room.
fn refusals(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let (mut casts, mut open) = (Vec::new(), BTreeMap::new());
    let keys = [key(0), key(1), key(2)];
    for n in 1..=600_u64 {
        let (now_ms, session) = (n * 300, 2 + rng.below(40));
        if rng.chance(200_000) {
            let text = format!("MSET {} {n} {} {n}", keys[0], keys[1 + n as usize % 2]);
            casts.push(cast(n, n, now_ms, &text));
            continue;
        }
        if rng.chance(30_000) {
            // Its connection is gone.
            open.remove(&session);
        }
        let (split, next) = open.entry(session).or_insert_with(|| {
            let other = &keys[rng.below(3) as usize];
            let text = format!("MSET {} {} {other} 1", keys[0], "v".repeat(6_000));
            (SplitCommand::of(&text, &Partitions::by_slot(SHARDS), (session, 10 * n), 1_000), 0)
        });
        if *next < split.count() {
            casts.push(split.part(n, *next, now_ms));
            *next += 1;
        } else {
            casts.push(split.assembly(n, now_ms));
            open.remove(&session);
        }
    }
    let run = |seed| {
        let (mut node, mut rng) = (TestNode::new(), Rng::new(seed));
        node.feed(&casts, &mut rng.clone(), &mut |node| {
            if rng.chance(10_000) {
                node.restart();
            }
        });
        assert!(node.executor.parts_bytes(Gid(0)) <= BYTES_MAX_IN_TESTS.0);
        node.answers.into_iter().collect::<BTreeMap<_, _>>()
    };
    let all = run(seed);
    assert_eq!(all.len(), casts.len());
    for other in 1..4 {
        assert!(run(1000 * other + seed) == all, "seed {seed}: replicas refuse other parts");
    }
    assert!(all.values().any(|answer| answer == INCOMPLETE), "some were given up");
    all.values().filter(|answer| answer.starts_with("-ERR the shard keeps as many")).count()
}

#[test]
fn all_replicas_refuse_and_give_up_the_same_parts() {
    let _limit = amcast_test_policy::time_limit();
    let refused: usize = (0..8).map(refusals).sum();
    assert!(refused > 50, "{refused} parts were refused");
    let uncounted = inspection::with(ExecutorMutant::CountsNothing, || refusals_or_panic(1));
    assert!(uncounted != Some(refusals(1)), "parts that do not count are not found");
}

/// Sessions that take turns, each with a command, of which all together have more bytes than the shard keeps; one whose
/// part is refused sends no more of its command. How many commands came whole.
fn whole_among(sessions: u64) -> usize {
    let map = Partitions::by_slot(SHARDS);
    let text = format!("SET {} {}", key(0), "v".repeat(12_000));
    let split = |session| SplitCommand::of(&text, &map, (session, 1), 1_000);
    let (mut node, mut seq, mut whole) = (TestNode::new(), 0, 0);
    let mut open: Vec<(SplitCommand, u64)> =
        (1..=sessions).map(|session| (split(session), 0)).collect();
    while !open.is_empty() {
        open.retain_mut(|(split, next)| {
            seq += 1;
            if *next == split.count() {
                whole += usize::from(node.run(&split.assembly(seq, 1)) == "+OK\r\n");
                return false;
            }
            *next += 1;
            node.run(&split.part(seq, *next - 1, 1)).as_bytes() == KEPT
        });
        assert!(node.executor.parts_bytes(Gid(0)) <= BYTES_MAX_IN_TESTS.0);
    }
    whole
}

#[test]
fn of_commands_that_do_not_fit_together_those_come_whole_that_do() {
    let _limit = amcast_test_policy::time_limit();
    let fit = BYTES_MAX_IN_TESTS.0 / 17_000;
    assert_eq!(whole_among(fit as u64), fit);
    for sessions in [10, 20, 50] {
        assert!(whole_among(sessions) >= fit - 1, "{sessions} sessions");
    }
    let kept = inspection::with(ExecutorMutant::KeepsRefused, || whole_among(20));
    assert!(kept < fit - 1, "parts of refused commands are kept: {kept}");
}

fn refusals_or_panic(seed: u64) -> Option<usize> {
    std::panic::catch_unwind(|| refusals(seed)).ok()
}

#[test]
fn parts_go_when_their_session_goes_on_and_when_they_are_old() {
    let (x, y) = (key(0), key(1));
    let map = Partitions::by_slot(SHARDS);
    let mut node = TestNode::new();
    let split = SplitCommand::of(&format!("MSET {x} 1 {y} 2"), &map, (7, 1), 10);
    let bytes = |node: &TestNode| node.executor.parts_bytes(Gid(0));
    for index in 0..split.count() {
        assert_eq!(node.run(&split.part(1 + index, index, 5)).as_bytes(), KEPT);
    }
    assert!(bytes(&node) > 256 * split.count() as usize);
    // Another session's commands take nothing from it; its own next command does.
    node.run(&cast(100, 1, 6, &format!("SET {x} 0")));
    assert!(bytes(&node) > 0);
    let next = SplitCommand::of(&format!("SET {x} 3"), &map, (7, 50), 1000);
    node.run(&next.whole(101, 7));
    assert_eq!(bytes(&node), 0);
    assert_eq!(
        node.run(&split.assembly(102, 8)),
        "-ERR the answer to the command is not kept any more; whether the command took effect is not known\r\n"
    );
    assert!(node.run(&split.part(103, 0, 8)).starts_with("-ERR"), "the session is beyond it");
    assert_eq!(bytes(&node), 0);
    let later = SplitCommand::of(&format!("SET {x} 4"), &map, (7, 60), 8);
    (0..later.count()).for_each(|i| drop(node.run(&later.part(110 + i, i, 10))));
    node.run(&cast(120, 2, 10 + PARTS_MS, &format!("GET {y}")));
    node.run(&cast(121, 3, 10 + PARTS_MS, &format!("SET {x} 5")));
    assert!(bytes(&node) > 0, "they may be so old");
    node.run(&cast(122, 4, 11 + PARTS_MS, &format!("SET {x} 6")));
    assert_eq!(bytes(&node), 0);
    assert_eq!(node.run(&later.assembly(123, 11 + PARTS_MS)), INCOMPLETE);
    assert_eq!(node.run(&cast(124, 5, 11 + PARTS_MS, &format!("GET {x}"))), "$1\r\n6\r\n");
}

#[test]
fn a_command_is_whole_only_with_all_its_parts_and_their_sum() {
    let map = Partitions::by_slot(SHARDS);
    let split = SplitCommand::of(&format!("SET {} value", key(0)), &map, (7, 1), 10);
    let parts = |node: &mut TestNode| {
        (0..split.count()).for_each(|i| drop(node.run(&split.part(1 + i, i, 1))));
    };
    let change = |with: fn(&mut Assembly)| {
        let TestCast { id, dst, payload } = split.assembly(50, 1);
        let mut assembly = Assembly::decode(&payload).unwrap();
        with(&mut assembly);
        let mut payload = Vec::new();
        assembly.encode(&mut payload);
        TestCast { id, dst, payload }
    };
    let wrong: [fn(&mut Assembly); 5] = [
        |a| a.sum ^= 1,
        |a| a.bytes += 1,
        |a| a.parts -= 1,
        |a| a.parts += 1,
        |a| a.parts = u32::MAX,
    ];
    for with in wrong {
        let mut node = TestNode::new();
        parts(&mut node);
        assert_eq!(node.run(&change(with)), INCOMPLETE);
        assert_eq!(node.run(&cast(60, 1, 1, "DBSIZE")), ":0\r\n");
    }
    let mut node = TestNode::new();
    parts(&mut node);
    assert_eq!(node.run(&change(|_| {})), "+OK\r\n");
    let mut again = split.assembly(61, 1);
    again.id.seq = 61;
    assert_eq!(node.run(&again), "+OK\r\n", "a retry has the same answer");
    assert_eq!(node.executor.holds(Gid(0)).executed, 1);
}

#[test]
fn a_command_in_parts_follows_its_keys_to_another_shard() {
    let _limit = amcast_test_policy::time_limit();
    let first = Partitions::by_slot(SHARDS);
    let (mut node, mut map, mut seq) = (TestNode::new(), first, 0);
    let x = key(0);
    let run = |node: &mut TestNode, cast: TestCast| {
        let answer = std::cell::RefCell::new(Vec::new());
        for shard in cast.dst.iter() {
            let at = node.next[shard.index()];
            node.next[shard.index()] += 1;
            let taken =
                node.executor.deliver(shard, at, cast.id, cast.dst, &cast.payload, &mut |a| {
                    answer.replace(a.bytes.to_vec());
                });
            assert_eq!(taken, Ok(DeliveryResult::Taken));
        }
        answer.into_inner()
    };
    let mut first_request = 1;
    let mut counts = Vec::new();
    // Events between the parts and the assembly: a move begins, continues, and ends.
    for between in ["AMCAST.MERGE 0 1", "AMCAST.MOVE 0 1", "AMCAST.MOVED", ""] {
        let split = SplitCommand::of(&format!("APPEND {x} more"), &map, (7, first_request), 9);
        first_request = split.request() + 1;
        counts.push(split.dst.len());
        for index in 0..split.count() {
            seq += 1;
            assert_eq!(run(&mut node, split.part(seq, index, seq)), KEPT);
        }
        if !between.is_empty() {
            seq += 1;
            let control = SplitCommand::of(between, &map, (1, seq), 1000);
            for n in 0..3 {
                seq += 1;
                let mut again = control.whole(seq, seq);
                again.payload[10] += n;
                run(&mut node, again);
            }
        }
        node.restart();
        seq += 1;
        let answer = run(&mut node, split.assembly(seq, seq));
        match Partitions::of_refusal(&answer) {
            Some((later, _)) => {
                assert!(later.epoch() > map.epoch());
                map = later;
            }
            None => assert!(answer.starts_with(b":"), "{answer:?}"),
        }
    }
    assert_eq!(counts, [1, 2, 2, 1], "it went by the map of its time");
    assert_eq!(map.of_key(x.as_bytes()).shard, Gid(1));
    let get = SplitCommand::of(&format!("GET {x}"), &map, (1, 1000), 1000);
    assert_eq!(run(&mut node, get.whole(1000, seq)), b"$8\r\nmoremore\r\n");
}
