//! Streams that wait for the next append.
//!
//! A front does not see what others append. So while streams wait, it asks how far their logs go: in one
//! command for all logs of a shard, however many streams there are, rarely while nothing happens and
//! often while something does. What goes through the front itself it knows at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long after it asked the front asks again, while there is news; doubled while there is none.
const ASK_FIRST: Duration = Duration::from_millis(2);
const ASK_LAST: Duration = Duration::from_millis(20);

/// The logs that streams wait for.
#[derive(Default)]
pub(crate) struct Follows {
    logs: Mutex<BTreeMap<String, Watched>>,
    /// Somebody waits where nobody did.
    wanted: Notify,
}

struct Watched {
    /// How many streams wait.
    waiting: usize,
    /// How far the log goes, as far as that was heard.
    next: watch::Sender<u64>,
}

/// A stream that waits.
struct Waiting<'a> {
    follows: &'a Follows,
    log: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut logs = self.follows.logs();
        if let Some(watched) = logs.get_mut(self.log) {
            watched.waiting -= 1;
            if watched.waiting == 0 {
                logs.remove(self.log);
            }
        }
    }
}

impl Follows {
    fn logs(&self) -> MutexGuard<'_, BTreeMap<String, Watched>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a log has a value at `position`.
    pub(crate) async fn wait(&self, log: &str, position: u64) {
        let mut next = {
            let mut logs = self.logs();
            let watched = logs
                .entry(log.to_string())
                .or_insert_with(|| Watched { waiting: 0, next: watch::Sender::new(0) });
            watched.waiting += 1;
            watched.next.subscribe()
        };
        let _waiting = Waiting { follows: self, log };
        self.wanted.notify_one();
        // The sender goes only after this stream.
        let _ = next.wait_for(|next| *next > position).await;
    }

    /// Says how far a log goes.
    pub(crate) fn tell(&self, log: &str, next: u64) -> bool {
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
        mut ask: impl FnMut(Vec<String>) -> F,
    ) {
        let mut pause = ASK_FIRST;
        loop {
            let names = self.names();
            if names.is_empty() {
                self.wanted.notified().await;
                pause = ASK_FIRST;
                continue;
            }
            pause = if ask(names).await { ASK_FIRST } else { ASK_LAST.min(2 * pause) };
            tokio::time::sleep(pause).await;
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
            let mut one = pin!(follows.wait("a", 5));
            let mut two = pin!(follows.wait("a", 7));
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
}
