//! The exchange of timestamps between groups: what a replica of [`crate::tram`] does in RamCast in place of
//! passing messages down a tree.
//!
//! All of it but the cursors of a leader follows from the group's decided log, so that every later leader
//! writes the same records to the same positions of the other groups' buffers. A buffer's lines are used again
//! once the other group has them in its decided log, as told by *any* of its replicas.

use super::RamCastMutant;
use super::order::{ClientPlace, MessageArrival, TimestampOrder};
use super::stream::{OutgoingProposal, OwedRecords, ProposalStream, StreamSnapshot};
use crate::mutant::Mutants;
use crate::tram::layout::Layout;
use crate::tram::log_region::LogView;
use crate::tram::params;
use crate::tram::progress::LogProgress;
use crate::tram::replica::{BufferCursor, ReplicaPhase, TramReplica, take_up};
use crate::tram::ring::{RecordRing, RingRecord, RingRecordKind};
use crate::tram::transfer::POSITION_MAX;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::memory::{CacheLine, LineStamp, Memory, RegionWindow};
use amcast_core::parameters::SUSPECT;
use amcast_core::step::Note;
use amcast_core::{Config, Gid, GroupSet, MsgId, Outbox, Pid, ProtocolEvent, Role, Span, Time};

/// Bytes in front of a payload: this group's timestamp, and that of the group that sent the record.
pub(crate) const FRAME_BYTES: usize = 16;

/// Bytes of an exchange's state at most. More than the buffers of the clients of any usual cluster hold.
pub(crate) const STATE_MAX: usize = 1 << 30;

/// The words of a record's first line where the two timestamps lie.
const OWN_WORD: usize = 4;
pub(super) const THEIR_WORD: usize = 5;

/// In a record's source: the group that follows wrote it.
pub(super) const FROM_GROUP: u16 = 1 << 15;

/// The largest timestamp that is believed: no clock gets there by counting, and none can overflow from there.
pub(super) const TIMESTAMP_MAX: u64 = 1 << 56;

/// In place of a proposal's timestamp, which is none: the message comes to nothing.
const REFUSAL: u64 = 0;

/// The source of a record that a leader made itself.
const FROM_SELF: u16 = FROM_GROUP - 1;

/// The group that sent a record of this source, if another group did.
pub(crate) const fn source_of(source: u16) -> Option<Gid> {
    let is_group = source & FROM_GROUP != 0 && source != RingRecord::PARENT;
    if is_group { Some(Gid((source & 0xff) as u8)) } else { None }
}

/// Puts a payload behind the room for timestamps.
pub(crate) fn frame(payload: &[u8], framed: &mut Vec<u8>) {
    framed.clear();
    framed.resize(FRAME_BYTES, 0);
    framed.extend_from_slice(payload);
}

/// The largest timestamp in a record of a log.
pub(crate) fn latest(
    ring: &RecordRing,
    view: RegionWindow<'_>,
    pos: u64,
    record: &RingRecord,
) -> u64 {
    match record.kind {
        RingRecordKind::Message
        | RingRecordKind::Proposal
        | RingRecordKind::Whole
        | RingRecordKind::Clock => {
            let line = &view.region(ring.region)[ring.at(pos) as usize];
            line.word(OWN_WORD).max(line.word(THEIR_WORD))
        }
        _ => 0,
    }
}

/// Puts the leader's timestamp into the first line of a record that lies in its log and is not published yet. A
/// record that brings a message gets one above the clock, and the clock passes those of others.
// [RamCast 1] [RamCast 2]
pub(super) fn stamp(line: &CacheLine, kind: RingRecordKind, clock: &mut u64, stands_still: bool) {
    let mut words = line.words();
    if kind == RingRecordKind::Message {
        words[THEIR_WORD] = 0;
    } else if !stands_still {
        *clock = (*clock).max(words[THEIR_WORD]);
    }
    words[OWN_WORD] = 0;
    if kind != RingRecordKind::Proposal {
        *clock = clock.saturating_add(1);
        words[OWN_WORD] = *clock;
    }
    line.put(&words, LineStamp::default());
}

/// The exchange of a replica. See the [module](self).
#[derive(Debug)]
pub(crate) struct TimestampExchange {
    group: Gid,
    pub(super) mutants: Mutants<RamCastMutant>,
    order: TimestampOrder,
    /// By group; its own one is not used.
    streams: Vec<ProposalStream>,
    /// In ascending order: a number of deliveries, and the end of the log when there were so many.
    marks: VecDeque<(u64, u64)>,
    owed: OwedRecords,
    /// The message in front that waits for another group, and since when.
    blocked: Option<(MsgId, Time)>,
    patience: Span,
    /// A leader's, by group: a timestamp that is on the way to be decided, and the one last announced.
    hints: Vec<(u64, u64)>,
    record: Vec<u8>,
}

impl TimestampExchange {
    pub(super) fn new(group: Gid, config: &Config, mutants: Mutants<RamCastMutant>) -> Self {
        let cluster = config.cluster();
        // A message takes a line at least.
        let early_max = config.get(&params::HM_LINES) as usize;
        let stream = |_| ProposalStream {
            items: VecDeque::new(),
            end: 0,
            taken: 0,
            posted: alloc::vec![0; cluster.replicas()],
        };
        Self {
            group,
            mutants,
            order: TimestampOrder::new(group, (cluster.clients(), early_max), mutants),
            streams: (0..cluster.groups()).map(stream).collect(),
            marks: VecDeque::new(),
            owed: OwedRecords {
                clients: alloc::vec![0; cluster.clients()],
                first: (cluster.groups() * cluster.replicas()) as u32,
                // A proposal of each message that a client's buffers hold, the message as a whole and a refusal.
                most: 3 * early_max * cluster.groups(),
            },
            blocked: None,
            patience: SUSPECT.get(config),
            hints: alloc::vec![(0, 0); cluster.groups()],
            record: Vec::new(),
        }
    }

    /// The largest timestamp in the log that was consumed.
    pub(crate) const fn clock(&self) -> u64 {
        self.order.clock()
    }

    /// How many messages are delivered by what the decided log says.
    pub(crate) const fn delivered(&self) -> u64 {
        self.order.delivered()
    }

    /// The leader puts a record into its log, of which this is the first line, before it is published. False if another
    /// group's timestamp in it is none that a clock can have: then it is no record.
    pub(crate) fn take_up(
        &mut self,
        (record, is_fetched): (&RingRecord, bool),
        client: usize,
        line: &CacheLine,
        clock: &mut u64,
    ) -> bool {
        let theirs = line.word(THEIR_WORD);
        if record.kind != RingRecordKind::Message && theirs > TIMESTAMP_MAX {
            return false;
        }
        stamp(line, record.kind, clock, self.stands_still());
        if record.kind != RingRecordKind::Proposal {
            // The other destinations' clocks pass it while it is being decided.
            for to in record.dst.iter().filter(|&to| to != self.group) {
                let hint = &mut self.hints[to.index()];
                hint.0 = hint.0.max(*clock);
            }
        }
        if let Some(from) = source_of(record.source)
            && record.kind == RingRecordKind::Proposal
            && record.dst.contains(self.group)
            && theirs != REFUSAL
            // A deposed leader may read a follower's line while it is written over: only what its group decides counts.
            && !is_fetched
        {
            self.order.proposed_ahead((record.msg, record.dst), client, (from, theirs));
        }
        true
    }

    /// Whether the clock ignores the timestamps of others.
    fn stands_still(&self) -> bool {
        self.mutants.is(RamCastMutant::ClockStandsStill)
    }

    /// The position of a client's buffer before which every message is delivered, if `next` is the first one that
    /// was not taken up. Not before that may its client write over it: so what waits for other groups
    /// is never more than the buffers hold.
    pub(crate) fn settled(&mut self, client: usize, next: u64) -> u64 {
        self.order.settled(client, next)
    }

    /// This replica begins to lead: it writes again what was not taken over.
    pub(crate) fn lead(&mut self) {
        let forgets = self.mutants.is(RamCastMutant::ForgetsPending);
        for stream in &mut self.streams {
            let from = if forgets { stream.end } else { stream.first() };
            stream.posted.fill(from);
        }
        self.blocked = None;
        self.hints.fill((0, 0));
    }

    /// The log is needed from the first entry on that is not consumed; but what is delivered and not applied
    /// holds it back, so that deliveries do not run away from the application.
    pub(crate) fn clear_applied(&mut self, progress: &mut LogProgress) {
        while let Some(&(number, end)) = self.marks.front()
            && progress.applied >= number
        {
            debug_assert!(progress.delivered >= number, "deliveries are counted");
            progress.clear = progress.clear.max(end);
            self.marks.pop_front();
        }
        if self.marks.is_empty() {
            self.mark(progress, 1);
        }
    }

    /// Notes where the log ends now, if that is so many lines behind the last mark: a slow application shows by each that it moves.
    fn mark(&mut self, progress: &LogProgress, lines: u64) {
        let last = self.marks.back().map_or(progress.clear, |mark| mark.1);
        if progress.consumed >= last + lines {
            self.marks.push_back((progress.delivered, progress.consumed));
        }
    }

    /// Its state, as far as it follows from the log.
    pub(crate) fn state(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.order.encode(&mut bytes);
        for stream in &self.streams {
            let items = stream.items.iter().cloned().collect();
            StreamSnapshot { end: stream.end, items }.encode(&mut bytes);
        }
        bytes
    }

    /// Continues from the state of another replica. False if it cannot be one.
    pub(crate) fn resume(&mut self, state: &[u8]) -> bool {
        let mut reader = ByteReader::new(state);
        if !self.order.resume(&mut reader) {
            return false;
        }
        for stream in &mut self.streams {
            let Ok(snapshot) = StreamSnapshot::decode(&mut reader) else { return false };
            let begins = snapshot.items.iter().map(|item| item.begin);
            if snapshot.end > POSITION_MAX
                || !begins.is_sorted_by(|a, b| a < b && *b < snapshot.end)
            {
                return false;
            }
            (stream.items, stream.end) = (snapshot.items.into(), snapshot.end);
        }
        self.owed.clients.fill(0);
        self.streams.iter().flat_map(|s| &s.items).for_each(|item| self.owed.add(item));
        self.marks.clear();
        self.blocked = None;
        reader.is_empty() && self.order.clock() <= TIMESTAMP_MAX
    }

    /// Whether the leader leaves that client's messages in its buffer. Dropped messages are settled, and its client may write
    /// more, while a slow destination has not taken over what it is to hear of that: it would become ever more.
    pub(crate) fn is_owed(&self, client: usize) -> bool {
        self.owed.clients.get(client).is_some_and(|&owed| owed >= self.owed.most)
    }

    /// A record of the decided log. Says if it is one of a client whose numbers do not grow.
    fn consume(
        &mut self,
        record: &RingRecord,
        bytes: &[u8],
        place: ClientPlace,
        hm: &RecordRing,
        out: &mut Outbox<Memory>,
    ) -> bool {
        let word = |i: usize| {
            let at = bytes.get(i * 8..i * 8 + 8).and_then(|b| b.first_chunk());
            at.map_or(0, |eight| u64::from_le_bytes(*eight))
        };
        let (msg, dst) = (record.msg, record.dst);
        let (own, theirs) = (word(0), word(1));
        let mut grows = true;
        match record.kind {
            RingRecordKind::Message | RingRecordKind::Whole => {
                let payload = bytes.get(FRAME_BYTES..).unwrap_or(&[]);
                match self.order.arrive(msg, dst, own, place, payload) {
                    MessageArrival::New => {
                        self.propose((msg, dst), (record.lease, own), None, hm);
                    }
                    MessageArrival::Known => {}
                    MessageArrival::Refused => grows = false,
                }
            }
            RingRecordKind::Proposal => {
                if let Some(from) = source_of(record.source)
                    && dst.contains(self.group)
                {
                    if theirs != REFUSAL {
                        self.order.proposed((msg, dst), place.client, (from, theirs));
                    } else if self.order.refused((msg, dst), from) {
                        out.mark("ramcast-drops-refused");
                    }
                }
            }
            RingRecordKind::PassWhole => {
                if let Some((dst, lease, own, payload)) = self.order.pass_whole(msg) {
                    self.propose((msg, dst), (lease, own), Some(&payload), hm);
                }
            }
            RingRecordKind::Clock => self.order.pass_clock(own),
            // It has no tree.
            RingRecordKind::Overlay | RingRecordKind::Rejoin => {}
            RingRecordKind::Pad | RingRecordKind::State => {}
        }
        self.send_refused(hm, out);
        !grows
    }

    /// The groups that wait for messages that come to nothing are to hear that.
    fn send_refused(&mut self, hm: &RecordRing, out: &mut Outbox<Memory>) {
        for refused in self.order.take_refused() {
            if self.mutants.is(RamCastMutant::NeverRefuses) {
                continue;
            }
            out.mark("ramcast-refuses");
            for to in refused.to.iter() {
                self.send_to(to, (refused.msg, refused.dst), REFUSAL, hm);
            }
        }
    }

    /// A record of one line for another group.
    fn send_to(&mut self, to: Gid, (msg, dst): (MsgId, GroupSet), timestamp: u64, hm: &RecordRing) {
        if let Some(stream) = self.streams.get_mut(to.index()) {
            let (begin, lease) = (stream.end, 0);
            let item = OutgoingProposal { begin, msg, dst, lease, timestamp, whole: None };
            self.owed.add(&item);
            stream.push(item, hm);
        }
    }

    /// A decided record, of a message that begins at `start` in its client's buffer.
    #[cfg(test)]
    pub(super) fn consume_at(
        &mut self,
        record: &RingRecord,
        bytes: &[u8],
        start: Option<u64>,
        hm: &RecordRing,
    ) -> bool {
        let place = ClientPlace { client: 0, lease: record.lease, start };
        self.consume(record, bytes, place, hm, &mut Outbox::default())
    }

    /// Writes to one replica of another group.
    #[cfg(test)]
    pub(super) fn post(
        &mut self,
        to: Gid,
        rank: usize,
        at: (Pid, &RecordRing),
        out: &mut Outbox<Memory>,
    ) {
        let group = self.group;
        self.streams[to.index()].post(rank, group, at, out);
    }

    /// Another group has taken over its buffer up to here.
    #[cfg(test)]
    pub(super) fn take(&mut self, by: Gid, upto: u64) {
        self.streams[by.index()].take(upto, &mut self.owed);
    }

    /// Delivers what can be, behind so many messages. Says how many were delivered by then.
    fn deliver(&mut self, before: u64, out: &mut Outbox<Memory>) -> u64 {
        let mut last = before;
        self.order.deliver(|msg, dst, number, payload| {
            last = number;
            out.deliver(msg, dst, number, |to| to.extend_from_slice(payload));
        });
        last
    }

    /// The other destinations are to hear of this group's timestamp.
    fn propose(
        &mut self,
        (msg, dst): (MsgId, GroupSet),
        (lease, timestamp): (u32, u64),
        whole: Option<&[u8]>,
        hm: &RecordRing,
    ) {
        let tells_all = self.mutants.is(RamCastMutant::TellsAll) && whole.is_none();
        for (g, stream) in self.streams.iter_mut().enumerate() {
            let to = Gid(g as u8);
            if to == self.group || !(dst.contains(to) || tells_all) {
                continue;
            }
            let whole = whole.map(<[u8]>::to_vec);
            let begin = stream.end;
            let item = OutgoingProposal { begin, msg, dst, lease, timestamp, whole };
            self.owed.add(&item);
            stream.push(item, hm);
        }
    }
}

impl TramReplica {
    /// Takes in one decided record of the log. False if it is not there.
    // [RamCast 3] What is final and in front is delivered.
    pub(crate) fn consume_ordered(
        &mut self,
        log: &LogView<'_>,
        pos: u64,
        out: &mut Outbox<Memory>,
    ) -> bool {
        let Some(mut exchange) = self.exchange.take() else { return false };
        let mut bytes = core::mem::take(&mut exchange.record);
        bytes.clear();
        let wants = |r: &RingRecord| r.kind != RingRecordKind::Pad;
        let decided = |r: &RingRecord| u64::from(r.lines()) <= self.progress.decided - pos;
        let record = log.read_checked(pos, wants, &mut bytes).filter(decided);
        if let Some(record) = record {
            self.progress.consumed = pos + u64::from(record.lines());
            if wants(&record) {
                if record.kind != RingRecordKind::Clock {
                    out.event(ProtocolEvent::Part(record.msg));
                }
                let place = self.take_place(pos, &record);
                let hm = self.layout.proposals(self.place.group, 0);
                if exchange.consume(&record, &bytes, place, &hm, out) {
                    out.note(Note::Malformed(record.msg.sender, "a number that does not grow"));
                }
                self.progress.delivered = exchange.deliver(self.progress.delivered, out);
                let lines = u64::from(self.layout.lap_of(self.layout.log_lines) / 16);
                exchange.mark(&self.progress, lines.max(1));
            }
        }
        exchange.record = bytes;
        self.exchange = Some(exchange);
        record.is_some()
    }

    /// Moves the cursor of the record's source past it, and says where the record began in a client's buffer.
    fn take_place(&mut self, pos: u64, record: &RingRecord) -> ClientPlace {
        if record.source != FROM_SELF && pos >= self.progress.cursors_from {
            let parent = self.layout.clients();
            take_up(&self.layout, &mut self.buffers.sources, record, parent);
        }
        let client = self.client_of(record);
        let next = self.buffers.sources[client].next;
        let start = next.saturating_sub(u64::from(record.lines()));
        let start = (record.kind == RingRecordKind::Message).then_some(start);
        ClientPlace { client, lease: record.lease, start }
    }

    /// The number of the client whose message a record speaks of; the first one's of none.
    pub(crate) fn client_of(&self, record: &RingRecord) -> usize {
        let (cluster, sender) = (self.config.cluster(), record.msg.sender);
        match cluster.has(sender).then(|| cluster.role(sender)) {
            Some(Role::Client { client }) => usize::from(client),
            Some(Role::Replica { .. }) | None => 0,
        }
    }

    /// Writes what is decided to the other destinations; after a takeover, what they have not taken over.
    pub(crate) fn send_proposals(&mut self, out: &mut Outbox<Memory>) {
        if !matches!(self.phase, ReplicaPhase::Leader(_)) {
            return;
        }
        let Some(exchange) = &mut self.exchange else { return };
        self.progress.delivered = exchange.deliver(self.progress.delivered, out);
        let ring = self.layout.proposals(self.place.group, self.place.rank);
        for (g, stream) in exchange.streams.iter_mut().enumerate() {
            for rank in 0..self.place.n {
                if stream.posted[rank] < stream.end {
                    let to = self.config.cluster().replica(Gid(g as u8), rank);
                    stream.post(rank, self.place.group, (to, &ring), out);
                }
            }
        }
        self.announce_clock(out);
    }

    /// Tells the other destinations' leaders that timestamps come, while these are being decided here.
    fn announce_clock(&mut self, out: &mut Outbox<Memory>) {
        let Some(exchange) = &mut self.exchange else { return };
        let sources = &self.buffers.sources[self.buffers.holders.len() + 1..];
        let region = self.layout.proposals_taken(self.place.group, self.place.rank);
        for (g, (hint, source)) in exchange.hints.iter_mut().zip(sources).enumerate() {
            if hint.0 > hint.1 {
                hint.1 = hint.0;
                for to in self.config.cluster().members(Gid(g as u8)) {
                    Self::write_line(out, to, region, [source.next, hint.0, 0, 0, 0, 0, 0], true);
                }
            }
        }
    }

    /// A leader's clock passes the timestamps that others announce: when they are decided there, and known here, its
    /// log has decided that nothing later gets a smaller one.
    pub(crate) fn pass_clocks(&mut self, view: RegionWindow<'_>) {
        let Some(exchange) = &self.exchange else { return };
        if exchange.stands_still() {
            return;
        }
        let others = (0..exchange.streams.len()).map(|g| Gid(g as u8));
        let others = others.filter(|&g| g != self.place.group);
        let lines = others.flat_map(|g| (0..self.place.n).map(move |w| (g, w)));
        let told = |(g, w)| view.region(self.layout.proposals_taken(g, w))[0].word(1);
        let latest = lines.map(told).filter(|&told| told <= TIMESTAMP_MAX).max().unwrap_or(0);
        let ReplicaPhase::Leader(leader) = &self.phase else { return };
        if latest <= leader.clock {
            return;
        }
        let record = self.own_record(RingRecordKind::Clock, None);
        if self.append_own(view, &record, [latest, 0, 0])
            && let ReplicaPhase::Leader(leader) = &mut self.phase
        {
            leader.clock = latest;
        }
    }

    /// The head of a record that comes from no buffer.
    fn own_record(&self, kind: RingRecordKind, message: Option<(MsgId, GroupSet)>) -> RingRecord {
        let nobody = (MsgId { sender: self.place.me, seq: 0 }, GroupSet::EMPTY);
        let (msg, dst) = message.unwrap_or(nobody);
        let bytes = FRAME_BYTES as u32;
        RingRecord { kind, bytes, source: FROM_SELF, lease: 0, msg, dst }
    }

    /// Looks how far the other groups are, and passes on as a whole what a dead client left.
    pub(crate) fn settle_streams(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let (n, group) = (self.place.n, self.place.group);
        let Some(exchange) = &mut self.exchange else { return };
        for (g, stream) in exchange.streams.iter_mut().enumerate() {
            let by = Gid(g as u8);
            if by == group || stream.items.is_empty() {
                continue;
            }
            let told = |w| view.region(self.layout.proposals_taken(by, w))[0].word(0);
            // Nobody has taken over what was not sent.
            let upto = (0..n).map(told).filter(|&upto| upto <= stream.end).max().unwrap_or(0);
            stream.take(upto, &mut exchange.owed);
        }
        if matches!(self.phase, ReplicaPhase::Leader(_)) {
            self.help_the_blocked(view, out);
        }
    }

    /// A message in front that waits for long may be one that its client did not write to all destinations
    /// before it died: this group passes it on, and what else came from there.
    fn help_the_blocked(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let now = self.now;
        let Some(exchange) = &mut self.exchange else { return };
        let Some(front) = exchange.order.blocked() else {
            exchange.blocked = None;
            return;
        };
        match exchange.blocked {
            Some((msg, since)) if msg == front => {
                if now.since(since) < exchange.patience
                    || exchange.mutants.is(RamCastMutant::AbandonsTheDead)
                {
                    return;
                }
            }
            _ => {
                exchange.blocked = Some((front, now));
                return;
            }
        }
        exchange.blocked = Some((front, now));
        // A wait for another group is no hot path: a list is made.
        let left: Vec<_> = exchange.order.unproposed(front).collect();
        for message in left {
            let of = (message.msg, message.dst);
            let record = self.own_record(RingRecordKind::PassWhole, Some(of));
            if !self.append_own(view, &record, [0; 3]) {
                return;
            }
            out.mark("ramcast-passes-whole");
        }
    }

    /// Tells another group how far its buffer is taken over.
    pub(crate) fn tell_group(&self, source: usize, next: u64, out: &mut Outbox<Memory>) {
        let Some(to) = self.group_of_source(source).filter(|&g| g != self.place.group) else {
            return;
        };
        let hint = self.exchange.as_ref().map_or(0, |e| e.hints[to.index()].1);
        // No message was for both groups: they have nothing to do with each other.
        if next == 0 && hint == 0 {
            return;
        }
        let region = self.layout.proposals_taken(self.place.group, self.place.rank);
        for to in self.config.cluster().members(to) {
            Self::write_line(out, to, region, [next, hint, 0, 0, 0, 0, 0], true);
        }
    }

    /// A replica of another group started anew: it learns again how far this group has taken over, and gets again
    /// what its group has not taken over.
    pub(crate) fn partner_of_exchange_restarted(&mut self, group: Gid, rank: usize) {
        let source = self.buffers.parent_source() + 1 + group.index();
        self.buffers.sources[source].told_as = u64::MAX;
        let Some(exchange) = &mut self.exchange else { return };
        let stream = &mut exchange.streams[group.index()];
        stream.posted[rank] = stream.first();
    }
}

/// A replica of RamCast.
pub(super) fn replica(me: Pid, config: &Config) -> Result<TramReplica, amcast_core::ConfigError> {
    let layout = Layout::of_exchange(config)?;
    let mut replica =
        TramReplica::of_group((me, config), layout, super::mutants::of_group(config))?;
    let groups = config.cluster().groups();
    // Behind the parent's place, which nobody fills.
    replica.buffers.sources.extend((0..groups).map(|_| BufferCursor::default()));
    let exchange = TimestampExchange::new(replica.place.group, config, Mutants::of(config));
    replica.exchange = Some(alloc::boxed::Box::new(exchange));
    Ok(replica)
}
