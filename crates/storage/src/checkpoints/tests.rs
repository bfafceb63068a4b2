//! Checkpoints whose machine ends at any moment, whose disk fails, and whose bytes change.

use super::draft::{Draft, newest_first, unfinished};
use super::reader::{CheckpointReader, find};
use super::{CheckpointDir, CheckpointListing, CheckpointOwner, QUEUE_BYTES, SaveProgress};
use crate::disk::DiskDir;
use crate::disk::fake::{FakeDisk, Faults};
use crate::error::{Limit, StorageError};
use crate::format::checkpoint::{NEW_NAME, PIECE_BYTES, name};
use amcast_core::rng::Rng;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// The state at a position: longer than a piece now and then.
fn state(position: u64) -> Vec<u8> {
    let mut rng = Rng::new(position);
    (0..position * 700 % 2_000).map(|_| rng.word() as u8).collect()
}

fn save(disk: &FakeDisk, position: u64) -> Result<(), StorageError> {
    let mut draft = Draft::begin(disk, position, CheckpointOwner::default())?;
    for piece in state(position).chunks(300) {
        draft.put(disk, piece)?;
    }
    draft.finish(disk)
}

fn all_of(saved: &mut CheckpointReader) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = saved.piece().expect("it was judged whole") {
        all.extend_from_slice(piece);
    }
    all
}

#[test]
fn a_saved_state_survives_the_end_of_the_machine_at_any_moment() {
    let _limit = amcast_test_policy::time_limit();
    for seed in 0..20 {
        let whole = FakeDisk::new();
        (1..6).for_each(|position| save(&whole, position).expect("it works"));
        for stop in 0..whole.changes() {
            let disk = FakeDisk::new();
            disk.set_faults(Faults { stop_after: Some(stop), ..Faults::default() });
            let saved = (1..6).take_while(|&position| save(&disk, position).is_ok()).count() as u64;
            disk.fail_machine(&mut Rng::stream(seed, "machine"));
            let (found, damaged) = find(&disk, &mut |_| {}).expect("it works");
            assert!(damaged.is_empty(), "stop {stop}, seed {seed}: {damaged:?}");
            let position = found.as_ref().map_or(0, CheckpointReader::position);
            assert!(position == saved || position == saved + 1, "{position} after {saved}");
            if let Some(mut found) = found {
                assert_eq!(all_of(&mut found), state(position));
            }
            // And the log is used further.
            save(&disk, 9).expect("it works");
            let (found, _) = find(&disk, &mut |_| {}).expect("it works");
            assert_eq!(found.map(|found| found.position()), Some(9));
        }
    }
}

#[test]
fn a_changed_byte_is_told_and_the_state_before_serves() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    (1..6).for_each(|position| save(&disk, position).expect("it works"));
    assert_eq!(newest_first(&disk).expect("it works"), [5, 4]);
    let bytes = disk.read(&name(5)).expect("it is there").len();
    for at in 0..bytes {
        let copy = disk.copy();
        copy.change(&name(5), |bytes| bytes[at] ^= 1 << (at % 8));
        match find(&copy, &mut |_| {}) {
            Ok((Some(mut found), damaged)) => {
                let position = found.position();
                assert_eq!(all_of(&mut found), state(position));
                assert_eq!((position, damaged.len()), (4, 1), "byte {at}");
            }
            // A newer program can read it.
            Err(StorageError::Misfit { .. }) => assert!((8..12).contains(&at), "byte {at}"),
            other => panic!("byte {at}: {other:?}"),
        }
    }
    for cut in [10, 64, 70, 200, bytes - 1] {
        let copy = disk.copy();
        copy.change(&name(5), |bytes| bytes.truncate(cut));
        let (found, damaged) = find(&copy, &mut |_| {}).expect("it works");
        assert_eq!((found.map(|f| f.position()), damaged.len()), (Some(4), 1), "cut at {cut}");
        // The damaged one is not preferred to one that is saved now.
        save(&copy, 4).expect("it works");
        assert_eq!(newest_first(&copy).expect("it works"), [4]);
    }
}

#[test]
fn a_state_that_a_start_found_survives_the_end_of_the_machine() {
    let _limit = amcast_test_policy::time_limit();
    let whole = FakeDisk::new();
    let position = |found: Option<&CheckpointReader>| found.map(CheckpointReader::position);
    (1..3).for_each(|position| save(&whole, position).expect("it works"));
    for stop in 0..whole.changes() {
        for seed in 0..8 {
            let disk = FakeDisk::new();
            disk.set_faults(Faults { stop_after: Some(stop), ..Faults::default() });
            assert!((1..3).any(|position| save(&disk, position).is_err()));
            // The process ended, and is started again.
            disk.fail_process();
            let told = position(CheckpointLoop::open(&disk).1.newest.as_ref());
            disk.fail_machine(&mut Rng::stream(seed, "machine"));
            let (found, _) = find(&disk, &mut |_| {}).expect("it works");
            assert_eq!(position(found.as_ref()), told, "stop {stop}, seed {seed}");
        }
    }
}

/// A loop that sleeps until it is woken.
struct CheckpointLoop {
    checkpoints: CheckpointDir,
    woken: Receiver<()>,
}

impl CheckpointLoop {
    fn open(disk: &FakeDisk) -> (Self, CheckpointListing) {
        let (send, woken) = sync_channel(1);
        let wake = move || {
            let _ = send.try_send(());
        };
        let opened = CheckpointDir::start(disk.clone(), Arc::new(wake), None, &mut |_| {});
        let (checkpoints, found) = opened.expect("it opens");
        (Self { checkpoints, woken }, found)
    }

    /// Sleeps until a state is saved or not.
    fn outcome(&mut self) -> SaveProgress {
        loop {
            let mut outcome = None;
            self.checkpoints.take(|saving| match saving {
                SaveProgress::Progress { .. } => {}
                other => outcome = Some(other),
            });
            match outcome {
                Some(outcome) => return outcome,
                None => self.woken.recv().expect("it is woken"),
            }
        }
    }
}

#[test]
fn a_large_state_is_saved_while_room_bounds_what_waits() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    let (mut looping, found) = CheckpointLoop::open(&disk);
    assert!(found.newest.is_none() && found.damaged.is_empty());
    let large: Vec<u8> = (0..3 * QUEUE_BYTES + 11).map(|i| (i % 251) as u8).collect();
    looping.checkpoints.begin(40);
    let (mut given, mut progress) = (0, 0);
    while given < large.len() {
        let now = looping.checkpoints.room().min(large.len() - given).min(70_000);
        if now == 0 {
            looping.woken.recv().expect("it is woken");
        }
        looping.checkpoints.give(&large[given..given + now]);
        given += now;
        looping.checkpoints.take(|saving| match saving {
            SaveProgress::Progress { position: 40, bytes } => {
                assert!(bytes >= progress);
                progress = bytes;
            }
            other => panic!("{other:?}"),
        });
    }
    assert!(progress >= large.len() as u64 - QUEUE_BYTES as u64 - PIECE_BYTES as u64);
    looping.checkpoints.finish();
    match looping.outcome() {
        SaveProgress::Saved { position: 40, bytes } => assert_eq!(bytes, large.len() as u64),
        other => panic!("{other:?}"),
    }
    drop(looping);
    let (_, found) = CheckpointLoop::open(&disk);
    let mut newest = found.newest.expect("it was saved");
    assert_eq!((newest.position(), newest.bytes()), (40, large.len() as u64));
    assert_eq!(all_of(&mut newest), large);
}

#[test]
fn a_state_that_cannot_be_saved_is_told_and_the_next_one_may_be() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    let (mut looping, _) = CheckpointLoop::open(&disk);
    let mut try_to = |position, faults| {
        disk.set_faults(faults);
        looping.checkpoints.begin(position);
        looping.checkpoints.give(&state(position));
        looping.checkpoints.finish();
        looping.outcome()
    };
    assert!(matches!(try_to(1, Faults::default()), SaveProgress::Saved { position: 1, .. }));
    match try_to(2, Faults { room: Some(900), ..Faults::default() }) {
        SaveProgress::Failed { position: 2, error } => {
            assert!(matches!(error, StorageError::Full { what: Limit::Disk, .. }), "{error}");
        }
        other => panic!("{other:?}"),
    }
    match try_to(3, Faults { sync_fails: Some(0), ..Faults::default() }) {
        SaveProgress::Failed { position: 3, error: StorageError::Io { .. } } => {}
        other => panic!("{other:?}"),
    }
    // Some file systems find place for bytes when they are synced. Nothing is lost of what was there before.
    let late = Faults { sync_fails: Some(0), sync_finds_no_room: true, ..Faults::default() };
    match try_to(3, late) {
        SaveProgress::Failed { position: 3, error } => {
            assert!(matches!(error, StorageError::Full { what: Limit::Disk, .. }), "{error}");
            assert!(!error.may_lose_written());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(disk.names().expect("it works"), [name(1)], "what was begun takes no room");
    assert!(matches!(try_to(4, Faults::default()), SaveProgress::Saved { position: 4, .. }));
}

#[test]
fn a_state_that_is_abandoned_or_begun_anew_leaves_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    let (mut looping, _) = CheckpointLoop::open(&disk);
    looping.checkpoints.begin(7);
    looping.checkpoints.give(&vec![1; 2 * PIECE_BYTES]);
    looping.checkpoints.abandon();
    looping.checkpoints.begin(8);
    looping.checkpoints.give(&[2; 100]);
    looping.checkpoints.begin(9);
    looping.checkpoints.give(&[3; 100]);
    looping.checkpoints.finish();
    assert!(matches!(looping.outcome(), SaveProgress::Saved { position: 9, bytes: 100 }));
    drop(looping);
    assert_eq!(disk.names().expect("it works"), [name(9)]);
}

#[test]
fn where_an_unfinished_state_was_begun_is_found_once_and_a_note_says_so_as_well() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    let open = |disk: &FakeDisk| {
        let (checkpoints, found) =
            CheckpointDir::start(disk.copy(), Arc::new(|| {}), None, &mut |_| {})
                .expect("it works");
        let newest = found.newest.map(|found| found.position());
        (checkpoints, (newest, found.unfinished, found.unfinished_at))
    };
    save(&disk, 3).expect("it works");
    assert_eq!(open(&disk).1, (Some(3), false, None));
    let mut draft = Draft::begin(&disk, 70, CheckpointOwner::default()).expect("it works");
    draft.put(&disk, b"half").expect("it works");
    let half = disk.copy();
    assert_eq!(unfinished(&disk).expect("it works"), Some(70));
    assert_eq!(open(&half).1, (Some(3), true, Some(70)));
    // One whose head is not whole is one that was begun.
    half.change(NEW_NAME, |bytes| bytes.truncate(20));
    assert_eq!(open(&half).1, (Some(3), true, None));
    // A note is no state, and gives way to one.
    let path = std::env::temp_dir().join(format!("amcast-note-{}", std::process::id()));
    let at = |path: &Path| CheckpointDir::open(path, Arc::new(|| {}), |_| {}).expect("it works");
    at(&path).0.note(9);
    let (mut checkpoints, found) = at(&path);
    assert!(found.newest.is_none() && found.unfinished_at == Some(9));
    checkpoints.begin(11);
    checkpoints.note(10);
    checkpoints.give(b"a state");
    checkpoints.finish();
    drop(checkpoints);
    let (checkpoints, found) = at(&path);
    assert_eq!(found.newest.map(|found| found.position()), Some(11));
    assert!(!found.unfinished && found.unfinished_at.is_none());
    drop(checkpoints);
    std::fs::remove_dir_all(path).expect("it works");
}
