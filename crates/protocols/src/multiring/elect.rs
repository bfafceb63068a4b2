//! Who should coordinate a ring: the first of its acceptors that works, in the eyes of the others too.
//!
//! ```text
//!      candidate          acceptors
//!   suspects  ----canvass--->  do they hear the coordinator?
//!   the       <----pass------  yes: the run that they follow goes on, and this is it
//!   coordi-   <---consent----  no
//!   nator     with consents of a quorum: phase 1 (`lead.rs`)
//! ```
//!
//! Phase 1 deposes whoever leads, so nobody begins it for what only it cannot see: where the way between
//! a coordinator and another acceptor fails, those who hear both keep the one that they have. What a
//! candidate is told is a matter of progress alone; phase 1 is safe whoever begins it, and when. Nor does
//! one consent who has just promised another candidate, or is one: that one has time to begin.
//! (Ongaro's thesis on Raft calls this pre-vote, 9.6; the paper leaves the election to ZooKeeper.)
//!
//! A coordinator that hears no quorum itself, or is heard by none, shows that it is not fit, and others may
//! replace it.

use super::ring::{Cx, Ring};
use super::value::Ballot;
use super::word::Word;
use crate::layers::heartbeat::PATIENCE_MAX;
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};

/// How often the time that is waited for a coordinator doubles.
const VAIN_MAX: u32 = 8;

/// Whether others would have a new coordinator, as far as they were asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Canvass {
    /// The ballot that would be begun.
    ballot: Ballot,
    /// When they were asked last.
    asked_at: Time,
    /// By acceptor: when it consented last.
    consents: Vec<Option<Time>>,
}

impl Canvass {
    fn new(ballot: Ballot, acceptors: usize) -> Self {
        Self { ballot, asked_at: Time::ZERO, consents: alloc::vec![None; acceptors] }
    }
}

impl Ring {
    /// Makes this process coordinator if nobody who should be is.
    pub(super) fn elect(&mut self, cx: &mut Cx<'_>) {
        if self.my_vote.is_none() || !cx.votes || self.lead.is_some() {
            return;
        }
        let works = |p: Pid| p == cx.me || !cx.suspects(p) && cx.heartbeat.is_fit(p.index());
        if self.awaited != self.promised {
            self.awaits(cx.now);
        }
        let leads = self.promised.coordinator();
        if leads == Some(cx.me) {
            // Its own attempt, of an earlier life.
            return self.canvass(cx);
        }
        // Who was promised something may never have heard of it, or have forgotten it.
        let waits = self.is_in_force() || cx.now < self.elect_at(cx.shape.suspect);
        if waits && leads.is_some_and(works) {
            return;
        }
        match self.shape.acceptors.iter().copied().find(|&p| works(p)) {
            Some(first) if first != cx.me => {
                // It is another's turn, who may not know what this process promised.
                self.awaited_at = cx.now;
                if cx.now.since(self.canvass.asked_at) >= cx.shape.retry {
                    self.canvass.asked_at = cx.now;
                    cx.say(first, Word::Refuse { ring: self.id, promised: self.promised });
                }
            }
            _ => self.canvass(cx),
        }
    }

    /// The run of the ballot that was promised is waited for from now on.
    pub(super) fn awaits(&mut self, now: Time) {
        (self.awaited, self.awaited_at, self.promised_at) = (self.promised, now, now);
    }

    /// Whether the run that is followed is that of the highest ballot known, and its coordinator has begun
    /// no new life since.
    fn is_in_force(&self) -> bool {
        self.promised == self.ballot && !self.orphaned
    }

    /// How long it is waited for the run of a ballot that was promised.
    pub(super) fn elect_at(&self, suspect: Span) -> Time {
        if self.my_vote.is_none() || self.is_in_force() {
            return Time::NEVER;
        }
        self.awaited_at + self.patience(suspect)
    }

    /// How long a candidate that was promised a ballot has to begin it: longer after failed attempts, and never
    /// longer than the failure detector is patient with anybody.
    fn patience(&self, suspect: Span) -> Span {
        suspect.times(1 << self.vain.min(VAIN_MAX)).min(PATIENCE_MAX.max(suspect))
    }

    /// When [`Ring::elect`] has something to do, whatever happens.
    pub(super) fn elect_due(&self, suspect: Span, retry: Span) -> Time {
        // Who was not given the consent that it asked for asks again.
        self.elect_at(suspect).max(self.canvass.asked_at + retry)
    }

    /// Asks the others whether they would have a new coordinator, too; begins phase 1 with enough of them.
    fn canvass(&mut self, cx: &mut Cx<'_>) {
        let ballot = self.next_ballot(cx.me);
        if self.canvass.ballot != ballot {
            self.canvass = Canvass::new(ballot, self.shape.acceptors.len());
        }
        let lately = |at: &&Option<Time>| at.is_some_and(|at| cx.now.since(at) < cx.shape.suspect);
        let consents = self.canvass.consents.iter().filter(lately).count();
        // Its own is one more.
        if consents + 1 >= self.shape.quorum() {
            self.canvass = Canvass::default();
            return self.prepare(cx);
        }
        let asked = self.canvass.asked_at;
        if asked == Time::ZERO || cx.now.since(asked) >= cx.shape.retry {
            self.canvass.asked_at = cx.now;
            let others = self.shape.acceptors.iter().filter(|&&p| p != cx.me);
            let word = |&p| (p, Word::Canvass { ring: self.id, ballot });
            cx.post.extend(others.map(word));
        }
    }

    /// One asks whether it should begin this ballot.
    pub(super) fn on_canvass(&mut self, from: Pid, ballot: Ballot, cx: &mut Cx<'_>) {
        if self.my_vote.is_none() || !cx.votes || !ballot.is_of(&self.shape.acceptors) {
            return;
        }
        let ring = self.id;
        if self.is_led(from, cx) {
            self.tell_of_leader(from, cx);
        } else if ballot <= self.promised {
            cx.say(from, Word::Refuse { ring, promised: self.promised });
        } else {
            cx.say(from, Word::Consent { ring, ballot });
        }
    }

    pub(super) fn on_consent(&mut self, from: Pid, ballot: Ballot, now: Time) {
        if let Some(at) = self.shape.acceptor(from)
            && self.canvass.ballot == ballot
            && let Some(consent) = self.canvass.consents.get_mut(at)
        {
            *consent = Some(now);
        }
    }

    /// Whether somebody other than `candidate` leads the run that is followed, or has been promised the next
    /// one so lately that it may just begin it, as far as can be heard.
    fn is_led(&self, candidate: Pid, cx: &Cx<'_>) -> bool {
        // Counted from the promise: who waits for another's turn waits on, and that one must be able to begin.
        let until = self.promised_at + self.patience(cx.shape.suspect);
        let begins = self.promised > self.ballot && cx.now < until;
        let counts = self.is_in_force() || begins && self.awaited == self.promised;
        let leads = self.promised.coordinator().filter(|&p| p != candidate && counts);
        leads.is_some_and(|p| match p == cx.me {
            true => self.lead.is_some() && self.is_fit_to_lead(p, cx),
            false => {
                // However patient this process has become: others need not be.
                let heard = cx.heartbeat.silence(cx.now, p.index()) < cx.shape.suspect;
                heard && !cx.suspects(p) && self.is_fit_to_lead(p, cx)
            }
        })
    }

    /// Whether the coordinator of the ballot that was promised is fit for that, if it is still heard. Who has just
    /// begun had answers of a quorum, whatever signs of life say that are older: where broken ways had healed,
    /// two that had them deposed each other in every round trip until the next ones came.
    fn is_fit_to_lead(&self, p: Pid, cx: &Cx<'_>) -> bool {
        let fit = || match p == cx.me {
            true => self.reaches_quorum(cx),
            false => cx.heartbeat.is_fit(p.index()),
        };
        cx.now < self.promised_at + cx.shape.suspect || fit()
    }

    /// Whether this acceptor hears so many, and they it, that together they could decide something.
    pub(super) fn reaches_quorum(&self, cx: &Cx<'_>) -> bool {
        let reached = self.shape.acceptors.iter().filter(|&&p| p == cx.me || cx.reaches(p));
        reached.count() >= self.shape.quorum()
    }

    /// A higher ballot is about: the own attempt is over. Who says so may not know whose run it is.
    pub(super) fn on_refuse(&mut self, from: Pid, promised: Ballot, cx: &mut Cx<'_>) {
        if !promised.is_of(&self.shape.acceptors) {
            return;
        }
        if self.lead.as_ref().is_some_and(|lead| lead.ballot < promised) {
            self.demoted(promised, cx);
        }
        self.promised = self.promised.max(promised);
        let lacks = self.shape.acceptor(from).is_some() && promised <= self.ballot;
        if lacks && self.is_led(from, cx) {
            self.tell_of_leader(from, cx);
        }
    }

    /// Tells one who would have another coordinator of the run that goes on, or of the ballot that will.
    fn tell_of_leader(&self, to: Pid, cx: &mut Cx<'_>) {
        match self.is_in_force() {
            true => self.tell_beside(to, cx),
            false => cx.say(to, Word::Refuse { ring: self.id, promised: self.promised }),
        }
    }
}
