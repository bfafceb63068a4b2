//! Becoming leader [TRAM 5.4 to 5.6]: permission from a quorum, then the longest log of the
//! highest term among them, then the rest of the tree.
//!
//! The paper adopts slot by slot the entry with the highest timestamp. With several slots on the
//! way and terms that end in mid-takeover this can mix two leaders' logs, so a log is adopted as a
//! whole: the one whose term is the highest that was *installed* at a replica of the quorum, and of
//! these the longest. A term counts as installed at a replica once the whole log of that term, as
//! adopted by its leader, was written there; the control line is written after it and says so.
//! An entry is decided when a quorum has it under one installed term, and every later quorum has a
//! member that knows it under that term or a later one.
//!
//! A log is read while time passes. A member of the quorum may promise more to somebody else meanwhile,
//! who may lead, and lead again, and use the lines once more that the candidate has not read yet. So
//! when everything is read the heads of all logs are read again ([`super::log_region`]): the records
//! read are the promised log only if no later term has begun there. A member that gave a later promise
//! by then accepts nothing from this candidate any more; the candidate gives up as soon as it learns of
//! one.

use super::layout::{PromiseGrant, next_epoch, rank_of};
use super::leader::Leader;
use super::log_region::{CONTROL, Control, HEAD_LINES, LogHead, OwnLog};
use super::mutants::{TramMutant, asks_above};
use super::permissions::TermLog;
use super::replica::{ReplicaPhase, TramReplica};
use super::ring::{RecordRing, RingRecord, RingRecordKind};
use super::ticket::TicketRequest;
use alloc::vec::Vec;
use amcast_core::Outbox;
use amcast_core::ProtocolEvent;
use amcast_core::memory::{
    AccessOutcome, LINE_WORDS, LineStamp, Memory, MemoryOutput, RegionWindow,
};
use amcast_core::step::Note;

/// Lines of the first read of a candidate: behind its own log lies as much as a leader has in flight.
const READ_LINES: u32 = 32;

/// The same at most, but for a longer record. Each read is followed by one of twice as many.
const READ_LINES_MAX: u32 = 512;

/// How many lines the read after one of `lines` takes: at least `least`, in which a record ends that is longer.
fn next_read(lines: u32, least: u32) -> u32 {
    lines.max(READ_LINES_MAX.min(2 * lines)).max(least)
}

/// A replica that tries to become leader.
#[derive(Debug)]
pub(crate) struct LeaderCandidate {
    pub(crate) epoch: u32,
    stage: TakeoverStage,
}

#[derive(Debug)]
enum TakeoverStage {
    /// Waiting for a quorum of permissions. [TRAM 3:4-12]
    Asking,
    /// Waiting for the heads of the quorum's logs.
    ReadingHeads {
        /// Answers still to come.
        left: usize,
        /// By rank: the log of the highest term that was installed there.
        found: Vec<Option<CandidateLog>>,
        /// The quorum, itself included.
        quorum: Vec<usize>,
    },
    /// Reading the log to adopt. [TRAM 4:3-6]
    Copying(LogCopy),
    /// Waiting for the heads of the logs that were read, once more: where a tail has moved on, a denied
    /// write of the former leader came through after all, and where a later term has begun, its leader
    /// has led again: lines may have been written over while they were read.
    Confirming {
        /// Answers still to come.
        left: usize,
        copying: LogCopy,
    },
}

/// A log at a replica.
#[derive(Clone, Copy, Debug)]
struct CandidateLog {
    writer: usize,
    half: usize,
    control: Control,
}

#[derive(Debug)]
struct LogCopy {
    /// The replicas whose log is of the adopted term, the ones read already in front.
    sources: Vec<(usize, CandidateLog)>,
    /// The source that is read now.
    current: usize,
    quorum: Vec<usize>,
    /// Its own copy, which begins where anyone may need the adopted log.
    log: OwnLog,
    /// The adopted log is copied up to here.
    end: u64,
    /// Lines to read at a time.
    chunk: u32,
}

/// How reading on at one source went.
enum CopyProgress {
    /// Everything that was read is copied; there may be more.
    More,
    /// The log ends here at this source.
    Ended,
    /// A record is longer than what was read.
    Longer(u32),
    /// The log moved on under the reader: a former leader still wrote.
    Moved,
}

impl TramReplica {
    // [TRAM 2:2-3] the oracle says it is me, and I do not lead.
    pub(crate) fn consider(&mut self, out: &mut Outbox<Memory>) {
        let chosen = self.rows.detector.leader(self.now) == Some(self.place.rank);
        if self.permissions.is_settling()
            || !self.is_fit()
            || !chosen
            || !self.pause.is_over(self.now)
        {
            return;
        }
        if self.transfers.flying[self.permissions.half_for(self.place.rank)] > 0 {
            // Writes of an earlier term still copy from where the new term's log is to lie: what they
            // carry would change in flight, and appear before the followers know of the term.
            out.mark("tram-half-busy");
            return;
        }
        // [TRAM 3:1-3] increment(tmp), and ask everyone. It asks itself like the others.
        let seen = asks_above(
            self.mutants,
            self.permissions.epoch_seen.max(self.permissions.promise.epoch),
        );
        let epoch = next_epoch(seen, self.place.rank);
        self.give_way(epoch, out);
        self.phase =
            ReplicaPhase::Candidate(LeaderCandidate { epoch, stage: TakeoverStage::Asking });
        self.rows.due = true;
    }

    // [TRAM 3:4-15] a candidate that sees a higher promise gives up: it would be denied anyway.
    pub(crate) fn count_permissions(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let ReplicaPhase::Candidate(candidate) = &self.phase else { return };
        let epoch = candidate.epoch;
        let promises = |r: usize| self.rows.peers[r].row.map(|row| row.promise);
        if (0..self.place.n)
            .any(|r| r != self.place.rank && promises(r).is_some_and(|p| p.epoch > epoch))
        {
            self.give_up();
            return;
        }
        if !matches!(candidate.stage, TakeoverStage::Asking)
            || self.permissions.promise.grant == PromiseGrant::Closed
        {
            return;
        }
        let acked = |r: usize| {
            r == self.place.rank
                || promises(r).is_some_and(|p| p.epoch == epoch && p.grant == PromiseGrant::Full)
        };
        let quorum: Vec<usize> = (0..self.place.n).filter(|&r| acked(r)).collect();
        let enough = if self.mutants.is(TramMutant::LeadsAlone) { 1 } else { self.place.quorum };
        if quorum.len() >= enough {
            self.read_heads(view, epoch, quorum, out);
        }
    }

    // The logs are read only now, after the last permission: a member of the quorum that answers
    // in the same life has kept its promise until here.
    fn read_heads(
        &mut self,
        view: RegionWindow<'_>,
        epoch: u32,
        quorum: Vec<usize>,
        out: &mut Outbox<Memory>,
    ) {
        self.adopt(view);
        let mut found = alloc::vec![None; self.place.n];
        found[self.place.rank] = self.permissions.force.and_then(|f| {
            let ring = self.layout.log(f.writer, f.half);
            let control = LogHead::read(view.region(ring.region)).installed(f.epoch)?;
            Some(CandidateLog { writer: f.writer, half: f.half, control })
        });
        let mut left = 0;
        for &rank in quorum.iter().filter(|&&r| r != self.place.rank) {
            let promise = self.rows.peers[rank].row.expect("it has promised").promise;
            // An empty log is asked for, too: the answer says that it is still the same life.
            let log = self.layout.log(rank_of(promise.accepted), promise.accepted_half.into());
            let ticket = TicketRequest::ReadHead { rank, epoch }.ticket();
            let (of, region) = (self.pid(rank), log.region);
            out.ask(MemoryOutput::Read { of, region, at: CONTROL, count: HEAD_LINES, ticket });
            left += 1;
        }
        let stage = TakeoverStage::ReadingHeads { left, found, quorum };
        self.phase = ReplicaPhase::Candidate(LeaderCandidate { epoch, stage });
        if left == 0 {
            self.choose(view, out);
        }
    }

    pub(crate) fn head_answered(
        &mut self,
        rank: usize,
        epoch: u32,
        outcome: AccessOutcome<'_>,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) {
        let ReplicaPhase::Candidate(LeaderCandidate { epoch: mine, stage }) = &mut self.phase
        else {
            return;
        };
        let TakeoverStage::ReadingHeads { left, found, .. } = stage else { return };
        if *mine != epoch {
            return;
        }
        let Some(head) = LogHead::of(outcome) else {
            self.give_up();
            return;
        };
        let Some(row) = self.rows.peers[rank].row.filter(|row| row.promise.epoch == epoch) else {
            self.give_up();
            return;
        };
        let (accepted, half) = (row.promise.accepted, usize::from(row.promise.accepted_half));
        if accepted != 0 {
            let Some(control) = head.installed(accepted) else {
                // Its place was given to a new term: somebody else has its promise by now.
                self.give_up();
                return;
            };
            found[rank] = Some(CandidateLog { writer: rank_of(accepted), half, control });
        }
        *left -= 1;
        if *left == 0 {
            self.choose(view, out);
        }
    }

    // [TRAM 4:8] the highest timestamp, over whole logs.
    fn choose(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let ReplicaPhase::Candidate(LeaderCandidate { epoch, stage }) = &mut self.phase else {
            return;
        };
        let TakeoverStage::ReadingHeads { found, quorum, .. } = stage else { return };
        let (epoch, quorum) = (*epoch, core::mem::take(quorum));
        let own_only = self.mutants.is(TramMutant::SkipsGroupCatchUp);
        let known = |&r: &usize| found[r].filter(|_| !own_only || r == self.place.rank);
        let highest = quorum.iter().filter_map(known).map(|f| f.control.epoch).max();
        let mut sources: Vec<(usize, CandidateLog)> = quorum
            .iter()
            .filter_map(|r| known(r).map(|f| (*r, f)))
            .filter(|(_, f)| Some(f.control.epoch) == highest)
            .collect();
        // Its own copy first: it needs no reading from afar.
        sources.sort_by_key(|&(r, _)| (r != self.place.rank, r));
        let tail = sources.iter().map(|(_, f)| f.control.tail).max().unwrap_or(0);
        if self.misses(tail) {
            self.fall_behind(out);
            return;
        }
        let half = usize::from(self.permissions.promise.half);
        if self.transfers.flying[half] > 0 {
            self.give_up();
            return;
        }
        let to = self.layout.log(self.place.rank, half);
        let silently = self.mutants.is(TramMutant::AdoptsBeforeItTells);
        // The lines there belong to an earlier term of its own, and somebody may still read them.
        let log = OwnLog::begin_term((to, view.region(to.region)), epoch, tail, silently);
        let copying = LogCopy { sources, current: 0, quorum, log, end: tail, chunk: READ_LINES };
        self.phase = ReplicaPhase::Candidate(LeaderCandidate {
            epoch,
            stage: TakeoverStage::Copying(copying),
        });
        self.copy_on(view, out);
    }

    /// Reads on at the position of the copy.
    fn copy_on(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        loop {
            let ReplicaPhase::Candidate(LeaderCandidate {
                epoch,
                stage: TakeoverStage::Copying(c),
            }) = &mut self.phase
            else {
                return;
            };
            let full = c.end >= c.log.limit();
            let Some(&(rank, found)) = c.sources.get(c.current).filter(|_| !full) else {
                self.confirm(view, out);
                return;
            };
            let ring = self.layout.log(found.writer, found.half);
            if rank != self.place.rank {
                let count = c.chunk.min(ring.left_at(c.end));
                let ticket = TicketRequest::Copy { rank, epoch: *epoch }.ticket();
                let (of, at) =
                    (self.config.cluster().replica(self.place.group, rank), ring.at(c.end));
                out.ask(MemoryOutput::Read { of, region: ring.region, at, count, ticket });
                return;
            }
            c.copy_own(&ring, found.control.epoch, view);
            c.current += 1;
        }
    }

    pub(crate) fn copy_answered(
        &mut self,
        rank: usize,
        epoch: u32,
        outcome: AccessOutcome<'_>,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) {
        let ReplicaPhase::Candidate(LeaderCandidate {
            epoch: mine,
            stage: TakeoverStage::Copying(c),
        }) = &mut self.phase
        else {
            return;
        };
        if *mine != epoch || c.sources.get(c.current).is_none_or(|s| s.0 != rank) {
            return;
        }
        let AccessOutcome::Words(lines) = outcome else {
            self.give_up();
            return;
        };
        match c.copy(lines, view) {
            CopyProgress::More => c.chunk = next_read(c.chunk, 0),
            // A short record across the end of a read must not make later reads as short.
            CopyProgress::Longer(lines) => c.chunk = next_read(c.chunk, lines),
            CopyProgress::Ended => c.current += 1,
            CopyProgress::Moved => {
                self.give_up();
                return;
            }
        }
        self.copy_on(view, out);
    }

    /// Everything is copied. A writer tells of a later term, or of a later tail, before it writes over what
    /// lay there: if no later term has begun and no tail has moved, what was read is the log.
    fn confirm(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let ReplicaPhase::Candidate(LeaderCandidate { epoch, stage }) = &mut self.phase else {
            return;
        };
        let TakeoverStage::Copying(copying) = core::mem::replace(stage, TakeoverStage::Asking)
        else {
            return;
        };
        let epoch = *epoch;
        let mut left = 0;
        let skips = self.mutants.is(TramMutant::SkipsConfirm);
        for &(rank, found) in copying.sources.iter().filter(|_| !skips) {
            let region = self.layout.log(found.writer, found.half).region;
            if rank == self.place.rank {
                if !LogHead::read(view.region(region))
                    .holds(found.control.epoch, copying.log.tail())
                {
                    return self.log_moved_on(out);
                }
                continue;
            }
            let ticket = TicketRequest::Confirm { rank, epoch }.ticket();
            let of = self.config.cluster().replica(self.place.group, rank);
            out.ask(MemoryOutput::Read { of, region, at: CONTROL, count: HEAD_LINES, ticket });
            left += 1;
        }
        let stage = TakeoverStage::Confirming { left, copying };
        self.phase = ReplicaPhase::Candidate(LeaderCandidate { epoch, stage });
        if left == 0 {
            self.take_over(view, out);
        }
    }

    pub(crate) fn confirm_answered(
        &mut self,
        rank: usize,
        epoch: u32,
        outcome: AccessOutcome<'_>,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) {
        let ReplicaPhase::Candidate(LeaderCandidate { epoch: mine, stage }) = &mut self.phase
        else {
            return;
        };
        let TakeoverStage::Confirming { left, copying } = stage else { return };
        let source = copying.sources.iter().find(|s| s.0 == rank);
        let Some((_, found)) = source.filter(|_| *mine == epoch) else { return };
        let head = LogHead::of(outcome);
        if !head.is_some_and(|head| head.holds(found.control.epoch, copying.log.tail())) {
            return self.log_moved_on(out);
        }
        *left -= 1;
        if *left == 0 {
            self.take_over(view, out);
        }
    }

    fn log_moved_on(&mut self, out: &mut Outbox<Memory>) {
        out.mark("tram-log-moved-on");
        self.give_up();
    }

    /// The adopted log is complete here: it is in force at this replica, and goes to the others.
    // [TRAM 2:4-8] res = OK: leader <- s
    fn take_over(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let ReplicaPhase::Candidate(LeaderCandidate { epoch, stage }) = &self.phase else { return };
        let TakeoverStage::Confirming { copying: c, .. } = stage else { return };
        let epoch = *epoch;
        let mut log = c.log;
        let end = c.end;
        if !c.quorum.iter().all(|&r| self.still_promises(r, epoch)) {
            // Somebody else has its promise by now: it accepts nothing from here.
            self.give_up();
            return;
        }
        if end < self.progress.decided.max(self.progress.consumed) && !self.mutants.any() {
            return self.forgotten(out);
        }
        if !c.sources.is_empty() {
            out.mark("tram-confirmed");
        }
        let half = usize::from(self.permissions.promise.half);
        let (tail, commit) = (log.tail(), self.progress.decided);
        log.advance_tail(view.region(log.ring().region), tail, commit);
        self.permissions.force = Some(TermLog { writer: self.place.rank, half, epoch });
        let leader = Leader::new(self, view, log, end);
        self.phase = ReplicaPhase::Leader(leader);
        if let Some(exchange) = &mut self.exchange {
            exchange.lead();
        }
        self.rows.due = true;
        out.event(ProtocolEvent::Leads(u64::from(epoch)));
        self.prepare_to_lead(out);
        self.lead(view, out);
    }

    /// Whether this replica, or the other one as far as its row says, still keeps its promise of `epoch`.
    fn still_promises(&self, rank: usize, epoch: u32) -> bool {
        let promise = match rank {
            _ if rank == self.place.rank => self.permissions.promise,
            _ => self.rows.peers[rank].row.map(|row| row.promise).unwrap_or_default(),
        };
        promise.epoch == epoch && promise.grant == PromiseGrant::Full
    }

    /// The tail that a quorum reports is less than the position known to be decided. No quorum of replicas that work
    /// can say so: a log, a row or a head is nonsense, or more replicas have failed than a group bears.
    /// Nothing is adopted.
    fn forgotten(&mut self, out: &mut Outbox<Memory>) {
        out.mark("tram-quorum-forgot");
        out.note(Note::Malformed(self.place.me, "a quorum's logs end before what is decided"));
        self.give_up();
    }

    /// Lets the others have it, and tries again later if the oracle still says so.
    // [TRAM 2:9] [TRAM 4:7] leader <- nobody.
    pub(crate) fn give_up(&mut self) {
        self.phase = ReplicaPhase::Follower;
        self.pause.fail(self.now);
    }

    /// A replica of the group started anew: what it promised, and what was written to it, is gone.
    pub(crate) fn peer_restarted(&mut self, rank: usize, out: &mut Outbox<Memory>) {
        if self.mutants.is(TramMutant::ForgetsAmnesia) {
            return;
        }
        match &mut self.phase {
            ReplicaPhase::Follower => {}
            ReplicaPhase::Candidate(LeaderCandidate { stage, .. }) => {
                let quorum = match stage {
                    TakeoverStage::Asking => return,
                    TakeoverStage::ReadingHeads { quorum, .. } => quorum,
                    TakeoverStage::Copying(copying) | TakeoverStage::Confirming { copying, .. } => {
                        &copying.quorum
                    }
                };
                if quorum.contains(&rank) {
                    out.mark("tram-quorum-member-restarted");
                    self.give_up();
                }
            }
            ReplicaPhase::Leader(leader) => leader.followers[rank].forget(),
        }
    }
}

impl LogCopy {
    /// Copies the log of `term` that lies here. Its writer may still write: a simulator lets it whenever a
    /// region is borrowed.
    fn copy_own(&mut self, ring: &RecordRing, term: u32, view: RegionWindow<'_>) {
        let into = self.log.ring().region;
        // [TRAM 4:9,19] on to the next entry, up to the first that is not there.
        while let Some(record) = ring.read(view.region(ring.region), self.end, term) {
            let lines = if record.kind == RingRecordKind::Pad { 1 } else { record.lines() };
            if self.end + u64::from(record.lines()) > self.log.limit() {
                return;
            }
            let at = ring.at(self.end) as usize;
            // [TRAM 4:10] adopted under its own timestamp.
            let from = &view.region(ring.region)[at..at + lines as usize];
            self.log.append(view.region(into), self.end, from.iter());
            self.end += u64::from(record.lines());
        }
    }

    /// Copies the whole records of `lines`, read from the current source at `self.end`, into its own
    /// log of the new term.
    fn copy(&mut self, lines: &[[u64; LINE_WORDS + 1]], view: RegionWindow<'_>) -> CopyProgress {
        let to = *self.log.ring();
        let term = self.sources[self.current].1.control.epoch;
        let into = view.region(to.region);
        let mut rest = lines;
        while let Some(first) = rest.first() {
            let expected = to.stamp(self.end, term);
            let stamp = LineStamp(first[LINE_WORDS]);
            if stamp != expected {
                let later = stamp.epoch() == term && stamp > expected;
                return if later { CopyProgress::Moved } else { CopyProgress::Ended };
            }
            let words: &[u64; LINE_WORDS] = first[..LINE_WORDS].try_into().expect("seven of eight");
            let Some(record) = RingRecord::parse(words) else { return CopyProgress::Ended };
            let (all, stored) = match record.kind {
                RingRecordKind::Pad => (record.lines() as usize, 1),
                _ => (record.lines() as usize, record.lines() as usize),
            };
            let room = self.log.limit() - self.end;
            if all == 0 || all > to.left_at(self.end) as usize || all as u64 > room {
                return CopyProgress::Ended;
            }
            if stored > rest.len() {
                return CopyProgress::Longer(all as u32);
            }
            if rest[..stored].iter().any(|l| l[LINE_WORDS] != expected.0) {
                return CopyProgress::Ended;
            }
            self.log.append_words(into, self.end, &rest[..stored]);
            self.end += all as u64;
            rest = &rest[all.min(rest.len())..];
        }
        CopyProgress::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_another_log_grow_to_their_most_whatever_the_lengths_of_its_records() {
        // Every other read ends within a record of three lines.
        let grown = |reads| (0..reads).fold(READ_LINES, |chunk, at| next_read(chunk, at % 2 * 3));
        assert_eq!([1, 2, 3, 4, 50].map(grown), [64, 128, 256, READ_LINES_MAX, READ_LINES_MAX]);
        assert_eq!(next_read(READ_LINES, 2 * READ_LINES_MAX), 2 * READ_LINES_MAX);
        assert_eq!(next_read(2 * READ_LINES_MAX, 3), 2 * READ_LINES_MAX);
    }
}
