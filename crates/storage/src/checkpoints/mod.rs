//! Checkpoints: states of the application on disk, one file each.
//!
//! A loop gives a state piece by piece, as far as there is room, and a thread writes it. A state counts
//! once all of it is durable and has its name; until then the one before does. A failure concerns the
//! one state that was being saved: the next one is a new file, so it may be tried again.

mod draft;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use crate::format::checkpoint::CheckpointOwner;
pub use reader::CheckpointReader;

use crate::disk::{DiskDir, HostDisk};
use crate::error::StorageError;
use crate::format::checkpoint::PIECE_BYTES;
use crate::lock::Lock;
use crate::segment_set::locked;
use crate::wal::CompletionWaker;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use writer::{WriterCommand, WriterShared};

/// How many bytes may be given before the writer must catch up.
const QUEUE_BYTES: usize = 4 * PIECE_BYTES;

/// How saving goes.
#[derive(Debug)]
pub enum SaveProgress {
    /// So much of the state at this position is written, in bytes.
    Progress {
        /// The position.
        position: u64,
        /// How much.
        bytes: u64,
    },
    /// The state at this position survives the end of the machine from here on.
    Saved {
        /// The position.
        position: u64,
        /// How long it is, in bytes.
        bytes: u64,
    },
    /// The state at this position could not be saved; the one before counts. Further pieces of it are
    /// dropped, and another one may be begun.
    Failed {
        /// The position.
        position: u64,
        /// Why.
        error: StorageError,
    },
}

/// The checkpoints that are there when they are opened.
#[derive(Debug)]
pub struct CheckpointListing {
    /// The newest whole one.
    pub newest: Option<CheckpointReader>,
    /// The damage of those that claim to be newer.
    pub damaged: Vec<StorageError>,
    /// Whether one was begun and not finished, nor given up, when the process ended that wrote it. It is removed.
    pub unfinished: bool,
    /// The position of that one, or the one that was [noted](CheckpointDir::note) since, if its file says so.
    pub unfinished_at: Option<u64>,
}

/// The checkpoints of one directory. One loop has them.
pub struct CheckpointDir {
    work: Arc<WriterShared>,
    /// Pieces of the state are gathered here.
    piece: Vec<u8>,
    begun: bool,
    /// The owner of those that are begun.
    owner: CheckpointOwner,
    thread: Option<JoinHandle<()>>,
    /// Nobody else may have the directory.
    _lock: Option<Lock>,
}

impl CheckpointDir {
    /// Opens the directory, which is made if need be, and finds the newest whole checkpoint: all of it
    /// is read. `each` receives the progress, in bytes. `wake` is called by another thread when
    /// [`CheckpointDir::take`] has something, if it had nothing before.
    ///
    /// # Errors
    /// When another process has it, and when it cannot be used. Damage is no error here: it is part
    /// of the listing.
    pub fn open(
        path: &Path,
        wake: CompletionWaker,
        mut each: impl FnMut(u64),
    ) -> Result<(Self, CheckpointListing), StorageError> {
        let lock = Lock::take(path)?;
        Self::start(HostDisk::at(path), wake, Some(lock), &mut each)
    }

    fn start<D: DiskDir>(
        disk: D,
        wake: CompletionWaker,
        lock: Option<Lock>,
        each: &mut dyn FnMut(u64),
    ) -> Result<(Self, CheckpointListing), StorageError> {
        let unfinished_at = draft::unfinished(&disk)?;
        let unfinished = draft::discard(&disk)?;
        // A process that ended right after it had given a checkpoint its name did not wait for that to be durable, and
        // the caller trims its log by what is found.
        disk.sync().map_err(|e| StorageError::of(disk.path(), "sync its names", e))?;
        let (newest, damaged) = reader::find(&disk, each)?;
        let path = disk.path().to_path_buf();
        let work = Arc::new(WriterShared::new(wake));
        let with = work.clone();
        let thread = thread::Builder::new().name("checkpoints".to_string());
        let thread = thread.spawn(move || writer::run(&disk, &with));
        let thread = thread.map_err(|e| StorageError::of(&path, "start a thread for it", e))?;
        let piece = Vec::with_capacity(PIECE_BYTES);
        let begun = false;
        let thread = Some(thread);
        Ok((
            Self { work, piece, begun, owner: CheckpointOwner::default(), thread, _lock: lock },
            CheckpointListing { newest, damaged, unfinished, unfinished_at },
        ))
    }

    /// Checkpoints that are begun from now on say that this is their owner; before that they say none.
    pub fn own(&mut self, owner: CheckpointOwner) {
        self.owner = owner;
    }

    /// Begins to save the state at this position. One that was not finished is dropped.
    pub fn begin(&mut self, position: u64) {
        self.piece.clear();
        self.begun = true;
        self.work.order(WriterCommand::Begin(position, self.owner));
    }

    /// Has the next start find that the state at this position was begun and not finished, unless another one is begun
    /// or given up until then. It takes a few bytes and counts as no state. Best effort: where the disk is full, or the
    /// process ends at once, the next start does not find it.
    pub fn note(&mut self, position: u64) {
        self.work.order(WriterCommand::Note(position));
    }

    /// Gives the next bytes of the state. They are taken also if there is no [`room`](Self::room).
    ///
    /// # Panics
    /// If no state was begun.
    pub fn give(&mut self, mut bytes: &[u8]) {
        assert!(self.begun, "a state is begun before it is given");
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.piece.len()));
            self.piece.extend_from_slice(now);
            bytes = later;
            if self.piece.len() == PIECE_BYTES {
                self.hand_over();
            }
        }
    }

    /// All was given: [`SaveProgress::Saved`] follows once it is durable.
    ///
    /// # Panics
    /// If no state was begun.
    pub fn finish(&mut self) {
        assert!(self.begun, "a state is begun before it is finished");
        if !self.piece.is_empty() {
            self.hand_over();
        }
        self.begun = false;
        self.work.order(WriterCommand::Finish);
    }

    /// Drops the state that was begun and not finished.
    pub fn abandon(&mut self) {
        if std::mem::take(&mut self.begun) {
            self.piece.clear();
            self.work.order(WriterCommand::Abandon);
        }
    }

    /// How many bytes may be given before the writer must catch up. 0 is back-pressure.
    pub fn room(&self) -> usize {
        QUEUE_BYTES.saturating_sub(locked(&self.work.queue).bytes + self.piece.len())
    }

    /// Takes what there is to tell. Cheap if it is nothing.
    pub fn take(&mut self, each: impl FnMut(SaveProgress)) {
        self.work.take(each);
    }

    fn hand_over(&mut self) {
        let mut empty = locked(&self.work.queue).empty.pop().unwrap_or_default();
        std::mem::swap(&mut empty, &mut self.piece);
        self.work.order(WriterCommand::Piece(empty));
    }
}

impl Drop for CheckpointDir {
    /// A finished state is saved first; a next start reports that an unfinished one was begun.
    fn drop(&mut self) {
        locked(&self.work.queue).closing = true;
        self.work.come.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for CheckpointDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoints").field("begun", &self.begun).finish()
    }
}
