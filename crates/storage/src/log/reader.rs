//! The reader: records of old, while others are written.

use super::desk::{Desk, Done};
use crate::disk::Disk;
use crate::shelf::{Shelf, locked};
use amcast_core::step::Ticket;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// How many bytes may be read and not taken before the reader waits.
const LOADED_BYTES_MAX: usize = 16 << 20;

/// Reads what is asked for until the log is closed.
pub(super) fn run<D: Disk>(shelf: &Shelf<D>, desk: &Desk) {
    while let Some((ticket, number)) = next(desk) {
        let record = shelf.load(number, desk.written.load(Ordering::Acquire));
        if let Ok(record) = &record {
            locked(&desk.reading).loaded_bytes += record.len();
        }
        desk.tell([Done::Loaded { ticket, record }]);
    }
}

/// Waits for a request that may be served; none when there will not be one.
fn next(desk: &Desk) -> Option<(Ticket, u64)> {
    let mut reading = locked(&desk.reading);
    loop {
        if reading.closing {
            return None;
        }
        if reading.loaded_bytes < LOADED_BYTES_MAX
            && let Some(request) = reading.requests.pop_front()
        {
            return Some(request);
        }
        reading = desk.read.wait(reading).unwrap_or_else(PoisonError::into_inner);
    }
}
