//! Which messages a node skips, as it keeps that beside its logs.

use crate::error::StorageError;
use crate::format::skipped::{decode, encode};
use amcast_core::SkipDecision;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The name of the file.
pub const SKIPPED: &str = "skipped";
/// Its name until it is whole.
const NEW: &str = "skipped.new";

/// The progress of a decision to skip a message at a node. It only grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum SkipStage {
    /// It was written down, and the node has not started since.
    Decided = 1,
    /// The node started with it: others may count on it.
    Bound = 2,
    /// The node has met all others with the same decisions, so all of them are bound.
    Agreed = 3,
    /// The node has skipped the message, or was about to.
    Used = 4,
}

impl SkipStage {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [Self::Decided, Self::Bound, Self::Agreed, Self::Used]
            .into_iter()
            .find(|s| *s as u8 == byte)
    }
}

/// A decision to skip a message, and its progress at a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SkipEntry {
    /// Which message, and a place of it.
    pub decision: SkipDecision,
    /// How far.
    pub stage: SkipStage,
}

/// The decisions in the directory `data`, in ascending order of messages; none if there is no such file.
///
/// # Errors
/// When it cannot be read, or is not as it was written.
pub fn read_skipped(data: &Path) -> Result<Vec<SkipEntry>, StorageError> {
    let path = data.join(SKIPPED);
    match fs::read(&path) {
        Ok(file) => decode(&file).map_err(|why| StorageError::Skips { path, why }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(StorageError::of(&path, "read it", e)),
    }
}

/// Writes it there, in place of what was there; it is durable when this returns. Nobody ever sees half of it.
///
/// # Errors
/// When it cannot be written.
pub fn write_skipped(data: &Path, entries: &[SkipEntry]) -> Result<(), StorageError> {
    let (path, new) = (data.join(SKIPPED), data.join(NEW));
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.decision.msg);
    entries.dedup_by_key(|entry| entry.decision.msg);
    let written = || {
        if entries.is_empty() {
            match fs::remove_file(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                removed => removed?,
            }
        } else {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&new)?;
            file.write_all(&encode(&entries))?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
        }
        File::open(data)?.sync_all()
    };
    written().map_err(|e| StorageError::of(&path, "write it", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Misfit;
    use amcast_core::{Gid, MsgId, Pid};
    use std::path::PathBuf;

    fn entry(sender: u32, seq: u64, stage: SkipStage) -> SkipEntry {
        let msg = MsgId { sender: Pid(sender), seq };
        SkipEntry { decision: SkipDecision { msg, group: Gid(2), position: seq + 0x100 }, stage }
    }

    struct SkipTestDir(PathBuf);

    impl SkipTestDir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for SkipTestDir {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn what_was_written_is_read_in_order_and_nothing_leaves_no_file() {
        let dir = SkipTestDir::new("skipped");
        assert_eq!(read_skipped(&dir.0).unwrap(), []);
        let (a, b) = (entry(1, 9, SkipStage::Used), entry(3, 4, SkipStage::Decided));
        write_skipped(&dir.0, &[b, a]).unwrap();
        assert_eq!(read_skipped(&dir.0).unwrap(), [a, b]);
        assert!(!dir.0.join(NEW).exists());
        // One that was being written when its process ended counts for nothing, and is in nobody's way.
        fs::write(dir.0.join(NEW), &encode(&[a])[..70]).unwrap();
        assert_eq!(read_skipped(&dir.0).unwrap(), [a, b]);
        write_skipped(&dir.0, &[b]).unwrap();
        assert_eq!(read_skipped(&dir.0).unwrap(), [b]);
        assert!(!dir.0.join(NEW).exists());
        write_skipped(&dir.0, &[]).unwrap();
        write_skipped(&dir.0, &[]).unwrap();
        assert!(!dir.0.join(SKIPPED).exists());
        assert_eq!(read_skipped(&dir.0).unwrap(), []);
    }

    #[test]
    fn each_changed_byte_and_each_missing_one_is_found_and_told_with_what_to_do() {
        let whole = encode(&[entry(1, 9, SkipStage::Bound), entry(3, 4, SkipStage::Agreed)]);
        assert_eq!(decode(&whole).unwrap().len(), 2);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&whole[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(decode(&[&whole[..], &[0]].concat()), Err(Misfit::Short));
        let dir = SkipTestDir::new("skipped-torn");
        fs::write(dir.0.join(SKIPPED), &whole[..80]).unwrap();
        let told = read_skipped(&dir.0).unwrap_err();
        let text = told.to_string();
        for words in ["skipped: is not as long as it says", "does not start", "skip --list"] {
            assert!(text.contains(words), "{text}");
        }
        assert!(told.is_damage());
        let mut later = whole;
        later[8] = 2;
        fs::write(dir.0.join(SKIPPED), later).unwrap();
        let text = read_skipped(&dir.0).unwrap_err().to_string();
        assert!(text.contains("has version 2 of its format"), "{text}");
    }
}
