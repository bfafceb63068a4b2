//! The words every part of amcast shares: ids, time, randomness, codec, limits, traces,
//! configuration, and the step machine with its media.
//!
//! The three types to know are [`Protocol`] (a step machine), [`Entry`] (the declarations of a protocol) and
//! [`ProtocolEvent`] (a report on which its driver must act).
//!
//! Nothing here touches a socket, a file, a clock, a thread or an operating system; the crate has
//! no dependency and no `unsafe`. Read [`step`] first, then [`events`], then the medium you care about:
//! [`mod@messages`] or [`memory`], or [`groupcast`] on top of messages.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod capabilities;
pub mod cluster;
pub mod codec;
pub mod config;
pub mod early;
pub mod entry;
pub mod events;
pub mod groupcast;
pub mod histogram;
pub mod id;
pub mod limits;
pub mod memory;
pub mod messages;
pub mod outcome;
pub mod parameters;
pub mod property;
pub mod rng;
pub mod skip;
pub mod step;
pub mod time;
pub mod trace;

pub use capabilities::{
    Capabilities, Capability, Datagrams, Durability, MissingCapability, PartitionMode, Senders,
};
pub use cluster::{ClusterShape, Overlay, Role};
pub use config::{Config, ConfigError, Param, RawConfig};
pub use early::EarlyDelivery;
pub use entry::{About, Assumption, Entry, MediumKind, ProtocolProcess};
pub use events::{ProtocolEvent, StateSource};
pub use id::{Gid, GroupSet, MsgId, Pid};
pub use outcome::{Outcome, ServiceAnswer};
pub use property::Property;
pub use skip::SkipDecision;
pub use step::{Delivery, Input, Medium, Outbox, Output, Protocol, Submission};
pub use time::{Span, Time};
