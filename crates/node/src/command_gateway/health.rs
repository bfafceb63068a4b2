//! Which groups have lost their majority, and for how long.

use amcast_core::limits::GROUPS_MAX;
use amcast_core::{Gid, GroupSet, Span, Time};

/// How long a group may be without majority before its commands are given up: nodes that are
/// started again are back sooner than this.
pub(super) const PATIENCE: Span = Span::secs(3);

/// How often it is asked for.
const ASK_EVERY: Span = Span::millis(50);

/// Tells which groups have no majority now; quick, and from the gateway's thread.
pub type MissingMajorities = Box<dyn Fn() -> GroupSet + Send>;

/// Watches the groups of a cluster.
#[derive(Default)]
pub(super) struct Health {
    ask: Option<MissingMajorities>,
    next: Time,
    /// Since when each group is without majority.
    since: Vec<Option<Time>>,
    down: GroupSet,
}

impl Health {
    /// `ask` is asked from now on.
    pub(super) fn watch(&mut self, ask: MissingMajorities) {
        self.ask = Some(ask);
    }

    /// Nobody is asked any more. Gives the asking function, to be dropped where nothing is locked.
    pub(super) fn forget(&mut self) -> Option<MissingMajorities> {
        self.ask.take()
    }

    /// The groups that have been without majority for longer than is waited for, and of which
    /// `is_stuck` says that commands to them have no answers; a replica that is not whole may still
    /// vote. A group that has its majority back is not among them from then on.
    pub(super) fn down(&mut self, now: Time, is_stuck: &mut dyn FnMut(Gid) -> bool) -> GroupSet {
        let Some(ask) = self.ask.as_ref().filter(|_| now >= self.next) else { return self.down };
        self.next = now + ASK_EVERY;
        let lost = ask();
        for g in self.down.iter().filter(|g| !lost.contains(*g)) {
            tracing::info!("shard {} has its majority back", g.0);
        }
        self.down = self.down.and(lost);
        self.since.resize(GROUPS_MAX, None);
        for (g, since) in (0..).map(Gid).zip(&mut self.since) {
            *since = if lost.contains(g) { since.or(Some(now)) } else { None };
            let long = since.is_some_and(|since| since + PATIENCE <= now);
            if long && !self.down.contains(g) && is_stuck(g) {
                tracing::error!("shard {} has lost its majority: its commands are refused", g.0);
                self.down = self.down.with(g);
            }
        }
        self.down
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_group_is_down_after_some_time_without_majority_and_up_at_once() {
        let lost = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&lost);
        let mut health = Health::default();
        let down = |health: &mut Health, ms: u64, stuck: bool| {
            health.down(Time(ms * 1_000_000), &mut |_| stuck)
        };
        assert!(down(&mut health, 0, true).is_empty(), "nobody tells");
        health.watch(Box::new(move || GroupSet(told.load(Ordering::Relaxed))));
        lost.store(0b10, Ordering::Relaxed);
        assert!(down(&mut health, 1_000, true).is_empty());
        assert!(down(&mut health, 3_900, true).is_empty());
        assert!(down(&mut health, 4_000, false).is_empty(), "it answers all the same");
        assert_eq!(down(&mut health, 4_100, true), GroupSet::one(Gid(1)));
        assert_eq!(down(&mut health, 4_200, false), GroupSet::one(Gid(1)), "nothing is sent");
        lost.store(0, Ordering::Relaxed);
        assert!(down(&mut health, 4_300, true).is_empty());
        lost.store(0b10, Ordering::Relaxed);
        assert!(down(&mut health, 4_400, true).is_empty(), "it counts anew");
    }
}
