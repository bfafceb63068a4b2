//! A log as a loop has it: nothing here waits for the disk.
//!
//! Three threads do. The *writer* takes all that waits, writes it with one call, and, if anyone waits
//! for it, syncs it with one more: what comes meanwhile is the next batch, so that the number of
//! records in a sync follows from how many come while one lasts. The *reader* reads records again. The
//! *allocator* makes the next segment before it is needed, gives up trimmed ones, and makes durable now and then how
//! far the log is.

mod io_queue;
mod options;
mod reader;
mod segment_allocator;
#[cfg(test)]
mod tests;
mod writer;

pub use io_queue::{Completion, LogCounts};
pub use options::WalOptions;

use crate::batch::RecordBatch;
use crate::disk::{DiskDir, HostDisk};
use crate::error::StorageError;
use crate::format::record::extent;
use crate::format::segment::RECORDS_AT;
use crate::lock::Lock;
use crate::machine::BootIdentity;
use crate::segment_set::locked;
use crate::store::{LogRecovery, OpenHooks, SegmentStore};
use amcast_core::step::Ticket;
use io_queue::IoQueue;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// Called by other threads when [`Wal::take`] has something, if it had nothing before. It must not
/// wait for the loop.
pub type CompletionWaker = Arc<dyn Fn() + Send + Sync>;

/// A process's log. One loop has it.
///
/// A round of the loop: [`append`](Wal::append), [`load`](Wal::load) and [`trim`](Wal::trim) as often
/// as need be, then [`submit`](Wal::submit) once, and [`take`](Wal::take) when there is something.
/// A record is copied once when it is appended; nothing is allocated once buffers have grown to the bytes in flight.
/// `submit` takes a lock that the writer holds for no longer than it takes to swap two buffers.
///
/// When it is dropped, or [closed](Wal::close), all that was submitted is synced first.
pub struct Wal {
    io_queue: Arc<IoQueue>,
    /// Records that were appended and not submitted.
    batch: RecordBatch,
    /// The number of the next record.
    next: u64,
    /// The records before this number are synced.
    synced: Arc<AtomicU64>,
    record_bytes_max: usize,
    queue_bytes: usize,
    /// The completions that [`Wal::take`] works on, kept for its room.
    taken: Vec<Completion>,
    threads: Vec<JoinHandle<()>>,
    /// Nobody else may have the directory.
    _lock: Option<Lock>,
}

/// Why a record is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendError {
    /// It is longer than a record may be; both in bytes.
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The log failed before, and said so with [`Completion::Failed`].
    Failed,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes, most } => write!(
                f,
                "a record of {bytes} bytes does not fit into the log: {most} may be; choose larger \
                 segments"
            ),
            Self::Failed => f.write_str("the log failed, and takes nothing more"),
        }
    }
}

impl std::error::Error for AppendError {}

impl Wal {
    /// Opens the log in the directory, or makes one; the directory is made if need be, but not what it
    /// is in. `each` gets the number and the bytes of every record that is there, the oldest first; if
    /// an error follows, forget them.
    ///
    /// Takes as long as it takes to read the log, and to sync its end.
    ///
    /// # Errors
    /// When another process has it, when it is damaged, and when the directory cannot be used. Nothing
    /// was changed in the log then, and [`StorageError`] says what can be done.
    pub fn open(
        path: &Path,
        options: &WalOptions,
        wake: CompletionWaker,
        each: impl FnMut(u64, &[u8]),
    ) -> Result<(Self, LogRecovery), StorageError> {
        Self::open_marking(path, options, wake, each, || Ok(()))
    }

    /// The same. If records may be missing at the end ([`LogRecovery::lossy`]), `lossy` is called before anything is
    /// changed that shows it: a process that ends right after does not learn it, and the next one finds the log whole.
    /// So a mark that `lossy` makes and the caller removes is there if that may be so, and never without a loss.
    ///
    /// # Errors
    /// As for [`Wal::open`], and when `lossy` fails.
    pub fn open_marking(
        path: &Path,
        options: &WalOptions,
        wake: CompletionWaker,
        mut each: impl FnMut(u64, &[u8]),
        mut lossy: impl FnMut() -> io::Result<()>,
    ) -> Result<(Self, LogRecovery), StorageError> {
        options.check()?;
        let lock = Lock::take(path)?;
        let machine = BootIdentity::this(options.owner)?;
        let disk = HostDisk::at(path);
        let (bytes, spares) = (options.segment_bytes, options.spares);
        let mut hooks = OpenHooks { each: &mut each, lossy: &mut lossy };
        let opened = SegmentStore::open_with(disk, bytes, spares, &machine, &mut hooks);
        let (store, recovered) = opened?;
        Ok((Self::start(store, options, wake, Some(lock))?, recovered))
    }

    /// Starts the threads of an open log.
    fn start<D: DiskDir>(
        store: SegmentStore<D>,
        options: &WalOptions,
        wake: CompletionWaker,
        lock: Option<Lock>,
    ) -> Result<Self, StorageError> {
        let next = store.next();
        let io_queue = Arc::new(IoQueue::new(wake, next));
        let mut log = Self {
            io_queue: io_queue.clone(),
            batch: RecordBatch::default(),
            next,
            synced: store.end().number().clone(),
            record_bytes_max: options.record_bytes_max(),
            queue_bytes: options.queue_bytes,
            taken: Vec::new(),
            threads: Vec::new(),
            _lock: lock,
        };
        let (segment_set, pace) = (store.segment_set().clone(), *options);
        let (on, with) = (segment_set.clone(), io_queue.clone());
        let end = store.end().clone();
        // The writer first: it is the first to end.
        let path = store.segment_set().disk.path().to_path_buf();
        let with_writer = io_queue.clone();
        log.spawn(&path, "log-writer", move || writer::run(store, &with_writer, &pace))?;
        log.spawn(&path, "log-reader", move || reader::run(&on, &with))?;
        log.spawn(&path, "log-allocator", move || {
            segment_allocator::run(&segment_set, &end, &io_queue)
        })?;
        Ok(log)
    }

    fn spawn(
        &mut self,
        path: &Path,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), StorageError> {
        let thread = thread::Builder::new().name(name.to_string()).spawn(run);
        self.threads.push(thread.map_err(|e| StorageError::of(path, "start a thread for it", e))?);
        Ok(())
    }

    /// Appends a record; gives its number. With `awaited`, [`Completion::Durable`] follows with the ticket;
    /// without, it is written soon and synced some time later.
    ///
    /// It is taken also if there is no [`room`](Wal::room): a step of a protocol is not cut in two.
    ///
    /// # Errors
    /// When it is too long, and when the log has failed. Nothing is appended then.
    pub fn append(
        &mut self,
        ticket: Ticket,
        record: &[u8],
        awaited: bool,
    ) -> Result<u64, AppendError> {
        let (bytes, most) = (record.len(), self.record_bytes_max);
        if bytes > most {
            return Err(AppendError::TooLong { bytes, most });
        }
        if self.io_queue.failed.load(Ordering::Acquire) {
            return Err(AppendError::Failed);
        }
        self.io_queue.held.fetch_add(extent(bytes) as usize, Ordering::Relaxed);
        self.batch.push(ticket, record, awaited);
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Asks for a record: [`Completion::Loaded`] follows, after any time. Records that were appended before are
    /// found. Records that were read and not taken hold up the others.
    pub fn load(&mut self, ticket: Ticket, number: u64) {
        self.batch.loads.push((ticket, number));
    }

    /// Says that the records before this number are not needed any more. A segment without
    /// other records is removed; the other records are returned again at the next start.
    pub fn trim(&mut self, before: u64) {
        let mut allocations = locked(&self.io_queue.allocations);
        if before > allocations.trim {
            allocations.trim = before;
            self.io_queue.chore.notify_one();
        }
    }

    /// Hands over what was appended and asked for since the last time.
    pub fn submit(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let mut waiting = locked(&self.io_queue.waiting);
        waiting.batch.absorb(&mut self.batch);
        if std::mem::take(&mut waiting.sleeps) {
            drop(waiting);
            self.io_queue.come.notify_one();
        }
    }

    /// Takes what is done, in order. Cheap if it is nothing.
    pub fn take(&mut self, mut each: impl FnMut(Completion)) {
        if !self.io_queue.any.swap(false, Ordering::Acquire) {
            return;
        }
        std::mem::swap(&mut self.taken, &mut *locked(&self.io_queue.ready));
        let mut loaded = 0;
        for done in self.taken.drain(..) {
            if let Completion::Loaded { record: Ok(record), .. } = &done {
                loaded += record.len();
            }
            each(done);
        }
        if loaded > 0 {
            locked(&self.io_queue.reading).loaded_bytes -= loaded;
            self.io_queue.read.notify_one();
        }
    }

    /// How many bytes of records may be appended before the writer must catch up. 0 is back-pressure.
    pub fn room(&self) -> usize {
        self.queue_bytes.saturating_sub(self.io_queue.held.load(Ordering::Relaxed))
    }

    /// As [`room`](Self::room), where nothing waits.
    pub fn room_max(&self) -> usize {
        self.queue_bytes
    }

    /// The number of the next record.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The records before this number survive the end of this process; [`Completion::Written`] says when
    /// there are more that are not awaited.
    pub fn written(&self) -> u64 {
        self.io_queue.written.load(Ordering::Acquire)
    }

    /// The records before this number are synced: no end of process or machine takes them.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// The operations since it was opened.
    pub fn counts(&self) -> LogCounts {
        let counting = locked(&self.io_queue.counting);
        LogCounts {
            under_way: counting.begun.map(|begun| begun.elapsed()),
            ..counting.counts.clone()
        }
    }

    /// The longest record that is taken, in bytes.
    pub fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }

    /// Ends the log in good order: all is synced, and the next start need not wonder. Completions that
    /// were not taken are lost.
    ///
    /// # Errors
    /// When something failed that [`Wal::take`] has not given yet.
    pub fn close(mut self) -> Result<(), StorageError> {
        self.end();
        let mut ready = locked(&self.io_queue.ready);
        let failed = ready.drain(..).find_map(|done| match done {
            Completion::Failed(e) => Some(e),
            _ => None,
        });
        failed.map_or(Ok(()), Err)
    }

    /// Ends the threads, the writer first: it has use for the others.
    fn end(&mut self) {
        self.submit();
        self.io_queue.close_writer();
        let mut threads = self.threads.drain(..);
        if let Some(writer) = threads.next() {
            // A panic of it was reported where it happened.
            let _ = writer.join();
        }
        self.io_queue.close_others();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("next", &self.next).field("written", &self.written()).finish()
    }
}

/// The longest record that fits into a segment of so many bytes.
const fn longest(segment_bytes: u64) -> usize {
    // A head before it, and one behind it that leads to the next segment.
    (segment_bytes - RECORDS_AT - 2 * extent(0)) as usize
}
