//! Syncs that go on beside the writer: for what nobody waits for.

use crate::disk::File;
use crate::shelf::Segment;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle};

/// A thread that syncs one segment at a time, and what it is at.
#[derive(Debug)]
pub(crate) struct Aside<F> {
    orders: Option<SyncSender<Arc<Segment<F>>>>,
    done: Receiver<io::Result<()>>,
    /// The records before this number are durable when it has ended.
    under_way: Option<u64>,
    thread: Option<JoinHandle<()>>,
}

impl<F: File> Aside<F> {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there is none to be had.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, order) = sync_channel::<Arc<Segment<F>>>(1);
        let (tell, done) = sync_channel(1);
        let thread = Builder::new().name("log-syncer".to_string()).spawn(move || {
            for segment in order {
                // Who asked may have ended: nobody wants to know then.
                let _ = tell.send(segment.file.sync());
            }
        })?;
        Ok(Self { orders: Some(orders), done, under_way: None, thread: Some(thread) })
    }

    /// Whether a sync is under way, or ended and was not looked at.
    pub(crate) const fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    /// Begins to sync a segment, in which all records before `next` are written. There is none under way.
    /// False if the thread has ended.
    pub(crate) fn begin(&mut self, segment: &Arc<Segment<F>>, next: u64) -> bool {
        debug_assert!(!self.is_busy(), "one at a time");
        let sent = self.orders.as_ref().is_some_and(|to| to.send(Arc::clone(segment)).is_ok());
        self.under_way = sent.then_some(next);
        sent
    }

    /// What came of the one under way, if it has ended: the records before this number are durable.
    pub(crate) fn poll(&mut self) -> Option<io::Result<u64>> {
        let next = self.under_way?;
        let ended = match self.done.try_recv() {
            Ok(ended) => ended,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(gone()),
        };
        self.under_way = None;
        Some(ended.map(|()| next))
    }

    /// Waits for the one under way, if there is one.
    pub(crate) fn wait(&mut self) -> Option<io::Result<u64>> {
        let next = self.under_way.take()?;
        let ended = self.done.recv().unwrap_or_else(|_| Err(gone()));
        Some(ended.map(|()| next))
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that syncs has ended")
}

impl<F> Drop for Aside<F> {
    fn drop(&mut self) {
        self.orders = None;
        // A panic of it was told where it happened.
        self.thread.take().map(JoinHandle::join);
    }
}
