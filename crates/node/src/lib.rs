//! Drives protocols in real processes, over shared memory or the network.
//!
//! Read [`seat`] first (one process of a protocol at its carrier), then [`node`] (the loop of a node
//! with a replica of every group) and [`front`] (the client side). The rest is around them:
//! `replicas` is what the loop knows of the replicas, `member` those of a protocol that sends messages,
//! `post` what carries these, `journal` the log of each, `dues` what any driver owes; `replica_host` hosts the
//! replicas above their drivers, [`recovery`](amcast_smr::recovery) gets the application's state back, `handover` carries it from node to
//! node, `checkpoint` keeps it; [`answers`] carries answers back through memory, [`ingress`] commands and
//! answers through sockets; [`control`] is a node's socket for status and state, [`config`] the
//! cluster's file, [`home`] its directory, [`supervisor`] its processes, [`record`] the histories,
//! [`clock`] the time; [`lines`] what is said to people; [`executing`] notes what is executed, for the case that it ends
//! the node, and `skips` is what is never executed; [`bare`] is a node for measurements, with nothing behind its replicas.
//!
//! [`gateway`] is how the world reaches the services, and [`service`] what ties a service to its node and to the gateways.
//!
//! One thread a node runs everything between memory and the state machine. It takes no lock, waits
//! on nobody, and parks when there is nothing to do.
#![forbid(unsafe_code)]

mod alarm;
pub mod answers;
mod asks;
pub mod at;
pub mod bare;
mod checkpoint;
pub mod clock;
pub mod config;
pub mod control;
mod diagnostics;
mod diary;
mod disk;
mod door;
mod dues;
pub mod executing;
pub mod front;
pub mod gateway;
mod handover;
pub mod home;
pub mod ingress;
mod journal;
mod life;
pub mod lines;
pub mod log_ends;
mod log_owner;
mod member;
pub mod node;
pub mod node_data;
mod pace;
mod ports;
mod post;
mod priority;
mod reading;
mod ready;
pub mod record;
mod replica_host;
mod replicas;
pub mod resources;
pub mod seat;
pub mod secret;
pub mod service;
mod skips;
mod standing;
pub mod supervisor;
pub mod system;
mod waiting_queue;
