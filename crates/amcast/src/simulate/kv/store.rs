//! The state machine of the nodes of a simulated store: the store and the log on the same shards,
//! as real nodes do.

use super::super::{ServiceShape, SimulatedService};
use crate::simulate::ServiceMutant;
use amcast_core::{GroupSet, Outcome};
use amcast_kv::{
    HashSeed, Kv, Partitions, batch, decode_args, encode_args, encode_epoch, split_epoch,
};
use amcast_log::{Logs, NODE_BYTES};
use amcast_log::{StoreAndLog, StoreAndLogShard};
use amcast_smr::machine::{Access, ExecutionPoint, Growth, Refusal, ShardedMachine};
use std::ops::Range;

/// Keys that one command of a move looks at: few, so that moves are under way for long.
const MOVE_KEYS: usize = 2;

/// The store and the log.
pub struct SimulatedStore {
    inner: StoreAndLog,
    /// Keys that move to a later shard are dropped.
    drops: bool,
    /// Each SET writes a key that nobody reads, too.
    writes_unread: bool,
    /// The last command of a batch is answered only.
    loses_batched: bool,
    /// The bytes that the first commands of a batch take count for no later one.
    counts_none_of_batch: bool,
    /// In place of any new budget this one comes into force, with which the run began.
    kept_budget: Option<u64>,
}

impl SimulatedService for SimulatedStore {
    fn over(shape: &ServiceShape) -> Self {
        let ServiceShape { shards, rank, mutant, maxmemory } = *shape;
        let store = Kv::over(Partitions::by_slot(shards).into(), HashSeed::Fixed(1))
            .with_move_keys(MOVE_KEYS)
            .with_maxmemory(maxmemory);
        Self {
            inner: StoreAndLog::new(store, Logs::new(shards, NODE_BYTES)),
            drops: mutant == Some(ServiceMutant::DropsMovedKeys),
            writes_unread: rank == 0 && mutant == Some(ServiceMutant::DiffersUnread),
            loses_batched: mutant == Some(ServiceMutant::LosesBatched),
            counts_none_of_batch: mutant == Some(ServiceMutant::CountsNoneOfBatch),
            kept_budget: (mutant == Some(ServiceMutant::KeepsBudget)).then_some(maxmemory),
        }
    }
}

fn is_named(command: &[u8], name: &str) -> bool {
    let mut args = Vec::new();
    decode_args(split_epoch(command).1, &mut args).is_some()
        && args.first().is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()))
}

/// A command that writes a key of the same slot besides, which nobody reads, if this one is a SET.
fn with_unread_key(command: &[u8]) -> Option<Vec<u8>> {
    let (epoch, rest) = split_epoch(command);
    let mut args = Vec::new();
    decode_args(rest, &mut args)?;
    let [b"SET", name, value] = args[..] else { return None };
    let key = String::from_utf8_lossy(name);
    let tag = key.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or(&*key, |(t, _)| t);
    let (unread, mut both) = (format!("{{{tag}}}unread"), Vec::new());
    encode_epoch(epoch, &mut both);
    encode_args(&[b"MSET", name, value, unread.as_bytes(), b"1"], &mut both);
    Some(both)
}

/// A command that sets this budget, if this one sets any.
fn with_budget(command: &[u8], bytes: u64) -> Option<Vec<u8>> {
    const NAME: &str = "AMCAST.MAXMEMORY";
    let mut other = Vec::new();
    encode_epoch(split_epoch(command).0, &mut other);
    encode_args(&[NAME.as_bytes(), bytes.to_string().as_bytes()], &mut other);
    is_named(command, NAME).then_some(other)
}

/// A batch without the last command, and that one, each with the epoch; none if they are fewer than three.
fn without_last(command: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (_, args) = split_epoch(command);
    let epoch = command.len() - args.len();
    let mut batched: Vec<&[u8]> = batch::commands(args).collect();
    let last = batched.pop().filter(|_| batched.len() > 1)?;
    let mut rest = command[..epoch].to_vec();
    let mut alone = rest.clone();
    rest.extend_from_slice(batched[0]);
    batched[1..].iter().for_each(|args| batch::push(&mut rest, epoch, args));
    alone.extend_from_slice(last);
    Some((rest, alone))
}

impl SimulatedStore {
    /// Executes the commands of a batch, but the last one over empty shards.
    fn lose_last<'a>(
        &self,
        at: &ExecutionPoint<'a>,
        parts: &'a mut [&'a mut StoreAndLogShard],
        (rest, last): (&[u8], &[u8]),
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let mut lost: Vec<_> = parts.iter().map(|_| self.part()).collect();
        let outcome = self.inner.apply(at, parts, rest, answer);
        if batch::answers(answer).is_some() {
            batch::put_answer(answer, |answer| {
                self.inner.apply(at, &mut lost.iter_mut().collect::<Vec<_>>(), last, answer)
            });
        }
        outcome
    }
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
            [from, _] if self.drops && is_named(command, "AMCAST.MOVE") => {
                // The arriving keys go into a part that nobody reads.
                let mut lost = self.part();
                self.inner.apply(at, &mut [&mut **from, &mut lost], command, answer)
            }
            parts => {
                if let Some((rest, last)) =
                    self.loses_batched.then(|| without_last(command)).flatten()
                {
                    return self.lose_last(at, parts, (&rest, &last), answer);
                }
                let more = self.writes_unread.then(|| with_unread_key(command)).flatten();
                let kept = || with_budget(command, self.kept_budget?);
                let other = more.or_else(kept);
                self.inner.apply(at, parts, other.as_deref().unwrap_or(command), answer)
            }
        }
    }

    fn growth(&self, command: &[u8]) -> Growth {
        let growth = self.inner.growth(command);
        match self.counts_none_of_batch {
            true => Growth::decided_once(growth.most),
            false => growth,
        }
    }

    fn is_compared(&self, command: &[u8]) -> bool {
        self.inner.is_compared(command)
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
