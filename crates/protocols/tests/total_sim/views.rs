//! The views of a group: one chain, the same messages in between, only where a majority is, and a
//! way back for excluded processes.

use crate::shapes::{rows, seeds, settings, shape};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, MsgId, Pid, RawConfig, Span, Time};
use amcast_protocols::total::{AB_URCAST, BB_RCAST_RCAST, PB_RCAST, SB_URCAST, TotalOrderRow};
use amcast_sim::{
    Choices, Chooser, Fault, FaultTime, Profile, RunOutcome, RunPlan, RunRecord, RunReport,
    RunSettings, Strike, record, replay,
};
use std::collections::{BTreeMap, BTreeSet};

/// An event of the group's views, by process, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ViewOccurrence {
    View(u64, Vec<Pid>),
    Deliver(MsgId),
    Crash,
    Left,
    Recover,
}

type ViewOccurrences = BTreeMap<Pid, Vec<(Time, ViewOccurrence)>>;

fn tell(told: &mut ViewOccurrences, event: &TraceEvent<'_>) {
    let (t, p, did) = match *event {
        TraceEvent::View { t, p, view, members } => {
            (t, p, ViewOccurrence::View(view.parse().expect("a number"), members.to_vec()))
        }
        TraceEvent::Deliver { t, p, m } => (t, p, ViewOccurrence::Deliver(m)),
        TraceEvent::Crash { t, p } => (t, p, ViewOccurrence::Crash),
        TraceEvent::Leave { t, p } => (t, p, ViewOccurrence::Left),
        TraceEvent::Recover { t, p } => (t, p, ViewOccurrence::Recover),
        _ => return,
    };
    told.entry(p).or_default().push((t, did));
}

/// Views by number, as every process says, which is the same.
fn chain(told: &ViewOccurrences, majority: usize) -> BTreeMap<u64, Vec<Pid>> {
    let mut views = BTreeMap::new();
    for (p, all) in told {
        let mut last = None;
        for (_, did) in all {
            let ViewOccurrence::View(id, members) = did else { continue };
            assert!(last < Some(*id), "{p:?} enters {id} after {last:?}");
            last = Some(*id);
            assert!(members.contains(p), "{p:?} is not in its view {id}");
            assert!(members.len() >= majority, "view {id} has only {members:?}");
            let known = views.entry(*id).or_insert_with(|| members.clone());
            assert_eq!(known, members, "view {id}");
        }
    }
    views
}

/// The deliveries of each process that has not failed so far between a view and the next one.
fn between(told: &ViewOccurrences) -> BTreeMap<u64, BTreeSet<Vec<MsgId>>> {
    let mut found: BTreeMap<u64, BTreeSet<Vec<MsgId>>> = BTreeMap::new();
    for all in told.values() {
        let (mut view, mut delivered) = (None, Vec::new());
        for (_, did) in all {
            match did {
                ViewOccurrence::View(next, _) => {
                    if let Some(id) = view.filter(|id| id + 1 == *next) {
                        found.entry(id).or_default().insert(std::mem::take(&mut delivered));
                    }
                    view = Some(*next);
                }
                ViewOccurrence::Deliver(m) => delivered.push(*m),
                ViewOccurrence::Crash | ViewOccurrence::Left | ViewOccurrence::Recover => break,
            }
        }
    }
    found
}

#[test]
fn views_form_one_chain_of_majorities_and_survivors_deliver_the_same_between_two() {
    let mut changes = 0;
    for row in rows() {
        for seed in 0..seeds(60) {
            let (config, mut told) = (shape(row, seed, "none"), ViewOccurrences::new());
            let mut push = |event: &TraceEvent<'_>| tell(&mut told, event);
            let report = record(row, &config, &settings(Profile::All), seed, &mut None, &mut push);
            assert!(report.expect("it is built").settled(), "{} {seed}", row.name());
            let views = chain(&told, config.cluster().quorum());
            changes += views.len() - 1;
            for (id, sequences) in between(&told) {
                assert_eq!(sequences.len(), 1, "{} {seed}: view {id}: {sequences:?}", row.name());
            }
        }
    }
    assert!(changes as u64 > seeds(60), "only {changes} changes of views");
}

fn group(row: &TotalOrderRow, replicas: usize) -> Config {
    let raw = RawConfig { groups: 1, replicas, clients: 0, ..RawConfig::default() };
    raw.check(row.about().params).expect("a sound configuration")
}

/// Runs a quiet world in which 200 messages are cast within 180 ms and only these faults strike.
fn with(
    row: &TotalOrderRow,
    replicas: usize,
    strikes: Vec<Strike>,
) -> (RunReport, ViewOccurrences) {
    with_config(row, &group(row, replicas), strikes)
}

fn with_config(
    row: &TotalOrderRow,
    config: &Config,
    strikes: Vec<Strike>,
) -> (RunReport, ViewOccurrences) {
    let settings = RunSettings {
        messages: 200,
        faulty: Some(Span::millis(200)),
        payload: Some(20),
        model: Some(amcast_sim::CarrierModel::constant(Span::micros(2), Span::micros(50))),
        ..RunSettings::default()
    };
    let mut chooser = Chooser::seeded(7);
    let mut plan = RunPlan::draw(row, config, &settings, &mut chooser);
    plan.strikes = strikes;
    let (mut told, run) = (ViewOccurrences::new(), RunRecord { plan, choices: Choices::default() });
    let mut push = |event: &TraceEvent<'_>| tell(&mut told, event);
    let report = replay(row, config, &run, &mut push).expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "{}", row.name());
    (report, told)
}

fn at_ms(ms: u64, fault: Fault) -> Strike {
    Strike { at: FaultTime::Time(Time::ZERO + Span::millis(ms)), fault }
}

fn deliveries(told: &ViewOccurrences, p: u32, ms: std::ops::Range<u64>) -> usize {
    let (from, upto) = (Span::millis(ms.start), Span::millis(ms.end));
    let within = |t: Time| (Time::ZERO + from..Time::ZERO + upto).contains(&t);
    let is = |(t, did): &&(Time, ViewOccurrence)| {
        matches!(did, ViewOccurrence::Deliver(_)) && within(*t)
    };
    told[&Pid(p)].iter().filter(is).count()
}

#[test]
fn a_minority_stops_and_comes_back_as_a_new_member_with_the_state() {
    for row in [&SB_URCAST, &BB_RCAST_RCAST, &AB_URCAST, &PB_RCAST] {
        let span = Span::millis(120);
        let cut = Fault::Partition { side: vec![Pid(0)], both: true, span };
        let (_, told) = with(row, 3, vec![at_ms(20, cut)]);
        // It suspects the others after 50 ms at the latest.
        assert_eq!(deliveries(&told, 0, 75..140), 0, "{}", row.name());
        assert!(deliveries(&told, 1, 75..140) > 10, "{}: the others continue", row.name());
        let views = chain(&told, 2);
        assert!(views.values().any(|members| *members == [Pid(1), Pid(2)]), "{views:?}");
        assert_eq!(views.values().last().map(Vec::len), Some(3), "{views:?}");
        let of = |p: u32| {
            let all = told[&Pid(p)].iter().rev();
            let since = all.take_while(|(_, did)| *did != ViewOccurrence::Recover);
            since.filter(|(_, did)| matches!(did, ViewOccurrence::Deliver(_))).count()
        };
        // Its own casts whose fate it could not know, it gives up where they may be out of order.
        assert_eq!(of(0), of(1), "{}", row.name());
        assert!(of(1) >= 180 && (of(1) == 200 || row.name() != "sb-urcast"), "{}", of(1));
    }
}

#[test]
fn the_others_agree_on_a_view_if_a_member_dies_at_any_moment_of_a_change() {
    // The coordinator of the first change dies a little later each time. All learn of the first
    // crash after a millisecond.
    let dies = |p| Fault::Crash { p: Pid(p), mid_step: false, down: None };
    let mut seen = BTreeSet::new();
    for us in (0..800).step_by(10) {
        let later = FaultTime::Time(Time::ZERO + Span::micros(20_900 + us));
        let strikes = vec![at_ms(20, dies(4)), Strike { at: later, fault: dies(0) }];
        let (report, told) = with(&SB_URCAST, 5, strikes);
        assert_eq!(report.crashes, 2);
        let views = chain(&told, 3);
        assert_eq!(views.values().last(), Some(&vec![Pid(1), Pid(2), Pid(3)]), "{us}");
        seen.insert(views);
    }
    assert!(seen.len() > 1, "the change was always at the same point: {seen:?}");
}

#[test]
fn all_but_one_of_a_majority_may_restart_one_after_the_other() {
    let restarts = |p| Fault::Crash { p: Pid(p), mid_step: false, down: Some(Span::millis(5)) };
    for row in [&SB_URCAST, &PB_RCAST] {
        let strikes = (0..3).map(|p| at_ms(10 + 60 * u64::from(p), restarts(p))).collect();
        let (report, told) = with(row, 3, strikes);
        assert_eq!(report.crashes, 3, "{}", row.name());
        let last = chain(&told, 2).into_values().last().expect("there are views");
        assert_eq!(last, [Pid(0), Pid(1), Pid(2)], "members are listed by number");
    }
}

#[test]
fn a_member_that_leaves_is_missed_by_nobody() {
    for row in rows() {
        for p in 0..3 {
            let leaves = Fault::Leave {
                p: Pid(p),
                patience: Span::millis(40),
                down: Some(Span::millis(60)),
            };
            let (report, told) = with(row, 3, vec![at_ms(50, leaves)]);
            assert_eq!(report.crashes, 0, "{} {p}", row.name());
            let (left, _) =
                told[&Pid(p)].iter().find(|(_, did)| *did == ViewOccurrence::Left).expect("left");
            // Nobody would have been suspected before 100 ms.
            assert!(*left < Time::ZERO + Span::millis(60), "{} {p}: {left:?}", row.name());
            let views = chain(&told, 2);
            let without: Vec<Pid> = (0..3).map(Pid).filter(|&q| q != Pid(p)).collect();
            assert_eq!(views[&1], without, "{}", row.name());
            assert_eq!(views.values().last().map(Vec::len), Some(3), "{}: it is back", row.name());
            let others = (0..3).filter(|&q| q != p).map(|q| deliveries(&told, q, 60..70));
            assert!(others.min() > Some(3), "{} {p}: the others continue", row.name());
        }
    }
}

/// A group whose members are waited for 10 ms, by this detector; what came of a pause of 60 ms, and of
/// a crash.
fn detected(row: &TotalOrderRow, detector: &str, fault: Fault) -> ViewOccurrences {
    let set = [("detector", detector), ("heartbeat_us", "1000"), ("suspect_us", "10000")];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: 1, replicas: 3, clients: 0, set, ..RawConfig::default() };
    let config = raw.check(row.about().params).expect("a sound configuration");
    with_config(row, &config, vec![at_ms(30, fault)]).1
}

#[test]
fn a_perfect_detector_finds_who_died_and_never_who_is_only_slow() {
    for row in [&SB_URCAST, &PB_RCAST] {
        let slow = || Fault::Pause { p: Pid(0), span: Span::millis(60) };
        let dies = || Fault::Crash { p: Pid(0), mid_step: false, down: None };
        assert!(chain(&detected(row, "timeouts", slow()), 2).len() > 1, "{}", row.name());
        assert_eq!(chain(&detected(row, "connections", slow()), 2).len(), 1, "{}", row.name());
        for detector in ["timeouts", "connections"] {
            let views = chain(&detected(row, detector, dies()), 2);
            let last = views.values().last().expect("there are views");
            assert_eq!(*last, [Pid(1), Pid(2)], "{} {detector}", row.name());
        }
    }
}
