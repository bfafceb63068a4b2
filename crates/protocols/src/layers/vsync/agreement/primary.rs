//! The rules of the primary component: who changes the view, which members the next one may name, and which group
//! makes progress. Each rule reads the membership as this process knows it.
//!
//! # Dead links
//! A view names only members that hear each other, as far as a majority with the state does. A link may be dead in one
//! direction while all else works. Then one member starves, its acknowledgements
//! stop, and windows of the others fill, although every process is heard by somebody and suspected by nobody
//! who could do something about it. So each process reports which peers it has not heard
//! for long (`membership/links.rs`), and the coordinator judges its proposals by these
//! reports: of two members of which one does not hear the other it excludes one, and it takes in nobody that
//! a member does not hear, or that does not hear a member. Once the link works again the reports end, and the
//! excluded process joins as any other.
//!
//! ```text
//! view [C, A, B]            B reports to C: A is unheard     C proposes [C, A]: decided by C and A
//! A -x-> B, all else works  (B is the junior end)            B joins again, and reports: A is unheard
//!                                                            C takes it in when the report has ended
//! ```
//!
//! # Why it is safe
//! A report is one more reason to propose a view, as a suspicion is. Safety never depends on why a view is
//! proposed: a majority of voters decides it, and its cut holds what each of them has.
//!
//! # The coordinator
//! The most senior member that is in a majority of processes that hear each other, and not simply the most
//! senior one that is heard: a member that hears nobody, or that few hear, gets no majority of promises. A
//! coordinator that learns too late that it is in no such majority proposes nothing of its own, and the next one
//! takes over.
//!
//! # Excluded members
//! Of the two ends of a dead link the one without the state, then the one with more dead links, then the
//! junior one; another one if the rest would not hold a majority that hears each other. The coordinator itself
//! stays, however many dead links it has: a member that does not hear its `Prepare` does not promise, and so it
//! is not in the next view. Nobody goes if fewer than a majority would stay, or fewer than a majority with the
//! state: then the view stays as it is, as it would without reports.
//!
//! # Limit
//! A coordinator that suspects others proposes before anyone reports dead links between the rest. That view may
//! exclude so many that those who hear each other are no majority with the state any more. Then the group continues
//! later, when each copy of the state has been silent for long, or when the links work again.

use crate::layers::vsync::ViewQuorum;
use crate::layers::vsync::membership::GroupMembership;
use alloc::vec::Vec;
use amcast_core::Pid;
use amcast_core::groupcast::GroupMember;

/// Whether so many bits are set.
const fn holds(bits: u32, least: usize) -> bool {
    bits.count_ones() as usize >= least
}

/// Whether at least `least` of these processes are linked with each other; `links` has the links of each by
/// pid, the same in both directions.
///
/// Of a process with two dead links or more it tries the others without it, and those that it is linked with:
/// of 32 processes, 15 of which may go, it looks at a few thousand sets at most.
pub(crate) fn holds_linked(all: u32, links: &[u32], least: usize) -> bool {
    if !holds(all, least) {
        return false;
    }
    let dead = |p: &usize| (all & !links[*p]).count_ones() as usize;
    let one_of = || (0..links.len()).filter(|p| all >> p & 1 == 1);
    let Some(worst) = one_of().max_by_key(dead) else { return true };
    match dead(&worst) {
        0 => true,
        // The dead links are apart, and one end of each goes.
        1 => all.count_ones() as usize - one_of().map(|p| dead(&p)).sum::<usize>() / 2 >= least,
        _ => {
            holds_linked(all & !(1 << worst), links, least)
                || holds_linked(all & links[worst], links, least)
        }
    }
}

/// The rules of the primary component, on the membership as this process knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrimaryComponent<'a>(pub(crate) &'a GroupMembership);

impl PrimaryComponent<'_> {
    /// How many processes a change of views takes, at least.
    pub(crate) const fn quorum(self) -> usize {
        match self.0.settings.quorum {
            ViewQuorum::Majority => self.0.settings.processes / 2 + 1,
            // Besides, no member that lives may be missing.
            ViewQuorum::Survivors | ViewQuorum::Component => 1,
        }
    }

    /// How many members hold a cast that is handed over uniformly.
    pub(crate) const fn holders(self) -> usize {
        match self.0.settings.quorum {
            ViewQuorum::Majority => self.quorum(),
            ViewQuorum::Survivors | ViewQuorum::Component => self.0.members.len(),
        }
    }

    /// Whether this process hears a majority in its view: only then the group makes progress.
    pub(crate) fn is_primary(self) -> bool {
        let quorum = self.quorum();
        let works = self.0.view.members.iter().filter(|m| !self.0.failed(**m));
        works.take(quorum).count() == quorum
    }

    /// Whether a member of the view that works has the state, as far as is known.
    pub(super) fn shows_state(self, m: &GroupMember) -> bool {
        match m.pid == self.0.me() {
            true => self.0.is_fit(),
            false => self.0.peers.is_fit(m.pid) && !self.0.failed(*m),
        }
    }

    /// The member that changes the view: of those that seem to work the most senior one that is in a majority of
    /// processes that hear each other, as far as this process knows. None if there is none.
    ///
    /// Somebody always takes it on itself, where a majority hears each other. If this process names another
    /// member, it hears all of a majority that this one is in, and has its reports. So that member has them, too,
    /// and names itself, or one that is senior to it. That ends, since seniority is an order.
    pub(super) fn coordinator(self) -> Option<Pid> {
        let group = self.0;
        let heard = group.heard();
        if !holds(heard, self.quorum()) {
            return None;
        }
        let mut working = group.view.members.iter().filter(|m| !group.failed(**m)).map(|m| m.pid);
        if !group.has_reports() {
            return working.next();
        }
        let links = group.links();
        working.find(|p| holds_linked(links[p.index()] & heard, &links, self.quorum()))
    }

    /// Whether this process is in a majority of processes that hear each other, as far as it knows.
    pub(super) fn is_linked(self) -> bool {
        !self.0.has_reports() || {
            let links = self.0.links();
            let linked = links[self.0.me().index()] & self.0.heard();
            holds_linked(linked, &links, self.quorum())
        }
    }

    /// Drops members of which some other one is unheard, or the other way round, as far as a majority stays,
    /// with the state.
    pub(super) fn spare_unlinked(
        self,
        members: &mut Vec<GroupMember>,
        has_state: impl Fn(&GroupMember) -> bool,
    ) {
        if !self.0.has_reports() {
            return;
        }
        let links = self.0.links();
        let mut linked = members.clone();
        loop {
            let all = linked.iter().fold(0, |bits, m| bits | 1 << m.pid.0);
            let dead = |at: usize| (all & !links[linked[at].pid.index()]).count_ones();
            let may_go = |&at: &usize| {
                let without = all & !(1 << linked[at].pid.0);
                dead(at) > 0 && holds_linked(without, &links, self.quorum())
            };
            let parted = (0..linked.len()).filter(may_go);
            let goes = parted.max_by_key(|&at| (!has_state(&linked[at]), dead(at), at));
            let Some(at) = goes else { break };
            linked.remove(at);
        }
        let copies = |all: &[GroupMember]| all.iter().filter(|m| has_state(m)).count();
        if copies(&linked) >= self.quorum().min(copies(members)) {
            *members = linked;
        }
    }

    /// The members that work, in the order of seniority.
    fn working(self) -> Vec<GroupMember> {
        self.0.view.members.iter().copied().filter(|m| !self.0.failed(*m)).collect()
    }

    /// Whether the next view should be without some member because of dead links.
    pub(super) fn is_unlinked(self) -> bool {
        self.0.has_reports() && {
            let working = self.working();
            let mut linked = working.clone();
            self.spare_unlinked(&mut linked, |m| self.shows_state(m));
            linked.len() < working.len()
        }
    }

    /// Whether the next view may name a process that wants to join, as far as links are concerned.
    pub(super) fn may_link(self, joiner: GroupMember) -> bool {
        if !self.0.has_reports() {
            return true;
        }
        let mut members = self.working();
        members.push(joiner);
        self.spare_unlinked(&mut members, |m| *m != joiner && self.shows_state(m));
        members.contains(&joiner)
    }

    /// Whether the next view should be without some member because it leaves.
    pub(super) fn somebody_leaves(self) -> bool {
        let view = &self.0.view;
        view.members.iter().any(|m| self.0.requests.leaves(*m)) && {
            let mut members = view.members.clone();
            self.spare_leavers(&mut members, |m| self.shows_state(m));
            members.len() < view.members.len()
        }
    }

    /// Drops members that leave, the most senior first, as long as a quorum stays that has the state.
    pub(super) fn spare_leavers(
        self,
        members: &mut Vec<GroupMember>,
        has_state: impl Fn(&GroupMember) -> bool,
    ) {
        let mut copies = members.iter().filter(|m| has_state(m)).count();
        members.retain(|m| {
            let left = copies - usize::from(has_state(m));
            let goes = self.0.requests.leaves(*m) && left >= self.quorum();
            if goes {
                copies = left;
            }
            !goes
        });
    }

    /// Whether this process, which leaves, is among those whose leaving is granted, as far as it knows.
    pub(crate) fn grants_leaving(self) -> bool {
        let group = self.0;
        let me = group.myself();
        let has_state =
            |m: &GroupMember| *m == me || group.peers.is_fit(m.pid) && !group.failed(*m);
        let mut members = group.view.members.clone();
        self.spare_leavers(&mut members, has_state);
        !members.contains(&me)
    }

    /// Whether the group would continue, with the state, if this process failed, as far as it knows.
    pub(crate) fn can_spare_this(self) -> bool {
        let group = self.0;
        let has_state = |m: &&GroupMember| {
            m.pid != group.me() && group.peers.is_fit(m.pid) && !group.failed(**m)
        };
        group.view.members.iter().filter(has_state).count() >= self.quorum()
    }

    /// The life in which `p` wants to join, if it does and seems to live.
    pub(super) fn joins(self, p: Pid) -> Option<GroupMember> {
        let group = self.0;
        let life = group.requests.joins[p.index()].filter(|&life| life >= group.peers.life(p))?;
        let member = GroupMember { pid: p, life };
        (!group.suspects(p) && !group.view.members.contains(&member)).then_some(member)
    }
}
