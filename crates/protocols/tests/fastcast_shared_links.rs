//! FastCast on links that others use, too: strangers that do not give way, and a second cluster on the same hosts. The
//! network is a model: ports of 100 Mbit/s, and 256 KiB in front of each port of the switch.

use amcast_core::entry::About;
use amcast_core::messages::{Frames, MessageInput, MessageOutput};
use amcast_core::step::{Delivery, Oracle, ProtocolStatus, Submission, WaitReason, WakeReason};
use amcast_core::trace::TraceEvent;
use amcast_core::{
    Config, ConfigError, Entry, Gid, GroupSet, Input, MsgId, Outbox, Output, Pid, Protocol,
    ProtocolEvent, ProtocolProcess, RawConfig, Span, Time,
};
use amcast_protocols::fastcast::{CAPACITY_CHANGES, FastCast};
use amcast_sim::network::BackgroundTraffic;
use amcast_sim::run::run_plan;
use amcast_sim::{CarrierModel, CastPace, PlannedCast, RunPlan, RunReport};

/// Members of a cluster.
const MEMBERS: usize = 3;

/// Bytes of each message.
const MESSAGE_BYTES: usize = 4_100;

/// The rate of a port, in bytes a second.
const PORT: f64 = 12.5e6;

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

/// A configuration of so many clusters. Without `notices`, members take links to carry the same at any time.
fn config(entry: &dyn Entry, clusters: usize, notices: bool) -> Config {
    let queue = if notices { "1000" } else { "0" };
    let set = [
        ("lane", "multicast"),
        ("link_mbps", "94"),
        ("packet_bytes", "4400"),
        ("window", "64"),
        ("heartbeat_us", "20000"),
        ("suspect_us", "2000000"),
        ("retry_us", "50000"),
        ("queue_us", queue),
    ];
    let set = set.into_iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let raw = RawConfig {
        groups: clusters,
        replicas: MEMBERS,
        clients: 0,
        set: set.collect(),
        ..RawConfig::default()
    };
    raw.check(entry.about().params).expect("a sound configuration")
}

/// The members of each cluster send so many messages each, as fast as they can from a time on.
fn plan(loads: &[(Time, [usize; MEMBERS])], background: BackgroundTraffic) -> RunPlan {
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(30));
    model.network.port_ps_per_byte = 80_000;
    model.network.head_bytes = 90;
    model.network.port_buffer = 256 << 10;
    model.network.socket_buffer = 4 << 20;
    model.network.hosts = MEMBERS;
    model.network.background = background;
    model.step = Span::micros(2);
    let cast = |at, p: usize, group| PlannedCast {
        at,
        sender: Pid(p as u32),
        dst: GroupSet::one(Gid(group as u8)),
        bytes: MESSAGE_BYTES,
    };
    let of = |(group, &(at, messages)): (usize, &(Time, [usize; MEMBERS]))| {
        let members = group * MEMBERS..(group + 1) * MEMBERS;
        let all = members.flat_map(move |p| {
            (0..messages[p % MEMBERS])
                .map(move |_| cast(at + Span::micros(p as u64 * 130), p, group))
        });
        all.collect::<Vec<_>>()
    };
    let mut casts: Vec<_> = loads.iter().enumerate().flat_map(of).collect();
    casts.sort_by_key(|cast| cast.at);
    let calm = casts.last().map_or(Time::ZERO, |cast| cast.at) + Span::millis(1);
    RunPlan {
        model,
        casts,
        pace: CastPace::Closed(64),
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm,
        service: false,
        drift_ppm: vec![0; loads.len() * MEMBERS],
        settle: Span::secs(600),
        quiet: Span::millis(100),
        events_max: 1_000_000_000,
    }
}

/// The deliveries of the first member of each cluster.
#[derive(Default)]
struct SharedLinks {
    deliveries: Vec<(Time, usize)>,
}

impl SharedLinks {
    fn run(entry: &dyn Entry, config: &Config, plan: RunPlan) -> (Self, RunReport) {
        let mut seen = Self::default();
        let mut hear = |event: &TraceEvent<'_>| {
            if let TraceEvent::Deliver { t, p, .. } = *event
                && p.index() % MEMBERS == 0
            {
                seen.deliveries.push((t, p.index() / MEMBERS));
            }
        };
        let report = run_plan(entry, config, plan, 1, &mut hear).expect("it is built");
        assert!(report.settled(), "{:?}", report.outcome);
        (seen, report)
    }

    /// The part of a port that the messages of a cluster took at each receiver between two times, in milliseconds.
    fn part(&self, cluster: usize, from: u64, until: u64) -> f64 {
        let within = |d: &&(Time, usize)| d.1 == cluster && ms(from) <= d.0 && d.0 < ms(until);
        let count = self.deliveries.iter().filter(within).count();
        let bytes = count as f64 * MESSAGE_BYTES as f64;
        let foreign = (MEMBERS - 1) as f64 / MEMBERS as f64;
        bytes * foreign / (PORT * (until - from) as f64 / 1e3)
    }
}

#[test]
fn capacity_that_strangers_take_is_given_up_and_taken_back() {
    let background = BackgroundTraffic { ppm: 500_000, from: ms(500), until: ms(1500) };
    let run = |notices| {
        let plan = plan(&[(ms(100), [3_500; MEMBERS])], background);
        SharedLinks::run(&FastCast, &config(&FastCast, 1, notices), plan)
    };
    let (seen, report) = run(true);
    let [before, during, after] =
        [(200, 500), (700, 1500), (2200, 2600)].map(|(from, until)| seen.part(0, from, until));
    let lost = report.overflows;
    println!("{before:.2}, {during:.2}, {after:.2} of a port, {lost} datagrams lost");
    assert!(before > 0.85, "{before:.2} of the port before");
    assert!((0.3..0.5).contains(&during), "{during:.2} of the port, of which half is left");
    assert!(after > 0.85, "{after:.2} of the port after");
    assert!(report.marks.contains_key(CAPACITY_CHANGES));
    let (deaf, report) = run(false);
    let without = report.overflows;
    println!("{:.2} of a port, {without} datagrams lost without", deaf.part(0, 700, 1500));
    assert!(lost * 5 < without, "{lost} datagrams lost, and {without} without");
    assert!(!report.marks.contains_key(CAPACITY_CHANGES));
}

#[test]
fn a_member_that_sends_alone_takes_capacity_back_that_strangers_took() {
    let background = BackgroundTraffic { ppm: 500_000, from: ms(500), until: ms(900) };
    // A leader, and a member to which others send numbers.
    for sender in 0..2 {
        let mut messages = [750; MEMBERS];
        messages[sender] = 9_000;
        let plan = plan(&[(ms(100), messages)], background);
        let (seen, report) = SharedLinks::run(&FastCast, &config(&FastCast, 1, true), plan);
        // Each other port receives all of what one member sends.
        let all = MEMBERS as f64 / (MEMBERS - 1) as f64;
        let during = seen.part(0, 700, 900);
        let after = all * seen.part(0, 3000, 3500);
        println!("member {sender}: {during:.2} of a port, and {after:.2} alone");
        assert!(report.marks.contains_key(CAPACITY_CHANGES));
        assert!(during < 0.5, "{during:.2} of the port, of which half is left");
        assert!(after > 0.85, "{after:.2} of the port for member {sender} alone");
    }
}

#[test]
fn two_clusters_on_the_same_hosts_come_to_shares_of_one_link() {
    let run = |notices| {
        let loads = [(ms(100), [3_500; MEMBERS]), (ms(400), [2_000; MEMBERS])];
        let plan = plan(&loads, BackgroundTraffic::NONE);
        SharedLinks::run(&TwoClusters, &config(&TwoClusters, 2, notices), plan)
    };
    let (seen, report) = run(true);
    let alone = seen.part(0, 200, 400);
    let both = [0, 1].map(|cluster| seen.part(cluster, 1000, 2000));
    let lost = report.overflows;
    println!("{alone:.2} alone, {both:.2?} together, {lost} datagrams lost");
    assert!(alone > 0.85, "{alone:.2} of the port alone");
    let sum = both[0] + both[1];
    assert!((0.75..1.0).contains(&sum), "{both:.2?} of the port together");
    let ratio = both[0] / both[1];
    assert!((0.6..1.7).contains(&ratio), "{both:.2?}");
    let (_, report) = run(false);
    println!("{} datagrams lost without", report.overflows);
    assert!(lost * 10 < report.overflows, "{lost} lost, and {} without", report.overflows);
}

/// Two clusters that know nothing of each other, on the same hosts: a group each.
#[derive(Debug)]
struct TwoClusters;

impl Entry for TwoClusters {
    fn name(&self) -> &'static str {
        FastCast.name()
    }

    fn about(&self) -> &'static About {
        FastCast.about()
    }

    fn build(&self, me: Pid, both: &Config) -> Result<ProtocolProcess, ConfigError> {
        let group = both.cluster().group_of(me).expect("all are replicas");
        let shift = u32::from(group.0) * MEMBERS as u32;
        let mut params = self.about().params.iter();
        let queue = params.find(|param| param.name == "queue_us").expect("it has it");
        let own = config(&FastCast, 1, both.get(queue) > 0);
        let ProtocolProcess::Messages(inner) = FastCast.build(Pid(me.0 - shift), &own)? else {
            unreachable!("it passes messages")
        };
        Ok(ProtocolProcess::Messages(Box::new(ClusterMember { inner, shift, group })))
    }

    fn together(&self, config: &Config) -> Vec<GroupSet> {
        config.cluster().all_groups().iter().map(GroupSet::one).collect()
    }

    fn show(&self, bytes: &[u8]) -> String {
        FastCast.show(bytes)
    }
}

/// A process of one of the clusters, in which processes have numbers of their own.
struct ClusterMember {
    inner: Box<dyn Protocol<Medium = Frames> + Send>,
    /// The number of the cluster's first process.
    shift: u32,
    group: Gid,
}

impl ClusterMember {
    /// The number that a process has in the cluster, if it is in it.
    fn inside(&self, p: Pid) -> Option<Pid> {
        p.0.checked_sub(self.shift).filter(|&p| p < MEMBERS as u32).map(Pid)
    }

    /// An input of the cluster of a process.
    fn heard<'a>(&self, input: Input<'a, Frames>) -> Option<Input<'a, Frames>> {
        Some(match input {
            Input::Submit(s) => Input::Submit(Submission { dst: GroupSet::first(1), ..s }),
            Input::Medium(MessageInput::From(p, bytes)) => {
                Input::Medium(MessageInput::From(self.inside(p)?, bytes))
            }
            Input::Medium(MessageInput::Up(p)) => Input::Medium(MessageInput::Up(self.inside(p)?)),
            Input::Medium(MessageInput::Down(p)) => {
                Input::Medium(MessageInput::Down(self.inside(p)?))
            }
            Input::Oracle(Oracle::Suspect(p)) => Input::Oracle(Oracle::Suspect(self.inside(p)?)),
            Input::Oracle(Oracle::Trust(p)) => Input::Oracle(Oracle::Trust(self.inside(p)?)),
            Input::Oracle(_) => return None,
            other => other,
        })
    }

    /// An output of a process of the cluster, as all know it.
    fn said(&self, output: Output<Frames>) -> Output<Frames> {
        let shift = self.shift;
        let outside = |p: Pid| Pid(p.0 + shift);
        match output {
            Output::Medium(MessageOutput::To(p, lane, frame)) => {
                Output::Medium(MessageOutput::To(outside(p), lane, frame))
            }
            Output::Medium(MessageOutput::Group(_, lane, frame)) => {
                Output::Medium(MessageOutput::Group(self.group, lane, frame))
            }
            Output::Deliver(d) => {
                let msg = MsgId { sender: outside(d.msg.sender), ..d.msg };
                Output::Deliver(Delivery { msg, dst: GroupSet::one(self.group), ..d })
            }
            Output::Event(ProtocolEvent::Part(m)) => {
                let part = MsgId { sender: outside(m.sender), ..m };
                Output::Event(ProtocolEvent::Part(part))
            }
            other => other,
        }
    }
}

impl Protocol for ClusterMember {
    type Medium = Frames;

    fn step(&mut self, now: Time, (): (), input: Input<'_, Frames>, out: &mut Outbox<Frames>) {
        let Some(input) = self.heard(input) else { return };
        let mut before = Vec::new();
        out.take(&mut before);
        self.inner.step(now, (), input, out);
        let mut said = Vec::new();
        out.take(&mut said);
        let said = said.into_iter().map(|output| self.said(output));
        before.into_iter().chain(said).for_each(|output| out.push(output));
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        self.inner.deadline()
    }

    fn room(&self, _: GroupSet, bytes: usize) -> usize {
        self.inner.room(GroupSet::first(1), bytes)
    }

    fn payload_max(&self) -> usize {
        self.inner.payload_max()
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        let outside = |m: MsgId| MsgId { sender: Pid(m.sender.0 + self.shift), ..m };
        self.inner.waiting(&mut |m, why| tell(outside(m), why));
    }

    fn fit(&self) -> bool {
        self.inner.fit()
    }

    fn status(&self) -> ProtocolStatus {
        self.inner.status()
    }
}
