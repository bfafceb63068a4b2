//! Outcomes that wait for the carrier that asked.

use amcast_core::memory::LINE_WORDS;
use amcast_core::step::Ticket;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The outcome of an access to another host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemoteFate {
    Written,
    Denied,
    Lost,
    /// The other node has no such lines for this writer: the two were not configured alike.
    Refused,
    /// So many lines, behind those of earlier reads.
    Words {
        count: usize,
    },
}

/// Outcomes in the order of posting, and the words of reads.
#[derive(Default)]
pub(crate) struct RemoteAnswers {
    pub(crate) fates: Vec<(Ticket, RemoteFate)>,
    pub(crate) words: Vec<[u64; LINE_WORDS + 1]>,
}

/// The outcomes for one process. The agent puts them in, and the loop of the process takes them out.
#[derive(Default)]
pub(crate) struct RemoteInbox {
    /// Whether there are any: the loop looks here in every round.
    has: AtomicBool,
    waiting: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    /// The incarnation of the process that takes them; outcomes for earlier ones are dropped.
    incarnation: u64,
    answers: RemoteAnswers,
}

impl RemoteInbox {
    fn state(&self) -> MutexGuard<'_, InboxState> {
        // A panic in a section leaves outcomes in order.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process begins an incarnation.
    pub(crate) fn begin(&self, incarnation: u64) {
        let mut state = self.state();
        *state = InboxState { incarnation, answers: RemoteAnswers::default() };
        self.has.store(false, Ordering::Release);
    }

    /// An access of that incarnation has this outcome.
    pub(crate) fn put(&self, incarnation: u64, ticket: Ticket, fate: RemoteFate) {
        self.put_words(incarnation, ticket, fate, &[]);
    }

    /// The same with the lines of a read.
    pub(super) fn put_words(
        &self,
        incarnation: u64,
        ticket: Ticket,
        fate: RemoteFate,
        words: &[[u64; LINE_WORDS + 1]],
    ) {
        let mut state = self.state();
        if state.incarnation == incarnation {
            state.answers.fates.push((ticket, fate));
            state.answers.words.extend_from_slice(words);
            // Pairs with the acquire load in `has_any`.
            self.has.store(true, Ordering::Release);
        }
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has.load(Ordering::Acquire)
    }

    /// Takes them all out, and puts empty buffers in their place.
    pub(crate) fn take(&self, into: &mut RemoteAnswers) {
        into.fates.clear();
        into.words.clear();
        let mut state = self.state();
        core::mem::swap(&mut state.answers, into);
        self.has.store(false, Ordering::Release);
    }
}
