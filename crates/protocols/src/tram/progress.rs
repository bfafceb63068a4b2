//! The progress of a replica along the log, and of its application behind it.

/// How far a replica is. Positions are those of the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogProgress {
    /// The next log position to consume (`STD`).
    pub(crate) consumed: u64,
    /// The end of the log that is known to be decided (`FUO`: the first position that is not).
    pub(crate) decided: u64,
    /// Below this position the cursors came with a state transfer, and entries do not move them.
    pub(crate) cursors_from: u64,
    /// The position of the last delivery.
    pub(crate) delivered: u64,
    /// How far the application has applied deliveries.
    pub(crate) applied: u64,
    /// The position of the state in force in the application, if that answers what was asked for last.
    pub(crate) installed: Option<u64>,
    /// How many states the driver was asked for.
    pub(crate) needs: u64,
    /// How often it began to lag while its application waited for a state, since it was up to date last: so often the bound of what
    /// waits for its application doubles.
    pub(crate) broken_off: u32,
    /// Entries before this position are applied and not needed here; only grows within a life.
    pub(crate) clear: u64,
}

impl LogProgress {
    /// Continues at `position`, from the head of a state transfer.
    pub(crate) fn resume(&mut self, position: u64, delivered: u64, cursors_from: u64) {
        (self.consumed, self.delivered, self.applied) = (position, delivered, delivered);
        self.clear = position;
        self.decided = self.decided.max(position);
        self.cursors_from = cursors_from;
    }

    /// The driver is asked for another state: one that is in force does not answer that.
    pub(crate) const fn need_state(&mut self) {
        self.needs += 1;
        self.installed = None;
    }

    /// The application has a state in force that holds every delivery up to `position`. Says whether it answers the last
    /// need: one that was in force before that was reported does not, at any position.
    pub(crate) fn install(&mut self, position: u64, needs: u64) -> bool {
        let answers = needs >= self.needs;
        if answers {
            self.installed = self.installed.max(Some(position));
            // The state may go further than the need: the application does not report that part again.
            self.applied = self.applied.max(position);
        }
        answers
    }

    /// Whether a state is in force that answers the last need, up to this position.
    pub(crate) fn has_installed(&self, awaited: u64) -> bool {
        self.installed.is_some_and(|position| position >= awaited)
    }

    /// The position from which the reader of this replica's state continues, if that holds deliveries up to `applied`.
    ///
    /// If nothing that was delivered is missing in the application's state, what was consumed after the last
    /// delivery counts, too. And what is clear holds no delivery beyond the ones that were applied.
    pub(crate) fn given_with(&self, applied: u64) -> u64 {
        if applied == self.delivered { self.consumed } else { applied.max(self.clear) }
    }

    /// Everything that is applied is no longer needed here.
    pub(crate) fn clear_applied(&mut self) {
        let applied = if self.applied >= self.delivered { self.consumed } else { self.applied };
        self.clear = self.clear.max(applied);
    }
}
