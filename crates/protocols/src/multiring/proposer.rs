//! The multicasts of this process to one ring, until they are decided.

use super::message::RingMessage;
use super::shared_bytes::SharedBytes;
use super::value::{RingBallot, RingProposal};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::{MsgId, Pid, Span, Submission, Time};
use core::mem;

/// A proposal on its way.
#[derive(Clone, Copy, Debug)]
struct PendingProposal {
    msg: MsgId,
    number: u64,
    payload_bytes: usize,
}

/// Proposals one behind the other, as they travel.
#[derive(Clone, Debug)]
struct ProposalBlock {
    bytes: SharedBytes,
    /// The number of the last one.
    last: u64,
}

/// A way to a coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// Straight to this process.
    Direct(Pid),
    /// By way of this one.
    Via(Pid),
}

/// What this process has to propose to a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposer {
    /// In order; numbered without gaps.
    pending: VecDeque<PendingProposal>,
    /// Payload of these.
    bytes: usize,
    /// What was sent of them, in order. Of the first one some may be decided.
    blocks: VecDeque<ProposalBlock>,
    /// Those behind that, which will be the next block.
    open: Vec<u8>,
    /// The number of the last proposal of this life.
    last: u64,
    /// How many of the blocks the coordinator was sent.
    sent: usize,
    /// Whom they were sent to.
    target: Option<Pid>,
    /// When something was sent, or got through, last.
    active_at: Time,
    /// When something got through last, or else was sent first.
    progress_at: Time,
    /// Whom to try where no coordinator is known.
    turn: usize,
    /// How many were tried to pass proposals on, where they do not go straight to the coordinator.
    forwarders_tried: Option<usize>,
    /// The highest ballot that this process was told of.
    pub(super) told_ballot: RingBallot,
}

impl Proposer {
    /// How many are on their way, and their bytes.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.pending.len(), self.bytes)
    }

    /// The messages on their way.
    pub(super) fn messages(&self) -> impl Iterator<Item = MsgId> + '_ {
        self.pending.iter().map(|pending| pending.msg)
    }

    /// `block_bytes` is about how much travels together.
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

    /// What was gathered is a block.
    fn close(&mut self) {
        if !self.open.is_empty() {
            let bytes = SharedBytes::from(mem::take(&mut self.open));
            self.blocks.push_back(ProposalBlock { bytes, last: self.last });
        }
    }

    /// Those up to this number are decided.
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

    /// What was on the way to `pid` may be lost.
    pub(super) fn reconnected(&mut self, pid: Pid) {
        if self.target == Some(pid) {
            self.sent = 0;
        }
    }

    /// Whom to send to: the coordinator, as far as it is known, or an acceptor, who knows more. `ballot`
    /// is the one whose run this process follows; it may have been told of a later one.
    ///
    /// A coordinator that is not `reached` is sent nothing more once nothing has got through for as long
    /// as `patience`: one of the `relays` to it passes proposals on.
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
        if reached(to) || !(stuck || self.forwarders_tried.is_some()) {
            return Route::Direct(to);
        }
        let forwarders = forwarders(to);
        match forwarders.is_empty() {
            true => Route::Direct(to),
            false => Route::Via(forwarders[self.forwarders_tried.unwrap_or(0) % forwarders.len()]),
        }
    }

    /// Goes on to the next relay where nothing gets through by the last one.
    pub(super) fn try_next_forwarder(&mut self, now: Time, patience: Span) {
        if let Some(tried) = &mut self.forwarders_tried
            && self.sent > 0
            && now.since(self.progress_at) >= patience
        {
            *tried += 1;
            self.sent = 0;
        }
    }

    /// Sends what was not sent; all again to another one, or after a while without progress.
    pub(super) fn send(
        &mut self,
        now: Time,
        (me, ring, route): (Pid, u16, Route),
        retry: Span,
        outgoing: &mut Vec<(Pid, RingMessage)>,
    ) {
        self.close();
        let (Route::Direct(target) | Route::Via(target)) = route;
        self.forwarders_tried = match route {
            Route::Direct(_) => None,
            Route::Via(_) => self.forwarders_tried.or(Some(0)),
        };
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

    /// The coordinator is `ballot`'s: no need to look for it.
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

    /// Where proposals are sent, one every millisecond for so many, of which none gets through.
    fn ways(proposer: &mut Proposer, from: u64, millis: u64, reached: bool) -> Vec<Route> {
        let patience = Span::millis(10);
        let (mut ways, mut outgoing) = (Vec::new(), Vec::new());
        for t in from..from + millis {
            let now = Time::ZERO + Span::millis(t);
            let submission =
                Submission { seq: t, dst: GroupSet::one(Gid(0)), payload: b"a proposal" };
            proposer.submit((Pid(4), 0), &submission, 64);
            proposer.try_next_forwarder(now, patience);
            let forwarders = |_| [Pid(2), Pid(3)].into();
            let (ballot, ways_there) = (RingBallot::new(1, Pid(0)), (|_| reached, forwarders));
            let route = proposer.route(ballot, &[Pid(0)], ways_there, (now, patience));
            proposer.send(now, (Pid(4), 0, route), patience, &mut outgoing);
            if ways.last() != Some(&route) {
                ways.push(route);
            }
        }
        ways
    }

    #[test]
    fn who_gets_nothing_through_tries_relays_in_turn_until_the_coordinator_is_reached() {
        let mut proposer = Proposer::default();
        let (straight, first, second) =
            (Route::Direct(Pid(0)), Route::Via(Pid(2)), Route::Via(Pid(3)));
        assert_eq!(ways(&mut proposer, 1, 25, false), [straight, first, second]);
        // The second one gets them through: it stays so.
        proposer.on_decided(20, Time::ZERO + Span::millis(26));
        assert_eq!(ways(&mut proposer, 26, 8, false), [second]);
        assert_eq!(ways(&mut proposer, 34, 30, true), [straight]);
        proposer.on_decided(50, Time::ZERO + Span::millis(63));
        assert_eq!(ways(&mut proposer, 64, 12, false), [straight, first]);
    }
}
