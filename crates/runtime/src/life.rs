//! Which life of a process this is, where no shared memory counts them: a file in the cluster's
//! home that its process holds locked, with the number of the next life in it.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A life of a process. While it is held, nobody else lives under that name.
#[derive(Debug)]
pub(crate) struct Life {
    number: u32,
    path: PathBuf,
    locked: File,
}

impl Life {
    /// Begins the next life under the name of the file at `path`, whose number is `first` at the
    /// least; none if somebody lives under it. The number is on the disk before this returns.
    ///
    /// # Errors
    /// When the file cannot be used, or has no number in it.
    pub(crate) fn begin(path: &Path, first: u32) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            locked => locked?,
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let fresh = text.trim().is_empty();
        let number = match text.trim() {
            "" => first,
            text => text.parse::<u32>().map_err(|e| io::Error::other(format!("{text:?}: {e}")))?,
        };
        let number = number.max(first);
        let next = number.checked_add(1).ok_or_else(|| io::Error::other("no life is left"))?;
        file.rewind()?;
        // A number only grows longer: no older one shows behind it.
        writeln!(file, "{next}")?;
        file.sync_data()?;
        if fresh && let Some(directory) = path.parent() {
            // That the file is there, too: a number that is forgotten would be given out again.
            File::open(directory)?.sync_all()?;
        }
        Ok(Some(Self { number, path: path.to_path_buf(), locked: file }))
    }

    /// Sees to it that the next life has this number at the least; it is on the disk before this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn skip_to(&mut self, least: u32) -> io::Result<()> {
        let next = self.number.saturating_add(1).max(least);
        self.locked.rewind()?;
        // It grows: no older one shows behind it.
        writeln!(self.locked, "{next}")?;
        self.locked.sync_data()
    }

    /// The number of the next life under the name of the file at `path`, if there was one before.
    pub(crate) fn next(path: &Path) -> Option<u32> {
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// The file that counts it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its number.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Whether somebody lives under the name of the file at `path`.
    pub(crate) fn is_lived(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_counted_and_lived_one_at_a_time() {
        let dir = std::env::temp_dir().join(format!("amcast-life-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("n0.life");
        assert!(!Life::is_lived(&path));
        for number in 0..12 {
            let life = Life::begin(&path, 0).unwrap().unwrap();
            assert_eq!(life.number(), number);
            assert!(Life::is_lived(&path) && Life::begin(&path, 0).unwrap().is_none());
        }
        // Lives of a machine that replaced another one begin far above those of the other.
        for (first, number) in [(1 << 20, 1 << 20), (1 << 20, (1 << 20) + 1), (5, (1 << 20) + 2)] {
            assert_eq!(Life::begin(&path, first).unwrap().unwrap().number(), number);
        }
        let mut life = Life::begin(&path, 0).unwrap().unwrap();
        life.skip_to(1 << 21).unwrap();
        drop(life);
        let mut life = Life::begin(&path, 0).unwrap().unwrap();
        life.skip_to(7).unwrap();
        drop(life);
        assert_eq!(Life::begin(&path, 0).unwrap().unwrap().number(), (1 << 21) + 1);
        std::fs::write(&path, "seven").unwrap();
        assert!(Life::begin(&path, 0).unwrap_err().to_string().contains("seven"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
