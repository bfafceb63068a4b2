//! Drives protocols in real processes, over shared memory or the network.
//!
//! Read [`memory_driver`] first (one process of a protocol at its carrier), then [`node`] (the loop of a node
//! with a replica of every group) and [`front`] (the client side). The rest is around them:
//! `replicas` is what the loop knows of the replicas, `message_driver` those of a protocol that sends messages,
//! `post` what carries these, `replica_log` the log of each, `dues` what any driver owes; `replica_host` hosts the
//! replicas above their drivers, [`recovery`](amcast_smr::recovery) gets the application's state back, `handover` carries it from node to
//! node, `checkpoint` keeps it; [`reply_ring`] carries answers back through memory, [`ingress`] commands and
//! answers through sockets; [`control`] is a node's socket for status and state, [`config`] the
//! cluster's file, [`cluster_dir`] its directory, [`supervisor`] its processes, [`history`] the histories,
//! [`clock`] the time; [`lines`] what is said to people; [`executing`] notes what is executed, for the case that it ends
//! the node, and `skips` is what is never executed; [`headless`] is a node for measurements, with nothing behind its replicas.
//!
//! [`gateway`] is how the world reaches the services, and [`service`] what ties a service to its node and to the gateways.
//!
//! One thread a node runs everything between memory and the state machine. It takes no lock, waits
//! on nobody, and parks when there is nothing to do.
#![forbid(unsafe_code)]

mod asks;
pub mod at;
mod checkpoint;
pub mod clock;
pub mod cluster_dir;
pub mod config;
pub mod control;
mod diagnostics;
mod disk;
mod dues;
pub mod executing;
pub mod front;
pub mod gateway;
mod handover;
pub mod headless;
pub mod history;
mod incarnation;
pub mod ingress;
pub mod lines;
pub mod log_ends;
mod log_owner;
pub mod memory_driver;
mod message_driver;
pub mod node;
pub mod node_data;
mod node_history;
mod pace;
mod peer_registry;
mod ports;
mod post;
mod priority;
mod reading;
mod ready;
mod replica_host;
mod replica_log;
mod replicas;
pub mod reply_ring;
mod reply_sink;
pub mod resources;
pub mod secret;
pub mod service;
mod skips;
pub mod supervisor;
pub mod system;
mod waiting_queue;
mod waker;
