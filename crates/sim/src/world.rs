//! The run itself: the processes, the carriers, and the loop that drives them.

use crate::app::DeliveredMessage;
use crate::chooser::{Choices, Chooser, Concern, Odometer};
use crate::disk::SimDisk;
use crate::events::EventRecord;
use crate::failover::FailoverCounter;
use crate::faults::FaultTime;
use crate::hash::RunHash;
use crate::host::HostSlot;
use crate::ledger::{Breach, DeliveryLedger, LedgerMessage, UnsettledProcess};
use crate::network::{NetworkEvent, SimNetwork};
use crate::plan::{CastPace, RunPlan};
use crate::process::{OwnedInput, SimProcess};
use crate::queue::EventQueue;
use crate::ram::{MemoryOccurrence, Ram};
use crate::run::{RunEvent, RunObserver, RunOutcome, RunRecord, RunReport};
use crate::transfer::TransferStep;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use amcast_core::entry::build_all;
use amcast_core::memory::Memory;
use amcast_core::messages::Frames;
use amcast_core::trace::TraceEvent;
use amcast_core::{
    ClusterShape, Config, ConfigError, Entry, Gid, GroupSet, MediumKind, MsgId, Outbox, Output,
    PartitionMode, Pid, Span, Time,
};

/// An event that is due in the harness itself.
#[derive(Clone, Debug)]
pub(crate) enum HarnessTimer {
    /// Look into the inbox: the process is free again.
    Run(Pid),
    Wake(Pid, u32),
    Poll(Pid, u32),
    /// The application says how far it has applied.
    Apply(Pid, u32),
    /// The next step of the transfer of a state.
    Transfer(TransferStep),
    /// The application takes a checkpoint, now and then.
    Checkpoint(Pid),
    /// A checkpoint of that life is durable.
    Checkpointed(Pid, u32, Vec<DeliveredMessage>),
    /// Something for this life of a process.
    Input(Pid, u32, OwnedInput),
    /// The index of a multicast in the plan.
    Cast(usize),
    /// A sender may have room again.
    Go(Pid),
    /// The index of a barrier in the plan.
    Barrier(usize),
    /// The index of a strike in the plan.
    Strike(usize),
    /// A process of that life was asked to leave long ago.
    Patience(Pid, u32),
    Restart(Pid),
    /// The oracle tells a process the truth.
    Truth(Pid, OracleSubject),
    Check,
}

/// A subject of an oracle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OracleSubject {
    Process(Pid),
    Group(Gid),
}

/// An outbox and room to take its items out into.
#[derive(Debug)]
pub(crate) struct OutboxBuffer<M: amcast_core::Medium> {
    pub outbox: Outbox<M>,
    pub items: Vec<Output<M>>,
}

impl<M: amcast_core::Medium> Default for OutboxBuffer<M> {
    fn default() -> Self {
        let mut outbox = Outbox::default();
        // Of each protocol that has early deliveries they are checked in every run.
        outbox.want_early();
        Self { outbox, items: Vec::new() }
    }
}

/// How soon a process that asks for it is woken again, at the least: keeps one that always asks
/// for now from stopping time.
pub(crate) const WAKE_GRAIN: Span = Span(200);

/// How often in a row a process may be woken and ask to be woken at once again, with nothing else that
/// happens to it: what it has to do is done in a few steps.
const SPINS_MAX: u32 = 100;

/// The carriers of a run: an entry uses those of its medium.
pub(crate) struct SimCarriers {
    pub network: SimNetwork,
    pub ram: Ram,
    pub disk: SimDisk,
}

impl SimCarriers {
    /// When the next event of each is due.
    fn next(&self) -> [Time; 3] {
        [self.network.next(), self.ram.next(), self.disk.next()]
    }
}

/// Buffers of the step that is carried out, kept so that no step allocates them.
#[derive(Default)]
pub(crate) struct StepBuffers {
    pub frames: OutboxBuffer<Frames>,
    pub memory: OutboxBuffer<Memory>,
    /// The payload that is submitted.
    pub scratch: Vec<u8>,
}

/// Counts of a run, for its report.
#[derive(Default)]
pub(crate) struct RunCounts {
    pub marks: BTreeMap<&'static str, u64>,
    pub steps: u64,
    pub messages: u64,
    /// Datagrams that found the buffer of a socket full.
    pub overflows: u64,
    pub crashes: u64,
    /// Barriers that were passed.
    pub barriers: u64,
    pub machines: Vec<(Time, Pid, u64)>,
    events: u64,
}

/// Where the events of a run go.
pub(crate) struct RunTrace<'a> {
    sink: &'a mut dyn FnMut(&TraceEvent<'_>),
    /// The observer of everything besides the events, if there is one.
    pub hear: Option<&'a mut RunObserver<'a>>,
    pub hash: RunHash,
}

impl RunTrace<'_> {
    fn emit(&mut self, now: Time, event: &TraceEvent<'_>) {
        self.hash.event(event);
        (self.sink)(event);
        self.tell_of(now, &RunEvent::Event(event));
    }

    fn tell_of(&mut self, now: Time, told: &RunEvent<'_>) {
        if let Some(hear) = &mut self.hear {
            hear(now, told);
        }
    }
}

/// The parts of a run.
pub(crate) struct SimulatedRun<'a> {
    pub entry: &'a dyn Entry,
    pub config: &'a Config,
    pub cluster: ClusterShape,
    pub plan: &'a RunPlan,
    pub chooser: Chooser,
    pub trace: RunTrace<'a>,
    /// The replica of a service above the processes, if there is one.
    pub above: HostSlot,
    pub now: Time,
    pub queue: EventQueue<HarnessTimer>,
    pub carriers: SimCarriers,
    pub procs: Vec<SimProcess>,
    pub ledger: DeliveryLedger,
    pub failover: FailoverCounter,
    pub reported: EventRecord,
    pub buffers: StepBuffers,
    pub counts: RunCounts,
    /// Strikes that wait for a number of events.
    by_event: Vec<(u64, usize)>,
    /// The leader of each group, as the oracle sees it.
    pub leaders: Vec<Pid>,
    /// Whether a record did not fit in the step that is carried out.
    pub refused: bool,
    /// The reason to stop the run.
    pub breach: Option<Breach>,
    deliveries_seen: u64,
    /// Where the choices go, also if the protocol panics.
    salvage: &'a mut Choices,
}

impl Drop for SimulatedRun<'_> {
    fn drop(&mut self) {
        *self.salvage = self.chooser.take_record();
    }
}

impl<'a> SimulatedRun<'a> {
    /// Builds every process; nothing has started yet.
    pub(crate) fn new(
        entry: &'a dyn Entry,
        config: &'a Config,
        plan: &'a RunPlan,
        chooser: Chooser,
        salvage: &'a mut Choices,
        sink: &'a mut dyn FnMut(&TraceEvent<'_>),
    ) -> Result<Self, ConfigError> {
        let cluster = *config.cluster();
        let nodes = build_all(entry, config)?;
        let count = cluster.processes();
        let specs = nodes.iter().map(|node| node.regions().to_vec()).collect();
        let procs = nodes.into_iter().zip(cluster.pids()).map(|(node, p)| {
            let drift = plan.drift_ppm.get(p.index()).copied().unwrap_or(0);
            let mut process = SimProcess::new(cluster.group_of(p), drift);
            process.node = Some(node);
            process
        });
        // Only then no process ever delivers what another has elsewhere.
        let uniform = entry.about().is_uniform();
        let leaders = cluster.all_groups().iter().map(|g| cluster.replica(g, 0)).collect();
        Ok(Self {
            entry,
            config,
            cluster,
            plan,
            chooser,
            trace: RunTrace { sink, hear: None, hash: RunHash::new() },
            above: HostSlot::default(),
            now: Time::ZERO,
            queue: EventQueue::default(),
            carriers: SimCarriers {
                network: SimNetwork::new(count, plan.model.network),
                ram: Ram::new(specs, plan.model.ram),
                disk: SimDisk::new(count, plan.model.disk),
            },
            procs: procs.collect(),
            ledger: DeliveryLedger::new(count, uniform),
            failover: FailoverCounter::new(cluster.groups(), count),
            reported: EventRecord::default(),
            buffers: StepBuffers::default(),
            counts: RunCounts::default(),
            by_event: Vec::new(),
            leaders,
            refused: false,
            breach: None,
            deliveries_seen: 0,
            salvage,
        })
    }

    /// Runs until the run has settled, or cannot.
    pub(crate) fn run(&mut self) -> RunOutcome {
        self.begin();
        let end = self.plan.calm + self.plan.settle;
        loop {
            if let Some(breach) = self.breach.take() {
                return RunOutcome::Breach(breach);
            }
            let (next, timer) = (self.carriers.next(), self.queue.next());
            let now = next.into_iter().fold(self.above.next().min(timer), Time::min);
            if now > end || self.counts.events >= self.plan.events_max {
                if self.above.host.as_ref().is_some_and(|host| !host.is_settled()) {
                    self.mark("sim-host-not-settled");
                }
                return RunOutcome::NotSettled(self.stuck());
            }
            self.now = now;
            self.counts.events += 1;
            while let Some(at) =
                self.by_event.iter().position(|(event, _)| *event == self.counts.events)
            {
                let (_, strike) = self.by_event.swap_remove(at);
                self.strike(strike);
            }
            // Ties between carriers go to the first of them.
            if next[0] == now {
                self.carriers.network.step(&mut self.chooser);
                self.hear();
            } else if next[1] == now {
                self.carriers.ram.step(&mut self.chooser);
                self.feel();
            } else if next[2] == now {
                self.carriers.disk.step();
                while let Some((p, ticket)) = self.carriers.disk.take() {
                    self.enqueue(p, OwnedInput::Durable(ticket));
                }
            } else if timer > now {
                self.above.is_due = true;
            } else if let Some((_, due)) = self.queue.pop() {
                if matches!(due, HarnessTimer::Check) && self.check_settled() {
                    self.emit(&TraceEvent::End);
                    return RunOutcome::Settled;
                }
                self.due(due);
            }
            if self.above.is_due {
                self.poll_host();
            }
        }
    }

    fn begin(&mut self) {
        for p in self.cluster.pids() {
            let groups = self.cluster.group_of(p).map_or(GroupSet::EMPTY, GroupSet::one);
            self.emit(&TraceEvent::Process { p, groups });
        }
        match self.entry.about().medium {
            MediumKind::Messages => {
                self.carriers.network.connect_all(Time::ZERO, &mut self.chooser)
            }
            MediumKind::Memory => self.carriers.ram.begin(Time::ZERO, &mut self.chooser),
        }
        if self.has_host() {
            self.start_hosts();
        }
        for p in self.cluster.pids() {
            self.enqueue(p, OwnedInput::Start(0));
        }
        for (i, cast) in self.plan.casts.iter().enumerate() {
            self.queue.push(cast.at, HarnessTimer::Cast(i));
        }
        for (i, barrier) in self.plan.barriers.iter().enumerate() {
            self.queue.push(barrier.at, HarnessTimer::Barrier(i));
        }
        for (i, strike) in self.plan.strikes.iter().enumerate() {
            match strike.at {
                FaultTime::Time(at) => self.queue.push(at, HarnessTimer::Strike(i)),
                FaultTime::Event(event) => self.by_event.push((event, i)),
            }
        }
        if self.plan.service {
            for g in self.cluster.all_groups().iter() {
                for p in self.cluster.pids() {
                    self.truth(p, OracleSubject::Group(g), false);
                }
            }
        }
        self.queue.push(self.plan.calm, HarnessTimer::Check);
        self.poll_host();
    }

    fn due(&mut self, due: HarnessTimer) {
        match due {
            HarnessTimer::Run(p) => {
                if self.procs[p.index()].run_at == Some(self.now) {
                    self.procs[p.index()].run_at = None;
                    self.pump(p);
                }
            }
            HarnessTimer::Wake(p, life) => self.wake(p, life),
            HarnessTimer::Poll(p, life) => {
                let process = &mut self.procs[p.index()];
                if process.life == life && process.poll_at == Some(self.now) {
                    process.poll_at = None;
                    self.enqueue(p, OwnedInput::Poll);
                }
            }
            HarnessTimer::Apply(p, life) => self.apply(p, life),
            HarnessTimer::Transfer(step) => self.transfer(step),
            HarnessTimer::Checkpoint(p) => {
                self.checkpoint(p);
                self.checkpoint_later(p);
            }
            HarnessTimer::Checkpointed(p, life, items) => self.checkpointed(p, life, items),
            HarnessTimer::Input(p, life, input) => {
                if self.procs[p.index()].life == life {
                    self.enqueue(p, input);
                }
            }
            HarnessTimer::Cast(i) => {
                let p = self.plan.casts[i].sender;
                self.procs[p.index()].backlog.push_back(i);
                self.pump(p);
            }
            HarnessTimer::Go(p) => self.pump(p),
            HarnessTimer::Barrier(i) => self.barrier(i),
            HarnessTimer::Strike(i) => self.strike(i),
            HarnessTimer::Patience(p, life) => self.lose_patience(p, life),
            HarnessTimer::Restart(p) => self.restart(p),
            HarnessTimer::Truth(p, subject) => self.tell(p, subject),
            HarnessTimer::Check => self.queue.push(self.now + self.plan.quiet, HarnessTimer::Check),
        }
    }

    fn hear(&mut self) {
        while let Some(heard) = self.carriers.network.take() {
            match heard {
                NetworkEvent::Frame { to, from, lane, bytes } => {
                    let (most, bytes_of) = (self.plan.model.network.socket_buffer, bytes.len());
                    if self.procs[to.index()].has_place(lane, bytes_of, most) {
                        self.enqueue(to, OwnedInput::From(from, lane, bytes));
                    } else {
                        self.counts.overflows += 1;
                    }
                }
                NetworkEvent::Up { to, of } => self.enqueue(to, OwnedInput::Up(of)),
                NetworkEvent::Down { to, of } => self.enqueue(to, OwnedInput::Down(of)),
                NetworkEvent::Backlog { to, backlog } => {
                    self.enqueue(to, OwnedInput::Backlog(backlog));
                }
            }
        }
    }

    fn feel(&mut self) {
        while let Some(happening) = self.carriers.ram.take() {
            match happening {
                MemoryOccurrence::Changed { owner, bell } => {
                    let model = &self.plan.model;
                    let wait = if bell { model.bell } else { model.idle };
                    let at = self.now + wait.draw(&mut self.chooser, Concern::Schedule);
                    let process = &mut self.procs[owner.index()];
                    if process.alive() && process.poll_at.is_none_or(|earlier| at < earlier) {
                        process.poll_at = Some(at);
                        let life = process.life;
                        self.queue.push(at, HarnessTimer::Poll(owner, life));
                        if let Some(spin) = model.spin {
                            let again = HarnessTimer::Input(owner, life, OwnedInput::Poll);
                            self.queue.push(at + spin, again);
                        }
                    }
                }
                MemoryOccurrence::Done { to, ticket, answer } => {
                    self.enqueue(to, OwnedInput::Done(ticket, answer));
                }
                MemoryOccurrence::Fresh { to, of, life } => {
                    self.enqueue(to, OwnedInput::Fresh(of, life))
                }
            }
        }
    }

    /// Gives a process something to take notice of, as soon as it is free.
    pub(crate) fn enqueue(&mut self, p: Pid, input: OwnedInput) {
        let process = &mut self.procs[p.index()];
        if process.alive() {
            process.put(input);
            self.pump(p);
        }
    }

    /// Lets a process work off its inbox, then multicast while it has room.
    pub(crate) fn pump(&mut self, p: Pid) {
        let mut submitted = false;
        while self.breach.is_none() {
            let now = self.now;
            let process = &mut self.procs[p.index()];
            if !process.alive() {
                return;
            }
            if process.free_at > now {
                if process.run_at != Some(process.free_at) {
                    process.run_at = Some(process.free_at);
                    self.queue.push(process.free_at, HarnessTimer::Run(p));
                }
                return;
            }
            if let Some(rest) = process.unposted.take() {
                self.resume(p, rest);
                continue;
            }
            let input = match process.take() {
                Some(input) => input,
                None => match self.submission(p).or_else(|| self.given_submission(p)) {
                    Some(submission) => submission,
                    // A run of submissions is followed by something else.
                    None if submitted => self.nothing(),
                    None => break,
                },
            };
            submitted = matches!(input, OwnedInput::Submit(_) | OwnedInput::Given(_));
            let woken = matches!(input, OwnedInput::Wake);
            self.step(p, input);
            self.watch_spin(p, woken);
        }
        self.rearm(p);
    }

    /// Ends the run where a process spins.
    fn watch_spin(&mut self, p: Pid, woken: bool) {
        let now = self.now;
        let process = &mut self.procs[p.index()];
        let again = woken && process.deadline().is_some_and(|at| at <= process.clock(now));
        process.spins = if again { process.spins + 1 } else { 0 };
        if process.spins > SPINS_MAX {
            self.breach.get_or_insert(Breach::Spins { p, times: process.spins });
        }
    }

    /// The input of a process when there is nothing to report.
    fn nothing(&self) -> OwnedInput {
        match self.entry.about().medium {
            MediumKind::Memory => OwnedInput::Poll,
            MediumKind::Messages => OwnedInput::Wake,
        }
    }

    /// The next multicast that a host asked for, if the process may make it now.
    fn given_submission(&mut self, p: Pid) -> Option<OwnedInput> {
        let process = &mut self.procs[p.index()];
        let given = process.given.front()?;
        let (dst, bytes) = (given.dst, given.payload.len());
        let (room, most) = process.room(dst, bytes);
        if dst.is_empty() || bytes > most {
            let why = "a submission goes to no group, or is larger than the protocol takes";
            self.breach_of_host(why);
            return None;
        }
        if room == 0 {
            return None;
        }
        let given = process.given.pop_front()?;
        let m = MsgId { sender: p, seq: given.seq };
        if let Err(why) = self.ledger.cast_given(m, dst, &given.payload, process.standing) {
            self.breach_of_host(why);
            return None;
        }
        let t = self.now;
        self.emit(&TraceEvent::Cast { t, p, m, dst });
        Some(OwnedInput::Given(given))
    }

    /// The next multicast of the plan of a process, if it may make it now.
    fn submission(&mut self, p: Pid) -> Option<OwnedInput> {
        let process = &self.procs[p.index()];
        let &cast = process.backlog.front()?;
        let wanted = &self.plan.casts[cast];
        let held = match self.plan.pace {
            CastPace::Open => false,
            CastPace::Closed(most) => self.ledger.open_of(p) >= most,
            CastPace::Rounds(burst) => {
                let rounds = process.casts / u64::from(burst.max(1));
                let members = self.config.cluster().replicas() as u64;
                (self.ledger.ever(p) as u64) < rounds * u64::from(burst) * members
            }
        };
        if held {
            return None;
        }
        let (room, most) = process.room(wanted.dst, wanted.bytes);
        if room == 0 {
            return None;
        }
        let process = &mut self.procs[p.index()];
        process.backlog.pop_front();
        process.casts += 1;
        let m = MsgId { sender: p, seq: process.casts };
        let (dst, bytes) = (wanted.dst, wanted.bytes.min(most));
        self.ledger.cast(m, dst, bytes, process.standing, &mut self.buffers.scratch);
        let t = self.now;
        self.emit(&TraceEvent::Cast { t, p, m, dst });
        Some(OwnedInput::Submit(cast))
    }

    fn wake(&mut self, p: Pid, life: u32) {
        let now = self.now;
        let process = &mut self.procs[p.index()];
        if process.life != life || process.wake_at != Some(now) {
            return;
        }
        process.wake_at = None;
        let deadline = process.deadline();
        if deadline.is_some_and(|at| at <= process.clock(now)) {
            self.enqueue(p, OwnedInput::Wake);
        } else {
            self.rearm(p);
        }
    }

    /// Sees to it that the process is woken at its deadline.
    fn rearm(&mut self, p: Pid) {
        let process = &self.procs[p.index()];
        let Some(deadline) = process.deadline() else { return };
        let at = process.when(deadline).max(self.now + WAKE_GRAIN);
        if process.wake_at.is_some_and(|set| set <= at) {
            return;
        }
        let late = self.plan.model.timer.draw(&mut self.chooser, Concern::Schedule);
        let process = &mut self.procs[p.index()];
        process.wake_at = Some(at + late);
        let life = process.life;
        self.queue.push(at + late, HarnessTimer::Wake(p, life));
    }

    pub(crate) fn emit(&mut self, event: &TraceEvent<'_>) {
        self.trace.emit(self.now, event);
    }

    pub(crate) fn tell_of(&mut self, told: &RunEvent<'_>) {
        self.trace.tell_of(self.now, told);
    }

    fn check_settled(&mut self) -> bool {
        let still = self.deliveries_seen == self.ledger.deliveries;
        self.deliveries_seen = self.ledger.deliveries;
        let has_cast = |p: &SimProcess| p.backlog.is_empty() && p.given.is_empty();
        let all_cast = || self.procs.iter().all(|p| !p.alive() || has_cast(p));
        // A node that comes back when the faults end is there at the second look.
        let all_back = self.now > self.plan.calm;
        let host = self.above.host.as_ref();
        still
            && host.is_none_or(|host| all_back && host.is_settled())
            && all_cast()
            && self.all_together()
            && self.all_fit()
            && self.missing(1).is_empty()
            && self.procs.iter().all(|p| !p.alive() || p.status().catching_up.is_none())
    }

    /// Whether each component of a partition continues, with an order of its own.
    pub(crate) fn has_components(&self) -> bool {
        self.entry.capabilities().partitions == PartitionMode::EveryComponent
    }

    /// Whether no group is in several components any more: when the faults are over they merge.
    fn all_together(&self) -> bool {
        let alive = |p: &Pid| self.procs[p.index()].alive();
        let is_one = |g| {
            let mut views = self.cluster.members(g).filter(alive).map(|p| self.ledger.view(p));
            let first = views.next();
            views.all(|view| Some(view) == first)
        };
        !self.has_components() || self.cluster.all_groups().iter().all(is_one)
    }

    /// Whether a message is still to come at a process of a component: its own ones, and those that were delivered in the
    /// view that it is in.
    fn is_due_in_component(&self, p: Pid, m: &LedgerMessage) -> bool {
        let own = m.id.sender == p && self.procs[p.index()].standing == m.standing;
        own || m.view.is_some() && m.view == self.ledger.view(p)
    }

    fn all_fit(&self) -> bool {
        self.cluster.pids().all(|p| {
            let process = &self.procs[p.index()];
            let whole = !self.ledger.uniform || process.app.log.len() >= self.ledger.ever(p);
            // The host answers for the application's state and its waits.
            let has_all = self.has_host() || whole && process.barriers.is_empty();
            let is_done = process.fit && has_all && !process.app.early.is_open();
            !process.alive() || is_done
        })
    }

    /// Deliveries that are still to come, at most so many for each process that lives.
    fn missing(&self, most: usize) -> Vec<(Pid, Vec<MsgId>)> {
        let alive = |p: Pid| self.procs[p.index()].alive();
        let components = self.has_components();
        let due = |m: &&LedgerMessage| {
            let sender = &self.procs[m.id.sender.index()];
            let owed = m.owed || sender.alive() && sender.standing == m.standing;
            let members = || m.dst.iter().flat_map(|g| self.cluster.members(g));
            // Where agreement is uniform, the dead have a say: a message that only one of them delivered is
            // still to come, however long its successor takes.
            let counts = |p| self.ledger.uniform || alive(p);
            components || owed || members().any(|p| counts(p) && m.delivered_by(p))
        };
        let due: Vec<_> = self.ledger.messages.iter().filter(due).collect();
        let replicas = self.cluster.pids().filter(|&p| alive(p));
        let lacks = replicas.filter_map(|p| {
            let group = self.cluster.group_of(p)?;
            let missing = due.iter().filter(|m| m.dst.contains(group) && !m.delivered_by(p));
            let missing = missing.filter(|m| !components || self.is_due_in_component(p, m));
            let missing: Vec<_> = missing.take(most).map(|m| m.id).collect();
            (!missing.is_empty()).then_some((p, missing))
        });
        lacks.collect()
    }

    fn stuck(&self) -> Vec<UnsettledProcess> {
        const SHOWN: usize = 8;
        let missing: BTreeMap<_, _> = self.missing(SHOWN).into_iter().collect();
        let mut stuck: Vec<UnsettledProcess> = self
            .cluster
            .pids()
            .map(|p| {
                let process = &self.procs[p.index()];
                let (status, waits) = process.explain(SHOWN);
                UnsettledProcess {
                    p,
                    alive: process.alive(),
                    fit: process.fit,
                    status,
                    backlog: process.backlog.len() + process.given.len(),
                    barriers: process.barriers.len(),
                    missing: missing.get(&p).cloned().unwrap_or_default(),
                    waits,
                }
            })
            .collect();
        stuck.sort_by_key(|s| s.missing.is_empty() && s.barriers == 0 && (s.fit || !s.alive));
        stuck
    }

    /// The result; the caller puts the choices into the record. And the odometer, if there is
    /// one.
    pub(crate) fn report(&mut self, outcome: RunOutcome) -> (RunReport, Option<Odometer>) {
        if self.carriers.ram.unreached() > 0 {
            self.counts.marks.insert("sim-unreached", self.carriers.ram.unreached());
        }
        let overflows = self.counts.overflows + self.carriers.network.overflows();
        if overflows > 0 {
            self.counts.marks.insert("sim-datagram-overflow", overflows);
        }
        let report = RunReport {
            outcome,
            casts: self.ledger.messages.len() as u64,
            deliveries: self.ledger.deliveries,
            barriers: self.counts.barriers,
            time: self.now,
            steps: self.counts.steps,
            messages: self.counts.messages,
            overflows,
            backlog_most: self.carriers.network.backlog_most(),
            events: self.counts.events,
            hash: self.trace.hash.0,
            marks: core::mem::take(&mut self.counts.marks),
            failover: self.failover.counts,
            crashes: self.counts.crashes,
            machines: core::mem::take(&mut self.counts.machines),
            recorded: RunRecord { plan: self.plan.clone(), choices: Choices::default() },
        };
        (report, self.chooser.take_odometer())
    }
}
