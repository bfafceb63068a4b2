//! Each mutant of TRAM is found, and breaks its declared properties.

use crate::played;
use crate::shapes::{brief, hasty, judge, seeds, violated};
use amcast_protocols::catalog;
use amcast_protocols::mutant::MutantInfo;
use amcast_sim::Profile;
use std::collections::BTreeMap;

/// Seeds within which something must be seen of each mutant.
const FOUND_WITHIN: u64 = 2000;

/// Seeds within which a mutant must have broken all its declared properties. `AMCAST_SEEDS` in the
/// environment says otherwise, and then all of them are run, to see what else breaks.
const BROKEN_WITHIN: u64 = 2000;

/// Mistakes show when leaders crash or are suspected.
fn profile(seed: u64) -> Profile {
    [Profile::All, Profile::Crash, Profile::Oracle][(seed % 3) as usize]
}

/// The observed effects of a mutant, each with the number of seeds until the first time: promises
/// that the checker found broken, and what stopped or stalled a run.
fn hunt(mutant: &'static MutantInfo) -> BTreeMap<String, u64> {
    let mut seen = BTreeMap::new();
    for seed in 0..seeds(BROKEN_WITHIN) {
        let settings = brief(profile(seed));
        let (end, findings) = judge(&hasty(seed, mutant.name), &settings, seed);
        let trouble = end.trouble().map(str::to_string);
        for what in violated(&findings).iter().map(ToString::to_string).chain(trouble) {
            seen.entry(what).or_insert(seed + 1);
        }
        let all = mutant.breaks.iter().all(|property| seen.contains_key(property.name()));
        if all && !seen.is_empty() && seeds(0) == 0 {
            break;
        }
    }
    seen
}

fn is_found_and_breaks_what_it_is_said_to(name: &str) {
    let mutant = catalog::mutants("tram").iter().find(|m| m.name == name).expect("declared");
    let seen = hunt(mutant);
    let first = seen.values().min();
    println!("{name}: found after {first:?} seeds, {seen:?}");
    assert!(first.is_some_and(|&n| n <= FOUND_WITHIN), "{name} is not found: {seen:?}");
    for property in mutant.breaks {
        assert!(seen.contains_key(property.name()), "{name} is not seen to break {property}");
    }
}

/// Mutants that random runs hardly ever show, and tests elsewhere do: `tram/tests/told.rs` the first two, `tram/tests/parent.rs` the
/// third, as simulated replicas write no nonsense, `tram/tests/hung.rs` the next two, as no simulated application hangs, and few
/// links are dead for so long, `links.rs` the sixth, and `tram/tests/fetched.rs` the others.
const SHOWN_ELSEWHERE: [&str; 8] = [
    "readmits-before-it-tells",
    "adopts-before-it-tells",
    "stops-at-nonsense",
    "queues-without-bound",
    "holds-for-ever",
    "fetches-nothing",
    "fetches-anew",
    "fetches-unconfirmed",
];

macro_rules! each {
    ($($test:ident = $name:literal,)*) => {
        $(#[test]
        fn $test() {
            is_found_and_breaks_what_it_is_said_to($name);
        })*

        #[test]
        fn every_declared_mutant_has_a_test_here() {
            let mut tested = [&[$($name),*], played::SHOWN.as_slice(), &SHOWN_ELSEWHERE].concat();
            let mut declared: Vec<&str> =
                catalog::mutants("tram").iter().map(|m| m.name).collect();
            tested.sort_unstable();
            declared.sort_unstable();
            assert_eq!(tested, declared);
            let all = catalog::mutants("tram").iter();
            let shown: Vec<&str> = all.filter(|m| m.shown_by.is_some()).map(|m| m.name).collect();
            assert_eq!(shown, [played::SHOWN.as_slice(), &SHOWN_ELSEWHERE].concat());
        }
    };
}

each! {
    // test: [TRAM 2:20]
    a_leader_that_decides_alone_is_found = "decides-alone",
    // test: [TRAM 2:9] [TRAM 3:4-15]
    a_leader_without_a_quorum_is_found = "leads-alone",
    a_leader_that_counts_denied_writes_is_found = "counts-denied",
    // test: [TRAM 2:42-44]
    a_replica_that_skips_revocation_is_found = "skips-revocation",
    // test: [TRAM 2:4-8] [TRAM 4:3-6,8]
    a_leader_that_skips_group_catch_up_is_found = "skips-group-catch-up",
    // test: [TRAM 5:8-11]
    a_leader_that_skips_tree_catch_up_is_found = "skips-tree-catch-up",
    a_leader_that_delivers_ahead_of_a_quorum_is_found = "delivers-ahead",
    a_follower_that_delivers_undecided_entries_is_found = "delivers-undecided",
    a_replica_that_forgets_its_amnesia_is_found = "forgets-amnesia",
    a_replica_that_counts_without_its_state_is_found = "trusts-the-log",
    a_client_that_sends_to_each_destination_is_found = "sends-to-each",
    a_client_that_sends_to_the_root_is_found = "sends-to-root",
    a_client_that_sends_one_level_too_high_is_found = "sends-too-high",
    a_leader_that_takes_messages_up_twice_is_found = "takes-up-twice",
    // test: [TRAM 5:1-3]
    a_leader_that_does_not_rebuild_its_cursors_is_found = "forgets-cursors",
    // test: [TRAM 3:1-3]
    a_candidate_that_asks_with_an_epoch_that_others_have_seen_is_found = "asks-with-its-first",
    a_leader_that_reads_the_next_parent_too_soon_is_found = "reads-any-parent",
    a_leader_that_orders_requests_made_for_an_earlier_tree_is_found = "orders-stale-requests",
    a_client_that_does_not_request_anew_is_found = "forgets-stale-requests",
    a_client_that_requests_anew_twice_is_found = "requests-anew-twice",
    a_leader_that_forgets_the_tree_in_its_takeover_is_found = "forgets-tree-in-takeover",
    a_leader_that_passes_on_by_the_wrong_tree_is_found = "forwards-by-present-tree",
}

#[test]
fn without_a_mutant_nothing_is_found() {
    for seed in 0..seeds(BROKEN_WITHIN) {
        let (end, findings) = judge(&hasty(seed, "none"), &brief(profile(seed)), seed);
        assert!(end.trouble().is_none() && findings.all_hold(), "{seed}: {end}\n{findings}");
    }
}
