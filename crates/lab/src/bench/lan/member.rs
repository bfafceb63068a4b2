//! One process of a measurement on hosts: the protocol, its carrier, and a loop.

use super::source::LanSource;
use super::watch::{LanWatch, MemberStep, PacketKinds};
use super::{LanLoad, LanLosses};
use crate::bench::task;
use amcast_core::messages::{Frames, MessageOutput};
use amcast_core::parameters::{LANE, LINK, LinkRate, PacketLane};
use amcast_core::{
    Delivery, Gid, GroupSet, Input, Outbox, Output, Pid, Protocol, ProtocolEvent, ProtocolProcess,
    RawConfig, Span, Submission, Time,
};
use amcast_memory::{Idle, Idler, Pause, shorten_turns};
use amcast_net::{Carrier, Interface, NetCounts, NetOptions, PeerConfig};
use amcast_node::clock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// How long the group may take to form, besides what is measured.
const PATIENCE: Span = Span::secs(40);

/// Bytes of a datagram, at most: a message of 10 kB with its heads, which the system cuts into packets. So a message is
/// lost with each of its packets, and none of them carries a head of ours but the first.
const DATAGRAM_BYTES: usize = 12_100;

/// The task of a member, on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LanTask {
    pub(super) protocol: String,
    pub(super) set: Vec<(String, String)>,
    pub(super) me: usize,
    pub(super) cluster_id: u64,
    /// By member, for streams and for datagrams.
    pub(super) addresses: Vec<SocketAddr>,
    /// Where datagrams to all members go.
    pub(super) group: SocketAddr,
    pub(super) payload: usize,
    pub(super) load: LanLoad,
    /// Seconds until it is measured, and for how long.
    pub(super) seconds: [f64; 2],
    /// Whether packets are counted by kind.
    pub(super) kinds: bool,
}

/// The report of a member at its end, of the time in which it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LanReport {
    pub(super) delivered_bytes: u64,
    /// Messages that were delivered.
    pub(super) delivered: u64,
    /// Bytes of own messages that were delivered.
    pub(super) own_bytes: u64,
    /// By tenth of a second.
    pub(super) course: Vec<MemberStep>,
    /// How long it waited for each larger share of the bandwidth.
    pub(super) increases_ns: Vec<u64>,
    pub(super) lasted_ns: u64,
    /// Over the order of all deliveries since the start, now and then.
    pub(super) digests: Vec<u64>,
    pub(super) lost: LanLosses,
    pub(super) datagrams: u64,
    /// Those of the carrier, and packets of the protocol, by kind.
    pub(super) kinds: BTreeMap<String, u64>,
    /// The processor time that it used.
    pub(super) used_ns: u64,
}

/// Runs a member: reads its task on standard input, writes to standard output the time at which it begins to measure, in
/// nanoseconds of the host's clock, and then its report, and continues for the others until it is ended.
///
/// # Errors
/// With what could not be set up, or that the group left this process out.
pub fn run() -> Result<(), String> {
    let task: LanTask = task::read()?;
    let mut member = LanMember::start(&task)?;
    let report = member.measure(&task)?;
    write_line(&serde_json::to_string(&report).map_err(|e| e.to_string())?)?;
    // Others measure until later: this one continues to send, and ends with the process that began it.
    loop {
        member.round();
    }
}

fn write_line(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| e.to_string())
}

struct LanMember {
    pid: Pid,
    members: usize,
    protocol: Box<dyn Protocol<Medium = Frames> + Send>,
    carrier: Carrier,
    outbox: Outbox<Frames>,
    idler: Idler,
    source: LanSource,
    seq: u64,
    position: u64,
    /// The position that the protocol received as applied.
    applied: u64,
    seen: LanWatch,
    /// Whether it was lagging: then nothing of this counts.
    left_out: bool,
    /// Of the time in which it is measured, where they are counted.
    kinds: Option<PacketKinds>,
    counts_kinds: bool,
}

impl LanMember {
    fn start(task: &LanTask) -> Result<Self, String> {
        let entry = amcast_protocols::catalog::find(&task.protocol).ok_or("no such protocol")?;
        let pid = Pid(task.me as u32);
        let raw = RawConfig {
            groups: 1,
            replicas: task.addresses.len(),
            clients: 0,
            set: task.set.iter().cloned().collect(),
            ..RawConfig::default()
        };
        let config = raw.check(entry.about().params).map_err(|e| e.to_string())?;
        let ProtocolProcess::Messages(protocol) =
            entry.build(pid, &config).map_err(|e| e.to_string())?
        else {
            return Err(format!("{} does not send messages", task.protocol));
        };
        let groups = GroupSet::one(Gid(0));
        let peer = |&at: &_| PeerConfig { tcp: at, udp: at, groups };
        let peers: Vec<_> = task.addresses.iter().map(peer).collect();
        let multicasts = LANE.find(&config) == Some(PacketLane::Multicast);
        let IpAddr::V4(own) = task.addresses[task.me].ip() else {
            return Err("the hosts have addresses of IPv4".to_string());
        };
        let options = NetOptions {
            cluster_id: task.cluster_id,
            datagram_bytes: DATAGRAM_BYTES,
            datagram_bytes_per_s: LINK.find(&config).map(LinkRate::bytes_per_s),
            multicast: multicasts.then_some((Gid(0), task.group)).into_iter().collect(),
            interface: Interface::Address(own),
            ..NetOptions::default()
        };
        let carrier = Carrier::start(pid, 0, &peers, &options).map_err(|e| e.to_string())?;
        // As nodes do.
        shorten_turns().map_err(|e| format!("no short turns: {e}"))?;
        Ok(Self {
            pid,
            members: task.addresses.len(),
            protocol,
            carrier,
            outbox: Outbox::new(false),
            // With more processes than cores the rounds that one spins in vain are taken from those that have work.
            idler: Idler::new(Idle::PARK),
            source: LanSource::new(task),
            seq: 0,
            position: 0,
            applied: 0,
            seen: LanWatch::default(),
            left_out: false,
            kinds: None,
            counts_kinds: task.kinds,
        })
    }

    fn measure(&mut self, task: &LanTask) -> Result<LanReport, String> {
        let begun = clock::now();
        let [warm_up, lasts] = task.seconds.map(|s| Span((s * 1e9) as u64));
        self.step(begun, Input::Start { incarnation: 0 });
        // The first message of each member says that it has begun.
        self.until(begun + PATIENCE, |member| member.seen.deliveries >= member.members as u64)?;
        let starts = clock::now();
        self.source.begin(starts, warm_up);
        self.until(Time::NEVER, |_| clock::now() >= starts + warm_up)?;
        let (from, used) = (clock::now(), clock::used());
        let before = (self.carrier.counts(), self.carrier.kernel_drops());
        self.seen.measure(from);
        write_line(&from.0.to_string())?;
        self.kinds = self.counts_kinds.then(PacketKinds::default);
        self.until(Time::NEVER, |_| clock::now() >= from + lasts)?;
        let to = clock::now();
        let after = self.carrier.counts();
        let lost = losses(before, (after, self.carrier.kernel_drops()));
        let mut kinds = self.kinds.take().unwrap_or_default().counts;
        kinds.extend(carrier_kinds(before.0, after));
        Ok(LanReport {
            delivered_bytes: self.seen.bytes,
            delivered: self.seen.messages,
            own_bytes: self.seen.own_bytes,
            course: std::mem::take(&mut self.seen.course),
            increases_ns: self.seen.increases.clone(),
            lasted_ns: to.since(from).0,
            digests: self.seen.digests.clone(),
            lost,
            datagrams: after.datagrams_sent - before.0.datagrams_sent,
            kinds,
            used_ns: clock::used().0 - used.0,
        })
    }

    fn until(&mut self, at_most: Time, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !done(self) {
            let now = self.round();
            if self.left_out {
                return Err("the group left a member out: too much else runs here".to_string());
            }
            if now > at_most {
                let (seen, of) = (self.seen.deliveries, self.members);
                return Err(format!("only {seen} of {of} members were heard in time"));
            }
        }
        Ok(())
    }

    /// Takes in what came, broadcasts what is due, and sends; or waits a little.
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
            if self.protocol.deadline().is_some_and(|(at, _)| at <= now) {
                self.step(now, Input::Wake);
                busy = true;
            }
        }
        self.carrier.flush();
        if busy {
            self.idler.busy();
        } else if self.idler.pause() == Pause::Park {
            let deadline = self.protocol.deadline().map_or(Time::NEVER, |(at, _)| at);
            let until = deadline.min(self.next_broadcast());
            self.carrier.park((until != Time::NEVER).then(|| until.since(clock::now())));
        }
        now
    }

    /// When the next broadcast is due. One that has no room waits for a delivery, which wakes this process: it must not
    /// take the processor from others meanwhile.
    fn next_broadcast(&self) -> Time {
        match self.protocol.room(GroupSet::one(Gid(0)), self.source.bytes()) {
            0 => Time::NEVER,
            _ => self.source.next_at(),
        }
    }

    fn broadcast(&mut self, now: Time) -> bool {
        let mut any = false;
        let dst = GroupSet::one(Gid(0));
        while let Some(payload) =
            self.source.next(now, self.protocol.room(dst, self.source.bytes()))
        {
            self.seq += 1;
            let submission = Submission { seq: self.seq, dst, payload };
            self.protocol.step(now, (), Input::Submit(submission), &mut self.outbox);
            self.carry_out();
            any = true;
        }
        any
    }

    fn step(&mut self, now: Time, input: Input<'_, Frames>) {
        self.protocol.step(now, (), input, &mut self.outbox);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        for item in self.outbox.items() {
            match item {
                Output::Medium(out) => {
                    let (MessageOutput::To(_, _, frame) | MessageOutput::Group(_, _, frame)) = out;
                    let bytes = self.outbox.bytes(*frame);
                    if let Some(kinds) = &mut self.kinds {
                        kinds.count(matches!(out, MessageOutput::Group(..)), bytes);
                    }
                    self.carrier.carry(out, bytes);
                }
                Output::Deliver(Delivery { msg, position, payload, .. }) => {
                    self.position = *position;
                    let own = (msg.sender == self.pid).then(|| self.source.delivered()).flatten();
                    // Not the time at which the round began: that would make latencies look shorter.
                    self.seen.deliver(clock::now(), *msg, u64::from(payload.len), own);
                }
                Output::Event(ProtocolEvent::NeedsState { .. }) => self.left_out = true,
                Output::Note(note) => {
                    self.seen.note(clock::now(), note);
                    self.kinds.iter_mut().for_each(|kinds| kinds.note(note));
                }
                _ => {}
            }
        }
        self.outbox.clear();
    }
}

/// The datagrams that a carrier made by itself between two moments, and those that a group cost besides one for all.
fn carrier_kinds(before: NetCounts, after: NetCounts) -> impl Iterator<Item = (String, u64)> {
    let all = [
        ("carrier probes", after.probes_sent - before.probes_sent),
        ("carrier echoes", after.echoes_sent - before.echoes_sent),
        ("carrier copies", after.multicast_copies - before.multicast_copies),
    ];
    all.into_iter().map(|(kind, count)| (kind.to_string(), count))
}

/// Losses between two moments.
fn losses(
    (before, dropped_before): (NetCounts, Option<u64>),
    (after, dropped): (NetCounts, Option<u64>),
) -> LanLosses {
    let own = |counts: NetCounts| counts.datagrams_dropped_full + counts.datagrams_dropped_error;
    LanLosses {
        in_links: 0,
        in_sockets: dropped.zip(dropped_before).map(|(after, before)| after - before),
        in_senders: own(after) - own(before),
    }
}
