//! A replica of a service above the simulated processes: [`Host`], in place of the simulator's own
//! application.
//!
//! A *node* hosts one replica of every group: the processes of one rank. They start and die together, and a
//! fault that strikes one of them strikes all that a node has one of: the machine, the disk, the connections.
//! One host serves all nodes of the cluster, and keeps them apart by itself. It sees all that a driver of the
//! real world sees of a protocol ([`Output`](amcast_core::Output)), and answers with [`HostRequest`]s; when it
//! answers is its own choice, by its [deadline](Host::deadline).
//!
//! The plan of such a run has no multicasts and no barriers: all of them are the host's. Its multicasts are
//! in the ledger and in the events as in other runs, so that the checkers judge the protocol below it.

use crate::chooser::{Choices, Concern};
use crate::ledger::Breach;
use crate::process::{HostCast, OwnedInput, SimProcess};
use crate::run::{RunEvent, RunRecord, RunReport, RunSettings, draw_plan, run_with};
use crate::world::{SimulatedRun, WAKE_GRAIN};
use crate::{Chooser, RunPlan};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use amcast_core::step::{ProtocolStatus, Ticket};
use amcast_core::trace::TraceEvent;
use amcast_core::{
    Config, ConfigError, Delivery, Entry, Gid, GroupSet, MsgId, Pid, ProtocolEvent,
    ProtocolProcess, Role, Time,
};
use core::mem;

/// How often the host may ask for something at one time, before that counts as a loop without an end.
const POLLS_MAX: u32 = 10_000;

/// How often damage strikes the checkpoint of a node that has a host, and not a record of a process.
const HOST_DAMAGE_PPM: u64 = 500_000;

/// The replicas of a service on all nodes of a cluster, and what multicasts for them.
///
/// Clients of a protocol that has any are no nodes: they die and come back one by one, of which
/// [`HostPorts::is_alive`] tells.
pub trait Host {
    /// The process `p` delivered.
    fn deliver(&mut self, now: Time, p: Pid, delivery: Delivery, payload: &[u8]);

    /// The process `p` delivered this message early: its place in the order is not decided.
    fn early(&mut self, _now: Time, _p: Pid, _msg: MsgId, _payload: &[u8]) {}

    /// The process `p` reports something that its driver must act on: [`ProtocolEvent`] says how.
    fn event(&mut self, now: Time, p: Pid, event: ProtocolEvent);

    /// The process `p` has passed the barrier of this ticket.
    fn passed(&mut self, now: Time, p: Pid, ticket: Ticket);

    /// The node of this rank died: its processes, and everything that it had in memory.
    fn crashed(&mut self, now: Time, rank: usize);

    /// The node of this rank is about to start, for the first time or again, in the latter case perhaps with
    /// an empty disk. Gives for each group the position of the checkpoint that it continues from, 0 for
    /// none. Processes with a log learn it right behind their start; their reports before the next
    /// [poll](Host::poll) may be made without knowing of it. Processes without a log do not learn it.
    fn started(&mut self, now: Time, rank: usize, lost_disk: bool) -> Vec<u64>;

    /// The checkpoint of the node of this rank, if it has one, cannot be read any more, which the node finds at its next
    /// start. Whether it had one: then the others do without what it had.
    fn damaged(&mut self, _now: Time, _rank: usize) -> bool {
        false
    }

    /// The disk of the node of this rank has no room for a checkpoint before `until`.
    fn full(&mut self, _now: Time, _rank: usize, _until: Time) {}

    /// The application of the node of this rank, if it lives, executes nothing before `until`.
    fn hung(&mut self, _now: Time, _rank: usize, _until: Time) {}

    /// Does what is to be done: after processes took steps, and at the deadline.
    fn poll(&mut self, now: Time, ports: &dyn HostPorts, requests: &mut Vec<HostRequest>);

    /// When to poll it again at the latest.
    fn deadline(&self) -> Option<Time>;

    /// Whether nothing is owed to anybody any more: the run may end.
    fn is_settled(&self) -> bool;

    /// The violation that it found, if any; that ends the run.
    fn breach(&mut self) -> Option<String>;
}

/// The interface of the processes to a host.
pub trait HostPorts {
    /// How many multicasts of `bytes` bytes to `dst` the process takes now, besides those that it was asked
    /// for and has not taken.
    fn room(&self, p: Pid, dst: GroupSet, bytes: usize) -> usize;

    /// The status of the process, and whether it is [fit](amcast_core::Protocol::fit).
    fn status(&self, p: Pid) -> (ProtocolStatus, bool);

    /// Whether the process lives.
    fn is_alive(&self, p: Pid) -> bool;

    /// Whether all faults of the run are over, so that those of the host's own must be over, too.
    fn is_calm(&self) -> bool;
}

/// A request of a host. A request to a dead process is dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostRequest {
    /// The process is to multicast, as soon as it has room. Messages that it has not taken when it dies were never
    /// multicast.
    Submit {
        /// The process.
        p: Pid,
        /// The number of the message: larger than any that `p` was given in any life.
        seq: u64,
        /// The destinations.
        dst: GroupSet,
        /// The message.
        payload: Vec<u8>,
    },
    /// Everything up to this position is executed.
    Applied {
        /// The receiver.
        p: Pid,
        /// The position.
        position: u64,
    },
    /// A state is in force that holds everything up to this position.
    Installed {
        /// The receiver.
        p: Pid,
        /// The position.
        position: u64,
    },
    /// Whether so much waits for the application that it takes in no deliveries for now. At each change.
    Full {
        /// The receiver.
        p: Pid,
        /// Whether it is so.
        is_full: bool,
    },
    /// The application misses state, for a reason that lies outside of the process's group.
    Unfit {
        /// The receiver.
        p: Pid,
    },
    /// The process is set a barrier.
    Barrier {
        /// The process.
        p: Pid,
        /// The ticket that [`Host::passed`] returns then.
        ticket: Ticket,
    },
    /// A checkpoint survives the end of the machine, with everything up to this position. A process without a
    /// log is not told.
    Checkpointed {
        /// The receiver.
        p: Pid,
        /// The position.
        position: u64,
    },
}

/// The host of a run, if there is one, and when it is polled.
#[derive(Default)]
pub(crate) struct HostSlot {
    pub host: Option<Box<dyn Host>>,
    /// Something happened since it was polled last.
    pub is_due: bool,
    deadline: Option<Time>,
    requests: Vec<HostRequest>,
    /// By rank: the node lost its disk and has not started since.
    pub lost_disks: Vec<bool>,
}

impl HostSlot {
    pub(crate) fn new(host: Option<Box<dyn Host>>, nodes: usize) -> Self {
        Self { host, lost_disks: alloc::vec![false; nodes], ..Self::default() }
    }

    /// When it is polled at the latest.
    pub(crate) fn next(&self) -> Time {
        self.deadline.unwrap_or(Time::NEVER)
    }
}

/// The processes, as a host may see them.
struct ProcessesView<'a> {
    procs: &'a [SimProcess],
    is_calm: bool,
}

impl HostPorts for ProcessesView<'_> {
    fn room(&self, p: Pid, dst: GroupSet, bytes: usize) -> usize {
        let process = &self.procs[p.index()];
        let (room, most) = process.room(dst, bytes);
        if bytes > most { 0 } else { room.saturating_sub(process.given.len()) }
    }

    fn status(&self, p: Pid) -> (ProtocolStatus, bool) {
        let process = &self.procs[p.index()];
        match &process.node {
            Some(ProtocolProcess::Messages(node)) => (node.status(), node.fit()),
            Some(ProtocolProcess::Memory(node, _)) => (node.status(), node.fit()),
            None => (ProtocolStatus::default(), false),
        }
    }

    fn is_alive(&self, p: Pid) -> bool {
        self.procs[p.index()].alive()
    }

    fn is_calm(&self) -> bool {
        self.is_calm
    }
}

impl SimulatedRun<'_> {
    pub(crate) const fn has_host(&self) -> bool {
        self.above.host.is_some()
    }

    /// The processes that a fault of `p` strikes: with a host, all replicas of its node.
    pub(crate) fn node_of(&self, p: Pid) -> Vec<Pid> {
        match self.cluster.role(p) {
            Role::Replica { rank, .. } if self.has_host() => {
                let groups = self.cluster.all_groups();
                groups.iter().map(|g| self.cluster.replica(g, usize::from(rank))).collect()
            }
            _ => alloc::vec![p],
        }
    }

    /// The rank of the node of `p`, if it is a replica and there is a host.
    pub(crate) fn hosted_rank(&self, p: Pid) -> Option<usize> {
        match self.cluster.role(p) {
            Role::Replica { rank, .. } if self.has_host() => Some(usize::from(rank)),
            _ => None,
        }
    }

    /// The disk of the node of `p`, if it is one with a host, is full until then.
    pub(crate) fn fill_host(&mut self, p: Pid, until: Time) {
        if let (Some(rank), Some(host)) = (self.hosted_rank(p), &mut self.above.host) {
            host.full(self.now, rank, until);
        }
    }

    /// The application of the node of `p`, if it is one with a host, hangs until then.
    pub(crate) fn hang_host(&mut self, p: Pid, until: Time) {
        if let (Some(rank), Some(host)) = (self.hosted_rank(p), &mut self.above.host) {
            host.hung(self.now, rank, until);
        }
    }

    /// Whether the checkpoint of the node of `p` is damaged in place of a record: not every time, if there is one, and
    /// if the others of each group know all that is in it.
    pub(crate) fn damage_host(&mut self, p: Pid) -> bool {
        let Some(rank) = self.hosted_rank(p) else { return false };
        let node = self.node_of(p);
        let has_log = self.entry.capabilities().durability.has_log();
        if !has_log
            || !node.iter().all(|&q| self.may_forget(q))
            || !self.chooser.chance(Concern::Disk, HOST_DAMAGE_PPM)
        {
            return false;
        }
        let now = self.now;
        let had_one = self.above.host.as_mut().is_some_and(|host| host.damaged(now, rank));
        if had_one {
            node.into_iter().for_each(|q| self.loses_state(q));
        }
        had_one
    }

    /// Every node is about to start for the first time.
    pub(crate) fn start_hosts(&mut self) {
        for rank in 0..self.cluster.replicas() {
            self.host_starts(rank);
        }
        self.above.is_due = true;
    }

    /// The node of this rank is about to start: asks for the position that it continues from.
    pub(crate) fn host_starts(&mut self, rank: usize) {
        let Some(host) = &mut self.above.host else { return };
        let lost_disk = mem::take(&mut self.above.lost_disks[rank]);
        let positions = host.started(self.now, rank, lost_disk);
        self.above.is_due = true;
        if positions.len() != self.cluster.groups() {
            return self.breach_of_host("it names no position for each group");
        }
        let has_log = self.entry.capabilities().durability.has_log();
        for (group, position) in self.cluster.all_groups().iter().zip(positions) {
            let position = if has_log { position } else { 0 };
            let p = self.cluster.replica(group, rank);
            self.procs[p.index()].resumes_from = position;
            self.check_position(group, position);
        }
    }

    /// Lets the host do what is to be done, until nothing comes of it any more.
    pub(crate) fn poll_host(&mut self) {
        let mut polls = 0;
        while mem::take(&mut self.above.is_due) && self.breach.is_none() {
            let Some(host) = &mut self.above.host else { return };
            let mut requests = mem::take(&mut self.above.requests);
            let ports = ProcessesView { procs: &self.procs, is_calm: self.now >= self.plan.calm };
            host.poll(self.now, &ports, &mut requests);
            if let Some(why) = host.breach() {
                self.breach.get_or_insert(Breach::Host(why));
            }
            polls += u32::from(!requests.is_empty());
            if polls > POLLS_MAX {
                self.breach_of_host("it asks for more again and again, at one time");
            }
            for request in requests.drain(..) {
                self.carry_out(request);
            }
            self.above.requests = requests;
        }
        let soonest = self.now + WAKE_GRAIN;
        let deadline = self.above.host.as_ref().and_then(|host| host.deadline());
        self.above.deadline = deadline.map(|at| at.max(soonest));
    }

    pub(crate) fn breach_of_host(&mut self, why: &str) {
        self.breach.get_or_insert(Breach::Host(why.to_string()));
    }

    /// A host can have no state that goes further than any replica of the group has delivered.
    pub(crate) fn check_position(&mut self, group: Gid, position: u64) {
        if self.ledger.uniform && position > self.ledger.furthest(group) {
            self.breach_of_host("it has a state at a position that nobody has delivered");
        }
    }

    fn carry_out(&mut self, request: HostRequest) {
        let (HostRequest::Submit { p, .. }
        | HostRequest::Applied { p, .. }
        | HostRequest::Installed { p, .. }
        | HostRequest::Full { p, .. }
        | HostRequest::Unfit { p }
        | HostRequest::Barrier { p, .. }
        | HostRequest::Checkpointed { p, .. }) = request;
        if !self.procs[p.index()].alive() {
            return;
        }
        match request {
            HostRequest::Submit { seq, dst, payload, .. } => {
                self.procs[p.index()].given.push_back(HostCast { seq, dst, payload });
                self.pump(p);
            }
            HostRequest::Applied { position, .. } => {
                self.host_has_applied(p, position);
                self.pump(p);
            }
            HostRequest::Installed { position, .. } => self.host_has_installed(p, position),
            HostRequest::Full { is_full, .. } => self.enqueue(p, OwnedInput::Full(is_full)),
            HostRequest::Unfit { .. } => self.enqueue(p, OwnedInput::Unfit),
            HostRequest::Barrier { ticket, .. } => self.enqueue(p, OwnedInput::Barrier(ticket)),
            HostRequest::Checkpointed { position, .. } => self.host_has_checkpoint(p, position),
        }
    }

    /// The host has a state in force: what is in it counts as delivered.
    fn host_has_installed(&mut self, p: Pid, position: u64) {
        if let Some(group) = self.procs[p.index()].group {
            self.check_position(group, position);
            self.enter_state(p, group, position);
        }
        let needs = self.procs[p.index()].app.needs;
        self.enqueue(p, OwnedInput::Installed { position, needs });
    }

    /// A checkpoint of the host is durable.
    fn host_has_checkpoint(&mut self, p: Pid, position: u64) {
        if !self.entry.capabilities().durability.has_log() {
            return;
        }
        let deliveries = self.ledger.delivered_upto(p, position);
        let whole = self.procs[p.index()].fit && !self.carriers.disk.is_damaged(p);
        let process = &mut self.procs[p.index()];
        process.owes = process.owes.filter(|&owed| !whole || deliveries < owed);
        self.mark("sim-host-checkpoint");
        self.tell_of(&RunEvent::Checkpoint(p, position));
        self.enqueue(p, OwnedInput::Checkpointed(position));
    }

    /// Puts into the inbox how far the host has applied.
    fn host_has_applied(&mut self, p: Pid, position: u64) {
        let process = &mut self.procs[p.index()];
        if position > process.app.applied {
            process.app.applied = position;
            process.put(OwnedInput::Applied(position));
        }
    }

    /// Enters what a state at `position` holds as delivered by `p`, as far as this life of it has not. Gives how
    /// many deliveries are in the state.
    pub(crate) fn enter_state(&mut self, p: Pid, group: Gid, position: u64) -> usize {
        let others = self.cluster.members(group).filter(|&q| q != p);
        let living = others.filter(|q| self.procs[q.index()].alive());
        let source = self.ledger.furthest_of(living).unwrap_or(p);
        let place = self.procs[p.index()].app.above.entered;
        let items = self.ledger.items_of_state(group, source, place, position);
        for (place, item) in (place..).zip(items) {
            let entered = self.enter(p, place, item);
            self.note_breach(entered);
        }
        self.ledger.items_of_state(group, source, 0, position).len()
    }

    /// The host continues from a checkpoint, before the process starts.
    pub(crate) fn resume_above(&mut self, p: Pid) -> u64 {
        let process = &self.procs[p.index()];
        let (position, group) = (process.resumes_from, process.group);
        if let (Some(group), true) = (group, position > 0) {
            let deliveries = self.ledger.items_of_state(group, p, 0, position).len();
            let app = &mut self.procs[p.index()].app;
            app.go_on_from(position, deliveries);
            (app.above.entered, app.above.in_force) = (deliveries, position);
        }
        position
    }

    /// The process need not deliver messages of a state that is reported in force: its next deliveries show whether
    /// it does.
    pub(crate) fn skip_what_is_in_force(&mut self, p: Pid, next: u64) {
        let process = &mut self.procs[p.index()];
        let in_force = process.app.above.in_force;
        if let Some(group) = process.group
            && next > in_force
            && in_force > process.app.position()
        {
            let deliveries = self.ledger.items_of_state(group, p, 0, in_force).len();
            self.procs[p.index()].app.go_on_from(in_force, deliveries);
        }
    }
}

/// As [`run`](crate::run()), with the host that `factory` makes above the processes. The multicasts and barriers are
/// the host's: those of `settings` are not drawn. All chance of the host comes from what the factory knows, so
/// that the same factory and seed give the same run.
///
/// # Errors
/// When the entry refuses the configuration.
pub fn run_hosted(
    entry: &dyn Entry,
    config: &Config,
    settings: &RunSettings,
    seed: u64,
    factory: &dyn Fn() -> Box<dyn Host>,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<RunReport, ConfigError> {
    record_hosted(entry, config, settings, seed, factory, &mut None, sink)
}

/// As [`run_hosted`], and leaves the run in `recorded` also if the protocol or the host panics, up to there.
///
/// # Errors
/// When the entry refuses the configuration.
pub fn record_hosted(
    entry: &dyn Entry,
    config: &Config,
    settings: &RunSettings,
    seed: u64,
    factory: &dyn Fn() -> Box<dyn Host>,
    recorded: &mut Option<RunRecord>,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<RunReport, ConfigError> {
    let settings = RunSettings { messages: 0, barriers: 0, ..settings.clone() };
    let plan: RunPlan = draw_plan(entry, config, &settings, seed);
    let recorded = recorded.insert(RunRecord { plan, choices: Choices::default() });
    let chooser = Chooser::seeded(seed);
    Ok(run_with(entry, config, recorded, chooser, Some(factory()), sink)?.0)
}

/// Runs a recorded run again, with a new host of the factory.
///
/// # Errors
/// When the entry refuses the configuration.
pub fn replay_hosted(
    entry: &dyn Entry,
    config: &Config,
    recorded: &RunRecord,
    factory: &dyn Fn() -> Box<dyn Host>,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<RunReport, ConfigError> {
    let chooser = Chooser::listed(recorded.choices.clone());
    let mut again = RunRecord { plan: recorded.plan.clone(), choices: Choices::default() };
    Ok(run_with(entry, config, &mut again, chooser, Some(factory()), sink)?.0)
}
