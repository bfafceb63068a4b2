//! Checks that the names of a cluster directory's files are files: a FIFO in place of one would
//! block its reader for ever.

use super::supervised::{is_data, is_log, is_ours};
use super::{ClusterDir, ClusterDirError, at};
use crate::config::node_rank;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// How deep a node keeps files in its directory: in one for each log, and in what is in that.
const DEPTH_MAX: usize = 4;

/// The kind of entry expected under a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    File,
    Directory,
}

impl ClusterDir {
    /// Checks that nothing that a node would open here, of the node of this rank or of all and their supervisor, is
    /// anything else than a file, or a directory with such in it. Links are followed. A missing entry is accepted.
    ///
    /// # Errors
    /// When something is, by its name; or when a directory cannot be read.
    pub fn check_files(&self, rank: Option<usize>) -> Result<(), ClusterDirError> {
        for entry in entries(&self.path)? {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let of = name.split_once('.').and_then(|(node, _)| node_rank(node));
            let kind = match (rank, of) {
                (Some(rank), of) if of != Some(rank) => None,
                _ => kind_of(name),
            };
            match kind {
                None => {}
                Some(FileKind::File) => check(&entry.path(), FileKind::File)?,
                Some(FileKind::Directory) => {
                    check(&entry.path(), FileKind::Directory)?;
                    check_within(&entry.path(), DEPTH_MAX)?;
                }
            }
        }
        Ok(())
    }
}

/// The kind of entry that a cluster directory has under this name; none for sockets, which are made
/// anew, and for foreign files.
fn kind_of(name: &str) -> Option<FileKind> {
    let bytes = name.as_bytes();
    if is_data(bytes) {
        return Some(FileKind::Directory);
    }
    let is_socket = name.ends_with(".sock") || name.ends_with(".in");
    let is_file = name == "lock" || is_ours(bytes) || is_log(bytes);
    (is_file && !is_socket).then_some(FileKind::File)
}

/// The entries of the directory; none if it does not exist.
fn entries(path: &Path) -> Result<Vec<fs::DirEntry>, ClusterDirError> {
    match fs::read_dir(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        read => read.and_then(Iterator::collect).map_err(at(path)),
    }
}

/// The kind of what is there; none if nothing is.
fn type_of(path: &Path) -> Result<Option<FileType>, ClusterDirError> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found.file_type())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(at(path)(e)),
    }
}

fn check(path: &Path, kind: FileKind) -> Result<(), ClusterDirError> {
    let Some(found) = type_of(path)? else { return Ok(()) };
    let (is_right, wanted) = match kind {
        FileKind::File => (found.is_file(), "a file"),
        FileKind::Directory => (found.is_dir(), "a directory"),
    };
    if is_right {
        return Ok(());
    }
    Err(ClusterDirError::NotFile { path: path.to_path_buf(), is: words(found), wanted })
}

/// Checks that a directory of what a node keeps has files and such directories in it. One that cannot be looked into,
/// such as `lost+found` of a volume, is none of the node's.
fn check_within(path: &Path, depth: usize) -> Result<(), ClusterDirError> {
    let entries = match entries(path) {
        Err(ClusterDirError::Io(_, e)) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(());
        }
        entries => entries?,
    };
    for entry in entries {
        let path = entry.path();
        match type_of(&path)? {
            Some(found) if found.is_dir() => {
                if depth > 1 {
                    check_within(&path, depth - 1)?;
                }
            }
            _ => check(&path, FileKind::File)?,
        }
    }
    Ok(())
}

fn words(found: FileType) -> &'static str {
    match found {
        f if f.is_dir() => "a directory",
        f if f.is_file() => "a file",
        f if f.is_fifo() => "a FIFO",
        f if f.is_socket() => "a socket",
        f if f.is_block_device() || f.is_char_device() => "a device",
        _ => "something else",
    }
}
