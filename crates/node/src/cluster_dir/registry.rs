//! Which clusters of this user run on this machine: a file for each, that says where its cluster directory is.

use super::{ClusterDir, ClusterDirError, at, check_ours, write_private};
use amcast_memory::Directory;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The files that say where clusters run. They are trusted only for cluster directories that a
/// living supervisor has.
#[derive(Clone, Debug)]
pub struct ClusterRegistry {
    dir: PathBuf,
    /// Where they are instead if `dir` is somebody else's, who may just have been there first.
    spare: Option<PathBuf>,
}

impl ClusterRegistry {
    /// The registry of this user.
    pub fn usual() -> Self {
        let uid = rustix::process::getuid().as_raw();
        let dir = Directory::usual_base().join(format!("amcast-running-{uid}"));
        let own = std::env::home_dir().filter(|home| home.is_absolute());
        Self { dir, spare: own.map(|home| home.join(".amcast-running")) }
    }

    /// A registry in the directory `dir`, which need not be there.
    pub const fn within(dir: PathBuf) -> Self {
        Self { dir, spare: None }
    }

    /// The same, with another directory for the case that `dir` is somebody else's.
    #[cfg(test)]
    pub(super) const fn or_within(dir: PathBuf, spare: PathBuf) -> Self {
        Self { dir, spare: Some(spare) }
    }

    /// The directory.
    fn dir(&self) -> &Path {
        self.spare.as_deref().filter(|_| is_foreign(&self.dir)).unwrap_or(&self.dir)
    }

    /// The cluster directories of the clusters that run, that started last first.
    pub fn running(&self) -> Vec<ClusterDir> {
        let mut entries = self.entries();
        // Names are in the order of time, in any directory.
        entries.sort_unstable_by(|a, b| b.file_name().cmp(&a.file_name()));
        entries.into_iter().filter_map(|entry| cluster_of(&entry)).collect()
    }

    /// The directory of the cluster that started last of those that run, and the others.
    ///
    /// # Errors
    /// When none runs.
    pub fn newest(&self) -> Result<(ClusterDir, Vec<ClusterDir>), ClusterDirError> {
        let mut running = self.running().into_iter();
        let newest = running.next().ok_or(ClusterDirError::NoneRuns)?;
        Ok((newest, running.collect()))
    }

    /// Makes the directory if need be, and removes what clusters that were killed have left. Whether it
    /// was made.
    ///
    /// # Errors
    /// When it cannot be made, or others may write in it: they could name their own cluster directory there.
    pub(super) fn prepare(&self) -> Result<bool, ClusterDirError> {
        let made = DirBuilder::new().mode(0o700).create(self.dir());
        let is_new = made.is_ok();
        match made {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(at(self.dir())(e)),
            _ => {}
        }
        // In a place where everybody may write, a link is as foreign as what it leads to.
        if fs::symlink_metadata(self.dir()).is_ok_and(|m| !m.is_dir()) {
            return Err(ClusterDirError::NotDirectory(self.dir().to_path_buf()));
        }
        check_ours(self.dir(), 0o022)?;
        self.clear();
        Ok(is_new)
    }

    /// Removes the directory if no cluster is in it: who just made it has no use for it.
    pub(super) fn remove_if_empty(&self) {
        // Another cluster may have entered meanwhile: then it stays, as it should.
        let _ = fs::remove_dir(self.dir());
    }

    /// Enters a cluster directory, after [`prepare`](Self::prepare); the file to be removed when its cluster stops.
    pub(super) fn enter(&self, dir: &Path) -> Result<PathBuf, ClusterDirError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Names in the order of time.
        let entry = self.dir().join(format!("{:020}-{}", now.as_nanos(), std::process::id()));
        let new = entry.with_extension("new");
        let bytes = dir.as_os_str().as_bytes();
        // A process that failed to start beside this one may just have removed it.
        self.prepare()?;
        let written = write_private(&new, bytes).and_then(|()| fs::rename(&new, &entry));
        written.map_err(at(&entry))?;
        Ok(entry)
    }

    /// Removes what clusters that were killed have left.
    pub(super) fn clear(&self) {
        for entry in self.entries() {
            // It may be gone already: others clear as well.
            if cluster_of(&entry).is_none() {
                let _ = fs::remove_file(&entry);
            }
        }
    }

    fn entries(&self) -> Vec<PathBuf> {
        // In a place where everybody may write, a directory of somebody else is not ours.
        let uid = rustix::process::getuid().as_raw();
        let ours =
            |dir: &&PathBuf| fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == uid);
        let dirs = [Some(&self.dir), self.spare.as_ref()].into_iter().flatten().filter(ours);
        let entries = dirs.filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
        entries.map(|e| e.path()).filter(|path| path.extension().is_none()).collect()
    }
}

/// Whether an entry of another user is there. A link belongs to its maker, not to the owner of its
/// target.
pub(super) fn is_foreign(path: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() != uid)
}

/// The cluster directory that an entry names, if its supervisor lives.
fn cluster_of(entry: &Path) -> Option<ClusterDir> {
    let bytes = fs::read(entry).ok()?;
    let dir = ClusterDir::at(Path::new(OsStr::from_bytes(&bytes))).ok()?;
    dir.is_supervised().then_some(dir)
}
