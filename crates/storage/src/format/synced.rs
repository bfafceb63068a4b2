//! How far a log was synced, and where it begins: a small file beside its segments, with the same head in up to
//! three places.
//!
//! ```text
//!  0  8  magic "amcastLM"          16 16  id of the log
//!  8  4  version, 1                32  8  records before this number were synced
//! 12  4  zero                      40  8  1 more than the number up to which it was trimmed, 0 if unknown
//!                                  48 12  zero
//!                                  60  4  crc32c of bytes 0 to 59
//! ```
//!
//! Each place is in a block of its own. Every head that is whole is true: the highest numbers count.

use super::{HEAD_BYTES, LogId, head, open, put, seal, u64_at, u128_at};
use crate::error::Misfit;

/// The newest version; all from 1 to it can be read.
pub(crate) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"amcastLM";

/// Its name.
pub(crate) const NAME: &str = "synced";
/// Its name until it is whole.
pub(crate) const NEW_NAME: &str = "synced.new";

/// How many places it has.
pub(crate) const PLACES: usize = 3;
/// How far they are apart, in bytes.
pub(crate) const PLACE_BYTES: usize = 4096;
/// How long it is.
pub(crate) const FILE_BYTES: usize = PLACES * PLACE_BYTES;

/// The records that a log must have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SyncedRange {
    /// The records before this number were synced.
    pub(crate) end: u64,
    /// A segment that has only records before this number may have been given up, and no other. None if nothing
    /// says so: versions before did not write it.
    pub(crate) trimmed: Option<u64>,
}

/// A head of the log `log`.
pub(crate) fn encode(log: LogId, range: SyncedRange) -> [u8; HEAD_BYTES] {
    let mut bytes = head(MAGIC, VERSION);
    put(&mut bytes, 16, log.0.to_le_bytes());
    put(&mut bytes, 32, range.end.to_le_bytes());
    let trimmed = range.trimmed.map_or(0, |number| number.saturating_add(1));
    put(&mut bytes, 40, trimmed.to_le_bytes());
    seal(bytes)
}

/// The content of the file; none if no place of it is whole.
pub(crate) fn content(file: &[u8], log: LogId) -> Option<SyncedRange> {
    let whole = places(file, log);
    let newest = whole.iter().flatten().max()?;
    // An older program that used the log since may have trimmed it, and left a number of before in another place.
    let unknown = |range: &SyncedRange| range.end == newest.end && range.trimmed.is_none();
    let trimmed = match whole.iter().flatten().any(unknown) {
        true => None,
        false => whole.iter().flatten().filter_map(|range| range.trimmed).max(),
    };
    Some(SyncedRange { end: newest.end, trimmed })
}

/// The content of each place of the file; none of this log if it is not whole.
pub(crate) fn places(file: &[u8], log: LogId) -> [Option<SyncedRange>; PLACES] {
    let place = |i: usize| file.get(i * PLACE_BYTES..).map(|bytes| decode(bytes, log));
    std::array::from_fn(|i| place(i)?.ok())
}

/// The content of a head of the log `log`.
pub(crate) fn decode(bytes: &[u8], log: LogId) -> Result<SyncedRange, Misfit> {
    let bytes = open(bytes, MAGIC, VERSION)?;
    let range = SyncedRange { end: u64_at(bytes, 32), trimmed: u64_at(bytes, 40).checked_sub(1) };
    if LogId(u128_at(bytes, 16)) == log { Ok(range) } else { Err(Misfit::OtherLog) }
}
