//! A protocol that hears of the backlog of its carrier makes no more datagrams than wait there, and continues when there
//! is room again: bursts of all members over links that are much slower than their parameter says, in the simulator.

use amcast_core::{Entry, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::fastcast::FastCast;
use amcast_protocols::ring_paxos_multicast::RingPaxosMulticast;
use amcast_protocols::toto::TOTO;
use amcast_sim::run::run_plan;
use amcast_sim::{CarrierModel, CastPace, PlannedCast, RunPlan, RunReport};

const MEMBERS: usize = 4;

/// Messages of each member, all at one time.
const MESSAGES: usize = 250;

const MESSAGE_BYTES: usize = 4_000;

/// Bytes that may wait for a port before its process hears of it.
const SENDER_BYTES: u64 = 32 << 10;

/// Bytes that wait there at most: with the 128 KiB that are made in one round, before the process hears of it, and those of
/// streams beside them.
const BACKLOG_MAX: u64 = 6 * SENDER_BYTES;

/// Ports of 10 Mbit/s, which the protocol takes for a hundred times as fast.
fn plan(sender_bytes: u64) -> RunPlan {
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(30));
    model.network.port_ps_per_byte = 800_000;
    model.network.head_bytes = 90;
    model.network.port_buffer = 4 << 20;
    model.network.socket_buffer = 4 << 20;
    model.network.sender_bytes = sender_bytes;
    let at = Time::ZERO + Span::millis(100);
    let cast =
        |p| PlannedCast { at, sender: Pid(p), dst: GroupSet::first(1), bytes: MESSAGE_BYTES };
    let casts = (0..MEMBERS as u32).flat_map(|p| (0..MESSAGES).map(move |_| cast(p)));
    RunPlan {
        model,
        casts: casts.collect(),
        pace: CastPace::Open,
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm: at + Span::millis(1),
        service: false,
        drift_ppm: vec![0; MEMBERS],
        settle: Span::secs(60),
        quiet: Span::millis(100),
        events_max: 100_000_000,
    }
}

/// A run in which a process hears of its backlog beyond so many bytes, if any, with a mutant where the build has them.
fn run(entry: &dyn Entry, sender_bytes: u64, mutant: &str) -> RunReport {
    let set = [
        ("lane", "multicast"),
        ("mutant", mutant),
        ("link_mbps", "1000"),
        ("window", "200"),
        ("heartbeat_us", "20000"),
        ("suspect_us", "20000000"),
        ("retry_us", "100000"),
    ];
    let known = |name: &str| entry.about().params.iter().any(|param| param.name == name);
    let set = set.iter().filter(|(name, _)| known(name));
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let raw = RawConfig { groups: 1, replicas: MEMBERS, clients: 0, set, ..RawConfig::default() };
    let config = raw.check(entry.about().params).expect("a sound configuration");
    let report = run_plan(entry, &config, plan(sender_bytes), 1, &mut |_| {});
    report.expect("it is built")
}

/// Protocols that multicast datagrams.
fn entries() -> [&'static dyn Entry; 3] {
    [&FastCast, &RingPaxosMulticast, &TOTO]
}

#[test]
fn no_more_datagrams_are_made_than_the_carrier_has_room_for_and_all_messages_arrive() {
    let _limit = amcast_test_policy::time_limit();
    for entry in entries() {
        let [heard, deaf] = [SENDER_BYTES, 0].map(|bytes| run(entry, bytes, "none"));
        println!(
            "{}: {} bytes waited at most, {} where it hears nothing; {} and {} datagrams, {:.2} and {:.2} s",
            entry.name(),
            heard.backlog_most,
            deaf.backlog_most,
            heard.messages,
            deaf.messages,
            heard.time.0 as f64 / 1e9,
            deaf.time.0 as f64 / 1e9,
        );
        assert!(heard.settled(), "{}: {:?}", entry.name(), heard.outcome);
        assert_eq!(heard.deliveries, (MEMBERS * MEMBERS * MESSAGES) as u64, "{}", entry.name());
        assert!(heard.marks.contains_key("vsync-no-room"), "{}: {:?}", entry.name(), heard.marks);
        assert!(heard.backlog_most <= BACKLOG_MAX, "{}: {}", entry.name(), heard.backlog_most);
        // A member of toto has fewer bytes of datagrams on the way anyway.
        let is_bounded = entry.name() == TOTO.name();
        assert!(is_bounded || deaf.backlog_most > BACKLOG_MAX, "{}", deaf.backlog_most);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_member_that_ignores_its_backlog_or_never_hears_of_room_is_caught() {
    let _limit = amcast_test_policy::time_limit();
    for &entry in &entries()[..2] {
        let ignores = run(entry, SENDER_BYTES, "ignores-backlog");
        assert!(ignores.backlog_most > BACKLOG_MAX, "{}: {}", entry.name(), ignores.backlog_most);
        let never = run(entry, SENDER_BYTES, "never-hears-room");
        assert!(!never.settled(), "{}: {:?}", entry.name(), never.outcome);
    }
}
