//! Retransmission: casts and messages within a view arrive over lossy links, by numbers, acknowledgements, and
//! sending unacknowledged ones again. Bytes in flight to one member are bounded as datagrams.

use super::CastTransport;
use super::early_arrivals::EarlyArrivals;
use super::ring::LinkMessage;
use crate::layers::vsync::VsyncMutant;
use crate::layers::vsync::membership::{GroupMembership, ViewPhase};
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::messages::Lane;
use amcast_core::{Pid, Span, Time};

/// How many casts are retransmitted to a peer at a time.
const RESENT_AT_ONCE: u64 = 32;

/// How many bytes of them, about: what is not acknowledged may only be slow.
const RESENT_BYTES: usize = 64 << 10;

/// How many messages with contents for one member may be on the way as datagrams.
pub(crate) const FLIGHT: usize = 64;

/// From which part of the bytes that may be on the way an acknowledgement waits no longer, as a divisor: a sender learns of room
/// long before it has none.
const ACKED_PART: usize = 4;

/// How many messages for one member may be on the way as datagrams, in all.
pub(super) const IN_FLIGHT_MAX: usize = (1 + NOTICES_PART) * FLIGHT;

/// How many messages without contents may be on the way as well, in times of those with contents.
const NOTICES_PART: usize = 3;

/// How far the wait between two repetitions grows, in times of the first one.
const RETRY_GROWTH: u64 = 16;

/// The traffic between this process and one peer in the view at hand.
#[derive(Clone, Debug)]
pub(super) struct PeerChannel {
    /// Messages to it that it has.
    sent: u64,
    /// Those after them.
    unacked: VecDeque<LinkMessage>,
    /// How many of these have left.
    posted: usize,
    /// How many of those have contents.
    full_posted: usize,
    /// Bytes of these.
    posted_bytes: usize,
    /// Messages of it that were handed over.
    had: u64,
    /// How many of these it knows to have arrived.
    told: u64,
    /// Bytes of the others.
    untold_bytes: usize,
    /// When casts that it misses are retransmitted.
    casts: Retry,
    /// When messages that it misses are. Apart from casts: arrivals of the one kind prove nothing of the
    /// other.
    messages: Retry,
    /// The last cast that was retransmitted because later ones had arrived.
    hole: u64,
    /// The last message that was.
    message_hole: u64,
    /// Messages of it that wait for those before them.
    pub(super) early: EarlyArrivals,
}

/// How much of the messages to one peer may be on the way, unacknowledged.
#[derive(Clone, Copy, Debug)]
struct FlightLimits {
    /// Messages with contents.
    full: usize,
    /// Bytes of these; one may leave in any case.
    bytes: usize,
    /// Messages without contents.
    notices: usize,
}

impl FlightLimits {
    /// A stream bounds by itself what is on the way.
    const STREAM: Self = Self { full: usize::MAX, bytes: usize::MAX, notices: usize::MAX };

    /// Messages with so many bytes may be on the way as datagrams.
    const fn datagrams(bytes: usize) -> Self {
        Self { full: FLIGHT, bytes, notices: NOTICES_PART * FLIGHT }
    }

    /// While the carrier has no room.
    const NOTHING: Self = Self { full: 0, bytes: 0, notices: 0 };
}

/// The first transmission to a peer that may have missed casts or messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RetryStart {
    /// A question which casts the peer has: most often they are only on the way.
    Ask,
    /// The casts or messages themselves.
    Repeat,
}

impl RetryStart {
    /// That of casts: where members answer such a question, it comes first.
    pub(super) fn of_casts(group: &GroupMembership) -> Self {
        let asks = group.gathers_acks() && !group.is_broken(VsyncMutant::RepeatsUnasked);
        if asks { Self::Ask } else { Self::Repeat }
    }
}

/// The time of the next retransmission.
#[derive(Clone, Copy, Debug)]
struct Retry {
    /// When, if anything is on the way.
    at: Option<Time>,
    /// How long after that again.
    wait: Span,
    /// How long after the first transmission.
    first: Span,
}

impl PeerChannel {
    /// Nothing was sent; after so long without an answer something is sent again, to begin with.
    pub(super) const fn new(retry: Span) -> Self {
        Self {
            sent: 0,
            unacked: VecDeque::new(),
            posted: 0,
            full_posted: 0,
            posted_bytes: 0,
            had: 0,
            told: 0,
            untold_bytes: 0,
            casts: Retry::new(retry),
            messages: Retry::new(retry),
            hole: 0,
            message_hole: 0,
            early: EarlyArrivals::NONE,
        }
    }

    /// Casts or messages to this peer may be lost: messages are sent again now, and casts as `start` says.
    pub(super) fn retry_now(&mut self, now: Time, start: RetryStart) {
        self.casts.hasten(now, start);
        self.messages.hasten(now, RetryStart::Repeat);
    }

    /// A cast is on the way to it.
    pub(super) fn begin_cast(&mut self, now: Time) {
        self.casts.begin(now);
    }

    /// The time of the next retransmission.
    fn retry_at(&self) -> Time {
        let at = |retry: &Retry| retry.at.unwrap_or(Time::NEVER);
        at(&self.casts).min(at(&self.messages))
    }

    /// The number of the next message of it.
    pub(super) const fn next(&self) -> u64 {
        self.had + 1
    }

    /// The messages of it that this process acknowledges now.
    pub(super) const fn acknowledge(&mut self) -> u64 {
        self.told = self.had;
        self.untold_bytes = 0;
        self.had
    }

    /// Whether messages of it were handed over that it does not know of yet.
    pub(super) const fn owes_acknowledgement(&self) -> bool {
        self.told != self.had
    }

    /// It has so many messages of this process. Whether it misses casts, and has more of them than before.
    pub(super) fn on_ack(&mut self, had: u64, misses_casts: bool, progress: bool, now: Time) {
        let before = self.sent;
        while self.sent < had
            && let Some(message) = self.unacked.pop_front()
        {
            self.sent += 1;
            if self.posted > 0 {
                self.posted -= 1;
                self.full_posted -= usize::from(!message.is_notice());
                self.posted_bytes -= message.len();
            }
        }
        self.casts.on_ack(misses_casts, progress, now);
        self.messages.on_ack(!self.unacked.is_empty(), self.sent > before, now);
    }

    /// The next message that has not left, if it may leave now.
    fn next_to_post(&self, limits: FlightLimits) -> Option<&LinkMessage> {
        let message = self.unacked.get(self.posted)?;
        let fits = match message.is_notice() {
            true => self.posted - self.full_posted < limits.notices,
            false => {
                let is_first = self.full_posted == 0;
                self.full_posted < limits.full
                    && (is_first || self.posted_bytes + message.len() <= limits.bytes)
            }
        };
        Some(message).filter(|_| fits)
    }

    /// The first message of those that have not left does.
    fn post_next(&mut self) {
        let message = &self.unacked[self.posted];
        self.posted += 1;
        self.full_posted += usize::from(!message.is_notice());
        self.posted_bytes += message.len();
    }

    /// The first `count` messages of those that are not acknowledged leave once more, and if it `goes_back` those behind them
    /// as well, later.
    fn post_again(&mut self, goes_back: bool, count: usize) {
        if goes_back {
            (self.posted, self.full_posted, self.posted_bytes) = (0, 0, 0);
        }
        (self.posted..count).for_each(|_| self.post_next());
    }

    /// It has more casts of this process, or all of them, as another member says.
    pub(super) fn on_held(&mut self, misses_casts: bool, progress: bool, now: Time) {
        self.casts.on_ack(misses_casts, progress, now);
    }

    /// Whether the next cast that it misses was not retransmitted yet because of later ones; then it counts as such.
    pub(super) const fn fills_hole(&mut self, number: u64) -> bool {
        let is_new = self.hole != number;
        self.hole = number;
        is_new
    }
}

impl Retry {
    const fn new(first: Span) -> Self {
        Self { at: None, wait: Span::ZERO, first }
    }

    /// Something is in flight; it is retransmitted after a while, unless something was before it.
    fn begin(&mut self, now: Time) {
        if self.at.is_none() {
            (self.at, self.wait) = (Some(now + self.first), self.first);
        }
    }

    /// Something is in flight once more.
    fn begin_again(&mut self, now: Time) {
        (self.at, self.wait) = (Some(now + self.first), self.first);
    }

    /// The next retransmission is due now, if anything is on the way.
    fn hasten(&mut self, now: Time, start: RetryStart) {
        if self.at.is_some() {
            let wait = match start {
                RetryStart::Ask => self.first,
                RetryStart::Repeat => Span::ZERO,
            };
            (self.at, self.wait) = (Some(now), wait);
        }
    }

    /// The peer has acknowledged: whether it misses anything, and has more than before.
    fn on_ack(&mut self, is_missing: bool, progress: bool, now: Time) {
        if !is_missing {
            self.at = None;
        } else if progress || self.at.is_none() {
            (self.at, self.wait) = (Some(now + self.first), self.first);
        }
    }

    /// Whether the time that was due is the first one after a transmission.
    fn is_first(&self) -> bool {
        self.wait == self.first.times(2)
    }

    /// Whether it is time. If so, the next time is later.
    fn is_due(&mut self, now: Time) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            self.wait = self.wait.times(2).max(self.first).min(self.first.times(RETRY_GROWTH));
            self.at = Some(now + self.wait);
        }
        due
    }
}

impl CastTransport {
    /// Sends messages to one member: they arrive there once each and in order, as long as the view lasts.
    pub(super) fn send_messages(
        &mut self,
        group: &GroupMembership,
        to: Pid,
        all: impl IntoIterator<Item = LinkMessage>,
        post: &mut OutgoingPackets,
    ) {
        self.channels[to.index()].unacked.extend(all);
        self.send_on(group, to, post);
        self.channels[to.index()].messages.begin(group.now);
    }

    /// The carrier has room again: sends each member what waited for that.
    pub(crate) fn send_waiting(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        if group.phase == ViewPhase::Active {
            group.others().for_each(|to| self.send_on(group, to, post));
        }
    }

    /// Sends a member what waits for it, as far as it may be on the way.
    pub(super) fn send_on(&mut self, group: &GroupMembership, to: Pid, post: &mut OutgoingPackets) {
        let limits = match self.lane {
            Lane::Stream => FlightLimits::STREAM,
            Lane::Datagram if group.may_send() => FlightLimits::datagrams(self.channel_bytes),
            Lane::Datagram => FlightLimits::NOTHING,
        };
        let view = self.log.view;
        let channel = &mut self.channels[to.index()];
        while let Some(message) = channel.next_to_post(limits)
            && (self.lane == Lane::Stream || self.budget.allows())
        {
            self.budget.spent += message.len();
            let number = channel.sent + channel.posted as u64 + 1;
            post.push(to, message.clone().into_item(view, number));
            channel.post_next();
        }
    }

    /// Acknowledges a message of `from` with so many bytes of contents soon. Says whether it is the next one.
    pub(super) fn is_next(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        number: u64,
        bytes: usize,
    ) -> bool {
        let channel = &self.channels[from.index()];
        // It does not wait until nothing more may be on the way.
        let waits = channel.had + 1 - channel.told >= FLIGHT as u64 / 2
            || self.lane == Lane::Datagram
                && channel.untold_bytes + bytes >= self.channel_bytes / ACKED_PART;
        let is_next = number == channel.had + 1;
        if number <= channel.had && !group.is_broken(VsyncMutant::AcknowledgesOnce) {
            // It does not know that this one was here before.
            let channel = &mut self.channels[from.index()];
            channel.told = channel.told.min(number.saturating_sub(1));
        }
        self.owe(group, from, waits);
        is_next
    }

    /// The next message of `from` is taken in.
    pub(super) fn take_next(&mut self, from: Pid, bytes: usize) {
        let channel = &mut self.channels[from.index()];
        channel.had += 1;
        channel.untold_bytes += bytes;
    }

    /// A message of a member of this view for this process alone: it is acknowledged. Says whether it is handed over:
    /// one out of turn comes again.
    pub(crate) fn take_message(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        number: u64,
        bytes: usize,
    ) -> bool {
        let is_next = self.is_next(group, from, number, bytes);
        if is_next {
            self.take_next(from, bytes);
        }
        is_next
    }

    /// Packets in flight to a peer are lost.
    pub(crate) fn retry_now(&mut self, group: &GroupMembership, p: Pid) {
        self.channels[p.index()].retry_now(group.now, RetryStart::of_casts(group));
    }

    /// Says casts of this process again to a peer: those after `after`, up to `upto`.
    pub(super) fn say_again(
        &mut self,
        me: Pid,
        to: Pid,
        after: u64,
        upto: u64,
        post: &mut OutgoingPackets,
    ) {
        let (view, sender) = (self.log.view, me);
        let limit = self.budget.limit(self.lane, RESENT_BYTES);
        let mut said = 0;
        for number in after + 1..=upto {
            let Some(kept) = self.log.get(sender, number).cloned() else { continue };
            said += kept.bytes.len();
            if said > limit && number > after + 1 {
                return;
            }
            self.budget.spent += kept.bytes.len();
            post.push(to, PacketItem::Cast { view, sender, number, kept });
        }
    }

    /// A member that has so many messages has later ones, too: sends it the first one that it has not acknowledged once more
    /// (fast retransmit), unless that has left again for this reason before.
    pub(super) fn fill_gap(
        &mut self,
        group: &GroupMembership,
        to: Pid,
        had: u64,
        post: &mut OutgoingPackets,
    ) {
        let (lane, view) = (self.lane, self.log.view);
        let channel = &mut self.channels[to.index()];
        let number = channel.sent + 1;
        // An acknowledgement that a later one has overtaken says nothing of what is missing now.
        if lane == Lane::Datagram
            && group.may_send()
            && had == channel.sent
            && channel.posted > 0
            && channel.message_hole != number
            && let Some(message) = channel.unacked.front()
        {
            channel.message_hole = number;
            channel.messages.begin_again(group.now);
            self.budget.spent += message.len();
            post.push(to, message.clone().into_item(view, number));
        }
    }

    /// The time of the next retransmission.
    pub(crate) fn resend_at(&self, group: &GroupMembership) -> Time {
        // Without room in the carrier, which has perhaps what is missing, it would only be there twice.
        if group.phase != ViewPhase::Active || !group.may_cast() || !group.may_send() {
            return Time::NEVER;
        }
        self.channels.iter().map(PeerChannel::retry_at).min().unwrap_or(Time::NEVER)
    }

    /// Says again what was not acknowledged for too long.
    pub(crate) fn resend(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        let now = group.now;
        if self.resend_at(group) > now {
            return;
        }
        for to in group.others() {
            if self.channels[to.index()].retry_at() <= now {
                self.resend_to(group, to, post);
            }
        }
    }

    fn resend_to(&mut self, group: &GroupMembership, to: Pid, post: &mut OutgoingPackets) {
        let (now, me) = (group.now, group.me());
        let view = self.log.view;
        let channel = &mut self.channels[to.index()];
        let (casts, messages) = (channel.casts.is_due(now), channel.messages.is_due(now));
        if casts {
            let is_first = channel.casts.is_first();
            let has = self.log.acked(to, me);
            let mine = self.log.have(me);
            if group.gathers_acks() {
                post.push(to, PacketItem::AskAck { view, number: mine });
            }
            // Where another member gathers acknowledgements this one knows of none what it misses: it repeats nothing that
            // probably is there, unless nobody answers.
            if !(group.gathers_acks() && is_first) {
                self.say_again(me, to, has, mine.min(has + RESENT_AT_ONCE), post);
            }
        }
        if messages {
            let limit = self.budget.limit(self.lane, RESENT_BYTES);
            let channel = &mut self.channels[to.index()];
            let mut said = 0;
            let messages =
                channel.unacked.iter().take(RESENT_AT_ONCE as usize).take_while(|part| {
                    let first = said == 0;
                    said += part.len();
                    first || said <= limit
                });
            let numbered: Vec<_> = (channel.sent + 1..).zip(messages.cloned()).collect();
            // After the first wait what is behind them is probably there, and only one of them is late. After another one, or
            // where the peer says that it had not entered the view, nothing of it is. A stream loses nothing but its end.
            let goes_back = self.lane == Lane::Datagram && !channel.messages.is_first();
            channel.post_again(goes_back, numbered.len());
            for (number, message) in numbered {
                self.budget.spent += message.len();
                post.push(to, message.into_item(view, number));
            }
        }
    }
}
