//! The coordinator of a change of views: it collects promises, proposes members and a cut, and has them accepted.

use super::acceptor::{VoteRequest, status};
use super::{
    AgreementStep, BlockedFor, PrimaryComponent, PromiserStatus, ViewAgreement, ViewBallot,
    ViewDecision, ViewProposal, instance,
};
use crate::layers::vsync::ViewQuorum;
use crate::layers::vsync::casts::CastLog;
use crate::layers::vsync::membership::GroupMembership;
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use alloc::vec::Vec;
use amcast_core::groupcast::{GroupMember, View};
use amcast_core::{Pid, Time};

/// How many times as long as any other a member may be silent that has the state, where fewer than a
/// majority would continue with it: a process that was only slow must not cost a copy that is needed.
const COPY_PATIENCE: u64 = 8;

/// A coordinator's knowledge of a process that promised.
#[derive(Clone, Debug)]
pub(super) struct ViewPromise {
    pub(super) accepted: Option<(ViewBallot, ViewProposal)>,
    pub(super) standing: PromiserStatus,
    pub(super) life: u64,
}

/// A change that this process coordinates.
#[derive(Clone, Debug)]
pub(super) struct ViewChange {
    ballot: ViewBallot,
    /// By pid.
    promises: Vec<Option<ViewPromise>>,
    /// Once enough have promised.
    proposal: Option<ViewProposal>,
    /// Whether the proposal was made by an earlier coordinator.
    adopted: bool,
    /// Whether it has all casts up to the cut, and asks the others to accept.
    accepting: bool,
    /// By pid.
    accepted: Vec<bool>,
    pub(super) retry_at: Time,
}

impl ViewChange {
    /// Whether a process promised with the casts of `sender` up to this one.
    pub(super) fn has(&self, p: Pid, sender: Pid, upto: u64) -> bool {
        match self.promises[p.index()].as_ref().map(|promise| &promise.standing) {
            Some(PromiserStatus::Member { have, .. }) => have[sender.index()] >= upto,
            _ => false,
        }
    }

    /// Whether a member that promised has the state: it said so then, or got it since. Until the next
    /// view nothing takes it away.
    fn has_state(&self, group: &GroupMembership, p: Pid) -> bool {
        let since = if p == group.me() { group.is_fit() } else { group.peers.is_fit(p) };
        // A process that was reborn since has lost what it had.
        let promise = self.promises[p.index()].as_ref();
        promise.filter(|p_made| p_made.life == group.peers.life(p)).is_some_and(|promise| {
            match promise.standing {
                PromiserStatus::Outsider => false,
                PromiserStatus::Member { fit, .. } => fit || since,
            }
        })
    }

    /// How many that promised have the state.
    fn copies(&self, group: &GroupMembership) -> usize {
        let all = (0..self.promises.len()).map(|at| Pid(at as u32));
        all.filter(|&p| self.has_state(group, p)).count()
    }

    /// Whether the view would continue with fewer copies of the state than a majority, and without one
    /// that is only silent as far as is known: it is waited for longer than any other.
    fn may_lose_copies(&self, group: &GroupMembership) -> bool {
        let silent = |m: &GroupMember| {
            let patience = group.peers.patience(m.pid).times(COPY_PATIENCE);
            self.promises[m.pid.index()].is_none()
                && group.peers.is_fit(m.pid)
                && group.peers.life(m.pid) == m.life
                && group.peers.silence(group.now, m.pid) < patience
        };
        self.copies(group) < PrimaryComponent(group).quorum()
            && group.view.members.iter().any(silent)
    }

    /// Whether `p` may be asked to accept. A member that continues from this view fetches the end of the view
    /// before it accepts. A voter from outside holds nothing of the view: it is asked when all continuing
    /// members have accepted, or else a cut could be chosen of which a part dies with the coordinator.
    ///
    /// That also holds for one that received the `Prepare` and nothing since. It suspects this process, and
    /// takes over if a majority hears it. Voters from outside are needed only where the continuing members that hear
    /// this process are no majority. A proposal of an earlier coordinator is perhaps decided already, and
    /// nothing else can be: continuing members are not waited for if they do not hear this process.
    fn may_accept(&self, group: &GroupMembership, p: Pid, proposal: &ViewProposal) -> bool {
        let continues = |m: &&GroupMember| group.view.members.contains(*m);
        let answers =
            |m: &GroupMember| !group.failed(*m) && (!self.adopted || group.reaches(m.pid));
        let open = |m: &GroupMember| !self.accepted[m.pid.index()] && answers(m);
        let mut staying = proposal.members.iter().filter(continues);
        staying.clone().any(|m| m.pid == p) || !staying.any(open)
    }

    /// Retransmits all requests that the coordinator has no answer to.
    fn repeat(&self, group: &GroupMembership, post: &mut OutgoingPackets) {
        let (instance, ballot) = (instance(group), self.ballot);
        let item = match &self.proposal {
            Some(proposal) if self.accepting => {
                PacketItem::Accept { instance, ballot, proposal: proposal.clone() }
            }
            Some(_) => return,
            None => PacketItem::Prepare { instance, ballot },
        };
        let open = |p: &Pid| match &self.proposal {
            Some(proposal) => !self.accepted[p.index()] && self.may_accept(group, *p, proposal),
            None => self.promises[p.index()].is_none(),
        };
        group.peers().filter(open).for_each(|to| post.push(to, item.clone()));
    }

    /// Chooses what to propose, if enough have promised.
    fn choose(&mut self, group: &GroupMembership) {
        let primary = PrimaryComponent(group);
        let promised = |p: Pid| self.promises[p.index()].as_ref();
        if self.promises.iter().flatten().count() < primary.quorum() {
            return;
        }
        // A request of this process to a member that does not hear it is never answered.
        let answers = |m: &GroupMember| !group.failed(*m) && group.reaches(m.pid);
        let waits = |m: &&GroupMember| promised(m.pid).is_none() && answers(m);
        if group.view.members.iter().any(|m| waits(&m)) || self.may_lose_copies(group) {
            return;
        }
        let accepted = self.promises.iter().flatten().filter_map(|p| p.accepted.clone());
        let (proposal, adopted) = match accepted.max_by_key(|(ballot, _)| *ballot) {
            Some((_, proposal)) => (proposal, true),
            // Somebody must continue with the state, and the continuing members must hear each other.
            None if self.copies(group) == 0 || !primary.is_linked() => return,
            None => (self.fresh_proposal(group), false),
        };
        (self.proposal, self.adopted) = (Some(proposal), adopted);
    }

    fn fresh_proposal(&self, group: &GroupMembership) -> ViewProposal {
        let primary = PrimaryComponent(group);
        let mut cut = alloc::vec![0; self.promises.len()];
        let mut members = Vec::new();
        for &member in &group.view.members {
            let Some(promise) = &self.promises[member.pid.index()] else { continue };
            let PromiserStatus::Member { have, .. } = &promise.standing else { continue };
            if promise.life != member.life {
                continue;
            }
            members.push(member);
            cut.iter_mut().zip(have).for_each(|(cut, have)| *cut = (*cut).max(*have));
        }
        for p in group.peers() {
            let outsider = self.promises[p.index()].as_ref();
            let outsider = outsider.filter(|promise| promise.standing == PromiserStatus::Outsider);
            let life = outsider.map(|promise| GroupMember { pid: p, life: promise.life });
            if let Some(member) = life.or_else(|| primary.joins(p))
                && members.iter().all(|m| m.pid != p)
            {
                members.push(member);
            }
        }
        primary.spare_leavers(&mut members, |m| self.has_state(group, m.pid));
        primary.spare_unlinked(&mut members, |m| self.has_state(group, m.pid));
        ViewProposal { members, cut }
    }

    /// Whether a member seems to have failed that counts for a proposal: perhaps the only one that had some cast. Also
    /// one that leaves: what it has counts for the cut.
    fn has_lost(&self, group: &GroupMembership, proposal: &ViewProposal) -> bool {
        let gone = |m: &GroupMember| group.failed(*m);
        let counted = |m: &&GroupMember| self.promises[m.pid.index()].is_some();
        let lost = group.view.members.iter().filter(counted).any(gone);
        lost || proposal.members.iter().any(gone)
    }
}

impl ViewAgreement {
    /// The coordinator's part of a round.
    pub(crate) fn coordinate(
        &mut self,
        group: &GroupMembership,
        log: &CastLog,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        let Some(change) = &self.change else {
            return self.must_coordinate(group).then(|| self.prepare(group));
        };
        if change.ballot < self.vote.promised || !group.is_inside() {
            self.change = None;
            return None;
        }
        let step = self.propose(group, log, post);
        if let Some(AgreementStep::Block(_) | AgreementStep::Decided(_)) = step {
            return step;
        }
        let change = self.change.as_mut()?;
        if change.retry_at <= group.now {
            change.retry_at = group.now + group.settings.retry.times(2);
            change.repeat(group, post);
        }
        step
    }

    /// First phase: nobody takes anything in any more, and says what it has.
    fn prepare(&mut self, group: &GroupMembership) -> AgreementStep {
        let ballot = ViewBallot { round: self.vote.promised.round + 1, pid: group.me() };
        let n = group.settings.processes;
        self.change = Some(ViewChange {
            ballot,
            promises: alloc::vec![None; n],
            proposal: None,
            adopted: false,
            accepting: false,
            accepted: alloc::vec![false; n],
            retry_at: group.now + group.settings.retry,
        });
        if self.vote.first <= instance(group) {
            self.promise(group, ballot);
        }
        AgreementStep::Block(BlockedFor::Prepare)
    }

    /// Asks all for a promise, once this process takes nothing in any more. It counts its own, if it may vote.
    pub(super) fn request_promises(
        &mut self,
        group: &GroupMembership,
        log: &CastLog,
        post: &mut OutgoingPackets,
    ) {
        let Some(change) = &mut self.change else { return };
        if self.vote.first <= instance(group) {
            let (accepted, life) = (self.vote.accepted.clone(), group.life);
            let own = ViewPromise { accepted, standing: status(group, log), life };
            change.promises[group.me().index()] = Some(own);
        }
        change.repeat(group, post);
    }

    pub(super) fn on_refuse(&mut self, group: &GroupMembership, asked: u64, promised: ViewBallot) {
        if asked != instance(group) || !promised.is_sound(group.settings.processes) {
            return;
        }
        if self.change.as_ref().is_some_and(|change| change.ballot < promised) {
            self.change = None;
            self.blocked_at = group.now;
            // The next attempt is above it.
            self.vote.promised.round = self.vote.promised.round.max(promised.round);
        }
    }

    pub(super) fn on_promise(
        &mut self,
        group: &GroupMembership,
        request: VoteRequest,
        promise: ViewPromise,
    ) {
        let n = group.settings.processes;
        let from = GroupMember { pid: request.from, life: promise.life };
        let sound = match &promise.standing {
            PromiserStatus::Outsider => true,
            PromiserStatus::Member { have, .. } => {
                have.len() == n && group.view.members.contains(&from)
            }
        };
        let sound = sound && promise.accepted.as_ref().is_none_or(|(_, p)| p.is_sound(n));
        let Some(change) = &mut self.change else { return };
        if request.instance != instance(group) || request.ballot != change.ballot || !sound {
            return;
        }
        if change.proposal.is_none() {
            change.promises[request.from.index()] = Some(promise);
        }
    }

    /// Second phase, once enough have promised and this process has what the view ends with.
    fn propose(
        &mut self,
        group: &GroupMembership,
        log: &CastLog,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        let change = self.change.as_mut()?;
        if change.proposal.is_none() {
            change.choose(group);
        }
        let proposal = change.proposal.clone()?;
        if change.accepting {
            return None;
        }
        if !log.has_all(&proposal.cut) {
            if !change.adopted && change.has_lost(group, &proposal) {
                // Nobody knows of the proposal yet.
                return Some(self.prepare(group));
            }
            return Some(AgreementStep::Fetch(proposal.cut));
        }
        self.vote.accepted = Some((change.ballot, proposal));
        change.accepting = true;
        change.accepted[group.me().index()] = true;
        change.retry_at = group.now + group.settings.retry;
        change.repeat(group, post);
        self.decide_if_accepted(group, post)
    }

    pub(super) fn on_accepted(&mut self, group: &GroupMembership, request: VoteRequest) {
        let Some(change) = &mut self.change else { return };
        let asked = request.instance == instance(group) && request.ballot == change.ballot;
        if asked && change.accepting {
            // Perhaps the last that others wait for.
            if !core::mem::replace(&mut change.accepted[request.from.index()], true) {
                change.retry_at = group.now;
            }
        }
    }

    /// The decision, if a majority has accepted the proposal; all others get it, too.
    pub(crate) fn decide_if_accepted(
        &self,
        group: &GroupMembership,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        let change = self.change.as_ref()?;
        let accepted = change.accepted.iter().filter(|a| **a).count();
        if accepted < PrimaryComponent(group).quorum() {
            return None;
        }
        // Each survivor knows of this, so that the next decision continues it.
        let open = |m: &GroupMember| !change.accepted[m.pid.index()] && !group.failed(*m);
        let are_all_asked = group.settings.quorum == ViewQuorum::Survivors;
        if are_all_asked && group.view.members.iter().any(open) {
            return None;
        }
        let ViewProposal { members, cut } = change.proposal.clone()?;
        let view = View::new(instance(group), members);
        let decision = ViewDecision { view, cut };
        group.peers().for_each(|to| post.push(to, PacketItem::Decide(decision.clone())));
        Some(AgreementStep::Decided(decision))
    }
}
