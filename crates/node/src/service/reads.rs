//! Reads that need no order: a node answers them from what it has executed.
//!
//! Gateways in the node's process hand them in; the node's loop answers them between deliveries, when all
//! that their clients wrote before is executed there, or has the threads answer them that execute commands.

use super::Hosted;
use crate::gateway::redis::failure_answer;
use crate::gateway::{CommandFailure, FailureCause};
use amcast_core::{GroupSet, Outcome};
use amcast_kv::partitions::refusing_epoch;
use amcast_kv::split_epoch;
use amcast_smr::application::WakeHandle;
use amcast_smr::{Envelope, Executor, LocalRead, SessionWrite};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a read waits for its client's writes at a node; then the client receives an error.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads that may wait, and bytes of them. Further ones are refused.
const WAITING_MAX: usize = 16_384;
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Receives the answer.
type OnReadAnswer = Box<dyn FnOnce(Outcome, Vec<u8>) + Send>;

/// The bytes of a read, which count until it is answered or refused.
struct CountedBytes {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl CountedBytes {
    /// None if there is no room for them.
    fn of(all: &Arc<AtomicUsize>, bytes: usize) -> Option<Self> {
        let has_room = |held: usize| (held + bytes <= WAITING_BYTES_MAX).then_some(held + bytes);
        all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).ok()?;
        Some(Self { all: Arc::clone(all), bytes })
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct PendingRead {
    dst: GroupSet,
    payload: Box<[u8]>,
    /// How many were handed in before it.
    turn: u64,
    /// Its client's session.
    session: u64,
    written: Box<[SessionWrite]>,
    since: Instant,
    done: OnReadAnswer,
    _bytes: CountedBytes,
}

/// Reads that were handed in.
#[derive(Default)]
struct OpenReads {
    /// Those that are to be asked for.
    queue: Vec<PendingRead>,
    /// Those that the executor's threads have, by the number under which they have it.
    given: BTreeMap<u64, PendingRead>,
    /// How many were given so far.
    numbers: u64,
    /// How many were handed in so far.
    turns: u64,
    /// By session: a read up to this number was to be asked for again, and so are those that were given behind it: one
    /// that is asked again is answered of a later moment, and what a client sees of a shard never goes back.
    again: BTreeMap<u64, u64>,
}

/// The reads of one node.
#[derive(Default)]
pub struct Reads {
    open: Mutex<OpenReads>,
    /// Whether any are to be asked for: saves the node's loop the lock.
    any: AtomicBool,
    /// Bytes of all that wait.
    bytes: Arc<AtomicUsize>,
    wake: OnceLock<WakeHandle>,
}

impl Reads {
    /// From now on `wake` has the node's loop come round.
    pub(super) fn begin(&self, wake: WakeHandle) {
        assert!(self.wake.set(wake).is_ok(), "a node begins once");
    }

    fn open(&self) -> MutexGuard<'_, OpenReads> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands in a read, an envelope and a command, of a client that wrote `written` before.
    pub(super) fn hand_in(
        &self,
        dst: GroupSet,
        payload: &[u8],
        written: &[SessionWrite],
        done: OnReadAnswer,
    ) {
        let counted = payload.len() + size_of_val(written);
        let Some(counted) = CountedBytes::of(&self.bytes, counted) else {
            return refuse(done, "the reads that wait for this node have too many bytes");
        };
        let since = Instant::now();
        let session = Envelope::decode(payload).map_or(0, |(envelope, _)| envelope.session);
        let (payload, written) = (payload.into(), written.into());
        let mut open = self.open();
        let turn = open.turns;
        open.turns += 1;
        let read =
            PendingRead { dst, payload, turn, session, written, since, done, _bytes: counted };
        if open.queue.len() + open.given.len() >= WAITING_MAX {
            drop(open);
            return refuse(read.done, "too many reads wait for this node");
        }
        open.queue.push(read);
        self.any.store(true, Ordering::Release);
        drop(open);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Answers what can be answered; whether anything was.
    pub(super) fn serve<M: Hosted>(&self, executor: &mut Executor<M>) -> bool {
        let (mut later, collected) = self.collect(executor);
        if !self.any.load(Ordering::Acquire) && later.is_empty() {
            return collected;
        }
        let mut open = self.open();
        let reads = std::mem::take(&mut open.queue);
        let mut number = open.numbers;
        // Those that come later wait behind these.
        let mut waits: BTreeSet<u64> = open.again.keys().copied().collect();
        waits.extend(later.iter().map(|read| read.session));
        self.any.store(false, Ordering::Release);
        drop(open);
        let (count, mut given) = (reads.len() + later.len(), Vec::new());
        let mut answer = Vec::new();
        for read in reads {
            if waits.contains(&read.session) {
                later.extend(settle(read, LocalRead::NotYet, &[]));
                continue;
            }
            answer.clear();
            number += 1;
            let session = read.session;
            let of = (read.dst, &*read.payload);
            match executor.peek(number, of, &read.written, &mut answer) {
                LocalRead::Later => given.push((number, read)),
                peek => {
                    later.extend(settle(read, peek, &answer).inspect(|_| _ = waits.insert(session)))
                }
            }
        }
        executor.flush_reads();
        let served = later.len() + given.len() < count || !given.is_empty() || collected;
        let mut open = self.open();
        open.numbers = number;
        open.given.extend(given);
        if !later.is_empty() {
            // In front of what came meanwhile, in the order in which they were handed in.
            later.sort_by_key(|read| read.turn);
            later.append(&mut open.queue);
            open.queue = later;
            self.any.store(true, Ordering::Release);
        }
        served
    }

    /// Takes what the executor's threads answered: the reads that are to be asked for again, and whether there was
    /// any answer.
    fn collect<M: Hosted>(&self, executor: &mut Executor<M>) -> (Vec<PendingRead>, bool) {
        let mut answered = Vec::new();
        if !executor.collect_peeks(&mut |number, peek, answer| {
            answered.push((number, peek, answer));
        }) {
            return (Vec::new(), false);
        }
        let mut open = self.open();
        let OpenReads { given, again, numbers, .. } = &mut *open;
        let (mut settled, mut later) = (Vec::new(), Vec::new());
        for (number, peek, answer) in answered {
            let Some(read) = given.remove(&number) else { continue };
            let held = again.get(&read.session).is_some_and(|upto| number <= *upto);
            let is_old =
                matches!(peek, LocalRead::Answered(_)) && is_behind(&read.payload, &answer);
            if held
                || is_old
                || matches!(peek, LocalRead::NotYet | LocalRead::Busy | LocalRead::Later)
            {
                again.insert(read.session, *numbers);
                later.push(read);
            } else {
                settled.push((read, peek, answer));
            }
        }
        let first = given.keys().next().copied();
        again.retain(|_, upto| first.is_some_and(|first| first <= *upto));
        drop(open);
        for (read, peek, answer) in settled {
            let none = settle(read, peek, &answer);
            debug_assert!(none.is_none(), "it was answered or refused");
        }
        let later = later.into_iter().filter_map(|read| settle(read, LocalRead::NotYet, &[]));
        (later.collect(), true)
    }
}

/// Answers a read or refuses it, or gives it back to be asked for again.
fn settle(read: PendingRead, peek: LocalRead, answer: &[u8]) -> Option<PendingRead> {
    match peek {
        LocalRead::Answered(outcome) if !is_behind(&read.payload, answer) => {
            (read.done)(outcome, answer.to_vec());
        }
        LocalRead::Never => refuse(read.done, "this node answers no reads"),
        _ if read.since.elapsed() > PATIENCE => {
            refuse(read.done, "this node has not applied all that this connection wrote or saw");
        }
        _ => return Some(read),
    }
    None
}

/// Whether a node refuses a command because it does not yet know the map of partitions that the
/// command goes by.
fn is_behind(payload: &[u8], answer: &[u8]) -> bool {
    let Some(epoch) = refusing_epoch(answer) else { return false };
    Envelope::decode(payload).is_some_and(|(_, command)| epoch < split_epoch(command).0)
}

fn refuse(done: OnReadAnswer, why: &str) {
    let failure = CommandFailure::new(Outcome::NotExecuted, FailureCause::Busy, why);
    let answer = failure_answer(&failure);
    done(answer.outcome, answer.bytes.into_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_wait_have_a_bounded_number_of_bytes_which_come_back_with_their_answers() {
        let reads = Reads::default();
        let payload = vec![0; 1 << 20];
        let refused = Arc::new(AtomicUsize::new(0));
        let hand_in = || {
            let refused = Arc::clone(&refused);
            let done = move |outcome, answer: Vec<u8>| {
                assert_eq!(outcome, Outcome::NotExecuted);
                assert!(answer.starts_with(b"-TRYAGAIN"), "{}", String::from_utf8_lossy(&answer));
                refused.fetch_add(1, Ordering::Relaxed);
            };
            reads.hand_in(GroupSet::first(1), &payload, &[], Box::new(done));
        };
        (0..50).for_each(|_| hand_in());
        assert_eq!(refused.load(Ordering::Relaxed), 50 - WAITING_BYTES_MAX / payload.len());
        let waiting = std::mem::take(&mut reads.open().queue);
        let bytes: usize = waiting.iter().map(|read| read.payload.len()).sum();
        assert_eq!(bytes, WAITING_BYTES_MAX);
        // As many again have room once these are gone.
        drop(waiting);
        hand_in();
        assert_eq!(reads.open().queue.len(), 1);
    }
}
