//! Answers of nodes to the fronts that asked, through shared memory.
//!
//! Beside the protocol's processes every node has an *office* and every client place a *mailbox*:
//! processes of the same shared memory, with no protocol. A mailbox owns a ring for each node, which
//! that node's office writes; an office owns one line for each client, in which the mailbox says how
//! far it has read.
//!
//! ```text
//! office of node k                           mailbox of client c
//!   write lines of records  ------------->     ring k: find the next stamp, gather records
//!   credit[c]: lines read   <-------------     write how far it has read
//! ```
//!
//! A record is a line that says whose answer it is and how long, with its first bytes, and as many
//! more lines as it needs; it may be longer than the ring. A line's stamp is the office's life and
//! the lap. An office of a new life writes nothing before the mailbox has told it, by a credit for
//! that life, that it does not read the lines of the one before any more: the stamp of a line is
//! written last, so a reader cannot tell that a line changes under its eyes.
//!
//! A front that does not read never slows a node: an office takes no more answers for a front once
//! [`BACKLOG_BYTES_MAX`] wait, and drops what comes beyond; the front asks again for an answer that
//! does not come, and a repeated request is executed once. What waits for a front that has not read
//! for [`ABANDONED`] is dropped, since nobody waits there any more.
//!
//! An answer of more than [`ANSWER_BYTES_MAX`] is not sent; a record without bytes says how many it
//! had, so that whoever asked is told at once.

use crate::clock;
use amcast_core::memory::{In, LINE_WORDS, Line, Out, RegionId, RegionSpec, Source, Stamp};
use amcast_core::{Cluster, Pid, Span, Time};
use amcast_memory::{Bell, Directory, Error, MappedCarrier, StartOptions};
use std::collections::VecDeque;

/// Lines of a ring from a node to a front.
const RING_LINES: u32 = 1 << 12;

/// Bytes of answers that wait for a front that does not keep up, before more are dropped. The last
/// one that is taken may be as large as answers are.
pub const BACKLOG_BYTES_MAX: usize = 64 << 20;

/// Bytes of one answer.
pub const ANSWER_BYTES_MAX: usize = 128 << 20;

/// How long a front may stand still before what waits for it is dropped: longer than any command's
/// patience.
const ABANDONED: Span = Span::secs(30);

/// How long a front may stand still before a node no longer looks often whether it reads again.
const STALLED: Span = Span::millis(500);

/// How often a front tells a node that has not answered it yet that it may begin.
const ANNOUNCE_AGAIN: Span = Span::millis(100);

/// Marks, in the length of a record, an answer that is not sent.
const NOT_SENT: u64 = 1 << 63;

/// An answer that was larger than is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oversize {
    /// Bytes of the answer.
    pub bytes: u64,
    /// Bytes that an answer may have.
    pub most: u64,
}

/// A larger buffer for an answer is given back when the next one comes.
const PARTIAL_BYTES_KEPT: usize = 1 << 20;

/// Words of the first line that are not the answer's.
const HEAD_WORDS: usize = 2;

/// The shape of the shared memory of a cluster: the protocol's processes, then a mailbox for each
/// client place, then an office for each node.
#[derive(Clone, Copy, Debug)]
pub struct Places(pub Cluster);

impl Places {
    /// The mailbox of a client place.
    pub fn mailbox(self, client: usize) -> Pid {
        Pid((self.0.processes() + client) as u32)
    }

    /// The office of a node.
    pub fn office(self, node: usize) -> Pid {
        Pid((self.0.processes() + self.0.clients() + node) as u32)
    }

    /// How many processes the shared memory has in all.
    pub fn processes(self) -> u32 {
        self.office(self.0.replicas()).0
    }
}

/// How many lines an answer of `bytes` bytes takes.
const fn lines_of(bytes: usize) -> u64 {
    let first = (LINE_WORDS - HEAD_WORDS) * 8;
    1 + bytes.saturating_sub(first).div_ceil(LINE_WORDS * 8) as u64
}

/// Puts bytes into words, little-endian; returns how many it took.
fn pack(bytes: &[u8], words: &mut [u64]) -> usize {
    let n = bytes.len().min(words.len() * 8);
    for (word, chunk) in words.iter_mut().zip(bytes[..n].chunks(8)) {
        let mut le = [0; 8];
        le[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(le);
    }
    n
}

/// Takes bytes out of words until `to` has `len`.
fn unpack(words: &[u64], len: usize, to: &mut Vec<u8>) {
    for word in words {
        let n = (len - to.len()).min(8);
        to.extend_from_slice(&word.to_le_bytes()[..n]);
    }
}

/// The office's side of one ring.
#[derive(Debug)]
struct Writer {
    mailbox: Pid,
    /// The mailbox's life, once it is known to have changed: older credits are void.
    life: Option<u32>,
    ring_lines: u64,
    written: u64,
    /// Answers that are not written yet.
    backlog: VecDeque<Record>,
    backlog_bytes: usize,
    /// Lines of the first answer of the backlog that are written.
    begun: u64,
    dropped: u64,
    /// Since when answers wait and the mailbox has made no room.
    stalled: Option<Time>,
}

/// An answer on its way.
#[derive(Debug)]
struct Record {
    token: u64,
    /// As in the first line: how many bytes follow, or how many are not sent.
    length: u64,
    bytes: Box<[u8]>,
}

impl Writer {
    fn new(mailbox: Pid, ring_lines: u32) -> Self {
        Self {
            mailbox,
            life: None,
            ring_lines: u64::from(ring_lines),
            written: 0,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            begun: 0,
            dropped: 0,
            stalled: None,
        }
    }

    /// Another front has the place now.
    fn renew(&mut self, life: u32) {
        self.life = Some(life);
        self.written = 0;
        self.begun = 0;
        self.backlog.clear();
        self.backlog_bytes = 0;
        self.stalled = None;
    }

    fn push(&mut self, token: u64, bytes: &[u8]) {
        if self.backlog_bytes >= BACKLOG_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        let length = bytes.len() as u64;
        let record = if bytes.len() > ANSWER_BYTES_MAX {
            Record { token, length: length | NOT_SENT, bytes: Box::default() }
        } else {
            Record { token, length, bytes: bytes.into() }
        };
        self.backlog_bytes += record.bytes.len();
        self.backlog.push_back(record);
    }

    /// Notes whether the mailbox stands still; forgets what waits for one that has for too long.
    /// The first answer, of which it may have read a part, stays whole.
    fn watch(&mut self, now: Time, wrote: bool) {
        let waits = !self.backlog.is_empty() && !wrote;
        self.stalled = if waits { self.stalled.or(Some(now)) } else { None };
        if self.stalled.is_some_and(|since| since + ABANDONED <= now) && self.backlog.len() > 1 {
            self.dropped += self.backlog.len() as u64 - 1;
            self.backlog.truncate(1);
            self.backlog_bytes = self.backlog[0].bytes.len();
            self.backlog.shrink_to_fit();
        }
    }

    /// Whether answers wait for a mailbox that may make room at any moment.
    fn is_eager(&self, now: Time) -> bool {
        !self.backlog.is_empty() && self.stalled.is_none_or(|since| since + STALLED > now)
    }

    /// How many lines the mailbox has read, as its credit line says to an office of life `epoch`;
    /// none before it has said anything to that life.
    fn read_by_mailbox(&self, credit: &Line, epoch: u32) -> Option<u64> {
        let stamp = credit.stamp();
        let word = credit.word(0);
        let current = self.life.is_none_or(|life| stamp.epoch() == life);
        if stamp == Stamp::default() || !current || (word >> 32) as u32 != epoch {
            return None;
        }
        // The line has the low half of the count; the rest follows from what was written.
        Some(self.written - u64::from((self.written as u32).wrapping_sub(word as u32)))
    }

    /// Writes as much as the ring takes. Says whether it wrote anything.
    fn pump(&mut self, ring: RegionId, epoch: u32, credit: &Line, outs: &mut Vec<Out>) -> bool {
        let first = self.written;
        if self.backlog.is_empty() {
            return false;
        }
        let Some(read) = self.read_by_mailbox(credit, epoch) else { return false };
        let limit = read + self.ring_lines;
        while let Some(record) = self.backlog.front() {
            let total = lines_of(record.bytes.len());
            while self.begun < total && self.written < limit {
                let head = line_of(record, self.begun);
                let stamp = Stamp::new(epoch, self.written / self.ring_lines);
                outs.push(Out::Write {
                    to: self.mailbox,
                    region: ring,
                    at: (self.written % self.ring_lines) as u32,
                    source: Source::line(head, stamp),
                    ticket: None,
                    bell: true,
                });
                self.begun += 1;
                self.written += 1;
            }
            if self.begun < total {
                break;
            }
            self.backlog_bytes -= record.bytes.len();
            self.begun = 0;
            self.backlog.pop_front();
        }
        self.written > first
    }
}

/// Line `i` of a record.
fn line_of(record: &Record, i: u64) -> [u64; LINE_WORDS] {
    let Record { token, length, bytes } = record;
    let mut words = [0; LINE_WORDS];
    let first = (LINE_WORDS - HEAD_WORDS) * 8;
    if i == 0 {
        (words[0], words[1]) = (*token, *length);
        pack(bytes, &mut words[HEAD_WORDS..]);
    } else {
        let at = first + (i as usize - 1) * LINE_WORDS * 8;
        pack(&bytes[at..], &mut words);
    }
    words
}

/// The mailbox's side of one ring.
#[derive(Debug, Default)]
struct Reader {
    /// The life of the office that writes; none before there was one.
    epoch: Option<u32>,
    read: u64,
    /// Lines read when the office was last told; none before it was told anything.
    told: Option<u64>,
    /// When it was told that it may begin.
    announced: Time,
    token: u64,
    len: usize,
    partial: Vec<u8>,
    in_record: bool,
}

/// Who is given the answers that have come: each with its token.
type Give<'a> = &'a mut dyn FnMut(u64, Result<&[u8], Oversize>);

impl Reader {
    /// An office of the life `epoch` writes from now on, from the first line: it waits to be told
    /// that nothing is read any more that the one before wrote.
    fn renew(&mut self, epoch: u32) {
        *self = Self { epoch: Some(epoch), ..Self::default() };
    }

    /// While nothing has come: tells the office again now and then that it may begin. It may have
    /// been out of reach for a moment, and waits.
    fn announce_again(&mut self) {
        if self.read > 0 || self.epoch.is_none() {
            return;
        }
        let now = clock::now();
        if self.told.is_none() || self.announced + ANNOUNCE_AGAIN <= now {
            (self.told, self.announced) = (None, now);
        }
    }

    /// Reads what there is; gives each whole answer to `give`.
    fn poll(&mut self, ring: &[Line], give: Give<'_>) -> bool {
        let Some(epoch) = self.epoch else { return false };
        let n = ring.len() as u64;
        let from = self.read;
        loop {
            let line = &ring[(self.read % n) as usize];
            if line.stamp() != Stamp::new(epoch, self.read / n) {
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

    fn take(&mut self, words: &[u64; LINE_WORDS], give: Give<'_>) {
        let body = if self.in_record {
            &words[..]
        } else {
            let (token, length) = (words[0], words[1]);
            if length & NOT_SENT != 0 {
                let most = ANSWER_BYTES_MAX as u64;
                return give(token, Err(Oversize { bytes: length & !NOT_SENT, most }));
            }
            // No office writes more: a longer one is not believed.
            (self.token, self.len) = (token, length.min(ANSWER_BYTES_MAX as u64) as usize);
            self.partial.clear();
            if self.partial.capacity() > PARTIAL_BYTES_KEPT {
                self.partial = Vec::new();
            }
            &words[HEAD_WORDS..]
        };
        unpack(body, self.len, &mut self.partial);
        self.in_record = self.partial.len() < self.len;
        if !self.in_record {
            give(self.token, Ok(&self.partial));
        }
    }

    /// What to tell the office, if there is one and it is time: before it writes anything, and a
    /// quarter of the ring later, or at rest.
    fn credit(&mut self, ring_lines: u64, at_rest: bool) -> Option<u64> {
        let due = |told| self.read > told && (self.read - told >= ring_lines / 4 || at_rest);
        let epoch = self.epoch.filter(|_| self.told.is_none_or(due))?;
        self.told = Some(self.read);
        Some(u64::from(epoch) << 32 | u64::from(self.read as u32))
    }
}

/// A node's office: writes answers to the mailboxes of fronts.
pub struct Office {
    node: usize,
    carrier: MappedCarrier,
    writers: Vec<Writer>,
    first_mailbox: Pid,
    outs: Vec<Out>,
}

impl Office {
    /// Opens the office of node `node`.
    ///
    /// # Errors
    /// When its memory cannot be set aside, or the node runs already.
    pub fn open(dir: &Directory, places: Places, node: usize, bell: Bell) -> Result<Self, Error> {
        let specs: Vec<_> = (0..places.0.clients())
            .map(|c| RegionSpec {
                name: "credit",
                lines: 1,
                writer: places.mailbox(c),
                guarded: false,
            })
            .collect();
        let options = StartOptions { bell: Some(bell), ..StartOptions::default() };
        let carrier = dir.start(places.office(node), &specs, options)?;
        let writer = |c| Writer::new(places.mailbox(c), RING_LINES);
        let writers = (0..places.0.clients()).map(writer).collect();
        Ok(Self { node, carrier, writers, first_mailbox: places.mailbox(0), outs: Vec::new() })
    }

    /// Takes an answer for a client place; bounded, and never waits.
    pub fn push(&mut self, client: usize, token: u64, bytes: &[u8]) {
        self.writers[client].push(token, bytes);
    }

    /// Answers that were dropped because fronts did not keep up. Only grows.
    pub fn dropped(&self) -> u64 {
        self.writers.iter().map(|w| w.dropped).sum()
    }

    /// Whether answers are held back for want of room by a front that may have read since: nobody
    /// rings when there is room. A front that stands still, as a dead one does, does not count.
    pub fn has_backlog(&self) -> bool {
        let mut backlogs = self.writers.iter().filter(|w| !w.backlog.is_empty()).peekable();
        backlogs.peek().is_some() && {
            let now = clock::now();
            backlogs.any(|w| w.is_eager(now))
        }
    }

    /// One round. Says whether anything was written.
    pub fn round(&mut self) -> bool {
        self.carrier.begin_round();
        while let Some((_, input)) = self.carrier.next_input() {
            let In::Fresh { pid, incarnation } = input else { continue };
            let client = pid.0.checked_sub(self.first_mailbox.0).map(|c| c as usize);
            if let Some(writer) = client.and_then(|c| self.writers.get_mut(c)) {
                writer.renew(incarnation);
            }
        }
        let epoch = self.carrier.incarnation();
        let ring = RegionId(self.node as u16);
        let mut busy = false;
        for (c, writer) in self.writers.iter_mut().enumerate() {
            let credit = &self.carrier.window().region(RegionId(c as u16))[0];
            let wrote = writer.pump(ring, epoch, credit, &mut self.outs);
            if !writer.backlog.is_empty() || writer.stalled.is_some() {
                writer.watch(clock::now(), wrote);
            }
            busy |= wrote;
        }
        if !self.outs.is_empty() {
            self.carrier.post(&self.outs);
            self.outs.clear();
        }
        busy
    }
}

/// A front's mailbox: reads the answers of all nodes.
pub struct Mailbox {
    client: usize,
    places: Places,
    carrier: MappedCarrier,
    readers: Vec<Reader>,
}

impl Mailbox {
    /// Opens the mailbox of a client place that this process has the lease of.
    ///
    /// # Errors
    /// When its memory cannot be set aside.
    pub fn open(dir: &Directory, places: Places, client: usize, bell: Bell) -> Result<Self, Error> {
        let nodes = places.0.replicas();
        let specs: Vec<_> = (0..nodes)
            .map(|k| RegionSpec {
                name: "answers",
                lines: RING_LINES,
                writer: places.office(k),
                guarded: false,
            })
            .collect();
        let options = StartOptions { bell: Some(bell), ..StartOptions::default() };
        let carrier = dir.start(places.mailbox(client), &specs, options)?;
        let readers = (0..nodes).map(|_| Reader::default()).collect();
        Ok(Self { client, places, carrier, readers })
    }

    /// One round: gives every answer that has come, with its token. The same answer may come from
    /// several nodes. Says whether anything came.
    pub fn round(&mut self, give: Give<'_>) -> bool {
        self.carrier.begin_round();
        while self.carrier.next_input().is_some() {}
        let mut busy = false;
        for (k, reader) in self.readers.iter_mut().enumerate() {
            let epoch = self.carrier.peer_incarnation(self.places.office(k));
            if let Some(epoch) = epoch.filter(|_| epoch != reader.epoch) {
                reader.renew(epoch);
            }
            reader.announce_again();
            let first = reader.told.is_none();
            let ring = self.carrier.window().region(RegionId(k as u16));
            let came = reader.poll(ring, give);
            busy |= came;
            let Some(credit) = reader.credit(ring.len() as u64, !came) else { continue };
            let life = self.carrier.incarnation();
            let words = [credit, 0, 0, 0, 0, 0, 0];
            self.carrier.post([&Out::Write {
                to: self.places.office(k),
                region: RegionId(self.client as u16),
                at: 0,
                source: Source::line(words, Stamp::new(life, 0)),
                ticket: None,
                bell: came || first,
            }]);
        }
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer and a reader over a ring of 8 lines.
    struct Pair {
        writer: Writer,
        reader: Reader,
        ring: Vec<Line>,
        credit: Line,
        /// The office's life, and the one that the mailbox knows of.
        epoch: u32,
        known: u32,
        refused: Vec<(u64, Oversize)>,
    }

    impl Pair {
        /// The mailbox has told the office that it may begin.
        fn new() -> Self {
            let mut pair = Self {
                writer: Writer::new(Pid(9), 8),
                reader: Reader::default(),
                ring: (0..8).map(|_| Line::default()).collect(),
                credit: Line::default(),
                epoch: 1,
                known: 1,
                refused: Vec::new(),
            };
            assert!(pair.read().is_empty());
            pair
        }

        fn pump(&mut self) {
            let mut outs = Vec::new();
            self.writer.pump(RegionId(0), self.epoch, &self.credit, &mut outs);
            for out in outs {
                let Out::Write { at, source: Source::Made { head, stamp, .. }, .. } = out else {
                    panic!("an office only writes lines that it makes")
                };
                self.ring[at as usize].put(&head, stamp);
            }
        }

        fn read(&mut self) -> Vec<(u64, Vec<u8>)> {
            let mut got = Vec::new();
            if self.reader.epoch != Some(self.known) {
                self.reader.renew(self.known);
            }
            let mut take = |t, b: Result<&[u8], Oversize>| match b {
                Ok(bytes) => got.push((t, bytes.to_vec())),
                Err(oversize) => self.refused.push((t, oversize)),
            };
            let came = self.reader.poll(&self.ring, &mut take);
            if let Some(word) = self.reader.credit(8, !came) {
                self.credit.put(&[word, 0, 0, 0, 0, 0, 0], Stamp::new(1, 0));
            }
            got
        }
    }

    #[test]
    fn answers_of_any_length_pass_a_small_ring() {
        let mut pair = Pair::new();
        let lengths = [0, 1, 39, 40, 41, 96, 97, 5_000];
        for (token, len) in lengths.into_iter().enumerate() {
            pair.writer.push(token as u64, &vec![token as u8; len]);
        }
        let mut got = Vec::new();
        for _ in 0..200 {
            pair.pump();
            got.extend(pair.read());
        }
        let expected: Vec<_> =
            lengths.iter().enumerate().map(|(t, &n)| (t as u64, vec![t as u8; n])).collect();
        assert_eq!(got, expected);
        assert_eq!(pair.writer.backlog_bytes, 0);
    }

    #[test]
    fn a_front_that_does_not_read_costs_the_node_a_bounded_backlog() {
        let mut pair = Pair::new();
        let answer = vec![7; 1 << 20];
        for token in 0..100 {
            pair.writer.push(token, &answer);
            pair.pump();
        }
        assert!(pair.writer.backlog_bytes <= BACKLOG_BYTES_MAX);
        assert_eq!(pair.writer.dropped, 36);
        assert_eq!(pair.writer.written, 8);
    }

    #[test]
    fn an_answer_larger_than_the_backlog_passes_and_one_beyond_the_limit_is_told() {
        let mut pair = Pair::new();
        let most = ANSWER_BYTES_MAX as u64;
        let mut beyond = vec![7; ANSWER_BYTES_MAX + 1];
        pair.writer.push(3, &beyond);
        beyond.truncate(BACKLOG_BYTES_MAX + 1);
        pair.writer.push(4, &beyond);
        let mut got = Vec::new();
        while got.is_empty() {
            pair.pump();
            got.extend(pair.read());
        }
        assert_eq!(pair.refused, [(3, Oversize { bytes: most + 1, most })]);
        assert!(got == [(4, beyond)], "{} bytes", got[0].1.len());
        assert_eq!(pair.writer.dropped, 0);
    }

    #[test]
    fn a_front_that_stands_still_is_not_looked_after_often_and_is_forgotten_in_time() {
        let mut pair = Pair::new();
        let start = Time(1_000_000);
        (0..3).for_each(|token| pair.writer.push(token, &[7; 2_000]));
        assert!(pair.writer.is_eager(start));
        pair.pump();
        pair.writer.watch(start, false);
        assert!(pair.writer.is_eager(start));
        pair.writer.watch(start + STALLED, false);
        assert!(!pair.writer.is_eager(start + STALLED));
        pair.writer.watch(start + ABANDONED, false);
        assert_eq!((pair.writer.backlog.len(), pair.writer.backlog_bytes), (1, 2_000));
        // It lives after all: what it had begun to read comes to its end.
        let mut got = Vec::new();
        for _ in 0..20 {
            got.extend(pair.read());
            pair.pump();
        }
        assert_eq!(got, [(0, vec![7; 2_000])]);
        pair.writer.watch(start + ABANDONED, true);
        assert!(pair.writer.stalled.is_none());
    }

    #[test]
    fn a_node_that_starts_anew_is_read_from_its_first_answer_on() {
        let mut pair = Pair::new();
        pair.writer.push(1, &[1; 2_000]);
        pair.pump();
        assert!(pair.read().is_empty(), "the node died within this answer");
        let lines = |pair: &Pair| pair.ring.iter().map(Line::words).collect::<Vec<_>>();
        let old = lines(&pair);
        pair.writer = Writer::new(Pid(9), 8);
        pair.epoch = 2;
        pair.writer.push(2, b"again");
        pair.pump();
        assert_eq!(lines(&pair), old, "the mailbox may just be reading what the old life wrote");
        assert!(pair.read().is_empty());
        pair.pump();
        assert_eq!(lines(&pair), old, "it has not heard of the new life");
        pair.known = 2;
        assert!(pair.read().is_empty());
        pair.pump();
        assert_eq!(pair.read(), [(2, b"again".to_vec())]);
    }

    #[test]
    fn the_credit_of_an_earlier_front_is_void() {
        let mut pair = Pair::new();
        pair.writer.push(1, &[1; 300]);
        pair.pump();
        pair.read();
        pair.read();
        assert!(pair.writer.read_by_mailbox(&pair.credit, 1) > Some(0));
        pair.writer.renew(2);
        assert_eq!(pair.writer.read_by_mailbox(&pair.credit, 1), None);
    }
}
