//! The members of a cluster, and the tree that groups may be arranged in.

use crate::id::{Gid, GroupSet, Pid};
use crate::limits;
use alloc::vec::Vec;
use core::fmt;

/// The shape of a cluster: `groups` groups of `replicas` replicas each, and `clients` client
/// processes. Processes are numbered densely: the replicas of group 0, of group 1, .., then the
/// clients. Their names in histories are `g0/r1` and `c3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterShape {
    groups: u8,
    replicas: u8,
    clients: u16,
}

/// The role of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Replica number `rank` of group `group`.
    Replica {
        /// The group it belongs to.
        group: Gid,
        /// Its number within the group, from 0.
        rank: u8,
    },
    /// Client number `client`, in no group.
    Client {
        /// Its number among the clients, from 0.
        client: u16,
    },
}

/// Why a cluster's shape was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterError {
    /// The number of groups is not 1 to [`limits::GROUPS_MAX`].
    Groups(usize),
    /// The number of replicas is not 1 to [`limits::REPLICAS_MAX`].
    Replicas(usize),
    /// The number of clients is over [`limits::CLIENTS_MAX`].
    Clients(usize),
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Groups(n) => write!(f, "{n} groups: give 1 to {}", limits::GROUPS_MAX),
            Self::Replicas(n) => {
                write!(f, "{n} replicas in a group: give 1 to {}", limits::REPLICAS_MAX)
            }
            Self::Clients(n) => write!(f, "{n} clients: give at most {}", limits::CLIENTS_MAX),
        }
    }
}

impl core::error::Error for ClusterError {}

impl ClusterShape {
    /// A cluster of that shape.
    ///
    /// # Errors
    /// When a number is out of its limits.
    pub fn new(groups: usize, replicas: usize, clients: usize) -> Result<Self, ClusterError> {
        if !(1..=limits::GROUPS_MAX).contains(&groups) {
            return Err(ClusterError::Groups(groups));
        }
        if !(1..=limits::REPLICAS_MAX).contains(&replicas) {
            return Err(ClusterError::Replicas(replicas));
        }
        if clients > limits::CLIENTS_MAX {
            return Err(ClusterError::Clients(clients));
        }
        Ok(Self { groups: groups as u8, replicas: replicas as u8, clients: clients as u16 })
    }

    /// How many groups (`k`).
    pub const fn groups(&self) -> usize {
        self.groups as usize
    }

    /// How many replicas each group has (`n` = 2`f` + 1).
    pub const fn replicas(&self) -> usize {
        self.replicas as usize
    }

    /// How many client processes.
    pub const fn clients(&self) -> usize {
        self.clients as usize
    }

    /// How many replicas of a group are a quorum (`f` + 1).
    pub const fn quorum(&self) -> usize {
        self.replicas as usize / 2 + 1
    }

    /// How many other replicas of its group must answer a replica that lost its promises: so many
    /// that one of them is in every quorum that had its vote.
    pub const fn recovery_answers(&self) -> usize {
        self.replicas() - self.quorum() + 1
    }

    /// How many processes there are, clients included.
    pub const fn processes(&self) -> usize {
        self.groups() * self.replicas() + self.clients()
    }

    /// Replica `rank` of `group`.
    pub const fn replica(&self, group: Gid, rank: usize) -> Pid {
        assert!((group.0) < self.groups && rank < self.replicas as usize);
        Pid(group.0 as u32 * self.replicas as u32 + rank as u32)
    }

    /// Client number `client`.
    pub const fn client(&self, client: usize) -> Pid {
        assert!(client < self.clients as usize);
        Pid((self.groups() * self.replicas() + client) as u32)
    }

    /// The role of `pid`. Panics if it is not of this cluster.
    pub const fn role(&self, pid: Pid) -> Role {
        let servers = self.groups() * self.replicas();
        let i = pid.0 as usize;
        assert!(i < self.processes());
        if i < servers {
            let n = self.replicas as usize;
            Role::Replica { group: Gid((i / n) as u8), rank: (i % n) as u8 }
        } else {
            Role::Client { client: (i - servers) as u16 }
        }
    }

    /// Whether `pid` is of this cluster.
    pub const fn has(&self, pid: Pid) -> bool {
        (pid.0 as usize) < self.processes()
    }

    /// The group that `pid` is a replica of.
    pub const fn group_of(&self, pid: Pid) -> Option<Gid> {
        match self.role(pid) {
            Role::Replica { group, .. } => Some(group),
            Role::Client { .. } => None,
        }
    }

    /// The replicas of `group`, by rank.
    pub fn members(&self, group: Gid) -> impl Iterator<Item = Pid> + use<> {
        let (n, first) = (u32::from(self.replicas), self.replica(group, 0).0);
        (first..first + n).map(Pid)
    }

    /// Every process.
    pub fn pids(&self) -> impl Iterator<Item = Pid> + use<> {
        (0..self.processes() as u32).map(Pid)
    }

    /// All groups.
    pub const fn all_groups(&self) -> GroupSet {
        GroupSet::first(self.groups as usize)
    }

    /// The name of `pid` in histories and for people: `g0/r1` or `c3`.
    pub const fn name(&self, pid: Pid) -> ProcessLabel {
        ProcessLabel(self.role(pid))
    }
}

/// Prints the name of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessLabel(pub Role);

impl fmt::Display for ProcessLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Role::Replica { group, rank } => write!(f, "{group}/r{rank}"),
            Role::Client { client } => write!(f, "c{client}"),
        }
    }
}

/// A tree over the groups (the papers' overlay `T`): each group's parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlay {
    parents: Vec<Option<Gid>>,
    children: Vec<GroupSet>,
    /// The groups reachable from each group downwards, itself included (`reach`).
    reach: Vec<GroupSet>,
}

/// Why a list of parents is not a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverlayError {
    /// The list names another number of groups than the cluster has.
    Length {
        /// Entries in the list.
        listed: usize,
        /// Groups in the cluster.
        groups: usize,
    },
    /// Exactly one group must have no parent (-1).
    Roots(usize),
    /// This group's parent is not a group, or is the group itself.
    Parent(usize),
    /// This group is on a cycle, so the root does not reach it.
    Unreachable(usize),
}

impl fmt::Display for OverlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { listed, groups } => {
                write!(f, "the overlay lists {listed} parents for {groups} groups")
            }
            Self::Roots(n) => write!(f, "the overlay has {n} roots (-1): it needs exactly one"),
            Self::Parent(g) => write!(f, "the parent of group {g} is not another group"),
            Self::Unreachable(g) => {
                write!(f, "the root does not reach group {g}: there is a cycle")
            }
        }
    }
}

impl core::error::Error for OverlayError {}

/// As a list of parents, which [`Overlay::new`] takes.
impl fmt::Display for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, parent) in self.parents.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match parent {
                Some(parent) => write!(f, "{comma}{}", parent.0)?,
                None => write!(f, "{comma}-1")?,
            }
        }
        Ok(())
    }
}

impl Overlay {
    /// The tree with these parents, -1 for the root. [TRAM 8.1] gives the evaluation's trees as
    /// such lists.
    ///
    /// # Errors
    /// When the list is not one tree over `groups` groups.
    pub fn new(parents: &[i64], groups: usize) -> Result<Self, OverlayError> {
        if parents.len() != groups {
            return Err(OverlayError::Length { listed: parents.len(), groups });
        }
        let roots = parents.iter().filter(|&&p| p == -1).count();
        if roots != 1 {
            return Err(OverlayError::Roots(roots));
        }
        let mut links = Vec::with_capacity(groups);
        for (g, &p) in parents.iter().enumerate() {
            match p {
                -1 => links.push(None),
                p if p >= 0 && (p as usize) < groups && p as usize != g => {
                    links.push(Some(Gid(p as u8)));
                }
                _ => return Err(OverlayError::Parent(g)),
            }
        }
        let mut children = alloc::vec![GroupSet::EMPTY; groups];
        let mut reach: Vec<GroupSet> = (0..groups).map(|g| GroupSet::one(Gid(g as u8))).collect();
        for g in 0..groups {
            let me = Gid(g as u8);
            if let Some(p) = links[g] {
                children[p.index()] = children[p.index()].with(me);
            }
            let mut at = links[g];
            let mut steps = 0;
            while let Some(p) = at {
                steps += 1;
                if steps > groups {
                    return Err(OverlayError::Unreachable(g));
                }
                reach[p.index()] = reach[p.index()].with(me);
                at = links[p.index()];
            }
        }
        Ok(Self { parents: links, children, reach })
    }

    /// A shallow tree for `groups` groups: group 0 is the parent of all others.
    pub fn breadth(groups: usize) -> Self {
        let parents: Vec<i64> = (0..groups as i64).map(|g| if g == 0 { -1 } else { 0 }).collect();
        Self::new(&parents, groups).expect("a star is a tree")
    }

    /// A chain of `groups` groups.
    pub fn depth(groups: usize) -> Self {
        let parents: Vec<i64> = (0..groups as i64).map(|g| g - 1).collect();
        Self::new(&parents, groups).expect("a chain is a tree")
    }

    /// A binary tree of `groups` groups: for 8 groups the evaluation's `base`.
    pub fn base(groups: usize) -> Self {
        let parents: Vec<i64> = (0..groups as i64)
            .map(|g| match g {
                0 => -1,
                _ => g / 2,
            })
            .collect();
        Self::new(&parents, groups).expect("each parent comes before its children")
    }

    /// The tree as bytes: each group's parent, and 255 for the root's.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.parents.iter().map(|parent| parent.map_or(u8::MAX, |parent| parent.0))
    }

    /// The tree of [these bytes](Self::bytes).
    ///
    /// # Errors
    /// When they are not one tree over `groups` groups.
    pub fn of_bytes(bytes: &[u8], groups: usize) -> Result<Self, OverlayError> {
        let parent = |&p: &u8| if p == u8::MAX { -1 } else { i64::from(p) };
        let parents: Vec<i64> = bytes.iter().map(parent).collect();
        Self::new(&parents, groups)
    }

    /// How many groups.
    pub fn groups(&self) -> usize {
        self.parents.len()
    }

    /// The parent of `g` (`parent(g)`), none for the root.
    pub fn parent(&self, g: Gid) -> Option<Gid> {
        self.parents[g.index()]
    }

    /// The children of `g` (`children(g)`).
    pub fn children(&self, g: Gid) -> GroupSet {
        self.children[g.index()]
    }

    /// The groups reachable from `g` downwards, `g` included (`reach(g)`).
    pub fn reach(&self, g: Gid) -> GroupSet {
        self.reach[g.index()]
    }

    /// The lowest group that reaches all of `dst` (`lca`). `dst` must not be empty.
    pub fn lca(&self, dst: GroupSet) -> Gid {
        let mut g = dst.lowest().expect("a message has a destination");
        while !dst.within(self.reach(g)) {
            g = self.parent(g).expect("the root reaches every group");
        }
        g
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn processes_are_numbered_and_named() {
        let c = ClusterShape::new(2, 3, 2).unwrap();
        let names: Vec<_> = c.pids().map(|p| c.name(p).to_string()).collect();
        assert_eq!(names, ["g0/r0", "g0/r1", "g0/r2", "g1/r0", "g1/r1", "g1/r2", "c0", "c1"]);
        assert_eq!((c.client(1), c.replica(Gid(1), 2), c.quorum()), (Pid(7), Pid(5), 2));
        assert!(c.members(Gid(1)).eq([Pid(3), Pid(4), Pid(5)]));
        assert_eq!(ClusterShape::new(65, 3, 0), Err(ClusterError::Groups(65)));
    }

    #[test]
    fn base_is_the_evaluation_tree() {
        let given = Overlay::new(&[-1, 0, 1, 1, 2, 2, 3, 3], 8).unwrap();
        assert_eq!(given.to_string(), "-1,0,1,1,2,2,3,3");
        let bytes: Vec<u8> = given.bytes().collect();
        assert_eq!(bytes, [255, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(Overlay::of_bytes(&bytes, 8), Ok(given.clone()));
        assert_eq!(Overlay::of_bytes(&bytes[1..], 7), Err(OverlayError::Roots(0)));
        assert_eq!(Overlay::base(8), given);
        assert_eq!(given.lca(GroupSet::one(Gid(4)).with(Gid(5))), Gid(2));
        assert_eq!(given.lca(GroupSet::one(Gid(4)).with(Gid(6))), Gid(1));
        assert_eq!(given.lca(GroupSet::one(Gid(2)).with(Gid(4))), Gid(2));
        assert_eq!(given.reach(Gid(1)), GroupSet(0b1111_1110));
    }

    #[test]
    fn what_is_not_a_tree_is_refused() {
        assert_eq!(Overlay::new(&[-1, -1], 2), Err(OverlayError::Roots(2)));
        assert_eq!(Overlay::new(&[-1, 2, 1], 3), Err(OverlayError::Unreachable(1)));
        assert_eq!(Overlay::new(&[-1, 1], 2), Err(OverlayError::Parent(1)));
        assert_eq!(Overlay::new(&[-1], 2), Err(OverlayError::Length { listed: 1, groups: 2 }));
    }
}
