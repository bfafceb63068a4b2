//! Revocation between processes that map the same memory.
//!
//! No hardware closes a mapped page to another process in a microsecond, so the writer checks, after
//! it has written, that it was still allowed to. Every guarded region has one word beside it, which
//! only its owner stores to. It counts grants and revocations: odd is open, even is closed, and it
//! never goes back.
//!
//! ```text
//! writer                                     owner
//!   W1  g := load guard; odd, or Denied        O1  guard := g + 1          (closed)
//!   W2  store the lines                        O2  fence  Fence::Owner
//!   W3  fence  Fence::Writer                   O3  read the lines
//!   W4  Written if load guard = g, or Denied
//! ```
//!
//! **Claim.** If W4 says `Written`, every read O3 that is ordered after a revocation which follows
//! the grant `g` sees the lines of W2.
//!
//! **Why.** The fences W3 and O2 are sequentially consistent, so one comes first. Were it O2, then
//! W4, which comes after W3, could not read a value older than the one stored in O1; that value is
//! larger than `g`, the word never goes back, and W4 would have found it changed. So W3 comes first,
//! and then O3 reads the values stored in W2, or later ones. Neither fence can be spared: without
//! one, a store may pass the load behind it (store buffering), and the writer reads the word still
//! open while the owner reads the lines still old.
//!
//! Why compare with `g` instead of asking for any odd value: owner and writer could both be slow
//! enough for the owner to revoke, read nothing, and allow again before W4. The acquire load of W1
//! keeps the stores of W2 after the grant.
//!
//! The other direction stays open: a write that is reported `Denied` may have been stored, or be
//! stored later. Protocols adopt such lines or ignore their stamps; nobody counts them.
//!
//! # Writers that serve others
//! A thread that carries out writes for processes of other hosts ([`crate::remote`]) follows the same steps, and the
//! owner waits for it, so that a revocation leaves nothing of the writer under way:
//!
//! ```text
//! agent                                      owner
//!   L1  landing := 1                           O1, O2 as above
//!   L2  fence  Fence::Lander                   O4  wait until landing = 0
//!   W1 .. W4 as above                          O3  read the lines
//!   L3  landing := 0
//! ```
//! One of the fences L2 and O2 comes first. If O2, then W1 finds the region closed and nothing is stored. If L2, then O4
//! finds the 1 of L1 or the 0 of L3, and with the 0 sees all stores of W2. So no store of the agent under a grant comes after
//! O4 of its revocation. The wait is for one frame's stores, by a thread that holds no lock meanwhile.
//!
//! One fence W3 serves a whole batch of writes to any number of regions: it follows all their
//! stores and before all their checks.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The fences of this crate, named so that a model can take one away and show that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fence {
    /// After the stores of a batch, before its guards are checked; partner of [`Fence::Owner`].
    Writer,
    /// After a guard is closed, before its region is read; partner of [`Fence::Writer`].
    Owner,
    /// After the stores of a batch, before the bells are looked at; partner of [`Fence::Sleeper`].
    /// A batch has one fence, which is this one and [`Fence::Writer`] at once.
    Ringer,
    /// After a sleeper has announced itself, before its last look; partner of [`Fence::Ringer`].
    Sleeper,
    /// After an agent has announced that it stores, before it looks at the guard; partner of [`Fence::Owner`].
    Lander,
}

/// A shared word: the machine's, or a model checker's.
pub(crate) trait SharedWord {
    /// Loads it.
    fn load(&self, order: Ordering) -> u64;
    /// Stores to it.
    fn store(&self, value: u64, order: Ordering);
    /// Stores to it and gives what was there.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// A sequentially consistent fence.
    fn fence(which: Fence);
}

impl SharedWord for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    #[inline]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        Self::swap(self, value, order)
    }

    #[inline]
    fn fence(_: Fence) {
        fence(Ordering::SeqCst);
    }
}

/// The guard word of a region.
#[derive(Debug)]
pub(crate) struct RegionGuard<'a, W>(pub(crate) &'a W);

/// The grant under which a write was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteGrant(u64);

impl<W: SharedWord> RegionGuard<'_, W> {
    /// Writer, W1: the grant in force, or none while the region is revoked.
    #[inline]
    pub(crate) fn grant(&self) -> Option<WriteGrant> {
        // Pairs with the release store in `allow`.
        let word = self.0.load(Ordering::Acquire);
        (word % 2 == 1).then_some(WriteGrant(word))
    }

    /// Writer, W4, after [`Fence::Writer`]: whether that grant has been in force all the time.
    #[inline]
    pub(crate) fn stands(&self, grant: WriteGrant) -> bool {
        self.0.load(Ordering::Relaxed) == grant.0
    }

    /// Owner: opens the region under a new grant; nothing if it is open.
    pub(crate) fn allow(&self) {
        let word = self.0.load(Ordering::Relaxed);
        if word.is_multiple_of(2) {
            // Pairs with the acquire load in `grant`.
            self.0.store(word + 1, Ordering::Release);
        }
    }

    /// Owner, O1 and O2: closes the region. Reads of the owner after this call are ordered after
    /// the revocation.
    pub(crate) fn revoke(&self) {
        let word = self.0.load(Ordering::Relaxed);
        if word % 2 == 1 {
            self.0.store(word + 1, Ordering::Relaxed);
        }
        W::fence(Fence::Owner);
    }
}

/// The word beside a guard in which an agent says that it stores into the region.
#[derive(Debug)]
pub(crate) struct LandingFlag<'a, W: SharedWord>(pub(crate) &'a W);

/// As long as it exists the owner's revocations wait.
#[derive(Debug)]
pub(crate) struct Landing<'a, W: SharedWord>(&'a W);

impl<'a, W: SharedWord> LandingFlag<'a, W> {
    /// Agent, L1 and L2: it may look at the guard and store from here on.
    pub(crate) fn begin(self) -> Landing<'a, W> {
        self.0.store(1, Ordering::Relaxed);
        W::fence(Fence::Lander);
        Landing(self.0)
    }

    /// Owner, O4, after [`RegionGuard::revoke`]: whether nothing is being stored. Stores before that are seen then.
    pub(crate) fn is_over(&self) -> bool {
        // Pairs with the release store at the end of a `Landing`.
        self.0.load(Ordering::Acquire) == 0
    }
}

impl<W: SharedWord> Drop for Landing<'_, W> {
    /// L3, also if the agent panics: then its node ends, and its owners must not wait.
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
