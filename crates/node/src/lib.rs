//! The processes of a cluster: drivers of protocols over shared memory and networks, gateways, the cluster directory,
//! supervision.
//!
//! The three types to know are [`node::Node`] (the loop of a node with a replica of every group),
//! [`memory_driver::MemoryDriver`] (one process of a protocol over shared memory) and [`command_gateway::CommandGateway`] (the client side of a
//! service).
//!
//! Read in this order:
//! 1. [`memory_driver`], `message_driver` and `driver_core`: how a protocol is driven, over either medium; `message_router` carries the messages of
//!    a node's processes, `replica_log` is the log of each, `replicas` what the loop sees of them.
//! 2. [`node`], `replica_host` (what is above the drivers), `state_transfer` (the application's state goes from node to node),
//!    `checkpoint` (the state is kept); [`recovery`](amcast_smr::recovery) decides when which of these is done.
//! 3. [`command_gateway`], [`ingress`] (commands and replies through sockets), [`reply_ring`] (replies through shared memory), and
//!    `command_bytes` (how often the bytes of a command are copied on their way).
//! 4. [`gateway`] (Redis, gRPC, HTTP) and [`service`] (what ties a service to its node and to the gateways).
//! 5. [`config`] (the cluster's file), [`cluster_dir`] (its directory), [`supervisor`] (its processes), [`control`] (a node's socket
//!    for status and state), [`overlay_changes`] (another tree of the groups), `peer_registry` (what a node knows of the others), [`history`] (recorded histories), [`log_lines`] (log
//!    lines), [`execution_notes`] (notes which command is executed, for the case that it ends the node), `skips` (commands that are
//!    never executed), [`headless`] (a node for measurements, with nothing above its replicas), [`component_member`] (a member of a
//!    group that continues in every component of a partition).
//!
//! One thread of a node runs everything between the medium and the state machine. It takes no lock, waits for no other
//! thread, and parks when there is nothing to do.
#![forbid(unsafe_code)]

mod checkpoint;
pub mod clock;
pub mod cluster_dir;
mod command_bytes;
pub mod command_gateway;
pub mod component_member;
pub mod config;
mod connection_requests;
pub mod control;
mod diagnostics;
mod disk;
mod driver_core;
pub mod execution_notes;
pub mod gateway;
pub mod headless;
pub mod history;
mod incarnation;
pub mod ingress;
mod log_backpressure;
pub mod log_ends;
pub mod log_lines;
mod log_owner;
pub mod memory_driver;
pub mod memory_links;
mod message_driver;
mod message_router;
pub mod node;
pub mod node_address;
pub mod node_data;
mod node_history;
pub mod overlay_changes;
mod pace;
mod peer_refusals;
mod peer_registry;
mod ports;
mod priority;
pub mod read_table;
mod readiness;
mod replica_host;
mod replica_log;
mod replicas;
pub mod reply_ring;
mod reply_sink;
pub mod resources;
pub mod secret;
pub mod service;
mod skips;
mod state_stream;
mod state_transfer;
pub mod supervisor;
pub mod system;
mod waiting_queue;
mod waker;
pub mod workload;
