//! Names of processes, groups and messages.

use core::fmt;

/// A process of the cluster (the papers' `p`, `q`): a dense index that [`crate::ClusterShape`] names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

impl Pid {
    /// The index as an array position.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// A group of replicas (the papers' `g`, `h`; a shard of a service): 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub u8);

impl Gid {
    /// The index as an array position.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of groups: the destinations of a message (the papers' `m.dst`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupSet(pub u64);

impl GroupSet {
    /// No group.
    pub const EMPTY: Self = Self(0);

    /// The set of one group.
    pub const fn one(g: Gid) -> Self {
        Self(1 << g.0)
    }

    /// The first `n` groups. `n` is at most 64.
    pub const fn first(n: usize) -> Self {
        if n >= 64 { Self(u64::MAX) } else { Self((1 << n) - 1) }
    }

    /// Whether `g` is in the set.
    pub const fn contains(self, g: Gid) -> bool {
        self.0 >> g.0 & 1 == 1
    }

    /// This set and `g`.
    #[must_use]
    pub const fn with(self, g: Gid) -> Self {
        Self(self.0 | 1 << g.0)
    }

    /// The groups in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The groups in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every group of this set is in `other`.
    pub const fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// How many groups.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lowest group of the set, if any.
    pub const fn lowest(self) -> Option<Gid> {
        if self.0 == 0 { None } else { Some(Gid(self.0.trailing_zeros() as u8)) }
    }

    /// The groups in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Gid> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let g = GroupSet(rest).lowest()?;
            rest &= rest - 1;
            Some(g)
        })
    }
}

impl FromIterator<Gid> for GroupSet {
    fn from_iter<I: IntoIterator<Item = Gid>>(iter: I) -> Self {
        iter.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for GroupSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The unique, nonnull identifier of a message (the papers' `m.id`): its sender and its number
/// among the sender's messages, from 1. A sender that restarts continues with a higher number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MsgId {
    /// The process that multicast the message.
    pub sender: Pid,
    /// The sender's number for it; only grows.
    pub seq: u64,
}

impl fmt::Debug for MsgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}", self.sender, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_set_lists_what_was_put_in_in_order() {
        let set: GroupSet = [Gid(63), Gid(0), Gid(7)].into_iter().collect();
        assert!(set.iter().eq([Gid(0), Gid(7), Gid(63)]));
        assert_eq!((set.len(), set.lowest()), (3, Some(Gid(0))));
        assert!(GroupSet::one(Gid(7)).within(set) && !set.within(GroupSet::first(63)));
        assert!(set.within(GroupSet::first(64)));
        assert!(GroupSet::EMPTY.is_empty() && GroupSet::EMPTY.lowest().is_none());
    }
}
