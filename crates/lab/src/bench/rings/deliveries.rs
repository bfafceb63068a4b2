//! The observations of a process in a measurement of rings.

use crate::bench::histogram;
use amcast_core::step::Note;
use amcast_core::{ClusterShape, Delivery, Pid, ProtocolEvent, Span, Time};
use amcast_node::clock;
use amcast_node::memory_driver::UpperLayer;
use hdrhistogram::Histogram;
use std::collections::VecDeque;

/// After so many deliveries the digest of the order is noted.
const DIGEST_EVERY: u64 = 1024;

/// The observations of the replica of one group.
#[derive(Debug)]
pub(super) struct OfRing {
    me: Pid,
    /// The own messages on the way, and when they were multicast, or were due; in order.
    pub(super) sent: VecDeque<(u64, Time)>,
    pub(super) seq: u64,
    /// By process: the number of its last message, unless what came with a state is not known.
    last: Vec<Option<u64>>,
    pub(super) position: u64,
    delivered: u64,
    digest: u64,
    /// Of the order, after each so many deliveries, as long as it had all.
    pub(super) digests: Vec<u64>,
    is_whole: bool,
}

/// The observations of all replicas of a process.
#[derive(Debug)]
pub(super) struct DeliveryWatch {
    cluster: ClusterShape,
    /// By group.
    pub(super) rings: Vec<OfRing>,
    /// Within this time it is counted.
    from: Time,
    until: Time,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) latencies: Histogram<u64>,
    /// The time of deliveries, read at the first of a round.
    pub(super) now: Option<Time>,
    /// Payload delivered since the last reported checkpoint.
    pub(super) since_checkpoint: u64,
    /// How often a replica fell so far behind that it got the state of another.
    pub(super) left_behind: u64,
    /// Such a state is there, and its installation was not reported yet.
    pub(super) installed: bool,
    /// The violation, if any.
    pub(super) wrong: Option<String>,
}

impl DeliveryWatch {
    pub(super) fn new(cluster: ClusterShape, rank: usize, (from, until): (Time, Time)) -> Self {
        let ring = |group| OfRing {
            me: cluster.replica(group, rank),
            sent: VecDeque::new(),
            seq: 0,
            last: vec![Some(0); cluster.processes()],
            position: 0,
            delivered: 0,
            digest: 0,
            digests: Vec::new(),
            is_whole: true,
        };
        Self {
            cluster,
            rings: cluster.all_groups().iter().map(ring).collect(),
            from,
            until,
            messages: 0,
            bytes: 0,
            latencies: histogram(),
            now: None,
            since_checkpoint: 0,
            left_behind: 0,
            installed: false,
            wrong: None,
        }
    }
}

impl OfRing {
    /// Notes a delivery; gives since when it was on the way, if it is an own one.
    fn deliver(&mut self, delivery: Delivery) -> Result<Option<Time>, String> {
        let Delivery { msg, position, .. } = delivery;
        let last = &mut self.last[msg.sender.index()];
        if let Some(before) = last.filter(|last| msg.seq != last + 1) {
            return Err(format!("{:?} delivered {msg:?} behind number {before}", self.me));
        }
        (*last, self.position) = (Some(msg.seq), position);
        let word = u64::from(msg.sender.0) << 48 ^ msg.seq;
        self.digest = (self.digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.digest ^= self.digest >> 29;
        self.delivered += 1;
        if self.is_whole && self.delivered.is_multiple_of(DIGEST_EVERY) {
            self.digests.push(self.digest);
        }
        let own = self.sent.front().filter(|(seq, _)| msg.sender == self.me && *seq == msg.seq);
        let since = own.map(|(_, since)| *since);
        if since.is_some() {
            self.sent.pop_front();
        }
        Ok(since)
    }

    /// Continues behind the state of another, whose messages were not delivered here.
    fn install(&mut self, position: u64) {
        self.last.iter_mut().for_each(|last| *last = None);
        self.sent.clear();
        (self.position, self.is_whole) = (position, false);
    }
}

impl UpperLayer for DeliveryWatch {
    fn deliver(&mut self, _: Time, p: Pid, delivery: Delivery, payload: &[u8]) {
        let Some(group) = self.cluster.group_of(p) else { return };
        // Not the time at which the round began: that would make latencies look shorter.
        let now = *self.now.get_or_insert_with(clock::now);
        self.since_checkpoint += payload.len() as u64;
        let counts = (self.from..self.until).contains(&now);
        self.messages += u64::from(counts);
        self.bytes += if counts { payload.len() as u64 } else { 0 };
        match self.rings[group.index()].deliver(delivery) {
            Ok(Some(since)) if counts => {
                self.latencies.saturating_record(now.since(since).0.max(1))
            }
            Ok(_) => {}
            Err(why) => _ = self.wrong.get_or_insert(why),
        }
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        if let ProtocolEvent::NeedsState { position, .. } = event
            && let Some(group) = self.cluster.group_of(p)
        {
            // Nobody reads the state of a measurement: it counts as here.
            self.rings[group.index()].install(position);
            (self.left_behind, self.installed) = (self.left_behind + 1, true);
        }
    }

    fn note(&mut self, _: Time, p: Pid, note: Note) {
        if let Note::Malformed(from, what) = note {
            self.wrong.get_or_insert(format!("{p:?} heard of {from:?} {what}"));
        }
    }
}

/// When messages are due that are sent at a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendPace {
    next: Time,
    every: Span,
}

impl SendPace {
    pub(super) fn new(begin: Time, per_second: u64) -> Self {
        Self { next: begin, every: Span(1_000_000_000 / per_second.max(1)) }
    }

    /// When the next one is due.
    pub(super) const fn next(&self) -> Time {
        self.next
    }

    /// It was sent.
    pub(super) fn sent(&mut self) {
        self.next += self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::{Gid, GroupSet, MsgId, Outbox, messages::Frames};

    fn delivery(sender: Pid, seq: u64, position: u64) -> Delivery {
        let payload = Outbox::<Frames>::default().fill(|_| {});
        let msg = MsgId { sender, seq };
        Delivery { msg, dst: GroupSet::one(Gid(0)), position, payload }
    }

    #[test]
    fn a_gap_and_a_message_that_comes_twice_are_seen() {
        let cluster = ClusterShape::new(1, 3, 0).unwrap();
        for (second, is_wrong) in [(2, false), (1, true), (3, true)] {
            let mut watch = DeliveryWatch::new(cluster, 0, (Time::ZERO, Time::NEVER));
            for (n, seq) in (1..).zip([1, second]) {
                watch.deliver(Time::ZERO, Pid(0), delivery(Pid(1), seq, n), &[]);
            }
            assert_eq!(watch.wrong.is_some(), is_wrong, "{second}");
        }
    }

    #[test]
    fn another_order_has_another_digest() {
        let cluster = ClusterShape::new(1, 3, 0).unwrap();
        let digest = |flip: bool| {
            let mut watch = DeliveryWatch::new(cluster, 0, (Time::ZERO, Time::NEVER));
            for n in 0..DIGEST_EVERY {
                let sender = Pid(u32::from((n % 2 == 0) ^ (flip && n < 2)));
                watch.deliver(Time::ZERO, Pid(2), delivery(sender, n / 2 + 1, n + 1), &[]);
            }
            assert_eq!(watch.wrong, None);
            watch.rings[0].digests.clone()
        };
        assert_eq!(digest(false), digest(false));
        assert_ne!(digest(false), digest(true));
    }
}
