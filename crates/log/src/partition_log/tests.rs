//! The log without a protocol: components are states that are given other commands.

use super::*;

type LittleLog = PartitionLog<600>;

const fn id(writer: u64, number: u64) -> AppendId {
    AppendId { writer, number }
}

const fn name(round: u64, pid: u32) -> ViewName {
    ViewName { round, incarnation: 0, coordinator: amcast_core::Pid(pid) }
}

fn run(state: &mut PartitionLogState, command: &[u8]) -> (Outcome, PartitionLogAnswer) {
    let mut answer = Vec::new();
    let view = ShardView { shard: Gid(0), now_ms: 0, data: state };
    let outcome = LittleLog::default().apply(command, &mut [view], &mut answer);
    (outcome, PartitionLogAnswer::decode(&answer).expect("an answer"))
}

fn append(state: &mut PartitionLogState, id: AppendId, value: &[u8]) -> PartitionLogAnswer {
    run(state, &PartitionLogCommand::Append { id, value }.encode()).1
}

fn add(state: &mut PartitionLogState, id: AppendId) -> LogPlace {
    match append(state, id, b"v") {
        PartitionLogAnswer::Appended(place) => place,
        other => panic!("{other:?}"),
    }
}

fn enter(state: &mut PartitionLogState, view: ViewName) {
    LittleLog::default().enter_view(state, view, 0);
}

fn ids(state: &PartitionLogState) -> Vec<AppendId> {
    state.entries().map(|entry| entry.id).collect()
}

fn merged(all: &[&PartitionLogState]) -> PartitionLogState {
    let mut first = all[0].clone();
    all[1..].iter().for_each(|other| first.merge(other));
    first
}

/// The three members of the picture in the module's head, in view `3.p0`, before they reconcile.
fn parted() -> [PartitionLogState; 2] {
    let mut alone = PartitionLogState::default();
    let (a, b, c) = (id(1, 1), id(2, 1), id(3, 1));
    for id in [a, b, c] {
        add(&mut alone, id);
    }
    let mut pair = PartitionLogState::default();
    for id in [a, b] {
        add(&mut pair, id);
    }
    enter(&mut alone, name(1, 0));
    enter(&mut pair, name(2, 2));
    add(&mut alone, id(4, 1));
    add(&mut pair, id(5, 1));
    let next = name(3, 0);
    enter(&mut alone, next);
    enter(&mut pair, next);
    [alone, pair]
}

#[test]
fn components_merge_into_one_order_by_configurations_and_say_where_each_entry_was_ordered() {
    let [alone, pair] = parted();
    let mut both = merged(&[&alone, &pair]);
    assert_eq!(add(&mut both, id(6, 1)).to_string(), "3.p0 #1");
    let lines: Vec<_> = both.entries().map(|e| format!("{} {}", e.place, e.id.writer)).collect();
    let expected = [
        "0 > 1.p0 #1 1",
        "0 > 1.p0 #2 2",
        "0 > 1.p0 #3 3",
        "1.p0 > 3.p0 #1 4",
        "2.p2 > 3.p0 #1 5",
        "3.p0 #1 6",
    ];
    assert_eq!(lines, expected);
    let counts: Vec<_> = both.configurations().iter().map(|there| there.entries).collect();
    assert_eq!(counts, [3, 1, 1, 1]);
    let open = both.configurations()[3];
    assert_eq!((open.configuration, open.next), (name(3, 0), None));
    let behind = both.place_of(id(3, 1)).expect("it is there");
    assert_eq!(both.behind(behind).map(|e| e.id.writer).collect::<Vec<_>>(), [4, 5, 6]);
}

#[test]
fn a_merge_is_the_same_in_any_order_and_changes_nothing_if_it_is_repeated() {
    let [mut alone, pair] = parted();
    alone.trim(id(1, 1), 600);
    let third = {
        // It parted from the others in the first configuration, where it had an order of its own.
        let mut state = PartitionLogState::default();
        for id in [id(2, 1), id(7, 1), id(1, 1)] {
            add(&mut state, id);
        }
        enter(&mut state, name(1, 1));
        enter(&mut state, name(3, 0));
        state
    };
    let all = [&alone, &pair, &third];
    let expected = merged(&all);
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        assert_eq!(merged(&order.map(|at| all[at])), expected, "{order:?}");
    }
    for one in all {
        assert_eq!(merged(&[&expected, one]), expected);
        assert_eq!(merged(&[one, one]), *one);
    }
    assert!(expected.was_trimmed(id(1, 1)), "also where others still had it");
    assert_eq!(ids(&expected), [2, 3, 7, 4, 5].map(|writer| id(writer, 1)));
}

#[test]
fn an_append_of_the_same_id_adds_nothing_and_takes_a_position_at_each_member_alike() {
    let [mut alone, mut pair] = parted();
    let known = add(&mut alone, id(4, 1));
    assert_eq!(known.to_string(), "1.p0 > 3.p0 #1", "it was appended there");
    // The other component does not know it, and has it in its present configuration for now.
    assert_eq!(add(&mut pair, id(4, 1)).to_string(), "3.p0 #1");
    let [one, other] = [&mut alone, &mut pair].map(|state| add(state, id(8, 1)));
    assert_eq!((one, one.position()), (other, 2));
    let both = merged(&[&pair, &alone]);
    assert_eq!(both.place_of(id(4, 1)), Some(known), "the least place counts");
    assert_eq!(both.entries().filter(|e| e.id == id(4, 1)).count(), 1);
}

#[test]
fn a_full_log_declines_appends_until_it_is_trimmed_and_trimmed_entries_stay_away() {
    let mut state = PartitionLogState::default();
    for number in 1..=3 {
        assert!(matches!(
            append(&mut state, id(1, number), &[0; 80]),
            PartitionLogAnswer::Appended(_)
        ));
    }
    let more = PartitionLogCommand::Append { id: id(1, 4), value: &[0; 80] }.encode();
    assert_eq!(run(&mut state, &more), (Outcome::NotExecuted, PartitionLogAnswer::Full));
    assert_eq!(state.bytes(), 3 * (80 + ENTRY_BYTES));
    let trim = |through| PartitionLogCommand::Trim { through }.encode();
    let removed = PartitionLogAnswer::Removed;
    assert_eq!(run(&mut state, &trim(id(9, 9))), (Outcome::Executed, removed(0)));
    assert_eq!(run(&mut state, &trim(id(1, 2))), (Outcome::Executed, removed(2)));
    assert_eq!(state.bytes(), 80 + ENTRY_BYTES + TRIMMED_RANGE_BYTES, "both ids are one range");
    assert_eq!(append(&mut state, id(1, 2), b"again"), PartitionLogAnswer::WasTrimmed);
    assert!(matches!(run(&mut state, &more).1, PartitionLogAnswer::Appended(_)));
    assert_eq!(ids(&state), [id(1, 3), id(1, 4)]);
    let malformed = (Outcome::NotExecuted, PartitionLogAnswer::Malformed);
    for bytes in [&[][..], &[0, 1, 2], &[7; 17], &[1; 18]] {
        assert_eq!(run(&mut state, bytes), malformed, "{bytes:?}");
    }
}

fn settle(state: &mut PartitionLogState, executed: u64) {
    LittleLog::default().settle(state, executed);
}

/// Appends entries of so many writers, from that one on, until the log declines them, and trims them all. Says how many it took.
fn fill_and_trim(state: &mut PartitionLogState, first: u64) -> u64 {
    let writers = first..first + 100;
    let taken = writers.take_while(|&writer| {
        matches!(append(state, id(writer, 1), b"v"), PartitionLogAnswer::Appended(_))
    });
    let taken = taken.count() as u64;
    let through = id((first + taken).saturating_sub(1), 1);
    run(state, &PartitionLogCommand::Trim { through }.encode());
    taken
}

#[test]
fn ids_of_trimmed_entries_are_forgotten_in_their_order_so_that_a_log_of_many_writers_stays_open() {
    let mut state = PartitionLogState::default();
    let mut first = 1;
    for round in 0..50 {
        let taken = fill_and_trim(&mut state, first);
        assert!(taken > 0, "round {round}: {state:?}");
        assert!(state.was_trimmed(id(first + taken - 1, 1)), "the last ones are known");
        assert!(state.bytes() <= 600, "round {round}: {}", state.bytes());
        let executed = state.executed;
        settle(&mut state, executed);
        first += taken;
    }
    assert!(!state.was_trimmed(id(1, 1)), "it is forgotten");
    // A state with ids of both kinds reads back.
    let mut bytes = Vec::new();
    state.save(&mut bytes);
    assert_eq!(PartitionLogState::load(&bytes), Some(state));
}

/// A trim forgets no more than an append: a writer may repeat one until an eighth of the bytes was trimmed after it.
#[test]
fn ids_are_known_until_their_share_was_trimmed_behind_them_however_often_is_trimmed() {
    let mut state = PartitionLogState::default();
    let add_and_trim = |state: &mut PartitionLogState, writer| {
        add(state, id(writer, 1));
        run(state, &PartitionLogCommand::Trim { through: id(writer, 1) }.encode());
    };
    (1..=3).for_each(|writer| add_and_trim(&mut state, writer));
    assert!(!state.trimmed.earlier.ranges.is_empty(), "more than the share was trimmed");
    for writer in 4..=5 {
        let executed = state.executed;
        settle(&mut state, executed);
        add_and_trim(&mut state, writer);
        for known in 1..=writer {
            let again = append(&mut state, id(known, 1), b"v");
            assert_eq!(again, PartitionLogAnswer::WasTrimmed, "{known} behind {writer}");
        }
    }
    (6..=9).for_each(|writer| add_and_trim(&mut state, writer));
    assert!(!state.was_trimmed(id(1, 1)), "more than the share was trimmed behind it");
}

#[test]
fn no_id_is_forgotten_that_another_component_may_have_and_no_merge_brings_an_entry_back() {
    // Both have the first entry, and part before one of them executes its trim.
    let mut alone = PartitionLogState::default();
    add(&mut alone, id(1, 1));
    let mut other = alone.clone();
    let mut first = 2;
    for _ in 0..50 {
        first += fill_and_trim(&mut alone, first).max(1);
    }
    assert!(alone.was_trimmed(id(1, 1)), "nothing has settled");
    assert_eq!(append(&mut alone, id(999, 1), b"v"), PartitionLogAnswer::Full);
    for state in [&mut alone, &mut other] {
        enter(state, name(1, 0));
    }
    let mut both = merged(&[&other, &alone]);
    assert_eq!((ids(&both), merged(&[&alone, &other]) == both), (vec![], true));
    // All have it now: it may be forgotten.
    settle(&mut both, 0);
    let one = append(&mut both, id(999, 1), b"v");
    assert!(matches!(one, PartitionLogAnswer::Appended(_)), "{one:?}");
    assert!(!both.was_trimmed(id(1, 1)));
    // A command that settled in one configuration says nothing in the next.
    let executed = both.executed;
    settle(&mut both, executed);
    enter(&mut both, name(2, 0));
    assert!(!both.trimmed.settled);
}

#[test]
fn a_merged_log_holds_what_its_components_held_and_takes_no_more_until_it_is_trimmed() {
    let mut states = [1, 2, 3].map(|writer| {
        let mut state = PartitionLogState::default();
        enter(&mut state, name(1, writer as u32));
        let full = PartitionLogAnswer::Full;
        let filled = (1..).find(|&n| append(&mut state, id(writer, n), &[0; 80]) == full);
        assert_eq!(filled, Some(4));
        enter(&mut state, name(2, 0));
        state
    });
    let sizes = states.each_ref().map(PartitionLogState::bytes);
    let mut all = merged(&states.each_ref());
    assert_eq!((all.bytes(), all.bytes() > 600), (sizes.iter().sum(), true));
    assert!(all.bytes() <= 3 * 600, "as much for each process, at most");
    // Parted again, none of the components adds to it.
    for state in [&mut all, &mut states[0]] {
        assert_eq!(append(state, id(9, 9), b""), PartitionLogAnswer::Full);
    }
    let [.., last] = all.entries().map(|e| e.id).collect::<Vec<_>>()[..] else { panic!("{all:?}") };
    run(&mut all, &PartitionLogCommand::Trim { through: last }.encode());
    assert!(matches!(append(&mut all, id(9, 9), b""), PartitionLogAnswer::Appended(_)));
}

#[test]
fn a_merge_of_logs_that_trimmed_ids_fill_takes_appends_again_once_their_trims_have_settled() {
    let states = [1, 2].map(|component| {
        let mut state = PartitionLogState::default();
        enter(&mut state, name(1, component));
        let mut first = u64::from(component) * 1_000;
        while append(&mut state, id(first, 1), b"v") != PartitionLogAnswer::Full {
            run(&mut state, &PartitionLogCommand::Trim { through: id(first, 1) }.encode());
            first += 1;
        }
        enter(&mut state, name(2, 0));
        state
    });
    let mut both = merged(&states.each_ref());
    assert!(both.trimmed.recent.bytes() > 600, "more than a log may hold: {both:?}");
    // The earlier ones go first, and leave no room yet. The recent ones follow them, though none came after them.
    for expected in [false, true] {
        assert_eq!(append(&mut both, id(1, 1), b"v"), PartitionLogAnswer::Full, "not settled");
        let executed = both.executed;
        settle(&mut both, executed);
        let answer = append(&mut both, id(1, 1), b"v");
        assert_eq!(matches!(answer, PartitionLogAnswer::Appended(_)), expected, "{answer:?}");
    }
    assert!(both.bytes() <= 600, "{}", both.bytes());
}

#[test]
fn a_state_reads_back_and_no_shortened_one_is_taken_for_it() {
    let [mut alone, pair] = parted();
    alone.trim(id(2, 1), 600);
    let state = merged(&[&alone, &pair]);
    let mut bytes = Vec::new();
    state.save(&mut bytes);
    assert_eq!(PartitionLogState::load(&bytes), Some(state.clone()));
    for cut in 0..bytes.len() {
        assert_ne!(PartitionLogState::load(&bytes[..cut]), Some(state.clone()));
    }
    let answers = [
        PartitionLogAnswer::Appended(state.place_of(id(5, 1)).expect("it is there")),
        PartitionLogAnswer::WasTrimmed,
        PartitionLogAnswer::Removed(7),
        PartitionLogAnswer::Full,
        PartitionLogAnswer::Malformed,
    ];
    for answer in answers {
        let bytes = answer.encode();
        assert_eq!(PartitionLogAnswer::decode(&bytes), Some(answer));
        assert_eq!(PartitionLogAnswer::decode(&bytes[1..]).filter(|a| *a == answer), None);
    }
}

#[test]
fn ranges_of_ids_join_where_they_touch() {
    let mut ranges = IdRanges::default();
    for number in [5, 1, 3, 9, u64::MAX] {
        ranges.insert(7, number, number);
    }
    ranges.insert(8, 2, 2);
    assert_eq!(ranges.ranges.len(), 6);
    ranges.insert(7, 2, 4);
    assert_eq!(ranges.ranges.get(&(7, 1)), Some(&5));
    assert_eq!(ranges.ranges.len(), 4);
    ranges.insert(7, 0, u64::MAX);
    assert_eq!(ranges.ranges.iter().collect::<Vec<_>>(), [(&(7, 0), &u64::MAX), (&(8, 2), &2)]);
    assert!(ranges.has(id(7, 6)) && !ranges.has(id(8, 1)) && !ranges.has(id(6, 6)));
    assert!(!ranges.has(id(8, 3)) && !ranges.has(id(9, 2)));
}
