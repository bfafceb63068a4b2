//! The office's side of one ring.

use super::{
    ABANDONED, ANSWER_BYTES_MAX, BACKLOG_BYTES_MAX, FIRST_BYTES, Holds, NOT_SENT, OUTCOME_SHIFT,
    PIECE_BYTES, RECORD_BYTES, STALLED, Word, line_of, lines_of,
};
use amcast_core::memory::{Line, Out, RegionId, Source, Stamp};
use amcast_core::{Outcome, Pid, Time};
use std::collections::VecDeque;

/// Bytes of small answers that go before the next piece of a large one.
const TURN_BYTES: usize = PIECE_BYTES;

/// Writes answers for one front.
#[derive(Debug)]
pub(super) struct Writer {
    mailbox: Pid,
    /// The mailbox's life, once it is known to have changed: older credits are void.
    life: Option<u32>,
    ring_lines: u64,
    pub(super) written: u64,
    /// Answers of one record, and those of several, that are not written yet.
    small: VecDeque<Record>,
    large: VecDeque<Record>,
    /// Bytes of all of them, in memory.
    pub(super) backlog_bytes: usize,
    /// What is being written: a record whose first lines are in the ring.
    begun: Option<Begun>,
    /// Pieces of the first large answer that are written.
    pieces: u64,
    /// Bytes of small answers since the last piece of a large one.
    turn_bytes: usize,
    /// What is held back, since the mailbox listens to another node.
    holds: Holds,
    /// The mailbox needs no answer to a token below this.
    settled: u64,
    /// That has grown since it was looked whether the mailbox stands still.
    heard: bool,
    pub(super) dropped: u64,
    /// Since when answers wait and the mailbox has made no room.
    pub(super) stalled: Option<Time>,
}

/// An answer on its way.
#[derive(Debug)]
struct Record {
    token: u64,
    /// As in the first line: how many bytes it has, or how many are not sent, and the command's outcome.
    length: u64,
    body: Body,
}

/// The bytes of an answer: most fit into the first line, and nothing is allocated for those.
#[derive(Debug)]
enum Body {
    Line(u8, [u8; FIRST_BYTES]),
    More(Box<[u8]>),
}

impl From<&[u8]> for Body {
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
struct Begun {
    /// Of the first large answer, or else of the first small one.
    is_large: bool,
    /// Lines that are written.
    line: u64,
}

impl Record {
    fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Line(len, bytes) => &bytes[..usize::from(*len)],
            Body::More(bytes) => bytes,
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

impl Writer {
    pub(super) fn new(mailbox: Pid, ring_lines: u32) -> Self {
        Self {
            mailbox,
            life: None,
            ring_lines: u64::from(ring_lines),
            written: 0,
            small: VecDeque::new(),
            large: VecDeque::new(),
            backlog_bytes: 0,
            begun: None,
            pieces: 0,
            turn_bytes: 0,
            holds: Holds::Nothing,
            settled: 0,
            heard: false,
            dropped: 0,
            stalled: None,
        }
    }

    /// Another front has the place now.
    pub(super) fn renew(&mut self, life: u32) {
        let (mailbox, lines, dropped) = (self.mailbox, self.ring_lines as u32, self.dropped);
        *self = Self { life: Some(life), dropped, ..Self::new(mailbox, lines) };
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
            self.dropped += u64::from(self.holds == Holds::Nothing);
            return;
        }
        let length = bytes.len() as u64 | u64::from(outcome.code()) << OUTCOME_SHIFT;
        let record = if bytes.len() > ANSWER_BYTES_MAX {
            Record { token, length: length | NOT_SENT, body: Body::from(&[][..]) }
        } else {
            Record { token, length, body: bytes.into() }
        };
        self.backlog_bytes += record.memory();
        if record.is_large() { &mut self.large } else { &mut self.small }.push_back(record);
    }

    /// Forgets the answers that are not needed any more, if they are at the front: most are.
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
        self.backlog_bytes = all.map(Record::memory).sum();
    }

    fn pop(&mut self, is_large: bool) {
        let queue = if is_large { &mut self.large } else { &mut self.small };
        let record = queue.pop_front();
        self.backlog_bytes -= record.map_or(0, |r| r.memory());
        if is_large {
            self.pieces = 0;
        }
    }

    /// Notes whether the mailbox stands still; forgets what waits for one that has for too long.
    /// What it may have read a part of stays whole.
    pub(super) fn watch(&mut self, now: Time, wrote: bool) {
        let moved = std::mem::take(&mut self.heard) || wrote;
        let waits = self.backlog() > 0 && !moved;
        self.stalled = if waits { self.stalled.or(Some(now)) } else { None };
        if self.stalled.is_some_and(|since| since + ABANDONED <= now) && self.backlog() > 1 {
            let before = self.backlog();
            let (small, large) = match self.begun {
                Some(Begun { is_large: true, .. }) => (0, 1),
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

    /// Whether answers wait for a mailbox that may make room at any moment.
    pub(super) fn is_eager(&self, now: Time) -> bool {
        let waits = match self.holds {
            Holds::Nothing => self.backlog() > 0,
            Holds::Large => !self.small.is_empty(),
            Holds::All => false,
        };
        waits && self.stalled.is_none_or(|since| since + STALLED > now)
    }

    /// How many lines the mailbox has read, as its credit line says to an office of life `epoch`;
    /// none before it has said anything to that life.
    pub(super) fn read_by_mailbox(&self, credit: &Line, epoch: u32) -> Option<u64> {
        let stamp = credit.stamp();
        let word = credit.word(Word::Read as usize);
        let current = self.life.is_none_or(|life| stamp.epoch() == life);
        if stamp == Stamp::default() || !current || (word >> 32) as u32 != epoch {
            return None;
        }
        // The line has the low half of the count; the rest follows from what was written. A mailbox
        // that says that it has read more is not believed.
        self.written.checked_sub(u64::from((self.written as u32).wrapping_sub(word as u32)))
    }

    /// Writes as much as the ring takes and the mailbox wants. Says whether it wrote anything.
    pub(super) fn pump(
        &mut self,
        ring: RegionId,
        epoch: u32,
        credit: &Line,
        outs: &mut Vec<Out>,
    ) -> bool {
        let first = self.written;
        if self.backlog() == 0 {
            return false;
        }
        let Some(read) = self.read_by_mailbox(credit, epoch) else { return false };
        self.holds = Holds::of(credit.word(Word::Holds as usize));
        let settled = credit.word(Word::Settled as usize);
        self.heard |= std::mem::replace(&mut self.settled, settled) != settled;
        self.settle();
        let limit = read + self.ring_lines;
        while self.written < limit {
            let Some(Begun { is_large, line }) = self.begun.or_else(|| self.choose()) else {
                break;
            };
            let queue = if is_large { &self.large } else { &self.small };
            let record = queue.front().expect("it was chosen or begun");
            let piece = if is_large { self.pieces } else { 0 };
            let bytes = record.piece(piece);
            let head = line_of(record.token, record.length | piece << 32, bytes, line);
            outs.push(Out::Write {
                to: self.mailbox,
                region: ring,
                at: (self.written % self.ring_lines) as u32,
                source: Source::line(head, Stamp::new(epoch, self.written / self.ring_lines)),
                ticket: None,
                bell: true,
            });
            self.written += 1;
            let whole = line + 1 == lines_of(bytes.len());
            self.begun = (!whole).then_some(Begun { is_large, line: line + 1 });
            if whole {
                self.wrote_record(is_large, bytes.len());
            }
        }
        self.written > first
    }

    /// Which record is written next: small answers first, now and then a piece of a large one.
    fn choose(&self) -> Option<Begun> {
        let is_large = match (self.small.is_empty(), self.large.is_empty()) {
            _ if self.holds == Holds::All => return None,
            (true, true) => return None,
            (true, false) if self.holds == Holds::Large => return None,
            (false, _) if self.holds == Holds::Large => false,
            (true, false) => true,
            (false, true) => false,
            (false, false) => self.turn_bytes >= TURN_BYTES,
        };
        Some(Begun { is_large, line: 0 })
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
