//! The acceptor of the agreement: promises of this process, and the proposal that it has accepted.

use super::{
    AgreementStep, BlockedFor, PromiserStatus, ViewAgreement, ViewBallot, ViewProposal, instance,
};
use crate::layers::vsync::casts::CastLog;
use crate::layers::vsync::membership::{GroupMembership, ViewPhase};
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use amcast_core::Pid;

/// The promise and acceptance of this process for the view after the last decided one.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewAcceptor {
    /// The first view it may vote on; at those before it has perhaps forgotten what it promised.
    pub(super) first: u64,
    pub(super) promised: ViewBallot,
    pub(super) accepted: Option<(ViewBallot, ViewProposal)>,
}

/// The view and the ballot that a message on a vote is about, and its sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct VoteRequest {
    pub(super) from: Pid,
    pub(super) instance: u64,
    pub(super) ballot: ViewBallot,
}

/// The status of this process in the view that ends.
pub(super) fn status(group: &GroupMembership, log: &CastLog) -> PromiserStatus {
    match group.phase {
        ViewPhase::Out => PromiserStatus::Outsider,
        _ => PromiserStatus::Member { fit: group.is_fit(), have: log.all() },
    }
}

impl ViewAgreement {
    /// Whether this process votes as it is asked to. If not, it tells the coordinator why, where that helps.
    fn heeds(
        &self,
        group: &GroupMembership,
        request: VoteRequest,
        is_sound: bool,
        post: &mut OutgoingPackets,
    ) -> bool {
        let VoteRequest { from, instance: asked, ballot } = request;
        if asked <= group.decision.view.id {
            group.catch_up(from, asked.saturating_sub(1), post);
            return false;
        }
        let may = asked == instance(group) && asked >= self.vote.first && !group.has_left();
        let is_sound = is_sound && ballot.is_sound(group.settings.processes);
        if !may || !is_sound || group.phase == ViewPhase::Entering {
            return false;
        }
        let promised = self.vote.promised;
        let refuses = ballot < promised;
        if refuses {
            post.push(from, PacketItem::Refuse { instance: asked, promised });
        }
        !refuses
    }

    /// Promises a ballot: from here on this process takes nothing in. A `Prepare` that is sent again gives
    /// its coordinator no more time: the coordinator may hear no answer, ever.
    pub(super) fn promise(&mut self, group: &GroupMembership, ballot: ViewBallot) {
        if ballot > self.vote.promised {
            self.blocked_at = group.now;
        }
        self.vote.promised = ballot;
    }

    pub(super) fn on_prepare(
        &mut self,
        group: &GroupMembership,
        request: VoteRequest,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        self.heeds(group, request, true, post).then(|| {
            self.promise(group, request.ballot);
            AgreementStep::Block(BlockedFor::Promise(request.from))
        })
    }

    /// Answers the coordinator whose ballot was promised.
    pub(super) fn send_promise(
        &self,
        group: &GroupMembership,
        log: &CastLog,
        to: Pid,
        post: &mut OutgoingPackets,
    ) {
        let (accepted, standing) = (self.vote.accepted.clone(), status(group, log));
        let (instance, ballot) = (instance(group), self.vote.promised);
        post.push(to, PacketItem::Promise { instance, ballot, accepted, standing });
    }

    pub(super) fn on_accept(
        &mut self,
        group: &GroupMembership,
        request: VoteRequest,
        proposal: ViewProposal,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        let is_sound = proposal.is_sound(group.settings.processes);
        self.heeds(group, request, is_sound, post).then(|| {
            self.promise(group, request.ballot);
            AgreementStep::Block(BlockedFor::Acceptance(request.from, proposal))
        })
    }

    /// Accepts a proposal in the ballot that was promised, once this process has what the view ends with.
    pub(super) fn accept(
        &mut self,
        group: &GroupMembership,
        log: &CastLog,
        to: Pid,
        proposal: ViewProposal,
        post: &mut OutgoingPackets,
    ) -> Option<AgreementStep> {
        if group.phase == ViewPhase::Blocked && !log.has_all(&proposal.cut) {
            // A member that accepts has it all: otherwise a decided cut could be lost with its coordinator.
            return Some(AgreementStep::Fetch(proposal.cut));
        }
        let (instance, ballot) = (instance(group), self.vote.promised);
        self.vote.accepted = Some((ballot, proposal));
        post.push(to, PacketItem::Accepted { instance, ballot });
        None
    }
}
