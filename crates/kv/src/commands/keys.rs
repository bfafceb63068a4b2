//! Commands on keys of any type: existence, expiry, names.

use super::super::Context;
use super::super::data::Data;
use super::super::number::{int, parse_int};
use super::super::registry::{CommandSpec, EACH, KeyArguments, ONE, TWO};
use super::super::reply::{RedisError, Reply};
use super::super::store::{NEVER_MS, Store};
use super::super::work::{self, PricedPattern};
use super::strings::ExpiryForm;
use super::subcommands;

/// A hash of more fields, or with longer ones, is no list of bytes in Redis; nor is a sorted set, or a set of more numbers.
const HASH_LISTPACK_ENTRIES_MAX: usize = 512;
const SORTED_LISTPACK_ENTRIES_MAX: usize = 128;
const INTSET_ENTRIES_MAX: usize = 512;
const LISTPACK_VALUE_BYTES_MAX: usize = 64;

/// These bounds by the names of Redis's parameters.
pub(super) const ENCODING_BOUNDS: [(&str, usize); 5] = [
    ("hash-max-listpack-entries", HASH_LISTPACK_ENTRIES_MAX),
    ("hash-max-listpack-value", LISTPACK_VALUE_BYTES_MAX),
    ("set-max-intset-entries", INTSET_ENTRIES_MAX),
    ("zset-max-listpack-entries", SORTED_LISTPACK_ENTRIES_MAX),
    ("zset-max-listpack-value", LISTPACK_VALUE_BYTES_MAX),
];

const SECOND: KeyArguments = KeyArguments::Range { first: 2, last: 2, step: 1 };

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered("del", -2, "write", EACH, del, "Deletes keys."),
    CommandSpec::ordered("unlink", -2, "write fast", EACH, del, "Deletes keys."),
    CommandSpec::ordered(
        "exists",
        -2,
        "readonly fast",
        EACH,
        exists,
        "Counts those keys that exist.",
    ),
    CommandSpec::ordered(
        "touch",
        -2,
        "readonly fast",
        EACH,
        exists,
        "Counts those keys that exist.",
    ),
    CommandSpec::ordered(
        "type",
        2,
        "readonly fast",
        ONE,
        kind,
        "Returns what kind of value a key has.",
    ),
    CommandSpec::ordered(
        "expire",
        -3,
        "write fast",
        ONE,
        expire,
        "Sets when a key expires, in seconds.",
    ),
    CommandSpec::ordered(
        "pexpire",
        -3,
        "write fast",
        ONE,
        pexpire,
        "Sets when a key expires, in ms.",
    ),
    CommandSpec::ordered(
        "expireat",
        -3,
        "write fast",
        ONE,
        expireat,
        "Sets a key's Unix time of expiry.",
    ),
    CommandSpec::ordered(
        "pexpireat",
        -3,
        "write fast",
        ONE,
        pexpireat,
        "The same, in milliseconds.",
    ),
    CommandSpec::ordered(
        "ttl",
        2,
        "readonly fast",
        ONE,
        ttl,
        "Returns a key's time to live in seconds.",
    ),
    CommandSpec::ordered(
        "pttl",
        2,
        "readonly fast",
        ONE,
        pttl,
        "Returns a key's time to live in ms.",
    ),
    CommandSpec::ordered(
        "expiretime",
        2,
        "readonly fast",
        ONE,
        expiretime,
        "Returns a key's Unix time of expiry.",
    ),
    CommandSpec::ordered(
        "pexpiretime",
        2,
        "readonly fast",
        ONE,
        pexpiretime,
        "The same, in milliseconds.",
    ),
    CommandSpec::ordered("persist", 2, "write fast", ONE, persist, "Makes a key stay."),
    CommandSpec::ordered("rename", 3, "write", TWO, rename, "Renames a key, across shards too."),
    CommandSpec::ordered(
        "renamenx",
        3,
        "write fast",
        TWO,
        renamenx,
        "Renames a key to one that is free.",
    ),
    CommandSpec::ordered(
        "copy",
        -3,
        "write denyoom",
        TWO,
        copy,
        "Copies a key's value to another key.",
    )
    .taking(work::of_copy),
    CommandSpec::ordered(
        "object",
        -2,
        "readonly",
        SECOND,
        object,
        "Returns inner details of a value.",
    ),
    CommandSpec::ordered(
        "memory",
        -2,
        "readonly",
        SECOND,
        memory,
        "Returns about how much memory a key takes.",
    ),
    CommandSpec::ordered(
        "randomkey",
        1,
        "readonly",
        KeyArguments::All,
        randomkey,
        "Returns some key.",
    ),
    CommandSpec::ordered(
        "keys",
        2,
        "readonly",
        KeyArguments::All,
        keys,
        "Returns the keys that match a pattern.",
    ),
    CommandSpec::ordered(
        "dbsize",
        1,
        "readonly fast",
        KeyArguments::All,
        dbsize,
        "Counts all keys.",
    ),
    CommandSpec::ordered(
        "flushall",
        -1,
        "write",
        KeyArguments::All,
        flush,
        "Deletes all keys of all shards.",
    ),
    CommandSpec::ordered(
        "flushdb",
        -1,
        "write",
        KeyArguments::All,
        flush,
        "Deletes all keys of all shards.",
    ),
];

fn del(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.count(args[1..].iter().filter(|key| c.delete(key)).count());
    Ok(())
}

fn exists(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.count(args[1..].iter().filter(|key| c.find(key).is_some()).count());
    Ok(())
}

fn kind(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.simple(c.find(args[1]).map_or("none", |e| e.data.kind()));
    Ok(())
}

#[derive(Default)]
struct Condition {
    none: bool,
    some: bool,
    later: bool,
    earlier: bool,
}

impl Condition {
    fn parse(args: &[&[u8]]) -> Result<Self, RedisError> {
        let mut it = Self::default();
        for word in args {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" => it.none = true,
                b"xx" => it.some = true,
                b"gt" => it.later = true,
                b"lt" => it.earlier = true,
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(RedisError::new(format!("ERR Unsupported option {word}")));
                }
            }
        }
        if it.none && (it.some || it.later || it.earlier) {
            return Err(RedisError::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if it.later && it.earlier {
            return Err(RedisError::new(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(it)
    }

    /// Whether a key that has deadline `was` may get deadline `ms`.
    fn admits(&self, was: u64, ms: i64) -> bool {
        let ms = ms.max(0) as u64;
        !(self.none && was != NEVER_MS
            || self.some && was == NEVER_MS
            || self.later && (was == NEVER_MS || ms <= was)
            || self.earlier && was != NEVER_MS && ms >= was)
    }
}

fn set_expiry(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    (when, name): (ExpiryForm, &str),
) -> Result<(), RedisError> {
    let key = args[1];
    // In the order of Redis.
    let condition = Condition::parse(&args[3..])?;
    let n = int(args[2])?;
    let deadline = when
        .deadline_ms(n, c.now_ms(key))
        .ok_or_else(|| RedisError::new(format!("ERR invalid expire time in '{name}' command")))?;
    let applies = c.find(key).is_some_and(|e| condition.admits(e.deadline_ms, deadline));
    if applies {
        if deadline <= c.now_ms(key) as i64 {
            c.delete(key);
        } else {
            c.store(key).set_deadline(key, deadline as u64);
        }
    }
    reply.flag(applies);
    Ok(())
}

fn expire(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    set_expiry(c, args, reply, (ExpiryForm::Seconds, "expire"))
}

fn pexpire(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    set_expiry(c, args, reply, (ExpiryForm::Millis, "pexpire"))
}

fn expireat(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    set_expiry(c, args, reply, (ExpiryForm::AtSeconds, "expireat"))
}

fn pexpireat(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    set_expiry(c, args, reply, (ExpiryForm::AtMillis, "pexpireat"))
}

/// Answers -2 without the key, -1 without expiry, else what `f` makes of deadline and time.
fn tell_expiry(
    c: &Context<'_>,
    key: &[u8],
    reply: &mut Reply<'_>,
    f: impl Fn(u64, u64) -> u64,
) -> Result<(), RedisError> {
    reply.int(match c.find(key).map(|e| e.deadline_ms) {
        None => -2,
        Some(NEVER_MS) => -1,
        Some(deadline) => f(deadline, c.now_ms(key)) as i64,
    });
    Ok(())
}

fn ttl(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    tell_expiry(c, args[1], reply, |deadline, now| (deadline - now + 500) / 1000)
}

fn pttl(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    tell_expiry(c, args[1], reply, |deadline, now| deadline - now)
}

fn expiretime(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    tell_expiry(c, args[1], reply, |deadline, _| (deadline + 500) / 1000)
}

fn pexpiretime(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    tell_expiry(c, args[1], reply, |deadline, _| deadline)
}

fn persist(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let expires = c.find(args[1]).is_some_and(|e| e.deadline_ms != NEVER_MS);
    if expires {
        c.store(args[1]).set_deadline(args[1], NEVER_MS);
    }
    reply.flag(expires);
    Ok(())
}

/// Moves a key; false if the new name is taken and must be free.
fn move_key(c: &mut Context<'_>, from: &[u8], to: &[u8], free: bool) -> Result<bool, RedisError> {
    if c.find(from).is_none() {
        return Err(RedisError::NO_KEY);
    }
    if free && c.find(to).is_some() {
        return Ok(false);
    }
    if from != to
        && let Some(entry) = c.store(from).delete(from)
    {
        c.put(to, entry.data, entry.deadline_ms);
    }
    Ok(true)
}

fn rename(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    move_key(c, args[1], args[2], false)?;
    reply.ok();
    Ok(())
}

fn renamenx(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let moved = move_key(c, args[1], args[2], true)?;
    reply.flag(moved);
    Ok(())
}

fn copy(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let mut replace = false;
    let mut i = 3;
    while let Some(word) = args.get(i) {
        if word.eq_ignore_ascii_case(b"replace") {
            replace = true;
        } else if word.eq_ignore_ascii_case(b"db") && i + 1 < args.len() {
            i += 1;
            if int(args[i])? != 0 {
                return Err(RedisError::new("ERR DB index is out of range"));
            }
        } else {
            return Err(RedisError::SYNTAX);
        }
        i += 1;
    }
    if args[1] == args[2] {
        return Err(RedisError::new("ERR source and destination objects are the same"));
    }
    let source = c.find(args[1]).map(|e| (e.data.clone(), e.deadline_ms));
    let free = replace || c.find(args[2]).is_none();
    let copied = match source {
        Some((data, deadline)) if free => {
            c.put(args[2], data, deadline);
            true
        }
        _ => false,
    };
    reply.flag(copied);
    Ok(())
}

/// How Redis of the version that is followed would keep a value, with its parameters as `CONFIG GET` shows them.
fn encoding(data: &Data) -> &'static str {
    let short = |bytes: &[u8]| bytes.len() <= LISTPACK_VALUE_BYTES_MAX;
    match data {
        Data::Str(s) if parse_int(s).is_some() => "int",
        Data::Str(s) if s.len() <= 44 => "embstr",
        Data::Str(_) => "raw",
        Data::List(_) => "quicklist",
        Data::Hash(h)
            if h.len() <= HASH_LISTPACK_ENTRIES_MAX
                && h.iter().all(|(field, value)| short(field) && short(value)) =>
        {
            "listpack"
        }
        Data::Set(s)
            if s.len() <= INTSET_ENTRIES_MAX && s.iter().all(|m| parse_int(m).is_some()) =>
        {
            "intset"
        }
        Data::Hash(_) | Data::Set(_) => "hashtable",
        Data::Sorted(z)
            if z.len() <= SORTED_LISTPACK_ENTRIES_MAX
                && z.iter_from(0).all(|(member, _)| short(member)) =>
        {
            "listpack"
        }
        Data::Sorted(_) => "skiplist",
    }
}

/// Idle time counts from the last change, in ordered time, so that it is the same at all replicas and after a restart.
/// Reads do not end it: they are not ordered.
fn object(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let word = args[1].to_ascii_lowercase();
    if !matches!(word.as_slice(), b"encoding" | b"refcount" | b"idletime" | b"freq")
        || args.len() != 3
    {
        return subcommands::help("OBJECT", args, reply);
    }
    let Some(entry) = c.find(args[2]) else {
        reply.null();
        return Ok(());
    };
    match word.as_slice() {
        b"encoding" => reply.bulk(encoding(&entry.data).as_bytes()),
        b"refcount" => reply.int(1),
        b"idletime" if entry.changed_ms == 0 => {
            return Err(RedisError::new(
                "ERR idle time is not known: the key has not changed since times are kept",
            ));
        }
        b"idletime" => {
            let idle_ms = c.now_ms(args[2]).saturating_sub(entry.changed_ms);
            reply.int((idle_ms / 1000) as i64);
        }
        _ => {
            return Err(RedisError::new(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                 Please note that when switching between policies at runtime LRU and LFU data \
                 will take some time to adjust.",
            ));
        }
    }
    Ok(())
}

fn memory(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    if !args[1].eq_ignore_ascii_case(b"usage") || args.len() < 3 {
        return subcommands::help("MEMORY", args, reply);
    }
    match c.find(args[2]) {
        Some(e) => reply.int(e.bytes() as i64),
        None => reply.null(),
    }
    Ok(())
}

fn randomkey(c: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let total: usize = c.each_store().map(|s| s.count()).sum();
    if total == 0 {
        reply.null();
        return Ok(());
    }
    let mut nth = c.pick(total);
    let from = (c.pick(1 << 32) as u64) << 32;
    for store in c.each_store() {
        if nth >= store.len() {
            nth -= store.len();
            continue;
        }
        if let Some((_, e)) = store.scan(from).next().or_else(|| store.scan(0).next()) {
            reply.bulk(&e.key);
        }
        break;
    }
    Ok(())
}

fn keys(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    c.each_store().for_each(Store::purge_some);
    let (c, mut found) = (&*c, Vec::new());
    let pattern = PricedPattern::new(args[1]);
    for store in &*c.stores {
        for (_, entry) in store.scan(0) {
            if pattern.matches(c, &entry.key)? {
                found.push(&*entry.key);
            }
        }
    }
    reply.array(found.len());
    found.iter().for_each(|k| reply.bulk(k));
    Ok(())
}

fn dbsize(c: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.count(c.each_store().map(|s| s.count()).sum());
    Ok(())
}

fn flush(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let known = |w: &&[u8]| w.eq_ignore_ascii_case(b"async") || w.eq_ignore_ascii_case(b"sync");
    if args.len() > 2 || !args[1..].iter().all(known) {
        return Err(RedisError::SYNTAX);
    }
    c.each_store().for_each(|s| s.clear());
    reply.ok();
    Ok(())
}
