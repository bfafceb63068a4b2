//! The log of one process of a node, as its driver has it: records that the protocol persists, and
//! what the disk says of them.
//!
//! What a protocol does not wait for must still survive the end of its process. So where nothing is
//! awaited, what the process says after such a record is held back until the operating system has the
//! record ([`Journal::behind`]): some tens of microseconds. Where the protocol awaits what it promises,
//! it holds back itself.

use crate::home::Keeping;
use amcast_core::Input;
use amcast_core::step::{Medium, Outbox, Output, Ticket};
use amcast_storage::{Done, Log, Options, Recovered, Refused, Wake};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How long a piece of a log is on a disk, in bytes. A node writes one for each of its processes when
/// it starts for the first time, and keeps a spare one.
const SEGMENT_BYTES: u64 = 16 << 20;

/// The same where the log goes with the cluster: it lies in memory, most likely.
const SEGMENT_BYTES_IN_MEMORY: u64 = 4 << 20;

/// What the log of a process takes at its start, in bytes, and needs to go on.
pub(crate) const fn bytes_at_start(lasts: bool) -> u64 {
    // One is written, and one is there when it is full.
    2 * if lasts { SEGMENT_BYTES } else { SEGMENT_BYTES_IN_MEMORY }
}

/// What the log has done for the protocol.
#[derive(Debug)]
pub(crate) enum Kept {
    /// The record with this ticket is durable.
    Durable(Ticket),
    /// A record was read; none if it cannot be.
    Loaded(Ticket, Option<Vec<u8>>),
}

impl Kept {
    /// What the protocol is told.
    pub(crate) fn input<M: Medium>(&self) -> Input<'_, M> {
        match self {
            Self::Durable(ticket) => Input::Durable(*ticket),
            Self::Loaded(ticket, record) => {
                Input::Loaded { ticket: *ticket, record: record.as_deref() }
            }
        }
    }
}

/// That the end of a log may be missing, as a file beside it that outlasts lives. The log itself says so
/// once, when it is opened; a life that ends before it wrote what follows from that leaves the next one
/// as ignorant as it was.
#[derive(Debug)]
struct Doubt(PathBuf);

impl Doubt {
    /// The doubt about the log in the directory `path`, which is opened next: it is there until
    /// [`Doubt::settle`]. Whether an earlier life left it.
    fn raise(path: &Path) -> io::Result<(Self, bool)> {
        let doubt = Self(path.with_extension("doubt"));
        let was = doubt.0.exists();
        if !was {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&doubt.0)?;
            File::open(path.parent().unwrap_or(path))?.sync_all()?;
        }
        Ok((doubt, was))
    }

    /// There is none any more.
    fn settle(self) {
        if let Err(e) = fs::remove_file(&self.0) {
            tracing::warn!("{}: {e}: the next start asks the others once more", self.0.display());
        }
    }
}

/// The log of a process.
#[derive(Debug)]
pub(crate) struct Journal {
    log: Log,
    holds: bool,
    done: VecDeque<Kept>,
    /// Until something was written.
    doubt: Option<Doubt>,
    /// Why it cannot go on.
    failed: Option<String>,
}

impl Journal {
    /// Opens the log in the directory, or makes it; `each` gets what survived, the oldest first.
    /// `wake` is called when there is something to [`take`](Self::take).
    ///
    /// # Errors
    /// When it is damaged or cannot be used; the sentence says what to do.
    pub(crate) fn open(
        path: &Path,
        keeping: &Keeping,
        wake: Wake,
        each: impl FnMut(u64, &[u8]),
    ) -> Result<(Self, Recovered), String> {
        let (segment_bytes, spares) =
            if keeping.lasts { (SEGMENT_BYTES, 1) } else { (SEGMENT_BYTES_IN_MEMORY, 0) };
        let options = Options { segment_bytes, spares, ..Options::default() };
        let holds = keeping.holds;
        let wrong = |e: io::Error| format!("{}: {e}", path.display());
        let (doubt, was) = Doubt::raise(path).map_err(wrong)?;
        let opened = Log::open(path, &options, wake, each);
        let (log, mut recovered) = opened.map_err(|e| e.to_string())?;
        recovered.lossy |= was && recovered.life > 0;
        let mut doubt = Some(doubt);
        if !recovered.lossy {
            doubt.take().into_iter().for_each(Doubt::settle);
        }
        Ok((Self { log, holds, done: VecDeque::new(), doubt, failed: None }, recovered))
    }

    /// Carries out what a step asked of the log, in order.
    pub(crate) fn carry<M: Medium>(&mut self, outbox: &Outbox<M>) {
        for item in outbox.items() {
            match item {
                Output::Persist { ticket, record, awaited } => {
                    let appended = self.log.append(*ticket, outbox.bytes(*record), *awaited);
                    // Why it failed is said with what it has done.
                    if let Err(e @ Refused::TooLong { .. }) = appended {
                        self.failed.get_or_insert(e.to_string());
                    }
                }
                Output::Load { ticket, number } => self.log.load(*ticket, *number),
                Output::Trim { before } => self.log.trim(*before),
                _ => {}
            }
        }
    }

    /// What is said now must wait until the records before this number are with the operating system.
    pub(crate) fn behind(&self) -> u64 {
        if self.holds { self.log.next() } else { 0 }
    }

    /// The records before this number are with the operating system.
    pub(crate) fn written(&self) -> u64 {
        self.log.written()
    }

    /// Hands over what was persisted and asked for since the last time.
    pub(crate) fn submit(&mut self) {
        self.log.submit();
    }

    /// What the log has done, one after the other.
    pub(crate) fn take(&mut self) -> Option<Kept> {
        let Self { log, done, doubt, failed, .. } = self;
        let mut settle = || doubt.take().into_iter().for_each(Doubt::settle);
        log.take(|what| match what {
            Done::Written(_) => settle(),
            Done::Durable(ticket) => {
                settle();
                done.push_back(Kept::Durable(ticket));
            }
            Done::Loaded { ticket, record } => {
                let record = record.inspect_err(|why| tracing::warn!("a record is lost: {why}"));
                done.push_back(Kept::Loaded(ticket, record.ok()));
            }
            Done::Warned(e) => tracing::warn!("{e}"),
            Done::Failed(e) => _ = failed.get_or_insert(e.to_string()),
        });
        done.pop_front()
    }

    /// How many bytes it takes before the disk must catch up.
    pub(crate) fn room(&self) -> usize {
        self.log.room()
    }

    /// How often it was synced.
    pub(crate) fn syncs(&self) -> u64 {
        self.log.counts().syncs
    }

    /// Why it cannot go on, if it cannot.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_doubt_stays_until_something_is_written() {
        let dir = std::env::temp_dir().join(format!("amcast-doubt-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("g0");
        let keeping = Keeping {
            path: dir.clone(),
            begun: dir.join("begun"),
            holds: true,
            lasts: false,
            lived: false,
        };
        let open = || Journal::open(&path, &keeping, Arc::new(|| {}), |_, _| {}).unwrap();
        assert!(!open().1.lossy, "it is new");
        assert!(!path.with_extension("doubt").exists());
        // A life that was told, and ended before it wrote anything.
        fs::write(path.with_extension("doubt"), "").unwrap();
        assert!(open().1.lossy && open().1.lossy, "again and again");
        let (mut journal, _) = open();
        journal.log.append(Ticket(1), b"what follows from that", true).unwrap();
        journal.submit();
        while journal.take().is_none() {
            std::thread::yield_now();
        }
        drop(journal);
        assert!(!open().1.lossy);
        fs::remove_dir_all(&dir).unwrap();
    }
}
