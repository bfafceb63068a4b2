//! Nodes that get their state while clients write all the time.

use super::*;
use crate::simulate::kv::KvWorkload;
use crate::simulate::time::MILLISECOND;
use amcast_core::RawConfig;
use amcast_protocols::catalog::find;
use amcast_sim::Profile;

/// Bytes of deliveries that may wait at a node.
const INBOX_BYTES: usize = 1_000;

/// Bytes of deliveries that windows let through to a node that takes in no more, in these runs.
const WINDOWS_BYTES: usize = 400;

/// States come in pieces of a few bytes.
const SLOW: TransferPace = TransferPace {
    piece_bytes: (4, 8),
    breaks_ppm: 0,
    holds: Span(20 * MILLISECOND.0),
    kept_bytes: 1 << 20,
    inbox_bytes: Some(INBOX_BYTES),
};

/// A run of a protocol with views in which nodes die, come back and get their state slowly.
fn run_slow(name: &str, seed: u64) -> (RunReport, RunRemains) {
    let entry = find(name).expect("it is in the catalog");
    let set = [("window".to_string(), "2".to_string())].into();
    let raw = RawConfig { groups: 1, replicas: 3, clients: 0, set, ..RawConfig::default() };
    let config = &raw.check(entry.about().params).expect("the shape is sound");
    let service = ServiceSettings { clients: 16, calls: 100, mutant: None };
    let simulation = Simulation { entry, config, service, seed, workload: &|| KvWorkload::new(1) };
    let left = Rc::new(RefCell::new(RunRemains::default()));
    let factory = || -> Box<dyn Host> {
        let mut host = ServiceHost::new(&simulation, Rc::clone(&left));
        host.transfers = SLOW;
        host.nodes.iter_mut().for_each(|node| node.inbox_bytes = SLOW.inbox_bytes);
        Box::new(host)
    };
    let settings = RunSettings::with(Profile::Crash);
    let report = record_hosted(entry, config, &settings, seed, &factory, &mut None, &mut |_| {});
    (report.expect("the shape is sound"), left.take())
}

/// Runs in which a node is full before its state is there.
const FULL_NODES: [(&str, u64); 6] = [
    ("bb-rcast-urcast", 0),
    ("bb-rcast-urcast", 6),
    ("fastcast", 0),
    ("fastcast", 18),
    ("lcr", 1),
    ("lcr", 5),
];

#[test]
fn a_node_that_gets_its_state_slowly_holds_its_group_back_and_stays_in_it() {
    let _limit = amcast_test_policy::time_limit();
    for (name, seed) in FULL_NODES {
        let (report, RunRemains { counts, over_most, .. }) = run_slow(name, seed);
        assert!(report.settled(), "{name} {seed}: {:?}", report.outcome);
        let count = |what| counts.get(what).copied().unwrap_or(0);
        assert!(count("nodes that hold their group back") > 0, "{name} {seed}: {counts:?}");
        assert!(count("states taken over") > 0, "{name} {seed}: {counts:?}");
        for worse in ["transfers broken off", "states dropped", "full nodes excluded"] {
            assert_eq!(count(worse), 0, "{name} {seed}: {worse}");
        }
        // Where nothing holds the others back it is far more.
        assert!(over_most <= WINDOWS_BYTES, "{name} {seed}: {over_most}");
    }
}
