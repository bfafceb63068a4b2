//! Proposals of one that does not reach the coordinator of a ring, by way of an acceptor that reaches both.
//!
//! The acceptor passes them on, and tells their proposer what of them is decided: the coordinator's word of
//! that is on the broken way. Who proposed what is in the table of every acceptor.

use super::message::RingMessage;
use super::process::MultiRing;
use super::proposer::Route;
use super::ring::{Ring, RingContext};
use super::shared_bytes::SharedBytes;
use super::topology::RingId;
use super::value::{RingBallot, proposals};
use amcast_core::Pid;

/// What was passed on for a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ForwardedProposals {
    /// The life and number of the last of its proposals.
    last: (u32, u64),
    /// Up to which it was told that they are decided.
    told: (u32, u64),
}

impl MultiRing {
    /// Sends proposals to the coordinators.
    pub(super) fn send_proposals(&mut self) {
        for id in self.ring_ids() {
            let proposer = &mut self.proposers[usize::from(id)];
            // Who votes sees for itself what is decided, whether or not it hears the coordinator.
            let decided = self.rings[usize::from(id)].as_ref().and_then(|r| r.decided_of(self.me));
            if let Some((_, upto)) =
                decided.filter(|(incarnation, _)| *incarnation == self.incarnation)
            {
                proposer.on_decided(upto, self.now);
            }
            proposer.try_next_forwarder(self.now, self.config.suspect);
            let way = (self.me, id, self.route(id));
            self.proposers[usize::from(id)].send(
                self.now,
                way,
                self.config.suspect,
                &mut self.outputs.messages,
            );
        }
    }

    /// Whom to send proposals for a ring to.
    fn route(&self, id: RingId) -> Route {
        let ballot =
            self.rings[usize::from(id)].as_ref().map_or(RingBallot::NONE, |r| r.current.ballot);
        let acceptors = &self.config.rings[usize::from(id)].acceptors;
        // With one that shows this process no signs of life there is no way to tell.
        let reached = |p| p == self.me || self.reaches(p) || !self.neighbours.contains(&p);
        let forwarders = |to| self.forwarders(id, to);
        let when = (self.now, self.config.suspect);
        self.proposers[usize::from(id)].route(ballot, acceptors, (reached, forwarders), when)
    }

    /// Whom to tell what the coordinator of a ring should hear: it, or another acceptor, who tells it.
    pub(super) fn target(&self, id: RingId) -> Pid {
        let (Route::Direct(to) | Route::Via(to)) = self.route(id);
        match to == self.me || self.reaches(to) {
            true => to,
            false => self.forwarders(id, to).first().copied().unwrap_or(to),
        }
    }
}

impl Ring {
    /// Proposals of one that does not reach the coordinator, or that another passes on for it.
    pub(super) fn on_forwarded_propose(
        &mut self,
        from: Pid,
        sender: Pid,
        bytes: SharedBytes,
        cx: &mut RingContext<'_>,
    ) {
        if self.coordinates() || from != sender {
            return self.on_propose(sender, &bytes, cx);
        }
        let coordinator = self.coordinator_pid().filter(|&to| to != sender && to != cx.me);
        let (Some(to), Some(_)) = (coordinator, self.acceptor.index) else { return };
        if let Some(last) = proposals(&bytes).last() {
            let forwarded = self.forwarded.entry(sender).or_default();
            forwarded.last = forwarded.last.max((last.incarnation, last.number));
            cx.send(to, RingMessage::ForwardedPropose { ring: self.id, sender, proposals: bytes });
        }
    }

    /// Tells those for whom it passed something on what of theirs is decided.
    pub(super) fn report_forwarded(&mut self, cx: &mut RingContext<'_>) {
        let Self { id: ring, proposals, forwarded, .. } = self;
        forwarded.retain(|&p, forwarded| {
            let decided = proposals.table[p.index()];
            if decided > forwarded.told {
                let (incarnation, upto) = decided;
                forwarded.told = decided;
                cx.send(p, RingMessage::ProposalsDecided { ring: *ring, incarnation, upto });
            }
            decided < forwarded.last
        });
    }
}
