//! Routing, below the roles of a protocol that sends messages: which links work, and how messages get round
//! those that do not.
//!
//! ```text
//!        protocol: roles, elections, votes, ..
//!           | "send this to q"        ^ heartbeats of q, its broken links
//!           v                         |
//!   +-------------------------- routing -----------------------------+
//!   | failure detector   which processes are heard                   |
//!   | ConnectivityMatrix which processes hear each other             |
//!   | RouteSelection     directly, or via a forwarder that works     |
//!   | DirectChannel      past an overlay whose links are broken      |
//!   +-----------------------------------------------------------------+
//!           | messages
//!           v
//!        carrier
//! ```
//!
//! A link may fail in one direction only: a process that is heard need not hear. So each process reports
//! with its heartbeats which of its neighbours it does not hear, and which of those it hears do not hear it
//! ([`BrokenLinks`]). A protocol sends on links whose other end reports to hear it, and asks for a
//! forwarder where there is none.
//!
//! # Guarantees
//! Nothing for safety: a route is a guess. For progress: while one process and the destination hear each
//! other, and that process and the sender, the sender's messages arrive after a bounded number of tries
//! ([`RouteSelection`]), once heartbeats have told of the links.
//!
//! # Duties of the protocol
//! It encodes its own messages: a forwarded message is one of the protocol's, and a forwarder may add to it
//! or refuse it. It calls [`LinkTable::beat`] in each step and sends the heartbeat and
//! [`LinkTable::broken_links`] if there is one, and [`LinkTable::observe`] with each heartbeat that it
//! gets.

mod connectivity;
mod direct;
mod forward;
#[cfg(test)]
mod tests;

pub use connectivity::{BrokenLinks, ConnectivityMatrix};
pub use direct::{DirectChannel, DirectTimers};
pub use forward::{Route, RouteSelection};

use crate::layers::failure_detector::FailureDetector;
use alloc::vec::Vec;
use amcast_core::step::WakeReason;
use amcast_core::{Pid, Span, Time};

/// The links of one process: what its failure detector says, and what its peers report.
#[derive(Clone, Debug)]
pub struct LinkTable {
    me: Pid,
    /// The processes with which this one exchanges heartbeats.
    neighbours: Vec<Pid>,
    detector: FailureDetector,
    matrix: ConnectivityMatrix,
}

impl LinkTable {
    /// The links of `me`, whose detector covers all processes.
    pub fn new(me: Pid, neighbours: Vec<Pid>, detector: FailureDetector, processes: usize) -> Self {
        Self { me, neighbours, detector, matrix: ConnectivityMatrix::new(processes) }
    }

    /// The processes with which this one exchanges heartbeats.
    pub fn neighbours(&self) -> &[Pid] {
        &self.neighbours
    }

    /// The heartbeat to send now, if it is due: see [`FailureDetector::beat`].
    pub fn beat(&mut self, now: Time) -> Option<u64> {
        self.detector.beat(now)
    }

    /// When [`LinkTable::beat`] must be called next, and for what.
    pub fn deadline(&self) -> (Time, WakeReason) {
        self.detector.deadline()
    }

    /// A heartbeat of `p`.
    pub fn observe(&mut self, now: Time, p: Pid, counter: u64, eligible: bool) {
        self.detector.observe(now, p.index(), counter, eligible);
    }

    /// `p` reports its broken links.
    pub fn report(&mut self, p: Pid, broken: BrokenLinks) {
        self.matrix.update(p, broken);
    }

    /// `p` restarted: what it reported before says nothing.
    pub fn restarted(&mut self, now: Time, p: Pid) {
        self.detector.restarted(now, p.index());
        self.matrix.update(p, BrokenLinks::default());
    }

    /// An outside detector suspects `p`.
    pub fn suspect(&mut self, p: Pid) {
        self.detector.suspect(p.index());
    }

    /// An outside detector vouches for `p`.
    pub fn trust(&mut self, p: Pid) {
        self.detector.trust(p.index());
    }

    /// Whether `p` seems to have failed.
    pub fn suspects(&self, now: Time, p: Pid) -> bool {
        self.detector.suspects(now, p.index())
    }

    /// Whether `p` reports that it is eligible as a coordinator.
    pub fn is_eligible(&self, p: Pid) -> bool {
        self.detector.is_fit(p.index())
    }

    /// How long `p` has been silent.
    pub fn silence(&self, now: Time, p: Pid) -> Span {
        self.detector.silence(now, p.index())
    }

    /// Whether this process and `p` hear each other.
    pub fn reaches(&self, now: Time, p: Pid) -> bool {
        !self.suspects(now, p) && !self.matrix.cannot_hear(p, self.me)
    }

    /// Whether `p` and `q` hear each other, as `p` reported last.
    pub fn connects(&self, p: Pid, q: Pid) -> bool {
        self.matrix.connects(p, q)
    }

    /// The broken links of this process, to be sent with its heartbeat.
    pub fn broken_links(&self, now: Time) -> BrokenLinks {
        let (heard, unheard): (Vec<Pid>, Vec<Pid>) =
            self.neighbours.iter().partition(|p| !self.suspects(now, **p));
        let cannot_hear = |p: &Pid| self.matrix.cannot_hear(*p, self.me);
        BrokenLinks { unheard, unreached: heard.into_iter().filter(cannot_hear).collect() }
    }

    /// Those of `candidates` that may forward a message to `to`, which this process does not reach; first
    /// those of which it is known best that a message arrives there, and from there at `to`. A candidate
    /// that reports not to hear this process is excluded; one that was never heard is not, and `to`
    /// itself comes last, if it is not heard either.
    pub fn forwarders(
        &self,
        now: Time,
        candidates: impl Iterator<Item = Pid>,
        to: Pid,
    ) -> Vec<Pid> {
        let hears = |p: Pid| !self.suspects(now, p);
        let deaf = |p: Pid| hears(p) && self.matrix.cannot_hear(p, self.me);
        let forwards = |p: Pid| {
            let reported = hears(p) && self.matrix.connects(p, to);
            reported && !(hears(to) && self.matrix.cannot_hear(to, p))
        };
        let mut forwarders: Vec<Pid> = candidates.filter(|&p| p != self.me && !deaf(p)).collect();
        forwarders.sort_by_key(|&p| (p == to, !forwards(p), !hears(p)));
        forwarders
    }

    /// Whether two live processes among `others` that exchange heartbeats do not hear each other, or one
    /// that lives is not reached, as far as they report.
    pub fn has_broken_links(
        &self,
        now: Time,
        others: &[Pid],
        exchange: impl Fn(Pid, Pid) -> bool,
    ) -> bool {
        let reaches = |p: Pid| self.reaches(now, p);
        let reached: Vec<Pid> = others.iter().copied().filter(|&p| reaches(p)).collect();
        let joined = |p: Pid, q: Pid| exchange(p, q) && self.matrix.connects(p, q);
        let lives = |q: &Pid| reaches(*q) || reached.iter().any(|&p| p != *q && joined(p, *q));
        let live: Vec<Pid> = others.iter().copied().filter(lives).collect();
        let apart = |p: Pid, q: Pid| p != q && exchange(p, q) && !self.matrix.connects(p, q);
        let is_apart = |&p: &Pid| live.iter().any(|&q| apart(p, q));
        reached.iter().any(is_apart) || live.len() > reached.len()
    }
}
