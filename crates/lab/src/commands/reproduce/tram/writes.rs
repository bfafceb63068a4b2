//! `tram-fig2`: the latency of writes against the number of their targets.

use super::{MODEL, chart, claim, text};
use crate::bench::infiniband::Infiniband;
use crate::bench::remote_writes::{TARGETS_MAX, WriteCost, shared, simulated};
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine};
use crate::commands::reproduce::page::{ExperimentAccount, PagePart, PaperClaim};
use maud::html;
use serde_json::json;

/// How far from a straight line the writes that are awaited one by one may be, as a part of it.
const STRAIGHT: f64 = 0.25;

/// Figure 2.
pub(in crate::commands::reproduce) fn run(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    let machines = Infiniband::PAPER;
    let modelled: Vec<WriteCost> = (1..=TARGETS_MAX).map(|n| simulated(&machines, n)).collect();
    let rounds = if session.quick { (2_000, 5) } else { (20_000, 20) };
    let here = shared(TARGETS_MAX, rounds).map_err(Failure::Failed)?;
    let drawn = |costs: &[WriteCost], unit: f64| {
        let line = |name: &str, of: fn(&WriteCost) -> f64| ChartLine {
            name: name.to_string(),
            points: costs.iter().map(|c| (c.targets as f64, of(c) / unit)).collect(),
        };
        [line("one by one", |c| c.one_by_one_ns), line("together", |c| c.together_ns)]
    };
    let axes = |title, y| Axes { title, x: "targets", y };
    let parts = vec![
        chart(
            "sim",
            &axes("writes to several targets, simulated InfiniBand", "microseconds"),
            &drawn(&modelled, 1e3),
        )?,
        chart(
            "shm",
            &axes("writes to several targets, this machine's memory", "nanoseconds"),
            &drawn(&here, 1.0),
        )?,
        table(&modelled, &here),
    ];
    let mut claims = claims("simulated (as the model's constants have it)", &modelled);
    claims.extend(self::claims("this machine", &here));
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} Time is from the first post until the last completion is taken. The curves of the paper's figure are \
             not in its text, so their shape is compared and no number. On this machine: one line in each target's guarded \
             region; targets are looked at all the time by another core; means of many, the lowest of some rounds."
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({ "machines": machines, "simulated": modelled, "shared": here }),
    })
}

fn claims(where_: &str, costs: &[WriteCost]) -> Vec<PaperClaim> {
    let [Some(one), Some(last)] = [costs.first(), costs.last()] else { return Vec::new() };
    let slope = last.one_by_one_ns / last.targets as f64;
    let off = |c: &WriteCost| (c.one_by_one_ns / c.targets as f64 / slope - 1.0).abs();
    let beyond: Vec<&WriteCost> = costs.iter().filter(|c| c.targets >= 2).collect();
    let worst = beyond.iter().map(|c| off(c)).fold(0.0, f64::max);
    let times = last.one_by_one_ns / last.together_ns;
    vec![
        claim(
            format!("{where_}: awaited one by one, the latency grows linearly with the targets"),
            format!(
                "{} ns for each of {} targets; with 2 and more within {:.0} % of that",
                text(slope),
                last.targets,
                worst * 100.0
            ),
            worst <= STRAIGHT,
            "The core that looks at the targets comes round to each line the sooner, the fewer there are, and takes it from the \
             writer; and the machine is shared with others.",
        ),
        claim(
            format!("{where_}: awaited together, the latency is significantly lower"),
            format!(
                "with {} targets {} times as fast: {} ns in place of {} ns; one target takes {} ns",
                last.targets,
                text(times),
                text(last.together_ns),
                text(last.one_by_one_ns),
                text(one.together_ns)
            ),
            times >= 2.0,
            "A write over shared memory is done when it is posted: there is no travel to wait for, and only the fence and \
             the collecting of answers are shared.",
        ),
    ]
}

fn table(modelled: &[WriteCost], here: &[WriteCost]) -> PagePart {
    let row = |(m, h): (&WriteCost, &WriteCost)| {
        vec![
            html! { (m.targets) },
            html! { (text(m.one_by_one_ns / 1e3)) },
            html! { (text(m.together_ns / 1e3)) },
            html! { (text(h.one_by_one_ns)) },
            html! { (text(h.together_ns)) },
        ]
    };
    let head = [
        "targets",
        "simulated, one by one, us",
        "simulated, together, us",
        "here, one by one, ns",
        "here, together, ns",
    ];
    PagePart::Table {
        caption: "Figure 2".to_string(),
        head: head.map(String::from).to_vec(),
        rows: modelled.iter().zip(here).map(row).collect(),
    }
}
