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

/// So many groups, and the number of the first client's process.
fn groups(count: usize) -> (TramWorld, usize) {
    let mut w = TramWorld::of(&RamCast, (count, 3), "breadth", &[]);
    w.run(50);
    let bad = w.config.cluster().client(0).index();
    (w, bad)
}

/// The writes of a client do not reach a group any more.
fn cut_from(w: &mut TramWorld, client: usize, g: u8) {
    let replicas = (0..3).map(|r| (client, w.replica(g, r).index()));
    let replicas: Vec<_> = replicas.collect();
    w.cut.extend(replicas);
}

#[test]
fn a_number_under_two_sets_of_destinations_moves_no_message_of_others_and_stops_nobody() {
    let (mut w, _) = groups(3);
    let (bad, good) = (w.config.cluster().client(0), w.config.cluster().client(1));
    // The clock of group 2 is far ahead.
    (1..=30).for_each(|seq| cast_as(&mut w, 1, seq, 0b100));
    w.run(20);
    w.paused = (0..3).map(|r| w.replica(1, r).index()).collect();
    cast_as(&mut w, 0, 5, 0b011);
    w.run(10);
    cast_as(&mut w, 1, 31, 0b011);
    w.run(10);
    // Group 0 has the number already: group 2 proposes there for a message that will never be.
    cast_as(&mut w, 0, 5, 0b101);
    w.run(10);
    w.paused.clear();
    w.run(100);
    let both = [(bad, 5), (good, 31)];
    assert_eq!((delivered(&w, 0), delivered(&w, 1)), (both.to_vec(), both.to_vec()));
    cast_as(&mut w, 1, 32, 0b111);
    w.run(100);
    for g in 0..3 {
        assert_eq!(delivered(&w, g).last(), Some(&(good, 32)), "group {g}");
    }
    assert_eq!(delivered(&w, 2).len(), 31);
}

#[test]
fn of_a_number_that_a_client_wrote_to_two_groups_alone_for_a_third_one_message_is_ordered() {
    for (first, second) in [(0b011, 0b110), (0b111, 0b110), (0b011, 0b111)] {
        let (mut w, client) = groups(3);
        let (bad, good) = (w.config.cluster().client(0), w.config.cluster().client(1));
        // Neither message comes to group 1, and each to one of the others.
        cut_from(&mut w, client, 1);
        let before = w.cut.len();
        cut_from(&mut w, client, 2);
        cast_as(&mut w, 0, 5, first);
        w.cut.truncate(before);
        cut_from(&mut w, client, 0);
        // The front of its buffer in group 2, which is still empty.
        if first & 0b100 != 0 {
            w.restart(bad);
        }
        cast_as(&mut w, 0, 5, second);
        w.run(20);
        (1..=3).for_each(|seq| cast_as(&mut w, 1, seq, 0b111));
        // As long as it takes until a message is passed on whose client may be dead, and again.
        w.run(3000);
        let all: Vec<_> = (0..3).map(|g| delivered(&w, g)).collect();
        let of = |g: usize| all[g].contains(&(bad, 5));
        let rests = |g: usize| all[g].iter().filter(|(p, _)| *p == good).map(|(_, seq)| *seq);
        assert!((0..3).all(|g| rests(g).eq(1..=3)), "{all:?}");
        // One of them, at all of its destinations, or none.
        let took = (0..3).filter(|&g| of(g)).fold(0, |set, g| set | 1 << g);
        assert!([0, first, second].contains(&took), "{took:b}: {all:?}");
        let pair = |a: usize, b: usize| {
            let shared = |g: usize, o: usize| {
                let other = all[o].clone();
                all[g].iter().copied().filter(move |m| other.contains(m)).collect::<Vec<_>>()
            };
            shared(a, b) == shared(b, a)
        };
        assert!(pair(0, 1) && pair(1, 2) && pair(0, 2), "{all:?}");
    }
}

#[test]
fn a_message_that_one_destination_will_never_order_holds_nobody_up() {
    let (mut w, _) = groups(2);
    let good = w.config.cluster().client(1);
    cast_as(&mut w, 0, 1000, 0b01);
    w.run(20);
    for seq in 1..=10 {
        cast_as(&mut w, 0, seq, 0b11);
        cast_as(&mut w, 1, seq, 0b10);
        // Much sooner than a failed replica is suspected.
        w.run(20);
        assert_eq!(delivered(&w, 1).last(), Some(&(good, seq)));
    }
    assert_eq!((delivered(&w, 0).len(), delivered(&w, 1).len()), (1, 10));
    let marks: Vec<_> = w.processes.iter().flat_map(|p| &p.marks).collect();
    assert!(!marks.contains(&&"ramcast-passes-whole"), "nobody had to ask");
    for mark in ["ramcast-refuses", "ramcast-drops-refused"] {
        assert!(marks.contains(&&mark), "{mark}");
    }
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

#[test]
fn nonsense_is_noted_of_each_leader_of_another_group_that_wrote_it() {
    let (mut w, layout) = two_groups();
    let last = w.replica(0, 2);
    for r in 0..3 {
        let p = w.replica(0, r);
        w.step(p.index(), Input::Oracle(amcast_core::step::Oracle::Leader(Gid(0), last)));
    }
    w.run(300);
    assert_eq!(w.leader(0), Some(last));
    let mut wrote = Vec::new();
    for rank in [0, 1, 0] {
        meddle(&w, &layout.proposals(Gid(0), rank), &RingRecord::pad(3), [0; 3]);
        w.run(20);
        wrote.push(w.replica(0, rank));
    }
    assert_eq!(noted(&w, "a pad that does not belong there"), wrote[..2]);
    cast_as(&mut w, 0, 1, 0b11);
    w.run(100);
    assert_eq!(delivered(&w, 1), [(Pid(6), 1)]);
}

#[test]
fn a_number_of_a_later_lease_costs_its_client_and_leaves_the_place_to_its_next_holder() {
    for seq in [1 << 32, u64::MAX] {
        let (mut w, _) = two_groups();
        let (bad, good) = (w.config.cluster().client(0), w.config.cluster().client(1));
        cast_as(&mut w, 0, (1 << 32) - 1, 0b01);
        w.run(20);
        cast_as(&mut w, 0, seq, 0b11);
        cast_as(&mut w, 1, 1, 0b11);
        w.run(50);
        let noted = noted(&w, "a number beyond those of its lease");
        assert!(!noted.is_empty() && noted.iter().all(|p| *p == bad), "{noted:?}");
        // Each next holder is heard.
        for lease in 1..=3_u64 {
            w.restart(bad);
            w.run(50);
            cast_as(&mut w, 0, lease << 32, 0b11);
            w.run(50);
        }
        let later = (1..=3).map(|lease| (bad, lease << 32));
        let both: Vec<_> = [(good, 1)].into_iter().chain(later).collect();
        assert_eq!(delivered(&w, 1), both);
        assert_eq!(delivered(&w, 0), [&[(bad, (1 << 32) - 1)], &both[..]].concat());
    }
}

/// Writes a client's record of one line to all of a group, whether there is room for it or not.
fn write_as(w: &TramWorld, g: u8, ring: &RecordRing, at: u64, record: &RingRecord) {
    for r in 0..3 {
        let memory = &w.processes[w.replica(g, r).index()].memory;
        let line = &memory.lines(ring.region)[ring.at(at) as usize];
        line.put(&record.words([0; 3]), ring.stamp(at, 1));
    }
}

#[test]
fn what_is_kept_for_a_slow_group_of_a_client_whose_messages_are_refused_is_bounded() {
    let (mut w, _) = groups(3);
    let layout = Layout::of_exchange(&w.config).unwrap();
    let (ring, client) = (layout.hm_client(0), w.config.cluster().client(0));
    // Group 0 refuses what group 1 orders, and group 2 does not hear of it.
    cast_as(&mut w, 0, 1, 0b010);
    cast_as(&mut w, 0, 1_000_000, 0b001);
    w.run(20);
    w.paused = (0..3).map(|r| w.replica(2, r).index()).collect();
    let record = |seq| RingRecord {
        kind: RingRecordKind::Message,
        bytes: 16,
        source: 0,
        lease: 1,
        msg: MsgId { sender: client, seq },
        dst: GroupSet(0b111),
    };
    for at in 1..1000 {
        write_as(&w, 1, &ring, at, &record(1 + at));
        w.run(1);
    }
    let leader = w.leader(1).unwrap();
    let count = |w: &TramWorld, mark| {
        let marks = &w.processes[leader.index()].marks;
        marks.iter().filter(|m| **m == mark).count()
    };
    assert!(count(&w, "ramcast-client-waits") > 0, "it waits");
    let dropped = count(&w, "ramcast-drops-refused");
    assert!((100..700).contains(&dropped), "{dropped} of 1000");
    // The others are heard meanwhile, and this one when the slow group has heard of it.
    cast_as(&mut w, 1, 1, 0b011);
    w.run(20);
    let good = w.config.cluster().client(1);
    assert_eq!(delivered(&w, 1), [(client, 1), (good, 1)]);
    w.paused.clear();
    w.run(600);
    let before = count(&w, "ramcast-client-waits");
    cast_as(&mut w, 1, 2, 0b111);
    w.run(100);
    assert_eq!(count(&w, "ramcast-client-waits"), before, "it waits no more");
    assert_eq!((delivered(&w, 1).len(), delivered(&w, 2).len()), (3, 1));
}
