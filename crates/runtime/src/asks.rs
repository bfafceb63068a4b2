//! What the parameters of a protocol ask of the node that runs it, beside messages.

use amcast_core::config::Kind;
use amcast_core::{Config, Param};
use std::net::{Ipv4Addr, SocketAddr};

/// What is asked of a node's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asks {
    /// What goes to all members by datagram is one datagram: IP multicast.
    pub(crate) multicast: bool,
    /// The protocol is told of a process that it has failed only if it takes no connection any more.
    pub(crate) proof_of_death: bool,
}

impl Asks {
    /// What the parameters `lane` and `detector` say, where the protocol has them.
    pub(crate) fn of(params: &[Param], config: &Config) -> Self {
        let says = |name: &str, choice: &str| {
            params.iter().any(|param| match param.kind {
                Kind::Choice { of } if param.name == name => {
                    of.get(config.get(param) as usize) == Some(&choice)
                }
                _ => false,
            })
        };
        Self {
            multicast: says("lane", "multicast"),
            proof_of_death: says("detector", "connections"),
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
    use amcast_core::RawConfig;

    const PARAMS: &[Param] = &[
        choice("lane", &["stream", "datagram", "multicast"]),
        choice("detector", &["timeouts", "connections"]),
    ];

    const fn choice(name: &'static str, of: &'static [&'static str]) -> Param {
        Param { name, kind: Kind::Choice { of }, about: "", cost: "", source: "" }
    }

    #[test]
    fn what_a_protocol_is_set_to_is_asked_of_its_node() {
        let asks = |set: &[(&str, &str)]| {
            let set = set.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
            let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
            Asks::of(PARAMS, &raw.check(PARAMS).unwrap())
        };
        assert_eq!(asks(&[]), Asks::default());
        assert_eq!(asks(&[("lane", "datagram")]), Asks::default());
        assert!(asks(&[("lane", "multicast")]).multicast);
        assert!(asks(&[("detector", "connections")]).proof_of_death);
        assert!(group_address(0xffff_ffff_ffff).ip().is_multicast());
    }
}
