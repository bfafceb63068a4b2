//! Casts along a ring: each member sends to its successor alone, so that each payload travels each link once, and all
//! links carry payloads at a time. The protocol `lcr` orders such casts.
//!
//! The members of a view are a ring in the order of seniority; behind the last one comes the first one. A member sends
//! its cast to its successor, and each one forwards it, up to the predecessor of its sender. That one knows that all
//! have it: the cast is *stable*. It says so to its successor, and on this second lap each member learns it.
//! ```text
//! p0 --cast--> p1 --cast--> p2 ---.        first lap: p2, the predecessor of p0, has it last
//!  ^                              |
//!  \----------- stable -----------'
//! p0 --stable--> p1                        second lap, up to the predecessor of p2
//! ```
//!
//! # Laws
//! Both travel as messages to one member do (`retransmission.rs`): in order and once, also over links that break. A
//! member handles one after the other: it forwards a cast of any grade, then its protocol is handed it
//! ([`GroupcastInput::From`]). The casts that the protocol makes in turn are behind it on the link. So
//! 1. casts arrive in causal order: a member that is handed a cast was handed all casts that its sender had been handed;
//! 2. when a member learns that a cast is stable ([`GroupcastInput::Stable`]), it has been handed every cast that its
//!    sender made before that sender was handed the stable one.
//!
//! Acknowledgements with heartbeats say which members have which casts, too, and overtake the messages on the ring. They
//! decide which casts may be dropped, and never that a cast is stable.
//!
//! # When the view ends
//! A stable cast was forwarded by all members, so each of them has it when it promises to end the view: it is in the
//! cut. Members fetch what they miss of the cut as they do without a ring.
//!
//! # Limits
//! A member that hears no majority, or that joins and does not know yet where it begins, forwards nothing: the casts
//! wait there. No own cast waits before it is on the link, or it would leave after others that its protocol had not been
//! handed when it made it: the protocol above keeps to the window of casts.

use super::casts::{HeldCasts, RetainedCast};
use super::packet::PacketItem;
use super::{Dissemination, ViewPhase, Vsync, VsyncMutant, VsyncPacket};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{Groupcast, GroupcastInput};
use amcast_core::messages::Messages;
use amcast_core::step::Note;
use amcast_core::{Input, Outbox, Pid, Protocol};

/// A cast of a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CastId {
    pub(super) sender: Pid,
    /// The sender's number of it.
    pub(super) number: u64,
}

/// A message's place on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkPlace {
    pub(super) view: u64,
    /// It is the so-manyth message on the link in that view.
    pub(super) link: u64,
}

/// A message to one member.
#[derive(Clone, Debug)]
pub(super) enum LinkMessage {
    /// A part of a message of the protocol above; the next one continues it if there is `more`.
    Part { more: bool, bytes: Arc<[u8]> },
    /// A cast on its first lap.
    Cast { cast: CastId, kept: RetainedCast },
    /// On the second lap: this cast is stable, and all before it of its sender.
    Stable(CastId),
}

impl LinkMessage {
    /// The so-manyth message to a member in this view.
    pub(super) fn into_item(self, view: u64, link: u64) -> PacketItem {
        match self {
            Self::Part { more, bytes } => PacketItem::To { view, number: link, more, bytes },
            Self::Cast { cast: CastId { sender, number }, kept } => {
                PacketItem::Forward { view, link, sender, number, kept }
            }
            Self::Stable(CastId { sender, number }) => {
                PacketItem::Stable { view, link, sender, number }
            }
        }
    }

    /// Bytes of its contents.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Part { bytes, .. } | Self::Cast { kept: RetainedCast { bytes, .. }, .. } => {
                bytes.len()
            }
            Self::Stable(_) => 0,
        }
    }
}

/// An arrival on the ring.
#[derive(Clone, Copy, Debug)]
enum RingArrival {
    /// This cast came, or was made here.
    Cast(CastId),
    /// This cast is stable.
    Stable(CastId),
}

/// The arrivals on the ring that are not handled yet, in order.
#[derive(Debug, Default)]
pub(super) struct RingArrivals(VecDeque<RingArrival>);

impl RingArrivals {
    /// The view ends: nothing more is forwarded in it.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// Whether casts travel along a ring.
    pub(super) fn is_ring(&self) -> bool {
        self.settings.dissemination == Dissemination::Ring
    }

    /// The member that is so many places behind `p` on the ring.
    fn behind(&self, p: Pid, places: usize) -> Pid {
        let rank = self.view.rank(p).unwrap_or(0);
        self.members[(rank + places) % self.members.len()]
    }

    /// The member from which casts come, if they travel along a ring of more than this one.
    pub(super) fn predecessor(&self) -> Option<Pid> {
        let ring = self.is_ring() && self.members.len() > 1 && self.view.has(self.me());
        ring.then(|| self.last_of(self.me()))
    }

    /// The member that has the casts of `sender` last: its predecessor.
    fn last_of(&self, sender: Pid) -> Pid {
        self.behind(sender, self.members.len() - 1)
    }

    /// Sends a message to the successor.
    fn send_on_ring(&mut self, message: LinkMessage) {
        let to = self.behind(self.me(), 1);
        if to != self.me() {
            self.send_messages(to, [message]);
        }
    }

    /// Makes a cast: it is on the link at once.
    pub(super) fn cast_on_ring(&mut self, kept: RetainedCast) {
        let sender = self.me();
        let number = self.casts.push(sender, kept.clone());
        self.casts.ack_own(sender);
        let cast = CastId { sender, number };
        self.send_on_ring(LinkMessage::Cast { cast, kept });
        self.ring.0.push_back(RingArrival::Cast(cast));
    }

    /// Whether a message of `from` is the next one on the ring; then it is acknowledged, too.
    fn is_next_on_ring(&mut self, from: Pid, place: LinkPlace) -> bool {
        let inside = place.view == self.casts.view && self.phase == ViewPhase::Active;
        inside && self.predecessor() == Some(from) && self.is_next(from, place.link)
    }

    /// A cast came from the predecessor.
    pub(super) fn on_forward(
        &mut self,
        from: Pid,
        place: LinkPlace,
        cast: CastId,
        kept: RetainedCast,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        if !self.is_next_on_ring(from, place) {
            return;
        }
        let CastId { sender, number } = cast;
        let others = self.view.has(sender) && sender != self.me();
        if !others || number != self.casts.have(sender) + 1 {
            return out.note(Note::Malformed(from, "a cast on the ring that is not next"));
        }
        // Where the window is full it comes again.
        if self.casts.take(sender, number, kept, false) {
            self.take_next(from);
            self.ring.0.push_back(RingArrival::Cast(cast));
        }
    }

    /// The predecessor says that casts are stable.
    pub(super) fn on_stable(
        &mut self,
        from: Pid,
        place: LinkPlace,
        cast: CastId,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        if !self.is_next_on_ring(from, place) {
            return;
        }
        if !self.view.has(cast.sender) || cast.number > self.casts.have(cast.sender) {
            return out.note(Note::Malformed(from, "a stable cast that is not here"));
        }
        self.take_next(from);
        self.ring.0.push_back(RingArrival::Stable(cast));
    }

    /// Handles the arrivals on the ring, in order.
    pub(super) fn hand_over_arrivals(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        while self.phase == ViewPhase::Active
            && let Some(arrival) = self.ring.0.pop_front()
        {
            match arrival {
                RingArrival::Cast(cast) => self.hand_over_cast(cast, out),
                RingArrival::Stable(cast) => self.announce_cast(cast, out),
            }
        }
    }

    /// Forwards a cast, or says that it is stable where it came last, and hands it over.
    fn hand_over_cast(&mut self, cast: CastId, out: &mut Outbox<Messages<VsyncPacket>>) {
        let CastId { sender, number } = cast;
        let Some(kept) = self.casts.get(sender, number).cloned() else { return };
        let whole = !kept.more;
        let last = self.last_of(sender) == self.me();
        if last {
            self.casts.ack_own(self.me());
            self.casts.ack_all(&self.members, sender, number);
        }
        if last && whole {
            self.send_on_ring(LinkMessage::Stable(cast));
        } else if !last && sender != self.me() {
            self.send_on_ring(LinkMessage::Cast { cast, kept });
        }
        while let Some(kept) = self.casts.next(sender, HeldCasts::ANY, number) {
            self.give(sender, kept, out);
        }
        if whole && (last || self.is_broken(VsyncMutant::TrustsOne)) {
            self.tell(Input::Medium(GroupcastInput::Stable(sender)), out);
        }
    }

    /// Says to the successor that a cast is stable, unless that one was the first to know, and to the protocol above.
    fn announce_cast(&mut self, cast: CastId, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.casts.ack_all(&self.members, cast.sender, cast.number);
        if self.behind(self.me(), 1) != self.last_of(cast.sender) {
            self.send_on_ring(LinkMessage::Stable(cast));
        }
        if !self.is_broken(VsyncMutant::TrustsOne) {
            self.tell(Input::Medium(GroupcastInput::Stable(cast.sender)), out);
        }
    }
}
