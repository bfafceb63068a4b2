//! Blocks of values in files, the recent ones in memory, too [MRP 7.3].
//!
//! A block has values of one row that lie one behind another. It is written behind the last one of the current
//! segment, with a head that says which row and position it is of and the CRC-32C of both in front, and stays in the cache
//! until newer ones take its room. A segment is a file without a name: it goes with its process, however that ends,
//! since a node that starts anew gets its state from elsewhere. It goes earlier when no block in it is needed; and while
//! less than half of all that is in files is still needed, the blocks of the segment with most waste are to be moved,
//! by the [rows](super::rows), which know the blocks' places. Nothing waits for the disk: a [thread of its
//! own](super::writer) writes, many blocks at once, and the system when it likes. Appends are durable through the
//! protocol's log, not through these files: the protocol trims its log only behind a synced state that has all
//! values.
//!
//! If a file cannot be written or read the process ends, as [`Storage`](super::storage::RowStorage) asks: by a panic with
//! words that begin with [`UNUSABLE`].

use super::writer::RowWriter;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
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

/// Bytes of a block, beside one value that has more.
const BLOCK_BYTES: usize = 32 << 10;

/// Bytes in front of each block.
const HEAD_BYTES: u32 = 24;

/// Where and how a shard's values are kept in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDisk {
    directory: PathBuf,
    /// Bytes of memory, for values and for what says where they are.
    pub(super) memory_bytes: usize,
    pub(super) block_bytes: usize,
    segment_bytes: u32,
}

impl LogDisk {
    /// Files in `directory`; each shard takes about `memory_bytes` of memory, for recent values and for what says
    /// where the others are.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn new(directory: &Path, memory_bytes: usize) -> io::Result<Self> {
        nameless(directory)?;
        let directory = directory.to_path_buf();
        let (block_bytes, segment_bytes) = (BLOCK_BYTES, SEGMENT_BYTES);
        Ok(Self { directory, memory_bytes, block_bytes, segment_bytes })
    }

    /// The same with small segments and blocks.
    #[cfg(test)]
    pub(super) fn with_small(self, segment_bytes: u32, block_bytes: usize) -> Self {
        Self { segment_bytes, block_bytes, ..self }
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

/// The same via a name that no other process uses.
pub(super) fn named_once(directory: &Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let (process, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = directory.join(format!(".amcast-values-{process}-{n}"));
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        match file {
            // A process of the same number was killed here.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
        }
    }
}

/// Where a block lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct BlockAddress {
    pub(super) segment: u32,
    pub(super) offset: u32,
    /// Bytes without the head.
    pub(super) len: u32,
}

impl BlockAddress {
    /// The bytes that it occupies in its segment.
    pub(super) const fn bytes(&self) -> u32 {
        HEAD_BYTES + self.len
    }

    const fn place(&self) -> (u32, u32) {
        (self.segment, self.offset)
    }
}

/// The owner of a block's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockOwner {
    /// The number of the row.
    pub(super) row: u64,
    /// The position of the first value.
    pub(super) first: u64,
}

/// A head without its sum: bytes of the block, and its owner.
fn head(len: u32, owner: BlockOwner) -> [u8; 20] {
    let mut head = [0; 20];
    head[..4].copy_from_slice(&len.to_le_bytes());
    head[4..12].copy_from_slice(&owner.row.to_le_bytes());
    head[12..].copy_from_slice(&owner.first.to_le_bytes());
    head
}

/// The fields of a head, if there is one.
fn parse(head: &[u8]) -> Option<(u32, BlockOwner)> {
    let (len, rest) = head.split_first_chunk::<4>()?;
    let (row, rest) = rest.split_first_chunk::<8>()?;
    let (first, _) = rest.split_first_chunk::<8>()?;
    let owner = BlockOwner { row: u64::from_le_bytes(*row), first: u64::from_le_bytes(*first) };
    Some((u32::from_le_bytes(*len), owner))
}

fn sum(head: &[u8], values: &[u8]) -> [u8; 4] {
    crc32c::crc32c_append(crc32c::crc32c(head), values).to_le_bytes()
}

/// A block with its head, as it is in its file.
#[derive(Clone)]
pub(super) struct Block(Arc<[u8]>);

impl Block {
    pub(super) fn values(&self) -> &[u8] {
        &self.0[HEAD_BYTES as usize..]
    }
}

struct LogSegment {
    file: Arc<File>,
    /// Bytes written, or given to be.
    end: u32,
    /// Blocks that are still needed, and the bytes in them that are.
    live: u32,
    live_bytes: u32,
}

/// Blocks in memory: those that were written or read last.
#[derive(Default)]
struct Cache {
    /// Each with when it was used last.
    blocks: BTreeMap<(u32, u32), (u64, Block)>,
    /// In that order.
    used: BTreeMap<u64, (u32, u32)>,
    uses: u64,
    bytes: usize,
}

impl Cache {
    /// The approximate memory of a block besides its bytes.
    const EACH: usize = 128;

    fn get(&mut self, at: BlockAddress) -> Option<Block> {
        let (used, block) = self.blocks.get_mut(&at.place())?;
        self.used.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.used.insert(self.uses, at.place());
        Some(block.clone())
    }

    fn put(&mut self, at: BlockAddress, block: Block) {
        self.uses += 1;
        self.bytes += Self::EACH + block.0.len();
        self.used.insert(self.uses, at.place());
        self.blocks.insert(at.place(), (self.uses, block));
    }

    fn remove(&mut self, place: (u32, u32)) {
        if let Some((used, block)) = self.blocks.remove(&place) {
            self.used.remove(&used);
            self.bytes -= Self::EACH + block.0.len();
        }
    }

    fn shrink(&mut self, most: usize) {
        while self.bytes > most
            && let Some((_, place)) = self.used.first_key_value()
        {
            let place = *place;
            self.remove(place);
        }
    }
}

/// Keeps blocks in files.
pub(super) struct LogSegments {
    disk: LogDisk,
    segments: BTreeMap<u32, LogSegment>,
    /// The last one that was begun, as long as it is written.
    current: Option<u32>,
    begun: u32,
    /// The one whose blocks are being moved, and how far it was looked at.
    moving: Option<(u32, u32)>,
    /// Bytes in all files, and those that are still needed.
    bytes: u64,
    live_bytes: u64,
    cache: Cache,
    cache_bytes: usize,
    /// The block that was read last and is not expected to be asked for again, but for the rest of it.
    passing: Option<(BlockAddress, Block)>,
    /// From the first block on.
    writer: Option<RowWriter>,
    pending: PendingBlocks,
    /// Blocks that were read from files.
    #[cfg(test)]
    pub(super) reads: u64,
}

/// Blocks that may not be written yet, by segment and offset: the order in which they are written.
#[derive(Default)]
struct PendingBlocks {
    blocks: VecDeque<(u32, u32, Block)>,
    /// How many are written, and not here any more.
    gone: u64,
}

impl PendingBlocks {
    /// Forgets what is written.
    fn settle(&mut self, done: u64) {
        while self.gone < done && self.blocks.pop_front().is_some() {
            self.gone += 1;
        }
    }

    fn get(&self, place: (u32, u32)) -> Option<&Block> {
        let found =
            self.blocks.binary_search_by_key(&place, |(segment, offset, _)| (*segment, *offset));
        found.ok().map(|at| &self.blocks[at].2)
    }
}

impl LogSegments {
    /// No blocks yet.
    pub(super) fn new(disk: LogDisk) -> Self {
        Self {
            disk,
            segments: BTreeMap::new(),
            current: None,
            begun: 0,
            moving: None,
            bytes: 0,
            live_bytes: 0,
            cache: Cache::default(),
            cache_bytes: 0,
            passing: None,
            writer: None,
            pending: PendingBlocks::default(),
            #[cfg(test)]
            reads: 0,
        }
    }

    /// Bytes in all files.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes in files that are still needed.
    #[cfg(test)]
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes of blocks in memory.
    #[cfg(test)]
    pub(super) fn cached(&self) -> usize {
        self.cache.bytes
    }

    /// Has blocks take no more of memory than so many bytes.
    pub(super) fn limit(&mut self, bytes: usize) {
        self.cache_bytes = bytes;
        self.cache.shrink(bytes);
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
            let empty = LogSegment { file, end: 0, live: 0, live_bytes: 0 };
            self.segments.insert(self.begun, empty);
            self.current = Some(self.begun);
            self.begun
        })
    }

    /// Writes a block behind the others, the parts of its values one behind another.
    pub(super) fn put(&mut self, owner: BlockOwner, values: &[&[u8]]) -> BlockAddress {
        let len: usize = values.iter().map(|part| part.len()).sum();
        let mut whole = Vec::with_capacity(HEAD_BYTES as usize + len);
        whole.extend_from_slice(&head(len as u32, owner));
        whole.extend_from_slice(&[0; 4]);
        values.iter().for_each(|part| whole.extend_from_slice(part));
        let (before, behind) = whole.split_at_mut(HEAD_BYTES as usize);
        let sum = sum(&before[..20], behind);
        before[20..].copy_from_slice(&sum);
        let block = Block(whole.into());
        let bytes = HEAD_BYTES + len as u32;
        let number = self.room(bytes);
        let segment = self.segments.get_mut(&number).expect("it has room");
        let (file, offset) = (Arc::clone(&segment.file), segment.end);
        segment.end += bytes;
        segment.live += 1;
        segment.live_bytes += bytes;
        self.bytes += u64::from(bytes);
        self.live_bytes += u64::from(bytes);
        let at = BlockAddress { segment: number, offset, len: len as u32 };
        self.pending.blocks.push_back((number, offset, block.clone()));
        if let Err(e) = self.have_written(&file, offset, &block) {
            self.fail("written", &e);
        }
        self.keep(at, block);
        at
    }

    fn have_written(&mut self, file: &Arc<File>, offset: u32, block: &Block) -> io::Result<()> {
        let writer = match &self.writer {
            Some(writer) => writer,
            None => self.writer.insert(RowWriter::start()?),
        };
        writer.put(file, offset.into(), Arc::clone(&block.0))?;
        self.pending.settle(writer.done());
        Ok(())
    }

    /// Notes that so many bytes of a block are not needed any more.
    pub(super) fn waste(&mut self, at: BlockAddress, bytes: u32) {
        let segment = self.segments.get_mut(&at.segment).expect("the block is there");
        segment.live_bytes -= bytes;
        self.live_bytes -= u64::from(bytes);
    }

    /// Notes that a block is not needed any more, of which so many bytes were not before.
    pub(super) fn leave(&mut self, at: BlockAddress, wasted: u32) {
        self.cache.remove(at.place());
        self.waste(at, at.bytes() - wasted);
        let segment = self.segments.get_mut(&at.segment).expect("the block is there");
        segment.live -= 1;
        if segment.live == 0 {
            self.bytes -= u64::from(segment.end);
            self.segments.remove(&at.segment);
            self.current = self.current.filter(|current| *current != at.segment);
            self.moving = self.moving.filter(|(moving, _)| *moving != at.segment);
        }
    }

    /// A block, which stays in memory for a while if it is to be kept.
    pub(super) fn get(&mut self, at: BlockAddress, keep: bool) -> Block {
        if let Some(block) = self.cache.get(at) {
            return block;
        }
        let block = match self.pending.get(at.place()) {
            Some(block) => block.clone(),
            None => match self.passing.take().filter(|(passing, _)| *passing == at) {
                Some((_, block)) => block,
                None => self.read(at),
            },
        };
        match keep {
            true => self.keep(at, block.clone()),
            false => self.passing = Some((at, block.clone())),
        }
        block
    }

    /// Has a block stay in memory, if it leaves room for others there.
    fn keep(&mut self, at: BlockAddress, block: Block) {
        if block.0.len() <= self.cache_bytes / 2 {
            self.cache.put(at, block);
            self.cache.shrink(self.cache_bytes);
        }
    }

    fn read(&mut self, at: BlockAddress) -> Block {
        #[cfg(test)]
        {
            self.reads += 1;
        }
        let mut bytes = vec![0; at.bytes() as usize];
        let file = &self.segments[&at.segment].file;
        if let Err(e) = file.read_exact_at(&mut bytes, at.offset.into()) {
            self.fail("read", &e);
        }
        let (before, values) = bytes.split_at(HEAD_BYTES as usize);
        let said = parse(before).is_some_and(|(len, _)| len == at.len);
        if !said || before[20..] != sum(&before[..20], values) {
            self.fail("read", &io::Error::new(io::ErrorKind::InvalidData, "a checksum differs"));
        }
        Block(bytes.into())
    }

    /// The next block that may have to be moved, since more is wasted than needed. The caller
    /// reports the new place of each block that is still needed.
    pub(super) fn movable(&mut self) -> Option<(BlockOwner, BlockAddress)> {
        if self.moving.is_none() {
            if self.bytes <= 2 * self.live_bytes + 2 * u64::from(self.disk.segment_bytes) {
                return None;
            }
            let others = self.segments.iter().filter(|(n, _)| Some(**n) != self.current);
            let most = others.max_by_key(|(_, segment)| segment.end - segment.live_bytes);
            self.moving = most.map(|(number, _)| (*number, 0));
        }
        let (number, offset) = self.moving?;
        let segment = &self.segments[&number];
        if offset >= segment.end {
            // Nothing that is needed is behind this.
            self.moving = None;
            return None;
        }
        let mut bytes = [0; HEAD_BYTES as usize];
        match self.pending.get((number, offset)) {
            Some(block) => bytes.copy_from_slice(&block.0[..HEAD_BYTES as usize]),
            None => {
                if let Err(e) = segment.file.read_exact_at(&mut bytes, offset.into()) {
                    self.fail("read", &e);
                }
            }
        }
        let (len, owner) = parse(&bytes)?;
        let at = BlockAddress { segment: number, offset, len };
        let end = offset.checked_add(HEAD_BYTES).and_then(|behind| behind.checked_add(len));
        let Some(end) = end.filter(|end| *end <= segment.end) else {
            self.fail("read", &io::Error::new(io::ErrorKind::InvalidData, "a head differs"));
        };
        self.moving = Some((number, end));
        Some((owner, at))
    }

    /// Begins a new segment with the next block, if the current one has a quarter of its size.
    pub(super) fn turn(&mut self) {
        let enough = |number: &u32| self.segments[number].end < self.disk.segment_bytes / 4;
        self.current = self.current.filter(enough);
    }

    /// Has all blocks written, and forgets that they were not.
    #[cfg(test)]
    pub(super) fn settle(&mut self) {
        let Some(writer) = &self.writer else { return };
        writer.settle();
        self.pending.settle(writer.done());
    }

    /// Changes a byte of a segment's file.
    #[cfg(test)]
    pub(super) fn damage(&self, segment: u32, offset: u64) {
        let file = &self.segments[&segment].file;
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }

    /// How many segments there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.segments.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_where_no_file_can_be_made_is_an_error_at_once() {
        assert!(LogDisk::new(Path::new("/proc/nowhere"), 0).is_err());
        assert!(named_once(Path::new("/proc/nowhere")).is_err());
        let file = named_once(&std::env::temp_dir()).unwrap();
        file.write_all_at(b"x", 7).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8);
    }

    #[test]
    fn the_names_of_a_process_that_was_killed_are_passed_over() {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("amcast-log-named-{process}"));
        std::fs::create_dir(&directory).unwrap();
        // One of the same number: in a container they are alike at each start.
        for n in 0..100 {
            std::fs::write(directory.join(format!(".amcast-values-{process}-{n}")), "").unwrap();
        }
        assert_eq!(named_once(&directory).unwrap().metadata().unwrap().len(), 0);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
