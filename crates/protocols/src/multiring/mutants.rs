//! Ways to break this protocol on purpose: each breaks an invariant of a role, and a test sees the checker find it.

use crate::mutant;

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum MultiRingMutant {
        FewerVotes = "decides-with-one-vote-less":
            "A value counts as decided with one vote less than a majority." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-lost-vote.txt";
        BeginsWithNothing = "begins-with-nothing":
            "A new coordinator does not propose again what was accepted." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-power-fails.txt";
        ForgetsWhatItAccepted = "forgets-what-it-accepted":
            "A promise does not contain what was accepted before." breaks [UniformPrefixOrder]
            shown_by "scenarios/mrp-promise-holds-all.txt";
        VotesBeforeItIsWritten = "votes-before-it-is-written":
            "An acceptor votes before the value is on its disk." breaks [UniformPrefixOrder]
            shown_by "scenarios/mrp-power-fails.txt";
        VotesForAllItAccepted = "votes-for-all-it-took-in":
            "An acceptor that has recovered votes at once for what it accepted meanwhile, on its disk \
             or not." breaks [UniformPrefixOrder]
            shown_by "scenarios/mrp-recovered-vote.txt";
        SendsOnLostVotes = "passes-on-lost-votes":
            "Votes of a lost storage epoch are sent on to members that do not know of the loss." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-lost-vote.txt";
        ForgetsItsLoss = "forgets-that-it-forgot":
            "An acceptor that lost its storage votes at once." breaks [UniformPrefixOrder]
            shown_by "scenarios/mrp-torn-log.txt";
        PromisesBeforeItIsWritten = "promises-before-it-is-written":
            "An acceptor promises a ballot before the promise is on its disk." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-early-promise.txt";
        CoordinatesBeforeItIsWritten = "leads-before-it-is-written":
            "A coordinator begins phase 2 before its own promise is on its disk." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-stalled-candidate.txt";
        BeginsWithTheLongestLog = "begins-with-the-longest-log":
            "A new coordinator proposes again the longest log of a quorum, of any ballot." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-rival-logs.txt";
        RecoversTheLongestLog = "remembers-the-longest-log":
            "An acceptor that lost its storage takes over the longest log, of any ballot." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-recovered-ballot.txt";
        BeginsWithoutLearning = "begins-behind-what-is-known":
            "A new coordinator does not learn first what the others have learned." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-early-promise.txt";
        CountsBelowItsPromise = "counts-below-its-promise":
            "A ballot is adopted although a higher one was promised." breaks
            [UniformPrefixOrder]
            shown_by "crates/protocols/tests/multiring_sim/mutants.rs";
        KeepsLeftovers = "keeps-leftovers":
            "Entries of an older ballot stay in the log beyond those of a newer one." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-leftovers.txt";
        CountsOlderBallots = "counts-older-runs":
            "A decision of a newer ballot makes values of an older ballot count." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-old-promise.txt";
        ForgetsTrimmed = "forgets-what-it-passed":
            "It is not written that instances were skipped because every member has trimmed them." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-trimmed-is-durable.txt";
        TakesACutLogForWhole = "takes-a-cut-log-for-whole":
            "An acceptor whose log was cut votes at once." breaks [UniformPrefixOrder]
            shown_by "scenarios/mrp-cut-log.txt";
        TakesATornLogForWhole = "takes-a-torn-log-for-whole":
            "An acceptor that awaits no disk votes at once after its machine failed." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-torn-log.txt";
        CountsLostEpochs = "counts-on-lost-memories":
            "An acceptor that answers a recovery still counts the votes of the lost storage epoch." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-lost-vote.txt";
        CountsLostPromises = "counts-lost-promises":
            "A promise counts although its acceptor has lost its storage since." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-lost-promise.txt";
        AsksTooFew = "asks-too-few":
            "An acceptor that lost its storage recovers from one answer less than it must." breaks [UniformPrefixOrder]
            shown_by "scenarios/mrp-cut-log.txt";
        RecoversNothing = "remembers-nothing":
            "An acceptor that lost its storage does not take over what the others had accepted." breaks
            [UniformPrefixOrder]
            shown_by "scenarios/mrp-recovered-value.txt";
        DeliversUndecided = "delivers-undecided":
            "A learner delivers what it holds, decided or not." breaks [UniformPrefixOrder]
            shown_by "scenarios/mrp-power-fails.txt";
        MergesInAnotherOrder = "merges-in-another-order":
            "Each second group merges its rings the other way round." breaks
            [UniformPrefixOrder, UniformAcyclicOrder]
            shown_by "scenarios/mrp-shared-rings.txt";
        OrdersTwice = "orders-twice":
            "A retried proposal gets an instance again." breaks [UniformIntegrity]
            shown_by "scenarios/mrp-cut-log.txt";
        TrimsForOne = "trims-for-one":
            "Instances are trimmed once one node has a checkpoint of them." breaks [Validity, UniformAgreement]
            shown_by "scenarios/mrp-trimmed-for-majority.txt";
        ReadsAlone = "passes-barriers-alone":
            "A read index is passed by what its own process knows." breaks [Linearizable]
            shown_by "scenarios/mrp-read-index.txt";
        AnswersLearned = "answers-barriers-with-what-is-known":
            "An acceptor answers a read index with what it has learned, and not with all that it has voted for."
            breaks [Linearizable]
            shown_by "scenarios/mrp-read-index-undecided.txt";
        InvolvesAll = "tells-everybody":
            "Messages to one group go round the ring of all groups." breaks [PartiallyGenuine]
            shown_by "scenarios/mrp-two-groups.txt";
    }
}
