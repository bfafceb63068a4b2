//! The host that an address is of, for bounds that each host has for itself.

use std::net::IpAddr;

/// The host of an address: an IPv6 host has as many addresses as it likes in its network, so that network is it.
pub fn host_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_of_one_host() {
        let host = |text: &str| host_network(text.parse().expect("an address"));
        assert_eq!(host("2001:db8:1:2::1"), host("2001:db8:1:2:ffff::9"));
        assert_ne!(host("2001:db8:1:2::1"), host("2001:db8:1:3::1"));
        assert_eq!(host("::ffff:10.0.0.8"), host("10.0.0.8"));
        assert_ne!(host("10.0.0.8"), host("10.0.0.9"));
    }
}
