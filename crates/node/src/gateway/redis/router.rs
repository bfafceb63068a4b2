//! Brings answers to the connections that wait for them.
//!
//! A connection has a lane while it lives: a session, numbered requests, and a mailbox. A lane of a
//! connection that closed is given to another one once all its requests were answered, and the
//! numbers of its requests continue: the number of sessions is that of connections at a time.

use super::failures::failure_answer;
use crate::gateway::backend::{BackendAnswers, CommandFailure};
use amcast_core::{Outcome, ServiceAnswer};
use amcast_kv::client::lock;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Poll, Waker};

/// An owned answer of so many bytes is handed on as it is: a copy would take longer than the rest.
const LARGE_BYTES: usize = 64 << 10;

/// Room for so many answers stays with a lane whose connection has taken all.
pub(super) const FRAMES_KEPT: usize = 64;

/// Answers that came for one connection and were not taken yet.
#[derive(Default)]
pub(super) struct ArrivedAnswers {
    /// Each answer.
    pub(super) frames: Vec<RoutedAnswer>,
    /// The bytes of small answers, one behind the other.
    pub(super) bytes: Vec<u8>,
}

impl ArrivedAnswers {
    /// Bytes of its buffers.
    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity() + self.frames.capacity() * size_of::<RoutedAnswer>()
    }

    /// Shows each answer, and forgets them.
    pub(super) fn drain(&mut self, mut show: impl FnMut(&[u8])) {
        let mut at = 0;
        for frame in self.frames.drain(..) {
            match frame.body {
                FrameBody::Small(len) => {
                    show(&self.bytes[at..at + len]);
                    at += len;
                }
                FrameBody::Large(bytes) => show(&bytes),
            }
        }
        self.bytes.clear();
        self.frames.shrink_to(FRAMES_KEPT);
    }
}

/// An answer that came.
pub(super) struct RoutedAnswer {
    /// The low half of its request's number.
    pub(super) low: u32,
    /// The command's outcome.
    pub(super) outcome: Outcome,
    pub(super) body: FrameBody,
}

/// Where the bytes of an answer are.
pub(super) enum FrameBody {
    /// Among the bytes, so many of them.
    Small(usize),
    /// Here.
    Large(Vec<u8>),
}

/// One lane's mailbox.
#[derive(Default)]
pub(super) struct Mailbox(Mutex<ConnectionInbox>);

#[derive(Default)]
struct ConnectionInbox {
    mail: ArrivedAnswers,
    /// To wake; none while the connection is running and will look by itself.
    waker: Option<Waker>,
    /// It was to be woken while it ran: it must look once more before it sleeps.
    called: bool,
    /// Requests that were not answered.
    open: usize,
    /// The connection is gone.
    closed: bool,
    /// The last request that was sent.
    last_request: u64,
    /// The batch that wakes the connection.
    post: Option<Arc<WakeBatch>>,
}

/// Wakes the connections of one thread. To wake a task of another thread takes a system call, each
/// time; so a thread that brings answers adds the connection to the batch, and wakes a task of its
/// thread, which runs the batch: once for all answers that arrive until then.
#[derive(Default)]
pub(super) struct WakeBatch(Mutex<WakeRound>);

#[derive(Default)]
struct WakeRound {
    /// At most one for each connection.
    calls: Vec<Waker>,
    /// To wake; none if that was done.
    postman: Option<Waker>,
}

impl WakeBatch {
    fn call(&self, waker: Waker) {
        let mut round = lock(&self.0);
        round.calls.push(waker);
        if let Some(postman) = round.postman.take() {
            drop(round);
            postman.wake();
        }
    }

    /// Goes round for as long as the thread runs tasks; must be one of them.
    pub(super) async fn go_round(self: Arc<Self>) {
        let mut calls = Vec::new();
        poll_fn(|cx| {
            let mut round = lock(&self.0);
            std::mem::swap(&mut round.calls, &mut calls);
            round.postman = Some(cx.waker().clone());
            drop(round);
            calls.drain(..).for_each(Waker::wake);
            Poll::Pending
        })
        .await
    }
}

impl Mailbox {
    /// Exchanges the mail for an empty one, and keeps from being woken for now.
    pub(super) fn take(&self, mail: &mut ArrivedAnswers) {
        let mut inbox = lock(&self.0);
        inbox.waker = None;
        inbox.called = false;
        std::mem::swap(&mut inbox.mail, mail);
    }

    /// Has `waker` woken by the next answer; false if there is something to look at already.
    pub(super) fn sleep(&self, waker: &Waker) -> bool {
        let mut inbox = lock(&self.0);
        let nothing = inbox.mail.frames.is_empty() && !inbox.called;
        if nothing {
            inbox.waker = Some(waker.clone());
        }
        nothing
    }

    /// Has the connection look around: it is woken, or does not go to sleep.
    pub(super) fn wake(&self) {
        let mut inbox = lock(&self.0);
        match inbox.waker.take() {
            Some(waker) => {
                drop(inbox);
                waker.wake();
            }
            None => inbox.called = true,
        }
    }

    /// Notes that a request was or will be sent.
    pub(super) fn opened(&self, request: u64) {
        let mut inbox = lock(&self.0);
        inbox.open += 1;
        inbox.last_request = inbox.last_request.max(request);
    }

    /// Notes that a request was not sent after all.
    pub(super) fn withdrawn(&self) {
        lock(&self.0).open -= 1;
    }
}

/// A lane in use.
pub(super) struct RouterLane {
    /// Its number, and so its session's.
    pub(super) index: u32,
    /// Its answers.
    pub(super) replies: Arc<Mailbox>,
    /// The last request of the connection before.
    pub(super) last_request: u64,
}

/// All lanes of a gateway.
#[derive(Default)]
pub(super) struct Router {
    boxes: RwLock<Vec<Arc<Mailbox>>>,
    free: Mutex<Vec<u32>>,
    /// Connections that wait until the backend has room, by lane.
    crowd: Mutex<BTreeMap<u32, Waker>>,
}

/// The token of an answer: the lane and the low half of the request's number.
pub(super) const fn token(lane: u32, request: u64) -> u64 {
    (lane as u64) << 32 | request & 0xffff_ffff
}

impl Router {
    /// A lane for a new connection of the thread of `post`.
    pub(super) fn open(&self, post: &Arc<WakeBatch>) -> RouterLane {
        let mut boxes = self.boxes.write().unwrap_or_else(PoisonError::into_inner);
        let index = lock(&self.free).pop().unwrap_or_else(|| {
            boxes.push(Arc::default());
            (boxes.len() - 1) as u32
        });
        let replies = boxes[index as usize].clone();
        let mut inbox = lock(&replies.0);
        inbox.closed = false;
        inbox.post = Some(post.clone());
        let last_request = inbox.last_request;
        drop(inbox);
        RouterLane { index, replies, last_request }
    }

    /// Gives a lane back.
    pub(super) fn close(&self, lane: &RouterLane) {
        lock(&self.crowd).remove(&lane.index);
        let mut inbox = lock(&lane.replies.0);
        inbox.closed = true;
        inbox.waker = None;
        inbox.mail = ArrivedAnswers::default();
        if inbox.open == 0 {
            lock(&self.free).push(lane.index);
        }
    }

    /// Has `waker` woken when the backend has room. There may have been room before this: the
    /// connection must try once more.
    pub(super) fn wait_for_room(&self, lane: &RouterLane, waker: &Waker) {
        lock(&self.crowd).insert(lane.index, waker.clone());
    }
}

impl BackendAnswers for Router {
    fn answer(&self, token: u64, answer: ServiceAnswer<'_>) {
        let index = (token >> 32) as u32;
        let boxes = self.boxes.read().unwrap_or_else(PoisonError::into_inner);
        let Some(replies) = boxes.get(index as usize) else { return };
        let mut inbox = lock(&replies.0);
        if inbox.open == 0 {
            return;
        }
        inbox.open -= 1;
        if inbox.closed {
            if inbox.open == 0 {
                lock(&self.free).push(index);
            }
            return;
        }
        let ServiceAnswer { outcome, bytes } = answer;
        let body = match bytes {
            Cow::Owned(bytes) if bytes.len() >= LARGE_BYTES => FrameBody::Large(bytes),
            small => {
                inbox.mail.bytes.extend_from_slice(&small);
                FrameBody::Small(small.len())
            }
        };
        inbox.mail.frames.push(RoutedAnswer { low: token as u32, outcome, body });
        if let Some(waker) = inbox.waker.take()
            && let Some(post) = inbox.post.clone()
        {
            drop(inbox);
            post.call(waker);
        }
    }

    fn fail(&self, token: u64, failure: &CommandFailure) {
        self.answer(token, failure_answer(failure));
    }

    fn awaits(&self, token: u64) -> bool {
        let boxes = self.boxes.read().unwrap_or_else(PoisonError::into_inner);
        boxes.get((token >> 32) as usize).is_some_and(|replies| !lock(&replies.0).closed)
    }

    fn room(&self) {
        let crowd = std::mem::take(&mut *lock(&self.crowd));
        crowd.into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    #[test]
    fn who_is_called_while_it_runs_looks_once_more_before_it_sleeps() {
        let (router, mut mail) = (Router::default(), ArrivedAnswers::default());
        let lane = router.open(&Arc::default());
        lane.replies.take(&mut mail);
        lane.replies.wake();
        assert!(!lane.replies.sleep(Waker::noop()), "it was called");
        lane.replies.take(&mut mail);
        assert!(lane.replies.sleep(Waker::noop()));
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_postman_is_woken_once_for_many_answers_and_wakes_each_connection() {
        let (router, post, mut mail) =
            (Router::default(), Arc::default(), ArrivedAnswers::default());
        let mut round = pin!(WakeBatch::go_round(Arc::clone(&post)));
        let postman = Arc::new(WakeCount::default());
        let waker = Waker::from(postman.clone());
        let mut go = || {
            assert!(round.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        };
        go();
        let lanes = [router.open(&post), router.open(&post), router.open(&post)];
        for turn in 1..=2 {
            let sleepers = lanes.each_ref().map(|lane| {
                lane.replies.opened(turn);
                lane.replies.take(&mut mail);
                mail.frames.clear();
                let sleeper = Arc::new(WakeCount::default());
                assert!(lane.replies.sleep(&Waker::from(sleeper.clone())));
                sleeper
            });
            for lane in &lanes[..2] {
                let answer = ServiceAnswer::borrowed(Outcome::Executed, b"+OK\r\n");
                router.answer(token(lane.index, turn), answer);
            }
            assert_eq!(postman.0.load(Ordering::SeqCst), turn as usize);
            go();
            let woken = sleepers.map(|s| s.0.load(Ordering::SeqCst));
            assert_eq!(woken, [1, 1, 0], "turn {turn}");
        }
    }

    #[test]
    fn a_crowd_holds_each_connection_once_however_often_it_was_refused() {
        let router = Router::default();
        let post = Arc::default();
        let (one, other) = (router.open(&post), router.open(&post));
        for _ in 0..100 {
            router.wait_for_room(&one, Waker::noop());
            router.wait_for_room(&other, Waker::noop());
        }
        assert_eq!(lock(&router.crowd).len(), 2);
        router.close(&one);
        assert_eq!(lock(&router.crowd).len(), 1);
        router.room();
        assert!(lock(&router.crowd).is_empty());
    }
}
