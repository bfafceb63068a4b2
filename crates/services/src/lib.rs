//! Services over ordered delivery: a key-value store that Redis clients use, and a distributed log.
//!
//! A *front* ([`front::redis`]) turns a client's command into bytes and destinations and hands them
//! to a [`Backend`], which has them ordered in every destination shard. Each node feeds its
//! replicas' streams to an [`Executor`], which runs each command once over a [`Machine`], here
//! [`StoreAndLog`], which is [`kv::Kv`] and [`log::Logs`]; the first answer goes back to the front.
//! [`LocalBackend`] is all of that for the store in one process, without replication. A service of
//! your own begins at [`whole::StateMachine`].
#![forbid(unsafe_code)]

pub mod backend;
pub mod clock;
pub mod digest;
pub mod envelope;
pub mod executor;
pub mod front;
pub mod kv;
pub mod log;
pub mod machine;
pub mod metrics;
pub mod parts;
mod process;
pub mod status;
pub mod store_and_log;
pub mod stream;
pub mod whole;

pub use backend::{Answers, Backend, Busy, LocalBackend, Wrote};
pub use clock::Clock;
pub use envelope::{ClockReport, Envelope, Stamp};
pub use executor::{
    Answer, Awaits, Delivered, Doing, Executor, Full, Holds, Limits, OnPeek, OnRead, Peek,
    SkipStatus, State, StateHead, Wake, Witness, workers,
};
pub use machine::{Corrupt, Machine, Part};
pub use metrics::{Metric, Metrics};
pub use status::{ShardStatus, Status};
pub use store_and_log::{StoreAndLog, StoreAndLogShard};
pub use whole::{Seen, Shard, StateMachine, Touch, Whole};
