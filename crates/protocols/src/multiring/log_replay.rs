//! The log of a process: replay of the records of earlier incarnations, reads for retransmissions,
//! checkpoints, and trimming [MRP 5.2].

use super::acceptor_recovery::StorageState;
use super::catch_up::RetransmissionStep;
use super::message::{PeerProgress, RingPacket};
use super::persistence::{AcceptorStorage, DurableAction, LogRecord};
use super::process::{DISK_READ, DISK_READS_MAX, IDLE_INSTANCES, MultiRing, TRIM_RECORDS};
use super::topology::{MergePosition, RingId, ring_for};
use super::value::InstanceValue;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::step::{Note, Ticket};
use amcast_core::{Outbox, Output, Pid};
use core::mem;

/// Decided instances that are read from the log again for a member that requested them.
#[derive(Debug)]
pub(super) struct PendingRetransmission {
    /// The first of them, and whether the table of decided proposals is requested.
    from: (u64, bool),
    /// The records that are to come.
    awaits: BTreeSet<u64>,
    /// The values of those that came.
    read: BTreeMap<u64, InstanceValue>,
}

/// Retransmissions that this process serves, as far as they need its disk.
#[derive(Debug, Default)]
pub(super) struct Retransmissions {
    /// Records that are being read: the ring and first instance of each.
    pub(super) disk_reads: BTreeMap<u64, (RingId, u64)>,
    /// By ring and requester: the instances that are being read for it.
    pub(super) pending: BTreeMap<(RingId, Pid), PendingRetransmission>,
}

impl MultiRing {
    pub(super) fn checkpointed(&mut self, position: u64) {
        // That nothing was delivered behind the checkpoint counts only once it is durable.
        let point = if position == self.persistence.idle_since.0 {
            self.persistence.idle_since.1
        } else {
            MergePosition::of(position)
        };
        self.persistence.checkpoint = self.persistence.checkpoint.max((position, point));
        self.record_idle();
    }

    /// Writes that nothing was delivered since the checkpoint, so that the log may be trimmed up to here
    /// although the application has no newer state.
    pub(super) fn record_idle(&mut self) {
        let (position, point) = (self.merge.delivered, self.merge.next);
        let still =
            position == self.persistence.checkpoint.0 && self.persistence.writes.is_durable();
        if still && point.merged >= self.persistence.idle_written.merged + IDLE_INSTANCES {
            self.persistence.idle_written = point;
            let act = DurableAction::IdleDurable { position, point };
            self.persistence.writes.write(LogRecord::IdleSince { position, point }, Some(act));
        }
    }

    /// The merge position up to which the application's state survives any fault of this process
    /// alone; in memory, the applied position.
    pub(super) fn trimmable_position(&self) -> MergePosition {
        if self.persistence.writes.is_durable() {
            self.persistence.checkpoint.1
        } else if !self.has_state() {
            // No process may rely on messages that its application does not have yet. So it is also while the
            // application awaits a state for another group's replica: messages that it counts as applied only wait for
            // that.
            MergePosition::default()
        } else {
            self.merge.applied_point()
        }
    }

    /// A member requests the retransmission of instances from `at` on.
    pub(super) fn on_retransmit_request(
        &mut self,
        from: Pid,
        id: RingId,
        (at, table): (u64, bool),
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let Some(Some(ring)) = self.rings.get(usize::from(id)) else { return };
        let reading =
            self.retransmissions.pending.remove(&(id, from)).filter(|r| r.from == (at, table));
        if reading.as_ref().is_some_and(|r| !r.awaits.is_empty()) {
            // The disk is slow, and the member asks again.
            self.retransmissions.pending.extend(reading.map(|reading| ((id, from), reading)));
            return;
        }
        let read = reading.map_or_else(BTreeMap::new, |reading| reading.read);
        // [MRP 3:2]
        match ring.serve((at, table), &read, self.config.limits.pass_bytes) {
            RetransmissionStep::Answer(message) => self.send(from, message),
            RetransmissionStep::Load(first) => {
                let awaits = self.read_log(id, first, out);
                if !awaits.is_empty() {
                    let reading =
                        PendingRetransmission { from: (at, table), awaits, read: BTreeMap::new() };
                    self.retransmissions.pending.insert((id, from), reading);
                }
            }
        }
    }

    /// Reads records of the log again: of the slot that begins with `first`, and of those behind it that
    /// will be needed next. Gives the records that are to come.
    pub(super) fn read_log(
        &mut self,
        id: RingId,
        first: u64,
        out: &mut Outbox<Messages<RingPacket>>,
    ) -> BTreeSet<u64> {
        let mut awaits = BTreeSet::new();
        let Some(Some(ring)) = self.rings.get(usize::from(id)) else { return awaits };
        let missing = ring.log.from(first).take_while(|(_, slot)| slot.value.is_none());
        for (first, slot) in missing.take(DISK_READS_MAX / 4) {
            let record = slot.record;
            if !self.retransmissions.disk_reads.contains_key(&record) {
                if self.retransmissions.disk_reads.len() == DISK_READS_MAX {
                    break;
                }
                self.retransmissions.disk_reads.insert(record, (id, first));
                out.push(Output::Load { ticket: Ticket(DISK_READ | record), number: record });
            }
            awaits.insert(record);
        }
        awaits
    }

    pub(super) fn on_loaded(
        &mut self,
        ticket: Ticket,
        record: Option<&[u8]>,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let number = ticket.0 & !DISK_READ;
        let Some((id, first)) = self.retransmissions.disk_reads.remove(&number) else { return };
        // A record of another ring or instance must not be sent as decided in this one: it counts as one that was
        // trimmed. Only batches leave memory, and these are never split.
        let value: Option<InstanceValue> = match record.and_then(LogRecord::read) {
            Some(LogRecord::Accept { ring, entry, .. } | LogRecord::Learn { ring, entry })
                if (ring, entry.first) == (id, first) =>
            {
                Some(entry.value)
            }
            Some(_) => {
                out.note(Note::Malformed(
                    self.me,
                    "a record of the log that is not the one asked for",
                ));
                None
            }
            None => None,
        };
        let Some(Some(ring)) = self.rings.get_mut(usize::from(id)) else { return };
        let is_wanted = ring.log.at(first).is_some_and(|(_, slot)| slot.record == number);
        match &value {
            // Values that this process has applied are not kept in memory for others.
            Some(value) if first >= ring.learner.progress.applied => {
                ring.log.fill(first, number, value.clone());
            }
            // The disk is damaged: only the state of another replica helps.
            None if is_wanted && self.merge.needs_next(id, first) => self.want_state(out),
            // If it was trimmed meanwhile, the retransmission says so.
            _ => {}
        }
        let of_ring = (id, Pid(0))..=(id, Pid(u32::MAX));
        let mut whole = Vec::new();
        for (&(_, reader), reading) in self.retransmissions.pending.range_mut(of_ring) {
            if !reading.awaits.remove(&number) {
                continue;
            }
            if value.is_none() && is_wanted {
                whole.push((reader, None));
                continue;
            }
            reading.read.extend(value.clone().map(|value| (number, value)));
            if reading.awaits.is_empty() {
                whole.push((reader, Some(reading.from)));
            }
        }
        for (reader, from) in whole {
            match from {
                Some(from) => self.on_retransmit_request(reader, id, from, out),
                // The requester asks another member.
                None => _ = self.retransmissions.pending.remove(&(id, reader)),
            }
        }
    }

    /// Trims the instances that no process needs any more.
    ///
    /// Instances behind the own checkpoint stay in the own log, even if the others have them: so
    /// the next incarnation continues from its own disk, and does not need the state of another
    /// replica. The next checkpoint bounds that.
    ///
    /// No ring is trimmed further than the ring of all groups, as far as instances are merged with those of
    /// it. Each node has one state, of all its replicas, and gives and takes it as a whole. If each group's
    /// log were trimmed by itself, one node could lag behind in one group and a second one in another; if
    /// then the third node, which has everything, is lost, no node has a state to give. The ring of all
    /// groups is trimmed up to where a majority of nodes has checkpoints in all groups, or in memory has
    /// applied all (`RingMember::trimmable_by_majority`), so of the nodes that remain one has. And no member has
    /// trimmed any ring beyond the instances that that node has, because a replica that has merged the ring of
    /// all groups up to a position has merged the others as far (predicate 1 of [MRP 5.2]). That node gets
    /// its missing instances from acceptors, and the others get their state from it.
    pub(super) fn trim(&mut self) {
        let limits = self.trim_limits();
        let in_memory = self.persistence.writes.storage() == AcceptorStorage::Memory;
        for (ring, limit) in self.rings.iter_mut().zip(limits) {
            let Some(ring) = ring else { continue };
            let PeerProgress { applied: merged, trimmable: safe, .. } = ring.learner.progress;
            // Values that the own application has not applied stay, too: `held_bytes` bounds them.
            let logs = self.persistence.writes.is_durable() && ring.acceptor.index.is_some();
            let own = if logs { merged.min(safe) } else { merged };
            let floor = ring.trim_end.min(own).min(limit);
            if in_memory {
                let lives = |p: Pid| !self.links.suspects(self.now, p);
                ring.forget_in_memory(self.me, floor, self.config.limits.cache_bytes, lives);
            } else {
                ring.forget(floor);
                if ring.acceptor.index.is_none() {
                    // It has no records: a value that leaves its memory is gone. Acceptors have it on their disks.
                    let applied = merged.min(ring.learner.learned);
                    ring.log.trim_for(applied, 0, self.config.limits.cache_bytes);
                }
            }
            let merged = ring.learner.progress.applied.min(ring.learner.learned);
            ring.log.evict(merged, self.config.limits.cache_bytes);
        }
        let floors = |id: RingId| {
            self.rings[usize::from(id)].as_ref().map_or(u64::MAX, |ring| ring.log.floor())
        };
        let idle = self.persistence.writes.unneeded(&floors);
        if idle < TRIM_RECORDS || !self.started || self.recovery.is_needed() {
            return;
        }
        // [MRP 3:5]
        let before = self.persistence.writes.trim(idle);
        for ring in self.rings.iter().flatten().filter(|ring| ring.acceptor.index.is_some()) {
            self.persistence.writes.write(ring.trim_base(), None);
        }
        let (position, point) = self.persistence.idle_since;
        self.persistence.writes.write(LogRecord::IdleSince { position, point }, None);
        let of = self.group_storage_epochs();
        self.persistence
            .writes
            .write(LogRecord::StorageEpochs { of }, Some(DurableAction::Trim { before }));
    }

    /// By ring: how far it may be trimmed for a node that continues from where the ring of all groups is
    /// trimmed to.
    fn trim_limits(&self) -> Vec<u64> {
        let mut limits = alloc::vec![u64::MAX; self.rings.len()];
        let all = ring_for(&self.config.rings, self.config.cluster.all_groups());
        let place = |id: RingId| self.merge.rings.iter().position(|&ring| ring == id);
        let of_all = all.and_then(|id| place(id).zip(self.rings[usize::from(id)].as_ref()));
        let Some((of_all, ring)) = of_all else { return limits };
        for (at, &id) in self.merge.rings.iter().enumerate().filter(|(at, _)| *at != of_all) {
            let last = ring.trim_end.checked_sub(1);
            limits[usize::from(id)] =
                last.map_or(0, |last| self.merge.order.needs(of_all, last, at));
        }
        limits
    }

    /// Replays a record of an earlier incarnation.
    pub(super) fn restore(
        &mut self,
        number: u64,
        bytes: &[u8],
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let record = LogRecord::read(bytes).filter(|_| !self.persistence.unreadable);
        let Some(record) = record else {
            // The record may have been a promise, or have replaced accepted values: nothing that the log
            // says from there on is relied on.
            self.persistence.writes.skip(number);
            if !mem::replace(&mut self.persistence.unreadable, true) {
                let why = "a record of the log that cannot be decoded";
                out.note(Note::Malformed(self.me, why));
            }
            return;
        };
        self.persistence.writes.restore(number, &record);
        match &record {
            LogRecord::IdleSince { position, point } => {
                self.persistence.idle_since = self.persistence.idle_since.max((*position, *point));
                self.persistence.idle_written = self.persistence.idle_since.1;
            }
            LogRecord::StorageLost { storage_epoch } => {
                self.recovery.state = StorageState::Lost;
                let held = &mut self.recovery.epochs[self.me.index()];
                *held = (*held).max(*storage_epoch);
            }
            LogRecord::StorageEpochs { of } => {
                self.recovery.state = StorageState::Intact;
                let members: Vec<Pid> = self.config.cluster.members(self.group).collect();
                for (p, &storage_epoch) in members.into_iter().zip(of) {
                    let held = &mut self.recovery.epochs[p.index()];
                    *held = (*held).max(storage_epoch);
                }
            }
            LogRecord::Promise { ring, .. }
            | LogRecord::Accept { ring, .. }
            | LogRecord::Adopt { ring, .. }
            | LogRecord::Learn { ring, .. }
            | LogRecord::TrimBase { ring, .. } => {
                let (id, cache) = (*ring, self.config.limits.cache_bytes);
                if let Some(Some(ring)) = self.rings.get_mut(usize::from(id)) {
                    ring.restore(number, record);
                    let learned = ring.learner.learned;
                    ring.log.evict(learned, cache);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::RingMessage;
    use super::super::shared_bytes::SharedBytes;
    use super::super::value::{InstanceEntry, RingBallot};
    use super::super::{MEMORY, MultiRingConfig, MultiRingEntry, SYNCED, WRITTEN};
    use super::*;
    use crate::layers::routing::BrokenLinks;
    use alloc::sync::Arc;
    use amcast_core::codec::Codec;
    use amcast_core::messages::{MessageInput, Messages};
    use amcast_core::{Entry, Gid, GroupSet, Input, Outbox, Protocol, RawConfig, Time};

    /// One of three replicas, in its second incarnation.
    fn replica(row: &MultiRingEntry, storage: AcceptorStorage) -> MultiRing {
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let config = raw.check(row.about().params).expect("a sound configuration");
        let shape = Arc::new(MultiRingConfig::of(storage, &config).expect("a sound shape"));
        let mut replica = MultiRing::new(Pid(0), &shape);
        step(&mut replica, Input::Start { incarnation: 1 });
        replica
    }

    fn step(replica: &mut MultiRing, input: Input<'_, Messages<RingPacket>>) {
        replica.step(Time(1), (), input, &mut Outbox::default());
    }

    #[test]
    fn the_checkpoint_of_a_member_counts_no_more_once_it_has_started_again() {
        let mut replica = replica(&SYNCED, AcceptorStorage::Synced);
        let mut hear = |incarnation, count, trimmable| {
            let progress = PeerProgress { learned: 9, applied: 9, trimmable };
            let (broken, rings) = (BrokenLinks::default(), [(0, progress)].into());
            let message = RingMessage::Heartbeat { count, eligible: true, broken, rings };
            let packet = RingPacket { incarnation, message };
            step(&mut replica, Input::Medium(MessageInput::From(Pid(1), packet)));
            replica.with_ring(0, |ring, _| {
                let at = ring.topology.member(Pid(1)).expect("it is in the ring");
                ring.membership.peers[at].trimmable
            })
        };
        assert_eq!((hear(0, 1, 5), hear(0, 2, 3)), (Some(5), Some(5)));
        // Its disk was replaced: what only its old one had is not trimmed by the others any more.
        assert_eq!((hear(1, 1, 0), hear(1, 2, 4)), (Some(0), Some(4)));
    }

    #[test]
    fn instances_are_trimmed_only_once_the_state_behind_them_is_on_disk() {
        let (mine, theirs) =
            (MergePosition { merged: 4, place: 1 }, MergePosition { merged: 9, place: 2 });
        for (row, storage) in
            [(&SYNCED, AcceptorStorage::Synced), (&WRITTEN, AcceptorStorage::Written)]
        {
            let mut replica = replica(row, storage);
            // From its own disk.
            step(&mut replica, Input::Installed { position: mine.position(), needs: 0 });
            step(&mut replica, Input::Checkpointed(mine.position()));
            assert_eq!((replica.merge.next, replica.trimmable_position()), (mine, mine));
            // From another replica that is ahead.
            step(&mut replica, Input::Installed { position: theirs.position(), needs: 0 });
            assert_eq!((replica.merge.next, replica.trimmable_position()), (theirs, mine));
            step(&mut replica, Input::Checkpointed(theirs.position()));
            assert_eq!(replica.trimmable_position(), theirs);
        }
    }

    #[test]
    fn nobody_counts_in_memory_on_what_waits_for_a_state_of_another_group() {
        let mut replica = replica(&MEMORY, AcceptorStorage::Memory);
        let at = |merged| MergePosition { merged, place: 1 };
        replica.state.wanted = false;
        step(&mut replica, Input::Installed { position: at(4).position(), needs: 0 });
        assert_eq!(replica.trimmable_position(), at(4));
        // The replica of another group on the same node needs a state: deliveries of this one meanwhile wait for that,
        // and counts as applied only for the pace of the others.
        step(&mut replica, Input::Unfit);
        (replica.merge.next, replica.merge.delivered) = (at(9), at(9).position());
        step(&mut replica, Input::Applied(at(9).position()));
        assert_eq!(replica.merge.applied_point(), at(9));
        assert_eq!(replica.trimmable_position(), MergePosition::default());
        // The state is in force.
        step(&mut replica, Input::Installed { position: at(7).position(), needs: 0 });
        assert_eq!(replica.trimmable_position(), at(9));
    }

    #[test]
    fn a_record_of_another_instance_is_not_taken_for_the_one_that_was_asked_for() {
        let mut replica = replica(&SYNCED, AcceptorStorage::Synced);
        let record = |ring, first| {
            let value = InstanceValue::Batch(SharedBytes::from(&[7; 9][..]));
            let entry = InstanceEntry { first, ballot: RingBallot::new(1, Pid(0)), value };
            LogRecord::Learn { ring, entry }
        };
        let ring = replica.rings[0].as_mut().expect("it is in its own ring");
        for number in 0..2 {
            ring.restore(number, record(0, number));
        }
        ring.log.evict(2, 0);
        let mut load = |first, record: &LogRecord| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            replica.retransmissions.disk_reads.insert(first, (0, first));
            let out = &mut Outbox::default();
            replica.on_loaded(Ticket(DISK_READ | first), Some(&bytes), out);
            let ring = replica.rings[0].as_ref().expect("it is in its own ring");
            (ring.log.entry(first).is_some(), replica.state.wanted)
        };
        assert_eq!(load(1, &record(0, 1)), (true, false));
        // The first one is needed next: it comes with a state, as if it had been trimmed.
        assert_eq!(load(0, &record(0, 1)), (false, true));
        assert_eq!(load(0, &record(1, 0)), (false, true));
        assert_eq!(load(0, &record(0, 0)), (true, true));
    }

    #[test]
    fn no_ring_is_trimmed_beyond_what_a_whole_node_holds() {
        for (row, storage) in
            [(&SYNCED, AcceptorStorage::Synced), (&MEMORY, AcceptorStorage::Memory)]
        {
            let raw = RawConfig { groups: 2, clients: 0, ..RawConfig::default() };
            let config = raw.check(row.about().params).expect("a sound configuration");
            let shape = Arc::new(MultiRingConfig::of(storage, &config).expect("a sound shape"));
            let mut replica = MultiRing::new(Pid(0), &shape);
            let id = |groups| ring_for(&shape.rings, groups).expect("each has a ring");
            let all = id(config.cluster().all_groups());
            // One node is behind in one group, and a second one in the other group.
            let progress = |trimmable| PeerProgress { trimmable, ..PeerProgress::default() };
            let of_nodes = [[60, 60], [50, 10], [20, 50]];
            let reached = replica.with_ring(all, |ring, cx| {
                ring.learner.progress = progress(60);
                for (rank, of_groups) in of_nodes.iter().enumerate() {
                    for (g, &trimmable) in (0..).map(Gid).zip(of_groups) {
                        let p = cx.config.cluster.replica(g, rank);
                        let at = ring.topology.member(p).expect("it is in the ring of all groups");
                        ring.membership.peers[at] = progress(trimmable);
                    }
                }
                ring.trim_end = ring.trimmable_by_majority(cx);
                ring.trim_end
            });
            assert_eq!(reached, Some(20), "two nodes have all of it");
            let own = id(GroupSet::one(Gid(0)));
            let limits = replica.trim_limits();
            assert_eq!(limits[usize::from(all)], u64::MAX);
            assert!(limits[usize::from(own)] < 50, "{limits:?}");
        }
    }

    #[test]
    fn a_replica_without_a_vote_keeps_no_more_in_memory_than_its_cache() {
        let mut raw = RawConfig { groups: 2, clients: 0, ..RawConfig::default() };
        raw.set = [("cache_bytes".into(), "2048".into())].into();
        let config = raw.check(SYNCED.about().params).expect("a sound configuration");
        let shape =
            Arc::new(MultiRingConfig::of(AcceptorStorage::Synced, &config).expect("a sound shape"));
        let me = config.cluster().replica(Gid(1), 0);
        let mut replica = MultiRing::new(me, &shape);
        step(&mut replica, Input::Start { incarnation: 0 });
        let all = ring_for(&shape.rings, config.cluster().all_groups()).expect("it has a ring");
        replica.with_ring(all, |ring, _| {
            assert!(ring.acceptor.index.is_none());
            for first in 0..100 {
                let value = InstanceValue::Batch(SharedBytes::from(&[7; 1000][..]));
                let entry = InstanceEntry { first, ballot: RingBallot::new(1, Pid(0)), value };
                ring.log.put(entry, super::super::instance_log::NO_RECORD);
                ring.learn_up_to(first + 1);
            }
        });
        let mut kept = |applied| {
            replica.with_ring(all, |ring, _| ring.learner.progress.applied = applied);
            replica.trim();
            replica.with_ring(all, |ring, _| (ring.log.floor(), ring.log.cached()))
        };
        // The values that its application has not applied stay.
        assert_eq!(kept(10), Some((10, 90_000)));
        assert_eq!(kept(100), Some((98, 2_000)));
    }
}
