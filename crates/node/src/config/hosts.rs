//! The settings that nodes of several hosts need of each other.

use super::{ClusterFile, HostPlacement, node_name};
use amcast_core::{ConfigError, Entry, MediumKind};
use std::collections::BTreeSet;
use std::net::IpAddr;

impl ClusterFile {
    /// Whether its nodes are on several hosts, by their addresses.
    pub fn is_on_several_hosts(&self) -> bool {
        let hosts: BTreeSet<IpAddr> = self.nodes.values().map(|node| node.address.ip()).collect();
        hosts.len() > 1
    }

    /// Checks the settings that nodes of different hosts need of each other.
    pub(super) fn check_hosts(&self, places: &[HostPlacement]) -> Result<(), String> {
        if !self.is_on_several_hosts() {
            return Ok(());
        }
        if self.id.is_none() {
            return Err(
                "id is missing: the nodes are on several hosts, and know each other's cluster by \
                        its number: any, such as id = 4711, the same in the file of every host"
                    .to_string(),
            );
        }
        let without = places.iter().position(|place| place.control.is_none());
        without.map_or(Ok(()), |rank| {
            let (name, at) = (node_name(rank), places[rank].address.ip());
            Err(format!(
                "nodes.{name}.control is missing: the nodes are on several hosts, and one that lost its \
                 state gets it there, such as nodes.{name}.control = \"{at}:7401\""
            ))
        })
    }

    /// Refuses a provider of libfabric over which a permission that is taken away stays with its writer.
    pub(super) fn check_rdma_provider(&self) -> Result<(), ConfigError> {
        let Some(provider) = &self.rdma_provider else { return Ok(()) };
        let core = provider.split(';').next().unwrap_or_default();
        if !["shm", "udp", "sockets"].contains(&core) {
            return Ok(());
        }
        Err(ConfigError::Relation(format!(
            "rdma_provider = {provider}: over it a writer whose permission was taken away may hear nothing of that; give \
             tcp, verbs or efa"
        )))
    }

    /// Checks that the gateway of each node has a client place, where the nodes cannot share them.
    pub(super) fn check_client_places(&self, entry: &dyn Entry) -> Result<(), ConfigError> {
        let several = self.is_on_several_hosts() || self.etcd.is_some();
        let (clients, least) = (self.clients, self.replicas);
        if entry.about().medium != MediumKind::Memory || !several || clients >= least {
            return Ok(());
        }
        Err(ConfigError::Relation(format!(
            "clients = {clients}: the nodes are on several hosts, and the gateway of each has a place of its own: give \
             {least} at least"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_memory_each_node_on_a_host_of_its_own_has_a_client_place() {
        let entry = amcast_protocols::catalog::find("tram").expect("it is there");
        let place = |ip: &str| HostPlacement {
            control: Some(format!("{ip}:7401").parse().unwrap()),
            ..HostPlacement::at(format!("{ip}:7400").parse().unwrap())
        };
        let file = |ips: [&str; 3], clients| ClusterFile {
            protocol: "tram".to_string(),
            id: Some(7),
            clients,
            nodes: (0..).map(node_name).zip(ips.map(place)).collect(),
            ..ClusterFile::default()
        };
        let apart = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        assert!(file(apart, 3).is_on_several_hosts());
        file(apart, 3).check(entry).unwrap();
        let why = file(apart, 2).check(entry).unwrap_err().to_string();
        assert!(why.contains("clients = 2: the nodes are on several hosts"), "{why}");
        let one = ClusterFile { nodes: Default::default(), ..file(apart, 2) };
        assert!(!one.is_on_several_hosts());
        one.check(entry).unwrap();
        let missing = ClusterFile { id: None, ..file(apart, 3) };
        assert!(missing.check(entry).unwrap_err().to_string().contains("id is missing"));
    }
    #[test]
    fn providers_over_which_a_permission_stays_with_its_writer_are_refused() {
        let entry = amcast_protocols::catalog::find("tram").expect("it is there");
        let checked = |provider: &str| {
            let rdma_provider = Some(provider.to_string());
            ClusterFile { protocol: entry.name().into(), rdma_provider, ..ClusterFile::default() }
                .check(entry)
        };
        for provider in ["shm", "udp;ofi_rxd", "sockets"] {
            let why = checked(provider).unwrap_err().to_string();
            assert!(why.contains("give tcp, verbs or efa"), "{why}");
        }
        checked("tcp;ofi_rxm").unwrap();
    }
}
