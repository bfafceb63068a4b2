//! RamCast where a client or a leader writes what it should not: it costs its writer, and nobody else.

use super::super::layout::Layout;
use super::super::leader::PARENT_EPOCH;
use super::super::ring::{RecordRing, RingRecord, RingRecordKind};
use super::*;

/// Two groups, each with its first leader.
fn two_groups() -> (TramWorld, Layout) {
    let mut w = TramWorld::of(&RamCast, (2, 3), "breadth", &[]);
    w.run(50);
    let layout = Layout::of_exchange(&w.config).unwrap();
    (w, layout)
}

/// Client `c` multicasts under a number of its choice.
pub(super) fn cast_as(w: &mut TramWorld, c: usize, seq: u64, dst: u64) {
    let client = w.config.cluster().client(c).index();
    w.step(client, Input::Submit(Submission { seq, dst: GroupSet(dst), payload: b"x" }));
}

/// Everyone up in a group delivered these, in some order that is the same.
pub(super) fn delivered(w: &TramWorld, g: u8) -> Vec<(Pid, u64)> {
    let ids = |p: Pid| w.processes[p.index()].delivered.iter().map(|(m, _)| (m.sender, m.seq));
    let all: Vec<Vec<_>> = (0..3).map(|r| ids(w.replica(g, r)).collect()).collect();
    assert!(all.windows(2).all(|two| two[0] == two[1]), "{all:?}");
    all[0].clone()
}

pub(super) fn noted(w: &TramWorld, what: &str) -> Vec<Pid> {
    let notes = w.processes.iter().flat_map(|p| &p.malformed);
    notes.filter(|(_, noted)| *noted == what).map(|(from, _)| *from).collect()
}

#[test]
fn a_number_that_a_client_repeats_or_lowers_is_delivered_once_and_stops_nobody() {
    let (mut w, _) = two_groups();
    let (bad, good) = (w.config.cluster().client(0), w.config.cluster().client(1));
    for (seq, dst) in [(2, 1), (2, 1), (5, 3), (5, 3), (4, 3), (2, 3), (5, 1), (6, 3)] {
        cast_as(&mut w, 0, seq, dst);
        w.run(20);
    }
    for seq in 1..=9 {
        cast_as(&mut w, 1, seq, 1 + seq % 3);
        w.run(20);
    }
    w.run(3000);
    let of = |who: Pid, all: &[(Pid, u64)]| -> Vec<u64> {
        all.iter().filter(|(p, _)| *p == who).map(|(_, seq)| *seq).collect()
    };
    for (g, its) in [(0, &[2, 5, 6][..]), (1, &[5, 6])] {
        let all = delivered(&w, g);
        assert_eq!(of(bad, &all), its, "group {g}");
        let bit = 1 << g;
        let sent: Vec<u64> = (1..=9).filter(|seq| (1 + seq % 3) & bit != 0).collect();
        assert_eq!(of(good, &all), sent, "group {g}");
    }
    let noted = noted(&w, "a number that does not grow");
    assert!(!noted.is_empty() && noted.iter().all(|p| *p == bad), "{noted:?}");
}

#[test]
fn a_message_that_one_destination_takes_for_a_lower_number_is_dropped_by_the_other() {
    let (mut w, _) = two_groups();
    cast_as(&mut w, 0, 5, 0b01);
    w.run(20);
    // The second group has seen no number of this client yet, and waits for the first.
    cast_as(&mut w, 0, 3, 0b11);
    w.run(20);
    cast_as(&mut w, 1, 1, 0b10);
    w.run(3000);
    let good = w.config.cluster().client(1);
    assert_eq!(delivered(&w, 0), [(w.config.cluster().client(0), 5)]);
    assert_eq!(delivered(&w, 1), [(good, 1)]);
    // A later leader has the same log, and decides alike.
    let next = w.replica(1, 2);
    for r in 0..3 {
        let p = w.replica(1, r);
        w.step(p.index(), Input::Oracle(amcast_core::step::Oracle::Leader(Gid(1), next)));
    }
    w.run(300);
    cast_as(&mut w, 1, 2, 0b11);
    w.run(300);
    assert_eq!(w.leader(1), Some(next));
    assert_eq!(delivered(&w, 1), [(good, 1), (good, 2)]);
}

/// Puts a record where the first replica of group 0 writes to all of group 1.
fn meddle(w: &TramWorld, ring: &RecordRing, record: &RingRecord, first: [u64; 3]) {
    for r in 0..3 {
        let memory = &w.processes[w.replica(1, r).index()].memory;
        let lines = memory.lines(ring.region);
        lines[ring.at(0) as usize].put(&record.words(first), ring.stamp(0, PARENT_EPOCH));
    }
}

#[test]
fn nonsense_of_one_leader_of_another_group_stops_no_other_one() {
    let (_, layout) = two_groups();
    let ring = layout.proposals(Gid(0), 0);
    let msg = MsgId { sender: Pid(6), seq: 1 };
    let kind = RingRecordKind::Proposal;
    let sound = RingRecord { kind, bytes: 16, source: 1 << 15, lease: 1, msg, dst: GroupSet(3) };
    let replica = MsgId { sender: Pid(2), seq: 1 };
    let nonsense = [
        (RingRecord { msg: replica, ..sound }, [0, 9, 0]),
        (RingRecord { dst: GroupSet(0b10), ..sound }, [0, 9, 0]),
        (RingRecord { kind: RingRecordKind::Clock, ..sound }, [0, 9, 0]),
        (RingRecord { source: 1 << 15 | 1, ..sound }, [0, 9, 0]),
        (sound, [0, u64::MAX, 0]),
        (RingRecord::pad(3), [0; 3]),
        (RingRecord::pad(ring.left_at(0)), [0; 3]),
    ];
    for (record, first) in nonsense {
        let (mut w, _) = two_groups();
        let first_replica = w.replica(0, 0);
        let next = w.replica(0, 1);
        for r in 0..3 {
            let p = w.replica(0, r);
            w.step(p.index(), Input::Oracle(amcast_core::step::Oracle::Leader(Gid(0), next)));
        }
        w.run(300);
        assert_eq!(w.leader(0), Some(next));
        meddle(&w, &ring, &record, first);
        w.run(20);
        (1..=5).for_each(|seq| cast_as(&mut w, 0, seq, 0b11));
        w.run(300);
        let all: Vec<_> = (1..=5).map(|seq| (Pid(6), seq)).collect();
        assert_eq!((delivered(&w, 0), delivered(&w, 1)), (all.clone(), all), "{record:?}");
        let notes: Vec<_> = w.processes.iter().flat_map(|p| &p.malformed).collect();
        let waits = record == RingRecord::pad(ring.left_at(0));
        assert_eq!(notes.len(), usize::from(!waits), "once: {notes:?}");
        assert!(notes.iter().all(|(from, _)| *from == first_replica), "{notes:?}");
    }
}

#[test]
fn a_leader_that_wrote_nonsense_is_read_again_when_it_has_written_what_belongs_there() {
    let (mut w, layout) = two_groups();
    let (ring, leader) = (layout.proposals(Gid(0), 0), w.replica(0, 0));
    assert_eq!(w.leader(0), Some(leader));
    let pad = RingRecord::pad(3);
    meddle(&w, &ring, &pad, [0; 3]);
    w.run(20);
    cast_as(&mut w, 0, 1, 0b11);
    w.run(50);
    assert_eq!(noted(&w, "a pad that does not belong there"), [leader]);
    assert_eq!(delivered(&w, 1), [(Pid(6), 1)]);
}

#[test]
fn a_record_under_another_lease_than_its_lines_costs_its_client_and_nobody_else() {
    let (mut w, layout) = two_groups();
    let (ring, client) = (layout.hm_client(0), w.config.cluster().client(0));
    cast_as(&mut w, 0, 1, 0b01);
    w.run(20);
    let record = RingRecord {
        kind: RingRecordKind::Message,
        bytes: 16,
        source: 0,
        lease: u32::MAX,
        msg: MsgId { sender: client, seq: 2 },
        dst: GroupSet(1),
    };
    for r in 0..3 {
        let memory = &w.processes[w.replica(0, r).index()].memory;
        let lines = memory.lines(ring.region);
        lines[ring.at(1) as usize].put(&record.words([0; 3]), ring.stamp(1, 1));
    }
    cast_as(&mut w, 1, 1, 0b01);
    w.run(50);
    assert_eq!(noted(&w, "a message of another lease"), [client]);
    // The place's next holder is heard.
    w.restart(client);
    w.run(50);
    cast_as(&mut w, 0, 1 << 32, 0b11);
    w.run(300);
    let good = w.config.cluster().client(1);
    assert_eq!(delivered(&w, 0), [(client, 1), (good, 1), (client, 1 << 32)]);
}
