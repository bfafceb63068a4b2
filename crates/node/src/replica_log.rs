//! The log of one process of a node, as its driver has it: records that the protocol persists, and
//! the results of writing them.
//!
//! Records for which a protocol does not wait must still survive the end of its process. So in that
//! case later messages of the process are held back until the operating system has the record
//! ([`ReplicaLog::behind`]): some tens of microseconds. A protocol that waits for its records holds
//! its messages back itself.

use crate::cluster_dir::LogLocation;
use crate::log_ends::LogEnd;
use crate::system::sync_folder_of;
use amcast_core::step::{Medium, Outbox, Output, Ticket};
use amcast_core::{Gid, Input};
use amcast_storage::offline::{LOST, RemovedRecords, repair_end, set_aside, was_made};
use amcast_storage::{
    AppendError, Completion, CompletionWaker, LogCounts, LogId, LogRecovery, Misfit, StorageError,
    Wal, WalOptions,
};
use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::iter::Sum;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How long a piece of a log is on a disk, in bytes. A node writes one for each of its processes when
/// it starts for the first time, and keeps a spare one.
const SEGMENT_BYTES: u64 = 16 << 20;

/// The same where the log goes with the cluster: it lies in memory, most likely.
const SEGMENT_BYTES_IN_MEMORY: u64 = 4 << 20;

/// The size of a process's log at its start, in bytes, and its need of space to continue.
pub(crate) const fn bytes_at_start(lasts: bool) -> u64 {
    // One is written, and one is there when it is full.
    2 * if lasts { SEGMENT_BYTES } else { SEGMENT_BYTES_IN_MEMORY }
}

/// A result of the log for the protocol.
#[derive(Debug)]
pub(crate) enum LogEvent {
    /// The record with this ticket is durable.
    Durable(Ticket),
    /// A record was read; none if it cannot be.
    Loaded(Ticket, Option<Vec<u8>>),
}

impl LogEvent {
    /// The input to the protocol.
    pub(crate) fn input<M: Medium>(&self) -> Input<'_, M> {
        match self {
            Self::Durable(ticket) => Input::Durable(*ticket),
            Self::Loaded(ticket, record) => {
                Input::Loaded { ticket: *ticket, record: record.as_deref() }
            }
        }
    }
}

/// How much is in logs, or was written to them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LogVolume {
    /// How many records.
    pub(crate) records: u64,
    /// How many bytes of a log they take.
    pub(crate) bytes: u64,
}

impl LogVolume {
    /// A record's head in a log, in bytes.
    const HEAD_BYTES: u64 = 32;

    const fn add(&mut self, record: &[u8]) {
        self.records += 1;
        self.bytes += record.len() as u64 + Self::HEAD_BYTES;
    }

    /// How much more that is than what there was `before`.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self { records: self.records - before.records, bytes: self.bytes - before.bytes }
    }
}

impl Sum for LogVolume {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            records: sum.records + one.records,
            bytes: sum.bytes + one.bytes,
        })
    }
}

/// Something that this life must tell the protocol about a log, as a file beside it that outlasts lives:
/// a life that ends before what follows from it is written would leave the next one ignorant.
#[derive(Debug)]
struct LogMarker(PathBuf);

impl LogMarker {
    /// The mark beside the log in the directory `path`, which is opened next: it is there until
    /// [`LogMarker::clear`].
    fn set(path: &Path, kind: &str) -> io::Result<Self> {
        let mark = Self(path.with_extension(kind));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).open(&mark.0)?;
        // Also if it was there: the life that made it may have ended before it was durable.
        sync_folder_of(&mark.0)?;
        Ok(mark)
    }

    /// Whether an earlier life left it.
    fn is_set(path: &Path, kind: &str) -> bool {
        path.with_extension(kind).exists()
    }

    /// Records that were reported written may be gone from the log in the directory `path`, whose disk failed: the
    /// next life must know, though the machine runs.
    fn doubt(path: &Path) {
        if let Err(e) = Self::set(path, DOUBT) {
            let mark = path.with_extension(DOUBT);
            tracing::error!(
                "{}: {e}: records of the log may be lost with the memory of the kernel, and nothing says so to the next \
                 start: make this file, empty, before the node is started again",
                mark.display()
            );
        }
    }

    /// It was reported, and its consequences are kept.
    fn clear(self) {
        if let Err(e) = fs::remove_file(&self.0) {
            tracing::warn!("{}: {e}: the next start asks the others once more", self.0.display());
        }
    }
}

/// Has the next life take the log in the directory `path` for one that is gone.
pub(crate) fn mark_lost(path: &Path) -> io::Result<()> {
    LogMarker::set(path, LOST).map(drop)
}

/// Why a log cannot be opened; the sentence says what to do.
#[derive(Debug)]
pub(crate) enum UnopenedLog {
    /// It cannot be used as it is.
    Unusable(String),
    /// It had lost its end or its beginning, and has been made to open: the next start has its process ask the
    /// others what it had promised.
    CutShort(String),
}

impl fmt::Display for UnopenedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unusable(why) | Self::CutShort(why)) = self;
        f.write_str(why)
    }
}

/// The reaction to an error of the log in the directory `path`. A log of which only the end or the first
/// segments are missing, or that cannot prove that they are not, is repaired so that it opens, and the cut bytes
/// are kept: the other acceptors know how far it is valid. A log without
/// any segment is moved aside, and a new one is made. Any other damage is for people.
fn mend(path: &Path, why: &StorageError) -> UnopenedLog {
    let unusable = UnopenedLog::Unusable(why.to_string());
    if !why.is_damage() && !matches!(why, StorageError::Missing { .. }) {
        return unusable;
    }
    match set_aside(path) {
        Ok(Some(aside)) => {
            return UnopenedLog::CutShort(format!(
                "no segment of the log in {} is left, so that it is lost. Its directory is now {}, and a new log \
                 is made; the node asks the others what it had promised before it votes again",
                path.display(),
                aside.display()
            ));
        }
        Ok(None) => {}
        Err(e) => return UnopenedLog::Unusable(format!("{why} (it cannot be moved aside: {e})")),
    }
    match repair_end(path) {
        Ok(Some(RemovedRecords { from, kept, .. })) => {
            let kept: Vec<_> = kept.iter().map(|file| file.display().to_string()).collect();
            let aside = match kept.is_empty() {
                true => "nothing had to be cut off".to_string(),
                false => format!("what was there is kept in {}", kept.join(", ")),
            };
            let what = match why {
                StorageError::Damaged(damage) => damage.says(),
                // It may be whole; nothing says so.
                other => other.to_string(),
            };
            UnopenedLog::CutShort(format!(
                "{what}. The log in {} was made to open with what is left: its next record is {from}, and {aside}; \
                 the node asks the others what it had promised before it votes again",
                path.display()
            ))
        }
        Ok(None) => unusable,
        Err(e) => UnopenedLog::Unusable(format!("{why} (it cannot be made to open: {e})")),
    }
}

/// The end of the log may be missing. The log itself says so once, when it is opened.
const DOUBT: &str = "doubt";

/// The log of a process.
#[derive(Debug)]
pub(crate) struct ReplicaLog {
    log: Wal,
    path: PathBuf,
    id: LogId,
    /// The log's number of the record that is number 0 for the protocol: the protocol learns numbers from the records
    /// that are there, and counts from 0 where none is. Not 0 if all records were trimmed or cut off.
    base: u64,
    holds: bool,
    /// The records found in it, and those appended.
    volume: LogVolume,
    done: VecDeque<LogEvent>,
    /// Until something was written.
    doubt: Option<LogMarker>,
    /// Until something is durable; where the protocol waits for no disk, until something is written: it
    /// asks the others whenever the machine failed.
    lost: Option<LogMarker>,
    /// It did not take a record: no later message is sent.
    refuses: bool,
    /// Why it cannot continue.
    failed: Option<String>,
}

impl ReplicaLog {
    /// Opens the log of the process in `group`, or makes it; `each` gets what survived, the oldest first.
    /// `wake` is called when there is something to [`take`](Self::take). The last result is whether
    /// what was there before is gone, or a part of it: the log must reach as far as `end` says.
    ///
    /// # Errors
    /// When it is damaged or cannot be used.
    pub(crate) fn open(
        group: Gid,
        keeping: &LogLocation,
        (wake, end): (CompletionWaker, Option<&LogEnd>),
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<(Self, LogRecovery, bool), UnopenedLog> {
        let path = &keeping.path.join(group.to_string());
        let owner = keeping.owner.of_group(group);
        let (segment_bytes, spares) =
            if keeping.lasts { (SEGMENT_BYTES, 1) } else { (SEGMENT_BYTES_IN_MEMORY, 0) };
        let options = WalOptions { segment_bytes, spares, owner, ..WalOptions::default() };
        let holds = keeping.holds;
        let wrong = |e: io::Error| UnopenedLog::Unusable(format!("{}: {e}", path.display()));
        // An earlier life may have ended before it told.
        let is_doubted = LogMarker::is_set(path, DOUBT);
        let mut doubt =
            is_doubted.then(|| LogMarker::set(path, DOUBT)).transpose().map_err(wrong)?;
        // An empty directory is no log either: one is made there that knows of no promise.
        let mut is_lost = LogMarker::is_set(path, LOST) || !was_made(path) && keeping.is_begun();
        // Before the log is made: the next life could not tell it from one that was there.
        let mut lost = is_lost.then(|| LogMarker::set(path, LOST)).transpose().map_err(wrong)?;
        let mut volume = LogVolume::default();
        let each = |number: u64, record: &[u8]| {
            volume.add(record);
            each(number, record);
        };
        // Only now, and not before each open: one that fails, or is killed, has lost nothing by that.
        let opened = Wal::open_marking(path, &options, wake, each, || {
            doubt = Some(LogMarker::set(path, DOUBT)?);
            Ok(())
        });
        let opened = opened.inspect_err(|e| {
            if holds && e.may_lose_written() {
                LogMarker::doubt(path);
            }
        });
        let (log, mut recovered) = opened.map_err(|e| match e {
            StorageError::Misfit { why: Misfit::OtherOwner(other), .. } => {
                UnopenedLog::Unusable(keeping.owner.refuses(path, group, other))
            }
            e => mend(path, &e),
        })?;
        if let Some(end) = end.filter(|end| end.is_beyond(recovered.log, recovered.next))
            && !is_lost
        {
            tracing::error!(
                "{}: the log ends before record {}, and it was synced up to record {} when the node wrote a \
                 checkpoint: it is an older one, or was cut short",
                path.display(),
                recovered.next,
                end.synced
            );
            (is_lost, lost) = (true, Some(LogMarker::set(path, LOST).map_err(wrong)?));
        }
        recovered.lossy |= is_doubted && recovered.life > 0;
        if !recovered.lossy {
            doubt.take().into_iter().for_each(LogMarker::clear);
        }
        let done = VecDeque::new();
        let refuses = false;
        let failed = None;
        let id = recovered.log;
        let base = if volume.records == 0 { recovered.next } else { 0 };
        let path = path.clone();
        let journal =
            Self { log, path, id, base, holds, volume, done, doubt, lost, refuses, failed };
        Ok((journal, recovered, is_lost))
    }

    /// Carries out what a step asked of the log, in order.
    pub(crate) fn carry<M: Medium>(&mut self, outbox: &Outbox<M>) {
        for item in outbox.items() {
            match item {
                Output::Persist { ticket, record, awaited } => {
                    let record = outbox.bytes(*record);
                    self.volume.add(record);
                    let appended = self.log.append(*ticket, record, *awaited);
                    if let Err(e) = appended {
                        self.refuses = true;
                        // The cause of the failure is reported with its results.
                        if let AppendError::TooLong { .. } = e {
                            self.failed.get_or_insert(e.to_string());
                        }
                    }
                }
                Output::Load { ticket, number } => self.log.load(*ticket, self.base + *number),
                Output::Trim { before } => self.log.trim(self.base + *before),
                _ => {}
            }
        }
    }

    /// New messages must wait until the records before this number are with the operating system.
    pub(crate) fn behind(&self) -> u64 {
        match self.holds {
            true if self.refuses => u64::MAX,
            true => self.log.next(),
            false => 0,
        }
    }

    /// The records before this number are with the operating system.
    pub(crate) fn written(&self) -> u64 {
        self.log.written()
    }

    /// Hands over what was persisted and asked for since the last time.
    pub(crate) fn submit(&mut self) {
        self.log.submit();
    }

    /// The results of the log, one after the other.
    pub(crate) fn take(&mut self) -> Option<LogEvent> {
        let mut failure = None;
        let Self { log, holds, done, doubt, lost, .. } = self;
        let clear =
            |mark: &mut Option<LogMarker>| mark.take().into_iter().for_each(LogMarker::clear);
        log.take(|what| match what {
            Completion::Written(_) => {
                clear(doubt);
                if *holds {
                    clear(lost);
                }
            }
            Completion::Durable(ticket) => {
                clear(doubt);
                clear(lost);
                done.push_back(LogEvent::Durable(ticket));
            }
            Completion::Loaded { ticket, record } => {
                let record = record.inspect_err(|why| tracing::warn!("a record is lost: {why}"));
                done.push_back(LogEvent::Loaded(ticket, record.ok()));
            }
            Completion::Warned(e) => tracing::warn!("{e}"),
            Completion::Failed(e) => failure = Some(e),
        });
        let event = done.pop_front();
        failure.into_iter().for_each(|e| self.fail(&e));
        event
    }

    /// The log failed.
    fn fail(&mut self, e: &StorageError) {
        if self.holds && e.may_lose_written() {
            LogMarker::doubt(&self.path);
            // It stays: nothing that is written makes up for it.
            self.doubt = None;
        }
        self.failed.get_or_insert(e.to_string());
    }

    /// How many bytes it takes before the disk must catch up.
    pub(crate) fn room(&self) -> usize {
        self.log.room()
    }

    /// The volume of records found in it, and of those appended since.
    pub(crate) const fn volume(&self) -> LogVolume {
        self.volume
    }

    /// Which log it is, and how far it is synced.
    pub(crate) fn end(&self) -> LogEnd {
        LogEnd::new(self.id, self.log.synced())
    }

    /// How often it was synced.
    pub(crate) fn syncs(&self) -> u64 {
        self.log.counts().syncs
    }

    /// The counters of the log since it was opened.
    pub(crate) fn counts(&self) -> LogCounts {
        self.log.counts()
    }

    /// Why it cannot continue, if it cannot.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_owner::LogOwner;
    use crate::system::was_synced;
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
    fn write(mut journal: ReplicaLog) {
        journal.log.append(Ticket(1), b"what follows from that", true).unwrap();
        journal.submit();
        while journal.take().is_none() {
            std::thread::yield_now();
        }
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
        assert!(!was_synced(&keeping.path));
        mark_lost(&log).unwrap();
        assert!(was_synced(&keeping.path));
        keeping.begun().unwrap();
        assert!(was_synced(&keeping.path));
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
    fn that_a_log_is_lost_is_told_until_something_is_written() {
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
        for (name, damage, kept) in [
            ("zeroed", &zeroed as &dyn Fn(&mut Vec<u8>), ".cut"),
            ("halved", &halved, ".short.cut"),
        ] {
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
            assert!(open(&keeping).2, "until something is written");
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
            assert!(open(&keeping).2 && open(&keeping).2, "until something is written");
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
        assert!(open(&keeping).2, "until something is written");
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
}
