//! Every capability that an entry of the catalog declares is true, and what it does not declare is
//! absent: found by running it in the simulator ([`observed`]), not from a table.
//!
//! The simulator asks of an entry what it declares. So that an undeclared capability would be found, runs are
//! made of the entry behind a wrapper that claims what is asked for ([`recorder`]); what the processes then do
//! is recorded between them and the simulator.

mod observed;
mod recorder;

use amcast_core::{Capabilities, Datagrams, Durability, Entry, PartitionMode, Senders};
use amcast_protocols::catalog::CATALOG;
use amcast_test_policy::protocol_is_tested;
use observed::observe;
use recorder::claiming;

const FIELDS: [&str; 11] = [
    "several_groups",
    "senders",
    "views",
    "read_index",
    "durability",
    "state_transfer",
    "crash_tolerance",
    "suspicion_tolerance",
    "early_delivery",
    "partitions",
    "datagrams",
];

/// The entries that are asked for.
fn tested() -> impl Iterator<Item = &'static dyn Entry> {
    CATALOG.iter().copied().filter(|entry| protocol_is_tested(entry.name()))
}

/// Which fields of the declaration of an entry are not so.
fn differences(entry: &'static dyn Entry) -> Vec<&'static str> {
    let says = *entry.capabilities();
    let is = observe(entry);
    let same = [
        says.several_groups == is.several_groups,
        says.senders == is.senders,
        says.views == is.views,
        says.read_index == is.read_index,
        says.durability == is.durability,
        says.state_transfer == is.state_transfer,
        says.crash_tolerance == is.crash_tolerance,
        says.suspicion_tolerance == is.suspicion_tolerance,
        says.early_delivery == is.early_delivery,
        says.partitions == is.partitions,
        says.datagrams == is.datagrams,
    ];
    FIELDS.into_iter().zip(same).filter(|(_, same)| !same).map(|(name, _)| name).collect()
}

#[test]
fn what_each_entry_declares_is_so_and_nothing_else_is() {
    for entry in tested() {
        assert_eq!(differences(entry), [""; 0], "{}", entry.name());
    }
}

#[test]
fn every_false_declaration_is_found() {
    let mut seen = Vec::new();
    for entry in tested() {
        // Entries that declare the same are tried alike.
        if seen.contains(entry.capabilities()) {
            continue;
        }
        seen.push(*entry.capabilities());
        let (mutant, _) = claiming(entry, opposite(entry.capabilities()));
        assert_eq!(differences(mutant), FIELDS, "{}", entry.name());
    }
}

/// Another value of every field.
fn opposite(of: &Capabilities) -> Capabilities {
    Capabilities {
        several_groups: !of.several_groups,
        senders: match of.senders {
            Senders::Clients => Senders::Replicas,
            Senders::Replicas => Senders::Clients,
        },
        views: !of.views,
        read_index: !of.read_index,
        durability: match of.durability {
            Durability::Volatile => Durability::Synced,
            Durability::Synced => Durability::Written,
            Durability::Written => Durability::Volatile,
        },
        state_transfer: !of.state_transfer,
        crash_tolerance: !of.crash_tolerance,
        suspicion_tolerance: !of.suspicion_tolerance,
        early_delivery: !of.early_delivery,
        partitions: match of.partitions {
            PartitionMode::PrimaryComponent => PartitionMode::EveryComponent,
            PartitionMode::EveryComponent => PartitionMode::PrimaryComponent,
        },
        datagrams: match of.datagrams {
            Datagrams::Never => Datagrams::Multicast,
            Datagrams::Unicast | Datagrams::Multicast => Datagrams::Never,
        },
    }
}
