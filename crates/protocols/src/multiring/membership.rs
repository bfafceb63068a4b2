//! Ring membership: which members the others pass over, by the order of the coordinator. It excludes
//! members that it suspects and members that lag far behind, until they have caught up. Neither affects
//! safety: votes of an excluded acceptor count, and the acceptors that remain are a quorum.

use super::message::PeerProgress;
use super::persistence::AcceptorStorage;
use super::ring::{RingContext, RingMember};
use super::value::InstanceValue;
use alloc::vec::Vec;
use amcast_core::Pid;

/// A member that is this many times `pipeline_bytes` of decided bytes behind is excluded.
const LAGGING_PIPELINES: usize = 8;

/// An excluded member returns when it is behind by at most this fraction of that bound.
const RETURN_SHARE: usize = 2;

/// The members of a ring in the order that its coordinator chose, and the last report of each.
#[derive(Clone, Debug)]
pub(super) struct RingMembership {
    /// Counts the coordinator's changes in its ballot.
    pub(super) number: u32,
    /// Members that the others pass over.
    pub(super) excluded: Vec<Pid>,
    /// By member: its progress, as it reported last.
    pub(super) peers: Vec<PeerProgress>,
}

impl RingMembership {
    pub(super) fn new(members: usize) -> Self {
        let peers = alloc::vec![PeerProgress::default(); members];
        Self { number: 0, excluded: Vec::new(), peers }
    }
}

impl RingMember {
    /// Excludes members that are suspected or lag far behind, and takes in those that have caught up.
    pub(super) fn update_membership(&mut self, cx: &mut RingContext<'_>) {
        let failed: Vec<Pid> = self.others(cx.me).filter(|&p| cx.suspects(p)).collect();
        let Some(role) = &self.coordinator else { return };
        let same = failed.iter().all(|p| self.membership.excluded.contains(p))
            && self
                .membership
                .excluded
                .iter()
                .all(|p| failed.contains(p) || role.lagging.contains(p));
        let due = cx.now.since(role.checked_at) >= cx.config.heartbeat;
        if same && !due {
            return;
        }
        let lagging = self.lagging(&failed, cx);
        let is_out = |p: &Pid| failed.contains(p) || lagging.contains(p);
        let out: Vec<Pid> = self.others(cx.me).filter(is_out).collect();
        for &p in lagging.iter().filter(|_| due) {
            cx.out.mark("multiring-left-out");
            self.send_ballot_to(p, cx);
        }
        if let Some(role) = &mut self.coordinator {
            role.lagging = lagging;
            role.checked_at = if due { cx.now } else { role.checked_at };
        }
        if out != self.membership.excluded {
            self.membership.excluded = out;
            self.membership.number += 1;
        }
    }

    /// Live members that lag so far behind that those after them in the ring would wait for them. They
    /// catch up by retransmission, and are taken in again when little is missing. The acceptors that remain
    /// are a quorum.
    ///
    /// Where acceptors keep everything in memory no member is: the instances that the others trim meanwhile it could
    /// not get from them, and it would need the state of another replica.
    pub(super) fn lagging(&self, failed: &[Pid], cx: &RingContext<'_>) -> Vec<Pid> {
        if cx.writes.storage() == AcceptorStorage::Memory {
            return Vec::new();
        }
        let far = |p: &Pid| {
            let most = cx.config.limits.pipeline_bytes.saturating_mul(LAGGING_PIPELINES);
            let share = if self.membership.excluded.contains(p) { RETURN_SHARE } else { 1 };
            let learned =
                self.topology.member(*p).map_or(u64::MAX, |at| self.membership.peers[at].learned);
            self.lags_beyond(learned, (most / share, cx.config.limits.behind_instances / share))
        };
        let live = |p: &Pid| !failed.contains(p);
        let mut lagging: Vec<Pid> = self.others(cx.me).filter(live).filter(far).collect();
        // The one that lags most first.
        lagging
            .sort_by_key(|&p| self.topology.member(p).map(|at| self.membership.peers[at].learned));
        let votes = |p: Pid| self.topology.acceptor(p).is_some();
        let acceptors = self.topology.acceptors.iter().filter(|&p| live(p)).count();
        let mut spare = acceptors.saturating_sub(self.topology.quorum());
        lagging.retain(|&p| {
            let stays = votes(p) && spare == 0;
            spare -= usize::from(votes(p) && !stays);
            !stays
        });
        lagging
    }

    /// Whether a member that has learned instances below `learned` is missing more than so many
    /// bytes or entries of the decided log held here. Trimmed instances say nothing: where
    /// acceptors keep everything in memory, all that is older than a heartbeat may be trimmed.
    fn lags_beyond(&self, learned: u64, (most_bytes, most_entries): (usize, usize)) -> bool {
        if learned >= self.learner.learned {
            return false;
        }
        let (mut bytes, mut entries) = (0, 0);
        for (_, slot) in
            self.log.from(learned).take_while(|(first, _)| *first < self.learner.learned)
        {
            bytes += slot.value.as_ref().map_or(0, InstanceValue::size);
            entries += 1;
            if bytes > most_bytes || entries > most_entries {
                return true;
            }
        }
        false
    }
}
