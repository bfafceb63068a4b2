//! The state of a log: a small file that is replaced at each start.
//!
//! ```text
//!  0  8  magic "amcastLS"          16 16  id of the log
//!  8  4  version, 1                32 16  the machine's run (kernel's boot id), 0 if unknown
//! 12  4  life that writes          48  4  1 if the end of what was synced is kept, too
//!                                  52  8  owner, 0 if unknown
//!                                  60  4  crc32c of bytes 0 to 59
//! ```

use super::{
    BootId, HEAD_BYTES, LogId, LogOwnerId, head, open, put, seal, u32_at, u64_at, u128_at,
};
use crate::error::Misfit;
use crate::machine::BootIdentity;

/// The newest version; all from 1 to it can be read.
pub(crate) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"amcastLS";

/// Its name.
pub(crate) const NAME: &str = "state";
/// Its name until it is whole.
pub(crate) const NEW_NAME: &str = "state.new";

/// The state of a log: its writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogState {
    /// The log.
    pub(crate) log: LogId,
    /// How many times it was opened before.
    pub(crate) life: u32,
    /// The run of the machine in which it was opened last.
    pub(crate) boot: BootId,
    /// Whether there is a file that says how far the log was synced; versions before made none.
    pub(crate) keeps_end: bool,
    /// The owner of the log; versions before did not write it.
    pub(crate) owner: LogOwnerId,
}

impl LogState {
    /// Of a log that is made on this machine.
    pub(crate) const fn of(log: LogId, machine: &BootIdentity) -> Self {
        Self { log, life: 0, boot: machine.boot, keeps_end: true, owner: machine.owner }
    }

    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = head(MAGIC, VERSION);
        put(&mut bytes, 12, self.life.to_le_bytes());
        put(&mut bytes, 16, self.log.0.to_le_bytes());
        put(&mut bytes, 32, self.boot.0.to_le_bytes());
        put(&mut bytes, 48, u32::from(self.keeps_end).to_le_bytes());
        put(&mut bytes, 52, self.owner.0.to_le_bytes());
        seal(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Misfit> {
        let bytes = open(bytes, MAGIC, VERSION)?;
        Ok(Self {
            life: u32_at(bytes, 12),
            log: LogId(u128_at(bytes, 16)),
            boot: BootId(u128_at(bytes, 32)),
            keeps_end: u32_at(bytes, 48) != 0,
            owner: LogOwnerId(u64_at(bytes, 52)),
        })
    }
}
