//! Whether the nodes executed what clients asked for. A run whose calls are all refused shows nothing: the model of a service
//! says nothing of them, so each order of the others is a right one.

use super::{Call, Finding, ReadLevel, ServiceJudge};
use amcast_core::Outcome;
use amcast_node::service::calls::NO_MEMORY;

/// A run in which less than one call of so many is executed shows too little to be judged.
const LEAST_ONE_IN: u64 = 4;

/// So few calls of a kind may be refused in any run: nodes that were away answer some reads so.
const REFUSED_MIN: u64 = 4;

/// The results of the calls of one kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct CallOutcomes {
    pub(super) made: u64,
    pub(super) executed: u64,
    /// Refused as a whole for lack of memory, which a judge of its own looks at.
    pub(super) no_memory: u64,
    /// Refused for another reason.
    pub(super) refused: u64,
}

impl CallOutcomes {
    /// A call has returned, as `out` in the language of the history.
    pub(super) fn returned(&mut self, outcome: Outcome, out: &str) {
        match outcome {
            Outcome::Executed => self.executed += 1,
            _ if out == NO_MEMORY => self.no_memory += 1,
            Outcome::NotExecuted => self.refused += 1,
            Outcome::Unknown => {}
        }
    }
}

/// The results of the calls of a run's clients.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct CallProgress {
    pub(super) reads: CallOutcomes,
    pub(super) writes: CallOutcomes,
}

impl CallProgress {
    /// Calls of the kind of this one.
    pub(super) const fn of(&mut self, call: &Call) -> &mut CallOutcomes {
        if call.read_only { &mut self.reads } else { &mut self.writes }
    }

    /// Of reads and writes together.
    fn sum(&self, count: impl Fn(&CallOutcomes) -> u64) -> u64 {
        count(&self.reads) + count(&self.writes)
    }

    /// How many calls were executed, and how many refused for another reason than memory.
    pub(super) fn counts(&self) -> [(&'static str, u64); 2] {
        [
            ("calls executed", self.sum(|of| of.executed)),
            ("calls refused", self.sum(|of| of.refused)),
        ]
    }

    /// A run that settled refused more calls of a kind than it executed: that is wrong, unless the service refuses some by
    /// rules of its own. Reads at the level [sequential](ReadLevel::Sequential) say nothing of it: only the node of the client's
    /// gateway answers them, and one that is behind refuses all of them for as long as it is.
    pub(super) fn finding(&self, level: ReadLevel) -> Option<Finding> {
        let reads = Some(("reads", self.reads)).filter(|_| level != ReadLevel::Sequential);
        let kinds = [Some(("writes", self.writes)), reads];
        let is_wrong =
            |of: &CallOutcomes| of.refused > REFUSED_MIN && of.refused > of.executed + of.no_memory;
        let (kind, of) = kinds.into_iter().flatten().find(|(_, of)| is_wrong(of))?;
        let CallOutcomes { made, executed, refused, .. } = of;
        let says = format!("of {made} {kind} {executed} were executed and {refused} refused");
        Some(Finding { what: ServiceJudge::Progress.name(), says })
    }

    /// Why a run shows too little, if so few of its calls were executed.
    pub(super) fn not_judged(&self) -> Option<Finding> {
        let made = self.sum(|of| of.made);
        let decided = self.sum(|of| of.executed + of.no_memory);
        let says = format!("of {made} calls {decided} were executed, which shows too little");
        (decided * LEAST_ONE_IN < made)
            .then_some(Finding { what: ServiceJudge::Progress.name(), says })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::GroupSet;

    /// The calls of a run: reads and writes, so many executed, refused, and without an answer.
    fn progress(reads: [u64; 3], writes: [u64; 3]) -> CallProgress {
        let mut progress = CallProgress::default();
        for (read_only, [executed, refused, open]) in [(true, reads), (false, writes)] {
            let call = Call::new(GroupSet::EMPTY, Vec::new(), read_only, String::new());
            let of = progress.of(&call);
            of.made = executed + refused + open;
            (0..executed).for_each(|_| of.returned(Outcome::Executed, "OK"));
            (0..refused).for_each(|_| of.returned(Outcome::NotExecuted, "ERR"));
        }
        progress
    }

    #[test]
    fn a_run_that_refuses_most_calls_of_a_kind_is_wrong() {
        for (reads, writes, is_wrong) in [
            ([40, 0, 0], [60, 0, 0], false),
            ([38, 2, 0], [60, 0, 0], false),
            ([20, 0, 20], [30, 0, 30], false),
            ([0, 40, 0], [60, 0, 0], true),
            ([40, 0, 0], [0, 60, 0], true),
            ([40, 0, 0], [20, 30, 10], true),
            ([0, 1, 0], [0, 1, 0], false),
        ] {
            assert_eq!(
                progress(reads, writes).finding(ReadLevel::Index).is_some(),
                is_wrong,
                "{reads:?} {writes:?}"
            );
        }
    }

    #[test]
    fn reads_that_only_one_node_answers_may_be_refused_while_it_is_behind() {
        let finding = |reads, writes| progress(reads, writes).finding(ReadLevel::Sequential);
        assert_eq!(finding([5, 35, 0], [60, 0, 0]), None);
        assert!(finding([40, 0, 0], [5, 55, 0]).is_some());
    }

    #[test]
    fn a_run_in_which_too_few_calls_are_executed_is_not_judged() {
        for (reads, writes, is_judged) in [
            ([40, 0, 0], [60, 0, 0], true),
            ([10, 0, 30], [15, 0, 45], true),
            ([10, 0, 30], [14, 0, 46], false),
            ([0, 0, 40], [0, 0, 60], false),
            ([0, 40, 0], [0, 60, 0], false),
        ] {
            let why = progress(reads, writes).not_judged();
            assert_eq!(why.is_none(), is_judged, "{reads:?} {writes:?}");
        }
        let mut full = progress([0; 3], [0; 3]);
        full.writes.made = 10;
        (0..10).for_each(|_| full.writes.returned(Outcome::NotExecuted, NO_MEMORY));
        assert_eq!(
            (full.finding(ReadLevel::Ordered), full.not_judged()),
            (None, None),
            "another judge looks at these"
        );
    }
}
