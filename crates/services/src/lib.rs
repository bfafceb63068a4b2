//! Services over ordered delivery: a key-value store that Redis clients use, and a distributed log.
//!
//! A *front* ([`front::redis`]) turns a client's command into bytes and destinations and hands them
//! to a [`Backend`], which has them ordered in every destination shard. Each node feeds its
//! replicas' streams to an [`Executor`](amcast_smr::Executor), which runs each command once over a [`Machine`](amcast_smr::Machine), here
//! [`StoreAndLog`](amcast_log::StoreAndLog), which is [`Kv`](amcast_kv::Kv) and [`Logs`](amcast_log::Logs); the first answer goes back to the front.
//! [`LocalBackend`] is all of that for the store in one process, without replication. A service of
//! your own begins at [`amcast_smr::StateMachine`].
#![forbid(unsafe_code)]

pub mod backend;
pub mod clock;
pub mod front;

pub use backend::{Answers, Backend, Busy, LocalBackend};
pub use clock::Clock;
