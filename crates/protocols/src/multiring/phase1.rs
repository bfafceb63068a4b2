//! Phase 1 [MRP 4]: how a candidate becomes coordinator. It runs once for all instances that are not decided.
//!
//! ```text
//!   candidate                        acceptors
//!      | persist its own promise         |
//!      |---- Prepare(b) ---------------->| persist promised = b        (phase 1A)
//!      |<--- PromisedEntry.., Promise ---|                             (phase 1B)
//!      | promises of a quorum, and all that any of them learned is learned here:
//!      | adopt the log of the highest `adopted` ballot among them, propose it again
//!      v
//!   phase 2 (`coordinator.rs`)
//! ```
//!
//! # Why the value rule is safe
//! A proposal that a quorum accepted in an earlier ballot is part of the log of each later ballot that
//! a quorum adopted, because that ballot's coordinator proposed it again. Any two quorums intersect,
//! so among the promises is one of an acceptor that holds it; the promise with the highest `adopted`
//! ballot, and of those the longest log, holds all of it. (`RingMember::begin_phase2`; mutants
//! `begins-with-nothing`, `begins-with-the-longest-log`, `forgets-what-it-accepted`,
//! `begins-behind-what-is-known`, `leads-before-it-is-written`, `counts-lost-promises`.)

use super::MultiRingMutant;
use super::coordinator::{Coordinator, CoordinatorPhase, value_end};
use super::message::RingMessage;
use super::persistence::{DurableAction, LogRecord};
use super::ring::{RingContext, RingMember, entry_from};
use super::value::{INSTANCE_MAX, InstanceEntry, InstanceValue, RingBallot};
use alloc::vec::Vec;
use amcast_core::step::Note;
use amcast_core::{Pid, ProtocolEvent, Time};
use core::mem;

/// The promises that a candidate gathers.
#[derive(Clone, Debug)]
pub(super) struct Phase1 {
    /// When it asked for promises last.
    pub(super) asked_at: Time,
    /// By acceptor: its promise.
    promises: Vec<Option<PromisedState>>,
    /// By acceptor: accepted entries that came before the promise that they belong to.
    partial: Vec<Vec<InstanceEntry>>,
}

impl Phase1 {
    pub(super) fn new(acceptors: usize, now: Time) -> Self {
        Self {
            asked_at: now,
            promises: alloc::vec![None; acceptors],
            partial: alloc::vec![Vec::new(); acceptors],
        }
    }

    /// Whether a quorum of the others has promised, and acceptor `mine` has not.
    pub(super) fn awaits_only(&self, mine: usize, quorum: usize) -> bool {
        self.promises[mine].is_none() && self.promises.iter().flatten().count() >= quorum
    }

    /// Entries from this acceptor may have been lost: those that came are no beginning of a promise.
    pub(super) fn forget_partial(&mut self, acceptor: Option<usize>) {
        if let Some(at) = acceptor {
            self.partial[at].clear();
        }
    }
}

/// The promise of an acceptor.
#[derive(Clone, Debug)]
pub(super) struct PromisedState {
    learned: u64,
    /// The ballot that it had adopted: the entries are of that ballot.
    adopted: RingBallot,
    entries: Vec<InstanceEntry>,
    /// By acceptor: the storage epoch that the sender knows of it.
    storage_epochs: Vec<u32>,
}

impl PromisedState {
    /// A promise whose entries arrived before it, one in each message.
    pub(super) const fn head(learned: u64, adopted: RingBallot, storage_epochs: Vec<u32>) -> Self {
        Self { learned, adopted, entries: Vec::new(), storage_epochs }
    }

    /// Where its accepted entries end.
    fn end(&self) -> u64 {
        self.entries.last().map_or(self.learned, InstanceEntry::end)
    }

    /// The values that it accepted from instance `start` on.
    fn values_from(&self, start: u64) -> Vec<InstanceValue> {
        let rest = self.entries.iter().filter(|entry| entry.end() > start);
        rest.map(|entry| entry_from(entry.clone(), start.max(entry.first)).value).collect()
    }
}

impl RingMember {
    /// A ballot of this process above all that it has seen.
    pub(super) fn next_ballot(&self, me: Pid) -> RingBallot {
        RingBallot::new(self.acceptor.promised.round + 1, me)
    }

    /// [MRP 4] Phase 1A, for all instances from here on.
    pub(super) fn prepare(&mut self, cx: &mut RingContext<'_>) {
        // [MRP 1:1]
        let ballot = self.next_ballot(cx.me);
        self.election.failed_attempts += 1;
        self.acceptor.promised = ballot;
        self.await_ballot(cx.now);
        self.coordinator = Some(Coordinator::new(ballot, self.topology.acceptors.len(), cx.now));
        let role = DurableAction::OwnPromise { ring: self.id, ballot };
        if cx.config.mutants.is(MultiRingMutant::CoordinatesBeforeItIsWritten) {
            cx.writes.due.push_back(role.clone());
        }
        cx.writes.write(LogRecord::Promise { ring: self.id, ballot }, Some(role));
        self.send_prepare(cx);
    }

    pub(super) fn send_prepare(&mut self, cx: &mut RingContext<'_>) {
        let (ring, learned) = (self.id, self.learner.learned);
        let Some(role) = &mut self.coordinator else { return };
        role.phase1.asked_at = cx.now;
        for (at, &acceptor) in self.topology.acceptors.iter().enumerate() {
            // Asked again are acceptors that had learned more than this process: they may have failed, and
            // others may serve it. So are those that lost their storage since: their promise is void.
            let storage_epoch = cx.storage_epochs[acceptor.index()];
            let valid =
                |p: &PromisedState| p.learned <= learned && p.storage_epochs[at] == storage_epoch;
            let promised = role.phase1.promises[at].as_ref().is_some_and(valid);
            if acceptor != cx.me && !promised {
                role.phase1.promises[at] = None;
                role.phase1.partial[at].clear();
                cx.send(acceptor, RingMessage::Prepare { ring, ballot: role.ballot });
            }
        }
    }

    pub(super) fn on_promised_entry(
        &mut self,
        from: Pid,
        ballot: RingBallot,
        entry: InstanceEntry,
    ) {
        if let Some(at) = self.topology.acceptor(from)
            && let Some(role) = &mut self.coordinator
            && role.ballot == ballot
        {
            role.phase1.partial[at].push(entry);
        }
    }

    pub(super) fn on_promise(
        &mut self,
        from: Pid,
        ballot: RingBallot,
        count: u32,
        mut promised: PromisedState,
        cx: &mut RingContext<'_>,
    ) -> Result<(), &'static str> {
        let at =
            self.topology.acceptor(from).ok_or("a promise from a process that is no acceptor")?;
        if promised.storage_epochs.len() != self.topology.acceptors.len() {
            return Err("a promise for another ring");
        }
        let Some(role) = self.coordinator.as_mut().filter(|l| l.ballot == ballot) else {
            return Ok(());
        };
        let entries = mem::take(&mut role.phase1.partial[at]);
        let Some(surplus) = entries.len().checked_sub(count as usize) else {
            // Some entries were lost; the candidate asks again.
            return Ok(());
        };
        let processes = cx.config.cluster.processes();
        let sound = |entry: &InstanceEntry| entry.makes_sense(&self.topology.acceptors, processes);
        promised.entries = entries.into_iter().skip(surplus).collect();
        let PromisedState { learned, adopted, ref entries, .. } = promised;
        let far = learned > INSTANCE_MAX || !adopted.is_of(&self.topology.acceptors);
        if far || !entries.iter().all(sound) || !is_contiguous(learned, entries) {
            return Err("a promise with gaps or impossible values");
        }
        role.phase1.promises[at] = Some(promised);
        if let Some(member) = self.topology.member(from) {
            let held = &mut self.membership.peers[member].learned;
            *held = (*held).max(learned);
        }
        self.begin_phase2(cx);
        Ok(())
    }

    /// This process's own promise is durable.
    pub(super) fn on_own_promise(&mut self, ballot: RingBallot, cx: &mut RingContext<'_>) {
        let Some(at) = self.acceptor.index else { return };
        let entries = self.undecided_entries();
        let of = |p: &Pid| cx.storage_epochs[p.index()];
        let storage_epochs = self.topology.acceptors.iter().map(of).collect();
        let Some(role) = self.coordinator.as_mut().filter(|l| l.ballot == ballot) else {
            return;
        };
        let (learned, adopted) = (self.learner.learned, self.acceptor.adopted);
        if !is_contiguous(learned, &entries) {
            // As a promise of another acceptor: behind a gap, values would move to other instances.
            return cx.out.note(Note::Malformed(cx.me, "an own promise with gaps"));
        }
        role.phase1.promises[at] =
            Some(PromisedState { learned, adopted, entries, storage_epochs });
        self.begin_phase2(cx);
    }

    /// Begins phase 2 with the promises of a quorum: proposes again all values that may be decided. Why it suffices to
    /// take the longest log of the highest adopted ballot: see the [module](self).
    ///
    /// Instances that any of them has learned must be learned here first: the others then catch up
    /// from this process, and there may be no other source, because a process that has learned an
    /// instance may trim it.
    pub(super) fn begin_phase2(&mut self, cx: &mut RingContext<'_>) {
        let Some(role) = &self.coordinator else { return };
        // Not before its own promise is durable: otherwise this process might forget that it coordinated
        // this ballot, and propose other values in it.
        let promised = self.acceptor.index.is_some_and(|mine| role.phase1.promises[mine].is_some());
        if role.ballot <= self.current.ballot || !promised {
            return;
        }
        let ballot = role.ballot;
        // A promise of a storage epoch that was lost since is void.
        for promised in role.phase1.promises.iter().flatten() {
            for (at, &storage_epoch) in promised.storage_epochs.iter().enumerate() {
                let held = &mut cx.storage_epochs[self.topology.acceptors[at].index()];
                *held = (*held).max(storage_epoch);
            }
        }
        let any = cx.config.mutants.is(MultiRingMutant::CountsLostPromises);
        let counts = |(at, promised): (usize, &Option<PromisedState>)| {
            let now = cx.storage_epochs[self.topology.acceptors[at].index()];
            promised.as_ref().is_some_and(|p| any || p.storage_epochs[at] == now)
        };
        let counted: Vec<bool> = role.phase1.promises.iter().enumerate().map(counts).collect();
        if counted.iter().filter(|&&counts| counts).count() < self.topology.quorum() {
            return;
        }
        let promises = || {
            let all = role.phase1.promises.iter().zip(&counted);
            all.filter(|(_, counts)| **counts).filter_map(|(p, _)| p.as_ref())
        };
        let start = self.learner.learned;
        let behind = promises().any(|p| p.learned > start);
        if behind && !cx.config.mutants.is(MultiRingMutant::BeginsWithoutLearning) {
            return;
        }
        let longest = cx.config.mutants.is(MultiRingMutant::BeginsWithTheLongestLog);
        let rank =
            |p: &&PromisedState| (if longest { RingBallot::NONE } else { p.adopted }, p.end());
        let best = promises().max_by_key(rank);
        let rivals = |p: &PromisedState| {
            let other = best.filter(|best| best.adopted != p.adopted);
            other.is_some_and(|best| conflict(&p.entries, &best.entries))
        };
        if promises().any(rivals) {
            cx.out.mark("multiring-rival-values");
        }
        let chosen: Vec<InstanceValue> =
            match cx.config.mutants.is(MultiRingMutant::BeginsWithNothing) {
                true => Vec::new(),
                false => best.map_or(Vec::new(), |best| best.values_from(start)),
            };
        let reproposed_end = chosen.iter().fold(start, value_end);
        self.follow_ballot(ballot, (start, reproposed_end), cx);
        if let Some(role) = &mut self.coordinator {
            role.phase = CoordinatorPhase::Recovering;
        }
        cx.out.event(ProtocolEvent::Leads(ballot.number()));
        for value in chosen {
            self.propose(value, cx);
        }
    }
}

/// Whether the entries follow each other without gaps from `learned` on.
pub(super) fn is_contiguous(learned: u64, entries: &[InstanceEntry]) -> bool {
    let mut at = learned;
    entries.iter().all(|entry| {
        let next = entry.first == at;
        at = entry.end();
        next
    })
}

/// Whether two logs, each in the order of its instances, have different values for one instance.
fn conflict(a: &[InstanceEntry], b: &[InstanceEntry]) -> bool {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(one), Some(other)) = (a.peek(), b.peek()) {
        let meet = one.first < other.end() && other.first < one.end();
        let both_skip =
            matches!((&one.value, &other.value), (InstanceValue::Skip(_), InstanceValue::Skip(_)));
        if meet && !both_skip && one.value != other.value {
            return true;
        }
        let ahead = if one.end() < other.end() { &mut a } else { &mut b };
        ahead.next();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::persistence::AcceptorStorage;
    use super::super::process::MultiRing;
    use super::super::shared_bytes::SharedBytes;
    use super::super::{MultiRingConfig, SYNCED};
    use super::*;
    use alloc::sync::Arc;
    use amcast_core::{Entry, Input, Outbox, Protocol, RawConfig};

    fn entry(first: u64, value: InstanceValue) -> InstanceEntry {
        InstanceEntry { first, ballot: RingBallot::new(1, Pid(0)), value }
    }

    #[test]
    fn an_own_promise_with_a_gap_does_not_count() {
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let config = raw.check(SYNCED.about().params).expect("a sound configuration");
        let shape = MultiRingConfig::of(AcceptorStorage::Synced, &config).expect("a sound shape");
        let shape = Arc::new(shape);
        for (firsts, counts) in [([0, 1], true), ([0, 2], false), ([1, 2], false)] {
            let mut candidate = MultiRing::new(Pid(0), &shape);
            let start = Input::Start { incarnation: 0 };
            candidate.step(Time(1), (), start, &mut Outbox::default());
            let counted = candidate.with_ring(0, |ring, cx| {
                for first in firsts {
                    ring.log.put(entry(first, InstanceValue::Skip(1)), 0);
                }
                ring.prepare(cx);
                let ballot = ring.acceptor.promised;
                ring.on_own_promise(ballot, cx);
                ring.coordinator.as_ref().is_some_and(|role| role.phase1.promises[0].is_some())
            });
            assert_eq!(counted, Some(counts), "{firsts:?}");
        }
    }

    #[test]
    fn accepted_values_are_proposed_again_from_the_first_that_is_not_learned() {
        let batch = InstanceValue::Batch(SharedBytes::from(&[7][..]));
        let entries = alloc::vec![
            entry(3, InstanceValue::Skip(4)),
            entry(7, batch.clone()),
            entry(8, InstanceValue::Skip(2)),
        ];
        assert!(
            is_contiguous(3, &entries)
                && !is_contiguous(2, &entries)
                && !is_contiguous(3, &entries[1..])
        );
        let adopted = RingBallot::new(1, Pid(0));
        let promised = PromisedState { learned: 3, adopted, entries, storage_epochs: Vec::new() };
        assert_eq!(promised.end(), 10);
        assert_eq!(
            promised.values_from(5),
            [InstanceValue::Skip(2), batch.clone(), InstanceValue::Skip(2)]
        );
        assert_eq!(promised.values_from(9), [InstanceValue::Skip(1)]);
        assert!(promised.values_from(10).is_empty());
    }
}
