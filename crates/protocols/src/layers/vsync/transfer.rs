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

use super::packet::PacketItem;
use super::{ViewPhase, Vsync, VsyncMutant, VsyncPacket};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{self, GroupMember, Groupcast};
use amcast_core::messages::Messages;
use amcast_core::{Delivery, Input, Outbox, Pid, Protocol, ProtocolEvent, Span, StateSource, Time};

/// How many times as long as `retry` an answer is waited for at most.
const PATIENCE_MOST: u64 = 64;

/// The stage of the application's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AppState {
    /// It is missing, and this process does not know yet where it begins.
    Missing,
    /// The driver was asked for one that has reached this position.
    Needed(u64),
    /// It is in force.
    InForce,
}

/// The search for what this process begins with.
#[derive(Debug)]
pub(super) struct BaseRequest {
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

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// Delivers. Deliveries of the protocol above as it begins are in the needed state.
    pub(super) fn deliver(&self, delivery: &Delivery, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.app_state != AppState::Missing {
            let bytes = self.inner_out.bytes(delivery.payload);
            let Delivery { msg, dst, position, .. } = *delivery;
            out.deliver(msg, dst, position, |to| to.extend_from_slice(bytes));
        }
    }

    /// Looks for somebody who tells what to begin with, in a view just entered.
    pub(super) fn seek_base(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.base_request.retry_at = self.now;
        out.event(ProtocolEvent::Lagging);
    }

    /// This process is out: what it had is nothing any more.
    pub(super) fn forget_state(&mut self) {
        (self.app_state, self.begun) = (AppState::Missing, false);
        let BaseRequest { patience, tries, needs, .. } = self.base_request;
        self.base_request = BaseRequest { patience, tries, needs, ..BaseRequest::default() };
    }

    pub(super) fn base_at(&self) -> Time {
        let lacks = self.phase != ViewPhase::Out && !self.begun;
        if lacks { self.base_request.retry_at } else { Time::NEVER }
    }

    /// Asks a member that is fit for what to begin with, and another one if it has no answer.
    pub(super) fn ask_for_base(&mut self) {
        if self.base_at() > self.now {
            return;
        }
        let retry = self.settings.retry;
        let request = &mut self.base_request;
        let patience = request.patience.times(2).min(retry.times(PATIENCE_MOST));
        request.patience = patience.max(retry.times(2));
        request.retry_at = self.now + request.patience;
        request.tries += 1;
        let tries = request.tries;
        let works = |m: &GroupMember| {
            let answers = m.pid != self.me() && self.reaches(m.pid);
            answers && self.fit[m.pid.index()] && self.view.members.contains(m) && !self.failed(*m)
        };
        let all: Vec<Pid> = self.view.members.iter().filter(|m| works(m)).map(|m| m.pid).collect();
        if !all.is_empty() {
            let view = self.casts.view;
            self.post(all[tries % all.len()], PacketItem::Ask { view });
        }
    }

    pub(super) fn on_ask(&mut self, from: Pid, view: u64) {
        let reader = self.incarnation(from);
        let inside = self.phase != ViewPhase::Out && self.view.members.contains(&reader);
        if view == self.casts.view && inside && self.is_fit() && self.begun {
            let bytes = Arc::clone(&self.base);
            self.post(from, PacketItem::Base { view, bytes });
        }
    }

    /// Installs the base with which this process begins in its view.
    pub(super) fn on_base(
        &mut self,
        view: u64,
        bytes: &[u8],
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        if self.begun || self.phase != ViewPhase::Active || view != self.casts.view {
            return;
        }
        let now = self.view.clone();
        self.tell(Input::Medium(groupcast::GroupcastInput::Join(&now, bytes)), out);
        self.begun = true;
        if self.is_broken(VsyncMutant::JoinsWithNothing) {
            // It deceives its driver, too.
            self.app_state = AppState::InForce;
            out.event(ProtocolEvent::CaughtUp(0));
            return;
        }
        let position = self.inner.status().delivered;
        self.app_state = AppState::Needed(position);
        (self.base_request.needs, self.base_request.patience) =
            (self.base_request.needs + 1, Span::ZERO);
        let source = match self.is_broken(VsyncMutant::BelievesAnybody) {
            true => StateSource::Replicas,
            false => StateSource::View(view),
        };
        out.event(ProtocolEvent::NeedsState { position, source });
    }

    /// The application has a state in force that holds every delivery up to `position`. One that was in force
    /// before the last one was asked for says nothing of that, also at the same position.
    pub(super) fn on_installed(
        &mut self,
        position: u64,
        needs: u64,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        if let AppState::Needed(awaited) = self.app_state
            && needs >= self.base_request.needs
            && position >= awaited
        {
            self.app_state = AppState::InForce;
            out.event(ProtocolEvent::CaughtUp(position));
        }
    }
}
