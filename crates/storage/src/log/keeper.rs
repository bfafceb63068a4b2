//! The keeper: makes segments ahead of need, and gives up trimmed ones.

use super::desk::{Chores, Desk, Done};
use crate::disk::Disk;
use crate::shelf::{Shelf, locked};
use std::sync::PoisonError;
use std::time::Duration;

/// After how long a segment that could not be made is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Keeps the segments until the log is closed.
pub(super) fn run<D: Disk>(shelf: &Shelf<D>, desk: &Desk) {
    let mut trimmed = 0;
    // Whether a segment could not be made, and this was said.
    let mut warned = false;
    // What is still synced is trimmed when that is done: the writer says so.
    let may_go = |chores: &Chores| chores.trim.min(shelf.settled());
    loop {
        let mut chores = locked(&desk.chores);
        while !chores.closing && may_go(&chores) <= trimmed && (warned || !chores.spare) {
            let wait = desk.chore.wait_timeout(chores, AGAIN_AFTER);
            let (guard, waited) = wait.unwrap_or_else(PoisonError::into_inner);
            chores = guard;
            if waited.timed_out() && chores.spare {
                break;
            }
        }
        if chores.closing {
            return;
        }
        let (before, spare) = (may_go(&chores), std::mem::take(&mut chores.spare));
        drop(chores);
        if before > trimmed {
            if let Err(e) = shelf.trim(before) {
                desk.fail(e);
                return;
            }
            trimmed = before;
        }
        if spare && shelf.wants_spare() {
            match shelf.make_spare() {
                Ok(()) => warned = false,
                Err(e) => {
                    if !warned {
                        desk.tell([Done::Warned(e)]);
                    }
                    warned = true;
                    locked(&desk.chores).spare = true;
                }
            }
        }
    }
}
