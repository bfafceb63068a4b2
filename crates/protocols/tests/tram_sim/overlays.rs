//! The tree of the groups changes while messages flow, under all faults: every promise is kept.

use crate::shapes::{
    TramRunEnd, brief, changing, changing_tight, changing_wrongly, judge, seeds, settings, tram,
    violated,
};
use amcast_check::{Property, PropertyVerdict};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Gid, GroupSet, Overlay, Pid, RawConfig, Span, Time};
use amcast_sim::run::run_plan;
use amcast_sim::{
    CarrierModel, Chooser, Fault, FaultTime, PlannedCast, Profile, RunPlan, RunSettings, Strike,
};
use std::collections::BTreeMap;

/// Seeds of each profile; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 8;

/// Runs seeds of a profile, and fails at the first that breaks a promise or does not settle, or if the tree did not
/// change in most of them while messages were requested anew.
fn kept(profile: Profile) {
    kept_in(changing, &settings(profile), SEEDS);
}

fn kept_in(shape: fn(u64) -> Config, settings: &RunSettings, usual: u64) {
    let profile = settings.profile;
    let settings = RunSettings { overlay_changes: 8, ..settings.clone() };
    let count = seeds(usual);
    let (mut changed, mut changes, mut learnt) = (0, 0, 0);
    for seed in 0..count {
        let config = shape(seed);
        let (end, findings) = judge(&config, &settings, seed);
        let held = findings.findings.iter().all(|(_, v)| matches!(v, PropertyVerdict::Holds));
        let replay = format!("profile {}, seed {seed}", profile.name());
        assert!(end.trouble().is_none() && held, "{replay}: {end}\n{findings}\n{config:?}");
        let TramRunEnd::Report(report) = end else { unreachable!("it had no trouble") };
        let times = |mark| report.marks.get(mark).copied().unwrap_or(0);
        let entered = times("tram-overlay-changed");
        (changes, changed) = (changes + entered, changed + u64::from(entered > 0));
        learnt += times("tram-client-learns-overlay");
    }
    println!(
        "{}: the tree changed in {changed} of {count} runs, {changes} times at a replica, {learnt} at a client",
        profile.name()
    );
    assert!(changed * 2 > count, "the tree changed in {changed} of {count} runs");
    assert!(learnt > changed, "clients learnt of {learnt} changes");
}

#[test]
fn the_tree_changes_without_faults() {
    kept(Profile::None);
}

#[test]
fn the_tree_changes_while_processes_crash_and_come_back() {
    kept(Profile::Crash);
}

#[test]
fn the_tree_changes_while_processes_stop_for_a_while() {
    kept(Profile::Pause);
}

#[test]
fn the_tree_changes_while_links_fail() {
    kept(Profile::Network);
}

#[test]
fn the_tree_changes_while_writes_are_torn_denied_and_late() {
    kept(Profile::Memory);
}

#[test]
fn the_tree_changes_while_oracles_lie() {
    kept(Profile::Oracle);
}

#[test]
fn the_tree_changes_under_all_faults_at_once() {
    kept(Profile::All);
}

#[test]
fn the_tree_changes_in_rings_with_room_for_a_few_messages() {
    for profile in [Profile::Memory, Profile::All] {
        let small = RunSettings { messages: 200, payload_max: 24, ..settings(profile) };
        kept_in(changing_tight, &small, SEEDS / 2);
    }
}

/// Which groups take part is judged by the tree in force, also behind a change.
#[test]
fn a_message_that_takes_another_way_than_down_the_present_tree_is_found() {
    for mutant in ["sends-to-root", "sends-too-high", "none"] {
        let breaks = |seed: &u64| {
            let settings = RunSettings { overlay_changes: 8, ..brief(Profile::None) };
            let (_, findings) = judge(&changing_wrongly(*seed, mutant), &settings, *seed);
            violated(&findings).contains(&Property::PartiallyGenuine)
        };
        let found = (0..20).find(breaks);
        println!("{mutant}: found with seed {found:?}");
        assert_eq!(found.is_some(), mutant != "none", "{mutant}: {found:?}");
    }
}

/// When what is looked at happens.
const AT: Time = Time(10_000_000);

/// The longest time in simulated nanoseconds in which a replica of `of` delivered nothing, around [`AT`], of messages that are
/// multicast all the while.
fn longest_gap(config: &Config, of: Gid, fault: Fault) -> Span {
    let model = CarrierModel::constant(Span::micros(1), Span::ZERO);
    let settings = RunSettings { model: Some(model), ..RunSettings::with(Profile::None) };
    let mut plan = RunPlan::draw(tram(), config, &settings, &mut Chooser::seeded(1));
    let cluster = config.cluster();
    let sets = [GroupSet::one(of), cluster.all_groups()];
    plan.casts = (0..4000_u64)
        .map(|i| PlannedCast {
            at: Time(2_000_000 + i * 5_000),
            sender: cluster.client(i as usize % 2),
            dst: sets[i as usize / 2 % 2],
            bytes: 8,
        })
        .collect();
    plan.calm = Time(30_000_000);
    plan.strikes = vec![Strike { at: FaultTime::Time(AT), fault }];
    let mut last = BTreeMap::<Pid, Time>::new();
    let mut longest = Span::ZERO;
    let mut deliveries = 0_u64;
    let mut see = |event: &TraceEvent<'_>| {
        if let TraceEvent::Deliver { t, p, .. } = *event
            && cluster.group_of(p) == Some(of)
        {
            deliveries += 1;
            let before = last.insert(p, t).unwrap_or(t);
            if t > AT && before < AT + Span::millis(5) {
                longest = longest.max(t.since(before));
            }
        }
    };
    let report = run_plan(tram(), config, plan, 1, &mut see).expect("it is built");
    assert!(report.settled(), "{:?}", report.outcome);
    assert!(deliveries > 8000, "{deliveries} deliveries");
    longest
}

/// Where a failover waits for a suspicion, a change waits for a few writes: down the old tree, to the clients and back.
#[test]
fn a_change_holds_deliveries_back_for_less_than_a_failover() {
    let raw = RawConfig {
        groups: 4,
        replicas: 3,
        clients: 2,
        overlay: "-1,0,1,2".to_string(),
        ..RawConfig::default()
    };
    let with = |name: &str| {
        let mut raw = raw.clone();
        let set = [("dynamic_overlay", name), ("heartbeat_us", "100"), ("suspect_us", "1000")];
        raw.set.extend(set.map(|(name, value)| (name.to_string(), value.to_string())));
        raw.check(tram().about().params).expect("it is sound")
    };
    let config = with("1");
    let cluster = config.cluster();
    for of in cluster.all_groups().iter() {
        let overlay = Overlay::new(&[3, 0, 1, -1], 4).expect("it is a tree");
        let change = Fault::Overlay { p: cluster.client(0), overlay };
        let change = longest_gap(&config, of, change);
        let leader = cluster.replica(of, of.index() % 3);
        let crash = Fault::Crash { p: leader, mid_step: false, down: None };
        let failover = longest_gap(&config, of, crash);
        let none = Fault::Pause { p: cluster.client(0), span: Span(1) };
        let usual = longest_gap(&config, of, none);
        println!(
            "{of}: usual {} ns, at a change {} ns, at a failover {} ns",
            usual.0, change.0, failover.0
        );
        assert!(change < failover, "{of}: usual {usual:?}, {change:?}, {failover:?}");
    }
}
