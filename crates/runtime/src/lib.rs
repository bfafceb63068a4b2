//! Drives protocols on one machine, in real processes over shared memory.
//!
//! Read [`seat`] first (one process of a protocol at its carrier), then [`node`] (the loop of a node
//! with a replica of every group) and [`front`] (the client side). The rest is around them:
//! `house` is what stands behind a node's replicas, `handover` how it gets its state back;
//! [`answers`] carries answers back, [`control`] is a node's socket for status and state,
//! [`config`] the cluster's file, [`home`] its directory, [`supervisor`] its processes,
//! [`record`] the histories, [`clock`] the time.
//!
//! One thread a node runs everything between memory and the state machine. It takes no lock, waits
//! on nobody, and parks when there is nothing to do.

pub mod answers;
pub mod application;
pub mod clock;
pub mod config;
pub mod control;
mod diary;
pub mod front;
mod handover;
pub mod home;
mod house;
pub mod node;
pub mod record;
pub mod seat;
pub mod supervisor;
