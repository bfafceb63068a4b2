//! Which life of a process this is, where no shared memory counts them: a file in the cluster's
//! cluster directory that its process holds locked, with the number of the next life in it.

use crate::system::open_at_once;
use amcast_core::limits::{LIVES_MAX, NUMBER_BITS};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::num::ParseIntError;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// For so many messages ahead the next incarnation's numbers are kept above those of this one.
const AHEAD: u64 = 1 << (NUMBER_BITS - 1);

/// So many messages after the disk did not take that it is tried again.
const TRY_AGAIN: u64 = 1 << 20;

/// The name of a process, which nobody else lives under while this is held.
#[derive(Debug)]
pub(crate) struct ProcessName {
    path: PathBuf,
    locked: File,
    next: Option<u32>,
}

impl ProcessName {
    /// Takes the name of the file at `path`; none if somebody lives under it.
    ///
    /// # Errors
    /// When the file cannot be used, or has something else in it than a number.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut locked = options.open(path)?;
        match flock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            taken => taken?,
        }
        let mut bytes = Vec::new();
        locked.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let next = match text.trim() {
            "" => None,
            text => Some(text.parse().map_err(|e| io::Error::other(not_a_number(text, path, e)))?),
        };
        Ok(Some(Self { path: path.to_path_buf(), locked, next }))
    }

    /// Whether a life began under it before.
    pub(crate) const fn is_lived_under(&self) -> bool {
        self.next.is_some()
    }

    /// The file that counts its lives.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of the file that counts its incarnations, from the system.
    ///
    /// # Errors
    /// When the system does not say it.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.locked.metadata()
    }

    /// Begins the next life. The first one under the name has any number of the lower half of all: one whose file was lost
    /// hardly has a number again that another one had before.
    ///
    /// # Errors
    /// When it cannot be written, or the system draws no number.
    pub(crate) fn begin_anywhere(self) -> io::Result<IncarnationLock> {
        let first = match self.is_lived_under() {
            true => 0,
            false => (draw()? % u64::from(LIVES_MAX / 2)) as u32,
        };
        self.begin(first)
    }

    /// Begins the next life, whose number is `first` at the least. It is on the disk before this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn begin(self, first: u32) -> io::Result<IncarnationLock> {
        let Self { path, mut locked, next: before } = self;
        let number = before.unwrap_or(first).max(first);
        if number >= LIVES_MAX {
            return Err(io::Error::other(format!("no life is left: it would be the {number}th")));
        }
        locked.rewind()?;
        // A number only grows longer: no older one shows behind it. The file itself stays: it
        // distinguishes the directory from a copy of it.
        writeln!(locked, "{}", number + 1)?;
        locked.sync_data()?;
        if before.is_none()
            && let Some(directory) = path.parent()
        {
            // That the file is there, too: a number that is forgotten would be given out again.
            File::open(directory)?.sync_all()?;
        }
        let start = draw()?;
        Ok(IncarnationLock { number, next: number + 1, try_from: 0, start, path, locked })
    }
}

/// A number that nobody else draws, and never 0.
fn draw() -> io::Result<u64> {
    let (mut bytes, mut filled) = ([0; 8], 0);
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// A life of a process. While it is held, nobody else lives under that name.
#[derive(Debug)]
pub(crate) struct IncarnationLock {
    number: u32,
    /// The number of the next incarnation, as it is on the disk.
    next: u32,
    /// Until the process's messages have this number the disk is not asked to take a higher one.
    try_from: u64,
    start: u64,
    path: PathBuf,
    locked: File,
}

impl IncarnationLock {
    /// Begins the next life under the name of the file at `path`, whose number is `first` at the
    /// least; none if somebody lives under it. The number is on the disk before this returns.
    ///
    /// # Errors
    /// When the file cannot be used, or has no number in it.
    pub(crate) fn begin(path: &Path, first: u32) -> io::Result<Option<Self>> {
        ProcessName::take(path)?.map(|name| name.begin(first)).transpose()
    }

    /// Sees to it that the next life has this number at the least; it is on the disk before this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn skip_to(&mut self, least: u32) -> io::Result<()> {
        let next = self.next.max(least);
        if next == self.next {
            return Ok(());
        }
        self.locked.rewind()?;
        // It grows: no older one shows behind it.
        writeln!(self.locked, "{next}")?;
        self.locked.sync_data()?;
        self.next = next;
        Ok(())
    }

    /// The number of the first message of this incarnation: above those of all messages of earlier ones.
    pub(crate) const fn first_seq(&self) -> u64 {
        ((self.number as u64) << NUMBER_BITS) + 1
    }

    /// Sees to it that messages of the next incarnation have larger numbers than `seq`, the number of this one's next
    /// message, and than the [`AHEAD`] after it. Writes to the disk once in so many messages as one incarnation has numbers
    /// for, else it costs a comparison. A number that the disk does not take is tried again later.
    ///
    /// # Errors
    /// When it cannot be written, and the numbers of the next incarnation are near.
    pub(crate) fn keep_ahead_of(&mut self, seq: u64) -> io::Result<()> {
        let least = u32::try_from((seq + AHEAD) >> NUMBER_BITS);
        let least = least.unwrap_or(u32::MAX).saturating_add(1);
        // No number of the next incarnation is given out before this is asked again.
        let is_near = (seq + TRY_AGAIN) >> NUMBER_BITS >= u64::from(self.next);
        if least <= self.next || seq < self.try_from && !is_near {
            return Ok(());
        }
        match self.skip_to(least) {
            Err(e) if is_near => Err(e),
            Err(e) => {
                self.try_from = seq + TRY_AGAIN;
                let (path, left) =
                    (self.path.display(), (u64::from(self.next) << NUMBER_BITS) - seq - TRY_AGAIN);
                tracing::warn!(
                    "{path}: {e}; this process ends after {left} more messages unless the file can be written by then"
                );
                Ok(())
            }
            Ok(()) => Ok(()),
        }
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

    /// A number that no other start has, even if it is in the same life from a copy of the file.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Whether somebody lives under the name of the file at `path`.
    pub(crate) fn is_lived(path: &Path) -> bool {
        let Ok(file) = open_at_once(path) else { return false };
        matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
    }
}

/// The error of a file at `path` that counts lives and has no number, with a remedy.
fn not_a_number(text: &str, path: &Path, why: ParseIntError) -> String {
    let shown: String = text.chars().take(20).collect();
    format!(
        "{}: counts the starts of a process, and has {shown:?} in place of a number ({why}); bring the file back, or \
         write a number there that is larger than all starts so far",
        path.display()
    )
}

/// The incarnation of a node, of which the gateway of its process may raise the next one, too.
#[derive(Clone, Debug)]
pub(crate) struct SharedIncarnation(Arc<Mutex<IncarnationLock>>);

impl SharedIncarnation {
    pub(crate) fn of(lock: IncarnationLock) -> Self {
        Self(Arc::new(Mutex::new(lock)))
    }

    /// The lock, for one thread at a time.
    pub(crate) fn locked(&self) -> MutexGuard<'_, IncarnationLock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_lives_that_was_lost_hardly_begins_with_a_life_that_was_lived() {
        let dir = std::env::temp_dir().join(format!("amcast-anywhere-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("c0.life");
        let begin =
            || ProcessName::take(&path).unwrap().unwrap().begin_anywhere().unwrap().number();
        let lives = [begin(), begin(), begin()];
        assert_eq!(lives, [lives[0], lives[0] + 1, lives[0] + 2]);
        std::fs::remove_file(&path).unwrap();
        let again = [begin(), begin(), begin()];
        assert!(!again.iter().any(|life| lives.contains(life)), "{lives:?}, {again:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn lives_are_counted_and_lived_one_at_a_time() {
        let dir = std::env::temp_dir().join(format!("amcast-life-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("n0.life");
        assert!(!IncarnationLock::is_lived(&path));
        for number in 0..12 {
            let life = IncarnationLock::begin(&path, 0).unwrap().unwrap();
            assert_eq!(life.number(), number);
            assert!(
                IncarnationLock::is_lived(&path)
                    && IncarnationLock::begin(&path, 0).unwrap().is_none()
            );
        }
        // Lives of a machine that replaced another one begin far above those of the other.
        for (first, number) in [(1 << 20, 1 << 20), (1 << 20, (1 << 20) + 1), (5, (1 << 20) + 2)] {
            assert_eq!(IncarnationLock::begin(&path, first).unwrap().unwrap().number(), number);
        }
        let mut life = IncarnationLock::begin(&path, 0).unwrap().unwrap();
        life.skip_to(1 << 21).unwrap();
        drop(life);
        let mut life = IncarnationLock::begin(&path, 0).unwrap().unwrap();
        life.skip_to(7).unwrap();
        drop(life);
        assert_eq!(IncarnationLock::begin(&path, 0).unwrap().unwrap().number(), (1 << 21) + 1);
        assert!(!dir.join("n1.life").exists());
        let mut life = IncarnationLock::begin(&dir.join("n1.life"), 3).unwrap().unwrap();
        let next = || IncarnationLock::next(&dir.join("n1.life"));
        assert_eq!((life.first_seq(), next()), ((3 << 32) + 1, Some(4)));
        life.keep_ahead_of((4 << 32) - AHEAD - 1).unwrap();
        assert_eq!(next(), Some(4));
        // An incarnation whose messages come near to the numbers of the next one takes those, too.
        life.keep_ahead_of((4 << 32) - AHEAD).unwrap();
        assert_eq!(next(), Some(5));
        life.keep_ahead_of((4 << 32) + 7).unwrap();
        life.skip_to(2).unwrap();
        assert_eq!(next(), Some(5));
        drop(life);
        // A number that the disk does not take is tried again later, and ends the process when it is reached.
        let mut life = IncarnationLock::begin(&dir.join("n2.life"), 0).unwrap().unwrap();
        life.locked = File::open(dir.join("n2.life")).unwrap();
        let near = (1 << 32) - 2 * TRY_AGAIN;
        life.keep_ahead_of(near).unwrap();
        let writable = OpenOptions::new().write(true).open(dir.join("n2.life")).unwrap();
        let unwritable = std::mem::replace(&mut life.locked, writable);
        life.keep_ahead_of(near + TRY_AGAIN - 1).unwrap();
        assert_eq!(IncarnationLock::next(&dir.join("n2.life")), Some(1), "it was tried just now");
        let writable = std::mem::replace(&mut life.locked, unwritable);
        assert!(life.keep_ahead_of(1 << 32).is_err());
        life.locked = writable;
        life.keep_ahead_of(near + TRY_AGAIN).unwrap();
        assert_eq!(IncarnationLock::next(&dir.join("n2.life")), Some(2));
        drop(life);
        // Two copies of a file continue with one incarnation number, and have different identities.
        let copy = dir.join("copy.life");
        std::fs::copy(&path, &copy).unwrap();
        let [a, b] = [&path, &copy].map(|path| IncarnationLock::begin(path, 0).unwrap().unwrap());
        assert_eq!(a.number(), b.number());
        assert!(a.start() != b.start() && a.start() != 0);
        drop((a, b));
        let none_left = IncarnationLock::begin(&path, LIVES_MAX).unwrap_err().to_string();
        assert!(none_left.contains("no life is left"), "{none_left}");
        assert_eq!(IncarnationLock::next(&path), Some((1 << 21) + 3), "nothing was written");
        std::fs::write(&path, "seven").unwrap();
        assert!(IncarnationLock::begin(&path, 0).unwrap_err().to_string().contains("seven"));
        std::fs::write(&path, [0xff; 300]).unwrap();
        let told = IncarnationLock::begin(&path, 0).unwrap_err().to_string();
        assert!(told.contains("n0.life: counts the starts") && told.len() < 400, "{told}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
