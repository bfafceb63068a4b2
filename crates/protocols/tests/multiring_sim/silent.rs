//! A member falls silent again and again with its connections up, as a process that the operating system stops: the
//! others close the ring around it soon, each time.

use amcast_core::trace::TraceEvent;
use amcast_core::{Entry, Gid, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::multiring::{MEMORY, MultiRingEntry, SYNCED, WRITTEN};
use amcast_sim::faults::{Fault, FaultTime, Strike};
use amcast_sim::{CarrierModel, CastPace, Choices, PlannedCast, RunOutcome, RunPlan, RunRecord};

/// At first a member is suspected after this silence.
const SUSPECT: Span = Span::millis(20);

/// How long a member is silent each time, and the time from one silence to the next.
const SILENT: Span = Span::millis(200);
const EVERY: Span = Span::millis(280);

/// The number of silences.
const TIMES: u64 = 8;

/// For each silence the longest time without a delivery at one of the others, while every member multicasts.
fn gaps(row: &MultiRingEntry, silent: fn(u64) -> Pid) -> Vec<Span> {
    let set = [("suspect_us", SUSPECT), ("heartbeat_us", Span::millis(2))];
    let set = set.map(|(name, span)| (name.to_string(), (span.0 / 1000).to_string())).into();
    let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
    let config = raw.check(row.about().params).expect("a sound configuration");
    let mut model = CarrierModel::constant(Span::ZERO, Span::micros(50));
    model.step = Span::micros(5);
    let cast = |n: u64| {
        let (at, sender) = (Time::ZERO + Span::micros(500).times(n), Pid(n as u32 % 3));
        PlannedCast { at, sender, dst: GroupSet::one(Gid(0)), bytes: 64 }
    };
    let begin = |n: u64| Time::ZERO + EVERY.times(n) + Span::millis(50);
    let strike = |n| Strike {
        at: FaultTime::Time(begin(n)),
        fault: Fault::Pause { p: silent(n), span: SILENT },
    };
    let end = begin(TIMES);
    let plan = RunPlan {
        model,
        casts: (0..end.0 / Span::micros(500).0).map(cast).collect(),
        pace: CastPace::Open,
        barriers: Vec::new(),
        strikes: (0..TIMES).map(strike).collect(),
        calm: end,
        service: false,
        drift_ppm: Vec::new(),
        settle: Span::secs(2),
        quiet: Span::millis(5),
        events_max: 100_000_000,
    };
    let recorded = RunRecord { plan, choices: Choices::default() };
    let mut at = [(); 3].map(|()| vec![Time::ZERO]);
    let report = amcast_sim::replay(row, &config, &recorded, &mut |event| {
        if let TraceEvent::Deliver { t, p, .. } = *event {
            at[p.index()].push(t);
        }
    });
    let report = report.expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "everybody has everything in the end");
    let gap = |n| {
        let other = &at[(silent(n).index() + 1) % 3];
        let ends = |pair: &&[Time]| pair[1] >= begin(n) && pair[1] < begin(n + 1);
        let gaps = other.windows(2).filter(ends).map(|pair| pair[1].since(pair[0]));
        gaps.max().expect("something was delivered")
    };
    (0..TIMES).map(gap).collect()
}

#[test]
fn the_others_continue_soon_each_time_that_a_member_falls_silent() {
    let who: [fn(u64) -> Pid; 4] = [|_| Pid(0), |_| Pid(1), |_| Pid(2), |n| Pid(n as u32 % 3)];
    for row in [&MEMORY, &SYNCED, &WRITTEN] {
        for silent in who {
            let (name, second, gaps) = (row.name(), silent(1), gaps(row, silent));
            let soon = |gap: &Span| gap.0 < SUSPECT.0 * 3 / 2;
            assert!(gaps.iter().all(soon), "{name}, {second:?} the second time: {gaps:?}");
        }
    }
}
