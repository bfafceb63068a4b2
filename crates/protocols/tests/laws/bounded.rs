//! A step does a bounded amount of work, and in the steady state allocates nothing.
//!
//! Bound: [`SEEDS`] runs of each protocol, each of at most [`crate::watched::EVENTS_MAX`] events; and
//! one run of TRAM with [`STEADY_MESSAGES`] multicasts, of at most [`STEADY_EVENTS_MAX`] events.

use crate::watched::{each, troubled};
use amcast_core::step::Medium;
use amcast_core::{Config, Entry, Input, Outbox, Pid, Protocol, RawConfig, Role, Span, Time};
use amcast_protocols::catalog;
use amcast_sim::watched::{StepWatch, WatchedEntry};
use amcast_sim::{CarrierModel, CastPace, RunSettings, run};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs of each protocol.
pub(crate) const SEEDS: u64 = 8;

/// The kind of an input.
const fn kind<M: Medium>(input: &Input<'_, M>) -> &'static str {
    match input {
        Input::Start { .. } => "a start",
        Input::Submit(_) => "a submission",
        Input::Wake => "a wake-up",
        Input::Stored { .. } | Input::Torn | Input::Lost => "what survived",
        Input::Durable(_) | Input::Checkpointed(_) => "durability",
        Input::Loaded { .. } => "a record",
        Input::Applied(_) => "what was applied",
        Input::Installed { .. } => "what was installed",
        Input::Full(_) => "room for deliveries",
        Input::Unfit => "lack of state",
        Input::Leave => "being asked to leave",
        Input::Overlay(_) => "another tree",
        Input::Barrier(_) => "a barrier",
        Input::Oracle(_) => "an oracle",
        Input::Medium(_) => "its medium",
    }
}

/// Counts what a step asks for.
struct OutputCounter {
    /// The most outputs of a step.
    items_max: usize,
}

impl<M: Medium> StepWatch<M> for OutputCounter {
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = M>,
        now: Time,
        view: M::View<'_>,
        input: Input<'_, M>,
        out: &mut Outbox<M>,
    ) {
        let what = kind(&input);
        inner.step(now, view, input, out);
        let asked = out.items().len();
        MOST.fetch_max(asked as u64, Ordering::Relaxed);
        assert!(asked <= self.items_max, "{asked} outputs after {what}");
    }
}

/// The most outputs that any step asked for.
static MOST: AtomicU64 = AtomicU64::new(0);

/// How many instances of rings a learner passes in a step.
const MERGED_MAX: usize = 256;

/// How many outputs a step may ask for. A ring's length of records, or each client's window, is taken
/// up, delivered, noted and passed on to each replica of each group, in one step. Where packets are
/// small, a message is several of them; and who learns of several rings passes many instances at once.
fn items_max(entry: &dyn Entry, config: &Config) -> usize {
    let value = |name: &str| {
        let param = entry.about().params.iter().find(|p| p.name == name);
        param.map_or(0, |p| config.get(p) as usize)
    };
    let cluster = config.cluster();
    let senders = if cluster.clients() > 0 { cluster.clients() } else { cluster.replicas() };
    let parts = 1 + troubled().payload_max.checked_div(value("packet_bytes")).unwrap_or(0);
    // The records for another group wait in a line, and go when there is room for a buffer's length of them.
    let lines = value("log_lines").max(value("hm_lines"));
    let waiting = lines + value("window") * senders * parts;
    let merged = if value("apply_bytes") > 0 { MERGED_MAX } else { 0 };
    waiting * (2 + cluster.groups() * cluster.replicas()) + merged + 32
}

#[test]
fn a_step_asks_for_no_more_than_its_buffers_hold() {
    for seed in 0..SEEDS {
        each(seed, |entry, config| {
            MOST.store(0, Ordering::Relaxed);
            let watch = |_, config: &Config| OutputCounter { items_max: items_max(entry, config) };
            let watched = WatchedEntry { entry, watch: &watch };
            run(&watched, config, &troubled(), seed, &mut |_| {}).expect("it is built");
            assert!(MOST.load(Ordering::Relaxed) > 2, "nothing was counted");
        });
    }
}

/// Counts what steps allocate once the run is warm.
struct AllocationCounter {
    who: Pid,
    role: usize,
    steps: u64,
}

/// Steps of each process before its buffers have grown: a follower hears of decisions in bunches, and
/// a step with more of them than any before comes late.
const WARM_STEPS: u64 = 25_000;

/// Multicasts of the run.
const STEADY_MESSAGES: usize = 20_000;

/// Events of the run, at most.
const STEADY_EVENTS_MAX: u64 = 10_000_000;

/// Steps counted, of clients and of replicas.
static COUNTED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

impl<M: Medium> StepWatch<M> for AllocationCounter {
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = M>,
        now: Time,
        view: M::View<'_>,
        input: Input<'_, M>,
        out: &mut Outbox<M>,
    ) {
        self.steps += 1;
        let what = kind(&input);
        let allocated = allocation_counter::measure(|| inner.step(now, view, input, out));
        if self.steps > WARM_STEPS {
            COUNTED[self.role].fetch_add(1, Ordering::Relaxed);
            assert_eq!(allocated.count_total, 0, "{:?}, step {}: {what}", self.who, self.steps);
        }
    }
}

/// Two groups of three replicas, one above the other; each client has a few messages on the way all
/// the time. The rings go round many times.
#[test]
fn in_the_steady_state_a_step_of_tram_allocates_nothing() {
    let entry = catalog::find("tram").expect("it is in the catalog");
    let set = [("log_lines", "128"), ("hm_lines", "64"), ("xfer_lines", "64")];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: 2, set, overlay: "depth".to_string(), ..RawConfig::default() };
    let config = raw.check(entry.about().params).expect("a sound configuration");
    let watch = |who, config: &Config| {
        let replica = matches!(config.cluster().role(who), Role::Replica { .. });
        AllocationCounter { who, role: usize::from(replica), steps: 0 }
    };
    let model = CarrierModel::constant(Span::micros(2), Span::micros(2));
    let settings = RunSettings {
        messages: STEADY_MESSAGES,
        events_max: STEADY_EVENTS_MAX,
        payload_max: 200,
        pace: CastPace::Closed(8),
        model: Some(model),
        ..RunSettings::default()
    };
    let watched = WatchedEntry { entry, watch: &watch };
    let report = run(&watched, &config, &settings, 1, &mut |_| {}).expect("it is built");
    let [clients, replicas] = COUNTED.each_ref().map(|n| n.load(Ordering::Relaxed));
    println!("{clients} steps of clients and {replicas} of replicas allocate nothing");
    assert!(report.settled() && report.deliveries > 20_000, "{report:?}");
    assert!(clients > 50_000 && replicas > 100_000, "{clients} and {replicas} steps are too few");
}
