//! The code of revocation and of doorbells, run over every execution that the memory model allows,
//! and with each fence taken away in turn: then an execution that breaks the promise must be found.

use crate::doorbell::ParkedFlag;
use crate::guard::{Fence, LandingFlag, RegionGuard, SharedWord};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use std::panic;
use std::sync::atomic::Ordering;

/// A word of the model, in a program without the fences of `WITHOUT`, a set of bits.
struct ModelWord<const WITHOUT: u8>(AtomicU64);

const WRITER: u8 = 1;
const OWNER: u8 = 2;
const RINGER: u8 = 4;
const SLEEPER: u8 = 8;
const LANDER: u8 = 16;

impl<const WITHOUT: u8> ModelWord<WITHOUT> {
    fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl<const WITHOUT: u8> SharedWord for ModelWord<WITHOUT> {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }

    fn fence(which: Fence) {
        let bit = match which {
            Fence::Writer => WRITER,
            Fence::Owner => OWNER,
            Fence::Ringer => RINGER,
            Fence::Sleeper => SLEEPER,
            Fence::Lander => LANDER,
        };
        if WITHOUT & bit == 0 {
            fence(Ordering::SeqCst);
        }
    }
}

/// A guarded region of one line of two words, the second being the stamp.
struct Region<const WITHOUT: u8> {
    guard: ModelWord<WITHOUT>,
    data: AtomicU64,
    stamp: AtomicU64,
}

impl<const WITHOUT: u8> Region<WITHOUT> {
    fn new() -> Self {
        Self { guard: ModelWord::new(), data: AtomicU64::new(0), stamp: AtomicU64::new(0) }
    }

    /// As `Line::put`.
    fn put(&self, value: u64) {
        self.data.store(value, Ordering::Release);
        self.stamp.store(value, Ordering::Release);
    }

    /// The value that the stamp vouches for; checks that a stamp vouches for its line.
    fn seen(&self) -> u64 {
        let stamp = self.stamp.load(Ordering::Acquire);
        let data = self.data.load(Ordering::Acquire);
        assert!(data >= stamp, "law 1: the stamp is ahead of its line");
        stamp
    }
}

/// How the writer judges, after its fence, whether the grant was in force.
type GrantCheck<const WITHOUT: u8> =
    fn(&RegionGuard<'_, ModelWord<WITHOUT>>, crate::guard::WriteGrant) -> bool;

/// A batch over regions of some owners: all stores, one fence, all checks. Each owner revokes and
/// looks. Laws 1 and 3 for all of them.
fn revocation<const WITHOUT: u8>(judge: GrantCheck<WITHOUT>, owners: usize) {
    loom::model(move || {
        let regions: Arc<Vec<_>> =
            Arc::new((0..owners).map(|_| Region::<WITHOUT>::new()).collect());
        for region in regions.iter() {
            RegionGuard(&region.guard).allow();
        }
        let writer = {
            let regions = Arc::clone(&regions);
            thread::spawn(move || {
                let grants: Vec<_> =
                    regions.iter().map(|region| RegionGuard(&region.guard).grant()).collect();
                for (region, grant) in regions.iter().zip(&grants) {
                    if grant.is_some() {
                        region.put(1);
                    }
                }
                ModelWord::<WITHOUT>::fence(Fence::Writer);
                let judged = regions.iter().zip(grants);
                judged
                    .map(|(region, grant)| {
                        grant.is_some_and(|g| judge(&RegionGuard(&region.guard), g))
                    })
                    .collect::<Vec<_>>()
            })
        };
        let seen: Vec<_> = regions
            .iter()
            .map(|region| {
                RegionGuard(&region.guard).revoke();
                region.seen()
            })
            .collect();
        let written = writer.join().expect("the writer ends");
        for (index, (seen, written)) in seen.into_iter().zip(written).enumerate() {
            assert!(!written || seen == 1, "law 3: region {index} was written and is not seen");
        }
    });
}

fn stands<const W: u8>(
    guard: &RegionGuard<'_, ModelWord<W>>,
    grant: crate::guard::WriteGrant,
) -> bool {
    guard.stands(grant)
}

/// The model finds an execution that breaks the promise.
fn breaks(model: impl FnOnce() + panic::UnwindSafe) -> bool {
    panic::catch_unwind(model).is_err()
}

#[test]
fn what_is_reported_written_is_seen_after_the_revocation() {
    revocation::<0>(stands, 1);
}

#[test]
fn one_fence_serves_a_batch_over_two_owners() {
    revocation::<0>(stands, 2);
}

#[test]
fn without_the_writers_fence_a_write_is_missed() {
    assert!(breaks(|| revocation::<WRITER>(stands, 1)));
}

#[test]
fn without_the_owners_fence_a_write_is_missed() {
    assert!(breaks(|| revocation::<OWNER>(stands, 1)));
}

/// A writer that begins under the first grant, with the grant taken before the model's race so that
/// a second grant can come in between.
fn second_grant(judge: GrantCheck<0>) {
    loom::model(move || {
        let region = Arc::new(Region::<0>::new());
        RegionGuard(&region.guard).allow();
        let grant = RegionGuard(&region.guard).grant().expect("it was allowed");
        let writer = {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                region.put(1);
                ModelWord::<0>::fence(Fence::Writer);
                judge(&RegionGuard(&region.guard), grant)
            })
        };
        RegionGuard(&region.guard).revoke();
        let seen = region.seen();
        RegionGuard(&region.guard).allow();
        let written = writer.join().expect("the writer ends");
        assert!(!written || seen == 1, "law 3: written under the old grant and not seen");
    });
}

#[test]
fn a_second_grant_does_not_vouch_for_a_write_begun_under_the_first() {
    second_grant(stands);
}

#[test]
fn looking_for_any_grant_instead_of_the_same_one_misses_a_write() {
    assert!(breaks(|| second_grant(|guard, _| guard.grant().is_some())));
}

/// An agent that stores for a process of another host, and an owner that revokes: once the revocation has waited for the
/// agent, nothing is stored any more. With `waits` false the owner does not wait.
fn landing<const WITHOUT: u8>(waits: bool) {
    loom::model(move || {
        let region = Arc::new(Region::<WITHOUT>::new());
        let flag = Arc::new(ModelWord::<WITHOUT>::new());
        RegionGuard(&region.guard).allow();
        let agent = {
            let (region, flag) = (Arc::clone(&region), Arc::clone(&flag));
            thread::spawn(move || {
                let _landing = LandingFlag(&*flag).begin();
                if RegionGuard(&region.guard).grant().is_some() {
                    region.put(1);
                }
            })
        };
        RegionGuard(&region.guard).revoke();
        while waits && !LandingFlag(&*flag).is_over() {
            thread::yield_now();
        }
        let seen = region.seen();
        agent.join().expect("the agent ends");
        assert_eq!(region.seen(), seen, "a write lands after its revocation");
    });
}

#[test]
fn nothing_lands_once_the_revocation_has_waited_for_the_agent() {
    landing::<0>(true);
}

#[test]
fn a_revocation_that_does_not_wait_lets_a_write_land_later() {
    assert!(breaks(|| landing::<0>(false)));
}

#[test]
fn without_the_agents_fence_a_write_lands_after_the_revocation() {
    assert!(breaks(|| landing::<LANDER>(true)));
}

#[test]
fn without_the_owners_fence_a_write_lands_after_the_revocation() {
    assert!(breaks(|| landing::<OWNER>(true)));
}

/// A loop that parks while somebody writes and rings. The kernel's compare-and-sleep is a load of
/// the word: if it finds 1 the loop sleeps, and only a wake-up, which sets the word to 0, ends that.
fn parking<const WITHOUT: u8>(ringers: usize) {
    loom::model(move || {
        let work = Arc::new((0..ringers).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let word = Arc::new(ModelWord::<WITHOUT>::new());
        let hands: Vec<_> = (0..ringers)
            .map(|hand| {
                let (work, word) = (Arc::clone(&work), Arc::clone(&word));
                thread::spawn(move || {
                    work[hand].store(1, Ordering::Release);
                    ModelWord::<WITHOUT>::fence(Fence::Ringer);
                    ParkedFlag(&*word).summon()
                })
            })
            .collect();
        ParkedFlag(&*word).announce();
        let found = work.iter().filter(|w| w.load(Ordering::Acquire) == 1).count();
        let sleeps = found < ringers;
        let woken: Vec<_> = hands.into_iter().map(|h| h.join().expect("a ringer ends")).collect();
        if sleeps {
            // Everybody has rung. The loop has not seen all work; it must be awake, or be woken.
            assert!(woken.contains(&true), "a wake-up is lost");
            assert!(ParkedFlag(&*word).retract(), "a loop that was rung knows it");
            let seen = work.iter().filter(|w| w.load(Ordering::Acquire) == 1).count();
            assert!(seen > found, "a loop that was woken finds work");
        }
    });
}

#[test]
fn no_wake_up_is_lost() {
    parking::<0>(1);
}

#[test]
fn no_wake_up_is_lost_with_two_who_ring() {
    parking::<0>(2);
}

#[test]
fn without_the_ringers_fence_a_wake_up_is_lost() {
    assert!(breaks(|| parking::<RINGER>(1)));
}

#[test]
fn without_the_sleepers_fence_a_wake_up_is_lost() {
    assert!(breaks(|| parking::<SLEEPER>(1)));
}

/// A writer that goes round: it says in a line of its own what it writes over, and writes over it. A reader
/// reads the record, and then the announcement. Law 1: a reader that finds the newer record finds it announced.
fn overwriting(tells_first: bool, checks_last: bool) {
    loom::model(move || {
        let head = Arc::new(Region::<0>::new());
        let record = Arc::new(Region::<0>::new());
        let writer = {
            let (head, record) = (Arc::clone(&head), Arc::clone(&record));
            thread::spawn(move || {
                let order = if tells_first { [&head, &record] } else { [&record, &head] };
                order.into_iter().for_each(|line| line.put(1));
            })
        };
        // A word of the newer record, with any stamp: half of it is what must not be believed.
        let read = || record.data.load(Ordering::Acquire);
        let (word, told) = if checks_last {
            let word = read();
            (word, head.seen())
        } else {
            let told = head.seen();
            (read(), told)
        };
        assert!(word == 0 || told == 1, "a record that is written over is taken for whole");
        writer.join().expect("the writer ends");
    });
}

#[test]
fn what_is_written_over_was_told_before() {
    overwriting(true, true);
}

#[test]
fn a_writer_that_tells_afterwards_is_not_noticed() {
    assert!(breaks(|| overwriting(false, true)));
}

#[test]
fn a_reader_that_checks_before_it_reads_notices_nothing() {
    assert!(breaks(|| overwriting(true, false)));
}
