//! A ring at one of its processes: what it promised, accepted and knows to be decided, and what it
//! passes on to the next.

use super::catch_up::CatchUp;
use super::connectivity::ConnectivityMatrix;
use super::coordinator::Coordinator;
use super::direct::DirectChannel;
use super::election::PreVote;
use super::forward::ForwardedProposals;
use super::instance_log::{InstanceLog, NO_RECORD};
use super::message::{AcceptorVote, PeerProgress, Phase2, ProposalTable, RingMessage, RingPacket};
use super::persistence::{DurableAction, LogRecord, PendingWrites};
use super::successor::SuccessorLink;
use super::topology::{RingId, RingTopology};
use super::value::{INSTANCE_MAX, InstanceEntry, InstanceValue, RingBallot};
use super::{MultiRingConfig, Mutant};
use crate::layers::heartbeat::Heartbeat;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::{Outbox, Pid, ProtocolEvent, Time};
use core::mem;

/// What a ring works with in a step.
pub(super) struct RingContext<'a> {
    pub(super) now: Time,
    pub(super) me: Pid,
    /// Whether this process may vote: it has not lost its memory.
    pub(super) votes: bool,
    pub(super) config: &'a MultiRingConfig,
    pub(super) heartbeat: &'a Heartbeat,
    pub(super) connectivity: &'a ConnectivityMatrix,
    /// By process: which of its memories counts.
    pub(super) storage_epochs: &'a mut Vec<u32>,
    pub(super) writes: &'a mut PendingWrites,
    pub(super) outgoing: &'a mut Vec<(Pid, RingMessage)>,
    /// What the ring reports and notes.
    pub(super) out: &'a mut Outbox<Messages<RingPacket>>,
    /// How far rings must come, for what this process orders to be delivered.
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
        self.heartbeat.suspects(self.now, pid.index())
    }

    /// Whether this process and `pid` hear each other.
    pub(super) fn reaches(&self, pid: Pid) -> bool {
        !self.suspects(pid) && !self.connectivity.cannot_hear(pid, self.me)
    }
}

/// A ring at one of its members.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub(super) id: RingId,
    pub(super) topology: RingTopology,
    /// The place of this process among the acceptors, if it is one.
    pub(super) acceptor_index: Option<usize>,
    /// The highest ballot that this process promised or has seen in force.
    pub(super) promised: RingBallot,
    /// The ballot whose run is followed.
    pub(super) ballot: RingBallot,
    /// The first instance of the run: all before it were decided when the run began.
    pub(super) start: u64,
    /// What the coordinator proposed again ends here, and new values begin.
    pub(super) reproposed_end: u64,
    /// The run is held up to here.
    pub(super) end: u64,
    /// The ballot whose run the book holds, from what is known on. It counts as accepted as a whole.
    pub(super) adopted: RingBallot,
    /// The beginning of the run that is followed, until all that was proposed again is there: until
    /// then nothing of it counts as accepted. With the records.
    staged: VecDeque<(InstanceEntry, u64)>,
    /// By acceptor: how far it has accepted the run.
    pub(super) votes: Vec<AcceptorVote>,
    /// The number of the coordinator's order who is not in the ring, and who that is.
    pub(super) membership_number: u32,
    pub(super) excluded: Vec<Pid>,
    /// All instances below are decided; some may not be held.
    pub(super) decided: u64,
    /// All instances below are decided and held, or were passed.
    pub(super) learned: u64,
    /// Behind the last of those that holds messages, or further.
    pub(super) messages_end: u64,
    /// This acceptor has not voted behind this instance, for all it knows.
    pub(super) voted_end: u64,
    pub(super) log: InstanceLog,
    /// By process: what it proposed last, as of instance `table_at`.
    pub(super) table: ProposalTable,
    pub(super) table_at: u64,
    /// The table as of this instance is kept for good, and as of that one it is being written.
    table_durable_at: u64,
    table_written_at: u64,
    /// What the coordinator says may be trimmed.
    pub(super) trim_end: u64,
    /// By member: where it stands.
    pub(super) peers: Vec<PeerProgress>,
    /// How far the application of this process has this ring's messages, and how far they may be
    /// trimmed for its sake.
    pub(super) own_progress: PeerProgress,
    /// Decided entries that the application has not applied: where each ends, and its bytes.
    unapplied: VecDeque<(u64, usize)>,
    unapplied_bytes: usize,
    pub(super) coordinator_role: Option<Coordinator>,
    pub(super) catch_up: CatchUp,
    pub(super) successor: SuccessorLink,
    pub(super) direct: DirectChannel,
    /// This process asked the coordinator itself for what it lacks of the run.
    pub(super) asked_direct: bool,
    /// The votes that the coordinator was told of, by whomever.
    pub(super) reported_votes: Vec<AcceptorVote>,
    /// The ballot whose run is waited for, and since when.
    pub(super) awaited_ballot: RingBallot,
    pub(super) awaited_at: Time,
    /// Since when that ballot is known.
    pub(super) promised_at: Time,
    /// By process: what was passed on for it.
    pub(super) forwarded: BTreeMap<Pid, ForwardedProposals>,
    /// Whether this process should lead, in the eyes of others.
    pub(super) pre_vote: PreVote,
    /// The coordinator of the run began a new life.
    pub(super) coordinator_restarted: bool,
    /// How often this process tried to lead since a run was followed.
    pub(super) failed_attempts: u32,
    /// When a lack was said last.
    gap_reported_at: Time,
    /// Others were told of the skips that are decided up to here, where they are.
    pub(super) skips_sent_upto: u64,
}

impl Ring {
    pub(super) fn new(id: RingId, topology: RingTopology, me: Pid, processes: usize) -> Self {
        let acceptor_index = topology.acceptor(me);
        let votes = alloc::vec![AcceptorVote::default(); topology.acceptors.len()];
        let reported_votes = votes.clone();
        let peers = alloc::vec![PeerProgress::default(); topology.members.len()];
        let table =
            if acceptor_index.is_some() { alloc::vec![(0, 0); processes] } else { Vec::new() };
        Self {
            id,
            topology,
            acceptor_index,
            promised: RingBallot::NONE,
            ballot: RingBallot::NONE,
            start: 0,
            reproposed_end: 0,
            end: 0,
            adopted: RingBallot::NONE,
            staged: VecDeque::new(),
            votes,
            membership_number: 0,
            excluded: Vec::new(),
            decided: 0,
            learned: 0,
            messages_end: 0,
            voted_end: 0,
            log: InstanceLog::default(),
            table,
            table_at: 0,
            table_durable_at: 0,
            table_written_at: 0,
            trim_end: 0,
            peers,
            own_progress: PeerProgress::default(),
            unapplied: VecDeque::new(),
            unapplied_bytes: 0,
            coordinator_role: None,
            catch_up: CatchUp::default(),
            successor: SuccessorLink::default(),
            direct: DirectChannel::default(),
            asked_direct: false,
            reported_votes,
            awaited_ballot: RingBallot::NONE,
            awaited_at: Time::ZERO,
            promised_at: Time::ZERO,
            forwarded: BTreeMap::new(),
            pre_vote: PreVote::default(),
            coordinator_restarted: false,
            failed_attempts: 0,
            gap_reported_at: Time::ZERO,
            skips_sent_upto: 0,
        }
    }

    /// The coordinator whose run is followed.
    pub(super) const fn coordinator(&self) -> Option<Pid> {
        self.ballot.coordinator()
    }

    /// Whether this process leads the run.
    pub(super) fn coordinates(&self) -> bool {
        self.coordinator_role.as_ref().is_some_and(|role| role.is_active(self.ballot))
    }

    /// The life and number of the last proposal of `p` that is known to be decided; none if this process
    /// keeps no table.
    pub(super) fn decided_of(&self, p: Pid) -> Option<(u32, u64)> {
        self.table.get(p.index()).copied()
    }

    /// The members other than `me`.
    pub(super) fn others(&self, me: Pid) -> impl Iterator<Item = Pid> + '_ {
        self.topology.members.iter().copied().filter(move |&p| p != me)
    }

    /// Whether the application lags so far behind that this member takes in no more.
    pub(super) fn is_full(&self, cx: &RingContext<'_>) -> bool {
        self.unapplied_bytes > cx.config.held_bytes
    }

    /// Begins to follow the run of a higher ballot, which begins with what was proposed before.
    pub(super) fn follow(
        &mut self,
        ballot: RingBallot,
        (start, reproposed_end): (u64, u64),
        cx: &mut RingContext<'_>,
    ) {
        debug_assert!(ballot > self.ballot);
        if let Some(role) = &self.coordinator_role
            && role.ballot < ballot
        {
            self.step_down(ballot, cx);
        }
        self.promised = self.promised.max(ballot);
        (self.ballot, self.start, self.reproposed_end) = (ballot, start, reproposed_end);
        (self.coordinator_restarted, self.failed_attempts, self.asked_direct) = (false, 0, false);
        self.direct = DirectChannel::default();
        (self.membership_number, self.excluded) = (0, Vec::new());
        self.reported_votes.fill(AcceptorVote::default());
        for vote in &mut self.votes {
            vote.upto = start;
        }
        self.decided = self.decided.max(start);
        self.staged.clear();
        // What is decided is what the coordinator proposes again. What was accepted of this ballot in
        // an earlier life is still there.
        self.end = start.max(self.learned);
        if self.adopted == ballot {
            self.end = self.end.max(self.log.end());
            if let Some(mine) = self.acceptor_index.filter(|_| cx.votes) {
                let storage_epoch = cx.storage_epochs[cx.me.index()];
                self.votes[mine] = AcceptorVote { storage_epoch, upto: self.end };
            }
        }
        self.advance(cx);
    }

    /// [MRP 4] Phase 2A/2B and decisions come round.
    pub(super) fn on_phase2(
        &mut self,
        from: Pid,
        pass: Phase2,
        cx: &mut RingContext<'_>,
    ) -> Result<(), &'static str> {
        let coordinator = pass.ballot.coordinator().ok_or("a run of nobody's")?;
        let far = pass.start > pass.reproposed_end
            || pass.reproposed_end.max(pass.end).max(pass.trim_end) > INSTANCE_MAX;
        let other = !pass.ballot.is_of(&self.topology.acceptors) || far;
        if other || pass.votes.len() != self.votes.len() {
            return Err("a run that is not of this ring");
        }
        if pass.ballot < self.promised {
            let message = RingMessage::Reject { ring: self.id, promised: self.promised };
            cx.send(coordinator, message);
            return Ok(());
        }
        if pass.ballot > self.ballot {
            if coordinator == cx.me {
                // Of an earlier life, or given up. The next attempt must be above it.
                self.promised = self.promised.max(pass.ballot);
                return Ok(());
            }
            self.follow(pass.ballot, (pass.start, pass.reproposed_end), cx);
        } else if (pass.start, pass.reproposed_end) != (self.start, self.reproposed_end) {
            return Err("a run with two beginnings");
        }
        if pass.membership_number > self.membership_number {
            if self.excluded.contains(&cx.me) && !pass.excluded.contains(&cx.me) {
                cx.out.mark("multiring-taken-in");
            }
            (self.membership_number, self.excluded) = (pass.membership_number, pass.excluded);
        }
        self.trim_end = self.trim_end.max(pass.trim_end);
        for entry in pass.entries {
            if entry.first > self.end || self.is_full(cx) {
                break;
            }
            if entry.end() > self.end && coordinator != cx.me {
                if !entry.makes_sense(&self.topology.acceptors, cx.config.cluster.processes()) {
                    return Err("a value that makes no sense");
                }
                let entry = cut(entry, self.end);
                self.accept(InstanceEntry { ballot: pass.ballot, ..entry }, cx);
            }
        }
        // Who is full lacks nothing: it takes in no more.
        if pass.end > self.end && coordinator != cx.me && !self.is_full(cx) {
            self.request_gap(from, cx);
        }
        self.count(&pass.votes, cx);
        self.coordinator_has_votes(&pass.votes);
        self.advance(cx);
        Ok(())
    }

    fn request_gap(&mut self, from: Pid, cx: &mut RingContext<'_>) {
        if cx.now.since(self.gap_reported_at) >= cx.config.retry
            || self.gap_reported_at == Time::ZERO
        {
            self.gap_reported_at = cx.now;
            self.asked_direct |= self.coordinator() == Some(from);
            let message =
                RingMessage::Phase2Gap { ring: self.id, ballot: self.ballot, from: self.end };
            cx.send(from, message);
        }
    }

    /// Takes the next entry of the run; an acceptor votes for it.
    pub(super) fn accept(&mut self, entry: InstanceEntry, cx: &mut RingContext<'_>) {
        assert_eq!((entry.first, entry.ballot), (self.end, self.ballot), "a run has no gaps");
        self.end = entry.end();
        entry.value.messages().for_each(|packed| cx.out.event(ProtocolEvent::Part(packed.msg)));
        // The next gap is told of at once.
        self.gap_reported_at = Time::ZERO;
        let adopted = self.adopted == self.ballot;
        // Also who may not vote writes: what its log says must be what its book says.
        let record = if self.acceptor_index.is_some() {
            let vote = DurableAction::Vote { ring: self.id, ballot: self.ballot, upto: self.end };
            let vote = (adopted && cx.votes).then_some(vote);
            let (ring, learned, entry) = (self.id, self.learned, entry.clone());
            if cx.config.mutants.is(Mutant::VotesBeforeItIsWritten) {
                cx.writes.due.extend(vote.clone());
            }
            // [MRP 1:4] [MRP 3:1]
            cx.writes.write(LogRecord::Accept { ring, learned, adopted, entry }, vote)
        } else {
            NO_RECORD
        };
        if adopted {
            self.log.put(entry, record);
        } else {
            self.staged.push_back((entry, record));
            self.adopt_ballot(cx);
        }
    }

    /// Once all that the coordinator proposed again is there, and everything before: the run takes the
    /// place of what was accepted of earlier ones. So an acceptor's book is always that of one run as
    /// its coordinator wrote it, and each run goes on from one that held all that may be decided;
    /// nothing can be in it twice.
    fn adopt_ballot(&mut self, cx: &mut RingContext<'_>) {
        let whole = self.end >= self.reproposed_end && self.learned >= self.start;
        // To count is to vote: not in a ballot below one that was promised meanwhile, whose coordinator
        // was not told of it.
        let counts = cx.config.mutants.is(Mutant::CountsBelowItsPromise);
        let late = self.ballot < self.promised && !counts;
        if self.adopted == self.ballot || !whole || late {
            return;
        }
        self.adopted = self.ballot;
        if self.acceptor_index.is_some() {
            let (ring, ballot, from) = (self.id, self.ballot, self.learned);
            let vote = DurableAction::Vote { ring, ballot, upto: self.end };
            cx.writes.write(LogRecord::Adopt { ring, ballot, from }, cx.votes.then_some(vote));
        }
        let leaves = cx.config.mutants.is(Mutant::KeepsLeftovers);
        self.unstage(self.learned, leaves);
    }

    /// What was staged replaces what is held from instance `from` on.
    fn unstage(&mut self, from: u64, leaves: bool) {
        if !leaves {
            self.log.cut_off(from);
        }
        for (entry, record) in mem::take(&mut self.staged) {
            if entry.end() > from {
                let first = from.max(entry.first);
                self.log.put(cut(entry, first), record);
            }
        }
    }

    /// This process votes for the run up to there: what it accepted is where it must be.
    pub(super) fn vote(&mut self, ballot: RingBallot, upto: u64, cx: &mut RingContext<'_>) {
        if let Some(mine) = self.acceptor_index
            && self.ballot == ballot
            && cx.votes
        {
            let vote = &mut self.votes[mine];
            vote.upto = vote.upto.max(upto);
            self.voted_end = self.voted_end.max(upto);
            vote.storage_epoch = cx.storage_epochs[cx.me.index()];
            self.advance(cx);
        }
    }

    /// Takes in votes; those from a memory that was lost do not count.
    fn count(&mut self, votes: &[AcceptorVote], cx: &mut RingContext<'_>) {
        for (at, vote) in votes.iter().enumerate() {
            let acceptor = self.topology.acceptors[at];
            if acceptor == cx.me {
                continue;
            }
            let storage_epoch = &mut cx.storage_epochs[acceptor.index()];
            *storage_epoch = (*storage_epoch).max(vote.storage_epoch);
            let held = &mut self.votes[at];
            if vote.storage_epoch > held.storage_epoch {
                *held = *vote;
            } else if vote.storage_epoch == held.storage_epoch {
                held.upto = held.upto.max(vote.upto);
            }
        }
    }

    /// How far a majority has accepted the run.
    pub(super) fn majority(&self, votes: &[AcceptorVote], cx: &RingContext<'_>) -> u64 {
        let current = |(at, vote): (usize, &AcceptorVote)| {
            let storage_epoch = cx.storage_epochs[self.topology.acceptors[at].index()];
            (vote.storage_epoch == storage_epoch).then_some(vote.upto)
        };
        let mut uptos: Vec<u64> = votes.iter().enumerate().filter_map(current).collect();
        uptos.sort_unstable();
        let quorum = match cx.config.mutants.is(Mutant::FewerVotes) {
            true => self.topology.quorum() - 1,
            false => self.topology.quorum(),
        };
        let short = uptos.len().checked_sub(quorum.max(1));
        short.map_or(self.start, |at| uptos[at].max(self.start))
    }

    /// Notes what is decided, and what of it is held.
    pub(super) fn advance(&mut self, cx: &mut RingContext<'_>) {
        self.decided = self.decided.max(self.majority(&self.votes, cx));
        if self.ballot != RingBallot::NONE {
            self.adopt_ballot(cx);
        }
        if self.learned >= self.start && self.adopted == self.ballot {
            // [MRP 1:7]
            self.learn_up_to(self.decided.min(self.end));
        }
    }

    /// All instances below `upto` are decided and held: notes who proposed what.
    pub(super) fn learn_up_to(&mut self, upto: u64) {
        if upto <= self.learned {
            return;
        }
        let tells = self.acceptor_index.is_some() && self.table_at == self.learned;
        for (first, slot) in self.log.from(self.learned) {
            if first >= upto {
                break;
            }
            let size = slot.value.as_ref().map_or(0, InstanceValue::size);
            self.unapplied.push_back((first + slot.instances, size));
            self.unapplied_bytes += size;
            if !matches!(slot.value, Some(InstanceValue::Skip(_))) {
                self.messages_end = first + slot.instances;
            }
            for packed in slot.value.iter().filter(|_| tells).flat_map(InstanceValue::messages) {
                self.table[packed.msg.sender.index()] = (packed.incarnation, packed.number);
                if let Some(role) = &mut self.coordinator_role {
                    role.acknowledge(packed.msg.sender, packed.incarnation, packed.number);
                }
            }
        }
        if tells {
            self.table_at = upto;
        }
        self.learned = upto;
    }

    /// The application has come so far. An acceptor lets nothing be trimmed before it has kept who
    /// proposed it: a majority of them must have that, or nobody could lead any more.
    pub(super) fn set_progress(&mut self, applied: u64, trimmable: u64, cx: &mut RingContext<'_>) {
        if self.acceptor_index.is_some()
            && trimmable > self.table_written_at
            && self.table_at >= trimmable
        {
            self.table_written_at = self.table_at;
            let noted = DurableAction::TableDurable { ring: self.id, at: self.table_written_at };
            cx.writes.write(self.base(), Some(noted));
        }
        let trimmable = if self.acceptor_index.is_some() {
            trimmable.min(self.table_durable_at)
        } else {
            trimmable
        };
        self.own_progress = PeerProgress { learned: self.learned, applied, trimmable };
        while let Some(&(_, size)) = self.unapplied.front().filter(|(end, _)| *end <= applied) {
            self.unapplied_bytes -= size;
            self.unapplied.pop_front();
        }
    }

    /// The table as of instance `at` is kept for good.
    pub(super) fn table_is_durable(&mut self, at: u64) {
        self.table_durable_at = self.table_durable_at.max(at);
    }

    /// `pid` began a new life: what it led is over.
    pub(super) fn restarted(&mut self, pid: Pid) {
        if let Some(at) = self.topology.member(pid) {
            // It says itself what it still has.
            self.peers[at].learned = 0;
        }
        if self.coordinator() == Some(pid) {
            self.coordinator_restarted = true;
            self.awaited_ballot = RingBallot::NONE;
        }
    }

    /// The connection to `pid` is new: what was on the way may be lost.
    pub(super) fn reconnected(&mut self, pid: Pid) {
        self.successor.reconnected(pid);
        if self.coordinator() == Some(pid) {
            self.reported_votes.fill(AcceptorVote::default());
        }
        if let Some(role) = &mut self.coordinator_role {
            role.forget(self.topology.acceptor(pid));
        }
    }

    /// The entry of the run that holds this instance, from there on.
    pub(super) fn ballot_entry(&self, at: u64) -> Option<InstanceEntry> {
        if self.adopted == self.ballot || at < self.learned {
            return self.log.entry(at).map(|entry| match self.adopted == self.ballot {
                true => entry,
                false => shorten(entry, self.learned),
            });
        }
        let (entry, _) = self.staged.iter().find(|(e, _)| e.first <= at && at < e.end())?;
        Some(cut(entry.clone(), at))
    }

    /// Forgets what everybody has who must.
    pub(super) fn forget(&mut self, floor: u64) {
        let floor = floor.min(self.learned);
        self.log.trim(floor);
    }

    /// The entries that this process has accepted and does not know to be decided.
    pub(super) fn undecided_entries(&self) -> Vec<InstanceEntry> {
        let mut entries = Vec::new();
        for (first, _) in self.log.from(self.learned) {
            entries.extend(self.log.entry(first.max(self.learned)));
        }
        entries
    }

    /// Takes what is written of an earlier life.
    pub(super) fn restore(&mut self, number: u64, record: LogRecord) {
        match record {
            LogRecord::Promise { ballot, .. } => self.promised = self.promised.max(ballot),
            LogRecord::Accept { learned, adopted, entry, .. } => {
                self.promised = self.promised.max(entry.ballot);
                if adopted {
                    self.adopted = entry.ballot;
                    self.log.put(entry, number);
                } else {
                    self.staged.retain(|(e, _)| e.ballot == entry.ballot);
                    self.staged.push_back((entry, number));
                }
                if self.holds(learned) {
                    self.learn_up_to(learned);
                }
            }
            LogRecord::Adopt { ballot, from, .. } => {
                self.staged.retain(|(e, _)| e.ballot == ballot);
                self.adopted = ballot;
                self.promised = self.promised.max(ballot);
                self.unstage(from, false);
            }
            LogRecord::Learn { entry, .. } => {
                let end = entry.end();
                let next = entry.first <= self.learned;
                self.log.put(entry, number);
                if next {
                    self.learn_up_to(end);
                }
            }
            LogRecord::TrimBase { promised, adopted, floor, at, table, .. } => {
                self.adopted = self.adopted.max(adopted);
                self.promised = self.promised.max(promised);
                if floor > self.log.floor() {
                    self.log.trim(floor);
                }
                if at > self.table_at && table.len() == self.table.len() {
                    (self.table, self.table_at) = (table, at);
                }
                if self.learned < floor.max(self.table_at) {
                    // Which of these held messages is not looked at.
                    self.learned = floor.max(self.table_at);
                    self.messages_end = self.learned;
                }
                self.trim_end = self.trim_end.max(floor);
            }
            LogRecord::StorageLost { .. }
            | LogRecord::StorageEpochs { .. }
            | LogRecord::IdleSince { .. } => {}
        }
    }

    /// Takes over what another acceptor accepted of the run of `settled`, as if it had been accepted
    /// here. Everything that is decided among it, and before it, is known here.
    pub(super) fn restore_accepted(
        &mut self,
        adopted: RingBallot,
        entries: Vec<InstanceEntry>,
        cx: &mut RingContext<'_>,
    ) {
        self.adopted = adopted;
        self.staged.clear();
        let (ring, learned) = (self.id, self.learned);
        cx.writes.write(LogRecord::Adopt { ring, ballot: adopted, from: learned }, None);
        self.log.cut_off(learned);
        for entry in entries.into_iter().filter(|entry| entry.end() > learned) {
            let first = learned.max(entry.first);
            let entry = cut(entry, first);
            let kept = entry.clone();
            let record = LogRecord::Accept { ring, learned, adopted: true, entry: kept };
            let number = cx.writes.write(record, None);
            self.log.put(entry, number);
        }
        // What came of the run meanwhile comes again.
        self.end = self.start.max(self.learned);
        if self.adopted == self.ballot {
            self.end = self.end.max(self.log.end());
        }
        self.gap_reported_at = Time::ZERO;
    }

    /// This process has its memory back, and votes. What it took in meanwhile was written with nobody
    /// waiting for it: it votes for that once it is where it must be.
    pub(super) fn resume_voting(&mut self, cx: &mut RingContext<'_>) {
        let Some(mine) = self.acceptor_index else { return };
        self.votes[mine] =
            AcceptorVote { storage_epoch: cx.storage_epochs[cx.me.index()], upto: self.start };
        self.assume_voted_all();
        // Not in a ballot below one that it learned now that it had promised.
        let may = self.ballot != RingBallot::NONE && self.ballot >= self.promised;
        if may && self.adopted == self.ballot {
            let (ring, ballot, upto) = (self.id, self.ballot, self.end);
            let vote = DurableAction::Vote { ring, ballot, upto };
            if cx.config.mutants.is(Mutant::VotesForAllItTookIn) {
                cx.writes.due.push_back(vote.clone());
            }
            cx.writes.write(LogRecord::Promise { ring, ballot: self.promised }, Some(vote));
        }
        self.advance(cx);
    }

    /// What was staged is of no use below what is known.
    pub(super) fn skip_to_learned(&mut self) {
        if self.ballot != RingBallot::NONE && self.learned > self.end {
            self.end = self.learned;
            self.staged.clear();
        }
    }

    /// Whether everything from what is known up to there is held.
    fn holds(&self, upto: u64) -> bool {
        let mut at = self.learned;
        for (first, slot) in self.log.from(at) {
            if first > at || at >= upto {
                break;
            }
            at = first + slot.instances;
        }
        at >= upto
    }

    /// The record that keeps what a trim of the log must not lose.
    pub(super) fn base(&self) -> LogRecord {
        LogRecord::TrimBase {
            ring: self.id,
            promised: self.promised,
            adopted: self.adopted,
            floor: self.log.floor(),
            at: self.table_at,
            table: self.table.clone(),
        }
    }
}

/// The entry up to instance `upto`, which is behind its first.
pub(super) fn shorten(entry: InstanceEntry, upto: u64) -> InstanceEntry {
    match entry.value {
        InstanceValue::Skip(_) if upto < entry.end() => {
            InstanceEntry { value: InstanceValue::Skip(upto - entry.first), ..entry }
        }
        _ => entry,
    }
}

/// The entry from instance `from` on, which lies in it.
pub(super) fn cut(entry: InstanceEntry, from: u64) -> InstanceEntry {
    match entry.value {
        InstanceValue::Skip(count) if from > entry.first => InstanceEntry {
            first: from,
            value: InstanceValue::Skip(count - (from - entry.first)),
            ..entry
        },
        _ => entry,
    }
}
