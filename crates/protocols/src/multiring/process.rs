//! A process of Multi-Ring Paxos: a replica, which is proposer, acceptor and learner in its rings. Its step
//! hands inputs to the roles, and collects their messages, writes and deliveries.

use super::acceptor_recovery::{AcceptorRecovery, LossEvidence, StorageState};
use super::election::longest_patience;
use super::levelling::Levelling;
use super::log_replay::Retransmissions;
use super::merge::{MergeStall, RingMerge};
use super::message::{PeerProgress, RingMessage, RingPacket};
use super::persistence::{AcceptorStorage, DurableAction, Persistence};
use super::proposer::Proposer;
use super::read_index::ReadIndexQueue;
use super::ring::{RingContext, RingMember};
use super::start_goals::StartGoals;
use super::topology::{MergePosition, RingId, ring_for};
use super::transfer::{OPTIONAL_QUERIES, StateNegotiation};
use super::{MultiRingConfig, MultiRingMutant};
use crate::layers::failure_detector::FailureDetector;
use crate::layers::routing::LinkTable;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::messages::{Lane, MessageInput, MessageOutput, Messages};
use amcast_core::step::{Note, Oracle, ProtocolStatus, Ticket, WaitReason, WakeReason};
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Outbox, Output, Pid, Protocol, ProtocolEvent, Role, Submission,
    Time,
};

/// Marks the tickets of reads of the log; the rest is the number of the record.
pub(super) const DISK_READ: u64 = 1 << 62;

/// Reads of the log at a time.
pub(super) const DISK_READS_MAX: usize = 128;

/// Records that are not needed any more before the log is trimmed.
pub(super) const TRIM_RECORDS: usize = 256;

/// Instances without a delivery after which a learner writes that there was none.
pub(super) const IDLE_INSTANCES: u64 = 1024;

/// How far the failure detector's patience with a slow replica may grow, in timeouts, as far as it stays
/// within seconds.
const PATIENCE_GROWTH: u64 = 4096;

/// Local actions that follow from one input, at most, before others have their turn.
const LOCAL_ACTIONS_MAX: usize = 4096;

/// A replica: a process of Multi-Ring Paxos, with its part in each ring.
#[derive(Debug)]
pub(super) struct MultiRing {
    pub(super) me: Pid,
    pub(super) group: Gid,
    pub(super) config: Arc<MultiRingConfig>,
    /// The incarnation of this process.
    pub(super) incarnation: u32,
    pub(super) now: Time,
    /// Whether it has started; before that it only replays its log.
    pub(super) started: bool,
    /// By ring: none where this process is no member.
    pub(super) rings: Vec<Option<Box<RingMember>>>,
    pub(super) merge: RingMerge,
    /// By ring.
    pub(super) proposers: Vec<Proposer>,
    /// Which processes are heard, and hear each other.
    pub(super) links: LinkTable,
    /// By process: its last incarnation that was heard of.
    pub(super) incarnations: Vec<u32>,
    pub(super) persistence: Persistence,
    pub(super) state: StateNegotiation,
    pub(super) recovery: AcceptorRecovery,
    pub(super) read_indexes: ReadIndexQueue,
    pub(super) levelling: Levelling,
    pub(super) retransmissions: Retransmissions,
    pub(super) start_goals: StartGoals,
    pub(super) outputs: OutputQueues,
}

/// The outputs of a step so far.
#[derive(Debug, Default)]
pub(super) struct OutputQueues {
    /// Messages to be sent; those to this process itself are moved to `loopback`.
    pub(super) messages: Vec<(Pid, RingMessage)>,
    /// Messages of this process to itself.
    pub(super) loopback: VecDeque<RingMessage>,
    /// Events and notes of the rings.
    pub(super) rings: Outbox<Messages<RingPacket>>,
    /// The process must be woken at once.
    pub(super) has_more_work: bool,
}

impl MultiRing {
    pub(super) fn new(me: Pid, config: &Arc<MultiRingConfig>) -> Self {
        let processes = config.cluster.processes();
        let Role::Replica { group, .. } = config.cluster.role(me) else {
            unreachable!("every process is a replica")
        };
        let ring = |(id, of): (usize, &super::topology::RingTopology)| {
            of.member(me)
                .map(|_| Box::new(RingMember::new(id as RingId, of.clone(), me, processes)))
        };
        let rings: Vec<_> = config.rings.iter().enumerate().map(ring).collect();
        let knows = |p: &Pid| {
            let shared = |ring: &RingMember| ring.exchanges_heartbeats(me, *p);
            *p != me && rings.iter().flatten().any(|ring| shared(ring))
        };
        let neighbours: Vec<Pid> = config.cluster.pids().filter(knows).collect();
        let everybody: Vec<usize> = (0..processes).collect();
        let count = rings.len();
        let mut detector =
            FailureDetector::new(me.index(), &everybody, config.heartbeat, config.suspect);
        // Streams may be slow, and timeouts far shorter than they take.
        detector.grow_patience_to(PATIENCE_GROWTH);
        Self {
            me,
            group,
            incarnation: 0,
            now: Time::ZERO,
            started: false,
            merge: RingMerge::new(group, config),
            proposers: alloc::vec![Proposer::default(); count],
            links: LinkTable::new(me, neighbours, detector, processes),
            incarnations: alloc::vec![0; processes],
            persistence: Persistence::new(config.storage, config.limits.held_bytes),
            state: StateNegotiation::default(),
            recovery: AcceptorRecovery::new(processes),
            read_indexes: ReadIndexQueue::default(),
            levelling: Levelling::new(count),
            retransmissions: Retransmissions::default(),
            start_goals: StartGoals::new(count),
            outputs: OutputQueues::default(),
            rings,
            config: Arc::clone(config),
        }
    }

    pub(super) fn send(&mut self, to: Pid, message: RingMessage) {
        self.outputs.messages.push((to, message));
    }

    /// The other replicas of this group.
    pub(super) fn group_peers(&self) -> Vec<Pid> {
        self.config.cluster.members(self.group).filter(|&p| p != self.me).collect()
    }

    /// The rank of another replica of this group.
    pub(super) fn rank_of(&self, p: Pid) -> Option<usize> {
        match self.config.cluster.role(p) {
            Role::Replica { group, rank } if group == self.group && p != self.me => {
                Some(usize::from(rank))
            }
            _ => None,
        }
    }

    /// Whether this process may vote and promise.
    pub(super) fn may_vote(&self) -> bool {
        self.started && !self.recovery.is_needed()
    }

    /// Whether its application has the state that its place in the order asks for.
    pub(super) const fn has_state(&self) -> bool {
        self.started && self.state.in_force && !self.state.wanted && self.state.awaited.is_none()
    }

    /// Calls `does` with a ring and its context, if this process is in it.
    pub(super) fn with_ring<T>(
        &mut self,
        id: RingId,
        does: impl FnOnce(&mut RingMember, &mut RingContext<'_>) -> T,
    ) -> Option<T> {
        let votes = self.may_vote();
        let mut ring = self.rings.get_mut(usize::from(id))?.take()?;
        let mut cx = RingContext {
            now: self.now,
            me: self.me,
            votes,
            config: &self.config,
            links: &self.links,
            storage_epochs: &mut self.recovery.epochs,
            writes: &mut self.persistence.writes,
            outgoing: &mut self.outputs.messages,
            out: &mut self.outputs.rings,
            level_needs: &mut self.levelling.needs,
        };
        let done = does(&mut ring, &mut cx);
        self.rings[usize::from(id)] = Some(ring);
        Some(done)
    }

    pub(super) fn ring_ids(&self) -> core::ops::Range<RingId> {
        0..self.rings.len() as RingId
    }

    fn start(&mut self, incarnation: u32, out: &mut Outbox<Messages<RingPacket>>) {
        (self.incarnation, self.started) = (incarnation, true);
        let is = |mutant| self.config.mutants.is(mutant);
        let entry_from = !self.persistence.writes.is_empty();
        let gone = incarnation > 0
            && match self.persistence.writes.storage() {
                AcceptorStorage::Memory => true,
                _ if entry_from && is(MultiRingMutant::TakesACutLogForWhole) => false,
                AcceptorStorage::Synced | AcceptorStorage::Written => self.persistence.gone,
            };
        self.rings.iter_mut().flatten().for_each(|ring| ring.assume_voted_all());
        let whole = is(MultiRingMutant::TakesATornLogForWhole);
        let torn = self.persistence.torn
            && self.persistence.writes.storage() == AcceptorStorage::Written
            && !whole;
        self.state.in_force = !gone;
        let has_gap = self.has_gap();
        if has_gap {
            let why = "a log with a gap: values in front of others are missing";
            out.note(Note::Malformed(self.me, why));
        }
        let found = torn || has_gap || self.persistence.unreadable || self.recovery.is_needed();
        if (gone || found) && !self.config.mutants.is(MultiRingMutant::ForgetsItsLoss) {
            self.lose_storage(if found { LossEvidence::Log } else { LossEvidence::Driver });
            self.report_lagging(out);
        }
        if gone {
            self.want_state(out);
            self.state.optional_queries =
                self.persistence.writes.is_durable().then_some(OPTIONAL_QUERIES);
        }
        // Messages applied without a checkpoint are delivered again, from the first delivery on.
        if self.persistence.idle_since.0 == 0 {
            self.merge.install(0, self.persistence.idle_since.1);
        }
        self.persistence.checkpoint.1 = self.merge.next;
        self.begin_start_goals();
    }

    /// Whether values are missing in the log of earlier incarnations, in front of others that it has: its beginning or a part
    /// of it was lost, with all that was promised there. An acceptor writes its values without gaps.
    fn has_gap(&self) -> bool {
        let mut rings = self.rings.iter().flatten().filter(|ring| ring.acceptor.index.is_some());
        rings.any(|ring| !ring.log.is_contiguous())
    }

    /// The application has a state in force that holds every delivery up to `position`, on disk or not.
    fn installed(&mut self, position: u64, needs: u64) {
        self.state.is_unfit = false;
        if self.state.awaited.is_some() {
            if self.is_answered_by(position, needs) {
                self.state.awaited = None;
                self.state.in_force = true;
                // Everything in the state counts as applied, also messages that were delivered while it came or are
                // to be delivered: the application drops that, and reports nothing of it.
                self.merge.on_applied(position);
            }
        } else if position > self.merge.delivered {
            // It is from a checkpoint, or from elsewhere.
            let point = if position == self.persistence.idle_since.0 {
                self.persistence.idle_since.1
            } else {
                MergePosition::of(position)
            };
            self.merge.install(position, point);
            self.state.in_force = true;
            // Where there is a log, a lost one is no lost state: what comes behind the position is still held by the
            // others, or a trimmed instance shows that it is not. In memory, only another replica knows.
            let has_log = self.persistence.writes.is_durable();
            if self.state.wanted && (has_log || !self.recovery.is_needed()) {
                self.state.wanted = false;
            }
        } else if !self.state.wanted || self.state.optional_queries.is_some() {
            // That of a checkpoint may hold nothing of this group.
            self.state.wanted = false;
            self.state.in_force = true;
        }
    }

    /// Reports that this process lags, and is not fit until it has caught up.
    pub(super) fn report_lagging(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        self.state.lagging = true;
        out.event(ProtocolEvent::Lagging);
    }

    /// Whether an acceptor has no table of decided proposals as of what it has learned, because it
    /// continues behind instances that the others have trimmed.
    fn lacks_table(&self) -> bool {
        let lacks = |ring: &RingMember| {
            ring.acceptor.index.is_some() && ring.proposals.at != ring.learner.learned
        };
        self.rings.iter().flatten().any(|ring| lacks(ring))
    }

    /// At the end of a step: reports that this process lags where an acceptor has no table, and that it has
    /// caught up once neither state nor table nor an acceptor's recovery is on its way any more. Whether
    /// the application has its state in force is for the application to say.
    fn report_fitness(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        let lacks = self.started && self.lacks_table();
        if lacks && !self.state.lagging {
            out.mark("multiring-lacks-table");
            self.report_lagging(out);
        }
        let awaits = lacks || self.state.wanted || self.state.awaited.is_some();
        if self.state.lagging && self.may_vote() && !awaits {
            self.state.lagging = false;
            out.event(ProtocolEvent::CaughtUp(self.merge.delivered));
        }
    }

    /// Puts the progress of the application into the rings.
    fn report_progress(&mut self) {
        let (safe, merged) = (self.trimmable_position(), self.merge.applied_point());
        for at in 0..self.merge.rings.len() {
            let id = self.merge.rings[at];
            let (safe, merged) = (self.merge.passed(safe, id), self.merge.passed(merged, id));
            self.with_ring(id, |ring, cx| ring.set_progress(merged, safe, cx));
        }
    }

    fn perform(&mut self, act: DurableAction, out: &mut Outbox<Messages<RingPacket>>) {
        match act {
            DurableAction::Vote { ring, ballot, upto } => {
                self.with_ring(ring, |r, cx| r.vote(ballot, upto, cx));
            }
            DurableAction::Send { to, messages } => {
                messages.into_iter().for_each(|message| self.send(to, message))
            }
            DurableAction::OwnPromise { ring, ballot } => {
                self.with_ring(ring, |r, cx| r.on_own_promise(ballot, cx));
            }
            DurableAction::Recovered => {
                self.recovery.state = StorageState::Intact;
                for id in self.ring_ids() {
                    self.with_ring(id, RingMember::resume_voting);
                }
                out.event(ProtocolEvent::StorageRecovered);
            }
            DurableAction::TableDurable { ring, at } => {
                self.with_ring(ring, |r, _| r.table_is_durable(at));
            }
            DurableAction::Nothing => {}
            DurableAction::Trim { before } => out.push(Output::Trim { before }),
            DurableAction::IdleDurable { position, point } => {
                self.persistence.idle_since = (position, point);
                if position == self.persistence.checkpoint.0 {
                    self.persistence.checkpoint.1 = self.persistence.checkpoint.1.max(point);
                }
            }
        }
    }

    /// Carries out durable actions that are due, and messages of this process to itself.
    fn run_local_actions(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        for _ in 0..LOCAL_ACTIONS_MAX {
            for at in (0..self.outputs.messages.len()).rev() {
                if self.outputs.messages[at].0 == self.me {
                    let (_, message) = self.outputs.messages.remove(at);
                    self.outputs.loopback.push_front(message);
                }
            }
            if let Some(act) = self.persistence.writes.due.pop_front() {
                self.perform(act, out);
            } else if let Some(message) = self.outputs.loopback.pop_front() {
                self.dispatch(self.me, message, out);
            } else {
                return;
            }
        }
        self.outputs.has_more_work = true;
    }

    /// The periodic work, and the work that follows from all inputs since the last time.
    fn tick(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        self.watch_disk();
        self.send_heartbeats();
        self.request_recovery();
        self.finish_recovery(out);
        self.query_state(out);
        self.report_progress();
        self.look_at_start_goals(out);
        for id in self.ring_ids() {
            self.with_ring(id, RingMember::run_election);
        }
        self.run_local_actions(out);
        self.send_proposals();
        self.run_local_actions(out);
        for id in self.ring_ids() {
            self.with_ring(id, |ring, cx| {
                ring.coordinate(cx);
                ring.disseminate_skips(cx);
                ring.request_retransmission(cx);
            });
        }
        self.run_local_actions(out);
        self.note_arrivals();
        self.request_read_indexes();
        self.request_levelling();
        self.run_local_actions(out);
        for id in self.ring_ids() {
            self.with_ring(id, |ring, cx| {
                ring.forward_phase2(cx);
                ring.send_direct(cx);
                ring.report_votes(cx);
                ring.report_forwarded(cx);
            });
        }
        self.trim();
        self.run_local_actions(out);
    }

    /// Sends heartbeats with this process's broken links and progress, if they are due.
    fn send_heartbeats(&mut self) {
        let Some(count) = self.links.beat(self.now) else { return };
        let eligible = self.fit() && self.reaches_quorums() && !self.persistence.writes.hangs;
        let broken = self.links.broken_links(self.now);
        for at in 0..self.links.neighbours().len() {
            let p = self.links.neighbours()[at];
            let mine = self.rings.iter().flatten().filter(|r| r.topology.member(p).is_some());
            let rings = mine
                .map(|r| (r.id, PeerProgress { learned: r.learner.learned, ..r.learner.progress }))
                .collect();
            self.send(p, RingMessage::Heartbeat { count, eligible, broken: broken.clone(), rings });
        }
    }

    /// Finds out whether the disk hangs. It does not where it is as slow as those of the others.
    fn watch_disk(&mut self) {
        let (now, longest) = (self.now, longest_patience(self.config.suspect));
        let mut outvoted = false;
        for ring in self.rings.iter_mut().flatten() {
            outvoted |= ring.is_outvoted(longest, now);
        }
        let writes = &mut self.persistence.writes;
        let waits = writes.waits_since().is_some_and(|since| now.since(since) >= longest);
        writes.hangs = waits && (outvoted || writes.hangs);
    }

    /// Whether this process and a quorum hear each other in each ring in which it votes: else it is not
    /// eligible as a coordinator.
    fn reaches_quorums(&mut self) -> bool {
        self.ring_ids().all(|id| {
            self.with_ring(id, |r, cx| r.acceptor.index.is_none() || r.reaches_quorum(cx))
                .unwrap_or(true)
        })
    }

    /// Delivers all messages that can be delivered.
    fn merge(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        if self.state.wanted || !self.started {
            return;
        }
        let stop = self.merge.run(&self.rings, &self.config, out);
        let before = self.levelling.merge_blocked.take();
        match stop {
            MergeStall::Undecided(id, instance) => {
                let same = before.filter(|(r, i, _)| (*r, *i) == (id, instance));
                self.levelling.merge_blocked = same.or(Some((id, instance, self.now)));
            }
            MergeStall::OnDisk(id, first) => _ = self.read_log(id, first, out),
            MergeStall::Trimmed(_) => self.want_state(out),
            MergeStall::ApplicationBusy => {}
            MergeStall::More => self.outputs.has_more_work = true,
        }
        self.record_idle();
    }

    /// Emits the records to be written.
    fn emit_records(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        let first = self.persistence.writes.first_ticket();
        for (i, (record, awaited)) in self.persistence.writes.unwritten.drain(..).enumerate() {
            let record = out.fill(|to| record.encode(to));
            out.push(Output::Persist { ticket: Ticket(first + i as u64), record, awaited });
        }
    }

    /// Emits the records, and the messages to others.
    fn emit(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        self.emit_records(out);
        out.append(&mut self.outputs.rings);
        for (to, message) in self.outputs.messages.drain(..) {
            out.ask(MessageOutput::To(
                to,
                Lane::Stream,
                RingPacket { incarnation: self.incarnation, message },
            ));
        }
    }
}

impl Protocol for MultiRing {
    type Medium = Messages<RingPacket>;

    fn step(
        &mut self,
        now: Time,
        (): (),
        input: Input<'_, Messages<RingPacket>>,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        (self.now, self.persistence.writes.now) = (now, now);
        self.outputs.rings.trace_as(out);
        let woken = matches!(input, Input::Wake);
        // The application's position is known only after that input.
        let starts = matches!(input, Input::Start { .. });
        self.outputs.has_more_work = !woken;
        match input {
            Input::Stored { number, record } => return self.restore(number, record, out),
            Input::Torn => self.persistence.torn = true,
            Input::Lost => self.persistence.gone = true,
            Input::Start { incarnation } => self.start(incarnation, out),
            Input::Submit(submission) => self.submit(&submission),
            Input::Wake => self.tick(out),
            Input::Durable(ticket) => self.persistence.writes.durable(ticket.0),
            Input::Loaded { ticket, record } => self.on_loaded(ticket, record, out),
            Input::Checkpointed(position) => self.checkpointed(position),
            Input::Applied(position) => self.merge.on_applied(position),
            Input::Installed { position, needs } => self.installed(position, needs),
            Input::Unfit => (self.state.in_force, self.state.is_unfit) = (false, true),
            Input::Barrier(ticket) => self.read_indexes.set(ticket),
            Input::Oracle(Oracle::Suspect(p)) => self.links.suspect(p),
            Input::Oracle(Oracle::Trust(p)) => self.links.trust(p),
            // The members are fixed: a member that stops is passed over, and what is applied makes room.
            Input::Leave
            | Input::Overlay(_)
            | Input::Full(_)
            | Input::Oracle(Oracle::Leader(..) | Oracle::NoLeader(_))
            | Input::Medium(MessageInput::Down(_) | MessageInput::Backlog(_)) => {}
            Input::Medium(MessageInput::Up(p)) => self.reconnected(p),
            Input::Medium(MessageInput::From(from, packet)) => {
                if self.is_current_incarnation(from, packet.incarnation) {
                    self.dispatch(from, packet.message, out);
                }
            }
        }
        self.run_local_actions(out);
        // Before the deliveries: own votes may have decided them, and those count only if the records
        // before them can be written.
        self.emit_records(out);
        if !starts {
            self.merge(out);
            self.run_local_actions(out);
            self.report_read_indexes(out);
        }
        self.report_fitness(out);
        self.emit(out);
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        if self.outputs.has_more_work {
            return Some((self.now, WakeReason::Flush));
        }
        let MultiRingConfig { heartbeat, retry, suspect, .. } = *self.config;
        let (paced, votes) = (self.config.pace.is_some(), self.may_vote());
        let of_ring = |ring: &RingMember| {
            let all = [
                ring.forward_at(heartbeat),
                ring.coordinate_at(retry, paced),
                ring.retransmission_at(self.me, retry),
                // An acceptor that lost its storage begins no election.
                if ring.coordinator.is_none() && votes {
                    ring.election_at(suspect, retry)
                } else {
                    Time::NEVER
                },
            ];
            all.into_iter().min().unwrap_or(Time::NEVER)
        };
        let rings = self.rings.iter().flatten().map(|ring| of_ring(ring));
        let proposers = self.proposers.iter().map(|p| p.retry_at(suspect));
        let others = [
            self.recovery_at(),
            self.state_query_at(),
            self.levelling_at(),
            self.read_indexes.due(retry),
        ];
        let next = rings.chain(proposers).chain(others).min();
        let (beat, why) = self.links.deadline();
        Some(match next {
            Some(at) if at < beat => (at.max(self.now), WakeReason::Retry),
            _ => (beat, why),
        })
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        let Some(id) = ring_for(&self.config.rings, dst).filter(|_| self.started) else { return 0 };
        let (count, held) = self.proposers[usize::from(id)].load();
        let places = self.config.limits.window.saturating_sub(count);
        let free = self.config.limits.window_bytes.saturating_sub(held);
        places.min(free.checked_div(bytes).unwrap_or(places))
    }

    fn payload_max(&self) -> usize {
        self.config.limits.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        for (proposer, ring) in self.proposers.iter().zip(&self.config.rings) {
            let group = ring.set.lowest().unwrap_or(Gid(0));
            proposer.messages().for_each(|m| tell(m, WaitReason::Order(group)));
        }
    }

    fn fit(&self) -> bool {
        self.has_state() && self.may_vote() && !self.lacks_table()
    }

    fn status(&self) -> ProtocolStatus {
        let own = ring_for(&self.config.rings, GroupSet::one(self.group));
        let own = own.and_then(|id| self.rings[usize::from(id)].as_ref());
        let backlog: usize = self.proposers.iter().map(|p| p.load().0).sum();
        ProtocolStatus {
            leader: own.and_then(|ring| ring.coordinator_pid()),
            epoch: own.map_or(0, |ring| ring.current.ballot.number()),
            delivered: self.merge.delivered,
            decided: self.merge.delivered,
            backlog: backlog as u64,
            follows: self.may_vote() && own.is_some_and(|ring| ring.coordinator_pid().is_some()),
            catching_up: self.catching_up(),
        }
    }
}

impl MultiRing {
    fn submit(&mut self, submission: &Submission<'_>) {
        let dst = match self.config.mutants.is(MultiRingMutant::InvolvesAll) {
            true => self.config.cluster.all_groups(),
            false => submission.dst,
        };
        // [MRP 2:1]
        let id = ring_for(&self.config.rings, dst).expect("room was asked for");
        let (from, block_bytes) = ((self.me, self.incarnation), self.config.limits.pack_bytes);
        self.proposers[usize::from(id)].submit(from, submission, block_bytes);
    }
}
