//! The needs of a joiner: the *base* with which its protocol begins, from a member that is caught
//! up; and the application's state, which its driver fetches.
//!
//! ```text
//! in a view, without base --Ask--> a fit member, another one after a while
//!                         <--Base--
//! the protocol begins: NeedsState(where the base stands, from members of this view)
//!                      what it delivers from here on waits for the state, at the driver's
//! Input::Installed: fit
//! ```
//! A member may have been handed plain casts that nobody else has, and die with them. So the driver puts a state
//! in force only when this process has delivered as much as is in it, and believes nobody who did not continue
//! from view to view ([`StateSource::View`]).

use super::membership::{AppState, GroupMembership, ViewPhase};
use super::packet::PacketItem;
use super::packing::OutgoingPackets;
use super::{VsyncMutant, VsyncPacket};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::groupcast::GroupMember;
use amcast_core::messages::Messages;
use amcast_core::{Outbox, Pid, ProtocolEvent, Span, StateSource, Time};

/// How many times as long as `retry` an answer is waited for at most.
const PATIENCE_MOST: u64 = 64;

/// The search for what this process begins with.
#[derive(Debug)]
struct BaseRequest {
    retry_at: Time,
    /// How long the next answer may take before another member is asked: it doubles with each that does not
    /// come in time.
    patience: Span,
    /// How often it asked.
    tries: usize,
    /// How many states this incarnation has requested from its driver: the report of an installed
    /// state answers so many.
    needs: u64,
}

impl Default for BaseRequest {
    fn default() -> Self {
        Self { retry_at: Time::NEVER, patience: Span::ZERO, tries: 0, needs: 0 }
    }
}

/// The begin of a joiner in its view, and help for other joiners.
#[derive(Debug)]
pub(super) struct JoinTransfer {
    /// Whether the protocol above has begun in this life.
    begun: bool,
    /// The join state for members that join in this view.
    base: Arc<[u8]>,
    request: BaseRequest,
}

impl JoinTransfer {
    /// Before the start.
    pub(super) fn new() -> Self {
        Self { begun: false, base: Arc::from(&[][..]), request: BaseRequest::default() }
    }

    /// Whether the protocol above has begun in this life.
    pub(super) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// The protocol above begins, with nothing or with the base.
    pub(super) const fn begin(&mut self) {
        self.begun = true;
    }

    /// The protocol above gives the base of this view.
    pub(super) fn set_base(&mut self, bytes: &[u8]) {
        self.base = Arc::from(bytes);
    }

    /// A view begins, of which nobody knows the base yet.
    pub(super) fn forget_base(&mut self) {
        self.base = Arc::from(&[][..]);
    }

    /// Looks for somebody who tells what to begin with, in a view just entered.
    pub(super) const fn seek_base(&mut self, now: Time) {
        self.request.retry_at = now;
    }

    /// This process is out: what it had is nothing any more.
    pub(super) const fn forget(&mut self) {
        self.begun = false;
        self.request.retry_at = Time::NEVER;
    }

    /// When a member is asked for the base, or another one.
    pub(super) fn deadline(&self, group: &GroupMembership) -> Time {
        let is_missing = group.phase != ViewPhase::Out && !self.begun;
        if is_missing { self.request.retry_at } else { Time::NEVER }
    }

    /// Asks a member that is fit for what to begin with, and another one if it has no answer.
    pub(super) fn ask_for_base(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        if self.deadline(group) > group.now {
            return;
        }
        let retry = group.settings.retry;
        let request = &mut self.request;
        let patience = request.patience.times(2).min(retry.times(PATIENCE_MOST));
        request.patience = patience.max(retry.times(2));
        request.retry_at = group.now + request.patience;
        request.tries += 1;
        let works = |m: &GroupMember| {
            let answers = m.pid != group.me() && group.reaches(m.pid);
            answers && group.peers.is_fit(m.pid) && !group.failed(*m)
        };
        let members = &group.view.members;
        let all: Vec<Pid> = members.iter().filter(|m| works(m)).map(|m| m.pid).collect();
        if !all.is_empty() {
            let view = group.view.id;
            post.push(all[request.tries % all.len()], PacketItem::Ask { view });
        }
    }

    /// A joiner asks for the base.
    pub(super) fn on_ask(
        &self,
        group: &GroupMembership,
        from: Pid,
        view: u64,
        post: &mut OutgoingPackets,
    ) {
        let reader = group.peers.incarnation(from);
        let inside = group.phase != ViewPhase::Out && group.view.members.contains(&reader);
        if view == group.view.id && inside && group.is_fit() && self.begun {
            let bytes = Arc::clone(&self.base);
            post.push(from, PacketItem::Base { view, bytes });
        }
    }

    /// Whether this process awaits the base of this view.
    pub(super) fn awaits_base(&self, group: &GroupMembership, view: u64) -> bool {
        !self.begun && group.phase == ViewPhase::Active && view == group.view.id
    }

    /// The protocol above has begun with the base: the driver is asked for the application's state as of `position`.
    pub(super) fn need_state(
        &mut self,
        group: &mut GroupMembership,
        position: u64,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        self.begun = true;
        if group.is_broken(VsyncMutant::JoinsWithNothing) {
            // It deceives its driver, too.
            group.app_state = AppState::InForce;
            out.event(ProtocolEvent::CaughtUp(0));
            return;
        }
        group.app_state = AppState::Needed(position);
        (self.request.needs, self.request.patience) = (self.request.needs + 1, Span::ZERO);
        let source = match group.is_broken(VsyncMutant::BelievesAnybody) {
            true => StateSource::Replicas,
            false => StateSource::View(group.view.id),
        };
        out.event(ProtocolEvent::NeedsState { position, source });
    }

    /// The application has a state in force that holds every delivery up to `position`. One that was in force
    /// before the last one was asked for says nothing of that, also at the same position.
    pub(super) fn on_installed(
        &self,
        group: &mut GroupMembership,
        position: u64,
        needs: u64,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        if let AppState::Needed(awaited) = group.app_state
            && needs >= self.request.needs
            && position >= awaited
        {
            group.app_state = AppState::InForce;
            out.event(ProtocolEvent::CaughtUp(position));
        }
    }
}
