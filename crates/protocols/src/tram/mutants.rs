//! TRAM broken on purpose; see [`crate::mutant`].

use crate::mutant::Mutants;
use amcast_core::{Gid, GroupSet, Overlay};

crate::mutant::mutants! {
    /// Ways to break TRAM, one line each.
    pub enum TramMutant {
        /// In the replicas.
        DecidesAlone = "decides-alone":
            "A leader takes an entry for decided when it has written it to itself."
            breaks [Validity, UniformAgreement, UniformPrefixOrder];
        LeadsAlone = "leads-alone":
            "A replica becomes leader with its own permission only."
            breaks [UniformPrefixOrder, UniformAcyclicOrder];
        CountsDenied = "counts-denied":
            "A leader counts a write that was denied."
            breaks [UniformPrefixOrder];
        SkipsRevocation = "skips-revocation":
            "A replica lets a new leader in without revoking the former one."
            breaks [UniformPrefixOrder];
        SkipsGroupCatchUp = "skips-group-catch-up":
            "A new leader adopts its own log, and ignores those of the quorum."
            breaks [UniformAgreement, UniformPrefixOrder, UniformAcyclicOrder];
        SkipsTreeCatchUp = "skips-tree-catch-up":
            "A new leader does not pass on what its predecessor left."
            breaks [Validity, UniformAgreement];
        DeliversUndecided = "delivers-undecided":
            "A follower delivers what it finds in its log, committed or not."
            breaks [UniformAgreement, UniformPrefixOrder];
        DeliversAhead = "delivers-ahead":
            "A leader delivers what lies in its own log, before a quorum of the group holds that."
            breaks [UniformAgreement, UniformPrefixOrder];
        ForgetsAmnesia = "forgets-amnesia":
            "A replica that lost its memory continues as if it had promised nothing."
            breaks [Validity, UniformAgreement];
        TrustsTheLog = "trusts-the-log":
            "A replica that has the log again counts as fit before its application has its state."
            breaks [];
        SkipsConfirm = "skips-confirm":
            "A candidate adopts what it has read without looking whether it was written over meanwhile."
            breaks [UniformPrefixOrder] shown_by "scenarios/tram-log-written-over.txt";
        WritesBeforeItTells = "writes-before-it-tells":
            "A leader begins a term's log at a follower without telling first that it writes over what lies there."
            breaks [UniformPrefixOrder] shown_by "scenarios/tram-log-written-over.txt";
        ReadmitsBeforeItTells = "readmits-before-it-tells":
            "A leader takes a follower in again without telling first that it writes over its log."
            breaks [UniformPrefixOrder] shown_by "crates/protocols/src/tram/tests/told.rs";
        AdoptsBeforeItTells = "adopts-before-it-tells":
            "A candidate copies a log over its own half without telling first that a term begins there."
            breaks [] shown_by "crates/protocols/src/tram/tests/told.rs";
        SendsToEach = "sends-to-each":
            "A client sends a message to each destination for itself, not to the lowest ancestor."
            breaks [Validity, UniformAgreement, UniformPrefixOrder, UniformAcyclicOrder];
        SendsToRoot = "sends-to-root":
            "A client sends every message to the root."
            breaks [PartiallyGenuine];
        SendsTooHigh = "sends-too-high":
            "A client sends a message to several groups to the parent of their lowest common ancestor."
            breaks [PartiallyGenuine];
        TakesUpTwice = "takes-up-twice":
            "A leader takes up some messages two times, and no leader sees that their numbers do not grow."
            breaks [Validity, UniformIntegrity];
        ForgetsCursors = "forgets-cursors":
            "A new leader's buffer cursors pass over what the adopted log has and it has not consumed."
            breaks [UniformIntegrity];
        AsksWithItsFirst = "asks-with-its-first":
            "A candidate asks with the first epoch of its rank, and ignores the others' promises."
            breaks [Validity];
        StopsAtNonsense = "stops-at-nonsense":
            "A leader does not read on in the other buffers of the parent where the first one holds nonsense."
            breaks [] shown_by "crates/protocols/src/tram/tests/parent.rs";
        QueuesWithoutBound = "queues-without-bound":
            "A follower for which its leader does not wait takes deliveries that its application does not apply, for ever."
            breaks [] shown_by "crates/protocols/src/tram/tests/hung.rs";
        HoldsForEver = "holds-for-ever":
            "The source of a state holds back the log for a reader that the log does not reach, for ever."
            breaks [] shown_by "crates/protocols/src/tram/tests/hung.rs";
        ReadsAnyParent = "reads-any-parent":
            "A leader takes messages from the next tree's parent before the change is in its log."
            breaks [UniformPrefixOrder, UniformAcyclicOrder];
        OrdersStaleRequests = "orders-stale-requests":
            "A leader continues to take up from a client's buffer behind a change of the tree."
            breaks [UniformIntegrity];
        ForgetsStaleRequests = "forgets-stale-requests":
            "A client does not request anew what a change of the tree has made stale."
            breaks [Validity];
        RequestsAnewTwice = "requests-anew-twice":
            "A client requests anew all behind a cut, also what it had requested anew in the tree before."
            breaks [UniformIntegrity];
        ForgetsTreeInTakeover = "forgets-tree-in-takeover":
            "A new leader takes the first tree for the present one."
            breaks [Validity];
        FetchesNothing = "fetches-nothing":
            "A leader does not read what followers hold of a writer that does not reach it."
            breaks [Validity] shown_by "crates/protocols/tests/tram_sim/links.rs";
        FetchesAnew = "fetches-anew":
            "A leader takes up what it has read from a follower although its cursor has passed that, and does not judge numbers."
            breaks [UniformIntegrity] shown_by "crates/protocols/src/tram/tests/fetched.rs";
        FetchesUnconfirmed = "fetches-unconfirmed":
            "A leader takes up what it has read from a follower although the buffer has another holder since."
            breaks [] shown_by "crates/protocols/src/tram/tests/fetched.rs";
        ForwardsByPresentTree = "forwards-by-present-tree":
            "A leader passes on by the present tree what its log has from before the change."
            breaks [Validity];
    }
}

/// The group that a client sends a message for `dst` to.
pub(crate) fn target(mutants: Mutants<TramMutant>, overlay: &Overlay, dst: GroupSet) -> Gid {
    if mutants.is(TramMutant::SendsToRoot) {
        return overlay.lca(GroupSet::first(overlay.groups()));
    }
    let lca = overlay.lca(dst);
    let above =
        overlay.parent(lca).filter(|_| dst.len() > 1 && mutants.is(TramMutant::SendsTooHigh));
    above.unwrap_or(lca)
}

/// The epoch that a candidate's own is to be higher than, of those it has seen.
pub(crate) fn asks_above(mutants: Mutants<TramMutant>, seen: u32) -> u32 {
    if mutants.is(TramMutant::AsksWithItsFirst) { 0 } else { seen }
}
