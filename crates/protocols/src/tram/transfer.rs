//! State transfer: the return of a replica that lags, or lost its memory in a crash.
//!
//! The reader asks one replica that is caught up, the source, through its row. The source captures
//! its application's state at some position, and streams it with its own cursors through a ring in
//! the reader's memory; until it is released it holds back its own `need`, so the log keeps
//! everything after that position. The reader installs the state and continues from the log.
//!
//! A reader that lost its memory has also lost its promises. Before it makes any, it hears from
//! f + 1 fit replicas and promises the highest epoch among theirs: every quorum that it may have
//! helped to form has a member among them. Until it has the log it only lets an established leader
//! write to it (`Join`), and helps no candidate.
//!
//! A reader that has the log follows it like the others and votes. But it is caught up only when
//! its application has installed the state: until then it neither leads nor gives state, and no
//! other reader counts on it. So at most a minority of a group is ever missing executed commands,
//! unless more than a minority failed at one time; then the rest waits for ever rather than forget.

use super::layout::{EpochPromise, PromiseGrant, ReplicaRow};
use super::mutants::TramMutant;
use super::replica::{BufferCursor, ReplicaHealth, TramReplica};
use super::ring::{RingRecord, RingRecordKind, lines_of};
use super::ticket::TicketRequest;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::memory::{LineRange, Memory, MemoryOutput, RegionWindow, WriteSource};
use amcast_core::step::{Note, Ticket};
use amcast_core::{GroupSet, MsgId, Outbox, Output, ProtocolEvent, Time, messages};

/// How often the timeout of a source doubles: from 4 suspicions' time up to 512.
const STUCK_MAX: u32 = 7;

/// No ring ever reaches this position: at a line each nanosecond it would take two years.
const POSITION_MAX: u64 = 1 << 56;

/// The reader's side.
#[derive(Debug)]
pub(super) struct IncomingTransfer {
    /// It forgot its promises, too.
    pub(super) crashed: bool,
    /// The promise floor is known, so it may promise again.
    floor_known: bool,
    donor: Option<usize>,
    attempt: u32,
    /// Attempts that were given up because nothing arrived: each gets twice the time of the one
    /// before, since the application may be slow, and not the source. Arriving pieces do not lower
    /// it: the pieces of an attempt that was given up are of no use, and a state of several slow
    /// pieces would be begun anew for ever.
    stuck: u32,
    /// When something last moved.
    moved: Time,
    /// The donor's ring is read up to here.
    read: u64,
    /// Bytes of the head that came so far; then the head.
    head_bytes: Vec<u8>,
    head: Option<Head>,
    /// Application bytes that came so far.
    got: u64,
    /// The application's position: an older state is not taken.
    least: u64,
}

/// The head of a state stream.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Head {
    /// The log position of the state.
    position: u64,
    /// The last delivery in it.
    delivered: u64,
    /// The cursors stand at this later position.
    cursors_from: u64,
    sources: Vec<(u32, u64)>,
    edges: Vec<(u64, u64)>,
    /// Bytes of the application's state.
    bytes: u64,
}

/// The result of reading bytes of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FeedResult {
    /// The application is still to be given more.
    More,
    /// The application has been given the whole state.
    Last,
}

/// The donor's side.
#[derive(Debug)]
pub(super) struct OutgoingTransfer {
    reader: usize,
    attempt: u32,
    /// The number of this transfer among those of this replica.
    serial: u32,
    stream: Option<Stream>,
    /// Its reader has lost it.
    void: bool,
}

#[derive(Debug)]
struct Stream {
    /// The encoded head, with its length in front.
    head: Vec<u8>,
    /// Bytes of the application's state.
    bytes: u64,
    /// Bytes of head and state that were staged.
    staged: u64,
    /// The ring's position behind them.
    pos: u64,
    /// A piece of the state is on its way from the application.
    asked: bool,
    /// The first log position that the reader will need.
    need: u64,
}

impl IncomingTransfer {
    fn new(crashed: bool, least: u64) -> Self {
        Self {
            crashed,
            least,
            floor_known: !crashed,
            donor: None,
            attempt: 0,
            stuck: 0,
            moved: Time::ZERO,
            read: 0,
            head_bytes: Vec::new(),
            head: None,
            got: 0,
        }
    }

    pub(super) fn after_crash() -> Self {
        Self::new(true, 0)
    }

    pub(super) fn left_behind(consumed: u64) -> Self {
        Self::new(false, consumed)
    }

    fn complete(&self) -> bool {
        self.head.as_ref().is_some_and(|h| self.got == h.bytes)
    }
}

impl TramReplica {
    /// Whether it may promise anything: not before it knows what it may have promised in an
    /// earlier life.
    pub(super) const fn may_promise(&self) -> bool {
        match &self.health {
            ReplicaHealth::Fit | ReplicaHealth::Following(_) => true,
            ReplicaHealth::Lacking(intake) => intake.floor_known,
        }
    }

    /// Whether its promises may not help a candidate.
    pub(super) const fn lost_memory(&self) -> bool {
        match &self.health {
            ReplicaHealth::Fit | ReplicaHealth::Following(_) => false,
            ReplicaHealth::Lacking(intake) => intake.crashed,
        }
    }

    /// Puts into the row what it asks for.
    pub(super) fn ask_for_state(&self, row: &mut ReplicaRow) {
        (row.donor, row.attempt, row.read) = match &self.health {
            ReplicaHealth::Fit | ReplicaHealth::Following(_) => (None, row.attempt, 0),
            ReplicaHealth::Lacking(i) => (i.donor.map(|d| d as u8), i.attempt, i.read),
        };
    }

    /// The reader's part of a poll.
    pub(super) fn take_in(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        if self.follows() {
            return;
        }
        self.find_floor();
        self.choose_donor(out);
        self.read_stream(view, out);
        self.finish_intake(view, out);
    }

    fn find_floor(&mut self) {
        let ReplicaHealth::Lacking(intake) = &mut self.health else { return };
        if intake.floor_known {
            return;
        }
        // Its memory was empty at the start: any row there was written in this incarnation.
        let fit = self.peers.iter().filter_map(|p| p.row).filter(|row| row.fit);
        if fit.clone().count() < self.quorum {
            return;
        }
        let floor = fit.map(|row| row.promise.epoch).max().unwrap_or(0);
        intake.floor_known = true;
        self.epoch_seen = self.epoch_seen.max(floor);
        if floor > self.promise.epoch {
            self.promise = EpochPromise { epoch: floor, ..EpochPromise::default() };
        }
    }

    /// Asks a fit replica, rather one that does not lead and is far.
    fn choose_donor(&mut self, out: &mut Outbox<Memory>) {
        let leader = super::layout::rank_of(self.promise.epoch);
        let ReplicaHealth::Lacking(intake) = &self.health else { return };
        let patience = self.heartbeat.patience(self.rank).times(4 << intake.stuck.min(STUCK_MAX));
        let works = |r: usize| {
            let fit = self.peers[r].row.is_some_and(|row| row.fit && row.consumed >= intake.least);
            r != self.rank && fit && !self.heartbeat.suspects(self.now, r)
        };
        let stuck = self.now.since(intake.moved) > patience;
        let going = intake.donor.is_some_and(|d| works(d) && !stuck);
        if going || intake.complete() || !intake.floor_known {
            return;
        }
        let far = |r: &usize| {
            let consumed = self.peers[*r].row.map_or(0, |row| row.consumed);
            (intake.donor != Some(*r), *r != leader, consumed)
        };
        let Some(donor) = (0..self.n).filter(|&r| works(r)).max_by_key(far) else { return };
        let gives_up = u32::from(intake.donor.is_some() && stuck);
        if let ReplicaHealth::Lacking(intake) = &mut self.health {
            intake.stuck += gives_up;
        }
        self.ask(donor, out);
    }

    /// Drops the pieces of a state: the next source is asked for all of it.
    fn drop_state(&mut self) {
        let ReplicaHealth::Lacking(intake) = &mut self.health else { return };
        intake.donor = None;
        (intake.read, intake.got, intake.head) = (0, 0, None);
        intake.head_bytes.clear();
    }

    fn ask(&mut self, donor: usize, out: &mut Outbox<Memory>) {
        let now = self.now;
        self.drop_state();
        let ReplicaHealth::Lacking(intake) = &mut self.health else { return };
        if intake.stuck > 0 {
            out.mark("tram-asks-again");
        }
        intake.donor = Some(donor);
        intake.attempt = intake.attempt.max(self.row.attempt) + 1;
        intake.moved = now;
        self.row_due = true;
    }

    fn read_stream(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let now = self.now;
        let shape = (self.sources.len(), self.edges.len());
        let ReplicaHealth::Lacking(intake) = &mut self.health else { return };
        let Some(donor) = intake.donor else { return };
        let ring = self.layout.xfer(donor);
        let region = view.region(ring.region);
        let mut chunk = Vec::new(); // Returning from a crash is not the hot path.
        let before = intake.read;
        while let Some(record) = ring.read(region, intake.read, intake.attempt) {
            if record.kind == RingRecordKind::State {
                chunk.clear();
                let whole = ring.payload(region, intake.read, intake.attempt, &record, &mut chunk);
                // Nothing of a piece that is not whole goes to the application.
                let fed = if whole { intake.feed(&chunk, shape, out) } else { Err(()) };
                match fed {
                    Ok(FeedResult::Last) => {
                        (self.installs, self.installed) = (self.installs + 1, 0)
                    }
                    Ok(FeedResult::More) => {}
                    Err(()) => {
                        let from = self.config.cluster().replica(self.group, donor);
                        out.note(Note::Malformed(from, "state"));
                        self.drop_state();
                        return;
                    }
                }
            }
            intake.read += u64::from(record.lines());
        }
        if intake.read != before {
            intake.moved = now;
            self.row_due = true;
        }
    }

    /// The state is complete; once the log continues from its position, this replica follows it,
    /// and is caught up when the application has installed the state.
    fn finish_intake(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let ReplicaHealth::Lacking(intake) = &self.health else { return };
        if !intake.complete() {
            return;
        }
        let head = intake.head.as_ref().expect("complete");
        let Some(log) = self.in_force(view).filter(|log| log.epoch == self.promise.epoch) else {
            return;
        };
        let Some(control) = log.control() else { return };
        if control.tail > head.position || head.edges.iter().any(|&(log, _)| log < control.tail) {
            // The log has moved past the state: requests it again, from the same source, or from
            // another one if that one has restarted meanwhile.
            out.mark("tram-state-too-old");
            match intake.donor {
                Some(donor) => self.ask(donor, out),
                None => {
                    out.mark("tram-donor-started-anew");
                    self.drop_state();
                }
            }
            return;
        }
        let head = head.clone();
        (self.consumed, self.delivered, self.applied) =
            (head.position, head.delivered, head.delivered);
        self.clear = head.position;
        self.decided = self.decided.max(head.position);
        self.cursors_from = head.cursors_from;
        for (source, &(lease, next)) in self.sources.iter_mut().zip(&head.sources) {
            *source = BufferCursor { lease, next, ..BufferCursor::default() };
        }
        for (edge, &(log, at)) in self.edges.iter_mut().zip(&head.edges) {
            (edge.log, edge.out) = (log, at);
        }
        self.health = ReplicaHealth::Following(head.delivered);
        if self.promise.grant == PromiseGrant::Join {
            // It has the whole log again: it answers like the others from now on.
            self.promise.grant = PromiseGrant::Full;
        }
        self.row_due = true;
        self.become_fit(out);
    }

    /// The application has a state in force that holds every delivery up to `position`.
    pub(super) fn installed(&mut self, position: u64, installs: u64, out: &mut Outbox<Memory>) {
        // A state given before the last one says nothing of that, at any position.
        if installs >= self.installs {
            self.installed = self.installed.max(position);
            self.become_fit(out);
        }
    }

    /// The application needs state of another group, and of this one that depends on it.
    pub(super) fn unfit(&mut self) {
        if self.is_fit() {
            self.installed = 0;
            self.health = ReplicaHealth::Following(self.applied);
            self.row_due = true;
        }
    }

    fn become_fit(&mut self, out: &mut Outbox<Memory>) {
        let ReplicaHealth::Following(awaited) = self.health else { return };
        if self.installed < awaited && !self.mutants.is(TramMutant::TrustsTheLog) {
            return;
        }
        self.health = ReplicaHealth::Fit;
        self.row_due = true;
        out.event(ProtocolEvent::CaughtUp(self.delivered));
    }

    /// The donor's part of a poll.
    pub(super) fn donate(&mut self, out: &mut Outbox<Memory>) {
        if let Some(donation) = &self.donation {
            let row = self.peers[donation.reader].row;
            let still = row.is_some_and(|row| {
                !row.follows
                    && row.donor == Some(self.rank as u8)
                    && row.attempt == donation.attempt
                    && !self.heartbeat.suspects(self.now, donation.reader)
            });
            if !still || donation.void || !self.is_fit() {
                out.push(Output::Release { ticket: donation.ticket() });
                self.donation = None;
            }
        }
        if self.donation.is_none() && self.is_fit() && self.staged == 0 {
            let asks = |r: &usize| {
                let row = self.peers[*r].row;
                *r != self.rank
                    && row.is_some_and(|row| {
                        // A transfer that broke off is not begun again: the reader has read part of
                        // it.
                        !row.follows
                            && row.donor == Some(self.rank as u8)
                            && row.attempt != self.served[*r]
                    })
                    && !self.heartbeat.suspects(self.now, *r)
            };
            let Some(reader) = (0..self.n).find(asks) else { return };
            let attempt = self.peers[reader].row.expect("it asks").attempt;
            self.served[reader] = attempt;
            self.donations += 1;
            let serial = self.donations;
            let donation = OutgoingTransfer { reader, attempt, serial, stream: None, void: false };
            let ticket = donation.ticket();
            self.donation = Some(donation);
            out.push(Output::Capture { ticket, reader: self.pid(reader) });
            return;
        }
        self.stream_on(out);
    }

    /// The application's state is at hand.
    pub(super) fn captured(
        &mut self,
        ticket: Ticket,
        position: u64,
        bytes: u64,
        out: &mut Outbox<Memory>,
    ) {
        let Some(donation) = self.donation.as_mut().filter(|d| d.ticket() == ticket) else {
            return;
        };
        // Nothing that was delivered is missing in it: then what was consumed after the last
        // delivery is in it, too.
        // And what is clear holds no delivery beyond the ones that were applied. It is not moved
        // here: the state may stand at a delivery that is not applied, and the next one lower.
        let at = if position >= self.delivered { self.consumed } else { position.max(self.clear) };
        let head = Head {
            position: at,
            delivered: position,
            cursors_from: self.consumed,
            sources: self.sources.iter().map(|s| (s.lease, s.next)).collect(),
            edges: self.edges.iter().map(|e| (e.log, e.out)).collect(),
            bytes,
        };
        let mut encoded = Vec::new();
        head.encode(&mut encoded);
        let mut framed = Vec::new();
        encoded.encode(&mut framed);
        let need = self.edges.iter().map(|e| e.log).fold(at, u64::min);
        let stream = Stream { head: framed, bytes, staged: 0, pos: 0, asked: false, need };
        donation.stream = Some(stream);
        self.stream_on(out);
    }

    /// Asks for the next piece if the reader's ring has room for it. The head goes through the
    /// same way: it is given as pieces of its own.
    fn stream_on(&mut self, out: &mut Outbox<Memory>) {
        let max = u64::from(self.layout.piece_max());
        let ring = self.layout.stage();
        let Some(donation) = &mut self.donation else { return };
        let ticket = donation.ticket();
        let row = self.peers[donation.reader].row.filter(|row| row.attempt == donation.attempt);
        let read = row.map_or(0, |row| row.read);
        let Some(stream) = &mut donation.stream else { return };
        let head = stream.head.len() as u64;
        if stream.asked || stream.staged == head + stream.bytes {
            return;
        }
        let room = ring.after(stream.pos, lines_of(max as u32)) - read.min(stream.pos);
        if room > u64::from(ring.lines) {
            return;
        }
        stream.asked = true;
        let offset = stream.staged.saturating_sub(head);
        // Of the head nothing is asked of the application, but the answer comes in a step that has
        // the window: an empty piece.
        let bytes = if stream.staged < head { 0 } else { max.min(stream.bytes - offset) };
        out.push(Output::Piece { ticket, offset, bytes: bytes as u32 });
    }

    /// A piece of the state: stages it, and writes it to the reader.
    pub(super) fn piece(
        &mut self,
        view: RegionWindow<'_>,
        ticket: Ticket,
        offset: u64,
        bytes: &[u8],
        out: &mut Outbox<Memory>,
    ) {
        let max = self.layout.piece_max() as usize;
        let (stage, xfer) = (self.layout.stage(), self.layout.xfer(self.rank));
        // To a new life of the reader nothing more of an old stream may be written.
        let mine = |d: &&mut OutgoingTransfer| d.ticket() == ticket && !d.void;
        let Some(donation) = self.donation.as_mut().filter(mine) else { return };
        let (reader, attempt) = (donation.reader, donation.attempt);
        let to = self.config.cluster().replica(self.group, reader);
        let Some(stream) = donation.stream.as_mut().filter(|s| s.asked) else { return };
        stream.asked = false;
        let head = stream.head.len() as u64;
        let bytes = if stream.staged < head {
            let from = stream.staged as usize;
            &stream.head[from..stream.head.len().min(from + max)]
        } else {
            assert_eq!(offset, stream.staged - head, "pieces come in order");
            bytes
        };
        let record = RingRecord {
            kind: RingRecordKind::State,
            bytes: bytes.len() as u32,
            source: 0,
            lease: 0,
            msg: MsgId { sender: to, seq: 0 },
            dst: GroupSet::EMPTY,
        };
        let region = view.region(stage.region);
        let begin = stream.pos;
        let start = stage.start(begin, record.lines());
        if start != begin {
            stage.write_pad(region, begin, attempt);
        }
        stage.write(region, start, attempt, &record, bytes);
        stream.pos = start + u64::from(record.lines());
        stream.staged += bytes.len() as u64;
        // A pad is one line that counts for many, so it is written for itself.
        let pad = (start != begin).then_some((begin, 1, None));
        // Answers come in order: the record's vouches for the pad.
        let ticket = Some(TicketRequest::State { rank: reader }.ticket());
        for (pos, count, ticket) in pad.into_iter().chain([(start, record.lines(), ticket)]) {
            let at = stage.at(pos);
            let source = WriteSource::Copy(LineRange { region: stage.region, at, count });
            out.ask(MemoryOutput::Write {
                to,
                region: xfer.region,
                at,
                source,
                ticket,
                bell: true,
            });
        }
        self.staged += 1;
        self.stream_on(out);
    }

    /// The log position from which the reader of its state will continue.
    pub(super) fn held(&self) -> Option<u64> {
        Some(self.donation.as_ref()?.stream.as_ref()?.need)
    }

    /// A replica of the group lost its memory: what it was given went nowhere, and what it gave ends.
    pub(super) fn partner_restarted(&mut self, rank: usize) {
        self.served[rank] = 0;
        if let Some(donation) = self.donation.as_mut().filter(|d| d.reader == rank) {
            donation.void = true;
        }
        // Nor does a transfer from there continue: its new incarnation sends from the beginning.
        if let ReplicaHealth::Lacking(intake) = &mut self.health
            && intake.donor == Some(rank)
        {
            intake.donor = None;
        }
    }

    /// Everything before `clear` is applied and no longer needed here.
    pub(super) fn settle_applied(&mut self) {
        let held = self.donation.as_ref().is_some_and(|d| d.stream.is_some());
        if !held && self.follows() {
            let applied = if self.applied >= self.delivered { self.consumed } else { self.applied };
            self.clear = self.clear.max(applied);
        }
        debug_assert!(self.clear <= self.consumed || self.mutants.is(TramMutant::ForgetsAmnesia));
    }
}

impl OutgoingTransfer {
    /// Names the transfer to the application.
    const fn ticket(&self) -> Ticket {
        Ticket((self.reader as u64) << 32 | self.serial as u64)
    }
}

impl IncomingTransfer {
    /// Takes in bytes of the stream: the head first, then the application's state. `shape` is how many sources
    /// and edges there are.
    fn feed(
        &mut self,
        mut bytes: &[u8],
        shape: (usize, usize),
        out: &mut Outbox<Memory>,
    ) -> Result<FeedResult, ()> {
        if self.head.is_none() {
            let length = |b: &[u8]| {
                let four: Option<&[u8; 4]> = b.first_chunk();
                four.map(|n| u32::from_le_bytes(*n) as usize)
            };
            while !bytes.is_empty() {
                let all = length(&self.head_bytes).map_or(4, |_| 4 + Head::length(shape));
                let want = all - self.head_bytes.len();
                if want == 0 {
                    break;
                }
                let (now, later) = bytes.split_at(want.min(bytes.len()));
                self.head_bytes.extend_from_slice(now);
                bytes = later;
            }
            let Some(n) = length(&self.head_bytes) else { return Ok(FeedResult::More) };
            if n != Head::length(shape) {
                return Err(());
            }
            if self.head_bytes.len() < 4 + n {
                return Ok(FeedResult::More);
            }
            let head = Head::decode(&mut ByteReader::new(&self.head_bytes[4..])).map_err(|_| ())?;
            if head.position < self.least || !head.is_sound(shape) {
                return Err(());
            }
            if head.bytes == 0 {
                if !bytes.is_empty() {
                    return Err(());
                }
                self.least = head.position;
                Self::install(&[], (true, true), head.delivered, out);
                self.head = Some(head);
                return Ok(FeedResult::Last);
            }
            self.head = Some(head);
        }
        if bytes.is_empty() {
            return Ok(FeedResult::More);
        }
        let head = self.head.as_ref().expect("read above");
        let first = self.got == 0;
        self.got += bytes.len() as u64;
        if self.got > head.bytes {
            return Err(());
        }
        let last = self.got == head.bytes;
        if last {
            self.least = head.position;
        }
        Self::install(bytes, (first, last), head.delivered, out);
        Ok(if last { FeedResult::Last } else { FeedResult::More })
    }

    fn install(bytes: &[u8], (first, last): (bool, bool), position: u64, out: &mut Outbox<Memory>) {
        let piece = out.fill(|to| to.extend_from_slice(bytes));
        out.push(Output::Install { piece, first, last, position });
    }
}

impl Head {
    /// How many bytes it takes, by how many sources and edges there are.
    const fn length((sources, edges): (usize, usize)) -> usize {
        4 * 8 + (4 + sources * 12) + (4 + edges * 16)
    }

    /// Whether it can be the head of a state: the state holds what it says it holds, and no position is one
    /// that no run reaches.
    fn is_sound(&self, shape: (usize, usize)) -> bool {
        let edges = self.edges.iter().flat_map(|&(log, at)| [log, at]);
        let mut positions = self.sources.iter().map(|s| s.1).chain(edges);
        (self.sources.len(), self.edges.len()) == shape
            && self.delivered <= self.position
            && self.position <= self.cursors_from
            && self.cursors_from <= POSITION_MAX
            && positions.all(|position| position <= POSITION_MAX)
    }
}

messages! {
    struct Head { position, delivered, cursors_from, bytes, sources, edges }
}
