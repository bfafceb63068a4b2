//! The segment allocator: makes segments ahead of need, gives up trimmed ones, and makes durable how far the log is.

use super::io_queue::{AllocatorQueue, Completion, IoQueue};
use crate::disk::DiskDir;
use crate::error::StorageError;
use crate::format::synced;
use crate::segment_set::{SegmentSet, locked};
use crate::store::synced::SyncedEnd;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// After how long a segment that could not be made is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How often the end of what was synced is made durable apart from the log, if it moved.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

/// Keeps the segments until the log is closed or fails.
pub(super) fn run<D: DiskDir>(
    segment_set: &SegmentSet<D>,
    end: &SyncedEnd<D::File>,
    io_queue: &IoQueue,
) {
    if let Err(e) = keep(segment_set, end, io_queue) {
        io_queue.fail(e);
    }
}

fn keep<D: DiskDir>(
    segment_set: &SegmentSet<D>,
    end: &SyncedEnd<D::File>,
    io_queue: &IoQueue,
) -> Result<(), StorageError> {
    let (mut trimmed, mut settled_at) = (0, Instant::now());
    // Since when a segment could not be made, which was reported.
    let mut failed_at: Option<Instant> = None;
    // Segments that are still synced are trimmed when that is done: the writer reports it.
    let may_go = |allocations: &AllocatorQueue| allocations.trim.min(segment_set.settled());
    loop {
        if settled_at.elapsed() >= SETTLE_EVERY {
            end.settle().map_err(|e| segment_set.error(synced::NAME, "write to it", e))?;
            settled_at = Instant::now();
        }
        let mut allocations = locked(&io_queue.allocations);
        if allocations.closing {
            return Ok(());
        }
        let tries = failed_at.is_none_or(|at| at.elapsed() >= AGAIN_AFTER);
        if may_go(&allocations) <= trimmed && !(allocations.spare && tries) {
            let waited = io_queue.chore.wait_timeout(allocations, SETTLE_EVERY);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        let before = may_go(&allocations);
        let spare = tries && std::mem::take(&mut allocations.spare);
        drop(allocations);
        if before > trimmed {
            segment_set.trim(before, end)?;
            trimmed = before;
        }
        if spare && segment_set.wants_spare() {
            match segment_set.make_spare() {
                Ok(()) => failed_at = None,
                Err(e) => {
                    if failed_at.is_none() {
                        io_queue.tell([Completion::Warned(e)]);
                    }
                    failed_at = Some(Instant::now());
                    locked(&io_queue.allocations).spare = true;
                }
            }
        }
    }
}
