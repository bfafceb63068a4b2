//! Rate levelling on demand [MRP 4]: a process requests that the rings that are merged with the one that it
//! coordinates come as far, with skips if they have nothing to order.
//!
//! # Ahead of need
//! A skip of a ring of many processes takes long, and the batches that are ordered meanwhile would each
//! request one more. So a coordinator measures how many batches it orders while a request is open, and
//! requests four times as many instances more than it needs, once half of those are used up. A coordinator
//! that orders little requests only the skips that it needs; and all coordinators whose rings are merged with
//! the same ring profit from the first request.

use super::message::RingMessage;
use super::process::MultiRing;
use super::ring::RingMember;
use super::topology::RingId;
use alloc::vec::Vec;
use amcast_core::{Span, Time};
use core::mem;

/// How many times as many instances are requested ahead as were needed while the last request was open.
const AHEAD: u64 = 4;

/// Instances that are requested before they are needed, at most.
const AHEAD_MAX: u64 = 4096;

/// Of the skips that are requested ahead, one part of so many is given up where they turn out to be too many.
const SHRINK: u64 = 8;

/// How many times `retry` skips may wait for a ring that orders no messages.
const SKIPS_PATIENCE: u64 = 64;

/// The outstanding request to one ring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingLevelling {
    /// It was requested to come as far as this, and when.
    upto: u64,
    at: Time,
    /// Batches of this process that are merged with it.
    batches: u64,
    /// An open request: how far the ring is to come, and how many batches there were when it was made.
    asked: Option<(u64, u64)>,
    /// How many instances more than it needs this process requests.
    ahead: u64,
}

/// The needs of a process towards the rings that are merged with those that it coordinates or
/// delivers.
#[derive(Clone, Debug, Default)]
pub(super) struct Levelling {
    /// How far rings must come for the batches that this process ordered to be delivered.
    pub(super) needs: Vec<(RingId, u64)>,
    /// How far rings must come for others, or for the merge here: to be requested.
    pub(super) requests: Vec<(RingId, u64)>,
    /// By ring: the skips that were requested of it.
    pub(super) rings: Vec<RingLevelling>,
    /// The ring and instance that the merge waits for, and since when.
    pub(super) merge_blocked: Option<(RingId, u64, Time)>,
}

impl Levelling {
    pub(super) fn new(rings: usize) -> Self {
        Self { rings: alloc::vec![RingLevelling::default(); rings], ..Self::default() }
    }
}

impl RingLevelling {
    /// A batch needs instances of the ring up to `need`, and the ring has reached `end`, as far as
    /// is known. Returns the instance to request, if any.
    fn batch(&mut self, need: u64, end: Option<u64>) -> Option<u64> {
        self.batches += 1;
        let covered = self.upto.max(end.unwrap_or(0));
        if covered >= need + self.ahead / 2 {
            return None;
        }
        Some(need + self.ahead)
    }

    /// The ring has reached `end`: if that was requested, the duration of a request is known.
    fn arrived(&mut self, end: u64) {
        if let Some((_, batches)) = self.asked.take_if(|(upto, _)| *upto <= end) {
            let meanwhile = (AHEAD * (self.batches - batches)).min(AHEAD_MAX);
            self.ahead = meanwhile.max(self.ahead - self.ahead.div_ceil(SHRINK));
        }
    }

    /// Whether to request `upto` now: if it is more than before, or again after a while.
    fn asks(&mut self, upto: u64, now: Time, retry: Span) -> bool {
        if upto <= self.upto && now.since(self.at) < retry {
            return false;
        }
        (self.upto, self.at) = (self.upto.max(upto), now);
        self.asked = self.asked.or(Some((upto, self.batches)));
        true
    }
}

impl MultiRing {
    /// Sends level requests to the coordinators of rings that learners wait for.
    pub(super) fn request_levelling(&mut self) {
        for (id, need) in mem::take(&mut self.levelling.needs) {
            let end = self.end_of(id);
            if let Some(upto) = self.levelling.rings[usize::from(id)].batch(need, end) {
                self.levelling.requests.push((id, upto));
            }
        }
        if let Some((id, instance, _)) = self.levelling.merge_blocked
            && self.levelling_at() <= self.now
            && let Some(upto) = self.needed(id, instance, |ring| ring.learner.learned)
        {
            self.levelling.requests.push((id, upto));
        }
        for (id, upto) in mem::take(&mut self.levelling.requests) {
            if self.levelling.rings[usize::from(id)].asks(upto, self.now, self.config.retry) {
                let to = self.target(id);
                self.send(to, RingMessage::LevelRequest { ring: id, upto });
            }
        }
    }

    /// Notes which rings have reached the requested instances.
    pub(super) fn note_arrivals(&mut self) {
        for (pull, ring) in self.levelling.rings.iter_mut().zip(&self.rings) {
            if let Some(ring) = ring {
                pull.arrived(ring.learner.learned);
            }
        }
    }

    /// The end of a ring's known instances, decided or not; none if this process is not in it.
    fn end_of(&self, id: RingId) -> Option<u64> {
        self.rings[usize::from(id)].as_ref().map(|ring| ring.current.end.max(ring.learner.learned))
    }

    /// The instance that ring `id` must reach for the others to be merged up to `what`; none if it
    /// has reached it.
    fn needed(&self, id: RingId, instance: u64, what: fn(&RingMember) -> u64) -> Option<u64> {
        let rings = &self.merge.rings;
        let at = rings.iter().position(|&r| r == id)?;
        let need = |(other, &ring): (usize, &RingId)| {
            let upto = what(self.rings[usize::from(ring)].as_ref()?);
            (other != at && upto > 0).then(|| self.merge.order.needs(other, upto - 1, at))
        };
        let most = rings.iter().enumerate().filter_map(need).max()?;
        (most > instance).then_some(most)
    }

    /// When a ring that the merge waits for is requested to come further. If messages wait for it, after
    /// `retry`. If only skips do, much later: they are to be merged before they are trimmed, and rings
    /// would chase each other.
    pub(super) fn levelling_at(&self) -> Time {
        let Some((id, instance, since)) = self.levelling.merge_blocked else { return Time::NEVER };
        let retry = self.config.retry;
        let wait = if self.needed(id, instance, |ring| ring.learner.messages_end).is_some() {
            retry
        } else if self.needed(id, instance, |ring| ring.learner.learned).is_some() {
            retry.times(SKIPS_PATIENCE)
        } else {
            return Time::NEVER;
        };
        (since + wait).max(self.levelling.rings[usize::from(id)].at + retry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const RETRY: Span = Span::millis(5);

    /// A coordinator that orders a batch each millisecond and whose requests are each answered after
    /// `delay`; how often it requested, and how many batches were ordered before the instances that they
    /// need were there.
    fn run(delay: u64, batches: u64) -> (u64, u64) {
        let (mut pull, mut end, mut asked, mut late) = (RingLevelling::default(), 0, 0, 0);
        let mut answers: Vec<(u64, u64)> = Vec::new();
        for at in 1..=batches {
            let now = Time::ZERO + Span::millis(at);
            let arrived = answers.iter().filter(|(due, _)| *due <= at).map(|(_, upto)| *upto);
            end = arrived.fold(end, u64::max);
            pull.arrived(end);
            late += u64::from(end < at);
            if let Some(upto) = pull.batch(at, Some(end))
                && pull.asks(upto, now, RETRY)
            {
                asked += 1;
                answers.push((at + delay, upto));
            }
        }
        (asked, late)
    }

    #[test]
    fn a_busy_coordinator_requests_ahead_and_stops_waiting() {
        let (asked, late) = run(4, 1000);
        assert!(asked < 250 && late < 100, "{asked} times, {late} late");
        // The answer comes within a batch's time: nothing is requested ahead.
        assert_eq!(run(0, 100).0, 100);
    }

    #[test]
    fn instances_that_another_process_requested_are_not_requested_again() {
        let mut pull = RingLevelling::default();
        assert_eq!(pull.batch(7, Some(7)), None);
        assert_eq!(pull.batch(8, Some(7)), Some(8));
        assert_eq!(pull.batch(8, None), Some(8), "of a ring of others nothing is known");
        assert!(pull.asks(8, Time::ZERO, RETRY) && !pull.asks(8, Time::ZERO + Span(1), RETRY));
        assert_eq!(pull.batch(8, None), None);
        assert!(pull.asks(8, Time::ZERO + RETRY, RETRY), "it may be lost");
        assert!(pull.asks(9, Time::ZERO + RETRY, RETRY));
    }
}
