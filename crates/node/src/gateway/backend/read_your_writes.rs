//! The writes of a connection, which its reads at a node of this process must see.

use amcast_core::Outcome;
use amcast_smr::SessionWrite;

/// The requests that write and are not answered, or were lately.
#[derive(Default, Debug)]
pub struct SessionWrites {
    /// Each with the first request that was open when it was sent.
    all: Vec<(SessionWrite, u64)>,
}

impl SessionWrites {
    /// A request was sent that writes, when all before `open_from` were answered.
    pub fn sent(&mut self, wrote: SessionWrite, open_from: u64) {
        self.all.push((wrote, open_from));
    }

    /// A request was answered. If it was executed, a reader that sees it sees all writes of its shard that were
    /// answered before it was sent; if it was not, or nobody knows, no read waits for it. Whether it was a write that
    /// was executed.
    pub fn answered(&mut self, request: u64, outcome: Outcome) -> bool {
        let found = self.all.iter().position(|(w, _)| w.request == request);
        let Some(at) = found else { return false };
        let (SessionWrite { shard, .. }, open_from) = self.all[at];
        if outcome == Outcome::Executed {
            self.all.retain(|(w, _)| w.shard != shard || w.request >= open_from);
        } else {
            self.all.remove(at);
        }
        outcome == Outcome::Executed
    }

    /// The writes that a read must see which is sent now.
    pub fn all(&self) -> Vec<SessionWrite> {
        self.all.iter().map(|(wrote, _)| *wrote).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Gid;

    #[test]
    fn reads_wait_for_what_was_written_and_not_for_what_was_refused() {
        let mut written = SessionWrites::default();
        let wrote = |shard, request| SessionWrite { shard: Gid(shard), request, host_ms: 0 };
        let requests = |written: &SessionWrites| -> Vec<u64> {
            written.all().iter().map(|w| w.request).collect()
        };
        written.sent(wrote(0, 1), 1);
        written.answered(1, Outcome::Executed);
        // A refused write leaves the earlier one.
        written.sent(wrote(0, 2), 2);
        written.answered(2, Outcome::NotExecuted);
        assert_eq!(requests(&written), [1]);
        // Two under way together are ordered as it comes: both are awaited.
        written.sent(wrote(0, 3), 3);
        written.sent(wrote(0, 4), 3);
        written.sent(wrote(1, 5), 3);
        written.answered(4, Outcome::Executed);
        assert_eq!(requests(&written), [3, 4, 5]);
        written.answered(3, Outcome::Executed);
        written.sent(wrote(0, 6), 5);
        written.answered(6, Outcome::Executed);
        assert_eq!(requests(&written), [5, 6]);
        written.answered(9, Outcome::Executed);
        assert_eq!(requests(&written), [5, 6], "a read is not among them");
    }
}
