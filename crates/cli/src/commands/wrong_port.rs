//! The error for a client at a wrong port: which service listens there, and which port is the right
//! one.
//!
//! A cluster has ports for Redis clients, for the log, for its status page, and for its nodes among
//! themselves; each greets in its own way, by which it is known.

use amcast_net::NONCE_BYTES;
use amcast_net::wire::opening;
use amcast_node::cluster_dir::{ClusterDir, ClusterRegistry, GatewayAddresses};
use amcast_node::config::{ClusterFile, HostPlacement};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long a connection may take to be there.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// How long an answer to each greeting may take.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// The kind of service that listens at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Listener {
    /// A gateway for Redis clients.
    Redis,
    /// A gateway of the log, or something else that speaks gRPC.
    Log,
    /// The status page, or another HTTP server.
    Page,
    /// A node, for the other nodes.
    Nodes,
    /// A node, for those of other hosts that ask how it is.
    Control,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "a port for Redis clients",
            Self::Log => "a port for clients of the log (gRPC)",
            Self::Page => "the port of a status page (HTTP)",
            Self::Nodes => "a port on which nodes talk to each other",
            Self::Control => "a port on which nodes are asked how they are",
        })
    }
}

impl Listener {
    /// The question to this service, with the key that names its port in `amcast status` and in a
    /// cluster's file.
    const fn asked(self) -> (&'static str, &'static str) {
        match self {
            Self::Redis => ("a Redis command", "redis"),
            Self::Log => ("a request to the log", "log"),
            Self::Page => ("a page", "http"),
            Self::Nodes | Self::Control => ("a node", "address"),
        }
    }

    /// Where it listens among these.
    fn among(self, gateways: GatewayAddresses) -> Option<String> {
        match self {
            Self::Redis => Some(gateways.redis),
            Self::Log => gateways.log,
            Self::Page => Some(gateways.http),
            Self::Nodes | Self::Control => None,
        }
    }
}

/// The error for a client of `wanted` at this address, if another service listens there.
pub(super) fn error_at(at: &str, wanted: Listener) -> Option<String> {
    let there = listener(at).filter(|there| *there != wanted)?;
    let (asked, key) = wanted.asked();
    let instead = match beside(at, wanted, &ClusterRegistry::usual().running()) {
        Some(right) => format!("give {right}"),
        None => format!(
            "give the one that `amcast status` calls {key}= where the cluster runs, as does the \
             cluster's file"
        ),
    };
    Some(format!("{at} is {there}, and this is {asked}: {instead}"))
}

/// The service that listens at an address, if it is recognised.
fn listener(at: &str) -> Option<Listener> {
    let is_there = |at: &SocketAddr| TcpStream::connect_timeout(at, CONNECT_PATIENCE).is_ok();
    let at = at.to_socket_addrs().ok()?.find(is_there)?;
    let said = greeted(at, b"PING\r\n").ok()?;
    // A gRPC server begins with the frame of its settings, before any request.
    let is_settings = said.get(3..9) == Some(&[4, 0, 0, 0, 0, 0]);
    match &said[..] {
        _ if is_settings => Some(Listener::Log),
        [b'+' | b'-', ..] => Some(Listener::Redis),
        _ if said.starts_with(b"HTTP/") => Some(Listener::Page),
        _ if said.starts_with(b"amcast control ") => Some(Listener::Control),
        _ => is_of_nodes(at).then_some(Listener::Nodes),
    }
}

/// Whether a node answers there in the way of nodes.
fn is_of_nodes(at: SocketAddr) -> bool {
    let opening = opening(&[0; NONCE_BYTES]);
    // The server begins with a challenge.
    greeted(at, &opening).is_ok_and(|said| said.starts_with(&opening[..4]))
}

/// The first bytes that come in answer to a greeting; none where it is answered by silence.
fn greeted(at: SocketAddr, greeting: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&at, CONNECT_PATIENCE)?;
    stream.write_all(greeting)?;
    let (until, mut said) = (Instant::now() + ANSWER_PATIENCE, Vec::new());
    while said.len() < 64 {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        let mut bytes = [0; 64];
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(n) => said.extend_from_slice(&bytes[..n]),
        }
        // Enough for all that are known, and no more comes from some.
        if said.len() >= 9 || said.ends_with(b"\n") {
            break;
        }
    }
    Ok(said)
}

/// The address of `wanted` in the process that listens at `at`, if it is of one of these clusters; or
/// else in any process of that cluster.
fn beside(at: &str, wanted: Listener, running: &[ClusterDir]) -> Option<String> {
    let at: Vec<SocketAddr> = at.to_socket_addrs().ok()?.collect();
    let is_it = |text: &String| text.parse().is_ok_and(|address| at.contains(&address));
    let has = |gateways: &GatewayAddresses| {
        let GatewayAddresses { redis, log, http } = gateways;
        [Some(redis), log.as_ref(), Some(http)].into_iter().flatten().any(is_it)
    };
    running.iter().find_map(|dir| {
        let file = dir.file().ok()?;
        let nodes = (0..file.replicas).map(|rank| dir.gateways_of(rank).ok());
        let all: Vec<GatewayAddresses> =
            std::iter::once(dir.gateways().ok()).chain(nodes).flatten().collect();
        let own = all.iter().find(|gateways| has(gateways)).cloned();
        let own = own.or_else(|| all.first().filter(|_| is_node(&file, &at)).cloned());
        wanted.among(own?)
    })
}

/// Whether a node of the cluster listens there for the others.
fn is_node(file: &ClusterFile, at: &[SocketAddr]) -> bool {
    let mut addresses = file.nodes.values().flat_map(HostPlacement::addresses);
    addresses.any(|(_, address)| at.contains(&address))
}
