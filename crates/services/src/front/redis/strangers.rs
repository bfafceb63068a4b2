//! Connections whose clients have not given the password: a bounded number of them, each for a bounded time.
//!
//! What such a client may send is bounded by [`Bounds::STRANGER`](super::parser::Bounds), what it may have
//! answered without reading it by [`OUTPUT_BYTES_CALM`]. A wrong password is answered late, and later each time: so
//! many places and that delay bound how many passwords all strangers together can try.

use crate::kv::client::{Info, lock};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Such connections at a time, and no more than half of all. One more closes the one that has been idle for longest.
const STRANGERS_MAX: usize = 256;

/// How long a client may take to give the password.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// While more output waits for such a client, none of its commands is taken.
pub(super) const OUTPUT_BYTES_CALM: usize = 16 << 10;

/// How long the answer to a wrong password takes: the first of a connection, and at most.
const DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));

/// The connections of a front.
pub(super) struct Strangers {
    most: usize,
    all: Mutex<BTreeMap<u64, Arc<Info>>>,
}

impl Strangers {
    /// None yet, of a front that serves so many connections.
    pub(super) fn of(clients_max: usize) -> Self {
        Self { most: STRANGERS_MAX.min(clients_max / 2).max(1), all: Mutex::default() }
    }

    /// How many there may be at a time.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Notes a connection. The one that was closed for it, if there were too many.
    pub(super) fn enter(&self, info: Arc<Info>) -> Option<Arc<Info>> {
        let mut all = lock(&self.all);
        let idle = |(id, info): (&u64, &Arc<Info>)| (lock(&info.said).active_us, *id);
        let idlest = match all.len() < self.most {
            true => None,
            false => all.iter().map(idle).min().and_then(|(_, id)| all.remove(&id)),
        };
        all.insert(info.id, info);
        drop(all);
        idlest.inspect(|info| info.kill())
    }

    /// Its client gave the password, or it ended.
    pub(super) fn leave(&self, id: u64) {
        lock(&self.all).remove(&id);
    }
}

/// What one connection waits for.
#[derive(Default)]
pub(super) struct Entrance {
    /// Until when its client must have given the password, while it has not.
    until: Option<Pin<Box<Sleep>>>,
    /// Wrong passwords so far.
    wrong: u32,
    /// Until when nothing is answered.
    delay: Option<Pin<Box<Sleep>>>,
}

impl Entrance {
    /// A wrong password was given.
    pub(super) fn refuse(&mut self) {
        let delay = DELAY.0.saturating_mul(1 << self.wrong.min(16)).min(DELAY.1);
        self.wrong = self.wrong.saturating_add(1);
        self.delay = Some(Box::pin(sleep(delay)));
    }

    /// Whether the connection is known as a stranger's.
    pub(super) const fn is_strange(&self) -> bool {
        self.until.is_some()
    }

    /// From now on it is a stranger's, or is not any more.
    pub(super) fn set_strange(&mut self, strange: bool) {
        self.until = strange.then(|| Box::pin(sleep(PATIENCE)));
    }

    /// Whether its time is over.
    pub(super) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.until.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready())
    }

    /// Whether the answer to a wrong password waits: nothing behind it is taken in.
    pub(super) const fn is_delayed(&self) -> bool {
        self.delay.is_some()
    }

    /// The same, looked at by the clock; `cx` is woken when the answer is to be given.
    pub(super) fn delays(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(delay) = &mut self.delay else { return false };
        let delays = delay.as_mut().poll(cx) == Poll::Pending;
        if !delays {
            self.delay = None;
        }
        delays
    }
}
