//! Every promise is kept under every fault that the entry does not assume away.

use crate::judged::{checked, entries, judge, profiles, seeds};
use amcast_core::{Entry, Span};
use amcast_protocols::trial;
use amcast_sim::{Profile, RunSettings};

/// Seeds of each entry and kind of faults, one of each sort of shape; the tests of each family run many more.
const SEEDS: u64 = 2;

/// Deliveries of a run, at least and on the average.
const DELIVERIES: u64 = 50;

/// The runs of an entry under faults of one kind: shapes of every size in turn with restless ones.
/// Returns the fault of the first faulty run.
fn kept(entry: &dyn Entry, profile: Profile) -> Result<(), String> {
    let settings =
        RunSettings { payload_max: 1500, settle: Span::secs(60), ..RunSettings::with(profile) };
    let mut deliveries = 0;
    for seed in 0..seeds(SEEDS) {
        let raw = match seed % 2 {
            0 => trial::wide(entry, seed, None),
            _ => trial::hasty(entry, seed, None),
        };
        let judged = judge(entry, &checked(entry, raw.clone(), "none"), &settings, seed);
        let which = || format!("{} {} {seed} {raw:?}", entry.name(), profile.name());
        if let Some(wrong) = judged.wrong {
            return Err(format!("{}: {wrong}", which()));
        }
        let report = judged.report.expect("it ran");
        deliveries += report.deliveries;
    }
    if deliveries < DELIVERIES * seeds(SEEDS) {
        return Err(format!("{} {}: {deliveries} deliveries", entry.name(), profile.name()));
    }
    Ok(())
}

#[test]
fn every_promise_is_kept_under_every_fault_that_is_not_assumed_away() {
    let mut wrong = Vec::new();
    for entry in entries() {
        for profile in profiles(entry) {
            wrong.extend(kept(entry, profile).err());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
