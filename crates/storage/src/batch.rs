//! Records on their way to the disk, as they will lie there, in one buffer that is used again.

use crate::format::record::{ALIGNED, HEAD_BYTES, extent};
use amcast_core::step::Ticket;

/// A record of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchEntry {
    /// Comes back when it is durable, if that is awaited.
    pub(crate) ticket: Ticket,
    /// How many bytes it has.
    pub(crate) length: u32,
    /// Whether somebody waits for it.
    pub(crate) awaited: bool,
}

/// Records, with room before each for its head.
#[derive(Default, Debug)]
pub(crate) struct RecordBatch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<BatchEntry>,
    /// Records to be read once those of the batch are written.
    pub(crate) loads: Vec<(Ticket, u64)>,
}

impl RecordBatch {
    pub(crate) fn push(&mut self, ticket: Ticket, record: &[u8], awaited: bool) {
        self.bytes.extend_from_slice(&[0; HEAD_BYTES]);
        self.bytes.extend_from_slice(record);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNED as usize), 0);
        self.entries.push(BatchEntry { ticket, length: record.len() as u32, awaited });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.loads.is_empty()
    }

    /// Whether somebody waits for any of it.
    pub(crate) fn awaited(&self) -> bool {
        self.entries.iter().any(|entry| entry.awaited)
    }

    /// Takes over what `other` has; copies it only if there was something already.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        if self.is_empty() {
            std::mem::swap(self, other);
        } else {
            self.bytes.extend_from_slice(&other.bytes);
            self.entries.append(&mut other.entries);
            self.loads.append(&mut other.loads);
        }
        other.clear();
    }

    /// Forgets everything, keeps the room.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.loads.clear();
    }

    /// How many bytes of the log the entry takes.
    pub(crate) fn extent(entry: &BatchEntry) -> u64 {
        extent(entry.length as usize)
    }
}
