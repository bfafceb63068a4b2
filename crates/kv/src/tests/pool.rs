//! The executor with threads of its own.

use super::snapshot::random;
use super::*;
use amcast_smr::{ShardedMachine, workers};
use std::sync::atomic::{AtomicUsize, Ordering};

fn nothing() -> WakeHandle {
    Arc::new(|| {})
}

impl TestNode {
    pub(super) fn with_workers(workers: usize, limits: Limits) -> Self {
        let mut executor = Executor::new(Kv::new(SHARDS, 1), SHARDS, limits);
        executor.employ(workers, nothing()).unwrap();
        Self { executor, ..Self::new() }
    }

    fn collect(&mut self) -> bool {
        let answers = &mut self.answers;
        self.executor.collect(&mut |a| {
            answers.push((a.id.seq, String::from_utf8_lossy(a.bytes).into_owned()));
        })
    }

    /// Waits until `n` answers were given.
    pub(super) fn until(&mut self, n: usize) {
        while self.answers.len() < n {
            if !self.collect() {
                std::thread::yield_now();
            }
        }
    }

    /// Delivers the shards' streams, interleaved at random, collecting when it must.
    pub(super) fn feed(
        &mut self,
        casts: &[TestCast],
        rng: &mut Rng,
        each: &mut dyn FnMut(&mut Self),
    ) {
        let streams: Vec<Vec<&TestCast>> = (0..SHARDS as u8)
            .map(|g| casts.iter().filter(|c| c.dst.contains(Gid(g))).collect())
            .collect();
        while (0..SHARDS).any(|g| self.next[g] as usize <= streams[g].len()) {
            let shard = rng.below(SHARDS as u64) as usize;
            let Some(c) = streams[shard].get(self.next[shard] as usize - 1) else { continue };
            if self.deliver(shard as u8, c).is_err() {
                self.collect();
            }
            each(self);
        }
    }

    fn sorted(&self) -> Vec<(u64, String)> {
        let mut answers = self.answers.clone();
        answers.sort();
        answers
    }
}

/// The state as it is read back: the common part of two executors that executed the same commands,
/// without records of requests that cannot be retried.
pub(super) fn probe(node: &mut TestNode) -> Vec<String> {
    let kinds =
        [("s", "GET"), ("h", "HGETALL"), ("l", "LRANGE"), ("c", "SMEMBERS"), ("z", "ZRANGE")];
    let ends = |kind| if matches!(kind, "l" | "z") { " 0 -1" } else { "" };
    let lines = kinds
        .iter()
        .flat_map(|(kind, get)| (0..12).map(move |i| format!("{get} {kind}{i}{}", ends(*kind))));
    let lines: Vec<String> = lines.chain(["DBSIZE".into()]).collect();
    let mut out = Vec::new();
    for (line, seq) in lines.iter().zip(2_000_000..) {
        let before = node.answers.len();
        let c = cast(seq, 600, 10_000_000, line);
        c.dst.iter().for_each(|g| assert_eq!(node.deliver(g.0, &c), Ok(DeliveryResult::Taken)));
        node.until(before + 1);
        out.push(node.answers[before].1.clone());
    }
    out
}

#[test]
fn any_number_of_workers_gives_the_answers_and_state_of_none() {
    let _limit = amcast_test_policy::time_limit();
    for seed in 0..25 {
        let mut casts = random(seed, 400);
        for at in (20..400).step_by(37) {
            let mut retry = casts[at - 11].clone();
            retry.id.seq = 1_000_000 + at as u64;
            casts.insert(at, retry);
        }
        let mut inline = TestNode::new();
        casts.iter().for_each(|c| drop(inline.run(c)));
        let (answers, end) = (inline.sorted(), probe(&mut inline));
        for workers in 1..=3 {
            let limits = Limits { running: 40, ..Limits::default() };
            let mut node = TestNode::with_workers(workers, limits);
            node.feed(&casts, &mut Rng::new(seed), &mut |node| {
                (0..SHARDS as u8).for_each(|g| {
                    let (applied, delivered) =
                        (node.executor.applied(Gid(g)), node.executor.delivered(Gid(g)));
                    assert!(applied <= delivered);
                });
            });
            node.until(casts.len());
            assert!(node.sorted() == answers, "seed {seed}, {workers} workers: other answers");
            for g in (0..SHARDS as u8).map(Gid) {
                assert_eq!(node.executor.applied(g), node.executor.delivered(g), "all answered");
            }
            assert!(probe(&mut node) == end, "seed {seed}, {workers} workers: another state");
        }
    }
}

#[test]
fn commands_of_all_pairs_of_shards_meet_whatever_the_threads_do() {
    let _limit = amcast_test_policy::time_limit();
    let mut node = TestNode::with_workers(3, Limits::default());
    let keys = [0, 1, 2].map(key);
    // Each adds one to two or three of the counters, in one transaction.
    let (mut rng, mut expected, mut sent) = (Rng::new(3), [0; 3], 0);
    for n in 0..20_000 {
        let left_out = rng.below(4) as usize;
        let used: Vec<usize> = (0..3).filter(|i| *i != left_out).collect();
        let inner: String = used.iter().map(|i| format!(" 2 INCR {}", keys[*i])).collect();
        let c = cast(10 + n, 2 + n, 1, &format!("EXEC 0 {}{inner}", used.len()));
        used.iter().for_each(|i| expected[*i] += 1);
        for g in c.dst.iter() {
            while node.deliver(g.0, &c).is_err() {
                node.collect();
            }
        }
        sent += 1;
    }
    node.until(sent);
    for (k, n) in keys.iter().zip(expected) {
        let before = node.answers.len();
        let c = cast(1_000_000, 50_000, 1, &format!("GET {k}"));
        c.dst.iter().for_each(|g| assert_eq!(node.deliver(g.0, &c), Ok(DeliveryResult::Taken)));
        node.until(before + 1);
        assert_eq!(node.answers[before].1, format!("${}\r\n{n}\r\n", n.to_string().len()));
    }
}

#[test]
fn what_was_not_collected_holds_deliveries_back() {
    let _limit = amcast_test_policy::time_limit();
    let mut node = TestNode::with_workers(2, Limits { running: 3, ..Limits::default() });
    let casts: Vec<TestCast> =
        (1..=4).map(|n| cast(n, n, 1, &format!("INCR {}", key(0)))).collect();
    casts[..3].iter().for_each(|c| assert_eq!(node.deliver(0, c), Ok(DeliveryResult::Taken)));
    assert_eq!(node.deliver(0, &casts[3]), Err(ExecutorFull));
    node.until(3);
    assert_eq!(node.deliver(0, &casts[3]), Ok(DeliveryResult::Taken));
    node.until(4);
    assert_eq!(node.answers[3], (4, ":4\r\n".into()));
}

#[test]
fn large_answers_that_were_not_collected_hold_deliveries_back() {
    let _limit = amcast_test_policy::time_limit();
    let mut node = TestNode::with_workers(1, Limits { running_bytes: 9000, ..Limits::default() });
    let text = format!("SET {} {}", key(0), "v".repeat(10_000));
    assert_eq!(node.deliver(0, &cast(1, 1, 1, &text)), Ok(DeliveryResult::Taken), "one at a time");
    node.until(1);
    let get = cast(2, 2, 1, &format!("GET {}", key(0)));
    node.deliver(0, &get).unwrap();
    while node.executor.applied(Gid(0)) < 2 {
        std::thread::yield_now();
    }
    // The answer is there, or it will be in a moment.
    while node.deliver(0, &cast(3, 3, 1, &format!("GET {}", key(0)))).is_ok() {
        assert!(node.next[0] < 100_000, "nothing holds back");
        std::thread::yield_now();
    }
    node.until(node.next[0] as usize - 1);
    assert_eq!(node.deliver(0, &get), Ok(DeliveryResult::Taken));
}

#[test]
fn a_snapshot_amid_workers_is_one_moment_of_all_shards() {
    let _limit = amcast_test_policy::time_limit();
    for seed in 0..20 {
        let casts = random(seed, 400);
        let mut rng = Rng::new(seed + 50);
        let mut node = TestNode::with_workers(2, Limits::default());
        let (at, mut count, mut cut) = (rng.below(900), 0, None);
        let (mut bytes, mut done) = (Vec::new(), false);
        node.feed(&casts, &mut rng, &mut |node| {
            if count == at {
                node.executor.capture();
                cut = Some(node.next);
            } else if count > at && !done {
                done = !node.executor.piece(700, &mut bytes);
            }
            count += 1;
        });
        let Some(next) = cut else { continue };
        while !done && node.executor.piece(700, &mut bytes) {}
        node.until(casts.len());
        let mut twin = TestNode { next, ..TestNode::new() };
        drop(twin.executor.adopt(read(&bytes).unwrap()));
        // Another one, which stopped there.
        let mut stopped = TestNode::new();
        for c in &casts {
            for g in c.dst.iter() {
                if stopped.next[g.index()] < next[g.index()] {
                    stopped.deliver(g.0, c).unwrap();
                }
            }
        }
        assert_eq!(probe_live(&mut twin), probe_live(&mut stopped), "seed {seed}");
        // The one with workers can take such a state over, too.
        let mut other = TestNode::with_workers(2, Limits::default());
        other.next = next;
        drop(other.executor.adopt(read(&bytes).unwrap()));
        other.feed(&casts, &mut rng, &mut |_| {});
        other.until(casts.len() - stopped.answers.len());
        assert_eq!(probe(&mut other), probe(&mut node), "seed {seed}");
    }
}

/// The comparable state of two nodes in which commands may wait.
fn probe_live(node: &mut TestNode) -> String {
    let mut out = String::new();
    for g in (0..SHARDS as u8).map(Gid) {
        let applied = node.executor.applied(g);
        out += &format!("{applied} {} {};", node.executor.delivered(g), node.executor.waiting(g));
    }
    out
}

/// A machine that panics on request.
struct Fragile(Kv);

impl ShardedMachine for Fragile {
    type Part = crate::Store;
    fn part(&self) -> Self::Part {
        self.0.part()
    }
    fn access(&self, command: &[u8], dst: GroupSet, access: &mut amcast_smr::machine::Access) {
        self.0.access(command, dst, access);
    }
    fn apply<'a>(
        &self,
        _: &amcast_smr::machine::ExecutionPoint<'a>,
        _: &'a mut [&'a mut Self::Part],
        _: &[u8],
        _: &mut Vec<u8>,
    ) -> amcast_core::Outcome {
        panic!("as asked for");
    }
    fn refuse(&self, why: amcast_smr::machine::Refusal, command: &[u8], answer: &mut Vec<u8>) {
        self.0.refuse(why, command, answer);
    }
}

#[test]
fn a_panic_of_a_worker_is_a_panic_of_its_node() {
    let _limit = amcast_test_policy::time_limit();
    let woken = Arc::new(AtomicUsize::new(0));
    let seen = woken.clone();
    let wake: WakeHandle = Arc::new(move || {
        seen.fetch_add(1, Ordering::Release);
    });
    let fragile = Fragile(Kv::new(SHARDS, 1));
    let mut it = Executor::new(fragile, SHARDS, Limits::default());
    it.employ(2, wake).unwrap();
    let c = cast(1, 1, 1, &format!("INCR {}", key(0)));
    it.deliver(Gid(0), 1, c.id, c.dst, &c.payload, &mut |_| {}).unwrap();
    while woken.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    let collect = std::panic::AssertUnwindSafe(|| it.collect(&mut |_| {}));
    assert!(std::panic::catch_unwind(collect).is_err());
    drop(it);
}

#[test]
fn workers_follow_the_cores_of_a_node() {
    let _limit = amcast_test_policy::time_limit();
    assert_eq!((workers(2, 3, 3), workers(4, 3, 3), workers(6, 3, 3)), (0, 0, 1));
    assert_eq!((workers(16, 1, 4), workers(4, 1, 8), workers(1, 1, 3)), (4, 3, 0));
}

#[test]
fn workers_run_no_read_that_nobody_waits_for() {
    let _limit = amcast_test_policy::time_limit();
    let x = key(0);
    for workers in [0, 2] {
        let mut node = TestNode::with_workers(workers, Limits::default());
        // The gateway of the third command has given it up.
        node.executor.answer_only(Arc::new(|id: MsgId| id.sender == Pid(7) && id.seq != 3));
        let mut casts = ["SET {x} 1", "GET {x}", "GET {x}", "GET {x}", "SET {x} 2"]
            .iter()
            .zip(1..)
            .map(|(text, seq)| cast(seq, seq, 0, &text.replace("{x}", &x)))
            .collect::<Vec<_>>();
        casts[2].id.sender = Pid(7);
        casts[3].id.sender = Pid(7);
        casts.iter().for_each(|c| assert_eq!(node.deliver(0, c), Ok(DeliveryResult::Taken)));
        node.until(3);
        while node.executor.applied(Gid(0)) < 5 {
            std::thread::yield_now();
        }
        let answers = [(1, "+OK\r\n"), (4, "$1\r\n1\r\n"), (5, "+OK\r\n")];
        assert_eq!(node.answers, answers.map(|(seq, text)| (seq, text.to_string())));
        assert_eq!(node.executor.holds(Gid(0)).executed, 3, "{workers} workers");
    }
}
