//! What a process keeps on disk, and what waits until it is there.
//!
//! All rings of a process share its log. A record is needed as long as an instance in it is; what
//! the others say is said again in a [`Record::Base`] before the log is trimmed.

use super::rings::{Point, RingId};
use super::value::{Ballot, Entry};
use super::word::{Rows, Word};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::codec::{Codec, Reader};
use amcast_core::{Durability, Pid, messages};

/// Where an acceptor keeps what it promised and accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Storage {
    /// On disk, before it says so.
    Synced,
    /// On disk, some time later.
    Written,
    /// In memory alone.
    Memory,
}

impl Storage {
    /// What the log of a process survives then.
    pub(super) const fn durability(self) -> Durability {
        match self {
            Self::Synced => Durability::Synced,
            Self::Written => Durability::Written,
            Self::Memory => Durability::Volatile,
        }
    }
}

/// A record of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Record {
    /// The process promised this ballot.
    Promise { ring: RingId, ballot: Ballot },
    /// It accepted this entry, and knew all instances below `known` to be decided. `settled` if the
    /// beginning of the run was there, and the entry counts; else it counts from [`Record::Settle`] on.
    Accept { ring: RingId, known: u64, settled: bool, entry: Entry },
    /// The beginning of the run of this ballot is there: what was held from instance `from` on is
    /// replaced by it.
    Settle { ring: RingId, ballot: Ballot, from: u64 },
    /// It learned that this entry is decided, as are all before it.
    Learn { ring: RingId, entry: Entry },
    /// Where it stands in a ring: all that must survive a trim. `table` is as of instance `at`.
    Base { ring: RingId, promised: Ballot, settled: Ballot, floor: u64, at: u64, table: Rows },
    /// Nothing is delivered between this position and this point.
    Idle { position: u64, point: Point },
    /// It has lost what it promised and accepted before this memory, and has not got it back before
    /// a record of memories says so.
    Lost { memory: u32 },
    /// Which memory of each acceptor of its group it counts on.
    Memories { of: Vec<u32> },
}

messages! {
    enum Record {
        1 => Promise { ring, ballot },
        2 => Accept { ring, known, settled, entry },
        3 => Learn { ring, entry },
        4 => Base { ring, promised, settled, floor, at, table },
        5 => Memories { of },
        6 => Idle { position, point },
        7 => Lost { memory },
        8 => Settle { ring, ballot, from },
    }
}

impl Record {
    /// The record in these bytes, if they are one and nothing else.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        Self::decode(&mut reader).ok().filter(|_| reader.is_empty())
    }

    /// The ring and the instance behind the last one that it holds a value for.
    fn reach(&self) -> Option<(RingId, u64)> {
        match self {
            Self::Accept { ring, entry, .. } | Self::Learn { ring, entry } => {
                Some((*ring, entry.end()))
            }
            _ => None,
        }
    }
}

/// What follows once something is on disk.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// The process votes in `ballot` for the run up to there.
    Vote { ring: RingId, ballot: Ballot, upto: u64 },
    /// It says these words.
    Say { to: Pid, words: Vec<Word> },
    /// It has promised its own ballot.
    Lead { ring: RingId, ballot: Ballot },
    /// It may vote again.
    Recovered,
    /// Records before this number may go.
    Trim { before: u64 },
    /// Its table of what everybody proposed may be counted on, up to this instance.
    Noted { ring: RingId, at: u64 },
    /// The application's state may be counted on up to this point.
    Idle { position: u64, point: Point },
}

/// The log of a process, as far as the protocol sees it.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    storage: Storage,
    /// The number of the next record.
    next: u64,
    /// Records that are still needed, and for which instances: none if only until the next base.
    needed: VecDeque<(u64, Option<(RingId, u64)>)>,
    /// Records to be written, and whether they are awaited.
    pub(super) fresh: Vec<(Record, bool)>,
    /// Acts, and the record that each waits for.
    waiting: VecDeque<(u64, Act)>,
    /// Acts that nothing holds back.
    pub(super) due: VecDeque<Act>,
}

impl Keep {
    pub(super) fn new(storage: Storage) -> Self {
        Self {
            storage,
            next: 0,
            needed: VecDeque::new(),
            fresh: Vec::new(),
            waiting: VecDeque::new(),
            due: VecDeque::new(),
        }
    }

    pub(super) const fn storage(&self) -> Storage {
        self.storage
    }

    /// Whether anything is kept on disk.
    pub(super) fn is_durable(&self) -> bool {
        self.storage != Storage::Memory
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.needed.is_empty()
    }

    /// A record of an earlier life.
    pub(super) fn restore(&mut self, number: u64, record: &Record) {
        self.next = number + 1;
        self.needed.push_back((number, record.reach()));
    }

    /// A record of an earlier life that says nothing.
    pub(super) fn skip(&mut self, number: u64) {
        self.next = number + 1;
        self.needed.push_back((number, None));
    }

    /// Writes a record, if anything is written; gives its number. `act` follows when it must.
    pub(super) fn write(&mut self, record: Record, act: Option<Act>) -> u64 {
        if self.storage == Storage::Memory {
            self.due.extend(act);
            return super::book::NO_RECORD;
        }
        let number = self.next;
        let lasting = matches!(act, Some(Act::Trim { .. } | Act::Idle { .. } | Act::Noted { .. }));
        let awaited = act.is_some() && (self.storage == Storage::Synced || lasting);
        self.next += 1;
        self.needed.push_back((number, record.reach()));
        self.fresh.push((record, awaited));
        match act {
            Some(act) if awaited => self.waiting.push_back((number, act)),
            act => self.due.extend(act),
        }
        number
    }

    /// The ticket of the first of the fresh records.
    pub(super) fn first_ticket(&self) -> u64 {
        self.next - self.fresh.len() as u64
    }

    /// All records up to `number` are durable.
    pub(super) fn durable(&mut self, number: u64) {
        while self.waiting.front().is_some_and(|(record, _)| *record <= number) {
            self.due.extend(self.waiting.pop_front().map(|(_, act)| act));
        }
    }

    /// How many records are not needed for any instance from `floors` on, by ring.
    pub(super) fn idle(&self, floors: &dyn Fn(RingId) -> u64) -> usize {
        let idle = |(_, reach): &&(u64, Option<(RingId, u64)>)| {
            reach.is_none_or(|(ring, end)| end <= floors(ring))
        };
        self.needed.iter().take_while(idle).count()
    }

    /// Forgets so many records at the front; gives the number of the first that is needed.
    pub(super) fn trim(&mut self, records: usize) -> u64 {
        self.needed.drain(..records);
        self.needed.front().map_or(self.next, |(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::Value;
    use super::*;

    fn accept(first: u64) -> Record {
        let entry = Entry { first, ballot: Ballot::new(1, Pid(0)), value: Value::Skip(1) };
        Record::Accept { ring: 0, known: 0, settled: true, entry }
    }

    fn vote(upto: u64) -> Option<Act> {
        Some(Act::Vote { ring: 0, ballot: Ballot::new(1, Pid(0)), upto })
    }

    #[test]
    fn what_must_be_durable_waits_and_the_rest_does_not() {
        let mut synced = Keep::new(Storage::Synced);
        assert_eq!([synced.write(accept(0), vote(1)), synced.write(accept(1), vote(2))], [0, 1]);
        assert!(synced.due.is_empty());
        synced.durable(0);
        assert_eq!(synced.due.len(), 1);
        for storage in [Storage::Written, Storage::Memory] {
            let mut keep = Keep::new(storage);
            keep.write(accept(0), vote(1));
            assert_eq!(keep.due.len(), 1);
            assert_eq!(keep.fresh.is_empty(), storage == Storage::Memory);
        }
    }

    #[test]
    fn a_record_is_needed_as_long_as_its_instances() {
        let mut keep = Keep::new(Storage::Synced);
        keep.write(Record::Promise { ring: 0, ballot: Ballot::NONE }, None);
        (0..3).for_each(|i| {
            keep.write(accept(i), None);
        });
        assert_eq!(keep.idle(&|_| 2), 3);
        assert_eq!(keep.trim(3), 3);
        assert_eq!(keep.idle(&|_| 9), 1);
        assert_eq!(keep.trim(1), 4);
    }

    #[test]
    fn records_read_back() {
        let table = alloc::vec![(1, 2), (3, 4)];
        for record in [
            Record::Promise { ring: 3, ballot: Ballot::new(7, Pid(2)) },
            accept(9),
            Record::Base {
                ring: 1,
                promised: Ballot::NONE,
                settled: Ballot::new(2, Pid(1)),
                floor: 5,
                at: 6,
                table,
            },
            Record::Settle { ring: 2, ballot: Ballot::new(3, Pid(0)), from: 7 },
            Record::Memories { of: alloc::vec![0, 4, 1] },
        ] {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::read(&bytes), Some(record));
            assert!(Record::read(&bytes[..bytes.len() - 1]).is_none());
            bytes.push(0);
            assert!(Record::read(&bytes).is_none());
        }
    }
}
