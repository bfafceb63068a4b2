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

use super::super::NONSENSE;
use crate::layers::vsync::membership::GroupMembership;
use alloc::vec::Vec;
use amcast_core::Pid;

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

/// The reports of all processes, as far as they are known.
#[derive(Debug)]
pub(super) struct ComponentLinks {
    /// By pid.
    reports: Vec<HearingReport>,
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
        Self { reports: alloc::vec![HearingReport::default(); processes] }
    }

    /// Takes over the reports that a process has, where they are newer. Says whether any is news.
    pub(super) fn update(&mut self, me: Pid, reports: &[HearingReport]) -> bool {
        let mut is_news = false;
        for (p, (own, new)) in self.reports.iter_mut().zip(reports).enumerate() {
            let is_newer = (new.life, new.version) > (own.life, own.version);
            let is_sound = new.life < NONSENSE && new.version < NONSENSE;
            if is_newer && is_sound && p != me.index() {
                is_news |= (new.life, new.view, new.hears) != (own.life, own.view, own.hears);
                *own = *new;
            }
        }
        is_news
    }

    /// All reports, with a new one of this process if it hears others, or is in another view.
    pub(super) fn report(&mut self, group: &GroupMembership) -> Vec<HearingReport> {
        let own = &mut self.reports[group.me().index()];
        let version = own.version;
        let (life, view) = (group.life, group.view.id);
        let new = HearingReport { life, version, view, hears: group.heard() };
        if *own != new || version == 0 {
            *own = HearingReport { version: version + 1, ..new };
        }
        self.reports.clone()
    }

    /// The report of a process in its present incarnation.
    fn known(&self, group: &GroupMembership, p: Pid) -> Option<HearingReport> {
        let report = self.reports[p.index()];
        (report.version > 0 && report.life == group.peers.life(p)).then_some(report)
    }

    /// Whether a process reports that it is in another view than this.
    pub(super) fn is_elsewhere(&self, group: &GroupMembership, p: Pid, view: u64) -> bool {
        self.known(group, p).is_some_and(|report| report.view != view)
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
