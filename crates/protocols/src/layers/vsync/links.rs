//! Which members a view may name together, as far as links are concerned: those that hear each other.
//!
//! A link may be dead in one direction while all else works. Then one member starves, its acknowledgements
//! stop, and windows of the others fill, although every process is heard by somebody and suspected by nobody
//! who could do something about it. So each process reports, with its heartbeats, which peers it has not heard
//! for long ([`PacketItem::Unheard`](super::packet::PacketItem::Unheard)), and the coordinator judges its proposals by these
//! reports: of two members of which one does not hear the other it leaves one out, and it takes in nobody that
//! a member does not hear, or that does not hear a member. Once the link works again the reports end, and the
//! excluded process joins as any other.
//!
//! ```text
//! view [C, A, B]            B reports to C: A is unheard     C proposes [C, A]: decided by C and A
//! A -x-> B, all else works  (B is the junior end)            B joins again, and reports: A is unheard
//!                                                            C takes it in when the report has ended
//! ```
//!
//! # Why it is safe
//! A report is one more reason to propose a view, as a suspicion is. Safety never depends on why a view is
//! proposed: a majority of voters decides it, and its cut holds what each of them has. Nobody forwards
//! anything for others, so a packet still comes from the process that made it.
//!
//! # The coordinator
//! The most senior member that is in a majority of processes that hear each other, and not simply the most
//! senior one that is heard: a member that hears nobody, or that few hear, gets no majority of promises. A
//! coordinator that learns too late that it is in no such majority proposes nothing of its own, and the next one
//! takes over.
//!
//! # Excluded members
//! Of the two ends of a dead link the one without the state, then the one with more dead links, then the
//! junior one; another one if the rest would not hold a majority that hears each other. The coordinator itself
//! stays, however many dead links it has: a member that does not hear its `Prepare` does not promise, and so it
//! is not in the next view. Nobody goes if fewer than a majority would stay, or fewer than a majority with the
//! state: then the view stays as it is, as it would without reports.
//!
//! # Limit
//! A coordinator that suspects others proposes before anyone reports dead links between the rest. That view may
//! exclude so many that those who hear each other are no majority with the state any more. Then the group continues
//! later, when each copy of the state has been silent for long, or when the links work again.

use super::Vsync;
use super::packet::PacketItem;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{GroupMember, Groupcast};
use amcast_core::{Pid, Protocol, Time};

/// How many times as long as the patience with a peer it must be silent to be reported as unheard. When a
/// process fails, the others suspect it before anyone reports it.
const REPORT_PATIENCE: u64 = 2;

/// For how many heartbeats a report holds that is not repeated.
const REPORT_HEARTBEATS: u64 = 8;

/// Which processes a peer does not hear, as it reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkReport {
    /// A bit for each process.
    unheard: u32,
    /// Until when it holds.
    until: Time,
}

impl Default for LinkReport {
    /// It hears all.
    fn default() -> Self {
        Self { unheard: 0, until: Time::ZERO }
    }
}

/// Whether so many bits are set.
const fn holds(bits: u32, least: usize) -> bool {
    bits.count_ones() as usize >= least
}

/// Whether at least `least` of these processes are linked with each other; `links` has the links of each by
/// pid, the same in both directions.
///
/// Of a process with two dead links or more it tries the others without it, and those that it is linked with:
/// of 32 processes, 15 of which may go, it looks at a few thousand sets at most.
pub(super) fn holds_linked(all: u32, links: &[u32], least: usize) -> bool {
    if !holds(all, least) {
        return false;
    }
    let dead = |p: &usize| (all & !links[*p]).count_ones() as usize;
    let one_of = || (0..links.len()).filter(|p| all >> p & 1 == 1);
    let Some(worst) = one_of().max_by_key(dead) else { return true };
    match dead(&worst) {
        0 => true,
        // The dead links are apart, and one end of each goes.
        1 => all.count_ones() as usize - one_of().map(|p| dead(&p)).sum::<usize>() / 2 >= least,
        _ => {
            holds_linked(all & !(1 << worst), links, least)
                || holds_linked(all & links[worst], links, least)
        }
    }
}

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// The processes that have been silent here for so long that the link from them seems dead.
    fn unheard(&self) -> u32 {
        if self.settings.told_who_failed {
            // Silence says nothing.
            return 0;
        }
        let is_unheard = |p: &Pid| {
            let patience = self.detector.patience(p.index()).times(REPORT_PATIENCE);
            self.suspects(*p) && self.detector.silence(self.now, p.index()) >= patience
        };
        self.peers().filter(is_unheard).fold(0, |bits, p| bits | 1 << p.0)
    }

    /// Reports to all with a heartbeat which processes are unheard here, as long as there are any, and once
    /// when there are none any more. Also those that are in no view: whether they want to join is not known
    /// where they are not heard. The report travels in the packet of the heartbeat, which a carrier with
    /// multicast sends once.
    pub(super) fn report_unheard(&mut self) {
        let processes = self.unheard();
        if processes != 0 || self.reported != 0 {
            if self.beats_to_group() {
                self.post_all(PacketItem::Unheard { processes });
            } else {
                self.peers().for_each(|to| self.post(to, PacketItem::Unheard { processes }));
            }
        }
        self.reported = processes;
    }

    pub(super) fn on_unheard(&mut self, from: Pid, unheard: u32) {
        let until = self.now + self.settings.heartbeat.times(REPORT_HEARTBEATS);
        self.reports[from.index()] = LinkReport { unheard, until };
    }

    /// Whether any peer reports that it does not hear some process.
    fn has_reports(&self) -> bool {
        self.reports.iter().any(|report| report.unheard != 0 && report.until > self.now)
    }

    /// Whether `a` hears `b`, as far as `a` has not reported the contrary.
    fn hears(&self, a: Pid, b: Pid) -> bool {
        let LinkReport { unheard, until } = self.reports[a.index()];
        until <= self.now || unheard >> b.0 & 1 == 0
    }

    /// Whether what this process sends reaches `p`, as far as `p` has not reported the contrary.
    pub(super) fn reaches(&self, p: Pid) -> bool {
        self.hears(p, self.me())
    }

    /// Whether a member of the view that works has the state, as far as is known.
    pub(super) fn shows_state(&self, m: &GroupMember) -> bool {
        match m.pid == self.me() {
            true => self.is_fit(),
            false => self.fit[m.pid.index()] && !self.failed(*m),
        }
    }

    /// By pid: which processes each one is linked with, a bit each, as far as nobody has reported the
    /// contrary. Each is linked with itself.
    fn links(&self) -> Vec<u32> {
        let all = || (0..self.settings.processes as u32).map(Pid);
        let of = |p: Pid| {
            let linked = all().filter(|&q| p == q || self.hears(p, q) && self.hears(q, p));
            linked.fold(0, |bits, q| bits | 1 << q.0)
        };
        all().map(of).collect()
    }

    /// This process and those that it hears, a bit each.
    fn heard(&self) -> u32 {
        let heard = self.peers().filter(|&p| !self.suspects(p));
        heard.fold(1 << self.me().0, |bits, p| bits | 1 << p.0)
    }

    /// The member that changes the view: of those that seem to work the most senior one that is in a majority of
    /// processes that hear each other, as far as this process knows. None if there is none.
    ///
    /// Somebody always takes it on itself, where a majority hears each other. If this process names another
    /// member, it hears all of a majority that this one is in, and has its reports. So that member has them, too,
    /// and names itself, or one that is senior to it. That ends, since seniority is an order.
    pub(super) fn coordinator(&self) -> Option<Pid> {
        let heard = self.heard();
        if !holds(heard, self.quorum()) {
            return None;
        }
        let mut working = self.view.members.iter().filter(|m| !self.failed(**m)).map(|m| m.pid);
        if !self.has_reports() {
            return working.next();
        }
        let links = self.links();
        working.find(|p| holds_linked(links[p.index()] & heard, &links, self.quorum()))
    }

    /// Whether this process is in a majority of processes that hear each other, as far as it knows.
    pub(super) fn is_linked(&self) -> bool {
        !self.has_reports() || {
            let links = self.links();
            holds_linked(links[self.me().index()] & self.heard(), &links, self.quorum())
        }
    }

    /// Drops members of which some other one is unheard, or the other way round, as far as a majority stays,
    /// with the state.
    pub(super) fn spare_unlinked(
        &self,
        members: &mut Vec<GroupMember>,
        has_state: impl Fn(&GroupMember) -> bool,
    ) {
        if !self.has_reports() {
            return;
        }
        let links = self.links();
        let mut linked = members.clone();
        loop {
            let all = linked.iter().fold(0, |bits, m| bits | 1 << m.pid.0);
            let dead = |at: usize| (all & !links[linked[at].pid.index()]).count_ones();
            let may_go = |&at: &usize| {
                let without = all & !(1 << linked[at].pid.0);
                dead(at) > 0 && holds_linked(without, &links, self.quorum())
            };
            let parted = (0..linked.len()).filter(may_go);
            let goes = parted.max_by_key(|&at| (!has_state(&linked[at]), dead(at), at));
            let Some(at) = goes else { break };
            linked.remove(at);
        }
        let copies = |all: &[GroupMember]| all.iter().filter(|m| has_state(m)).count();
        if copies(&linked) >= self.quorum().min(copies(members)) {
            *members = linked;
        }
    }

    /// The members that work, in the order of seniority.
    fn working(&self) -> Vec<GroupMember> {
        self.view.members.iter().copied().filter(|m| !self.failed(*m)).collect()
    }

    /// Whether the next view should be without some member because of dead links.
    pub(super) fn is_unlinked(&self) -> bool {
        self.has_reports() && {
            let working = self.working();
            let mut linked = working.clone();
            self.spare_unlinked(&mut linked, |m| self.shows_state(m));
            linked.len() < working.len()
        }
    }

    /// Whether the next view may name a process that wants to join, as far as links are concerned.
    pub(super) fn may_link(&self, joiner: GroupMember) -> bool {
        if !self.has_reports() {
            return true;
        }
        let mut members = self.working();
        members.push(joiner);
        self.spare_unlinked(&mut members, |m| *m != joiner && self.shows_state(m));
        members.contains(&joiner)
    }
}
