//! Walking keys and members in steps, and keys in their order.
//!
//! `SCAN` walks one shard after the other, each in the order of the keys' hashes. Its cursor is
//! `hash / 2^10 * 64 + shard` of the next key, so a step touches one shard only and may be answered
//! by any node; but the first step, from cursor 0, goes over all shards, so that a small store is
//! walked in one step. A key that is there from beginning to end is returned at least once.
//!
//! Once keys have moved between shards, a walk through one after the other could miss what moves: it
//! goes through all of them at once then, in the order of hashes, which does not change when a key moves.
//! Such cursors have the bit [`OF_ALL`]. A walk that began before begins anew.

use super::super::Context;
use super::super::Partitions;
use super::super::data::{Data, Hash, SMALL, Set, Sorted};
use super::super::number::{int, parse_int};
use super::super::registry::{CommandSpec, KeyArguments, ONE};
use super::super::reply::{RedisError, Reply};
use super::super::store::{KeyEntry, Store};
use super::super::work::{self, PricedPattern};
use amcast_core::{Gid, GroupSet};
use std::borrow::Cow;

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered(
        "scan",
        -2,
        "readonly",
        KeyArguments::Shards(cursor_shards),
        scan,
        "Walks all keys in steps.",
    ),
    CommandSpec::ordered("sscan", -3, "readonly", ONE, sscan, "Walks a set in steps."),
    CommandSpec::ordered("hscan", -3, "readonly", ONE, hscan, "Walks a hash in steps."),
    CommandSpec::ordered("zscan", -3, "readonly", ONE, zscan, "Walks a sorted set in steps."),
    CommandSpec::ordered(
        "range",
        -3,
        "readonly",
        KeyArguments::Shards(range_shards),
        range,
        "Returns keys from START to before END (an empty END is none) in their order, of all \
         shards that hold such keys at one moment: RANGE start end [LIMIT n] [WITHVALUES].",
    ),
];

/// Bits of a hash that a cursor leaves out: it must stay below 2^60 for clients that use signed
/// numbers, and has room for the shard.
const HASH_BITS_CUT: u32 = 10;
const SHARDS: u64 = 64;

/// In a cursor: the walk goes through all shards at once.
const OF_ALL: u64 = 1 << 60;

/// Keys that `RANGE` returns if it is not told how many.
const RANGE_LIMIT: usize = 10_000;

fn cursor(arg: &[u8]) -> Result<u64, RedisError> {
    let n = core::str::from_utf8(arg).ok().and_then(|t| t.parse::<u64>().ok());
    n.ok_or(RedisError::new("ERR invalid cursor"))
}

/// The shards that a step from a cursor touches; some shard for one that was never given out.
fn cursor_shards(args: &[&[u8]], map: &Partitions) -> GroupSet {
    match args.get(1).and_then(|a| cursor(a).ok()).unwrap_or(0) {
        _ if map.epoch() > 0 => map.all(),
        at if at == 0 || at & OF_ALL != 0 => map.all(),
        at => GroupSet::one(Gid((at % SHARDS).min(map.shards() as u64 - 1) as u8)),
    }
}

/// The shards that hold keys of a range.
fn range_shards(args: &[&[u8]], map: &Partitions) -> GroupSet {
    map.of_range(args[1], args[2])
}

/// The options of all scans.
struct ScanOptions<'a> {
    count: usize,
    pattern: Option<PricedPattern<'a>>,
    kind: Option<Vec<u8>>,
}

impl<'a> ScanOptions<'a> {
    fn parse(mut args: &[&'a [u8]], typed: bool) -> Result<Self, RedisError> {
        let mut it = Self { count: 10, pattern: None, kind: None };
        while let [word, value, rest @ ..] = args {
            match word.to_ascii_lowercase().as_slice() {
                b"count" => match int(value)? {
                    n if n > 0 => it.count = n as usize,
                    _ => return Err(RedisError::SYNTAX),
                },
                b"match" => it.pattern = Some(PricedPattern::new(value)),
                b"type" if typed => it.kind = Some(value.to_ascii_lowercase()),
                _ => return Err(RedisError::SYNTAX),
            }
            args = rest;
        }
        if args.is_empty() { Ok(it) } else { Err(RedisError::SYNTAX) }
    }

    fn fits(&self, c: &Context<'_>, entry: &KeyEntry) -> Result<bool, RedisError> {
        let kind = self.kind.as_deref().is_none_or(|k| k == entry.data.kind().as_bytes());
        Ok(self.matches(c, &entry.key)? && kind)
    }

    /// Whether a key or a member is asked for.
    ///
    /// # Errors
    /// When all that were looked at take too long.
    fn matches(&self, c: &Context<'_>, text: &[u8]) -> Result<bool, RedisError> {
        match &self.pattern {
            Some(pattern) => pattern.matches(c, text),
            None => c.work.spend(work::KEY_NS).map(|()| true),
        }
    }
}

fn scan(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let at = cursor(args[1])?;
    let options = ScanOptions::parse(&args[2..], true)?;
    c.each_store().for_each(Store::purge_some);
    if c.map.epoch() > 0 || at & OF_ALL != 0 {
        return scan_all(c, at, &options, reply);
    }
    let shards = c.map.shards() as u64;
    let mut shard = (at % SHARDS).min(shards - 1);
    let mut from = (at / SHARDS) << HASH_BITS_CUT;
    let mut found = Vec::new();
    let mut looked = 0;
    let mut next = None;
    while next.is_none() && looked < options.count && c.dst.contains(Gid(shard as u8)) {
        let mut last = None;
        for (hash, entry) in c.stores[c.index(Gid(shard as u8))].scan(from) {
            // All keys whose hashes have the same cursor belong to one step.
            let step = hash >> HASH_BITS_CUT;
            if looked >= options.count && last != Some(step) {
                next = Some(step * SHARDS + shard);
                break;
            }
            (looked, last) = (looked + 1, Some(step));
            if options.fits(c, entry)? {
                found.push(&*entry.key);
            }
        }
        if next.is_none() {
            (shard, from) = (shard + 1, 0);
        }
        if shard == shards {
            break;
        }
    }
    scanned(reply, next.unwrap_or(if shard == shards { 0 } else { shard }), &found);
    Ok(())
}

/// A step through all shards at once.
fn scan_all(
    c: &Context<'_>,
    at: u64,
    options: &ScanOptions<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let from = if at & OF_ALL == 0 { 0 } else { (at & (OF_ALL - 1)) << HASH_BITS_CUT };
    // The first ones of all shards are among the first ones of each.
    let (mut first, mut more): (Vec<(u64, &KeyEntry)>, _) = (Vec::new(), false);
    for store in &*c.stores {
        let mut last = None;
        for (i, (hash, entry)) in store.scan(from).enumerate() {
            let step = hash >> HASH_BITS_CUT;
            // All keys whose hashes have the same cursor belong to one step.
            if i >= options.count && last != Some(step) {
                more = true;
                break;
            }
            last = Some(step);
            c.work.spend(work::KEY_NS)?;
            first.push((step, entry));
        }
    }
    first.sort_unstable_by(|a, b| (a.0, &a.1.key).cmp(&(b.0, &b.1.key)));
    let last = first.get(options.count.min(first.len()).wrapping_sub(1)).map(|(step, _)| *step);
    let end = first.partition_point(|(step, _)| Some(*step) <= last);
    let mut found: Vec<&[u8]> = Vec::new();
    for (_, entry) in &first[..end] {
        if options.fits(c, entry)? {
            found.push(&entry.key);
        }
    }
    more |= end < first.len();
    let next = last.filter(|step| more && step + 1 < 1 << (64 - HASH_BITS_CUT));
    let next = next.map_or(0, |step| OF_ALL | (step + 1));
    scanned(reply, next, &found);
    Ok(())
}

/// Answers a step over keys.
fn scanned(reply: &mut Reply<'_>, cursor: u64, found: &[&[u8]]) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(found.len());
    found.iter().for_each(|k| reply.bulk(k));
}

/// The positions that a step over a collection of `len` looks at, and the next cursor. Steps go
/// from the end down: a removed member is replaced by the last one, which was seen already.
fn step(at: u64, count: usize, len: usize) -> (std::ops::Range<usize>, u64) {
    if len <= SMALL {
        return (0..len, 0);
    }
    let end = if at == 0 { len } else { len.min(usize::try_from(at).unwrap_or(len)) };
    let start = end.saturating_sub(count);
    (start..end, start as u64)
}

/// A member of a collection, with its value or score if it has one.
type CollectionMember<'a> = (&'a [u8], Option<Cow<'a, [u8]>>);

/// Answers a step over a collection: the cursor, then those of `looked` that are asked for.
fn members<'a>(
    c: &Context<'_>,
    options: &ScanOptions<'_>,
    reply: &mut Reply<'_>,
    next: u64,
    looked: impl Iterator<Item = CollectionMember<'a>>,
) -> Result<(), RedisError> {
    let mut found = Vec::new();
    for member in looked {
        if options.matches(c, member.0)? {
            found.push(member);
        }
    }
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found.iter().map(|(_, v)| 1 + usize::from(v.is_some())).sum());
    for (member, value) in found {
        reply.bulk(member);
        if let Some(value) = value {
            reply.bulk(&value);
        }
    }
    Ok(())
}

fn sscan(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (at, set) = (cursor(args[2])?, c.get::<Set>(args[1])?);
    let options = ScanOptions::parse(if set.is_some() { &args[3..] } else { &[] }, false)?;
    let (range, next) = step(at, options.count, set.map_or(0, Set::len));
    let looked = range.filter_map(|i| set.and_then(|s| s.get_index(i)));
    members(c, &options, reply, next, looked.map(|m| (&**m, None)))
}

fn hscan(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (at, hash) = (cursor(args[2])?, c.get::<Hash>(args[1])?);
    let options = ScanOptions::parse(if hash.is_some() { &args[3..] } else { &[] }, false)?;
    let (range, next) = step(at, options.count, hash.map_or(0, Hash::len));
    let looked = range.filter_map(|i| hash.and_then(|h| h.get_index(i)));
    members(c, &options, reply, next, looked.map(|(f, v)| (&**f, Some((&**v).into()))))
}

fn zscan(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (at, sorted) = (cursor(args[2])?, c.get::<Sorted>(args[1])?);
    let options = ScanOptions::parse(if sorted.is_some() { &args[3..] } else { &[] }, false)?;
    let (range, next) = step(at, options.count, sorted.map_or(0, Sorted::len));
    let looked = range.filter_map(|i| sorted.and_then(|z| z.at(i))).map(|(m, score)| {
        let mut text = Vec::new();
        super::super::number::push_double(&mut text, score);
        (m, Some(text.into()))
    });
    members(c, &options, reply, next, looked)
}

fn range(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (mut limit, mut with_values) = (RANGE_LIMIT, false);
    let mut rest = &args[3..];
    loop {
        rest = match rest {
            [] => break,
            [word, n, rest @ ..] if word.eq_ignore_ascii_case(b"limit") => {
                limit = parse_int(n)
                    .and_then(|n| usize::try_from(n).ok())
                    .ok_or(RedisError::NOT_INTEGER)?;
                rest
            }
            [word, rest @ ..] if word.eq_ignore_ascii_case(b"withvalues") => {
                with_values = true;
                rest
            }
            _ => return Err(RedisError::SYNTAX),
        };
    }
    c.each_store().for_each(Store::purge_some);
    // The first ones of all shards are among the first ones of each.
    let mut found = Vec::new();
    for store in &*c.stores {
        for entry in store.range(args[1], args[2]).take(limit) {
            c.work.spend(5 * work::KEY_NS)?;
            found.push(entry);
        }
    }
    found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    found.truncate(limit);
    reply.array(found.len() * if with_values { 2 } else { 1 });
    for entry in found {
        reply.bulk(&entry.key);
        if with_values {
            reply.bulk_or_null(match &entry.data {
                Data::Str(value) => Some(value),
                _ => None,
            });
        }
    }
    Ok(())
}
