//! Writes and reads on their way.

use super::{MemoryOccurrence, OwnedOutcome, Ram, RamTimer, RawLine, WriteOrder};
use crate::chooser::{Chooser, Concern};
use alloc::vec::Vec;
use amcast_core::memory::{LINE_WORDS, LineRange, RegionId, WriteSource};
use amcast_core::step::Ticket;
use amcast_core::{Pid, Span, Time};
use core::ops::{Index, IndexMut};
use core::sync::atomic::Ordering;

/// Words that a line occupies, the stamp included.
pub(super) const STRIDE: u32 = LINE_WORDS as u32 + 1;

/// Where a write goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteTarget {
    /// The process whose memory it is.
    pub(super) owner: Pid,
    pub(super) region: RegionId,
    /// The first line.
    pub(super) at: u32,
}

/// A write on its way.
#[derive(Debug)]
pub(super) struct WriteInFlight {
    /// Its place among all posts.
    order: u64,
    writer: Pid,
    owner: Pid,
    /// The owner's life it is meant for.
    life: u32,
    region: RegionId,
    at: u32,
    source: WriteSource,
    /// The source as it was read; until then it is read where it lies.
    copy: Option<Vec<RawLine>>,
    ticket: Option<Ticket>,
    bell: bool,
    /// Words stored so far.
    stored: u32,
    /// Words that will ever be stored.
    limit: u32,
    /// When the last of its stores is due.
    due: Time,
    /// Stores before this are put off: it was denied and lingers.
    not_before: Time,
    fate: WriteFate,
    /// Its answer waits only for those before it.
    answered: bool,
    /// How many entries of the queue speak of it.
    events: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteFate {
    Open,
    Denied,
    Lost,
}

impl WriteInFlight {
    const fn words(&self) -> u32 {
        self.source.count() * STRIDE
    }

    const fn whole(&self) -> bool {
        self.stored == self.words()
    }

    /// Whether words of it appear in this life of `owner` by `soon`.
    pub(super) fn reaches(&self, owner: Pid, life: u32, soon: Time) -> bool {
        let goes_on = self.stored < self.limit && self.due.max(self.not_before) <= soon;
        goes_on && (self.owner, self.life) == (owner, life)
    }

    /// Writes of one process appear in this order.
    pub(super) const fn rank(&self) -> u64 {
        self.order
    }

    /// Whether it appears only if its region lets its writer in.
    pub(super) fn asks(&self) -> bool {
        self.fate == WriteFate::Open
    }

    pub(super) const fn lane(&self) -> (Pid, RegionId) {
        (self.writer, self.region)
    }

    /// The words that are still to be stored: the line of the region, and the place in the write.
    pub(super) fn words_left(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let at = self.at;
        (self.stored..self.limit).map(move |word| (at + word / STRIDE, word))
    }

    /// Words before this one were stored; whether the owner is to be woken for that.
    pub(super) fn has_stored(&mut self, words: u32) -> bool {
        self.stored = self.stored.max(words);
        self.bell && self.whole()
    }
}

/// A read on its way.
#[derive(Debug)]
pub(super) struct ReadInFlight {
    reader: Pid,
    reader_life: u32,
    owner: Pid,
    life: u32,
    region: RegionId,
    at: u32,
    ticket: Ticket,
    lines: Vec<RawLine>,
    lost: bool,
    /// When it looks at its first lines.
    due: Time,
    /// How many lines, from the first on, it has found in the middle of a step of the owner.
    found: u32,
    events: u8,
}

impl ReadInFlight {
    /// Whether it looks for the first time by `soon`, at this life of `owner`.
    pub(super) fn looks(&self, owner: Pid, life: u32, soon: Time) -> bool {
        let open = !self.lost && self.due != Time::NEVER && self.due <= soon;
        open && (self.owner, self.life) == (owner, life)
    }

    /// The region, the first line and how many.
    pub(super) fn place(&self) -> (RegionId, u32, u32) {
        (self.region, self.at, self.lines.len() as u32)
    }

    /// It has found its first lines.
    pub(super) fn has_looked(&mut self, lines: Vec<RawLine>) {
        (self.found, self.due) = (lines.len() as u32, Time::NEVER);
        self.lines[..lines.len()].copy_from_slice(&lines);
    }
}

/// Accesses in flight, by number.
#[derive(Debug)]
pub(super) struct InFlightTable<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for InFlightTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> InFlightTable<T> {
    fn add(&mut self, item: T) -> usize {
        if let Some(i) = self.free.pop() {
            self.slots[i] = Some(item);
            return i;
        }
        self.slots.push(Some(item));
        self.slots.len() - 1
    }

    fn remove(&mut self, i: usize) -> Option<T> {
        self.free.push(i);
        self.slots[i].take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.slots.iter().enumerate().filter_map(|(i, slot)| Some((i, slot.as_ref()?)))
    }
}

impl<T> Index<usize> for InFlightTable<T> {
    type Output = T;
    fn index(&self, i: usize) -> &T {
        self.slots[i].as_ref().expect("entries of the queue are counted")
    }
}

impl<T> IndexMut<usize> for InFlightTable<T> {
    fn index_mut(&mut self, i: usize) -> &mut T {
        self.slots[i].as_mut().expect("entries of the queue are counted")
    }
}

impl Ram {
    pub(super) fn write(
        &mut self,
        now: Time,
        from: Pid,
        target: WriteTarget,
        source: WriteSource,
        (ticket, bell): (Option<Ticket>, bool),
        chooser: &mut Chooser,
    ) {
        let leaves = self.depart(now, from, source.count());
        let owner = target.owner;
        let mut write = self.flight(from, target, source, ticket);
        write.bell = bell;
        let reachable = self.reachable(from, owner);
        let cut = now < self.path(from, owner).cut;
        if !reachable || cut {
            write.fate = WriteFate::Lost;
        }
        // Once it is answered the writer may change the source.
        let made_alone = matches!(source, WriteSource::Made { rest, .. } if rest.count == 0);
        if reachable && !made_alone && (cut || chooser.chance(Concern::Ram, self.model.early_ppm)) {
            write.copy = Some(self.read_source(&write));
        }
        let index = self.writes.add(write);
        let done = if reachable { self.schedule_stores(leaves, index, chooser) } else { leaves };
        if ticket.is_some() {
            let wait = if reachable && !cut { self.model.answer } else { self.model.lost };
            let at = if cut { leaves } else { done } + self.draw(wait, chooser);
            self.path_mut(from, owner).asked.push_back(index);
            self.answer_at(at, index);
        } else if !reachable {
            self.writes.remove(index);
        }
    }

    /// Plans the stores of a write; gives the time of the last.
    fn schedule_stores(&mut self, leaves: Time, index: usize, chooser: &mut Chooser) -> Time {
        let write = &self.writes[index];
        let from = write.writer;
        let owner = write.owner;
        let words = write.words();
        let region = usize::from(write.region.0);
        let gate = self.processes[owner.index()].gates[region];
        let path = self.path(from, owner);
        let ready = leaves.max(path.stalled).max(path.cut);
        let behind = match self.model.order {
            WriteOrder::PerRegion => gate.last,
            WriteOrder::PerOwner => gate.last.max(path.last),
        };
        let mut time = (ready + self.draw(self.model.write, chooser)).max(behind);
        if chooser.chance(Concern::Ram, self.model.split_ppm) {
            let mut upto = 0;
            for _ in 0..2 {
                upto += chooser.spread(Concern::Ram, u64::from(words - upto)) as u32;
                self.store_at(time, index, upto);
                time += self.draw(self.model.split, chooser);
            }
        }
        self.store_at(time, index, words);
        self.writes[index].due = time;
        self.processes[owner.index()].gates[region].last = time;
        self.path_mut(from, owner).last = time;
        time
    }

    fn flight(
        &mut self,
        writer: Pid,
        WriteTarget { owner, region, at }: WriteTarget,
        source: WriteSource,
        ticket: Option<Ticket>,
    ) -> WriteInFlight {
        self.posted += 1;
        WriteInFlight {
            order: self.posted,
            writer,
            owner,
            life: self.processes[owner.index()].life,
            region,
            at,
            source,
            copy: None,
            ticket,
            bell: false,
            stored: 0,
            limit: source.count() * STRIDE,
            due: Time::NEVER,
            not_before: Time::ZERO,
            fate: WriteFate::Open,
            answered: false,
            events: 0,
        }
    }

    /// Whether the owner lives, and the other knows of this life.
    pub(super) fn reachable(&self, from: Pid, owner: Pid) -> bool {
        let process = &self.processes[owner.index()];
        let path = self.path(from, owner);
        process.alive && path.known == process.life && !path.unreached
    }

    fn store_at(&mut self, at: Time, write: usize, upto: u32) {
        self.writes[write].events += 1;
        self.due.push(at, RamTimer::Store { write, upto });
    }

    fn answer_at(&mut self, at: Time, write: usize) {
        self.writes[write].events += 1;
        self.due.push(at, RamTimer::Answer { write });
    }

    /// An entry of the queue about this write is dealt with.
    fn settle(&mut self, write: usize) {
        let flight = &mut self.writes[write];
        flight.events -= 1;
        if flight.events == 0 {
            self.writes.remove(write);
        }
    }

    fn read_source(&self, write: &WriteInFlight) -> Vec<RawLine> {
        let line =
            |i| core::array::from_fn(|word| self.source_word(write, i * STRIDE + word as u32));
        (0..write.source.count()).map(line).collect()
    }

    /// One word of what a write carries, from where it lies now.
    pub(super) fn source_word(&self, write: &WriteInFlight, word: u32) -> u64 {
        let (line, word) = (word / STRIDE, word % STRIDE);
        if let Some(copy) = &write.copy {
            return copy[line as usize][word as usize];
        }
        let own = |region, at: u32| {
            let lines = self.lines(write.writer, region);
            lines[at as usize].raw(word as usize).load(Ordering::Relaxed)
        };
        match &write.source {
            WriteSource::Copy(lines) => own(lines.region, lines.at + line),
            WriteSource::Made { stamp, .. } if word == LINE_WORDS as u32 => stamp.0,
            WriteSource::Made { head, .. } if line == 0 => head[word as usize],
            WriteSource::Made { rest, .. } => own(rest.region, rest.at + line - 1),
        }
    }

    pub(super) fn store(&mut self, now: Time, index: usize, upto: u32, chooser: &mut Chooser) {
        let write = &self.writes[index];
        let (owner, region) = (write.owner, write.region);
        let process = &self.processes[owner.index()];
        if write.life != process.life {
            return self.settle(index);
        }
        let gate = process.gates[usize::from(region.0)];
        let wait = if write.fate == WriteFate::Denied { write.not_before } else { gate.floor };
        if now < wait {
            self.store_at(wait, index, upto);
            return self.settle(index);
        }
        let guarded = process.specs[usize::from(region.0)].guarded;
        if guarded && !gate.allowed && write.fate == WriteFate::Open {
            self.deny(now, index, chooser);
            if now < self.writes[index].not_before {
                self.store_at(self.writes[index].not_before, index, upto);
                return self.settle(index);
            }
        }
        let write = &self.writes[index];
        let upto = upto.min(write.limit);
        let lines = self.lines(owner, region);
        for word in write.stored..upto {
            let value = self.source_word(write, word);
            let line = &lines[(write.at + word / STRIDE) as usize];
            line.raw((word % STRIDE) as usize).store(value, Ordering::Relaxed);
        }
        if write.stored < upto {
            let write = &mut self.writes[index];
            write.stored = upto;
            let bell = write.bell && write.whole();
            self.happened.push_back(MemoryOccurrence::Changed { owner, bell });
            self.appears(index);
        }
        self.settle(index);
    }

    /// Something of this write has appeared.
    pub(super) fn appears(&mut self, index: usize) {
        let WriteInFlight { writer, owner, order, .. } = self.writes[index];
        if order > self.processes[writer.index()].began {
            self.path_mut(writer, owner).appeared = true;
        }
    }

    /// The region of this write was revoked before the write was wholly there.
    fn deny(&mut self, now: Time, index: usize, chooser: &mut Chooser) {
        let mut write = self.writes.slots[index].take().expect("it is on its way");
        write.fate = WriteFate::Denied;
        // Once it is answered the writer may change the source.
        if write.copy.is_none() {
            write.copy = Some(self.read_source(&write));
        }
        let gate = self.processes[write.owner.index()].gates[usize::from(write.region.0)];
        if !gate.gap && chooser.chance(Concern::Ram, self.model.denied_lands_ppm) {
            let rest = u64::from(write.limit - write.stored);
            // Most land wholly; the others stop somewhere, if there is anything left to land.
            if rest > 0 && chooser.chance(Concern::Ram, 300_000) {
                write.limit -= 1 + chooser.spread(Concern::Ram, rest) as u32;
            }
            let late = if chooser.chance(Concern::Ram, self.model.denied_late_ppm) {
                self.draw(self.model.denied_late, chooser)
            } else {
                Span::ZERO
            };
            write.not_before = (now + late).max(gate.floor);
        } else {
            write.limit = write.stored;
        }
        let gate = &mut self.processes[write.owner.index()].gates[usize::from(write.region.0)];
        gate.gap |= write.limit < write.words();
        gate.floor = gate.floor.max(write.not_before);
        gate.last = gate.last.max(gate.floor);
        self.writes.slots[index] = Some(write);
    }

    pub(super) fn revoke(
        &mut self,
        now: Time,
        owner: Pid,
        region: RegionId,
        chooser: &mut Chooser,
    ) {
        self.processes[owner.index()].gates[usize::from(region.0)].allowed = false;
        if !self.processes[owner.index()].specs[usize::from(region.0)].guarded {
            return;
        }
        let life = self.processes[owner.index()].life;
        let hit = |w: &WriteInFlight| {
            (w.owner, w.region, w.life) == (owner, region, life)
                && w.fate == WriteFate::Open
                && w.stored < w.limit
        };
        for index in self.in_order(hit) {
            self.deny(now, index, chooser);
        }
    }

    fn in_order(&self, hit: impl Fn(&WriteInFlight) -> bool) -> Vec<usize> {
        let mut found: Vec<(u64, usize)> =
            self.writes.iter().filter(|(_, w)| hit(w)).map(|(i, w)| (w.order, i)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, index)| index).collect()
    }

    /// A write's answer would be at hand now, if those before it were answered.
    pub(super) fn answer(&mut self, now: Time, index: usize, chooser: &mut Chooser) {
        let write = &mut self.writes[index];
        let (writer, owner) = (write.writer, write.owner);
        let process = &self.processes[owner.index()];
        if write.fate == WriteFate::Open && write.life == process.life && write.stored < write.limit
        {
            // Held back behind a write that lingers: answered when it is there.
            let floor = process.gates[usize::from(write.region.0)].floor;
            let at = now.max(floor) + self.draw(self.model.answer, chooser);
            self.answer_at(at.max(now + Span(1)), index);
            return self.settle(index);
        }
        // The entry of the queue that is dealt with here stays counted until it is its turn.
        write.answered = true;
        while let Some(&first) = self.path(writer, owner).asked.front() {
            if !self.writes[first].answered {
                break;
            }
            self.path_mut(writer, owner).asked.pop_front();
            self.say(first);
            self.settle(first);
        }
    }

    /// Answers a write, as things are now.
    fn say(&mut self, index: usize) {
        let write = &mut self.writes[index];
        let process = &self.processes[write.owner.index()];
        let region = usize::from(write.region.0);
        let shut = process.specs[region].guarded && !process.gates[region].allowed;
        let answer = match write.fate {
            _ if write.life != process.life => OwnedOutcome::Lost,
            WriteFate::Denied => OwnedOutcome::Denied,
            WriteFate::Lost => OwnedOutcome::Lost,
            WriteFate::Open if shut => OwnedOutcome::Denied,
            WriteFate::Open => OwnedOutcome::Written,
        };
        if let Some(ticket) = write.ticket.take() {
            self.happened.push_back(MemoryOccurrence::Done { to: write.writer, ticket, answer });
        }
    }

    pub(super) fn read(
        &mut self,
        now: Time,
        from: Pid,
        owner: Pid,
        LineRange { region, at, count }: LineRange,
        ticket: Ticket,
        chooser: &mut Chooser,
    ) {
        let leaves = self.depart(now, from, 0);
        let path = self.path(from, owner);
        let (stalled, cut) = (path.stalled, path.cut);
        let lost = !self.reachable(from, owner) || now < cut;
        let read = self.reads.add(ReadInFlight {
            reader: from,
            reader_life: self.processes[from.index()].life,
            owner,
            life: self.processes[owner.index()].life,
            region,
            at,
            ticket,
            lines: alloc::vec![[0; LINE_WORDS + 1]; if lost { 0 } else { count as usize }],
            lost,
            due: Time::NEVER,
            found: 0,
            events: 1,
        });
        if lost {
            let at = leaves + self.draw(self.model.lost, chooser);
            return self.due.push(at, RamTimer::Words { read });
        }
        let mut time = leaves.max(stalled) + self.draw(self.model.read, chooser);
        let split = count > 1 && chooser.chance(Concern::Ram, self.model.split_ppm);
        let cut = if split {
            1 + chooser.spread(Concern::Ram, u64::from(count) - 1) as u32
        } else {
            count
        };
        let mut parts = [(0, cut), (cut, count)];
        // No order is promised among the lines of a read.
        if split && chooser.pick(Concern::Ram, 2) == 1 {
            parts.reverse();
        }
        self.reads[read].due = time;
        for (from, upto) in parts.into_iter().filter(|(from, upto)| from < upto) {
            self.reads[read].events += 1;
            self.due.push(time, RamTimer::Look { read, from, upto });
            if split {
                time += self.draw(self.model.split, chooser);
            }
        }
        let at = time + self.draw(self.model.answer, chooser);
        self.due.push(at, RamTimer::Words { read });
    }

    pub(super) fn look(&mut self, index: usize, from: u32, upto: u32) {
        let mut read = self.reads.slots[index].take().expect("it is on its way");
        read.due = Time::NEVER;
        if read.life == self.processes[read.owner.index()].life {
            let lines = self.lines(read.owner, read.region);
            for i in from.max(read.found)..upto {
                let line = &lines[(read.at + i) as usize];
                read.lines[i as usize] =
                    core::array::from_fn(|word| line.raw(word).load(Ordering::Relaxed));
            }
        } else {
            read.lost = true;
        }
        self.reads.slots[index] = Some(read);
        self.settle_read(index);
    }

    pub(super) fn words(&mut self, index: usize) {
        let read = &mut self.reads[index];
        let reader = &self.processes[read.reader.index()];
        if reader.alive && reader.life == read.reader_life {
            let lines = core::mem::take(&mut read.lines);
            let answer = if read.lost { OwnedOutcome::Lost } else { OwnedOutcome::Words(lines) };
            let (to, ticket) = (read.reader, read.ticket);
            self.happened.push_back(MemoryOccurrence::Done { to, ticket, answer });
        }
        self.settle_read(index);
    }

    fn settle_read(&mut self, index: usize) {
        let read = &mut self.reads[index];
        read.events -= 1;
        if read.events == 0 {
            self.reads.remove(index);
        }
    }

    /// The writer died: its accesses in flight to `owner` stop somewhere, in order, and no one is
    /// notified.
    pub(super) fn stop(&mut self, writer: Pid, owner: Pid, chooser: &mut Chooser) {
        let mut lanes: Vec<(RegionId, Vec<usize>)> = Vec::new();
        for index in self.in_order(|w| (w.writer, w.owner) == (writer, owner)) {
            let lane = match self.model.order {
                WriteOrder::PerRegion => self.writes[index].region,
                WriteOrder::PerOwner => RegionId(0),
            };
            match lanes.iter_mut().find(|(region, _)| *region == lane) {
                Some((_, writes)) => writes.push(index),
                None => lanes.push((lane, alloc::vec![index])),
            }
        }
        for (_, writes) in lanes {
            // The ordinary choice: everything that was posted arrives.
            let gone = chooser.pick(Concern::Ram, writes.len() as u64 + 1) as usize;
            let kept = writes.len() - gone;
            for (i, index) in writes.into_iter().enumerate() {
                let mut write = self.writes.slots[index].take().expect("it is on its way");
                let rest = u64::from(write.limit.saturating_sub(write.stored));
                if i == kept && rest > 0 {
                    write.limit = write.stored + chooser.spread(Concern::Ram, rest) as u32;
                } else if i >= kept {
                    write.limit = write.stored.min(write.limit);
                }
                if write.copy.is_none() && write.stored < write.limit {
                    write.copy = Some(self.read_source(&write));
                }
                write.ticket = None;
                self.writes.slots[index] = Some(write);
            }
        }
    }

    /// Accesses of this life of `writer` in flight to `owner` are lost without a trace.
    pub(super) fn forgo(&mut self, writer: Pid, owner: Pid) {
        let began = self.processes[writer.index()].began;
        let mine = |w: &WriteInFlight| (w.writer, w.owner) == (writer, owner) && w.order > began;
        for index in self.in_order(mine) {
            let write = &mut self.writes[index];
            (write.fate, write.limit) = (WriteFate::Lost, write.stored);
        }
    }

    /// Accesses in flight from `writer` to `owner` are answered `Lost`, and land all the same.
    pub(super) fn lose(&mut self, writer: Pid, owner: Pid) {
        let open =
            |w: &WriteInFlight| (w.writer, w.owner) == (writer, owner) && w.fate == WriteFate::Open;
        for index in self.in_order(|w| open(w) && !w.whole()) {
            let mut write = self.writes.slots[index].take().expect("it is on its way");
            write.fate = WriteFate::Lost;
            if write.copy.is_none() {
                write.copy = Some(self.read_source(&write));
            }
            self.writes.slots[index] = Some(write);
        }
    }
}
