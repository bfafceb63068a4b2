//! The state machine that a service gives, to have it replicated and sharded.
//!
//! A [`ShardedMachine`] says how commands run, a [`MachinePart`] is the data of one shard, so that shards can be
//! worked on at the same time. The [`Executor`](crate::Executor) calls them with ordered commands;
//! the answers and the state must follow from those calls alone: no clock, no randomness of the
//! operating system, no order that depends on addresses or hash seeds. Replicas may run commands
//! that do not conflict in different orders, so neither answers nor state may depend on the relative
//! order of two commands whose [`Access`] do not conflict; but for what a shard takes as a whole, where
//! [`ExecutionPoint::exact`] says that it is the same.

use crate::digest::Slice;
use crate::envelope::Stamp;
use crate::stream::{Piece, StreamReader};
use amcast_core::{Gid, GroupSet, MsgId, Outcome};
use core::fmt;
use core::ops::Range;

/// One key that a command touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The shard that holds the key; one of the command's destinations.
    pub shard: Gid,
    /// The key, or a hash of it: two keys with one hash only wait for each other without need.
    pub key: u64,
    /// Whether the command may change it.
    pub write: bool,
}

/// The keys that a command touches, which determine its conflicts.
#[derive(Clone, Default, Debug)]
pub struct Access {
    /// The keys.
    pub uses: Vec<Use>,
    /// Whether it touches all of its destination shards, and so conflicts with every command.
    pub whole: bool,
}

/// The position of a command in one shard's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardPosition {
    /// The shard.
    pub shard: Gid,
    /// The command's position in that shard's stream.
    pub position: u64,
    /// Ordered time there: on each clock the highest stamp of a gateway on this and all earlier
    /// commands of the shard. It never goes back along a shard's stream. A command of
    /// several shards sees each shard at that shard's own time: raising one shard's time to
    /// another's would make it depend on what a replica happened to execute first.
    pub now: Stamp,
}

/// The command that is being executed.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionPoint<'a> {
    /// Its message.
    pub id: MsgId,
    /// Its destinations.
    pub dst: GroupSet,
    /// Its place in each destination, in ascending order of shards.
    pub places: &'a [ShardPosition],
    /// The shards in which all commands in front of it have run and none behind it, so that their
    /// [memory](MachinePart::memory) is the same on all replicas. In any other destination there is
    /// room for all commands in front of it, and for what it does itself
    /// [before it decides](Growth::before_decision) whether there is room.
    pub exact: GroupSet,
    /// Whether its gateway sent it as a [read](crate::Envelope::read_only): other replicas need not run it, so it must change
    /// nothing.
    pub read_only: bool,
}

/// How many bytes more each shard's items may take for a command.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Growth {
    /// In all, at most; [`ANY_GROWTH`] if that is not known, and [`NEW_BUDGET`] where it changes how many they may take.
    pub most: u64,
    /// Of these, what may come before the machine decides for the last time whether there is memory: none where it
    /// decides once, before anything else, and those of all commands but the last where it decides on each command of
    /// a batch.
    pub before_decision: u64,
}

impl Growth {
    /// Of a command on which the machine decides once.
    pub const fn decided_once(most: u64) -> Self {
        Self { most, before_decision: 0 }
    }
}

/// More than any machine's memory: the growth of a command whose growth is not known.
pub const ANY_GROWTH: u64 = 1 << 45;

/// The growth of a command that changes a shard's memory budget: more than all others together.
pub const NEW_BUDGET: u64 = 1 << 60;

/// Why a state was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Corrupt {
    /// It ends too early.
    Short,
    /// It could not be read further.
    Io(std::io::ErrorKind),
    /// It is none, or holds a value that cannot be.
    Malformed,
    /// A checksum does not match the bytes.
    Checksum,
    /// It was written in another version of the format.
    Version(u8),
    /// It is of a cluster with so many shards.
    Shards(usize),
    /// Its keys are in the order of hashes with another seed.
    Seed,
    /// Its bytes are those that were written, and the machine does not read them: another version of it wrote them.
    Rejected,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the state ends too early"),
            Self::Io(kind) => write!(f, "the state cannot be read: {kind}"),
            Self::Malformed => f.write_str("the state is malformed"),
            Self::Checksum => f.write_str("a checksum of the state does not match"),
            Self::Version(v) => write!(f, "the state has version {v}, which is not known here"),
            Self::Seed => f.write_str(
                "the state was written with another hash_seed than the cluster's file has: give all nodes the one \
                 that the cluster was made with",
            ),
            Self::Shards(n) => write!(f, "the state is of a cluster with {n} shards"),
            Self::Rejected => f.write_str(
                "the state is whole, and this program refuses it, as one that another version of the program saved",
            ),
        }
    }
}

impl core::error::Error for Corrupt {}

/// A deterministic service over shards: the part that is the same for all of them.
pub trait ShardedMachine: Send + Sync + 'static {
    /// One shard's data.
    type Part: MachinePart;

    /// Whether a node has memory for two of its states: it reads one that another node gives, and only then drops its own. Not
    /// for a machine with much state.
    const FITS_TWICE: bool = false;

    /// An empty shard.
    fn part(&self) -> Self::Part;

    /// The keys that `command` touches. An invalid command touches nothing.
    fn access(&self, command: &[u8], dst: GroupSet, access: &mut Access);

    /// Executes `command` in all its shards at once and appends the answer to `answer`. `parts`
    /// are those of `at.places`, one for one. A command that makes no sense is answered with an
    /// error; it must not panic.
    ///
    /// [`Outcome::NotExecuted`] says that the machine refused the command, which changed nothing, before it looked at
    /// what the command is about: for a bound, or since its gateway knew another map. All else was executed, and what
    /// came to nothing, too: its answer says what the command saw.
    fn apply<'a>(
        &self,
        at: &ExecutionPoint<'a>,
        parts: &'a mut [&'a mut Self::Part],
        command: &[u8],
        answer: &mut Vec<u8>,
    ) -> Outcome;

    /// Begins to read from memory what these commands, which go to the shard of `part` alone and come next, will look for:
    /// that of several at a time takes hardly longer than that of one.
    fn look_ahead(&self, _part: &Self::Part, _commands: &mut dyn Iterator<Item = &[u8]>) {}

    /// How much memory `command` may take. A command that may [take](Growth::most) none must not be refused for lack of
    /// memory.
    fn growth(&self, _command: &[u8]) -> Growth {
        Growth::default()
    }

    /// Whether replicas compare their answers to `command`. Not where one may know what another one does not, though their
    /// states count as the same.
    fn is_compared(&self, _command: &[u8]) -> bool {
        true
    }

    /// Whether `command` is answered within a moment for any contents of the shards: it reads few
    /// keys, and little of their values. Only called for commands that change nothing.
    fn is_short(&self, _command: &[u8]) -> bool {
        false
    }

    /// Whether `command`, which changes nothing and goes to the shard of `part` alone, may see that something has expired
    /// whose deadline is among `deadlines_ms`. True also where that is not known.
    fn sees_expiry(&self, part: &Self::Part, _command: &[u8], deadlines_ms: Range<u64>) -> bool {
        part.due_ms().is_some_and(|due_ms| due_ms < deadlines_ms.end)
    }

    /// The part of an answer that is kept for retries of its command: all of it, unless the rest
    /// can be [made again](Self::again).
    fn kept<'a>(&self, answer: &'a [u8]) -> &'a [u8] {
        answer
    }

    /// Appends to `answer` the answer to a retry of `command`, from the [kept](Self::kept) part of
    /// the first answer. `part` is that of the command's lowest shard, at the retry's place in the
    /// order.
    fn again(&self, _part: &Self::Part, kept: &[u8], _command: &[u8], answer: &mut Vec<u8>) {
        answer.extend_from_slice(kept);
    }

    /// The outcome of a command, from the [kept](Self::kept) part of its answer, in a state without
    /// outcomes: one of a version before 13.
    fn outcome_of_kept(&self, _kept: &[u8]) -> Outcome {
        Outcome::Executed
    }

    /// Appends to `answer` the error of a refused command; its client receives the refusal's
    /// [outcome](Refusal::outcome), too.
    fn refuse(&self, why: Refusal, command: &[u8], answer: &mut Vec<u8>);
}

/// One shard's data.
pub trait MachinePart: Send + 'static {
    /// Items held, and how many of them will expire.
    fn items(&self) -> (usize, usize);

    /// Bytes that the items take, about, and how many they may; 0 for any number.
    fn memory(&self) -> (u64, u64) {
        (0, 0)
    }

    /// The latest ordered time, of the wall clock, at which everything held can still be seen: [`sweep`](Self::sweep) with
    /// a later one frees something. None if all that is held stays.
    fn due_ms(&self) -> Option<u64>;

    /// Whether it needs commands that no client sends, to continue a task: a gateway sends them.
    fn has_chore(&self) -> bool {
        false
    }

    /// Frees a bounded number of items that no later command can see, given that their wall clocks all
    /// have `now_ms` or later. Must not change any answer.
    fn sweep(&mut self, now_ms: u64);

    /// Begins a snapshot: the present state is to be sent, unaffected by commands applied meanwhile. One
    /// begun before is dropped. Takes no longer for much state than for little.
    fn capture(&mut self);

    /// Gives the next part of the snapshot until `to` is full; false if that was all. Takes time in
    /// proportion to what fits `to`.
    fn piece(&mut self, to: &mut Piece<'_>) -> bool;

    /// Forgets the snapshot.
    fn release(&mut self);

    /// How many items are kept only for the snapshot. Never more than were held when the snapshot began,
    /// and those created since.
    fn kept(&self) -> usize;

    /// Fills an empty part with the bytes of [`piece`](Self::piece).
    ///
    /// # Errors
    /// When that is no such state; the contents of the part then mean nothing. [`Corrupt::Rejected`] where the bytes arrived
    /// whole and another version of the machine gave them: the node says so then, and does not take them for damaged.
    fn read(&mut self, from: &mut StreamReader<'_>) -> Result<(), Corrupt>;

    /// Covers what is held, from where `slice` begins until it is full: replicas compare it now and then, and one
    /// that differs from a majority stops. Data that do not follow from the ordered commands alone must be
    /// omitted. By default nothing is covered; the answers of commands are compared all the same.
    fn digest(&self, _slice: &mut Slice<'_>) {}
}

/// Why the executor did not run a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its stamp is so old that whether it was executed before is no longer known: unless its gateway
    /// knows that it sent the command only a moment ago. Then the gateway's clock is behind, and the
    /// command was not executed.
    Stale {
        /// Ordered time, by the hosts' clock, in milliseconds.
        now_ms: u64,
    },
    /// Its stamp is further ahead of the replicas' clocks than counts: it was not executed, and no other message of
    /// its request with this stamp will be. Or its session sent it behind such a one, which is to come again first.
    Ahead {
        /// Ordered time, by the hosts' clock, in milliseconds.
        now_ms: u64,
    },
    /// It was answered before, but its answer is no longer kept.
    Forgotten {
        /// Its outcome then.
        outcome: Outcome,
    },
    /// The session has more requests open than the window allows.
    Window,
    /// The shard keeps as many bytes of [parts](crate::parts) as it may: this one was not kept.
    NoRoom,
    /// The shard does not have all [parts](crate::parts) of the command any more: it was not executed.
    Incomplete,
    /// All replicas skip its message, by decision of those who run the cluster: it was not executed, and no
    /// repetition of it will be.
    Skipped,
}

impl Refusal {
    /// The command's outcome, through any of its messages.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::NoRoom | Self::Incomplete | Self::Skipped => Outcome::NotExecuted,
            // Another message of the same request may have been executed, or may be yet.
            Self::Stale { .. } | Self::Ahead { .. } | Self::Window => Outcome::Unknown,
            Self::Forgotten { outcome } => outcome,
        }
    }
}
