//! The commands that wait, and for what.
//!
//! Each waiting command counts the earlier commands that it conflicts with and that have not run
//! (once per shard), and knows those that count it. Entering and leaving cost time in proportion
//! to a command's own keys and conflicts, not to the queue: also where it names a key many times,
//! and where many others read that key.

use super::sessions::Admission;
use super::{Limits, Payload};
use crate::envelope::Stamp;
use crate::hash::Keyed;
use crate::machine::{Access, ShardPosition};
use amcast_core::{Gid, GroupSet, MsgId};
use indexmap::IndexMap;
use indexmap::map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A command that waits.
pub(super) struct WaitingEntry {
    pub(super) id: MsgId,
    pub(super) dst: GroupSet,
    /// Where it was delivered so far, in order of arrival.
    pub(super) places: Vec<ShardPosition>,
    pub(super) payload: Arc<[u8]>,
    /// Bytes of its message, and those of its parts once they are put together.
    bytes: usize,
    assembled: usize,
    /// Its admission, from its lowest destination's delivery.
    pub(super) admission: Admission,
    access: Access,
    /// By how much it may make what each of its shards takes grow.
    growth: u64,
    /// Those of its shards where it waits for all in front of it, and all behind waits for it.
    pub(super) exact: GroupSet,
    /// Earlier conflicting commands that have not run.
    blockers: usize,
    /// Later commands that wait for this one, as often as they count it.
    blocks: Vec<u64>,
}

impl WaitingEntry {
    fn ready(&self) -> bool {
        self.blockers == 0 && self.places.len() == self.dst.len()
    }
}

/// The commands that wait to use a key: the last writer, and the readers behind it.
#[derive(Default)]
struct Tail {
    writer: Option<u64>,
    readers: BTreeSet<u64>,
}

/// A command that was delivered in one of its shards.
pub(super) struct Arrival {
    pub(super) place: ShardPosition,
    /// The position in front of it.
    pub(super) before: u64,
    /// Its admission, if this is its lowest destination.
    pub(super) admission: Option<Admission>,
    /// By how much it may make what each of its shards takes grow.
    pub(super) growth: u64,
    /// Whether it waits for all in front of it, and all behind it waits: what the shard takes then decides about it.
    pub(super) exact: bool,
}

/// The position and time of a shard at the arrival of a command that waits there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WaitStart {
    /// Ordered time there, the command's own included.
    pub(super) now: Stamp,
    /// Position of the command in front of it, whether that one waits or not; 0 for none.
    pub(super) before: u64,
}

/// Room for so many keys stays with a shard in which no command waits.
const TAILS_KEPT: usize = 4096;

/// One shard's waiting commands.
#[derive(Default)]
struct ShardLane {
    /// By position.
    positions: BTreeMap<u64, WaitStart>,
    bytes: usize,
    /// Bytes of those that were put together from parts that this shard kept.
    assembled: usize,
    /// By how much they may make what the shard takes grow.
    growth: u128,
    /// By the hashes of keys.
    tails: IndexMap<u64, Tail, Keyed>,
    /// The last waiting command that touches the whole shard.
    whole: Option<u64>,
    /// Commands behind it, which a new one of that kind must wait for.
    others: BTreeSet<u64>,
}

/// The waiting commands of all shards. A ticket names one; tickets grow and are not used twice.
pub(super) struct ShardLanes {
    lanes: Vec<ShardLane>,
    entries: BTreeMap<u64, WaitingEntry>,
    /// Tickets of those with several destinations.
    gathering: BTreeMap<MsgId, u64>,
    next: u64,
}

impl ShardLanes {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            lanes: (0..shards).map(|_| ShardLane::default()).collect(),
            entries: BTreeMap::new(),
            gathering: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn waiting(&self, shard: Gid) -> usize {
        self.lanes[shard.index()].positions.len()
    }

    /// Whether `shard` has no room for a message of so many bytes more.
    pub(super) fn is_full(&self, shard: Gid, bytes: usize, limits: &Limits) -> bool {
        let lane = &self.lanes[shard.index()];
        lane.positions.len() >= limits.waiting || lane.bytes + bytes > limits.waiting_bytes
    }

    /// Bytes of the commands that wait and were put together from parts that `shard` kept.
    pub(super) fn assembled_bytes(&self, shard: Gid) -> usize {
        self.lanes[shard.index()].assembled
    }

    /// By how much the commands that wait in `shard` may make what it takes grow.
    pub(super) fn growth(&self, shard: Gid) -> u128 {
        self.lanes[shard.index()].growth
    }

    /// The position and time of `shard` at the arrival of its first waiting command.
    pub(super) fn first_waiting(&self, shard: Gid) -> Option<WaitStart> {
        self.lanes[shard.index()].positions.first_key_value().map(|(_, since)| *since)
    }

    /// Whether a command with this `access` would have to wait in `shard`, if it came next.
    pub(super) fn holds_up(&self, shard: Gid, access: impl FnOnce(&mut Access)) -> bool {
        let lane = &self.lanes[shard.index()];
        if lane.positions.is_empty() {
            return false;
        }
        let mut wanted = Access::default();
        access(&mut wanted);
        lane.whole.is_some() || lane.conflicts(shard, &wanted)
    }

    /// Position of the command in front of the one that waits at `place`.
    pub(super) fn before(&self, place: &ShardPosition) -> u64 {
        self.lanes[place.shard.index()].positions[&place.position].before
    }

    /// The waiting commands, in order of their first arrival.
    pub(super) fn iter(&self) -> impl Iterator<Item = &WaitingEntry> {
        self.entries.values()
    }

    /// Takes a command that one shard delivered, behind the one at position `before`; its ticket
    /// if it can run now.
    pub(super) fn enter(
        &mut self,
        (id, dst): (MsgId, GroupSet),
        arrival: Arrival,
        payload: &Payload<'_>,
        access: impl FnOnce(&mut Access),
    ) -> Option<u64> {
        let Arrival { place, before, admission, growth, exact } = arrival;
        let known = if dst.len() > 1 { self.gathering.get(&id).copied() } else { None };
        let ticket = known.unwrap_or_else(|| {
            let mut entry = WaitingEntry {
                id,
                dst,
                places: Vec::with_capacity(dst.len()),
                payload: payload.share(),
                bytes: payload.message_bytes(),
                assembled: 0,
                admission: Admission::default(),
                access: Access::default(),
                growth,
                exact: GroupSet::EMPTY,
                blockers: 0,
                blocks: Vec::new(),
            };
            access(&mut entry.access);
            self.next += 1;
            self.entries.insert(self.next, entry);
            if dst.len() > 1 {
                self.gathering.insert(id, self.next);
            }
            self.next
        });
        let lane = &mut self.lanes[place.shard.index()];
        lane.positions.insert(place.position, WaitStart { now: place.now, before });
        let entry = self.entries.get_mut(&ticket).expect("it waits");
        if let Payload::Shared(whole) = payload {
            // The shards before this one had only its assembly.
            entry.payload = whole.clone();
            entry.assembled = whole.len();
            lane.assembled += whole.len();
        }
        lane.bytes += entry.bytes;
        lane.growth += u128::from(entry.growth);
        if exact {
            entry.exact = entry.exact.with(place.shard);
        }
        entry.places.push(place);
        entry.admission = admission.unwrap_or(entry.admission);
        let mut blockers = Vec::new();
        let whole = exact || entry.access.whole;
        lane.line_up(ticket, place.shard, (&entry.access, whole), &mut blockers);
        entry.blockers += blockers.len();
        let ready = entry.ready();
        for blocker in blockers {
            self.entries.get_mut(&blocker).expect("it waits").blocks.push(ticket);
        }
        ready.then_some(ticket)
    }

    /// Takes a command out to run it, with the position in front of each of its places; tickets of
    /// those that can run then are added to `ready`.
    pub(super) fn leave(&mut self, ticket: u64, ready: &mut Vec<u64>) -> (WaitingEntry, Vec<u64>) {
        let mut befores = Vec::new();
        let mut entry = self.entries.remove(&ticket).expect("it waits");
        self.gathering.remove(&entry.id);
        for place in &entry.places {
            let lane = &mut self.lanes[place.shard.index()];
            let since = lane.positions.remove(&place.position).expect("it waits there");
            befores.push(since.before);
            lane.bytes -= entry.bytes;
            if entry.dst.lowest() == Some(place.shard) {
                lane.assembled -= entry.assembled;
            }
            lane.growth -= u128::from(entry.growth);
            lane.step_out(ticket, place.shard, &entry.access);
        }
        for later in std::mem::take(&mut entry.blocks) {
            let waiting = self.entries.get_mut(&later).expect("it waits for this one");
            waiting.blockers -= 1;
            if waiting.ready() {
                ready.push(later);
            }
        }
        (entry, befores)
    }
}

impl ShardLane {
    /// Puts a command behind those that it conflicts with in this shard, and lists them.
    fn line_up(
        &mut self,
        ticket: u64,
        shard: Gid,
        (access, whole): (&Access, bool),
        blockers: &mut Vec<u64>,
    ) {
        blockers.extend(self.whole);
        if whole {
            blockers.extend(std::mem::take(&mut self.others));
            self.whole = Some(ticket);
            return;
        }
        self.others.insert(ticket);
        for used in access.uses.iter().filter(|u| u.shard == shard) {
            let tail = self.tails.entry(used.key).or_default();
            if used.write {
                let readers = std::mem::take(&mut tail.readers);
                let before = tail.writer.replace(ticket).filter(|_| readers.is_empty());
                blockers.extend(before.into_iter().chain(readers).filter(|b| *b != ticket));
            } else if tail.writer != Some(ticket) && tail.readers.insert(ticket) {
                blockers.extend(tail.writer);
            }
        }
    }

    /// Whether a command that waits here and is not for the whole shard conflicts with `access`.
    fn conflicts(&self, shard: Gid, access: &Access) -> bool {
        let clashes =
            |tail: &Tail, write: bool| tail.writer.is_some() || write && !tail.readers.is_empty();
        let mut uses = access.uses.iter().filter(|used| used.shard == shard);
        access.whole && !self.others.is_empty()
            || uses.any(|used| self.tails.get(&used.key).is_some_and(|t| clashes(t, used.write)))
    }

    fn step_out(&mut self, ticket: u64, shard: Gid, access: &Access) {
        self.others.remove(&ticket);
        if self.whole == Some(ticket) {
            self.whole = None;
        }
        for used in access.uses.iter().filter(|u| u.shard == shard) {
            if let Entry::Occupied(mut tail) = self.tails.entry(used.key) {
                let Tail { writer, readers } = tail.get_mut();
                *writer = writer.filter(|w| *w != ticket);
                readers.remove(&ticket);
                if writer.is_none() && readers.is_empty() {
                    tail.swap_remove();
                }
            }
        }
        if self.tails.is_empty() && self.tails.capacity() > TAILS_KEPT {
            self.tails = IndexMap::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sessions::Admission;
    use super::*;
    use crate::machine::Use;

    /// The shard that has delivered all commands of a test; they wait for the other one.
    const HERE: Gid = Gid(0);
    const KEY: u64 = 7;

    /// Delivers a command of two shards that names one key so many times.
    fn deliver(lanes: &mut ShardLanes, position: u64, times: usize, write: bool) -> u64 {
        let now = Stamp { wall_ms: 1, host_ms: 1 };
        let arrival = Arrival {
            place: ShardPosition { shard: HERE, position, now },
            before: position - 1,
            admission: Some(Admission::default()),
            growth: 0,
            exact: false,
        };
        let id = MsgId { sender: amcast_core::Pid(1), seq: position };
        let dst = GroupSet::one(HERE).or(GroupSet::one(Gid(1)));
        let named = std::iter::repeat_n(Use { shard: HERE, key: KEY, write }, times);
        let access = |access: &mut Access| access.uses.extend(named);
        assert_eq!(lanes.enter((id, dst), arrival, &Payload::Message(b""), access), None);
        lanes.next
    }

    #[test]
    fn a_key_that_a_command_names_often_is_in_line_for_it_once() {
        let mut lanes = ShardLanes::new(2);
        let readers = [1, 2].map(|position| deliver(&mut lanes, position, 1_000, false));
        assert_eq!(lanes.lanes[0].tails[&KEY].readers.len(), 2);
        let writer = deliver(&mut lanes, 3, 1_000, true);
        assert_eq!(lanes.entries[&writer].blockers, 2);
        let behind = deliver(&mut lanes, 4, 1_000, false);
        assert_eq!(lanes.entries[&behind].blockers, 1);
        assert_eq!(lanes.lanes[0].tails[&KEY].readers.len(), 1);
        let mut ready = Vec::new();
        for ticket in readers.into_iter().chain([writer, behind]) {
            assert_eq!(lanes.entries[&ticket].blockers, 0);
            lanes.leave(ticket, &mut ready);
        }
        assert!(lanes.lanes[0].tails.is_empty() && lanes.entries.is_empty());
    }
}
