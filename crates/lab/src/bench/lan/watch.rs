//! The observations of a process of a measurement: its deliveries, and how long it waited for bandwidth.

use amcast_core::codec::{ByteReader, Codec};
use amcast_core::step::Note;
use amcast_core::{MsgId, Span, Time};
use amcast_protocols::fastcast::{CAPACITY_CHANGES, INCREASE_BEGINS, INCREASE_ENDS};
use amcast_protocols::layers::vsync::VsyncPacket;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Orders are compared after each of so many deliveries.
const COMPARED_EVERY: u64 = 16;

/// A step of the course of a run.
pub const COURSE_STEP: Span = Span::millis(100);

/// The packets of a protocol that a member handed to its carrier, by the kinds of messages in them, and its marks.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketKinds {
    /// `all` or `one`, as they go to all members or to one of them, and what is in them.
    pub(super) counts: BTreeMap<String, u64>,
}

impl PacketKinds {
    /// A packet leaves.
    pub(super) fn count(&mut self, to_all: bool, bytes: &[u8]) {
        let to = if to_all { "all" } else { "one" };
        let mut kind = String::from(to);
        match VsyncPacket::decode(&mut ByteReader::new(bytes)) {
            Ok(packet) => {
                let mut before = "";
                for of in packet.kinds().filter(|of| *of != std::mem::replace(&mut before, of)) {
                    kind.push(' ');
                    kind.push_str(of);
                }
            }
            Err(_) => kind.push_str(" other"),
        }
        *self.counts.entry(kind).or_default() += 1;
    }

    /// The protocol noted something.
    pub(super) fn note(&mut self, note: &Note) {
        if let Note::Mark(mark) = note {
            *self.counts.entry(format!("mark {mark}")).or_default() += 1;
        }
    }
}

/// The observations of a member in one step of the time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct MemberStep {
    /// Bytes of messages that were delivered.
    pub(super) bytes: u64,
    /// Of own messages that were delivered.
    pub(super) latencies_ns: Vec<u64>,
    /// How often the member announced another rate of its link, where the protocol does so.
    pub(super) capacity_changes: u64,
}

/// The observations of a member.
#[derive(Default)]
pub(super) struct LanWatch {
    /// Since the start.
    pub(super) deliveries: u64,
    digest: u64,
    /// Over the order of all deliveries since the start, after each [`COMPARED_EVERY`].
    pub(super) digests: Vec<u64>,
    /// Since when it is measured.
    since: Option<Time>,
    /// Messages that were delivered, since it is measured.
    pub(super) messages: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Of own ones.
    pub(super) own_bytes: u64,
    /// By step of the time, since it is measured.
    pub(super) course: Vec<MemberStep>,
    /// Since when it waits for a larger share of the bandwidth.
    asked: Option<Time>,
    /// How long it waited for each, in nanoseconds.
    pub(super) increases: Vec<u64>,
}

impl LanWatch {
    pub(super) fn measure(&mut self, now: Time) {
        self.since = Some(now);
    }

    /// A message was delivered; if it is an own one, it was due at that time.
    pub(super) fn deliver(&mut self, now: Time, msg: MsgId, bytes: u64, due: Option<Time>) {
        let word = u64::from(msg.sender.0) << 48 ^ msg.seq;
        self.digest = (self.digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.digest ^= self.digest >> 29;
        self.deliveries += 1;
        if self.deliveries.is_multiple_of(COMPARED_EVERY) {
            self.digests.push(self.digest);
        }
        let Some(since) = self.since else { return };
        self.messages += 1;
        self.bytes += bytes;
        let step = self.step(since, now);
        step.bytes += bytes;
        if let Some(due) = due {
            step.latencies_ns.push(now.since(due).0);
            self.own_bytes += bytes;
        }
    }

    /// The step of a time, where it is measured since then.
    fn step(&mut self, since: Time, now: Time) -> &mut MemberStep {
        let step = (now.since(since).0 / COURSE_STEP.0) as usize;
        if self.course.len() <= step {
            self.course.resize_with(step + 1, MemberStep::default);
        }
        &mut self.course[step]
    }

    /// The protocol noted something.
    pub(super) fn note(&mut self, now: Time, note: &Note) {
        match *note {
            Note::Mark(INCREASE_BEGINS) => self.asked = Some(now),
            Note::Mark(INCREASE_ENDS) => {
                let waited = self.asked.take().map(|asked| now.since(asked).0);
                self.increases.extend(waited.filter(|_| self.since.is_some()));
            }
            Note::Mark(CAPACITY_CHANGES) => {
                if let Some(since) = self.since {
                    self.step(since, now).capacity_changes += 1;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Pid;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    #[test]
    fn packets_count_by_receivers_and_what_is_no_packet_counts_as_such() {
        let mut kinds = PacketKinds::default();
        // A packet of the first life with two heartbeats, which are one kind.
        let mut bytes = vec![0, 2];
        (0..2).for_each(|_| bytes.extend([5, 0, 1]));
        kinds.count(true, &bytes);
        kinds.count(false, &bytes);
        kinds.count(false, b"x");
        kinds.note(&Note::Mark(INCREASE_BEGINS));
        let counts: Vec<_> = kinds.counts.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        let marked = format!("mark {INCREASE_BEGINS}");
        assert_eq!(counts, [("all alive", 1), (&*marked, 1), ("one alive", 1), ("one other", 1)]);
    }

    #[test]
    fn what_was_delivered_counts_from_the_time_on_at_which_it_is_measured() {
        let mut watch = LanWatch::default();
        let msg = |seq| MsgId { sender: Pid(1), seq };
        watch.deliver(at(1), msg(1), 7, Some(at(0)));
        watch.note(at(1), &Note::Mark(INCREASE_BEGINS));
        watch.note(at(2), &Note::Mark(INCREASE_ENDS));
        watch.measure(at(100));
        watch.deliver(at(199), msg(2), 10, None);
        watch.deliver(at(450), msg(3), 5, Some(at(440)));
        assert_eq!((watch.deliveries, watch.messages), (3, 2));
        assert_eq!((watch.bytes, watch.own_bytes), (15, 5));
        assert!(watch.course.iter().map(|step| step.bytes).eq([10, 0, 0, 5]));
        assert_eq!(watch.course[3].latencies_ns, [10_000_000]);
        watch.note(at(500), &Note::Mark(INCREASE_BEGINS));
        watch.note(at(503), &Note::Mark(INCREASE_ENDS));
        watch.note(at(504), &Note::Mark(INCREASE_ENDS));
        assert_eq!(watch.increases, [3_000_000], "those of the time that is measured");
        watch.note(at(610), &Note::Mark(CAPACITY_CHANGES));
        assert!(watch.course.iter().map(|step| step.capacity_changes).eq([0, 0, 0, 0, 0, 1]));
    }
}
