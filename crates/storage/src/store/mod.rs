//! A log as its one writer has it: no thread, no queue.

mod background_sync;
mod damage;
mod recover;
pub(crate) mod synced;
#[cfg(test)]
mod tests;

pub(crate) use damage::{classify, missing_front, never_was};
pub use recover::{LogRecovery, TornTail};
pub(crate) use recover::{OpenHooks, beginning, open_segment, read_state};

use crate::batch::RecordBatch;
use crate::disk::{DiskDir, DiskFile};
use crate::error::StorageError;
use crate::format::record::{HEAD_BYTES, RecordChecksumSeed, RecordHeader, RecordKind};
use crate::format::segment::RECORDS_AT;
use crate::record_scan::{RecordScan, ScanPosition, ScanStep};
use crate::segment_set::{SegmentSet, WalSegment};
use background_sync::{BackgroundSync, SyncRequest};
use std::fmt;
use std::sync::Arc;
use synced::SyncedEnd;

/// The writer's end of a log.
pub(crate) struct SegmentStore<D: DiskDir> {
    segment_set: Arc<SegmentSet<D>>,
    seed: RecordChecksumSeed,
    life: u32,
    /// The segment that is written to.
    segment: Arc<WalSegment<D::File>>,
    /// Where the next record goes.
    at: u64,
    /// Its number.
    next: u64,
    /// All records before this number are durable.
    durable: u64,
    /// The same, as far as a head in the log says it.
    said: u64,
    /// How many bytes were written since the last sync began.
    dirty_bytes: u64,
    /// Says how far the log is durable, apart from it.
    end: Arc<SyncedEnd<D::File>>,
    /// Syncs what nobody waits for, if there is a thread for it.
    background_sync: Option<BackgroundSync<D::File>>,
}

impl<D: DiskDir> SegmentStore<D> {
    /// The segments, which it shares with readers.
    pub(crate) fn segment_set(&self) -> &Arc<SegmentSet<D>> {
        &self.segment_set
    }

    /// The file that says, apart from the log, how far it is durable.
    pub(crate) fn end(&self) -> &Arc<SyncedEnd<D::File>> {
        &self.end
    }

    /// The number of the next record.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// How many bytes are written since the last sync began.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Whether the segment that is written to is half full: then the next one is needed soon.
    pub(crate) fn half_full(&self) -> bool {
        self.at > self.segment.bytes / 2
    }

    /// Whether no head in the log says yet that all of it is durable.
    pub(crate) fn wants_mark(&self) -> bool {
        self.said < self.durable && self.durable == self.next
    }

    /// Gives the records their numbers and hands them to the operating system: they survive the end
    /// of the process from here on. They stay in the batch, which has their tickets.
    ///
    /// If nobody waits for any of them, neither does the end of a segment wait for the disk.
    ///
    /// After an error nothing may be written any more.
    pub(crate) fn write(&mut self, batch: &mut RecordBatch) -> Result<(), StorageError> {
        let awaited = batch.awaited();
        // Records that are stamped and not yet written are `bytes[from..to]`.
        let (mut from, mut to) = (0, 0);
        for entry in &batch.entries {
            let extent = RecordBatch::extent(entry) as usize;
            if self.at + (to + extent - from) as u64 > self.limit() {
                self.put(&batch.bytes[from..to])?;
                from = to;
                if awaited {
                    self.roll()?
                } else {
                    self.roll_in_background()?
                }
                assert!(self.at + extent as u64 <= self.limit(), "a record fits into a segment");
            }
            let place = to + HEAD_BYTES;
            let record = &batch.bytes[place..place + entry.length as usize];
            let sum = crc32c::crc32c(record);
            let head = self.head(RecordKind::Record(entry.length), sum).encode(self.seed);
            batch.bytes[to..place].copy_from_slice(&head);
            self.segment.note(self.next, self.at + (to - from) as u64);
            self.next += 1;
            to += extent;
        }
        self.put(&batch.bytes[from..to])
    }

    /// Makes all that was written durable.
    ///
    /// After an error nothing may be written any more: the kernel may have dropped what it could not
    /// write, and a second try would succeed without it.
    pub(crate) fn sync(&mut self) -> Result<(), StorageError> {
        // The file tells of an error once: not to this one if that one has it.
        while self.await_background()? {}
        if self.dirty_bytes > 0 {
            self.segment.file.sync().map_err(|e| self.error("sync it", e))?;
            self.dirty_bytes = 0;
        }
        self.durable = self.next;
        self.note_end()
    }

    /// From now on [`SegmentStore::sync_in_background`] does not wait.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub(crate) fn start_background(&mut self) -> std::io::Result<()> {
        self.background_sync = Some(BackgroundSync::start(&self.segment_set)?);
        Ok(())
    }

    /// Begins to make all durable that was written, while more is written. False if the one before has
    /// not ended.
    ///
    /// After an error nothing may be written any more.
    pub(crate) fn sync_in_background(&mut self) -> Result<bool, StorageError> {
        self.poll_background()?;
        if self
            .background_sync
            .as_ref()
            .is_some_and(|background_sync| background_sync.under_way() > 0)
        {
            return Ok(false);
        }
        let order = SyncRequest::Sync { segment: self.segment.clone(), next: self.next };
        if self.background_sync.as_mut().is_some_and(|background_sync| background_sync.begin(order))
        {
            self.dirty_bytes = 0;
        } else {
            self.sync()?;
        }
        Ok(true)
    }

    /// Takes note of syncs beside that have ended; whether there is none under way.
    ///
    /// After an error nothing may be written any more.
    pub(crate) fn poll_background(&mut self) -> Result<bool, StorageError> {
        while let Some(ended) = self.background_sync.as_mut().and_then(BackgroundSync::poll) {
            self.durable = self.durable.max(ended?);
        }
        self.note_end()?;
        Ok(self
            .background_sync
            .as_ref()
            .is_none_or(|background_sync| background_sync.under_way() == 0))
    }

    /// Waits for the first sync beside that is under way; whether there was one.
    fn await_background(&mut self) -> Result<bool, StorageError> {
        let Some(ended) = self.background_sync.as_mut().and_then(BackgroundSync::wait) else {
            return Ok(false);
        };
        self.durable = self.durable.max(ended?);
        self.note_end()?;
        Ok(true)
    }

    /// Says apart from the log how far it is durable. Not synced: the allocator does that now and then.
    fn note_end(&self) -> Result<(), StorageError> {
        self.end.note(self.durable).map_err(|e| self.end_error(e))
    }

    fn end_error(&self, e: std::io::Error) -> StorageError {
        self.segment_set.error(crate::format::synced::NAME, "write to it", e)
    }

    /// Says in the log that all before is durable, so that later damage to the last records is distinguished
    /// from records that never were. Not synced: it is as good a moment later.
    pub(crate) fn mark(&mut self) -> Result<(), StorageError> {
        self.alone(RecordKind::Mark)
    }

    /// Makes all durable and says in the log that it ended in good order.
    pub(crate) fn close(&mut self) -> Result<(), StorageError> {
        self.sync()?;
        self.alone(RecordKind::Close)?;
        self.sync()?;
        self.end.settle().map_err(|e| self.end_error(e))
    }

    /// Writes a head without a record, unless the segment is full: then the next one says as much.
    fn alone(&mut self, kind: RecordKind) -> Result<(), StorageError> {
        self.said = self.next;
        if self.at + HEAD_BYTES as u64 > self.limit() {
            return Ok(());
        }
        let head = self.head(kind, 0).encode(self.seed);
        self.put(&head)
    }

    fn head(&mut self, kind: RecordKind, sum: u32) -> RecordHeader {
        self.said = self.durable;
        RecordHeader { kind, sum, life: self.life, number: self.next, durable: self.durable }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        if !bytes.is_empty() {
            self.segment.file.write_at(bytes, self.at).map_err(|e| self.error("write to it", e))?;
            self.at += bytes.len() as u64;
            self.dirty_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    /// Up to where records may lie: behind there is room for the turn.
    fn limit(&self) -> u64 {
        self.segment.bytes - HEAD_BYTES as u64
    }

    /// Continues in a new segment. The old one says so once the new one is there for good, and before
    /// there is a record in it: so a segment that is lost with records in it is missed.
    fn roll(&mut self) -> Result<(), StorageError> {
        self.sync()?;
        let segment = self.segment_set.begin(self.next)?;
        let turn = self.head(RecordKind::Turn, 0).encode(self.seed);
        self.put(&turn)?;
        self.sync()?;
        self.segment_set.settle(self.next);
        self.segment = segment;
        self.at = RECORDS_AT;
        Ok(())
    }

    /// Continues in a new segment at once: the same is done in the background, in the same order, while records are
    /// written to it. If the machine fails meanwhile, all behind the first record that is missing is cut
    /// off at the next start.
    fn roll_in_background(&mut self) -> Result<(), StorageError> {
        self.poll_background()?;
        if self.background_sync.as_ref().is_some_and(BackgroundSync::is_full) {
            self.await_background()?;
        }
        let Some(background_sync) = &mut self.background_sync else { return self.roll() };
        let new = self.segment_set.begin_unsynced(self.next, self.next - self.durable)?;
        // It is not written before that is so.
        let (number, durable) = (self.next, self.next);
        let turn =
            RecordHeader { kind: RecordKind::Turn, sum: 0, life: self.life, number, durable };
        let (full, turn) = (self.segment.clone(), turn.encode(self.seed));
        if !background_sync.begin(SyncRequest::Roll { full, new: new.clone(), at: self.at, turn }) {
            return Err(background_sync::gone());
        }
        self.dirty_bytes = 0;
        self.segment = new;
        self.at = RECORDS_AT;
        Ok(())
    }

    fn error(&self, doing: &'static str, e: std::io::Error) -> StorageError {
        self.segment_set.error(&self.segment.name, doing, e)
    }
}

/// Why a record cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// It was trimmed.
    Trimmed,
    /// There is none of that number yet.
    NotWritten,
    /// It cannot be read, or is not as it was written.
    Failed(StorageError),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trimmed => f.write_str("the record was trimmed"),
            Self::NotWritten => f.write_str("there is no record of that number yet"),
            Self::Failed(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl<D: DiskDir> SegmentSet<D> {
    /// Reads a record again. Those before `next` are written.
    pub(crate) fn load(&self, number: u64, next: u64) -> Result<Vec<u8>, ReadError> {
        if number >= next {
            return Err(ReadError::NotWritten);
        }
        let segment = self.find(number).ok_or(ReadError::Trimmed)?;
        let (near, offset) = segment.near(number);
        let stand = ScanPosition { offset, number: near, life: 0, closed: false, turned: false };
        let mut walk =
            RecordScan::new(&segment.file, RecordChecksumSeed::of(self.log), segment.bytes, stand);
        let failed = |e| ReadError::Failed(self.error(&segment.name, "read it", e));
        loop {
            match walk.step().map_err(failed)? {
                ScanStep::Record(found) if found == number => {
                    return Ok(walk.bytes().map_err(failed)?.to_vec());
                }
                ScanStep::Record(_) => {}
                // A trimmed segment is used again, perhaps while it is read.
                ScanStep::Nothing(_) if self.find(number).is_none() => {
                    return Err(ReadError::Trimmed);
                }
                ScanStep::Nothing(what) => {
                    let stand = walk.stand();
                    return Err(ReadError::Failed(StorageError::Damaged(crate::error::Damage {
                        path: self.disk.path_of(&segment.name),
                        offset: stand.offset,
                        number: stand.number,
                        what,
                    })));
                }
            }
        }
    }
}
