//! Ways to break the protocol.

use super::order::{OrderMutants, TotoOrder};
use crate::layers::batch::Batch;
use crate::layers::causal::CausalOrder;
use crate::layers::delivery::DeliveryMutants;
use crate::layers::vsync::VsyncMutant;
use crate::mutant;
use crate::mutant::Mutants;
use amcast_core::Pid;
use amcast_core::groupcast::{Component, View};

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum TotoMutant {
        LowPhi = "low-phi":
            "Fewer votes win than half of all, so that two candidates may beat each other." breaks [Nuv];
        Hasty = "hasty":
            "A member delivers a candidate with a vote that no other one has beaten yet." breaks [Wnuto, ViewSynchrony];
        ForgottenCandidate = "forgotten-candidate":
            "As a round begins a member forgets one of several candidates." breaks [Wnuto, ViewSynchrony];
        SkippingVector = "skipping-vector":
            "The vector of a message does not count the messages of one other member, which gets no votes." breaks [Nuv];
        Twice = "delivers-twice":
            "A process delivers every fourth message two times." breaks [Ui];
        LosesItsOwn = "loses-its-own":
            "A process does not deliver every second message of its own." breaks [Nuv, Nua];
        Overtakes = "overtakes":
            "Some processes deliver every fourth message after the one behind it."
            breaks [Wnuto, FifoOrder, CausalOrder];
        IgnoresVectors = "ignores-vectors":
            "A member counts votes as they arrive, also before what they follow." breaks [Wnuto];
        ForgetsTheCut = "forgets-the-cut":
            "A member enters the next view with what it happens to have of the last." breaks [Nua, ViewSynchrony];
        JoinsWithNothing = "joins-with-nothing":
            "A process that joins continues without the state of the others." breaks [Nua];
        EarlyTwice = "early-twice":
            "A process shows every fourth message early two times." breaks [];
        ReordersAtMerge = "reorders-at-merge":
            "Where components merge some members deliver what is left of their view the other way round." breaks [];
        NamesUnheard = "names-unheard":
            "A view names members that do not hear each other, and ends with what its coordinator has." breaks [];
    }
}

/// The mutant of the layer below.
#[cfg(feature = "mutants")]
pub(super) fn broken(mutants: Mutants<TotoMutant>) -> Option<VsyncMutant> {
    let of = [
        (TotoMutant::ForgetsTheCut, VsyncMutant::ForgetsTheCut),
        (TotoMutant::JoinsWithNothing, VsyncMutant::JoinsWithNothing),
        (TotoMutant::NamesUnheard, VsyncMutant::NamesUnheard),
    ];
    of.into_iter().find(|(mutant, _)| mutants.is(*mutant)).map(|(_, broken)| broken)
}

/// The mutant of the layer below: none in this build.
#[cfg(not(feature = "mutants"))]
pub(super) const fn broken(_: Mutants<TotoMutant>) -> Option<VsyncMutant> {
    None
}

/// The mutants of each row, and what they are seen to break there.
#[cfg(feature = "mutants")]
pub(crate) mod of {
    use super::TotoMutant;
    use crate::mutant::{Mutant as _, MutantInfo};
    use amcast_core::Property::{self, AgreedMulticast, FifoOrder, Nuv, Ui, ViewSynchrony};

    /// A mutant and what it breaks.
    const fn breaking(mutant: TotoMutant, breaks: &'static [Property]) -> MutantInfo {
        MutantInfo { breaks, ..TotoMutant::INFO[mutant as usize] }
    }

    /// Where a majority decides on views.
    pub(crate) const PRIMARY: &[MutantInfo] =
        TotoMutant::INFO.split_at(TotoMutant::ReordersAtMerge as usize).0;

    /// Where each component does.
    pub(crate) const COMPONENTS: &[MutantInfo] = &[
        breaking(TotoMutant::Hasty, &[AgreedMulticast]),
        breaking(TotoMutant::Twice, &[Ui]),
        breaking(TotoMutant::LosesItsOwn, &[Nuv, AgreedMulticast]),
        breaking(TotoMutant::Overtakes, &[FifoOrder, AgreedMulticast]),
        breaking(TotoMutant::ForgetsTheCut, &[AgreedMulticast, ViewSynchrony]),
        breaking(TotoMutant::EarlyTwice, &[]),
        breaking(TotoMutant::ReordersAtMerge, &[AgreedMulticast, ViewSynchrony]),
        breaking(TotoMutant::NamesUnheard, &[AgreedMulticast, ViewSynchrony]),
    ];
}

/// Whether a member delivers what is left the other way round as it enters this view.
pub(super) fn reorders(mutants: Mutants<TotoMutant>, me: Pid, next: &View) -> bool {
    let merges = |of: &Component| of.origins.iter().any(|origin| *origin != of.origins[0]);
    mutants.is(TotoMutant::ReordersAtMerge)
        && me.0 % 2 == 1
        && next.component.as_ref().is_some_and(merges)
}

/// The mutants that break deliveries.
pub(super) fn of_deliveries(mutants: Mutants<TotoMutant>) -> DeliveryMutants {
    DeliveryMutants {
        overtakes: mutants.is(TotoMutant::Overtakes),
        loses_its_own: mutants.is(TotoMutant::LosesItsOwn),
        twice: mutants.is(TotoMutant::Twice),
        forgets: false,
        early_twice: mutants.is(TotoMutant::EarlyTwice),
    }
}

/// Breaks the orders of a view as it begins.
pub(super) fn apply(
    mutants: Mutants<TotoMutant>,
    causal: &mut CausalOrder<Option<Batch>>,
    order: &mut TotoOrder<Batch>,
) {
    order.break_by(OrderMutants {
        low_phi: mutants.is(TotoMutant::LowPhi),
        hasty: mutants.is(TotoMutant::Hasty),
        forgets: mutants.is(TotoMutant::ForgottenCandidate),
    });
    if mutants.is(TotoMutant::IgnoresVectors) {
        causal.ignore_vectors();
    }
}
