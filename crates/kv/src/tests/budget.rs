//! Budgets of memory: what is refused, and that all replicas refuse the same.

use super::*;
use crate::answers::SingleShard;
use crate::budget::GROWTH_BYTES_MAX;
use amcast_smr::executor::inspection::ExecutorMutant;
use amcast_smr::machine::ShardedMachine;

pub(super) const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

/// Bytes that the keys of each shard may take in these tests.
const SHARD_BYTES: u64 = 4_000;

fn kv() -> Kv {
    Kv::new(SHARDS, 1).with_maxmemory(SHARD_BYTES * SHARDS as u64)
}

fn node() -> TestNode {
    let executor = Executor::new(kv(), SHARDS, Limits::default());
    TestNode { executor, next: [1; SHARDS], answers: Vec::new() }
}

fn used(node: &TestNode) -> Vec<u64> {
    (0..SHARDS as u8).map(|shard| node.executor.holds(Gid(shard)).used_bytes).collect()
}

#[test]
fn a_full_shard_refuses_what_may_grow_and_serves_reads_deletes_and_other_shards() {
    let _limit = amcast_test_policy::time_limit();
    let (x, y, long) = (key(0), key(1), "v".repeat(5_000));
    let mut node = node();
    let mut seq = 0;
    let mut run = |node: &mut TestNode, text: &str| {
        seq += 1;
        node.run(&cast(seq, seq, 0, text))
    };
    assert_eq!(run(&mut node, &format!("SET {x} {long}")), "+OK\r\n", "it was within before");
    for text in [format!("SET {x} 1"), format!("APPEND {x} 1"), format!("MSET {y} 1 {x} 2")] {
        assert_eq!(run(&mut node, &text), OOM, "{text}");
    }
    let aborted = format!("-EXECABORT Transaction discarded because of: {}", &OOM[1..]);
    assert_eq!(run(&mut node, &format!("EXEC 0 2 2 DEL {x} 3 SET {x} 1")), aborted);
    assert_eq!(run(&mut node, &format!("STRLEN {x}")), ":5000\r\n");
    assert_eq!(run(&mut node, &format!("EXPIRE {x} 100")), ":1\r\n");
    assert_eq!(run(&mut node, &format!("SET {y} 1")), "+OK\r\n", "another shard has room");
    assert_eq!(run(&mut node, &format!("EXEC 0 1 2 DEL {x}")), "*1\r\n:1\r\n");
    assert_eq!(run(&mut node, &format!("SET {x} 1")), "+OK\r\n");
    assert_eq!(run(&mut node, "AMCAST.MAXMEMORY 300"), "+OK\r\n");
    assert_eq!(run(&mut node, &format!("SET {y} 1")), OOM);
    node.executor.capture();
    let mut bytes = Vec::new();
    while node.executor.piece(1000, &mut bytes) {}
    drop(node.executor.adopt(ExecutorState::read(&kv(), SHARDS, &mut &*bytes).unwrap()));
    assert_eq!(run(&mut node, &format!("SET {y} 1")), OOM, "the budget is part of the state");
    assert_eq!(run(&mut node, "AMCAST.MAXMEMORY 0"), "+OK\r\n");
    assert_eq!(run(&mut node, &format!("SET {y} 1")), "+OK\r\n");
    assert!(run(&mut node, "AMCAST.MAXMEMORY 12x").starts_with("-ERR argument must be"));
}

#[test]
fn what_expired_does_not_count() {
    let _limit = amcast_test_policy::time_limit();
    let (x, long, map) = (key(0), "v".repeat(5_000), SlotMap::new(SHARDS));
    let b = (0..).map(|i| format!("b{i}")).find(|k| map.of_key(k.as_bytes()) == Gid(0)).unwrap();
    let mut node = node();
    node.run(&cast(1, 1, 1_000, &format!("SET {x} {long} PX 500")));
    assert_eq!(node.run(&cast(2, 2, 1_500, &format!("SET {b} 1"))), OOM);
    assert_eq!(node.run(&cast(3, 3, 1_501, &format!("SET {b} 1"))), "+OK\r\n");
}

/// A node that is given the commands of each shard in order, the shards in any.
fn shuffled(casts: &[TestCast], seed: u64, with: (bool, usize)) -> (TestNode, Vec<(u64, String)>) {
    shuffled_on(node(), casts, seed, with)
}

/// The same on this one.
fn shuffled_on(
    mut node: TestNode,
    casts: &[TestCast],
    seed: u64,
    (restarts, workers): (bool, usize),
) -> (TestNode, Vec<(u64, String)>) {
    let mut rng = Rng::new(seed);
    node.executor.employ(workers, std::sync::Arc::new(|| {})).unwrap();
    let mut at = [0; SHARDS];
    while at.iter().any(|i| *i < casts.len()) {
        let shard = rng.below(SHARDS as u64) as usize;
        let Some(i) = (at[shard]..casts.len()).find(|i| casts[*i].dst.contains(Gid(shard as u8)))
        else {
            at[shard] = casts.len();
            continue;
        };
        node.deliver(shard as u8, &casts[i]).unwrap();
        at[shard] = i + 1;
        if restarts && rng.chance(20_000) {
            let bytes = node.stream();
            let state = ExecutorState::read(&kv(), SHARDS, &mut &*bytes).unwrap();
            drop(node.executor.adopt(state));
        }
    }
    let mut collected = || {
        let answers = &mut node.answers;
        let mut on_answer = |a: CommandAnswer<'_>| {
            answers.push((a.id.seq, String::from_utf8_lossy(a.bytes).into_owned()));
        };
        node.executor.collect(&mut on_answer);
        answers.len()
    };
    while collected() < casts.len() {
        std::thread::yield_now();
    }
    let mut answers = node.answers.clone();
    answers.sort();
    (node, answers)
}

#[test]
fn replicas_that_run_commands_in_other_orders_refuse_the_same() {
    let _limit = amcast_test_policy::time_limit();
    all_refuse_the_same(5, false);
}

#[test]
fn so_they_do_where_the_budget_changes_alone_and_in_transactions() {
    let _limit = amcast_test_policy::time_limit();
    (6..10).for_each(|seed| all_refuse_the_same(seed, true));
}

#[test]
fn a_first_budget_in_a_transaction_holds_for_what_is_behind_it_on_all_replicas() {
    let _limit = amcast_test_policy::time_limit();
    // Also where the budget before is larger than any memory.
    for before in ["0", "9223372036854775807"] {
        let (x, y) = (key(0), key(1));
        let texts = [
            format!("AMCAST.MAXMEMORY {before}"),
            format!("SET {x} {}", "v".repeat(900)),
            format!("SET {y} {}", "v".repeat(900)),
            "EXEC 0 1 2 AMCAST.MAXMEMORY 600".to_string(),
            format!("SET {x} 1"),
            format!("SET {y} 1"),
        ];
        let numbered = (1..).zip(&texts);
        let casts: Vec<TestCast> = numbered.map(|(seq, text)| cast(seq, seq, seq, text)).collect();
        for seed in 0..40 {
            let (_, answers) = shuffled_on(TestNode::new(), &casts, seed, (false, 0));
            let answers: Vec<_> = answers.iter().map(|(_, answer)| answer.as_str()).collect();
            let expected = ["+OK\r\n", "+OK\r\n", "+OK\r\n", "*1\r\n+OK\r\n", OOM, OOM];
            assert_eq!(answers, expected, "seed {seed}");
        }
    }
}

#[test]
fn no_command_takes_more_than_its_growth() {
    let _limit = amcast_test_policy::time_limit();
    let marks: String = (0..1_000).map(|i| format!(" {i}")).collect();
    let sums: String = (0..9).map(|i| format!(" 3 INCRBYFLOAT {i} 1e4900")).collect();
    for text in [
        format!("WATCH{marks}"),
        "INCRBYFLOAT k 1e4900".to_string(),
        "HINCRBYFLOAT k f -1e4900".to_string(),
        format!("EXEC 0 9{sums}"),
    ] {
        let mut one = SingleShard::new();
        let args: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let mut command = Vec::new();
        encode_args(&args, &mut command);
        let answer = one.run(&text);
        assert!(!answer.starts_with('-'), "{answer}");
        let (used, growth) = (one.store.used(), one.kv.growth(&command).most);
        assert!(used > 4_000 && used <= growth, "{}: {used} of {growth}", &text[..20]);
    }
}

#[test]
fn they_would_differ_if_a_batch_did_not_count_what_it_takes_itself() {
    let _limit = amcast_test_policy::time_limit();
    let differs =
        || inspection::with(ExecutorMutant::CountsNoneOfBatch, || differing(5, false).is_some());
    assert!(differs());
}

fn all_refuse_the_same(seed: u64, budget_changes: bool) {
    assert_eq!(differing(seed, budget_changes), None);
}

/// The first replica that answers otherwise, or takes another amount of memory, than one that is given all commands
/// in one order.
fn differing(seed: u64, budget_changes: bool) -> Option<u64> {
    let mut rng = Rng::new(seed);
    let keys: Vec<String> = (0..24).map(|i| format!("k{i}")).collect();
    let casts: Vec<TestCast> = (1..2_500)
        .map(|seq| {
            let mut k = || keys[rng.below(24) as usize].clone();
            let (a, b, c) = (k(), k(), k());
            let text = match rng.below(20) {
                0 | 1 => format!("SET {a} {}", "v".repeat(rng.below(900) as usize)),
                2 => format!("MSET {a} {} {b} 1 {c} 2", "w".repeat(rng.below(700) as usize)),
                3 => format!("DEL {a}"),
                4 => format!("DEL {a} {b}"),
                5 => format!("SET {a} {} PX {}", "x".repeat(900), 1 + rng.below(300)),
                6 => format!("COPY {a} {b} REPLACE"),
                7 => format!("RENAME {a} {b}"),
                8 => format!("APPEND {a} {}", "z".repeat(100)),
                9 => format!("EXEC 0 2 3 SET {a} 1 2 DEL {b}"),
                10 => format!("RPUSH l{a} {}", "e".repeat(rng.below(300) as usize)),
                11 => format!("EXEC 0 2 5 LMOVE l{a} l{b} LEFT RIGHT 3 RENAME {b} {c}"),
                12 => {
                    format!("EXEC 0 3 5 LMOVE l{a} l{b} LEFT RIGHT 3 RPOPLPUSH l{b} l{c} 2 DEL {c}")
                }
                13 => format!("LMOVE l{a} l{b} RIGHT LEFT"),
                14 if budget_changes => {
                    let bytes = SHARDS as u64 * (SHARD_BYTES / 2 + rng.below(SHARD_BYTES));
                    match rng.below(2) {
                        0 => format!("AMCAST.MAXMEMORY {bytes}"),
                        _ => format!("EXEC 0 2 2 AMCAST.MAXMEMORY {bytes} 3 SET {a} 1"),
                    }
                }
                // Batches, whose own commands take the room that the later ones need.
                15 => format!("SET {a} 1\nSET {a} {}\nAPPEND {a} 1\nINCR {a}", "b".repeat(900)),
                16 => {
                    let long = "m".repeat(rng.below(900) as usize);
                    format!("MSET {a} {long} {b} 1\nMSET {b} {long} {a} 2\nMSET {b} 3 {a} {long}")
                }
                _ => format!("STRLEN {a}"),
            };
            let lines: Vec<String> = text.split('\n').map(str::to_string).collect();
            batch_cast(seq, seq, seq * 3, &lines)
        })
        .collect();
    let (mut first, answers) = shuffled(&casts, 1, (false, 0));
    let refused = answers.iter().filter(|(_, answer)| answer.starts_with("-OOM")).count();
    assert!((50..2_000).contains(&refused), "{refused}");
    let last = cast(2_500, 2_500, 1_000_000, "DBSIZE");
    first.run(&last);
    (2..12).find(|&seed| {
        let workers = if seed < 8 { 0 } else { 2 };
        let (mut other, others) = shuffled(&casts, seed, (seed % 3 == 1, workers));
        last.dst.iter().for_each(|g| _ = other.deliver(g.0, &last).unwrap());
        while workers > 0 && other.executor.applied(Gid(0)) < other.executor.delivered(Gid(0)) {
            std::thread::yield_now();
        }
        answers != others || used(&first) != used(&other)
    })
}

/// Runs a transaction that is to be refused, and to change nothing.
fn is_refused(node: &mut TestNode, seq: &mut u64, commands: &[String]) {
    *seq += 1;
    let before = used(node);
    let words: Vec<_> = commands.iter().map(|c| format!("{} {c}", c.split(' ').count())).collect();
    let text = format!("EXEC 0 {} {}", commands.len(), words.join(" "));
    let answer = node.run(&cast(*seq, *seq, 0, &text));
    assert!(answer.starts_with("-ERR this may take "), "{answer}");
    assert_eq!(before, used(node));
}

#[test]
fn what_moves_away_does_not_pay_for_what_grows_in_its_place() {
    let _limit = amcast_test_policy::time_limit();
    let (mut node, mut seq) = (TestNode::new(), 0);
    let large = |key: &str| format!("SETRANGE {{a}}{key} 67000000 x");
    for mover in ["RENAME {a}k {a}i", "RENAMENX {a}k {a}i"] {
        let commands: Vec<_> =
            (0..120).flat_map(|i| [large("k"), mover.replace('i', &format!("i{i}"))]).collect();
        is_refused(&mut node, &mut seq, &commands);
    }
    // A set of many members that moves away, and comes again from what is still there.
    let mut members = vec![];
    for i in 0..30 {
        let some: Vec<_> = (0..1_000).map(|n| format!("{i}.{n}")).collect();
        members.push(format!("SADD {{a}}s {}", some.join(" ")));
    }
    for command in &members {
        seq += 1;
        node.run(&cast(seq, seq, 0, command));
    }
    let store = "SUNIONSTORE {a}t {a}s".to_string();
    let commands: Vec<_> =
        (0..200).flat_map(|i| [store.clone(), format!("RENAME {{a}}t {{a}}t{i}")]).collect();
    is_refused(&mut node, &mut seq, &commands);
    // Keys that are named together do not each have what all of them have.
    let names: Vec<_> = (0..1_000).map(|i| format!("{{a}}{i}")).collect();
    let mut commands = vec![format!("DEL {}", names.join(" ")); 60];
    commands.extend((0..30).map(|i| format!("SETRANGE {{a}}{i} 12000000 x")));
    is_refused(&mut node, &mut seq, &commands);
    // No sum begins anew at nothing.
    let mut commands: Vec<_> = (0..120).map(|i| large(&i.to_string())).collect();
    commands.extend(["y", "z"].map(|key| format!("SETRANGE {{a}}{key} 9223372036854775807 x")));
    for mover in ["RENAME {a}0 {a}q", "LMOVE {a}0 {a}q LEFT LEFT", "SMOVE {a}0 {a}q m"] {
        commands.push(mover.to_string());
        is_refused(&mut node, &mut seq, &commands);
    }
}

#[test]
fn no_command_and_no_transaction_grows_the_state_by_much() {
    let _limit = amcast_test_policy::time_limit();
    let mut node = TestNode::new();
    let mut seq = 0;
    let mut run = |node: &mut TestNode, text: &str| {
        seq += 1;
        node.run(&cast(seq, seq, 0, text))
    };
    let many = |n: usize| {
        let each = |i: usize| format!(" 4 SETRANGE {{a}}{i} 67000000 x");
        format!("EXEC 0 {n}{}", (0..n).map(each).collect::<String>())
    };
    assert!(run(&mut node, &many(120)).starts_with("-ERR this may take 80400"), "8 GB");
    assert!(run(&mut node, &many(3)).starts_with("-ERR this may take 20100"));
    assert_eq!(used(&node), [0; SHARDS], "nothing is applied");
    assert_eq!(run(&mut node, &many(1)), "*1\r\n:67000001\r\n");
    let refused =
        |node: &mut TestNode, run: &mut dyn FnMut(&mut TestNode, &str) -> String, text: &str| {
            let before = used(node);
            let answer = run(node, text);
            assert!(answer.starts_with("-ERR this may take "), "{text}: {answer}");
            assert_eq!(before, used(node));
        };
    let copies: String = (0..3).map(|i| format!(" 3 COPY {{a}}0 {{a}}c{i}")).collect();
    refused(&mut node, &mut run, &format!("EXEC 0 3{copies}"));
    let doubling = "EXEC 0 3 3 COPY {a}0 {a}c 4 SETBIT {a}d 520000000 1 4 BITOP OR {a}e {a}c";
    refused(&mut node, &mut run, doubling);
    run(&mut node, "DEL {a}0");
    let members: String = (0..1_000).map(|i| format!(" {i}")).collect();
    for i in 0..60 {
        run(&mut node, &format!("SADD {{a}}s {i}{}", members.replace(' ', &format!(" {i}."))));
    }
    let sets: String = (0..9).map(|i| format!(" 3 SUNIONSTORE {{a}}s{i} {{a}}s")).collect();
    assert!(run(&mut node, &format!("EXEC 0 9{sets}")).starts_with("*9\r\n:60060\r\n"));
    let sets: String = (0..40).map(|i| format!(" 3 SUNIONSTORE {{a}}t{i} {{a}}s")).collect();
    refused(&mut node, &mut run, &format!("EXEC 0 40{sets}"));
    assert!(used(&node).iter().sum::<u64>() < GROWTH_BYTES_MAX);
}
