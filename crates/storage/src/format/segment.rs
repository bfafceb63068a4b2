//! The head of a segment, and segments' names.
//!
//! ```text
//!  0  8  magic "amcastLG"          32  8  number of its first record
//!  8  4  version, 1                40  8  bytes of the whole file
//! 12  4  where records begin, 4096 48  8  how many records right before were not synced
//! 16 16  id of the log             56  4  zero
//!                                  60  4  crc32c of bytes 0 to 59
//! ```

use super::{HEAD_BYTES, LogId, head, numbered, open, put, seal, u32_at, u64_at, u128_at};
use crate::error::Misfit;

/// The newest version; all from 1 to it can be read.
pub(crate) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"amcastLG";

/// Where records begin: in a block of their own, so that the head is never written again with them.
pub(crate) const RECORDS_AT: u64 = 4096;

/// The longest segment, in bytes: nobody takes more memory because a file says so.
pub(crate) const BYTES_MAX: u64 = 1 << 30;

/// Above all numbers that a log gets to: nobody counts past the end.
const NUMBER_MAX: u64 = 1 << 62;

/// The head of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHead {
    /// The log that it is a part of.
    pub(crate) log: LogId,
    /// The number of its first record.
    pub(crate) first: u64,
    /// How many bytes the file has.
    pub(crate) bytes: u64,
    /// How many records right before the first were not known to be durable when the segment was begun.
    pub(crate) loose: u64,
}

impl SegmentHead {
    /// The records before this number were durable when the segment was begun.
    pub(crate) const fn durable(&self) -> u64 {
        self.first - self.loose
    }

    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = head(MAGIC, VERSION);
        put(&mut bytes, 12, (RECORDS_AT as u32).to_le_bytes());
        put(&mut bytes, 16, self.log.0.to_le_bytes());
        put(&mut bytes, 32, self.first.to_le_bytes());
        put(&mut bytes, 40, self.bytes.to_le_bytes());
        put(&mut bytes, 48, self.loose.to_le_bytes());
        seal(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Misfit> {
        let bytes = open(bytes, MAGIC, VERSION)?;
        let head = Self {
            log: LogId(u128_at(bytes, 16)),
            first: u64_at(bytes, 32),
            bytes: u64_at(bytes, 40),
            loose: u64_at(bytes, 48),
        };
        let may_be = (RECORDS_AT..=BYTES_MAX).contains(&head.bytes)
            && head.first <= NUMBER_MAX
            && head.loose <= head.first;
        if u64::from(u32_at(bytes, 12)) != RECORDS_AT || !may_be {
            return Err(Misfit::Nonsense);
        }
        Ok(head)
    }
}

/// The name of the segment that begins with this record.
pub(crate) fn name(first: u64) -> String {
    format!("{first:020}.segment")
}

/// The number of the first record of the segment of this name, if it is a segment's.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    numbered(name, ".segment")
}

/// The name of a file that waits to become a segment.
pub(crate) fn spare_name(n: u64) -> String {
    format!("{n:020}.spare")
}

/// The number of the spare of this name, if it is one.
pub(crate) fn spare_of(name: &str) -> Option<u64> {
    numbered(name, ".spare")
}
