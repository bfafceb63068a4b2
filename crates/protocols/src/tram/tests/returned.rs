//! The place of a client that died is taken again: its buffers begin anew, under a higher lease.

use super::super::layout::Layout;
use super::*;

/// One group, in which the clients' places were taken never before.
fn group() -> (TramWorld, usize, RegionId) {
    let mut w = TramWorld::new(1, 3, "breadth", &[]);
    w.run(50);
    assert_eq!(w.leader(0), Some(Pid(0)));
    let client = w.config.cluster().client(0).index();
    let hm = Layout::new(&w.config).unwrap().hm_client(0).region;
    (w, client, hm)
}

/// Client 0 multicasts; the replicas have it in their memory, and have not looked yet.
fn cast(w: &mut TramWorld, client: usize) {
    assert!(w.cast(&[0], b"message"));
    w.step(client, Input::Medium(MemoryInput::Poll));
}

#[test]
fn a_line_that_the_next_holder_writes_over_makes_no_message_even_under_its_old_stamp() {
    // Of the first line so many words are the next holder's already, and the stamp is not.
    for words in 0..=LINE_WORDS {
        let (mut w, client, hm) = group();
        cast(&mut w, client);
        let mut next = TramWorld::new(1, 3, "breadth", &[]);
        let pid = next.config.cluster().client(0);
        next.restart(pid);
        next.seq = 1;
        cast(&mut next, client);
        for r in 0..3 {
            let [from, to] = [&next, &w].map(|w| w.processes[r].memory.heap.lines(hm));
            to[0].copy(&from[0], from[0].stamp());
            for word in 0..words {
                to[1].raw(word).store(from[1].word(word), core::sync::atomic::Ordering::Relaxed);
            }
        }
        w.run(50);
        assert!((0..3).all(|r| w.seqs(w.replica(0, r)).is_empty()), "{words} words");
        assert!(words > 0 || w.processes[0].marks.contains(&"tram-buffer-moved"));
    }
}

#[test]
fn a_record_of_a_buffer_whose_holder_is_not_told_is_no_message() {
    let (mut w, client, hm) = group();
    cast(&mut w, client);
    let holder = &w.processes[0].memory.heap.lines(hm)[0];
    assert_eq!(holder.word(0), 1);
    holder.put(&[0; LINE_WORDS], LineStamp::default());
    w.run(50);
    assert!(w.seqs(w.replica(0, 0)).is_empty());
}

#[test]
fn messages_of_a_holder_are_taken_up_behind_those_of_one_that_died_before_it_was_heard() {
    let (mut w, client, _) = group();
    cast(&mut w, client);
    w.run(50);
    let place = w.config.cluster().client(0);
    // The leader hears of both new holders before it looks at what the first of them wrote.
    w.restart(place);
    cast(&mut w, client);
    w.restart(place);
    w.run(50);
    cast(&mut w, client);
    w.run(50);
    assert!((0..3).all(|r| w.seqs(w.replica(0, r)) == [1, 2, 3]));
}

#[test]
fn a_replica_that_starts_anew_is_told_again_who_holds_a_buffer() {
    let (mut w, client, hm) = group();
    cast(&mut w, client);
    w.run(50);
    let replica = w.replica(0, 1);
    w.crash(replica);
    w.run(3000);
    w.restart(replica);
    w.run(3000);
    cast(&mut w, client);
    assert_eq!(w.processes[1].memory.heap.lines(hm)[0].word(0), 1);
    w.crash(w.replica(0, 0));
    w.run(3000);
    cast(&mut w, client);
    w.run(50);
    assert_eq!(w.seqs(replica), [1, 2, 3]);
}
