//! The distributed log over gRPC.
//!
//! The [`server`] turns requests into commands of [`amcast_log`] and hands them to a [`Backend`](super::Backend), which has them
//! ordered. It has no state of its own that anything depends on, so a cluster has as many gateways as it likes.

mod answers;
mod connections;
mod counts;
mod dates;
mod follow;
mod looks;
mod password;
mod pieces;
mod reads;
mod requests;
pub mod server;
mod service;
mod session;
mod status;
mod tail;
mod watches;

pub use answers::UNREAD_BYTES_MAX;
pub use follow::GrowthWatch;
pub use server::{GrowthSource, LogGateway, LogGatewayConfig};
pub use tail::STREAM_PATIENCE;
