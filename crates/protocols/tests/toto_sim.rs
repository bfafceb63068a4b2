//! ToTo and all-ack in the simulator, in the shapes that the suites of all protocols draw seldom: usual timers and links,
//! two to seven members, every phi, under all faults at once.

use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, RawConfig, Span};
use amcast_protocols::toto::{ALL_ACK, TOTO, TOTO_PARTITIONABLE};
use amcast_sim::{Profile, RunOutcome, RunReport, RunSettings, run};

/// Seeds of each shape; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 4;

fn seeds() -> u64 {
    std::env::var("AMCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

/// So many members, with these parameters.
fn group(entry: &dyn Entry, replicas: usize, set: &[(&str, &str)]) -> Config {
    let set = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let raw = RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
    raw.check(entry.about().params).expect("a sound configuration")
}

/// Runs a seed, which settles and keeps every promise. Says how many deliveries there were.
fn kept(entry: &dyn Entry, config: &Config, settings: &RunSettings, seed: u64) -> u64 {
    settled(entry, config, settings, seed).deliveries
}

/// Runs a seed, which settles and keeps every promise.
fn settled(entry: &dyn Entry, config: &Config, settings: &RunSettings, seed: u64) -> RunReport {
    let mut history = History::new();
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    let report = run(entry, config, settings, seed, &mut push).expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "seed {seed}");
    let findings = check(&history, entry.about().promises);
    assert!(findings.all_hold(), "seed {seed}: {findings}");
    report
}

#[test]
fn every_promise_is_kept_with_every_phi_in_groups_of_every_size_under_all_faults() {
    for replicas in [2, 3, 4, 5, 7] {
        for phi in ["50", "75", "100"] {
            let config = group(&TOTO, replicas, &[("phi", phi)]);
            let settings = RunSettings {
                payload_max: 1500,
                settle: Span::secs(60),
                ..RunSettings::with(Profile::All)
            };
            let run = |seed| kept(&TOTO, &config, &settings, seed);
            let deliveries: u64 = (0..seeds()).map(run).sum();
            println!("{replicas}, phi {phi}: {} runs, {deliveries} deliveries", seeds());
            assert!(deliveries > 20 * seeds(), "{replicas}: only {deliveries}");
        }
    }
}

#[test]
fn every_promise_is_kept_where_messages_are_larger_than_packets_and_votes_are_late() {
    let set = [
        ("batch_bytes", "64"),
        ("packet_bytes", "64"),
        ("window", "3"),
        ("vote_us", "2000"),
        ("lane", "datagram"),
    ];
    for entry in [&TOTO, &ALL_ACK] {
        let config = group(entry, 3, &set);
        for profile in [Profile::None, Profile::Network, Profile::Crash] {
            let settings = RunSettings {
                payload_max: 100 << 10,
                settle: Span::secs(60),
                ..RunSettings::with(profile)
            };
            let run = |seed| kept(entry, &config, &settings, seed);
            let deliveries: u64 = (0..seeds()).map(run).sum();
            assert!(deliveries > 20 * seeds(), "only {deliveries}");
        }
    }
}

#[test]
fn every_component_continues_and_all_merge_in_the_end_under_all_faults() {
    let mut merged = 0;
    for replicas in [2, 3, 4, 5, 7] {
        for profile in [Profile::Network, Profile::All] {
            let config = group(&TOTO_PARTITIONABLE, replicas, &[]);
            let settings = RunSettings {
                payload_max: 1500,
                settle: Span::secs(60),
                ..RunSettings::with(profile)
            };
            let runs =
                (0..seeds()).map(|seed| settled(&TOTO_PARTITIONABLE, &config, &settings, seed));
            let runs: Vec<_> = runs.collect();
            let deliveries: u64 = runs.iter().map(|report| report.deliveries).sum();
            let merges = runs.iter().filter_map(|report| report.marks.get("sim-merged"));
            merged += merges.sum::<u64>();
            println!("{replicas}, {}: {deliveries} deliveries, {merged} merges", profile.name());
            assert!(deliveries > 20 * seeds(), "{replicas}: only {deliveries}");
        }
    }
    assert!(merged > 20, "only {merged} merges");
}
