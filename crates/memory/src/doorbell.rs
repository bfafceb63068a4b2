//! Doorbells: how a loop that has nothing to do sleeps, and who writes to it wakes it.
//!
//! Each loop has one word in the cluster's directory file: 1 while the loop is asleep or about to
//! be. A writer looks at the word, and makes a system call only if it finds 1.
//!
//! ```text
//! sleeper                                    ringer
//!   S1  word := 1                              R1  store the lines
//!   S2  fence  Fence::Sleeper                  R2  fence  Fence::Ringer
//!   S3  look at the lines once more            R3  load word; 0: done
//!   S4  sleep unless word = 0  (futex)         R4  swap word := 0, wake
//! ```
//!
//! **No wake-up is lost.** One of S2 and R2 comes first. If R2, then S3 sees the lines of R1. If S2,
//! then R3 sees the 1 of S1 and wakes; if that happens between S3 and S4, the kernel finds the word
//! changed and does not put the loop to sleep.
//!
//! All calls are for one thread at a time; rings may come from any thread of any process.

use crate::directory::Directory;
use crate::guard::{Fence, SharedWord};
use crate::segment;
use amcast_core::id::Pid;
use amcast_core::time::Span;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// The word of a bell: 1 while its loop sleeps.
#[derive(Debug)]
pub(crate) struct ParkedFlag<'a, W>(pub(crate) &'a W);

impl<W: SharedWord> ParkedFlag<'_, W> {
    /// Sleeper, S1 and S2.
    pub(crate) fn announce(&self) {
        self.0.store(1, Ordering::Relaxed);
        W::fence(Fence::Sleeper);
    }

    /// Sleeper: awake again. Whether somebody rang.
    pub(crate) fn retract(&self) -> bool {
        // Pairs with the release swap in `summon`: what was written before the ring is seen.
        self.0.swap(0, Ordering::Acquire) == 0
    }

    /// Ringer, R3 and R4, after [`Fence::Ringer`]: whether the loop must be woken.
    #[inline]
    pub(crate) fn summon(&self) -> bool {
        // Pairs with the acquire swap in `retract`.
        self.0.load(Ordering::Relaxed) == 1 && self.0.swap(0, Ordering::Release) == 1
    }
}

/// The doorbell of a loop. Cloned freely; anyone may ring, one thread sleeps on it.
///
/// A loop that finds nothing to do calls [`Doorbell::announce`], then looks at everything it serves
/// once more, and then either [`Doorbell::sleep`] or, having found work, [`Doorbell::stay`].
#[derive(Clone)]
pub struct Doorbell {
    directory: Directory,
    index: Pid,
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bell({:?})", self.index)
    }
}

impl Doorbell {
    pub(crate) fn new(directory: Directory, index: Pid) -> Self {
        Self { directory, index }
    }

    /// Which process the bell is named after: the first of those that share the loop.
    pub fn pid(&self) -> Pid {
        self.index
    }

    fn word(&self) -> &AtomicU64 {
        self.directory.layout().bell(self.index)
    }

    /// Says that the loop is about to sleep. It must look for work once more after this.
    pub fn announce(&self) {
        ParkedFlag(self.word()).announce();
    }

    /// There was work after all: takes the announcement back.
    pub fn stay(&self) {
        ParkedFlag(self.word()).retract();
    }

    /// Sleeps until the bell rings, or for `at_most`; says whether it rang. It may also return
    /// early without a ring. Makes one system call.
    pub fn sleep(&self, at_most: Span) -> bool {
        segment::wait(self.word(), 1, at_most);
        ParkedFlag(self.word()).retract()
    }

    /// Wakes the loop if it sleeps; returns whether it did. Stores of the caller before the call are seen by
    /// the loop. Costs a fence, and a system call only if the loop sleeps.
    pub fn ring(&self) -> bool {
        <AtomicU64 as SharedWord>::fence(Fence::Ringer);
        ring_after_fence(self.word())
    }
}

/// Wakes who sleeps on the word. The caller has passed [`Fence::Ringer`].
#[inline]
pub(crate) fn ring_after_fence(word: &AtomicU64) -> bool {
    let asleep = ParkedFlag(word).summon();
    if asleep {
        segment::wake(word);
    }
    asleep
}
