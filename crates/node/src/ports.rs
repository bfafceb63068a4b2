//! Ports on this machine for the nodes of a cluster, which open them later, and again each time they
//! are started.
//!
//! The system itself takes ports for connections that programs make, from a range of its own. A
//! node's port is taken from below that range, so that no such connection takes it while the node
//! is down.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// The first port that is tried.
const FIRST: u16 = 10_000;

/// Where the system's own range begins, unless it says something else.
const USUAL_END: u16 = 32_768;

/// A number that nobody else draws.
pub(crate) fn unique() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The first port of the system's own range.
fn end() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
    first.filter(|&port| port > FIRST + 1000).unwrap_or(USUAL_END)
}

/// Whether nobody has the port, for connections or datagrams.
fn is_free(port: u16) -> bool {
    let at = (Ipv4Addr::LOCALHOST, port);
    TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
}

/// So many ports that nobody has, and that are not `promised` to others, who take them later. They are looked for from
/// anywhere in the range on, so that clusters which start at one time do not get the same.
///
/// # Errors
/// When there are not so many.
pub(crate) fn free(count: usize, promised: &[u16]) -> io::Result<Vec<u16>> {
    let span = end() - FIRST;
    let begin = (unique() % u64::from(span)) as u16;
    let all = (0..span).map(|n| FIRST + (begin + n) % span);
    let may_be_taken = |port: &u16| !promised.contains(port) && is_free(*port);
    let ports: Vec<u16> = all.filter(may_be_taken).take(count).collect();
    if ports.len() == count {
        return Ok(ports);
    }
    Err(io::Error::other(format!(
        "there are not {count} free ports from {FIRST} to {}; name addresses in the cluster's file",
        end() - 1
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_drawn_anew() {
        assert_ne!(unique(), unique());
    }

    #[test]
    fn a_port_that_is_promised_to_a_gateway_is_given_to_no_node() {
        let most = usize::from(end() - FIRST);
        let promised: Vec<u16> = (FIRST..end()).filter(|port| port % 64 != 0).collect();
        let ports = free(16, &promised).unwrap();
        assert!(ports.iter().all(|port| port % 64 == 0), "{ports:?}");
        assert!(free(most, &promised).is_err());
    }

    #[test]
    fn the_systems_own_range_is_above() {
        assert!(end() > FIRST + 1000);
    }
}
