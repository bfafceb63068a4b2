//! Messages that are skipped by decision: alike on all replicas, after any history.

use super::*;
use amcast_core::SkipDecision;
use amcast_smr::envelope::ClockReport;
use amcast_smr::executor::SkipStatus;
use amcast_smr::executor::inspection::dump_state;
use amcast_smr::machine::{Access, Corrupt, ExecutionPoint, Growth, Refusal, ShardedMachine};
use amcast_smr::parts::{Assembly, CommandPart};
use amcast_smr::{ExecutedCommand, ExecutionObserver, StateHead};
use std::sync::{Arc, Mutex, PoisonError};

/// The store, in which executing a command with this word in it ends the process.
struct PoisonedStore(Kv);

const POISON: &[u8] = b"poison";

impl PoisonedStore {
    fn new() -> Self {
        Self(Kv::new(SHARDS, 1))
    }
}

impl ShardedMachine for PoisonedStore {
    type Part = <Kv as ShardedMachine>::Part;

    fn part(&self) -> Self::Part {
        self.0.part()
    }

    fn access(&self, command: &[u8], dst: GroupSet, access: &mut Access) {
        assert!(!command.ends_with(b"touched poison"), "it cannot even be looked at");
        self.0.access(command, dst, access);
    }

    fn growth(&self, command: &[u8]) -> Growth {
        assert!(!command.ends_with(b"touched poison"), "it cannot even be looked at");
        self.0.growth(command)
    }

    fn apply<'a>(
        &self,
        at: &ExecutionPoint<'a>,
        parts: &'a mut [&'a mut Self::Part],
        command: &[u8],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let is_poison = command.windows(POISON.len()).any(|part| part == POISON);
        assert!(!is_poison, "the command ends any process that executes it");
        self.0.apply(at, parts, command, answer)
    }

    fn refuse(&self, why: Refusal, command: &[u8], answer: &mut Vec<u8>) {
        self.0.refuse(why, command, answer);
    }
}

const SKIPPED: &str = "-ERR All replicas skip this command by decision of those who run the cluster; the command \
                       was not executed\r\n";

/// A decision about `c`, which is at this place.
fn decision(c: &TestCast, shard: u8, position: u64) -> SkipDecision {
    SkipDecision { msg: c.id, group: Gid(shard), position }
}

/// A replica of it with these decisions.
struct SkippingReplica {
    executor: Executor<PoisonedStore>,
    next: [u64; SHARDS],
    answers: Vec<(u64, String)>,
}

impl SkippingReplica {
    fn with(decisions: &[(SkipDecision, bool)], workers: usize) -> Self {
        let mut executor = Executor::new(PoisonedStore::new(), SHARDS, Limits::default());
        executor.skip(decisions).unwrap();
        executor.employ(workers, Arc::new(|| {})).unwrap();
        Self { executor, next: [1; SHARDS], answers: Vec::new() }
    }

    fn deliver(&mut self, shard: u8, c: &TestCast) -> Result<DeliveryResult, ExecutorFull> {
        let (shard, answers) = (Gid(shard), &mut self.answers);
        let position = self.next[shard.index()];
        let outcome = self.executor.deliver(shard, position, c.id, c.dst, &c.payload, &mut |a| {
            answers.push((a.id.seq, String::from_utf8_lossy(a.bytes).into_owned()));
        });
        self.next[shard.index()] += u64::from(outcome.is_ok());
        outcome
    }

    /// Delivers in all destinations; the answer.
    fn run(&mut self, c: &TestCast) -> String {
        c.dst.iter().for_each(|g| assert_eq!(self.deliver(g.0, c), Ok(DeliveryResult::Taken)));
        let of = |answers: &[(u64, String)]| {
            answers.iter().find(|(seq, _)| *seq == c.id.seq).map(|(_, text)| text.clone())
        };
        loop {
            if let Some(text) = of(&self.answers) {
                return text;
            }
            self.collect();
            std::thread::yield_now();
        }
    }

    fn collect(&mut self) {
        let answers = &mut self.answers;
        self.executor.collect(&mut |a| {
            answers.push((a.id.seq, String::from_utf8_lossy(a.bytes).into_owned()));
        });
    }

    fn stream(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.executor.capture();
        while self.executor.piece(1000, &mut out) {}
        out
    }

    fn read(mut bytes: &[u8]) -> Result<ExecutorState<PoisonedStore>, Corrupt> {
        ExecutorState::read(&PoisonedStore::new(), SHARDS, &mut bytes)
    }
}

/// The contents of a state: each shard's data and position, and the skipped messages.
fn kept(stream: &[u8]) -> String {
    dump_state(&SkippingReplica::read(stream).unwrap(), Store::dump)
}

/// Writes, one of which in the middle is poisoned and goes to two shards, a repetition of that one under
/// another message, and reads; with where the poisoned one is in its lowest shard.
fn history() -> (Vec<TestCast>, SkipDecision) {
    let (x, y) = (key(0), key(1));
    let mut casts = vec![
        cast(1, 1, 10, &format!("SET {x} 1")),
        cast(2, 2, 20, &format!("MSET {x} 2 {y} 2")),
        cast(3, 3, 30, &format!("MSET {x} poison {y} poison")),
        cast(4, 4, 40, &format!("APPEND {y} 3")),
    ];
    let again = TestCast { id: MsgId { sender: Pid(8), seq: 5 }, ..casts[2].clone() };
    casts.extend([again, cast(6, 6, 60, &format!("MGET {x} {y}")), cast(7, 7, 70, "DBSIZE")]);
    let poisoned = decision(&casts[2], 0, 3);
    (casts, poisoned)
}

const ANSWERS: [&str; 7] =
    ["+OK\r\n", "+OK\r\n", SKIPPED, ":2\r\n", SKIPPED, "*2\r\n$1\r\n2\r\n$2\r\n23\r\n", ":2\r\n"];

#[test]
fn a_skipped_command_is_answered_and_touches_nothing_and_neither_does_its_repetition() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let mut states = Vec::new();
    for workers in [0, 2] {
        let mut replica = SkippingReplica::with(&[(poisoned, true)], workers);
        let answers: Vec<String> = casts.iter().map(|c| replica.run(c)).collect();
        assert_eq!(answers, ANSWERS, "{workers} workers");
        assert!(replica.executor.skipped().eq([poisoned]));
        let applied = |g| replica.executor.applied(Gid(g));
        assert_eq!((applied(0), applied(1)), (6, 6), "it counts as executed");
        assert_eq!(replica.executor.holds(Gid(0)).executed, 4, "and was not");
        states.push(kept(&replica.stream()));
    }
    assert_eq!(states[0], states[1]);
}

#[test]
#[should_panic(expected = "the command ends any process that executes it")]
fn without_the_decision_it_ends_the_process() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, _) = history();
    let mut replica = SkippingReplica::with(&[], 0);
    casts.iter().for_each(|c| drop(replica.run(c)));
}

#[test]
fn replicas_agree_whatever_of_it_they_replay_or_get_from_others() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let whole = {
        let mut replica = SkippingReplica::with(&[(poisoned, true)], 0);
        casts.iter().for_each(|c| drop(replica.run(c)));
        replica.stream()
    };
    // States at each place, of a replica that had the decision and, in front of it, of one that had not; also
    // where only one of the shards delivered the poisoned one.
    for (cut, half) in (0..=casts.len()).flat_map(|cut| [(cut, false), (cut, true)]) {
        for with in [true, false] {
            let decisions: &[_] = if with { &[(poisoned, true)] } else { &[] };
            let mut before = SkippingReplica::with(decisions, 0);
            if !with && cut > 2 {
                continue;
            }
            casts[..cut].iter().for_each(|c| drop(before.run(c)));
            if half && let Some(c) = casts.get(cut).filter(|c| c.dst.len() == 2) {
                before.deliver(1, c).unwrap();
            }
            for workers in [0, 2] {
                let mut after = SkippingReplica::with(&[(poisoned, true)], workers);
                let state = SkippingReplica::read(&before.stream()).unwrap();
                assert_eq!(after.executor.conflict(&state), None, "at {cut}");
                drop(after.executor.adopt(state));
                // Everything is delivered again, from the first position on.
                casts.iter().for_each(|c| {
                    c.dst.iter().for_each(|g| _ = after.deliver(g.0, c).unwrap());
                });
                let told = format!("at {cut}, {half}, with {with}, {workers} workers");
                let stream = after.stream();
                assert_eq!(kept(&stream), kept(&whole), "{told}");
                // The records of answered requests depend on the time at which workers reached
                // them.
                assert!(workers > 0 || stream == whole, "{told}");
            }
        }
    }
}

#[test]
fn nothing_is_skipped_before_it_is_released() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let mut replica = SkippingReplica::with(&[(poisoned, false)], 0);
    casts[..2].iter().for_each(|c| drop(replica.run(c)));
    assert_eq!(replica.executor.at_skip(), None);
    for shard in [0, 1, 0] {
        assert_eq!(replica.deliver(shard, &casts[2]), Err(ExecutorFull));
        assert_eq!(replica.executor.at_skip(), Some(poisoned.msg));
    }
    let other = cast(9, 9, 30, &format!("SET {} 1", key(2)));
    assert_eq!(replica.run(&other), "+OK\r\n", "another shard continues");
    assert!(replica.executor.skipped().next().is_none());
    replica.executor.release_skip(poisoned.msg);
    assert_eq!(replica.executor.at_skip(), None);
    assert_eq!(replica.run(&casts[2]), SKIPPED);
}

#[test]
fn one_that_is_next_is_known_also_where_another_shard_can_take_no_more() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let mut executor =
        Executor::new(PoisonedStore::new(), SHARDS, Limits { waiting: 1, ..Limits::default() });
    executor.skip(&[(poisoned, false)]).unwrap();
    let mut replica = SkippingReplica { executor, next: [1; SHARDS], answers: Vec::new() };
    casts[..2].iter().for_each(|c| drop(replica.run(c)));
    // The second shard is full of what waits for the first one, where the poisoned one is next.
    let behind = [8, 9].map(|n| cast(n, n, 30, &format!("MSET {} 1 {} 1", key(0), key(1))));
    assert_eq!(replica.deliver(0, &casts[2]), Err(ExecutorFull));
    assert_eq!(replica.deliver(1, &behind[0]), Ok(DeliveryResult::Taken));
    assert_eq!(replica.deliver(1, &behind[1]), Err(ExecutorFull));
    assert_eq!(replica.executor.at_skip(), Some(poisoned.msg));
}

#[test]
fn one_that_waits_in_a_state_is_not_skipped_before_it_is_released_either() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let mut before = SkippingReplica::with(&[], 0);
    casts[..1].iter().for_each(|c| drop(before.run(c)));
    // It is delivered everywhere, and waits for one that is not.
    before.deliver(0, &casts[1]).unwrap();
    before.deliver(0, &casts[2]).unwrap();
    before.next[1] = 3;
    before.deliver(1, &casts[2]).unwrap();
    let mut after = SkippingReplica::with(&[(poisoned, false)], 0);
    drop(after.executor.adopt(SkippingReplica::read(&before.stream()).unwrap()));
    assert_eq!(after.executor.at_skip(), Some(poisoned.msg));
    let other = cast(9, 9, 30, &format!("SET {} 1", key(2)));
    assert_eq!(after.deliver(2, &other), Err(ExecutorFull), "what it waits for may be any");
    after.executor.release_skip(poisoned.msg);
    assert_eq!(after.run(&other), "+OK\r\n");
}

#[test]
fn a_state_in_which_it_was_executed_or_skipped_by_others_alone_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let (x, y) = (key(0), key(1));
    let casts =
        [cast(1, 1, 10, &format!("SET {x} 1")), cast(2, 2, 20, &format!("MSET {x} 2 {y} 2"))];
    let decided = decision(&casts[1], 0, 2);
    let mut executes = SkippingReplica::with(&[], 0);
    casts.iter().for_each(|c| drop(executes.run(c)));
    let mut skips = SkippingReplica::with(&[(decided, true)], 0);
    casts.iter().for_each(|c| drop(skips.run(c)));
    let bytes = [executes.stream(), skips.stream()];
    let [executed, skipped] = bytes.each_ref().map(|bytes| SkippingReplica::read(bytes).unwrap());
    let conflict = |of: &SkippingReplica, state| of.executor.conflict(state);
    assert_eq!((conflict(&executes, &executed), conflict(&skips, &skipped)), (None, None));
    let why = conflict(&skips, &executed).unwrap();
    assert!(why.starts_with("p9:2@g0/2 was executed in it (g0 is at 2)"), "{why}");
    let why = conflict(&executes, &skipped).unwrap();
    assert!(why.starts_with("p9:2@g0/2 was skipped in it"), "{why}");
    // The same for a tool, which knows nothing of the service.
    let heads = bytes.each_ref().map(|bytes| StateHead::read(&mut &bytes[..]).unwrap());
    let standing = heads.each_ref().map(|head| head.skip_status(&decided));
    assert_eq!(standing, [SkipStatus::Executed, SkipStatus::Skipped]);
    assert!(heads[0].skipped().next().is_none() && heads[1].skipped().eq([decided]));
    assert_eq!(heads[0].skip_status(&SkipDecision { position: 3, ..decided }), SkipStatus::Ahead);
    assert_eq!(
        (heads[0].shards(), heads[0].delivered(Gid(0)), heads[0].delivered(Gid(9))),
        (SHARDS, 2, 0)
    );
    // One that waits was not executed, though its position was passed.
    let mut waits = SkippingReplica::with(&[], 0);
    waits.run(&casts[0]);
    waits.deliver(0, &casts[1]).unwrap();
    let bytes = waits.stream();
    assert_eq!(StateHead::read(&mut &bytes[..]).unwrap().skip_status(&decided), SkipStatus::Ahead);
    assert_eq!(conflict(&skips, &SkippingReplica::read(&bytes).unwrap()), None);
}

#[test]
fn what_cannot_be_looked_at_is_skipped_all_the_same() {
    let _limit = amcast_test_policy::time_limit();
    let both = cast(
        1,
        1,
        10,
        &format!("MSET {} 1 {} touched poison", key(0), key(1)).replace("touched p", "touched-p"),
    );
    // The last argument ends so in the bytes of the command, with any bytes between.
    let mut payload = both.payload;
    let end = payload.len() - b"touched-poison".len();
    payload.truncate(end);
    payload.extend_from_slice(b"touched poison");
    let both = TestCast { payload, ..both };
    for workers in [0, 2] {
        let mut replica = SkippingReplica::with(&[(decision(&both, 0, 1), true)], workers);
        assert_eq!(replica.run(&both), SKIPPED);
        // Nor where it waits in a state.
        let mut waits = SkippingReplica::with(&[(decision(&both, 0, 1), true)], workers);
        assert_eq!(waits.deliver(0, &both), Ok(DeliveryResult::Taken));
        let state = SkippingReplica::read(&waits.stream()).unwrap();
        let mut after = SkippingReplica::with(&[(decision(&both, 0, 1), true)], workers);
        assert_eq!(after.executor.conflict(&state), None);
        drop(after.executor.adopt(state));
        assert_eq!(after.deliver(1, &both), Ok(DeliveryResult::Taken));
        assert_eq!(kept(&after.stream()), kept(&replica.stream()));
    }
}

#[test]
fn what_a_replica_says_of_itself_is_skipped_too_and_the_state_goes_on() {
    let _limit = amcast_test_policy::time_limit();
    let report = TestCast {
        payload: ClockReport(Stamp { wall_ms: 7, host_ms: 7 }).encode().to_vec(),
        ..cast(1, 1, 10, "DBSIZE")
    };
    let report = TestCast { dst: GroupSet::one(Gid(0)), ..report };
    let decided = decision(&report, 0, 1);
    let mut replica = SkippingReplica::with(&[(decided, true)], 0);
    assert_eq!(replica.deliver(0, &report), Ok(DeliveryResult::Taken));
    assert_eq!(replica.executor.delivered(Gid(0)), 1);
    let state = SkippingReplica::read(&replica.stream()).unwrap();
    assert_eq!(replica.executor.conflict(&state), None);
}

#[test]
#[should_panic(expected = "the decision to skip p9:3@g0/2 is wrong: g0 has p9:2 at position 2")]
fn a_decision_with_a_wrong_place_executes_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let mut replica = SkippingReplica::with(&[(SkipDecision { position: 2, ..poisoned }, true)], 0);
    casts.iter().for_each(|c| drop(replica.run(c)));
}

#[test]
#[should_panic(expected = "the decision to skip p9:3@g2/2 is wrong: g0 has p9:3 at position 3")]
fn a_decision_with_a_shard_to_which_the_message_does_not_go_executes_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let mut replica = SkippingReplica::with(
        &[(SkipDecision { group: Gid(2), position: 2, ..poisoned }, true)],
        0,
    );
    casts.iter().for_each(|c| drop(replica.run(c)));
}

#[test]
fn a_decision_with_a_wrong_place_is_found_in_a_state_in_which_the_message_waits() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let mut before = SkippingReplica::with(&[], 0);
    casts[..2].iter().for_each(|c| drop(before.run(c)));
    before.deliver(1, &casts[2]).unwrap();
    let bytes = before.stream();
    let head = StateHead::read(&mut &bytes[..]).unwrap();
    let at = |group, position| SkipDecision { group: Gid(group), position, ..poisoned };
    for (wrong, expected) in [
        // It was delivered in this shard, and elsewhere.
        (at(1, 3), SkipStatus::Misplaced),
        (at(1, 900), SkipStatus::Misplaced),
        // It does not go there.
        (at(2, 900), SkipStatus::Misplaced),
        // Another message is there.
        (SkipDecision { msg: casts[0].id, ..at(1, 2) }, SkipStatus::Misplaced),
        (at(1, 2), SkipStatus::Ahead),
        (at(0, 3), SkipStatus::Ahead),
    ] {
        assert_eq!(head.skip_status(&wrong), expected, "{wrong}");
        let after = SkippingReplica::with(&[(wrong, true)], 0);
        let conflict = after.executor.conflict(&SkippingReplica::read(&bytes).unwrap());
        let is_refused = conflict.is_some_and(|why| why.contains("is wrong"));
        assert_eq!(is_refused, expected == SkipStatus::Misplaced, "{wrong}");
    }
}

#[test]
fn a_decision_for_a_shard_that_there_is_not_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let mut executor = Executor::new(PoisonedStore::new(), SHARDS, Limits::default());
    let wrong = SkipDecision { group: Gid(3), ..decision(&casts[2], 0, 1) };
    assert!(executor.skip(&[(wrong, true)]).unwrap_err().contains("more than 3 shards"));
    assert!(executor.skip(&[(poisoned, true)]).is_ok());
}

/// Notes what is done, as a witness.
#[derive(Default)]
struct Notes(Mutex<Vec<(usize, Option<u64>)>>);

impl ExecutionObserver for Notes {
    fn begins(&self, slot: usize, doing: &ExecutedCommand<'_>) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push((slot, Some(doing.id.seq)));
    }

    fn ends(&self, slot: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((slot, None));
    }
}

#[test]
fn a_witness_knows_which_command_ended_the_process_and_hears_of_none_that_is_skipped() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, poisoned) = history();
    let notes = Arc::new(Notes::default());
    let mut replica = SkippingReplica::with(&[], 0);
    replica.executor.tell(notes.clone());
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        casts.iter().for_each(|c| drop(replica.run(c)));
    }));
    assert!(ended.is_err());
    let heard = |notes: &Notes| notes.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // One of several shards is looked at in each, before it is executed.
    let looks = |seq| [(SHARDS, Some(seq)), (SHARDS, None), (SHARDS, Some(seq)), (SHARDS, None)];
    let mut wanted = vec![(0, Some(1)), (0, None)];
    wanted.extend(looks(2).into_iter().chain([(0, Some(2)), (0, None)]));
    wanted.extend(looks(3).into_iter().chain([(0, Some(3))]));
    assert_eq!(heard(&notes), wanted, "the third one was begun and has not ended");
    for workers in [0, 2] {
        let notes = Arc::new(Notes::default());
        let mut executor = Executor::new(PoisonedStore::new(), SHARDS, Limits::default());
        executor.skip(&[(poisoned, true)]).unwrap();
        executor.tell(notes.clone());
        executor.employ(workers, Arc::new(|| {})).unwrap();
        let mut replica = SkippingReplica { executor, next: [1; SHARDS], answers: Vec::new() };
        casts.iter().for_each(|c| drop(replica.run(c)));
        let heard = heard(&notes);
        assert!(heard.contains(&(0, Some(2))), "{heard:?}");
        assert!(heard.iter().all(|(_, of)| *of != Some(3)), "{heard:?}");
    }
}

/// A poisoned command to two shards that comes in two parts, between others; where its parts and its assembly are in
/// its lowest shard.
fn in_parts() -> (Vec<TestCast>, [SkipDecision; 3]) {
    let (x, y) = (key(0), key(1));
    let mut body = Vec::new();
    crate::encode_epoch(0, &mut body);
    encode_args(&[b"MSET", x.as_bytes(), b"poison", y.as_bytes(), b"poison"], &mut body);
    let envelope = |request| Envelope {
        session: 50,
        request,
        open_from: 1,
        stamp: Stamp { wall_ms: 30, host_ms: 30 },
        read_only: false,
    };
    let message = |seq, dst, payload| TestCast { id: MsgId { sender: Pid(9), seq }, dst, payload };
    let lowest = GroupSet::one(Gid(0));
    let half = body.len().div_ceil(2);
    let mut casts = vec![cast(1, 1, 10, &format!("MSET {x} 1 {y} 1"))];
    for (request, bytes) in (1..).zip(body.chunks(half)) {
        let mut payload = Vec::new();
        CommandPart { envelope: envelope(request), bytes }.encode(&mut payload);
        casts.push(message(10 + request, lowest, payload));
    }
    let (bytes, sum) = (body.len() as u64, crc32c::crc32c(&body));
    let mut payload = Vec::new();
    Assembly { envelope: envelope(3), parts: 2, bytes, sum }.encode(&mut payload);
    casts.push(message(20, lowest.with(Gid(1)), payload));
    casts.push(cast(6, 6, 60, &format!("MGET {x} {y}")));
    let decisions = [1, 2, 3].map(|at| decision(&casts[at], 0, at as u64 + 1));
    (casts, decisions)
}

#[test]
fn a_command_in_parts_is_skipped_as_a_whole_and_without_one_of_its_parts_it_is_incomplete() {
    let _limit = amcast_test_policy::time_limit();
    let (casts, [first, second, assembly]) = in_parts();
    let incomplete = "-ERR the shard has given up parts of the command before the last one came; the command was \
                      not executed\r\n";
    for (skipped, answer) in [(assembly, SKIPPED), (first, incomplete), (second, incomplete)] {
        let run = |replica: &mut SkippingReplica, casts: &[TestCast]| {
            for c in casts {
                c.dst.iter().for_each(|g| _ = replica.deliver(g.0, c).unwrap());
            }
        };
        let mut whole = SkippingReplica::with(&[(skipped, true)], 0);
        run(&mut whole, &casts);
        let told = |seq| whole.answers.iter().find(|(id, _)| *id == seq).map(|(_, text)| &text[..]);
        assert_eq!(told(20), Some(answer), "{skipped}");
        assert_eq!(told(6), Some("*2\r\n$1\r\n1\r\n$1\r\n1\r\n"), "{skipped}");
        assert!(whole.executor.skipped().eq([skipped]));
        let stream = whole.stream();
        // States at each place, also where only one of its shards has the assembly.
        for (cut, half) in (0..=casts.len()).flat_map(|cut| [(cut, false), (cut, true)]) {
            let mut before = SkippingReplica::with(&[(skipped, true)], 0);
            run(&mut before, &casts[..cut]);
            if half && let Some(c) = casts.get(cut).filter(|c| c.dst.len() == 2) {
                before.deliver(1, c).unwrap();
            }
            for workers in [0, 2] {
                let mut after = SkippingReplica::with(&[(skipped, true)], workers);
                let state = SkippingReplica::read(&before.stream()).unwrap();
                assert_eq!(after.executor.conflict(&state), None, "at {cut}");
                drop(after.executor.adopt(state));
                run(&mut after, &casts);
                assert_eq!(
                    kept(&after.stream()),
                    kept(&stream),
                    "{skipped}: {cut}, {half}, {workers}"
                );
            }
        }
    }
}
