//! Streams that wait for the next append.
//!
//! A gateway whose process is a node learns from the node's own logs that they grow, once appends
//! are executed there. Another one does not see what others append: while streams wait it
//! [asks](super::looks) for the ends of their logs, rarely while the logs do not grow and often while
//! they do. The first one asks, too, but very rarely: a node that lagged gets the values that it
//! missed as a state. A gateway knows its own appends at once.

use amcast_log::Extent;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// The logs that streams wait for.
#[derive(Default)]
pub(crate) struct LogFollowers {
    logs: Mutex<BTreeMap<String, WatchedLog>>,
    /// Whether there are any, to be looked at without the lock.
    any: AtomicBool,
    /// Somebody waits where nobody did.
    wanted: Notify,
}

struct WatchedLog {
    /// How many streams wait.
    waiting: usize,
    heard: watch::Sender<LogNews>,
}

/// The known ends of a log.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct LogNews {
    /// How often something new was.
    news: u64,
    /// How often that it was deleted.
    deleted: u64,
    /// Whether it is there, if anything was.
    there: Option<bool>,
    incarnation: u64,
    /// How far it goes.
    next: u64,
    /// How often an append was answered with a position behind that. Which of the logs of this name it was appended to
    /// is not known: the log is read to find out.
    appends: u64,
    /// How far the furthest of these went.
    appended: u64,
    /// How often no look at its shard had been answered for long.
    unanswered: u64,
}

/// No look at the shard of a log was answered for long: nobody knows whether the log grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnansweredLooks;

/// A stream that watches a log.
pub(crate) struct LogWatcher<'a> {
    follows: &'a LogFollowers,
    log: &'a str,
    heard: watch::Receiver<LogNews>,
    /// The known ends when the stream began to read.
    known: LogNews,
}

impl LogWatcher<'_> {
    /// Notes that the log is about to be read: the read will find all values reported until now.
    pub(crate) fn reads(&mut self) {
        self.known = *self.heard.borrow_and_update();
    }

    /// Waits until the gateway knows that the log has a value at `position` or was deleted, or an append may have added
    /// that value; does not wait where this happened after the stream began to read.
    ///
    /// # Errors
    /// When the looks at its shard are not answered, from now on: the read was.
    pub(crate) async fn until(&mut self, position: u64) -> Result<(), UnansweredLooks> {
        let LogNews { news, deleted, appends, .. } = self.known;
        let unanswered = self.heard.borrow().unanswered;
        let is_due = |h: &LogNews| {
            h.news > news && (h.next > position || h.deleted > deleted || h.appends > appends)
        };
        let heard = self.heard.wait_for(|h| is_due(h) || h.unanswered > unanswered).await;
        // The sender goes only after this stream.
        match heard {
            Ok(heard) if !is_due(&heard) => Err(UnansweredLooks),
            _ => Ok(()),
        }
    }
}

impl Drop for LogWatcher<'_> {
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

impl LogFollowers {
    fn logs(&self) -> MutexGuard<'_, BTreeMap<String, WatchedLog>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the reports of a log from now on. To be called before the log is read: values appended
    /// between the read and the waiting would be missed.
    pub(crate) fn watch<'a>(&'a self, log: &'a str) -> LogWatcher<'a> {
        let heard = {
            let mut logs = self.logs();
            let fresh = || WatchedLog { waiting: 0, heard: watch::Sender::new(LogNews::default()) };
            let watched = logs.entry(log.to_string()).or_insert_with(fresh);
            watched.waiting += 1;
            self.any.store(true, Ordering::SeqCst);
            watched.heard.subscribe()
        };
        self.wanted.notify_one();
        let known = *heard.borrow();
        LogWatcher { follows: self, log, heard, known }
    }

    /// Says how far a log goes, if it is there; whether that is news to any stream, and no append of this gateway's.
    pub(crate) fn tell(&self, log: &str, extent: Option<Extent>) -> bool {
        let mut by_append = false;
        let news = self.note(log, |known| match extent {
            Some(e) => {
                let is_later = known.incarnation < e.incarnation;
                by_append = !is_later && known.there == Some(true) && e.next <= known.appended;
                if is_later {
                    (known.deleted, known.appended) = (known.deleted + 1, 0);
                }
                known.there = Some(true);
                let now = (e.incarnation, e.next).max((known.incarnation, known.next));
                (known.incarnation, known.next) = now;
            }
            // The reader may have seen values that were not reported here.
            None if known.there != Some(false) => {
                (known.deleted, known.there) = (known.deleted + 1, Some(false));
                (known.next, known.appended) = (0, 0);
            }
            None => {}
        });
        news && !by_append
    }

    /// Says that an append was answered just now, and that the log went so far by it. A repeated append is answered as
    /// the first time, also where that log was deleted since and there is another one of its name.
    pub(crate) fn tell_appended(&self, log: &str, next: u64) -> bool {
        self.note(log, |known| {
            known.there = Some(true);
            if next > known.next {
                (known.appends, known.appended) = (known.appends + 1, next.max(known.appended));
            }
        })
    }

    fn note(&self, log: &str, change: impl FnOnce(&mut LogNews)) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let logs = self.logs();
        let Some(watched) = logs.get(log) else { return false };
        watched.heard.send_if_modified(|known| {
            let before = *known;
            change(known);
            let news = *known != before;
            known.news += u64::from(news);
            news
        })
    }

    /// Says that no look at the shard of a log was answered for long: streams that wait for it end.
    pub(crate) fn tell_unanswered(&self, log: &str) {
        self.note(log, |known| known.unanswered += 1);
    }

    /// The logs that streams wait for.
    pub(crate) fn names(&self) -> Vec<String> {
        self.logs().keys().cloned().collect()
    }

    /// Waits until streams wait for logs.
    pub(crate) async fn wanted(&self) {
        while !self.any.load(Ordering::SeqCst) {
            self.wanted.notified().await;
        }
    }
}

/// Hears of the logs of a node that they grow, or are deleted, for the gateway of its process.
#[derive(Clone, Default)]
pub struct GrowthWatch(pub(crate) Arc<LogFollowers>);

impl GrowthWatch {
    /// Says how far a log goes; without that, that it was deleted. Does not wait.
    pub fn tell(&self, log: &[u8], extent: Option<Extent>) {
        // Others have no name that a stream could give.
        if let Ok(log) = std::str::from_utf8(log) {
            self.0.tell(log, extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn extent(next: u64) -> Option<Extent> {
        Some(Extent { next, ..Extent::default() })
    }

    #[test]
    fn a_stream_waits_for_its_position_and_leaves_nothing_behind() {
        let follows = LogFollowers::default();
        let mut cx = Context::from_waker(Waker::noop());
        {
            let (mut one, mut two) = (follows.watch("a"), follows.watch("a"));
            let mut one = pin!(one.until(5));
            let mut two = pin!(two.until(7));
            assert_eq!(one.as_mut().poll(&mut cx), Poll::Pending);
            assert_eq!(two.as_mut().poll(&mut cx), Poll::Pending);
            assert_eq!(follows.names(), ["a"]);
            assert!(!follows.tell("b", extent(9)), "nobody waits for it");
            assert!(follows.tell("a", extent(5)) && !follows.tell("a", extent(5)));
            assert_eq!(one.as_mut().poll(&mut cx), Poll::Pending, "it wants the value at 5");
            assert!(follows.tell("a", extent(6)));
            assert_eq!(one.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
            assert_eq!(two.as_mut().poll(&mut cx), Poll::Pending);
            assert!(!follows.tell("a", extent(3)), "old news");
            assert_eq!(follows.names(), ["a"]);
        }
        assert!(follows.names().is_empty());
    }

    #[test]
    fn what_is_told_between_watching_and_waiting_is_not_missed() {
        let growth = GrowthWatch::default();
        growth.tell(b"a", extent(1));
        let mut watching = growth.0.watch("a");
        // Here the stream reads and finds nothing.
        growth.tell(b"a", extent(2));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(pin!(watching.until(1)).poll(&mut cx), Poll::Ready(Ok(())));
        assert_eq!(pin!(watching.until(2)).poll(&mut cx), Poll::Pending);
        drop(watching);
        assert!(!growth.0.tell("a", extent(3)), "nobody watches any more");
    }

    #[test]
    fn a_stream_hears_that_its_log_was_deleted_also_where_a_new_one_has_the_name() {
        let (follows, mut cx) = (LogFollowers::default(), Context::from_waker(Waker::noop()));
        let new = |incarnation, next| Some(Extent { next, incarnation, ..Extent::default() });
        let mut watching = follows.watch("a");
        assert!(follows.tell("a", None) && !follows.tell("a", None), "it may have been there");
        assert!(follows.tell("a", extent(5)));
        watching.reads();
        assert_eq!(pin!(watching.until(5)).poll(&mut cx), Poll::Pending);
        assert!(follows.tell("a", None) && !follows.tell("a", None));
        assert_eq!(pin!(watching.until(5)).poll(&mut cx), Poll::Ready(Ok(())));
        watching.reads();
        assert!(follows.tell("a", new(1, 3)) && follows.tell("a", new(2, 1)));
        assert_eq!(
            pin!(watching.until(5)).poll(&mut cx),
            Poll::Ready(Ok(())),
            "3 were, and are not"
        );
        watching.reads();
        // An append to the first log is repeated, and answered with its position there: the log is read once for that.
        assert!(follows.tell_appended("a", 9) && !follows.tell("a", new(0, 9)));
        assert_eq!(pin!(watching.until(1)).poll(&mut cx), Poll::Ready(Ok(())));
        watching.reads();
        assert_eq!(pin!(watching.until(1)).poll(&mut cx), Poll::Pending);
        follows.tell("a", new(2, 2));
        assert_eq!(
            pin!(watching.until(1)).poll(&mut cx),
            Poll::Ready(Ok(())),
            "a value is at 1 now"
        );
        watching.reads();
        assert_eq!(pin!(watching.until(2)).poll(&mut cx), Poll::Pending);
        assert!(follows.tell("a", new(3, 2)), "a further one is news");
    }
}
