//! A failing run made small, and told so that a person can follow it.

use super::judge::{JudgedRun, WrongKind, judge, judge_again};
use super::trial::{Trial, count};
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, GroupSet, MsgId, Pid, Time};
use amcast_sim::{FaultTime, RunRecord, Strike, shrink};
use std::cell::Cell;
use std::fmt::Write as _;

/// How many smaller runs are tried.
const TRIES: usize = 600;

/// How many things may happen in all smaller runs together, so that making a run smaller takes
/// seconds also where each runs into its time limit.
const EVENTS_MAX: u64 = 20_000_000;

/// How many events of the smaller run are printed: so many of the first, and of the last.
const TOLD: usize = 30;

/// The text for a process that crashes.
const CRASHES: &str = "crashes";

/// The fault, the smallest run that still shows it, and the events of that run.
pub(super) fn account(trial: &Trial, judged: &JudgedRun) -> String {
    let (Some(wrong), Some(recorded)) = (&judged.wrong, &judged.recorded) else {
        return String::new();
    };
    let fewer = trial.service.and_then(|_| with_fewer_calls(trial, wrong.what));
    let (trial, recorded) = match &fewer {
        Some((trial, recorded)) => (trial, recorded),
        None => (trial, recorded),
    };
    let small = smaller(trial, recorded, wrong.what);
    let cluster = trial.config.cluster();
    let mut lines = Vec::new();
    let again = judge_again(trial, &small, &mut |event| lines.extend(line(event, cluster))).ok();
    for (t, p, lost) in again.iter().flat_map(|judged| &judged.machines) {
        let crash = action_line(*t, *p, CRASHES, cluster);
        let how =
            format!("{CRASHES} with its machine, and loses {}", count(*lost as usize, "record"));
        let lines = lines.iter_mut().filter(|line| **line == crash);
        lines.for_each(|line| *line = action_line(*t, *p, &how, cluster));
    }
    let says = again.and_then(|j| j.wrong).map_or_else(|| wrong.says.clone(), |w| w.says);
    let mut text = format!("{}: {}\n", trial.which(), wrong.what.sentence());
    let _ = writeln!(text, "in: {}", trial.shape());
    let size = |run: &RunRecord| {
        let (casts, faults) = (run.plan.casts.len(), run.plan.strikes.len());
        let (casts, faults) = (count(casts, "multicast"), count(faults, "fault"));
        format!("{casts}, {faults}, {}", count(run.choices.deviations(), "unusual choice"))
    };
    let _ = writeln!(text, "made smaller: from {} to {}", size(recorded), size(&small));
    if trial.service.is_some() {
        let _ = writeln!(text, "with {} in all", count(trial.settings.messages, "call"));
    }
    for Strike { at, fault } in &small.plan.strikes {
        let _ = writeln!(text, "  fault {}: {}", when(*at), fault.words(cluster));
    }
    let last = lines.len().saturating_sub(TOLD).max(TOLD);
    lines.iter().take(TOLD).for_each(|line| text.push_str(line));
    if last > TOLD {
        let _ = writeln!(text, "  .. {} more ..", last - TOLD);
    }
    lines.iter().skip(last).for_each(|line| text.push_str(line));
    text.push_str(&says);
    text
}

/// The run of a trial of a service with as few calls as were found with which `what` is still wrong, if there are fewer.
fn with_fewer_calls(trial: &Trial, what: WrongKind) -> Option<(Trial, RunRecord)> {
    let mut best: Option<(Trial, RunRecord)> = None;
    let (mut calls, mut step) = (trial.settings.messages, trial.settings.messages / 2);
    while step > 0 {
        let mut fewer = trial.clone();
        fewer.settings.messages = calls.saturating_sub(step).max(1);
        let judged = judge(&fewer, None).ok()?;
        let is_same = judged.wrong.is_some_and(|wrong| wrong.what == what);
        match judged.recorded.filter(|_| is_same && fewer.settings.messages < calls) {
            Some(recorded) => {
                calls = fewer.settings.messages;
                best = Some((fewer, recorded));
            }
            None => step /= 2,
        }
    }
    best
}

/// The smallest run found in which `what` is still wrong.
fn smaller(trial: &Trial, run: &RunRecord, what: WrongKind) -> RunRecord {
    let events = Cell::new(0);
    shrink(run.clone(), TRIES, &mut |candidate| {
        if events.get() > EVENTS_MAX {
            return false;
        }
        let judged = judge_again(trial, candidate, &mut |_| {});
        judged.is_ok_and(|judged| {
            events.set(events.get() + judged.events);
            judged.wrong.is_some_and(|wrong| wrong.what == what)
        })
    })
}

fn when(at: FaultTime) -> String {
    match at {
        FaultTime::Time(at) => format!("at {}", clock(at)),
        FaultTime::Event(n) => format!("before event {n}"),
    }
}

fn clock(t: Time) -> String {
    format!("{:>10.3} us", t.0 as f64 / 1e3)
}

/// A line for an event that tells something; participations do not.
fn line(event: &TraceEvent<'_>, cluster: &ClusterShape) -> Option<String> {
    let message = |m: MsgId| format!("{}:{}", cluster.name(m.sender), m.seq);
    let groups = |set: GroupSet| {
        let names: Vec<_> = set.iter().map(|g| g.to_string()).collect();
        names.join(", ")
    };
    let (t, p, does) = match event {
        TraceEvent::Cast { t, p, m, dst } => {
            (t, p, format!("casts {} to {}", message(*m), groups(*dst)))
        }
        TraceEvent::Deliver { t, p, m } => (t, p, format!("delivers {}", message(*m))),
        TraceEvent::Crash { t, p } => (t, p, CRASHES.to_string()),
        TraceEvent::Recover { t, p } => (t, p, "starts again".to_string()),
        _ => return None,
    };
    Some(action_line(*t, *p, &does, cluster))
}

fn action_line(t: Time, p: Pid, does: &str, cluster: &ClusterShape) -> String {
    format!("  {} {:>6} {does}\n", clock(t), cluster.name(p).to_string())
}
