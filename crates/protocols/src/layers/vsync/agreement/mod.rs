//! The agreement on the next view: who is in it, and where the present one is cut. There are two kinds ([`Agreement`]),
//! and nothing else of the layer differs between them: that of the primary component ([`ViewAgreement`]), and one in each
//! component of a partition (`component/`).
//!
//! The primary component: one instance of Paxos a view, in which all configured processes vote.
//!
//! It sees the [`GroupMembership`] and counts of casts, sends messages of its own, and asks the layer for three things
//! ([`AgreementStep`]): to take in no more casts, to fetch casts up to a cut, and to enter a view that is decided. The
//! rest of the layer knows of it no more than these, which process has some cast, and whether the group
//! makes progress ([`PrimaryComponent`]). So a membership that decides otherwise takes the place of this folder.
//!
//! ```text
//!            reason for a view, and this process coordinates
//! idle ---------------------------------------------------> preparing
//!  ^                                                            | all promised that may
//!  | refused, or a higher ballot                                v
//!  +--------------------------------------------------- proposal chosen
//!  |                                                            | this process has the cut
//!  |                                                            v
//!  '------- decided, by a majority that accepted -------- accepting
//! ```

mod acceptor;
mod component;
mod coordinator;
mod primary;
mod proposal;

pub(crate) use component::{
    ComponentAgreement, ComponentCut, ComponentProposal, ComponentStatus, HearingReport,
};
pub(crate) use primary::PrimaryComponent;
#[cfg(test)]
pub(super) use primary::holds_linked;
pub(crate) use proposal::{NONSENSE, PromiserStatus, ViewBallot, ViewDecision, ViewProposal};

use super::casts::CastLog;
use super::membership::{GroupMembership, ViewPhase};
use super::packet::PacketItem;
use super::packing::OutgoingPackets;
use super::{ViewQuorum, VsyncSettings};
use acceptor::{ViewAcceptor, VoteRequest};
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};
use coordinator::{ViewChange, ViewPromise};

/// How many retries a blocked member waits for the coordinator that blocked it, before it takes over.
const TAKEOVER_RETRIES: u64 = 8;

/// The agreement on the next view, at one process.
#[derive(Debug)]
pub(crate) struct ViewAgreement {
    vote: ViewAcceptor,
    /// The change that this process coordinates.
    change: Option<ViewChange>,
    /// Since when it has been blocked, or has heard of the coordinator that blocked it.
    blocked_at: Time,
}

/// A request of the agreement to the layer.
#[derive(Debug)]
pub(crate) enum AgreementStep {
    /// Take in no more casts of the view, and then continue with [`ViewAgreement::blocked`].
    Block(BlockedFor),
    /// Fetch casts of each process up to this cut.
    Fetch(Vec<u64>),
    /// This view is decided.
    Decided(ViewDecision),
    /// The coordinator of a component installs this view, with this process.
    Install(ViewDecision),
    /// The coordinator of a component installs this view, without this process, which leaves.
    Released(ViewDecision),
}

/// The message that waits until this process takes in no more casts.
#[derive(Debug)]
pub(crate) enum BlockedFor {
    /// The own request for promises.
    Prepare,
    /// A promise to this coordinator.
    Promise(Pid),
    /// The acceptance of a proposal of this coordinator.
    Acceptance(Pid, ViewProposal),
    /// The own question to a component.
    Gather,
    /// The answer to this coordinator of a component.
    Answer(Pid),
}

/// The agreement on the next view, of either kind.
#[derive(Debug)]
pub(crate) enum Agreement {
    /// A majority decides, so that the views are one chain.
    Primary(ViewAgreement),
    /// Each component decides for itself.
    Component(ComponentAgreement),
}

impl Agreement {
    /// Before the start.
    pub(crate) fn new(settings: &VsyncSettings) -> Self {
        match settings.quorum {
            ViewQuorum::Component => Self::Component(ComponentAgreement::new(settings.processes)),
            ViewQuorum::Majority | ViewQuorum::Survivors => Self::Primary(ViewAgreement::new()),
        }
    }

    /// This process starts, for the first time or again, in its first view.
    pub(crate) const fn start(&mut self, is_first: bool, view: u64) {
        match self {
            Self::Primary(primary) => primary.start(is_first),
            Self::Component(component) => component.start(view),
        }
    }

    /// When there is something to do.
    pub(crate) fn deadline(&self, group: &GroupMembership) -> Time {
        match self {
            Self::Primary(primary) => primary.deadline(group),
            Self::Component(component) => component.deadline(group),
        }
    }

    /// Whether no change of views is under way, and nobody knows of a reason for one.
    pub(crate) fn rests(&self, group: &GroupMembership) -> bool {
        match self {
            Self::Primary(primary) => primary.rests(group),
            Self::Component(component) => component.rests(group),
        }
    }

    /// The part of a round that nobody asked for.
    pub(crate) fn coordinate(
        &mut self,
        group: &GroupMembership,
        log: &CastLog,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        match self {
            Self::Primary(primary) => primary.coordinate(group, log, post),
            Self::Component(component) => component.coordinate(group, post),
        }
    }

    /// A message of the agreement arrived, sent to its coordinator or by it.
    pub(crate) fn take(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        item: PacketItem,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        match self {
            Self::Primary(primary) => primary.take(group, from, item, post),
            Self::Component(component) => component.take(group, from, item, post),
        }
    }

    /// This process takes in no more casts of the view: it sends the message that waited for that.
    pub(crate) fn blocked(
        &mut self,
        group: &GroupMembership,
        log: &CastLog,
        waiting: BlockedFor,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        match (self, waiting) {
            (Self::Component(component), BlockedFor::Gather) => component.ask(group, log, post),
            (Self::Component(component), BlockedFor::Answer(to)) => {
                component.answer(group, log, to, post);
            }
            (Self::Component(_), _) => {}
            (Self::Primary(primary), waiting) => return primary.blocked(group, log, waiting, post),
        }
        None
    }

    /// A view of the primary component was decided, with or without this process.
    pub(crate) fn conclude(&mut self, decision: &ViewDecision, names_me: bool) {
        if let Self::Primary(primary) = self {
            primary.conclude(decision, names_me);
        }
    }

    /// The decision, if a majority has accepted the proposal of this process.
    pub(crate) fn decide_if_accepted(
        &self,
        group: &GroupMembership,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        match self {
            Self::Primary(primary) => primary.decide_if_accepted(group, post),
            Self::Component(_) => None,
        }
    }

    /// A process that is known to have the casts of `sender` up to this one.
    pub(crate) fn known_holder(
        &self,
        group: &GroupMembership,
        sender: Pid,
        upto: u64,
    ) -> Option<Pid> {
        match self {
            Self::Primary(primary) => primary.known_holder(group, sender, upto),
            Self::Component(component) => component.known_holder(group, sender),
        }
    }

    /// A process that is likely to have all casts with which the view ends.
    pub(crate) fn coordinator(&self, group: &GroupMembership) -> Pid {
        match self {
            Self::Primary(primary) => primary.coordinator(),
            Self::Component(_) => group.me(),
        }
    }

    /// Tells all with a heartbeat what the others need to agree.
    pub(crate) fn show(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        if let Self::Component(component) = self {
            component.show(group, post);
        }
    }
}

/// The view that is voted on.
const fn instance(group: &GroupMembership) -> u64 {
    group.decision.view.id + 1
}

/// How long a member may be blocked before the others do something about it.
fn takeover_wait(group: &GroupMembership) -> Span {
    group.settings.retry.times(TAKEOVER_RETRIES).max(group.settings.suspect)
}

impl ViewAgreement {
    /// Before the start: it votes on nothing.
    pub(crate) fn new() -> Self {
        Self { vote: ViewAcceptor::default(), change: None, blocked_at: Time::ZERO }
    }

    /// This process starts. In a later incarnation it may have promised something that it has forgotten.
    pub(crate) const fn start(&mut self, is_first: bool) {
        self.vote.first = if is_first { 1 } else { u64::MAX };
    }

    /// When the coordinator has to do something.
    pub(crate) fn deadline(&self, group: &GroupMembership) -> Time {
        let takeover = match (&self.change, group.phase) {
            // Once it is past, it is looked at with every heartbeat.
            (None, ViewPhase::Blocked) if self.takeover_at(group) > group.now => {
                self.takeover_at(group)
            }
            _ => Time::NEVER,
        };
        self.change.as_ref().map_or(takeover, |change| change.retry_at)
    }

    /// Until when a blocked member waits for the coordinator that blocked it.
    fn takeover_at(&self, group: &GroupMembership) -> Time {
        // Not all at once.
        self.blocked_at + takeover_wait(group).times(1 + group.me().index() as u64)
    }

    /// Whether no change of views is under way, and nobody knows of a reason for one: all that
    /// [`must_coordinate`](Self::must_coordinate) asks for. Asked at each step, so of what takes longest to know last.
    pub(crate) fn rests(&self, group: &GroupMembership) -> bool {
        let requests = &group.requests;
        self.change.is_none()
            && group.phase == ViewPhase::Active
            && requests.are_none()
            && !group.attendance.is_any_blocked()
            && !group.has_reports()
            && !group.view.members.iter().any(|m| group.failed(*m))
    }

    /// Whether this process is the one to change the view, and there is a reason.
    fn must_coordinate(&self, group: &GroupMembership) -> bool {
        let primary = PrimaryComponent(group);
        if !group.is_inside() || primary.coordinator() != Some(group.me()) {
            return false;
        }
        let failed = group.view.members.iter().any(|m| group.failed(*m));
        let joins = group.peers().any(|p| primary.joins(p).is_some_and(|m| primary.may_link(m)));
        let stuck = group.phase == ViewPhase::Blocked && self.change.is_none();
        let left_alone = stuck
            && (self.takeover_at(group) <= group.now || group.suspects(self.vote.promised.pid));
        let leaves = || primary.somebody_leaves() || leaves_blocked(group);
        let changes = || failed || joins || leaves() || primary.is_unlinked();
        if stuck { left_alone } else { changes() }
    }

    /// A message of the agreement arrived, sent to its coordinator or by it.
    pub(crate) fn take(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        item: PacketItem,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        match item {
            PacketItem::Prepare { instance, ballot } => {
                self.on_prepare(group, VoteRequest { from, instance, ballot }, post)
            }
            PacketItem::Accept { instance, ballot, proposal } => {
                self.on_accept(group, VoteRequest { from, instance, ballot }, proposal, post)
            }
            PacketItem::Promise { instance, ballot, accepted, standing } => {
                let life = group.peers.life(from);
                let promise = ViewPromise { accepted, standing, life };
                self.on_promise(group, VoteRequest { from, instance, ballot }, promise);
                None
            }
            PacketItem::Refuse { instance, promised } => {
                self.on_refuse(group, instance, promised);
                None
            }
            PacketItem::Accepted { instance, ballot } => {
                self.on_accepted(group, VoteRequest { from, instance, ballot });
                None
            }
            _ => None,
        }
    }

    /// This process takes in no more casts of the view: it sends the message that waited for that.
    pub(crate) fn blocked(
        &mut self,
        group: &GroupMembership,
        log: &CastLog,
        waiting: BlockedFor,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        match waiting {
            BlockedFor::Prepare => self.request_promises(group, log, post),
            BlockedFor::Promise(to) => self.send_promise(group, log, to, post),
            BlockedFor::Acceptance(to, proposal) => {
                return self.accept(group, log, to, proposal, post);
            }
            BlockedFor::Gather | BlockedFor::Answer(_) => {}
        }
        None
    }

    /// A view was decided, with or without this process.
    pub(crate) fn conclude(&mut self, decision: &ViewDecision, names_me: bool) {
        self.change = None;
        (self.vote.promised, self.vote.accepted) = (ViewBallot::default(), None);
        if names_me {
            self.vote.first = self.vote.first.min(decision.view.id + 1);
        }
    }

    /// A process that is known to have the casts of `sender` up to this one.
    pub(crate) fn known_holder(
        &self,
        group: &GroupMembership,
        sender: Pid,
        upto: u64,
    ) -> Option<Pid> {
        let change = self.change.as_ref()?;
        let holds = |p: &Pid| change.has(*p, sender, upto) && !group.suspects(*p);
        group.peers().find(holds)
    }

    /// The coordinator that ended the view: it had all casts of a cut when it asked to accept that.
    pub(crate) const fn coordinator(&self) -> Pid {
        self.vote.promised.pid
    }
}

/// Whether a member is blocked for long, and the coordinator that blocked it has forgotten that.
fn leaves_blocked(group: &GroupMembership) -> bool {
    let wait = takeover_wait(group);
    let is_long = |at: Time| group.now.since(at) >= wait;
    group.members.iter().any(|p| group.attendance.blocked_since(*p).is_some_and(is_long))
}
