//! The deterministic simulator: any protocol of the catalog on simulated networks, memories, disks
//! and oracles, with faults, and the same run again from the same seed.
//!
//! The three types to know are [`RunSettings`] (what a run may have), [`RunReport`] (what became of it) and [`Chooser`] (the source
//! of all chance).
//!
//! Read [`run`](mod@run) first: [`run()`] takes an entry, a configuration, [`RunSettings`] and a
//! seed, hands every [`TraceEvent`](amcast_core::trace::TraceEvent) to a sink, and gives a [`RunReport`]. The
//! simulator judges no property of ordering; the receiver of the events does. It stops by
//! itself only for a [`Breach`] of the duties of a protocol towards its driver: payloads changed, positions that go
//! back, states that do not continue what was delivered, events that break their
//! [contract](amcast_core::events).
//!
//! All chance goes through a [`Chooser`], in which 0 is always the ordinary choice. Hence a run is
//! a [`RunRecord`]: a plan (what is cast, which faults strike) and a list of choices.
//! [`shrink()`] makes it smaller while it still fails, [`explore()`] goes through all choices of a
//! small configuration.
//!
//! In place of the simulator's own application a whole replica of a service may stand on each node: a
//! [`Host`], for [`run_hosted`].
//!
//! A [`Scenario`] is a run without chance, written down together with what happens in it.
//!
//! The carriers stand alone: [`Ram`], [`SimNetwork`] and [`SimDisk`] know no protocol and no harness.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod app;
pub mod barrier;
mod carry;
pub mod chooser;
mod contract;
pub mod delay;
mod diagnostics;
pub mod disk;
mod durable;
mod early;
mod events;
pub mod explore;
pub mod failover;
pub mod faults;
mod hash;
pub mod host;
mod ledger;
pub mod network;
mod oracle;
pub mod plan;
mod process;
pub mod queue;
pub mod ram;
pub mod run;
pub mod scenario;
pub mod shrink;
mod transfer;
pub mod watched;
mod world;

pub use barrier::Barrier;
pub use chooser::{Choices, Chooser, Concern};
pub use delay::Delay;
pub use disk::SimDisk;
pub use explore::{Exploration, ExplorationResult, explore};
pub use failover::Failover;
pub use faults::{Fault, FaultTime, Profile, Strike};
pub use host::{Host, HostPorts, HostRequest, record_hosted, replay_hosted, run_hosted};
pub use ledger::{Breach, UnsettledProcess};
pub use network::SimNetwork;
pub use plan::{CarrierModel, CastPace, PlannedCast, RunPlan};
pub use ram::Ram;
pub use run::{
    RunOutcome, RunRecord, RunReport, RunSettings, record, replay, replay_with_events,
    replay_with_notes, run,
};
pub use scenario::{Scenario, ScenarioError};
pub use shrink::shrink;
