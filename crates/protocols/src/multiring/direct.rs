//! What passes between a coordinator and acceptors beside the ring, where ways round it are broken.
//!
//! Whoever does not reach the next one passes it over, and with several broken ways those who remain in the
//! ring may be too few to decide, although the coordinator reaches enough. So where nothing is decided for a
//! while, and members say of each other that they do not hear one another, the coordinator tells each acceptor
//! whom it reaches how far the run goes. Who lacks something of it asks for that, and tells its vote straight.

use super::message::RingMessage;
use super::ring::{Ring, RingContext};
use super::value::RingBallot;
use alloc::vec::Vec;
use amcast_core::{Pid, Time};

/// For so many times as long as it takes to suspect one the way beside the ring is kept.
const KEPT: u64 = 64;

/// How a coordinator gets round what is broken.
#[derive(Clone, Debug, Default)]
pub(super) struct DirectChannel {
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
    /// This process asked the coordinator itself for proposals that it misses.
    pub(super) asked: bool,
}

impl Ring {
    /// Tells acceptors of the run beside the ring, if that is called for.
    pub(super) fn send_direct(&mut self, cx: &mut RingContext<'_>) {
        if !self.coordinates() {
            return;
        }
        let (end, decided) = (self.current.end, self.learner.decided);
        if decided > self.direct.decided || decided >= end {
            (self.direct.decided, self.direct.at) = (decided, cx.now);
        }
        let stuck = cx.now.since(self.direct.at.max(self.direct.looked_at)) >= cx.config.suspect;
        if stuck && cx.now >= self.direct.until {
            // In a large ring to look takes a while.
            self.direct.looked_at = cx.now;
            if self.has_broken_links(cx) {
                self.direct.until = cx.now + cx.config.suspect.times(KEPT);
                self.direct.told = end;
            }
        }
        let lately = cx.now.since(self.direct.told_at) < cx.config.retry;
        if decided >= end || cx.now >= self.direct.until || lately {
            return;
        }
        self.direct.told_at = cx.now;
        let before = core::mem::replace(&mut self.direct.told, end);
        for (at, &p) in self.topology.acceptors.iter().enumerate() {
            if p != cx.me && self.current.votes[at].upto < before && cx.reaches(p) {
                let pass = self.phase2(end, Vec::new(), cx);
                cx.send(p, RingMessage::Phase2(pass));
            }
        }
    }

    /// Whether two members who live and should hear each other do not, as far as this one is told.
    fn has_broken_links(&self, cx: &RingContext<'_>) -> bool {
        let reached: Vec<Pid> = self.others(cx.me).filter(|&p| cx.reaches(p)).collect();
        let joined =
            |p: Pid, q: Pid| self.exchanges_heartbeats(p, q) && cx.connectivity.connects(p, q);
        let lives = |q: &Pid| cx.reaches(*q) || reached.iter().any(|&p| p != *q && joined(p, *q));
        let live: Vec<Pid> = self.others(cx.me).filter(lives).collect();
        let apart = |p: Pid, q: Pid| {
            p != q && self.exchanges_heartbeats(p, q) && !cx.connectivity.connects(p, q)
        };
        let is_apart = |&p: &Pid| live.iter().any(|&q| apart(p, q));
        reached.iter().any(is_apart) || live.len() > reached.len()
    }

    /// One has the run only up to `from`: the next in the ring, or an acceptor that was told beside it.
    pub(super) fn on_phase2_gap(
        &mut self,
        who: Pid,
        (ballot, from): (RingBallot, u64),
        cx: &mut RingContext<'_>,
    ) {
        if ballot != self.current.ballot || from < self.current.start {
            return;
        }
        if self.successor.is_to(who) {
            self.successor.back_to(from.min(self.current.end));
        } else if self.coordinates() && from < self.current.end && cx.now < self.direct.until {
            let pass = self.phase2(self.current.end, self.ballot_entries_from(from, cx), cx);
            cx.send(who, RingMessage::Phase2(pass));
        }
    }
}
