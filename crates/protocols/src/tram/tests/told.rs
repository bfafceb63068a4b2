//! Announcements before lines are written over, and the belief in announcements.

use super::super::layout::Layout;
use super::super::log_region::{Control, LOG_BASE};
use super::super::permissions::TermLog;
use super::super::replica::{ReplicaHealth, TramReplica};
use super::super::transfer::IncomingTransfer;
use super::*;
use alloc::rc::Rc;

/// The line of a log region that tells of a term before its first line.
const TERM: u32 = 1;

fn group() -> (TramWorld, Layout) {
    let mut w = TramWorld::new(1, 3, "breadth", &[]);
    w.run(50);
    assert_eq!(w.leader(0), Some(Pid(0)));
    let layout = Layout::new(&w.config).unwrap();
    (w, layout)
}

/// The lines that the leader posts to the log of a follower, when that is out of reach for a while.
fn posted_again(set: &[(&str, &str)]) -> Vec<u32> {
    let mut w = TramWorld::new(1, 3, "breadth", set);
    w.run(50);
    assert!(w.cast(&[0], b"first"));
    w.run(50);
    let log = Layout::new(&w.config).unwrap().log(0, 0).region;
    w.processes[2].up = false;
    assert!(w.cast(&[0], b"second"));
    w.run(50);
    assert!(w.processes[0].marks.contains(&"tram-write-failed"));
    w.processes[2].up = true;
    w.posted.clear();
    w.run(3000);
    assert_eq!(w.seqs(Pid(2)), [1, 2]);
    let to_it = w.posted.iter().filter(|w| (w.0, w.1, w.2) == (0, 2, log));
    to_it.map(|w| w.3).collect()
}

#[test]
fn a_follower_that_is_taken_in_again_is_told_before_its_log_is_written_over() {
    assert_eq!(posted_again(&[])[0], TERM);
}

#[cfg(feature = "mutants")]
#[test]
fn a_leader_that_takes_a_follower_in_again_before_it_tells_is_noticed() {
    assert!(posted_again(&[("mutant", "readmits-before-it-tells")])[0] >= LOG_BASE);
    assert_eq!(posted_again(&[("mutant", "writes-before-it-tells")])[0], TERM);
}

/// Whether a candidate was ever seen to have lines of a term in its own half that the head did not tell of.
fn adopts_untold(set: &[(&str, &str)]) -> bool {
    let mut w = TramWorld::new(1, 3, "breadth", set);
    w.run(50);
    for i in 0..3 {
        assert!(w.cast(&[0], &[i]));
    }
    // Nobody has told that it needs them no more.
    w.run(5);
    let own = Layout::new(&w.config).unwrap().log(1, 0).region;
    let untold = Rc::new(Cell::new(false));
    let seen = Rc::clone(&untold);
    // A reader of its half finds, at any moment of its steps, the head at least as new as the
    // lines.
    w.processes[1].memory.meddles = Some(alloc::boxed::Box::new(move |_, heap| {
        let lines = heap.lines(own);
        let told = lines[TERM as usize].stamp().epoch();
        let newest = lines[LOG_BASE as usize..].iter().map(|l| l.stamp().epoch()).max();
        seen.set(seen.get() || newest > Some(told));
    }));
    w.crash(w.replica(0, 0));
    w.run(3000);
    assert_eq!(w.leader(0), Some(Pid(1)));
    untold.get()
}

#[test]
fn a_candidate_tells_before_it_copies_a_log_over_its_own_half() {
    assert!(!adopts_untold(&[]));
}

#[cfg(feature = "mutants")]
#[test]
fn a_candidate_that_copies_before_it_tells_is_noticed() {
    assert!(adopts_untold(&[("mutant", "adopts-before-it-tells")]));
    assert!(!adopts_untold(&[("mutant", "writes-before-it-tells")]));
}

#[test]
fn logs_that_end_before_what_is_decided_make_no_leader() {
    let (mut w, layout) = group();
    assert!(w.cast(&[0], b"decided"));
    w.run(5);
    assert_eq!(w.seqs(Pid(1)), [1]);
    w.crash(Pid(0));
    // Both survivors have lost the message, and one of them has delivered it.
    let log = layout.log(0, 0);
    for r in 1..3 {
        w.processes[r].memory.heap.lines(log.region)[log.at(0) as usize]
            .put(&[0; LINE_WORDS], LineStamp::default());
    }
    w.run(3000);
    assert!(w.processes[1].marks.contains(&"tram-quorum-forgot"));
    assert_eq!(w.leader(0), None);
}

#[test]
fn a_state_in_force_that_is_not_the_last_one_given_makes_no_replica_fit() {
    let (w, _) = group();
    let mut replica = TramReplica::new(Pid(2), &w.config).unwrap();
    replica.health = ReplicaHealth::Following(5);
    replica.progress.needs = 2;
    let mut out = Outbox::default();
    replica.installed(9, 1, &mut out);
    assert!(!replica.is_fit(), "another one was asked for after it");
    replica.installed(4, 2, &mut out);
    assert!(!replica.is_fit(), "it is missing deliveries");
    replica.installed(5, 2, &mut out);
    assert!(replica.is_fit());
}

#[test]
fn what_a_state_holds_beyond_its_need_counts_as_applied() {
    let (w, _) = group();
    let mut replica = TramReplica::new(Pid(2), &w.config).unwrap();
    replica.health = ReplicaHealth::Following(5);
    replica.progress.needs = 2;
    (replica.progress.consumed, replica.progress.delivered, replica.progress.applied) = (12, 9, 5);
    let mut out = Outbox::default();
    replica.installed(9, 1, &mut out);
    replica.settle_applied();
    assert_eq!(
        (replica.progress.applied, replica.progress.clear),
        (5, 5),
        "it does not answer the last need"
    );
    replica.installed(9, 2, &mut out);
    replica.settle_applied();
    assert_eq!(
        (replica.progress.applied, replica.progress.clear),
        (9, 12),
        "the log is kept for nobody"
    );
}

#[test]
fn a_head_that_the_log_has_moved_past_is_dropped_where_its_source_started_anew() {
    let (mut w, _) = group();
    for _ in 0..60 {
        while !w.cast(&[0], &[5; 100]) {
            w.run(1);
        }
    }
    w.run(200);
    let mut replica = TramReplica::new(Pid(2), &w.config).unwrap();
    let view = RegionWindow(&w.processes[2].memory);
    let control =
        Control::read(view.region(replica.layout.log(0, 0).region)).expect("it is installed");
    assert!(control.tail > 0);
    replica.permissions.promise.epoch = control.epoch;
    replica.permissions.force = Some(TermLog { writer: 0, half: 0, epoch: control.epoch });
    replica.health =
        ReplicaHealth::Lacking(IncomingTransfer::of_lost_source(replica.buffers.sources.len()));
    let mut out = Outbox::default();
    replica.take_in(view, &mut out);
    let mut outputs = Vec::new();
    out.take(&mut outputs);
    let is_marked =
        |output: &_| matches!(output, Output::Note(Note::Mark("tram-source-started-anew")));
    assert!(outputs.iter().any(is_marked) && !replica.follows());
    // Nothing of the old head is left: it does not give up a second one.
    replica.take_in(view, &mut out);
    outputs.clear();
    out.take(&mut outputs);
    assert!(!outputs.iter().any(is_marked));
}
