//! Acknowledgements that one member gathers for all, where casts are multicast and the rate of links is known.
//!
//! If each member acknowledged each cast to all others, a cast would cost the square of their number. So members acknowledge
//! to the most senior member of the view, the *collector*, which tells all how many casts of each sender all members have:
//! with its own casts if it makes some, and by itself otherwise.
//! ```text
//! p1  cast ---+---> p0, p2
//! p2          '---- ack ---> p0 (collector) ---- held by all ---> p1, p2
//! ```
//! That is one message delay more than acknowledgements from all to all take, and the collector itself waits no longer. A
//! protocol whose leader answers each cast has that leader for collector, so one acknowledgement is for both: casts of
//! the collector are acknowledged as soon as the rate allows, those of others with the next cast of the collector, or
//! after `ack`. While a single other member sends, it receives the acknowledgements, too, and waits no longer either. One that
//! is the only sender for `retry` also receives those of what the collector casts in answer. Others do not: where all
//! members send, casts of one of them often come between two acknowledgements, and links carry no more than they must.
//!
//! # Work for a cast
//! At most one acknowledgement of each member and one message of the collector for each of its casts: a number of packets in
//! proportion to the members, however idle the group is. Under load they are for many casts.
//!
//! # Loss
//! A sender does not know which members have its casts before all have. One that waits too long asks all of which it does
//! not know: they acknowledge at once, and fetch the casts that they miss. It asks at once where casts may have been lost:
//! a member of which it hears for the first time in a view, and one to which the carrier has a new link (`Up`). A member that
//! misses casts and has later ones asks the sender for them with its next acknowledgement; see `fetching.rs`.
//!
//! A collector that fails, or whose links are dead, is excluded as any other member; until then nothing is held by all
//! anyway. Heartbeats acknowledge to all, too.

use super::CastTransport;
use crate::layers::paced::PacedSends;
use crate::layers::vsync::membership::{GroupMembership, ViewPhase};
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use amcast_core::groupcast::Grade;
use amcast_core::{Pid, Span, Time};

/// The acknowledgements to single members.
#[derive(Clone, Copy, Debug)]
pub(super) struct SingleAcks {
    /// When they leave.
    pub(super) sends: PacedSends,
    /// The members to which they go, a bit each.
    to: u32,
    /// When those leave that were asked for; never if there are none. They wait for no other ones, and no rate.
    answers: Time,
    /// The members that asked, a bit each.
    asked: u32,
    /// The members other than the collector whose stable casts came since the collector's last one that was acknowledged, a
    /// bit each: what the collector casts in answer to a single sender is acknowledged to that one, too.
    senders: u32,
    /// Whether the casts of `senders` were acknowledged.
    is_told: bool,
    /// Whether a stable cast of the collector came that was not acknowledged.
    of_collector: bool,
    /// The member other than the collector that cast last, and since when no other one did.
    last: Option<(Pid, Time)>,
}

impl SingleAcks {
    /// There is nothing to say.
    pub(super) const NONE: Self = Self {
        sends: PacedSends::NONE,
        to: 0,
        answers: Time::NEVER,
        asked: 0,
        senders: 0,
        is_told: false,
        of_collector: false,
        last: None,
    };

    /// When the next of them leaves; never if there is nothing to say.
    pub(super) fn at(&self) -> Time {
        self.sends.at().min(self.answers)
    }

    /// A member asks for one, which leaves at the end of the round.
    fn answer(&mut self, now: Time, to: Pid) {
        self.answers = self.answers.min(now);
        self.asked |= bit(to);
    }

    /// Something else that leaves now anyway says everything.
    pub(super) const fn along(&mut self) {
        self.sends.along();
        (self.to, self.senders) = (0, 0);
        (self.is_told, self.of_collector) = (false, false);
        (self.answers, self.asked) = (Time::NEVER, 0);
    }

    /// They leave to the members that wait for them. The only sender for `retry` waits for that of the collector's answer, too.
    fn leave(&mut self, now: Time, retry: Span) {
        let (senders, is_answered) = (self.senders, self.of_collector);
        self.along();
        if !is_answered && self.last.is_some_and(|(_, since)| now.since(since) >= retry) {
            (self.senders, self.is_told) = (senders, true);
        }
    }

    /// A cast of this member was made, or a stable one of another member than the collector came.
    pub(super) fn note_last(&mut self, now: Time, sender: Pid) {
        if self.last.is_none_or(|(last, _)| last != sender) {
            self.last = Some((sender, now));
        }
    }

    /// A stable cast of a member other than the collector came.
    fn note_sender(&mut self, now: Time, sender: Pid) {
        self.note_last(now, sender);
        // The ones before it have their acknowledgements, but for that of an answer of the collector that did not come yet.
        if self.is_told {
            (self.senders, self.is_told) = (0, false);
        }
        self.senders |= bit(sender);
    }

    /// The members to which they go. A single sender waits for them, too.
    const fn receivers(&self) -> u32 {
        match self.senders.count_ones() {
            1 => self.to | self.senders,
            _ => self.to,
        }
    }
}

const fn bit(p: Pid) -> u32 {
    1 << p.0
}

impl CastTransport {
    /// How long acknowledgements may be held back for which no delivery waits.
    fn patience(&mut self, group: &GroupMembership) -> Span {
        let interval = self.acks.interval(group.now, group.members.len());
        group.settings.ack.max(interval)
    }

    /// A message of `from` for this process alone came: it is acknowledged soon, at once if its sender `waits`.
    pub(super) fn owe(&mut self, group: &GroupMembership, from: Pid, waits: bool) {
        if !group.gathers_acks() {
            let span = if waits { Span::ZERO } else { group.settings.ack };
            return self.acks.within(group.now, span);
        }
        let span = if waits { Span::ZERO } else { self.patience(group) };
        self.acks.single.to |= bit(from);
        self.acks.single.sends.within(group.now, span);
    }

    /// A cast came that the collector is to know of; the rest of its message follows if it `continues`.
    pub(super) fn owe_collector(
        &mut self,
        group: &GroupMembership,
        sender: Pid,
        grade: Grade,
        continues: bool,
    ) {
        let (now, patience) = (group.now, self.patience(group));
        let interval = self.acks.interval(now, group.members.len());
        self.acks.note_grade(grade);
        let misses = self.misses(sender);
        let single = &mut self.acks.single;
        if misses {
            single.to |= bit(sender);
            single.sends.soon(now, interval);
        }
        if group.collects() {
            // It tells when all have it. Before that a single sender waits for it, too.
            self.acks.goes_along = true;
            return;
        }
        let is_collectors = group.collector() == Some(sender);
        single.to |= group.collector().map_or(0, bit);
        if grade == Grade::Stable && !is_collectors {
            single.note_sender(now, sender);
        }
        single.of_collector |= grade == Grade::Stable && is_collectors;
        match grade == Grade::Stable && is_collectors && !continues {
            true => single.sends.soon(now, interval),
            false => single.sends.within(now, patience),
        }
    }

    /// The collector's: tells all what all have, soon if that is more than it has told.
    pub(super) fn note_held(&mut self, group: &GroupMembership) {
        if !group.gathers_acks() || !group.collects() || group.members.len() < 2 {
            return;
        }
        let members = &group.members;
        let is_news =
            |log: &mut super::CastLog, p: Pid| log.held_by_all(members, p) > log.announced_held(p);
        if !members.iter().any(|p| is_news(&mut self.log, *p)) {
            return;
        }
        if self.acks.is_awaited {
            let interval = self.acks.interval(group.now, 2);
            self.acks.held.soon(group.now, interval);
        } else {
            let patience = self.patience(group);
            self.acks.held.within(group.now, patience);
        }
    }

    /// The collector's: tells all what all have.
    pub(super) fn tell_held(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        if !group.gathers_acks() || !group.collects() {
            return;
        }
        let (view, mut held) = (self.log.view, alloc::vec![0; group.settings.processes]);
        for p in &group.members {
            held[p.index()] = self.log.held_by_all(&group.members, *p);
        }
        self.log.ack_held(&held);
        post.push_for_all(PacketItem::HeldByAll { view, held });
    }

    /// Sends the acknowledgements that are due: to all where a message to all is due, and otherwise to single members.
    pub(super) fn ack_gathered(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        let now = group.now;
        if self.acks.to_all_at() <= now {
            if !post.has_for_all() {
                self.acks.alone(now, group.members.len());
                let interval = self.acks.interval(now, 2);
                self.acks.held.alone(now, interval);
            }
            return self.ack_members(group, post);
        }
        if post.has_for_all() {
            return self.ack_members(group, post);
        }
        let interval = self.acks.interval(now, group.members.len());
        let single = &mut self.acks.single;
        let mut receivers = core::mem::take(&mut single.asked);
        single.answers = Time::NEVER;
        if single.sends.at() <= now {
            receivers |= single.receivers();
            single.sends.alone(now, interval);
            single.leave(now, group.settings.retry);
        }
        if group.phase == ViewPhase::Active {
            let is_named = |p: &Pid| receivers & bit(*p) != 0;
            group.others().filter(is_named).for_each(|to| self.ack_one(group, to, post));
        }
    }

    /// The collector says what all members have.
    pub(crate) fn on_held(&mut self, group: &GroupMembership, held: &[u64]) {
        let me = group.me();
        let before = self.log.announced_held(me);
        self.log.ack_held(held);
        let progress = self.log.announced_held(me) > before;
        let mine = self.log.have(me);
        for to in group.others() {
            let is_behind = self.log.acked(to, me) < mine;
            self.channels[to.index()].on_held(is_behind, progress, group.now);
        }
    }

    /// A member that has made so many casts asks which of them are here: this one acknowledges at the end of the round, once
    /// however often it was asked, and asks for those that are missing then.
    pub(crate) fn on_ask_ack(&mut self, group: &GroupMembership, from: Pid, number: u64) {
        let now = group.now;
        self.acks.single.answer(now, from);
        // No member makes more casts before all have the earlier ones.
        let have = self.log.have(from);
        let most = have + group.settings.window as u64;
        self.questions[from.index()].want(have, number.min(most));
        // The acknowledgement that did not arrive there may be missing to the collector, too: once for all that ask now.
        if let Some(to) = group.collector().filter(|&p| p != from && p != group.me()) {
            let interval = self.acks.interval(now, group.members.len());
            self.acks.single.to |= bit(to);
            self.acks.single.sends.soon(now, interval);
        }
    }
}
