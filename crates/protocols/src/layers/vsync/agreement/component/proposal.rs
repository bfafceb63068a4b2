//! Values of the agreement of one component: the answers of its processes, and the view that its coordinator proposes.

use super::super::{NONSENSE, ViewDecision};
use alloc::vec::Vec;
use amcast_core::Pid;
use amcast_core::groupcast::{Component, GroupMember, View, ViewName};

/// The state of a process that takes in no more casts of its view, as it reports it to a coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ComponentStatus {
    /// The number of its view.
    pub(crate) view: u64,
    /// The processes that it hears, itself among them, a bit each.
    pub(crate) hears: u32,
    /// How many casts of each process of its view it has, by pid.
    pub(crate) have: Vec<u64>,
}

/// The end of one of the views from which members come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ComponentCut {
    /// The number of the view.
    pub(crate) view: u64,
    /// How many casts of each process it ends with, by pid: the most that any of the members has that come from it.
    pub(crate) cut: Vec<u64>,
    /// By pid: a member that has as many.
    pub(crate) holders: Vec<Pid>,
}

/// A view that the coordinator of a component installs, with the ends of the views before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ComponentProposal {
    /// The number of its name.
    pub(crate) name: u64,
    /// Its members, by pid.
    pub(crate) members: Vec<GroupMember>,
    /// The number of the view from which each comes.
    pub(crate) origins: Vec<u64>,
    /// The end of each of these views, once.
    pub(crate) cuts: Vec<ComponentCut>,
}

/// Whether this can be the number of a view's name.
pub(super) const fn is_name(number: u64) -> bool {
    // Behind the last round there is no next one.
    number < NONSENSE && ViewName::of(number).round < ViewName::ROUND_MAX
}

impl ComponentStatus {
    pub(super) fn is_sound(&self, processes: usize) -> bool {
        is_name(self.view)
            && self.have.len() == processes
            && self.have.iter().all(|&have| have < NONSENSE)
    }
}

impl ComponentCut {
    fn is_sound(&self, processes: usize) -> bool {
        self.cut.len() == processes
            && self.holders.len() == processes
            && self.cut.iter().all(|&n| n < NONSENSE)
            && self.holders.iter().all(|holder| holder.index() < processes)
    }
}

impl ComponentProposal {
    pub(super) fn is_sound(&self, processes: usize) -> bool {
        let ordered = self.members.windows(2).all(|pair| pair[0].pid < pair[1].pid);
        let known = |m: &GroupMember| m.pid.index() < processes && m.life < NONSENSE;
        let has_cut = |origin: &u64| self.cuts.iter().any(|cut| cut.view == *origin);
        is_name(self.name)
            && !self.members.is_empty()
            && ordered
            && self.members.iter().all(known)
            && self.origins.len() == self.members.len()
            && self.origins.iter().all(|origin| *origin < self.name && has_cut(origin))
            && self.cuts.iter().all(|cut| cut.is_sound(processes))
    }

    /// Whether it names `member`, as one that comes from the view `origin`.
    pub(crate) fn names(&self, member: GroupMember, origin: u64) -> bool {
        let mut both = self.members.iter().zip(&self.origins);
        both.any(|(m, from)| *m == member && *from == origin)
    }

    /// Whether it names `member`.
    pub(super) fn has(&self, member: GroupMember) -> bool {
        self.members.contains(&member)
    }

    /// The end of a view.
    pub(super) fn end_of(&self, view: u64) -> Option<&ComponentCut> {
        self.cuts.iter().find(|cut| cut.view == view)
    }

    /// The view, and the end of the view `before`, for a member that comes from there.
    pub(super) fn decision(&self, before: u64, processes: usize) -> ViewDecision {
        let component = Component {
            origins: self.origins.clone(),
            primary: self.members.len() > processes / 2,
        };
        let view =
            View { component: Some(component), ..View::new(self.name, self.members.clone()) };
        let end = self.end_of(before).map(|end| end.cut.clone());
        ViewDecision { view, cut: end.unwrap_or_else(|| alloc::vec![0; processes]) }
    }
}

/// The ends of the views from which these members come with these answers.
pub(super) fn ends<'a>(
    answers: impl Iterator<Item = (GroupMember, &'a ComponentStatus)>,
) -> Vec<ComponentCut> {
    let mut cuts: Vec<ComponentCut> = Vec::new();
    for (member, ComponentStatus { view, have, .. }) in answers {
        let Some(end) = cuts.iter_mut().find(|cut| cut.view == *view) else {
            let holders = alloc::vec![member.pid; have.len()];
            cuts.push(ComponentCut { view: *view, cut: have.clone(), holders });
            continue;
        };
        for (sender, &has) in have.iter().enumerate() {
            if has > end.cut[sender] {
                (end.cut[sender], end.holders[sender]) = (has, member.pid);
            }
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(pid: u32) -> GroupMember {
        GroupMember { pid: Pid(pid), life: 0 }
    }

    #[test]
    fn each_view_ends_with_the_most_that_any_member_has_that_comes_from_it() {
        let status = |view, have: [u64; 3]| ComponentStatus { view, hears: 7, have: have.to_vec() };
        let answers = [status(4, [2, 0, 1]), status(9, [5, 5, 5]), status(4, [1, 3, 1])];
        let members = (0..3).map(member);
        let cuts = ends(members.clone().zip(&answers));
        let first = ComponentCut {
            view: 4,
            cut: alloc::vec![2, 3, 1],
            holders: alloc::vec![Pid(0), Pid(2), Pid(0)],
        };
        assert_eq!((cuts.len(), &cuts[0], &cuts[1].cut[..]), (2, &first, &[5, 5, 5][..]));
        let proposal = ComponentProposal {
            name: 11,
            members: members.collect(),
            origins: alloc::vec![4, 9, 4],
            cuts,
        };
        assert!(proposal.is_sound(3) && !proposal.is_sound(2));
        assert!(proposal.names(member(2), 4) && !proposal.names(member(2), 9));
        let ViewDecision { view, cut } = proposal.decision(4, 3);
        assert_eq!((view.id, view.is_primary(), cut), (11, true, alloc::vec![2, 3, 1]));
        let mut elsewhere = proposal.clone();
        elsewhere.cuts[0].holders[1] = Pid(999);
        assert!(!elsewhere.is_sound(3), "a holder that is no process");
        let stale = ComponentProposal { name: 9, ..proposal.clone() };
        assert!(!stale.is_sound(3), "a member was in a view of that name before");
        let mut twice = proposal;
        twice.members[1] = member(0);
        assert!(!twice.is_sound(3));
    }
}
