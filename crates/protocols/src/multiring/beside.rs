//! What passes between a coordinator and acceptors beside the ring, where ways round it are broken.
//!
//! Whoever does not reach the next one passes it over, and with several broken ways those who remain in the
//! ring may be too few to decide, although the coordinator reaches enough. So where nothing is decided for a
//! while, and members say of each other that they do not hear one another, the coordinator tells each acceptor
//! whom it reaches how far the run goes. Who lacks something of it asks for that, and tells its vote straight.

use super::ring::{Cx, Ring};
use super::value::Ballot;
use super::word::Word;
use alloc::vec::Vec;
use amcast_core::{Pid, Time};

/// For so many times as long as it takes to suspect one the way beside the ring is kept.
const KEPT: u64 = 64;

/// How a coordinator gets round what is broken.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    /// What was decided when it was looked last, and since when that has not grown, or all was decided.
    decided: u64,
    at: Time,
    /// When it was looked last whether ways are broken.
    looked_at: Time,
    /// Until when acceptors are told beside the ring.
    until: Time,
    /// How far the run went when they were told last, and when that was. Whose vote has come so far by then has
    /// it some other way.
    told: u64,
    told_at: Time,
}

impl Ring {
    /// Tells acceptors of the run beside the ring, if that is called for.
    pub(super) fn pass_beside(&mut self, cx: &mut Cx<'_>) {
        if !self.leads() {
            return;
        }
        let (end, decided) = (self.end, self.decided);
        if decided > self.beside.decided || decided >= end {
            (self.beside.decided, self.beside.at) = (decided, cx.now);
        }
        let stuck = cx.now.since(self.beside.at.max(self.beside.looked_at)) >= cx.shape.suspect;
        if stuck && cx.now >= self.beside.until {
            // In a large ring to look takes a while.
            self.beside.looked_at = cx.now;
            if self.has_gaps(cx) {
                self.beside.until = cx.now + cx.shape.suspect.times(KEPT);
                self.beside.told = end;
            }
        }
        let lately = cx.now.since(self.beside.told_at) < cx.shape.retry;
        if decided >= end || cx.now >= self.beside.until || lately {
            return;
        }
        self.beside.told_at = cx.now;
        let before = core::mem::replace(&mut self.beside.told, end);
        for (at, &p) in self.shape.acceptors.iter().enumerate() {
            if p != cx.me && self.votes[at].upto < before && cx.reaches(p) {
                let pass = self.pass(end, Vec::new(), cx);
                cx.say(p, Word::Pass(pass));
            }
        }
    }

    /// Whether two members who live and should hear each other do not, as far as this one is told.
    fn has_gaps(&self, cx: &Cx<'_>) -> bool {
        let reached: Vec<Pid> = self.others(cx.me).filter(|&p| cx.reaches(p)).collect();
        let joined = |p: Pid, q: Pid| self.hears(p, q) && cx.reach.joins(p, q);
        let lives = |q: &Pid| cx.reaches(*q) || reached.iter().any(|&p| p != *q && joined(p, *q));
        let live: Vec<Pid> = self.others(cx.me).filter(lives).collect();
        let apart = |p: Pid, q: Pid| p != q && self.hears(p, q) && !cx.reach.joins(p, q);
        let is_apart = |&p: &Pid| live.iter().any(|&q| apart(p, q));
        reached.iter().any(is_apart) || live.len() > reached.len()
    }

    /// One has the run only up to `from`: the next in the ring, or an acceptor that was told beside it.
    pub(super) fn on_lack(&mut self, who: Pid, (ballot, from): (Ballot, u64), cx: &mut Cx<'_>) {
        if ballot != self.ballot || from < self.start {
            return;
        }
        if self.link.is_to(who) {
            self.link.back_to(from.min(self.end));
        } else if self.leads() && from < self.end && cx.now < self.beside.until {
            let pass = self.pass(self.end, self.run_from(from, cx), cx);
            cx.say(who, Word::Pass(pass));
        }
    }
}
