//! Splits and merges among other commands, from gateways that do not know of them, against a plain map;
//! on a node that delivers at once and is started again from its state now and then, and on one that
//! delivers each shard's stream at another pace.

use super::*;
use crate::batch;
use crate::partitions::is_refusal;
use std::cell::Cell;
use std::collections::BTreeMap;

/// A gateway: it sends by the map that it knows.
struct Sender {
    map: Partitions,
    learned: u64,
}

/// All that there is.
struct MoveWorld {
    first: Arc<Partitions>,
    /// It delivers at once.
    node: TestNode,
    gateways: [Sender; 2],
    seq: u64,
    casts: Vec<TestCast>,
    model: BTreeMap<String, String>,
    refused: u64,
}

fn node(first: &Arc<Partitions>) -> TestNode {
    let kv = Kv::over(first.clone(), 1);
    let executor = Executor::new(kv, SHARDS, Limits::default());
    TestNode { executor, next: [1; SHARDS], answers: Vec::new() }
}

fn restart(node: &mut TestNode, first: &Arc<Partitions>) {
    let bytes = node.stream();
    let state = ExecutorState::read(&Kv::over(first.clone(), 1), SHARDS, &mut &*bytes).unwrap();
    node.executor = self::node(first).executor;
    drop(node.executor.adopt(state));
}

impl MoveWorld {
    fn new(first: Partitions) -> Self {
        let sender = || Sender { map: first.clone(), learned: 0 };
        let (gateways, first) = ([sender(), sender()], Arc::new(first));
        let (casts, model) = (Vec::new(), BTreeMap::new());
        Self { node: node(&first), first, gateways, seq: 0, casts, model, refused: 0 }
    }

    /// Has a command executed, as often as it is refused; its answer.
    fn call(&mut self, gateway: usize, args: &[&str]) -> String {
        String::from_utf8_lossy(&self.execute(gateway, &[args])).into_owned()
    }

    /// The same of commands that go to the same shards: several are a batch.
    fn execute(&mut self, gateway: usize, commands: &[&[&str]]) -> Vec<u8> {
        let commands: Vec<Vec<&[u8]>> =
            commands.iter().map(|args| args.iter().map(|a| a.as_bytes()).collect()).collect();
        let specs: Vec<_> =
            commands.iter().map(|args| registry::lookup(args[0]).expect("a known one")).collect();
        let mut body = Vec::new();
        encode_args(&commands[0], &mut body);
        for args in &commands[1..] {
            let mut bytes = Vec::new();
            encode_args(args, &mut bytes);
            batch::push(&mut body, 0, &bytes);
        }
        loop {
            let map = self.gateways[gateway].map.clone();
            let to = |at: usize| destinations(specs[at], &commands[at], &map).expect("proper");
            let mut dst = to(0);
            assert!((1..commands.len()).all(|at| to(at) == dst), "a batch has one destination");
            if dst.is_empty() {
                dst = GroupSet::one(Gid(0));
            }
            let read_only = specs.iter().all(|command| !command.writes());
            let answer = self.order(gateway, dst, read_only, &body);
            let Some((later, bytes)) = Partitions::of_refusal(&answer) else {
                assert!(!answer.is_empty() && !is_refusal(&answer));
                return answer;
            };
            assert_eq!(bytes, body, "it comes back whole");
            assert!(later.epoch() > map.epoch(), "who is refused learns something");
            let Sender { map, learned } = &mut self.gateways[gateway];
            (*map, *learned) = (later, *learned + 1);
            self.refused += 1;
        }
    }

    /// Delivers what a gateway sends to these shards; its answer, or refusal.
    fn order(&mut self, gateway: usize, dst: GroupSet, read_only: bool, body: &[u8]) -> Vec<u8> {
        self.seq += 1;
        let stamp = Stamp { wall_ms: self.seq, host_ms: self.seq };
        let (request, session) = (self.seq, gateway as u64 + 1);
        let mut payload = Vec::new();
        Envelope { session, request, open_from: request, stamp, read_only }.encode(&mut payload);
        crate::encode_epoch(self.gateways[gateway].map.epoch(), &mut payload);
        payload.extend_from_slice(body);
        let cast = TestCast { id: MsgId { sender: Pid(9), seq: self.seq }, dst, payload };
        let mut answer = Vec::new();
        for shard in dst.iter() {
            let at = self.node.next[shard.index()];
            self.node.next[shard.index()] += 1;
            let TestCast { id, payload, .. } = &cast;
            let executor = &mut self.node.executor;
            let taken = executor.deliver(shard, at, *id, dst, payload, &mut |a| {
                answer = a.bytes.to_vec();
            });
            assert_eq!(taken, Ok(DeliveryResult::Taken));
        }
        self.node.answers.push((self.seq, String::from_utf8_lossy(&answer).into_owned()));
        self.casts.push(cast);
        answer
    }

    /// A batch over the shards of two keys.
    fn batch(&mut self, gateway: usize, [a, b]: [&str; 2]) {
        let value = self.seq.to_string();
        let before = [a, b].iter().filter(|key| self.model.contains_key(**key)).count();
        self.model.extend([a, b].map(|key| (key.to_owned(), value.clone())));
        let commands: [&[&str]; 3] =
            [&["EXISTS", a, b], &["MSET", a, &value, b, &value], &["MGET", a, b]];
        let answer = self.execute(gateway, &commands);
        let of_each = batch::answers(&answer).expect("answers of a batch");
        let got: Vec<_> = of_each.map(|(_, bytes)| String::from_utf8_lossy(bytes)).collect();
        let both = format!("${}\r\n{value}\r\n", value.len()).repeat(2);
        assert_eq!(got, [format!(":{before}\r\n"), "+OK\r\n".into(), format!("*2\r\n{both}")]);
    }

    /// A random command for clients, whose answer the model knows.
    fn client(&mut self, gateway: usize, rng: &mut Rng) {
        let [a, b] = [0; 2].map(|_| format!("{}key", (b'a' + rng.below(26) as u8) as char));
        let value = self.seq.to_string();
        let bulk = |v: Option<&String>| {
            v.map_or("_\r\n".to_owned(), |v| format!("${}\r\n{v}\r\n", v.len()))
        };
        let (args, expected): (Vec<&str>, String) = match rng.below(9) {
            8 => return self.batch(gateway, [&a, &b]),
            0 | 1 => {
                self.model.insert(a.clone(), value.clone());
                (vec!["SET", &a, &value], "+OK\r\n".into())
            }
            2 => {
                let both = [(a.clone(), value.clone()), (b.clone(), value.clone())];
                self.model.extend(both);
                (vec!["MSET", &a, &value, &b, &value], "+OK\r\n".into())
            }
            3 => {
                let n = usize::from(self.model.remove(&a).is_some());
                let n = n + usize::from(self.model.remove(&b).is_some());
                (vec!["DEL", &a, &b], format!(":{n}\r\n"))
            }
            4 => {
                let n = self.model.get(&a).map_or(0, |v| v.parse::<i64>().unwrap()) + 1;
                self.model.insert(a.clone(), n.to_string());
                (vec!["INCR", &a], format!(":{n}\r\n"))
            }
            5 => {
                let found =
                    format!("*2\r\n{}{}", bulk(self.model.get(&a)), bulk(self.model.get(&b)));
                (vec!["MGET", &a, &b], found)
            }
            6 if a <= b => {
                let keys: Vec<_> = self.model.range(a.clone()..b.clone()).take(5).collect();
                let all: String =
                    keys.iter().map(|(k, v)| bulk(Some(k)) + &bulk(Some(v))).collect();
                let found = format!("*{}\r\n{all}", 2 * keys.len());
                (vec!["RANGE", &a, &b, "LIMIT", "5", "WITHVALUES"], found)
            }
            6 => (vec!["DBSIZE"], format!(":{}\r\n", self.model.len())),
            _ => (vec!["GET", &a], bulk(self.model.get(&a))),
        };
        let got = self.call(gateway, &args);
        assert_eq!(got, expected, "{args:?}");
    }

    /// A command that changes partitions, or continues a change.
    fn partitions(&mut self, gateway: usize, rng: &mut Rng) {
        let [one, other] = [0; 2].map(|_| rng.below(SHARDS as u64).to_string());
        let at = match self.first.is_by_key() {
            true => format!("{}key", (b'a' + rng.below(26) as u8) as char),
            false => rng.below(16384).to_string(),
        };
        let named =
            self.gateways[gateway].map.moving().map(|(a, b)| (a.0.to_string(), b.0.to_string()));
        match (rng.below(4), named) {
            (0, None) => _ = self.call(gateway, &["AMCAST.SPLIT", &one, &at, &other]),
            (1, None) => _ = self.call(gateway, &["AMCAST.MERGE", &one, &other]),
            (0, _) => _ = self.call(gateway, &["AMCAST.MOVED"]),
            (_, Some((from, to))) => _ = self.call(gateway, &["AMCAST.MOVE", &from, &to]),
            _ => _ = self.call(gateway, &["AMCAST.PARTITIONS"]),
        }
    }
}

/// Runs one schedule; how often a command was refused, and the epoch at its end.
fn run(seed: u64, first: Partitions) -> (u64, u64) {
    let (mut rng, mut world) = (Rng::new(seed), MoveWorld::new(first));
    let mut slow = node(&world.first);
    for _ in 0..600 {
        let gateway = rng.below(2) as usize;
        match rng.below(10) {
            0..=1 => world.partitions(gateway, &mut rng),
            _ => world.client(gateway, &mut rng),
        }
        if rng.chance(20_000) {
            restart(&mut world.node, &world.first);
        }
        for _ in 0..rng.below(4) {
            advance(&mut slow, &world.casts, &mut rng);
        }
        if rng.chance(10_000) {
            restart(&mut slow, &world.first);
        }
    }
    while (0..SHARDS).any(|shard| slow.next[shard] < world.node.next[shard]) {
        advance(&mut slow, &world.casts, &mut rng);
    }
    slow.answers.sort();
    world.node.answers.sort();
    assert!(slow.answers == world.node.answers, "seed {seed}: nodes answer differently");
    let [one, other] = [&world.node, &slow].map(|node| dump_parts(&node.executor));
    assert!(one == other, "seed {seed}: states differ: {one}\n{other}");
    // Everything is in one place, and nothing else is anywhere.
    let size = world.call(0, &["DBSIZE"]);
    assert_eq!(size, format!(":{}\r\n", world.model.len()), "seed {seed}");
    (world.refused, world.gateways[0].map.epoch())
}

/// Delivers one command in some shard that has one left, if any has.
fn advance(node: &mut TestNode, casts: &[TestCast], rng: &mut Rng) {
    let shard = Gid(rng.below(SHARDS as u64) as u8);
    let mut mine = casts.iter().filter(|c| c.dst.contains(shard));
    if let Some(c) = mine.nth(node.next[shard.index()] as usize - 1) {
        node.deliver(shard.0, c).unwrap();
    }
}

#[test]
fn nothing_is_lost_or_doubled_while_partitions_are_split_and_merged() {
    let (mut refused, mut epochs) = (0, 0);
    for seed in 0..150 {
        let boundaries = [b"h".to_vec(), b"p".to_vec()];
        for first in [
            Partitions::by_slot(SHARDS),
            Partitions::by_slot_among(SHARDS, 1),
            Partitions::by_key(SHARDS, &boundaries).unwrap(),
        ] {
            let (r, e) = run(seed, first);
            (refused, epochs) = (refused + r, epochs + e);
        }
    }
    assert!(
        refused > 5000 && epochs > 5000,
        "{refused} refused, {epochs} changes: nothing happened"
    );
}

#[test]
fn a_watched_key_that_changed_is_noticed_wherever_it_went() {
    for (there, changed) in [(false, false), (false, true), (true, false), (true, true)] {
        let first = Partitions::by_key(SHARDS, &[b"h".to_vec()]).unwrap();
        let mut world = MoveWorld::new(first);
        if there {
            world.call(0, &["SET", "k", "1"]);
        }
        let watched = world.call(0, &["WATCH", "k"]);
        let version = watched.strip_prefix("*1\r\n:").and_then(|v| v.strip_suffix("\r\n"));
        let version = version.expect("a version").to_owned();
        for (from, to) in [("1", "2"), ("2", "1")] {
            world.call(0, &["AMCAST.MERGE", from, to]);
            while world.call(0, &["AMCAST.MOVE", from, to]) == ":0\r\n" {}
            world.call(0, &["AMCAST.MOVED"]);
            if changed && to == "2" {
                world.call(0, &["SET", "k", "2"]);
                world.call(0, &["DEL", "k"]);
                if there {
                    world.call(0, &["SET", "k", "1"]);
                }
            }
        }
        let exec = world.call(0, &["EXEC", "1", "k", &version, "1", "2", "INCR", "k"]);
        assert_eq!(exec, "*-1\r\n", "there {there}, changed {changed}: it may have changed");
    }
}

#[test]
fn a_walk_that_began_before_a_move_misses_nothing() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut world = MoveWorld::new(Partitions::by_slot(SHARDS));
        let keys: Vec<String> = (0..200).map(|i| format!("key:{i}")).collect();
        keys.iter().for_each(|key| _ = world.call(0, &["SET", key, "v"]));
        let (mut cursor, mut found) = ("0".to_owned(), std::collections::BTreeSet::new());
        loop {
            let answer = world.call(0, &["SCAN", &cursor, "COUNT", "7"]);
            let mut lines = answer.split("\r\n").filter(|line| !line.starts_with(['*', '$']));
            cursor = lines.next().expect("a cursor").to_owned();
            found.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
            if cursor == "0" {
                break;
            }
            if rng.chance(300_000) {
                world.partitions(1, &mut rng);
            }
        }
        assert_eq!(found.len(), keys.len(), "seed {seed}");
    }
}

#[test]
fn a_retry_of_what_another_map_refused_is_refused_again_and_its_answer_takes_no_room() {
    let first = Arc::new(Partitions::by_key(SHARDS, &[vec![b'h'; 500]]).unwrap());
    // Far less than one map for each command would take.
    let limits = Limits { answer_bytes: 4096, ..Limits::default() };
    let executor = Executor::new(Kv::over(first.clone(), 1), SHARDS, limits);
    let mut node = TestNode { executor, next: [1; SHARDS], answers: Vec::new() };
    let mut seq = 0;
    let epoch = Cell::new(first.epoch());
    let mut send = |node: &mut TestNode, (session, request), dst: GroupSet, words: &[&[u8]]| {
        seq += 1;
        let stamp = Stamp { wall_ms: 1, host_ms: 1 };
        let mut payload = Vec::new();
        Envelope { session, request, open_from: 1, stamp, read_only: false }.encode(&mut payload);
        crate::encode_epoch(epoch.get(), &mut payload);
        encode_args(words, &mut payload);
        let (id, mut answer) = (MsgId { sender: Pid(9), seq }, Vec::new());
        for shard in dst.iter() {
            let at = node.next[shard.index()];
            node.next[shard.index()] += 1;
            let mut note = |a: CommandAnswer<'_>| answer = a.bytes.to_vec();
            let taken = node.executor.deliver(shard, at, id, dst, &payload, &mut note);
            assert_eq!(taken, Ok(DeliveryResult::Taken));
        }
        answer
    };
    let all: GroupSet = (0..SHARDS).fold(GroupSet::EMPTY, |set, shard| set.with(Gid(shard as u8)));
    let shard = GroupSet::one(Gid(0));
    let done = send(&mut node, (1, 1), shard, &[b"SET", b"a", b"v"]);
    assert_eq!(done, b"+OK\r\n");
    let split = send(&mut node, (2, 1), all, &[b"AMCAST.SPLIT", b"0", b"b", b"1"]);
    assert_eq!(split, b":1\r\n", "the map's epoch");
    // The arguments come alike each time, also those of a command that names an epoch.
    epoch.set(7);
    for _ in 0..2 {
        let answer = send(&mut node, (3, 1), shard, &[b"GET", b"c"]);
        let (_, args) = Partitions::of_refusal(&answer).expect("it was refused, and is again");
        let mut again = Vec::new();
        assert!(decode_args(args, &mut again).is_some() && again == [&b"GET"[..], b"c"]);
    }
    epoch.set(first.epoch());
    let value = [b'v'; 300];
    for life in 0..2 {
        for request in 2..=100 {
            let words: [&[u8]; 3] = [b"SET", b"c", &value];
            let answer = send(&mut node, (1, request), shard, &words);
            let (map, args) =
                Partitions::of_refusal(&answer).expect("it was refused, and is again");
            let mut again = Vec::new();
            assert!(map.epoch() > first.epoch() && decode_args(args, &mut again).is_some());
            assert_eq!(again, words, "life {life}, request {request}");
        }
        // Records of executed commands are not pushed out.
        let again = send(&mut node, (1, 1), shard, &[b"SET", b"a", b"v"]);
        assert_eq!(again, b"+OK\r\n", "life {life}: {}", String::from_utf8_lossy(&again));
        let bytes = node.stream();
        let state = ExecutorState::read(&Kv::over(first.clone(), 1), SHARDS, &mut &*bytes).unwrap();
        node.executor = Executor::new(Kv::over(first.clone(), 1), SHARDS, limits);
        drop(node.executor.adopt(state));
    }
}
