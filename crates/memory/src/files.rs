//! The lines of a cluster as files of its own directory.
//!
//! The directory is open to its owner only (0700), and so is each file (0600). Nothing is reached
//! through a symbolic link, and nothing that belongs to someone else, or that others may use, is
//! taken into use. A lock on its file shows that a process lives; the system takes it back
//! when the process ends, however it ends.

use crate::error::MemoryError;
use crate::segment::{LINE_BYTES, SharedSegment};
use crate::store::{Backing, HeldResource, IncarnationFile, LineStore};
use amcast_core::id::Pid;
use core::fmt;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat,
};
use rustix::io::{Errno, retry_on_intr};
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "directory";
const DIRECTORY_FLAGS: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);
const FILE_FLAGS: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
const OWNER_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The directory of one cluster.
pub(crate) struct ClusterFiles {
    fd: OwnedFd,
    path: PathBuf,
}

impl ClusterFiles {
    /// Opens the directory, or makes it.
    pub(crate) fn open(path: PathBuf) -> Result<Self, MemoryError> {
        match fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(MemoryError::system(&path, "make this directory", e)),
        }
        let gone = || MemoryError::system(&path, "open it", Errno::NOENT);
        Self::open_existing(path.clone())?.ok_or_else(gone)
    }

    /// Opens the directory; none if it is not there.
    pub(crate) fn open_existing(path: PathBuf) -> Result<Option<Self>, MemoryError> {
        let fd = match fs::open(&path, DIRECTORY_FLAGS, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(MemoryError::system(&path, "open it", e)),
        };
        check_owner(&path, &stat(&path, &fd)?)?;
        Ok(Some(Self { fd, path }))
    }

    /// Whether the directory was removed since it was opened.
    pub(crate) fn is_removed(&self) -> Result<bool, MemoryError> {
        Ok(stat(&self.path, &self.fd)?.st_nlink == 0)
    }

    fn open_file(&self, name: &str) -> Result<(OwnedFd, Stat), MemoryError> {
        let path = self.path(&name);
        let fd = fs::openat(&self.fd, name, FILE_FLAGS, Mode::empty())
            .map_err(|e| MemoryError::system(&path, "open it", e))?;
        let stat = stat(&path, &fd)?;
        check_owner(&path, &stat)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MemoryError::NotPlain { path });
        }
        Ok((fd, stat))
    }

    fn map_file(&self, name: &str) -> Result<SharedSegment, MemoryError> {
        let (fd, stat) = self.open_file(name)?;
        let lines = usize::try_from(stat.st_size).unwrap_or(0) / LINE_BYTES;
        if lines == 0 {
            return Err(MemoryError::Corrupt { path: self.path(&name), why: "it is empty" });
        }
        SharedSegment::map(fd.as_fd(), lines, false)
            .map_err(|e| MemoryError::system(&self.path(&name), "map it", e))
    }

    fn create_file(
        &self,
        name: &str,
        lines: usize,
        backing: Backing,
    ) -> Result<(OwnedFd, SharedSegment), MemoryError> {
        let path = self.path(&name);
        let fd = fs::openat(&self.fd, name, FILE_FLAGS | OFlags::CREATE | OFlags::EXCL, OWNER_FILE)
            .map_err(|e| MemoryError::system(&path, "make it", e))?;
        let made = size_file(&path, &fd, lines, backing).and_then(|()| {
            SharedSegment::map(fd.as_fd(), lines, backing == Backing::Prefaulted)
                .map_err(|e| MemoryError::system(&path, "map it", e))
        });
        match made {
            Ok(segment) => Ok((fd, segment)),
            Err(e) => {
                // The first error is the one to report. Leftovers are removed at the next start.
                let _ = self.unlink(name);
                Err(e)
            }
        }
    }

    /// A descriptor for the lock of the directory. It is a new one each time: the lock belongs to it, and excludes threads of
    /// this process too.
    fn lock_fd(&self) -> Result<OwnedFd, MemoryError> {
        fs::openat(&self.fd, ".", DIRECTORY_FLAGS, Mode::empty())
            .map_err(|e| MemoryError::system(&self.path, "lock it", e))
    }

    fn unlink(&self, name: &str) -> Result<(), MemoryError> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(MemoryError::system(&self.path(&name), "remove it", e)),
        }
    }

    fn names(&self) -> Result<Vec<String>, MemoryError> {
        let failed = |e| MemoryError::system(&self.path, "list it", e);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(failed)? {
            // A name that is not text is not one of ours.
            if let Ok(name) = entry.map_err(failed)?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

impl LineStore for ClusterFiles {
    fn exclusive(&self) -> Result<HeldResource, MemoryError> {
        let fd = self.lock_fd()?;
        retry_on_intr(|| fs::flock(&fd, FlockOperation::LockExclusive))
            .map_err(|e| MemoryError::system(&self.path, "lock it", e))?;
        Ok(Box::new(fd))
    }

    fn try_exclusive(&self) -> Result<Option<HeldResource>, MemoryError> {
        let fd = self.lock_fd()?;
        let taken = is_locked(&self.path, &fd)?;
        Ok((!taken).then(|| -> HeldResource { Box::new(fd) }))
    }

    fn directory(&self, lines: usize) -> Result<(SharedSegment, bool), MemoryError> {
        match self.map_file(DIRECTORY) {
            Ok(found) if crate::layout::DirectoryLayout::is_ready(&found) => {
                return Ok((found, false));
            }
            // Its maker died before it was whole; nobody uses such a file.
            Ok(_) | Err(MemoryError::Corrupt { .. }) => self.unlink(DIRECTORY)?,
            Err(e) if e.is_gone() => {}
            Err(e) => return Err(e),
        }
        let (_, made) = self.create_file(DIRECTORY, lines, Backing::Reserved)?;
        Ok((made, true))
    }

    fn create(
        &self,
        name: IncarnationFile,
        lines: usize,
        backing: Backing,
    ) -> Result<(SharedSegment, HeldResource), MemoryError> {
        let (fd, segment) = self.create_file(&name.to_string(), lines, backing)?;
        fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| MemoryError::system(&self.path(&name), "lock it", e))?;
        Ok((segment, Box::new(fd)))
    }

    fn open(&self, name: IncarnationFile) -> Result<SharedSegment, MemoryError> {
        self.map_file(&name.to_string())
    }

    fn is_held(&self, name: IncarnationFile) -> Result<bool, MemoryError> {
        let fd = match self.open_file(&name.to_string()) {
            Ok((fd, _)) => fd,
            Err(e) if e.is_gone() => return Ok(false),
            Err(e) => return Err(e),
        };
        is_locked(&self.path(&name), &fd)
    }

    fn remove(&self, name: IncarnationFile) -> Result<(), MemoryError> {
        self.unlink(&name.to_string())
    }

    fn list(&self) -> Result<Vec<IncarnationFile>, MemoryError> {
        Ok(self.names()?.iter().filter_map(|name| parse(name)).collect())
    }

    fn take_place(&self, place: u32) -> Result<Option<HeldResource>, MemoryError> {
        let name = format!("c{place}");
        let path = self.path(&name);
        let fd = fs::openat(&self.fd, &name, FILE_FLAGS | OFlags::CREATE, OWNER_FILE)
            .map_err(|e| MemoryError::system(&path, "open it", e))?;
        check_owner(&path, &stat(&path, &fd)?)?;
        let taken = is_locked(&path, &fd)?;
        Ok((!taken).then(|| -> HeldResource { Box::new(fd) }))
    }

    fn remove_all(&self) -> Result<(), MemoryError> {
        for name in self.names()? {
            let place = name.strip_prefix('c').is_some_and(|n| n.parse::<u32>().is_ok());
            if place || parse(&name).is_some() || name == DIRECTORY {
                self.unlink(&name)?;
            }
        }
        match fs::unlinkat(CWD, &self.path, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(MemoryError::system(&self.path, "remove it", e)),
        }
    }

    fn path(&self, name: &dyn fmt::Display) -> PathBuf {
        self.path.join(name.to_string())
    }
}

fn parse(name: &str) -> Option<IncarnationFile> {
    let (pid, incarnation) = name.strip_prefix('p')?.split_once('.')?;
    Some(IncarnationFile { pid: Pid(pid.parse().ok()?), incarnation: incarnation.parse().ok()? })
}

fn stat(path: &Path, fd: &OwnedFd) -> Result<Stat, MemoryError> {
    fs::fstat(fd).map_err(|e| MemoryError::system(path, "look at it", e))
}

fn check_owner(path: &Path, stat: &Stat) -> Result<(), MemoryError> {
    let our_uid = rustix::process::geteuid().as_raw();
    if stat.st_uid != our_uid {
        return Err(MemoryError::NotOurs {
            path: path.to_owned(),
            owner_uid: stat.st_uid,
            our_uid,
        });
    }
    let mode = stat.st_mode & 0o7777;
    if mode & 0o077 != 0 {
        return Err(MemoryError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Whether somebody else has the lock of the file; if not, `fd` has it now.
fn is_locked(path: &Path, fd: &OwnedFd) -> Result<bool, MemoryError> {
    match retry_on_intr(|| fs::flock(fd, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(e) => Err(MemoryError::system(path, "lock it", e)),
    }
}

/// How many bytes are free in the file system that `path` lies in.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, MemoryError> {
    let about =
        fs::statvfs(path).map_err(|e| MemoryError::system(path, "ask how full it is", e))?;
    Ok(available(&about))
}

fn available(about: &fs::StatVfs) -> u64 {
    about.f_bavail.saturating_mul(about.f_frsize)
}

fn size_file(path: &Path, fd: &OwnedFd, lines: usize, backing: Backing) -> Result<(), MemoryError> {
    let needed_bytes = (lines * LINE_BYTES) as u64;
    let failed = |e| MemoryError::system(path, "size it", e);
    let free = || fs::fstatvfs(fd).map(|about| available(&about)).map_err(failed);
    let no_space =
        |free_bytes| MemoryError::NoSpace { path: path.to_owned(), needed_bytes, free_bytes };
    // Asked first: a file system in memory would take all there is before it gives up.
    let free_bytes = free()?;
    if free_bytes < needed_bytes {
        return Err(no_space(free_bytes));
    }
    if backing == Backing::Sparse {
        return fs::ftruncate(fd, needed_bytes).map_err(failed);
    }
    match retry_on_intr(|| fs::fallocate(fd, FallocateFlags::empty(), 0, needed_bytes)) {
        Ok(()) => Ok(()),
        Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Err(no_space(free()?)),
        Err(e) => Err(failed(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_process_files_are_taken_for_such() {
        assert_eq!(parse("p3.12"), Some(IncarnationFile { pid: Pid(3), incarnation: 12 }));
        for other in ["p3", "p.1", "q3.1", "p3.x", "directory", "c3", "p3.1.2", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
