//! Logs whose machine or process ends at any moment, whose disk fails, and whose bytes change.

use super::aside::{self, Hand};
use super::{Recovered, Store, Unreadable, read_state};
use crate::batch::Batch;
use crate::disk::Disk;
use crate::disk::fake::{FakeDisk, Faults};
use crate::error::{Error, Flaw, Limit, Misfit};
use crate::format::segment::RECORDS_AT;
use crate::format::state::State;
use crate::format::synced::FILE_BYTES;
use crate::format::{BootId, LogId, Owner};
use crate::machine::Machine;
use crate::offline::survey_of;
use amcast_core::rng::Rng;
use amcast_core::step::Ticket;

/// Small, so that a few records fill one.
const SEGMENT_BYTES: u64 = RECORDS_AT + 2048;

fn state_of(disk: &FakeDisk) -> State {
    read_state(disk).unwrap().expect("a log")
}

#[test]
fn a_log_of_another_owner_is_not_opened() {
    let disk = FakeDisk::new();
    let open = |owner| {
        let machine = Machine { owner, ..machine(1) };
        Store::open(disk.clone(), SEGMENT_BYTES, 2, &machine, &mut |_, _| {}).map(drop)
    };
    // One that nobody owned is taken over, as those of earlier versions are.
    open(Owner::UNKNOWN).expect("a new log");
    open(Owner(7)).expect("it is nobody's");
    open(Owner(7)).expect("it is its own");
    let names = disk.names().unwrap();
    let before = state_of(&disk);
    for other in [Owner(8), Owner(6)] {
        let Err(Error::Misfit { why, .. }) = open(other) else { panic!("it is not its own") };
        assert_eq!(why, Misfit::OtherOwner(Owner(7)));
    }
    assert_eq!((disk.names().unwrap(), state_of(&disk)), (names, before), "nothing was changed");
    // Who does not say who it is changes nothing of that.
    open(Owner::UNKNOWN).expect("it asks nothing");
    assert!(open(Owner(8)).is_err() && open(Owner(7)).is_ok());
}

fn machine(boot: u128) -> Machine {
    Machine { boot: BootId(boot), fresh: LogId(7), owner: Owner::UNKNOWN }
}

/// What a log gave when it was opened.
struct Opened {
    store: Store<FakeDisk>,
    /// Who syncs beside it, a step at a time.
    hand: Option<Hand<FakeDisk>>,
    recovered: Recovered,
    records: Vec<(u64, Vec<u8>)>,
}

fn open(disk: &FakeDisk, boot: u128) -> Result<Opened, Error> {
    let mut records = Vec::new();
    let mut each = |number, bytes: &[u8]| records.push((number, bytes.to_vec()));
    let opened = Store::open(disk.clone(), SEGMENT_BYTES, 2, &machine(boot), &mut each);
    let (store, recovered) = opened?;
    Ok(Opened { store, hand: None, recovered, records })
}

/// A log that syncs what nobody waits for when its hand is told to.
fn open_by_hand(disk: &FakeDisk, boot: u128) -> Result<Opened, Error> {
    let mut opened = open(disk, boot)?;
    let (aside, hand) = aside::pair(opened.store.shelf().clone());
    (opened.store.aside, opened.hand) = (Some(aside), Some(hand));
    Ok(opened)
}

impl Opened {
    /// Ends all but so many orders.
    fn settle(&mut self, but: usize) -> Result<(), Error> {
        let Some(hand) = &mut self.hand else { return Ok(()) };
        while let Some(aside) = &self.store.aside
            && aside.under_way() > but
        {
            hand.step();
            self.store.hear_aside()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.settle(0)?;
        self.store.sync()
    }
}

fn batch(records: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::default();
    records.iter().for_each(|record| batch.push(Ticket(0), record, true));
    batch
}

/// The same, and nobody waits for any.
fn idle_batch(records: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::default();
    records.iter().for_each(|record| batch.push(Ticket(0), record, false));
    batch
}

/// What must be in a log, and what may.
#[derive(Default)]
struct Expected {
    /// Records that are there whatever ends, from number 0 on.
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
    fn judge(&mut self, opened: &Opened, machine_failed: bool) {
        let Recovered { first, next, .. } = opened.recovered;
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
fn live(opened: &mut Opened, expected: &mut Expected, rng: &mut Rng) -> Result<(), Error> {
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
                opened.store.shelf().trim(before)?;
            }
            3 if opened.store.half_full() && opened.store.shelf().wants_spare() => {
                opened.store.shelf().make_spare()?;
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

fn write_some(opened: &mut Opened, expected: &mut Expected, rng: &mut Rng) -> Result<(), Error> {
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

/// What is done beside the writer goes on by some steps, or is begun. What it makes durable is certain.
fn beside(opened: &mut Opened, expected: &mut Expected, rng: &mut Rng) -> Result<(), Error> {
    if opened.store.dirty_bytes() > 0 && rng.below(3) == 0 {
        opened.store.sync_aside()?;
    }
    for _ in 0..rng.below(6) {
        if let Some(hand) = &mut opened.hand
            && !opened.store.hear_aside()?
        {
            hand.step();
        }
    }
    opened.store.hear_aside()?;
    let more = opened.store.durable.saturating_sub(expected.certain.len() as u64);
    expected.certain.extend(expected.written.drain(..more as usize));
    Ok(())
}

/// How a disk is lived on.
#[derive(Clone, Copy)]
struct Way {
    /// In how many of four cases the machine fails with the process.
    machine_fails: u64,
    /// Whether syncs that nobody waits for go on beside.
    beside: bool,
}

/// Several lives on one disk, each but the last stopped after so many changes as `stops` says.
fn lives(seed: u64, stops: &[u64], way: Way) -> u64 {
    let Way { machine_fails, beside } = way;
    let disk = FakeDisk::new();
    let mut rng = Rng::stream(seed, "lives");
    let mut expected = Expected::default();
    // Whether the machine failed since the log was opened last, and how often it did.
    let (mut failed, mut boot) = (false, 1);
    for stop in stops.iter().map(|&stop| Some(stop)).chain([None]) {
        disk.set_faults(Faults { stop_after: stop, ..Faults::default() });
        let survey = survey_of(&disk, None, &mut |_| {}).expect("it can be read");
        match if beside { open_by_hand(&disk, boot) } else { open(&disk, boot) } {
            Ok(mut opened) => {
                expected.judge(&opened, std::mem::take(&mut failed));
                if survey.state.is_none() {
                    let Recovered { next, torn, .. } = &opened.recovered;
                    assert!(survey.is_sound(), "seed {seed} {stops:?}: {survey:?}");
                    assert_eq!((&survey.next, &survey.torn), (next, torn), "{survey:?}");
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
            let way = Way { machine_fails: 4, beside };
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
            let way = Way { machine_fails: 0, beside };
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
        lives(seed, &stops, Way { machine_fails: seed / 2 % 5, beside: seed % 2 == 0 });
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
                Err(Error::Damaged(_) | Error::Misfit { .. }) => found += 1,
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
    // What comes later says that they were synced.
    opened.store.sync().expect("it works");
    opened.store.mark().expect("it works");
    let damaged = disk.copy();
    damaged.change(&name, |bytes| bytes[at + 100] ^= 1);
    match open(&damaged, 2) {
        Err(Error::Damaged(damage)) => {
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
    let judged = open(&torn, 2).expect("nobody was told that it was durable").recovered;
    assert_eq!((judged.next, judged.torn.map(|torn| torn.offset)), (0, Some(RECORDS_AT)));
    assert_eq!(files(&torn, ".segment"), 1);
    opened.sync().expect("it works");
    opened.store.write(&mut idle_batch(&[vec![3; 90]])).expect("it works");
    let damaged = missing(&disk);
    // Nor does the turn say so.
    damaged.change(&first, |bytes| bytes[RECORDS_AT as usize + 2 * 936..].fill(0));
    match open(&damaged, 2) {
        Err(Error::Damaged(damage)) => assert_eq!(damage.number, 0),
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
        // The first may have been trimmed, so that its absence says nothing.
        let may_be = name == segments[0];
        match open(&copy, 2) {
            Ok(_) => assert!(may_be, "{name}"),
            Err(Error::Damaged(damage)) => assert_eq!(damage.what, Flaw::Segment, "{damage}"),
            Err(Error::Missing { path }) => {
                assert!(path.ends_with("state") || path.ends_with("synced"), "{name}")
            }
            Err(e) => panic!("{name}: {e}"),
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
fn after_a_failed_sync_no_later_one_makes_up_for_it() {
    let disk = FakeDisk::new();
    let mut store = open(&disk, 1).expect("it opens").store;
    disk.set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
    store.write(&mut batch(&[vec![5; 600]])).expect("it works");
    match store.sync() {
        Err(Error::Io { source, .. }) => assert_eq!(source.raw_os_error(), Some(5)),
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
        assert!(matches!(opened.sync(), Err(Error::Io { .. })), "{fails}");
        let Opened { store, hand, .. } = opened;
        drop(store);
        // A thread would go on with what it was told.
        hand.into_iter().for_each(|mut hand| while hand.step() {});
        if seed % 2 == 0 {
            disk.fail_machine(&mut Rng::stream(seed, "machine"));
            let found = open(&disk, 2).expect("nobody was told that it was durable").records;
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
    assert!(matches!(e, Error::Full { what: Limit::Disk, .. }), "{e:?}");
    disk.set_faults(Faults::default());
    assert_eq!(open(&disk, 1).expect("it opens").records.len(), durable);
}

#[test]
fn records_are_read_again_wherever_they_lie() {
    let disk = FakeDisk::new();
    let records = filled(&disk, 60, false);
    let opened = open(&disk, 1).expect("it opens");
    let shelf = opened.store.shelf();
    for (number, record) in records.iter().enumerate() {
        assert_eq!(&shelf.load(number as u64, 60).expect("it is there"), record);
    }
    assert!(matches!(shelf.load(60, 60), Err(Unreadable::NotWritten)));
    shelf.trim(45).expect("it works");
    assert!(matches!(shelf.load(0, 60), Err(Unreadable::Trimmed)));
    assert_eq!(shelf.load(45, 60).expect("it is there"), records[45]);
    let name = opened.store.segment.name.clone();
    disk.change(&name, |bytes| bytes[RECORDS_AT as usize + 40] ^= 1);
    let first = opened.store.segment.first;
    match shelf.load(first, 60) {
        Err(Unreadable::Failed(Error::Damaged(damage))) => assert_eq!(damage.number, first),
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
        store.shelf().trim(n.saturating_sub(3)).expect("it works");
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
    let last = store.shelf().begin(store.next()).expect("it works").name.clone();
    // The process ends before the segment before says that there is another one.
    let mut opened = open(&disk, 1).expect("it opens");
    opened.store.write(&mut batch(&[vec![1]])).expect("it works");
    opened.store.sync().expect("it works");
    disk.remove(&last).expect("it works");
    match open(&disk, 1) {
        Err(Error::Damaged(damage)) => {
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
fn grow(disk: &FakeDisk, store: &mut Store<FakeDisk>, segments: usize) {
    while files(disk, ".segment") < segments {
        store.write(&mut batch(&[vec![1; 1200]])).expect("it works");
    }
}

#[test]
fn as_many_trimmed_segments_wait_to_be_used_again_as_were_needed() {
    let disk = FakeDisk::new();
    let mut store = open(&disk, 1).expect("it opens").store;
    let trim = |store: &Store<FakeDisk>| store.shelf().trim(store.next()).expect("it works");
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
