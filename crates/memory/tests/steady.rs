//! Once its buffers have grown, a carrier allocates nothing.
#![allow(unsafe_code)] // an allocator that counts is unsafe to declare

use amcast_core::id::Pid;
use amcast_core::memory::{Out, RegionId, RegionSpec, Source, Stamp};
use amcast_core::step::Ticket;
use amcast_memory::{ClusterId, Directory, StartOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the contract is the trait's, and is handed on.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the contract is the trait's, and is handed on.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above, that is from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn rounds_of_writes_reads_and_revocations_allocate_nothing() {
    let (owner, writer, region) = (Pid(0), Pid(1), RegionId(0));
    let directory = Directory::heap(ClusterId(1), 2, 0).expect("made");
    let specs = [RegionSpec { name: "test", lines: 8, writer, guarded: true }];
    let start = |pid, specs: &[_]| directory.start(pid, specs, StartOptions::default());
    let mut a = start(owner, &specs).expect("started");
    let mut b = start(writer, &[]).expect("started");
    let ticket = Ticket(1);
    let write = Out::Write {
        to: owner,
        region,
        at: 0,
        source: Source::line([3; 7], Stamp(3)),
        ticket: Some(ticket),
        bell: true,
    };
    let read = Out::Read { of: owner, region, at: 0, count: 8, ticket };
    let mut round = || {
        a.post(&[Out::Allow(region)]);
        b.post(&[write, read, write]);
        a.post(&[Out::Revoke(region)]);
        b.post(&[write]);
        b.begin_round();
        let mut inputs = 0;
        while b.next_input().is_some() {
            inputs += 1;
        }
        inputs
    };
    for _ in 0..3 {
        round();
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let inputs: usize = (0..1_000).map(|_| round()).sum();
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
    assert_eq!(inputs, 5_000, "four answers and a poll each");
}
