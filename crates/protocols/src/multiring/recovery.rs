//! An acceptor that lost its memory: what it had promised and accepted comes back from the others
//! before it votes again.
//!
//! Each loss begins a new *memory* of the acceptor, with a number. It asks the other acceptors of
//! its group, and each of them from then on counts no vote and no promise of an older memory, also
//! such as are still on their way, before it answers with all that it has itself; and with every vote
//! that it passes on it says which memory counts (`link.rs`), so that whoever needs its vote counts the
//! lost one no more, asked or not. With answers of a majority's worth of others, `f + 1`, it goes on.
//! Why that suffices: whatever a quorum decided with a vote of the lost memory, one of the `f + 1` is in
//! that quorum. Either it had voted when it answered, and so the value is in its answer; or it votes
//! later, and then whoever hears of that vote does not count the lost one. The same holds of promises,
//! which carry what their senders know of memories.

use super::Mutant;
use super::keep::{Act, Record};
use super::process::MultiRing;
use super::rings::RingId;
use super::value::{Ballot, Entry, INSTANCE_MAX};
use super::word::{Packet, Word};
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::step::Note;
use amcast_core::{Outbox, Pid, Time};

/// The way back of an acceptor's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    /// Whether it is gone.
    pub(super) lost: bool,
    /// By rank, and by ring: what came of an answer before its end.
    coming: Vec<Vec<Vec<Entry>>>,
    /// By rank, and by ring: the answer.
    answers: Vec<Vec<Option<Answer>>>,
    asked_at: Option<Time>,
    /// What they say is being written.
    done: bool,
}

#[derive(Clone, Debug)]
struct Answer {
    promised: Ballot,
    known: u64,
    settled: Ballot,
    entries: Vec<Entry>,
    memories: Vec<u32>,
}

impl MultiRing {
    /// The memory of the lives before this one is gone.
    pub(super) fn lose_memory(&mut self) {
        let (ranks, rings) = (self.shape.cluster.replicas(), self.rings.len());
        self.memories[self.me.index()] = self.life;
        self.keep.write(Record::Lost { memory: self.life }, None);
        self.recovery = Recovery {
            lost: true,
            coming: alloc::vec![alloc::vec![Vec::new(); rings]; ranks],
            answers: alloc::vec![alloc::vec![None; rings]; ranks],
            ..Recovery::default()
        };
    }

    pub(super) fn recovery_at(&self) -> Time {
        match self.recovery.asked_at {
            _ if !self.recovery.lost || self.recovery.done => Time::NEVER,
            None => self.now,
            Some(at) => at + self.shape.retry,
        }
    }

    /// Asks the other acceptors what it had promised and accepted.
    pub(super) fn ask_for_memory(&mut self) {
        if self.recovery_at() > self.now {
            return;
        }
        self.recovery.asked_at = Some(self.now);
        let memory = self.memories[self.me.index()];
        for p in self.comrades() {
            let rank = self.rank_of(p).expect("it is of this group");
            if self.recovery.answers[rank].iter().all(Option::is_none) {
                self.recovery.coming[rank].iter_mut().for_each(Vec::clear);
            }
            self.say(p, Word::Lost { memory });
        }
    }

    /// The rings in which this process is an acceptor.
    fn voted_rings(&self) -> impl Iterator<Item = RingId> + '_ {
        let votes = |id: &RingId| {
            self.rings[usize::from(*id)].as_ref().is_some_and(|ring| ring.my_vote.is_some())
        };
        (0..self.rings.len() as RingId).filter(votes)
    }

    pub(super) fn on_lost(&mut self, from: Pid, memory: u32) {
        if !self.may_vote() || self.rank_of(from).is_none() {
            return;
        }
        let held = self.memories[from.index()];
        if memory < held {
            return;
        }
        if !self.shape.mutants.is(Mutant::CountsOnLostMemories) {
            self.memories[from.index()] = memory;
        }
        let memories: Vec<u32> = self.group_memories();
        let mut words = Vec::new();
        for id in self.voted_rings() {
            let Some(ring) = &self.rings[usize::from(id)] else { continue };
            let entries = ring.open_entries();
            let (count, known, promised) = (entries.len() as u32, ring.known, ring.promised);
            let settled = ring.settled;
            let recalled = entries.into_iter();
            words.extend(recalled.map(|entry| Word::Recalled { ring: id, memory, entry }));
            let memories = memories.clone();
            let ring = id;
            words.push(Word::Recall { ring, memory, promised, known, settled, count, memories });
        }
        let act = Act::Say { to: from, words };
        self.keep.write(Record::Memories { of: memories }, Some(act));
    }

    /// By rank: which memory of each acceptor of this group counts.
    pub(super) fn group_memories(&self) -> Vec<u32> {
        let members = self.shape.cluster.members(self.group);
        members.map(|p| self.memories[p.index()]).collect()
    }

    pub(super) fn on_recalled(&mut self, from: Pid, ring: RingId, memory: u32, entry: Entry) {
        let current = self.recovery.lost && memory == self.memories[self.me.index()];
        if let Some(rank) = self.rank_of(from).filter(|_| current)
            && let Some(coming) = self.recovery.coming[rank].get_mut(usize::from(ring))
        {
            coming.push(entry);
        }
    }

    pub(super) fn on_recall(
        &mut self,
        from: Pid,
        (ring, memory, count): (RingId, u32, u32),
        (promised, settled, known): (Ballot, Ballot, u64),
        memories: Vec<u32>,
        out: &mut Outbox<Messages<Packet>>,
    ) {
        let current = self.recovery.lost && memory == self.memories[self.me.index()];
        let ranks = self.shape.cluster.replicas();
        let Some(rank) = self.rank_of(from).filter(|_| current && !self.recovery.done) else {
            return;
        };
        if usize::from(ring) >= self.rings.len() || memories.len() != ranks {
            return out.note(Note::Malformed(from, "a recollection of another cluster"));
        }
        let entries = core::mem::take(&mut self.recovery.coming[rank][usize::from(ring)]);
        let Some(surplus) = entries.len().checked_sub(count as usize) else { return };
        let processes = self.shape.cluster.processes();
        let acceptors = &self.shape.rings[usize::from(ring)].acceptors;
        let sound = |entry: &Entry| entry.makes_sense(acceptors, processes);
        let far = known > INSTANCE_MAX || !promised.max(settled).is_of(acceptors);
        if far || !entries.iter().all(sound) {
            return out.note(Note::Malformed(from, "a value that makes no sense"));
        }
        let entries = entries.into_iter().skip(surplus).collect();
        let answer = Answer { promised, known, settled, entries, memories };
        self.recovery.answers[rank][usize::from(ring)] = Some(answer);
    }

    /// With answers of enough others, and once everything is known that they knew to be decided, and
    /// who proposed it: takes over what they say.
    pub(super) fn remember(&mut self, out: &mut Outbox<Messages<Packet>>) {
        if !self.recovery.lost || self.recovery.done || self.recovery.answers.is_empty() {
            return;
        }
        let rings: Vec<RingId> = self.voted_rings().collect();
        let whole = |answers: &&Vec<Option<Answer>>| {
            rings.iter().all(|&id| answers[usize::from(id)].is_some())
        };
        let answers: Vec<_> = self.recovery.answers.iter().filter(whole).collect();
        let behind = |id: &RingId| {
            let Some(ring) = &self.rings[usize::from(*id)] else { return false };
            let mut answers = answers.iter().filter_map(|a| a[usize::from(*id)].as_ref());
            answers.any(|a| a.known > ring.known) || ring.table_at != ring.known
        };
        let enough = match self.shape.mutants.is(Mutant::AsksTooFew) {
            true => self.shape.cluster.quorum() - 1,
            false => self.shape.cluster.quorum(),
        };
        if answers.len() < enough || rings.iter().any(behind) {
            return;
        }
        let answers: Vec<Vec<Option<Answer>>> = answers.into_iter().cloned().collect();
        self.recovery.done = true;
        for answer in answers.iter().flatten().flatten() {
            for (rank, &memory) in answer.memories.iter().enumerate() {
                let p = self.shape.cluster.replica(self.group, rank);
                let held = &mut self.memories[p.index()];
                *held = (*held).max(memory);
            }
        }
        for id in rings {
            let of_ring = || answers.iter().filter_map(|a| a[usize::from(id)].as_ref());
            let promised = of_ring().map(|a| a.promised).max().unwrap_or(Ballot::NONE);
            let end = |a: &Answer| a.entries.last().map_or(a.known, Entry::end);
            let best = of_ring().max_by_key(|a| (a.settled, end(a))).cloned();
            self.with_ring(id, |ring, cx| {
                ring.promised = ring.promised.max(promised);
                let ballot = ring.promised;
                cx.keep.write(Record::Promise { ring: id, ballot }, None);
                // Who proposed what is kept here, too, although not from the beginning.
                cx.keep.write(ring.base(), None);
                let takes = !cx.shape.mutants.is(Mutant::RemembersNothing);
                if let Some(Answer { settled, entries, .. }) = best.filter(|_| takes) {
                    ring.remember(settled, entries, cx);
                }
            });
        }
        let of = self.group_memories();
        self.keep.write(Record::Memories { of }, Some(Act::Recovered));
        out.mark("multiring-remembers");
    }
}

impl MultiRing {
    /// What came from the replica of this rank is not whole any more.
    pub(super) fn forget_recollections(&mut self, rank: usize) {
        if let Some(coming) = self.recovery.coming.get_mut(rank) {
            coming.iter_mut().for_each(Vec::clear);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::multiring::SYNCED;
    use alloc::vec::Vec;
    use amcast_core::codec::Codec;
    use amcast_core::{Entry, Input, Node, Outbox, Pid, RawConfig, Time};

    use super::{Ballot, Record};

    /// Whether a process votes that starts again with these records in its log.
    fn votes(records: &[&[u8]]) -> bool {
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let config = raw.check(SYNCED.about().params).expect("a sound configuration");
        let Ok(Node::Messages(mut node)) = SYNCED.build(Pid(0), &config) else {
            panic!("it sends messages")
        };
        let mut out = Outbox::default();
        for (number, record) in (0..).zip(records) {
            node.step(Time(1), (), Input::Stored { number, record }, &mut out);
        }
        node.step(Time(1), (), Input::Start { incarnation: 1 }, &mut out);
        node.fit()
    }

    #[test]
    fn an_acceptor_with_a_log_that_it_cannot_read_does_not_vote() {
        let mut promise = Vec::new();
        Record::Promise { ring: 0, ballot: Ballot::new(1, Pid(0)) }.encode(&mut promise);
        assert!(votes(&[&promise]) && votes(&[]));
        assert!(!votes(&[&promise, &[99, 1, 2]]));
        assert!(!votes(&[&promise[..promise.len() - 1], &promise]));
    }
}
