//! Which processes hear which, as far as one process knows, and the components that follow from it.
//!
//! Each process reports with its heartbeats which processes it hears, and in which view it is. Two processes are linked
//! when each hears the other one. Hearing need not be transitive: where p0 and p1 are linked, and p1 and p2, but not p0 and
//! p2, a view of all three would stop. So the processes are divided into sets in which all are linked, by a rule that
//! all of them compute alike from the same reports: beginning with the lowest process each takes in the next one that is
//! linked with all that it has, and the rest is divided in the same way.
//!
//! ```text
//! p0 -- p1 -- p2      p0 and p2 do not hear each other: {p0, p1} and {p2}
//! ```
//! Reports are passed on with each heartbeat, so that p2 above knows which processes p0 hears. A process of which nobody has a
//! report counts as hearing all.
//!
//! # Age
//! A process makes a report with each heartbeat, so that one that still comes from it, over any path, has a higher number than
//! the last. A report without a later one for [long](REPORT_HEARTBEATS) is believed no more, and passed on no more: its
//! process is gone, or lives a life of which this one has heard nothing. If it were believed, this process
//! could divide the processes otherwise than all others do, for good: it would not answer the one that asks it for
//! a view, which would ask again and again. One that is passed on counts in its place then, also of a life that this
//! process has not heard.
//!
//! A report that is passed on and that its process has not made, with a high number or of an incarnation that never was,
//! does not stay: the report that comes from the process itself counts more, and a process that receives a report of its
//! own with a number that it has not reached makes the next one with a higher number.

use super::super::NONSENSE;
use crate::layers::vsync::membership::GroupMembership;
use alloc::vec::Vec;
use amcast_core::{Pid, Time};

/// For how many heartbeats a report is believed without a later one of its process.
const REPORT_HEARTBEATS: u64 = 32;

/// More reports than a process makes in an incarnation. A report of a higher number is of nobody, and there are higher numbers
/// behind each other one.
const VERSIONS_MAX: u64 = 1 << 48;

/// The last report of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HearingReport {
    /// Its incarnation.
    pub(crate) life: u64,
    /// How many reports it has made in it, this one included; 0 where there is none.
    pub(crate) version: u64,
    /// The number of its view.
    pub(crate) view: u64,
    /// The processes that it hears, itself among them, a bit each.
    pub(crate) hears: u32,
}

impl HearingReport {
    /// Whether anybody can have made it by counting.
    const fn is_sound(&self) -> bool {
        self.life < NONSENSE && self.version < VERSIONS_MAX
    }

    /// Whether this report of a process counts less than another one: of one from the process itself, and one that was passed
    /// on, the former counts; of two that were passed on, that of the incarnation in which the process was heard, as long as it
    /// is believed, and then the later one.
    fn gives_way(&self, new: &Self, (is_own, life): (bool, u64), is_believed: bool) -> bool {
        let is_present = |report: &Self| report.life == life;
        match (is_own, is_present(self), is_present(new)) {
            // The process has said it just now. A report that is later is of nobody, or overtook this one and comes again.
            (true, _, true) => self != new,
            (_, true, false) if is_believed => false,
            (_, false, true) => true,
            _ => (new.life, new.version) > (self.life, self.version),
        }
    }

    /// A report about this process itself, in its present incarnation, that it has not made, is passed on: its next report is
    /// later than that one, so that it counts wherever the other one does.
    fn outdo(&mut self, passed_on: &Self, life: u64) {
        let is_of_now = passed_on.life == life && passed_on.is_sound();
        if is_of_now && passed_on.version > self.version {
            // Another content than any report has, for the next one to be made at once.
            *self = Self { life, version: passed_on.version, view: NONSENSE, hears: 0 };
        }
    }
}

/// The reports of all processes, as far as they are known.
#[derive(Debug)]
pub(super) struct ComponentLinks {
    /// By pid.
    reports: Vec<HearingReport>,
    /// By pid: until when each is believed.
    until: Vec<Time>,
    /// Those that are believed, a bit each, as of the last heartbeat.
    believed: u32,
}

/// The set of the processes in `all` that `me` is in, where `links` has the processes that each is linked with, a bit
/// each.
fn clique(all: u32, links: &[u32], me: Pid) -> u32 {
    let mut rest = all | 1 << me.0;
    loop {
        let taken = grown(0, rest, links);
        if taken >> me.0 & 1 == 1 {
            return taken;
        }
        rest &= !taken;
    }
}

/// The set that grows from `begun` by the lowest of `all` that are linked with all that are in it.
pub(super) fn grown(begun: u32, all: u32, links: &[u32]) -> u32 {
    let candidates = (0..links.len()).filter(|p| (all & !begun) >> p & 1 == 1);
    candidates.fold(begun, |taken, p| match taken & !links[p] {
        0 => taken | 1 << p,
        _ => taken,
    })
}

/// By pid: the processes that each is linked with, itself among them, where `hears` has those that each hears.
pub(super) fn linked(hears: &[u32]) -> Vec<u32> {
    let of = |p: usize| {
        let others = (0..hears.len()).filter(|&q| hears[p] >> q & hears[q] >> p & 1 == 1);
        others.fold(1 << p, |bits: u32, q| bits | 1 << q)
    };
    (0..hears.len()).map(of).collect()
}

impl ComponentLinks {
    /// Nobody has reported anything.
    pub(super) fn new(processes: usize) -> Self {
        let reports = alloc::vec![HearingReport::default(); processes];
        Self { reports, until: alloc::vec![Time::ZERO; processes], believed: 0 }
    }

    const fn believes(&self, p: Pid) -> bool {
        self.believed >> p.0 & 1 == 1
    }

    /// Believes no report any more that is too old. Says whether there is any that was believed until now.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let is_old = |p: &usize| self.until[*p] <= now;
        let old = (0..self.until.len()).filter(is_old).fold(0_u32, |bits, p| bits | 1 << p);
        let any = self.believed & old != 0;
        self.believed &= !old;
        any
    }

    /// Takes over the reports that a process has, where they count more than those that are here. Says whether any is news.
    pub(super) fn update(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        reports: &[HearingReport],
    ) -> bool {
        let mut is_news = false;
        let until = group.now + group.settings.heartbeat.times(REPORT_HEARTBEATS);
        for (at, new) in reports.iter().enumerate().take(self.reports.len()) {
            let (p, kept) = (Pid(at as u32), self.reports[at]);
            if p == group.me() {
                self.reports[at].outdo(new, group.life);
                continue;
            }
            let (source, is_believed) = ((p == from, group.peers.life(p)), self.believes(p));
            if new.is_sound() && kept.gives_way(new, source, is_believed) {
                let is_same = (new.life, new.view, new.hears) == (kept.life, kept.view, kept.hears);
                is_news |= !is_same || !is_believed;
                (self.reports[at], self.until[at]) = (*new, until);
                self.believed |= 1 << at;
            }
        }
        is_news
    }

    /// All reports that are believed, with a new one of this process.
    pub(super) fn report(&mut self, group: &GroupMembership) -> Vec<HearingReport> {
        let own = &mut self.reports[group.me().index()];
        let (life, version) = (group.life, own.version + 1);
        *own = HearingReport { life, version, view: group.view.id, hears: group.heard() };
        let each = (0..).map(Pid).zip(&self.reports);
        let passed_on = |(p, report): (Pid, &HearingReport)| match p == group.me() {
            true => *report,
            false if self.believes(p) => *report,
            false => HearingReport::default(),
        };
        each.map(passed_on).collect()
    }

    /// The report of a process in its present incarnation, or in a later one that this process has not heard.
    fn known(&self, group: &GroupMembership, p: Pid) -> Option<HearingReport> {
        let report = self.reports[p.index()];
        (self.believes(p) && report.life >= group.peers.life(p)).then_some(report)
    }

    /// Whether a process reports, in the incarnation in which it was heard, that it is in another view than this.
    pub(super) fn is_elsewhere(&self, group: &GroupMembership, p: Pid, view: u64) -> bool {
        let of_now = |report: &HearingReport| report.life == group.peers.life(p);
        self.known(group, p).filter(of_now).is_some_and(|report| report.view != view)
    }

    /// The component that this process should be in, itself among it, a bit each. Processes that have announced that they
    /// leave are in none.
    pub(super) fn component(&self, group: &GroupMembership) -> u32 {
        let (me, heard) = (group.me(), group.heard());
        let each = || (0..self.reports.len() as u32).map(Pid);
        let report = |p: Pid| match p == me {
            true => Some(heard),
            false => self.known(group, p).map(|report| report.hears | 1 << p.0),
        };
        let hears: Vec<u32> = each().map(|p| report(p).unwrap_or(u32::MAX)).collect();
        let reported = each().filter_map(report).fold(heard, |bits, hears| bits | hears);
        let leaves = |p: &Pid| group.requests.leaves(group.peers.incarnation(*p));
        let leavers = each().filter(leaves).fold(0_u32, |bits, p| bits | 1 << p.0);
        let known = reported & (u32::MAX >> (32 - self.reports.len().clamp(1, 32)));
        clique(known & !leavers, &linked(&hears), me)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets of all processes, each as that process computes it.
    fn sets(hears: &[u32]) -> Vec<u32> {
        let all = u32::MAX >> (32 - hears.len());
        (0..hears.len() as u32).map(|p| clique(all, &linked(hears), Pid(p))).collect()
    }

    #[test]
    fn a_report_of_the_process_itself_counts_more_than_one_that_is_passed_on() {
        let report = |life, version, hears| HearingReport { life, version, view: 0, hears };
        let own = report(3, 5, 0b111);
        let gives_way = |kept: HearingReport, new, is_own| kept.gives_way(&new, (is_own, 3), true);
        assert!(gives_way(own, report(3, 6, 0b011), false) && !gives_way(own, own, false));
        // Passed on with a high number, it stays until the process says something.
        let wild = report(3, 1 << 40, 0b100);
        assert!(gives_way(own, wild, false) && !gives_way(wild, own, false));
        assert!(gives_way(wild, own, true) && !gives_way(own, own, true));
        // Of an incarnation that nobody has heard.
        assert!(!gives_way(own, report(9, 1, 0), false) && gives_way(report(9, 1, 0), own, false));
        // Unless that of the present one is believed no more.
        assert!(own.gives_way(&report(9, 1, 0), (false, 3), false));
        assert!(!own.gives_way(&report(2, 9, 0), (false, 3), false));
        assert!(!report(3, VERSIONS_MAX, 0).is_sound() && !report(NONSENSE, 1, 0).is_sound());
        // The process makes its next report with a higher number.
        let mut reported = own;
        reported.outdo(&report(2, 1 << 40, 0b100), 3);
        reported.outdo(&report(3, 4, 0b100), 3);
        reported.outdo(&report(3, VERSIONS_MAX, 0b100), 3);
        assert_eq!(reported, own);
        reported.outdo(&wild, 3);
        assert!(reported.version == 1 << 40 && reported != report(3, 1 << 40, 0b111));
    }

    #[test]
    fn a_link_counts_when_both_ends_hear_each_other() {
        assert_eq!(linked(&[0b111, 0b010, 0b101]), [0b101, 0b010, 0b101]);
    }

    #[test]
    fn processes_that_do_not_hear_each_other_are_divided_and_the_lowest_ones_stay_together() {
        assert_eq!(sets(&[0b111, 0b111, 0b111]), [0b111; 3]);
        // p0 and p2 do not hear each other.
        assert_eq!(sets(&[0b011, 0b111, 0b110]), [0b011, 0b011, 0b100]);
        // One direction is enough.
        assert_eq!(sets(&[0b011, 0b111, 0b111]), [0b011, 0b011, 0b100]);
        // Two halves, and a chain.
        assert_eq!(sets(&[0b0011, 0b0011, 0b1100, 0b1100]), [0b0011, 0b0011, 0b1100, 0b1100]);
        assert_eq!(sets(&[0b0011, 0b0111, 0b1110, 0b1100]), [0b0011, 0b0011, 0b1100, 0b1100]);
    }

    #[test]
    fn every_set_is_one_of_processes_that_are_all_linked_and_no_process_is_in_two() {
        // Every graph of four processes.
        for graph in 0..1_u32 << 6 {
            let mut hears = [1_u32, 2, 4, 8];
            let pairs = (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, b)));
            for (at, (a, b)) in pairs.enumerate() {
                if graph >> at & 1 == 1 {
                    hears[a] |= 1 << b;
                    hears[b] |= 1 << a;
                }
            }
            let links = linked(&hears);
            let sets = sets(&hears);
            for (p, set) in sets.iter().enumerate() {
                let members = || (0..4).filter(|q| set >> q & 1 == 1);
                assert!(members().all(|q| set & !links[q] == 0), "{graph:b}: {sets:?}");
                assert!(members().all(|q| sets[q] == *set) && set >> p & 1 == 1, "{graph:b}");
            }
        }
    }
}
