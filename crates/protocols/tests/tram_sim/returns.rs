//! Every promise is kept when the places of clients that died are taken again: the new holder writes under a
//! higher lease from position 0 on, while leaders still copy what the former one wrote.

use crate::shapes::{changing_tight, seeds, settings, tight, tram};
use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Pid, Span, Time};
use amcast_sim::chooser::{Chooser, Concern};
use amcast_sim::run::run_plan;
use amcast_sim::{Fault, FaultTime, Profile, RunPlan, RunSettings, Strike};
use std::collections::BTreeMap;

/// Seeds of each profile.
const SEEDS: u64 = 30;

/// The observations of some runs.
#[derive(Debug, Default)]
struct ReturnCounts {
    /// Clients that came back.
    returned: u64,
    marks: BTreeMap<&'static str, u64>,
}

/// The plan of a run in which clients die again and again, and come back soon.
fn plan(config: &Config, settings: &RunSettings, seed: u64) -> RunPlan {
    let mut chooser = Chooser::seeded(!seed);
    let mut plan = RunPlan::draw(tram(), config, settings, &mut chooser);
    let mut pick = |n: u64| chooser.pick(Concern::Faults, n);
    for _ in 0..pick(40) {
        let at = FaultTime::Time(Time(pick(plan.calm.0)));
        let p = config.cluster().client(pick(config.cluster().clients() as u64) as usize);
        let (mid_step, down) = (pick(2) == 1, Some(Span(1 + pick(20_000))));
        plan.strikes.push(Strike { at, fault: Fault::Crash { p, mid_step, down } });
    }
    plan
}

/// Runs seeds of a profile with rings for a few messages, and fails at the first that breaks a promise or
/// does not settle, or if no buffer moves while a leader copies from it.
fn kept(profile: Profile) {
    let usual = RunSettings { messages: 200, payload_max: 150, ..settings(profile) };
    let settings = RunSettings { clients_return: true, ..usual };
    let mut shown = ReturnCounts::default();
    for seed in 0..seeds(SEEDS) {
        // Those who come back missed changes of the tree, in every other run.
        let config = if seed % 2 == 0 { tight(seed) } else { changing_tight(seed) };
        let cluster = config.cluster();
        let mut history = History::new();
        if let Some(overlay) = tram().overlay(&config) {
            history.arrange(overlay).expect("one tree");
        }
        let client = |p: Pid| cluster.group_of(p).is_none();
        let mut push = |event: &TraceEvent<'_>| {
            // A client that came back has forgotten what it had cast, and owes nothing of that. That
            // what it casts afterwards is delivered is a condition for the run to settle.
            if matches!(event, TraceEvent::Recover { p, .. } if client(*p)) {
                shown.returned += 1;
                return;
            }
            history.push_event(event, cluster).expect("the simulator's events are sound");
        };
        let plan = plan(&config, &settings, seed);
        let report = run_plan(tram(), &config, plan, seed, &mut push).expect("it is built");
        let findings = check(&history, tram().about().promises);
        let replay = format!("profile {}, seed {seed}, clients return", profile.name());
        assert!(
            report.settled() && findings.all_hold(),
            "{replay}: {:?}\n{findings}\n{config:?}",
            report.outcome
        );
        for (mark, times) in report.marks {
            *shown.marks.entry(mark).or_default() += times;
        }
    }
    println!("{}: {shown:?}", profile.name());
    assert!(shown.returned > 4 * seeds(SEEDS), "{shown:?}");
    assert!(shown.marks.contains_key("tram-buffer-moved"), "{shown:?}");
}

#[test]
fn every_promise_is_kept_when_places_of_clients_are_taken_again() {
    kept(Profile::Crash);
}

#[test]
fn every_promise_is_kept_when_places_of_clients_are_taken_again_under_all_faults() {
    kept(Profile::All);
}
