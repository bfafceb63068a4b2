//! Where broken links heal, a ring has one coordinator soon: no two depose each other in turns.

use amcast_core::rng::Rng;
use amcast_protocols::catalog;
use amcast_sim::Scenario;
use std::fmt::Write as _;

/// How many coordinators a ring of five had in turn, most of whose links are cut for a while each.
fn coordinators(seed: u64) -> usize {
    let mut rng = Rng::stream(seed, "heal");
    let mut text = String::from("run multi-ring-memory groups=1 replicas=5 clients=0\n----\n\n");
    for (a, b) in (0..5).flat_map(|b| (0..b).map(move |a| (a, b))) {
        if rng.below(4) != 0 {
            let span = 60_000 + rng.below(4) * 40_000 + rng.below(400);
            writeln!(text, "at 10ms cut g0/r{a} g0/r{b} for {span}us").expect("a string");
        }
    }
    text += "----\n\nat 600ms cast g0/r3 g0 8\n----\n";
    let scenario = Scenario::read(&text, &catalog::find).expect("a sound scenario");
    let played = scenario.play(&mut |_| {});
    assert!(played.report.settled(), "{}", played.text);
    played.text.matches(" leads, epoch ").count()
}

#[test]
fn a_heal_brings_few_new_coordinators() {
    let most = (0..60).map(|seed| (coordinators(seed), seed)).max();
    // The first of all, and one or two later.
    assert!(most.is_some_and(|(count, _)| count <= 6), "{most:?}: how many, and the seed");
}
