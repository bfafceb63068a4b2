//! How many different elements were seen, about: HyperLogLog with Redis's hash and estimate, so that
//! counts are the same.
//!
//! A counter is a string: a head of 16 bytes, then 16384 registers of 6 bits, as Redis's dense form
//! has it. Redis keeps small counters in a shorter form; here all have this one, of 12 KiB.

use super::super::Context;
use super::super::data::{Data, Str};
use super::super::registry::{Command, EACH, ONE};
use super::super::reply::{Error, Reply};
use super::super::store::NEVER_MS;
use super::super::work;

pub(crate) const COMMANDS: &[Command] = &[
    Command::ordered("pfadd", -2, "write denyoom fast", ONE, pfadd, "Has elements counted."),
    Command::ordered(
        "pfcount",
        -2,
        "readonly",
        EACH,
        pfcount,
        "Estimates how many different elements were counted.",
    )
    .taking(work::of_counters),
    Command::ordered(
        "pfmerge",
        -2,
        "write denyoom",
        EACH,
        pfmerge,
        "Makes a counter of all that others counted.",
    )
    .taking(work::of_counters),
];

/// Bits of a hash that choose the register.
const INDEX_BITS: usize = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash that are left: a register holds how many of them are zero up to the first one, and
/// one more.
const RANK_BITS: usize = 64 - INDEX_BITS;
const REGISTER_BITS: usize = 6;
const HEAD_BYTES: usize = 16;
const BYTES: usize = HEAD_BYTES + REGISTERS * REGISTER_BITS / 8;
const MAGIC: &[u8] = b"HYLL";

const BAD: Error =
    Error(std::borrow::Cow::Borrowed("WRONGTYPE Key is not a valid HyperLogLog string value."));

/// An empty counter. The highest bit of the head's last byte says that no estimate is kept there.
fn empty() -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[HEAD_BYTES - 1] = 0x80;
    bytes
}

fn checked(bytes: &Str) -> Result<&Str, Error> {
    let good = bytes.len() == BYTES && bytes.starts_with(MAGIC) && bytes[MAGIC.len()] == 0;
    if good { Ok(bytes) } else { Err(BAD) }
}

/// The counter of a key, if there is one.
fn counter<'a>(c: &'a Context<'_>, key: &[u8]) -> Result<Option<&'a Str>, Error> {
    c.get::<Str>(key)?.map(checked).transpose()
}

/// The register at `index`; the last one ends with the string.
fn register(bytes: &[u8], index: usize) -> u8 {
    let at = index * REGISTER_BITS;
    let low = bytes[HEAD_BYTES + at / 8];
    let high = bytes.get(HEAD_BYTES + at / 8 + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([low, high]) >> (at % 8)) as u8 & 0x3f
}

fn set_register(bytes: &mut [u8], index: usize, to: u8) {
    let at = index * REGISTER_BITS;
    let (byte, shift) = (HEAD_BYTES + at / 8, at % 8);
    let mask = (0x3f_u16 << shift).to_le_bytes();
    let value = (u16::from(to) << shift).to_le_bytes();
    bytes[byte] = bytes[byte] & !mask[0] | value[0];
    if mask[1] != 0 {
        bytes[byte + 1] = bytes[byte + 1] & !mask[1] | value[1];
    }
}

/// The register that an element belongs to, and what it makes of it at least.
fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let rest = hash >> INDEX_BITS | 1 << RANK_BITS;
    (hash as usize % REGISTERS, rest.trailing_zeros() as u8 + 1)
}

/// `MurmurHash64A` with Redis's seed.
fn murmur(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0xadc8_3b19;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let k = u64::from_le_bytes(*word).wrapping_mul(M);
        hash = (hash ^ (k ^ k >> 47).wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

/// How many different elements a counter has seen: Ertl's estimate, as in Redis since version 4.
fn estimate(bytes: &[u8]) -> u64 {
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let m = REGISTERS as f64;
    let mut histogram = [0_u32; 64];
    (0..REGISTERS).for_each(|i| histogram[usize::from(register(bytes, i))] += 1);
    let mut z = m * tau((m - f64::from(histogram[RANK_BITS + 1])) / m);
    for count in histogram[1..=RANK_BITS].iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += m * sigma(f64::from(histogram[0]) / m);
    (ALPHA * m * m / z).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

fn pfadd(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    let (key, known) = (args[1], counter(c, args[1])?.is_some());
    if !known {
        c.put(key, Data::Str(empty()), NEVER_MS);
    }
    let (store, mut changed) = (c.store(key), !known);
    if let Some(bytes) = store.get_mut::<Str>(key)? {
        for (index, rank) in args[2..].iter().map(|element| place(element)) {
            if register(bytes, index) < rank {
                set_register(bytes, index, rank);
                changed = true;
            }
        }
    }
    if changed {
        store.touch(key);
    }
    reply.flag(changed);
    Ok(())
}

/// A counter of all that those of `keys` counted.
fn merged(c: &Context<'_>, keys: &[&[u8]]) -> Result<Vec<u8>, Error> {
    let mut all = empty();
    for key in keys {
        let Some(bytes) = counter(c, key)? else { continue };
        for i in 0..REGISTERS {
            let rank = register(bytes, i);
            if register(&all, i) < rank {
                set_register(&mut all, i, rank);
            }
        }
    }
    Ok(all)
}

fn pfcount(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    let count = match &args[1..] {
        [key] => counter(c, key)?.map_or(0, |bytes| estimate(bytes)),
        keys => estimate(&merged(c, keys)?),
    };
    reply.int(count as i64);
    Ok(())
}

fn pfmerge(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    let all = merged(c, &args[1..])?;
    let deadline_ms = c.find(args[1]).map_or(NEVER_MS, |e| e.deadline_ms);
    c.put(args[1], Data::Str(all), deadline_ms);
    reply.ok();
    Ok(())
}
