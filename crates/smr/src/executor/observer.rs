//! An observer of the executor's work, so that a command that ends the process can be identified.

use super::Executor;
use crate::machine::{ShardPosition, ShardedMachine};
use amcast_core::{GroupSet, MsgId};
use std::sync::Arc;

/// A step in the execution of a command.
#[derive(Clone, Copy, Debug)]
pub struct ExecutedCommand<'a> {
    /// Its message.
    pub id: MsgId,
    /// Its destinations.
    pub dst: GroupSet,
    /// Its place in one of them.
    pub place: ShardPosition,
    /// The command, without its envelope.
    pub command: &'a [u8],
}

/// Receives each step of each command, before and after. Called on the hot path of each command,
/// from any of the executing threads: it neither blocks nor makes system calls.
///
/// At one time at most one command is being done in each slot. Its slot is its lowest shard; while a command
/// is only looked at, to find what it touches, that is the slot behind the last shard's.
pub trait ExecutionObserver: Send + Sync {
    /// A command is begun.
    fn begins(&self, slot: usize, doing: &ExecutedCommand<'_>);

    /// It has been done.
    fn ends(&self, slot: usize);
}

/// The observer, if there is one.
pub(super) type SharedObserver = Option<Arc<dyn ExecutionObserver>>;

/// Runs a step of a command, and reports it to `witness`.
pub(super) fn tell<T>(
    witness: Option<&dyn ExecutionObserver>,
    (slot, doing): (usize, ExecutedCommand<'_>),
    act: impl FnOnce() -> T,
) -> T {
    if let Some(witness) = witness {
        witness.begins(slot, &doing);
    }
    let done = act();
    if let Some(witness) = witness {
        witness.ends(slot);
    }
    done
}

impl<M: ShardedMachine> Executor<M> {
    /// Has `witness` notified of the commands under execution. Called once, before workers are employed and before the
    /// first command.
    pub fn tell(&mut self, witness: Arc<dyn ExecutionObserver>) {
        self.witness = Some(witness);
    }
}
