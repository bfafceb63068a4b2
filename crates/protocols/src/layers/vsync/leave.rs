//! Leaving by choice: a member that is about to stop says so, and the next view is without it at once.
//!
//! It stops taking submissions, waits until all that it has sent is delivered here and is held by all
//! members that work, and announces that it leaves. The coordinator proposes a view without it; its
//! messages count for the cut, as those of any other member. Once it knows that view it waits until
//! the others are in it, so that none of them needs a message that only the leaver could retransmit.
//!
//! Members leave in the order of seniority, and only as long as a majority of the configured processes
//! stays that has the state: beyond that there is nothing to gain by waiting.

use super::packet::PacketItem;
use super::{ViewPhase, Vsync, VsyncPacket};
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{GroupMember, Groupcast};
use amcast_core::messages::Messages;
use amcast_core::{Outbox, Pid, Protocol, ProtocolEvent, Time};

/// How many retries one that has left waits for the others to be in the view without it, at most.
const LINGER_RETRIES: u64 = 16;

/// How far this process is with leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaveProgress {
    /// It was not asked to.
    No,
    /// It was asked to; it announces it when all is sent, and again at this time.
    Asked { again: Time },
    /// It knows the view without it, and waits for the others until then.
    Gone { until: Time },
    /// It has said that it may stop.
    Done,
}

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// Whether this process takes no part any more, because it has left.
    pub(super) const fn has_left(&self) -> bool {
        matches!(self.phase, ViewPhase::Out)
            && matches!(self.leaving, LeaveProgress::Gone { .. } | LeaveProgress::Done)
    }

    /// The driver asks this process to leave.
    pub(super) fn on_leave(&mut self) {
        if self.leaving == LeaveProgress::No {
            self.leaving = LeaveProgress::Asked { again: self.now };
        }
    }

    /// A member says that it leaves; the last view that it knows of.
    pub(super) fn on_left(&mut self, from: Pid, view: u64) {
        self.leaves[from.index()] = Some(self.lives[from.index()]);
        self.catch_up(from, view);
    }

    /// Whether a member has announced that it leaves.
    fn leaves(&self, member: GroupMember) -> bool {
        self.leaves[member.pid.index()] == Some(member.life)
    }

    /// Whether the next view should be without some member because it leaves.
    pub(super) fn somebody_leaves(&self) -> bool {
        self.view.members.iter().any(|m| self.leaves(*m)) && {
            let mut members = self.view.members.clone();
            self.spare_leavers(&mut members, |m| self.shows_state(m));
            members.len() < self.view.members.len()
        }
    }

    /// Drops members that leave, the most senior first, as long as a quorum stays that has the state.
    pub(super) fn spare_leavers(
        &self,
        members: &mut Vec<GroupMember>,
        has_state: impl Fn(&GroupMember) -> bool,
    ) {
        let mut copies = members.iter().filter(|m| has_state(m)).count();
        members.retain(|m| {
            let left = copies - usize::from(has_state(m));
            let goes = self.leaves(*m) && left >= self.quorum();
            if goes {
                copies = left;
            }
            !goes
        });
    }

    /// Whether this process has announced that it leaves, and all that it has is in the cut of the view
    /// that it leaves in. If not, it was excluded for its silence, and may have casts that nobody else has.
    pub(super) fn leaves_with(&self, cut: &[u64]) -> bool {
        let covered = |(p, &upto): (usize, &u64)| self.casts.have(Pid(p as u32)) <= upto;
        let announced = self.leaves[self.me().index()] == Some(self.life);
        announced && cut.iter().enumerate().all(covered)
    }

    /// Whether all that it has sent is delivered here, and held by all members that work. While its
    /// state is on its way to it, deliveries only wait.
    fn is_drained(&self) -> bool {
        let mine = self.casts.have(self.me());
        let has = |m: &GroupMember| {
            m.pid == self.me() || self.failed(*m) || self.casts.acked(m.pid, self.me()) >= mine
        };
        let sent = self.queue.is_empty() && self.inner.status().backlog == 0;
        sent && self.is_fit() && self.is_primary() && self.view.members.iter().all(has)
    }

    /// When there is something to do about leaving.
    pub(super) const fn leave_at(&self) -> Time {
        match self.leaving {
            LeaveProgress::Asked { again } if matches!(self.phase, ViewPhase::Active) => again,
            LeaveProgress::Gone { until } => until,
            _ => Time::NEVER,
        }
    }

    /// Announces that it leaves, and says when it may stop.
    pub(super) fn go_on_leaving(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        match (self.leaving, self.phase) {
            (LeaveProgress::Asked { .. }, ViewPhase::Out) => self.may_stop(out),
            (LeaveProgress::Asked { again }, ViewPhase::Active) if again <= self.now => {
                self.leaving = LeaveProgress::Asked { again: self.now + self.settings.retry };
                if self.is_drained() {
                    self.announce(out);
                }
            }
            (LeaveProgress::Gone { until }, _) => {
                let mut others = self.decision.view.pids();
                if until <= self.now || others.all(|p| self.seen[p.index()]) {
                    self.leaving = LeaveProgress::Done;
                    out.event(ProtocolEvent::Left(self.decision.view.id));
                }
            }
            _ => {}
        }
    }

    fn announce(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.leaves[self.settings.me.index()] = Some(self.life);
        if !self.is_granted() {
            return self.may_stop(out);
        }
        let view = self.decision.view.id;
        for to in self.others().collect::<Vec<_>>() {
            self.post(to, PacketItem::Leave { view });
        }
    }

    /// Whether this process is among those whose leaving is granted, as far as it knows.
    fn is_granted(&self) -> bool {
        let me = GroupMember { pid: self.me(), life: self.life };
        let has_state = |m: &GroupMember| *m == me || self.fit[m.pid.index()] && !self.failed(*m);
        let mut members = self.view.members.clone();
        self.spare_leavers(&mut members, has_state);
        !members.contains(&me)
    }

    fn may_stop(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.leaving = LeaveProgress::Done;
        out.event(ProtocolEvent::MayStop(self.decision.view.id));
    }

    /// The view without this process, which had announced that it leaves, is decided.
    pub(super) fn go(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.block(out);
        self.phase = ViewPhase::Out;
        // One that has said that it may stop counts as failed: it reports nothing more of its leaving.
        if self.leaving != LeaveProgress::Done {
            let until = self.now + self.settings.retry.times(LINGER_RETRIES);
            self.leaving = LeaveProgress::Gone { until };
        }
        self.put_casts_away();
        self.forget_state();
        self.seen.fill(false);
    }

    /// A process has entered this view. Those that have left it wait for that.
    pub(super) fn note_entered(&mut self, from: Pid, view: u64) {
        if self.has_left() && view >= self.decision.view.id {
            self.seen[from.index()] = true;
        }
    }

    /// Tells those that have left that this process is in a view without them.
    pub(super) fn tell_left(&mut self) {
        let (view, fit) = (self.decision.view.id, self.is_fit());
        let left =
            |p: &Pid| !self.view.has(*p) && self.leaves[p.index()] == Some(self.lives[p.index()]);
        for to in self.peers().filter(left).collect::<Vec<_>>() {
            self.post(to, PacketItem::Alive { view, fit });
        }
    }
}
