//! Rings of lines, and the records in them.
//!
//! A position is a count of lines since a ring's beginning and only grows; the ring has room for
//! the last `lines` of them. A record lies in consecutive lines:
//!
//! ```text
//!          word 0              word 1          word 2  word 3  words 4-6           word 7
//! line 0   source|kind|bytes   lease|sender    seq     dst     payload 0..24       stamp
//! line 1   payload 24..80                                                          stamp
//! ```
//!
//! and never goes round the ring's end: a pad fills what is left there. A ring that has long
//! records now and then is much larger than what its short ones need, so these go round early: past
//! the first `lap` lines a short record begins the next lap, over lines that still lie in a cache.
//! The stamp of every line names the writer's epoch and the lap, so a reader that knows both cannot
//! mistake an older lap, a former leader or half a write for a record [TRAM 7, canary].

use alloc::vec::Vec;
use amcast_core::limits::NUMBER_BITS;
use amcast_core::memory::{CacheLine, LINE_WORDS, LineStamp, RegionId};
use amcast_core::{GroupSet, MsgId, Pid};

/// Words of a record's first line that are not payload.
const HEAD_WORDS: usize = 4;
/// Payload bytes in a record's first line.
const FIRST_BYTES: u32 = ((LINE_WORDS - HEAD_WORDS) * 8) as u32;
/// Payload bytes in each further line.
const LINE_BYTES: u32 = (LINE_WORDS * 8) as u32;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RingRecordKind {
    /// A message.
    Message = 1,
    /// Nothing: `bytes` lines up to the ring's end are skipped.
    Pad = 2,
    /// A piece of a state transfer.
    State = 3,
    /// RamCast's: another destination's timestamp of a message.
    Proposal = 4,
    /// RamCast's: a message as a whole from another destination, with that one's timestamp.
    Whole = 5,
    /// RamCast's, in a group's log only: the message is to go to the other destinations as a whole.
    PassWhole = 6,
    /// RamCast's, in a group's log only: the clock passes a timestamp that is about to come.
    Clock = 7,
    /// Another tree of the groups: each one's parent, a byte each.
    Overlay = 8,
    /// In a group's log only: from position `seq` of its buffer on a client's requests are made for the present tree.
    Rejoin = 9,
}

impl RingRecordKind {
    /// Whether a parent passes it on to the children that it is for.
    pub(crate) const fn is_passed_on(self) -> bool {
        matches!(self, Self::Message | Self::Overlay)
    }
}

/// The head of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingRecord {
    pub(crate) kind: RingRecordKind,
    /// Payload bytes, or for a pad the lines it takes.
    pub(crate) bytes: u32,
    /// Which buffer of `HM` it came from (`source`): a client's number, or [`RingRecord::PARENT`].
    pub(crate) source: u16,
    /// The lease under which the client sent it.
    pub(crate) lease: u32,
    pub(crate) msg: MsgId,
    pub(crate) dst: GroupSet,
}

impl RingRecord {
    /// Whether its number belongs to a later holder of its client's place. Numbers grow over all leases of a place, so a
    /// holder that might take any would leave none to those behind it.
    pub(crate) const fn is_beyond_lease(&self) -> bool {
        self.msg.seq >> NUMBER_BITS >= self.lease as u64
    }

    /// The source of what came from the parent group.
    pub(crate) const PARENT: u16 = u16::MAX;

    /// A pad over `lines` lines.
    pub(crate) const fn pad(lines: u32) -> Self {
        Self {
            kind: RingRecordKind::Pad,
            bytes: lines,
            source: 0,
            lease: 0,
            msg: MsgId { sender: Pid(0), seq: 0 },
            dst: GroupSet::EMPTY,
        }
    }

    /// How many lines it takes.
    pub(crate) const fn lines(&self) -> u32 {
        match self.kind {
            RingRecordKind::Pad => self.bytes,
            _ => lines_of(self.bytes),
        }
    }

    /// The words of its first line; the last three come from the payload.
    pub(crate) fn words(&self, payload: [u64; 3]) -> [u64; LINE_WORDS] {
        [
            u64::from(self.bytes) | (self.kind as u64) << 32 | u64::from(self.source) << 48,
            u64::from(self.msg.sender.0) | u64::from(self.lease) << 32,
            self.msg.seq,
            self.dst.0,
            payload[0],
            payload[1],
            payload[2],
        ]
    }

    /// Reads a record's first line; none if it means nothing. The words of the payload are not loaded.
    pub(crate) fn of_line(line: &CacheLine) -> Option<Self> {
        Self::of_head(core::array::from_fn(|i| line.word(i)))
    }

    /// Reads the first line's words; none if they mean nothing.
    pub(crate) fn parse(words: &[u64; LINE_WORDS]) -> Option<Self> {
        let [head @ .., _, _, _] = *words;
        Self::of_head(head)
    }

    fn of_head(words: [u64; HEAD_WORDS]) -> Option<Self> {
        let kind = match (words[0] >> 32) & 0xffff {
            1 => RingRecordKind::Message,
            2 => RingRecordKind::Pad,
            3 => RingRecordKind::State,
            4 => RingRecordKind::Proposal,
            5 => RingRecordKind::Whole,
            6 => RingRecordKind::PassWhole,
            7 => RingRecordKind::Clock,
            8 => RingRecordKind::Overlay,
            9 => RingRecordKind::Rejoin,
            _ => return None,
        };
        Some(Self {
            kind,
            bytes: words[0] as u32,
            source: (words[0] >> 48) as u16,
            lease: (words[1] >> 32) as u32,
            msg: MsgId { sender: Pid(words[1] as u32), seq: words[2] },
            dst: GroupSet(words[3]),
        })
    }
}

/// Lines of a record with `bytes` bytes of payload.
pub(crate) const fn lines_of(bytes: u32) -> u32 {
    // The lines behind the first one, rounded up: what that holds is less than a line. As wide as no sum overflows.
    1 + ((bytes as u64 + (LINE_BYTES - 1 - FIRST_BYTES) as u64) / LINE_BYTES as u64) as u32
}

/// The largest payload whose record takes at most `lines` lines.
pub(crate) const fn payload_within(lines: u32) -> u32 {
    FIRST_BYTES + (lines - 1) * LINE_BYTES
}

/// The place of a position in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingPlace {
    /// The region's line.
    at: usize,
    /// Lines from there to the ring's end.
    left: u32,
    /// The stamp that is expected there.
    stamp: LineStamp,
}

impl RingPlace {
    /// The whole record that begins here, if all of it is there.
    #[inline]
    pub(crate) fn read(&self, region: &[CacheLine]) -> Option<RingRecord> {
        let Self { at, left, stamp } = *self;
        // Looked at before the first line is waited for, so that both lines of a small message come
        // from the writer's cache at once and not one after the other.
        let second = region.get(at + 1).map(CacheLine::stamp);
        let first = &region[at];
        if first.stamp() != stamp {
            return None;
        }
        let record = RingRecord::of_line(first)?;
        let lines = record.lines();
        if lines == 0 || lines > left {
            return None;
        }
        if lines == 1 || record.kind == RingRecordKind::Pad || (lines == 2 && second == Some(stamp))
        {
            return Some(record);
        }
        // Lines of a write appear first to last, so the last one's stamp vouches for all.
        let last = at + lines as usize - 1;
        (region[last].stamp() == stamp).then_some(record)
    }

    /// Appends the payload of the record that begins here to `to`. False if a line of it is another one's:
    /// then it was written over meanwhile.
    pub(crate) fn payload(
        &self,
        region: &[CacheLine],
        record: &RingRecord,
        to: &mut Vec<u8>,
    ) -> bool {
        let mut whole = true;
        let end = to.len() + record.bytes as usize;
        // Whole lines are copied, and what is too much is cut off: a copy of unknown length is a call.
        to.reserve(record.lines() as usize * LINE_BYTES as usize);
        let lines = &region[self.at..self.at + record.lines() as usize];
        for (i, line) in lines.iter().enumerate() {
            whole &= line.stamp() == self.stamp;
            let mut bytes = [0; LINE_BYTES as usize];
            let (chunks, _) = bytes.as_chunks_mut::<8>();
            for (chunk, word) in chunks.iter_mut().zip(line.words()) {
                *chunk = word.to_le_bytes();
            }
            match i {
                0 => to.extend_from_slice(&bytes[HEAD_WORDS * 8..]),
                _ => to.extend_from_slice(&bytes),
            }
        }
        to.truncate(end);
        whole
    }
}

/// A ring within a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordRing {
    pub(crate) region: RegionId,
    /// The region's line where the ring begins.
    pub(crate) base: u32,
    /// How many lines the ring has.
    pub(crate) lines: u32,
    /// Short records begin within the first so many lines of the ring.
    pub(crate) lap: u32,
}

impl RecordRing {
    /// The region's line at a position.
    pub(crate) const fn at(&self, pos: u64) -> u32 {
        self.base + (pos % self.lines as u64) as u32
    }

    /// The stamp of a position under an epoch.
    pub(crate) const fn stamp(&self, pos: u64, epoch: u32) -> LineStamp {
        LineStamp::new(epoch, pos / self.lines as u64)
    }

    /// Lines from a position to the ring's end.
    pub(crate) const fn left_at(&self, pos: u64) -> u32 {
        self.lines - (pos % self.lines as u64) as u32
    }

    /// Whether a record goes round early. A longer one would leave much of a lap unused.
    pub(crate) const fn is_short(&self, lines: u32) -> bool {
        lines <= self.lap / 8
    }

    /// Where a record of `lines` lines lies that is written when the ring's end is `pos`: there,
    /// or after a pad. An empty ring has room for both: a pad before a long record is shorter than
    /// that record, and a short one lies before the line where the pad is.
    pub(crate) const fn start(&self, pos: u64, lines: u32) -> u64 {
        let left = self.left_at(pos);
        let early = self.is_short(lines) && self.lines - left >= self.lap;
        if lines <= left && !early { pos } else { pos + left as u64 }
    }

    /// Of the lines from `pos` up to `upto`: how many lie in one piece and hold something, and where
    /// the next ones begin. Of a pad only its first line holds something.
    pub(crate) fn piece(&self, pos: u64, upto: u64, pad: Option<(u64, u64)>) -> (u32, u64) {
        let end = upto.min(pos + u64::from(self.left_at(pos)));
        match pad {
            Some((from, to)) if pos <= from && from < end => ((from + 1 - pos) as u32, to),
            _ => ((end - pos) as u32, end),
        }
    }

    /// The ring's end after such a record.
    pub(crate) const fn after(&self, pos: u64, lines: u32) -> u64 {
        self.start(pos, lines) + lines as u64
    }

    /// Where the line of a position lies, and its stamp under an epoch.
    pub(crate) const fn place(&self, pos: u64, epoch: u32) -> RingPlace {
        let (lap, line) = (pos / self.lines as u64, (pos % self.lines as u64) as u32);
        RingPlace {
            at: (self.base + line) as usize,
            left: self.lines - line,
            stamp: LineStamp::new(epoch, lap),
        }
    }

    /// The whole record at `pos` under `epoch`, if all of it is there.
    pub(crate) fn read(&self, region: &[CacheLine], pos: u64, epoch: u32) -> Option<RingRecord> {
        self.place(pos, epoch).read(region)
    }

    /// Appends the payload of the record at `pos` to `to`. False if a line of it is another one's:
    /// then it was written over meanwhile.
    pub(crate) fn payload(
        &self,
        region: &[CacheLine],
        pos: u64,
        epoch: u32,
        record: &RingRecord,
        to: &mut Vec<u8>,
    ) -> bool {
        self.place(pos, epoch).payload(region, record, to)
    }

    /// Writes a record with its payload at `pos`; it must fit before the ring's end.
    pub(crate) fn write(
        &self,
        region: &[CacheLine],
        pos: u64,
        epoch: u32,
        record: &RingRecord,
        payload: &[u8],
    ) {
        let stamp = self.stamp(pos, epoch);
        let at = self.at(pos) as usize;
        let (first, rest) = payload.split_at(payload.len().min(FIRST_BYTES as usize));
        let mut head = [0; LINE_WORDS - HEAD_WORDS];
        fill(&mut head, first);
        // Last line first would be wrong: a reader trusts the last line's stamp.
        region[at].put(&record.words(head), stamp);
        for (i, chunk) in rest.chunks(LINE_BYTES as usize).enumerate() {
            let mut words = [0; LINE_WORDS];
            fill(&mut words, chunk);
            region[at + 1 + i].put(&words, stamp);
        }
    }

    /// Writes a pad at `pos` over the rest of the ring.
    pub(crate) fn write_pad(&self, region: &[CacheLine], pos: u64, epoch: u32) {
        let pad = RingRecord::pad(self.left_at(pos));
        region[self.at(pos) as usize].put(&pad.words([0; 3]), self.stamp(pos, epoch));
    }
}

fn fill(words: &mut [u64], bytes: &[u8]) {
    // A copy of unknown length is a call: whole words are copied without.
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter_mut().zip(whole) {
        *word = u64::from_le_bytes(*chunk);
    }
    if let Some(word) = words.get_mut(whole.len())
        && !rest.is_empty()
    {
        let mut le = [0; 8];
        le[..rest.len()].copy_from_slice(rest);
        *word = u64::from_le_bytes(le);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(lines: usize) -> Vec<CacheLine> {
        (0..lines).map(|_| CacheLine::default()).collect()
    }

    fn message(bytes: usize) -> RingRecord {
        RingRecord {
            kind: RingRecordKind::Message,
            bytes: bytes as u32,
            source: 3,
            lease: 9,
            msg: MsgId { sender: Pid(7), seq: 1 << 40 },
            dst: GroupSet(0b101),
        }
    }

    #[test]
    fn what_is_written_reads_back_at_every_size() {
        let ring = RecordRing { region: RegionId(0), base: 1, lines: 16, lap: 16 };
        for bytes in 0..300_usize {
            let memory = region(17);
            let payload: Vec<u8> = (0..bytes).map(|i| (i * 7) as u8).collect();
            let record = message(bytes);
            ring.write(&memory, 32, 5, &record, &payload);
            assert_eq!(ring.read(&memory, 32, 5), Some(record));
            let mut back = Vec::new();
            assert!(ring.payload(&memory, 32, 5, &record, &mut back));
            assert_eq!(back, payload);
            assert_eq!(ring.read(&memory, 16, 5), None, "another lap");
            assert_eq!(ring.read(&memory, 32, 4), None, "another epoch");
        }
    }

    #[test]
    fn a_record_without_its_last_line_is_not_there() {
        let ring = RecordRing { region: RegionId(0), base: 0, lines: 8, lap: 8 };
        let (whole, torn) = (region(8), region(8));
        let record = message(100);
        ring.write(&whole, 0, 1, &record, &[1; 100]);
        for (n, line) in whole.iter().enumerate().take(record.lines() as usize) {
            assert_eq!(ring.read(&torn, 0, 1), None, "{n} lines");
            torn[n].copy(line, line.stamp());
        }
        assert_eq!(ring.read(&torn, 0, 1), Some(record));
    }

    #[test]
    fn a_record_never_goes_round_the_end() {
        let ring = RecordRing { region: RegionId(0), base: 0, lines: 8, lap: 8 };
        assert_eq!((ring.start(5, 3), ring.after(5, 3)), (5, 8));
        assert_eq!((ring.start(6, 3), ring.after(6, 3)), (8, 11));
        let memory = region(8);
        ring.write_pad(&memory, 6, 1);
        assert_eq!(ring.read(&memory, 6, 1), Some(RingRecord::pad(2)));
    }

    #[test]
    fn short_records_go_round_early_and_long_ones_do_not() {
        let ring = RecordRing { region: RegionId(0), base: 0, lines: 64, lap: 16 };
        assert_eq!((ring.start(15, 2), ring.after(15, 2)), (15, 17));
        assert_eq!((ring.start(17, 2), ring.start(16, 1)), (64, 64));
        assert_eq!((ring.start(17, 3), ring.start(17, 30), ring.start(39, 30)), (17, 17, 64));
        for off in 0..64 {
            for lines in 1..=32 {
                assert!(
                    ring.after(off, lines) - off <= 64,
                    "{lines} lines at {off} of an empty ring"
                );
            }
        }
    }

    #[test]
    fn pieces_leave_out_what_a_pad_covers() {
        let ring = RecordRing { region: RegionId(0), base: 0, lines: 64, lap: 8 };
        assert_eq!(ring.piece(60, 70, None), (4, 64));
        assert_eq!(ring.piece(4, 70, Some((9, 64))), (6, 64));
        assert_eq!(ring.piece(64, 70, Some((9, 64))), (6, 70));
        assert_eq!(ring.piece(4, 9, Some((9, 64))), (5, 9));
    }

    #[test]
    fn sizes_agree() {
        for lines in 1..50 {
            assert_eq!(lines_of(payload_within(lines)), lines);
            assert_eq!(lines_of(payload_within(lines) + 1), lines + 1);
        }
        assert_eq!((lines_of(0), lines_of(u32::MAX)), (1, 1 + (u32::MAX - 24).div_ceil(56)));
    }

    #[test]
    fn words_that_mean_nothing_are_no_record() {
        assert_eq!(RingRecord::parse(&[0; LINE_WORDS]), None);
        assert_eq!(RingRecord::parse(&[u64::MAX; LINE_WORDS]), None);
        let ring = RecordRing { region: RegionId(0), base: 0, lines: 4, lap: 4 };
        let memory = region(4);
        let mut long = message(0).words([0; 3]);
        long[0] |= 0xffff_ffff;
        memory[0].put(&long, ring.stamp(0, 1));
        assert_eq!(ring.read(&memory, 0, 1), None, "longer than the ring");
    }
}
