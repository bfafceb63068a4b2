//! A writer that is killed in mid-write: the reader finds whole lines only, in order.

use super::*;
use amcast_core::memory::{CacheLine, LINE_WORDS, LineRange};

/// Records of three lines in a ring; each line's words follow from the record and the line.
const RECORD: u32 = 3;
const SLOTS: u32 = 8;
const RING: RegionId = RegionId(0);
/// At the writer: how far the reader has read, and whence it copies.
const CONSUMED: RegionId = RegionId(0);
const STAGING: RegionId = RegionId(1);

fn words(epoch: u32, record: u64, line: u32) -> [u64; LINE_WORDS] {
    let seed = u64::from(epoch) << 40 ^ record << 4 ^ u64::from(line);
    core::array::from_fn(|i| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(i as u32))
}

fn place(record: u64) -> (u32, LineStamp) {
    let slot = (record % u64::from(SLOTS)) as u32 * RECORD;
    (slot, LineStamp::new(0, record / u64::from(SLOTS)))
}

fn stamp(epoch: u32, record: u64) -> LineStamp {
    LineStamp(u64::from(epoch) << 32 | place(record).1.0)
}

/// The child: writes records as fast as the reader takes them, half of them copied.
pub(super) fn writer(directory: &Directory) {
    let specs = [region(1, PARENT, false), region(RECORD, CHILD, false)];
    let mut carrier = start(directory, CHILD, &specs);
    let epoch = carrier.incarnation() + 1;
    for record in 0.. {
        until("the reader reads", || record < read(&carrier, CONSUMED, 0) + u64::from(SLOTS));
        let (at, stamp) = (place(record).0, stamp(epoch, record));
        for (line, to) in (0..).zip(carrier.window().region(STAGING)) {
            to.put(&words(epoch, record, line), stamp);
        }
        let lines = |at, count| LineRange { region: STAGING, at, count };
        let source = if record % 2 == 0 {
            WriteSource::Copy(lines(0, RECORD))
        } else {
            WriteSource::Made { head: words(epoch, record, 0), stamp, rest: lines(1, RECORD - 1) }
        };
        carrier.post(&[MemoryOutput::Write {
            to: PARENT,
            region: RING,
            at,
            source,
            ticket: None,
            bell: false,
        }]);
    }
}

/// Whether the record is there: its last line is, hence all of them, and each is whole.
fn check(ring: &[CacheLine], epoch: u32, record: u64) -> bool {
    let (at, expected) = (place(record).0, stamp(epoch, record));
    // From the last to the first: while the writer is at work, a line that is there later says
    // nothing of one that was looked at before.
    let mut later = false;
    for line in (0..RECORD).rev() {
        let found = &ring[(at + line) as usize];
        let there = found.stamp() == expected;
        assert!(there || !later, "record {record}: line {line} comes after the next one");
        if there {
            assert_eq!(found.words(), words(epoch, record, line), "record {record} line {line}");
        } else if line + 1 == RECORD {
            return false;
        }
        later = there;
    }
    true
}

#[test]
fn a_writer_killed_in_mid_write_leaves_no_torn_record() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let mut carrier = start(&cluster.directory, PARENT, &[region(RECORD * SLOTS, CHILD, false)]);
    for epoch in 1..=12 {
        let mut child = cluster.spawn("torn");
        until("the child starts", || cluster.directory.is_running(CHILD).expect("asked"));
        let fresh = fresh_starts(&mut carrier);
        assert_eq!(fresh, usize::from(epoch > 1), "told of each start but the first");
        let mut record = 0;
        // A different number each time, so that the kill falls anywhere.
        let reads = 5_000 + u64::from(epoch) * 377;
        while record < reads {
            until("the child writes", || check(carrier.window().region(RING), epoch, record));
            record += 1;
            carrier.post(&[number(CHILD, CONSUMED, 0, record, false)]);
        }
        child.kill();
        while check(carrier.window().region(RING), epoch, record) {
            record += 1;
        }
        assert!(record <= reads + u64::from(SLOTS), "flow control held");
    }
}
