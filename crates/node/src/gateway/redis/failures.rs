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

/// The error of a command that was not executed because a message of it has this answer, with `what` before the reason. An
/// answer that says of the message that it was not executed is the error as it is.
pub(super) fn as_not_executed(answer: &ServiceAnswer<'_>, what: &str) -> Vec<u8> {
    if answer.outcome == Outcome::NotExecuted {
        return answer.bytes.to_vec();
    }
    let text = String::from_utf8_lossy(&answer.bytes);
    let text = text.trim_end();
    let why = text.split_once(' ').map_or(text, |(_, why)| why);
    // Words about the outcome of the message would contradict those about the command.
    let end = why.strip_suffix(answer.outcome.words());
    let why = end.and_then(|end| end.strip_suffix("; ")).unwrap_or(why);
    let why = format!("{what}: {why}");
    let failure = CommandFailure::new(Outcome::NotExecuted, FailureCause::Busy, why);
    failure_answer(&failure).bytes.into_owned()
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

    #[test]
    fn a_message_that_failed_says_of_its_command_that_it_was_not_executed() {
        for (outcome, answer, expected) in [
            (
                Outcome::NotExecuted,
                "-CLUSTERDOWN shard 1 has lost it; the command was not executed\r\n",
                "-CLUSTERDOWN shard 1 has lost it; the command was not executed\r\n",
            ),
            (
                Outcome::Unknown,
                "-ERR no answer came for 15 s; whether the command took effect is not known\r\n",
                "-TRYAGAIN no part: no answer came for 15 s; the command was not executed\r\n",
            ),
            (
                Outcome::Executed,
                "-ERR it is large; ask for less; the command was executed\r\n",
                "-TRYAGAIN no part: it is large; ask for less; the command was not executed\r\n",
            ),
            (
                Outcome::Executed,
                "-ERR odd\r\n",
                "-TRYAGAIN no part: odd; the command was not executed\r\n",
            ),
        ] {
            let answer = ServiceAnswer::borrowed(outcome, answer.as_bytes());
            let shown = String::from_utf8(as_not_executed(&answer, "no part")).unwrap();
            assert_eq!(shown, expected);
        }
    }
}
