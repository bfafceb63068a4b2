//! Strings as arrays of bits. Bit 0 is the highest one of the first byte.

use super::super::Context;
use super::super::data::{Data, Str};
use super::super::number::{int, parse_int};
use super::super::registry::{CommandSpec, KeyArguments, ONE};
use super::super::reply::{RedisError, Reply};
use super::super::store::NEVER_MS;
use super::super::work;
use super::strings::{STRING_BYTES_MAX, clamp_string};
use std::ops::Range;

/// The result and the strings that it is made of.
const BEHIND_WORD: KeyArguments = KeyArguments::Range { first: 2, last: -1, step: 1 };

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered("setbit", 4, "write denyoom", ONE, setbit, "Sets a bit of a string.")
        .taking(work::of_setbit),
    CommandSpec::ordered("getbit", 3, "readonly fast", ONE, getbit, "Returns a bit of a string."),
    CommandSpec::ordered(
        "bitcount",
        -2,
        "readonly",
        ONE,
        bitcount,
        "Counts the set bits of a string.",
    )
    .taking(work::of_string),
    CommandSpec::ordered(
        "bitpos",
        -3,
        "readonly",
        ONE,
        bitpos,
        "Finds the first set or clear bit.",
    )
    .taking(work::of_string),
    CommandSpec::ordered(
        "bitop",
        -4,
        "write denyoom",
        BEHIND_WORD,
        bitop,
        "Stores AND, OR, XOR or NOT of strings.",
    )
    .taking(work::of_bitop),
    CommandSpec::ordered(
        "bitfield",
        -2,
        "write denyoom",
        ONE,
        bitfield,
        "Reads and changes integers of any width in a string.",
    )
    .taking(work::of_bitfield),
    CommandSpec::ordered(
        "bitfield_ro",
        -2,
        "readonly fast",
        ONE,
        bitfield_ro,
        "Reads integers of any width in a string.",
    ),
];

const BAD_OFFSET: RedisError =
    RedisError::fixed("ERR bit offset is not an integer or out of range");

fn in_bounds(offset: Option<i64>) -> Result<usize, RedisError> {
    let offset = offset.and_then(|n| usize::try_from(n).ok());
    offset.filter(|n| n / 8 < STRING_BYTES_MAX).ok_or(BAD_OFFSET)
}

fn bit_at(bytes: &[u8], at: usize) -> bool {
    bytes.get(at / 8).is_some_and(|b| b & (0x80 >> (at % 8)) != 0)
}

fn set_bit_at(bytes: &mut [u8], at: usize, on: bool) {
    let mask = 0x80 >> (at % 8);
    if on {
        bytes[at / 8] |= mask;
    } else {
        bytes[at / 8] &= !mask;
    }
}

/// Makes a string long enough for so many bits; whether it was not.
fn grow(bytes: &mut Vec<u8>, bits: usize) -> bool {
    let len = bits.div_ceil(8);
    let short = bytes.len() < len;
    if short {
        bytes.resize(len, 0);
    }
    short
}

/// Bytes that a string has after a `SETBIT`, at least; none if it writes nothing.
pub(crate) fn setbit_bytes(args: &[&[u8]]) -> Option<usize> {
    in_bounds(parse_int(args[2])).ok().map(|at| at / 8 + 1)
}

fn setbit(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (key, at) = (args[1], in_bounds(parse_int(args[2]))?);
    let on = match args[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(RedisError::new("ERR bit is not an integer or out of range")),
    };
    let store = c.store(key);
    let bytes = store.get_or_new::<Str>(key)?;
    let grew = grow(bytes, at + 1);
    let was = bit_at(bytes, at);
    set_bit_at(bytes, at, on);
    if grew || was != on {
        store.touch(key);
    }
    reply.flag(was);
    Ok(())
}

fn getbit(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let at = in_bounds(parse_int(args[2]))?;
    reply.flag(c.get::<Str>(args[1])?.is_some_and(|bytes| bit_at(bytes, at)));
    Ok(())
}

/// Whether a range is counted in bits: the last argument may say so.
fn in_bits(unit: Option<&&[u8]>) -> Result<bool, RedisError> {
    match unit.map(|u| u.to_ascii_lowercase()).as_deref() {
        None | Some(b"byte") => Ok(false),
        Some(b"bit") => Ok(true),
        _ => Err(RedisError::SYNTAX),
    }
}

fn bitcount(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let Some(bytes) = c.get::<Str>(args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let range = match args.len() {
        2 => 0..bytes.len() * 8,
        4 | 5 => {
            let (start, end) = (int(args[2])?, int(args[3])?);
            if in_bits(args.get(4))? {
                clamp_string(start, end, bytes.len() * 8)
            } else {
                let r = clamp_string(start, end, bytes.len());
                r.start * 8..r.end * 8
            }
        }
        _ => return Err(RedisError::SYNTAX),
    };
    reply.count(ones(bytes, range));
    Ok(())
}

/// How many bits of a range are set.
fn ones(bytes: &[u8], range: Range<usize>) -> usize {
    let whole = range.start.div_ceil(8)..range.end / 8;
    if whole.start >= whole.end {
        return range.filter(|i| bit_at(bytes, *i)).count();
    }
    let edges = (range.start..whole.start * 8).chain(whole.end * 8..range.end);
    let inner: u32 = bytes[whole].iter().map(|b| b.count_ones()).sum();
    edges.filter(|i| bit_at(bytes, *i)).count() + inner as usize
}

fn bitpos(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let wanted = match int(args[2])? {
        0 => false,
        1 => true,
        _ => return Err(RedisError::new("ERR The bit argument must be 1 or 0.")),
    };
    let Some(bytes) = c.get::<Str>(args[1])? else {
        reply.int(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let start = args.get(3).map_or(Ok(0), |a| int(a))?;
    let bits = in_bits(args.get(5))?;
    let end = args.get(4).map(|a| int(a)).transpose()?;
    if args.len() > 6 {
        return Err(RedisError::SYNTAX);
    }
    let unit = if bits { 1 } else { 8 };
    let len = (bytes.len() * 8 / unit) as i64;
    let absolute = |i: i64| if i < 0 { i.saturating_add(len).max(0) } else { i };
    let (first, last) = (absolute(start), absolute(end.unwrap_or(-1)).min(len - 1));
    if first > last {
        reply.int(-1);
        return Ok(());
    }
    let range = first as usize * unit..(last as usize + 1) * unit;
    reply.int(match find_bit(bytes, range, wanted) {
        Some(at) => at as i64,
        // Behind the end there are clear bits, unless the end was given.
        None if !wanted && end.is_none() => bytes.len() as i64 * 8,
        None => -1,
    });
    Ok(())
}

fn find_bit(bytes: &[u8], range: Range<usize>, wanted: bool) -> Option<usize> {
    let none = if wanted { 0 } else { 0xff };
    let mut at = range.start;
    while at < range.end {
        if at.is_multiple_of(8) && bytes[at / 8] == none {
            at += 8;
        } else if bit_at(bytes, at) == wanted {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}

fn bitop(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let word = args[1].to_ascii_lowercase();
    if !matches!(word.as_slice(), b"and" | b"or" | b"xor" | b"not") {
        return Err(RedisError::SYNTAX);
    }
    let (to, from) = (args[2], &args[3..]);
    if word == b"not" && from.len() != 1 {
        return Err(RedisError::new("ERR BITOP NOT must be called with a single source key."));
    }
    let mut len = 0;
    for key in from {
        len = len.max(c.get::<Str>(key)?.map_or(0, Vec::len));
    }
    let mut out = c.get::<Str>(from[0])?.cloned().unwrap_or_default();
    out.resize(len, 0);
    if word == b"not" {
        out.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for key in &from[1..] {
        let bytes = c.get::<Str>(key)?.map_or(&[][..], Vec::as_slice);
        // Each loop is one of its own, for the compiler to take many bytes at once.
        match word.as_slice() {
            b"and" => {
                out.iter_mut().zip(bytes).for_each(|(a, b)| *a &= b);
                out[bytes.len()..].fill(0);
            }
            b"or" => out.iter_mut().zip(bytes).for_each(|(a, b)| *a |= b),
            _ => out.iter_mut().zip(bytes).for_each(|(a, b)| *a ^= b),
        }
    }
    if len == 0 {
        c.store(to).delete(to);
    } else {
        c.put(to, Data::Str(out), NEVER_MS);
    }
    reply.count(len);
    Ok(())
}

/// The treatment of a number that its field cannot hold.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// An integer in a string.
#[derive(Clone, Copy)]
struct Field {
    signed: bool,
    /// Its width: 1 to 64, or 63 without a sign.
    bits: usize,
    /// Its first bit.
    at: usize,
}

#[derive(Clone, Copy)]
enum Change {
    Get,
    Set(i64),
    Add(i64),
}

impl Field {
    fn parse(kind: &[u8], offset: &[u8]) -> Result<Self, RedisError> {
        let (signed, width) = match kind {
            [b'i', width @ ..] => (true, width),
            [b'u', width @ ..] => (false, width),
            _ => (false, &b""[..]),
        };
        let most = if signed { 64 } else { 63 };
        let bits = parse_int(width).filter(|n| (1..=most).contains(n)).ok_or(RedisError::new(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported \
             but i64 is.",
        ))?;
        let at = match offset {
            [b'#', n @ ..] => parse_int(n).and_then(|n| n.checked_mul(bits)),
            n => parse_int(n),
        };
        Ok(Self { signed, bits: bits as usize, at: in_bounds(at)? })
    }

    fn read(&self, bytes: &[u8]) -> i64 {
        let bits = (self.at..self.at + self.bits).map(|i| u64::from(bit_at(bytes, i)));
        self.fit(bits.fold(0, |n, bit| n << 1 | bit))
    }

    fn write(&self, bytes: &mut [u8], n: i64) {
        for i in 0..self.bits {
            set_bit_at(bytes, self.at + i, n >> (self.bits - 1 - i) & 1 == 1);
        }
    }

    /// The number that the lowest bits of `n` are in this field.
    fn fit(&self, n: u64) -> i64 {
        let unused = 64 - self.bits as u32;
        if self.signed { (n << unused) as i64 >> unused } else { (n << unused >> unused) as i64 }
    }

    /// The value of the field for `n`; none if it cannot hold `n` and must not change.
    fn hold(&self, n: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = match self.signed {
            true => (-(1_i128 << (self.bits - 1)), (1_i128 << (self.bits - 1)) - 1),
            false => (0, (1_i128 << self.bits) - 1),
        };
        match overflow {
            _ if (min..=max).contains(&n) => Some(n as i64),
            Overflow::Wrap => Some(self.fit(n as u64)),
            Overflow::Saturate => Some(n.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }

    /// Does a change to `bytes`, which are long enough: what the field held, and holds now; none if
    /// it cannot hold it and must not change.
    fn change(&self, bytes: &mut [u8], change: Change, overflow: Overflow) -> Option<(i64, i64)> {
        let old = self.read(bytes);
        let wanted = match change {
            Change::Get => return Some((old, old)),
            // Without a sign, a negative number counts as a large one.
            Change::Set(n) if !self.signed => i128::from(n as u64),
            Change::Set(n) => i128::from(n),
            Change::Add(n) => i128::from(old) + i128::from(n),
        };
        let new = self.hold(wanted, overflow)?;
        self.write(bytes, new);
        Some((old, new))
    }
}

/// Fields with what is done to them, in order.
fn parse_fields(args: &[&[u8]]) -> Result<Vec<(Field, Change, Overflow)>, RedisError> {
    let (mut fields, mut overflow) = (Vec::new(), Overflow::Wrap);
    let mut rest = &args[2..];
    while let [word, tail @ ..] = rest {
        match (word.to_ascii_lowercase().as_slice(), tail) {
            (b"overflow", [kind, tail @ ..]) => {
                overflow = match kind.to_ascii_lowercase().as_slice() {
                    b"wrap" => Overflow::Wrap,
                    b"sat" => Overflow::Saturate,
                    b"fail" => Overflow::Fail,
                    _ => return Err(RedisError::new("ERR Invalid OVERFLOW type specified")),
                };
                rest = tail;
            }
            (b"get", [kind, offset, tail @ ..]) => {
                fields.push((Field::parse(kind, offset)?, Change::Get, overflow));
                rest = tail;
            }
            (word @ (b"set" | b"incrby"), [kind, offset, n, tail @ ..]) => {
                let (field, n) = (Field::parse(kind, offset)?, int(n)?);
                let change = if word == b"set" { Change::Set(n) } else { Change::Add(n) };
                fields.push((field, change, overflow));
                rest = tail;
            }
            _ => return Err(RedisError::SYNTAX),
        }
    }
    Ok(fields)
}

/// Bytes that a string has after a `BITFIELD`, at least; none if it writes nothing.
pub(crate) fn bitfield_bytes(args: &[&[u8]]) -> Option<usize> {
    written_bits(&parse_fields(args).ok()?).map(|bits| bits.div_ceil(8))
}

fn written_bits(fields: &[(Field, Change, Overflow)]) -> Option<usize> {
    let written = fields.iter().filter(|(_, change, _)| !matches!(change, Change::Get));
    written.map(|(field, ..)| field.at + field.bits).max()
}

fn bitfield(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (key, fields) = (args[1], parse_fields(args)?);
    let Some(end) = written_bits(&fields) else {
        return read_fields(c, key, &fields, reply);
    };
    let store = c.store(key);
    let bytes = store.get_or_new::<Str>(key)?;
    let (grew, mut changed) = (grow(bytes, end), false);
    reply.array(fields.len());
    for (field, change, overflow) in fields {
        let done = field.change(bytes, change, overflow);
        changed |= done.is_some_and(|(old, new)| grew || old != new);
        match (done, change) {
            (Some((old, _)), Change::Set(_)) => reply.int(old),
            (Some((_, new)), _) => reply.int(new),
            (None, _) => reply.null(),
        }
    }
    if changed {
        store.touch(key);
    }
    Ok(())
}

fn bitfield_ro(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let fields = parse_fields(args)?;
    if fields.iter().any(|(_, change, _)| !matches!(change, Change::Get)) {
        return Err(RedisError::new("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read_fields(c, args[1], &fields, reply)
}

fn read_fields(
    c: &Context<'_>,
    key: &[u8],
    fields: &[(Field, Change, Overflow)],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let bytes = c.get::<Str>(key)?.map_or(&[][..], Vec::as_slice);
    reply.array(fields.len());
    fields.iter().for_each(|(field, ..)| reply.int(field.read(bytes)));
    Ok(())
}
