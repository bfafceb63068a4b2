//! Digests of replicas that executed the same commands, at any pace, and of one that did not.

use super::snapshot::random;
use super::*;
use amcast_core::{ClusterShape, SkipDecision};
use amcast_smr::ClockReport;
use amcast_smr::ShardedMachine;
use amcast_smr::digest::{Digest, DigestReport, point};
use amcast_smr::executor::inspection::{change_part, forget_sessions};
use amcast_smr::parts::{Assembly, CommandPart};
use std::collections::BTreeMap;

/// Small slices, so that the few keys of a test make many.
fn limits() -> Limits {
    Limits { slice_bytes: 900, ..Limits::default() }
}

fn cluster() -> ClusterShape {
    ClusterShape::new(SHARDS, 3, 0).unwrap()
}

/// The digests that a node reported, by shard and position.
type Reports = BTreeMap<(u8, u64), Digest>;

/// A replica of each shard.
struct DigestReplica {
    node: TestNode,
    rank: usize,
    workers: usize,
    reports: Reports,
}

impl DigestReplica {
    fn new(rank: usize, workers: usize) -> Self {
        let mut node = TestNode::new();
        node.executor = Self::executor(rank, workers);
        Self { node, rank, workers, reports: Reports::new() }
    }

    fn executor(rank: usize, workers: usize) -> Executor<Kv> {
        let mut executor = Executor::new(Kv::new(SHARDS, 1), SHARDS, limits());
        executor.compare_digests(cluster(), rank);
        executor.employ(workers, Arc::new(|| {})).unwrap();
        executor
    }

    /// Sends this replica alone a read that is not ordered, at a time that the shard may not have
    /// reached.
    fn read(&mut self, rng: &mut Rng) {
        let texts = ["DBSIZE", "RANDOMKEY", "KEYS *", "SCAN 0", "GET s1", "HGETALL h2"];
        let text = texts[rng.below(texts.len() as u64) as usize];
        let (shard, now_ms) = (Gid(rng.below(SHARDS as u64) as u8), rng.below(1_500_000));
        let payload = cast(0, 9, now_ms, text).payload;
        self.node.executor.peek_one(shard, 0, &payload, &mut Vec::new());
        self.node.executor.flush_reads();
    }

    fn collect(&mut self) {
        self.node.executor.collect_reads(&mut |_, _, _, _| {});
        let answers = &mut self.node.answers;
        self.node.executor.collect(&mut |a| {
            answers.push((a.id.seq, String::from_utf8_lossy(a.bytes).into_owned()));
        });
        for shard in 0..SHARDS as u8 {
            if let Some(report) = self.node.executor.take_digest_report(Gid(shard)) {
                let DigestReport { position, digest, .. } = DigestReport::decode(&report).unwrap();
                assert!(self.reports.insert((shard, position), digest).is_none());
            }
        }
    }

    fn deliver(&mut self, shard: u8, c: &TestCast) {
        while self.node.deliver(shard, c).is_err() {
            self.collect();
            std::thread::yield_now();
        }
        self.collect();
    }

    /// Delivers the next command of some shard; false if none is left in any.
    fn advance(&mut self, streams: &[Vec<TestCast>], rng: &mut Rng) -> bool {
        let is_left = |shard: &usize| self.node.next[*shard] as usize <= streams[*shard].len();
        let left: Vec<usize> = (0..SHARDS).filter(is_left).collect();
        let Some(&shard) = left.get(rng.below(left.len().max(1) as u64) as usize) else {
            return false;
        };
        self.deliver(shard as u8, &streams[shard][self.node.next[shard] as usize - 1]);
        true
    }

    /// Delivers everything, at a pace of its own.
    fn run(&mut self, streams: &[Vec<TestCast>], rng: &mut Rng, restarts: bool) {
        while self.advance(streams, rng) {
            if rng.chance(200_000) {
                self.read(rng);
            }
            if restarts && rng.chance(5_000) {
                self.restart();
            }
        }
        let is_behind = |it: &Self| {
            (0..SHARDS as u8)
                .map(Gid)
                .any(|g| it.node.executor.applied(g) < it.node.next[g.index()] - 1)
        };
        while is_behind(self) {
            self.collect();
        }
        self.collect();
    }

    /// Continues as a new node with this one's state.
    fn restart(&mut self) {
        let bytes = self.node.stream();
        self.collect();
        self.node.executor = Self::executor(self.rank, self.workers);
        drop(self.node.executor.adopt(read(&bytes).unwrap()));
    }
}

fn point_at(seq: u64, shard: u8, cursor: &[u8]) -> TestCast {
    let id = MsgId { sender: Pid(3 * u32::from(shard)), seq };
    TestCast { id, dst: GroupSet::one(Gid(shard)), payload: point(cursor) }
}

fn report_of(seq: u64, shard: u8, rank: u32, report: DigestReport) -> TestCast {
    let id = MsgId { sender: Pid(3 * u32::from(shard) + rank), seq };
    TestCast { id, dst: GroupSet::one(Gid(shard)), payload: report.encode() }
}

fn streams(casts: &[TestCast]) -> Vec<Vec<TestCast>> {
    let of = |shard: u8| casts.iter().filter(move |c| c.dst.contains(Gid(shard))).cloned();
    (0..SHARDS as u8).map(|shard| of(shard).collect()).collect()
}

/// Where digest points begin at which one that goes over all of them anew finds the slices of a state.
fn cursors(node: &mut TestNode, seq: &mut u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for shard in 0..SHARDS as u8 {
        loop {
            let payload = node.executor.digest_point(Gid(shard));
            let (_, body) = Envelope::decode(&payload).unwrap();
            all.push(body[1..].to_vec());
            *seq += 1;
            node.deliver(shard, &point_at(*seq, shard, &body[1..])).unwrap();
            let next = node.executor.digest_point(Gid(shard));
            if next.len() == Envelope::BYTES + 1 {
                break;
            }
        }
    }
    all
}

/// Commands of random kinds with digest points among them, which begin at places that slices of such commands' states
/// begin at; some commands are sent again.
fn with_points(seed: u64, len: u64) -> (Vec<TestCast>, usize) {
    let (mut rng, mut casts) = (Rng::new(seed + 500), random(seed, len));
    let mut first = DigestReplica::new(0, 0);
    casts[..len as usize / 2].iter().for_each(|c| drop(first.node.run(c)));
    let mut seq = 1_000_000;
    let cursors = cursors(&mut first.node, &mut seq);
    for at in (20..len as usize).step_by(37) {
        let mut retry = casts[at - 11].clone();
        retry.id.seq = 2_000_000 + at as u64;
        casts.insert(at, retry);
    }
    let points = len / 8;
    for n in 0..points {
        let at = rng.below(casts.len() as u64) as usize;
        let cursor = &cursors[rng.below(cursors.len() as u64) as usize];
        casts.insert(at, point_at(3_000_000 + n, rng.below(SHARDS as u64) as u8, cursor));
    }
    (casts, cursors.len())
}

/// Checks that no two nodes computed something else at one point; how often two could be compared.
fn agree(seed: u64, all: &[DigestReplica]) -> usize {
    let mut compared = 0;
    for one in all {
        for (at, digest) in &one.reports {
            for other in all.iter().filter_map(|other| other.reports.get(at)) {
                assert_eq!(digest.difference(other), None, "seed {seed}, {at:?}");
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn replicas_that_run_the_same_commands_agree_at_any_pace_with_workers_and_after_restarts() {
    let _limit = amcast_test_policy::time_limit();
    let (mut compared, mut slices) = (0, 0);
    for seed in 0..60 {
        let (casts, cursors) = with_points(seed, 400);
        let (streams, mut rng) = (streams(&casts), Rng::new(seed));
        let workers = [0, 0, 0, (seed % 4) as usize];
        let mut all: Vec<DigestReplica> =
            workers.iter().enumerate().map(|(rank, w)| DigestReplica::new(rank % 3, *w)).collect();
        for (i, replica) in all.iter_mut().enumerate() {
            replica.run(&streams, &mut rng, i % 2 == 1);
        }
        (compared, slices) = (compared + agree(seed, &all), slices + cursors);
    }
    assert!(compared > 20_000 && slices > 700, "{compared} compared, {slices} slices");
}

#[test]
fn a_command_of_a_session_with_the_number_of_points_is_executed_and_answered() {
    let _limit = amcast_test_policy::time_limit();
    for workers in [0, 2] {
        let (mut replica, x) = (DigestReplica::new(0, workers), key(0));
        replica.deliver(0, &point_at(1, 0, b""));
        let texts = [format!("INCR {x}"), format!("GET {x}"), format!("INCR {x}")];
        for ((text, request), seq) in texts.iter().zip([1, 1, 0]).zip(2..) {
            let mut c = cast(seq, request, 10, text);
            let (envelope, body) = Envelope::decode(&c.payload).unwrap();
            let envelope = Envelope { session: u64::MAX, open_from: request, ..envelope };
            let mut payload = Vec::new();
            envelope.encode(&mut payload);
            payload.extend_from_slice(body);
            c.payload = payload;
            replica.deliver(0, &c);
        }
        replica.run(&streams(&[]), &mut Rng::new(1), false);
        let Some((last, others)) = replica.node.answers.split_last() else { panic!("no answers") };
        let answers = [(2, ":1\r\n"), (3, "$1\r\n1\r\n")];
        assert_eq!(others, answers.map(|(seq, answer)| (seq, answer.to_string())));
        assert!(last.0 == 4 && last.1.starts_with("-ERR"), "no client has a request 0: {last:?}");
        assert_eq!(replica.reports.keys().collect::<Vec<_>>(), [&(0, 1)]);
    }
}

/// Three replicas that have one order of commands, points and reports.
struct SharedOrder {
    replicas: [DigestReplica; 3],
    seq: u64,
}

impl SharedOrder {
    fn new() -> Self {
        Self { replicas: [0, 1, 2].map(|rank| DigestReplica::new(rank, 0)), seq: 10_000 }
    }

    /// Delivers at all that take it.
    fn deliver(&mut self, c: &TestCast) {
        for replica in &mut self.replicas {
            for shard in c.dst.iter() {
                if replica.node.executor.differs().is_none() {
                    replica.node.deliver(shard.0, c).unwrap();
                }
            }
        }
    }

    fn run(&mut self, text: &str) {
        self.seq += 1;
        self.deliver(&cast(self.seq, self.seq, 10, text));
    }

    /// Has a point of `shard` ordered, and then what `reporting` say of it; whether it was the last of a cycle.
    fn compare(&mut self, shard: u8, reporting: &[usize]) -> bool {
        let payload = self.replicas[reporting[0]].node.executor.digest_point(Gid(shard));
        self.seq += 1;
        let id = MsgId { sender: Pid(3 * u32::from(shard)), seq: self.seq };
        self.deliver(&TestCast { id, dst: GroupSet::one(Gid(shard)), payload });
        for &rank in reporting {
            let report =
                |it: &mut Self| it.replicas[rank].node.executor.take_digest_report(Gid(shard));
            while let Some(report) = report(self) {
                let report = DigestReport::decode(&report).unwrap();
                self.seq += 1;
                self.deliver(&report_of(self.seq, shard, rank as u32, report));
            }
        }
        let next = self.replicas[reporting[0]].node.executor.digest_point(Gid(shard));
        next.len() == Envelope::BYTES + 1
    }

    /// Compares all of a shard's data once.
    fn cycle(&mut self, shard: u8) {
        while !self.compare(shard, &[0, 1, 2]) {}
    }

    fn differing(&self) -> Vec<usize> {
        (0..3).filter(|rank| self.replicas[*rank].node.executor.differs().is_some()).collect()
    }

    /// With some keys of every kind.
    fn filled() -> Self {
        let mut it = Self::new();
        for n in 0..60 {
            let shard = n % SHARDS;
            let tag = key(shard as u8);
            it.run(&format!("SET {{{tag}}}s{n} {}", "v".repeat(7 * n)));
            it.run(&format!("RPUSH {{{tag}}}l{} {n} {n}", n / 9));
            it.run(&format!("ZADD {{{tag}}}z{} {n} m{n}", n / 9));
            it.run(&format!("HSET {{{tag}}}h{} f{n} {n}", n / 9));
            it.run(&format!("SADD {{{tag}}}c{} m{n}", n / 9));
            it.run(&format!("SET {{{tag}}}e{n} x PX 1000"));
            it.run(&format!("WATCH {{{tag}}}w{n}"));
        }
        (0..SHARDS as u8).for_each(|shard| it.cycle(shard));
        assert!(it.differing().is_empty());
        it
    }
}

#[test]
fn a_replica_whose_state_does_not_tell_when_a_key_changed_answers_otherwise_and_goes_on() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::new();
    let x = key(0);
    shared.run(&format!("SADD {x} m"));
    shared.cycle(0);
    // Its state is of an older version, and the others have executed that command themselves.
    change_part(&mut shared.replicas[2].node.executor, Gid(0), |store| {
        store.find_mut(x.as_bytes()).expect("it is there").changed_ms = 0;
    });
    shared.run(&format!("EXEC 0 1 3 OBJECT IDLETIME {x}"));
    let answers = [0, 1, 2].map(|rank| {
        let node: &TestNode = &shared.replicas[rank].node;
        node.answers.last().expect("an answer").1.clone()
    });
    assert!(
        answers[0] == answers[1] && answers[2].contains("idle time is not known"),
        "{answers:?}"
    );
    (0..SHARDS as u8).for_each(|shard| shared.cycle(shard));
    assert_eq!(shared.differing(), [0; 0]);
}

#[test]
fn a_replica_with_one_wrong_byte_is_found_within_one_cycle_and_stops_and_the_others_go_on() {
    let _limit = amcast_test_policy::time_limit();
    let x = key(0);
    // Faults of one replica's state, by a command that only it executes.
    let wrongs = [
        format!("SETRANGE {{{x}}}s57 200 w"),
        format!("LSET {{{x}}}l3 1 8"),
        format!("ZADD {{{x}}}z3 28 m27"),
        format!("HSET {{{x}}}h3 f27 28"),
        format!("SMOVE {{{x}}}c3 {{{x}}}c4 m27"),
        format!("SET {{{x}}}s30 {}", "v".repeat(210)),
        format!("PEXPIRE {{{x}}}e30 900"),
        format!("DEL {{{x}}}s57"),
        format!("WATCH {{{x}}}w1000"),
        format!("SET {{{x}}}new v"),
    ];
    for (wrong, rank) in wrongs.iter().zip([0, 1, 2].iter().cycle()) {
        let mut shared = SharedOrder::filled();
        change_part(&mut shared.replicas[*rank].node.executor, Gid(0), |store| {
            let c = cast(1 << 40, 1, 10, wrong);
            let places = [ShardPosition {
                shard: Gid(0),
                position: 7,
                now: Stamp { wall_ms: 10, host_ms: 10 },
            }];
            let exact = GroupSet::EMPTY;
            let at = amcast_smr::machine::ExecutionPoint {
                id: c.id,
                dst: c.dst,
                places: &places,
                exact,
                read_only: false,
            };
            let body = &c.payload[Envelope::BYTES..];
            Kv::new(SHARDS, 1).apply(&at, &mut [store], body, &mut Vec::new());
        });
        shared.run(&format!("SET {{{x}}}other 1"));
        (1..SHARDS as u8).for_each(|shard| shared.cycle(shard));
        assert!(shared.differing().is_empty(), "other shards are what they were");
        let mut points = 0;
        while shared.differing().is_empty() {
            points += 1;
            if shared.compare(0, &[0, 1, 2]) {
                break;
            }
        }
        assert_eq!(shared.differing(), [*rank], "{wrong}");
        let executor = &mut shared.replicas[*rank].node.executor;
        let why = executor.differs().unwrap().to_string();
        let other = (*rank + 1) % 3;
        assert!(points < 60 && why.contains("shard 0 at position"), "{points} points: {why}");
        assert!(
            why.contains(&format!("g0/r{rank} has")) && why.contains(&format!("g0/r{other} has"))
        );
        // It takes no command and answers no read; the others do.
        let get = cast(1, 1, 10, &format!("GET {{{x}}}other"));
        let peek = |executor: &mut Executor<Kv>| {
            executor.peek_one(Gid(0), 0, &get.payload, &mut Vec::new())
        };
        assert_eq!(peek(executor), LocalRead::NotYet);
        let next = shared.replicas[*rank].node.next[1];
        let later = cast(2, 2, 10, &format!("SET {} 1", key(1)));
        assert_eq!(shared.replicas[*rank].node.deliver(1, &later), Err(ExecutorFull));
        assert_eq!(shared.replicas[*rank].node.next[1], next);
        let well = &mut shared.replicas[other].node;
        assert_eq!((peek(&mut well.executor), well.executor.doubt()), (ANSWERED, None));
        assert_eq!(well.deliver(1, &later), Ok(DeliveryResult::Taken));
    }
}

#[test]
fn a_replica_that_executed_a_retry_twice_is_found_at_the_next_point_by_its_answers() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::filled();
    let once = cast(20_000, 20_000, 10, &format!("APPEND {} more", key(0)));
    shared.deliver(&once);
    forget_sessions(&mut shared.replicas[2].node.executor);
    shared.deliver(&TestCast { id: MsgId { seq: 20_001, ..once.id }, ..once.clone() });
    assert!(!shared.compare(0, &[0, 1, 2]), "not all of the shard");
    assert_eq!(shared.differing(), [2]);
    let why = shared.replicas[2].node.executor.differs().unwrap();
    assert!(why.contains("digest of its answers since position"), "{why}");
}

/// The two parts of a command of shard 0 and what puts them together; the command is of a session of its own.
fn in_parts(session: u64, text: &str) -> [TestCast; 3] {
    let whole = cast(0, 1, 10, text);
    let (envelope, body) = Envelope::decode(&whole.payload).unwrap();
    let of =
        |request, open_from| Envelope { session, request, open_from, read_only: false, ..envelope };
    let mut payloads = [const { Vec::new() }; 3];
    let (first, second) = body.split_at(body.len() / 2);
    CommandPart { envelope: of(1, 1), bytes: first }.encode(&mut payloads[0]);
    CommandPart { envelope: of(2, 1), bytes: second }.encode(&mut payloads[1]);
    let (bytes, sum) = (body.len() as u64, crc32c::crc32c(body));
    Assembly { envelope: of(3, 3), parts: 2, bytes, sum }.encode(&mut payloads[2]);
    let mut seq = 100 * session;
    payloads.map(|payload| {
        seq += 1;
        TestCast { id: MsgId { seq, ..whole.id }, dst: whole.dst, payload }
    })
}

#[test]
fn a_command_in_parts_counts_as_any_and_a_replica_that_lost_a_part_is_found() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::filled();
    in_parts(70_000, &format!("APPEND {} more", key(0))).iter().for_each(|c| shared.deliver(c));
    assert!(shared.replicas[0].node.executor.wants_digest_point(Gid(0)));
    shared.cycle(0);
    assert!(shared.differing().is_empty());
    // One that changes nothing is found by its answer alone.
    for (i, c) in in_parts(70_001, &format!("GET {}", key(0))).iter().enumerate() {
        for (rank, replica) in shared.replicas.iter_mut().enumerate() {
            let is_lost = (rank, i) == (1, 1);
            let nothing = ClockReport(Stamp::default()).encode().to_vec();
            let lost = TestCast { payload: nothing, ..c.clone() };
            replica.node.deliver(0, if is_lost { &lost } else { c }).unwrap();
        }
    }
    shared.compare(0, &[0, 1, 2]);
    assert_eq!(shared.differing(), [1]);
    let why = shared.replicas[1].node.executor.differs().unwrap();
    assert!(why.contains("digest of its answers since position"), "{why}");
}

#[test]
fn what_expired_counts_for_nothing_whether_it_was_dropped_or_not() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::filled();
    // Ordered time advances by a command of the shard, and each command drops a few.
    shared.seq += 1;
    let late = cast(shared.seq, shared.seq, 5000, &format!("SET {} 1", key(0)));
    shared.deliver(&late);
    let held = |shared: &SharedOrder| {
        shared.replicas.each_ref().map(|r| r.node.executor.holds(Gid(0)).items)
    };
    change_part(&mut shared.replicas[1].node.executor, Gid(0), |store| store.purge(5000, 1000));
    let [one, other, _] = held(&shared);
    assert!(one > other, "{one} {other}");
    shared.cycle(0);
    assert!(shared.differing().is_empty());
    assert!(shared.replicas.iter().all(|r| r.node.executor.doubt().is_none()));
    assert!(shared.replicas[0].node.executor.agreed(Gid(0)) > 0);
}

#[test]
fn a_watched_key_that_expired_is_the_same_after_all_keys_were_deleted_whether_it_was_dropped_or_not()
 {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::filled();
    let x = key(0);
    let mut at = |now_ms: u64, text: String| {
        shared.seq += 1;
        let c = cast(shared.seq, shared.seq, now_ms, &text);
        shared.deliver(&c);
    };
    at(10, format!("WATCH {{{x}}}gone"));
    at(10, format!("SET {{{x}}}gone 1 PX 50"));
    // It expires, and so do so many others that each command drops only some of them.
    (0..50).for_each(|n| at(10, format!("SET {{{x}}}a{n} 1 PX 20")));
    at(1000, format!("SET {x} 1"));
    change_part(&mut shared.replicas[1].node.executor, Gid(0), |store| store.purge(1000, 1000));
    shared.seq += 1;
    let all = cast(shared.seq, shared.seq, 1000, "FLUSHALL");
    shared.deliver(&all);
    shared.cycle(0);
    assert!(shared.differing().is_empty(), "{:?}", shared.replicas[1].node.executor.differs());
}

#[test]
fn what_is_remembered_of_a_watched_key_is_forgotten_by_no_replica_that_answers_a_read_alone() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::filled();
    let x = key(0);
    let mut at = |now_ms: u64, text: String| {
        shared.seq += 1;
        let c = cast(shared.seq, shared.seq, now_ms, &text);
        shared.deliver(&c);
    };
    // All other keys and marks that expire are gone.
    at(700_000, format!("SET {x} 1"));
    at(700_000, "DBSIZE".to_string());
    at(700_000, format!("WATCH {{{x}}}none"));
    let executor = &mut shared.replicas[1].node.executor;
    for (now_ms, expected) in [(1_300_000, ANSWERED), (1_300_002, LocalRead::Never)] {
        for text in ["DBSIZE", "RANDOMKEY"] {
            let payload = cast(0, 9, now_ms, text).payload;
            let peek = executor.peek_one(Gid(0), 0, &payload, &mut Vec::new());
            assert_eq!(peek, expected, "{text} at {now_ms}");
        }
    }
    shared.cycle(0);
    assert!(shared.differing().is_empty(), "{:?}", shared.replicas[1].node.executor.differs());
}

/// Makes what two replicas hold differ in shard 0.
fn spoil(replica: &mut DigestReplica) {
    change_part(&mut replica.node.executor, Gid(0), |store| {
        store.version = 1;
        store.put(key(0).as_bytes(), crate::value_of(b"wrong"), u64::MAX);
    });
}

#[test]
fn without_a_majority_all_are_in_doubt_until_there_is_one() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::filled();
    spoil(&mut shared.replicas[1]);
    // The third one is down.
    for _ in 0..100 {
        shared.compare(0, &[0, 1]);
    }
    assert!(shared.differing().is_empty());
    for rank in [0, 1] {
        let executor = &shared.replicas[rank].node.executor;
        let why = executor.doubt().expect("they differ");
        assert!(why.contains("g0/r0 has") && why.contains("g0/r1 has"), "{why}");
        assert!(executor.wants_digest_point(Gid(0)), "also without commands");
        assert!(!executor.wants_digest_point(Gid(1)));
    }
    for _ in 0..100 {
        shared.compare(0, &[2, 0, 1]);
    }
    assert_eq!(shared.differing(), [1]);
    for rank in [0, 2] {
        assert_eq!(shared.replicas[rank].node.executor.doubt(), None);
    }
}

#[test]
fn a_key_whose_name_fills_a_slice_does_not_keep_the_next_one_from_what_is_behind_it() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::new();
    for bytes in 800..limits().slice_bytes + 20 {
        shared.run(&format!("SET {{{}}}{} value", key(0), "n".repeat(bytes)));
    }
    let slices = (0..2000).find(|_| shared.compare(0, &[0, 1, 2]));
    assert!(slices.is_some_and(|n| n > 100), "{slices:?}");
    assert!(shared.differing().is_empty());
}

#[test]
fn a_replica_that_comes_back_decides_by_the_points_that_it_came_to_late() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::filled();
    spoil(&mut shared.replicas[1]);
    // The third one catches up later: it says nothing meanwhile.
    let mut points = 0;
    while shared.replicas[0].node.executor.doubt().is_none() {
        shared.compare(0, &[0, 1]);
        points += 1;
    }
    (0..10).for_each(|_| _ = shared.compare(0, &[0, 1]));
    assert!(points < 40 && shared.differing().is_empty(), "{points}");
    // One point later, and not after a walk over all that they hold.
    shared.compare(0, &[2]);
    assert_eq!(shared.differing(), [1]);
    assert_eq!(shared.replicas[0].node.executor.doubt(), None);
}

#[test]
fn three_different_states_leave_all_in_doubt_and_stop_none() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::filled();
    for (rank, value) in [(0, "a"), (1, "b")] {
        change_part(&mut shared.replicas[rank].node.executor, Gid(0), |store| {
            store.put(key(0).as_bytes(), crate::value_of(value.as_bytes()), u64::MAX);
        });
    }
    (0..100).for_each(|_| _ = shared.compare(0, &[0, 1, 2]));
    assert!(shared.differing().is_empty());
    assert!(shared.replicas.iter().all(|r| r.node.executor.doubt().is_some()));
}

#[test]
fn reports_of_strangers_and_of_points_that_are_not_known_say_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let mut shared = SharedOrder::filled();
    shared.run(&format!("SET {} 1", key(0)));
    let before = shared.replicas[0].node.next[0];
    assert!(shared.replicas[0].node.executor.wants_digest_point(Gid(0)));
    shared.seq += 1;
    shared.deliver(&point_at(shared.seq, 0, b""));
    assert!(!shared.replicas[0].node.executor.wants_digest_point(Gid(0)));
    let report = shared.replicas[0].node.executor.take_digest_report(Gid(0)).unwrap();
    let report = DigestReport::decode(&report).unwrap();
    assert_eq!(
        (report.position, shared.replicas[0].node.executor.take_digest_report(Gid(0))),
        (before, None)
    );
    let wrong = |position| DigestReport {
        position,
        ..DigestReport::decode(&[&[4][..], &[7; 36]].concat()).unwrap()
    };
    let mut say = |rank: u32, report| {
        shared.seq += 1;
        shared.deliver(&report_of(shared.seq, 0, rank, report));
        let executor = &shared.replicas[0].node.executor;
        (executor.differs().is_some(), executor.doubt().is_some())
    };
    // Replicas of another shard, and who is none.
    for rank in [3, 4, 5, 8, 9, 100] {
        assert_eq!(say(rank, wrong(before)), (false, false));
    }
    // A point that has not come, and commands that are none.
    for position in [0, 1, before - 1, before + 500, u64::MAX] {
        assert_eq!(
            (say(1, wrong(position)), say(2, wrong(position))),
            ((false, false), (false, false))
        );
    }
    // Its own report of an earlier incarnation does not count.
    assert_eq!(say(0, wrong(before)), (false, false));
    // A replica counts once, by its last word.
    assert_eq!(say(1, wrong(before)), (false, true));
    assert_eq!(say(1, wrong(before)), (false, true));
    assert_eq!(say(1, report), (false, false));
    assert_eq!(say(1, wrong(before)), (false, false), "it was agreed on");
    // A state from elsewhere says nothing of the points before.
    shared.replicas[0].restart();
    for rank in [1, 2] {
        shared.seq += 1;
        shared.deliver(&report_of(shared.seq, 0, rank, wrong(before)));
    }
    let executor = &shared.replicas[0].node.executor;
    assert_eq!((executor.differs(), executor.doubt()), (None, None));
}

/// Replicas that executed a message, said so in digests, and ended without a state that outlasts them skip it when all
/// is delivered again: what they said before is no reason to stop.
#[test]
fn what_replicas_said_before_they_decided_to_skip_a_message_says_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let (set, at) = (cast(1, 1, 10, &format!("SET {} 1", key(0))), point_at(2, 0, b""));
    let mut executed = DigestReplica::new(0, 0);
    executed.deliver(0, &set);
    executed.deliver(0, &at);
    let digest = executed.reports[&(0, 2)];
    let decided = SkipDecision { msg: set.id, group: Gid(0), position: 1 };
    let report = |skips| DigestReport { position: 2, digest, skips };
    let skipping = |reports: &[DigestReport]| {
        let mut replica = DigestReplica::new(0, 0);
        replica.node.executor.skip(&[(decided, true)]).unwrap();
        replica.node.deliver(0, &set).unwrap();
        replica.node.deliver(0, &at).unwrap();
        let own = replica.node.executor.take_digest_report(Gid(0)).unwrap();
        let own = DigestReport::decode(&own).unwrap();
        assert!(own.digest.difference(&digest).is_some(), "it was skipped");
        for (rank, report) in [1, 2].into_iter().zip(reports) {
            replica.node.deliver(0, &report_of(10 + rank, 0, rank as u32, *report)).unwrap();
        }
        let executor = &replica.node.executor;
        (own, executor.differs().is_some(), executor.doubt().is_some(), executor.agreed(Gid(0)))
    };
    let (own, ..) = skipping(&[]);
    assert_ne!(own.skips, 0);
    assert_eq!(skipping(&[report(0), report(0)]), (own, false, false, 0));
    // Of those that skip it, too, they count as ever.
    assert_eq!(skipping(&[report(own.skips); 2]), (own, true, true, 0));
    assert_eq!(skipping(&[own; 2]), (own, false, false, 2));
    // And what those say who skip something is nothing to one that has no such decision.
    for rank in [1, 2] {
        let wrong = DigestReport { digest: own.digest, ..report(own.skips) };
        executed.deliver(0, &report_of(20 + rank, 0, rank as u32, wrong));
    }
    let executor = &executed.node.executor;
    assert!(executor.differs().is_none() && executor.doubt().is_none());
}

#[test]
fn a_point_waits_for_what_is_in_gateway_of_it_also_in_a_state_that_is_given() {
    let _limit = amcast_test_policy::time_limit();
    let mut replica = DigestReplica::new(0, 0);
    let both = cast(1, 1, 0, &format!("MSET {} 1 {} 1", key(0), key(1)));
    replica.deliver(0, &both);
    replica.deliver(0, &point_at(2, 0, b""));
    replica.deliver(0, &cast(3, 3, 0, &format!("SET {} 2", key(0))));
    assert!(replica.reports.is_empty() && replica.node.answers.is_empty());
    let before = replica.node.executor.applied(Gid(0));
    let mut other = DigestReplica::new(1, 0);
    (other.node.next, other.reports) = (replica.node.next, Reports::new());
    drop(other.node.executor.adopt(read(&replica.node.stream()).unwrap()));
    assert_eq!((before, other.node.executor.waiting(Gid(0))), (0, 3));
    for it in [&mut replica, &mut other] {
        it.deliver(1, &both);
        assert_eq!(it.node.executor.applied(Gid(0)), 3);
        assert_eq!(it.node.answers.len(), 2);
    }
    assert_eq!((replica.reports.len(), other.reports.len()), (1, 0), "it never saw the point");
}
