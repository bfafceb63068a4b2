//! Persistence: the records of a process's log, and the actions that wait until a record is durable.
//!
//! All rings of a process share its log. A record is needed as long as an instance in it is; what other
//! records say is repeated in a [`LogRecord::TrimBase`] before the log is trimmed.
//!
//! # Invariant
//! Promises, votes and answers of recovery are [`DurableAction`]s: `PendingWrites::durable` releases each
//! only once its record is as durable as the storage mode asks for [MRP 5.1]. No other code sends them.

use super::message::{ProposalTable, RingMessage};
use super::topology::{MergePosition, RingId};
use super::value::{InstanceEntry, RingBallot};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::{Durability, Pid, Time, messages};

/// Where an acceptor keeps its promises and accepted values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AcceptorStorage {
    /// On disk before it answers.
    Synced,
    /// On disk some time after it answers.
    Written,
    /// In memory alone.
    Memory,
}

impl AcceptorStorage {
    /// The faults that the log survives in this mode.
    pub(super) const fn durability(self) -> Durability {
        match self {
            Self::Synced => Durability::Synced,
            Self::Written => Durability::Written,
            Self::Memory => Durability::Volatile,
        }
    }
}

/// Bytes of values that are written before one of their records is awaited.
const UNAWAITED_BYTES_MAX: usize = 1 << 20;

/// A record of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LogRecord {
    /// The process promised this ballot.
    Promise { ring: RingId, ballot: RingBallot },
    /// It accepted this entry, and had learned all instances below `learned`. If not `adopted`, the entry
    /// is staged, and counts as accepted from [`LogRecord::Adopt`] on.
    Accept { ring: RingId, learned: u64, adopted: bool, entry: InstanceEntry },
    /// It adopted this ballot: the staged proposals replace the log from instance `from` on.
    Adopt { ring: RingId, ballot: RingBallot, from: u64 },
    /// It learned that this entry is decided, as are all before it.
    Learn { ring: RingId, entry: InstanceEntry },
    /// All that must survive a trim of the log, for one ring. `table` is as of instance `at`.
    TrimBase {
        ring: RingId,
        promised: RingBallot,
        adopted: RingBallot,
        floor: u64,
        at: u64,
        table: ProposalTable,
    },
    /// Nothing is delivered between this position and this merge position.
    IdleSince { position: u64, point: MergePosition },
    /// It lost the promises and accepted values of earlier storage epochs, and has not recovered it before a
    /// record of storage epochs says so. It is not written where the driver reports the loss at each start until then.
    StorageLost { storage_epoch: u32 },
    /// By rank: the storage epoch of each acceptor of its group that counts.
    StorageEpochs { of: Vec<u32> },
}

messages! {
    enum LogRecord {
        1 => Promise { ring, ballot },
        2 => Accept { ring, learned, adopted, entry },
        3 => Learn { ring, entry },
        4 => TrimBase { ring, promised, adopted, floor, at, table },
        5 => StorageEpochs { of },
        6 => IdleSince { position, point },
        7 => StorageLost { storage_epoch },
        8 => Adopt { ring, ballot, from },
    }
}

impl LogRecord {
    /// Decodes a record, if the bytes are one and nothing else.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        Self::decode(&mut reader).ok().filter(|_| reader.is_empty())
    }

    /// Bytes of the value that the record holds; 0 if it holds none.
    fn value_bytes(&self) -> usize {
        match self {
            Self::Accept { entry, .. } | Self::Learn { entry, .. } => entry.wire_bytes(),
            _ => 0,
        }
    }

    /// The ring, and the instance behind the last one that the record holds a value for.
    fn last_instance(&self) -> Option<(RingId, u64)> {
        match self {
            Self::Accept { ring, entry, .. } | Self::Learn { ring, entry } => {
                Some((*ring, entry.end()))
            }
            _ => None,
        }
    }
}

/// An action that waits until a record is durable.
#[derive(Clone, Debug)]
pub(super) enum DurableAction {
    /// The process votes in `ballot` for instances up to `upto`.
    Vote { ring: RingId, ballot: RingBallot, upto: u64 },
    /// It sends these messages.
    Send { to: Pid, messages: Vec<RingMessage> },
    /// Its own promise, as a candidate, counts.
    OwnPromise { ring: RingId, ballot: RingBallot },
    /// All that the acceptor has recovered is durable, and it votes again.
    Recovered,
    /// Records before this number are trimmed.
    Trim { before: u64 },
    /// Its table of decided proposals is durable, as of this instance.
    TableDurable { ring: RingId, at: u64 },
    /// That nothing was delivered between this position and this merge position is durable.
    IdleDurable { position: u64, point: MergePosition },
    /// It only knows that the record is durable.
    Nothing,
}

/// The records that a process writes, and the actions that wait for them.
#[derive(Clone, Debug)]
pub(super) struct PendingWrites {
    storage: AcceptorStorage,
    /// The number of the next record.
    next: u64,
    /// Records that are still needed, and for which instances: none if only until the next base.
    needed: VecDeque<(u64, Option<(RingId, u64)>)>,
    /// Records to be written, and whether an action waits for each.
    pub(super) unwritten: Vec<(LogRecord, bool)>,
    /// Actions, the record that each waits for, and since when.
    waiting: VecDeque<(u64, Time, DurableAction)>,
    /// The time of this step.
    pub(super) now: Time,
    /// The disk hangs: it has taken nothing for long, and those of the others do.
    pub(super) hangs: bool,
    /// Actions that are due.
    pub(super) due: VecDeque<DurableAction>,
    /// Where records must be durable: those with values that are not, with the bytes of each.
    pending: VecDeque<(u64, usize)>,
    pending_bytes: usize,
    /// Bytes of these behind the last one that is awaited.
    unawaited_bytes: usize,
    /// A record is awaited once so many bytes are not.
    unawaited_max: usize,
}

/// The log of a process, and its known state.
#[derive(Clone, Debug)]
pub(super) struct Persistence {
    pub(super) writes: PendingWrites,
    /// The log of earlier incarnations may lack its end.
    pub(super) torn: bool,
    /// The log of earlier incarnations is lost as a whole.
    pub(super) gone: bool,
    /// The log has a record that cannot be decoded.
    pub(super) unreadable: bool,
    /// The application's checkpoint: the position of its last delivery, and the corresponding merge
    /// position.
    pub(super) checkpoint: (u64, MergePosition),
    /// Nothing is delivered between this position and this merge position: a durable record says so.
    pub(super) idle_since: (u64, MergePosition),
    /// The merge position in the last such record, durable or not.
    pub(super) idle_written: MergePosition,
}

impl Persistence {
    /// `held_bytes` is what may wait for the disk before the process takes in no more.
    pub(super) fn new(storage: AcceptorStorage, held_bytes: usize) -> Self {
        Self {
            writes: PendingWrites::new(storage, held_bytes),
            torn: false,
            gone: false,
            unreadable: false,
            checkpoint: (0, MergePosition::default()),
            idle_since: (0, MergePosition::default()),
            idle_written: MergePosition::default(),
        }
    }
}

impl PendingWrites {
    pub(super) fn new(storage: AcceptorStorage, held_bytes: usize) -> Self {
        Self {
            storage,
            next: 0,
            needed: VecDeque::new(),
            unwritten: Vec::new(),
            waiting: VecDeque::new(),
            now: Time::ZERO,
            hangs: false,
            due: VecDeque::new(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            unawaited_bytes: 0,
            unawaited_max: UNAWAITED_BYTES_MAX.min(held_bytes / 4),
        }
    }

    pub(super) const fn storage(&self) -> AcceptorStorage {
        self.storage
    }

    /// Whether anything is kept on disk.
    pub(super) fn is_durable(&self) -> bool {
        self.storage != AcceptorStorage::Memory
    }

    /// Whether the log is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.needed.is_empty()
    }

    /// A record of an earlier incarnation.
    pub(super) fn restore(&mut self, number: u64, record: &LogRecord) {
        self.next = number + 1;
        self.needed.push_back((number, record.last_instance()));
    }

    /// A record of an earlier incarnation that cannot be decoded.
    pub(super) fn skip(&mut self, number: u64) {
        self.next = number + 1;
        self.needed.push_back((number, None));
    }

    /// Writes a record, if anything is written; gives its number. `act` follows when the storage mode
    /// allows.
    pub(super) fn write(&mut self, record: LogRecord, action: Option<DurableAction>) -> u64 {
        if self.storage == AcceptorStorage::Memory {
            self.due.extend(action);
            return super::instance_log::NO_RECORD;
        }
        let number = self.next;
        let lasting = matches!(
            action,
            Some(
                DurableAction::Recovered
                    | DurableAction::Trim { .. }
                    | DurableAction::IdleDurable { .. }
                    | DurableAction::TableDurable { .. }
            )
        );
        let action = action.or_else(|| self.is_large(&record).then_some(DurableAction::Nothing));
        let awaited = action.is_some() && (self.storage == AcceptorStorage::Synced || lasting);
        self.add_pending(number, &record, awaited);
        self.next += 1;
        self.needed.push_back((number, record.last_instance()));
        self.unwritten.push((record, awaited));
        match action {
            Some(action) if awaited => self.waiting.push_back((number, self.now, action)),
            action => self.due.extend(action),
        }
        number
    }

    /// The ticket of the first unwritten record.
    pub(super) fn first_ticket(&self) -> u64 {
        self.next - self.unwritten.len() as u64
    }

    /// All records up to `number` are durable.
    pub(super) fn durable(&mut self, number: u64) {
        while self.waiting.front().is_some_and(|(record, ..)| *record <= number) {
            self.due.extend(self.waiting.pop_front().map(|(.., action)| action));
        }
        while let Some(&(_, bytes)) = self.pending.front().filter(|(record, _)| *record <= number) {
            self.pending_bytes -= bytes;
            self.pending.pop_front();
        }
    }

    /// Bytes of values that are to be durable and are not.
    pub(super) const fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Whether so much is written with this record that nothing waits for that its disk must be heard of: only then is
    /// it known how much of it is durable.
    fn is_large(&self, record: &LogRecord) -> bool {
        self.storage == AcceptorStorage::Synced
            && self.unawaited_bytes + record.value_bytes() > self.unawaited_max
    }

    fn add_pending(&mut self, number: u64, record: &LogRecord, awaited: bool) {
        let bytes = record.value_bytes();
        if self.storage == AcceptorStorage::Synced && bytes > 0 {
            self.pending.push_back((number, bytes));
            self.pending_bytes += bytes;
            self.unawaited_bytes += bytes;
        }
        if awaited {
            self.unawaited_bytes = 0;
        }
    }

    /// Since when the oldest record that is awaited is not durable.
    pub(super) fn waits_since(&self) -> Option<Time> {
        self.waiting.front().map(|(_, since, _)| *since)
    }

    /// How many records at the front hold no instance from `floors` on, by ring.
    pub(super) fn unneeded(&self, floors: &dyn Fn(RingId) -> u64) -> usize {
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
    use super::super::value::InstanceValue;
    use super::*;

    fn accept(first: u64) -> LogRecord {
        let entry = InstanceEntry {
            first,
            ballot: RingBallot::new(1, Pid(0)),
            value: InstanceValue::Skip(1),
        };
        LogRecord::Accept { ring: 0, learned: 0, adopted: true, entry }
    }

    fn vote(upto: u64) -> Option<DurableAction> {
        Some(DurableAction::Vote { ring: 0, ballot: RingBallot::new(1, Pid(0)), upto })
    }

    #[test]
    fn actions_wait_for_their_records_where_these_must_be_durable() {
        let mut synced = PendingWrites::new(AcceptorStorage::Synced, 1 << 20);
        assert_eq!([synced.write(accept(0), vote(1)), synced.write(accept(1), vote(2))], [0, 1]);
        assert!(synced.due.is_empty());
        synced.durable(0);
        assert_eq!(synced.due.len(), 1);
        for storage in [AcceptorStorage::Written, AcceptorStorage::Memory] {
            let mut writes = PendingWrites::new(storage, 1 << 20);
            writes.write(accept(0), vote(1));
            assert_eq!(writes.due.len(), 1);
            assert_eq!(writes.unwritten.is_empty(), storage == AcceptorStorage::Memory);
        }
    }

    #[test]
    fn a_record_is_needed_as_long_as_its_instances() {
        let mut writes = PendingWrites::new(AcceptorStorage::Synced, 1 << 20);
        writes.write(LogRecord::Promise { ring: 0, ballot: RingBallot::NONE }, None);
        (0..3).for_each(|i| {
            writes.write(accept(i), None);
        });
        assert_eq!(writes.unneeded(&|_| 2), 3);
        assert_eq!(writes.trim(3), 3);
        assert_eq!(writes.unneeded(&|_| 9), 1);
        assert_eq!(writes.trim(1), 4);
    }

    #[test]
    fn records_read_back() {
        let table = alloc::vec![(1, 2), (3, 4)];
        for record in [
            LogRecord::Promise { ring: 3, ballot: RingBallot::new(7, Pid(2)) },
            accept(9),
            LogRecord::TrimBase {
                ring: 1,
                promised: RingBallot::NONE,
                adopted: RingBallot::new(2, Pid(1)),
                floor: 5,
                at: 6,
                table,
            },
            LogRecord::Adopt { ring: 2, ballot: RingBallot::new(3, Pid(0)), from: 7 },
            LogRecord::StorageEpochs { of: alloc::vec![0, 4, 1] },
        ] {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(LogRecord::read(&bytes), Some(record));
            assert!(LogRecord::read(&bytes[..bytes.len() - 1]).is_none());
            bytes.push(0);
            assert!(LogRecord::read(&bytes).is_none());
        }
    }

    #[test]
    fn it_is_known_how_much_is_not_durable_also_of_what_nothing_waits_for() {
        let mut writes = PendingWrites::new(AcceptorStorage::Synced, 4096);
        for i in 0..1000 {
            writes.write(accept(i), None);
            // The disk is as fast as it can be.
            let awaited: Vec<u64> = writes.waiting.iter().map(|(number, ..)| *number).collect();
            awaited.into_iter().for_each(|number| writes.durable(number));
            assert!(writes.pending_bytes() <= 1024, "{}", writes.pending_bytes());
        }
        (0..1000).for_each(|i| _ = writes.write(accept(i), vote(i)));
        assert!(writes.pending_bytes() > 4096);
        writes.durable(u64::MAX);
        assert_eq!(writes.pending_bytes(), 0);
    }
}
