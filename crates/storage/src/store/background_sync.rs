//! Syncs beside the writer, for records that no process waits for.
//!
//! A [`SyncWorker`] carries out one order after the other, in a thread of its own. The end of a segment is an
//! order, too: the writer continues in the next one meanwhile.

use crate::disk::{DiskDir, DiskFile};
use crate::error::StorageError;
use crate::format::record::HEAD_BYTES;
use crate::segment_set::{SegmentSet, WalSegment};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle};

/// How many orders may be under way: so many segments may be full and not synced.
const ORDERS_MOST: usize = 4;

/// The files to be made durable.
pub(super) enum SyncRequest<F> {
    /// All that is written in a segment: the records before `next` are durable then.
    Sync {
        /// The segment.
        segment: Arc<WalSegment<F>>,
        /// The number of the record after the last.
        next: u64,
    },
    /// All of a segment that is full, and the next one, which is begun; then the one says that the other
    /// is there.
    Roll {
        /// The full one.
        full: Arc<WalSegment<F>>,
        /// Its successor.
        new: Arc<WalSegment<F>>,
        /// Where the turn goes.
        at: u64,
        /// The turn.
        turn: [u8; HEAD_BYTES],
    },
}

/// The writer's end: what it ordered.
pub(super) struct BackgroundSync<F> {
    orders: Option<SyncSender<SyncRequest<F>>>,
    done: Receiver<Result<(), StorageError>>,
    /// For each order under way: the records before this number are durable when it has ended.
    under_way: VecDeque<u64>,
    thread: Option<JoinHandle<()>>,
}

/// The end that carries out orders.
pub(super) struct SyncWorker<D: DiskDir> {
    segment_set: Arc<SegmentSet<D>>,
    orders: Receiver<SyncRequest<D::File>>,
    done: SyncSender<Result<(), StorageError>>,
    /// The order under way, and how many steps of it are done.
    at: Option<(SyncRequest<D::File>, u32)>,
    /// An order failed: a later one would say that it had not.
    failed: bool,
}

/// An end for a writer and one for the thread that runs it.
pub(super) fn pair<D: DiskDir>(
    segment_set: Arc<SegmentSet<D>>,
) -> (BackgroundSync<D::File>, SyncWorker<D>) {
    let (to, orders) = sync_channel(ORDERS_MOST);
    let (tell, done) = sync_channel(ORDERS_MOST);
    let background_sync =
        BackgroundSync { orders: Some(to), done, under_way: VecDeque::new(), thread: None };
    (background_sync, SyncWorker { segment_set, orders, done: tell, at: None, failed: false })
}

impl<D: DiskDir> SyncWorker<D> {
    /// Takes one step; waits for an order if it has none. False if there will not be one, or one failed.
    pub(super) fn step(&mut self) -> bool {
        if self.failed {
            return false;
        }
        let (order, step) = match self.at.take() {
            Some(at) => at,
            None => match self.orders.recv() {
                Ok(order) => (order, 0),
                Err(_) => return false,
            },
        };
        match self.carry(&order, step) {
            Ok(false) => self.at = Some((order, step + 1)),
            ended => {
                self.failed = ended.is_err();
                // The writer may have ended: no one needs the result then.
                let _ = self.done.send(ended.map(drop));
            }
        }
        true
    }

    /// Carries out a step; whether it was the last.
    fn carry(&self, order: &SyncRequest<D::File>, step: u32) -> Result<bool, StorageError> {
        let sync = |segment: &WalSegment<D::File>| {
            segment.file.sync().map_err(|e| self.segment_set.error(&segment.name, "sync it", e))
        };
        match (order, step) {
            (SyncRequest::Sync { segment, .. }, _) => return sync(segment).map(|()| true),
            (SyncRequest::Roll { full, .. }, 0) => sync(full)?,
            (SyncRequest::Roll { new, .. }, 1) => sync(new)?,
            (SyncRequest::Roll { .. }, 2) => self.segment_set.sync_names()?,
            (SyncRequest::Roll { full, at, turn, .. }, 3) => {
                let written = full.file.write_at(turn, *at);
                written.map_err(|e| self.segment_set.error(&full.name, "write to it", e))?;
            }
            (SyncRequest::Roll { full, new, .. }, _) => {
                sync(full)?;
                self.segment_set.settle(new.first);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<F: DiskFile> BackgroundSync<F> {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there is none to be had.
    pub(super) fn start<D: DiskDir<File = F>>(
        segment_set: &Arc<SegmentSet<D>>,
    ) -> io::Result<Self> {
        let (mut background_sync, mut hand) = pair(segment_set.clone());
        let run = move || while hand.step() {};
        background_sync.thread = Some(Builder::new().name("log-syncer".to_string()).spawn(run)?);
        Ok(background_sync)
    }

    /// How many orders are under way, or ended and were not looked at.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Whether it takes no order before one has ended.
    pub(super) fn is_full(&self) -> bool {
        self.under_way.len() >= ORDERS_MOST
    }

    /// Begins with an order, once those before it are carried out. It is not full. False if the thread
    /// has ended.
    pub(super) fn begin(&mut self, order: SyncRequest<F>) -> bool {
        debug_assert!(!self.is_full(), "somebody looked");
        let next = match &order {
            SyncRequest::Sync { next, .. } => *next,
            SyncRequest::Roll { new, .. } => new.first,
        };
        let sent = self.orders.as_ref().is_some_and(|to| to.send(order).is_ok());
        if sent {
            self.under_way.push_back(next);
        }
        sent
    }

    /// The result of the first order under way, if it has ended: the records before this number are
    /// durable.
    pub(super) fn poll(&mut self) -> Option<Result<u64, StorageError>> {
        let next = *self.under_way.front()?;
        let ended = match self.done.try_recv() {
            Ok(ended) => ended,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(gone()),
        };
        self.under_way.pop_front();
        Some(ended.map(|()| next))
    }

    /// Waits for the first order under way, if there is one.
    pub(super) fn wait(&mut self) -> Option<Result<u64, StorageError>> {
        let next = self.under_way.pop_front()?;
        let ended = self.done.recv().unwrap_or_else(|_| Err(gone()));
        Some(ended.map(|()| next))
    }
}

/// The thread that syncs has ended.
pub(super) fn gone() -> StorageError {
    let source = io::Error::other("the thread that syncs has ended");
    StorageError::Io { path: std::path::PathBuf::from("log"), doing: "sync it", source }
}

impl<F> Drop for BackgroundSync<F> {
    fn drop(&mut self) {
        self.orders = None;
        // A panic of it was reported where it happened.
        self.thread.take().map(JoinHandle::join);
    }
}
