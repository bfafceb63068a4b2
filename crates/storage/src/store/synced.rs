//! The synced end, kept apart from the log: it distinguishes a log that was cut short from one whose
//! end never reached the disk, and a log that lost its first segments from one that was trimmed.
//!
//! The records of a log say themselves which of those before them were durable. They cannot say
//! that the last of them are gone, with all heads behind, nor that the first of them were not trimmed. So a file of
//! its own has the number of the first record that is not known to be synced, and the number up to which segments may
//! have been given up, in three places:
//! - the first is written after each sync of the log, and not synced: what the kernel has outlasts the
//!   process. It costs a small write into the kernel's memory.
//! - the other two are written in turns and synced, beside the writer, in every five seconds in which the number
//!   grew, and when the log is closed or opened. One of them is whole, however a write to the other ends. Both are
//!   written and synced before a segment is given up.
//!
//! Each is written after the records that it speaks of are durable, so any part of it that reaches the disk is
//! true. If a log ends before it, synced records are gone. A start finds so
//! every loss of records that were synced, but for those of about the last five seconds of a machine that
//! failed.

use crate::disk::{DiskDir, DiskFile};
use crate::error::{Misfit, StorageError};
use crate::format::LogId;
use crate::format::state::LogState;
use crate::format::synced::{self, FILE_BYTES, NAME, NEW_NAME, PLACE_BYTES, PLACES, SyncedRange};
use crate::segment_set::{SegmentSet, locked};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The file of an open log.
pub(crate) struct SyncedEnd<F> {
    file: F,
    log: LogId,
    /// The records before this number are synced.
    number: Arc<AtomicU64>,
    /// Segments that have only records before this number may be missing.
    trimmed: AtomicU64,
    durable: Mutex<DurablePosition>,
}

/// The content of the synced places.
struct DurablePosition {
    /// The highest numbers that are on the disk for certain.
    range: SyncedRange,
    /// The place that is written next.
    next: usize,
}

impl<F: DiskFile> SyncedEnd<F> {
    /// Opens the file of a log whose records before `number` are synced, or makes it, and says that in it.
    pub(crate) fn open<D: DiskDir<File = F>>(
        segment_set: &SegmentSet<D>,
        number: u64,
    ) -> Result<Self, StorageError> {
        let (disk, log) = (&segment_set.disk, segment_set.log);
        // A start that found the log whole found nothing behind this number missing. A version before said nothing
        // of it: from now on all that is there must be.
        let trimmed = match read(disk, log, false)?.and_then(|range| range.trimmed) {
            Some(trimmed) => trimmed,
            None => {
                let trimmed = segment_set.first();
                replace(disk, log, SyncedRange { end: number, trimmed: Some(trimmed) })?;
                trimmed
            }
        };
        let file = disk.open(NAME).map_err(|e| segment_set.error(NAME, "open it", e))?;
        let mut bytes = [0; FILE_BYTES];
        file.read_at(&mut bytes, 0).map_err(|e| segment_set.error(NAME, "read it", e))?;
        let [_, second, third] = synced::places(&bytes, log);
        // The one that says less is written over first.
        let next = if second <= third { 1 } else { 2 };
        let range = SyncedRange { end: 0, trimmed: Some(0) };
        let durable = Mutex::new(DurablePosition { range, next });
        let (number_said, trimmed) = (Arc::default(), AtomicU64::new(trimmed));
        let end = Self { file, log, number: number_said, trimmed, durable };
        end.note(number)
            .and_then(|()| end.settle())
            .map_err(|e| segment_set.error(NAME, "write to it", e))?;
        Ok(end)
    }

    /// The records before this number are synced.
    pub(crate) fn number(&self) -> &Arc<AtomicU64> {
        &self.number
    }

    /// The records before `number` are synced: says so in a way that outlasts the process.
    pub(crate) fn note(&self, number: u64) -> io::Result<()> {
        if number > self.number.load(Ordering::Relaxed) {
            self.file.write_at(&synced::encode(self.log, self.range(number)), 0)?;
            self.number.store(number, Ordering::Release);
        }
        Ok(())
    }

    /// Makes durable what was noted.
    pub(crate) fn settle(&self) -> io::Result<()> {
        let mut durable = locked(&self.durable);
        let range = self.range(self.number.load(Ordering::Acquire));
        if range <= durable.range { Ok(()) } else { self.write_durable(range, &mut durable) }
    }

    /// Segments that have only records before `first` are given up next: durable when this returns.
    pub(crate) fn trim(&self, first: u64) -> io::Result<()> {
        let mut durable = locked(&self.durable);
        self.trimmed.fetch_max(first, Ordering::AcqRel);
        let range = self.range(self.number.load(Ordering::Acquire));
        // In both places: one that is damaged later must not make the log look damaged.
        self.write_durable(range, &mut durable)?;
        self.write_durable(range, &mut durable)
    }

    fn write_durable(&self, range: SyncedRange, durable: &mut DurablePosition) -> io::Result<()> {
        let place = (durable.next * PLACE_BYTES) as u64;
        self.file.write_at(&synced::encode(self.log, range), place)?;
        self.file.sync()?;
        *durable = DurablePosition { range, next: PLACES - durable.next };
        Ok(())
    }

    fn range(&self, end: u64) -> SyncedRange {
        SyncedRange { end, trimmed: Some(self.trimmed.load(Ordering::Acquire)) }
    }
}

/// The records that a log must have, as far as its file says it; none where there was no such file yet.
///
/// # Errors
/// When it is missing although the log has had one, and when nothing in it is whole.
pub(crate) fn read<D: DiskDir>(
    disk: &D,
    log: LogId,
    is_kept: bool,
) -> Result<Option<SyncedRange>, StorageError> {
    let path = disk.path_of(NAME);
    let file = match disk.open(NAME) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !is_kept => return Ok(None),
        opened => opened.map_err(|e| StorageError::of(&path, "open it", e))?,
    };
    let mut bytes = [0; FILE_BYTES];
    let got = file.read_at(&mut bytes, 0).map_err(|e| StorageError::of(&path, "read it", e))?;
    let why = || synced::decode(&bytes[..got], log).err().unwrap_or(Misfit::Sum);
    let content = synced::content(&bytes[..got], log);
    content.map(Some).ok_or_else(|| StorageError::Misfit { path, why: why() })
}

/// The same of a log with this state, if it has one.
pub(crate) fn of<D: DiskDir>(
    disk: &D,
    log: LogId,
    state: Option<&LogState>,
) -> Result<Option<SyncedRange>, StorageError> {
    read(disk, log, state.is_some_and(|state| state.keeps_end))
}

/// Replaces the file, with any content, by one that says this.
pub(crate) fn replace<D: DiskDir>(
    disk: &D,
    log: LogId,
    range: SyncedRange,
) -> Result<(), StorageError> {
    let fail = |e| StorageError::of(&disk.path_of(NEW_NAME), "write to it", e);
    match disk.remove(NEW_NAME) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let file = disk.create(NEW_NAME).map_err(fail)?;
    let mut bytes = [0; FILE_BYTES];
    for place in bytes.chunks_mut(PLACE_BYTES) {
        let head = synced::encode(log, range);
        place[..head.len()].copy_from_slice(&head);
    }
    file.write_at(&bytes, 0).and_then(|()| file.sync()).map_err(fail)?;
    disk.rename(NEW_NAME, NAME).map_err(fail)?;
    disk.sync().map_err(|e| StorageError::of(disk.path(), "sync its names", e))
}

#[cfg(test)]
mod tests;
