//! Which specification each row enforces, as evidence [TO table 3, definition 1]: no run violates it or
//! shows a pattern of a faulty process that it does not admit [TO table 2], and for each specification
//! directly above it a run breaks that one. Every admitted pattern that real crashes can make is found in
//! some run, too.

use crate::shapes::{judge, rows, seeds, settings, shape};
use amcast_check::{
    History, OrderKind, Patterns, Property, PropertyVerdict, Specification, check,
    execution_patterns,
};
use amcast_core::{Config, Entry, RawConfig, Span};
use amcast_protocols::catalog;
use amcast_protocols::total::{TABLE_3, TotalOrderRow};
use amcast_sim::{CarrierModel, Profile, RunSettings, Scenario};
use amcast_test_policy::{TimeLimit, time_limit_of};
use std::time::Duration;

/// Seeds within which the evidence is mostly complete.
const SEEDS: u64 = 600;

/// Runs of five members over a network that loses much, at most: for what needs two failures at once.
const LOSSY: u64 = 3000;

const PROFILES: [Profile; 3] = [Profile::All, Profile::Crash, Profile::Network];

/// The specification of [TO table 3] whose properties the row promises.
fn specification(row: &TotalOrderRow) -> Specification {
    let promised = |spec: &Specification| {
        spec.properties().iter().all(|property| row.about().promises.contains(property))
    };
    Specification::ALL.into_iter().find(promised).expect("each row enforces one of the six")
}

/// The patterns that a specification admits and that no run of its rows shows. A member of a row of weak
/// uniform order delivers by number without holes, until it enters the next view with the survivors or
/// fails: it skips nothing that correct processes deliver (EP3). They skip what only it delivered, which
/// breaks the next stronger specification all the same.
fn never_shown(spec: Specification) -> Patterns {
    Patterns { ep3: spec.order == OrderKind::Wuto, ..Patterns::default() }
}

/// A run: its profile, or `lossy`, and its seed.
type WitnessRun = (&'static str, u64);

/// The evidence that a row enforces no more than its specification.
#[derive(Debug)]
struct Evidence {
    spec: Specification,
    /// For each pattern a run in which a faulty process shows it.
    patterns: [Option<WitnessRun>; 4],
    /// For each next stronger specification a run that breaks it.
    breaks: Vec<(Specification, Option<WitnessRun>)>,
}

impl Evidence {
    fn new(spec: Specification) -> Self {
        let breaks = spec.next_stronger().into_iter().map(|stronger| (stronger, None)).collect();
        Self { spec, patterns: [None; 4], breaks }
    }

    /// Notes what a run shows, which must be within what the specification admits.
    fn note(&mut self, history: &History, run: WitnessRun) {
        for behaviour in execution_patterns(history).expect("it settled") {
            let shown = behaviour.patterns;
            assert!(shown.within(self.spec.admits()), "{run:?}: {shown} is not admitted");
            let never = [shown, never_shown(self.spec)].map(each);
            assert!(!never[0].iter().zip(never[1]).any(|(s, n)| *s && n), "{run:?}: {shown}");
            for (witness, _) in self.patterns.iter_mut().zip(never[0]).filter(|(_, shown)| *shown) {
                witness.get_or_insert(run);
            }
        }
        for (stronger, broken_by) in &mut self.breaks {
            let findings = check(history, &stronger.properties());
            if broken_by.is_none() && !findings.no_violation() {
                *broken_by = Some(run);
            }
        }
    }

    /// Whether each stronger specification is broken and each pattern shown that can be.
    fn complete(&self) -> bool {
        let (admitted, never) = (each(self.spec.admits()), each(never_shown(self.spec)));
        let all = self.patterns.iter().zip(admitted).zip(never);
        let shown = |((run, admitted), never): ((&Option<WitnessRun>, bool), bool)| {
            run.is_some() || !admitted || never
        };
        all.into_iter().all(shown) && self.breaks.iter().all(|(_, run)| run.is_some())
    }
}

const fn each(patterns: Patterns) -> [bool; 4] {
    [patterns.ep1, patterns.ep2, patterns.ep3, patterns.ep4]
}

/// Searches runs of a row until its evidence is complete.
fn search(row: &TotalOrderRow) -> Evidence {
    let mut found = Evidence::new(specification(row));
    for seed in 0..seeds(SEEDS) {
        let profile = PROFILES[(seed % 3) as usize];
        let run = (profile.name(), seed);
        look(row, &shape(row, seed, "none"), &settings(profile), run, &mut found);
        if found.complete() && seeds(0) == 0 {
            return found;
        }
    }
    for seed in 0..LOSSY {
        if found.complete() {
            break;
        }
        look(row, &lossy_group(row), &lossy(), ("lossy", seed), &mut found);
    }
    found
}

/// Notes what a run shows.
fn look(
    row: &TotalOrderRow,
    config: &Config,
    settings: &RunSettings,
    run: WitnessRun,
    found: &mut Evidence,
) {
    let judged = judge(row, config, settings, run.1);
    assert!(judged.wrong.is_none(), "{} {run:?}: {:?}", row.name(), judged.wrong);
    found.note(&judged.history, run);
}

fn lossy_group(row: &TotalOrderRow) -> Config {
    let set = [("lane".to_string(), "datagram".to_string())].into();
    let raw = RawConfig { groups: 1, replicas: 5, clients: 0, set, ..RawConfig::default() };
    raw.check(row.about().params).expect("a sound configuration")
}

/// Lost messages are retransmitted only after the crashes.
fn lossy() -> RunSettings {
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(40));
    model.network.loss_ppm = 400_000;
    RunSettings {
        messages: 40,
        payload: Some(20),
        faulty: Some(Span::millis(3)),
        model: Some(model),
        ..settings(Profile::Crash)
    }
}

/// The limit of a test, which grows with the seeds that the environment asks for.
#[track_caller]
fn limit() -> TimeLimit {
    time_limit_of(Duration::from_secs(900 + 10 * seeds(0)))
}

#[test]
fn each_row_enforces_its_specification_and_none_that_is_stronger() {
    let _limit = limit();
    let all: Vec<(&str, Evidence)> = std::thread::scope(|scope| {
        let searches: Vec<_> =
            rows().into_iter().map(|row| (row.name(), scope.spawn(move || search(row)))).collect();
        let found = searches.into_iter();
        found
            .map(|(name, search)| (name, search.join().expect("its run keeps what it promises")))
            .collect()
    });
    all.iter().for_each(|(name, found)| println!("{name}: {found:?}"));
    let missed: Vec<_> = all.iter().filter(|(_, found)| !found.complete()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn where_no_run_shows_a_pattern_a_crash_breaks_the_next_stronger_specification() {
    let _limit = limit();
    let crashes = [
        ("ab-rcast", include_str!("../../../../scenarios/to-ab-skips-a-number.txt")),
        ("pb-rcast", include_str!("../../../../scenarios/to-pb-skips-a-number.txt")),
        ("bb-rcast-urcast", include_str!("../../../../scenarios/to-bb-skips-a-number.txt")),
    ];
    let without = |row: &&&TotalOrderRow| never_shown(specification(row)) != Patterns::default();
    assert_eq!(TABLE_3.iter().filter(without).count(), crashes.len());
    for (name, text) in crashes {
        let scenario = Scenario::read(text, &catalog::find).expect("a scenario");
        assert_eq!(scenario.entry().name(), name);
        let mut history = History::new();
        let cluster = scenario.config().cluster();
        scenario.play(&mut |event| history.push_event(event, cluster).expect("sound events"));
        let broken = Specification::parse("TO(NUA,SUTO)").expect("one of the six").properties();
        let findings = check(&history, &broken);
        let suto = findings.verdict(Property::Suto);
        assert!(matches!(suto, Some(PropertyVerdict::Violated(_))), "{name}: {findings}");
        for shown in execution_patterns(&history).expect("it settled") {
            assert_eq!(shown.patterns.to_string(), "EP2", "{name}");
        }
    }
}
