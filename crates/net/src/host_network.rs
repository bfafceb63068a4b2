//! The host that an address is of, for bounds that each host has for itself.

use std::collections::BTreeMap;
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

/// The host, as [`host_network`] has it, that gives up a place for one more of `newcomer` where all are taken, by these hosts:
/// the one that has most of them with the newcomer's. None where no place is its own: each host has one, and any may go.
pub fn crowded_host(places: impl Iterator<Item = IpAddr>, newcomer: IpAddr) -> Option<IpAddr> {
    let mut counts = BTreeMap::from([(newcomer, 1)]);
    places.for_each(|host| *counts.entry(host).or_insert(0) += 1);
    let most = counts.into_iter().max_by_key(|(host, count)| (*count, *host == newcomer));
    most.filter(|(host, count)| *count > 1 || *host != newcomer).map(|(host, _)| host)
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

    #[test]
    fn the_host_that_has_most_gives_up_a_place_and_the_newcomer_before_others_that_have_as_many() {
        let host = |n: u8| IpAddr::from([10, 0, 0, n]);
        let crowded =
            |places: &[u8], newcomer| crowded_host(places.iter().map(|n| host(*n)), host(newcomer));
        assert_eq!(crowded(&[1, 2, 2, 3], 4), Some(host(2)));
        assert_eq!(crowded(&[1, 2, 2, 3], 3), Some(host(3)), "it would have as many");
        assert_eq!(crowded(&[1, 2, 2, 3], 2), Some(host(2)));
        assert_eq!(crowded(&[1, 2, 3], 4), None, "each has one");
    }
}
