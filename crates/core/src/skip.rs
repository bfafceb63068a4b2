//! The decision to skip a message: every replica of a cluster counts it as delivered, and none executes it.

use crate::id::{Gid, MsgId, Pid};
use core::fmt;
use core::str::FromStr;

/// A message that no replica executes, and one place of it in the order.
///
/// The place says of any state whether the message is in it: a group's replicas agree on its positions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SkipDecision {
    /// The message.
    pub msg: MsgId,
    /// One of its destinations.
    pub group: Gid,
    /// The message's position in that group's sequence.
    pub position: u64,
}

impl fmt::Display for SkipDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{}/{}", self.msg, self.group, self.position)
    }
}

/// A text is no [`SkipDecision`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotDecision;

impl fmt::Display for NotDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("give a message with its place, such as p1:4294967301@g0/17")
    }
}

impl core::error::Error for NotDecision {}

/// The message that `text` names, such as `p1:4294967301`; the `p` may be omitted.
pub fn parse_message(text: &str) -> Option<MsgId> {
    let (sender, seq) = text.split_once(':')?;
    let sender = sender.strip_prefix('p').unwrap_or(sender);
    Some(MsgId { sender: Pid(sender.parse().ok()?), seq: seq.parse().ok()? })
}

impl FromStr for SkipDecision {
    type Err = NotDecision;

    fn from_str(text: &str) -> Result<Self, NotDecision> {
        let parse = || {
            let (msg, place) = text.split_once('@')?;
            let (group, position) = place.strip_prefix('g')?.split_once('/')?;
            let group = Gid(group.parse().ok().filter(|g| *g < 64)?);
            Some(Self { msg: parse_message(msg)?, group, position: position.parse().ok()? })
        };
        parse().ok_or(NotDecision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn decision(seq: u64, position: u64) -> SkipDecision {
        SkipDecision { msg: MsgId { sender: Pid(2), seq }, group: Gid(1), position }
    }

    #[test]
    fn a_decision_is_written_and_read_back_and_nothing_else_is_one() {
        let one = decision(4_294_967_301, 17);
        assert_eq!(one.to_string(), "p2:4294967301@g1/17");
        assert_eq!(one.to_string().parse(), Ok(one));
        assert_eq!("2:4294967301@g1/17".parse(), Ok(one));
        for text in ["", "p2:5", "p2:5@g1", "p2:5@1/7", "p2@g1/7", "p2:5@g64/7", "p2:5@g1/7 "] {
            assert_eq!(text.parse::<SkipDecision>(), Err(NotDecision), "{text}");
        }
    }
}
