//! A client's message buffer (`HM`): the line at its head, which says whose records lie in it.
//!
//! ```text
//! line 0   holder    lease                the holder whose records follow
//! line 1.. ring      records              HM[c]
//! ```
//!
//! A client's place may be taken again by a new holder, under a higher lease. That one begins at position 0,
//! over records that nobody may have taken up yet. Since a line that is written over may show new words
//! under its old stamp, the holder and the leader do as [`super::log_region`] has it:
//!
//! 1. **The holder tells before it overwrites.** It writes the holder line before its first record, to each
//!    replica, and again where nothing of what it wrote is there.
//! 2. **The leader checks after it has read.** A record counts only if the holder line, looked at
//!    afterwards, still names the lease of the record ([`holds`]).

use amcast_core::memory::{CacheLine, LineStamp, WriteSource};

/// Where the ring of a client's buffer begins: behind the holder line.
pub(crate) const HM_BASE: u32 = 1;

/// The line of a client's buffer where its holder tells its lease.
pub(crate) const HOLDER: u32 = 0;

/// The holder line of the lease whose stamps have this epoch.
pub(crate) const fn holder(epoch: u32) -> WriteSource {
    WriteSource::line([epoch as u64, 0, 0, 0, 0, 0, 0], LineStamp::new(epoch, 0))
}

/// Whether all records of `epoch` that were read from this buffer before are whole, as far as the holder
/// of a later lease may have written over them.
pub(crate) fn holds(region: &[CacheLine], epoch: u32) -> bool {
    let line = &region[HOLDER as usize];
    line.word(0) == u64::from(epoch) && line.stamp() == LineStamp::new(epoch, 0)
}
