//! Skeen in the simulator, judged by the checker: the protocol keeps what it promises under all that
//! it does not assume away, and each way of breaking it is seen to break what it is said to break.

use amcast_check::{History, Property, PropertyVerdict, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, RawConfig};
use amcast_protocols::catalog;
use amcast_sim::{Profile, RunOutcome, RunSettings, run};
use std::collections::BTreeSet;

/// Seeds in which every promise must be kept, for each profile of faults.
const SEEDS: u64 = 50;

/// Seeds within which a mutant must have shown everything it breaks.
const MUTANT_SEEDS: u64 = 20;

fn skeen() -> &'static dyn Entry {
    catalog::find("skeen").expect("it is in the catalog")
}

/// Two to four groups and as many clients, by seed.
fn config(seed: u64, mutant: &str) -> Config {
    let size = 2 + seed as usize % 3;
    let set = [("mutant", mutant), ("window", "4")];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: size, replicas: 1, clients: size, set, ..RawConfig::default() };
    raw.check(skeen().about().params).expect("a sound configuration")
}

/// How a run ended, and which promises it broke. A run that did not settle is over all the same:
/// what it had not delivered by then counts as never delivered.
fn broken(seed: u64, profile: Profile, mutant: &str) -> (RunOutcome, BTreeSet<Property>) {
    let config = config(seed, mutant);
    let mut history = History::new();
    let mut record = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the simulator's events are sound");
    };
    let settings = RunSettings::with(profile);
    let report = run(skeen(), &config, &settings, seed, &mut record).expect("it is built");
    if matches!(report.outcome, RunOutcome::NotSettled(_)) {
        record(&TraceEvent::End);
    }
    assert_eq!(history.messages(), settings.messages, "everything was multicast");
    let findings = check(&history, skeen().about().promises).findings;
    let judged = |verdict: &PropertyVerdict| !matches!(verdict, PropertyVerdict::NotJudged(_));
    assert!(findings.iter().all(|(_, verdict)| judged(verdict)), "{findings:?}");
    let violated = findings.into_iter().filter(|(_, v)| matches!(v, PropertyVerdict::Violated(_)));
    (report.outcome, violated.map(|(property, _)| property).collect())
}

#[test]
fn every_promise_is_kept_under_every_fault_that_is_not_assumed_away() {
    for profile in [Profile::None, Profile::Pause, Profile::Network, Profile::All] {
        for seed in 0..SEEDS {
            let found = broken(seed, profile, "none");
            assert_eq!(found, (RunOutcome::Settled, BTreeSet::new()), "{} {seed}", profile.name());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed| {
        let config = config(seed, "none");
        let settings = RunSettings::with(Profile::All);
        run(skeen(), &config, &settings, seed, &mut |_| {}).expect("it is built").hash
    };
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(6), "another seed with as many processes");
}

#[test]
fn each_mutant_breaks_just_what_it_is_said_to_break() {
    for mutant in catalog::mutants("skeen") {
        let said: BTreeSet<Property> = mutant.breaks.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let mut first = None;
        let all = (0..MUTANT_SEEDS).find(|&seed| {
            let (_, violated) = broken(seed, Profile::None, mutant.name);
            first = first.or((!violated.is_empty()).then_some(seed + 1));
            seen.extend(violated);
            seen == said
        });
        let all = all.map(|seed| seed + 1);
        println!("{}: found after {first:?} seeds, all of {seen:?} after {all:?}", mutant.name);
        assert_eq!(seen, said, "{}", mutant.name);
    }
}
