//! Gateways whose messages come twice and late, by any clock: each request takes effect once, and in its session's
//! order.

use amcast_smr::executor::inspection::{self, ExecutorMutant};

use super::*;
use amcast_smr::envelope::ClockReport;
use amcast_smr::machine::{Access, ShardedMachine};
use std::collections::VecDeque;

const HOUR_MS: u64 = 3_600_000;

/// When the world begins, by the right clocks.
const BEGIN_MS: u64 = 100 * HOUR_MS;

/// When requests that were begun are answered at the latest.
const END_MS: u64 = 200 * HOUR_MS;

/// A message of a gateway's request that is under way.
struct SentPart {
    gateway: usize,
    request: u64,
    cast: TestCast,
    /// Copies come by another node, at any time from then on.
    not_before_ms: u64,
}

/// A gateway with one client, which sends several commands without waiting.
struct TestGateway {
    key: String,
    session: u64,
    /// How far its stamps are from the right time, modulo 2^64.
    ahead_ms: u64,
    /// Whether what was refused is sent again as the same request.
    repeats: bool,
    /// Whether its requests may come in any order: it says of many that they are open.
    is_unordered: bool,
    last_request: u64,
    /// Commands that were begun: the value that each appends.
    begun: u64,
    /// Those under way, in the client's order.
    open: Vec<OpenRequest>,
    /// A read that missed what its client had sent before it.
    missed: Option<String>,
}

/// A request under way.
struct OpenRequest {
    request: u64,
    /// The value that it appends; or a read, which sees this one and all before it.
    value: u64,
    is_read: bool,
    is_refused: bool,
}

impl TestGateway {
    fn begin(&mut self, is_read: bool) -> (u64, u64, bool) {
        self.begun += u64::from(!is_read);
        self.last_request += 1;
        let (request, value) = (self.last_request, self.begun);
        self.open.push(OpenRequest { request, value, is_read, is_refused: false });
        (request, value, is_read)
    }

    /// The requests and values that it sends now, and whether each is a read.
    fn send(&mut self, rng: &mut Rng) -> Vec<(u64, u64, bool)> {
        if self.open.iter().any(|open| open.is_refused) {
            // Nothing is sent until it is known which ones were refused.
            if !self.open.iter().all(|open| open.is_refused) {
                return Vec::new();
            }
            for open in &mut self.open {
                if !self.repeats {
                    self.last_request += 1;
                    open.request = self.last_request;
                }
                open.is_refused = false;
            }
            return self.open.iter().map(|o| (o.request, o.value, o.is_read)).collect();
        }
        if self.open.len() >= 4 || rng.chance(500_000) {
            return Vec::new();
        }
        let mut sent = vec![self.begin(false)];
        if rng.chance(300_000) && !self.is_unordered {
            sent.push(self.begin(true));
        }
        sent
    }

    fn take(&mut self, request: u64, answer: &str, now_ms: u64) {
        let Some(at) = self.open.iter().position(|open| open.request == request) else { return };
        if let Some((told_ms, _)) = stamp_refusal::of_refusal(answer.as_bytes()) {
            if !std::mem::replace(&mut self.open[at].is_refused, true) {
                self.ahead_ms = told_ms.wrapping_sub(now_ms);
            }
            return;
        }
        let OpenRequest { value, is_read, .. } = self.open.remove(at);
        let sees = |value: u64| {
            answer.contains(&format!("\n{value},")) || answer.contains(&format!(",{value},"))
        };
        match is_read {
            true if value > 0 && !sees(value) => self.missed = Some(answer.to_string()),
            true => {}
            false => assert!(answer.starts_with(':'), "{answer}"),
        }
    }
}

/// The ordered log of each shard, and the node that answers the gateways.
struct OrderedShards {
    rng: Rng,
    now_ms: u64,
    node: TestNode,
    ordered: Vec<Vec<TestCast>>,
    gateways: Vec<TestGateway>,
    /// First messages of the gateways, in their order, and copies.
    firsts: VecDeque<SentPart>,
    copies: Vec<SentPart>,
    seq: u64,
}

fn new_node() -> TestNode {
    let mut node = TestNode::new();
    node.executor.bound_time(3);
    node
}

impl OrderedShards {
    fn new(seed: u64) -> Self {
        let gateway = |(number, ahead_ms): (u64, u64)| TestGateway {
            key: format!("{{{}}}{number}", key((number % 2) as u8)),
            session: if number > 6 { number | UNORDERED } else { number },
            ahead_ms,
            repeats: number > 3,
            is_unordered: number > 6,
            last_request: 0,
            begun: 0,
            open: Vec::new(),
            missed: None,
        };
        let behind = (HOUR_MS).wrapping_neg();
        let gateways = [0, 0, 2 * HOUR_MS, 0, behind, HOUR_MS / 3, 0, 2 * HOUR_MS];
        Self {
            rng: Rng::new(seed),
            now_ms: BEGIN_MS,
            node: new_node(),
            ordered: vec![Vec::new(); SHARDS],
            gateways: (1..).zip(gateways).map(gateway).collect(),
            firsts: VecDeque::new(),
            copies: Vec::new(),
            seq: 0,
        }
    }

    fn order(&mut self, cast: &TestCast) -> Option<String> {
        let shard = cast.dst.lowest().expect("one");
        self.ordered[shard.index()].push(cast.clone());
        let before = self.node.answers.len();
        self.node.deliver(shard.0, cast).unwrap();
        self.node.answers.get(before).map(|(_, text)| text.clone())
    }

    /// Two or three replicas of a shard report; none of a shard without commands.
    fn report(&mut self) {
        let first = self.rng.below(2);
        for shard in 0..2 {
            for replica in first..3 {
                self.seq += 1;
                let said = Stamp { wall_ms: self.now_ms, host_ms: self.now_ms };
                let id = MsgId { sender: Pid(3 * shard + replica as u32), seq: self.seq };
                let payload = ClockReport(said).encode().to_vec();
                self.order(&TestCast { id, dst: GroupSet::one(Gid(shard as u8)), payload });
            }
        }
    }

    fn send(&mut self, gateway: usize) {
        let f = &mut self.gateways[gateway];
        let sent = f.send(&mut self.rng);
        let first_open = f.open.first().map_or(0, |open| open.request);
        let window = Limits::default().window - 1;
        for (request, value, read_only) in sent {
            let f = &self.gateways[gateway];
            let ms = self.now_ms.wrapping_add(f.ahead_ms);
            let stamp = Stamp { wall_ms: ms, host_ms: ms };
            let (key, text) = (&f.key, format!("{value},"));
            let args = if read_only { vec!["GET", key] } else { vec!["APPEND", key, &text] };
            let args: Vec<&[u8]> = args.into_iter().map(str::as_bytes).collect();
            let open_from = match f.is_unordered {
                true => request.saturating_sub(window).max(1),
                false => first_open,
            };
            let session = f.session;
            let mut cast = sent_at(stamp, 0, 1, &format!("GET {key}"));
            cast.payload.clear();
            Envelope { session, request, open_from, stamp, read_only }.encode(&mut cast.payload);
            encode_args(&args, &mut cast.payload);
            let late_ms = match self.rng.below(4) {
                0 => 0,
                1 => self.rng.below(30_000),
                2 => self.rng.below(HOUR_MS),
                _ => self.rng.below(3 * HOUR_MS),
            };
            let not_before_ms = self.now_ms + late_ms;
            let mut sent = |not_before_ms| {
                self.seq += 1;
                let id = MsgId { sender: Pid(20), seq: self.seq };
                SentPart { gateway, request, cast: TestCast { id, ..cast.clone() }, not_before_ms }
            };
            let (first, copy) = (sent(0), sent(not_before_ms));
            self.firsts.push_back(first);
            if self.rng.chance(500_000) {
                self.copies.push(copy);
            }
        }
    }

    /// One message is ordered, and its gateway hears of it, if it waits for that.
    fn arrive(&mut self) {
        // A copy overtakes what its gateway sent before it no more than the first message does.
        let next = self.firsts.front().map_or(u64::MAX, |sent| sent.cast.id.seq);
        let due = |sent: &SentPart| sent.not_before_ms <= self.now_ms && sent.cast.id.seq < next;
        let copy = self.copies.iter().position(due).filter(|_| self.rng.chance(300_000));
        let sent = match copy {
            Some(at) => self.copies.swap_remove(at),
            None => match self.firsts.pop_front() {
                Some(sent) => sent,
                None => return,
            },
        };
        let answer = self.order(&sent.cast).expect("it is answered");
        let now_ms = self.now_ms;
        self.gateways[sent.gateway].take(sent.request, &answer, now_ms);
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            // No gateway waits for as long as that.
            0 if self.firsts.is_empty() => self.now_ms += self.rng.below(1_000_000),
            0 => self.now_ms += self.rng.below(10_000),
            1 if self.firsts.is_empty() && self.rng.chance(100_000) => self.rest(),
            1..15 => {
                self.now_ms += self.rng.below(2_000);
                self.report();
            }
            15..45 => {
                let gateway = self.rng.below(self.gateways.len() as u64) as usize;
                self.send(gateway);
            }
            _ => self.arrive(),
        }
    }

    /// Nobody sends anything for a while, in which sessions are forgotten.
    fn rest(&mut self) {
        for _ in 0..150 {
            self.now_ms += 9_000;
            self.report();
            let look = self.gateways.len() as u64;
            self.seq += 1;
            // Others' commands have replicas look at sessions.
            let text = format!("SET {{{}}}other 1", key((self.seq % 2) as u8));
            let cast = cast(1 << 40 | self.seq, 1, self.now_ms, &text);
            let session = 100 + self.rng.below(look);
            let payload = Envelope::decode(&cast.payload).map(|(e, body)| {
                let mut payload = Vec::new();
                Envelope { session, request: self.seq, open_from: self.seq, ..e }
                    .encode(&mut payload);
                payload.extend_from_slice(body);
                payload
            });
            self.order(&TestCast { payload: payload.expect("it was encoded"), ..cast });
            self.arrive();
        }
    }

    /// Nothing new comes; all that is under way is answered, and copies come until the last one is old.
    fn end(&mut self) {
        while self.gateways.iter().any(|gateway| !gateway.open.is_empty()) && self.now_ms < END_MS {
            self.now_ms += 500;
            self.report();
            for gateway in 0..self.gateways.len() {
                if self.gateways[gateway].open.iter().any(|open| open.is_refused) {
                    self.send(gateway);
                }
            }
            (0..20).for_each(|_| self.arrive());
        }
        let last_ms = self.now_ms + 6 * HOUR_MS;
        while self.now_ms < last_ms {
            self.now_ms += 9_000;
            self.report();
            (0..3).for_each(|_| self.arrive());
        }
    }
}

/// Whether each value of each gateway is there once, in order; and another replica, which stops now and then, comes to
/// the same.
fn is_right(seed: u64) -> bool {
    let mut world = OrderedShards::new(seed);
    world.report();
    (0..3_000).for_each(|_| world.step());
    world.end();
    let mut refused = 0;
    for gateway in &world.gateways {
        let expected: String = (1..=gateway.begun).map(|value| format!("{value},")).collect();
        let text = format!("GET {}", gateway.key);
        let shown = world.node.run(&cast(u64::MAX, 1, world.now_ms, &text));
        refused += gateway.last_request - gateway.begun;
        let mut values: Vec<&str> =
            shown.lines().nth(1).unwrap_or("").split_terminator(',').collect();
        if gateway.is_unordered {
            values.sort_by_key(|value| (value.len(), *value));
        }
        let values: String = values.iter().map(|value| format!("{value},")).collect();
        if values != expected || !gateway.open.is_empty() || gateway.missed.is_some() {
            return false;
        }
    }
    assert!(refused > 0, "nothing was at stake");
    let mut twin = new_node();
    for (shard, ordered) in (0..).zip(&world.ordered) {
        for cast in ordered {
            twin.deliver(shard, cast).unwrap();
            if world.rng.chance(2_000) {
                let bytes = twin.stream();
                twin.executor = new_node().executor;
                drop(twin.executor.adopt(read(&bytes).unwrap()));
            }
        }
    }
    let leaps = |node: &TestNode| inspection::leapt_ms(&node.executor);
    let is_same = leaps(&twin) == leaps(&world.node);
    is_same && dump_parts(&twin.executor) == dump_parts(&world.node.executor)
}

#[test]
fn each_request_takes_effect_once_and_in_order_whatever_the_clocks_say_and_copies_do() {
    let _limit = amcast_test_policy::time_limit();
    for seed in 0..20 {
        assert!(is_right(seed), "seed {seed}");
    }
}

#[test]
fn executors_that_judge_stamps_wrongly_are_found() {
    let _limit = amcast_test_policy::time_limit();
    for mutant in
        [ExecutorMutant::RunsCopies, ExecutorMutant::LetsOvertake, ExecutorMutant::AgesByLeaps]
    {
        let found = inspection::with(mutant, || (0..200).any(|seed| !is_right(seed)));
        assert!(found, "{mutant:?} passes");
    }
}

#[test]
fn copies_of_a_change_without_keys_do_not_pass_each_other() {
    let mut access = Access::default();
    let mut command = Vec::new();
    encode_args(&[b"EXEC", b"0", b"1", b"2", b"OBJECT", b"HELP"], &mut command);
    Kv::new(SHARDS, 1).access(&command, GroupSet::one(Gid(0)), &mut access);
    assert!(access.whole && access.uses.is_empty());
}
