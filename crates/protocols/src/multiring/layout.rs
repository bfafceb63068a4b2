//! Who is in a ring, by the order of its coordinator: all but those who seem to have failed and those who
//! are far behind, until they have caught up.

use super::keep::Storage;
use super::ring::{Cx, Ring};
use super::value::Value;
use alloc::vec::Vec;
use amcast_core::Pid;

/// Who lacks so many times as many decided bytes as may be undecided is left out of the ring.
const BEHIND_BYTES: usize = 8;

/// Who is left out comes back when it lacks one part of so many of that.
const BACK: usize = 2;

impl Ring {
    /// Leaves out of the ring who seems to have failed or is far behind, and takes in who is back.
    pub(super) fn lay_out(&mut self, cx: &mut Cx<'_>) {
        let failed: Vec<Pid> = self.others(cx.me).filter(|&p| cx.suspects(p)).collect();
        let Some(lead) = &self.lead else { return };
        let same = failed.iter().all(|p| self.out.contains(p))
            && self.out.iter().all(|p| failed.contains(p) || lead.behind.contains(p));
        let due = cx.now.since(lead.looked_at) >= cx.shape.heartbeat;
        if same && !due {
            return;
        }
        let behind = self.behind(&failed, cx);
        let is_out = |p: &Pid| failed.contains(p) || behind.contains(p);
        let out: Vec<Pid> = self.others(cx.me).filter(is_out).collect();
        for &p in behind.iter().filter(|_| due) {
            cx.out.mark("multiring-left-out");
            self.tell_beside(p, cx);
        }
        if let Some(lead) = &mut self.lead {
            lead.behind = behind;
            lead.looked_at = if due { cx.now } else { lead.looked_at };
        }
        if out != self.out {
            self.out = out;
            self.layout += 1;
        }
    }

    /// Who lives and is so far behind that those after it in the ring would wait for it. It fetches what
    /// it lacks, and is taken in again when little is missing. The acceptors that remain are enough.
    ///
    /// Where acceptors keep everything in memory nobody is: what others trim without it it could not
    /// fetch, and would need a whole state.
    pub(super) fn behind(&self, failed: &[Pid], cx: &Cx<'_>) -> Vec<Pid> {
        if cx.keep.storage() == Storage::Memory {
            return Vec::new();
        }
        let far = |p: &Pid| {
            let most = cx.shape.pipeline_bytes.saturating_mul(BEHIND_BYTES);
            let share = if self.out.contains(p) { BACK } else { 1 };
            let known = self.shape.member(*p).map_or(u64::MAX, |at| self.peers[at].known);
            self.is_far(known, (most / share, cx.shape.behind_instances / share))
        };
        let lives = |p: &Pid| !failed.contains(p);
        let mut behind: Vec<Pid> = self.others(cx.me).filter(lives).filter(far).collect();
        // The farthest first.
        behind.sort_by_key(|&p| self.shape.member(p).map(|at| self.peers[at].known));
        let votes = |p: Pid| self.shape.acceptor(p).is_some();
        let acceptors = self.shape.acceptors.iter().filter(|&p| lives(p)).count();
        let mut spare = acceptors.saturating_sub(self.shape.quorum());
        behind.retain(|&p| {
            let stays = votes(p) && spare == 0;
            spare -= usize::from(votes(p) && !stays);
            !stays
        });
        behind
    }

    /// Whether one who knows the run up to `known` lacks more than so many bytes or entries of what is
    /// decided and kept here. What is trimmed tells nothing: where acceptors keep everything in memory,
    /// that may be all that is older than a sign of life.
    fn is_far(&self, known: u64, (most_bytes, most_entries): (usize, usize)) -> bool {
        if known >= self.known {
            return false;
        }
        let (mut bytes, mut entries) = (0, 0);
        for (_, slot) in self.book.from(known).take_while(|(first, _)| *first < self.known) {
            bytes += slot.value.as_ref().map_or(0, Value::size);
            entries += 1;
            if bytes > most_bytes || entries > most_entries {
                return true;
            }
        }
        false
    }
}
