//! The permissions of a replica: the epoch that it has promised, and whose log is open to be written.

use super::layout::{EpochPromise, PromiseGrant};

/// A log of one term: open, or in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TermLog {
    pub(crate) writer: usize,
    pub(crate) half: usize,
    pub(crate) epoch: u32,
}

/// The promise of a replica, and the logs that follow from it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogPermissions {
    /// Its promise, and the writer to which its log is open.
    pub(crate) promise: EpochPromise,
    /// The log that is open for writing, and for which term.
    pub(crate) open: Option<TermLog>,
    /// The region that is being revoked; it is looked at once more when that is done.
    pub(crate) closing: Option<TermLog>,
    /// The highest epoch it has seen anywhere.
    pub(crate) epoch_seen: u32,
    /// The log it reads: the one of the highest epoch that was installed here.
    pub(crate) force: Option<TermLog>,
}

impl LogPermissions {
    /// Whether it has promised an epoch whose writer is not let in yet.
    pub(crate) fn is_settling(&self) -> bool {
        self.promise.grant == PromiseGrant::Closed && self.promise.epoch > 0
    }

    /// It sees an epoch somewhere.
    pub(crate) fn see(&mut self, epoch: u32) {
        self.epoch_seen = self.epoch_seen.max(epoch);
    }

    /// Promises to accept nothing below `epoch`. Gives the log that is open to another term, and to be closed.
    pub(crate) fn promise(&mut self, epoch: u32) -> Option<TermLog> {
        self.promise = EpochPromise { epoch, ..EpochPromise::default() };
        self.see(epoch);
        let open = self.open.take()?;
        self.closing = Some(open);
        Some(open)
    }

    /// Lets the writer of the promised epoch in: with or without the log that this replica had.
    pub(crate) fn let_in(&mut self, writer: usize, grant: PromiseGrant) -> TermLog {
        self.closing = None;
        let half = self.half_for(writer);
        self.promise.half = half as u8;
        self.promise.grant = grant;
        if let Some(force) = self.force {
            (self.promise.accepted, self.promise.accepted_half) = (force.epoch, force.half as u8);
        }
        let open = TermLog { writer, half, epoch: self.promise.epoch };
        self.open = Some(open);
        open
    }

    /// The half of a writer's log that a new term of it may use: not the one in force.
    pub(crate) fn half_for(&self, writer: usize) -> usize {
        match self.force {
            Some(force) if force.writer == writer => 1 - force.half,
            _ => 0,
        }
    }
}
