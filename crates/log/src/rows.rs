//! Rows of values in files: which block each value is in.
//!
//! The values of a row lie in blocks of about 32 KB, one behind another; a larger value has a block of its own. The
//! last ones, which do not fill a block yet, are in memory only. Memory has a few bytes for each block, and none for each value:
//! a value is found by a search among the blocks, one read at the most, and a walk over the values in front of it. Of a
//! block nothing is changed, so it can be in the cache and be moved as one piece.
//!
//! Where many rows have a few values each in memory, too many for all of them, the one that began first is written
//! before it fills a block. So that such short blocks do not become many, what is written takes in those in front of it
//! that are short and no more than four times as long: a row has a few short ones, each of which is four times as long
//! as the next, and its values are written about as often, at the most.

use super::segments::{Block, BlockAddress, BlockOwner, LogDisk, LogSegments};
use super::storage::RowStorage;
use std::collections::{BTreeMap, VecDeque};

/// Bytes in front of each value in its block: its length.
const LENGTH_BYTES: usize = 4;

/// Bytes that are moved with one call, beside the last block.
const MOVE_BYTES: u32 = 64 << 10;

/// The share of these that one visit of a block costs, even if the block need not be moved.
const LOOK_BYTES: u32 = 512;

/// The approximate memory of an open block besides its values.
const OPEN_BYTES: usize = 128;

/// How much shorter than what is written behind it a block may be to be taken in.
const SHORTER: usize = 4;

/// Some values of a row.
#[derive(Clone, Copy, Debug)]
struct RowPart {
    first: u64,
    count: u32,
    at: BlockAddress,
}

impl RowPart {
    fn next(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Bytes of its values.
    fn bytes(&self) -> u64 {
        u64::from(self.at.len) - LENGTH_BYTES as u64 * u64::from(self.count)
    }
}

/// The last values of a row, which are in no file yet.
struct OpenTail {
    /// Its place among all that are open.
    number: u64,
    first: u64,
    values: Vec<u8>,
}

#[derive(Default)]
struct StoredRow {
    parts: VecDeque<RowPart>,
    open: Option<Box<OpenTail>>,
    /// The position behind the last value.
    next: u64,
    /// The first value that was not given up, and the bytes in front of it in the part that it is in.
    begin: u64,
    dead: u32,
}

/// Where in a row a value lies.
enum RowPosition {
    Part(usize),
    Open,
}

impl StoredRow {
    /// Where the value at `position` lies, which is there.
    fn place(&self, position: u64) -> RowPosition {
        if self.open.as_ref().is_some_and(|open| open.first <= position) {
            return RowPosition::Open;
        }
        RowPosition::Part(self.parts.partition_point(|part| part.next() <= position))
    }

    /// From where on the values of a part are to be walked over: bytes, and the position there.
    fn start(&self, index: usize, first: u64) -> (usize, u64) {
        match index {
            0 if self.begin > first => (self.dead as usize, self.begin),
            _ => (0, first),
        }
    }

    /// The same of those that are open.
    fn open_start(&self, first: u64) -> (usize, u64) {
        self.start(self.parts.len(), first)
    }
}

/// The value at `offset`, and where the next one begins.
fn value(values: &[u8], offset: usize) -> Option<(&[u8], usize)> {
    let (len, rest) = values.get(offset..)?.split_first_chunk::<LENGTH_BYTES>()?;
    let len = u32::from_le_bytes(*len) as usize;
    Some((rest.get(..len)?, offset + LENGTH_BYTES + len))
}

/// Walks from `(offset, position)` to the value at `to`; where it begins.
fn walk(values: &[u8], (mut offset, mut position): (usize, u64), to: u64) -> usize {
    while position < to
        && let Some((_, next)) = value(values, offset)
    {
        (offset, position) = (next, position + 1);
    }
    offset
}

/// Keeps values in files.
pub struct RowFiles {
    disk: LogDisk,
    segments: LogSegments,
    rows: BTreeMap<u64, StoredRow>,
    made: u64,
    /// The rows that have open values, in the order in which these began.
    open: BTreeMap<u64, u64>,
    opened: u64,
    /// Bytes of memory that open values take.
    open_bytes: usize,
    /// Bytes of memory that values may take.
    memory_bytes: usize,
    /// Blocks that were moved.
    #[cfg(test)]
    moved: u64,
}

impl RowFiles {
    /// No rows yet.
    pub fn new(disk: LogDisk) -> Self {
        let mut it = Self {
            segments: LogSegments::new(disk.clone()),
            disk,
            rows: BTreeMap::new(),
            made: 0,
            open: BTreeMap::new(),
            opened: 0,
            open_bytes: 0,
            memory_bytes: 0,
            #[cfg(test)]
            moved: 0,
        };
        it.counts(0);
        it
    }

    fn known(&mut self, row: u64) -> &mut StoredRow {
        self.rows.get_mut(&row).expect("the row was not given up")
    }

    /// Forgets what is open of a row, which was written or is not needed.
    fn close(&mut self, row: u64) -> Option<Box<OpenTail>> {
        let open = self.known(row).open.take()?;
        self.open.remove(&open.number);
        self.open_bytes -= OPEN_BYTES + open.values.capacity();
        Some(open)
    }

    /// Writes what is open of a row, with the short blocks in front of it.
    fn seal(&mut self, row: u64) {
        let Some(open) = self.close(row) else { return };
        let (mut count, half) = (0, self.disk.block_bytes / 2);
        let Self { segments, rows, .. } = self;
        let it = rows.get_mut(&row).expect("it had values");
        let (start, mut first) = it.open_start(open.first);
        let mut total = open.values.len() - start;
        count += (it.next - first) as u32;
        let mut before: Vec<(Block, usize)> = Vec::new();
        while let Some(last) = it.parts.back().copied()
            && (last.at.len as usize) < half.min(SHORTER * total)
            && last.at.len as usize + total <= 3 * half
            && last.next() == first
        {
            let (from, begin) = it.start(it.parts.len() - 1, last.first);
            before.push((segments.get(last.at, false), from));
            segments.leave(last.at, from as u32);
            it.parts.pop_back();
            (total, count) = (total + last.at.len as usize - from, count + (first - begin) as u32);
            first = begin;
        }
        let mut values: Vec<&[u8]> =
            before.iter().rev().map(|(block, from)| &block.values()[*from..]).collect();
        values.push(&open.values[start..]);
        let at = segments.put(BlockOwner { row, first }, &values);
        if it.parts.is_empty() {
            it.dead = 0;
        }
        it.parts.push_back(RowPart { first, count, at });
    }

    /// Moves some blocks out of the segment with most waste, while more is wasted than needed.
    fn compact(&mut self) {
        let mut moved = 0;
        while moved < MOVE_BYTES
            && let Some((owner, at)) = self.segments.movable()
        {
            moved += LOOK_BYTES;
            let Self { segments, rows, .. } = self;
            let Some(row) = rows.get_mut(&owner.row) else { continue };
            let Ok(index) = row.parts.binary_search_by_key(&owner.first, |part| part.first) else {
                continue;
            };
            let part = row.parts[index];
            if part.at != at {
                continue;
            }
            let (from, first) = row.start(index, part.first);
            let block = segments.get(at, false);
            let owner = BlockOwner { first, ..owner };
            let to = segments.put(owner, &[&block.values()[from..]]);
            segments.leave(at, from as u32);
            if index == 0 {
                row.dead = 0;
            }
            let count = part.count - (first - part.first) as u32;
            row.parts[index] = RowPart { first, count, at: to };
            moved += to.bytes();
            #[cfg(test)]
            {
                self.moved += 1;
            }
        }
    }

    /// Writes open values while they take too much memory.
    fn spill(&mut self) {
        while self.open_bytes > self.memory_bytes / 2
            && let Some((_, row)) = self.open.first_key_value()
        {
            let row = *row;
            self.seal(row);
        }
        self.segments.limit(self.memory_bytes.saturating_sub(self.open_bytes));
    }

    /// Gives up what is in front of a position in the part that it is in.
    fn begin_at(&mut self, row: u64, to: u64) {
        let Self { segments, rows, .. } = self;
        let it = rows.get_mut(&row).expect("the row was not given up");
        it.dead = match (it.parts.front(), &it.open) {
            (Some(part), _) if part.first < to => {
                let start = it.start(0, part.first);
                let dead = walk(segments.get(part.at, true).values(), start, to);
                segments.waste(part.at, (dead - start.0) as u32);
                dead as u32
            }
            (None, Some(open)) => walk(&open.values, it.start(0, open.first), to) as u32,
            _ => 0,
        };
        it.begin = to;
    }
}

impl RowStorage for RowFiles {
    type Row = u64;

    fn row(&mut self, first: u64) -> u64 {
        self.made += 1;
        self.rows
            .insert(self.made, StoredRow { next: first, begin: first, ..StoredRow::default() });
        self.made
    }

    fn push(&mut self, row: &mut u64, value: &[u8]) {
        let row = *row;
        let bytes = LENGTH_BYTES + value.len();
        let most = self.disk.block_bytes;
        if self.known(row).open.as_ref().is_some_and(|open| open.values.len() + bytes > most) {
            self.seal(row);
        }
        let number = self.opened + 1;
        let it = self.rows.get_mut(&row).expect("the row was not given up");
        let (first, mut grown) = (it.next, 0);
        let open = it.open.get_or_insert_with(|| {
            grown = OPEN_BYTES;
            Box::new(OpenTail { number, first, values: Vec::new() })
        });
        let before = open.values.capacity();
        if bytes > most {
            open.values.reserve_exact(bytes);
        }
        open.values.extend_from_slice(&(value.len() as u32).to_le_bytes());
        open.values.extend_from_slice(value);
        grown += open.values.capacity() - before;
        it.next += 1;
        if open.number == number {
            self.opened = number;
            self.open.insert(number, row);
        }
        self.open_bytes += grown;
        self.spill();
        self.compact();
    }

    fn read(&mut self, row: &u64, from: u64, once: bool, give: &mut dyn FnMut(&[u8]) -> bool) {
        let Self { segments, rows, .. } = self;
        let row = &rows[row];
        let mut position = from;
        while position < row.next {
            let kept;
            let (values, start, end) = match row.place(position) {
                RowPosition::Part(index) => {
                    let part = &row.parts[index];
                    kept = segments.get(part.at, !once);
                    (kept.values(), row.start(index, part.first), part.next())
                }
                RowPosition::Open => {
                    let Some(open) = &row.open else { return };
                    (&open.values[..], row.open_start(open.first), row.next)
                }
            };
            let mut offset = walk(values, start, position);
            while position < end
                && let Some((one, next)) = value(values, offset)
            {
                (offset, position) = (next, position + 1);
                if !give(one) {
                    return;
                }
            }
        }
    }

    fn bytes(&mut self, row: &u64, from: u64, to: u64) -> u64 {
        let Self { segments, rows, .. } = self;
        let row = &rows[row];
        let (mut position, mut bytes) = (from, 0);
        while position < to {
            let kept;
            let (values, start, end) = match row.place(position) {
                RowPosition::Part(index) => {
                    let part = &row.parts[index];
                    if position == part.first && part.next() <= to {
                        (position, bytes) = (part.next(), bytes + part.bytes());
                        continue;
                    }
                    kept = segments.get(part.at, true);
                    (kept.values(), row.start(index, part.first), part.next())
                }
                RowPosition::Open => {
                    let Some(open) = &row.open else { return bytes };
                    (&open.values[..], row.open_start(open.first), row.next)
                }
            };
            let mut offset = walk(values, start, position);
            while position < end.min(to)
                && let Some((one, next)) = value(values, offset)
            {
                (offset, position) = (next, position + 1);
                bytes += one.len() as u64;
            }
        }
        bytes
    }

    fn give_up(&mut self, row: &mut u64, from: u64, to: u64) {
        let number = *row;
        let Self { segments, rows, .. } = self;
        let it = rows.get_mut(&number).expect("the row was not given up");
        let to = to.min(it.next);
        if from >= to || to <= it.begin {
            return;
        }
        let first = it.parts.partition_point(|part| part.first.max(it.begin) < from);
        let end = it.parts.partition_point(|part| part.next() <= to);
        if first < end {
            for (index, part) in it.parts.range(first..end).enumerate() {
                let dead = if first + index == 0 { it.dead } else { 0 };
                segments.leave(part.at, dead);
            }
            if first == 0 {
                it.dead = 0;
            }
            it.parts.drain(first..end);
            if it.parts.capacity() > 64 && it.parts.len() < it.parts.capacity() / 4 {
                it.parts.shrink_to(2 * it.parts.len());
            }
        }
        let whole = it.open.as_ref().is_some_and(|open| from <= open.first.max(it.begin));
        let ahead = from <= it.begin;
        if whole && to == it.next {
            self.close(number);
        }
        if ahead {
            self.begin_at(number, to);
        }
        self.spill();
        self.compact();
    }

    fn free(&mut self, mut row: u64) {
        self.give_up(&mut row, 0, u64::MAX);
        self.rows.remove(&row);
    }

    fn trimmed(&mut self) {
        self.segments.turn();
    }

    fn counts(&mut self, bytes: usize) {
        let most = self.disk.memory_bytes;
        self.memory_bytes = most.saturating_sub(bytes).max(most / 8);
    }
}

#[cfg(test)]
mod tests {
    use super::super::segments::UNUSABLE;
    use super::*;
    use amcast_core::rng::Rng;

    const SEGMENT: u32 = 2000;
    const BLOCK: usize = 100;

    fn rows(memory_bytes: usize) -> RowFiles {
        let disk = LogDisk::new(&std::env::temp_dir(), memory_bytes).expect("files can be made");
        RowFiles::new(disk.with_small(SEGMENT, BLOCK))
    }

    fn all(rows: &mut RowFiles, row: u64, from: u64) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        rows.read(&row, from, false, &mut |value| {
            all.push(value.to_vec());
            true
        });
        all
    }

    /// The expected row: its first position, where values were given up in the middle, and its
    /// values from the first one on.
    struct RowModel {
        row: u64,
        first: u64,
        hole: (u64, u64),
        values: VecDeque<Vec<u8>>,
    }

    impl RowModel {
        fn next(&self) -> u64 {
            self.first + self.values.len() as u64
        }

        /// Where values can be asked for: from a position on, and in front of another.
        fn range(&self, rng: &mut Rng) -> (u64, u64) {
            let (from, to) = match self.hole {
                (from, to) if from < to && rng.chance(500_000) => (self.first, from),
                (from, to) => (if from < to { to } else { self.first }, self.next()),
            };
            let from = from + rng.below(to - from + 1);
            (from, from + rng.below(to - from + 1))
        }

        fn between(&self, from: u64, to: u64) -> impl Iterator<Item = &Vec<u8>> {
            self.values.range((from - self.first) as usize..(to - self.first) as usize)
        }

        fn trim(&mut self, to: u64) {
            self.values.drain(..(to - self.first) as usize);
            self.first = to;
            if self.hole.0 <= to {
                self.hole = (0, 0);
            }
        }
    }

    fn change(rows: &mut RowFiles, models: &mut Vec<RowModel>, rng: &mut Rng, grows: bool) {
        let which = rng.below(models.len() as u64 + 1) as usize;
        let Some(model) = models.get_mut(which) else {
            if models.len() < 12 {
                let first = rng.below(5);
                let (row, hole, values) = (rows.row(first), (0, 0), VecDeque::new());
                models.push(RowModel { row, first, hole, values });
            }
            return;
        };
        match rng.below(100) {
            0..80 if grows => {
                for _ in 0..1 + rng.below(4) {
                    let len = if rng.chance(20_000) { 3000 } else { rng.below(60) };
                    let value: Vec<u8> = (0..len).map(|_| rng.word() as u8).collect();
                    rows.push(&mut model.row, &value);
                    model.values.push_back(value);
                }
            }
            98 if !grows || rng.chance(50_000) => rows.free(models.swap_remove(which).row),
            99 => {
                // In the middle, as while a snapshot needs the values in front; it grows only at its end.
                let from = match model.hole {
                    (from, to) if from < to => from,
                    _ => model.first + rng.below(model.values.len() as u64 + 1),
                };
                let to = model.hole.1.max(from);
                let to = to + rng.below(model.next() - to + 1);
                rows.give_up(&mut model.row, from, to);
                if from == model.first {
                    model.trim(to);
                } else if from < to {
                    model.hole = (from, to);
                }
            }
            _ => {
                let (_, to) = model.range(rng);
                let to = if rng.chance(800_000) { to.min(model.first + 3) } else { to };
                let to = if model.hole.0 <= to && to < model.hole.1 { model.first } else { to };
                rows.give_up(&mut model.row, rng.below(model.first + 1), to);
                model.trim(to);
            }
        }
    }

    #[test]
    fn rows_do_what_a_simple_model_does_and_memory_and_waste_are_bounded() {
        for (seed, memory) in [(1, 0), (2, 600), (3, 3000), (4, 1 << 20)] {
            let (mut rng, mut rows) = (Rng::stream(seed, "rows"), rows(memory));
            let (mut models, mut most) = (Vec::new(), 0);
            for step in 0..30_000_u32 {
                change(&mut rows, &mut models, &mut rng, (step / 3000) % 2 == 0);
                if rng.chance(5000) {
                    rows.trimmed();
                }
                if rng.chance(1000) {
                    rows.segments.settle();
                }
                if let Some(model) = models.get(rng.below(models.len().max(1) as u64) as usize) {
                    let (from, to) = model.range(&mut rng);
                    let bytes: usize = model.between(from, to).map(Vec::len).sum();
                    assert_eq!(rows.bytes(&model.row, from, to), bytes as u64);
                    let (mut at, once) = (from, rng.chance(500_000));
                    // Nobody reads the values that were released in the middle.
                    if from < to {
                        rows.read(&model.row, from, once, &mut |value| {
                            assert_eq!(value, model.values[(at - model.first) as usize]);
                            at += 1;
                            at < to
                        });
                    }
                    assert_eq!(at, to);
                }
                let (open, cached) = (rows.open_bytes, rows.segments.cached());
                // The written block includes all open values.
                assert!(open <= memory / 2 && open + cached <= memory, "{open} {cached}");
                let (all, live) = (rows.segments.bytes(), rows.segments.live_bytes());
                assert!(all <= 2 * live + 3 * u64::from(SEGMENT) + 3100, "{all} {live}");
                most = most.max(rows.segments.count());
            }
            assert!(most > 10 && rows.moved > 100, "{most} segments, {} moves", rows.moved);
            for model in &models {
                assert_eq!(rows.rows[&model.row].next, model.next());
            }
            models.drain(..).for_each(|model| rows.free(model.row));
            assert_eq!((rows.segments.bytes(), rows.segments.count()), (0, 0));
            assert_eq!((rows.segments.cached(), rows.open_bytes, rows.rows.len()), (0, 0, 0));
        }
    }

    #[test]
    fn many_rows_with_little_memory_have_few_short_blocks_each() {
        let disk = LogDisk::new(&std::env::temp_dir(), 100_000).expect("files can be made");
        let mut rows = RowFiles::new(disk);
        let mut numbers: Vec<u64> = (0..200).map(|_| rows.row(0)).collect();
        for n in 0..800_u64 {
            numbers.iter_mut().for_each(|row| rows.push(row, &[n as u8; 100]));
        }
        let parts = |row: &u64| {
            let lens = rows.rows[row].parts.iter().map(|part| part.at.len);
            (lens.clone().filter(|len| *len < 16 << 10).count(), lens.count())
        };
        for (short, all) in numbers.iter().map(parts) {
            assert!(short <= 4 && all <= 9, "{short} short ones of {all} for 83 KB");
        }
        for row in numbers {
            let read = all(&mut rows, row, 799);
            assert_eq!(read, [[799_u64 as u8; 100]]);
            assert_eq!(all(&mut rows, row, 0).len(), 800);
        }
    }

    #[test]
    fn a_value_that_is_not_in_memory_takes_one_read_and_the_next_one_none() {
        let disk = LogDisk::new(&std::env::temp_dir(), 200_000).expect("files can be made");
        let (mut rng, mut rows) = (Rng::stream(1, "reads"), RowFiles::new(disk));
        let mut row = rows.row(0);
        (0..100_000_u64).for_each(|n| rows.push(&mut row, &n.to_le_bytes()));
        rows.segments.settle();
        for _ in 0..100 {
            let (at, before) = (rng.below(90_000), rows.segments.reads);
            for n in at..at + 2 {
                rows.read(&row, n, false, &mut |value| {
                    assert_eq!(value, n.to_le_bytes());
                    false
                });
            }
            // The two may lie in two blocks.
            assert!(rows.segments.reads - before <= 2);
        }
        assert!(rows.segments.reads <= 101, "{} of 200", rows.segments.reads);
        let before = rows.segments.reads;
        rows.give_up(&mut row, 0, 50_000);
        assert!(rows.segments.reads - before <= 1, "a trim reads where it ends");
    }

    #[test]
    fn one_old_value_keeps_no_segment_and_a_trim_begins_a_new_one() {
        let mut rows = rows(0);
        let (mut old, mut young) = (rows.row(0), rows.row(0));
        rows.push(&mut old, b"old");
        for n in 0..500 {
            rows.push(&mut young, &[1; 100]);
            rows.give_up(&mut young, 0, n + 1);
        }
        assert!(rows.segments.bytes() < 3 * u64::from(SEGMENT), "{}", rows.segments.bytes());
        assert_eq!(all(&mut rows, old, 0), [b"old"]);
        rows.push(&mut young, &[2; 600]);
        let segment = |rows: &RowFiles, row: u64| rows.rows[&row].parts.back().unwrap().at.segment;
        let before = segment(&rows, young);
        rows.trimmed();
        rows.push(&mut old, &[3; 50]);
        assert_ne!(segment(&rows, old), before);
    }

    #[test]
    fn what_a_disk_changed_is_not_given() {
        for offset in [0, 5, 13, 21, 24, 29] {
            let mut rows = rows(0);
            let mut row = rows.row(0);
            rows.push(&mut row, b"value");
            rows.segments.settle();
            rows.segments.damage(1, offset);
            let get = std::panic::AssertUnwindSafe(|| drop(all(&mut rows, row, 0)));
            let why = std::panic::catch_unwind(get).unwrap_err();
            let why = why.downcast_ref::<String>().expect("it says why");
            assert!(why.starts_with(UNUSABLE) && why.contains("a checksum differs"), "{why}");
        }
    }
}
