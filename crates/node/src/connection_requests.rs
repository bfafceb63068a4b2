//! Requirements of a protocol's parameters on the connections of its node.

use amcast_core::Config;
use amcast_core::parameters::{DETECTOR, Detector, LANE, LINK, LinkRate, PacketLane};
use std::net::{Ipv4Addr, SocketAddr};

/// The requirements on a node's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ConnectionRequests {
    /// A packet to all members by datagram is one datagram: IP multicast.
    pub(crate) multicast: bool,
    /// The protocol learns that a process has failed only if it takes no connection any more.
    pub(crate) proof_of_death: bool,
    /// The rate at which datagrams may leave, in bytes a second, if the protocol says one.
    pub(crate) datagram_bytes_per_s: Option<u64>,
}

impl ConnectionRequests {
    /// The values of the parameters [`LANE`], [`DETECTOR`] and [`LINK`], where the protocol has them.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            multicast: LANE.find(config) == Some(PacketLane::Multicast),
            proof_of_death: DETECTOR.find(config) == Some(Detector::Connections),
            datagram_bytes_per_s: LINK.find(config).map(LinkRate::bytes_per_s),
        }
    }
}

/// Where the datagrams to all members of the cluster of that number go: within one organization, and
/// most likely nobody else's; who hears others\' drops what is not of its cluster.
pub(crate) fn group_address(cluster: u64) -> SocketAddr {
    let [a, b, c, d, ..] = cluster.to_le_bytes();
    let port = 10_000 + u16::from_le_bytes([c, d]) % 50_000;
    SocketAddr::from((Ipv4Addr::new(239, 255, a, b), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::{Param, RawConfig};

    const PARAMS: &[Param] = &[LANE.param(), DETECTOR.param()];
    const LINKED: &[Param] = &[LINK.param()];

    #[test]
    fn what_a_protocol_is_set_to_is_asked_of_its_node() {
        let asks = |set: &[(&str, &str)]| {
            let set = set.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
            let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
            ConnectionRequests::of(&raw.check(PARAMS).unwrap())
        };
        assert_eq!(asks(&[]), ConnectionRequests::default());
        assert_eq!(asks(&[("lane", "datagram")]), ConnectionRequests::default());
        assert!(asks(&[("lane", "multicast")]).multicast);
        assert!(asks(&[("detector", "connections")]).proof_of_death);
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let asks = ConnectionRequests::of(&raw.check(LINKED).unwrap());
        assert_eq!(asks.datagram_bytes_per_s, Some(942 * 125_000));
        assert!(group_address(0xffff_ffff_ffff).ip().is_multicast());
    }
}
