//! Privilege-based: a token with the next number goes round, and who has it broadcasts [TO 3.2].

use super::message::OrderingMessage;
use super::ordering_base::{NumberedBatches, OrderingBase, OrderingOutbox, Scheme};
use crate::layers::delivery::UNKNOWN_MESSAGE;
use amcast_core::groupcast::{Grade, GroupcastOutput};
use amcast_core::step::WakeReason;
use amcast_core::{Pid, Time};

/// The scheme, by the primitive of its broadcast.
#[derive(Debug)]
pub(super) struct PrivilegeBased {
    grade: Grade,
    numbered: NumberedBatches,
    /// The token, if it is here: the next number, and how many members had nothing to send.
    held: Option<(u64, u32)>,
    /// Until when it rests here.
    rests: Time,
    /// Whether somebody has asked for it since it was here last.
    wanted: bool,
    /// Whether this process has asked for it.
    asked: bool,
}

impl PrivilegeBased {
    pub(super) fn new(grade: Grade) -> Self {
        let (rests, numbered) = (Time::NEVER, NumberedBatches::default());
        Self { grade, numbered, held: None, rests, wanted: false, asked: false }
    }

    /// The member after this one in the ring.
    fn next_in_ring(ordering: &OrderingBase) -> Option<Pid> {
        let rank = ordering.view.rank(ordering.set.me)?;
        let members = &ordering.view.members;
        let next = members[(rank + 1) % members.len()].pid;
        (next != ordering.set.me).then_some(next)
    }

    /// Broadcasts what there is, and passes the token on, or lets it rest.
    fn use_token(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        let Some((mut next, mut idle)) = self.held else { return };
        if !ordering.is_open() {
            return;
        }
        // [TO 4:1] the holder broadcasts with the token's numbers, so many at most
        let mut left = ordering.set.burst;
        while ordering.next_len().is_some_and(|len| len <= left) {
            let Some(run) = ordering.next_unsent() else { break };
            left -= run.len();
            ordering.cast_run(self.grade, next, ordering.set.me, run, out);
            (next, idle) = (next.saturating_add(1), 0);
        }
        self.held = Some((next, idle));
        let Some(to) = Self::next_in_ring(ordering) else {
            // Alone: it continues by itself.
            self.rests = if ordering.unsent() > 0 { ordering.now } else { Time::NEVER };
            return;
        };
        let round = ordering.view.members.len() as u32;
        if idle >= round && !self.wanted && self.rests == Time::NEVER {
            self.rests = ordering.now + ordering.set.rest;
        }
        if idle >= round && !self.wanted && ordering.now < self.rests {
            return;
        }
        // [TO 4:2] passed to the next of the ring
        let idle = if self.wanted { 0 } else { idle.saturating_add(1) };
        (self.held, self.rests, self.wanted, self.asked) = (None, Time::NEVER, false, false);
        out.ask(GroupcastOutput::To(to, OrderingMessage::Token { next, idle }));
    }
}

impl Scheme for PrivilegeBased {
    // The first member makes the token of a view.
    fn begin(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        *self = Self::new(self.grade);
        if ordering.is_sequencer() {
            self.held = Some((1, 0));
            self.use_token(ordering, out);
        }
    }

    fn send(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        if ordering.unsent() == 0 {
            return;
        }
        if self.held.is_some() {
            self.use_token(ordering, out);
        } else if !self.asked {
            // It may rest anywhere.
            self.asked = true;
            for to in ordering.view.pids().filter(|&p| p != ordering.set.me) {
                out.ask(GroupcastOutput::To(to, OrderingMessage::Hurry));
            }
        }
    }

    fn hear(
        &mut self,
        ordering: &mut OrderingBase,
        from: Pid,
        word: OrderingMessage,
        out: &mut OrderingOutbox,
    ) -> Result<(), &'static str> {
        match word {
            OrderingMessage::Token { next, idle } if self.held.is_none() => {
                (self.held, self.rests) = (Some((next, idle)), Time::NEVER);
                self.use_token(ordering, out);
                Ok(())
            }
            OrderingMessage::Hurry => {
                self.wanted = true;
                self.use_token(ordering, out);
                Ok(())
            }
            // [TO 4:3] delivered by number
            OrderingMessage::Numbered { number, sender, run } if sender == from => {
                self.numbered.take(ordering, number, (sender, run), out)
            }
            _ => Err(UNKNOWN_MESSAGE),
        }
    }

    fn settle(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        self.numbered.settle(ordering, out);
        self.held = None;
    }

    fn wake(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        self.use_token(ordering, out);
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        (self.held.is_some() && self.rests != Time::NEVER)
            .then_some((self.rests, WakeReason::Retry))
    }
}
