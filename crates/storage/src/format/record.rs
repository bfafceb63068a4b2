//! A record: a head, the bytes, and zeros up to the next multiple of 8.
//!
//! ```text
//!  0  4  crc32c of the log's id and bytes 4 to 31      12  4  life that wrote it
//!  4  4  crc32c of the record's bytes                  16  8  number
//!  8  4  how many bytes                                24  8  records before this one were durable
//! ```
//!
//! Three heads stand alone, without bytes and without a number of their own; theirs is the next
//! record's. Where the length would be, a *mark* has [`MARK`]: all before it were durable. A *close*
//! has [`CLOSE`]: so they were, and its life wrote nothing more. A *turn* has [`TURN`]: the next segment
//! is there, and the log continues in it.

use super::{LogId, put, u32_at, u64_at};

/// How many bytes the head of a record has.
pub(crate) const HEAD_BYTES: usize = 32;
/// Where a record may begin.
pub(crate) const ALIGNED: u64 = 8;
/// The length of a mark.
const MARK: u32 = u32::MAX;
/// The length of a close.
const CLOSE: u32 = u32::MAX - 1;
/// The length of a turn.
const TURN: u32 = u32::MAX - 2;

/// The meaning of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
    /// So many bytes of a record.
    Record(u32),
    /// Nothing: all records before were durable.
    Mark,
    /// Nothing: the same, and its life ended in good order.
    Close,
    /// Nothing: the same, and the log continues in the next segment, which is there.
    Turn,
}

/// The head of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    /// The kind of bytes behind it.
    pub(crate) kind: RecordKind,
    /// The sum over the record's bytes.
    pub(crate) sum: u32,
    /// The life of the log that wrote it.
    pub(crate) life: u32,
    /// The record's number; of what is no record, the next record's.
    pub(crate) number: u64,
    /// All records before this number were durable when this one was written.
    pub(crate) durable: u64,
}

impl RecordHeader {
    pub(crate) fn encode(&self, seed: RecordChecksumSeed) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let length = match self.kind {
            RecordKind::Record(length) => length,
            RecordKind::Mark => MARK,
            RecordKind::Close => CLOSE,
            RecordKind::Turn => TURN,
        };
        put(&mut bytes, 4, self.sum.to_le_bytes());
        put(&mut bytes, 8, length.to_le_bytes());
        put(&mut bytes, 12, self.life.to_le_bytes());
        put(&mut bytes, 16, self.number.to_le_bytes());
        put(&mut bytes, 24, self.durable.to_le_bytes());
        let sum = seed.sum(&bytes);
        put(&mut bytes, 0, sum.to_le_bytes());
        bytes
    }

    /// The head in these bytes, if it is whole and of this log.
    pub(crate) fn decode(bytes: &[u8], seed: RecordChecksumSeed) -> Option<Self> {
        let bytes: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        if u32_at(bytes, 0) != seed.sum(bytes) {
            return None;
        }
        let kind = match u32_at(bytes, 8) {
            MARK => RecordKind::Mark,
            CLOSE => RecordKind::Close,
            TURN => RecordKind::Turn,
            length => RecordKind::Record(length),
        };
        let head = Self {
            kind,
            sum: u32_at(bytes, 4),
            life: u32_at(bytes, 12),
            number: u64_at(bytes, 16),
            durable: u64_at(bytes, 24),
        };
        // No writer says so little of the future.
        (head.durable <= head.number).then_some(head)
    }

    /// How far the next one begins behind this one.
    pub(crate) fn extent(&self) -> u64 {
        match self.kind {
            RecordKind::Record(length) => extent(length as usize),
            RecordKind::Mark | RecordKind::Close | RecordKind::Turn => HEAD_BYTES as u64,
        }
    }
}

/// How many bytes of a segment a record of `length` bytes takes.
pub(crate) const fn extent(length: usize) -> u64 {
    (HEAD_BYTES as u64 + length as u64).next_multiple_of(ALIGNED)
}

/// The first part of the checksums of a log's heads, so that those of another log do not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordChecksumSeed(u32);

impl RecordChecksumSeed {
    pub(crate) fn of(log: LogId) -> Self {
        Self(crc32c::crc32c(&log.0.to_le_bytes()))
    }

    fn sum(self, head: &[u8; HEAD_BYTES]) -> u32 {
        crc32c::crc32c_append(self.0, &head[4..])
    }
}
