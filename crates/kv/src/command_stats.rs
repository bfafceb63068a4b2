//! Statistics of a gateway's commands: their number, their outcomes, and their durations.
//!
//! Each thread of a gateway counts for itself, and alone: counting takes no lock and no locked
//! instruction. A reader adds up the counts of all threads. Counters are never reset, so that
//! metrics only grow; `CONFIG RESETSTAT` notes the present counts, and `INFO` reports the
//! difference.

use super::client::lock;
use super::registry;
use amcast_core::Outcome;
use amcast_core::histogram::Histogram;
use amcast_smr::metrics::{SharedHistogram, add_alone};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEnd {
    /// It was executed.
    Executed,
    /// It was executed, or would have been, and its answer is an error.
    Failed,
    /// It was refused before anything of it was executed.
    Rejected,
}

impl CallEnd {
    /// How a command of this outcome and answer ended.
    pub fn of(outcome: Outcome, answer: &[u8]) -> Self {
        match (outcome, answer.first()) {
            (Outcome::NotExecuted, _) => Self::Rejected,
            (_, Some(b'-')) => Self::Failed,
            _ => Self::Executed,
        }
    }

    /// The result of one command of a transaction, from its answer.
    pub fn of_part(answer: &[u8]) -> Self {
        match answer.first() {
            Some(b'-') => Self::Failed,
            _ => Self::Executed,
        }
    }
}

/// One command that a client sent, from when it was read whole.
#[derive(Clone, Copy, Debug)]
pub struct CommandCall {
    /// The command's number.
    pub number: u16,
    /// How it ended; until that is known, that it was executed.
    pub end: CallEnd,
    /// When it was read whole, by the host's clock, in nanoseconds.
    pub read_ns: u64,
}

/// The counters of one thread for one command.
#[derive(Default)]
struct CommandCells {
    /// Of those that were executed or failed.
    latency: SharedHistogram,
    failed: AtomicU64,
    rejected: AtomicU64,
}

/// The counters of one thread of a gateway.
pub struct ThreadStats {
    /// Commands taken, known or not.
    taken: AtomicU64,
    unknown: AtomicU64,
    /// By number.
    commands: Box<[CommandCells]>,
}

impl ThreadStats {
    fn new() -> Self {
        Self {
            taken: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            commands: registry::all().map(|_| CommandCells::default()).collect(),
        }
    }

    /// A command was taken from a client.
    pub fn took(&self) {
        add_alone(&self.taken, 1);
    }

    /// It is no command.
    pub fn unknown(&self) {
        add_alone(&self.unknown, 1);
    }

    /// The command of this number was refused before anything of it was executed.
    pub fn reject(&self, number: u16) {
        add_alone(&self.commands[usize::from(number)].rejected, 1);
    }

    /// A command is answered at `now_ns`.
    pub fn answered(&self, call: CommandCall, now_ns: u64) {
        let cells = &self.commands[usize::from(call.number)];
        match call.end {
            CallEnd::Rejected => return add_alone(&cells.rejected, 1),
            CallEnd::Failed => add_alone(&cells.failed, 1),
            CallEnd::Executed => {}
        }
        cells.latency.observe_alone(now_ns.saturating_sub(call.read_ns));
    }
}

/// The counts of all threads for one command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandStats {
    /// How long those took that were executed or failed.
    pub latency: Histogram,
    /// Those whose answer was an error.
    pub failed: u64,
    /// Those that were refused before anything of them was executed.
    pub rejected: u64,
}

/// The counts of all threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GatewayStats {
    /// Commands taken, known or not.
    pub taken: u64,
    /// Those of a name that no command has.
    pub unknown: u64,
    /// By number of the command.
    pub commands: Vec<CommandStats>,
}

impl GatewayStats {
    /// Those commands that were called or refused, with their names.
    pub fn used(&self) -> impl Iterator<Item = (&'static str, &CommandStats)> {
        let named = registry::all().map(|command| command.name).zip(&self.commands);
        named.filter(|(_, of)| of.rejected > 0 || of.latency.count() > 0)
    }

    /// Answers that were errors.
    pub fn errors(&self) -> u64 {
        self.unknown + self.commands.iter().map(|of| of.failed + of.rejected).sum::<u64>()
    }

    fn subtract(&mut self, earlier: &Self) {
        self.taken = self.taken.saturating_sub(earlier.taken);
        self.unknown = self.unknown.saturating_sub(earlier.unknown);
        for (of, before) in self.commands.iter_mut().zip(&earlier.commands) {
            of.latency.subtract(&before.latency);
            of.failed = of.failed.saturating_sub(before.failed);
            of.rejected = of.rejected.saturating_sub(before.rejected);
        }
    }
}

/// The counts of a gateway.
#[derive(Default)]
pub struct AllStats {
    threads: Mutex<Vec<Arc<ThreadStats>>>,
    /// The counts at the last reset of the statistics by a client.
    reset: Mutex<GatewayStats>,
}

impl AllStats {
    /// Counts for one more thread, which alone may count there.
    pub fn of_thread(&self) -> Arc<ThreadStats> {
        let stats = Arc::new(ThreadStats::new());
        lock(&self.threads).push(Arc::clone(&stats));
        stats
    }

    /// The counts since the gateway began.
    pub fn total(&self) -> GatewayStats {
        let commands = registry::all().map(|_| CommandStats::default()).collect();
        let mut all = GatewayStats { commands, ..GatewayStats::default() };
        for thread in &*lock(&self.threads) {
            all.taken += thread.taken.load(Relaxed);
            all.unknown += thread.unknown.load(Relaxed);
            for (of, cells) in all.commands.iter_mut().zip(&thread.commands) {
                of.latency.add(&cells.latency.read());
                of.failed += cells.failed.load(Relaxed);
                of.rejected += cells.rejected.load(Relaxed);
            }
        }
        all
    }

    /// Commands taken since the gateway began.
    pub fn taken(&self) -> u64 {
        lock(&self.threads).iter().map(|thread| thread.taken.load(Relaxed)).sum()
    }

    /// The counts since the last reset of the statistics by a client.
    pub fn since_reset(&self) -> GatewayStats {
        let mut all = self.total();
        all.subtract(&lock(&self.reset));
        all
    }

    /// Counts anew for [`AllStats::since_reset`].
    pub fn reset(&self) {
        *lock(&self.reset) = self.total();
    }
}
