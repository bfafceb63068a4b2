//! The writer: batches to the disk, one sync for all that wait.

use super::desk::{Desk, Done};
use super::options::Options;
use crate::batch::Batch;
use crate::disk::Disk;
use crate::error::Error;
use crate::shelf::locked;
use crate::store::Store;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// After how long without work the log says in itself that all of it is durable.
const MARK_AFTER: Duration = Duration::from_millis(20);

/// How many times as much as is synced together may wait for that, where nobody waits for it.
const UNSYNCED_MOST: u64 = 8;

/// Writes until the log is closed or fails.
pub(super) fn run<D: Disk>(mut store: Store<D>, desk: &Desk, options: &Options) {
    if let Err(e) = write(&mut store, desk, options) {
        desk.fail(e);
        // The loop may have appended more in the meantime; it learns that the log has failed, and
        // nothing of it counts as under way.
        desk.held.store(0, Ordering::Relaxed);
    }
}

fn write<D: Disk>(store: &mut Store<D>, desk: &Desk, options: &Options) -> Result<(), Error> {
    let mut batch = Batch::default();
    if let Err(e) = store.start_aside() {
        // Then what nobody waits for is synced in between.
        desk.tell([Done::Warned(store.shelf().error("", "start a thread for syncs", e))]);
    }
    // When what is written must be synced though nobody waits for it.
    let mut sync_at: Option<Instant> = None;
    let mut settled = store.shelf().settled();
    loop {
        let quiet = store.hear_aside()?;
        tell_settled(store, desk, &mut settled);
        let timeout = match sync_at {
            Some(at) => Some(at.saturating_duration_since(Instant::now())),
            None => (store.wants_mark() || !quiet).then_some(MARK_AFTER),
        };
        let open = next(desk, &mut batch, timeout);
        if desk.failed.load(Ordering::Acquire) {
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
            let mut counting = locked(&desk.counting);
            counting.counts.records += batch.entries.len() as u64;
            counting.counts.bytes += batch.bytes.len() as u64;
            drop(counting);
            desk.written.store(store.next(), Ordering::Release);
            if !awaited {
                // Before it is told: where nobody waits for the disk nothing is told behind that, and who found
                // no room would wait on.
                desk.held.fetch_sub(batch.bytes.len(), Ordering::Relaxed);
            }
            // Who awaits all of it is woken when it is durable, and not twice.
            let unawaited = batch.entries.iter().any(|entry| !entry.awaited);
            desk.tell(unawaited.then(|| Done::Written(store.next())));
        }
        pass_on(desk, &mut batch);
        if store.half_full() && store.shelf().wants_spare() {
            locked(&desk.chores).spare = true;
            desk.chore.notify_one();
        }
        let due = sync_at.is_some_and(|at| at <= Instant::now());
        if awaited || store.dirty_bytes() >= UNSYNCED_MOST * options.sync_bytes {
            sync(store, desk)?;
            sync_at = None;
        } else if due || store.dirty_bytes() >= options.sync_bytes {
            let begun = store.sync_aside()?;
            locked(&desk.counting).counts.syncs += u64::from(begun);
            // The one before has not ended: a moment later.
            sync_at = (!begun).then(|| Instant::now() + options.sync_every.min(MARK_AFTER));
        } else if store.dirty_bytes() > 0 && sync_at.is_none() {
            sync_at = Some(Instant::now() + options.sync_every);
        }
        if awaited {
            desk.held.fetch_sub(batch.bytes.len(), Ordering::Relaxed);
        }
        let waited = batch.entries.iter().filter(|entry| entry.awaited);
        desk.tell(waited.map(|entry| Done::Durable(entry.ticket)));
        batch.clear();
    }
}

/// Tells the keeper, who may have a trim that waits for that, if segments have come to be there for good.
fn tell_settled<D: Disk>(store: &Store<D>, desk: &Desk, told: &mut u64) {
    let settled = store.shelf().settled();
    if settled > std::mem::replace(told, settled) {
        // It looks with the lock in hand.
        drop(locked(&desk.chores));
        desk.chore.notify_one();
    }
}

/// Makes all that was written durable, and counts how long that takes.
fn sync<D: Disk>(store: &mut Store<D>, desk: &Desk) -> Result<(), Error> {
    let begun = Instant::now();
    locked(&desk.counting).begun = Some(begun);
    let synced = store.sync();
    let lasted = begun.elapsed();
    let mut counting = locked(&desk.counting);
    counting.begun = None;
    counting.counts.syncs += 1;
    counting.counts.synced += lasted;
    counting.counts.durations.observe(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX));
    counting.counts.slowest = counting.counts.slowest.max(lasted);
    synced
}

/// Waits for a batch; an empty one when the time is over. Whether there may be more: if not, this one
/// is empty.
fn next(desk: &Desk, batch: &mut Batch, timeout: Option<Duration>) -> bool {
    let mut waiting = locked(&desk.waiting);
    let begun = Instant::now();
    while waiting.batch.is_empty() && !waiting.closing && !desk.failed.load(Ordering::Acquire) {
        waiting.sleeps = true;
        waiting = match timeout {
            Some(timeout) => {
                let left = timeout.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    break;
                }
                desk.come.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0
            }
            None => desk.come.wait(waiting).unwrap_or_else(PoisonError::into_inner),
        };
    }
    waiting.sleeps = false;
    std::mem::swap(&mut waiting.batch, batch);
    !(waiting.closing && batch.is_empty())
}

/// What is to be read goes to the reader, now that all before is written.
fn pass_on(desk: &Desk, batch: &mut Batch) {
    if !batch.loads.is_empty() {
        locked(&desk.reading).requests.extend(batch.loads.drain(..));
        desk.read.notify_one();
    }
}
