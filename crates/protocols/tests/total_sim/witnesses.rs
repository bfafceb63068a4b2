//! What each row lets faulty processes do [TO table 2]: every pattern that its specification admits
//! is found in some run, and no other ever is [TO table 3, definition 1].

use crate::shapes::{judge, rows, seeds, settings, shape};
use amcast_check::{Patterns, Specification, execution_patterns};
use amcast_core::{Config, Entry, RawConfig, Span};
use amcast_protocols::total::Row;
use amcast_sim::{Model, Profile, Settings};

/// Seeds within which every admitted pattern must have been found.
const SEEDS: u64 = 600;

/// Runs of five members over a network that loses much: for patterns that need two to fail at once.
const LOSSY: u64 = 3000;

const PROFILES: [Profile; 3] = [Profile::All, Profile::Crash, Profile::Network];

/// The specification of [TO table 3] whose properties the row promises.
fn specification(row: &Row) -> Specification {
    let promised = |spec: &Specification| {
        spec.properties().iter().all(|property| row.about().promises.contains(property))
    };
    Specification::ALL.into_iter().find(promised).expect("each row enforces one of the six")
}

/// Runs of a row in which a faulty process shows each pattern that is admitted: profile and seed.
#[derive(Default, Debug)]
struct Witnesses([Option<(&'static str, u64)>; 4]);

impl Witnesses {
    fn note(&mut self, shown: Patterns, run: (&'static str, u64)) {
        let shown = [shown.ep1, shown.ep2, shown.ep3, shown.ep4];
        for (witness, _) in self.0.iter_mut().zip(shown).filter(|(_, shown)| *shown) {
            witness.get_or_insert(run);
        }
    }

    fn complete(&self, admitted: Patterns) -> bool {
        let admitted = [admitted.ep1, admitted.ep2, admitted.ep3, admitted.ep4];
        self.0.iter().zip(admitted).all(|(witness, admitted)| witness.is_some() || !admitted)
    }
}

/// Searches runs of a row until every admitted pattern is found.
fn search(row: &Row) -> Witnesses {
    let admitted = specification(row).admits();
    let mut found = Witnesses::default();
    for seed in 0..seeds(SEEDS) {
        let profile = PROFILES[(seed % 3) as usize];
        let run = (profile.name(), seed);
        look(row, &shape(row, seed, "none"), &settings(profile), run, &mut found);
        if found.complete(admitted) && seeds(0) == 0 {
            return found;
        }
    }
    for seed in 0..LOSSY {
        if found.complete(admitted) {
            break;
        }
        look(row, &lossy_group(row), &lossy(), ("lossy", seed), &mut found);
    }
    found
}

/// Notes what faulty processes show in a run.
fn look(
    row: &Row,
    config: &Config,
    settings: &Settings,
    run: (&'static str, u64),
    found: &mut Witnesses,
) {
    let judged = judge(row, config, settings, run.1);
    assert!(judged.wrong.is_none(), "{} {run:?}: {:?}", row.name(), judged.wrong);
    for behaviour in execution_patterns(&judged.history).expect("it settled") {
        let (patterns, admitted) = (behaviour.patterns, specification(row).admits());
        assert!(patterns.within(admitted), "{} {run:?}: {patterns} is not admitted", row.name());
        found.note(patterns, run);
    }
}

fn lossy_group(row: &Row) -> Config {
    let set = [("lane".to_string(), "datagram".to_string())].into();
    let raw = RawConfig { groups: 1, replicas: 5, clients: 0, set, ..RawConfig::default() };
    raw.check(row.about().params).expect("a sound configuration")
}

/// What is lost is said again only after the crashes.
fn lossy() -> Settings {
    let mut model = Model::constant(Span::micros(2), Span::micros(40));
    model.network.loss_ppm = 400_000;
    Settings {
        messages: 40,
        payload: Some(20),
        faulty: Some(Span::millis(3)),
        model: Some(model),
        ..settings(Profile::Crash)
    }
}

#[test]
fn each_row_shows_every_pattern_that_its_specification_admits_and_no_other() {
    let mut missed = Vec::new();
    for row in rows() {
        let (spec, found) = (specification(row), search(row));
        println!("{} {spec}: {found:?}", row.name());
        if !found.complete(spec.admits()) {
            missed.push((row.name(), spec.admits().to_string(), found));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
