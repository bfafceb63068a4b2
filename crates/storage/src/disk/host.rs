//! The operating system's file system.

use super::{DiskDir, DiskFile};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory of the operating system.
#[derive(Clone, Debug)]
pub(crate) struct HostDisk {
    path: PathBuf,
    /// Whether files are opened for writing, too.
    writes: bool,
}

impl HostDisk {
    /// The directory at `path`, which exists.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_path_buf(), writes: true }
    }

    /// The same, only to read it.
    pub(crate) fn to_read(path: &Path) -> Self {
        Self { writes: false, ..Self::at(path) }
    }
}

impl DiskDir for HostDisk {
    type File = fs::File;

    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is no text is not one of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<fs::File> {
        let mut options = OpenOptions::new();
        // The log of a process is its owner's business.
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(self.path.join(name))
    }

    fn open(&self, name: &str) -> io::Result<fs::File> {
        OpenOptions::new().read(true).write(self.writes).open(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }

    fn room(&self) -> io::Result<u64> {
        let system = rustix::fs::statvfs(&self.path)?;
        Ok(system.f_bavail.saturating_mul(system.f_frsize))
    }
}

impl DiskFile for fs::File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match FileExt::read_at(self, &mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
