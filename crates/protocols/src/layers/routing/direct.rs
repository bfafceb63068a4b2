//! A direct channel past an overlay: when a process that spreads something over an overlay, such as a ring,
//! sends to its peers directly.
//!
//! Each hop of an overlay passes over a peer that it does not reach. With several broken links the peers
//! that remain in it may be too few, although the first process reaches enough of them. The channel opens
//! where nothing progresses for a while and some links are known to be broken; and stays open for long,
//! because links that fail once fail again.

use amcast_core::{Span, Time};
use core::mem;

/// The channel stays open for this many times the suspicion timeout.
const OPEN: u64 = 64;

/// The timers of a direct channel.
#[derive(Clone, Copy, Debug)]
pub struct DirectTimers {
    /// How long nothing may progress before the channel opens.
    pub suspect: Span,
    /// From one message to the next.
    pub retry: Span,
}

/// The state of a direct channel.
#[derive(Clone, Debug, Default)]
pub struct DirectChannel {
    /// The progress of the overlay at its last change, or when it was complete; and the time of
    /// that.
    progress: u64,
    progress_at: Time,
    /// When broken links were looked for last.
    checked_at: Time,
    /// Until when the channel is open.
    until: Time,
    /// How far everything went when the peers were sent that last, and when that was.
    sent: u64,
    sent_at: Time,
}

impl DirectChannel {
    /// Whether the channel is open.
    pub fn is_open(&self, now: Time) -> bool {
        now < self.until
    }

    /// The overlay has reached `progress`, of `end`. If the peers need a message now, returns the
    /// end at the time of the last one: a peer that has reached it gets the rest over the overlay.
    pub fn poll(
        &mut self,
        now: Time,
        progress: u64,
        end: u64,
        timers: DirectTimers,
        has_broken_links: impl FnOnce() -> bool,
    ) -> Option<u64> {
        if progress > self.progress || progress >= end {
            (self.progress, self.progress_at) = (progress, now);
        }
        let stuck = now.since(self.progress_at.max(self.checked_at)) >= timers.suspect;
        if stuck && !self.is_open(now) {
            // With many peers the search takes a while.
            self.checked_at = now;
            if has_broken_links() {
                self.until = now + timers.suspect.times(OPEN);
                self.sent = end;
            }
        }
        if progress >= end || !self.is_open(now) || now.since(self.sent_at) < timers.retry {
            return None;
        }
        self.sent_at = now;
        Some(mem::replace(&mut self.sent, end))
    }
}
