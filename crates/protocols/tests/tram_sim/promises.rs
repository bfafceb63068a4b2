//! Every promise is kept under all faults that TRAM tolerates.

use crate::shapes::{
    TramRunEnd, brief, five, hastiest, judge, seeds, settings, shape, tight, violated,
};
use amcast_check::{Property, PropertyVerdict};
use amcast_core::Config;
use amcast_sim::{Failover, Profile, RunSettings};
use std::collections::BTreeMap;

/// Seeds of each profile; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 75;

/// Runs seeds of a profile, and fails at the first that breaks a promise or does not settle, or if
/// none of them takes these rare branches.
fn kept(profile: Profile, reached: &[&str]) {
    kept_in(shape, &settings(profile), reached);
}

fn kept_in(shape: fn(u64) -> Config, settings: &RunSettings, reached: &[&str]) {
    let profile = settings.profile;
    let mut marks = BTreeMap::<&str, u64>::new();
    let mut failover = Failover::default();
    let mut deliveries = 0;
    let count = seeds(SEEDS);
    for seed in 0..count {
        let config = shape(seed);
        let (end, findings) = judge(&config, settings, seed);
        let held = findings.findings.iter().all(|(_, v)| matches!(v, PropertyVerdict::Holds));
        let replay = format!("profile {}, seed {seed}", profile.name());
        assert!(end.trouble().is_none() && held, "{replay}: {end}\n{findings}\n{config:?}");
        let TramRunEnd::Report(report) = end else { unreachable!("it had no trouble") };
        deliveries += report.deliveries;
        failover.add(&report.failover);
        for (mark, times) in report.marks {
            *marks.entry(mark).or_default() += times;
        }
    }
    assert!(deliveries > 100 * count, "only {deliveries} deliveries in {count} runs");
    println!("{}: {count} seeds, {deliveries} deliveries, {marks:?}", profile.name());
    println!("{}: {failover:?}", profile.name());
    assert!(!marks.contains_key("tram-quorum-forgot"), "honest replicas forgot what is decided");
    for mark in reached {
        assert!(marks.contains_key(mark), "{} does not reach {mark}", profile.name());
    }
    if !matches!(profile, Profile::None | Profile::Hang) {
        fails_over(profile, count, &failover, &marks);
    }
}

/// A leader changes in at least a third of the runs, with messages to several groups in flight, and a
/// new leader takes over a log that is confirmed. Replicas that crash, or are cut off or slow for long, get
/// their state back.
fn fails_over(profile: Profile, runs: u64, failover: &Failover, marks: &BTreeMap<&str, u64>) {
    let name = profile.name();
    assert!(failover.runs * 3 >= runs, "{name}: {failover:?}");
    assert!(failover.in_flight >= failover.runs, "{name}: {failover:?}");
    for mark in ["tram-confirmed", "tram-ring-wraps"] {
        let times = marks.get(mark).copied().unwrap_or(0);
        assert!(times >= failover.runs, "{name}: {mark} {times} times");
    }
    if profile.has(Profile::Crash) {
        assert!(failover.transfers_after_crash * 4 >= runs, "{name}: {failover:?}");
    }
    if [Profile::Pause, Profile::Network, Profile::Memory].iter().any(|p| profile.has(*p)) {
        assert!(failover.left_behind * 10 >= runs, "{name}: {failover:?}");
        assert!(failover.transfers_when_left_behind * 10 >= runs, "{name}: {failover:?}");
    }
}

#[test]
fn every_promise_is_kept_without_faults() {
    kept(Profile::None, &["tram-ring-full", "tram-child-full"]);
}

#[test]
fn every_promise_is_kept_when_processes_crash_and_come_back() {
    kept(Profile::Crash, &["tram-write-failed", "tram-leaves-behind"]);
}

#[test]
fn every_promise_is_kept_when_processes_stop_for_a_while() {
    kept(Profile::Pause, &["tram-left-behind"]);
}

#[test]
fn every_promise_is_kept_when_links_fail() {
    kept(Profile::Network, &["tram-write-failed", "sim-dead-link", "tram-fetches"]);
}

#[test]
fn every_promise_is_kept_when_writes_are_torn_denied_and_late() {
    kept(Profile::Memory, &[]);
}

#[test]
fn every_promise_is_kept_in_rings_with_room_for_a_few_messages() {
    let small = |profile| RunSettings { messages: 200, payload_max: 24, ..settings(profile) };
    kept_in(tight, &small(Profile::Memory), &["tram-asks-again", "tram-left-behind"]);
    kept_in(
        tight,
        &small(Profile::All),
        &["tram-asks-again", "tram-left-behind", "tram-half-busy"],
    );
}

#[test]
fn every_promise_is_kept_when_replicas_do_not_reach_each_other_at_first() {
    let small = |profile| RunSettings { messages: 200, payload_max: 24, ..settings(profile) };
    for profile in [Profile::Memory, Profile::All] {
        kept_in(five, &small(profile), &["sim-unreached", "tram-left-behind"]);
    }
}

#[test]
fn every_promise_is_kept_while_applications_hang() {
    let small = |profile| RunSettings { messages: 200, payload_max: 24, ..settings(profile) };
    kept_in(tight, &small(Profile::Hang), &["sim-hung", "tram-ring-full", "tram-leaves-behind"]);
}

#[test]
fn every_promise_is_kept_when_oracles_lie() {
    kept(Profile::Oracle, &["tram-leader-steps-down"]);
}

#[test]
fn every_promise_is_kept_under_all_faults_at_once() {
    kept(Profile::All, &["tram-leader-steps-down", "tram-left-behind"]);
}

/// Timers shorter than what they wait for: replicas lag and sources are given up all the time. Such
/// a run may take long to settle; it must never break safety.
#[test]
fn nothing_safe_is_broken_with_the_hastiest_timers() {
    for seed in 0..seeds(60) {
        let (end, findings) = judge(&hastiest(seed), &brief(Profile::All), seed);
        let mut broken = violated(&findings);
        if end.trouble() == Some("not settled") {
            broken.retain(|p| !matches!(p, Property::Validity | Property::UniformAgreement));
        } else {
            assert_eq!(end.trouble(), None, "seed {seed}: {end}");
        }
        assert!(broken.is_empty(), "seed {seed}: {findings}");
    }
}
