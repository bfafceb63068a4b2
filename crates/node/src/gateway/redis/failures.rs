//! The errors for Redis commands that have no answer.

use crate::gateway::backend::{CommandFailure, FailureCause};
use amcast_core::{Outcome, ServiceAnswer};

/// The error that a client receives in place of an answer: `-WORD why; outcome of the command`.
///
/// Clients of a cluster send a command again by themselves after `TRYAGAIN` and `CLUSTERDOWN`: these
/// are only for commands that were surely not executed. No replica answers with them: it does not know of other
/// messages of the same command.
pub fn failure_answer(failure: &CommandFailure) -> ServiceAnswer<'static> {
    let outcome = failure.outcome;
    let word = match (outcome, failure.cause) {
        (Outcome::NotExecuted, FailureCause::Unavailable) => "CLUSTERDOWN",
        (Outcome::NotExecuted, FailureCause::Busy) => "TRYAGAIN",
        (Outcome::NotExecuted, FailureCause::DiskFull) => "MISCONF",
        _ => "ERR",
    };
    ServiceAnswer { outcome, bytes: format!("-{word} {failure}\r\n").into_bytes().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_became_of_the_command_and_may_be_sent_again_only_if_it_was_not_executed()
    {
        let causes = [
            (FailureCause::Busy, "TRYAGAIN"),
            (FailureCause::Unavailable, "CLUSTERDOWN"),
            (FailureCause::DiskFull, "MISCONF"),
            (FailureCause::Unsupported, "ERR"),
            (FailureCause::Other, "ERR"),
        ];
        for (cause, word) in causes {
            for outcome in Outcome::ALL {
                let told = failure_answer(&CommandFailure::new(outcome, cause, "why"));
                let word = if outcome == Outcome::NotExecuted { word } else { "ERR" };
                let text = format!("-{word} why; {}\r\n", outcome.words());
                assert_eq!((told.outcome, &*told.bytes), (outcome, text.as_bytes()));
            }
        }
    }
}
