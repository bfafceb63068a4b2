//! `to-sizes`: the cost of a delivery of the ten protocols against the size of the group, in the
//! simulator: messages on the wire, and latency in hops. The paper measures four processes only;
//! the values expected from its patterns [TO 3.2] are shown beside.

use super::ReproduceSession;
use super::chart::{Axes, ChartLine, lines};
use super::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use amcast_core::parameters::{HEARTBEAT, LANE, PacketLane, RETRY, SUSPECT};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, GroupSet, MsgId, Pid, RawConfig, Span, Time};
use amcast_protocols::total::{
    AB_RCAST, BB_RCAST_RCAST, PB_RCAST, SB_RCAST, SB_URCAST, TABLE_3, TotalOrderRow,
};
use amcast_sim::{CarrierModel, CastPace, Choices, PlannedCast, RunOutcome, RunPlan, RunRecord};
use maud::html;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

const SIZES: [usize; 11] = [2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32];
const QUICK_SIZES: [usize; 5] = [2, 4, 8, 16, 32];

/// The transport of packets: streams, and datagrams that reach all members as one.
const LANES: [PacketLane; 2] = [PacketLane::Stream, PacketLane::Multicast];

/// How long a message takes from one process to another: a hop. Nothing else takes any time.
const HOP: Span = Span::micros(50);

/// Time between two messages when one is sent after the other, in hops: more than a token's way round.
const APART: u64 = 100;

/// Messages of each member, when one is sent after the other.
const EACH: usize = 2;

const BURST: usize = 8;
const ROUNDS: usize = 4;
const PAYLOAD_BYTES: usize = 8;

/// Only messages for which a delivery waits are sent: no heartbeats, no acknowledgements that only
/// free memory.
fn quiet() -> [(String, String); 4] {
    [
        HEARTBEAT.setting(Span::secs(10)),
        SUSPECT.setting(Span::secs(60)),
        RETRY.setting(Span::secs(10)),
        ("ack_us".to_string(), "1000000".to_string()),
    ]
}

/// The cost of a delivery, under one kind of load.
#[derive(Clone, Copy, Debug, Serialize)]
struct DeliveryCost {
    /// From broadcast to delivery, at all members, in hops.
    hops: f64,
    /// Messages on the wire for each delivery.
    messages: f64,
}

#[derive(Clone, Debug, Serialize)]
struct SizePoint {
    protocol: &'static str,
    lane: &'static str,
    members: usize,
    /// One message after the other.
    alone: DeliveryCost,
    /// Bursts of all members at the same time.
    bursts: DeliveryCost,
}

fn config(row: &TotalOrderRow, members: usize, lane: PacketLane) -> Result<Config, Failure> {
    let packets = ("packet_bytes".to_string(), "32768".to_string());
    let set = quiet().into_iter().chain([LANE.setting(lane), packets]).collect();
    let raw = RawConfig { groups: 1, replicas: members, clients: 0, set, ..RawConfig::default() };
    raw.check(row.about().params).map_err(Failure::misuse)
}

/// The cost of a run, summed over all deliveries.
struct RunCost {
    waited_ns: u64,
    deliveries: u64,
    messages: u64,
}

/// Runs these broadcasts, `(time, sender)`.
fn spend(
    row: &TotalOrderRow,
    config: &Config,
    casts: &[(Time, usize)],
    pace: CastPace,
) -> Result<RunCost, Failure> {
    let members = config.cluster().replicas();
    let cast = |&(at, sender): &(Time, usize)| PlannedCast {
        at,
        sender: Pid(sender as u32),
        dst: GroupSet::first(1),
        bytes: PAYLOAD_BYTES,
    };
    let last = casts.iter().map(|(at, _)| *at).max().unwrap_or(Time::ZERO);
    let plan = RunPlan {
        model: CarrierModel::constant(Span::ZERO, HOP),
        casts: casts.iter().map(cast).collect(),
        pace,
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm: last + HOP.times(APART),
        service: false,
        drift_ppm: vec![0; members],
        settle: Span::secs(60),
        quiet: HOP.times(APART),
        events_max: 600_000_000,
    };
    let mut begun = BTreeMap::<MsgId, Time>::new();
    let mut waited_ns = 0;
    let mut deliveries = 0_u64;
    let recorded = RunRecord { plan, choices: Choices::default() };
    let report = amcast_sim::replay(row, config, &recorded, &mut |event| match *event {
        TraceEvent::Cast { t, m, .. } => drop(begun.insert(m, t)),
        TraceEvent::Deliver { t, m, .. } => {
            waited_ns += begun.get(&m).map_or(0, |begun| t.since(*begun).0);
            deliveries += 1;
        }
        _ => {}
    });
    let report = report.map_err(Failure::misuse)?;
    if report.outcome != RunOutcome::Settled || deliveries != (casts.len() * members) as u64 {
        let what = format!("{}, {members} members: the run did not settle", row.name());
        return Err(Failure::Failed(what));
    }
    Ok(RunCost { waited_ns, deliveries, messages: report.messages })
}

/// The cost of these broadcasts, without the messages of an idle group: members greet each other
/// when it begins.
fn measure(
    row: &TotalOrderRow,
    config: &Config,
    casts: &[(Time, usize)],
    pace: CastPace,
) -> Result<DeliveryCost, Failure> {
    let silent = spend(row, config, &[], CastPace::Open)?.messages;
    let spent = spend(row, config, casts, pace)?;
    let each = |sum: f64| sum / spent.deliveries as f64;
    Ok(DeliveryCost {
        hops: each(spent.waited_ns as f64 / HOP.0 as f64),
        messages: each(spent.messages.saturating_sub(silent) as f64),
    })
}

fn point(
    row: &'static TotalOrderRow,
    members: usize,
    lane: PacketLane,
) -> Result<SizePoint, Failure> {
    let config = config(row, members, lane)?;
    let alone: Vec<_> = (0..members * EACH)
        .map(|n| (Time::ZERO + HOP.times(APART * n as u64), n % members))
        .collect();
    let bursts: Vec<_> = (0..members * BURST * ROUNDS).map(|n| (Time::ZERO, n % members)).collect();
    Ok(SizePoint {
        protocol: row.name(),
        lane: lane.name(),
        members,
        alone: measure(row, &config, &alone, CastPace::Open)?,
        bursts: measure(row, &config, &bursts, CastPace::Rounds(BURST as u32))?,
    })
}

fn points(sizes: &[usize]) -> Result<Vec<SizePoint>, Failure> {
    let of_row = |row: &'static TotalOrderRow| {
        let lanes = LANES.into_iter();
        lanes.flat_map(move |lane| sizes.iter().map(move |&members| (row, members, lane)))
    };
    let jobs: Vec<_> = TABLE_3.into_iter().flat_map(of_row).collect();
    let points = Mutex::new(Vec::new());
    over_cores(jobs.len() as u64, &progress(jobs.len() as u64, "groups"), |n| {
        let (row, members, lane) = jobs[n as usize];
        let point = point(row, members, lane)?;
        points.lock().unwrap_or_else(PoisonError::into_inner).push((n, point));
        Ok(false)
    })?;
    let mut points = points.into_inner().unwrap_or_else(PoisonError::into_inner);
    points.sort_by_key(|(n, _)| *n);
    Ok(points.into_iter().map(|(_, point)| point).collect())
}

/// The ten protocols by size.
pub(super) fn run(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let sizes: &[usize] = if session.quick { &QUICK_SIZES } else { &SIZES };
    let points = points(sizes)?;
    let mut parts = Vec::new();
    for (name, title, y, of) in CHARTS {
        for lane in LANES.map(PacketLane::name) {
            let drawn: Vec<_> =
                TABLE_3.iter().map(|row| line(&points, row.name(), lane, of)).collect();
            let title = format!("{title}, {}", on(lane));
            let svg = lines(&Axes { title: &title, x: "members", y }, &drawn)?;
            let caption = format!("{title}.");
            parts.push(PagePart::Chart { name: format!("{name}-{lane}"), caption, svg });
        }
    }
    let cell = |x: f64| html! { (format!("{x:.2}")) };
    let rows = points.iter().map(|p| {
        let head = vec![html! { (p.protocol) }, html! { (p.lane) }, html! { (p.members) }];
        let costs = [p.alone.hops, p.alone.messages, p.bursts.hops, p.bursts.messages];
        head.into_iter().chain(costs.map(cell)).collect()
    });
    let head = [
        "protocol",
        "lane",
        "members",
        "hops, alone",
        "messages for each delivery, alone",
        "hops, bursts",
        "messages for each delivery, bursts",
    ];
    parts.push(PagePart::Table {
        caption: "the cost of a delivery".to_string(),
        head: head.map(String::from).to_vec(),
        rows: rows.collect(),
    });
    Ok(ExperimentAccount {
        how: format!(
            "In the simulator: a message takes one hop from one process to another, and nothing else \
             takes any time. Alone: {EACH} messages of each member, one after the other; bursts: \
             {ROUNDS} rounds in which every member sends {BURST} at once. Messages of {PAYLOAD_BYTES} \
             bytes. Counted is what goes from one process to another, packed as it leaves: what is sent \
             to all as one datagram counts once. Heartbeats, and acknowledgements that no delivery \
             waits for, are omitted. The paper has no figures on sizes: the values beside are \
             those expected from its patterns."
        ),
        claims: claims(&points),
        parts,
        failures: Vec::new(),
        figures: json!({ "points": points, "hop_us": HOP.0 / 1000, "burst": BURST, "rounds": ROUNDS }),
    })
}

type PointFigure = fn(&SizePoint) -> f64;

const CHARTS: [(&str, &str, &str, PointFigure); 3] = [
    ("hops", "latency of a message alone", "hops", |p| p.alone.hops),
    ("messages", "messages for each delivery, a message alone", "messages", |p| p.alone.messages),
    ("bursts", "messages for each delivery, in bursts", "messages", |p| p.bursts.messages),
];

fn on(lane: &str) -> &'static str {
    if lane == PacketLane::Stream.name() { "over streams" } else { "over datagrams to all" }
}

fn line(points: &[SizePoint], protocol: &str, lane: &str, of: PointFigure) -> ChartLine {
    let own = points.iter().filter(|p| p.protocol == protocol && p.lane == lane);
    ChartLine {
        name: protocol.to_string(),
        points: own.map(|p| (p.members as f64, of(p))).collect(),
    }
}

/// The values expected from the patterns of [TO 3.2], and the results here.
fn claims(points: &[SizePoint]) -> Vec<PaperClaim> {
    let value = |row: &TotalOrderRow, lane: PacketLane, members: usize, of: PointFigure| {
        let of_row = |p: &&SizePoint| p.protocol == row.name() && p.lane == lane.name();
        let is = |p: &&SizePoint| of_row(p) && p.members == members;
        points.iter().find(is).map_or(f64::NAN, of)
    };
    let hops: PointFigure = |p| p.alone.hops;
    let messages: PointFigure = |p| p.alone.messages;
    let claim = |paper: &str, found: String, holds: bool| PaperClaim {
        paper: paper.to_string(),
        found,
        holds: ClaimVerdict::when(holds),
    };
    let at = |row: &TotalOrderRow, of: PointFigure| value(row, PacketLane::Stream, 32, of);
    let bb = at(&BB_RCAST_RCAST, hops);
    let sb = at(&SB_RCAST, hops);
    let ab = at(&AB_RCAST, hops);
    let near = |found: f64, expected: f64| (found - expected).abs() < 0.25;
    let grows = at(&PB_RCAST, hops) / value(&PB_RCAST, PacketLane::Stream, 4, hops);
    let uniform = at(&SB_URCAST, hops) - sb;
    let (bb_sent, sb_sent) = (at(&BB_RCAST_RCAST, messages), at(&SB_RCAST, messages));
    let (acks, acks_to_all) =
        (at(&SB_URCAST, messages), value(&SB_URCAST, PacketLane::Multicast, 32, messages));
    vec![
        claim(
            "with a sequencer latency does not depend on the size: two steps where message and number, \
             or message and sequencer, follow each other; three where a number is asked for",
            format!("{bb:.2}, {sb:.2} and {ab:.2} hops with 32 members (broadcast, send, ask)"),
            near(bb, 2.0) && near(sb, 2.0) && near(ab, 3.0),
        ),
        claim(
            "a token has to come: latency grows with the ring",
            format!("{grows:.1} times the hops with 32 members, against 4"),
            grows > 4.0,
        ),
        claim(
            "uniform delivery waits one step more, for acknowledgements",
            format!("{uniform:.2} hops more with 32 members (send-broadcast)"),
            near(uniform, 1.0),
        ),
        claim(
            "broadcast-broadcast puts two messages on the wire for each delivery, send-broadcast one",
            format!("{bb_sent:.2} and {sb_sent:.2} with 32 members"),
            near(bb_sent, 2.0) && near(sb_sent, 1.0),
        ),
        claim(
            "acknowledgements of all to all make the cost of uniform delivery grow with the size, where \
             messages to all are not one on the wire",
            format!(
                "{acks:.1} messages for each delivery with 32 members, and {acks_to_all:.1} where \
                     they are"
            ),
            acks > 16.0 && acks_to_all < 3.0,
        ),
    ]
}
