//! Lines that are torn, move while they are read, or make no sense: they are no part of any order.

use super::super::layout::Layout;
use super::*;

/// One group, whose leader is the first replica, and that replica's buffer of client 0 and its log.
fn group(settings: &[(&str, &str)]) -> (TramWorld, RegionId, RegionId) {
    let mut w = TramWorld::new(1, 3, "breadth", settings);
    w.run(50);
    assert_eq!(w.leader(0), Some(Pid(0)));
    let layout = Layout::new(&w.config).unwrap();
    (w, layout.hm_client(0).region, layout.log(0, 0).region)
}

/// Client `c` multicasts to the group; the memory of the replicas has it at once.
fn cast(w: &mut TramWorld, c: usize, payload: &[u8]) {
    let client = w.config.cluster().client(c).index();
    w.seq += 1;
    let seq = w.seq;
    w.step(client, Input::Submit(Submission { seq, dst: GroupSet(1), payload }));
    w.step(client, Input::Medium(MemoryInput::Poll));
}

/// So many messages of one line each, one after the other.
fn cast_short(w: &mut TramWorld, count: usize) {
    for _ in 0..count {
        cast(w, 1, b"short");
        w.run(40);
    }
}

/// Client 0 multicasts, and its buffer moves while the leader copies the message.
fn cast_moved(w: &mut TramWorld, (hm, log): (RegionId, RegionId), payload: &[u8]) {
    cast(w, 0, payload);
    w.processes[0].memory.meddles = moves(hm, log);
    w.step(0, Input::Medium(MemoryInput::Poll));
    w.processes[0].memory.meddles = None;
    assert!(w.processes[0].marks.contains(&"tram-buffer-moved"));
}

fn take_answers(w: &mut TramWorld, process: usize) {
    while let Some(answer) = w.processes[process].inbox.pop_front() {
        w.answer(process, answer);
    }
}

#[test]
fn a_buffer_that_moves_while_it_is_copied_is_not_ordered() {
    let (mut w, hm, log) = group(&[]);
    cast_moved(&mut w, (hm, log), b"torn");
    w.run(50);
    assert!((0..3).all(|r| w.seqs(w.replica(0, r)).is_empty()));
}

#[test]
fn of_what_was_copied_from_a_buffer_that_moved_nothing_is_ever_a_record() {
    let (mut w, hm, log) = group(&[]);
    // A message of two lines. The second one looks like the first line of a record.
    let mut payload = alloc::vec![7; 24];
    let sender = w.config.cluster().client(1);
    for word in [4 | 1 << 32 | 1 << 48, u64::from(sender.0) | 1 << 32, 4242, 1, 0, 0, 0] {
        payload.extend_from_slice(&word.to_le_bytes());
    }
    cast_moved(&mut w, (hm, log), &payload);
    // One of one line takes the place of the first.
    cast(&mut w, 1, b"small");
    w.run(50);
    let next = w.replica(0, 1);
    for r in 0..3 {
        w.step(r, Input::Oracle(amcast_core::step::Oracle::Leader(Gid(0), next)));
    }
    w.run(300);
    assert_eq!(w.leader(0), Some(next), "it has read the log of the former leader");
    let delivered: Vec<_> = (0..3).map(|r| w.seqs(w.replica(0, r))).collect();
    // The first message is still in the buffers of the others.
    assert_eq!(delivered, [[2, 1], [2, 1], [2, 1]]);
}

#[test]
fn a_line_that_is_written_over_amid_a_message_makes_it_no_message() {
    let (mut w, hm, log) = group(&[]);
    cast(&mut w, 0, &[7; 200]);
    let looked = Cell::new(false);
    w.processes[0].memory.meddles = Some(alloc::boxed::Box::new(move |region, heap| {
        if region == log && looked.get() {
            heap.lines(hm)[2].put(&[1; LINE_WORDS], LineStamp::new(77, 0));
        }
        looked.set(looked.get() || region == hm);
    }));
    w.step(0, Input::Medium(MemoryInput::Poll));
    w.processes[0].memory.meddles = None;
    assert!(w.processes[0].marks.contains(&"tram-buffer-moved"));
    w.run(50);
    assert!((0..3).all(|r| w.seqs(w.replica(0, r)).is_empty()));
}

#[test]
fn a_groups_line_that_is_written_over_while_it_is_copied_is_not_taken_up() {
    let mut w = TramWorld::of(&RamCast, (2, 3), "breadth", &[]);
    w.run(50);
    let reader = w.leader(1).expect("it leads").index();
    let layout = Layout::of_exchange(&w.config).unwrap();
    let (source, log) = (layout.proposals(Gid(0), 0), layout.log(reader - 3, 0).region);
    w.paused.push(reader);
    assert!(w.cast(&[0, 1], b"message"));
    w.run(5);
    let at = source.at(0) as usize;
    let line = |w: &TramWorld| w.processes[reader].memory.heap.lines(source.region)[at].words();
    let before = line(&w);
    // The copy has the former head and a later timestamp. The line that follows has both anew.
    let looks = Cell::new(0);
    w.processes[reader].memory.meddles = Some(alloc::boxed::Box::new(move |region, heap| {
        let line = &heap.lines(source.region)[at];
        let mut words = line.words();
        match (region, looks.get()) {
            (region, 0) if region == source.region => {}
            (region, 1) if region == log => words[5] += 1,
            (region, 2) if region == source.region => words[2] += 1,
            _ => return,
        }
        looks.set(looks.get() + 1);
        line.put(&words, line.stamp());
    }));
    w.paused.clear();
    w.step(reader, Input::Medium(MemoryInput::Poll));
    w.processes[reader].memory.meddles = None;
    assert!(line(&w)[5] > before[5], "it changed while the leader copied it");
    assert!(w.processes[reader].marks.contains(&"tram-buffer-moved"));
    let restored = &w.processes[reader].memory.heap.lines(source.region)[at];
    restored.put(&before, restored.stamp());
    w.run(100);
    let replicas = [0, 1].into_iter().flat_map(|g| (0..3).map(move |r| (g, r)));
    assert!(replicas.map(|(g, r)| w.replica(g, r)).all(|p| w.seqs(p) == [1]));
}

#[test]
fn a_record_that_was_not_taken_leaves_no_pad() {
    let (mut w, hm, log) = group(&[]);
    cast_short(&mut w, 62);
    w.run(100);
    // It would lie behind a pad, at the beginning of the ring.
    cast_moved(&mut w, (hm, log), &[7; 100]);
    cast_short(&mut w, 3);
    let expected: Vec<u64> = (1..=62).chain(64..=66).collect();
    assert!((0..3).all(|r| w.seqs(w.replica(0, r)) == expected));
}

#[test]
fn what_follows_a_record_that_was_not_taken_reaches_the_followers_too() {
    let (mut w, hm, log) = group(&[]);
    cast_short(&mut w, 53);
    w.run(100);
    // A follower's word of how far it is does not reach the leader: the log is not empty.
    w.cut.push((2, 0));
    cast_short(&mut w, 6);
    cast_moved(&mut w, (hm, log), &[7; 300]);
    // Four fill the ring; the others lie at its beginning.
    for _ in 0..6 {
        cast(&mut w, 1, b"short");
        w.now += Span::micros(10);
        take_answers(&mut w, 0);
        w.step(0, Input::Medium(MemoryInput::Poll));
    }
    take_answers(&mut w, 0);
    let dead = w.seqs(w.replica(0, 0));
    assert!(dead.len() > 59, "it has decided some of them");
    w.crash(w.replica(0, 0));
    w.cut.clear();
    w.run(3000);
    for r in 1..3 {
        let alive = w.seqs(w.replica(0, r));
        assert!(alive.starts_with(&dead), "{alive:?} misses deliveries: {dead:?}");
    }
}

#[test]
fn a_commit_index_amid_a_record_is_not_believed() {
    let (mut w, _, log) = group(&[]);
    cast(&mut w, 0, &[7; 100]);
    w.now += Span::micros(10);
    w.step(0, Input::Medium(MemoryInput::Poll));
    let control = &w.processes[1].memory.heap.lines(log)[0];
    let mut words = control.words();
    words[2] += 1;
    control.put(&words, control.stamp());
    w.step(1, Input::Medium(MemoryInput::Poll));
    assert!(w.seqs(w.replica(0, 1)).is_empty());
    assert_eq!(w.processes[1].protocol.status().backlog, 1);
}

#[test]
fn a_follower_looks_again_whether_what_it_read_was_written_over() {
    // At its so-manyth look at the log, the leader has told that it writes over what lies there.
    let delivers = |change_at: u32| {
        let (mut w, _, log) = group(&[]);
        cast(&mut w, 0, b"message");
        w.now += Span::micros(10);
        w.step(0, Input::Medium(MemoryInput::Poll));
        let control = &w.processes[1].memory.heap.lines(log)[0];
        let (mut told, stamp) = (control.words(), control.stamp());
        told[2] = 1;
        control.put(&told, stamp);
        let looks = alloc::rc::Rc::new(Cell::new(0));
        let counted = alloc::rc::Rc::clone(&looks);
        w.processes[1].memory.meddles = Some(alloc::boxed::Box::new(move |region, heap| {
            if region == log {
                if looks.get() == change_at {
                    let term = &heap.lines(log)[1];
                    let mut words = term.words();
                    words[1] = 1;
                    term.put(&words, term.stamp());
                }
                looks.set(looks.get() + 1);
            }
        }));
        w.step(1, Input::Medium(MemoryInput::Poll));
        let behind = w.processes[1].marks.contains(&"tram-left-behind");
        let delivered = !w.seqs(w.replica(0, 1)).is_empty();
        assert!(delivered != behind, "look {change_at} of {}", counted.get());
        (delivered, counted.get())
    };
    let (delivered, looks) = delivers(u32::MAX);
    assert!(delivered);
    // The first look that matters is at the control line, the last one comes after the record was read.
    let noticed: Vec<u32> = (0..looks).filter(|&at| !delivers(at).0).collect();
    assert!(noticed.len() >= 4, "{noticed:?} of {looks}");
}

#[test]
fn nothing_of_a_torn_head_is_believed() {
    // With a child group a head has three lines.
    let mut w = TramWorld::new(2, 3, "breadth", &[("xfer_lines", "64")]);
    w.run(50);
    for i in 0..3 {
        cast(&mut w, 0, &[i + 1; 40]);
        w.run(20);
    }
    let expected = w.processes[0].delivered.clone();
    w.crash(w.replica(0, 2));
    w.run(100);
    w.restart(w.replica(0, 2));
    let layout = Layout::new(&w.config).unwrap();
    let mut torn = false;
    for _ in 0..3000 {
        w.now += Span::micros(100);
        for i in 0..w.processes.len() {
            if i == 2 && !torn {
                let rings = (0..2).map(|source| layout.xfer(source).region);
                torn = rings.into_iter().any(|ring| tear(w.processes[2].memory.heap.lines(ring)));
            }
            take_answers(&mut w, i);
            w.step(i, Input::Medium(MemoryInput::Poll));
        }
    }
    assert!(torn, "a head came");
    assert!(w.processes[2].protocol.fit());
    assert_eq!(w.processes[2].delivered, expected);
}

/// Writes over the last line but one of what lies in a ring, if a record of some lines is there.
fn tear(lines: &[CacheLine]) -> bool {
    let stamp = |at: usize| lines[at].stamp();
    let there = |at: &usize| stamp(*at) != LineStamp::default() && stamp(at + 2) != stamp(*at);
    let amid = |at: &usize| stamp(at - 1) == stamp(*at) && stamp(at + 1) == stamp(*at);
    let Some(at) = (1..lines.len() - 2).filter(there).find(amid) else { return false };
    lines[at].put(&[9; LINE_WORDS], LineStamp::new(5000, 0));
    true
}
