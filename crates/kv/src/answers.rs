//! Answers that would be larger than answers may be: they are not built.

use super::size_refusal::{self, SMALL_ANSWER_BYTES};
use super::{
    Kv, Store, decode_args, encode_args, encode_epoch, encode_whole_epoch, set_small_answer,
};
use amcast_core::limits::ANSWER_BYTES_MAX;
use amcast_core::{Gid, GroupSet, MsgId, Outcome, Pid};
use amcast_smr::envelope::Stamp;
use amcast_smr::machine::{ExecutionPoint, ShardPosition, ShardedMachine};

/// The words of Redis, which do not say so, of what was not executed.
const OOM: &[u8] = b"OOM command not allowed when used memory > 'maxmemory'.\r\n";

/// Asserts that an answer's words agree with its outcome. An answer that ends with the words of an
/// outcome has that outcome, and one that was not executed, or maybe was not, says so: except for
/// errors after which gateways retry, and for words of Redis.
pub(crate) fn assert_words_tell(outcome: Outcome, answer: &[u8]) {
    let shown = || String::from_utf8_lossy(&answer[..answer.len().min(200)]).into_owned();
    let says = |of: &Outcome| answer.ends_with(format!("; {}\r\n", of.words()).as_bytes());
    match answer.first() {
        // The refusals for another map or the size of the answer, and for another time.
        Some(b'@' | b'^') => assert_eq!(outcome, Outcome::NotExecuted),
        Some(b'?') => assert_eq!(outcome, Outcome::Unknown),
        Some(b'-') if answer.ends_with(OOM) => assert_eq!(outcome, Outcome::NotExecuted),
        Some(b'-') => {
            let said = Outcome::ALL.into_iter().find(says).unwrap_or(Outcome::Executed);
            assert_eq!(outcome, said, "{}", shown());
            let first = answer.split(|b| *b == b' ').next();
            let again = [&b"-TRYAGAIN"[..], b"-CLUSTERDOWN"].map(Some);
            assert!(!again.contains(&first), "a replica does not know that: {}", shown());
        }
        _ => assert_eq!(outcome, Outcome::Executed, "{}", shown()),
    }
}

/// One shard, to which commands are applied one after the other.
pub(super) struct SingleShard {
    pub(super) kv: Kv,
    pub(super) store: Store,
    pub(super) position: u64,
    pub(super) now_ms: u64,
    /// The outcome of the last command.
    pub(super) outcome: Outcome,
}

impl SingleShard {
    pub(super) fn over(kv: Kv) -> Self {
        let store = kv.part();
        Self { kv, store, position: 0, now_ms: 1_000, outcome: Outcome::Unknown }
    }

    pub(super) fn new() -> Self {
        Self::over(Kv::new(1, 7))
    }

    /// Applies a command; its answer as it was built.
    pub(super) fn bytes(&mut self, args: &[&[u8]]) -> Vec<u8> {
        let mut command = Vec::new();
        encode_epoch(0, &mut command);
        encode_args(args, &mut command);
        self.apply(&command)
    }

    /// The same of a command of which only a small answer is wanted.
    fn small(&mut self, line: &str) -> Vec<u8> {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut command = Vec::new();
        encode_whole_epoch(0, &mut command);
        set_small_answer(&mut command, true);
        encode_args(&args, &mut command);
        self.apply(&command)
    }

    pub(super) fn apply(&mut self, command: &[u8]) -> Vec<u8> {
        self.position += 1;
        let shard = Gid(0);
        let mut answer = Vec::new();
        let now = Stamp { wall_ms: self.now_ms, host_ms: self.now_ms };
        let places = [ShardPosition { shard, position: self.position, now }];
        let id = MsgId { sender: Pid(0), seq: self.position };
        let dst = GroupSet::one(shard);
        let at = ExecutionPoint { id, dst, places: &places, exact: dst, read_only: false };
        let outcome = self.kv.apply(&at, &mut [&mut self.store], command, &mut answer);
        assert_words_tell(outcome, &answer);
        self.outcome = outcome;
        answer
    }

    /// The same with words, and the answer as text.
    pub(super) fn run(&mut self, line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.bytes(&args)).into_owned()
    }
}

#[test]
fn an_answer_is_bounded_while_it_is_built() {
    let _limit = amcast_test_policy::time_limit();
    let mut one = SingleShard::new();
    // Each of these would be an answer of many times the memory of any machine.
    assert_eq!(one.run("SETRANGE big 60000000 x"), ":60000001\r\n");
    let times = |head: &str, word: &str, n: usize| format!("{head}{}", word.repeat(n));
    one.run(&times("RPUSH l", " 1", 50_000));
    one.run("RENAME big w_1");
    one.run("HSET h f v");
    let script = times("EXEC 0 40000", " 2 GET w_1", 40_000);
    for line in [
        times("MGET", " w_1", 100_000),
        "SORT_RO l GET w_*".to_string(),
        times("SORT l", " GET w_*", 100),
        script,
    ] {
        let answer = one.bytes(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(200)]).into_owned();
        assert!(answer.starts_with(b"-ERR the answer is larger than the limit of "), "{shown}");
        assert!(answer.capacity() <= 2 * ANSWER_BYTES_MAX, "{}", answer.capacity());
    }
    assert!(one.run("SORT l GET w_* STORE to").starts_with("-ERR the list is larger than"));
    assert!(one.run("SORT l BY w_* ALPHA").starts_with("-ERR what to sort by is larger than"));
    assert_eq!(one.run("EXISTS to"), ":0\r\n");
    // An answer that fits is given, also behind an error that removed one that did not.
    assert_eq!(one.bytes(&[b"MGET", b"w_1", b"w_1"]).len(), 120_000_032);
    assert_eq!(one.run("STRLEN w_1"), ":60000001\r\n");
}

#[test]
fn a_read_is_refused_before_more_than_a_small_answer_was_built() {
    let _limit = amcast_test_policy::time_limit();
    let mut one = SingleShard::new();
    one.run("SETRANGE big 60000000 x");
    one.run("SET k v");
    assert_eq!(one.small("GET k"), b"$1\r\nv\r\n");
    let wide = format!("MGET{}", " k".repeat(50_000));
    for line in ["GET big", "MGET k big big", "GETRANGE big 0 300000", &wide] {
        let answer = one.small(line);
        assert_eq!(one.outcome, Outcome::NotExecuted, "{line}");
        assert!(answer.capacity() < 2 * (SMALL_ANSWER_BYTES + line.len() * 5), "{line}");
        let mut args = Vec::new();
        decode_args(size_refusal::of_refusal(&answer).expect("a refusal"), &mut args).unwrap();
        assert_eq!(args.join(&b' '), line.as_bytes());
    }
    assert_eq!(one.small("GETRANGE big 0 199999").len(), 200_000 + 11);
    // A command that writes is executed as ever.
    one.run("SETRANGE other 300000 x");
    assert_eq!(one.small("GETDEL other").len(), 300_001 + 11);
    assert_eq!((one.outcome, one.run("EXISTS other")), (Outcome::Executed, ":0\r\n".into()));
}

#[test]
fn what_an_answer_cannot_hold_is_not_taken_out() {
    let _limit = amcast_test_policy::time_limit();
    let mut one = SingleShard::new();
    let long = vec![b'x'; 1_000_000];
    for i in 0..140_u32 {
        let mut member = long.clone();
        member.extend_from_slice(&i.to_be_bytes());
        one.bytes(&[b"RPUSH", b"l", &member]);
        one.bytes(&[b"SADD", b"s", &member]);
        one.bytes(&[b"ZADD", b"z", b"1", &member]);
    }
    for line in ["LPOP l 140", "RPOP l 140", "LMPOP 1 l LEFT COUNT 140", "SPOP s 140"] {
        assert!(one.run(line).starts_with("-ERR the answer could be larger"), "{line}");
    }
    for line in ["ZPOPMIN z 140", "ZPOPMAX z 140", "ZMPOP 1 z MIN COUNT 140"] {
        assert!(one.run(line).starts_with("-ERR the answer could be larger"), "{line}");
    }
    for (line, len) in [("LLEN l", 140), ("SCARD s", 140), ("ZCARD z", 140)] {
        assert_eq!(one.run(line), format!(":{len}\r\n"));
    }
    assert!(one.bytes(&[b"LPOP", b"l", b"120"]).starts_with(b"*120\r\n"));
}

#[test]
fn keys_that_are_watched_and_do_not_exist_count_in_the_budget_until_they_are_forgotten() {
    let _limit = amcast_test_policy::time_limit();
    let mut one = SingleShard::over(Kv::new(1, 7).with_maxmemory(1 << 20));
    let watch =
        |one: &mut SingleShard, n: u32| one.run(&format!("WATCH {}{n}", "k".repeat(50_000)));
    let taken = (0..100).take_while(|n| watch(&mut one, *n).starts_with("*1\r\n")).count();
    assert!((15..=22).contains(&taken), "{taken}");
    assert!(watch(&mut one, 99).starts_with("-OOM command not allowed"));
    assert!(one.run("SET a 1").starts_with("-OOM"), "it takes memory as any key");
    // A key that is watched again takes no more; one that exists takes nothing for that.
    one.run("AMCAST.MAXMEMORY 2mb");
    assert_eq!(one.run("SET a 1"), "+OK\r\n");
    let before = one.store.used();
    one.run("WATCH a");
    assert!(watch(&mut one, 0).starts_with("*1\r\n"));
    assert_eq!(one.store.used(), before);
    one.run("FLUSHALL");
    assert!(one.store.used() > 15 * 50_000, "they are watched still");
    one.now_ms += 700_000;
    one.run("DBSIZE");
    assert_eq!(one.store.used(), 0);
}

#[test]
fn errors_come_in_the_order_of_redis_and_nothing_is_written_nowhere() {
    let mut one = SingleShard::new();
    one.run("SET k value");
    assert_eq!(one.run("EXPIRE k x BAD"), "-ERR Unsupported option BAD\r\n");
    assert!(one.run("EXPIRE k x NX").starts_with("-ERR value is not an integer"));
    let huge = i64::MAX.to_string();
    let answer = one.bytes(&[b"SETRANGE", b"k", huge.as_bytes(), b""]);
    assert_eq!(String::from_utf8_lossy(&answer), ":5\r\n");
    assert!(one.run(&format!("SETRANGE k {huge} x")).starts_with("-ERR"));
}
