//! Remote memory access by libfabric, with which the memory of hosts is carried where the feature `rdma` is on.
//!
//! - `FabricEndpoint` is everything that one remote writer reaches: an endpoint, and a landing buffer under a key of its
//!   own. Closing it revokes the writer's access without the writer's help.
//! - `FabricStream` makes a stream of frames out of two of them that write into each other's buffers.
//! - `FabricSettings` names the provider: `tcp`, `verbs`, `efa`.
//!
//! Read `endpoint.rs` and then `stream.rs`. `shim.c` has the calls of libfabric; `endpoint.rs` is the only file with
//! `unsafe`.
//!
//! # Why writes land in a buffer and not in the regions themselves
//! The medium promises that a line is whole or stale (law 1 of `amcast_core::memory`). No provider but hardware in one
//! cache-coherent host promises that: provider `tcp` copies from a socket in pieces that end anywhere. A thread that
//! looked at lines 1.8 billion times while 46,000 writes of up to 1 MB landed there over provider `tcp` found 3,719 stamps of which one half
//! was new, and 721 lines with a stamp newer than a word. `efa` promises no order at all. A write is therefore published when its
//! notice is there: the agent of the owner stores the lines then, under the permission of that moment.
#![cfg(feature = "rdma")]

mod endpoint;
mod stream;

pub use endpoint::{
    ADDRESS_VERSION, FabricAddress, FabricEndpoint, FabricError, FabricEvent, FabricSettings,
    FabricWrite, has_buffer_sizes, prepare_process,
};
pub use stream::{FabricStream, StreamFault, StreamRest};
