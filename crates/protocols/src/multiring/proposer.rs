//! The multicasts of this process to one ring, until they are decided.

use super::bytes::Bytes;
use super::value::{Ballot, Proposal};
use super::word::Word;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::{MsgId, Pid, Span, Submission, Time};
use core::mem;

/// A proposal on its way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    msg: MsgId,
    number: u64,
    payload_bytes: usize,
}

/// Proposals one behind the other, as they travel.
#[derive(Clone, Debug)]
struct Block {
    bytes: Bytes,
    /// The number of the last one.
    last: u64,
}

/// A way to a coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// Straight to this process.
    To(Pid),
    /// By way of this one.
    By(Pid),
}

/// What this process has to propose to a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposer {
    /// In order; numbered without gaps.
    pending: VecDeque<Pending>,
    /// Payload of these.
    bytes: usize,
    /// What was sent of them, in order. Of the first one some may be decided.
    blocks: VecDeque<Block>,
    /// Those behind that, which will be the next block.
    open: Vec<u8>,
    /// The number of the last proposal of this life.
    last: u64,
    /// How many of the blocks the coordinator was sent.
    sent: usize,
    /// Whom they were sent to.
    to: Option<Pid>,
    /// When something was sent, or got through, last.
    moved_at: Time,
    /// When something got through last, or else was sent first.
    through_at: Time,
    /// Whom to try where no coordinator is known.
    turn: usize,
    /// How many were tried to pass proposals on, where they do not go straight to the coordinator.
    relays_tried: Option<usize>,
    /// The highest ballot that this process was told of.
    pub(super) told: Ballot,
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
        (me, life): (Pid, u32),
        submission: &Submission<'_>,
        block_bytes: usize,
    ) {
        self.last += 1;
        let Submission { seq, dst, payload } = *submission;
        let (msg, number) = (MsgId { sender: me, seq }, self.last);
        self.bytes += payload.len();
        self.pending.push_back(Pending { msg, number, payload_bytes: payload.len() });
        Proposal { msg, life, number, dst, payload }.encode(&mut self.open);
        if self.open.len() >= block_bytes {
            self.close();
        }
    }

    /// What was gathered is a block.
    fn close(&mut self) {
        if !self.open.is_empty() {
            let bytes = Bytes::from(mem::take(&mut self.open));
            self.blocks.push_back(Block { bytes, last: self.last });
        }
    }

    /// Those up to this number are decided.
    pub(super) fn done(&mut self, upto: u64, now: Time) {
        while let Some(pending) = self.pending.front().filter(|p| p.number <= upto) {
            self.bytes -= pending.payload_bytes;
            (self.moved_at, self.through_at) = (now, now);
            self.pending.pop_front();
        }
        while self.blocks.front().is_some_and(|block| block.last <= upto) {
            self.blocks.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
    }

    /// What was on the way to `pid` may be lost.
    pub(super) fn reconnected(&mut self, pid: Pid) {
        if self.to == Some(pid) {
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
        ballot: Ballot,
        acceptors: &[Pid],
        (reached, relays): (impl Fn(Pid) -> bool, impl Fn(Pid) -> Vec<Pid>),
        (now, patience): (Time, Span),
    ) -> Route {
        let known = ballot.max(self.told).coordinator();
        let stale = self.turn > 0 && ballot == Ballot::NONE;
        let Some(to) = known.filter(|_| !stale) else {
            return Route::To(acceptors[self.turn % acceptors.len()]);
        };
        let stuck = self.sent > 0 && now.since(self.through_at) >= patience;
        if reached(to) || !(stuck || self.relays_tried.is_some()) {
            return Route::To(to);
        }
        let relays = relays(to);
        match relays.is_empty() {
            true => Route::To(to),
            false => Route::By(relays[self.relays_tried.unwrap_or(0) % relays.len()]),
        }
    }

    /// Goes on to the next relay where nothing gets through by the last one.
    pub(super) fn change_relay(&mut self, now: Time, patience: Span) {
        if let Some(tried) = &mut self.relays_tried
            && self.sent > 0
            && now.since(self.through_at) >= patience
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
        post: &mut Vec<(Pid, Word)>,
    ) {
        self.close();
        let (Route::To(target) | Route::By(target)) = route;
        self.relays_tried = match route {
            Route::To(_) => None,
            Route::By(_) => self.relays_tried.or(Some(0)),
        };
        if self.to != Some(target) {
            (self.to, self.sent) = (Some(target), 0);
        }
        if self.sent > 0 && now.since(self.moved_at) >= retry {
            (self.sent, self.turn) = (0, self.turn + 1);
        }
        if self.sent == 0 {
            self.through_at = now;
        }
        for Block { bytes, .. } in self.blocks.range(self.sent..) {
            self.moved_at = now;
            let proposals = bytes.clone();
            let word = match route {
                Route::To(_) => Word::Propose { ring, proposals },
                Route::By(_) => Word::Relay { ring, sender: me, proposals },
            };
            post.push((target, word));
        }
        self.sent = self.blocks.len();
    }

    /// The coordinator is `ballot`'s: no need to look for it.
    pub(super) fn hint(&mut self, ballot: Ballot) {
        if ballot > self.told {
            (self.told, self.turn) = (ballot, 0);
        }
    }

    /// When to send again.
    pub(super) fn send_at(&self, retry: Span) -> Time {
        if self.pending.is_empty() { Time::NEVER } else { self.moved_at + retry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::{Gid, GroupSet};

    /// Where proposals are sent, one every millisecond for so many, of which none gets through.
    fn ways(proposer: &mut Proposer, from: u64, millis: u64, reached: bool) -> Vec<Route> {
        let patience = Span::millis(10);
        let (mut ways, mut post) = (Vec::new(), Vec::new());
        for t in from..from + millis {
            let now = Time::ZERO + Span::millis(t);
            let submission =
                Submission { seq: t, dst: GroupSet::one(Gid(0)), payload: b"a proposal" };
            proposer.submit((Pid(4), 0), &submission, 64);
            proposer.change_relay(now, patience);
            let relays = |_| [Pid(2), Pid(3)].into();
            let (ballot, ways_there) = (Ballot::new(1, Pid(0)), (|_| reached, relays));
            let route = proposer.route(ballot, &[Pid(0)], ways_there, (now, patience));
            proposer.send(now, (Pid(4), 0, route), patience, &mut post);
            if ways.last() != Some(&route) {
                ways.push(route);
            }
        }
        ways
    }

    #[test]
    fn who_gets_nothing_through_tries_relays_in_turn_until_the_coordinator_is_reached() {
        let mut proposer = Proposer::default();
        let (straight, first, second) = (Route::To(Pid(0)), Route::By(Pid(2)), Route::By(Pid(3)));
        assert_eq!(ways(&mut proposer, 1, 25, false), [straight, first, second]);
        // The second one gets them through: it stays so.
        proposer.done(20, Time::ZERO + Span::millis(26));
        assert_eq!(ways(&mut proposer, 26, 8, false), [second]);
        assert_eq!(ways(&mut proposer, 34, 30, true), [straight]);
        proposer.done(50, Time::ZERO + Span::millis(63));
        assert_eq!(ways(&mut proposer, 64, 12, false), [straight, first]);
    }
}
