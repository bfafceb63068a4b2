//! The shopping carts of `examples/carts/`: a service that reconciles, on a protocol that continues in every component of
//! a partition, in the simulator.

#[path = "../examples/bank/machine.rs"]
#[allow(dead_code, reason = "only its name is of interest here")]
mod bank;
#[path = "../examples/carts/machine.rs"]
mod machine;
#[path = "../examples/carts/simulated.rs"]
mod simulated;

use amcast::core::{Capability, Entry};
use amcast::protocols::catalog;
use amcast::sim::{Profile, RunOutcome};
use amcast::smr::require_reconciler;
use machine::Carts;
use simulated::{contents, run};

fn partitionable() -> &'static dyn Entry {
    catalog::find("toto-partitionable").expect("it is in the catalog")
}

#[test]
fn every_node_ends_with_the_same_carts_and_no_addition_of_a_living_node_is_lost() {
    let _limit = amcast_test_policy::time_limit();
    let mut merges = 0;
    let mut answers = [0; 3];
    for profile in [Profile::Network, Profile::All] {
        for seed in 0..12 {
            let end = run(partitionable(), 5, profile, seed).expect("it runs");
            let which = format!("{}, seed {seed}", profile.name());
            assert_eq!(end.report.outcome, RunOutcome::Settled, "{which}");
            let Some(first) = end.states.values().next() else { continue };
            assert!(end.states.values().all(|state| state == first), "{which}");
            for tag in end.workload.kept() {
                assert!(first.knows(tag), "{which}: {tag} in {:?}", contents(first));
            }
            merges += end.merges;
            (0..3).for_each(|code| answers[code] += end.answers[code]);
        }
    }
    println!("{answers:?} commands executed, not executed, unknown; {merges} merges");
    let [executed, ..] = answers;
    assert!(merges > 50 && executed > 1000, "{executed} commands, {merges} merges");
}

#[test]
fn a_service_without_a_hook_to_reconcile_is_refused_with_a_sentence() {
    let _limit = amcast_test_policy::time_limit();
    assert_eq!(require_reconciler::<Carts>(partitionable()), Ok(()));
    let refused = require_reconciler::<bank::Bank>(partitionable()).expect_err("it has no hook");
    assert_eq!(refused.capability, Capability::OneOrder);
    let sentence = "toto-partitionable continues in every component of a partition, each with an order of its own: only a \
                    service whose state machine has a reconcile hook runs on it";
    assert_eq!(refused.to_string(), sentence);
    assert_eq!(partitionable().require_service(), Err(refused));
    let primary = catalog::find("toto").expect("it is in the catalog");
    assert_eq!(require_reconciler::<bank::Bank>(primary), Ok(()));
}
