//! All nodes and clients of a simulated cluster: the driver of the replicas above the simulated processes.

use super::client::{CallLines, SentCommand, SimClient};
use super::clocks::SimulatedClocks;
use super::execution_order::ExecutionOrder;
use super::mutant::{ServiceJudge, ServiceMutant};
use super::node::{ClientRequest, HandedIn, HowRead, ServiceReply, SimNode, SimulatedAsker};
use super::time::MILLISECOND;
use super::transfer::{self, Incarnation, IncomingState, StateTransferStep, TransferPace};
use super::unanswered;
use super::{ReadLevel, SeenCalls, Workload};
use amcast_check::{History, PropertyVerdict};
use amcast_core::rng::Rng;
use amcast_core::step::Ticket;
use amcast_core::trace::TraceEvent;
use amcast_core::{
    ClusterShape, Config, ConfigError, Delivery, Entry, MsgId, Outcome, Pid, ProtocolEvent,
    Senders, ServiceAnswer, Span, Time,
};
use amcast_sim::{
    Host, HostPorts, HostRequest, RunRecord, RunReport, RunSettings, record_hosted, replay_hosted,
};
use amcast_smr::ShardedMachine;
use amcast_smr::application::Application;
use amcast_smr::recovery::TakeOver;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The settings of a run that concern the service, and not the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceSettings {
    /// Clients, each with one call at a time.
    pub clients: usize,
    /// Calls of each.
    pub calls: u64,
    /// The service is broken in this way.
    pub mutant: Option<ServiceMutant>,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self { clients: 4, calls: 25, mutant: None }
    }
}

/// A fault of the service that a run showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The property that does not hold, or `service` if the nodes themselves found it.
    pub what: &'static str,
    /// The account of it, for people.
    pub says: String,
}

/// The result of a run.
pub struct ServiceRun {
    /// The simulator's report on the protocol and on the end of the run.
    pub report: RunReport,
    /// The calls and returns of the clients, as lines of a history.
    pub lines: String,
    /// The faults of the service, if any.
    pub findings: Vec<Finding>,
    /// The properties that were not judged, and why: the search for an order of the calls gave up, or too few calls were
    /// executed.
    pub not_judged: Vec<Finding>,
    /// How often something happened.
    pub counts: BTreeMap<&'static str, u64>,
}

/// The records of a run that outlive it.
#[derive(Default)]
struct RunRemains {
    calls: CallLines,
    counts: BTreeMap<&'static str, u64>,
    /// Bytes of deliveries that waited at a node of a group with views beyond their bound, at most.
    over_most: usize,
    level: ReadLevel,
    maxmemory: u64,
    order: ExecutionOrder,
    /// How far the state of each shard goes at the end, and its digest, of the nodes that live, with their ranks.
    states: Vec<(usize, Vec<(u64, u64)>)>,
}

/// The longest time until a record is durable: with slower disks than that commands are ordered so late, by the clocks of
/// the services, that no node hands them in.
const SYNC_MOST: Span = Span(200 * MILLISECOND.0);

/// Makes the host of a run.
type HostFactory<'a> = dyn Fn() -> Box<dyn Host> + 'a;

/// A service over a protocol, in a cluster of this shape.
pub struct Simulation<'a, W> {
    /// The protocol.
    pub entry: &'a dyn Entry,
    /// The cluster, and the protocol's parameters.
    pub config: &'a Config,
    /// The clients, and how the service is broken.
    pub service: ServiceSettings,
    /// The seed of all random draws.
    pub seed: u64,
    /// Makes the clients' calls.
    pub workload: &'a dyn Fn() -> W,
}

impl<W: Workload + 'static> Simulation<'_, W> {
    /// Makes a run, and judges what its clients saw; `sink` receives the protocol's events. The
    /// run's records are in `recorded` even if something panics.
    ///
    /// # Errors
    /// When the protocol refuses the configuration.
    pub fn run(
        &self,
        settings: &RunSettings,
        recorded: &mut Option<RunRecord>,
        sink: &mut dyn FnMut(&TraceEvent<'_>),
    ) -> Result<ServiceRun, ConfigError> {
        let Self { entry, config, seed, .. } = *self;
        let sync_most = settings.sync_most.or(Some(SYNC_MOST));
        let settings = &RunSettings { sync_most, ..settings.clone() };
        self.judged(&mut |factory| {
            record_hosted(entry, config, settings, seed, factory, recorded, sink)
        })
    }

    /// Makes a recorded run again.
    ///
    /// # Errors
    /// When the protocol refuses the configuration.
    pub fn replay(
        &self,
        recorded: &RunRecord,
        sink: &mut dyn FnMut(&TraceEvent<'_>),
    ) -> Result<ServiceRun, ConfigError> {
        let Self { entry, config, .. } = *self;
        self.judged(&mut |factory| replay_hosted(entry, config, recorded, factory, sink))
    }

    fn judged(
        &self,
        run: &mut dyn FnMut(&HostFactory<'_>) -> Result<RunReport, ConfigError>,
    ) -> Result<ServiceRun, ConfigError> {
        let left = Rc::new(RefCell::new(RunRemains::default()));
        let factory = || -> Box<dyn Host> {
            *left.borrow_mut() = RunRemains::default();
            Box::new(ServiceHost::new(self, Rc::clone(&left)))
        };
        let report = run(&factory)?;
        let left = std::mem::take(&mut *left.borrow_mut());
        let workload = (self.workload)();
        let Judgement { mut findings, mut not_judged } = judge(&workload, &left);
        // Of a run that did not settle some nodes may be behind.
        if report.settled() {
            findings.extend(compare(&left.states));
            let progress = &left.calls.progress;
            findings.extend(progress.finding(left.level).filter(|_| !workload.refuses()));
            not_judged.extend(progress.not_judged().filter(|_| !workload.refuses()));
        }
        let RunRemains { calls: CallLines { lines, no_memory, progress, .. }, mut counts, .. } =
            left;
        if !no_memory.is_empty() {
            counts.insert("calls refused for lack of memory", no_memory.len() as u64);
        }
        counts.extend(progress.counts().into_iter().filter(|(_, count)| *count > 0));
        Ok(ServiceRun { report, lines, findings, not_judged, counts })
    }
}

fn judge<W: Workload>(workload: &W, left: &RunRemains) -> Judgement {
    let CallLines { lines, requests, batches, apart, no_memory, .. } = &left.calls;
    let RunRemains { level, maxmemory, .. } = *left;
    let place = |call: &str| requests.get(call).and_then(|of| left.order.place(*of));
    let mut places: Vec<(String, u64)> =
        requests.keys().filter_map(|call| Some((call.clone(), place(call)?))).collect();
    let lines = match maxmemory {
        0 => lines.clone(),
        _ => unanswered::with_commands_apart(lines, batches, &mut |batch, own| {
            places.extend(place(batch).map(|place| (own, place)));
        }),
    };
    let mut history = History::new();
    for line in lines.lines() {
        if let Err(e) = history.push_line(line) {
            let findings = vec![Finding { what: "history", says: e.to_string() }];
            return Judgement { findings, ..Judgement::default() };
        }
    }
    places.iter().for_each(|(call, place)| history.tell_place(call, *place));
    let seen = SeenCalls { history: &history, apart, no_memory, level, maxmemory };
    let mut judgement = Judgement::default();
    for (what, verdict) in workload.judge(&seen) {
        match verdict {
            PropertyVerdict::Holds => {}
            PropertyVerdict::NotJudged(says) => judgement.not_judged.push(Finding { what, says }),
            PropertyVerdict::Violated(why) => {
                judgement.findings.push(Finding { what, says: why.to_string() });
            }
            PropertyVerdict::Impossible(says) => judgement.findings.push(Finding { what, says }),
        }
    }
    judgement
}

/// The judgement of the calls of a run.
#[derive(Default)]
struct Judgement {
    findings: Vec<Finding>,
    not_judged: Vec<Finding>,
}

fn positions(state: Vec<(u64, u64)>) -> Vec<u64> {
    state.into_iter().map(|(position, _)| position).collect()
}

/// Whether all nodes that live hold the same in the end.
fn compare(states: &[(usize, Vec<(u64, u64)>)]) -> Option<Finding> {
    let ((first, of_first), others) = states.split_first()?;
    let (other, of_other) = others.iter().find(|(_, state)| state != of_first)?;
    let says = format!(
        "at the end the nodes of rank {first} and {other} hold other states, shard by shard (position, digest): \
         {of_first:?} and {of_other:?}"
    );
    Some(Finding { what: ServiceJudge::OneState.name(), says })
}

/// An event of the service that is due.
enum ServiceTimer {
    /// A command arrives at a node.
    HandIn(SentCommand),
    /// An answer arrives at a client's gateway.
    Reply(ClientRequest, ServiceReply),
    /// A node takes the next step of a state transfer.
    Transfer {
        rank: usize,
        incarnation: u32,
    },
    /// A node writes the next piece of its checkpoint, or has it durable.
    Write(CheckpointWrite),
    Durable(CheckpointWrite),
    /// Nodes look at what is due by their clocks.
    Look,
}

/// A checkpoint that is being written.
#[derive(Clone, Copy)]
struct CheckpointWrite {
    rank: usize,
    incarnation: u32,
    /// The so-manyth of this incarnation.
    number: u64,
}

/// How often nodes look at their clocks.
const LOOK_EVERY: Span = Span::micros(100);

/// How long nodes that are down are waited for, when all clients have made their calls.
const PATIENCE: Span = Span::secs(1);

struct ServiceHost<W: Workload> {
    cluster: ClusterShape,
    nodes: Vec<SimNode<W::Machine>>,
    clients: Vec<SimClient<W>>,
    /// The processes that multicast what clients ask for, where replicas do not.
    gateways: Vec<Pid>,
    /// The request that each message of a gateway carries.
    asked: BTreeMap<MsgId, ClientRequest>,
    multicasts: u64,
    rng: Rng,
    queue: BTreeMap<(Time, u64), ServiceTimer>,
    queued: u64,
    /// Nodes whose state is still to be looked at, when all clients have made their calls.
    looks: Vec<usize>,
    /// When all clients had made their calls.
    done_at: Option<Time>,
    wrong: Option<String>,
    mutant: Option<ServiceMutant>,
    transfers: TransferPace,
    transfer_rng: Rng,
    left: Rc<RefCell<RunRemains>>,
}

impl<W: Workload> ServiceHost<W> {
    fn new(simulation: &Simulation<'_, W>, left: Rc<RefCell<RunRemains>>) -> Self {
        let Simulation { entry, config, service, seed, workload } = *simulation;
        let cluster = *config.cluster();
        let can = entry.capabilities();
        let (has_log, multicasts) = (can.durability.has_log(), can.senders == Senders::Replicas);
        let ranks = 0..cluster.replicas();
        let mut rng = Rng::stream(seed, "service");
        let reads_by_index = can.read_index && multicasts;
        let may = (reads_by_index, workload().reads_here());
        let level = ReadLevel::draw(may, service.mutant, &mut rng);
        let maxmemory = workload().draw_maxmemory(&mut Rng::stream(seed, "memory"));
        let mut transfer_rng = Rng::stream(seed, "transfers");
        let transfers = TransferPace::draw(&mut transfer_rng);
        let mut clocks =
            SimulatedClocks::draw(cluster.replicas(), service.clients, multicasts, &mut rng);
        if clocks.draw_steps(multicasts, &mut Rng::stream(seed, "clock steps")) {
            left.borrow_mut().counts.insert("runs in which clocks are set", 1);
        }
        let node = |rank: usize| {
            let clock = clocks.nodes[rank];
            let mutant = service.mutant;
            let mut node = SimNode::new(cluster, (rank, clock), has_log, multicasts, mutant);
            (node.inbox_bytes, node.maxmemory) = (transfers.inbox_bytes, maxmemory);
            node
        };
        left.borrow_mut().level = level;
        left.borrow_mut().maxmemory = maxmemory;
        let client = |index: usize| {
            let (own, of) = (Rng::new(rng.word()), (level, clocks.gateways[index]));
            let mut mine = workload();
            mine.begin(level, maxmemory);
            SimClient::new((index, mine), of, service.calls, cluster.replicas(), own)
        };
        let clients = (0..service.clients).map(client).collect();
        let mut it = Self {
            cluster,
            nodes: ranks.clone().map(node).collect(),
            clients,
            gateways: cluster.pids().filter(|p| cluster.group_of(*p).is_none()).collect(),
            asked: BTreeMap::new(),
            multicasts: 0,
            rng,
            queue: BTreeMap::new(),
            queued: 0,
            looks: ranks.collect(),
            done_at: None,
            wrong: None,
            mutant: service.mutant,
            transfers,
            transfer_rng,
            left,
        };
        it.after(Time::ZERO, LOOK_EVERY, ServiceTimer::Look);
        it
    }

    /// A node ends, or the run: how often it had executed commands in another order than the final one.
    fn count_undone(&self, rank: usize) {
        let running = self.nodes[rank].running.as_ref();
        let undone = running.map_or(0, |running| running.recovery.app.undone());
        if undone > 0 {
            *self.left.borrow_mut().counts.entry("early commands undone").or_default() += undone;
        }
    }

    fn count(&self, what: &'static str) {
        *self.left.borrow_mut().counts.entry(what).or_default() += 1;
    }

    /// Whether a node begins to hold its group back, and how many bytes wait there beyond their bound.
    fn note_full(&self, becomes_full: bool, over: usize) {
        if becomes_full {
            self.count("nodes that hold their group back");
        }
        let mut left = self.left.borrow_mut();
        left.over_most = left.over_most.max(over);
    }

    fn after(&mut self, now: Time, span: Span, due: ServiceTimer) {
        self.queued += 1;
        self.queue.insert((now + span, self.queued), due);
    }

    /// A way between a gateway and a node, or between two nodes.
    fn delay(&mut self) -> Span {
        Span(5_000 + self.rng.below(60_000))
    }

    fn send(&mut self, now: Time, sent: Option<SentCommand>) {
        if let Some(sent) = sent {
            let delay = self.delay();
            self.after(now, delay, ServiceTimer::HandIn(sent));
        }
    }

    fn due(&mut self, now: Time, due: ServiceTimer, requests: &mut Vec<HostRequest>) {
        match due {
            ServiceTimer::HandIn(SentCommand { node, of, dst, payload, how }) => {
                let is_here = self.gateways.is_empty() || matches!(how, HowRead::Here(_));
                let command = HandedIn { of, dst, payload, how };
                match is_here {
                    true => self.nodes[node].hand_in(now, command),
                    false => self.multicast(node, command, requests),
                }
            }
            ServiceTimer::Reply(to, ServiceReply { mut outcome, bytes, .. }) => {
                if self.mutant == Some(ServiceMutant::RefusesAll) {
                    outcome = Outcome::NotExecuted;
                }
                let answer = ServiceAnswer::borrowed(outcome, &bytes);
                let Self { clients, left, .. } = self;
                let mut left = left.borrow_mut();
                let sent = clients[to.client].answered(now, to.request, &answer, &mut left.calls);
                drop(left);
                self.send(now, sent);
            }
            ServiceTimer::Transfer { rank, incarnation } => self.transfer(now, rank, incarnation),
            ServiceTimer::Write(save) => self.write(now, save),
            ServiceTimer::Durable(save) if self.is_going(save) => {
                self.count("checkpoints");
                self.nodes[save.rank].has_checkpoint(requests);
            }
            ServiceTimer::Durable(_) => {}
            ServiceTimer::Look => self.after(now, LOOK_EVERY, ServiceTimer::Look),
        }
    }

    fn lives(&self, rank: usize, incarnation: u32) -> bool {
        let node = &self.nodes[rank];
        node.running.is_some() && node.incarnation == incarnation
    }

    /// Whether a checkpoint was not given up.
    fn is_going(&self, save: CheckpointWrite) -> bool {
        let running = self.nodes[save.rank].running.as_ref();
        self.lives(save.rank, save.incarnation)
            && running.is_some_and(|r| r.saving.is_some() && r.saves == save.number)
    }

    /// One round of a node's loop.
    fn round(
        &mut self,
        now: Time,
        rank: usize,
        ports: &dyn HostPorts,
        requests: &mut Vec<HostRequest>,
    ) {
        let mut replies = Vec::new();
        let node = &mut self.nodes[rank];
        let incarnation = node.incarnation;
        // An application that hangs takes no state over.
        let is_hung = node.note_hang(now);
        if let Some(running) = node.running.as_mut().filter(|_| !is_hung) {
            match running.recovery.take_over() {
                Some(TakeOver::Adopted(_)) => {
                    node.has_adopted();
                    self.count("states taken over");
                }
                Some(TakeOver::Dropped(_)) => self.count("states dropped"),
                Some(TakeOver::Conflicts(why)) => self.wrong = Some(why),
                None => {}
            }
        }
        let node = &mut self.nodes[rank];
        let (was_full, over) = (node.is_full(), node.overflow().unwrap_or(0));
        node.round(now, ports, requests, &mut replies);
        let becomes_full = !was_full && node.is_full();
        self.note_full(becomes_full, over);
        let node = &mut self.nodes[rank];
        if let Some(running) = &mut node.running {
            let mut left = self.left.borrow_mut();
            running.submitted.drain(..).for_each(|(msg, of)| left.order.carries(msg, of));
        }
        self.replied(now, rank, replies);
        self.look_for_state(now, rank);
        if self.nodes[rank].is_checkpoint_due(now) {
            self.nodes[rank].begin_checkpoint();
            let number = self.nodes[rank].running.as_ref().map_or(0, |running| running.saves);
            let delay = self.delay();
            self.after(
                now,
                delay,
                ServiceTimer::Write(CheckpointWrite { rank, incarnation, number }),
            );
        }
        let running = self.nodes[rank].running.as_ref();
        if let Some(why) = running.and_then(|running| running.recovery.app.differs()) {
            self.wrong = Some(why.to_string());
        }
    }

    /// Sends the answers of a node to the gateways that asked.
    fn replied(&mut self, now: Time, rank: usize, replies: Vec<ServiceReply>) {
        for reply in replies {
            if let SimulatedAsker::Message(msg) = reply.asker {
                self.left.borrow_mut().order.executed(msg, reply.outcome);
            }
            let asked_by = match reply.asker {
                SimulatedAsker::Client(of) => Some(of),
                SimulatedAsker::Message(msg) if self.gateways.is_empty() => {
                    self.nodes[rank].asked_by(msg)
                }
                SimulatedAsker::Message(msg) => self.asked.get(&msg).copied(),
            };
            if let Some(to) = asked_by {
                let delay = self.delay();
                self.after(now, delay, ServiceTimer::Reply(to, reply));
            }
        }
    }

    /// Has a client of the protocol multicast a command: a gateway of clusters in which replicas do not.
    fn multicast(&mut self, gateway: usize, command: HandedIn, requests: &mut Vec<HostRequest>) {
        let HandedIn { of, dst, payload, .. } = command;
        let p = self.gateways[gateway % self.gateways.len()];
        self.multicasts += 1;
        let seq = self.multicasts;
        let msg = MsgId { sender: p, seq };
        self.asked.insert(msg, of);
        self.left.borrow_mut().order.carries(msg, of);
        requests.push(HostRequest::Submit { p, seq, dst, payload });
    }

    /// Begins a state transfer if a node needs one.
    fn look_for_state(&mut self, now: Time, rank: usize) {
        let nodes = self.cluster.replicas();
        let node = &mut self.nodes[rank];
        let incarnation = node.incarnation;
        let Some(running) = &mut node.running else { return };
        let Some(wanted) = running.recovery.wants() else { return };
        let first = self.rng.below(nodes as u64) as usize;
        let sources: Vec<usize> =
            (0..nodes).map(|i| (first + i) % nodes).filter(|source| *source != rank).collect();
        running.recovery.expect(sources.clone());
        running.transfer = Some(IncomingState::of(wanted, sources));
        let delay = self.delay();
        self.after(now, delay, ServiceTimer::Transfer { rank, incarnation });
    }

    /// The next step of the transfer of a state to a node.
    fn transfer(&mut self, now: Time, rank: usize, incarnation: u32) {
        if !self.lives(rank, incarnation) {
            return;
        }
        let delay = self.delay();
        let Some(running) = &mut self.nodes[rank].running else { return };
        let Some(mut transfer) = running.transfer.take() else { return };
        let to = Incarnation { rank, number: incarnation };
        if !running.recovery.is_fetching() {
            // It was excluded meanwhile: the state is not wanted any more.
            if let Some(source) = &mut self.nodes[transfer.sources[transfer.at]].running {
                source.stop_giving_to(to);
            }
            return;
        }
        let Self { nodes, transfers, transfer_rng, .. } = self;
        let step = transfer::step(nodes, now, to, &mut transfer, (transfers, transfer_rng));
        let counted = match step {
            StateTransferStep::Breaks => Some("transfers' connections broken"),
            StateTransferStep::Resumes => Some("transfers resumed"),
            StateTransferStep::BreaksOff => Some("transfers broken off"),
            _ => None,
        };
        counted.into_iter().for_each(|what| self.count(what));
        let Some(running) = &mut self.nodes[rank].running else { return };
        // Where two states fit, the new one is read first.
        let makes_room = transfer.is_given() && !W::Machine::FITS_TWICE;
        if makes_room && running.recovery.make_room().is_some() {
            // The state that it gave to another node, or to its disk, is gone.
            running.stop_giving();
            running.stop_saving();
        }
        if step == StateTransferStep::Fails {
            return running.recovery.fetched(None);
        }
        running.transfer = Some(transfer);
        if step != StateTransferStep::Ends {
            return self.after(now, delay, ServiceTimer::Transfer { rank, incarnation });
        }
        if let Err(why) = self.nodes[rank].take(now) {
            self.wrong = Some(format!("a state that another node gave cannot be read: {why}"));
        }
    }

    /// The next piece of a node's checkpoint goes to its disk.
    fn write(&mut self, now: Time, save: CheckpointWrite) {
        if !self.is_going(save) {
            return;
        }
        let most = 200 + self.rng.below(3_000) as usize;
        let Some(is_whole) = self.nodes[save.rank].write_checkpoint(most) else { return };
        let is_whole = is_whole || self.mutant == Some(ServiceMutant::UnfinishedCheckpoint);
        let delay = self.delay();
        self.after(
            now,
            delay,
            if is_whole { ServiceTimer::Durable(save) } else { ServiceTimer::Write(save) },
        );
    }

    /// When all clients have made their calls, looks at what each node has. One that stays away is not waited for.
    fn look_at_nodes(&mut self, now: Time, ports: &dyn HostPorts) {
        if self.looks.is_empty() || !self.clients.iter().all(SimClient::is_done) {
            return;
        }
        let since = *self.done_at.get_or_insert(now);
        let lives = |rank: &usize| {
            let groups = self.cluster.all_groups();
            groups.iter().all(|g| ports.is_alive(self.cluster.replica(g, *rank)))
        };
        let ranks = 0..self.nodes.len();
        let is_patient = now.since(since) < PATIENCE;
        if is_patient && !ranks.clone().all(|rank| lives(&rank) && self.nodes[rank].is_calm()) {
            return;
        }
        self.looks.retain(lives);
        let node = if self.clients[0].is_closing() {
            self.looks.last().copied()
        } else {
            self.looks.pop()
        };
        if let Some(node) = node {
            let Self { clients, left, .. } = self;
            let sent = clients[0].look((now, node), &mut left.borrow_mut().calls);
            self.send(now, Some(sent));
        }
    }
}

impl<W: Workload> Drop for ServiceHost<W> {
    fn drop(&mut self) {
        let states = self.nodes.iter().enumerate();
        let states = states.filter_map(|(rank, node)| Some((rank, node.states()?)));
        self.left.borrow_mut().states = states.collect();
        (0..self.nodes.len()).for_each(|rank| self.count_undone(rank));
    }
}

impl<W: Workload> Host for ServiceHost<W> {
    fn deliver(&mut self, now: Time, p: Pid, delivery: Delivery, payload: &[u8]) {
        let Some(rank) = self.rank(p) else { return };
        let mut replies = Vec::new();
        self.nodes[rank].note_hang(now);
        self.nodes[rank].deliver(now, p, (delivery, payload), &mut replies);
        self.replied(now, rank, replies);
    }

    fn early(&mut self, _: Time, p: Pid, msg: MsgId, payload: &[u8]) {
        let Some(rank) = self.rank(p) else { return };
        if let Some(running) = &mut self.nodes[rank].running {
            running.recovery.early(msg, payload);
        }
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        let Some(rank) = self.rank(p) else { return };
        if matches!(event, ProtocolEvent::Excluded(_)) && self.nodes[rank].is_full() {
            self.count("full nodes excluded");
        }
        if let Some(running) = &mut self.nodes[rank].running {
            running.recovery.event(p, event);
        }
    }

    fn passed(&mut self, now: Time, p: Pid, ticket: Ticket) {
        if let Some(rank) = self.rank(p) {
            self.nodes[rank].passed(now, p, ticket);
        }
    }

    fn damaged(&mut self, _: Time, rank: usize) -> bool {
        let node = &mut self.nodes[rank];
        node.is_damaged = node.checkpoint.is_some();
        node.is_damaged
    }

    fn full(&mut self, _: Time, rank: usize, until: Time) {
        if self.nodes[rank].fill_disk(until) {
            self.count("checkpoints without room");
        }
    }

    fn hung(&mut self, _: Time, rank: usize, until: Time) {
        self.count("applications that hang");
        self.nodes[rank].hang(until);
    }

    fn crashed(&mut self, _: Time, rank: usize) {
        let running = self.nodes[rank].running.as_ref();
        if running.is_some_and(|running| running.saving.is_some()) {
            self.count("checkpoints broken off");
        }
        self.count_undone(rank);
        self.nodes[rank].crash();
    }

    fn started(&mut self, now: Time, rank: usize, lost_disk: bool) -> Vec<u64> {
        if self.nodes[rank].is_damaged {
            self.count("checkpoints that cannot be read");
        }
        match self.nodes[rank].start(now, lost_disk) {
            Ok(positions) => positions,
            Err(why) => {
                self.wrong = Some(why);
                vec![0; self.cluster.groups()]
            }
        }
    }

    fn poll(&mut self, now: Time, ports: &dyn HostPorts, requests: &mut Vec<HostRequest>) {
        if ports.is_calm() {
            self.transfers.end_faults();
        }
        while let Some(first) = self.queue.first_entry()
            && first.key().0 <= now
        {
            let due = first.remove();
            self.due(now, due, requests);
        }
        let lives: Vec<Option<u32>> = self.nodes.iter().map(SimNode::life).collect();
        for client in 0..self.clients.len() {
            let Self { clients, left, .. } = self;
            clients[client].connect(now, &lives);
            let sent = clients[client].poll(now, &mut left.borrow_mut().calls);
            self.send(now, sent);
        }
        let is_alive = |of: Incarnation| lives[of.rank] == Some(of.number);
        self.nodes.iter_mut().for_each(|node| node.end_giving(now, &self.transfers, &is_alive));
        let has_work = !self.is_done();
        for rank in 0..self.nodes.len() {
            self.nodes[rank].has_work = has_work;
            self.round(now, rank, ports, requests);
        }
        self.look_at_nodes(now, ports);
    }

    fn deadline(&self) -> Option<Time> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let clients = self.clients.iter().filter_map(SimClient::deadline);
        clients.chain(queued).min()
    }

    fn is_settled(&self) -> bool {
        self.is_done() && self.nodes.iter().all(SimNode::is_calm) && self.is_even()
    }

    fn breach(&mut self) -> Option<String> {
        self.wrong.take()
    }
}

impl<W: Workload> ServiceHost<W> {
    /// Whether the clients have made all their calls, and seen what each node has.
    fn is_done(&self) -> bool {
        self.looks.is_empty() && self.clients.iter().all(SimClient::is_done)
    }

    /// Whether all nodes that live have executed as much: what a node executed before it died it executes again.
    fn is_even(&self) -> bool {
        let mut states = self.nodes.iter().filter_map(SimNode::states);
        let first: Option<Vec<u64>> = states.next().map(positions);
        let running = self.nodes.iter().filter(|node| node.running.is_some()).count();
        let like = states.filter(|state| first.as_ref() == Some(&positions(state.clone())));
        running == 0 || like.count() + 1 == running
    }

    /// The rank of a replica; none of a client's process.
    fn rank(&self, p: Pid) -> Option<usize> {
        let group = self.cluster.group_of(p)?;
        (0..self.cluster.replicas()).find(|&rank| self.cluster.replica(group, rank) == p)
    }
}

#[cfg(test)]
mod tests;
