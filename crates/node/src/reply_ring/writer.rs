//! The writer's side of one ring.

use super::{
    ABANDONED, ANSWER_BYTES_MAX, BACKLOG_BYTES_MAX, CreditWord, FIRST_BYTES, HeldBack, NOT_SENT,
    OUTCOME_SHIFT, PIECE_BYTES, RECORD_BYTES, STALLED, line_of, lines_of,
};
use amcast_core::memory::{CacheLine, LineStamp, MemoryOutput, RegionId, WriteSource};
use amcast_core::{Outcome, Pid, Time};
use std::collections::VecDeque;

/// Bytes of small answers that go before the next piece of a large one.
const TURN_BYTES: usize = PIECE_BYTES;

/// Writes answers for one gateway.
#[derive(Debug)]
pub(super) struct RingWriter {
    replies: Pid,
    /// The reader's life, once it is known to have changed: older credits are void.
    life: Option<u32>,
    ring_lines: u64,
    pub(super) written: u64,
    /// Answers of one record, and those of several, that are not written yet.
    small: VecDeque<ReplyRecord>,
    large: VecDeque<ReplyRecord>,
    /// Bytes of all of them, in memory.
    pub(super) backlog_bytes: usize,
    /// The record being written, whose first lines are in the ring.
    begun: Option<PartialRecord>,
    /// Pieces of the first large answer that are written.
    pieces: u64,
    /// Bytes of small answers since the last piece of a large one.
    turn_bytes: usize,
    /// The answers that are held back, since the reader listens to another node.
    holds: HeldBack,
    /// The reader needs no answer to a token below this.
    settled: u64,
    /// Whether that has grown since the last check of the reader.
    heard: bool,
    pub(super) dropped: u64,
    /// Since when answers wait and the reader has made no room.
    pub(super) stalled: Option<Time>,
}

/// An answer on its way.
#[derive(Debug)]
struct ReplyRecord {
    token: u64,
    /// As in the first line: how many bytes it has, or how many are not sent, and the command's outcome.
    length: u64,
    body: RingRecordBody,
}

/// The bytes of an answer: most fit into the first line, and nothing is allocated for those.
#[derive(Debug)]
enum RingRecordBody {
    Line(u8, [u8; FIRST_BYTES]),
    More(Box<[u8]>),
}

impl From<&[u8]> for RingRecordBody {
    fn from(bytes: &[u8]) -> Self {
        let mut line = [0; FIRST_BYTES];
        match line.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Self::Line(bytes.len() as u8, line)
            }
            None => Self::More(bytes.into()),
        }
    }
}

/// A record that is being written.
#[derive(Clone, Copy, Debug)]
struct PartialRecord {
    /// Of the first large answer, or else of the first small one.
    is_large: bool,
    /// Lines that are written.
    line: u64,
}

impl ReplyRecord {
    fn bytes(&self) -> &[u8] {
        match &self.body {
            RingRecordBody::Line(len, bytes) => &bytes[..usize::from(*len)],
            RingRecordBody::More(bytes) => bytes,
        }
    }

    fn memory(&self) -> usize {
        self.bytes().len() + RECORD_BYTES
    }

    fn is_large(&self) -> bool {
        self.bytes().len() > PIECE_BYTES
    }

    /// The bytes of a piece.
    fn piece(&self, piece: u64) -> &[u8] {
        let from = piece as usize * PIECE_BYTES;
        let bytes = self.bytes();
        &bytes[from..bytes.len().min(from + PIECE_BYTES)]
    }
}

impl RingWriter {
    pub(super) fn new(replies: Pid, ring_lines: u32) -> Self {
        Self {
            replies,
            life: None,
            ring_lines: u64::from(ring_lines),
            written: 0,
            small: VecDeque::new(),
            large: VecDeque::new(),
            backlog_bytes: 0,
            begun: None,
            pieces: 0,
            turn_bytes: 0,
            holds: HeldBack::Nothing,
            settled: 0,
            heard: false,
            dropped: 0,
            stalled: None,
        }
    }

    /// Another gateway has the place now.
    pub(super) fn renew(&mut self, life: u32) {
        let replies = self.replies;
        let lines = self.ring_lines as u32;
        let dropped = self.dropped;
        *self = Self { life: Some(life), dropped, ..Self::new(replies, lines) };
    }

    /// Answers that wait.
    pub(super) fn backlog(&self) -> usize {
        self.small.len() + self.large.len()
    }

    pub(super) fn push(&mut self, token: u64, outcome: Outcome, bytes: &[u8]) {
        if token < self.settled {
            return;
        }
        if self.backlog_bytes >= BACKLOG_BYTES_MAX {
            self.sweep();
        }
        if self.backlog_bytes >= BACKLOG_BYTES_MAX {
            self.dropped += u64::from(self.holds == HeldBack::Nothing);
            return;
        }
        let length = bytes.len() as u64 | u64::from(outcome.code()) << OUTCOME_SHIFT;
        let record = if bytes.len() > ANSWER_BYTES_MAX {
            ReplyRecord { token, length: length | NOT_SENT, body: RingRecordBody::from(&[][..]) }
        } else {
            ReplyRecord { token, length, body: bytes.into() }
        };
        self.backlog_bytes += record.memory();
        if record.is_large() { &mut self.large } else { &mut self.small }.push_back(record);
    }

    /// Forgets the answers that are not needed any more, if they are at the gateway: most are.
    fn settle(&mut self) {
        let (begun, settled) = (self.begun, self.settled);
        let busy = |is_large| begun.is_some_and(|b| b.is_large == is_large);
        while !busy(false) && self.small.front().is_some_and(|r| r.token < settled) {
            self.pop(false);
        }
        while !busy(true) && self.large.front().is_some_and(|r| r.token < settled) {
            self.pop(true);
        }
    }

    /// Forgets all answers that are not needed any more.
    fn sweep(&mut self) {
        self.settle();
        for queue in [&mut self.small, &mut self.large] {
            let first = queue.front().map(|r| r.token);
            // The first may be on its way.
            queue.retain(|r| r.token >= self.settled || Some(r.token) == first);
        }
        self.count();
    }

    fn count(&mut self) {
        let all = self.small.iter().chain(&self.large);
        self.backlog_bytes = all.map(ReplyRecord::memory).sum();
    }

    fn pop(&mut self, is_large: bool) {
        let queue = if is_large { &mut self.large } else { &mut self.small };
        let record = queue.pop_front();
        self.backlog_bytes -= record.map_or(0, |r| r.memory());
        if is_large {
            self.pieces = 0;
        }
    }

    /// Notes whether the reader has stopped reading; drops answers for one that has for too long. A
    /// record of which it may have read a part stays whole.
    pub(super) fn watch(&mut self, now: Time, wrote: bool) {
        let moved = std::mem::take(&mut self.heard) || wrote;
        let waits = self.backlog() > 0 && !moved;
        self.stalled = if waits { self.stalled.or(Some(now)) } else { None };
        if self.stalled.is_some_and(|since| since + ABANDONED <= now) && self.backlog() > 1 {
            let before = self.backlog();
            let (small, large) = match self.begun {
                Some(PartialRecord { is_large: true, .. }) => (0, 1),
                _ => (1, 0),
            };
            self.small.truncate(small);
            self.large.truncate(large);
            if large == 0 {
                self.pieces = 0;
            }
            self.dropped += (before - self.backlog()) as u64;
            self.small.shrink_to_fit();
            self.count();
        }
    }

    /// Whether answers wait for a reader that may make room at any moment.
    pub(super) fn is_eager(&self, now: Time) -> bool {
        let waits = match self.holds {
            HeldBack::Nothing => self.backlog() > 0,
            HeldBack::LargeReply => !self.small.is_empty(),
            HeldBack::All => false,
        };
        waits && self.stalled.is_none_or(|since| since + STALLED > now)
    }

    /// How many lines the reader has read, as its credit line says to a writer of life `epoch`;
    /// none before it has said anything to that life.
    pub(super) fn read_by_mailbox(&self, credit: &CacheLine, epoch: u32) -> Option<u64> {
        let stamp = credit.stamp();
        let word = credit.word(CreditWord::Read as usize);
        let current = self.life.is_none_or(|life| stamp.epoch() == life);
        if stamp == LineStamp::default() || !current || (word >> 32) as u32 != epoch {
            return None;
        }
        // The line has the low half of the count; the rest follows from what was written. A reader
        // that says that it has read more is not believed.
        self.written.checked_sub(u64::from((self.written as u32).wrapping_sub(word as u32)))
    }

    /// Writes as much as the ring takes and the reader wants. Says whether it wrote anything.
    pub(super) fn pump(
        &mut self,
        ring: RegionId,
        epoch: u32,
        credit: &CacheLine,
        outs: &mut Vec<MemoryOutput>,
    ) -> bool {
        let first = self.written;
        if self.backlog() == 0 {
            return false;
        }
        let Some(read) = self.read_by_mailbox(credit, epoch) else { return false };
        self.holds = HeldBack::of(credit.word(CreditWord::HeldBack as usize));
        let settled = credit.word(CreditWord::Settled as usize);
        self.heard |= std::mem::replace(&mut self.settled, settled) != settled;
        self.settle();
        let limit = read + self.ring_lines;
        while self.written < limit {
            let Some(PartialRecord { is_large, line }) = self.begun.or_else(|| self.choose())
            else {
                break;
            };
            let queue = if is_large { &self.large } else { &self.small };
            let record = queue.front().expect("it was chosen or begun");
            let piece = if is_large { self.pieces } else { 0 };
            let bytes = record.piece(piece);
            let head = line_of(record.token, record.length | piece << 32, bytes, line);
            outs.push(MemoryOutput::Write {
                to: self.replies,
                region: ring,
                at: (self.written % self.ring_lines) as u32,
                source: WriteSource::line(
                    head,
                    LineStamp::new(epoch, self.written / self.ring_lines),
                ),
                ticket: None,
                bell: true,
            });
            self.written += 1;
            let whole = line + 1 == lines_of(bytes.len());
            self.begun = (!whole).then_some(PartialRecord { is_large, line: line + 1 });
            if whole {
                self.wrote_record(is_large, bytes.len());
            }
        }
        self.written > first
    }

    /// Which record is written next: small answers first, now and then a piece of a large one.
    fn choose(&self) -> Option<PartialRecord> {
        let is_large = match (self.small.is_empty(), self.large.is_empty()) {
            _ if self.holds == HeldBack::All => return None,
            (true, true) => return None,
            (true, false) if self.holds == HeldBack::LargeReply => return None,
            (false, _) if self.holds == HeldBack::LargeReply => false,
            (true, false) => true,
            (false, true) => false,
            (false, false) => self.turn_bytes >= TURN_BYTES,
        };
        Some(PartialRecord { is_large, line: 0 })
    }

    fn wrote_record(&mut self, is_large: bool, bytes: usize) {
        if !is_large {
            self.turn_bytes = self.turn_bytes.saturating_add(bytes + RECORD_BYTES);
            return self.pop(false);
        }
        self.turn_bytes = 0;
        self.pieces += 1;
        let len = self.large.front().map_or(0, |r| r.bytes().len());
        if self.pieces as usize * PIECE_BYTES >= len {
            self.pop(true);
        }
    }
}
