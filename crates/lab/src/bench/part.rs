//! One part of a measurement on shared memory: some of the loops, in one thread.

use super::ack_counters::{AckCounters, MeasurePhase, ProcessAssignment};
use super::client::BenchClient;
use super::delivered::DeliveryDigest;
use super::stop::check_stop;
use super::{BenchLoad, histogram};
use amcast_core::{Config, Delivery, Entry, Pid, ProtocolEvent, Role, Span, Time};
use amcast_memory::{Directory, Idle, Idler, Pause};
use amcast_node::clock;
use amcast_node::memory_driver::{MemoryDriver, UpperLayer};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::OnceLock;

/// How long the parts wait for each other at the start.
const START_PATIENCE: Span = Span::secs(20);

/// How long a part waits for the others after the end: one that failed will never say so.
const END_PATIENCE: Span = Span::secs(30);

/// The result of a part.
pub(super) struct PartResult {
    /// The deliveries of its replicas, by pid.
    pub(super) kept: Vec<DeliveryDigest>,
    /// The latencies of its clients, in nanoseconds.
    pub(super) latencies: Histogram<u64>,
}

/// The sink of the deliveries of a loop's replicas.
pub(super) struct DeliverySink<'a> {
    pub(super) acks: AckCounters<'a>,
    cluster: amcast_core::ClusterShape,
    kept: Vec<DeliveryDigest>,
    position: Vec<u64>,
    /// By group: how far the first of this part's replicas has delivered.
    first: Vec<u64>,
}

impl UpperLayer for DeliverySink<'_> {
    fn deliver(&mut self, _: Time, p: Pid, d: Delivery, _: &[u8]) {
        self.kept[p.index()].push(d.msg, d.dst);
        self.position[p.index()] = d.position;
        let Some(group) = self.cluster.group_of(p) else { return };
        let first = &mut self.first[group.index()];
        if *first >= d.position {
            return;
        }
        *first = d.position;
        if let Role::Client { client } = self.cluster.role(d.msg.sender) {
            self.acks.delivered(usize::from(client), group, d.msg.seq);
        }
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        match event {
            // The contents of the state that it then gets are not among its deliveries, so the
            // checker stops there.
            ProtocolEvent::Lagging => self.kept[p.index()].close(),
            ProtocolEvent::NeedsState { position, .. } => self.position[p.index()] = position,
            _ => {}
        }
    }
}

/// The cores that this process may use, counted before any thread is bound to one of them.
pub(super) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Binds the calling thread to a core. Where the system refuses, the run continues unbound.
pub(super) fn bind(core: usize) {
    let mut set = CpuSet::new();
    set.set(core % cores());
    if let Err(e) = sched_setaffinity(None, &set) {
        tracing::warn!("a thread cannot be bound to core {core}: {e}");
    }
}

/// Runs the loops of part `part` until every client of every part is finished.
///
/// # Errors
/// With what could not be set up.
pub(super) fn run(
    entry: &dyn Entry,
    config: &Config,
    load: &BenchLoad,
    directory: &Directory,
    deal: &ProcessAssignment,
    part: usize,
) -> Result<PartResult, String> {
    if load.pin {
        bind(part);
    }
    let cluster = *config.cluster();
    let pids = &deal.parts[part];
    let mut seats: Vec<MemoryDriver> = Vec::new();
    for &p in pids {
        let node = entry.build(p, config).map_err(|e| e.to_string())?;
        let bell = seats.first().map(|s| s.bell().clone());
        let seat = MemoryDriver::start(directory, &cluster, p, node, bell, false);
        seats.push(seat.map_err(|e| e.to_string())?);
    }
    let kept_max = DeliveryDigest::most(cluster.groups() * cluster.replicas());
    let mine = |p: Pid| pids.contains(&p) && cluster.group_of(p).is_some();
    let room = |p| DeliveryDigest::new(if mine(p) { kept_max } else { 0 });
    let mut sink = DeliverySink {
        acks: AckCounters::open(deal, directory, part).map_err(|e| e.to_string())?,
        cluster,
        kept: cluster.pids().map(room).collect(),
        position: vec![0; cluster.processes()],
        first: vec![0; cluster.groups()],
    };
    meet(&mut sink.acks)?;
    let now = clock::now();
    seats.iter_mut().for_each(|seat| seat.begin(now, &mut sink));
    let mut clients: Vec<Option<BenchClient<'_>>> = pids
        .iter()
        .map(|&p| match cluster.role(p) {
            Role::Client { client } => {
                Some(BenchClient::new(load, config.overlay(), usize::from(client), now))
            }
            Role::Replica { .. } => None,
        })
        .collect();
    spin(load, deal, &mut seats, &mut clients, &mut sink)?;
    let mut latencies = histogram();
    for client in clients.iter().flatten() {
        latencies.add(client.latencies()).map_err(|e| e.to_string())?;
    }
    Ok(PartResult { kept: sink.kept, latencies })
}

/// Waits until all parts have their memory.
fn meet(acks: &mut AckCounters<'_>) -> Result<(), String> {
    let begun = clock::now();
    while !acks.reach(MeasurePhase::Runs) {
        if clock::now().since(begun) > START_PATIENCE {
            return Err("not all parts of the measurement started".to_string());
        }
        check_stop()?;
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}

/// The loop. Nothing in it allocates, locks or calls the system once buffers have grown, as long
/// as there is a core for each part.
fn spin(
    load: &BenchLoad,
    deal: &ProcessAssignment,
    seats: &mut [MemoryDriver],
    clients: &mut [Option<BenchClient<'_>>],
    sink: &mut DeliverySink<'_>,
) -> Result<(), String> {
    let shares = deal.parts.len() > cores();
    let mut idler = Idler::new(if shares { Idle::SHARED } else { Idle::SPIN });
    let mut turns = PartTurns::new(seats.len());
    let mut told = false;
    let whole = Span(((load.warm_up_s + load.duration_s) * 1e9) as u64);
    let last = clock::now() + whole + END_PATIENCE;
    let mut now = clock::now();
    while !sink.acks.are_at(MeasurePhase::Finished) {
        // Reading the clock waits for all that is on the way: in every fourth round it is early enough.
        if turns.round.is_multiple_of(4) {
            now = clock::now();
            check_stop()?;
        }
        if now > last {
            return Err("another part of the measurement did not finish".to_string());
        }
        let mut busy = false;
        turns.next(seats);
        for (i, (seat, client)) in seats.iter_mut().zip(clients.iter_mut()).enumerate() {
            if !turns.is_on(i) {
                continue;
            }
            match client {
                Some(client) => {
                    // A client that waits looks for the answer between all that it does.
                    busy |= client.turn(now, seat, sink)
                        || seat.round(now, sink)
                        || client.turn(now, seat, sink);
                }
                None => {
                    busy |= seat.round(now, sink);
                    // Told at once: the next replica's turn is of no use to the client.
                    sink.acks.flush();
                    seat.applied(now, sink.position[seat.pid().index()], sink);
                }
            }
        }
        if !told && clients.iter().flatten().all(|c| c.is_done()) {
            told = true;
            sink.acks.reach(MeasurePhase::Finished);
        }
        if busy {
            idler.busy();
        } else if idler.pause() == Pause::Park {
            // Clients watch words that ring no bell: more than a moment is never slept.
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// The order of turns. Messages wait for leaders and clients, and not for a follower, which takes
/// all pending messages at its turn: so in each round there is one follower.
struct PartTurns {
    round: usize,
    /// The follower of this round.
    turn: usize,
    follows: Vec<bool>,
}

impl PartTurns {
    /// After so many rounds it looks who leads.
    const LOOK: usize = 256;

    fn new(seats: usize) -> Self {
        Self { round: 0, turn: 0, follows: vec![false; seats] }
    }

    fn next(&mut self, seats: &[MemoryDriver]) {
        if self.round.is_multiple_of(Self::LOOK) {
            for (seat, follows) in seats.iter().zip(&mut self.follows) {
                let leader = seat.protocol().status().leader;
                *follows = leader.is_some_and(|leader| leader != seat.pid());
            }
        }
        self.round += 1;
        let count = self.follows.len();
        let next = (1..=count).map(|i| (self.turn + i) % count).find(|&i| self.follows[i]);
        self.turn = next.unwrap_or(self.turn);
    }

    fn is_on(&self, seat: usize) -> bool {
        !self.follows[seat] || seat == self.turn
    }
}
