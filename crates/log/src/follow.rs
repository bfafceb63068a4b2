//! Streams that wait for the next append.
//!
//! A front whose process is a node is told by the node's own logs that they grow, once appends are
//! executed there. Another one does not see what others append: while streams wait it asks how far their
//! logs go, in one command for all logs of a shard, however many streams there are, rarely while nothing
//! happens and often while something does. The first one asks, too, but very rarely: a node that was left
//! behind gets what it missed as a state. What goes through a front itself it knows at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long after it asked a front asks again: at first, while there is news; doubled up to the second
/// while there is none.
pub(crate) type Pauses = (Duration, Duration);

/// Of a front that hears nothing by itself.
pub(crate) const DEAF: Pauses = (Duration::from_millis(2), Duration::from_millis(20));

/// Of one that does.
pub(crate) const TOLD: Pauses = (Duration::from_secs(1), Duration::from_secs(1));

/// The logs that streams wait for.
#[derive(Default)]
pub(crate) struct Follows {
    logs: Mutex<BTreeMap<String, Watched>>,
    /// Whether there are any, to be looked at without the lock.
    any: AtomicBool,
    /// Somebody waits where nobody did.
    wanted: Notify,
}

struct Watched {
    /// How many streams wait.
    waiting: usize,
    /// How far the log goes, as far as that was heard.
    next: watch::Sender<u64>,
}

/// A stream that watches a log.
pub(crate) struct Watching<'a> {
    follows: &'a Follows,
    log: &'a str,
    next: watch::Receiver<u64>,
}

impl Watching<'_> {
    /// Waits until the log has a value at `position`; until then only, if that was told since the stream
    /// began to watch.
    pub(crate) async fn until(&mut self, position: u64) {
        // The sender goes only after this stream.
        let _ = self.next.wait_for(|next| *next > position).await;
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let mut logs = self.follows.logs();
        if let Some(watched) = logs.get_mut(self.log) {
            watched.waiting -= 1;
            if watched.waiting == 0 {
                logs.remove(self.log);
            }
        }
        self.follows.any.store(!logs.is_empty(), Ordering::SeqCst);
    }
}

impl Follows {
    fn logs(&self) -> MutexGuard<'_, BTreeMap<String, Watched>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has what is told of a log noted from now on. To be done before the log is read: what is appended
    /// between that and the waiting would be missed.
    pub(crate) fn watch<'a>(&'a self, log: &'a str) -> Watching<'a> {
        let next = {
            let mut logs = self.logs();
            let watched = logs
                .entry(log.to_string())
                .or_insert_with(|| Watched { waiting: 0, next: watch::Sender::new(0) });
            watched.waiting += 1;
            self.any.store(true, Ordering::SeqCst);
            watched.next.subscribe()
        };
        self.wanted.notify_one();
        Watching { follows: self, log, next }
    }

    /// Says how far a log goes; whether that is news to any stream.
    pub(crate) fn tell(&self, log: &str, next: u64) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let logs = self.logs();
        let Some(watched) = logs.get(log) else { return false };
        watched.next.send_if_modified(|known| {
            let news = next > *known;
            *known = next.max(*known);
            news
        })
    }

    fn names(&self) -> Vec<String> {
        self.logs().keys().cloned().collect()
    }

    /// Asks, as long as anybody waits; `ask` tells this what it hears, and whether that is news. Never
    /// ends.
    pub(crate) async fn go_on<F: Future<Output = bool>>(
        self: Arc<Self>,
        (first, last): Pauses,
        mut ask: impl FnMut(Vec<String>) -> F,
    ) {
        let mut pause = first;
        loop {
            if self.names().is_empty() {
                self.wanted.notified().await;
                pause = first;
            }
            tokio::time::sleep(pause).await;
            let names = self.names();
            if !names.is_empty() {
                pause = if ask(names).await { first } else { last.min(2 * pause) };
            }
        }
    }
}

/// Hears of the logs of a node that they grow, for the front of its process.
#[derive(Clone, Default)]
pub struct Growth(pub(crate) Arc<Follows>);

impl Growth {
    /// Says how far a log goes. Does not wait.
    pub fn tell(&self, log: &[u8], next: u64) {
        // Others have no name that a stream could give.
        if let Ok(log) = std::str::from_utf8(log) {
            self.0.tell(log, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_stream_waits_for_its_position_and_leaves_nothing_behind() {
        let follows = Follows::default();
        let mut cx = Context::from_waker(Waker::noop());
        {
            let (mut one, mut two) = (follows.watch("a"), follows.watch("a"));
            let mut one = pin!(one.until(5));
            let mut two = pin!(two.until(7));
            assert_eq!(one.as_mut().poll(&mut cx), Poll::Pending);
            assert_eq!(two.as_mut().poll(&mut cx), Poll::Pending);
            assert_eq!(follows.names(), ["a"]);
            assert!(!follows.tell("b", 9), "nobody waits for it");
            assert!(follows.tell("a", 5) && !follows.tell("a", 5));
            assert_eq!(one.as_mut().poll(&mut cx), Poll::Pending, "it wants the value at 5");
            assert!(follows.tell("a", 6));
            assert_eq!(one.as_mut().poll(&mut cx), Poll::Ready(()));
            assert_eq!(two.as_mut().poll(&mut cx), Poll::Pending);
            assert!(!follows.tell("a", 3), "old news");
            assert_eq!(follows.names(), ["a"]);
        }
        assert!(follows.names().is_empty());
    }

    #[test]
    fn what_is_told_between_watching_and_waiting_is_not_missed() {
        let growth = Growth::default();
        growth.tell(b"a", 1);
        let mut watching = growth.0.watch("a");
        // Here the stream reads and finds nothing.
        growth.tell(b"a", 2);
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(pin!(watching.until(1)).poll(&mut cx), Poll::Ready(()));
        assert_eq!(pin!(watching.until(2)).poll(&mut cx), Poll::Pending);
        drop(watching);
        assert!(!growth.0.tell("a", 3), "nobody watches any more");
    }
}
