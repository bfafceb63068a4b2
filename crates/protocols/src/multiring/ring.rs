//! A ring at one of its processes: what it promised, accepted and knows to be decided, and what it
//! passes on to the next.

use super::beside::Beside;
use super::book::{Book, NO_RECORD};
use super::elect::Canvass;
use super::keep::{Act, Keep, Record};
use super::lead::Lead;
use super::learn::Fetching;
use super::link::Link;
use super::reach::Reach;
use super::relay::Relayed;
use super::rings::{RingId, RingShape};
use super::value::{Ballot, Entry, INSTANCE_MAX, Value};
use super::word::{Packet, Pass, Rows, Standing, Vote, Word};
use super::{Mutant, Shape};
use crate::layers::heartbeat::Heartbeat;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::{Outbox, Pid, ProtocolEvent, Time};
use core::mem;

/// What a ring works with in a step.
pub(super) struct Cx<'a> {
    pub(super) now: Time,
    pub(super) me: Pid,
    /// Whether this process may vote: it has not lost its memory.
    pub(super) votes: bool,
    pub(super) shape: &'a Shape,
    pub(super) heartbeat: &'a Heartbeat,
    pub(super) reach: &'a Reach,
    /// By process: which of its memories counts.
    pub(super) memories: &'a mut Vec<u32>,
    pub(super) keep: &'a mut Keep,
    pub(super) post: &'a mut Vec<(Pid, Word)>,
    /// What the ring reports and notes.
    pub(super) out: &'a mut Outbox<Messages<Packet>>,
    /// How far rings must come, for what this process orders to be delivered.
    pub(super) needs: &'a mut Vec<(RingId, u64)>,
}

impl Cx<'_> {
    pub(super) fn say(&mut self, to: Pid, word: Word) {
        self.post.push((to, word));
    }

    pub(super) fn need(&mut self, ring: RingId, upto: u64) {
        self.needs.push((ring, upto));
    }

    pub(super) fn suspects(&self, pid: Pid) -> bool {
        self.heartbeat.suspects(self.now, pid.index())
    }

    /// Whether this process and `pid` hear each other.
    pub(super) fn reaches(&self, pid: Pid) -> bool {
        !self.suspects(pid) && !self.reach.misses(pid, self.me)
    }
}

/// A ring at one of its members.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub(super) id: RingId,
    pub(super) shape: RingShape,
    /// The place of this process among the acceptors, if it is one.
    pub(super) my_vote: Option<usize>,
    /// The highest ballot that this process promised or has seen in force.
    pub(super) promised: Ballot,
    /// The ballot whose run is followed.
    pub(super) ballot: Ballot,
    /// The first instance of the run: all before it were decided when the run began.
    pub(super) start: u64,
    /// What the coordinator proposed again ends here, and new values begin.
    pub(super) fresh: u64,
    /// The run is held up to here.
    pub(super) end: u64,
    /// The ballot whose run the book holds, from what is known on. It counts as accepted as a whole.
    pub(super) settled: Ballot,
    /// The beginning of the run that is followed, until all that was proposed again is there: until
    /// then nothing of it counts as accepted. With the records.
    staged: VecDeque<(Entry, u64)>,
    /// By acceptor: how far it has accepted the run.
    pub(super) votes: Vec<Vote>,
    /// The number of the coordinator's order who is not in the ring, and who that is.
    pub(super) layout: u32,
    pub(super) out: Vec<Pid>,
    /// All instances below are decided; some may not be held.
    pub(super) decided: u64,
    /// All instances below are decided and held, or were passed.
    pub(super) known: u64,
    /// Behind the last of those that holds messages, or further.
    pub(super) said: u64,
    /// This acceptor has not voted behind this instance, for all it knows.
    pub(super) voted: u64,
    pub(super) book: Book,
    /// By process: what it proposed last, as of instance `table_at`.
    pub(super) table: Rows,
    pub(super) table_at: u64,
    /// The table as of this instance is kept for good, and as of that one it is being written.
    noted: u64,
    noting: u64,
    /// What the coordinator says may be trimmed.
    pub(super) trim: u64,
    /// By member: where it stands.
    pub(super) peers: Vec<Standing>,
    /// How far the application of this process has this ring's messages, and how far they may be
    /// trimmed for its sake.
    pub(super) mine: Standing,
    /// Decided entries that the application has not applied: where each ends, and its bytes.
    held: VecDeque<(u64, usize)>,
    held_bytes: usize,
    pub(super) lead: Option<Lead>,
    pub(super) fetching: Fetching,
    pub(super) link: Link,
    pub(super) beside: Beside,
    /// This process asked the coordinator itself for what it lacks of the run.
    pub(super) asked_beside: bool,
    /// The votes that the coordinator was told of, by whomever.
    pub(super) reported: Vec<Vote>,
    /// The ballot whose run is waited for, and since when.
    pub(super) awaited: Ballot,
    pub(super) awaited_at: Time,
    /// Since when that ballot is known.
    pub(super) promised_at: Time,
    /// By process: what was passed on for it.
    pub(super) relayed: BTreeMap<Pid, Relayed>,
    /// Whether this process should lead, in the eyes of others.
    pub(super) canvass: Canvass,
    /// The coordinator of the run began a new life.
    pub(super) orphaned: bool,
    /// How often this process tried to lead since a run was followed.
    pub(super) vain: u32,
    /// When a lack was said last.
    lacked_at: Time,
    /// Others were told of the skips that are decided up to here, where they are.
    pub(super) spread_upto: u64,
}

impl Ring {
    pub(super) fn new(id: RingId, shape: RingShape, me: Pid, processes: usize) -> Self {
        let my_vote = shape.acceptor(me);
        let votes = alloc::vec![Vote::default(); shape.acceptors.len()];
        let reported = votes.clone();
        let peers = alloc::vec![Standing::default(); shape.members.len()];
        let table = if my_vote.is_some() { alloc::vec![(0, 0); processes] } else { Vec::new() };
        Self {
            id,
            shape,
            my_vote,
            promised: Ballot::NONE,
            ballot: Ballot::NONE,
            start: 0,
            fresh: 0,
            end: 0,
            settled: Ballot::NONE,
            staged: VecDeque::new(),
            votes,
            layout: 0,
            out: Vec::new(),
            decided: 0,
            known: 0,
            said: 0,
            voted: 0,
            book: Book::default(),
            table,
            table_at: 0,
            noted: 0,
            noting: 0,
            trim: 0,
            peers,
            mine: Standing::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            lead: None,
            fetching: Fetching::default(),
            link: Link::default(),
            beside: Beside::default(),
            asked_beside: false,
            reported,
            awaited: Ballot::NONE,
            awaited_at: Time::ZERO,
            promised_at: Time::ZERO,
            relayed: BTreeMap::new(),
            canvass: Canvass::default(),
            orphaned: false,
            vain: 0,
            lacked_at: Time::ZERO,
            spread_upto: 0,
        }
    }

    /// The coordinator whose run is followed.
    pub(super) const fn coordinator(&self) -> Option<Pid> {
        self.ballot.coordinator()
    }

    /// Whether this process leads the run.
    pub(super) fn leads(&self) -> bool {
        self.lead.as_ref().is_some_and(|lead| lead.is_active(self.ballot))
    }

    /// The life and number of the last proposal of `p` that is known to be decided; none if this process
    /// keeps no table.
    pub(super) fn decided_of(&self, p: Pid) -> Option<(u32, u64)> {
        self.table.get(p.index()).copied()
    }

    /// The members other than `me`.
    pub(super) fn others(&self, me: Pid) -> impl Iterator<Item = Pid> + '_ {
        self.shape.members.iter().copied().filter(move |&p| p != me)
    }

    /// Whether the application lags so far behind that this member takes in no more.
    pub(super) fn is_full(&self, cx: &Cx<'_>) -> bool {
        self.held_bytes > cx.shape.held_bytes
    }

    /// Begins to follow the run of a higher ballot, which begins with what was proposed before.
    pub(super) fn follow(&mut self, ballot: Ballot, (start, fresh): (u64, u64), cx: &mut Cx<'_>) {
        debug_assert!(ballot > self.ballot);
        if let Some(lead) = &self.lead
            && lead.ballot < ballot
        {
            self.demoted(ballot, cx);
        }
        self.promised = self.promised.max(ballot);
        (self.ballot, self.start, self.fresh) = (ballot, start, fresh);
        (self.orphaned, self.vain, self.asked_beside) = (false, 0, false);
        self.beside = Beside::default();
        (self.layout, self.out) = (0, Vec::new());
        self.reported.fill(Vote::default());
        for vote in &mut self.votes {
            vote.upto = start;
        }
        self.decided = self.decided.max(start);
        self.staged.clear();
        // What is decided is what the coordinator proposes again. What was accepted of this ballot in
        // an earlier life is still there.
        self.end = start.max(self.known);
        if self.settled == ballot {
            self.end = self.end.max(self.book.end());
            if let Some(mine) = self.my_vote.filter(|_| cx.votes) {
                let memory = cx.memories[cx.me.index()];
                self.votes[mine] = Vote { memory, upto: self.end };
            }
        }
        self.advance(cx);
    }

    /// [MRP 4] Phase 2A/2B and decisions come round.
    pub(super) fn on_pass(
        &mut self,
        from: Pid,
        pass: Pass,
        cx: &mut Cx<'_>,
    ) -> Result<(), &'static str> {
        let coordinator = pass.ballot.coordinator().ok_or("a run of nobody's")?;
        let far = pass.start > pass.fresh || pass.fresh.max(pass.end).max(pass.trim) > INSTANCE_MAX;
        let other = !pass.ballot.is_of(&self.shape.acceptors) || far;
        if other || pass.votes.len() != self.votes.len() {
            return Err("a run that is not of this ring");
        }
        if pass.ballot < self.promised {
            let word = Word::Refuse { ring: self.id, promised: self.promised };
            cx.say(coordinator, word);
            return Ok(());
        }
        if pass.ballot > self.ballot {
            if coordinator == cx.me {
                // Of an earlier life, or given up. The next attempt must be above it.
                self.promised = self.promised.max(pass.ballot);
                return Ok(());
            }
            self.follow(pass.ballot, (pass.start, pass.fresh), cx);
        } else if (pass.start, pass.fresh) != (self.start, self.fresh) {
            return Err("a run with two beginnings");
        }
        if pass.layout > self.layout {
            if self.out.contains(&cx.me) && !pass.out.contains(&cx.me) {
                cx.out.mark("multiring-taken-in");
            }
            (self.layout, self.out) = (pass.layout, pass.out);
        }
        self.trim = self.trim.max(pass.trim);
        for entry in pass.entries {
            if entry.first > self.end || self.is_full(cx) {
                break;
            }
            if entry.end() > self.end && coordinator != cx.me {
                if !entry.makes_sense(&self.shape.acceptors, cx.shape.cluster.processes()) {
                    return Err("a value that makes no sense");
                }
                let entry = cut(entry, self.end);
                self.accept(Entry { ballot: pass.ballot, ..entry }, cx);
            }
        }
        // Who is full lacks nothing: it takes in no more.
        if pass.end > self.end && coordinator != cx.me && !self.is_full(cx) {
            self.lack(from, cx);
        }
        self.count(&pass.votes, cx);
        self.told_coordinator(&pass.votes);
        self.advance(cx);
        Ok(())
    }

    fn lack(&mut self, from: Pid, cx: &mut Cx<'_>) {
        if cx.now.since(self.lacked_at) >= cx.shape.retry || self.lacked_at == Time::ZERO {
            self.lacked_at = cx.now;
            self.asked_beside |= self.coordinator() == Some(from);
            let word = Word::Lack { ring: self.id, ballot: self.ballot, from: self.end };
            cx.say(from, word);
        }
    }

    /// Takes the next entry of the run; an acceptor votes for it.
    pub(super) fn accept(&mut self, entry: Entry, cx: &mut Cx<'_>) {
        assert_eq!((entry.first, entry.ballot), (self.end, self.ballot), "a run has no gaps");
        self.end = entry.end();
        entry.value.messages().for_each(|packed| cx.out.event(ProtocolEvent::Part(packed.msg)));
        // The next gap is told of at once.
        self.lacked_at = Time::ZERO;
        let settled = self.settled == self.ballot;
        // Also who may not vote writes: what its log says must be what its book says.
        let record = if self.my_vote.is_some() {
            let vote = Act::Vote { ring: self.id, ballot: self.ballot, upto: self.end };
            let vote = (settled && cx.votes).then_some(vote);
            let (ring, known, entry) = (self.id, self.known, entry.clone());
            if cx.shape.mutants.is(Mutant::VotesBeforeItIsWritten) {
                cx.keep.due.extend(vote.clone());
            }
            // [MRP 1:4] [MRP 3:1]
            cx.keep.write(Record::Accept { ring, known, settled, entry }, vote)
        } else {
            NO_RECORD
        };
        if settled {
            self.book.put(entry, record);
        } else {
            self.staged.push_back((entry, record));
            self.settle(cx);
        }
    }

    /// Once all that the coordinator proposed again is there, and everything before: the run takes the
    /// place of what was accepted of earlier ones. So an acceptor's book is always that of one run as
    /// its coordinator wrote it, and each run goes on from one that held all that may be decided;
    /// nothing can be in it twice.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        let whole = self.end >= self.fresh && self.known >= self.start;
        // To count is to vote: not in a ballot below one that was promised meanwhile, whose coordinator
        // was not told of it.
        let counts = cx.shape.mutants.is(Mutant::CountsBelowItsPromise);
        let late = self.ballot < self.promised && !counts;
        if self.settled == self.ballot || !whole || late {
            return;
        }
        self.settled = self.ballot;
        if self.my_vote.is_some() {
            let (ring, ballot, from) = (self.id, self.ballot, self.known);
            let vote = Act::Vote { ring, ballot, upto: self.end };
            cx.keep.write(Record::Settle { ring, ballot, from }, cx.votes.then_some(vote));
        }
        let leaves = cx.shape.mutants.is(Mutant::KeepsLeftovers);
        self.unstage(self.known, leaves);
    }

    /// What was staged replaces what is held from instance `from` on.
    fn unstage(&mut self, from: u64, leaves: bool) {
        if !leaves {
            self.book.cut_off(from);
        }
        for (entry, record) in mem::take(&mut self.staged) {
            if entry.end() > from {
                let first = from.max(entry.first);
                self.book.put(cut(entry, first), record);
            }
        }
    }

    /// This process votes for the run up to there: what it accepted is where it must be.
    pub(super) fn vote(&mut self, ballot: Ballot, upto: u64, cx: &mut Cx<'_>) {
        if let Some(mine) = self.my_vote
            && self.ballot == ballot
            && cx.votes
        {
            let vote = &mut self.votes[mine];
            vote.upto = vote.upto.max(upto);
            self.voted = self.voted.max(upto);
            vote.memory = cx.memories[cx.me.index()];
            self.advance(cx);
        }
    }

    /// Takes in votes; those from a memory that was lost do not count.
    fn count(&mut self, votes: &[Vote], cx: &mut Cx<'_>) {
        for (at, vote) in votes.iter().enumerate() {
            let acceptor = self.shape.acceptors[at];
            if acceptor == cx.me {
                continue;
            }
            let memory = &mut cx.memories[acceptor.index()];
            *memory = (*memory).max(vote.memory);
            let held = &mut self.votes[at];
            if vote.memory > held.memory {
                *held = *vote;
            } else if vote.memory == held.memory {
                held.upto = held.upto.max(vote.upto);
            }
        }
    }

    /// How far a majority has accepted the run.
    pub(super) fn majority(&self, votes: &[Vote], cx: &Cx<'_>) -> u64 {
        let current = |(at, vote): (usize, &Vote)| {
            let memory = cx.memories[self.shape.acceptors[at].index()];
            (vote.memory == memory).then_some(vote.upto)
        };
        let mut uptos: Vec<u64> = votes.iter().enumerate().filter_map(current).collect();
        uptos.sort_unstable();
        let quorum = match cx.shape.mutants.is(Mutant::FewerVotes) {
            true => self.shape.quorum() - 1,
            false => self.shape.quorum(),
        };
        let short = uptos.len().checked_sub(quorum.max(1));
        short.map_or(self.start, |at| uptos[at].max(self.start))
    }

    /// Notes what is decided, and what of it is held.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>) {
        self.decided = self.decided.max(self.majority(&self.votes, cx));
        if self.ballot != Ballot::NONE {
            self.settle(cx);
        }
        if self.known >= self.start && self.settled == self.ballot {
            // [MRP 1:7]
            self.know(self.decided.min(self.end));
        }
    }

    /// All instances below `upto` are decided and held: notes who proposed what.
    pub(super) fn know(&mut self, upto: u64) {
        if upto <= self.known {
            return;
        }
        let tells = self.my_vote.is_some() && self.table_at == self.known;
        for (first, slot) in self.book.from(self.known) {
            if first >= upto {
                break;
            }
            let size = slot.value.as_ref().map_or(0, Value::size);
            self.held.push_back((first + slot.instances, size));
            self.held_bytes += size;
            if !matches!(slot.value, Some(Value::Skip(_))) {
                self.said = first + slot.instances;
            }
            for packed in slot.value.iter().filter(|_| tells).flat_map(Value::messages) {
                self.table[packed.msg.sender.index()] = (packed.life, packed.number);
                if let Some(lead) = &mut self.lead {
                    lead.acknowledge(packed.msg.sender, packed.life, packed.number);
                }
            }
        }
        if tells {
            self.table_at = upto;
        }
        self.known = upto;
    }

    /// The application has come so far. An acceptor lets nothing be trimmed before it has kept who
    /// proposed it: a majority of them must have that, or nobody could lead any more.
    pub(super) fn stand(&mut self, merged: u64, safe: u64, cx: &mut Cx<'_>) {
        if self.my_vote.is_some() && safe > self.noting && self.table_at >= safe {
            self.noting = self.table_at;
            let noted = Act::Noted { ring: self.id, at: self.noting };
            cx.keep.write(self.base(), Some(noted));
        }
        let safe = if self.my_vote.is_some() { safe.min(self.noted) } else { safe };
        self.mine = Standing { known: self.known, merged, safe };
        while let Some(&(_, size)) = self.held.front().filter(|(end, _)| *end <= merged) {
            self.held_bytes -= size;
            self.held.pop_front();
        }
    }

    /// The table as of instance `at` is kept for good.
    pub(super) fn noted(&mut self, at: u64) {
        self.noted = self.noted.max(at);
    }

    /// `pid` began a new life: what it led is over.
    pub(super) fn restarted(&mut self, pid: Pid) {
        if let Some(at) = self.shape.member(pid) {
            // It says itself what it still has.
            self.peers[at].known = 0;
        }
        if self.coordinator() == Some(pid) {
            self.orphaned = true;
            self.awaited = Ballot::NONE;
        }
    }

    /// The connection to `pid` is new: what was on the way may be lost.
    pub(super) fn reconnected(&mut self, pid: Pid) {
        self.link.reconnected(pid);
        if self.coordinator() == Some(pid) {
            self.reported.fill(Vote::default());
        }
        if let Some(lead) = &mut self.lead {
            lead.forget(self.shape.acceptor(pid));
        }
    }

    /// The entry of the run that holds this instance, from there on.
    pub(super) fn run_entry(&self, at: u64) -> Option<Entry> {
        if self.settled == self.ballot || at < self.known {
            return self.book.entry(at).map(|entry| match self.settled == self.ballot {
                true => entry,
                false => shorten(entry, self.known),
            });
        }
        let (entry, _) = self.staged.iter().find(|(e, _)| e.first <= at && at < e.end())?;
        Some(cut(entry.clone(), at))
    }

    /// Forgets what everybody has who must.
    pub(super) fn forget(&mut self, floor: u64) {
        let floor = floor.min(self.known);
        self.book.trim(floor);
    }

    /// The entries that this process has accepted and does not know to be decided.
    pub(super) fn open_entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (first, _) in self.book.from(self.known) {
            entries.extend(self.book.entry(first.max(self.known)));
        }
        entries
    }

    /// Takes what is written of an earlier life.
    pub(super) fn restore(&mut self, number: u64, record: Record) {
        match record {
            Record::Promise { ballot, .. } => self.promised = self.promised.max(ballot),
            Record::Accept { known, settled, entry, .. } => {
                self.promised = self.promised.max(entry.ballot);
                if settled {
                    self.settled = entry.ballot;
                    self.book.put(entry, number);
                } else {
                    self.staged.retain(|(e, _)| e.ballot == entry.ballot);
                    self.staged.push_back((entry, number));
                }
                if self.holds(known) {
                    self.know(known);
                }
            }
            Record::Settle { ballot, from, .. } => {
                self.staged.retain(|(e, _)| e.ballot == ballot);
                self.settled = ballot;
                self.promised = self.promised.max(ballot);
                self.unstage(from, false);
            }
            Record::Learn { entry, .. } => {
                let end = entry.end();
                let next = entry.first <= self.known;
                self.book.put(entry, number);
                if next {
                    self.know(end);
                }
            }
            Record::Base { promised, settled, floor, at, table, .. } => {
                self.settled = self.settled.max(settled);
                self.promised = self.promised.max(promised);
                if floor > self.book.floor() {
                    self.book.trim(floor);
                }
                if at > self.table_at && table.len() == self.table.len() {
                    (self.table, self.table_at) = (table, at);
                }
                if self.known < floor.max(self.table_at) {
                    // Which of these held messages is not looked at.
                    self.known = floor.max(self.table_at);
                    self.said = self.known;
                }
                self.trim = self.trim.max(floor);
            }
            Record::Lost { .. } | Record::Memories { .. } | Record::Idle { .. } => {}
        }
    }

    /// Takes over what another acceptor accepted of the run of `settled`, as if it had been accepted
    /// here. Everything that is decided among it, and before it, is known here.
    pub(super) fn remember(&mut self, settled: Ballot, entries: Vec<Entry>, cx: &mut Cx<'_>) {
        self.settled = settled;
        self.staged.clear();
        let (ring, known) = (self.id, self.known);
        cx.keep.write(Record::Settle { ring, ballot: settled, from: known }, None);
        self.book.cut_off(known);
        for entry in entries.into_iter().filter(|entry| entry.end() > known) {
            let first = known.max(entry.first);
            let entry = cut(entry, first);
            let kept = entry.clone();
            let record = Record::Accept { ring, known, settled: true, entry: kept };
            let number = cx.keep.write(record, None);
            self.book.put(entry, number);
        }
        // What came of the run meanwhile comes again.
        self.end = self.start.max(self.known);
        if self.settled == self.ballot {
            self.end = self.end.max(self.book.end());
        }
        self.lacked_at = Time::ZERO;
    }

    /// This process has its memory back, and votes. What it took in meanwhile was written with nobody
    /// waiting for it: it votes for that once it is where it must be.
    pub(super) fn votes_again(&mut self, cx: &mut Cx<'_>) {
        let Some(mine) = self.my_vote else { return };
        self.votes[mine] = Vote { memory: cx.memories[cx.me.index()], upto: self.start };
        self.has_voted_for_all();
        // Not in a ballot below one that it learned now that it had promised.
        let may = self.ballot != Ballot::NONE && self.ballot >= self.promised;
        if may && self.settled == self.ballot {
            let (ring, ballot, upto) = (self.id, self.ballot, self.end);
            let vote = Act::Vote { ring, ballot, upto };
            if cx.shape.mutants.is(Mutant::VotesForAllItTookIn) {
                cx.keep.due.push_back(vote.clone());
            }
            cx.keep.write(Record::Promise { ring, ballot: self.promised }, Some(vote));
        }
        self.advance(cx);
    }

    /// What was staged is of no use below what is known.
    pub(super) fn outran(&mut self) {
        if self.ballot != Ballot::NONE && self.known > self.end {
            self.end = self.known;
            self.staged.clear();
        }
    }

    /// Whether everything from what is known up to there is held.
    fn holds(&self, upto: u64) -> bool {
        let mut at = self.known;
        for (first, slot) in self.book.from(at) {
            if first > at || at >= upto {
                break;
            }
            at = first + slot.instances;
        }
        at >= upto
    }

    /// The record that keeps what a trim of the log must not lose.
    pub(super) fn base(&self) -> Record {
        Record::Base {
            ring: self.id,
            promised: self.promised,
            settled: self.settled,
            floor: self.book.floor(),
            at: self.table_at,
            table: self.table.clone(),
        }
    }
}

/// The entry up to instance `upto`, which is behind its first.
pub(super) fn shorten(entry: Entry, upto: u64) -> Entry {
    match entry.value {
        Value::Skip(_) if upto < entry.end() => {
            Entry { value: Value::Skip(upto - entry.first), ..entry }
        }
        _ => entry,
    }
}

/// The entry from instance `from` on, which lies in it.
pub(super) fn cut(entry: Entry, from: u64) -> Entry {
    match entry.value {
        Value::Skip(count) if from > entry.first => {
            Entry { first: from, value: Value::Skip(count - (from - entry.first)), ..entry }
        }
        _ => entry,
    }
}
