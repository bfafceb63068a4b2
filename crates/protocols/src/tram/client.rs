//! The client: writes messages into its buffers at the lowest common ancestor of their
//! destinations [TRAM 5.2].

use super::buffer::{self, HOLDER};
use super::dynamic_overlay::{ClientOverlay, StaleMessage};
use super::layout::Layout;
use super::mutants::{self, TramMutant};
use super::params;
use super::replica::ROUND;
use super::ring::{RecordRing, RingRecord, RingRecordKind, lines_of};
use super::ticket::{self, TicketRequest};
use crate::mutant::Mutants;
use crate::tram::ramcast::exchange;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::memory::{
    AccessOutcome, LineRange, Memory, MemoryInput, MemoryOutput, RegionWindow, WriteSource,
};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Config, ConfigError, Gid, GroupSet, Input, MsgId, Outbox, Overlay, Pid, Protocol,
    ProtocolEvent, Role, Submission, Time,
};

/// A TRAM client.
#[derive(Debug)]
pub(crate) struct TramClient {
    me: Pid,
    number: usize,
    config: Config,
    mutants: Mutants<TramMutant>,
    layout: Layout,
    /// RamCast's: it sends a message to each destination for itself.
    spreads: bool,
    /// Where the tree may change: what it knows of that.
    trees: Option<alloc::boxed::Box<ClientOverlay>>,
    /// The payload behind the room for timestamps.
    framed: Vec<u8>,
    /// Under which it writes; a later holder of the same buffers has a higher one.
    lease: u32,
    lanes: Vec<GroupLane>,
    batch_lines: u64,
    /// When it last looked at what replicas tell it.
    looked: Time,
    /// It was woken since and did not look: it must, or nobody wakes it for what lies there.
    owes_a_look: bool,
}

/// The traffic to one group.
#[derive(Debug)]
struct GroupLane {
    group: Gid,
    /// The next free position (`slot[g]`).
    head: u64,
    /// The last pad, from and to.
    pad: Option<(u64, u64)>,
    /// The position up to which the group has taken messages over, as far as any of its replicas has published.
    taken: u64,
    /// By rank of the group's replicas.
    replicas: Vec<BufferProgress>,
    /// Messages that the group has not taken over, and where each ends.
    open: VecDeque<(MsgId, u64)>,
    /// The leader of the group, as far as it has published so: only it is woken.
    leader: Option<usize>,
    /// Its fence for another tree may be untold somewhere.
    fenced: bool,
}

/// How far one replica's buffer is written.
#[derive(Clone, Copy, Debug)]
struct BufferProgress {
    pid: Pid,
    /// The replica knows the owner of these records.
    told: bool,
    /// Positions below this were posted.
    posted: u64,
    /// Positions below this were answered for: their lines may be used again.
    done: u64,
    /// Writes that are not answered yet.
    flying: u32,
    /// So many of them were posted before the replica started anew: what comes of them says nothing.
    stale: u32,
}

impl TramClient {
    /// A client of TRAM.
    pub(crate) fn new(me: Pid, config: &Config) -> Result<Self, ConfigError> {
        Self::of((me, config), Layout::new(config)?, Mutants::of(config), false)
    }

    /// A client of RamCast.
    pub(crate) fn that_spreads(me: Pid, config: &Config) -> Result<Self, ConfigError> {
        Self::of((me, config), Layout::of_exchange(config)?, Mutants::with(None), true)
    }

    fn of(
        (me, config): (Pid, &Config),
        layout: Layout,
        mutants: Mutants<TramMutant>,
        spreads: bool,
    ) -> Result<Self, ConfigError> {
        let cluster = config.cluster();
        let Role::Client { client } = cluster.role(me) else {
            return Err(ConfigError::Role("not a client"));
        };
        let trees = layout.is_dynamic().then(|| alloc::boxed::Box::new(ClientOverlay::new(config)));
        let copied =
            |pid| BufferProgress { pid, told: false, posted: 0, done: 0, flying: 0, stale: 0 };
        // [TRAM 1:1] every buffer starts out empty.
        let lane = |group| GroupLane {
            group,
            head: 0,
            pad: None,
            taken: 0,
            replicas: cluster.members(group).map(copied).collect(),
            open: VecDeque::new(),
            leader: None,
            fenced: false,
        };
        Ok(Self {
            me,
            number: usize::from(client),
            config: config.clone(),
            mutants,
            layout,
            spreads,
            trees,
            framed: Vec::new(),
            lease: 0,
            lanes: cluster.all_groups().iter().map(lane).collect(),
            batch_lines: config.get(&params::BATCH_LINES),
            looked: Time::ZERO,
            owes_a_look: false,
        })
    }

    /// The epoch of its stamps: leases count from 0, and an epoch is never 0.
    const fn epoch(&self) -> u32 {
        self.lease + 1
    }

    // [TRAM 1:2-6] multicast: to the group where all destinations can be reached.
    fn submit(&mut self, view: RegionWindow<'_>, s: Submission<'_>, out: &mut Outbox<Memory>) {
        if self.spreads {
            let mut framed = core::mem::take(&mut self.framed);
            exchange::frame(s.payload, &mut framed);
            let framed_s = Submission { payload: &framed, ..s };
            s.dst.iter().for_each(|g| self.send(view, framed_s, g, out));
            self.framed = framed;
        } else if self.mutants.is(TramMutant::SendsToEach) {
            s.dst.iter().for_each(|g| self.send(view, s, g, out));
        } else {
            self.send(view, s, self.target(s.dst), out);
        }
    }

    /// Asks for another tree: the request goes to all groups, behind what is held back.
    fn ask_overlay(&mut self, overlay: &Overlay) {
        let record = RingRecord {
            kind: RingRecordKind::Overlay,
            bytes: 0,
            source: self.number as u16,
            lease: self.epoch(),
            msg: MsgId { sender: self.me, seq: 0 },
            dst: GroupSet::EMPTY,
        };
        if let Some(trees) = self.trees.as_mut().filter(|_| overlay.groups() == self.lanes.len()) {
            trees.ask(record, overlay);
        }
    }

    /// How many submissions of `bytes` bytes there is room for towards a group.
    fn room_towards(&self, lca: Gid, bytes: usize) -> usize {
        let ring = self.layout.sent(lca);
        let lane = &self.lanes[lca.index()];
        let lines = u64::from(lines_of(bytes as u32));
        let free = lane.free(&ring);
        let start = ring.start(lane.head, lines as u32);
        let free = free.saturating_sub(start - lane.head);
        // Those that begin before the next pad; behind that one it is asked again.
        let left = u64::from(ring.left_at(start));
        let in_lap = u64::from(ring.lap).saturating_sub(u64::from(ring.lines) - left);
        let begins = if ring.is_short(lines as u32) {
            in_lap.div_ceil(lines).min(left / lines)
        } else {
            left / lines
        };
        (free / lines).min(begins) as usize
    }

    /// The group that orders messages to `dst` first.
    fn target(&self, dst: GroupSet) -> Gid {
        let overlay = match &self.trees {
            Some(trees) => trees.overlay(),
            None => self.config.overlay(),
        };
        mutants::target(self.mutants, overlay, dst)
    }

    /// Whether requests of this client to `group` are held back: those to it that a change of the tree has made stale go
    /// first, and the group may not have told yet that it is in the latest tree.
    fn awaits_overlay(&self, group: Gid) -> bool {
        let Some(trees) = &self.trees else { return false };
        let goes_there = |stale: &StaleMessage| self.target(stale.record.dst) == group;
        !trees.has_joined(group) || trees.stale.iter().any(goes_there)
    }

    /// Requests anew what a change of the tree has made stale, as far as there is room: to each group in order, and past
    /// those for a group that has none, which may have lost its majority. Says whether that is anything.
    fn send_stale(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) -> bool {
        let (mut next, mut full) = (0, GroupSet::EMPTY);
        let mut is_any = false;
        while let Some(trees) = &self.trees {
            let Some(StaleMessage { record, payload }) = trees.stale.get(next) else { break };
            let lca = self.target(record.dst);
            let has_room = trees.has_joined(lca) && self.room_towards(lca, payload.len()) > 0;
            if full.contains(lca) || !has_room {
                full = full.with(lca);
                next += 1;
                continue;
            }
            let stale = self.trees.as_mut().and_then(|trees| trees.stale.remove(next));
            let Some(StaleMessage { record, payload }) = stale else { break };
            self.write(view, record, &payload, lca, out);
            is_any = true;
        }
        is_any
    }

    /// A group tells of another tree: what it did not take up is requested anew.
    fn learn(
        &mut self,
        lane: usize,
        rank: usize,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) {
        let (epoch, lane) = (self.epoch(), &mut self.lanes[lane]);
        let Some(trees) = &mut self.trees else { return };
        let told = view.region(self.layout.credit(lane.group, rank));
        let Some(learnt) = trees.look(lane.group, told, (epoch, lane.head)) else { return };
        out.mark("tram-client-learns-overlay");
        let ring = self.layout.sent(lane.group);
        let from = match self.mutants.is(TramMutant::RequestsAnewTwice) {
            true => learnt.cut,
            false => learnt.stale_from,
        };
        if !self.mutants.is(TramMutant::ForgetsStaleRequests) {
            trees.collect(&ring, view.region(ring.region), epoch, (from, lane.head));
        }
        lane.taken = lane.taken.max(learnt.cut);
        lane.open.clear();
        lane.replicas.iter_mut().for_each(|replica| replica.told = false);
        lane.fenced = true;
    }

    // [TRAM 1:4-6] write(p, HM[c, slot[g]], ..) for all replicas of the group.
    fn send(
        &mut self,
        view: RegionWindow<'_>,
        s: Submission<'_>,
        lca: Gid,
        out: &mut Outbox<Memory>,
    ) {
        let record = RingRecord {
            kind: RingRecordKind::Message,
            bytes: s.payload.len() as u32,
            source: self.number as u16,
            lease: self.epoch(),
            msg: MsgId { sender: self.me, seq: s.seq },
            dst: s.dst,
        };
        out.event(ProtocolEvent::Part(record.msg));
        self.write(view, record, s.payload, lca, out);
    }

    fn write(
        &mut self,
        view: RegionWindow<'_>,
        record: RingRecord,
        payload: &[u8],
        lca: Gid,
        out: &mut Outbox<Memory>,
    ) {
        let ring = self.layout.sent(lca);
        let epoch = self.epoch();
        let lane = &mut self.lanes[lca.index()];
        let lines = lines_of(payload.len() as u32);
        assert!(lane.free(&ring) >= u64::from(lines), "submitted beyond room()");
        let region = view.region(ring.region);
        let start = ring.start(lane.head, lines);
        if start != lane.head {
            ring.write_pad(region, lane.head, epoch);
            lane.pad = Some((lane.head, start));
            lane.head = start;
        }
        ring.write(region, lane.head, epoch, &record, payload);
        lane.head += u64::from(lines);
        lane.open.push_back((record.msg, lane.head));
        let waiting = lane.replicas.iter().map(|r| lane.head - r.posted).max().unwrap_or(0);
        if waiting >= self.batch_lines {
            let holder = holder_of(&self.trees, lca, epoch);
            lane.post(&ring, (self.layout.hm_client(self.number), holder), out);
        }
    }

    fn poll(&mut self, now: Time, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        // The position of the takeover is of no use before room is short, and is published seldom.
        let looks = now.since(self.looked) >= ROUND || self.looked == Time::ZERO;
        if looks {
            self.looked = now;
        }
        self.owes_a_look = !looks;
        let (hm, epoch) = (self.layout.hm_client(self.number), self.epoch());
        for i in 0..self.lanes.len() {
            let group = self.lanes[i].group;
            let ring = self.layout.sent(group);
            if looks || self.lanes[i].free(&ring) < u64::from(ring.lines / 2) {
                self.look(i, view, out);
            }
            if self.lanes[i].has_to_post() {
                let holder = holder_of(&self.trees, group, epoch);
                self.lanes[i].post(&ring, (hm, holder), out);
            }
        }
        // Behind that: a replica that started anew gets again what is there before more is written.
        if self.send_stale(view, out) {
            for lane in &mut self.lanes {
                let holder = holder_of(&self.trees, lane.group, epoch);
                lane.post(&self.layout.sent(lane.group), (hm, holder), out);
            }
        }
    }

    /// Looks at what the replicas of a group say that it has taken over, and who leads.
    fn look(&mut self, lane: usize, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let epoch = self.epoch();
        if self.trees.is_some() {
            (0..self.lanes[lane].replicas.len()).for_each(|rank| self.learn(lane, rank, view, out));
        }
        let lane = &mut self.lanes[lane];
        let mut leading = 0;
        for rank in 0..lane.replicas.len() {
            let line = &view.region(self.layout.credit(lane.group, rank))[0];
            // The lease is in the word itself, so a word of a former holder is never believed.
            let word = line.word(0);
            if (word >> 48) as u16 == epoch as u16 {
                let open = lane.head.wrapping_sub(word) & 0xffff_ffff_ffff;
                // A message that was never sent cannot have been taken over.
                match lane.head.checked_sub(open) {
                    Some(full) => lane.taken = lane.taken.max(full),
                    None => out.note(Note::Malformed(lane.replicas[rank].pid, "credit")),
                }
            }
            let term = line.word(1);
            if term > leading {
                (leading, lane.leader) = (term, Some(rank));
            }
        }
        while lane.open.front().is_some_and(|&(_, end)| end <= lane.taken) {
            lane.open.pop_front();
        }
    }

    fn done(&mut self, ticketed: TicketRequest) {
        let TicketRequest::Sent { group, rank, low } = ticketed else { return };
        let lane = &mut self.lanes[group.index()];
        let replica = &mut lane.replicas[rank];
        replica.flying = replica.flying.saturating_sub(1);
        if replica.stale > 0 {
            // Writes to one process are answered in order: this one was posted before that started anew.
            replica.stale -= 1;
            return;
        }
        let pos = ticket::full(low, replica.posted);
        replica.done = replica.done.max(pos);
    }

    /// A replica started anew: it gets again what its group has not taken over.
    fn fresh(&mut self, pid: Pid) {
        let Role::Replica { group, rank } = self.config.cluster().role(pid) else { return };
        let lane = &mut self.lanes[group.index()];
        let replica = &mut lane.replicas[usize::from(rank)];
        replica.told = false;
        replica.posted = lane.taken.min(replica.posted);
        replica.done = replica.posted;
        replica.stale = replica.flying;
    }
}

impl GroupLane {
    /// Lines that may be written now. The lines of a position are used again once the group took
    /// it over, at any replica: it is in the log then, and nobody reads it from `HM` any
    /// more; and once no write still copies from them.
    fn free(&self, ring: &RecordRing) -> u64 {
        let busy = |r: &BufferProgress| if r.done < r.posted { r.done } else { u64::MAX };
        let held = self.replicas.iter().map(busy).min().unwrap_or(u64::MAX).min(self.taken);
        u64::from(ring.lines) - (self.head - held)
    }

    /// Whether some record, or the fence, is not posted to some replica.
    fn has_to_post(&self) -> bool {
        self.fenced || self.replicas.iter().any(|r| r.posted < self.head)
    }

    // [TRAM 1:4-6] the same lines to every replica, in one or two writes each.
    fn post(
        &mut self,
        ring: &RecordRing,
        (hm, holder): (RecordRing, WriteSource),
        out: &mut Outbox<Memory>,
    ) {
        let fenced = core::mem::take(&mut self.fenced);
        let group = self.group;
        let head = self.head;
        let pad = self.pad;
        let leader = self.leader;
        // The leader's copy first: the message waits for no other one.
        let (n, first) = (self.replicas.len(), leader.unwrap_or(0));
        for rank in (first..n).chain(0..first) {
            let replica = &mut self.replicas[rank];
            let (to, region) = (replica.pid, hm.region);
            if (replica.posted < head || fenced) && !core::mem::replace(&mut replica.told, true) {
                let (at, source) = (HOLDER, holder);
                out.ask(MemoryOutput::Write { to, region, at, source, ticket: None, bell: fenced });
            }
            while replica.posted < head {
                let (count, next) = ring.piece(replica.posted, head, pad);
                let lines = LineRange { region: ring.region, at: ring.at(replica.posted), count };
                let (at, source) = (hm.at(replica.posted), WriteSource::Copy(lines));
                replica.posted = next;
                replica.flying += 1;
                let ticket = TicketRequest::Sent { group, rank, low: replica.posted }.ticket();
                out.ask(MemoryOutput::Write {
                    to,
                    region,
                    at,
                    source,
                    ticket: Some(ticket),
                    bell: leader.is_none_or(|l| l == rank),
                });
            }
        }
    }
}

/// The line that tells a group whose requests follow, and for which tree.
fn holder_of(
    trees: &Option<alloc::boxed::Box<ClientOverlay>>,
    group: Gid,
    epoch: u32,
) -> WriteSource {
    match trees {
        Some(trees) => trees.holder(group, epoch),
        None => buffer::holder(epoch),
    }
}

impl Protocol for TramClient {
    type Medium = Memory;

    fn step(
        &mut self,
        now: Time,
        view: RegionWindow<'_>,
        input: Input<'_, Memory>,
        out: &mut Outbox<Memory>,
    ) {
        match input {
            Input::Start { incarnation } => self.lease = incarnation,
            Input::Submit(s) => self.submit(view, s, out),
            Input::Overlay(overlay) => {
                self.ask_overlay(overlay);
                self.poll(now, view, out);
            }
            Input::Medium(MemoryInput::Poll) | Input::Wake => self.poll(now, view, out),
            Input::Medium(MemoryInput::Done(t, outcome)) => {
                debug_assert!(
                    !matches!(outcome, AccessOutcome::Words(_)),
                    "a client reads nothing"
                );
                if let Some(ticketed) = TicketRequest::of(t) {
                    self.done(ticketed);
                }
            }
            Input::Medium(MemoryInput::Fresh { pid, .. }) => self.fresh(pid),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        let is_behind = |l: &GroupLane| l.replicas.iter().any(|r| r.posted < l.head);
        if self.lanes.iter().any(is_behind) {
            return Some((Time::ZERO, WakeReason::Flush));
        }
        let owed = self.trees.is_some() || self.lanes.iter().any(|l| !l.open.is_empty());
        let waits = self.owes_a_look && owed;
        waits.then(|| (self.looked + ROUND, WakeReason::Flush))
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        if dst.is_empty() || bytes > self.payload_max() {
            return 0;
        }
        if self.spreads || self.mutants.is(TramMutant::SendsToEach) {
            let bytes = if self.spreads { bytes + exchange::FRAME_BYTES } else { bytes };
            // The least of what its lanes have room for.
            let room = |g: Gid| self.room_towards(g, bytes);
            return dst.iter().map(room).min().unwrap_or(0);
        }
        let target = self.target(dst);
        if self.awaits_overlay(target) { 0 } else { self.room_towards(target, bytes) }
    }

    fn payload_max(&self) -> usize {
        let frame = if self.spreads { exchange::FRAME_BYTES } else { 0 };
        self.layout.payload_max() - frame
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        for lane in &self.lanes {
            lane.open.iter().for_each(|&(m, _)| tell(m, WaitReason::Order(lane.group)));
        }
        for StaleMessage { record, .. } in self.trees.iter().flat_map(|trees| &trees.stale) {
            tell(record.msg, WaitReason::Room(self.target(record.dst)));
        }
    }

    fn status(&self) -> ProtocolStatus {
        let open: u64 = self.lanes.iter().map(|l| l.open.len() as u64).sum();
        let backlog = open + self.trees.as_ref().map_or(0, |trees| trees.stale.len() as u64);
        ProtocolStatus { backlog, ..ProtocolStatus::default() }
    }

    fn overlay(&self) -> Option<(u32, &Overlay)> {
        self.trees.as_ref().map(|trees| trees.numbered())
    }
}
