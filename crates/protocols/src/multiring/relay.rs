//! Proposals of one that does not reach the coordinator of a ring, by way of an acceptor that reaches both.
//!
//! The acceptor passes them on, and tells their proposer what of them is decided: the coordinator's word of
//! that is on the broken way. Who proposed what is in the table of every acceptor.

use super::bytes::Bytes;
use super::process::MultiRing;
use super::proposer::Route;
use super::ring::{Cx, Ring};
use super::rings::RingId;
use super::value::{Ballot, proposals};
use super::word::Word;
use amcast_core::Pid;

/// What was passed on for a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Relayed {
    /// The life and number of the last of its proposals.
    last: (u32, u64),
    /// Up to which it was told that they are decided.
    told: (u32, u64),
}

impl MultiRing {
    /// Sends proposals to the coordinators.
    pub(super) fn propose(&mut self) {
        for id in self.ring_ids() {
            let proposer = &mut self.proposers[usize::from(id)];
            // Who votes sees for itself what is decided, whether or not it hears the coordinator.
            let decided = self.rings[usize::from(id)].as_ref().and_then(|r| r.decided_of(self.me));
            if let Some((_, upto)) = decided.filter(|(life, _)| *life == self.life) {
                proposer.done(upto, self.now);
            }
            proposer.change_relay(self.now, self.shape.suspect);
            let way = (self.me, id, self.route(id));
            self.proposers[usize::from(id)].send(self.now, way, self.shape.suspect, &mut self.post);
        }
    }

    /// Whom to send proposals for a ring to.
    fn route(&self, id: RingId) -> Route {
        let ballot = self.rings[usize::from(id)].as_ref().map_or(Ballot::NONE, |r| r.ballot);
        let acceptors = &self.shape.rings[usize::from(id)].acceptors;
        // With one that shows this process no signs of life there is no way to tell.
        let reached = |p| p == self.me || self.reaches(p) || !self.acquaintances.contains(&p);
        let relays = |to| self.relays(id, to);
        let when = (self.now, self.shape.suspect);
        self.proposers[usize::from(id)].route(ballot, acceptors, (reached, relays), when)
    }

    /// Whom to tell what the coordinator of a ring should hear: it, or another acceptor, who tells it.
    pub(super) fn target(&self, id: RingId) -> Pid {
        let (Route::To(to) | Route::By(to)) = self.route(id);
        match to == self.me || self.reaches(to) {
            true => to,
            false => self.relays(id, to).first().copied().unwrap_or(to),
        }
    }
}

impl Ring {
    /// Proposals of one that does not reach the coordinator, or that another passes on for it.
    pub(super) fn on_relay(&mut self, from: Pid, sender: Pid, bytes: Bytes, cx: &mut Cx<'_>) {
        if self.leads() || from != sender {
            return self.on_propose(sender, &bytes, cx);
        }
        let coordinator = self.coordinator().filter(|&to| to != sender && to != cx.me);
        let (Some(to), Some(_)) = (coordinator, self.my_vote) else { return };
        if let Some(last) = proposals(&bytes).last() {
            let relayed = self.relayed.entry(sender).or_default();
            relayed.last = relayed.last.max((last.life, last.number));
            cx.say(to, Word::Relay { ring: self.id, sender, proposals: bytes });
        }
    }

    /// Tells those for whom it passed something on what of theirs is decided.
    pub(super) fn thank_relayed(&mut self, cx: &mut Cx<'_>) {
        let Self { id: ring, table, relayed, .. } = self;
        relayed.retain(|&p, relayed| {
            let decided = table[p.index()];
            if decided > relayed.told {
                let (life, upto) = decided;
                relayed.told = decided;
                cx.say(p, Word::Done { ring: *ring, life, upto });
            }
            decided < relayed.last
        });
    }
}
