//! Why a command has no answer, and what became of it.

use super::PATIENCE;
use amcast_core::{Gid, Outcome, Span};
use std::fmt;

/// Why a job has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoAnswer {
    /// The gateway has too much to do; the command was not taken.
    Busy,
    /// The command is larger than the protocol takes, in bytes.
    TooLarge(usize),
    /// It is for no group, or for one that the cluster does not have; how many it has.
    NoShard(usize),
    /// It is for several groups, and no ring of the cluster is for all of them.
    Several,
    /// There was no room for the command until its patience was over; it was never sent.
    Unsent,
    /// The other nodes refuse the gateway's own node, and others may not be given its commands; it was never sent.
    Refused,
    /// A group of its destinations has lost its majority; it was never sent.
    Down(Gid),
    /// The gateway has stopped, or stops; it was never sent.
    Closed,
    /// It was sent, and no answer came in time.
    TimedOut,
    /// It was sent, and a group of its destinations has lost its majority since.
    Cut(Gid),
    /// It was sent, and the gateway stops.
    Stopped,
    /// It has an answer that is larger than is sent.
    AnswerTooLarge {
        /// The command's outcome.
        outcome: Outcome,
        /// Bytes of the answer.
        bytes: u64,
        /// Bytes that an answer may have.
        most: u64,
    },
}

impl NoAnswer {
    /// The command's outcome.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Busy
            | Self::TooLarge(_)
            | Self::NoShard(_)
            | Self::Several
            | Self::Unsent
            | Self::Refused
            | Self::Down(_)
            | Self::Closed => Outcome::NotExecuted,
            Self::TimedOut | Self::Cut(_) | Self::Stopped => Outcome::Unknown,
            Self::AnswerTooLarge { outcome, .. } => outcome,
        }
    }
}

impl NoAnswer {
    /// Why there is none, without what became of the command.
    pub fn reason(self) -> String {
        match self {
            Self::Busy => "too many commands are open".to_string(),
            // The caller counts only its own bytes, and names the limit on those.
            Self::TooLarge(most) => {
                format!("the command is larger than the limit of {most} bytes of a message")
            }
            Self::NoShard(shards) => {
                format!("the command names no shard, or one beyond the {shards} of this cluster")
            }
            Self::Several => {
                "the command is for several shards, and no ring of this cluster is for all of them \
                 (rings = independent)"
                    .to_string()
            }
            Self::Unsent => {
                format!("no node that may be used took the command for {} s", seconds(PATIENCE))
            }
            Self::Refused => {
                "the other nodes of the cluster refuse the node of this gateway; `amcast status` says why".to_string()
            }
            Self::Down(g) => format!("shard {} has lost its majority of replicas", g.0),
            Self::Closed => "the cluster stops".to_string(),
            Self::TimedOut => format!("no answer came for {} s", seconds(PATIENCE)),
            Self::Cut(g) => format!("no answer came, and shard {} has lost its majority", g.0),
            Self::Stopped => "the cluster stops before the answer came".to_string(),
            Self::AnswerTooLarge { bytes, most, .. } => format!(
                "the answer has {bytes} bytes, more than the limit of {most} bytes; ask for less at \
                 a time"
            ),
        }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason(), self.outcome().words())
    }
}

const fn seconds(span: Span) -> u64 {
    span.0 / 1_000_000_000
}

impl std::error::Error for NoAnswer {}
