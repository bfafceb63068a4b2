//! Values of the agreement on a view: ballots, proposals, promises and decisions.

use alloc::vec::Vec;
use amcast_core::Pid;
use amcast_core::groupcast::{GroupMember, View};

/// A coordinator's attempt to get a view decided.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ViewBallot {
    /// Grows with each attempt.
    pub(crate) round: u32,
    /// The coordinator.
    pub(crate) pid: Pid,
}

impl Default for ViewBallot {
    /// Below all ballots.
    fn default() -> Self {
        Self { round: 0, pid: Pid(0) }
    }
}

/// Numbers of views, rounds and casts that nobody reaches by counting: what is beyond is nonsense.
pub(crate) const NONSENSE: u64 = 1 << 62;

/// The same of rounds.
const ROUND_NONSENSE: u32 = 1 << 30;

/// A proposed view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ViewProposal {
    /// Its members, the most senior first.
    pub(crate) members: Vec<GroupMember>,
    /// How many casts of each process, by pid, the view before ends with.
    pub(crate) cut: Vec<u64>,
}

/// A view that was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ViewDecision {
    pub(crate) view: View,
    /// How many casts of each process, by pid, the view before ends with.
    pub(crate) cut: Vec<u64>,
}

/// The status of a process that promises in the view that ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PromiserStatus {
    /// No member; it wants to join.
    Outsider,
    /// A member: whether it has the state, and how many casts of each process, by pid.
    Member { fit: bool, have: Vec<u64> },
}

/// Whether these can be members of a group of so many processes, and the cut of its view.
fn is_sound(members: &[GroupMember], cut: &[u64], processes: usize) -> bool {
    let once =
        |(at, m): (usize, &GroupMember)| members[..at].iter().all(|other| other.pid != m.pid);
    let sound = |m: &GroupMember| m.pid.index() < processes && m.life < NONSENSE;
    !members.is_empty()
        && cut.len() == processes
        && cut.iter().all(|&n| n < NONSENSE)
        && members.iter().all(sound)
        && members.iter().enumerate().all(once)
}

impl ViewBallot {
    pub(super) const fn is_sound(&self, processes: usize) -> bool {
        self.round < ROUND_NONSENSE && self.pid.index() < processes
    }
}

impl ViewProposal {
    pub(super) fn is_sound(&self, processes: usize) -> bool {
        is_sound(&self.members, &self.cut, processes)
    }
}

impl ViewDecision {
    /// Whether it can be the decision of a group of so many processes.
    pub(crate) fn is_sound(&self, processes: usize) -> bool {
        self.view.id < NONSENSE && is_sound(&self.view.members, &self.cut, processes)
    }
}
