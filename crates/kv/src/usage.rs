//! How much memory a shard's keys take, and how much they may: both are the same on all replicas, but for keys that
//! expired and were not purged yet.

use super::store::KeyEntry;

/// Bytes, about, as entries [say](KeyEntry::bytes).
#[derive(Debug)]
pub(super) struct Usage {
    /// All entries, and watched keys that do not exist, those that expired but were not purged included.
    pub(super) used: u64,
    /// The memory budget; 0 for no limit.
    pub(super) budget: u64,
}

impl Usage {
    pub(super) const fn new(budget: u64) -> Self {
        Self { used: 0, budget }
    }

    /// Whether no more is used than may be.
    pub(super) const fn is_within(&self) -> bool {
        self.budget == 0 || self.used <= self.budget
    }

    /// Counts an entry, again if it was counted before.
    pub(super) fn count(&mut self, entry: &mut KeyEntry) {
        let bytes = entry.bytes();
        self.used = self.used - entry.counted + bytes;
        entry.counted = bytes;
    }

    /// Counts an entry no more that is gone.
    pub(super) fn uncount(&mut self, entry: &mut KeyEntry) {
        self.used -= entry.counted;
        entry.counted = 0;
    }
}
