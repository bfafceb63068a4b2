//! LCR in the simulator, in the shapes that the suites of all protocols draw seldom: usual timers and links, rings of
//! two to seven members, under all faults at once; and its rival, in the same runs.

use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, RawConfig, Span};
use amcast_protocols::lcr::Lcr;
use amcast_sim::{Profile, RunOutcome, RunSettings, run};

/// Seeds of each shape; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 6;

fn seeds() -> u64 {
    std::env::var("AMCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

/// So many members, with these parameters.
fn group(replicas: usize, set: &[(&str, &str)]) -> Config {
    let set = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let raw = RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
    raw.check(Lcr.about().params).expect("a sound configuration")
}

/// Runs a seed, which settles and keeps every promise. Says how many deliveries there were.
fn kept(config: &Config, settings: &RunSettings, seed: u64) -> u64 {
    let mut history = History::new();
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    let report = run(&Lcr, config, settings, seed, &mut push).expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "seed {seed}");
    let findings = check(&history, Lcr.about().promises);
    assert!(findings.all_hold(), "seed {seed}: {findings}");
    report.deliveries
}

#[test]
fn every_promise_is_kept_on_rings_of_every_size_under_all_faults() {
    for replicas in [2, 3, 4, 5, 7] {
        let config = group(replicas, &[]);
        let settings = RunSettings {
            payload_max: 1500,
            settle: Span::secs(60),
            ..RunSettings::with(Profile::All)
        };
        let deliveries: u64 = (0..seeds()).map(|seed| kept(&config, &settings, seed)).sum();
        println!("{replicas}: {} runs, {deliveries} deliveries", seeds());
        assert!(deliveries > 20 * seeds(), "{replicas}: only {deliveries}");
    }
}

#[test]
fn every_promise_is_kept_where_messages_are_larger_than_packets_and_batches_are_small() {
    let set = [("batch_bytes", "64"), ("packet_bytes", "64"), ("window", "3")];
    for profile in [Profile::None, Profile::Network, Profile::Crash] {
        let config = group(3, &set);
        let settings = RunSettings {
            payload_max: 100 << 10,
            settle: Span::secs(60),
            ..RunSettings::with(profile)
        };
        let deliveries: u64 = (0..seeds()).map(|seed| kept(&config, &settings, seed)).sum();
        assert!(deliveries > 20 * seeds(), "only {deliveries}");
    }
}
