//! Damaged logs are reported as a start would report them, and open again once they are cut.

use super::inspection::{Inspection, SegmentEnd, inspect};
use super::repair::cut;
use crate::batch::RecordBatch;
use crate::disk::DiskDir;
use crate::disk::fake::{FakeDisk, Faults};
use crate::error::{Flaw, StorageError};
use crate::format::segment::RECORDS_AT;
use crate::format::{BootId, LogId, LogOwnerId};
use crate::machine::BootIdentity;
use crate::store::SegmentStore;
use amcast_core::rng::Rng;
use amcast_core::step::Ticket;

const SEGMENT_BYTES: u64 = RECORDS_AT + 2048;

fn open(disk: &FakeDisk) -> Result<(SegmentStore<FakeDisk>, Vec<Vec<u8>>), StorageError> {
    let mut records = Vec::new();
    let machine = BootIdentity { boot: BootId(1), fresh: LogId(7), owner: LogOwnerId::UNKNOWN };
    let mut each = |_: u64, bytes: &[u8]| records.push(bytes.to_vec());
    let (store, _) = SegmentStore::open(disk.clone(), SEGMENT_BYTES, 2, &machine, &mut each)?;
    Ok((store, records))
}

/// A log of 60 records in some segments.
fn filled(close: bool) -> (FakeDisk, Vec<Vec<u8>>) {
    let disk = FakeDisk::new();
    let (mut store, _) = open(&disk).expect("it opens");
    let records: Vec<Vec<u8>> = (0..60_u8).map(|n| vec![n + 1; 40 + usize::from(n % 30)]).collect();
    for record in &records {
        let mut batch = RecordBatch::default();
        batch.push(Ticket(0), record, true);
        store.write(&mut batch).expect("it works");
        store.sync().expect("it works");
    }
    if close {
        store.close().expect("it works");
    }
    (disk, records)
}

fn seen(disk: &FakeDisk) -> (Inspection, u64) {
    let mut whole = 0;
    let inspection = inspect(disk, None, &mut |_| whole += 1).expect("it can be read");
    (inspection, whole)
}

#[test]
fn a_sound_log_is_described() {
    let (disk, records) = filled(true);
    let (inspection, whole) = seen(&disk);
    assert!(inspection.is_sound() && inspection.closed && inspection.torn.is_none());
    assert_eq!(
        (inspection.log, inspection.life, inspection.first, inspection.next),
        (Some(LogId(7)), Some(0), 0, 60)
    );
    assert_eq!(whole, 60);
    let bytes: u64 = inspection.segments.iter().map(|seen| seen.bytes).sum();
    assert_eq!(bytes, records.iter().map(|record| record.len() as u64).sum::<u64>());
    assert!(inspection.segments.len() > 2);
    assert!(inspection.segments.iter().all(|seen| matches!(seen.end, SegmentEnd::Whole)));
    assert_eq!(cut(&disk, |_| true).expect("it works"), None, "there is nothing to repair");
}

#[test]
fn a_survey_agrees_with_a_start_and_a_repair_keeps_all_before_the_damage() {
    let (disk, records) = filled(true);
    let mut repaired = 0;
    for name in disk.names().expect("it works").iter().filter(|name| !name.ends_with(".spare")) {
        let bytes = disk.read(name).expect("it is there").len();
        for at in (0..64).chain((RECORDS_AT as usize..bytes).step_by(7)) {
            let copy = disk.copy();
            copy.change(name, |bytes| bytes[at] ^= 1 << (at % 8));
            let (inspection, whole) = seen(&copy);
            let opened = open(&copy);
            assert_eq!(inspection.is_sound(), opened.is_ok(), "{name} at {at}");
            if let Err(StorageError::Damaged(damage)) = opened {
                assert_eq!(inspection.damage.as_ref(), Some(&damage), "{name} at {at}");
            }
            if inspection.is_sound() {
                continue;
            }
            let next = inspection.next;
            let head = at < 64 && name.ends_with(".segment");
            assert!(
                !head || (next == 60 && inspection.damage.is_none()),
                "{name} at {at}: {inspection:?}"
            );
            assert!(whole >= 59 || at < 64, "{whole} records are whole, {name} at {at}");
            match cut(&copy, |_| true) {
                Ok(Some(cut)) => {
                    repaired += 1;
                    assert_eq!((cut.from, cut.whole), (next, inspection.beyond));
                    assert!(cut.kept.iter().all(|path| path.to_string_lossy().ends_with(".cut")));
                }
                other => panic!("{name} at {at}: {other:?}"),
            }
            goes_on(&copy, &records[..next as usize]);
        }
    }
    assert!(repaired > 500, "{repaired}");
}

/// The log has these records, and takes more.
fn goes_on(disk: &FakeDisk, records: &[Vec<u8>]) {
    let (mut store, found) = open(disk).expect("it was repaired");
    assert_eq!(found, records);
    let mut batch = RecordBatch::default();
    batch.push(Ticket(0), b"more", true);
    store.write(&mut batch).expect("it works");
    store.close().expect("it works");
    let (_, again) = open(disk).expect("it opens");
    assert_eq!(again, [records, &[b"more".to_vec()]].concat());
}

#[test]
fn a_missing_segment_is_told_and_cut_there() {
    let (disk, records) = filled(false);
    let (whole, _) = seen(&disk);
    for lost in &whole.segments[1..] {
        let copy = disk.copy();
        copy.remove(&lost.path.file_name().expect("it has one").to_string_lossy())
            .expect("it works");
        let (inspection, _) = seen(&copy);
        let damage = inspection.damage.expect("it is missed");
        assert_eq!((damage.number, damage.what), (lost.first, Flaw::Segment));
        let cut = cut(&copy, |_| true).expect("it works").expect("it was damaged");
        assert_eq!(cut.from, lost.first);
        goes_on(&copy, &records[..lost.first as usize]);
    }
}

#[test]
fn a_lost_state_is_made_anew() {
    let (disk, records) = filled(true);
    disk.remove("state").expect("it works");
    assert!(open(&disk).is_err());
    let (inspection, _) = seen(&disk);
    assert!(inspection.damage.is_none() && !inspection.is_sound());
    assert_eq!(cut(&disk, |_| false).expect("it works"), None, "nobody agreed");
    assert!(open(&disk).is_err());
    let cut = cut(&disk, |_| true).expect("it works").expect("it was not sound");
    assert_eq!((cut.from, cut.whole), (60, 0));
    goes_on(&disk, &records);
}

#[test]
fn a_repair_without_room_for_the_removed_records_leaves_no_part_of_a_copy() {
    let (disk, records) = filled(true);
    let mut names = disk.names().expect("it works");
    names.retain(|name| name.ends_with(".segment"));
    disk.change(&names[1], |bytes| bytes[RECORDS_AT as usize + 200] ^= 1);
    let next = seen(&disk).0.next as usize;
    let before = disk.names().expect("it works").len();
    disk.set_faults(Faults { room: Some(0), ..Faults::default() });
    for _ in 0..2 {
        let refused = cut(&disk, |_| true).expect_err("there is no room");
        assert!(matches!(refused, StorageError::Full { .. }), "{refused}");
        let names = disk.names().expect("it works");
        assert!(
            names.len() == before && !names.iter().any(|name| name.contains("from-")),
            "{names:?}"
        );
    }
    disk.set_faults(Faults::default());
    cut(&disk, |_| true).expect("it works").expect("it was damaged");
    goes_on(&disk, &records[..next]);
}

#[test]
fn a_repair_that_is_cut_off_is_repeated() {
    let (disk, records) = filled(true);
    let mut names = disk.names().expect("it works");
    names.retain(|name| name.ends_with(".segment"));
    // A head that is made anew, and then a record that is not whole.
    disk.change(&names[0], |bytes| bytes[20] ^= 1);
    disk.change(&names[1], |bytes| bytes[RECORDS_AT as usize + 200] ^= 1);
    let (inspection, _) = seen(&disk);
    assert!(names.len() > 2 && inspection.damage.is_some() && inspection.headless.len() == 1);
    let next = inspection.next as usize;
    let whole = disk.copy();
    cut(&whole, |_| true).expect("it works").expect("it was damaged");
    assert!(whole.changes() > 8, "{}", whole.changes());
    for stop in 0..whole.changes() {
        for seed in 0..10 {
            let copy = disk.copy();
            copy.set_faults(Faults { stop_after: Some(stop), ..Faults::default() });
            assert!(cut(&copy, |_| true).is_err(), "it was cut off");
            copy.fail_machine(&mut Rng::stream(seed, "machine"));
            // All may be done but for the unacknowledged ones.
            cut(&copy, |_| true).expect("it works");
            goes_on(&copy, &records[..next]);
        }
    }
}
