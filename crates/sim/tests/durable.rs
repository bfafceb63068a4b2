//! Runs of a toy protocol with a log: what is right settles whoever dies, with its machine or alone,
//! and what is wrong is caught.

mod toys;

use amcast_core::{Config, RawConfig};
use amcast_sim::{Breach, Outcome, Profile, Report, Settings, run};
use std::collections::BTreeMap;
use toys::durable::{Kind, Toy};

/// Two replicas that order for two clients.
fn config() -> Config {
    let raw = RawConfig { groups: 1, replicas: 2, clients: 2, ..RawConfig::default() };
    raw.check(&[]).expect("the shape is allowed")
}

fn one(kind: Kind, profile: Profile, seed: u64) -> Report {
    let settings = Settings { messages: 40, payload_max: 1000, ..Settings::with(profile) };
    run(&Toy(kind), &config(), &settings, seed, &mut |_| {}).expect("it takes this shape")
}

#[test]
fn what_is_right_settles_under_every_profile() {
    let mut marks = BTreeMap::new();
    for profile in Profile::ALL {
        for seed in 0..100 {
            let report = one(Kind::Right, profile, seed);
            assert_eq!(report.outcome, Outcome::Settled, "{profile:?}, seed {seed}");
            for (mark, times) in report.marks {
                *marks.entry(mark).or_insert(0) += times;
            }
        }
    }
    for mark in ["toy-whole-again", "toy-resumed"] {
        assert!(marks.get(mark).is_some_and(|&times| times > 20), "{mark}: {marks:?}");
    }
}

/// How the runs of some seeds end that do not settle.
fn ends(kind: Kind) -> Vec<Outcome> {
    let outcomes = (0..150).map(|seed| one(kind, Profile::Crash, seed).outcome);
    outcomes.filter(|outcome| *outcome != Outcome::Settled).collect()
}

#[test]
fn delivering_what_is_not_durable_is_caught() {
    assert!(!ends(Kind::Hasty).is_empty());
}

#[test]
fn ordering_on_after_the_machine_failed_is_caught() {
    let conflict = |o: &Outcome| matches!(o, Outcome::Breach(Breach::Diverged { .. }));
    assert!(ends(Kind::IgnoresTorn).iter().any(conflict));
}

#[test]
fn not_delivering_again_what_the_application_lost_is_caught() {
    let forgotten = |o: &Outcome| matches!(o, Outcome::Breach(Breach::Forgotten { .. }));
    assert!(ends(Kind::Forgets).iter().any(forgotten));
}

#[test]
fn trimming_what_the_application_does_not_have_durable_is_caught() {
    let stuck = |o: &Outcome| matches!(o, Outcome::NotSettled(_));
    assert!(ends(Kind::TrimsEarly).iter().any(stuck));
}
