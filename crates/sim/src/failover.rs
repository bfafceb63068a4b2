//! Counts of failover in a run: how often leaders change, with what in flight, and how many replicas
//! lose state and get it back.

use crate::world::SimulatedRun;
use alloc::vec::Vec;
use amcast_core::{Gid, Pid};

/// How often what a failover consists of occurred in a run, or in several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Failover {
    /// Runs in which at least one leader changed.
    pub runs: u64,
    /// How often a group got another leader than the one before; not how often one leads anew.
    pub leader_changes: u64,
    /// Multicasts to several groups, counted anew at each change of a leader, that were then not yet
    /// delivered by every living replica of their destinations.
    pub in_flight: u64,
    /// Replicas that found that they miss part of the log, or learned so, without a crash.
    pub left_behind: u64,
    /// Replicas that had all state again after a crash.
    pub transfers_after_crash: u64,
    /// Replicas that had all state again after they had lagged too far.
    pub transfers_when_left_behind: u64,
}

impl Failover {
    /// Adds what other runs show.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.leader_changes += other.leader_changes;
        self.in_flight += other.in_flight;
        self.left_behind += other.left_behind;
        self.transfers_after_crash += other.transfers_after_crash;
        self.transfers_when_left_behind += other.transfers_when_left_behind;
    }

    /// Each count with its name.
    pub const fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("runs_with_leader_changes", self.runs),
            ("leader_changes", self.leader_changes),
            ("in_flight_at_leader_changes", self.in_flight),
            ("left_behind", self.left_behind),
            ("transfers_after_crash", self.transfers_after_crash),
            ("transfers_when_left_behind", self.transfers_when_left_behind),
        ]
    }
}

/// The reason why a replica misses state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Crash,
    LeftBehind,
}

/// Counts during a run.
#[derive(Debug)]
pub(crate) struct FailoverCounter {
    pub counts: Failover,
    /// By group: who led it last.
    led: Vec<Option<Pid>>,
    /// By process: the reason why it misses state, if it does.
    lacks: Vec<Option<Cause>>,
}

impl FailoverCounter {
    pub(crate) fn new(groups: usize, processes: usize) -> Self {
        Self {
            counts: Failover::default(),
            led: alloc::vec![None; groups],
            lacks: alloc::vec![None; processes],
        }
    }

    /// A process says that it leads a group; whether another one did before.
    fn leads(&mut self, group: Gid, p: Pid) -> bool {
        self.led[group.index()].replace(p).is_some_and(|before| before != p)
    }

    /// A process starts again after a crash.
    pub(crate) fn restarts(&mut self, p: Pid) {
        self.lacks[p.index()] = Some(Cause::Crash);
    }

    /// A process reports that it misses state.
    pub(crate) fn recovering(&mut self, p: Pid) {
        let lacks = &mut self.lacks[p.index()];
        if lacks.is_none() {
            *lacks = Some(Cause::LeftBehind);
            self.counts.left_behind += 1;
        }
    }

    /// A process says that it has all state.
    pub(crate) fn recovered(&mut self, p: Pid) {
        match self.lacks[p.index()].take() {
            Some(Cause::Crash) => self.counts.transfers_after_crash += 1,
            Some(Cause::LeftBehind) => self.counts.transfers_when_left_behind += 1,
            None => {}
        }
    }
}

impl SimulatedRun<'_> {
    /// A process says that it leads its group.
    pub(crate) fn leads(&mut self, p: Pid) {
        let Some(group) = self.procs[p.index()].group else { return };
        if !self.failover.leads(group, p) {
            return;
        }
        let in_flight = self.ledger.messages.iter().filter(|m| {
            let mut members = m.dst.iter().flat_map(|g| self.cluster.members(g));
            let misses = |q: Pid| self.procs[q.index()].alive() && !m.delivered_by(q);
            m.dst.len() > 1 && members.any(misses)
        });
        self.failover.counts.in_flight += in_flight.count() as u64;
        self.failover.counts.leader_changes += 1;
        self.failover.counts.runs = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_leads_anew_is_no_change() {
        let mut counter = FailoverCounter::new(2, 3);
        let led = [(0, 1), (0, 1), (0, 2), (1, 1), (0, 2), (0, 1), (1, 1)];
        let changes = led.map(|(group, p)| counter.leads(Gid(group), Pid(p)));
        assert_eq!(changes, [false, false, true, false, false, true, false]);
    }

    #[test]
    fn a_transfer_counts_by_what_it_mends() {
        let mut counter = FailoverCounter::new(1, 3);
        counter.restarts(Pid(0));
        counter.recovering(Pid(0));
        counter.recovered(Pid(0));
        counter.recovering(Pid(1));
        counter.recovered(Pid(1));
        counter.recovered(Pid(1));
        let Failover { left_behind, transfers_after_crash, transfers_when_left_behind, .. } =
            counter.counts;
        assert_eq!((left_behind, transfers_after_crash, transfers_when_left_behind), (1, 1, 1));
        let mut sum = counter.counts;
        sum.add(&counter.counts);
        assert!(sum.named().iter().zip(counter.counts.named()).all(|(a, b)| a.1 == 2 * b.1));
    }
}
