//! Multi-Ring Paxos: atomic multicast out of many instances of Ring Paxos [MRP 4, 5].
//!
//! # What it orders and promises
//! Multicasts of replicas to any set of groups for which there is a ring. Validity, uniform
//! agreement, uniform integrity, uniform prefix order and uniform acyclic order. Where only one group
//! is addressed, nobody else takes part; a message to several groups goes round the smallest ring that
//! has them all.
//!
//! # What it assumes
//! For safety nothing about time, of streams only that they are in order. What acceptors promised and
//! accepted is on disk before they say so (`multi-ring`), written some time later
//! (`multi-ring-async`: it survives the end of processes, not of more than a minority of machines at a
//! time), or in memory (`multi-ring-memory`: a majority of each group must be fit at any time). For
//! progress one of each ring's acceptors must hear a majority of them, itself among them, and these it.
//!
//! # The normal case
//! ```text
//!            coordinator      acceptor         acceptor
//!  propose ----> | 2A, own vote  |                |
//!                |-------------->| + vote: decided|
//!                |               |--------------->| learns the decision
//!                |<-------------------------------| votes only: learns the decision
//! ```
//! Votes are counters, one for each acceptor: how far it has accepted what the coordinator of this
//! ballot proposed. They travel with the values, and whoever sees those of a majority knows what is
//! decided; so there is no message for a decision, and an acceptor that waits for its disk holds up
//! nobody who does not need its vote.
//!
//! # Roles and phases
//! Each replica of a group is proposer, acceptor and learner in the ring of its group, and a learner
//! in rings of several groups; there the replicas of the lowest group are the acceptors. One of the
//! acceptors is *coordinator*: it runs phase 1 for all instances at once, proposes again what may be
//! decided, and then gives each batch of messages the next instance. Learners merge their rings,
//! `M` instances of each in turn; coordinators skip instances of rings that others wait for.
//!
//! # Limits
//! - A process has at most `window` own messages of `window_bytes` for each ring that are not decided:
//!   beyond that it has no room. A coordinator queues as much of each process, and has at most
//!   `pipeline_bytes` undecided, and `lag_bytes` that a majority of some group has not applied.
//! - What is on the way to the next member of a ring, and it has not shown to hold, is four times
//!   `pipeline_bytes` at most.
//! - A member keeps at most `cache_bytes` of each ring in memory besides what its application has not
//!   applied, and stops taking in at `held_bytes` of that. What is older is read from disk again; in
//!   memory it is forgotten when a majority of each group has applied it.
//! - The log is trimmed behind the checkpoints of a majority of nodes, the replicas of one rank [MRP 5.2].
//!
//! # Deviations
//! - Who is in the ring, and who coordinates it, follows from signs of life that acceptors exchange,
//!   and from the coordinator's order; no coordination service is asked. Neither matters for safety.
//!   Before phase 1 a candidate asks the others whether they, too, hear no coordinator (`election.rs`).
//! - Proposals go straight to the coordinator, and values from there round the ring. Where the way to the
//!   coordinator is broken, they go by way of another acceptor (`forward.rs`).
//! - Votes are cumulative counters, see above; the last acceptor does not make them a decision. Whoever
//!   first sees enough of them tells the coordinator straight (`successor.rs`).
//! - Who is far behind is left out of the ring until it has caught up (with logs on disk), and a neighbour that cannot be
//!   reached is passed over (`successor.rs`, `membership.rs`).
//! - Where ways round the ring are broken, so that too few remain in it, the coordinator and acceptors whom it
//!   reaches pass on the run and votes beside it (`direct.rs`, `connectivity.rs`).
//! - Rates are levelled on demand: a coordinator that gives an instance to messages asks those of the
//!   rings merged with its own to come as far, at once, and further where it orders much while an answer
//!   is under way (`levelling.rs`); in large rings decided skips do not only go round (`skip_dissemination.rs`). With `leveling = paced` each also skips to
//!   `lambda` instances a second every `delta_us`, as [MRP 4] does.
//! - Barriers (`read_index.rs`) let services read without an order: the paper orders reads, too.
//! - A retried proposal is recognised by its number, which the log itself keeps without gaps.
//! - What is trimmed is judged by nodes, which give each other the state of all their replicas, and not by each
//!   partition (`log_replay.rs`).
//! - An acceptor whose log is lost asks a majority of the others before it votes again
//!   (`acceptor_recovery.rs`); [MRP 5.1] supposes that logs survive.
//!
//! # Read first
//! `value.rs`, `topology.rs`, then `ring.rs` from `Ring::on_pass` on, `election.rs`, `coordinator.rs`, `merge.rs`; then
//! `process.rs`, which puts them together.

mod acceptor;
mod acceptor_recovery;
mod ballot_log;
mod catch_up;
mod connectivity;
mod coordinator;
mod direct;
mod dispatch;
mod election;
mod forward;
mod instance_log;
mod learner;
mod levelling;
mod log_replay;
mod membership;
mod merge;
mod message;
mod persistence;
mod phase1;
mod process;
mod proposal_queue;
mod proposer;
mod read_index;
mod ring;
mod shared_bytes;
mod skip_dissemination;
mod successor;
mod topology;
mod transfer;
mod value;

use crate::mutant::{self, Mutants};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{Codec, Reader};
use amcast_core::config::Kind;
use amcast_core::messages::Wire;
use amcast_core::parameters::{
    HEARTBEAT, PAYLOAD_MAX, RETRY, SUSPECT, WINDOW, WINDOW_BYTES, check_timers, check_window,
};
use amcast_core::{
    About, Assumption, Capabilities, Cluster, Config, ConfigError, Entry, Gid, GroupSet,
    MediumKind, Node, Param, Pid, Property, Span,
};
use message::RingPacket;
use persistence::{AcceptorStorage, LogRecord};
use process::MultiRing;
use topology::{MergeOrder, RingId, RingKinds, RingTopology, RingTraversal};

macro_rules! number {
    ($NAME:ident = $name:literal, $default:expr, $min:expr, $max:expr, $source:literal,
     $about:literal, $cost:literal) => {
        const $NAME: Param = Param {
            name: $name,
            kind: Kind::Number { default: $default, min: $min, max: $max },
            about: $about,
            cost: $cost,
            source: $source,
        };
    };
}

const RINGS: Param = Param {
    name: "rings",
    kind: Kind::Choice { of: &["global", "pairs", "independent"] },
    about: "Which rings there are besides one for each group: one for all groups, one also for every \
            two, or none (then nothing goes to several groups).",
    cost: "Whoever subscribes to a ring takes part in its skips.",
    source: "MRP 4, 8.3.2",
};

const RING_SETS: Param = Param {
    name: "ring_sets",
    kind: Kind::Sets,
    about: "Sets of groups that have a ring of their own, besides the rings that there are.",
    cost: "As for rings. A message goes through the ring of the fewest groups that has all of its.",
    source: "MRP 4",
};

const AROUND: Param = Param {
    name: "around",
    kind: Kind::Choice { of: &["nodes", "groups"] },
    about: "In which order messages go round a ring of several groups: node by node, or, where groups \
            are far apart, group by group.",
    cost: "Node by node, each message of such a ring goes from region to region as often as groups \
           have replicas.",
    source: "ours",
};

number!(
    M = "m",
    1,
    1,
    1 << 16,
    "MRP 4, `M`",
    "Instances that a learner takes from a ring before it turns to the next.",
    "More makes it wait longer for a ring that has nothing."
);

const LEVELING: Param = Param {
    name: "leveling",
    kind: Kind::Choice { of: &["demand", "paced"] },
    about: "When rings skip instances: when others wait for them, or also at a steady rate.",
    cost: "Paced, a skip in each ring and interval, also when nothing happens.",
    source: "MRP 4",
};

number!(
    DELTA_US = "delta_us",
    5_000,
    100,
    10_000_000,
    "MRP 4, `delta`",
    "How often the rate of a ring is levelled, in microseconds, where it is paced.",
    "Less makes learners wait less for idle rings."
);
number!(
    LAMBDA = "lambda",
    9_000,
    1,
    100_000_000,
    "MRP 4, `lambda`",
    "The rate that rings are levelled to, in instances a second, where they are paced.",
    "It should be above that of every ring; a skip costs the same for any number."
);
number!(
    PACK_BYTES = "pack_bytes",
    32 << 10,
    1,
    4 << 20,
    "MRP 7.2",
    "Bytes of small messages that are put into one instance.",
    "More is faster under load; nothing waits for it."
);
number!(
    PASS_BYTES = "pass_bytes",
    128 << 10,
    1,
    4 << 20,
    "ours",
    "About how many bytes of values are passed on in one message.",
    "More is a little faster, and holds up signs of life."
);
number!(
    PIPELINE_BYTES = "pipeline_bytes",
    2 << 20,
    1,
    1 << 30,
    "ours",
    "Bytes that a coordinator may have proposed and not decided.",
    "What a new coordinator proposes again. More hides latency."
);
number!(
    LAG_BYTES = "lag_bytes",
    64 << 20,
    1,
    1 << 36,
    "ours",
    "Bytes that a majority of some group may have to apply before a ring takes no more.",
    "Memory of every member."
);
number!(
    HELD_BYTES = "held_bytes",
    256 << 20,
    1 << 10,
    1 << 36,
    "ours",
    "Bytes of a ring that a member holds for its application before it takes no more.",
    "Memory of the member."
);
number!(
    APPLY_BYTES = "apply_bytes",
    8 << 20,
    1,
    1 << 36,
    "ours",
    "Bytes that are delivered and not applied before a member delivers no more.",
    "Memory of the application."
);
number!(
    CACHE_BYTES = "cache_bytes",
    64 << 20,
    1 << 10,
    1 << 36,
    "MRP 7.1 (15,000 slots of 32 KB)",
    "Bytes of a ring's applied values that a member keeps in memory.",
    "Members that were away for longer are served from disk, or need a state."
);
number!(
    BEHIND_INSTANCES = "behind_instances",
    4096,
    2,
    1 << 32,
    "ours",
    "Who lacks more instances of a ring than these is left out of it until it has caught up, where logs \
     are on disk.",
    "Fewer, and who is a little slow fetches what the others pass round."
);
number!(
    SPREAD = "spread",
    24,
    2,
    1 << 16,
    "ours",
    "From so many members on, those of a ring are told of skips straight, not only round the ring.",
    "One more message for each member and skip, and no way round to wait for."
);

static PARAMS: &[Param] = &[
    RINGS,
    RING_SETS,
    AROUND,
    M,
    LEVELING,
    DELTA_US,
    LAMBDA,
    WINDOW.with(
        Kind::Number { default: 4096, min: 1, max: 1 << 20 },
        "ours; small messages are packed, and it takes many of them to fill an instance",
    ),
    WINDOW_BYTES.with(
        Kind::Number { default: 8 << 20, min: 64, max: 1 << 30 },
        "ours; a coordinator has some MB of proposals on the way (pipeline_bytes)",
    ),
    PAYLOAD_MAX.param(),
    PACK_BYTES,
    PASS_BYTES,
    PIPELINE_BYTES,
    LAG_BYTES,
    HELD_BYTES,
    APPLY_BYTES,
    CACHE_BYTES,
    BEHIND_INSTANCES,
    HEARTBEAT.param(),
    SUSPECT.param(),
    RETRY.param(),
    SPREAD,
    #[cfg(feature = "mutants")]
    <Mutant as mutant::Mutant>::PARAM,
];

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum Mutant {
        FewerVotes = "decides-with-one-vote-less":
            "A value counts as decided with one vote less than a majority." breaks
            [UniformPrefixOrder];
        BeginsWithNothing = "begins-with-nothing":
            "A new coordinator does not propose again what was accepted." breaks
            [UniformPrefixOrder];
        ForgetsWhatItAccepted = "forgets-what-it-accepted":
            "A promise does not say what was accepted before." breaks [UniformPrefixOrder];
        VotesBeforeItIsWritten = "votes-before-it-is-written":
            "An acceptor votes before the value is on its disk." breaks [UniformPrefixOrder];
        VotesForAllItTookIn = "votes-for-all-it-took-in":
            "An acceptor that has its memory back votes at once for what it took in meanwhile, on its \
             disk or not." breaks [UniformPrefixOrder];
        PassesOnLostVotes = "passes-on-lost-votes":
            "Votes of a memory that was lost are passed on to those who do not know of the loss." breaks
            [UniformPrefixOrder];
        ForgetsThatItForgot = "forgets-that-it-forgot":
            "An acceptor that lost its memory votes at once." breaks [UniformPrefixOrder];
        PromisesBeforeItIsWritten = "promises-before-it-is-written":
            "An acceptor promises a ballot before the promise is on its disk." breaks
            [UniformPrefixOrder];
        LeadsBeforeItIsWritten = "leads-before-it-is-written":
            "A coordinator begins its run before its own promise is on its disk." breaks
            [UniformPrefixOrder];
        BeginsWithTheLongestLog = "begins-with-the-longest-log":
            "A new coordinator proposes again the longest log of a quorum, whatever ballot it is of." breaks
            [UniformPrefixOrder];
        RemembersTheLongestLog = "remembers-the-longest-log":
            "An acceptor that lost its memory takes over the longest log, whatever ballot it is of." breaks
            [UniformPrefixOrder];
        BeginsBehind = "begins-behind-what-is-known":
            "A new coordinator does not learn first what the others know to be decided." breaks
            [UniformPrefixOrder];
        CountsBelowItsPromise = "counts-below-its-promise":
            "The beginning of a run counts as accepted although a higher ballot was promised." breaks
            [UniformPrefixOrder];
        KeepsLeftovers = "keeps-leftovers":
            "What an older run had beyond the beginning of a newer one stays." breaks
            [UniformPrefixOrder];
        CountsOlderRuns = "counts-older-runs":
            "What is known to be decided by a newer ballot makes values of an older run count." breaks
            [UniformPrefixOrder];
        ForgetsWhatItPassed = "forgets-what-it-passed":
            "That instances were passed because nobody has them any more is not written." breaks
            [UniformPrefixOrder];
        TakesACutLogForWhole = "takes-a-cut-log-for-whole":
            "An acceptor whose log was cut votes at once." breaks [UniformPrefixOrder];
        TakesATornLogForWhole = "takes-a-torn-log-for-whole":
            "An acceptor that awaits no disk votes at once after its machine failed." breaks
            [UniformPrefixOrder];
        CountsOnLostMemories = "counts-on-lost-memories":
            "Who tells an acceptor what it had promised goes on to count its votes from before." breaks
            [UniformPrefixOrder];
        CountsLostPromises = "counts-lost-promises":
            "A promise counts although its acceptor has lost its memory since." breaks
            [UniformPrefixOrder];
        AsksTooFew = "asks-too-few":
            "An acceptor that lost its memory asks one less than it must." breaks [UniformPrefixOrder];
        RemembersNothing = "remembers-nothing":
            "An acceptor that lost its memory does not take over what the others had accepted." breaks
            [UniformPrefixOrder];
        DeliversUndecided = "delivers-undecided":
            "A learner delivers what it has, decided or not." breaks [UniformPrefixOrder];
        MergesInAnotherOrder = "merges-in-another-order":
            "Each second group merges its rings the other way round." breaks
            [UniformPrefixOrder, UniformAcyclicOrder];
        OrdersTwice = "orders-twice":
            "A retried proposal gets an instance again." breaks [UniformIntegrity];
        TrimsForOne = "trims-for-one":
            "What one node has in checkpoints is trimmed." breaks [Validity, UniformAgreement];
        PassesAlone = "passes-barriers-alone":
            "A barrier is passed by what its own process knows." breaks [Linearizable];
        AnswersKnown = "answers-barriers-with-what-is-known":
            "An acceptor counts for a barrier what it knows to be decided, and not all that it has voted for."
            breaks [Linearizable];
        TellsAll = "tells-everybody":
            "Messages to one group go round the ring of all groups." breaks [PartiallyGenuine];
    }
}

/// Multi-Ring Paxos with one kind of storage, in the catalog.
#[derive(Debug)]
pub struct MultiRingEntry {
    name: &'static str,
    storage: AcceptorStorage,
    about: &'static About,
}

macro_rules! row {
    ($NAME:ident = $name:literal, $storage:expr, $assumes:expr, $summary:literal) => {
        #[doc = $summary]
        pub static $NAME: MultiRingEntry = MultiRingEntry {
            name: $name,
            storage: $storage,
            about: &About {
                summary: $summary,
                paper: "MRP 4, 5",
                medium: MediumKind::Messages,
                capabilities: Capabilities {
                    several_groups: true,
                    read_index: true,
                    durability: $storage.durability(),
                    state_transfer: true,
                    crash_tolerance: true,
                    ..Capabilities::NONE
                },
                promises: &[
                    Property::Validity,
                    Property::UniformAgreement,
                    Property::UniformIntegrity,
                    Property::UniformPrefixOrder,
                    Property::UniformAcyclicOrder,
                    Property::PartiallyGenuine,
                ],
                assumes: $assumes,
                params: PARAMS,
            },
        };
    };
}

row!(
    SYNCED = "multi-ring",
    AcceptorStorage::Synced,
    &[Assumption::StreamsOnly],
    "Durable atomic multicast by rings of Paxos, merged; acceptors sync before they vote."
);
row!(
    WRITTEN = "multi-ring-async",
    AcceptorStorage::Written,
    &[Assumption::StreamsOnly, Assumption::MajorityFit],
    "As multi-ring; acceptors write to disk some time after they voted."
);
row!(
    MEMORY = "multi-ring-memory",
    AcceptorStorage::Memory,
    &[Assumption::StreamsOnly, Assumption::MajorityFit],
    "As multi-ring; acceptors keep everything in memory."
);

impl Entry for MultiRingEntry {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static About {
        self.about
    }

    fn build(&self, me: Pid, config: &Config) -> Result<Node, ConfigError> {
        let shape = Arc::new(MultiRingConfig::of(self.storage, config)?);
        Ok(Node::Messages(Box::new(Wire::new(MultiRing::new(me, &shape)))))
    }

    fn together(&self, config: &Config) -> Vec<GroupSet> {
        topologies_of(config).into_iter().map(|ring| ring.set).collect()
    }

    fn show(&self, bytes: &[u8]) -> String {
        let mut reader = Reader::new(bytes);
        match RingPacket::decode(&mut reader) {
            Ok(packet) if reader.is_empty() => format!("{packet:?}"),
            _ => match LogRecord::read(bytes) {
                Some(record) => format!("{record:?}"),
                None => format!("{} bytes that are no word of Multi-Ring Paxos", bytes.len()),
            },
        }
    }
}

/// The rings of a configuration.
fn topologies_of(config: &Config) -> Vec<RingTopology> {
    let kinds = [RingKinds::Global, RingKinds::Pairs, RingKinds::Independent];
    let kind = kinds[config.get(&RINGS) as usize];
    let around = [RingTraversal::Nodes, RingTraversal::Groups][config.get(&AROUND) as usize];
    topology::topologies(config.cluster(), kind, config.sets(&RING_SETS), around)
}

/// What the processes of a cluster agree on.
#[derive(Debug)]
struct MultiRingConfig {
    cluster: Cluster,
    storage: AcceptorStorage,
    rings: Vec<RingTopology>,
    /// By group: the rings that its replicas subscribe to, in the order in which they are merged.
    subscriptions: Vec<Vec<RingId>>,
    m: u64,
    /// The interval and rate of levelling, where it is paced.
    pace: Option<(Span, u64)>,
    window: usize,
    window_bytes: usize,
    payload_max: usize,
    pack_bytes: usize,
    pass_bytes: usize,
    pipeline_bytes: usize,
    lag_bytes: usize,
    held_bytes: usize,
    apply_bytes: usize,
    cache_bytes: usize,
    behind_instances: usize,
    heartbeat: Span,
    suspect: Span,
    retry: Span,
    /// Members of a ring from which on skips are told straight.
    spread: usize,
    mutants: Mutants<Mutant>,
}

impl MultiRingConfig {
    fn of(storage: AcceptorStorage, config: &Config) -> Result<Self, ConfigError> {
        let get = |param: &Param| config.get(param);
        let bytes = |param: &Param| config.get(param) as usize;
        let cluster = *config.cluster();
        let rings = topologies_of(config);
        let mutants = Mutants::of(config);
        let subscribes = |g: Gid| {
            let mine = rings.iter().enumerate().filter(|(_, ring)| ring.set.contains(g));
            let mut mine: Vec<RingId> = mine.map(|(id, _)| id as RingId).collect();
            if mutants.is(Mutant::MergesInAnotherOrder) && g.index() % 2 == 1 {
                mine.reverse();
            }
            mine
        };
        let pace = (get(&LEVELING) == 1).then(|| (Span::micros(get(&DELTA_US)), get(&LAMBDA)));
        let shape = Self {
            cluster,
            storage,
            subscriptions: cluster.all_groups().iter().map(subscribes).collect(),
            rings,
            m: get(&M),
            pace,
            window: WINDOW.get(config),
            window_bytes: WINDOW_BYTES.get(config),
            payload_max: PAYLOAD_MAX.get(config),
            pack_bytes: bytes(&PACK_BYTES),
            pass_bytes: bytes(&PASS_BYTES),
            pipeline_bytes: bytes(&PIPELINE_BYTES),
            lag_bytes: bytes(&LAG_BYTES),
            held_bytes: bytes(&HELD_BYTES),
            apply_bytes: bytes(&APPLY_BYTES),
            cache_bytes: bytes(&CACHE_BYTES),
            behind_instances: bytes(&BEHIND_INSTANCES),
            heartbeat: HEARTBEAT.get(config),
            suspect: SUSPECT.get(config),
            retry: RETRY.get(config),
            spread: bytes(&SPREAD),
            mutants,
        };
        shape.check(config)?;
        Ok(shape)
    }

    /// The relations between values that do not go together.
    fn check(&self, config: &Config) -> Result<(), ConfigError> {
        if self.cluster.clients() != 0 {
            return Err(ConfigError::Relation(format!(
                "clients = {}: in Multi-Ring Paxos every replica multicasts; give clients = 0",
                self.cluster.clients()
            )));
        }
        check_timers(config, 1)?;
        check_window(config)
    }

    /// How a replica of `group` merges, and which rings.
    fn subscribed(&self, group: Gid) -> (MergeOrder, &[RingId]) {
        let rings = &self.subscriptions[group.index()];
        (MergeOrder { rings: rings.len() as u64, m: self.m }, rings)
    }
}
