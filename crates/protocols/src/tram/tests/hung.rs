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

/// The replicas for which each does not wait.
fn lagging(w: &TramWorld) -> Vec<u64> {
    let replicas = w.config.cluster().members(Gid(0));
    replicas.map(|p| w.processes[p.index()].protocol.lagging()).collect()
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
    assert_eq!(lagging(&w), [0b100, 0, 0], "as its leader knows");
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
    assert_eq!(lagging(&w)[1] | lagging(&w)[2], 0b001, "the ring went round without it");
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

/// How many deliveries wait at most for the application of a follower that hangs while its group orders 47 rings.
fn queued_at_most(set: &[(&str, &str)]) -> usize {
    let mut w = TramWorld::new(1, 3, "breadth", &[&TIMERS[..], set].concat());
    w.run(50);
    w.hung = [2].into();
    let (mut states, mut before, mut most) = (0, 0, 0);
    for _ in 0..300 {
        cast(&mut w, 10);
        let follower = &w.processes[2];
        if states != follower.needs {
            (states, before) = (follower.needs, follower.positions.len());
        }
        most = most.max(follower.positions.len() - before);
    }
    let all = w.seqs(Pid(0));
    assert!(all.len() == 3000 && w.seqs(Pid(1)) == all);
    w.run(LONG);
    assert_eq!(w.seqs(Pid(2)), all);
    // Its application works again, and the group with it.
    w.hung.clear();
    apply(&mut w, 2, all.len() - 1);
    cast(&mut w, 200);
    assert!(w.processes[2].protocol.fit() && lagging(&w) == [0, 0, 0]);
    most
}

#[test]
fn the_deliveries_that_wait_for_an_application_that_hangs_are_bounded() {
    let queued = queued_at_most(&[]);
    assert!((31 * 64..=34 * 64).contains(&queued), "{queued}");
}

#[cfg(feature = "mutants")]
#[test]
fn a_follower_that_queues_without_a_bound_is_noticed() {
    assert!(queued_at_most(&[("mutant", "queues-without-bound")]) > 34 * 64);
}

#[test]
fn a_state_that_takes_longer_than_the_bound_allows_is_waited_for_in_the_end() {
    let mut w = group(3);
    cast(&mut w, 100);
    w.crash(Pid(2));
    cast(&mut w, 100);
    (w.hung, w.slow) = ([2].into(), [2].into());
    w.restart(Pid(2));
    w.run(100);
    let begun = w.processes[2].needs;
    assert!(begun > 0 && !w.processes[2].protocol.fit());
    // Each state would be in force after 40 laps of the ring, if no other one was asked for meanwhile.
    for _ in 0..5 {
        let needs = w.processes[2].needs;
        cast(&mut w, 40 * 64);
        if w.processes[2].needs == needs {
            break;
        }
    }
    assert_eq!(w.processes[2].needs, begun + 1, "once it was too old");
    w.install(2);
    w.run(50);
    assert!(w.processes[2].protocol.fit() && w.processes[2].needs == begun + 1);
    // Once its application is up to date it may be as far behind as at first.
    let last = w.processes[2].positions.len() - 1;
    apply(&mut w, 2, last);
    cast(&mut w, 30 * 64);
    assert_eq!(w.processes[2].needs, begun + 1);
    cast(&mut w, 10 * 64);
    assert_eq!(w.processes[2].needs, begun + 2);
}

#[test]
fn a_reader_that_died_does_not_hide_that_its_source_hangs() {
    for source in 1..4 {
        let mut w = group(5);
        cast(&mut w, 100);
        w.crash(Pid(4));
        cast(&mut w, 5);
        // It asks one of the others for its state for ever, as the log does not reach it, and then dies.
        w.dead.push((0, 4));
        w.restart(Pid(4));
        w.run(LONG / 4);
        w.crash(Pid(4));
        w.hung = [source].into();
        fill(&mut w);
        w.run(LONG + 50);
        cast(&mut w, 100);
        assert_ne!(lagging(&w)[0] & 1 << source, 0, "{source}");
    }
}

#[test]
fn a_follower_of_ramcast_whose_application_is_slow_is_waited_for() {
    let mut w = TramWorld::of(&RamCast, (1, 3), "breadth", &TIMERS);
    w.run(50);
    w.hung = [2].into();
    fill(&mut w);
    for n in 1..6 {
        w.run(LONG * 2 / 3);
        apply(&mut w, 2, 8 * n);
    }
    assert_eq!(marks(&w, "tram-leaves-behind"), 0);
    // One that hangs is not.
    fill(&mut w);
    w.run(LONG + 50);
    assert_eq!(marks(&w, "tram-leaves-behind"), 1);
}

/// A replica of five starts again behind a dead link to the leader. Whether its group continues, and waits for the other ones.
fn continues_where_the_log_does_not_reach_a_reader(set: &[(&str, &str)]) -> bool {
    let mut w = TramWorld::new(1, 5, "breadth", &[&TIMERS[..], set].concat());
    w.run(50);
    cast(&mut w, 100);
    w.crash(Pid(4));
    // Writes on the way to it are lost by then, and no later one is answered.
    cast(&mut w, 5);
    w.cut.extend([(0, 4), (4, 0)]);
    w.restart(Pid(4));
    w.run(50);
    let taken = (0..4 * LONG).filter(|_| {
        w.run(1);
        w.cast(&[0], b"message")
    });
    let continues = taken.take(300).count() == 300;
    assert!(!w.processes[4].protocol.fit());
    let waits_for_others = lagging(&w)[0] == 1 << 4;
    assert!(!waits_for_others || marks(&w, "tram-drops-hold") == 1);
    w.cut.clear();
    w.crash(Pid(4));
    w.restart(Pid(4));
    w.run(LONG);
    assert!(w.processes[4].protocol.fit() && w.seqs(Pid(4)) == w.seqs(Pid(1)));
    continues && waits_for_others
}

#[test]
fn a_source_holds_the_log_for_no_reader_that_reads_nothing_while_its_own_application_works() {
    let mut w = group(5);
    cast(&mut w, 100);
    w.crash(Pid(4));
    cast(&mut w, 5);
    w.cut.extend([(0, 4), (4, 0)]);
    w.restart(Pid(4));
    w.run(50);
    for _ in 0..4 * LONG / 20 {
        w.run(20);
        assert!(w.cast(&[0], b"message"), "the ring is full");
    }
    assert_eq!(marks(&w, "tram-drops-hold"), 1);
    assert_eq!(lagging(&w)[0] & 0b1110, 0, "the others are waited for");
}

#[test]
fn a_reader_that_the_log_does_not_reach_does_not_stop_its_group_through_its_source() {
    assert!(continues_where_the_log_does_not_reach_a_reader(&[]));
}

#[cfg(feature = "mutants")]
#[test]
fn a_source_that_holds_back_the_log_for_ever_is_noticed() {
    let mutant = [("mutant", "holds-for-ever")];
    assert!(!continues_where_the_log_does_not_reach_a_reader(&mutant));
}
