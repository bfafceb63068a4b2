//! A ring at one of its members: combines the roles, and handles everything that concerns several of them.
//!
//! | role | state | file |
//! |---|---|---|
//! | acceptor | `Acceptor` | `acceptor.rs`; phase 1B and 2B |
//! | learner | `Learner`, `CatchUp` | `learner.rs`, `catch_up.rs` |
//! | coordinator | `Coordinator` | `phase1.rs`, then `coordinator.rs`; its election: `election.rs` |
//! | member of the ring | `BallotLog`, `RingMembership`, `SuccessorLink` | `ballot_log.rs`, `membership.rs`, `successor.rs` |
//!
//! Proposers (`proposer.rs`) and the merge (`merge.rs`) belong to the process, not to one ring.

use super::MultiRingConfig;
use super::acceptor::Acceptor;
use super::ballot_log::BallotLog;
use super::coordinator::Coordinator;
use super::election::Election;
use super::forward::ForwardedProposals;
use super::instance_log::InstanceLog;
use super::learner::{DecidedProposals, Learner};
use super::membership::RingMembership;
use super::message::{AcceptorVote, Phase2, RingMessage, RingPacket};
use super::persistence::{LogRecord, PendingWrites};
use super::successor::SuccessorLink;
use super::topology::{RingId, RingTopology};
use super::value::{INSTANCE_MAX, InstanceEntry, InstanceValue, RingBallot};
use crate::layers::routing::{DirectChannel, LinkTable};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::{Outbox, Pid, Time};

/// The parts of a process that its rings use in a step.
pub(super) struct RingContext<'a> {
    pub(super) now: Time,
    pub(super) me: Pid,
    /// Whether this process may vote: it has not lost its storage.
    pub(super) votes: bool,
    pub(super) config: &'a MultiRingConfig,
    pub(super) links: &'a LinkTable,
    /// By process: the storage epoch whose votes and promises count.
    pub(super) storage_epochs: &'a mut Vec<u32>,
    pub(super) writes: &'a mut PendingWrites,
    pub(super) outgoing: &'a mut Vec<(Pid, RingMessage)>,
    /// Events and notes of the ring.
    pub(super) out: &'a mut Outbox<Messages<RingPacket>>,
    /// How far other rings must come for what this process orders to be delivered.
    pub(super) level_needs: &'a mut Vec<(RingId, u64)>,
}

impl RingContext<'_> {
    pub(super) fn send(&mut self, to: Pid, message: RingMessage) {
        self.outgoing.push((to, message));
    }

    pub(super) fn need(&mut self, ring: RingId, upto: u64) {
        self.level_needs.push((ring, upto));
    }

    pub(super) fn suspects(&self, pid: Pid) -> bool {
        self.links.suspects(self.now, pid)
    }

    /// Whether this process and `pid` hear each other.
    pub(super) fn reaches(&self, pid: Pid) -> bool {
        self.links.reaches(self.now, pid)
    }
}

/// A ring at one of its members: the state of each role, a part for each.
#[derive(Clone, Debug)]
pub(super) struct RingMember {
    pub(super) id: RingId,
    pub(super) topology: RingTopology,
    /// Accepted and decided values, of all roles.
    pub(super) log: InstanceLog,
    pub(super) acceptor: Acceptor,
    pub(super) learner: Learner,
    /// The ballot that this process follows.
    pub(super) current: BallotLog,
    /// The last proposals of each process that are decided.
    pub(super) proposals: DecidedProposals,
    /// This process's attempt to coordinate the ring, or its coordination; none while it follows.
    pub(super) coordinator: Option<Coordinator>,
    pub(super) election: Election,
    pub(super) membership: RingMembership,
    /// The coordinator allows to trim the instances below.
    pub(super) trim_end: u64,
    pub(super) successor: SuccessorLink,
    pub(super) direct: DirectChannel,
    /// By process: its proposals that this process forwarded.
    pub(super) forwarded: BTreeMap<Pid, ForwardedProposals>,
    /// Decided skips below this instance were disseminated.
    pub(super) skips_sent_upto: u64,
}

impl RingMember {
    pub(super) fn new(id: RingId, topology: RingTopology, me: Pid, processes: usize) -> Self {
        let acceptor = Acceptor::new(topology.acceptor(me));
        let processes = if acceptor.index.is_some() { processes } else { 0 };
        Self {
            id,
            log: InstanceLog::default(),
            acceptor,
            learner: Learner::default(),
            current: BallotLog::new(topology.acceptors.len()),
            proposals: DecidedProposals::new(processes),
            coordinator: None,
            election: Election::default(),
            membership: RingMembership::new(topology.members.len()),
            trim_end: 0,
            successor: SuccessorLink::default(),
            direct: DirectChannel::default(),
            forwarded: BTreeMap::new(),
            skips_sent_upto: 0,
            topology,
        }
    }

    /// The coordinator of the ballot that is followed.
    pub(super) const fn coordinator_pid(&self) -> Option<Pid> {
        self.current.ballot.coordinator()
    }

    /// Whether this process coordinates the current ballot.
    pub(super) fn coordinates(&self) -> bool {
        self.coordinator.as_ref().is_some_and(|role| role.is_in_phase2())
    }

    /// The incarnation and number of the last decided proposal of `p`; none if this process is no acceptor.
    pub(super) fn decided_of(&self, p: Pid) -> Option<(u32, u64)> {
        self.proposals.table.get(p.index()).copied()
    }

    /// The members other than `me`.
    pub(super) fn others(&self, me: Pid) -> impl Iterator<Item = Pid> + '_ {
        self.topology.members.iter().copied().filter(move |&p| p != me)
    }

    /// [MRP 4] Phase 2A, 2B and decisions, as they come round the ring.
    pub(super) fn on_phase2(
        &mut self,
        from: Pid,
        phase2: Phase2,
        cx: &mut RingContext<'_>,
    ) -> Result<(), &'static str> {
        let coordinator = phase2.ballot.coordinator().ok_or("a ballot of no coordinator")?;
        let far = phase2.start > phase2.reproposed_end
            || phase2.reproposed_end.max(phase2.end).max(phase2.trim_end) > INSTANCE_MAX;
        let other = !phase2.ballot.is_of(&self.topology.acceptors) || far;
        if other || phase2.votes.len() != self.current.votes.len() {
            return Err("proposals that are not of this ring");
        }
        if phase2.ballot < self.acceptor.promised {
            let message = RingMessage::Reject { ring: self.id, promised: self.acceptor.promised };
            cx.send(coordinator, message);
            return Ok(());
        }
        if phase2.ballot > self.current.ballot {
            if coordinator == cx.me {
                // The ballot is of an earlier incarnation, or was given up. The next attempt must be above
                // it.
                self.acceptor.promised = self.acceptor.promised.max(phase2.ballot);
                return Ok(());
            }
            self.follow_ballot(phase2.ballot, (phase2.start, phase2.reproposed_end), cx);
        } else if (phase2.start, phase2.reproposed_end)
            != (self.current.start, self.current.reproposed_end)
        {
            return Err("a ballot with two beginnings");
        }
        if phase2.membership_number > self.membership.number {
            if self.membership.excluded.contains(&cx.me) && !phase2.excluded.contains(&cx.me) {
                cx.out.mark("multiring-taken-in");
            }
            (self.membership.number, self.membership.excluded) =
                (phase2.membership_number, phase2.excluded);
        }
        self.trim_end = self.trim_end.max(phase2.trim_end);
        for entry in phase2.entries {
            if entry.first > self.current.end || self.is_full(cx) {
                break;
            }
            if entry.end() > self.current.end && coordinator != cx.me {
                if !entry.makes_sense(&self.topology.acceptors, cx.config.cluster.processes()) {
                    return Err("a value that no coordinator may propose");
                }
                let entry = entry_from(entry, self.current.end);
                self.accept(InstanceEntry { ballot: phase2.ballot, ..entry }, cx);
            }
        }
        // A member that is full requests nothing: it takes in no more.
        if phase2.end > self.current.end && coordinator != cx.me && !self.is_full(cx) {
            self.request_gap(from, cx);
        }
        self.count_votes(&phase2.votes, cx);
        self.coordinator_has_votes(&phase2.votes);
        self.advance(cx);
        Ok(())
    }

    fn request_gap(&mut self, from: Pid, cx: &mut RingContext<'_>) {
        if cx.now.since(self.current.gap_reported_at) >= cx.config.retry
            || self.current.gap_reported_at == Time::ZERO
        {
            self.current.gap_reported_at = cx.now;
            self.current.asked_direct |= self.coordinator_pid() == Some(from);
            let message = RingMessage::Phase2Gap {
                ring: self.id,
                ballot: self.current.ballot,
                from: self.current.end,
            };
            cx.send(from, message);
        }
    }

    /// `pid` restarted: it does not coordinate any more.
    pub(super) fn restarted(&mut self, pid: Pid) {
        if let Some(at) = self.topology.member(pid) {
            // It reports by itself which instances it still holds, and in which checkpoint: it may have lost both.
            self.membership.peers[at].learned = 0;
            self.membership.peers[at].trimmable = 0;
        }
        if self.coordinator_pid() == Some(pid) {
            self.election.coordinator_restarted = true;
            self.election.awaited_ballot = RingBallot::NONE;
        }
    }

    /// The connection to `pid` is new: messages that were sent on the old one may be lost.
    pub(super) fn reconnected(&mut self, pid: Pid) {
        self.successor.reconnected(pid);
        if self.coordinator_pid() == Some(pid) {
            self.current.reported_votes.fill(AcceptorVote::default());
        }
        if let Some(role) = &mut self.coordinator {
            role.phase1.forget_partial(self.topology.acceptor(pid));
        }
    }

    /// Trims the log up to `floor`: every process that must has it.
    pub(super) fn forget(&mut self, floor: u64) {
        let floor = floor.min(self.learner.learned);
        self.log.trim(floor);
    }

    /// As [`RingMember::forget`] where values are in memory alone: a member cannot get there from a disk what
    /// all others have trimmed. The values that a live member has not learned stay, of which it may not
    /// have been sent any: its predecessor sends ahead only so much. When more than `most` bytes are in
    /// memory the oldest of them go, and that member needs the state of another replica.
    pub(super) fn forget_in_memory(
        &mut self,
        me: Pid,
        floor: u64,
        most: usize,
        lives: impl Fn(Pid) -> bool,
    ) {
        let floor = floor.min(self.learner.learned);
        if floor <= self.log.floor() {
            return;
        }
        let members = self.topology.members.iter().zip(&self.membership.peers);
        let known =
            members.filter(|(p, _)| **p != me && self.exchanges_heartbeats(me, **p) && lives(**p));
        let learned = known.map(|(_, progress)| progress.learned).min().unwrap_or(u64::MAX);
        self.log.trim_for(floor, learned, most);
    }

    /// Replays a log record of an earlier incarnation.
    pub(super) fn restore(&mut self, number: u64, record: LogRecord) {
        match record {
            LogRecord::Promise { ballot, .. } => {
                self.acceptor.promised = self.acceptor.promised.max(ballot)
            }
            LogRecord::Accept { learned, adopted, entry, .. } => {
                self.acceptor.promised = self.acceptor.promised.max(entry.ballot);
                if adopted {
                    self.acceptor.adopted = entry.ballot;
                    self.log.put(entry, number);
                } else {
                    self.current.staged.retain(|(e, _)| e.ballot == entry.ballot);
                    self.current.staged.push_back((entry, number));
                }
                if self.holds_up_to(learned) {
                    self.learn_up_to(learned);
                }
            }
            LogRecord::Adopt { ballot, from, .. } => {
                self.current.staged.retain(|(e, _)| e.ballot == ballot);
                self.acceptor.adopted = ballot;
                self.acceptor.promised = self.acceptor.promised.max(ballot);
                self.replace_with_staged(from, false);
            }
            LogRecord::Learn { entry, .. } => {
                let end = entry.end();
                let next = entry.first <= self.learner.learned;
                self.log.put(entry, number);
                if next {
                    self.learn_up_to(end);
                }
            }
            LogRecord::TrimBase { promised, adopted, floor, at, table, .. } => {
                self.acceptor.adopted = self.acceptor.adopted.max(adopted);
                self.acceptor.promised = self.acceptor.promised.max(promised);
                if floor > self.log.floor() {
                    self.log.trim(floor);
                }
                if at > self.proposals.at && table.len() == self.proposals.table.len() {
                    (self.proposals.table, self.proposals.at) = (table, at);
                }
                if self.learner.learned < floor.max(self.proposals.at) {
                    // It does not matter which of these instances held messages.
                    self.learner.learned = floor.max(self.proposals.at);
                    self.learner.messages_end = self.learner.learned;
                }
                self.trim_end = self.trim_end.max(floor);
            }
            LogRecord::StorageLost { .. }
            | LogRecord::StorageEpochs { .. }
            | LogRecord::IdleSince { .. } => {}
        }
    }

    /// The record of the state that a trim of the log must not lose.
    pub(super) fn trim_base(&self) -> LogRecord {
        LogRecord::TrimBase {
            ring: self.id,
            promised: self.acceptor.promised,
            adopted: self.acceptor.adopted,
            floor: self.log.floor(),
            at: self.proposals.at,
            table: self.proposals.table.clone(),
        }
    }
}

/// The part of the entry below instance `upto`, which is behind its first.
pub(super) fn entry_upto(entry: InstanceEntry, upto: u64) -> InstanceEntry {
    match entry.value {
        InstanceValue::Skip(_) if upto < entry.end() => {
            InstanceEntry { value: InstanceValue::Skip(upto - entry.first), ..entry }
        }
        _ => entry,
    }
}

/// The part of the entry from instance `from` on, which lies in it.
pub(super) fn entry_from(entry: InstanceEntry, from: u64) -> InstanceEntry {
    match entry.value {
        InstanceValue::Skip(count) if from > entry.first => InstanceEntry {
            first: from,
            value: InstanceValue::Skip(count - (from - entry.first)),
            ..entry
        },
        _ => entry,
    }
}
