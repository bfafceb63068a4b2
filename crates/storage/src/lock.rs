//! One process has a directory at a time.

use crate::error::StorageError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The name of the lock's file. It stays: a lock that is removed can be had twice.
const NAME: &str = "lock";

/// A hold on a directory, until it is dropped or its process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Makes the directory if need be and takes it.
    ///
    /// # Errors
    /// When another process has it, and when it cannot be made or used.
    pub(crate) fn take(path: &Path) -> Result<Self, StorageError> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(StorageError::NoParent { path: path.to_path_buf() });
            }
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StorageError::of(path, "make a directory there", e));
            }
            _ => {}
        }
        let place = path.join(NAME);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&place).map_err(|e| StorageError::of(&place, "open it", e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use(path)),
            Err(e) => return Err(StorageError::of(&place, "lock it", e.into())),
        }
        let words = format!("process {}\n", std::process::id());
        let told = file.set_len(0).and_then(|()| (&file).write_all(words.as_bytes()));
        match told.map_err(|e| StorageError::of(&place, "write to it", e)) {
            // The words are for people; where there is no room for them the lock holds all the same.
            Ok(()) | Err(StorageError::Full { .. }) => Ok(Self { _file: file }),
            Err(e) => Err(e),
        }
    }

    /// Refuses if a process has the directory; takes nothing, and writes nothing.
    pub(crate) fn check_free(path: &Path) -> Result<(), StorageError> {
        let place = path.join(NAME);
        let file = match File::open(&place) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|e| StorageError::of(&place, "open it", e))?,
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => Err(in_use(path)),
            Err(e) => Err(StorageError::of(&place, "lock it", e.into())),
        }
    }
}

fn in_use(path: &Path) -> StorageError {
    let who = fs::read_to_string(path.join(NAME)).unwrap_or_default();
    StorageError::InUse { path: path.to_path_buf(), who: who.trim().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_in_one_that_is_there_and_had_once() {
        let dir = std::env::temp_dir().join(format!("amcast-storage-lock-{}", std::process::id()));
        match Lock::take(&dir.join("below")) {
            Err(StorageError::NoParent { path }) => assert_eq!(path, dir.join("below")),
            other => panic!("{other:?}"),
        }
        let lock = Lock::take(&dir).expect("it is free");
        assert!(matches!(Lock::take(&dir), Err(StorageError::InUse { .. })));
        assert!(matches!(Lock::check_free(&dir), Err(StorageError::InUse { .. })));
        drop(lock);
        Lock::check_free(&dir).expect("it is free again");
        drop(Lock::take(&dir).expect("it is free again"));
        fs::remove_dir_all(&dir).expect("it can be removed");
    }
}
