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

use super::{CastTransport, RetainedCast};
use crate::layers::vsync::membership::{GroupMembership, ViewPhase};
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use amcast_core::Pid;

#[cfg(doc)]
use amcast_core::groupcast::GroupcastInput;

/// A cast of a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CastId {
    pub(crate) sender: Pid,
    /// The sender's number of it.
    pub(crate) number: u64,
}

/// A message's place on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkPlace {
    pub(crate) view: u64,
    /// It is the so-manyth message on the link in that view.
    pub(crate) link: u64,
}

/// A message to one member.
#[derive(Clone, Debug)]
pub(crate) enum LinkMessage {
    /// A part of a message of the protocol above; the next one continues it if there is `more`.
    Part { more: bool, bytes: Arc<[u8]> },
    /// A cast on its first lap.
    Cast { cast: CastId, kept: RetainedCast },
    /// On the second lap: this cast is stable, and all before it of its sender.
    Stable(CastId),
}

impl LinkMessage {
    /// The so-manyth message to a member in this view.
    pub(crate) fn into_item(self, view: u64, link: u64) -> PacketItem {
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

    /// Whether it only says that a cast is stable, without contents.
    pub(crate) const fn is_notice(&self) -> bool {
        matches!(self, Self::Stable(_))
    }

    /// Bytes of its contents.
    pub(crate) fn len(&self) -> usize {
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
pub(crate) enum RingArrival {
    /// This cast came, or was made here.
    Cast(CastId),
    /// This cast is stable.
    Stable(CastId),
}

/// The arrivals on the ring that are not handled yet, in order.
#[derive(Debug, Default)]
pub(crate) struct RingArrivals(VecDeque<RingArrival>);

impl RingArrivals {
    /// The view ends: nothing more is forwarded in it.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The way of a cast along the ring at this member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingStage {
    /// Whether a message ends with it: no part of that follows.
    pub(crate) is_whole: bool,
    /// Whether this member has it last, and so knows that it is stable.
    pub(crate) is_last: bool,
}

impl CastTransport {
    /// Sends a message to the successor.
    fn send_on_ring(
        &mut self,
        group: &GroupMembership,
        message: LinkMessage,
        post: &mut OutgoingPackets,
    ) {
        let to = group.behind(group.me(), 1);
        if to != group.me() {
            self.send_messages(group, to, [message], post);
        }
    }

    /// Makes a cast: it is on the link at once.
    pub(super) fn cast_on_ring(
        &mut self,
        group: &GroupMembership,
        kept: RetainedCast,
        post: &mut OutgoingPackets,
    ) {
        let sender = group.me();
        let number = self.log.push(sender, kept.clone());
        self.log.ack_own(sender);
        let cast = CastId { sender, number };
        self.send_on_ring(group, LinkMessage::Cast { cast, kept }, post);
        self.ring.0.push_back(RingArrival::Cast(cast));
    }

    /// Whether a message of `from` with so many bytes is the next one on the ring; then it is acknowledged, too.
    fn is_next_on_ring(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        place: LinkPlace,
        bytes: usize,
    ) -> bool {
        let inside = place.view == self.log.view && group.phase == ViewPhase::Active;
        inside && group.predecessor() == Some(from) && self.is_next(group, from, place.link, bytes)
    }

    /// A cast came from the predecessor.
    ///
    /// # Errors
    /// If no member sends such a cast there.
    pub(crate) fn on_forward(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        place: LinkPlace,
        cast: CastId,
        kept: RetainedCast,
    ) -> Result<(), &'static str> {
        let bytes = kept.bytes.len();
        if !self.is_next_on_ring(group, from, place, bytes) {
            return Ok(());
        }
        let CastId { sender, number } = cast;
        let others = group.view.has(sender) && sender != group.me();
        if !others || number != self.log.have(sender) + 1 {
            return Err("a cast on the ring that is not next");
        }
        // Where the window is full it comes again.
        if self.log.take(sender, number, kept, false) {
            self.take_next(from, bytes);
            self.ring.0.push_back(RingArrival::Cast(cast));
        }
        Ok(())
    }

    /// The predecessor says that casts are stable.
    ///
    /// # Errors
    /// If this member does not have them.
    pub(crate) fn on_stable(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        place: LinkPlace,
        cast: CastId,
    ) -> Result<(), &'static str> {
        if !self.is_next_on_ring(group, from, place, 0) {
            return Ok(());
        }
        if !group.view.has(cast.sender) || cast.number > self.log.have(cast.sender) {
            return Err("a stable cast that is not here");
        }
        self.take_next(from, 0);
        self.ring.0.push_back(RingArrival::Stable(cast));
        Ok(())
    }

    /// The next arrival on the ring that is not handled yet.
    pub(crate) fn next_arrival(&mut self) -> Option<RingArrival> {
        self.ring.0.pop_front()
    }

    /// Forwards a cast, or says that it is stable where it came last. None if it is not here any more.
    pub(crate) fn forward(
        &mut self,
        group: &GroupMembership,
        cast: CastId,
        post: &mut OutgoingPackets,
    ) -> Option<RingStage> {
        let CastId { sender, number } = cast;
        let kept = self.log.get(sender, number).cloned()?;
        let is_whole = !kept.more;
        let is_last = group.last_of(sender) == group.me();
        if is_last {
            self.log.ack_own(group.me());
            self.log.ack_all(&group.members, sender, number);
        }
        if is_last && is_whole {
            self.send_on_ring(group, LinkMessage::Stable(cast), post);
        } else if !is_last && sender != group.me() {
            self.send_on_ring(group, LinkMessage::Cast { cast, kept }, post);
        }
        Some(RingStage { is_whole, is_last })
    }

    /// A cast is stable: says so to the successor, unless that one was the first to know.
    pub(crate) fn forward_stable(
        &mut self,
        group: &GroupMembership,
        cast: CastId,
        post: &mut OutgoingPackets,
    ) {
        self.log.ack_all(&group.members, cast.sender, cast.number);
        if group.behind(group.me(), 1) != group.last_of(cast.sender) {
            self.send_on_ring(group, LinkMessage::Stable(cast), post);
        }
    }
}
