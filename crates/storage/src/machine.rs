//! Facts of the machine: the identity of its present boot, and a number that nobody else draws.

use crate::error::StorageError;
use crate::format::{BootId, LogId, LogOwnerId};
use std::path::Path;

/// Where the kernel says which run of the machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The boot of the machine and the process, as far as a log needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BootIdentity {
    /// Which run of it this is.
    pub(crate) boot: BootId,
    /// The id of a log that is made now.
    pub(crate) fresh: LogId,
    /// The process that opens the log.
    pub(crate) owner: LogOwnerId,
}

impl BootIdentity {
    /// This one, where `owner` opens a log.
    ///
    /// # Errors
    /// If the kernel gives no chance.
    pub(crate) fn this(owner: LogOwnerId) -> Result<Self, StorageError> {
        let mut fresh = [0; 16];
        let mut filled = 0;
        while filled < fresh.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut fresh[filled..], flags) {
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    return Err(StorageError::of(Path::new("/dev/urandom"), "read", e.into()));
                }
            }
        }
        // Without it every start counts as one after a failure of the machine: safe, if slow.
        let boot = std::fs::read_to_string(BOOT_ID).ok().and_then(|text| boot_id(&text));
        let boot = boot.unwrap_or(BootId(0));
        Ok(Self { boot, fresh: LogId(u128::from_le_bytes(fresh)), owner })
    }
}

/// The id in what the kernel says: 32 digits with dashes.
fn boot_id(text: &str) -> Option<BootId> {
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    u128::from_str_radix(&digits, 16).ok().map(BootId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read_and_nonsense_is_unknown() {
        let id = boot_id("3a5f6ab1-9f2c-4d0e-8b1a-000000000001\n");
        assert_eq!(id, Some(BootId(0x3a5f_6ab1_9f2c_4d0e_8b1a_0000_0000_0001)));
        assert_eq!(boot_id("no id"), None);
        assert!(!BootId(0).same(BootId(0)), "two unknown runs may differ");
    }
}
