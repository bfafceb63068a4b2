//! Runs of a toy protocol with a log: a correct one settles when any process dies, with its machine or alone,
//! and a wrong one is caught.

mod toys;

use amcast_core::trace::TraceEvent;
use amcast_core::{Config, GroupSet, Pid, RawConfig, Span, Time};
use amcast_sim::explore::RunJudge;
use amcast_sim::{
    Breach, CarrierModel, Chooser, Exploration, ExplorationResult, Fault, PlannedCast, Profile,
    RunOutcome, RunPlan, RunReport, RunSettings, Scenario, explore, replay, run, shrink,
};
use std::collections::{BTreeMap, BTreeSet};
use toys::durable::{DurableToy, DurableToyKind};

/// Two replicas that order for two clients.
fn config() -> Config {
    let raw = RawConfig { groups: 1, replicas: 2, clients: 2, ..RawConfig::default() };
    raw.check(&[]).expect("the shape is allowed")
}

fn one(kind: DurableToyKind, profile: Profile, seed: u64) -> RunReport {
    let settings = RunSettings { messages: 40, payload_max: 1000, ..RunSettings::with(profile) };
    run(&DurableToy(kind), &config(), &settings, seed, &mut |_| {}).expect("it takes this shape")
}

#[test]
fn what_is_right_settles_under_every_profile() {
    let mut marks = BTreeMap::new();
    for profile in Profile::ALL {
        for seed in 0..100 {
            let report = one(DurableToyKind::Right, profile, seed);
            assert_eq!(report.outcome, RunOutcome::Settled, "{profile:?}, seed {seed}");
            for (mark, times) in report.marks {
                *marks.entry(mark).or_insert(0) += times;
            }
        }
    }
    for mark in
        ["toy-whole-again", "toy-resumed", "sim-machine-fails", "sim-disk-full", "sim-checkpoint"]
    {
        assert!(marks.get(mark).is_some_and(|&times| times > 20), "{mark}: {marks:?}");
    }
}

#[test]
fn every_replica_may_be_dead_at_once_and_a_majority_comes_back() {
    let (mut all_dead, mut not_back) = (0, 0);
    for seed in 0..100 {
        let mut down = BTreeSet::new();
        let settings = RunSettings { messages: 10, ..RunSettings::with(Profile::Crash) };
        let report =
            run(&DurableToy(DurableToyKind::Right), &config(), &settings, seed, &mut |event| {
                match *event {
                    TraceEvent::Crash { p, .. } => assert!(down.insert(p)),
                    TraceEvent::Recover { p, .. } => assert!(down.remove(&p)),
                    _ => return,
                }
                all_dead += u32::from(down.contains(&Pid(0)) && down.contains(&Pid(1)));
            })
            .expect("it takes this shape");
        // A run in which there is nothing to deliver is over as soon as the faults are.
        if report.deliveries > 0 {
            not_back += down.range(..Pid(2)).count();
        }
    }
    assert!(all_dead > 50, "{all_dead}");
    assert_eq!(not_back, 0, "of two replicas both are a majority");
}

#[test]
fn a_run_with_logs_replays_to_the_same_hash() {
    let first = (0..).map(|seed| one(DurableToyKind::Right, Profile::All, seed));
    let first = first.into_iter().find(|run| run.machines.iter().any(|(_, _, lost)| *lost > 0));
    let first = first.expect("machines fail");
    let again = replay(&DurableToy(DurableToyKind::Right), &config(), &first.recorded, &mut |_| {})
        .expect("it ran");
    assert_eq!((first.hash, &first.machines), (again.hash, &again.machines));
    assert_eq!(first.recorded, again.recorded);
}

/// How the runs of some seeds end that do not settle.
fn ends(kind: DurableToyKind) -> Vec<RunOutcome> {
    let outcomes = (0..150).map(|seed| one(kind, Profile::Crash, seed).outcome);
    outcomes.filter(|outcome| *outcome != RunOutcome::Settled).collect()
}

#[test]
fn delivering_what_is_not_durable_is_caught() {
    assert!(!ends(DurableToyKind::Hasty).is_empty());
}

#[test]
fn ordering_on_after_the_machine_failed_is_caught() {
    let conflict = |o: &RunOutcome| matches!(o, RunOutcome::Breach(Breach::Diverged { .. }));
    assert!(ends(DurableToyKind::IgnoresTorn).iter().any(conflict));
}

#[test]
fn not_delivering_again_what_the_application_lost_is_caught() {
    let forgotten = |o: &RunOutcome| matches!(o, RunOutcome::Breach(Breach::Forgotten { .. }));
    assert!(ends(DurableToyKind::Forgets).iter().any(forgotten));
}

#[test]
fn trimming_what_the_application_does_not_have_durable_is_caught() {
    let stuck = |o: &RunOutcome| matches!(o, RunOutcome::NotSettled(_));
    assert!(ends(DurableToyKind::TrimsEarly).iter().any(stuck));
}

#[test]
fn a_failing_run_is_made_smaller_down_to_who_must_die() {
    let fails = |report: &RunReport| matches!(report.outcome, RunOutcome::Breach(_));
    let runs = (0..150).map(|seed| one(DurableToyKind::IgnoresTorn, Profile::Crash, seed));
    let report = runs.into_iter().find(fails).expect("it is caught");
    let small = shrink(report.recorded, 1000, &mut |recorded| {
        fails(
            &replay(&DurableToy(DurableToyKind::IgnoresTorn), &config(), recorded, &mut |_| {})
                .expect("it ran"),
        )
    });
    assert_eq!(small.plan.strikes.len(), 1, "{:?}", small.plan.strikes);
    if let Fault::Power { outages, .. } = &small.plan.strikes[0].fault {
        assert_eq!(outages.len(), 1, "{outages:?}");
    }
}

/// A run fails if it does not settle.
struct DurableJudge;

impl RunJudge for DurableJudge {
    fn event(&mut self, _: &TraceEvent<'_>) {}
    fn failed(&mut self, report: &RunReport) -> bool {
        !report.settled()
    }
}

/// All runs in which each client sends a message, the second client first, and both machines fail
/// at once. Then the first client is heard first.
fn explored(kind: DurableToyKind) -> ExplorationResult {
    let model = CarrierModel::constant(Span::micros(2), Span::micros(5));
    let settings = RunSettings {
        model: Some(model),
        faulty: Some(Span::micros(100)),
        ..RunSettings::default()
    };
    let mut chooser = Chooser::seeded(0);
    let mut plan = RunPlan::draw(&DurableToy(kind), &config(), &settings, &mut chooser);
    plan.model.disk.sync = amcast_sim::Delay::Uniform(Span::micros(5), Span::micros(30));
    let cast = |at, p| PlannedCast { at: Time(at), sender: Pid(p), dst: GroupSet(1), bytes: 8 };
    plan.casts = vec![cast(10_000, 3), cast(11_000, 2)];
    let bounds = Exploration {
        deviations_max: 2,
        crashes: vec![Pid(0), Pid(1)],
        power: Some(Span::micros(20)),
        ..Exploration::default()
    };
    explore(&DurableToy(kind), &config(), &plan, &bounds, &mut None, &mut DurableJudge)
        .expect("it is built")
}

#[test]
fn exploration_lets_the_power_fail_before_every_event() {
    let found = explored(DurableToyKind::Hasty).failed.expect("what is not durable is lost");
    assert!(matches!(found.plan.strikes[0].fault, Fault::Power { .. }), "{:?}", found.plan.strikes);
}

#[test]
fn scenarios_say_when_the_power_fails_and_when_a_disk_is_full() {
    let find = |name: &str| {
        (name == "toy").then_some(&DurableToy(DurableToyKind::Right) as &dyn amcast_core::Entry)
    };
    let file = include_str!("toys/durable.txt");
    let played = Scenario::read(file, &find).expect("it is sound").play(&mut |_| {});
    assert_eq!(played.text, file);
    let wrong = |line: &str| {
        let text = file.replace("power g0/r0 for 100us", line);
        Scenario::read(&text, &find).map(drop).expect_err("it is nonsense").to_string()
    };
    assert_eq!(wrong("power g0/r0 soon"), "line 14: power P,.. [keeps] [for SPAN]");
    assert_eq!(wrong("power g0/r0,g9"), "line 14: no process is named \"g9\"");
}
