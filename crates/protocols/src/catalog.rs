//! Every protocol there is, one line each. What else is known of protocols (the command line's
//! names, selection by guarantee, the fault matrix, benchmarks) is derived from this list.

#[cfg(feature = "mutants")]
use crate::mutant::Mutant;
use crate::mutant::MutantInfo;
#[cfg(feature = "mutants")]
use crate::total::mutants::of;
use crate::{multiring, skeen, total, tram};
use amcast_core::Entry;

/// Every protocol.
pub const CATALOG: &[&dyn Entry] = &[
    &tram::Tram,
    &skeen::Skeen,
    &multiring::SYNCED,
    &multiring::WRITTEN,
    &multiring::MEMORY,
    &total::BB_RCAST_RCAST,
    &total::BB_URCAST_URCAST,
    &total::BB_RCAST_URCAST,
    &total::BB_URCAST_RCAST,
    &total::SB_RCAST,
    &total::SB_URCAST,
    &total::AB_RCAST,
    &total::AB_URCAST,
    &total::PB_RCAST,
    &total::PB_URCAST,
];

/// The protocols that can be broken on purpose.
#[cfg(feature = "mutants")]
const MUTANTS: &[(&dyn Entry, &[MutantInfo])] = &[
    (&tram::Tram, tram::TramMutant::INFO),
    (&skeen::Skeen, skeen::SkeenMutant::INFO),
    (&multiring::SYNCED, multiring::Mutant::INFO),
    (&multiring::WRITTEN, multiring::Mutant::INFO),
    (&multiring::MEMORY, multiring::Mutant::INFO),
    (&total::BB_RCAST_RCAST, of::PLAIN_NUA_WNUTO),
    (&total::BB_URCAST_URCAST, of::UA_SUTO),
    (&total::BB_RCAST_URCAST, of::NUA_WUTO),
    (&total::BB_URCAST_RCAST, of::UA_WNUTO),
    (&total::SB_RCAST, of::PLAIN_NUA_WNUTO),
    (&total::SB_URCAST, of::UA_SUTO),
    (&total::AB_RCAST, of::ASKED_NUA_WUTO),
    (&total::AB_URCAST, of::UA_SUTO),
    (&total::PB_RCAST, of::PLAIN_NUA_WUTO),
    (&total::PB_URCAST, of::UA_SUTO),
];

#[cfg(not(feature = "mutants"))]
const MUTANTS: &[(&dyn Entry, &[MutantInfo])] = &[];

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
    use amcast_core::Property;

    #[test]
    fn every_name_is_found_and_is_one_protocols() {
        let names: BTreeSet<_> = CATALOG.iter().map(|entry| entry.name()).collect();
        assert_eq!(names.len(), CATALOG.len());
        for entry in CATALOG {
            assert_eq!(find(entry.name()).map(Entry::name), Some(entry.name()));
        }
        assert!(find("no such protocol").is_none());
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
