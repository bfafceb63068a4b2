//! The use of each link at full load, in the simulator: FastCast on the paper's network, all members of a
//! group sending messages of 10 kB, counted by what travels.

use amcast_core::codec::{ByteReader, Codec};
use amcast_core::entry::About;
use amcast_core::messages::{Frames, MessageOutput};
use amcast_core::step::{ProtocolStatus, WaitReason, WakeReason};
use amcast_core::trace::TraceEvent;
use amcast_core::{
    Config, ConfigError, Entry, GroupSet, Input, MsgId, Outbox, Output, Pid, Protocol,
    ProtocolProcess, RawConfig, Span, Time,
};
use amcast_protocols::fastcast::FastCast;
use amcast_protocols::layers::vsync::VsyncPacket;
use amcast_sim::network::PACKET_BYTES;
use amcast_sim::run::run_plan;
use amcast_sim::{CarrierModel, CastPace, PlannedCast, RunPlan};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of each message.
const MESSAGE_BYTES: u64 = 10_000;

/// Bytes of the heads of a packet of the network.
const HEAD_BYTES: u64 = 90;

/// A group, and its network.
#[derive(Clone, Copy, Debug)]
struct GroupCase {
    members: usize,
    /// The rate of each port, in megabits a second.
    mbps: u64,
    retry_us: u64,
}

impl GroupCase {
    /// A group of so many on the paper's network.
    const fn of(members: usize) -> Self {
        Self { members, mbps: 1000, retry_us: 50_000 }
    }

    /// Bytes of a second on a port.
    const fn port(self) -> f64 {
        self.mbps as f64 * 125e3
    }

    /// Traffic is counted from then on, when each member has its share.
    fn since(self) -> Time {
        Time::ZERO + Span::millis(400).times((1000 / self.mbps).min(4))
    }

    /// And until then.
    fn until(self) -> Time {
        Time::ZERO + Span::millis(700).times((1000 / self.mbps).min(4))
    }

    fn counted(self) -> Span {
        self.until().since(self.since())
    }
}

/// Kinds of traffic on a link, as parts of all that it can carry.
#[derive(Clone, Copy, Debug, Default)]
struct LinkUse {
    /// Payload of messages.
    payload: f64,
    /// All else in datagrams with messages: what describes them, acknowledgements and numbers that go along.
    beside: f64,
    /// The heads of the network of these datagrams.
    frames: f64,
    /// Numbers, and what all members have, by themselves.
    numbers: f64,
    /// Acknowledgements of casts to one member.
    acknowledgements: f64,
    /// Requirements and capacities, and their acknowledgements.
    allocation: f64,
    /// Heartbeats, and what is sent again.
    others: f64,
}

impl LinkUse {
    fn all(&self) -> f64 {
        let Self { payload, beside, frames, numbers, acknowledgements, allocation, others } = self;
        payload + beside + frames + numbers + acknowledgements + allocation + others
    }
}

impl fmt::Display for LinkUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { payload, beside, frames, numbers, acknowledgements, allocation, others } = self;
        let parts = [payload, beside, frames, numbers, acknowledgements, allocation, others];
        parts.iter().try_for_each(|part| write!(f, "{:>7.3}", *part * 100.0))?;
        write!(f, "{:>7.3}", (1.0 - self.all()) * 100.0)
    }
}

/// The counted traffic: by receiver.
type CountedLinks = Arc<Mutex<Vec<LinkUse>>>;

/// FastCast, whose packets are counted.
#[derive(Debug)]
struct CountedFastCast {
    case: GroupCase,
    links: CountedLinks,
    /// How often each kind of packet left, in the counted time.
    kinds: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Entry for CountedFastCast {
    fn name(&self) -> &'static str {
        FastCast.name()
    }

    fn about(&self) -> &'static About {
        FastCast.about()
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let ProtocolProcess::Messages(inner) = FastCast.build(me, config)? else {
            unreachable!("it passes messages")
        };
        let (links, kinds) = (Arc::clone(&self.links), Arc::clone(&self.kinds));
        let case = self.case;
        Ok(ProtocolProcess::Messages(Box::new(CountedMember { case, inner, me, links, kinds })))
    }

    fn show(&self, bytes: &[u8]) -> String {
        FastCast.show(bytes)
    }
}

/// A member whose packets are counted.
struct CountedMember {
    case: GroupCase,
    inner: Box<dyn Protocol<Medium = Frames> + Send>,
    me: Pid,
    links: CountedLinks,
    kinds: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl CountedMember {
    /// Counts a packet to one member, or to all others.
    fn count(&self, to: Option<Pid>, bytes: &[u8]) {
        let packet = VsyncPacket::decode(&mut ByteReader::new(bytes)).expect("its own packet");
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let size = bytes.len() as u64;
        let frames = size.div_ceil(PACKET_BYTES) * HEAD_BYTES;
        let messages = size / MESSAGE_BYTES;
        let kinds: Vec<_> = packet.kinds().collect();
        let of = self.case.counted().0 as f64 / 1e9 * self.case.port();
        let part = |bytes: u64| bytes as f64 / of;
        let whole = part(size + frames);
        for (at, link) in links.iter_mut().enumerate() {
            if at == self.me.index() || to.is_some_and(|to| to.index() != at) {
                continue;
            }
            if messages > 0 {
                link.payload += part(messages * MESSAGE_BYTES);
                link.beside += part(size - messages * MESSAGE_BYTES);
                link.frames += part(frames);
            } else if kinds.contains(&"message") || kinds == ["cast"] && size < 64 {
                link.allocation += whole;
            } else if kinds.contains(&"cast") || kinds.contains(&"held-by-all") {
                link.numbers += whole;
            } else if kinds.contains(&"ack") || kinds.contains(&"ack-all") {
                link.acknowledgements += whole;
            } else {
                link.others += whole;
            }
        }
        let kind = format!("{} {}", if to.is_some() { "one" } else { "all" }, kinds.join(" "));
        *self.kinds.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
    }
}

impl Protocol for CountedMember {
    type Medium = Frames;

    fn step(&mut self, now: Time, (): (), input: Input<'_, Frames>, out: &mut Outbox<Frames>) {
        let before = out.items().len();
        self.inner.step(now, (), input, out);
        if now < self.case.since() || now >= self.case.until() {
            return;
        }
        for output in &out.items()[before..] {
            match *output {
                Output::Medium(MessageOutput::To(p, _, frame)) => {
                    self.count(Some(p), out.bytes(frame));
                }
                Output::Medium(MessageOutput::Group(_, _, frame)) => {
                    self.count(None, out.bytes(frame));
                }
                _ => {}
            }
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        self.inner.deadline()
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        self.inner.room(dst, bytes)
    }

    fn payload_max(&self) -> usize {
        self.inner.payload_max()
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        self.inner.waiting(tell);
    }

    fn fit(&self) -> bool {
        self.inner.fit()
    }

    fn status(&self) -> ProtocolStatus {
        self.inner.status()
    }
}

fn config(case: GroupCase) -> Config {
    let (link, retry) = ((case.mbps * 942 / 1000).to_string(), case.retry_us.to_string());
    let set = [
        ("lane", "multicast"),
        ("link_mbps", &*link),
        ("packet_bytes", "12000"),
        ("window", "256"),
        ("heartbeat_us", "20000"),
        ("suspect_us", "2000000"),
        ("retry_us", &*retry),
    ];
    let set = set.into_iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let raw = RawConfig {
        groups: 1,
        replicas: case.members,
        clients: 0,
        set: set.collect(),
        ..RawConfig::default()
    };
    raw.check(FastCast.about().params).expect("a sound configuration")
}

/// All members send for a little longer than until then, with 64 messages of each on the way.
fn plan(case: GroupCase, until: Time) -> RunPlan {
    let members = case.members;
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(30));
    model.network.port_ps_per_byte = 8_000_000 / case.mbps;
    model.network.head_bytes = HEAD_BYTES;
    model.network.port_buffer = 512 << 10;
    model.network.socket_buffer = 4 << 20;
    model.step = Span::micros(2);
    let seconds = until.0 as f64 / 1e9 + 0.05;
    let each = (case.port() * seconds / MESSAGE_BYTES as f64) as usize / (members - 1);
    let cast = |p| PlannedCast {
        at: Time::ZERO,
        sender: Pid(p),
        dst: GroupSet::first(1),
        bytes: MESSAGE_BYTES as usize,
    };
    let all = (0..members as u32).flat_map(|p| (0..each).map(move |_| cast(p)));
    RunPlan {
        model,
        casts: all.collect(),
        pace: CastPace::Closed(64),
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm: Time::ZERO + Span::millis(1),
        service: false,
        drift_ppm: vec![0; members],
        settle: Span::secs(600),
        quiet: Span::millis(100),
        events_max: 1_000_000_000,
    }
}

/// The counts of a run.
struct FoundUse {
    /// The link of the leader, and the mean of the others.
    links: [LinkUse; 2],
    /// The throughput of payload, as a part of `N/(N-1)` of what the link carries in datagrams.
    throughput: f64,
    lost: u64,
}

fn count(case: GroupCase) -> FoundUse {
    let members = case.members;
    let counted = CountedFastCast {
        case,
        links: Arc::new(Mutex::new(vec![LinkUse::default(); members])),
        kinds: Arc::default(),
    };
    let mut delivered = 0;
    let mut hear = |event: &TraceEvent<'_>| {
        if let TraceEvent::Deliver { t, .. } = *event
            && (case.since()..case.until()).contains(&t)
        {
            delivered += MESSAGE_BYTES;
        }
    };
    let report = run_plan(&counted, &config(case), plan(case, case.until()), 1, &mut hear);
    let report = report.expect("it is built");
    assert!(report.settled(), "{:?}", report.outcome);
    let all = counted.links.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mean =
        |of: fn(&LinkUse) -> f64| all[1..].iter().map(of).sum::<f64>() / (members - 1) as f64;
    let others = LinkUse {
        payload: mean(|l| l.payload),
        beside: mean(|l| l.beside),
        frames: mean(|l| l.frames),
        numbers: mean(|l| l.numbers),
        acknowledgements: mean(|l| l.acknowledgements),
        allocation: mean(|l| l.allocation),
        others: mean(|l| l.others),
    };
    let rate = delivered as f64 / members as f64 / (case.counted().0 as f64 / 1e9);
    let carried = case.port() * PACKET_BYTES as f64 / (PACKET_BYTES + HEAD_BYTES) as f64;
    let throughput = rate / (carried * members as f64 / (members - 1) as f64);
    println!(
        "{members:>2} at {} Mbit/s: {throughput:.4} of N/(N-1), {} lost",
        case.mbps, report.overflows
    );
    for (name, link) in [("leader", &all[0]), ("others", &others)] {
        println!("   {name} {link}");
    }
    for (kind, count) in counted.kinds.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("      {count:>7} {kind}");
    }
    FoundUse { links: [all[0], others], throughput, lost: report.overflows }
}

#[test]
fn links_carry_little_besides_payload_at_full_load() {
    println!(
        "   link: payload, beside, frames, numbers, acknowledgements, allocation, others, idle, %"
    );
    for members in [2, 4, 8, 16] {
        let FoundUse { links, throughput, lost } = count(GroupCase::of(members));
        assert_eq!(lost, 0, "{members} members");
        assert!(throughput >= 0.98, "{members} members: {throughput:.4}");
        for link in links {
            // Datagrams that are sent while they are counted may arrive a moment later.
            assert!(link.all() <= 1.002, "{members} members: {link:?}");
            let small = link.numbers + link.acknowledgements + link.allocation + link.others;
            assert!(small <= 0.006, "{members} members: {link:?}");
        }
    }
}

/// Where links are slow, and messages are repeated soon, numbers leave so often that they take more than a two hundredth of a link:
/// what has no share fits beside the shares, and no member takes it for the traffic of others.
#[test]
fn slow_links_carry_numbers_beside_the_shares() {
    for (mbps, members, least) in [(100, 3, 0.958), (100, 8, 0.905), (50, 3, 0.915)] {
        let FoundUse { links, throughput, lost } =
            count(GroupCase { members, mbps, retry_us: 5_000 });
        assert_eq!(lost, 0, "{members} members at {mbps} Mbit/s");
        assert!(throughput >= least, "{members} members at {mbps} Mbit/s: {throughput:.4}");
        for link in links {
            assert!(link.all() <= 1.002, "{members} members at {mbps} Mbit/s: {link:?}");
        }
    }
}

/// All members of a view enter it at one moment, answer each other, and send: that must fit into the buffers of 512 KiB in front
/// of the ports, which 32 messages of 10 kB fill by more than half.
#[test]
fn the_largest_groups_begin_at_one_moment_without_loss() {
    for members in [24, 32] {
        let until = Time::ZERO + Span::millis(60);
        let report = run_plan(
            &FastCast,
            &config(GroupCase::of(members)),
            plan(GroupCase::of(members), until),
            1,
            &mut |_: &TraceEvent<'_>| {},
        );
        let report = report.expect("it is built");
        assert!(report.settled(), "{members} members: {:?}", report.outcome);
        assert_eq!(report.overflows, 0, "{members} members");
    }
}
