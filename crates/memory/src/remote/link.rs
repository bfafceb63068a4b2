//! The accesses of a node to another one: numbered, kept until they are answered, and sent again on the next connection.

use super::agent::AgentFrames;
use super::frames::{
    ACCESS_BYTES, BELL, COUNT_AT, DENIED, FLAGS_AT, LINE_BYTES, LOST, REFUSED, RemoteAccess,
    WRITTEN, encode_open,
};
use super::inbox::RemoteFate;
use amcast_core::id::Pid;
use amcast_core::memory::{LINE_WORDS, RegionId};
use amcast_core::step::Ticket;
use std::collections::{HashMap, VecDeque};

/// How many bytes of accesses to one node may wait for it and for its answers.
pub const QUEUE_BYTES_MAX: usize = 128 << 20;

/// How many bytes of lines a node may be asked for before it has answered. A longer read is asked for by itself.
pub(super) const READS_BYTES_MAX: usize = 8 << 20;

/// Above this much that was answered and still lies in front, the queue moves up.
const ANSWERED_MAX: usize = 256 << 10;

/// An access that was handed over to the connection and is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentAccess {
    /// Its number; the first one after a start of the other node has 1.
    pub number: u64,
    /// Its bytes on the network: those of its frame, and those of the lines that it is to bring.
    pub bytes: usize,
}

/// The result of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    /// It is in the queue, and will be answered.
    Queued,
    /// Its outcome is `Lost`; it may land all the same.
    Lost,
}

/// Called for each access that is lost: process, incarnation, ticket.
pub(super) type OnLost<'a> = &'a mut dyn FnMut(Pid, u64, Ticket);

/// Called for a read that is answered: process, incarnation, ticket, and lines.
pub(super) type OnWords<'a> = &'a mut dyn FnMut(Pid, u64, Ticket, &[[u64; LINE_WORDS + 1]]);

/// An access that is not answered.
struct PendingAccess {
    number: u64,
    bytes: usize,
    /// The process that posted it, and its incarnation.
    from: (Pid, u64),
    /// None if no outcome is wanted, or it was given as `Lost` already.
    ticket: Option<Ticket>,
    /// Of a read: how many lines.
    reads: Option<u32>,
}

impl PendingAccess {
    /// Bytes of the lines that are to come.
    fn awaits(&self) -> usize {
        self.reads.map_or(0, |lines| lines as usize * LINE_BYTES)
    }
}

/// The last write to a region since the connection was lost.
struct LatestWrite {
    lines: (u32, u32),
    incarnation: u64,
    /// Where its frame begins in the bytes of the queue.
    begin: usize,
}

/// The accesses of this node to another one.
pub(crate) struct RemoteLink {
    /// The start of the other node for which the queue is; none before the first connection.
    session: Option<u64>,
    /// Whether the other node has said on this connection what it has carried out.
    open: bool,
    /// The other node has answered nothing for long, though the connection is open. Until it answers, accesses are `Lost` when
    /// they are posted.
    silent: bool,
    /// The number of the next access; the first has 1.
    next: u64,
    queue: VecDeque<PendingAccess>,
    /// The frames of the queue, one behind the other; those before `head` are answered.
    bytes: Vec<u8>,
    head: usize,
    /// Bytes of the frames of the queue.
    queued: usize,
    /// How many of the queue were handed over on this connection, and their bytes.
    sent: (usize, usize),
    /// Bytes of lines that these are to bring.
    awaited: usize,
    /// By owner and region, while there is no connection.
    latest: HashMap<(Pid, RegionId), LatestWrite>,
    /// Words of the read that is being answered.
    words: Vec<[u64; LINE_WORDS + 1]>,
    /// The queue was dropped since it was full: the connection is to be ended.
    overflowed: bool,
    /// It was, and nothing is kept until one of the two nodes has begun anew.
    drops: bool,
    /// How many bytes it may have.
    bytes_max: usize,
}

impl RemoteLink {
    pub(super) fn new() -> Self {
        Self {
            session: None,
            open: false,
            silent: false,
            next: 1,
            queue: VecDeque::new(),
            bytes: Vec::new(),
            head: 0,
            queued: 0,
            sent: (0, 0),
            awaited: 0,
            latest: HashMap::new(),
            words: Vec::new(),
            overflowed: false,
            drops: false,
            bytes_max: QUEUE_BYTES_MAX,
        }
    }

    /// Has it keep less from now on, for tests.
    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn bound(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// The memory that it takes, in bytes.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn backlog(&self) -> usize {
        self.queued
    }

    /// The oldest access that was handed over and is not answered.
    pub(super) fn oldest_sent(&self) -> Option<SentAccess> {
        let access = self.queue.front().filter(|_| self.open && self.sent.0 > 0)?;
        Some(SentAccess { number: access.number, bytes: access.bytes + access.awaits() })
    }

    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// The node's queue was dropped since the last call.
    pub(super) fn take_overflow(&mut self) -> bool {
        core::mem::take(&mut self.overflowed)
    }

    /// Whether an access that is posted now is answered later. While the other node is silent it is not, unless half of the queue
    /// is taken: then protocols wait for answers and post no more, so that the queue has room until the connection is ended.
    fn awaits_answers(&self) -> bool {
        self.open && (!self.silent || self.queued >= self.bytes_max / 2)
    }

    /// Puts an access in. `fill` appends the lines of a write.
    pub(super) fn post(
        &mut self,
        from: (Pid, u64),
        ticket: Option<Ticket>,
        mut access: RemoteAccess,
        fill: impl FnOnce(&mut Vec<u8>),
        lost: OnLost<'_>,
    ) -> Posted {
        let is_answered = self.awaits_answers();
        if !is_answered && (self.session.is_none() || access.head.is_read) {
            return Posted::Lost;
        }
        if !self.drops && self.backlog() + access.bytes() > self.bytes_max {
            self.overflow(lost);
        }
        if self.drops {
            // Its number is missing: so the other node learns of the gap.
            self.next += 1;
            return Posted::Lost;
        }
        // A `fill` that panicked has left a part of a frame.
        self.bytes.truncate(self.head + self.queued);
        let begin = self.bytes.len();
        // Without a connection, or if the other node is silent, the outcome is known: nobody waits for another one.
        access.head.wants &= is_answered;
        access.encode(self.next, &mut self.bytes);
        fill(&mut self.bytes);
        assert_eq!(self.bytes.len() - begin, access.bytes(), "as many lines as the head says");
        if !self.open && self.takes_the_place(&access, begin) {
            return Posted::Lost;
        }
        let ticket = ticket.filter(|_| is_answered);
        let (number, bytes) = (self.next, access.bytes());
        let reads = access.head.is_read.then_some(access.count);
        self.queue.push_back(PendingAccess { number, bytes, from, ticket, reads });
        self.queued += bytes;
        self.next += 1;
        if is_answered { Posted::Queued } else { Posted::Lost }
    }

    /// The write whose frame begins at `begin` is put over the last one to its region since the connection was lost, if that
    /// one is of the same lines; whether it was. No write to the region lies between them.
    fn takes_the_place(&mut self, access: &RemoteAccess, begin: usize) -> bool {
        let to = access.head.to;
        let lines = (to.at, access.count);
        let here = LatestWrite { lines, incarnation: to.incarnation, begin };
        let key = (to.pid, to.region);
        let same = |last: &&LatestWrite| last.lines == lines && last.incarnation == to.incarnation;
        let Some(last) = self.latest.get(&key).filter(same) else {
            self.latest.insert(key, here);
            return false;
        };
        let last = last.begin;
        self.bytes.copy_within(begin + ACCESS_BYTES.., last + ACCESS_BYTES);
        if access.head.bell {
            self.bytes[last + FLAGS_AT] |= BELL;
        }
        self.bytes.truncate(begin);
        true
    }

    #[cold]
    fn overflow(&mut self, lost: OnLost<'_>) {
        self.lose(lost);
        self.clear();
        (self.overflowed, self.drops) = (true, true);
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.bytes.clear();
        self.bytes.shrink_to(ANSWERED_MAX);
        self.latest.clear();
        (self.head, self.queued) = (0, 0);
        (self.sent, self.awaited) = ((0, 0), 0);
    }

    /// The connection is gone, or is not to be used: what is not answered is lost, and stays in the queue.
    pub(super) fn lose(&mut self, lost: OnLost<'_>) {
        (self.open, self.silent) = (false, false);
        (self.sent, self.awaited) = ((0, 0), 0);
        self.words.clear();
        self.latest.clear();
        let mut begin = self.head;
        for access in &mut self.queue {
            if access.reads.is_some() {
                // Its number stays in the row, and nobody wants its lines any more.
                access.reads = Some(0);
                self.bytes[begin + COUNT_AT..][..4].fill(0);
            }
            begin += access.bytes;
            if let Some(ticket) = access.ticket.take() {
                lost(access.from.0, access.from.1, ticket);
            }
        }
    }

    /// The other node has answered nothing for long, though the connection is open: accesses that are not answered are lost, and so
    /// are those that are posted until it answers. The former and all writes stay in the queue, and answers to them are nobody's.
    pub(super) fn abandon(&mut self, lost: OnLost<'_>) {
        if self.oldest_sent().is_none() || core::mem::replace(&mut self.silent, true) {
            return;
        }
        for access in &mut self.queue {
            if let Some(ticket) = access.ticket.take() {
                lost(access.from.0, access.from.1, ticket);
            }
        }
    }

    /// There is a connection: appends the frame that begins it, for the node of this `start`.
    pub(super) fn greet(&self, start: u64, to: &mut Vec<u8>) {
        let oldest = self.queue.front().map_or(self.next, |access| access.number);
        encode_open([start, self.session.unwrap_or(0), oldest], to);
    }

    /// The other node, in this start of it, has carried out everything up to the access `applied`.
    pub(super) fn opened(&mut self, start: u64, applied: u64) {
        if self.session == Some(start) {
            while self.queue.front().is_some_and(|access| access.number <= applied) {
                self.pop();
            }
        } else {
            // It was meant for memory that is gone. The other node counts from the first access again, too.
            self.clear();
            (self.session, self.next) = (Some(start), 1);
        }
        (self.sent, self.awaited) = ((0, 0), 0);
        self.latest.clear();
        (self.open, self.silent, self.drops) = (true, false, false);
    }

    /// Copies what was not handed over on this connection to the node behind what is in `to`, as long as less than `room` bytes
    /// of it are there. The caller sends them once it has let go of the queue.
    pub(super) fn hand_over(&mut self, (node, room): (usize, usize), to: &mut AgentFrames) {
        let before = self.sent.1;
        while let Some(access) = self.queue.get(self.sent.0).filter(|_| self.open) {
            let awaited = self.awaited + access.awaits();
            let is_one_too_many = self.awaited > 0 && awaited > READS_BYTES_MAX;
            if self.sent.1 - before >= room || (access.reads.is_some() && is_one_too_many) {
                break;
            }
            let begin = self.head + self.sent.1;
            let frame = &self.bytes[begin..begin + access.bytes];
            to.put(node, |bytes| bytes.extend_from_slice(frame));
            self.awaited = awaited;
            self.sent = (self.sent.0 + 1, self.sent.1 + access.bytes);
        }
    }

    /// Takes the oldest access out: the other node has answered it.
    fn pop(&mut self) -> Option<PendingAccess> {
        let access = self.queue.pop_front()?;
        self.silent = false;
        self.head += access.bytes;
        self.queued -= access.bytes;
        if self.sent.0 > 0 {
            self.awaited -= access.awaits();
        }
        self.sent = (self.sent.0.saturating_sub(1), self.sent.1.saturating_sub(access.bytes));
        if self.queue.is_empty() {
            self.bytes.clear();
            self.head = 0;
        } else if self.head > ANSWERED_MAX && self.head > self.bytes.len() / 2 {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
        Some(access)
    }

    /// Everything up to the access `number` was carried out. False if some of it was not even sent, or its outcome is
    /// missing.
    pub(super) fn carried_out(&mut self, number: u64) -> bool {
        while let Some(access) = self.queue.front().filter(|access| access.number <= number) {
            if !self.open || self.sent.0 == 0 || access.ticket.is_some() {
                return false;
            }
            self.pop();
        }
        true
    }

    /// The access `number` had this fate. False if it was not sent, or the node did not say so in order.
    pub(super) fn outcome(
        &mut self,
        number: u64,
        fate: u8,
        tell: &mut dyn FnMut(Pid, u64, Ticket, RemoteFate),
    ) -> bool {
        if number == 0 || !self.carried_out(number - 1) || self.sent.0 == 0 {
            return false;
        }
        let Some(access) = self.queue.front().filter(|access| access.number == number) else {
            return false;
        };
        let fate = match (fate, access.reads) {
            (WRITTEN, None) => RemoteFate::Written,
            (DENIED, None) => RemoteFate::Denied,
            (LOST, _) => RemoteFate::Lost,
            (REFUSED, _) => RemoteFate::Refused,
            _ => return false,
        };
        if let Some(ticket) = access.ticket {
            tell(access.from.0, access.from.1, ticket, fate);
        }
        self.pop();
        true
    }

    /// Words of the read `number`, of which there are more or not. Gives all of them once they are there. False as for
    /// [`RemoteLink::outcome`].
    pub(super) fn words(
        &mut self,
        (number, more): (u64, bool),
        lines: impl Iterator<Item = [u64; LINE_WORDS + 1]>,
        tell: OnWords<'_>,
    ) -> bool {
        if number == 0 || !self.carried_out(number - 1) || self.sent.0 == 0 {
            return false;
        }
        let Some(access) = self.queue.front().filter(|access| access.number == number) else {
            return false;
        };
        let (from, ticket) = (access.from, access.ticket);
        let Some(wanted) = access.reads else { return false };
        self.words.extend(lines);
        let have = self.words.len() as u64;
        if have > u64::from(wanted) || (!more && have < u64::from(wanted)) {
            return false;
        }
        if !more {
            if let Some(ticket) = ticket {
                tell(from.0, from.1, ticket, &self.words);
            }
            self.words.clear();
            self.pop();
        }
        true
    }
}
