//! Acknowledgements: which casts and messages this process has, told to the members that wait for it. They gather, and
//! leave with heartbeats, along with other messages, or by themselves at a bounded rate.

use super::CastTransport;
use super::collector::SingleAcks;
use super::retransmission::{PeerChannel, RetryStart};
use crate::layers::paced::{LinkLoad, PacedSends};
use crate::layers::vsync::membership::{GroupMembership, ViewPhase};
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use crate::layers::vsync::{VsyncPacket, VsyncSettings};
use alloc::vec::Vec;
use amcast_core::groupcast::Grade;
use amcast_core::{Pid, Span, Time};

/// Bytes that an acknowledgement occupies on a link where it leaves by itself, about.
const ACK_BYTES: usize = 128;

/// How many acknowledgements leave at least in the time after which casts without one are sent again.
pub(crate) const ACKS_IN_A_RETRY: u64 = 4;

/// When acknowledgements leave.
#[derive(Debug)]
pub(crate) struct Acknowledgements {
    /// Those to all members.
    sends: PacedSends,
    /// Those to single members; see `collector.rs`.
    pub(super) single: SingleAcks,
    /// The collector's: when it tells all members what all of them have.
    pub(super) held: PacedSends,
    /// The collector's: whether casts came that it acknowledges with the next message to all.
    pub(super) goes_along: bool,
    /// Whether deliveries wait until all members have a cast.
    pub(super) is_awaited: bool,
    /// The load of the link, where acknowledgements that leave by themselves take only of its spare bandwidth.
    load: Option<LinkLoad>,
    /// How far these are apart at most.
    interval_most: Span,
}

impl Acknowledgements {
    pub(super) fn new(settings: &VsyncSettings) -> Self {
        Self {
            sends: PacedSends::NONE,
            single: SingleAcks::NONE,
            held: PacedSends::NONE,
            goes_along: false,
            is_awaited: false,
            load: settings.link.map(LinkLoad::new),
            interval_most: Span(settings.retry.0 / ACKS_IN_A_RETRY),
        }
    }

    /// When they leave, at the latest; never if nobody waits for any.
    pub(crate) fn at(&self) -> Time {
        self.sends.at().min(self.single.at()).min(self.held.at())
    }

    /// When those to all members leave, likewise.
    pub(super) fn to_all_at(&self) -> Time {
        self.sends.at().min(self.held.at())
    }

    /// A cast of this grade was made, or came.
    pub(super) fn note_grade(&mut self, grade: Grade) {
        self.is_awaited |= grade == Grade::Stable;
    }

    /// They leave within `span`.
    pub(super) fn within(&mut self, now: Time, span: Span) {
        self.sends.within(now, span);
    }

    /// They leave as soon as the rate allows at which members of a group of so many send them by themselves.
    pub(super) fn paced(&mut self, now: Time, members: usize) {
        let interval = self.interval(now, members);
        self.sends.soon(now, interval);
    }

    /// They leave in answer to a member that has just entered the view. Where all enter it at once each answers all others, by
    /// messages to all: so a member answers as many as came in the time that the answers of a whole group take.
    fn answer_first(&mut self, now: Time, members: usize) {
        let all = self.interval(now, members).times(members as u64);
        self.sends.within(now, all.min(self.interval_most));
    }

    /// They leave with something else.
    pub(crate) const fn along(&mut self) {
        self.sends.along();
        self.held.along();
        self.single.along();
        self.goes_along = false;
    }

    /// They leave by themselves.
    pub(super) fn alone(&mut self, now: Time, members: usize) {
        let interval = self.interval(now, members);
        self.sends.alone(now, interval);
    }

    /// A packet arrived.
    pub(crate) fn note_arrival(&mut self, now: Time, packet: &VsyncPacket) {
        if let Some(load) = &mut self.load {
            load.add(now, packet.link_bytes());
        }
    }

    /// How far acknowledgements that leave by themselves are apart in the long run. Each member sends them to all others,
    /// and often enough that nobody repeats what is acknowledged soon: that would load the link far more.
    pub(super) fn interval(&mut self, now: Time, members: usize) -> Span {
        let bytes = ACK_BYTES * members.saturating_sub(1);
        let most = self.interval_most;
        self.load.as_mut().map_or(Span::ZERO, |load| load.interval(now, bytes as u64).min(most))
    }
}

impl CastTransport {
    /// Acknowledges to a member what came of it, and of all others.
    pub(crate) fn ack_to(&mut self, group: &GroupMembership, to: Pid) -> PacketItem {
        PacketItem::Ack {
            view: self.log.view,
            fit: group.is_fit(),
            gap: self.has_gap(group, to),
            had: self.channels[to.index()].acknowledge(),
            have: self.log.all(),
        }
    }

    fn ack_to_all(&mut self, group: &GroupMembership) -> PacketItem {
        // One whose messages were acknowledged before asks again if that was lost.
        let had = match self.channels.iter().any(PeerChannel::owes_acknowledgement) {
            true => self.channels.iter_mut().map(PeerChannel::acknowledge).collect(),
            false => Vec::new(),
        };
        let is_missing = |p: &Pid| self.has_gap(group, *p);
        PacketItem::AckAll {
            view: self.log.view,
            fit: group.is_fit(),
            gaps: group.others().filter(is_missing).fold(0, |gaps, p| gaps | 1 << p.0),
            had,
            have: self.log.all(),
        }
    }

    /// Tells all other members what it has.
    pub(crate) fn ack_members(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        self.acks.along();
        if group.phase != ViewPhase::Active {
            return;
        }
        if group.goes_to_group() {
            let ack = self.ack_to_all(group);
            post.push_for_all(ack);
            if group.gathers_acks() {
                group.others().for_each(|to| self.fetch_missing(group, to, post));
            }
            return self.tell_held(group, post);
        }
        group.others().for_each(|to| self.ack_one(group, to, post));
    }

    /// Tells another member what it has, and asks for what it misses, where nobody repeats that unasked.
    pub(super) fn ack_one(&mut self, group: &GroupMembership, to: Pid, post: &mut OutgoingPackets) {
        let ack = self.ack_to(group, to);
        post.push(to, ack);
        if group.gathers_acks() {
            self.fetch_missing(group, to, post);
        }
    }

    /// Sends the acknowledgements that are due. On a ring only the predecessor waits for them.
    pub(crate) fn ack_due(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        if self.acks.at() > group.now {
            return;
        }
        if group.gathers_acks() {
            return self.ack_gathered(group, post);
        }
        if !post.has_for_all() {
            self.acks.alone(group.now, group.members.len());
        }
        match group.predecessor() {
            Some(to) => self.ack_along_ring(group, to, post),
            None => self.ack_members(group, post),
        }
    }

    /// Acknowledges to the predecessor what came on the ring.
    fn ack_along_ring(&mut self, group: &GroupMembership, to: Pid, post: &mut OutgoingPackets) {
        self.acks.along();
        if group.phase == ViewPhase::Active {
            self.ack_one(group, to, post);
        }
    }

    /// Has acknowledgements go along with what leaves anyway.
    pub(crate) fn ack_along(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        let says_nothing = self.acks.at() == Time::NEVER && !self.acks.goes_along;
        if says_nothing || group.phase != ViewPhase::Active {
            return;
        }
        if group.goes_to_group() {
            if post.has_for_all() {
                self.ack_members(group, post);
            }
            return;
        }
        if let Some(to) = group.predecessor() {
            if post.has_for(to) {
                self.ack_along_ring(group, to, post);
            }
            return;
        }
        let (mut told, mut others) = (0, 0);
        for to in group.others() {
            others += 1;
            if post.has_for(to) {
                self.ack_one(group, to, post);
                told += 1;
            }
        }
        if told == others {
            self.acks.along();
        }
    }

    /// An acknowledgement of a member of this view, which takes part in it: `first` for the first time. `had` are
    /// messages of this process to it; `gap`: it has later casts of this process than those in `have`, or on a ring later
    /// messages than `had`.
    pub(crate) fn on_ack(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        ack: MemberAck<'_>,
        post: &mut OutgoingPackets,
    ) {
        let MemberAck { first, gap, had, have } = ack;
        let (me, now) = (group.me(), group.now);
        let had_casts = self.log.acked(from, me);
        self.log.ack(from, have);
        if group.others().all(|p| group.attendance.has_seen(p)) {
            // All have entered this view: nobody needs anything of the one before.
            self.old = None;
        }
        match first {
            true if group.is_ring() => self.ack_one(group, from, post),
            true => self.acks.answer_first(now, group.members.len()),
            false => {}
        }
        let has = self.log.acked(from, me);
        // On a ring messages carry the casts.
        let is_behind = has < self.log.have(me) && !group.is_ring();
        let channel = &mut self.channels[from.index()];
        channel.on_ack(had, is_behind, has > had_casts, now);
        if first {
            // Packets from before it had entered the view went nowhere.
            channel.retry_now(now, RetryStart::of_casts(group));
        }
        // Where a member gathers acknowledgements each one asks for what it misses.
        if gap && is_behind && !group.gathers_acks() && channel.fills_hole(has + 1) {
            self.say_again(me, from, has, has + 1, post);
        }
        if gap && group.is_ring() {
            self.fill_gap(group, from, had, post);
        }
        self.send_on(group, from, post);
    }
}

/// An acknowledgement, as it concerns its receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberAck<'a> {
    /// Whether it is the first one of its sender in this view.
    pub(crate) first: bool,
    /// Whether its sender has later casts of the receiver than those without a gap; on a ring, later messages.
    pub(crate) gap: bool,
    /// The messages of the receiver that its sender has.
    pub(crate) had: u64,
    /// How many casts of each process its sender has, by pid.
    pub(crate) have: &'a [u64],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_of_a_loaded_link_are_apart_and_never_beyond_a_retry() {
        let mut acks = Acknowledgements {
            sends: PacedSends::NONE,
            single: SingleAcks::NONE,
            held: PacedSends::NONE,
            goes_along: false,
            is_awaited: true,
            load: Some(LinkLoad::new(100_000)),
            interval_most: Span::micros(500),
        };
        let now = Time::ZERO + Span::millis(5);
        assert_eq!(acks.interval(now, 2), Span(3840), "a third of an idle link");
        acks.load.iter_mut().for_each(|load| load.add(now, 600_000));
        let later = now + Span::millis(5);
        assert_eq!(acks.interval(later, 2), Span::micros(500), "bounded");
        acks.within(later, Span::ZERO);
        assert_eq!(acks.at(), later);
        acks.along();
        let all: Vec<Time> = (0..5)
            .map(|_| {
                acks.paced(later, 2);
                acks.alone(later, 2);
                acks.paced(later, 2);
                acks.at()
            })
            .collect();
        assert_eq!(all[..3], [later; 3], "a burst");
        assert_eq!(all[4], later + Span::micros(500));
    }

    #[test]
    fn those_that_enter_a_view_at_once_are_answered_together() {
        let of = |link, retry| {
            let mut acks = Acknowledgements {
                sends: PacedSends::NONE,
                single: SingleAcks::NONE,
                held: PacedSends::NONE,
                goes_along: false,
                is_awaited: false,
                load: link,
                interval_most: retry,
            };
            let now = Time::ZERO + Span::millis(5);
            move |members| {
                acks.along();
                acks.answer_first(now, members);
                acks.at().since(now)
            }
        };
        // A hundred bytes in a microsecond, of which acknowledgements take a third.
        let mut paced = of(Some(LinkLoad::new(100_000)), Span::millis(10));
        assert_eq!(paced(2), Span(2 * 3_840));
        assert_eq!(paced(32), Span(32 * 31 * 3_840), "as long as all of them take");
        let mut hasty = of(Some(LinkLoad::new(100_000)), Span::micros(500));
        assert_eq!(hasty(32), Span::micros(500), "and not for so long that somebody repeats");
        assert_eq!(of(None, Span::micros(500))(32), Span::ZERO, "of no link a rate is known");
    }
}
