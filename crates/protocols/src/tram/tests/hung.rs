//! Applications that hang, and slow ones.

use super::*;

/// A suspicion takes so long, and the longest patience with an application 512 times that: 1024 rounds.
const TIMERS: [(&str, &str); 2] = [("heartbeat_us", "100"), ("suspect_us", "200")];

/// In rounds: more than the longest patience.
const LONG: usize = 1100;

/// One group, led by the first replica, in whose ring there is room for few messages.
fn group(replicas: usize) -> TramWorld {
    let mut w = TramWorld::new(1, replicas, "breadth", &TIMERS);
    w.run(50);
    assert_eq!(w.leader(0), Some(Pid(0)));
    w
}

/// Multicasts messages until no more are taken, in far less time than the longest patience.
fn fill(w: &mut TramWorld) {
    let taken = (0..300).take_while(|_| {
        w.run(1);
        w.cast(&[0], b"message")
    });
    assert!(taken.count() < 300, "an application that applies nothing holds back the clients");
    w.run(50);
}

/// Multicasts so many messages, each as soon as it is taken.
fn cast(w: &mut TramWorld, count: usize) {
    for _ in 0..count {
        let taken = (0..2 * LONG).any(|_| {
            w.run(2);
            w.cast(&[0], b"message")
        });
        assert!(taken, "a client is held back for ever");
    }
    w.run(50);
}

/// The application of a replica applies everything up to its n-th delivery.
fn apply(w: &mut TramWorld, r: usize, n: usize) {
    let position = w.processes[r].positions[n];
    w.processes[r].inbox.push_back(TramAnswer::Applied(position));
}

fn marks(w: &TramWorld, mark: &str) -> usize {
    w.processes.iter().flat_map(|p| &p.marks).filter(|m| **m == mark).count()
}

#[test]
fn a_follower_whose_application_hangs_does_not_stop_its_group_for_ever() {
    let mut w = group(3);
    w.hung = [2].into();
    fill(&mut w);
    w.run(LONG / 2);
    let before = w.seqs(Pid(0)).len();
    assert!(!w.cast(&[0], b"message"), "it is waited for");
    w.run(LONG / 2);
    assert_eq!(marks(&w, "tram-leaves-behind"), 1);
    cast(&mut w, 500);
    let all = w.seqs(Pid(0));
    assert!(all.len() >= before + 500 && w.seqs(Pid(1)) == all);
    assert_eq!(w.seqs(Pid(2)), all, "its process has it all");
    // It gives no state that nobody can continue from, and leads on when its application moves again.
    w.crash(Pid(1));
    w.restart(Pid(1));
    w.run(LONG);
    assert!(w.processes[1].protocol.fit());
    assert_eq!(marks(&w, "tram-state-too-old"), 0);
    w.hung.clear();
    apply(&mut w, 2, all.len() - 1);
    w.run(50);
    w.crash(Pid(0));
    cast(&mut w, 100);
    w.run(LONG);
    let longer = w.seqs(Pid(1));
    assert!(longer.len() == all.len() + 100 && longer.starts_with(&all));
    assert_eq!(w.seqs(Pid(2)), longer);
}

#[test]
fn a_follower_whose_application_is_slow_is_waited_for() {
    let mut w = group(3);
    w.hung = [2].into();
    fill(&mut w);
    for n in 0..8 {
        w.run(LONG * 2 / 3);
        apply(&mut w, 2, n);
    }
    assert_eq!(marks(&w, "tram-leaves-behind"), 0);
    fill(&mut w);
    w.run(LONG * 2 / 3);
    assert_eq!(marks(&w, "tram-leaves-behind"), 0);
}

#[test]
fn a_group_that_was_idle_for_long_waits_for_a_slow_application_as_well() {
    let mut w = group(3);
    w.run(3 * LONG);
    w.hung = [2].into();
    fill(&mut w);
    w.run(LONG / 2);
    assert_eq!(marks(&w, "tram-leaves-behind"), 0);
}

#[test]
fn while_a_majority_hangs_nobody_is_left_behind_and_nothing_is_lost() {
    let mut w = group(5);
    w.hung = [2, 3, 4].into();
    fill(&mut w);
    w.run(3 * LONG);
    let held = w.seqs(Pid(0)).len();
    assert!(!w.cast(&[0], b"message") && marks(&w, "tram-leaves-behind") == 0);
    // One of them moves again: the other two are excluded, as a quorum has all state.
    w.hung = [2, 3].into();
    let last = w.processes[4].positions.len() - 1;
    apply(&mut w, 4, last);
    w.run(100);
    assert_eq!(marks(&w, "tram-leaves-behind"), 2);
    cast(&mut w, 200);
    assert!((0..5).all(|r| w.seqs(Pid(r)).len() >= held + 200));
}
