//! The operations of a file system that a log needs: one directory and the files in it.
//!
//! All of this crate's reading and writing goes through here, so that tests can put a directory in its
//! place that fails, fills up, or forgets what was not synced.

#[cfg(test)]
pub(crate) mod fake;
mod host;

pub(crate) use host::HostDisk;

use std::io;
use std::path::{Path, PathBuf};

/// One directory.
pub(crate) trait DiskDir: Send + Sync + 'static {
    /// A file in it.
    type File: DiskFile;

    /// Where it is, for people.
    fn path(&self) -> &Path;

    /// The names of its files, in no order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Makes an empty file; refused if there is one of that name. Its name lasts only after
    /// [`DiskDir::sync`].
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name; a file that had that name is gone. Lasts only after [`DiskDir::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Lasts only after [`DiskDir::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns when all names given and taken before survive the end of the machine.
    fn sync(&self) -> io::Result<()>;

    /// How many bytes there is room for.
    fn room(&self) -> io::Result<u64>;

    /// Where a file of it is, for people.
    fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// One file. Several threads may use it.
pub(crate) trait DiskFile: Send + Sync + 'static {
    /// Reads from an offset, fewer bytes than asked for only at the end; how many.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of it at an offset.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// How many bytes it has.
    fn size(&self) -> io::Result<u64>;

    /// Returns when all that was written before survives the end of the machine. After an error
    /// nobody knows what did, and no later success says so: what was not written is forgotten then.
    fn sync(&self) -> io::Result<()>;
}
