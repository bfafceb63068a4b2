//! Every promise of every row is kept, under all faults within its assumptions.

use crate::shapes::{first, judge, rows, seeds, settings, shape};
use amcast_core::{Entry, RawConfig};
use amcast_protocols::multiring::MultiRingEntry;
use amcast_sim::{Profile, RunSettings};
use std::collections::BTreeMap;

/// Seeds of each row and profile; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 8;

/// Runs seeds of a profile, and fails at the first that breaks a promise or does not settle.
fn kept(profile: Profile) -> BTreeMap<&'static str, u64> {
    let (mut marks, mut failed) = (BTreeMap::new(), Vec::new());
    // A row that may lose its memory has no disk to attack.
    let suits = |row: &&'static MultiRingEntry| {
        profile != Profile::Disk || row.capabilities().durability.has_log()
    };
    for row in rows().into_iter().filter(suits) {
        let (mut deliveries, mut barriers, mut bad) = (0, 0, Vec::new());
        for seed in first()..first() + seeds(SEEDS) {
            let judged = judge(row, &shape(row, seed, "none"), &settings(profile), seed);
            if let Some(wrong) = judged.wrong {
                if bad.is_empty() {
                    eprintln!("{} {} {seed}: {wrong}", row.name(), profile.name());
                }
                bad.push(seed);
                continue;
            }
            let report = judged.report.expect("it ran");
            (deliveries, barriers) = (deliveries + report.deliveries, barriers + report.barriers);
            for (mark, times) in report.marks {
                *marks.entry(mark).or_default() += times;
            }
        }
        if !bad.is_empty() {
            failed.push(format!("{} under {}: seeds {bad:?}", row.name(), profile.name()));
        }
        assert!(deliveries > 50 * seeds(SEEDS), "{}: only {deliveries} deliveries", row.name());
        assert!(barriers > 20 * seeds(SEEDS), "{}: only {barriers} barriers", row.name());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    marks
}

#[test]
fn every_promise_is_kept_without_faults() {
    kept(Profile::None);
}

#[test]
fn no_member_lags_where_nothing_fails() {
    for row in rows() {
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let config = raw.check(row.about().params).expect("a sound configuration");
        let settings = RunSettings { messages: 1000, ..settings(Profile::None) };
        for seed in first()..first() + seeds(5) {
            let judged = judge(row, &config, &settings, seed);
            assert_eq!(judged.wrong, None, "{} {seed}", row.name());
            let marks = judged.report.expect("it ran").marks;
            assert!(!marks.contains_key("multiring-wants-state"), "{} {seed}", row.name());
        }
    }
}

#[test]
fn every_promise_is_kept_when_processes_crash_and_come_back() {
    let marks = kept(Profile::Crash);
    for mark in ["multiring-remembers", "multiring-wants-state"] {
        assert!(rows().len() < 3 || marks.contains_key(mark), "{mark} was never seen in {marks:?}");
    }
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
fn every_promise_is_kept_when_disks_stall_fill_up_are_replaced_and_damaged() {
    let marks = kept(Profile::Disk);
    let of_disks = ["sim-disk-full", "sim-disk-replaced", "sim-record-damaged", "sim-log-cut"];
    for mark in of_disks.into_iter().chain(["multiring-remembers"]) {
        assert!(rows().len() < 3 || marks.contains_key(mark), "{mark} was never seen in {marks:?}");
    }
}

#[test]
fn every_promise_is_kept_when_oracles_lie() {
    kept(Profile::Oracle);
}

#[test]
fn every_promise_is_kept_under_all_faults_at_once() {
    let marks = kept(Profile::All);
    // The ring skips a member that lags, and lives, until it has caught up.
    let of_rings = ["multiring-left-out", "multiring-taken-in"];
    // The source of a state dies or lets it go, a connection breaks, and a state comes too late.
    let of_states =
        ["sim-state-source-lost", "sim-state-let-go", "sim-state-resumed", "sim-state-too-old"];
    for mark in of_rings.into_iter().chain(of_states) {
        assert!(rows().len() < 3 || marks.contains_key(mark), "{mark} was never seen in {marks:?}");
    }
}
