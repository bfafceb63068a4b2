//! The ring of one round: the acceptors that vote, and the way of the votes (phase 2B).
//!
//! ```text
//! first ----> second ----> ... ----> coordinator       a majority of the configured processes
//! ```
//!
//! A vote names the last value of a sequence: an acceptor is handed the values of a round in the order of instances and
//! without a gap, so who has one has all earlier ones.

use alloc::vec::Vec;
use amcast_core::Pid;

/// One member's place in the ring of a round, and the votes that have reached it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct VoteRing {
    /// The acceptors in the order of votes; the last one is the coordinator. Empty where no majority is there.
    acceptors: Vec<Pid>,
    /// The place of this member among them, if it is one.
    place: Option<usize>,
    /// Up to this instance all acceptors before this one have voted.
    before: u64,
    /// Up to this instance this acceptor has voted, too.
    voted: u64,
}

impl VoteRing {
    /// The ring among the members of a view, the most senior first, where so many make a majority of all configured
    /// processes: the most senior members, and the coordinator, which is the first of them, as the last.
    pub(super) fn new(me: Pid, members: impl Iterator<Item = Pid>, majority: usize) -> Self {
        let mut acceptors: Vec<Pid> = members.take(majority).collect();
        if acceptors.len() < majority {
            return Self::default();
        }
        acceptors.rotate_left(1);
        let place = acceptors.iter().position(|&p| p == me);
        let before = if place == Some(0) { u64::MAX } else { 0 };
        Self { acceptors, place, before, voted: 0 }
    }

    /// The acceptor to which this one sends its votes; none at the coordinator, and outside of the ring.
    pub(super) fn successor(&self) -> Option<Pid> {
        self.acceptors.get(self.place? + 1).copied()
    }

    /// Whether this acceptor passes on the votes of others: it is neither the first nor the last of them.
    pub(super) fn passes_on(&self) -> bool {
        self.place != Some(0) && self.successor().is_some()
    }

    /// An acceptor reports that it and all before it have voted up to this instance.
    ///
    /// # Errors
    /// When the acceptor is not the one before this in the ring.
    pub(super) fn hear(&mut self, from: Pid, instance: u64) -> Result<(), &'static str> {
        let before = self.place.and_then(|place| self.acceptors.get(place.checked_sub(1)?));
        if before != Some(&from) {
            return Err("a vote that does not come along the ring");
        }
        self.before = self.before.max(instance);
        Ok(())
    }

    /// Whether [`VoteRing::vote`] has a vote.
    pub(super) fn can_vote(&self, held: u64) -> bool {
        self.place.is_some() && self.before.min(held) > self.voted
    }

    /// The vote of this acceptor, which holds all values up to the instance `held`: none for a value that it does not hold,
    /// and none twice. At the coordinator the vote is the decision.
    pub(super) fn vote(&mut self, held: u64) -> Option<u64> {
        if !self.can_vote(held) {
            return None;
        }
        self.voted = self.before.min(held);
        Some(self.voted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(me: u32, members: &[u32], majority: usize) -> VoteRing {
        VoteRing::new(Pid(me), members.iter().copied().map(Pid), majority)
    }

    #[test]
    fn the_ring_is_a_majority_of_the_most_senior_and_ends_at_the_coordinator() {
        let way = |members: &[u32], majority| {
            let of = |&me: &u32| ring(me, members, majority).successor().map(|p| p.0);
            members.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(way(&[0, 1, 2, 3, 4], 3), [None, Some(2), Some(0), None, None]);
        assert_eq!(way(&[4, 1, 2], 3), [None, Some(2), Some(4)], "a view of a majority alone");
        assert_eq!(way(&[2, 0, 1], 2), [None, Some(2), None]);
        assert_eq!(way(&[0], 1), [None]);
        assert_eq!(way(&[0, 1], 3), [None, None], "less than a majority");
    }

    #[test]
    fn an_acceptor_votes_once_for_what_it_holds_and_those_before_it_voted_for() {
        let mut first = ring(1, &[0, 1, 2, 3, 4], 3);
        assert_eq!([first.vote(0), first.vote(2), first.vote(2)], [None, Some(2), None]);
        let mut second = ring(2, &[0, 1, 2, 3, 4], 3);
        assert_eq!(second.vote(3), None, "the first has not voted");
        assert_eq!(second.hear(Pid(1), 2), Ok(()));
        assert_eq!([second.vote(1), second.vote(3), second.vote(4)], [Some(1), Some(2), None]);
        assert_eq!(second.hear(Pid(1), 1), Ok(()), "an old vote changes nothing");
        assert_eq!(second.vote(4), None);
        let mut last = ring(0, &[0, 1, 2, 3, 4], 3);
        assert!(last.hear(Pid(1), 2).is_err(), "it skips one");
        assert_eq!(last.hear(Pid(2), 2), Ok(()));
        assert_eq!(last.vote(9), Some(2));
    }

    #[test]
    fn a_coordinator_alone_decides_and_a_member_outside_or_without_a_majority_does_not() {
        let mut alone = ring(0, &[0], 1);
        assert_eq!([alone.vote(1), alone.vote(1)], [Some(1), None]);
        let mut outside = ring(4, &[0, 1, 2, 3, 4], 3);
        assert!(outside.vote(1).is_none() && outside.hear(Pid(2), 1).is_err());
        let mut few = ring(1, &[0, 1], 3);
        assert!(few.vote(1).is_none() && few.hear(Pid(0), 1).is_err());
    }
}
