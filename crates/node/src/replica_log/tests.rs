//! The logs of replicas, in files.

use super::*;
use crate::log_owner::LogOwner;
use crate::system::synced;
use amcast_core::messages::Messages;
use std::sync::Arc;

fn keeping(name: &str) -> LogLocation {
    let dir = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let begun = dir.join("begun");
    LogLocation {
        path: dir,
        begun,
        holds: true,
        lasts: false,
        lived: false,
        first_life: 0,
        owner: LogOwner::of(1, 1),
    }
}

fn open(keeping: &LogLocation) -> (ReplicaLog, LogRecovery, bool) {
    open_with(keeping, None).unwrap()
}

fn open_with(
    keeping: &LogLocation,
    end: Option<&LogEnd>,
) -> Result<(ReplicaLog, LogRecovery, bool), UnopenedLog> {
    ReplicaLog::open(Gid(0), keeping, (Arc::new(|| {}), end), |_, _| {})
}

/// Writes a record, and waits until the disk has it.
fn write_only(journal: &mut ReplicaLog) {
    journal.log.append(Ticket(1), b"what follows from that", true).unwrap();
    journal.submit();
    while journal.take().is_none() {
        std::thread::yield_now();
    }
}

/// The same of a process that has recovered with that.
fn write(mut journal: ReplicaLog) {
    write_only(&mut journal);
    journal.recovered();
}

/// Carries out a step that persists records and loads one; gives what was loaded once all is done.
fn carry(
    journal: &mut ReplicaLog,
    records: impl Iterator<Item = Vec<u8>>,
    load: Option<u64>,
) -> Option<Vec<u8>> {
    let mut outbox: Outbox<Messages<u64>> = Outbox::default();
    let mut waited = 0;
    for record in records {
        let record = outbox.fill(|to| to.extend_from_slice(&record));
        outbox.push(Output::Persist { ticket: Ticket(1), record, awaited: true });
        waited += 1;
    }
    if let Some(number) = load {
        outbox.push(Output::Load { ticket: Ticket(2), number });
        waited += 1;
    }
    journal.carry(&outbox);
    journal.submit();
    let mut loaded = None;
    while waited > 0 {
        let Some(event) = journal.take() else {
            std::thread::yield_now();
            continue;
        };
        waited -= 1;
        if let LogEvent::Loaded(_, record) = event {
            loaded = record;
        }
    }
    loaded
}

#[test]
fn a_doubt_stays_until_something_is_written() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("doubt");
    let mark = keeping.path.join("g0.doubt");
    assert!(!open(&keeping).1.lossy, "it is new");
    assert!(!mark.exists());
    // An incarnation that was reported, and ended before it wrote anything.
    fs::write(&mark, "").unwrap();
    assert!(open(&keeping).1.lossy && open(&keeping).1.lossy, "again and again");
    write(open(&keeping).0);
    assert!(!open(&keeping).1.lossy);
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn a_mark_that_is_there_is_made_durable_all_the_same() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("durable");
    let log = keeping.path.join("g0");
    // As an earlier life left them that was killed in the midst of it.
    fs::write(log.with_extension(LOST), "").unwrap();
    fs::write(&keeping.begun, "").unwrap();
    assert!(!synced().contains(&keeping.path));
    mark_lost(&log).unwrap();
    assert!(synced().contains(&keeping.path));
    keeping.begun().unwrap();
    assert!(synced().contains(&keeping.path));
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn a_start_that_fails_is_no_doubt_where_nothing_is_missing() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("early");
    write(open(&keeping).0);
    // The open gets as far as to this file, and cannot replace it.
    let state = keeping.path.join("g0").join("state.new");
    fs::create_dir(&state).unwrap();
    assert!(matches!(open_with(&keeping, None), Err(UnopenedLog::Unusable(_))));
    fs::remove_dir(&state).unwrap();
    assert!(!keeping.path.join("g0.doubt").exists() && !open(&keeping).1.lossy);
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn a_failed_sync_is_a_doubt_of_the_next_life_and_a_full_disk_is_none() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("sync");
    let path = keeping.path.join("g0");
    let source = || io::Error::from_raw_os_error(5);
    let failed = StorageError::Io { path: path.clone(), doing: "sync it", source: source() };
    let full = StorageError::Full { path, what: amcast_storage::Limit::Disk };
    let synced = LogLocation { holds: false, ..keeping.clone() };
    let doubts = |keeping: &LogLocation, e: &StorageError| {
        let mut journal = open(keeping).0;
        journal.fail(e);
        assert!(journal.failed().is_some());
        // Records that are written later make up for nothing.
        write(journal);
        open(keeping).1.lossy
    };
    assert!(!doubts(&keeping, &full), "a majority may have run out of room");
    assert!(!doubts(&synced, &failed), "nobody counts on what is not synced");
    assert!(doubts(&keeping, &failed) && open(&keeping).1.lossy, "until something is written");
    write(open(&keeping).0);
    assert!(!open(&keeping).1.lossy);
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn that_a_log_is_lost_is_told_until_its_process_has_recovered() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("lost");
    assert!(!open(&keeping).2, "there was none before");
    let log = keeping.path.join("g0");
    keeping.begun().unwrap();
    let segment = log.join("00000000000000000000.segment");
    let unwritten = fs::read(&segment).unwrap();
    let empty = || {
        for file in fs::read_dir(&log).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    };
    // As of a log that was being made.
    let blank = || {
        empty();
        fs::write(&segment, &unwritten).unwrap();
    };
    let gone = || fs::remove_dir_all(&log).unwrap();
    for lose in [&gone as &dyn Fn(), &empty, &blank] {
        lose();
        assert!(open(&keeping).2 && open(&keeping).2, "again and again");
        write_only(&mut open(&keeping).0);
        assert!(open(&keeping).2, "it had not recovered when it ended");
        write(open(&keeping).0);
        assert!(!open(&keeping).2);
    }
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn the_volume_of_a_log_is_what_was_found_and_what_was_appended() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("volume");
    let records: [&[u8]; 2] = [b"one", b"another"];
    for lives in 1..4_u64 {
        let (mut journal, ..) = open(&keeping);
        let all = |lives: u64| LogVolume { records: 2 * lives, bytes: (2 * 32 + 10) * lives };
        assert_eq!(journal.volume(), all(lives - 1));
        let mut outbox: Outbox<Messages<u64>> = Outbox::default();
        for record in records {
            let record = outbox.fill(|to| to.extend_from_slice(record));
            outbox.push(Output::Persist { ticket: Ticket(1), record, awaited: false });
        }
        journal.carry(&outbox);
        assert_eq!(journal.volume(), all(lives));
        assert_eq!(journal.volume().since(all(lives - 1)), all(1));
    }
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn what_was_cut_from_a_log_is_lost_too() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("cut");
    (0..3).for_each(|_| write(open(&keeping).0));
    let log = keeping.path.join("g0");
    let files = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "segment")).collect();
    segments.sort();
    let mut bytes = fs::read(&segments[0]).unwrap();
    let what = b"what follows from that";
    let at = bytes.windows(what.len()).position(|part| part == what).unwrap();
    bytes[at] ^= 1;
    fs::write(&segments[0], bytes).unwrap();
    let opened = open_with(&keeping, None);
    assert!(matches!(opened, Err(UnopenedLog::Unusable(why)) if why.contains("damaged")));
    amcast_storage::offline::repair(&log, |_| true).unwrap().expect("it was damaged");
    assert!(open(&keeping).2);
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn a_log_that_lost_its_end_is_made_to_open_and_is_lost_and_what_was_cut_is_kept() {
    let _limit = amcast_test_policy::time_limit();
    let zeroed = |file: &mut Vec<u8>| {
        let end = file.iter().rposition(|&byte| byte != 0).unwrap();
        file[end - 60..=end].fill(0);
    };
    let halved = |file: &mut Vec<u8>| file.truncate(5000);
    for (name, damage, kept) in
        [("zeroed", &zeroed as &dyn Fn(&mut Vec<u8>), ".cut"), ("halved", &halved, ".short.cut")]
    {
        let keeping = keeping(name);
        let (log, end) = (keeping.path.join("g0"), b"what follows from that");
        for _ in 0..40 {
            write(open(&keeping).0);
        }
        let segment = log.join("00000000000000000000.segment");
        let mut bytes = fs::read(&segment).unwrap();
        let written = bytes.windows(end.len()).filter(|part| part == end).count();
        assert_eq!(written, 40);
        damage(&mut bytes);
        fs::write(&segment, bytes).unwrap();
        let opened = open_with(&keeping, None);
        let why = opened.map(drop).unwrap_err();
        assert!(matches!(&why, UnopenedLog::CutShort(why) if why.contains(kept)), "{why}");
        let (_, recovered, is_lost) = open(&keeping);
        assert!(recovered.next < 40 && is_lost, "{recovered:?}");
        assert!(open(&keeping).2, "until it has recovered");
        write(open(&keeping).0);
        assert!(!open(&keeping).2);
        fs::remove_dir_all(&keeping.path).unwrap();
    }
}

#[test]
fn a_log_that_lost_its_first_segment_is_made_to_open_and_is_lost() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("front");
    let (mut journal, ..) = open(&keeping);
    // Three fill a segment.
    for _ in 0..4 {
        journal.log.append(Ticket(1), &vec![7; 1 << 20], true).unwrap();
    }
    write(journal);
    fs::remove_file(keeping.path.join("g0").join("00000000000000000000.segment")).unwrap();
    let why = open_with(&keeping, None).map(drop).unwrap_err();
    let says = why.to_string();
    assert!(matches!(why, UnopenedLog::CutShort(_)) && says.contains("record 0"), "{says}");
    let (_, recovered, is_lost) = open(&keeping);
    assert!(is_lost, "it may have promised more");
    assert_eq!((recovered.first, recovered.next), (3, 5), "the rest is there");
    assert!(open(&keeping).2, "until something is written");
    write(open(&keeping).0);
    assert!(!open(&keeping).2);
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn a_log_without_its_only_segment_is_lost_and_moved_aside() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("segment");
    let log = keeping.path.join("g0");
    for aside in ["g0.cut", "g0.cut.2"] {
        write(open(&keeping).0);
        for file in fs::read_dir(&log).unwrap().map(Result::unwrap) {
            if file.path().extension().is_some_and(|e| e == "segment") {
                fs::remove_file(file.path()).unwrap();
            }
        }
        let why = open_with(&keeping, None).map(drop).unwrap_err();
        assert!(matches!(&why, UnopenedLog::CutShort(why) if why.contains(aside)), "{why}");
        assert!(keeping.path.join(aside).join("state").exists());
        assert!(open(&keeping).2 && open(&keeping).2, "until it has recovered");
        write(open(&keeping).0);
        assert!(!open(&keeping).2);
    }
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn where_no_record_is_left_a_record_is_loaded_by_the_number_that_the_protocol_gave_it() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("base");
    let log = keeping.path.join("g0");
    let (mut journal, ..) = open(&keeping);
    // Three fill a segment, which is trimmed.
    carry(&mut journal, (0..4).map(|_| vec![7; 1 << 20]), None);
    let mut outbox: Outbox<Messages<u64>> = Outbox::default();
    outbox.push(Output::Trim { before: 3 });
    journal.carry(&outbox);
    while log.join("00000000000000000000.segment").exists() {
        std::thread::yield_now();
    }
    drop(journal);
    // The other loses all of its records.
    let last = OpenOptions::new().write(true).open(log.join("00000000000000000003.segment"));
    last.unwrap().set_len(4096).unwrap();
    assert!(matches!(open_with(&keeping, None), Err(UnopenedLog::CutShort(_))));
    let (mut journal, recovered, is_lost) = open(&keeping);
    assert_eq!((recovered.first, recovered.next, is_lost), (3, 3, true));
    let records = (0..5_u8).map(|n| vec![n; 10]);
    for number in 0..5 {
        let records = records.clone().filter(|_| number == 0);
        let loaded = carry(&mut journal, records, Some(number));
        assert_eq!(loaded, Some(vec![number as u8; 10]), "record {number}");
    }
    drop(journal);
    // The next life learns the log's own numbers from the records.
    let (mut journal, ..) = open(&keeping);
    assert_eq!(carry(&mut journal, std::iter::empty(), Some(7)), Some(vec![4; 10]));
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn a_log_that_ends_before_a_checkpoint_of_its_node_is_lost() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("beyond");
    let (log, copy) = (keeping.path.join("g0"), keeping.path.join("copy"));
    write(open(&keeping).0);
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(&log).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let (journal, recovered, _) = open(&keeping);
    let before = journal.end();
    assert_eq!(before, LogEnd::new(recovered.log, 1));
    write(journal);
    let end = open(&keeping).0.end();
    assert_eq!(end, LogEnd::new(recovered.log, 2));
    assert!(!open_with(&keeping, Some(&end)).unwrap().2);
    // The whole directory is an older one.
    fs::remove_dir_all(&log).unwrap();
    fs::rename(&copy, &log).unwrap();
    assert!(!open_with(&keeping, Some(&before)).unwrap().2, "nothing shows it");
    assert!(open_with(&keeping, Some(&end)).unwrap().2);
    assert!(open(&keeping).2, "until it has recovered");
    write(open(&keeping).0);
    assert!(!open(&keeping).2);
    fs::remove_dir_all(&keeping.path).unwrap();
}

#[test]
fn nothing_goes_out_behind_a_record_that_was_not_taken() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("refuses");
    let (mut journal, ..) = open(&keeping);
    let mut outbox: Outbox<Messages<u64>> = Outbox::default();
    let record = outbox.fill(|to| to.resize(1 << 30, 0));
    outbox.push(Output::Persist { ticket: Ticket(1), record, awaited: false });
    assert_eq!(journal.behind(), 0);
    journal.carry(&outbox);
    assert_eq!(journal.behind(), u64::MAX);
    assert!(journal.failed().is_some());
    drop(journal);
    fs::remove_dir_all(&keeping.path).unwrap();
}
