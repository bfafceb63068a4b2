//! The medium `Memory`: processes that write and read each other's memory, under permissions.
//!
//! Memory comes in regions; a region is an array of [`CacheLine`]s of 64 bytes, each seven words of data
//! and a stamp. A region has one writer, named by its [`RegionSpec`]. The region lives in its
//! owner's process; the owner sees it through its [`RegionWindow`] and reads it with acquire loads.
//!
//! # Laws (what every carrier promises; one conformance suite tests them all)
//! 1. **A line is whole or stale.** The stamp of a line is stored last, also if the writer dies in
//!    mid-write: a reader that finds the expected stamp finds the seven words that were written with it, or
//!    words of a later write that is under way. Where a writer goes round, it says beforehand, in
//!    a write of its own, which lines it will overwrite, and a reader checks that announcement after it has read.
//! 2. **Order.** Writes of one process to one region appear in the order of posting, and the lines
//!    of one write from first to last. There are no gaps: if a write does not appear, or not
//!    wholly, none that was posted after it appears before the region is opened anew (law 4) or the
//!    writer learns that nothing of its write is there (law 5). Writes to one process are answered in
//!    the order of posting.
//! 3. **Written, Denied, Lost.** [`AccessOutcome::Written`] means that every read ordered after a
//!    revocation of that region sees the write. [`AccessOutcome::Denied`] means that the region was
//!    revoked; the write may have appeared all the same, then or later. [`AccessOutcome::Lost`] says
//!    nothing.
//! 4. **Revocation.** From [`MemoryOutput::Revoke`] until the next [`MemoryOutput::Allow`] no write to a guarded
//!    region is reported `Written`. A guarded region starts revoked.
//! 5. **A fresh start is empty.** A process that starts again finds its regions zeroed. Every other
//!    process receives [`MemoryInput::Fresh`] before one of its writes reaches the new memory, and
//!    before one of its reads returns from it. Accesses in flight to the old memory are `Lost`. A
//!    carrier whose link to a process failed before anything of this process had appeared there sends
//!    [`MemoryInput::Fresh`], too, with the incarnation that the other one is in: a process that lost a write there
//!    learns of it before a later one appears.

use crate::id::Pid;
use crate::step::{Medium, Ticket};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// Words of data in a line.
pub const LINE_WORDS: usize = 7;

/// The stamp of a line: the value that the reader expects there, so that it distinguishes stale and torn lines from
/// whole ones. The writer's epoch and which time round the ring. Zero is never written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LineStamp(pub u64);

impl LineStamp {
    /// The stamp of `epoch` on lap `lap` of a ring, counted from 0.
    pub const fn new(epoch: u32, lap: u64) -> Self {
        Self((epoch as u64) << 32 | (lap + 1) & 0xffff_ffff)
    }

    /// The epoch in it.
    pub const fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// 64 bytes of shared memory: seven words and the stamp that publishes them.
#[repr(C, align(64))]
#[derive(Default)]
pub struct CacheLine {
    words: [AtomicU64; LINE_WORDS],
    stamp: AtomicU64,
}

impl CacheLine {
    /// One word of data.
    pub fn word(&self, i: usize) -> u64 {
        // Ordered by the acquire load of the stamp, or a counter that needs no order.
        self.words[i].load(Ordering::Acquire)
    }

    /// The stamp. Pairs with the release store in [`CacheLine::put`], [`CacheLine::copy`] and [`CacheLine::publish`].
    pub fn stamp(&self) -> LineStamp {
        LineStamp(self.stamp.load(Ordering::Acquire))
    }

    /// The seven words.
    pub fn words(&self) -> [u64; LINE_WORDS] {
        core::array::from_fn(|i| self.words[i].load(Ordering::Acquire))
    }

    /// Writes the words, then publishes them with the stamp.
    pub fn put(&self, words: &[u64; LINE_WORDS], stamp: LineStamp) {
        for (cell, &word) in self.words.iter().zip(words) {
            cell.store(word, Ordering::Release);
        }
        self.stamp.store(stamp.0, Ordering::Release);
    }

    /// Writes the words of `from`, then publishes them with the stamp.
    pub fn copy(&self, from: &Self, stamp: LineStamp) {
        // Word by word: a line takes more registers than there are.
        for (cell, word) in self.words.iter().zip(&from.words) {
            cell.store(word.load(Ordering::Acquire), Ordering::Release);
        }
        self.stamp.store(stamp.0, Ordering::Release);
    }

    /// Publishes the words that were put before under another stamp.
    pub fn publish(&self, stamp: LineStamp) {
        self.stamp.store(stamp.0, Ordering::Release);
    }

    /// One word of the eight, the stamp being the last: for carriers that write word by word.
    pub fn raw(&self, i: usize) -> &AtomicU64 {
        if i < LINE_WORDS { &self.words[i] } else { &self.stamp }
    }
}

impl fmt::Debug for CacheLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x?}@{:x}", self.words(), self.stamp().0)
    }
}

const _: () = assert!(size_of::<CacheLine>() == 64 && align_of::<CacheLine>() == 64);

/// A region within the process that owns it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u16);

/// The purpose and shape of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionSpec {
    /// Its purpose, for people.
    pub name: &'static str,
    /// How many lines.
    pub lines: u32,
    /// The one process that writes it; the owner itself for staging areas.
    pub writer: Pid,
    /// Whether writing needs the owner's permission; see law 4.
    pub guarded: bool,
}

/// Where the regions of a process live: heap, mapped file, registered memory.
pub trait Regions {
    /// The lines of a region. Panics if the process has no such region.
    fn lines(&self, region: RegionId) -> &[CacheLine];
}

/// A process's own regions, as lent to its protocol.
#[derive(Clone, Copy)]
pub struct RegionWindow<'a>(pub &'a dyn Regions);

impl<'a> RegionWindow<'a> {
    /// The lines of one of the process's own regions.
    pub fn region(self, region: RegionId) -> &'a [CacheLine] {
        self.0.lines(region)
    }
}

impl fmt::Debug for RegionWindow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Window")
    }
}

/// Regions on the heap: the simulator's, and the tests'.
#[derive(Debug)]
pub struct HeapRegions(Vec<Vec<CacheLine>>);

impl HeapRegions {
    /// Zeroed regions of these sizes.
    pub fn new(specs: &[RegionSpec]) -> Self {
        let zeroed = |spec: &RegionSpec| (0..spec.lines).map(|_| CacheLine::default()).collect();
        Self(specs.iter().map(zeroed).collect())
    }
}

impl Regions for HeapRegions {
    fn lines(&self, region: RegionId) -> &[CacheLine] {
        &self.0[usize::from(region.0)]
    }
}

/// The medium.
#[derive(Debug)]
pub struct Memory;

impl Medium for Memory {
    type View<'a> = RegionWindow<'a>;
    type In<'a> = MemoryInput<'a>;
    type Out = MemoryOutput;
}

/// An input from the medium.
#[derive(Debug)]
pub enum MemoryInput<'a> {
    /// Look at your regions: something may have changed.
    Poll,
    /// The result of a write or read.
    Done(Ticket, AccessOutcome<'a>),
    /// None of this process's writes to that one is there: that one started anew, and its
    /// memory is zeroed, or it could not be reached until now.
    Fresh {
        /// The process.
        pid: Pid,
        /// Which incarnation it is in now; as in [`crate::Input::Start`]. The one that was known if it
        /// could not be reached.
        incarnation: u32,
    },
}

/// The result of a write or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessOutcome<'a> {
    /// The write is done; law 3.
    Written,
    /// The read is done: each line's seven words and its stamp, line after line. A stamp that the
    /// reader expects vouches for its line, as in a local read.
    Words(&'a [[u64; LINE_WORDS + 1]]),
    /// The region was revoked; law 3.
    Denied,
    /// The other process or the way to it failed, or it is silent; the write may or may not have happened, and may still
    /// happen.
    Lost,
}

/// Some lines of one of the process's own regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineRange {
    /// The region.
    pub region: RegionId,
    /// The first line.
    pub at: u32,
    /// How many.
    pub count: u32,
}

/// The payload of a write. The carrier reads the process's own lines when it carries the write out,
/// so they must stay as they are until the write is answered for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteSource {
    /// Lines of the process's own, stamps included.
    Copy(LineRange),
    /// A line made here, then lines of the process's own, all under one stamp.
    Made {
        /// The words of the first line.
        head: [u64; LINE_WORDS],
        /// The stamp for every line of the write.
        stamp: LineStamp,
        /// The lines after it; none if `count` is 0.
        rest: LineRange,
    },
}

impl WriteSource {
    /// One line made here.
    pub const fn line(head: [u64; LINE_WORDS], stamp: LineStamp) -> Self {
        Self::Made { head, stamp, rest: LineRange { region: RegionId(0), at: 0, count: 0 } }
    }

    /// How many lines the write covers.
    pub const fn count(&self) -> u32 {
        match self {
            Self::Copy(lines) => lines.count,
            Self::Made { rest, .. } => 1 + rest.count,
        }
    }
}

/// A request of a protocol to the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryOutput {
    /// `write(p, mr, value)`: write lines into a region of another process, or of this one.
    Write {
        /// The owner of the region.
        to: Pid,
        /// The region.
        region: RegionId,
        /// The first line written. The write does not go past the region's end.
        at: u32,
        /// The lines to be written.
        source: WriteSource,
        /// Comes back with the outcome, if it is wanted.
        ticket: Option<Ticket>,
        /// Whether the owner should be woken if it sleeps.
        bell: bool,
    },
    /// `read(p, mr, value)`: read lines of a region of another process.
    Read {
        /// The owner of the region.
        of: Pid,
        /// The region.
        region: RegionId,
        /// The first line.
        at: u32,
        /// How many lines, at least one.
        count: u32,
        /// Comes back with the words.
        ticket: Ticket,
    },
    /// Let the writer of a guarded region of this process write again (`perm_grant`).
    Allow(RegionId),
    /// Stop the writer of a guarded region of this process (`perm_revoke`). Reads of the region by
    /// this process after this output are ordered after the revocation.
    Revoke(RegionId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_what_was_put() {
        let a = CacheLine::default();
        let b = CacheLine::default();
        let stamp = LineStamp::new(3, 0);
        a.put(&[1, 2, 3, 4, 5, 6, 7], stamp);
        b.copy(&a, LineStamp::new(3, 1));
        assert_eq!(b.words(), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((a.stamp(), b.stamp().epoch()), (stamp, 3));
        assert_ne!(a.stamp(), b.stamp());
        assert_ne!(LineStamp::new(0, 0), LineStamp::default());
    }
}
