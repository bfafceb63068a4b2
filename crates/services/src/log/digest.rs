//! A shard's logs as a [slice](crate::digest) covers them: in order of their names, each with how far it goes and its
//! values.
//!
//! A cursor is the position of the first value of its slice, in 64 bits, and the name of its log. Where values lie in
//! files, their lengths are covered, and of every so many one value whole: those files have checksums of their
//! own, and to read all would take the disk's time from commands.

use super::shard::LogShard;
use super::storage::{Storage, Values};
use crate::digest::Slice;
use std::borrow::Cow;

/// Of so many values in files one is read.
const SAMPLE: u64 = 1024;

/// Covers the logs from where `slice` begins.
pub(super) fn cover(shard: &LogShard<Values>, slice: &mut Slice<'_>) {
    let (from, first) = match slice.from().split_first_chunk() {
        Some((position, name)) => (u64::from_le_bytes(*position), name),
        None => (0, &b""[..]),
    };
    for (name, log) in shard.beginning_at(first) {
        let end = |position: u64| [&position.to_le_bytes()[..], name].concat();
        if slice.is_full() {
            return slice.end_at(end(0));
        }
        slice.item();
        slice.bytes(name);
        slice.word(log.first);
        slice.word(log.next());
        let from = if name == first { from.max(log.first) } else { log.first };
        let skipped = (from - log.first).min(log.places.len() as u64) as usize;
        for (position, place) in (from..).zip(log.places.range(skipped..)) {
            slice.item();
            let value = match shard.storage() {
                Values::Files(_) if position % SAMPLE > 0 => Cow::Borrowed(&b""[..]),
                storage => storage.get(place),
            };
            slice.word(shard.storage().len(place) as u64);
            slice.bytes(&value);
            if slice.is_full() {
                return slice.end_at(end(position + 1));
            }
        }
    }
}
