//! The laws that the memory keeps, and its freedoms beside them.

use super::*;
use amcast_core::memory::{LineRange, LineStamp};

const OWNER: Pid = Pid(0);
const WRITER: Pid = Pid(1);
const PLAIN: RegionId = RegionId(0);
const GUARDED: RegionId = RegionId(1);
const STAGING: RegionId = RegionId(0);
const STAMP: LineStamp = LineStamp::new(1, 0);

fn ram(model: RamModel) -> Ram {
    let spec = |name, writer, guarded| RegionSpec { name, lines: 8, writer, guarded };
    let owner = alloc::vec![spec("plain", WRITER, false), spec("guarded", WRITER, true)];
    Ram::new(alloc::vec![owner, alloc::vec![spec("staging", WRITER, false)]], model)
}

/// Everything is split, and nothing takes the same time twice.
fn wild() -> RamModel {
    RamModel {
        write: Delay::Uniform(Span(10), Span(50)),
        answer: Delay::Uniform(Span(1), Span(50)),
        read: Delay::Uniform(Span(10), Span(50)),
        split_ppm: 800_000,
        split: Delay::Uniform(Span(1), Span(30)),
        early_ppm: 500_000,
        denied_lands_ppm: 700_000,
        denied_late_ppm: 500_000,
        denied_late: Delay::Uniform(Span(1), Span(500)),
        lost: Delay::Uniform(Span(1), Span(90)),
        fresh: Delay::Uniform(Span(1), Span(90)),
        order: WriteOrder::PerRegion,
        ..RamModel::constant(Span(10), Span(1), Span(1))
    }
}

fn words(i: u64) -> [u64; LINE_WORDS] {
    [i + 1; LINE_WORDS]
}

fn write(region: RegionId, at: u32) -> MemoryOutput {
    let source = WriteSource::line(words(u64::from(at)), STAMP);
    let ticket = Some(Ticket(u64::from(at)));
    MemoryOutput::Write { to: OWNER, region, at, source, ticket, bell: true }
}

/// The state of line `i` of a region: not there, in part, or whole. Panics if it has its stamp
/// and is not whole.
fn state(ram: &Ram, region: RegionId, i: u32) -> u8 {
    let line = &ram.window(OWNER).region(region)[i as usize];
    if line.stamp() == STAMP {
        assert_eq!(line.words(), words(u64::from(i)), "a stamp vouches for its line");
        return 2;
    }
    u8::from(line.words() != [0; LINE_WORDS])
}

fn answers(ram: &mut Ram) -> Vec<(Ticket, OwnedOutcome)> {
    let happened = core::iter::from_fn(|| ram.take());
    let done = happened.filter_map(|h| match h {
        MemoryOccurrence::Done { ticket, answer, .. } => Some((ticket, answer)),
        _ => None,
    });
    done.collect()
}

#[test]
fn a_torn_line_is_seen_and_lines_come_in_order() {
    let mut torn = 0;
    for seed in 0..100 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(wild()));
        for at in 0..4 {
            ram.post(Time::ZERO, WRITER, &write(PLAIN, at), &mut chooser);
        }
        while ram.next() < Time::NEVER {
            ram.step(&mut chooser);
            let states: Vec<u8> = (0..4).map(|i| state(&ram, PLAIN, i)).collect();
            assert!(states.is_sorted_by(|a, b| a >= b), "{states:?}");
            torn += u32::from(states.contains(&1));
        }
        let answered = answers(&mut ram);
        let tickets: Vec<u64> = answered.iter().map(|(t, _)| t.0).collect();
        assert_eq!(tickets, [0, 1, 2, 3], "answers keep the order of posting");
        assert!(answered.iter().all(|(_, a)| *a == OwnedOutcome::Written));
    }
    assert!(torn > 100, "{torn}");
}

#[test]
fn a_writer_that_dies_leaves_a_torn_line_and_nothing_behind_it() {
    let (mut torn, mut cut) = (0, 0);
    for seed in 0..200 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(wild()));
        for at in 0..3 {
            ram.post(Time::ZERO, WRITER, &write(PLAIN, at), &mut chooser);
        }
        ram.step(&mut chooser);
        ram.crash(WRITER, &mut chooser);
        ram.advance(Time(1_000_000), &mut chooser);
        let states: Vec<u8> = (0..3).map(|i| state(&ram, PLAIN, i)).collect();
        assert!(states.is_sorted_by(|a, b| a >= b), "{states:?}");
        torn += u32::from(states.contains(&1));
        cut += u32::from(states.contains(&0));
        assert_eq!(answers(&mut ram), [], "the dead hear nothing");
    }
    assert!(torn > 10 && cut > 50, "{torn} {cut}");
}

#[test]
fn what_is_revoked_is_denied_and_seen_all_the_same_by_chance() {
    let (mut seen, mut later, mut gone) = (0, 0, 0);
    for seed in 0..300 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(wild()));
        ram.post(Time::ZERO, OWNER, &MemoryOutput::Allow(GUARDED), &mut chooser);
        for at in 0..4 {
            ram.post(Time::ZERO, WRITER, &write(GUARDED, at), &mut chooser);
        }
        let stop = Time(10 + chooser.pick(Concern::Faults, 80));
        ram.advance(stop, &mut chooser);
        let before = answers(&mut ram);
        ram.post(stop, OWNER, &MemoryOutput::Revoke(GUARDED), &mut chooser);
        let there: Vec<bool> = (0..4).map(|i| state(&ram, GUARDED, i) == 2).collect();
        for (ticket, answer) in &before {
            assert_eq!(*answer, OwnedOutcome::Written);
            assert!(there[ticket.0 as usize], "law 3: written, and missed after revocation");
        }
        let mut denied = Vec::new();
        while ram.next() < Time::NEVER {
            ram.step(&mut chooser);
            let states: Vec<u8> = (0..4).map(|i| state(&ram, GUARDED, i)).collect();
            assert!(states.is_sorted_by(|a, b| a >= b), "law 2, no gaps: {states:?}");
            for (ticket, answer) in answers(&mut ram) {
                assert_eq!(answer, OwnedOutcome::Denied, "law 4");
                later += u32::from(states[ticket.0 as usize] != 2);
                denied.push(ticket.0 as u32);
            }
        }
        assert_eq!(before.len() + denied.len(), 4);
        let (there_now, not): (Vec<u32>, Vec<u32>) =
            denied.into_iter().partition(|&i| state(&ram, GUARDED, i) == 2);
        seen += there_now.len();
        gone += not.len();
        later -= not.len() as u32;
    }
    assert!(seen > 100 && gone > 100 && later > 20, "{seen} {gone} {later}");
}

#[test]
fn a_guarded_region_starts_revoked_and_opens() {
    let model = RamModel { denied_lands_ppm: 0, ..wild() };
    let (mut chooser, mut ram) = (Chooser::seeded(1), ram(model));
    ram.post(Time::ZERO, WRITER, &write(GUARDED, 0), &mut chooser);
    ram.advance(Time(1000), &mut chooser);
    assert_eq!(answers(&mut ram), [(Ticket(0), OwnedOutcome::Denied)]);
    assert_eq!(state(&ram, GUARDED, 0), 0);
    ram.post(Time(1000), OWNER, &MemoryOutput::Allow(GUARDED), &mut chooser);
    ram.post(Time(1000), WRITER, &write(GUARDED, 1), &mut chooser);
    ram.advance(Time(2000), &mut chooser);
    assert_eq!(answers(&mut ram), [(Ticket(1), OwnedOutcome::Written)]);
    assert_eq!(state(&ram, GUARDED, 1), 2);
}

#[test]
fn a_crash_zeroes_memory_and_what_was_not_told_of_it_is_lost() {
    for seed in 0..50 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(wild()));
        ram.post(Time::ZERO, WRITER, &write(PLAIN, 0), &mut chooser);
        ram.advance(Time(1000), &mut chooser);
        assert_eq!(answers(&mut ram), [(Ticket(0), OwnedOutcome::Written)]);
        ram.post(Time(1000), WRITER, &write(PLAIN, 1), &mut chooser);
        ram.crash(OWNER, &mut chooser);
        ram.start(Time(1001), OWNER, &mut chooser);
        assert!((0..8).all(|i| state(&ram, PLAIN, i) == 0));
        ram.post(Time(1002), WRITER, &write(PLAIN, 2), &mut chooser);
        let read =
            MemoryOutput::Read { of: OWNER, region: PLAIN, at: 0, count: 2, ticket: Ticket(9) };
        ram.post(Time(1002), WRITER, &read, &mut chooser);
        ram.advance(Time(5000), &mut chooser);
        let happened: Vec<MemoryOccurrence> = core::iter::from_fn(|| ram.take()).collect();
        let fresh = MemoryOccurrence::Fresh { to: WRITER, of: OWNER, life: 1 };
        assert_eq!(happened.iter().filter(|h| **h == fresh).count(), 1);
        let lost = |t| MemoryOccurrence::Done {
            to: WRITER,
            ticket: Ticket(t),
            answer: OwnedOutcome::Lost,
        };
        for ticket in [1, 2, 9] {
            assert!(happened.contains(&lost(ticket)), "{ticket}: {happened:?}");
        }
        assert!((0..8).all(|i| state(&ram, PLAIN, i) == 0));
        ram.take_notice(WRITER, OWNER, 1);
        ram.post(Time(5000), WRITER, &write(PLAIN, 3), &mut chooser);
        ram.advance(Time(9000), &mut chooser);
        assert_eq!(answers(&mut ram), [(Ticket(3), OwnedOutcome::Written)]);
    }
}

#[test]
fn a_source_is_read_some_time_before_the_answer() {
    let mut changed = [0, 0];
    for seed in 0..100 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(wild()));
        ram.window(WRITER).region(STAGING)[0].put(&words(0), STAMP);
        let source = WriteSource::Copy(LineRange { region: STAGING, at: 0, count: 1 });
        let out = MemoryOutput::Write {
            to: OWNER,
            region: PLAIN,
            at: 0,
            source,
            ticket: None,
            bell: false,
        };
        ram.post(Time::ZERO, WRITER, &out, &mut chooser);
        ram.window(WRITER).region(STAGING)[0].put(&words(7), STAMP);
        ram.advance(Time(1000), &mut chooser);
        let found = ram.window(OWNER).region(PLAIN)[0].words();
        changed[usize::from(found != words(0))] += 1;
    }
    assert!(changed.iter().all(|&n| n > 20), "{changed:?}");
}

#[test]
fn a_read_may_come_between_the_lines_of_a_write() {
    let mut between = 0;
    for seed in 0..200 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(wild()));
        let rest = LineRange { region: STAGING, at: 0, count: 3 };
        let source = WriteSource::Made { head: words(0), stamp: STAMP, rest };
        let out = MemoryOutput::Write {
            to: OWNER,
            region: PLAIN,
            at: 0,
            source,
            ticket: None,
            bell: false,
        };
        ram.post(Time::ZERO, WRITER, &out, &mut chooser);
        let read =
            MemoryOutput::Read { of: OWNER, region: PLAIN, at: 0, count: 4, ticket: Ticket(1) };
        ram.post(Time::ZERO, WRITER, &read, &mut chooser);
        ram.advance(Time(1000), &mut chooser);
        let answered = answers(&mut ram);
        let [(_, OwnedOutcome::Words(lines))] = &answered[..] else { panic!("{answered:?}") };
        let stamped = lines.iter().filter(|line| line[LINE_WORDS] == STAMP.0).count();
        between += u32::from((1..4).contains(&stamped));
    }
    assert!(between > 10, "{between}");
}

#[test]
fn posting_takes_time_once_a_batch() {
    let model = RamModel::constant(Span(1000), Span(100), Span(10));
    let (mut chooser, mut ram) = (Chooser::seeded(0), ram(model));
    for at in 0..3 {
        ram.post(Time::ZERO, WRITER, &write(PLAIN, at), &mut chooser);
    }
    let mut times = Vec::new();
    while ram.next() < Time::NEVER {
        let now = ram.next();
        ram.step(&mut chooser);
        times.extend(answers(&mut ram).iter().map(|_| now.0));
    }
    assert_eq!(times, [1100, 1110, 1120]);
}

#[test]
#[should_panic(expected = "are not in")]
fn writing_past_the_end_is_a_bug_of_the_protocol() {
    let (mut chooser, mut ram) = (Chooser::seeded(0), ram(wild()));
    ram.post(Time::ZERO, WRITER, &write(PLAIN, 8), &mut chooser);
}

#[test]
fn a_writer_that_died_before_it_took_notice_of_a_fresh_start_reaches_the_new_memory() {
    let (mut chooser, mut ram) = (Chooser::seeded(1), ram(wild()));
    ram.crash(OWNER, &mut chooser);
    ram.start(Time(1), OWNER, &mut chooser);
    ram.advance(Time(1000), &mut chooser);
    let fresh = MemoryOccurrence::Fresh { to: WRITER, of: OWNER, life: 1 };
    assert_eq!(ram.take(), Some(fresh), "said, and not taken notice of");
    ram.crash(WRITER, &mut chooser);
    ram.start(Time(1001), WRITER, &mut chooser);
    ram.post(Time(1002), WRITER, &write(PLAIN, 0), &mut chooser);
    ram.advance(Time(5000), &mut chooser);
    assert_eq!(answers(&mut ram), [(Ticket(0), OwnedOutcome::Written)]);
    assert_eq!(state(&ram, PLAIN, 0), 2);
    // It learns of a life that begins after its own start as ever.
    ram.crash(OWNER, &mut chooser);
    ram.crash(WRITER, &mut chooser);
    ram.start(Time(5000), WRITER, &mut chooser);
    ram.start(Time(5001), OWNER, &mut chooser);
    ram.post(Time(5002), WRITER, &write(PLAIN, 1), &mut chooser);
    ram.advance(Time(9000), &mut chooser);
    assert_eq!(answers(&mut ram), [(Ticket(1), OwnedOutcome::Lost)]);
}

/// Every step has something in its middle, at the first borrow or later.
#[test]
fn lines_occupy_the_port_and_posting_the_writer() {
    let mut model = RamModel::constant(Span(1000), Span(100), Span(5));
    model.line_ps = 10_500;
    let (mut chooser, mut ram) = (Chooser::seeded(0), ram(model));
    ram.occupy(WRITER, Time(50));
    for at in 0..2 {
        ram.post(Time::ZERO, WRITER, &write(PLAIN, at), &mut chooser);
    }
    // It begins to post when it is free, and the port has its lines after that.
    assert_eq!(ram.busy_until(WRITER), Time(155));
    let mut times = Vec::new();
    while ram.next() < Time::NEVER {
        let now = ram.next();
        ram.step(&mut chooser);
        times.extend(answers(&mut ram).iter().map(|_| now.0));
    }
    // Two lines take 21 ns, the second one behind the first.
    assert_eq!(times, [1160, 1171]);
}

fn restless() -> RamModel {
    RamModel { midst_ppm: 1_000_000, midst: Span(100), ..wild() }
}

#[test]
fn stores_of_others_land_between_two_borrows_of_a_step_once_and_in_order() {
    let (mut between, mut torn) = (0, 0);
    for seed in 0..300 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(restless()));
        for at in 0..3 {
            ram.post(Time::ZERO, WRITER, &write(PLAIN, at), &mut chooser);
        }
        let Some(midst) = ram.midst(Time::ZERO, OWNER, &mut chooser) else { continue };
        let states = || -> Vec<u8> { (0..3).map(|i| state(&ram, PLAIN, i)).collect() };
        let shared = ram.shared(OWNER, &midst);
        assert_eq!(states(), [0, 0, 0]);
        for _ in 0..30 {
            let before = states();
            shared.lines(PLAIN);
            let after = states();
            assert!(after.is_sorted_by(|a, b| a >= b), "{after:?}");
            between += u32::from(before != after);
            torn += u32::from(after.contains(&1));
        }
        ram.after_midst(OWNER, midst);
        ram.advance(Time(1_000_000), &mut chooser);
        assert!((0..3).all(|i| state(&ram, PLAIN, i) == 2));
        let answered = answers(&mut ram);
        assert!(answered.len() == 3 && answered.iter().all(|(_, a)| *a == OwnedOutcome::Written));
    }
    assert!(between > 300 && torn > 100, "{between} {torn}");
}

#[test]
fn a_read_finds_what_the_owner_stored_before_some_borrow_and_nothing_after_it() {
    let mut found = [0; 3];
    for seed in 0..300 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(restless()));
        let read =
            MemoryOutput::Read { of: OWNER, region: PLAIN, at: 0, count: 2, ticket: Ticket(9) };
        ram.post(Time::ZERO, WRITER, &read, &mut chooser);
        let Some(midst) = ram.midst(Time::ZERO, OWNER, &mut chooser) else { continue };
        let shared = ram.shared(OWNER, &midst);
        for at in 0..2 {
            shared.lines(PLAIN)[at].put(&words(at as u64), STAMP);
        }
        ram.after_midst(OWNER, midst);
        ram.advance(Time(1_000_000), &mut chooser);
        let answered = answers(&mut ram);
        let [(_, OwnedOutcome::Words(lines))] = &answered[..] else { panic!("{answered:?}") };
        let there = |line: &RawLine| line[LINE_WORDS] == STAMP.0;
        found[lines.iter().filter(|line| there(line)).count()] += 1;
    }
    assert!(found.iter().all(|&n| n > 0), "{found:?}");
}

#[test]
fn what_was_denied_lands_in_the_middle_of_a_step_in_order_if_it_lands() {
    let mut between = 0;
    for seed in 0..300 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(restless()));
        ram.post(Time::ZERO, OWNER, &MemoryOutput::Allow(GUARDED), &mut chooser);
        for at in 0..3 {
            ram.post(Time::ZERO, WRITER, &write(GUARDED, at), &mut chooser);
        }
        ram.post(Time::ZERO, OWNER, &MemoryOutput::Revoke(GUARDED), &mut chooser);
        let Some(midst) = ram.midst(Time::ZERO, OWNER, &mut chooser) else { continue };
        let shared = ram.shared(OWNER, &midst);
        for _ in 0..30 {
            let states = || -> Vec<u8> { (0..3).map(|i| state(&ram, GUARDED, i)).collect() };
            let before = states();
            shared.lines(GUARDED);
            assert!(states().is_sorted_by(|a, b| a >= b), "{:?}", states());
            between += u32::from(before != states());
        }
        ram.after_midst(OWNER, midst);
        ram.advance(Time(1_000_000), &mut chooser);
        assert!(answers(&mut ram).iter().all(|(_, a)| *a == OwnedOutcome::Denied));
    }
    assert!(between > 100, "{between}");
}

#[test]
fn nothing_lands_in_a_region_that_is_shut_in_the_middle_of_a_step() {
    for seed in 0..100 {
        let (mut chooser, mut ram) = (Chooser::seeded(seed), ram(restless()));
        ram.post(Time::ZERO, WRITER, &write(GUARDED, 0), &mut chooser);
        assert!(ram.midst(Time::ZERO, OWNER, &mut chooser).is_none());
    }
}

#[test]
fn who_started_after_another_is_not_told_of_it() {
    let (mut chooser, mut ram) = (Chooser::seeded(1), ram(wild()));
    ram.crash(OWNER, &mut chooser);
    ram.crash(WRITER, &mut chooser);
    ram.start(Time(1), OWNER, &mut chooser);
    // Its start is still to be reported when the other one starts, and finds it as it is.
    ram.start(Time(2), WRITER, &mut chooser);
    ram.advance(Time(1000), &mut chooser);
    let told: Vec<MemoryOccurrence> = core::iter::from_fn(|| ram.take()).collect();
    assert_eq!(told, [MemoryOccurrence::Fresh { to: OWNER, of: WRITER, life: 1 }]);
    ram.post(Time(1001), WRITER, &write(PLAIN, 0), &mut chooser);
    ram.advance(Time(5000), &mut chooser);
    assert_eq!(answers(&mut ram), [(Ticket(0), OwnedOutcome::Written)]);
}

/// A process that starts is out of the other's reach at first, and so is one that is partitioned at once.
fn far() -> RamModel {
    RamModel {
        unreached_ppm: 1_000_000,
        unreached: Delay::Constant(Span(300)),
        split_ppm: 0,
        ..wild()
    }
}

#[test]
fn writes_out_of_reach_are_lost_without_a_trace_until_their_writer_is_told() {
    for cut in [false, true] {
        let (mut chooser, mut ram) = (Chooser::seeded(1), ram(far()));
        if !cut {
            ram.begin(Time::ZERO, &mut chooser);
        }
        ram.post(Time::ZERO, WRITER, &write(PLAIN, 0), &mut chooser);
        if cut {
            ram.cut(WRITER, OWNER, Time(300), &mut chooser);
        }
        ram.post(Time(299), WRITER, &write(PLAIN, 1), &mut chooser);
        ram.advance(Time(2000), &mut chooser);
        // It is notified, and takes no notice yet.
        let happened: Vec<MemoryOccurrence> = core::iter::from_fn(|| ram.take()).collect();
        let fresh = MemoryOccurrence::Fresh { to: WRITER, of: OWNER, life: 0 };
        assert!(happened.contains(&fresh), "{happened:?}");
        let lost = |h: &&MemoryOccurrence| {
            matches!(h, MemoryOccurrence::Done { answer: OwnedOutcome::Lost, .. })
        };
        assert_eq!(happened.iter().filter(lost).count(), 2, "{happened:?}");
        ram.post(Time(2000), WRITER, &write(PLAIN, 2), &mut chooser);
        ram.advance(Time(3000), &mut chooser);
        assert_eq!(answers(&mut ram), [(Ticket(2), OwnedOutcome::Lost)]);
        ram.take_notice(WRITER, OWNER, 0);
        ram.post(Time(3000), WRITER, &write(PLAIN, 3), &mut chooser);
        ram.advance(Time(4000), &mut chooser);
        assert_eq!(answers(&mut ram), [(Ticket(3), OwnedOutcome::Written)]);
        let states: Vec<u8> = (0..4).map(|i| state(&ram, PLAIN, i)).collect();
        assert_eq!((states, ram.unreached() > 0), (alloc::vec![0, 0, 0, 2], true));
    }
}

#[test]
fn what_is_cut_off_lands_where_something_has_appeared_before() {
    let (mut chooser, mut ram) = (Chooser::seeded(1), ram(far()));
    ram.post(Time::ZERO, WRITER, &write(PLAIN, 0), &mut chooser);
    ram.advance(Time(500), &mut chooser);
    ram.post(Time(500), WRITER, &write(PLAIN, 1), &mut chooser);
    ram.cut(WRITER, OWNER, Time(900), &mut chooser);
    ram.advance(Time(2000), &mut chooser);
    assert_eq!(
        answers(&mut ram),
        [(Ticket(0), OwnedOutcome::Written), (Ticket(1), OwnedOutcome::Lost)]
    );
    assert_eq!((state(&ram, PLAIN, 0), state(&ram, PLAIN, 1)), (2, 2));
}
