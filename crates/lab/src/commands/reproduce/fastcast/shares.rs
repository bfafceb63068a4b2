//! `fastcast-fig5`: four members whose demand changes, and the bandwidth that follows it.

use super::{MODEL, parameters, sockets};
use crate::bench::Latency;
use crate::bench::broadcasts::{
    BroadcastLoad, COURSE_PER_SECOND, LINK_MBPS, SimulatedBroadcasts, TimedBroadcast, run,
};
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use amcast_core::rng::Rng;
use amcast_core::{Pid, Span, Time};
use amcast_protocols::fastcast::FastCast;
use serde_json::json;

pub(super) const MEMBERS: usize = 4;

pub(super) const PHASES: usize = 6;

/// The demand of each member in megabits a second, phase by phase: first a quarter of what all links together can
/// carry, less a little; then the members 0 and 1 need less, 2 more, and at last 0 more and 2 less.
pub(super) const DEMAND_MBPS: [[f64; MEMBERS]; PHASES] = [
    [300.0, 300.0, 300.0, 300.0],
    [100.0, 300.0, 300.0, 300.0],
    [100.0, 150.0, 300.0, 300.0],
    [100.0, 150.0, 450.0, 300.0],
    [400.0, 150.0, 200.0, 300.0],
    [400.0, 150.0, 200.0, 300.0],
];

/// Bytes of a message, at least and at most.
pub(super) const MESSAGE_BYTES: [u64; 2] = [1_000, 6_000];

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
    let course = DemandCourse::new(&found.course_mbps, phase, &DEMAND_MBPS);
    let title = "throughput of four members whose demand changes";
    let svg = course.drawn(title)?;
    let real = sockets::follow(session)?;
    let mut parts =
        vec![PagePart::Chart { name: "throughput".to_string(), caption: title.to_string(), svg }];
    parts.extend(real.parts);
    let mut claims = claims("", &course, found.increase_ns.as_ref());
    claims.extend(real.claims);
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} Members broadcast messages of 1 to 6 kB at their own rates, which change every {:.1} s, so that all \
             together never need more than the links can carry. The paper's phases take ten seconds. {}",
            phase.0 as f64 / 1e9,
            real.how
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({
            "found": found,
            "demand_mbps": DEMAND_MBPS,
            "phase_ns": phase.0,
            "link_mbps": LINK_MBPS,
            "sockets": real.figures,
        }),
    })
}

/// The throughput over the time beside the demand, by tenths of a second.
pub(super) struct DemandCourse<'a> {
    achieved: &'a [f64],
    demanded: Vec<f64>,
}

impl<'a> DemandCourse<'a> {
    /// So much was achieved in each step, where members demanded so much in each phase.
    pub(super) fn new(achieved: &'a [f64], phase: Span, demand: &[[f64; MEMBERS]; PHASES]) -> Self {
        let sums = demand.map(|of| of.iter().sum::<f64>());
        let of = |step: usize| {
            let number = step as u64 * Span::secs(1).0 / COURSE_PER_SECOND / phase.0;
            sums[(number as usize).min(PHASES - 1)]
        };
        Self { achieved, demanded: (0..achieved.len()).map(of).collect() }
    }

    pub(super) fn drawn(&self, title: &str) -> Result<String, Failure> {
        let seconds = |at: usize| at as f64 / COURSE_PER_SECOND as f64;
        let line = |name: &str, all: &[f64]| ChartLine {
            name: name.to_string(),
            points: all.iter().enumerate().map(|(at, mbps)| (seconds(at), *mbps)).collect(),
        };
        let all = [line("achieved", self.achieved), line("demanded", &self.demanded)];
        lines(&Axes { title, x: "seconds", y: "Mbit/s" }, &all)
    }

    /// The part of the demand that was achieved, without what is above it in a step. The last step is not whole.
    fn part(&self) -> f64 {
        let whole = self.achieved.len().saturating_sub(1);
        let steps = self.achieved.iter().zip(&self.demanded[..whole]);
        let (achieved, wanted) =
            steps.fold((0.0, 0.0), |(a, w), (mbps, demand)| (a + mbps.min(*demand), w + demand));
        achieved / wanted
    }
}

/// The paper's claims, about a course that was found there.
pub(super) fn claims(
    place: &str,
    course: &DemandCourse<'_>,
    increase: Option<&Latency>,
) -> Vec<PaperClaim> {
    let part = course.part();
    let increase = PaperClaim {
        paper: format!("a member may use a larger share 3.8 ms after it asked, on average{place}"),
        found: increase.map_or("nobody asked".to_string(), |waited| {
            let most = waited.max as f64 / 1e6;
            format!("{:.2} ms on average, {most:.2} ms at most", waited.mean / 1e6)
        }),
        holds: increase
            .map_or(ClaimVerdict::Open, |waited| ClaimVerdict::when(waited.mean < 3.8e6)),
    };
    vec![
        PaperClaim {
            paper: format!("the achieved throughput is very close to the optimal one{place}"),
            found: format!("{:.1} % of what is demanded, by tenths of a second", part * 100.0),
            holds: ClaimVerdict::when(part > 0.95),
        },
        increase,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_the_demand_makes_up_for_nothing() {
        let demand = [[10.0; MEMBERS]; PHASES];
        let course = DemandCourse::new(&[50.0, 20.0, 40.0, 7.0], Span::millis(100), &demand);
        assert!((course.part() - 100.0 / 120.0).abs() < 1e-9, "{}", course.part());
        let claims = claims("", &course, None);
        assert_eq!(claims[0].holds, ClaimVerdict::No);
        assert_eq!(claims[1].holds, ClaimVerdict::Open);
    }

    #[test]
    fn the_demand_of_a_step_is_that_of_its_phase() {
        let mut demand = [[0.0; MEMBERS]; PHASES];
        (demand[0], demand[1]) = ([1.0; MEMBERS], [2.0; MEMBERS]);
        let course = DemandCourse::new(&[0.0; 5], Span::millis(200), &demand);
        assert_eq!(course.demanded, [4.0, 4.0, 8.0, 8.0, 0.0]);
    }
}
