//! Members far apart: an answer takes longer than the time after which the question is sent again.

use amcast_core::trace::TraceEvent;
use amcast_core::{Entry, Gid, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::multiring::{MEMORY, MultiRingEntry, SYNCED};
use amcast_sim::faults::{Fault, FaultTime, Strike};
use amcast_sim::{CarrierModel, CastPace, Choices, PlannedCast, RunOutcome, RunPlan, RunRecord};

/// The delay between two members: four times as long as until a question is sent again.
const FAR: Span = Span::millis(20);

/// The time from one multicast to the next.
const EVERY: Span = Span::millis(2);

/// When the last member loses its memory, and for how long it is down.
const LOST: Span = Span::millis(300);
const AWAY: Span = Span::millis(50);

/// When the second member ends, and the end of the run: in between the last member's vote is needed.
const ALONE: Span = Span::millis(1500);
const END: Span = Span::millis(3000);

/// How many messages the first member delivers while the only other live member is the one that lost its memory.
fn delivered(row: &MultiRingEntry) -> usize {
    let set = [("suspect_us".to_string(), "200000".to_string())].into();
    let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
    let config = raw.check(row.about().params).expect("a sound configuration");
    let mut model = CarrierModel::constant(Span::ZERO, FAR);
    model.step = Span::micros(5);
    let cast = |n: u64| {
        let dst = GroupSet::one(Gid(0));
        PlannedCast { at: Time::ZERO + EVERY.times(n), sender: Pid(0), dst, bytes: 64 }
    };
    let away = Fault::Replace { p: Pid(2), span: AWAY };
    let ends = Fault::Crash { p: Pid(1), mid_step: false, down: Some(Span(END.0 - ALONE.0)) };
    let strikes = [(LOST, away), (ALONE, ends)];
    let strikes =
        strikes.map(|(at, fault)| Strike { at: FaultTime::Time(Time::ZERO + at), fault }).into();
    let plan = RunPlan {
        model,
        casts: (0..END.0 / EVERY.0).map(cast).collect(),
        pace: CastPace::Open,
        barriers: Vec::new(),
        strikes,
        calm: Time::ZERO + END,
        service: false,
        drift_ppm: Vec::new(),
        settle: Span::secs(5),
        quiet: Span::millis(100),
        events_max: 100_000_000,
    };
    let recorded = RunRecord { plan, choices: Choices::default() };
    // Suspicion and the election of a coordinator may take that long.
    let from = Time::ZERO + Span((ALONE.0 + END.0) / 2);
    let mut delivered = 0;
    let report = amcast_sim::replay(row, &config, &recorded, &mut |event| match *event {
        TraceEvent::Deliver { t, p: Pid(0), .. } if t > from && t < Time::ZERO + END => {
            delivered += 1
        }
        _ => {}
    });
    let report = report.expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "everybody has everything in the end");
    delivered
}

#[test]
fn an_acceptor_that_lost_its_memory_votes_again_while_messages_flow() {
    for row in [&MEMORY, &SYNCED] {
        let count = delivered(row);
        assert!(count > 300, "{count} of {}", row.name());
    }
}
