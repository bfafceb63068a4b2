//! `fastcast-fig7`: the response time against the load, with 8 members. `fastcast-fig8`: the latency of one sender at a
//! low load, with 2 to 8 members.

use super::sockets;
use super::{
    ComparedResult, ComparedRun, MESSAGE_BYTES, MODEL, PROTOCOLS, compared, drawn, simulate,
};
use crate::bench::broadcasts::{BroadcastLoad, TimedBroadcast};
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use amcast_core::Entry;
use amcast_core::rng::Rng;
use amcast_core::{Pid, Span, Time};
use amcast_protocols::fastcast::FastCast;
use maud::html;
use serde_json::json;

/// Members in figure 7.
const MEMBERS: usize = 8;

/// Messages begin after this time: by then the group has formed.
const BEGIN: Span = Span::millis(100);

/// Messages of random members, of so many from the `first` one on, whose sum is a load of so many megabits a second, for so
/// long.
fn open_loop(mbps: f64, first: usize, senders: usize, span: Span) -> BroadcastLoad {
    let apart = MESSAGE_BYTES as f64 * 8e3 / mbps;
    let count = (span.0 as f64 / apart) as u64;
    let mut rng = Rng::new(count);
    let at = |n: u64, rng: &mut Rng| {
        let early = rng.below(apart as u64 + 1);
        Time::ZERO + BEGIN + Span((n as f64 * apart) as u64 + early)
    };
    let times = (0..count).map(|n| {
        let at = at(n, &mut rng);
        let sender = Pid((first as u64 + rng.below(senders as u64)) as u32);
        TimedBroadcast { at, sender, bytes: MESSAGE_BYTES }
    });
    BroadcastLoad::Timed(times.collect())
}

/// Mean response time in milliseconds.
fn mean_ms(seen: &ComparedResult) -> f64 {
    seen.found.latency_ns.mean / 1e6
}

/// Figure 7.
pub(in crate::commands::reproduce) fn response(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    let loads: Vec<f64> = match session.quick {
        true => vec![100.0, 400.0, 800.0],
        false => (1..=10).map(|n| f64::from(n) * 100.0).collect(),
    };
    let span = if session.quick { Span::millis(300) } else { Span::secs(2) };
    let runs: Vec<ComparedRun> = loads
        .iter()
        .flat_map(|&mbps| compared(MEMBERS, &open_loop(mbps, 0, MEMBERS, span)).collect::<Vec<_>>())
        .collect();
    let seen = simulate(&runs)?;
    let place = |at: usize| loads[at / PROTOCOLS.len()];
    let of = |name: &str| {
        let own = seen.iter().enumerate().filter(|(_, s)| s.protocol == name);
        own.map(|(at, s)| (place(at), mean_ms(s))).collect::<Vec<_>>()
    };
    let all: Vec<_> = PROTOCOLS
        .iter()
        .map(|protocol| ChartLine {
            name: protocol.entry.name().to_string(),
            points: of(protocol.entry.name()),
        })
        .collect();
    let title = "response time against the load, 8 members";
    let axes = Axes { title, x: "Mbit/s that all members send together", y: "milliseconds" };
    let svg = lines(&axes, &all)?;
    let real = sockets::response(session)?;
    let mut parts = vec![
        PagePart::Chart { name: "response".to_string(), caption: title.to_string(), svg },
        table("Figure 7", "load, Mbit/s", &seen, &|at| format!("{:.0}", place(at))),
    ];
    parts.extend(real.parts);
    let mut claims = vec![below(&seen, "a consistently lower response time", 1.0)];
    claims.extend(real.claims);
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} Messages of 10 kB are broadcast at random times by random members, whose sum is the load; the \
             response time is from the broadcast to the delivery at the sender. {}",
            real.how
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({ "points": seen, "loads_mbps": loads, "sockets": real.figures }),
    })
}

/// Figure 8.
pub(in crate::commands::reproduce) fn low_load(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    let sizes: Vec<usize> = if session.quick { vec![2, 4, 8] } else { (2..=8).collect() };
    let span = if session.quick { Span::secs(2) } else { Span::secs(20) };
    let mut parts = Vec::new();
    let mut claims = Vec::new();
    let mut figures = Vec::new();
    for (name, sender) in [("latency", "most senior"), ("latency-junior", "most junior")] {
        let first = |n: usize| if sender == "most senior" { 0 } else { n - 1 };
        let of = |&n: &usize| compared(n, &open_loop(1.0, first(n), 1, span)).collect::<Vec<_>>();
        let seen = simulate(&sizes.iter().flat_map(of).collect::<Vec<ComparedRun>>())?;
        let all = drawn(&seen, |found| (found.members as f64, found.latency_ns.mean / 1e6));
        let title = format!("latency of the {sender} member at 1 Mbit/s");
        let svg = lines(&Axes { title: &title, x: "members", y: "milliseconds" }, &all)?;
        parts.push(PagePart::Chart { name: name.to_string(), caption: title, svg });
        let caption = format!("Figure 8, the {sender} member sends");
        let members = |at: usize| seen[at].found.members.to_string();
        parts.push(table(&caption, "members", &seen, &members));
        claims.push(is_constant(&seen, sender));
        claims.push(below(
            &seen,
            &format!("a consistently lower latency of the {sender} member"),
            1.0,
        ));
        figures.push(json!({ "sender": sender, "points": seen }));
    }
    let real = super::low_load::run(session)?;
    parts.extend(real.parts);
    claims.extend(real.claims);
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} One member broadcasts messages of 10 kB, 1 Mbit/s of them: the most senior one, which is the leader of \
             FastCast and the coordinator of Ring Paxos, or the most junior one, which is neither. {}",
            real.how
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({ "simulated": figures, "sockets": real.figures }),
    })
}

/// The claim that the latency of FastCast is the same in groups of any size.
fn is_constant(seen: &[ComparedResult], sender: &str) -> PaperClaim {
    let own = seen.iter().filter(|s| s.protocol == FastCast.name()).map(mean_ms);
    let (least, most) = own.fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(v), m.max(v)));
    PaperClaim {
        paper: format!(
            "the latency of FastCast is constant in the number of members, of the {sender} member"
        ),
        found: format!("{least:.3} to {most:.3} ms"),
        holds: ClaimVerdict::when(most <= least * 1.1),
    }
}

/// The claim that FastCast is below every other protocol at each point.
fn below(seen: &[ComparedResult], what: &str, times: f64) -> PaperClaim {
    let points = seen.chunks(PROTOCOLS.len());
    let ratios: Vec<f64> = points
        .flat_map(|point| {
            let own =
                point.iter().find(|s| s.protocol == FastCast.name()).map_or(f64::NAN, mean_ms);
            point.iter().filter(|s| s.protocol != FastCast.name()).map(move |s| mean_ms(s) / own)
        })
        .collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    PaperClaim {
        paper: format!("FastCast has {what} than LCR and Ring Paxos"),
        found: format!("theirs is at least {least:.2} times that of FastCast"),
        holds: match ratios.is_empty() {
            true => ClaimVerdict::Open,
            false => ClaimVerdict::when(least > times),
        },
    }
}

fn table(
    caption: &str,
    by: &str,
    seen: &[ComparedResult],
    place: &dyn Fn(usize) -> String,
) -> PagePart {
    let ms = |ns: f64| format!("{:.3}", ns / 1e6);
    let row = |(at, s): (usize, &ComparedResult)| {
        vec![
            html! { (s.protocol) },
            html! { (place(at)) },
            html! { (ms(s.found.latency_ns.mean)) },
            html! { (ms(s.found.latency_ns.p50 as f64)) },
            html! { (ms(s.found.latency_ns.p99 as f64)) },
            html! { (s.found.overflows) },
        ]
    };
    let head = ["protocol", by, "mean, ms", "median, ms", "99 %, ms", "datagrams lost"];
    PagePart::Table {
        caption: caption.to_string(),
        head: head.map(String::from).to_vec(),
        rows: seen.iter().enumerate().map(row).collect(),
    }
}
