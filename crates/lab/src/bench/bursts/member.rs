//! One process of a measurement of bursts: the protocol, its carrier, and a loop.

use super::cluster::{BurstMedium, BurstReport, BurstTask};
use super::{BurstWatch, MEMBERS, PAYLOAD_BYTES, WINDOW};
use crate::bench::task;
use amcast_core::messages::{Frames, MessageOutput};
use amcast_core::parameters::{HEARTBEAT, LANE, SUSPECT};
use amcast_core::{
    Delivery, Entry, GroupSet, Input, Outbox, Output, Pid, Protocol, ProtocolEvent,
    ProtocolProcess, Span, Time,
};
use amcast_core::{Gid, Submission};
use amcast_memory::{Idle, Idler, Pause, shorten_turns};
use amcast_net::{Carrier, NetOptions, PeerConfig};
use amcast_node::clock;
use std::io::Write;

/// How long all of it may take.
const PATIENCE: Span = Span::secs(120);

/// Runs a member: reads its task on standard input, writes its report to standard output, and
/// continues for the others until it is ended.
///
/// # Errors
/// With what could not be set up, or that the group left this process out.
pub fn run() -> Result<(), String> {
    let task: BurstTask = task::read()?;
    let mut member = BurstMember::start(&task)?;
    member.measure()?;
    let BurstMember { seen, digest, .. } = &member;
    let said = BurstReport { seen: seen.iter().map(BurstWatch::seen).collect(), digest: *digest };
    let text = serde_json::to_string(&said).map_err(|e| e.to_string())?;
    let mut out = std::io::stdout();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
    // Others may lack something yet: this ends with the process that began it.
    loop {
        member.round();
    }
}

/// The settings of a protocol besides its defaults: of these, those that it has.
pub fn settings(entry: &dyn Entry, wire: BurstMedium) -> Vec<(String, String)> {
    let packet_bytes = match wire {
        BurstMedium::Tcp => "32768",
        // The datagram size of the loopback; smaller bursts would be sent one by one.
        BurstMedium::Udp => "8000",
    };
    // On a machine with fewer cores than processes, one that is silent has only not had its turn.
    let patience = [HEARTBEAT.setting(Span::millis(100)), SUSPECT.setting(Span::secs(5))];
    // The holder of the token sends a whole burst, as a sender without a token does.
    let packets =
        [LANE.setting(wire.lane()), ("packet_bytes".to_string(), packet_bytes.to_string())];
    let turn = ("burst".to_string(), WINDOW.to_string());
    let all = packets.into_iter().chain(patience).chain([turn]);
    all.filter(|(name, _)| entry.about().params.iter().any(|param| param.name == name)).collect()
}

struct BurstMember {
    pid: Pid,
    protocol: Box<dyn Protocol<Medium = Frames> + Send>,
    carrier: Carrier,
    outbox: Outbox<Frames>,
    idler: Idler,
    /// For each size of bursts, and which is under way.
    seen: Vec<BurstWatch>,
    at: usize,
    seq: u64,
    position: u64,
    /// The position that the protocol received as applied.
    applied: u64,
    /// Over the order of all deliveries.
    digest: u64,
    /// Whether it was lagging: then nothing of this counts.
    left_out: bool,
}

impl BurstMember {
    fn start(task: &BurstTask) -> Result<Self, String> {
        let entry = amcast_protocols::catalog::find(&task.protocol).ok_or("no such protocol")?;
        let pid = Pid(task.me as u32);
        let set = settings(entry, task.wire);
        let config = super::config(entry, &set).map_err(|e| e.to_string())?;
        let ProtocolProcess::Messages(protocol) =
            entry.build(pid, &config).map_err(|e| e.to_string())?
        else {
            return Err(format!("{} does not send messages", task.protocol));
        };
        let groups = GroupSet::one(Gid(0));
        let peer = |&(tcp, udp): &_| PeerConfig { tcp, udp, groups };
        let peers: Vec<_> = task.addresses.iter().map(peer).collect();
        let options = NetOptions { cluster_id: task.cluster_id, ..NetOptions::default() };
        let carrier = Carrier::start(pid, 0, &peers, &options).map_err(|e| e.to_string())?;
        // As nodes do.
        shorten_turns().map_err(|e| format!("no short turns: {e}"))?;
        let idler = Idler::new(Idle::SHARED.woken());
        let outbox = Outbox::new(false);
        let seen = task.bursts.iter().map(|burst| BurstWatch::new(*burst)).collect();
        Ok(Self {
            pid,
            protocol,
            carrier,
            outbox,
            idler,
            seen,
            at: 0,
            seq: 0,
            position: 0,
            applied: 0,
            digest: 0,
            left_out: false,
        })
    }

    fn measure(&mut self) -> Result<(), String> {
        let begun = clock::now();
        self.step(begun, Input::Start { incarnation: 0 });
        while !self.seen.last().is_none_or(BurstWatch::is_over) {
            let now = self.round();
            if self.left_out {
                return Err("the group left a member out: too much else runs here".to_string());
            }
            if now.since(begun) > PATIENCE {
                return Err(format!("not finished within {} s", PATIENCE.0 / 1_000_000_000));
            }
        }
        Ok(())
    }

    /// Takes in what came, broadcasts what it may, and sends; or waits a little.
    fn round(&mut self) -> Time {
        let now = clock::now();
        let mut busy = false;
        self.carrier.begin_round();
        while let Some(input) = self.carrier.next_input() {
            self.protocol.step(now, (), Input::Medium(input), &mut self.outbox);
            self.carry_out();
            busy = true;
        }
        busy |= self.broadcast(now);
        if self.applied < self.position {
            self.applied = self.position;
            self.step(now, Input::Applied(self.applied));
        }
        // Again if it asks for that at once, as it does to send what it gathered.
        for _ in 0..2 {
            if self.deadline().is_some_and(|at| at <= now) {
                self.step(now, Input::Wake);
                busy = true;
            }
        }
        self.carrier.flush();
        if busy {
            self.idler.busy();
        } else if self.idler.pause() == Pause::Park {
            let until = self.deadline().map(|at| at.since(clock::now()));
            self.carrier.park(until);
        }
        now
    }

    fn deadline(&self) -> Option<Time> {
        self.protocol.deadline().map(|(at, _)| at)
    }

    fn broadcast(&mut self, now: Time) -> bool {
        let mut any = false;
        let dst = GroupSet::one(Gid(0));
        while self.seen.get(self.at).is_some_and(BurstWatch::may_cast)
            && self.protocol.room(dst, PAYLOAD_BYTES) > 0
        {
            self.seq += 1;
            let payload = self.seq.to_le_bytes();
            let submission = Submission { seq: self.seq, dst, payload: &payload };
            if let Some(watch) = self.seen.get_mut(self.at) {
                watch.cast(now);
            }
            self.step(now, Input::Submit(submission));
            any = true;
        }
        any
    }

    fn step(&mut self, now: Time, input: Input<'_, Frames>) {
        self.protocol.step(now, (), input, &mut self.outbox);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        let mut delivered_at = None;
        for item in self.outbox.items() {
            match item {
                Output::Medium(out) => {
                    let (MessageOutput::To(_, _, frame) | MessageOutput::Group(_, _, frame)) = out;
                    self.carrier.carry(out, self.outbox.bytes(*frame));
                }
                Output::Deliver(Delivery { msg, position, .. }) => {
                    self.position = *position;
                    let word = u64::from(msg.sender.0) << 48 ^ msg.seq;
                    self.digest = (self.digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    self.digest ^= self.digest >> 29;
                    // Not the time at which the round began: that would make it look shorter.
                    let now = *delivered_at.get_or_insert_with(clock::now);
                    if let Some(watch) = self.seen.get_mut(self.at) {
                        watch.deliver(now, msg.sender == self.pid);
                        // Others may have begun with the next size already.
                        self.at += usize::from(watch.is_over());
                    }
                }
                Output::Event(ProtocolEvent::NeedsState { .. }) => self.left_out = true,
                _ => {}
            }
        }
        self.outbox.clear();
    }
}

const _: () = assert!(MEMBERS < 1 << 16, "a sender fits into the digest's word");
