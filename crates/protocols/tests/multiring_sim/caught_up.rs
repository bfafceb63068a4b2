//! A process says that it has caught up once it has all that was ordered before it started.

use crate::shapes::{first, rows, seeds, settings, shape};
use amcast_core::step::Note;
use amcast_core::trace::TraceEvent;
use amcast_core::{Entry, Gid, GroupSet, MsgId, Pid, RawConfig, Span, Time};
use amcast_protocols::multiring::{MEMORY, MultiRingEntry, SYNCED, WRITTEN};
use amcast_sim::faults::{Fault, FaultTime, Strike};
use amcast_sim::{
    CarrierModel, CastPace, Choices, PlannedCast, Profile, RunOutcome, RunPlan, RunRecord,
    replay_with_notes, run,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

const CAUGHT_UP: Note = Note::Mark("multiring-caught-up");

/// The times of a run: its end, and when the last member dies and comes back.
const END: Span = Span::millis(300);
const DIES: Span = Span::millis(50);
const BACK: Span = Span::millis(200);

/// The observed events of a run.
#[derive(Default)]
struct RunObservation {
    /// By process: the messages that it delivered.
    delivered: BTreeMap<Pid, BTreeSet<MsgId>>,
}

impl RunObservation {
    fn see(&mut self, event: &TraceEvent<'_>) {
        if let TraceEvent::Deliver { p, m, .. } = *event {
            self.delivered.entry(p).or_default().insert(m);
        }
    }
}

/// A load of small messages, while the last of so many members dies and comes back. How many messages the first one
/// had delivered by then, and how many of these the other one had when it said that it had caught up.
fn messages_of(row: &MultiRingEntry, members: u32) -> (usize, usize) {
    let raw =
        RawConfig { groups: 1, replicas: members as usize, clients: 0, ..RawConfig::default() };
    let config = raw.check(row.about().params).expect("a sound configuration");
    let mut model = CarrierModel::constant(Span::ZERO, Span::micros(50));
    model.step = Span::micros(5);
    let every = Span::micros(200);
    let cast = |n: u64| {
        let dst = GroupSet::one(Gid(0));
        PlannedCast { at: Time::ZERO + every.times(n), sender: Pid(0), dst, bytes: 256 }
    };
    let last = Pid(members - 1);
    let fault = Fault::Crash { p: last, mid_step: false, down: Some(Span(BACK.0 - DIES.0)) };
    let plan = RunPlan {
        model,
        casts: (0..END.0 / every.0).map(cast).collect(),
        pace: CastPace::Open,
        barriers: Vec::new(),
        strikes: vec![Strike { at: FaultTime::Time(Time::ZERO + DIES), fault }],
        calm: Time::ZERO + END,
        service: false,
        drift_ppm: Vec::new(),
        settle: Span::secs(2),
        quiet: Span::millis(5),
        events_max: 100_000_000,
    };
    let recorded = RunRecord { plan, choices: Choices::default() };
    let (seen, before) = (RefCell::new(RunObservation::default()), RefCell::new(None));
    let had = RefCell::new(None);
    let report = replay_with_notes(
        row,
        &config,
        &recorded,
        &mut |event| {
            seen.borrow_mut().see(event);
            if matches!(event, TraceEvent::Recover { .. }) {
                *before.borrow_mut() = seen.borrow().delivered.get(&Pid(0)).cloned();
            }
        },
        &mut |_, p, note| {
            if let (true, CAUGHT_UP, Some(before)) = (p == last, note, &*before.borrow()) {
                let seen = seen.borrow();
                let count = before.intersection(&seen.delivered[&last]).count();
                assert_eq!(had.replace(Some(count)), None, "it says so once");
            }
        },
    );
    assert_eq!(report.expect("it is built").outcome, RunOutcome::Settled);
    let before = before.into_inner().expect("it comes back").len();
    (before, had.into_inner().expect("it catches up"))
}

#[test]
fn a_process_has_delivered_what_was_ordered_while_it_was_away_when_it_has_caught_up() {
    for (row, members) in [(&SYNCED, 3), (&SYNCED, 5), (&WRITTEN, 3)] {
        let (before, had) = messages_of(row, members);
        assert!(before > 500, "{before} of {}", row.name());
        assert_eq!(had, before, "{} of {members}", row.name());
    }
}

#[test]
fn every_process_that_lives_catches_up_under_all_faults() {
    let mut behind = 0;
    for row in rows() {
        for seed in first()..first() + seeds(3) {
            let config = shape(row, seed, "none");
            let report = run(row, &config, &settings(Profile::All), seed, &mut |_| {});
            let report = report.expect("it is built");
            // A run settles only once all have caught up.
            assert_eq!(report.outcome, RunOutcome::Settled, "{} {seed}", row.name());
            behind += report.marks.get("multiring-caught-up").copied().unwrap_or(0);
        }
    }
    assert!(behind > 5, "{behind}");
}

#[test]
fn without_a_disk_a_process_catches_up_with_the_state_of_another_one() {
    let (before, _) = messages_of(&MEMORY, 3);
    assert!(before > 500, "{before}");
}
