//! Nodes of the shopping carts in the simulator: customers at every node, also at one that hears no other node.

use crate::machine::{CartOrder, CartState, Carts};
use amcast::core::rng::Rng;
use amcast::core::step::Ticket;
use amcast::core::{
    ClusterShape, Config, Delivery, Entry, Gid, GroupSet, Pid, ProtocolEvent, RawConfig, Span, Time,
};
use amcast::sim::{Host, HostPorts, HostRequest, Profile, RunReport, RunSettings, run_hosted};
use amcast::smr::{ReconcilingReplica, require_reconciler};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// How many commands the customers of all nodes give together.
const COMMANDS: u32 = 120;

/// Carts, and items in each.
const CARTS: u64 = 3;

/// How long a customer thinks, at most.
const PAUSE: Span = Span::millis(4);

/// The end of a run.
#[derive(Clone, Default, Debug)]
pub(crate) struct CartsEnd {
    /// The state of each node that lives.
    pub(crate) states: Vec<CartState>,
    /// How often a node reconciled states.
    pub(crate) merges: u64,
    /// Commands that were executed at the node of their customer.
    pub(crate) executed: u64,
    /// Additions that a node executed that has lived on since.
    pub(crate) kept: BTreeSet<u64>,
}

/// A node: its replica, and the messages that it is still to multicast.
struct CartNode {
    replica: ReconcilingReplica<Carts>,
    outgoing: VecDeque<Vec<u8>>,
    is_alive: bool,
    /// Additions of its customers that it executed in this life.
    kept: BTreeSet<u64>,
    merges: u64,
}

/// All nodes.
struct CartNodes {
    cluster: ClusterShape,
    rng: Rng,
    nodes: Vec<CartNode>,
    /// Messages of each node, over all its lives.
    sent: Vec<u64>,
    tags: u64,
    left: u32,
    next: Time,
    end: Rc<RefCell<CartsEnd>>,
}

impl CartNode {
    fn new() -> Self {
        let replica = ReconcilingReplica::new().expect("carts can be reconciled");
        Self {
            replica,
            outgoing: VecDeque::new(),
            is_alive: false,
            kept: BTreeSet::new(),
            merges: 0,
        }
    }
}

impl CartNodes {
    fn new(cluster: ClusterShape, seed: u64, end: Rc<RefCell<CartsEnd>>) -> Self {
        let count = cluster.replicas();
        Self {
            cluster,
            rng: Rng::stream(seed, "carts"),
            nodes: (0..count).map(|_| CartNode::new()).collect(),
            sent: vec![0; count],
            tags: 0,
            left: COMMANDS,
            next: Time::ZERO,
            end,
        }
    }

    fn pid(&self, rank: usize) -> Pid {
        self.cluster.replica(Gid(0), rank)
    }

    /// The next command of a customer, at a node that lives.
    fn give_command(&mut self) {
        let rank = self.rng.below(self.nodes.len() as u64) as usize;
        if !self.nodes[rank].is_alive {
            return;
        }
        self.left -= 1;
        let cart = self.rng.below(CARTS) as u32;
        let item = self.rng.below(CARTS) as u32;
        let order = match self.rng.below(4) {
            0 => CartOrder::Remove { cart, item },
            _ => {
                self.tags += 1;
                CartOrder::Add { cart, item, tag: self.tags }
            }
        };
        let message = ReconcilingReplica::<Carts>::message(&order.encode());
        self.nodes[rank].outgoing.push_back(message);
    }

    /// Describes the end.
    fn summarize(&self) {
        let alive = || self.nodes.iter().filter(|node| node.is_alive);
        let mut end = self.end.borrow_mut();
        end.states = alive().map(|node| node.replica.state().clone()).collect();
        end.kept = alive().flat_map(|node| node.kept.iter().copied()).collect();
        end.merges = self.nodes.iter().map(|node| node.merges + node.replica.merges()).sum();
    }
}

impl Host for CartNodes {
    fn deliver(&mut self, _: Time, p: Pid, delivery: Delivery, payload: &[u8]) {
        let node = &mut self.nodes[p.index()];
        let sender = delivery.msg.sender;
        node.replica.deliver(sender.0, payload);
        if sender == p
            && let Some(order) = payload.get(1..).and_then(CartOrder::decode)
        {
            self.end.borrow_mut().executed += 1;
            if let CartOrder::Add { tag, .. } = order {
                node.kept.insert(tag);
            }
        }
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        let node = &mut self.nodes[p.index()];
        let state = node.replica.event(event);
        // Before the commands that wait: they are for the states that are reconciled.
        state.into_iter().for_each(|message| node.outgoing.push_front(message));
    }

    fn passed(&mut self, _: Time, _: Pid, _: Ticket) {}

    fn crashed(&mut self, _: Time, rank: usize) {
        let merges = self.nodes[rank].merges + self.nodes[rank].replica.merges();
        self.nodes[rank] = CartNode { merges, ..CartNode::new() };
    }

    fn started(&mut self, _: Time, rank: usize, _: bool) -> Vec<u64> {
        self.nodes[rank].is_alive = true;
        vec![0]
    }

    fn poll(&mut self, now: Time, ports: &dyn HostPorts, requests: &mut Vec<HostRequest>) {
        if self.left > 0 && self.next <= now {
            self.next = now + Span(1 + self.rng.below(PAUSE.0));
            self.give_command();
        }
        let dst = GroupSet::one(Gid(0));
        for rank in 0..self.nodes.len() {
            let p = self.pid(rank);
            let node = &mut self.nodes[rank];
            let bytes = node.outgoing.front().map_or(0, Vec::len);
            if ports.room(p, dst, bytes) > 0
                && let Some(payload) = node.outgoing.pop_front()
            {
                self.sent[rank] += 1;
                requests.push(HostRequest::Submit { p, seq: self.sent[rank], dst, payload });
            }
        }
        self.summarize();
    }

    fn deadline(&self) -> Option<Time> {
        (self.left > 0).then_some(self.next)
    }

    fn is_settled(&self) -> bool {
        let rests = |node: &CartNode| node.outgoing.is_empty() && node.replica.is_reconciled();
        self.left == 0 && self.nodes.iter().all(|node| !node.is_alive || rests(node))
    }

    fn breach(&mut self) -> Option<String> {
        None
    }
}

/// Runs the carts above a protocol, on so many nodes.
///
/// # Errors
/// When the protocol is none for them, or has no cluster of that shape.
pub(crate) fn run(
    entry: &dyn Entry,
    replicas: usize,
    profile: Profile,
    seed: u64,
) -> Result<(RunReport, CartsEnd), String> {
    require_reconciler::<Carts>(entry).map_err(|missing| missing.to_string())?;
    let raw = RawConfig { groups: 1, replicas, clients: 0, ..RawConfig::default() };
    let config: Config = raw.check(entry.about().params).map_err(|e| e.to_string())?;
    let settings = RunSettings { settle: Span::secs(60), ..RunSettings::with(profile) };
    let end = Rc::new(RefCell::new(CartsEnd::default()));
    let host =
        || -> Box<dyn Host> { Box::new(CartNodes::new(*config.cluster(), seed, Rc::clone(&end))) };
    let report = run_hosted(entry, &config, &settings, seed, &host, &mut |_| {});
    let report = report.map_err(|e| e.to_string())?;
    let end = end.borrow().clone();
    Ok((report, end))
}

/// How many of each item are in each cart.
pub(crate) fn contents(state: &CartState) -> BTreeMap<u32, BTreeMap<u32, usize>> {
    (0..CARTS as u32).map(|cart| (cart, state.items_of(cart))).collect()
}
