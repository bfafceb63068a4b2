//! Why a request was not answered, in the codes and words of gRPC; the .proto file says what they
//! mean.

use crate::gateway::{CommandFailure, FailureCause};
use amcast_core::{Gid, Outcome};
use amcast_log::Rejection;
use amcast_log::client::{OUTCOME_EXECUTED, OUTCOME_KEY, OUTCOME_NOT_EXECUTED};
use amcast_smr::machine::Refusal;
use std::time::Duration;
use tonic::Status;
use tonic::metadata::MetadataValue;

/// A request that makes no sense.
pub(crate) fn invalid(why: impl Into<String>) -> Status {
    Status::invalid_argument(why)
}

/// The status of a request that the log did not execute, by its outcome. The metadata says the outcome: a refusal of the
/// nodes is the answer to all sendings of a request, and one of a gateway alone is not.
pub(crate) fn not_done(why: Rejection, outcome: Outcome) -> Status {
    let mut status = rejected(why, outcome);
    let words = match outcome {
        Outcome::Executed => OUTCOME_EXECUTED,
        Outcome::NotExecuted => OUTCOME_NOT_EXECUTED,
        Outcome::Unknown => return status,
    };
    status.metadata_mut().insert(OUTCOME_KEY, MetadataValue::from_static(words));
    status
}

fn rejected(why: Rejection, outcome: Outcome) -> Status {
    match why {
        Rejection::Full { most, .. } => Status::resource_exhausted(format!(
            "the logs of a shard would hold more than the limit of {most} bytes; nothing was appended: \
             trim or delete logs, and append under a new number"
        )),
        Rejection::TooMany { most, .. } => Status::resource_exhausted(format!(
            "the names of a shard's logs, and what says where their values lie, would take more than the limit of \
             {most} bytes of memory; nothing was appended: delete logs, or trim long ones, and append under a \
             new number"
        )),
        Rejection::Unknown { .. } => {
            Status::not_found("no log has this name; the first append to it makes it")
        }
        Rejection::Gone { first } => Status::out_of_range(format!(
            "the log was trimmed: {first} is the first position that is left"
        )),
        Rejection::Malformed => Status::internal("the gateway sent what is no command of the log"),
        Rejection::Refused(why) => refused(why, outcome),
    }
}

/// The status of a request that the replicas refused. The words are those of the outcome, for any
/// reason.
fn refused(why: Refusal, outcome: Outcome) -> Status {
    let words = match outcome {
        Outcome::Executed => "it took effect",
        Outcome::NotExecuted => "it took no effect",
        Outcome::Unknown => "whether the request took effect is not known",
    };
    match why {
        Refusal::Stale { .. } | Refusal::Ahead { .. } => Status::failed_precondition(format!(
            "{words}: it was first sent so long ago that this may be forgotten"
        )),
        Refusal::NoRoom | Refusal::Incomplete => Status::internal(format!(
            "the gateway sent a request in parts, which the log has not; {words}"
        )),
        Refusal::Forgotten { .. } | Refusal::Window => Status::failed_precondition(format!(
            "{words}: 1024 later ones of its session were sent, or its answer is not kept any more"
        )),
        Refusal::Skipped => Status::aborted(format!(
            "all replicas skip this request by decision of those who run the cluster; {words}"
        )),
    }
}

/// The way in which a command without an answer can be retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RetryToken {
    /// It changes nothing.
    Harmless,
    /// The client gave it a session.
    Named,
    /// It has a session of the gateway's own.
    Nameless,
}

/// A command that has no answer.
pub(crate) fn unanswered(failure: &CommandFailure, again: RetryToken) -> Status {
    let why = failure.to_string();
    match (failure.outcome, again) {
        (Outcome::NotExecuted, _) if failure.cause == FailureCause::DiskFull => {
            Status::resource_exhausted(why)
        }
        (Outcome::NotExecuted, _) if failure.cause == FailureCause::Unsupported => {
            Status::unimplemented(why)
        }
        (Outcome::NotExecuted, _) => {
            Status::unavailable(format!("{why}; send it again, here or elsewhere"))
        }
        (Outcome::Executed, _) => Status::unknown(why),
        (Outcome::Unknown, RetryToken::Harmless) => {
            Status::unavailable(format!("{why}; it changes nothing: send it again"))
        }
        (Outcome::Unknown, RetryToken::Named) => Status::deadline_exceeded(format!(
            "{why}; send it again with the same session and number: it takes effect once"
        )),
        (Outcome::Unknown, RetryToken::Nameless) => Status::deadline_exceeded(format!(
            "{why}; to be able to find out, give a session next time"
        )),
    }
}

/// A stream that ends because its log was deleted.
pub(crate) fn deleted() -> Status {
    Status::not_found(
        "the log was deleted; a new one may have its name, which begins at position 0",
    )
}

/// A stream that ends because the gateway does; `position` is the next one that it would have given.
pub(crate) fn parting(position: u64) -> Status {
    Status::unavailable(format!(
        "this node stops serving; continue from position {position}, here or elsewhere"
    ))
}

/// A stream that ends because its shard does not answer its gateway; `position` is the next one that it would have given.
pub(crate) fn silent(shard: Gid, patience: Duration, position: u64) -> Status {
    Status::unavailable(format!(
        "shard {} has not answered this gateway for {} s; continue from position {position}, here or elsewhere",
        shard.0,
        patience.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    /// A refusal of the replicas, with the code and the outcome that a client receives.
    #[test]
    fn what_was_refused_has_the_words_of_its_outcome() {
        let all = [
            (Refusal::Stale { now_ms: 1 }, Code::FailedPrecondition, Outcome::Unknown),
            (Refusal::Window, Code::FailedPrecondition, Outcome::Unknown),
            (
                Refusal::Forgotten { outcome: Outcome::Executed },
                Code::FailedPrecondition,
                Outcome::Executed,
            ),
            (Refusal::NoRoom, Code::Internal, Outcome::NotExecuted),
            (Refusal::Skipped, Code::Aborted, Outcome::NotExecuted),
        ];
        for (why, code, outcome) in all {
            assert_eq!(why.outcome(), outcome);
            let status = not_done(Rejection::Refused(why), outcome);
            assert_eq!(status.code(), code, "{status}");
            let told = status.metadata().get(OUTCOME_KEY).map(|told| told.to_str().unwrap());
            let expected = match outcome {
                Outcome::Executed => Some(OUTCOME_EXECUTED),
                Outcome::NotExecuted => Some(OUTCOME_NOT_EXECUTED),
                Outcome::Unknown => None,
            };
            assert_eq!(told, expected, "{status}");
            for (words, of) in [
                ("it took effect", Outcome::Executed),
                ("it took no effect", Outcome::NotExecuted),
                ("took effect is not known", Outcome::Unknown),
            ] {
                assert_eq!(status.message().contains(words), of == outcome, "{status}");
            }
        }
    }

    #[test]
    fn a_request_without_an_answer_has_the_code_of_its_outcome() {
        let code = |outcome, cause, again| {
            unanswered(&CommandFailure::new(outcome, cause, "x"), again).code()
        };
        let (other, full) = (FailureCause::Other, FailureCause::DiskFull);
        assert_eq!(code(Outcome::NotExecuted, other, RetryToken::Nameless), Code::Unavailable);
        assert_eq!(code(Outcome::NotExecuted, full, RetryToken::Nameless), Code::ResourceExhausted);
        let never = FailureCause::Unsupported;
        assert_eq!(code(Outcome::NotExecuted, never, RetryToken::Harmless), Code::Unimplemented);
        assert_eq!(code(Outcome::Executed, other, RetryToken::Named), Code::Unknown);
        assert_eq!(code(Outcome::Unknown, other, RetryToken::Harmless), Code::Unavailable);
        assert_eq!(code(Outcome::Unknown, other, RetryToken::Named), Code::DeadlineExceeded);
    }
}
