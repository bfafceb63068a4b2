//! A member that is slow, and a way between two neighbours that does not come back: the others go on.

use amcast_core::trace::Event;
use amcast_core::{Entry, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::multiring::MEMORY;
use amcast_sim::faults::{Fault, Strike, When};
use amcast_sim::{Cast, Choices, Model, Outcome, Pace, Plan, Recorded};

/// How long something is wrong.
const WRONG: Span = Span::millis(300);

/// From one multicast of 1 KB to the next.
const EVERY: Span = Span::micros(200);

/// Three processes, of which the first coordinates and the others follow it round the ring; the first
/// and the `other` one multicast. Of what was multicast while something was wrong, which part the first
/// had delivered when that was over.
fn part(other: Pid, strikes: Vec<Strike>) -> f64 {
    let set = [("pipeline_bytes", "65536")];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
    let config = raw.check(MEMORY.about().params).expect("a sound configuration");
    let mut model = Model::constant(Span::ZERO, Span::micros(50));
    model.step = Span::micros(5);
    let count = WRONG.0 / EVERY.0;
    let cast = |n: u64| {
        let sender = if n.is_multiple_of(2) { Pid(0) } else { other };
        let dst = GroupSet::one(amcast_core::Gid(0));
        Cast { at: Time::ZERO + EVERY.times(n), sender, dst, bytes: 1024 }
    };
    let plan = Plan {
        model,
        casts: (0..count).map(cast).collect(),
        pace: Pace::Open,
        strikes,
        calm: Time::ZERO + WRONG,
        drift_ppm: Vec::new(),
        settle: Span::secs(2),
        quiet: Span::millis(5),
        events_max: 100_000_000,
    };
    let recorded = Recorded { plan, choices: Choices::default() };
    let mut delivered = 0;
    let report = amcast_sim::replay(&MEMORY, &config, &recorded, &mut |event| match *event {
        Event::Deliver { t, p: Pid(0), .. } if t < Time::ZERO + WRONG => delivered += 1,
        _ => {}
    });
    let report = report.expect("it is built");
    assert_eq!(report.outcome, Outcome::Settled, "everybody has everything in the end");
    assert_eq!(report.deliveries, 3 * count);
    f64::from(delivered) / count as f64
}

/// It runs for a millisecond of ten.
fn slow(p: Pid) -> Vec<Strike> {
    let pause = |n: u64| Strike {
        at: When::Time(Time::ZERO + Span::millis(10).times(n)),
        fault: Fault::Pause { p, span: Span::millis(9) },
    };
    (0..WRONG.0 / Span::millis(10).0).map(pause).collect()
}

#[test]
fn a_slow_member_holds_the_others_to_its_pace_at_most() {
    // Round the ring values go through the second one; of its vote there is no need.
    let through = part(Pid(2), slow(Pid(1)));
    assert!(through > 0.5, "{through}");
    let beside = part(Pid(1), slow(Pid(2)));
    assert!(beside > 0.95, "{beside}");
}

#[test]
fn neighbours_that_do_not_reach_each_other_stop_nobody() {
    let cut = Fault::Cut { a: Pid(1), b: Pid(2), span: WRONG };
    let delivered = part(Pid(1), vec![Strike { at: When::Time(Time(1)), fault: cut }]);
    assert!(delivered > 0.95, "{delivered}");
}

#[test]
fn a_coordinator_whom_one_acceptor_does_not_reach_goes_on() {
    for other in [Pid(1), Pid(2)] {
        let cut = Fault::Cut { a: Pid(0), b: other, span: WRONG };
        let strikes = || vec![Strike { at: When::Time(Time(1)), fault: cut.clone() }];
        // Also with what the one proposes who does not reach it.
        for sender in [Pid(1), Pid(2)] {
            let delivered = part(sender, strikes());
            let least = if sender == other { 0.75 } else { 0.95 };
            assert!(delivered > least, "{delivered} with {other:?}, of {sender:?}");
        }
    }
}
