//! A shard's logs as a [slice](amcast_smr::digest) covers them: in order of their names, each with how far it goes and its
//! values.
//!
//! A cursor is the position of the first value of its slice, in 64 bits, and the name of its log. Of values in files
//! only what they come to is covered: those files have checksums of their own, and to read all of them would take
//! the disk's time from commands.

use super::shard::LogShard;
use super::storage::ValueStorage;
use amcast_smr::digest::Slice;

/// Covers the logs from where `slice` begins.
pub(super) fn cover(shard: &LogShard<ValueStorage>, slice: &mut Slice<'_>) {
    let (from, first) = match slice.from().split_first_chunk() {
        Some((position, name)) => (u64::from_le_bytes(*position), name),
        None => (0, &b""[..]),
    };
    for (name, log) in shard.beginning_at(first) {
        let end = |position: u64| [&position.to_le_bytes()[..], name].concat();
        if slice.is_full() {
            return slice.end_at(end(0));
        }
        let extent = log.extent;
        slice.item();
        slice.bytes(name);
        for word in [extent.first, extent.next, extent.bytes, extent.incarnation] {
            slice.word(word);
        }
        let from = if name == first { from.max(extent.first) } else { extent.first };
        for (position, value) in (from..).zip(log.row.in_memory(from)) {
            slice.item();
            slice.bytes(value);
            if slice.is_full() {
                return slice.end_at(end(position + 1));
            }
        }
    }
}
