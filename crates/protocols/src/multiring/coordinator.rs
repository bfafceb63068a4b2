//! The coordinator of a ring in phase 2: it orders proposals, skips instances, and decides what may be trimmed.
//!
//! ```text
//!   follower --pre-vote--> Phase1 --promises of a quorum--> Recovering --learned >= start--> Phase2
//!      ^   (`election.rs`)    |     (`phase1.rs`)               |                               |
//!      +------------------ a higher ballot: `RingMember::step_down` --+-------------------------------+
//! ```
//!
//! Only in `Phase2` does it order new proposals: before that it does not know which proposals are ordered
//! already, and a retried one would get a second instance (mutant `orders-twice`).

use super::message::{PeerProgress, ProposalTable, RingMessage};
use super::phase1::Phase1;
use super::proposal_queue::{ProposalQueue, QueuedProposals};
use super::ring::{RingContext, RingMember};
use super::shared_bytes::SharedBytes;
use super::value::{INSTANCE_MAX, InstanceEntry, InstanceValue, RingBallot, SKIP_MAX, proposals};
use super::{MultiRingConfig, MultiRingMutant};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use amcast_core::step::Note;
use amcast_core::{Gid, Pid, Span, Time};
use core::mem;

/// This process's attempt to coordinate a ring, and its coordination.
#[derive(Clone, Debug)]
pub(super) struct Coordinator {
    pub(super) ballot: RingBallot,
    pub(super) phase: CoordinatorPhase,
    pub(super) phase1: Phase1,
    pub(super) pipeline: ProposalPipeline,
    skips: SkipTarget,
    /// By proposer: the incarnation and number of its last proposal that is decided and not reported to it.
    acknowledged: BTreeMap<Pid, (u32, u64)>,
    /// Members that lag too far behind to be in the ring.
    pub(super) lagging: Vec<Pid>,
    /// When the coordinator looked for lagging members last.
    pub(super) checked_at: Time,
}

/// The phase of a coordinator in its ballot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CoordinatorPhase {
    /// It gathers promises.
    Phase1,
    /// It has proposed again all values that may be decided, and learns everything before its ballot.
    Recovering,
    /// It orders new proposals: which proposal of each process it ordered last.
    Phase2(ProposalTable),
}

/// The proposals of a coordinator, from their arrival until a majority of each group has applied them.
#[derive(Clone, Debug, Default)]
pub(super) struct ProposalPipeline {
    /// Proposals that have no instance yet.
    queue: ProposalQueue,
    /// Entries that are not decided: the end of each, and its bytes.
    in_flight: VecDeque<(u64, usize)>,
    in_flight_bytes: usize,
    /// Entries that a majority of some group has not applied.
    unapplied: VecDeque<(u64, usize)>,
    unapplied_bytes: usize,
}

/// How far a coordinator is to skip instances [MRP 4].
#[derive(Clone, Copy, Debug)]
struct SkipTarget {
    /// Learners of other rings wait until this ring reaches this instance.
    wanted: u64,
    /// Where rates are paced: when the rate is levelled next.
    level_at: Time,
    /// Where the ballot's proposals ended when the rate was levelled last.
    level_end: u64,
}

impl Coordinator {
    /// Begins phase 1.
    pub(super) fn new(ballot: RingBallot, acceptors: usize, now: Time) -> Self {
        Self {
            ballot,
            phase: CoordinatorPhase::Phase1,
            phase1: Phase1::new(acceptors, now),
            pipeline: ProposalPipeline::default(),
            skips: SkipTarget { wanted: 0, level_at: now, level_end: 0 },
            acknowledged: BTreeMap::new(),
            lagging: Vec::new(),
            checked_at: now,
        }
    }

    /// Whether phase 1 is complete.
    pub(super) fn is_in_phase2(&self) -> bool {
        self.phase != CoordinatorPhase::Phase1
    }

    /// The proposals of `sender` up to this one are decided: the coordinator owes it an answer.
    pub(super) fn acknowledge(&mut self, sender: Pid, incarnation: u32, number: u64) {
        let row = self.acknowledged.entry(sender).or_default();
        *row = (*row).max((incarnation, number));
    }
}

impl ProposalPipeline {
    /// A value of this size is proposed, in instances that end here.
    fn push(&mut self, end: u64, size: usize) {
        self.in_flight.push_back((end, size));
        self.in_flight_bytes += size;
        self.unapplied.push_back((end, size));
        self.unapplied_bytes += size;
    }

    /// Forgets decided batches, and those that a majority of each group has applied.
    fn release(&mut self, decided: u64, applied: u64) {
        while let Some(&(_, size)) = self.in_flight.front().filter(|(end, _)| *end <= decided) {
            self.in_flight_bytes -= size;
            self.in_flight.pop_front();
        }
        while let Some(&(_, size)) = self.unapplied.front().filter(|(end, _)| *end <= applied) {
            self.unapplied_bytes -= size;
            self.unapplied.pop_front();
        }
    }

    /// Whether the limits of undecided and of unapplied bytes allow no more proposals.
    fn is_full(&self, config: &MultiRingConfig) -> bool {
        self.in_flight_bytes >= config.limits.pipeline_bytes
            || self.unapplied_bytes >= config.limits.lag_bytes
    }
}

/// Whether `number` of `incarnation` is the proposal that follows the one in `row`.
fn is_next(row: (u32, u64), incarnation: u32, number: u64) -> bool {
    if incarnation == row.0 { number == row.1 + 1 } else { incarnation > row.0 && number == 1 }
}

impl RingMember {
    /// This process coordinates no more, because of a ballot above its own.
    pub(super) fn step_down(&mut self, above: RingBallot, cx: &mut RingContext<'_>) {
        if let Some(role) = self.coordinator.take()
            && role.is_in_phase2()
        {
            cx.out.note(Note::Demoted(above.number()));
        }
    }

    /// Phase 2A: proposes a value in the next instances of the ballot, with this coordinator's own vote.
    pub(super) fn propose(&mut self, value: InstanceValue, cx: &mut RingContext<'_>) {
        if value_end(self.current.end, &value) <= self.current.end {
            return;
        }
        // [MRP 1:3]
        let (size, entry) = (
            value.size(),
            InstanceEntry { first: self.current.end, ballot: self.current.ballot, value },
        );
        self.accept(entry, cx);
        if let Some(role) = &mut self.coordinator {
            role.pipeline.push(self.current.end, size);
        }
    }

    /// A proposer asks to order these proposals.
    pub(super) fn on_propose(&mut self, from: Pid, bytes: &SharedBytes, cx: &mut RingContext<'_>) {
        let hint = RingMessage::CurrentBallot { ring: self.id, ballot: self.current.ballot };
        let table_known = self.proposals.table.get(from.index()).copied();
        let active = self.coordinates();
        let Some(role) = self.coordinator.as_mut().filter(|_| active) else {
            // A process whose own ballot is current and that does not coordinate any more sends no hint:
            // the proposer would send everything to it again at once, and get the same answer, until there
            // is a new ballot.
            let led = self.coordinator_pid() == Some(cx.me);
            if from != cx.me && self.current.ballot != RingBallot::NONE && !led {
                cx.send(from, hint);
            }
            return;
        };
        let CoordinatorPhase::Phase2(table) = &mut role.phase else { return };
        let (row, mut done) = (&mut table[from.index()], None);
        // New proposals that follow each other are queued as one piece, without a copy.
        let mut at = 0;
        let mut first = 0;
        let mut end = 0;
        let mut count = 0;
        for proposal in proposals(bytes) {
            let (incarnation, number) = (proposal.incarnation, proposal.number);
            let begins = at;
            at += proposal.size();
            let twice =
                cx.config.mutants.is(MultiRingMutant::OrdersTwice) && (incarnation, number) <= *row;
            // No process has more proposals in flight than its window.
            let full = role.pipeline.queue.len() + count
                >= cx.config.cluster.processes() * cx.config.limits.window;
            if full {
                break;
            }
            if is_next(*row, incarnation, number) || twice {
                *row = (*row).max((incarnation, number));
                first = if count == 0 { begins } else { first };
                (end, count) = (at, count + 1);
                continue;
            }
            role.pipeline.queue.push(QueuedProposals { bytes: bytes.slice(first..end), count });
            count = 0;
            if table_known.is_some_and(|learned| (incarnation, number) <= learned) {
                done = table_known;
            }
        }
        role.pipeline.queue.push(QueuedProposals { bytes: bytes.slice(first..end), count });
        if let Some((incarnation, number)) = done {
            role.acknowledge(from, incarnation, number);
        }
    }

    /// Learners wait until this ring reaches instance `upto`.
    pub(super) fn on_level_request(&mut self, upto: u64) {
        let most = self.current.end.saturating_add(SKIP_MAX).min(INSTANCE_MAX);
        if let Some(role) = &mut self.coordinator {
            role.skips.wanted = role.skips.wanted.max(upto.min(most));
        }
    }

    /// The periodic work of a candidate or coordinator.
    pub(super) fn coordinate(&mut self, cx: &mut RingContext<'_>) {
        let Some(role) = &self.coordinator else { return };
        if !role.is_in_phase2() {
            if cx.writes.hangs {
                // Its own promise may never be durable: another acceptor has its turn.
                self.coordinator = None;
                return;
            }
            if cx.now.since(role.phase1.asked_at) >= cx.config.retry {
                self.send_prepare(cx);
            }
            return self.begin_phase2(cx);
        }
        self.release_applied(cx);
        self.update_membership(cx);
        if self.has_proposal_table(cx) {
            self.pack_proposals(cx);
            self.skip_to_level(cx);
        }
        self.report_decided(cx);
    }

    /// Whether the coordinator has learned everything before its ballot, so that it knows which proposals
    /// are ordered.
    fn has_proposal_table(&mut self, cx: &mut RingContext<'_>) -> bool {
        let behind =
            self.learner.learned < self.current.start || self.proposals.at != self.learner.learned;
        if behind || self.acceptor.adopted != self.current.ballot {
            return false;
        }
        let Some(role) = &mut self.coordinator else { return false };
        if role.phase == CoordinatorPhase::Recovering {
            let mut table = self.proposals.table.clone();
            for (_, slot) in self.log.from(self.learner.learned) {
                for packed in slot.value.iter().flat_map(InstanceValue::messages) {
                    table[packed.msg.sender.index()] = (packed.incarnation, packed.number);
                }
            }
            role.phase = CoordinatorPhase::Phase2(table);
            role.skips.level_end = self.current.end;
            // Proposals that were sent to the previous coordinator are to be sent again, at once.
            for p in cx.config.cluster.pids() {
                cx.outgoing.push((
                    p,
                    RingMessage::CurrentBallot { ring: self.id, ballot: self.current.ballot },
                ));
            }
        }
        true
    }

    /// Releases the bytes of decided and applied batches, and advances the instance up to which logs may be trimmed.
    fn release_applied(&mut self, cx: &RingContext<'_>) {
        let applied = self.reached_by_majority(cx, |progress| progress.applied);
        // [MRP 3:4]
        let trimmable = self.trimmable_by_majority(cx);
        self.trim_end = self.trim_end.max(trimmable.min(self.learner.learned));
        let (decided, Some(role)) = (self.learner.decided, &mut self.coordinator) else { return };
        role.pipeline.release(decided, applied);
    }

    /// The instance that a majority of the replicas of each group has reached.
    fn reached_by_majority(
        &self,
        cx: &RingContext<'_>,
        what: impl Fn(&PeerProgress) -> u64,
    ) -> u64 {
        let of_group = |g| of_majority(cx, |rank| self.of_replica(cx, (g, rank), &what));
        self.topology.set.iter().map(of_group).min().unwrap_or(0)
    }

    /// [MRP 5.2] The instance that the checkpoints of a majority of nodes have reached (`K[x]T`), or their
    /// states in memory. A node is the replicas of one rank; its replica that is furthest behind counts:
    /// `MultiRing::trim` says why.
    pub(super) fn trimmable_by_majority(&self, cx: &RingContext<'_>) -> u64 {
        let trimmable = |progress: &PeerProgress| progress.trimmable;
        let of_node = |rank| {
            let of_group = |g| self.of_replica(cx, (g, rank), trimmable);
            self.topology.set.iter().map(of_group).min().unwrap_or(0)
        };
        of_majority(cx, of_node)
    }

    /// The progress of the replica of group `g` with this rank.
    fn of_replica(
        &self,
        cx: &RingContext<'_>,
        (g, rank): (Gid, usize),
        what: impl Fn(&PeerProgress) -> u64,
    ) -> u64 {
        let p = cx.config.cluster.replica(g, rank);
        match self.topology.member(p) {
            Some(_) if p == cx.me => what(&self.learner.progress),
            Some(at) => what(&self.membership.peers[at]),
            None => 0,
        }
    }

    /// [MRP 4] Packs queued proposals into batches, one instance each.
    fn pack_proposals(&mut self, cx: &mut RingContext<'_>) {
        loop {
            let waits_for_disk = cx.writes.pending_bytes() > cx.config.limits.held_bytes;
            let Some(role) = &mut self.coordinator else { return };
            if waits_for_disk || role.pipeline.is_full(cx.config) || role.pipeline.queue.is_empty()
            {
                return;
            }
            // [MRP 1:8]
            let batch = role.pipeline.queue.batch(cx.config.limits.pack_bytes);
            let instance = self.current.end;
            self.propose(InstanceValue::Batch(batch), cx);
            self.need_merged_rings(instance, cx);
        }
    }

    /// Records how far the rings that are merged with this one must come for `instance` to be delivered.
    fn need_merged_rings(&self, instance: u64, cx: &mut RingContext<'_>) {
        for g in self.topology.set.iter() {
            let (order, rings) = cx.config.subscribed(g);
            let Some(mine) = rings.iter().position(|&r| r == self.id) else { continue };
            for (at, &ring) in rings.iter().enumerate().filter(|(at, _)| *at != mine) {
                let upto = order.needs(mine, instance, at);
                cx.need(ring, upto);
            }
        }
    }

    /// [MRP 4] Skips instances, so that no learner waits for this ring: as far as they requested, and up to
    /// the rate `lambda` where rates are paced.
    fn skip_to_level(&mut self, cx: &mut RingContext<'_>) {
        let (end, Some(role)) = (self.current.end, &mut self.coordinator) else { return };
        let mut upto =
            role.skips.wanted.saturating_add(rounding(role.skips.wanted, end)).min(INSTANCE_MAX);
        // [MRP 2:3]
        if let Some((delta, rate)) = cx.config.pace
            && cx.now >= role.skips.level_at
        {
            let gone = cx.now.since(role.skips.level_at) + delta;
            let paced = role.skips.level_end.saturating_add(instances(rate, gone));
            upto = upto.max(paced).min(INSTANCE_MAX);
            (role.skips.level_at, role.skips.level_end) = (cx.now + delta, end.max(upto));
        }
        if upto > end && role.pipeline.unapplied_bytes < cx.config.limits.lag_bytes {
            // [MRP 2:4]
            self.propose(InstanceValue::Skip((upto - end).min(SKIP_MAX)), cx);
        }
    }

    /// Reports to proposers which of their proposals are decided.
    fn report_decided(&mut self, cx: &mut RingContext<'_>) {
        let Some(role) = &mut self.coordinator else { return };
        for (pid, (incarnation, upto)) in mem::take(&mut role.acknowledged) {
            cx.send(pid, RingMessage::ProposalsDecided { ring: self.id, incarnation, upto });
        }
    }

    /// When the coordinator next has work that no message brings.
    pub(super) fn coordinate_at(&self, retry: Span, paced: bool) -> Time {
        match &self.coordinator {
            Some(role) if !role.is_in_phase2() => role.phase1.asked_at + retry,
            Some(role) if paced && matches!(role.phase, CoordinatorPhase::Phase2(_)) => {
                role.skips.level_at
            }
            _ => Time::NEVER,
        }
    }
}

/// The highest number that a majority of ranks has reached.
fn of_majority(cx: &RingContext<'_>, has: impl Fn(usize) -> u64) -> u64 {
    let cluster = &cx.config.cluster;
    let mut all: Vec<u64> = (0..cluster.replicas()).map(has).collect();
    all.sort_unstable();
    let quorum = match cx.config.mutants.is(MultiRingMutant::TrimsForOne) {
        true => 1,
        false => cluster.quorum(),
    };
    all[all.len() - quorum]
}

/// From so many requested instances on, the coordinator skips some more.
const MANY: u64 = 8;

/// How many instances are skipped beyond those that are requested: a ring that requests many is one of
/// several that soon request about as many, and need not get a skip each.
fn rounding(wanted: u64, end: u64) -> u64 {
    match wanted.saturating_sub(end) {
        many if many >= MANY => many / 2,
        _ => 0,
    }
}

/// How many instances a rate makes in a time.
fn instances(rate: u64, span: Span) -> u64 {
    (u128::from(rate) * u128::from(span.0) / 1_000_000_000) as u64
}

pub(super) fn value_end(first: u64, value: &InstanceValue) -> u64 {
    first.saturating_add(value.instances())
}

#[cfg(test)]
mod tests {
    use super::super::SYNCED;
    use super::super::persistence::AcceptorStorage;
    use super::super::process::MultiRing;
    use super::*;
    use alloc::sync::Arc;
    use amcast_core::{Entry, Input, Outbox, Protocol, RawConfig};

    #[test]
    fn proposals_follow_each_other_and_a_new_incarnation_begins_again() {
        assert!(is_next((0, 0), 0, 1) && is_next((0, 4), 0, 5) && is_next((0, 4), 1, 1));
        assert!(!is_next((0, 4), 0, 4) && !is_next((0, 4), 0, 6) && !is_next((1, 1), 0, 2));
        assert!(!is_next((0, 4), 2, 2));
    }

    #[test]
    fn a_rate_makes_instances() {
        assert_eq!(instances(9000, Span::millis(5)), 45);
        assert_eq!(instances(2000, Span::millis(20)), 40);
    }

    #[test]
    fn a_paced_coordinator_proposes_no_instance_behind_the_last_one() {
        let mut raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        raw.set = [("leveling".into(), "paced".into())].into();
        let config = raw.check(SYNCED.about().params).expect("a sound configuration");
        let shape = MultiRingConfig::of(AcceptorStorage::Synced, &config).expect("a sound shape");
        let mut replica = MultiRing::new(Pid(0), &Arc::new(shape));
        let start = Input::Start { incarnation: 0 };
        replica.step(Time(1), (), start, &mut Outbox::default());
        let end = replica.with_ring(0, |ring, cx| {
            ring.prepare(cx);
            let ballot = ring.acceptor.promised;
            ring.follow_ballot(ballot, (0, 0), cx);
            let near = INSTANCE_MAX - 1;
            (ring.current.end, ring.learner.learned, ring.acceptor.adopted) = (near, near, ballot);
            if let Some(role) = &mut ring.coordinator {
                role.skips = SkipTarget { wanted: 0, level_at: cx.now, level_end: near };
            }
            ring.skip_to_level(cx);
            ring.current.end
        });
        assert_eq!(end, Some(INSTANCE_MAX));
    }
}
