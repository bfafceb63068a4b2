//! The duties of a protocol with early deliveries, as far as one process shows them.

use alloc::collections::BTreeSet;
use amcast_core::MsgId;

/// The messages that a process delivered early in one life, or since it was excluded.
#[derive(Debug, Default)]
pub(crate) struct EarlyMessages {
    /// All that were delivered, early or in their places.
    shown: BTreeSet<MsgId>,
    /// Those that were delivered early and are not delivered.
    open: BTreeSet<MsgId>,
}

impl EarlyMessages {
    /// A message is delivered early.
    ///
    /// # Errors
    /// Why it must not be.
    pub(crate) fn early(&mut self, m: MsgId) -> Result<(), &'static str> {
        self.open.insert(m);
        if self.shown.insert(m) {
            return Ok(());
        }
        Err("it delivered a message early that it had delivered, early or in its place")
    }

    /// A message is delivered in its place.
    pub(crate) fn delivered(&mut self, m: MsgId) {
        self.shown.insert(m);
        self.open.remove(&m);
    }

    /// Whether messages are left that were delivered early and not in their places.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Pid;

    #[test]
    fn a_message_is_early_once_and_before_it_is_delivered() {
        let m = |seq| MsgId { sender: Pid(0), seq };
        let mut messages = EarlyMessages::default();
        assert!(messages.early(m(1)).is_ok() && messages.is_open());
        assert!(messages.early(m(1)).is_err(), "twice");
        messages.delivered(m(1));
        messages.delivered(m(2));
        assert!(!messages.is_open());
        assert!(messages.early(m(2)).is_err(), "it is delivered");
    }
}
