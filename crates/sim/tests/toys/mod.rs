//! Tiny protocols for tests of the simulator: one process orders, and the ways to get that wrong.
#![allow(dead_code, reason = "each test file uses some of them")]

pub(crate) mod durable;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod reporter;

use amcast_core::entry::{About, Assumption, MediumKind};
use amcast_core::trace::TraceEvent;
use amcast_core::{Capabilities, Config, Entry, Property, RawConfig};
use amcast_sim::{RunPlan, RunReport, RunSettings, run};

/// A line of a history.
pub(crate) type HistoryLine = (&'static str, u64, u32, u64);

pub(crate) const fn about(medium: MediumKind, assumes: &'static [Assumption]) -> About {
    About {
        summary: "One process orders.",
        paper: "none",
        medium,
        capabilities: Capabilities::NONE,
        promises: &[Property::Ua, Property::Suto],
        assumes,
        params: &[],
    }
}

/// One group of `replicas` replicas, which are the senders.
pub(crate) fn config(replicas: usize) -> Config {
    let raw = RawConfig { groups: 1, replicas, clients: 0, ..RawConfig::default() };
    raw.check(&[]).expect("the shape is allowed")
}

/// Runs an entry on three replicas.
pub(crate) fn run3(entry: &dyn Entry, settings: &RunSettings, seed: u64) -> RunReport {
    run(entry, &config(3), settings, seed, &mut |_| {}).expect("the toys take any configuration")
}

/// Counts the events of a run by kind.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct EventCounts {
    pub processes: u32,
    pub casts: u32,
    pub delivers: u32,
    pub crashes: u32,
    pub recovers: u32,
    pub ends: u32,
}

impl EventCounts {
    pub(crate) fn note(&mut self, event: &TraceEvent<'_>) {
        match event {
            TraceEvent::Process { .. } => {
                assert_eq!(self.casts + self.delivers, 0, "processes come first");
                self.processes += 1;
            }
            TraceEvent::Cast { .. } => self.casts += 1,
            TraceEvent::Deliver { .. } => self.delivers += 1,
            TraceEvent::Crash { .. } => self.crashes += 1,
            TraceEvent::Recover { .. } => self.recovers += 1,
            TraceEvent::End => self.ends += 1,
            _ => {}
        }
    }
}

/// A plan without faults, of casts of 8 bytes at time 0.
pub(crate) fn plan(entry: &dyn Entry, settings: &RunSettings, senders: &[u32]) -> RunPlan {
    let config = config(3);
    let cluster = *config.cluster();
    let mut chooser = amcast_sim::Chooser::seeded(0);
    let mut plan = RunPlan::draw(entry, &config, settings, &mut chooser);
    plan.casts = senders
        .iter()
        .map(|&p| amcast_sim::plan::PlannedCast {
            at: amcast_core::Time::ZERO,
            sender: amcast_core::Pid(p),
            dst: cluster.all_groups(),
            bytes: 8,
        })
        .collect();
    plan
}
