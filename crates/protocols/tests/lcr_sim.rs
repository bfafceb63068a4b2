//! LCR in the simulator, in the shapes that the suites of all protocols draw seldom: usual timers and links, rings of
//! two to seven members, under all faults at once; and its rival, in the same runs.

use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, GroupSet, Pid, RawConfig, Span, Time};
use amcast_protocols::lcr::Lcr;
use amcast_sim::run::run_plan;
use amcast_sim::{
    CarrierModel, CastPace, PlannedCast, Profile, RunOutcome, RunPlan, RunSettings, run,
};

/// Seeds of each shape; `AMCAST_SEEDS` in the environment says otherwise.
const SEEDS: u64 = 6;

fn seeds() -> u64 {
    std::env::var("AMCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

/// So many members, with these parameters.
fn group(replicas: usize, set: &[(&str, &str)]) -> Config {
    let set = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let raw = RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
    raw.check(Lcr.about().params).expect("a sound configuration")
}

/// Runs a seed, which settles and keeps every promise. Says how many deliveries there were.
fn kept(config: &Config, settings: &RunSettings, seed: u64) -> u64 {
    let mut history = History::new();
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    let report = run(&Lcr, config, settings, seed, &mut push).expect("it is built");
    assert_eq!(report.outcome, RunOutcome::Settled, "seed {seed}");
    let findings = check(&history, Lcr.about().promises);
    assert!(findings.all_hold(), "seed {seed}: {findings}");
    report.deliveries
}

#[test]
fn every_promise_is_kept_on_rings_of_every_size_under_all_faults() {
    for replicas in [2, 3, 4, 5, 7] {
        let config = group(replicas, &[]);
        let settings = RunSettings {
            payload_max: 1500,
            settle: Span::secs(60),
            ..RunSettings::with(Profile::All)
        };
        let deliveries: u64 = (0..seeds()).map(|seed| kept(&config, &settings, seed)).sum();
        println!("{replicas}: {} runs, {deliveries} deliveries", seeds());
        assert!(deliveries > 20 * seeds(), "{replicas}: only {deliveries}");
    }
}

#[test]
fn every_promise_is_kept_where_messages_are_larger_than_packets_and_batches_are_small() {
    let set = [("batch_bytes", "64"), ("packet_bytes", "64"), ("window", "3")];
    for profile in [Profile::None, Profile::Network, Profile::Crash] {
        let config = group(3, &set);
        let settings = RunSettings {
            payload_max: 100 << 10,
            settle: Span::secs(60),
            ..RunSettings::with(profile)
        };
        let deliveries: u64 = (0..seeds()).map(|seed| kept(&config, &settings, seed)).sum();
        assert!(deliveries > 20 * seeds(), "only {deliveries}");
    }
}

/// Members of the ring on links of a model: ports of 100 Mbit/s, with 512 KiB in front of each.
const RING: usize = 4;

/// All members send messages of 10 kB, with 64 of each not delivered. By sender: messages that the first member delivered
/// in the middle of the run.
fn shares(ring_bytes: &str) -> Vec<usize> {
    let config = group(
        RING,
        &[
            ("ring_bytes", ring_bytes),
            ("packet_bytes", "12000"),
            ("window", "256"),
            ("heartbeat_us", "20000"),
            ("suspect_us", "2000000"),
            ("retry_us", "50000"),
        ],
    );
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(30));
    model.network.port_ps_per_byte = 80_000;
    model.network.head_bytes = 90;
    model.network.port_buffer = 512 << 10;
    model.network.socket_buffer = 4 << 20;
    model.step = Span::micros(2);
    // The one that begins first fills the link behind it.
    let begins = |p: usize| Time::ZERO + Span::millis(100 - 20 * p as u64);
    let cast = |p: usize| PlannedCast {
        at: begins(p),
        sender: Pid(p as u32),
        dst: GroupSet::first(1),
        bytes: 10_000,
    };
    let mut casts: Vec<_> = (0..RING).flat_map(|p| std::iter::repeat_n(cast(p), 1_000)).collect();
    casts.sort_by_key(|cast| cast.at);
    let plan = RunPlan {
        model,
        casts,
        pace: CastPace::Closed(64),
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm: Time::ZERO + Span::millis(101),
        service: false,
        drift_ppm: vec![0; RING],
        settle: Span::secs(600),
        quiet: Span::millis(100),
        events_max: 1_000_000_000,
    };
    let mut shares = vec![0; RING];
    let [from, until] = [500, 1_500].map(|ms| Time::ZERO + Span::millis(ms));
    let mut hear = |event: &TraceEvent<'_>| {
        if let TraceEvent::Deliver { t, p: Pid(0), m } = *event
            && (from..until).contains(&t)
        {
            shares[m.sender.index()] += 1;
        }
    };
    let report = run_plan(&Lcr, &config, plan, 1, &mut hear).expect("it is built");
    assert!(report.settled(), "{:?}", report.outcome);
    shares
}

#[test]
fn members_that_wait_for_deliveries_get_equal_shares_of_the_ring() {
    let spread = |shares: &[usize]| {
        let [least, most] = [shares.iter().min(), shares.iter().max()].map(|n| *n.expect("some"));
        most as f64 / least as f64
    };
    let [bounded, unbounded] = ["262144", "1073741824"].map(shares);
    println!("{bounded:?}; without the bound {unbounded:?}");
    assert!(spread(&bounded) < 1.1, "{bounded:?}");
    assert!(spread(&unbounded) > 1.15, "the bound of the ring changes nothing: {unbounded:?}");
}
