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
//!
//! None of so many can be done without. So whom it does not reach it asks by way of another one of its group, too,
//! who passes on the question and, word for word, the answer; it keeps nothing of them, and passes on what
//! comes from their sender itself only.

use super::Mutant;
use super::keep::{Act, Record};
use super::process::MultiRing;
use super::rings::{RingId, ring_for};
use super::value::{Ballot, Entry, INSTANCE_MAX};
use super::word::{Carried, Packet, Question, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::step::Note;
use amcast_core::{GroupSet, Outbox, Pid, Time};

/// The way back of an acceptor's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    /// Whether it is gone.
    pub(super) lost: bool,
    /// By rank: what came of an answer before its end.
    coming: Vec<Coming>,
    /// By rank, and by ring: the answer.
    answers: Vec<Vec<Option<Answer>>>,
    /// The number of the last question.
    asked: u32,
    asked_at: Option<Time>,
    /// What they say is being written.
    done: bool,
}

/// What came of an answer.
#[derive(Clone, Debug)]
struct Coming {
    /// The question that it answers: answers that come on two ways are not mixed.
    question: u32,
    /// By ring.
    entries: Vec<Vec<Entry>>,
}

impl Coming {
    /// What came for a ring of the answer to this question; none if a later one is being answered.
    fn of(&mut self, question: u32, ring: RingId) -> Option<&mut Vec<Entry>> {
        if question > self.question {
            self.question = question;
            self.entries.iter_mut().for_each(Vec::clear);
        }
        self.entries.get_mut(usize::from(ring)).filter(|_| question == self.question)
    }
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
        let coming = Coming { question: 0, entries: alloc::vec![Vec::new(); rings] };
        self.recovery = Recovery {
            lost: true,
            coming: alloc::vec![coming; ranks],
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

    /// Asks the other acceptors what it had promised and accepted. Who has answered in full is not
    /// asked again: a later answer would reach further, and where answers take longer than the time
    /// between two questions, this process would never know all that the last one knew.
    pub(super) fn ask_for_memory(&mut self) {
        if self.recovery_at() > self.now {
            return;
        }
        self.recovery.asked_at = Some(self.now);
        for p in self.comrades() {
            if self.has_answered(p) {
                continue;
            }
            let word = self.question();
            self.say(p, word);
            if let Some(by) = self.way_round_to(p) {
                let (word, own) = (self.question(), (self.me, self.life));
                self.say(by, carried(own, p, word));
            }
        }
    }

    /// The next question.
    fn question(&mut self) -> Word {
        self.recovery.asked += 1;
        let (memory, number) = (self.memories[self.me.index()], self.recovery.asked);
        Word::Lost { question: Question { memory, number } }
    }

    /// Whether the answer of another acceptor is here, for all rings.
    fn has_answered(&self, p: Pid) -> bool {
        let Some(answers) = self.rank_of(p).and_then(|rank| self.recovery.answers.get(rank)) else {
            return false;
        };
        self.voted_rings().all(|id| answers.get(usize::from(id)).is_some_and(Option::is_some))
    }

    /// By whom to ask one who is not reached, each time another one.
    fn way_round_to(&self, p: Pid) -> Option<Pid> {
        if self.reaches(p) {
            return None;
        }
        let own = ring_for(&self.shape.rings, GroupSet::one(self.group))?;
        let mut relays = self.relays(own, p);
        relays.retain(|&by| by != p && self.reaches(by));
        let turn = self.recovery.asked as usize % relays.len().max(1);
        relays.get(turn).copied()
    }

    /// One passes on a word of recovery, to this process or by way of it.
    pub(super) fn on_carry(
        &mut self,
        by: Pid,
        carry: Carried,
        out: &mut Outbox<Messages<Packet>>,
    ) -> Result<(), &'static str> {
        let processes = self.shape.cluster.processes();
        let comrade = |p: Pid| p.index() < processes && self.rank_of(p).is_some();
        if !comrade(carry.sender) {
            return Err("a word to be passed on of one who is not in this group");
        }
        if carry.to == self.me {
            if self.heard_life(carry.sender, carry.life) {
                self.hear_of_memory((carry.sender, Some(by)), carry.word, out);
            }
            return Ok(());
        }
        if by != carry.sender || !comrade(carry.to) {
            return Err("a word that this process is not to pass on");
        }
        self.say(carry.to, Word::Carry(Box::new(carry)));
        Ok(())
    }

    /// A word of recovery, which came by way of another one, if it did.
    pub(super) fn hear_of_memory(
        &mut self,
        (from, by): (Pid, Option<Pid>),
        word: Word,
        out: &mut Outbox<Messages<Packet>>,
    ) {
        match word {
            Word::Lost { question } => self.on_lost((from, by), question),
            Word::Recalled { ring, question, entry } => {
                self.on_recalled(from, ring, question, entry);
            }
            Word::Recall { ring, question, promised, known, settled, count, memories } => {
                let said = (promised, settled, known);
                self.on_recall(from, (ring, question, count), said, memories, out);
            }
            _ => out.note(Note::Malformed(from, "a word that is not of recovery")),
        }
    }

    /// The rings in which this process is an acceptor.
    fn voted_rings(&self) -> impl Iterator<Item = RingId> + '_ {
        let votes = |id: &RingId| {
            self.rings[usize::from(*id)].as_ref().is_some_and(|ring| ring.my_vote.is_some())
        };
        (0..self.rings.len() as RingId).filter(votes)
    }

    fn on_lost(&mut self, (from, by): (Pid, Option<Pid>), question: Question) {
        let memory = question.memory;
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
            words.extend(recalled.map(|entry| Word::Recalled { ring: id, question, entry }));
            let memories = memories.clone();
            let ring = id;
            words.push(Word::Recall { ring, question, promised, known, settled, count, memories });
        }
        if by.is_some() {
            let own = (self.me, self.life);
            words = words.into_iter().map(|word| carried(own, from, word)).collect();
        }
        let act = Act::Say { to: by.unwrap_or(from), words };
        self.keep.write(Record::Memories { of: memories }, Some(act));
    }

    /// By rank: which memory of each acceptor of this group counts.
    pub(super) fn group_memories(&self) -> Vec<u32> {
        let members = self.shape.cluster.members(self.group);
        members.map(|p| self.memories[p.index()]).collect()
    }

    /// Whether a question is of the memory that this process has not got back.
    fn is_open(&self, question: Question) -> bool {
        let current = question.memory == self.memories[self.me.index()];
        let asked = question.number <= self.recovery.asked;
        current && asked && self.recovery.lost && !self.recovery.done
    }

    fn on_recalled(&mut self, from: Pid, ring: RingId, question: Question, entry: Entry) {
        if let Some(rank) = self.rank_of(from).filter(|_| self.is_open(question))
            && let Some(coming) = self.recovery.coming[rank].of(question.number, ring)
        {
            coming.push(entry);
        }
    }

    fn on_recall(
        &mut self,
        from: Pid,
        (ring, question, count): (RingId, Question, u32),
        (promised, settled, known): (Ballot, Ballot, u64),
        memories: Vec<u32>,
        out: &mut Outbox<Messages<Packet>>,
    ) {
        let ranks = self.shape.cluster.replicas();
        let Some(rank) = self.rank_of(from).filter(|_| self.is_open(question)) else { return };
        if usize::from(ring) >= self.rings.len() || memories.len() != ranks {
            return out.note(Note::Malformed(from, "a recollection of another cluster"));
        }
        let coming = self.recovery.coming[rank].of(question.number, ring);
        let entries = coming.map(core::mem::take).unwrap_or_default();
        if entries.len() != count as usize {
            // Some of it was lost, or a later question is being answered.
            return;
        }
        let processes = self.shape.cluster.processes();
        let acceptors = &self.shape.rings[usize::from(ring)].acceptors;
        let sound = |entry: &Entry| entry.makes_sense(acceptors, processes);
        let far = known > INSTANCE_MAX || !promised.max(settled).is_of(acceptors);
        if far || !entries.iter().all(sound) {
            return out.note(Note::Malformed(from, "a value that makes no sense"));
        }
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
            let longest = self.shape.mutants.is(Mutant::RemembersTheLongestLog);
            let rank = |a: &&Answer| (if longest { Ballot::NONE } else { a.settled }, end(a));
            let best = of_ring().max_by_key(rank).cloned();
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

/// A word of a process, in one of its lives, to be passed on.
fn carried((sender, life): (Pid, u32), to: Pid, word: Word) -> Word {
    Word::Carry(Box::new(Carried { sender, life, to, word }))
}

#[cfg(test)]
mod tests {
    use crate::multiring::SYNCED;
    use alloc::vec::Vec;
    use amcast_core::codec::Codec;
    use amcast_core::{Entry, Input, Node, Outbox, Pid, RawConfig, Time};

    use super::super::value::Value;
    use super::super::word::{Question, Word};
    use super::{Ballot, Coming, Record, carried};

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

    fn entry(first: u64) -> super::Entry {
        super::Entry { first, ballot: Ballot::new(1, Pid(0)), value: Value::Skip(1) }
    }

    #[test]
    fn answers_that_come_on_two_ways_are_not_mixed() {
        let mut coming = Coming { question: 0, entries: alloc::vec![Vec::new(); 2] };
        coming.of(3, 0).expect("the first").push(entry(5));
        coming.of(3, 1).expect("of another ring").push(entry(7));
        assert!(coming.of(2, 0).is_none(), "of an earlier question");
        assert!(coming.of(4, 0).is_some_and(|entries| entries.is_empty()));
        coming.of(4, 0).expect("it is the last").push(entry(6));
        assert_eq!(coming.of(4, 0), Some(&mut alloc::vec![entry(6)]));
        assert!(coming.of(3, 0).is_none() && coming.of(4, 2).is_none());
    }

    #[test]
    fn only_words_of_recovery_are_passed_on() {
        let question = Question { memory: 3, number: 7 };
        let read = |word: &Word| {
            let mut bytes = Vec::new();
            word.encode(&mut bytes);
            Word::decode(&mut amcast_core::codec::Reader::new(&bytes)).ok()
        };
        for word in [Word::Lost { question }, Word::Recalled { ring: 1, question, entry: entry(9) }]
        {
            let carry = carried((Pid(2), 4), Pid(0), word);
            assert_eq!(read(&carry), Some(carry));
        }
        let others =
            [Word::Ask { attempt: 1 }, carried((Pid(2), 4), Pid(0), Word::Lost { question })];
        for word in others {
            assert_eq!(read(&carried((Pid(2), 4), Pid(0), word)), None);
        }
    }
}
