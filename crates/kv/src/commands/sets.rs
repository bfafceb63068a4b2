//! Sets.

use super::super::Context;
use super::super::data::{Blob, Data, DataKind, SMALL, Set};
use super::super::number::{parse_int, random_count};
use super::super::registry::{CommandSpec, EACH, KeyArguments, ONE, TWO};
use super::super::reply::{RedisError, Reply};
use super::super::store::NEVER_MS;
use super::super::work;
use super::hashes::choose;
use super::lists::{counted, fits_answer};
use amcast_smr::hash::Keyed;
use indexmap::IndexSet;

const COUNTED: KeyArguments = KeyArguments::Counted { count: 1, before: 0 };

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered("sadd", -3, "write denyoom fast", ONE, sadd, "Adds members."),
    CommandSpec::ordered("srem", -3, "write fast", ONE, srem, "Removes members."),
    CommandSpec::ordered("smembers", 2, "readonly", ONE, smembers, "Returns all members."),
    CommandSpec::ordered(
        "sismember",
        3,
        "readonly fast",
        ONE,
        sismember,
        "Tells whether a member is there.",
    ),
    CommandSpec::ordered(
        "smismember",
        -3,
        "readonly fast",
        ONE,
        smismember,
        "Tells which members are there.",
    ),
    CommandSpec::ordered("scard", 2, "readonly fast", ONE, scard, "Counts members."),
    CommandSpec::ordered("spop", -2, "write fast", ONE, spop, "Takes random members out.")
        .taking(work::of_spop),
    CommandSpec::ordered(
        "srandmember",
        -2,
        "readonly",
        ONE,
        srandmember,
        "Returns random members.",
    )
    .taking(work::of_random),
    CommandSpec::ordered("smove", 4, "write fast", TWO, smove, "Moves a member between sets."),
    CommandSpec::ordered(
        "sinter",
        -2,
        "readonly",
        EACH,
        sinter,
        "Returns the members that all sets have.",
    )
    .taking(work::of_sinter),
    CommandSpec::ordered("sunion", -2, "readonly", EACH, sunion, "Returns what any set has.")
        .taking(work::of_sunion),
    CommandSpec::ordered(
        "sdiff",
        -2,
        "readonly",
        EACH,
        sdiff,
        "Returns what only the first set has.",
    )
    .taking(work::of_sdiff),
    CommandSpec::ordered(
        "sinterstore",
        -3,
        "write denyoom",
        EACH,
        sinterstore,
        "Stores the members that all sets have.",
    )
    .taking(work::of_sinterstore),
    CommandSpec::ordered(
        "sunionstore",
        -3,
        "write denyoom",
        EACH,
        sunionstore,
        "Stores what any set has.",
    )
    .taking(work::of_sunionstore),
    CommandSpec::ordered(
        "sdiffstore",
        -3,
        "write denyoom",
        EACH,
        sdiffstore,
        "Stores what only the first has.",
    )
    .taking(work::of_sdiffstore),
    CommandSpec::ordered(
        "sintercard",
        -3,
        "readonly",
        COUNTED,
        sintercard,
        "Counts the members that all sets have.",
    )
    .taking(work::of_sintercard),
];

/// Removes a member; small sets keep their order, large ones move their last member.
fn remove(set: &mut Set, member: &[u8]) -> bool {
    set.remove(member, set.len() <= SMALL)
}

fn sadd(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let store = c.store(args[1]);
    let set = store.get_or_new::<Set>(args[1])?;
    let mut new = 0;
    for member in &args[2..] {
        new += usize::from(!set.contains(*member) && set.insert((*member).into()));
    }
    store.settle(args[1], new > 0);
    reply.count(new);
    Ok(())
}

fn srem(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let store = c.store(args[1]);
    let set = store.get_mut::<Set>(args[1])?;
    let removed = set.map_or(0, |s| args[2..].iter().filter(|m| remove(s, m)).count());
    store.settle(args[1], removed > 0);
    reply.count(removed);
    Ok(())
}

fn smembers(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let set = c.get::<Set>(args[1])?;
    reply.set(set.map_or(0, Set::len));
    set.into_iter().flatten().for_each(|m| reply.bulk(m));
    Ok(())
}

fn sismember(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.flag(c.get::<Set>(args[1])?.is_some_and(|s| s.contains(args[2])));
    Ok(())
}

fn smismember(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let set = c.get::<Set>(args[1])?;
    reply.array(args.len() - 2);
    args[2..].iter().for_each(|m| reply.flag(set.is_some_and(|s| s.contains(*m))));
    Ok(())
}

fn scard(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.count(c.get::<Set>(args[1])?.map_or(0, Set::len));
    Ok(())
}

fn spop(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let key = args[1];
    let count = match args.len() {
        2 => 1,
        3 => parse_int(args[2])
            .filter(|n| *n >= 0)
            .ok_or(RedisError::new("ERR value is out of range, must be positive"))?,
        _ => return Err(RedisError::SYNTAX),
    };
    let len = c.get::<Set>(key)?.map_or(0, Set::len);
    let n = usize::try_from(count).unwrap_or(len).min(len);
    // Which ones are taken is not known yet: they may be the longest.
    if n > 1 {
        let longest = c.get::<Set>(key)?.map(|s| s.iter().map(|m| m.len()));
        let longest = longest.and_then(Iterator::max);
        fits_answer(std::iter::repeat_n(longest.unwrap_or(0), n), n)?;
    }
    let mut taken: Vec<Blob> = Vec::with_capacity(n);
    for left in (len - n + 1..=len).rev() {
        let i = c.pick(left);
        taken.extend(c.store(key).get_mut::<Set>(key)?.and_then(|s| s.swap_remove_index(i)));
    }
    c.store(key).settle(key, n > 0);
    if args.len() == 2 {
        reply.bulk_or_null(taken.first().map(|m| &**m));
    } else {
        reply.set(taken.len());
        taken.iter().for_each(|m| reply.bulk(m));
    }
    Ok(())
}

fn srandmember(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(random_count(count)?),
        _ => return Err(RedisError::SYNTAX),
    };
    let len = c.get::<Set>(args[1])?.map_or(0, Set::len);
    match count {
        None => {
            let i = c.pick(len);
            let member = c.get::<Set>(args[1])?.and_then(|s| s.get_index(i));
            reply.bulk_or_null(member.map(|m| &**m));
        }
        Some(count) => {
            let chosen = choose(c, count, len)?;
            let set = c.get::<Set>(args[1])?;
            reply.array(chosen.len());
            chosen
                .iter()
                .filter_map(|i| set.and_then(|s| s.get_index(*i)))
                .for_each(|m| reply.bulk(m));
        }
    }
    Ok(())
}

fn smove(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let from = args[1];
    let to = args[2];
    let member = args[3];
    let Some(source) = c.get::<Set>(from)? else {
        reply.int(0);
        return Ok(());
    };
    let there = source.contains(member);
    c.get::<Set>(to)?;
    if there && from != to {
        let store = c.store(from);
        store.get_mut::<Set>(from)?.map(|s| remove(s, member));
        store.settle(from, true);
        let store = c.store(to);
        let new = store.get_or_new::<Set>(to)?.insert(member.into());
        store.settle(to, new);
    }
    reply.flag(there);
    Ok(())
}

#[derive(Clone, Copy)]
enum SetMix {
    All,
    Any,
    First,
}

/// The sets mixed; every key is looked at first, so that a wrong kind is an error in any case.
fn mix<'a>(
    c: &'a Context<'_>,
    keys: &[&[u8]],
    how: SetMix,
    limit: usize,
) -> Result<IndexSet<&'a Blob, Keyed>, RedisError> {
    let sets = keys.iter().map(|k| c.get::<Set>(k)).collect::<Result<Vec<_>, _>>()?;
    let mut out = IndexSet::default();
    match how {
        SetMix::Any => sets.into_iter().flatten().for_each(|s| out.extend(s)),
        SetMix::First => {
            let others = &sets[1..];
            let lone = |m: &&Blob| !others.iter().flatten().any(|s| s.contains(*m));
            out.extend(sets[0].into_iter().flatten().filter(lone));
        }
        SetMix::All => {
            let sets: Option<Vec<&Set>> = sets.into_iter().collect();
            let Some(sets) = sets else { return Ok(out) };
            let smallest = *sets.iter().min_by_key(|s| s.len()).expect("a set at least");
            let shared = |m: &&Blob| sets.iter().all(|s| s.contains(*m));
            out.extend(smallest.iter().filter(shared).take(limit));
        }
    }
    Ok(out)
}

fn show(
    c: &Context<'_>,
    args: &[&[u8]],
    how: SetMix,
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let set = mix(c, &args[1..], how, usize::MAX)?;
    reply.set(set.len());
    set.iter().for_each(|m| reply.bulk(m));
    Ok(())
}

fn sinter(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    show(c, args, SetMix::All, reply)
}

fn sunion(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    show(c, args, SetMix::Any, reply)
}

fn sdiff(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    show(c, args, SetMix::First, reply)
}

fn keep(
    c: &mut Context<'_>,
    args: &[&[u8]],
    how: SetMix,
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let set: Set = mix(c, &args[2..], how, usize::MAX)?.into_iter().cloned().collect();
    reply.count(set.len());
    store_or_delete(c, args[1], set);
    Ok(())
}

/// Puts a collection that was computed, or deletes the key if it is empty.
pub(crate) fn store_or_delete<K: DataKind>(c: &mut Context<'_>, key: &[u8], value: K) {
    let data: Data = value.into_data();
    if data.is_empty() {
        c.delete(key);
    } else {
        c.put(key, data, NEVER_MS);
    }
}

fn sinterstore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    keep(c, args, SetMix::All, reply)
}

fn sunionstore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    keep(c, args, SetMix::Any, reply)
}

fn sdiffstore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    keep(c, args, SetMix::First, reply)
}

/// The `LIMIT n` that ends `SINTERCARD` and `ZINTERCARD`; no limit for 0.
pub(crate) fn card_limit(args: &[&[u8]]) -> Result<usize, RedisError> {
    match args {
        [] => Ok(usize::MAX),
        [word, n] if word.eq_ignore_ascii_case(b"limit") => match parse_int(n) {
            Some(0) => Ok(usize::MAX),
            Some(n) if n > 0 => Ok(n as usize),
            _ => Err(RedisError::new("ERR LIMIT can't be negative")),
        },
        _ => Err(RedisError::SYNTAX),
    }
}

fn sintercard(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let keys = args[1..].len();
    let n = parse_int(args[1]).filter(|n| *n > 0);
    let n = n.ok_or(RedisError::new("ERR numkeys should be greater than 0"))?;
    if n as usize > keys - 1 {
        return Err(RedisError::new("ERR Number of keys can't be greater than number of args"));
    }
    let (keys, rest) = counted(args, 1)?;
    reply.count(mix(c, keys, SetMix::All, card_limit(rest)?)?.len());
    Ok(())
}
