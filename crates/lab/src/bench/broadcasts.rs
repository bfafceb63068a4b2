//! Broadcasts of one group in the simulator, where the ports of the members are what limits them
//! [FastCast 4]: members that send all the time, or at given rates.

use super::{Latency, histogram};
use amcast_core::rng::Rng;
use amcast_core::step::Note;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, GroupSet, MsgId, Pid, RawConfig, Span, Time};
use amcast_protocols::fastcast::{INCREASE_BEGINS, INCREASE_ENDS};
use amcast_sim::network::PACKET_BYTES;
use amcast_sim::{CarrierModel, CastPace, Choices, PlannedCast, RunOutcome, RunPlan, RunRecord};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

/// The paper's network: 1 Gbit/s at each port, of which 942 Mbit/s carry the bytes of datagrams.
const PORT_PS_PER_BYTE: u64 = 8_000;
/// With these each packet takes so much longer that 942 Mbit/s are left.
const HEAD_BYTES: u64 = 90;
/// From one port to another.
pub(crate) const LATENCY: Span = Span::micros(30);
/// How long a process is busy with one input: a packet, most often.
const STEP: Span = Span::micros(2);
/// Bytes in front of a port of the switch, and in the buffer of a socket.
const PORT_BUFFER: u64 = 512 << 10;
const SOCKET_BUFFER: u64 = 4 << 20;
/// Senders begin so far apart at most.
const APART: Span = Span::micros(500);

/// Megabits a second of datagrams' bytes that a link of the paper carries.
pub const LINK_MBPS: f64 = 8_000_000.0 / PORT_PS_PER_BYTE as f64 * PACKET_BYTES as f64
    / (PACKET_BYTES + HEAD_BYTES) as f64;

/// When the members send.
#[derive(Clone, Debug)]
pub enum BroadcastLoad {
    /// All of them, with so many messages on the way, until each has sent so many.
    Full {
        /// On the way.
        outstanding: u32,
        /// Messages of each member.
        messages: usize,
    },
    /// These.
    Timed(Vec<TimedBroadcast>),
}

/// A broadcast at a given time.
#[derive(Clone, Copy, Debug)]
pub struct TimedBroadcast {
    /// When, at the earliest.
    pub at: Time,
    /// By whom.
    pub sender: Pid,
    /// Bytes of its message.
    pub bytes: usize,
}

/// The setup of a run.
#[derive(Clone, Debug)]
pub struct SimulatedBroadcasts {
    /// Members of the group.
    pub members: usize,
    /// Parameters of the protocol.
    pub set: Vec<(String, String)>,
    /// Bytes of each message of a full load.
    pub payload: usize,
    /// When they send.
    pub load: BroadcastLoad,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct BroadcastResult {
    /// Members of the group.
    pub members: usize,
    /// Megabits of payload a second that a member delivers, on average over the members; without the first and
    /// the last tenth of the deliveries.
    pub delivered_mbps: f64,
    /// From the broadcast to the delivery at its sender.
    pub latency_ns: Latency,
    /// From the announcement of a larger share of the bandwidth to the permission to use it, where the protocol
    /// allocates bandwidth.
    pub increase_ns: Option<Latency>,
    /// Datagrams that found a buffer full.
    pub overflows: u64,
    /// Messages.
    pub messages: u64,
    /// By tenth of a second: megabits a second that the first member delivered.
    pub course_mbps: Vec<f64>,
}

/// How many points of the course there are in a second.
pub const COURSE_PER_SECOND: u64 = 10;

fn plan(world: &SimulatedBroadcasts) -> RunPlan {
    let mut model = CarrierModel::constant(Span::micros(2), LATENCY);
    model.network.port_ps_per_byte = PORT_PS_PER_BYTE;
    model.network.head_bytes = HEAD_BYTES;
    model.network.port_buffer = PORT_BUFFER;
    model.network.socket_buffer = SOCKET_BUFFER;
    model.step = STEP;
    let cast = |at, sender, bytes| PlannedCast { at, sender, dst: GroupSet::first(1), bytes };
    let mut rng = Rng::new(world.members as u64);
    let (mut casts, pace) = match &world.load {
        BroadcastLoad::Full { outstanding, messages } => {
            let of = |p: u32| {
                let begins = Time(rng.below(APART.0));
                std::iter::repeat_n(cast(begins, Pid(p), world.payload), *messages)
            };
            let all: Vec<_> = (0..world.members as u32).flat_map(of).collect();
            (all, CastPace::Closed(*outstanding))
        }
        BroadcastLoad::Timed(all) => {
            (all.iter().map(|b| cast(b.at, b.sender, b.bytes)).collect(), CastPace::Open)
        }
    };
    casts.sort_by_key(|cast: &PlannedCast| cast.at);
    // All of them are made before the run is looked at for its end.
    let last = casts.last().map_or(Time::ZERO, |cast| cast.at);
    RunPlan {
        model,
        casts,
        pace,
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm: last + Span::millis(1),
        service: false,
        drift_ppm: vec![0; world.members],
        settle: Span::secs(3600),
        quiet: Span::millis(100),
        events_max: 4_000_000_000,
    }
}

fn config(entry: &dyn Entry, world: &SimulatedBroadcasts) -> Result<Config, String> {
    let raw = RawConfig {
        groups: 1,
        replicas: world.members,
        clients: 0,
        set: world.set.iter().cloned().collect(),
        ..RawConfig::default()
    };
    raw.check(entry.about().params).map_err(|e| e.to_string())
}

/// The observations of a run.
struct BroadcastWatch {
    /// The bytes of each message that a sender is still to broadcast, in order.
    planned: Vec<VecDeque<usize>>,
    /// When each message was broadcast, and its bytes.
    casts: BTreeMap<MsgId, (Time, usize)>,
    latencies: Histogram<u64>,
    /// The deliveries of each member, with the bytes of each.
    deliveries: Vec<Vec<(Time, usize)>>,
    /// Since when each member waits for a larger share.
    announced: Vec<Option<Time>>,
    increases: Histogram<u64>,
}

impl BroadcastWatch {
    fn new(members: usize, plan: &RunPlan) -> Self {
        let mut planned = vec![VecDeque::new(); members];
        plan.casts.iter().for_each(|cast| planned[cast.sender.index()].push_back(cast.bytes));
        Self {
            planned,
            casts: BTreeMap::new(),
            latencies: histogram(),
            deliveries: vec![Vec::new(); members],
            announced: vec![None; members],
            increases: histogram(),
        }
    }

    fn event(&mut self, event: &TraceEvent<'_>) {
        match *event {
            TraceEvent::Cast { t, m, .. } => {
                let bytes = self.planned[m.sender.index()].pop_front().unwrap_or(0);
                self.casts.insert(m, (t, bytes));
            }
            TraceEvent::Deliver { t, p, m } => {
                let Some(&(cast, bytes)) = self.casts.get(&m) else { return };
                self.deliveries[p.index()].push((t, bytes));
                if p == m.sender {
                    self.latencies.saturating_record(t.since(cast).0);
                }
            }
            _ => {}
        }
    }

    fn note(&mut self, now: Time, p: Pid, note: Note) {
        match note {
            Note::Mark(INCREASE_BEGINS) => self.announced[p.index()] = Some(now),
            Note::Mark(INCREASE_ENDS) => {
                if let Some(begun) = self.announced[p.index()].take() {
                    self.increases.saturating_record(now.since(begun).0);
                }
            }
            _ => {}
        }
    }
}

/// Runs it.
///
/// # Errors
/// When the configuration is incomplete, or the run did not settle.
pub fn run(entry: &dyn Entry, world: &SimulatedBroadcasts) -> Result<BroadcastResult, String> {
    let config = config(entry, world)?;
    let recorded = RunRecord { plan: plan(world), choices: Choices::default() };
    let watch = RefCell::new(BroadcastWatch::new(world.members, &recorded.plan));
    let report = amcast_sim::replay_with_notes(
        entry,
        &config,
        &recorded,
        &mut |event| watch.borrow_mut().event(event),
        &mut |now, p, note| watch.borrow_mut().note(now, p, note),
    );
    let report = report.map_err(|e| e.to_string())?;
    let watch = watch.into_inner();
    let all = recorded.plan.casts.len() as u64;
    if report.outcome != RunOutcome::Settled || watch.latencies.len() != all {
        let of = (entry.name(), world.members, report.outcome);
        return Err(format!("{} with {} members did not settle: {:?}", of.0, of.1, of.2));
    }
    let rates = watch.deliveries.iter().map(|all| middle_mbps(all));
    Ok(BroadcastResult {
        members: world.members,
        delivered_mbps: rates.sum::<f64>() / world.members as f64,
        latency_ns: Latency::of(&watch.latencies),
        increase_ns: (!watch.increases.is_empty()).then(|| Latency::of(&watch.increases)),
        overflows: report.overflows,
        messages: report.casts,
        course_mbps: course(&watch.deliveries[0]),
    })
}

/// Megabits a second, without the first and the last tenth of the deliveries: members begin and end one after the
/// other.
fn middle_mbps(deliveries: &[(Time, usize)]) -> f64 {
    let (from, to) = (deliveries.len() / 10, deliveries.len() * 9 / 10);
    let (Some(first), Some(last)) = (deliveries.get(from), deliveries.get(to)) else {
        return f64::NAN;
    };
    let bytes: usize = deliveries[from..to].iter().map(|d| d.1).sum();
    bytes as f64 * 8e3 / last.0.since(first.0).0.max(1) as f64
}

/// Megabits a second in each tenth of a second.
fn course(deliveries: &[(Time, usize)]) -> Vec<f64> {
    let place = |t: Time| (t.0 / (Span::secs(1).0 / COURSE_PER_SECOND)) as usize;
    let mut bytes = vec![0; deliveries.last().map_or(0, |d| place(d.0) + 1)];
    deliveries.iter().for_each(|d| bytes[place(d.0)] += d.1);
    bytes.iter().map(|&n| n as f64 * 8.0 * COURSE_PER_SECOND as f64 / 1e6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_counts_what_was_delivered_in_each_tenth_of_a_second() {
        let deliveries = [(0, 2), (10, 1), (99, 1), (100, 1), (310, 5)];
        let deliveries = deliveries.map(|(ms, n)| (Time::ZERO + Span::millis(ms), n * 12_500));
        assert_eq!(course(&deliveries), [4.0, 1.0, 0.0, 5.0]);
        assert_eq!(course(&[]), [0.0; 0]);
        let even: Vec<_> = (0..100).map(|ms| (Time::ZERO + Span::millis(ms), 125)).collect();
        assert!((middle_mbps(&even) - 1.0).abs() < 1e-9 && middle_mbps(&[]).is_nan());
        assert!((LINK_MBPS - 942.0).abs() < 1.0, "{LINK_MBPS}");
    }

    #[test]
    fn two_members_deliver_more_than_a_link_carries() {
        let entry = amcast_protocols::catalog::find("fastcast").unwrap();
        let world = SimulatedBroadcasts {
            members: 2,
            set: vec![("lane".to_string(), "multicast".to_string())],
            payload: 10_000,
            load: BroadcastLoad::Full { outstanding: 32, messages: 400 },
        };
        let result = run(entry, &world).unwrap();
        assert_eq!(result.messages, 800);
        assert!((LINK_MBPS..2.0 * LINK_MBPS).contains(&result.delivered_mbps), "{result:?}");
    }
}
