//! One shard's keys as a [slice](amcast_smr::digest) covers them.
//!
//! A cursor begins with a byte: one of entries is followed by the hash of the first key and how many bytes or elements
//! of its value were covered before, both of 64 bits, one of marks by the first key. Without a cursor the slice begins
//! with what is neither: the map of partitions, how far a move came, and the budget.
//!
//! Expired entries are skipped and do not count, not even as a visit: one replica may have dropped
//! them, and another one not yet.

use super::data::Data;
use super::snapshot::shape;
use super::store::{KeyEntry, MoveProgress, Store};
use amcast_smr::digest::{Slice, of_words};

const ENTRIES: u8 = 1;
const MARKS: u8 = 2;

/// Covers the keys from where `slice` begins.
pub(super) fn cover(store: &Store, slice: &mut Slice<'_>) {
    let from = slice.from();
    match from.split_first() {
        None => {
            cover_head(store, slice);
            entries(store, (0, 0), slice);
        }
        Some((&ENTRIES, rest)) => {
            let word = |i: usize| rest.get(i..i + 8).and_then(|word| word.try_into().ok());
            let word = |i: usize| word(i).map_or(0, u64::from_le_bytes);
            entries(store, (word(0), word(8) as usize), slice);
        }
        Some((_, key)) => marks(store, key, slice),
    }
}

fn cover_head(store: &Store, slice: &mut Slice<'_>) {
    let mut map = Vec::new();
    store.map().encode(&mut map);
    slice.bytes(&map);
    slice.word(match store.moved() {
        MoveProgress::Below(hash) => hash,
        MoveProgress::All => 1,
    });
    slice.word(u64::from(store.moved() == MoveProgress::All));
    slice.word(store.budget());
    slice.word(store.seed().mark());
}

fn entries(store: &Store, (from, covered): (u64, usize), slice: &mut Slice<'_>) {
    let now_ms = slice.now_ms();
    let live = |e: &&KeyEntry| e.deadline_ms >= now_ms;
    for (hash, bucket) in store.buckets(from) {
        let end = |covered: usize| {
            let numbers = [*hash, covered as u64].map(u64::to_le_bytes);
            [&[ENTRIES][..], &numbers[0], &numbers[1]].concat()
        };
        let Some(first) = bucket.iter().find(live) else { continue };
        if slice.is_full() {
            return slice.end_at(end(0));
        }
        slice.item();
        slice.word(*hash);
        if bucket.iter().filter(live).count() > 1 {
            cover_many(bucket.iter().filter(live), slice);
            continue;
        }
        let before = if *hash == from { covered } else { 0 };
        head(first, |word| slice.word(word));
        slice.bytes(&first.key);
        let after = value(&first.data, before, slice);
        if after < shape(&first.data).1 {
            return slice.end_at(end(after));
        }
    }
    if slice.is_full() {
        return slice.end_at(vec![MARKS]);
    }
    marks(store, b"", slice);
}

/// The fields that distinguish an entry from another one of the same key, beside its value. The time of the last change
/// is omitted: replicas that began with states of an earlier version know it of different keys.
fn head(entry: &KeyEntry, mut tell: impl FnMut(u64)) {
    let (kind, len) = shape(&entry.data);
    [entry.version, entry.deadline_ms, u64::from(kind), len as u64].into_iter().for_each(&mut tell);
}

/// Covers bytes or elements of a value from the one numbered `from` on, at least one; up to which.
fn value(data: &Data, from: usize, slice: &mut Slice<'_>) -> usize {
    let len = shape(data).1;
    slice.word(from.min(len) as u64);
    if let Data::Str(bytes) = data {
        return from + slice.some(bytes.get(from..).unwrap_or_default());
    }
    let mut covered = from;
    each_from(data, from, &mut |element, more| {
        slice.item();
        slice.bytes(element);
        slice.bytes(more);
        covered += 1;
        !slice.is_full()
    });
    covered.max(from)
}

/// Gives the elements of a value that is no string, from the one numbered `from` on and in their dense order, each with
/// what belongs to it, as long as the answer is yes.
fn each_from(data: &Data, from: usize, give: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
    match data {
        Data::Str(_) => {}
        Data::List(l) => _ = l.range(from.min(l.len())..).all(|element| give(element, b"")),
        Data::Hash(h) => {
            let rest = h.get_range(from..).into_iter().flatten();
            _ = rest.into_iter().all(|(field, value)| give(field, value));
        }
        Data::Set(s) => {
            let rest = s.get_range(from..).into_iter().flatten();
            _ = rest.into_iter().all(|member| give(member, b""));
        }
        Data::Sorted(z) => {
            _ = z
                .dense_from(from)
                .all(|(member, score)| give(member, &score.to_bits().to_le_bytes()));
        }
    }
}

/// Covers keys of one hash, whose order may not be the same at all replicas. They are few, but for those that somebody
/// chose, and so are covered whole.
fn cover_many<'a>(entries: impl Iterator<Item = &'a KeyEntry>, slice: &mut Slice<'_>) {
    let sum = entries.fold(0_u64, |sum, entry| {
        let mut words = Vec::new();
        head(entry, |word| words.push(word));
        let mut bytes = entry.key.to_vec();
        match &entry.data {
            Data::Str(value) => bytes.extend_from_slice(value),
            data => each_from(data, 0, &mut |element, more| {
                bytes.extend_from_slice(element);
                bytes.extend_from_slice(more);
                true
            }),
        }
        slice.item();
        sum.wrapping_add(of_words(&words, &bytes))
    });
    slice.word(sum);
}

/// Bytes of a key that a cursor names: the next slice may cover some keys again, and never leaves one out.
const CURSOR_BYTES_MAX: usize = 200;

fn marks(store: &Store, from: &[u8], slice: &mut Slice<'_>) {
    let now_ms = slice.now_ms();
    for (key, mark) in store.marks_from(from).filter(|(_, mark)| mark.deadline_ms >= now_ms) {
        let begins = &key[..key.len().min(CURSOR_BYTES_MAX)];
        // If it came no further than this one, it would never end.
        if slice.is_full() && begins > from {
            return slice.end_at([&[MARKS], begins].concat());
        }
        slice.item();
        slice.bytes(key);
        slice.word(mark.version);
        slice.word(mark.deadline_ms);
    }
}
