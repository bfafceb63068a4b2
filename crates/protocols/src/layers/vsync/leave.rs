//! Leaving by choice: a member that is about to stop says so, and the next view is without it at once.
//!
//! It stops taking submissions, waits until all that it has sent is delivered here and is held by all
//! members that work, and announces that it leaves. The coordinator proposes a view without it; its
//! messages count for the cut, as those of any other member. Once it knows that view it waits until
//! the others are in it, so that none of them needs a message that only the leaver could retransmit.
//!
//! Members leave in the order of seniority, and only as long as a majority of the configured processes
//! stays that has the state: beyond that there is nothing to gain by waiting.

use super::agreement::PrimaryComponent;
use super::membership::{LeaveProgress, ViewPhase};
use super::packet::PacketItem;
use super::{Vsync, VsyncPacket};
use amcast_core::codec::Codec;
use amcast_core::groupcast::Groupcast;
use amcast_core::messages::Messages;
use amcast_core::{Outbox, Pid, Protocol, ProtocolEvent, Time};

/// How many retries one that has left waits for the others to be in the view without it, at most.
const LINGER_RETRIES: u64 = 16;

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// The driver asks this process to leave.
    pub(super) fn on_leave(&mut self) {
        if self.group.leaving == LeaveProgress::No {
            self.group.leaving = LeaveProgress::Asked { again: self.group.now };
        }
    }

    /// A member says that it leaves; the last view that it knows of.
    pub(super) fn on_left(&mut self, from: Pid, view: u64) {
        self.group.requests.leaves[from.index()] = Some(self.group.peers.life(from));
        self.group.catch_up(from, view, &mut self.post);
    }

    /// Whether this process has announced that it leaves, and all that it has is in the cut of the view
    /// that it leaves in. If not, it was excluded for its silence, and may have casts that nobody else has.
    pub(super) fn leaves_with(&self, cut: &[u64]) -> bool {
        self.group.requests.leaves(self.group.myself()) && self.casts.log.is_within(cut)
    }

    /// Whether all that it has sent is delivered here, and held by all members that work. While its
    /// state is on its way to it, deliveries only wait.
    fn is_drained(&self) -> bool {
        let delivered = self.inner.status().backlog == 0;
        let works = self.group.is_fit() && PrimaryComponent(&self.group).is_primary();
        delivered && works && self.casts.is_drained(&self.group)
    }

    /// When there is something to do about leaving.
    pub(super) const fn leave_at(&self) -> Time {
        match self.group.leaving {
            LeaveProgress::Asked { again } if matches!(self.group.phase, ViewPhase::Active) => {
                again
            }
            LeaveProgress::Gone { until } => until,
            _ => Time::NEVER,
        }
    }

    /// Announces that it leaves, and says when it may stop.
    pub(super) fn continue_leaving(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        let now = self.group.now;
        match (self.group.leaving, self.group.phase) {
            (LeaveProgress::Asked { .. }, ViewPhase::Out) => self.may_stop(out),
            (LeaveProgress::Asked { again }, ViewPhase::Active) if again <= now => {
                let again = now + self.group.settings.retry;
                self.group.leaving = LeaveProgress::Asked { again };
                if self.is_drained() {
                    self.announce(out);
                }
            }
            (LeaveProgress::Gone { until }, _) => {
                let attendance = &self.group.attendance;
                let view = &self.group.decision.view;
                if until <= now || view.pids().all(|p| attendance.has_seen(p)) {
                    out.event(ProtocolEvent::Left(view.id));
                    self.group.leaving = LeaveProgress::Done;
                }
            }
            _ => {}
        }
    }

    fn announce(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        let group = &mut self.group;
        group.requests.leaves[group.settings.me.index()] = Some(group.life);
        if !PrimaryComponent(group).grants_leaving() {
            return self.may_stop(out);
        }
        let view = group.decision.view.id;
        group.others().for_each(|to| self.post.push(to, PacketItem::Leave { view }));
    }

    fn may_stop(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.group.leaving = LeaveProgress::Done;
        out.event(ProtocolEvent::MayStop(self.group.decision.view.id));
    }

    /// The view without this process, which had announced that it leaves, is decided.
    pub(super) fn go(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.block(out);
        self.group.phase = ViewPhase::Out;
        // One that has said that it may stop counts as failed: it reports nothing more of its leaving.
        if self.group.leaving != LeaveProgress::Done {
            let until = self.group.now + self.group.settings.retry.times(LINGER_RETRIES);
            self.group.leaving = LeaveProgress::Gone { until };
        }
        self.end_membership();
        self.group.attendance.forget_seen();
    }

    /// Tells those that have left that this process is in a view without them.
    pub(super) fn tell_left(&mut self) {
        let group = &self.group;
        let (view, fit) = (group.decision.view.id, group.is_fit());
        let left =
            |p: &Pid| !group.view.has(*p) && group.requests.leaves(group.peers.incarnation(*p));
        group
            .peers()
            .filter(left)
            .for_each(|to| self.post.push(to, PacketItem::Alive { view, fit }));
    }
}
