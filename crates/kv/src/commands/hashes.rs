//! Hashes.

use super::super::Context;
use super::super::data::{Hash, SMALL};
use super::super::long_double::LongDouble;
use super::super::number::{check_random_pairs, int, parse_int, push_int, random_count};
use super::super::registry::{CommandSpec, ONE};
use super::super::reply::{RedisError, Reply};
use super::super::work;
use amcast_smr::hash::Keyed;
use indexmap::IndexMap;

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered("hset", -4, "write denyoom fast", ONE, hset, "Sets fields of a hash."),
    CommandSpec::ordered("hmset", -4, "write denyoom fast", ONE, hmset, "Sets fields of a hash."),
    CommandSpec::ordered(
        "hsetnx",
        4,
        "write denyoom fast",
        ONE,
        hsetnx,
        "Sets a field that is not there.",
    ),
    CommandSpec::ordered("hget", 3, "readonly fast", ONE, hget, "Returns a field."),
    CommandSpec::ordered("hmget", -3, "readonly fast", ONE, hmget, "Returns fields."),
    CommandSpec::ordered("hgetall", 2, "readonly", ONE, hgetall, "Returns all fields and values."),
    CommandSpec::ordered("hdel", -3, "write fast", ONE, hdel, "Deletes fields."),
    CommandSpec::ordered("hlen", 2, "readonly fast", ONE, hlen, "Counts fields."),
    CommandSpec::ordered(
        "hexists",
        3,
        "readonly fast",
        ONE,
        hexists,
        "Tells whether a field is there.",
    ),
    CommandSpec::ordered("hkeys", 2, "readonly", ONE, hkeys, "Returns all fields."),
    CommandSpec::ordered("hvals", 2, "readonly", ONE, hvals, "Returns all values."),
    CommandSpec::ordered("hstrlen", 3, "readonly fast", ONE, hstrlen, "Returns a value's length."),
    CommandSpec::ordered(
        "hincrby",
        4,
        "write denyoom fast",
        ONE,
        hincrby,
        "Adds to a number in a hash.",
    ),
    CommandSpec::ordered(
        "hincrbyfloat",
        4,
        "write denyoom fast",
        ONE,
        hincrbyfloat,
        "Adds to a decimal number in a hash.",
    )
    .taking(work::of_hincrbyfloat),
    CommandSpec::ordered("hrandfield", -2, "readonly", ONE, hrandfield, "Returns random fields.")
        .taking(work::of_random),
];

/// Removes a field; small hashes keep their order, large ones move their last field.
fn remove(hash: &mut Hash, field: &[u8]) -> bool {
    hash.remove(field, hash.len() <= SMALL)
}

/// Sets fields; how many are new.
fn set_fields(c: &mut Context<'_>, args: &[&[u8]], name: &str) -> Result<usize, RedisError> {
    if !args.len().is_multiple_of(2) {
        return Err(RedisError::arity(name));
    }
    let store = c.store(args[1]);
    let hash = store.get_or_new::<Hash>(args[1])?;
    let mut new = 0;
    for pair in args[2..].chunks_exact(2) {
        new += usize::from(hash.set(pair[0], pair[1].into()));
    }
    store.touch(args[1]);
    Ok(new)
}

fn hset(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let new = set_fields(c, args, "hset")?;
    reply.count(new);
    Ok(())
}

fn hmset(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    set_fields(c, args, "hmset")?;
    reply.ok();
    Ok(())
}

fn hsetnx(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let store = c.store(args[1]);
    let there = store.get::<Hash>(args[1])?.is_some_and(|h| h.contains_key(args[2]));
    if !there {
        store.get_or_new::<Hash>(args[1])?.set(args[2], args[3].into());
        store.touch(args[1]);
    }
    reply.flag(!there);
    Ok(())
}

fn hget(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let value = c.get::<Hash>(args[1])?.and_then(|h| h.get(args[2]));
    reply.bulk_or_null(value.map(|v| &**v));
    Ok(())
}

fn hmget(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let hash = c.get::<Hash>(args[1])?;
    reply.array(args.len() - 2);
    for field in &args[2..] {
        reply.bulk_or_null(hash.and_then(|h| h.get(*field)).map(|v| &**v));
    }
    Ok(())
}

fn hgetall(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let hash = c.get::<Hash>(args[1])?;
    reply.map(hash.map_or(0, Hash::len));
    for (field, value) in hash.into_iter().flatten() {
        reply.bulk(field);
        reply.bulk(value);
    }
    Ok(())
}

fn hdel(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let store = c.store(args[1]);
    let hash = store.get_mut::<Hash>(args[1])?;
    let removed = hash.map_or(0, |h| args[2..].iter().filter(|f| remove(h, f)).count());
    store.settle(args[1], removed > 0);
    reply.count(removed);
    Ok(())
}

fn hlen(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.count(c.get::<Hash>(args[1])?.map_or(0, Hash::len));
    Ok(())
}

fn hexists(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.flag(c.get::<Hash>(args[1])?.is_some_and(|h| h.contains_key(args[2])));
    Ok(())
}

fn hkeys(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let hash = c.get::<Hash>(args[1])?;
    reply.array(hash.map_or(0, Hash::len));
    hash.into_iter().flatten().for_each(|(field, _)| reply.bulk(field));
    Ok(())
}

fn hvals(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let hash = c.get::<Hash>(args[1])?;
    reply.array(hash.map_or(0, Hash::len));
    hash.into_iter().flatten().for_each(|(_, value)| reply.bulk(value));
    Ok(())
}

fn hstrlen(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let value = c.get::<Hash>(args[1])?.and_then(|h| h.get(args[2]));
    reply.count(value.map_or(0, |v| v.len()));
    Ok(())
}

fn hincrby(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let n = int(args[3])?;
    let store = c.store(args[1]);
    let now = match store.get::<Hash>(args[1])?.and_then(|h| h.get(args[2])) {
        Some(v) => parse_int(v).ok_or(RedisError::new("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = now.checked_add(n);
    let sum = sum.ok_or(RedisError::new("ERR increment or decrement would overflow"))?;
    let mut text = Vec::new();
    push_int(&mut text, sum);
    store.get_or_new::<Hash>(args[1])?.set(args[2], text.into());
    store.touch(args[1]);
    reply.int(sum);
    Ok(())
}

fn hincrbyfloat(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let n = LongDouble::parse(args[3]).ok_or(RedisError::NOT_FLOAT)?;
    if !n.is_finite() {
        return Err(RedisError::new("ERR value is NaN or Infinity"));
    }
    let store = c.store(args[1]);
    let now = store.get::<Hash>(args[1])?.and_then(|h| h.get(args[2])).map_or(&b"0"[..], |v| v);
    let now = LongDouble::parse(now).ok_or(RedisError::new("ERR hash value is not a float"))?;
    let text = now.sum(n).ok_or(RedisError::NOT_FINITE)?.plain();
    reply.bulk(&text);
    store.get_or_new::<Hash>(args[1])?.set(args[2], text.into());
    store.touch(args[1]);
    Ok(())
}

/// The largest count of random members that is answered: each is copied into the answer.
pub(crate) const RANDOM_MAX: usize = 1 << 20;

/// Indices that a random choice of `count` out of `len` takes: distinct ones, or any if negative.
pub(crate) fn choose(
    c: &mut Context<'_>,
    count: i64,
    len: usize,
) -> Result<Vec<usize>, RedisError> {
    if count.unsigned_abs() as usize > RANDOM_MAX && (count < 0 || len > RANDOM_MAX) {
        return Err(RedisError::new("ERR value is out of range"));
    }
    if count < 0 {
        let n = if len == 0 { 0 } else { count.unsigned_abs() };
        return Ok((0..n).map(|_| c.pick(len)).collect());
    }
    let count = (count as usize).min(len);
    Ok(distinct(count, len, &mut |n| c.pick(n)))
}

/// Draws `count` different indices below `len`, by numbers below `n` from `pick`: those that a list of all indices
/// begins with if each place is swapped with one at or behind it.
fn distinct(count: usize, len: usize, pick: &mut dyn FnMut(usize) -> usize) -> Vec<usize> {
    if count > len / 2 {
        let mut all: Vec<usize> = (0..len).collect();
        for i in 0..count {
            all.swap(i, i + pick(len - i));
        }
        all.truncate(count);
        return all;
    }
    // The places that were swapped: most are as they were.
    let mut swapped: IndexMap<usize, usize, Keyed> = IndexMap::default();
    let mut chosen = Vec::with_capacity(count);
    for i in 0..count {
        let j = i + pick(len - i);
        let at_i = swapped.get(&i).copied().unwrap_or(i);
        chosen.push(swapped.insert(j, at_i).unwrap_or(j));
    }
    chosen
}

fn hrandfield(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    // Arguments are wrong before the key is of another type.
    let count = args.get(2).map(|count| random_count(count)).transpose()?;
    let with_values = match args.get(3..).unwrap_or_default() {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"withvalues") => true,
        _ => return Err(RedisError::SYNTAX),
    };
    if with_values {
        count.map_or(Ok(()), check_random_pairs)?;
    }
    let len = c.get::<Hash>(args[1])?.map_or(0, Hash::len);
    let Some(count) = count else {
        let i = c.pick(len);
        let found = c.get::<Hash>(args[1])?.and_then(|h| h.get_index(i));
        reply.bulk_or_null(found.map(|(f, _)| &**f));
        return Ok(());
    };
    let chosen = choose(c, count, len)?;
    if with_values {
        reply.pairs(chosen.len());
    } else {
        reply.array(chosen.len());
    }
    let hash = c.get::<Hash>(args[1])?;
    for (field, value) in chosen.iter().filter_map(|i| hash.and_then(|h| h.get_index(*i))) {
        reply.bulk(field);
        if with_values {
            reply.bulk(value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn indices_that_are_drawn_are_different_and_follow_from_the_numbers() {
        for len in 1..20 {
            // Up to half of them are drawn without a list of all.
            for count in 0..=len {
                let (mut drawn, mut expected) = (0, (0..len).collect::<Vec<_>>());
                let chosen = distinct(count, len, &mut |n| {
                    assert_eq!(n, len - drawn);
                    let number = 7 * len % n;
                    expected.swap(drawn, drawn + number);
                    drawn += 1;
                    number
                });
                assert_eq!((chosen.as_slice(), drawn), (&expected[..count], count));
                assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), count);
            }
        }
    }
}
