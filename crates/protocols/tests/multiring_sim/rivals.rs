//! Runs in which coordinators are partitioned away with a log of their own, and their successors
//! end early: so that acceptors with different values for one instance meet in phase 1. Mutants
//! that choose the wrong value are found there, and in random runs of the simulator, in some of
//! which replicas are gone in turn.

use crate::mutants::{hasty, violated};
use crate::shapes::{first, judge, seeds};
use amcast_check::{History, check};
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, Gid, GroupSet, Pid, Property, RawConfig, Span, Time};
use amcast_protocols::multiring::SYNCED;
use amcast_sim::disk::DiskModel;
use amcast_sim::faults::{Fault, FaultTime, Strike};
use amcast_sim::{
    CarrierModel, CastPace, Choices, Delay, PlannedCast, Profile, RunPlan, RunRecord, RunSettings,
};
use amcast_test_policy::{TimeLimit, time_limit_of};
use std::collections::BTreeSet;
use std::time::Duration;

/// The period in which faults occur.
const FAULTY: Span = Span::millis(40);

/// Seeds within which such a mutant must have broken its property.
const SEEDS: u64 = 100;

/// Random runs of each profile.
const RANDOM_SEEDS: u64 = 60;

/// Three replicas that are quick to suspect, and give each message an instance of its own.
fn small(mutant: &str) -> Config {
    let set = [
        ("mutant", mutant),
        ("heartbeat_us", "100"),
        ("suspect_us", "500"),
        ("retry_us", "100"),
        ("window", "8"),
        ("pack_bytes", "1"),
    ];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: 1, replicas: 3, clients: 0, set, ..RawConfig::default() };
    raw.check(SYNCED.about().params).expect("a sound configuration")
}

/// In each round one replica is partitioned away for a while. About when it returns, the link from a second one, which may
/// be the coordinator now, to the third one breaks, and the second one ends. Now and then the third loses its disk.
fn strikes(rng: &mut Rng) -> Vec<Strike> {
    let mut strikes = Vec::new();
    let mut at = Span::micros(1500);
    let mut strike = |at: Span, fault| {
        strikes.push(Strike { at: FaultTime::Time(Time::ZERO + at), fault });
    };
    while at.0 < FAULTY.0 {
        // The coordinator is mostly the first live replica.
        let first = if rng.below(4) == 0 { rng.below(3) as u32 } else { 0 };
        let turn = 1 + u32::from(rng.below(4) == 0);
        let [a, b, c] = [first, (first + turn) % 3, (first + 2 * turn) % 3].map(Pid);
        let us = |span: Span, below: u64, rng: &mut Rng| span + Span::micros(rng.below(below));
        let away = us(Span::micros(1000), 1500, rng);
        strike(at, Fault::Partition { side: vec![a], both: true, span: away });
        let end = Span(at.0 + away.0 - Span::micros(300).0) + Span::micros(rng.below(500));
        strike(end, Fault::Link { from: b, to: c, span: Span::micros(300) });
        let ends = end + Span::micros(20 + rng.below(250));
        let down = Some(us(Span::micros(1000), 2000, rng));
        strike(ends, Fault::Crash { p: b, mid_step: false, down });
        if rng.below(4) == 0 {
            let span = us(Span::micros(100), 800, rng);
            strike(ends, Fault::Replace { p: c, span });
        }
        at = us(ends + Span::millis(2), 3000, rng);
    }
    strikes.sort_by_key(|strike| match strike.at {
        FaultTime::Time(at) => at,
        FaultTime::Event(_) => Time::ZERO,
    });
    strikes
}

fn plan(seed: u64) -> RunPlan {
    let mut rng = Rng::stream(seed, "rivals");
    let mut model = CarrierModel::constant(Span::ZERO, Span::micros(5 + rng.below(30)));
    model.step = Span(200);
    model.disk = DiskModel::constant(Span::micros(10 + rng.below(90)));
    model.notice = Delay::Constant(Span::micros(200));
    let every = 50 + rng.below(300);
    let cast = |n: u64| {
        let (at, sender) = (Span::micros(n * every), Pid(rng.below(3) as u32));
        PlannedCast { at: Time::ZERO + at, sender, dst: GroupSet::one(Gid(0)), bytes: 8 }
    };
    let casts = (0..FAULTY.0 / Span::micros(every).0).map(cast).collect();
    let strikes = strikes(&mut rng);
    RunPlan {
        model,
        casts,
        pace: CastPace::Open,
        barriers: Vec::new(),
        strikes,
        service: false,
        calm: Time::ZERO + FAULTY + Span::millis(5),
        drift_ppm: Vec::new(),
        settle: Span::secs(5),
        quiet: Span::millis(5),
        events_max: 10_000_000,
    }
}

/// The properties that a run breaks, and whether acceptors with different values for one instance met.
fn run(seed: u64, mutant: &str) -> (BTreeSet<Property>, bool) {
    let config = small(mutant);
    let recorded = RunRecord { plan: plan(seed), choices: Choices::default() };
    let mut history = History::new();
    let report = amcast_sim::replay(&SYNCED, &config, &recorded, &mut |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    });
    let report = report.expect("it is built");
    assert!(mutant != "none" || report.settled(), "seed {seed}: {:?}", report.outcome);
    let findings = check(&history, SYNCED.about().promises).findings;
    let rivals = report.marks.iter().any(|(mark, _)| *mark == "multiring-rival-values");
    (violated(&report.outcome, &findings), rivals)
}

/// The limit of a test, which grows with the seeds that the environment asks for.
#[track_caller]
fn limit() -> TimeLimit {
    time_limit_of(Duration::from_secs(900 + 10 * seeds(0)))
}

#[test]
fn rival_values_meet_and_mutants_that_choose_the_wrong_one_are_found() {
    let _limit = limit();
    let count = seeds(SEEDS);
    let (broken, rivals): (Vec<_>, Vec<_>) = (0..count).map(|seed| run(seed, "none")).unzip();
    assert!(broken.iter().all(BTreeSet::is_empty), "{broken:?}");
    let met = rivals.iter().filter(|&&met| met).count();
    println!("{met} of {count} runs");
    assert!(met as u64 > count / 20, "only {met} of {count} runs");
    for mutant in ["begins-with-the-longest-log", "remembers-the-longest-log"] {
        let wrong = |seed: &u64| !run(*seed, mutant).0.is_empty();
        let found = (0..count).find(wrong);
        println!("{mutant}: {found:?}");
        assert!(found.is_some() || count < SEEDS, "{mutant} breaks nothing");
    }
}

/// The properties that a run of the simulator's own faults breaks, and whether acceptors with different values met.
fn random(profile: Profile, seed: u64, mutant: &str) -> (BTreeSet<Property>, bool) {
    let settings = RunSettings { payload_max: 300, barriers: 0, ..RunSettings::with(profile) };
    let judged = judge(&SYNCED, &hasty(mutant), &settings, seed);
    // A process that stops itself in front of the checker shows nothing.
    judged.report.map_or((BTreeSet::new(), false), |report| {
        let rivals = report.marks.iter().any(|(mark, _)| *mark == "multiring-rival-values");
        (violated(&report.outcome, &judged.findings), rivals)
    })
}

#[test]
fn random_faults_meet_rival_values_and_find_such_mutants() {
    let _limit = limit();
    let count = seeds(RANDOM_SEEDS);
    let tried = first()..first() + count;
    let meets = |profile: Profile, least: u64| {
        let mut met = 0;
        for seed in tried.clone() {
            let (broken, rivals) = random(profile, seed, "none");
            assert!(broken.is_empty(), "{} {seed}: {broken:?}", profile.name());
            met += u64::from(rivals);
        }
        println!("{}: {met} of {count} runs", profile.name());
        assert!(met >= count / least, "{}: only {met} of {count} runs", profile.name());
    };
    std::thread::scope(|scope| {
        for (profile, least) in [(Profile::Crash, 30), (Profile::Network, 12), (Profile::All, 12)] {
            let meets = &meets;
            scope.spawn(move || meets(profile, least));
        }
    });
    let mutant = "begins-with-the-longest-log";
    let found = tried.clone().find(|&seed| !random(Profile::All, seed, mutant).0.is_empty());
    println!("{mutant}: {found:?}");
    assert!(found.is_some() || count < RANDOM_SEEDS, "{mutant} breaks nothing");
}
