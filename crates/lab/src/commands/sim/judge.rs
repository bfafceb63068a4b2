//! A run, and what the checker says of it.

use super::service::{self, TrialRun};
use super::trial::Trial;
use crate::commands::Failure;
use amcast::simulate::Finding;
use amcast_check::{
    CheckReport as Findings, Counterexample, History, Property, PropertyVerdict, check,
};
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, ConfigError, MsgId, Overlay, Pid, Time};
use amcast_sim::run::record;
use amcast_sim::{Breach, Failover, RunOutcome, RunRecord, RunReport, UnsettledProcess, replay};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The result of a run.
pub(in crate::commands) struct JudgedRun {
    pub(in crate::commands) seed: u64,
    pub(in crate::commands) casts: u64,
    pub(in crate::commands) deliveries: u64,
    pub(in crate::commands) barriers: u64,
    pub(in crate::commands) crashes: u64,
    pub(in crate::commands) simulated_ns: u64,
    /// Machines that failed: when, whose, and how many records were lost.
    pub(in crate::commands) machines: Vec<(Time, Pid, u64)>,
    /// Things that happened in carriers and timers.
    pub(in crate::commands) events: u64,
    pub(in crate::commands) hash: u64,
    pub(in crate::commands) marks: Vec<(&'static str, u64)>,
    pub(in crate::commands) failover: Failover,
    /// The fault, if any.
    pub(in crate::commands) wrong: Option<RunProblem>,
    /// Why a property of the service was not judged, if one was not.
    pub(in crate::commands) not_judged: Option<String>,
    /// The checker's report, as JSON.
    pub(in crate::commands) report: Option<String>,
    /// The history of the run, for the checker.
    pub(in crate::commands) history: History,
    /// The run, if something was wrong.
    pub(in crate::commands) recorded: Option<RunRecord>,
}

/// A fault of a run.
#[derive(Clone, Debug)]
pub(in crate::commands) struct RunProblem {
    pub(in crate::commands) what: WrongKind,
    /// The account of it, for people.
    pub(in crate::commands) says: String,
}

/// The kind of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::commands) enum WrongKind {
    /// This property does not hold.
    Property(Property),
    /// The run did not settle in time.
    Settling,
    /// The protocol broke what it owes its driver.
    Breach,
    /// The protocol stopped itself.
    Assertion,
    /// The events make no sense.
    History,
    /// This property of the service above the protocol does not hold.
    Service(&'static str),
}

impl WrongKind {
    /// In a word: a property's name, or what stopped the run.
    pub(in crate::commands) const fn name(self) -> &'static str {
        match self {
            Self::Property(property) => property.name(),
            Self::Settling => "settling",
            Self::Breach => "breach",
            Self::Assertion => "assertion",
            Self::History => "history",
            Self::Service(property) => property,
        }
    }

    /// As the end of a sentence about a run.
    pub(in crate::commands) fn sentence(self) -> String {
        match self {
            Self::Property(property) => format!("{property} does not hold"),
            Self::Settling => "messages are not delivered in time".to_string(),
            Self::Breach => "the protocol breaks what it owes its driver".to_string(),
            Self::Assertion => "the protocol stops itself by an assertion".to_string(),
            Self::History => "the events make no sense".to_string(),
            Self::Service(property) => {
                format!("the service does not keep what it owes: {property}")
            }
        }
    }
}

/// Where the events of a run go: to the checker, and to a file if one is given.
struct EventSink<'a> {
    history: History,
    cluster: &'a ClusterShape,
    overlay: Option<&'a Overlay>,
    refused: Option<String>,
    file: Option<BufWriter<File>>,
    unwritten: Option<std::io::Error>,
}

impl EventSink<'_> {
    fn push(&mut self, event: &TraceEvent<'_>) {
        // Readers of histories know deliveries; the simulator itself checks the early ones.
        if matches!(event, TraceEvent::Early { .. }) {
            return;
        }
        if let Err(e) = self.history.push_event(event, self.cluster) {
            self.refused.get_or_insert(e.to_string());
        }
        let line = event.json_in(self.cluster, self.overlay);
        if let Some(Err(e)) = self.file.as_mut().map(|f| writeln!(f, "{line}")) {
            self.unwritten.get_or_insert(e);
        }
    }
}

/// Makes the run of a trial and judges it by what the protocol promises. With a path, the history
/// is written there.
pub(in crate::commands) fn judge(trial: &Trial, path: Option<&Path>) -> Result<JudgedRun, Failure> {
    let fail = |e: std::io::Error| {
        Failure::Failed(format!("{}: {e}", path.unwrap_or(Path::new("")).display()))
    };
    let file = path.map(File::create).transpose().map_err(fail)?.map(BufWriter::new);
    let mut sink = sink(trial, file);
    let mut recorded = None;
    let mut above = ServiceResult::default();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        run(trial, &mut recorded, &mut above, &mut |event| sink.push(event))
    }));
    let flushed = sink.file.take().map_or(Ok(()), |mut file| file.flush());
    sink.unwritten.take().map_or(flushed, Err).map_err(fail)?;
    judged(trial, ran, recorded, sink).map(|judged| above.add_to(judged))
}

/// Makes the run of a trial. The results of the service above the protocol, if there is one, go to
/// `above`.
fn run(
    trial: &Trial,
    recorded: &mut Option<RunRecord>,
    above: &mut ServiceResult,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<RunReport, ConfigError> {
    let Trial { entry, config, settings, seed, .. } = trial;
    let Some(service) = trial.service else {
        return record(*entry, config, settings, *seed, recorded, sink);
    };
    let run = service::run(trial, service, TrialRun::New(recorded), sink)?;
    (above.findings, above.not_judged) = (run.findings, run.not_judged);
    above.counts = run.counts;
    Ok(run.report)
}

/// The results of the service above a protocol.
#[derive(Default)]
struct ServiceResult {
    findings: Vec<Finding>,
    not_judged: Vec<Finding>,
    /// How often something happened there.
    counts: BTreeMap<&'static str, u64>,
}

impl ServiceResult {
    /// A fault of the service takes precedence: its clients' view counts.
    fn add_to(self, mut judged: JudgedRun) -> JudgedRun {
        if let Some(Finding { what, says }) = self.findings.into_iter().next() {
            judged.wrong = Some(RunProblem { what: WrongKind::Service(what), says });
        }
        let first = self.not_judged.into_iter().next();
        judged.not_judged = first.map(|Finding { what, says }| format!("{what}: {says}"));
        judged.marks.extend(self.counts);
        judged
    }
}

/// Makes a recorded run of a trial again and judges it; its events go to `hear` as well.
pub(in crate::commands) fn judge_again(
    trial: &Trial,
    run: &RunRecord,
    hear: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<JudgedRun, Failure> {
    let mut sink = sink(trial, None);
    let mut above = ServiceResult::default();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut to = |event: &TraceEvent<'_>| {
            hear(event);
            sink.push(event);
        };
        let Some(service) = trial.service else {
            return replay(trial.entry, &trial.config, run, &mut to);
        };
        let again = service::run(trial, service, TrialRun::Again(run), &mut to)?;
        above.findings = again.findings;
        Ok(again.report)
    }));
    judged(trial, ran, Some(run.clone()), sink).map(|judged| above.add_to(judged))
}

fn sink(trial: &Trial, file: Option<BufWriter<File>>) -> EventSink<'_> {
    let cluster = trial.config.cluster();
    let overlay = trial.entry.overlay(&trial.config);
    let mut history = History::new();
    let refused = overlay.and_then(|o| history.arrange(o).err()).map(|e| e.to_string());
    EventSink { history, cluster, overlay, refused, file, unwritten: None }
}

type CaughtRun = std::thread::Result<Result<RunReport, ConfigError>>;

fn judged(
    trial: &Trial,
    ran: CaughtRun,
    recorded: Option<RunRecord>,
    mut sink: EventSink<'_>,
) -> Result<JudgedRun, Failure> {
    let mut judged = JudgedRun {
        seed: trial.seed,
        casts: 0,
        deliveries: sink.history.deliveries(),
        barriers: 0,
        crashes: 0,
        simulated_ns: 0,
        machines: Vec::new(),
        events: 0,
        hash: 0,
        marks: Vec::new(),
        failover: Failover::default(),
        wrong: None,
        not_judged: None,
        report: None,
        history: History::new(),
        recorded: None,
    };
    let stopped = match ran {
        Err(panic) => Some(RunProblem { what: WrongKind::Assertion, says: panic_text(&*panic) }),
        Ok(Err(e)) => return Err(Failure::misuse(e)),
        Ok(Ok(report)) => {
            let stopped = stopped(&report, trial.config.cluster());
            (judged.casts, judged.crashes) = (report.casts, report.crashes);
            judged.barriers = report.barriers;
            (judged.simulated_ns, judged.hash) = (report.time.0, report.hash);
            (judged.events, judged.machines) = (report.events, report.machines);
            judged.marks = report.marks.into_iter().collect();
            judged.failover = report.failover;
            stopped
        }
    };
    let refused = sink.refused.take().map(|says| RunProblem { what: WrongKind::History, says });
    // Messages that are not delivered by the end of a run that did not settle count as never
    // delivered.
    if stopped.as_ref().is_some_and(|w| w.what == WrongKind::Settling) {
        sink.push(&TraceEvent::End);
    }
    let findings = check(&sink.history, trial.entry.about().promises);
    judged.report = Some(findings.json());
    let stop = stopped.or(refused);
    judged.wrong = match (first_violated(&findings), stop) {
        (Some((property, why)), stop) => {
            let stop = stop.map_or(String::new(), |w| format!("\n{}", w.says));
            Some(RunProblem { what: WrongKind::Property(property), says: format!("{why}{stop}") })
        }
        (None, stop) => stop,
    };
    // A service above the protocol may be what is wrong.
    judged.recorded = recorded.filter(|_| judged.wrong.is_some() || trial.service.is_some());
    judged.history = sink.history;
    Ok(judged)
}

fn first_violated(findings: &Findings) -> Option<(Property, &Counterexample)> {
    findings.findings.iter().find_map(|(property, verdict)| match verdict {
        PropertyVerdict::Violated(why) => Some((*property, why)),
        _ => None,
    })
}

/// The fault that ended a run before it had settled.
fn stopped(report: &RunReport, cluster: &ClusterShape) -> Option<RunProblem> {
    match &report.outcome {
        RunOutcome::Settled => None,
        RunOutcome::NotSettled(stuck) => {
            let waiting = stuck.iter().take_while(|s| !s.missing.is_empty() || s.alive && !s.fit);
            let lines: Vec<_> = waiting.map(|s| stuck_text(s, cluster)).collect();
            let (events, time) = (report.events, report.time.0 / 1000);
            let says = format!(
                "the run did not settle in {events} events and {time} simulated microseconds\n{}",
                lines.join("\n")
            );
            Some(RunProblem { what: WrongKind::Settling, says })
        }
        RunOutcome::Breach(breach) => {
            Some(RunProblem { what: WrongKind::Breach, says: breach_text(breach, cluster) })
        }
    }
}

/// The missing deliveries of a process at the end of a run, and its own status.
fn stuck_text(stuck: &UnsettledProcess, cluster: &ClusterShape) -> String {
    let UnsettledProcess { status, waits, .. } = stuck;
    let missing: Vec<_> = stuck.missing.iter().map(|m| name_of(*m, cluster)).collect();
    let fit = if stuck.fit { "" } else { ", is lagging" };
    let barriers = match stuck.barriers {
        0 => String::new(),
        count => format!(", has {count} barriers before it"),
    };
    let leader = status.leader.map_or("nobody".to_string(), |p| cluster.name(p).to_string());
    let waits: Vec<_> =
        waits.iter().map(|(m, why)| format!("{} for {why:?}", name_of(*m, cluster))).collect();
    format!(
        "  {} misses [{}]{fit}{barriers}; it follows {leader} in epoch {}, has delivered up to {} of {} \
         decided, and says that [{}] wait",
        cluster.name(stuck.p),
        missing.join(", "),
        status.epoch,
        status.delivered,
        status.decided,
        waits.join(", ")
    )
}

fn breach_text(breach: &Breach, cluster: &ClusterShape) -> String {
    let name = |p: &Pid| cluster.name(*p);
    let msg = |m: &MsgId| name_of(*m, cluster);
    match breach {
        Breach::Invented { p, m } => format!("{} delivers {}, never cast", name(p), msg(m)),
        Breach::Payload { p, m } => {
            format!("{} delivers {} with another payload than was cast", name(p), msg(m))
        }
        Breach::Destinations { p, m } => {
            format!("{} delivers {} with other destinations than were given", name(p), msg(m))
        }
        Breach::Position { p, m, before, given } => {
            format!("{} delivers {} at {given}, after {before}", name(p), msg(m))
        }
        Breach::Diverged { p, position, has, other } => {
            format!("{} has {} at {position}, another {}", name(p), msg(has), msg(other))
        }
        Breach::Forgotten { p, place, had, has } => {
            let (had, has) = (msg(had), msg(has));
            format!("{} had delivered {had} at place {place} and has {has} there", name(p))
        }
        Breach::Moved { p, m, had, has } => {
            format!("{} delivers {} again, at {has} instead of {had}", name(p), msg(m))
        }
        Breach::Stale { p, has, must } => {
            format!("{} passes a barrier at {has}, and another had delivered {must}", name(p))
        }
        Breach::Spins { p, times } => {
            format!(
                "{} asks to be woken at once {times} times in a row, and nothing arrives",
                name(p)
            )
        }
        Breach::Contract { p, why } | Breach::Application { p, why } => {
            format!("{}: {why}", name(p))
        }
        Breach::Host(why) => why.clone(),
    }
}

fn name_of(m: MsgId, cluster: &ClusterShape) -> String {
    format!("{}:{}", cluster.name(m.sender), m.seq)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_else(|| "without a message".to_string())
}
