//! The thread that writes checkpoints, and what lies between it and the loop.

use super::SaveProgress;
use super::draft::{Draft, discard};
use crate::disk::DiskDir;
use crate::error::StorageError;
use crate::format::checkpoint::CheckpointOwner;
use crate::segment_set::locked;
use crate::wal::CompletionWaker;
use rustix::process::setpriority_process;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Buffers that are kept to be used again.
const EMPTY_MAX: usize = 4;

/// The lower priority of the writer where there are fewer cores than work: nobody waits for a checkpoint, and
/// clients wait for all others.
const NICENESS: i32 = 10;

/// A command to the writer.
pub(super) enum WriterCommand {
    Begin(u64, CheckpointOwner),
    Note(u64),
    Piece(Vec<u8>),
    Finish,
    Abandon,
}

/// The state that the loop and the writer share.
pub(super) struct WriterShared {
    wake: CompletionWaker,
    pub(super) queue: Mutex<WriterQueue>,
    /// Something waits for the writer.
    pub(super) come: Condvar,
    told: Mutex<Vec<SaveProgress>>,
    /// Whether there is news since the last look.
    any: AtomicBool,
}

/// The commands that wait for the writer.
#[derive(Default)]
pub(super) struct WriterQueue {
    orders: VecDeque<WriterCommand>,
    /// How many bytes of pieces wait, or are being written.
    pub(super) bytes: usize,
    /// Buffers to be used again.
    pub(super) empty: Vec<Vec<u8>>,
    pub(super) closing: bool,
}

impl WriterShared {
    pub(super) fn new(wake: CompletionWaker) -> Self {
        Self {
            wake,
            queue: Mutex::default(),
            come: Condvar::new(),
            told: Mutex::default(),
            any: AtomicBool::new(false),
        }
    }

    pub(super) fn order(&self, order: WriterCommand) {
        let mut queue = locked(&self.queue);
        if let WriterCommand::Piece(piece) = &order {
            queue.bytes += piece.len();
        }
        queue.orders.push_back(order);
        drop(queue);
        self.come.notify_one();
    }

    pub(super) fn take(&self, mut each: impl FnMut(SaveProgress)) {
        if self.any.swap(false, Ordering::Acquire) {
            let told = std::mem::take(&mut *locked(&self.told));
            told.into_iter().for_each(&mut each);
        }
    }

    fn tell(&self, saving: SaveProgress) {
        let mut told = locked(&self.told);
        // Of how far it is only the last word counts.
        if matches!(told.last(), Some(SaveProgress::Progress { .. })) {
            told.pop();
        }
        told.push(saving);
        drop(told);
        if !self.any.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    /// Waits for an order; none when there will not be one.
    fn next(&self) -> Option<WriterCommand> {
        let mut queue = locked(&self.queue);
        loop {
            if let Some(order) = queue.orders.pop_front() {
                return Some(order);
            }
            if queue.closing {
                return None;
            }
            queue = self.come.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The piece is written, or dropped.
    fn done_with(&self, mut piece: Vec<u8>) {
        let mut queue = locked(&self.queue);
        queue.bytes -= piece.len();
        if queue.empty.len() < EMPTY_MAX {
            piece.clear();
            queue.empty.push(piece);
        }
    }
}

/// Does what is ordered until there will be no more.
pub(super) fn run<D: DiskDir>(disk: &D, work: &WriterShared) {
    // Of this thread alone, on Linux. It need not be allowed: then a checkpoint costs the others more.
    let _ = setpriority_process(None, NICENESS);
    // None also after a failure: then the rest of the state is dropped.
    let mut draft: Option<Draft<D::File>> = None;
    while let Some(order) = work.next() {
        let position = draft.as_ref().map(Draft::position);
        let (position, done) = match order {
            WriterCommand::Begin(position, owner) => {
                let begun = Draft::begin(disk, position, owner).map(|begun| draft = Some(begun));
                (position, begun)
            }
            WriterCommand::Note(position) => {
                // A draft that is being written says more; what cannot be noted is not missed.
                if draft.is_none() {
                    let _ = Draft::begin(disk, position, CheckpointOwner::default());
                }
                continue;
            }
            WriterCommand::Piece(piece) => {
                let written = draft.as_mut().map_or(Ok(()), |draft| draft.put(disk, &piece));
                work.done_with(piece);
                let Some(position) = position else { continue };
                (position, written)
            }
            WriterCommand::Finish => {
                let (Some(whole), Some(position)) = (draft.take(), position) else { continue };
                let bytes = whole.state_bytes();
                let saved = whole.finish(disk);
                (position, saved.map(|()| work.tell(SaveProgress::Saved { position, bytes })))
            }
            WriterCommand::Abandon => {
                let Some(position) = position else { continue };
                draft = None;
                (position, discard(disk).map(drop))
            }
        };
        match (done, &draft) {
            (Err(error), _) => fail(disk, work, &mut draft, position, error),
            (Ok(()), Some(draft)) => {
                work.tell(SaveProgress::Progress { position, bytes: draft.state_bytes() });
            }
            (Ok(()), None) => {}
        }
    }
}

/// Drops the state, and the room that it took: it may be what fails others.
fn fail<D: DiskDir>(
    disk: &D,
    work: &WriterShared,
    draft: &mut Option<Draft<D::File>>,
    position: u64,
    error: StorageError,
) {
    *draft = None;
    // The first error is the one to tell; the file is removed before the next state, too.
    let _ = discard(disk);
    work.tell(SaveProgress::Failed { position, error });
}
