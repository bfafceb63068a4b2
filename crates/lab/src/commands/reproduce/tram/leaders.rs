//! `tram-tab1`: all groups change their leaders at once, under 100 clients.

use super::{Contender, Demand, GROUPS, MODEL, SEED, claim, text};
use crate::bench::infiniband::Infiniband;
use crate::bench::leader_changes::{
    ChangeCause, LeaderChange, LeaderChangeLoad, TimeSummary, run_shared, run_simulated,
};
use crate::bench::{self, BenchPlan, DestinationChoice, SimulatedWorld};
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::page::{ExperimentAccount, PagePart, PaperClaim};
use amcast_core::Span;
use amcast_core::parameters::{HEARTBEAT, SUSPECT};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::json;

const CLIENTS: usize = 100;

/// So few that the core of the replicas has little else to do in a change.
const FEW_CLIENTS: usize = 8;

/// How often the leaders change.
const CHANGES: usize = 3;

/// The mean that is aimed at, in milliseconds: from the suspicion to the first new delivery.
const AIM_MS: f64 = 1.0;

/// The silence after which a leader is suspected where it dies, and far more than any where it does not.
const SILENCE: Span = Span::millis(50);
const NO_SILENCE: Span = Span::secs(10);

/// Why figures of this machine are worse than they could be. Simulated replicas have a machine each.
const BUSY: &str = "All eight takeovers share one core, one after the other, behind a turn of all 24 replicas under load.";

/// A row of the paper's table 1, in microseconds.
struct PrintedChange {
    name: &'static str,
    average: f64,
    deviation: f64,
    min: f64,
    max: f64,
}

const fn printed(name: &'static str, of: [f64; 4]) -> PrintedChange {
    let [average, deviation, min, max] = of;
    PrintedChange { name, average, deviation, min, max }
}

/// Table 1.
const PRINTED: [PrintedChange; 4] = [
    printed("#1", [22_544.0, 17_424.0, 4_420.0, 50_730.0]),
    printed("#2", [39_344.0, 9_397.0, 29_879.0, 48_806.0]),
    printed("#3", [28_151.0, 7_038.0, 21_925.0, 41_777.0]),
    printed("total", [28_251.0, 13_430.0, 4_420.0, 50_730.0]),
];

/// One kind of times of a change.
type ChangeTimesOf = fn(&LeaderChange) -> &[u64];

/// Changes of one cause on one medium.
#[derive(Serialize)]
struct ChangeSeries {
    medium: &'static str,
    cause: ChangeCause,
    clients: usize,
    /// How often a replica writes to each other one at least, in nanoseconds.
    heartbeat_ns: u64,
    changes: Vec<LeaderChange>,
}

impl ChangeSeries {
    /// One kind of times, of all changes.
    fn all(&self, of: ChangeTimesOf) -> TimeSummary {
        let all: Vec<u64> = self.changes.iter().flat_map(|c| of(c).iter().copied()).collect();
        TimeSummary::of(&all)
    }

    /// Why a claim is missed.
    fn why(&self) -> &'static str {
        if self.medium == "sim" { "" } else { BUSY }
    }

    fn place(&self) -> String {
        let place = if self.medium == "sim" { "simulated" } else { "this machine" };
        format!("{place}, {} clients", self.clients)
    }
}

fn plan(quick: bool, clients: usize, silence: Span) -> BenchPlan {
    let choice = DestinationChoice::Uniform;
    let demand = Demand { clients, ..Demand::latency(GROUPS, choice) };
    let mut plan = demand.plan(Contender::tram("breadth"), quick);
    // One multicast of a client is on the way, and there are 2,400 pairs of a client and a replica.
    // A takeover copies what is in the log, so that is not larger than what clients have on the way, a few times over.
    let set = [("hm_lines", "64"), ("log_lines", "1024")];
    plan.set = set.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
    plan.set.push(SUSPECT.setting(silence));
    plan
}

/// Table 1.
pub(in crate::commands::reproduce) fn run(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    bench::heed_signals();
    bench::clear_left_over();
    let entry = Contender::tram("breadth").entry;
    let silence = |cause| if cause == ChangeCause::Death { SILENCE } else { NO_SILENCE };
    let load = |cause, clients, apart| LeaderChangeLoad {
        plan: plan(session.quick, clients, silence(cause)),
        cause,
        changes: if cause == ChangeCause::Death { 1 } else { CHANGES },
        apart,
    };
    let world =
        |messages| SimulatedWorld { model: Infiniband::PAPER.model(), messages, seed: SEED };
    let simulated = load(ChangeCause::Suspicion, CLIENTS, Span::millis(2));
    let config = simulated.plan.config(entry).map_err(Failure::failed)?;
    let heartbeat_ns = HEARTBEAT.get(&config).0;
    let series = |medium, cause, clients, changes| ChangeSeries {
        medium,
        cause,
        clients,
        heartbeat_ns,
        changes,
    };
    let found = run_simulated(entry, &simulated, &world(6_000)).map_err(Failure::Failed)?;
    let mut all = vec![series("sim", ChangeCause::Suspicion, CLIENTS, found)];
    let dying = load(ChangeCause::Death, CLIENTS, Span::millis(2));
    let found = run_simulated(entry, &dying, &world(4_000)).map_err(Failure::Failed)?;
    all.push(series("sim", ChangeCause::Death, CLIENTS, found));
    let rounds = if session.quick { 3 } else { 10 };
    let loads = [
        (ChangeCause::Suspicion, CLIENTS),
        (ChangeCause::Death, CLIENTS),
        (ChangeCause::Suspicion, FEW_CLIENTS),
    ];
    for (cause, clients) in loads {
        let mut changes = Vec::new();
        for _ in 0..rounds {
            let load = load(cause, clients, Span::millis(300));
            changes.extend(run_shared(entry, &load).map_err(Failure::Failed)?);
        }
        all.push(series("shm", cause, clients, changes));
    }
    let mut parts = vec![printed_table(&all)];
    parts.extend(all.iter().map(group_table));
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} The breadth tree, {GROUPS} groups of three, {CLIENTS} clients with one multicast to all groups on the way of \
             each. With {FEW_CLIENTS} clients, which is no part of the paper's table, a takeover is distinguished from the load. At one time an oracle names another leader to all replicas of every group (suspicion), three times in a \
             run; or the leaders of all groups stop for ever (death), and are suspected after a silence of {} ms. A message \
             is delayed if it was on the way when that happened, or multicast before each group had a delivery by its new \
             leader, and reached its last group after the first of those deliveries. On this machine all replicas are in one \
             thread and all clients in another; a leader that dies is not stepped any more, and its memory stays; \
             all pages are there from the start, as RDMA pins them. A change \
             of permissions is a flag and a fence here, and costs nothing in the simulator; over the paper's InfiniBand it \
             reconnects queue pairs, which is most of its 28 ms.",
            SILENCE.0 / 1_000_000
        ),
        parts,
        claims: all.iter().flat_map(claims).collect(),
        failures: Vec::new(),
        figures: json!({ "table": 1, "series": all }),
    })
}

fn us(ns: f64) -> String {
    text(ns / 1e3)
}

fn summary_cells(times: &TimeSummary) -> [Markup; 5] {
    [
        html! { (times.count) },
        html! { (us(times.mean)) },
        html! { (us(times.deviation)) },
        html! { (us(times.min as f64)) },
        html! { (us(times.max as f64)) },
    ]
}

fn head(first: &[&str]) -> Vec<String> {
    let rest = ["count", "average, us", "st. dev.", "min", "max"];
    first.iter().chain(&rest).map(ToString::to_string).collect()
}

/// Table 1 itself: the delayed messages of each change, beside the paper's.
fn printed_table(all: &[ChangeSeries]) -> PagePart {
    let mut rows: Vec<Vec<Markup>> = PRINTED
        .iter()
        .map(|p| {
            let mut row = vec![html! { "the paper's" }, html! { "triggered" }, html! { (p.name) }];
            row.push(html! {});
            row.extend([p.average, p.deviation, p.min, p.max].map(|v| html! { (text(v)) }));
            row
        })
        .collect();
    for series in all {
        let cause = format!("{:?}", series.cause).to_lowercase();
        let mut add = |name: String, times: TimeSummary| {
            let mut row = vec![html! { (series.place()) }, html! { (cause) }, html! { (name) }];
            row.extend(summary_cells(&times));
            rows.push(row);
        };
        for (n, change) in series.changes.iter().enumerate().take(CHANGES) {
            add(format!("#{}", n + 1), TimeSummary::of(&change.delayed_ns));
        }
        add("total".to_string(), series.all(|c| &c.delayed_ns));
    }
    PagePart::Table {
        caption: "Table 1: latency of the messages that a change of all leaders delays (first three changes, and all)"
            .to_string(),
        head: head(&["where", "cause", "change"]),
        rows,
    }
}

/// How long groups were without a delivery.
fn group_table(series: &ChangeSeries) -> PagePart {
    let kinds: [(&str, ChangeTimesOf); 5] = [
        ("latency of messages before the change", |c| &c.before_ns),
        ("from the death to an attempt to lead", |c| &c.detection_ns),
        ("from the beginning until another replica leads", |c| &c.leading_ns),
        ("from the beginning to the first new delivery", |c| &c.whole_ns),
        ("from the suspicion to the first new delivery", |c| &c.takeover_ns),
    ];
    let shown = kinds.iter().map(|(name, of)| ((*name).to_string(), series.all(*of)));
    let mut shown: Vec<(String, TimeSummary)> = shown.filter(|k| k.1.count > 0).collect();
    if series.cause == ChangeCause::Suspicion {
        for k in 0..CHANGES {
            let mine = series.changes.iter().skip(k).step_by(CHANGES);
            let all: Vec<u64> = mine.flat_map(|c| c.takeover_ns.iter().copied()).collect();
            shown.push((format!("that, in change #{} of a run", k + 1), TimeSummary::of(&all)));
        }
    }
    let rows = shown.into_iter().map(|(name, times)| {
        let mut row = vec![html! { (name) }];
        row.extend(summary_cells(&times));
        row
    });
    PagePart::Table {
        caption: format!("{}, {:?}: times of the groups", series.place(), series.cause),
        head: head(&["time"]),
        rows: rows.collect(),
    }
}

fn claims(series: &ChangeSeries) -> Vec<PaperClaim> {
    let place = series.place();
    let delayed = series.all(|c| &c.delayed_ns);
    let takeover = series.all(|c| &c.takeover_ns);
    let [.., total] = PRINTED;
    let why = series.why();
    match series.cause {
        ChangeCause::Suspicion => vec![
            claim(
                format!(
                    "{place}: ours: delayed messages take less than the paper's {} ms on average",
                    text(total.average / 1e3)
                ),
                format!(
                    "{} times less: {} ms over {} messages, median {} ms",
                    text(total.average * 1e3 / delayed.mean),
                    text(delayed.mean / 1e6),
                    delayed.count,
                    text(delayed.median as f64 / 1e6)
                ),
                delayed.count > 0 && delayed.mean / 1e3 < total.average,
                why,
            ),
            claim(
                format!(
                    "{place}: ours: from the suspicion to the first new delivery below {AIM_MS} ms on average"
                ),
                format!(
                    "{} us over {} groups, median {} us, {} us at most",
                    us(takeover.mean),
                    takeover.count,
                    us(takeover.median as f64),
                    us(takeover.max as f64)
                ),
                takeover.count > 0 && takeover.mean / 1e6 < AIM_MS,
                why,
            ),
        ],
        ChangeCause::Death => vec![after_death(series, takeover)],
    }
}

fn after_death(series: &ChangeSeries, takeover: TimeSummary) -> PaperClaim {
    let place = series.place();
    let [whole, detection] = [series.all(|c| &c.whole_ns), series.all(|c| &c.detection_ns)];
    let all = format!(
        "{} ms on average from the death to the first new delivery",
        text(whole.mean / 1e6)
    );
    if detection.count == 0 {
        let lost = Infiniband::PAPER.model().ram.lost.most().0 as f64;
        let heartbeat = series.heartbeat_ns as f64;
        return claim(
            format!(
                "{place}: ours: a death that the next write to it finds out costs at most the {} ms after which that write is \
                 lost, the {} ms between two of them, and {AIM_MS} ms",
                text(lost / 1e6),
                text(heartbeat / 1e6)
            ),
            format!("{all}; no detector of silence is at work"),
            whole.count > 0 && whole.mean < lost + heartbeat + AIM_MS * 1e6,
            "",
        );
    }
    claim(
        format!(
            "{place}: ours: beyond the time until its death is found out, a dead leader costs below {AIM_MS} ms on average"
        ),
        format!(
            "{all}, of which the detector's part is {} ms and the rest {} us (median {} us)",
            text(detection.mean / 1e6),
            us(takeover.mean),
            us(takeover.median as f64)
        ),
        takeover.count > 0 && takeover.mean / 1e6 < AIM_MS,
        series.why(),
    )
}
