//! When a node skips what it has decided to skip.

use super::ReplicaHost;
use amcast_smr::application::Application;
use amcast_storage::StorageError;

impl<A: Application> ReplicaHost<A> {
    /// How many of the messages are skipped in the state in force.
    pub(super) fn count_skipped(&self) -> usize {
        self.skips.count(|msg| self.recovery.app.has_skipped(msg))
    }

    /// The messages about which not every node was met yet, so that they cannot be skipped here, for people;
    /// none if there are none.
    pub(crate) fn undecided(&self) -> Option<String> {
        self.skips.open_ones(|msg| !self.recovery.app.has_skipped(msg))
    }

    /// Skips what may be skipped and is next; `all_met` says whether this node has met all others, with the
    /// same decisions.
    ///
    /// # Errors
    /// When it cannot be written down before.
    pub(crate) fn skip(&mut self, all_met: bool) -> Result<(), StorageError> {
        if all_met {
            self.skips.agree()?;
        }
        if let Some(msg) = self.recovery.app.at_skip()
            && let Some(decision) = self.skips.begin_to_use(msg)?
        {
            tracing::warn!("{decision} is skipped, by decision of those who run the cluster");
            self.recovery.app.release_skip(msg);
        }
        let skipped = self.count_skipped();
        if skipped > self.skipped {
            // On the disk soon, where it does not depend on the decision's file any more.
            self.skipped = skipped;
            let positions = self.recovery.positions();
            self.checkpoints.iter_mut().for_each(|c| c.took_over(positions.clone()));
        }
        Ok(())
    }
}
