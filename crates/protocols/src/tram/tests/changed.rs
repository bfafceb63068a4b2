//! Another tree of the groups, on a memory that is immediate.

use super::*;
use amcast_core::Overlay;

fn world(overlay: &str) -> TramWorld {
    let groups = overlay.split(',').count();
    let mut world = TramWorld::new(groups, 3, overlay, &[("dynamic_overlay", "1")]);
    world.run(60);
    world
}

impl TramWorld {
    fn change(&mut self, parents: &[i64]) {
        self.change_by(0, parents);
    }

    fn change_by(&mut self, client: usize, parents: &[i64]) {
        let client = self.config.cluster().client(client).index();
        let overlay = Overlay::new(parents, parents.len()).unwrap();
        self.step(client, Input::Overlay(&overlay));
    }

    fn times(&self, p: Pid, mark: &str) -> usize {
        self.processes[p.index()].marks.iter().filter(|&&m| m == mark).count()
    }
}

#[test]
fn messages_before_a_change_and_behind_it_are_ordered_once_and_alike() {
    let mut world = world("-1,0,0");
    let trees: [&[i64]; 4] = [&[1, -1, 1], &[2, 0, -1], &[-1, 0, 1], &[1, 2, -1]];
    let sets: [&[u8]; 4] = [&[0, 1], &[1, 2], &[2], &[0, 1, 2]];
    let mut sent = Vec::new();
    for round in 0..40 {
        for dst in sets {
            if world.cast(dst, &[round; 30]) {
                sent.push((world.seq, dst));
            }
        }
        if round % 10 == 5 {
            world.change(trees[usize::from(round / 10)]);
        }
        world.run(2);
    }
    world.run(60);
    assert!(sent.len() > 100, "{}", sent.len());
    for g in 0..3 {
        for r in 0..3 {
            let p = world.replica(g, r);
            let mut seqs = world.seqs(p);
            assert_eq!(seqs, world.seqs(world.replica(g, 0)), "the group's order");
            seqs.sort_unstable();
            let due: Vec<u64> =
                sent.iter().filter(|(_, dst)| dst.contains(&g)).map(|(seq, _)| *seq).collect();
            assert_eq!(seqs, due, "{p:?}: each once");
            assert_eq!(world.times(p, "tram-overlay-changed"), 4);
        }
    }
}

#[test]
fn of_two_changes_that_are_asked_for_at_one_time_one_is_made_and_the_other_given_up() {
    let mut world = world("-1,0,0");
    world.change_by(0, &[2, 2, -1]);
    world.change_by(1, &[1, -1, 1]);
    world.run(200);
    let changes = |world: &TramWorld| {
        let replicas = (0..3).flat_map(|g| (0..3).map(move |r| (g, r)));
        let times = replicas.map(|(g, r)| world.times(world.replica(g, r), "tram-overlay-changed"));
        times.collect::<alloc::collections::BTreeSet<_>>()
    };
    assert_eq!(changes(&world), [1].into());
    assert!(world.cast(&[0, 1, 2], b"by the tree in force"));
    world.run(100);
    assert_eq!(world.seqs(world.replica(2, 1)), [1]);
    // Asked for in the tree in force, it is made.
    world.change_by(1, &[1, -1, 1]);
    world.run(100);
    assert_eq!(changes(&world), [2].into());
}

#[test]
fn a_client_whose_groups_do_not_answer_holds_one_change_of_many() {
    let mut world = world("-1,0,0");
    world.run(20);
    let client = world.config.cluster().client(0).index();
    let backlog = |world: &TramWorld| world.processes[client].protocol.status().backlog;
    (0..3).for_each(|r| world.crash(world.replica(0, r)));
    // Requests fill its buffer at the root, where nobody takes them up.
    while world.cast(&[0, 1, 2], &[7; 3]) {}
    let before = backlog(&world);
    (0..100).for_each(|_| world.change(&[2, 2, -1]));
    assert!(before > 0 && backlog(&world) <= before + 1, "{before}, {}", backlog(&world));
}

#[test]
fn a_replica_that_lost_its_memory_goes_by_the_tree_it_is_given() {
    let mut world = world("-1,0,0");
    world.change(&[2, 2, -1]);
    world.run(10);
    assert!(world.cast(&[0, 1], b"by the second tree"));
    world.run(40);
    let old = world.leader(2).expect("one leads");
    world.crash(old);
    world.run(200);
    world.restart(old);
    world.run(400);
    assert!(world.processes[old.index()].protocol.fit());
    // The others fail in turn and come back, until the one that lost its memory leads.
    for _ in 0..3 {
        let leader = world.leader(2).expect("one leads");
        if leader != old {
            world.crash(leader);
            world.run(400);
            world.restart(leader);
            world.run(400);
        }
    }
    assert_eq!(world.leader(2), Some(old));
    assert!(world.cast(&[0, 1], b"by it again"));
    world.run(200);
    let last = world.seq;
    for g in [0, 1] {
        assert_eq!(world.seqs(world.replica(g, 0)), [1, last]);
    }
}

#[test]
fn a_tree_of_another_number_of_groups_and_one_that_is_not_dynamic_is_no_change() {
    let mut other = world("-1,0,0");
    other.change(&[-1, 0]);
    other.run(20);
    let mut fixed = TramWorld::new(2, 3, "-1,0", &[]);
    fixed.run(60);
    fixed.change(&[1, -1]);
    fixed.run(20);
    for world in [&mut other, &mut fixed] {
        assert!(world.cast(&[0, 1], b"as before"));
        world.run(20);
        assert_eq!(world.seqs(world.replica(1, 0)), [1]);
        assert_eq!(world.times(world.replica(1, 0), "tram-overlay-changed"), 0);
    }
}

#[test]
fn a_client_that_comes_back_learns_the_tree_that_it_missed() {
    let mut world = world("-1,0,0");
    world.change(&[1, -1, 1]);
    world.run(20);
    assert!(world.cast(&[0, 2], b"by the second tree"));
    world.run(20);
    let client = world.config.cluster().client(0);
    world.crash(client);
    world.run(5);
    world.restart(client);
    world.run(5);
    world.seq = 100;
    assert!(world.cast(&[0, 2], b"and again"));
    world.run(20);
    for g in [0, 2] {
        assert_eq!(world.seqs(world.replica(g, 1)), [1, 101]);
    }
    let g1 = world.replica(1, 0);
    assert!(
        world.processes[g1.index()].delivered.is_empty(),
        "it is on the way, and no destination"
    );
}

/// A change frees the lines before its cut, and those behind it are requested anew. A replica that started again just before
/// has neither: it gets them before the client uses their room.
#[test]
fn what_is_stale_is_requested_anew_behind_what_a_restarted_replica_still_has_to_get() {
    let mut world = world("-1,0");
    let client = world.config.cluster().client(0).index();
    (0..30).for_each(|_| assert!(world.cast(&[0], b"before")));
    world.step(client, Input::Medium(MemoryInput::Poll));
    // From here on it looks at nothing: neither at what is taken up, nor at the change.
    world.paused.push(client);
    world.run(10);
    world.change_by(1, &[1, -1]);
    world.run(20);
    assert_eq!(world.times(world.replica(0, 0), "tram-overlay-changed"), 1);
    (0..30).for_each(|_| assert!(world.cast(&[0], b"stale")));
    let leader = world.leader(0).expect("one leads");
    let other = (0..3).map(|r| world.replica(0, r)).find(|p| *p != leader).expect("three");
    world.crash(other);
    world.restart(other);
    world.paused.clear();
    world.run(1);
    assert_eq!(world.times(Pid(client as u32), "tram-client-learns-overlay"), 2);
    assert!(!world.cast(&[0], b"no room"), "the replica has not answered for what it got");
    world.run(400);
    assert!(world.processes[other.index()].protocol.fit());
    let all: Vec<u64> = (1..=60).collect();
    for r in 0..3 {
        assert_eq!(world.seqs(world.replica(0, r)), all, "replica {r}");
    }
    assert!(world.cast(&[0, 1], b"and on"));
    world.run(50);
    assert_eq!(world.seqs(world.replica(1, 0)), [61]);
}
