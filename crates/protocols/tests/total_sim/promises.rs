//! Every promise of every row is kept under all faults that it tolerates.

use crate::shapes::{judge, rows, seeds, settings, shape};
use amcast_core::{Entry, RawConfig, Span};
use amcast_protocols::total::TotalOrderRow;
use amcast_sim::{Profile, RunSettings};
use std::collections::BTreeMap;

/// Seeds of each row and profile; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 15;

/// Seeds of large groups at most until every rare branch was taken.
const RARE_SEEDS_MAX: u64 = 100;

/// Runs the seeds of a profile, and fails if one breaks a promise or does not settle. Says which rare branches were taken.
fn kept(profile: Profile) -> BTreeMap<&'static str, u64> {
    let (mut marks, mut failed) = (BTreeMap::new(), Vec::new());
    for row in rows() {
        let (mut deliveries, mut bad) = (0, Vec::new());
        for seed in 0..seeds(SEEDS) {
            let judged = judge(row, &shape(row, seed, "none"), &settings(profile), seed);
            if let Some(wrong) = judged.wrong {
                if bad.is_empty() {
                    eprintln!("{} {} {seed}: {wrong}", row.name(), profile.name());
                }
                bad.push(seed);
                continue;
            }
            let report = judged.report.expect("it ran");
            deliveries += report.deliveries;
            for (mark, times) in report.marks {
                *marks.entry(mark).or_default() += times;
            }
        }
        if !bad.is_empty() {
            failed.push(format!("{} under {}: seeds {bad:?}", row.name(), profile.name()));
        }
        assert!(deliveries > 50 * seeds(SEEDS), "{}: only {deliveries} deliveries", row.name());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
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
fn every_promise_is_kept_when_links_fail() {
    kept(Profile::Network);
}

#[test]
fn every_promise_is_kept_when_oracles_lie() {
    kept(Profile::Oracle);
}

#[test]
fn every_promise_is_kept_under_all_faults_at_once() {
    // The source of a state dies, lets it go, or is excluded while the state is on its way.
    let wanted =
        ["sim-state-source-lost", "sim-state-resumed", "sim-state-not-believed", "vsync-in-parts"];
    let mut marks = kept(Profile::All);
    for seed in 0..RARE_SEEDS_MAX {
        if wanted.iter().all(|mark| marks.contains_key(mark)) {
            return;
        }
        for row in rows() {
            marks.extend(large_transfers(row, seed));
        }
    }
    assert!(rows().len() < 3, "one of {wanted:?} was never seen in {marks:?}");
}

/// A run of a group whose states are large, and of which two may be dead at a time: the one that gives a state, too. Says which
/// rare branches were taken.
fn large_transfers(row: &TotalOrderRow, seed: u64) -> BTreeMap<&'static str, u64> {
    let raw = RawConfig { groups: 1, replicas: 5, clients: 0, ..RawConfig::default() };
    let config = raw.check(row.about().params).expect("a sound configuration");
    let profile = if seed.is_multiple_of(2) { Profile::Crash } else { Profile::All };
    let large = RunSettings { messages: 500, ..settings(profile) };
    let judged = judge(row, &config, &large, seed);
    assert_eq!(judged.wrong, None, "{} {} {seed}", row.name(), profile.name());
    judged.report.expect("it ran").marks.into_iter().collect()
}

#[test]
fn payloads_much_larger_than_a_packet_are_ordered_whatever_strikes() {
    let lanes = ["stream", "datagram"];
    for (at, row) in rows().into_iter().enumerate() {
        for seed in 0..seeds(1) {
            let lane = lanes[(at + seed as usize) % lanes.len()];
            let set = [("lane".to_string(), lane.to_string())].into();
            let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
            let config = raw.check(row.about().params).expect("a sound configuration");
            let large = RunSettings {
                messages: 8,
                payload: Some(300_000),
                faulty: Some(Span::millis(200)),
                ..settings(Profile::All)
            };
            let judged = judge(row, &config, &large, seed);
            assert_eq!(judged.wrong, None, "{} {lane} {seed}", row.name());
            let report = judged.report.expect("it ran");
            assert!(report.marks.contains_key("vsync-in-parts"), "{} {lane}", row.name());
            assert!(report.deliveries > 8, "{} {lane}", row.name());
        }
    }
}
