//! A log that was cut short is found, with any rest, and no other log is taken for one.

use super::*;
use crate::batch::RecordBatch;
use crate::disk::fake::{FakeDisk, Faults};
use crate::error::Flaw;
use crate::format::segment::RECORDS_AT;
use crate::format::{BootId, LogOwnerId};
use crate::machine::BootIdentity;
use crate::offline::{cut_of, inspection_of};
use crate::store::SegmentStore;
use amcast_core::rng::Rng;
use amcast_core::step::Ticket;

const SEGMENT_BYTES: u64 = RECORDS_AT + 2048;

/// Opens the log; gives how many records are there.
fn open(disk: &FakeDisk, boot: u128) -> Result<(SegmentStore<FakeDisk>, usize), StorageError> {
    let machine = BootIdentity { boot: BootId(boot), fresh: LogId(7), owner: LogOwnerId::UNKNOWN };
    let mut count = 0;
    let mut each = |_: u64, _: &[u8]| count += 1;
    let (store, _) = SegmentStore::open(disk.clone(), SEGMENT_BYTES, 2, &machine, &mut each)?;
    Ok((store, count))
}

fn write(store: &mut SegmentStore<FakeDisk>, count: usize) {
    for n in 0..count {
        let mut batch = RecordBatch::default();
        batch.push(Ticket(0), &vec![n as u8 + 1; 40 + n % 30], true);
        store.write(&mut batch).expect("it works");
        store.sync().expect("it works");
    }
}

/// A log of three segments with 50 records, which were synced, and after which the log wrote no mark.
fn filled() -> FakeDisk {
    let disk = FakeDisk::new();
    write(&mut open(&disk, 1).expect("it opens").0, 50);
    disk
}

fn segments(disk: &FakeDisk) -> Vec<String> {
    let mut names = disk.names().expect("it works");
    names.retain(|name| name.ends_with(".segment"));
    names
}

/// The error of a start with a damaged log; an inspection says the same, and a repair leaves a log that opens.
fn judged(disk: &FakeDisk) -> Option<Flaw> {
    let inspection = inspection_of(disk, None, &mut |_| {}).expect("it can be read");
    let damage = match open(&disk.copy(), 2) {
        Ok((_, count)) => {
            assert_eq!(count, 50, "synced records are gone without a word");
            assert!(inspection.is_sound(), "{inspection:?}");
            return None;
        }
        Err(StorageError::Damaged(damage)) => damage,
        Err(e) => panic!("{e}"),
    };
    assert_eq!(inspection.damage.as_ref(), Some(&damage));
    if inspection.is_cut_short() {
        let cut = cut_of(disk, |_| true).expect("it works").expect("it was damaged");
        assert_eq!((cut.from, cut.whole), (damage.number, 0));
        assert_eq!(open(disk, 2).expect("it was cut").1 as u64, damage.number);
        assert_eq!(open(disk, 2).expect("it opens again").1 as u64, damage.number);
    }
    Some(damage.what)
}

#[test]
fn a_log_whose_end_is_zeroed_is_cut_short_wherever_that_begins() {
    let whole = filled();
    let names = segments(&whole);
    let last = names.last().expect("there are some");
    let end =
        whole.read(last).expect("it is there").iter().rposition(|&b| b != 0).expect("a record");
    for closed in [false, true] {
        let disk = whole.copy();
        if closed {
            open(&disk, 1).expect("it opens").0.close().expect("it works");
        }
        for at in RECORDS_AT as usize..=end {
            let copy = disk.copy();
            copy.change(last, |bytes| bytes[at..].fill(0));
            assert_eq!(judged(&copy), Some(Flaw::End), "zeros from {at} to {end}");
        }
    }
    assert_eq!(judged(&whole), None);
    // Only what follows the records is gone: nothing that anybody counts on.
    open(&whole, 1).expect("it opens").0.close().expect("it works");
    whole.change(last, |bytes| bytes[(end + 1).next_multiple_of(8)..].fill(0));
    assert_eq!(judged(&whole), None);
}

#[test]
fn a_file_that_is_shorter_than_it_was_made_is_damage_also_where_all_records_are_left() {
    let whole = filled();
    for name in segments(&whole) {
        let made = whole.read(&name).expect("it is there").len();
        for length in (64..made).step_by(40) {
            let copy = whole.copy();
            copy.change(&name, |bytes| bytes.truncate(length));
            let flaw = judged(&copy);
            assert_eq!(flaw, Some(Flaw::Length), "{length} bytes are left of {made} of {name}");
            let kept = copy.names().expect("it works");
            let is_last = Some(&name) == segments(&whole).last();
            assert_eq!(kept.iter().any(|name| name.ends_with(".short.cut")), is_last, "{kept:?}");
        }
    }
}

#[test]
fn one_whole_place_says_enough_and_none_is_no_proof() {
    let whole = filled();
    let last = segments(&whole).pop().expect("there are some");
    let cut = |disk: &FakeDisk| {
        disk.change(&last, |bytes| bytes[RECORDS_AT as usize + 10..].fill(0));
    };
    let spoil = |disk: &FakeDisk, place: usize| {
        disk.change(NAME, |bytes| bytes[place * PLACE_BYTES + 33] ^= 1);
    };
    // Also those that are synced, when the log was closed.
    open(&whole, 1).expect("it opens").0.close().expect("it works");
    for place in 0..PLACES {
        let copy = whole.copy();
        spoil(&copy, place);
        assert_eq!(judged(&copy), None);
        cut(&copy);
        assert_eq!(judged(&copy), Some(Flaw::End), "place {place} is spoilt");
    }
    let (spoilt, gone) = (whole.copy(), whole.copy());
    (0..PLACES).for_each(|place| spoil(&spoilt, place));
    gone.remove(NAME).expect("it works");
    for disk in [spoilt, gone] {
        match open(&disk, 2) {
            Err(e @ (StorageError::Misfit { .. } | StorageError::Missing { .. })) => {
                assert!(e.to_string().contains(NAME), "{e}");
            }
            other => panic!("{:?}", other.map(|(_, count)| count)),
        }
        let inspection = inspection_of(&disk, None, &mut |_| {}).expect("it can be read");
        assert!(!inspection.is_sound() && inspection.is_cut_short() && inspection.end.is_some());
        assert!(cut_of(&disk, |_| true).expect("it works").is_some());
        assert_eq!(open(&disk, 2).expect("it was mended").1, 50);
    }
}

#[test]
fn a_log_of_a_version_that_kept_no_end_opens_and_keeps_one_from_then_on() {
    let disk = filled();
    disk.remove(NAME).expect("it works");
    let state = crate::store::read_state(&disk).expect("it can be read").expect("it is there");
    disk.change("state", |bytes| {
        *bytes = LogState { keeps_end: false, ..state }.encode().to_vec();
    });
    assert_eq!(open(&disk, 1).expect("it opens").1, 50);
    let last = segments(&disk).pop().expect("there are some");
    disk.change(&last, |bytes| bytes[RECORDS_AT as usize + 10..].fill(0));
    assert_eq!(judged(&disk), Some(Flaw::End));
}

#[test]
fn what_was_settled_survives_the_machine_and_nothing_more_is_claimed() {
    for seed in 0..200 {
        let disk = FakeDisk::new();
        let mut store = open(&disk, 1).expect("it opens").0;
        let mut rng = Rng::stream(seed, "settled");
        let (mut synced, mut settled) = (0, 0);
        for _ in 0..rng.below(12) {
            let count = 1 + rng.below(4);
            write(&mut store, count as usize);
            synced += count;
            if rng.below(2) == 0 {
                store.end().settle().expect("it works");
                settled = synced;
            }
        }
        disk.fail_machine(&mut rng);
        let end = read(&disk, LogId(7), true).expect("it can be read").expect("it is there");
        let end = end.end;
        assert!((settled..=synced).contains(&end), "{end} is not in {settled}..={synced}");
    }
}

#[test]
fn a_change_of_the_end_writes_one_place_and_syncs_only_when_it_is_settled() {
    let disk = FakeDisk::new();
    let mut store = open(&disk, 1).expect("it opens").0;
    let before = disk.syncs();
    write(&mut store, 5);
    assert_eq!(disk.syncs() - before, 5, "no sync but those of the log");
    store.end().settle().expect("it works");
    store.end().settle().expect("it works");
    assert_eq!(disk.syncs() - before, 6, "what has not moved is not written again");
    let places = || {
        let places = synced::places(&disk.read(NAME).expect("it is there"), LogId(7));
        places.map(|range| range.map(|range| range.end))
    };
    let first = places();
    write(&mut store, 1);
    assert_eq!(places(), [Some(6), first[1], first[2]]);
    store.end().settle().expect("it works");
    let second = places();
    assert_eq!([second[1].max(second[2]), second[1].min(second[2])], [Some(6), Some(5)]);
}

/// Has every place of the file say what `change` makes of it.
fn rewrite(disk: &FakeDisk, change: impl Fn(SyncedRange) -> SyncedRange) {
    disk.change(NAME, |bytes| {
        for (i, range) in synced::places(bytes, LogId(7)).into_iter().enumerate() {
            let head = synced::encode(LogId(7), change(range.expect("it is whole")));
            bytes[i * PLACE_BYTES..][..head.len()].copy_from_slice(&head);
        }
    });
}

/// The log lost its first segments, up to the one with record `first`, and segments before `trimmed` were given up:
/// a start and an inspection say so, and a repair leaves a log that has the rest.
fn lost_its_front(disk: &FakeDisk, trimmed: u64, first: u64) {
    let damage = match open(&disk.copy(), 2) {
        Err(StorageError::Damaged(damage)) => damage,
        other => panic!("{:?}", other.map(|(_, count)| count)),
    };
    assert_eq!((damage.what, damage.number), (Flaw::Front, trimmed));
    let inspection = inspection_of(disk, None, &mut |_| {}).expect("it can be read");
    assert_eq!(inspection.front.as_ref(), Some(&damage));
    assert!(!inspection.is_sound() && inspection.is_cut_short(), "{inspection:?}");
    let cut = cut_of(disk, |_| true).expect("it works").expect("it was damaged");
    assert_eq!((cut.from, cut.whole), (50, 0));
    for boot in [2, 3] {
        assert_eq!(open(disk, boot).expect("it was mended").1 as u64, 50 - first);
        assert!(inspection_of(disk, None, &mut |_| {}).expect("it can be read").is_sound());
    }
}

#[test]
fn a_log_whose_first_segments_are_missing_is_damaged_unless_they_were_trimmed() {
    let whole = filled();
    let names = segments(&whole);
    let firsts: Vec<u64> =
        names.iter().filter_map(|name| crate::format::segment::first_of(name)).collect();
    assert!(firsts.len() > 2, "{firsts:?}");
    for lost in 1..firsts.len() {
        let disk = whole.copy();
        names[..lost].iter().for_each(|name| disk.remove(name).expect("it works"));
        lost_its_front(&disk, 0, firsts[lost]);
    }
    let trimmed = whole.copy();
    open(&trimmed, 1).expect("it opens").0.trim(firsts[1]).expect("it works");
    assert_eq!(open(&trimmed, 1).expect("nothing is missing").1 as u64, 50 - firsts[1]);
    trimmed.remove(&names[1]).expect("it works");
    lost_its_front(&trimmed, firsts[1], firsts[2]);
}

#[test]
fn that_segments_are_given_up_is_durable_before_they_are() {
    let whole = filled();
    let last = open(&whole, 1).expect("it opens").0.segment.first;
    let trim = |disk: &FakeDisk, stop: Option<u64>| {
        let store = open(disk, 1).expect("it opens").0;
        disk.set_faults(Faults { stop_after: stop, ..Faults::default() });
        assert_eq!(store.trim(last).is_ok(), stop.is_none());
        disk.changes()
    };
    let changes = trim(&whole.copy(), None);
    assert!(changes > 6, "{changes}");
    for stop in 0..changes {
        for seed in 0..20 {
            let disk = whole.copy();
            trim(&disk, Some(stop));
            disk.fail_machine(&mut Rng::stream(seed, "trim"));
            open(&disk, 2).expect("it was trimmed, and not damaged");
        }
    }
}

#[test]
fn where_an_older_program_says_nothing_of_trims_nothing_is_judged_by_them() {
    // It wrote all of the file, or the places with the highest number in it.
    for all in [true, false] {
        let disk = filled();
        rewrite(&disk, |range| match all || range.end == 50 {
            true => SyncedRange { trimmed: None, ..range },
            false => range,
        });
        let names = segments(&disk);
        disk.remove(&names[0]).expect("it works");
        let first = crate::format::segment::first_of(&names[1]).expect("a segment");
        assert_eq!(open(&disk, 1).expect("it may be trimmed").1 as u64, 50 - first);
        // From now on it is known.
        disk.remove(&names[1]).expect("it works");
        let next = crate::format::segment::first_of(&names[2]).expect("a segment");
        lost_its_front(&disk, first, next);
    }
}
