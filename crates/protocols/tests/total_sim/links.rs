//! A link that is dead in one direction, for longer than any patience: the others continue
//! meanwhile.

use crate::shapes::rows;
use amcast_check::{History, check};
use amcast_core::parameters::{DETECTOR, Detector};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, Pid, RawConfig, Span, Time};
use amcast_protocols::total::{AB_RCAST, BB_RCAST_RCAST, PB_URCAST, SB_URCAST, TotalOrderRow};
use amcast_sim::{
    CarrierModel, Choices, Chooser, Fault, FaultTime, RunOutcome, RunPlan, RunRecord, RunSettings,
    Strike, replay,
};

/// From when on the link is dead, and until when: 36 times as long as a process may be silent at first.
const DEAD: std::ops::Range<Time> = Time(100_000_000)..Time(1_900_000_000);

/// How long a majority may deliver nothing then: a link is reported as dead after twice the 50 ms that a process
/// may be silent, and the view changes.
const GAP_MAX: Span = Span::millis(250);

/// How often a member enters a view then.
const VIEWS_MAX: usize = 2;

/// In place of a lane: silence says nothing, and an oracle names one end of a dead link to the other one as failed.
const CONNECTIONS: &str = "connections";

/// A row of each pattern.
const PATTERNS: [&TotalOrderRow; 4] = [&BB_RCAST_RCAST, &SB_URCAST, &AB_RCAST, &PB_URCAST];

fn group(row: &TotalOrderRow, replicas: usize, lane: &str) -> Config {
    let (name, value) = match lane {
        CONNECTIONS => ("detector", lane),
        _ => ("lane", lane),
    };
    let set = [(name.to_string(), value.to_string())].into();
    let raw = RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
    raw.check(row.about().params).expect("a sound configuration")
}

/// The longest time in which fewer than a majority deliver anything while these links are dead. Casts are made
/// all the time, every 5 ms. With it how often a member enters a view at most: the view changes when the links die,
/// and not again and again.
fn longest_gap(row: &TotalOrderRow, config: &Config, dead: &[(u32, u32)]) -> (Span, usize) {
    let replicas = config.cluster().replicas();
    let settings = RunSettings {
        messages: 400,
        faulty: Some(Span::secs(2)),
        payload: Some(20),
        model: Some(CarrierModel::constant(Span::micros(2), Span::micros(50))),
        settle: Span::secs(20),
        ..RunSettings::default()
    };
    let mut chooser = Chooser::seeded(7);
    let mut plan = RunPlan::draw(row, config, &settings, &mut chooser);
    let strike = |&(from, to): &(u32, u32)| {
        let (from, to, span) = (Pid(from), Pid(to), DEAD.end.since(DEAD.start));
        Strike { at: FaultTime::Time(DEAD.start), fault: Fault::Link { from, to, span } }
    };
    plan.strikes = dead.iter().map(strike).collect();
    if DETECTOR.find(config) == Some(Detector::Connections) {
        let told = |&(from, to): &(u32, u32)| {
            let (to, of, span) = (Pid(to), Pid(from), DEAD.end.since(DEAD.start));
            Strike { at: FaultTime::Time(DEAD.start), fault: Fault::Suspicion { to, of, span } }
        };
        plan.strikes.extend(dead.iter().map(told));
    }
    let (mut last, mut gaps) = (vec![DEAD.start; replicas], vec![Span::ZERO; replicas]);
    let mut views = vec![0; replicas];
    let (mut history, run) = (History::new(), RunRecord { plan, choices: Choices::default() });
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
        match *event {
            TraceEvent::Deliver { t, p, .. } if DEAD.contains(&t) => {
                gaps[p.index()] = gaps[p.index()].max(t.since(last[p.index()]));
                last[p.index()] = t;
            }
            TraceEvent::View { t, p, .. } if DEAD.contains(&t) => views[p.index()] += 1,
            _ => {}
        }
    };
    let report = replay(row, config, &run, &mut push).expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "{} {dead:?}", row.name());
    assert!(check(&history, row.about().promises).all_hold(), "{} {dead:?}", row.name());
    let mut gaps: Vec<Span> =
        gaps.into_iter().zip(last).map(|(gap, last)| gap.max(DEAD.end.since(last))).collect();
    gaps.sort_unstable();
    (gaps[config.cluster().quorum() - 1], views.into_iter().max().unwrap_or(0))
}

/// Dead directions of links: from, to.
type DeadLinks = Vec<(u32, u32)>;

/// All directions of links between so many members.
fn directions(replicas: u32) -> DeadLinks {
    let all = (0..replicas).flat_map(|a| (0..replicas).map(move |b| (a, b)));
    all.filter(|(a, b)| a != b).collect()
}

/// Each row with each of these sets of dead directions: the longest gap is short, and no member enters many views.
fn go_on(rows: &[&TotalOrderRow], group: (usize, &str), sets: &[DeadLinks]) {
    go_on_within((GAP_MAX, VIEWS_MAX), rows, group, sets);
}

/// The same with a bound of the gap and of the views that a member enters.
fn go_on_within(
    (gap_max, views_max): (Span, usize),
    rows: &[&TotalOrderRow],
    (replicas, lane): (usize, &str),
    sets: &[DeadLinks],
) {
    let mut failed = Vec::new();
    for row in rows {
        let config = group(row, replicas, lane);
        let runs = sets.iter().map(|dead| (longest_gap(row, &config, dead), dead));
        let runs: Vec<_> = runs.collect();
        let ((longest, _), dead) = runs.iter().max().expect("there are sets");
        println!("{} of {replicas}, {lane}: {longest:?} at most, {dead:?}", row.name());
        let bad = runs.into_iter().filter(|((gap, views), _)| *gap > gap_max || *views > views_max);
        failed.extend(bad.map(|(run, dead)| (row.name(), lane, run, dead)));
    }
    assert!(failed.is_empty(), "{} failed: {failed:?}", failed.len());
}

/// Each direction of a link alone.
fn single(replicas: u32) -> Vec<DeadLinks> {
    directions(replicas).into_iter().map(|way| vec![way]).collect()
}

/// Both directions of each link.
fn double(replicas: u32) -> Vec<DeadLinks> {
    directions(replicas).into_iter().map(|(a, b)| vec![(a, b), (b, a)]).collect()
}

/// Each member in turn hears nobody, or is heard by nobody.
fn deaf_or_mute(replicas: u32) -> Vec<DeadLinks> {
    let deaf = (0..replicas).map(|p| directions(replicas).into_iter().filter(move |w| w.1 == p));
    let mute = (0..replicas).map(|p| directions(replicas).into_iter().filter(move |w| w.0 == p));
    deaf.map(Iterator::collect).chain(mute.map(Iterator::collect)).collect()
}

/// Whether a majority of so many members is left in which each hears each other one.
fn leaves_majority(replicas: u32, dead: &DeadLinks) -> bool {
    let hear = |set: u32| dead.iter().all(|(a, b)| set >> a & 1 == 0 || set >> b & 1 == 0);
    (0..1_u32 << replicas).any(|set| set.count_ones() > replicas / 2 && hear(set))
}

/// All sets of two dead directions or more, `most` at most, that leave a majority in which each hears each other
/// one.
fn sets(replicas: u32, most: u32) -> Vec<DeadLinks> {
    let all = directions(replicas);
    let set = |bits: u32| (0..all.len()).filter(|i| bits >> i & 1 == 1).map(|i| all[i]).collect();
    let sizes = 2..=most;
    let chosen = (0..1_u32 << all.len()).filter(|bits| sizes.contains(&bits.count_ones()));
    chosen.map(set).filter(|dead| leaves_majority(replicas, dead)).collect()
}

#[test]
fn three_go_on_while_one_direction_of_a_link_is_dead() {
    for lane in ["stream", "datagram", "multicast"] {
        go_on(&rows(), (3, lane), &single(3));
    }
}

#[test]
fn five_go_on_while_one_direction_of_a_link_is_dead() {
    go_on(&PATTERNS, (5, "stream"), &single(5));
}

#[test]
fn three_and_five_go_on_while_both_directions_of_a_link_are_dead() {
    go_on(&PATTERNS, (3, "stream"), &double(3));
    go_on(&[&AB_RCAST], (5, "datagram"), &double(5));
}

#[test]
fn a_group_goes_on_while_an_oracle_names_each_end_of_a_dead_link_to_the_other_one_as_failed() {
    let gap_max = Span::millis(600);
    go_on_within((gap_max, VIEWS_MAX), &PATTERNS, (3, CONNECTIONS), &double(3));
    go_on_within((gap_max, VIEWS_MAX), &[&AB_RCAST], (5, CONNECTIONS), &double(5));
}

#[test]
fn a_group_goes_on_while_a_member_hears_nobody_or_is_heard_by_nobody() {
    for lane in ["stream", "datagram", "multicast"] {
        go_on(&[&AB_RCAST], (3, lane), &deaf_or_mute(3));
    }
    go_on(&[&AB_RCAST], (5, "datagram"), &deaf_or_mute(5));
}

#[test]
fn three_and_four_go_on_whatever_directions_are_dead_if_a_majority_hears_itself() {
    let all = sets(3, 6);
    go_on(&[&AB_RCAST], (3, "stream"), &all);
    go_on(&[&AB_RCAST], (4, "stream"), &sets(4, 3));
}

#[test]
fn a_group_goes_on_while_few_hear_the_most_senior_member() {
    go_on(&PATTERNS, (4, "stream"), &[vec![(0, 2), (0, 3)]]);
    go_on(&PATTERNS, (5, "stream"), &[vec![(0, 2), (0, 3)], vec![(0, 2), (0, 3), (0, 4)]]);
}

/// Before any member reports, the most senior member may continue with those that it hears, which do not hear each
/// other. Then the others have to do without a majority with the state, and wait eight times as long for each copy
/// of it.
#[test]
fn five_go_on_while_the_most_senior_member_hears_a_majority_that_does_not_hear_itself() {
    let reported = [vec![(0, 4), (2, 1), (3, 0)], vec![(0, 3), (2, 0), (4, 1)]];
    go_on(&[&AB_RCAST, &SB_URCAST], (5, "stream"), &reported);
    let sets = [vec![(3, 0), (4, 0), (2, 1)], vec![(0, 1), (2, 4), (3, 1)]];
    go_on_within((Span::millis(700), 3), &PATTERNS, (5, "stream"), &sets);
}
