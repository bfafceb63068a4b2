//! Ring Paxos over IP multicast in the simulator, in the shapes that the suites of all protocols draw seldom: usual timers
//! and links, longer rings, and every transport of packets, under all faults at once; and what its mutants
//! break.

use amcast_check::{History, Property, PropertyVerdict, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, RawConfig, Span};
use amcast_protocols::ring_paxos_multicast::RingPaxosMulticast;
use amcast_protocols::{catalog, trial};
use amcast_sim::{Profile, RunOutcome, RunSettings, Scenario, run};
use std::collections::BTreeSet;
use std::path::Path;

/// Seeds of each shape; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 10;

/// Seeds within which a mutant must have broken all its declared properties.
const HUNTED_SEEDS: u64 = 1500;

fn seeds() -> u64 {
    std::env::var("AMCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

/// So many members, with these parameters.
fn group(replicas: usize, set: &[(&str, &str)]) -> Config {
    let set = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let raw = RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
    raw.check(RingPaxosMulticast.about().params).expect("a sound configuration")
}

fn settings(profile: Profile) -> RunSettings {
    RunSettings { payload_max: 1500, settle: Span::secs(60), ..RunSettings::with(profile) }
}

/// Runs a seed, which settles and keeps every promise. Says how many deliveries there were.
fn kept(config: &Config, settings: &RunSettings, seed: u64) -> u64 {
    let mut history = History::new();
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    let report = run(&RingPaxosMulticast, config, settings, seed, &mut push).expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "seed {seed}");
    let findings = check(&history, RingPaxosMulticast.about().promises);
    assert!(findings.all_hold(), "seed {seed}: {findings}");
    report.deliveries
}

#[test]
fn every_promise_is_kept_over_every_transport_under_all_faults() {
    for lane in ["stream", "datagram", "multicast"] {
        let config = group(3, &[("lane", lane)]);
        let settings = settings(Profile::All);
        let deliveries: u64 = (0..seeds()).map(|seed| kept(&config, &settings, seed)).sum();
        println!("{lane}: {} runs, {deliveries} deliveries", seeds());
        assert!(deliveries > 50 * seeds(), "{lane}: only {deliveries}");
    }
}

#[test]
fn every_promise_is_kept_by_rings_of_every_length() {
    for replicas in [1, 2, 4, 5, 7] {
        let config = group(replicas, &[("lane", "multicast"), ("batch_bytes", "64")]);
        for profile in [Profile::None, Profile::Network, Profile::Crash] {
            let settings = settings(profile);
            let deliveries: u64 = (0..seeds()).map(|seed| kept(&config, &settings, seed)).sum();
            println!("{replicas} replicas: {} runs, {deliveries} deliveries", seeds());
            assert!(deliveries > 20 * seeds(), "{replicas} replicas: only {deliveries}");
        }
    }
}

#[test]
fn every_promise_is_kept_where_one_instance_is_open_at_a_time() {
    let config = group(5, &[("instances", "1"), ("batch_bytes", "1"), ("lane", "datagram")]);
    for profile in [Profile::None, Profile::All] {
        let settings = settings(profile);
        let deliveries: u64 = (0..seeds()).map(|seed| kept(&config, &settings, seed)).sum();
        assert!(deliveries > 50 * seeds(), "only {deliveries}");
    }
}

/// The properties that a history breaks. A run that did not settle is over all the same.
fn broken(history: &mut History, config: &Config, settled: bool) -> BTreeSet<Property> {
    if !settled {
        history.push_event(&TraceEvent::End, config.cluster()).expect("a run may end");
    }
    let findings = check(history, RingPaxosMulticast.about().promises).findings;
    let violated = |(_, verdict): &(Property, PropertyVerdict)| {
        matches!(verdict, PropertyVerdict::Violated(_))
    };
    findings.into_iter().filter(violated).map(|(property, _)| property).collect()
}

/// The properties that the run of a seed breaks with a mutant: few members, and coordinators that change all the time.
fn hunted(mutant: &str, seed: u64) -> BTreeSet<Property> {
    let mut raw = trial::hasty(&RingPaxosMulticast, seed, None);
    raw.set.insert("mutant".to_string(), mutant.to_string());
    let config = raw.check(RingPaxosMulticast.about().params).expect("a sound configuration");
    let profile = [Profile::All, Profile::Crash, Profile::Oracle][(seed % 3) as usize];
    let (faulty, settle) = (Some(Span::millis(4)), Span::secs(1));
    let settings = RunSettings { faulty, settle, ..settings(profile) };
    let mut history = History::new();
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    let report = run(&RingPaxosMulticast, &config, &settings, seed, &mut push);
    let settled = report.expect("it is built").settled();
    broken(&mut history, &config, settled)
}

#[test]
fn each_mutant_breaks_its_declared_properties() {
    let mut missed = Vec::new();
    let mutants = catalog::mutants(RingPaxosMulticast.name()).iter();
    for mutant in mutants.filter(|mutant| mutant.shown_by.is_none()) {
        let said: BTreeSet<Property> = mutant.breaks.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let mut tried = 0..HUNTED_SEEDS;
        while !seen.is_superset(&said)
            && let Some(seed) = tried.next()
        {
            seen.extend(hunted(mutant.name, seed));
        }
        println!("{}: {seen:?} after {} seeds", mutant.name, tried.start);
        missed.extend((!seen.is_superset(&said)).then_some((mutant.name, seen)));
    }
    assert!(missed.is_empty(), "{missed:?}");
    (0..20).for_each(|seed| assert_eq!(hunted("none", seed), BTreeSet::new(), "seed {seed}"));
}

/// The properties that a scenario breaks with a mutant.
fn played(file: &str, mutant: &str) -> BTreeSet<Property> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(path).expect("it can be read");
    let text = text.replacen(" groups=", &format!(" mutant={mutant} groups="), 1);
    let scenario = Scenario::read(&text, &catalog::find).expect("a sound scenario");
    let (mut history, config) = (History::new(), scenario.config());
    let played = scenario.play(&mut |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    });
    broken(&mut history, config, played.report.settled())
}

#[test]
fn mutants_break_their_declared_properties_in_their_scenarios() {
    let mutants = catalog::mutants(RingPaxosMulticast.name()).iter();
    // Others are shown by tests of their own.
    let scenario = |file: &&str| file.starts_with("scenarios/");
    let shown: Vec<_> = mutants.filter_map(|m| Some((m, m.shown_by.filter(scenario)?))).collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    for (mutant, file) in shown {
        assert_eq!(played(file, "none"), BTreeSet::new(), "{file} without any mutant");
        let said: BTreeSet<Property> = mutant.breaks.iter().copied().collect();
        assert_eq!(played(file, mutant.name), said, "{file} with {}", mutant.name);
    }
}
