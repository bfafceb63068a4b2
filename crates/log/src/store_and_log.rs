//! The key-value store and the distributed log on the same shards, in one order.
//!
//! A command is of the log if it begins with [`MARK`], else of the store: no command is
//! of both. They share nothing but the shards' order and the sessions, so commands of the one wait
//! for those of the other only where one touches whole shards.

use crate::command::MARK;
use crate::{LogShard, Logs};
use amcast_core::{GroupSet, Outcome};
use amcast_kv::{Kv, Store};
use amcast_smr::digest::Slice;
use amcast_smr::machine::{
    Access, Corrupt, ExecutionPoint, Growth, MachinePart, Refusal, ShardedMachine,
};
use amcast_smr::stream::{Piece, StreamReader};
use core::ops::Range;

/// Runs the commands of both.
pub struct StoreAndLog {
    store: Kv,
    logs: Logs,
}

impl StoreAndLog {
    /// Both, over as many shards.
    pub fn new(store: Kv, logs: Logs) -> Self {
        Self { store, logs }
    }

    fn is_of_log(command: &[u8]) -> bool {
        command.starts_with(&MARK)
    }
}

/// One shard's keys and logs.
pub struct StoreAndLogShard {
    keys: Store,
    logs: LogShard,
    snapshot: GivenPart,
}

/// How much of a snapshot was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GivenPart {
    Keys,
    Logs,
    None,
}

impl StoreAndLogShard {
    /// The logs.
    pub const fn logs(&self) -> &LogShard {
        &self.logs
    }
}

impl ShardedMachine for StoreAndLog {
    type Part = StoreAndLogShard;

    fn part(&self) -> StoreAndLogShard {
        StoreAndLogShard {
            keys: self.store.part(),
            logs: self.logs.part(),
            snapshot: GivenPart::None,
        }
    }

    fn access(&self, command: &[u8], dst: GroupSet, access: &mut Access) {
        match Self::is_of_log(command) {
            true => self.logs.access(command, dst, access),
            false => self.store.access(command, dst, access),
        }
    }

    fn apply<'a>(
        &self,
        at: &ExecutionPoint<'a>,
        parts: &'a mut [&'a mut StoreAndLogShard],
        command: &[u8],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        match (Self::is_of_log(command), parts) {
            (true, [one]) => self.logs.apply(at, &mut [&mut one.logs], command, answer),
            (false, [one]) => self.store.apply(at, &mut [&mut one.keys], command, answer),
            (true, parts) => {
                let mut parts: Vec<_> = parts.iter_mut().map(|p| &mut p.logs).collect();
                self.logs.apply(at, &mut parts, command, answer)
            }
            (false, parts) => {
                let mut parts: Vec<_> = parts.iter_mut().map(|p| &mut p.keys).collect();
                self.store.apply(at, &mut parts, command, answer)
            }
        }
    }

    fn growth(&self, command: &[u8]) -> Growth {
        match Self::is_of_log(command) {
            true => Growth::default(),
            false => self.store.growth(command),
        }
    }

    fn is_compared(&self, command: &[u8]) -> bool {
        match Self::is_of_log(command) {
            true => self.logs.is_compared(command),
            false => self.store.is_compared(command),
        }
    }

    fn look_ahead(&self, part: &Self::Part, commands: &mut dyn Iterator<Item = &[u8]>) {
        let mut of_store = commands.filter(|command| !Self::is_of_log(command));
        self.store.look_ahead(&part.keys, &mut of_store);
    }

    fn is_short(&self, command: &[u8]) -> bool {
        match Self::is_of_log(command) {
            true => self.logs.is_short(command),
            false => self.store.is_short(command),
        }
    }

    fn sees_expiry(&self, part: &Self::Part, command: &[u8], deadlines_ms: Range<u64>) -> bool {
        match Self::is_of_log(command) {
            true => self.logs.sees_expiry(&part.logs, command, deadlines_ms),
            false => self.store.sees_expiry(&part.keys, command, deadlines_ms),
        }
    }

    /// No answer of a log begins as a refusal of the store does: a log is called by number, and answers by one.
    fn kept<'a>(&self, answer: &'a [u8]) -> &'a [u8] {
        self.store.kept(answer)
    }

    fn again(&self, part: &Self::Part, kept: &[u8], command: &[u8], answer: &mut Vec<u8>) {
        match Self::is_of_log(command) {
            true => self.logs.again(&part.logs, kept, command, answer),
            false => self.store.again(&part.keys, kept, command, answer),
        }
    }

    /// A log answers by a number below any character that an answer of the store begins with.
    fn outcome_of_kept(&self, kept: &[u8]) -> Outcome {
        match kept.first() {
            Some(0..b' ') => self.logs.outcome_of_kept(kept),
            _ => self.store.outcome_of_kept(kept),
        }
    }

    fn refuse(&self, why: Refusal, command: &[u8], answer: &mut Vec<u8>) {
        match Self::is_of_log(command) {
            true => self.logs.refuse(why, command, answer),
            false => self.store.refuse(why, command, answer),
        }
    }
}

impl MachinePart for StoreAndLogShard {
    /// The store's keys: what people ask the status for.
    fn items(&self) -> (usize, usize) {
        self.keys.items()
    }

    fn memory(&self) -> (u64, u64) {
        self.keys.memory()
    }

    fn due_ms(&self) -> Option<u64> {
        self.keys.due_ms()
    }

    fn has_chore(&self) -> bool {
        self.keys.has_chore()
    }

    fn sweep(&mut self, now_ms: u64) {
        self.keys.sweep(now_ms);
    }

    fn capture(&mut self) {
        self.snapshot = GivenPart::Keys;
        self.keys.capture();
        self.logs.capture();
    }

    fn piece(&mut self, to: &mut Piece<'_>) -> bool {
        if self.snapshot == GivenPart::Keys {
            if self.keys.piece(to) {
                return true;
            }
            self.snapshot = GivenPart::Logs;
        }
        let more = self.snapshot == GivenPart::Logs && self.logs.piece(to);
        if !more {
            self.snapshot = GivenPart::None;
        }
        more
    }

    fn release(&mut self) {
        self.snapshot = GivenPart::None;
        self.keys.release();
        self.logs.release();
    }

    fn kept(&self) -> usize {
        self.keys.kept() + self.logs.kept()
    }

    fn read(&mut self, from: &mut StreamReader<'_>) -> Result<(), Corrupt> {
        self.keys.read(from)?;
        self.logs.read(from)
    }

    /// The keys and then the logs: a cursor says by its first byte of which it is.
    fn digest(&self, slice: &mut Slice<'_>) {
        let (part, from) = slice.from().split_first().unwrap_or((&KEYS, &[]));
        let (part, next) = match *part {
            KEYS => match slice.within(from, |slice| self.keys.digest(slice)) {
                next if next.is_empty() => (LOGS, next),
                next => (KEYS, next),
            },
            _ => match slice.within(from, |slice| self.logs.digest(slice)) {
                next if next.is_empty() => return,
                next => (LOGS, next),
            },
        };
        slice.end_at([&[part], &*next].concat());
    }
}

/// The first byte of the cursors of slices.
const KEYS: u8 = 0;
const LOGS: u8 = 1;
