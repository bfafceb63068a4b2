//! Ways to break the ordering protocols, and what each row of the table then breaks.

use crate::layers::vsync::VsyncMutant;
use crate::mutant;
#[cfg(feature = "mutants")]
use crate::mutant::{Mutant as _, MutantInfo, Mutants};

mutant::mutants! {
    /// Ways to break these protocols. The broken property depends on the row.
    pub enum TotalOrderMutant {
        TrustsOne = "trusts-one":
            "Uniform casts are handed over before a majority has them." breaks [];
        Twice = "delivers-twice":
            "A process delivers every fourth message two times." breaks [];
        LosesItsOwn = "loses-its-own":
            "A process does not deliver every second message of its own." breaks [];
        Overtakes = "overtakes":
            "Some processes deliver every fourth message after the one behind it." breaks [];
        ForgetsTheCut = "forgets-the-cut":
            "A member enters the next view with what it happens to have of the last." breaks [];
        JoinsWithNothing = "joins-with-nothing":
            "A process that joins continues without the state of the others." breaks [];
        BelievesAnybody = "believes-anybody":
            "A joiner lets its driver believe any source of a state, whether it continues or not." breaks []
            shown_by "scenarios/to-reborn-donor.txt";
    }
}

/// The mutant of the layer below.
#[cfg(feature = "mutants")]
pub(super) fn broken(mutants: Mutants<TotalOrderMutant>) -> Option<VsyncMutant> {
    let of = [
        (TotalOrderMutant::ForgetsTheCut, VsyncMutant::ForgetsTheCut),
        (TotalOrderMutant::JoinsWithNothing, VsyncMutant::JoinsWithNothing),
        (TotalOrderMutant::BelievesAnybody, VsyncMutant::BelievesAnybody),
        (TotalOrderMutant::TrustsOne, VsyncMutant::TrustsOne),
    ];
    of.into_iter().find(|(mutant, _)| mutants.is(*mutant)).map(|(_, broken)| broken)
}

/// The mutant of the layer below: none in this build.
#[cfg(not(feature = "mutants"))]
pub(super) const fn broken(_: mutant::Mutants<TotalOrderMutant>) -> Option<VsyncMutant> {
    None
}

/// The mutants of a row, by its agreement and order. The first is only of rows with a uniform broadcast. The
/// last is of `ab-rcast`, of which a scenario shows it: a uniform delivery of a state's source is in the cut also if it
/// dies, and where all casts are the sequencer's or the token's, none follows one that died with it.
#[cfg(feature = "mutants")]
macro_rules! info {
    ($agreement:ident, $order:ident) => {{
        use amcast_core::Property::{self, *};
        const BREAKS: [&[Property]; 7] = [
            &[$agreement],
            &[Ui],
            &[Nuv, $agreement],
            &[$order, FifoOrder],
            &[$agreement, ViewSynchrony],
            &[$agreement],
            &[$agreement, ViewSynchrony],
        ];
        const ALL: [MutantInfo; 7] = {
            let mut all = [MutantInfo { name: "", what: "", breaks: &[], shown_by: None }; 7];
            let mut i = 0;
            while i < all.len() {
                all[i] = MutantInfo { breaks: BREAKS[i], ..TotalOrderMutant::INFO[i] };
                i += 1;
            }
            all
        };
        &ALL
    }};
}

/// The mutants of a row by its specification, `TO(agreement,order)`; `PLAIN` where nothing is broadcast
/// uniformly.
#[cfg(feature = "mutants")]
pub(crate) mod of {
    use super::*;

    pub(crate) const UA_SUTO: &[MutantInfo] = info!(Ua, Suto).split_at(6).0;
    pub(crate) const UA_WNUTO: &[MutantInfo] = info!(Ua, Wnuto).split_at(6).0;
    pub(crate) const NUA_WUTO: &[MutantInfo] = info!(Nua, Wuto).split_at(6).0;
    pub(crate) const ASKED_NUA_WUTO: &[MutantInfo] = info!(Nua, Wuto).split_at(1).1;
    pub(crate) const PLAIN_NUA_WUTO: &[MutantInfo] = ASKED_NUA_WUTO.split_at(5).0;
    pub(crate) const PLAIN_NUA_WNUTO: &[MutantInfo] = info!(Nua, Wnuto).split_at(1).1.split_at(5).0;
}
