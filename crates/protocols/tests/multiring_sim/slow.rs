//! A member that is slow, and a link between two neighbours that does not come back: the others continue.

use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{Entry, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::multiring::{MEMORY, MultiRingEntry, SYNCED};
use amcast_sim::faults::{Fault, FaultTime, Strike};
use amcast_sim::{CarrierModel, CastPace, Choices, PlannedCast, RunOutcome, RunPlan, RunRecord};
use std::collections::BTreeSet;

/// How long the fault lasts.
const WRONG: Span = Span::millis(300);

/// From one multicast of 1 KB to the next.
const EVERY: Span = Span::micros(200);

/// The clusters: with and without disks, and with three and five members.
const WHERE: [(&MultiRingEntry, u32); 4] = [(&MEMORY, 3), (&SYNCED, 3), (&MEMORY, 5), (&SYNCED, 5)];

fn named((row, members): (&MultiRingEntry, u32)) -> String {
    format!("{} of {members}", row.name())
}

/// Runs a ring whose coordinator is the first process; the coordinator and `other` multicast. Gives the part of the
/// messages multicast during the fault that the coordinator had delivered when the fault ended.
fn part(place: (&MultiRingEntry, u32), other: Pid, strikes: Vec<Strike>) -> f64 {
    part_at(place, (Pid(0), other), strikes)
}

/// As [`part`], for any two senders: the part that the first of them had delivered.
fn part_at(place: (&MultiRingEntry, u32), pids: (Pid, Pid), strikes: Vec<Strike>) -> f64 {
    run(place, pids, &[("pipeline_bytes", "65536")], strikes).0
}

/// As [`part_at`], with these parameters; and how often a member asked for a whole state.
fn run(
    (row, members): (&MultiRingEntry, u32),
    (one, other): (Pid, Pid),
    set: &[(&str, &str)],
    strikes: Vec<Strike>,
) -> (f64, u64) {
    let set = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let replicas = members as usize;
    let raw = RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
    let config = raw.check(row.about().params).expect("a sound configuration");
    let mut model = CarrierModel::constant(Span::ZERO, Span::micros(50));
    model.step = Span::micros(5);
    let count = WRONG.0 / EVERY.0;
    let cast = |n: u64| {
        let sender = if n.is_multiple_of(2) { one } else { other };
        let dst = GroupSet::one(amcast_core::Gid(0));
        PlannedCast { at: Time::ZERO + EVERY.times(n), sender, dst, bytes: 1024 }
    };
    let plan = RunPlan {
        model,
        casts: (0..count).map(cast).collect(),
        pace: CastPace::Open,
        barriers: Vec::new(),
        strikes,
        calm: Time::ZERO + WRONG,
        service: false,
        drift_ppm: Vec::new(),
        settle: Span::secs(2),
        quiet: Span::millis(5),
        events_max: 100_000_000,
    };
    let recorded = RunRecord { plan, choices: Choices::default() };
    let mut delivered = 0;
    let report = amcast_sim::replay(row, &config, &recorded, &mut |event| match *event {
        TraceEvent::Deliver { t, p, .. } if p == one && t < Time::ZERO + WRONG => delivered += 1,
        _ => {}
    });
    let report = report.expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "everybody has everything in the end");
    let states = report.marks.get("multiring-wants-state").copied().unwrap_or(0);
    // Deliveries that a state holds are not repeated.
    assert!(states > 0 || report.deliveries == u64::from(members) * count, "{report:?}");
    (f64::from(delivered) / count as f64, states)
}

/// The process runs for one millisecond of every ten.
fn slow(p: Pid) -> Vec<Strike> {
    let pause = |n: u64| Strike {
        at: FaultTime::Time(Time::ZERO + Span::millis(10).times(n)),
        fault: Fault::Pause { p, span: Span::millis(9) },
    };
    (0..WRONG.0 / Span::millis(10).0).map(pause).collect()
}

#[test]
fn a_slow_member_holds_the_others_to_its_pace_at_most() {
    for place in WHERE {
        // Values pass the second member on the ring; its vote is not needed.
        let through = part(place, Pid(2), slow(Pid(1)));
        assert!(through > 0.5, "{through} of {}", named(place));
        let unneeded = part(place, Pid(1), slow(Pid(place.1 - 1)));
        assert!(unneeded > 0.95, "{unneeded} of {}", named(place));
    }
}

/// A member without a disk that gets no processor for most of the time: while it pauses, the others decide several
/// times as much as its predecessor may send ahead. Gives the part that the others deliver meanwhile, and how
/// often it needs a state, where the others may keep so many bytes for it.
fn kept_for_a_slow_member(members: u32, cache_bytes: &str) -> (f64, u64) {
    let set = [("pipeline_bytes", "4096"), ("cache_bytes", cache_bytes)];
    run((&MEMORY, members), (Pid(0), Pid(1)), &set, slow(Pid(members - 1)))
}

#[test]
fn a_slow_member_gets_missing_instances_from_the_memory_of_the_others() {
    for members in [3, 5] {
        let (delivered, states) = kept_for_a_slow_member(members, "1000000");
        assert!(delivered > 0.95, "{delivered} of {members}");
        assert_eq!(states, 0, "of {members}: the others trimmed what it was not sent");
    }
}

#[test]
fn a_member_that_is_too_slow_for_the_memory_of_the_others_lags_and_holds_nobody_back() {
    for members in [3, 5] {
        let (delivered, states) = kept_for_a_slow_member(members, "8192");
        assert!(delivered > 0.95, "{delivered} of {members}");
        assert!(states > 0, "of {members}: the others kept more than they may");
    }
}

/// The fault of the link between two processes: nothing passes from the first to the second one, or
/// back, or neither.
fn broken(a: Pid, b: Pid) -> [Fault; 3] {
    let there = Fault::Link { from: a, to: b, span: WRONG };
    let back = Fault::Link { from: b, to: a, span: WRONG };
    [there, back, Fault::Cut { a, b, span: WRONG }]
}

#[test]
fn neighbours_that_do_not_reach_each_other_stop_nobody() {
    for place in WHERE {
        for fault in broken(Pid(1), Pid(2)) {
            let strikes = vec![Strike { at: FaultTime::Time(Time(1)), fault: fault.clone() }];
            let delivered = part(place, Pid(1), strikes);
            assert!(delivered > 0.95, "{delivered} of {} with {fault:?}", named(place));
        }
    }
}

#[test]
fn a_coordinator_that_one_acceptor_does_not_reach_continues() {
    for place in WHERE {
        let last = Pid(place.1 - 1);
        for (other, fault) in
            [Pid(1), last].into_iter().flat_map(|p| broken(Pid(0), p).map(|f| (p, f)))
        {
            // Also with the proposals of the acceptor that it does not reach.
            for sender in [Pid(1), last] {
                let strikes = vec![Strike { at: FaultTime::Time(Time(1)), fault: fault.clone() }];
                let delivered = part(place, sender, strikes);
                let least = if sender == other { 0.75 } else { 0.95 };
                assert!(
                    delivered > least,
                    "{delivered} of {}, {sender:?}: {fault:?}",
                    named(place)
                );
            }
        }
    }
}

#[test]
fn a_coordinator_that_reaches_a_majority_continues_over_any_broken_ring() {
    // The first and the last two reach each other, but not the last but one the last.
    let broken = [(1, 0), (2, 0), (2, 4), (3, 4)];
    for row in [&MEMORY, &SYNCED] {
        let strike = |(from, to)| {
            let fault = Fault::Link { from: Pid(from), to: Pid(to), span: WRONG };
            Strike { at: FaultTime::Time(Time(1)), fault }
        };
        let delivered = part((row, 5), Pid(4), broken.map(strike).to_vec());
        assert!(delivered > 0.6, "{delivered} of {}", row.name());
    }
}

/// Some links among so many members, by seed.
fn broken_links(seed: u64, members: u32) -> BTreeSet<(u32, u32)> {
    let mut rng = Rng::stream(seed, "ways");
    let count = 1 + rng.below(u64::from(members) * 2 - 2);
    let mut one = || rng.below(u64::from(members)) as u32;
    (0..count).map(|_| (one(), one())).filter(|(from, to)| from != to).collect()
}

#[test]
fn a_member_that_reaches_a_majority_continues_over_any_broken_links() {
    let mut tried = 0;
    for seed in 0..30 {
        let place = WHERE[seed as usize % WHERE.len()];
        let (members, broken) = (place.1, broken_links(seed, place.1));
        let joined = |a, b| !broken.contains(&(a, b)) && !broken.contains(&(b, a));
        let reaches = |p: &u32| (0..members).filter(|&q| joined(*p, q)).count();
        let Some(p) = (0..members).find(|p| reaches(p) > members as usize / 2) else { continue };
        let strike = |&(from, to): &(u32, u32)| {
            let fault = Fault::Link { from: Pid(from), to: Pid(to), span: WRONG };
            Strike { at: FaultTime::Time(Time(1)), fault }
        };
        let delivered = part_at(place, (Pid(p), Pid(p)), broken.iter().map(strike).collect());
        assert!(delivered > 0.4, "{delivered} of {}, {p}, seed {seed}", named(place));
        tried += 1;
    }
    assert!(tried > 10, "{tried}");
}
