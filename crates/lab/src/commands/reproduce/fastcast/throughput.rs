//! `fastcast-fig6`: the throughput that groups of 2 to 32 members reach, all of them sending.

use super::sockets;
use super::{ComparedResult, MODEL, compared, drawn, optimum_mbps, simulate};
use crate::bench::broadcasts::{BroadcastLoad, LINK_MBPS};
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use amcast_core::Entry;
use amcast_protocols::fastcast::FastCast;
use amcast_protocols::lcr::Lcr;
use amcast_protocols::ring_paxos_multicast::RingPaxosMulticast;
use maud::html;
use serde_json::json;

/// Messages that each member has on the way, or waiting.
const OUTSTANDING: u32 = 64;

/// Figure 6.
pub(in crate::commands::reproduce) fn run(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    let (sizes, messages): (Vec<usize>, usize) = match session.quick {
        true => (vec![2, 4, 8], 6_000),
        false => ((2..=8).chain([16, 32]).collect(), 16_000),
    };
    let load = |members: usize| BroadcastLoad::Full {
        outstanding: OUTSTANDING,
        messages: messages / members,
    };
    let runs: Vec<_> =
        sizes.iter().flat_map(|&n| compared(n, &load(n)).collect::<Vec<_>>()).collect();
    let seen = simulate(&runs)?;
    let mut all = drawn(&seen, |found| (found.members as f64, found.delivered_mbps));
    let optimum = sizes.iter().map(|&n| (n as f64, optimum_mbps(n))).collect();
    all.push(ChartLine { name: "N/(N-1) of a link".to_string(), points: optimum });
    let title = "throughput of a group, all members sending";
    let axes = Axes { title, x: "members", y: "Mbit/s that a member delivers" };
    let svg = lines(&axes, &all)?;
    let real = sockets::throughput(session, OUTSTANDING as usize)?;
    let mut parts = vec![
        PagePart::Chart { name: "throughput".to_string(), caption: title.to_string(), svg },
        table(&seen),
    ];
    parts.extend(real.parts);
    let mut claims = claims(&seen);
    claims.extend(real.claims);
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} Each member has {OUTSTANDING} messages of 10 kB on the way or waiting. The throughput is that of \
             payload, on average over the members, without the first and the last tenth; it is compared with N/(N-1) \
             of what the link carries in datagrams. {}",
            real.how
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({ "points": seen, "link_mbps": LINK_MBPS, "sockets": real.figures }),
    })
}

fn claims(seen: &[ComparedResult]) -> Vec<PaperClaim> {
    let of = |name: &'static str| seen.iter().filter(move |s| s.protocol == name);
    let part = |s: &ComparedResult| s.found.delivered_mbps / optimum_mbps(s.found.members);
    let near = |name| {
        let least = of(name).map(part).fold(f64::INFINITY, f64::min);
        PaperClaim {
            paper: format!("{name}: the throughput is very close to N/(N-1) of the link"),
            found: format!("at least {:.3} of it", least),
            holds: ClaimVerdict::when(least >= 0.98),
        }
    };
    let overflows: u64 = of(FastCast.name()).map(|s| s.found.overflows).sum();
    vec![
        near(FastCast.name()),
        near(Lcr.name()),
        one_link(of(RingPaxosMulticast.name())),
        PaperClaim {
            paper: "members that send at once lose no datagrams".to_string(),
            found: format!("{overflows} datagrams of FastCast found a buffer full"),
            holds: ClaimVerdict::when(overflows == 0),
        },
    ]
}

/// The claim that a protocol in which one member multicasts stays at one link.
fn one_link<'a>(seen: impl Iterator<Item = &'a ComparedResult>) -> PaperClaim {
    let all: Vec<f64> = seen.map(|s| s.found.delivered_mbps / LINK_MBPS).collect();
    let (least, most) =
        all.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(*v), m.max(*v)));
    PaperClaim {
        paper: "the throughput of Ring Paxos is that of one link, at any number of members"
            .to_string(),
        found: format!("{least:.2} to {most:.2} of a link"),
        holds: ClaimVerdict::when(least > 0.8 && most <= 1.0),
    }
}

fn table(seen: &[ComparedResult]) -> PagePart {
    let row = |s: &ComparedResult| {
        let found = &s.found;
        vec![
            html! { (s.protocol) },
            html! { (found.members) },
            html! { (format!("{:.0}", found.delivered_mbps)) },
            html! { (format!("{:.3}", found.delivered_mbps / optimum_mbps(found.members))) },
            html! { (format!("{:.2}", found.latency_ns.mean / 1e6)) },
            html! { (found.overflows) },
        ]
    };
    let head =
        ["protocol", "members", "Mbit/s", "of N/(N-1)", "mean response, ms", "datagrams lost"];
    PagePart::Table {
        caption: "Figure 6".to_string(),
        head: head.map(String::from).to_vec(),
        rows: seen.iter().map(row).collect(),
    }
}
