//! The application at a replica: the list of what was delivered, applied some time later.

use crate::early::EarlyMessages;
use crate::transfer::StateGap;
use alloc::vec::Vec;
use amcast_core::MsgId;

/// One delivered message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeliveredMessage {
    pub msg: MsgId,
    pub position: u64,
    /// The hash of the payload.
    pub payload: u64,
}

/// The application of one process in one life.
#[derive(Debug, Default)]
pub(crate) struct App {
    /// Its deliveries, its installed state included.
    pub log: Vec<DeliveredMessage>,
    /// The position that was reported applied last.
    pub applied: u64,
    /// The messages that were delivered early.
    pub early: EarlyMessages,
    /// Whether it will say so again without being asked.
    pub applying: bool,
    /// The position that the protocol has reached: of its last delivery, or where it continues from.
    pub reached: u64,
    /// The missing part of the state, unless it is whole; and the deliveries behind it.
    pub gap: Option<StateGap>,
    pub waiting: Vec<DeliveredMessage>,
    /// The process lost its state when it died, or when its group excluded it: it has none at any position.
    pub is_lost: bool,
    /// How often a state was asked for.
    pub attempts: u64,
    /// How many states the protocol reported that it needs.
    pub needs: u64,
    /// The view of the host, if there is one in its place.
    pub above: HostView,
}

/// The knowledge about the replica of a service above a process. With one the log begins behind the state that the
/// process continued from last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostView {
    /// The position of that state.
    pub base: u64,
    /// How many deliveries are in it.
    pub before: usize,
    /// How many deliveries of the group the ledger has for this life of the process.
    pub entered: usize,
    /// The highest position of a state that was reported to the process as in force.
    pub in_force: u64,
}

impl App {
    /// One that begins with the deliveries of a checkpoint.
    pub(crate) fn resumed(checkpoint: &[DeliveredMessage]) -> Self {
        let applied = checkpoint.last().map_or(0, |item| item.position);
        Self { log: checkpoint.to_vec(), applied, reached: applied, ..Self::default() }
    }

    /// One that has nothing, in the same life of its process: the counts of states that it needed continue.
    pub(crate) fn begun_anew(&self) -> Self {
        let Self { needs, attempts, .. } = *self;
        // The result of an earlier attempt is of no use.
        Self { needs, attempts: attempts + 1, is_lost: true, ..Self::default() }
    }

    /// The position of its state.
    pub(crate) fn position(&self) -> u64 {
        self.log.last().map_or(self.above.base, |item| item.position)
    }

    /// The place of its next delivery in the sequence of its group.
    pub(crate) fn place(&self) -> usize {
        self.above.before + self.log.len()
    }

    /// Continues from a state at `position`, with so many deliveries, which the host has or gets.
    pub(crate) fn go_on_from(&mut self, position: u64, deliveries: usize) {
        self.log.clear();
        (self.above.base, self.above.before) = (position, deliveries);
        self.reached = position;
    }

    /// The position up to which it may say that it has applied.
    pub(crate) fn may_apply(&self) -> u64 {
        let waits = || self.waiting.last().map_or(0, |item| item.position);
        // Deliveries that wait for a state count: nobody needs to keep them for this process.
        if self.gap.is_some() { waits() } else { self.position() }
    }

    /// How many deliveries are applied.
    pub(crate) fn applied_count(&self) -> usize {
        self.log.partition_point(|item| item.position <= self.applied)
    }
}
