//! The files of a process that does not run: what is in them, and how they are made to open again.
//!
//! Inspection changes nothing and continues behind damage; only [`repair`] and [`set_aside`] write. All of it refuses a
//! directory that a process has.

mod inspection;
mod repair;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use inspection::inspect as inspection_of;
pub use inspection::{Inspection, RecordSummary, SegmentEnd, SegmentSummary};
#[cfg(test)]
pub(crate) use repair::cut as cut_of;
pub use repair::{LOST, RemovedRecords, repair, repair_end, set_aside};

use crate::checkpoints::CheckpointReader;
use crate::disk::HostDisk;
use crate::error::StorageError;
use crate::format::checkpoint;
use crate::format::segment;
use crate::lock::Lock;
use std::path::{Path, PathBuf};

/// A checkpoint in a directory.
#[derive(Debug)]
pub struct CheckpointSummary {
    /// The file.
    pub path: PathBuf,
    /// The checkpoint, if it is whole, or what is wrong with it.
    pub saved: Result<CheckpointReader, StorageError>,
}

/// Whether there is a log in the directory, or is left of one.
///
/// # Errors
/// When it cannot be listed.
pub fn has_log(path: &Path) -> Result<bool, StorageError> {
    let names = names(path)?;
    let log =
        |name: &String| segment::first_of(name).is_some() || name == crate::format::state::NAME;
    Ok(names.iter().any(log))
}

/// Whether a log was made in the directory: its state is written last, and stays. One that was being made
/// has no record.
pub fn was_made(path: &Path) -> bool {
    path.join(crate::format::state::NAME).exists()
}

/// Looks at the log in a directory. `each` gets every whole record, also those behind damage.
///
/// # Errors
/// When a process has it, and when it cannot be read. Damage is no error here.
pub fn inspect(
    path: &Path,
    each: &mut dyn FnMut(RecordSummary<'_>),
) -> Result<Inspection, StorageError> {
    Lock::check_free(path)?;
    inspection::inspect(&HostDisk::to_read(path), None, each)
}

/// The same for one segment of a log, by itself.
///
/// # Errors
/// As for [`inspection`]; when the file's name is not that of a segment.
pub fn inspect_segment(
    path: &Path,
    each: &mut dyn FnMut(RecordSummary<'_>),
) -> Result<Inspection, StorageError> {
    let (folder, name) = split(path);
    if segment::first_of(&name).is_none() {
        return Err(StorageError::Options {
            says: "a segment's name is its first record's number in 20 digits, \
            and .segment; give such a file, or the directory of a log",
        });
    }
    Lock::check_free(&folder)?;
    inspection::inspect(&HostDisk::to_read(&folder), Some(&name), each)
}

/// The checkpoints in a directory, the oldest first. All of them are read.
///
/// # Errors
/// When a process has it, and when it cannot be listed.
pub fn checkpoints(path: &Path) -> Result<Vec<CheckpointSummary>, StorageError> {
    Lock::check_free(path)?;
    let mut names = names(path)?;
    names.retain(|name| checkpoint::position_of(name).is_some());
    names.sort_unstable();
    let look = |name: String| CheckpointSummary { path: path.join(&name), saved: one(path, &name) };
    Ok(names.into_iter().map(look).collect())
}

/// One checkpoint, of which all is read.
///
/// # Errors
/// When it cannot be read or is damaged, or its name is not that of a checkpoint.
pub fn checkpoint(path: &Path) -> Result<CheckpointReader, StorageError> {
    let (folder, name) = split(path);
    one(&folder, &name)
}

fn one(folder: &Path, name: &str) -> Result<CheckpointReader, StorageError> {
    let position = checkpoint::position_of(name);
    let position = position.ok_or(StorageError::Options {
        says: "a checkpoint's name is its position in 20 digits, and .checkpoint; give such a file",
    })?;
    CheckpointReader::judged(&HostDisk::to_read(folder), position)
}

fn names(path: &Path) -> Result<Vec<String>, StorageError> {
    use crate::disk::DiskDir;
    HostDisk::to_read(path).names().map_err(|e| StorageError::of(path, "list it", e))
}

/// The directory a file is in, and its name.
fn split(path: &Path) -> (PathBuf, String) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    (folder.unwrap_or(Path::new(".")).to_path_buf(), name.unwrap_or_default())
}
