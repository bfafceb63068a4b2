//! The logs of one shard.

use super::OnGrowth;
use super::snapshot::LogSnapshot;
use super::storage::{RowStorage, ValueStorage};
use amcast_smr::machine::Corrupt;
use amcast_smr::stream::{Piece, StreamReader, follows};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

/// Bytes that a value in memory counts for besides its own, about what it takes.
const VALUE_BYTES: usize = 48;

/// Bytes that a value in files counts for besides its own: what it takes there, and in a checkpoint.
const FILED_VALUE_BYTES: usize = 8;

/// Bytes that a log counts for besides its values and its name.
const LOG_BYTES: usize = 256;

/// The same where values are in files: with the few short blocks that a log may have.
const FILED_LOG_BYTES: usize = 512;

/// Bytes in files for which one of memory is counted, where it is noted what lies where.
const FILED_BYTES: usize = 256;

/// The first version of the stream that tells logs of one name apart.
const INCARNATIONS_SINCE: u8 = 10;

/// How far a log goes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first position that was not trimmed away.
    pub first: u64,
    /// The position of the next value.
    pub next: u64,
    /// Bytes of the values that are left.
    pub bytes: u64,
    /// Tells it apart from logs that had its name before and were deleted: they had lower ones.
    pub incarnation: u64,
}

/// One log.
pub(super) struct StoredLog<R> {
    pub(super) extent: Extent,
    pub(super) row: R,
}

/// The size of logs and values as the bound counts it, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LogBytes {
    /// With the values themselves.
    pub all: usize,
    /// Without them: what is in memory wherever the values lie.
    pub index: usize,
}

/// How logs and values are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CountingRule {
    /// Values are in memory.
    InMemory,
    /// Values are in files. Each counts for what it takes there alone; for memory, what lies where counts by the
    /// bytes of all.
    InFiles,
}

impl CountingRule {
    /// The counted size of a log without values.
    const fn log(self, name: &[u8]) -> usize {
        let log = match self {
            Self::InMemory => LOG_BYTES,
            Self::InFiles => FILED_LOG_BYTES,
        };
        log + 2 * name.len()
    }

    /// The counted size of so many values with so many bytes.
    const fn values(self, count: usize, bytes: usize) -> usize {
        let each = match self {
            Self::InMemory => VALUE_BYTES,
            Self::InFiles => FILED_VALUE_BYTES,
        };
        each * count + bytes
    }

    /// The counted size of all, of which the logs have `logs`.
    const fn held(self, all: usize, logs: usize) -> LogBytes {
        let index = match self {
            Self::InMemory => all,
            Self::InFiles => logs + all / FILED_BYTES,
        };
        LogBytes { all, index }
    }
}

/// The logs of one shard, by their names.
pub struct LogShard<S: RowStorage = ValueStorage> {
    logs: BTreeMap<Box<[u8]>, StoredLog<S::Row>>,
    storage: S,
    rule: CountingRule,
    /// The counted size of all logs and values, and of the logs alone.
    all: usize,
    names: usize,
    /// Values held.
    values: usize,
    /// How many logs were deleted.
    deleted: u64,
    snapshot: Option<Box<LogSnapshot<S::Row>>>,
    on_growth: Option<OnGrowth>,
}

impl LogShard {
    /// No logs yet; their values go to `storage`, and `on_growth` learns their new ends.
    pub fn new(storage: ValueStorage, on_growth: Option<OnGrowth>) -> Self {
        let rule = match storage {
            ValueStorage::Memory(_) => CountingRule::InMemory,
            ValueStorage::Files(_) => CountingRule::InFiles,
        };
        let logs = BTreeMap::new();
        let all = 0;
        let names = 0;
        let values = 0;
        let deleted = 0;
        Self { logs, storage, rule, all, names, values, deleted, snapshot: None, on_growth }
    }
}

impl<S: RowStorage> LogShard<S> {
    /// The counted size of all logs and their values.
    pub fn held(&self) -> LogBytes {
        self.rule.held(self.all, self.names)
    }

    /// How many logs there are.
    pub fn logs(&self) -> usize {
        self.logs.len()
    }

    /// How many values there are.
    pub fn values(&self) -> usize {
        self.values
    }

    /// The counted size with these values added, each with its log.
    pub(super) fn held_with<'a>(
        &self,
        additions: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> LogBytes {
        let mut all = self.all;
        let mut names = self.names;
        let mut fresh = BTreeSet::new();
        for (log, value) in additions {
            all += self.rule.values(1, value.len());
            if !self.logs.contains_key(log) && fresh.insert(log) {
                let log = self.rule.log(log);
                (all, names) = (all + log, names + log);
            }
        }
        self.rule.held(all, names)
    }

    /// Notes that a log is about to change.
    fn changes(&mut self, name: &[u8]) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.changes(name, self.logs.get(name).map(|log| log.extent));
        }
    }

    /// Notes that a log is there.
    fn counts_log(&mut self, name: &[u8]) {
        let bytes = self.rule.log(name);
        (self.all, self.names) = (self.all + bytes, self.names + bytes);
    }

    /// Notes that so many values more are there.
    fn counts_values(&mut self, count: usize, bytes: usize) {
        self.all += self.rule.values(count, bytes);
        self.values += count;
    }

    /// Notes that values of a log are not there any more.
    fn lost_values(&mut self, count: u64, bytes: u64) {
        self.all -= self.rule.values(count as usize, bytes as usize);
        self.values -= count as usize;
    }

    /// Says what is held to the storage, which has the rest of the memory.
    fn settle(&mut self) {
        let index = self.held().index;
        self.storage.counts(index);
    }

    fn tell(&self, name: &[u8], extent: Option<Extent>) {
        if let Some(on_growth) = &self.on_growth {
            on_growth(name, extent);
        }
    }

    /// Appends a value; its position.
    pub(super) fn append(&mut self, name: &[u8], value: &[u8]) -> u64 {
        self.changes(name);
        if !self.logs.contains_key(name) {
            self.counts_log(name);
            let extent = Extent { incarnation: self.deleted, ..Extent::default() };
            self.logs.insert(name.into(), StoredLog { extent, row: self.storage.row(0) });
        }
        self.counts_values(1, value.len());
        self.settle();
        let log = self.logs.get_mut(name).expect("it was just made");
        self.storage.push(&mut log.row, value);
        let position = log.extent.next;
        log.extent.next += 1;
        log.extent.bytes += value.len() as u64;
        let extent = log.extent;
        self.tell(name, Some(extent));
        position
    }

    /// Drops the values in front of `before`; how far the log goes then, if there is one.
    pub(super) fn trim(&mut self, name: &[u8], before: u64) -> Option<Extent> {
        let Extent { first, next, .. } = self.extent(name)?;
        let to = before.min(next);
        if to > first {
            self.changes(name);
            let log = self.logs.get_mut(name)?;
            let bytes = self.storage.bytes(&log.row, first, to);
            (log.extent.first, log.extent.bytes) = (to, log.extent.bytes - bytes);
            let from = self.snapshot.as_mut().and_then(|snapshot| snapshot.trims(name, first, to));
            self.storage.give_up(&mut log.row, from.unwrap_or(0), to);
            self.lost_values(to - first, bytes);
        }
        self.storage.trimmed();
        self.settle();
        self.extent(name)
    }

    /// Takes a log away; how far it went, if there was one.
    pub(super) fn delete(&mut self, name: &[u8]) -> Option<Extent> {
        self.extent(name)?;
        self.changes(name);
        let StoredLog { extent, row } = self.logs.remove(name)?;
        self.deleted += 1;
        self.lost_values(extent.next - extent.first, extent.bytes);
        let log = self.rule.log(name);
        (self.all, self.names) = (self.all - log, self.names - log);
        let unneeded = match &mut self.snapshot {
            Some(snapshot) => snapshot.deletes(name, extent, row, &mut self.storage),
            None => Some(row),
        };
        if let Some(row) = unneeded {
            self.storage.free(row);
        }
        self.storage.trimmed();
        self.settle();
        self.tell(name, None);
        Some(extent)
    }

    /// How far a log goes, if there is one.
    pub fn extent(&self, name: &[u8]) -> Option<Extent> {
        self.logs.get(name).map(|log| log.extent)
    }

    /// Tells `give` the values of a log from a position on, which was not trimmed away, until it says to break.
    pub(super) fn values_from(
        &mut self,
        name: &[u8],
        from: u64,
        give: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) {
        if let Some(log) = self.logs.get(name) {
            self.storage.read(&log.row, from, false, &mut |value| give(value).is_continue());
        }
    }

    /// The logs behind `after`, in the order of their names.
    pub(super) fn behind(&self, after: &[u8]) -> impl Iterator<Item = (&[u8], Extent)> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        self.logs.range::<[u8], _>(range).map(|(name, log)| (&**name, log.extent))
    }

    /// The logs from the name `first` on, in the order of their names.
    pub(super) fn beginning_at(
        &self,
        first: &[u8],
    ) -> impl Iterator<Item = (&[u8], &StoredLog<S::Row>)> {
        let range = (Bound::Included(first), Bound::Unbounded);
        self.logs.range::<[u8], _>(range).map(|(name, log)| (&**name, log))
    }

    /// Begins a snapshot; one that was begun before is forgotten.
    pub(super) fn begin_snapshot(&mut self) {
        self.end_cut();
        self.snapshot = Some(Box::new(LogSnapshot::new(self.deleted)));
    }

    /// Gives the next part of the snapshot; false if that was all.
    pub(super) fn give_cut(&mut self, to: &mut Piece<'_>) -> bool {
        let Some(snapshot) = &mut self.snapshot else { return false };
        let more = snapshot.give(&mut self.logs, &mut self.storage, to);
        if !more {
            self.end_cut();
        }
        more
    }

    /// Forgets the snapshot.
    pub(super) fn end_cut(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            snapshot.end(&mut self.logs, &mut self.storage);
        }
    }

    /// Values that are kept only for the snapshot, and logs that it has to know more of.
    pub(super) fn kept_aside(&self) -> usize {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.kept())
    }

    /// Fills an empty shard with what [`give_cut`](Self::give_cut) gave.
    ///
    /// # Errors
    /// When that is no such state.
    pub(super) fn read_cut(&mut self, from: &mut StreamReader<'_>) -> Result<(), Corrupt> {
        let told_apart = from.version() >= INCARNATIONS_SINCE;
        self.deleted = if told_apart { from.word()? } else { 0 };
        while follows(from)? {
            let name = from.bytes()?;
            let incarnation = if told_apart { from.word()? } else { 0 };
            let (first, next) = (from.word()?, from.word()?);
            let proper = (1..=super::NAME_BYTES_MAX).contains(&name.len())
                && first <= next
                && incarnation <= self.deleted;
            if !proper || self.logs.contains_key(&*name) {
                return Err(Corrupt::Malformed);
            }
            let mut extent = Extent { first, next, bytes: 0, incarnation };
            let mut row = self.storage.row(first);
            self.counts_log(&name);
            for _ in first..next {
                let value = from.bytes()?;
                self.counts_values(1, value.len());
                self.settle();
                extent.bytes += value.len() as u64;
                self.storage.push(&mut row, &value);
            }
            self.tell(&name, Some(extent));
            self.logs.insert(name.into(), StoredLog { extent, row });
        }
        Ok(())
    }
}
