//! Strings and counters.

use super::super::Context;
use super::super::data::Str;
use super::super::long_double::LongDouble;
use super::super::number::{int, parse_int, push_int};
use super::super::registry::{CommandSpec, EACH, KeyArguments, ONE};
use super::super::reply::{RedisError, Reply};
use super::super::store::NEVER_MS;
use super::super::work;
use amcast_core::limits::PAYLOAD_BYTES_MAX;

const PAIRS: KeyArguments = KeyArguments::Range { first: 1, last: -1, step: 2 };

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered("get", 2, "readonly fast", ONE, get, "Returns the string of a key."),
    CommandSpec::ordered("set", -3, "write denyoom", ONE, set, "Sets a key to a string."),
    CommandSpec::ordered(
        "setnx",
        3,
        "write denyoom fast",
        ONE,
        setnx,
        "Sets a key that does not exist.",
    ),
    CommandSpec::ordered(
        "setex",
        4,
        "write denyoom",
        ONE,
        setex,
        "Sets a key that expires, in seconds.",
    ),
    CommandSpec::ordered(
        "psetex",
        4,
        "write denyoom",
        ONE,
        psetex,
        "Sets a key that expires, in ms.",
    ),
    CommandSpec::ordered(
        "getset",
        3,
        "write denyoom fast",
        ONE,
        getset,
        "Sets a key, returns its old value.",
    ),
    CommandSpec::ordered(
        "getdel",
        2,
        "write fast",
        ONE,
        getdel,
        "Returns a string and deletes it.",
    ),
    CommandSpec::ordered(
        "getex",
        -2,
        "write fast",
        ONE,
        getex,
        "Returns a string and sets its expiry.",
    ),
    CommandSpec::ordered("append", 3, "write denyoom fast", ONE, append, "Appends to a string."),
    CommandSpec::ordered("strlen", 2, "readonly fast", ONE, strlen, "Returns a string's length."),
    CommandSpec::ordered(
        "setrange",
        4,
        "write denyoom",
        ONE,
        setrange,
        "Overwrites part of a string.",
    )
    .taking(work::of_setrange),
    CommandSpec::ordered("getrange", 4, "readonly", ONE, getrange, "Returns part of a string."),
    CommandSpec::ordered("substr", 4, "readonly", ONE, getrange, "Returns part of a string."),
    CommandSpec::ordered("incr", 2, "write denyoom fast", ONE, incr, "Adds one to a number."),
    CommandSpec::ordered("decr", 2, "write denyoom fast", ONE, decr, "Takes one from a number."),
    CommandSpec::ordered("incrby", 3, "write denyoom fast", ONE, incrby, "Adds to a number."),
    CommandSpec::ordered("decrby", 3, "write denyoom fast", ONE, decrby, "Takes from a number."),
    CommandSpec::ordered(
        "incrbyfloat",
        3,
        "write denyoom fast",
        ONE,
        incrbyfloat,
        "Adds to a decimal number.",
    )
    .taking(work::of_incrbyfloat),
    CommandSpec::ordered(
        "mget",
        -2,
        "readonly fast",
        EACH,
        mget,
        "Returns strings, all of one moment.",
    ),
    CommandSpec::ordered("mset", -3, "write denyoom", PAIRS, mset, "Sets keys, all at one moment."),
    CommandSpec::ordered("msetnx", -3, "write denyoom", PAIRS, msetnx, "Sets keys if none exists."),
];

/// Bytes that a string can have: what a value can be moved and snapshot as.
pub(super) const STRING_BYTES_MAX: usize = 64 * PAYLOAD_BYTES_MAX;

fn get(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let value = c.get::<Str>(args[1])?;
    reply.bulk_or_null(value.map(Vec::as_slice));
    Ok(())
}

/// The unit and base of an expiry as written.
pub(crate) enum ExpiryForm {
    Seconds,
    Millis,
    AtSeconds,
    AtMillis,
}

impl ExpiryForm {
    fn parse(word: &[u8]) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_slice() {
            b"ex" => Self::Seconds,
            b"px" => Self::Millis,
            b"exat" => Self::AtSeconds,
            b"pxat" => Self::AtMillis,
            _ => return None,
        })
    }

    /// The deadline that `n` names; none if it overflows. Negative ones are long past.
    pub(crate) fn deadline_ms(&self, n: i64, now_ms: u64) -> Option<i64> {
        let ms = match self {
            Self::Seconds | Self::AtSeconds => n.checked_mul(1000)?,
            Self::Millis | Self::AtMillis => n,
        };
        match self {
            Self::Seconds | Self::Millis => ms.checked_add(now_ms as i64),
            Self::AtSeconds | Self::AtMillis => Some(ms),
        }
    }
}

/// A deadline as an option of `SET` and `GETEX` gives it: it must be positive.
fn option_deadline(
    when: &ExpiryForm,
    n: &[u8],
    now_ms: u64,
    name: &str,
) -> Result<u64, RedisError> {
    let n = int(n)?;
    let bad = || RedisError::new(format!("ERR invalid expire time in '{name}' command"));
    if n <= 0 {
        return Err(bad());
    }
    when.deadline_ms(n, now_ms).map(|ms| ms as u64).ok_or_else(bad)
}

#[derive(Default)]
struct SetOptions {
    only_new: bool,
    only_old: bool,
    get: bool,
    keep: bool,
    deadline_ms: Option<u64>,
}

fn set_options(c: &Context<'_>, args: &[&[u8]]) -> Result<SetOptions, RedisError> {
    let mut o = SetOptions::default();
    let mut i = 3;
    let mut expiry = None;
    while let Some(word) = args.get(i) {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" if !o.only_old => o.only_new = true,
            b"xx" if !o.only_new => o.only_old = true,
            b"get" => o.get = true,
            b"keepttl" if expiry.is_none() => o.keep = true,
            _ => {
                let when = ExpiryForm::parse(word).ok_or(RedisError::SYNTAX)?;
                if o.keep || expiry.is_some() || i + 1 >= args.len() {
                    return Err(RedisError::SYNTAX);
                }
                i += 1;
                expiry = Some((when, args[i]));
            }
        }
        i += 1;
    }
    if let Some((when, n)) = expiry {
        o.deadline_ms = Some(option_deadline(&when, n, c.now_ms(args[1]), "set")?);
    }
    Ok(o)
}

fn set(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    if args.len() == 3 {
        c.put_str(args[1], args[2], NEVER_MS);
        reply.ok();
        return Ok(());
    }
    let o = set_options(c, args)?;
    let (key, entry) = (args[1], c.find(args[1]));
    let exists = entry.is_some();
    let kept_ms = entry.map_or(NEVER_MS, |e| e.deadline_ms);
    if o.get {
        let old = c.get::<Str>(key)?;
        reply.bulk_or_null(old.map(Vec::as_slice));
    }
    if (o.only_new && exists) || (o.only_old && !exists) {
        if !o.get {
            reply.null();
        }
        return Ok(());
    }
    let deadline = o.deadline_ms.unwrap_or(if o.keep { kept_ms } else { NEVER_MS });
    if deadline < c.now_ms(key) {
        c.delete(key);
    } else {
        c.put_str(key, args[2], deadline);
    }
    if !o.get {
        reply.ok();
    }
    Ok(())
}

fn setnx(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let free = c.find(args[1]).is_none();
    if free {
        c.put_str(args[1], args[2], NEVER_MS);
    }
    reply.flag(free);
    Ok(())
}

fn set_expiring(
    c: &mut Context<'_>,
    args: &[&[u8]],
    when: &ExpiryForm,
    name: &str,
) -> Result<(), RedisError> {
    let deadline = option_deadline(when, args[2], c.now_ms(args[1]), name)?;
    c.put_str(args[1], args[3], deadline);
    Ok(())
}

fn setex(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    set_expiring(c, args, &ExpiryForm::Seconds, "setex")?;
    reply.ok();
    Ok(())
}

fn psetex(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    set_expiring(c, args, &ExpiryForm::Millis, "psetex")?;
    reply.ok();
    Ok(())
}

fn getset(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    get(c, args, reply)?;
    c.put_str(args[1], args[2], NEVER_MS);
    Ok(())
}

fn getdel(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    get(c, args, reply)?;
    c.delete(args[1]);
    Ok(())
}

fn getex(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let key = args[1];
    let when = match args.len() {
        2 => None,
        3 if args[2].eq_ignore_ascii_case(b"persist") => Some(None),
        4 => Some(Some(ExpiryForm::parse(args[2]).ok_or(RedisError::SYNTAX)?)),
        _ => return Err(RedisError::SYNTAX),
    };
    // As in Redis: of a key that is not there the time does not matter.
    let is_there = c.get::<Str>(key)?.is_some();
    let deadline = match when.filter(|_| is_there) {
        None => None,
        Some(None) => Some(NEVER_MS),
        Some(Some(when)) => Some(option_deadline(&when, args[3], c.now_ms(key), "getex")?),
    };
    get(c, args, reply)?;
    let Some((deadline, entry)) = deadline.zip(c.find(key)) else { return Ok(()) };
    if deadline < c.now_ms(key) {
        c.delete(key);
    } else if deadline != entry.deadline_ms {
        c.store(key).set_deadline(key, deadline);
    }
    Ok(())
}

fn append(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let store = c.store(args[1]);
    let len = store.get::<Str>(args[1])?.map_or(0, Vec::len);
    if len + args[2].len() > STRING_BYTES_MAX {
        return Err(RedisError::TOO_LONG);
    }
    let value = store.get_or_new::<Str>(args[1])?;
    value.extend_from_slice(args[2]);
    reply.count(value.len());
    store.touch(args[1]);
    Ok(())
}

fn strlen(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.count(c.get::<Str>(args[1])?.map_or(0, Vec::len));
    Ok(())
}

/// Bytes that a string has after a `SETRANGE`, at least; none if it writes nothing.
pub(crate) fn setrange_bytes(args: &[&[u8]]) -> Option<usize> {
    let offset = usize::try_from(parse_int(args[2])?).ok()?;
    let end = offset.saturating_add(args[3].len());
    (!args[3].is_empty() && end <= STRING_BYTES_MAX).then_some(end)
}

fn setrange(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (key, value) = (args[1], args[3]);
    if int(args[2])? < 0 {
        return Err(RedisError::new("ERR offset is out of range"));
    }
    let store = c.store(key);
    let len = store.get::<Str>(key)?.map_or(0, Vec::len);
    if value.is_empty() {
        reply.count(len);
        return Ok(());
    }
    let end = setrange_bytes(args).ok_or(RedisError::TOO_LONG)?;
    let bytes = store.get_or_new::<Str>(key)?;
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[end - value.len()..end].copy_from_slice(value);
    reply.count(bytes.len());
    store.touch(key);
    Ok(())
}

/// Indices `start` to `end`, negative ones from the end, as a range within `len`.
pub(crate) fn clamp(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let from_end = |i: i64| if i < 0 { (len + i).max(0) } else { i };
    if end < 0 && len + end < 0 {
        return 0..0;
    }
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// The same for strings and bits, where an end before the first one is taken as the first.
pub(super) fn clamp_string(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    clamp(start, end.max(-(len as i64)), len)
}

fn getrange(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (start, end) = (int(args[2])?, int(args[3])?);
    let bytes = c.get::<Str>(args[1])?.map_or(&[][..], Vec::as_slice);
    let range = clamp_string(start, end, bytes.len());
    reply.bulk(&bytes[range]);
    Ok(())
}

fn add(c: &mut Context<'_>, key: &[u8], n: i64, reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let store = c.store(key);
    let now = match store.get::<Str>(key)? {
        Some(bytes) => parse_int(bytes).ok_or(RedisError::NOT_INTEGER)?,
        None => 0,
    };
    let sum =
        now.checked_add(n).ok_or(RedisError::new("ERR increment or decrement would overflow"))?;
    let bytes = store.get_or_new::<Str>(key)?;
    bytes.clear();
    push_int(bytes, sum);
    store.touch(key);
    reply.int(sum);
    Ok(())
}

fn incr(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    add(c, args[1], 1, reply)
}

fn decr(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    add(c, args[1], -1, reply)
}

fn incrby(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    add(c, args[1], int(args[2])?, reply)
}

fn decrby(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let n = int(args[2])?;
    let minus = n.checked_neg().ok_or(RedisError::new("ERR decrement would overflow"))?;
    add(c, args[1], minus, reply)
}

fn incrbyfloat(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let key = args[1];
    let store = c.store(key);
    let now = store.get::<Str>(key)?.map_or(&b"0"[..], Vec::as_slice);
    let read = |text| LongDouble::parse(text).ok_or(RedisError::NOT_FLOAT);
    let sum = read(now)?.sum(read(args[2])?);
    let text = sum.ok_or(RedisError::NOT_FINITE)?.plain();
    reply.bulk(&text);
    *store.get_or_new::<Str>(key)? = text;
    store.touch(key);
    Ok(())
}

fn mget(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.array(args.len() - 1);
    for key in &args[1..] {
        let value = c.get::<Str>(key).unwrap_or(None);
        reply.bulk_or_null(value.map(Vec::as_slice));
    }
    Ok(())
}

fn pairs<'a>(
    args: &'a [&'a [u8]],
    name: &str,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])>, RedisError> {
    if args.len().is_multiple_of(2) {
        return Err(RedisError::arity(name));
    }
    Ok(args[1..].chunks_exact(2).map(|p| (p[0], p[1])))
}

fn mset(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    for (key, value) in pairs(args, "mset")? {
        c.put_str(key, value, NEVER_MS);
    }
    reply.ok();
    Ok(())
}

fn msetnx(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let free = pairs(args, "msetnx")?.all(|(key, _)| c.find(key).is_none());
    if free {
        for (key, value) in pairs(args, "msetnx")? {
            c.put_str(key, value, NEVER_MS);
        }
    }
    reply.flag(free);
    Ok(())
}
