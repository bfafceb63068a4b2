//! Reports of dead links: which processes each peer does not hear.
//!
//! A link may be dead in one direction while all else works. So each process reports, with its heartbeats, which peers
//! it has not heard for long ([`PacketItem::Unheard`]), and the coordinator judges its proposals by these reports; see
//! `agreement/primary.rs`. Reports that are not repeated expire. Nobody forwards anything for others, so a packet still comes from the process that made it.

use super::{GroupMembership, ViewQuorum};
use crate::layers::routing::{BrokenLinks, ConnectivityMatrix};
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::packing::OutgoingPackets;
use alloc::vec::Vec;
use amcast_core::{Pid, Time};

/// How many times as long as the patience with a peer it must be silent to be reported as unheard. When a
/// process fails, the others suspect it before anyone reports it.
const REPORT_PATIENCE: u64 = 2;

/// The same where an oracle says who has failed: it tells some later than others.
const ORACLE_PATIENCE: u64 = 8;

/// For how many heartbeats a report holds that is not repeated.
const REPORT_HEARTBEATS: u64 = 8;

/// The last reports of peers, and of this process.
#[derive(Debug)]
pub(crate) struct LinkReports {
    /// The processes that each peer does not hear, as it reported.
    matrix: ConnectivityMatrix,
    /// By pid: until when its report holds.
    until: Vec<Time>,
    /// The processes that this one has reported last as unheard, a bit each.
    reported: u32,
}

impl LinkReports {
    pub(super) fn new(processes: usize) -> Self {
        Self {
            matrix: ConnectivityMatrix::new(processes),
            until: alloc::vec![Time::ZERO; processes],
            reported: 0,
        }
    }

    /// A process began another life: reports of the earlier one are void.
    pub(super) fn forget(&mut self, p: Pid) {
        self.until[p.index()] = Time::ZERO;
    }

    /// A peer reports the processes that it does not hear, a bit each.
    fn update(&mut self, from: Pid, unheard: u32, until: Time) {
        let unheard = (0..u32::BITS).filter(|p| unheard >> p & 1 == 1).map(Pid).collect();
        self.matrix.update(from, BrokenLinks { unheard, unreached: Vec::new() });
        self.until[from.index()] = until;
    }

    /// Whether any peer reports that it does not hear some process.
    fn has_any(&self, now: Time) -> bool {
        let holds =
            |(p, until): (usize, &Time)| *until > now && self.matrix.has_unheard(Pid(p as u32));
        self.until.iter().enumerate().any(holds)
    }

    /// Whether `a` hears `b`, as far as `a` has not reported the contrary.
    fn hears(&self, now: Time, a: Pid, b: Pid) -> bool {
        self.until[a.index()] <= now || !self.matrix.cannot_hear(a, b)
    }
}

impl GroupMembership {
    /// The processes that have been silent here for so long that the link from them seems dead. Where silence says nothing, of those only
    /// that an oracle calls failed: if it names one of two members that live to the other one, the link between them is dead.
    fn unheard(&self) -> u32 {
        if self.settings.quorum == ViewQuorum::Survivors {
            // Nobody hears a process that has failed, and there is no other one.
            return 0;
        }
        let times = if self.settings.told_who_failed { ORACLE_PATIENCE } else { REPORT_PATIENCE };
        let is_unheard = |p: &Pid| {
            let patience = self.peers.patience(*p).times(times);
            self.suspects(*p) && self.peers.silence(self.now, *p) >= patience
        };
        self.peers().filter(is_unheard).fold(0, |bits, p| bits | 1 << p.0)
    }

    /// Reports to all with a heartbeat which processes are unheard here, as long as there are any, and once
    /// when there are none any more. Also those that are in no view: whether they want to join is not known
    /// where they are not heard. The report travels in the packet of the heartbeat, which a carrier with
    /// multicast sends once.
    pub(crate) fn report_unheard(&mut self, post: &mut OutgoingPackets) {
        let processes = self.unheard();
        if processes != 0 || self.links.reported != 0 {
            if self.beats_to_group() {
                post.push_for_all(PacketItem::Unheard { processes });
            } else {
                self.peers().for_each(|to| post.push(to, PacketItem::Unheard { processes }));
            }
        }
        self.links.reported = processes;
    }

    pub(crate) fn on_unheard(&mut self, from: Pid, unheard: u32) {
        let until = self.now + self.settings.heartbeat.times(REPORT_HEARTBEATS);
        self.links.update(from, unheard, until);
    }

    /// Whether any peer reports that it does not hear some process.
    pub(crate) fn has_reports(&self) -> bool {
        self.links.has_any(self.now)
    }

    fn hears(&self, a: Pid, b: Pid) -> bool {
        self.links.hears(self.now, a, b)
    }

    /// Whether messages of this process reach `p`, as far as `p` has not reported the contrary.
    pub(crate) fn reaches(&self, p: Pid) -> bool {
        self.hears(p, self.me())
    }

    /// By pid: which processes each one is linked with, a bit each, as far as nobody has reported the
    /// contrary. Each is linked with itself.
    pub(crate) fn links(&self) -> Vec<u32> {
        let all = || (0..self.settings.processes as u32).map(Pid);
        let of = |p: Pid| {
            let linked = all().filter(|&q| p == q || self.hears(p, q) && self.hears(q, p));
            linked.fold(0, |bits, q| bits | 1 << q.0)
        };
        all().map(of).collect()
    }

    /// This process and those that it hears, a bit each.
    pub(crate) fn heard(&self) -> u32 {
        let heard = self.peers().filter(|&p| !self.suspects(p));
        heard.fold(1 << self.me().0, |bits, p| bits | 1 << p.0)
    }
}
