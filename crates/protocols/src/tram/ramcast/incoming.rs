//! The records that a leader takes from the buffers that other groups' leaders fill, and those that it refuses.
//!
//! Only a leader judges a record, before it is in the log: the log counts for every replica. A record that
//! nobody should have written costs the buffer of who wrote it, as long as it lies there.

use super::RamCastMutant;
use super::exchange::{FRAME_BYTES, THEIR_WORD, TIMESTAMP_MAX, source_of};
use crate::tram::leader::PARENT_EPOCH;
use crate::tram::replica::{ReplicaPhase, TramReplica};
use crate::tram::ring::{RecordRing, RingRecord, RingRecordKind};
use amcast_core::memory::{Memory, RegionWindow};
use amcast_core::step::Note;
use amcast_core::{Gid, Outbox};

/// The flaw of a record with a timestamp above [`TIMESTAMP_MAX`].
pub(crate) const NO_TIMESTAMP: &str = "a timestamp that no clock reaches";

/// The flaw of a pad, or of a record without one.
const WRONG_PAD: &str = "a pad that does not belong there";

/// The look at a position of another group's buffer.
enum ProposalLook {
    Absent,
    Sound,
    Wrong(&'static str),
}

impl TramReplica {
    /// The buffer that holds the next record of another group. A record that one of its replicas should not have written is passed
    /// over: each later leader writes the same records to a buffer of its own, and this one may write what belongs there.
    pub(crate) fn next_proposals(
        &mut self,
        source: usize,
        next: u64,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) -> Option<(RecordRing, u32)> {
        let from = self.group_of_source(source).filter(|&g| g != self.place.group)?;
        for w in 0..self.place.n {
            let ring = self.layout.proposals(from, w);
            match self.look_at_proposal(source, &ring, next, view) {
                ProposalLook::Absent => {}
                ProposalLook::Sound => return Some((ring, PARENT_EPOCH)),
                ProposalLook::Wrong(wrong) => self.refuse_proposal(source, &ring, wrong, out),
            }
        }
        None
    }

    /// Looks at what lies at `next` of another group's buffer.
    fn look_at_proposal(
        &self,
        source: usize,
        ring: &RecordRing,
        next: u64,
        view: RegionWindow<'_>,
    ) -> ProposalLook {
        let read = |pos| ring.read(view.region(ring.region), pos, PARENT_EPOCH);
        let (mut pos, mut record) = (next, read(next));
        if let Some(pad) = record.filter(|record| record.kind == RingRecordKind::Pad) {
            if pad.lines() != ring.left_at(next) {
                return ProposalLook::Wrong(WRONG_PAD);
            }
            // It belongs to the record behind it.
            pos += u64::from(pad.lines());
            record = read(pos);
        }
        let Some(record) = record else { return ProposalLook::Absent };
        let wrong = self.wrong_of_exchange(source, &record).or_else(|| {
            let theirs = view.region(ring.region)[ring.at(pos) as usize].word(THEIR_WORD);
            (theirs > TIMESTAMP_MAX).then_some(NO_TIMESTAMP)
        });
        // Everyone else finds the next record by the lengths of those before it.
        let wrong = wrong.or((ring.start(next, record.lines()) != pos).then_some(WRONG_PAD));
        wrong.map_or(ProposalLook::Sound, ProposalLook::Wrong)
    }

    /// A replica of another group wrote what it should not: that is noted once in a term.
    pub(crate) fn refuse_proposal(
        &mut self,
        source: usize,
        ring: &RecordRing,
        wrong: &'static str,
        out: &mut Outbox<Memory>,
    ) {
        let Some(from) = self.group_of_source(source) else { return };
        let wrote = |&w: &usize| self.layout.proposals(from, w) == *ring;
        let Some(rank) = (0..self.place.n).find(wrote) else { return };
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return };
        if !core::mem::replace(&mut leader.taken[source].broken, true) {
            out.note(Note::Malformed(self.config.cluster().replica(from, rank), wrong));
        }
    }

    /// The group that fills a buffer, by its number among the sources.
    pub(super) fn group_of_source(&self, source: usize) -> Option<Gid> {
        Some(Gid(source.checked_sub(self.buffers.parent_source() + 1)? as u8))
    }

    /// The flaw of a record from that source, if any: then it is dropped.
    pub(crate) fn wrong_of_exchange(
        &self,
        source: usize,
        record: &RingRecord,
    ) -> Option<&'static str> {
        let cluster = self.config.cluster();
        let sender = record.msg.sender;
        if !cluster.has(sender) || cluster.group_of(sender).is_some() {
            return Some("a message of another sender");
        }
        let tells_all =
            self.exchange.as_ref().is_some_and(|e| e.mutants.is(RamCastMutant::TellsAll));
        if !record.dst.within(cluster.all_groups())
            || !(record.dst.contains(self.place.group) || tells_all)
        {
            return Some("destinations without this group");
        }
        let bytes = record.bytes as usize;
        if bytes < FRAME_BYTES || bytes > self.layout.payload_max() {
            return Some("a length that cannot be");
        }
        let kind = record.kind;
        let fits = match self.group_of_source(source) {
            Some(from) => {
                let known = [RingRecordKind::Proposal, RingRecordKind::Whole].contains(&kind);
                let short = kind == RingRecordKind::Whole || bytes == FRAME_BYTES;
                let named = source_of(record.source) == Some(from);
                known && short && named && record.dst.contains(from)
            }
            None => {
                kind == RingRecordKind::Message
                    && usize::from(record.source) == source
                    && sender == cluster.client(source)
            }
        };
        (!fits).then_some("a record of another source")
    }
}
