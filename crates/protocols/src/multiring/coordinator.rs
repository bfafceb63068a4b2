//! The coordinator of a ring: phase 1, packing of proposals, and skips. Who that is: `election.rs`; who is in
//! the ring: `membership.rs`.

use super::Mutant;
use super::message::{PeerProgress, ProposalTable, RingMessage};
use super::persistence::{DurableAction, LogRecord};
use super::proposal_queue::{ProposalQueue, QueuedProposals};
use super::ring::{Ring, RingContext, cut};
use super::shared_bytes::SharedBytes;
use super::value::{INSTANCE_MAX, InstanceEntry, InstanceValue, RingBallot, SKIP_MAX, proposals};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use amcast_core::step::Note;
use amcast_core::{Gid, Pid, ProtocolEvent, Span, Time};
use core::mem;

/// The attempt of this process to lead a ring, and its leading.
#[derive(Clone, Debug)]
pub(super) struct Coordinator {
    pub(super) ballot: RingBallot,
    /// When the promises were asked for last.
    asked_at: Time,
    /// By acceptor: its promise.
    promises: Vec<Option<PromisedState>>,
    /// By acceptor: what came of a promise before its end.
    partial: Vec<Vec<InstanceEntry>>,
    /// What everybody proposed last, as of the end of the run and with what is queued; none until
    /// everything before the run is known.
    table: Option<ProposalTable>,
    /// Proposals that have no instance yet.
    queue: ProposalQueue,
    /// Entries that are not decided: where each ends, and its bytes.
    in_flight: VecDeque<(u64, usize)>,
    in_flight_bytes: usize,
    /// Entries that a majority of some group has not applied.
    unapplied: VecDeque<(u64, usize)>,
    unapplied_bytes: usize,
    /// Others wait until the ring has come here.
    wanted: u64,
    /// To whom it owes a word that proposals are decided: the life, and up to which number.
    acknowledged: BTreeMap<Pid, (u32, u64)>,
    /// Who is too far behind to be in the ring, and when that was looked at last.
    pub(super) lagging: Vec<Pid>,
    pub(super) checked_at: Time,
    /// When the rate is levelled next, and where the run ended then.
    level_at: Time,
    level_end: u64,
}

/// What an acceptor promised with.
#[derive(Clone, Debug)]
struct PromisedState {
    learned: u64,
    /// What it accepted beyond that, of the run of this ballot.
    adopted: RingBallot,
    entries: Vec<InstanceEntry>,
    /// What it knows of the memories of the acceptors.
    storage_epochs: Vec<u32>,
}

impl Coordinator {
    fn new(ballot: RingBallot, acceptors: usize, now: Time) -> Self {
        Self {
            ballot,
            asked_at: now,
            promises: alloc::vec![None; acceptors],
            partial: alloc::vec![Vec::new(); acceptors],
            table: None,
            queue: ProposalQueue::default(),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            unapplied: VecDeque::new(),
            unapplied_bytes: 0,
            wanted: 0,
            acknowledged: BTreeMap::new(),
            lagging: Vec::new(),
            checked_at: now,
            level_at: now,
            level_end: 0,
        }
    }

    /// Whether it leads the run of `ballot`.
    pub(super) fn is_active(&self, ballot: RingBallot) -> bool {
        self.ballot == ballot
    }

    /// What came from this acceptor is not whole any more.
    pub(super) fn forget(&mut self, acceptor: Option<usize>) {
        if let Some(at) = acceptor {
            self.partial[at].clear();
        }
    }

    /// The proposals of `sender` up to this one are decided.
    pub(super) fn acknowledge(&mut self, sender: Pid, incarnation: u32, number: u64) {
        let row = self.acknowledged.entry(sender).or_default();
        *row = (*row).max((incarnation, number));
    }
}

/// Whether `number` of `life` is the one that comes after what `row` says.
fn is_next(row: (u32, u64), incarnation: u32, number: u64) -> bool {
    if incarnation == row.0 { number == row.1 + 1 } else { incarnation > row.0 && number == 1 }
}

impl Ring {
    /// This process leads no more; a ballot above its own is why.
    pub(super) fn step_down(&mut self, above: RingBallot, cx: &mut RingContext<'_>) {
        if let Some(role) = self.coordinator_role.take()
            && role.is_active(self.ballot)
        {
            cx.out.note(Note::Demoted(above.number()));
        }
    }

    /// The ballot of this process above all that it knows of.
    pub(super) fn next_ballot(&self, me: Pid) -> RingBallot {
        RingBallot::new(self.promised.round + 1, me)
    }

    /// [MRP 4] Phase 1, for all instances from here on.
    pub(super) fn prepare(&mut self, cx: &mut RingContext<'_>) {
        // [MRP 1:1]
        let ballot = self.next_ballot(cx.me);
        self.failed_attempts += 1;
        self.promised = ballot;
        self.await_ballot(cx.now);
        self.coordinator_role =
            Some(Coordinator::new(ballot, self.topology.acceptors.len(), cx.now));
        let role = DurableAction::OwnPromise { ring: self.id, ballot };
        if cx.config.mutants.is(Mutant::LeadsBeforeItIsWritten) {
            cx.writes.due.push_back(role.clone());
        }
        cx.writes.write(LogRecord::Promise { ring: self.id, ballot }, Some(role));
        self.send_prepare(cx);
    }

    fn send_prepare(&mut self, cx: &mut RingContext<'_>) {
        let (ring, learned) = (self.id, self.learned);
        let Some(role) = &mut self.coordinator_role else { return };
        role.asked_at = cx.now;
        for (at, &acceptor) in self.topology.acceptors.iter().enumerate() {
            // Who knew more than could be learned since may have died; who lost its memory since has
            // promised nothing.
            let storage_epoch = cx.storage_epochs[acceptor.index()];
            let stands =
                |p: &PromisedState| p.learned <= learned && p.storage_epochs[at] == storage_epoch;
            let promised = role.promises[at].as_ref().is_some_and(stands);
            if acceptor != cx.me && !promised {
                role.promises[at] = None;
                role.partial[at].clear();
                cx.send(acceptor, RingMessage::Prepare { ring, ballot: role.ballot });
            }
        }
    }

    /// Phase 1B: a promise, and what was accepted before.
    pub(super) fn on_prepare(&mut self, from: Pid, ballot: RingBallot, cx: &mut RingContext<'_>) {
        if self.acceptor_index.is_none() || !cx.votes || !ballot.is_of(&self.topology.acceptors) {
            return;
        }
        let ring = self.id;
        if ballot < self.promised {
            return cx.send(from, RingMessage::Reject { ring, promised: self.promised });
        }
        if ballot == self.ballot {
            // Its run has begun: this is an old question.
            return;
        }
        if self.coordinator_role.as_ref().is_some_and(|role| role.ballot < ballot) {
            self.step_down(ballot, cx);
        }
        self.promised = ballot;
        let mut messages: Vec<RingMessage> = self
            .undecided_entries()
            .into_iter()
            .map(|entry| RingMessage::PromisedEntry { ring, ballot, entry })
            .collect();
        if cx.config.mutants.is(Mutant::ForgetsWhatItAccepted) {
            messages.clear();
        }
        let count = messages.len() as u32;
        let of = |p: &Pid| cx.storage_epochs[p.index()];
        let storage_epochs = self.topology.acceptors.iter().map(of).collect();
        let (learned, adopted) = (self.learned, self.adopted);
        messages.push(RingMessage::Promise {
            ring,
            ballot,
            learned,
            adopted,
            count,
            storage_epochs,
        });
        let act = DurableAction::Send { to: from, messages };
        if cx.config.mutants.is(Mutant::PromisesBeforeItIsWritten) {
            cx.writes.due.push_back(act.clone());
        }
        cx.writes.write(LogRecord::Promise { ring, ballot }, Some(act));
    }

    pub(super) fn on_promised_entry(
        &mut self,
        from: Pid,
        ballot: RingBallot,
        entry: InstanceEntry,
    ) {
        if let Some(at) = self.topology.acceptor(from)
            && let Some(role) = &mut self.coordinator_role
            && role.ballot == ballot
        {
            role.partial[at].push(entry);
        }
    }

    pub(super) fn on_promise(
        &mut self,
        from: Pid,
        (ballot, learned, adopted, count): (RingBallot, u64, RingBallot, u32),
        storage_epochs: Vec<u32>,
        cx: &mut RingContext<'_>,
    ) -> Result<(), &'static str> {
        let at = self.topology.acceptor(from).ok_or("a promise of one that is no acceptor")?;
        if storage_epochs.len() != self.topology.acceptors.len() {
            return Err("a promise of another ring");
        }
        let Some(role) = self.coordinator_role.as_mut().filter(|l| l.ballot == ballot) else {
            return Ok(());
        };
        let entries = mem::take(&mut role.partial[at]);
        let Some(surplus) = entries.len().checked_sub(count as usize) else {
            // Some of it was lost; it is asked for again.
            return Ok(());
        };
        let processes = cx.config.cluster.processes();
        let sound = |entry: &InstanceEntry| entry.makes_sense(&self.topology.acceptors, processes);
        let entries: Vec<InstanceEntry> = entries.into_iter().skip(surplus).collect();
        let far = learned > INSTANCE_MAX || !adopted.is_of(&self.topology.acceptors);
        if far || !entries.iter().all(sound) || !is_contiguous(learned, &entries) {
            return Err("a promise that makes no sense");
        }
        let promised = PromisedState { learned, adopted, entries, storage_epochs };
        role.promises[at] = Some(promised);
        if let Some(member) = self.topology.member(from) {
            let held = &mut self.peers[member].learned;
            *held = (*held).max(learned);
        }
        self.begin_phase2(cx);
        Ok(())
    }

    /// The own promise is where it must be.
    pub(super) fn on_own_promise(&mut self, ballot: RingBallot, cx: &mut RingContext<'_>) {
        let Some(at) = self.acceptor_index else { return };
        let entries = self.undecided_entries();
        let of = |p: &Pid| cx.storage_epochs[p.index()];
        let storage_epochs = self.topology.acceptors.iter().map(of).collect();
        let Some(role) = self.coordinator_role.as_mut().filter(|l| l.ballot == ballot) else {
            return;
        };
        let (learned, adopted) = (self.learned, self.adopted);
        role.promises[at] = Some(PromisedState { learned, adopted, entries, storage_epochs });
        self.begin_phase2(cx);
    }

    /// With promises of a majority: proposes again what may be decided. That is in the book of whoever
    /// accepted most of the run of the highest ballot, because whatever a majority accepted in an
    /// earlier one is in that run.
    ///
    /// What one of them knows to be decided already must be known here first: others get it from here,
    /// and there may be nobody else, because who knows that something is decided may forget it.
    fn begin_phase2(&mut self, cx: &mut RingContext<'_>) {
        let Some(role) = &self.coordinator_role else { return };
        // Not before the own promise is where it must be: or this process might forget that it led
        // this ballot, and lead another run of it.
        let promised = self.acceptor_index.is_some_and(|mine| role.promises[mine].is_some());
        if role.ballot <= self.ballot || !promised {
            return;
        }
        let ballot = role.ballot;
        // A promise from a memory that was lost since is none.
        for promised in role.promises.iter().flatten() {
            for (at, &storage_epoch) in promised.storage_epochs.iter().enumerate() {
                let held = &mut cx.storage_epochs[self.topology.acceptors[at].index()];
                *held = (*held).max(storage_epoch);
            }
        }
        let any = cx.config.mutants.is(Mutant::CountsLostPromises);
        let counts = |(at, promised): (usize, &Option<PromisedState>)| {
            let now = cx.storage_epochs[self.topology.acceptors[at].index()];
            promised.as_ref().is_some_and(|p| any || p.storage_epochs[at] == now)
        };
        let standing: Vec<bool> = role.promises.iter().enumerate().map(counts).collect();
        if standing.iter().filter(|&&counts| counts).count() < self.topology.quorum() {
            return;
        }
        let promises = || {
            let all = role.promises.iter().zip(&standing);
            all.filter(|(_, counts)| **counts).filter_map(|(p, _)| p.as_ref())
        };
        let start = self.learned;
        let behind = promises().any(|p| p.learned > start);
        if behind && !cx.config.mutants.is(Mutant::BeginsBehind) {
            return;
        }
        let longest = cx.config.mutants.is(Mutant::BeginsWithTheLongestLog);
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
        let chosen: Vec<InstanceValue> = match cx.config.mutants.is(Mutant::BeginsWithNothing) {
            true => Vec::new(),
            false => best.map_or(Vec::new(), |best| best.values_from(start)),
        };
        let reproposed_end = chosen.iter().fold(start, value_end);
        self.follow(ballot, (start, reproposed_end), cx);
        cx.out.event(ProtocolEvent::Leads(ballot.number()));
        for value in chosen {
            self.propose(value, cx);
        }
    }

    /// The next entry of the run.
    fn propose(&mut self, value: InstanceValue, cx: &mut RingContext<'_>) {
        if value_end(self.end, &value) <= self.end {
            return;
        }
        // [MRP 1:3]
        let (size, entry) =
            (value.size(), InstanceEntry { first: self.end, ballot: self.ballot, value });
        self.accept(entry, cx);
        if let Some(role) = &mut self.coordinator_role {
            role.in_flight.push_back((self.end, size));
            role.in_flight_bytes += size;
            role.unapplied.push_back((self.end, size));
            role.unapplied_bytes += size;
        }
    }

    /// A proposer wants these ordered.
    pub(super) fn on_propose(&mut self, from: Pid, bytes: &SharedBytes, cx: &mut RingContext<'_>) {
        let hint = RingMessage::CurrentBallot { ring: self.id, ballot: self.ballot };
        let table_known = self.table.get(from.index()).copied();
        let active = self.coordinates();
        let Some(role) = self.coordinator_role.as_mut().filter(|_| active) else {
            // Who led this run and does not any more must not say so in its own name: it would be sent
            // everything again at once, and answer again, until there is a new run.
            let led = self.coordinator() == Some(cx.me);
            if from != cx.me && self.ballot != RingBallot::NONE && !led {
                cx.send(from, hint);
            }
            return;
        };
        let Some(table) = &mut role.table else { return };
        let (row, mut done) = (&mut table[from.index()], None);
        // New ones that lie behind each other go on together.
        let (mut at, mut first, mut end, mut count) = (0, 0, 0, 0);
        for proposal in proposals(bytes) {
            let (incarnation, number) = (proposal.incarnation, proposal.number);
            let begins = at;
            at += proposal.size();
            let twice = cx.config.mutants.is(Mutant::OrdersTwice) && (incarnation, number) <= *row;
            // Nobody has more on the way than its window.
            let full = role.queue.len() + count >= cx.config.cluster.processes() * cx.config.window;
            if full {
                break;
            }
            if is_next(*row, incarnation, number) || twice {
                *row = (*row).max((incarnation, number));
                first = if count == 0 { begins } else { first };
                (end, count) = (at, count + 1);
                continue;
            }
            role.queue.push(QueuedProposals { bytes: bytes.slice(first..end), count });
            count = 0;
            if table_known.is_some_and(|learned| (incarnation, number) <= learned) {
                done = table_known;
            }
        }
        role.queue.push(QueuedProposals { bytes: bytes.slice(first..end), count });
        if let Some((incarnation, number)) = done {
            role.acknowledge(from, incarnation, number);
        }
    }

    /// Others wait until this ring has come to instance `upto`.
    pub(super) fn on_level_request(&mut self, upto: u64) {
        let most = self.end.saturating_add(SKIP_MAX).min(INSTANCE_MAX);
        if let Some(role) = &mut self.coordinator_role {
            role.wanted = role.wanted.max(upto.min(most));
        }
    }

    /// What a coordinator, or one who wants to be, does now and then.
    pub(super) fn coordinate(&mut self, cx: &mut RingContext<'_>) {
        let Some(role) = &self.coordinator_role else { return };
        if !role.is_active(self.ballot) {
            if cx.now.since(role.asked_at) >= cx.config.retry {
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

    /// Whether everything before the run is known, so that it is known what was proposed already.
    fn has_proposal_table(&mut self, cx: &mut RingContext<'_>) -> bool {
        let behind = self.learned < self.start || self.table_at != self.learned;
        if behind || self.adopted != self.ballot {
            return false;
        }
        let Some(role) = &mut self.coordinator_role else { return false };
        if role.table.is_none() {
            let mut table = self.table.clone();
            for (_, slot) in self.log.from(self.learned) {
                for packed in slot.value.iter().flat_map(InstanceValue::messages) {
                    table[packed.msg.sender.index()] = (packed.incarnation, packed.number);
                }
            }
            role.table = Some(table);
            role.level_end = self.end;
            // What was proposed before is to be proposed again, at once.
            for p in cx.config.cluster.pids() {
                cx.outgoing
                    .push((p, RingMessage::CurrentBallot { ring: self.id, ballot: self.ballot }));
            }
        }
        true
    }

    /// Forgets what is decided, and what a majority of each group has applied; says what may be
    /// trimmed.
    fn release_applied(&mut self, cx: &RingContext<'_>) {
        let merged = self.reached_by_majority(cx, |standing| standing.applied);
        // [MRP 3:4]
        let trimmable = self.trimmable_by_majority(cx);
        self.trim_end = self.trim_end.max(trimmable.min(self.learned));
        let (decided, Some(role)) = (self.decided, &mut self.coordinator_role) else { return };
        while let Some(&(_, size)) = role.in_flight.front().filter(|(end, _)| *end <= decided) {
            role.in_flight_bytes -= size;
            role.in_flight.pop_front();
        }
        while let Some(&(_, size)) = role.unapplied.front().filter(|(end, _)| *end <= merged) {
            role.unapplied_bytes -= size;
            role.unapplied.pop_front();
        }
    }

    /// How far a majority of the replicas of each group has come.
    fn reached_by_majority(
        &self,
        cx: &RingContext<'_>,
        what: impl Fn(&PeerProgress) -> u64,
    ) -> u64 {
        let of_group = |g| of_majority(cx, |rank| self.of_replica(cx, (g, rank), &what));
        self.topology.set.iter().map(of_group).min().unwrap_or(0)
    }

    /// [MRP 5.2] How far a majority of nodes has come with checkpoints (`K[x]T`). The replicas of one rank are a
    /// node, which counts as far as the one of them that is furthest behind: `MultiRing::trim` says why.
    ///
    /// In memory it is how far each group has come: by assumption a majority of each is fit at any time.
    fn trimmable_by_majority(&self, cx: &RingContext<'_>) -> u64 {
        let trimmable = |standing: &PeerProgress| standing.trimmable;
        if !cx.writes.is_durable() {
            return self.reached_by_majority(cx, trimmable);
        }
        let of_node = |rank| {
            let of_group = |g| self.of_replica(cx, (g, rank), trimmable);
            self.topology.set.iter().map(of_group).min().unwrap_or(0)
        };
        of_majority(cx, of_node)
    }

    /// Where the replica of a group stands that has this rank.
    fn of_replica(
        &self,
        cx: &RingContext<'_>,
        (g, rank): (Gid, usize),
        what: impl Fn(&PeerProgress) -> u64,
    ) -> u64 {
        let p = cx.config.cluster.replica(g, rank);
        match self.topology.member(p) {
            Some(_) if p == cx.me => what(&self.own_progress),
            Some(at) => what(&self.peers[at]),
            None => 0,
        }
    }

    /// [MRP 4] Gives queued proposals their instances, several to one.
    fn pack_proposals(&mut self, cx: &mut RingContext<'_>) {
        loop {
            let Some(role) = &mut self.coordinator_role else { return };
            let full = role.in_flight_bytes >= cx.config.pipeline_bytes
                || role.unapplied_bytes >= cx.config.lag_bytes
                || role.queue.is_empty();
            if full {
                return;
            }
            // [MRP 1:8]
            let batch = role.queue.batch(cx.config.pack_bytes);
            let instance = self.end;
            self.propose(InstanceValue::Batch(batch), cx);
            self.need_merged_rings(instance, cx);
        }
    }

    /// Tells the coordinators of the rings that are merged with this one how far they must come for
    /// what is in `instance` to be delivered.
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

    /// [MRP 4] Skips instances, so that nobody waits for this ring: as far as others want, and to
    /// the agreed rate where rates are paced.
    fn skip_to_level(&mut self, cx: &mut RingContext<'_>) {
        let (end, Some(role)) = (self.end, &mut self.coordinator_role) else { return };
        let mut upto = role.wanted.saturating_add(rounding(role.wanted, end)).min(INSTANCE_MAX);
        // [MRP 2:3]
        if let Some((delta, rate)) = cx.config.pace
            && cx.now >= role.level_at
        {
            let gone = cx.now.since(role.level_at) + delta;
            upto = upto.max(role.level_end + instances(rate, gone));
            (role.level_at, role.level_end) = (cx.now + delta, end.max(upto));
        }
        if upto > end && role.unapplied_bytes < cx.config.lag_bytes {
            // [MRP 2:4]
            self.propose(InstanceValue::Skip((upto - end).min(SKIP_MAX)), cx);
        }
    }

    /// Tells proposers what of theirs is decided.
    fn report_decided(&mut self, cx: &mut RingContext<'_>) {
        let Some(role) = &mut self.coordinator_role else { return };
        for (pid, (incarnation, upto)) in mem::take(&mut role.acknowledged) {
            cx.send(pid, RingMessage::ProposalsDecided { ring: self.id, incarnation, upto });
        }
    }

    /// When the coordinator has something to do, whatever happens.
    pub(super) fn coordinate_at(&self, retry: Span, paced: bool) -> Time {
        match &self.coordinator_role {
            Some(role) if !role.is_active(self.ballot) => role.asked_at + retry,
            Some(role) if paced && role.table.is_some() => role.level_at,
            _ => Time::NEVER,
        }
    }
}

/// What a majority of ranks has at least, of what each has.
fn of_majority(cx: &RingContext<'_>, has: impl Fn(usize) -> u64) -> u64 {
    let cluster = &cx.config.cluster;
    let mut all: Vec<u64> = (0..cluster.replicas()).map(has).collect();
    all.sort_unstable();
    let quorum = match cx.config.mutants.is(Mutant::TrimsForOne) {
        true => 1,
        false => cluster.quorum(),
    };
    all[all.len() - quorum]
}

/// From so many wanted instances on, some more are skipped.
const MANY: u64 = 8;

/// How many instances are skipped beyond those that are wanted: who wants many is one of several who soon
/// want about as many, and need not have a skip each.
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

fn value_end(first: u64, value: &InstanceValue) -> u64 {
    first.saturating_add(value.instances())
}

/// Whether the entries follow each other, from what is known on.
fn is_contiguous(learned: u64, entries: &[InstanceEntry]) -> bool {
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

impl PromisedState {
    /// Where what it accepted ends.
    fn end(&self) -> u64 {
        self.entries.last().map_or(self.learned, InstanceEntry::end)
    }

    /// The values that it accepted from instance `start` on.
    fn values_from(&self, start: u64) -> Vec<InstanceValue> {
        let rest = self.entries.iter().filter(|entry| entry.end() > start);
        rest.map(|entry| cut(entry.clone(), start.max(entry.first)).value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: u64, value: InstanceValue) -> InstanceEntry {
        InstanceEntry { first, ballot: RingBallot::new(1, Pid(0)), value }
    }

    #[test]
    fn what_was_accepted_is_proposed_again_from_what_is_known_on() {
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

    #[test]
    fn proposals_follow_each_other_and_a_new_life_begins_again() {
        assert!(is_next((0, 0), 0, 1) && is_next((0, 4), 0, 5) && is_next((0, 4), 1, 1));
        assert!(!is_next((0, 4), 0, 4) && !is_next((0, 4), 0, 6) && !is_next((1, 1), 0, 2));
        assert!(!is_next((0, 4), 2, 2));
    }

    #[test]
    fn a_rate_makes_instances() {
        assert_eq!(instances(9000, Span::millis(5)), 45);
        assert_eq!(instances(2000, Span::millis(20)), 40);
    }
}
