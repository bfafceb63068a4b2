//! The commands of a node's gateways that are multicast and not answered.
//!
//! The threads that execute commands look here whether anybody waits for the answer to one that changes nothing: a gateway
//! that lost its connection, or gave the node up as silent, had its commands sent through another node, and one whose
//! patience is over waits for nothing. A node that lags far behind would else execute for minutes what nobody waits for.
//! Nor is one executed while so many bytes of answers wait for its gateway that its answer would be dropped: a few bytes
//! of commands would else have a node prepare gigabytes for nothing.

use crate::command_gateway::PATIENCE;
use amcast_core::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The age from which on a command's gateway has given it up: it was handed in before it came here.
const GIVEN_UP_AFTER: Span = Span(PATIENCE.0 + 1_000_000_000);

/// A command that is multicast: its gateway, and the number that the gateway gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BroadcastCommand {
    pub(super) gateway: u64,
    pub(super) token: u64,
    /// When it was taken up.
    pub(super) since: Time,
}

/// The commands of all gateways, shared with those who execute them.
#[derive(Default)]
pub(crate) struct BroadcastCommands(Mutex<OpenCommands>);

#[derive(Default)]
struct OpenCommands {
    /// By the number that the member multicast it with.
    all: BTreeMap<u64, BroadcastCommand>,
    /// Those that were not executed, since their gateways have given them up, or take no answers.
    skipped: Vec<BroadcastCommand>,
    /// The gateways whose answers are dropped at present, since too many wait for them.
    full: BTreeSet<u64>,
}

impl BroadcastCommands {
    fn open(&self) -> MutexGuard<'_, OpenCommands> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open().all.len()
    }

    pub(super) fn begin(&self, seq: u64, command: BroadcastCommand) {
        self.open().all.insert(seq, command);
    }

    /// The command `seq` is answered.
    pub(super) fn end(&self, seq: u64) -> Option<BroadcastCommand> {
        self.open().all.remove(&seq)
    }

    /// A gateway is gone.
    pub(super) fn forget(&self, gateway: u64) {
        let mut open = self.open();
        open.all.retain(|_, command| command.gateway != gateway);
        open.full.remove(&gateway);
    }

    /// Answers for a gateway are dropped from now on, or are not any more.
    pub(super) fn set_full(&self, gateway: u64, is_full: bool) {
        let full = &mut self.open().full;
        _ = if is_full { full.insert(gateway) } else { full.remove(&gateway) };
    }

    /// None of the commands will be answered.
    pub(super) fn forget_all(&self) {
        let mut open = self.open();
        (open.all, open.skipped) = (BTreeMap::new(), Vec::new());
    }

    /// Whether somebody waits for the answer to the command `seq`, which changes nothing, and would receive it. If not, it
    /// is not to be executed, and is no more under way.
    pub(crate) fn awaits(&self, seq: u64, now: Time) -> bool {
        let mut open = self.open();
        let Some(command) = open.all.get(&seq).copied() else { return false };
        if now < command.since + GIVEN_UP_AFTER && !open.full.contains(&command.gateway) {
            return true;
        }
        open.all.remove(&seq);
        open.skipped.push(command);
        false
    }

    /// The commands that were not executed, since it was asked last.
    pub(super) fn take_skipped(&self) -> Vec<BroadcastCommand> {
        std::mem::take(&mut self.open().skipped)
    }
}
