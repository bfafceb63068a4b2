//! How far a log was synced: a small file beside its segments, with the same head in up to three places.
//!
//! ```text
//!  0  8  magic "amcastLM"          16 16  id of the log
//!  8  4  version, 1                32  8  records before this number were synced
//! 12  4  zero                      40 20  zero
//!                                  60  4  crc32c of bytes 0 to 59
//! ```
//!
//! Each place is in a block of its own. Every head that is whole is true: the highest number counts.

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

/// A head of the log `log`, whose records before `number` were synced.
pub(crate) fn encode(log: LogId, number: u64) -> [u8; HEAD_BYTES] {
    let mut bytes = head(MAGIC, VERSION);
    put(&mut bytes, 16, log.0.to_le_bytes());
    put(&mut bytes, 32, number.to_le_bytes());
    seal(bytes)
}

/// The content of each place of the file; none of this log if it is not whole.
pub(crate) fn places(file: &[u8], log: LogId) -> [Option<u64>; PLACES] {
    let place = |i: usize| file.get(i * PLACE_BYTES..).map(|bytes| decode(bytes, log));
    std::array::from_fn(|i| place(i)?.ok())
}

/// The content of a head of the log `log`.
pub(crate) fn decode(bytes: &[u8], log: LogId) -> Result<u64, Misfit> {
    let bytes = open(bytes, MAGIC, VERSION)?;
    let number = u64_at(bytes, 32);
    if LogId(u128_at(bytes, 16)) == log { Ok(number) } else { Err(Misfit::OtherLog) }
}
