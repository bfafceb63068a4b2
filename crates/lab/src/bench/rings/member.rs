//! One process of a measurement of rings.

use super::RingLoad;
use super::cluster::{RingReport, RingTask};
use super::deliveries::{DeliveryWatch, SendPace};
use crate::bench::task;
use amcast_core::parameters::SUSPECT;
use amcast_core::{Config, Entry, Gid, GroupSet, RawConfig, Span, Submission, Time};
use amcast_memory::{Idle, Idler, Pause};
use amcast_node::clock;
use amcast_node::headless::{HeadlessNode, HeadlessOptions};
use std::io::Write;

/// The longest sleep, so that the end is not missed.
const SLEEP_MAX: Span = Span::millis(20);

/// A service without state has a checkpoint whenever it likes; the usual one has after so many bytes.
const CHECKPOINT_BYTES: u64 = 64 << 20;

/// On a machine with fewer cores than processes, one that is silent has only not had its turn.
const PATIENCE: Span = Span::secs(2);

/// The protocol and its configuration.
///
/// # Errors
/// With what is wrong.
pub(super) fn config(load: &RingLoad) -> Result<(&'static dyn Entry, Config), String> {
    let entry = amcast_protocols::catalog::find(&load.protocol)
        .ok_or_else(|| format!("no protocol is named {:?}", load.protocol))?;
    let usual = std::iter::once(SUSPECT.setting(PATIENCE));
    let raw = RawConfig {
        groups: load.rings,
        replicas: super::MEMBERS,
        clients: 0,
        set: usual.chain(load.set.iter().cloned()).collect(),
        ..RawConfig::default()
    };
    Ok((entry, raw.check(entry.about().params).map_err(|e| e.to_string())?))
}

/// Runs a member: reads its task on standard input, writes its report to standard output, and
/// continues for the others until it is ended.
///
/// # Errors
/// With what could not be set up, or what was wrong with what was delivered.
pub fn run() -> Result<(), String> {
    let task: RingTask = task::read()?;
    let mut member = RingBenchMember::start(&task)?;
    let said = member.measure()?;
    let text = serde_json::to_string(&said).map_err(|e| e.to_string())?;
    let mut out = std::io::stdout();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
    // Others may lack something yet: this ends with the process that began it.
    loop {
        member.round()?;
    }
}

struct RingBenchMember {
    load: RingLoad,
    node: HeadlessNode,
    idler: Idler,
    watch: DeliveryWatch,
    payload: Vec<u8>,
    /// By ring, where they are sent at a rate.
    paces: Vec<Option<SendPace>>,
    from: Time,
    until: Time,
    /// Nothing is multicast after the end of the measurement.
    quiet: bool,
}

impl RingBenchMember {
    fn start(task: &RingTask) -> Result<Self, String> {
        let load = task.load.clone();
        let (entry, config) = config(&load)?;
        let logs = load.data.clone().unwrap_or_default().join(format!("n{}", task.rank));
        if entry.capabilities().durability.has_log() {
            std::fs::create_dir(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
        }
        let node = HeadlessNode::start(HeadlessOptions {
            entry,
            config: &config,
            cluster_id: task.id,
            addresses: &task.addresses,
            rank: task.rank,
            logs: &logs,
            early: false,
        })?;
        let from = Time(task.begin_ns) + Span((load.warm_up_s * 1e9) as u64);
        let until = from + Span((load.duration_s * 1e9) as u64);
        let pace = |_| load.rate.map(|rate| SendPace::new(Time(task.begin_ns), rate));
        let mut member = Self {
            node,
            idler: Idler::new(Idle::SHARED),
            watch: DeliveryWatch::new(*config.cluster(), task.rank, (from, until)),
            payload: vec![0x5A; load.payload],
            paces: (0..load.rings).map(pace).collect(),
            load,
            from,
            until,
            quiet: false,
        };
        member.node.begin(clock::now(), &mut member.watch)?;
        Ok(member)
    }

    fn measure(&mut self) -> Result<RingReport, String> {
        while self.round()? < self.from {}
        if !self.node.is_ready() || self.watch.rings.iter().any(|ring| ring.position == 0) {
            return Err("nothing was ordered while it warmed up: give it longer".to_string());
        }
        let used = clock::used();
        while self.round()? < self.until {}
        let cores = (clock::used().0 - used.0) as f64 / (self.until.0 - self.from.0) as f64;
        self.quiet = true;
        let first = Gid(0);
        let leads = self.node.status(first).leader == self.node.sender(GroupSet::one(first));
        let counted = self.watch.latencies.iter_recorded();
        let latencies = counted.map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
        Ok(RingReport {
            messages: self.watch.messages,
            bytes: self.watch.bytes,
            left_behind: self.watch.left_behind,
            latencies,
            cores,
            leads,
            digests: self.watch.rings.iter().map(|ring| ring.digests.clone()).collect(),
        })
    }

    /// Takes in what came, multicasts what it may, and sends; or waits a little. Gives the time at
    /// which it began.
    fn round(&mut self) -> Result<Time, String> {
        let now = clock::now();
        self.watch.now = None;
        let mut busy = self.node.round(now, &mut self.watch);
        busy |= self.multicast(now);
        self.stand(now);
        busy |= self.node.flush(now, &mut self.watch);
        if let Some(why) = self.watch.wrong.take().or_else(|| self.node.failed()) {
            return Err(why);
        }
        if busy {
            self.idler.busy();
        } else if self.idler.pause() == Pause::Park {
            let due = self.paces.iter().flatten().map(SendPace::next).min();
            let at_most = due.map_or(SLEEP_MAX, |due| due.since(clock::now()).min(SLEEP_MAX));
            self.node.sleep(clock::now(), at_most);
        }
        Ok(now)
    }

    /// Tells the replicas how far the service is.
    fn stand(&mut self, now: Time) {
        let positions = |watch: &DeliveryWatch| -> Vec<u64> {
            watch.rings.iter().map(|ring| ring.position).collect()
        };
        if std::mem::take(&mut self.watch.installed) {
            let positions = positions(&self.watch);
            self.node.installed(now, &positions, &mut self.watch);
        }
        for group in (0..self.load.rings).map(|g| Gid(g as u8)) {
            let position = self.watch.rings[group.index()].position;
            self.node.applied(now, group, position, &mut self.watch);
        }
        if self.watch.since_checkpoint > CHECKPOINT_BYTES {
            self.watch.since_checkpoint = 0;
            let positions = positions(&self.watch);
            self.node.checkpointed(now, &positions, &mut self.watch);
        }
    }

    fn multicast(&mut self, now: Time) -> bool {
        let mut any = false;
        for group in (0..self.load.rings).map(|g| Gid(g as u8)) {
            let dst = GroupSet::one(group);
            let ring = &self.watch.rings[group.index()];
            let mut may = self.load.outstanding.saturating_sub(ring.sent.len());
            if self.quiet {
                may = 0;
            }
            may = may.min(self.node.room(dst, self.payload.len()));
            for _ in 0..may {
                let due = self.paces[group.index()].map_or(now, |pace| pace.next());
                if due > now {
                    break;
                }
                let ring = &mut self.watch.rings[group.index()];
                ring.seq += 1;
                ring.sent.push_back((ring.seq, due));
                let submission = Submission { seq: ring.seq, dst, payload: &self.payload };
                self.node.submit(now, submission, &mut self.watch);
                if let Some(pace) = &mut self.paces[group.index()] {
                    pace.sent();
                }
                any = true;
            }
        }
        any
    }
}
