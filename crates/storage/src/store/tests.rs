//! Logs whose machine or process ends at any moment, whose disk fails, and whose bytes change.

use super::background_sync::{self, SyncWorker};
use super::{LogRecovery, OpenHooks, ReadError, SegmentStore, read_state};
use crate::batch::RecordBatch;
use crate::disk::DiskDir;
use crate::disk::fake::{FakeDisk, Faults};
use crate::error::{Flaw, Limit, Misfit, StorageError};
use crate::format::segment::RECORDS_AT;
use crate::format::state::LogState;
use crate::format::synced::FILE_BYTES;
use crate::format::{BootId, LogId, LogOwnerId};
use crate::machine::BootIdentity;
use crate::offline::inspection_of;
use amcast_core::rng::Rng;
use amcast_core::step::Ticket;

/// Small, so that a few records fill one.
const SEGMENT_BYTES: u64 = RECORDS_AT + 2048;

fn state_of(disk: &FakeDisk) -> LogState {
    read_state(disk).unwrap().expect("a log")
}

#[test]
fn a_log_of_another_owner_is_not_opened() {
    let disk = FakeDisk::new();
    let open = |owner| {
        let machine = BootIdentity { owner, ..machine(1) };
        SegmentStore::open(disk.clone(), SEGMENT_BYTES, 2, &machine, &mut |_, _| {}).map(drop)
    };
    // One that nobody owned is taken over, as those of earlier versions are.
    open(LogOwnerId::UNKNOWN).expect("a new log");
    open(LogOwnerId(7)).expect("it is nobody's");
    open(LogOwnerId(7)).expect("it is its own");
    let names = disk.names().unwrap();
    let before = state_of(&disk);
    for other in [LogOwnerId(8), LogOwnerId(6)] {
        let Err(StorageError::Misfit { why, .. }) = open(other) else {
            panic!("it is not its own")
        };
        assert_eq!(why, Misfit::OtherOwner(LogOwnerId(7)));
    }
    assert_eq!((disk.names().unwrap(), state_of(&disk)), (names, before), "nothing was changed");
    // A caller without an owner changes nothing of that.
    open(LogOwnerId::UNKNOWN).expect("it asks nothing");
    assert!(open(LogOwnerId(8)).is_err() && open(LogOwnerId(7)).is_ok());
}

fn machine(boot: u128) -> BootIdentity {
    BootIdentity { boot: BootId(boot), fresh: LogId(7), owner: LogOwnerId::UNKNOWN }
}

impl SegmentStore<FakeDisk> {
    /// Trims the log as the allocator does.
    pub(super) fn trim(&self, before: u64) -> Result<(), StorageError> {
        self.segment_set.trim(before, &self.end)
    }
}

/// The result of opening a log.
struct OpenedLog {
    store: SegmentStore<FakeDisk>,
    /// The worker that syncs beside it, a step at a time.
    hand: Option<SyncWorker<FakeDisk>>,
    recovered: LogRecovery,
    records: Vec<(u64, Vec<u8>)>,
}

fn open(disk: &FakeDisk, boot: u128) -> Result<OpenedLog, StorageError> {
    let mut records = Vec::new();
    let mut each = |number, bytes: &[u8]| records.push((number, bytes.to_vec()));
    let opened = SegmentStore::open(disk.clone(), SEGMENT_BYTES, 2, &machine(boot), &mut each);
    let (store, recovered) = opened?;
    Ok(OpenedLog { store, hand: None, recovered, records })
}

/// A log that syncs unawaited records when the test runs its worker.
fn open_by_hand(disk: &FakeDisk, boot: u128) -> Result<OpenedLog, StorageError> {
    let mut opened = open(disk, boot)?;
    let (background_sync, hand) = background_sync::pair(opened.store.segment_set().clone());
    (opened.store.background_sync, opened.hand) = (Some(background_sync), Some(hand));
    Ok(opened)
}

impl OpenedLog {
    /// Ends all but so many orders.
    fn settle(&mut self, but: usize) -> Result<(), StorageError> {
        let Some(hand) = &mut self.hand else { return Ok(()) };
        while let Some(background_sync) = &self.store.background_sync
            && background_sync.under_way() > but
        {
            hand.step();
            self.store.poll_background()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        self.settle(0)?;
        self.store.sync()
    }
}

fn batch(records: &[Vec<u8>]) -> RecordBatch {
    let mut batch = RecordBatch::default();
    records.iter().for_each(|record| batch.push(Ticket(0), record, true));
    batch
}

/// The same, and nobody waits for any.
fn idle_batch(records: &[Vec<u8>]) -> RecordBatch {
    let mut batch = RecordBatch::default();
    records.iter().for_each(|record| batch.push(Ticket(0), record, false));
    batch
}

/// The records that must be in a log, and those that may.
#[derive(Default)]
struct Expected {
    /// Records that are there after any end, from number 0 on.
    certain: Vec<Vec<u8>>,
    /// Those behind them that the operating system has: they survive a process.
    written: Vec<Vec<u8>>,
    /// Those behind them that were being written.
    begun: Vec<Vec<u8>>,
    /// Records before this number may be missing.
    trimmed: u64,
}

impl Expected {
    /// Judges what is there by now, and expects it from here on.
    fn judge(&mut self, opened: &OpenedLog, machine_failed: bool) {
        let LogRecovery { first, next, .. } = opened.recovered;
        assert!(first <= self.trimmed, "record {first} is the first, {} trimmed", self.trimmed);
        if !machine_failed {
            self.certain.append(&mut self.written);
        }
        let must = self.certain.len() as u64;
        assert!(next >= must, "{next} records are there of {must} that must be");
        let may = [&self.certain[..], &self.written, &self.begun].concat();
        assert!(next <= may.len() as u64, "{next} records are there and {} were begun", may.len());
        let wanted = (first..next).map(|number| (number, may[number as usize].clone()));
        assert_eq!(opened.records, wanted.collect::<Vec<_>>());
        self.certain = may;
        self.certain.truncate(next as usize);
        self.written.clear();
        self.begun.clear();
    }

    fn synced(&mut self) {
        self.certain.append(&mut self.written);
    }
}

/// One life: writes, syncs, trims, rolls, until it has done so much or something fails.
fn live(
    opened: &mut OpenedLog,
    expected: &mut Expected,
    rng: &mut Rng,
) -> Result<(), StorageError> {
    for _ in 0..if opened.hand.is_some() { 24 } else { 12 } {
        match rng.below(8) {
            0 => {
                opened.sync()?;
                expected.synced();
            }
            1 if opened.store.wants_mark() => opened.store.mark()?,
            2 => {
                let all = expected.certain.len() as u64;
                let before = all - rng.below(all / 2 + 1).min(all);
                expected.trimmed = expected.trimmed.max(before);
                opened.store.trim(before)?;
            }
            3 if opened.store.half_full() && opened.store.segment_set().wants_spare() => {
                opened.store.segment_set().make_spare()?;
            }
            4 if opened.hand.is_some() => beside(opened, expected, rng)?,
            _ => write_some(opened, expected, rng)?,
        }
    }
    if rng.below(3) == 0 {
        opened.settle(0)?;
        opened.store.close()?;
        expected.synced();
    }
    Ok(())
}

fn write_some(
    opened: &mut OpenedLog,
    expected: &mut Expected,
    rng: &mut Rng,
) -> Result<(), StorageError> {
    let record = |rng: &mut Rng| {
        let most = if rng.below(4) == 0 { 1500 } else { 60 };
        let length = rng.below(most);
        (0..length).map(|_| rng.below(256) as u8).collect()
    };
    let by_hand = opened.hand.is_some();
    let most = if by_hand { 2 } else { 5 };
    let records: Vec<Vec<u8>> = (0..1 + rng.below(most)).map(|_| record(rng)).collect();
    let awaited = !by_hand || rng.below(6) == 0;
    // Two records may end two segments.
    opened.settle(if awaited { 0 } else { 2 })?;
    expected.begun = records.clone();
    let mut batch = if awaited { batch(&records) } else { idle_batch(&records) };
    opened.store.write(&mut batch)?;
    expected.begun.clear();
    expected.written.extend(records);
    if if by_hand { awaited } else { rng.below(2) == 0 } {
        opened.sync()?;
        expected.synced();
    }
    Ok(())
}

/// Background work continues by some steps, or is begun. Records that it makes durable are certain.
fn beside(
    opened: &mut OpenedLog,
    expected: &mut Expected,
    rng: &mut Rng,
) -> Result<(), StorageError> {
    if opened.store.dirty_bytes() > 0 && rng.below(3) == 0 {
        opened.store.sync_in_background()?;
    }
    for _ in 0..rng.below(6) {
        if let Some(hand) = &mut opened.hand
            && !opened.store.poll_background()?
        {
            hand.step();
        }
    }
    opened.store.poll_background()?;
    let more = opened.store.durable.saturating_sub(expected.certain.len() as u64);
    expected.certain.extend(expected.written.drain(..more as usize));
    Ok(())
}

/// How a disk is lived on.
#[derive(Clone, Copy)]
struct DiskUsage {
    /// In how many of four cases the machine fails with the process.
    machine_fails: u64,
    /// Whether unawaited syncs run in the background.
    beside: bool,
}

/// Several lives on one disk, each but the last stopped after so many changes as `stops` says.
fn lives(seed: u64, stops: &[u64], way: DiskUsage) -> u64 {
    let DiskUsage { machine_fails, beside } = way;
    let disk = FakeDisk::new();
    let mut rng = Rng::stream(seed, "lives");
    let mut expected = Expected::default();
    // Whether the machine failed since the log was opened last, and how often it did.
    let (mut failed, mut boot) = (false, 1);
    for stop in stops.iter().map(|&stop| Some(stop)).chain([None]) {
        disk.set_faults(Faults { stop_after: stop, ..Faults::default() });
        let inspection = inspection_of(&disk, None, &mut |_| {}).expect("it can be read");
        match if beside { open_by_hand(&disk, boot) } else { open(&disk, boot) } {
            Ok(mut opened) => {
                expected.judge(&opened, std::mem::take(&mut failed));
                if inspection.state.is_none() {
                    let LogRecovery { next, torn, .. } = &opened.recovered;
                    assert!(inspection.is_sound(), "seed {seed} {stops:?}: {inspection:?}");
                    assert_eq!(
                        (&inspection.next, &inspection.torn),
                        (next, torn),
                        "{inspection:?}"
                    );
                }
                let lived = live(&mut opened, &mut expected, &mut rng);
                assert!(lived.is_ok() || stop.is_some(), "seed {seed} {stops:?}: {lived:?}");
            }
            Err(e) => assert!(stop.is_some(), "seed {seed}, stops {stops:?}: {e}"),
        }
        let changes = disk.changes();
        if stop.is_none() {
            return changes;
        }
        if rng.below(4) < machine_fails {
            (failed, boot) = (true, boot + 1);
            disk.fail_machine(&mut rng);
        } else {
            disk.fail_process();
        }
    }
    0
}

#[test]
fn whatever_was_synced_survives_the_end_of_the_machine_at_any_moment() {
    for seed in 0..40 {
        for beside in [false, true] {
            let way = DiskUsage { machine_fails: 4, beside };
            let changes = lives(seed, &[], way);
            assert!(changes > 10, "seed {seed} does nothing");
            for stop in 0..changes {
                lives(seed, &[stop], way);
            }
        }
    }
}

#[test]
fn whatever_was_written_survives_the_end_of_the_process_at_any_moment() {
    for seed in 0..20 {
        for beside in [false, true] {
            let way = DiskUsage { machine_fails: 0, beside };
            for stop in 0..lives(seed, &[], way) {
                lives(seed, &[stop], way);
            }
        }
    }
}

#[test]
fn a_start_that_is_cut_off_itself_loses_nothing() {
    for seed in 0..800 {
        let mut rng = Rng::stream(seed, "stops");
        let stops: Vec<u64> = (0..6).map(|_| rng.below(30)).collect();
        lives(seed, &stops, DiskUsage { machine_fails: seed / 2 % 5, beside: seed % 2 == 0 });
    }
}

/// A log of a few segments with `count` records, all durable.
fn filled(disk: &FakeDisk, count: usize, close: bool) -> Vec<Vec<u8>> {
    let mut store = open(disk, 1).expect("it opens").store;
    let records: Vec<Vec<u8>> = (0..count).map(|n| vec![n as u8 + 1; 40 + n % 30]).collect();
    for some in records.chunks(7) {
        store.write(&mut batch(some)).expect("it works");
        store.sync().expect("it works");
    }
    if close {
        store.close().expect("it works");
    }
    records
}

#[test]
fn a_changed_byte_is_found_or_does_no_harm() {
    let disk = FakeDisk::new();
    let records = filled(&disk, 60, true);
    let mut found = 0;
    for name in disk.names().expect("it works").iter().filter(|name| !name.ends_with(".spare")) {
        let bytes = disk.read(name).expect("it is there").len();
        // Between head and records there is nothing.
        for at in (0..64).chain(RECORDS_AT as usize..bytes) {
            let copy = disk.copy();
            copy.change(name, |bytes| bytes[at] ^= 1 << (at % 8));
            match open(&copy, 2) {
                Ok(opened) => {
                    let all = opened.records.into_iter().map(|(_, bytes)| bytes);
                    assert_eq!(all.collect::<Vec<_>>(), records, "{name} at {at}");
                }
                Err(StorageError::Damaged(_) | StorageError::Misfit { .. }) => found += 1,
                Err(e) => panic!("{name} at {at}: {e}"),
            }
        }
    }
    assert!(found > 60 * 40, "{found} changes were found");
}

#[test]
fn damage_is_told_from_what_was_never_durable() {
    let disk = FakeDisk::new();
    filled(&disk, 10, false);
    let mut opened = open(&disk, 1).expect("it opens");
    let at = opened.store.at as usize;
    let more = [vec![1; 300], vec![2; 300]];
    opened.store.write(&mut batch(&more)).expect("it works");
    let name = opened.store.segment.name.clone();
    // The first of two that were written together and never synced is not whole.
    let torn = disk.copy();
    torn.change(&name, |bytes| bytes[at + 100] ^= 1);
    let judged = open(&torn, 2).expect("it opens");
    assert_eq!((judged.recovered.next, judged.recovered.lossy), (10, true));
    assert_eq!(judged.recovered.torn.map(|torn| torn.offset), Some(at as u64));
    // Later records say that they were synced.
    opened.store.sync().expect("it works");
    opened.store.mark().expect("it works");
    let damaged = disk.copy();
    damaged.change(&name, |bytes| bytes[at + 100] ^= 1);
    match open(&damaged, 2) {
        Err(StorageError::Damaged(damage)) => {
            assert_eq!((damage.number, damage.offset), (10, at as u64));
            assert_eq!(damage.what, Flaw::Bytes);
            let says = damage.to_string();
            assert!(says.contains(&name) && says.contains("amcast log-file"), "{says}");
        }
        other => panic!("{:?}", other.map(|opened| opened.recovered)),
    }
}

#[test]
fn a_segment_behind_a_missing_record_is_cut_off_unless_it_says_that_it_was_durable() {
    let disk = FakeDisk::new();
    let mut opened = open_by_hand(&disk, 1).expect("it opens");
    let first = opened.store.segment.name.clone();
    for n in 0..3 {
        opened.store.write(&mut idle_batch(&[vec![n; 900]])).expect("it works");
    }
    let missing = |disk: &FakeDisk| {
        let copy = disk.copy();
        copy.change(&first, |bytes| bytes[RECORDS_AT as usize + 40] ^= 1);
        copy
    };
    let torn = missing(&disk);
    let judged = open(&torn, 2).expect("it was never reported durable").recovered;
    assert_eq!((judged.next, judged.torn.map(|torn| torn.offset)), (0, Some(RECORDS_AT)));
    assert_eq!(files(&torn, ".segment"), 1);
    opened.sync().expect("it works");
    opened.store.write(&mut idle_batch(&[vec![3; 90]])).expect("it works");
    let damaged = missing(&disk);
    // Nor does the turn say so.
    damaged.change(&first, |bytes| bytes[RECORDS_AT as usize + 2 * 936..].fill(0));
    match open(&damaged, 2) {
        Err(StorageError::Damaged(damage)) => assert_eq!(damage.number, 0),
        other => panic!("{:?}", other.map(|opened| opened.recovered)),
    }
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let disk = FakeDisk::new();
    let mut store = open(&disk, 1).expect("it opens").store;
    let records = [vec![1; 100], vec![2; 100], vec![3; 100]];
    store.write(&mut batch(&records)).expect("it works");
    let (name, at) = (store.segment.name.clone(), RECORDS_AT as usize + 136);
    disk.change(&name, |bytes| bytes[at + 40] ^= 1);
    let mut opened = open(&disk, 2).expect("it opens");
    assert_eq!(opened.recovered.next, 1, "the third is cut off with the second");
    // The same record in the same place: the old third would fit behind it but for its life.
    opened.store.write(&mut batch(&records[1..2])).expect("it works");
    opened.store.sync().expect("it works");
    let again = open(&disk, 3).expect("it opens");
    assert_eq!(again.recovered.next, 2);
    assert_eq!(again.records[1].1, records[1]);
}

#[test]
fn missing_files_are_told() {
    let disk = FakeDisk::new();
    filled(&disk, 60, true);
    let names = disk.names().expect("it works");
    let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".segment")).collect();
    assert!(segments.len() > 2, "{names:?}");
    for name in names.iter().filter(|name| !name.ends_with(".spare")) {
        let copy = disk.copy();
        copy.remove(name).expect("it works");
        let flaw = if name == segments[0] { Flaw::Front } else { Flaw::Segment };
        match open(&copy, 2) {
            Err(StorageError::Damaged(damage)) => assert_eq!(damage.what, flaw, "{damage}"),
            Err(StorageError::Missing { path }) => {
                assert!(path.ends_with("state") || path.ends_with("synced"), "{name}")
            }
            other => panic!("{name}: {:?}", other.map(|opened| opened.recovered)),
        }
    }
}

#[test]
fn the_machines_failure_is_told_from_the_process_s() {
    let disk = FakeDisk::new();
    let lossy = |boot| {
        let mut opened = open(&disk, boot).expect("it opens");
        opened.store.write(&mut batch(&[vec![1]])).expect("it works");
        (opened.recovered.lossy, opened.store)
    };
    assert!(!lossy(1).0, "it is new");
    assert!(!lossy(1).0, "only the process ended");
    assert!(lossy(2).0, "the machine was started anew");
    let (failed, mut store) = lossy(3);
    assert!(failed);
    store.close().expect("it works");
    assert!(!lossy(4).0, "it was closed before");
    assert!(lossy(0).0, "nobody knows");
    assert!(lossy(0).0, "nor now");
}

#[test]
fn a_start_that_ends_early_marks_a_loss_that_the_next_one_does_not_see_and_nothing_else() {
    let disk = FakeDisk::new();
    let mut opened = open_by_hand(&disk, 1).expect("it opens");
    for n in 0..4 {
        opened.store.write(&mut idle_batch(&[vec![n; 900]])).expect("it works");
    }
    // Of the second segment nothing got to the disk but its name.
    let torn = disk.copy();
    torn.change(&opened.store.segment.name, |bytes| bytes.fill(0));
    let start = |disk: &FakeDisk, boot, stop| {
        let mut marked = false;
        disk.set_faults(Faults { stop_after: stop, ..Faults::default() });
        let mut mark = || {
            marked = true;
            Ok(())
        };
        let mut hooks = OpenHooks { each: &mut |_, _| {}, lossy: &mut mark };
        let machine = machine(boot);
        let opened = SegmentStore::open_with(disk.clone(), SEGMENT_BYTES, 2, &machine, &mut hooks);
        disk.fail_process();
        (marked, opened.is_ok_and(|(_, recovered)| recovered.lossy), disk.changes())
    };
    for (disk, boot, is_lossy) in [(&disk, 1, false), (&disk, 2, true), (&torn, 1, true)] {
        let (marked, lossy, changes) = start(&disk.copy(), boot, None);
        assert_eq!((marked, lossy), (is_lossy, is_lossy));
        for stop in 0..changes {
            let copy = disk.copy();
            let (marked, ..) = start(&copy, boot, Some(stop));
            let (again, lossy, _) = start(&copy, boot, None);
            assert_eq!((again, marked || lossy), (lossy, is_lossy), "stop {stop}, boot {boot}");
        }
    }
}

#[test]
fn a_log_whose_loss_cannot_be_marked_is_not_opened() {
    let disk = FakeDisk::new();
    filled(&disk, 10, false);
    let state = state_of(&disk);
    let mut fails = || Err(std::io::ErrorKind::StorageFull.into());
    let mut hooks = OpenHooks { each: &mut |_, _| {}, lossy: &mut fails };
    let machine = machine(2);
    let opened = SegmentStore::open_with(disk.clone(), SEGMENT_BYTES, 2, &machine, &mut hooks);
    assert!(matches!(opened.map(drop), Err(StorageError::Full { .. })));
    assert_eq!(state_of(&disk), state);
}

#[test]
fn after_a_failed_sync_no_later_one_makes_up_for_it() {
    let disk = FakeDisk::new();
    let mut store = open(&disk, 1).expect("it opens").store;
    disk.set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
    store.write(&mut batch(&[vec![5; 600]])).expect("it works");
    match store.sync() {
        Err(StorageError::Io { source, .. }) => assert_eq!(source.raw_os_error(), Some(5)),
        other => panic!("{other:?}"),
    }
    // The kernel still has the record, and the next life is given it; then the machine fails.
    disk.fail_process();
    assert_eq!(open(&disk, 1).expect("it opens").records.len(), 1);
    disk.fail_machine(&mut Rng::stream(1, "machine"));
    assert_eq!(open(&disk, 2).expect("it opens").records, [(0, vec![5; 600])]);
}

#[test]
fn after_a_failed_sync_beside_what_was_read_is_made_durable() {
    // Of a full segment, of the one after it, and of the turn between them, and so again.
    for seed in 0..120 {
        let fails = seed / 2 % 6;
        let disk = FakeDisk::new();
        let mut opened = open_by_hand(&disk, 1).expect("it opens");
        let records: Vec<Vec<u8>> = (0..5).map(|n| vec![n + 1; 900]).collect();
        for record in records.chunks(1) {
            opened.store.write(&mut idle_batch(record)).expect("it works");
        }
        assert_eq!(files(&disk, ".segment"), 3);
        disk.set_faults(Faults { sync_fails: Some(fails), ..Faults::default() });
        assert!(matches!(opened.sync(), Err(StorageError::Io { .. })), "{fails}");
        let OpenedLog { store, hand, .. } = opened;
        drop(store);
        // A thread would work at its next order.
        hand.into_iter().for_each(|mut hand| while hand.step() {});
        if seed % 2 == 0 {
            disk.fail_machine(&mut Rng::stream(seed, "machine"));
            let found = open(&disk, 2).expect("it was never reported durable").records;
            assert!(found.into_iter().zip(&records).all(|((_, record), wrote)| record == *wrote));
            continue;
        }
        disk.fail_process();
        let found = |boot| open(&disk, boot).expect("it opens").records;
        assert_eq!(found(1).len(), 5);
        disk.fail_machine(&mut Rng::stream(seed, "machine"));
        assert_eq!(found(2).into_iter().map(|(_, record)| record).collect::<Vec<_>>(), records);
    }
}

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let disk = FakeDisk::new();
    let mut store = open(&disk, 1).expect("it opens").store;
    let room = 3 * SEGMENT_BYTES as usize + FILE_BYTES;
    disk.set_faults(Faults { room: Some(room), ..Faults::default() });
    let mut durable = 0;
    let e = loop {
        let write = store.write(&mut batch(&[vec![9; 500]])).and_then(|()| store.sync());
        match write {
            Ok(()) => durable += 1,
            Err(e) => break e,
        }
        assert!(durable < 100, "it never fills up");
    };
    assert!(matches!(e, StorageError::Full { what: Limit::Disk, .. }), "{e:?}");
    disk.set_faults(Faults::default());
    assert_eq!(open(&disk, 1).expect("it opens").records.len(), durable);
}

#[test]
fn records_are_read_again_wherever_they_lie() {
    let disk = FakeDisk::new();
    let records = filled(&disk, 60, false);
    let opened = open(&disk, 1).expect("it opens");
    let segment_set = opened.store.segment_set();
    for (number, record) in records.iter().enumerate() {
        assert_eq!(&segment_set.load(number as u64, 60).expect("it is there"), record);
    }
    assert!(matches!(segment_set.load(60, 60), Err(ReadError::NotWritten)));
    opened.store.trim(45).expect("it works");
    assert!(matches!(segment_set.load(0, 60), Err(ReadError::Trimmed)));
    assert_eq!(segment_set.load(45, 60).expect("it is there"), records[45]);
    let name = opened.store.segment.name.clone();
    disk.change(&name, |bytes| bytes[RECORDS_AT as usize + 40] ^= 1);
    let first = opened.store.segment.first;
    match segment_set.load(first, 60) {
        Err(ReadError::Failed(StorageError::Damaged(damage))) => assert_eq!(damage.number, first),
        other => panic!("{other:?}"),
    }
}

#[test]
fn trimmed_segments_are_used_again() {
    let disk = FakeDisk::new();
    let mut store = open(&disk, 1).expect("it opens").store;
    for n in 0..200_u64 {
        store.write(&mut batch(&[vec![n as u8; 300]])).expect("it works");
        store.sync().expect("it works");
        store.trim(n.saturating_sub(3)).expect("it works");
    }
    let names = disk.names().expect("it works");
    assert!(names.len() <= 6, "{names:?}");
    let opened = open(&disk, 1).expect("it opens");
    assert_eq!(opened.recovered.next, 200);
    assert!(opened.records.iter().all(|(n, bytes)| *bytes == vec![*n as u8; 300]));
}

#[test]
fn a_segment_whose_making_was_cut_off_is_missed_all_the_same() {
    let disk = FakeDisk::new();
    filled(&disk, 3, false);
    let store = open(&disk, 1).expect("it opens").store;
    let last = store.segment_set().begin(store.next()).expect("it works").name.clone();
    // The process ends before the segment before says that there is another one.
    let mut opened = open(&disk, 1).expect("it opens");
    opened.store.write(&mut batch(&[vec![1]])).expect("it works");
    opened.store.sync().expect("it works");
    disk.remove(&last).expect("it works");
    match open(&disk, 1) {
        Err(StorageError::Damaged(damage)) => {
            assert_eq!((damage.number, damage.what), (3, Flaw::Segment));
        }
        other => panic!("{:?}", other.map(|opened| opened.recovered)),
    }
}

/// How many files there are whose names end so.
fn files(disk: &FakeDisk, ending: &str) -> usize {
    disk.names().expect("it works").iter().filter(|name| name.ends_with(ending)).count()
}

/// Writes until the log has so many segments.
fn grow(disk: &FakeDisk, store: &mut SegmentStore<FakeDisk>, segments: usize) {
    while files(disk, ".segment") < segments {
        store.write(&mut batch(&[vec![1; 1200]])).expect("it works");
    }
}

#[test]
fn as_many_trimmed_segments_wait_to_be_used_again_as_were_needed() {
    let disk = FakeDisk::new();
    let mut store = open(&disk, 1).expect("it opens").store;
    let trim = |store: &SegmentStore<FakeDisk>| store.trim(store.next()).expect("it works");
    grow(&disk, &mut store, 7);
    assert_eq!(files(&disk, ".spare"), 0);
    trim(&store);
    assert_eq!([files(&disk, ".segment"), files(&disk, ".spare")], [1, 2], "nobody knows yet");
    grow(&disk, &mut store, 7);
    trim(&store);
    assert_eq!([files(&disk, ".segment"), files(&disk, ".spare")], [1, 6]);
    for _ in 0..3 {
        grow(&disk, &mut store, 7);
        assert_eq!(files(&disk, ".spare"), 0, "none was made");
        trim(&store);
    }
    // Little is written from here on: what is not needed goes.
    grow(&disk, &mut store, 2);
    trim(&store);
    assert_eq!([files(&disk, ".segment"), files(&disk, ".spare")], [1, 3]);
    // Nor does much stay when a lot was written once.
    grow(&disk, &mut store, 20);
    trim(&store);
    assert_eq!([files(&disk, ".segment"), files(&disk, ".spare")], [1, 3]);
    // Where there is little room, less does.
    grow(&disk, &mut store, 20);
    disk.set_faults(Faults { room: Some(22 * SEGMENT_BYTES as usize), ..Faults::default() });
    trim(&store);
    assert_eq!([files(&disk, ".segment"), files(&disk, ".spare")], [1, 2]);
}
