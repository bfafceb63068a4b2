//! Cuts a log where it is damaged, so that it opens again, and keeps what it cuts.

use super::inspection::{Inspection, inspect};
use crate::disk::{DiskDir, DiskFile, HostDisk};
use crate::error::StorageError;
use crate::format::segment;
use crate::format::state::{self, LogState};
use crate::format::synced::SyncedRange;
use crate::format::{BootId, HEAD_BYTES, LogOwnerId};
use crate::lock::Lock;
use crate::store::{open_segment, read_state, synced};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file beside the directory of a log, of this extension, says that what the log had is gone: its
/// process asks the others before it promises anything.
pub const LOST: &str = "lost";

/// How much is copied or zeroed at once, in bytes.
const COPY_BYTES: usize = 1 << 20;

/// The records that a repair took out of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemovedRecords {
    /// The records from this number on are gone.
    pub from: u64,
    /// How many of them were whole.
    pub whole: u64,
    /// The files that keep what was cut.
    pub kept: Vec<PathBuf>,
}

/// Cuts the log in a directory where it is damaged, makes heads and state anew if only those are, and has a log
/// begin where it does that has lost its first segments; none if it is sound. `agree` is shown what would be
/// lost, and nothing is changed unless it agrees. Removed records may have been promised to others: a mark
/// ([`LOST`]) beside the directory tells the process so.
///
/// # Errors
/// When a process has the directory, when nothing of the log is whole, and when it cannot be written
/// to. A repair that was cut off can be repeated.
pub fn repair(
    path: &Path,
    agree: impl FnOnce(&Inspection) -> bool,
) -> Result<Option<RemovedRecords>, StorageError> {
    let _lock = Lock::take(path)?;
    let mut marked = Ok(());
    let cut = cut(&HostDisk::at(path), |inspection| {
        let agrees = agree(inspection);
        // Before anything is cut: the process may be started in between.
        marked = if agrees { mark(path) } else { Ok(()) };
        agrees && marked.is_ok()
    });
    marked?;
    cut
}

/// The same where the log has lost its end or its first segments and nothing else, or cannot prove that it has not
/// ([`Inspection::is_cut_short`]); none if it is sound or damaged in another way.
///
/// # Errors
/// As for [`repair`].
pub fn repair_end(path: &Path) -> Result<Option<RemovedRecords>, StorageError> {
    repair(path, Inspection::is_cut_short)
}

/// Moves the directory of a log aside of which no segment is left, so that its process makes a new one there: where it
/// is now. None if there is a segment, or no log was made. A mark ([`LOST`]) beside the directory tells the process
/// that what the log had is gone.
///
/// # Errors
/// When a process has the directory, and when it cannot be moved.
pub fn set_aside(path: &Path) -> Result<Option<PathBuf>, StorageError> {
    let _lock = Lock::take(path)?;
    let disk = HostDisk::at(path);
    let names = disk.names().map_err(|e| StorageError::of(path, "list it", e))?;
    let is_left = names.iter().any(|name| segment::first_of(name).is_some());
    if is_left || !names.iter().any(|name| name == state::NAME) {
        return Ok(None);
    }
    // Before it is moved: the process may be started in between.
    mark(path)?;
    let whole = path.canonicalize().map_err(|e| StorageError::of(path, "see where it is", e))?;
    let numbered = (2_u64..).map(|n| whole.with_extension(format!("cut.{n}")));
    let mut all = std::iter::once(whole.with_extension("cut")).chain(numbered);
    let aside = all.find(|aside| !aside.exists()).unwrap_or_default();
    let moved = std::fs::rename(&whole, &aside);
    let moved =
        moved.and_then(|()| std::fs::File::open(whole.parent().unwrap_or(&whole))?.sync_all());
    moved.map_err(|e| StorageError::of(path, "move it aside", e))?;
    Ok(Some(aside))
}

/// Says beside the log in `path` that what it had is gone.
fn mark(path: &Path) -> Result<(), StorageError> {
    let whole = path.canonicalize().map_err(|e| StorageError::of(path, "see where it is", e))?;
    let mark = whole.with_extension(LOST);
    let fail = |e| StorageError::of(&mark, "make it", e);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).open(&mark).map_err(fail)?;
    std::fs::File::open(mark.parent().unwrap_or(&whole))
        .and_then(|dir| dir.sync_all())
        .map_err(fail)
}

pub(crate) fn cut<D: DiskDir>(
    disk: &D,
    agree: impl FnOnce(&Inspection) -> bool,
) -> Result<Option<RemovedRecords>, StorageError> {
    let inspection = inspect(disk, None, &mut |_| {})?;
    if inspection.is_sound() {
        return Ok(None);
    }
    let (Some(log), Some((name, end))) = (inspection.log, &inspection.cut) else {
        return Err(StorageError::Options {
            says: "nothing of this log is whole, so that there is nothing to cut it to; move its directory \
                   away, and, where a majority of the other nodes works, have the process start anew from their state",
        });
    };
    if !agree(&inspection) {
        return Ok(None);
    }
    for (name, head) in &inspection.headless {
        let path = disk.path_of(name);
        let mended = disk.open(name).and_then(|file| {
            file.write_at(&head.encode(), 0)?;
            file.sync()
        });
        mended.map_err(|e| StorageError::of(&path, "write to it", e))?;
    }
    let mut kept = Vec::new();
    // The newest first: if this ends in between, the rest is a log that is damaged in the same place.
    for seen in inspection.segments.iter().rev().filter(|seen| seen.path > disk.path_of(name)) {
        let old = segment::name(seen.first);
        let aside = free(disk, &format!("{old}.cut"))?;
        disk.rename(&old, &aside).map_err(|e| StorageError::of(&seen.path, "rename it", e))?;
        sync_names(disk)?;
        kept.push(disk.path_of(&aside));
    }
    let path = disk.path_of(name);
    let file = disk.open(name).map_err(|e| StorageError::of(&path, "open it", e))?;
    let bytes = file.size().map_err(|e| StorageError::of(&path, "see how long it is", e))?;
    let made = open_segment(disk, name).map_or(bytes, |(_, head)| head.bytes);
    let blank =
        blank(&file, end.offset, bytes).map_err(|e| StorageError::of(&path, "read it", e))?;
    if !blank || bytes < made {
        // Of a file that is too short all of it is kept: its length is what shows that it was.
        let (from, aside) = match bytes < made {
            true => (0, format!("{name}.short.cut")),
            false => (end.offset, format!("{name}.from-{}.cut", end.offset)),
        };
        let aside = free(disk, &aside)?;
        copy(disk, &file, from, bytes, &aside)?;
        kept.push(disk.path_of(&aside));
        let until = bytes.max(made);
        zero(&file, end.offset, until).map_err(|e| StorageError::of(&path, "write to it", e))?;
    }
    // From here on the log begins and ends there.
    let range = SyncedRange { end: end.number, trimmed: Some(inspection.first) };
    synced::replace(disk, log, range)?;
    // Removed records have lives up to this one, and no record of it remains behind the cut.
    let life = inspection.life.unwrap_or(0).max(inspection.highest_life).saturating_add(1);
    let owner = read_state(disk).ok().flatten().map_or(LogOwnerId::UNKNOWN, |state| state.owner);
    replace_state(disk, &LogState { log, life, boot: BootId(0), keeps_end: true, owner })?;
    Ok(Some(RemovedRecords { from: end.number, whole: inspection.beyond, kept }))
}

/// A name like this one that no file has.
fn free<D: DiskDir>(disk: &D, name: &str) -> Result<String, StorageError> {
    let names = disk.names().map_err(|e| StorageError::of(disk.path(), "list it", e))?;
    let numbered = (2_u64..).map(|n| format!("{name}.{n}"));
    let mut all = std::iter::once(name.to_string()).chain(numbered);
    Ok(all.find(|name| !names.contains(name)).unwrap_or_default())
}

fn copy<D: DiskDir>(
    disk: &D,
    from: &D::File,
    at: u64,
    end: u64,
    to: &str,
) -> Result<(), StorageError> {
    let fail = |e| StorageError::of(&disk.path_of(to), "copy what is cut there", e);
    let copy = disk.create(to).map_err(fail)?;
    let copied = pieces(at, end, |place, count| {
        let mut piece = vec![0; count];
        let got = from.read_at(&mut piece, place)?;
        copy.write_at(&piece[..got], place - at)
    })
    .and_then(|()| copy.sync());
    if copied.is_err() {
        // It is tried again under another name: a part of a copy would take the last room each time. The first error is
        // the one to tell.
        let _ = disk.remove(to);
    }
    copied.map_err(fail)?;
    sync_names(disk)
}

/// Whether there is nothing but zeros.
fn blank<F: DiskFile>(file: &F, at: u64, end: u64) -> io::Result<bool> {
    let mut blank = true;
    pieces(at, end, |place, count| {
        let mut piece = vec![0; if blank { count } else { 0 }];
        file.read_at(&mut piece, place)?;
        blank &= piece.iter().all(|&b| b == 0);
        Ok(())
    })?;
    Ok(blank)
}

fn zero<F: DiskFile>(file: &F, at: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0; COPY_BYTES];
    pieces(at, end, |place, count| file.write_at(&zeros[..count], place))?;
    file.sync()
}

/// Goes from `at` to `end` in pieces.
fn pieces(at: u64, end: u64, mut each: impl FnMut(u64, usize) -> io::Result<()>) -> io::Result<()> {
    let mut place = at;
    while place < end {
        let count = COPY_BYTES.min((end - place) as usize);
        each(place, count)?;
        place += count as u64;
    }
    Ok(())
}

fn replace_state<D: DiskDir>(disk: &D, state: &LogState) -> Result<(), StorageError> {
    let fail = |e| StorageError::of(&disk.path_of(state::NEW_NAME), "write to it", e);
    match disk.remove(state::NEW_NAME) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let file = disk.create(state::NEW_NAME).map_err(fail)?;
    let bytes: [u8; HEAD_BYTES] = state.encode();
    file.write_at(&bytes, 0).and_then(|()| file.sync()).map_err(fail)?;
    disk.rename(state::NEW_NAME, state::NAME).map_err(fail)?;
    sync_names(disk)
}

fn sync_names<D: DiskDir>(disk: &D) -> Result<(), StorageError> {
    disk.sync().map_err(|e| StorageError::of(disk.path(), "sync its names", e))
}
