//! State machine replication without I/O: the part of a replica that executes the ordered commands.
//!
//! The three types to know are [`ShardedMachine`] (a service of several shards, as this crate drives it; a service of one's own begins at
//! [`StateMachine`]), [`Executor`] (runs each command once, when it was delivered in all its shards) and [`Envelope`] (what
//! surrounds a command: its session, its number there, its stamp).
//!
//! Read [`machine`], [`envelope`], then [`executor`]: its head says why parallel execution is linearizable. Then [`stream`]
//! (a snapshot in pieces), [`digest`] (how replicas compare their states), [`parts`] (commands that are larger than a message)
//! and [`state_machine`] (a machine that is one state for each shard). [`early`] executes commands before their place
//! is decided, and [`reconcile`] runs a machine where every component of a partition continues. [`application`] is the
//! interface to a node, and [`recovery`] gets the application's state back after a crash.
//!
//! No socket, file or clock is seen here. The only threads are those of `executor/pool.rs`, which run commands that do not
//! conflict.
#![forbid(unsafe_code)]

pub mod application;
pub mod digest;
pub mod early;
pub mod envelope;
pub mod executor;
pub mod hash;
pub mod machine;
pub mod metrics;
pub mod parts;
pub mod reconcile;
pub mod recovery;
pub mod state_machine;
pub mod stream;

pub use early::{EarlyCommand, EarlyMachine};
pub use envelope::{ClockReport, Envelope, SessionWrite, Stamp};
pub use executor::{
    AHEAD_MAX_MS, AwaitedAnswers, CommandAnswer, DeliveryResult, ExecutedCommand,
    ExecutionObserver, Executor, ExecutorFull, ExecutorState, Limits, LocalRead, OnLocalRead,
    OnShardRead, ShardFigures, SkipStatus, StateHead, WakeHandle, workers,
};
pub use machine::{Corrupt, MachinePart, ShardedMachine};
pub use metrics::{Metric, Metrics};
pub use reconcile::{
    ReconcileLimits, ReconcileRefusal, ReconcilingReplica, TellReconciled, require_reconciler,
};
pub use state_machine::{KeyUse, Reconciler, Shard, ShardView, StateMachine, StateMachineAdapter};
