//! Where a node is, as written in a cluster's file.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Where a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlacement {
    /// Where the others reach it, for connections and for datagrams.
    pub address: SocketAddr,
    /// Where it listens, if that is another address: behind a translation, or on all interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The address at which it sends its state to nodes of other hosts, and reports its status. By
    /// default only nodes of its own host reach it for that, through the cluster's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<SocketAddr>,
    /// Where it serves Redis clients, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<SocketAddr>,
    /// Where it serves the log over gRPC, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<SocketAddr>,
    /// Where its status page and metrics are, if anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<SocketAddr>,
    /// How often this node began anew with an empty directory, since its disk or its whole machine was
    /// replaced. An operator who replaces one adds one here, in the file of every host: the node then
    /// asks the others for its former promises, and its earlier incarnations are not admitted any
    /// more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replaced: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the writer of files passes a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl HostPlacement {
    /// A node that listens where it is reached, and serves nobody else.
    pub const fn at(address: SocketAddr) -> Self {
        Self {
            address,
            listen: None,
            control: None,
            redis: None,
            log: None,
            http: None,
            replaced: 0,
        }
    }

    /// Its addresses that no other one may have, each with its key.
    pub fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let all = [
            ("address", Some(self.address)),
            ("control", self.control),
            ("redis", self.redis),
            ("log", self.log),
            ("http", self.http),
        ];
        all.into_iter().filter_map(|(key, at)| Some((key, at?)))
    }

    /// Whether clients are served at the address with this key: any port will do, if it is
    /// reported.
    pub(super) fn is_gateway(key: &str) -> bool {
        matches!(key, "redis" | "log" | "http")
    }

    /// Whether it serves clients.
    pub const fn serves(&self) -> bool {
        self.redis.is_some() || self.log.is_some() || self.http.is_some()
    }
}
