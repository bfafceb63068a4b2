//! The buffers that the leaders of another group fill: the parent's, or in RamCast those of the other destinations.
//!
//! Each replica of that group has a buffer of its own here, and fills it while it leads. All of its leaders write the same
//! decided records to the same positions, so a reader takes the next record from any of the buffers that has it.
//!
//! # Malformed input
//! A replica that should not have written a record, or a pad that ends elsewhere than every reader computes, costs the
//! group nothing but that buffer, as long as the record lies there: the leader reads on in the others.
//!
//! *Why that is safe.* A record that is passed over is never in the log, and moves no cursor. Its position stays the next
//! one, and the record that is taken there comes from another buffer, under the same checks: it is the record that the
//! other group has decided for this position, if the replica that wrote it follows the protocol. A record that passes
//! all checks is believed, as replicas fail by crashing.
//!
//! *Its cost.* A look reads one record of each of the `n` buffers at most, and the record behind a pad. Each replica that
//! wrote such a record is reported once in a term. If the present leader of the other group is the one that wrote the record, and no other
//! replica has led since, the group waits until one does: meanwhile it publishes no progress, the other group's log
//! keeps what follows, and a later leader writes it to its own buffer.

use super::leader::PARENT_EPOCH;
use super::mutants::TramMutant;
use super::replica::{ReplicaPhase, TramReplica};
use super::ring::{RecordRing, RingRecordKind};
use amcast_core::memory::{Memory, RegionWindow};
use amcast_core::step::Note;
use amcast_core::{Gid, Outbox};

/// The flaw of a pad, or of a record without one.
pub(crate) const WRONG_PAD: &str = "a pad that does not belong there";

/// The look at a position of a buffer.
pub(super) enum RecordLook {
    Absent,
    Sound,
    Wrong(&'static str),
}

impl TramReplica {
    /// The buffer that holds the next record of another group, at position `next`. A record that one of its replicas should
    /// not have written is passed over.
    pub(crate) fn next_of_group(
        &mut self,
        source: usize,
        next: u64,
        view: RegionWindow<'_>,
        out: &mut Outbox<Memory>,
    ) -> Option<(RecordRing, u32)> {
        let from = self.group_read(source)?;
        let stops = self.mutants.is(TramMutant::StopsAtNonsense);
        for w in 0..self.place.n {
            let ring = self.buffer_of(from, w);
            match self.look_at(source, &ring, next, view) {
                RecordLook::Absent => {}
                RecordLook::Sound => return Some((ring, PARENT_EPOCH)),
                RecordLook::Wrong(wrong) if stops => {
                    self.refuse_of_group(source, &ring, wrong, out);
                    return None;
                }
                RecordLook::Wrong(wrong) => self.refuse_of_group(source, &ring, wrong, out),
            }
        }
        None
    }

    /// The group whose leaders fill a source, if they do so at the end of the log.
    pub(crate) fn group_read(&self, source: usize) -> Option<Gid> {
        if self.exchange.is_some() {
            return self.group_of_source(source).filter(|&g| g != self.place.group);
        }
        if !self.is_parent_at_end(source) {
            return None;
        }
        match self.changes {
            // Of a tree that may change; else there is one parent's place.
            Some(_) => Some(Gid((source - self.buffers.parent_source()) as u8)),
            None => self.config.overlay().parent(self.place.group),
        }
    }

    /// The buffer that the replica of rank `w` of another group fills.
    pub(crate) fn buffer_of(&self, from: Gid, w: usize) -> RecordRing {
        match self.exchange {
            Some(_) => self.layout.proposals(from, w),
            None => self.layout.hm_of(from, w),
        }
    }

    /// Whether one of the buffers has the next record of another group.
    pub(crate) fn has_of_group(&self, source: usize, next: u64, view: RegionWindow<'_>) -> bool {
        let Some(from) = self.group_read(source) else { return false };
        let mut rings = (0..self.place.n).map(|w| self.buffer_of(from, w));
        rings.any(|ring| matches!(self.look_at(source, &ring, next, view), RecordLook::Sound))
    }

    /// Looks at what lies at `next` of a buffer.
    pub(super) fn look_at(
        &self,
        source: usize,
        ring: &RecordRing,
        next: u64,
        view: RegionWindow<'_>,
    ) -> RecordLook {
        let read = |pos| ring.read(view.region(ring.region), pos, PARENT_EPOCH);
        let (mut pos, mut record) = (next, read(next));
        if let Some(pad) = record.filter(|record| record.kind == RingRecordKind::Pad) {
            if pad.lines() != ring.left_at(next) {
                return RecordLook::Wrong(WRONG_PAD);
            }
            // It belongs to the record behind it.
            pos += u64::from(pad.lines());
            record = read(pos);
        }
        let Some(record) = record else { return RecordLook::Absent };
        let lines = view.region(ring.region);
        let wrong = self.flaw_in_group(source, (ring, lines), pos, &record);
        // Everyone else finds the next record by the lengths of those before it.
        let wrong = wrong.or((ring.start(next, record.lines()) != pos).then_some(WRONG_PAD));
        wrong.map_or(RecordLook::Sound, RecordLook::Wrong)
    }

    /// A replica of another group wrote what it should not: that is noted once in a term, of each.
    pub(crate) fn refuse_of_group(
        &mut self,
        source: usize,
        ring: &RecordRing,
        wrong: &'static str,
        out: &mut Outbox<Memory>,
    ) {
        let Some(from) = self.group_read(source) else { return };
        let Some(rank) = (0..self.place.n).find(|&w| self.buffer_of(from, w) == *ring) else {
            return;
        };
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return };
        let (noted, bit) = (&mut leader.taken[source].noted, 1 << rank);
        if core::mem::replace(noted, *noted | bit) & bit == 0 {
            out.note(Note::Malformed(self.config.cluster().replica(from, rank), wrong));
        }
    }
}
