//! How a log behaves.

use super::longest;
use crate::error::StorageError;
use crate::format::{LogOwnerId, segment};
use std::time::Duration;

/// How a log behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalOptions {
    /// How long a new segment is, in bytes: 64 MiB. So much is written and synced when one is made
    /// that was none before, and so much can be trimmed at once. Those that are there keep theirs.
    pub segment_bytes: u64,
    /// How many trimmed segments are kept to be used again at least: 2. More are if more are begun again and
    /// again between two trims, and there is room. With 0 none is, which costs a pause at the end of each segment, while the next is made.
    pub spares: usize,
    /// From how many bytes on that are not written, or awaited and not durable, there is no
    /// [`room`](super::Wal::room): 8 MiB.
    pub queue_bytes: usize,
    /// How long what nobody waits for may stay unsynced: 200 ms.
    pub sync_every: Duration,
    /// From how many bytes of it on a sync begins: 8 MiB. Eight times as many may wait for one that lasts.
    pub sync_bytes: u64,
    /// The owner that opens the log; `LogOwnerId::UNKNOWN` asks nothing. A log of another owner is not opened: it was copied or moved
    /// to where it is.
    pub owner: LogOwnerId,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            spares: 2,
            queue_bytes: 8 << 20,
            sync_every: Duration::from_millis(200),
            sync_bytes: 8 << 20,
            owner: LogOwnerId::UNKNOWN,
        }
    }
}

impl WalOptions {
    /// The shortest segment, in bytes.
    pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
    /// The longest: lengths of records have four bytes, and a start reads a segment's end whole.
    pub const SEGMENT_BYTES_MAX: u64 = segment::BYTES_MAX;

    /// The longest record that a log of these options takes, in bytes.
    pub const fn record_bytes_max(&self) -> usize {
        longest(self.segment_bytes)
    }

    pub(super) fn check(&self) -> Result<(), StorageError> {
        let says = if self.segment_bytes < Self::SEGMENT_BYTES_MIN {
            "a log's segments must have 16 KiB at least"
        } else if self.segment_bytes > Self::SEGMENT_BYTES_MAX {
            "a log's segments may have 1 GiB at most"
        } else if !self.segment_bytes.is_multiple_of(4096) {
            "a log's segments must have a multiple of 4096 bytes"
        } else if self.queue_bytes == 0 {
            "a log's queue must have room for a byte"
        } else {
            return Ok(());
        };
        Err(StorageError::Options { says })
    }
}
