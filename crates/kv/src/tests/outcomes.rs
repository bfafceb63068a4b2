//! The outcomes that replicas report: for each reason of a refusal, and for the records kept for
//! retries.

use super::*;
use amcast_core::SkipDecision;
use amcast_smr::ShardedMachine;
use amcast_smr::envelope::ClockReport;
use amcast_smr::machine::Refusal;
use amcast_smr::parts::{Assembly, CommandPart};
use amcast_smr::stream;

/// Delivers a command in its shards, and takes the last answer's outcome and bytes.
fn told(node: &mut TestNode, c: &TestCast) -> (Outcome, String) {
    let mut told = None;
    for shard in c.dst.iter() {
        let position = node.next[shard.index()];
        node.next[shard.index()] += 1;
        let taken = node.executor.deliver(shard, position, c.id, c.dst, &c.payload, &mut |a| {
            told = Some((a.outcome, String::from_utf8_lossy(a.bytes).into_owned()));
        });
        taken.expect("there is room");
    }
    let (outcome, text) = told.expect("it is answered");
    assert_words_tell(outcome, text.as_bytes());
    (outcome, text)
}

/// A node of these limits, whose keys may take so many bytes.
fn node_of(limits: Limits, budget: u64) -> TestNode {
    let kv = Kv::new(SHARDS, 1).with_maxmemory(budget);
    let executor = Executor::new(kv, SHARDS, limits);
    TestNode { executor, next: [1; SHARDS], answers: Vec::new() }
}

/// Asks for the command, and for the same twice under other messages: the outcome of the first, and of the last.
fn thrice(node: &mut TestNode, request: u64, text: &str) -> (Outcome, Outcome, String) {
    let first = told(node, &cast(10 * request, request, request, text));
    let again = told(node, &cast(10 * request + 1, request, request, text));
    assert_eq!(again, first, "a retry gets the same answer");
    let state = ExecutorState::read(&Kv::new(SHARDS, 1), SHARDS, &mut &*node.stream()).unwrap();
    drop(node.executor.adopt(state));
    let restarted = told(node, &cast(10 * request + 2, request, request, text));
    assert_eq!(restarted, first, "and so it is after a restart");
    (first.0, restarted.0, first.1)
}

#[test]
fn what_is_executed_says_so_and_its_retries_do_whatever_its_error_is() {
    let _limit = amcast_test_policy::time_limit();
    let (mut node, x) = (TestNode::new(), key(0));
    for (i, (text, answer)) in [
        (format!("SET {x} 1"), "+OK\r\n"),
        (format!("RPUSH {x} 1"), "-WRONGTYPE"),
        // The only command of a transaction, which is executed, is refused in it.
        (format!("EXEC 0 2 2 INCR {x} 3 SETRANGE {x} 600000000"), "*2\r\n:2\r\n-"),
    ]
    .into_iter()
    .enumerate()
    {
        let (first, again, shown) = thrice(&mut node, i as u64 + 1, &text);
        assert!(shown.starts_with(answer), "{shown}");
        assert_eq!((first, again), (Outcome::Executed, Outcome::Executed), "{text}");
    }
}

#[test]
fn what_a_bound_refuses_was_not_executed_and_its_retries_say_so() {
    let _limit = amcast_test_policy::time_limit();
    let (x, y) = (key(0), key(1));
    let mut node = node_of(Limits::default(), SHARDS as u64 * 4_000);
    told(&mut node, &cast(1, 1, 1, &format!("SET {x} {}", "v".repeat(5_000))));
    told(&mut node, &cast(2, 2, 2, &format!("SET {y} 1")));
    // Each string may be so long, and all three together would take too much.
    let long = ["a", "b", "c"].map(|n| format!("4 SETRANGE {{{y}}}{n} 60000000 1"));
    let long = format!("3 {}", long.join(" "));
    for (request, text, begins) in [
        (3, format!("SET {x} 1"), "-OOM "),
        (4, format!("EXEC 0 1 3 SET {x} 1"), "-EXECABORT "),
        (5, format!("EXEC 0 {long}"), "-ERR this may take 1"),
    ] {
        let (first, again, shown) = thrice(&mut node, request, &text);
        assert!(shown.starts_with(begins), "{shown}");
        assert_eq!((first, again), (Outcome::NotExecuted, Outcome::NotExecuted), "{shown}");
    }
}

#[test]
fn a_command_for_another_map_was_not_executed_and_a_read_of_it_is_refused_alike() {
    let (mut node, x) = (TestNode::new(), key(0));
    for (request, name) in [(1, "INCR"), (2, "GET")] {
        let args = [name.as_bytes(), x.as_bytes()];
        let stamp = Stamp { wall_ms: request, host_ms: request };
        let read_only = name == "GET";
        let mut payload = Vec::new();
        Envelope { session: 1, request, open_from: 1, stamp, read_only }.encode(&mut payload);
        crate::encode_epoch(9, &mut payload);
        encode_args(&args, &mut payload);
        let dst = GroupSet::one(Gid(0));
        for seq in 0..2 {
            let id = MsgId { sender: Pid(9), seq: 2 * request + seq };
            let refused = told(&mut node, &TestCast { id, dst, payload: payload.clone() });
            assert_eq!(refused.0, Outcome::NotExecuted, "{refused:?}");
        }
        let mut answer = Vec::new();
        if read_only {
            let peeked = LocalRead::Answered(Outcome::NotExecuted);
            assert_eq!(node.executor.peek_one(Gid(0), 0, &payload, &mut answer), peeked);
            answer.clear();
            assert_eq!(node.executor.peek(0, (dst, &payload), &[], &mut answer), peeked);
        }
    }
}

#[test]
fn of_a_stamp_that_does_not_count_and_of_a_window_that_is_passed_nothing_is_known() {
    let limits = Limits { session_ms: 1_000, ..Limits::default() };
    let (mut node, x) = (node_of(limits, 0), key(0));
    let incr = format!("INCR {x}");
    told(&mut node, &cast(1, 1, 5_000, &incr));
    let (stale, shown) = told(&mut node, &cast(2, 2, 1, &incr));
    assert_eq!((stale, shown.get(..6)), (Outcome::Unknown, Some("?5000\n")));
    // It is far ahead of the clocks of a majority.
    let mut node = TestNode::new();
    node.executor.bound_time(3);
    for (seq, replica) in [(1, 0), (2, 1)] {
        let payload = ClockReport(Stamp { wall_ms: 10, host_ms: 10 }).encode().to_vec();
        let id = MsgId { sender: Pid(replica), seq };
        node.executor
            .deliver(Gid(0), seq, id, GroupSet::one(Gid(0)), &payload, &mut |_| {})
            .unwrap();
    }
    node.next[0] = 3;
    let far_ms = 10 + AHEAD_MAX_MS + AHEAD_MAX_MS + 1;
    let (ahead, shown) = told(&mut node, &cast(3, 1, far_ms, &incr));
    assert!(shown.starts_with('?'), "{shown}");
    assert_eq!(ahead, Outcome::Unknown);
    let mut node = TestNode::new();
    let mut far = cast(1, 1, 1, &incr);
    far.payload.clear();
    let stamp = Stamp::default();
    let request = Limits::default().window + 1;
    Envelope { session: 1, request, open_from: 1, stamp, read_only: false }
        .encode(&mut far.payload);
    encode_args(&[b"INCR", x.as_bytes()], &mut far.payload);
    let (window, shown) = told(&mut node, &far);
    assert!(shown.starts_with("-ERR too many commands of this session"), "{shown}");
    assert_eq!(window, Outcome::Unknown);
}

/// An answer that is dropped leaves its outcome: of the ones that were executed, and of those that were not.
#[test]
fn a_dropped_answer_leaves_what_became_of_its_command() {
    let limits = Limits { answer_bytes: 60, ..Limits::default() };
    let (mut node, x) = (node_of(limits, SHARDS as u64 * 4_000), key(0));
    let request = |node: &mut TestNode, seq: u64, request: u64, text: &str| {
        told(node, &cast(seq, request, 1, text))
    };
    let set = format!("SET {x} {}", "v".repeat(5_000));
    assert_eq!(request(&mut node, 1, 1, &set).0, Outcome::Executed);
    let append = format!("APPEND {x} 1");
    assert_eq!(request(&mut node, 2, 2, &append).0, Outcome::NotExecuted);
    // This one passes the bound of all answers together.
    assert_eq!(request(&mut node, 3, 3, &append).0, Outcome::NotExecuted);
    for seq in [4, 14] {
        for (number, text, outcome) in
            [(1, &set, Outcome::Executed), (2, &append, Outcome::NotExecuted)]
        {
            let (again, shown) = request(&mut node, seq + number, number, text);
            assert!(shown.starts_with("-ERR the answer to the command is not kept"), "{shown}");
            assert_eq!(again, outcome, "{shown}");
        }
        let state = ExecutorState::read(&Kv::new(SHARDS, 1), SHARDS, &mut &*node.stream()).unwrap();
        drop(node.executor.adopt(state));
    }
    // One that its session is beyond was answered, and nobody knows how.
    assert_eq!(request(&mut node, 30, 40, &append).0, Outcome::NotExecuted);
    assert_eq!(request(&mut node, 31, 2, &append).0, Outcome::Unknown);
}

#[test]
fn large_answers_of_one_session_leave_those_of_others() {
    let limits = Limits { answer_bytes: 40_000, ..Limits::default() };
    let (mut node, x) = (node_of(limits, 0), key(0));
    let mut seq = 0;
    let mut of = |node: &mut TestNode, session: u64, request: u64, text: &str| {
        seq += 1;
        let mut c = cast(seq, request, 1, text);
        let envelope = Envelope::decode(&c.payload).expect("one that was just encoded").0;
        c.payload[..Envelope::BYTES].copy_from_slice(&Envelope { session, ..envelope }.to_bytes());
        told(node, &c).1
    };
    assert_eq!(of(&mut node, 1, 1, &format!("SETRANGE {x} 15000 x")), ":15001\r\n");
    for session in 2..12 {
        assert_eq!(of(&mut node, session, 1, &format!("APPEND {x} {session:03}")).len(), 8);
    }
    // Three of them are more than all answers may be.
    for request in 2..5 {
        assert!(of(&mut node, 1, request, &format!("GETEX {x} PERSIST")).len() > 15_000);
    }
    for session in 2..12 {
        let again = of(&mut node, session, 1, &format!("APPEND {x} {session:03}"));
        assert_eq!(again, format!(":{}\r\n", 15_001 + 3 * (session - 1)));
    }
    let kept = (2..5).map(|request| of(&mut node, 1, request, &format!("GETEX {x} PERSIST")));
    let kept = kept.filter(|again| again.len() > 15_000).count();
    assert!(kept < 3, "{kept} are more than may be kept");
}

#[test]
fn what_is_skipped_and_what_lacks_a_part_was_not_executed() {
    let (mut node, x) = (TestNode::new(), key(0));
    let poison = cast(7, 1, 1, &format!("INCR {x}"));
    let decision = SkipDecision { msg: poison.id, group: Gid(0), position: 1 };
    node.executor.skip(&[(decision, true)]).unwrap();
    let skipped = told(&mut node, &poison);
    assert!(skipped.1.starts_with("-ERR All replicas skip this command"), "{skipped:?}");
    assert_eq!(skipped.0, Outcome::NotExecuted);
    let again = TestCast { id: MsgId { sender: Pid(9), seq: 8 }, ..poison };
    assert_eq!(told(&mut node, &again), skipped);

    let (dst, stamp) = (GroupSet::one(Gid(0)), Stamp { wall_ms: 9, host_ms: 9 });
    let envelope =
        |request, open_from| Envelope { session: 2, request, open_from, stamp, read_only: false };
    let mut payload = Vec::new();
    CommandPart { envelope: envelope(1, 1), bytes: b"part" }.encode(&mut payload);
    let part = TestCast { id: MsgId { sender: Pid(9), seq: 20 }, dst, payload };
    assert_eq!(told_part(&mut node, &part), Outcome::Executed, "it is kept");
    let mut payload = Vec::new();
    let assembly = Assembly { envelope: envelope(3, 3), parts: 2, bytes: 8, sum: 0 };
    assembly.encode(&mut payload);
    let id = MsgId { sender: Pid(9), seq: 21 };
    let (incomplete, shown) = told(&mut node, &TestCast { id, dst, payload });
    assert!(shown.starts_with("-ERR the shard has given up parts"), "{shown}");
    assert_eq!(incomplete, Outcome::NotExecuted);
}

/// The outcome of a part, which answers in bytes of its own.
fn told_part(node: &mut TestNode, c: &TestCast) -> Outcome {
    let (mut outcome, position) = (None, node.next[0]);
    node.next[0] += 1;
    let mut tell = |a: CommandAnswer<'_>| outcome = Some(a.outcome);
    node.executor.deliver(Gid(0), position, c.id, c.dst, &c.payload, &mut tell).unwrap();
    outcome.expect("it is answered")
}

/// A message that is skipped is ahead of ordered time, too. Its repetition comes when it would not be any more.
#[test]
fn what_is_skipped_is_not_executed_later_either_whatever_its_stamp_was() {
    let (mut node, x) = (TestNode::new(), key(0));
    node.executor.bound_time(1);
    let report = |node: &mut TestNode, ms: u64| {
        let payload = ClockReport(Stamp { wall_ms: ms, host_ms: ms }).encode().to_vec();
        let (id, dst) = (MsgId { sender: Pid(0), seq: ms }, GroupSet::one(Gid(0)));
        node.deliver(0, &TestCast { id, dst, payload }).unwrap();
    };
    report(&mut node, 10);
    let poison = cast(7, 1, 3 * AHEAD_MAX_MS, &format!("INCR {x}"));
    let decision = SkipDecision { msg: poison.id, group: Gid(0), position: 2 };
    node.executor.skip(&[(decision, true)]).unwrap();
    let skipped = told(&mut node, &poison);
    assert!(skipped.1.starts_with("-ERR All replicas skip this command"), "{skipped:?}");
    report(&mut node, 4 * AHEAD_MAX_MS);
    let again = TestCast { id: MsgId { sender: Pid(9), seq: 8 }, ..poison };
    assert_eq!(told(&mut node, &again), skipped);
}

/// A shard was asked for a command of which it had one of two parts; then the other part comes, and the same question by
/// another node.
#[test]
fn what_lacked_a_part_is_not_executed_once_that_has_come() {
    let (mut node, x) = (TestNode::new(), key(0));
    let mut body = Vec::new();
    crate::encode_epoch(0, &mut body);
    encode_args(&[b"INCR", x.as_bytes()], &mut body);
    let (dst, stamp) = (GroupSet::one(Gid(0)), Stamp { wall_ms: 9, host_ms: 9 });
    let envelope =
        |request| Envelope { session: 2, request, open_from: 1, stamp, read_only: false };
    let half = body.len() / 2;
    let part = |seq, request, bytes| {
        let mut payload = Vec::new();
        CommandPart { envelope: envelope(request), bytes }.encode(&mut payload);
        TestCast { id: MsgId { sender: Pid(9), seq }, dst, payload }
    };
    let assembly = |seq| {
        let (bytes, sum) = (body.len() as u64, crc32c::crc32c(&body));
        let mut payload = Vec::new();
        Assembly { envelope: envelope(3), parts: 2, bytes, sum }.encode(&mut payload);
        TestCast { id: MsgId { sender: Pid(9), seq }, dst, payload }
    };
    assert_eq!(told_part(&mut node, &part(20, 1, &body[..half])), Outcome::Executed);
    let incomplete = told(&mut node, &assembly(21));
    assert!(incomplete.1.starts_with("-ERR the shard has given up parts"), "{incomplete:?}");
    assert_eq!(told_part(&mut node, &part(22, 2, &body[half..])), Outcome::Executed);
    assert_eq!(told(&mut node, &assembly(23)), incomplete);
    assert_eq!(node.run(&cast(30, 30, 9, &format!("GET {x}"))), "_\r\n");
}

/// All reasons, with what they say of the command.
#[test]
fn each_refusal_has_the_outcome_that_its_words_say() {
    let of = |outcome| Refusal::Forgotten { outcome };
    let all = [
        (Refusal::Stale { now_ms: 1 }, Outcome::Unknown),
        (Refusal::Ahead { now_ms: 1 }, Outcome::Unknown),
        (Refusal::Window, Outcome::Unknown),
        (of(Outcome::Executed), Outcome::Executed),
        (of(Outcome::NotExecuted), Outcome::NotExecuted),
        (of(Outcome::Unknown), Outcome::Unknown),
        (Refusal::NoRoom, Outcome::NotExecuted),
        (Refusal::Incomplete, Outcome::NotExecuted),
        (Refusal::Skipped, Outcome::NotExecuted),
    ];
    for (why, outcome) in all {
        assert_eq!(why.outcome(), outcome, "{why:?}");
        let mut answer = Vec::new();
        Kv::new(1, 1).refuse(why, b"", &mut answer);
        assert_words_tell(outcome, &answer);
    }
}

/// A state of version 12, which says nothing of outcomes: they are those of the words that this version wrote, and of an
/// answer that was dropped nothing is known. In one shard `SET`, and `GETDEL`, whose answer passed the bound of all; then
/// `SET`, and one that the full shard refused. In another the answers of three passed it, and then comes one for another
/// map.
#[test]
fn a_state_of_version_12_is_read_and_its_answers_have_the_outcomes_that_they_say() {
    let before = include_bytes!("state-12");
    assert_eq!((before[4], before.len()), (12, 1224));
    let mut node = TestNode::new();
    drop(
        node.executor
            .adopt(ExecutorState::read(&Kv::new(SHARDS, 1), SHARDS, &mut &before[..]).unwrap()),
    );
    node.next = [0, 1, 2].map(|g| node.executor.delivered(Gid(g)) + 1);
    let expected = [
        (0, "-ERR the answer to the command is not kept", Outcome::Unknown),
        (0, "-ERR the answer to the command is not kept", Outcome::Unknown),
        (0, "+OK", Outcome::Executed),
        (0, "-OOM ", Outcome::NotExecuted),
        (1, "-ERR the answer to the command is not kept", Outcome::Unknown),
        (1, "-ERR the answer to the command is not kept", Outcome::Unknown),
        (1, "-ERR the answer to the command is not kept", Outcome::Unknown),
        (1, "@", Outcome::NotExecuted),
    ];
    for seq in [20, 40] {
        for (request, (shard, begins, outcome)) in (1..).zip(expected) {
            let again = cast(seq + request, request, 1, &format!("INCR {}", key(shard)));
            let (came, shown) = told(&mut node, &again);
            assert!(shown.starts_with(begins), "{request}: {shown}");
            assert_eq!(came, outcome, "{request}: {shown}");
        }
        assert_eq!(node.stream()[4], stream::VERSION, "it is written as states are now");
        node.restart();
    }
}

/// The same commands, as each version before that one and the one that first said it have them.
#[test]
fn states_of_all_versions_before_say_what_became_of_what_their_sessions_ran() {
    let states: [(u8, &[u8]); 7] = [
        (6, include_bytes!("state-6")),
        (7, include_bytes!("state-7")),
        (8, include_bytes!("state-8")),
        (9, include_bytes!("state-9")),
        (10, include_bytes!("state-10")),
        (13, include_bytes!("state-13")),
        (14, include_bytes!("state-14")),
    ];
    for (version, before) in states {
        assert_eq!(before[4], version);
        let mut node = TestNode::new();
        let state = ExecutorState::read(&Kv::new(SHARDS, 1), SHARDS, &mut &before[..]).unwrap();
        drop(node.executor.adopt(state));
        node.next = [0, 1, 2].map(|g| node.executor.delivered(Gid(g)) + 1);
        for seq in [40, 50] {
            let again = cast(seq, 1, 7, &format!("SET {} v", key(1)));
            assert_eq!(told(&mut node, &again), (Outcome::Executed, "+OK\r\n".into()), "{version}");
            let again = cast(seq + 1, 8, 9, "PEXPIRE h 100");
            assert_eq!(told(&mut node, &again), (Outcome::Executed, ":1\r\n".into()), "{version}");
            node.restart();
        }
    }
}

#[test]
fn answers_of_before_version_13_have_the_outcomes_that_their_words_say() {
    let kv = Kv::new(1, 1);
    for (answer, outcome) in [
        ("+OK\r\n", Outcome::Executed),
        ("@\x01", Outcome::NotExecuted),
        ("-WRONGTYPE Operation against a key\r\n", Outcome::Executed),
        ("-OOM command not allowed when used memory > 'maxmemory'.\r\n", Outcome::NotExecuted),
        ("-ERR this may take 2 bytes; the command was not executed\r\n", Outcome::NotExecuted),
        ("$28\r\n; the command was not executed\r\n", Outcome::Executed),
        ("*1\r\n-ERR no; the command was not executed\r\n", Outcome::Executed),
    ] {
        assert_eq!(kv.outcome_of_kept(answer.as_bytes()), outcome, "{answer}");
    }
}
