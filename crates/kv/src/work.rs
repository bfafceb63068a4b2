//! How long commands may take: what would take longer is refused, by all replicas alike. Every replica of a shard executes
//! a command, at the same place in the order, and again after a restart: a shard whose replicas all work on one command
//! serves nobody, and a cluster that is started again works on it anew.
//!
//! A few bytes can ask for much work (`BITOP` of one long string a hundred thousand times, `LCS` ten thousand times in
//! one transaction). So a command that takes more than a few microseconds has an [`Estimate`], in nanoseconds on a usual
//! core and rounded up, which follows from its arguments and from what its keys hold when it comes. A command, or a
//! transaction as a whole, may take [`WORK_NS_MAX`].
//!
//! No estimate counts what something else bounds: the bytes of an answer, the bytes by which the state grows, elements
//! that are removed (each was added once), and some hundred nanoseconds for each argument. But a command that may be
//! refused when it has looked at much removes and answers nothing, and has an estimate.

use super::Context;
use super::commands::hashes::RANDOM_MAX;
use super::commands::hyperloglog::{REGISTERS, SPARSE_BYTES_MAX, is_dense, run_bytes};
use super::commands::transactions::OrderedTransaction;
use super::commands::{bits, strings};
use super::data::{Data, Hash, Str};
use super::glob;
use super::long_double::digits_max;
use super::number::parse_int;
use super::registry::lookup;
use super::reply::RedisError;
use amcast_core::Outcome;
use std::cell::Cell;

/// Nanoseconds that one command, or one transaction, may take.
pub(crate) const WORK_NS_MAX: u64 = 1_000_000_000;

/// How long a command takes, in nanoseconds; its keys are in the destinations.
pub(crate) type Estimate = fn(&Context<'_>, &[&[u8]]) -> u64;

/// Nanoseconds of finding a member of a set, of adding one, and of adding one to a sorted set.
const FIND_NS: u64 = 60;
const ADD_NS: u64 = 120;
const ADD_SORTED_NS: u64 = 400;

/// Nanoseconds for each byte of a member that is looked for in a set: it is hashed, and compared.
const FIND_BYTE_NS: u64 = 1;

/// Nanoseconds of adding a member to a result, and for each of its bytes.
#[derive(Clone, Copy)]
struct AddCost {
    member_ns: u64,
    byte_ns: u64,
}

/// A result that is answered holds no copy of a member, one that is stored does; a sorted set hashes
/// a member more than once, and compares it with others.
const ANSWERED: AddCost = AddCost { member_ns: ADD_NS, byte_ns: FIND_BYTE_NS };
const STORED: AddCost = AddCost { member_ns: 2 * ADD_NS, byte_ns: 2 * FIND_BYTE_NS };
const SORTED: AddCost = AddCost { member_ns: ADD_SORTED_NS, byte_ns: 3 * FIND_BYTE_NS };

/// Bytes that each member of a set counts beside its own, at least: the time for it is in that of the member.
const MEMBER_BYTES: u64 = 64;

/// Nanoseconds of choosing one of many members, and of answering it.
const CHOOSE_NS: u64 = 400;

/// Nanoseconds of comparing one element of a list, and of visiting one key of a shard.
const ELEMENT_NS: u64 = 10;
pub(crate) const KEY_NS: u64 = 60;

/// Nanoseconds of finding a key by its name.
const FIND_KEY_NS: u64 = 150;

/// Nanoseconds for each byte of a counter of different elements that is estimated or merged.
const COUNTER_BYTE_NS: u64 = 5;

/// Bytes of a counter in the short form, with its head, at the most.
const SHORT_COUNTER_BYTES: u64 = SPARSE_BYTES_MAX as u64 + 16;

/// Nanoseconds for each digit of a number with thousands of them, of which it is read or printed.
const DIGIT_NS: u64 = 300;

/// The remaining work of a command, or of a transaction.
pub(crate) struct WorkBudget(Cell<u64>);

impl WorkBudget {
    pub(crate) const fn all() -> Self {
        Self(Cell::new(WORK_NS_MAX))
    }

    /// Takes `ns` of what is left.
    ///
    /// # Errors
    /// When less is left.
    pub(crate) fn spend(&self, ns: u64) -> Result<(), RedisError> {
        let left = self.0.get().checked_sub(ns).ok_or_else(too_long)?;
        self.0.set(left);
        Ok(())
    }
}

fn too_long() -> RedisError {
    RedisError::of(
        Outcome::NotExecuted,
        format_args!(
            "ERR this may take too long: one command or transaction may take about {} ms while its shards serve \
             nobody else",
            WORK_NS_MAX / 1_000_000
        ),
    )
}

/// Refuses a transaction whose commands together would take too long, before any of them is executed.
pub(super) fn admit(c: &Context<'_>, script: &OrderedTransaction<'_>) -> Result<(), RedisError> {
    let watched = script.watched.iter().map(|(key, _)| FIND_KEY_NS + key.len() as u64).sum();
    let add = |sum: u64, args: &Vec<&[u8]>| sum.saturating_add(estimate(c, args));
    let all = script.commands.iter().fold(watched, add);
    if all <= WORK_NS_MAX { Ok(()) } else { Err(too_long()) }
}

fn estimate(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let Some(command) = lookup(args[0]) else { return 0 };
    match command.work {
        Some(work) if command.check_arity(args.len()).is_ok() => work(c, args),
        _ => 0,
    }
}

/// Takes what a command takes from what is left.
///
/// # Errors
/// When less is left.
pub(super) fn begin(c: &Context<'_>, work: Estimate, args: &[&[u8]]) -> Result<(), RedisError> {
    c.work.spend(work(c, args))
}

/// The size of a key's value: its elements (1 for a string), and its bytes.
#[derive(Clone, Copy, Default)]
struct Size {
    elements: u64,
    bytes: u64,
}

fn size(c: &Context<'_>, key: &[u8]) -> Size {
    let Some(entry) = c.find(key) else { return Size::default() };
    let elements = match &entry.data {
        Data::Str(_) => 1,
        Data::List(list) => list.len(),
        Data::Hash(hash) => hash.len(),
        Data::Set(set) => set.len(),
        Data::Sorted(sorted) => sorted.len(),
    };
    Size { elements: elements as u64, bytes: entry.data.bytes() as u64 }
}

fn number(arg: Option<&&[u8]>) -> u64 {
    arg.and_then(|n| parse_int(n)).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

/// The keys behind a count at `args[at]`.
fn counted<'a, 'b>(args: &'b [&'a [u8]], at: usize) -> &'b [&'a [u8]] {
    let n = usize::try_from(number(args.get(at))).unwrap_or(usize::MAX);
    args.get(at + 1..).and_then(|keys| keys.get(..n)).unwrap_or_default()
}

/// A version is noted for each key that there is not, also of one that is named again: `WATCH`.
pub(crate) fn of_watch(_: &Context<'_>, args: &[&[u8]]) -> u64 {
    let each = |key: &&[u8]| FIND_KEY_NS + ADD_NS + 2 * FIND_BYTE_NS * key.len() as u64;
    args[1..].iter().map(each).sum()
}

/// All bytes of a key's value are read: `BITCOUNT`, `BITPOS`.
pub(crate) fn of_string(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    size(c, args[1]).bytes.saturating_mul(3)
}

/// A key's value is copied.
pub(crate) fn of_copy(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let Size { elements, bytes } = size(c, args[1]);
    elements.saturating_mul(ADD_NS).saturating_add(bytes)
}

/// A string may become as long as a `SETRANGE` makes it.
pub(crate) fn of_setrange(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    lengthened(c, args, strings::setrange_bytes(args))
}

/// The same of a `SETBIT`.
pub(crate) fn of_setbit(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    lengthened(c, args, bits::setbit_bytes(args))
}

/// The same of a `BITFIELD`: as the last field that is written.
pub(crate) fn of_bitfield(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    lengthened(c, args, bits::bitfield_bytes(args))
}

/// The string of `args[1]` becomes so long, unless nothing is written.
fn lengthened(c: &Context<'_>, args: &[&[u8]], to: Option<usize>) -> u64 {
    to.map_or(0, |to| (to as u64).saturating_sub(size(c, args[1]).bytes))
}

/// All strings are combined: `BITOP`.
pub(crate) fn of_bitop(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    args[3..].iter().fold(0, |ns: u64, key| ns.saturating_add(FIND_KEY_NS + size(c, key).bytes))
}

/// The elements of a list are compared with one: `LINSERT`, `LREM`.
pub(crate) fn of_list(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    compared(c, args, u64::MAX)
}

/// `LPOS`: the same, or as many of them as its option says.
pub(crate) fn of_lpos(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let maxlen = args.iter().rposition(|word| word.eq_ignore_ascii_case(b"maxlen"));
    let maxlen = maxlen.filter(|at| *at > 2).map_or(0, |at| number(args.get(at + 1)));
    compared(c, args, if maxlen == 0 { u64::MAX } else { maxlen })
}

/// So many elements of a list at the most are compared with an argument.
fn compared(c: &Context<'_>, args: &[&[u8]], most: u64) -> u64 {
    let Size { elements, bytes } = size(c, args[1]);
    let looked = elements.min(most);
    let longest = args.iter().map(|arg| arg.len()).max().unwrap_or(0) as u64;
    let compared = bytes.min(looked.saturating_mul(longest));
    looked.saturating_mul(ELEMENT_NS).saturating_add(compared / 4)
}

/// Elements are taken out, unless their answer might be too large: `LPOP`, `RPOP`, `ZPOPMIN` and `ZPOPMAX` with a
/// count.
pub(crate) fn of_pop(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    taken(c, &args[1..2], number(args.get(2)))
}

/// `LMPOP` and `ZMPOP`: which of the keys has elements is seen when it is looked at.
pub(crate) fn of_mpop(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let keys = counted(args, 1);
    // Behind the keys are the end to take from, and the word `COUNT`.
    taken(c, keys, number(args.get(keys.len() + 4)))
}

fn taken(c: &Context<'_>, keys: &[&[u8]], count: u64) -> u64 {
    // One or none is nothing to count, and most commands ask for so few.
    if count <= 1 {
        return 0;
    }
    let most = keys.iter().map(|key| size(c, key).elements).max().unwrap_or(0);
    count.min(most).saturating_mul(ELEMENT_NS)
}

/// Members are chosen: `SRANDMEMBER`, `HRANDFIELD` and `ZRANDMEMBER` with a count. A negative one chooses some of them
/// more than once.
pub(crate) fn of_random(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let Some(count) = args.get(2).and_then(|count| parse_int(count)) else { return 0 };
    let most = match size(c, args[1]).elements {
        0 => 0,
        _ if count < 0 => RANDOM_MAX as u64,
        elements => elements.min(RANDOM_MAX as u64),
    };
    count.unsigned_abs().min(most).saturating_mul(CHOOSE_NS)
}

/// Members of a set are drawn: how long the longest is must be known first.
pub(crate) fn of_spop(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    if args.len() > 2 { size(c, args[1]).elements.saturating_mul(ELEMENT_NS) } else { 0 }
}

impl Size {
    /// The bytes of its members, without what the time for each member is for.
    fn long_bytes(self) -> u64 {
        self.bytes.saturating_sub(self.elements.saturating_mul(MEMBER_BYTES))
    }

    /// The time to add all members to a result.
    fn added(self, add: AddCost) -> u64 {
        let bytes = self.long_bytes().saturating_mul(add.byte_ns);
        self.elements.saturating_mul(add.member_ns).saturating_add(bytes)
    }

    /// The time to look for all members in so many sets.
    fn found(self, sets: u64) -> u64 {
        let bytes = self.long_bytes().saturating_mul(FIND_BYTE_NS);
        self.elements.saturating_mul(FIND_NS).saturating_add(bytes).saturating_mul(sets)
    }
}

/// All members of some sets are added to one.
fn union(c: &Context<'_>, keys: &[&[u8]], add: AddCost) -> u64 {
    keys.iter().fold(0, |ns: u64, key| {
        ns.saturating_add(FIND_KEY_NS).saturating_add(size(c, key).added(add))
    })
}

/// These members are looked for in some sets, and added to one if they are found.
fn search(members: Size, sets: usize, add: AddCost) -> u64 {
    let sets = sets as u64;
    let keys = sets.saturating_mul(FIND_KEY_NS);
    keys.saturating_add(members.found(sets)).saturating_add(members.added(add))
}

fn intersection(c: &Context<'_>, keys: &[&[u8]], add: AddCost) -> u64 {
    // The first one of the smallest, as the commands choose it: others may have longer members.
    let smallest = keys.iter().map(|key| size(c, key)).min_by_key(|size| size.elements);
    search(smallest.unwrap_or_default(), keys.len(), add)
}

fn difference(c: &Context<'_>, keys: &[&[u8]], add: AddCost) -> u64 {
    let first = keys.first().map_or(Size::default(), |key| size(c, key));
    search(first, keys.len(), add)
}

/// `SUNION`, whose keys begin at `args[1]`.
pub(crate) fn of_sunion(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    union(c, &args[1..], ANSWERED)
}

/// `SUNIONSTORE`, whose keys begin at `args[2]`.
pub(crate) fn of_sunionstore(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    union(c, &args[2..], STORED)
}

/// `SINTER`.
pub(crate) fn of_sinter(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    intersection(c, &args[1..], ANSWERED)
}

/// `SINTERSTORE`.
pub(crate) fn of_sinterstore(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    intersection(c, &args[2..], STORED)
}

/// `SINTERCARD`.
pub(crate) fn of_sintercard(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    intersection(c, counted(args, 1), ANSWERED)
}

/// `SDIFF`.
pub(crate) fn of_sdiff(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    difference(c, &args[1..], ANSWERED)
}

/// `SDIFFSTORE`.
pub(crate) fn of_sdiffstore(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    difference(c, &args[2..], STORED)
}

/// `ZUNION`.
pub(crate) fn of_zunion(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    union(c, counted(args, 1), SORTED)
}

/// `ZUNIONSTORE`.
pub(crate) fn of_zunionstore(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    union(c, counted(args, 2), SORTED)
}

/// `ZINTER` and `ZINTERCARD`.
pub(crate) fn of_zinter(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    intersection(c, counted(args, 1), SORTED)
}

/// `ZINTERSTORE`.
pub(crate) fn of_zinterstore(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    intersection(c, counted(args, 2), SORTED)
}

/// `ZDIFF`.
pub(crate) fn of_zdiff(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    difference(c, counted(args, 1), SORTED)
}

/// `ZDIFFSTORE`.
pub(crate) fn of_zdiffstore(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    difference(c, counted(args, 2), SORTED)
}

/// `ZRANGESTORE`: as if all members were in the range.
pub(crate) fn of_zrangestore(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    size(c, args[2]).added(SORTED)
}

/// `PFCOUNT`, `PFMERGE`: every register of every counter is read.
pub(crate) fn of_counters(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    args[1..].iter().fold(0, |ns: u64, key| {
        ns.saturating_add(FIND_KEY_NS + size(c, key).bytes.saturating_mul(COUNTER_BYTE_NS))
    })
}

/// Nanoseconds of raising a register of a counter in the short form that has so many bytes then: its runs are read from
/// the first on.
fn raise_ns(bytes: u64) -> u64 {
    2 * bytes.min(SHORT_COUNTER_BYTES)
}

/// `PFADD`: an element raises a register.
pub(crate) fn of_pfadd(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let (bytes, elements) = (size(c, args[1]).bytes, args.len() as u64 - 2);
    if bytes > SHORT_COUNTER_BYTES {
        // A counter in the short form is as long only where a client wrote it as a string. Then all of it is read first.
        let read = runs(c, args[1]);
        return read.saturating_mul(elements.saturating_mul(2).saturating_add(COUNTER_BYTE_NS));
    }
    // One makes three bytes more, at the most.
    elements.saturating_mul(raise_ns(bytes + 16 + 3 * elements))
}

/// `PFMERGE`: every register is read, and raised where the result is in the short form.
pub(crate) fn of_pfmerge(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let sizes: Vec<u64> = args[1..].iter().map(|key| size(c, key).bytes).collect();
    let bytes = sizes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let is_short = sizes.iter().all(|bytes| *bytes <= SHORT_COUNTER_BYTES);
    // A byte says of four registers at most that they are not zero, and a longer result becomes dense.
    let (raised, raise_ns) = if is_short {
        (4 * bytes.min(SHORT_COUNTER_BYTES), raise_ns(bytes))
    } else if args[1..].iter().any(|key| string(c, key).is_some_and(is_dense)) {
        (0, 0)
    } else {
        // Clients wrote some of them as strings. One that is longer than counters become keeps its length.
        let all = args[1..].iter().fold(0, |sum: u64, key| sum.saturating_add(runs(c, key)));
        let raised = all.saturating_mul(4).min(REGISTERS as u64);
        (raised, 2 * runs(c, args[1]).max(SHORT_COUNTER_BYTES))
    };
    of_counters(c, args).saturating_add(raised.saturating_mul(raise_ns))
}

/// The string of a key, if it has one.
fn string<'a>(c: &'a Context<'_>, key: &[u8]) -> Option<&'a [u8]> {
    c.get::<Str>(key).ok().flatten().map(|string| &**string)
}

/// Bytes of a key's string that are read as runs of registers.
fn runs(c: &Context<'_>, key: &[u8]) -> u64 {
    string(c, key).map_or(0, run_bytes) as u64
}

/// `PFDEBUG`: every register is read.
pub(crate) fn of_pfdebug(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    of_counters(c, &args[1..])
}

/// `INCRBYFLOAT`: all digits of two numbers are read, and those of a third are printed.
pub(crate) fn of_incrbyfloat(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let now = c.get::<Str>(args[1]).ok().flatten();
    of_sum(now.map_or(&[][..], |value| value), args[2])
}

/// `HINCRBYFLOAT`: the same.
pub(crate) fn of_hincrbyfloat(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let hash = c.get::<Hash>(args[1]).ok().flatten();
    let now = hash.and_then(|hash| hash.get(args[2]));
    of_sum(now.map_or(&[][..], |value| value), args[3])
}

fn of_sum(a: &[u8], b: &[u8]) -> u64 {
    (digits_max(a) + digits_max(b)).saturating_mul(DIGIT_NS)
}

/// So many elements of so many bytes are sorted, as numbers or as bytes.
pub(crate) fn of_sorting(elements: u64, bytes: u64) -> u64 {
    let rounds = u64::from(elements.max(2).ilog2());
    let compares = elements.saturating_mul(ADD_NS.saturating_add(rounds * 2 * ELEMENT_NS));
    compares.saturating_add(bytes.saturating_mul(3 + rounds / 4))
}

/// The time to look up `values` times the value of another key for an element of a list, by names
/// of so many bytes.
pub(crate) fn of_values(values: u64, name_bytes: u64) -> u64 {
    values.saturating_mul(FIND_KEY_NS.saturating_add(name_bytes))
}

/// A glob pattern that texts are compared with, and how long that takes.
pub(crate) struct PricedPattern<'a> {
    pattern: &'a [u8],
    /// Nanoseconds for each byte of a text.
    byte_ns: u64,
}

impl<'a> PricedPattern<'a> {
    /// Reads the pattern once: the estimate for a text follows from its length then.
    pub(crate) fn new(pattern: &'a [u8]) -> Self {
        Self { pattern, byte_ns: glob::steps(pattern) }
    }

    /// Whether a text, of a key or a member that is visited, matches.
    ///
    /// # Errors
    /// When all that were looked at take too long.
    pub(crate) fn matches(&self, c: &Context<'_>, text: &[u8]) -> Result<bool, RedisError> {
        let compared = (text.len() as u64 + 1).saturating_mul(self.byte_ns);
        c.work.spend(compared.saturating_add(KEY_NS + self.pattern.len() as u64))?;
        Ok(glob::matches(self.pattern, text))
    }
}

/// The elements and bytes of a key.
pub(crate) fn size_of(c: &Context<'_>, key: &[u8]) -> (u64, u64) {
    let Size { elements, bytes } = size(c, key);
    (elements, bytes)
}

#[cfg(test)]
mod tests {
    use super::super::answers::SingleShard;

    const REFUSED: &str = "-ERR this may take too long";

    /// A shard with large values of every kind.
    fn large() -> SingleShard {
        let mut one = SingleShard::new();
        for key in ["s", "t"] {
            assert_eq!(one.run(&format!("SETRANGE {key} 60000000 x")), ":60000001\r\n");
        }
        let members = |from: u32| (from..from + 10_000).map(|n| n.to_string()).collect::<Vec<_>>();
        for from in (0..60_000).step_by(10_000) {
            one.run(&format!("SADD set {}", members(from).join(" ")));
            one.run(&format!("RPUSH list {}", members(from).join(" ")));
            let scored: Vec<String> = members(from).iter().map(|m| format!("1 {m}")).collect();
            one.run(&format!("ZADD sorted {}", scored.join(" ")));
        }
        for key in ["a", "b"] {
            one.run(&format!("SET {key} {}", "ab".repeat(1_000)));
        }
        for i in 0..5 {
            let long = format!("{}{i}", "a".repeat(900_000));
            one.run(&format!("SET {long} 1"));
            one.run(&format!("SADD members {long}"));
            one.run(&format!("ZADD scores 1 {long}"));
        }
        one.run("HSET hash f v");
        let mut counter = [&b"HYLL\x01"[..], &[0; 11]].concat();
        assert_eq!(one.bytes(&[b"SET", b"endless", &counter]), b"+OK\r\n");
        assert_eq!(one.run("SETRANGE endless 60000000 a"), ":60000001\r\n");
        // A run for each register.
        counter.extend([0x80; 16_384]);
        assert_eq!(one.bytes(&[b"SET", b"runs", &counter]), b"+OK\r\n");
        one
    }

    fn script(times: usize, command: &str) -> String {
        let words = command.split(' ').count();
        format!("EXEC 0 {times}{}", format!(" {words} {command}").repeat(times))
    }

    #[test]
    fn keys_that_are_watched_take_time_also_where_they_are_named_again() {
        let _limit = amcast_test_policy::time_limit();
        let mut one = SingleShard::new();
        assert!(one.run(&format!("WATCH{}", " a".repeat(10_000))).starts_with("*10000\r\n"));
        let refused = one.run(&format!("WATCH{}", " a".repeat(4_000_000)));
        // Its memory is bounded as well.
        assert!(refused.starts_with("-ERR this may take"), "{refused:.100}");
    }

    /// Executed, some of these would take hours.
    #[test]
    fn what_would_take_long_is_refused_before_it_is_begun() {
        let _limit = amcast_test_policy::time_limit();
        let mut one = large();
        let keys =
            |head: &str, key: &str, n: usize| format!("{head}{}", format!(" {key}").repeat(n));
        let long = [
            keys("BITOP AND d", "s", 100_000),
            keys("SINTERCARD 120000", "set", 120_000),
            keys("SINTER", "set", 1_000),
            keys("SDIFF set", "none", 100_000),
            keys("SUNION", "set", 1_000),
            keys("ZINTERSTORE d 1000", "sorted", 1_000),
            keys("ZUNION 1000", "sorted", 1_000),
            keys("ZDIFF 100000 sorted", "none", 99_999),
            format!("KEYS *{}b", "a".repeat(1_000)),
            format!("SCAN 0 COUNT 1000 MATCH *{}b", "a".repeat(1_000)),
            format!("SORT list BY nosort{}", " GET w_*->f".repeat(10_000)),
            script(12_000, "LCS a b LEN"),
            script(10_000, "SORT list LIMIT 0 1"),
            script(10_000, "BITCOUNT s"),
            script(10_000, "BITPOS s 1"),
            script(10_000, "LREM list 1 none"),
            script(10_000, "LINSERT list BEFORE none 1"),
            script(10_000, "LPOS list none"),
            script(10_000, "COPY s d REPLACE"),
            script(10_000, "SPOP set 2"),
            script(10_000, "INCRBYFLOAT s 1"),
            script(10_000, "ZRANGESTORE d sorted 0 -1"),
            script(10_000, "KEYS *b"),
            // Stars within a class, and behind a backslash, are no stars.
            format!("KEYS *[{}]z", "*".repeat(300)),
            format!("KEYS *{}z", "\\*".repeat(150)),
            // Few members, and long ones.
            keys("SINTERCARD 300", "members", 300),
            keys("ZINTERCARD 300", "scores", 300),
            keys("SDIFF members", "members", 300),
            script(200, "SUNIONSTORE d members"),
            script(200, "ZUNIONSTORE d 1 scores"),
            script(200, "ZRANGESTORE d scores 0 -1"),
            // The word is the element that is looked for.
            script(2_000, "LINSERT list BEFORE maxlen 1"),
            script(2_000, "LPOP list 60000"),
            script(2_000, "RPOP list 60000"),
            script(2_000, "LMPOP 2 none list LEFT COUNT 60000"),
            script(2_000, "ZPOPMIN sorted 60000"),
            script(2_000, "ZPOPMAX sorted 60000"),
            script(2_000, "ZMPOP 2 none sorted MIN COUNT 60000"),
            script(100, "SRANDMEMBER set 60000"),
            script(100, "ZRANDMEMBER sorted -60000"),
            script(6, "HRANDFIELD hash -1000000"),
        ];
        let shown = |text: &str| text.chars().take(60).collect::<String>();
        let mut executed = Vec::new();
        for line in &long {
            let answer = one.run(line);
            if !answer.contains(&REFUSED[1..]) {
                executed.push(format!("{}: {}", shown(line), shown(&answer)));
            }
        }
        assert!(executed.is_empty(), "{executed:#?}");
        assert_eq!(one.run("EXISTS d"), ":0\r\n");
        assert_eq!(
            (one.run("SCARD set"), one.run("LLEN list")),
            (":60000\r\n".into(), ":60000\r\n".into())
        );
        assert_eq!(one.run("ZCARD sorted"), ":60000\r\n");
    }

    /// Strings that say of themselves that they are counters in the short form.
    #[test]
    fn counters_that_clients_wrote_as_strings_take_the_time_of_their_runs() {
        let _limit = amcast_test_policy::time_limit();
        let mut one = large();
        for line in [
            script(18_000, "PFADD runs a"),
            script(18_000, "PFADD endless a"),
            script(20_000, "PFMERGE runs"),
            script(20_000, "PFMERGE merged runs"),
            format!("PFADD runs{}", " e".repeat(100_000)),
        ] {
            let answer = one.run(&line);
            assert!(answer.contains(&REFUSED[1..]), "{line:.60}: {answer:.60}");
        }
        assert_eq!(one.run("EXISTS merged"), ":0\r\n");
        for (line, answer) in [
            ("PFADD runs a b c", ":1\r\n"),
            ("PFMERGE merged runs", "+OK\r\n"),
            ("PFADD endless a", "-INVALIDOBJ Corrupted HLL object detected\r\n"),
        ] {
            assert_eq!(one.run(line), answer, "{line}");
        }
    }

    #[test]
    fn what_does_not_take_long_is_executed() {
        let _limit = amcast_test_policy::time_limit();
        let mut one = large();
        for (line, answer) in [
            ("BITCOUNT s", ":4\r\n"),
            ("BITOP AND d s t", ":60000001\r\n"),
            ("SINTERCARD 2 set set", ":60000\r\n"),
            ("SUNIONSTORE d set set", ":60000\r\n"),
            ("ZINTERSTORE d 2 set sorted", ":60000\r\n"),
            ("ZDIFFSTORE d 2 sorted none", ":60000\r\n"),
            ("SORT list LIMIT 0 1", "*1\r\n$1\r\n0\r\n"),
            ("LPOS list 59999", ":59999\r\n"),
            ("LCS a b LEN", ":2000\r\n"),
            ("KEYS *tes*", "*0\r\n"),
            ("KEYS se*", "*1\r\n$3\r\nset\r\n"),
            ("KEYS *[*]", "*0\r\n"),
            ("SINTERCARD 4 members members members members", ":5\r\n"),
            ("SUNIONSTORE d members", ":5\r\n"),
            ("ZINTERSTORE d 2 members scores", ":5\r\n"),
            ("LINSERT list BEFORE maxlen 1", ":-1\r\n"),
        ] {
            assert_eq!(one.run(line), answer, "{line}");
        }
        for (line, answer) in [
            ("SRANDMEMBER set 60000", "*60000\r\n"),
            ("SRANDMEMBER set -1000000", "*1000000\r\n"),
            ("HRANDFIELD hash -1000000 WITHVALUES", "&1000000\r\n"),
            (&script(10_000, "LPOS list 7 MAXLEN 10"), "*10000\r\n:7\r\n"),
            ("SSCAN set 0 COUNT 20 MATCH *999*", "*2\r\n"),
            ("LPOP list 59999", "*59999\r\n"),
            ("ZPOPMAX sorted 60000", "&60000\r\n"),
        ] {
            assert!(one.run(line).starts_with(answer), "{line}");
        }
    }

    /// Values that a transaction created before count, too.
    #[test]
    fn a_command_whose_keys_grew_in_its_transaction_is_refused() {
        let mut one = SingleShard::new();
        let bitop = format!("BITOP AND d{}", " s".repeat(400));
        let grown =
            format!("EXEC 0 2 4 SETRANGE s 60000000 x {} {bitop}", bitop.split(' ').count());
        let answer = one.run(&grown);
        assert!(answer.starts_with("*2\r\n:60000001\r\n-ERR this may take too long"), "{answer}");
        assert_eq!(one.run("EXISTS d"), ":0\r\n");
    }

    #[test]
    fn reads_behind_an_answer_that_is_too_large_are_not_executed() {
        let _limit = amcast_test_policy::time_limit();
        let mut one = large();
        let answer = one.run(&script(40_000, "SMEMBERS set"));
        assert!(answer.starts_with("-ERR the answer is larger than"), "{answer}");
    }
}
