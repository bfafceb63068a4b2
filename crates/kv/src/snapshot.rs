//! One shard's keys as bytes: the map of partitions, and how far a move of keys came (a one if all have
//! moved, and else a zero and the hash up to which they have); both only since version 7. Then what the keys may take in
//! bytes, and a mark of the seed of their hashes, since version 9. Then entries in the order of their hashes, with the
//! time of their last change since version 15, then the marks of watched keys, each behind a byte that says that one follows; a zero ends either list. Collections keep
//! their dense order, which a random choice of a member depends on.
//!
//! A command that changes an entry which was not given yet copies it first, which takes as long as
//! the value is large; once for a value and a snapshot.

use super::Partitions;
use super::data::{Data, Hash, List, Set, Sorted};
use super::store::{AbsentKeyWatch, Bucket, KeyEntry, MoveProgress, Store};
use super::walk::GivenValue;
use amcast_smr::machine::Corrupt;
use amcast_smr::stream::{Piece, StreamReader, follows, next};

/// The version of the stream since which it holds the map of partitions; before, it was the first one.
const PARTITIONS_SINCE: u8 = 7;

/// The version of the stream since which it holds what the keys may take, which was any number before, and which
/// [seed](super::HashSeed) their hashes are made with, which was the same for all.
const BUDGET_SINCE: u8 = 9;

/// The version of the stream since which it says when each key was changed last.
const CHANGED_SINCE: u8 = 15;

const STR: u8 = 0;
const LIST: u8 = 1;
const HASH: u8 = 2;
const SET: u8 = 3;
const SORTED: u8 = 4;

/// Gives the next part of the store's snapshot; false if that was all.
pub(crate) fn give(store: &mut Store, piece: &mut Piece<'_>) -> bool {
    let Some((snapshot, by_hash, marks)) = store.snapshot() else { return false };
    if let Some((map, moved, budget)) = snapshot.head.take() {
        give_map(&map, moved, piece);
        piece.word(budget);
        piece.word(snapshot.seed.mark());
    }
    let room = |piece: &mut Piece<'_>| {
        piece.look();
        !piece.is_full()
    };
    if let Some(walk) = &mut snapshot.entries {
        let within = &mut snapshot.within;
        if walk.give(by_hash, piece, room, |piece, _, bucket| give_bucket(bucket, within, piece)) {
            return true;
        }
        next(false, piece);
        snapshot.entries = None;
    }
    if let Some(walk) = &mut snapshot.marks {
        let more = walk.give(marks, piece, room, |piece, key, mark| {
            next(true, piece);
            piece.bytes(key);
            piece.word(mark.version);
            piece.word(mark.deadline_ms);
            GivenValue::Whole
        });
        if more {
            return true;
        }
        next(false, piece);
        snapshot.marks = None;
    }
    store.end_cut();
    false
}

fn give_map(map: &Partitions, moved: MoveProgress, piece: &mut Piece<'_>) {
    let mut bytes = Vec::new();
    map.encode(&mut bytes);
    piece.bytes(&bytes);
    let (all, below) = match moved {
        MoveProgress::Below(hash) => (0, hash),
        MoveProgress::All => (1, 0),
    };
    piece.byte(all);
    piece.word(below);
}

fn read_map(from: &mut StreamReader<'_>, store: &mut Store) -> Result<(), Corrupt> {
    let bytes = from.bytes()?;
    let (map, rest) = Partitions::decode(&bytes).ok_or(Corrupt::Malformed)?;
    let moved = match (from.byte()?, from.word()?) {
        (0, hash) => MoveProgress::Below(hash),
        (1, 0) => MoveProgress::All,
        _ => return Err(Corrupt::Malformed),
    };
    // A cluster's shards and the order of its keys stay the same.
    let same = map.shards() == store.map().shards() && map.is_by_key() == store.map().is_by_key();
    if !rest.is_empty() || !same {
        return Err(Corrupt::Malformed);
    }
    store.go_on(map.into(), moved);
    Ok(())
}

fn give_bucket(
    bucket: &Bucket,
    (entry, within): &mut (usize, Option<usize>),
    piece: &mut Piece<'_>,
) -> GivenValue {
    for KeyEntry { key, data, version, deadline_ms, changed_ms, .. } in bucket.iter().skip(*entry) {
        let from = within.unwrap_or_else(|| {
            next(true, piece);
            piece.bytes(key);
            piece.word(*version);
            piece.word(*deadline_ms);
            piece.word(*changed_ms);
            let (kind, len) = shape(data);
            piece.byte(kind);
            piece.word(len as u64);
            0
        });
        let to = from + give_data(data, from, piece);
        if to < shape(data).1 {
            *within = Some(to);
            return GivenValue::Part;
        }
        *within = None;
        *entry += 1;
    }
    *entry = 0;
    GivenValue::Whole
}

/// The kind of the data, and the number of its bytes or elements.
pub(super) fn shape(data: &Data) -> (u8, usize) {
    match data {
        Data::Str(s) => (STR, s.len()),
        Data::List(l) => (LIST, l.len()),
        Data::Hash(h) => (HASH, h.len()),
        Data::Set(s) => (SET, s.len()),
        Data::Sorted(z) => (SORTED, z.len()),
    }
}

/// Gives bytes or elements from the one numbered `from` on; how many.
fn give_data(data: &Data, from: usize, piece: &mut Piece<'_>) -> usize {
    match data {
        Data::Str(s) => piece.some(&s[from..]),
        Data::List(l) => give_each(l.range(from..), piece, |piece, b| piece.bytes(b)),
        Data::Hash(h) => {
            let rest = h.get_range(from..).expect("it has so many").iter();
            give_each(rest, piece, |piece, (field, value)| {
                piece.bytes(field);
                piece.bytes(value);
            })
        }
        Data::Set(s) => {
            let rest = s.get_range(from..).expect("it has so many").iter();
            give_each(rest, piece, |piece, b| piece.bytes(b))
        }
        Data::Sorted(z) => give_each(z.dense_from(from), piece, |piece, (member, score)| {
            piece.bytes(member);
            piece.word(score.to_bits());
        }),
    }
}

fn give_each<T>(
    items: impl Iterator<Item = T>,
    piece: &mut Piece<'_>,
    give: impl Fn(&mut Piece<'_>, T),
) -> usize {
    let mut n = 0;
    for item in items {
        if piece.is_full() {
            break;
        }
        give(piece, item);
        n += 1;
    }
    n
}

/// Fills an empty `store` with what [`give`] gave.
pub(crate) fn read(from: &mut StreamReader<'_>, store: &mut Store) -> Result<(), Corrupt> {
    if from.version() >= PARTITIONS_SINCE {
        read_map(from, store)?;
    }
    // Before, there was the one seed in the source.
    let (budget, mark) = match from.version() {
        BUDGET_SINCE.. => (from.word()?, from.word()?),
        _ => (0, 0),
    };
    if mark != store.seed().mark() {
        return Err(Corrupt::Seed);
    }
    store.set_budget(budget);
    let now_ms = store.now_ms;
    while follows(from)? {
        let key = from.bytes()?;
        let (version, deadline_ms) = (from.word()?, from.word()?);
        let changed_ms = if from.version() >= CHANGED_SINCE { from.word()? } else { 0 };
        let data = read_data(from)?;
        (store.version, store.now_ms) = (version, changed_ms);
        store.put(&key, data, deadline_ms);
    }
    store.now_ms = now_ms;
    while follows(from)? {
        let key = from.bytes()?;
        let (version, deadline_ms) = (from.word()?, from.word()?);
        store.put_mark(&key, AbsentKeyWatch { version, deadline_ms });
    }
    Ok(())
}

fn read_data(from: &mut StreamReader<'_>) -> Result<Data, Corrupt> {
    let kind = from.byte()?;
    if kind == STR {
        return Ok(Data::Str(from.bytes()?));
    }
    let len = from.word()?;
    if len == 0 {
        return Err(Corrupt::Malformed);
    }
    Ok(match kind {
        LIST => {
            let list: Result<List, _> = (0..len).map(|_| Ok(from.bytes()?.into())).collect();
            Data::List(list?.into())
        }
        HASH => {
            let mut hash = Hash::default();
            for _ in 0..len {
                hash.set(&from.bytes()?, from.bytes()?.into());
            }
            Data::Hash(hash.into())
        }
        SET => {
            let set: Result<Set, _> = (0..len).map(|_| Ok(from.bytes()?.into())).collect();
            Data::Set(set?.into())
        }
        SORTED => {
            let mut sorted = Sorted::default();
            for _ in 0..len {
                let (member, score) = (from.bytes()?, f64::from_bits(from.word()?));
                if score.is_nan() {
                    return Err(Corrupt::Malformed);
                }
                sorted.set(&member, score);
            }
            Data::Sorted(Box::new(sorted))
        }
        _ => return Err(Corrupt::Malformed),
    })
}
