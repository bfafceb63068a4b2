//! The segments of a log, those that are trimmed, and spare ones: what the writer, the reader and the
//! allocator share.
//!
//! The order in which things are made durable keeps the log whole at every moment:
//! - a segment gets its name after its head is synced, and its first record after its name is;
//! - it comes into being only after all records of the one before it are synced;
//! - where nobody waits for records, both are done while more is written, and the segment before says that
//!   this one is there when they are: until then it may be lost with the end of the one before;
//! - trimmed ones lose their names one by one from the front, each synced before the next, once the file of the
//!   synced end says so.

use crate::disk::{DiskDir, DiskFile};
use crate::error::StorageError;
use crate::format::LogId;
use crate::format::segment::{self, SegmentHead};
use crate::format::synced;
use crate::store::synced::SyncedEnd;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How far apart records are whose places are kept in memory, in bytes of the log: what is read at
/// most to find a record.
const INDEX_BYTES: u64 = 32 << 10;

/// How many spares are kept beside those that are needed again and again.
const SPARES_BESIDE: usize = 2;

/// Where there is room for fewer segments than that, no spare is kept that need not be.
const ROOM_SHORT: u64 = 16;

/// How much is zeroed with one call, in bytes. A kernel with large folios keeps what one call wrote in one piece, and
/// counts all of it as written when a record is written into it: by pieces of 1 MiB an idle node seems to
/// write 9 MB in a second.
const ZERO_BYTES: usize = 16 << 10;

/// One segment.
#[derive(Debug)]
pub(crate) struct WalSegment<F> {
    /// The number of its first record.
    pub(crate) first: u64,
    /// How many bytes it has.
    pub(crate) bytes: u64,
    /// Its name.
    pub(crate) name: String,
    pub(crate) file: F,
    /// Numbers and places of some records, the first first.
    index: Mutex<Vec<(u64, u64)>>,
}

impl<F> WalSegment<F> {
    pub(crate) fn new(name: String, file: F, first: u64, bytes: u64) -> Self {
        Self { first, bytes, name, file, index: Mutex::new(Vec::new()) }
    }

    /// Remembers where a record begins, if no near one's place is known.
    pub(crate) fn note(&self, number: u64, offset: u64) {
        let mut index = locked(&self.index);
        if index.last().is_none_or(|&(_, last)| offset - last >= INDEX_BYTES) {
            index.push((number, offset));
        }
    }

    /// The nearest record at or before `number` whose place is known, and its place.
    pub(crate) fn near(&self, number: u64) -> (u64, u64) {
        let index = locked(&self.index);
        let after = index.partition_point(|&(known, _)| known <= number);
        after.checked_sub(1).map_or((self.first, segment::RECORDS_AT), |i| index[i])
    }
}

/// All segments.
pub(crate) struct SegmentSet<D: DiskDir> {
    pub(crate) disk: D,
    pub(crate) log: LogId,
    /// How many bytes a new segment has.
    segment_bytes: u64,
    /// How many trimmed segments are kept to be used again at least; if none is, none ever is.
    spares_min: usize,
    inner: Mutex<SegmentSetState<D::File>>,
    /// A spare was made, or could not be.
    made: Condvar,
    /// The segments that begin up to this number are there for good.
    settled: AtomicU64,
}

struct SegmentSetState<F> {
    /// In order of their numbers; the last one is written to.
    segments: VecDeque<Arc<WalSegment<F>>>,
    /// Files that wait to become segments, with their names. All zero, or with records of old.
    spares: Vec<(String, F)>,
    /// The number in the name of the next spare.
    spare_next: u64,
    /// Somebody makes a spare.
    making: bool,
    /// Segments that were begun since some were trimmed.
    begun: usize,
    /// The same at the time before.
    begun_before: usize,
}

impl<F> SegmentSetState<F> {
    /// How many segments will be begun until some are trimmed again, now that some are: no more than each of
    /// the last two times, for a burst may not come again.
    fn needed(&mut self) -> usize {
        let begun = std::mem::take(&mut self.begun);
        begun.min(std::mem::replace(&mut self.begun_before, begun))
    }
}

impl<D: DiskDir> SegmentSet<D> {
    pub(crate) fn new(disk: D, log: LogId, segment_bytes: u64, spares_min: usize) -> Self {
        let (segments, spares) = (VecDeque::new(), Vec::new());
        let inner = SegmentSetState {
            segments,
            spares,
            spare_next: 0,
            making: false,
            begun: 0,
            begun_before: 0,
        };
        Self {
            disk,
            log,
            segment_bytes,
            spares_min,
            inner: Mutex::new(inner),
            made: Condvar::new(),
            settled: AtomicU64::new(0),
        }
    }

    /// Puts in a segment that was found, the oldest first.
    pub(crate) fn adopt(&self, segment: Arc<WalSegment<D::File>>) {
        locked(&self.inner).segments.push_back(segment);
    }

    /// Puts in a spare that was found, or removes it if it does not fit. An unclean one, too: it may have been
    /// a segment whose name was lost with the machine, and no record in it counts.
    pub(crate) fn adopt_spare(&self, name: String, clean: bool) -> Result<(), StorageError> {
        let file = self.disk.open(&name).map_err(|e| self.error(&name, "open it", e))?;
        let size = file.size().map_err(|e| self.error(&name, "see how long it is", e))?;
        let mut inner = locked(&self.inner);
        inner.spare_next = inner.spare_next.max(segment::spare_of(&name).map_or(0, |n| n + 1));
        if clean && size == self.segment_bytes && inner.spares.len() < self.spares_min {
            inner.spares.push((name, file));
            return Ok(());
        }
        self.disk.remove(&name).map_err(|e| self.error(&name, "remove it", e))
    }

    /// The segment with that record, if none of it was trimmed. Later ones may be in the last one.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<WalSegment<D::File>>> {
        let inner = locked(&self.inner);
        let after = inner.segments.partition_point(|segment| segment.first <= number);
        after.checked_sub(1).map(|i| inner.segments[i].clone())
    }

    /// The number of the first record that is there.
    pub(crate) fn first(&self) -> u64 {
        locked(&self.inner).segments.front().map_or(0, |segment| segment.first)
    }

    /// Makes the segment that begins with record `first`. All records before it are synced.
    pub(crate) fn begin(&self, first: u64) -> Result<Arc<WalSegment<D::File>>, StorageError> {
        let (from, file) = self.take(first, 0)?;
        file.sync().map_err(|e| self.error(&from, "sync it", e))?;
        let segment = self.name(&from, file, first)?;
        self.sync_names()?;
        Ok(segment)
    }

    /// The same, but it is not there for good before its file is synced, and then the names. So many records
    /// right before `first` may not be durable.
    pub(crate) fn begin_unsynced(
        &self,
        first: u64,
        loose: u64,
    ) -> Result<Arc<WalSegment<D::File>>, StorageError> {
        let (from, file) = self.take(first, loose)?;
        self.name(&from, file, first)
    }

    /// Takes a spare, or makes one, and gives it the head of a segment.
    fn take(&self, first: u64, loose: u64) -> Result<(String, D::File), StorageError> {
        let mut inner = locked(&self.inner);
        while inner.making && inner.spares.is_empty() {
            inner = self.made.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        let spare = inner.spares.pop();
        inner.begun += 1;
        drop(inner);
        let (from, file) = match spare {
            Some(spare) => spare,
            None => self.make()?,
        };
        let head = SegmentHead { log: self.log, first, bytes: self.segment_bytes, loose }.encode();
        file.write_at(&head, 0).map_err(|e| self.error(&from, "write to it", e))?;
        Ok((from, file))
    }

    /// Gives a file that has its head the name of its segment.
    fn name(
        &self,
        from: &str,
        file: D::File,
        first: u64,
    ) -> Result<Arc<WalSegment<D::File>>, StorageError> {
        let name = segment::name(first);
        self.disk.rename(from, &name).map_err(|e| self.error(from, "rename it", e))?;
        let segment = Arc::new(WalSegment::new(name, file, first, self.segment_bytes));
        self.adopt(segment.clone());
        Ok(segment)
    }

    /// Says that the segment which begins with record `first` is there for good, and that the one before it
    /// is not written to any more.
    pub(crate) fn settle(&self, first: u64) {
        self.settled.fetch_max(first, Ordering::AcqRel);
    }

    /// The segments that begin up to this number are there for good: what is before may be trimmed.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Whether a spare should be made, so that the writer need not wait for it.
    pub(crate) fn wants_spare(&self) -> bool {
        let inner = locked(&self.inner);
        inner.spares.is_empty() && !inner.making && self.spares_min > 0
    }

    /// Makes a spare ahead of need.
    pub(crate) fn make_spare(&self) -> Result<(), StorageError> {
        locked(&self.inner).making = true;
        let made = self.make();
        let mut inner = locked(&self.inner);
        inner.making = false;
        let made = made.map(|spare| inner.spares.push(spare));
        self.made.notify_all();
        made
    }

    /// A zeroed file. Its blocks are there and its length stays: then a sync of what is written into
    /// it later writes those bytes and nothing else.
    fn make(&self) -> Result<(String, D::File), StorageError> {
        let name = {
            let mut inner = locked(&self.inner);
            inner.spare_next += 1;
            segment::spare_name(inner.spare_next - 1)
        };
        let file = self.disk.create(&name).map_err(|e| self.error(&name, "make it", e))?;
        match self.zero(&file) {
            Ok(()) => Ok((name, file)),
            Err(e) => {
                // Its room is needed more than its error: that one was the first.
                let _ = self.disk.remove(&name);
                Err(self.error(&name, "write to it", e))
            }
        }
    }

    fn zero(&self, file: &D::File) -> std::io::Result<()> {
        let zeros = vec![0; ZERO_BYTES.min(self.segment_bytes as usize)];
        let mut at = 0;
        while at < self.segment_bytes {
            let count = zeros.len().min((self.segment_bytes - at) as usize);
            file.write_at(&zeros[..count], at)?;
            at += count as u64;
        }
        file.sync()
    }

    /// Gives up the segments all of whose records are before `before`, never the last one, nor one that is
    /// still synced: that one goes with a later call. As many spares stay as were needed since the last time:
    /// to make one costs as much writing as to fill it.
    ///
    /// `end` says first, durably, that they may be missing: a log that lost its first segments in another way is
    /// damaged.
    pub(crate) fn trim(&self, before: u64, end: &SyncedEnd<D::File>) -> Result<(), StorageError> {
        let mut spares_max = None;
        // It is a matter of room only: who cannot say how much there is has enough.
        let short = self.disk.room().is_ok_and(|room| room < ROOM_SHORT * self.segment_bytes);
        let before = before.min(self.settled());
        if let Some(first) = self.first_after(before) {
            end.trim(first).map_err(|e| self.error(synced::NAME, "write to it", e))?;
        }
        loop {
            let mut inner = locked(&self.inner);
            match inner.segments.get(1) {
                Some(second) if second.first <= before => {}
                _ => break,
            }
            let Some(old) = inner.segments.pop_front() else { break };
            let spares_max = *spares_max.get_or_insert_with(|| {
                let needed = inner.needed() + SPARES_BESIDE;
                let most = if short { self.spares_min } else { needed.max(self.spares_min) };
                if self.spares_min == 0 { 0 } else { most }
            });
            inner.spare_next += 1;
            let spare = segment::spare_name(inner.spare_next - 1);
            let keep = old.bytes == self.segment_bytes && inner.spares.len() < spares_max;
            drop(inner);
            if keep { self.disk.rename(&old.name, &spare) } else { self.disk.remove(&old.name) }
                .map_err(|e| self.error(&old.name, "give it up", e))?;
            self.sync_names()?;
            // A reader that still has it open finds no record of that number in it any more.
            if keep {
                let file = self.disk.open(&spare).map_err(|e| self.error(&spare, "open it", e))?;
                locked(&self.inner).spares.push((spare, file));
            }
        }
        spares_max.map_or(Ok(()), |most| self.remove_spares(most))
    }

    /// The number of the first record that is left of the log by a trim; none if it gives up nothing.
    fn first_after(&self, before: u64) -> Option<u64> {
        let inner = locked(&self.inner);
        let firsts = inner.segments.iter().skip(1).map(|segment| segment.first);
        firsts.take_while(|&first| first <= before).last()
    }

    /// Removes spares until there are no more than so many.
    fn remove_spares(&self, most: usize) -> Result<(), StorageError> {
        loop {
            let mut inner = locked(&self.inner);
            if inner.spares.len() <= most {
                return Ok(());
            }
            let Some((name, _)) = inner.spares.pop() else { return Ok(()) };
            drop(inner);
            self.disk.remove(&name).map_err(|e| self.error(&name, "remove it", e))?;
        }
    }

    /// Makes durable which files have which names.
    pub(crate) fn sync_names(&self) -> Result<(), StorageError> {
        self.disk.sync().map_err(|e| StorageError::of(self.disk.path(), "sync its names", e))
    }

    /// The meaning of an error about a file of this directory.
    pub(crate) fn error(&self, name: &str, doing: &'static str, e: std::io::Error) -> StorageError {
        StorageError::of(&self.disk.path_of(name), doing, e)
    }
}

/// The lock; who panicked with it in hand left nothing half done that matters.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
