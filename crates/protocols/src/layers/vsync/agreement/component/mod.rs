//! Agreement within each component: the second kind of membership, beside the primary component. Nobody is asked that is
//! not heard, and no majority is needed: each set of processes that all hear each other agrees on a view of its own and
//! continues [ToTo 5].
//!
//! ```text
//! initiate   the coordinator   Gather(name) --> all of its component
//! agree      each process      takes in no more casts  --Gathered(its view, its casts, the processes it hears)-->
//!            the coordinator   when all have answered that it still hears: the members that all hear each other
//!                              Install(members, the view that each comes from, the ends of these views) --> all asked
//! flush      each member       fetches the casts that its old view ends with from members that come along, hands them
//!                              over, and enters the view
//! ```
//!
//! # Why it is safe
//! A process answers at most one coordinator at a time, that of the largest name it has heard of, and names only
//! grow. A name is used once. So a process enters the view of a name only by the one `Install` of its coordinator, and all
//! that come from one view into it end that view with the same casts. A process that has answered takes in no
//! more casts of its view, except those that it fetches up to that end. An answer counts only for the view of its name:
//! a process that has answered a larger name since does not enter the smaller one, and comes into a later view from where
//! it is.
//!
//! A process hands over each cast in the view in which it was made, or nowhere. Its own casts are all in the end of its
//! view, since it reports them itself.
//!
//! # When a view changes
//! The reports of all (`links.rs`) give the component that this process should be in. It is left alone while it
//! is in a view of exactly these processes, in their present incarnations, and none of them reports that it is in another
//! view. Otherwise the lowest of the component coordinates a change, once its reason has lasted for some heartbeats, in
//! which the others report the same. Another one takes over where that one does not. Processes of another component that
//! are heard are such a reason: so components merge.

mod links;
mod proposal;

pub(crate) use links::HearingReport;
pub(crate) use proposal::{ComponentCut, ComponentProposal, ComponentStatus};

use super::{AgreementStep, BlockedFor, leaves_blocked, takeover_wait};
use crate::layers::vsync::VsyncMutant;
use crate::layers::vsync::casts::CastLog;
use crate::layers::vsync::membership::{GroupMembership, ViewPhase};
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use alloc::vec::Vec;
use amcast_core::groupcast::{GroupMember, ViewName};
use amcast_core::{Pid, Span, Time};
use links::{ComponentLinks, grown, linked};
use proposal::{ends, is_name};

/// For how many heartbeats a reason for another view lasts before it counts: in that time the others report it, too.
const REASON_HEARTBEATS: u64 = 4;

/// How often the patience with others doubles, at most.
const ATTEMPTS_MAX: u32 = 6;

/// How many rounds a name may be ahead of all that this process has heard of: more than a group goes through in three years at ten
/// a second. A name further ahead is nobody's by counting. If it were believed, the rounds behind it could soon be at their
/// end, and no view could follow.
const ROUNDS_AHEAD_MAX: u64 = 1 << 30;

/// The agreement on the next view of this process's component.
#[derive(Debug)]
pub(crate) struct ComponentAgreement {
    /// How often it has waited for others in vain since it was in a view of its component.
    attempts: u32,
    /// The largest round that this process has heard of.
    round: u64,
    /// The number of the largest name that it has answered: that of its view, unless it is blocked.
    answered: u64,
    /// When a blocked process says its answer again.
    answer_at: Time,
    /// When it coordinates a change itself, if it is still blocked.
    takeover_at: Time,
    /// The change that it coordinates.
    change: Option<ComponentChange>,
    /// The last view that it has installed, or coordinated.
    installed: Option<ComponentProposal>,
    links: ComponentLinks,
    reason: Option<ChangeReason>,
    /// The processes that it heard when the reason was looked for last; none where something was reported since.
    looked_at: Option<u32>,
}

/// A reason for another view.
#[derive(Clone, Copy, Debug)]
struct ChangeReason {
    /// The processes that should be in it, a bit each.
    wanted: u32,
    since: Time,
}

/// A change that this process coordinates.
#[derive(Debug)]
struct ComponentChange {
    name: u64,
    /// The processes that are asked, a bit each.
    asked: u32,
    /// By pid.
    answers: Vec<Option<(GroupMember, ComponentStatus)>>,
    retry_at: Time,
    /// Until when answers are waited for.
    until: Time,
}

/// How long a reason lasts before it counts.
fn reason_wait(group: &GroupMembership) -> Span {
    group.settings.heartbeat.times(REASON_HEARTBEATS)
}

/// A bit for each.
fn bits(members: &[GroupMember]) -> u32 {
    members.iter().fold(0, |bits, m| bits | 1 << m.pid.0)
}

impl ComponentAgreement {
    /// Before the start, among so many processes.
    pub(crate) fn new(processes: usize) -> Self {
        Self {
            attempts: 0,
            round: 0,
            answered: 0,
            answer_at: Time::NEVER,
            takeover_at: Time::NEVER,
            change: None,
            installed: None,
            links: ComponentLinks::new(processes),
            reason: None,
            looked_at: None,
        }
    }

    /// The name of a process's first view in a later incarnation, in which it is alone: it has forgotten the others.
    pub(crate) const fn first_name(me: Pid, incarnation: u32) -> ViewName {
        ViewName { round: 0, incarnation, coordinator: me }
    }

    /// This process starts in a view of that number.
    pub(super) const fn start(&mut self, view: u64) {
        self.answered = view;
    }

    /// Whether no change is under way, and nothing has happened that may be a reason for one.
    pub(super) fn rests(&self, group: &GroupMembership) -> bool {
        self.change.is_none()
            && self.reason.is_none()
            && group.phase == ViewPhase::Active
            && self.looked_at == Some(group.heard())
            && group.requests.are_none()
            && !group.attendance.is_any_blocked()
    }

    /// When there is something to do.
    pub(super) fn deadline(&self, group: &GroupMembership) -> Time {
        match (&self.change, group.phase) {
            (Some(change), _) => change.retry_at.min(change.until),
            (None, ViewPhase::Blocked) => self.answer_at.min(self.takeover_at),
            (None, ViewPhase::Entering) => self.takeover_at,
            (None, ViewPhase::Active) => {
                self.reason.as_ref().map_or(Time::NEVER, |reason| self.due(group, reason))
            }
            (None, ViewPhase::Out) => Time::NEVER,
        }
    }

    /// The number of processes of a component that coordinate before this one.
    fn rank(&self, group: &GroupMembership, component: u32) -> u64 {
        u64::from((component & ((1 << group.me().0) - 1)).count_ones())
    }

    /// When this process coordinates a change for a reason, if it lasts: the lowest process first.
    fn due(&self, group: &GroupMembership, reason: &ChangeReason) -> Time {
        let takeover = self.patience(group).times(self.rank(group, reason.wanted));
        reason.since + reason_wait(group) + takeover
    }

    /// How long this process waits for others: longer with each attempt that brought it no view of its component, since the
    /// network may be slower than expected.
    fn patience(&self, group: &GroupMembership) -> Span {
        takeover_wait(group).times(1 << self.attempts.min(ATTEMPTS_MAX))
    }

    /// This process is blocked from now on: how long until it coordinates a change itself, besides its turn.
    fn wait_blocked(&mut self, group: &GroupMembership, least: Span) {
        let component = self.links.component(group);
        let turn = self.patience(group).times(self.rank(group, component));
        self.takeover_at = group.now + least + turn;
        self.answer_at = group.now + group.settings.retry;
    }

    /// Learns the number of a name, and with it a round. Says whether that can be the name of a view.
    fn learn(&mut self, name: u64) -> bool {
        let round = ViewName::of(name).round;
        let can_be = is_name(name) && round <= self.round + ROUNDS_AHEAD_MAX;
        if can_be {
            self.round = self.round.max(round);
        }
        can_be
    }

    /// The component that this process should be in, a bit each.
    fn component(&self, group: &GroupMembership) -> u32 {
        match group.is_broken(VsyncMutant::NamesUnheard) {
            true => group.heard(),
            false => self.links.component(group),
        }
    }

    /// Looks for a reason for another view.
    fn look(&mut self, group: &GroupMembership) {
        let wanted = self.component(group);
        self.looked_at = Some(group.heard());
        let members = &group.view.members;
        let is_gone = |m: &GroupMember| {
            let reborn = group.peers.life(m.pid) > m.life;
            reborn || self.links.is_elsewhere(group, m.pid, group.view.id)
        };
        let fits = wanted == bits(members)
            && !members.iter().any(|m| m.pid != group.me() && is_gone(m))
            && !leaves_blocked(group);
        if fits {
            self.attempts = 0;
        }
        let same = self.reason.filter(|reason| reason.wanted == wanted);
        let new = ChangeReason { wanted, since: group.now };
        self.reason = (!fits).then(|| same.unwrap_or(new));
    }

    /// The part of a round that nobody asked for.
    pub(super) fn coordinate(
        &mut self,
        group: &GroupMembership,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        if self.change.as_ref().is_some_and(|change| change.name < self.answered) {
            self.change = None;
        }
        if self.change.is_some() {
            return self.continue_change(group, post);
        }
        match group.phase {
            ViewPhase::Out => None,
            ViewPhase::Active => {
                self.look(group);
                let is_due = |reason: &ChangeReason| self.due(group, reason) <= group.now;
                self.reason.filter(is_due).map(|reason| self.gather(group, reason.wanted))
            }
            ViewPhase::Blocked | ViewPhase::Entering if self.takeover_at <= group.now => {
                self.attempts += 1;
                let wanted = self.component(group);
                Some(self.gather(group, wanted))
            }
            ViewPhase::Blocked if self.answer_at <= group.now => {
                let to = ViewName::of(self.answered).coordinator;
                self.answer_at = group.now + group.settings.retry;
                Some(AgreementStep::Block(BlockedFor::Answer(to)))
            }
            ViewPhase::Blocked | ViewPhase::Entering => None,
        }
    }

    /// Initiates a change: nobody of the component takes anything in any more, and says what it has.
    fn gather(&mut self, group: &GroupMembership, wanted: u32) -> AgreementStep {
        self.round += 1;
        let name = ViewName {
            round: self.round,
            incarnation: (group.life >> 32) as u32,
            coordinator: group.me(),
        };
        // Members that leave are asked as well: they stop when they know of a view without them.
        let leaves = |m: &&GroupMember| group.requests.leaves(**m) && !group.suspects(m.pid);
        let leavers = group.view.members.iter().filter(leaves);
        let asked = leavers.fold(wanted, |bits, m| bits | 1 << m.pid.0);
        self.answered = name.number();
        self.reason = None;
        self.change = Some(ComponentChange {
            name: self.answered,
            asked,
            answers: alloc::vec![None; group.settings.processes],
            retry_at: group.now + group.settings.retry,
            until: group.now + self.patience(group),
        });
        self.wait_blocked(group, self.patience(group).times(2));
        AgreementStep::Block(BlockedFor::Gather)
    }

    /// The state of this process.
    fn status(group: &GroupMembership, log: &CastLog) -> ComponentStatus {
        ComponentStatus { view: group.view.id, hears: group.heard(), have: log.all() }
    }

    /// Asks all, once this process takes in no more casts. It counts its own answer.
    pub(super) fn ask(
        &mut self,
        group: &GroupMembership,
        log: &CastLog,
        post: &mut OutgoingPackets,
    ) {
        let Some(change) = &mut self.change else { return };
        change.answers[group.me().index()] = Some((group.myself(), Self::status(group, log)));
        change.repeat(group, post);
    }

    /// Answers the coordinator of the largest name, once this process takes in no more casts.
    pub(super) fn answer(
        &self,
        group: &GroupMembership,
        log: &CastLog,
        to: Pid,
        post: &mut OutgoingPackets,
    ) {
        let status = Self::status(group, log);
        post.push(to, PacketItem::Gathered { name: self.answered, status });
    }

    /// A message of the agreement arrived.
    pub(super) fn take(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        item: PacketItem,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        match item {
            PacketItem::Gather { name } => self.on_gather(group, from, name, post),
            PacketItem::Gathered { name, status } => {
                self.on_gathered(group, from, name, status, post);
                None
            }
            PacketItem::Install(proposal) if proposal.is_sound(group.settings.processes) => {
                self.on_install(group, from, proposal)
            }
            PacketItem::Outdated { name } => {
                if self.learn(name) && self.change.as_ref().is_some_and(|change| change.name < name)
                {
                    self.change = None;
                    self.wait_blocked(group, reason_wait(group));
                    self.answer_at = Time::NEVER;
                }
                None
            }
            PacketItem::Hears { reports } => {
                if self.links.update(group, from, &reports) {
                    self.looked_at = None;
                }
                None
            }
            _ => None,
        }
    }

    /// A coordinator asks what this process has. One whose component this process should not be in is not answered:
    /// it knows less of the links.
    fn on_gather(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        name: u64,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        if ViewName::of(name).coordinator != from || !self.learn(name) {
            return None;
        }
        if group.phase == ViewPhase::Out {
            return None;
        }
        if name < self.answered {
            post.push(from, PacketItem::Outdated { name: self.answered });
            return None;
        }
        if name == self.answered {
            let is_open = group.phase == ViewPhase::Blocked;
            return is_open.then_some(AgreementStep::Block(BlockedFor::Answer(from)));
        }
        let leaves = group.requests.leaves(group.myself());
        if !leaves && self.component(group) >> from.0 & 1 == 0 {
            return None;
        }
        self.answered = name;
        (self.change, self.reason) = (None, None);
        self.wait_blocked(group, self.patience(group).times(2));
        Some(AgreementStep::Block(BlockedFor::Answer(from)))
    }

    /// A process answers. One that answers for the view in which this process is has not received the `Install`.
    fn on_gathered(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        name: u64,
        status: ComponentStatus,
        post: &mut OutgoingPackets,
    ) {
        if !status.is_sound(group.settings.processes) {
            return;
        }
        let member = group.peers.incarnation(from);
        match &mut self.change {
            Some(change) if change.name == name => {
                change.answers[from.index()] = Some((member, status));
            }
            _ => {
                let of_view = |p: &&ComponentProposal| p.name == name && group.view.id == name;
                if let Some(proposal) = self.installed.as_ref().filter(of_view) {
                    post.push(from, PacketItem::Install(proposal.clone()));
                }
            }
        }
    }

    /// The coordinator that this process has answered installs a view, with it or without.
    fn on_install(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        proposal: ComponentProposal,
    ) -> Option<AgreementStep> {
        let answered = proposal.name == self.answered && group.phase == ViewPhase::Blocked;
        if !answered || ViewName::of(proposal.name).coordinator != from {
            return None;
        }
        let decision = proposal.decision(group.view.id, group.settings.processes);
        self.looked_at = None;
        if proposal.names(group.myself(), group.view.id) {
            self.installed = Some(proposal);
            self.wait_blocked(group, self.patience(group).times(2));
            return Some(AgreementStep::Install(decision));
        }
        if !proposal.has(group.myself()) && group.requests.leaves(group.myself()) {
            return Some(AgreementStep::Released(decision));
        }
        // It is not linked with all of them, and is in a view of others, or of itself.
        self.wait_blocked(group, reason_wait(group));
        self.answer_at = Time::NEVER;
        None
    }

    /// Waits for answers, and installs the view.
    fn continue_change(
        &mut self,
        group: &GroupMembership,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        let change = self.change.as_mut()?;
        if group.phase == ViewPhase::Out {
            self.change = None;
            return None;
        }
        let open =
            |p: &Pid| change.asks(*p) && change.answers[p.index()].is_none() && !group.suspects(*p);
        let is_open = group.peers().any(|p| open(&p));
        if is_open && change.until > group.now {
            if change.retry_at <= group.now {
                change.retry_at = group.now + group.settings.retry;
                change.repeat(group, post);
            }
            return None;
        }
        let change = self.change.take()?;
        self.attempts += u32::from(is_open);
        self.looked_at = None;
        let proposal = change.proposal(group);
        for to in group.peers().filter(|p| change.asks(*p)) {
            post.push(to, PacketItem::Install(proposal.clone()));
        }
        let decision = proposal.decision(group.view.id, group.settings.processes);
        self.installed = Some(proposal);
        self.wait_blocked(group, self.patience(group).times(2));
        Some(AgreementStep::Install(decision))
    }

    /// Tells all, with a heartbeat, in which view this process is and which processes it hears.
    pub(super) fn show(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        if self.links.expire(group.now) {
            self.looked_at = None;
        }
        if group.phase == ViewPhase::Out {
            return;
        }
        let item = PacketItem::Hears { reports: self.links.report(group) };
        match group.beats_to_group() {
            true => post.push_for_all(item),
            false => group.peers().for_each(|to| post.push(to, item.clone())),
        }
    }

    /// A member that comes along and has the casts of `sender` with which the old view ends.
    pub(super) fn known_holder(&self, group: &GroupMembership, sender: Pid) -> Option<Pid> {
        let end = self.installed.as_ref()?.end_of(group.view.id)?;
        let holder = *end.holders.get(sender.index())?;
        (holder != group.me() && !group.suspects(holder)).then_some(holder)
    }
}

impl ComponentChange {
    const fn asks(&self, p: Pid) -> bool {
        self.asked >> p.0 & 1 == 1
    }

    /// Asks those that have not answered.
    fn repeat(&self, group: &GroupMembership, post: &mut OutgoingPackets) {
        let open = |p: &Pid| self.asks(*p) && self.answers[p.index()].is_none();
        let item = PacketItem::Gather { name: self.name };
        group.peers().filter(open).for_each(|to| post.push(to, item.clone()));
    }

    /// Whether one that leaves gives what it has to all of these members: it hears them, and they hear it.
    fn hands_on(
        &self,
        group: &GroupMembership,
        (member, status): &(GroupMember, ComponentStatus),
        (members, hears): (u32, &[u32]),
    ) -> bool {
        let of = |p: &usize| members >> p & 1 == 1;
        let is_heard = |p: usize| hears[p] >> member.pid.0 & 1 == 1;
        let is_present = group.peers.life(member.pid) == member.life;
        is_present
            && group.requests.leaves(*member)
            && !group.suspects(member.pid)
            && members & !status.hears == 0
            && (0..hears.len()).filter(of).all(is_heard)
    }

    /// The view of the processes that have answered, as far as all of them hear each other.
    fn proposal(&self, group: &GroupMembership) -> ComponentProposal {
        let lives = |(member, _): &&(GroupMember, ComponentStatus)| {
            let is_present = group.peers.life(member.pid) == member.life;
            // One that leaves, and coordinates because nobody else does, stays until others are without it.
            let leaves = group.requests.leaves(*member) && member.pid != group.me();
            is_present && !group.suspects(member.pid) && !leaves
        };
        let answers = |set: u32| {
            let of_set = self.answers.iter().flatten().filter(lives);
            of_set.filter(move |(member, _)| set >> member.pid.0 & 1 == 1)
        };
        let mut hears = alloc::vec![0; self.answers.len()];
        let mut all = 0;
        for (member, status) in answers(u32::MAX) {
            hears[member.pid.index()] = status.hears;
            all |= 1 << member.pid.0;
        }
        let unheard = group.is_broken(VsyncMutant::NamesUnheard);
        let members = match unheard {
            true => all,
            // The coordinator is in it.
            false => grown(1 << group.me().0, all, &linked(&hears)),
        };
        let own = match unheard {
            // Nobody can fetch anything of a process that it does not hear.
            true if members & !grown(1 << group.me().0, all, &linked(&hears)) != 0 => {
                1 << group.me().0
            }
            _ => members,
        };
        // Leavers come along into no view, and have handed over casts that others may miss.
        let leavers = self.answers.iter().flatten().filter(|answer| {
            !unheard && !lives(answer) && self.hands_on(group, answer, (members, &hears))
        });
        let along = answers(own).chain(leavers);
        let mut cuts = ends(along.map(|(member, status)| (*member, status)));
        for end in ends(answers(members).map(|(member, status)| (*member, status))) {
            if cuts.iter().all(|cut| cut.view != end.view) {
                cuts.push(end);
            }
        }
        ComponentProposal {
            name: self.name,
            members: answers(members).map(|(member, _)| *member).collect(),
            origins: answers(members).map(|(_, status)| status.view).collect(),
            cuts,
        }
    }
}
