//! Ways to break the protocol.

use crate::layers::delivery::DeliveryMutants;
use crate::layers::vsync::VsyncMutant;
use crate::mutant;
#[cfg(feature = "mutants")]
use crate::mutant::Mutants;

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum RingPaxosMutant {
        SmallRing = "small-ring":
            "The ring has one acceptor less than a majority." breaks [Ua];
        DeliversUndecided = "delivers-undecided":
            "A learner delivers a value when it holds it, and waits for no decision." breaks [Ua];
        VotesBlindly = "votes-blindly":
            "An acceptor passes a vote on for a value that it does not hold." breaks [Ua]
            shown_by "scenarios/rp-vote-waits-for-value.txt";
        DropsUndecided = "drops-undecided":
            "A member that knows of no decision drops the value when the view ends." breaks [Ua, ViewSynchrony];
        ProposesAgain = "proposes-again":
            "A proposer proposes again what was finished when the view ended, and nobody remembers it." breaks [Ui];
        DropsProposals = "drops-proposals":
            "The coordinator drops what is proposed while an instance is open." breaks [Nuv];
        Twice = "delivers-twice":
            "A process delivers every fourth message two times." breaks [Ui];
        LosesItsOwn = "loses-its-own":
            "A process does not deliver every second message of its own." breaks [Nuv, Ua];
        Overtakes = "overtakes":
            "Some processes deliver every fourth message after the one behind it." breaks [Suto, FifoOrder];
        ForgetsTheCut = "forgets-the-cut":
            "A member enters the next view with what it happens to have of the last." breaks [Ua, ViewSynchrony];
        JoinsWithNothing = "joins-with-nothing":
            "A process that joins continues without the state of the others." breaks [Ua];
        IgnoresBacklog = "ignores-backlog":
            "A member makes more datagrams while its carrier has no more room." breaks []
            shown_by "crates/protocols/tests/backlog.rs";
        NeverHearsRoom = "never-hears-room":
            "A member does not hear that its carrier has room again." breaks [Nuv]
            shown_by "crates/protocols/tests/backlog.rs";
    }
}

/// The mutant of the layer below.
#[cfg(feature = "mutants")]
pub(super) fn broken(mutants: Mutants<RingPaxosMutant>) -> Option<VsyncMutant> {
    let of = [
        (RingPaxosMutant::ForgetsTheCut, VsyncMutant::ForgetsTheCut),
        (RingPaxosMutant::JoinsWithNothing, VsyncMutant::JoinsWithNothing),
        (RingPaxosMutant::IgnoresBacklog, VsyncMutant::IgnoresBacklog),
        (RingPaxosMutant::NeverHearsRoom, VsyncMutant::NeverHearsRoom),
    ];
    of.into_iter().find(|(mutant, _)| mutants.is(*mutant)).map(|(_, broken)| broken)
}

/// The mutant of the layer below: none in this build.
#[cfg(not(feature = "mutants"))]
pub(super) const fn broken(_: mutant::Mutants<RingPaxosMutant>) -> Option<VsyncMutant> {
    None
}

/// The mutants that break deliveries.
pub(super) fn of_deliveries(mutants: mutant::Mutants<RingPaxosMutant>) -> DeliveryMutants {
    DeliveryMutants {
        overtakes: mutants.is(RingPaxosMutant::Overtakes),
        loses_its_own: mutants.is(RingPaxosMutant::LosesItsOwn),
        twice: mutants.is(RingPaxosMutant::Twice),
        forgets: mutants.is(RingPaxosMutant::ProposesAgain),
        early_twice: false,
    }
}
