//! Nonsense that one replica of the parent group has written: the child reads on in the buffers of the others.

use super::super::layout::Layout;
use super::super::leader::PARENT_EPOCH;
use super::super::ring::{RecordRing, RingRecord, RingRecordKind};
use super::ramcast::{cast_as, delivered, noted};
use super::*;
use amcast_core::step::Oracle;

/// A parent and its child, each with its first leader.
fn parent_and_child(set: &[(&str, &str)]) -> (TramWorld, Layout) {
    let mut w = TramWorld::new(2, 3, "breadth", set);
    w.run(50);
    let layout = Layout::new(&w.config).unwrap();
    (w, layout)
}

/// Puts a record where one of the parent's replicas writes to all of the child.
fn meddle(w: &TramWorld, ring: &RecordRing, record: &RingRecord, rest: [u64; 3]) {
    for r in 0..3 {
        let memory = &w.processes[w.replica(1, r).index()].memory;
        let lines = memory.lines(ring.region);
        lines[ring.at(0) as usize].put(&record.words(rest), ring.stamp(0, PARENT_EPOCH));
    }
}

/// The oracle names another leader of the parent.
fn lead_next(w: &mut TramWorld, group: u8, r: usize) {
    let next = w.replica(group, r);
    for r in 0..3 {
        let p = w.replica(group, r);
        w.step(p.index(), Input::Oracle(Oracle::Leader(Gid(group), next)));
    }
    w.run(300);
    assert_eq!(w.leader(group), Some(next));
}

/// Records that a replica of the parent should not write at the first position of its buffer.
fn nonsense(ring: &RecordRing) -> Vec<RingRecord> {
    let msg = MsgId { sender: Pid(6), seq: 1 };
    let (kind, source) = (RingRecordKind::Message, RingRecord::PARENT);
    let sound = RingRecord { kind, bytes: 0, source, lease: 1, msg, dst: GroupSet(0b11) };
    let replica = MsgId { sender: Pid(2), seq: 1 };
    alloc::vec![
        RingRecord { msg: replica, ..sound },
        RingRecord { dst: GroupSet(0b01), ..sound },
        RingRecord { kind: RingRecordKind::Rejoin, ..sound },
        RingRecord { kind: RingRecordKind::Overlay, ..sound },
        RingRecord { source: 0, ..sound },
        RingRecord::pad(3),
        RingRecord::pad(ring.left_at(0)),
    ]
}

/// A former leader of the parent has left nonsense; then a client multicasts five messages through its successor.
fn runs_with(set: &[(&str, &str)], record: &RingRecord) -> TramWorld {
    let (mut w, layout) = parent_and_child(set);
    let ring = layout.hm_of(Gid(0), 0);
    lead_next(&mut w, 0, 1);
    meddle(&w, &ring, record, [0; 3]);
    w.run(20);
    (1..=5).for_each(|seq| cast_as(&mut w, 0, seq, 0b11));
    w.run(300);
    w
}

fn stops_no_other_one(set: &[(&str, &str)]) {
    let (w, layout) = parent_and_child(set);
    let (ring, first) = (layout.hm_of(Gid(0), 0), w.replica(0, 0));
    for record in nonsense(&ring) {
        let w = runs_with(set, &record);
        let all: Vec<_> = (1..=5).map(|seq| (Pid(6), seq)).collect();
        assert_eq!((delivered(&w, 0), delivered(&w, 1)), (all.clone(), all), "{record:?}");
        let notes: Vec<_> = w.processes.iter().flat_map(|p| &p.malformed).collect();
        let waits = record == RingRecord::pad(ring.left_at(0));
        assert_eq!(notes.len(), usize::from(!waits), "once: {record:?}, {notes:?}");
        assert!(notes.iter().all(|(from, _)| *from == first), "{notes:?}");
    }
}

#[test]
fn nonsense_of_one_replica_of_the_parent_stops_no_other_one() {
    stops_no_other_one(&[]);
}

#[test]
fn nonsense_of_one_replica_of_a_parent_that_may_change_stops_no_other_one() {
    stops_no_other_one(&[("dynamic_overlay", "1")]);
}

#[test]
fn nonsense_of_one_replica_of_the_parent_hides_nothing_that_the_child_has_to_fetch() {
    let set = [("heartbeat_us", "500"), ("suspect_us", "2000")];
    let (w, layout) = parent_and_child(&set);
    let (ring, child) = (layout.hm_of(Gid(0), 0), w.leader(1).unwrap());
    for record in nonsense(&ring) {
        let (mut w, _) = parent_and_child(&set);
        lead_next(&mut w, 0, 1);
        meddle(&w, &ring, &record, [0; 3]);
        w.dead.push((w.replica(0, 1).index(), child.index()));
        (1..=5).for_each(|seq| cast_as(&mut w, 0, seq, 0b11));
        w.run(3000);
        assert_eq!(w.leader(1), Some(child));
        assert_eq!(delivered(&w, 1).len(), 5, "{record:?}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_leader_that_stops_at_nonsense_is_noticed() {
    let (_, layout) = parent_and_child(&[]);
    let record = nonsense(&layout.hm_of(Gid(0), 0))[0];
    let w = runs_with(&[("mutant", "stops-at-nonsense")], &record);
    assert_eq!(delivered(&w, 0).len(), 5);
    assert!(delivered(&w, 1).is_empty(), "the child reads nothing of its parent");
}

#[test]
fn a_leader_of_the_parent_is_read_again_when_it_has_written_what_belongs_there() {
    let (mut w, layout) = parent_and_child(&[]);
    let (ring, leader) = (layout.hm_of(Gid(0), 0), w.replica(0, 0));
    assert_eq!(w.leader(0), Some(leader));
    meddle(&w, &ring, &RingRecord::pad(3), [0; 3]);
    w.run(20);
    cast_as(&mut w, 0, 1, 0b11);
    w.run(50);
    assert_eq!(noted(&w, "a pad that does not belong there"), [leader]);
    assert_eq!(delivered(&w, 1), [(Pid(6), 1)]);
}

#[test]
fn a_child_waits_for_another_leader_of_the_parent_while_the_present_one_writes_nonsense() {
    let (mut w, layout) = parent_and_child(&[]);
    let ring = layout.hm_of(Gid(0), 0);
    cast_as(&mut w, 0, 1, 0b11);
    w.run(1);
    // Its record is spoilt before the child takes it up, and it writes it no more.
    let wrong = RingRecord { dst: GroupSet(0b01), ..nonsense(&ring)[1] };
    w.paused = (0..3).map(|r| w.replica(1, r).index()).collect();
    w.run(10);
    meddle(&w, &ring, &wrong, [0; 3]);
    w.paused.clear();
    w.run(100);
    assert_eq!((delivered(&w, 0).len(), delivered(&w, 1).len()), (1, 0));
    lead_next(&mut w, 0, 1);
    assert_eq!(delivered(&w, 1), [(Pid(6), 1)]);
    assert_eq!(noted(&w, "destinations that this group does not reach"), [w.replica(0, 0)]);
}
