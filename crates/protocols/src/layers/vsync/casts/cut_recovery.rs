//! Repair at the end of a view: a process that misses casts up to the cut fetches them of any process that has them.

use super::fetching::{CastQuestion, FETCHED_BYTES};
use super::{CastTransport, RetainedCast};
use crate::layers::vsync::membership::{GroupMembership, ViewPhase};
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use alloc::vec::Vec;
use amcast_core::messages::Lane;
use amcast_core::{Pid, Time};

/// The casts that end the view, as far as they are fetched.
#[derive(Debug)]
pub(super) struct CutRecovery {
    /// Up to where casts of each sender are needed to end the view.
    needed: Option<Vec<u64>>,
    /// When they are requested next.
    at: Time,
    /// Counts up to ask others in turn.
    turn: usize,
    /// Whether an answer is over, and its process is asked for the next casts.
    continues: bool,
}

impl CutRecovery {
    /// Nothing is needed.
    pub(super) const NONE: Self = Self { needed: None, at: Time::NEVER, turn: 0, continues: false };

    /// Nothing is needed any more.
    pub(super) fn end(&mut self) {
        (self.needed, self.at) = (None, Time::NEVER);
    }

    /// Another coordinator may end the view at another cut.
    pub(super) fn forget_cut(&mut self) {
        self.needed = None;
    }

    /// Whether a cast is needed to end the view.
    pub(super) fn needs(&self, sender: Pid, number: u64) -> bool {
        self.needed.as_ref().is_some_and(|cut| number <= cut[sender.index()])
    }
}

impl CastTransport {
    /// Casts up to the cut are needed.
    pub(crate) fn need(&mut self, cut: Vec<u64>, now: Time) {
        if self.recovery.needed.as_ref() != Some(&cut) {
            self.recovery.needed = Some(cut);
            (self.recovery.at, self.recovery.continues) = (now, false);
            self.questions.fill(CastQuestion::NONE);
        }
    }

    /// Takes in a cast that is needed to end the view. When the answer is over of which it is a part, the next casts are
    /// requested at once.
    pub(super) fn take_needed(&mut self, now: Time, sender: Pid, number: u64, kept: RetainedCast) {
        let (have, bytes) = (self.log.have(sender), kept.bytes.len());
        let was_missing = self.log.take(sender, number, kept, true);
        let question = &mut self.questions[sender.index()];
        let was_awaited = question.is_awaited(have, now);
        // Casts that were not missing take room in the answer, too.
        question.note(now, number, bytes, was_missing);
        if was_awaited && !question.is_awaited(self.log.have(sender), now) {
            (self.recovery.at, self.recovery.continues) = (now, true);
        }
    }

    /// When casts are requested that are needed to end the view.
    pub(crate) const fn needed_at(&self) -> Time {
        self.recovery.at
    }

    /// Asks for what is needed to end the view, of one peer after the other: of those that `known` names as holders
    /// of the casts of a sender up to a number, or in turn of the `coordinator`, which had them when it asked for acceptance,
    /// and of anyone.
    pub(crate) fn fetch_needed(
        &mut self,
        group: &GroupMembership,
        known: impl Fn(Pid, u64) -> Option<Pid>,
        coordinator: Pid,
        post: &mut OutgoingPackets,
    ) {
        if self.recovery.at > group.now {
            return;
        }
        self.recovery.at = Time::NEVER;
        let Some(cut) = &self.recovery.needed else { return };
        if self.log.has_all(cut) {
            return;
        }
        self.recovery.at = group.now + group.settings.retry;
        if !core::mem::take(&mut self.recovery.continues) {
            self.recovery.turn += 1;
        }
        let (turn, view) = (self.recovery.turn, self.log.view);
        let is_blocked = group.phase == ViewPhase::Blocked;
        let asked = Some(coordinator).filter(|&p| p != group.me() && turn % 2 == 1 && is_blocked);
        let peers: Vec<Pid> = group.peers().collect();
        for (p, &upto) in cut.iter().enumerate() {
            let sender = Pid(p as u32);
            let after = self.log.have(sender);
            let question = &mut self.questions[p];
            if after >= upto {
                continue;
            }
            if question.is_awaited(after, group.now) {
                self.recovery.at = self.recovery.at.min(question.until());
                continue;
            }
            let anyone = || peers.get((turn / 2 + sender.index()) % peers.len().max(1)).copied();
            if let Some(to) = known(sender, upto).or(asked).or_else(anyone) {
                *question = CastQuestion::all(upto, group.now, group.settings.retry);
                post.push(to, PacketItem::Fetch { view, sender, after, upto });
            }
        }
    }

    /// Gives casts after `after`, up to `upto`, to a process that misses them. As datagrams they leave within the round, or all in
    /// a later one; and as long as this member takes part in their view only where the carrier has room: a view also ends
    /// where it has none. The process asks again.
    pub(crate) fn on_fetch(
        &mut self,
        group: &GroupMembership,
        request: CutRequest,
        post: &mut OutgoingPackets,
    ) {
        let CutRequest { from, view, sender, after, upto } = request;
        if sender.index() >= self.channels.len() {
            return;
        }
        let (casts, is_present) = match &self.old {
            Some(old) if old.view == view => (old, false),
            _ if self.log.view == view => (&self.log, group.phase == ViewPhase::Active),
            _ => return,
        };
        if is_present && !group.may_send() {
            return;
        }
        let first = after.saturating_add(1).max(casts.first(sender));
        let (mut bytes, mut end) = (0, first);
        while end <= upto
            && let Some(kept) = casts.get(sender, end)
        {
            // One is given, however large it is.
            if bytes + kept.bytes.len() > FETCHED_BYTES && end > first {
                break;
            }
            bytes += kept.bytes.len();
            end += 1;
        }
        if end == first {
            return;
        }
        if self.lane == Lane::Datagram && !self.budget.fits(bytes) {
            let is_same =
                |other: &CutRequest| (other.from, other.view, other.sender) == (from, view, sender);
            self.waiting_requests.retain(|other| !is_same(other));
            return self.waiting_requests.push(request);
        }
        self.budget.spent += bytes;
        for number in first..end {
            let Some(kept) = casts.get(sender, number) else { break };
            post.push(from, PacketItem::Cast { view, sender, number, kept: kept.clone() });
        }
    }
}

/// A request for casts of `sender`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutRequest {
    pub(crate) from: Pid,
    pub(crate) view: u64,
    pub(crate) sender: Pid,
    /// The last one that it has.
    pub(crate) after: u64,
    /// The last one that it needs.
    pub(crate) upto: u64,
}
