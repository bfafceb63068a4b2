//! The part of every replica: it reads the others' rows, gives permissions, consumes the decided log,
//! and tells how far it is.

use super::layout::{PromiseGrant, ReplicaRow, rank_of};
use super::log_region::{Control, LogView};
use super::mutants::TramMutant;
use super::permissions::TermLog;
use super::replica::{ReplicaHealth, ReplicaPhase, TramReplica, take_up};
use super::ring::{RingRecord, RingRecordKind};
use super::ticket::TicketRequest;
use amcast_core::memory::{Memory, MemoryOutput, RegionWindow, WriteSource};
use amcast_core::step::{Delivery, Note, PayloadRange};
use amcast_core::{Gid, Outbox, Output, Pid, ProtocolEvent, Role};

/// After so many heartbeats a replica says again how far its group has taken over, changed or not.
const SAY_AGAIN_BEATS: u64 = 32;

impl TramReplica {
    // [TRAM 2:38-49] periodically: look at the others' rows, and at what they ask for.
    pub(crate) fn hear(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let mut asked = 0;
        for rank in self.place.others() {
            let line = &view.region(self.layout.row(rank))[0];
            let (stamp, words) = (line.stamp(), line.words());
            let peer = &self.rows.peers[rank];
            if let Some(row) = &peer.row
                && peer.shown == words
                && stamp == ReplicaRow::stamp(row.incarnation)
            {
                // It says what it said when it was looked at last.
                self.rows.detector.observe(self.now, rank, row.beat, row.fit);
                if rank_of(row.request) == rank {
                    asked = asked.max(row.request);
                }
                continue;
            }
            let Some(row) = ReplicaRow::parse(&words) else { continue };
            // The first row of a life is whole or not there. Later ones are read word by word.
            if stamp != ReplicaRow::stamp(row.incarnation) {
                continue;
            }
            let known = self.rows.peers[rank].incarnation;
            if row.incarnation < known {
                continue;
            }
            if !row.makes_sense(self.place.n) {
                out.note(Note::Malformed(self.pid(rank), "a row that cannot be"));
                continue;
            }
            if row.incarnation > known {
                self.fresh(self.pid(rank), row.incarnation, out);
            }
            self.rows.detector.observe(self.now, rank, row.beat, row.fit);
            (self.rows.peers[rank].row, self.rows.peers[rank].shown) = (Some(row), words);
            self.permissions.see(row.request.max(row.promise.epoch));
            if rank_of(row.request) == rank {
                asked = asked.max(row.request);
            }
        }
        self.rows.detector.observe(self.now, self.place.rank, 0, self.is_fit());
        if asked > self.permissions.promise.epoch && self.may_promise() {
            self.give_way(asked, out);
        }
        self.step_down(out);
        self.pause.observe(self.now, self.lasting_term());
    }

    /// The term that this replica leads, or in which it follows a leader that it does not suspect.
    fn lasting_term(&self) -> Option<u32> {
        match &self.phase {
            ReplicaPhase::Leader(leader) => Some(leader.epoch),
            ReplicaPhase::Candidate(_) => None,
            ReplicaPhase::Follower => {
                let force = self.permissions.force?;
                let follows = force.epoch == self.permissions.promise.epoch
                    && force.writer != self.place.rank
                    && !self.rows.detector.suspects(self.now, force.writer);
                follows.then_some(force.epoch)
            }
        }
    }

    /// A leader whose follower has promised more to a dead replica cannot continue with that
    /// follower: it asks for permission anew.
    fn step_down(&mut self, out: &mut Outbox<Memory>) {
        let ReplicaPhase::Leader(leader) = &self.phase else { return };
        let epoch = leader.epoch;
        let promised = self.rows.peers.iter().filter_map(|p| p.row).map(|row| row.promise.epoch);
        if let Some(higher) = promised.max().filter(|&p| p > epoch) {
            out.mark("tram-leader-steps-down");
            out.note(Note::Demoted(u64::from(higher)));
            self.give_up();
        }
    }

    /// Promises to accept nothing below `epoch`, and revokes the present writer. The new writer is
    /// let in by [`TramReplica::settle_promise`], in a later step: only then is the revocation done.
    // [TRAM 2:42-44]
    pub(crate) fn give_way(&mut self, epoch: u32, out: &mut Outbox<Memory>) {
        assert!(epoch > self.permissions.promise.epoch || self.mutants.any(), "promises only grow");
        if !matches!(self.phase, ReplicaPhase::Follower) && rank_of(epoch) != self.place.rank {
            out.note(Note::Demoted(u64::from(epoch)));
        }
        self.phase = ReplicaPhase::Follower;
        let Some(open) = self.permissions.promise(epoch) else { return };
        if open.writer != self.place.rank && !self.mutants.is(TramMutant::SkipsRevocation) {
            out.ask(MemoryOutput::Revoke(self.layout.log(open.writer, open.half).region));
        }
    }

    /// Lets the writer of the promised epoch in, now that the former one is out. Says whether there is such a promise.
    // [TRAM 2:45-47]
    pub(crate) fn settle_promise(
        &mut self,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) -> bool {
        if !self.permissions.is_settling() {
            return false;
        }
        self.adopt(view);
        let writer = rank_of(self.permissions.promise.epoch);
        let grant = if self.lost_memory() { PromiseGrant::Join } else { PromiseGrant::Full };
        let open = self.permissions.let_in(writer, grant);
        if writer != self.place.rank {
            out.ask(MemoryOutput::Allow(self.layout.log(writer, open.half).region));
        }
        self.rows.due = true;
        true
    }

    /// The log that is open here comes into force once its writer has installed it.
    #[inline]
    pub(crate) fn adopt(&mut self, view: RegionWindow<'_>) {
        let Some(open) = self.permissions.open.or(self.permissions.closing) else { return };
        if self.permissions.force != Some(open) {
            self.adopt_installed(open, view);
        }
    }

    fn adopt_installed(&mut self, open: TermLog, view: RegionWindow<'_>) {
        let ring = self.layout.log(open.writer, open.half);
        // Of this term only: a denied write of an earlier one may still come through.
        if Control::read(view.region(ring.region)).is_some_and(|c| c.epoch == open.epoch) {
            self.permissions.force = Some(open);
        }
    }

    /// Nothing of what was written to a process is there: it is in a new incarnation, and what it said and
    /// promised before is void, or it could not be reached until now, and has heard nothing.
    pub(crate) fn emptied(&mut self, pid: Pid, incarnation: u32, out: &mut Outbox<Memory>) {
        if let Role::Replica { group, rank } = self.config.cluster().role(pid)
            && group == self.place.group
            && incarnation <= self.rows.peers[usize::from(rank)].incarnation
        {
            // It is known already; only what this replica writes there begins anew.
            self.rows.due = true;
            return self.unwritten(usize::from(rank), out);
        }
        self.fresh(pid, incarnation, out);
    }

    /// Takes notice of a new incarnation of a process: what it said and promised before is void.
    pub(crate) fn fresh(&mut self, pid: Pid, incarnation: u32, out: &mut Outbox<Memory>) {
        match self.config.cluster().role(pid) {
            Role::Client { client } => self.client_restarted(usize::from(client), incarnation),
            Role::Replica { group, rank } if group == self.place.group => {
                let (rank, peer) = (usize::from(rank), &mut self.rows.peers[usize::from(rank)]);
                if incarnation > peer.incarnation {
                    peer.incarnation = incarnation;
                    peer.row = None;
                    self.rows.due = true;
                    self.rows.detector.restarted(self.now, rank);
                    self.unwritten(rank, out);
                }
            }
            Role::Replica { group, rank } => self.relative_restarted(group, usize::from(rank)),
        }
    }

    /// A log, or a state, that was written to a replica of the group is not there.
    fn unwritten(&mut self, rank: usize, out: &mut Outbox<Memory>) {
        self.partner_restarted(rank);
        self.peer_restarted(rank, out);
    }

    /// The log in force.
    pub(crate) fn in_force<'a>(&self, view: RegionWindow<'a>) -> Option<LogView<'a>> {
        let force = self.permissions.force?;
        let ring = self.layout.log(force.writer, force.half);
        let leads = matches!(self.phase, ReplicaPhase::Leader(_));
        Some(LogView { ring, view, epoch: force.epoch, checks: !leads })
    }

    // [TRAM 2:32-37] consume what is decided, in order. The paper waits for the next slot; the
    // commit index also covers the last message, and slots that were never decided.
    pub(crate) fn consume(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let counted = self.counted();
        if counted.is_some_and(|upto| upto <= self.progress.consumed) || !self.follows() {
            return;
        }
        let Some(log) = self.in_force(view) else { return };
        // [TRAM 2:21-23] [TRAM 4:16-18] a leader delivers what it counted itself.
        if let Some(upto) = counted {
            self.progress.decided = self.progress.decided.max(upto);
        } else {
            let Some(control) = log.control() else { return };
            if self.misses(control.tail) {
                self.fall_behind(out);
                return;
            }
            self.narrow_queue(control.tail);
            // Words of different ages are read again; nonsense is never believed.
            if control
                .commit
                .checked_sub(control.tail)
                .is_none_or(|n| n > u64::from(log.ring.lines))
            {
                return;
            }
            self.progress.decided = self.progress.decided.max(control.commit);
            if self.mutants.is(TramMutant::DeliversUndecided) {
                while let Some(record) =
                    log.ring.read(log.region(), self.progress.decided, log.epoch)
                {
                    self.progress.decided += u64::from(record.lines());
                }
            }
        }
        // Bounded work: at most a ring.
        while self.progress.consumed < self.progress.decided {
            let pos = self.progress.consumed;
            let consumed = match self.exchange {
                Some(_) => self.consume_ordered(&log, pos, out),
                None => self.consume_next(&log, pos, out),
            };
            if !consumed {
                // Only a replica that nobody waits for can miss a decided entry: it has been
                // overwritten, or was never written here. Of a pad that is as true as of a message.
                return self.fall_behind(out);
            }
        }
    }

    /// Consumes the record at `pos`. False if it is not there.
    #[inline]
    fn consume_next(&mut self, log: &LogView<'_>, pos: u64, out: &mut Outbox<Memory>) -> bool {
        let group = self.place.group;
        let wants = |r: &RingRecord| r.kind.is_passed_on() && r.dst.contains(group);
        let mut record = None;
        let payload = out.fill(|to| record = log.read_checked(pos, wants, to));
        let Some(record) = record else { return false };
        // A record that ends behind what is decided is none: who wrote the log says two things.
        let lines = u64::from(record.lines());
        if lines > self.progress.decided - pos {
            return false;
        }
        self.progress.consumed = pos + lines;
        match record.kind {
            RingRecordKind::Message => self.consume_message(pos, &record, payload, out),
            RingRecordKind::Overlay | RingRecordKind::Rejoin => {
                self.consume_change(pos, &record, payload, out);
            }
            _ => {}
        }
        true
    }

    #[inline]
    fn consume_message(
        &mut self,
        pos: u64,
        record: &RingRecord,
        payload: PayloadRange,
        out: &mut Outbox<Memory>,
    ) {
        self.take_part(record.msg, Some(pos), out);
        if pos >= self.progress.cursors_from {
            // [TRAM 2:34] slot_in moves with the log, in which every record names its source.
            let parent = self.parent_consumed();
            take_up(&self.layout, &mut self.buffers.sources, record, parent);
        }
        if record.dst.contains(self.place.group) {
            self.progress.delivered = self.progress.consumed;
            let msg = record.msg;
            let dst = record.dst;
            let position = self.progress.consumed;
            out.push(Output::Deliver(Delivery { msg, dst, position, payload }));
        }
    }

    /// It missed part of the log: it needs a state transfer.
    pub(crate) fn fall_behind(&mut self, out: &mut Outbox<Memory>) {
        assert!(
            !matches!(self.phase, ReplicaPhase::Leader(_)) || self.mutants.any(),
            "a leader has every entry that it may still need"
        );
        out.mark("tram-left-behind");
        out.event(ProtocolEvent::Lagging);
        self.phase = ReplicaPhase::Follower;
        self.widen_queue();
        self.health = ReplicaHealth::Lacking(super::transfer::IncomingTransfer::left_behind(
            self.progress.consumed,
        ));
        self.rows.due = true;
    }

    /// The first log position that this replica may still need: for its application, for a child
    /// that has not taken over what lies there, or for the reader of its state.
    pub(crate) fn need(&self) -> u64 {
        let own = self.buffers.edges.iter().map(|e| e.log).fold(self.progress.clear, u64::min);
        self.held().map_or(own, |held| own.min(held))
    }

    /// Whether it needs something that a log with this tail has no more: for itself, or for a child. Or so many deliveries wait for
    /// its application, for which the leader waits no more, that it is to get the state of another replica in place of them.
    pub(crate) fn misses(&self, tail: u64) -> bool {
        self.progress.consumed < tail
            || self.buffers.edges.iter().any(|e| e.log < tail)
            || self.is_queue_full(tail)
    }

    /// Tells clients and the parent group how far their buffers are taken over.
    pub(crate) fn tell_sources(&mut self, beat: Option<u64>, out: &mut Outbox<Memory>) {
        // Now and then everything is published again: the earlier write may have been lost.
        let again = beat.is_some_and(|beat| beat.is_multiple_of(SAY_AGAIN_BEATS));
        let beat = beat.is_some();
        let leads = matches!(self.phase, ReplicaPhase::Leader(_));
        let term = if leads { u64::from(self.permissions.promise.epoch) } else { 0 };
        let step = u64::from(self.layout.lap_of(self.layout.hm_lines) / 8);
        let parent = self.buffers.parent_source();
        if self.changes.is_some() {
            self.tell_overlay(again, out);
        }
        for i in 0..self.buffers.sources.len() {
            let source = &mut self.buffers.sources[i];
            let told_as = u64::from(source.lease) << 32 | term;
            let next = match &mut self.exchange {
                Some(exchange) if i < parent => exchange.settled(i, source.next),
                _ => source.next,
            };
            let moved = next - source.told.min(next);
            let due = again || moved >= step || (beat && (moved > 0 || source.told_as != told_as));
            let silent = i < parent && source.lease == 0;
            if !due || silent {
                continue;
            }
            (source.told, source.told_as) = (next, told_as);
            let lease = source.lease;
            if self.exchange.is_some() && i >= parent {
                self.tell_group(i, next, out);
            } else if self.changes.is_some() && i >= parent {
                self.tell_parent_of(i - parent, next, out);
            } else if i == parent {
                self.tell_parent(next, out);
            } else {
                let word = u64::from(lease as u16) << 48 | next & 0xffff_ffff_ffff;
                let to = self.config.cluster().client(i);
                let region = self.layout.credit(self.place.group, self.place.rank);
                Self::write_line(out, to, region, [word, term, 0, 0, 0, 0, 0], true);
            }
        }
    }

    fn tell_parent(&self, next: u64, out: &mut Outbox<Memory>) {
        if let Some(parent) = self.config.overlay().parent(self.place.group) {
            self.tell_parent_group(parent, next, out);
        }
    }

    /// As [`TramReplica::tell_parent`], to one that is or was the parent.
    fn tell_parent_of(&self, group: usize, next: u64, out: &mut Outbox<Memory>) {
        // Nothing ever came from there.
        if next > 0 {
            self.tell_parent_group(Gid(group as u8), next, out);
        }
    }

    fn tell_parent_group(&self, parent: Gid, next: u64, out: &mut Outbox<Memory>) {
        let region = self.layout.taken(parent, self.place.group, self.place.rank);
        for to in self.config.cluster().members(parent) {
            Self::write_line(out, to, region, [next, 0, 0, 0, 0, 0, 0], true);
        }
    }

    /// Publishes the row when something in it changed that others wait for, and with each
    /// heartbeat.
    pub(crate) fn publish(&mut self, beat: Option<u64>, out: &mut Outbox<Memory>) {
        let need = self.need();
        let old = self.rows.own;
        let mut row = ReplicaRow {
            incarnation: self.place.incarnation,
            beat: beat.unwrap_or(old.beat.max(1)),
            promise: self.permissions.promise,
            follows: self.follows(),
            fit: self.is_fit(),
            need: old.need,
            consumed: old.consumed,
            overdue: self.overdue.hint(),
            ..old
        };
        row.request = self.request();
        self.ask_for_state(&mut row);
        let urgent = row != ReplicaRow { beat: row.beat, ..old };
        let far = need >= old.need + u64::from(self.layout.lap_of(self.layout.log_lines) / 16);
        if beat.is_none() && !urgent && !far && !self.rows.due {
            return;
        }
        (row.need, row.consumed) = (need, self.progress.consumed);
        (self.rows.own, self.rows.due) = (row, false);
        let region = self.layout.row(self.place.rank);
        for rank in self.place.others() {
            let peer = &mut self.rows.peers[rank];
            if peer.telling {
                peer.untold = true;
                continue;
            }
            (peer.telling, peer.untold) = (true, false);
            let source = WriteSource::line(row.words(), ReplicaRow::stamp(self.place.incarnation));
            let (to, bell) = (self.pid(rank), urgent || far);
            let ticket = Some(TicketRequest::Row { rank }.ticket());
            out.ask(MemoryOutput::Write { to, region, at: 0, source, ticket, bell });
        }
    }

    /// The epoch it asks permission for or leads in.
    const fn request(&self) -> u32 {
        match &self.phase {
            ReplicaPhase::Follower => self.rows.own.request,
            ReplicaPhase::Candidate(c) => c.epoch,
            ReplicaPhase::Leader(l) => l.epoch,
        }
    }
}
