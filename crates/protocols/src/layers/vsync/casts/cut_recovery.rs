//! Repair at the end of a view: a process that misses casts up to the cut fetches them of any process that has them.

use super::CastTransport;
use crate::layers::vsync::membership::{GroupMembership, ViewPhase};
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use alloc::vec::Vec;
use amcast_core::{Pid, Time};

/// Bytes of casts that are given at a time to a member that misses them.
const FETCHED_BYTES: usize = 64 << 10;

/// The casts that end the view, as far as they are fetched.
#[derive(Debug)]
pub(super) struct CutRecovery {
    /// Up to where casts of each sender are needed to end the view.
    needed: Option<Vec<u64>>,
    /// When they are requested next.
    at: Time,
    /// Counts up to ask others in turn.
    turn: usize,
}

impl CutRecovery {
    /// Nothing is needed.
    pub(super) const NONE: Self = Self { needed: None, at: Time::NEVER, turn: 0 };

    /// Nothing is needed any more.
    pub(super) fn end(&mut self) {
        (self.needed, self.at) = (None, Time::NEVER);
    }

    /// Another coordinator may end the view at another cut.
    pub(super) fn forget_cut(&mut self) {
        self.needed = None;
    }

    /// Whether a cast is needed to end the view; then the next ones are requested at once.
    pub(super) fn takes(&mut self, sender: Pid, number: u64, now: Time) -> bool {
        let needs = self.needed.as_ref().is_some_and(|cut| number <= cut[sender.index()]);
        if needs {
            self.at = now;
        }
        needs
    }
}

impl CastTransport {
    /// Casts up to the cut are needed.
    pub(crate) fn need(&mut self, cut: Vec<u64>, now: Time) {
        if self.recovery.needed.as_ref() != Some(&cut) {
            self.recovery.needed = Some(cut);
            self.recovery.at = now;
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
        self.recovery.turn += 1;
        let (turn, view) = (self.recovery.turn, self.log.view);
        let is_blocked = group.phase == ViewPhase::Blocked;
        let asked = Some(coordinator).filter(|&p| p != group.me() && turn % 2 == 1 && is_blocked);
        let peers: Vec<Pid> = group.peers().collect();
        for (p, &upto) in cut.iter().enumerate() {
            let sender = Pid(p as u32);
            let after = self.log.have(sender);
            if after >= upto {
                continue;
            }
            let anyone = || peers.get((turn / 2 + sender.index()) % peers.len().max(1)).copied();
            if let Some(to) = known(sender, upto).or(asked).or_else(anyone) {
                post.push(to, PacketItem::Fetch { view, sender, after, upto });
            }
        }
    }

    /// Gives casts after `after`, up to `upto`, to a process that misses them. As long as this member takes part in their
    /// view they leave as other casts do: within the round, and where the carrier has room. The process asks again.
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
        let limit = match is_present {
            true if !group.may_send() => return,
            true => FETCHED_BYTES.min(self.budget.left()),
            false => FETCHED_BYTES,
        };
        if limit == 0 {
            return;
        }
        let (mut bytes, mut is_first) = (0, true);
        for number in after.saturating_add(1).max(casts.first(sender))..=upto {
            let Some(kept) = casts.get(sender, number) else { break };
            bytes += kept.bytes.len();
            // One is given, however large it is.
            if bytes > limit && !is_first {
                break;
            }
            is_first = false;
            if is_present {
                self.budget.spent += kept.bytes.len();
            }
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
