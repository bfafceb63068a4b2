//! FastCast in the simulator, in the shapes that the suites of all protocols draw seldom: usual timers and links, and
//! every transport of packets, under all faults at once.

use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, RawConfig, Span};
use amcast_protocols::fastcast::{FastCast, INCREASE_BEGINS, INCREASE_ENDS};
use amcast_sim::{Profile, RunOutcome, RunSettings, run};
use std::collections::BTreeSet;

/// Seeds of each transport; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 10;

fn seeds() -> u64 {
    std::env::var("AMCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

/// Three members, with these parameters.
fn group(set: &[(&str, &str)]) -> Config {
    let set = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let raw = RawConfig { groups: 1, replicas: 3, clients: 0, set, ..RawConfig::default() };
    raw.check(FastCast.about().params).expect("a sound configuration")
}

/// Runs a seed, which settles and keeps every promise. Says how many deliveries there were, and adds the rare branches
/// that were taken.
fn kept(
    config: &Config,
    settings: &RunSettings,
    seed: u64,
    taken: &mut BTreeSet<&'static str>,
) -> u64 {
    let mut history = History::new();
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    let report = run(&FastCast, config, settings, seed, &mut push).expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "seed {seed}");
    let findings = check(&history, FastCast.about().promises);
    assert!(findings.all_hold(), "seed {seed}: {findings}");
    taken.extend(report.marks.keys());
    report.deliveries
}

#[test]
fn every_promise_is_kept_over_every_transport_under_all_faults() {
    let mut taken = BTreeSet::new();
    for lane in ["stream", "datagram", "multicast"] {
        let config = group(&[("lane", lane)]);
        let settings = RunSettings {
            payload_max: 1500,
            settle: Span::secs(60),
            ..RunSettings::with(Profile::All)
        };
        let deliveries: u64 =
            (0..seeds()).map(|seed| kept(&config, &settings, seed, &mut taken)).sum();
        println!("{lane}: {} runs, {deliveries} deliveries", seeds());
        assert!(deliveries > 50 * seeds(), "{lane}: only {deliveries}");
    }
}

#[test]
fn every_promise_is_kept_where_bandwidth_is_scarce_and_asked_for_all_the_time() {
    let set = [("link_mbps", "1"), ("batch_bytes", "64"), ("demand_us", "200")];
    let mut taken = BTreeSet::new();
    for profile in [Profile::None, Profile::Network, Profile::Crash] {
        let config = group(&set);
        let settings =
            RunSettings { payload_max: 1500, settle: Span::secs(60), ..RunSettings::with(profile) };
        let deliveries: u64 =
            (0..seeds()).map(|seed| kept(&config, &settings, seed, &mut taken)).sum();
        assert!(deliveries > 50 * seeds(), "only {deliveries}");
    }
    for mark in [INCREASE_BEGINS, INCREASE_ENDS, "fastcast-increase-interrupted"] {
        assert!(taken.contains(mark), "{mark} is in no run: {taken:?}");
    }
}
