//! The distributed log: named logs of values, as a state machine over shards [MRP 6.2].
//!
//! The three types to know are [`Logs`] (the machine), [`LogShard`] (the logs of one shard) and [`LogCommand`] (what is ordered).
//! [`proto`] is made of the public `proto/amcast/log/v1/log.proto`, which says what each call does and promises; the
//! [`LogSession`] repeats requests safely over all gateways of a cluster.
//!
//! Read `shard.rs`, [`command`], then [`storage`] and `segments.rs` (where values are).
//!
//! Apart from these, [`partition_log`] is one log that takes appends in every component of a partition.
//!
//! A log lives in one shard, by the hash of its name, as a key of the store does. Its positions count
//! from 0, are never given twice and stay what they are when values in front are trimmed away. A
//! command that appends to several logs does so at one moment, in all of their shards.
//!
//! # Bounds
//! The size of a shard's logs is bounded ([`Logs::new`], [`Logs::on_disk`]): an append that would pass a
//! bound does nothing and says so, and a trim or the end of a log makes room. The size is computed by a
//! fixed rule, and never from the present memory or files of a replica. Whether there is room must not
//! depend on which of two appends a replica happens to run first: so all commands that change logs of a
//! shard conflict, and run in the order of the shard. Only reads run beside others.

#![forbid(unsafe_code)]

pub mod client;
pub mod command;
mod digest;
pub mod partition_log;
mod rows;
mod segments;
mod shard;
mod snapshot;
pub mod storage;
pub mod store_and_log;
#[cfg(test)]
mod tests;
mod writer;

/// Messages, server and client as the .proto file has them.
#[allow(missing_docs, unreachable_pub, clippy::all, rust_2018_idioms)]
pub mod proto {
    tonic::include_proto!("amcast.log.v1");

    /// The description of the service, for reflection.
    pub const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/log.bin"));
}

pub use client::{LogError, LogSession, PATIENCE};
pub use command::{Addition, LogAnswer, LogCommand, Rejection};
pub use partition_log::{PartitionLog, PartitionLogAnswer, PartitionLogCommand, PartitionLogState};
pub use segments::{LogDisk, UNUSABLE};
pub use shard::{Extent, LogBytes, LogShard};
pub use store_and_log::{StoreAndLog, StoreAndLogShard};

use amcast_core::{GroupSet, Outcome};
use amcast_kv::SlotMap;
use amcast_smr::digest::Slice;
use amcast_smr::hash::hash_bytes;
use amcast_smr::machine::{
    Access, Corrupt, ExecutionPoint, MachinePart, Refusal, ShardPosition, ShardedMachine, Use,
};
use amcast_smr::stream::{Piece, StreamReader};
use command::{ValuesWriter, check, read_cost};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use storage::ValueStorage;

/// Bytes of a log's name.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes that the logs of a node may hold unless somebody says otherwise [MRP 7.3].
pub const NODE_BYTES: usize = 200_000_000;

/// Bytes that the logs of a node may hold where they lie in files, unless somebody says otherwise.
pub const DISK_BYTES: usize = 10_000_000_000;

/// Bytes of one read's values, beside the last one: with the largest value it still fits into what
/// clients of gRPC take.
pub const READ_BYTES_MAX: u32 = 3_000_000;

/// Values of one read.
pub const READ_VALUES_MAX: u32 = 100_000;

/// Keys the hashes of names, apart from those of the store's keys. Equal ones cost waiting, never
/// correctness.
const SEED: u64 = 0x616d_6c6f_6773;

/// The key that every command uses which changes logs of a shard.
const ROOM: u64 = 0x726f_6f6d;

/// Told a log's name and how far it goes when it has grown, or when a state in which it may have was
/// read; without the latter when it was deleted. Called where commands are executed: must not wait.
pub type OnGrowth = Arc<dyn Fn(&[u8], Option<Extent>) + Send + Sync>;

/// The commands of the log, over [`LogShard`]s.
#[derive(Clone)]
pub struct Logs {
    map: SlotMap,
    /// The bound on the logs of one shard.
    shard: LogBytes,
    /// Where values go beside memory, if anywhere.
    disk: Option<LogDisk>,
    on_growth: Option<OnGrowth>,
}

impl Logs {
    /// Logs over `shards` shards, those of a node holding at most `node_bytes`, in equal parts; the
    /// same on all nodes.
    pub const fn new(shards: usize, node_bytes: usize) -> Self {
        let bytes = node_bytes / shards;
        let shard = LogBytes { all: bytes, index: bytes };
        Self { map: SlotMap::new(shards), shard, disk: None, on_growth: None }
    }

    /// Logs whose values are in files in `directory`: those of a node at most `disk_bytes` with all
    /// that belongs to them. In memory are `memory_bytes` at most, but for what waits to be written: seven eighths at
    /// most of names and of what says where values lie, which makes a bound of its own for logs, and recent values in the
    /// rest. Both bounds are the same on all nodes. The files go with the process.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn on_disk(
        shards: usize,
        memory_bytes: usize,
        disk_bytes: usize,
        directory: &Path,
    ) -> io::Result<Self> {
        let share = memory_bytes / shards;
        let shard = LogBytes { all: disk_bytes / shards, index: share - share / 8 };
        let disk = Some(LogDisk::new(directory, share)?);
        Ok(Self { map: SlotMap::new(shards), shard, disk, on_growth: None })
    }

    /// The same logs, which report their new ends to `on_growth`. The effects of commands are the
    /// same.
    #[must_use]
    pub fn telling(self, on_growth: OnGrowth) -> Self {
        Self { on_growth: Some(on_growth), ..self }
    }

    /// The shards that `command` has to be sent to.
    pub fn destinations(map: SlotMap, command: &LogCommand<'_>) -> GroupSet {
        let of = |log: &[u8]| GroupSet::one(map.of_key(log));
        match command {
            LogCommand::Append(additions) => {
                additions.iter().fold(GroupSet::EMPTY, |dst, a| dst.or(of(a.log)))
            }
            LogCommand::Read { log, .. }
            | LogCommand::Trim { log, .. }
            | LogCommand::Delete { log } => of(log),
            LogCommand::Extents(logs) => {
                logs.iter().fold(GroupSet::EMPTY, |dst, log| dst.or(of(log)))
            }
            LogCommand::List { .. } => map.all(),
        }
    }

    /// Runs a command that decoded and whose logs are in the destinations.
    fn run(
        &self,
        body: &[u8],
        command: &LogCommand<'_>,
        shards: &mut CommandShards<'_, '_>,
    ) -> LogAnswer {
        match command {
            LogCommand::Append(additions) => self.append(check(body), additions, shards),
            LogCommand::Trim { log, before } => {
                let check = check(body);
                match shards.of(log).trim(log, *before) {
                    Some(extent) => LogAnswer::Trimmed { check, extent },
                    None => LogAnswer::Not(Rejection::Unknown { check }),
                }
            }
            LogCommand::Delete { log } => {
                let check = check(body);
                match shards.of(log).delete(log) {
                    Some(extent) => LogAnswer::Deleted { check, extent },
                    None => LogAnswer::Not(Rejection::Unknown { check }),
                }
            }
            LogCommand::Extents(logs) => {
                LogAnswer::Extents(logs.iter().map(|log| shards.of(log).extent(log)).collect())
            }
            LogCommand::List { after, most } => {
                let most = usize::from(*most).min(command::LIST_MAX);
                let each = shards.parts.iter().flat_map(|part| part.behind(after).take(most));
                let mut all: Vec<_> = each.map(|(name, extent)| (name.to_vec(), extent)).collect();
                all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
                all.truncate(most);
                LogAnswer::Listed(all)
            }
            LogCommand::Read { .. } => unreachable!("values are written where they lie"),
        }
    }

    fn append(
        &self,
        check: u32,
        additions: &[Addition<'_>],
        shards: &mut CommandShards<'_, '_>,
    ) -> LogAnswer {
        for (i, place) in shards.places.iter().enumerate() {
            let here = additions.iter().filter(|a| shards.map.of_key(a.log) == place.shard);
            let held = shards.parts[i].held_with(here.map(|a| (a.log, a.value)));
            if held.all > self.shard.all {
                return LogAnswer::Not(Rejection::Full { check, most: self.shard.all as u64 });
            }
            if held.index > self.shard.index {
                return LogAnswer::Not(Rejection::TooMany { check, most: self.shard.index as u64 });
            }
        }
        let positions = additions.iter().map(|a| shards.of(a.log).append(a.log, a.value));
        LogAnswer::Appended { check, positions: positions.collect() }
    }
}

/// The shards of a command.
struct CommandShards<'a, 'b> {
    map: SlotMap,
    places: &'a [ShardPosition],
    /// Those of `places`, one for one.
    parts: &'a mut [&'b mut LogShard],
}

impl CommandShards<'_, '_> {
    /// The shard of a log, which is one of the destinations.
    fn of(&mut self, log: &[u8]) -> &mut LogShard {
        let shard = self.map.of_key(log);
        let index = self.places.iter().position(|p| p.shard == shard);
        self.parts[index.expect("the destinations were looked at")]
    }

    /// Writes the values of a read.
    fn read(&mut self, read: (&[u8], u64), values_max: u32, bytes_max: u32, to: &mut Vec<u8>) {
        let (log, from) = read;
        let part = self.of(log);
        let why = match part.extent(log) {
            None => Rejection::Unknown { check: 0 },
            Some(extent) if from < extent.first => Rejection::Gone { first: extent.first },
            Some(extent) => {
                let mut out = ValuesWriter::begin(from, extent, to);
                let mut left = bytes_max.min(READ_BYTES_MAX) as usize;
                let mut values = values_max.min(READ_VALUES_MAX);
                if values > 0 {
                    part.values_from(log, from, &mut |value| {
                        out.value(value);
                        left = left.saturating_sub(read_cost(value.len()));
                        values -= 1;
                        match left.min(values as usize) {
                            0 => ControlFlow::Break(()),
                            _ => ControlFlow::Continue(()),
                        }
                    });
                }
                return;
            }
        };
        LogAnswer::Not(why).encode(to);
    }
}

impl ShardedMachine for Logs {
    type Part = LogShard;

    fn part(&self) -> LogShard {
        LogShard::new(ValueStorage::new(self.disk.as_ref()), self.on_growth.clone())
    }

    fn access(&self, command: &[u8], _dst: GroupSet, access: &mut Access) {
        let Some(command) = LogCommand::decode(command) else { return };
        let write = command.writes();
        let mut uses = |log: &[u8]| {
            let shard = self.map.of_key(log);
            access.uses.push(Use { shard, key: hash_bytes(SEED, log), write });
            if write {
                access.uses.push(Use { shard, key: ROOM, write });
            }
        };
        match &command {
            LogCommand::Append(additions) => additions.iter().for_each(|a| uses(a.log)),
            LogCommand::Read { log, .. }
            | LogCommand::Trim { log, .. }
            | LogCommand::Delete { log } => {
                uses(log);
            }
            LogCommand::Extents(logs) => logs.iter().for_each(|log| uses(log)),
            LogCommand::List { .. } => access.whole = true,
        }
    }

    fn apply<'a>(
        &self,
        at: &ExecutionPoint<'a>,
        parts: &'a mut [&'a mut LogShard],
        body: &[u8],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let command = LogCommand::decode(body);
        let Some(command) = command.filter(|c| Self::destinations(self.map, c).within(at.dst))
        else {
            LogAnswer::Not(Rejection::Malformed).encode(answer);
            return Rejection::Malformed.outcome();
        };
        let mut shards = CommandShards { map: self.map, places: at.places, parts };
        match command {
            LogCommand::Read { log, from, values_max, bytes_max } => {
                shards.read((log, from), values_max, bytes_max, answer);
                Outcome::Executed
            }
            other => {
                let made = self.run(body, &other, &mut shards);
                made.encode(answer);
                made.outcome()
            }
        }
    }

    fn outcome_of_kept(&self, kept: &[u8]) -> Outcome {
        LogAnswer::decode(kept).map_or(Outcome::Unknown, |answer| answer.outcome())
    }

    fn refuse(&self, why: Refusal, _command: &[u8], answer: &mut Vec<u8>) {
        LogAnswer::Not(Rejection::Refused(why)).encode(answer);
    }
}

impl MachinePart for LogShard {
    fn items(&self) -> (usize, usize) {
        (self.values(), 0)
    }

    fn due_ms(&self) -> Option<u64> {
        None
    }

    fn sweep(&mut self, _now_ms: u64) {}

    fn capture(&mut self) {
        self.begin_snapshot();
    }

    fn piece(&mut self, to: &mut Piece<'_>) -> bool {
        self.give_cut(to)
    }

    fn release(&mut self) {
        self.end_cut();
    }

    fn kept(&self) -> usize {
        self.kept_aside()
    }

    fn read(&mut self, from: &mut StreamReader<'_>) -> Result<(), Corrupt> {
        self.read_cut(from)
    }

    fn digest(&self, slice: &mut Slice<'_>) {
        digest::cover(self, slice);
    }
}
