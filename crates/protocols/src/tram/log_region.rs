//! A log region: the two lines at its head, and the order in which they and the ring are written.
//!
//! ```text
//! line 0   control   epoch, tail, commit    the term's whole log is installed here
//! line 1   term      epoch, tail            whose records lie here, from which position on
//! line 2.. ring      records                LOG
//! ```
//!
//! One process writes a region. Its owner consumes the log from it, and candidates read it from afar,
//! slowly, while the writer may lead again and use the lines once more. So that neither takes a record
//! that is written over for the end of the log, or half of it for the record:
//!
//! 1. **The writer tells before it overwrites.** It writes the term line before the first line of a term
//!    ([`OwnLog::begin_term`], [`FollowerLog::begin_term`]), and before the first line that it posts to a
//!    follower that it takes in again. It writes a later tail ([`OwnLog::advance_tail`],
//!    [`FollowerLog::advance_tail`]) before it writes over the lines in front of that tail.
//! 2. **The reader checks after it has read.** The record counts only if both lines, read
//!    afterwards, still name the term, and no tail behind the record ([`LogHead::holds`]).
//!
//! Writes to one region appear in the order of posting (law 2 of [`amcast_core::memory`]). So a reader
//! that sees any line of a later term, or of a later lap, finds the head that announced it, if it looks
//! at the head later. Conversely, if the head is as it was, every line that was read before is as it was.
//!
//! [`OwnLog`] and [`FollowerLog`] exist only for a term that was begun, and refuse a line beyond what the
//! tail that they told leaves room for: the wrong order cannot be written down.

use super::ring::{RecordRing, RingRecord, RingRecordKind};
use alloc::vec::Vec;
use amcast_core::memory::{
    AccessOutcome, CacheLine, LINE_WORDS, LineRange, LineStamp, Memory, MemoryOutput, RegionId,
    RegionWindow, WriteSource,
};
use amcast_core::step::Ticket;
use amcast_core::{Outbox, Pid};

/// The line of a log region where its writer publishes epoch, tail and commit index.
pub(crate) const CONTROL: u32 = 0;

/// The line where the writer says whose term the records are of, before it writes any.
const TERM: u32 = 1;

/// How many words of a control line, or of a term line, say something: the others are not loaded.
const CONTROL_WORDS: usize = 3;

/// How many lines say how things are; they are read together.
pub(crate) const HEAD_LINES: u32 = 2;

/// Where the ring of a log begins: behind the head.
pub(crate) const LOG_BASE: u32 = HEAD_LINES;

/// The control line of a log, published by its writer after the records it speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Control {
    /// The term; a control line of a term says that the term's log is installed.
    pub(crate) epoch: u32,
    /// The first position that is still in the ring.
    pub(crate) tail: u64,
    /// The commit index: everything before it is decided.
    pub(crate) commit: u64,
}

impl Control {
    pub(crate) fn words(&self) -> [u64; LINE_WORDS] {
        [u64::from(self.epoch), self.tail, self.commit, 0, 0, 0, 0]
    }

    pub(crate) const fn stamp(&self) -> LineStamp {
        LineStamp::new(self.epoch, 0)
    }

    /// Of raw words; none if no term was installed. While a writer rewrites the line within a term
    /// its words may be of different ages: each only grows, and is read for itself.
    const fn parse(words: [u64; CONTROL_WORDS], stamp: LineStamp) -> Option<Self> {
        let epoch = stamp.epoch();
        // A new term's first control line is whole or not there; its epoch says which.
        if epoch == 0 || words[0] != epoch as u64 {
            return None;
        }
        Some(Self { epoch, tail: words[1], commit: words[2] })
    }

    /// Of a line in this process's memory.
    fn of_line(line: &CacheLine) -> Option<Self> {
        let stamp = line.stamp();
        Self::parse([line.word(0), line.word(1), line.word(2)], stamp)
    }

    /// Of a line that was read from another process's memory, its stamp behind the words.
    const fn of_words(line: &[u64; LINE_WORDS + 1]) -> Option<Self> {
        Self::parse([line[0], line[1], line[2]], LineStamp(line[LINE_WORDS]))
    }

    /// The control line of a region in this process's memory, with any term line.
    pub(crate) fn read(region: &[CacheLine]) -> Option<Self> {
        Self::of_line(&region[CONTROL as usize])
    }
}

/// The term line: from `tail` on, lines are written in the term of `epoch`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Term {
    epoch: u32,
    tail: u64,
}

impl Term {
    const fn source(self) -> WriteSource {
        WriteSource::line(self.words(), self.stamp())
    }

    const fn words(self) -> [u64; LINE_WORDS] {
        [self.epoch as u64, self.tail, 0, 0, 0, 0, 0]
    }

    const fn stamp(self) -> LineStamp {
        LineStamp::new(self.epoch, 0)
    }

    /// Words and stamp have the same form as a control line's.
    fn of(line: Option<Control>) -> Option<Self> {
        line.map(|c| Self { epoch: c.epoch, tail: c.tail })
    }
}

/// The content of the head of a log region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogHead {
    control: Option<Control>,
    term: Option<Term>,
}

impl LogHead {
    /// Of a region in this process's memory.
    pub(crate) fn read(region: &[CacheLine]) -> Self {
        let term = Term::of(Control::of_line(&region[TERM as usize]));
        Self { control: Control::read(region), term }
    }

    /// Of what was read from another process's memory; none if that is no head.
    pub(crate) fn of(outcome: AccessOutcome<'_>) -> Option<Self> {
        let AccessOutcome::Words([control, term]) = outcome else { return None };
        Some(Self { control: Control::of_words(control), term: Term::of(Control::of_words(term)) })
    }

    /// The state of the log of `epoch`, if it is installed here and no later term has begun here. The tail is
    /// the later one of those that were announced.
    pub(crate) fn installed(&self, epoch: u32) -> Option<Control> {
        let control = self.control.filter(|c| c.epoch == epoch)?;
        let term = self.term.filter(|t| t.epoch == epoch)?;
        Some(Control { tail: control.tail.max(term.tail), ..control })
    }

    /// Whether all records of `epoch` from `tail` on that were read before are whole.
    pub(crate) fn holds(&self, epoch: u32, tail: u64) -> bool {
        self.installed(epoch).is_some_and(|control| control.tail <= tail)
    }
}

/// An installed log in this process's memory, as its owner reads it.
///
/// The region is borrowed anew for each look, since its writer writes meanwhile: that is where a simulator
/// lets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogView<'a> {
    pub(crate) ring: RecordRing,
    pub(crate) view: RegionWindow<'a>,
    pub(crate) epoch: u32,
    /// Whether the head is looked at again: not by a leader, which reads what it writes itself.
    pub(crate) checks: bool,
}

impl<'a> LogView<'a> {
    /// The lines, as they are now.
    pub(crate) fn region(&self) -> &'a [CacheLine] {
        self.view.region(self.ring.region)
    }

    /// The state of the log, if it is still this term's.
    pub(crate) fn control(&self) -> Option<Control> {
        LogHead::read(self.region()).installed(self.epoch)
    }

    /// The record at `pos`, its payload appended to `to` if it is wanted; none if it is not there, or was
    /// written over while it was read.
    #[inline]
    pub(crate) fn read_checked(
        &self,
        pos: u64,
        wants: impl Fn(&RingRecord) -> bool,
        to: &mut Vec<u8>,
    ) -> Option<RingRecord> {
        let place = self.ring.place(pos, self.epoch);
        let record = place.read(self.region())?;
        let wanted = wants(&record);
        let whole = !wanted || place.payload(self.region(), &record, to);
        let holds = || LogHead::read(self.region()).holds(self.epoch, pos);
        (whole && (!self.checks || holds())).then_some(record)
    }
}

/// A leader's own copy of its term's log, from the beginning of the term on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnLog {
    ring: RecordRing,
    epoch: u32,
    /// The announced tail: lines before it may be written over.
    tail: u64,
    /// The term line is written behind the first lines: the mutant `writes-before-it-tells`.
    owed: bool,
}

impl OwnLog {
    /// Begins the term of `epoch` in the region of `ring`: what lies there is of no use from here on.
    pub(crate) fn begin_term(
        (ring, region): (RecordRing, &[CacheLine]),
        epoch: u32,
        tail: u64,
        silently: bool,
    ) -> Self {
        let log = Self { ring, epoch, tail, owed: silently };
        if !silently {
            log.tell_term(region);
        }
        log
    }

    fn tell_term(&self, region: &[CacheLine]) {
        let term = Term { epoch: self.epoch, tail: self.tail };
        region[TERM as usize].put(&term.words(), term.stamp());
    }

    pub(crate) const fn ring(&self) -> &RecordRing {
        &self.ring
    }

    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The announced tail.
    pub(crate) const fn tail(&self) -> u64 {
        self.tail
    }

    /// The first position that may not be written before a later tail is announced.
    pub(crate) const fn limit(&self) -> u64 {
        self.tail + self.ring.lines as u64
    }

    /// The last pad from the tail up to `end`, from and to.
    pub(crate) fn last_pad(&self, region: &[CacheLine], end: u64) -> Option<(u64, u64)> {
        let (mut pos, mut pad) = (self.tail, None);
        while pos < end
            && let Some(record) = self.ring.read(region, pos, self.epoch)
        {
            let next = pos + u64::from(record.lines());
            if record.kind == RingRecordKind::Pad {
                pad = Some((pos, next));
            }
            pos = next;
        }
        pad
    }

    /// Publishes how far the log is decided, and from where on it is needed: lines before that tail may be
    /// written over afterwards.
    pub(crate) fn advance_tail(&mut self, region: &[CacheLine], tail: u64, commit: u64) {
        assert!(tail >= self.tail, "a tail only grows");
        if core::mem::take(&mut self.owed) {
            self.tell_term(region);
        }
        let control = Control { epoch: self.epoch, tail, commit };
        region[CONTROL as usize].put(&control.words(), control.stamp());
        self.tail = tail;
    }

    /// Appends the lines of one record, or the one line of a pad, at `pos`.
    pub(crate) fn append<'l>(
        &self,
        region: &[CacheLine],
        pos: u64,
        lines: impl ExactSizeIterator<Item = &'l CacheLine>,
    ) {
        assert!(
            pos + lines.len() as u64 <= self.limit(),
            "written over before the tail was advanced"
        );
        let (at, stamp) = (self.ring.at(pos) as usize, self.ring.stamp(pos, self.epoch));
        for (i, line) in lines.enumerate() {
            region[at + i].copy(line, stamp);
        }
    }

    /// As [`OwnLog::append`], of words that were read elsewhere.
    pub(crate) fn append_words(
        &self,
        region: &[CacheLine],
        pos: u64,
        lines: &[[u64; LINE_WORDS + 1]],
    ) {
        assert!(
            pos + lines.len() as u64 <= self.limit(),
            "written over before the tail was advanced"
        );
        let (at, stamp) = (self.ring.at(pos) as usize, self.ring.stamp(pos, self.epoch));
        for (i, line) in lines.iter().enumerate() {
            let words = line[..LINE_WORDS].try_into().expect("seven of eight");
            region[at + i].put(words, stamp);
        }
    }

    /// Appends a pad over the rest of the ring at `pos`.
    pub(crate) fn append_pad(&self, region: &[CacheLine], pos: u64) {
        assert!(pos < self.limit(), "written over before the tail was advanced");
        self.ring.write_pad(region, pos, self.epoch);
    }

    /// Copies the lines of one record to `pos`. They are no record, for nobody, before they are published:
    /// what they are copied from may change meanwhile.
    pub(crate) fn copy_in<'l>(
        &self,
        region: &[CacheLine],
        pos: u64,
        lines: impl ExactSizeIterator<Item = &'l CacheLine>,
    ) {
        assert!(
            pos + lines.len() as u64 <= self.limit(),
            "written over before the tail was advanced"
        );
        let at = self.ring.at(pos) as usize;
        for (i, line) in lines.enumerate() {
            region[at + i].copy(line, LineStamp::default());
        }
    }

    /// Makes a record of the `count` lines that were copied to `pos`.
    pub(crate) fn publish(&self, region: &[CacheLine], pos: u64, count: u32) {
        let (at, stamp) = (self.ring.at(pos) as usize, self.ring.stamp(pos, self.epoch));
        region[at..at + count as usize].iter().for_each(|line| line.publish(stamp));
    }
}

/// A follower's copy of its leader's log, from the moment on when the leader takes it in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FollowerLog {
    to: Pid,
    ring: RecordRing,
    epoch: u32,
    /// The tail that was announced to the follower.
    tail: u64,
    /// The term line is written behind the first lines: the mutant `writes-before-it-tells`.
    owed: bool,
}

impl FollowerLog {
    /// Begins the term of `epoch` at the follower `to`, or continues it where it stopped: the lines
    /// before `tail` are written over.
    pub(crate) fn begin_term(
        (to, ring): (Pid, RecordRing),
        epoch: u32,
        tail: u64,
        silently: bool,
        out: &mut Outbox<Memory>,
    ) -> Self {
        let log = Self { to, ring, epoch, tail, owed: silently };
        if !silently {
            log.tell_term(out);
        }
        log
    }

    fn tell_term(&self, out: &mut Outbox<Memory>) {
        let source = Term { epoch: self.epoch, tail: self.tail }.source();
        self.write(TERM, source, None, false, out);
    }

    /// Posts lines of the leader's log, from `from` of them, that lie at positions from `pos` on.
    pub(crate) fn append(
        &self,
        pos: u64,
        from: (RegionId, u32),
        ticket: Option<Ticket>,
        out: &mut Outbox<Memory>,
    ) {
        let (region, count) = from;
        assert!(
            pos + u64::from(count) <= self.tail + u64::from(self.ring.lines),
            "written over before the tail was advanced"
        );
        let at = self.ring.at(pos);
        let source = WriteSource::Copy(LineRange { region, at, count });
        self.write(at, source, ticket, false, out);
    }

    /// Posts the control line: behind all lines that it speaks of, and in front of those that take the
    /// place of what lies before its tail.
    pub(crate) fn advance_tail(
        &mut self,
        control: Control,
        (ticket, bell): (Ticket, bool),
        out: &mut Outbox<Memory>,
    ) {
        assert!(control.tail >= self.tail, "a tail only grows");
        self.tail = control.tail;
        if core::mem::take(&mut self.owed) {
            self.tell_term(out);
        }
        let source = WriteSource::line(control.words(), control.stamp());
        self.write(CONTROL, source, Some(ticket), bell, out);
    }

    fn write(
        &self,
        at: u32,
        source: WriteSource,
        ticket: Option<Ticket>,
        bell: bool,
        out: &mut Outbox<Memory>,
    ) {
        let (to, region) = (self.to, self.ring.region);
        out.ask(MemoryOutput::Write { to, region, at, source, ticket, bell });
    }
}

#[cfg(test)]
mod tests;
