//! A small file of a process that is mapped, so that what is stored in it outlasts the process without a system
//! call for each store.

use crate::segment::{LINE_BYTES, SharedSegment};
use amcast_core::memory::CacheLine;
use core::ops::Deref;
use rustix::fd::AsFd;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The lines of a file. Stored values are in the file when the process ends, however it ends; whether they are
/// there after the end of the machine nobody knows.
#[derive(Debug)]
pub struct MappedFile(SharedSegment);

impl MappedFile {
    /// Bytes of a line.
    pub const LINE_BYTES: usize = LINE_BYTES;

    /// Makes the file at `path` anew, with `bytes` in it, which are whole lines. It must not be made shorter while
    /// it is mapped.
    ///
    /// # Errors
    /// When the file cannot be written or mapped.
    pub fn create(path: &Path, bytes: &[u8]) -> io::Result<Self> {
        assert!(!bytes.is_empty() && bytes.len().is_multiple_of(LINE_BYTES), "whole lines");
        // A new file: one that a process which is just ending has mapped stays whole. It is put in place when it
        // is whole: a process that is killed here leaves the one before.
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        match std::fs::remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let made = Self::put(path, &new, bytes);
        if made.is_err() {
            // Nobody else would remove it; what is wrong is in the error.
            let _ = std::fs::remove_file(&new);
        }
        made
    }

    fn put(path: &Path, new: &OsStr, bytes: &[u8]) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(new)?;
        // Written in full: a store finds the room that it needs.
        file.write_all(bytes)?;
        file.seek(SeekFrom::Start(0))?;
        let lines = bytes.len() / LINE_BYTES;
        let segment = SharedSegment::map(file.as_fd(), lines, false)?;
        std::fs::rename(new, path)?;
        Ok(Self(segment))
    }
}

impl Deref for MappedFile {
    type Target = [CacheLine];

    fn deref(&self) -> &[CacheLine] {
        &self.0
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_is_stored_is_in_the_file_without_being_written() {
        let path = std::env::temp_dir().join(format!("amcast-mapped-{}", std::process::id()));
        let begun: Vec<u8> = (0..128).collect();
        let mapped = MappedFile::create(&path, &begun).unwrap();
        assert_eq!((mapped.len(), std::fs::read(&path).unwrap()), (2, begun.clone()));
        mapped[1].raw(7).store(u64::MAX, Ordering::Relaxed);
        let mut stored = begun.clone();
        stored[120..].fill(0xff);
        assert_eq!(std::fs::read(&path).unwrap(), stored);
        // A second one begins anew, and leaves the first alone.
        let second = MappedFile::create(&path, &begun).unwrap();
        mapped[0].raw(0).store(0, Ordering::Relaxed);
        assert_eq!((second.len(), std::fs::read(&path).unwrap()), (2, begun));
        std::fs::remove_file(&path).unwrap();
    }
}
