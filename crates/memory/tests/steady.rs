//! Once its buffers have grown, a carrier allocates nothing.

use amcast_core::id::Pid;
use amcast_core::memory::{LineStamp, MemoryOutput, RegionId, RegionSpec, WriteSource};
use amcast_core::step::Ticket;
use amcast_memory::{ClusterId, Directory, StartOptions};

#[test]
fn rounds_of_writes_reads_and_revocations_allocate_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let (owner, writer, region) = (Pid(0), Pid(1), RegionId(0));
    let directory = Directory::heap(ClusterId(1), 2, 0).expect("made");
    let specs = [RegionSpec { name: "test", lines: 8, writer, guarded: true }];
    let start = |pid, specs: &[_]| directory.start(pid, specs, StartOptions::default());
    let mut a = start(owner, &specs).expect("started");
    let mut b = start(writer, &[]).expect("started");
    let ticket = Ticket(1);
    let write = MemoryOutput::Write {
        to: owner,
        region,
        at: 0,
        source: WriteSource::line([3; 7], LineStamp(3)),
        ticket: Some(ticket),
        bell: true,
    };
    let read = MemoryOutput::Read { of: owner, region, at: 0, count: 8, ticket };
    let mut round = || {
        a.post(&[MemoryOutput::Allow(region)]);
        b.post(&[write, read, write]);
        a.post(&[MemoryOutput::Revoke(region)]);
        b.post(&[write]);
        b.begin_round();
        let mut inputs = 0_usize;
        while b.next_input().is_some() {
            inputs += 1;
        }
        inputs
    };
    for _ in 0..3 {
        round();
    }
    let mut inputs = 0;
    // Of this thread alone: the one that runs the tests allocates for itself now and then.
    let allocated = allocation_counter::measure(|| inputs = (0..1_000).map(|_| round()).sum());
    assert_eq!(allocated.count_total, 0);
    assert_eq!(inputs, 5_000, "four answers and a poll each");
}
