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
    /// A coordinator that cannot be `reached` is sent nothing more once nothing has got through for as long
    /// as `patience`: another acceptor than `me` who can be passes proposals on to it.
    pub(super) fn route(
        &self,
        ballot: Ballot,
        acceptors: &[Pid],
        (me, reached): (Pid, impl Fn(Pid) -> bool),
        (now, patience): (Time, Span),
    ) -> Route {
        let known = ballot.max(self.told).coordinator();
        let stale = self.turn > 0 && ballot == Ballot::NONE;
        let Some(to) = known.filter(|_| !stale) else {
            return Route::To(acceptors[self.turn % acceptors.len()]);
        };
        let stuck = self.sent > 0 && now.since(self.through_at) >= patience;
        let goes_by = self.to.is_some_and(|p| p != to);
        if to == me || reached(to) || !(stuck || goes_by) {
            return Route::To(to);
        }
        let able = |p: &Pid| *p != me && *p != to && reached(*p);
        let others: Vec<Pid> = acceptors.iter().copied().filter(able).collect();
        match others.is_empty() {
            true => Route::To(to),
            false => Route::By(others[self.turn % others.len()]),
        }
    }

    /// Sends what was not sent; all again to another coordinator, or after a while without progress.
    pub(super) fn send(
        &mut self,
        now: Time,
        (me, ring, route): (Pid, u16, Route),
        retry: Span,
        post: &mut Vec<(Pid, Word)>,
    ) {
        self.close();
        let (Route::To(target) | Route::By(target)) = route;
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
