//! A walk over the records of one segment, and the judgement on what ends it.
//!
//! A record is the log's next one if its head and its bytes fit their sums, its number is the next and
//! its life is not below the one before: then nothing that an earlier use of the file left, and nothing
//! that was cut off at an earlier start, is taken for it.
//!
//! Bytes that are not the next record are either behind the end of all records that were ever synced, or damage. Every head says
//! which records were durable when it was written; so if any head behind says that the one which is
//! missing had been durable, it was damaged; and if none does, no process learned that it was there.

use crate::disk::DiskFile;
use crate::error::Flaw;
use crate::format::record::{ALIGNED, HEAD_BYTES, RecordChecksumSeed, RecordHeader, RecordKind};
use crate::window::FileWindow;
use std::io;

/// The position of a scan: before the record `number`, at `offset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScanPosition {
    /// Where in the file the next record would begin.
    pub(crate) offset: u64,
    /// Its number.
    pub(crate) number: u64,
    /// The life that wrote the last one: no later one is below.
    pub(crate) life: u32,
    /// Whether that life ended in good order here.
    pub(crate) closed: bool,
    /// Whether the log continues in the next segment, as a turn here says.
    pub(crate) turned: bool,
}

/// A step of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScanStep {
    /// The record of this number; [`RecordScan::bytes`] has its bytes.
    Record(u64),
    /// No next record, with the flaw if there was to be one.
    Nothing(Flaw),
}

/// The bytes behind the last record of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogTail {
    /// Nothing that is known to have been begun.
    Blank,
    /// Records that were begun and never durable.
    Torn,
    /// A head from which follows that the next record had been durable.
    Proof,
    /// Nothing: the file ends before the segment does, which was never so while it was written.
    Short,
}

/// A walk over one segment.
pub(crate) struct RecordScan<'f, F> {
    window: FileWindow<'f, F>,
    seed: RecordChecksumSeed,
    /// How many bytes the segment has.
    end: u64,
    stand: ScanPosition,
    /// The records before this number were durable, by the heads behind them.
    proved: u64,
    /// The place and length of the record that was found last.
    found: (u64, usize),
}

impl<'f, F: DiskFile> RecordScan<'f, F> {
    /// A walk from `stand` on, in a segment of `end` bytes.
    pub(crate) fn new(
        file: &'f F,
        seed: RecordChecksumSeed,
        end: u64,
        stand: ScanPosition,
    ) -> Self {
        Self { window: FileWindow::new(file), seed, end, stand, proved: 0, found: (0, 0) }
    }

    /// Its position.
    pub(crate) fn stand(&self) -> ScanPosition {
        self.stand
    }

    /// The records before this number were durable, by what was found so far.
    pub(crate) fn proved(&self) -> u64 {
        self.proved
    }

    /// Where the record that was found last begins, its head included.
    pub(crate) fn found_at(&self) -> u64 {
        self.found.0 - HEAD_BYTES as u64
    }

    /// The bytes of the record that was found last.
    pub(crate) fn bytes(&mut self) -> io::Result<&[u8]> {
        self.window.look(self.found.0, self.found.1)
    }

    /// Continues to the next record.
    pub(crate) fn step(&mut self) -> io::Result<ScanStep> {
        loop {
            let at = self.stand.offset;
            let Some(head) = self.head(at)? else { return Ok(ScanStep::Nothing(Flaw::Head)) };
            if head.number != self.stand.number || head.life < self.stand.life {
                return Ok(ScanStep::Nothing(Flaw::Head));
            }
            let next = at + head.extent();
            if next > self.end {
                return Ok(ScanStep::Nothing(Flaw::Head));
            }
            if let RecordKind::Record(length) = head.kind {
                let place = at + HEAD_BYTES as u64;
                let bytes = self.window.look(place, length as usize)?;
                if bytes.len() < length as usize || crc32c::crc32c(bytes) != head.sum {
                    return Ok(ScanStep::Nothing(Flaw::Bytes));
                }
                self.found = (place, length as usize);
                self.proved = self.proved.max(head.durable);
                self.stand = ScanPosition {
                    offset: next,
                    number: head.number + 1,
                    life: head.life,
                    closed: false,
                    turned: false,
                };
                return Ok(ScanStep::Record(head.number));
            }
            self.proved = self.proved.max(head.durable);
            self.stand.life = head.life;
            self.stand.closed = head.kind == RecordKind::Close;
            self.stand.turned = head.kind == RecordKind::Turn;
            if self.stand.turned {
                return Ok(ScanStep::Nothing(Flaw::Segment));
            }
            self.stand.offset = next;
        }
    }

    /// Whether the file is shorter than the segment was made.
    pub(crate) fn is_short(&self) -> io::Result<bool> {
        Ok(self.window.file().size()? < self.end)
    }

    /// Judges what is behind the last record; after [`ScanStep::Nothing`].
    pub(crate) fn tail(&mut self) -> io::Result<LogTail> {
        let mut at = self.stand.offset;
        // A whole head of the next record precedes bytes that are not whole.
        let mut begun = self
            .head(at)?
            .is_some_and(|head| head.number == self.stand.number && head.life >= self.stand.life);
        while at + HEAD_BYTES as u64 <= self.end {
            if let Some(head) = self.head_after(at)? {
                if head.durable > self.stand.number {
                    return Ok(LogTail::Proof);
                }
                begun = true;
            }
            at += ALIGNED;
        }
        Ok(if begun { LogTail::Torn } else { LogTail::Blank })
    }

    /// Whether a head from here on says that the record `missing`, of a segment before, had been durable.
    pub(crate) fn proves(&mut self, missing: u64) -> io::Result<bool> {
        let mut at = self.stand.offset;
        while at + HEAD_BYTES as u64 <= self.end {
            let head = self.head_from(at, self.stand.number)?;
            if head.is_some_and(|head| head.durable > missing) {
                return Ok(true);
            }
            at += ALIGNED;
        }
        Ok(false)
    }

    /// Goes to the next whole record behind the one that is missing, if there is one: what is found from
    /// there on is no part of the log any more.
    pub(crate) fn skip(&mut self) -> io::Result<bool> {
        let mut at = self.stand.offset + ALIGNED;
        while at + HEAD_BYTES as u64 <= self.end {
            if let Some(head) = self.head_after(at)?
                && let RecordKind::Record(length) = head.kind
            {
                let bytes = self.window.look(at + HEAD_BYTES as u64, length as usize)?;
                if bytes.len() == length as usize && crc32c::crc32c(bytes) == head.sum {
                    let (closed, turned) = (false, false);
                    let (number, life) = (head.number, head.life);
                    self.stand = ScanPosition { offset: at, number, life, closed, turned };
                    return Ok(true);
                }
            }
            at += ALIGNED;
        }
        Ok(false)
    }

    /// The head at `at`, if there is a whole one.
    fn head(&mut self, at: u64) -> io::Result<Option<RecordHeader>> {
        if at + HEAD_BYTES as u64 > self.end {
            return Ok(None);
        }
        Ok(RecordHeader::decode(self.window.look(at, HEAD_BYTES)?, self.seed))
    }

    /// The head at `at`, if it belongs behind the missing record.
    fn head_after(&mut self, at: u64) -> io::Result<Option<RecordHeader>> {
        self.head_from(at, self.stand.number + 1)
    }

    /// The head at `at`, if its number is not below `least` and can be in this segment. There are few
    /// places whose bytes could be such a number, so that few sums are made.
    fn head_from(&mut self, at: u64, least: u64) -> io::Result<Option<RecordHeader>> {
        let bytes = self.window.look(at, HEAD_BYTES)?;
        let Some(number) = bytes.get(16..24).and_then(|b| b.first_chunk()) else { return Ok(None) };
        let number = u64::from_le_bytes(*number);
        let most = (self.end - self.stand.offset) / HEAD_BYTES as u64;
        if number < least || number - least > most {
            return Ok(None);
        }
        let head = RecordHeader::decode(bytes, self.seed);
        Ok(head.filter(|head| head.life >= self.stand.life))
    }
}
