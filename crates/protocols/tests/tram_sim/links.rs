//! A link between two replicas of a group fails and is never mended, while both reach the third one: they are a connected
//! majority with either of them, so the group continues.

use amcast_core::trace::TraceEvent;
use amcast_core::{Entry, Gid, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::catalog;
use amcast_sim::run::run_plan;
use amcast_sim::{
    CarrierModel, CastPace, Delay, Fault, FaultTime, PlannedCast, RunOutcome, RunPlan, Strike,
};
use std::collections::BTreeMap;

/// When the link fails, and when the run ends: the link is not mended before.
const CUT: Time = Time(500_000_000);
const END: Time = Time(10_000_000_000);

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
