//! Answers of the memory that come late: until then a write copies from where it was posted, and what
//! comes of it says nothing of what was posted later.

use super::super::layout::Layout;
use super::super::ticket::TicketRequest;
use super::*;

/// Answers to one process that are withheld.
struct WithheldAnswers {
    process: usize,
    which: fn(TicketRequest) -> bool,
    answers: VecDeque<TramAnswer>,
}

impl WithheldAnswers {
    fn new(process: usize, which: fn(TicketRequest) -> bool) -> Self {
        Self { process, which, answers: VecDeque::new() }
    }

    /// As [`TramWorld::run`].
    fn run(&mut self, w: &mut TramWorld, rounds: usize) {
        for _ in 0..rounds {
            w.now += Span::micros(100);
            for i in (0..w.processes.len()).filter(|&i| w.processes[i].up).collect::<Vec<_>>() {
                self.take_answers(w, i);
                w.step(i, Input::Medium(MemoryInput::Poll));
            }
        }
    }

    fn take_answers(&mut self, w: &mut TramWorld, i: usize) {
        while let Some(answer) = w.processes[i].inbox.pop_front() {
            let late = match &answer {
                TramAnswer::Done(t, _) => {
                    i == self.process && TicketRequest::of(*t).is_some_and(self.which)
                }
                _ => false,
            };
            if late { self.answers.push_back(answer) } else { w.answer(i, answer) }
        }
    }

    /// The first so many of them come.
    fn come(&mut self, w: &mut TramWorld, count: usize) {
        for answer in self.answers.drain(..count) {
            w.answer(self.process, answer);
        }
    }
}

/// One group, led by the first replica.
fn group() -> (TramWorld, Layout) {
    let mut w = TramWorld::new(1, 3, "breadth", &[]);
    w.run(50);
    assert_eq!(w.leader(0), Some(Pid(0)));
    let layout = Layout::new(&w.config).unwrap();
    (w, layout)
}

/// Nothing of what was written to a log is there.
fn empty(w: &TramWorld, owner: usize, log: RegionId) {
    let lines = w.processes[owner].memory.heap.lines(log);
    lines.iter().for_each(|line| line.put(&[0; LINE_WORDS], LineStamp::default()));
}

/// The tail that the leader of a group has told itself.
fn tail(w: &TramWorld, layout: &Layout) -> u64 {
    w.processes[0].memory.heap.lines(layout.log(0, 0).region)[0].word(1)
}

/// The term whose log is installed in a region.
fn installed(w: &TramWorld, owner: usize, log: RegionId) -> u32 {
    w.processes[owner].memory.heap.lines(log)[0].stamp().epoch()
}

const fn of_third_follower(t: TicketRequest) -> bool {
    matches!(t, TicketRequest::Log { rank: 2, .. })
}

#[test]
fn answers_to_writes_from_before_a_follower_was_taken_in_again_decide_nothing() {
    let (mut w, layout) = group();
    let mut late = WithheldAnswers::new(0, of_third_follower);
    // Without the second replica the third one makes the quorum.
    w.cut.push((0, 1));
    assert!(w.cast(&[0], b"message"));
    late.run(&mut w, 4);
    let before = late.answers.len();
    assert!(before > 0);
    w.processes[0].inbox.push_back(TramAnswer::Fresh(Pid(2), 0));
    empty(&w, 2, layout.log(0, 0).region);
    // It is taken in again, and gets the message again.
    late.run(&mut w, 4);
    assert!(late.answers.len() > before);
    late.come(&mut w, before);
    late.run(&mut w, 1);
    assert!(w.seqs(Pid(0)).is_empty(), "its writes from before say nothing");
    let rest = late.answers.len();
    late.come(&mut w, rest);
    late.run(&mut w, 1);
    assert_eq!(w.seqs(Pid(0)), [1]);
}

#[test]
fn no_tail_passes_lines_that_are_copied_again_to_a_follower() {
    let (mut w, layout) = group();
    let mut late = WithheldAnswers::new(0, of_third_follower);
    // The second replica is out of reach, and needs all: the tail stays.
    w.processes[1].up = false;
    for i in 0..4 {
        assert!(w.cast(&[0], &[i]));
        w.run(20);
    }
    assert_eq!((w.seqs(Pid(2)).len(), tail(&w, &layout)), (4, 0));
    w.processes[0].inbox.push_back(TramAnswer::Fresh(Pid(2), 0));
    late.run(&mut w, 2);
    assert!(!late.answers.is_empty(), "all is written to it once more");
    w.processes[1].up = true;
    late.run(&mut w, 200);
    assert_eq!(w.seqs(Pid(1)).len(), 4);
    assert_eq!(tail(&w, &layout), 0, "writes on the way still copy from there");
    let all = late.answers.len();
    late.come(&mut w, all);
    w.run(200);
    assert!(tail(&w, &layout) >= 4);
}

#[test]
fn answers_to_a_client_from_before_a_replica_started_anew_free_no_lines() {
    let (mut w, _) = group();
    let client = w.config.cluster().client(0).index();
    let mut late =
        WithheldAnswers::new(client, |t| matches!(t, TicketRequest::Sent { rank: 2, .. }));
    let room = |w: &TramWorld| w.processes[client].protocol.room(GroupSet(1), 1);
    // The last of these go round the ring, so that its end is far.
    for _ in 0..60 {
        assert!(w.cast(&[0], b"x"));
        w.run(10);
    }
    let taken = w.seqs(Pid(0)).len();
    for _ in 0..10 {
        assert!(w.cast(&[0], b"x"));
    }
    late.take_answers(&mut w, client);
    w.step(client, Input::Medium(MemoryInput::Poll));
    late.take_answers(&mut w, client);
    let before = late.answers.len();
    // Nothing was taken over yet: all of it is written again.
    w.processes[client].inbox.push_back(TramAnswer::Fresh(Pid(2), 0));
    late.run(&mut w, 40);
    assert!(before > 0 && late.answers.len() > before);
    assert_eq!((taken, w.seqs(Pid(0)).len()), (60, 70));
    late.come(&mut w, before);
    late.run(&mut w, 1);
    let held = room(&w);
    assert!(held <= 54, "{held} of 64: the later writes still copy from there");
    let rest = late.answers.len();
    late.come(&mut w, rest);
    late.run(&mut w, 1);
    assert!(room(&w) > held);
}

#[test]
fn no_tail_passes_lines_that_are_copied_again_to_a_child() {
    let mut w = TramWorld::new(2, 3, "breadth", &[]);
    w.run(50);
    assert_eq!(w.leader(0), Some(Pid(0)));
    let layout = Layout::new(&w.config).unwrap();
    let mut late = WithheldAnswers::new(0, |t| matches!(t, TicketRequest::Forward { rank: 2, .. }));
    // The parent does not hear how far the child is.
    w.cut.extend((3..6).flat_map(|from| (0..3).map(move |to| (from, to))));
    assert!(w.cast(&[0, 1], b"first"));
    w.run(20);
    assert!(w.cast(&[0, 1], b"second"));
    late.run(&mut w, 20);
    assert_eq!(late.answers.len(), 1, "the second one is on the way to the child's third replica");
    w.processes[0].inbox.push_back(TramAnswer::Fresh(Pid(5), 0));
    late.run(&mut w, 20);
    assert_eq!(late.answers.len(), 3, "both are written once more");
    w.cut.clear();
    for i in 0..4 {
        assert!(w.cast(&[1], &[i]));
        late.run(&mut w, 400);
    }
    assert_eq!(w.seqs(Pid(3)).len(), 6);
    assert_eq!(tail(&w, &layout), 0, "a write on the way still copies the first one");
    let all = late.answers.len();
    late.come(&mut w, all);
    w.run(400);
    assert!(tail(&w, &layout) > 0);
}

#[test]
fn a_new_leader_copies_nothing_that_it_may_write_over() {
    let (mut w, layout) = group();
    // The leader does not hear that the third replica needs them no more; the second one does.
    w.cut.push((2, 0));
    for i in 0..3 {
        assert!(w.cast(&[0], &[i]));
    }
    w.run(50);
    w.crash(Pid(0));
    w.cut.clear();
    assert_eq!(w.seqs(Pid(1)), [1, 2, 3]);
    // The log that is adopted begins before these messages.
    for half in 0..2 {
        assert_eq!(w.processes[1].memory.heap.lines(layout.log(0, half).region)[0].word(1), 0);
    }
    w.run(3000);
    assert_eq!(w.leader(0), Some(Pid(1)));
    let logs = [0, 1].map(|half| layout.log(1, half).region);
    let lines = |p: &&(usize, usize, RegionId, u32)| {
        (p.0, p.1) == (1, 2) && logs.contains(&p.2) && p.3 >= super::super::log_region::LOG_BASE
    };
    let copied: Vec<u32> = w.posted.iter().filter(lines).map(|p| p.3).collect();
    assert_eq!(copied, [0; 0]);
}

#[test]
fn a_new_leader_copies_one_line_of_a_pad_that_it_has_consumed() {
    let mut w = TramWorld::new(1, 3, "breadth", &[("lap_lines", "16")]);
    w.run(50);
    let layout = Layout::new(&w.config).unwrap();
    let cast = |w: &mut TramWorld, count| {
        for _ in 0..count {
            assert!(w.cast(&[0], b"short"));
            w.run(40);
        }
    };
    cast(&mut w, 12);
    let before = tail(&w, &layout);
    assert!(before > 8, "{before}");
    // The ring goes round in its next lines, which the third replica does not get.
    w.cut = [(0, 2), (2, 0)].into();
    cast(&mut w, 8);
    assert_eq!((w.seqs(Pid(1)).len(), tail(&w, &layout)), (20, before));
    w.crash(Pid(0));
    w.cut.clear();
    w.posted.clear();
    w.lines.clear();
    w.run(3000);
    assert_eq!(w.leader(0), Some(Pid(1)));
    let logs = [0, 1].map(|half| layout.log(1, half).region);
    let is_copy = |p: &(usize, usize, RegionId, u32)| {
        (p.0, p.1) == (1, 2) && logs.contains(&p.2) && p.3 >= super::super::log_region::LOG_BASE
    };
    let copied = w.posted.iter().zip(&w.lines).filter(|(p, _)| is_copy(p));
    let lines: Vec<u32> = copied.map(|(_, &lines)| lines).collect();
    let kept = 16 - before as u32;
    assert_eq!(
        lines,
        [kept + 1, 4],
        "the lines before the pad and its first one, and those behind it"
    );
}

/// The history of a term in a half of a log from which writes of an earlier term still copy: a replica that led
/// in it asks again while another log comes into force at it, which makes it take the same half once more.
#[test]
fn nobody_leads_from_a_half_that_writes_on_the_way_copy_from() {
    let (mut w, layout) = group();
    let mut late = WithheldAnswers::new(0, |t| matches!(t, TicketRequest::Log { .. }));
    assert!(w.cast(&[0], b"message"));
    late.run(&mut w, 3);
    assert!(!late.answers.is_empty());
    let oracle = |w: &mut TramWorld, at: usize, of: u32| {
        w.step(at, Input::Oracle(amcast_core::step::Oracle::Leader(Gid(0), Pid(of))));
    };
    // The second replica asks, and the first one lets it write, but hears no more of it.
    (0..3).for_each(|at| oracle(&mut w, at, 1));
    late.run(&mut w, 2);
    w.cut.push((1, 0));
    late.run(&mut w, 6);
    let second = layout.log(1, 0).region;
    assert!(installed(&w, 1, second) > 0);
    assert_eq!(installed(&w, 0, second), 0, "it has not heard that the second one leads");
    (0..3).for_each(|at| oracle(&mut w, at, 0));
    w.step(0, Input::Medium(MemoryInput::Poll));
    // That comes now, when the first one has asked in its turn.
    for line in 0..layout.log_lines as usize {
        let [from, to] = [1, 0].map(|r: usize| &w.processes[r].memory.heap.lines(second)[line]);
        to.copy(from, from.stamp());
    }
    w.cut.clear();
    late.run(&mut w, 300);
    assert_ne!(w.leader(0), Some(Pid(0)));
    let all = late.answers.len();
    late.come(&mut w, all);
    w.run(300);
    assert_eq!(w.leader(0), Some(Pid(0)));
}

#[test]
fn no_head_is_staged_over_pieces_of_another_that_are_on_the_way() {
    let (mut w, _) = group();
    for i in 0..4 {
        assert!(w.cast(&[0], &[i; 40]));
        w.run(20);
    }
    // Of those that do not lead the one with the higher rank gives state.
    let mut late = WithheldAnswers::new(2, |t| matches!(t, TicketRequest::State { .. }));
    let mut staged = None;
    for life in 1..3 {
        w.crash(Pid(1));
        late.run(&mut w, 1000);
        w.restart(Pid(1));
        late.run(&mut w, 40);
        let on_the_way = late.answers.len();
        assert_eq!(*staged.get_or_insert(on_the_way), on_the_way, "life {life}");
        assert!(on_the_way > 0);
        assert_eq!(w.processes[1].protocol.fit(), life == 1, "life {life}");
    }
    let all = late.answers.len();
    late.come(&mut w, all);
    w.run(2000);
    assert!(w.processes[1].protocol.fit(), "and then it is");
}

/// Client 0 multicasts until it is held back, or so many messages are taken.
fn cast_on(w: &mut TramWorld, late: &mut WithheldAnswers, count: usize) -> usize {
    let taken = (0..count).take_while(|_| {
        late.run(w, 10);
        w.cast(&[0], b"message")
    });
    let taken = taken.count();
    late.run(w, 50);
    taken
}

#[test]
fn a_suspected_follower_holds_up_its_group_until_writes_to_it_are_answered_and_lost_is_an_answer() {
    let (mut w, layout) = group();
    let mut late = WithheldAnswers::new(0, of_third_follower);
    // It stops: others see no heartbeat of it, and its memory is out of reach.
    w.processes[2].up = false;
    assert!(w.cast(&[0], b"message"));
    late.run(&mut w, 3000);
    assert!(!late.answers.is_empty(), "something is on its way to it");
    let lap = layout.lap_of(layout.log_lines) as usize;
    let taken = cast_on(&mut w, &mut late, 8 * lap);
    assert!(taken < 4 * lap, "lines that are on their way are not written over: {taken}");
    assert_eq!(cast_on(&mut w, &mut late, 1), 0, "the group waits, though a majority works");
    // The carrier gives it up.
    let all = late.answers.len();
    late.come(&mut w, all);
    for _ in 0..3 * lap {
        w.run(10);
        assert!(w.cast(&[0], b"message"));
    }
    w.run(50);
    let all: Vec<u64> = (1..=w.seq).collect();
    assert_eq!([w.seqs(Pid(0)), w.seqs(Pid(1))], [all.clone(), all]);
    assert!(w.processes[0].marks.contains(&"tram-leaves-behind"));
}
