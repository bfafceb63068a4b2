//! Free ports of this machine, for processes that a measurement starts. They are free a moment later, too, unless
//! another process is very quick.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// So many addresses, all different, whose ports are free for streams and for datagrams.
///
/// # Errors
/// When there are no more.
pub(in crate::bench) fn free_addresses(count: usize) -> Result<Vec<SocketAddr>, String> {
    // A port that is free for streams may be taken for datagrams: then another one is tried.
    let one = || {
        let (tcp, at) = free_for_streams()?;
        let udp = UdpSocket::bind(at).map(|udp| (at, tcp, udp));
        udp.or_else(|_| {
            free_for_streams().and_then(|(tcp, at)| Ok((at, tcp, UdpSocket::bind(at)?)))
        })
    };
    // All are held until the last one is found, so that none is found twice.
    let held = (0..count).map(|_| one()).collect::<std::io::Result<Vec<_>>>();
    let held = held.map_err(|e| format!("no free ports on 127.0.0.1: {e}"))?;
    Ok(held.iter().map(|(at, ..)| *at).collect())
}

fn free_for_streams() -> std::io::Result<(TcpListener, SocketAddr)> {
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let at = tcp.local_addr()?;
    Ok((tcp, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_address_is_given_twice() {
        let all = free_addresses(20).unwrap();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 20);
        assert!(all.iter().all(|at| at.ip().is_loopback() && at.port() > 0));
    }
}
