//! The distributed log for its users: the gRPC service, and a client of it.
//!
//! [`proto`] is made of the public `proto/amcast/log/v1/log.proto`, which says what each call does and
//! promises. The [`front`] turns requests into commands of [`amcast_services::log`] and hands them to
//! a [`Backend`], which has them ordered. It has no state of its own that anything depends on, so a
//! cluster has as many fronts as it likes. The [`Client`] repeats requests safely over all of them.
#![forbid(unsafe_code)]

mod answers;
pub mod backend;
pub mod client;
mod connections;
mod counts;
mod follow;
pub mod front;
mod password;
mod requests;
mod service;
mod session;
mod status;
mod tail;

/// Messages, server and client as the .proto file has them.
#[allow(missing_docs, unreachable_pub, clippy::all, rust_2018_idioms)]
pub mod proto {
    tonic::include_proto!("amcast.log.v1");

    /// The description of the service, for reflection.
    pub const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/log.bin"));
}

pub use answers::UNREAD_BYTES_MAX;
pub use backend::{Backend, OnAnswer, Unanswered};
pub use client::{Client, Failed, PATIENCE};
pub use follow::Growth;
pub use front::{Config, Front, Hears};
