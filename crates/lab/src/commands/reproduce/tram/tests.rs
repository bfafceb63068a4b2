//! The tables and figures of TRAM, and the sentences of their claims.

use super::*;

#[test]
fn simulated_contenders_give_points_that_follow_from_the_seed() {
    let _limit = amcast_test_policy::time_limit();
    let demand = Demand { groups: 2, ..Demand::latency(2, DestinationChoice::Uniform) };
    let contender = Contender::tram("breadth");
    let turns = [(contender, demand), (Contender::RAMCAST, demand), (contender, demand)];
    let points = simulate(true, &turns).unwrap();
    let [tram, ramcast, again] = &points[..] else { panic!("{points:?}") };
    assert_eq!((&*tram.contender, &*ramcast.contender), ("tram breadth", "ramcast"));
    assert_eq!((tram.latency_us, tram.per_second), (again.latency_us, again.per_second));
    // A write to the first group, one to its followers, one to the other group, one to those followers.
    assert!(tram.latency_us.median > 4.0 * 1.31, "{tram:?}");
    assert!(tram.holds.len() == 3 && ramcast.holds.len() == 3);
}

#[test]
fn a_claim_that_is_missed_says_why() {
    let held = claim("a", "b".to_string(), true, "c");
    let missed = claim("a", "b".to_string(), false, "c");
    assert_eq!((&*held.found, &*missed.found), ("b", "b. c"));
    assert_eq!((held.holds, missed.holds), (ClaimVerdict::Yes, ClaimVerdict::No));
}

#[test]
fn every_table_and_figure_of_the_paper_is_there_and_one_makes_its_claims() {
    let _limit = amcast_test_policy::time_limit();
    let ids = ["fig2", "fig5", "fig6", "fig7", "fig8", "fig9", "tab1"];
    for id in ids.map(|id| format!("tram-{id}")) {
        assert!(super::super::EXPERIMENTS.iter().any(|e| e.id == id), "{id}");
    }
    let out = std::env::temp_dir();
    let account = writes(&ReproduceSession::quick(&out)).unwrap();
    // Two claims, of the simulated machines and of this one; a chart of each, and the table.
    assert_eq!((account.claims.len(), account.parts.len(), account.pictures().count()), (4, 3, 2));
    assert!(account.failures.is_empty());
    // The simulator's do not depend on the machine.
    assert!(account.claims[..2].iter().all(|c| c.holds == ClaimVerdict::Yes), "{account:?}");
}
