//! One process of a measurement over TCP: a group, or a client.

use super::GroupTask;
use crate::bench::delivered::DeliveryDigest;
use crate::bench::part::PartResult;
use crate::bench::{BenchLoad, destinations, histogram, shared, task};
use amcast_core::messages::{Frames, MessageOutput};
use amcast_core::rng::Rng;
use amcast_core::{
    Config, GroupSet, Input, Outbox, Output, Pid, Protocol, ProtocolProcess, Role, Span,
    Submission, Time,
};
use amcast_memory::{Idle, Idler, Pause};
use amcast_net::{Carrier, NetOptions, PeerConfig};
use amcast_node::clock;
use hdrhistogram::Histogram;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long processes may take to find each other, and to finish after the end.
const PATIENCE: Span = Span::secs(20);

/// The longest that a process sleeps.
const SLEEP_MAX: Span = Span::millis(10);

/// Runs a process: reads its task, says `ready`, waits for a second line, and writes its report; a client is measured
/// before that. It continues for the others until it is ended.
///
/// # Errors
/// With what could not be set up, or did not come to an end.
pub fn run() -> Result<(), String> {
    let task: GroupTask = task::read()?;
    let mut member = MeasuredProcess::start(&task)?;
    member.connect()?;
    let told = member.say_ready()?;
    while !told.load(Ordering::Acquire) {
        member.round();
    }
    if member.is_client {
        member.measure()?;
    }
    let result =
        PartResult { kept: vec![member.kept.clone()], latencies: member.latencies.clone() };
    let bytes = shared::bytes_of(&result);
    let mut to = io::stdout().lock();
    let length = (bytes.len() as u64).to_le_bytes();
    let written = to.write_all(&length).and_then(|()| to.write_all(&bytes));
    written.and_then(|()| to.flush()).map_err(|e| e.to_string())?;
    loop {
        member.round();
    }
}

/// A multicast of this client that is on the way.
#[derive(Clone, Copy)]
struct SentMessage {
    seq: u64,
    at: Time,
}

struct MeasuredProcess {
    carrier: Carrier,
    protocol: Box<dyn Protocol<Medium = Frames> + Send>,
    outbox: Outbox<Frames>,
    idler: Idler,
    config: Config,
    load: BenchLoad,
    is_client: bool,
    kept: DeliveryDigest,
    /// How far it has delivered, and the application has said so.
    position: u64,
    applied: u64,
    rng: Rng,
    dst: GroupSet,
    payload: Vec<u8>,
    seq: u64,
    sent: Vec<SentMessage>,
    latencies: Histogram<u64>,
    /// Multicasts that finish in this interval are measured.
    from: Time,
    to: Time,
}

impl MeasuredProcess {
    fn start(task: &GroupTask) -> Result<Self, String> {
        let plan = &task.plan;
        let entry = plan.entry().ok_or("no such protocol")?;
        let config = plan.config(entry).map_err(|e| e.to_string())?;
        let cluster = *config.cluster();
        let me = Pid(task.process as u32);
        let protocol = match entry.build(me, &config).map_err(|e| e.to_string())? {
            ProtocolProcess::Messages(process) => process,
            ProtocolProcess::Memory(..) => {
                return Err(format!("{} does not send messages", entry.name()));
            }
        };
        let peer = |&at| PeerConfig { tcp: at, udp: at, groups: GroupSet::EMPTY };
        let peers: Vec<PeerConfig> = task.addresses.iter().map(peer).collect();
        let options = NetOptions {
            cluster_id: task.cluster_id,
            processes: cluster.processes() as u32,
            seed: u64::from(me.0),
            ..NetOptions::default()
        };
        let carrier = Carrier::start(me, 0, &peers, &options).map_err(|e| e.to_string())?;
        let is_client = matches!(cluster.role(me), Role::Client { .. });
        let most = DeliveryDigest::most(cluster.groups() * cluster.replicas());
        let mut rng = Rng::stream(u64::from(me.0), "destinations");
        let dst = destinations(config.overlay(), &mut rng, &plan.load);
        let mut member = Self {
            carrier,
            protocol,
            outbox: Outbox::new(false),
            idler: Idler::new(Idle::SHARED.woken()),
            load: plan.load.clone(),
            is_client,
            kept: DeliveryDigest::new(if is_client { 0 } else { most }),
            position: 0,
            applied: 0,
            rng,
            dst,
            payload: vec![0x5a; plan.load.payload],
            seq: 0,
            sent: Vec::new(),
            latencies: histogram(),
            from: Time::NEVER,
            to: Time::NEVER,
            config,
        };
        member.step(clock::now(), Input::Start { incarnation: 0 });
        Ok(member)
    }

    /// Waits until it is connected to all others.
    fn connect(&mut self) -> Result<(), String> {
        let (begun, me) = (clock::now(), self.carrier.pid());
        let others = || self.config.cluster().pids().filter(move |p| *p != me);
        let mut left: Vec<Pid> = others().collect();
        while !left.is_empty() {
            if self.round().since(begun) > PATIENCE {
                return Err("the processes did not come together".to_string());
            }
            let carrier = &self.carrier;
            left.retain(|p| carrier.connected(*p).is_none());
        }
        Ok(())
    }

    /// Says that it is ready, and gives a flag that is raised with the next line of input.
    fn say_ready(&self) -> Result<Arc<AtomicBool>, String> {
        let (told, waker) = (Arc::new(AtomicBool::new(false)), self.carrier.waker());
        let flag = Arc::clone(&told);
        let wait = move || {
            let mut line = String::new();
            // Without a leading process this one is ended anyway.
            if io::stdin().lock().read_line(&mut line).is_ok_and(|n| n > 0) {
                flag.store(true, Ordering::Release);
                waker.ring();
            }
        };
        std::thread::Builder::new().spawn(wait).map_err(|e| e.to_string())?;
        let mut out = io::stdout();
        writeln!(out, "ready").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
        Ok(told)
    }

    /// Multicasts for the time of the measurement, and until nothing is on the way.
    fn measure(&mut self) -> Result<(), String> {
        let seconds = |s: f64| Span((s * 1e9) as u64);
        self.from = clock::now() + seconds(self.load.warm_up_s);
        self.to = self.from + seconds(self.load.duration_s);
        loop {
            let now = self.round();
            if now >= self.to && self.sent.is_empty() {
                return Ok(());
            }
            if now >= self.to + PATIENCE {
                return Err("multicasts are not delivered: too much else runs here".to_string());
            }
        }
    }

    /// Takes in what came, multicasts, and sends; or waits a little.
    fn round(&mut self) -> Time {
        let now = clock::now();
        let mut busy = false;
        self.carrier.begin_round();
        while let Some(input) = self.carrier.next_input() {
            busy = true;
            self.outbox.clear();
            self.protocol.step(now, (), Input::Medium(input), &mut self.outbox);
            self.carry_out();
        }
        if self.protocol.deadline().is_some_and(|(at, _)| at <= now) {
            self.step(now, Input::Wake);
            busy = true;
        }
        if self.position > self.applied {
            self.applied = self.position;
            self.step(now, Input::Applied(self.position));
        }
        if self.is_client {
            self.finish();
            busy |= self.multicast(now);
        }
        self.carrier.flush();
        if busy {
            self.idler.busy();
        } else if self.idler.pause() == Pause::Park {
            let deadline = self.protocol.deadline();
            let until = deadline.map_or(SLEEP_MAX, |(at, _)| at.since(now).min(SLEEP_MAX));
            self.carrier.park(Some(until));
        }
        now
    }

    fn step(&mut self, now: Time, input: Input<'_, Frames>) {
        self.outbox.clear();
        self.protocol.step(now, (), input, &mut self.outbox);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        for output in self.outbox.items() {
            match output {
                Output::Medium(out) => {
                    let (MessageOutput::To(_, _, frame) | MessageOutput::Group(_, _, frame)) = out;
                    self.carrier.carry(out, self.outbox.bytes(*frame));
                }
                Output::Deliver(delivery) => {
                    self.kept.push(delivery.msg, delivery.dst);
                    self.position = delivery.position;
                }
                // These protocols keep no log, deliver nothing early and have no barriers.
                _ => {}
            }
        }
    }

    /// Takes note of the multicasts that all their destinations have acknowledged.
    fn finish(&mut self) {
        if self.protocol.status().backlog == self.sent.len() as u64 {
            return;
        }
        let mut waiting = Vec::with_capacity(self.sent.len());
        self.protocol.waiting(&mut |m, _| waiting.push(m.seq));
        let now = clock::now();
        let measured = self.from <= now && now < self.to;
        let Self { sent, latencies, .. } = self;
        sent.retain(|message| {
            let waits = waiting.contains(&message.seq);
            if !waits && measured {
                latencies.saturating_record(now.since(message.at).0.max(1));
            }
            waits
        });
    }

    fn multicast(&mut self, now: Time) -> bool {
        let mut any = false;
        while now < self.to && self.from != Time::NEVER && self.sent.len() < self.load.window() {
            if self.protocol.room(self.dst, self.payload.len()) == 0 {
                break;
            }
            self.seq += 1;
            let (seq, dst) = (self.seq, self.dst);
            self.sent.push(SentMessage { seq, at: clock::now() });
            let payload = std::mem::take(&mut self.payload);
            self.step(now, Input::Submit(Submission { seq, dst, payload: &payload }));
            self.payload = payload;
            self.dst = destinations(self.config.overlay(), &mut self.rng, &self.load);
            any = true;
        }
        any
    }
}
