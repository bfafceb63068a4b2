//! Exploration finds a planted race and nothing where there is none.

mod toys;

use amcast_core::trace::TraceEvent;
use amcast_core::{Pid, Span};
use amcast_sim::explore::RunJudge;
use amcast_sim::{
    CarrierModel, Delay, Exploration, ExplorationResult, RunOutcome, RunReport, RunSettings,
    explore, replay,
};
use toys::{config, memory, messages, plan};

/// A run fails if it does not settle.
#[derive(Default)]
struct SettleJudge {
    events: u64,
}

impl RunJudge for SettleJudge {
    fn event(&mut self, _: &TraceEvent<'_>) {
        self.events += 1;
    }
    fn failed(&mut self, report: &RunReport) -> bool {
        !report.settled()
    }
}

fn settings() -> RunSettings {
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(10));
    model.network.stream = Delay::Uniform(Span::micros(10), Span::micros(25));
    model.ram.split_ppm = 1;
    model.ram.split = Delay::Constant(Span::micros(1));
    model.idle = Delay::Uniform(Span::nanos(1), Span::micros(1));
    RunSettings { model: Some(model), faulty: Some(Span::micros(100)), ..RunSettings::default() }
}

fn explored(
    entry: &dyn amcast_core::Entry,
    senders: &[u32],
    bounds: &Exploration,
) -> ExplorationResult {
    let plan = plan(entry, &settings(), senders);
    let mut judge = SettleJudge::default();
    let explored = explore(entry, &config(3), &plan, bounds, &mut None, &mut judge).unwrap();
    assert!(judge.events > 0);
    explored
}

#[test]
fn a_planted_race_is_found_and_replays() {
    let entry = messages::MessageToy(messages::MessageToyKind::Unordered);
    let found = explored(&entry, &[0, 1], &Exploration::default());
    let failed = found.failed.expect("two senders race");
    assert!(failed.choices.deviations() <= 2);
    let report = replay(&entry, &config(3), &failed, &mut |_| {}).unwrap();
    assert!(matches!(report.outcome, RunOutcome::Breach(_)), "{:?}", report.outcome);
}

#[test]
fn the_same_without_the_race_is_gone_through_completely() {
    let entry = messages::MessageToy(messages::MessageToyKind::Right);
    let found = explored(&entry, &[0, 1], &Exploration::default());
    assert_eq!(found.failed, None);
    assert!(found.complete && found.runs > 50, "{} runs", found.runs);
}

#[test]
fn a_torn_line_is_found() {
    let hasty = memory::MemoryToy(memory::MemoryToyKind::Hasty);
    assert!(explored(&hasty, &[1], &Exploration::default()).failed.is_some());
    let right = memory::MemoryToy(memory::MemoryToyKind::Right);
    let found = explored(&right, &[1], &Exploration::default());
    assert_eq!((found.failed, found.complete), (None, true));
}

#[test]
fn a_crash_is_tried_before_every_event() {
    // Without its orderer the toy cannot settle: the crash that shows it is found.
    let entry = messages::MessageToy(messages::MessageToyKind::Right);
    let bounds = Exploration { deviations_max: 0, crashes: vec![Pid(0)], ..Default::default() };
    let found = explored(&entry, &[1], &bounds);
    assert!(found.failed.is_some());
    let bounds = Exploration { crashes: vec![Pid(2)], ..bounds };
    let found = explored(&entry, &[1], &bounds);
    assert_eq!(found.failed, None);
    assert!(found.runs > 10, "{} runs", found.runs);
}
