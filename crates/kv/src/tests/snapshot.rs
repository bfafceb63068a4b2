//! Cuts that are sent while commands continue.

use super::*;
use amcast_smr::executor::inspection::ExecutorMutant;
use amcast_smr::machine::Corrupt;

/// A random command over few keys of every kind, so that they often meet.
pub(super) fn any(rng: &mut Rng, seq: u64) -> String {
    let [a, b] = [0; 2].map(|_| rng.below(12));
    let (m, n) = (rng.below(300), rng.below(300));
    match rng.below(34) {
        0 | 1 => format!("SET s{a} {}", "v".repeat(m as usize)),
        2 => format!("APPEND s{a} more{n}"),
        3 => format!("SET s{a} {seq} PX {m}"),
        4 => format!("PEXPIRE s{a} {m}"),
        5 => format!("PERSIST s{a}"),
        6..=8 => format!("HSET h{a} f{m} {n} f{n} {m}"),
        9 => format!("HDEL h{a} f{m} f{n}"),
        10..=12 => format!("RPUSH l{a} {m} {n}"),
        13 => format!("LPOP l{a} {}", 1 + m % 9),
        14..=16 => format!("SADD c{a} {m} {n} {seq}"),
        17 => format!("SPOP c{a} {}", 1 + m % 9),
        18 => format!("SMOVE c{a} c{b} {m}"),
        19..=21 => format!("ZADD z{a} {m} m{n} {n} m{m}"),
        22 => format!("ZREM z{a} m{n} m{m}"),
        23 => format!("ZPOPMIN z{a} {}", 1 + m % 9),
        24 => format!("RENAME h{a} h{b}"),
        25 => format!("DEL s{a} h{b} l{a} c{b} z{a}"),
        26 => format!("WATCH s{a} new{m}"),
        27 => format!("SET new{m} {seq} PX {n}"),
        28 => format!("DEL new{m}"),
        29 => format!("MSET s{a} 1 s{b} 2 new{n} 3"),
        30 => format!("PEXPIRE {}{a} {}", ["h", "l", "c", "z"][b as usize % 4], m),
        31 if m < 40 => "FLUSHALL".into(),
        32 => format!("SUNIONSTORE c{a} c{b} c{}", m % 12),
        _ => format!("GET s{a}"),
    }
}

pub(super) fn random(seed: u64, len: u64) -> Vec<TestCast> {
    let mut rng = Rng::new(seed);
    (1..=len).map(|n| cast(n, n, 10 * n + rng.below(40), &any(&mut rng, n))).collect()
}

/// Delivers one command in some shard that has one left, if any has.
fn advance(node: &mut TestNode, casts: &[TestCast], rng: &mut Rng) {
    let shard = rng.below(SHARDS as u64) as u8;
    let next = node.next[usize::from(shard)] as usize - 1;
    if let Some(c) = casts.iter().filter(|c| c.dst.contains(Gid(shard))).nth(next) {
        node.deliver(shard, c).unwrap();
    }
}

/// Delivers all that is left.
fn finish(node: &mut TestNode, casts: &[TestCast]) {
    for c in casts {
        for g in c.dst.iter() {
            let at = casts.iter().filter(|c| c.dst.contains(g)).position(|o| o.id == c.id);
            if at.is_some_and(|at| at as u64 + 1 == node.next[g.index()]) {
                node.deliver(g.0, c).unwrap();
            }
        }
    }
}

#[test]
fn a_snapshot_is_the_state_at_its_instant_whatever_runs_while_it_is_given() {
    let (mut kept, mut waited) = (0, 0);
    for seed in 0..120 {
        let (casts, mut rng) = (random(seed, 500), Rng::new(seed + 1000));
        let mut node = TestNode::new();
        (0..rng.below(1400)).for_each(|_| advance(&mut node, &casts, &mut rng));
        if rng.chance(300_000) {
            // One that nobody reads to its end is forgotten.
            node.executor.capture();
            node.executor.piece(500, &mut Vec::new());
        }
        let at_instant = dump(&node.executor);
        let position = node.next;
        waited += node.executor.waiting(Gid(0));
        node.executor.capture();
        let (most, pace) = (1 + rng.below(900) as usize, rng.below(12));
        let mut bytes = Vec::new();
        while node.executor.piece(most, &mut bytes) {
            (0..rng.below(pace + 1)).for_each(|_| advance(&mut node, &casts, &mut rng));
            kept += node.executor.holds(Gid(1)).kept;
        }
        assert_eq!(node.executor.holds(Gid(1)).kept, 0, "nothing is kept once all was given");
        let state = read(&bytes).unwrap();
        assert_eq!(state.delivered(Gid(2)) + 1, position[2]);
        let mut twin = TestNode { next: position, ..TestNode::new() };
        drop(twin.executor.adopt(state));
        assert!(dump(&twin.executor) == at_instant, "seed {seed}: the snapshot is another state");
        for other in [&mut node, &mut twin] {
            finish(other, &casts);
        }
        // Expired keys may have been purged at one and not yet at the other, and so may old
        // answers: they do not count. Time advances step by step, so that their sessions are
        // forgotten.
        for step in 1..=100 {
            let end = cast(9999 + step, 9999, LEAP_MS * step, "DBSIZE");
            assert_eq!(twin.run(&end), node.run(&end));
        }
        assert!(dump(&twin.executor) == dump(&node.executor), "seed {seed}: they went apart");
    }
    assert!(kept > 1000 && waited > 5, "kept {kept}, waited {waited}: nothing was at stake");
}

#[test]
fn damage_truncation_and_other_shapes_are_errors() {
    let mut node = TestNode::new();
    random(7, 60).iter().filter(|c| c.dst.len() == 1).for_each(|c| drop(node.run(c)));
    node.deliver(0, &cast(102, 102, 8, &format!("MSET {} a {} b", key(0), key(2)))).unwrap();
    let bytes = node.stream();
    assert!(read(&bytes).is_ok());
    let mut rng = Rng::new(5);
    for len in 0..bytes.len() {
        assert_eq!(read(&bytes[..len]).err(), Some(Corrupt::Short), "{len} bytes");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << rng.below(8);
        assert!(read(&damaged).is_err(), "byte {at}");
    }
    let seed = crate::HashSeed::parse(&"5".repeat(32)).unwrap();
    for state in [&bytes[..], &include_bytes!("state-8")[..]] {
        let other = ExecutorState::read(&Kv::new(SHARDS, seed), SHARDS, &mut &*state).err();
        assert_eq!(other, Some(Corrupt::Seed), "its keys are in another order");
    }
    let two = ExecutorState::read(&Kv::new(2, 1), 2, &mut &bytes[..]).err();
    assert_eq!(two, Some(Corrupt::Shards(3)));
    let mut later = bytes.clone();
    later[4] = amcast_smr::stream::VERSION + 1;
    assert_eq!(read(&later).err(), Some(Corrupt::Version(amcast_smr::stream::VERSION + 1)));
}

/// The content of a stream without its frames, to change it and frame it anew.
fn content_of(stream: &[u8]) -> Vec<u8> {
    let (mut content, mut rest) = (Vec::new(), &stream[8..]);
    while rest.len() > 8 {
        let len = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
        content.extend_from_slice(&rest[4..4 + len]);
        rest = &rest[8 + len..];
    }
    content
}

#[test]
fn nonsense_with_proper_sums_is_refused_without_panic() {
    use amcast_smr::stream::Piece;
    let mut node = TestNode::new();
    for c in &random(8, 80) {
        c.dst.iter().for_each(|g| assert_eq!(node.deliver(g.0, c), Ok(DeliveryResult::Taken)));
    }
    let content = content_of(&node.stream());
    let frame = |content: &[u8]| {
        let (mut out, mut progress) = (Vec::new(), amcast_smr::stream::StreamProgress::default());
        Piece::begin(SHARDS, &mut progress, &mut out);
        let mut piece = Piece::new(1, &mut progress, &mut out);
        piece.raw(content);
        piece.end(true);
        out
    };
    assert!(read(&frame(&content)).is_ok());
    let (mut rng, mut refused) = (Rng::new(9), 0);
    for _ in 0..4000 {
        let mut nonsense = content.clone();
        let at = rng.below(content.len() as u64) as usize;
        nonsense[at] = rng.below(256) as u8;
        nonsense.truncate(content.len() - rng.below(2) as usize);
        refused += u32::from(read(&frame(&nonsense)).is_err());
    }
    assert!(refused > 2000, "{refused} refused");
}

#[test]
fn the_bytes_of_a_state_are_golden() {
    let mut node = TestNode::new();
    node.run(&cast(1, 1, 7, &format!("SET {} v", key(1))));
    let filled = ["RPUSH l a b", "HSET h f v", "SADD s m", "ZADD z 1.5 m", "WATCH missing"];
    for (text, seq) in filled.iter().zip(2..) {
        node.run(&cast(seq, seq, 8, text));
    }
    node.run(&cast(20, 8, 9, "PEXPIRE h 100"));
    node.deliver(0, &cast(21, 9, 8, &format!("MSET {} a {} b", key(0), key(2)))).unwrap();
    let bytes = node.stream();
    assert_eq!(bytes[..8], *b"amKV\x10\x03\0\0");
    assert_eq!((bytes.len(), crc32c::crc32c(&bytes[8..])), GOLDEN, "the format changed");
    node.restart();
    assert_eq!(node.stream(), bytes, "a restored node gives the same bytes");
}

const GOLDEN: (usize, u32) = (1347, 1_434_951_088);

/// The state after the same commands before there were maps of partitions: checkpoints of that time
/// are still read. Versions of keys were positions then.
#[test]
fn a_state_of_version_6_is_read() {
    let before = include_bytes!("state-6");
    assert_eq!((before[4], before.len()), (6, 903));
    let mut node = TestNode::new();
    drop(node.executor.adopt(read(before).unwrap()));
    assert_eq!(node.next, [1; SHARDS]);
    node.next = [0, 1, 2].map(|g| node.executor.delivered(Gid(g)) + 1);
    assert_eq!(node.executor.waiting(Gid(0)), 1);
    assert_eq!(node.run(&cast(30, 30, 10, &format!("GET {}", key(1)))), "$1\r\nv\r\n");
    let again = node.stream();
    assert_eq!(again[4], amcast_smr::stream::VERSION, "it is written as states are now");
    assert!(read(&again).is_ok());
}

/// The same of the version before clocks were reported.
#[test]
fn a_state_of_version_7_is_read() {
    let before = include_bytes!("state-7");
    assert_eq!((before[4], before.len()), (7, 1031));
    let mut node = TestNode::new();
    drop(node.executor.adopt(read(before).unwrap()));
    node.next = [0, 1, 2].map(|g| node.executor.delivered(Gid(g)) + 1);
    assert_eq!(node.run(&cast(30, 30, 10, &format!("GET {}", key(1)))), "$1\r\nv\r\n");
}

/// The same of the version before shards had budgets.
#[test]
fn a_state_of_version_8_is_read_and_has_no_budget() {
    let before = include_bytes!("state-8");
    assert_eq!((before[4], before.len()), (8, 1055));
    let kv = Kv::new(SHARDS, 1).with_maxmemory(3);
    let mut node = TestNode::new();
    drop(node.executor.adopt(ExecutorState::read(&kv, SHARDS, &mut &before[..]).unwrap()));
    node.next = [0, 1, 2].map(|g| node.executor.delivered(Gid(g)) + 1);
    assert_eq!(node.executor.waiting(Gid(0)), 1);
    assert_eq!(node.run(&cast(30, 30, 10, &format!("SET {} w", key(1)))), "+OK\r\n");
}

/// The same of the versions before there were parts of commands.
#[test]
fn states_of_versions_9_and_10_are_read() {
    let of_9 = (include_bytes!("state-9"), 9, 2_709_976_108);
    let of_10 = (include_bytes!("state-10"), 10, 1_865_333_801);
    for (before, version, sum) in [of_9, of_10] {
        let known = (before[4], before.len(), crc32c::crc32c(&before[8..]));
        assert_eq!(known, (version, 1111, sum));
        let mut node = TestNode::new();
        drop(node.executor.adopt(read(before).unwrap()));
        node.next = [0, 1, 2].map(|g| node.executor.delivered(Gid(g)) + 1);
        assert_eq!(node.executor.waiting(Gid(0)), 1);
        assert_eq!((0..3).map(|g| node.executor.parts_bytes(Gid(g))).sum::<usize>(), 0);
        assert_eq!(node.stream().len(), GOLDEN.0, "it is written as states are now");
        assert_eq!(node.run(&cast(30, 30, 10, &format!("GET {}", key(1)))), "$1\r\nv\r\n");
    }
}

/// The same of the version before states named the delivery that began a session: its requests ran once.
#[test]
fn a_state_of_version_15_is_read_and_its_sessions_know_what_they_ran() {
    let before = include_bytes!("state-15");
    assert_eq!((before[4], before.len()), (15, 1267));
    let mut node = TestNode::new();
    drop(node.executor.adopt(read(before).unwrap()));
    node.next = [0, 1, 2].map(|g| node.executor.delivered(Gid(g)) + 1);
    assert_eq!(node.executor.waiting(Gid(0)), 1);
    assert_eq!(node.stream().len(), GOLDEN.0, "it is written as states are now");
    for seq in [30, 31] {
        assert_eq!(node.run(&cast(seq, 2, 10, "RPUSH l a b")), ":2\r\n", "it ran");
        node.restart();
    }
    assert_eq!(node.run(&cast(32, 10, 10, "RPUSH l a b")), ":4\r\n");
}

/// Words as they are in a stream.
fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The state of version 15, and a while later: until `now_ms` the session only repeated requests that had run.
fn state_15_at(now_ms: u64) -> Vec<u8> {
    let before = include_bytes!("state-15");
    let mut content = content_of(before);
    // Position and time of the last shard; and its floor: session, time of the last command, numbers, nothing refused.
    let changes = [
        (words(&[3, 9, 9]), words(&[3, now_ms, now_ms])),
        (words(&[1, 9, 1, 8, 0, 0]), words(&[1, now_ms, 1, 8, 0, 0])),
    ];
    for (old, new) in changes {
        let mut found = (0..content.len()).filter(|&at| content[at..].starts_with(&old));
        let (Some(at), None) = (found.next(), found.next()) else { panic!("another state") };
        content[at..at + new.len()].copy_from_slice(&new);
    }
    let mut out = before[..8].to_vec();
    let mut sum = crc32c::crc32c(&out);
    for frame in [&content[..], &[]] {
        let len = (frame.len() as u32).to_le_bytes();
        let frame = [&len[..], frame].concat();
        sum = crc32c::crc32c_append(sum, &frame);
        out.extend_from_slice(&frame);
        out.extend_from_slice(&sum.to_le_bytes());
    }
    out
}

/// Programs of that time did not renew the record of a request that was only repeated, and each kept it for as long
/// as it liked: it must not be executed again.
#[test]
fn a_record_of_a_state_of_version_15_is_kept_for_as_long_as_its_session() {
    let repeat = || {
        let mut node = TestNode::new();
        drop(node.executor.adopt(read(&state_15_at(500_000)).unwrap()));
        node.next = [0, 1, 2].map(|g| node.executor.delivered(Gid(g)) + 1);
        let other = format!("INCR {{{}}}n", key(2));
        for (seq, ms) in (30..).zip((500_000..=900_000).step_by(LEAP_MS as usize)) {
            let payload = clocks::sent(7, (seq, seq), ms, &other);
            node.run(&TestCast { payload, ..cast(seq, seq, ms, &other) });
        }
        node.run(&cast(1000, 2, 900_000, "RPUSH l a b"))
    };
    assert_eq!(repeat(), ":2\r\n", "it ran");
    let broken = inspection::with(ExecutorMutant::AgesRetried, repeat);
    assert_eq!(broken, ":4\r\n", "the test finds it");
}

/// Bytes that a piece may be longer than asked for: one element, and the frames round it.
const SLACK: usize = 600;

#[test]
fn each_piece_costs_little_however_large_values_are_and_whatever_was_kept() {
    let mut node = TestNode::new();
    let mut seq = 0;
    let mut run = |node: &mut TestNode, text: &str| {
        seq += 1;
        node.run(&cast(seq, seq, 1, text))
    };
    let members =
        |from: usize| (from..from + 500).map(|m| format!(" {m} m{m}")).collect::<String>();
    for i in 0..40 {
        run(&mut node, &format!("ZADD z{}", members(500 * i)));
        run(&mut node, &format!("RPUSH l{}", members(500 * i)));
        run(&mut node, &format!("APPEND s {}", "x".repeat(20_000)));
    }
    for i in 0..4000 {
        run(&mut node, &format!("SET k{i} {i}"));
    }
    node.executor.capture();
    run(&mut node, "APPEND s y");
    for i in 0..4000 {
        run(&mut node, &format!("DEL k{i}"));
        run(&mut node, &format!("SET n{i} {i}"));
    }
    let (mut bytes, mut longest, most) = (Vec::new(), 0, 4096);
    loop {
        let before = bytes.len();
        let more = node.executor.piece(most, &mut bytes);
        longest = longest.max(bytes.len() - before);
        if !more {
            break;
        }
    }
    assert!(longest <= most + SLACK, "a piece of {longest} bytes");
    assert!(read(&bytes).is_ok());
    // Of an empty snapshot, so that only what is passed by counts: the keys created since.
    run(&mut node, "FLUSHALL");
    node.executor.capture();
    for i in 0..9000 {
        run(&mut node, &format!("SET n{i} {i}"));
    }
    let mut pieces = 0;
    while node.executor.piece(most, &mut Vec::new()) {
        pieces += 1;
    }
    assert!(pieces >= 9000 * 32 / most, "in {pieces} pieces, some passed by too much");
}

#[test]
fn adopting_hands_back_the_old_state_and_forgets_its_snapshot() {
    let (mut old, mut new) = (TestNode::new(), TestNode::new());
    old.run(&cast(1, 1, 1, &format!("SET {} old", key(0))));
    new.run(&cast(1, 1, 1, &format!("SET {} new", key(0))));
    new.run(&cast(2, 2, 1, &format!("SET {} new", key(1))));
    old.executor.capture();
    let state = read(&new.stream()).unwrap();
    let before = old.executor.adopt(state);
    assert_eq!((before.delivered(Gid(0)), before.delivered(Gid(1))), (1, 0));
    assert_eq!((old.executor.delivered(Gid(1)), old.executor.holds(Gid(0)).executed), (1, 1));
    assert!(!old.executor.piece(1000, &mut Vec::new()), "the snapshot was of the state before");
    old.next[0] = 2;
    assert_eq!(old.run(&cast(3, 3, 1, &format!("GET {}", key(0)))), "$3\r\nnew\r\n");
}
