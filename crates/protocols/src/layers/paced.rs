//! Sends at a bounded rate: batches within what a link may carry ([`PacedBatches`]), and small messages to all that
//! gather what they say ([`PacedSends`]). At a low load all of them leave at once.

use amcast_core::{Span, Time};

/// How far a sender of batches may be ahead of its rate, in time: so a late wake-up costs no throughput. The least where it
/// goes by what its link carries.
const AHEAD_LEAST: Span = Span::millis(1);

/// The same at most, where its link is slow.
const AHEAD_MOST: Span = Span::millis(4);

/// Between these it may be ahead by as long as the link takes for so many bytes: less than what may wait in front of a port.
const AHEAD_BYTES: u64 = 64 << 10;

/// How far the only sender on a link of this rate, in kilobytes a second, may be ahead of it.
fn ahead_on(link: u64) -> Span {
    let span = Span(AHEAD_BYTES * BYTE_NS / link.max(1));
    span.clamp(AHEAD_LEAST, AHEAD_MOST)
}

/// A bucket that each batch fills, and that leaks at the rate of its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacedBatches {
    /// In kilobytes a second.
    rate: u64,
    /// How far its sender may be ahead of that.
    ahead: Span,
    /// Bytes that left and that the rate has not paid for yet.
    owed: u64,
    /// Up to when the rate has paid.
    paid: Time,
}

impl PacedBatches {
    /// Nothing has left; at this rate, in kilobytes a second.
    pub(crate) const fn new(rate: u64) -> Self {
        Self { rate, ahead: AHEAD_LEAST, owed: 0, paid: Time::ZERO }
    }

    /// The same of a sender that has a link of this rate for itself: it may be further ahead where that is slow, since a loop
    /// that shares its core is late by some milliseconds.
    pub(crate) fn of_whole_link(rate: u64) -> Self {
        Self { ahead: ahead_on(rate), ..Self::new(rate) }
    }

    /// The rate.
    pub(crate) const fn rate(&self) -> u64 {
        self.rate
    }

    /// The rate is this from now on.
    pub(crate) fn set_rate(&mut self, now: Time, rate: u64) {
        self.pay(now);
        self.rate = rate;
    }

    /// Whether a batch may leave now.
    pub(crate) fn may_send(&mut self, now: Time) -> bool {
        self.pay(now);
        self.rate > 0 && self.owed <= self.ahead()
    }

    /// So many bytes leave now.
    pub(crate) fn spend(&mut self, now: Time, bytes: usize) {
        self.pay(now);
        // Batches that leave one at a time, without bandwidth, do not add up.
        self.owed = (self.owed + bytes as u64).min(self.ahead() + bytes as u64);
    }

    /// When the next batch may leave; never without bandwidth.
    pub(crate) fn next_at(&self) -> Time {
        if self.rate == 0 {
            return Time::NEVER;
        }
        let over = self.owed.saturating_sub(self.ahead());
        self.paid + Span((over * BYTE_NS).div_ceil(self.rate))
    }

    /// Bytes that may be owed.
    const fn ahead(&self) -> u64 {
        self.rate * self.ahead.0 / BYTE_NS
    }

    /// The rate pays for what left, a byte after the other.
    fn pay(&mut self, now: Time) {
        let bytes = self.rate * now.since(self.paid).0.min(Span::secs(1).0) / BYTE_NS;
        if self.rate == 0 || bytes >= self.owed {
            self.owed = if self.rate == 0 { self.owed } else { 0 };
            self.paid = now;
        } else {
            self.owed -= bytes;
            // Less than a byte is paid later.
            self.paid += Span(bytes * BYTE_NS / self.rate);
        }
    }
}

/// How many may leave by themselves at a time.
const BURST: u64 = 4;

/// When the next message of one kind leaves, at the latest: one that goes along with something else is sooner.
///
/// Where each member answers each message of every other one, these answers would take a good part of the bandwidth at a
/// high load. So they leave by themselves at a bounded rate: some at once, and then one in each interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacedSends {
    /// When it leaves; never if there is nothing to say.
    at: Time,
    /// Up to when intervals are used up.
    used: Time,
}

impl PacedSends {
    /// There is nothing to say.
    pub(crate) const NONE: Self = Self { at: Time::NEVER, used: Time::ZERO };

    /// When the next one leaves.
    pub(crate) const fn at(&self) -> Time {
        self.at
    }

    /// One leaves within `span`.
    pub(crate) fn within(&mut self, now: Time, span: Span) {
        self.at = self.at.min(now + span);
    }

    /// One leaves as soon as the rate allows, of one in each interval.
    pub(crate) fn soon(&mut self, now: Time, interval: Span) {
        let ahead = interval.times(BURST - 1);
        let wait = self.used.since(now).0.saturating_sub(ahead.0);
        // Longer intervals of a load that is over count no more.
        self.within(now, Span(wait).min(interval));
    }

    /// Something else that leaves now anyway says everything.
    pub(crate) const fn along(&mut self) {
        self.at = Time::NEVER;
    }

    /// One leaves by itself, and uses up an interval.
    pub(crate) fn alone(&mut self, now: Time, interval: Span) {
        self.at = Time::NEVER;
        self.used = self.used.max(now) + interval;
    }
}

/// Over what time the load of a link is measured, at least: messages that come at random fill it for a millisecond or two now and
/// then, and that is no full load.
const MEASURED: Span = Span::millis(5);

/// And over as long as it takes for so many bytes.
const MEASURED_BYTES: u64 = 128 << 10;

/// Small messages that leave by themselves take one part in so many of what a link has to spare.
const SPARE_PART: u64 = 3;

/// They take as much of a link as if it had one part in so many to spare, however loaded it is.
pub(crate) const LEAST_SPARE: u64 = 200;

/// Bytes that may wait in front of a port of the network, about: less than what fits there.
pub(crate) const QUEUE_BYTES: u64 = 224 << 10;

/// Nanoseconds in which a kilobyte a second is a byte.
pub(crate) const BYTE_NS: u64 = 1_000_000;

/// How long the load of a link of this rate is measured, at least.
fn measured_on(link: u64) -> Span {
    MEASURED.max(Span(MEASURED_BYTES * BYTE_NS / link.max(1)))
}

/// How much the link of this process has to do, as far as the process sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkLoad {
    /// The rate that the link carries, in kilobytes a second.
    link: u64,
    /// How long an interval is, at least.
    measured: Span,
    /// When the present interval began.
    began: Time,
    /// Bytes that arrived in it.
    bytes: u64,
    /// The rate of the interval before.
    rate: u64,
}

impl LinkLoad {
    /// A link of this rate, in kilobytes a second, that has nothing to do.
    pub(crate) fn new(link: u64) -> Self {
        Self { link, measured: measured_on(link), began: Time::ZERO, bytes: 0, rate: 0 }
    }

    /// The link carries so much from now on. The rate of the interval before counts on: it is of what arrived, and
    /// the link's rate does not change that.
    pub(crate) fn set_link(&mut self, link: u64) {
        (self.link, self.measured) = (link, measured_on(link));
    }

    /// So many bytes arrived.
    pub(crate) fn add(&mut self, now: Time, bytes: usize) {
        self.measure(now);
        self.bytes += bytes as u64;
    }

    fn measure(&mut self, now: Time) {
        let passed = now.since(self.began);
        if passed >= self.measured {
            self.rate = self.bytes * BYTE_NS / passed.0;
            (self.began, self.bytes) = (now, 0);
        }
    }

    /// How far messages that take so many bytes are apart, so that they take only a part of what the link has to spare.
    pub(crate) fn interval(&mut self, now: Time, bytes: u64) -> Span {
        self.measure(now);
        // A load that begins shows before the interval is over.
        let rate = self.rate.max(self.bytes * BYTE_NS / self.measured.0);
        let spare = self.link.saturating_sub(rate).max(self.link / LEAST_SPARE).max(1);
        Span(bytes * BYTE_NS * SPARE_PART / spare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::micros(us)
    }

    #[test]
    fn a_sender_may_be_ahead_by_longer_where_links_are_slow() {
        let span = |mbps: u64| ahead_on(mbps * 125);
        assert_eq!([942, 400].map(span), [AHEAD_LEAST, Span(64 * 1024 * BYTE_NS / 50_000)]);
        assert_eq!([49, 0].map(span), [AHEAD_MOST; 2]);
        let second_batch = |mut batches: PacedBatches| {
            batches.spend(at(1_000), 5_000);
            batches.next_at()
        };
        assert_eq!(second_batch(PacedBatches::of_whole_link(1_000)), at(2_000));
        assert_eq!(second_batch(PacedBatches::new(1_000)), at(5_000));
    }

    #[test]
    fn some_leave_at_once_and_the_others_at_the_rate() {
        let mut sends = PacedSends::NONE;
        let interval = Span::micros(100);
        for _ in 0..BURST {
            sends.soon(at(1000), interval);
            assert_eq!(sends.at(), at(1000));
            sends.alone(at(1000), interval);
        }
        sends.soon(at(1000), interval);
        assert_eq!(sends.at(), at(1100), "the burst is used up");
        sends.within(at(1000), Span::micros(50));
        assert_eq!(sends.at(), at(1050), "the sooner of the two");
        sends.along();
        assert_eq!(sends.at(), Time::NEVER);
        sends.soon(at(1100), interval);
        assert_eq!(sends.at(), at(1100), "what went along used up nothing");
        sends.alone(at(1100), interval);
        sends.soon(at(1150), interval);
        assert_eq!(sends.at(), at(1200));
        sends.alone(at(1200), interval);
        sends.soon(at(9000), interval);
        assert_eq!(sends.at(), at(9000), "idle time gives back the burst, and no more");
        (0..BURST).for_each(|_| sends.alone(at(9000), Span::millis(30)));
        sends.soon(at(9000), interval);
        assert_eq!(sends.at(), at(9100), "the load is over, and so are its intervals");
    }

    #[test]
    fn small_messages_take_a_third_of_what_a_link_has_to_spare() {
        // A hundred bytes in a microsecond.
        let mut load = LinkLoad::new(100_000);
        assert_eq!(load.interval(at(5000), 100), Span::micros(3), "it is idle");
        for ms in 5..10 {
            load.add(at(ms * 1000), 50_000);
        }
        assert_eq!(load.interval(at(10_000), 100), Span::micros(6), "half of it is used");
        load.add(at(10_000), 200_000);
        assert_eq!(load.interval(at(12_000), 100), Span::micros(6), "a burst is no load");
        load.add(at(12_000), 200_000);
        assert_eq!(load.interval(at(14_000), 100), Span::micros(15), "load that lasts counts");
        load.add(at(14_000), 200_000);
        assert_eq!(load.interval(at(15_000), 100), Span::micros(600), "one part in 600");
        assert_eq!(load.interval(at(90_000), 100), Span::micros(3), "it is idle again");
        // A slow link is measured for longer.
        let mut load = LinkLoad::new(1000);
        assert_eq!(load.interval(at(140_000), 100), Span::micros(300), "it is idle");
        for ms in 140..300 {
            load.add(at(ms * 1000), 500);
        }
        assert_eq!(load.interval(at(300_000), 100), Span::micros(600), "half of it is used");
    }

    #[test]
    fn a_link_that_became_slow_is_measured_for_longer() {
        let mut load = LinkLoad::new(100_000);
        load.set_link(1000);
        load.add(at(140_000), 5_000);
        // 38 kB/s over 131 ms, and not a thousand over 5 ms.
        assert_eq!(load.interval(at(147_000), 100), Span(300_000_000 / 962));
    }
}
