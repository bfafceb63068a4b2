//! RamCast broken on purpose; see [`crate::mutant`].

use crate::mutant::Mutants;
use crate::tram::mutants::TramMutant;
use amcast_core::Config;

crate::mutant::mutants! {
    /// Ways to break RamCast, one line each.
    pub enum RamCastMutant {
        /// In the replication of a group.
        DecidesAlone = "decides-alone":
            "A leader takes an entry for decided when it has written it to itself."
            breaks [UniformAgreement, UniformPrefixOrder];
        DeliversAhead = "delivers-ahead":
            "A leader delivers what lies in its own log, before a quorum of its group holds that record."
            breaks [UniformAgreement, UniformPrefixOrder];
        LeadsAlone = "leads-alone":
            "A replica becomes leader with its own permission only."
            breaks [UniformPrefixOrder];
        SkipsGroupCatchUp = "skips-group-catch-up":
            "A new leader adopts its own log, and forgets the timestamps in those of the quorum."
            breaks [UniformAgreement, UniformPrefixOrder];
        SkipsRevocation = "skips-revocation":
            "A replica lets a new leader in without revoking the former one."
            breaks [UniformPrefixOrder];
        TakesUpTwice = "takes-up-twice":
            "A leader takes up some messages two times, and no replica sees that their numbers do not grow."
            breaks [UniformIntegrity];
        /// In the order over groups.
        IgnoresProposals = "ignores-proposals":
            "The final timestamp is the group's own, and not the largest of all destinations'."
            breaks [UniformPrefixOrder, UniformAcyclicOrder];
        WaitsForNone = "waits-for-none":
            "A message in front of the queue is delivered before the other destinations have proposed."
            breaks [UniformPrefixOrder, UniformAcyclicOrder];
        RunsAhead = "runs-ahead":
            "A message is delivered before the group has decided that its clock is past the final timestamp."
            breaks [UniformPrefixOrder, UniformAcyclicOrder];
        CountsCopiesTwice = "counts-copies-twice":
            "A message that another group passed on counts again when its client's own copy comes."
            breaks [UniformIntegrity];
        ClockStandsStill = "clock-stands-still":
            "A leader's clock does not pass the timestamps of other groups."
            breaks [UniformPrefixOrder, UniformAcyclicOrder];
        ForgetsPending = "forgets-pending":
            "A new leader does not propose again what its predecessor left."
            breaks [Validity, UniformAgreement];
        AbandonsTheDead = "abandons-the-dead":
            "A message whose client died before it wrote it to all destinations is waited for and never passed on."
            breaks [Validity];
        ConfusesDestinations = "confuses-destinations":
            "Proposals and refusals count for a message of the same number to other destinations."
            breaks [UniformPrefixOrder, UniformAgreement] shown_by "crates/protocols/tests/ramcast_sim/misnumbering.rs";
        RefusesTheKnown = "refuses-the-known":
            "A group answers a proposal by a refusal also where the message waits in its own queue."
            breaks [UniformAgreement];
        NeverRefuses = "never-refuses":
            "A proposal for a message that the group will never order is not answered."
            breaks [Validity] shown_by "crates/protocols/tests/ramcast_sim/misnumbering.rs";
        TellsAll = "tells-all":
            "Timestamps go to all groups, destinations or not."
            breaks [Genuine];
    }
}

/// The mistakes in the replication of a group, which is TRAM's.
pub(super) fn of_group(config: &Config) -> Mutants<TramMutant> {
    let mutants: Mutants<RamCastMutant> = Mutants::of(config);
    let same = [
        (RamCastMutant::DecidesAlone, TramMutant::DecidesAlone),
        (RamCastMutant::DeliversAhead, TramMutant::DeliversAhead),
        (RamCastMutant::LeadsAlone, TramMutant::LeadsAlone),
        (RamCastMutant::SkipsGroupCatchUp, TramMutant::SkipsGroupCatchUp),
        (RamCastMutant::SkipsRevocation, TramMutant::SkipsRevocation),
        (RamCastMutant::TakesUpTwice, TramMutant::TakesUpTwice),
    ];
    Mutants::with(same.into_iter().find(|(mine, _)| mutants.is(*mine)).map(|(_, its)| its))
}
