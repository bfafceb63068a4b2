//! Why a gateway does not start.

use crate::memory_driver::MemoryDriverError;
use amcast_core::ConfigError;
use std::fmt;

/// Why a gateway could not start.
#[derive(Debug)]
pub enum GatewayError {
    /// The configuration.
    Config(ConfigError),
    /// Its process of the protocol.
    MemoryDriver(MemoryDriverError),
    /// Every client place is taken.
    NoPlace(usize),
    /// The cluster is on several hosts, and no node of it runs in this process.
    NoNode,
    /// Its history or thread.
    Io(std::io::Error),
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(e) => e.fmt(f),
            Self::MemoryDriver(e) => e.fmt(f),
            Self::NoPlace(n) => write!(
                f,
                "all {n} client places of the cluster are taken: end another client, or start the \
                 cluster with more (`clients` in its file)"
            ),
            Self::NoNode => f.write_str(
                "no node of the cluster runs in this process, and the cluster is on several hosts: there the \
                 gateway of a node reaches its memory; connect to that one",
            ),
            Self::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for GatewayError {}
