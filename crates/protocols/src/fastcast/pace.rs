//! The pace of one sender: when its next full batch may leave within its share of the bandwidth, and how much
//! bandwidth it requires.
//!
//! The paper's processes say how much they require; here a member measures it. All rates are in kilobytes a second, of
//! 1000 bytes.

use crate::layers::paced::{BYTE_NS, PacedBatches};
use amcast_core::{Span, Time};

/// How much more than was measured is required, as a fraction: the next interval may bring some more. All that is
/// required and not used is missing to others.
const SPARE: u64 = 16;

/// How much more than is used may be required, as a fraction, before the rest is given back.
const UNUSED: u64 = 4;

/// Of fewer batches than so many, sent or waiting, no demand is concluded: whether one more falls into an interval would look like
/// a change.
const BATCHES_LEAST: usize = 8;

/// An interval with fewer batches is so many times as long, at most.
const LONGEST: u64 = 8;

/// After so many intervals in a row in which no batch left, none waited and none was on the way, the sender has stopped: no
/// interval becomes longer then, and all that it requires is given back.
const IDLE_MOST: u32 = 2;

/// A change of the required bandwidth, in kilobytes a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DemandChange {
    /// So much more.
    More(u64),
    /// So much less.
    Less(u64),
}

/// The batches of a sender that are not delivered there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitingBatches {
    /// Those that wait to be sent.
    pub(super) batches: usize,
    /// Bytes that they will take of a link.
    pub(super) bytes: usize,
    /// Whether any is on the way. A sender that waits for its delivery before it submits more has not stopped.
    pub(super) any_sent: bool,
}

/// The pace of this sender, at the rate of the share (`currentBW`), and its demand.
#[derive(Debug)]
pub(super) struct BatchPace {
    /// The time over which demand is measured.
    interval: Span,
    /// The rate that a link carries: more is never required.
    link: u64,
    batches: PacedBatches,
    /// When the present interval began.
    began: Time,
    /// When it ends at the earliest; never while nothing is sent.
    ends: Time,
    /// Bytes that left in it, and batches.
    left: u64,
    batches_left: usize,
    /// How many of these had left when it was prolonged last.
    batches_before: usize,
    /// How often in a row an interval ended, or was prolonged, in which no batch had left, waited, or was on the way.
    idle: u32,
    /// Whether a full batch had to wait in it for bandwidth.
    waited: bool,
}

impl BatchPace {
    /// The pace of a sender that has sent nothing and has no share, on links of this rate.
    pub(super) const fn new(interval: Span, link: u64) -> Self {
        Self {
            interval,
            link,
            batches: PacedBatches::new(0),
            began: Time::ZERO,
            ends: Time::NEVER,
            left: 0,
            batches_left: 0,
            batches_before: 0,
            idle: 0,
            waited: false,
        }
    }

    /// The share is this from now on.
    pub(super) fn set_rate(&mut self, now: Time, rate: u64) {
        self.batches.set_rate(now, rate);
    }

    /// Something is submitted: demand is measured from here on, if it is not.
    pub(super) fn offer(&mut self, now: Time) {
        if self.ends == Time::NEVER {
            (self.began, self.ends) = (now, now + self.interval);
        }
    }

    /// Whether a batch may leave now. If not, that shows a need of more bandwidth.
    pub(super) fn may_send(&mut self, now: Time) -> bool {
        let may = self.batches.may_send(now);
        self.waited |= !may;
        may
    }

    /// So many bytes leave now.
    pub(super) fn spend(&mut self, now: Time, bytes: usize) {
        self.batches.spend(now, bytes);
        self.left += bytes as u64;
        self.batches_left += 1;
    }

    /// When the next batch may leave; never without bandwidth.
    pub(super) fn next_at(&self) -> Time {
        self.batches.next_at()
    }

    /// When [`BatchPace::measure`] is due.
    pub(super) const fn measures_at(&self) -> Time {
        self.ends
    }

    /// Ends an interval that is over: how the requirement changes, if it does. The `unsent` batches still wait.
    ///
    /// The demand is what left and what still waits, over the time that it took: the interval is longer where an
    /// increase or a change of views came between, and where there were few batches, as long as there are any. A sender
    /// that never had to wait, or waits for a moment only, requires no more: without contention its batches leave at
    /// once. One that requires a quarter more than it uses gives the rest back, and one that has stopped gives all back.
    pub(super) fn measure(
        &mut self,
        now: Time,
        required: u64,
        unsent: WaitingBatches,
    ) -> Option<DemandChange> {
        if now < self.ends {
            return None;
        }
        let passed = now.since(self.began);
        let is_still = self.batches_left == self.batches_before;
        let is_idle = is_still && unsent.batches == 0 && !unsent.any_sent;
        self.idle = if is_idle { self.idle.saturating_add(1) } else { 0 };
        self.batches_before = self.batches_left;
        let has_stopped = self.idle >= IDLE_MOST;
        let is_short = self.batches_left + unsent.batches < BATCHES_LEAST && !has_stopped;
        if is_short && (required > 0 || self.waited) && passed < self.interval.times(LONGEST) {
            self.ends = now + self.interval;
            return None;
        }
        let bytes = self.left + unsent.bytes as u64;
        let used = bytes * BYTE_NS / passed.0.max(1);
        let wanted = (used + used / SPARE).min(self.link);
        // Bytes that leave within half an interval anyway are a burst, and no demand.
        let lasts = unsent.bytes as u64 * BYTE_NS * 2 >= self.batches.rate() * self.interval.0;
        let change = match () {
            () if has_stopped => (required > 0).then_some(DemandChange::Less(required)),
            () if wanted > required && self.waited && lasts => {
                Some(DemandChange::More(wanted - required))
            }
            () if used + used / UNUSED < required => Some(DemandChange::Less(required - wanted)),
            () => None,
        };
        (self.began, self.waited) = (now, false);
        (self.left, self.batches_left, self.batches_before) = (0, 0, 0);
        self.ends = if bytes == 0 && required == 0 { Time::NEVER } else { now + self.interval };
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of 8 Mb/s: a byte in a microsecond.
    const LINK: u64 = 1000;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::micros(us)
    }

    #[test]
    fn batches_leave_at_the_rate_of_the_share() {
        let mut pace = BatchPace::new(Span::millis(5), LINK);
        assert!(!pace.may_send(at(0)) && pace.next_at() == Time::NEVER, "there is no share");
        pace.set_rate(at(0), LINK / 2);
        let mut left = alloc::vec::Vec::new();
        for us in 0..100_000 {
            if pace.may_send(at(us)) {
                pace.spend(at(us), 4000);
                left.push(us);
            } else {
                assert!(pace.next_at() > at(us) && pace.next_at() <= at(us + 8000), "{us}");
            }
        }
        // Half a byte in a microsecond, and a millisecond ahead.
        assert_eq!(left[..4], [0, 7000, 15_000, 23_000]);
        assert_eq!(left.len(), 13);
    }

    #[test]
    fn a_share_pays_at_its_own_rate_and_idle_time_is_not_saved() {
        let mut pace = BatchPace::new(Span::millis(5), LINK);
        pace.set_rate(at(0), LINK);
        pace.spend(at(50_000), 4000);
        assert_eq!(pace.next_at(), at(53_000));
        pace.set_rate(at(52_000), 0);
        assert!(!pace.may_send(at(60_000)));
        pace.set_rate(at(60_000), LINK);
        assert_eq!(pace.next_at(), at(61_000), "nothing was paid meanwhile");
        assert!(!pace.may_send(at(60_999)) && pace.may_send(at(61_000)));
    }

    /// Enough batches leave to measure by, of so many bytes together.
    fn leave(pace: &mut BatchPace, now: Time, bytes: usize) {
        (1..BATCHES_LEAST).for_each(|_| pace.spend(now, 1));
        pace.spend(now, bytes + 1 - BATCHES_LEAST);
    }

    const NONE: WaitingBatches = WaitingBatches { batches: 0, bytes: 0, any_sent: false };

    /// One batch of so many bytes waits.
    const fn waits(bytes: usize) -> WaitingBatches {
        WaitingBatches { batches: 1, bytes, ..NONE }
    }

    #[test]
    fn a_sender_that_waits_requires_more_and_one_that_uses_little_gives_back() {
        let mut pace = BatchPace::new(Span::millis(1), LINK);
        assert_eq!(pace.measures_at(), Time::NEVER);
        pace.offer(at(0));
        leave(&mut pace, at(0), 400);
        assert_eq!(pace.measure(at(999), 0, NONE), None, "the interval is not over");
        assert_eq!(pace.measure(at(1000), 0, NONE), None, "it never had to wait");
        leave(&mut pace, at(1500), 300);
        assert!(!pace.may_send(at(1500)));
        let more = Some(DemandChange::More(425));
        assert_eq!(pace.measure(at(2000), 0, waits(100)), more, "a sixteenth more");
        leave(&mut pace, at(2500), 100);
        assert!(!pace.may_send(at(2500)));
        let more = Some(DemandChange::More(575));
        assert_eq!(pace.measure(at(3000), 425, waits(5000)), more, "up to the link");
        leave(&mut pace, at(3500), 800);
        assert_eq!(pace.measure(at(4000), 1000, NONE), None, "most of it is used");
        leave(&mut pace, at(4500), 400);
        assert_eq!(pace.measure(at(5000), 1000, NONE), Some(DemandChange::Less(575)));
        assert_eq!(pace.measure(at(6000), 425, NONE), None, "nothing may be sent by chance");
        let all = Some(DemandChange::Less(425));
        assert_eq!(pace.measure(at(7000), 425, NONE), all, "it has stopped");
        assert_eq!(pace.measures_at(), at(8000));
        assert_eq!(pace.measure(at(8000), 0, NONE), None);
        assert_eq!(pace.measures_at(), Time::NEVER, "nothing is measured while nothing is sent");
    }

    #[test]
    fn few_batches_are_measured_for_longer_as_long_as_there_are_any() {
        let mut pace = BatchPace::new(Span::millis(1), LINK);
        pace.offer(at(0));
        // A batch in every second interval, which uses little of what is required.
        for ms in 1..LONGEST {
            if ms % 2 == 0 {
                pace.spend(at(ms * 1000 - 500), 100);
            }
            assert_eq!(pace.measure(at(ms * 1000), 1000, NONE), None, "{ms}");
        }
        pace.spend(at(LONGEST * 1000 - 500), 100);
        // 400 bytes in 8 ms.
        let less = Some(DemandChange::Less(1000 - 53));
        assert_eq!(pace.measure(at(LONGEST * 1000), 1000, NONE), less);
        // Then its sender stops, and gives all back at once.
        pace.spend(at(LONGEST * 1000 + 500), 100);
        let ends = |pace: &mut BatchPace, ms| pace.measure(at((LONGEST + ms) * 1000), 53, NONE);
        assert_eq!([1, 2].map(|ms| ends(&mut pace, ms)), [None; 2]);
        assert_eq!(ends(&mut pace, 3), Some(DemandChange::Less(53)));
    }

    #[test]
    fn a_sender_that_waits_for_the_delivery_of_its_batch_keeps_what_it_requires() {
        let mut pace = BatchPace::new(Span::millis(1), LINK);
        let sent = WaitingBatches { any_sent: true, ..NONE };
        pace.offer(at(0));
        // A batch of three milliseconds at its share, which is on the way for six.
        pace.spend(at(0), 3000);
        for ms in 1..6 {
            assert_eq!(pace.measure(at(ms * 1000), 500, sent), None, "{ms}");
        }
        pace.spend(at(6000), 1000);
        assert_eq!(pace.measure(at(6500), 500, sent), None);
        assert_eq!(pace.measure(at(8000), 500, sent), None, "500 kB/s over 8 ms");
        // It is delivered, and no other one follows.
        let ends = [9, 10].map(|ms| pace.measure(at(ms * 1000), 500, NONE));
        assert_eq!(ends, [None, Some(DemandChange::Less(500))]);
    }

    #[test]
    fn a_burst_that_leaves_soon_anyway_is_no_demand() {
        let mut pace = BatchPace::new(Span::millis(1), LINK);
        pace.set_rate(at(0), LINK / 2);
        pace.offer(at(0));
        leave(&mut pace, at(0), 800);
        assert!(!pace.may_send(at(10)));
        assert_eq!(pace.measure(at(1000), 0, waits(200)), None, "less than half an interval takes");
        leave(&mut pace, at(1000), 700);
        assert!(!pace.may_send(at(1010)));
        assert!(pace.measure(at(2000), 0, waits(300)).is_some());
    }

    #[test]
    fn what_left_while_an_increase_ran_is_measured_over_the_time_that_it_took() {
        let mut pace = BatchPace::new(Span::millis(1), LINK);
        pace.offer(at(0));
        // An increase takes twenty intervals; meanwhile a fifth of the link is used.
        for ms in 0..20 {
            pace.spend(at(ms * 1000), 200);
        }
        assert!(!pace.may_send(at(20_000)));
        assert_eq!(pace.measure(at(20_000), 0, NONE), Some(DemandChange::More(212)));
        // Waiting bytes are demanded once for each interval that they wait.
        assert!(!pace.may_send(at(20_500)));
        let waits = WaitingBatches { batches: BATCHES_LEAST, bytes: 400, ..NONE };
        assert_eq!(pace.measure(at(21_000), 212, waits), Some(DemandChange::More(213)));
    }

    #[test]
    fn large_batches_of_a_small_share_are_no_change_of_demand() {
        let mut pace = BatchPace::new(Span::millis(1), LINK);
        pace.set_rate(at(0), 300);
        pace.offer(at(0));
        // A batch in 1.4 ms, of which one or none falls into a millisecond: some 286 kB/s.
        for us in 0..100_000 {
            if us % 1400 == 0 {
                pace.spend(at(us), 400);
                assert!(!pace.may_send(at(us)), "the next one waits for bandwidth");
            }
            assert_eq!(pace.measure(at(us), 300, waits(10)), None, "{us}");
        }
    }
}
