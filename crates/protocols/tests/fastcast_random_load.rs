//! FastCast under messages of random members at random times, on links of 50 Mbit/s that are nearly full. The network is
//! a model: 256 KiB wait in front of each port of the switch.

use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::fastcast::FastCast;
use amcast_sim::run::run_plan;
use amcast_sim::{CarrierModel, CastPace, PlannedCast, RunPlan};
use std::collections::BTreeMap;

const MEMBERS: usize = 8;

/// The rate of each port, in megabits a second of frames.
const PORT_MBPS: u64 = 53;

/// The rate of the datagrams that it carries.
const LINK_MBPS: &str = "49";

/// Messages begin after this time: by then the group has formed.
const BEGIN: Span = Span::millis(100);

/// For so long.
const LASTS: Span = Span::secs(5);

fn config() -> Config {
    let set = [("lane", "multicast"), ("link_mbps", LINK_MBPS), ("packet_bytes", "12000")];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string()));
    let raw = RawConfig {
        groups: 1,
        replicas: MEMBERS,
        clients: 0,
        set: set.into(),
        ..RawConfig::default()
    };
    raw.check(FastCast.about().params).expect("a sound configuration")
}

/// A message of so many bytes in each equal part of the time, by chance from any member.
fn plan(mbps: f64, bytes: usize) -> RunPlan {
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(30));
    model.network.port_ps_per_byte = 8_000_000 / PORT_MBPS;
    model.network.head_bytes = 90;
    model.network.port_buffer = 256 << 10;
    model.network.socket_buffer = 4 << 20;
    model.step = Span::micros(2);
    let apart = bytes as f64 * 8e3 / mbps;
    let count = (LASTS.0 as f64 / apart) as u64;
    let mut rng = Rng::new(count);
    let mut casts: Vec<_> = (0..count)
        .map(|n| PlannedCast {
            at: Time::ZERO + BEGIN + Span((n as f64 * apart) as u64 + rng.below(apart as u64 + 1)),
            sender: Pid(rng.below(MEMBERS as u64) as u32),
            dst: GroupSet::first(1),
            bytes,
        })
        .collect();
    casts.sort_by_key(|cast| cast.at);
    let calm = casts.last().map_or(Time::ZERO, |cast| cast.at) + Span::millis(1);
    RunPlan {
        model,
        casts,
        pace: CastPace::Open,
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm,
        service: false,
        drift_ppm: vec![0; MEMBERS],
        settle: Span::secs(60),
        quiet: Span::millis(100),
        events_max: 1_000_000_000,
    }
}

/// How long messages took to be delivered at their senders.
struct ResponseTimes {
    mean: Span,
    longest: Span,
    /// Datagrams that found a buffer full.
    lost: u64,
}

fn run(mbps: f64, bytes: usize) -> ResponseTimes {
    let (mut submitted, mut times) = (BTreeMap::new(), Vec::new());
    let mut hear = |event: &TraceEvent<'_>| match *event {
        TraceEvent::Cast { t, m, .. } => {
            submitted.insert(m, t);
        }
        TraceEvent::Deliver { t, p, m, .. } if p == m.sender => {
            times.push(t.since(submitted[&m]));
        }
        _ => {}
    };
    let report = run_plan(&FastCast, &config(), plan(mbps, bytes), 1, &mut hear);
    let report = report.expect("it is built");
    assert!(report.settled(), "{:?}", report.outcome);
    assert_eq!(times.len(), submitted.len(), "each sender delivers its own messages");
    let mean = Span(times.iter().map(|t| t.0).sum::<u64>() / times.len() as u64);
    let longest = times.iter().copied().max().expect("there are messages");
    println!(
        "{mbps} Mbit/s of {bytes} bytes: mean {mean:?}, longest {longest:?}, {} lost",
        report.overflows
    );
    ResponseTimes { mean, longest, lost: report.overflows }
}

#[test]
fn nothing_is_repeated_until_a_slow_link_is_full_of_repetitions() {
    // Nine tenths of what eight members can send: at times more waits than passes within the configured wait for an answer.
    let ResponseTimes { longest, lost, .. } = run(47.3, 10_000);
    assert_eq!(lost, 0);
    assert!(longest < Span::millis(100), "{longest:?}");
}

#[test]
fn bursts_use_what_other_members_leave_at_the_moment() {
    // A message alone takes 1.6 ms on a link, as long as the others come one by one. Each sender's share has it for 12 ms.
    let ResponseTimes { mean, lost, .. } = run(44.0, 10_000);
    assert!(mean < Span::millis(9), "{mean:?}");
    assert_eq!(lost, 0);
}

#[test]
fn bursts_of_messages_of_any_size_fit_into_the_queue_of_a_port() {
    for bytes in [3_000, 14_000, 20_000, 25_000, 28_000, 40_000] {
        assert_eq!(run(44.0, bytes).lost, 0, "messages of {bytes} bytes");
    }
}
