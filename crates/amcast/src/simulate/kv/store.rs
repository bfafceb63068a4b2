//! The state machine of the nodes of a simulated store: the store and the log on the same shards,
//! as real nodes do.

use super::super::{ServiceShape, SimulatedService};
use crate::simulate::ServiceMutant;
use amcast_core::{GroupSet, Outcome};
use amcast_kv::{HashSeed, Kv, Partitions, decode_args, split_epoch};
use amcast_log::{Logs, NODE_BYTES};
use amcast_log::{StoreAndLog, StoreAndLogShard};
use amcast_smr::machine::{Access, ExecutionPoint, Refusal, ShardedMachine};
use std::ops::Range;

/// Keys that one command of a move looks at: few, so that moves are under way for long.
const MOVE_KEYS: usize = 2;

/// The store and the log.
pub struct SimulatedStore {
    inner: StoreAndLog,
    /// Keys that move to a later shard are dropped.
    drops: bool,
}

impl SimulatedService for SimulatedStore {
    fn over(shape: &ServiceShape) -> Self {
        let ServiceShape { shards, mutant } = *shape;
        let store = Kv::over(Partitions::by_slot(shards).into(), HashSeed::Fixed(1));
        let inner =
            StoreAndLog::new(store.with_move_keys(MOVE_KEYS), Logs::new(shards, NODE_BYTES));
        Self { inner, drops: mutant == Some(ServiceMutant::DropsMovedKeys) }
    }
}

fn moves_keys(command: &[u8]) -> bool {
    let mut args = Vec::new();
    decode_args(split_epoch(command).1, &mut args).is_some()
        && args.first().is_some_and(|name| name.eq_ignore_ascii_case(b"AMCAST.MOVE"))
}

impl ShardedMachine for SimulatedStore {
    type Part = StoreAndLogShard;

    fn part(&self) -> StoreAndLogShard {
        self.inner.part()
    }

    fn access(&self, command: &[u8], dst: GroupSet, access: &mut Access) {
        self.inner.access(command, dst, access);
    }

    fn apply<'a>(
        &self,
        at: &ExecutionPoint<'a>,
        parts: &'a mut [&'a mut StoreAndLogShard],
        command: &[u8],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        match parts {
            [from, _] if self.drops && moves_keys(command) => {
                // The arriving keys go into a part that nobody reads.
                let mut lost = self.part();
                self.inner.apply(at, &mut [&mut **from, &mut lost], command, answer)
            }
            parts => self.inner.apply(at, parts, command, answer),
        }
    }

    fn growth(&self, command: &[u8]) -> u64 {
        self.inner.growth(command)
    }

    fn is_short(&self, command: &[u8]) -> bool {
        self.inner.is_short(command)
    }

    fn sees_expiry(&self, part: &Self::Part, command: &[u8], deadlines_ms: Range<u64>) -> bool {
        self.inner.sees_expiry(part, command, deadlines_ms)
    }

    fn kept<'a>(&self, answer: &'a [u8]) -> &'a [u8] {
        self.inner.kept(answer)
    }

    fn again(&self, part: &Self::Part, kept: &[u8], command: &[u8], answer: &mut Vec<u8>) {
        self.inner.again(part, kept, command, answer);
    }

    fn outcome_of_kept(&self, kept: &[u8]) -> Outcome {
        self.inner.outcome_of_kept(kept)
    }

    fn refuse(&self, why: Refusal, command: &[u8], answer: &mut Vec<u8>) {
        self.inner.refuse(why, command, answer);
    }
}
