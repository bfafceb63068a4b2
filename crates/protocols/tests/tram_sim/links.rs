//! A link fails and is never mended. Between two replicas of a group, while both reach the third one: they are a connected
//! majority with either of them, so the group continues. Between a client and the leader of a group, or between the leaders of two
//! groups, while they reach all others: every message is delivered, within a few suspicions.

use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, Gid, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::catalog;
use amcast_sim::run::run_plan;
use amcast_sim::{
    CarrierModel, CastPace, Delay, Fault, FaultTime, PlannedCast, RunOutcome, RunPlan, Strike,
};
use std::collections::BTreeMap;

/// When the link fails, and when the run ends: the link is not mended before.
const CUT: Time = Time(500_000_000);
const END: Time = Time(10_000_000_000);

/// How long a process is silent before it is suspected, by default.
const SUSPICION: Span = Span::millis(50);

/// Multicasts, one after the other while the link is cut.
const CASTS: u64 = 80;

/// How long each of them takes until one replica has delivered it, in a group of three whose first two replicas do not
/// reach each other; none if that never happens. Each write takes `write`, and so does its answer.
fn latencies(entry: &dyn Entry, write: Span) -> Vec<Option<Span>> {
    let raw = RawConfig { groups: 1, replicas: 3, clients: 1, ..RawConfig::default() };
    let config = raw.check(entry.about().params).expect("a sound configuration");
    let cluster = config.cluster();
    let mut model = CarrierModel::constant(write, write);
    (model.ram.answer, model.ram.lost) = (Delay::Constant(write), Delay::Constant(write));
    let [a, b] = [0, 1].map(|rank| cluster.replica(Gid(0), rank));
    let cut = Fault::Cut { a, b, span: END.since(CUT) };
    let at = |n| CUT + Span::millis(100).times(n);
    let sender = cluster.client(0);
    let cast = |n| PlannedCast { at: at(n), sender, dst: GroupSet(1), bytes: 8 };
    let plan = RunPlan {
        model,
        casts: (0..CASTS).map(cast).collect(),
        pace: CastPace::Open,
        barriers: Vec::new(),
        strikes: vec![Strike { at: FaultTime::Time(CUT), fault: cut }],
        calm: END,
        service: false,
        drift_ppm: Vec::new(),
        settle: Span::ZERO,
        quiet: Span::micros(500),
        events_max: 10_000_000,
    };
    let (mut begun, mut over) = (Vec::new(), BTreeMap::new());
    let mut order = BTreeMap::<Pid, Vec<u64>>::new();
    let mut hear = |event: &TraceEvent<'_>| match event {
        TraceEvent::Cast { t, m, .. } => begun.push((*m, *t)),
        TraceEvent::Deliver { t, p, m, .. } => {
            over.entry(*m).or_insert(*t);
            order.entry(*p).or_default().push(m.seq);
        }
        _ => {}
    };
    let report = run_plan(entry, &config, plan, 0, &mut hear).expect("it is built");
    assert!(!matches!(report.outcome, RunOutcome::Breach(_)), "{:?}", report.outcome);
    let longest = order.values().max_by_key(|order| order.len()).cloned().unwrap_or_default();
    assert!(order.values().all(|order| longest.starts_with(order)), "{order:?}");
    assert_eq!(begun.len(), CASTS as usize);
    begun.iter().map(|(m, at)| over.get(m).map(|t: &Time| t.since(*at))).collect()
}

#[test]
fn a_group_whose_first_two_replicas_never_reach_each_other_orders_messages() {
    for name in ["tram", "ramcast"] {
        let entry = catalog::find(name).expect("it is in the catalog");
        let mut wrong = Vec::new();
        for micros in [1, 500, 1000, 2000, 3000, 4000, 5000, 6000, 8000, 12000] {
            let write = Span::micros(micros);
            let mut all = latencies(entry, write);
            all.sort();
            let missing = all.iter().filter(|latency| latency.is_none()).count();
            let (median, slowest) = (all[all.len() / 2], all[all.len() - 1]);
            println!("{name}, writes of {write:?}: {missing} missing, {median:?} to {slowest:?}");
            if missing > 0 || slowest > Some(Span::secs(2)) {
                wrong.push(write);
            }
        }
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}

/// Two groups of three replicas. The second one is the child of the first one.
fn two_groups(entry: &dyn Entry, set: &[(&str, &str)]) -> Config {
    let overlay = "-1,0".to_string();
    let mut raw = RawConfig { groups: 2, replicas: 3, clients: 1, overlay, ..RawConfig::default() };
    raw.set.extend(set.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    raw.check(entry.about().params).expect("a sound configuration")
}

/// How long it takes until a multicast is delivered by all replicas of its destinations, the longest of all, while these links
/// are dead; none if that never happens. Messages go to the one group, the other one and both in turn.
fn slowest(entry: &dyn Entry, config: &Config, dead: &[(Pid, Pid)]) -> Option<Span> {
    let write = Span::micros(2);
    let mut model = CarrierModel::constant(write, write);
    (model.ram.answer, model.ram.lost) = (Delay::Constant(write), Delay::Constant(write));
    let strike =
        |&(from, to)| Strike { at: FaultTime::Time(CUT), fault: Fault::DeadLink { from, to } };
    let sender = config.cluster().client(0);
    let cast = |n: u64| {
        let at = CUT + Span::millis(20).times(n);
        PlannedCast { at, sender, dst: GroupSet(1 + n % 3), bytes: 8 + 40 * n as usize }
    };
    let casts: Vec<_> = (0..CASTS).map(cast).collect();
    let plan = RunPlan {
        model,
        calm: casts[casts.len() - 1].at,
        casts,
        pace: CastPace::Open,
        barriers: Vec::new(),
        strikes: dead.iter().map(strike).collect(),
        service: false,
        drift_ppm: Vec::new(),
        settle: Span::secs(3),
        quiet: Span::micros(500),
        events_max: 10_000_000,
    };
    let (mut begun, mut longest) = (BTreeMap::new(), Span::ZERO);
    let mut hear = |event: &TraceEvent<'_>| match event {
        TraceEvent::Cast { t, m, .. } => {
            begun.insert(*m, *t);
        }
        TraceEvent::Deliver { t, m, .. } => longest = longest.max(t.since(begun[m])),
        _ => {}
    };
    let report = run_plan(entry, config, plan, 0, &mut hear).expect("it is built");
    assert!(!matches!(report.outcome, RunOutcome::Breach(_)), "{:?}", report.outcome);
    report.settled().then_some(longest)
}

/// The first leaders of two groups and the client, and each link between two of them, dead in one direction or in both.
fn dead_links(config: &Config) -> Vec<Vec<(Pid, Pid)>> {
    let cluster = config.cluster();
    let [a, b] = [0, 1].map(|g| cluster.replica(Gid(g), usize::from(g)));
    let c = cluster.client(0);
    let links = [(c, a), (c, b), (a, b)];
    links
        .into_iter()
        .flat_map(|(p, q)| [vec![(p, q)], vec![(q, p)], vec![(p, q), (q, p)]])
        .collect()
}

#[test]
fn a_link_to_a_leader_that_is_never_mended_holds_up_no_message_for_long() {
    for (name, set) in [("tram", &[][..]), ("tram", &[("dynamic_overlay", "1")]), ("ramcast", &[])]
    {
        let entry = catalog::find(name).expect("it is in the catalog");
        let config = two_groups(entry, set);
        let mut wrong = Vec::new();
        for dead in dead_links(&config) {
            let slowest = slowest(entry, &config, &dead);
            println!("{name} {set:?} {dead:?}: {slowest:?}");
            // A suspicion, the pace of looking, a few heartbeats: of each of two hops.
            if slowest.is_none_or(|slowest| slowest > SUSPICION.times(4)) {
                wrong.push((dead, slowest));
            }
        }
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}

#[test]
fn a_leader_that_fetches_nothing_leaves_messages_undelivered() {
    let entry = catalog::find("tram").expect("it is in the catalog");
    let config = two_groups(entry, &[("mutant", "fetches-nothing")]);
    let links = dead_links(&config);
    let stops = links.iter().filter(|dead| slowest(entry, &config, dead).is_none()).count();
    // From the client to either leader, and from the parent's leader to the child's, in both ways of each.
    assert_eq!(stops, 6);
}
