//! Links that fail for good: the leader takes up what its followers hold.

use super::super::buffer;
use super::super::layout::Layout;
use super::*;

/// Rings with room for a few messages.
const SMALL: [(&str, &str); 2] = [("heartbeat_us", "500"), ("suspect_us", "2000")];

fn world(entry: &'static dyn Entry, groups: usize, set: &[(&str, &str)]) -> TramWorld {
    let set = [&SMALL[..], set].concat();
    let mut w = TramWorld::of(entry, (groups, 3), "breadth", &set);
    w.run(50);
    w
}

/// Client 0 multicasts so many messages of all sizes, each as soon as there is room.
fn cast_all(w: &mut TramWorld, count: usize, dst: &[u8]) {
    let sent = w.seq as usize;
    for n in sent..sent + count {
        let payload = alloc::vec![n as u8; n * 37 % 1500];
        let mut rounds = 0;
        while !w.cast(dst, &payload) {
            w.run(1);
            rounds += 1;
            assert!(rounds < 5000, "{n} of {count} were sent");
        }
    }
}

fn all_deliver(w: &mut TramWorld, groups: u8, count: u64) {
    w.run(3000);
    for p in (0..groups).flat_map(|g| [0, 1, 2].map(|r| w.replica(g, r))) {
        let process = &w.processes[p.index()];
        if !process.up {
            continue;
        }
        assert_eq!(w.seqs(p), (1..=count).collect::<Vec<_>>(), "{p:?}");
        for (m, payload) in &process.delivered {
            let n = m.seq as usize - 1;
            assert_eq!(payload.len(), n * 37 % 1500, "{m:?}");
            assert!(payload.iter().all(|&b| b == n as u8), "{m:?}");
        }
    }
}

/// Whether a leader has read a follower's buffers.
fn has_read(w: &TramWorld) -> bool {
    w.processes.iter().any(|p| p.marks.contains(&"tram-reads-follower"))
}

/// Whether a leader has fetched.
fn has_fetched(w: &TramWorld) -> bool {
    w.processes.iter().any(|p| p.marks.contains(&"tram-fetches"))
}

fn client_of(w: &TramWorld) -> usize {
    w.config.cluster().client(0).index()
}

#[test]
fn a_client_that_never_reaches_the_leader_is_served() {
    for (entry, set) in [
        (&Tram as &'static dyn Entry, &[][..]),
        (&Tram, &[("dynamic_overlay", "1")]),
        (&RamCast, &[]),
    ] {
        let mut w = world(entry, 1, set);
        let client = client_of(&w);
        w.dead.extend([(client, 0), (0, client)]);
        cast_all(&mut w, 150, &[0]);
        all_deliver(&mut w, 1, 150);
        assert!(has_fetched(&w));
    }
}

#[test]
fn groups_whose_leaders_never_reach_each_other_deliver_what_is_for_both() {
    for (entry, set) in [
        (&Tram as &'static dyn Entry, &[][..]),
        (&Tram, &[("dynamic_overlay", "1")]),
        (&RamCast, &[]),
    ] {
        for dead in [&[(0, 4)][..], &[(4, 0)], &[(0, 4), (4, 0)]] {
            let mut w = world(entry, 2, set);
            assert_eq!([0, 1].map(|g| w.leader(g)), [0, 4].map(|p| Some(Pid(p))));
            w.dead.extend(dead);
            cast_all(&mut w, 150, &[0, 1]);
            all_deliver(&mut w, 2, 150);
            let is_needed = dead.contains(&(0, 4)) || entry.name() == "ramcast";
            assert_eq!(has_fetched(&w), is_needed, "{} {dead:?}", entry.name());
        }
    }
}

#[test]
fn nothing_is_lost_or_doubled_when_a_leader_that_fetches_dies() {
    let mut w = world(&Tram, 1, &[]);
    let client = client_of(&w);
    w.dead.push((client, 0));
    cast_all(&mut w, 60, &[0]);
    w.crash(w.replica(0, 0));
    cast_all(&mut w, 60, &[0]);
    // The next leader is reached, and then it is not either.
    w.run(2000);
    let leader = w.leader(0).expect("another one leads").index();
    w.dead.push((client, leader));
    cast_all(&mut w, 30, &[0]);
    all_deliver(&mut w, 1, 150);
}

#[test]
fn nothing_is_fetched_where_every_link_works() {
    let mut w = world(&Tram, 2, &[]);
    cast_all(&mut w, 150, &[0, 1]);
    // The application of all is slow, so that messages lie in the buffers for long.
    w.hung = (0..6).collect();
    for _ in 0..200 {
        w.cast(&[0], &[1; 100]);
        w.run(10);
    }
    assert!(!has_read(&w));
}

/// The next message of client 0 reaches the followers only, and the leader has read it there; the answer lies in its inbox.
fn fetch_under_way(set: &[(&str, &str)]) -> TramWorld {
    let mut w = world(&Tram, 1, set);
    let client = client_of(&w);
    assert!(w.cast(&[0], b"first"));
    w.run(100);
    w.dead.push((client, 0));
    assert!(w.cast(&[0], b"second"));
    let is_read = |a: &TramAnswer| matches!(a, TramAnswer::Done(_, TramReply::Words(_)));
    for _ in 0..1000 {
        w.run(1);
        if w.processes[0].inbox.iter().any(is_read) {
            return w;
        }
    }
    panic!("the leader reads nothing");
}

/// The messages that a follower has delivered, where the leader's own buffer gets the second one while it fetches that.
fn reached_meanwhile(set: &[(&str, &str)]) -> Vec<u64> {
    let mut w = fetch_under_way(set);
    let client = client_of(&w);
    let hm = Layout::new(&w.config).unwrap().hm_client(0);
    let [own, other] = [0, 1].map(|p: usize| w.processes[p].memory.heap.lines(hm.region));
    for (line, from) in own.iter().zip(other) {
        line.copy(from, from.stamp());
    }
    w.dead.clear();
    // It looks into its own buffer before it takes the answer.
    w.step(0, Input::Medium(MemoryInput::Poll));
    w.run(100);
    assert!(w.processes[client].up);
    let doubled = w.processes[0].marks.contains(&"tram-fetched-twice");
    assert_eq!(doubled, set.is_empty(), "it arrives twice");
    w.seqs(w.replica(0, 1))
}

#[test]
fn what_reaches_the_leader_while_it_fetches_is_taken_up_once() {
    assert_eq!(reached_meanwhile(&[]), [1, 2]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_leader_that_takes_up_behind_its_cursor_is_noticed() {
    assert_eq!(reached_meanwhile(&[("mutant", "fetches-anew")]), [1, 2, 2]);
}

/// The messages that a follower has delivered, where the client's place gets a new holder while the leader fetches.
fn taken_again_meanwhile(set: &[(&str, &str)]) -> Vec<u64> {
    let mut w = fetch_under_way(set);
    let hm = Layout::new(&w.config).unwrap().hm_client(0);
    for p in [1, 2] {
        let line = &w.processes[p].memory.heap.lines(hm.region)[buffer::HOLDER as usize];
        line.put(&[2, 0, 0, 0, 0, 0, 0], LineStamp::new(2, 0));
    }
    w.crash(w.config.cluster().client(0));
    w.run(1000);
    w.seqs(w.replica(0, 1))
}

#[test]
fn what_a_former_holder_left_is_not_fetched_once_a_new_one_writes() {
    assert_eq!(taken_again_meanwhile(&[]), [1]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_leader_that_does_not_look_at_the_holder_again_is_noticed() {
    assert_eq!(taken_again_meanwhile(&[("mutant", "fetches-unconfirmed")]), [1, 2]);
}

#[test]
fn what_is_written_over_between_two_reads_of_a_groups_line_is_not_taken_up() {
    for entry in [&Tram as &'static dyn Entry, &RamCast] {
        let mut w = world(entry, 2, &[]);
        let child = w.leader(1).unwrap().index();
        w.dead.push((0, child));
        assert!(w.cast(&[0, 1], b"message"));
        let is_read = |a: &TramAnswer| matches!(a, TramAnswer::Done(_, TramReply::Words(lines)) if lines.len() > 1);
        while !w.processes[child].inbox.iter().any(is_read) {
            w.run(1);
            assert!(w.now < Time::ZERO + Span::secs(1), "the leader reads nothing");
        }
        let ring = match entry.name() {
            "ramcast" => Layout::of_exchange(&w.config).unwrap().proposals(Gid(0), 0),
            _ => Layout::new(&w.config).unwrap().hm_of(Gid(0), 0),
        };
        let meddle = |w: &TramWorld, by: u64| {
            let replicas = (0..3).map(|r| w.replica(1, r).index());
            for p in replicas.filter(|&p| p != child) {
                let process = &w.processes[p];
                let line = &process.memory.heap.lines(ring.region)[ring.at(0) as usize];
                let mut words = line.words();
                words[5] ^= by;
                line.put(&words, line.stamp());
            }
        };
        meddle(&w, 1);
        w.run(1);
        assert!(!has_fetched(&w), "{}", entry.name());
        meddle(&w, 1);
        w.run(1000);
        assert!(has_fetched(&w) && w.seqs(w.replica(1, 2)) == [1]);
    }
}

/// The deliveries of the second group's leader of a message for both, where its log does not reach its followers since it has the
/// other group's timestamp.
fn delivered_ahead(fetched: bool) -> Vec<u64> {
    let mut w = world(&RamCast, 2, &[]);
    let (other, leader) = (w.leader(0).unwrap().index(), w.leader(1).unwrap().index());
    match fetched {
        true => w.dead.push((other, leader)),
        false => w.paused.push(other),
    }
    // The clock of the second group is ahead: its timestamp is the message's.
    assert!(w.cast(&[1], b"first"));
    w.run(10);
    assert!(w.cast(&[0, 1], b"message"));
    // The second group decides the message.
    w.run(10);
    let is_read = |a: &TramAnswer| matches!(a, TramAnswer::Done(_, TramReply::Words(lines)) if lines.len() > 1);
    while fetched && !w.processes[leader].inbox.iter().any(is_read) {
        w.run(1);
        assert!(w.now < Time::ZERO + Span::secs(1), "the leader reads nothing");
    }
    w.paused.clear();
    let group = [0, 1, 2].map(|r| w.replica(1, r).index());
    w.cut.extend(group.map(|p| (leader, p)));
    w.run(5);
    assert_eq!(w.leader(1), Some(Pid(leader as u32)));
    assert_eq!(has_fetched(&w), fetched);
    w.seqs(Pid(leader as u32))
}

#[test]
fn a_fetched_timestamp_counts_once_it_is_decided_and_one_from_the_own_buffer_at_once() {
    assert_eq!(delivered_ahead(false), [1, 2]);
    assert_eq!(delivered_ahead(true), [1]);
}

#[test]
fn a_new_holder_that_never_reaches_the_leader_is_served() {
    let mut w = world(&Tram, 1, &[]);
    let client = client_of(&w);
    assert!(w.cast(&[0], b""));
    w.run(100);
    w.dead.extend([(client, 0), (0, client)]);
    w.crash(Pid(client as u32));
    w.run(10);
    w.restart(Pid(client as u32));
    w.seq = 1 << 32;
    for _ in 0..20 {
        while !w.cast(&[0], &[7; 90]) {
            w.run(1);
        }
    }
    w.run(3000);
    let expected: Vec<u64> = core::iter::once(1).chain((1..=20).map(|n| (1 << 32) + n)).collect();
    for r in 0..3 {
        assert_eq!(w.seqs(w.replica(0, r)), expected, "{r}");
    }
    assert!(has_fetched(&w));
}
