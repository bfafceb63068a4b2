//! The direct (out-of-ring) channel between a coordinator and acceptors, where links of the ring are broken.
//!
//! A member that does not reach its successor passes it over, and with several broken links the members
//! that remain in the ring may be no quorum although the coordinator reaches one. When the channel opens
//! ([`DirectChannel`](crate::layers::routing::DirectChannel)), the coordinator sends each acceptor that it
//! reaches how far the ballot goes. An acceptor that misses proposals requests them from it, and sends it
//! its vote directly.

use super::message::RingMessage;
use super::ring::{RingContext, RingMember};
use super::value::RingBallot;
use crate::layers::routing::DirectTimers;
use alloc::vec::Vec;
use amcast_core::Pid;
use core::mem;

impl RingMember {
    /// Sends acceptors the end of the ballot directly, if the channel is open.
    pub(super) fn send_direct(&mut self, cx: &mut RingContext<'_>) {
        if !self.coordinates() {
            return;
        }
        let (end, decided) = (self.current.end, self.learner.decided);
        let timers = DirectTimers { suspect: cx.config.suspect, retry: cx.config.retry };
        let mut channel = mem::take(&mut self.direct);
        let before = channel.poll(cx.now, decided, end, timers, || self.has_broken_links(cx));
        self.direct = channel;
        let Some(before) = before else { return };
        for (at, &p) in self.topology.acceptors.iter().enumerate() {
            if p != cx.me && self.current.votes[at].upto < before && cx.reaches(p) {
                let phase2 = self.phase2(end, Vec::new(), cx);
                cx.send(p, RingMessage::Phase2(phase2));
            }
        }
    }

    /// Whether two live members that should hear each other do not, as far as they report.
    fn has_broken_links(&self, cx: &RingContext<'_>) -> bool {
        let others: Vec<Pid> = self.others(cx.me).collect();
        cx.links.has_broken_links(cx.now, &others, |p, q| self.exchanges_heartbeats(p, q))
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
        } else if self.coordinates() && from < self.current.end && self.direct.is_open(cx.now) {
            let phase2 = self.phase2(self.current.end, self.ballot_entries_from(from, cx), cx);
            cx.send(who, RingMessage::Phase2(phase2));
        }
    }
}
