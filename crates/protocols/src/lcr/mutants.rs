//! Ways to break the protocol.

use crate::layers::delivery::DeliveryMutants;
use crate::layers::vsync::VsyncMutant;
use crate::mutant;
#[cfg(feature = "mutants")]
use crate::mutant::Mutants;

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum LcrMutant {
        FirstLap = "first-lap":
            "A member takes a message for stable on its first lap, as soon as it has it." breaks [Suto];
        Twice = "delivers-twice":
            "A process delivers every fourth message two times." breaks [Ui];
        LosesItsOwn = "loses-its-own":
            "A process does not deliver every second message of its own." breaks [Nuv, Ua];
        Overtakes = "overtakes":
            "Some processes deliver every fourth message after the one behind it." breaks [Suto, FifoOrder];
        IgnoresClocks = "ignores-clocks":
            "A member delivers stable messages in the order in which they arrived there." breaks [Suto];
        StaleClock = "stale-clock":
            "The clock of a message counts none of the others that its sender had." breaks [Suto];
        OwnFirst = "own-first":
            "When a view ends a member delivers its own messages that are left before those of others."
            breaks [Suto, ViewSynchrony];
        ForgetsTheCut = "forgets-the-cut":
            "A member enters the next view with what it happens to have of the last." breaks [Ua, ViewSynchrony];
        JoinsWithNothing = "joins-with-nothing":
            "A process that joins continues without the state of the others." breaks [Ua];
        EarlyTwice = "early-twice":
            "A process shows every fourth message early two times." breaks [];
    }
}

/// The mutant of the layer below.
#[cfg(feature = "mutants")]
pub(super) fn broken(mutants: Mutants<LcrMutant>) -> Option<VsyncMutant> {
    let of = [
        (LcrMutant::ForgetsTheCut, VsyncMutant::ForgetsTheCut),
        (LcrMutant::JoinsWithNothing, VsyncMutant::JoinsWithNothing),
        (LcrMutant::FirstLap, VsyncMutant::TrustsOne),
    ];
    of.into_iter().find(|(mutant, _)| mutants.is(*mutant)).map(|(_, broken)| broken)
}

/// The mutant of the layer below: none in this build.
#[cfg(not(feature = "mutants"))]
pub(super) const fn broken(_: mutant::Mutants<LcrMutant>) -> Option<VsyncMutant> {
    None
}

/// The mutants that break deliveries.
pub(super) fn of_deliveries(mutants: mutant::Mutants<LcrMutant>) -> DeliveryMutants {
    DeliveryMutants {
        overtakes: mutants.is(LcrMutant::Overtakes),
        loses_its_own: mutants.is(LcrMutant::LosesItsOwn),
        twice: mutants.is(LcrMutant::Twice),
        forgets: false,
        early_twice: mutants.is(LcrMutant::EarlyTwice),
    }
}
