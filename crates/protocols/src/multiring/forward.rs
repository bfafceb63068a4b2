//! Forwarding of proposals round a broken link: a proposer that does not reach the coordinator of a ring
//! sends them to an acceptor that reaches both.
//!
//! The forwarder also reports to the proposer which of its proposals are decided, because the coordinator's
//! report would take the broken link. Every acceptor knows it from its table of decided proposals.

use super::message::RingMessage;
use super::process::MultiRing;
use super::ring::{RingContext, RingMember};
use super::shared_bytes::SharedBytes;
use super::topology::RingId;
use super::value::{RingBallot, proposals};
use crate::layers::routing::Route;
use amcast_core::Pid;

/// The proposals that this process forwarded for another one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ForwardedProposals {
    /// The incarnation and number of the last of them.
    last: (u32, u64),
    /// The last proposal that the proposer knows to be decided.
    told: (u32, u64),
}

impl MultiRing {
    /// Sends proposals to the coordinators.
    pub(super) fn send_proposals(&mut self) {
        for id in self.ring_ids() {
            let proposer = &mut self.proposers[usize::from(id)];
            // An acceptor sees itself which of its proposals are decided, whether it hears the coordinator
            // or not.
            let decided = self.rings[usize::from(id)].as_ref().and_then(|r| r.decided_of(self.me));
            if let Some((_, upto)) =
                decided.filter(|(incarnation, _)| *incarnation == self.incarnation)
            {
                proposer.on_decided(upto, self.now);
            }
            proposer.try_next_forwarder(self.now, self.config.suspect);
            let route = self.route(id);
            self.proposers[usize::from(id)].send(
                self.now,
                self.me,
                id,
                route,
                self.config.suspect,
                &mut self.outputs.messages,
            );
        }
    }

    /// Where to send proposals for a ring.
    fn route(&self, id: RingId) -> Route {
        let ballot =
            self.rings[usize::from(id)].as_ref().map_or(RingBallot::NONE, |r| r.current.ballot);
        let acceptors = &self.config.rings[usize::from(id)].acceptors;
        // A link to a process that sends this one no heartbeats is taken to work: nothing is known of it.
        let reached = |p| p == self.me || self.reaches(p) || !self.links.neighbours().contains(&p);
        let forwarders = |to| self.forwarders(id, to);
        let when = (self.now, self.config.suspect);
        self.proposers[usize::from(id)].route(ballot, acceptors, (reached, forwarders), when)
    }

    /// Where to send a message for the coordinator of a ring: to itself, or to an acceptor that forwards
    /// it.
    pub(super) fn target(&self, id: RingId) -> Pid {
        let (Route::Direct(to) | Route::Via(to)) = self.route(id);
        match to == self.me || self.reaches(to) {
            true => to,
            false => self.forwarders(id, to).first().copied().unwrap_or(to),
        }
    }
}

impl RingMember {
    /// Proposals that the sender cannot send to the coordinator, or that a forwarder sends on.
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

    /// Reports to proposers which of the proposals that this process forwarded are decided.
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
