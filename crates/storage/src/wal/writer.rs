//! The writer: batches to the disk, one sync for all that wait.

use super::io_queue::{Completion, IoQueue};
use super::options::WalOptions;
use crate::batch::RecordBatch;
use crate::disk::DiskDir;
use crate::error::StorageError;
use crate::segment_set::locked;
use crate::store::SegmentStore;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// After how long without work the log says in itself that all of it is durable.
const MARK_AFTER: Duration = Duration::from_millis(20);

/// How many times as much as is synced together may wait for that, where nobody waits for it.
const UNSYNCED_MOST: u64 = 8;

/// Writes until the log is closed or fails.
pub(super) fn run<D: DiskDir>(
    mut store: SegmentStore<D>,
    io_queue: &IoQueue,
    options: &WalOptions,
) {
    if let Err(e) = write(&mut store, io_queue, options) {
        io_queue.fail(e);
        // The loop may have appended more in the meantime; it learns that the log has failed, and
        // nothing of it counts as under way.
        io_queue.held.store(0, Ordering::Relaxed);
    }
}

fn write<D: DiskDir>(
    store: &mut SegmentStore<D>,
    io_queue: &IoQueue,
    options: &WalOptions,
) -> Result<(), StorageError> {
    let mut batch = RecordBatch::default();
    start_background(store, io_queue);
    // When written records must be synced though nobody waits for them.
    let mut sync_at: Option<Instant> = None;
    let mut settled = store.segment_set().settled();
    loop {
        let quiet = store.poll_background()?;
        tell_settled(store, io_queue, &mut settled);
        let timeout = match sync_at {
            Some(at) => Some(at.saturating_duration_since(Instant::now())),
            None => (store.wants_mark() || !quiet).then_some(MARK_AFTER),
        };
        let open = next(io_queue, &mut batch, timeout);
        if io_queue.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        if !open {
            return store.close();
        }
        let idle = batch.is_empty();
        if idle && sync_at.is_none() && store.wants_mark() {
            store.mark()?;
        }
        let awaited = batch.awaited();
        if !batch.entries.is_empty() {
            store.write(&mut batch)?;
            let mut counting = locked(&io_queue.counting);
            counting.counts.records += batch.entries.len() as u64;
            counting.counts.bytes += batch.bytes.len() as u64;
            drop(counting);
            io_queue.written.store(store.next(), Ordering::Release);
            if !awaited {
                // Before the completion is reported: where no caller waits for the disk no other report follows, and a
                // caller that found no room would wait for ever.
                io_queue.held.fetch_sub(batch.bytes.len(), Ordering::Relaxed);
            }
            // A loop that awaits all of it is woken when it is durable, and not twice.
            let unawaited = batch.entries.iter().any(|entry| !entry.awaited);
            io_queue.tell(unawaited.then(|| Completion::Written(store.next())));
        }
        pass_on(io_queue, &mut batch);
        request_spare(store, io_queue);
        let due = sync_at.is_some_and(|at| at <= Instant::now());
        if awaited || store.dirty_bytes() >= UNSYNCED_MOST * options.sync_bytes {
            sync(store, io_queue)?;
            sync_at = None;
        } else if due || store.dirty_bytes() >= options.sync_bytes {
            let begun = store.sync_in_background()?;
            locked(&io_queue.counting).counts.syncs += u64::from(begun);
            // The one before has not ended: a moment later.
            sync_at = (!begun).then(|| Instant::now() + options.sync_every.min(MARK_AFTER));
        } else if store.dirty_bytes() > 0 && sync_at.is_none() {
            sync_at = Some(Instant::now() + options.sync_every);
        }
        if awaited {
            io_queue.held.fetch_sub(batch.bytes.len(), Ordering::Relaxed);
        }
        let waited = batch.entries.iter().filter(|entry| entry.awaited);
        io_queue.tell(waited.map(|entry| Completion::Durable(entry.ticket)));
        batch.clear();
    }
}

/// Starts the thread of background syncs. Without it the writer syncs unawaited records itself, in between.
fn start_background<D: DiskDir>(store: &mut SegmentStore<D>, io_queue: &IoQueue) {
    if let Err(e) = store.start_background() {
        let error = store.segment_set().error("", "start a thread for syncs", e);
        io_queue.tell([Completion::Warned(error)]);
    }
}

/// Asks the segment allocator for a spare segment, once the present one is half full.
fn request_spare<D: DiskDir>(store: &SegmentStore<D>, io_queue: &IoQueue) {
    if store.half_full() && store.segment_set().wants_spare() {
        locked(&io_queue.allocations).spare = true;
        io_queue.chore.notify_one();
    }
}

/// Notifies the segment allocator, which may have a trim that waits for that, if segments have become durable.
fn tell_settled<D: DiskDir>(store: &SegmentStore<D>, io_queue: &IoQueue, told: &mut u64) {
    let settled = store.segment_set().settled();
    if settled > std::mem::replace(told, settled) {
        // It looks with the lock in hand.
        drop(locked(&io_queue.allocations));
        io_queue.chore.notify_one();
    }
}

/// Makes all that was written durable, and counts how long that takes.
fn sync<D: DiskDir>(store: &mut SegmentStore<D>, io_queue: &IoQueue) -> Result<(), StorageError> {
    let begun = Instant::now();
    locked(&io_queue.counting).begun = Some(begun);
    let synced = store.sync();
    let lasted = begun.elapsed();
    let mut counting = locked(&io_queue.counting);
    counting.begun = None;
    counting.counts.syncs += 1;
    counting.counts.synced += lasted;
    counting.counts.durations.observe(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX));
    counting.counts.slowest = counting.counts.slowest.max(lasted);
    synced
}

/// Waits for a batch; an empty one when the time is over. Whether there may be more: if not, this one
/// is empty.
fn next(io_queue: &IoQueue, batch: &mut RecordBatch, timeout: Option<Duration>) -> bool {
    let mut waiting = locked(&io_queue.waiting);
    let begun = Instant::now();
    while waiting.batch.is_empty() && !waiting.closing && !io_queue.failed.load(Ordering::Acquire) {
        waiting.sleeps = true;
        waiting = match timeout {
            Some(timeout) => {
                let left = timeout.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    break;
                }
                io_queue.come.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0
            }
            None => io_queue.come.wait(waiting).unwrap_or_else(PoisonError::into_inner),
        };
    }
    waiting.sleeps = false;
    std::mem::swap(&mut waiting.batch, batch);
    !(waiting.closing && batch.is_empty())
}

/// Requests of reads go to the reader, now that all records before are written.
fn pass_on(io_queue: &IoQueue, batch: &mut RecordBatch) {
    if !batch.loads.is_empty() {
        locked(&io_queue.reading).requests.extend(batch.loads.drain(..));
        io_queue.read.notify_one();
    }
}
