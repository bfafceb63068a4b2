//! The leader: takes messages up from the buffers, orders them by writing them to its group's
//! logs, and passes what is decided on to the children [TRAM 5.3, steps 2.2 to 2.5].

use super::buffer;
use super::dynamic_overlay::OverlayAtEnd;
use super::fetching::FollowerFetches;
use super::forwarding::ForwardedMessages;
use super::hung::NeedProgress;
use super::layout::PromiseGrant;
use super::log_region::{Control, FollowerLog, OwnLog};
use super::mutants::TramMutant;
use super::replica::{BufferCursor, ReplicaPhase, TramReplica, take_up};
use super::ring::{RecordRing, RingRecord, RingRecordKind};
use super::ticket::{self, TicketRequest};
use crate::tram::ramcast::{exchange, incoming};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::memory::{AccessOutcome, CacheLine, LineStamp, Memory, RegionWindow};
use amcast_core::step::{Note, Ticket};
use amcast_core::{Outbox, Span, Time};

/// The epoch of the stamps in a parent's buffers: a decided message is the same under any leader, so a
/// later leader writes the same lines in the same places.
pub(crate) const PARENT_EPOCH: u32 = 1;

/// The flaw of a client's message whose number belongs to a later holder of its place.
pub(crate) const BEYOND_LEASE: &str = "a number beyond those of its lease";

/// How long followers may wait to hear that an entry is decided, when no later one comes along: far
/// below what anyone waits for, and longer than a client takes to send its next message.
const LULL: Span = Span::micros(2);

/// A replica that leads.
#[derive(Debug)]
pub(crate) struct Leader {
    pub(crate) epoch: u32,
    /// Its own copy of the log, and the tail that the followers know: lines before it may be
    /// written over.
    pub(crate) log: OwnLog,
    /// The first position that someone may still need.
    tail: u64,
    /// The tail and commit index in its own control line, once that is written, and when it was.
    shown: Option<(u64, u64)>,
    shown_at: Time,
    /// A client or a child waits for the decision of the entries before this position: followers learn of it at once.
    hurry: u64,
    /// The next free position.
    end: u64,
    /// The last pad, from and to: a ring never holds more than one whole pad.
    pad: Option<(u64, u64)>,
    /// The first undecided position (`FUO`).
    pub(crate) commit: u64,
    /// By rank; its own entry is not used.
    pub(crate) followers: Vec<Follower>,
    /// How far each buffer is taken up into the log, decided or not.
    pub(crate) taken: Vec<BufferCursor>,
    /// The messages that were passed on, by child and rank.
    pub(crate) passed: Vec<Vec<ForwardedMessages>>,
    /// Where the batches on the way end.
    batches: VecDeque<u64>,
    /// The source to look at first.
    turn: usize,
    /// A message found no room in the log since the tail was last moved.
    full: bool,
    /// RamCast's: the largest timestamp in its log.
    pub(crate) clock: u64,
    /// Where the tree may change: the one at the end of its log.
    pub(crate) trees: Option<alloc::boxed::Box<OverlayAtEnd>>,
    /// The log before this position was posted to each follower whose log is open, with a control line of the term; none
    /// after a follower was taken in.
    posted: Option<u64>,
    /// The records that it reads from followers.
    pub(crate) fetches: alloc::boxed::Box<FollowerFetches>,
}

/// A follower as its leader sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Follower {
    /// Its copy of the log, in the half that it has opened; none if it has not.
    log: Option<FollowerLog>,
    /// Positions before this were posted.
    posted: u64,
    /// Positions before this are in its log for certain.
    acked: u64,
    /// The tail and commit index last posted; none before the term's first control line, which says
    /// that the log is installed there.
    told: Option<(u64, u64)>,
    /// Its heartbeat when a write to it failed: before it moves, nothing is tried again.
    failed_at: Option<u64>,
    /// It was taken in before, in this term.
    admitted: bool,
    /// Nothing waits for it.
    left: bool,
    /// Writes to it that are not answered yet.
    flying: u32,
    /// So many of them were posted before it was taken in again: what comes of them says nothing.
    stale: u32,
    /// They copy from the log from here on, so nothing is written over there.
    safe: u64,
    /// Whether its application moves.
    pub(crate) progress: NeedProgress,
}

impl Follower {
    /// It lost its memory, or closed its log. Writes in flight to it still land.
    pub(crate) const fn forget(&mut self) {
        (self.log, self.posted, self.acked, self.told) = (None, 0, 0, None);
    }
}

/// A buffer from which the leader takes messages.
#[derive(Clone, Copy)]
pub(crate) struct SourceBuffer<'a> {
    pub(crate) ring: &'a RecordRing,
    /// The lines of its region.
    pub(crate) lines: &'a [CacheLine],
    /// The epoch of its writer's stamps.
    pub(crate) epoch: u32,
    /// Where the record begins in the ring.
    pub(crate) pos: u64,
    /// The lines are a copy of a follower's: they do not change any more.
    pub(crate) is_fetched: bool,
}

impl Leader {
    pub(crate) fn new(r: &TramReplica, view: RegionWindow<'_>, log: OwnLog, end: u64) -> Self {
        let ring = *log.ring();
        let epoch = log.epoch();
        let tail = log.tail();
        let mut taken = r.buffers.sources.clone();
        taken.iter_mut().for_each(|c| (c.told, c.probe) = (0, true));
        // [TRAM 5:1-3] the buffers' cursors: what lies in the log is taken up.
        let mut pos = r.progress.consumed.max(r.progress.cursors_from).min(end);
        let mut clock = r.exchange.as_ref().map_or(0, |exchange| exchange.clock());
        let mut trees = r.overlay_to_lead();
        while pos < end {
            let Some(record) = ring.read(view.region(ring.region), pos, epoch) else { break };
            if record.kind != RingRecordKind::Pad {
                clock = clock.max(exchange::latest(&ring, view, pos, &record));
                let clients = r.layout.clients();
                let at_end = trees.as_ref();
                let parent = at_end.map_or(clients, |t| t.parent_source(r.place.group, clients));
                if !r.mutants.is(TramMutant::ForgetsCursors) {
                    take_up(&r.layout, &mut taken, &record, parent);
                }
                if let Some(trees) = &mut trees {
                    trees.pass((&ring, view), (pos, epoch), &record);
                }
            }
            pos += u64::from(record.lines());
        }
        // [TRAM 5:4-6] the children's cursors: from what they have taken over.
        let passed = |e: &super::replica::ChildGroup| {
            let skips = r.mutants.is(TramMutant::SkipsTreeCatchUp);
            let log = if skips { r.progress.consumed } else { e.log };
            alloc::vec![ForwardedMessages { log, out: e.out, flying: VecDeque::new() }; r.place.n]
        };
        Self {
            epoch,
            log,
            tail,
            shown: None,
            shown_at: Time::ZERO,
            hurry: 0,
            pad: log.last_pad(view.region(ring.region), end),
            end,
            commit: r.progress.decided,
            followers: alloc::vec![Follower::default(); r.place.n],
            taken,
            passed: r.buffers.edges.iter().map(passed).collect(),
            batches: VecDeque::new(),
            turn: 0,
            full: false,
            clock,
            trees,
            posted: None,
            fetches: alloc::boxed::Box::new(FollowerFetches::new(r.place.n)),
        }
    }

    /// Whether the log moves on without what a follower needs: everything from a position on, if that is known.
    pub(crate) fn does_not_wait(&self, rank: usize, need: Option<u64>) -> bool {
        self.followers[rank].left || need.is_none_or(|need| need < self.tail)
    }

    /// Lines from a tail on that hold something: a pad does not.
    fn used(&self, tail: u64) -> u64 {
        let pad = self.pad.filter(|&(from, _)| from >= tail).map_or(0, |(from, to)| to - from);
        self.end - tail - pad
    }

    /// Whether to publish now how far the log is decided, and from where on it is needed. Only followers need that, and each
    /// publication costs a line and an answer for each of them: so it waits for a pause, a need, or a part of the ring.
    fn tells(&self, now: Time, lap: u64) -> bool {
        self.shown != Some((self.tail, self.commit))
            && (now.since(self.shown_at) >= LULL
                || self.hurried()
                || self.used(self.log.tail()) > lap / 2)
    }

    /// Whether someone waits to hear of entries that the followers do not know to be decided.
    fn hurried(&self) -> bool {
        self.shown.is_none_or(|(_, commit)| self.hurry > commit)
    }

    /// When the followers must hear more, if they must.
    pub(crate) fn tells_at(&self) -> Option<Time> {
        let told = Some((self.tail, self.commit));
        (self.shown != told).then(|| self.shown_at + LULL)
    }

    /// Lines that may be written before the followers know a later tail.
    const fn free(&self) -> u64 {
        self.log.limit() - self.end
    }
}

impl TramReplica {
    /// The consequences of the others' rows: the replicas to write to, and the lines that may be written over.
    pub(crate) fn prepare_to_lead(&mut self, out: &mut Outbox<Memory>) {
        if matches!(self.phase, ReplicaPhase::Leader(_)) {
            // First the tail: what nobody needs any more is not written to those who are taken in, since
            // it may be written over while they get it.
            self.move_tail(out);
            self.admit(out);
        }
    }

    /// Appends a record of one line that comes from no buffer. False if there is no room.
    pub(crate) fn append_own(
        &mut self,
        view: RegionWindow<'_>,
        record: &RingRecord,
        first: [u64; 3],
    ) -> bool {
        let leader = self.leader();
        let ring = *leader.log.ring();
        let start = ring.start(leader.end, 1);
        if start + 1 - leader.end > leader.free() {
            // As for a message: who holds the tail and is suspected must not hold it for ever.
            leader.full = true;
            return false;
        }
        let (line, log) = (CacheLine::default(), view.region(ring.region));
        line.put(&record.words(first), ring.stamp(start, leader.epoch));
        leader.log.append(log, start, [&line].into_iter());
        if start != leader.end {
            leader.log.append_pad(log, leader.end);
            leader.pad = Some((leader.end, start));
        }
        leader.end = start + 1;
        true
    }

    pub(crate) fn lead(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        self.pull(view, out);
        self.pass_clocks(view);
        self.replicate(view, out);
        self.count();
    }

    pub(crate) fn leader(&mut self) -> &mut Leader {
        let ReplicaPhase::Leader(leader) = &mut self.phase else {
            unreachable!("only a leader leads")
        };
        leader
    }

    /// Takes in followers whose log is open for this term: they get all that may be needed.
    fn admit(&mut self, out: &mut Outbox<Memory>) {
        let silent = [TramMutant::WritesBeforeItTells, TramMutant::ReadmitsBeforeItTells]
            .map(|mutant| self.mutants.is(mutant));
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return };
        for (rank, follower) in leader.followers.iter_mut().enumerate() {
            let Some(row) = self.rows.peers[rank].row.filter(|_| rank != self.place.rank) else {
                continue;
            };
            let open =
                row.promise.epoch == leader.epoch && row.promise.grant != PromiseGrant::Closed;
            let again = follower.failed_at.is_none_or(|beat| row.beat != beat);
            if open && again && follower.log.is_none() {
                follower.forget();
                let to = self.config.cluster().replica(self.place.group, rank);
                let ring = self.layout.log(self.place.rank, usize::from(row.promise.half));
                let (epoch, tail) = (leader.epoch, leader.tail);
                // It may have part of this term's log from before: that is announced first, too.
                let before = core::mem::replace(&mut follower.admitted, true);
                let silently = silent[usize::from(before)];
                follower.log =
                    Some(FollowerLog::begin_term((to, ring), epoch, tail, silently, out));
                follower.posted = tail;
                (follower.stale, follower.safe) = (follower.flying, tail);
                leader.posted = None;
            }
        }
    }

    /// Moves the tail up to what someone still needs: this replica, the followers, the children,
    /// and the writes that still copy from the log.
    fn move_tail(&mut self, out: &mut Outbox<Memory>) {
        let mut tail = self.need();
        self.watch_followers(tail);
        let lines = u64::from(self.layout.log_lines);
        let lap = u64::from(self.layout.lap_of(self.layout.log_lines));
        let leader = self.leader();
        let filled = leader.end - leader.tail > lines / 4 * 3;
        let short =
            core::mem::take(&mut leader.full) || filled && leader.used(leader.tail) > lap / 4 * 3;
        // A replica that is silent, hangs or misses state is given up only while a quorum has all state and works:
        // a process that shares its application with replicas of other groups gets the state back
        // from one that misses nothing in any of them, so there must always be one.
        let has_all = |r: &usize| match self.rows.peers[*r].row {
            _ if *r == self.place.rank => self.is_fit(),
            row => {
                let suspected = self.rows.detector.suspects(self.now, *r);
                row.is_some_and(|row| row.fit) && !suspected && !self.follower_hangs(*r)
            }
        };
        let safe = (0..self.place.n).filter(has_all).count() >= self.place.quorum;
        for rank in self.place.others() {
            let suspected = self.rows.detector.suspects(self.now, rank);
            let row = self.rows.peers[rank].row.filter(|row| row.follows);
            let pid = self.pid(rank);
            let leader = self.leader();
            let follower = &mut leader.followers[rank];
            if follower.flying > 0 {
                tail = tail.min(follower.safe.max(leader.tail));
            }
            let Some(row) = row.filter(|row| row.need >= leader.tail) else { continue };
            let leave = short && safe && (suspected || !row.fit || follower.progress.hangs());
            if leave && !follower.left {
                out.mark("tram-leaves-behind");
                out.note(Note::LeftBehind(pid));
            }
            follower.left = leave;
            if !leave {
                tail = tail.min(row.need);
            }
        }
        let leader = self.leader();
        for log in leader.passed.iter().flatten().filter_map(|p| p.flying.front()) {
            tail = tail.min(*log);
        }
        leader.tail = leader.tail.max(tail);
    }

    // [TRAM 2:10-13] find messages in the buffers, each source in its turn.
    fn pull(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let count = self.buffers.sources.len();
        let after = |source| if source + 1 < count { source + 1 } else { 0 };
        let mut next = self.leader().turn;
        self.leader().turn = after(next);
        for _ in 0..count {
            let source = next;
            next = after(source);
            if source < self.buffers.parent_source() {
                if self.changes.is_none() {
                    self.probe(source, view);
                } else if !self.takes_from_client(source, view) {
                    continue;
                }
            }
            let mut budget = self.limits.batch_lines;
            while budget > 0 {
                let Some((ring, epoch)) = self.next_in(source, view, out) else { break };
                let region = view.region(ring.region);
                let pos = self.leader().taken[source].next;
                let Some(record) = ring.read(region, pos, epoch) else { break };
                let is_fetched = false;
                let from = SourceBuffer { ring: &ring, lines: region, epoch, pos, is_fetched };
                if !self.take(source, from, &record, view, out) {
                    break;
                }
                budget = budget.saturating_sub(record.lines());
            }
        }
    }

    /// A new holder of a client's buffer begins anew at position 0, under a higher lease.
    pub(crate) fn probe(&mut self, source: usize, view: RegionWindow<'_>) {
        let ring = self.layout.hm_client(source);
        let told = self.buffers.holders[source];
        let cursor = &mut self.leader().taken[source];
        if !cursor.probe {
            return;
        }
        let stamp = view.region(ring.region)[ring.base as usize].stamp();
        if stamp.epoch() > cursor.lease && stamp == ring.stamp(0, stamp.epoch()) {
            // One that died meanwhile may have written before the present one.
            let (probe, number) = (stamp.epoch() < told, cursor.number);
            let lease = stamp.epoch();
            *cursor = BufferCursor { lease, probe, number, ..BufferCursor::default() };
        }
    }

    /// The buffer that holds the next message of a source, if one is there.
    fn next_in(
        &mut self,
        source: usize,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) -> Option<(RecordRing, u32)> {
        let BufferCursor { next, lease, broken, .. } = self.leader().taken[source];
        if source >= self.buffers.parent_source() {
            return self.next_of_group(source, next, view, out);
        }
        if broken {
            return None;
        }
        if self.exchange.as_ref().is_some_and(|exchange| exchange.is_owed(source)) {
            out.mark("ramcast-client-waits");
            return None;
        }
        Some((self.layout.hm_client(source), lease))
    }

    // [TRAM 2:14-16] the next log entry is a copy of the message with its header.
    pub(crate) fn take(
        &mut self,
        source: usize,
        from: SourceBuffer<'_>,
        record: &RingRecord,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) -> bool {
        let SourceBuffer { ring: from, lines: region, epoch, pos, is_fetched } = from;
        let lines = record.lines();
        let may_move = source < self.buffers.parent_source() && !is_fetched;
        let moved = || may_move && !buffer::holds(view.region(from.region), epoch);
        let odd = self.flaw(source, (from, region), (pos, epoch), record);
        if odd.is_some() && moved() {
            return false;
        }
        if record.kind == RingRecordKind::Pad {
            self.leader().taken[source].next += u64::from(lines);
            return true;
        }
        if let Some(wrong) = odd {
            self.refuse(source, from, wrong, out);
            return false;
        }
        let ring = *self.leader().log.ring();
        let client = self.client_of(record);
        let twice = self.mutants.is(TramMutant::TakesUpTwice) && record.msg.seq.is_multiple_of(5);
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return false };
        let start = ring.start(leader.end, lines);
        if start + u64::from(lines) - leader.end > leader.free() {
            out.mark("tram-ring-full");
            leader.full = true;
            return false;
        }
        let log = view.region(ring.region);
        if start > 0 && ring.at(start) == ring.base {
            out.mark("tram-ring-wraps");
        }
        let read = from.at(pos) as usize;
        let source_lines = &region[read..read + lines as usize];
        leader.log.copy_in(log, start, source_lines.iter());
        // The buffer may have got a new holder meanwhile, who begins anew, or someone else leads and this
        // message is decided and written over. Then what was copied is no record, and never becomes one:
        // not even who surveys this log sees it. The copy is looked at, and not the source once more: a client may
        // change its own buffer at any time, and all replicas go by the copy.
        let line = &log[ring.at(start) as usize];
        // A group's buffer has no holder line. Its writer changes it a lap later, once this leader was deposed: where words of the copy
        // are newer than its head, the buffer has a new head. (A line that was changed but for its stamp looks whole.)
        let same = may_move || is_fetched || view.region(from.region)[read].words() == line.words();
        let is_whole = same && is_of(source_lines, from.stamp(pos, epoch));
        if !is_whole || RingRecord::of_line(line) != Some(*record) || moved() {
            out.mark("tram-buffer-moved");
            return false;
        }
        if let Some(exchange) = &mut self.exchange
            && !exchange.take_up((record, is_fetched), client, line, &mut leader.clock)
        {
            self.refuse(source, from, incoming::NO_TIMESTAMP, out);
            return false;
        }
        leader.log.publish(log, start, lines);
        if start != leader.end {
            leader.log.append_pad(log, leader.end);
            leader.pad = Some((leader.end, start));
        }
        leader.end = start + u64::from(lines);
        leader.taken[source].pass(record, twice);
        self.hurry |= record.dst.len() > 1;
        self.pass_tree((ring, start), record, view, out)
    }

    /// A record was taken up to `pos`. Says whether the next one of its source may be: behind a change of the tree
    /// that is made for another one.
    fn pass_tree(
        &mut self,
        (ring, pos): (RecordRing, u64),
        record: &RingRecord,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) -> bool {
        if record.kind != RingRecordKind::Overlay {
            self.take_part(record.msg, None, out);
            return true;
        }
        let leader = self.leader();
        if let Some(trees) = &mut leader.trees {
            trees.pass((&ring, view), (pos, leader.epoch), record);
        }
        false
    }

    /// The writer's record is invalid: a client's buffer is not read until its next holder.
    fn refuse(
        &mut self,
        source: usize,
        ring: &RecordRing,
        wrong: &'static str,
        out: &mut Outbox<Memory>,
    ) {
        if source >= self.buffers.parent_source() {
            return self.refuse_of_group(source, ring, wrong, out);
        }
        // Not whom the record names: nothing in it is to be believed.
        out.note(Note::Malformed(self.config.cluster().client(source), wrong));
        self.leader().taken[source].broken = true;
    }

    /// The flaw of the next record of that source, if any, which lies at `pos` under `epoch`.
    fn flaw(
        &mut self,
        source: usize,
        (from, region): (&RecordRing, &[CacheLine]),
        (pos, epoch): (u64, u32),
        record: &RingRecord,
    ) -> Option<&'static str> {
        if let Some(wrong) = self.wrong(source, record) {
            return Some(wrong);
        }
        let cursor = self.leader().taken[source];
        if source < self.buffers.parent_source() {
            if record.lease != epoch {
                return Some("a message of another lease");
            }
            if self.judges_numbers(record) {
                if record.is_beyond_lease() {
                    return Some(BEYOND_LEASE);
                }
                if record.msg.seq < cursor.number {
                    return Some("a number that does not grow");
                }
            }
        }
        self.wrong_overlay((from, region), (pos, epoch), record)
    }

    /// Whether the number of a client's record must be above those that its group has from the client's buffer. Where the
    /// tree may change a client makes requests anew, behind later ones. RamCast judges numbers along the log.
    fn judges_numbers(&self, record: &RingRecord) -> bool {
        record.kind == RingRecordKind::Message
            && self.exchange.is_none()
            && self.changes.is_none()
            && !self.mutants.is(TramMutant::TakesUpTwice)
            && !self.mutants.is(TramMutant::FetchesAnew)
    }

    /// The flaw of a record at `pos` of a buffer that another group's leader fills, if any.
    pub(crate) fn flaw_in_group(
        &self,
        source: usize,
        (ring, lines): (&RecordRing, &[CacheLine]),
        pos: u64,
        record: &RingRecord,
    ) -> Option<&'static str> {
        let wrong = self.wrong(source, record);
        if wrong.is_some() {
            return wrong;
        }
        if self.exchange.is_some() {
            return incoming::wrong_timestamp(ring, lines, pos);
        }
        if record.kind != RingRecordKind::Overlay {
            return None;
        }
        self.wrong_overlay((ring, lines), (pos, PARENT_EPOCH), record)
    }

    /// The flaw of a record from that source, if any: then it is dropped.
    fn wrong(&self, source: usize, record: &RingRecord) -> Option<&'static str> {
        if self.exchange.is_some() {
            return self.wrong_of_exchange(source, record);
        }
        let parent = source >= self.buffers.parent_source();
        if !record.kind.is_passed_on() {
            return Some("not a message");
        }
        if parent != (record.source == RingRecord::PARENT)
            || (!parent && usize::from(record.source) != source)
        {
            return Some("a message from another source");
        }
        let (cluster, sender) = (self.config.cluster(), record.msg.sender);
        let client = cluster.has(sender) && cluster.group_of(sender).is_none();
        if !client || (!parent && sender != cluster.client(source)) {
            return Some("a message of another sender");
        }
        let reach = self.overlay_at_end().reach(self.place.group);
        if self.mutants.is(TramMutant::SendsToEach) {
            return None;
        }
        if record.dst.and(reach).is_empty() || (!parent && !record.dst.within(reach)) {
            return Some("destinations that this group does not reach");
        }
        (record.bytes as usize > self.layout.payload_max()).then_some("too long")
    }

    // [TRAM 2:15-19] write the entries to every log that is open, several in one write, and now and
    // then the control line behind them.
    // [TRAM 4:11-14] What was adopted goes the same way.
    fn replicate(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        if !self.has_to_replicate() {
            return;
        }
        let (depth, now) = (self.limits.pipeline, self.now);
        let (from, half) = (*self.leader().log.ring(), usize::from(self.permissions.promise.half));
        let lap = u64::from(from.lap);
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return };
        while leader.batches.front().is_some_and(|&end| end <= leader.commit) {
            leader.batches.pop_front();
        }
        // A follower that comes in late gets what the others have, however much is on the way.
        let upto = match leader.batches.back() {
            Some(&sent) if leader.batches.len() >= depth => sent,
            _ => leader.end,
        };
        if core::mem::take(&mut self.hurry) {
            leader.hurry = leader.end;
        }
        let hurry = leader.hurried();
        let control = Control { epoch: leader.epoch, tail: leader.tail, commit: leader.commit };
        let told = (control.tail, control.commit);
        let tells = leader.tells(now, lap);
        if tells {
            leader.log.advance_tail(view.region(from.region), leader.tail, leader.commit);
            (leader.shown, leader.shown_at) = (Some(told), now);
        }
        let (mut posted, filled) = (false, leader.used(leader.tail) > lap / 4);
        for (r, follower) in leader.followers.iter_mut().enumerate() {
            let Some(log) = &mut follower.log else { continue };
            // The first control line of a term comes with the first entries: before it, nothing
            // that is written there counts.
            let tells = follower.told.is_none() || (tells && follower.told != Some(told));
            if follower.posted >= upto && !tells {
                continue;
            }
            if follower.flying == 0 {
                follower.safe = follower.posted;
            }
            assert!(follower.posted >= leader.tail, "copied lines may be written over");
            follower.flying += 1;
            self.transfers.flying[half] += 1;
            debug_assert!(follower.posted <= upto, "posted lines are there");
            while follower.posted < upto {
                let (count, next) = from.piece(follower.posted, upto, leader.pad);
                let pos = core::mem::replace(&mut follower.posted, next);
                posted = true;
                // The last write of all is answered for; it vouches for those before it.
                let last = !tells && follower.posted == upto;
                let ticket = last.then(|| log_ticket(r, leader.epoch, half, follower.posted));
                log.append(pos, (from.region, count), ticket, out);
            }
            if !tells {
                continue;
            }
            follower.told = Some(told);
            let ticket = log_ticket(r, leader.epoch, half, follower.posted);
            log.advance_tail(control, (ticket, hurry || filled), out);
        }
        if posted && leader.batches.back().is_none_or(|&sent| sent < upto) {
            leader.batches.push_back(upto);
        }
        leader.posted = Some(upto);
    }

    /// Whether followers are to get entries or a control line. In most polls they are not.
    fn has_to_replicate(&self) -> bool {
        let ReplicaPhase::Leader(leader) = &self.phase else { return false };
        let lap = u64::from(leader.log.ring().lap);
        self.hurry || leader.posted != Some(leader.end) || leader.tells(self.now, lap)
    }

    /// Notes the outcome of a write to a follower's log. Says whether further entries are decided.
    pub(crate) fn log_answered(
        &mut self,
        rank: usize,
        epoch: u32,
        low: u64,
        outcome: AccessOutcome<'_>,
        out: &mut Outbox<Memory>,
    ) -> bool {
        let beat = self.rows.peers[rank].row.map_or(0, |row| row.beat);
        let ignores = self.mutants.is(TramMutant::CountsDenied);
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return false };
        if !ticket::same_term(epoch, leader.epoch) {
            return false;
        }
        let follower = &mut leader.followers[rank];
        follower.flying = follower.flying.saturating_sub(1);
        // Writes to one process are answered in order.
        let stale = follower.stale > 0;
        follower.stale = follower.stale.saturating_sub(1);
        if stale || follower.log.is_none() {
            return false;
        }
        match outcome {
            AccessOutcome::Written => {
                follower.acked = follower.acked.max(ticket::full(low, follower.posted));
                follower.safe = follower.safe.max(follower.acked);
                follower.failed_at = None;
            }
            AccessOutcome::Denied if ignores => {
                follower.acked = follower.acked.max(ticket::full(low, follower.posted));
            }
            // [TRAM 2:30-31] it let someone else in, or it is gone. A deposed leader learns it from
            // the rows: a follower that restarted denies, too.
            AccessOutcome::Denied | AccessOutcome::Lost | AccessOutcome::Words(_) => {
                out.mark("tram-write-failed");
                follower.forget();
                follower.failed_at = Some(beat);
            }
        }
        self.count()
    }

    /// A leader's: the position up to which a quorum has its log.
    pub(crate) fn counted(&self) -> Option<u64> {
        let ReplicaPhase::Leader(leader) = &self.phase else { return None };
        let is_ahead = self.mutants.is(TramMutant::DeliversAhead);
        Some(if is_ahead { leader.end } else { leader.commit })
    }

    // [TRAM 2:20,29] decided is what a quorum has. Says whether further entries are decided.
    fn count(&mut self) -> bool {
        let quorum = if self.mutants.is(TramMutant::DecidesAlone) { 1 } else { self.place.quorum };
        let rank = self.place.rank;
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return false };
        if leader.commit == leader.end {
            return false;
        }
        let has = |(r, f): (usize, &Follower)| if r == rank { leader.end } else { f.acked };
        // The quorum-th highest, by counting: groups are small, and nothing is allocated. Decided positions are not
        // counted again.
        let all = || leader.followers.iter().enumerate().map(has);
        let mut decided = leader.commit;
        for p in all() {
            if p > decided && all().filter(|&q| q >= p).count() >= quorum {
                decided = p;
            }
        }
        decided > core::mem::replace(&mut leader.commit, decided)
    }

    /// A client's place has a new holder: its first message begins the buffer anew.
    pub(crate) fn client_restarted(&mut self, client: usize, incarnation: u32) {
        let told = &mut self.buffers.holders[client];
        *told = (*told).max(incarnation.saturating_add(1));
        self.buffers.sources[client].told_as = 0;
        self.overlay_untold(client);
        if let ReplicaPhase::Leader(leader) = &mut self.phase {
            leader.taken[client].probe = true;
        }
    }
}

fn log_ticket(rank: usize, epoch: u32, half: usize, low: u64) -> Ticket {
    TicketRequest::Log { rank, epoch, half, low }.ticket()
}

/// Whether all lines of a record have its stamp.
fn is_of(lines: &[CacheLine], stamp: LineStamp) -> bool {
    lines.iter().all(|line| line.stamp() == stamp)
}
