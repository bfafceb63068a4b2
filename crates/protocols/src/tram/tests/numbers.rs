//! A client whose numbers do not grow loses its lease, and its repeated message is not ordered again.

use super::ramcast::{cast_as, delivered, noted};
use super::*;
use amcast_core::step::Oracle;

const FLAW: &str = "a number that does not grow";

fn group() -> TramWorld {
    let mut w = TramWorld::new(2, 3, "breadth", &[]);
    w.run(50);
    w
}

fn lead_next(w: &mut TramWorld, r: usize) {
    let next = w.replica(0, r);
    for r in 0..3 {
        let p = w.replica(0, r);
        w.step(p.index(), Input::Oracle(Oracle::Leader(Gid(0), next)));
    }
    w.run(300);
    assert_eq!(w.leader(0), Some(next));
}

#[test]
fn a_number_that_is_not_a_clients_next_one_costs_its_lease_and_nobody_else() {
    const BEYOND: &str = "a number beyond those of its lease";
    let tried =
        [(5, 5, FLAW), (5, 4, FLAW), (0, 0, FLAW), (5, 1 << 32, BEYOND), (5, u64::MAX, BEYOND)];
    for (first, then, flaw) in tried {
        let mut w = group();
        let (bad, good) = (w.config.cluster().client(0), w.config.cluster().client(1));
        cast_as(&mut w, 0, first, 0b11);
        w.run(50);
        cast_as(&mut w, 0, then, 0b01);
        cast_as(&mut w, 0, 7, 0b11);
        cast_as(&mut w, 1, 1, 0b11);
        w.run(100);
        for g in 0..2 {
            assert_eq!(delivered(&w, g), [(bad, first), (good, 1)], "{first}, then {then}");
        }
        assert_eq!(noted(&w, flaw), [bad]);
        // The place's next holder is heard, with numbers above its own.
        w.restart(bad);
        w.run(50);
        cast_as(&mut w, 0, 1 << 32, 0b11);
        w.run(300);
        assert_eq!(delivered(&w, 1), [(bad, first), (good, 1), (bad, 1 << 32)]);
        assert_eq!(noted(&w, flaw), [bad]);
    }
}

#[test]
fn a_next_holder_that_repeats_a_number_of_the_one_before_is_refused() {
    let mut w = group();
    let client = w.config.cluster().client(0);
    cast_as(&mut w, 0, 5, 0b01);
    w.run(50);
    w.restart(client);
    w.run(50);
    cast_as(&mut w, 0, 5, 0b01);
    w.run(300);
    assert_eq!(delivered(&w, 0), [(client, 5)]);
    assert_eq!(noted(&w, FLAW), [client]);
}

#[test]
fn a_later_leader_refuses_the_same_numbers() {
    let mut w = group();
    let client = w.config.cluster().client(0);
    cast_as(&mut w, 0, 5, 0b01);
    w.run(50);
    lead_next(&mut w, 1);
    cast_as(&mut w, 0, 5, 0b01);
    w.run(300);
    assert_eq!(delivered(&w, 0), [(client, 5)]);
    lead_next(&mut w, 2);
    assert_eq!(delivered(&w, 0), [(client, 5)]);
    assert_eq!(noted(&w, FLAW), [client, client], "once a term");
}

#[test]
fn a_replica_that_got_its_state_refuses_the_same_numbers() {
    let mut w = group();
    let (client, second) = (w.config.cluster().client(0), w.replica(0, 1));
    // So many that the log has gone round, and the returning replica reads none of them.
    for seq in 1..=100 {
        cast_as(&mut w, 0, seq, 0b01);
        w.run(40);
    }
    w.crash(second);
    w.run(100);
    w.restart(second);
    w.run(1000);
    assert!(w.processes[second.index()].protocol.fit());
    lead_next(&mut w, 1);
    cast_as(&mut w, 0, 100, 0b01);
    w.run(300);
    assert_eq!(delivered(&w, 0).len(), 100);
    assert_eq!(noted(&w, FLAW), [client]);
}

#[test]
fn where_the_tree_may_change_numbers_are_not_judged() {
    let mut w = TramWorld::new(2, 3, "breadth", &[("dynamic_overlay", "1")]);
    w.run(50);
    cast_as(&mut w, 0, 5, 0b01);
    w.run(20);
    cast_as(&mut w, 0, 4, 0b01);
    w.run(50);
    // As a client does that requests anew what another change of the tree has made stale.
    let client = w.config.cluster().client(0);
    assert_eq!(delivered(&w, 0), [(client, 5), (client, 4)]);
}
