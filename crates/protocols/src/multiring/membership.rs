//! Who is in a ring, by the order of its coordinator: all but those who seem to have failed and those who
//! are far behind, until they have caught up.

use super::message::PeerProgress;
use super::persistence::AcceptorStorage;
use super::ring::{Ring, RingContext};
use super::value::InstanceValue;
use alloc::vec::Vec;
use amcast_core::Pid;

/// Who lacks so many times as many decided bytes as may be undecided is left out of the ring.
const BEHIND_BYTES: usize = 8;

/// Who is left out comes back when it lacks one part of so many of that.
const BACK: usize = 2;

/// The members of a ring, by the order of its coordinator, and what each of them has reported.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    /// Counts the coordinator's changes in its ballot.
    pub(super) number: u32,
    /// Members that the others pass over.
    pub(super) excluded: Vec<Pid>,
    /// By member: its progress, as it reported last.
    pub(super) peers: Vec<PeerProgress>,
}

impl Membership {
    pub(super) fn new(members: usize) -> Self {
        let peers = alloc::vec![PeerProgress::default(); members];
        Self { number: 0, excluded: Vec::new(), peers }
    }
}

impl Ring {
    /// Leaves out of the ring who seems to have failed or is far behind, and takes in who is back.
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

    /// Who lives and is so far behind that those after it in the ring would wait for it. It fetches what
    /// it lacks, and is taken in again when little is missing. The acceptors that remain are enough.
    ///
    /// Where acceptors keep everything in memory nobody is: what others trim without it it could not
    /// fetch, and would need a whole state.
    pub(super) fn lagging(&self, failed: &[Pid], cx: &RingContext<'_>) -> Vec<Pid> {
        if cx.writes.storage() == AcceptorStorage::Memory {
            return Vec::new();
        }
        let far = |p: &Pid| {
            let most = cx.config.pipeline_bytes.saturating_mul(BEHIND_BYTES);
            let share = if self.membership.excluded.contains(p) { BACK } else { 1 };
            let learned =
                self.topology.member(*p).map_or(u64::MAX, |at| self.membership.peers[at].learned);
            self.lags_beyond(learned, (most / share, cx.config.behind_instances / share))
        };
        let lives = |p: &Pid| !failed.contains(p);
        let mut lagging: Vec<Pid> = self.others(cx.me).filter(lives).filter(far).collect();
        // The farthest first.
        lagging
            .sort_by_key(|&p| self.topology.member(p).map(|at| self.membership.peers[at].learned));
        let votes = |p: Pid| self.topology.acceptor(p).is_some();
        let acceptors = self.topology.acceptors.iter().filter(|&p| lives(p)).count();
        let mut spare = acceptors.saturating_sub(self.topology.quorum());
        lagging.retain(|&p| {
            let stays = votes(p) && spare == 0;
            spare -= usize::from(votes(p) && !stays);
            !stays
        });
        lagging
    }

    /// Whether one who knows the run up to `known` lacks more than so many bytes or entries of what is
    /// decided and kept here. What is trimmed tells nothing: where acceptors keep everything in memory,
    /// that may be all that is older than a sign of life.
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
