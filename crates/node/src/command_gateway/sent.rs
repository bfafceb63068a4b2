//! Jobs that are sent, and wait for their answers.

use super::LATE;
use super::jobs::GatewayJob;
use amcast_core::{Span, Time};
use std::collections::BTreeMap;

/// A job that is sent.
pub(super) struct SentJob {
    pub(super) job: GatewayJob,
    pub(super) sent_at: Time,
    /// When it was sent, or the last piece of its answer came.
    pub(super) moved_at: Time,
    /// Later messages that carried it again.
    pub(super) again: Vec<u64>,
    pub(super) retry_at: Time,
    pub(super) retry_after: Span,
}

/// Jobs that are sent, by the number of the first message that carried them: the order in which
/// they were sent.
#[derive(Default)]
pub(super) struct SentJobs {
    pub(super) open: BTreeMap<u64, SentJob>,
    /// The first number for each later one.
    pub(super) alias: BTreeMap<u64, u64>,
    /// Numbers of jobs that were sent several times and are answered.
    pub(super) past: Vec<u64>,
}

impl SentJobs {
    /// The first message that carried the job which the message `seq` carried, if it is open.
    pub(super) fn first(&self, seq: u64) -> Option<u64> {
        let first = self.alias.get(&seq).copied().unwrap_or(seq);
        self.open.contains_key(&first).then_some(first)
    }

    /// A piece of the answer to the message `seq` came.
    pub(super) fn came_part(&mut self, seq: u64, now: Time) {
        if let Some(open) = self.first(seq).and_then(|first| self.open.get_mut(&first)) {
            open.moved_at = now;
            open.retry_at = now + open.retry_after;
        }
    }

    /// Since when the one waits that has waited longest, if that is for long.
    pub(super) fn late_since(&self, now: Time) -> Option<Time> {
        let old = self.open.values().take_while(|open| open.sent_at + LATE <= now);
        old.map(|open| open.moved_at).min().filter(|&moved_at| moved_at + LATE <= now)
    }

    /// Takes out the job that the message `seq` carried.
    pub(super) fn take(&mut self, seq: u64) -> Option<GatewayJob> {
        let first = self.alias.get(&seq).copied().unwrap_or(seq);
        let open = self.open.remove(&first)?;
        if !open.again.is_empty() {
            self.past.push(first);
        }
        for later in open.again {
            self.alias.remove(&later);
            self.past.push(later);
        }
        Some(open.job)
    }
}
