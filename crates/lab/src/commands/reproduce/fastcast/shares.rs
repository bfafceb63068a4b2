//! `fastcast-fig5`: four members whose demand changes, and the bandwidth that follows it.

use super::{MODEL, parameters};
use crate::bench::broadcasts::{
    BroadcastLoad, BroadcastResult, COURSE_PER_SECOND, LINK_MBPS, SimulatedBroadcasts,
    TimedBroadcast, run,
};
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use amcast_core::rng::Rng;
use amcast_core::{Pid, Span, Time};
use amcast_protocols::fastcast::FastCast;
use serde_json::json;

const MEMBERS: usize = 4;

/// The demand of each member in megabits a second, phase by phase: first a quarter of what all links together can
/// carry, less a little; then the members 0 and 1 need less, 2 more, and at last 0 more and 2 less.
const DEMAND_MBPS: [[f64; MEMBERS]; 6] = [
    [300.0, 300.0, 300.0, 300.0],
    [100.0, 300.0, 300.0, 300.0],
    [100.0, 150.0, 300.0, 300.0],
    [100.0, 150.0, 450.0, 300.0],
    [400.0, 150.0, 200.0, 300.0],
    [400.0, 150.0, 200.0, 300.0],
];

/// Bytes of a message, at least and at most.
const MESSAGE_BYTES: [u64; 2] = [1_000, 6_000];

/// The broadcasts of all members.
fn load(phase: Span) -> Vec<TimedBroadcast> {
    let mut rng = Rng::new(5);
    let mut all = Vec::new();
    for (number, demand) in DEMAND_MBPS.iter().enumerate() {
        let begins = Time::ZERO + phase.times(number as u64);
        for (member, mbps) in demand.iter().enumerate() {
            let mut after = 0.0;
            while (after as u64) < phase.0 {
                let [least, most] = MESSAGE_BYTES;
                let bytes = (least + rng.below(most - least + 1)) as usize;
                let at = begins + Span(after as u64);
                all.push(TimedBroadcast { at, sender: Pid(member as u32), bytes });
                after += bytes as f64 * 8e3 / mbps;
            }
        }
    }
    all
}

/// Figure 5.
pub(in crate::commands::reproduce) fn follow(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    let phase = if session.quick { Span::millis(500) } else { Span::secs(2) };
    let world = SimulatedBroadcasts {
        members: MEMBERS,
        set: parameters(&[("lane", "multicast")]),
        payload: 0,
        load: BroadcastLoad::Timed(load(phase)),
    };
    let found = run(&FastCast, &world).map_err(Failure::Failed)?;
    let seconds = |at: usize| at as f64 / COURSE_PER_SECOND as f64;
    let demanded: Vec<(f64, f64)> = (0..found.course_mbps.len())
        .map(|at| {
            let number = (seconds(at) / (phase.0 as f64 / 1e9)) as usize;
            let demand = DEMAND_MBPS[number.min(DEMAND_MBPS.len() - 1)];
            (seconds(at), demand.iter().sum())
        })
        .collect();
    let achieved = found.course_mbps.iter().enumerate().map(|(at, m)| (seconds(at), *m)).collect();
    let title = "throughput of four members whose demand changes";
    let axes = Axes { title, x: "seconds", y: "Mbit/s" };
    let drawn = [
        ChartLine { name: "achieved".to_string(), points: achieved },
        ChartLine { name: "demanded".to_string(), points: demanded.clone() },
    ];
    let svg = lines(&axes, &drawn)?;
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} Members broadcast messages of 1 to 6 kB at their own rates, which change every {:.1} s, so that all \
             together never need more than the links can carry. The paper's phases take ten seconds.",
            phase.0 as f64 / 1e9
        ),
        parts: vec![PagePart::Chart {
            name: "throughput".to_string(),
            caption: title.to_string(),
            svg,
        }],
        claims: claims(&found, &demanded),
        failures: Vec::new(),
        figures: json!({ "found": found, "demand_mbps": DEMAND_MBPS, "phase_ns": phase.0, "link_mbps": LINK_MBPS }),
    })
}

fn claims(found: &BroadcastResult, demanded: &[(f64, f64)]) -> Vec<PaperClaim> {
    // The last tenth of a second is not whole.
    let whole = demanded.len().saturating_sub(1);
    let (achieved, wanted) = found
        .course_mbps
        .iter()
        .zip(&demanded[..whole])
        .fold((0.0, 0.0), |(a, w), (mbps, (_, demand))| (a + mbps.min(*demand), w + demand));
    let part = achieved / wanted;
    let increase = match &found.increase_ns {
        Some(increase) => PaperClaim {
            paper: "a member may use a larger share 3.8 ms after it asked, on average".to_string(),
            found: format!(
                "{:.2} ms on average, {:.2} ms at most",
                increase.mean / 1e6,
                increase.max as f64 / 1e6
            ),
            holds: ClaimVerdict::when(increase.mean < 3.8e6),
        },
        None => PaperClaim {
            paper: "a member may use a larger share 3.8 ms after it asked, on average".to_string(),
            found: "nobody asked".to_string(),
            holds: ClaimVerdict::Open,
        },
    };
    vec![
        PaperClaim {
            paper: "the achieved throughput is very close to the optimal one".to_string(),
            found: format!("{:.1} % of what is demanded, by tenths of a second", part * 100.0),
            holds: ClaimVerdict::when(part > 0.95),
        },
        increase,
    ]
}
