//! The medium `Memory`: regions in files that all processes of one machine map, and between machines an agent
//! of each node that stores for the others.
//!
//! The three types to know are [`MappedCarrier`] (the medium for a loop), [`Directory`] (the files of a cluster) and [`Doorbell`] (how a
//! sleeping process is woken).
//!
//! Read [`MappedCarrier`] for how a loop uses it, [`Directory`] for how processes find each other,
//! and then the two arguments on which everything rests: `guard.rs` (revocation) and `doorbell.rs`
//! (sleeping and waking). The laws that are kept are those of [`amcast_core::memory`].
//!
//! - `segment.rs`, `turns.rs` and `heap.rs` are the only files with `unsafe`: one makes lines out of mapped
//!   bytes, the others make calls that nobody wraps.
//! - `layout.rs` says what each word of the shared files means.
//! - `files.rs` and `store.rs` are the operating system and its stand-in on the heap.
//! - `mapped.rs` is a small file of one process, for what must outlast it.
//! - `peer.rs` knows who lives in which incarnation.
//! - `remote/` is the memory of other hosts: frames, queues, and the agent; no socket.
//! - `conformance.rs`, behind the feature of that name, tests any carrier of the medium against the
//!   laws; the simulator's passes the same suite.
//!
//! A user who may open the files may do anything to the memory: the processes of a cluster trust each
//! other as far as one user's processes do. A peer's writes can make answers wrong, never
//! memory unsafe.

mod carrier;
#[cfg(feature = "conformance")]
pub mod conformance;
mod directory;
mod doorbell;
mod error;
mod files;
mod guard;
mod heap;
mod idle;
mod layout;
mod mapped;
#[cfg(all(test, not(miri)))] // one model checker at a time
mod models;
mod peer;
pub mod remote;
mod segment;
mod store;
mod turns;

pub use carrier::{CarrierCounts, MappedCarrier};
pub use directory::{ClusterId, Directory, Lease, StartOptions};
pub use doorbell::Doorbell;
pub use error::MemoryError;
pub use heap::give_back_memory;
pub use idle::{Idle, IdleCounts, Idler, Pause};
pub use mapped::MappedFile;
pub use store::Backing;
pub use turns::shorten_turns;
