//! A log that was cut short is found, with any rest, and no other log is taken for one.

use super::*;
use crate::batch::RecordBatch;
use crate::disk::fake::FakeDisk;
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
    let places = || synced::places(&disk.read(NAME).expect("it is there"), LogId(7));
    let first = places();
    write(&mut store, 1);
    assert_eq!(places(), [Some(6), first[1], first[2]]);
    store.end().settle().expect("it works");
    let second = places();
    assert_eq!([second[1].max(second[2]), second[1].min(second[2])], [Some(6), Some(5)]);
}
