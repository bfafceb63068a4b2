//! `amcast sim --explore`: all runs of a small cluster, within bounds.

use super::account::account;
use super::judge::{JudgedRun, judge_again};
use super::trial::{Trial, count};
use super::{Failure, SimArgs};
use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Pid, Span, Time};
use amcast_sim::chooser::Chooser;
use amcast_sim::explore::RunJudge;
use amcast_sim::{Exploration, ExplorationResult, RunPlan, RunRecord, RunReport, explore};
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// When the first message is multicast: when there are leaders. And how long after it the next.
const FIRST: Time = Time(30_000);
const APART_NS: u64 = 3_000;

/// Only so many of a run's first choices may be out of the ordinary: the rest comes after all messages.
const CHOICES_MAX: usize = 400;

/// How many values of a length of time are tried.
const GRAIN: u64 = 3;

/// How long those are dead whose machines fail.
const OUTAGE: Span = Span::micros(20);

/// A run fails if it does not settle or breaks a promise.
struct ExploreCheck<'a> {
    trial: &'a Trial,
    history: History,
    /// The simulator's report of an invalid choice.
    refused: bool,
}

impl RunJudge for ExploreCheck<'_> {
    fn event(&mut self, event: &TraceEvent<'_>) {
        self.refused |= self.history.push_event(event, self.trial.config.cluster()).is_err();
    }

    fn failed(&mut self, report: &RunReport) -> bool {
        let history = std::mem::replace(&mut self.history, arranged(self.trial));
        let promises = self.trial.entry.about().promises;
        self.refused || !report.settled() || !check(&history, promises).no_violation()
    }
}

/// Makes all runs; fails with the smallest one that breaks a promise, if there is one.
pub(super) fn run(args: &SimArgs, deviations: usize) -> Result<(), Failure> {
    if args.mutant.as_deref() == Some("all") {
        return Err(Failure::Misuse("--explore takes one mutant, not all".to_string()));
    }
    let trial = Trial::tiny(args, deviations)?;
    let begun = Instant::now();
    let bounds = bounds(args, &trial, deviations);
    let (explored, wrong) = explored(&trial, &bounds)?;
    let took = begun.elapsed().as_secs_f64();
    if args.json {
        let document = json!({
            "protocol": args.protocol,
            "ok": wrong.is_none(),
            "runs": explored.runs,
            "complete": explored.complete && wrong.is_none(),
            "deviations": deviations,
            "seconds": took,
            "property": wrong.as_ref().and_then(|j| j.wrong.as_ref()).map(|w| w.what.name()),
            "replay": wrong.as_ref().map(|_| trial.replay()),
        });
        println!("{document}");
    } else {
        let dying = match bounds.crashes.len() {
            0 => "nobody dies".to_string(),
            n => {
                let all = bounds.power.map_or("", |_| ", or all at once with their machines,");
                format!("one of {} dies{all} before any event", count(n, "replica"))
            }
        };
        let end = match (&wrong, explored.complete) {
            (Some(_), _) => "the last one fails",
            (None, true) => "these are all, and none fails",
            (None, false) => "there are more, and none of these fails; --runs-max makes more",
        };
        println!(
            "{} runs in {took:.1} s: {}; at most {} out of the ordinary; {dying}: {end}",
            explored.runs,
            trial.shape(),
            count(deviations, "choice"),
        );
    }
    let Some(judged) = wrong else { return Ok(()) };
    eprintln!("amcast: {}\nreplay: {}", account(&trial, &judged), trial.replay());
    Err(Failure::Said)
}

fn bounds(args: &SimArgs, trial: &Trial, deviations: usize) -> Exploration {
    let cluster = trial.config.cluster();
    let bears = trial.entry.capabilities().crash_tolerance;
    let replicas = cluster.pids().filter(|&p| cluster.group_of(p).is_some());
    let crashes: Vec<Pid> = replicas.filter(|_| bears).collect();
    let choices_max = CHOICES_MAX;
    let grain = GRAIN;
    let runs_max = args.runs_max;
    let power = trial.entry.capabilities().durability.has_log().then_some(OUTAGE);
    Exploration { deviations_max: deviations, choices_max, grain, crashes, power, runs_max }
}

/// A history that knows the tree of groups, if the protocol orders along one.
fn arranged(trial: &Trial) -> History {
    let mut history = History::new();
    if let Some(overlay) = trial.entry.overlay(&trial.config) {
        history.arrange(overlay).expect("an empty history knows no other tree");
    }
    history
}

/// All runs, and the one that fails, judged again.
fn explored(
    trial: &Trial,
    bounds: &Exploration,
) -> Result<(ExplorationResult, Option<JudgedRun>), Failure> {
    let Trial { entry, config, .. } = trial;
    let mut keeps = ExploreCheck { trial, history: arranged(trial), refused: false };
    let mut last = None;
    let plan = plan(trial);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        explore(*entry, config, &plan, bounds, &mut last, &mut keeps)
    }));
    let explored = match ran {
        Ok(explored) => explored.map_err(Failure::misuse)?,
        // The protocol stopped itself, in the last run.
        Err(_) => ExplorationResult { runs: 0, complete: false, failed: last },
    };
    let again = |run: &RunRecord| judge_again(trial, run, &mut |_| {});
    let wrong = explored.failed.as_ref().map(again).transpose()?;
    Ok((explored, wrong))
}

/// The messages of the clients in turn, the last client first: a new leader looks at the first one
/// first, so that a lost order shows.
fn plan(trial: &Trial) -> RunPlan {
    let cluster = trial.config.cluster();
    let mut chooser = Chooser::seeded(trial.seed);
    let mut plan = RunPlan::draw(trial.entry, &trial.config, &trial.settings, &mut chooser);
    for (i, cast) in plan.casts.iter_mut().enumerate() {
        cast.at = Time(FIRST.0 + APART_NS * i as u64);
        if let Some(last) = cluster.clients().checked_sub(1) {
            cast.sender = cluster.client(last - i % cluster.clients());
        }
    }
    plan.calm = plan.calm.max(plan.casts.last().map_or(Time::ZERO, |cast| cast.at));
    plan
}
