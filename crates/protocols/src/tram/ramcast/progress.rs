//! How far a group has taken up the messages of each client's place, as its decided log says.

use alloc::collections::{BTreeSet, VecDeque};
use amcast_core::MsgId;

/// How far a group has taken up the messages of a client's place, of all its leases: numbers grow over these, too.
#[derive(Debug, Default)]
pub(super) struct ClientProgress {
    /// The largest number up to which every message came here, or never will.
    pub(super) last: Option<u64>,
    /// Larger numbers: messages that another group brought here before their client's copy was taken up.
    pub(super) early: BTreeSet<u64>,
    /// The lease of the latest message that was taken from the client's buffer.
    pub(super) lease: u32,
    /// The messages of that lease, and where each begins in the buffer.
    pub(super) lane: VecDeque<(u64, MsgId)>,
}

impl ClientProgress {
    /// Whether the message came here, or is none that may come any more.
    pub(super) fn knows(&self, seq: u64) -> bool {
        Some(seq) <= self.last || self.early.contains(&seq)
    }

    /// A message from the buffer of this lease. Says whether its number grows, as a client's do.
    pub(super) fn take(&mut self, seq: u64, lease: u32) -> bool {
        if lease > self.lease {
            // The buffer of a new holder begins at its front again.
            self.lease = lease;
            self.lane.clear();
        }
        let grows = Some(seq) > self.last;
        self.last = self.last.max(Some(seq));
        // Another early message with a smaller number has no copy in the buffer: its holder died.
        while self.early.first().is_some_and(|&early| early <= seq) {
            self.early.pop_first();
        }
        grows
    }

    /// Another group brings a message that is not known. The client's copy of each one of a living holder has its
    /// place in the buffer: of more than `early_max`, which the buffer does not hold, the first one's holder died.
    pub(super) fn bring(&mut self, seq: u64, early_max: usize) {
        self.early.insert(seq);
        if self.early.len() > early_max {
            self.last = self.last.max(self.early.pop_first());
        }
    }
}
