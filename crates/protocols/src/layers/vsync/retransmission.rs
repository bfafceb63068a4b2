//! Retransmission: casts and messages within a view arrive over lossy links, by numbers, acknowledgements, and
//! sending unacknowledged ones again.

use super::casts::RetainedCast;
use super::packet::{HEAD_BYTES, PacketItem};
use super::ring::LinkMessage;
use super::{ViewPhase, Vsync, VsyncPacket};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{Grade, Groupcast};
use amcast_core::messages::{Lane, Messages};
use amcast_core::{Outbox, Pid, Protocol, Span, Time};

/// How many casts are retransmitted to a peer at a time.
const RESENT_AT_ONCE: u64 = 32;

/// How many bytes of them, about: what is not acknowledged may only be slow.
const RESENT_BYTES: usize = 64 << 10;

/// How many datagrams with messages for one member may be on the way: what comes out of turn is lost.
pub(super) const FLIGHT: usize = 64;

/// How far the wait between two repetitions grows, in times of the first one.
const RETRY_GROWTH: u64 = 16;

/// The traffic between this process and one peer in the view at hand.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerChannel {
    /// Messages to it that it has.
    sent: u64,
    /// Those after them.
    unacked: VecDeque<LinkMessage>,
    /// How many of these have left.
    posted: usize,
    /// Messages of it that were handed over.
    had: u64,
    /// How many of these it has received.
    told: u64,
    /// When casts that it misses are retransmitted.
    casts: Retry,
    /// When messages that it misses are. Apart from casts: arrivals of the one kind prove nothing of the
    /// other.
    messages: Retry,
    /// The last cast that was retransmitted because later ones had arrived.
    hole: u64,
}

/// The time of the next retransmission.
#[derive(Clone, Copy, Debug, Default)]
struct Retry {
    /// When, if anything is on the way.
    at: Option<Time>,
    /// How long after that again.
    wait: Span,
}

impl PeerChannel {
    /// Something may be lost: say it again now.
    pub(super) fn retry_now(&mut self, now: Time) {
        self.casts.hasten(now);
        self.messages.hasten(now);
    }

    /// The time of the next retransmission.
    fn retry_at(&self) -> Time {
        let at = |retry: &Retry| retry.at.unwrap_or(Time::NEVER);
        at(&self.casts).min(at(&self.messages))
    }
}

impl Retry {
    /// Something is in flight; it is retransmitted after `first`, unless something was before it.
    fn begin(&mut self, now: Time, first: Span) {
        if self.at.is_none() {
            (self.at, self.wait) = (Some(now + first), first);
        }
    }

    /// Say it again now.
    fn hasten(&mut self, now: Time) {
        if self.at.is_some() {
            (self.at, self.wait) = (Some(now), Span::ZERO);
        }
    }

    /// The peer has acknowledged: whether it misses anything, and has more than before.
    fn on_ack(&mut self, lacks: bool, progress: bool, now: Time, first: Span) {
        if !lacks {
            self.at = None;
        } else if progress || self.at.is_none() {
            (self.at, self.wait) = (Some(now + first), first);
        }
    }

    /// Whether it is time. If so, the next time is later.
    fn is_due(&mut self, now: Time, first: Span) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            self.wait = self.wait.times(2).max(first).min(first.times(RETRY_GROWTH));
            self.at = Some(now + self.wait);
        }
        due
    }
}

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// Casts for the protocol above.
    pub(super) fn cast(&mut self, grade: Grade, m: &M) {
        if self.phase != ViewPhase::Active {
            return;
        }
        let mut bytes = Vec::new();
        m.encode(&mut bytes);
        for (more, bytes) in self.cut(&bytes) {
            let kept = RetainedCast { grade, more, bytes };
            if self.is_ring() {
                self.cast_on_ring(kept);
            } else if self.queue.is_empty() && self.casts.room(self.me()) {
                self.cast_now(kept);
            } else {
                self.queue.push_back(kept);
            }
        }
    }

    pub(super) fn cast_now(&mut self, kept: RetainedCast) {
        let (view, sender) = (self.casts.view, self.me());
        let number = self.casts.push(sender, kept.clone());
        let others: Vec<Pid> = self.others().collect();
        let (now, first) = (self.now, self.settings.retry);
        others.iter().for_each(|to| self.pairs[to.index()].casts.begin(now, first));
        if self.goes_to_group() && !others.is_empty() {
            self.post_all(PacketItem::Cast { view, sender, number, kept });
        } else {
            for to in others {
                self.post(to, PacketItem::Cast { view, sender, number, kept: kept.clone() });
            }
        }
        self.casts.ack_own(sender);
    }

    /// Sends to one member for the protocol above.
    pub(super) fn send(&mut self, to: Pid, m: &M) {
        if self.phase != ViewPhase::Active || !self.view.has(to) || to == self.me() {
            return;
        }
        let mut bytes = Vec::new();
        m.encode(&mut bytes);
        let parts = self.cut(&bytes).map(|(more, bytes)| LinkMessage::Part { more, bytes });
        self.send_messages(to, parts);
    }

    /// Sends messages to one member: they arrive there once each and in order, as long as the view lasts.
    pub(super) fn send_messages(&mut self, to: Pid, all: impl IntoIterator<Item = LinkMessage>) {
        self.pairs[to.index()].unacked.extend(all);
        self.send_on(to);
        self.pairs[to.index()].messages.begin(self.now, self.settings.retry);
    }

    /// Sends a member what waits for it, as far as it may be on the way.
    fn send_on(&mut self, to: Pid) {
        let flight = match self.settings.lane {
            Lane::Stream => usize::MAX,
            Lane::Datagram => FLIGHT,
        };
        let view = self.casts.view;
        loop {
            let pair = &mut self.pairs[to.index()];
            let Some(message) = pair.unacked.get(pair.posted).cloned() else { return };
            if pair.posted >= flight {
                return;
            }
            pair.posted += 1;
            let number = pair.sent + pair.posted as u64;
            self.post(to, message.into_item(view, number));
        }
    }

    /// An acknowledgement leaves within `span`.
    fn ack_soon(&mut self, span: Span) {
        self.acks.within(self.now, span);
    }

    pub(super) fn on_cast(&mut self, view: u64, sender: Pid, number: u64, kept: RetainedCast) {
        if view != self.casts.view || self.phase == ViewPhase::Out || !self.view.has(sender) {
            return;
        }
        if sender == self.me() || self.is_ring() && self.phase == ViewPhase::Active {
            // It has all that it made; a packet that denies it makes it up. On a ring casts come by messages.
            return;
        }
        let RetainedCast { grade, more, .. } = kept;
        self.note_arrival(kept.bytes.len() + HEAD_BYTES);
        if number <= self.casts.have(sender) + self.settings.window as u64 {
            // The sender of a cast has it, and all before it.
            self.casts.ack_sender(sender, number);
        }
        if self.phase == ViewPhase::Active {
            // Also of one it had: the sender does not know.
            self.casts.take(sender, number, kept, false);
            match grade {
                Grade::Plain => self.ack_soon(self.settings.ack),
                Grade::Uniform => self.ack_soon(Span::ZERO),
                // The rest of the message follows, and its acknowledgement is enough.
                Grade::Stable if more && !self.casts.gap(sender) => {
                    self.ack_soon(self.settings.ack)
                }
                Grade::Stable => {
                    let interval = self.acks_every();
                    self.acks.soon(self.now, interval);
                }
            }
        } else if self.needed.as_ref().is_some_and(|cut| number <= cut[sender.index()]) {
            self.casts.take(sender, number, kept, true);
            self.needed_at = self.now;
        }
    }

    pub(super) fn on_to(
        &mut self,
        from: Pid,
        (view, number): (u64, u64),
        more: bool,
        bytes: &[u8],
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        if view != self.casts.view || self.phase != ViewPhase::Active || !self.begun {
            return;
        }
        if !self.view.has(from) {
            return;
        }
        // Casts out of turn are requested again.
        if self.is_next(from, number) {
            self.take_next(from);
            self.give_message(from, more, bytes, out);
        }
    }

    /// Acknowledges a message of `from` soon. Says whether it is the next one.
    pub(super) fn is_next(&mut self, from: Pid, number: u64) -> bool {
        let pair = &self.pairs[from.index()];
        // It does not wait until nothing more may be on the way.
        let waits = pair.had + 1 - pair.told >= FLIGHT as u64 / 2;
        let is_next = number == pair.had + 1;
        self.ack_soon(if waits { Span::ZERO } else { self.settings.ack });
        is_next
    }

    /// The next message of `from` is taken in.
    pub(super) fn take_next(&mut self, from: Pid) {
        self.pairs[from.index()].had += 1;
    }

    pub(super) fn ack_to(&mut self, to: Pid) -> PacketItem {
        let pair = &mut self.pairs[to.index()];
        pair.told = pair.had;
        PacketItem::Ack {
            view: self.casts.view,
            fit: self.is_fit(),
            gap: self.casts.gap(to),
            had: self.pairs[to.index()].had,
            have: self.casts.all(),
        }
    }

    /// Tells all other members what it has.
    pub(super) fn ack_members(&mut self) {
        self.acks.along();
        if self.phase != ViewPhase::Active {
            return;
        }
        if self.goes_to_group() {
            let ack = self.ack_to_all();
            return self.post_all(ack);
        }
        for to in self.others().collect::<Vec<_>>() {
            self.ack_one(to);
        }
    }

    /// Tells another member what it has.
    pub(super) fn ack_one(&mut self, to: Pid) {
        let ack = self.ack_to(to);
        self.post(to, ack);
    }

    /// Sends the acknowledgements that are due. On a ring only the predecessor waits for them.
    pub(super) fn ack_due(&mut self) {
        match self.predecessor() {
            Some(to) => self.ack_along_ring(to),
            None => self.ack_members(),
        }
    }

    /// Acknowledges to the predecessor what came on the ring.
    fn ack_along_ring(&mut self, to: Pid) {
        self.acks.along();
        if self.phase == ViewPhase::Active {
            self.ack_one(to);
        }
    }

    /// Has acknowledgements go along with what leaves anyway.
    pub(super) fn ack_along(&mut self) {
        if self.acks.at() == Time::NEVER || self.phase != ViewPhase::Active {
            return;
        }
        if self.goes_to_group() {
            if !self.post_all.is_empty() {
                self.ack_members();
            }
            return;
        }
        if let Some(to) = self.predecessor() {
            if !self.post[to.index()].is_empty() {
                self.ack_along_ring(to);
            }
            return;
        }
        let (mut told, others) = (0, self.others().count());
        for at in 0..self.members.len() {
            let to = self.members[at];
            if to != self.me() && !self.post[to.index()].is_empty() {
                self.ack_one(to);
                told += 1;
            }
        }
        if told == others {
            self.acks.along();
        }
    }

    fn ack_to_all(&mut self) -> PacketItem {
        self.pairs.iter_mut().for_each(|pair| pair.told = pair.had);
        let lacks = |p: &Pid| self.casts.gap(*p);
        PacketItem::AckAll {
            view: self.casts.view,
            fit: self.is_fit(),
            gaps: self.others().filter(lacks).fold(0, |gaps, p| gaps | 1 << p.0),
            had: self.pairs.iter().map(|pair| pair.had).collect(),
            have: self.casts.all(),
        }
    }

    pub(super) fn on_ack(&mut self, from: Pid, view: u64, gap: bool, had: u64, have: &[u64]) {
        let inside = view == self.casts.view && self.phase != ViewPhase::Out && self.view.has(from);
        if !inside || have.len() != self.settings.processes {
            return;
        }
        self.blocked[from.index()] = None;
        let (me, now) = (self.me(), self.now);
        let had_casts = self.casts.acked(from, me);
        self.casts.ack(from, have);
        let first = !core::mem::replace(&mut self.seen[from.index()], true);
        if self.others().all(|p| self.seen[p.index()]) {
            // All have entered this view: nobody needs anything of the one before.
            self.old = None;
        }
        match first {
            true if self.is_ring() => self.ack_one(from),
            true => self.ack_soon(Span::ZERO),
            false => {}
        }
        let mine = self.casts.have(me);
        let retry = self.settings.retry;
        let has = self.casts.acked(from, me);
        // On a ring messages carry the casts.
        let lacks = has < mine && !self.is_ring();
        let pair = &mut self.pairs[from.index()];
        let before = pair.sent;
        while pair.sent < had && pair.unacked.pop_front().is_some() {
            pair.sent += 1;
            pair.posted = pair.posted.saturating_sub(1);
        }
        pair.casts.on_ack(lacks, has > had_casts, now, retry);
        pair.messages.on_ack(!pair.unacked.is_empty(), pair.sent > before, now, retry);
        if first {
            // Packets from before it had entered the view went nowhere.
            pair.retry_now(now);
        }
        if gap && lacks && pair.hole != has + 1 {
            pair.hole = has + 1;
            self.say_again(from, has, has + 1);
        }
        self.send_on(from);
    }

    /// Says own casts again to a peer: those after `after`, up to `upto`.
    fn say_again(&mut self, to: Pid, after: u64, upto: u64) {
        let view = self.casts.view;
        let sender = self.me();
        let mut said = 0;
        for number in after + 1..=upto {
            let Some(kept) = self.casts.get(sender, number).cloned() else { continue };
            said += kept.bytes.len();
            if said > RESENT_BYTES && number > after + 1 {
                return;
            }
            self.post(to, PacketItem::Cast { view, sender, number, kept });
        }
    }

    /// The time of the next retransmission.
    pub(super) fn resend_at(&self) -> Time {
        if self.phase != ViewPhase::Active {
            return Time::NEVER;
        }
        self.pairs.iter().map(PeerChannel::retry_at).min().unwrap_or(Time::NEVER)
    }

    /// Says again what was not acknowledged for too long.
    pub(super) fn resend(&mut self) {
        let now = self.now;
        if self.resend_at() > now {
            return;
        }
        for to in self.others().collect::<Vec<_>>() {
            if self.pairs[to.index()].retry_at() <= now {
                self.resend_to(to);
            }
        }
    }

    fn resend_to(&mut self, to: Pid) {
        let now = self.now;
        let first = self.settings.retry;
        let view = self.casts.view;
        let pair = &mut self.pairs[to.index()];
        let (casts, messages) = (pair.casts.is_due(now, first), pair.messages.is_due(now, first));
        if casts {
            let has = self.casts.acked(to, self.me());
            let mine = self.casts.have(self.me());
            self.say_again(to, has, mine.min(has + RESENT_AT_ONCE));
        }
        if messages {
            let pair = &mut self.pairs[to.index()];
            let mut said = 0;
            let messages = pair.unacked.iter().take(RESENT_AT_ONCE as usize).take_while(|part| {
                let first = said == 0;
                said += part.len();
                first || said <= RESENT_BYTES
            });
            let numbered: Vec<_> = (pair.sent + 1..).zip(messages.cloned()).collect();
            pair.posted = pair.posted.max(numbered.len());
            for (number, message) in numbered {
                self.post(to, message.into_item(view, number));
            }
        }
    }
}
