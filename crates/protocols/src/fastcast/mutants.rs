//! Ways to break the protocol.

use crate::layers::delivery::DeliveryMutants;
use crate::layers::vsync::VsyncMutant;
use crate::mutant;
#[cfg(feature = "mutants")]
use crate::mutant::Mutants;

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum FastCastMutant {
        TrustsOne = "trusts-one":
            "A member delivers messages and numbers before all members have them." breaks [Ua];
        Twice = "delivers-twice":
            "A process delivers every fourth message two times." breaks [Ui];
        LosesItsOwn = "loses-its-own":
            "A process does not deliver every second message of its own." breaks [Nuv, Ua];
        Overtakes = "overtakes":
            "Some processes deliver every fourth message after the one behind it." breaks [Suto, FifoOrder];
        IgnoresNumbers = "ignores-numbers":
            "A member delivers messages as it gets them, without their numbers." breaks [Suto];
        OwnFirst = "own-first":
            "When a view ends a member delivers its own messages that have no number before those of others."
            breaks [Suto, ViewSynchrony];
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
        RepeatsUnasked = "repeats-unasked":
            "A member repeats casts to one that enters a view, instead of asking which of them it has." breaks []
            shown_by "crates/protocols/src/layers/vsync/tests/collector.rs";
        AcknowledgesOnce = "acknowledges-once":
            "A member that receives a message twice does not acknowledge it again to all." breaks []
            shown_by "crates/protocols/src/layers/vsync/tests/collector.rs";
    }
}

/// The mutant of the layer below.
#[cfg(feature = "mutants")]
pub(super) fn broken(mutants: Mutants<FastCastMutant>) -> Option<VsyncMutant> {
    let of = [
        (FastCastMutant::ForgetsTheCut, VsyncMutant::ForgetsTheCut),
        (FastCastMutant::JoinsWithNothing, VsyncMutant::JoinsWithNothing),
        (FastCastMutant::IgnoresBacklog, VsyncMutant::IgnoresBacklog),
        (FastCastMutant::NeverHearsRoom, VsyncMutant::NeverHearsRoom),
        (FastCastMutant::TrustsOne, VsyncMutant::TrustsOne),
        (FastCastMutant::RepeatsUnasked, VsyncMutant::RepeatsUnasked),
        (FastCastMutant::AcknowledgesOnce, VsyncMutant::AcknowledgesOnce),
    ];
    of.into_iter().find(|(mutant, _)| mutants.is(*mutant)).map(|(_, broken)| broken)
}

/// The mutant of the layer below: none in this build.
#[cfg(not(feature = "mutants"))]
pub(super) const fn broken(_: mutant::Mutants<FastCastMutant>) -> Option<VsyncMutant> {
    None
}

/// The mutants that break deliveries.
pub(super) fn of_deliveries(mutants: mutant::Mutants<FastCastMutant>) -> DeliveryMutants {
    DeliveryMutants {
        overtakes: mutants.is(FastCastMutant::Overtakes),
        loses_its_own: mutants.is(FastCastMutant::LosesItsOwn),
        twice: mutants.is(FastCastMutant::Twice),
        forgets: false,
        early_twice: false,
    }
}
