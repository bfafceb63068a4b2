//! The devices of a lab and how they are connected.
//!
//! Each host is a namespace with the device `eth`. One more namespace is the switch or router; its device
//! `port<n>` is the other end of host n's link. If links delay, the frames of a host pass a relay of this process
//! on their way from `eth` to the port, which are TAP devices then:
//!
//! ```text
//! without delay:   host n: eth --------- port<n> : switch     a pair of `veth`
//! with delay:      host n: eth   relay   port<n> : switch     two of /dev/net/tun
//! ```

use crate::namespace::HostNamespace;
use crate::programs::{batch, run};
use crate::relay::RelayDevices;
use crate::{LabError, LinkSettings};
use std::net::Ipv4Addr;

/// How the hosts are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabTopology {
    /// All in one subnet, on a switch that passes multicast to the members of a group.
    Switched,
    /// Each in a subnet of its own, with a router between them that passes no multicast on.
    Routed,
}

/// The namespaces of a lab by name.
#[derive(Debug)]
pub(crate) struct LabNames {
    pub(crate) hosts: Vec<String>,
    /// That of the switch or router.
    pub(crate) switch: String,
}

impl LabNames {
    pub(crate) fn all(&self) -> Vec<String> {
        self.hosts.iter().chain([&self.switch]).cloned().collect()
    }
}

impl LabTopology {
    /// The address of a host.
    pub(crate) fn address(self, host: usize) -> Ipv4Addr {
        let number = host as u8 + 1;
        match self {
            Self::Switched => Ipv4Addr::new(10, 99, 7, number),
            Self::Routed => Ipv4Addr::new(10, 99, number, 1),
        }
    }

    /// The router's address in the subnet of a host.
    fn gateway(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, host as u8 + 1, 254)
    }

    /// Builds all namespaces and devices. Frames pass at once where they need no relay; else the devices of each host's
    /// relay are given.
    ///
    /// # Errors
    /// When the kernel or the program `ip` refuses one of them; some may exist then.
    pub(crate) fn build(
        self,
        names: &LabNames,
        relayed: bool,
    ) -> Result<Vec<RelayDevices>, LabError> {
        for name in names.all() {
            run("ip", &["netns", "add", &name])?;
            let namespace = HostNamespace::open(&name)?;
            namespace.run(|| self.set_kernel(name == names.switch))??;
        }
        let mut devices = Vec::new();
        if relayed {
            let switch = HostNamespace::open(&names.switch)?;
            for (host, name) in names.hosts.iter().enumerate() {
                let port = format!("port{host}");
                devices.push(RelayDevices::make(&HostNamespace::open(name)?, (&switch, &port))?);
            }
        }
        batch("ip", &names.switch, &self.switch_lines(names, relayed))?;
        for (host, name) in names.hosts.iter().enumerate() {
            let mut lines = Vec::new();
            if relayed {
                lines.push(tap_line("eth", &host_mac(host)));
            }
            lines.extend(self.host_lines(host, names.hosts.len()));
            batch("ip", name, &lines)?;
        }
        Ok(devices)
    }

    /// Settings of the kernel for the namespace of the calling thread.
    fn set_kernel(self, is_switch: bool) -> Result<(), LabError> {
        let set = |name: &str, value: &str| {
            std::fs::write(format!("/proc/sys/net/{name}"), value)
                .map_err(|e| LabError::system(format!("set {name}"), e))
        };
        // Its announcements would be frames that nobody asked for. A kernel without it makes none.
        let _ = set("ipv6/conf/all/disable_ipv6", "1");
        set("ipv4/conf/all/rp_filter", "0")?;
        if is_switch {
            return set("ipv4/ip_forward", if self == Self::Routed { "1" } else { "0" });
        }
        // The version that the switch speaks.
        set("ipv4/conf/all/force_igmp_version", "2")?;
        set("ipv4/igmp_max_memberships", "200")
    }

    fn switch_lines(self, names: &LabNames, relayed: bool) -> Vec<String> {
        let mut lines = vec!["link set lo up".to_string()];
        if self == Self::Switched {
            // A switch without a querier would forget the members of groups, and then flood. Times are in
            // hundredths of a second.
            lines.push(
                "link add switch type bridge stp_state 0 forward_delay 0 mcast_snooping 1 \
                 mcast_querier 1 mcast_igmp_version 2 mcast_query_interval 1000 \
                 mcast_startup_query_interval 100 mcast_query_response_interval 50"
                    .to_string(),
            );
            lines.push("link set switch up".to_string());
        }
        for (host, name) in names.hosts.iter().enumerate() {
            let (port, mac) = (format!("port{host}"), port_mac(host));
            lines.push(match relayed {
                true => tap_line(&port, &mac),
                false => {
                    let end = format!("name eth address {} netns {name}", host_mac(host));
                    format!("link add {port} address {mac} type veth peer {end}")
                }
            });
            lines.push(unsegmented(&port));
            lines.extend(self.port_lines(host));
        }
        lines
    }

    /// Connects a port to the switch, or gives it the router's address.
    fn port_lines(self, host: usize) -> Vec<String> {
        match self {
            Self::Switched => vec![format!("link set port{host} master switch up")],
            Self::Routed => vec![
                format!("addr add {}/24 dev port{host}", Self::gateway(host)),
                format!("link set port{host} up"),
                neighbour(self.address(host), &host_mac(host), &format!("port{host}")),
            ],
        }
    }

    fn host_lines(self, host: usize, hosts: usize) -> Vec<String> {
        let mut lines = vec![
            "link set lo up".to_string(),
            unsegmented("eth"),
            format!("addr add {}/24 dev eth", self.address(host)),
            "link set eth up".to_string(),
        ];
        match self {
            Self::Switched => {
                lines.push("route add 224.0.0.0/4 dev eth".to_string());
                let others = (0..hosts).filter(|other| *other != host);
                lines.extend(
                    others.map(|other| neighbour(self.address(other), &host_mac(other), "eth")),
                );
            }
            Self::Routed => {
                let gateway = Self::gateway(host);
                lines.push(format!("route add default via {gateway}"));
                lines.push(neighbour(gateway, &port_mac(host), "eth"));
            }
        }
        lines
    }
}

/// Limits the rate of what a device sends, in bits per second, or lifts the limit.
///
/// # Errors
/// When `tc` is not there, or the kernel has no token bucket.
pub(crate) fn limit_rate(
    namespace: &str,
    device: &str,
    rate: Option<u64>,
    links: &LinkSettings,
) -> Result<(), LabError> {
    let line = match rate {
        Some(rate) => {
            // A millisecond's worth at high rates: the kernel's timer may be late by so much.
            let usual = (rate / 8 / 1000).max(16 << 10);
            let burst = links.burst_bytes.map_or(usual, u64::from);
            let limit = u64::from(links.queue_bytes).max(burst);
            format!(
                "qdisc replace dev {device} root tbf rate {rate}bit burst {burst} limit {limit}"
            )
        }
        None => format!("qdisc del dev {device} root"),
    };
    batch("tc", namespace, &[line])
}

/// How many frames the queues of a device dropped, as `tc -s qdisc show` says.
pub(crate) fn dropped_frames(shown: &str) -> u64 {
    let counts = shown.split("(dropped ").skip(1);
    counts.filter_map(|rest| rest.split([',', ')']).next()?.trim().parse::<u64>().ok()).sum()
}

/// The address of a device of a relay, and how many frames wait until the relay's thread has a processor.
fn tap_line(device: &str, mac: &str) -> String {
    format!("link set {device} address {mac} txqueuelen 10000")
}

/// Has a device send frames of the size of the wire: the token bucket and the losses count frames, and would take
/// a TCP segment of 64 KiB for one.
fn unsegmented(device: &str) -> String {
    format!("link set {device} gso_max_segs 1")
}

/// An address that is known without asking, so that no loss and no cut delays the first datagram.
fn neighbour(address: Ipv4Addr, mac: &str, device: &str) -> String {
    format!("neigh replace {address} lladdr {mac} dev {device} nud permanent")
}

fn host_mac(host: usize) -> String {
    format!("02:00:0a:63:00:{:02x}", host + 1)
}

fn port_mac(host: usize) -> String {
    format!("02:00:0a:63:01:{:02x}", host + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_router_are_in_subnets_of_their_own() {
        assert_eq!(LabTopology::Switched.address(1), Ipv4Addr::new(10, 99, 7, 2));
        assert_eq!(LabTopology::Routed.address(1), Ipv4Addr::new(10, 99, 2, 1));
        assert_eq!(LabTopology::gateway(1), Ipv4Addr::new(10, 99, 2, 254));
    }

    #[test]
    fn the_drops_of_all_queues_of_a_device_are_added_up() {
        let shown = "qdisc tbf 8001: root refcnt 2 rate 100Mbit burst 16Kb lat 41ms\n Sent 1514 bytes 1 pkt (dropped 12, \
                     overlimits 3 requeues 0)\n backlog 0b 0p requeues 0\nqdisc clsact ffff: parent ffff:fff1\n Sent 0 \
                     bytes 0 pkt (dropped 3, overlimits 0 requeues 0)\n";
        assert_eq!((dropped_frames(shown), dropped_frames("")), (15, 0));
    }

    #[test]
    fn devices_have_names_that_the_kernel_takes_and_addresses_of_their_own() {
        let host = crate::faults::HOSTS_MAX - 1;
        assert!(format!("splice{host}").len() < 16);
        assert_eq!(host_mac(host), "02:00:0a:63:00:c8");
        assert_ne!(host_mac(host), port_mac(host));
    }
}
