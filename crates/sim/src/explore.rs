//! Goes through all choices of a small configuration.

use crate::chooser::{Choices, Chooser, Odometer};
use crate::faults::{Fault, FaultTime, Strike};
use crate::plan::RunPlan;
use crate::run::{RunRecord, RunReport, run_with};
use alloc::vec::Vec;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, ConfigError, Entry, Pid, Span};

/// How far an exploration goes.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// How many choices of a run may differ from the ordinary one. All runs with 0 are tried
    /// first, then those with 1, and so on.
    pub deviations_max: usize,
    /// Only so many choices from the start of a run may differ.
    pub choices_max: usize,
    /// How many values of each length of time are tried.
    pub grain: u64,
    /// Processes that crash, one a run: before each thing that happens in the ordinary run.
    pub crashes: Vec<Pid>,
    /// If given, they also die all at once, with their machines, and come back after so long.
    pub power: Option<Span>,
    /// How many runs at most.
    pub runs_max: u64,
}

impl Default for Exploration {
    fn default() -> Self {
        Self {
            deviations_max: 2,
            choices_max: 200,
            grain: 3,
            crashes: Vec::new(),
            power: None,
            runs_max: 100_000,
        }
    }
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct ExplorationResult {
    /// How many runs were made.
    pub runs: u64,
    /// Whether all runs within the bounds were made.
    pub complete: bool,
    /// The first run that failed.
    pub failed: Option<RunRecord>,
}

/// Runs `plan` with all choices within the bounds until `judge` says that a run failed. After a
/// panic of the protocol, `last` is the run that panicked.
///
/// # Errors
/// When the entry refuses the configuration.
pub fn explore(
    entry: &dyn Entry,
    config: &Config,
    plan: &RunPlan,
    bounds: &Exploration,
    last: &mut Option<RunRecord>,
    judge: &mut dyn RunJudge,
) -> Result<ExplorationResult, ConfigError> {
    let mut explored = ExplorationResult { runs: 0, complete: true, failed: None };
    let last = last.insert(RunRecord { plan: plan.clone(), choices: Choices::default() });
    let chooser = Chooser::listed(Choices::default());
    let (ordinary, _) = run_with(entry, config, last, chooser, None, &mut |_| {})?;
    let mut plans = alloc::vec![plan.clone()];
    let crash = |&p| Fault::Crash { p, mid_step: false, down: None };
    let power = bounds.power.map(|down| {
        let outages = bounds.crashes.iter().map(|&p| (p, Some(down))).collect();
        Fault::Power { outages, lost: None }
    });
    for fault in bounds.crashes.iter().map(crash).chain(power) {
        for event in 1..=ordinary.events {
            let mut with = plan.clone();
            with.strikes.push(Strike { at: FaultTime::Event(event), fault: fault.clone() });
            plans.push(with);
        }
    }
    for deviations in 0..=bounds.deviations_max {
        for plan in &plans {
            last.plan.clone_from(plan);
            sweep((entry, config), last, bounds, deviations, judge, &mut explored)?;
            if explored.failed.is_some() || !explored.complete {
                return Ok(explored);
            }
        }
    }
    Ok(explored)
}

/// Judges runs: hears the events of each, then says whether it failed.
pub trait RunJudge {
    /// An event of the present run.
    fn event(&mut self, event: &TraceEvent<'_>);
    /// The run is over. Whether it failed.
    fn failed(&mut self, report: &RunReport) -> bool;
}

/// All runs of one plan with exactly so many deviations.
fn sweep(
    (entry, config): (&dyn Entry, &Config),
    last: &mut RunRecord,
    bounds: &Exploration,
    deviations: usize,
    judge: &mut dyn RunJudge,
    explored: &mut ExplorationResult,
) -> Result<(), ConfigError> {
    let mut odometer = Odometer::new(bounds.grain, deviations, bounds.choices_max);
    loop {
        // Runs with fewer were judged before; they are made again to learn what can be chosen.
        let new = odometer.deviations() == deviations;
        if new && explored.runs >= bounds.runs_max {
            explored.complete = false;
            return Ok(());
        }
        explored.runs += u64::from(new);
        let chooser = Chooser::odometer(odometer);
        let mut hear = |event: &TraceEvent<'_>| judge.event(event);
        let (report, back) = run_with(entry, config, last, chooser, None, &mut hear)?;
        if judge.failed(&report) {
            explored.failed = Some(report.recorded);
            return Ok(());
        }
        match back {
            Some(back) => odometer = back,
            None => return Ok(()),
        }
        if !odometer.advance() {
            return Ok(());
        }
    }
}
