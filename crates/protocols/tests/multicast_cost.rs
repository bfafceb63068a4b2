//! The work that a broadcast costs where casts are multicast: datagrams, and steps of all processes, counted in the
//! simulator in groups of 2 to 32 members.

use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::fastcast::FastCast;
use amcast_protocols::ring_paxos_multicast::RingPaxosMulticast;
use amcast_sim::run::run_plan;
use amcast_sim::{CarrierModel, CastPace, PlannedCast, RunPlan, RunReport};

/// Members of the groups.
const SIZES: [usize; 5] = [2, 4, 8, 16, 32];

/// Bytes of each message.
const MESSAGE_BYTES: usize = 1_000;

/// How a group broadcasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CountedLoad {
    /// This member alone, one message after the other is delivered.
    One(u32),
    /// All members, with so many messages of each on the way.
    All(u32),
}

/// Counts of a run without faults.
#[derive(Clone, Copy, Debug)]
struct CountedRun {
    /// Datagrams and messages on streams for each broadcast; one to all counts once.
    sent: f64,
    /// Steps of all processes for each delivery of any of them: a packet that arrives is one, and a wake-up.
    steps: f64,
}

fn config(entry: &dyn Entry, members: usize) -> Config {
    // Heartbeats are so seldom that they are no part of the counts.
    let set = [
        ("lane", "multicast"),
        ("link_mbps", "97"),
        ("heartbeat_us", "1000000"),
        ("suspect_us", "20000000"),
        ("retry_us", "500000"),
    ];
    let set = set.into_iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let raw = RawConfig {
        groups: 1,
        replicas: members,
        clients: 0,
        set: set.collect(),
        ..RawConfig::default()
    };
    raw.check(entry.about().params).expect("a sound configuration")
}

/// Ports of 100 Mbit/s; `step` is how long a process is busy with a packet.
fn plan(members: usize, load: CountedLoad, messages: usize, step: Span) -> RunPlan {
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(30));
    model.network.port_ps_per_byte = 80_000;
    model.network.head_bytes = 90;
    model.network.port_buffer = 512 << 10;
    model.network.socket_buffer = 4 << 20;
    model.step = step;
    let cast = |ms: u64, p: u32| PlannedCast {
        at: Time::ZERO + Span::millis(ms),
        sender: Pid(p),
        dst: GroupSet::first(1),
        bytes: MESSAGE_BYTES,
    };
    let (mut casts, pace): (Vec<_>, _) = match load {
        CountedLoad::One(p) => {
            ((0..messages as u64).map(|n| cast(100 + 20 * n, p)).collect(), CastPace::Open)
        }
        CountedLoad::All(outstanding) => {
            let all = (0..members as u32).flat_map(|p| (0..messages).map(move |_| (100, p)));
            (all.map(|(ms, p)| cast(ms, p)).collect(), CastPace::Closed(outstanding))
        }
    };
    casts.sort_by_key(|cast| cast.at);
    let calm = casts.last().map_or(Time::ZERO, |cast| cast.at) + Span::millis(1);
    RunPlan {
        model,
        casts,
        pace,
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm,
        service: false,
        drift_ppm: vec![0; members],
        settle: Span::secs(600),
        quiet: Span::millis(100),
        events_max: 100_000_000,
    }
}

/// A run with so many messages of each sender.
fn run(entry: &dyn Entry, plan: RunPlan) -> RunReport {
    let config = config(entry, plan.drift_ppm.len());
    let report = run_plan(entry, &config, plan, 1, &mut |_: &TraceEvent<'_>| {});
    let report = report.expect("it is built");
    assert!(report.settled(), "{:?}", report.outcome);
    report
}

/// Counts what more messages cost: a group that forms costs the same with few and with many.
fn count(entry: &dyn Entry, members: usize, load: CountedLoad, step: Span) -> CountedRun {
    let [few, many] = match load {
        CountedLoad::One(_) => [20, 60],
        CountedLoad::All(_) => [600 / members, 1800 / members],
    };
    let [few, many] = [few, many].map(|n| run(entry, plan(members, load, n, step)));
    let more = |of: fn(&RunReport) -> u64| of(&many).saturating_sub(of(&few)) as f64;
    let counted = CountedRun {
        sent: more(|r| r.messages) / more(|r| r.casts),
        steps: more(|r| r.steps) / more(|r| r.deliveries),
    };
    let CountedRun { sent, steps } = counted;
    println!(
        "{:<21} {members:>2} {load:?}, {step:?}: {sent:.2} sent a message, {steps:.2} steps a delivery, {:.3} s, {} lost",
        entry.name(),
        many.time.0 as f64 / 1e9,
        many.overflows,
    );
    counted
}

/// The counts of each group, from the smallest to the largest.
fn counts(entry: &dyn Entry, load: CountedLoad, step: impl Fn(usize) -> Span) -> Vec<CountedRun> {
    SIZES.iter().map(|&members| count(entry, members, load, step(members))).collect()
}

/// A packet takes two microseconds, as on a host of its own.
const fn own_hosts(_: usize) -> Span {
    Span::micros(2)
}

/// A packet takes longer the more members there are, as where they share the cores of a machine.
const fn one_machine(members: usize) -> Span {
    Span::micros(5 * members as u64)
}

#[test]
fn a_single_message_costs_packets_in_proportion_to_the_members() {
    let _limit = amcast_test_policy::time_limit();
    for entry in [&FastCast as &dyn Entry, &RingPaxosMulticast] {
        for load in [CountedLoad::One(0), CountedLoad::One(1)] {
            let found = counts(entry, load, own_hosts);
            for (members, run) in SIZES.iter().zip(&found) {
                let sent = (2 * members + 5) as f64;
                assert!(run.sent <= sent, "{}, {members} members: {run:?}", entry.name());
            }
            // Each process does the same for each delivery, in a small group and in a large one.
            let (few, many) = (found[1].steps, found[4].steps);
            assert!(many <= few * 1.25, "{}, {load:?}: {found:?}", entry.name());
        }
    }
}

#[test]
fn under_load_a_message_costs_few_packets_in_all_and_a_delivery_no_more_in_large_groups() {
    let _limit = amcast_test_policy::time_limit();
    for entry in [&FastCast as &dyn Entry, &RingPaxosMulticast] {
        for found in [
            counts(entry, CountedLoad::All(16), own_hosts),
            counts(entry, CountedLoad::All(16), one_machine),
        ] {
            assert!(found.iter().all(|run| run.sent <= 4.0), "{}: {found:?}", entry.name());
            let few = found[0].steps;
            assert!(found.iter().all(|run| run.steps <= few), "{}: {found:?}", entry.name());
        }
    }
}
