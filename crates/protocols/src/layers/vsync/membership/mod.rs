//! The membership of the group, as one process knows it: its own state, its view, and its peers. All other parts
//! of the layer read it.

mod links;
mod peers;

pub(crate) use links::LinkReports;
pub(crate) use peers::PeerStates;

use super::agreement::ViewDecision;
use super::packing::OutgoingPackets;
use super::{Dissemination, ViewQuorum, VsyncMutant, VsyncSettings};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use amcast_core::groupcast::{Component, GroupMember, View, ViewName};
use amcast_core::messages::Lane;
use amcast_core::{Pid, ProtocolEvent, Time};

/// The phase of this process towards its view.
///
/// ```text
/// Out --decided with this process--> Active --promised--> Blocked --decided--> Entering --has the cut--> Active
///  ^                                    |                    |                     |
///  '---------- decided without it ------+--------------------+---------------------'
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ViewPhase {
    /// In no view: it was excluded, or has just started again.
    Out,
    /// In its view, with normal operation.
    Active,
    /// It has promised to end its view.
    Blocked,
    /// It knows the next view and misses casts of the one before.
    Entering,
}

/// The stage of the application's state at this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AppState {
    /// It is missing, and this process does not know yet where it begins.
    Missing,
    /// The driver was asked for one that has reached this position.
    Needed(u64),
    /// It is in force.
    InForce,
}

/// How far this process is with leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaveProgress {
    /// It was not asked to.
    No,
    /// It was asked to; it announces it when all is sent, and again at this time.
    Asked { again: Time },
    /// It knows the view without it, and waits for the others until then.
    Gone { until: Time },
    /// It has said that it may stop.
    Done,
}

/// The lives of processes that asked for another view, by pid.
#[derive(Debug)]
pub(crate) struct ViewRequests {
    /// Those that want to join.
    pub(crate) joins: Vec<Option<u64>>,
    /// Those that have announced that they leave.
    pub(crate) leaves: Vec<Option<u64>>,
}

/// The signs of life of the members in the present view, by pid.
#[derive(Debug)]
pub(crate) struct ViewAttendance {
    /// Members that were heard of in this view.
    seen: Vec<bool>,
    /// Since when each member says that it is blocked.
    blocked: Vec<Option<Time>>,
}

/// The membership of the group, as this process knows it.
#[derive(Debug)]
pub(crate) struct GroupMembership {
    pub(crate) settings: VsyncSettings,
    pub(crate) now: Time,
    /// The life of this process.
    pub(crate) life: u64,
    pub(crate) phase: ViewPhase,
    pub(crate) app_state: AppState,
    pub(crate) leaving: LeaveProgress,
    /// The view it is in, or was in last.
    pub(crate) view: View,
    /// The members of `view`.
    pub(crate) members: Vec<Pid>,
    /// The last view that is known to be decided.
    pub(crate) decision: ViewDecision,
    pub(crate) attendance: ViewAttendance,
    pub(crate) peers: PeerStates,
    pub(crate) requests: ViewRequests,
    pub(crate) links: LinkReports,
    /// Whether the carrier has room for datagrams.
    pub(crate) has_room: bool,
}

impl ViewRequests {
    fn new(processes: usize) -> Self {
        Self { joins: alloc::vec![None; processes], leaves: alloc::vec![None; processes] }
    }

    /// These are members now: they have joined.
    fn forget_joined(&mut self, members: &[GroupMember]) {
        for member in members {
            let join = &mut self.joins[member.pid.index()];
            *join = join.filter(|&life| life > member.life);
        }
    }

    /// Whether nobody asked for anything.
    pub(crate) fn are_none(&self) -> bool {
        self.joins.iter().chain(&self.leaves).all(Option::is_none)
    }

    /// Whether a member has announced that it leaves.
    pub(crate) fn leaves(&self, member: GroupMember) -> bool {
        self.leaves[member.pid.index()] == Some(member.life)
    }
}

impl ViewAttendance {
    fn new(processes: usize) -> Self {
        Self { seen: alloc::vec![false; processes], blocked: alloc::vec![None; processes] }
    }

    /// A member shows that it is in the view and takes part in it. Says whether it is the first time.
    pub(crate) fn note_active(&mut self, p: Pid) -> bool {
        self.blocked[p.index()] = None;
        !self.note_seen(p)
    }

    /// A process shows that it is in the view. Says whether it had before.
    pub(crate) fn note_seen(&mut self, p: Pid) -> bool {
        core::mem::replace(&mut self.seen[p.index()], true)
    }

    /// A member lives and does not take part in the view.
    pub(crate) fn note_blocked(&mut self, p: Pid, now: Time) {
        self.blocked[p.index()].get_or_insert(now);
    }

    pub(crate) fn has_seen(&self, p: Pid) -> bool {
        self.seen[p.index()]
    }

    /// Whether any member says that it is blocked.
    pub(crate) fn is_any_blocked(&self) -> bool {
        self.blocked.iter().any(Option::is_some)
    }

    /// Since when a member is blocked, as far as is known.
    pub(crate) fn blocked_since(&self, p: Pid) -> Option<Time> {
        self.blocked[p.index()]
    }

    /// Nobody was heard of.
    pub(crate) fn forget_seen(&mut self) {
        self.seen.fill(false);
    }
}

impl GroupMembership {
    /// Before the start: all configured processes are members.
    pub(crate) fn new(settings: VsyncSettings) -> Self {
        let n = settings.processes;
        let members: Vec<Pid> = (0..n as u32).map(Pid).collect();
        let first = members.iter().map(|&pid| GroupMember { pid, life: 0 }).collect();
        let view = View::new(0, first);
        Self {
            now: Time::ZERO,
            life: 0,
            phase: ViewPhase::Out,
            app_state: AppState::Missing,
            leaving: LeaveProgress::No,
            decision: ViewDecision { view: view.clone(), cut: Vec::new() },
            view,
            members,
            attendance: ViewAttendance::new(n),
            peers: PeerStates::new(&settings),
            requests: ViewRequests::new(n),
            links: LinkReports::new(n),
            has_room: true,
            settings,
        }
    }

    pub(crate) fn is_broken(&self, how: VsyncMutant) -> bool {
        cfg!(feature = "mutants") && self.settings.broken == Some(how)
    }

    pub(crate) const fn me(&self) -> Pid {
        self.settings.me
    }

    /// This process as a member.
    pub(crate) const fn myself(&self) -> GroupMember {
        GroupMember { pid: self.settings.me, life: self.life }
    }

    /// All configured processes but this one.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Pid> + use<> {
        let me = self.me();
        (0..self.settings.processes as u32).map(Pid).filter(move |&p| p != me)
    }

    /// The other members of the view.
    pub(crate) fn others(&self) -> impl Iterator<Item = Pid> {
        self.members.iter().copied().filter(|&p| p != self.me())
    }

    pub(crate) fn suspects(&self, p: Pid) -> bool {
        self.peers.suspects(self.now, p)
    }

    /// Whether a member seems to have failed: it is silent, or lives another life by now.
    pub(crate) fn failed(&self, member: GroupMember) -> bool {
        self.suspects(member.pid) || self.peers.life(member.pid) > member.life
    }

    /// This process begins a life.
    pub(crate) fn begin_life(&mut self, life: u64) {
        self.life = life;
        self.peers.set_own_life(self.settings.me, life);
    }

    /// Learns that a process has begun this incarnation: messages and reports of an earlier one are void.
    pub(crate) fn learn_incarnation(&mut self, p: Pid, life: u64) {
        if self.peers.learn_incarnation(p, life) {
            self.links.forget(p);
        }
    }

    /// Hears a process in this incarnation.
    pub(crate) fn hear(&mut self, p: Pid, life: u64) {
        self.learn_incarnation(p, life);
        self.peers.hear(self.now, p, life);
    }

    /// Whether messages for all leave as one to the group.
    pub(crate) fn goes_to_group(&self) -> bool {
        self.settings.dissemination == Dissemination::Group
    }

    /// Whether a cast may leave: the carrier has room for it, if it leaves as a datagram.
    pub(crate) fn may_cast(&self) -> bool {
        self.has_room || self.settings.lane == Lane::Stream && !self.goes_to_group()
    }

    /// Whether a message to one member may leave.
    pub(crate) fn may_send(&self) -> bool {
        self.has_room || self.settings.lane == Lane::Stream
    }

    /// Whether one member gathers acknowledgements for all.
    pub(crate) fn gathers_acks(&self) -> bool {
        self.goes_to_group() && self.settings.link.is_some()
    }

    /// The member that gathers acknowledgements, where one does: the most senior one.
    pub(crate) fn collector(&self) -> Option<Pid> {
        self.members.first().copied()
    }

    /// Whether this process is that member.
    pub(crate) fn collects(&self) -> bool {
        self.collector() == Some(self.me())
    }

    /// Whether a heartbeat leaves as one message to the group.
    pub(crate) fn beats_to_group(&self) -> bool {
        self.goes_to_group() && self.phase == ViewPhase::Active
    }

    /// Whether this process has the application's state in force, in a view.
    pub(crate) fn is_fit(&self) -> bool {
        self.phase != ViewPhase::Out && self.app_state == AppState::InForce
    }

    /// Whether it is a member of the last decided view, and has entered it.
    pub(crate) const fn is_inside(&self) -> bool {
        matches!(self.phase, ViewPhase::Active | ViewPhase::Blocked)
    }

    /// Whether this process takes no part any more, because it has left.
    pub(crate) const fn has_left(&self) -> bool {
        matches!(self.phase, ViewPhase::Out)
            && matches!(self.leaving, LeaveProgress::Gone { .. } | LeaveProgress::Done)
    }

    /// Whether messages of a member in this view concern this process.
    pub(crate) fn shares_view(&self, view: u64, member: Pid) -> bool {
        view == self.view.id && self.phase != ViewPhase::Out && self.view.has(member)
    }

    /// Whether casts travel along a ring.
    pub(crate) fn is_ring(&self) -> bool {
        self.settings.dissemination == Dissemination::Ring
    }

    /// The member that is so many places behind `p` on the ring.
    pub(crate) fn behind(&self, p: Pid, places: usize) -> Pid {
        let rank = self.view.rank(p).unwrap_or(0);
        self.members[(rank + places) % self.members.len()]
    }

    /// The member from which casts come, if they travel along a ring of more than this one.
    pub(crate) fn predecessor(&self) -> Option<Pid> {
        let ring = self.is_ring() && self.members.len() > 1 && self.view.has(self.me());
        ring.then(|| self.last_of(self.me()))
    }

    /// The member that has the casts of `sender` last: its predecessor.
    pub(crate) fn last_of(&self, sender: Pid) -> Pid {
        self.behind(sender, self.members.len() - 1)
    }

    /// Enters a view; gives the one before.
    pub(crate) fn enter(&mut self, view: View) -> View {
        self.members = view.pids().collect();
        self.attendance = ViewAttendance::new(self.settings.processes);
        self.requests.forget_joined(&view.members);
        self.phase = ViewPhase::Active;
        core::mem::replace(&mut self.view, view)
    }

    /// The report of the view just entered, and of the members that continue into it from the view `before`, if this
    /// process does.
    pub(crate) fn view_entered(&self, before: Option<&View>) -> ProtocolEvent {
        let me = self.peers.incarnation(self.me());
        let before = before.filter(|view| view.members.contains(&me));
        let stays = |rank: usize| before.is_some_and(|view| self.view.came_from(rank, view));
        let number = self.view.id;
        let members = self.bits(|_| true);
        let continuing = self.bits(stays);
        ProtocolEvent::ViewEntered { number, members, continuing }
    }

    /// The members of the view whose ranks are such, a bit each by pid.
    fn bits(&self, of: impl Fn(usize) -> bool) -> u32 {
        let ranks = (0..self.members.len()).filter(|&rank| of(rank));
        ranks.fold(0_u32, |bits, rank| bits | 1 << self.members[rank].0)
    }

    /// The reports of the components that the view just entered merges with the one in which this process was, in the
    /// order of the views from which their members come.
    pub(crate) fn merged(&self, before: &View) -> impl Iterator<Item = ProtocolEvent> + use<'_> {
        let view = self.view.id;
        let own = before.id;
        let origins: &[u64] = self.view.component.as_ref().map_or(&[], |of| &of.origins);
        let others: BTreeSet<u64> = origins.iter().copied().filter(|&from| from != own).collect();
        others.into_iter().map(move |from| {
            let members = self.bits(|rank| origins[rank] == from);
            ProtocolEvent::Merged { view, from, members }
        })
    }

    /// Whether each component of a partition continues.
    pub(crate) fn has_components(&self) -> bool {
        self.settings.quorum == ViewQuorum::Component
    }

    /// This process has started again, has forgotten the others, and is in a view of its own.
    pub(crate) fn begin_alone(&mut self, name: ViewName) {
        // It comes from nowhere: from the view itself.
        let origins = alloc::vec![name.number()];
        let component = Component { origins, primary: self.is_majority(1) };
        let members = alloc::vec![self.myself()];
        self.view = View { component: Some(component), ..View::new(name.number(), members) };
        self.members = alloc::vec![self.me()];
        self.decision = ViewDecision { view: self.view.clone(), cut: Vec::new() };
    }

    /// Whether so many are a majority of the configured processes.
    pub(crate) const fn is_majority(&self, members: usize) -> bool {
        members > self.settings.processes / 2
    }

    /// A peer knows of no view after `view`: it receives the decision. Where each component has views of its own the view
    /// of one is none of the other's.
    pub(crate) fn catch_up(&self, peer: Pid, view: u64, post: &mut OutgoingPackets) {
        if !self.has_components() && view < self.decision.view.id {
            post.push_decision(peer, &self.decision);
        }
    }

    /// A process has entered this view. Those that have left it wait for that.
    pub(crate) fn note_entered(&mut self, from: Pid, view: u64) {
        if self.has_left() && view >= self.decision.view.id {
            self.attendance.note_seen(from);
        }
    }
}
