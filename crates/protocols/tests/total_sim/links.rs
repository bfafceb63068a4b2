//! A link that is dead in one direction, for longer than any patience: the others go on meanwhile.

use crate::shapes::rows;
use amcast_check::{History, check};
use amcast_core::trace::Event;
use amcast_core::{Config, Entry, Pid, RawConfig, Span, Time};
use amcast_protocols::total::{AB_RCAST, BB_RCAST_RCAST, PB_URCAST, Row, SB_URCAST};
use amcast_sim::{
    Choices, Chooser, Fault, Model, Outcome, Plan, Recorded, Settings, Strike, When, replay,
};

/// From when on the link is dead, and until when: 36 times as long as a process may be silent at first.
const DEAD: std::ops::Range<Time> = Time(100_000_000)..Time(1_900_000_000);

/// How long a majority may deliver nothing then: a link is reported as dead after twice the 50 ms that a process
/// may be silent, and the view changes.
const GAP_MAX: Span = Span::millis(250);

/// A row of each pattern.
const PATTERNS: [&Row; 4] = [&BB_RCAST_RCAST, &SB_URCAST, &AB_RCAST, &PB_URCAST];

fn group(row: &Row, replicas: usize, lane: &str) -> Config {
    let set = [("lane".to_string(), lane.to_string())].into();
    let raw = RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
    raw.check(row.about().params).expect("a sound configuration")
}

/// The longest time in which fewer than a majority deliver anything while these links are dead. Casts are made
/// all the time, every 5 ms. The view changes once when the links die, and not again and again.
fn longest_gap(row: &Row, config: &Config, dead: &[(u32, u32)]) -> Span {
    let replicas = config.cluster().replicas();
    let settings = Settings {
        messages: 400,
        faulty: Some(Span::secs(2)),
        payload: Some(20),
        model: Some(Model::constant(Span::micros(2), Span::micros(50))),
        settle: Span::secs(20),
        ..Settings::default()
    };
    let mut chooser = Chooser::seeded(7);
    let mut plan = Plan::draw(row, config, &settings, &mut chooser);
    let strike = |&(from, to): &(u32, u32)| {
        let (from, to, span) = (Pid(from), Pid(to), DEAD.end.since(DEAD.start));
        Strike { at: When::Time(DEAD.start), fault: Fault::Way { from, to, span } }
    };
    plan.strikes = dead.iter().map(strike).collect();
    let (mut last, mut gaps) = (vec![DEAD.start; replicas], vec![Span::ZERO; replicas]);
    let mut views = vec![0; replicas];
    let (mut history, run) = (History::new(), Recorded { plan, choices: Choices::default() });
    let mut push = |event: &Event<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
        match *event {
            Event::Deliver { t, p, .. } if DEAD.contains(&t) => {
                gaps[p.index()] = gaps[p.index()].max(t.since(last[p.index()]));
                last[p.index()] = t;
            }
            Event::View { t, p, .. } if DEAD.contains(&t) => views[p.index()] += 1,
            _ => {}
        }
    };
    let report = replay(row, config, &run, &mut push).expect("it is built");
    assert_eq!(report.outcome, Outcome::Settled, "{} {dead:?}", row.name());
    assert!(check(&history, row.about().promises).all_hold(), "{} {dead:?}", row.name());
    assert!(views.iter().all(|&entered| entered <= 2), "{} {dead:?}: {views:?}", row.name());
    let mut gaps: Vec<Span> =
        gaps.into_iter().zip(last).map(|(gap, last)| gap.max(DEAD.end.since(last))).collect();
    gaps.sort_unstable();
    gaps[config.cluster().quorum() - 1]
}

/// Every two members of each row in turn: the longest gap is short.
fn go_on(
    rows: &[&Row],
    (replicas, lane): (usize, &str),
    dead: impl Fn(u32, u32) -> Vec<(u32, u32)>,
) {
    let members = || 0..replicas as u32;
    let mut failed = Vec::new();
    for row in rows {
        let config = group(row, replicas, lane);
        let pairs = members().flat_map(|a| members().map(move |b| (a, b))).filter(|(a, b)| a != b);
        let gap = |(a, b)| (longest_gap(row, &config, &dead(a, b)), a, b);
        let (longest, from, to) = pairs.map(gap).max().expect("there are pairs");
        println!("{} of {replicas}, {lane}: {longest:?} at most, {from} to {to}", row.name());
        if longest > GAP_MAX {
            failed.push((row.name(), longest));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn three_go_on_while_one_direction_of_a_link_is_dead() {
    for lane in ["stream", "datagram", "multicast"] {
        go_on(&rows(), (3, lane), |a, b| vec![(a, b)]);
    }
}

#[test]
fn five_go_on_while_one_direction_of_a_link_is_dead() {
    go_on(&PATTERNS, (5, "stream"), |a, b| vec![(a, b)]);
}

#[test]
fn three_and_five_go_on_while_both_directions_of_a_link_are_dead() {
    go_on(&PATTERNS, (3, "stream"), |a, b| vec![(a, b), (b, a)]);
    go_on(&[&AB_RCAST], (5, "datagram"), |a, b| vec![(a, b), (b, a)]);
}
