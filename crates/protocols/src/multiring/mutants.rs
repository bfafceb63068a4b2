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
            "A promise does not say what was accepted before." breaks [UniformPrefixOrder];
        VotesBeforeItIsWritten = "votes-before-it-is-written":
            "An acceptor votes before the value is on its disk." breaks [UniformPrefixOrder];
        VotesForAllItTookIn = "votes-for-all-it-took-in":
            "An acceptor that has its memory back votes at once for what it took in meanwhile, on its \
             disk or not." breaks [UniformPrefixOrder];
        PassesOnLostVotes = "passes-on-lost-votes":
            "Votes of a memory that was lost are passed on to those who do not know of the loss." breaks
            [UniformPrefixOrder];
        ForgetsThatItForgot = "forgets-that-it-forgot":
            "An acceptor that lost its memory votes at once." breaks [UniformPrefixOrder];
        PromisesBeforeItIsWritten = "promises-before-it-is-written":
            "An acceptor promises a ballot before the promise is on its disk." breaks
            [UniformPrefixOrder];
        LeadsBeforeItIsWritten = "leads-before-it-is-written":
            "A coordinator begins its run before its own promise is on its disk." breaks
            [UniformPrefixOrder];
        BeginsWithTheLongestLog = "begins-with-the-longest-log":
            "A new coordinator proposes again the longest log of a quorum, whatever ballot it is of." breaks
            [UniformPrefixOrder];
        RemembersTheLongestLog = "remembers-the-longest-log":
            "An acceptor that lost its memory takes over the longest log, whatever ballot it is of." breaks
            [UniformPrefixOrder];
        BeginsBehind = "begins-behind-what-is-known":
            "A new coordinator does not learn first what the others know to be decided." breaks
            [UniformPrefixOrder];
        CountsBelowItsPromise = "counts-below-its-promise":
            "The beginning of a run counts as accepted although a higher ballot was promised." breaks
            [UniformPrefixOrder];
        KeepsLeftovers = "keeps-leftovers":
            "What an older run had beyond the beginning of a newer one stays." breaks
            [UniformPrefixOrder];
        CountsOlderRuns = "counts-older-runs":
            "What is known to be decided by a newer ballot makes values of an older run count." breaks
            [UniformPrefixOrder];
        ForgetsWhatItPassed = "forgets-what-it-passed":
            "That instances were passed because nobody has them any more is not written." breaks
            [UniformPrefixOrder];
        TakesACutLogForWhole = "takes-a-cut-log-for-whole":
            "An acceptor whose log was cut votes at once." breaks [UniformPrefixOrder];
        TakesATornLogForWhole = "takes-a-torn-log-for-whole":
            "An acceptor that awaits no disk votes at once after its machine failed." breaks
            [UniformPrefixOrder];
        CountsOnLostMemories = "counts-on-lost-memories":
            "Who tells an acceptor what it had promised goes on to count its votes from before." breaks
            [UniformPrefixOrder];
        CountsLostPromises = "counts-lost-promises":
            "A promise counts although its acceptor has lost its memory since." breaks
            [UniformPrefixOrder];
        AsksTooFew = "asks-too-few":
            "An acceptor that lost its memory asks one less than it must." breaks [UniformPrefixOrder];
        RemembersNothing = "remembers-nothing":
            "An acceptor that lost its memory does not take over what the others had accepted." breaks
            [UniformPrefixOrder];
        DeliversUndecided = "delivers-undecided":
            "A learner delivers what it has, decided or not." breaks [UniformPrefixOrder];
        MergesInAnotherOrder = "merges-in-another-order":
            "Each second group merges its rings the other way round." breaks
            [UniformPrefixOrder, UniformAcyclicOrder];
        OrdersTwice = "orders-twice":
            "A retried proposal gets an instance again." breaks [UniformIntegrity];
        TrimsForOne = "trims-for-one":
            "What one node has in checkpoints is trimmed." breaks [Validity, UniformAgreement];
        PassesAlone = "passes-barriers-alone":
            "A barrier is passed by what its own process knows." breaks [Linearizable];
        AnswersKnown = "answers-barriers-with-what-is-known":
            "An acceptor counts for a barrier what it knows to be decided, and not all that it has voted for."
            breaks [Linearizable];
        TellsAll = "tells-everybody":
            "Messages to one group go round the ring of all groups." breaks [PartiallyGenuine];
    }
}
