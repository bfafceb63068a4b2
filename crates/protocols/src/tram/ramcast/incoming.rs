//! The records that a leader refuses of those that clients and other groups' leaders write.
//!
//! Only a leader judges a record, before it is in the log: the log counts for every replica. [`crate::tram::incoming`]
//! says what a record of another group's replica costs that nobody should have written.

use super::RamCastMutant;
use super::exchange::{FRAME_BYTES, THEIR_WORD, TIMESTAMP_MAX, source_of};
use crate::tram::leader::BEYOND_LEASE;
use crate::tram::replica::TramReplica;
use crate::tram::ring::{RecordRing, RingRecord, RingRecordKind};
use amcast_core::Gid;
use amcast_core::memory::CacheLine;

/// The flaw of a record with a timestamp above [`TIMESTAMP_MAX`].
pub(crate) const NO_TIMESTAMP: &str = "a timestamp that no clock reaches";

/// The flaw of another group's record at `pos`, as far as its timestamp is concerned.
pub(crate) fn wrong_timestamp(
    ring: &RecordRing,
    lines: &[CacheLine],
    pos: u64,
) -> Option<&'static str> {
    let theirs = lines[ring.at(pos) as usize].word(THEIR_WORD);
    (theirs > TIMESTAMP_MAX).then_some(NO_TIMESTAMP)
}

impl TramReplica {
    /// The group that fills a buffer, by its number among the sources.
    pub(crate) fn group_of_source(&self, source: usize) -> Option<Gid> {
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
        if self.group_of_source(source).is_none() && record.is_beyond_lease() {
            return Some(BEYOND_LEASE);
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
