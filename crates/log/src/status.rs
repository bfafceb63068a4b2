//! Why a request was not answered, in the codes and words of gRPC; the .proto file says what they
//! mean.

use crate::backend::{Effect, Unanswered};
use amcast_services::log::Why;
use amcast_services::machine::Refusal;
use tonic::Status;

/// A request that makes no sense.
pub(crate) fn invalid(why: impl Into<String>) -> Status {
    Status::invalid_argument(why)
}

/// What the log did not do.
pub(crate) fn not_done(why: Why) -> Status {
    match why {
        Why::Full { most, .. } => Status::resource_exhausted(format!(
            "the logs of a shard would hold more than the limit of {most} bytes; nothing was appended: \
             trim or delete logs, and append under a new number"
        )),
        Why::TooMany { most, .. } => Status::resource_exhausted(format!(
            "the names of a shard's logs, and what says where their values lie, would take more than the limit of \
             {most} bytes of memory; nothing was appended: delete logs, or trim long ones, and append under a \
             new number"
        )),
        Why::Unknown { .. } => {
            Status::not_found("no log has this name; the first append to it makes it")
        }
        Why::Gone { first } => Status::out_of_range(format!(
            "the log was trimmed: {first} is the first position that is left"
        )),
        Why::Malformed => Status::internal("the front sent what is no command of the log"),
        Why::Refused(Refusal::Stale { .. } | Refusal::Ahead { .. }) => Status::failed_precondition(
            "the request was first sent so long ago that whether it took effect is not known",
        ),
        Why::Refused(Refusal::NoRoom | Refusal::Incomplete) => {
            Status::internal("the front sent a request in parts, which the log has not")
        }
        Why::Refused(Refusal::Forgotten | Refusal::Window) => Status::failed_precondition(
            "whether the request took effect is not known: 1024 later ones of its session were sent, \
             or its answer is not kept any more",
        ),
        Why::Refused(Refusal::Skipped) => Status::aborted(
            "all replicas skip this request by decision of those who run the cluster; it took no effect",
        ),
    }
}

/// What a command without an answer can be asked for again by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// It changes nothing.
    Harmless,
    /// The client gave it a session.
    Named,
    /// It has a session of the front's own.
    Nameless,
}

/// A command that has no answer.
pub(crate) fn unanswered(Unanswered { effect, why }: Unanswered, again: Again) -> Status {
    match (effect, again) {
        (Effect::None, _) => {
            Status::unavailable(format!("{why}; send it again, here or elsewhere"))
        }
        (Effect::Whole, _) => Status::unknown(why),
        (Effect::Unknown, Again::Harmless) => {
            Status::unavailable(format!("{why}; it changes nothing: send it again"))
        }
        (Effect::Unknown, Again::Named) => Status::deadline_exceeded(format!(
            "{why}; send it again with the same session and number: it takes effect once"
        )),
        (Effect::Unknown, Again::Nameless) => Status::deadline_exceeded(format!(
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

/// A stream that ends because the front does; `position` is the next one that it would have given.
pub(crate) fn parting(position: u64) -> Status {
    Status::unavailable(format!(
        "this node stops serving; go on from position {position}, here or elsewhere"
    ))
}
