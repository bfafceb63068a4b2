//! Catch-up of a learner: it requests the retransmission of its missing decided instances, from any
//! member that holds them [MRP 5.1].

use super::MultiRingMutant;
use super::message::{DecidedEntries, ProposalTable, RingMessage};
use super::persistence::{AcceptorStorage, LogRecord};
use super::ring::{RingContext, RingMember, entry_from, entry_upto};
use super::value::{INSTANCE_MAX, InstanceEntry, InstanceValue, RingBallot, VALUES_BYTES_MAX};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};

/// How many times `retry` an answer may take: it may have to be read from a disk.
const PATIENCE: u64 = 4;

/// How many times `pass_bytes` a retransmission has: a lagging member advances further with each request
/// than the others do meanwhile.
const RETRANSMISSION_PASSES: usize = 8;

/// A learner's requests for retransmission.
#[derive(Clone, Debug, Default)]
pub(super) struct CatchUp {
    /// When it requested one last.
    asked_at: Time,
    /// Which member it asks next.
    turn: usize,
    /// The learned instance at its last change, and the time since which it has not grown.
    seen: u64,
    seen_at: Time,
    /// No member can serve it, or it is full: there is nothing to request before a message comes.
    idle: bool,
    /// The last answer was incomplete: more can be requested at once.
    more: bool,
    /// The member that was asked last.
    asked: Option<Pid>,
    /// Members that were asked and have trimmed the next instance, with the first instance that each of
    /// them holds: none at all if it did not answer.
    trimmed: BTreeMap<Pid, u64>,
}

/// The next step of a retransmission.
pub(super) enum RetransmissionStep {
    /// This message can be sent.
    Answer(RingMessage),
    /// The slot that begins with this instance must be read from disk first.
    Load(u64),
}

impl RingMember {
    /// Whether this member is missing instances that it should have by now.
    fn is_lagging(&self, me: Pid, now: Time, retry: Span) -> bool {
        let table = self.acceptor.index.is_some() && self.proposals.at != self.learner.learned;
        let waits = self.coordinator.as_ref().is_some_and(|role| !role.is_in_phase2());
        let at_once =
            table || self.learner.learned < self.current.start || self.learner.catch_up.more;
        let ahead = || {
            let others =
                self.topology.members.iter().zip(&self.membership.peers).filter(|(p, _)| **p != me);
            others.map(|(_, progress)| progress.learned).max().unwrap_or(0)
        };
        let soon = waits || now.since(self.learner.catch_up.seen_at) >= retry;
        at_once || soon && ahead() > self.learner.learned
    }

    /// Requests this member's missing instances; from another member if there was no answer.
    pub(super) fn request_retransmission(&mut self, cx: &mut RingContext<'_>) {
        if self.learner.catch_up.seen != self.learner.learned {
            (self.learner.catch_up.seen, self.learner.catch_up.seen_at) =
                (self.learner.learned, cx.now);
        }
        let waits = self.learner.catch_up.asked_at != Time::ZERO;
        let asked_lately =
            waits && cx.now.since(self.learner.catch_up.asked_at) < cx.config.retry.times(PATIENCE);
        self.learner.catch_up.idle = self.is_full(cx);
        if asked_lately
            || !self.is_lagging(cx.me, cx.now, cx.config.retry)
            || self.learner.catch_up.idle
        {
            return;
        }
        let table = self.acceptor.index.is_some() && self.proposals.at != self.learner.learned;
        if let Some(silent) = self.learner.catch_up.asked.filter(|_| waits) {
            self.learner.catch_up.trimmed.insert(silent, u64::MAX);
        }
        let mut servers = self.servers(cx);
        self.learner.catch_up.idle = servers.is_empty();
        if servers.is_empty() {
            return;
        }
        // Each member holds the instances behind its own checkpoint: another may hold those that
        // one has trimmed.
        if servers.iter().any(|p| self.may_hold(*p)) {
            servers.retain(|p| self.may_hold(*p));
        }
        // [MRP 3:7] The member that answers is asked again: it has the next instances in memory by then.
        self.learner.catch_up.turn += usize::from(waits);
        self.learner.catch_up.asked_at = cx.now;
        let to = servers[self.learner.catch_up.turn % servers.len()];
        self.learner.catch_up.asked = Some(to);
        cx.send(
            to,
            RingMessage::RetransmitRequest { ring: self.id, from: self.learner.learned, table },
        );
    }

    /// The members from which this one can request its missing instances.
    fn servers(&self, cx: &RingContext<'_>) -> Vec<Pid> {
        let table = self.acceptor.index.is_some() && self.proposals.at != self.learner.learned;
        // Only acceptors have tables; an older table is as good.
        let enough = |p: Pid| match table {
            true => self.topology.acceptor(p).is_some(),
            false => self.is_ahead(p),
        };
        self.others(cx.me).filter(|&p| enough(p) && cx.reaches(p)).collect()
    }

    /// Whether `p` has learned more than this member.
    fn is_ahead(&self, p: Pid) -> bool {
        self.topology
            .member(p)
            .is_some_and(|at| self.membership.peers[at].learned > self.learner.learned)
    }

    /// Whether `p` may hold the next instance: it has learned it, and has not reported to have trimmed it.
    fn may_hold(&self, p: Pid) -> bool {
        let gone = self
            .learner
            .catch_up
            .trimmed
            .get(&p)
            .is_some_and(|floor| *floor > self.learner.learned);
        self.is_ahead(p) && !gone
    }

    /// `p` has trimmed everything below `floor`, and this member needs that. It continues from the lowest
    /// floor, unless another member may hold it.
    fn on_trimmed_by(&mut self, p: Pid, floor: u64, cx: &mut RingContext<'_>) {
        self.learner.catch_up.trimmed.insert(p, floor);
        if self.servers(cx).into_iter().any(|q| self.may_hold(q)) {
            self.learner.catch_up.asked_at = Time::ZERO;
            return;
        }
        let floors =
            self.learner.catch_up.trimmed.values().copied().filter(|at| *at > self.learner.learned);
        let lowest = floors.min().unwrap_or(floor);
        // Where logs are on disk, a member without one forgets what acceptors still hold: it does not speak for them.
        let acceptor_tells = || {
            let mut told = self.learner.catch_up.trimmed.iter().filter(|(_, at)| **at != u64::MAX);
            told.any(|(p, _)| self.topology.acceptor(*p).is_some())
        };
        let in_memory = cx.writes.storage() == AcceptorStorage::Memory;
        if !in_memory && lowest > self.trim_end && !acceptor_tells() {
            return;
        }
        self.learner.catch_up.trimmed.clear();
        self.jump_to(lowest, cx);
    }

    /// When to look again for missing instances. Where no member can be asked, the next heartbeat brings it
    /// about.
    pub(super) fn retransmission_at(&self, me: Pid, retry: Span) -> Time {
        if self.learner.catch_up.idle {
            return Time::NEVER;
        }
        let table = self.acceptor.index.is_some() && self.proposals.at != self.learner.learned;
        let others =
            self.topology.members.iter().zip(&self.membership.peers).filter(|(p, _)| **p != me);
        let ahead = others.map(|(_, progress)| progress.learned).max().unwrap_or(0);
        if table || self.learner.learned < self.current.start || ahead > self.learner.learned {
            let asked = match self.learner.catch_up.asked_at {
                Time::ZERO => Time::ZERO,
                at => at + retry.times(PATIENCE),
            };
            asked.max(self.learner.catch_up.seen_at + retry)
        } else {
            Time::NEVER
        }
    }

    /// The retransmission for a member that is missing instances from `from` on. `read` has values
    /// that were read from disk for it, by record.
    pub(super) fn serve(
        &self,
        (from, table): (u64, bool),
        read: &BTreeMap<u64, InstanceValue>,
        pass_bytes: usize,
    ) -> RetransmissionStep {
        let mut at = from.max(self.log.floor());
        let (mut bytes, mut wire_bytes) = (0, 0);
        let mut entries = Vec::new();
        if at == from {
            let most = pass_bytes.saturating_mul(RETRANSMISSION_PASSES);
            while at < self.learner.learned && bytes < most {
                let Some((first, slot)) = self.log.at(at) else { break };
                let Some(value) = slot.value.as_ref().or_else(|| read.get(&slot.record)) else {
                    if entries.is_empty() {
                        return RetransmissionStep::Load(first);
                    }
                    break;
                };
                let entry = InstanceEntry { first, ballot: slot.ballot, value: value.clone() };
                let entry = entry_upto(entry_from(entry, at), self.learner.learned);
                bytes += entry.value.size();
                wire_bytes += entry.wire_bytes();
                if wire_bytes > VALUES_BYTES_MAX && !entries.is_empty() {
                    break;
                }
                at = entry.end();
                entries.push(entry);
            }
        }
        let whole = at >= self.learner.learned
            && self.proposals.at == self.learner.learned
            && self.acceptor.index.is_some();
        let decided = DecidedEntries {
            entries,
            learned: self.learner.learned,
            floor: self.log.floor(),
            table: (table && whole).then(|| self.proposals.table.clone()),
        };
        RetransmissionStep::Answer(RingMessage::Retransmission { ring: self.id, decided })
    }

    /// A retransmission of decided instances.
    pub(super) fn on_retransmission(
        &mut self,
        from: Pid,
        decided: DecidedEntries,
        cx: &mut RingContext<'_>,
    ) -> Result<(), &'static str> {
        let at = self
            .topology
            .member(from)
            .ok_or("a retransmission from a process that is not in the ring")?;
        let DecidedEntries { entries, learned, floor, table } = decided;
        if floor.max(learned) > INSTANCE_MAX {
            return Err("instances beyond the last one");
        }
        self.membership.peers[at].learned = self.membership.peers[at].learned.max(learned);
        self.learner.catch_up.trimmed.remove(&from);
        // Any message shows that the member is not silent: the requested instances may have arrived
        // by another path.
        self.learner.catch_up.asked = self.learner.catch_up.asked.filter(|asked| *asked != from);
        let before = (self.learner.learned, self.proposals.at);
        if floor > self.learner.learned {
            self.on_trimmed_by(from, floor, cx);
        }
        for entry in entries {
            if !entry.makes_sense(&self.topology.acceptors, cx.config.cluster.processes()) {
                return Err("a value that no coordinator may propose");
            }
            if entry.first > self.learner.learned {
                break;
            }
            self.learn_entry(entry, cx);
        }
        if let Some(table) = table.filter(|table| table.len() == self.proposals.table.len()) {
            // A table is sent complete up to `learned`.
            self.take_table(table, learned);
        }
        self.learner.catch_up.more = self.learner.learned < learned && self.may_hold(from);
        if before != (self.learner.learned, self.proposals.at) {
            // More can be requested at once.
            self.learner.catch_up.asked_at = Time::ZERO;
        }
        self.advance(cx);
        Ok(())
    }

    /// Takes over a table of decided proposals as of instance `at`, if this process holds the later instances.
    fn take_table(&mut self, mut table: ProposalTable, at: u64) {
        if self.proposals.at >= at || at < self.log.floor() || at > self.learner.learned {
            return;
        }
        for (first, slot) in
            self.log.from(at).take_while(|(first, _)| *first < self.learner.learned)
        {
            let Some(value) = &slot.value else { return };
            debug_assert!(first + slot.instances > at);
            for packed in value.messages() {
                table[packed.msg.sender.index()] = (packed.incarnation, packed.number);
            }
        }
        (self.proposals.table, self.proposals.at) = (table, self.learner.learned);
    }

    /// All instances below `floor` are trimmed at every member that could be asked: learning continues
    /// there. A replica that has not applied them needs the state of another one.
    fn jump_to(&mut self, floor: u64, cx: &mut RingContext<'_>) {
        self.log.trim(floor);
        self.learner.learned = self.learner.learned.max(floor);
        self.learner.decided = self.learner.decided.max(floor);
        if self.acceptor.index.is_some() && !cx.config.mutants.is(MultiRingMutant::ForgetsTrimmed) {
            // Otherwise values that were accepted there, and not decided, would count as decided after a restart.
            cx.writes.write(self.trim_base(), None);
        }
        self.skip_to_learned();
    }

    /// Learns a decided entry whose first instance is not beyond the learned ones.
    ///
    /// Its ballot is not below the one in which it was decided: a process that knows an entry to be decided
    /// accepted it in that ballot or a later one, or learned it from one that did. So that ballot and all
    /// later ones have the same value there, and earlier ones may not (mutant `counts-older-runs`).
    fn learn_entry(&mut self, entry: InstanceEntry, cx: &mut RingContext<'_>) {
        if entry.ballot > self.current.ballot && self.current.ballot != RingBallot::NONE {
            // The ballot that is followed here is over.
            if self.coordinator.as_ref().is_some_and(|role| role.ballot < entry.ballot) {
                self.step_down(entry.ballot, cx);
            }
            self.acceptor.promised = self.acceptor.promised.max(entry.ballot);
        }
        while self.learner.learned < entry.end() {
            let entry = entry_from(entry.clone(), self.learner.learned);
            let in_run = self.current.ballot != RingBallot::NONE
                && self.acceptor.adopted == self.current.ballot
                && (entry.ballot <= self.current.ballot
                    || cx.config.mutants.is(MultiRingMutant::CountsOlderBallots))
                && self.learner.learned >= self.current.start;
            if in_run && self.learner.learned < self.current.end {
                self.learn_up_to(entry.end().min(self.current.end));
                continue;
            }
            if in_run && self.current.ballot >= self.acceptor.promised {
                self.accept(InstanceEntry { ballot: self.current.ballot, ..entry }, cx);
                self.learn_up_to(self.current.end);
                continue;
            }
            let entry = match self.current.ballot {
                _ if self.learner.learned >= self.current.start => entry,
                RingBallot::NONE => entry,
                _ => entry_upto(entry, self.current.start),
            };
            let end = entry.end();
            let durable =
                self.acceptor.index.is_some() && cx.writes.storage() != AcceptorStorage::Memory;
            let record = match durable {
                true => {
                    cx.writes.write(LogRecord::Learn { ring: self.id, entry: entry.clone() }, None)
                }
                false => super::instance_log::NO_RECORD,
            };
            self.log.put(entry, record);
            self.learn_up_to(end);
            self.skip_to_learned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::process::MultiRing;
    use super::super::shared_bytes::SharedBytes;
    use super::super::topology::ring_for;
    use super::super::topology::{RingKinds, RingTraversal, topologies};
    use super::super::value::RingProposal;
    use super::super::{MEMORY, MultiRingConfig, SYNCED};
    use super::*;
    use alloc::sync::Arc;
    use amcast_core::codec::Codec;
    use amcast_core::limits::FRAME_BYTES_MAX;
    use amcast_core::{
        ClusterShape, Entry, Gid, GroupSet, Input, MsgId, Outbox, Protocol, RawConfig,
    };

    /// A ring at process `me` that has learned some instances; that of instance `i` holds proposal `i + 1`
    /// of process 0.
    fn ring(me: Pid, instances: core::ops::Range<u64>) -> RingMember {
        let cluster = ClusterShape::new(1, 3, 0).unwrap();
        let shape =
            topologies(&cluster, RingKinds::Global, &[], RingTraversal::Nodes).pop().unwrap();
        let mut ring = RingMember::new(0, shape, me, cluster.processes());
        ring.log.trim(instances.start);
        (ring.learner.learned, ring.proposals.at) = (instances.start, instances.start);
        ring.proposals.table[0] = (0, instances.start);
        for first in instances {
            let msg = MsgId { sender: Pid(0), seq: first };
            let dst = GroupSet::one(Gid(0));
            let mut bytes = Vec::new();
            RingProposal { msg, incarnation: 0, number: first + 1, dst, payload: b"x" }
                .encode(&mut bytes);
            let value = InstanceValue::Batch(SharedBytes::from(&bytes[..]));
            ring.log.put(InstanceEntry { first, ballot: RingBallot::new(1, Pid(0)), value }, 0);
            ring.learn_up_to(first + 1);
        }
        ring
    }

    /// The table that a process sends to one that requests instances from `from` on.
    fn given(ring: &RingMember, from: u64) -> Option<(ProposalTable, u64)> {
        match ring.serve((from, true), &BTreeMap::new(), 1 << 20) {
            RetransmissionStep::Answer(RingMessage::Retransmission { decided, .. }) => {
                Some((decided.table?, decided.learned))
            }
            _ => panic!("it is in memory"),
        }
    }

    #[test]
    fn a_table_is_brought_up_to_what_came_since() {
        let giver = ring(Pid(1), 0..8);
        assert_eq!(giver.proposals.table[0], (0, 8));
        // The asker has all from 5 on, and lost its table; while it asks, it learns more than the giver.
        let mut asker = ring(Pid(2), 5..5);
        for learned in [7, 8, 11] {
            let source = ring(Pid(2), 5..learned);
            (asker.log, asker.learner.learned, asker.proposals.at) =
                (source.log, source.learner.learned, 0);
            let (table, at) = given(&giver, asker.learner.learned).expect("also to who knows more");
            asker.take_table(table, at);
            assert_eq!(asker.proposals.at, if learned < 8 { 0 } else { learned });
        }
        assert_eq!(asker.proposals.table[0], (0, 11));
    }

    #[test]
    fn a_table_that_is_too_old_or_too_new_is_not_taken() {
        let (older, newer) = (ring(Pid(1), 0..4), ring(Pid(1), 0..20));
        let mut asker = ring(Pid(2), 6..9);
        asker.proposals.at = 0;
        for giver in [&older, &newer] {
            asker.take_table(giver.proposals.table.clone(), giver.learner.learned);
            assert_eq!(asker.proposals.at, 0);
        }
    }

    #[test]
    fn only_acceptors_tell_that_an_instance_is_gone_where_logs_are_on_disk() {
        let raw = RawConfig { groups: 2, clients: 0, ..RawConfig::default() };
        for (row, storage) in
            [(&SYNCED, AcceptorStorage::Synced), (&MEMORY, AcceptorStorage::Memory)]
        {
            let config = raw.check(row.about().params).expect("a sound configuration");
            let shape = Arc::new(MultiRingConfig::of(storage, &config).expect("a sound shape"));
            let all = ring_for(&shape.rings, config.cluster().all_groups()).expect("it is there");
            let replica = |g, rank| config.cluster().replica(Gid(g), rank);
            let mut learner = MultiRing::new(replica(1, 0), &shape);
            let start = Input::Start { incarnation: 0 };
            learner.step(Time(1), (), start, &mut Outbox::default());
            let mut told = |from, floor| {
                let decided =
                    DecidedEntries { entries: Vec::new(), learned: 10, floor, table: None };
                learner.with_ring(all, |ring, cx| {
                    ring.on_retransmission(from, decided, cx).expect("it is sound");
                    ring.learner.learned
                })
            };
            // For a moment it reaches only another member without a vote.
            let told_of_all = storage == AcceptorStorage::Memory;
            assert_eq!(told(replica(1, 1), 5), Some(if told_of_all { 5 } else { 0 }));
            if !told_of_all {
                assert_eq!(told(replica(0, 2), 7), Some(5));
            }
        }
    }

    #[test]
    fn a_retransmission_fits_into_a_frame_however_small_its_values_are() {
        let mut giver = ring(Pid(1), 0..0);
        for first in 0..300_000 {
            let value = InstanceValue::Skip(1);
            giver.log.put(InstanceEntry { first, ballot: RingBallot::new(1, Pid(0)), value }, 0);
        }
        giver.learner.learned = 300_000;
        let step = giver.serve((0, false), &BTreeMap::new(), VALUES_BYTES_MAX);
        let RetransmissionStep::Answer(message) = step else { panic!("it is in memory") };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert!((VALUES_BYTES_MAX / 2..FRAME_BYTES_MAX).contains(&bytes.len()), "{}", bytes.len());
    }
}
