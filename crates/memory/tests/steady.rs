//! The rounds of a carrier: once its buffers have grown it allocates nothing, and each round ends.

use amcast_core::id::Pid;
use amcast_core::memory::{
    LineStamp, MemoryInput, MemoryOutput, RegionId, RegionSpec, WriteSource,
};
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

#[test]
fn a_round_answers_what_is_posted_in_return_and_ends() {
    let _limit = amcast_test_policy::time_limit();
    let (owner, reader, region) = (Pid(0), Pid(1), RegionId(0));
    let directory = Directory::heap(ClusterId(1), 2, 0).expect("made");
    let specs = [RegionSpec { name: "test", lines: 2, writer: reader, guarded: false }];
    let start = |pid, specs: &[_]| directory.start(pid, specs, StartOptions::default());
    let _owner = start(owner, &specs).expect("started");
    let mut carrier = start(reader, &[]).expect("started");
    let mut posted = 0;
    // Reads once more whenever it has read, without end.
    let mut answers = || {
        let mut answered = Vec::new();
        carrier.begin_round();
        while let Some((_, input)) = carrier.next_input() {
            let answer = match input {
                MemoryInput::Done(ticket, _) => Some(ticket.0),
                _ => None,
            };
            answered.extend(answer);
            if posted == 0 || answer.is_some() {
                posted += 1;
                let ticket = Ticket(posted);
                carrier.post(&[MemoryOutput::Read { of: owner, region, at: 0, count: 1, ticket }]);
            }
        }
        answered
    };
    let first = answers();
    assert!(first.len() > 4, "a candidate's reads, one after the other: {first:?}");
    let next = answers();
    assert_eq!(next[0], first.len() as u64 + 1, "the rest comes in the next round: {next:?}");
}
