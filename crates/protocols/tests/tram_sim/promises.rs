//! Every promise is kept, whatever strikes within what TRAM assumes.

use crate::shapes::{End, judge, seeds, settings, shape};
use amcast_check::Verdict;
use amcast_sim::Profile;
use std::collections::BTreeMap;

/// Seeds of each profile; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 150;

/// Runs seeds of a profile, and fails at the first that breaks a promise or does not settle. Gives
/// how often each rare branch was taken.
fn kept(profile: Profile) -> BTreeMap<&'static str, u64> {
    let mut marks = BTreeMap::new();
    let mut deliveries = 0;
    let count = seeds(SEEDS);
    for seed in 0..count {
        let config = shape(seed);
        let (end, findings) = judge(&config, &settings(profile), seed);
        let held = findings.findings.iter().all(|(_, v)| matches!(v, Verdict::Holds));
        let replay = format!("profile {}, seed {seed}", profile.name());
        assert!(end.trouble().is_none() && held, "{replay}: {end}\n{findings}\n{config:?}");
        let End::Report(report) = end else { unreachable!("it had no trouble") };
        deliveries += report.deliveries;
        for (mark, times) in report.marks {
            *marks.entry(mark).or_default() += times;
        }
    }
    assert!(deliveries > 100 * count, "only {deliveries} deliveries in {count} runs");
    println!("{}: {count} seeds, {deliveries} deliveries, {marks:?}", profile.name());
    marks
}

#[test]
fn every_promise_is_kept_without_faults() {
    kept(Profile::None);
}

#[test]
fn every_promise_is_kept_when_processes_crash_and_come_back() {
    kept(Profile::Crash);
}

#[test]
fn every_promise_is_kept_when_processes_stop_for_a_while() {
    kept(Profile::Pause);
}

#[test]
fn every_promise_is_kept_when_ways_fail() {
    kept(Profile::Network);
}

#[test]
fn every_promise_is_kept_when_writes_are_torn_denied_and_late() {
    kept(Profile::Memory);
}

#[test]
fn every_promise_is_kept_when_oracles_lie() {
    kept(Profile::Oracle);
}

#[test]
fn every_promise_is_kept_under_all_faults_at_once() {
    kept(Profile::All);
}

/// Rare branches that the seeds of [`kept`] are known to reach, with the fault that leads there.
const REACHED: [(Profile, &str); 6] = [
    (Profile::None, "tram-ring-full"),
    (Profile::None, "tram-child-full"),
    (Profile::Crash, "tram-write-failed"),
    (Profile::Crash, "tram-leaves-behind"),
    (Profile::Pause, "tram-left-behind"),
    (Profile::All, "tram-leader-steps-down"),
];

#[test]
fn rare_branches_are_reached() {
    for profile in [Profile::None, Profile::Crash, Profile::Pause, Profile::All] {
        let marks = kept(profile);
        for (_, mark) in REACHED.iter().filter(|(p, _)| *p == profile) {
            assert!(marks.contains_key(mark), "{} does not reach {mark}", profile.name());
        }
    }
}
