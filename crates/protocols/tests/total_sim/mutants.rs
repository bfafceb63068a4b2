//! Each mutant of a row is found, and breaks its declared properties.

use crate::shapes::{judge, rows, seeds};
use amcast_check::{History, Property, PropertyVerdict, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, Span};
use amcast_protocols::mutant::MutantInfo;
use amcast_protocols::total::{AB_RCAST, TotalOrderRow};
use amcast_protocols::{catalog, trial};
use amcast_sim::{Profile, RunSettings, Scenario};
use std::collections::BTreeSet;
use std::path::Path;

/// Seeds within which a mutant must have broken all its declared properties.
const SEEDS: u64 = 1500;

/// Seeds in which nothing may be found without a mutant.
const SOUND_SEEDS: u64 = 20;

fn config(row: &TotalOrderRow, seed: u64, mutant: &str) -> Config {
    let mut raw = trial::hasty(row, seed, None);
    raw.set.insert("mutant".to_string(), mutant.to_string());
    raw.check(row.about().params).expect("a sound configuration")
}

fn settings(seed: u64, settle: Span) -> RunSettings {
    let profile = [Profile::All, Profile::Crash, Profile::Oracle][(seed % 3) as usize];
    RunSettings {
        payload_max: 1500,
        faulty: Some(Span::millis(4)),
        settle,
        ..RunSettings::with(profile)
    }
}

/// The properties that runs of a mutant are seen to break until they include all declared ones, and after how many seeds.
fn hunt(row: &TotalOrderRow, mutant: &MutantInfo) -> (BTreeSet<Property>, u64) {
    let said: BTreeSet<Property> = mutant.breaks.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for seed in 0..seeds(SEEDS) {
        let judged =
            judge(row, &config(row, seed, mutant.name), &settings(seed, Span::secs(1)), seed);
        let findings = check(&judged.history, row.about().promises).findings;
        let violated = |(_, verdict): &(Property, PropertyVerdict)| {
            matches!(verdict, PropertyVerdict::Violated(_))
        };
        seen.extend(findings.into_iter().filter(violated).map(|(property, _)| property));
        if seen.is_superset(&said) {
            return (seen, seed + 1);
        }
    }
    (seen, seeds(SEEDS))
}

#[test]
fn each_mutant_of_each_row_breaks_every_property_that_it_declares() {
    let mut missed = Vec::new();
    for row in rows() {
        let random = |m: &&MutantInfo| m.shown_by.is_none();
        for mutant in catalog::mutants(row.name()).iter().filter(random) {
            let (seen, after) = hunt(row, mutant);
            println!("{} {}: {seen:?} after {after} seeds", row.name(), mutant.name);
            if !mutant.breaks.iter().all(|property| seen.contains(property)) {
                missed.push((row.name(), mutant.name, seen));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn without_a_mutant_nothing_is_found_where_mutants_are_hunted() {
    let mut found = Vec::new();
    for row in rows() {
        for seed in 0..seeds(SOUND_SEEDS) {
            let settings = settings(seed, Span::secs(5));
            let judged = judge(row, &config(row, seed, "none"), &settings, seed);
            found.extend(judged.wrong.map(|wrong| (row.name(), seed, wrong)));
        }
    }
    assert!(found.is_empty(), "{} found, the first: {:?}", found.len(), found[0]);
}

/// The properties that a scenario of `scenarios/` breaks with a mutant.
fn played(scenario: &str, mutant: &str) -> BTreeSet<Property> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(scenario)).expect("it is there");
    let text = text.replacen(" groups=", &format!(" mutant={mutant} groups="), 1);
    let scenario = Scenario::read(&text, &catalog::find).expect("it can be read");
    let (mut history, cluster) = (History::new(), scenario.config().cluster());
    let played = scenario.play(&mut |event: &TraceEvent<'_>| {
        history.push_event(event, cluster).expect("the events are sound");
    });
    if !played.report.settled() {
        history.push_event(&TraceEvent::End, cluster).expect("a run may end");
    }
    let findings = check(&history, scenario.entry().about().promises).findings;
    let violated = |(_, verdict): &(Property, PropertyVerdict)| {
        matches!(verdict, PropertyVerdict::Violated(_))
    };
    findings.into_iter().filter(violated).map(|(property, _)| property).collect()
}

#[test]
fn mutants_break_their_declared_properties_in_their_scenarios() {
    let mutants = catalog::mutants(AB_RCAST.name()).iter();
    let shown: Vec<_> = mutants.filter_map(|m| Some((m, m.shown_by?))).collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    for (mutant, scenario) in shown {
        assert_eq!(played(scenario, "none"), BTreeSet::new(), "{scenario} without any mutant");
        let said: BTreeSet<Property> = mutant.breaks.iter().copied().collect();
        assert_eq!(played(scenario, mutant.name), said, "{scenario} with {}", mutant.name);
    }
}
