//! Ordered delivery to replicated shards: as a library, as services, and as a laboratory.
//!
//! This crate is the one that a user of the library names: it re-exports
//! the vocabulary ([`core`]), the [`protocols`], the checker ([`check`]), the simulator ([`sim`]), what replicates a state machine
//! ([`smr`]), the services ([`kv`], [`log`]), and the processes that run them over real memory and networks ([`memory`],
//! [`net`], [`node`]). To have a state machine of your own replicated and sharded, begin at [`replicate`] (its three types to know are
//! [`Cluster`](replicate::Cluster), [`Session`](replicate::Session) and [`StateMachine`](smr::StateMachine)); to find the
//! protocol for a guarantee, at [`choose`]; to see a service of your own under faults, at [`simulate`].

// The machine of an example is simulated here, and names this crate as its users do.
extern crate self as amcast;

pub use amcast_check as check;
pub use amcast_core as core;
pub use amcast_kv as kv;
pub use amcast_log as log;
pub use amcast_memory as memory;
pub use amcast_net as net;
pub use amcast_node as node;
pub use amcast_protocols as protocols;
pub use amcast_sim as sim;
pub use amcast_smr as smr;

pub mod choose;
pub mod client;
pub mod replicate;
pub mod simulate;
