//! Where the values of logs lie.

use super::rows::RowFiles;
use super::segments::LogDisk;
use std::collections::VecDeque;

/// Keeps rows of values, one for each log. One for each shard.
///
/// A replica whose storage fails cannot continue as if nothing were lost: an implementation that
/// can fail ends its process then, and the other replicas continue.
pub trait RowStorage: Send + 'static {
    /// A row: values with positions, one by one.
    type Row: Send + 'static;

    /// A row without values, whose first one will have the position `first`.
    fn row(&mut self, first: u64) -> Self::Row;

    /// Puts a value behind the last one of a row.
    fn push(&mut self, row: &mut Self::Row, value: &[u8]);

    /// Tells `give` the values of a row from a position on, which was not given up, in their order, until it says
    /// false. With `once` nobody is expected to ask for them again soon.
    fn read(&mut self, row: &Self::Row, from: u64, once: bool, give: &mut dyn FnMut(&[u8]) -> bool);

    /// Bytes of the values with the positions from `from` on and in front of `to`, none of which was given up.
    fn bytes(&mut self, row: &Self::Row, from: u64, to: u64) -> u64;

    /// Gives up the values with the positions from `from` on and in front of `to`, which need not be there any more.
    fn give_up(&mut self, row: &mut Self::Row, from: u64, to: u64);

    /// Gives up a row.
    fn free(&mut self, row: Self::Row);

    /// Says that the values which a command gave up are all given up.
    fn trimmed(&mut self) {}

    /// Says what is in memory besides values, in bytes, as it is counted.
    fn counts(&mut self, _bytes: usize) {}
}

/// Keeps values in memory.
#[derive(Clone, Copy, Default, Debug)]
pub struct MemoryRows;

/// A row in memory.
#[derive(Debug)]
pub struct MemoryRow {
    /// Values in front of those that were given up in the middle, and the position of the first one.
    front: (u64, VecDeque<Box<[u8]>>),
    first: u64,
    values: VecDeque<Box<[u8]>>,
}

impl MemoryRow {
    fn drop_front(&mut self, to: u64) {
        while self.first < to && self.values.pop_front().is_some() {
            self.first += 1;
        }
        let values = &mut self.values;
        if values.capacity() > 64 && values.len() < values.capacity() / 4 {
            values.shrink_to(2 * values.len());
        }
    }

    /// The values from a position on.
    fn from(&self, position: u64) -> impl Iterator<Item = &[u8]> {
        let (first, front) = &self.front;
        let here = position.saturating_sub(self.first).min(self.values.len() as u64);
        let before = position.saturating_sub(*first).min(front.len() as u64);
        front.range(before as usize..).chain(self.values.range(here as usize..)).map(|v| &**v)
    }
}

impl RowStorage for MemoryRows {
    type Row = MemoryRow;

    fn row(&mut self, first: u64) -> MemoryRow {
        MemoryRow { front: (first, VecDeque::new()), first, values: VecDeque::new() }
    }

    fn push(&mut self, row: &mut MemoryRow, value: &[u8]) {
        row.values.push_back(value.into());
    }

    fn read(
        &mut self,
        row: &MemoryRow,
        from: u64,
        _once: bool,
        give: &mut dyn FnMut(&[u8]) -> bool,
    ) {
        _ = row.from(from).all(give);
    }

    fn bytes(&mut self, row: &MemoryRow, from: u64, to: u64) -> u64 {
        let count = usize::try_from(to - from).unwrap_or(usize::MAX);
        row.from(from).take(count).map(|value| value.len() as u64).sum()
    }

    fn give_up(&mut self, row: &mut MemoryRow, from: u64, to: u64) {
        if from >= to {
            return;
        }
        if from <= row.front.0 {
            row.front.1.clear();
        } else if from > row.first {
            let kept = (from - row.first).min(row.values.len() as u64) as usize;
            let behind = row.values.split_off(kept);
            row.front = (row.first, std::mem::replace(&mut row.values, behind));
            row.first += kept as u64;
        }
        row.drop_front(to);
    }

    fn free(&mut self, _: MemoryRow) {}
}

/// Keeps values in memory, or in files with the recent ones in memory, too.
pub enum ValueStorage {
    /// In memory.
    Memory(MemoryRows),
    /// In files.
    Files(Box<RowFiles>),
}

/// A row of [`ValueStorage`].
#[derive(Debug)]
pub enum ValueRow {
    /// Here.
    Memory(MemoryRow),
    /// In files, the row of this number.
    Files(u64),
}

impl ValueRow {
    /// The values from a position on, where they are in memory and in no file.
    pub(super) fn in_memory(&self, position: u64) -> impl Iterator<Item = &[u8]> {
        let row = match self {
            Self::Memory(row) => Some(row.from(position)),
            Self::Files(_) => None,
        };
        row.into_iter().flatten()
    }
}

const FOREIGN: &str = "a row is asked for where it was made";

impl ValueStorage {
    /// In files as `disk` says, else in memory.
    pub fn new(disk: Option<&LogDisk>) -> Self {
        match disk {
            Some(disk) => Self::Files(Box::new(RowFiles::new(disk.clone()))),
            None => Self::Memory(MemoryRows),
        }
    }
}

impl RowStorage for ValueStorage {
    type Row = ValueRow;

    fn row(&mut self, first: u64) -> ValueRow {
        match self {
            Self::Memory(memory) => ValueRow::Memory(memory.row(first)),
            Self::Files(files) => ValueRow::Files(files.row(first)),
        }
    }

    fn push(&mut self, row: &mut ValueRow, value: &[u8]) {
        match (self, row) {
            (Self::Memory(memory), ValueRow::Memory(row)) => memory.push(row, value),
            (Self::Files(files), ValueRow::Files(row)) => files.push(row, value),
            _ => unreachable!("{FOREIGN}"),
        }
    }

    fn read(&mut self, row: &ValueRow, from: u64, once: bool, give: &mut dyn FnMut(&[u8]) -> bool) {
        match (self, row) {
            (Self::Memory(memory), ValueRow::Memory(row)) => memory.read(row, from, once, give),
            (Self::Files(files), ValueRow::Files(row)) => files.read(row, from, once, give),
            _ => unreachable!("{FOREIGN}"),
        }
    }

    fn bytes(&mut self, row: &ValueRow, from: u64, to: u64) -> u64 {
        match (self, row) {
            (Self::Memory(memory), ValueRow::Memory(row)) => memory.bytes(row, from, to),
            (Self::Files(files), ValueRow::Files(row)) => files.bytes(row, from, to),
            _ => unreachable!("{FOREIGN}"),
        }
    }

    fn give_up(&mut self, row: &mut ValueRow, from: u64, to: u64) {
        match (self, row) {
            (Self::Memory(memory), ValueRow::Memory(row)) => memory.give_up(row, from, to),
            (Self::Files(files), ValueRow::Files(row)) => files.give_up(row, from, to),
            _ => unreachable!("{FOREIGN}"),
        }
    }

    fn free(&mut self, row: ValueRow) {
        match (self, row) {
            (Self::Memory(memory), ValueRow::Memory(row)) => memory.free(row),
            (Self::Files(files), ValueRow::Files(row)) => files.free(row),
            _ => unreachable!("{FOREIGN}"),
        }
    }

    fn trimmed(&mut self) {
        match self {
            Self::Memory(memory) => memory.trimmed(),
            Self::Files(files) => files.trimmed(),
        }
    }

    fn counts(&mut self, bytes: usize) {
        match self {
            Self::Memory(memory) => memory.counts(bytes),
            Self::Files(files) => files.counts(bytes),
        }
    }
}
