//! A simulated node: the shipped recovery and executor, a disk for checkpoints, and the commands that gateways handed in.

use super::application::SimApplication;
use super::clocks::SimulatedHostClock;
use super::mutant::{self, ServiceMutant};
use super::reads::NodeReads;
use super::transfer::{GivenState, Incarnation, IncomingState};
use super::{ServiceShape, SimulatedService};
use amcast_core::step::Ticket;
use amcast_core::{ClusterShape, Delivery, Gid, GroupSet, MsgId, Outcome, Pid, Time};
use amcast_sim::{HostPorts, HostRequest};
use amcast_smr::SessionWrite;
use amcast_smr::application::Application;
use amcast_smr::recovery::{FetchedState, Recovery, WantedState};
use std::collections::{BTreeMap, VecDeque};

/// Commands that wait at a node for room; a gateway that hands in more hears nothing.
const COMMANDS_MAX: usize = 256;

/// Bytes of an own report, for which a process must have room.
const REPORT_BYTES: usize = 512;

/// Deliveries after which a checkpoint is due.
const CHECKPOINT_EVERY: u64 = 24;

/// A request of a client, which the answer goes back to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ClientRequest {
    pub(super) client: usize,
    pub(super) request: u64,
}

/// How a command is to be executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HowRead {
    /// In its place in the order.
    Ordered,
    /// Locally, once the replica has passed a barrier: it sees all that was answered before. Of a read of one shard.
    Index,
    /// Locally at once, when that includes what the client itself wrote.
    Here(Vec<SessionWrite>),
}

/// A command that a gateway handed in.
pub(super) struct HandedIn {
    pub(super) of: ClientRequest,
    pub(super) dst: GroupSet,
    pub(super) payload: Vec<u8>,
    pub(super) how: HowRead,
}

/// The receiver of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SimulatedAsker {
    /// The client whose request this message carried.
    Message(MsgId),
    Client(ClientRequest),
}

/// The answer to a command.
pub(super) struct ServiceReply {
    pub(super) asker: SimulatedAsker,
    pub(super) outcome: Outcome,
    pub(super) bytes: Vec<u8>,
}

/// A state in a file, and the position of each group in it.
#[derive(Clone)]
pub(super) struct SimulatedCheckpoint {
    pub(super) bytes: Vec<u8>,
    pub(super) positions: Vec<u64>,
}

/// To whom the application's cut is being given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CutReceiver {
    None,
    /// To this node's disk.
    Disk,
    /// To another node.
    Node(Incarnation),
}

/// The memory of a node, which lasts as long as its processes.
pub(super) struct RunningNode<M: SimulatedService> {
    pub(super) recovery: Recovery<SimApplication<M>>,
    /// When it started, as long as its processes have not taken their first steps.
    pub(super) starts_at: Option<Time>,
    pub(super) cut: CutReceiver,
    pub(super) saving: Option<SimulatedCheckpoint>,
    /// How many checkpoints were begun.
    pub(super) saves: u64,
    pub(super) transfer: Option<IncomingState>,
    pub(super) giving: Option<GivenState>,
    commands: VecDeque<HandedIn>,
    reads: NodeReads,
    open: BTreeMap<u64, ClientRequest>,
    /// The multicasts since the driver looked last, with the requests that they carry.
    pub(super) submitted: Vec<(MsgId, ClientRequest)>,
    next_seq: u64,
    applied: Vec<u64>,
    is_full: bool,
    unsaved: u64,
    /// The state in force came from another node and is not on disk.
    is_new: bool,
}

/// One node of the simulated cluster.
pub(super) struct SimNode<M: SimulatedService> {
    cluster: ClusterShape,
    pids: Vec<Pid>,
    pub(super) incarnation: u32,
    pub(super) running: Option<RunningNode<M>>,
    pub(super) checkpoint: Option<SimulatedCheckpoint>,
    has_log: bool,
    /// Whether replicas multicast what gateways hand in, and report clocks.
    multicasts: bool,
    /// Whether clients still call: without work clocks are not reported, so that the run comes to an end.
    pub(super) has_work: bool,
    /// Its disk takes no checkpoint before that.
    full_until: Time,
    /// Its application executes nothing before that.
    hung_until: Time,
    /// Its checkpoint cannot be read any more.
    pub(super) is_damaged: bool,
    clock: SimulatedHostClock,
    rank: usize,
    mutant: Option<ServiceMutant>,
    /// Bytes of deliveries that may wait for a state, if the run bounds them.
    pub(super) inbox_bytes: Option<usize>,
    /// The memory budget of a store that begins.
    pub(super) maxmemory: u64,
}

impl<M: SimulatedService> SimNode<M> {
    pub(super) fn new(
        cluster: ClusterShape,
        (rank, clock): (usize, SimulatedHostClock),
        has_log: bool,
        multicasts: bool,
        mutant: Option<ServiceMutant>,
    ) -> Self {
        let pids = cluster.all_groups().iter().map(|g| cluster.replica(g, rank)).collect();
        let (running, checkpoint) = (None, None);
        Self {
            cluster,
            pids,
            incarnation: 0,
            running,
            checkpoint,
            has_log,
            multicasts,
            has_work: true,
            full_until: Time::ZERO,
            hung_until: Time::ZERO,
            is_damaged: false,
            clock,
            rank,
            mutant,
            inbox_bytes: None,
            maxmemory: 0,
        }
    }

    /// Its configuration.
    const fn shape(&self) -> ServiceShape {
        let Self { rank, mutant, maxmemory, .. } = *self;
        ServiceShape { shards: self.cluster.groups(), rank, mutant, maxmemory }
    }

    /// Starts with what is on its disk; the position of each group there.
    ///
    /// # Errors
    /// When what it wrote itself cannot be read; the sentence says why.
    pub(super) fn start(&mut self, now: Time, lost_disk: bool) -> Result<Vec<u64>, String> {
        // A checkpoint that cannot be read is passed over.
        if std::mem::take(&mut self.is_damaged) || lost_disk {
            self.checkpoint = None;
        }
        let groups = self.cluster.groups();
        let reports = self.multicasts.then_some((self.cluster, self.rank));
        let application = SimApplication::new(&self.shape(), reports);
        let is_reborn = self.incarnation > 0 && !self.has_log;
        let mut recovery = Recovery::new(self.cluster, application, is_reborn);
        self.inbox_bytes.into_iter().for_each(|bytes| recovery.bound_inbox(bytes));
        let mut positions = vec![0; groups];
        if let Some(checkpoint) = &self.checkpoint {
            let state = SimApplication::<M>::read(groups, &mut &checkpoint.bytes[..])?;
            positions = recovery.restore(state)?.to_vec();
            if positions != checkpoint.positions {
                return Err(format!(
                    "a checkpoint at {positions:?} was {:?}",
                    checkpoint.positions
                ));
            }
        }
        if self.mutant == Some(ServiceMutant::NewerCheckpoint) {
            positions.iter_mut().filter(|p| **p > 0).for_each(|p| *p += 1);
        }
        if self.incarnation > 0 {
            self.clock.is_back(now);
        }
        self.incarnation += 1;
        self.running = Some(RunningNode {
            recovery,
            starts_at: Some(now),
            cut: CutReceiver::None,
            saving: None,
            saves: 0,
            transfer: None,
            giving: None,
            commands: VecDeque::new(),
            reads: NodeReads::of(groups),
            open: BTreeMap::new(),
            submitted: Vec::new(),
            next_seq: u64::from(self.incarnation) << 32,
            applied: vec![0; groups],
            is_full: false,
            unsaved: 0,
            is_new: false,
        });
        Ok(positions)
    }

    /// Its incarnation, if it lives.
    pub(super) fn life(&self) -> Option<u32> {
        self.running.as_ref().map(|_| self.incarnation)
    }

    /// Whether it holds its group back, since too much waits for its application.
    pub(super) fn is_full(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.is_full)
    }

    /// How many bytes wait for its application beyond their bound, if it is in a group with views.
    pub(super) fn overflow(&mut self) -> Option<usize> {
        let bound = self.inbox_bytes?;
        let recovery = &self.running.as_ref()?.recovery;
        recovery.view()?;
        recovery.waiting_bytes().checked_sub(bound).filter(|over| *over > 0)
    }

    /// Its application executes nothing before `until`.
    pub(super) fn hang(&mut self, until: Time) {
        self.hung_until = self.hung_until.max(until);
    }

    /// Whether its application executes nothing at this time.
    pub(super) fn note_hang(&mut self, now: Time) -> bool {
        let is_hung = now < self.hung_until;
        self.running.iter_mut().for_each(|running| running.recovery.app.is_hung = is_hung);
        is_hung
    }

    /// Its processes are gone.
    pub(super) fn crash(&mut self) {
        (self.running, self.hung_until) = (None, Time::ZERO);
    }

    /// Takes what one of its processes delivered, and adds the answers to `replies`.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        p: Pid,
        (delivery, payload): (Delivery, &[u8]),
        replies: &mut Vec<ServiceReply>,
    ) {
        let now_here = self.clock.stamp(now);
        let Some(running) = &mut self.running else { return };
        let mut changed;
        let payload = match self.mutant {
            Some(ServiceMutant::ForgetsSessions) => {
                changed = payload.to_vec();
                mutant::forget_session(&mut changed, delivery.msg);
                &changed
            }
            Some(ServiceMutant::ExpiresByOwnClock) => {
                changed = payload.to_vec();
                mutant::stamp_anew(&mut changed, now_here);
                &changed
            }
            Some(ServiceMutant::LosesCommand)
                if self.rank == 0 && delivery.position % mutant::LOST_EVERY == 0 =>
            {
                changed = Vec::new();
                &changed
            }
            _ => payload,
        };
        let RunningNode { recovery, unsaved, .. } = running;
        if self.mutant == Some(ServiceMutant::DropsInbox) && !recovery.is_live() {
            return;
        }
        let mut answer = answerer(replies);
        if recovery.deliver(p, delivery, payload, &mut answer).is_some() {
            *unsaved += 1;
        }
    }

    /// The unanswered request that a message of this node carries.
    pub(super) fn asked_by(&mut self, msg: MsgId) -> Option<ClientRequest> {
        let is_mine = self.pids.contains(&msg.sender);
        self.running.as_mut().filter(|_| is_mine)?.open.remove(&msg.seq)
    }

    /// Takes a command of a gateway; if there is no room it is lost.
    pub(super) fn hand_in(&mut self, now: Time, command: HandedIn) {
        let Some(running) = &mut self.running else { return };
        match command.how {
            HowRead::Ordered if running.commands.len() < COMMANDS_MAX => {
                running.commands.push_back(command);
            }
            HowRead::Ordered => {}
            HowRead::Index | HowRead::Here(_) => running.reads.hand_in(now, command),
        }
    }

    /// One of its replicas has passed the barrier of this ticket.
    pub(super) fn passed(&mut self, now: Time, p: Pid, ticket: Ticket) {
        let group = self.cluster.group_of(p).expect("a node hosts replicas");
        if let Some(RunningNode { recovery, reads, .. }) = &mut self.running {
            reads.passed(group, ticket, (recovery.stands(group), now));
        }
    }

    /// One round of its loop, as that of a real node: pending work, inputs to the replicas, and
    /// their multicasts.
    pub(super) fn round(
        &mut self,
        now: Time,
        ports: &dyn HostPorts,
        requests: &mut Vec<HostRequest>,
        replies: &mut Vec<ServiceReply>,
    ) {
        let Some(running) = &mut self.running else { return };
        if running.starts_at.is_some_and(|at| at >= now) {
            return;
        }
        if running.starts_at.take().is_some() {
            running.recovery.has_begun();
            running.recovery.take_restored();
        }
        let RunningNode { recovery, unsaved, .. } = running;
        recovery.drain(&mut answerer(replies), &mut |_| *unsaved += 1);
        self.tell_replicas(requests);
        self.read(now, requests, replies);
        self.multicast(now, ports, requests);
    }

    /// Answers reads that need no place in the order, and sets barriers for others.
    fn read(
        &mut self,
        now: Time,
        requests: &mut Vec<HostRequest>,
        replies: &mut Vec<ServiceReply>,
    ) {
        let waits = self.mutant != Some(ServiceMutant::ReadsAtOnce);
        let Some(RunningNode { recovery, reads, commands, .. }) = &mut self.running else { return };
        for (g, &p) in (0..).map(Gid).zip(&self.pids) {
            if let Some(ticket) = reads.begin(g, now, waits) {
                requests.push(HostRequest::Barrier { p, ticket });
            }
        }
        let is_live = recovery.is_live();
        commands.extend(reads.serve(now, is_live, &mut recovery.app, replies));
    }

    /// Reports the application's progress to the replicas.
    fn tell_replicas(&mut self, requests: &mut Vec<HostRequest>) {
        let Some(running) = &mut self.running else { return };
        if running.recovery.is_unfit() {
            requests.extend(self.pids.iter().map(|&p| HostRequest::Unfit { p }));
        }
        if let Some(positions) = running.recovery.installed() {
            let installed = self.pids.iter().zip(positions);
            requests.extend(installed.map(|(&p, position)| HostRequest::Installed { p, position }));
        }
        let is_full = running.recovery.is_full();
        if std::mem::replace(&mut running.is_full, is_full) != is_full {
            requests.extend(self.pids.iter().map(|&p| HostRequest::Full { p, is_full }));
        }
        for (g, &p) in (0..).map(Gid).zip(&self.pids) {
            let applied = running.recovery.applied(g).unwrap_or(0);
            if applied > running.applied[g.index()] {
                running.applied[g.index()] = applied;
                requests.push(HostRequest::Applied { p, position: applied });
            }
        }
    }

    /// Has its replicas multicast what it reports and what gateways handed in, as far as there is room.
    fn multicast(&mut self, now: Time, ports: &dyn HostPorts, requests: &mut Vec<HostRequest>) {
        let Some(running) = &mut self.running else { return };
        if !self.multicasts {
            return;
        }
        let works = |p: Pid| {
            let (status, is_fit) = ports.status(p);
            is_fit && status.follows
        };
        let said = self.clock.stamp(now);
        let mut sent = vec![0; self.pids.len()];
        for (g, &p) in (0..).map(Gid).zip(&self.pids) {
            let dst = GroupSet::one(g);
            if !self.has_work || !works(p) || ports.room(p, dst, REPORT_BYTES) == 0 {
                continue;
            }
            let Some(payload) = running.recovery.app.report(now, said, g) else { continue };
            let seq = running.number();
            sent[g.index()] += 1;
            requests.push(HostRequest::Submit { p, seq, dst, payload });
        }
        let held = running.recovery.app.held(now, said);
        let serves = self.pids.iter().all(|&p| works(p)) && running.recovery.app.knows_time();
        while let Some(HandedIn { of, dst, payload, how }) = running.commands.pop_front() {
            let lowest = dst.lowest().expect("a command has a destination").index();
            let p = self.pids[lowest];
            let waits =
                !dst.and(held).is_empty() || ports.room(p, dst, payload.len()) <= sent[lowest];
            if !serves || waits {
                running.commands.push_front(HandedIn { of, dst, payload, how });
                return;
            }
            let seq = running.number();
            running.open.insert(seq, of);
            running.submitted.push((MsgId { sender: p, seq }, of));
            sent[lowest] += 1;
            requests.push(HostRequest::Submit { p, seq, dst, payload });
        }
    }

    /// Whether it is to begin a checkpoint.
    pub(super) fn is_checkpoint_due(&self, now: Time) -> bool {
        let Some(running) = &self.running else { return false };
        if now < self.full_until {
            return false;
        }
        let is_due = running.is_new || running.unsaved >= CHECKPOINT_EVERY;
        let is_free = running.cut == CutReceiver::None && running.starts_at.is_none();
        self.has_log && is_due && is_free && running.recovery.has_state()
    }

    /// Begins a checkpoint of the state as it is now.
    pub(super) fn begin_checkpoint(&mut self) {
        let Some(running) = &mut self.running else { return };
        let positions = running.recovery.positions();
        running.recovery.app.capture();
        (running.cut, running.unsaved, running.is_new) = (CutReceiver::Disk, 0, false);
        running.saving = Some(SimulatedCheckpoint { bytes: Vec::new(), positions });
        running.saves += 1;
    }

    /// Its disk has no room before `until`: a checkpoint that is being written is given up, and the one before it stays in
    /// force. Whether one was.
    pub(super) fn fill_disk(&mut self, until: Time) -> bool {
        self.full_until = self.full_until.max(until);
        let saving = self.running.as_mut().filter(|running| running.saving.is_some());
        let Some(running) = saving else { return false };
        if running.cut == CutReceiver::Disk {
            running.recovery.app.release();
            running.cut = CutReceiver::None;
        }
        (running.saving, running.is_new) = (None, true);
        true
    }

    /// Writes the next piece of its checkpoint, of about `most` bytes; none is being written, or more is to be written,
    /// or all of it was.
    pub(super) fn write_checkpoint(&mut self, most: usize) -> Option<bool> {
        let running = self.running.as_mut().filter(|running| running.cut == CutReceiver::Disk)?;
        let saving = running.saving.as_mut()?;
        let more = running.recovery.app.piece(most, &mut saving.bytes);
        if !more {
            running.cut = CutReceiver::None;
        }
        Some(!more)
    }

    /// The written checkpoint is durable: reports it to the replicas.
    pub(super) fn has_checkpoint(&mut self, requests: &mut Vec<HostRequest>) {
        let Some(saved) = self.running.as_mut().and_then(|running| running.saving.take()) else {
            return;
        };
        self.is_damaged = false;
        let told = self.pids.iter().zip(&saved.positions);
        requests.extend(told.map(|(&p, &position)| HostRequest::Checkpointed { p, position }));
        self.checkpoint = Some(saved);
    }

    /// Begins to give its state to a node that needs it like this.
    ///
    /// # Errors
    /// When it has none, or not so far; the sentence says which.
    pub(super) fn give(&mut self, wanted: &WantedState, to: Incarnation) -> Result<(), String> {
        let running = self.running.as_mut().ok_or("it is down")?;
        if running.starts_at.is_some() {
            return Err("it starts".to_string());
        }
        running.recovery.may_give(wanted)?;
        if matches!(running.cut, CutReceiver::Node(_)) {
            return Err("it gives its state to another node".to_string());
        }
        // A checkpoint that is being written makes way.
        running.saving = None;
        running.recovery.app.capture();
        (running.cut, running.giving) = (CutReceiver::Node(to), Some(GivenState::new(to)));
        Ok(())
    }

    /// Another node's state has arrived. Returns whether this node can install it.
    ///
    /// # Errors
    /// When the bytes are none; the sentence says why.
    pub(super) fn take(&mut self, now: Time) -> Result<(), String> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let Some(IncomingState { wanted, sources, at, bytes, .. }) = running.transfer.take() else {
            return Ok(());
        };
        let groups = self.cluster.groups();
        let state = SimApplication::<M>::read(groups, &mut &bytes[..])?;
        let has = |(g, least): (usize, &u64)| {
            SimApplication::<M>::state_delivered(&state, Gid(g as u8)) >= *least
        };
        let is_enough = wanted.positions.iter().enumerate().all(has);
        let from = format!("the node of rank {} at {}", sources[at], now.0);
        let fetched = FetchedState { state, history: Vec::new(), from, source: at };
        running.recovery.fetched(is_enough.then_some(fetched));
        Ok(())
    }

    /// The position of its state in each shard, and a digest of the state.
    pub(super) fn states(&self) -> Option<Vec<(u64, u64)>> {
        let app = &self.running.as_ref()?.recovery.app;
        self.cluster.all_groups().iter().map(|g| app.state_digest(g)).collect()
    }

    /// A state of another node is in force.
    pub(super) fn has_adopted(&mut self) {
        let Some(running) = &mut self.running else { return };
        (running.cut, running.giving) = (CutReceiver::None, None);
        (running.saving, running.is_new) = (None, true);
    }

    /// Whether nothing of it is under way.
    pub(super) fn is_calm(&self) -> bool {
        self.running.as_ref().is_none_or(|running| {
            running.recovery.is_live() && running.transfer.is_none() && running.starts_at.is_none()
        })
    }
}

impl<M: SimulatedService> RunningNode<M> {
    /// Lets the state go that it gives to another node.
    pub(super) fn stop_giving(&mut self) {
        self.giving = None;
        if matches!(self.cut, CutReceiver::Node(_)) {
            self.cut = CutReceiver::None;
            self.recovery.app.release();
        }
    }

    /// The same, if it gives it to that node.
    pub(super) fn stop_giving_to(&mut self, to: Incarnation) {
        if self.cut == CutReceiver::Node(to) {
            self.stop_giving();
        }
    }

    /// Gives up the checkpoint that is being written, if one is: the next one is due once there is a state.
    pub(super) fn stop_saving(&mut self) {
        if self.saving.take().is_some() {
            self.is_new = true;
        }
        if self.cut == CutReceiver::Disk {
            self.cut = CutReceiver::None;
        }
    }

    fn number(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }
}

/// Gathers the answers of commands that are executed.
fn answerer(replies: &mut Vec<ServiceReply>) -> impl FnMut(MsgId, Outcome, &[u8]) {
    move |msg, outcome, bytes| {
        let asker = SimulatedAsker::Message(msg);
        replies.push(ServiceReply { asker, outcome, bytes: bytes.to_vec() });
    }
}
