//! Fetching: the leader reads from a follower's memory the records that do not reach its own.
//!
//! ```text
//! client          leader           follower
//!   |--HM[c]---X    |                 |          the link to the leader fails, and stays so
//!   |--HM[c]------------------------->|
//!   |               |<---row: c------ |          overdue there, for longer than a suspicion
//!   |               |--read HM[c]---->|
//!   |               |--read holder--->|          still the same holder: the records are whole
//!   |               |--LOG----------->|          as of a record that the leader finds in its own buffer
//! ```
//!
//! A client, or a leader of another group, whose link to the leader of this group fails, in one direction or both, does
//! not notice that: it writes to the other replicas as before, and they tell it how far the group is. Which of the
//! followers' buffers hold something that the leader has not taken up, [`super::overdue`] says.
//!
//! # Why nothing is ordered twice, or in another order
//! 1. *A place in a buffer has one record.* A client writes the same lines to the same positions of its buffer at every
//!    replica, under one lease; the leaders of another group write the same records to the same positions, as their
//!    group has decided them. So a record that a follower holds at a position is the record that the leader's own
//!    buffer has there, or will have.
//! 2. *The cursor decides.* A fetched record is taken up only if it begins at the leader's cursor for that source when it
//!    arrives, under the cursor's lease; taking it moves the cursor behind it, as a record from the own buffer does. So each
//!    source's records enter the log in the order of their positions, each once, from either memory. A record that the leader
//!    has taken up from its own buffer meanwhile is dropped when it arrives a second time.
//! 3. *The log does not say from where a record came.* It names the source, and later leaders and followers compute the
//!    cursors from it. So a takeover in the middle of a fetch is one like any other: the log either has the record, and
//!    the new leader's cursor is behind it, or it has not.
//! 4. *A fetch belongs to a term.* An answer to a leader of an earlier term is dropped.
//!
//! So the log has, for each source, the same sequence of records as without a fetch, and each property that follows from
//! that is as it was: integrity, prefix order, acyclic order; the tree, the timestamps and flow control are computed from the log.
//! A writer's lines are used again when any replica tells that its group has decided them, as before.
//!
//! # Why a fetched record is whole
//! The lines of a read may be of different ages, and a line that is being written over shows new words under its old stamp. Lines at
//! the cursor are written over in two cases:
//! - *By a later holder of the client's place*, from position 0 on. It writes the holder line first. The leader reads the holder
//!   line at the same follower when the records have arrived: if that names the lease still, nothing was written over when
//!   the records were read.
//! - *By the same writer, a lap later*. Then the group has decided a record at the cursor that is not in this leader's log: a later
//!   leader has, under a term that a quorum has installed. This leader's writes are denied by one replica of each quorum from then on, so
//!   nothing that it appends is decided, and no candidate adopts its log. In RamCast a leader also counts a proposal that is
//!   only in its own log, but not one that it has fetched; and its clock, which other groups hear of before it is decided,
//!   passes the timestamps in records that it takes up. So the first line of a read is read once more: a group's writer
//!   writes in the order of positions, so nothing behind a line was written over while that is the same, stamp and all.
//!
//! # When it is live
//! Let the writer reach some follower that is caught up and that the leader reaches. The record lies there after a write; the
//! follower names its source within two suspicions for each other source that is overdue; the leader reads it with the follower's next
//! heartbeat. So each record of a correct writer is in the log within a bounded time, if a majority of the group is
//! connected and its leader lasts. A pad before the record, a record longer than [`READ_LINES`] and a new lease take one
//! more read each.
//!
//! # Limits
//! One fetch at a time, of [`READ_LINES`] or one record, and [`READS_IN_A_ROW`] of one source. A read of a process that does not
//! answer is answered `Lost` by the carrier, like every access. If the log is full the fetch ends, and the next hint begins another.

use super::buffer;
use super::incoming::WRONG_PAD;
use super::leader::{PARENT_EPOCH, SourceBuffer};
use super::mutants::TramMutant;
use super::overdue::holder_in;
use super::replica::{BufferCursor, ReplicaPhase, TramReplica};
use super::ring::{RecordRing, RingRecord, RingRecordKind};
use super::ticket::TicketRequest;
use alloc::vec::Vec;
use amcast_core::Outbox;
use amcast_core::memory::{
    AccessOutcome, CacheLine, LINE_WORDS, LineRange, LineStamp, Memory, MemoryOutput, RegionWindow,
};

/// How many lines of a follower's buffer the leader reads at a time, but for a longer record.
const READ_LINES: u32 = 64;

/// How many such reads follow each other, before another source has its turn.
const READS_IN_A_ROW: u32 = 16;

/// A line and its stamp, as read from another process.
type ReadLine = [u64; LINE_WORDS + 1];

/// The records that a leader reads from its followers.
#[derive(Debug)]
pub(crate) struct FollowerFetches {
    current: Option<RecordFetch>,
    /// By rank: the heartbeat with which the follower's hint was followed last.
    tried: Vec<u64>,
    /// The follower whose hint was followed last.
    last: usize,
}

impl FollowerFetches {
    pub(crate) fn new(replicas: usize) -> Self {
        Self { current: None, tried: alloc::vec![0; replicas], last: 0 }
    }
}

/// A follower's copy of a buffer.
#[derive(Clone, Copy, Debug)]
struct BufferCopy {
    /// The follower.
    rank: usize,
    source: usize,
    /// Of another group: the rank whose buffer it is.
    writer: usize,
}

/// A read of records that a follower holds. See the [module](self).
#[derive(Clone, Debug)]
struct RecordFetch {
    from: BufferCopy,
    /// The lease of the records; the epoch of their stamps.
    lease: u32,
    /// The cursor that they are for.
    next: u64,
    /// Where the lines begin: there, or behind a pad.
    pos: u64,
    /// How many reads of this source may follow.
    left: u32,
    stage: FetchStage,
}

#[derive(Clone, Debug)]
enum FetchStage {
    /// Waiting for lines of the buffer.
    Reading,
    /// These lines were read. Waiting for the holder line, if the buffer is a client's; else for the first of them once more.
    Confirming(Vec<ReadLine>),
}

/// The record that begins with the first line of a read.
enum FirstRecord {
    /// None.
    Absent,
    /// A pad up to here.
    Pad(u64),
    /// A record of more lines than were read.
    Longer(u32),
    Whole,
}

impl TramReplica {
    /// A leader's: begins to read what a follower holds, if one says so.
    pub(crate) fn fetch_overdue(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return };
        if leader.fetches.current.is_some() {
            return;
        }
        let hint = |rank: usize| {
            let row = self.rows.peers[rank].row?;
            let new = row.beat != leader.fetches.tried[rank];
            Some((rank, row.overdue.filter(|_| new)?, row.beat))
        };
        let (n, last) = (self.place.n, leader.fetches.last);
        let mut ranks = (1..=n).map(|ahead| (last + ahead) % n).filter(|&r| r != self.place.rank);
        let Some((rank, overdue, beat)) = ranks.find_map(hint) else { return };
        (leader.fetches.tried[rank], leader.fetches.last) = (beat, rank);
        let (source, writer) = (usize::from(overdue.source), usize::from(overdue.writer));
        let from = BufferCopy { rank, source, writer };
        if self.misses_next_of(source, view) && !self.mutants.is(TramMutant::FetchesNothing) {
            self.fetch_next(from, READS_IN_A_ROW, out);
        }
    }

    /// Whether the leader would take up the next record of a source, and its own buffer has none.
    fn misses_next_of(&self, source: usize, view: RegionWindow<'_>) -> bool {
        let ReplicaPhase::Leader(leader) = &self.phase else { return false };
        let Some(&BufferCursor { lease, next, broken, .. }) = leader.taken.get(source) else {
            return false;
        };
        if source >= self.buffers.parent_source() {
            return self.group_read(source).is_some() && !self.has_of_group(source, next, view);
        }
        let owed = self.exchange.as_ref().is_some_and(|exchange| exchange.is_owed(source));
        let ring = self.layout.hm_client(source);
        let has = ring.read(view.region(ring.region), next, lease).is_some();
        // A record there may be of a holder that was refused, or made for an earlier tree.
        let joined = leader.trees.as_ref().is_none_or(|trees| trees.has_joined(source));
        !owed && (!has || broken || !joined)
    }

    /// Reads what a follower holds at the cursor of a source.
    fn fetch_next(&mut self, from: BufferCopy, left: u32, out: &mut Outbox<Memory>) {
        let BufferCursor { lease, next, .. } = self.leader().taken[from.source];
        let is_client = from.source < self.buffers.parent_source();
        let lease = if is_client { lease } else { PARENT_EPOCH };
        let stage = FetchStage::Reading;
        let fetch = RecordFetch { from, lease, next, pos: next, left, stage };
        self.read_lines(fetch, READ_LINES, out);
    }

    /// The ring from which a fetch reads, in the follower's memory.
    fn ring_of(&self, fetch: &RecordFetch) -> Option<RecordRing> {
        if fetch.from.source < self.buffers.parent_source() {
            return Some(self.layout.hm_client(fetch.from.source));
        }
        Some(self.buffer_of(self.group_read(fetch.from.source)?, fetch.from.writer))
    }

    fn read_lines(&mut self, fetch: RecordFetch, count: u32, out: &mut Outbox<Memory>) {
        let Some(ring) = self.ring_of(&fetch).filter(|_| fetch.left > 0) else { return };
        let count = count.min(ring.left_at(fetch.pos));
        let fetch = RecordFetch { left: fetch.left - 1, stage: FetchStage::Reading, ..fetch };
        let at = ring.at(fetch.pos);
        self.post_fetch(fetch, LineRange { region: ring.region, at, count }, out);
    }

    fn read_holder(&mut self, fetch: RecordFetch, lines: &[ReadLine], out: &mut Outbox<Memory>) {
        let ring = self.layout.hm_client(fetch.from.source);
        let fetch = RecordFetch { stage: FetchStage::Confirming(lines.to_vec()), ..fetch };
        let (region, at) = (ring.region, buffer::HOLDER);
        self.post_fetch(fetch, LineRange { region, at, count: 1 }, out);
    }

    fn post_fetch(&mut self, fetch: RecordFetch, lines: LineRange, out: &mut Outbox<Memory>) {
        let (of, rank) = (self.pid(fetch.from.rank), fetch.from.rank);
        let LineRange { region, at, count } = lines;
        out.mark("tram-reads-follower");
        let leader = self.leader();
        let ticket = TicketRequest::Fetch { rank, epoch: leader.epoch }.ticket();
        leader.fetches.current = Some(fetch);
        out.ask(MemoryOutput::Read { of, region, at, count, ticket });
    }

    fn read_first(
        &mut self,
        fetch: RecordFetch,
        ring: &RecordRing,
        lines: &[ReadLine],
        out: &mut Outbox<Memory>,
    ) {
        let (region, at) = (ring.region, ring.at(fetch.pos));
        let fetch = RecordFetch { stage: FetchStage::Confirming(lines.to_vec()), ..fetch };
        self.post_fetch(fetch, LineRange { region, at, count: 1 }, out);
    }

    /// An answer to a read of a leader of that term.
    pub(crate) fn fetch_answered(
        &mut self,
        epoch: u32,
        outcome: AccessOutcome<'_>,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) {
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return };
        if leader.epoch != epoch {
            return;
        }
        let Some(mut fetch) = leader.fetches.current.take() else { return };
        let AccessOutcome::Words(lines) = outcome else { return };
        match core::mem::replace(&mut fetch.stage, FetchStage::Reading) {
            FetchStage::Reading => self.lines_fetched(fetch, lines, out),
            FetchStage::Confirming(records) => {
                let is_client = fetch.from.source < self.buffers.parent_source();
                match lines.first() {
                    Some(holder) if is_client => {
                        self.holder_fetched((fetch, &records), &line_of(holder), view, out);
                    }
                    Some(first) if records.first() == Some(first) => {
                        self.take_fetched(fetch, &records, view, out);
                    }
                    _ => {}
                }
            }
        }
    }

    fn lines_fetched(&mut self, fetch: RecordFetch, lines: &[ReadLine], out: &mut Outbox<Memory>) {
        let Some(ring) = self.ring_of(&fetch) else { return };
        let is_client = fetch.from.source < self.buffers.parent_source();
        match first_record(&ring, (fetch.pos, fetch.lease), lines) {
            FirstRecord::Pad(upto) if fetch.pos == fetch.next => {
                self.read_lines(RecordFetch { pos: upto, ..fetch }, READ_LINES, out);
            }
            FirstRecord::Longer(count) => self.read_lines(fetch, count, out),
            FirstRecord::Whole if is_client => self.read_holder(fetch, lines, out),
            FirstRecord::Whole => self.read_first(fetch, &ring, lines, out),
            // Another holder may have begun.
            FirstRecord::Pad(_) | FirstRecord::Absent if is_client => {
                self.read_holder(fetch, &[], out);
            }
            FirstRecord::Pad(_) | FirstRecord::Absent => {}
        }
    }

    /// The holder line of a client's buffer, which was read behind these lines of it.
    fn holder_fetched(
        &mut self,
        (fetch, lines): (RecordFetch, &[ReadLine]),
        holder: &CacheLine,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) {
        let (source, holder) = (fetch.from.source, core::slice::from_ref(holder));
        let before = self.leader().taken[source];
        if !self.follow_holder(source, holder, view) {
            return;
        }
        let cursor = self.leader().taken[source];
        if (cursor.lease, cursor.next) != (before.lease, before.next) {
            // It joined the present tree: what is made for that begins elsewhere.
            self.lead(view, out);
            return self.fetch_next(fetch.from, fetch.left, out);
        }
        let Some(lease) = holder_in(holder) else { return };
        if lease == fetch.lease && cursor.broken {
            return;
        }
        if lease == fetch.lease || self.mutants.is(TramMutant::FetchesUnconfirmed) {
            self.take_fetched(fetch, lines, view, out);
        } else if lease > fetch.lease && !self.has_changed_tree_at_end() {
            self.read_lines(RecordFetch { lease, next: 0, pos: 0, ..fetch }, READ_LINES, out);
        }
    }

    /// Whether the records of a fetch begin at the cursor. A new lease of a client's place begins at 0.
    fn is_at_cursor(&mut self, fetch: &RecordFetch) -> bool {
        let is_client = fetch.from.source < self.buffers.parent_source();
        let cursor = &mut self.leader().taken[fetch.from.source];
        let is_same = !is_client || cursor.lease == fetch.lease;
        is_same && cursor.next == fetch.next
    }

    /// Turns to a new holder of a client's place, whose first record was fetched.
    fn begin_fetched_lease(&mut self, fetch: &RecordFetch) {
        let is_client = fetch.from.source < self.buffers.parent_source();
        if !is_client || self.has_changed_tree_at_end() || fetch.next != 0 {
            return;
        }
        let told = self.buffers.holders[fetch.from.source];
        let cursor = &mut self.leader().taken[fetch.from.source];
        if fetch.lease > cursor.lease {
            let (lease, number) = (fetch.lease, cursor.number);
            let probe = lease < told;
            *cursor = BufferCursor { lease, probe, number, ..BufferCursor::default() };
        }
    }

    // [TRAM 2:14-16] the next log entry is a copy of the message with its header, wherever that lies.
    fn take_fetched(
        &mut self,
        fetch: RecordFetch,
        lines: &[ReadLine],
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) {
        let Some(ring) = self.ring_of(&fetch) else { return };
        if lines.is_empty() {
            return;
        }
        self.begin_fetched_lease(&fetch);
        if !self.is_at_cursor(&fetch) && !self.mutants.is(TramMutant::FetchesAnew) {
            out.mark("tram-fetched-twice");
            return;
        }
        let before = self.leader().taken[fetch.from.source].next;
        self.take_lines(&fetch, &ring, lines, view, out);
        if self.leader().taken[fetch.from.source].next == before {
            return;
        }
        out.mark("tram-fetches");
        self.lead(view, out);
        self.fetch_next(fetch.from, fetch.left, out);
    }

    /// Takes up the records that lie in lines of a follower's buffer, as far as they are whole and there is room.
    fn take_lines(
        &mut self,
        fetch: &RecordFetch,
        ring: &RecordRing,
        lines: &[ReadLine],
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) {
        let (source, epoch) = (fetch.from.source, fetch.lease);
        let is_client = source < self.buffers.parent_source();
        let count = lines.len() as u32;
        let made = RecordRing { base: 0, lines: count, lap: count, ..*ring };
        let copy: Vec<CacheLine> = (fetch.pos..)
            .zip(lines)
            .map(|(pos, line)| {
                let is_of_lap = line[LINE_WORDS] == ring.stamp(pos, epoch).0;
                let stamp = if is_of_lap { made.stamp(0, epoch) } else { LineStamp::default() };
                stamped(line, stamp)
            })
            .collect();
        let mut at = 0;
        while at < u64::from(count) {
            let Some(record) = made.read(&copy, at, epoch) else { return };
            if record.kind == RingRecordKind::Pad {
                return;
            }
            let pos = fetch.pos + at;
            if !is_client {
                let next = if at == 0 { fetch.next } else { pos };
                let wrong = self.flaw_in_group(source, (&made, &copy), at, &record);
                let wrong =
                    wrong.or((ring.start(next, record.lines()) != pos).then_some(WRONG_PAD));
                if let Some(wrong) = wrong {
                    return self.refuse_of_group(source, ring, wrong, out);
                }
            }
            if at == 0 {
                // Behind the pad.
                self.leader().taken[source].next = pos;
            }
            let is_fetched = true;
            let from = SourceBuffer { ring: &made, lines: &copy, epoch, pos: at, is_fetched };
            if !self.take(source, from, &record, view, out) {
                return;
            }
            at += u64::from(record.lines());
        }
    }
}

/// The record at a position under an epoch; these lines were read from there on.
fn first_record(ring: &RecordRing, (pos, epoch): (u64, u32), lines: &[ReadLine]) -> FirstRecord {
    let stamp = ring.stamp(pos, epoch).0;
    let Some(first) = lines.first().filter(|first| first[LINE_WORDS] == stamp) else {
        return FirstRecord::Absent;
    };
    let Some(record) = RingRecord::parse(&words_of(first)) else { return FirstRecord::Absent };
    let count = record.lines();
    if count == 0 || count > ring.left_at(pos) {
        return FirstRecord::Absent;
    }
    if record.kind == RingRecordKind::Pad {
        return FirstRecord::Pad(pos + u64::from(count));
    }
    let Some(all) = lines.get(..count as usize) else { return FirstRecord::Longer(count) };
    let is_whole = all.iter().all(|line| line[LINE_WORDS] == stamp);
    if is_whole { FirstRecord::Whole } else { FirstRecord::Absent }
}

fn words_of(line: &ReadLine) -> [u64; LINE_WORDS] {
    core::array::from_fn(|i| line[i])
}

fn stamped(line: &ReadLine, stamp: LineStamp) -> CacheLine {
    let made = CacheLine::default();
    made.put(&words_of(line), stamp);
    made
}

/// A line as it was read.
fn line_of(line: &ReadLine) -> CacheLine {
    stamped(line, LineStamp(line[LINE_WORDS]))
}
