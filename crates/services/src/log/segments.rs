//! Values in files, the recent ones in memory, too [MRP 7.3].
//!
//! A value is written behind the last one of the current segment, with its length and the CRC-32C of both
//! in front, and stays in the cache until newer
//! ones take its room. A segment is a file without a name: it goes with its process, however that ends,
//! since a node that starts anew gets its state from elsewhere. It goes earlier when all its values are
//! freed; and while less than half of all that is in files is still needed, the values of the segment
//! with most waste are moved to the current one, some with each call. Nothing waits for the disk: a
//! [thread of its own](super::writer) writes, many values at once, and the system when it likes. What makes
//! appends last is their order, not these files: the log of what is ordered is only forgotten behind a
//! state that was synced, and that has all values in it.
//!
//! If a file cannot be written or read the process ends, as [`Storage`] asks: by a panic with
//! words that begin with [`UNUSABLE`].

use super::storage::Storage;
use super::writer::Writer;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How the words of a panic begin that is no mistake of the program's: a file cannot be used.
pub const UNUSABLE: &str = "values of logs cannot be";

/// Bytes of a segment.
const SEGMENT_BYTES: u32 = 64 << 20;

/// Bytes that are moved with one call, beside the last value.
const MOVE_BYTES: u32 = 64 << 10;

/// Bytes in front of each value.
const HEAD_BYTES: u32 = 8;

/// Where and how a shard's values are kept in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    directory: PathBuf,
    cache_bytes: usize,
    segment_bytes: u32,
}

impl Disk {
    /// Files in `directory`; each shard has at most `cache_bytes` of values in memory, too.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn new(directory: &Path, cache_bytes: usize) -> io::Result<Self> {
        nameless(directory)?;
        let directory = directory.to_path_buf();
        Ok(Self { directory, cache_bytes, segment_bytes: SEGMENT_BYTES })
    }

    /// The same with small segments.
    #[cfg(test)]
    pub(super) fn with_segments(self, segment_bytes: u32) -> Self {
        Self { segment_bytes, ..self }
    }
}

/// A file that nobody else can open.
fn nameless(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        // Some file systems have only files that had a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => named_once(directory),
        opened => Ok(opened?.into()),
    }
}

/// The same by way of a name that no other process takes.
pub(super) fn named_once(directory: &Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (process, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = directory.join(format!(".amcast-values-{process}-{n}"));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn sum(len: u32, value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&len.to_le_bytes()), value)
}

/// Which value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(u32);

/// Where a value lies.
#[derive(Clone, Copy, Default)]
struct Spot {
    segment: u32,
    offset: u32,
    len: u32,
    /// Its number in the cache, if it is there still.
    cached: u64,
}

impl Spot {
    /// What it takes of its segment.
    const fn bytes(&self) -> u32 {
        HEAD_BYTES + self.len
    }
}

struct Segment {
    file: Arc<File>,
    /// Bytes written, or given to be.
    end: u32,
    /// Values that are still needed, and the bytes that they take.
    live: u32,
    live_bytes: u32,
    /// The values that were written, in their order; some have moved or are freed.
    slots: Vec<Slot>,
}

/// Recent values.
#[derive(Default)]
struct Cache {
    /// From the one numbered `first` on; nothing where it was freed.
    values: VecDeque<Option<Box<[u8]>>>,
    first: u64,
    /// How many there are, and their bytes.
    count: usize,
    bytes: usize,
}

impl Cache {
    /// Places of freed values that may stand among as many others.
    const HOLES: usize = 1024;

    fn get(&self, number: u64) -> Option<&[u8]> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.values.get(index)?.as_deref()
    }

    /// Keeps a value; its number.
    fn put(&mut self, value: &[u8], bytes_max: usize) -> u64 {
        self.values.push_back(Some(value.into()));
        (self.count, self.bytes) = (self.count + 1, self.bytes + value.len());
        let number = self.first + self.values.len() as u64 - 1;
        while (self.bytes > bytes_max || self.values.len() > 2 * self.count + Self::HOLES)
            && let Some(oldest) = self.values.pop_front()
        {
            self.first += 1;
            self.gone(oldest);
        }
        number
    }

    fn free(&mut self, number: u64) {
        let index = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let value = index.and_then(|index| self.values.get_mut(index)).and_then(Option::take);
        self.gone(value);
    }

    fn gone(&mut self, value: Option<Box<[u8]>>) {
        if let Some(value) = value {
            (self.count, self.bytes) = (self.count - 1, self.bytes - value.len());
        }
    }
}

/// Keeps values in files.
pub struct Segments {
    disk: Disk,
    spots: Vec<Spot>,
    /// Slots of freed values.
    vacant: Vec<Slot>,
    segments: BTreeMap<u32, Segment>,
    /// The last one that was begun, as long as it is written.
    current: Option<u32>,
    begun: u32,
    /// The one whose values are being moved, and how many of those written were looked at.
    moving: Option<(u32, usize)>,
    /// Bytes in all files, and those that are still needed.
    bytes: u64,
    live_bytes: u64,
    cache: Cache,
    /// From the first value on.
    writer: Option<Writer>,
    pending: Pending,
}

/// What may not be written yet, each with its segment and offset in front: in their order, which is also
/// that in which they are written.
#[derive(Default)]
struct Pending {
    values: VecDeque<(u32, u32, Arc<[u8]>)>,
    /// How many are written, and not here any more.
    gone: u64,
}

impl Pending {
    /// Forgets what is written.
    fn settle(&mut self, done: u64) {
        while self.gone < done && self.values.pop_front().is_some() {
            self.gone += 1;
        }
    }

    fn get(&self, spot: &Spot) -> Option<&[u8]> {
        let at = (spot.segment, spot.offset);
        let found =
            self.values.binary_search_by_key(&at, |(segment, offset, _)| (*segment, *offset));
        let (_, _, bytes) = &self.values[found.ok()?];
        Some(&bytes[HEAD_BYTES as usize..])
    }
}

impl Segments {
    /// No values yet.
    pub fn new(disk: Disk) -> Self {
        Self {
            disk,
            spots: Vec::new(),
            vacant: Vec::new(),
            segments: BTreeMap::new(),
            current: None,
            begun: 0,
            moving: None,
            bytes: 0,
            live_bytes: 0,
            cache: Cache::default(),
            writer: None,
            pending: Pending::default(),
        }
    }

    /// Bytes in all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn fail(&self, what: &str, e: &io::Error) -> ! {
        let directory = self.disk.directory.display();
        panic!(
            "{UNUSABLE} {what} in {directory}: {e}; make room there (`df`) or see what ails the disk \
             (`dmesg`), and start again: the other nodes have what was acknowledged"
        )
    }

    /// The number of a segment with room for `len` bytes.
    fn room(&mut self, len: u32) -> u32 {
        let most = self.disk.segment_bytes;
        let current = self.current.filter(|number| {
            let end = self.segments[number].end;
            end == 0 || end.checked_add(len).is_some_and(|end| end <= most)
        });
        current.unwrap_or_else(|| {
            let file = nameless(&self.disk.directory);
            let file = Arc::new(file.unwrap_or_else(|e| self.fail("written", &e)));
            self.begun += 1;
            let empty = Segment { file, end: 0, live: 0, live_bytes: 0, slots: Vec::new() };
            self.segments.insert(self.begun, empty);
            self.current = Some(self.begun);
            self.begun
        })
    }

    /// Writes a value behind the others.
    fn write(&mut self, slot: Slot, value: &[u8]) {
        let len = value.len() as u32;
        let bytes = HEAD_BYTES + len;
        let head = [len.to_le_bytes(), sum(len, value).to_le_bytes()];
        let whole: Arc<[u8]> = [&head[0], &head[1], value].concat().into();
        let number = self.room(bytes);
        let segment = self.segments.get_mut(&number).expect("it has room");
        let (file, offset) = (Arc::clone(&segment.file), segment.end);
        segment.end += bytes;
        segment.live += 1;
        segment.live_bytes += bytes;
        segment.slots.push(slot);
        self.bytes += u64::from(bytes);
        self.live_bytes += u64::from(bytes);
        let spot = &mut self.spots[slot.0 as usize];
        (spot.segment, spot.offset, spot.len) = (number, offset, len);
        self.pending.values.push_back((number, offset, Arc::clone(&whole)));
        if let Err(e) = self.have_written(&file, offset, whole) {
            self.fail("written", &e);
        }
    }

    fn have_written(&mut self, file: &Arc<File>, offset: u32, bytes: Arc<[u8]>) -> io::Result<()> {
        let writer = match &self.writer {
            Some(writer) => writer,
            None => self.writer.insert(Writer::start()?),
        };
        writer.put(file, offset.into(), bytes)?;
        self.pending.settle(writer.done());
        Ok(())
    }

    /// Notes that a segment does not need the value at `spot` any more.
    fn leave(&mut self, spot: Spot) {
        let segment = self.segments.get_mut(&spot.segment).expect("the value is there");
        segment.live -= 1;
        segment.live_bytes -= spot.bytes();
        self.live_bytes -= u64::from(spot.bytes());
        if segment.live == 0 {
            self.bytes -= u64::from(segment.end);
            self.segments.remove(&spot.segment);
            self.current = self.current.filter(|current| *current != spot.segment);
            self.moving = self.moving.filter(|(moving, _)| *moving != spot.segment);
        }
    }

    /// A value that is not in the cache.
    fn read_back(&self, spot: &Spot) -> Cow<'_, [u8]> {
        match self.pending.get(spot) {
            Some(value) => Cow::Borrowed(value),
            None => Cow::Owned(self.read_file(spot)),
        }
    }

    fn read_file(&self, spot: &Spot) -> Vec<u8> {
        let mut bytes = vec![0; spot.bytes() as usize];
        let file = &self.segments[&spot.segment].file;
        if let Err(e) = file.read_exact_at(&mut bytes, spot.offset.into()) {
            self.fail("read", &e);
        }
        let value = bytes.split_off(HEAD_BYTES as usize);
        let head = [spot.len.to_le_bytes(), sum(spot.len, &value).to_le_bytes()].concat();
        if bytes != head {
            self.fail("read", &io::Error::new(io::ErrorKind::InvalidData, "a checksum differs"));
        }
        value
    }

    /// Moves some values out of the segment with most waste, while more is wasted than needed.
    fn tidy(&mut self) {
        if self.moving.is_none() {
            if self.bytes <= 2 * self.live_bytes + 2 * u64::from(self.disk.segment_bytes) {
                return;
            }
            let others = self.segments.iter().filter(|(n, _)| Some(**n) != self.current);
            let most = others.max_by_key(|(_, segment)| segment.end - segment.live_bytes);
            self.moving = most.map(|(number, _)| (*number, 0));
        }
        let mut moved = 0;
        while moved < MOVE_BYTES
            && let Some((number, looked_at)) = &mut self.moving
        {
            let number = *number;
            let Some(&slot) = self.segments[&number].slots.get(*looked_at) else {
                // Whatever it still has came by slots that were used anew.
                self.moving = None;
                return;
            };
            *looked_at += 1;
            let spot = self.spots[slot.0 as usize];
            // A look costs something, too.
            moved += HEAD_BYTES;
            if spot.segment == number {
                let value = self.read_back(&spot).into_owned();
                moved += spot.bytes();
                self.write(slot, &value);
                self.leave(spot);
            }
        }
    }
}

impl Storage for Segments {
    type Place = Slot;

    fn put(&mut self, value: &[u8]) -> Slot {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.spots.push(Spot::default());
            Slot((self.spots.len() - 1) as u32)
        });
        self.write(slot, value);
        self.spots[slot.0 as usize].cached = self.cache.put(value, self.disk.cache_bytes);
        self.tidy();
        slot
    }

    fn get<'a>(&'a self, slot: &'a Slot) -> Cow<'a, [u8]> {
        let spot = &self.spots[slot.0 as usize];
        match self.cache.get(spot.cached) {
            Some(value) => Cow::Borrowed(value),
            None => self.read_back(spot),
        }
    }

    fn len(&self, slot: &Slot) -> usize {
        self.spots[slot.0 as usize].len as usize
    }

    fn free(&mut self, slot: Slot) {
        let spot = std::mem::take(&mut self.spots[slot.0 as usize]);
        self.cache.free(spot.cached);
        self.leave(spot);
        self.vacant.push(slot);
        self.tidy();
    }

    fn trimmed(&mut self) {
        let enough = |number: &u32| self.segments[number].end < self.disk.segment_bytes / 4;
        self.current = self.current.filter(enough);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::rng::Rng;

    impl Segments {
        /// Has all values written, and forgets that they were not.
        fn settle(&mut self) {
            let Some(writer) = &self.writer else { return };
            writer.settle();
            self.pending.settle(writer.done());
        }
    }

    fn segments(cache_bytes: usize, segment_bytes: u32) -> Segments {
        let disk = Disk::new(&std::env::temp_dir(), cache_bytes).expect("files can be made");
        Segments::new(disk.with_segments(segment_bytes))
    }

    #[test]
    fn values_are_read_back_from_cache_and_files_and_waste_is_bounded() {
        for (seed, cache_bytes) in [(1, 0), (2, 300), (3, 1 << 20)] {
            let (mut rng, mut values) =
                (Rng::stream(seed, "segments"), segments(cache_bytes, 2000));
            let mut held: Vec<(Slot, Vec<u8>)> = Vec::new();
            let (mut most, mut most_held) = (0, 0);
            for step in 0..30_000_u32 {
                let grows = (step / 3000) % 2 == 0;
                if rng.below(10) < if grows { 7 } else { 3 } || held.is_empty() {
                    let len = if rng.chance(10_000) { 3000 } else { rng.below(60) };
                    let value: Vec<u8> = (0..len).map(|_| rng.word() as u8).collect();
                    held.push((values.put(&value), value));
                } else {
                    // Mostly old ones go, but some of those stay for long.
                    let at = if rng.chance(100_000) { rng.below(held.len() as u64) } else { 0 };
                    let at = (at as usize).min(held.len() - 1);
                    values.free(held.remove(at).0);
                }
                if let Some((slot, value)) = held.get(rng.below(held.len().max(1) as u64) as usize)
                {
                    assert_eq!(*values.get(slot), **value);
                    assert_eq!(values.len(slot), value.len());
                }
                if rng.chance(5000) {
                    values.trimmed();
                }
                if rng.chance(1000) {
                    values.settle();
                    assert!(values.pending.values.is_empty());
                }
                let live: u64 = held.iter().map(|(_, v)| 8 + v.len() as u64).sum();
                assert_eq!(values.live_bytes, live);
                assert!(values.bytes() <= 2 * live + 3 * 2000 + 3008, "{} {live}", values.bytes());
                assert!(values.cache.bytes <= cache_bytes);
                (most, most_held) = (most.max(values.segments.len()), most_held.max(held.len()));
            }
            assert!(most > 10, "{most} segments");
            assert!(held.iter().all(|(slot, value)| *values.get(slot) == **value));
            held.drain(..).for_each(|(slot, _)| values.free(slot));
            assert_eq!((values.bytes(), values.segments.len()), (0, 0));
            assert_eq!((values.cache.bytes, values.cache.count), (0, 0));
            assert!(values.cache.values.len() <= 2 * most_held + 1024);
        }
    }

    #[test]
    fn one_old_value_keeps_no_segment_and_a_trim_begins_a_new_one() {
        let mut values = segments(0, 1000);
        let old = values.put(b"old");
        for _ in 0..500 {
            let slot = values.put(&[1; 100]);
            values.free(slot);
        }
        assert!(values.bytes() < 4000, "{}", values.bytes());
        assert_eq!(*values.get(&old), *b"old");
        let (before, _) = (values.put(&[2; 300]), values.trimmed());
        let after = values.put(b"after");
        let segment = |slot: Slot| values.spots[slot.0 as usize].segment;
        assert_ne!(segment(before), segment(after));
    }

    #[test]
    fn what_a_disk_changed_is_not_given() {
        let mut values = segments(0, 1000);
        let slot = values.put(b"value");
        values.settle();
        values.segments[&1].file.write_all_at(b"x", 9).unwrap();
        let get = std::panic::AssertUnwindSafe(|| drop(values.get(&slot)));
        let why = std::panic::catch_unwind(get).unwrap_err();
        let why = why.downcast_ref::<String>().expect("it says why");
        assert!(why.starts_with(UNUSABLE) && why.contains("a checksum differs"), "{why}");
    }

    #[test]
    fn a_directory_where_no_file_can_be_made_is_an_error_at_once() {
        assert!(Disk::new(Path::new("/proc/nowhere"), 0).is_err());
        assert!(named_once(Path::new("/proc/nowhere")).is_err());
        let file = named_once(&std::env::temp_dir()).unwrap();
        file.write_all_at(b"x", 7).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8);
    }
}
