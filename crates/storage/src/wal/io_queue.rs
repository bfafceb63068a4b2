//! The state that the loop and the threads of a log share.

use super::CompletionWaker;
use crate::batch::RecordBatch;
use crate::error::StorageError;
use crate::segment_set::locked;
use crate::store::ReadError;
use amcast_core::histogram::Histogram;
use amcast_core::step::Ticket;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// A completed operation of a log.
#[derive(Debug)]
pub enum Completion {
    /// The records before this number are with the operating system: they survive the end of this
    /// process from here on, but perhaps not that of the machine. Once for a batch in which
    /// there are records that are not awaited.
    Written(u64),
    /// The record with this ticket survives the end of the machine from here on, and all before do.
    Durable(Ticket),
    /// The record that was asked for.
    Loaded {
        /// The ticket of the request.
        ticket: Ticket,
        /// The record, or why there is none.
        record: Result<Vec<u8>, ReadError>,
    },
    /// The next segment cannot be made ahead of need; the log continues, and fails when this one is full
    /// if nothing changes.
    Warned(StorageError),
    /// The log failed and takes nothing more. Records that are not [durable](Completion::Durable) by now may or may
    /// not be there after the next start. Once.
    Failed(StorageError),
}

/// The operations of a log since it was opened, for status pages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogCounts {
    /// Records written.
    pub records: u64,
    /// Bytes written, heads included.
    pub bytes: u64,
    /// Syncs that ended.
    pub syncs: u64,
    /// How long they took, together.
    pub synced: Duration,
    /// The longest.
    pub slowest: Duration,
    /// How long each took that a record waited for.
    pub durations: Histogram,
    /// How long the one lasts that has not ended. A disk that hangs shows here, and nowhere else.
    pub under_way: Option<Duration>,
}

/// The same while it is counted.
#[derive(Default)]
pub(super) struct LogCounters {
    pub(super) counts: LogCounts,
    /// When the sync began that has not ended.
    pub(super) begun: Option<Instant>,
}

/// The queue between the loop on the one side and the threads on the other.
pub(super) struct IoQueue {
    wake: CompletionWaker,
    pub(super) waiting: Mutex<WriteQueue>,
    /// Something waits for the writer.
    pub(super) come: Condvar,
    pub(super) reading: Mutex<ReadQueue>,
    /// Something is to be read, or may be by now.
    pub(super) read: Condvar,
    pub(super) allocations: Mutex<AllocatorQueue>,
    /// The allocator has something to do.
    pub(super) chore: Condvar,
    pub(super) ready: Mutex<Vec<Completion>>,
    /// Whether something was put into `ready` since it was last looked at.
    pub(super) any: AtomicBool,
    /// How many bytes of the log are appended and not yet written, or awaited and not durable.
    pub(super) held: AtomicUsize,
    /// The records before this number are with the operating system.
    pub(super) written: AtomicU64,
    pub(super) failed: AtomicBool,
    pub(super) counting: Mutex<LogCounters>,
}

/// The records that wait for the writer.
#[derive(Default)]
pub(super) struct WriteQueue {
    pub(super) batch: RecordBatch,
    /// Whether the writer sleeps and is to be woken.
    pub(super) sleeps: bool,
    pub(super) closing: bool,
}

/// The requests that wait for the reader.
#[derive(Default)]
pub(super) struct ReadQueue {
    pub(super) requests: VecDeque<(Ticket, u64)>,
    /// How many bytes of records were read and not taken.
    pub(super) loaded_bytes: usize,
    pub(super) closing: bool,
}

/// The work that waits for the segment allocator.
#[derive(Default)]
pub(super) struct AllocatorQueue {
    /// The records before this number are not needed.
    pub(super) trim: u64,
    /// The next segment is needed soon.
    pub(super) spare: bool,
    pub(super) closing: bool,
}

impl IoQueue {
    pub(super) fn new(wake: CompletionWaker, written: u64) -> Self {
        Self {
            wake,
            waiting: Mutex::default(),
            come: Condvar::new(),
            reading: Mutex::default(),
            read: Condvar::new(),
            allocations: Mutex::default(),
            chore: Condvar::new(),
            ready: Mutex::default(),
            any: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            written: AtomicU64::new(written),
            failed: AtomicBool::new(false),
            counting: Mutex::default(),
        }
    }

    /// Tells the loop what is done.
    pub(super) fn tell(&self, done: impl IntoIterator<Item = Completion>) {
        let mut ready = locked(&self.ready);
        let before = ready.len();
        ready.extend(done);
        let told = ready.len() > before;
        drop(ready);
        if told && !self.any.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    /// The log failed: says so, if it is the first time.
    pub(super) fn fail(&self, e: StorageError) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.tell([Completion::Failed(e)]);
            // The writer learns of it, though nothing waits for it. It looks with the lock in hand.
            drop(locked(&self.waiting));
            self.come.notify_one();
        }
    }

    /// No more will be submitted.
    pub(super) fn close_writer(&self) {
        locked(&self.waiting).closing = true;
        self.come.notify_one();
    }

    /// No more is to be read or kept.
    pub(super) fn close_others(&self) {
        locked(&self.reading).closing = true;
        self.read.notify_one();
        locked(&self.allocations).closing = true;
        self.chore.notify_one();
    }
}
