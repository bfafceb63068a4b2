//! Each way of breaking the protocol is found, and breaks what it is said to break. Most are shown by a
//! scenario, in which the protocol as it is keeps every promise. The others are looked for in random runs, which
//! are given 300 ms to settle: some are not done by then without a mutant either, and what only has not
//! happened yet (`Validity`, `UniformAgreement`) may be that.

use crate::shapes::{judge, rows, seeds, shape};
use amcast_check::{History, Property, Verdict, check};
use amcast_core::Span;
use amcast_core::trace::Event;
use amcast_protocols::catalog;
use amcast_protocols::multiring::Row;
use amcast_protocols::mutant::MutantInfo;
use amcast_sim::{Breach, Outcome, Profile, Scenario, Settings};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Mutants that a scenario shows, and which.
const SCENARIOS: [(&str, &str); 17] = [
    ("decides-with-one-vote-less", "mrp-lost-vote"),
    ("begins-with-nothing", "mrp-power-fails"),
    ("votes-before-it-is-written", "mrp-power-fails"),
    ("votes-for-all-it-took-in", "mrp-votes-again"),
    ("passes-on-lost-votes", "mrp-lost-vote"),
    ("forgets-that-it-forgot", "mrp-torn-log"),
    ("promises-before-it-is-written", "mrp-early-promise"),
    ("leads-before-it-is-written", "mrp-stalled-candidate"),
    ("counts-older-runs", "mrp-old-promise"),
    ("takes-a-cut-log-for-whole", "mrp-cut-log"),
    ("takes-a-torn-log-for-whole", "mrp-torn-log"),
    ("counts-on-lost-memories", "mrp-lost-vote"),
    ("asks-too-few", "mrp-cut-log"),
    ("remembers-nothing", "mrp-remembered-value"),
    ("delivers-undecided", "mrp-power-fails"),
    ("orders-twice", "mrp-cut-log"),
    ("tells-everybody", "mrp-two-groups"),
];

/// Seeds within which another mutant must have broken all that it is said to break, with one kind of
/// storage or another: what is wrong with a disk shows only where there is one.
const SEEDS: u64 = 250;

fn settings(seed: u64) -> Settings {
    let profiles = [Profile::All, Profile::Crash, Profile::Oracle, Profile::Network];
    let profile = profiles[(seed % 4) as usize];
    let (faulty, settle) = (Some(Span::millis(20)), Span::millis(300));
    Settings { payload_max: 1500, faulty, settle, ..Settings::with(profile) }
}

/// What is violated, also where the simulator stopped the run because of it: replicas that put different
/// messages at one position do not deliver in one order.
fn violated(outcome: &Outcome, findings: &[(Property, Verdict)]) -> BTreeSet<Property> {
    let order = matches!(outcome, Outcome::Breach(Breach::Diverged { .. }));
    let found = findings.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Violated(_)));
    let found = found.map(|(property, _)| *property);
    found.chain(order.then_some(Property::UniformPrefixOrder)).collect()
}

/// What the run of a seed breaks.
fn broken(row: &Row, seed: u64, mutant: &str) -> BTreeSet<Property> {
    let judged = judge(row, &shape(row, seed, mutant), &settings(seed), seed);
    // Who stops itself in front of the checker shows nothing.
    judged.report.map_or(BTreeSet::new(), |report| violated(&report.outcome, &judged.findings))
}

/// The properties that runs of a mutant are seen to break.
fn hunt(row: &Row, mutant: &MutantInfo, seen: &mut BTreeSet<Property>) -> u64 {
    for seed in 0..seeds(SEEDS) {
        seen.extend(broken(row, seed, mutant.name));
        if mutant.breaks.iter().all(|property| seen.contains(property)) {
            return seed + 1;
        }
    }
    seeds(SEEDS)
}

/// What a scenario of `scenarios/` breaks with a mutant.
fn played(scenario: &str, mutant: &str) -> BTreeSet<Property> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let text = fs::read_to_string(dir.join(format!("{scenario}.txt"))).expect("it is there");
    let text = text.replacen(" groups=", &format!(" mutant={mutant} groups="), 1);
    let scenario = Scenario::read(&text, &catalog::find).expect("it can be read");
    let (mut history, cluster) = (History::new(), scenario.config().cluster());
    let played = scenario.play(&mut |event: &Event<'_>| {
        history.push_event(event, cluster).expect("the events are sound");
    });
    let findings = check(&history, scenario.entry().about().promises).findings;
    violated(&played.report.outcome, &findings)
}

#[test]
fn mutants_break_what_they_are_said_to_break_in_their_scenarios() {
    for (name, scenario) in SCENARIOS {
        let mut mutants = catalog::mutants("multi-ring").iter();
        let mutant = mutants.find(|m| m.name == name).expect("there is one");
        assert_eq!(played(scenario, "none"), BTreeSet::new(), "{scenario} without any mutant");
        let said: BTreeSet<Property> = mutant.breaks.iter().copied().collect();
        assert_eq!(played(scenario, name), said, "{scenario} with {name}");
    }
}

#[test]
fn each_other_mutant_breaks_what_it_is_said_to_break() {
    let other = |m: &&MutantInfo| SCENARIOS.iter().all(|(name, _)| m.name != *name);
    let mut missed = Vec::new();
    for mutant in catalog::mutants("multi-ring").iter().filter(other) {
        let (mut seen, mut after) = (BTreeSet::new(), 0);
        for row in rows() {
            after += hunt(row, mutant, &mut seen);
            if mutant.breaks.iter().all(|property| seen.contains(property)) {
                break;
            }
        }
        println!("{}: {seen:?} after {after} runs", mutant.name);
        if !mutant.breaks.iter().all(|property| seen.contains(property)) {
            missed.push((mutant.name, seen));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
