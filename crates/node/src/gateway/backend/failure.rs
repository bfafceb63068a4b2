//! Why a command has no answer, for the gateways of all services: each tells its clients in their protocol.

use amcast_core::Outcome;
use core::fmt;

/// The cause for which a command has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureCause {
    /// There was no room for it, or nobody here can serve it at the moment: it may be sent again soon.
    Busy,
    /// A shard has lost its majority of replicas, or the process stops.
    Unavailable,
    /// The disks of too many nodes are nearly full, and it would take more room.
    DiskFull,
    /// The cluster can never do it.
    Unsupported,
    /// Anything else.
    Other,
}

/// A command without an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandFailure {
    /// The command's outcome.
    pub outcome: Outcome,
    /// The cause.
    pub cause: FailureCause,
    /// The same for people, without the outcome of the command.
    pub why: String,
}

impl CommandFailure {
    /// A command that came to this outcome, and for this reason has no answer.
    pub fn new(outcome: Outcome, cause: FailureCause, why: impl Into<String>) -> Self {
        Self { outcome, cause, why: why.into() }
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.outcome.words())
    }
}

impl core::error::Error for CommandFailure {}
