//! Each promise is seen broken by a mutant, and each mutant breaks its declared properties.

use crate::judged::{checked, entries, judge, seeds};
use amcast_core::{Entry, MediumKind, Property, Span};
use amcast_protocols::mutant::MutantInfo;
use amcast_protocols::{catalog, trial};
use amcast_sim::{Profile, RunSettings};
use std::collections::BTreeSet;

/// Seeds within which a mutant must be found.
const FOUND_WITHIN: u64 = 3000;

/// Seeds within which each promise must be seen broken, for each mutant that declares it.
const BROKEN_WITHIN: u64 = 400;

/// Mistakes show when leaders crash or are suspected, where the entry bears it.
fn settings(entry: &dyn Entry, seed: u64) -> RunSettings {
    let profile = match entry.capabilities().crash_tolerance {
        true => [Profile::All, Profile::Crash, Profile::Oracle][(seed % 3) as usize],
        false => Profile::None,
    };
    let settle = match entry.about().medium {
        MediumKind::Memory => Span::millis(100),
        MediumKind::Messages => Span::secs(1),
    };
    let (faulty, quiet) = (Some(Span::millis(4)), Span::micros(500));
    RunSettings { payload_max: 1500, faulty, settle, quiet, ..RunSettings::with(profile) }
}

/// The properties that the run of a seed breaks with a mutant, and whether the run has any fault;
/// nothing where the same run of the unchanged protocol has a fault, since it may take longer to
/// settle than a hunt waits.
fn broken(entry: &dyn Entry, mutant: &str, seed: u64) -> (BTreeSet<Property>, bool) {
    let run = |mutant| {
        let config = checked(entry, trial::hasty(entry, seed, None), mutant);
        judge(entry, &config, &settings(entry, seed), seed)
    };
    let judged = run(mutant);
    if judged.wrong.is_none() || run("none").wrong.is_some() {
        return (BTreeSet::new(), false);
    }
    (judged.violated, true)
}

#[test]
fn each_promise_is_seen_broken_by_a_mutant() {
    let mut seen = Vec::new();
    for entry in entries() {
        // Rows of one family that promise and break alike are tried once.
        let mutants = catalog::mutants(entry.name()).iter();
        let same: Vec<_> = mutants.map(|mutant| (mutant.name, mutant.breaks)).collect();
        let same = (entry.about().promises, same);
        if seen.contains(&same) {
            continue;
        }
        seen.push(same);
        let mut left: BTreeSet<Property> = entry.about().promises.iter().copied().collect();
        left.extend(entry.capabilities().read_index.then_some(Property::Linearizable));
        // In turn, a seed of each: for many promises there is a mutant that breaks them soon.
        for tried in 0..seeds(BROKEN_WITHIN) {
            for mutant in catalog::mutants(entry.name()) {
                if mutant.breaks.iter().any(|property| left.contains(property)) {
                    let (violated, _) = broken(entry, mutant.name, tried);
                    left.retain(|property| !violated.contains(property));
                }
            }
            if left.is_empty() {
                println!("{}: within {} seeds", entry.name(), tried + 1);
                break;
            }
        }
        assert_eq!(left, BTreeSet::new(), "{}: no mutant is seen to break these", entry.name());
    }
}

/// The first seed of a mutant in which something is wrong.
fn found(entry: &dyn Entry, mutant: &MutantInfo) -> Option<u64> {
    (0..seeds(FOUND_WITHIN)).find(|&seed| broken(entry, mutant.name, seed).1)
}

#[test]
fn each_mutant_is_found_unless_something_else_shows_it() {
    let (mut missed, mut seen) = (Vec::new(), Vec::new());
    for entry in entries() {
        let mutants = catalog::mutants(entry.name());
        // Rows of one family that break alike are hunted once.
        let same: Vec<_> = mutants.iter().map(|mutant| (mutant.name, mutant.breaks)).collect();
        if seen.contains(&same) {
            continue;
        }
        seen.push(same);
        for mutant in mutants.iter().filter(|mutant| mutant.shown_by.is_none()) {
            let seed = found(entry, mutant);
            println!("{} {}: {seed:?}", entry.name(), mutant.name);
            missed.extend(seed.is_none().then_some((entry.name(), mutant.name)));
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn without_a_mutant_nothing_is_wrong_where_mutants_are_hunted() {
    for entry in entries() {
        for seed in 0..seeds(15) {
            let config = checked(entry, trial::hasty(entry, seed, None), "none");
            let settings = RunSettings { settle: Span::secs(20), ..settings(entry, seed) };
            let judged = judge(entry, &config, &settings, seed);
            assert_eq!(judged.wrong, None, "{}, seed {seed}", entry.name());
        }
    }
}
