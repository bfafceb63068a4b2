//! Each way of breaking the protocol is found, and breaks what it is said to break.

use crate::shapes::{judge, rows, seeds, shape};
use amcast_check::{Property, Verdict};
use amcast_core::Span;
use amcast_protocols::catalog;
use amcast_protocols::multiring::Row;
use amcast_protocols::mutant::MutantInfo;
use amcast_sim::{Profile, Settings};
use std::collections::BTreeSet;

/// Seeds within which a mutant must have broken all that it is said to break, with one kind of storage
/// or another: what is wrong with a disk shows only where there is one.
const SEEDS: u64 = 250;

fn settings(seed: u64) -> Settings {
    let profiles = [Profile::All, Profile::Crash, Profile::Oracle, Profile::Network];
    let profile = profiles[(seed % 4) as usize];
    let (faulty, settle) = (Some(Span::millis(20)), Span::millis(300));
    Settings { payload_max: 1500, faulty, settle, ..Settings::with(profile) }
}

/// The properties that runs of a mutant are seen to break.
fn hunt(row: &Row, mutant: &MutantInfo, seen: &mut BTreeSet<Property>) -> u64 {
    for seed in 0..seeds(SEEDS) {
        let judged = judge(row, &shape(row, seed, mutant.name), &settings(seed), seed);
        let violated = |(_, verdict): &(Property, Verdict)| matches!(verdict, Verdict::Violated(_));
        seen.extend(judged.findings.into_iter().filter(violated).map(|(property, _)| property));
        if mutant.breaks.iter().all(|property| seen.contains(property)) {
            return seed + 1;
        }
    }
    seeds(SEEDS)
}

#[test]
fn each_mutant_breaks_what_it_is_said_to_break() {
    let mut missed = Vec::new();
    for mutant in catalog::mutants("multi-ring") {
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
