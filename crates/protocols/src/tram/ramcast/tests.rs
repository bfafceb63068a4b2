//! The exchange of one group, without chance or time. The simulator judges it under faults.

use super::RamCastMutant;
use super::exchange::{FRAME_BYTES, TIMESTAMP_MAX, TimestampExchange, source_of, stamp};
use crate::mutant::Mutants;
use crate::tram::params;
use crate::tram::ring::{RecordRing, RingRecord, RingRecordKind};
use alloc::vec::Vec;
use amcast_core::memory::{CacheLine, LineStamp, Memory, MemoryOutput, RegionId, WriteSource};
use amcast_core::{Config, Gid, GroupSet, MsgId, Outbox, Output, Pid, RawConfig};

const RING: RecordRing = RecordRing { region: RegionId(9), base: 0, lines: 16, lap: 16 };
const MSG: MsgId = MsgId { sender: Pid(6), seq: 1 };
const BOTH: GroupSet = GroupSet(0b11);

fn config() -> Config {
    let raw = RawConfig { groups: 2, replicas: 3, clients: 2, ..RawConfig::default() };
    raw.check(params::ALL).unwrap()
}

fn exchange() -> TimestampExchange {
    TimestampExchange::new(Gid(0), &config(), Mutants::<RamCastMutant>::with(None))
}

/// A message with `bytes` bytes of payload comes from the first client with timestamp `own`.
fn arrive(exchange: &mut TimestampExchange, seq: u64, own: u64, bytes: usize) {
    let mut framed = alloc::vec![7; FRAME_BYTES + bytes];
    framed[..8].copy_from_slice(&own.to_le_bytes());
    let record = RingRecord {
        kind: RingRecordKind::Message,
        bytes: framed.len() as u32,
        source: 0,
        lease: 1,
        msg: MsgId { seq, ..MSG },
        dst: BOTH,
    };
    assert!(!exchange.consume_at(&record, &framed, Some(seq), &RING));
}

fn pass_whole(exchange: &mut TimestampExchange, seq: u64) {
    let msg = MsgId { seq, ..MSG };
    let kind = RingRecordKind::PassWhole;
    let record = RingRecord { kind, bytes: 0, source: 0, lease: 0, msg, dst: BOTH };
    assert!(!exchange.consume_at(&record, &[], None, &RING));
}

/// The lines that it writes to one replica of the other group: where, and under which stamp.
fn posted(exchange: &mut TimestampExchange, rank: usize) -> Vec<(u32, LineStamp)> {
    let (mut out, mut asked) = (Outbox::<Memory>::default(), Vec::new());
    exchange.post(Gid(1), rank, (Pid(0), &RING), &mut out);
    out.take(&mut asked);
    let line = |output: Output<Memory>| match output {
        Output::Medium(MemoryOutput::Write {
            at, source: WriteSource::Made { stamp, .. }, ..
        }) => Some((at, stamp)),
        _ => None,
    };
    asked.into_iter().filter_map(line).collect()
}

#[test]
fn a_timestamp_that_no_clock_reaches_is_not_taken_up_and_moves_no_clock() {
    let mut one = exchange();
    let record = RingRecord {
        kind: RingRecordKind::Proposal,
        bytes: FRAME_BYTES as u32,
        source: 0x4001,
        lease: 1,
        msg: MSG,
        dst: BOTH,
    };
    let line = CacheLine::default();
    let mut clock = 4;
    for (theirs, believed, after) in
        [(u64::MAX, false, 4), (TIMESTAMP_MAX + 1, false, 4), (TIMESTAMP_MAX, true, TIMESTAMP_MAX)]
    {
        line.put(&[1, 2, 3, 4, 0, theirs, 5], LineStamp::new(1, 0));
        assert_eq!(one.take_up((&record, false), 0, &line, &mut clock), believed, "{theirs}");
        assert_eq!(clock, after);
    }
}

#[test]
fn a_state_with_positions_or_clocks_that_cannot_be_is_refused() {
    let mut one = exchange();
    arrive(&mut one, 1, TIMESTAMP_MAX, 8);
    assert!(exchange().resume(&one.state()));
    arrive(&mut one, 2, TIMESTAMP_MAX + 1, 8);
    assert!(!exchange().resume(&one.state()));
    assert!(!exchange().resume(&one.state()[1..]), "cut");
}

#[test]
fn a_message_gets_a_timestamp_above_the_clock_and_the_clock_passes_proposals() {
    let line = CacheLine::default();
    let mut clock = 4;
    line.put(&[1, 2, 3, 4, 99, 77, 5], LineStamp::new(1, 0));
    stamp(&line, RingRecordKind::Message, &mut clock, false);
    assert_eq!((line.words(), clock), ([1, 2, 3, 4, 5, 0, 5], 5), "a client's words do not count");
    assert_eq!(line.stamp(), LineStamp::default(), "it is not published");
    line.put(&[1, 2, 3, 4, 99, 8, 5], LineStamp::new(1, 0));
    stamp(&line, RingRecordKind::Proposal, &mut clock, false);
    assert_eq!((line.words(), clock), ([1, 2, 3, 4, 0, 8, 5], 8));
    line.put(&[1, 2, 3, 4, 0, 20, 5], LineStamp::new(1, 0));
    stamp(&line, RingRecordKind::Whole, &mut clock, false);
    assert_eq!((line.words(), clock), ([1, 2, 3, 4, 21, 20, 5], 21));
}

#[test]
fn sources_name_groups_and_nothing_else() {
    assert_eq!(source_of(1 << 15 | 3), Some(Gid(3)));
    assert_eq!([0, 200, RingRecord::PARENT].map(source_of), [None; 3]);
}

#[test]
fn proposals_wait_for_room_and_a_later_leader_writes_them_to_the_same_lines() {
    let mut e = exchange();
    (1..=20).for_each(|seq| arrive(&mut e, seq, seq, 0));
    let first = posted(&mut e, 0);
    assert_eq!(first.len(), 16, "the buffer is full");
    assert_eq!(posted(&mut e, 0), [], "and nothing is written over");
    e.take(Gid(1), 6);
    let rest = posted(&mut e, 0);
    let lap = |at| (at, RING.stamp(u64::from(at) + 16, first[0].1.epoch()));
    assert_eq!(rest, (0..4).map(lap).collect::<Vec<_>>());
    e.lead();
    let again = posted(&mut e, 0);
    assert_eq!(again, [&first[6..], &rest].concat(), "but for what was taken over");
    assert_eq!(posted(&mut e, 1), again, "to each replica alike");
}

#[test]
fn a_message_goes_as_a_whole_once_and_behind_its_proposal() {
    let mut e = exchange();
    arrive(&mut e, 1, 5, 100);
    pass_whole(&mut e, 1);
    pass_whole(&mut e, 1);
    pass_whole(&mut e, 2);
    let at: Vec<u32> = posted(&mut e, 0).into_iter().map(|(at, _)| at).collect();
    assert_eq!(at, [0, 1, 2, 3], "one line, then three for 116 bytes");
}

#[test]
fn a_replica_that_gets_the_state_continues_at_the_same_lines() {
    let (mut e, mut taker) = (exchange(), exchange());
    arrive(&mut e, 1, 5, 30);
    arrive(&mut e, 2, 6, 0);
    pass_whole(&mut e, 1);
    e.take(Gid(1), 1);
    let state = e.state();
    assert!(!taker.resume(&state[..state.len() - 1]) && !taker.resume(&[]));
    assert!(taker.resume(&state));
    assert_eq!((taker.clock(), taker.state()), (6, state));
    for e in [&mut e, &mut taker] {
        arrive(e, 3, 7, 0);
        e.lead();
    }
    assert_eq!(posted(&mut taker, 2), posted(&mut e, 2));
}
