//! The rate that the links carry at present, as far as this member sees it: the configured rate, or less while others than this
//! group use them. Ours: the paper's processes are the only source of traffic, and strangers are its future work
//! [FastCast 5].
//!
//! A link that is asked for too much has a queue in front of it, which grows until datagrams are lost. So the delays of
//! casts from one sender tell: they are above the smallest one that was seen lately by as much as waits, or by a
//! retransmission where something was lost. The clocks of sender and receiver need not agree, since the difference of
//! two delays has no part of either.
//!
//! All that arrived while there was a queue came through a link that was busy all the time, so that this is what strangers left.
//! While the queue does not become shorter, this member takes the link to carry no more than that, and less by what makes
//! the queue go away. Without a queue it takes back a little at a time. Groups that do so while they share a link come
//! to equal parts of it: each gives up the same part of what it has, and all take back the same.
//!
//! A member that sends alone receives no casts of others, so that nothing tells of a queue. Then the deliveries of its
//! own casts tell that nothing is lost, and it takes back as it does without a queue.

use crate::layers::paced::BYTE_NS;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::{Span, Time};

/// Of a sender with fewer casts in an interval nothing is concluded.
const DELAYS_LEAST: usize = 4;

/// Delays of a sender that are looked at in an interval, at most.
const DELAYS_MOST: usize = 256;

/// So many intervals it takes until a queue is gone for which something was given up.
const DRAINED: u64 = 16;

/// One part in so many of the link is taken back in an interval.
const TAKEN_BACK: u64 = 256;

/// A member announces a rate that rises when it has risen by one part in so many of the link.
const ANNOUNCED_STEP: u64 = 64;

/// So many members may announce their rates in an interval, about: each is an ordered broadcast.
const TELLERS: u64 = 8;

/// An interval in which less arrives than tells something is so many times as long, at most, where nothing waits. No more
/// is taken back after a longer one.
const LONGEST: u64 = 8;

/// For how long the smallest delay counts, at least; and for twice as long, at most. Clocks drift meanwhile.
const REMEMBERED: Span = Span::secs(2);

/// How a member judges its links.
#[derive(Clone, Copy, Debug)]
pub(super) struct CapacitySettings {
    /// The rate of a link, in kilobytes a second: more is never assumed.
    pub(super) link: u64,
    /// Less is never assumed.
    pub(super) floor: u64,
    /// For how long the bytes of casts may wait in queues, besides those of one cast from each member. None if no queue
    /// is to be noticed, as on streams.
    pub(super) queue: Option<Span>,
    /// The time over which delays are compared.
    pub(super) interval: Span,
}

/// The casts of one sender.
#[derive(Debug, Default)]
struct SenderDelays {
    /// When those arrived that were not handed over yet.
    arrived: VecDeque<Time>,
    /// The delays in this interval, in nanoseconds. Clocks differ: they may be negative.
    delays: Vec<i64>,
    /// The smallest delay, and that of the time before.
    least: Option<i64>,
    least_before: Option<i64>,
}

impl SenderDelays {
    /// By how much most casts of the interval were later than the earliest one; none if there were too few.
    fn queue(&mut self) -> Option<Span> {
        let count = self.delays.len();
        let base = self.least.into_iter().chain(self.least_before).min()?;
        let quarter = match count {
            0..DELAYS_LEAST => None,
            _ => Some(*self.delays.select_nth_unstable(count / 4).1),
        };
        self.delays.clear();
        Some(Span(u64::try_from(quarter? - base).unwrap_or(0)))
    }
}

/// The rate that the links carry, as one member sees it.
#[derive(Debug)]
pub(super) struct LinkCapacity {
    set: CapacitySettings,
    senders: Vec<SenderDelays>,
    /// The assumed rate.
    rate: u64,
    /// The one that it has announced to all members, and when.
    announced: u64,
    announced_at: Time,
    /// When the present interval began.
    began: Time,
    /// When it ends, at the earliest.
    ends: Time,
    /// Whether anything happened in it.
    active: bool,
    /// Bytes of other members that arrived in it.
    bytes: u64,
    /// The rate at which they arrived in the one before.
    arrived: u64,
    /// The queue of late; none where it was a short one.
    queue: Span,
    /// The largest cast, in bytes.
    largest: u64,
    /// When the delay of a cast was seen last.
    heard: Time,
    /// Whether an own cast was delivered since the last [`LinkCapacity::measure`] that was due.
    own_delivered: bool,
    /// When the smallest delays are forgotten next.
    forgets: Time,
}

impl LinkCapacity {
    /// The links carry all that is configured, among so many processes.
    pub(super) fn new(set: CapacitySettings, processes: usize) -> Self {
        let senders = core::iter::repeat_with(SenderDelays::default).take(processes).collect();
        Self {
            set,
            senders,
            rate: set.link,
            announced: set.link,
            announced_at: Time::ZERO,
            began: Time::ZERO,
            ends: Time::ZERO,
            active: false,
            bytes: 0,
            arrived: 0,
            queue: Span::ZERO,
            largest: 0,
            heard: Time::ZERO,
            own_delivered: false,
            forgets: Time::ZERO,
        }
    }

    /// The assumed rate, in kilobytes a second.
    #[cfg(test)]
    pub(super) const fn rate(&self) -> u64 {
        self.rate
    }

    /// The rate to announce to all members now, if there is one that matters to them: they take the `least` link to
    /// carry so much, and only a rate that lowers or raises that does.
    pub(super) fn next_announcement(&mut self, now: Time, least: u64) -> Option<u64> {
        let CapacitySettings { link, interval, .. } = self.set;
        let apart = Span(interval.0 * self.senders.len() as u64 / TELLERS);
        let lowers = self.rate < least.min(self.announced);
        let raises = self.announced <= least && self.rate >= self.announced + link / ANNOUNCED_STEP;
        // The rate of the whole link is announced in any case: nothing follows it.
        let is_whole = self.rate == link && self.announced < link;
        if !(lowers || raises || is_whole) || now < self.announced_at + apart {
            return None;
        }
        (self.announced, self.announced_at) = (self.rate, now);
        Some(self.rate)
    }

    /// A cast of another member arrived.
    pub(super) fn arrived(&mut self, now: Time, sender: usize) {
        if self.set.queue.is_some() {
            self.senders[sender].arrived.push_back(now);
        }
    }

    /// The earliest of these casts is handed over: so many bytes, which left at that time by the sender's clock, if it says.
    pub(super) fn handed_over(&mut self, now: Time, sender: usize, sent: Option<Time>, bytes: u64) {
        let Some(arrived) = self.senders[sender].arrived.pop_front() else { return };
        if !self.active {
            self.begin(now);
            self.active = true;
        }
        self.bytes += bytes;
        self.largest = self.largest.max(bytes);
        let of = &mut self.senders[sender];
        let Some(sent) = sent.filter(|_| of.delays.len() < DELAYS_MOST) else { return };
        let delay = arrived.0 as i64 - sent.0 as i64;
        of.least = Some(of.least.map_or(delay, |least| least.min(delay)));
        of.delays.push(delay);
        self.heard = now;
    }

    /// An own cast was delivered: it, its number and their acknowledgements have passed the links, and all casts of
    /// earlier numbers have arrived.
    pub(super) const fn own_delivered(&mut self) {
        self.own_delivered = true;
    }

    /// A view begins: nothing that arrived is handed over any more, and all members take all links to carry what is
    /// configured. Gives the rate to announce to them, if it is another one.
    pub(super) fn restart(&mut self) -> Option<u64> {
        self.senders.iter_mut().for_each(|of| of.arrived.clear());
        self.own_delivered = false;
        self.announced = self.rate;
        (self.rate < self.set.link).then_some(self.rate)
    }

    /// Bytes of all members that may wait in front of a port, and are not taken for a queue of others' traffic.
    pub(super) fn burst_bytes(&self) -> u64 {
        let CapacitySettings { link, queue, .. } = self.set;
        let allowed = queue.map_or(0, |queue| queue.0 * link / BYTE_NS);
        allowed + self.largest * self.senders.len() as u64
    }

    /// When [`LinkCapacity::measure`] is due; never while nothing arrives and nothing is to be taken back.
    pub(super) fn measures_at(&self) -> Time {
        let waits = self.active || self.rate.min(self.announced) < self.set.link;
        if waits && self.set.queue.is_some() { self.ends } else { Time::NEVER }
    }

    fn begin(&mut self, now: Time) {
        (self.began, self.ends, self.bytes) = (now, now + self.set.interval, 0);
    }

    /// Whether this member sends alone, as far as own deliveries tell: casts of others would have arrived since the last one,
    /// also if the link carries no more than the assumed rate.
    fn sends_alone(&self, now: Time) -> bool {
        let casts = Span(self.largest * self.senders.len() as u64 * BYTE_NS / self.rate);
        let silence = now.since(self.heard);
        self.own_delivered && silence >= casts.max(self.set.interval.times(LONGEST))
    }

    /// Ends an interval that is over. Says whether another rate is assumed. Where little arrived, that is for lack of senders,
    /// or because something was lost, or links are taken to carry little: the latter if an own cast `waits` for others, and
    /// own deliveries do not tell that this member [sends alone](Self::sends_alone). Then the interval lasts until enough has
    /// arrived, or a rate that is low enough would tell nothing for ever.
    pub(super) fn measure(&mut self, now: Time, waits: bool) -> bool {
        let CapacitySettings { link, floor, queue: Some(allowed), interval } = self.set else {
            return false;
        };
        if self.measures_at() > now {
            return false;
        }
        let passed = now.since(self.began);
        let tells = self.senders.iter().any(|of| of.delays.len() >= DELAYS_LEAST);
        let waits = waits && !self.sends_alone(now);
        // A delivery of long ago does not tell that nothing is lost now.
        self.own_delivered = false;
        if !tells && (waits || self.active && passed < interval.times(LONGEST)) {
            self.ends = now + interval;
            return false;
        }
        let queue = self.senders.iter_mut().filter_map(SenderDelays::queue).max();
        let burst = Span(self.largest * self.senders.len() as u64 * BYTE_NS / link);
        let (before, arrived) = (self.rate, self.bytes * BYTE_NS / passed.0.max(1));
        match queue {
            Some(queue) if queue > allowed + burst => {
                if queue >= self.queue {
                    // By chance little of what was sent arrives in one interval, and more in the next.
                    let left = arrived.max(self.arrived).min(self.rate);
                    let drain = (left / 2).min(left * queue.0 / interval.times(DRAINED).0);
                    self.rate = (left - drain).max(floor);
                }
                self.queue = queue;
            }
            _ => {
                let intervals = (passed.0 / interval.0.max(1)).clamp(1, LONGEST);
                self.rate = (self.rate + (link * intervals / TAKEN_BACK).max(1)).min(link);
                self.queue = Span::ZERO;
            }
        }
        self.arrived = arrived;
        self.begin(now);
        // An idle interval is the last one, unless there is something to take back.
        self.active = self.senders.iter().any(|of| !of.arrived.is_empty());
        self.forget(now);
        self.rate != before
    }

    /// Forgets the smallest delays of long ago.
    fn forget(&mut self, now: Time) {
        if self.forgets > now {
            return;
        }
        self.forgets = now + REMEMBERED;
        self.senders.iter_mut().for_each(|of| of.least_before = of.least.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of 8 Mb/s, a byte in a microsecond.
    const LINK: u64 = 1_000;

    const SETTINGS: CapacitySettings = CapacitySettings {
        link: LINK,
        floor: LINK / 10,
        queue: Some(Span::millis(2)),
        interval: Span::millis(10),
    };

    fn at(us: u64) -> Time {
        Time::ZERO + Span::micros(us)
    }

    /// Four casts of another member in each interval, of 1000 bytes and so late. Says how the rate changes.
    fn intervals(of: &mut LinkCapacity, from: u64, delays: &[u64]) -> Vec<u64> {
        let mut rates = Vec::new();
        for (n, delay) in delays.iter().enumerate() {
            let begin = from + n as u64 * 10_000;
            for sent in (0..4).map(|n| begin + n * 2000) {
                // The sender's clock is an hour ahead.
                let stamp = at(sent) + Span::secs(3600);
                of.arrived(at(sent + delay), 1);
                of.handed_over(at(begin), 1, Some(stamp), 1000);
            }
            of.measure(at(begin + 10_000), true);
            rates.push(of.rate());
        }
        rates
    }

    #[test]
    fn a_queue_that_stands_costs_capacity_and_one_that_becomes_shorter_does_not() {
        let mut of = LinkCapacity::new(SETTINGS, 2);
        assert_eq!(of.measures_at(), Time::NEVER, "nothing arrives");
        assert_eq!(intervals(&mut of, 0, &[50, 60, 1900]), [LINK; 3], "a short one is no harm");
        // Casts of 4000 bytes arrive in ten milliseconds, and 4400 us of the link wait: gone in 160 ms.
        assert_eq!(intervals(&mut of, 30_000, &[4450]), [400 - 400 * 44 / 1600]);
        assert_eq!(intervals(&mut of, 40_000, &[4440, 4300]), [389; 2], "it becomes shorter");
        assert_eq!(intervals(&mut of, 60_000, &[50; 3]), [392, 395, 398], "a little at a time");
        // Where nothing arrives, something may be lost, if an own cast waits.
        assert!(!of.measure(at(200_000), true) && of.rate() == 398);
        assert!(of.measure(at(300_000), false) && of.rate() == 398 + 8 * LINK / 256);
        assert_eq!(intervals(&mut of, 310_000, &[50; 210]).last(), Some(&LINK));
        // Never less than the floor.
        let late: Vec<u64> = (0..100).map(|n| 100_000 + n * 50_000).collect();
        assert_eq!(intervals(&mut of, 3_000_000, &late).last(), Some(&(LINK / 10)));
    }

    #[test]
    fn links_that_are_taken_to_carry_little_are_judged_by_casts_that_are_far_apart() {
        let mut of = LinkCapacity::new(SETTINGS, 2);
        let late: Vec<u64> = (0..100).map(|n| 100_000 + n * 50_000).collect();
        assert_eq!(intervals(&mut of, 0, &late).last(), Some(&(LINK / 10)));
        // A cast in each 60 ms, none of which waits in a queue, and own casts that always wait for the next one.
        for ms in 1_000..11_000 {
            if ms % 60 == 0 {
                of.arrived(at(ms * 1000), 1);
                of.handed_over(at(ms * 1000), 1, Some(at(ms * 1000) + Span::secs(3600)), 1000);
            }
            of.measure(at(ms * 1000), true);
        }
        assert_eq!(of.rate(), LINK);
    }

    #[test]
    fn a_member_that_sends_alone_takes_capacity_back_as_its_own_casts_are_delivered() {
        let mut of = LinkCapacity::new(SETTINGS, 2);
        let late: Vec<u64> = (0..100).map(|n| 100_000 + n * 50_000).collect();
        assert_eq!(intervals(&mut of, 0, &late).last(), Some(&(LINK / 10)));
        // Own casts are always on the way, and nothing of others arrives any more.
        let mut play = |from: u64, delivered| {
            for ms in from..from + 4_000 {
                if delivered && ms % 3 == 0 {
                    of.own_delivered();
                }
                if of.measures_at() <= at(ms * 1000) {
                    of.measure(at(ms * 1000), true);
                }
            }
            of.rate()
        };
        assert_eq!(play(1_000, false), LINK / 10, "something may be lost");
        assert_eq!(play(5_000, true), LINK);
    }

    #[test]
    fn large_casts_that_are_far_apart_at_a_low_rate_are_waited_for() {
        let mut of = LinkCapacity::new(SETTINGS, 2);
        let late: Vec<u64> = (0..100).map(|n| 100_000 + n * 50_000).collect();
        assert_eq!(intervals(&mut of, 0, &late).last(), Some(&(LINK / 10)));
        of.arrived(at(1_000_000), 1);
        of.handed_over(at(1_000_000), 1, Some(at(1_000_000)), 20_000);
        // Two members send a cast each in 400 ms at that rate.
        let mut changes = |ms: u64| {
            of.own_delivered();
            of.measure(at(ms * 1000), true)
        };
        assert!(!changes(1_100) && !changes(1_399));
        assert!(changes(1_409));
        // A delivery of before a pause does not tell that nothing was lost since.
        assert!(!of.measure(at(2_000_000), true));
    }

    #[test]
    fn a_few_late_casts_are_no_queue() {
        let mut of = LinkCapacity::new(SETTINGS, 2);
        for interval in 0..10 {
            let begin = interval * 10_000;
            for n in 0..8 {
                let late = if n % 2 == 0 { 5000 } else { 50 };
                of.arrived(at(begin + late), 1);
                of.handed_over(at(begin), 1, Some(at(begin)), 100);
            }
            of.measure(at(begin + 10_000), true);
        }
        assert_eq!(of.rate(), LINK);
    }

    #[test]
    fn members_announce_only_what_changes_the_least_link() {
        let mut of = LinkCapacity::new(SETTINGS, 8);
        let mut tell = |rate, ms: u64, least| {
            of.rate = rate;
            of.next_announcement(at(ms * 1000), least)
        };
        assert_eq!(tell(LINK, 100, LINK), None);
        assert_eq!(tell(900, 100, 800), None, "another link carries less");
        assert_eq!(tell(700, 100, 800), Some(700));
        assert_eq!(tell(650, 109, 700), None, "so soon again");
        assert_eq!(tell(650, 110, 700), Some(650));
        assert_eq!(tell(664, 200, 650), None, "a little more");
        assert_eq!(tell(665, 200, 650), Some(665));
        assert_eq!(tell(900, 300, 500), None, "another link carries less");
        assert_eq!(tell(900, 400, 665), Some(900));
        assert_eq!(tell(LINK, 500, 500), Some(LINK), "nothing follows it");
        assert_eq!(tell(LINK, 600, 500), None);
    }

    #[test]
    fn where_no_queue_is_noticed_nothing_is_given_up() {
        let mut of = LinkCapacity::new(CapacitySettings { queue: None, ..SETTINGS }, 2);
        assert_eq!(intervals(&mut of, 0, &[50, 9000, 90_000]), [LINK; 3]);
        assert_eq!(of.measures_at(), Time::NEVER);
    }

    /// One of the groups that share a link: how fast it sends, in the casts of one member to one other.
    struct SharingGroup {
        capacity: LinkCapacity,
        /// When its next cast leaves.
        next: f64,
        bytes: u64,
    }

    /// Plays groups that send all that they take the link to carry, in casts of 100 bytes, from these times on, in
    /// milliseconds. Says what each sent in the last half of the time, and how long the longest queue was, in bytes.
    fn shared(begins: &[u64], until: u64) -> (Vec<u64>, f64) {
        let mut groups: Vec<_> = begins
            .iter()
            .map(|&begin| SharingGroup {
                capacity: LinkCapacity::new(SETTINGS, 2),
                next: begin as f64 * 1e3,
                bytes: 0,
            })
            .collect();
        let (mut queue, mut longest) = (0.0_f64, 0.0_f64);
        for us in 0..until * 1000 {
            queue = (queue - 1.0).max(0.0);
            for group in &mut groups {
                if group.next <= us as f64 {
                    queue += 100.0;
                    let arrives = at(us + queue as u64);
                    group.capacity.arrived(arrives, 1);
                    group.capacity.handed_over(arrives, 1, Some(at(us)), 100);
                    group.next += 100.0 * LINK as f64 / group.capacity.rate() as f64;
                    group.bytes += if us * 2 > until * 1000 { 100 } else { 0 };
                }
                if group.capacity.measures_at() <= at(us) {
                    group.capacity.measure(at(us), true);
                }
            }
            longest = longest.max(queue);
        }
        (groups.iter().map(|group| group.bytes).collect(), longest)
    }

    #[test]
    fn groups_that_share_a_link_come_to_equal_shares_of_it() {
        let (alone, longest) = shared(&[0], 1000);
        assert!(alone[0] > 480_000 && longest <= 200.0, "{alone:?}, {longest}");
        for begins in [&[0, 500][..], &[0, 100, 900]] {
            let (sent, longest) = shared(begins, 8000);
            let carried = 4_000_000.0;
            let fair = carried / begins.len() as f64;
            let parts: Vec<f64> = sent.iter().map(|&bytes| bytes as f64 / fair).collect();
            let sum = sent.iter().sum::<u64>() as f64 / carried;
            assert!((0.8..=1.01).contains(&sum), "{sum}: {parts:?}");
            assert!(parts.iter().all(|part| (0.7..1.3).contains(part)), "{parts:?}");
            // It takes some intervals of 10 kB to give way. Without that there would be thousands of kilobytes.
            assert!(longest < 100_000.0, "{longest} bytes wait");
        }
    }
}
