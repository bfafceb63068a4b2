//! Ordered delivery to replicated shards: as a library, as services, and as a laboratory.
//!
//! This crate is the one that a user of the library names: it re-exports
//! the vocabulary ([`core`]), the [`protocols`], the checker ([`check`]), the simulator ([`sim`]),
//! the drivers on real memory and networks ([`memory`], [`net`], [`runtime`]) and the [`services`]. To
//! have a state machine of your own replicated and sharded, begin at [`replicate`]; to find the
//! protocol for a guarantee, at [`choose`].

pub use amcast_check as check;
pub use amcast_core as core;
pub use amcast_kv as kv;
pub use amcast_log as log;
pub use amcast_memory as memory;
pub use amcast_net as net;
pub use amcast_protocols as protocols;
pub use amcast_runtime as runtime;
pub use amcast_services as services;
pub use amcast_sim as sim;
pub use amcast_smr as smr;

pub mod choose;
pub mod client;
pub mod replicate;
pub mod service;
pub mod simulate;
