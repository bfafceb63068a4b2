//! How the world reaches the services: over Redis's protocol, gRPC and HTTP.
//!
//! A *gateway* ([`redis`], [`log`]) turns a client's command into bytes and destinations and hands them
//! to a [`Backend`], which has them ordered in every destination shard. Each node feeds its
//! replicas' streams to an [`Executor`](amcast_smr::Executor), which runs each command once over a
//! [`Machine`](amcast_smr::ShardedMachine), here [`StoreAndLog`](amcast_log::StoreAndLog); the first answer goes back
//! to the gateway. [`LocalBackend`] is all of that for the store in one process, without replication.

pub mod backend;
pub mod clock;
pub mod connection_slots;
mod dates;
pub mod files;
pub mod http;
mod limited;
pub mod log;
mod login_turns;
mod metrics;
pub mod rate_limited_log;
pub mod redis;
mod shared_tasks;

pub use backend::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, FailureCause, LocalBackend,
    OnBackendAnswer, SessionWrites,
};
pub use clock::GatewayClock;
