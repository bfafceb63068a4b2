//! A machine that reconciles, in the simulator: a [`ReconcilingReplica`] at each node above a protocol that continues in
//! every component of a partition, with clients at every node, also at one that hears no other node.
//!
//! [`run_components`] makes one run, under the faults of its settings. It ends when all commands were given and answered, and
//! all nodes that live are in one reconciled view; what then must hold of the states and of the answers is the
//! [`ComponentWorkload`]'s to say. The run itself checks the duties of a replica: that each command is answered
//! once, unless its node crashes, and that no more wait than [the bounds](ReconcileLimits) admit.

use amcast_core::rng::Rng;
use amcast_core::step::Ticket;
use amcast_core::{
    Config, Delivery, Entry, Gid, GroupSet, Outcome, Pid, ProtocolEvent, RawConfig, Span, Time,
};
use amcast_sim::{Host, HostPorts, HostRequest, RunReport, RunSettings, run_hosted};
use amcast_smr::{ReconcileLimits, ReconcilingReplica, StateMachine, require_reconciler};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The state of a machine.
type StateOf<W> = <<W as ComponentWorkload>::Machine as StateMachine>::Shard;

/// The clients of a reconciling machine, and what they see.
pub trait ComponentWorkload: 'static {
    /// The machine.
    type Machine: StateMachine;

    /// The next command, of a client at the node of that rank.
    fn next(&mut self, rank: usize, rng: &mut Rng) -> Vec<u8>;

    /// The node of that rank answers a command of its clients.
    fn answered(&mut self, rank: usize, command: &[u8], outcome: Outcome, answer: &[u8]);

    /// The state of the node of that rank, after each of its deliveries and views.
    fn observed(&mut self, _rank: usize, _state: &StateOf<Self>) {}

    /// The node of that rank died: it has an empty state when it starts again.
    fn crashed(&mut self, _rank: usize) {}
}

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct ComponentSettings {
    /// How many nodes there are.
    pub replicas: usize,
    /// The bounds of each.
    pub limits: ReconcileLimits,
    /// How many commands the clients of all nodes give together.
    pub commands: u32,
    /// How long it is between two commands, at most.
    pub pause: Span,
}

impl Default for ComponentSettings {
    /// Five nodes with small bounds, so that these are reached.
    fn default() -> Self {
        let limits = ReconcileLimits { open: 4, queued: 8, queued_bytes: 4096, message_bytes: 512 };
        Self { replicas: 5, limits, commands: 120, pause: Span::millis(4) }
    }
}

/// The end of a run.
pub struct ComponentRun<W: ComponentWorkload> {
    /// How it ended, and what the protocol below did.
    pub report: RunReport,
    /// The clients, with what they have seen.
    pub workload: W,
    /// The state of each node that lives, by rank.
    pub states: BTreeMap<usize, StateOf<W>>,
    /// How often a node reconciled states.
    pub merges: u64,
    /// Commands that were answered, by the code of their outcome.
    pub answers: [u64; 3],
    /// Commands that were refused at once, and given again later.
    pub refused: u64,
    /// The most commands that waited for an exchange at a node.
    pub waited: usize,
}

/// The end of a host's run.
struct ComponentsEnd<W: ComponentWorkload> {
    workload: W,
    states: BTreeMap<usize, StateOf<W>>,
    counts: ComponentCounts,
}

#[derive(Clone, Copy, Default)]
struct ComponentCounts {
    merges: u64,
    answers: [u64; 3],
    refused: u64,
    waited: usize,
}

/// A node: its replica, and the commands of its clients that are not answered.
struct ComponentNode<M: StateMachine> {
    replica: ReconcilingReplica<M>,
    unanswered: BTreeMap<u64, Vec<u8>>,
    is_alive: bool,
}

impl<M: StateMachine> ComponentNode<M> {
    fn new(rank: usize, settings: &ComponentSettings) -> Option<Self> {
        let ComponentSettings { replicas, limits, .. } = *settings;
        let replica = ReconcilingReplica::new(rank as u32, replicas, limits)?;
        Some(Self { replica, unanswered: BTreeMap::new(), is_alive: false })
    }
}

/// All nodes.
struct ComponentHost<W: ComponentWorkload> {
    settings: ComponentSettings,
    rng: Rng,
    workload: Option<W>,
    nodes: Vec<ComponentNode<W::Machine>>,
    /// Messages of each node, over all its lives.
    sent: Vec<u64>,
    left: u32,
    next: Time,
    /// A command that was refused, at the node of that rank.
    refused: Option<(usize, Vec<u8>)>,
    counts: ComponentCounts,
    breach: Option<String>,
    end: Rc<RefCell<Option<ComponentsEnd<W>>>>,
}

impl<W: ComponentWorkload> ComponentHost<W> {
    fn pid(rank: usize) -> Pid {
        Pid(rank as u32)
    }

    /// Has a node do something, and passes its answers on.
    fn at(
        &mut self,
        rank: usize,
        act: impl FnOnce(&mut ReconcilingReplica<W::Machine>, amcast_smr::TellReconciled<'_>),
    ) {
        let bound = self.settings.limits.open * self.nodes.len();
        let Self { nodes, workload: Some(workload), counts, breach, .. } = self else { return };
        let ComponentNode { replica, unanswered, .. } = &mut nodes[rank];
        let merges = replica.merges();
        act(replica, &mut |number, outcome, answer| match unanswered.remove(&number) {
            Some(command) => {
                counts.answers[usize::from(outcome.code())] += 1;
                workload.answered(rank, &command, outcome, answer);
            }
            None => *breach = Some(format!("n{rank} answers its command {number} twice")),
        });
        counts.merges += replica.merges() - merges;
        counts.waited = counts.waited.max(replica.waiting());
        if replica.waiting() > bound {
            *breach = Some(format!("{} commands wait at n{rank}", replica.waiting()));
        }
        workload.observed(rank, replica.state());
    }

    /// The next command of a client, at a node that lives.
    fn give_command(&mut self) {
        let Some(workload) = &mut self.workload else { return };
        let (rank, command) = match self.refused.take() {
            Some((rank, command)) if self.nodes[rank].is_alive => (rank, command),
            _ => {
                let rank = self.rng.below(self.nodes.len() as u64) as usize;
                if !self.nodes[rank].is_alive {
                    return;
                }
                self.left -= 1;
                (rank, workload.next(rank, &mut self.rng))
            }
        };
        let node = &mut self.nodes[rank];
        match node.replica.submit(&command) {
            Ok(number) => drop(node.unanswered.insert(number, command)),
            Err(_) => {
                self.counts.refused += 1;
                self.refused = Some((rank, command));
            }
        }
    }
}

impl<W: ComponentWorkload> Drop for ComponentHost<W> {
    /// The run has ended.
    fn drop(&mut self) {
        let Some(workload) = self.workload.take() else { return };
        let nodes = std::mem::take(&mut self.nodes).into_iter().enumerate();
        let states = nodes.filter(|(_, node)| node.is_alive);
        let states = states.map(|(rank, node)| (rank, node.replica.into_state())).collect();
        *self.end.borrow_mut() = Some(ComponentsEnd { workload, states, counts: self.counts });
    }
}

impl<W: ComponentWorkload> Host for ComponentHost<W> {
    fn deliver(&mut self, _: Time, p: Pid, delivery: Delivery, payload: &[u8]) {
        let sender = delivery.msg.sender.0;
        self.at(p.index(), |replica, tell| replica.deliver(sender, payload, tell));
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        self.at(p.index(), |replica, tell| replica.event(event, tell));
    }

    fn passed(&mut self, _: Time, _: Pid, _: Ticket) {}

    fn crashed(&mut self, _: Time, rank: usize) {
        if let Some(node) = ComponentNode::new(rank, &self.settings) {
            self.nodes[rank] = node;
        }
        self.workload.iter_mut().for_each(|workload| workload.crashed(rank));
    }

    fn started(&mut self, _: Time, rank: usize, _: bool) -> Vec<u64> {
        self.nodes[rank].is_alive = true;
        vec![0]
    }

    fn poll(&mut self, now: Time, ports: &dyn HostPorts, requests: &mut Vec<HostRequest>) {
        if (self.left > 0 || self.refused.is_some()) && self.next <= now {
            self.next = now + Span(1 + self.rng.below(self.settings.pause.0));
            self.give_command();
        }
        let dst = GroupSet::one(Gid(0));
        for (rank, node) in self.nodes.iter_mut().enumerate() {
            let p = Self::pid(rank);
            let bytes = node.replica.next_message().map(<[u8]>::len);
            if let Some(bytes) = bytes
                && ports.room(p, dst, bytes) > 0
                && let Some(payload) = node.replica.multicast()
            {
                self.sent[rank] += 1;
                requests.push(HostRequest::Submit { p, seq: self.sent[rank], dst, payload });
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        (self.left > 0 || self.refused.is_some()).then_some(self.next)
    }

    fn is_settled(&self) -> bool {
        let rests = |node: &ComponentNode<W::Machine>| {
            node.replica.next_message().is_none()
                && node.replica.is_reconciled()
                && node.unanswered.is_empty()
        };
        let alive = || self.nodes.iter().enumerate().filter(|(_, node)| node.is_alive);
        let members = alive().fold(0, |bits, (rank, _)| bits | 1_u32 << rank);
        let view = alive().next().map(|(_, node)| node.replica.view());
        let is_one = |node: &ComponentNode<W::Machine>| {
            node.replica.members() == members && Some(node.replica.view()) == view
        };
        let given = self.left == 0 && self.refused.is_none();
        given && alive().all(|(_, node)| rests(node) && is_one(node))
    }

    fn breach(&mut self) -> Option<String> {
        self.breach.take()
    }
}

/// Runs a reconciling machine above a protocol.
///
/// # Errors
/// When the protocol is none for it, or has no cluster of that shape.
pub fn run_components<W: ComponentWorkload>(
    entry: &dyn Entry,
    (settings, run): (&ComponentSettings, &RunSettings),
    seed: u64,
    workload: &dyn Fn() -> W,
) -> Result<ComponentRun<W>, String> {
    require_reconciler::<W::Machine>(entry).map_err(|missing| missing.to_string())?;
    let ComponentSettings { replicas, commands, .. } = *settings;
    let raw = RawConfig { groups: 1, replicas, clients: 0, ..RawConfig::default() };
    let config: Config = raw.check(entry.about().params).map_err(|e| e.to_string())?;
    let node = |rank| ComponentNode::<W::Machine>::new(rank, settings);
    let nodes = || (0..replicas).map(node).collect::<Option<Vec<_>>>();
    if nodes().is_none() {
        return Err("the machine has no hook to reconcile".to_string());
    }
    let end = Rc::new(RefCell::new(None));
    let host = || -> Box<dyn Host> {
        Box::new(ComponentHost {
            settings: *settings,
            rng: Rng::stream(seed, "components"),
            workload: Some(workload()),
            nodes: nodes().unwrap_or_default(),
            sent: vec![0; replicas],
            left: commands,
            next: Time::ZERO,
            refused: None,
            counts: ComponentCounts::default(),
            breach: None,
            end: Rc::clone(&end),
        })
    };
    let report = run_hosted(entry, &config, run, seed, &host, &mut |_| {});
    let report = report.map_err(|e| e.to_string())?;
    let Some(ComponentsEnd { workload, states, counts }) = end.borrow_mut().take() else {
        return Err("the run has left no host".to_string());
    };
    let ComponentCounts { merges, answers, refused, waited } = counts;
    Ok(ComponentRun { report, workload, states, merges, answers, refused, waited })
}
