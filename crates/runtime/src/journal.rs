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
use std::path::Path;

/// How long a piece of a log is on a disk, in bytes. A node writes one for each of its processes when
/// it starts for the first time, and keeps a spare one.
const SEGMENT_BYTES: u64 = 16 << 20;

/// The same where the log goes with the cluster: it lies in memory, most likely.
const SEGMENT_BYTES_IN_MEMORY: u64 = 4 << 20;

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

/// The log of a process.
#[derive(Debug)]
pub(crate) struct Journal {
    log: Log,
    holds: bool,
    done: VecDeque<Kept>,
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
        let (log, recovered) = Log::open(path, &options, wake, each).map_err(|e| e.to_string())?;
        Ok((Self { log, holds, done: VecDeque::new(), failed: None }, recovered))
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
        let Self { log, done, failed, .. } = self;
        log.take(|what| match what {
            Done::Written(_) => {}
            Done::Durable(ticket) => done.push_back(Kept::Durable(ticket)),
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
