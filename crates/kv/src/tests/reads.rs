//! Reads that are not ordered: with threads of their own, and where keys expire.

use super::snapshot::any;
use super::*;
use amcast_smr::executor::inspection::{is_done, let_reads_jump};
use std::collections::BTreeMap;

/// The result of a read, and its answer.
type ReadOutcome = (LocalRead, String);

impl TestNode {
    /// Asks for a read of a shard; with workers the answer may come later, under `number`.
    fn look(&mut self, shard: Gid, number: u64, c: &TestCast) -> ReadOutcome {
        let mut answer = Vec::new();
        let peek = self.executor.peek_one(shard, number, &c.payload, &mut answer);
        (peek, String::from_utf8_lossy(&answer).into_owned())
    }

    /// The next outcomes of reads, by their numbers.
    fn looked(&mut self, outcomes: &mut BTreeMap<u64, ReadOutcome>) {
        self.executor.flush_reads();
        self.executor.collect_reads(&mut |_, number, peek, bytes| {
            let outcome = (peek, String::from_utf8_lossy(bytes).into_owned());
            assert!(outcomes.insert(number, outcome).is_none(), "each is reported once");
        });
    }
}

fn employed(workers: usize, limits: Limits) -> TestNode {
    let mut executor = Executor::new(Kv::new(SHARDS, 1), SHARDS, limits);
    executor.employ(workers, Arc::new(|| {})).unwrap();
    TestNode { executor, ..TestNode::new() }
}

/// A read of few keys of every kind, many of which expire.
fn any_read(rng: &mut Rng) -> String {
    let a = rng.below(12);
    match rng.below(8) {
        0 | 1 => format!("GET s{a}"),
        2 => format!("HGETALL h{a}"),
        3 => format!("LRANGE l{a} 0 -1"),
        4 => format!("SRANDMEMBER c{a} 3"),
        5 => format!("ZRANGE z{a} 0 -1"),
        6 => format!("PTTL s{a}"),
        _ => format!("EXISTS s{a}"),
    }
}

/// Feeds a node without workers and one with the same commands, in the same order, and asks both for the same reads at
/// the same places. Says what the one without says of each, and how many the other one says something else of.
fn beside(seed: u64, workers: usize, jumps: bool) -> (Vec<ReadOutcome>, usize) {
    let mut rng = Rng::new(seed);
    let casts: Vec<TestCast> =
        (1..=300).map(|n| cast(n, n, 10 * n + rng.below(40), &any(&mut rng, n))).collect();
    let (mut inline, mut node) = (TestNode::new(), employed(workers, Limits::default()));
    let_reads_jump(&mut node.executor, jumps);
    let streams: Vec<Vec<&TestCast>> = (0..SHARDS as u8)
        .map(|g| casts.iter().filter(|c| c.dst.contains(Gid(g))).collect())
        .collect();
    let (mut expected, mut outcomes) = (Vec::new(), BTreeMap::new());
    while (0..SHARDS).any(|g| inline.next[g] as usize <= streams[g].len()) {
        let shard = rng.below(SHARDS as u64) as usize;
        if let Some(c) = streams[shard].get(inline.next[shard] as usize - 1) {
            assert_eq!(inline.deliver(shard as u8, c), node.deliver(shard as u8, c));
        }
        let number = expected.len() as u64;
        let now_ms = 10 * inline.next[shard] * 2 + rng.below(400);
        let read = cast(0, 1000 + number, now_ms, &any_read(&mut rng));
        let at = read.dst.lowest().expect("it reads a key");
        expected.push(inline.look(at, number, &read));
        match node.look(at, number, &read) {
            (LocalRead::Later, none) => assert_eq!(none, ""),
            now => assert!(outcomes.insert(number, now).is_none()),
        }
        if rng.chance(100_000) {
            node.looked(&mut outcomes);
            node.executor.collect(&mut |_| {});
        }
    }
    while outcomes.len() < expected.len() {
        node.looked(&mut outcomes);
        std::thread::yield_now();
    }
    let others = outcomes.values().zip(&expected).filter(|(a, b)| a != b).count();
    (expected, others)
}

#[test]
fn a_read_that_a_worker_answers_sees_what_it_would_see_without_workers() {
    let _limit = amcast_test_policy::time_limit();
    let mut all = Vec::new();
    for seed in 0..30 {
        let (expected, others) = beside(seed, 1 + seed as usize % 3, false);
        assert_eq!(others, 0, "seed {seed}");
        all.extend(expected);
    }
    for peek in [ANSWERED, LocalRead::NotYet, LocalRead::Never] {
        assert!(all.iter().filter(|(p, _)| *p == peek).count() > 20, "{peek:?}");
    }
}

#[test]
fn a_read_that_jumps_its_shards_queue_is_found_out() {
    let _limit = amcast_test_policy::time_limit();
    let found = (0..30).map(|seed| beside(seed, 1, true).1).sum::<usize>();
    assert!(found > 0, "every read saw what was in front of it, although it did not wait for that");
}

#[test]
fn a_read_waits_in_its_shards_queue_and_where_that_is_empty_a_short_one_does_not() {
    let _limit = amcast_test_policy::time_limit();
    let (x, mut outcomes) = (key(0), BTreeMap::new());
    let mut node = employed(1, Limits::default());
    let get = cast(0, 9, 0, &format!("GET {x}"));
    let all = cast(0, 9, 0, &format!("LRANGE {{{x}}}l 0 -1"));
    assert_eq!(node.look(Gid(0), 1, &get), (ANSWERED, "_\r\n".into()));
    assert_eq!(node.look(Gid(0), 2, &all).0, LocalRead::Later, "it may take long");
    // A worker has reached it, and its result is not known yet: it may have to be ordered.
    node.executor.flush_reads();
    while !is_done(&node.executor, Gid(0)) {
        std::thread::yield_now();
    }
    assert_eq!(node.look(Gid(0), 3, &get).0, LocalRead::Later, "a read in front of it is not told");
    node.deliver(0, &cast(1, 1, 0, &format!("SET {x} 1"))).unwrap();
    assert_eq!(node.look(Gid(0), 4, &get).0, LocalRead::Later);
    while outcomes.len() < 3 {
        node.looked(&mut outcomes);
    }
    let answers: Vec<&str> = outcomes.values().map(|(_, answer)| &answer[..]).collect();
    assert_eq!(answers, ["*0\r\n", "_\r\n", "$1\r\n1\r\n"]);
    node.until(1);
    assert_eq!(node.look(Gid(0), 5, &get).0, ANSWERED);
}

#[test]
fn reads_that_were_not_collected_hold_reads_back_and_no_commands() {
    let _limit = amcast_test_policy::time_limit();
    let x = key(0);
    let mut node = employed(1, Limits { running: 10, ..Limits::default() });
    let all = cast(0, 9, 0, &format!("LRANGE {x} 0 -1"));
    let taken = (0..10).take_while(|n| node.look(Gid(0), *n, &all).0 == LocalRead::Later).count();
    assert_eq!(taken, 5);
    assert_eq!(node.look(Gid(0), 5, &all).0, LocalRead::Busy);
    for n in 1..=5 {
        assert_eq!(
            node.deliver(0, &cast(n, n, 0, &format!("SADD {{{x}}}s {n}"))),
            Ok(DeliveryResult::Taken)
        );
    }
    assert_eq!(node.deliver(0, &cast(6, 6, 0, &format!("SADD {{{x}}}s 6"))), Err(ExecutorFull));
    let mut outcomes = BTreeMap::new();
    while outcomes.len() < 5 {
        node.looked(&mut outcomes);
    }
    assert_eq!(node.look(Gid(0), 10, &all).0, LocalRead::Later, "there is room again");
    node.until(5);
    assert_eq!(
        node.deliver(0, &cast(6, 6, 0, &format!("SADD {{{x}}}s 6"))),
        Ok(DeliveryResult::Taken)
    );
}

#[test]
fn large_answers_that_were_not_collected_hold_reads_back_also_those_that_were_given() {
    let _limit = amcast_test_policy::time_limit();
    let x = key(0);
    let mut node = employed(1, Limits { running_bytes: 100_000, ..Limits::default() });
    node.deliver(0, &cast(1, 1, 0, &format!("RPUSH {x} {}", "v".repeat(50_000)))).unwrap();
    node.until(1);
    let all = cast(0, 9, 0, &format!("LRANGE {x} 0 -1"));
    (0..100).for_each(|n| assert_eq!(node.look(Gid(0), n, &all).0, LocalRead::Later));
    node.executor.flush_reads();
    while !is_done(&node.executor, Gid(0)) {
        std::thread::yield_now();
    }
    let mut outcomes = BTreeMap::new();
    node.looked(&mut outcomes);
    let answered = outcomes.values().filter(|(peek, _)| *peek == ANSWERED).count();
    let bytes: usize = outcomes.values().map(|(_, answer)| answer.len()).sum();
    assert!(answered == 2 && bytes < 200_000, "{answered} answers, {bytes} bytes");
    assert_eq!(outcomes.values().filter(|(peek, _)| *peek == LocalRead::Busy).count(), 98);
}

#[test]
fn reads_that_were_given_are_answered_before_the_state_is_another_one() {
    let _limit = amcast_test_policy::time_limit();
    let x = key(0);
    let mut other = TestNode::new();
    other.run(&cast(1, 1, 0, &format!("RPUSH {x} new")));
    let state = read(&other.stream()).unwrap();
    let mut node = employed(2, Limits::default());
    let all = cast(0, 9, 0, &format!("LRANGE {x} 0 -1"));
    assert_eq!(node.look(Gid(0), 1, &all).0, LocalRead::Later);
    drop(node.executor.clear());
    assert_eq!(node.look(Gid(0), 2, &all).0, LocalRead::NotYet, "it has no state");
    drop(node.executor.adopt(state));
    assert_eq!(node.look(Gid(0), 3, &all).0, LocalRead::Later);
    let mut outcomes = BTreeMap::new();
    while outcomes.len() < 2 {
        node.looked(&mut outcomes);
    }
    let answers: Vec<&str> = outcomes.values().map(|(_, answer)| &answer[..]).collect();
    assert_eq!(answers, ["*0\r\n", "*1\r\n$3\r\nnew\r\n"]);
}

/// Keys of one shard that expire one after the other, each millisecond one, from the time `from_ms` on.
fn expiring(node: &mut TestNode, from_ms: u64, count: u64) -> Vec<String> {
    let x = key(0);
    let keys: Vec<String> = (0..count).map(|n| format!("{{{x}}}due{n}")).collect();
    for (n, due) in (0..).zip(&keys) {
        let text = format!("SET {due} 1 PXAT {}", from_ms + n);
        assert_eq!(node.run(&cast(n + 1, n + 1, 1, &text)), "+OK\r\n");
    }
    keys
}

#[test]
fn keys_that_expire_each_millisecond_have_no_read_of_other_keys_ordered() {
    let _limit = amcast_test_policy::time_limit();
    let x = key(0);
    let mut node = TestNode::new();
    let due = expiring(&mut node, 1000, 100);
    node.run(&cast(500, 500, 1, &format!("SET {x} 1")));
    let (mut ordered, mut seq) = (Vec::new(), 1000);
    for ms in 1000..1100 {
        for read in [format!("GET {x}"), format!("GET {}", due[(ms + 90) as usize % 100])] {
            let get = cast(0, 9, ms, &read);
            if node.look(Gid(0), 0, &get).0 == LocalRead::Never {
                ordered.push(read);
            }
        }
        if ms % 20 == 19 {
            seq += 1;
            node.run(&cast(seq, seq, ms, &format!("SET {{{x}}}other {ms}")));
        }
    }
    assert!(!ordered.contains(&format!("GET {x}")), "it does not expire");
    // Of the others those that expired since the last command.
    assert!(!ordered.is_empty() && ordered.len() <= 60, "{}", ordered.len());
}

/// A read of the first shard, and what became of it.
fn looked(node: &mut TestNode, now_ms: u64, text: &str) -> ReadOutcome {
    let (peek, answer) = node.look(Gid(0), 7, &cast(0, 9, now_ms, text));
    let mut outcomes = BTreeMap::new();
    while peek == LocalRead::Later && outcomes.is_empty() {
        node.looked(&mut outcomes);
    }
    outcomes.remove(&7).unwrap_or((peek, answer))
}

#[test]
fn what_one_read_sees_expired_no_later_one_sees_whatever_the_clocks_of_their_gateways_say() {
    let _limit = amcast_test_policy::time_limit();
    for workers in [0, 1] {
        let (mut node, x) = (employed(workers, Limits::default()), key(0));
        assert!(node.deliver(0, &cast(1, 1, 1000, &format!("SET {x} 1 PX 500"))).is_ok());
        let get = format!("GET {x}");
        let held = (ANSWERED, "$1\r\n1\r\n".to_string());
        assert_eq!(looked(&mut node, 1500, &get), held);
        assert_eq!(
            looked(&mut node, 1501, &get).0,
            LocalRead::Never,
            "it would be the first to see it"
        );
        for text in ["KEYS *", "DBSIZE", "SCAN 0", "RANDOMKEY"] {
            assert_eq!(looked(&mut node, 1501, text).0, LocalRead::Never, "{text}");
            assert_eq!(looked(&mut node, 1500, text).0, ANSWERED, "{text}");
        }
        assert_eq!(looked(&mut node, 1400, &get), held, "it has not expired for anybody");
        // Somebody's command brings ordered time there; the key is still held.
        assert!(node.deliver(0, &cast(2, 2, 1501, &format!("GET {{{x}}}other"))).is_ok());
        for ms in [0, 1400, 9000] {
            assert_eq!(looked(&mut node, ms, &get), (ANSWERED, "_\r\n".into()));
        }
    }
}

/// A read that may be old; with workers the answer may come later, under `number`.
fn peek(node: &mut TestNode, number: u64, c: &TestCast, written: &[(Gid, u64)]) -> ReadOutcome {
    let wrote = |&(shard, request): &(Gid, u64)| SessionWrite { shard, request, host_ms: 0 };
    let written: Vec<SessionWrite> = written.iter().map(wrote).collect();
    let mut answer = Vec::new();
    let peek = node.executor.peek(number, (c.dst, &c.payload), &written, &mut answer);
    (peek, String::from_utf8_lossy(&answer).into_owned())
}

/// The next outcomes of such reads, by their numbers.
fn collect_peeks(node: &mut TestNode, outcomes: &mut BTreeMap<u64, ReadOutcome>) {
    node.executor.flush_reads();
    node.executor.collect_peeks(&mut |number, peek, bytes| {
        let outcome = (peek, String::from_utf8_lossy(&bytes).into_owned());
        assert!(outcomes.insert(number, outcome).is_none(), "each is reported once");
    });
}

/// The same, now or when workers have reached it.
fn peeked(node: &mut TestNode, c: &TestCast, written: &[(Gid, u64)]) -> ReadOutcome {
    let (outcome, mut outcomes) = (peek(node, 7, c, written), BTreeMap::new());
    while outcome.0 == LocalRead::Later && outcomes.is_empty() {
        collect_peeks(node, &mut outcomes);
    }
    outcomes.remove(&7).unwrap_or(outcome)
}

#[test]
fn workers_answer_reads_that_may_be_old_behind_what_their_clients_wrote() {
    let _limit = amcast_test_policy::time_limit();
    let (x, y) = (key(0), key(1));
    let mut node = employed(2, Limits::default());
    let (get, both) = (cast(0, 9, 0, &format!("GET {x}")), cast(0, 9, 0, &format!("MGET {x} {y}")));
    let one = |n: u64| (ANSWERED, format!("$1\r\n{n}\r\n"));
    let not_yet = (LocalRead::NotYet, String::new());
    assert_eq!(peeked(&mut node, &get, &[(Gid(0), 1)]), not_yet, "it was not delivered");
    for n in 1..=9 {
        node.deliver(0, &cast(n, n, 0, &format!("SET {x} {n}"))).unwrap();
        assert_eq!(peeked(&mut node, &get, &[(Gid(0), n)]), one(n));
        assert_eq!(peeked(&mut node, &get, &[(Gid(0), n), (Gid(2), n)]), not_yet);
    }
    // A command over two shards, half of which is there.
    let wide = cast(10, 10, 0, &format!("MSET {x} a {y} b"));
    node.deliver(0, &wide).unwrap();
    assert_eq!(peeked(&mut node, &get, &[]), not_yet, "the shard is at no place of its order");
    node.deliver(1, &wide).unwrap();
    let written = [(Gid(0), 10), (Gid(0), 9)];
    let seen = (ANSWERED, "*2\r\n$1\r\na\r\n$1\r\nb\r\n".to_string());
    assert_eq!(peeked(&mut node, &both, &written), seen);
    // A write in another shard than the read's.
    let get = cast(0, 9, 0, &format!("GET {y}"));
    assert_eq!(peeked(&mut node, &get, &written), (ANSWERED, "$1\r\nb\r\n".into()));
    let set = cast(0, 9, 0, &format!("SET {y} c"));
    assert_eq!(peeked(&mut node, &set, &[]).0, LocalRead::Never);
}

/// A read that may be old, of few keys of one shard or of several.
fn any_old_read(rng: &mut Rng) -> String {
    let [a, b, c] = [0; 3].map(|_| rng.below(12));
    match rng.below(5) {
        0 => format!("MGET s{a} s{b} s{c}"),
        1 => format!("EXISTS s{a} h{b} z{c}"),
        2 => format!("SUNION c{a} c{b}"),
        _ => any_read(rng),
    }
}

/// Feeds a node without workers and one with the same commands, in the same order, and asks both for the same reads that
/// may be old, of a client that wrote just then.
fn old_beside(seed: u64, workers: usize, jumps: bool) -> (Vec<ReadOutcome>, usize) {
    let mut rng = Rng::new(seed);
    let casts: Vec<TestCast> =
        (1..=300).map(|n| cast(n, n, 10 * n + rng.below(40), &any(&mut rng, n))).collect();
    let (mut inline, mut node) = (TestNode::new(), employed(workers, Limits::default()));
    let_reads_jump(&mut node.executor, jumps);
    let streams: Vec<Vec<&TestCast>> = (0..SHARDS as u8)
        .map(|g| casts.iter().filter(|c| c.dst.contains(Gid(g))).collect())
        .collect();
    let (mut expected, mut outcomes) = (Vec::new(), BTreeMap::new());
    let mut written = Vec::new();
    while (0..SHARDS).any(|g| inline.next[g] as usize <= streams[g].len()) {
        let shard = rng.below(SHARDS as u64) as usize;
        if let Some(c) = streams[shard].get(inline.next[shard] as usize - 1) {
            assert_eq!(inline.deliver(shard as u8, c), node.deliver(shard as u8, c));
            let (envelope, _) = Envelope::decode(&c.payload).expect("it is one");
            if !envelope.read_only {
                written = vec![(c.dst.lowest().expect("it has one"), envelope.request)];
            }
        }
        let number = expected.len() as u64;
        let read = cast(0, 1000 + number, 0, &any_old_read(&mut rng));
        expected.push(peek(&mut inline, number, &read, &written));
        match peek(&mut node, number, &read, &written) {
            (LocalRead::Later, none) => assert_eq!(none, ""),
            now => assert!(outcomes.insert(number, now).is_none()),
        }
        if rng.chance(100_000) {
            collect_peeks(&mut node, &mut outcomes);
            node.executor.collect(&mut |_| {});
        }
    }
    while outcomes.len() < expected.len() {
        collect_peeks(&mut node, &mut outcomes);
        std::thread::yield_now();
    }
    let others = outcomes.values().zip(&expected).filter(|(a, b)| a != b).count();
    (expected, others)
}

#[test]
fn a_read_that_may_be_old_sees_with_workers_what_it_would_see_without() {
    let _limit = amcast_test_policy::time_limit();
    let mut all = Vec::new();
    for seed in 0..30 {
        let (expected, others) = old_beside(seed, 1 + seed as usize % 3, false);
        assert_eq!(others, 0, "seed {seed}");
        all.extend(expected);
    }
    for peek in [ANSWERED, LocalRead::NotYet] {
        assert!(all.iter().filter(|(p, _)| *p == peek).count() > 100, "{peek:?}");
    }
}

#[test]
fn a_read_that_may_be_old_and_does_not_wait_for_what_its_client_wrote_is_found_out() {
    let _limit = amcast_test_policy::time_limit();
    let found = (0..30).map(|seed| old_beside(seed, 1, true).1).sum::<usize>();
    assert!(found > 0, "every read saw what was in front of it, although it did not wait for that");
}
