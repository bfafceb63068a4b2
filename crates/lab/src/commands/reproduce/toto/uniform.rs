//! `toto-uniform`: beyond the paper, ToTo beside the protocols that give the same or more and order by a sequencer or a token, on real
//! sockets in one run: throughput on hosts that are close, and latency on hosts that are far apart.

use super::{MEMBERS, MESSAGE_BYTES, extremes, text};
use crate::bench::heed_signals;
use crate::bench::lan::{
    LAN_BITS_PER_S, Lan, LanBroadcasts, LanBursts, LanLinks, LanLoad, LanResult,
};
use crate::bench::votes::VoteSource;
use crate::commands::Failure;
use crate::commands::cores::progress;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use amcast_core::parameters::{HEARTBEAT, LANE, PacketLane, RETRY, SUSPECT};
use amcast_core::{Entry, Span};
use amcast_protocols::total::{AB_URCAST, BB_URCAST_URCAST, PB_URCAST, SB_URCAST};
use amcast_protocols::toto::TOTO;
use maud::html;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// Numbers of hosts.
const SIZES: [usize; 2] = [4, MEMBERS];

/// From any host to any other one where they are far apart.
const FAR: Duration = Duration::from_millis(25);

/// Messages a second of all members where they are far apart.
const FAR_PER_SECOND: u64 = 40;

/// Messages that each member has on the way at full load.
const OUTSTANDING: usize = 16;

/// ToTo, and the protocols of total order with uniform agreement and one order.
static PROTOCOLS: [&dyn Entry; 5] = [&TOTO, &SB_URCAST, &BB_URCAST_URCAST, &AB_URCAST, &PB_URCAST];

/// A measurement of one protocol.
#[derive(Clone, Debug, Serialize)]
struct UniformResult {
    protocol: &'static str,
    /// Whether the hosts were far apart: then for latency, else for throughput.
    far: bool,
    #[serde(flatten)]
    found: LanResult,
}

/// Patience for a process that waits for a core, and for answers from afar.
fn parameters(far: bool) -> Vec<(String, String)> {
    let retry = if far { Span::millis(400) } else { Span::millis(100) };
    let set = [
        LANE.setting(PacketLane::Multicast),
        HEARTBEAT.setting(Span::millis(200)),
        SUSPECT.setting(Span::secs(5)),
        RETRY.setting(retry),
    ];
    set.to_vec()
}

fn plan(protocol: &'static dyn Entry, members: usize, far: bool, quick: bool) -> LanBroadcasts {
    let apart_ns = 1_000_000_000 * members as u64 / FAR_PER_SECOND;
    LanBroadcasts {
        protocol: protocol.name(),
        set: parameters(far),
        members,
        payload: MESSAGE_BYTES,
        load: match far {
            true => LanLoad::Source { source: VoteSource::Poisson, apart_ns },
            false => LanLoad::Full { outstanding: OUTSTANDING },
        },
        seconds: [1.0, if quick { 2.0 } else { 10.0 }],
        kinds: false,
    }
}

/// Measures all of them on hosts of one kind: some rounds, in each of which every protocol has its turn.
fn measure(
    session: &ReproduceSession<'_>,
    far: bool,
    seen: &mut Vec<UniformResult>,
) -> Result<(), Failure> {
    let delay = if far { FAR } else { Duration::ZERO };
    let links = LanLinks { delay, ..LanLinks::near(LanBursts::Usual) };
    let mut lan = Lan::new(MEMBERS, links).map_err(Failure::Failed)?;
    let rounds = if session.quick { 1 } else { 3 };
    let bar = progress((SIZES.len() * rounds * PROTOCOLS.len()) as u64, "runs on hosts");
    for members in SIZES {
        for _ in 0..rounds {
            for protocol in PROTOCOLS {
                let plan = plan(protocol, members, far, session.quick);
                let found = lan.run(&plan).map_err(Failure::Failed)?;
                seen.push(UniformResult { protocol: plan.protocol, far, found });
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// All of it.
pub(in crate::commands::reproduce) fn run_all(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    if let Some(why) = Lan::missing() {
        return Ok(skipped(why));
    }
    heed_signals();
    let mut seen = Vec::new();
    measure(session, false, &mut seen)?;
    measure(session, true, &mut seen)?;
    Ok(ExperimentAccount {
        how: format!(
            "Not in the paper. A process on each of four and eight hosts, which are network namespaces of this machine behind a \
             switch, with links of {:.1} Mbit/s and IP multicast, all protocols in turn. Throughput: messages of {MESSAGE_BYTES} \
             bytes, of which each member has {OUTSTANDING} on the way. Latency: each frame takes {} ms from host to host, and \
             random sources have {FAR_PER_SECOND} messages a second together. Medians of the rounds. The others are uniform, and toto is \
             not: a member that fails may have delivered a message that the others never do.",
            LAN_BITS_PER_S as f64 / 1e6,
            FAR.as_millis(),
        ),
        parts: vec![table(&seen, false), table(&seen, true)],
        claims: claims(&seen),
        failures: Vec::new(),
        figures: json!({ "points": seen, "far_ms": FAR.as_millis() }),
    })
}

fn skipped(why: &str) -> ExperimentAccount {
    ExperimentAccount {
        how: format!("On real sockets: skipped: {why}."),
        parts: Vec::new(),
        claims: vec![PaperClaim {
            paper:
                "ours: within twice of the uniform protocols' throughput, sooner over a distance"
                    .to_string(),
            found: format!("skipped: {why}"),
            holds: ClaimVerdict::Open,
        }],
        failures: Vec::new(),
        figures: json!({ "skipped": why }),
    }
}

/// The measurements of one protocol with so many members, close to each other or far apart.
#[derive(Clone, Copy)]
struct UniformRuns<'a> {
    seen: &'a [UniformResult],
    protocol: &'static str,
    members: usize,
    far: bool,
}

impl UniformRuns<'_> {
    fn figures(self, figure: impl Fn(&LanResult) -> f64) -> Vec<f64> {
        let Self { protocol, members, far, .. } = self;
        let own = self
            .seen
            .iter()
            .filter(|p| p.protocol == protocol && p.found.members == members && p.far == far);
        own.map(|p| figure(&p.found)).collect()
    }

    /// The median over the rounds.
    fn median(self, figure: impl Fn(&LanResult) -> f64) -> f64 {
        let mut all = self.figures(figure);
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

fn mean_ms(found: &LanResult) -> f64 {
    found.latency_ns.mean / 1e6
}

/// Latency in milliseconds where hosts are far apart, else messages a second.
fn main_figure(found: &LanResult, far: bool) -> f64 {
    if far { mean_ms(found) } else { found.delivered_per_s }
}

fn table(seen: &[UniformResult], far: bool) -> PagePart {
    let mut rows = Vec::new();
    for members in SIZES {
        for protocol in PROTOCOLS {
            let runs = UniformRuns { seen, protocol: protocol.name(), members, far };
            let (least, most) = extremes(runs.figures(|found| main_figure(found, far)).into_iter());
            let mut row = vec![html! { (members) }, html! { (protocol.name()) }];
            if far {
                row.push(html! { (text(runs.median(mean_ms))) });
                row.push(html! { (text(least)) " to " (text(most)) });
            } else {
                row.push(html! { (format!("{:.0}", runs.median(|f| f.delivered_per_s))) });
                row.push(html! { (format!("{least:.0} to {most:.0}")) });
                row.push(html! { (text(runs.median(|f| f.delivered_mbps))) });
                row.push(html! { (text(runs.median(mean_ms))) });
            }
            rows.push(row);
        }
    }
    let mut head = vec!["members", "protocol"];
    let caption = if far {
        head.extend(["mean latency, ms", "least and most of the rounds"]);
        "Latency on hosts that are far apart"
    } else {
        head.extend(["messages/s", "least and most of the rounds", "Mbit/s", "mean latency, ms"]);
        "Throughput on hosts that are close"
    };
    PagePart::Table {
        caption: caption.to_string(),
        head: head.into_iter().map(String::from).collect(),
        rows,
    }
}

/// ToTo's figure as a part of the best one of the others, by number of members.
fn parts(seen: &[UniformResult], far: bool) -> Vec<(usize, f64)> {
    let of = |protocol: &dyn Entry, members| {
        let runs = UniformRuns { seen, protocol: protocol.name(), members, far };
        runs.median(|found| main_figure(found, far))
    };
    let part = |members| {
        let (least, most) = extremes(PROTOCOLS[1..].iter().map(|other| of(*other, members)));
        (members, of(PROTOCOLS[0], members) / if far { least } else { most })
    };
    SIZES.into_iter().map(part).collect()
}

fn claims(seen: &[UniformResult]) -> Vec<PaperClaim> {
    let tell = |parts: &[(usize, f64)]| {
        let of = |(members, part): &(usize, f64)| format!("{part:.2} with {members} members");
        parts.iter().map(of).collect::<Vec<_>>().join(", ")
    };
    let (fast, soon) = (parts(seen, false), parts(seen, true));
    vec![
        PaperClaim {
            paper: "ours: at least half of the throughput of the best uniform protocol".to_string(),
            found: tell(&fast),
            holds: ClaimVerdict::when(fast.iter().all(|(_, part)| *part >= 0.5)),
        },
        PaperClaim {
            paper: "ours: over a distance a lower latency than that of every uniform protocol"
                .to_string(),
            found: tell(&soon),
            holds: ClaimVerdict::when(soon.iter().all(|(_, part)| *part < 1.0)),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Latency;
    use crate::bench::lan::LanLosses;

    #[test]
    fn where_there_are_no_hosts_the_page_says_that_it_was_skipped_and_why() {
        let account = skipped("hosts need root");
        assert_eq!(account.how, "On real sockets: skipped: hosts need root.");
        assert_eq!(account.claims[0].holds, ClaimVerdict::Open);
    }

    fn point(protocol: &'static str, members: usize, far: bool, figure: f64) -> UniformResult {
        let found = LanResult {
            members,
            delivered_mbps: 1.0,
            least_and_most_mbps: [1.0; 2],
            own_mbps: vec![1.0; members],
            course_mbps: Vec::new(),
            increase_ns: None,
            latency_ns: Latency { mean: figure * 1e6, ..Latency::default() },
            messages: 1,
            lost: LanLosses::default(),
            datagrams: 1,
            processor: 0.5,
            delivered_per_s: figure,
            processor_us_per_delivery: 1.0,
            datagrams_per_message: 1.0,
            sent_per_message: std::collections::BTreeMap::new(),
        };
        UniformResult { protocol, far, found }
    }

    #[test]
    fn medians_are_compared_with_the_best_of_the_others() {
        let mut seen = Vec::new();
        for members in SIZES {
            for other in &PROTOCOLS[1..] {
                let best = other.name() == SB_URCAST.name();
                seen.push(point(other.name(), members, false, if best { 100.0 } else { 80.0 }));
                seen.push(point(other.name(), members, true, if best { 50.0 } else { 90.0 }));
            }
            for round in [0.0, 60.0, 300.0] {
                seen.push(point(TOTO.name(), members, false, round));
                seen.push(point(TOTO.name(), members, true, round));
            }
        }
        assert_eq!(parts(&seen, false), [(4, 0.6), (8, 0.6)]);
        assert_eq!(parts(&seen, true), [(4, 1.2), (8, 1.2)]);
        let holds: Vec<_> = claims(&seen).into_iter().map(|claim| claim.holds).collect();
        assert_eq!(holds, [ClaimVerdict::Yes, ClaimVerdict::No]);
        assert!(claims(&[]).iter().all(|claim| claim.holds == ClaimVerdict::No));
    }
}
