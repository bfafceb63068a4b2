//! The proposer: the multicasts of this process to one ring, until they are decided, and the route to its
//! coordinator.

use super::message::RingMessage;
use super::shared_bytes::SharedBytes;
use super::topology::RingId;
use super::value::{RingBallot, RingProposal};
use crate::layers::routing::{Route, RouteSelection};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::{MsgId, Pid, Span, Submission, Time};
use core::mem;

/// A proposal that is not decided.
#[derive(Clone, Copy, Debug)]
struct PendingProposal {
    msg: MsgId,
    number: u64,
    payload_bytes: usize,
}

/// Encoded proposals that follow each other.
#[derive(Clone, Debug)]
struct ProposalBlock {
    bytes: SharedBytes,
    /// The number of the last one.
    last: u64,
}

/// The proposals of this process to a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposer {
    /// In order; numbered without gaps.
    pending: VecDeque<PendingProposal>,
    /// Payload bytes of these.
    bytes: usize,
    /// Those that are complete for sending, in order. Some of the first block may be decided.
    blocks: VecDeque<ProposalBlock>,
    /// Those behind that, which will be the next block.
    open: Vec<u8>,
    /// The number of the last proposal of this incarnation.
    last: u64,
    /// How many of the blocks the target was sent.
    sent: usize,
    /// The process that they were sent to.
    target: Option<Pid>,
    /// When a proposal was sent or decided last.
    active_at: Time,
    /// When a proposal was decided last, or else was sent first.
    progress_at: Time,
    /// The acceptor to try where no coordinator is known.
    turn: usize,
    /// The route to the coordinator.
    route: RouteSelection,
    /// The highest ballot that this process has learned of.
    pub(super) told_ballot: RingBallot,
}

impl Proposer {
    /// How many proposals are not decided, and their bytes.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.pending.len(), self.bytes)
    }

    /// The messages that are not decided.
    pub(super) fn messages(&self) -> impl Iterator<Item = MsgId> + '_ {
        self.pending.iter().map(|pending| pending.msg)
    }

    /// `block_bytes` is about how much is sent in one message.
    pub(super) fn submit(
        &mut self,
        (me, incarnation): (Pid, u32),
        submission: &Submission<'_>,
        block_bytes: usize,
    ) {
        self.last += 1;
        let Submission { seq, dst, payload } = *submission;
        let (msg, number) = (MsgId { sender: me, seq }, self.last);
        self.bytes += payload.len();
        self.pending.push_back(PendingProposal { msg, number, payload_bytes: payload.len() });
        RingProposal { msg, incarnation, number, dst, payload }.encode(&mut self.open);
        if self.open.len() >= block_bytes {
            self.close();
        }
    }

    /// Completes the open block.
    fn close(&mut self) {
        if !self.open.is_empty() {
            let bytes = SharedBytes::from(mem::take(&mut self.open));
            self.blocks.push_back(ProposalBlock { bytes, last: self.last });
        }
    }

    /// Proposals up to this number are decided.
    pub(super) fn on_decided(&mut self, upto: u64, now: Time) {
        while let Some(pending) = self.pending.front().filter(|p| p.number <= upto) {
            self.bytes -= pending.payload_bytes;
            (self.active_at, self.progress_at) = (now, now);
            self.pending.pop_front();
        }
        while self.blocks.front().is_some_and(|block| block.last <= upto) {
            self.blocks.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
    }

    /// Messages that were sent to `pid` may be lost.
    pub(super) fn reconnected(&mut self, pid: Pid) {
        if self.target == Some(pid) {
            self.sent = 0;
        }
    }

    /// Where to send proposals: to the coordinator, as far as it is known, or to an acceptor, which knows
    /// more. `ballot` is the one that this process follows; it may have learned of a later one.
    ///
    /// Once no proposal is decided for `patience`, a coordinator that is not `reached` is sent no more: one
    /// of the `forwarders` to it forwards proposals.
    pub(super) fn route(
        &self,
        ballot: RingBallot,
        acceptors: &[Pid],
        (reached, forwarders): (impl Fn(Pid) -> bool, impl Fn(Pid) -> Vec<Pid>),
        (now, patience): (Time, Span),
    ) -> Route {
        let known = ballot.max(self.told_ballot).coordinator();
        let stale = self.turn > 0 && ballot == RingBallot::NONE;
        let Some(to) = known.filter(|_| !stale) else {
            return Route::Direct(acceptors[self.turn % acceptors.len()]);
        };
        let stuck = self.sent > 0 && now.since(self.progress_at) >= patience;
        self.route.choose(to, reached(to), stuck, forwarders)
    }

    /// Continues with the next forwarder where no proposal is decided via the last one.
    pub(super) fn try_next_forwarder(&mut self, now: Time, patience: Span) {
        let stuck = self.sent > 0 && now.since(self.progress_at) >= patience;
        if stuck && self.route.advance() {
            self.sent = 0;
        }
    }

    /// Sends the unsent proposals; sends all again to another target, or after a while without progress.
    pub(super) fn send(
        &mut self,
        now: Time,
        me: Pid,
        ring: RingId,
        route: Route,
        retry: Span,
        outgoing: &mut Vec<(Pid, RingMessage)>,
    ) {
        self.close();
        let (Route::Direct(target) | Route::Via(target)) = route;
        self.route.take(route);
        if self.target != Some(target) {
            (self.target, self.sent) = (Some(target), 0);
        }
        if self.sent > 0 && now.since(self.active_at) >= retry {
            (self.sent, self.turn) = (0, self.turn + 1);
        }
        if self.sent == 0 {
            self.progress_at = now;
        }
        for ProposalBlock { bytes, .. } in self.blocks.range(self.sent..) {
            self.active_at = now;
            let proposals = bytes.clone();
            let message = match route {
                Route::Direct(_) => RingMessage::Propose { ring, proposals },
                Route::Via(_) => RingMessage::ForwardedPropose { ring, sender: me, proposals },
            };
            outgoing.push((target, message));
        }
        self.sent = self.blocks.len();
    }

    /// The coordinator is that of `ballot`: the search for it is over.
    pub(super) fn learn_ballot(&mut self, ballot: RingBallot) {
        if ballot > self.told_ballot {
            (self.told_ballot, self.turn) = (ballot, 0);
        }
    }

    /// When to send again.
    pub(super) fn retry_at(&self, retry: Span) -> Time {
        if self.pending.is_empty() { Time::NEVER } else { self.active_at + retry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::{Gid, GroupSet};

    /// The routes of proposals, one every millisecond for so many, of which none is decided.
    fn routes(proposer: &mut Proposer, from: u64, millis: u64, reached: bool) -> Vec<Route> {
        let patience = Span::millis(10);
        let (mut routes, mut outgoing) = (Vec::new(), Vec::new());
        for t in from..from + millis {
            let now = Time::ZERO + Span::millis(t);
            let submission =
                Submission { seq: t, dst: GroupSet::one(Gid(0)), payload: b"a proposal" };
            proposer.submit((Pid(4), 0), &submission, 64);
            proposer.try_next_forwarder(now, patience);
            let forwarders = |_| [Pid(2), Pid(3)].into();
            let (ballot, links) = (RingBallot::new(1, Pid(0)), (|_| reached, forwarders));
            let route = proposer.route(ballot, &[Pid(0)], links, (now, patience));
            proposer.send(now, Pid(4), 0, route, patience, &mut outgoing);
            if routes.last() != Some(&route) {
                routes.push(route);
            }
        }
        routes
    }

    #[test]
    fn a_stuck_proposer_tries_forwarders_in_turn_until_the_coordinator_is_reached() {
        let mut proposer = Proposer::default();
        let (straight, first, second) =
            (Route::Direct(Pid(0)), Route::Via(Pid(2)), Route::Via(Pid(3)));
        assert_eq!(routes(&mut proposer, 1, 25, false), [straight, first, second]);
        // The second forwarder gets them through: it stays the route.
        proposer.on_decided(20, Time::ZERO + Span::millis(26));
        assert_eq!(routes(&mut proposer, 26, 8, false), [second]);
        assert_eq!(routes(&mut proposer, 34, 30, true), [straight]);
        proposer.on_decided(50, Time::ZERO + Span::millis(63));
        assert_eq!(routes(&mut proposer, 64, 12, false), [straight, first]);
    }
}
