//! The records that a group has for another one, from the time when its decided log made them until the other group
//! has taken them over.

use super::exchange::{FRAME_BYTES, FROM_GROUP, frame};
use crate::tram::leader::PARENT_EPOCH;
use crate::tram::ring::{RecordRing, RingRecord, RingRecordKind, lines_of};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::memory::{CacheLine, LINE_WORDS, Memory, MemoryOutput, WriteSource};
use amcast_core::{Gid, GroupSet, MsgId, Outbox, Pid, ProtocolEvent, messages};

/// Records for another group, and how far they went.
#[derive(Debug)]
pub(super) struct ProposalStream {
    /// Those that the other group has not told to have taken over.
    pub(super) items: VecDeque<OutgoingProposal>,
    /// The next free position of the other group's buffer.
    pub(super) end: u64,
    /// How far the other group has taken over its buffer.
    pub(super) taken: u64,
    /// A leader's, by rank: positions below this were written.
    pub(super) posted: Vec<u64>,
}

/// A record for another group.
#[derive(Clone, Debug)]
pub(super) struct OutgoingProposal {
    /// The end of the record before it.
    pub(super) begin: u64,
    pub(super) msg: MsgId,
    pub(super) dst: GroupSet,
    pub(super) lease: u32,
    pub(super) timestamp: u64,
    /// The payload, if the message goes as a whole.
    pub(super) whole: Option<Vec<u8>>,
}

impl OutgoingProposal {
    fn lines(&self) -> u32 {
        self.whole.as_ref().map_or(1, |payload| lines_of((payload.len() + FRAME_BYTES) as u32))
    }

    fn record(&self, group: Gid) -> RingRecord {
        let (kind, bytes) = match &self.whole {
            Some(payload) => (RingRecordKind::Whole, payload.len() + FRAME_BYTES),
            None => (RingRecordKind::Proposal, FRAME_BYTES),
        };
        RingRecord {
            kind,
            bytes: bytes as u32,
            source: FROM_GROUP | u16::from(group.0),
            lease: self.lease,
            msg: self.msg,
            dst: self.dst,
        }
    }
}

/// By client: how many records of its messages the streams hold.
#[derive(Debug)]
pub(super) struct OwedRecords {
    pub(super) clients: Vec<usize>,
    /// The number of the first one's process.
    pub(super) first: u32,
    /// So many of one client, and its next message is not taken.
    pub(super) most: usize,
}

impl OwedRecords {
    fn of(&mut self, item: &OutgoingProposal) -> Option<&mut usize> {
        self.clients.get_mut(item.msg.sender.0.wrapping_sub(self.first) as usize)
    }

    pub(super) fn add(&mut self, item: &OutgoingProposal) {
        self.of(item).into_iter().for_each(|count| *count += 1);
    }

    fn remove(&mut self, item: &OutgoingProposal) {
        self.of(item).into_iter().for_each(|count| *count -= 1);
    }
}

impl ProposalStream {
    /// Where the first record lies that was not taken over.
    pub(super) fn first(&self) -> u64 {
        self.items.front().map_or(self.end, |item| item.begin)
    }

    pub(super) fn push(&mut self, item: OutgoingProposal, hm: &RecordRing) {
        self.end = hm.after(self.end, item.lines());
        self.items.push_back(item);
    }

    /// The other group has taken over its buffer up to here.
    pub(super) fn take(&mut self, upto: u64, owed: &mut OwedRecords) {
        self.taken = self.taken.max(upto);
        while let Some(item) = self.items.front()
            && self.items.get(1).map_or(self.end, |next| next.begin) <= self.taken
        {
            owed.remove(item);
            self.items.pop_front();
        }
    }

    /// Writes what one replica of the other group does not have yet, as far as its buffer has room.
    pub(super) fn post(
        &mut self,
        rank: usize,
        group: Gid,
        to: (Pid, &RecordRing),
        out: &mut Outbox<Memory>,
    ) {
        let ring = to.1;
        let from = self.posted[rank].max(self.first());
        let at = self.items.partition_point(|item| item.begin < from);
        for item in self.items.range(at..) {
            let lines = item.lines();
            let end = ring.after(item.begin, lines);
            // A full buffer: the other group is slow, and its proposals wait.
            if end > self.taken.saturating_add(u64::from(ring.lines)) {
                out.mark("ramcast-stream-full");
                return;
            }
            out.event(ProtocolEvent::Part(item.msg));
            write_record(item, group, to, out);
            self.posted[rank] = end;
        }
    }
}

/// Writes a record to another group, a line at a time: only a whole message, which is rare, has several.
fn write_record(
    item: &OutgoingProposal,
    group: Gid,
    (to, ring): (Pid, &RecordRing),
    out: &mut Outbox<Memory>,
) {
    let mut write = |pos: u64, words: [u64; LINE_WORDS], stamp, bell| {
        let (at, source) = (ring.at(pos), WriteSource::line(words, stamp));
        let region = ring.region;
        out.ask(MemoryOutput::Write { to, region, at, source, ticket: None, bell });
    };
    let start = ring.start(item.begin, item.lines());
    if start != item.begin {
        let pad = RingRecord::pad(ring.left_at(item.begin)).words([0; 3]);
        write(item.begin, pad, ring.stamp(item.begin, PARENT_EPOCH), false);
    }
    let stamp = ring.stamp(start, PARENT_EPOCH);
    let record = item.record(group);
    let Some(payload) = &item.whole else {
        write(start, record.words([0, item.timestamp, 0]), stamp, true);
        return;
    };
    let lines: Vec<CacheLine> = (0..item.lines()).map(|_| CacheLine::default()).collect();
    let mut framed = Vec::new();
    frame(payload, &mut framed);
    framed[8..FRAME_BYTES].copy_from_slice(&item.timestamp.to_le_bytes());
    let made = RecordRing { base: 0, lines: item.lines(), lap: item.lines(), ..*ring };
    made.write(&lines, 0, PARENT_EPOCH, &record, &framed);
    for (pos, line) in (start..).zip(&lines) {
        write(pos, line.words(), stamp, true);
    }
}

/// A stream in a state transfer.
#[derive(Debug)]
pub(super) struct StreamSnapshot {
    pub(super) end: u64,
    pub(super) items: Vec<OutgoingProposal>,
}

messages! {
    struct StreamSnapshot { end, items }
}
messages! {
    struct OutgoingProposal { begin, msg, dst, lease, timestamp, whole }
}
