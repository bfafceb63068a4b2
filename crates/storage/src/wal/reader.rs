//! The reader: records of old, while others are written.

use super::io_queue::{Completion, IoQueue};
use crate::disk::DiskDir;
use crate::segment_set::{SegmentSet, locked};
use amcast_core::step::Ticket;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// How many bytes may be read and not taken before the reader waits.
const LOADED_BYTES_MAX: usize = 16 << 20;

/// Reads what is asked for until the log is closed.
pub(super) fn run<D: DiskDir>(segment_set: &SegmentSet<D>, io_queue: &IoQueue) {
    while let Some((ticket, number)) = next(io_queue) {
        let record = segment_set.load(number, io_queue.written.load(Ordering::Acquire));
        if let Ok(record) = &record {
            locked(&io_queue.reading).loaded_bytes += record.len();
        }
        io_queue.tell([Completion::Loaded { ticket, record }]);
    }
}

/// Waits for a request that may be served; none when there will not be one.
fn next(io_queue: &IoQueue) -> Option<(Ticket, u64)> {
    let mut reading = locked(&io_queue.reading);
    loop {
        if reading.closing {
            return None;
        }
        if reading.loaded_bytes < LOADED_BYTES_MAX
            && let Some(request) = reading.requests.pop_front()
        {
            return Some(request);
        }
        reading = io_queue.read.wait(reading).unwrap_or_else(PoisonError::into_inner);
    }
}
