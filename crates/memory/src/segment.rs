//! Unsafe code: a mapped file seen as lines, and the kernel's futex.
//!
//! A segment is an array of [`CacheLine`]s that several processes, or threads, share. Every byte of a
//! line belongs to an atomic word, so any action of another process on it yields at worst a wrong value,
//! never undefined behaviour. All other modules see `&[CacheLine]`.

#![allow(unsafe_code)]

use amcast_core::memory::CacheLine;
use amcast_core::time::Span;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU32, AtomicU64};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use rustix::thread::futex;
use std::sync::Arc;

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = size_of::<CacheLine>();

/// Shared lines.
pub(crate) struct SharedSegment {
    lines: NonNull<CacheLine>,
    count: usize,
    keep: SegmentOwner,
}

/// The owner of the memory of the lines, which keeps it in place.
enum SegmentOwner {
    /// A mapping of ours, undone when the segment is dropped.
    Mapped,
    /// An allocation shared with other segments of this process.
    Heap(Arc<[CacheLine]>),
}

// SAFETY: a segment is a pointer to lines, which are `Sync` (atomics only), and the means to keep
// them where they are: an `Arc` of something `Sync`, or a mapping, which belongs to the whole
// process and not to a thread.
unsafe impl Send for SharedSegment {}
// SAFETY: as above; `&SharedSegment` gives out `&[CacheLine]` only.
unsafe impl Sync for SharedSegment {}

impl fmt::Debug for SharedSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({} lines)", self.count)
    }
}

impl SharedSegment {
    /// Maps the first `count` lines of a file, shared. The caller has checked that the file is
    /// that long, and nobody of this project shortens a file. With `prefault` the pages are entered
    /// into the page table at once, and huge pages are asked for.
    pub(crate) fn map(file: BorrowedFd<'_>, count: usize, prefault: bool) -> Result<Self, Errno> {
        let bytes = count.checked_mul(LINE_BYTES).filter(|&b| b > 0).ok_or(Errno::INVAL)?;
        let flags = if prefault { MapFlags::SHARED | MapFlags::POPULATE } else { MapFlags::SHARED };
        // SAFETY: the kernel chooses an address range that is not in use, so no memory that Rust
        // knows of changes.
        let at = unsafe {
            mm::mmap(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                file,
                0,
            )?
        };
        if prefault {
            // SAFETY: the range is the mapping made above. Advice; where the file system has no huge
            // pages it is refused, and nothing depends on it.
            let _ = unsafe { mm::madvise(at, bytes, Advice::LinuxHugepage) };
        }
        let lines = NonNull::new(at.cast::<CacheLine>()).ok_or(Errno::FAULT)?;
        Ok(Self { lines, count, keep: SegmentOwner::Mapped })
    }

    /// Zeroed lines on the heap, shared with [`SharedSegment::again`] only.
    pub(crate) fn heap(count: usize) -> Self {
        Self::from_arc((0..count).map(|_| CacheLine::default()).collect())
    }

    /// Another handle of a heap segment; none of a mapping, which is mapped again instead.
    pub(crate) fn again(&self) -> Option<Self> {
        match &self.keep {
            SegmentOwner::Mapped => None,
            SegmentOwner::Heap(lines) => Some(Self::from_arc(Arc::clone(lines))),
        }
    }

    fn from_arc(lines: Arc<[CacheLine]>) -> Self {
        // The pointer comes from a shared borrow; `CacheLine` is interior mutable throughout, so storing
        // through it is allowed.
        let at = NonNull::from(&*lines).cast::<CacheLine>();
        Self { lines: at, count: lines.len(), keep: SegmentOwner::Heap(lines) }
    }
}

impl Deref for SharedSegment {
    type Target = [CacheLine];

    #[inline]
    fn deref(&self) -> &[CacheLine] {
        // SAFETY: `lines` points to `count` lines, aligned (pages, or an allocation of lines) and
        // initialised (a file's bytes, zero where never written, are valid atomic words), which
        // stay until `self` is dropped. They are never borrowed mutably. Other processes store to
        // them with atomic stores only.
        unsafe { slice::from_raw_parts(self.lines.as_ptr(), self.count) }
    }
}

impl Drop for SharedSegment {
    fn drop(&mut self) {
        if let SegmentOwner::Mapped = self.keep {
            // SAFETY: the range was mapped by `map` and nobody borrows from it: borrows come from
            // `deref` and end before `self`.
            let undone = unsafe { mm::munmap(self.lines.as_ptr().cast(), self.count * LINE_BYTES) };
            debug_assert_eq!(undone, Ok(()), "a range that was mapped can be unmapped");
        }
    }
}

/// The half of a word that the kernel compares: the one with the low bits.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let half = usize::from(cfg!(target_endian = "big"));
    // SAFETY: both halves lie within the word, and are aligned. The reference is given to the
    // kernel only: this program never accesses the half with an atomic of its own, so accesses of
    // two sizes do not race within it.
    unsafe { &*core::ptr::from_ref(word).cast::<AtomicU32>().add(half) }
}

/// Sleeps while the word is `value`, for at most `at_most`. Returns early for a signal.
pub(crate) fn wait(word: &AtomicU64, value: u32, at_most: Span) {
    if cfg!(miri) {
        // The interpreter has no futex that is shared between processes. Waking early is allowed.
        std::thread::yield_now();
        return;
    }
    let timeout = futex::Timespec {
        tv_sec: (at_most.0 / 1_000_000_000) as i64,
        tv_nsec: (at_most.0 % 1_000_000_000) as i64,
    };
    match futex::wait(low_half(word), futex::Flags::empty(), value, Some(&timeout)) {
        Ok(()) | Err(Errno::AGAIN | Errno::TIMEDOUT | Errno::INTR) => {}
        // The word is mapped and aligned and the timeout is in range: nothing else can be.
        Err(e) => panic!("futex wait: {e}"),
    }
}

/// Wakes who sleeps on the word.
pub(crate) fn wake(word: &AtomicU64) {
    if cfg!(miri) {
        return;
    }
    // One loop sleeps on a bell; all are woken so that a second one would be a loss of speed only.
    if let Err(e) = futex::wake(low_half(word), futex::Flags::empty(), i32::MAX as u32) {
        panic!("futex wake: {e}");
    }
}
