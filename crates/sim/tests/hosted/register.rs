//! A service that is as small as one can be: each node has a register for each group, and a command of the
//! group changes it to something that depends on all commands before.
//!
//! Lost state of a node comes back as in a real one: the state of all groups at one moment, from one other node,
//! once every replica of the node knows the position that it continues from. Deliveries wait meanwhile.

use amcast_core::rng::Rng;
use amcast_core::step::Ticket;
use amcast_core::{
    ClusterShape, Delivery, Entry, Gid, GroupSet, Pid, ProtocolEvent, Role, Senders, Span, Time,
};
use amcast_sim::{Host, HostPorts, HostRequest};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The mistake of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RegisterMutant {
    /// Nothing.
    None,
    /// It takes over a state that another node had some time ago, however old it is.
    TakesOldState,
    /// It reports that it continues from its checkpoint, and has lost it.
    LosesCheckpoint,
    /// It reports a state in force as soon as a replica needs one, and continues from its own.
    AnswersEarly,
    /// It answers a read from what is executed when it comes, and sets no barrier.
    ReadsAtOnce,
    /// It stops itself at its first delivery.
    Panics,
}

/// The actions of a host, to be looked at when the run is over.
#[derive(Clone, Default, Debug)]
pub(crate) struct Deeds {
    pub transfers: u64,
    pub checkpoints: u64,
    pub resumed: u64,
    pub lost_disks: u64,
    pub executed: u64,
    pub reads: u64,
    /// By node that lives, its registers.
    pub ends: Vec<Vec<Register>>,
}

/// The state of a group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Register {
    pub position: u64,
    pub value: u64,
}

impl Register {
    fn execute(&mut self, position: u64, payload: &[u8]) {
        let mut value = self.value ^ position;
        for &byte in payload {
            value = (value.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        *self = Self { position, value };
    }
}

/// Where a node's registers stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RegisterState {
    /// They follow the replicas.
    Live,
    /// They are behind.
    Behind,
    /// The state of this node comes at that time.
    Fetching(usize, Time),
}

/// A view that a node's replica entered.
#[derive(Clone, Copy, Default, Debug)]
struct RegisterView {
    number: u64,
    /// The members that were so in all views since the state was asked for, a bit each.
    steady: u32,
    is_over: bool,
    reached: u64,
}

struct RegisterNode {
    is_alive: bool,
    state: RegisterState,
    /// Its state was lost, and is not back.
    lost: bool,
    registers: Vec<Register>,
    /// Their values some time ago.
    old: Vec<Register>,
    /// By group.
    wanted: Vec<u64>,
    lacks: Vec<bool>,
    inbox: Vec<VecDeque<(u64, Vec<u8>)>>,
    view: Option<RegisterView>,
    warn: bool,
    tell: bool,
    applied: Vec<u64>,
    /// The one that is durable.
    checkpoint: Vec<Register>,
    saving: Option<(Time, Vec<Register>)>,
    save_at: Time,
    /// Barriers that are set, and the position that a read behind each must show.
    reads: BTreeMap<Ticket, (Gid, u64)>,
}

impl RegisterNode {
    fn new(groups: usize) -> Self {
        Self {
            is_alive: true,
            state: RegisterState::Live,
            lost: false,
            registers: vec![Register::default(); groups],
            old: vec![Register::default(); groups],
            wanted: vec![0; groups],
            lacks: vec![false; groups],
            inbox: vec![VecDeque::new(); groups],
            view: None,
            warn: false,
            tell: false,
            applied: vec![0; groups],
            checkpoint: vec![Register::default(); groups],
            saving: None,
            save_at: Time::ZERO,
            reads: BTreeMap::new(),
        }
    }

    /// How far a group's registers will be, with what waits for them.
    fn stands(&self, group: usize) -> u64 {
        let waits = self.inbox[group].back().map_or(0, |&(position, _)| position);
        let awaits = if self.state == RegisterState::Live { 0 } else { self.wanted[group] };
        self.registers[group].position.max(waits).max(awaits)
    }

    fn is_whole(&self) -> bool {
        self.is_alive && self.state == RegisterState::Live && !self.lacks.contains(&true)
    }

    fn is_idle(&self) -> bool {
        let waits = self.inbox.iter().any(|waiting| !waiting.is_empty());
        !self.is_alive || self.is_whole() && !waits && self.reads.is_empty()
    }
}

/// The service on all nodes.
pub(crate) struct Registers {
    cluster: ClusterShape,
    has_log: bool,
    has_views: bool,
    can_read: bool,
    senders: Vec<Pid>,
    mutant: RegisterMutant,
    rng: Rng,
    nodes: Vec<RegisterNode>,
    /// The value of every register at each position, by the replica that got there first.
    known: BTreeMap<(Gid, u64), u64>,
    /// The last number of each process.
    numbers: BTreeMap<Pid, u64>,
    commands_left: u32,
    next_command: Time,
    /// Nobody lives who could multicast.
    is_silent: bool,
    /// The longest times between two commands, of a transfer, and between two checkpoints.
    pace: Span,
    transfer: Span,
    period: Span,
    tickets: u64,
    wrong: Option<String>,
    deeds: Rc<RefCell<Deeds>>,
}

impl Registers {
    pub(crate) fn new(
        entry: &dyn Entry,
        cluster: ClusterShape,
        mutant: RegisterMutant,
        seed: u64,
        deeds: Rc<RefCell<Deeds>>,
    ) -> Self {
        let mut rng = Rng::stream(seed, "registers");
        let can = entry.capabilities();
        let from_clients = can.senders == Senders::Clients;
        let senders = cluster.pids().filter(|&p| cluster.group_of(p).is_none() == from_clients);
        let mut scale = |least: Span| least.times(1 << rng.below(8));
        let (pace, transfer, period) =
            (scale(Span::micros(20)), scale(Span::micros(100)), scale(Span::micros(500)));
        *deeds.borrow_mut() = Deeds::default();
        Self {
            cluster,
            has_log: can.durability.has_log(),
            has_views: can.views,
            can_read: can.read_index,
            senders: senders.collect(),
            mutant,
            rng,
            nodes: (0..cluster.replicas()).map(|_| RegisterNode::new(cluster.groups())).collect(),
            known: BTreeMap::new(),
            numbers: BTreeMap::new(),
            commands_left: 80,
            next_command: Time::ZERO,
            is_silent: false,
            pace,
            transfer,
            period,
            tickets: 0,
            wrong: None,
            deeds,
        }
    }

    fn place(&self, p: Pid) -> Option<(usize, usize)> {
        match self.cluster.role(p) {
            Role::Replica { group, rank } => Some((usize::from(rank), group.index())),
            Role::Client { .. } => None,
        }
    }

    fn up_to(&mut self, most: Span) -> Span {
        Span(1 + self.rng.below(most.0))
    }

    fn complain(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }

    /// Executes what waits, as far as the registers are there for it.
    fn drain(&mut self, rank: usize) {
        let node = &mut self.nodes[rank];
        if node.state != RegisterState::Live {
            return;
        }
        for (g, waiting) in node.inbox.iter_mut().enumerate() {
            while let Some((position, payload)) = waiting.pop_front() {
                let register = &mut node.registers[g];
                if position <= register.position {
                    continue;
                }
                if position % 4 == 0 {
                    node.old[g] = *register;
                }
                register.execute(position, &payload);
                self.deeds.borrow_mut().executed += 1;
                let known = *self.known.entry((Gid(g as u8), position)).or_insert(register.value);
                if known != register.value {
                    let why = format!("node {rank} has another g{g} at {position} than another");
                    self.wrong.get_or_insert(why);
                }
            }
        }
    }

    /// Begins to fetch a state where one is needed, and puts it in force when it has arrived.
    fn recover(&mut self, now: Time, rank: usize) {
        let node = &self.nodes[rank];
        if !node.is_alive || node.state == RegisterState::Live || node.lacks.contains(&true) {
            return;
        }
        let RegisterState::Fetching(source, at) = node.state else {
            let source = self.rng.below(self.nodes.len() as u64) as usize;
            let at = now + self.up_to(self.transfer);
            let node = &mut self.nodes[rank];
            node.state = RegisterState::Fetching(source, at);
            if let Some(view) = &mut node.view {
                view.steady = u32::MAX;
            }
            return;
        };
        if at > now {
            return;
        }
        let has = |source: &RegisterNode| {
            let registers = source.registers.iter().zip(&node.wanted);
            source.is_whole() && registers.clone().all(|(has, least)| has.position >= *least)
        };
        let same_view = |source: &RegisterNode| match (node.view, source.view) {
            (Some(mine), Some(its)) => {
                let steady = mine.number == its.number && !mine.is_over && !its.is_over;
                // A message that the source has and this node's replica has not may yet come otherwise.
                steady && source.registers.iter().all(|r| r.position <= mine.reached)
            }
            (mine, _) => mine.is_none() && !self.has_views,
        };
        let from = &self.nodes[source];
        let old = self.mutant == RegisterMutant::TakesOldState
            && from.is_alive
            && from.state == RegisterState::Live;
        if source != rank && (old || has(from) && same_view(from)) {
            let registers = if old { from.old.clone() } else { from.registers.clone() };
            let node = &mut self.nodes[rank];
            node.wanted = registers.iter().map(|r| r.position).collect();
            (node.registers, node.state) = (registers, RegisterState::Live);
            (node.lost, node.tell) = (false, true);
            self.deeds.borrow_mut().transfers += 1;
            self.drain(rank);
        } else {
            self.nodes[rank].state = RegisterState::Behind;
            self.recover(now, rank);
        }
    }

    /// The reports to the replicas of a node.
    fn tell(&mut self, rank: usize, requests: &mut Vec<HostRequest>) {
        let cluster = self.cluster;
        let node = &mut self.nodes[rank];
        let replicas =
            || cluster.all_groups().iter().map(|g| (g.index(), cluster.replica(g, rank)));
        if std::mem::take(&mut node.warn) {
            requests.extend(replicas().map(|(_, p)| HostRequest::Unfit { p }));
        }
        if std::mem::take(&mut node.tell) {
            let early = self.mutant == RegisterMutant::AnswersEarly;
            requests.extend(replicas().map(|(g, p)| {
                let position = node.registers[g].position;
                let position = if early { position.max(node.wanted[g]) } else { position };
                HostRequest::Installed { p, position }
            }));
        }
        for (g, p) in replicas() {
            let position = match node.state {
                RegisterState::Live => node.registers[g].position,
                _ => node.inbox[g].back().map_or(0, |&(position, _)| position),
            };
            if position > node.applied[g] {
                node.applied[g] = position;
                requests.push(HostRequest::Applied { p, position });
            }
        }
    }

    /// Saves the registers now and then.
    fn save(&mut self, now: Time, rank: usize, requests: &mut Vec<HostRequest>) {
        let pause = self.up_to(self.period);
        let (cluster, node) = (self.cluster, &mut self.nodes[rank]);
        if let Some((_, registers)) = node.saving.take_if(|(at, _)| *at <= now) {
            for (g, register) in cluster.all_groups().iter().zip(&registers) {
                let (p, position) = (cluster.replica(g, rank), register.position);
                requests.push(HostRequest::Checkpointed { p, position });
            }
            node.checkpoint = registers;
            self.deeds.borrow_mut().checkpoints += 1;
        } else if node.saving.is_none() && node.save_at <= now && node.is_whole() {
            node.saving = Some((now + pause, node.registers.clone()));
            node.save_at = now + pause + pause;
        }
    }

    /// Has somebody multicast the next command, and read.
    fn command(&mut self, now: Time, ports: &dyn HostPorts, requests: &mut Vec<HostRequest>) {
        if self.commands_left == 0 || self.next_command > now {
            return;
        }
        self.next_command = now + self.up_to(self.pace);
        self.is_silent = !self.senders.iter().any(|&p| ports.is_alive(p));
        let p = self.senders[self.rng.below(self.senders.len() as u64) as usize];
        let (own, whole) = match self.place(p) {
            Some((rank, g)) => (GroupSet::one(Gid(g as u8)), self.nodes[rank].is_whole()),
            None => (GroupSet::EMPTY, true),
        };
        let groups = self.cluster.groups() as u64;
        let dst = (0..self.rng.below(groups) + u64::from(own.is_empty()))
            .fold(own, |dst, _| dst.with(Gid(self.rng.below(groups) as u8)));
        let bytes = self.rng.below(200) as usize;
        if !whole || ports.room(p, dst, bytes) == 0 {
            return;
        }
        let seq = self.numbers.entry(p).or_default();
        *seq += 1 + self.rng.below(3);
        let payload = (0..bytes).map(|_| self.rng.below(256) as u8).collect();
        requests.push(HostRequest::Submit { p, seq: *seq, dst, payload });
        self.commands_left -= 1;
        self.read(requests);
    }

    /// Reads a register of any node.
    fn read(&mut self, requests: &mut Vec<HostRequest>) {
        let rank = self.rng.below(self.nodes.len() as u64) as usize;
        let g = self.rng.below(self.cluster.groups() as u64) as usize;
        if !self.can_read || !self.nodes[rank].is_whole() {
            return;
        }
        let group = Gid(g as u8);
        let least = self.known.range((group, 0)..=(group, u64::MAX)).next_back();
        let least = least.map_or(0, |((_, position), _)| *position);
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.nodes[rank].reads.insert(ticket, (group, least));
        if self.mutant == RegisterMutant::ReadsAtOnce {
            return self.answer(rank, ticket);
        }
        requests.push(HostRequest::Barrier { p: self.cluster.replica(group, rank), ticket });
    }

    /// Answers a read whose barrier is passed: what is delivered is executed by now, or waits for a state.
    fn answer(&mut self, rank: usize, ticket: Ticket) {
        self.drain(rank);
        let node = &mut self.nodes[rank];
        let Some((group, least)) = node.reads.remove(&ticket) else {
            return self.complain("a barrier is passed that was not set".to_string());
        };
        if node.stands(group.index()) < least {
            let why = format!("a read of {group:?} on node {rank} does not show {least}");
            return self.complain(why);
        }
        self.deeds.borrow_mut().reads += 1;
    }
}

impl Registers {
    /// A replica continues from `position`, and its node needs a state as far as that.
    fn needs_state(&mut self, rank: usize, g: usize, position: u64) {
        let node = &mut self.nodes[rank];
        node.lacks[g] = false;
        if let Some(view) = &mut node.view {
            view.reached = view.reached.max(position);
        }
        node.inbox[g].retain(|&(at, _)| at > position);
        if self.mutant == RegisterMutant::AnswersEarly {
            node.wanted[g] = node.wanted[g].max(position);
            (node.state, node.lost, node.tell) = (RegisterState::Live, false, true);
            return;
        }
        if node.state == RegisterState::Live {
            if node.registers[g].position >= position {
                node.tell = true;
                return;
            }
            node.wanted = node.registers.iter().map(|r| r.position).collect();
            node.state = RegisterState::Behind;
        }
        node.wanted[g] = node.wanted[g].max(position);
    }
}

impl Host for Registers {
    fn deliver(&mut self, _: Time, p: Pid, delivery: Delivery, payload: &[u8]) {
        assert!(self.mutant != RegisterMutant::Panics, "this host stops itself");
        let Some((rank, g)) = self.place(p) else { return };
        let node = &mut self.nodes[rank];
        if let Some(view) = &mut node.view {
            view.reached = delivery.position;
        }
        node.inbox[g].push_back((delivery.position, payload.to_vec()));
        if node.inbox[g].len() == 1 {
            self.drain(rank);
        }
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        let Some((rank, g)) = self.place(p) else { return };
        let node = &mut self.nodes[rank];
        match event {
            ProtocolEvent::Lagging => (node.lacks[g], node.warn) = (true, true),
            ProtocolEvent::NeedsState { position, .. } => self.needs_state(rank, g, position),
            ProtocolEvent::CaughtUp(position)
                if node.lacks[g] && !node.lost && position <= node.stands(g) =>
            {
                node.lacks[g] = false;
                if node.is_whole() {
                    (node.warn, node.tell) = (false, true);
                }
            }
            ProtocolEvent::ViewEntered { number, continuing, .. } => {
                let before = node.view.filter(|view| !view.is_over);
                let steady = before.map_or(u32::MAX, |view| view.steady & continuing);
                let reached = node.view.map_or(0, |view| view.reached);
                node.view = Some(RegisterView { number, steady, is_over: false, reached });
                if let RegisterState::Fetching(source, _) = node.state
                    && steady >> source & 1 == 0
                {
                    node.state = RegisterState::Behind;
                }
            }
            ProtocolEvent::Excluded(_) => {
                (node.state, node.lost, node.lacks[g]) = (RegisterState::Behind, true, true);
                node.wanted[g] = 0;
                node.inbox[g].clear();
                node.registers[g] = Register::default();
                node.applied[g] = 0;
                if let Some(view) = &mut node.view {
                    (view.is_over, view.reached) = (true, 0);
                }
            }
            _ => {}
        }
    }

    fn passed(&mut self, _: Time, p: Pid, ticket: Ticket) {
        if let Some((rank, _)) = self.place(p) {
            self.answer(rank, ticket);
        }
    }

    fn crashed(&mut self, _: Time, rank: usize) {
        let node = &mut self.nodes[rank];
        let checkpoint = std::mem::take(&mut node.checkpoint);
        *node = RegisterNode {
            checkpoint,
            is_alive: false,
            ..RegisterNode::new(self.cluster.groups())
        };
    }

    fn started(&mut self, now: Time, rank: usize, lost_disk: bool) -> Vec<u64> {
        let groups = self.cluster.groups();
        let is_first = self.nodes[rank].is_alive;
        let mut node =
            RegisterNode { save_at: now + self.up_to(self.period), ..RegisterNode::new(groups) };
        if !is_first && self.has_log && !lost_disk {
            node.checkpoint.clone_from(&self.nodes[rank].checkpoint);
            if self.mutant != RegisterMutant::LosesCheckpoint {
                node.registers.clone_from(&node.checkpoint);
            }
        }
        if !is_first && !self.has_log {
            (node.state, node.lost) = (RegisterState::Behind, true);
            node.lacks.fill(true);
        }
        let positions: Vec<u64> = node.checkpoint.iter().map(|r| r.position).collect();
        node.applied.clone_from(&positions);
        let mut deeds = self.deeds.borrow_mut();
        deeds.resumed += u64::from(positions.iter().any(|&position| position > 0));
        deeds.lost_disks += u64::from(lost_disk);
        self.nodes[rank] = node;
        positions
    }

    fn poll(&mut self, now: Time, ports: &dyn HostPorts, requests: &mut Vec<HostRequest>) {
        for rank in 0..self.nodes.len() {
            if self.nodes[rank].is_alive {
                self.drain(rank);
                self.recover(now, rank);
                self.tell(rank, requests);
                if self.has_log {
                    self.save(now, rank, requests);
                }
            }
        }
        self.command(now, ports, requests);
    }

    fn deadline(&self) -> Option<Time> {
        let command = (self.commands_left > 0).then_some(self.next_command);
        let of_node = |node: &RegisterNode| {
            let fetched = match node.state {
                RegisterState::Fetching(_, at) if !node.lacks.contains(&true) => Some(at),
                _ => None,
            };
            let saved = node.saving.as_ref().map(|(at, _)| *at);
            let save = Some(node.save_at).filter(|_| self.has_log && saved.is_none());
            [fetched, saved, save.filter(|_| node.is_whole())]
        };
        let living = self.nodes.iter().filter(|node| node.is_alive);
        living.flat_map(of_node).chain([command]).flatten().min()
    }

    fn is_settled(&self) -> bool {
        let living = || self.nodes.iter().filter(|node| node.is_alive);
        self.deeds.borrow_mut().ends = living().map(|node| node.registers.clone()).collect();
        let mut ends = living().map(|node| &node.registers);
        let first = ends.next();
        let idle = living().all(RegisterNode::is_idle);
        (self.commands_left == 0 || self.is_silent)
            && idle
            && ends.all(|registers| Some(registers) == first)
    }

    fn breach(&mut self) -> Option<String> {
        self.wrong.take()
    }
}
