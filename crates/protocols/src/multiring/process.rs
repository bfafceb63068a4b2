//! A process of Multi-Ring Paxos: a replica that proposes, accepts and learns in its rings.

use super::barrier::Barriers;
use super::keep::{Act, Keep, Storage};
use super::logbook::Reading;
use super::merge::{Merge, Stop};
use super::proposer::Proposer;
use super::pull::Pull;
use super::reach::Reach;
use super::recovery::Recovery;
use super::ring::{Cx, Ring};
use super::rings::{Point, RingId, ring_for};
use super::transfer::{Donation, Intake};
use super::word::{Packet, Standing, Word};
use super::{Mutant, Shape};
use crate::layers::heartbeat::Heartbeat;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::messages::{In, Lane, Messages, Out};
use amcast_core::step::{Oracle, Status, Ticket, Wait, Why};
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Outbox, Output, Pid, Protocol, ProtocolEvent, Role, Submission,
    Time,
};

/// Marks the tickets of reads of the log; the rest is the record.
pub(super) const LOAD: u64 = 1 << 62;

/// Reads of the log at a time.
pub(super) const LOADS_MAX: usize = 128;

/// Records that are idle before the log is trimmed.
pub(super) const TRIM_RECORDS: usize = 256;

/// Instances that are idle before a learner notes that nothing was delivered in them.
pub(super) const IDLE_INSTANCES: u64 = 1024;

/// How far the patience with a slow replica may grow, in timeouts, as far as it stays within seconds.
const PATIENCE_GROWTH: u64 = 4096;

/// Acts and words to itself that follow from one input, at most, before others have their turn.
const SETTLE_MAX: usize = 4096;

/// A replica.
#[derive(Debug)]
pub(super) struct MultiRing {
    pub(super) me: Pid,
    pub(super) group: Gid,
    pub(super) shape: Arc<Shape>,
    pub(super) life: u32,
    pub(super) now: Time,
    pub(super) begun: bool,
    /// By ring: none where this process is no member.
    pub(super) rings: Vec<Option<Box<Ring>>>,
    pub(super) merge: Merge,
    pub(super) proposers: Vec<Proposer>,
    pub(super) heartbeat: Heartbeat,
    pub(super) reach: Reach,
    /// With whom signs of life are exchanged.
    pub(super) acquaintances: Vec<Pid>,
    /// By process: the life that was heard last.
    pub(super) lives: Vec<u32>,
    /// By process: which of its memories counts.
    pub(super) memories: Vec<u32>,
    pub(super) keep: Keep,
    /// The log of earlier lives may lack its end.
    torn: bool,
    /// It is gone altogether.
    gone: bool,
    /// It has a record that makes no sense.
    pub(super) unreadable: bool,
    /// The application's state up to here survives, and the point that it stands at.
    pub(super) checkpoint: (u64, Point),
    /// Nothing is delivered between this position and this point: as written.
    pub(super) idle: (u64, Point),
    /// The point in the last record that says so, durable or not.
    pub(super) idle_written: Point,
    /// The application's state is in force.
    fit: bool,
    pub(super) intake: Intake,
    pub(super) donations: Vec<Option<Donation>>,
    pub(super) captures: u32,
    pub(super) recovery: Recovery,
    pub(super) barriers: Barriers,
    pub(super) post: Vec<(Pid, Word)>,
    own: VecDeque<Word>,
    /// What the rings report and note in this step.
    of_rings: Outbox<Messages<Packet>>,
    /// How far rings must come for what this process ordered to be delivered.
    pub(super) needs: Vec<(RingId, u64)>,
    /// How far rings must come for what others wait for.
    pub(super) wants: Vec<(RingId, u64)>,
    /// By ring: how far it was asked to come.
    pub(super) pulls: Vec<Pull>,
    /// Records that are being read: which slots they are for.
    pub(super) loads: BTreeMap<u64, (RingId, u64)>,
    /// Who waits for instances of a ring that are being read.
    pub(super) readings: BTreeMap<(RingId, Pid), Reading>,
    /// Since when the merge waits for a ring.
    pub(super) blocked: Option<(RingId, u64, Time)>,
    /// There is something to send, or to do, at once.
    busy: bool,
}

impl MultiRing {
    pub(super) fn new(me: Pid, shape: &Arc<Shape>) -> Self {
        let processes = shape.cluster.processes();
        let Role::Replica { group, .. } = shape.cluster.role(me) else {
            unreachable!("every process is a replica")
        };
        let ring = |(id, of): (usize, &super::rings::RingShape)| {
            of.member(me).map(|_| Box::new(Ring::new(id as RingId, of.clone(), me, processes)))
        };
        let rings: Vec<_> = shape.rings.iter().enumerate().map(ring).collect();
        let knows = |p: &Pid| {
            let shared = |ring: &Ring| ring.hears(me, *p);
            *p != me && rings.iter().flatten().any(|ring| shared(ring))
        };
        let acquaintances: Vec<Pid> = shape.cluster.pids().filter(knows).collect();
        let everybody: Vec<usize> = (0..processes).collect();
        let count = rings.len();
        let mut heartbeat = Heartbeat::new(me.index(), &everybody, shape.heartbeat, shape.suspect);
        // Streams may be slow, and timeouts far shorter than what they take.
        heartbeat.grow_patience_to(PATIENCE_GROWTH);
        Self {
            me,
            group,
            life: 0,
            now: Time::ZERO,
            begun: false,
            merge: Merge::new(group, shape),
            proposers: alloc::vec![Proposer::default(); count],
            heartbeat,
            reach: Reach::new(processes),
            acquaintances,
            lives: alloc::vec![0; processes],
            memories: alloc::vec![0; processes],
            keep: Keep::new(shape.storage),
            torn: false,
            gone: false,
            unreadable: false,
            checkpoint: (0, Point::default()),
            idle: (0, Point::default()),
            idle_written: Point::default(),
            fit: false,
            intake: Intake::default(),
            donations: alloc::vec![None; shape.cluster.replicas()],
            captures: 0,
            recovery: Recovery::default(),
            barriers: Barriers::default(),
            post: Vec::new(),
            own: VecDeque::new(),
            of_rings: Outbox::default(),
            needs: Vec::new(),
            wants: Vec::new(),
            pulls: alloc::vec![Pull::default(); count],
            loads: BTreeMap::new(),
            readings: BTreeMap::new(),
            blocked: None,
            busy: false,
            rings,
            shape: Arc::clone(shape),
        }
    }

    pub(super) fn say(&mut self, to: Pid, word: Word) {
        self.post.push((to, word));
    }

    /// The other replicas of this group.
    pub(super) fn comrades(&self) -> Vec<Pid> {
        self.shape.cluster.members(self.group).filter(|&p| p != self.me).collect()
    }

    /// The rank of another replica of this group.
    pub(super) fn rank_of(&self, p: Pid) -> Option<usize> {
        match self.shape.cluster.role(p) {
            Role::Replica { group, rank } if group == self.group && p != self.me => {
                Some(usize::from(rank))
            }
            _ => None,
        }
    }

    /// Whether this process may vote and promise.
    pub(super) const fn may_vote(&self) -> bool {
        self.begun && !self.recovery.lost
    }

    /// Whether its application has the state that its place in the order asks for.
    pub(super) const fn has_state(&self) -> bool {
        self.begun && self.fit && !self.intake.wanted && self.intake.installing.is_none()
    }

    /// Does something with a ring, if this process is in it.
    pub(super) fn with_ring<T>(
        &mut self,
        id: RingId,
        does: impl FnOnce(&mut Ring, &mut Cx<'_>) -> T,
    ) -> Option<T> {
        let mut ring = self.rings.get_mut(usize::from(id))?.take()?;
        let mut cx = Cx {
            now: self.now,
            me: self.me,
            votes: self.begun && !self.recovery.lost,
            shape: &self.shape,
            heartbeat: &self.heartbeat,
            reach: &self.reach,
            memories: &mut self.memories,
            keep: &mut self.keep,
            post: &mut self.post,
            out: &mut self.of_rings,
            needs: &mut self.needs,
        };
        let done = does(&mut ring, &mut cx);
        self.rings[usize::from(id)] = Some(ring);
        Some(done)
    }

    pub(super) fn ring_ids(&self) -> core::ops::Range<RingId> {
        0..self.rings.len() as RingId
    }

    fn start(&mut self, incarnation: u32, out: &mut Outbox<Messages<Packet>>) {
        (self.life, self.begun) = (incarnation, true);
        let is = |mutant| self.shape.mutants.is(mutant);
        let cut = !self.keep.is_empty();
        let gone = incarnation > 0
            && match self.keep.storage() {
                Storage::Memory => true,
                _ if cut && is(Mutant::TakesACutLogForWhole) => false,
                Storage::Synced | Storage::Written => self.gone,
            };
        self.rings.iter_mut().flatten().for_each(|ring| ring.has_voted_for_all());
        let whole = is(Mutant::TakesATornLogForWhole);
        let torn = self.torn && self.keep.storage() == Storage::Written && !whole;
        self.fit = !gone;
        let forgot = gone || torn || self.unreadable || self.recovery.lost;
        if forgot && !self.shape.mutants.is(Mutant::ForgetsThatItForgot) {
            self.lose_memory();
            out.event(ProtocolEvent::Lagging);
        }
        if gone {
            self.want_state(out);
        }
        // What was applied without a checkpoint is delivered again, from where nothing was.
        if self.idle.0 == 0 {
            self.merge.install(0, self.idle.1);
        }
        self.checkpoint.1 = self.merge.point;
    }

    /// The application has a state in force that holds every delivery up to `position`, on disk or not.
    fn installed(&mut self, position: u64, out: &mut Outbox<Messages<Packet>>) {
        if let Some(awaited) = self.intake.installing {
            if position >= awaited {
                self.intake.installing = None;
                self.fit = true;
                self.report_caught_up(position, out);
            }
        } else if position > self.merge.delivered {
            // From a checkpoint, or from elsewhere.
            let point = if position == self.idle.0 { self.idle.1 } else { Point::of(position) };
            self.merge.install(position, point);
            self.fit = true;
            if self.intake.wanted && !self.recovery.lost {
                // It came from elsewhere: none is asked for any more.
                self.intake.wanted = false;
                self.report_caught_up(position, out);
            }
        } else if !self.intake.wanted {
            self.fit = true;
        }
    }

    /// Reports that nothing is on its way to this process any more, if that is so: neither state nor
    /// memory. Whether the application has its state in force is for the application to say.
    fn report_caught_up(&self, position: u64, out: &mut Outbox<Messages<Packet>>) {
        if self.may_vote() && !self.intake.wanted && self.intake.installing.is_none() {
            out.event(ProtocolEvent::CaughtUp(position));
        }
    }

    /// Puts into the rings how far this process is.
    fn stand(&mut self) {
        let (safe, merged) = (self.safe_point(), self.merge.point_of(self.merge.applied));
        for at in 0..self.merge.rings.len() {
            let id = self.merge.rings[at];
            let (safe, merged) = (self.merge.passed(safe, id), self.merge.passed(merged, id));
            self.with_ring(id, |ring, cx| ring.stand(merged, safe, cx));
        }
    }

    fn act(&mut self, act: Act, out: &mut Outbox<Messages<Packet>>) {
        match act {
            Act::Vote { ring, ballot, upto } => {
                self.with_ring(ring, |r, cx| r.vote(ballot, upto, cx));
            }
            Act::Say { to, words } => words.into_iter().for_each(|word| self.say(to, word)),
            Act::Lead { ring, ballot } => {
                self.with_ring(ring, |r, cx| r.promised_itself(ballot, cx));
            }
            Act::Recovered => {
                self.recovery.lost = false;
                for id in self.ring_ids() {
                    self.with_ring(id, Ring::votes_again);
                }
                self.report_caught_up(self.merge.delivered, out);
            }
            Act::Noted { ring, at } => {
                self.with_ring(ring, |r, _| r.noted(at));
            }
            Act::Trim { before } => out.push(Output::Trim { before }),
            Act::Idle { position, point } => {
                self.idle = (position, point);
                if position == self.checkpoint.0 {
                    self.checkpoint.1 = self.checkpoint.1.max(point);
                }
            }
        }
    }

    /// Carries out what follows from an input within this process.
    fn settle(&mut self, out: &mut Outbox<Messages<Packet>>) {
        for _ in 0..SETTLE_MAX {
            for at in (0..self.post.len()).rev() {
                if self.post[at].0 == self.me {
                    let (_, word) = self.post.remove(at);
                    self.own.push_front(word);
                }
            }
            if let Some(act) = self.keep.due.pop_front() {
                self.act(act, out);
            } else if let Some(word) = self.own.pop_front() {
                self.hear(self.me, word, out);
            } else {
                return;
            }
        }
        self.busy = true;
    }

    /// What is done when time passes, and with all that came since the last time.
    fn tick(&mut self, out: &mut Outbox<Messages<Packet>>) {
        self.beat();
        self.ask_for_memory();
        self.remember(out);
        self.ask_for_state();
        self.end_donations(out);
        self.stand();
        for id in self.ring_ids() {
            self.with_ring(id, Ring::elect);
        }
        self.settle(out);
        self.propose();
        self.settle(out);
        for id in self.ring_ids() {
            self.with_ring(id, |ring, cx| {
                ring.lead(cx);
                ring.spread(cx);
                ring.catch_up(cx);
            });
        }
        self.settle(out);
        self.see_arrivals();
        self.ask_for_barriers();
        self.pull();
        self.settle(out);
        for id in self.ring_ids() {
            self.with_ring(id, |ring, cx| {
                ring.pass_on(cx);
                ring.pass_beside(cx);
                ring.report(cx);
                ring.thank_relayed(cx);
            });
        }
        self.trim();
        self.settle(out);
    }

    /// Shows that this process lives, and where it stands.
    fn beat(&mut self) {
        let Some(count) = self.heartbeat.beat(self.now) else { return };
        let fit = self.fit() && self.reaches_enough();
        let gaps = self.gaps();
        for at in 0..self.acquaintances.len() {
            let p = self.acquaintances[at];
            let mine = self.rings.iter().flatten().filter(|r| r.shape.member(p).is_some());
            let rings = mine.map(|r| (r.id, Standing { known: r.known, ..r.mine })).collect();
            self.say(p, Word::Alive { count, fit, gaps: gaps.clone(), rings });
        }
    }

    /// Whether this process hears enough others, and they it, to coordinate any ring in which it votes.
    fn reaches_enough(&mut self) -> bool {
        self.ring_ids().all(|id| {
            self.with_ring(id, |r, cx| r.my_vote.is_none() || r.reaches_quorum(cx)).unwrap_or(true)
        })
    }

    /// Delivers what can be delivered.
    fn merge(&mut self, out: &mut Outbox<Messages<Packet>>) {
        if self.intake.wanted || !self.begun {
            return;
        }
        let stop = self.merge.run(&self.rings, &self.shape, out);
        let before = self.blocked.take();
        match stop {
            Stop::Waits(id, instance) => {
                let same = before.filter(|(r, i, _)| (*r, *i) == (id, instance));
                self.blocked = same.or(Some((id, instance, self.now)));
            }
            Stop::Disk(id, first) => _ = self.load(id, first, out),
            Stop::Lacks(_) => self.want_state(out),
            Stop::Full => {}
            Stop::More => self.busy = true,
        }
        self.note_idle();
    }

    /// Records.
    fn persist(&mut self, out: &mut Outbox<Messages<Packet>>) {
        let first = self.keep.first_ticket();
        for (i, (record, awaited)) in self.keep.fresh.drain(..).enumerate() {
            let record = out.fill(|to| record.encode(to));
            out.push(Output::Persist { ticket: Ticket(first + i as u64), record, awaited });
        }
    }

    /// Records, and words to others.
    fn send(&mut self, out: &mut Outbox<Messages<Packet>>) {
        self.persist(out);
        out.append(&mut self.of_rings);
        for (to, word) in self.post.drain(..) {
            out.ask(Out::To(to, Lane::Stream, Packet { life: self.life, word }));
        }
    }
}

impl Protocol for MultiRing {
    type Medium = Messages<Packet>;

    fn step(
        &mut self,
        now: Time,
        (): (),
        input: Input<'_, Messages<Packet>>,
        out: &mut Outbox<Messages<Packet>>,
    ) {
        self.now = now;
        self.of_rings.trace_as(out);
        let woken = matches!(input, Input::Wake);
        // What the application has is said behind that.
        let starts = matches!(input, Input::Start { .. });
        self.busy = !woken;
        match input {
            Input::Stored { number, record } => return self.restore(number, record, out),
            Input::Torn => self.torn = true,
            Input::Lost => self.gone = true,
            Input::Start { incarnation } => self.start(incarnation, out),
            Input::Submit(submission) => self.submit(&submission),
            Input::Wake => self.tick(out),
            Input::Durable(ticket) => self.keep.durable(ticket.0),
            Input::Loaded { ticket, record } => self.on_loaded(ticket, record, out),
            Input::Checkpointed(position) => self.checkpointed(position),
            Input::Applied(position) => self.merge.on_applied(position),
            Input::Installed { position, .. } => self.installed(position, out),
            Input::Unfit => self.fit = false,
            Input::Captured { ticket, position, bytes } => {
                self.on_captured(ticket, position, bytes, out);
            }
            Input::Piece { ticket, offset, bytes } => self.on_own_piece(ticket, offset, bytes),
            Input::Barrier(ticket) => self.barriers.set(ticket),
            Input::Oracle(Oracle::Suspect(p)) => self.heartbeat.suspect(p.index()),
            Input::Oracle(Oracle::Trust(p)) => self.heartbeat.trust(p.index()),
            // Its members are fixed: one that stops is gone round.
            Input::Leave
            | Input::Oracle(Oracle::Leader(..) | Oracle::NoLeader(_))
            | Input::Medium(In::Down(_)) => {}
            Input::Medium(In::Up(p)) => self.reconnected(p),
            Input::Medium(In::From(from, packet)) => {
                if self.heard_life(from, packet.life) {
                    self.hear(from, packet.word, out);
                }
            }
        }
        self.settle(out);
        // In front of what is delivered: own votes may have decided that, which count only if the records
        // behind them can be written.
        self.persist(out);
        if !starts {
            self.merge(out);
            self.settle(out);
            self.pass_barriers(out);
        }
        self.send(out);
    }

    fn deadline(&self) -> Option<(Time, Why)> {
        if self.busy {
            return Some((self.now, Why::Flush));
        }
        let Shape { heartbeat, retry, suspect, .. } = *self.shape;
        let (paced, votes) = (self.shape.pace.is_some(), self.may_vote());
        let of_ring = |ring: &Ring| {
            let all = [
                ring.pass_at(heartbeat),
                ring.lead_at(retry, paced),
                ring.fetch_at(self.me, retry),
                // Who has lost its memory elects nobody.
                if ring.lead.is_none() && votes {
                    ring.elect_due(suspect, retry)
                } else {
                    Time::NEVER
                },
            ];
            all.into_iter().min().unwrap_or(Time::NEVER)
        };
        let rings = self.rings.iter().flatten().map(|ring| of_ring(ring));
        let proposers = self.proposers.iter().map(|p| p.send_at(suspect));
        let others = [
            self.recovery_at(),
            self.intake_at(),
            self.donations_at(),
            self.pull_at(),
            self.barriers.due(retry),
        ];
        let next = rings.chain(proposers).chain(others).min();
        let (beat, why) = self.heartbeat.deadline();
        Some(match next {
            Some(at) if at < beat => (at.max(self.now), Why::Retry),
            _ => (beat, why),
        })
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        let Some(id) = ring_for(&self.shape.rings, dst).filter(|_| self.begun) else { return 0 };
        let (count, held) = self.proposers[usize::from(id)].load();
        let places = self.shape.window.saturating_sub(count);
        let free = self.shape.window_bytes.saturating_sub(held);
        places.min(free.checked_div(bytes).unwrap_or(places))
    }

    fn payload_max(&self) -> usize {
        self.shape.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, Wait)) {
        for (proposer, ring) in self.proposers.iter().zip(&self.shape.rings) {
            let group = ring.set.lowest().unwrap_or(Gid(0));
            proposer.messages().for_each(|m| tell(m, Wait::Order(group)));
        }
    }

    fn fit(&self) -> bool {
        let able = |ring: &Ring| ring.my_vote.is_none() || ring.table_at == ring.known;
        self.has_state() && self.may_vote() && self.rings.iter().flatten().all(|ring| able(ring))
    }

    fn status(&self) -> Status {
        let own = ring_for(&self.shape.rings, GroupSet::one(self.group));
        let own = own.and_then(|id| self.rings[usize::from(id)].as_ref());
        let backlog: usize = self.proposers.iter().map(|p| p.load().0).sum();
        Status {
            leader: own.and_then(|ring| ring.coordinator()),
            epoch: own.map_or(0, |ring| ring.ballot.number()),
            delivered: self.merge.delivered,
            decided: self.merge.delivered,
            backlog: backlog as u64,
            follows: self.may_vote() && own.is_some_and(|ring| ring.coordinator().is_some()),
        }
    }
}

impl MultiRing {
    fn submit(&mut self, submission: &Submission<'_>) {
        let dst = match self.shape.mutants.is(Mutant::TellsAll) {
            true => self.shape.cluster.all_groups(),
            false => submission.dst,
        };
        // [MRP 2:1]
        let id = ring_for(&self.shape.rings, dst).expect("room was asked for");
        let (from, block_bytes) = ((self.me, self.life), self.shape.pack_bytes);
        self.proposers[usize::from(id)].submit(from, submission, block_bytes);
    }
}
