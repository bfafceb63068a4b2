//! A run in which a faulty process shows an execution pattern, or which breaks a specification, as a sheet
//! for people and as a history.

use crate::commands::Failure;
use crate::commands::sheet::sheet;
use crate::commands::sim::judge::judge;
use crate::commands::sim::trial::Trial;
use amcast_check::{
    Behaviour, History, Msg, Proc, PropertyVerdict, Specification, check, execution_patterns,
};
use maud::{Markup, html};
use std::collections::BTreeMap;
use std::path::Path;

/// Makes the run again and writes `NAME.jsonl`, its history, and `NAME.html`, which shows what the
/// process `shows` picks did.
pub(super) fn write(
    directory: &Path,
    name: &str,
    title: &str,
    trial: &Trial,
    shows: impl Fn(&Behaviour) -> bool,
) -> Result<(), Failure> {
    let history = format!("{name}.jsonl");
    let judged = judge(trial, Some(&directory.join(&history)))?;
    let behaviours = execution_patterns(&judged.history).map_err(Failure::Failed)?;
    let found = behaviours.iter().find(|b| shows(b)).ok_or_else(|| {
        Failure::Failed(format!("{}: the run does not show it when made again", trial.replay()))
    })?;
    let body = html! {
        p {
            "The process " b { (judged.history.process_name(found.process)) }
            " fails, or the group leaves it out; what it delivered until then is below, under what \
             correct processes deliver."
        }
        (legend())
        (order(&judged.history, found.process))
        p { "The run again: " code { (trial.replay()) } }
        p { "Its history: " a href=(history) { (history) } ", for " code { "amcast check" } "." }
    };
    super::write(&directory.join(format!("{name}.html")), &sheet(title, &body))
}

/// Makes the run again and writes `NAME.jsonl`, its history, and `NAME.html`, which says how it breaks
/// `stronger`, a specification that its protocol does not promise.
pub(super) fn write_broken(
    directory: &Path,
    name: &str,
    title: &str,
    trial: &Trial,
    stronger: Specification,
) -> Result<(), Failure> {
    let history = format!("{name}.jsonl");
    let judged = judge(trial, Some(&directory.join(&history)))?;
    let findings = check(&judged.history, &stronger.properties()).findings;
    let found = findings.into_iter().find_map(|(property, verdict)| match verdict {
        PropertyVerdict::Violated(why) => Some((property, why)),
        _ => None,
    });
    let (property, why) = found.ok_or_else(|| {
        Failure::Failed(format!("{}: the run does not break it when made again", trial.replay()))
    })?;
    let named = why.processes();
    let faulty: Vec<Proc> = judged
        .history
        .processes()
        .filter(|p| !judged.history.is_correct(*p))
        .filter(|p| named.contains(judged.history.process_name(*p)))
        .collect();
    let [run_again, check_again] = commands(trial, stronger, &history);
    let body = html! {
        p { "The run breaks " (property) " of " (stronger) ", which its protocol does not promise: " (why) "." }
        p { "The deliveries of each failing process are below, under those of correct processes." }
        (legend())
        @for p in faulty { (order(&judged.history, p)) }
        p { "The run again, and its judgement: " code { (run_again) } " and " code { (check_again) } "." }
        p { "Its history: " a href=(history) { (history) } "." }
    };
    super::write(&directory.join(format!("{name}.html")), &sheet(title, &body))
}

/// The commands that make a run again and judge it by a specification that its protocol does not promise.
pub(super) fn commands(trial: &Trial, stronger: Specification, history: &str) -> [String; 2] {
    let program = std::env::args().next().unwrap_or_else(|| "amcast".to_string());
    [
        format!("{} --history {history}", trial.replay()),
        format!("{program} check {history} --require '{stronger}'"),
    ]
}

fn legend() -> Markup {
    html! {
        p {
            span.alone { "delivered by no correct process (EP2)" } " "
            span.gap { "skipped (EP3)" } " "
            span.late { "delivered after one that comes later (EP4)" }
        }
    }
}

/// The deliveries of correct processes and those of `p`, beside each other.
fn order(history: &History, p: Proc) -> Markup {
    let correct: Vec<Msg> = history
        .processes()
        .filter(|q| history.is_correct(*q))
        .map(|q| history.delivered(q))
        .max_by_key(Vec::len)
        .unwrap_or_default();
    let place: BTreeMap<Msg, usize> = correct.iter().enumerate().map(|(n, m)| (*m, n)).collect();
    let own = history.delivered(p);
    let highest = own.iter().filter_map(|m| place.get(m)).max().map_or(0, |n| n + 1);
    let name = |m: &Msg| history.message_name(*m).into_owned();
    let mut above = None;
    let delivered: Vec<(String, &str)> = own
        .iter()
        .map(|m| {
            let class = match place.get(m) {
                None => "alone",
                Some(n) if above.is_some_and(|a| a > *n) => "late",
                Some(_) => "",
            };
            above = above.max(place.get(m).copied());
            (name(m), class)
        })
        .collect();
    let skipped = |m: &Msg| place[m] < highest && !own.contains(m);
    html! {
        table.order {
            tr {
                th { "correct" }
                @for m in correct.iter().take(highest + 5) {
                    td class=[skipped(m).then_some("gap")] { (name(m)) }
                }
            }
            tr {
                th { (history.process_name(p)) }
                @for (m, class) in &delivered { td class=(class) { (m) } }
            }
        }
    }
}
