//! The keeper: makes segments ahead of need, gives up trimmed ones, and makes durable how far the log is.

use super::desk::{Chores, Desk, Done};
use crate::disk::Disk;
use crate::error::Error;
use crate::format::synced;
use crate::shelf::{Shelf, locked};
use crate::store::synced::SyncedEnd;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// After how long a segment that could not be made is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How often the end of what was synced is made durable apart from the log, if it moved.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

/// Keeps the segments until the log is closed or fails.
pub(super) fn run<D: Disk>(shelf: &Shelf<D>, end: &SyncedEnd<D::File>, desk: &Desk) {
    if let Err(e) = keep(shelf, end, desk) {
        desk.fail(e);
    }
}

fn keep<D: Disk>(shelf: &Shelf<D>, end: &SyncedEnd<D::File>, desk: &Desk) -> Result<(), Error> {
    let (mut trimmed, mut settled_at) = (0, Instant::now());
    // Since when a segment could not be made, which was said.
    let mut failed_at: Option<Instant> = None;
    // What is still synced is trimmed when that is done: the writer says so.
    let may_go = |chores: &Chores| chores.trim.min(shelf.settled());
    loop {
        if settled_at.elapsed() >= SETTLE_EVERY {
            end.settle().map_err(|e| shelf.error(synced::NAME, "write to it", e))?;
            settled_at = Instant::now();
        }
        let mut chores = locked(&desk.chores);
        if chores.closing {
            return Ok(());
        }
        let tries = failed_at.is_none_or(|at| at.elapsed() >= AGAIN_AFTER);
        if may_go(&chores) <= trimmed && !(chores.spare && tries) {
            let waited = desk.chore.wait_timeout(chores, SETTLE_EVERY);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        let before = may_go(&chores);
        let spare = tries && std::mem::take(&mut chores.spare);
        drop(chores);
        if before > trimmed {
            shelf.trim(before)?;
            trimmed = before;
        }
        if spare && shelf.wants_spare() {
            match shelf.make_spare() {
                Ok(()) => failed_at = None,
                Err(e) => {
                    if failed_at.is_none() {
                        desk.tell([Done::Warned(e)]);
                    }
                    failed_at = Some(Instant::now());
                    locked(&desk.chores).spare = true;
                }
            }
        }
    }
}
