//! Questions for casts that this process misses. An answer has many casts, so that the next question for casts of the
//! same sender waits until this answer is over, or until it is late.
//!
//! Within a view the first question is for one cast, and each one that follows an answer is for twice as many: the first casts are missing
//! perhaps because others have overtaken them, and answers of many casts, to many members that miss the same ones, would
//! make a link fuller that is too full already. After a late answer it begins anew, and waits for longer. Where the sender
//! itself asks which casts a member has, none is under way any more, and the question is for all that fit into an answer.

use super::CastTransport;
use crate::layers::vsync::membership::GroupMembership;
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use amcast_core::{Pid, Span, Time};
use core::mem;

/// Bytes of casts in an answer, at most, if they are more than one.
pub(super) const FETCHED_BYTES: usize = 64 << 10;

/// Casts that are asked for at a time, at most, by questions that become larger.
const CASTS_MOST: u64 = 1 << 10;

/// How long an answer is awaited within a view, in times of a retransmission: a sender that sees no progress asks sooner.
const PATIENCE: u64 = 4;

/// And after late answers, at most.
const PATIENCE_MOST: u64 = 16;

/// The last question for casts of one sender, and its answer so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct CastQuestion {
    /// The last cast that the sender is known to have made, as it has said.
    wanted: u64,
    /// The last cast that was asked for.
    asked: u64,
    /// How many casts that were, at most.
    casts: u64,
    /// Whether the next question is for as many as may be: the sender has asked which of its casts this process has.
    asks_most: bool,
    /// Until when the answer is awaited.
    until: Time,
    /// For how long, from the question on.
    wait: Span,
    /// Bytes of the answer that came.
    came: usize,
    /// Bytes of the largest cast of it: the next one has no more, most often.
    largest: usize,
}

impl CastQuestion {
    /// Nothing was asked for.
    pub(super) const NONE: Self = Self {
        wanted: 0,
        asked: 0,
        casts: 0,
        asks_most: false,
        until: Time::ZERO,
        wait: Span::ZERO,
        came: 0,
        largest: 0,
    };

    /// It asks now for all casts up to this one, of a process that answers within `wait`.
    pub(super) fn all(upto: u64, now: Time, wait: Span) -> Self {
        Self { asked: upto, until: now + wait, wait, ..Self::NONE }
    }

    /// Until when the answer is awaited.
    pub(super) const fn until(&self) -> Time {
        self.until
    }

    /// The sender has made casts up to this one, and asks which of them this process has. If some are missing, the answer to
    /// the last question is awaited no longer.
    pub(super) fn want(&mut self, have: u64, upto: u64) {
        self.wanted = self.wanted.max(upto);
        if have < self.wanted {
            (self.until, self.asks_most) = (Time::ZERO, true);
        }
    }

    /// Whether more of the answer may be on the way, where so many casts are here without a gap: it has not all that was asked
    /// for, and one more cast fits into it.
    pub(super) fn is_awaited(&self, have: u64, now: Time) -> bool {
        let is_full = self.came > 0 && self.came + self.largest > FETCHED_BYTES;
        now < self.until && have < self.asked && !is_full
    }

    /// The next question, for casts behind these up to that one, if they are not too many: gives the last one that it is for.
    fn ask(&mut self, have: u64, upto: u64, now: Time, retry: Span) -> u64 {
        let is_late = have < self.asked && now >= self.until && self.until > Time::ZERO;
        self.wait = match is_late {
            true => self.wait.times(2).min(retry.times(PATIENCE_MOST)),
            false => retry.times(PATIENCE),
        };
        self.casts = match mem::take(&mut self.asks_most) {
            true => CASTS_MOST,
            false if now < self.until => (self.casts * 2).min(CASTS_MOST),
            false => 1,
        };
        (self.came, self.largest) = (0, 0);
        self.until = now + self.wait;
        self.asked = upto.min(have + self.casts);
        self.asked
    }

    /// A cast of the sender came, of so many bytes. If it was missing the rest of the answer may take as long again.
    pub(super) fn note(&mut self, now: Time, number: u64, bytes: usize, was_missing: bool) {
        if number > self.asked {
            return;
        }
        self.came += bytes;
        self.largest = self.largest.max(bytes);
        if was_missing && now < self.until {
            self.until = now + self.wait;
        }
    }
}

impl CastTransport {
    /// Whether this process knows that it misses casts of a sender.
    pub(super) fn misses(&self, sender: Pid) -> bool {
        self.log.gap(sender) || self.log.have(sender) < self.questions[sender.index()].wanted
    }

    /// Asks a member for its casts that are missing here before any that are behind a gap, unless an answer is on the way.
    pub(super) fn fetch_missing(
        &mut self,
        group: &GroupMembership,
        sender: Pid,
        post: &mut OutgoingPackets,
    ) {
        if !self.misses(sender) {
            return;
        }
        let question = &mut self.questions[sender.index()];
        let upto = self.log.first_behind_gap(sender).map_or(question.wanted, |first| first - 1);
        let (view, after) = (self.log.view, self.log.have(sender));
        if !question.is_awaited(after, group.now) {
            let upto = question.ask(after, upto, group.now, group.settings.retry);
            post.push(sender, PacketItem::Fetch { view, sender, after, upto });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Span = Span::millis(2);

    fn at(us: u64) -> Time {
        Time::ZERO + Span::micros(us)
    }

    #[test]
    fn an_answer_is_over_when_it_has_all_or_is_full_or_late() {
        assert!(!CastQuestion::NONE.is_awaited(0, at(0)));
        let mut question = CastQuestion::all(30, at(0), RETRY);
        assert!(question.is_awaited(0, at(1999)) && !question.is_awaited(0, at(2000)));
        assert!(!question.is_awaited(30, at(0)), "all are here");
        question.note(at(0), 31, FETCHED_BYTES, true);
        assert!(question.is_awaited(0, at(0)), "that one is no part of it");
        // Six casts of ten thousand bytes fit into an answer, whether they were missing or not.
        (1..=5).for_each(|number| question.note(at(0), number, 10_000, number % 2 == 0));
        assert!(question.is_awaited(5, at(0)));
        question.note(at(0), 6, 10_000, true);
        assert!(!question.is_awaited(6, at(0)));
        // One that is larger than an answer comes alone.
        let mut question = CastQuestion::all(30, at(0), RETRY);
        assert!(question.is_awaited(0, at(0)));
        question.note(at(0), 1, FETCHED_BYTES + 1, true);
        assert!(!question.is_awaited(1, at(0)));
        // A small one at its end hides no large one that did not fit.
        let mut question = CastQuestion::all(30, at(0), RETRY);
        (1..=6).for_each(|number| question.note(at(0), number, 10_000, true));
        question.note(at(0), 7, 20, true);
        assert!(!question.is_awaited(7, at(0)));
    }

    #[test]
    fn an_answer_is_late_when_nothing_of_it_came_for_so_long() {
        let mut question = CastQuestion::all(30, at(0), RETRY);
        question.note(at(1500), 1, 100, true);
        assert!(question.is_awaited(1, at(3499)) && !question.is_awaited(1, at(3500)));
        // Casts that were not missing, and late ones, change nothing.
        question.note(at(3000), 1, 100, false);
        question.note(at(3500), 2, 100, true);
        assert!(!question.is_awaited(2, at(3500)));
    }

    #[test]
    fn a_sender_that_asks_while_nothing_is_missing_makes_no_question_larger() {
        let mut question = CastQuestion::NONE;
        question.want(7, 7);
        assert_eq!(question.ask(8, 20, at(100), RETRY), 9);
    }

    #[test]
    fn questions_are_for_twice_as_many_casts_each_time_and_begin_anew_after_a_late_answer() {
        let mut question = CastQuestion::NONE;
        let mut have = 0;
        let all = [1, 2, 3, 4, 5].map(|n| {
            let upto = question.ask(have, 30, at(n * 100), RETRY);
            assert!(question.is_awaited(have, at(n * 100 + 50)));
            have = upto;
            upto
        });
        assert_eq!(all, [1, 3, 7, 15, 30]);
        // Another gap, much later: its first cast does not come.
        assert_eq!(question.ask(40, 50, at(50_000), RETRY), 41);
        assert!(question.is_awaited(40, at(57_999)) && !question.is_awaited(40, at(58_000)));
        assert_eq!(question.ask(40, 50, at(58_000), RETRY), 41);
        assert!(question.is_awaited(40, at(73_999)) && !question.is_awaited(40, at(74_000)));
        // Its sender asks.
        question.want(40, 60);
        assert!(!question.is_awaited(40, at(60_000)) && question.wanted == 60);
        assert_eq!(question.ask(40, 60, at(60_000), RETRY), 60);
        assert!(question.is_awaited(40, at(67_999)) && !question.is_awaited(40, at(68_000)));
    }
}
