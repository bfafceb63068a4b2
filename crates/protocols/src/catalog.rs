//! Every protocol there is, one line each: its module, and each of its entries with the entry's
//! mutants. All other uses of protocols (the command line's names, selection by guarantee, the
//! fault matrix, mutants, benchmarks) follow from this list, and no other list names them.

#[cfg(feature = "mutants")]
use crate::mutant::Mutant as _;
use crate::mutant::MutantInfo;
use amcast_core::Entry;

/// Hands all lines to a macro: to the crate's root, which declares the modules, and to this file, which lists the
/// entries. A line is `mod FOLDER: ENTRY => MUTANTS, ..;`, with paths within the folder's module.
macro_rules! protocols {
    ($to:ident) => {
        $to! {
            mod tram: Tram => TramMutant::INFO, RamCast => RamCastMutant::INFO;
            mod skeen: Skeen => SkeenMutant::INFO;
            mod byzcast: ByzCast => ByzCastMutant::INFO;
            mod multiring:
                SYNCED => MultiRingMutant::INFO,
                WRITTEN => MultiRingMutant::INFO,
                MEMORY => MultiRingMutant::INFO;
            mod total:
                BB_RCAST_RCAST => mutants::of::PLAIN_NUA_WNUTO,
                BB_URCAST_URCAST => mutants::of::UA_SUTO,
                BB_RCAST_URCAST => mutants::of::NUA_WUTO,
                BB_URCAST_RCAST => mutants::of::UA_WNUTO,
                SB_RCAST => mutants::of::PLAIN_NUA_WNUTO,
                SB_URCAST => mutants::of::UA_SUTO,
                AB_RCAST => mutants::of::ASKED_NUA_WUTO,
                AB_URCAST => mutants::of::UA_SUTO,
                PB_RCAST => mutants::of::PLAIN_NUA_WUTO,
                PB_URCAST => mutants::of::UA_SUTO;
            mod fastcast:
                FastCast => FastCastMutant::INFO,
                FastCastPerfect => FastCastMutant::INFO;
            mod lcr: Lcr => LcrMutant::INFO;
            mod ring_paxos_multicast: RingPaxosMulticast => RingPaxosMutant::INFO;
            mod toto:
                TOTO => mutants::of::PRIMARY,
                ALL_ACK => mutants::of::PRIMARY,
                TOTO_PARTITIONABLE => mutants::of::COMPONENTS;
        }
    };
}

macro_rules! list {
    ($(mod $module:ident: $($entry:ident => $($mutants:ident)::+),+;)+) => {
        /// Every protocol.
        pub const CATALOG: &[&dyn Entry] = &[$($(&crate::$module::$entry),+),+];

        /// The protocols that can be broken on purpose.
        #[cfg(feature = "mutants")]
        const MUTANTS: &[(&dyn Entry, &[MutantInfo])] =
            &[$($((&crate::$module::$entry, crate::$module::$($mutants)::+)),+),+];
    };
}
protocols!(list);

#[cfg(not(feature = "mutants"))]
const MUTANTS: &[(&dyn Entry, &[MutantInfo])] = &[];

/// The name of the protocol that runs where nothing else is asked for.
pub const USUAL_PROTOCOL: &str = "multi-ring";

/// The protocol of that name.
pub fn find(name: &str) -> Option<&'static dyn Entry> {
    CATALOG.iter().copied().find(|entry| entry.name() == name)
}

/// The mutants of the protocol of that name: what its parameter `mutant` takes besides `none`.
/// Empty if it has none, and in a build without the feature `mutants`.
pub fn mutants(name: &str) -> &'static [MutantInfo] {
    let found = MUTANTS.iter().find(|(entry, _)| entry.name() == name);
    found.map_or(&[], |(_, mutants)| mutants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use amcast_core::{ClusterShape, Property};

    #[test]
    fn every_name_is_found_and_is_one_protocols() {
        let names: BTreeSet<_> = CATALOG.iter().map(|entry| entry.name()).collect();
        assert_eq!(names.len(), CATALOG.len());
        for entry in CATALOG {
            assert_eq!(find(entry.name()).map(Entry::name), Some(entry.name()));
        }
        assert!(find("no such protocol").is_none());
        assert!(find(USUAL_PROTOCOL).is_some_and(|entry| entry.capabilities().crash_tolerance));
    }

    #[test]
    fn a_delivery_proves_a_majority_where_agreement_is_uniform_although_a_minority_may_fail() {
        let others = |name: &str| {
            [1, 2, 3, 4, 5].map(|replicas| {
                let cluster = ClusterShape::new(1, replicas, 0).unwrap();
                find(name).unwrap().about().certain_replicas(&cluster) - 1
            })
        };
        let majority = [
            "multi-ring",
            "multi-ring-async",
            "multi-ring-memory",
            "tram",
            "fastcast",
            "lcr",
            "sb-urcast",
        ];
        for name in majority {
            assert_eq!(others(name), [0, 1, 1, 2, 2], "{name}");
        }
        // Not uniform, uniform among the members of a view that may be one process, or without crashes.
        let one = [
            "sb-rcast",
            "bb-rcast-urcast",
            "toto",
            "all-ack",
            "fastcast-perfect-detector",
            "skeen",
        ];
        for name in one {
            assert_eq!(others(name), [0; 5], "{name}");
        }
    }

    #[test]
    fn every_parameter_is_declared_once() {
        for entry in CATALOG {
            let params = entry.about().params;
            let names: BTreeSet<_> = params.iter().map(|p| p.name).collect();
            assert_eq!(names.len(), params.len(), "{}", entry.name());
        }
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn every_promise_is_broken_by_a_mutant_and_mutants_break_only_promises() {
        for entry in CATALOG {
            let promises: BTreeSet<_> = entry.about().promises.iter().collect();
            let mut broken: BTreeSet<_> =
                mutants(entry.name()).iter().flat_map(|m| m.breaks).collect();
            // The promise of services by its read index.
            assert_eq!(broken.remove(&Property::Linearizable), entry.capabilities().read_index);
            assert_eq!(promises, broken, "{}", entry.name());
        }
        assert!(MUTANTS.iter().all(|(entry, _)| find(entry.name()).is_some()));
    }
}
