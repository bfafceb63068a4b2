//! The log of one process of a node, as its driver has it: records that the protocol persists, and
//! the results of writing them.
//!
//! Records for which a protocol does not wait must still survive the end of its process. So in that
//! case later messages of the process are held back until the operating system has the record
//! ([`ReplicaLog::behind`]): some tens of microseconds. A protocol that waits for its records holds
//! its messages back itself.

use crate::cluster_dir::LogLocation;
use crate::log_backpressure::LogRoom;
use crate::log_ends::LogEnd;
use crate::system::sync_folder_of;
use amcast_core::step::{Medium, Outbox, Output, Ticket};
use amcast_core::{Gid, Input, ProtocolEvent};
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
        // Durable before the replica votes: a mark that came back with the machine would have it lost once more.
        let removed = fs::remove_file(&self.0).and_then(|()| sync_folder_of(&self.0));
        if let Err(e) = removed {
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
                false => format!("the removed bytes are kept in {}", kept.join(", ")),
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
    /// Until the protocol has recovered what it had promised, and has that on its disk: the mark alone says to each
    /// start until then that the log is lost.
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
                Output::Event(ProtocolEvent::StorageRecovered) => self.recovered(),
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
        let Self { log, done, doubt, .. } = self;
        let clear =
            |mark: &mut Option<LogMarker>| mark.take().into_iter().for_each(LogMarker::clear);
        log.take(|what| match what {
            Completion::Written(_) => clear(doubt),
            Completion::Durable(ticket) => {
                clear(doubt);
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

    /// The protocol has on its disk again what was lost.
    fn recovered(&mut self) {
        self.lost.take().into_iter().for_each(LogMarker::clear);
    }

    /// How many bytes it takes before the disk must catch up.
    pub(crate) fn room(&self) -> LogRoom {
        LogRoom { free: self.log.room(), most: self.log.room_max() }
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
mod tests;
