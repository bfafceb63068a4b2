//! RamCast in the simulator, where the suites of all protocols go seldom: clients that die in the middle of a
//! multicast and whose places are taken again, rings with room for a few messages, the hastiest timers.

mod misnumbering;

use amcast_check::{CheckReport, History, Property, PropertyVerdict, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, Pid, RawConfig, Span, Time};
use amcast_protocols::tram::RamCast;
use amcast_protocols::trial;
use amcast_sim::chooser::{Chooser, Concern};
use amcast_sim::run::run_plan;
use amcast_sim::{
    Failover, Fault, FaultTime, Profile, RunOutcome, RunPlan, RunReport, RunSettings, Strike,
};
use std::collections::BTreeMap;

/// Seeds of each test; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 8;

/// Seeds within which a mutant is found.
const MUTANT_WITHIN: u64 = 2000;

fn seeds() -> u64 {
    std::env::var("AMCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

fn checked(raw: &RawConfig) -> Config {
    raw.check(RamCast.about().params).expect("a sound configuration")
}

/// Two groups or more, with hardly any room.
fn tight(seed: u64) -> Config {
    let mut raw = trial::tight(&RamCast, seed, None);
    raw.groups = raw.groups.max(2);
    checked(&raw)
}

fn small(profile: Profile) -> RunSettings {
    RunSettings { messages: 200, payload_max: 150, ..RunSettings::with(profile) }
}

/// The sums over some runs.
#[derive(Debug, Default)]
struct RunTotals {
    deliveries: u64,
    /// Clients that came back.
    returned: u64,
    marks: BTreeMap<&'static str, u64>,
    failover: Failover,
}

/// Makes a run, and judges all that is promised.
fn judge(
    config: &Config,
    plan: RunPlan,
    seed: u64,
    totals: &mut RunTotals,
) -> (RunReport, CheckReport) {
    judge_with(&RamCast, None, (config, plan), seed, totals)
}

/// As [`judge`]. Groups may take part in more messages of the client `odd` than it told the history of.
fn judge_with(
    entry: &dyn Entry,
    odd: Option<Pid>,
    (config, plan): (&Config, RunPlan),
    seed: u64,
    totals: &mut RunTotals,
) -> (RunReport, CheckReport) {
    let (mut history, cluster) = (History::new(), config.cluster());
    let mut push = |event: &TraceEvent<'_>| {
        if matches!(event, TraceEvent::Part { m, .. } if Some(m.sender) == odd) {
            return;
        }
        // A client that came back has forgotten what it had cast, and owes nothing of that.
        if matches!(event, TraceEvent::Recover { p, .. } if cluster.group_of(*p).is_none()) {
            totals.returned += 1;
            return;
        }
        history.push_event(event, cluster).expect("the simulator's events are sound");
    };
    let report = run_plan(entry, config, plan, seed, &mut push).expect("it is built");
    if !matches!(report.outcome, RunOutcome::Settled) {
        history.push_event(&TraceEvent::End, cluster).expect("it is over");
    }
    totals.deliveries += report.deliveries;
    totals.failover.add(&report.failover);
    for (mark, times) in &report.marks {
        *totals.marks.entry(mark).or_default() += times;
    }
    (report, check(&history, RamCast.about().promises))
}

/// As [`judge`]: the run settles and keeps every promise.
fn kept(config: &Config, plan: RunPlan, seed: u64, totals: &mut RunTotals) {
    let (report, findings) = judge(config, plan, seed, totals);
    let settled = matches!(report.outcome, RunOutcome::Settled);
    assert!(
        settled && findings.all_hold(),
        "seed {seed}: {:?}\n{findings}\n{config:?}",
        report.outcome
    );
}

/// A plan in which clients die again and again, mostly in the middle of a step.
fn dying_clients(config: &Config, settings: &RunSettings, seed: u64, down: bool) -> RunPlan {
    let mut chooser = Chooser::seeded(!seed);
    let mut plan = RunPlan::draw(&RamCast, config, settings, &mut chooser);
    let mut pick = |n: u64| chooser.pick(Concern::Faults, n);
    for _ in 0..pick(40) {
        let at = FaultTime::Time(Time(pick(plan.calm.0)));
        let p: Pid = config.cluster().client(pick(config.cluster().clients() as u64) as usize);
        let (mid_step, away) = (pick(4) > 0, Some(Span(1 + pick(20_000))));
        let down = if down { away } else { None };
        plan.strikes.push(Strike { at, fault: Fault::Crash { p, mid_step, down } });
    }
    plan
}

#[test]
fn promises_are_kept_where_the_places_of_dead_clients_are_taken_again() {
    for profile in [Profile::None, Profile::Memory, Profile::All] {
        let settings = RunSettings { clients_return: true, ..small(profile) };
        let mut totals = RunTotals::default();
        for seed in 0..seeds() {
            let config = tight(seed);
            let plan = dying_clients(&config, &settings, seed, true);
            kept(&config, plan, seed, &mut totals);
        }
        println!("{}: {totals:?}", profile.name());
        assert!(totals.returned > seeds() && totals.deliveries > 50 * seeds(), "{totals:?}");
        assert!(totals.marks.contains_key("ramcast-passes-whole"), "{totals:?}");
    }
}

#[test]
fn what_a_client_that_stays_dead_left_holds_nobody_up() {
    let mut totals = RunTotals::default();
    // Most clients die before they have cast much: more runs are needed.
    for seed in 0..4 * seeds() {
        let config = tight(seed);
        let settings = small(if seed % 2 == 0 { Profile::None } else { Profile::Crash });
        let plan = dying_clients(&config, &settings, seed, false);
        kept(&config, plan, seed, &mut totals);
    }
    assert!(totals.marks.contains_key("ramcast-passes-whole"), "{totals:?}");
}

#[test]
fn promises_are_kept_in_rings_with_room_for_a_few_messages() {
    let mut totals = RunTotals::default();
    for seed in 0..seeds() {
        let config = tight(seed);
        for profile in [Profile::Crash, Profile::Memory, Profile::All] {
            let plan =
                RunPlan::draw(&RamCast, &config, &small(profile), &mut Chooser::seeded(seed));
            kept(&config, plan, seed, &mut totals);
        }
    }
    println!("{totals:?}");
    for mark in ["ramcast-stream-full", "tram-ring-full", "tram-left-behind", "tram-confirmed"] {
        assert!(totals.marks.contains_key(mark), "{mark} is not reached: {totals:?}");
    }
    let failover = &totals.failover;
    assert!(failover.in_flight > 0 && failover.transfers_after_crash > 0, "{failover:?}");
    assert!(failover.transfers_when_left_behind > 0, "{failover:?}");
}

/// Timers shorter than what they wait for. Such a run may take long to settle; it must never break safety.
#[test]
fn nothing_safe_is_broken_with_the_hastiest_timers() {
    let (mut totals, mut settled) = (RunTotals::default(), 0);
    for seed in 0..seeds() {
        let mut raw = trial::hasty(&RamCast, seed, None);
        for (name, value) in [("heartbeat_us", "10"), ("suspect_us", "20")] {
            raw.set.insert(name.to_string(), value.to_string());
        }
        let config = checked(&raw);
        let (faulty, settle) = (Some(Span::millis(4)), Span::millis(100));
        let brief = RunSettings { faulty, settle, ..RunSettings::with(Profile::All) };
        let plan = RunPlan::draw(&RamCast, &config, &brief, &mut Chooser::seeded(seed));
        let (report, findings) = judge(&config, plan, seed, &mut totals);
        assert!(!matches!(report.outcome, RunOutcome::Breach(_)), "{:?}", report.outcome);
        let over = matches!(report.outcome, RunOutcome::Settled);
        settled += u64::from(over);
        let live = [Property::Validity, Property::UniformAgreement];
        let broken = findings.findings.iter().filter(|(property, verdict)| {
            matches!(verdict, PropertyVerdict::Violated(_)) && (over || !live.contains(property))
        });
        assert_eq!(broken.count(), 0, "seed {seed}: {findings}");
    }
    println!("{settled} of {} settle", seeds());
    assert!(totals.deliveries > 0);
}

/// Each breaks a property that it declares, and all mutants are hunted with
/// those of the other protocols.
#[test]
fn a_leader_that_delivers_ahead_of_its_log_and_a_message_that_counts_twice_are_found() {
    for (name, property) in [
        ("delivers-ahead", Property::UniformPrefixOrder),
        ("delivers-ahead", Property::UniformAgreement),
        ("takes-up-twice", Property::UniformIntegrity),
        ("counts-copies-twice", Property::UniformIntegrity),
    ] {
        let broken = |seed: u64| {
            let mut raw = trial::hasty(&RamCast, seed, None);
            raw.groups = raw.groups.max(2);
            raw.set.insert("mutant".to_string(), name.to_string());
            let config = checked(&raw);
            let profile = [Profile::All, Profile::Crash, Profile::Oracle][(seed % 3) as usize];
            let (faulty, settle) = (Some(Span::millis(4)), Span::millis(100));
            let brief = RunSettings { faulty, settle, ..small(profile) };
            let plan = dying_clients(&config, &brief, seed, true);
            let (_, findings) = judge(&config, plan, seed, &mut RunTotals::default());
            let mut all = findings.findings.iter();
            all.any(|(p, verdict)| {
                *p == property && matches!(verdict, PropertyVerdict::Violated(_))
            })
        };
        let found = (0..MUTANT_WITHIN).find(|&seed| broken(seed));
        println!("{name}: {found:?}");
        assert!(found.is_some(), "{name} is not seen to break {property}");
    }
}
