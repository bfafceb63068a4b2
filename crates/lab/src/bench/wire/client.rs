//! The outstanding multicasts of a node, the times at which they were due, and their remaining
//! destinations.

use crate::bench::{BenchLoad, histogram};
use amcast_core::{Gid, GroupSet, Time};
use hdrhistogram::Histogram;
use std::collections::VecDeque;

/// Multicasts between the oldest and the newest on the way, at most: one that is held up does not make
/// this grow for ever.
const SPAN_MAX: usize = 1 << 16;

/// One multicast on the way.
#[derive(Clone, Copy, Debug)]
struct OpenMulticast {
    due: Time,
    /// Where it is not delivered yet.
    left: GroupSet,
}

/// The client that a node is to itself.
#[derive(Debug)]
pub(super) struct WireClient {
    window: usize,
    /// Nanoseconds between two multicasts, at a given rate.
    every_ns: Option<u64>,
    /// The multicasts from `first` on; those that are finished in between are empty.
    open: VecDeque<OpenMulticast>,
    first: u64,
    unfinished: usize,
    next_due: Time,
    /// Multicasts that finish in this interval are measured.
    from: Time,
    to: Time,
    latencies: Histogram<u64>,
}

impl WireClient {
    /// One that begins now.
    pub(super) fn new(load: &BenchLoad, now: Time) -> Self {
        let seconds = |s: f64| (s * 1e9) as u64;
        let from = Time(now.0 + seconds(load.warm_up_s));
        Self {
            window: load.window(),
            every_ns: load.rate.map(|rate| 1_000_000_000 / rate.max(1)),
            open: VecDeque::new(),
            first: 1,
            unfinished: 0,
            next_due: now,
            from,
            to: Time(from.0 + seconds(load.duration_s)),
            latencies: histogram(),
        }
    }

    /// When the next multicast is due, if it may be sent now.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        let may = now < self.to && self.unfinished < self.window && self.open.len() < SPAN_MAX;
        match self.every_ns {
            _ if !may => None,
            None => Some(now),
            Some(_) => (self.next_due <= now).then_some(self.next_due),
        }
    }

    /// When one is due at a given rate, if the node sleeps until then.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.every_ns.map(|_| self.next_due)
    }

    /// Notes a multicast that was due then; gives its number.
    pub(super) fn send(&mut self, due: Time, dst: GroupSet) -> u64 {
        self.open.push_back(OpenMulticast { due, left: dst });
        self.unfinished += 1;
        self.next_due = Time(due.0 + self.every_ns.unwrap_or(0));
        self.first + self.open.len() as u64 - 1
    }

    /// Number `seq` is delivered in a group.
    pub(super) fn delivered(&mut self, now: Time, seq: u64, group: Gid) {
        let Some(at) = seq.checked_sub(self.first).map(|at| at as usize) else { return };
        let Some(open) = self.open.get_mut(at) else { return };
        if !open.left.contains(group) {
            return;
        }
        open.left = GroupSet(open.left.0 & !GroupSet::one(group).0);
        if !open.left.is_empty() {
            return;
        }
        self.unfinished -= 1;
        if self.from <= now && now < self.to {
            self.latencies.saturating_record(now.since(open.due).0.max(1));
        }
        while self.open.front().is_some_and(|open| open.left.is_empty()) {
            self.open.pop_front();
            self.first += 1;
        }
    }

    /// Whether measuring has begun.
    pub(super) fn has_begun(&self, now: Time) -> bool {
        now >= self.from
    }

    /// Whether measuring is over.
    pub(super) fn is_over(&self, now: Time) -> bool {
        now >= self.to
    }

    /// Whether nothing is on the way.
    pub(super) fn is_idle(&self) -> bool {
        self.unfinished == 0
    }

    /// The measured latencies.
    pub(super) fn latencies(&self) -> &Histogram<u64> {
        &self.latencies
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::DestinationChoice;

    fn load(outstanding: usize, rate: Option<u64>) -> BenchLoad {
        BenchLoad {
            destinations: 1,
            choice: DestinationChoice::Uniform,
            payload: 8,
            outstanding,
            rate,
            warm_up_s: 1e-6,
            duration_s: 1e-3,
            threads: 1,
            pin: false,
            processes: true,
            senders: 1,
            early: false,
            hosts: false,
            rdma_provider: None,
        }
    }

    #[test]
    fn a_multicast_is_finished_in_its_last_destination_and_makes_room() {
        let mut client = WireClient::new(&load(2, None), Time(0));
        let both = GroupSet::first(2);
        let (a, b) = (client.send(Time(2_000), both), client.send(Time(2_000), both));
        assert_eq!((a, b, client.due(Time(2_000))), (1, 2, None));
        client.delivered(Time(3_000), b, Gid(1));
        client.delivered(Time(3_000), b, Gid(1));
        assert_eq!(client.latencies().len(), 0, "it is not delivered in the other group");
        client.delivered(Time(4_000), b, Gid(0));
        assert_eq!((client.latencies().len(), client.latencies().max()), (1, 2_000));
        assert_eq!(client.due(Time(4_000)), Some(Time(4_000)));
        assert_eq!(client.send(Time(4_000), both), 3, "the first one is still on the way");
        assert!(!client.is_idle());
    }

    #[test]
    fn what_ends_in_the_warm_up_or_after_the_end_does_not_count() {
        let mut client = WireClient::new(&load(8, None), Time(0));
        let one = GroupSet::first(1);
        for _ in 0..3 {
            client.send(Time(0), one);
        }
        client.delivered(Time(999), 1, Gid(0));
        client.delivered(Time(1_000), 2, Gid(0));
        client.delivered(Time(1_001_000), 3, Gid(0));
        assert_eq!(client.latencies().len(), 1);
        assert!(client.is_idle() && client.is_over(Time(1_001_000)));
        assert_eq!(client.due(Time(1_001_000)), None);
    }

    #[test]
    fn at_a_rate_latency_counts_from_when_a_multicast_was_due() {
        let mut client = WireClient::new(&load(1, Some(1_000_000)), Time(0));
        let one = GroupSet::first(1);
        let due = client.due(Time(5_000)).unwrap();
        assert_eq!(due, Time(0), "it is late");
        let seq = client.send(due, one);
        assert_eq!(client.due(Time(5_000)), Some(Time(1_000)));
        client.delivered(Time(5_000), seq, Gid(0));
        assert_eq!(client.latencies().min(), 5_000);
    }
}
