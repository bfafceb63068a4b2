//! State transfer: the return of a replica that lags, or lost its memory in a crash, to a place in the log.
//!
//! The reader asks one replica that is caught up, the source, through its row. The source writes its progress into
//! a ring in the reader's memory: the *head*, which has a log position before which its application has applied
//! every entry, and the source's cursors. Until the reader follows the log, the source holds back its own `need`, so
//! the log keeps everything after that position. The reader continues from the log there, and its application needs
//! the state up to there ([`ProtocolEvent::NeedsState`]): the driver brings it.
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

use super::dynamic_overlay::OVERLAY_STATE_MAX;
use super::layout::{EpochPromise, PromiseGrant, ReplicaRow};
use super::mutants::TramMutant;
use super::replica::{BufferCursor, ReplicaHealth, TramReplica};
use super::ring::{RingRecord, RingRecordKind, lines_of};
use super::ticket::TicketRequest;
use crate::tram::ramcast::exchange;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::memory::{LineRange, Memory, MemoryOutput, RegionWindow, WriteSource};
use amcast_core::parameters::SUSPECT;
use amcast_core::step::Note;
use amcast_core::{GroupSet, MsgId, Outbox, ProtocolEvent, StateSource, Time, messages};
use core::ops::RangeInclusive;

/// How long a source may send nothing at first, in suspicions.
const PATIENCE: u32 = 4;

/// How often that timeout doubles.
const STUCK_MAX: u32 = 7;

/// How long a source may send nothing at most, in suspicions.
pub(super) const PATIENCE_MAX: u32 = PATIENCE << STUCK_MAX;

/// How long a reader may read nothing, in suspicions, until its source holds back the log for it no more. Less than an application
/// may hang, or the source would seem to.
const HOLD_MAX: u32 = PATIENCE_MAX / 2;

/// How many sources and edges a head has, and the bytes of an exchange's state at most.
type HeadShape = (usize, usize, usize);

/// No ring ever reaches this position: at a line each nanosecond it would take two years.
pub(super) const POSITION_MAX: u64 = 1 << 56;

/// The reader's side.
#[derive(Debug)]
pub(crate) struct IncomingTransfer {
    /// It forgot its promises, too.
    pub(crate) crashed: bool,
    /// The promise floor is known, so it may promise again.
    floor_known: bool,
    source: Option<usize>,
    attempt: u32,
    /// Attempts that were given up because nothing arrived: each gets twice the time of the one
    /// before, since the source may be slow. Arriving pieces do not lower it: the pieces of an
    /// attempt that was given up are of no use, and a head of several slow pieces would be begun
    /// anew for ever.
    stuck: u32,
    /// When something last moved.
    moved: Time,
    /// The source's ring is read up to here.
    read: u64,
    /// Bytes of the head that came so far; then the head.
    head_bytes: Vec<u8>,
    head: Option<Head>,
    /// The application's position: a head of an earlier one is not taken.
    least: u64,
}

/// The progress of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Head {
    /// The source's application has applied every entry of the log before this position.
    position: u64,
    /// The position of the last delivery among that.
    delivered: u64,
    /// The cursors stand at this later position.
    cursors_from: u64,
    sources: Vec<SourceProgress>,
    edges: Vec<(u64, u64)>,
    /// RamCast's: the encoded exchange of timestamps, as of the position. Where the tree may change: the encoded
    /// changes, as of the cursors.
    exchange: Vec<u8>,
}

/// The progress of a source along one of its buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct SourceProgress {
    lease: u32,
    next: u64,
    /// The least number that the client's next message may have.
    number: u64,
}

impl SourceProgress {
    const fn of(cursor: &BufferCursor) -> Self {
        Self { lease: cursor.lease, next: cursor.next, number: cursor.number }
    }
}

/// The source's side.
#[derive(Debug)]
pub(crate) struct OutgoingTransfer {
    reader: usize,
    attempt: u32,
    /// Its reader has lost it.
    void: bool,
    /// The encoded head, with its length in front.
    head: Vec<u8>,
    /// Bytes of it that were staged.
    staged: usize,
    /// The ring's position behind them.
    pos: u64,
    /// The first log position that the reader will need.
    need: u64,
    /// The head is not sent before the application has applied everything up to here.
    awaits: u64,
    /// How much was staged, read, and applied of what the head waits for, at the last look, and since when it is so much.
    moved: (usize, u64, u64, Time),
}

impl IncomingTransfer {
    fn new(crashed: bool, least: u64) -> Self {
        Self {
            crashed,
            least,
            floor_known: !crashed,
            source: None,
            attempt: 0,
            stuck: 0,
            moved: Time::ZERO,
            read: 0,
            head_bytes: Vec::new(),
            head: None,
        }
    }

    pub(crate) fn after_crash() -> Self {
        Self::new(true, 0)
    }

    pub(crate) fn left_behind(consumed: u64) -> Self {
        Self::new(false, consumed)
    }

    /// One whose head is complete, and whose source has started anew meanwhile.
    #[cfg(test)]
    pub(crate) fn of_lost_source(sources: usize) -> Self {
        let sources = alloc::vec![SourceProgress::default(); sources];
        let head = Head {
            position: 0,
            delivered: 0,
            cursors_from: 0,
            sources,
            edges: Vec::new(),
            exchange: Vec::new(),
        };
        Self { head: Some(head), ..Self::left_behind(0) }
    }

    const fn complete(&self) -> bool {
        self.head.is_some()
    }
}

impl TramReplica {
    /// Whether it may promise anything: not before it knows what it may have promised in an
    /// earlier life.
    pub(crate) const fn may_promise(&self) -> bool {
        match &self.health {
            ReplicaHealth::Fit | ReplicaHealth::Following(_) => true,
            ReplicaHealth::Lacking(intake) => intake.floor_known,
        }
    }

    /// Whether its promises may not help a candidate.
    pub(crate) const fn lost_memory(&self) -> bool {
        match &self.health {
            ReplicaHealth::Fit | ReplicaHealth::Following(_) => false,
            ReplicaHealth::Lacking(intake) => intake.crashed,
        }
    }

    /// Puts into the row what it asks for.
    pub(crate) fn ask_for_state(&self, row: &mut ReplicaRow) {
        (row.source, row.attempt, row.read) = match &self.health {
            ReplicaHealth::Fit | ReplicaHealth::Following(_) => (None, row.attempt, 0),
            ReplicaHealth::Lacking(i) => (i.source.map(|d| d as u8), i.attempt, i.read),
        };
    }

    /// The reader's part of a poll.
    pub(crate) fn take_in(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        if self.follows() {
            return;
        }
        self.find_floor();
        self.choose_source(out);
        self.read_stream(view, out);
        self.finish_intake(view, out);
    }

    fn find_floor(&mut self) {
        let ReplicaHealth::Lacking(intake) = &mut self.health else { return };
        if intake.floor_known {
            return;
        }
        // Its memory was empty at the start: any row there was written in this incarnation.
        let fit = self.rows.peers.iter().filter_map(|p| p.row).filter(|row| row.fit);
        if fit.clone().count() < self.place.quorum {
            return;
        }
        let floor = fit.map(|row| row.promise.epoch).max().unwrap_or(0);
        intake.floor_known = true;
        self.permissions.epoch_seen = self.permissions.epoch_seen.max(floor);
        if floor > self.permissions.promise.epoch {
            self.permissions.promise = EpochPromise { epoch: floor, ..EpochPromise::default() };
        }
    }

    /// Asks a fit replica, rather one that does not lead and is far.
    fn choose_source(&mut self, out: &mut Outbox<Memory>) {
        let leader = super::layout::rank_of(self.permissions.promise.epoch);
        let ReplicaHealth::Lacking(intake) = &self.health else { return };
        let suspicions = u64::from(PATIENCE << intake.stuck.min(STUCK_MAX));
        let patience = self.rows.detector.patience(self.place.rank).times(suspicions);
        let works = |r: usize| {
            let fit =
                self.rows.peers[r].row.is_some_and(|row| row.fit && row.consumed >= intake.least);
            r != self.place.rank && fit && !self.rows.detector.suspects(self.now, r)
        };
        let stuck = self.now.since(intake.moved) > patience;
        let going = intake.source.is_some_and(|d| works(d) && !stuck);
        if going || intake.complete() || !intake.floor_known {
            return;
        }
        let far = |r: &usize| {
            let consumed = self.rows.peers[*r].row.map_or(0, |row| row.consumed);
            (intake.source != Some(*r), *r != leader, consumed)
        };
        let Some(source) = (0..self.place.n).filter(|&r| works(r)).max_by_key(far) else { return };
        let gives_up = u32::from(intake.source.is_some() && stuck);
        if let ReplicaHealth::Lacking(intake) = &mut self.health {
            intake.stuck += gives_up;
        }
        self.ask(source, out);
    }

    /// Drops the pieces of a head: the next source is asked for all of it.
    fn drop_state(&mut self) {
        let ReplicaHealth::Lacking(intake) = &mut self.health else { return };
        intake.source = None;
        (intake.read, intake.head) = (0, None);
        intake.head_bytes.clear();
    }

    fn ask(&mut self, source: usize, out: &mut Outbox<Memory>) {
        let now = self.now;
        self.drop_state();
        let ReplicaHealth::Lacking(intake) = &mut self.health else { return };
        if intake.stuck > 0 {
            out.mark("tram-asks-again");
        }
        intake.source = Some(source);
        intake.attempt = intake.attempt.max(self.rows.own.attempt) + 1;
        intake.moved = now;
        self.rows.due = true;
    }

    fn read_stream(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let now = self.now;
        let exchange_max = match (&self.exchange, &self.changes) {
            (Some(_), _) => exchange::STATE_MAX,
            (None, Some(_)) => OVERLAY_STATE_MAX,
            (None, None) => 0,
        };
        let shape = (self.buffers.sources.len(), self.buffers.edges.len(), exchange_max);
        let ReplicaHealth::Lacking(intake) = &mut self.health else { return };
        let Some(source) = intake.source else { return };
        let ring = self.layout.xfer(source);
        let region = view.region(ring.region);
        let mut chunk = Vec::new(); // Returning from a crash is not the hot path.
        let before = intake.read;
        while let Some(record) = ring.read(region, intake.read, intake.attempt) {
            if record.kind == RingRecordKind::State {
                chunk.clear();
                let whole = ring.payload(region, intake.read, intake.attempt, &record, &mut chunk);
                if !whole || intake.feed(&chunk, shape).is_err() {
                    let from = self.config.cluster().replica(self.place.group, source);
                    out.note(Note::Malformed(from, "state"));
                    self.drop_state();
                    return;
                }
            }
            intake.read += u64::from(record.lines());
        }
        if intake.read != before {
            intake.moved = now;
            self.rows.due = true;
        }
    }

    /// The head is complete; once the log continues from its position, this replica follows it,
    /// and is caught up when the application has a state up to there in force.
    fn finish_intake(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let ReplicaHealth::Lacking(intake) = &self.health else { return };
        if !intake.complete() {
            return;
        }
        let head = intake.head.as_ref().expect("complete");
        let Some(log) =
            self.in_force(view).filter(|log| log.epoch == self.permissions.promise.epoch)
        else {
            return;
        };
        let Some(control) = log.control() else { return };
        // Of a leader's deliveries some were ahead of its log.
        let short = self.exchange.is_some() && head.delivered < self.progress.delivered;
        if short
            || control.tail > head.position
            || head.edges.iter().any(|&(log, _)| log < control.tail)
        {
            // The log has moved past the state: requests it again, from the same source, or from
            // another one if that one has restarted meanwhile.
            out.mark("tram-state-too-old");
            match intake.source {
                Some(source) => self.ask(source, out),
                None => {
                    out.mark("tram-source-started-anew");
                    self.drop_state();
                }
            }
            return;
        }
        let head = head.clone();
        if let Some(exchange) = &mut self.exchange
            && !exchange.resume(&head.exchange)
        {
            let from = intake.source.map_or(self.place.me, |source| self.pid(source));
            out.note(Note::Malformed(from, "state"));
            return self.drop_state();
        }
        if let Some(changes) = &mut self.changes
            && !changes.resume(&head.exchange)
        {
            let from = intake.source.map_or(self.place.me, |source| self.pid(source));
            out.note(Note::Malformed(from, "state"));
            return self.drop_state();
        }
        self.progress.resume(head.position, head.delivered, head.cursors_from);
        for (source, told) in self.buffers.sources.iter_mut().zip(&head.sources) {
            let SourceProgress { lease, next, number } = *told;
            *source = BufferCursor { lease, next, number, ..BufferCursor::default() };
        }
        for (edge, &(log, at)) in self.buffers.edges.iter_mut().zip(&head.edges) {
            (edge.log, edge.out) = (log, at);
        }
        self.health = ReplicaHealth::Following(head.delivered);
        self.progress.need_state();
        let position = head.delivered;
        let source = StateSource::Replicas;
        out.event(ProtocolEvent::NeedsState { position, source });
        if self.permissions.promise.grant == PromiseGrant::Join {
            // It has the whole log again: it answers like the others from now on.
            self.permissions.promise.grant = PromiseGrant::Full;
        }
        self.rows.due = true;
        self.become_fit(out);
    }

    /// The application has a state in force that holds every delivery up to `position`.
    pub(crate) fn installed(&mut self, position: u64, needs: u64, out: &mut Outbox<Memory>) {
        if self.progress.install(position, needs) {
            self.become_fit(out);
        }
    }

    /// The application needs state of another group, and of this one that depends on it.
    pub(crate) fn unfit(&mut self) {
        if self.is_fit() {
            self.progress.installed = None;
            self.health = ReplicaHealth::Following(self.progress.applied);
            self.rows.due = true;
        }
    }

    fn become_fit(&mut self, out: &mut Outbox<Memory>) {
        let ReplicaHealth::Following(awaited) = self.health else { return };
        let is_in_force = self.progress.has_installed(awaited);
        if !is_in_force && !self.mutants.is(TramMutant::TrustsTheLog) {
            return;
        }
        self.health = ReplicaHealth::Fit;
        self.rows.due = true;
        out.event(ProtocolEvent::CaughtUp(self.progress.delivered));
    }

    /// The source's part of a poll.
    pub(crate) fn give_state(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        if let Some(outgoing) = &self.transfers.outgoing {
            let row = self.rows.peers[outgoing.reader].row;
            let still = row.is_some_and(|row| {
                !row.follows
                    && row.source == Some(self.place.rank as u8)
                    && row.attempt == outgoing.attempt
                    && !self.rows.detector.suspects(self.now, outgoing.reader)
            });
            if !still || outgoing.void || !self.is_fit() {
                self.transfers.outgoing = None;
            } else {
                self.drop_vain_hold(row.map_or(0, |row| row.read), out);
            }
        }
        if self.transfers.outgoing.is_none() && self.is_fit() && self.transfers.staged == 0 {
            let position = self.given_position();
            let asks = |r: &usize| {
                let row = self.rows.peers[*r].row;
                *r != self.place.rank
                    && row.is_some_and(|row| {
                        // A transfer that broke off is not begun again: the reader has read part of
                        // it.
                        !row.follows
                            && row.source == Some(self.place.rank as u8)
                            && row.attempt != self.transfers.served[*r]
                            // It has deliveries up to there.
                            && row.consumed <= position
                    })
                    && !self.rows.detector.suspects(self.now, *r)
            };
            let Some(reader) = (0..self.place.n).find(asks) else { return };
            if !self.has_all_since_tail(view) {
                return;
            }
            let attempt = self.rows.peers[reader].row.expect("it asks").attempt;
            self.transfers.served[reader] = attempt;
            self.begin_outgoing(reader, attempt);
        }
        self.write_head(view, out);
    }

    /// The reader has its head, or reads no further, and the log does not reach it: then the group does not wait for it. It asks again
    /// once it has the log.
    fn drop_vain_hold(&mut self, read: u64, out: &mut Outbox<Memory>) {
        let patience = SUSPECT.get(&self.config).times(u64::from(HOLD_MAX));
        let (now, applied) = (self.now, self.progress.applied);
        let Some(outgoing) = &mut self.transfers.outgoing else { return };
        // The application moves the transfer as long as the head waits for it.
        let applied = applied.min(outgoing.awaits);
        let (.., since) = outgoing.moved;
        let moved = (outgoing.staged, read, applied, since);
        if moved != outgoing.moved {
            outgoing.moved = (outgoing.staged, read, applied, now);
        } else if now.since(since) > patience && !self.mutants.is(TramMutant::HoldsForEver) {
            out.mark("tram-drops-hold");
            self.transfers.outgoing = None;
        }
    }

    /// The log position from which the reader of its state would continue.
    fn given_position(&self) -> u64 {
        match self.exchange {
            Some(_) => self.progress.consumed,
            None => self.progress.given_with(self.progress.applied.min(self.progress.delivered)),
        }
    }

    /// Whether the log has everything that its application has not applied: else no reader can continue from its state.
    fn has_all_since_tail(&self, view: RegionWindow<'_>) -> bool {
        let position = self.given_position();
        let control = self.in_force(view).and_then(|log| log.control());
        control.is_none_or(|control| control.tail <= position)
    }

    /// Records this replica's progress, for a reader that continues from there.
    fn begin_outgoing(&mut self, reader: usize, attempt: u32) {
        let applied = self.progress.applied.min(self.progress.delivered);
        // Timestamps cannot be had as of an earlier position: the reader continues from here, once the
        // application has applied what was delivered.
        let (at, applied, exchange) = match &self.exchange {
            Some(exchange) => (self.progress.consumed, exchange.delivered(), exchange.state()),
            None => {
                let changes = self.changes.as_ref().map(|changes| changes.snapshot());
                (self.progress.given_with(applied), applied, changes.unwrap_or_default())
            }
        };
        let head = Head {
            position: at,
            delivered: applied,
            // One that got its state just now may not have consumed again all that its cursors are behind of.
            cursors_from: self.progress.consumed.max(self.progress.cursors_from),
            sources: self.buffers.sources.iter().map(SourceProgress::of).collect(),
            edges: self.buffers.edges.iter().map(|e| (e.log, e.out)).collect(),
            exchange,
        };
        let mut encoded = Vec::new();
        head.encode(&mut encoded);
        let mut framed = Vec::new();
        encoded.encode(&mut framed);
        let need = self.buffers.edges.iter().map(|e| e.log).fold(at, u64::min);
        self.transfers.outgoing = Some(OutgoingTransfer {
            reader,
            attempt,
            void: false,
            head: framed,
            staged: 0,
            pos: 0,
            need,
            awaits: applied,
            moved: (0, 0, 0, self.now),
        });
    }

    /// Stages the head and writes it to the reader, as far as the reader's ring has room for it.
    fn write_head(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let max = self.layout.piece_max();
        let (stage, xfer) = (self.layout.stage(), self.layout.xfer(self.place.rank));
        // Nothing more of an old head may be written to a new incarnation of the reader.
        let applied = self.progress.applied;
        let ready = |d: &&mut OutgoingTransfer| !d.void && applied >= d.awaits;
        let Some(outgoing) = self.transfers.outgoing.as_mut().filter(ready) else { return };
        let (reader, attempt) = (outgoing.reader, outgoing.attempt);
        let to = self.config.cluster().replica(self.place.group, reader);
        let row = self.rows.peers[reader].row.filter(|row| row.attempt == attempt);
        let read = row.map_or(0, |row| row.read);
        while outgoing.staged < outgoing.head.len() {
            let room = stage.after(outgoing.pos, lines_of(max)) - read.min(outgoing.pos);
            if room > u64::from(stage.lines) {
                return;
            }
            let from = outgoing.staged;
            let upto = from + max as usize;
            let bytes = &outgoing.head[from..outgoing.head.len().min(upto)];
            let record = RingRecord {
                kind: RingRecordKind::State,
                bytes: bytes.len() as u32,
                source: 0,
                lease: 0,
                msg: MsgId { sender: to, seq: 0 },
                dst: GroupSet::EMPTY,
            };
            let region = view.region(stage.region);
            let begin = outgoing.pos;
            let start = stage.start(begin, record.lines());
            if start != begin {
                stage.write_pad(region, begin, attempt);
            }
            stage.write(region, start, attempt, &record, bytes);
            outgoing.staged += bytes.len();
            outgoing.pos = start + u64::from(record.lines());
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
            self.transfers.staged += 1;
        }
    }

    /// The log position from which the reader of its state will continue.
    pub(crate) fn held(&self) -> Option<u64> {
        Some(self.transfers.outgoing.as_ref()?.need)
    }

    /// A replica of the group lost its memory: what it was given went nowhere, and what it gave ends.
    pub(crate) fn partner_restarted(&mut self, rank: usize) {
        self.transfers.served[rank] = 0;
        if let Some(outgoing) = self.transfers.outgoing.as_mut().filter(|d| d.reader == rank) {
            outgoing.void = true;
        }
        // Nor does a transfer from there continue: its new incarnation sends from the beginning.
        if let ReplicaHealth::Lacking(intake) = &mut self.health
            && intake.source == Some(rank)
        {
            intake.source = None;
        }
    }

    /// Everything before `clear` is applied and no longer needed here.
    pub(crate) fn settle_applied(&mut self) {
        if self.transfers.outgoing.is_none() && self.follows() {
            match &mut self.exchange {
                Some(exchange) => exchange.clear_applied(&mut self.progress),
                None => self.progress.clear_applied(),
            }
        }
        debug_assert!(
            self.progress.clear <= self.progress.consumed
                || self.mutants.is(TramMutant::ForgetsAmnesia)
        );
    }
}

impl IncomingTransfer {
    /// Takes in bytes of the head. `shape` is how many sources and edges there are, and how long the rest can be.
    fn feed(&mut self, mut bytes: &[u8], shape: HeadShape) -> Result<(), ()> {
        let length = |b: &[u8]| {
            let four: Option<&[u8; 4]> = b.first_chunk();
            four.map(|n| u32::from_le_bytes(*n) as usize)
        };
        while !bytes.is_empty() {
            let all = match length(&self.head_bytes) {
                Some(n) if Head::lengths(shape).contains(&n) => 4 + n,
                Some(_) => return Err(()),
                None => 4,
            };
            let want = all - self.head_bytes.len();
            if want == 0 {
                // Nothing follows a head.
                return Err(());
            }
            let (now, later) = bytes.split_at(want.min(bytes.len()));
            self.head_bytes.extend_from_slice(now);
            bytes = later;
        }
        let Some(n) = length(&self.head_bytes) else { return Ok(()) };
        if !Head::lengths(shape).contains(&n) {
            return Err(());
        }
        if self.head_bytes.len() == 4 + n {
            let head = Head::decode(&mut ByteReader::new(&self.head_bytes[4..])).map_err(|_| ())?;
            if head.position < self.least || !head.is_sound(shape) {
                return Err(());
            }
            self.head = Some(head);
        }
        Ok(())
    }
}

impl Head {
    /// How many bytes it takes.
    const fn lengths((sources, edges, exchange_max): HeadShape) -> RangeInclusive<usize> {
        let least = 3 * 8 + (4 + sources * 20) + (4 + edges * 16) + 4;
        least..=least + exchange_max
    }

    /// Whether a replica can have this progress: no position is one that no run reaches.
    fn is_sound(&self, shape: HeadShape) -> bool {
        let edges = self.edges.iter().flat_map(|&(log, at)| [log, at]);
        let mut positions = self.sources.iter().map(|s| s.next).chain(edges);
        (self.sources.len(), self.edges.len()) == (shape.0, shape.1)
            && self.delivered <= self.position
            && self.position <= self.cursors_from
            && self.cursors_from <= POSITION_MAX
            && positions.all(|position| position <= POSITION_MAX)
    }
}

messages! {
    struct SourceProgress { lease, next, number }
}
messages! {
    struct Head { position, delivered, cursors_from, sources, edges, exchange }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tram::Tram;
    use amcast_core::{Entry, Pid, RawConfig};

    #[test]
    fn a_source_that_has_not_consumed_all_that_its_cursors_are_behind_of_says_where_they_are() {
        let raw = RawConfig { groups: 1, replicas: 3, clients: 1, ..RawConfig::default() };
        let config = raw.check(Tram.about().params).unwrap();
        let mut replica = TramReplica::new(Pid(1), &config).unwrap();
        let given = |replica: &mut TramReplica| {
            replica.begin_outgoing(2, 1);
            let framed = replica.transfers.outgoing.take().expect("it began").head;
            Head::decode(&mut ByteReader::new(&framed[4..])).unwrap()
        };
        // Its own state came with cursors as of 30, and it has consumed up to 10 since.
        replica.progress.resume(10, 10, 30);
        let head = given(&mut replica);
        assert_eq!((head.position, head.cursors_from), (10, 30));
        replica.progress.consumed = 40;
        assert_eq!(given(&mut replica).cursors_from, 40);
    }
}
