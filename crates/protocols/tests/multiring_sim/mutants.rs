//! Each mutant of the protocol is found, and breaks its declared properties. Nearly all are shown by a scenario,
//! the others by a random run; and in the same scenario or run the protocol as it is keeps every promise.

use crate::shapes::{judge, seeds};
use amcast_check::{History, Property, PropertyVerdict, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, RawConfig};
use amcast_protocols::catalog;
use amcast_protocols::multiring::WRITTEN;
use amcast_protocols::mutant::MutantInfo;
use amcast_sim::{Breach, Profile, RunOutcome, RunSettings, Scenario};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The beginning of a scenario's path, where a mutant names the scenario that shows it.
const SCENARIOS: &str = "scenarios/";

/// Mutants that a random run shows, within [`SEEDS`] from which seed on. The first shows it, as long as nothing in
/// the protocol changes that moves its runs.
const RUNS: [(&str, u64); 1] = [("counts-below-its-promise", 30_422)];

/// Seeds within which such a mutant must have broken its property.
const SEEDS: u64 = 400;

/// A small cluster that is quick to suspect and to retry.
pub(crate) fn hasty(mutant: &str) -> Config {
    let set = [
        ("mutant", mutant),
        ("heartbeat_us", "100"),
        ("suspect_us", "1000"),
        ("retry_us", "200"),
        ("window", "4"),
        ("pass_bytes", "100"),
        ("pack_bytes", "1"),
    ];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: 1, replicas: 3, clients: 0, set, ..RawConfig::default() };
    raw.check(WRITTEN.about().params).expect("a sound configuration")
}

/// The violations, also where the simulator stopped the run because of them: replicas that put different
/// messages at one position do not deliver in one order, and what passes a barrier too soon lets clients read
/// what was overwritten before they asked.
pub(crate) fn violated(
    outcome: &RunOutcome,
    findings: &[(Property, PropertyVerdict)],
) -> BTreeSet<Property> {
    let order = matches!(outcome, RunOutcome::Breach(Breach::Diverged { .. }));
    let found =
        findings.iter().filter(|(_, verdict)| matches!(verdict, PropertyVerdict::Violated(_)));
    let found = found.map(|(property, _)| *property);
    let stale = matches!(outcome, RunOutcome::Breach(Breach::Stale { .. }));
    let stopped = [(order, Property::UniformPrefixOrder), (stale, Property::Linearizable)];
    found.chain(stopped.into_iter().filter(|(is, _)| *is).map(|(_, property)| property)).collect()
}

/// The properties that the run of a seed breaks.
fn broken(seed: u64, mutant: &str) -> BTreeSet<Property> {
    let profiles = [Profile::All, Profile::Crash, Profile::Network, Profile::Oracle];
    let profile = profiles[(seed % 4) as usize];
    // Barriers would only move what happens when.
    let settings = RunSettings { payload_max: 300, barriers: 0, ..RunSettings::with(profile) };
    let judged = judge(&WRITTEN, &hasty(mutant), &settings, seed);
    // A process that stops itself in front of the checker shows nothing.
    judged.report.map_or(BTreeSet::new(), |report| violated(&report.outcome, &judged.findings))
}

/// The properties that a scenario of `scenarios/` breaks with a mutant.
fn played(scenario: &str, mutant: &str) -> BTreeSet<Property> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join(scenario)).expect("it is there");
    let text = text.replacen(" groups=", &format!(" mutant={mutant} groups="), 1);
    let scenario = Scenario::read(&text, &catalog::find).expect("it can be read");
    let (mut history, cluster) = (History::new(), scenario.config().cluster());
    let played = scenario.play(&mut |event: &TraceEvent<'_>| {
        history.push_event(event, cluster).expect("the events are sound");
    });
    if matches!(played.report.outcome, RunOutcome::NotSettled(_)) {
        history.push_event(&TraceEvent::End, cluster).expect("a run may end");
    }
    let findings = check(&history, scenario.entry().about().promises).findings;
    violated(&played.report.outcome, &findings)
}

#[test]
fn mutants_break_their_declared_properties_in_their_scenarios() {
    let mutants = catalog::mutants("multi-ring").iter();
    let shown: Vec<_> = mutants.filter_map(|m| Some((m, scenario(m)?))).collect();
    assert!(shown.len() > 20, "only {} are shown by a scenario", shown.len());
    for (mutant, scenario) in shown {
        assert_eq!(played(scenario, "none"), BTreeSet::new(), "{scenario} without any mutant");
        let said: BTreeSet<Property> = mutant.breaks.iter().copied().collect();
        assert_eq!(played(scenario, mutant.name), said, "{scenario} with {}", mutant.name);
    }
}

/// The scenario that shows a mutant, if one does.
fn scenario(mutant: &MutantInfo) -> Option<&'static str> {
    mutant.shown_by.filter(|path| path.starts_with(SCENARIOS))
}

#[test]
fn each_other_mutant_breaks_its_declared_properties() {
    let other = |m: &&MutantInfo| scenario(m).is_none();
    for mutant in catalog::mutants("multi-ring").iter().filter(other) {
        let said: BTreeSet<Property> = mutant.breaks.iter().copied().collect();
        let listed = RUNS.iter().find(|(name, _)| *name == mutant.name);
        let (_, first) = *listed.expect("it is in a list");
        let mut tried = first..first + seeds(SEEDS);
        let found = tried.find(|&seed| said.is_subset(&broken(seed, mutant.name)));
        let seed = found.unwrap_or_else(|| panic!("{} breaks nothing", mutant.name));
        assert_eq!(broken(seed, "none"), BTreeSet::new(), "seed {seed} without any mutant");
        println!("{}: {said:?} with seed {seed}", mutant.name);
    }
}
