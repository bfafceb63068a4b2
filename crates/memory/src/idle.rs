//! The policy of a loop that finds nothing to do: spin, then yield, then park.

use core::hint;
use std::thread;
use std::time::{Duration, Instant};

/// How long a loop spins and yields before it parks. A value, so that a node can be configured.
///
/// Spinning answers within a cache miss and takes a whole core; yielding shares the core with others
/// that are ready; parking costs the loop some microseconds to be woken and its waker one
/// system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Idle {
    /// Rounds without work that spin.
    pub spins: u32,
    /// Rounds without work after those that give the core away.
    pub yields: u32,
    /// Whether to park after that; if not, the loop yields for ever.
    pub parks: bool,
}

impl Idle {
    /// Each loop has a core of its own: it gives it away only after some 200 us without work, and
    /// never sleeps. With nobody else on its core that costs nothing; with somebody there, a loop that
    /// spends its share waiting has none left when the work comes.
    pub const SPIN: Self = Self { spins: 2_000, yields: 0, parks: false };
    /// Fewer cores than loops, all of them busy: a short spin, a few yields, then park. The loop that it waits
    /// for needs the core: each round of a spin is taken from it.
    pub const SHARED: Self = Self { spins: 10, yields: 20, parks: true };
    /// Nothing is wasted: parks at once.
    pub const PARK: Self = Self { spins: 0, yields: 0, parks: true };

    /// As many rounds of a loop that the system wakes bridge the time to the next message of a conversation, where
    /// nobody else has work.
    const WOKEN_SPINS: u32 = 10;

    /// The same for a loop that the system wakes, as it does for what comes on a socket: it parks and
    /// never yields. A loop that yields a core that others want, too, gets it back only after a whole slice of
    /// theirs, milliseconds, despite any message meanwhile; a sleeping loop is woken at once. Each of its rounds
    /// asks the system, which takes some ten times as long as a look at memory: so it spins fewer.
    pub const fn woken(self) -> Self {
        let few = if self.spins < Self::WOKEN_SPINS { self.spins } else { Self::WOKEN_SPINS };
        let tenth = self.spins / 10;
        Self { spins: if tenth > few { tenth } else { few }, yields: 0, parks: true }
    }

    /// [`Idle::SHARED`] or, if there is a core to spare for each of `loops`, a longer spin first.
    pub fn for_loops(loops: usize, cores: usize) -> Self {
        if loops < cores { Self { spins: 20_000, ..Self::SHARED } } else { Self::SHARED }
    }
}

/// The policy's choice for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// It paused for an instant: look again.
    Again,
    /// Park: announce, look once more, sleep; see [`crate::Doorbell`].
    Park,
}

/// How often each way of waiting was taken. Only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdleCounts {
    /// Rounds that found work.
    pub busy: u64,
    /// Rounds that spun.
    pub spins: u64,
    /// Rounds that yielded.
    pub yields: u64,
    /// Rounds that parked.
    pub parks: u64,
}

/// A yield that took longer gave the core to a process with work of its own, for a slice of its time: loops of a
/// cluster seldom have so much to do before they yield in turn.
const LONG_YIELD: Duration = Duration::from_micros(500);

/// How often a loop parks where it would yield after one long yield, and after many in a row.
const PARKS_MIN: u32 = 64;
const PARKS_MAX: u32 = 4_096;

/// Whether the core is wanted by others, too.
///
/// A loop that yields such a core gets it back milliseconds later, even if a message comes meanwhile; one that parks is
/// woken at once. So it parks where it would yield, for a while that doubles each time another yield shows the same.
#[derive(Clone, Copy, Debug)]
struct Contention {
    /// So many times more it parks.
    parks_left: u32,
    /// So many times it parks after the next long yield.
    parks_next: u32,
}

impl Contention {
    const NONE: Self = Self { parks_left: 0, parks_next: PARKS_MIN };

    /// Whether to park instead of this yield.
    fn parks(&mut self) -> bool {
        let parks = self.parks_left > 0;
        self.parks_left -= u32::from(parks);
        parks
    }

    /// A yield took so long.
    fn yielded(&mut self, took: Duration) {
        if took > LONG_YIELD {
            self.parks_left = self.parks_next;
            self.parks_next = (self.parks_next * 2).min(PARKS_MAX);
        } else {
            self.parks_next = PARKS_MIN;
        }
    }
}

/// The policy of one loop at work.
#[derive(Clone, Copy, Debug)]
pub struct Idler {
    policy: Idle,
    rounds: u32,
    contention: Contention,
    counts: IdleCounts,
}

/// Rounds without work before the processor learns that this is a spin: its measures to save
/// power takes some processors as long as half a round, and a message in the middle of a
/// conversation comes sooner than that.
const EAGER_ROUNDS: u32 = 64;

impl Idler {
    /// Follows `policy`.
    pub fn new(policy: Idle) -> Self {
        Self { policy, rounds: 0, contention: Contention::NONE, counts: IdleCounts::default() }
    }

    /// This round found work: begin again with spinning.
    pub fn busy(&mut self) {
        self.rounds = 0;
        self.counts.busy += 1;
    }

    /// This round found nothing: spins or yields, or says that it is time to park.
    pub fn pause(&mut self) -> Pause {
        let round = self.rounds;
        self.rounds = round.saturating_add(1);
        if round < self.policy.spins {
            self.counts.spins += 1;
            if round >= EAGER_ROUNDS {
                hint::spin_loop();
            }
        } else if !self.policy.parks
            || round - self.policy.spins < self.policy.yields && !self.contention.parks()
        {
            self.counts.yields += 1;
            let begun = Instant::now();
            thread::yield_now();
            self.contention.yielded(begun.elapsed());
        } else {
            self.counts.parks += 1;
            return Pause::Park;
        }
        Pause::Again
    }

    /// Its rounds so far.
    pub fn counts(&self) -> IdleCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_spins_then_yields_then_parks_until_work_comes() {
        let mut idler = Idler::new(Idle { spins: 2, yields: 1, parks: true });
        let pauses: Vec<_> = (0..5).map(|_| idler.pause()).collect();
        assert_eq!(pauses, [Pause::Again, Pause::Again, Pause::Again, Pause::Park, Pause::Park]);
        idler.busy();
        assert_eq!(idler.pause(), Pause::Again);
        assert_eq!(idler.counts(), IdleCounts { busy: 1, spins: 3, yields: 1, parks: 2 });
    }

    #[test]
    fn a_loop_that_is_woken_parks_where_it_would_yield() {
        let mut idler = Idler::new(Idle { spins: 1, yields: 9, parks: false }.woken());
        assert_eq!([idler.pause(), idler.pause()], [Pause::Again, Pause::Park]);
        let spins = |policy: Idle| policy.woken().spins;
        assert_eq!([Idle::PARK, Idle::SHARED, Idle::SPIN].map(spins), [0, 10, 200]);
    }

    #[test]
    fn a_core_that_others_want_is_not_yielded_for_a_while_which_doubles() {
        let mut contention = Contention::NONE;
        let mut parks_after = |took| {
            contention.yielded(took);
            (0..2 * PARKS_MAX).take_while(|_| contention.parks()).count()
        };
        let long = LONG_YIELD * 2;
        assert_eq!([long, long, long].map(&mut parks_after), [64, 128, 256]);
        assert_eq!([LONG_YIELD, long].map(&mut parks_after), [0, 64], "the core is free again");
        let last = (0..10).map(|_| parks_after(long)).last();
        assert_eq!(last, Some(PARKS_MAX as usize));
    }

    #[test]
    fn a_loop_that_knows_of_others_parks_where_it_would_yield_and_spins_as_before() {
        let mut idler = Idler::new(Idle { spins: 1, yields: 9, parks: true });
        idler.contention.yielded(LONG_YIELD * 2);
        assert_eq!([idler.pause(), idler.pause()], [Pause::Again, Pause::Park]);
        assert_eq!(idler.counts(), IdleCounts { spins: 1, parks: 1, ..IdleCounts::default() });
    }

    #[test]
    fn a_loop_that_may_not_park_never_does() {
        let mut idler = Idler::new(Idle { spins: 1, yields: 1, parks: false });
        assert!((0..100).all(|_| idler.pause() == Pause::Again));
    }
}
