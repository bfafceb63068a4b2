//! The abilities of an entry, found by running it.
//!
//! Nothing here reads what the entry declares: each run claims what the simulator has to believe in order to
//! try it.

use crate::recorder::{ProcessRecord, claiming, recorded};
use amcast_check::{History, check};
use amcast_core::config::ParamKind;
use amcast_core::parameters::LANE;
use amcast_core::trace::TraceEvent;
use amcast_core::{
    Capabilities, Config, Datagrams, Durability, Entry, Gid, GroupSet, PartitionMode, Pid,
    RawConfig, Senders, Span, Time,
};
use amcast_protocols::trial;
use amcast_sim::chooser::Chooser;
use amcast_sim::run::run_plan;
use amcast_sim::{Fault, FaultTime, Profile, RunPlan, RunReport, RunSettings, Strike, run};

/// Clusters that are tried for what happens in some of them only.
const SEEDS: u64 = 40;

/// The behaviour of the entry when it is run.
pub(crate) fn observe(entry: &'static dyn Entry) -> Capabilities {
    let durability = durability(entry);
    let partitions = partitions(entry);
    Capabilities {
        several_groups: several_groups(entry),
        senders: senders(entry),
        views: views(entry),
        read_index: read_index(entry),
        durability,
        state_transfer: state_transfer(entry, durability),
        crash_tolerance: crash_tolerance(entry),
        suspicion_tolerance: suspicion_tolerance(entry, partitions),
        early_delivery: early_delivery(entry),
        partitions,
        datagrams: datagrams(entry),
    }
}

/// Small buffers, so that much happens soon; in this shape, if it can be built, with the processes that
/// multicast.
fn config(entry: &dyn Entry, seed: u64, groups: usize, replicas: usize) -> Option<Config> {
    let raw = RawConfig { groups, replicas, ..trial::hasty(entry, seed, Some(groups)) };
    built(entry, &raw)
}

fn built(entry: &dyn Entry, raw: &RawConfig) -> Option<Config> {
    let config = raw.check(entry.about().params).ok()?;
    amcast_core::entry::build_all(entry, &config).ok()?;
    Some(config)
}

/// One group of three replicas, or of one where the entry replicates nothing.
fn one_group(entry: &dyn Entry) -> Config {
    let config = config(entry, 0, 1, 3).or_else(|| config(entry, 0, 1, 1));
    config.expect("every entry has a cluster of one group")
}

/// A run of little, without faults unless `settings` has some; none where it breaks what it owes the driver.
fn settings() -> RunSettings {
    RunSettings {
        messages: 20,
        barriers: 0,
        payload: Some(20),
        faulty: Some(Span::millis(4)),
        settle: Span::millis(500),
        quiet: Span::micros(500),
        ..RunSettings::default()
    }
}

fn ran(
    entry: &'static dyn Entry,
    claims: Capabilities,
    (config, settings, seed): (&Config, &RunSettings, u64),
) -> (RunReport, ProcessRecord) {
    let (claimed, record) = claiming(entry, claims);
    let report = run(claimed, config, settings, seed, &mut |_| {}).expect("the cluster is built");
    (report, recorded(&record))
}

/// Whether a message to two groups is delivered in both; the groups that cannot be built refuse it.
fn several_groups(entry: &'static dyn Entry) -> bool {
    let both = GroupSet::one(Gid(0)).with(Gid(1));
    let builds = (0..SEEDS).flat_map(|seed| [3, 1].map(|replicas| (seed, replicas)));
    let mut builds = builds.filter_map(|(seed, replicas)| config(entry, seed, 2, replicas));
    let Some(config) = builds.find(|config| entry.together(config).contains(&both)) else {
        return false;
    };
    let (claimed, _) = claiming(entry, Capabilities { several_groups: true, ..Capabilities::NONE });
    let settings = RunSettings { destinations: Some(2), ..settings() };
    let mut delivered = GroupSet::EMPTY;
    let cluster = *config.cluster();
    let mut hear = |event: &TraceEvent<'_>| {
        if let TraceEvent::Deliver { p, .. } = event {
            delivered = cluster.group_of(*p).map_or(delivered, |group| delivered.with(group));
        }
    };
    let report = run(claimed, &config, &settings, 0, &mut hear).expect("the cluster is built");
    report.settled() && report.casts > 0 && delivered == both
}

/// Which processes get a message delivered: clients, in a cluster that has any, or replicas.
fn senders(entry: &'static dyn Entry) -> Senders {
    let shape = one_group(entry);
    let replicas = shape.cluster().replicas();
    let multicast = |clients: usize| {
        let raw = RawConfig { groups: 1, replicas, clients, ..trial::hasty(entry, 0, Some(1)) };
        let Some(config) = built(entry, &raw) else { return false };
        let (report, _) = ran(entry, Capabilities::NONE, (&config, &settings(), 0));
        report.casts > 0 && report.deliveries > 0
    };
    match (multicast(2), multicast(0)) {
        (true, false) => Senders::Clients,
        (false, true) => Senders::Replicas,
        (clients, replicas) => {
            panic!("{}: clients multicast {clients}, replicas {replicas}", entry.name())
        }
    }
}

/// Whether processes enter views, and one leaves its group when it is asked to.
fn views(entry: &'static dyn Entry) -> bool {
    let config = one_group(entry);
    let p = config.cluster().replica(Gid(0), config.cluster().replicas() - 1);
    let fault = Fault::Leave { p, patience: Span::millis(50), down: Some(Span::millis(1)) };
    let claims = Capabilities { views: true, ..Capabilities::NONE };
    let (_, record) = struck(entry, claims, &config, fault);
    record.views > 0 && record.left > 0
}

/// A run in which this happens in its middle.
fn struck(
    entry: &'static dyn Entry,
    claims: Capabilities,
    config: &Config,
    fault: Fault,
) -> (RunReport, ProcessRecord) {
    let (claimed, record) = claiming(entry, claims);
    // All may be delivered before a process has left: the run lasts until it has had the time to.
    let settings = RunSettings { quiet: Span::millis(20), ..settings() };
    let mut plan = RunPlan::draw(claimed, config, &settings, &mut Chooser::seeded(1));
    plan.strikes.push(Strike { at: FaultTime::Time(Time(2_000_000)), fault });
    let report = run_plan(claimed, config, plan, 0, &mut |_| {}).expect("the cluster is built");
    (report, recorded(&record))
}

/// Whether a barrier is passed.
fn read_index(entry: &'static dyn Entry) -> bool {
    let claims = Capabilities { read_index: true, ..Capabilities::NONE };
    let settings = RunSettings { barriers: 10, ..settings() };
    let (report, _) = ran(entry, claims, (&one_group(entry), &settings, 0));
    report.barriers > 0
}

/// The records that are persisted while messages are ordered, and whether they are awaited.
fn durability(entry: &'static dyn Entry) -> Durability {
    let claims = Capabilities { durability: Durability::Synced, ..Capabilities::NONE };
    let (_, record) = ran(entry, claims, (&one_group(entry), &settings(), 0));
    match (record.awaited, record.written) {
        (0, 0) => Durability::Volatile,
        (0, _) => Durability::Written,
        _ => Durability::Synced,
    }
}

/// Whether a process installs the state of another one, in runs in which processes fail, are cut off, and
/// return.
fn state_transfer(entry: &'static dyn Entry, durability: Durability) -> bool {
    let claims = Capabilities { durability, ..Capabilities::NONE };
    let settings = RunSettings { messages: 60, ..settings() };
    (0..SEEDS).any(|seed| {
        let profile = if seed % 2 == 0 { Profile::Crash } else { Profile::All };
        let config = config(entry, seed, 1, 3).unwrap_or_else(|| one_group(entry));
        let settings = RunSettings { profile, ..settings.clone() };
        ran(entry, claims, (&config, &settings, seed)).1.installed > 0
    })
}

/// Whether what is multicast is delivered by the others when a replica of three is gone for good, the one that
/// is likely to lead; a group of three that cannot be built replicates nothing.
fn crash_tolerance(entry: &'static dyn Entry) -> bool {
    let Some(config) = config(entry, 0, 1, 3) else { return false };
    let p = config.cluster().replica(Gid(0), 0);
    let fault = Fault::Crash { p, mid_step: false, down: None };
    let (report, _) = struck(entry, Capabilities::NONE, &config, fault);
    report.settled() && report.crashes == 1 && report.deliveries > 0
}

/// Whether all promises are kept where one replica is partitioned away for a while: it and the others take each other for
/// failed, and all of them work.
fn suspicion_tolerance(entry: &'static dyn Entry, partitions: PartitionMode) -> bool {
    let config = one_group(entry);
    let all: Vec<Pid> = config.cluster().members(Gid(0)).collect();
    let others = all.iter().copied().skip(1);
    let apart = others.flat_map(|other| [(all[0], other), (other, all[0])]);
    let span = Span::millis(4);
    let faults = apart.map(|(to, of)| Fault::Suspicion { to, of, span });
    let faults = faults.chain([Fault::Partition { side: vec![all[0]], both: true, span }]);
    let strikes = faults.map(|fault| Strike { at: FaultTime::Time(Time(500_000)), fault });
    // The simulator expects deliveries in all components, or in one.
    let (claimed, _) = claiming(entry, Capabilities { partitions, ..Capabilities::NONE });
    let settings = RunSettings { messages: 60, ..settings() };
    let mut plan = RunPlan::draw(claimed, &config, &settings, &mut Chooser::seeded(1));
    plan.strikes.extend(strikes);
    let mut history = History::new();
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    run_plan(claimed, &config, plan, 0, &mut push).expect("the cluster is built");
    check(&history, entry.about().promises).all_hold()
}

/// Whether messages are delivered early in a run without faults, in which the simulator wants that of every process.
fn early_delivery(entry: &'static dyn Entry) -> bool {
    let (claimed, _) = claiming(entry, Capabilities::NONE);
    let mut early = 0;
    let mut hear = |event: &TraceEvent<'_>| {
        early += u64::from(matches!(event, TraceEvent::Early { .. }));
    };
    run(claimed, &one_group(entry), &settings(), 0, &mut hear).expect("the cluster is built");
    early > 0
}

/// Which components of a partitioned group continue: one replica hears nobody for long, and it and the others deliver
/// messages of their own meanwhile, or not.
fn partitions(entry: &'static dyn Entry) -> PartitionMode {
    let config = one_group(entry);
    let all: Vec<Pid> = config.cluster().members(Gid(0)).collect();
    let (claimed, _) = claiming(entry, Capabilities::NONE);
    let faulty = Some(Span::millis(200));
    let settings = RunSettings { messages: 200, faulty, ..settings() };
    let mut plan = RunPlan::draw(claimed, &config, &settings, &mut Chooser::seeded(1));
    let fault = Fault::Partition { side: vec![all[0]], both: true, span: Span::millis(200) };
    plan.strikes.push(Strike { at: FaultTime::Time(Time::ZERO), fault });
    let mut delivers = vec![false; config.cluster().processes()];
    let mut hear = |event: &TraceEvent<'_>| {
        if let TraceEvent::Deliver { t, p, m } = event
            && *t < Time::ZERO + Span::millis(200)
        {
            delivers[p.index()] |= (m.sender == all[0]) == (*p == all[0]);
        }
    };
    run_plan(claimed, &config, plan, 0, &mut hear).expect("the cluster is built");
    match all.len() > 1 && all.iter().all(|p| delivers[p.index()]) {
        true => PartitionMode::EveryComponent,
        false => PartitionMode::PrimaryComponent,
    }
}

/// The messages that are sent as datagrams, with packets asked to travel on any transport that the protocol has.
fn datagrams(entry: &'static dyn Entry) -> Datagrams {
    let mut most = Datagrams::Never;
    for lane in lanes(entry) {
        let mut raw = trial::hasty(entry, 0, Some(1));
        raw.set.extend(lane);
        let config = built(entry, &raw).expect("every lane that there is can be built");
        let (_, record) = ran(entry, Capabilities::NONE, (&config, &settings(), 0));
        let seen = match (record.unicast, record.multicast) {
            (0, 0) => Datagrams::Never,
            (_, 0) => Datagrams::Unicast,
            _ => Datagrams::Multicast,
        };
        most = most.max(seen);
    }
    most
}

/// The settings of each transport that a protocol can be asked for; none at all if it has no choice.
fn lanes(entry: &dyn Entry) -> Vec<Option<(String, String)>> {
    match entry.about().params.iter().find(|param| LANE.is(param)).map(|param| param.kind) {
        Some(ParamKind::Choice { of }) => {
            of.iter().map(|lane| Some((LANE.name().to_string(), lane.to_string()))).collect()
        }
        _ => vec![None],
    }
}
