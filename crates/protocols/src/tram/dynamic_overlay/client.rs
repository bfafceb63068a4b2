//! The client's part: it learns of trees from the groups it writes to, and requests anew what a cut has made stale.

use super::{ClientFence, ToldOverlay, overlay_of, parents_of};
use crate::tram::ring::{RecordRing, RingRecord, RingRecordKind};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::memory::{CacheLine, LineStamp, WriteSource};
use amcast_core::{Config, Gid, GroupSet, Overlay};

/// A request that no group takes up where it was written, or a change of the tree that was asked for and not written yet.
#[derive(Clone, Debug)]
pub(crate) struct StaleMessage {
    pub(crate) record: RingRecord,
    pub(crate) payload: Vec<u8>,
}

/// A client's knowledge of the trees.
#[derive(Debug)]
pub(crate) struct ClientOverlay {
    /// The latest tree that any group has told.
    number: u32,
    overlay: Overlay,
    /// By group: the tree that this client has joined there, and from which position on.
    joined: Vec<(u32, u64)>,
    /// To be requested in the latest tree, the oldest first.
    pub(crate) stale: VecDeque<StaleMessage>,
}

/// A change of a group's tree, as far as it concerns one client.
pub(crate) struct LearntCut {
    /// Positions before it were taken up.
    pub(crate) cut: u64,
    /// Requests from this position on are stale.
    pub(crate) stale_from: u64,
}

impl ClientOverlay {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            number: 0,
            overlay: config.overlay().clone(),
            joined: alloc::vec![(0, 0); config.cluster().groups()],
            stale: VecDeque::new(),
        }
    }

    /// The latest tree.
    pub(crate) fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// The latest tree, with its number.
    pub(crate) fn numbered(&self) -> (u32, &Overlay) {
        (self.number, &self.overlay)
    }

    /// Whether what is written to a group now is made for the latest tree. A group that has not told it may be in
    /// an earlier one.
    pub(crate) fn has_joined(&self, group: Gid) -> bool {
        self.joined[group.index()].0 == self.number
    }

    /// Asks for another tree, in place of one that was asked for and is not written yet.
    pub(crate) fn ask(&mut self, mut record: RingRecord, overlay: &Overlay) {
        let payload = parents_of(overlay);
        record.bytes = payload.len() as u32;
        (record.kind, record.dst) = (RingRecordKind::Overlay, GroupSet::first(overlay.groups()));
        self.stale.retain(|stale| stale.record.kind != RingRecordKind::Overlay);
        self.stale.push_back(StaleMessage { record, payload });
    }

    /// Looks at what a replica of `group` tells, in the region of its credit. A tree that is new there cuts the
    /// buffer that ends at `head`: none if nothing is new, or nobody can say so.
    pub(crate) fn look(
        &mut self,
        group: Gid,
        region: &[CacheLine],
        (epoch, head): (u32, u64),
    ) -> Option<LearntCut> {
        let joined = self.joined[group.index()].0;
        if ToldOverlay::number_in(region) <= joined {
            return None;
        }
        let groups = self.overlay.groups();
        let told = ToldOverlay::read(region, groups).filter(|told| told.number > joined)?;
        let overlay = overlay_of(&told.parents, groups)?;
        let cut = match told.cut {
            (lease, cut) if lease == epoch => cut,
            // Nothing of this holder's was taken up.
            (lease, _) if lease < epoch => 0,
            // It has lost its place to a later one.
            _ => return None,
        };
        if cut > head {
            return None;
        }
        if told.number > self.number {
            (self.number, self.overlay) = (told.number, overlay);
            // A change that was asked for in an earlier tree is given up: it must not undo one that came before it, perhaps
            // long afterwards.
            self.stale.retain(|stale| stale.record.kind != RingRecordKind::Overlay);
        }
        let (_, fence) = core::mem::replace(&mut self.joined[group.index()], (told.number, head));
        // The requests before the last fence were taken up, or were made anew with it.
        Some(LearntCut { cut, stale_from: cut.max(fence) })
    }

    /// Takes the requests from `pos` up to `head` out of a buffer: nobody takes them up there any more. Changes of the tree are
    /// given up: another one came before them.
    pub(crate) fn collect(
        &mut self,
        ring: &RecordRing,
        region: &[CacheLine],
        epoch: u32,
        (mut pos, head): (u64, u64),
    ) {
        while pos < head {
            let record =
                ring.read(region, pos, epoch).expect("it is written, and not yet used again");
            if !matches!(record.kind, RingRecordKind::Pad | RingRecordKind::Overlay) {
                let mut payload = Vec::new(); // A change is not the hot path.
                let whole = ring.payload(region, pos, epoch, &record, &mut payload);
                assert!(whole, "a client's own buffer is its own");
                self.stale.push_back(StaleMessage { record, payload });
            }
            pos += u64::from(record.lines());
        }
    }

    /// The holder line for a group: with a fence, once this client has joined a tree there.
    pub(crate) fn holder(&self, group: Gid, lease: u32) -> WriteSource {
        let (number, from) = self.joined[group.index()];
        if number == 0 {
            return crate::tram::buffer::holder(lease);
        }
        WriteSource::line(ClientFence { lease, number, from }.words(), LineStamp::new(lease, 0))
    }
}
