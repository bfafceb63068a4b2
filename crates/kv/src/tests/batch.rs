//! The commands of a batch do what they do alone, and their answers are bounded together.

use super::super::answers::SingleShard;
use super::super::batch::BatchKind;
use super::super::budget::may_grow;
use super::super::registry;
use super::super::size_refusal::{self, SMALL_ANSWER_BYTES};
use super::super::{
    Kv, SlotMap, batch, decode_args, encode_args, encode_epoch, encode_whole_epoch,
    set_small_answer,
};
use super::{SHARDS, TestNode, batch_cast, cast};
use amcast_core::rng::Rng;
use amcast_core::{Gid, GroupSet, Outcome};
use amcast_smr::machine::{Access, Growth, MachinePart, ShardedMachine};
use amcast_smr::{Executor, Limits};

/// A batch of the commands, of which only small answers are wanted if `only_small`.
fn batch_of(lines: &[String], only_small: bool) -> Vec<u8> {
    let mut message = Vec::new();
    match only_small {
        true => encode_whole_epoch(0, &mut message),
        false => encode_epoch(0, &mut message),
    }
    let from = message.len();
    for (i, line) in lines.iter().enumerate() {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        encode_args(&args, &mut bytes);
        match i {
            0 => message.extend_from_slice(&bytes),
            _ => batch::push(&mut message, from, &bytes),
        }
    }
    if only_small {
        set_small_answer(&mut message, true);
    }
    message
}

fn lines(text: &[&str]) -> Vec<String> {
    text.iter().map(ToString::to_string).collect()
}

/// The answers to the commands of a batch.
fn answers(shard: &mut SingleShard, lines: &[String]) -> Vec<(Outcome, Vec<u8>)> {
    let answer = shard.apply(&batch_of(lines, false));
    let all = batch::answers(&answer).expect("answers of a batch");
    all.map(|(outcome, bytes)| (outcome, bytes.to_vec())).collect()
}

fn some_command(rng: &mut Rng) -> String {
    let key = |rng: &mut Rng, kind: &str| format!("{kind}{}", rng.below(3));
    let word = |rng: &mut Rng| ["a", "b", "7", "x"][rng.below(4) as usize];
    match rng.below(17) {
        0 => format!("SET {} {}", key(rng, "s"), word(rng)),
        1 => format!("SETNX {} {}", key(rng, "s"), word(rng)),
        2 => format!("SETEX {} {} {}", key(rng, "s"), 1 + rng.below(3), word(rng)),
        3 => format!("GET {}", key(rng, "s")),
        4 => format!("INCR {}", key(rng, "s")),
        5 => format!("APPEND {} {}", key(rng, "s"), word(rng)),
        6 => format!("TTL {}", key(rng, "s")),
        7 => format!("EXPIRE {} {}", key(rng, "h"), 1 + rng.below(5)),
        8 => format!("HSET {} {} {}", key(rng, "h"), word(rng), word(rng)),
        9 => format!("HMGET {} a b x", key(rng, "h")),
        10 => format!("HDEL {} {}", key(rng, "h"), word(rng)),
        11 => format!("RPUSH {} {}", key(rng, "l"), word(rng)),
        12 => format!("LLEN {}", key(rng, "l")),
        13 => format!("ZADD {} {} {}", key(rng, "z"), rng.below(9), word(rng)),
        14 => format!("ZRANK {} {}", key(rng, "z"), word(rng)),
        // Of a key of another type, and with a wrong number of arguments.
        15 => format!("HGET {} a", key(rng, "s")),
        _ => format!("GET {} too many", key(rng, "s")),
    }
}

/// Runs random commands alone, and as many `rounds` of batches, in shards that hold so many `others` keys.
fn compare_with_alone(seed: u64, rounds: usize, others: usize) {
    let mut rng = Rng::new(seed);
    let (mut alone, mut together) = (SingleShard::new(), SingleShard::new());
    let mut shared = 0;
    for shard in [&mut alone, &mut together] {
        (0..others).for_each(|i| _ = shard.run(&format!("SET other{i} {i}")));
    }
    for _ in 0..rounds {
        let count = 2 + rng.below(batch::BATCH_MAX as u64 - 1) as usize;
        let commands: Vec<String> = (0..count).map(|_| some_command(&mut rng)).collect();
        let passed_ms = rng.below(1_500);
        for shard in [&mut alone, &mut together] {
            shard.now_ms += passed_ms;
        }
        let expected: Vec<_> =
            commands.iter().map(|line| (alone.run(line), alone.outcome)).collect();
        let got = answers(&mut together, &commands);
        assert_eq!((got.len(), together.outcome), (count, Outcome::Executed));
        for (line, ((outcome, bytes), (text, expected))) in
            commands.iter().zip(got.iter().zip(&expected))
        {
            assert_eq!((outcome, &*String::from_utf8_lossy(bytes)), (expected, &**text), "{line}");
        }
        shared += count;
    }
    assert!(shared > 10 * rounds, "{shared}");
    for line in ["SCAN 0 COUNT 100", "HGETALL h0", "LRANGE l1 0 -1", "ZRANGE z2 0 -1 WITHSCORES"] {
        assert_eq!(alone.run(line), together.run(line), "{line}");
    }
}

#[test]
fn commands_of_a_batch_answer_and_change_what_they_do_alone() {
    compare_with_alone(11, 600, 0);
}

#[test]
fn a_shard_that_reads_ahead_does_the_same() {
    compare_with_alone(12, 100, 5_000);
}

/// A command over the shards 0 and 1, of which `keys` are.
fn over_two_shards(rng: &mut Rng, keys: &[Vec<String>; 2]) -> String {
    let mut key = |of: usize| &keys[of][rng.below(keys[of].len() as u64) as usize];
    let [a, b, c] = [0, 1, 1].map(|of| key(of).clone());
    let word = "v".repeat(1 + rng.below(20) as usize);
    match rng.below(6) {
        0 | 1 => format!("MSET {a} {word} {b} {} {c} {word}", rng.below(9)),
        2 => format!("MGET {b} {a} {c}"),
        3 => format!("EXISTS {a} {b} {a}"),
        4 => format!("TOUCH {c} {a} {b}"),
        _ => format!("MGET {a} {b} none{{{a}}}"),
    }
}

#[test]
fn commands_over_several_shards_answer_and_change_in_a_batch_what_they_do_alone() {
    let _limit = amcast_test_policy::time_limit();
    let map = SlotMap::new(SHARDS);
    let of_shard = |shard: u8| -> Vec<String> {
        let all = (0..).map(|i| format!("k{i}"));
        all.filter(|key| map.of_key(key.as_bytes()) == Gid(shard)).take(4).collect()
    };
    let keys = [0, 1].map(of_shard);
    let mut refused = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        // Half of the nodes have too little memory, in one shard or in both.
        let kv = || Kv::new(SHARDS, 1).with_maxmemory(if seed % 2 == 0 { 0 } else { 1_200 });
        let node = || TestNode {
            executor: Executor::new(kv(), SHARDS, Limits::default()),
            next: [1; SHARDS],
            answers: Vec::new(),
        };
        let (mut alone, mut together) = (node(), node());
        for seq in 1..40 {
            let first = "MSET".to_owned() + &format!(" {} 1 {} 2", keys[0][0], keys[1][0]);
            let mut commands = vec![first];
            commands.extend((0..rng.below(20)).map(|_| over_two_shards(&mut rng, &keys)));
            let expected: Vec<String> = (0..)
                .zip(&commands)
                .map(|(i, line)| alone.run(&cast(100 * seq + i, 100 * seq + i, seq, line)))
                .collect();
            refused += expected.iter().filter(|answer| answer.starts_with("-OOM ")).count();
            let answer = together.run(&batch_cast(seq, seq, seq, &commands));
            let got = match commands.len() {
                1 => vec![answer],
                // All bytes of lengths are below 128, since the answers are short.
                _ => batch::answers(answer.as_bytes())
                    .expect("answers of a batch")
                    .map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
                    .collect(),
            };
            assert_eq!(got, expected, "seed {seed}: {commands:?}");
        }
        for key in keys.iter().flatten() {
            let line = format!("GET {key}");
            let [one, other] = [&mut alone, &mut together]
                .map(|node| node.run(&cast(9_000_000 + seed, 9_000_000 + seed, 60, &line)));
            assert_eq!(one, other, "{key}");
        }
    }
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn commands_of_many_keys_read_ahead_and_find_what_each_key_holds() {
    let mut one = SingleShard::new();
    let pairs = |from: usize| (from..from + 1_000).map(|i| format!(" k{i} v{i}"));
    (0..6).for_each(|i| _ = one.run(&format!("MSET{}", pairs(1_000 * i).collect::<String>())));
    assert!(one.store.exceeds_caches());
    one.run("DEL k4");
    one.run("HSET k4 a b");
    let keys: String = (0..600).map(|i| format!(" k{i} gone{i} k{i}")).collect();
    let each: String = (0..600)
        .map(|i| match i {
            4 => "_\r\n".repeat(3),
            _ => format!("${0}\r\nv{i}\r\n_\r\n${0}\r\nv{i}\r\n", i.to_string().len() + 1),
        })
        .collect();
    let all = one.run(&format!("MGET{keys}"));
    assert!(all == format!("*1800\r\n{each}"), "{}", &all[..100]);
    assert_eq!(one.run(&format!("EXISTS{keys}")), ":1200\r\n");
    assert_eq!(one.run(&format!("DEL{keys}")), ":600\r\n");
    assert_eq!(one.run("MSET a 1 a 2 b 3"), "+OK\r\n");
    assert_eq!(one.run("MGET a b"), "*2\r\n$1\r\n2\r\n$1\r\n3\r\n");
}

#[test]
fn expired_keys_are_dropped_as_fast_as_batches_create_new_ones() {
    let mut one = SingleShard::new();
    for message in 0..200 {
        let fresh: Vec<String> = (0..64).map(|i| format!("SETEX m{message}k{i} 1 v")).collect();
        answers(&mut one, &fresh);
        one.store.sweep(one.now_ms);
        one.now_ms += 2_000;
    }
    assert!(one.store.len() <= 2 * 64, "{}", one.store.len());
}

#[test]
fn small_answers_are_small_together_and_a_read_without_room_is_given_back() {
    let mut one = SingleShard::new();
    one.run("SETRANGE wide 149999 x");
    one.run("SET k v");
    let commands = lines(&["GET k", "GET wide", "GET wide", "GET k"]);
    let answer = one.apply(&batch_of(&commands, true));
    assert!(answer.len() < SMALL_ANSWER_BYTES);
    let all: Vec<_> = batch::answers(&answer).expect("answers of a batch").collect();
    let outcomes: Vec<Outcome> = all.iter().map(|(outcome, _)| *outcome).collect();
    let (executed, refused) = (Outcome::Executed, Outcome::NotExecuted);
    assert_eq!(outcomes, [executed, executed, refused, executed]);
    assert_eq!((all[0].1, all[1].1.len(), all[3].1), (&b"$1\r\nv\r\n"[..], 150_011, all[0].1));
    let mut args = Vec::new();
    decode_args(size_refusal::of_refusal(all[2].1).expect("a refusal"), &mut args).unwrap();
    assert_eq!(args, [&b"GET"[..], b"wide"]);
}

#[test]
fn a_full_shard_refuses_the_writes_of_a_batch_and_serves_the_others() {
    let mut one = SingleShard::over(Kv::new(1, 7).with_maxmemory(1_000));
    let fill: Vec<String> = (0..8).map(|i| format!("SET key{i} value")).collect();
    let outcomes: Vec<Outcome> = answers(&mut one, &fill).into_iter().map(|(o, _)| o).collect();
    assert_eq!((outcomes[0], outcomes[7]), (Outcome::Executed, Outcome::NotExecuted));
    let mixed = answers(&mut one, &lines(&["SET new v", "EXPIRE key0 5", "GET key0"]));
    assert!(mixed[0].1.starts_with(b"-OOM ") && mixed[0].0 == Outcome::NotExecuted);
    assert_eq!((&mixed[1].1[..], &mixed[2].1[..]), (&b":1\r\n"[..], &b"$5\r\nvalue\r\n"[..]));
}

#[test]
fn the_kind_of_a_batch_tells_whether_its_commands_are_refused_where_there_is_no_room() {
    let mut kinds = Vec::new();
    for (number, command) in (0..).zip(registry::all()) {
        let Some(kind) = batch::kind(number) else { continue };
        let mut message = Vec::new();
        encode_epoch(0, &mut message);
        encode_args(&[command.name.as_bytes(), b"key", b"word"], &mut message);
        assert_eq!(may_grow(&message), kind == BatchKind::Grows, "{}", command.name);
        assert_eq!(command.writes(), kind != BatchKind::Reads, "{}", command.name);
        kinds.push(kind);
    }
    for kind in [BatchKind::Reads, BatchKind::Grows, BatchKind::Changes] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[test]
fn nothing_else_is_executed_in_a_batch() {
    let mut one = SingleShard::new();
    let sent = lines(&["SET k v", "WATCH k", "EXEC 0 1 2 GET k", "FLUSHALL", "NO such", "GET k"]);
    let got = answers(&mut one, &sent);
    for (line, (outcome, bytes)) in sent.iter().zip(&got).skip(1).take(4) {
        assert!(bytes.starts_with(b"-ERR Protocol error"), "{line}");
        assert_eq!(*outcome, Outcome::Executed, "{line}");
    }
    assert_eq!((&got[0].1[..], &got[5].1[..]), (&b"+OK\r\n"[..], &b"$1\r\nv\r\n"[..]));
    // A batch that is cut short is one error, and none of its commands is executed.
    let mut cut = batch_of(&lines(&["SET k w", "GET k"]), false);
    cut.pop();
    assert!(one.apply(&cut).starts_with(b"-ERR Protocol error"));
    assert_eq!(one.run("GET k"), "$1\r\nv\r\n");
}

#[test]
fn what_gateways_of_other_versions_batched_is_executed() {
    let mut one = SingleShard::new();
    let got = answers(&mut one, &lines(&["SET k v", "UNLINK k", "GET k"]));
    let got: Vec<_> = got.iter().map(|(_, bytes)| &bytes[..]).collect();
    assert_eq!(got, [&b"+OK\r\n"[..], b":1\r\n", b"_\r\n"]);
}

#[test]
fn a_batch_conflicts_grows_and_expires_as_all_of_its_commands() {
    let kv = Kv::new(1, 7);
    let commands = lines(&["GET a", "SET b value", "INCR c"]);
    let message = batch_of(&commands, false);
    let alone: Vec<Vec<u8>> =
        commands.iter().map(|line| batch_of(std::slice::from_ref(line), false)).collect();
    let access = |message: &[u8]| {
        let mut access = Access::default();
        kv.access(message, GroupSet::one(Gid(0)), &mut access);
        assert!(!access.whole);
        access.uses.iter().map(|u| (u.shard, u.key, u.write)).collect::<Vec<_>>()
    };
    let expected: Vec<_> = alone.iter().flat_map(|message| access(message)).collect();
    assert_eq!((access(&message), expected.len()), (expected, 3));
    let growths: Vec<Growth> = alone.iter().map(|message| kv.growth(message)).collect();
    assert!(growths.iter().all(|growth| growth.before_decision == 0));
    let most: u64 = growths.iter().map(|growth| growth.most).sum();
    let before_decision = most - growths[2].most;
    assert_eq!(kv.growth(&message), Growth { most, before_decision });
    let mut one = SingleShard::over(kv);
    one.run("SET b v PX 500");
    let sees = |from, to| one.kv.sees_expiry(&one.store, &message, from..to);
    assert!(sees(1_400, 1_600) && !sees(1_000, 1_400));
}
