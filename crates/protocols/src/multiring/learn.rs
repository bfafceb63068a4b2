//! How a member gets what it missed of a ring: decided instances, from whoever has them.

use super::keep::{Record, Storage};
use super::ring::{Cx, Ring, cut, shorten};
use super::value::{Ballot, Entry, INSTANCE_MAX};
use super::word::{Rows, Word};
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};

/// What a member asked for that it lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fetching {
    /// When others were asked last.
    asked_at: Time,
    /// Whom to ask next.
    turn: usize,
    /// What was known when it was looked last, and since when that has not grown.
    seen: u64,
    seen_at: Time,
}

/// The answer to a fetch, as far as it is in memory.
pub(super) enum Served {
    /// Say this.
    Word(Word),
    /// The slot that begins with this instance must be read from disk first; its record.
    Load(u64, u64),
}

/// What came with an answer.
pub(super) struct Lesson {
    pub(super) upto: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) known: u64,
    pub(super) floor: u64,
    pub(super) table: Option<Rows>,
}

impl Ring {
    /// Whether this member has less than it should have by now.
    fn lacks(&self, me: Pid, now: Time, retry: Span) -> bool {
        let table = self.my_vote.is_some() && self.table_at != self.known;
        let waits = self.lead.as_ref().is_some_and(|lead| !lead.is_active(self.ballot));
        let at_once = table || self.known < self.start;
        let ahead = || {
            let others = self.shape.members.iter().zip(&self.peers).filter(|(p, _)| **p != me);
            others.map(|(_, standing)| standing.known).max().unwrap_or(0)
        };
        let soon = waits || now.since(self.fetching.seen_at) >= retry;
        at_once || soon && ahead() > self.known
    }

    /// Asks for what it lacks, another one each time.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>) {
        if self.fetching.seen != self.known {
            (self.fetching.seen, self.fetching.seen_at) = (self.known, cx.now);
        }
        let asked_lately = self.fetching.asked_at != Time::ZERO
            && cx.now.since(self.fetching.asked_at) < cx.shape.retry;
        if asked_lately || !self.lacks(cx.me, cx.now, cx.shape.retry) || self.is_full(cx) {
            return;
        }
        let table = self.my_vote.is_some() && self.table_at != self.known;
        let able = |p: &Pid| {
            let Some(at) = self.shape.member(*p) else { return false };
            let knows = self.peers[at].known;
            let enough = knows > self.known || table && knows >= self.known;
            // Only acceptors have tables.
            enough && (!table || self.shape.acceptor(*p).is_some()) && !cx.suspects(*p)
        };
        let able: Vec<Pid> = self.others(cx.me).filter(able).collect();
        if able.is_empty() {
            return;
        }
        // [MRP 3:7]
        self.fetching.turn += 1;
        self.fetching.asked_at = cx.now;
        let to = able[self.fetching.turn % able.len()];
        cx.say(to, Word::Fetch { ring: self.id, from: self.known, table });
    }

    /// When to look again whether something is missing.
    pub(super) fn fetch_at(&self, me: Pid, retry: Span) -> Time {
        let table = self.my_vote.is_some() && self.table_at != self.known;
        let others = self.shape.members.iter().zip(&self.peers).filter(|(p, _)| **p != me);
        let ahead = others.map(|(_, standing)| standing.known).max().unwrap_or(0);
        if table || self.known < self.start || ahead > self.known {
            self.fetching.asked_at.max(self.fetching.seen_at) + retry
        } else {
            Time::NEVER
        }
    }

    /// What a member that lacks instances from `from` on can be told.
    pub(super) fn serve(&self, from: u64, table: bool, pass_bytes: usize) -> Served {
        let (mut at, mut bytes, mut entries) = (from.max(self.book.floor()), 0, Vec::new());
        if at == from {
            while at < self.known && bytes < pass_bytes {
                let Some((first, slot)) = self.book.at(at) else { break };
                if slot.value.is_none() {
                    if entries.is_empty() {
                        return Served::Load(first, slot.record);
                    }
                    break;
                }
                let Some(entry) = self.book.entry(at) else { break };
                let entry = shorten(entry, self.known);
                bytes += entry.value.size();
                at = entry.end();
                entries.push(entry);
            }
        }
        let whole = at == self.known && self.table_at == self.known && self.my_vote.is_some();
        Served::Word(Word::Learn {
            ring: self.id,
            from,
            upto: at,
            entries,
            known: self.known,
            floor: self.book.floor(),
            table: (table && whole).then(|| self.table.clone()),
        })
    }

    /// Decided instances come.
    pub(super) fn on_learn(
        &mut self,
        from: Pid,
        lesson: Lesson,
        cx: &mut Cx<'_>,
    ) -> Result<(), &'static str> {
        let at = self.shape.member(from).ok_or("what one knows who is not in the ring")?;
        let Lesson { upto, entries, known, floor, table } = lesson;
        if floor.max(known) > INSTANCE_MAX {
            return Err("instances that there are not");
        }
        self.peers[at].known = self.peers[at].known.max(known);
        let before = (self.known, self.table_at);
        if floor > self.known {
            self.jump(floor, cx);
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
        if let Some(table) = table
            && table.len() == self.table.len()
            && upto == self.known
            && self.table_at != self.known
        {
            (self.table, self.table_at) = (table, upto);
        }
        if before != (self.known, self.table_at) {
            // More may be had at once.
            self.fetching.asked_at = Time::ZERO;
        }
        self.advance(cx);
        Ok(())
    }

    /// Everything below `floor` is gone everywhere: goes on from there. Whoever has not applied it
    /// needs the state of another.
    fn jump(&mut self, floor: u64, cx: &mut Cx<'_>) {
        self.book.trim(floor);
        self.known = self.known.max(floor);
        self.decided = self.decided.max(floor);
        if self.my_vote.is_some() {
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
                && entry.ballot <= self.ballot
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
