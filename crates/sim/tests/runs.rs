//! Whole runs of toy protocols: what is right settles under every fault it does not rule out, what
//! is wrong is caught, and the same seed gives the same run.

mod toys;

use amcast_core::trace::TraceEvent;
use amcast_core::{Pid, Span, Time};
use amcast_sim::{
    Breach, CarrierModel, CastPace, Fault, FaultTime, Profile, RunOutcome, RunReport, RunSettings,
    Strike, record, replay, run, shrink,
};
use toys::{EventCounts, config, memory, messages, run3};

fn settings(profile: Profile) -> RunSettings {
    RunSettings { messages: 40, payload_max: 1000, ..RunSettings::with(profile) }
}

#[test]
fn what_is_right_settles_under_every_profile() {
    for profile in Profile::ALL {
        for seed in 0..20 {
            let report =
                run3(&memory::MemoryToy(memory::MemoryToyKind::Right), &settings(profile), seed);
            assert_eq!(report.outcome, RunOutcome::Settled, "memory, {profile:?}, seed {seed}");
            assert_eq!((report.casts, report.deliveries), (40, 120));
        }
    }
    // Its orderer must live: crashes are planned by hand below.
    for profile in [Profile::None, Profile::Pause, Profile::Network, Profile::Oracle] {
        for seed in 0..20 {
            let report = run3(
                &messages::MessageToy(messages::MessageToyKind::Right),
                &settings(profile),
                seed,
            );
            assert_eq!(report.outcome, RunOutcome::Settled, "messages, {profile:?}, seed {seed}");
        }
    }
}

#[test]
fn some_fall_silent_again_and_again_one_at_a_time() {
    let (mut most, mut in_steps) = (0, 0);
    for seed in 0..30 {
        let entry = messages::MessageToy(messages::MessageToyKind::Right);
        let report = run3(&entry, &settings(Profile::Pause), seed);
        let pause = |strike: &Strike| match (strike.at, &strike.fault) {
            (FaultTime::Time(at), Fault::Pause { span, .. }) => Some((at, at + *span)),
            _ => None,
        };
        let strikes = &report.recorded.plan.strikes;
        let pauses: Vec<_> = strikes.iter().filter_map(pause).collect();
        let apart = |pair: &&[(Time, Time)]| pair[0].1 <= pair[1].0;
        // They are drawn behind all others.
        most = most.max(pauses.windows(2).rev().take_while(apart).count() + 1);
        assert_eq!(report.marks["sim-paused"], pauses.len() as u64);
        in_steps += report.marks.get("sim-paused-in-a-step").copied().unwrap_or(0);
    }
    assert!(most > 5 && in_steps > 5, "{most} {in_steps}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let entry = memory::MemoryToy(memory::MemoryToyKind::Right);
    let hash = |seed| run3(&entry, &settings(Profile::All), seed).hash;
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}

#[test]
fn a_recorded_run_replays_to_the_same_hash() {
    let entry = messages::MessageToy(messages::MessageToyKind::Right);
    let first = run3(&entry, &settings(Profile::Network), 11);
    let again = replay(&entry, &config(3), &first.recorded, &mut |_| {}).unwrap();
    assert_eq!((first.hash, first.time), (again.hash, again.time));
    assert_eq!(first.recorded, again.recorded);
}

#[test]
fn events_are_told_in_order_and_end_comes_last() {
    let mut seen = EventCounts::default();
    let entry = memory::MemoryToy(memory::MemoryToyKind::Right);
    let settings = settings(Profile::None);
    run(&entry, &config(3), &settings, 1, &mut |event| {
        assert_eq!(seen.ends, 0, "{event:?} after the end");
        seen.note(event);
    })
    .unwrap();
    let expected =
        EventCounts { processes: 3, casts: 40, delivers: 120, ends: 1, ..EventCounts::default() };
    assert_eq!(seen, expected);
}

/// The first of some seeds whose run ends badly.
fn first_bad(entry: &dyn amcast_core::Entry, profile: Profile) -> Option<RunReport> {
    let runs = (0..60).map(|seed| run3(entry, &settings(profile), seed));
    runs.into_iter().find(|report| !report.settled())
}

#[test]
fn believing_a_line_before_its_stamp_is_caught() {
    let report =
        first_bad(&memory::MemoryToy(memory::MemoryToyKind::Hasty), Profile::Memory).unwrap();
    let expected = |b: &Breach| matches!(b, Breach::Payload { .. } | Breach::Invented { .. });
    assert!(
        matches!(&report.outcome, RunOutcome::Breach(b) if expected(b)),
        "{:?}",
        report.outcome
    );
}

#[test]
fn changing_a_source_before_the_answer_is_caught() {
    let report = first_bad(&memory::MemoryToy(memory::MemoryToyKind::Reuses), Profile::Memory);
    assert!(report.is_some());
}

#[test]
fn a_lost_datagram_that_nobody_sends_again_leaves_the_run_unsettled() {
    let report =
        first_bad(&messages::MessageToy(messages::MessageToyKind::Careless), Profile::Network)
            .unwrap();
    let RunOutcome::NotSettled(stuck) = &report.outcome else { panic!("{:?}", report.outcome) };
    assert!(stuck.iter().any(|s| !s.missing.is_empty()));
}

#[test]
fn orders_that_differ_are_caught() {
    let report =
        first_bad(&messages::MessageToy(messages::MessageToyKind::Unordered), Profile::None)
            .unwrap();
    assert!(matches!(report.outcome, RunOutcome::Breach(Breach::Diverged { .. })));
}

#[test]
fn a_process_that_wakes_itself_without_end_is_caught() {
    let report =
        run3(&messages::MessageToy(messages::MessageToyKind::Spins), &settings(Profile::None), 1);
    let RunOutcome::Breach(Breach::Spins { times, .. }) = report.outcome else {
        panic!("{:?}", report.outcome)
    };
    assert!(times == 101 && report.time < Time(10_000_000), "{times} by {:?}", report.time);
}

#[test]
#[should_panic(expected = "five is right out")]
fn assertions_of_a_protocol_reach_the_caller() {
    run3(&memory::MemoryToy(memory::MemoryToyKind::Asserts), &settings(Profile::None), 1);
}

#[test]
fn a_run_that_panicked_is_recorded_and_panics_again() {
    let (entry, mut recorded) = (memory::MemoryToy(memory::MemoryToyKind::Asserts), None);
    let settings = settings(Profile::None);
    let again = |run: &mut dyn FnMut()| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("it asserts")
    };
    again(&mut || {
        drop(record(&entry, &config(3), &settings, 1, &mut recorded, &mut |_| {}));
    });
    let recorded = recorded.unwrap();
    assert!(!recorded.choices.is_empty());
    again(&mut || drop(replay(&entry, &config(3), &recorded, &mut |_| {})));
}

/// Process 1 dies while messages are multicast and comes back.
fn with_crash(kind: messages::MessageToyKind) -> RunReport {
    let entry = messages::MessageToy(kind);
    let settings = settings(Profile::None);
    let mut recorded = run3(&entry, &settings, 5).recorded;
    let at = recorded.plan.casts[recorded.plan.casts.len() / 4].at;
    let at = FaultTime::Time(at);
    let down = Some(Span::millis(1));
    let fault = Fault::Crash { p: Pid(1), mid_step: false, down };
    recorded.plan.strikes.push(Strike { at, fault });
    recorded.plan.casts.retain(|cast| cast.sender != Pid(1));
    let mut seen = EventCounts::default();
    let report = replay(&entry, &config(3), &recorded, &mut |event| seen.note(event)).unwrap();
    assert_eq!((seen.crashes, seen.recovers), (1, 1));
    if report.settled() {
        assert_eq!(seen.delivers, seen.casts * 3, "what was delivered before is not told again");
    }
    report
}

#[test]
fn who_comes_back_takes_over_a_state_and_goes_on() {
    let report = with_crash(messages::MessageToyKind::Right);
    assert_eq!(report.outcome, RunOutcome::Settled);
    assert_eq!(report.marks.get("toy-installed"), Some(&1));
}

#[test]
fn no_more_replicas_are_down_than_the_entry_assumes() {
    // Nobody takes over from its orderer, so runs need not settle: only who is down counts.
    let entry = messages::MessageToy(messages::MessageToyKind::Right);
    let settings = RunSettings { settle: Span::millis(5), ..settings(Profile::Crash) };
    let mut crashes = 0;
    for seed in 0..200 {
        let mut down = std::collections::BTreeSet::new();
        run(&entry, &config(3), &settings, seed, &mut |event| match *event {
            TraceEvent::Crash { p, .. } => {
                crashes += 1;
                assert!(down.insert(p) && down.len() == 1, "seed {seed}: {down:?}");
            }
            TraceEvent::Recover { p, .. } => assert!(down.remove(&p)),
            _ => {}
        })
        .unwrap();
    }
    assert!(crashes > 150, "{crashes} crashes");
}

#[test]
fn a_process_that_counts_as_fit_before_its_state_is_in_force_is_caught() {
    let report = with_crash(messages::MessageToyKind::Eager);
    let RunOutcome::Breach(Breach::Contract { p: Pid(1), why }) = report.outcome else {
        panic!("{:?}", report.outcome)
    };
    assert_eq!(why, "it is fit, and has not said that it caught up");
}

#[test]
fn a_process_that_continues_without_the_state_that_it_misses_is_caught() {
    let report = with_crash(messages::MessageToyKind::Forgets);
    assert!(
        matches!(
            report.outcome,
            RunOutcome::Breach(Breach::Diverged { .. } | Breach::Forgotten { .. })
        ),
        "{:?}",
        report.outcome
    );
}

#[test]
fn a_failing_run_shrinks_and_still_fails() {
    let entry = memory::MemoryToy(memory::MemoryToyKind::Hasty);
    let report = first_bad(&entry, Profile::All).unwrap();
    let fails = |recorded: &amcast_sim::RunRecord| {
        let report = replay(&entry, &config(3), recorded, &mut |_| {}).unwrap();
        matches!(report.outcome, RunOutcome::Breach(_))
    };
    let small = shrink(report.recorded.clone(), 2000, &mut |recorded| fails(recorded));
    assert!(fails(&small));
    assert!(small.plan.casts.len() <= 3, "{} casts left", small.plan.casts.len());
    assert_eq!(small.plan.strikes, []);
    assert!(small.choices.deviations() < report.recorded.choices.deviations() / 4);
}

#[test]
fn latencies_are_what_the_model_says() {
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(10));
    model.ram.post = Span::nanos(100);
    model.ram.post_more = Span::nanos(100);
    let settings = RunSettings {
        messages: 30,
        faulty: Some(Span::millis(1)),
        ..RunSettings::latency(model, CastPace::Closed(1), 8, 1)
    };
    let mut cast = std::collections::BTreeMap::new();
    let mut latencies = Vec::new();
    let entry = memory::MemoryToy(memory::MemoryToyKind::Right);
    // One sender, so that nothing queues.
    let mut recorded = run3(&entry, &settings, 1).recorded;
    recorded.plan.casts.retain(|cast| cast.sender == Pid(1));
    let sent = recorded.plan.casts.len();
    replay(&entry, &config(3), &recorded, &mut |event| match *event {
        TraceEvent::Cast { t, m, .. } => drop(cast.insert(m, t)),
        TraceEvent::Deliver { t, p: Pid(0), m } => {
            latencies.push(t.since(cast[&m]).0);
        }
        _ => {}
    })
    .unwrap();
    // Two writes, each posted in 100 ns.
    assert_eq!(latencies, vec![2 * 2000 + 2 * 100; sent]);
    assert!(sent > 3);
}
