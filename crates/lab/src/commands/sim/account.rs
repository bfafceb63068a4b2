//! A failing run made small, and told so that a person can follow it.

use super::judge::{Judged, What, judge_again};
use super::trial::{Trial, count};
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, GroupSet, MsgId, Pid, Span, Time};
use amcast_sim::{Fault, FaultTime, RunRecord, Strike, shrink};
use std::cell::Cell;
use std::fmt::Write as _;

/// How many smaller runs are tried.
const TRIES: usize = 600;

/// How many things may happen in all smaller runs together, so that making a run smaller takes
/// seconds also where each runs into its time limit.
const EVENTS_MAX: u64 = 20_000_000;

/// How many events of the smaller run are told: so many of the first, and of the last.
const TOLD: usize = 30;

/// What is told of a process that dies.
const CRASHES: &str = "crashes";

/// What is wrong, what the smallest run is in which it still is, and what happens there.
pub(super) fn account(trial: &Trial, judged: &Judged) -> String {
    let (Some(wrong), Some(recorded)) = (&judged.wrong, &judged.recorded) else {
        return String::new();
    };
    let small = smaller(trial, recorded, wrong.what);
    let cluster = trial.config.cluster();
    let mut lines = Vec::new();
    let again = judge_again(trial, &small, &mut |event| lines.extend(line(event, cluster))).ok();
    for (t, p, lost) in again.iter().flat_map(|judged| &judged.machines) {
        let crash = told(*t, *p, CRASHES, cluster);
        let how =
            format!("{CRASHES} with its machine, and loses {}", count(*lost as usize, "record"));
        let lines = lines.iter_mut().filter(|line| **line == crash);
        lines.for_each(|line| *line = told(*t, *p, &how, cluster));
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
    for Strike { at, fault } in &small.plan.strikes {
        let _ = writeln!(text, "  fault {}: {}", when(*at), fault_text(fault, cluster));
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

/// The smallest run found in which `what` is still wrong.
fn smaller(trial: &Trial, run: &RunRecord, what: What) -> RunRecord {
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

/// What a fault does, in words.
pub(super) fn fault_text(fault: &Fault, cluster: &ClusterShape) -> String {
    let name = |p: &Pid| cluster.name(*p).to_string();
    let us = |span: &Span| format!("{:.3} us", span.0 as f64 / 1e3);
    match fault {
        Fault::Crash { p, mid_step, down } => format!(
            "{} dies{}, {}",
            name(p),
            if *mid_step { " in the middle of a step" } else { "" },
            down.as_ref().map_or("for good".to_string(), |span| format!("for {}", us(span)))
        ),
        Fault::Power { outages, lost } => {
            let dies = |(p, down): &(Pid, Option<Span>)| {
                let back =
                    down.as_ref().map_or("for good".to_string(), |s| format!("for {}", us(s)));
                format!("{} {back}", name(p))
            };
            let dies: Vec<_> = outages.iter().map(dies).collect();
            let lost = lost.map_or(String::new(), |n| format!(", with at most {n} records each"));
            format!("the machines of some fail{lost}: {}", dies.join(", "))
        }
        Fault::Stall { p, span } => {
            format!("nothing that {} wrote becomes durable for {}", name(p), us(span))
        }
        Fault::Full { p, span } => format!("the disk of {} is full for {}", name(p), us(span)),
        Fault::Replace { p, span } => {
            format!("{} loses its machine and its disk, and is back after {}", name(p), us(span))
        }
        Fault::Damage { p, .. } => {
            format!("a record of {} cannot be read any more", name(p))
        }
        Fault::Checkpoint { p } => format!("the application of {} takes a checkpoint", name(p)),
        Fault::Leave { p, patience, down } => format!(
            "{} is asked to leave its group within {}, and stops {}",
            name(p),
            us(patience),
            down.as_ref().map_or("for good".to_string(), |span| format!("for {}", us(span)))
        ),
        Fault::Pause { p, span } => format!("{} stands still for {}", name(p), us(span)),
        Fault::Partition { side, both, span } => {
            let side: Vec<_> = side.iter().map(name).collect();
            let from = if *both { "to or from" } else { "from" };
            format!("nothing passes {from} {} for {}", side.join(", "), us(span))
        }
        Fault::Cut { a, b, span } => {
            format!("the way between {} and {} fails for {}", name(a), name(b), us(span))
        }
        Fault::Way { from, to, span } => {
            format!("nothing passes from {} to {} for {}", name(from), name(to), us(span))
        }
        Fault::Suspicion { to, of, span } => {
            format!("{} wrongly suspects {} for {}", name(to), name(of), us(span))
        }
        Fault::WrongLeader { to, group, leader, span } => {
            format!(
                "{} takes {} for the leader of {group} for {}",
                name(to),
                name(leader),
                us(span)
            )
        }
    }
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
    Some(told(*t, *p, &does, cluster))
}

fn told(t: Time, p: Pid, does: &str, cluster: &ClusterShape) -> String {
    format!("  {} {:>6} {does}\n", clock(t), cluster.name(p).to_string())
}
