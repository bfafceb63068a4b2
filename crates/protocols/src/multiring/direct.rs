//! The direct (out-of-ring) channel between a coordinator and acceptors, where links of the ring are broken.
//!
//! A member that does not reach its successor passes it over, and with several broken links the members that remain in
//! the ring may be no quorum although the coordinator reaches one. So where nothing is decided for a while, and members
//! report that they do not hear one another, the coordinator sends each acceptor that it reaches how far the ballot goes. An
//! acceptor that misses proposals requests them from it, and sends it its vote directly.

use super::message::RingMessage;
use super::ring::{Ring, RingContext};
use super::value::RingBallot;
use alloc::vec::Vec;
use amcast_core::{Pid, Time};

/// The direct channel stays open for this many times the suspicion timeout.
const KEPT: u64 = 64;

/// The state of the direct channel.
#[derive(Clone, Debug, Default)]
pub(super) struct DirectChannel {
    /// How far decisions had come when that last changed, or when all was decided; and when that was.
    decided: u64,
    at: Time,
    /// When the coordinator looked for broken links last.
    looked_at: Time,
    /// Until when the channel is open.
    until: Time,
    /// How far the ballot went when the acceptors were sent that last, and when that was. An acceptor whose
    /// vote has come so far since gets the proposals round the ring.
    told: u64,
    told_at: Time,
    /// This process asked the coordinator itself for proposals that it misses.
    pub(super) asked: bool,
}

impl Ring {
    /// Sends acceptors the end of the ballot directly, if the channel is open.
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
            // In a large ring the search takes a while.
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

    /// Whether two live members that should hear each other do not, as far as this process is told.
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

    /// A member holds the ballot only up to `from`: the successor, or an acceptor on the direct channel.
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
