//! A shard's logs as they were at one moment, sent piece by piece while commands continue.
//!
//! The [stream](amcast_smr::stream) begins with the number of deleted logs; each log follows behind a byte of one:
//! its name, its incarnation, its first and its next position, and its values; a zero ends them. (Before version 10
//! neither the number nor incarnations were there.) Logs are given in the order of their names. For a log that
//! changes before it was sent, the snapshot notes its positions; appends do no harm then, and trimmed or deleted values
//! are not released before they were sent.

use super::shard::{Extent, StoredLog};
use super::storage::RowStorage;
use amcast_smr::stream::{Piece, next};
use std::collections::BTreeMap;
use std::ops::Bound;

type LogName = Box<[u8]>;
type LogTable<R> = BTreeMap<LogName, StoredLog<R>>;

/// A snapshot that is being given; see the module's documentation.
pub(super) struct LogSnapshot<R> {
    /// How many logs had been deleted, until that was given.
    deleted: Option<u64>,
    /// All logs up to this one were given.
    given: Option<LogName>,
    /// The log that is being given.
    inside: Option<ValueCursor>,
    /// The logs that changed before they were sent.
    before: BTreeMap<LogName, LogBeforeSnapshot<R>>,
    /// Values that are kept for the snapshot alone.
    kept: u64,
}

/// How far the log went that is being given, and how much of it was.
struct ValueCursor {
    name: LogName,
    position: u64,
    next: u64,
    /// Bytes of the value at `position` that were given; none until their number was.
    bytes: Option<usize>,
}

/// A log as it was when the snapshot began.
enum LogBeforeSnapshot<R> {
    /// It was not there.
    Absent,
    /// It had these positions. Values trimmed since are still in its row; the row is here if the
    /// log was deleted.
    Had { extent: Extent, kept: u64, row: Option<R> },
}

impl<R> LogSnapshot<R> {
    /// One that begins now, when so many logs were deleted.
    pub(super) fn new(deleted: u64) -> Self {
        let (deleted, before) = (Some(deleted), BTreeMap::new());
        Self { deleted, given: None, inside: None, before, kept: 0 }
    }

    /// Notes that the log `name` is about to change.
    pub(super) fn changes(&mut self, name: &[u8], log: Option<Extent>) {
        if self.given.as_deref().is_some_and(|given| name <= given)
            || self.before.contains_key(name)
        {
            return;
        }
        let before = log.map_or(LogBeforeSnapshot::Absent, |extent| LogBeforeSnapshot::Had {
            extent,
            kept: 0,
            row: None,
        });
        self.before.insert(name.into(), before);
    }

    /// Notes that the values from `first` on and in front of `to` are trimmed away. The snapshot does not need those
    /// from the position on that this gives; it needs none if it gives none.
    pub(super) fn trims(&mut self, name: &[u8], first: u64, to: u64) -> Option<u64> {
        let Some(LogBeforeSnapshot::Had { extent, kept, row: None }) = self.before.get_mut(name)
        else {
            return None;
        };
        let needed = to.min(extent.next).saturating_sub(first);
        (*kept, self.kept) = (*kept + needed, self.kept + needed);
        Some(extent.next)
    }

    /// Takes the row of a log that is deleted; gives it back if the snapshot can do without.
    pub(super) fn deletes<S: RowStorage<Row = R>>(
        &mut self,
        name: &[u8],
        now: Extent,
        mut taken: R,
        storage: &mut S,
    ) -> Option<R> {
        let Some(LogBeforeSnapshot::Had { extent, kept, row: row @ None }) =
            self.before.get_mut(name)
        else {
            return Some(taken);
        };
        let needed = extent.next.saturating_sub(now.first);
        (*kept, self.kept) = (*kept + needed, self.kept + needed);
        storage.give_up(&mut taken, extent.next, now.next);
        *row = Some(taken);
        None
    }

    /// Values and logs that are kept for the snapshot alone.
    pub(super) fn kept(&self) -> usize {
        self.kept as usize + self.before.len()
    }

    /// Gives up all that was kept for it.
    pub(super) fn end<S: RowStorage<Row = R>>(mut self, logs: &mut LogTable<R>, storage: &mut S) {
        while let Some((name, before)) = self.before.pop_first() {
            self.let_go(&name, before, logs, storage);
        }
    }

    fn let_go<S: RowStorage<Row = R>>(
        &mut self,
        name: &[u8],
        before: LogBeforeSnapshot<R>,
        logs: &mut LogTable<R>,
        storage: &mut S,
    ) {
        let LogBeforeSnapshot::Had { kept, row, .. } = before else { return };
        self.kept -= kept;
        if let Some(row) = row {
            storage.free(row);
        } else if kept > 0
            && let Some(log) = logs.get_mut(name)
        {
            storage.give_up(&mut log.row, 0, log.extent.first);
        }
    }

    /// Gives as much as fits; false if that was all.
    pub(super) fn give<S: RowStorage<Row = R>>(
        &mut self,
        logs: &mut LogTable<R>,
        storage: &mut S,
        to: &mut Piece<'_>,
    ) -> bool {
        if let Some(deleted) = self.deleted.take() {
            to.word(deleted);
        }
        while !to.is_full() {
            let Some(mut inside) = self.inside.take() else {
                let Some(name) = self.next_name(logs) else {
                    next(false, to);
                    return false;
                };
                self.enter(name, logs, to);
                continue;
            };
            self.give_values(logs, storage, &mut inside, to);
            if inside.position < inside.next {
                self.inside = Some(inside);
            } else {
                if let Some(before) = self.before.remove(&inside.name) {
                    self.let_go(&inside.name, before, logs, storage);
                }
                self.given = Some(inside.name);
            }
        }
        true
    }

    /// The next log, which may be deleted by now.
    fn next_name(&self, logs: &LogTable<R>) -> Option<LogName> {
        let after = self.given.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (after, Bound::Unbounded);
        let there = logs.range::<[u8], _>(range).next().map(|(name, _)| name);
        let deleted = self.before.range::<[u8], _>(range).next().map(|(name, _)| name);
        there.into_iter().chain(deleted).min().cloned()
    }

    /// Begins the next log.
    fn enter(&mut self, name: LogName, logs: &LogTable<R>, to: &mut Piece<'_>) {
        let extent = match self.before.get(&name) {
            None => logs.get(&name).map(|log| log.extent),
            Some(LogBeforeSnapshot::Had { extent, .. }) => Some(*extent),
            Some(LogBeforeSnapshot::Absent) => None,
        };
        let Some(Extent { first, next: end, incarnation, .. }) = extent else {
            to.look();
            self.before.remove(&name);
            self.given = Some(name);
            return;
        };
        next(true, to);
        to.bytes(&name);
        [incarnation, first, end].iter().for_each(|word| to.word(*word));
        self.inside = Some(ValueCursor { name, position: first, next: end, bytes: None });
    }

    fn give_values<S: RowStorage<Row = R>>(
        &self,
        logs: &LogTable<R>,
        storage: &mut S,
        inside: &mut ValueCursor,
        to: &mut Piece<'_>,
    ) {
        if inside.position == inside.next {
            return;
        }
        let row = match self.before.get(&inside.name) {
            Some(LogBeforeSnapshot::Had { row: Some(row), .. }) => row,
            // A log that was not deleted is in the map.
            _ => &logs[&inside.name].row,
        };
        storage.read(row, inside.position, true, &mut |value| {
            let from = inside.bytes.unwrap_or_else(|| {
                to.word(value.len() as u64);
                0
            });
            let given = from + to.some(&value[from..]);
            if given < value.len() {
                inside.bytes = Some(given);
                return false;
            }
            (inside.position, inside.bytes) = (inside.position + 1, None);
            inside.position < inside.next && !to.is_full()
        });
    }
}
