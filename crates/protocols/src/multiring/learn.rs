//! How a member gets what it missed of a ring: decided instances, from whoever has them.

use super::Mutant;
use super::keep::{Record, Storage};
use super::ring::{Cx, Ring, cut, shorten};
use super::value::{Ballot, Entry, INSTANCE_MAX, Value};
use super::word::{Lesson, Rows, Word};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};

/// How many times as long as `retry` an answer is waited for: it may have to be read from a disk.
const PATIENCE: u64 = 4;

/// How many times as much as is passed on at once is told at once to one who asks for it: a member that
/// is behind gets further with each question than the others come meanwhile.
const LESSON: usize = 8;

/// The same in bytes, at most: it must fit into a frame.
const LESSON_BYTES_MAX: usize = 2 << 20;

/// What a member asked for that it lacks.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetching {
    /// When others were asked last.
    asked_at: Time,
    /// Whom to ask next.
    turn: usize,
    /// What was known when it was looked last, and since when that has not grown.
    seen: u64,
    seen_at: Time,
    /// Nobody can give it, or it can take nothing: there is nothing to ask before something comes.
    idle: bool,
    /// The last answer was cut off: there is more to be had at once.
    more: bool,
    /// Who was asked last.
    asked: Option<Pid>,
    /// Who was asked and has let go of what comes next, and where what it has begins: at no instance if it
    /// did not answer.
    trimmed: BTreeMap<Pid, u64>,
}

/// The answer to a fetch, as far as it is in memory.
pub(super) enum Served {
    /// Say this.
    Word(Word),
    /// The slot that begins with this instance must be read from disk first.
    Load(u64),
}

impl Ring {
    /// Whether this member has less than it should have by now.
    fn lacks(&self, me: Pid, now: Time, retry: Span) -> bool {
        let table = self.my_vote.is_some() && self.table_at != self.known;
        let waits = self.lead.as_ref().is_some_and(|lead| !lead.is_active(self.ballot));
        let at_once = table || self.known < self.start || self.fetching.more;
        let ahead = || {
            let others = self.shape.members.iter().zip(&self.peers).filter(|(p, _)| **p != me);
            others.map(|(_, standing)| standing.known).max().unwrap_or(0)
        };
        let soon = waits || now.since(self.fetching.seen_at) >= retry;
        at_once || soon && ahead() > self.known
    }

    /// Asks for what it lacks: another one if there was no answer.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>) {
        if self.fetching.seen != self.known {
            (self.fetching.seen, self.fetching.seen_at) = (self.known, cx.now);
        }
        let waits = self.fetching.asked_at != Time::ZERO;
        let asked_lately =
            waits && cx.now.since(self.fetching.asked_at) < cx.shape.retry.times(PATIENCE);
        self.fetching.idle = self.is_full(cx);
        if asked_lately || !self.lacks(cx.me, cx.now, cx.shape.retry) || self.fetching.idle {
            return;
        }
        let table = self.my_vote.is_some() && self.table_at != self.known;
        if let Some(silent) = self.fetching.asked.filter(|_| waits) {
            self.fetching.trimmed.insert(silent, u64::MAX);
        }
        let mut able = self.able(cx);
        self.fetching.idle = able.is_empty();
        if able.is_empty() {
            return;
        }
        // Each keeps what its own checkpoint lacks: another may have what one has let go of.
        if able.iter().any(|p| self.may_hold(*p)) {
            able.retain(|p| self.may_hold(*p));
        }
        // [MRP 3:7]
        // Who answers is asked again: what comes next is in its memory by then.
        self.fetching.turn += usize::from(waits);
        self.fetching.asked_at = cx.now;
        let to = able[self.fetching.turn % able.len()];
        self.fetching.asked = Some(to);
        cx.say(to, Word::Fetch { ring: self.id, from: self.known, table });
    }

    /// Who can be asked for what this member lacks.
    fn able(&self, cx: &Cx<'_>) -> Vec<Pid> {
        let table = self.my_vote.is_some() && self.table_at != self.known;
        // Only acceptors have tables; an older one is as good.
        let enough = |p: Pid| match table {
            true => self.shape.acceptor(p).is_some(),
            false => self.is_ahead(p),
        };
        self.others(cx.me).filter(|&p| enough(p) && cx.reaches(p)).collect()
    }

    /// Whether `p` knows more than this member.
    fn is_ahead(&self, p: Pid) -> bool {
        self.shape.member(p).is_some_and(|at| self.peers[at].known > self.known)
    }

    /// Whether `p` may have what comes next here: it knows it, and has not said that it has let go of it.
    fn may_hold(&self, p: Pid) -> bool {
        let gone = self.fetching.trimmed.get(&p).is_some_and(|floor| *floor > self.known);
        self.is_ahead(p) && !gone
    }

    /// `p` has nothing below `floor`, and this member needs that. It goes on from the lowest floor, unless
    /// there is another to be asked who may have it.
    fn pass_over(&mut self, p: Pid, floor: u64, cx: &mut Cx<'_>) {
        self.fetching.trimmed.insert(p, floor);
        if self.able(cx).into_iter().any(|q| self.may_hold(q)) {
            self.fetching.asked_at = Time::ZERO;
            return;
        }
        let floors = self.fetching.trimmed.values().copied().filter(|at| *at > self.known);
        let lowest = floors.min().unwrap_or(floor);
        self.fetching.trimmed.clear();
        self.jump(lowest, cx);
    }

    /// When to look again whether something is missing. Where there is nobody to ask, the next sign
    /// of life brings it round.
    pub(super) fn fetch_at(&self, me: Pid, retry: Span) -> Time {
        if self.fetching.idle {
            return Time::NEVER;
        }
        let table = self.my_vote.is_some() && self.table_at != self.known;
        let others = self.shape.members.iter().zip(&self.peers).filter(|(p, _)| **p != me);
        let ahead = others.map(|(_, standing)| standing.known).max().unwrap_or(0);
        if table || self.known < self.start || ahead > self.known {
            let asked = match self.fetching.asked_at {
                Time::ZERO => Time::ZERO,
                at => at + retry.times(PATIENCE),
            };
            asked.max(self.fetching.seen_at + retry)
        } else {
            Time::NEVER
        }
    }

    /// What a member that lacks instances from `from` on can be told. `read` has values that were read
    /// for it, by record.
    pub(super) fn serve(
        &self,
        (from, table): (u64, bool),
        read: &BTreeMap<u64, Value>,
        pass_bytes: usize,
    ) -> Served {
        let (mut at, mut bytes, mut entries) = (from.max(self.book.floor()), 0, Vec::new());
        if at == from {
            let most = pass_bytes.saturating_mul(LESSON).min(LESSON_BYTES_MAX);
            while at < self.known && bytes < most {
                let Some((first, slot)) = self.book.at(at) else { break };
                let Some(value) = slot.value.as_ref().or_else(|| read.get(&slot.record)) else {
                    if entries.is_empty() {
                        return Served::Load(first);
                    }
                    break;
                };
                let entry = Entry { first, ballot: slot.ballot, value: value.clone() };
                let entry = shorten(cut(entry, at), self.known);
                bytes += entry.value.size();
                at = entry.end();
                entries.push(entry);
            }
        }
        let whole = at >= self.known && self.table_at == self.known && self.my_vote.is_some();
        let lesson = Lesson {
            entries,
            known: self.known,
            floor: self.book.floor(),
            table: (table && whole).then(|| self.table.clone()),
        };
        Served::Word(Word::Learn { ring: self.id, lesson })
    }

    /// Decided instances come.
    pub(super) fn on_learn(
        &mut self,
        from: Pid,
        lesson: Lesson,
        cx: &mut Cx<'_>,
    ) -> Result<(), &'static str> {
        let at = self.shape.member(from).ok_or("what one knows who is not in the ring")?;
        let Lesson { entries, known, floor, table } = lesson;
        if floor.max(known) > INSTANCE_MAX {
            return Err("instances that there are not");
        }
        self.peers[at].known = self.peers[at].known.max(known);
        self.fetching.trimmed.remove(&from);
        // Not silent, whatever it brings: what it was asked for may have come some other way.
        self.fetching.asked = self.fetching.asked.filter(|asked| *asked != from);
        let before = (self.known, self.table_at);
        if floor > self.known {
            self.pass_over(from, floor, cx);
        }
        for entry in entries {
            if !entry.makes_sense(&self.shape.acceptors, cx.shape.cluster.processes()) {
                return Err("a value that makes no sense");
            }
            if entry.first > self.known {
                break;
            }
            self.learn(entry, cx);
        }
        if let Some(table) = table.filter(|table| table.len() == self.table.len()) {
            // Whoever gives one has everything in it that it knows.
            self.take_table(table, known);
        }
        self.fetching.more = self.known < known && self.may_hold(from);
        if before != (self.known, self.table_at) {
            // More may be had at once.
            self.fetching.asked_at = Time::ZERO;
        }
        self.advance(cx);
        Ok(())
    }

    /// Takes over who proposed what, as of instance `at`, if what came since then is held here.
    fn take_table(&mut self, mut table: Rows, at: u64) {
        if self.table_at >= at || at < self.book.floor() || at > self.known {
            return;
        }
        for (first, slot) in self.book.from(at).take_while(|(first, _)| *first < self.known) {
            let Some(value) = &slot.value else { return };
            debug_assert!(first + slot.instances > at);
            for packed in value.messages() {
                table[packed.msg.sender.index()] = (packed.life, packed.number);
            }
        }
        (self.table, self.table_at) = (table, self.known);
    }

    /// Everything below `floor` is gone everywhere, as far as others can be asked: goes on from there.
    /// Whoever has not applied it needs the state of another.
    fn jump(&mut self, floor: u64, cx: &mut Cx<'_>) {
        self.book.trim(floor);
        self.known = self.known.max(floor);
        self.decided = self.decided.max(floor);
        if self.my_vote.is_some() && !cx.shape.mutants.is(Mutant::ForgetsWhatItPassed) {
            // Else what was accepted there, and not decided, would be taken for decided after a
            // restart.
            cx.keep.write(self.base(), None);
        }
        self.outran();
    }

    /// A decided entry, whose first instance is not beyond what is known.
    ///
    /// Its ballot is not below the one in which it was decided: whoever knows an entry to be decided
    /// accepted it in that ballot or a later one, or was told by one who did. So every run of this
    /// ballot or a later one has the same value there, and runs of earlier ones may not.
    fn learn(&mut self, entry: Entry, cx: &mut Cx<'_>) {
        if entry.ballot > self.ballot && self.ballot != Ballot::NONE {
            // The run that is followed here is over.
            if self.lead.as_ref().is_some_and(|lead| lead.ballot < entry.ballot) {
                self.demoted(entry.ballot, cx);
            }
            self.promised = self.promised.max(entry.ballot);
        }
        while self.known < entry.end() {
            let entry = cut(entry.clone(), self.known);
            let in_run = self.ballot != Ballot::NONE
                && self.settled == self.ballot
                && (entry.ballot <= self.ballot || cx.shape.mutants.is(Mutant::CountsOlderRuns))
                && self.known >= self.start;
            if in_run && self.known < self.end {
                self.know(entry.end().min(self.end));
                continue;
            }
            if in_run && self.ballot >= self.promised {
                self.accept(Entry { ballot: self.ballot, ..entry }, cx);
                self.know(self.end);
                continue;
            }
            let entry = match self.ballot {
                _ if self.known >= self.start => entry,
                Ballot::NONE => entry,
                _ => shorten(entry, self.start),
            };
            let end = entry.end();
            let durable = self.my_vote.is_some() && cx.keep.storage() != Storage::Memory;
            let record = match durable {
                true => cx.keep.write(Record::Learn { ring: self.id, entry: entry.clone() }, None),
                false => super::book::NO_RECORD,
            };
            self.book.put(entry, record);
            self.know(end);
            self.outran();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::Bytes;
    use super::super::rings::{Around, Rings, shapes};
    use super::super::value::Proposal;
    use super::*;
    use amcast_core::{Cluster, Gid, GroupSet, MsgId};

    /// A ring at process `me`, which knows the batches of some instances; the one of instance `i` has
    /// proposal `i + 1` of process 0.
    fn ring(me: Pid, instances: core::ops::Range<u64>) -> Ring {
        let cluster = Cluster::new(1, 3, 0).unwrap();
        let shape = shapes(&cluster, Rings::Global, &[], Around::Nodes).pop().unwrap();
        let mut ring = Ring::new(0, shape, me, cluster.processes());
        ring.book.trim(instances.start);
        (ring.known, ring.table_at) = (instances.start, instances.start);
        ring.table[0] = (0, instances.start);
        for first in instances {
            let msg = MsgId { sender: Pid(0), seq: first };
            let dst = GroupSet::one(Gid(0));
            let mut bytes = Vec::new();
            Proposal { msg, life: 0, number: first + 1, dst, payload: b"x" }.encode(&mut bytes);
            let value = Value::Batch(Bytes::from(&bytes[..]));
            ring.book.put(Entry { first, ballot: Ballot::new(1, Pid(0)), value }, 0);
            ring.know(first + 1);
        }
        ring
    }

    /// The table that a process gives to one that asks from an instance on.
    fn given(ring: &Ring, from: u64) -> Option<(Rows, u64)> {
        match ring.serve((from, true), &BTreeMap::new(), 1 << 20) {
            Served::Word(Word::Learn { lesson, .. }) => Some((lesson.table?, lesson.known)),
            _ => panic!("it is in memory"),
        }
    }

    #[test]
    fn a_table_is_brought_up_to_what_came_since() {
        let giver = ring(Pid(1), 0..8);
        assert_eq!(giver.table[0], (0, 8));
        // It has all from 5 on, and lost who proposed what; while it asks, it learns more than the giver.
        let mut asker = ring(Pid(2), 5..5);
        for known in [7, 8, 11] {
            let source = ring(Pid(2), 5..known);
            (asker.book, asker.known, asker.table_at) = (source.book, source.known, 0);
            let (table, at) = given(&giver, asker.known).expect("also to who knows more");
            asker.take_table(table, at);
            assert_eq!(asker.table_at, if known < 8 { 0 } else { known });
        }
        assert_eq!(asker.table[0], (0, 11));
    }

    #[test]
    fn a_table_that_is_too_old_or_too_new_is_not_taken() {
        let (older, newer) = (ring(Pid(1), 0..4), ring(Pid(1), 0..20));
        let mut asker = ring(Pid(2), 6..9);
        asker.table_at = 0;
        for giver in [&older, &newer] {
            asker.take_table(giver.table.clone(), giver.known);
            assert_eq!(asker.table_at, 0);
        }
    }
}
