//! Answers of nodes to the gateways that asked, through shared memory.
//!
//! Beside the protocol's processes every node has a *writer* and every client place a *reader*:
//! processes of the same shared memory, with no protocol. A reader owns a ring for each node, which
//! that node's writer writes; a writer owns one line for each client, in which the reader says how
//! far it has read.
//!
//! ```text
//! writer of node k                           reader of client c
//!   write lines of records  ------------->     ring k: find the next stamp, gather records
//!   credit[c]: lines read   <-------------     write how far it has read
//! ```
//!
//! A record is a line that says whose answer it is, what became of the command and how long the answer is, with its
//! first bytes, and as many more lines as it needs; it may be longer than the ring. An answer of more than [`PIECE_BYTES`] is
//! several records, and small answers go between them: nobody waits for what another one asked for
//! and what takes long to bring. A line's stamp is the writer's life and
//! the lap. A writer of a new life writes nothing before the reader has told it, by a credit for
//! that life, that it does not read the lines of the one before any more: the stamp of a line is
//! written last, so a reader cannot tell that a line changes under its eyes.
//!
//! # One node sends
//! Every node executes a command, and the answer of one of them is enough. So a gateway listens to one
//! node, and has the others hold their answers back until it says, now and then, which ones it does
//! not need any more: that costs a line instead of one for each answer. If the answer to something
//! is late, the gateway listens to all of them again ([`ReplyRingReader::listen_to`]). Nothing depends on it:
//! an answer that comes twice is given once, and one that does not come is asked for again.
//!
//! # Bounds
//! A gateway that does not read never slows a node: a writer takes no more answers for a gateway once
//! [`BACKLOG_BYTES_MAX`] wait, and drops further answers; the gateway asks again for a missing
//! answer, and a repeated request is executed once. Answers for a gateway that has not read for
//! [`ABANDONED`] are dropped, since no client waits there any more.
//!
//! An answer of more than [`ANSWER_BYTES_MAX`] is not sent; a record without bytes says how many it
//! had, so that its client gets an error at once.

mod reader;
#[cfg(test)]
mod tests;
mod writer;

use crate::clock;
use amcast_core::memory::{
    LINE_WORDS, LineStamp, MemoryInput, MemoryOutput, RegionId, RegionSpec, WriteSource,
};
use amcast_core::{ClusterShape, Outcome, Pid, ServiceAnswer, Span};
use amcast_memory::{Directory, Doorbell, MappedCarrier, MemoryError, StartOptions};
use reader::RingReader;
use writer::RingWriter;

/// Lines of a ring from a node to a gateway.
const RING_LINES: u32 = 1 << 12;

/// Bytes of answers that wait for a gateway that does not keep up, before more are dropped. The last
/// one that is taken may be as large as answers are.
pub const BACKLOG_BYTES_MAX: usize = 64 << 20;

pub use amcast_core::limits::ANSWER_BYTES_MAX;

/// How long a gateway may stand still before what waits for it is dropped: longer than any command's
/// patience.
const ABANDONED: Span = Span::secs(30);

/// How long a gateway may stand still before a node no longer looks often whether it reads again.
const STALLED: Span = Span::millis(500);

/// How often a gateway tells a node that has not answered it yet that it may begin.
const ANNOUNCE_AGAIN: Span = Span::millis(100);

/// Marks, in the length of a record, an answer that is not sent.
const NOT_SENT: u64 = 1 << 63;

/// Where, in the length of a record, the command's outcome is: two bits above the number of the piece.
const OUTCOME_SHIFT: u32 = 61;

/// A command surely was not executed only if its record says so: bits of no outcome promise
/// nothing.
fn outcome_of(length: u64) -> Outcome {
    Outcome::of_code((length >> OUTCOME_SHIFT & 3) as u8).unwrap_or(Outcome::Unknown)
}

/// An answer that was larger than is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oversize {
    /// The command's outcome.
    pub outcome: Outcome,
    /// Bytes of the answer.
    pub bytes: u64,
    /// Bytes that an answer may have.
    pub most: u64,
}

/// Words of the first line that are not the answer's.
const HEAD_WORDS: usize = 2;

/// Bytes of an answer in its first line.
const FIRST_BYTES: usize = (LINE_WORDS - HEAD_WORDS) * 8;

/// Bytes of an answer in one record: a quarter of a ring.
const PIECE_BYTES: usize = FIRST_BYTES + 1023 * LINE_WORDS * 8;

/// The approximate overhead of a waiting answer beside its bytes.
const RECORD_BYTES: usize = 64;

/// How many answers may become unneeded before a node that holds them back is notified.
const SETTLED_STEP: u64 = 64;

/// The words of a credit line.
#[derive(Clone, Copy)]
enum CreditWord {
    /// Which life of the writer it is for, and how many lines were read, the low half of that.
    Read,
    /// The setting for answers to be held back: a number of [`HeldBack`].
    HeldBack,
    /// Answers to tokens below this are not needed.
    Settled,
}

/// The answers that a node holds back because a gateway does not listen to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum HeldBack {
    #[default]
    Nothing,
    /// Answers of more than one record.
    LargeReply,
    All,
}

impl HeldBack {
    /// As a reader says it; what is no number of one holds nothing back.
    const fn of(word: u64) -> Self {
        match word {
            1 => Self::LargeReply,
            2 => Self::All,
            _ => Self::Nothing,
        }
    }
}

/// An answer, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RingReply<'a> {
    /// All of it.
    Whole(ServiceAnswer<'a>),
    /// One more piece of a large one.
    Part,
    /// It is larger than is sent.
    NotSent(Oversize),
}

/// The shape of the shared memory of a cluster: the protocol's processes, then a reader for each
/// client place, then a writer for each node.
#[derive(Clone, Copy, Debug)]
pub struct ReplyRingLayout(pub ClusterShape);

impl ReplyRingLayout {
    /// The reader of a client place.
    pub fn replies(self, client: usize) -> Pid {
        Pid((self.0.processes() + client) as u32)
    }

    /// The writer of a node.
    pub fn reply_rings(self, node: usize) -> Pid {
        Pid((self.0.processes() + self.0.clients() + node) as u32)
    }

    /// How many processes the shared memory has in all.
    pub fn processes(self) -> u32 {
        self.reply_rings(self.0.replicas()).0
    }
}

/// How many lines an answer of `bytes` bytes takes.
const fn lines_of(bytes: usize) -> u64 {
    1 + bytes.saturating_sub(FIRST_BYTES).div_ceil(LINE_WORDS * 8) as u64
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

/// Takes `n` bytes out of words.
fn unpack(words: &[u64], n: usize, to: &mut Vec<u8>) {
    let mut bytes = [0; LINE_WORDS * 8];
    for (word, chunk) in words.iter().zip(bytes.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    to.extend_from_slice(&bytes[..n]);
}

/// Line `i` of a record.
fn line_of(token: u64, length: u64, bytes: &[u8], i: u64) -> [u64; LINE_WORDS] {
    let mut words = [0; LINE_WORDS];
    if i == 0 {
        (words[0], words[1]) = (token, length);
        pack(bytes, &mut words[HEAD_WORDS..]);
    } else {
        let at = FIRST_BYTES + (i as usize - 1) * LINE_WORDS * 8;
        pack(&bytes[at..], &mut words);
    }
    words
}

/// A node's writer: writes answers to the readers of gateways.
pub struct ReplyRingWriter {
    node: usize,
    carrier: MappedCarrier,
    writers: Vec<RingWriter>,
    first_mailbox: Pid,
    outs: Vec<MemoryOutput>,
}

impl ReplyRingWriter {
    /// The memory of a writer: a line for each client.
    pub(crate) fn regions(places: ReplyRingLayout) -> Vec<RegionSpec> {
        let credit =
            |c| RegionSpec { name: "credit", lines: 1, writer: places.replies(c), guarded: false };
        (0..places.0.clients()).map(credit).collect()
    }

    /// Opens the writer of node `node`.
    ///
    /// # Errors
    /// When its memory cannot be set aside, or the node runs already.
    pub fn open(
        dir: &Directory,
        places: ReplyRingLayout,
        node: usize,
        bell: Doorbell,
    ) -> Result<Self, MemoryError> {
        let specs = Self::regions(places);
        let options = StartOptions { bell: Some(bell), ..StartOptions::default() };
        let carrier = dir.start(places.reply_rings(node), &specs, options)?;
        let writer = |c| RingWriter::new(places.replies(c), RING_LINES);
        let writers = (0..places.0.clients()).map(writer).collect();
        Ok(Self { node, carrier, writers, first_mailbox: places.replies(0), outs: Vec::new() })
    }

    /// Takes an answer for a client place; bounded, and never waits.
    pub fn push(&mut self, client: usize, token: u64, outcome: Outcome, bytes: &[u8]) {
        self.writers[client].push(token, outcome, bytes);
    }

    /// Answers that were dropped because gateways did not keep up. Only grows.
    pub fn dropped(&self) -> u64 {
        self.writers.iter().map(|w| w.dropped).sum()
    }

    /// Whether answers are held back for want of room by a gateway that may have read since: nobody
    /// rings when there is room. A gateway that does not read, as a dead one, does not count.
    pub fn has_backlog(&self) -> bool {
        let mut backlogs = self.writers.iter().filter(|w| w.backlog() > 0).peekable();
        backlogs.peek().is_some() && {
            let now = clock::now();
            backlogs.any(|w| w.is_eager(now))
        }
    }

    /// One round. Says whether anything was written.
    pub fn round(&mut self) -> bool {
        self.carrier.begin_round();
        while let Some((_, input)) = self.carrier.next_input() {
            let MemoryInput::Fresh { pid, incarnation } = input else { continue };
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
            if writer.backlog() > 0 || writer.stalled.is_some() {
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

/// A gateway's reader: reads the answers of all nodes.
pub struct ReplyRingReader {
    client: usize,
    places: ReplyRingLayout,
    carrier: MappedCarrier,
    readers: Vec<RingReader>,
    /// The node that is listened to; all if none is.
    listens_to: Option<(usize, HeldBack)>,
    /// Answers to tokens below this are not needed.
    settled: u64,
    /// The last setting sent to each node: whether to hold its answers back, and up to which token
    /// they are settled.
    told: Vec<(HeldBack, u64)>,
}

impl ReplyRingReader {
    /// The memory of a reader: a ring for each node.
    pub(crate) fn regions(places: ReplyRingLayout) -> Vec<RegionSpec> {
        let ring = |k| RegionSpec {
            name: "answers",
            lines: RING_LINES,
            writer: places.reply_rings(k),
            guarded: false,
        };
        (0..places.0.replicas()).map(ring).collect()
    }

    /// Opens the reader of a client place that this process has the lease of.
    ///
    /// # Errors
    /// When its memory cannot be set aside.
    pub fn open(
        dir: &Directory,
        places: ReplyRingLayout,
        client: usize,
        bell: Doorbell,
    ) -> Result<Self, MemoryError> {
        let nodes = places.0.replicas();
        let specs = Self::regions(places);
        let options = StartOptions { bell: Some(bell), ..StartOptions::default() };
        let carrier = dir.start(places.replies(client), &specs, options)?;
        let readers = (0..nodes).map(|_| RingReader::default()).collect();
        let (listens_to, told) = (None, vec![(HeldBack::Nothing, 0); nodes]);
        Ok(Self { client, places, carrier, readers, listens_to, settled: 0, told })
    }

    /// Has the other nodes hold answers back from now on: large ones, or `all`. With none, all nodes
    /// send all.
    pub fn listen_to(&mut self, node: Option<usize>, all: bool) {
        self.listens_to =
            node.map(|node| (node, if all { HeldBack::All } else { HeldBack::LargeReply }));
    }

    /// Nobody waits for answers to tokens below `below`.
    pub fn settle(&mut self, below: u64) {
        self.settled = below;
    }

    /// One round: passes on every arrived answer, with its node and token. The same answer may come
    /// from several nodes. Returns whether any arrived.
    pub fn round(&mut self, give: &mut dyn FnMut(usize, u64, RingReply<'_>)) -> bool {
        self.carrier.begin_round();
        while self.carrier.next_input().is_some() {}
        let mut busy = false;
        for k in 0..self.readers.len() {
            let epoch = self.carrier.peer_incarnation(self.places.reply_rings(k));
            let reader = &mut self.readers[k];
            if let Some(epoch) = epoch.filter(|_| epoch != reader.epoch) {
                reader.renew(epoch);
            }
            reader.announce_again();
            reader.settle(self.settled);
            let ring = self.carrier.window().region(RegionId(k as u16));
            let came = reader.poll(ring, &mut |token, got| give(k, token, got));
            busy |= came;
            self.tell(k, came);
        }
        busy
    }

    /// Tells the writer of node `k` what it is to know.
    fn tell(&mut self, k: usize, came: bool) {
        let others = self.listens_to.filter(|&(to, _)| to != k);
        let holds = others.map_or(HeldBack::Nothing, |(_, holds)| holds);
        let (held, settled) = self.told[k];
        let wakes = held > holds;
        let settles = holds > HeldBack::Nothing && {
            let more = self.settled - settled;
            more >= SETTLED_STEP || (more > 0 && !came)
        };
        let reader = &mut self.readers[k];
        let first = reader.told.is_none();
        let more = held != holds || settles;
        let credit = reader.credit(u64::from(RING_LINES), !came, more);
        let Some(credit) = credit else { return };
        self.told[k] = (holds, self.settled);
        let mut words = [0; LINE_WORDS];
        words[CreditWord::Read as usize] = credit;
        words[CreditWord::HeldBack as usize] = holds as u64;
        words[CreditWord::Settled as usize] = self.settled;
        let life = self.carrier.incarnation();
        self.carrier.post([&MemoryOutput::Write {
            to: self.places.reply_rings(k),
            region: RegionId(self.client as u16),
            at: 0,
            source: WriteSource::line(words, LineStamp::new(life, 0)),
            ticket: None,
            bell: came || first || wakes,
        }]);
    }
}
