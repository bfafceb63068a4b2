//! What a process does with its log: takes back what earlier lives wrote, reads again what left its
//! memory, and lets go of what nobody needs any more.

use super::keep::{Act, Record};
use super::learn::Served;
use super::process::{IDLE_INSTANCES, LOAD, LOADS_MAX, MultiRing, TRIM_RECORDS};
use super::rings::{Point, RingId};
use super::value::Value;
use super::word::Packet;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::step::{Note, Ticket};
use amcast_core::{Outbox, Output, Pid};
use core::mem;

impl MultiRing {
    pub(super) fn checkpointed(&mut self, position: u64) {
        // That nothing was delivered behind it counts only once that is written.
        let point = if position == self.idle.0 { self.idle.1 } else { Point::of(position) };
        self.checkpoint = self.checkpoint.max((position, point));
        self.note_idle();
    }

    /// Writes down that nothing was delivered since the checkpoint, so that the log may be trimmed up
    /// to here although the application has nothing new.
    pub(super) fn note_idle(&mut self) {
        let (position, point) = (self.merge.delivered, self.merge.point);
        let still = position == self.checkpoint.0 && self.keep.is_durable();
        if still && point.merged >= self.idle_written.merged + IDLE_INSTANCES {
            self.idle_written = point;
            let act = Act::Idle { position, point };
            self.keep.write(Record::Idle { position, point }, Some(act));
        }
    }

    /// Up to which point the application's state is not lost, whatever happens to this process alone;
    /// in memory, what is applied.
    pub(super) fn safe_point(&self) -> Point {
        if self.keep.is_durable() {
            self.checkpoint.1
        } else {
            self.merge.point_of(self.merge.applied)
        }
    }

    pub(super) fn on_fetch(
        &mut self,
        from: Pid,
        id: RingId,
        at: u64,
        table: bool,
        out: &mut Outbox<Messages<Packet>>,
    ) {
        let Some(Some(ring)) = self.rings.get(usize::from(id)) else { return };
        // [MRP 3:2]
        match ring.serve(at, table, self.shape.pass_bytes) {
            Served::Word(word) => self.say(from, word),
            Served::Load(first, record) => {
                self.readers.insert((id, from), (at, table));
                self.load(id, first, record, out);
            }
        }
    }

    /// Reads a record of the log again, and those behind it that will be wanted next.
    pub(super) fn load(
        &mut self,
        id: RingId,
        first: u64,
        record: u64,
        out: &mut Outbox<Messages<Packet>>,
    ) {
        let Some(Some(ring)) = self.rings.get(usize::from(id)) else { return };
        let missing = ring.book.from(first).filter(|(_, slot)| slot.value.is_none());
        let wanted: Vec<(u64, u64)> =
            missing.take(LOADS_MAX / 2).map(|(first, slot)| (first, slot.record)).collect();
        debug_assert!(wanted.first() == Some(&(first, record)));
        for (first, record) in wanted {
            if self.loads.len() < LOADS_MAX && !self.loads.contains_key(&record) {
                self.loads.insert(record, (id, first));
                out.push(Output::Load { ticket: Ticket(LOAD | record), number: record });
            }
        }
    }

    pub(super) fn on_loaded(
        &mut self,
        ticket: Ticket,
        record: Option<&[u8]>,
        out: &mut Outbox<Messages<Packet>>,
    ) {
        let number = ticket.0 & !LOAD;
        let Some((id, first)) = self.loads.remove(&number) else { return };
        let value: Option<Value> = match record.and_then(Record::read) {
            Some(Record::Accept { entry, .. } | Record::Learn { entry, .. }) => Some(entry.value),
            _ => None,
        };
        let Some(Some(ring)) = self.rings.get_mut(usize::from(id)) else { return };
        let is_wanted = ring.book.at(first).is_some_and(|(_, slot)| slot.record == number);
        match value {
            Some(value) => ring.book.fill(first, number, value),
            None if is_wanted => {
                // The disk is damaged. Whoever else asked asks another, too.
                self.readers.retain(|&(r, _), _| r != id);
                if self.merge.stands_at(id, first) {
                    // Only a state helps.
                    self.want_state(out);
                }
                return;
            }
            // It was trimmed meanwhile: who waits for it is told so.
            None => {}
        }
        let waiting: Vec<_> = self.readers.keys().copied().filter(|(r, _)| *r == id).collect();
        for key in waiting {
            if let Some((at, table)) = self.readers.remove(&key) {
                self.on_fetch(key.1, id, at, table, out);
            }
        }
    }

    /// Lets go of what nobody needs any more.
    pub(super) fn trim(&mut self) {
        for ring in self.rings.iter_mut().flatten() {
            // What its own application lacks stays: `held_bytes` bounds that.
            ring.forget(ring.trim.min(ring.mine.merged));
            let merged = ring.mine.merged.min(ring.known);
            ring.book.evict(merged, self.shape.cache_bytes);
        }
        let floors = |id: RingId| {
            self.rings[usize::from(id)].as_ref().map_or(u64::MAX, |ring| ring.book.floor())
        };
        let idle = self.keep.idle(&floors);
        if idle < TRIM_RECORDS || !self.begun || self.recovery.lost {
            return;
        }
        // [MRP 3:5]
        let before = self.keep.trim(idle);
        for ring in self.rings.iter().flatten().filter(|ring| ring.my_vote.is_some()) {
            self.keep.write(ring.base(), None);
        }
        let (position, point) = self.idle;
        self.keep.write(Record::Idle { position, point }, None);
        let of = self.group_memories();
        self.keep.write(Record::Memories { of }, Some(Act::Trim { before }));
    }

    /// Takes a record of an earlier life.
    pub(super) fn restore(
        &mut self,
        number: u64,
        bytes: &[u8],
        out: &mut Outbox<Messages<Packet>>,
    ) {
        let record = Record::read(bytes).filter(|_| !self.unreadable);
        let Some(record) = record else {
            // It may have been a promise, or have replaced what was accepted: nothing is relied on
            // that the log says from there on.
            self.keep.skip(number);
            if !mem::replace(&mut self.unreadable, true) {
                let why = "a record of the log that makes no sense";
                out.note(Note::Malformed(self.me, why));
            }
            return;
        };
        self.keep.restore(number, &record);
        match &record {
            Record::Idle { position, point } => {
                self.idle = self.idle.max((*position, *point));
                self.idle_written = self.idle.1;
            }
            Record::Lost { memory } => {
                self.recovery.lost = true;
                let held = &mut self.memories[self.me.index()];
                *held = (*held).max(*memory);
            }
            Record::Memories { of } => {
                self.recovery.lost = false;
                let members: Vec<Pid> = self.shape.cluster.members(self.group).collect();
                for (p, &memory) in members.into_iter().zip(of) {
                    let held = &mut self.memories[p.index()];
                    *held = (*held).max(memory);
                }
            }
            Record::Promise { ring, .. }
            | Record::Accept { ring, .. }
            | Record::Settle { ring, .. }
            | Record::Learn { ring, .. }
            | Record::Base { ring, .. } => {
                let (id, cache) = (*ring, self.shape.cache_bytes);
                if let Some(Some(ring)) = self.rings.get_mut(usize::from(id)) {
                    ring.restore(number, record);
                    let known = ring.known;
                    ring.book.evict(known, cache);
                }
            }
        }
    }
}
