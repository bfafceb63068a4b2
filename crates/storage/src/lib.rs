//! The write-ahead log (WAL) of a process on disk, and its application's checkpoints: records that it wrote before it
//! answered are there after a crash.
//!
//! The three types to know are [`Wal`], [`CheckpointDir`] and [`StorageError`].
//!
//! Read [`Wal`] for how a loop uses it, then `record_scan.rs` for the argument why a start finds the written
//! records, and `segment_set.rs` for the order in which things are made durable. `docs/storage.md` draws the
//! files byte by byte and states the guarantees, and their preconditions.
//!
//! - `format/` is the content of the files; nothing in it touches one.
//! - `disk/` is what is asked of a file system, the real one and one of tests that forgets and fails.
//! - `store/` is a log without threads: opening it, writing, syncing, reading again.
//! - `wal/` is the same for a loop that never waits, with the threads that do.
//! - `checkpoints/` is states of the application, a file each, saved while the loop runs.
//! - `skipped.rs` is which messages a node does not execute, by decision of those who run the cluster.
//! - `offline/` looks at the files of a process that does not run, and repairs them.
//!
//! It knows no protocol: a record is bytes, and so is a state.
#![forbid(unsafe_code)]

mod batch;
mod checkpoints;
mod disk;
mod error;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod lock;
mod machine;
pub mod offline;
mod record_scan;
mod segment_set;
mod skipped;
mod store;
mod wal;
mod window;

pub use checkpoints::{
    CheckpointDir, CheckpointListing, CheckpointOwner, CheckpointReader, SaveProgress,
};
pub use error::{Damage, Flaw, Limit, Misfit, StorageError};
pub use format::{LogId, LogOwnerId};
pub use skipped::{SKIPPED, SkipEntry, SkipStage, read_skipped, write_skipped};
pub use store::{LogRecovery, ReadError, TornTail};
pub use wal::{AppendError, Completion, CompletionWaker, LogCounts, Wal, WalOptions};
