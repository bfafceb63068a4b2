//! One node of a measurement over a network.

use super::client::WireClient;
use super::{NodeFigures, NodeUsage, WireTask};
use crate::bench::delivered::DeliveryDigest;
use crate::bench::early::EarlyWatch;
use crate::bench::{BenchLoad, destinations, task};
use amcast_core::rng::Rng;
use amcast_core::{
    ClusterShape, Config, Delivery, EarlyDelivery, GroupSet, Pid, ProtocolEvent, Span, Submission,
    Time,
};
use amcast_memory::{Idle, Idler, Pause};
use amcast_node::clock;
use amcast_node::headless::{HeadlessNode, HeadlessOptions};
use amcast_node::memory_driver::UpperLayer;
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long nodes may take to find each other, and to finish after the end.
const PATIENCE: Span = Span::secs(30);

/// The longest a node sleeps.
const SLEEP_MAX: Span = Span::millis(10);

/// Runs a node: reads its task, says `ready`, waits for a second line, is measured, and writes its
/// report; continues for the others until it is ended.
///
/// # Errors
/// With what could not be set up, or did not come to an end.
pub fn run() -> Result<(), String> {
    let task: WireTask = task::read()?;
    let mut member = WireMember::start(&task)?;
    member.wait_until_ready()?;
    let go = member.say_ready()?;
    while !go.load(Ordering::Acquire) {
        member.round();
    }
    let saw = member.measure()?;
    let mut to = io::stdout().lock();
    to.write_all(&saw.bytes()).and_then(|()| to.flush()).map_err(|e| e.to_string())?;
    loop {
        member.round();
    }
}

/// The layer above the replicas: it counts, and keeps their order for the checker.
struct DeliveryTally {
    cluster: ClusterShape,
    rank: usize,
    client: Option<WireClient>,
    /// By group.
    kept: Vec<DeliveryDigest>,
    position: Vec<u64>,
    /// By group, if early deliveries are measured.
    early: Vec<EarlyWatch>,
    left_out: bool,
}

impl UpperLayer for DeliveryTally {
    fn deliver(&mut self, _: Time, p: Pid, d: Delivery, _: &[u8]) {
        let Some(group) = self.cluster.group_of(p) else { return };
        self.kept[group.index()].push(d.msg, d.dst);
        self.position[group.index()] = d.position;
        if let Some(watch) = self.early.get_mut(group.index()) {
            let now = clock::now();
            let counts = self.client.as_ref().is_some_and(|c| c.has_begun(now) && !c.is_over(now));
            watch.deliver(now, d.msg, counts);
        }
        let own = d.msg.sender.index() % self.cluster.replicas() == self.rank;
        if let Some(client) = self.client.as_mut().filter(|_| own) {
            // Not the time at which the round began: that would make it look shorter.
            client.delivered(clock::now(), d.msg.seq, group);
        }
    }

    fn early(&mut self, p: Pid, early: EarlyDelivery, _: &[u8]) {
        let group = self.cluster.group_of(p).map_or(usize::MAX, amcast_core::Gid::index);
        if let Some(watch) = self.early.get_mut(group) {
            watch.early(clock::now(), early.msg);
        }
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        if let ProtocolEvent::NeedsState { position, .. } = event {
            if let Some(group) = self.cluster.group_of(p) {
                self.position[group.index()] = position;
            }
            self.left_out |= self.client.is_some();
        }
    }
}

struct WireMember {
    node: HeadlessNode,
    tally: DeliveryTally,
    idler: Idler,
    config: Config,
    load: BenchLoad,
    rng: Rng,
    payload: Vec<u8>,
    /// The destinations of the next multicast.
    dst: GroupSet,
    sends: bool,
}

impl WireMember {
    fn start(task: &WireTask) -> Result<Self, String> {
        let plan = &task.plan;
        let entry = plan.entry().ok_or("no such protocol")?;
        let config = plan.config(entry).map_err(|e| e.to_string())?;
        let cluster = *config.cluster();
        let mut node = HeadlessNode::start(HeadlessOptions {
            entry,
            config: &config,
            cluster_id: task.cluster_id,
            addresses: &task.addresses,
            rank: task.rank,
            logs: &task.logs,
            early: plan.load.early,
        })?;
        let most = DeliveryDigest::most(cluster.groups() * cluster.replicas());
        let mut tally = DeliveryTally {
            cluster,
            rank: task.rank,
            client: None,
            kept: (0..cluster.groups()).map(|_| DeliveryDigest::new(most)).collect(),
            position: vec![0; cluster.groups()],
            early: match plan.load.early {
                true => vec![EarlyWatch::default(); cluster.groups()],
                false => Vec::new(),
            },
            left_out: false,
        };
        node.begin(clock::now(), &mut tally)?;
        let mut rng = Rng::stream(task.rank as u64, "destinations");
        let dst = destinations(config.overlay(), &mut rng, &plan.load);
        let (load, payload) = (plan.load.clone(), vec![0x5a; plan.load.payload]);
        let idler = Idler::new(Idle::SHARED.woken());
        let sends = task.rank < plan.load.senders;
        Ok(Self { node, tally, idler, config, load, rng, payload, dst, sends })
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let begun = clock::now();
        while !self.node.is_ready() {
            if self.round().since(begun) > PATIENCE {
                return Err("the nodes did not come together".to_string());
            }
        }
        Ok(())
    }

    /// Says so, and gives a flag that is raised once all have.
    fn say_ready(&self) -> Result<Arc<AtomicBool>, String> {
        let (go, wake) = (Arc::new(AtomicBool::new(false)), self.node.wake());
        let flag = Arc::clone(&go);
        let wait = move || {
            let mut line = String::new();
            // Without a leader this process is ended anyway.
            if io::stdin().lock().read_line(&mut line).is_ok_and(|n| n > 0) {
                flag.store(true, Ordering::Release);
                wake();
            }
        };
        std::thread::Builder::new().spawn(wait).map_err(|e| e.to_string())?;
        let mut out = io::stdout();
        writeln!(out, "ready").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
        Ok(go)
    }

    fn measure(&mut self) -> Result<NodeFigures, String> {
        let load = &self.load;
        self.tally.client = Some(WireClient::new(load, clock::now()));
        let (mut begun, mut ended) = (None, None);
        let end = Span(((load.warm_up_s + load.duration_s) * 1e9) as u64) + PATIENCE;
        let first = clock::now();
        loop {
            let now = self.round();
            let Some(client) = &self.tally.client else { break };
            if begun.is_none() && client.has_begun(now) {
                begun = Some(self.used());
            }
            if ended.is_none() && client.is_over(now) {
                ended = Some(self.used());
            }
            if ended.is_some() && client.is_idle() {
                break;
            }
            if let Some(why) = self.node.failed() {
                return Err(why);
            }
            if self.tally.left_out {
                return Err("the group left a node out: too much else runs here".to_string());
            }
            if now.since(first) > end {
                return Err("multicasts are not delivered: too much else runs here".to_string());
            }
        }
        let used = ended.unwrap_or_default().since(&begun.unwrap_or_default());
        let client = self.tally.client.as_ref();
        let latencies = client.map_or_else(crate::bench::histogram, |c| c.latencies().clone());
        let early = self.tally.early.iter().map(EarlyWatch::counts).sum();
        Ok(NodeFigures { used, kept: self.tally.kept.clone(), latencies, early })
    }

    fn used(&self) -> NodeUsage {
        let counts = self.node.counts();
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let calls = counts.stream_writes
            + counts.stream_reads
            + counts.datagram_writes
            + counts.datagram_reads
            + counts.looks
            + counts.parks;
        NodeUsage {
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            messages_sent: counts.stream_sent + counts.datagram_messages_sent,
            stream_bytes: counts.stream_bytes_sent,
            datagrams: counts.datagrams_sent,
            calls,
            parks: counts.parks,
            syncs: self.node.syncs(),
        }
    }

    /// Takes in what came, multicasts what is due, and sends; or waits a little.
    fn round(&mut self) -> Time {
        let now = clock::now();
        let mut busy = self.node.round(now, &mut self.tally);
        busy |= self.multicast(now);
        for group in self.tally.cluster.all_groups().iter() {
            let position = self.tally.position[group.index()];
            self.node.applied(now, group, position, &mut self.tally);
        }
        busy |= self.node.flush(now, &mut self.tally);
        if busy {
            self.idler.busy();
        } else if self.idler.pause() == Pause::Park {
            let due = self.tally.client.as_ref().and_then(WireClient::next_due);
            let until = due.map_or(SLEEP_MAX, |due| due.since(now).min(SLEEP_MAX));
            self.node.sleep(now, until);
        }
        now
    }

    fn multicast(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(due) = self.tally.client.as_ref().and_then(|c| c.due(now)) {
            let dst = self.dst;
            if !self.sends || self.node.room(dst, self.payload.len()) == 0 {
                break;
            }
            let Some(client) = &mut self.tally.client else { break };
            let seq = client.send(due, dst);
            let submission = Submission { seq, dst, payload: &self.payload };
            self.node.submit(now, submission, &mut self.tally);
            self.dst = destinations(self.config.overlay(), &mut self.rng, &self.load);
            any = true;
        }
        any
    }
}
