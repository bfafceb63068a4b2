//! A run can be had again: from its seed, and from its record.

use crate::judged::{checked, entries, judge};
use amcast_protocols::trial;
use amcast_sim::{Profile, RunSettings, replay};

#[test]
fn the_same_seed_and_the_record_of_a_run_give_the_same_run() {
    for entry in entries() {
        let config = checked(entry, trial::hasty(entry, 5, None), "none");
        let hash = |seed| {
            let judged = judge(entry, &config, &RunSettings::with(Profile::All), seed);
            (judged.report.expect("it ran").hash, judged.recorded)
        };
        let (first, recorded) = hash(3);
        assert_eq!(hash(3).0, first, "{}: the same seed", entry.name());
        let again = replay(entry, &config, &recorded, &mut |_| {}).expect("it is built");
        assert_eq!(again.hash, first, "{}: from its record", entry.name());
        assert_ne!(hash(6).0, first, "{}: another seed", entry.name());
    }
}
