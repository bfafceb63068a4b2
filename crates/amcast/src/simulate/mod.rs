//! Whole replicas of a service in the simulator: the parts that production runs above a protocol
//! (executor, sessions, recovery, state transfer, checkpoints) on all nodes of a simulated cluster,
//! under the faults of the protocol, with clients that retry at other nodes. A model judges the
//! clients' calls.
//!
//! [`Simulation::run`] makes one run. The same seed gives the same run. Below the nodes the protocol's own history is judged,
//! too ([`amcast_sim::Host`]).
//!
//! A state machine of your own ([`StateMachine`]) needs a [`Workload`] beside it: what clients call, what an answer says, and
//! what must hold of the history. [`Simulation::hunt`] makes runs until something is wrong in one, and makes that one small.
//! `examples/simulate.rs` is a whole program of this kind. A program cannot load a machine of somebody else, so `amcast sim`
//! runs only the services of this crate; for any other one the library is the way. A machine that reconciles what the components
//! of a partition did is simulated by [`components`].

mod application;
pub mod bank;
mod client;
mod clocks;
pub mod components;
mod early;
mod execution_order;
mod host;
mod hunt;
pub mod kv;
pub mod log;
mod mutant;
mod node;
mod progress;
mod reads;
mod time;
mod transfer;
mod unanswered;

pub use host::{Finding, ServiceRun, ServiceSettings, Simulation};
pub use hunt::FailedRun;
pub use mutant::{DeclaredMutant, ServiceJudge, ServiceMutant};

use amcast_check::{History, PropertyVerdict, service};
use amcast_core::rng::Rng;
use amcast_core::{GroupSet, Outcome, ServiceAnswer, Time};
use amcast_kv::{HashSeed, Kv, Partitions};
use amcast_log::StoreAndLog;
use amcast_log::{Logs, NODE_BYTES};
use amcast_smr::machine::Refusal;
use amcast_smr::state_machine::MachineRefusal;
use amcast_smr::{ShardedMachine, StateMachine, StateMachineAdapter, state_machine};

/// The configuration of a node of a simulated cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceShape {
    /// How many shards there are.
    pub shards: usize,
    /// The rank of the node: sound nodes run the same at all ranks.
    pub rank: usize,
    /// How the service is broken, if it is.
    pub mutant: Option<ServiceMutant>,
    /// The bytes that all keys of a node may take at first, as [`Workload::draw_maxmemory`] drew them; 0 for any number.
    pub maxmemory: u64,
}

/// A service that simulated nodes can be made of. A [`StateMachine`] is one in a [`StateMachineAdapter`].
pub trait SimulatedService: ShardedMachine + Sized {
    /// The service over empty shards: the same on all nodes.
    fn over(shape: &ServiceShape) -> Self;
}

/// The state machine of the nodes.
impl SimulatedService for StoreAndLog {
    fn over(shape: &ServiceShape) -> Self {
        let shards = shape.shards;
        let store = Kv::over(Partitions::by_slot(shards).into(), HashSeed::Fixed(1));
        Self::new(store, Logs::new(shards, NODE_BYTES))
    }
}

impl<S: StateMachine> SimulatedService for StateMachineAdapter<S> {
    fn over(_: &ServiceShape) -> Self {
        Self::default()
    }
}

/// A client's call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The shards that it goes to.
    pub dst: GroupSet,
    /// The command, as the machine takes it. One that is larger than a message of a simulated gateway, which is small, is
    /// sent in parts.
    pub body: Vec<u8>,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// The same in the language of the history; empty if it is not in the history.
    pub op: String,
    /// Whether the workload judges it by itself: it is among [`SeenCalls::apart`], and not in the history.
    pub is_apart: bool,
    /// Whether it is a batch, of whose commands a full shard refuses each by itself.
    pub is_batch: bool,
    /// The arguments that the gateway needs to send the command again if the shards use another
    /// partition map.
    pub args: Vec<String>,
}

impl Call {
    /// A call that is in the history.
    pub const fn new(dst: GroupSet, body: Vec<u8>, read_only: bool, op: String) -> Self {
        Self { dst, body, read_only, op, is_apart: false, is_batch: false, args: Vec::new() }
    }
}

/// How commands that change nothing are answered in a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum ReadLevel {
    /// In their places in the order.
    #[default]
    Ordered,
    /// Those of one shard locally, behind a barrier; where the protocol has such.
    Index,
    /// Locally at once by the node of the client's gateway: they may be old, but never go back, and see what the client
    /// wrote.
    Sequential,
}

impl ReadLevel {
    /// That of a run.
    fn draw(
        (has_index, reads_here): (bool, bool),
        mutant: Option<ServiceMutant>,
        rng: &mut Rng,
    ) -> Self {
        let index = if has_index { Self::Index } else { Self::Ordered };
        let drawn = match rng.below(4) {
            0 => Self::Ordered,
            1 if reads_here => Self::Sequential,
            _ => index,
        };
        // Only these runs have batches over several shards.
        if mutant == Some(ServiceMutant::CountsNoneOfBatch) {
            return Self::Ordered;
        }
        // A read that may be stale hides mistakes.
        let is_hunted = mutant.is_some() && drawn == Self::Sequential;
        if mutant == Some(ServiceMutant::ReadsAtOnce) || is_hunted { index } else { drawn }
    }
}

/// A call that the workload judges by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApartCall {
    /// The operation.
    pub op: String,
    /// When.
    pub called: Time,
    /// When it returned, and what; none if nobody knows what became of it.
    pub returned: Option<(Time, String)>,
}

/// The calls of a run's clients, and their answers.
pub struct SeenCalls<'a> {
    /// Their calls and returns.
    pub history: &'a History,
    /// Those that the workload judges by itself.
    pub apart: &'a [ApartCall],
    /// Of all calls, those that a shard refused for lack of memory, or a command of which it did.
    pub no_memory: &'a [ApartCall],
    /// How reads were answered.
    pub level: ReadLevel,
    /// The memory budget that the run began with, in bytes; 0 for none.
    pub maxmemory: u64,
}

impl SeenCalls<'_> {
    /// Whether commands of [a key-value store](service::kv) took effect once; nothing where no call shows it, since no
    /// command returned twice, say.
    pub fn exactly_once(&self) -> Option<(&'static str, PropertyVerdict)> {
        let verdict = service::exactly_once(self.history);
        (!matches!(verdict, PropertyVerdict::NotJudged(_))).then_some(("exactly-once", verdict))
    }
}

/// The gateway's reaction to an answer.
pub enum AnswerMeaning {
    /// The client receives this, in the language of the history.
    Out(String),
    /// Nobody knows what became of the command.
    Unknown,
    /// It was not executed, and is sent again.
    Again {
        /// Ordered time, if the command was refused by its stamp: in milliseconds of the hosts' clock.
        now_ms: Option<u64>,
        /// The call as it is sent then, if it is to be sent otherwise.
        call: Option<Call>,
    },
}

impl AnswerMeaning {
    /// The gateway's reaction to an answer of a [`StateMachineAdapter`]: `said` translates the
    /// machine's own answer into the language of the history.
    pub fn of_whole(answer: &ServiceAnswer<'_>, said: impl FnOnce(&[u8]) -> String) -> Self {
        let bytes = match state_machine::answered(&answer.bytes) {
            Ok(bytes) => bytes,
            Err(MachineRefusal::Executor(
                Refusal::Stale { now_ms } | Refusal::Ahead { now_ms },
            )) => {
                return Self::Again { now_ms: Some(now_ms), call: None };
            }
            Err(why) if why.outcome() == Outcome::NotExecuted => {
                return Self::Out("ERR".to_string());
            }
            Err(_) => return Self::Unknown,
        };
        match answer.outcome {
            Outcome::Executed => Self::Out(said(bytes)),
            Outcome::NotExecuted => Self::Out("ERR".to_string()),
            Outcome::Unknown => Self::Unknown,
        }
    }
}

/// The calls that a client makes to a service through its gateway, and the check of all clients'
/// calls. Each client has one.
pub trait Workload {
    /// The service: [`StateMachineAdapter`] makes one of a [`StateMachine`].
    type Machine: SimulatedService;

    /// Whether gateways may have reads answered locally at once: see [`ReadLevel::Sequential`].
    fn reads_here(&self) -> bool {
        false
    }

    /// Draws the memory budget of a run: the bytes that all items of a node may take at first, or 0 for any number.
    /// A service that has no budgets leaves it at that.
    fn draw_maxmemory(&self, _rng: &mut Rng) -> u64 {
        0
    }

    /// Whether the service refuses calls by rules of its own, so that a run may refuse most of them: it answers
    /// [`Outcome::NotExecuted`] to them. Of any other service such a run is wrong, and one that executes little is not judged.
    fn refuses(&self) -> bool {
        false
    }

    /// How reads are answered in this run, and the memory budget that was drawn for it.
    fn begin(&mut self, _level: ReadLevel, _maxmemory: u64) {}

    /// The next call of the client.
    fn next(&mut self, rng: &mut Rng) -> Call;

    /// The calls of one client when all clients have made theirs, before what each node has is read.
    fn closing(&self) -> Vec<Call> {
        Vec::new()
    }

    /// A call that reads all that clients have written.
    fn last(&mut self) -> Call;

    /// The gateway's reaction to the answer to a call.
    fn returned(&mut self, call: &Call, answer: &ServiceAnswer<'_>) -> AnswerMeaning;

    /// The properties of the service, by name, and whether what the clients saw has them. By default the calls are those of
    /// [a key-value store](service::kv): most services can say what they do in its language.
    fn judge(&self, seen: &SeenCalls<'_>) -> Vec<(&'static str, PropertyVerdict)> {
        let budget = service::Budget::default();
        let mut verdicts = vec![("linearizable", service::linearizable(seen.history, budget))];
        verdicts.extend(seen.exactly_once());
        verdicts
    }
}
