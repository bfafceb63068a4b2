//! Reads that need no order: a node answers them from what it has executed.
//!
//! Fronts in the node's process hand them in; the node's loop answers them between deliveries, when all
//! that their clients wrote before is executed there.

use super::Hosted;
use amcast_core::GroupSet;
use amcast_runtime::application::Wake;
use amcast_services::kv::partitions::refusing_epoch;
use amcast_services::kv::split_epoch;
use amcast_services::{Envelope, Executor, Peek, Wrote};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a node may lack what a client wrote; then the client is told.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads that may wait. Further ones are refused.
const WAITING_MAX: usize = 16_384;

/// Is told the answer.
type OnRead = Box<dyn FnOnce(Vec<u8>) + Send>;

struct Read {
    dst: GroupSet,
    payload: Box<[u8]>,
    written: Box<[Wrote]>,
    since: Instant,
    done: OnRead,
}

/// The reads of one node.
#[derive(Default)]
pub struct Reads {
    queue: Mutex<Vec<Read>>,
    /// Whether there are any: saves the node's loop the lock.
    any: AtomicBool,
    wake: OnceLock<Wake>,
}

impl Reads {
    /// From now on `wake` has the node's loop come round.
    pub(super) fn begin(&self, wake: Wake) {
        assert!(self.wake.set(wake).is_ok(), "a node begins once");
    }

    /// Hands in a read, an envelope and a command, of a client that wrote `written` before.
    pub(super) fn hand_in(&self, dst: GroupSet, payload: &[u8], written: &[Wrote], done: OnRead) {
        let since = Instant::now();
        let read = Read { dst, payload: payload.into(), written: written.into(), since, done };
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= WAITING_MAX {
            drop(queue);
            return refuse(read, "too many reads wait for this node");
        }
        queue.push(read);
        self.any.store(true, Ordering::Release);
        drop(queue);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Answers what can be answered; whether anything was.
    pub(super) fn serve<M: Hosted>(&self, executor: &mut Executor<M>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let reads = std::mem::take(&mut *queue);
        self.any.store(false, Ordering::Release);
        drop(queue);
        let (count, mut later) = (reads.len(), Vec::new());
        for read in reads {
            let mut answer = Vec::new();
            match executor.peek(read.dst, &read.payload, &read.written, &mut answer) {
                Peek::Answered if !is_behind(&read.payload, &answer) => (read.done)(answer),
                Peek::Never => refuse(read, "this node answers no reads"),
                _ if read.since.elapsed() > PATIENCE => {
                    refuse(read, "this node lacks what this connection wrote or saw");
                }
                _ => later.push(read),
            }
        }
        let served = later.len() < count;
        if !later.is_empty() {
            // In front of what came meanwhile.
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            later.append(&mut queue);
            *queue = later;
            self.any.store(true, Ordering::Release);
        }
        served
    }
}

/// Whether a node refuses a command because it does not yet know the map of partitions that the
/// command goes by.
fn is_behind(payload: &[u8], answer: &[u8]) -> bool {
    let Some(epoch) = refusing_epoch(answer) else { return false };
    Envelope::decode(payload).is_some_and(|(_, command)| epoch < split_epoch(command).0)
}

fn refuse(read: Read, why: &str) {
    let text = format!("-TRYAGAIN {why}; the command was not executed\r\n");
    (read.done)(text.into_bytes());
}
