//! How many different elements were seen, about: HyperLogLog with Redis's hash and estimate, so that
//! counts are the same.
//!
//! A counter is a string: a head of 16 bytes, then 16384 registers, in one of two forms. The long one (dense) has 6 bits
//! for each, 12 KiB in all; the short one ([`sparse`]) has runs of equal ones, and is what a counter begins with. The
//! bytes are those of Redis. The head has room for the last estimate: `PFCOUNT` uses one that is there, and, other
//! than that of Redis, puts none there, since what reads changes nothing here.

mod sparse;

use super::super::Context;
use super::super::data::{Data, Str};
use super::super::registry::{CommandSpec, EACH, KeyArguments, ONE};
use super::super::reply::{RedisError, Reply};
use super::super::store::NEVER_MS;
use super::super::work;

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered("pfadd", -2, "write denyoom fast", ONE, pfadd, "Has elements counted.")
        .taking(work::of_pfadd),
    CommandSpec::ordered(
        "pfcount",
        -2,
        "readonly",
        EACH,
        pfcount,
        "Estimates how many different elements were counted.",
    )
    .taking(work::of_counters),
    CommandSpec::ordered(
        "pfmerge",
        -2,
        "write denyoom",
        EACH,
        pfmerge,
        "Makes a counter of all that others counted.",
    )
    .taking(work::of_pfmerge),
    CommandSpec::ordered(
        "pfdebug",
        3,
        "write denyoom admin",
        KeyArguments::Range { first: 2, last: 2, step: 1 },
        pfdebug,
        "Shows how a counter is kept, or has it kept in the long form.",
    )
    .taking(work::of_pfdebug),
];

pub(crate) use sparse::BYTES_MAX as SPARSE_BYTES_MAX;

/// Bits of a hash that choose the register.
const INDEX_BITS: usize = 14;
pub(crate) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash that are left: a register holds how many of them are zero up to the first one, and
/// one more.
const RANK_BITS: usize = 64 - INDEX_BITS;
const REGISTER_BITS: usize = 6;
const HEAD_BYTES: usize = 16;
const BYTES: usize = HEAD_BYTES + REGISTERS * REGISTER_BITS / 8;
const MAGIC: &[u8] = b"HYLL";

/// Where the head says in which form the registers are.
const ENCODING_AT: usize = MAGIC.len();
const DENSE: u8 = 0;
const SPARSE: u8 = 1;

/// Where the head has the last estimate; the highest bit of its last byte says that it is not of these registers.
const ESTIMATE_AT: usize = 8;
const STALE: u8 = 0x80;

const BAD: RedisError = RedisError::fixed("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPT: RedisError = RedisError::fixed("INVALIDOBJ Corrupted HLL object detected");

/// An empty counter in the long form.
fn empty_dense() -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes
}

/// Whether the string is a counter in the short form.
///
/// # Errors
/// When it is no counter.
fn is_sparse(bytes: &[u8]) -> Result<bool, RedisError> {
    if bytes.len() < HEAD_BYTES || !bytes.starts_with(MAGIC) {
        return Err(BAD);
    }
    match bytes[ENCODING_AT] {
        DENSE if bytes.len() == BYTES => Ok(false),
        SPARSE => Ok(true),
        _ => Err(BAD),
    }
}

/// Bytes of a string that are read as runs of registers, at the most: none of a counter in the long form, and of what is none.
pub(crate) fn run_bytes(bytes: &[u8]) -> usize {
    match is_sparse(bytes) {
        Ok(true) => bytes.len().min(sparse::WHOLE_BYTES_MAX),
        Ok(false) | Err(_) => 0,
    }
}

/// Whether the string is a counter in the long form.
pub(crate) fn is_dense(bytes: &[u8]) -> bool {
    is_sparse(bytes) == Ok(false)
}

/// Refuses what is no counter, and one whose registers are not all there.
fn checked(bytes: &Str) -> Result<&Str, RedisError> {
    match is_sparse(bytes)? && !sparse::is_whole(bytes) {
        true => Err(CORRUPT),
        false => Ok(bytes),
    }
}

/// The counter of a key, if there is one.
fn counter<'a>(c: &'a Context<'_>, key: &[u8]) -> Result<Option<&'a Str>, RedisError> {
    c.get::<Str>(key)?.map(checked).transpose()
}

/// The estimate that its head has, if it is of its registers.
fn kept_estimate(counter: &[u8]) -> Option<u64> {
    let bytes = counter[ESTIMATE_AT..HEAD_BYTES].try_into().expect("eight bytes");
    (counter[HEAD_BYTES - 1] & STALE == 0).then(|| u64::from_le_bytes(bytes))
}

/// Calls `each` with the registers in order: where some begin that have the same value, how many, and the value.
fn each_run(counter: &[u8], mut each: impl FnMut(usize, usize, u8)) {
    if counter[ENCODING_AT] == DENSE {
        return (0..REGISTERS).for_each(|i| each(i, 1, register(counter, i)));
    }
    let mut index = 0;
    for run in sparse::runs(counter) {
        each(index, run.len, run.value);
        index += run.len;
    }
}

/// Has a register of a whole counter have `rank` at least; whether that is new.
fn raise(counter: &mut Str, index: usize, rank: u8) -> bool {
    if counter[ENCODING_AT] == SPARSE {
        match sparse::raise(counter, index, rank) {
            sparse::Raise::Kept => return false,
            sparse::Raise::Raised => return true,
            sparse::Raise::NeedsDense => *counter = sparse::to_dense(counter),
        }
    }
    let rises = register(counter, index) < rank;
    if rises {
        set_register(counter, index, rank);
    }
    rises
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

/// How many different elements a counter has seen of whose registers so many have each value: Ertl's estimate, as in Redis since version 4.
fn estimate(histogram: &[u32; 64]) -> u64 {
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let m = REGISTERS as f64;
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

fn pfadd(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (key, known) = (args[1], counter(c, args[1])?.is_some());
    if !known {
        c.put(key, Data::Str(sparse::empty()), NEVER_MS);
    }
    let (store, mut changed) = (c.store(key), !known);
    if let Some(bytes) = store.get_mut::<Str>(key)? {
        for (index, rank) in args[2..].iter().map(|element| place(element)) {
            changed |= raise(bytes, index, rank);
        }
        if changed {
            bytes[HEAD_BYTES - 1] |= STALE;
        }
    }
    if changed {
        store.touch(key);
    }
    reply.flag(changed);
    Ok(())
}

/// The highest value that each register has in any of the counters, and whether one of them is in the long form.
fn highest(c: &Context<'_>, keys: &[&[u8]]) -> Result<(Vec<u8>, bool), RedisError> {
    let (mut all, mut any_dense) = (vec![0; REGISTERS], false);
    for key in keys {
        let Some(bytes) = counter(c, key)? else { continue };
        any_dense |= bytes[ENCODING_AT] == DENSE;
        each_run(bytes, |first, len, rank| {
            // Most of a short one are zero, and cost nothing.
            if rank > 0 {
                all[first..first + len]
                    .iter_mut()
                    .for_each(|highest| *highest = rank.max(*highest));
            }
        });
    }
    Ok((all, any_dense))
}

fn pfcount(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let mut histogram = [0_u32; 64];
    if let [key] = &args[1..] {
        let Some(bytes) = counter(c, key)? else {
            reply.int(0);
            return Ok(());
        };
        if let Some(kept) = kept_estimate(bytes) {
            reply.int(kept as i64);
            return Ok(());
        }
        each_run(bytes, |_, len, rank| histogram[usize::from(rank)] += len as u32);
    } else {
        let (all, _) = highest(c, &args[1..])?;
        all.into_iter().for_each(|rank| histogram[usize::from(rank)] += 1);
    }
    reply.int(estimate(&histogram) as i64);
    Ok(())
}

fn pfmerge(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let key = args[1];
    let (all, any_dense) = highest(c, &args[1..])?;
    let mut into = counter(c, key)?.map_or_else(sparse::empty, Clone::clone);
    if any_dense && into[ENCODING_AT] == SPARSE {
        into = sparse::to_dense(&into);
    }
    for (index, rank) in all.into_iter().enumerate().filter(|(_, rank)| *rank > 0) {
        raise(&mut into, index, rank);
    }
    into[HEAD_BYTES - 1] |= STALE;
    let deadline_ms = c.find(key).map_or(NEVER_MS, |e| e.deadline_ms);
    c.put(key, Data::Str(into), deadline_ms);
    reply.ok();
    Ok(())
}

/// Has a counter kept in the long form; whether it was not.
fn make_dense(c: &mut Context<'_>, key: &[u8]) -> Result<bool, RedisError> {
    let store = c.store(key);
    let Some(bytes) = store.get::<Str>(key)? else { return Ok(false) };
    if checked(bytes)?[ENCODING_AT] == DENSE {
        return Ok(false);
    }
    if let Some(bytes) = store.get_mut::<Str>(key)? {
        *bytes = sparse::to_dense(bytes);
    }
    store.touch(key);
    Ok(true)
}

fn pfdebug(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let key = args[2];
    let Some(bytes) = c.get::<Str>(key)? else {
        return Err(RedisError::new("ERR The specified key does not exist"));
    };
    let is_sparse = is_sparse(bytes)?;
    match args[1].to_ascii_lowercase().as_slice() {
        b"encoding" => reply.simple(if is_sparse { "sparse" } else { "dense" }),
        b"decode" if is_sparse => reply.simple(&sparse::decode_text(checked(bytes)?)),
        b"decode" => return Err(RedisError::new("ERR HLL encoding is not sparse")),
        b"todense" => {
            let changed = make_dense(c, key)?;
            reply.flag(changed);
        }
        b"getreg" => {
            make_dense(c, key)?;
            let bytes = counter(c, key)?.ok_or(BAD)?;
            reply.array(REGISTERS);
            each_run(bytes, |_, _, rank| reply.int(i64::from(rank)));
        }
        _ => {
            let word = String::from_utf8_lossy(args[1]);
            return Err(RedisError::new(format!("ERR Unknown PFDEBUG subcommand '{word}'")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_estimate_is_used_until_it_is_stale() {
        let mut counter = sparse::empty();
        assert_eq!(kept_estimate(&counter), Some(0));
        counter[ESTIMATE_AT..HEAD_BYTES].copy_from_slice(&77_u64.to_le_bytes());
        assert_eq!(kept_estimate(&counter), Some(77));
        counter[HEAD_BYTES - 1] |= STALE;
        assert_eq!(kept_estimate(&counter), None);
    }

    #[test]
    fn what_no_run_can_say_makes_a_counter_dense_with_the_same_registers() {
        let mut counter = sparse::empty();
        assert!(raise(&mut counter, 5, 7) && raise(&mut counter, 9, 51));
        assert_eq!((counter.len(), counter[ENCODING_AT]), (BYTES, DENSE));
        assert_eq!([5, 9, 10].map(|i| register(&counter, i)), [7, 51, 0]);
        assert!(!raise(&mut counter, 9, 50) && raise(&mut counter, 10, 1));
    }

    #[test]
    fn what_is_no_counter_is_refused_and_a_damaged_one_is_told_apart() {
        let sparse = sparse::empty();
        let cut = sparse[..sparse.len() - 1].to_vec();
        let other = [&sparse[..ENCODING_AT], &[2], &sparse[ENCODING_AT + 1..]].concat();
        let why = |bytes: &Vec<u8>| checked(bytes).err().map(|e| e.text().to_string());
        assert_eq!(why(&sparse), None);
        assert!(why(&cut).is_some_and(|why| why.starts_with("INVALIDOBJ")));
        for bad in [other, b"HYLL".to_vec(), empty_dense()[1..].to_vec(), vec![0; BYTES]] {
            assert!(why(&bad).is_some_and(|why| why.starts_with("WRONGTYPE Key is not")));
        }
    }
}
