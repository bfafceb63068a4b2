//! RamCast where a client or a leader writes what it should not: it costs its writer, and nobody else.

use super::*;

/// Two groups, each with its first leader.
fn two_groups() -> TramWorld {
    let mut w = TramWorld::of(&RamCast, (2, 3), "breadth", &[]);
    w.run(50);
    w
}

/// Client `c` multicasts under a number of its choice.
fn cast_as(w: &mut TramWorld, c: usize, seq: u64, dst: u64) {
    let client = w.config.cluster().client(c).index();
    w.step(client, Input::Submit(Submission { seq, dst: GroupSet(dst), payload: b"x" }));
}

/// Everyone up in a group delivered these, in some order that is the same.
fn delivered(w: &TramWorld, g: u8) -> Vec<(Pid, u64)> {
    let ids = |p: Pid| w.processes[p.index()].delivered.iter().map(|(m, _)| (m.sender, m.seq));
    let all: Vec<Vec<_>> = (0..3).map(|r| ids(w.replica(g, r)).collect()).collect();
    assert!(all.windows(2).all(|two| two[0] == two[1]), "{all:?}");
    all[0].clone()
}

fn noted(w: &TramWorld, what: &str) -> Vec<Pid> {
    let notes = w.processes.iter().flat_map(|p| &p.malformed);
    notes.filter(|(_, noted)| *noted == what).map(|(from, _)| *from).collect()
}

#[test]
fn a_number_that_a_client_repeats_or_lowers_is_delivered_once_and_stops_nobody() {
    let mut w = two_groups();
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
    let mut w = two_groups();
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
