//! The multicasts of this process to one ring, until they are decided.

use super::value::{Ballot, Proposal};
use super::word::Word;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::{MsgId, Pid, Span, Submission, Time};

/// What this process has to propose to a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposer {
    /// In order; numbered without gaps.
    pending: VecDeque<Proposal>,
    bytes: usize,
    /// The number of the last proposal of this life.
    last: u64,
    /// How many of the pending ones the coordinator was sent.
    sent: usize,
    /// Whom they were sent to.
    to: Option<Pid>,
    /// When something was sent, or got through, last.
    moved_at: Time,
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
        self.pending.iter().map(|proposal| proposal.msg)
    }

    pub(super) fn submit(&mut self, me: Pid, life: u32, submission: &Submission<'_>) {
        self.last += 1;
        let Submission { seq, dst, payload } = *submission;
        self.bytes += payload.len();
        self.pending.push_back(Proposal {
            msg: MsgId { sender: me, seq },
            life,
            number: self.last,
            dst,
            payload: Arc::from(payload),
        });
    }

    /// Those up to this number are decided.
    pub(super) fn done(&mut self, upto: u64, now: Time) {
        while self.pending.front().is_some_and(|proposal| proposal.number <= upto) {
            if let Some(proposal) = self.pending.pop_front() {
                self.bytes -= proposal.payload.len();
            }
            self.sent = self.sent.saturating_sub(1);
            self.moved_at = now;
        }
    }

    /// What was on the way to `pid` may be lost.
    pub(super) fn reconnected(&mut self, pid: Pid) {
        if self.to == Some(pid) {
            self.sent = 0;
        }
    }

    /// Whom to send to: the coordinator, as far as it is known, or an acceptor, who knows more.
    pub(super) fn target(&self, coordinator: Option<Pid>, acceptors: &[Pid]) -> Pid {
        let known = coordinator.or(self.told.coordinator());
        let stale = self.turn > 0 && coordinator.is_none();
        known.filter(|_| !stale).unwrap_or(acceptors[self.turn % acceptors.len()])
    }

    /// Sends what was not sent; all again to another coordinator, or after a while without progress.
    pub(super) fn send(
        &mut self,
        now: Time,
        (ring, target): (u16, Pid),
        (retry, pass_bytes): (Span, usize),
        post: &mut Vec<(Pid, Word)>,
    ) {
        if self.to != Some(target) {
            (self.to, self.sent) = (Some(target), 0);
        }
        if self.sent > 0 && now.since(self.moved_at) >= retry {
            (self.sent, self.turn) = (0, self.turn + 1);
        }
        while self.sent < self.pending.len() {
            let (mut bytes, mut proposals) = (0, Vec::new());
            for proposal in self.pending.iter().skip(self.sent) {
                if bytes >= pass_bytes {
                    break;
                }
                bytes += proposal.size();
                proposals.push(proposal.clone());
            }
            self.sent += proposals.len();
            self.moved_at = now;
            post.push((target, Word::Propose { ring, proposals }));
        }
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
