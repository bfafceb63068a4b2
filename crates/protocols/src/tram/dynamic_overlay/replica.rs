//! The replica's part: it consumes changes of the tree, tells clients of them, and, as a leader, takes up only what is
//! made for the tree at its log's end.

use super::{
    ClientCut, ClientFence, OverlayAtEnd, OverlayChanges, ToldOverlay, overlay_at, overlay_of,
    parents_of, source_of_parent,
};
use crate::tram::mutants::TramMutant;
use crate::tram::replica::{BufferCursor, ReplicaPhase, TramReplica, take_up};
use crate::tram::ring::{RecordRing, RingRecord, RingRecordKind};
use crate::tram::transfer::POSITION_MAX;
use alloc::boxed::Box;
use amcast_core::memory::{CacheLine, LineStamp, Memory, MemoryOutput, RegionWindow, WriteSource};
use amcast_core::step::{Note, PayloadRange};
use amcast_core::{GroupSet, MsgId, Outbox, Overlay, ProtocolEvent};

impl TramReplica {
    /// The tree in which this replica has consumed its log.
    pub(crate) fn overlay(&self) -> &Overlay {
        match &self.changes {
            Some(changes) => changes.overlay(),
            None => self.config.overlay(),
        }
    }

    /// The tree at the end of a leader's log.
    pub(crate) fn overlay_at_end(&self) -> &Overlay {
        match &self.phase {
            ReplicaPhase::Leader(leader) => {
                leader.trees.as_ref().map_or_else(|| self.overlay(), |end| &end.overlay)
            }
            _ => self.overlay(),
        }
    }

    /// The number of the parent's buffer among the sources, where the log is consumed.
    pub(crate) fn parent_consumed(&self) -> usize {
        let clients = self.buffers.holders.len();
        match &self.changes {
            Some(changes) => source_of_parent(changes.overlay(), self.place.group, clients),
            None => clients,
        }
    }

    /// Whether a source that is no client's holds what the parent at the log's end writes.
    pub(crate) fn is_parent_at_end(&self, source: usize) -> bool {
        let clients = self.buffers.holders.len();
        match &self.changes {
            // The next parent's messages would come before what the present one still has to say.
            Some(_) if self.mutants.is(TramMutant::ReadsAnyParent) => true,
            Some(_) => source == source_of_parent(self.overlay_at_end(), self.place.group, clients),
            None => self.overlay_at_end().parent(self.place.group).is_some(),
        }
    }

    /// The tree at the end of a new leader's log, before it has looked at what it has not consumed.
    pub(crate) fn overlay_to_lead(&self) -> Option<Box<OverlayAtEnd>> {
        let changes = self.changes.as_ref()?;
        if self.mutants.is(TramMutant::ForgetsTreeInTakeover) {
            return Some(Box::new(OverlayChanges::new(&self.config).at_end()));
        }
        Some(Box::new(changes.at_end()))
    }

    /// Consumes a record at `pos` by which the log enters another tree, or a client joins it.
    pub(crate) fn consume_change(
        &mut self,
        pos: u64,
        record: &RingRecord,
        payload: PayloadRange,
        out: &mut Outbox<Memory>,
    ) {
        let is_new = pos >= self.progress.cursors_from;
        if is_new {
            let parent = self.parent_consumed();
            take_up(&self.layout, &mut self.buffers.sources, record, parent);
        }
        match record.kind {
            RingRecordKind::Overlay => self.consume_overlay(payload, is_new, out),
            // Else it is in the state that came.
            RingRecordKind::Rejoin if is_new => self.consume_rejoin(record),
            _ => {}
        }
    }

    fn consume_overlay(&mut self, payload: PayloadRange, is_new: bool, out: &mut Outbox<Memory>) {
        let groups = self.config.cluster().groups();
        let Some(changes) = &mut self.changes else { return };
        let Some(overlay) = overlay_of(out.bytes(payload), groups) else {
            return out.note(Note::Malformed(self.place.me, "a decided tree that is none"));
        };
        let least = self.buffers.edges.iter().map(|edge| edge.log).min().unwrap_or(0);
        changes.forget_before(least.min(self.progress.clear));
        if changes.enter(self.progress.consumed, overlay) {
            assert!(is_new || self.mutants.any(), "a state has all trees up to its cursors");
            changes.cut(&self.buffers.sources);
            out.mark("tram-overlay-changed");
        }
        self.rows.due = true;
    }

    fn consume_rejoin(&mut self, record: &RingRecord) {
        let Some(changes) = &mut self.changes else { return };
        let number = changes.number();
        if let Some(client) = changes.clients.get_mut(usize::from(record.source)) {
            client.joined = number;
        }
    }

    /// Reports that this replica takes part in ordering a message: one at a position of its log, or one that it
    /// appends. Where the tree may change, it reports by which one it does so.
    #[inline]
    pub(crate) fn take_part(&mut self, msg: MsgId, at: Option<u64>, out: &mut Outbox<Memory>) {
        if out.traces() {
            self.report_part(msg, at, out);
        }
    }

    #[cold]
    fn report_part(&mut self, msg: MsgId, at: Option<u64>, out: &mut Outbox<Memory>) {
        if let Some(changes) = &mut self.changes {
            let tree = match (at, &self.phase) {
                (Some(pos), _) => &changes.trees[changes.index_at(pos)].overlay,
                (None, ReplicaPhase::Leader(leader)) => {
                    leader.trees.as_ref().map_or_else(|| changes.overlay(), |end| &end.overlay)
                }
                (None, _) => changes.overlay(),
            };
            if changes.reported.as_ref() != Some(tree) {
                let tree = tree.clone();
                out.overlay(&tree);
                changes.reported = Some(tree);
            }
        }
        out.event(ProtocolEvent::Part(msg));
    }

    /// Tells clients which tree the group is in: once, and again while one has not joined it.
    pub(crate) fn tell_overlay(&mut self, again: bool, out: &mut Outbox<Memory>) {
        let Some(changes) = &mut self.changes else { return };
        let number = changes.number();
        if number == 0 {
            return;
        }
        let region = self.layout.credit(self.place.group, self.place.rank);
        for client in 0..changes.clients.len() {
            let ClientCut { joined, cut } = changes.clients[client];
            if changes.told[client] == number && !(again && joined != number) {
                continue;
            }
            changes.told[client] = number;
            let parents = parents_of(changes.overlay());
            let to = self.config.cluster().client(client);
            for (at, words) in (1..).zip(ToldOverlay { number, cut, parents }.lines()) {
                let source = WriteSource::line(words, LineStamp::new(0, 0));
                let (ticket, bell) = (None, at == 2);
                out.ask(MemoryOutput::Write { to, region, at, source, ticket, bell });
            }
        }
    }

    /// A client's place has a new holder, who knows the first tree only.
    pub(crate) fn overlay_untold(&mut self, client: usize) {
        if let Some(changes) = &mut self.changes {
            changes.told[client] = 0;
        }
    }

    /// Whether a leader takes up from this client's buffer: only what is made for the tree at its log's end.
    pub(crate) fn takes_from_client(&mut self, client: usize, view: RegionWindow<'_>) -> bool {
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return false };
        let Some(end) = &leader.trees else { return true };
        let joined = end.has_joined(client);
        if end.number == 0 || self.mutants.is(TramMutant::OrdersStaleRequests) {
            self.probe(client, view);
            return true;
        }
        if joined && !leader.taken[client].probe {
            return true;
        }
        let region = view.region(self.layout.hm_client(client).region);
        self.follow_fence(client, ClientFence::read(region), view)
    }

    /// Whether a leader takes up from this client's buffer, in which that fence lies, or none.
    fn follow_fence(
        &mut self,
        client: usize,
        fence: Option<ClientFence>,
        view: RegionWindow<'_>,
    ) -> bool {
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return false };
        let Some(end) = &leader.trees else { return true };
        let (number, joined) = (end.number, end.has_joined(client));
        let cursor = &mut leader.taken[client];
        let Some(fence) = fence else { return joined };
        if joined && fence.lease <= cursor.lease {
            // Until it hears of a new holder.
            cursor.probe = cursor.lease < self.buffers.holders[client];
            return true;
        }
        // A holder before this one, or one that has not heard of this tree. One that goes back in its own
        // buffer is not believed.
        let least = if fence.lease == cursor.lease { cursor.next } else { 0 };
        let is_sound = (least..=POSITION_MAX).contains(&fence.from);
        if fence.number != number || fence.lease < cursor.lease || !is_sound {
            return joined;
        }
        self.rejoin(client, fence, view)
    }

    /// As [`TramReplica::takes_from_client`], by the holder line of a follower's copy of the buffer. That names a lease that is
    /// to be begun where the tree did not change.
    pub(crate) fn follow_holder(
        &mut self,
        client: usize,
        holder: &[CacheLine],
        view: RegionWindow<'_>,
    ) -> bool {
        let first =
            !self.has_changed_tree_at_end() || self.mutants.is(TramMutant::OrdersStaleRequests);
        first || self.follow_fence(client, ClientFence::read(holder), view)
    }

    /// Whether the leader's log has entered another tree, at its end.
    pub(crate) fn has_changed_tree_at_end(&self) -> bool {
        let ReplicaPhase::Leader(leader) = &self.phase else { return false };
        leader.trees.as_ref().is_some_and(|end| end.number > 0)
    }

    /// Whether the log that was consumed has entered another tree.
    pub(crate) fn has_changed_tree(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.number() > 0)
    }

    /// Where the next record of a client begins that is made for the present tree, lease and position, and whether the client has
    /// joined that tree.
    pub(crate) fn place_in_tree(
        &self,
        client: usize,
        region: &[CacheLine],
    ) -> Option<((u32, u64), bool)> {
        let changes = self.changes.as_ref()?;
        let cursor = self.buffers.sources[client];
        let fence = ClientFence::read(region);
        let is_later = |fence: &ClientFence| fence.lease > cursor.lease;
        if changes.clients[client].joined == changes.number()
            && !fence.is_some_and(|f| is_later(&f))
        {
            return Some(((cursor.lease, cursor.next), true));
        }
        let fence = fence.filter(|f| f.number == changes.number() && f.lease >= cursor.lease)?;
        Some(((fence.lease, fence.from), false))
    }

    /// Puts a client's fence into the log. False if there is no room.
    fn rejoin(&mut self, client: usize, fence: ClientFence, view: RegionWindow<'_>) -> bool {
        let record = RingRecord {
            kind: RingRecordKind::Rejoin,
            bytes: 0,
            source: client as u16,
            lease: fence.lease,
            msg: MsgId { sender: self.config.cluster().client(client), seq: fence.from },
            dst: GroupSet::EMPTY,
        };
        if !self.append_own(view, &record, [0; 3]) {
            return false;
        }
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return false };
        if let Some(end) = &mut leader.trees {
            end.joined[client] = end.number;
        }
        let probe = fence.lease < self.buffers.holders[client];
        leader.taken[client] =
            BufferCursor { lease: fence.lease, next: fence.from, probe, ..BufferCursor::default() };
        true
    }

    /// The flaw of a change of the tree that lies in a buffer, if it has any.
    #[inline]
    pub(crate) fn wrong_overlay(
        &self,
        from: (&RecordRing, &[CacheLine]),
        at: (u64, u32),
        record: &RingRecord,
    ) -> Option<&'static str> {
        if record.kind != RingRecordKind::Overlay {
            return None;
        }
        self.wrong_change(from, at, record)
    }

    fn wrong_change(
        &self,
        (ring, region): (&RecordRing, &[CacheLine]),
        at: (u64, u32),
        record: &RingRecord,
    ) -> Option<&'static str> {
        let cluster = self.config.cluster();
        if self.changes.is_none() {
            return Some("a tree, where it does not change");
        }
        if record.dst != cluster.all_groups() {
            return Some("a tree that is not for all groups");
        }
        let overlay = overlay_at(ring, region, at, record, cluster.groups());
        overlay.is_none().then_some("no tree")
    }
}
