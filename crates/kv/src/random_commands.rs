//! Random commands, most of them with arguments that are not valid: none may panic, and one that is answered with an
//! error, or that only reads, must leave everything as it was. `AMCAST_LONG=1` tries many more.

use super::registry::{self, CommandRunner, CommandSpec};
use super::work::WorkBudget;
use super::{Context, Kv, Store, budget, encode_args, encode_epoch};
use amcast_core::rng::Rng;
use amcast_core::{Gid, GroupSet, MsgId, Pid};
use amcast_smr::envelope::Stamp;
use amcast_smr::machine::{ExecutionPoint, MachinePart, ShardPosition, ShardedMachine};
use amcast_smr::stream::{Piece, StreamProgress};

const SHARDS: usize = 3;

/// Commands that fill keys of every kind, to be run as they are and with changes.
const VALID: &[&str] = &[
    "SET s1 v EX 100 GET",
    "SET s2 17",
    "APPEND s1 more",
    "SETRANGE s1 3 xyz",
    "INCRBYFLOAT s2 1.5",
    "MSET s1 a s3 10 s2 c",
    "GETEX s1 PX 100",
    "EXPIRE s1 100 NX",
    "COPY s1 s4 REPLACE",
    "RENAME s4 s3",
    "HSET h1 f v g 2",
    "HINCRBYFLOAT h1 g 1.5",
    "HRANDFIELD h1 2 WITHVALUES",
    "RPUSH l1 a b c 1 2",
    "LINSERT l1 BEFORE a x",
    "LMOVE l1 l2 LEFT RIGHT",
    "LPOS l1 a RANK 1 COUNT 0 MAXLEN 9",
    "LMPOP 2 l1 l2 LEFT COUNT 2",
    "RPUSH l3 3 1 2",
    "SORT l3 LIMIT 0 2 DESC STORE l2",
    "SORT l3 BY s* GET # GET h*->f",
    "SADD e1 a b c",
    "SADD e2 b c d",
    "SINTERCARD 2 e1 e2 LIMIT 1",
    "SUNIONSTORE e3 e1 e2",
    "SMOVE e1 e2 a",
    "SPOP e3 1",
    "ZADD z1 XX CH 1 a",
    "ZADD z1 1 a 2 b 3 c",
    "ZADD z1 INCR 1.5 a",
    "ZRANGESTORE z2 z1 (1 +inf BYSCORE LIMIT 0 2",
    "ZUNIONSTORE z3 2 z1 z2 WEIGHTS 1 2 AGGREGATE MAX",
    "ZINTER 2 z1 z2 WITHSCORES",
    "ZMPOP 2 z3 z1 MIN COUNT 1",
    "ZRANGEBYLEX z1 [a (c LIMIT 0 1",
    "ZREMRANGEBYSCORE z2 -inf (2",
    "BITFIELD s1 OVERFLOW SAT SET u8 #1 300 INCRBY i5 3 1 GET u4 0",
    "BITOP XOR s3 s1 s2",
    "BITPOS s1 1 0 -1 BIT",
    "LCS s1 s2 IDX MINMATCHLEN 1 WITHMATCHLEN",
    "PFADD p1 a b",
    "PFMERGE p2 p1",
    "PFCOUNT p1 p2",
    "PFDEBUG TODENSE p1",
    "PFDEBUG GETREG p2",
    "PFDEBUG DECODE p1",
    "SCAN 0 MATCH s* COUNT 3 TYPE string",
    "HSCAN h1 0 COUNT 2",
    "RANGE a z LIMIT 3",
    "WATCH s1 nope",
    "EXEC 1 s1 7 2 3 SET s1 v 2 GET h1",
    "EXEC 0 1 4 HSET h1 f w",
    "OBJECT ENCODING l1",
    "MEMORY USAGE z1",
];

const WORDS: &[&str] = &[
    "s1",
    "s2",
    "h1",
    "l1",
    "l2",
    "e1",
    "e2",
    "z1",
    "z2",
    "nope",
    "",
    "a",
    "b",
    "f",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-2",
    "100",
    "-100",
    "7.5",
    "1e2",
    "inf",
    "-inf",
    "nan",
    "1e400",
    "01",
    "+1",
    " 1",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "4294967296",
    "18446744073709551615",
    "(1",
    "[a",
    "(",
    "[",
    "-",
    "+",
    "#",
    "#1",
    "*",
    "s*",
    "h*->f",
    "[a-",
    "\\",
    "u8",
    "i64",
    "u64",
    "i0",
    "x",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "GET",
    "SET",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "COUNT",
    "MATCH",
    "TYPE",
    "LIMIT",
    "BYSCORE",
    "BYLEX",
    "REV",
    "WITHSCORES",
    "WITHVALUES",
    "WEIGHTS",
    "AGGREGATE",
    "SUM",
    "MIN",
    "MAX",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "RANK",
    "MAXLEN",
    "REPLACE",
    "DB",
    "STORE",
    "BY",
    "DESC",
    "ALPHA",
    "OVERFLOW",
    "WRAP",
    "FAIL",
    "INCRBY",
    "BIT",
    "BYTE",
    "AND",
    "NOT",
    "ENCODING",
    "USAGE",
    "ASYNC",
];

fn word(rng: &mut Rng) -> Vec<u8> {
    if rng.chance(50_000) {
        return (0..rng.below(6)).map(|_| rng.below(256) as u8).collect();
    }
    WORDS[rng.below(WORDS.len() as u64) as usize].into()
}

fn valid(rng: &mut Rng) -> Vec<Vec<u8>> {
    let line = VALID[rng.below(VALID.len() as u64) as usize];
    line.split(' ').map(|w| w.as_bytes().to_vec()).collect()
}

/// A valid command, with some of its words changed, lost, doubled or added.
fn spoiled(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut args = valid(rng);
    for _ in 0..=rng.below(3) {
        let at = rng.below(args.len() as u64) as usize;
        match rng.below(4) {
            0 if at > 0 => drop(args.remove(at)),
            1 => args.insert(at + 1, args[at].clone()),
            2 => args.insert(at + 1, word(rng)),
            _ if at > 0 => args[at] = word(rng),
            _ => {}
        }
    }
    args
}

/// Any command of the registry with words of any kind.
fn any_command(rng: &mut Rng, ordered: &[&CommandSpec]) -> Vec<Vec<u8>> {
    let command = ordered[rng.below(ordered.len() as u64) as usize];
    let least = command.arity.unsigned_abs() as usize - 1;
    let more = if command.arity < 0 || rng.chance(50_000) { rng.below(5) as usize } else { 0 };
    let args = (0..least + more).map(|_| word(rng));
    std::iter::once(command.name.as_bytes().to_vec()).chain(args).collect()
}

/// The bytes behind one whole answer; none if there is no whole answer.
fn behind(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(2).position(|w| w == b"\r\n")?;
    let (mark, line) = (answer[0], std::str::from_utf8(&answer[1..end]).ok()?);
    let mut rest = &answer[end + 2..];
    let parts: usize = match mark {
        b'$' | b'=' => {
            let len: usize = line.parse().ok()?;
            return rest.get(len..)?.strip_prefix(b"\r\n");
        }
        b'*' if line == "-1" => 0,
        b'*' | b'~' => line.parse().ok()?,
        b'%' | b'&' => 2 * line.parse::<usize>().ok()?,
        b'+' | b'-' | b':' | b',' | b'_' => 0,
        _ => return None,
    };
    for _ in 0..parts {
        rest = behind(rest)?;
    }
    Some(rest)
}

/// How many bytes a command may make a shard grow, and all of them, as is forecast before it runs.
struct ForecastBytes {
    shard: u64,
    all: u64,
}

struct FuzzedShards {
    kv: Kv,
    stores: Vec<Store>,
    position: u64,
}

impl FuzzedShards {
    fn new() -> Self {
        let kv = Kv::new(SHARDS, 1);
        let stores = (0..SHARDS).map(|_| kv.part()).collect();
        Self { kv, stores, position: 0 }
    }

    /// The forecast for a command of all shards.
    fn forecast(&mut self, args: &[Vec<u8>]) -> ForecastBytes {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let mut command = Vec::new();
        encode_epoch(self.stores[0].map().epoch(), &mut command);
        encode_args(&args, &mut command);
        let shard = self.kv.growth(&command).most;
        let (dst, now) = (GroupSet::first(SHARDS), Stamp { wall_ms: 1_000_000, host_ms: 1 });
        let place = |shard| ShardPosition { shard, position: self.position, now };
        let places: Vec<ShardPosition> = dst.iter().map(place).collect();
        let mut stores: Vec<&mut Store> = self.stores.iter_mut().collect();
        let map = stores[0].map().clone();
        let id = MsgId { sender: Pid(1), seq: self.position };
        let c = Context {
            map,
            places: &places,
            stores: &mut stores,
            dst,
            id,
            chance: None,
            work: WorkBudget::all(),
            move_keys: 0,
        };
        ForecastBytes { shard, all: budget::forecast(&c, &args) }
    }

    /// Bytes that each shard holds.
    fn used(&self) -> Vec<u64> {
        self.stores.iter().map(Store::used).collect()
    }

    fn run(&mut self, args: &[Vec<u8>], dst: GroupSet) -> Vec<u8> {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let mut command = Vec::new();
        encode_epoch(self.stores[0].map().epoch(), &mut command);
        encode_args(&args, &mut command);
        self.position += 1;
        let position = self.position;
        let now = Stamp { wall_ms: 1_000_000, host_ms: 1 };
        let place = |shard| ShardPosition { shard, position, now };
        let places: Vec<ShardPosition> = dst.iter().map(place).collect();
        let id = MsgId { sender: Pid(1), seq: position };
        let stores = self.stores.iter_mut().enumerate();
        let mut parts: Vec<&mut Store> =
            stores.filter(|(i, _)| dst.contains(Gid(*i as u8))).map(|(_, s)| s).collect();
        let mut answer = Vec::new();
        self.kv.access(&command, dst, &mut Default::default());
        self.kv.apply(
            &ExecutionPoint { id, dst, places: &places, exact: dst, read_only: false },
            &mut parts,
            &command,
            &mut answer,
        );
        answer
    }

    /// All that another node would be given of them: values, versions, deadlines, marks.
    fn state(&mut self) -> Vec<u8> {
        let (mut out, mut progress) = (Vec::new(), StreamProgress::default());
        for store in &mut self.stores {
            store.capture();
            let mut more = true;
            while more {
                let mut piece = Piece::new(1 << 20, &mut progress, &mut out);
                more = store.piece(&mut piece);
                piece.end(!more);
            }
        }
        out
    }
}

#[test]
fn nothing_panics_and_errors_change_nothing() {
    let families = registry::families().iter().flat_map(|(_, list)| list.iter());
    let ordered: Vec<&CommandSpec> = families
        .filter(|c| matches!(c.run, CommandRunner::Shards(_) | CommandRunner::Both(..)))
        .collect();
    let (mut errors, mut refused) = (0, std::collections::BTreeSet::new());
    let long = std::env::var_os("AMCAST_LONG").is_some_and(|v| v == "1");
    for seed in 0..if long { 500 } else { 6 } {
        let mut shards = FuzzedShards::new();
        let mut rng = Rng::new(seed);
        let mut before = shards.state();
        for _ in 0..5000 {
            let args = match rng.below(4) {
                0 => valid(&mut rng),
                1 => any_command(&mut rng, &ordered),
                _ => spoiled(&mut rng),
            };
            let some = GroupSet(1 + rng.below((1 << SHARDS) - 1));
            let dst = if rng.chance(100_000) { some } else { GroupSet::first(SHARDS) };
            let answer = shards.run(&args, dst);
            let shown = || args.iter().map(|a| a.escape_ascii().to_string()).collect::<Vec<_>>();
            assert_eq!(behind(&answer), Some(&b""[..]), "{:?}: one answer", shown());
            let after = shards.state();
            let reads = registry::lookup(&args[0]).is_some_and(|c| !c.writes());
            if answer[0] == b'-' || reads {
                assert!(after == before, "{:?} changed something", shown());
            }
            if answer[0] == b'-' {
                errors += 1;
                refused.insert(args[0].to_ascii_lowercase());
            }
            before = after;
        }
    }
    assert!(errors > 10_000 && refused.len() > 90, "{errors} errors of {}", refused.len());
}

#[test]
fn a_transaction_with_a_command_of_too_few_words_is_answered() {
    let mut shards = FuzzedShards::new();
    for text in ["EXEC 0 1 2 RANGE a", "EXEC 0 1 1 AMCAST.TIDY", "EXEC 0 1 2 AMCAST.MOVE 0"] {
        let args: Vec<Vec<u8>> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let answer = shards.run(&args, GroupSet::first(SHARDS));
        assert_eq!(behind(&answer), Some(&b""[..]), "{text}: {}", answer.escape_ascii());
    }
}

/// One of its arguments is as long as values are, now and then.
fn lengthen(args: &mut [Vec<u8>], rng: &mut Rng) {
    if args.len() > 1 && rng.chance(200_000) {
        let at = 1 + rng.below(args.len() as u64 - 1) as usize;
        let letter = b'a' + rng.below(3) as u8;
        args[at] = vec![letter; rng.below(2000) as usize];
    }
}

/// Some commands, wrapped as a transaction that a gateway sends.
fn transaction(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut script = vec![b"EXEC".to_vec(), b"0".to_vec()];
    let count = 1 + rng.below(5);
    script.push(count.to_string().into_bytes());
    for _ in 0..count {
        let mut inner = if rng.chance(500_000) { valid(rng) } else { spoiled(rng) };
        lengthen(&mut inner, rng);
        script.push(inner.len().to_string().into_bytes());
        script.append(&mut inner);
    }
    script
}

#[test]
fn no_command_makes_the_state_grow_by_more_than_was_forecast() {
    let all = registry::families().iter().flat_map(|(_, list)| list.iter());
    let ordered: Vec<&CommandSpec> = all
        .filter(|c| matches!(c.run, CommandRunner::Shards(_) | CommandRunner::Both(..)))
        .collect();
    let long = std::env::var_os("AMCAST_LONG").is_some_and(|v| v == "1");
    let (mut grew, mut of) = (0, std::collections::BTreeSet::new());
    for seed in 0..if long { 500 } else { 6 } {
        let (mut shards, mut rng) = (FuzzedShards::new(), Rng::new(1000 + seed));
        for _ in 0..5000 {
            let mut args = match rng.below(6) {
                0 | 1 => valid(&mut rng),
                2 => any_command(&mut rng, &ordered),
                3 => transaction(&mut rng),
                _ => spoiled(&mut rng),
            };
            if !args[0].eq_ignore_ascii_case(b"exec") {
                lengthen(&mut args, &mut rng);
            }
            // Commands that move whole parts of the keys are bounded in another way.
            if args.iter().any(|arg| arg.len() > 6 && arg[..6].eq_ignore_ascii_case(b"amcast")) {
                continue;
            }
            let (forecast, before) = (shards.forecast(&args), shards.used());
            shards.run(&args, GroupSet::first(SHARDS));
            let after = shards.used();
            let shown = || args.iter().map(|a| a.escape_ascii().to_string()).collect::<Vec<_>>();
            for (before, after) in before.iter().zip(&after) {
                let more = after.saturating_sub(*before);
                assert!(more <= forecast.shard, "{:?}: {more} of {}", shown(), forecast.shard);
            }
            let (before, after): (u64, u64) = (before.iter().sum(), after.iter().sum());
            let more = after.saturating_sub(before);
            assert!(more <= forecast.all, "{:?}: {more} of {}", shown(), forecast.all);
            if more > 0 {
                grew += 1;
                of.insert(args[0].to_ascii_lowercase());
            }
        }
    }
    assert!(grew > 2000 && of.len() > 35, "{grew} commands of {} names grew", of.len());
}
