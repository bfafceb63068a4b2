//! Runs ordered commands over the shards of one node.
//!
//! A node hosts a replica of every shard. Each replica delivers a stream of commands; a command
//! with several destinations is in the stream of each, in mutually consistent order. The executor
//! is fed with these streams ([`Executor::deliver`]) and runs each command once: a command of one
//! shard when nothing in front of it in that shard conflicts with it, a command of several shards
//! when that holds in *all* its shards, which needs its delivery in all of them (the rendezvous).
//! It then runs at one moment over all their stores.
//!
//! # Why this is linearizable
//!
//! Atomic multicast alone gives an acyclic order of commands, not one that agrees with real time
//! across shards. The anomaly: a writer sets `x` in shard A and `y` in shard B with one command
//! `w`. Replica a of A delivers `w`; a reader reads the new `x` there and then, after that answer,
//! reads `y` at a replica b of B which has not delivered `w` yet, and sees the old value: the
//! second read takes effect before `w`, though the first, which ended before it began, took effect
//! after `w`. Replicas of a command of several shards must therefore hear from the other shards
//! before they let anyone see it [MRP 3]. Here they hear from the replicas beside them in the same
//! node: `w` has an effect at a node only once this node has seen `w` *ordered in every
//! destination*, and commands that conflict with `w` wait behind it. So when a read returns the new
//! `x`, `w` already has its position in B's stream, fixed in front of every command that is
//! multicast later; the later read of `y` gets a later position, on any node. The same holds for
//! chains over more shards: each answer is given only when all positions of all commands that it
//! depends on are fixed, so a command called after an answer is ordered behind them in every shard
//! where they conflict.
//!
//! Nothing of this depends on what the replicas talk through, or on how a group comes to its order;
//! only on two things. A node hosts a replica of *every* shard, so what it has seen of a command is all
//! that there is to see. And what a replica has delivered is a prefix of its group's order, for ever:
//! no command that is multicast later comes in front of it. Both hold with clients that write into
//! replicas' memory, and with nodes that multicast commands as their own messages.
//!
//! # Out-of-order execution
//!
//! A command that conflicts with nothing that waits in front of it runs at once. Two commands
//! conflict if they share a key that one of them may write, or if one of them touches whole
//! shards and they share a shard. Replicas may therefore run non-conflicting commands in different
//! orders; nothing a machine answers may depend on that.
//!
//! There is one exception: a machine may refuse a command where a shard's items take too much memory, and all
//! commands in front of it have a part in that. As long as there surely is room for all waiting commands,
//! none is refused, in any order of execution. Where that is not sure, a command that may need room waits for
//! all in front of it, and all behind it wait: it then sees what it would see in the order of positions, on
//! every replica ([`ExecutionPoint::exact`](crate::machine::ExecutionPoint::exact)).
//!
//! # Where it runs
//!
//! Either in the thread that delivers, or, with [`Executor::employ`], in [threads of
//! its own](pool): there a command has its turn where it would have run here, and waits in its
//! shards' queues until they come to it. Answers then come out of [`Executor::collect`].
//!
//! # Limits
//!
//! Each shard holds at most [`Limits::waiting`] waiting commands with [`Limits::waiting_bytes`]
//! bytes; beyond this `deliver` refuses and the node stops taking from that shard's stream. The
//! streams of other shards continue, and since the order is acyclic one of them brings the command
//! that the full shard waits for.

mod clocks;
mod digests;
#[cfg(feature = "inspection")]
pub mod inspection;
mod local_read;
mod look_ahead;
mod mutant;
mod observer;
mod parts;
mod pool;
mod sessions;
mod shard_state;
mod skips;
mod snapshot;
mod waiting;

pub use clocks::AHEAD_MAX_MS;
pub use local_read::{LocalRead, OnLocalRead, OnShardRead};
pub use observer::{ExecutedCommand, ExecutionObserver};
pub use pool::WakeHandle;
pub use sessions::UNORDERED;
pub use skips::{SkipStatus, StateHead};
pub use snapshot::ExecutorState;

use crate::digest::{DigestReport, SLICE_BYTES, is_point};
use crate::envelope::{ClockReport, Envelope, Stamp};
use crate::machine::{Access, Growth, MachinePart, NEW_BUDGET, ShardPosition, ShardedMachine};
use crate::parts::{Assembly, CommandPart, header};
use amcast_core::{Gid, GroupSet, MsgId, Outcome, Pid};
use clocks::{ClockReports, advanced, reported};
use digests::{Comparison, Digests};
use mutant::ExecutorMutant;
use parts::Parts;
use pool::{AdmittedCommand, WorkerPool};
use sessions::{Admission, Floors, SessionTime, ShardProgress};
use shard_state::{SessionSweep, ShardState, Turn};
use skips::SkipSet;
use snapshot::ExecutorSnapshot;
use std::sync::Arc;
use waiting::{Arrival, ShardLanes, WaitingEntry};

/// How much an executor may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Commands that wait in one shard.
    pub waiting: usize,
    /// Bytes of commands that wait in one shard.
    pub waiting_bytes: usize,
    /// Commands that were given to workers and whose answers were not collected.
    pub running: usize,
    /// Bytes of these commands and their answers.
    pub running_bytes: usize,
    /// Open requests of one session whose answers are kept.
    pub window: u64,
    /// Bytes of answers kept per shard.
    pub answer_bytes: usize,
    /// How long an idle session is remembered, in milliseconds of ordered time, by the hosts' clock. A command that was
    /// first sent longer ago is refused, because whether it ran before is no longer known. All
    /// nodes of a cluster need the same value.
    pub session_ms: u64,
    /// Bytes of the part of a shard's data that a digest covers, about. All nodes of a cluster need the same value.
    pub slice_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 8192,
            waiting_bytes: 64 << 20,
            running: 4096,
            running_bytes: 64 << 20,
            window: 1024,
            answer_bytes: 64 << 20,
            session_ms: 600_000,
            slice_bytes: SLICE_BYTES,
        }
    }
}

/// The result of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeliveryResult {
    /// The command ran, or waits to run.
    Taken,
    /// The position was delivered before, or is covered by the adopted state.
    Old,
    /// The payload is not a command of this format: it takes its place in the order and does
    /// nothing.
    Malformed,
}

/// The shard holds as much as it may, or the workers do: deliver the same again after other shards
/// delivered or answers were collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExecutorFull;

impl core::fmt::Display for ExecutorFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("too many commands wait to be executed")
    }
}

impl core::error::Error for ExecutorFull {}

/// The answer to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandAnswer<'a> {
    /// The message that carried the command; its sender is the gateway that asked.
    pub id: MsgId,
    /// The client's session.
    pub session: u64,
    /// The request in that session.
    pub request: u64,
    /// The command's outcome.
    pub outcome: Outcome,
    /// The machine's answer.
    pub bytes: &'a [u8],
}

/// Takes answers as commands run.
pub type OnCommandAnswer<'a> = &'a mut dyn FnMut(CommandAnswer<'_>);

/// How far one shard's stream was delivered.
#[derive(Default)]
struct ShardHead {
    /// Position of the last command that was taken.
    delivered: u64,
    /// Ordered time there.
    now: Stamp,
    /// By how much it leapt so far, beyond what [`LEAP_MS`] allows, by the hosts' clock.
    leapt_ms: u64,
    /// The reported clocks of the shard's replicas.
    clocks: ClockReports,
    floors: Floors,
    /// The digests of its replicas' states, in this incarnation: no part of the state.
    digests: Digests,
    /// Parts of commands that are larger than a message.
    parts: Parts,
}

/// The largest single advance of lived time, in milliseconds: replicas report their clocks much
/// more often where a shard orders commands.
const LEAP_MS: u64 = AHEAD_MAX_MS;

impl ShardHead {
    /// Ordered time at a command with this stamp, if it comes next.
    fn time(&self, stamp: Stamp) -> Stamp {
        let agreed = self.clocks.agreed();
        agreed.map_or(self.now.max(stamp), |agreed| advanced(self.now, stamp, agreed))
    }

    /// Advances ordered time to `now`, which is not before it.
    fn go_on(&mut self, now: Stamp) {
        let step_ms = now.host_ms.saturating_sub(self.now.host_ms);
        self.leapt_ms += step_ms.saturating_sub(LEAP_MS);
        self.now = now;
    }

    /// The time of sessions when ordered time is `host_ms`; too early for a time before a leap.
    fn session_time(&self, host_ms: u64) -> SessionTime {
        let leapt_ms = if mutant::is(ExecutorMutant::AgesByLeaps) { 0 } else { self.leapt_ms };
        SessionTime { host_ms, lived_ms: host_ms.saturating_sub(leapt_ms) }
    }
}

/// The inputs of the decision on a command whose turn it is, beside its shards' data.
#[derive(Clone, Copy)]
struct ExecutionDecision {
    /// The verdict of its session.
    admission: Admission,
    /// See [`ExecutionPoint::exact`](crate::machine::ExecutionPoint::exact).
    exact: GroupSet,
    /// Whether it is answered in place of being executed: see [`skips`].
    is_skipped: bool,
}

/// The bytes of an ordered command: an envelope and its body.
enum Payload<'a> {
    /// As its message has them.
    Message(&'a [u8]),
    /// Put together from parts.
    Shared(Arc<[u8]>),
}

impl Payload<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Message(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    /// The bytes, to be kept.
    fn share(&self) -> Arc<[u8]> {
        match self {
            Self::Message(bytes) => (*bytes).into(),
            Self::Shared(bytes) => bytes.clone(),
        }
    }

    /// How many bytes of it are counted where messages wait.
    const fn message_bytes(&self) -> usize {
        match self {
            Self::Message(bytes) => bytes.len(),
            Self::Shared(_) => Assembly::BYTES,
        }
    }
}

/// A command that one of its shards delivers.
struct OrderedCommand<'a> {
    id: MsgId,
    dst: GroupSet,
    envelope: Envelope,
    payload: Payload<'a>,
    /// Whether its keys are looked at; otherwise it counts as touching all of its shards, with any growth.
    is_known: bool,
}

/// The threads that execute commands.
enum Engine<M: ShardedMachine> {
    /// The shards, in this thread.
    Here(Vec<ShardState<M::Part>>),
    Pool(WorkerPool<M>),
}

/// Figures about one shard's data.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ShardFigures {
    /// Items held.
    pub items: usize,
    /// Items held that will expire.
    pub expiring: usize,
    /// The latest ordered time at which all of them can still be seen, if any will expire: memory
    /// is freed by commands behind it.
    pub due_ms: Option<u64>,
    /// Items kept only for a snapshot: at most the shard once more, and a word for each item created
    /// since the snapshot began.
    pub kept: usize,
    /// Commands that ran; one of several shards counts in its lowest one.
    pub executed: u64,
    /// Whether it waits for commands that nobody asks for.
    pub has_chore: bool,
    /// Bytes that the items take, about.
    pub used_bytes: u64,
    /// Bytes that they may take; 0 for any number.
    pub budget_bytes: u64,
}

impl ShardFigures {
    fn of<P: MachinePart>(side: &ShardState<P>) -> Self {
        let (items, expiring) = side.part.items();
        let (due_ms, kept) = (side.part.due_ms(), side.part.kept());
        let (executed, has_chore) = (side.executed, side.part.has_chore());
        let (used_bytes, budget_bytes) = side.part.memory();
        Self { items, expiring, due_ms, kept, executed, has_chore, used_bytes, budget_bytes }
    }
}

/// How many workers pay for a node: as many as it has cores beside the one of its own thread, but
/// not more than shards; none if it has not two cores for itself. `cores` are the machine's, which
/// `nodes` nodes share.
pub const fn workers(cores: usize, nodes: usize, shards: usize) -> usize {
    let mine = match cores.checked_div(nodes) {
        Some(mine) => mine,
        None => cores,
    };
    let spare = mine.saturating_sub(1);
    if spare < shards { spare } else { shards }
}

/// Runs the commands of one node's shards; see the module's documentation.
pub struct Executor<M: ShardedMachine> {
    machine: Arc<M>,
    limits: Limits,
    heads: Vec<ShardHead>,
    lanes: ShardLanes,
    engine: Engine<M>,
    /// The snapshot that is being given.
    snapshot: Option<Box<ExecutorSnapshot>>,
    /// It has no state, and waits for one.
    cleared: bool,
    /// Reused for each answer.
    scratch: Vec<u8>,
    /// Selects the commands that are answered here, if not all are.
    awaits: Option<AwaitedAnswers>,
    /// How many replicas of each shard report their clocks; 0 where all gateways have one clock.
    clocks: usize,
    /// The messages that are not executed, by decision of the operators.
    skips: SkipSet,
    witness: observer::SharedObserver,
    /// The comparison of digests, where there are other replicas.
    comparison: Option<Comparison>,
    /// Why its state is not that of the others, if it is not.
    differs: Option<String>,
}

/// The keys that a command touches: digest points touch their shard as a whole.
fn access_of<M: ShardedMachine>(
    machine: &M,
    (envelope, body): (&Envelope, &[u8]),
    dst: GroupSet,
    access: &mut Access,
) {
    match is_point(envelope) {
        true => access.whole = true,
        false => machine.access(body, dst, access),
    }
}

/// Whether anybody waits for this node's answer to the command of this message. Called when it is the command's turn, by
/// the thread that runs it.
pub type AwaitedAnswers = Arc<dyn Fn(MsgId) -> bool + Send + Sync>;

/// Whether a command is to be run at its turn.
fn is_awaited(awaits: Option<&AwaitedAnswers>, envelope: &Envelope, id: MsgId) -> bool {
    !envelope.read_only || awaits.is_none_or(|awaits| awaits(id))
}

impl<M: ShardedMachine> Executor<M> {
    /// An executor over `shards` empty shards of `machine`, which runs commands in the thread that
    /// delivers them.
    pub fn new(machine: M, shards: usize, limits: Limits) -> Self {
        let ExecutorState { heads, lanes, sides, .. } = ExecutorState::new(&machine, shards);
        Self {
            machine: Arc::new(machine),
            limits,
            heads,
            lanes,
            engine: Engine::Here(sides),
            snapshot: None,
            cleared: false,
            scratch: Vec::new(),
            awaits: None,
            clocks: 0,
            skips: SkipSet::default(),
            witness: None,
            comparison: None,
            differs: None,
        }
    }

    /// Each shard has so many replicas on hosts of their own, and each of them has a [`ClockReport`] ordered
    /// in it every other second: no stamp counts further than [`AHEAD_MAX_MS`] beyond the time that a majority of
    /// them has reached, and a command that changes something is refused whose stamp is later than ordered time by more
    /// than that. The same on all nodes; called once, before the first command.
    pub fn bound_time(&mut self, replicas: usize) {
        self.clocks = replicas;
    }

    /// Whether a majority of each shard's replicas has reported its clock, where they do: before that
    /// any stamp counts, and gateways are not to be served.
    pub fn knows_time(&self) -> bool {
        let known = |head: &ShardHead| head.clocks.agreed().is_some();
        self.clocks == 0 || self.heads.iter().all(known)
    }

    /// Whether ordered time follows reports: see [`bound_time`](Self::bound_time).
    pub const fn bounds_time(&self) -> bool {
        self.clocks > 0
    }

    /// The last report of the clock of this replica of `shard`, as far as it was taken; none if there is none.
    pub fn clock_report(&self, shard: Gid, replica: Pid) -> Option<Stamp> {
        self.heads[shard.index()].clocks.of(replica)
    }

    /// Of commands that change nothing only those are run from now on that are awaited here when it is their turn.
    /// The others take their places, and have no answer.
    pub fn answer_only(&mut self, awaits: AwaitedAnswers) {
        if let Engine::Pool(pool) = &self.engine {
            pool.answer_only(awaits.clone());
        }
        self.awaits = Some(awaits);
    }

    /// Has commands run by `workers` threads from now on, among which the shards are dealt; with
    /// none, or when there are some already, nothing changes. `wake` is called, from any of them,
    /// when there is something to [`collect`](Self::collect) again.
    ///
    /// # Errors
    /// When the threads cannot be started; the executor is then of no more use.
    pub fn employ(&mut self, workers: usize, wake: WakeHandle) -> std::io::Result<()> {
        if let Engine::Here(sides) = &mut self.engine
            && workers > 0
        {
            let (machine, sides) = (self.machine.clone(), std::mem::take(sides));
            let whom = (wake, self.witness.clone());
            let pool = WorkerPool::start(machine, self.limits, sides, workers, whom)?;
            self.awaits.iter().for_each(|awaits| pool.answer_only(awaits.clone()));
            self.engine = Engine::Pool(pool);
        }
        Ok(())
    }

    /// Figures about `shard`'s data.
    pub fn holds(&self, shard: Gid) -> ShardFigures {
        match &self.engine {
            Engine::Here(sides) => ShardFigures::of(&sides[shard.index()]),
            Engine::Pool(pool) => pool.holds(shard),
        }
    }

    /// The position of the last command up to which `shard` executed everything; 0 before the first
    /// one. It is always a position that was delivered: streams may leave out numbers, and who keeps
    /// the stream need not know what a number between two commands means.
    pub fn applied(&self, shard: Gid) -> u64 {
        let delivered = self.heads[shard.index()].delivered;
        let waiting = self.lanes.first_waiting(shard).map_or(delivered, |since| since.before);
        match &self.engine {
            Engine::Here(_) => waiting,
            Engine::Pool(pool) => pool.before(shard).map_or(waiting, |b| b.min(waiting)),
        }
    }

    /// The position of the last command that `shard` took; it and all before it need not be
    /// delivered again to a node that has this one's state.
    pub fn delivered(&self, shard: Gid) -> u64 {
        self.heads[shard.index()].delivered
    }

    /// Ordered time at `shard` by the wall clock, milliseconds since 1970.
    pub fn now_ms(&self, shard: Gid) -> u64 {
        self.heads[shard.index()].now.wall_ms
    }

    /// How many commands wait in `shard`.
    pub fn waiting(&self, shard: Gid) -> usize {
        self.lanes.waiting(shard)
    }

    /// Takes the next command of `shard`'s stream, and runs the commands whose turn it is. `position` grows along
    /// the stream, from 1; a replayed one is skipped. `dst` must contain `shard`.
    ///
    /// # Errors
    /// When the shard holds too much, this node [differs](Self::differs), or the command is
    /// [skipped](Self::skip) once it is released; it was not taken.
    pub fn deliver(
        &mut self,
        shard: Gid,
        position: u64,
        id: MsgId,
        dst: GroupSet,
        payload: &[u8],
        on_answer: OnCommandAnswer<'_>,
    ) -> Result<DeliveryResult, ExecutorFull> {
        assert!(dst.contains(shard) && dst.within(GroupSet::first(self.heads.len())));
        let mine = &mut self.heads[shard.index()];
        if position <= mine.delivered {
            return Ok(DeliveryResult::Old);
        }
        if !self.skips.admits((shard, position), id, dst) {
            return Err(ExecutorFull);
        }
        if let Engine::Pool(pool) = &self.engine
            && pool.is_full()
        {
            return Err(ExecutorFull);
        }
        if self.differs.is_some() {
            return Err(ExecutorFull);
        }
        let Some((envelope, _)) = Envelope::decode(payload) else {
            return self.deliver_other((shard, position), (id, dst), payload, on_answer);
        };
        let place = ShardPosition { shard, position, now: mine.time(envelope.stamp) };
        let runs_now = dst.len() == 1 && self.lanes.waiting(shard) == 0;
        if !runs_now && self.lanes.is_full(shard, payload.len(), &self.limits) {
            return Err(ExecutorFull);
        }
        let payload = Payload::Message(payload);
        let ordered = OrderedCommand { id, dst, envelope, payload, is_known: true };
        self.take(place, &ordered, on_answer)
    }

    /// Takes what is ordered and is no whole command: a part of one, what puts it together, or what a replica says of
    /// itself.
    fn deliver_other(
        &mut self,
        (shard, position): (Gid, u64),
        (id, dst): (MsgId, GroupSet),
        payload: &[u8],
        on_answer: OnCommandAnswer<'_>,
    ) -> Result<DeliveryResult, ExecutorFull> {
        if let Some(part) = CommandPart::decode(payload).filter(|_| !self.skips.has(id)) {
            self.keep_part((shard, position), (id, dst), &part, on_answer);
            return Ok(DeliveryResult::Taken);
        }
        if let Some(assembly) = Assembly::decode(payload) {
            return self.assemble((shard, position), (id, dst), (&assembly, payload), on_answer);
        }
        self.heads[shard.index()].delivered = position;
        let is_skipped = self.skips.takes(id);
        Ok(if is_skipped { DeliveryResult::Taken } else { self.hear(shard, id, payload) })
    }

    /// Takes a command at its place in one of its shards, which has room for it, and runs the commands whose turn it
    /// is.
    fn take(
        &mut self,
        place: ShardPosition,
        ordered: &OrderedCommand<'_>,
        on_answer: OnCommandAnswer<'_>,
    ) -> Result<DeliveryResult, ExecutorFull> {
        let OrderedCommand { id, dst, ref envelope, ref payload, .. } = *ordered;
        let shard = place.shard;
        let before = self.heads[shard.index()].delivered;
        if is_point(envelope)
            && let Some((_, body)) = Envelope::decode(payload.bytes())
        {
            self.begin_digest(place, id, body);
        }
        let admission = self.took(place, dst, envelope);
        if dst.len() == 1 && self.lanes.waiting(shard) == 0 {
            let is_skipped = self.skips.has(id);
            let admission = admission.unwrap_or_default();
            let judged = ExecutionDecision { admission, exact: dst, is_skipped };
            self.give_turn((id, dst), &[(place, before)], judged, envelope, payload, on_answer);
            return Ok(DeliveryResult::Taken);
        }
        if let Some(entry) = self.line_up(place, before, admission, ordered) {
            self.give_turns(entry, on_answer);
        }
        Ok(DeliveryResult::Taken)
    }

    /// Queues a command in one of its shards. Returns its ticket if it is at the head.
    fn line_up(
        &mut self,
        place: ShardPosition,
        before: u64,
        admission: Option<Admission>,
        ordered: &OrderedCommand<'_>,
    ) -> Option<u64> {
        let OrderedCommand { id, dst, ref envelope, ref payload, is_known } = *ordered;
        // A skipped command touches no keys, and is not even decoded.
        let is_skipped = self.skips.takes(id);
        let command = Envelope::decode(payload.bytes()).map(|(_, body)| body);
        let looked_at = command.filter(|_| is_known && !is_skipped);
        let command = command.unwrap_or_default();
        let doing = (self.heads.len(), ExecutedCommand { id, dst, place, command });
        let witness = self.witness.clone();
        observer::tell(witness.as_deref().filter(|_| looked_at.is_some()), doing, || {
            let Growth { most: growth, before_decision } = match looked_at {
                _ if envelope.read_only || is_skipped => Growth::default(),
                Some(body) => self.machine.growth(body),
                // It may be anything, also a transaction that changes the budget.
                None => Growth::decided_once(NEW_BUDGET),
            };
            // No command behind it has run. If there is room for all in front of it, and for what it does before it
            // asks for room again, it may run before them, no matter which of them have run.
            let is_unknown = !is_known && !is_skipped;
            let exact = is_unknown || growth > 0 && !self.has_room(place.shard, before_decision);
            let arrival = Arrival { place, before, admission, growth, exact };
            let machine = &*self.machine;
            self.lanes.enter((id, dst), arrival, payload, |access| {
                if let Some(body) = looked_at {
                    access_of(machine, (envelope, body), dst, access);
                }
            })
        })
    }

    /// Takes a report of a replica about itself, which is ordered like a command.
    fn hear(&mut self, shard: Gid, id: MsgId, payload: &[u8]) -> DeliveryResult {
        if let Some(report) = DigestReport::decode(payload) {
            self.reported(shard, id, &report);
            return DeliveryResult::Taken;
        }
        let Some(ClockReport(said)) = ClockReport::decode(payload) else {
            return DeliveryResult::Malformed;
        };
        let mine = &mut self.heads[shard.index()];
        if self.clocks > 0 {
            mine.clocks.hear(id.sender, said, self.clocks);
            if let Some(agreed) = mine.clocks.agreed() {
                mine.go_on(reported(mine.now, agreed));
            }
            mine.parts.expire(mine.now.host_ms);
        }
        DeliveryResult::Taken
    }

    /// Gives the answers of commands that workers ran; whether there were any. Panics if a worker
    /// did: its node must not continue.
    pub fn collect(&mut self, on_answer: OnCommandAnswer<'_>) -> bool {
        let Engine::Pool(pool) = &mut self.engine else { return false };
        let any = pool.collect(on_answer);
        for (id, result) in pool.take_digests() {
            self.computed(id, &result);
        }
        any
    }

    /// Whether the items of `shard` are surely within its budget once all commands have run that had their turn there
    /// or wait, and have grown by `more` bytes.
    fn has_room(&self, shard: Gid, more: u64) -> bool {
        // A command that runs meanwhile may count twice, but never not at all, because of this
        // order of reads.
        let running = match &self.engine {
            Engine::Here(_) => 0,
            Engine::Pool(pool) => pool.growth(shard),
        };
        let more = if mutant::is(ExecutorMutant::CountsNoneOfBatch) { 0 } else { more };
        let growth = running + self.lanes.growth(shard) + u128::from(more);
        let ShardFigures { used_bytes, budget_bytes, .. } = self.holds(shard);
        // There may be another budget by then.
        growth < u128::from(NEW_BUDGET)
            && (budget_bytes == 0 || u128::from(used_bytes) + growth <= u128::from(budget_bytes))
    }

    /// Notes a delivery; in the command's lowest shard, where its session is kept, also the inputs of the decision on
    /// it.
    fn took(
        &mut self,
        place: ShardPosition,
        dst: GroupSet,
        envelope: &Envelope,
    ) -> Option<Admission> {
        let head = &mut self.heads[place.shard.index()];
        head.delivered = place.position;
        head.go_on(place.now);
        head.parts.expire(place.now.host_ms);
        if !envelope.read_only {
            head.digests.changed();
        }
        if dst.lowest() != Some(place.shard) {
            return None;
        }
        let now = head.session_time(place.now.host_ms);
        if envelope.read_only {
            return Some(head.floors.look(envelope, now, &self.limits));
        }
        let admission = head.floors.admit(envelope, place.position, now, &self.limits);
        head.parts.release(envelope.session, admission.floor);
        Some(admission)
    }

    /// Gives its turn to a waiting command and then to all that only waited for those before.
    fn give_turns(&mut self, ticket: u64, on_answer: OnCommandAnswer<'_>) {
        let mut ready = vec![ticket];
        while let Some(ticket) = ready.pop() {
            let (entry, befores) = self.lanes.leave(ticket, &mut ready);
            let WaitingEntry { id, dst, places, payload, admission, exact, .. } = entry;
            let mut places: Vec<(ShardPosition, u64)> = places.into_iter().zip(befores).collect();
            places.sort_by_key(|(p, _)| p.shard);
            let (envelope, _) = header(&payload).expect("it was decoded when it came");
            let judged = ExecutionDecision { admission, exact, is_skipped: self.skips.has(id) };
            let payload = Payload::Shared(payload);
            self.give_turn((id, dst), &places, judged, &envelope, &payload, on_answer);
        }
    }

    /// Forgets floors of sessions that were idle for too long in these shards; returns up to which times their data
    /// may be swept.
    fn sweep_sessions(&mut self, places: &[(ShardPosition, u64)]) -> SessionSweep {
        let mut sweep = SessionSweep { wall_ms: u64::MAX, lived_ms: u64::MAX };
        for (place, _) in places {
            let head = &mut self.heads[place.shard.index()];
            // No command that has not had its turn is earlier than this.
            let now = self.lanes.first_waiting(place.shard).map_or(head.now, |w| w.now);
            let time = head.session_time(now.host_ms);
            head.floors.sweep(time, &self.limits);
            sweep.wall_ms = sweep.wall_ms.min(now.wall_ms);
            sweep.lived_ms = sweep.lived_ms.min(time.lived_ms);
        }
        sweep
    }

    /// Runs a command, or has it run. `places` stand with the positions in front of them, in
    /// ascending order of shards.
    fn give_turn(
        &mut self,
        (id, dst): (MsgId, GroupSet),
        places: &[(ShardPosition, u64)],
        judged: ExecutionDecision,
        envelope: &Envelope,
        payload: &Payload<'_>,
        on_answer: OnCommandAnswer<'_>,
    ) {
        let is_skipped = judged.is_skipped && self.skips.takes(id);
        let lowest = places[0].0.shard;
        let head = &self.heads[lowest.index()];
        let progress = ShardProgress {
            floor: head.floors.of(envelope.session).max(judged.admission.floor),
            applied: self.applied(lowest),
            delivered: head.delivered,
        };
        let sweep = self.sweep_sessions(places);
        match &mut self.engine {
            Engine::Pool(pool) => {
                let command = Envelope::decode(payload.bytes());
                let body = command.filter(|(envelope, _)| !envelope.read_only && !is_skipped);
                let growth = body.map_or(0, |(_, body)| self.machine.growth(body).most);
                let payload = payload.share();
                let task = AdmittedCommand { id, dst, judged, progress, sweep, growth, payload };
                pool.run(task, places);
            }
            Engine::Here(sides) if is_point(envelope) => {
                let command = Envelope::decode(payload.bytes());
                let body = command.map_or(&b""[..], |(_, body)| body);
                let mut result = Vec::new();
                sides[lowest.index()].digest(&places[0].0, body, &self.limits, &mut result);
                self.computed(id, &result);
            }
            Engine::Here(sides) => {
                let payload = payload.bytes();
                let is_awaited = is_awaited(self.awaits.as_ref(), envelope, id);
                let mut run = |sides: &mut [&mut ShardState<M::Part>], places: &[ShardPosition]| {
                    let witness = self.witness.as_deref();
                    let turn = Turn {
                        id,
                        dst,
                        places,
                        judged,
                        progress,
                        sweep,
                        payload,
                        is_awaited,
                        witness,
                    };
                    let scratch = &mut self.scratch;
                    shard_state::run(
                        &*self.machine,
                        &self.limits,
                        sides,
                        &turn,
                        scratch,
                        on_answer,
                    );
                };
                if let [(place, _)] = *places {
                    return run(&mut [&mut sides[place.shard.index()]], &[place]);
                }
                let here = sides.iter_mut().enumerate();
                let mut mine: Vec<_> =
                    here.filter(|(i, _)| dst.contains(Gid(*i as u8))).map(|(_, s)| s).collect();
                run(&mut mine, &places.iter().map(|(place, _)| *place).collect::<Vec<_>>());
            }
        }
    }
}
