//! The reader's side of one ring.

use super::{
    ANNOUNCE_AGAIN, ANSWER_BYTES_MAX, HEAD_WORDS, NOT_SENT, OUTCOME_SHIFT, Oversize, PIECE_BYTES,
    RingReply, outcome_of, unpack,
};
use crate::clock;
use amcast_core::memory::{CacheLine, LINE_WORDS, LineStamp};
use amcast_core::{Outcome, ServiceAnswer, Time};
use std::borrow::Cow;

/// Reads what one writer writes.
#[derive(Debug, Default)]
pub(super) struct RingReader {
    /// The life of the writer that writes; none before there was one.
    pub(super) epoch: Option<u32>,
    read: u64,
    /// Lines read at the last message to the writer; none before the first.
    pub(super) told: Option<u64>,
    /// The time of the message that it may begin.
    announced: Time,
    /// The record whose first lines were read.
    begun: Option<ReadRecord>,
    /// The bytes of a small answer.
    small: Vec<u8>,
    /// A large answer, of which some pieces were read.
    large: Option<LargeReply>,
    /// Answers to tokens below this are of no interest.
    settled: u64,
}

/// A record of which lines are still to come.
#[derive(Clone, Copy, Debug)]
struct ReadRecord {
    token: u64,
    outcome: Outcome,
    what: ReplyRecordKind,
    /// Bytes that are still to come.
    left: usize,
}

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReplyRecordKind {
    /// A whole answer.
    Small,
    /// A piece of the large answer.
    Piece,
    /// Nothing of interest.
    Past,
}

#[derive(Debug)]
struct LargeReply {
    token: u64,
    len: usize,
    bytes: Vec<u8>,
}

/// The receiver of arrived answers, each with its token.
pub(super) type OnRingReply<'a> = &'a mut dyn FnMut(u64, RingReply<'_>);

impl RingReader {
    /// A writer of the incarnation `epoch` writes from now on, from the first line: it waits for
    /// the message that no line of the one before is read any more.
    pub(super) fn renew(&mut self, epoch: u32) {
        *self = Self { epoch: Some(epoch), settled: self.settled, ..Self::default() };
    }

    /// While nothing has arrived: repeats to the writer now and then that it may begin. It may have
    /// been out of reach for a moment, and waits.
    pub(super) fn announce_again(&mut self) {
        if self.read > 0 || self.epoch.is_none() {
            return;
        }
        let now = clock::now();
        if self.told.is_none() || self.announced + ANNOUNCE_AGAIN <= now {
            (self.told, self.announced) = (None, now);
        }
    }

    /// Nobody waits for answers to tokens below `below` any more.
    pub(super) fn settle(&mut self, below: u64) {
        self.settled = below;
        if self.large.as_ref().is_some_and(|large| large.token < below) {
            self.large = None;
        }
    }

    /// Reads what there is; gives it to `give`.
    pub(super) fn poll(&mut self, ring: &[CacheLine], give: OnRingReply<'_>) -> bool {
        let Some(epoch) = self.epoch else { return false };
        let n = ring.len() as u64;
        let from = self.read;
        loop {
            let line = &ring[(self.read % n) as usize];
            if line.stamp() != LineStamp::new(epoch, self.read / n) {
                return self.read > from;
            }
            self.take(&line.words(), give);
            self.read += 1;
            // A bounded share of each round: other rings have their turn.
            if self.read - from == n {
                return true;
            }
        }
    }

    fn take(&mut self, words: &[u64; LINE_WORDS], give: OnRingReply<'_>) {
        let (begun, body) = match self.begun.take() {
            Some(begun) => (begun, &words[..]),
            None => {
                let (token, outcome) = (words[0], outcome_of(words[1]));
                let length = words[1] & ((1 << OUTCOME_SHIFT) - 1);
                if words[1] & NOT_SENT != 0 {
                    let most = ANSWER_BYTES_MAX as u64;
                    return give(
                        token,
                        RingReply::NotSent(Oversize { outcome, bytes: length, most }),
                    );
                }
                (self.begin(token, outcome, length), &words[HEAD_WORDS..])
            }
        };
        let now = begun.left.min(body.len() * 8);
        match (begun.what, &mut self.large) {
            (ReplyRecordKind::Small, _) => unpack(body, now, &mut self.small),
            (ReplyRecordKind::Piece, Some(large)) if large.token == begun.token => {
                unpack(body, now, &mut large.bytes);
            }
            _ => {}
        }
        let left = begun.left - now;
        if left > 0 {
            self.begun = Some(ReadRecord { left, ..begun });
        } else {
            self.finish(begun, give);
        }
    }

    /// The first line of a record.
    fn begin(&mut self, token: u64, outcome: Outcome, length: u64) -> ReadRecord {
        // No writer writes more: a longer one is not believed.
        let len = (length as u32 as usize).min(ANSWER_BYTES_MAX);
        let from = (length >> 32) as usize * PIECE_BYTES;
        let left = len.saturating_sub(from).min(PIECE_BYTES);
        if len <= PIECE_BYTES {
            self.small.clear();
            return ReadRecord { token, outcome, what: ReplyRecordKind::Small, left };
        }
        if from == 0 && token >= self.settled {
            self.large = Some(LargeReply { token, len, bytes: Vec::with_capacity(len) });
        }
        let goes_on = |large: &LargeReply| large.token == token && large.bytes.len() == from;
        let what = if self.large.as_ref().is_some_and(goes_on) {
            ReplyRecordKind::Piece
        } else {
            ReplyRecordKind::Past
        };
        ReadRecord { token, outcome, what, left }
    }

    /// The last line of a record.
    fn finish(
        &mut self,
        ReadRecord { token, outcome, what, .. }: ReadRecord,
        give: OnRingReply<'_>,
    ) {
        match what {
            ReplyRecordKind::Small => {
                give(token, RingReply::Whole(ServiceAnswer::borrowed(outcome, &self.small)));
            }
            ReplyRecordKind::Piece => {
                match self.large.take_if(|l| l.token == token && l.bytes.len() == l.len) {
                    Some(whole) => {
                        let bytes = Cow::Owned(whole.bytes);
                        give(token, RingReply::Whole(ServiceAnswer { outcome, bytes }));
                    }
                    None => give(token, RingReply::Part),
                }
            }
            ReplyRecordKind::Past => {}
        }
    }

    /// The credit for the writer, if there is one and it is due: before it writes anything, a
    /// quarter of the ring later, at rest, or if there is more to report.
    pub(super) fn credit(&mut self, ring_lines: u64, at_rest: bool, more: bool) -> Option<u64> {
        let due =
            |told| more || self.read > told && (self.read - told >= ring_lines / 4 || at_rest);
        let epoch = self.epoch.filter(|_| self.told.is_none_or(due))?;
        self.told = Some(self.read);
        Some(u64::from(epoch) << 32 | u64::from(self.read as u32))
    }
}
