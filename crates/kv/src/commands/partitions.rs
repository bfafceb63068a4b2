//! Commands that Redis does not have: the map of keys to shards, splits and merges while clients
//! continue (see [`super::super::partitions`]), and the consistency level of a connection's reads.

use super::super::Context;
use super::super::client::{ClientState, ReadConsistency};
use super::super::number::parse_int;
use super::super::partitions::{Partition, Partitions};
use super::super::registry::{AfterRun, CommandSpec, KeyArguments};
use super::super::reply::{RedisError, Reply};
use super::super::store::MoveProgress;
use amcast_core::{Gid, GroupSet};
use std::sync::Arc;

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::local(
        "amcast.consistency",
        -1,
        "loading stale fast",
        consistency,
        "Chooses what this connection's reads may see: LINEARIZABLE or SEQUENTIAL; without a word it \
         returns the level.",
    ),
    CommandSpec::ordered(
        LIST,
        1,
        "readonly admin",
        KeyArguments::None,
        list,
        "Returns the epoch of the map, slots or keys, and each partition: its start, its end, its \
         shard, and the shard that its keys move to.",
    ),
    CommandSpec::ordered(
        "amcast.split",
        4,
        "write admin",
        KeyArguments::All,
        split,
        "Has keys move to another shard: AMCAST.SPLIT shard start other. They are those from a slot \
         or key on to the end of its partition.",
    ),
    CommandSpec::ordered(
        "amcast.merge",
        3,
        "write admin",
        KeyArguments::All,
        merge,
        "Has all keys of a shard move to another: AMCAST.MERGE shard other.",
    ),
    CommandSpec::ordered(
        MOVE,
        3,
        "write admin",
        KeyArguments::Shards(between),
        go_on,
        "Moves the next keys from a shard to another; servers send it by themselves.",
    ),
    CommandSpec::ordered(
        MOVED,
        1,
        "write admin",
        KeyArguments::All,
        moved,
        "Ends a move of keys; servers send it by themselves.",
    ),
];

/// Tells the map.
pub const LIST: &str = "amcast.partitions";

/// Moves the next keys; the answer is 1 if all have moved, else 0.
pub const MOVE: &str = "amcast.move";

/// Ends a move.
pub const MOVED: &str = "amcast.moved";

/// Keys that are looked at for one command, unless somebody says otherwise: both shards stand still meanwhile, for a
/// millisecond or so.
pub(crate) const LOOK_KEYS: usize = if cfg!(test) { 5 } else { 512 };

fn consistency(
    c: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    match args[1..] {
        [] => reply.bulk(match c.level {
            ReadConsistency::Linearizable => b"linearizable",
            ReadConsistency::Sequential => b"sequential",
        }),
        [word] if word.eq_ignore_ascii_case(b"linearizable") => {
            c.level = ReadConsistency::Linearizable;
            reply.ok();
        }
        [word] if word.eq_ignore_ascii_case(b"sequential") => {
            c.level = ReadConsistency::Sequential;
            reply.ok();
        }
        _ => return Err(RedisError::SYNTAX),
    }
    Ok(AfterRun::Answer)
}

fn shard(arg: &[u8]) -> Result<Gid, RedisError> {
    let n = parse_int(arg).and_then(|n| u8::try_from(n).ok());
    n.map(Gid).ok_or(RedisError::NOT_INTEGER)
}

fn list(c: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let map = &c.map;
    reply.array(3);
    reply.int(map.epoch() as i64);
    reply.bulk(if map.is_by_key() { b"keys" } else { b"slots" });
    reply.array(map.iter().count());
    for Partition { start, end, owner } in map.iter() {
        reply.array(4);
        reply.bulk(&start.text());
        reply.bulk_or_null(end.map(|end| end.text()).as_deref());
        reply.int(i64::from(owner.shard.0));
        match owner.to {
            Some(to) => reply.int(i64::from(to.0)),
            None => reply.null(),
        }
    }
    Ok(())
}

fn split(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let next = c.map.split(shard(args[1])?, args[2], shard(args[3])?)?;
    put_in_force(c, next, reply);
    Ok(())
}

fn merge(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let next = c.map.merge(shard(args[1])?, shard(args[2])?)?;
    put_in_force(c, next, reply);
    Ok(())
}

/// Has all shards go by another map, and answers its epoch.
fn put_in_force(c: &mut Context<'_>, map: Partitions, reply: &mut Reply<'_>) {
    c.map = Arc::new(map);
    for (place, store) in c.places.iter().zip(&mut *c.stores) {
        store.set_map(c.map.clone(), place.shard);
    }
    reply.int(c.map.epoch() as i64);
}

/// The two shards that `AMCAST.MOVE` names.
fn between(args: &[&[u8]], map: &Partitions) -> GroupSet {
    let named = args[1..3].iter().filter_map(|arg| shard(arg).ok());
    named.filter(|gid| gid.index() < map.shards()).collect()
}

fn go_on(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (from, to) = (shard(args[1])?, shard(args[2])?);
    if c.map.moving() != Some((from, to)) {
        return Err(RedisError::new("ERR no keys move between these shards"));
    }
    let (from, to) = (c.index(from), c.index(to));
    let keys = c.stores[from].take_moving(c.move_keys);
    let moved = c.stores[from].moved();
    let target = &mut c.stores[to];
    for entry in keys {
        target.put_moved(entry);
    }
    target.set_moved(moved);
    reply.int(i64::from(moved == MoveProgress::All));
    Ok(())
}

fn moved(c: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let Some((from, _)) = c.map.moving() else {
        return Err(RedisError::new("ERR no keys move"));
    };
    if c.stores[c.index(from)].moved() != MoveProgress::All {
        return Err(RedisError::new("ERR keys still move"));
    }
    let next = c.map.moved().expect("keys move");
    put_in_force(c, next, reply);
    Ok(())
}
