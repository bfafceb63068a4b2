//! Ways to break this protocol on purpose: each breaks what a role keeps, and a test sees the checker find it.

use crate::mutant;

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum Mutant {
        FewerVotes = "decides-with-one-vote-less":
            "A value counts as decided with one vote less than a majority." breaks
            [UniformPrefixOrder];
        BeginsWithNothing = "begins-with-nothing":
            "A new coordinator does not propose again what was accepted." breaks
            [UniformPrefixOrder];
        ForgetsWhatItAccepted = "forgets-what-it-accepted":
            "A promise does not contain what was accepted before." breaks [UniformPrefixOrder];
        VotesBeforeItIsWritten = "votes-before-it-is-written":
            "An acceptor votes before the value is on its disk." breaks [UniformPrefixOrder];
        VotesForAllItAccepted = "votes-for-all-it-took-in":
            "An acceptor that has recovered votes at once for what it accepted meanwhile, on its disk \
             or not." breaks [UniformPrefixOrder];
        SendsOnLostVotes = "passes-on-lost-votes":
            "Votes of a lost storage epoch are sent on to members that do not know of the loss." breaks
            [UniformPrefixOrder];
        ForgetsItsLoss = "forgets-that-it-forgot":
            "An acceptor that lost its storage votes at once." breaks [UniformPrefixOrder];
        PromisesBeforeItIsWritten = "promises-before-it-is-written":
            "An acceptor promises a ballot before the promise is on its disk." breaks
            [UniformPrefixOrder];
        CoordinatesBeforeItIsWritten = "leads-before-it-is-written":
            "A coordinator begins phase 2 before its own promise is on its disk." breaks
            [UniformPrefixOrder];
        BeginsWithTheLongestLog = "begins-with-the-longest-log":
            "A new coordinator proposes again the longest log of a quorum, of whatever ballot it is." breaks
            [UniformPrefixOrder];
        RecoversTheLongestLog = "remembers-the-longest-log":
            "An acceptor that lost its storage takes over the longest log, of whatever ballot it is." breaks
            [UniformPrefixOrder];
        BeginsWithoutLearning = "begins-behind-what-is-known":
            "A new coordinator does not learn first what the others have learned." breaks
            [UniformPrefixOrder];
        CountsBelowItsPromise = "counts-below-its-promise":
            "A ballot is adopted although a higher one was promised." breaks
            [UniformPrefixOrder];
        KeepsLeftovers = "keeps-leftovers":
            "Entries of an older ballot stay in the log beyond those of a newer one." breaks
            [UniformPrefixOrder];
        CountsOlderBallots = "counts-older-runs":
            "A decision of a newer ballot makes values of an older ballot count." breaks
            [UniformPrefixOrder];
        ForgetsTrimmed = "forgets-what-it-passed":
            "It is not written that instances were skipped because every member has trimmed them." breaks
            [UniformPrefixOrder];
        TakesACutLogForWhole = "takes-a-cut-log-for-whole":
            "An acceptor whose log was cut votes at once." breaks [UniformPrefixOrder];
        TakesATornLogForWhole = "takes-a-torn-log-for-whole":
            "An acceptor that awaits no disk votes at once after its machine failed." breaks
            [UniformPrefixOrder];
        CountsLostEpochs = "counts-on-lost-memories":
            "An acceptor that answers a recovery still counts the votes of the lost storage epoch." breaks
            [UniformPrefixOrder];
        CountsLostPromises = "counts-lost-promises":
            "A promise counts although its acceptor has lost its storage since." breaks
            [UniformPrefixOrder];
        AsksTooFew = "asks-too-few":
            "An acceptor that lost its storage recovers from one answer less than it must." breaks [UniformPrefixOrder];
        RecoversNothing = "remembers-nothing":
            "An acceptor that lost its storage does not take over what the others had accepted." breaks
            [UniformPrefixOrder];
        DeliversUndecided = "delivers-undecided":
            "A learner delivers what it holds, decided or not." breaks [UniformPrefixOrder];
        MergesInAnotherOrder = "merges-in-another-order":
            "Each second group merges its rings the other way round." breaks
            [UniformPrefixOrder, UniformAcyclicOrder];
        OrdersTwice = "orders-twice":
            "A retried proposal gets an instance again." breaks [UniformIntegrity];
        TrimsForOne = "trims-for-one":
            "Instances are trimmed once one node has a checkpoint of them." breaks [Validity, UniformAgreement];
        ReadsAlone = "passes-barriers-alone":
            "A read index is passed by what its own process knows." breaks [Linearizable];
        AnswersLearned = "answers-barriers-with-what-is-known":
            "An acceptor answers a read index with what it has learned, and not with all that it has voted for."
            breaks [Linearizable];
        InvolvesAll = "tells-everybody":
            "Messages to one group go round the ring of all groups." breaks [PartiallyGenuine];
    }
}
