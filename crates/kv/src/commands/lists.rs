//! Lists.

use super::super::Context;
use super::super::data::{Blob, List};
use super::super::number::{OUT_OF_NEGATABLE, int, parse_int};
use super::super::registry::{CommandSpec, KeyArguments, ONE, TWO};
use super::super::reply::{RedisError, Reply};
use super::super::work;
use super::sort::STORED_BYTES_MAX;
use super::strings::clamp;
use amcast_core::limits::ANSWER_BYTES_MAX;

/// The size of an element in an answer beside its bytes, a score included.
const ELEMENT_BYTES: usize = 64;

const COUNTED: KeyArguments = KeyArguments::Counted { count: 1, before: 0 };

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered(
        "lpush",
        -3,
        "write denyoom fast",
        ONE,
        lpush,
        "Puts elements at a list's head.",
    ),
    CommandSpec::ordered(
        "rpush",
        -3,
        "write denyoom fast",
        ONE,
        rpush,
        "Puts elements at a list's tail.",
    ),
    CommandSpec::ordered(
        "lpushx",
        -3,
        "write denyoom fast",
        ONE,
        lpushx,
        "The same, if there is a list.",
    ),
    CommandSpec::ordered(
        "rpushx",
        -3,
        "write denyoom fast",
        ONE,
        rpushx,
        "The same, if there is a list.",
    ),
    CommandSpec::ordered("lpop", -2, "write fast", ONE, lpop, "Takes elements from a list's head.")
        .taking(work::of_pop),
    CommandSpec::ordered("rpop", -2, "write fast", ONE, rpop, "Takes elements from a list's tail.")
        .taking(work::of_pop),
    CommandSpec::ordered("llen", 2, "readonly fast", ONE, llen, "Returns a list's length."),
    CommandSpec::ordered("lrange", 4, "readonly", ONE, lrange, "Returns part of a list."),
    CommandSpec::ordered("lindex", 3, "readonly", ONE, lindex, "Returns an element."),
    CommandSpec::ordered("lset", 4, "write denyoom", ONE, lset, "Sets an element."),
    CommandSpec::ordered("linsert", 5, "write denyoom", ONE, linsert, "Inserts beside an element.")
        .taking(work::of_list),
    CommandSpec::ordered("lrem", 4, "write", ONE, lrem, "Removes elements that are equal to one.")
        .taking(work::of_list),
    CommandSpec::ordered("ltrim", 4, "write", ONE, ltrim, "Keeps part of a list."),
    CommandSpec::ordered("lpos", -3, "readonly", ONE, lpos, "Returns where an element is.")
        .taking(work::of_lpos),
    CommandSpec::ordered(
        "rpoplpush",
        3,
        "write denyoom",
        TWO,
        rpoplpush,
        "Moves a tail to a head.",
    ),
    CommandSpec::ordered(
        "lmove",
        5,
        "write denyoom",
        TWO,
        lmove,
        "Moves an element between lists.",
    ),
    CommandSpec::ordered(
        "lmpop",
        -4,
        "write",
        COUNTED,
        lmpop,
        "Takes elements from the first list that has some.",
    )
    .taking(work::of_mpop),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    Head,
    Tail,
}

impl ListEnd {
    fn parse(word: &[u8]) -> Result<Self, RedisError> {
        match word.to_ascii_lowercase().as_slice() {
            b"left" => Ok(Self::Head),
            b"right" => Ok(Self::Tail),
            _ => Err(RedisError::SYNTAX),
        }
    }

    fn push(self, list: &mut List, element: Blob) {
        match self {
            Self::Head => list.push_front(element),
            Self::Tail => list.push_back(element),
        }
    }

    fn pop(self, list: &mut List) -> Option<Blob> {
        match self {
            Self::Head => list.pop_front(),
            Self::Tail => list.pop_back(),
        }
    }
}

fn push(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    (end, create): (ListEnd, bool),
) -> Result<(), RedisError> {
    let store = c.store(args[1]);
    if !create && store.get::<List>(args[1])?.is_none() {
        reply.int(0);
        return Ok(());
    }
    let list = store.get_or_new::<List>(args[1])?;
    args[2..].iter().for_each(|e| end.push(list, (*e).into()));
    reply.count(list.len());
    store.touch(args[1]);
    Ok(())
}

fn lpush(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    push(c, args, reply, (ListEnd::Head, true))
}

fn rpush(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    push(c, args, reply, (ListEnd::Tail, true))
}

fn lpushx(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    push(c, args, reply, (ListEnd::Head, false))
}

fn rpushx(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    push(c, args, reply, (ListEnd::Tail, false))
}

/// Takes up to `count` elements from a list; none if there is no list.
fn take(
    c: &mut Context<'_>,
    key: &[u8],
    end: ListEnd,
    count: usize,
) -> Result<Option<Vec<Blob>>, RedisError> {
    let store = c.store(key);
    let Some(list) = store.get_mut::<List>(key)? else { return Ok(None) };
    let n = count.min(list.len());
    let lens = list.iter().map(|e| e.len());
    match end {
        ListEnd::Head => fits_answer(lens, n),
        ListEnd::Tail => fits_answer(lens.rev(), n),
    }?;
    let taken: Vec<Blob> = (0..n).filter_map(|_| end.pop(list)).collect();
    store.settle(key, !taken.is_empty());
    Ok(Some(taken))
}

fn pop(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    (end, name): (ListEnd, &str),
) -> Result<(), RedisError> {
    match args {
        [_, key] => {
            let taken = take(c, key, end, 1)?;
            reply.bulk_or_null(taken.as_deref().and_then(<[Blob]>::first).map(|e| &**e));
        }
        [_, key, count] => {
            let count = parse_int(count).filter(|n| *n >= 0);
            let count =
                count.ok_or(RedisError::new("ERR value is out of range, must be positive"))?;
            match take(c, key, end, count as usize)? {
                None => reply.null_array(),
                Some(taken) => {
                    reply.array(taken.len());
                    taken.iter().for_each(|e| reply.bulk(e));
                }
            }
        }
        _ => return Err(RedisError::arity(name)),
    }
    Ok(())
}

fn lpop(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    pop(c, args, reply, (ListEnd::Head, "lpop"))
}

fn rpop(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    pop(c, args, reply, (ListEnd::Tail, "rpop"))
}

fn llen(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.count(c.get::<List>(args[1])?.map_or(0, List::len));
    Ok(())
}

fn lrange(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (start, end) = (int(args[2])?, int(args[3])?);
    let Some(list) = c.get::<List>(args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let range = clamp(start, end, list.len());
    reply.array(range.len());
    list.range(range).for_each(|e| reply.bulk(e));
    Ok(())
}

/// The index that `i` names, counted from the end if negative.
fn index(i: i64, len: usize) -> Option<usize> {
    let i = if i < 0 { i.checked_add(len as i64)? } else { i };
    usize::try_from(i).ok().filter(|i| *i < len)
}

fn lindex(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let Some(list) = c.get::<List>(args[1])? else {
        reply.null();
        return Ok(());
    };
    let i = int(args[2])?;
    let element = index(i, list.len()).and_then(|i| list.get(i));
    reply.bulk_or_null(element.map(|e| &**e));
    Ok(())
}

fn lset(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let store = c.store(args[1]);
    let list = store.get_mut::<List>(args[1])?.ok_or(RedisError::NO_KEY)?;
    let i = index(int(args[2])?, list.len()).ok_or(RedisError::OUT_OF_RANGE)?;
    list.set(i, args[3].into());
    store.touch(args[1]);
    reply.ok();
    Ok(())
}

fn linsert(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let after = match args[2].to_ascii_lowercase().as_slice() {
        b"before" => 0,
        b"after" => 1,
        _ => return Err(RedisError::SYNTAX),
    };
    let store = c.store(args[1]);
    let Some(list) = store.get_mut::<List>(args[1])? else {
        reply.int(0);
        return Ok(());
    };
    match list.iter().position(|e| **e == *args[3]) {
        None => reply.int(-1),
        Some(i) => {
            list.insert(i + after, args[4].into());
            reply.count(list.len());
            store.touch(args[1]);
        }
    }
    Ok(())
}

fn lrem(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let count = int(args[2])?;
    let store = c.store(args[1]);
    let Some(list) = store.get_mut::<List>(args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let equal = list.iter().filter(|e| ***e == *args[3]).count();
    let limit = if count == 0 { equal } else { equal.min(count.unsigned_abs() as usize) };
    // From the tail, the first ones are spared.
    let spared = if count < 0 { equal - limit } else { 0 };
    let mut seen = 0;
    list.retain(|e| {
        let hit = **e == *args[3];
        seen += usize::from(hit);
        !(hit && seen > spared && seen <= spared + limit)
    });
    store.settle(args[1], limit > 0);
    reply.count(limit);
    Ok(())
}

fn ltrim(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (start, end) = (int(args[2])?, int(args[3])?);
    let store = c.store(args[1]);
    if let Some(list) = store.get_mut::<List>(args[1])? {
        let range = clamp(start, end, list.len());
        list.trim(range);
        store.settle(args[1], true);
    }
    reply.ok();
    Ok(())
}

/// The match from which `LPOS` tells positions.
fn lpos_rank(n: i64) -> Result<i64, RedisError> {
    match n {
        0 => Err(RedisError::new(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
             second ... or use negative to start from the end of the list",
        )),
        i64::MIN => Err(OUT_OF_NEGATABLE),
        n => Ok(n),
    }
}

fn lpos(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let mut rank = 1_i64;
    let mut count = None;
    let mut maxlen = 0_i64;
    let options = &args[3..];
    for option in options.chunks(2) {
        // A word without a value is wrong only after those in front of it.
        let [name, value] = option else { return Err(RedisError::SYNTAX) };
        let no_less = |why| int(value).ok().filter(|n| *n >= 0).ok_or(RedisError::new(why));
        match name.to_ascii_lowercase().as_slice() {
            b"rank" => rank = lpos_rank(int(value)?)?,
            b"count" => count = Some(no_less("ERR COUNT can't be negative")? as usize),
            b"maxlen" => maxlen = no_less("ERR MAXLEN can't be negative")?,
            _ => return Err(RedisError::SYNTAX),
        }
    }
    let list = c.get::<List>(args[1])?;
    let len = list.map_or(0, List::len);
    let looked = if maxlen == 0 { len } else { len.min(maxlen as usize) };
    let at = |i: usize| if rank > 0 { i } else { len - 1 - i };
    let wanted = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(n) => n,
    };
    let hits = (0..looked).map(at).filter(|i| list.is_some_and(|l| *l[*i] == *args[2]));
    let found: Vec<usize> = hits.skip(rank.unsigned_abs() as usize - 1).take(wanted).collect();
    match (count, found.first()) {
        (None, Some(i)) => reply.count(*i),
        (None, None) => reply.null(),
        (Some(_), _) => {
            reply.array(found.len());
            found.iter().for_each(|i| reply.count(*i));
        }
    }
    Ok(())
}

/// Moves an element of a list from one of its ends to the other. The list stays, with its time to live, also if it has no
/// other element.
fn rotate(
    c: &mut Context<'_>,
    key: &[u8],
    (out, into): (ListEnd, ListEnd),
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let store = c.store(key);
    let Some(list) = store.get_mut::<List>(key)? else { return Ok(()) };
    let Some(element) = out.pop(list) else { return Ok(()) };
    reply.bulk(&element);
    into.push(list, element);
    store.touch(key);
    Ok(())
}

fn move_element(
    c: &mut Context<'_>,
    (from, to): (&[u8], &[u8]),
    (out, into): (ListEnd, ListEnd),
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    if c.get::<List>(from)?.is_none() {
        reply.null();
        return Ok(());
    }
    if from == to {
        return rotate(c, from, (out, into), reply);
    }
    c.get::<List>(to)?;
    let taken = take(c, from, out, 1)?.and_then(|mut t| t.pop());
    reply.bulk_or_null(taken.as_deref());
    if let Some(element) = taken {
        let store = c.store(to);
        into.push(store.get_or_new::<List>(to)?, element);
        store.touch(to);
    }
    Ok(())
}

fn rpoplpush(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    move_element(c, (args[1], args[2]), (ListEnd::Tail, ListEnd::Head), reply)
}

fn lmove(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let ends = (ListEnd::parse(args[3])?, ListEnd::parse(args[4])?);
    move_element(c, (args[1], args[2]), ends, reply)
}

/// Refuses to take `n` elements out, the first ones of these or any, whose answer might be too large: they would be
/// lost.
pub(crate) fn fits_answer(lens: impl Iterator<Item = usize>, n: usize) -> Result<(), RedisError> {
    // As many of the longest elements that there can be would fit: `SORT` with `STORE` makes them.
    if n <= ANSWER_BYTES_MAX / (STORED_BYTES_MAX + ELEMENT_BYTES) {
        return Ok(());
    }
    let mut bytes = 0;
    for len in lens.take(n) {
        bytes += len + ELEMENT_BYTES;
        // A refusal must not take long: there may be many more elements than fit.
        if bytes > ANSWER_BYTES_MAX {
            return Err(RedisError::too_many_taken());
        }
    }
    Ok(())
}

/// A part of a command's arguments.
pub(crate) type ArgumentSlice<'a, 'b> = &'b [&'a [u8]];

/// The keys behind a count at `args[at]`, and what follows them.
pub(crate) fn counted<'a, 'b>(
    args: &'b [&'a [u8]],
    at: usize,
) -> Result<(ArgumentSlice<'a, 'b>, ArgumentSlice<'a, 'b>), RedisError> {
    let n = parse_int(args[at]).filter(|n| *n > 0);
    let n = n.ok_or(RedisError::new("ERR numkeys should be greater than 0"))?;
    args[at + 1..].split_at_checked(n as usize).ok_or(RedisError::SYNTAX)
}

/// The `COUNT n` that ends `LMPOP` and `ZMPOP`.
pub(crate) fn mpop_count(args: &[&[u8]]) -> Result<usize, RedisError> {
    match args {
        [] => Ok(1),
        [word, n] if word.eq_ignore_ascii_case(b"count") => parse_int(n)
            .filter(|n| *n > 0)
            .map(|n| n as usize)
            .ok_or(RedisError::new("ERR count should be greater than 0")),
        _ => Err(RedisError::SYNTAX),
    }
}

fn lmpop(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (keys, rest) = counted(args, 1)?;
    let (word, rest) = rest.split_first().ok_or(RedisError::SYNTAX)?;
    let (end, count) = (ListEnd::parse(word)?, mpop_count(rest)?);
    for key in keys {
        if let Some(taken) = take(c, key, end, count)? {
            reply.array(2);
            reply.bulk(key);
            reply.array(taken.len());
            taken.iter().for_each(|e| reply.bulk(e));
            return Ok(());
        }
    }
    reply.null_array();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_does_not_fit_is_not_added_to_the_end() {
        let mut looked = 0;
        let lens = std::iter::repeat_with(|| {
            looked += 1;
            0
        });
        assert!(fits_answer(lens, 10_000_000).is_err());
        assert_eq!(looked, ANSWER_BYTES_MAX / ELEMENT_BYTES + 1);
    }
}
