//! The parameters of Multi-Ring Paxos, and the configuration that the processes of a cluster agree on.

use super::MultiRingMutant;
use super::persistence::AcceptorStorage;
use super::topology::{self, MergeOrder, RingId, RingKinds, RingTopology, RingTraversal};
use super::value::{PROPOSAL_BYTES, VALUES_BYTES_MAX};
#[cfg(feature = "mutants")]
use crate::mutant;
use crate::mutant::Mutants;
use alloc::format;
use alloc::vec::Vec;
use amcast_core::config::ParamKind;
use amcast_core::limits::{FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX};
use amcast_core::parameters::{
    HEARTBEAT, PAYLOAD_MAX, RETRY, SUSPECT, WINDOW, WINDOW_BYTES, check_timers, check_window,
};
use amcast_core::{ClusterShape, Config, ConfigError, Gid, Param, Span};

macro_rules! number {
    ($NAME:ident = $name:literal, $default:expr, $min:expr, $max:expr, $source:literal,
     $about:literal, $cost:literal) => {
        const $NAME: Param = Param {
            name: $name,
            kind: ParamKind::Number { default: $default, min: $min, max: $max },
            about: $about,
            cost: $cost,
            source: $source,
        };
    };
}

/// The highest `pack_bytes`.
const PACK_BYTES_MAX: usize = 1 << 20;

/// Bytes of a message beside its values and proposals, at most.
const AROUND_BYTES_MAX: usize = 1 << 16;

// A block of proposals is closed once it has `pack_bytes`, and has one more of any size.
const _: () = assert!(
    PACK_BYTES_MAX + PROPOSAL_BYTES + PAYLOAD_BYTES_MAX + AROUND_BYTES_MAX <= FRAME_BYTES_MAX
);
const _: () = assert!(VALUES_BYTES_MAX + AROUND_BYTES_MAX <= FRAME_BYTES_MAX);

const RINGS: Param = Param {
    name: "rings",
    kind: ParamKind::Choice { of: &["global", "pairs", "independent"] },
    about: "Which rings there are besides one for each group: one for all groups, one also for every \
            two, or none (then no message goes to several groups).",
    cost: "A replica that subscribes to a ring takes part in its skips.",
    source: "MRP 4, 8.3.2",
};

const RING_SETS: Param = Param {
    name: "ring_sets",
    kind: ParamKind::Sets,
    about: "Sets of groups that have a ring of their own, besides the rings that there are.",
    cost: "As for rings. A message goes through the ring of the fewest groups that has all of its.",
    source: "MRP 4",
};

const AROUND: Param = Param {
    name: "around",
    kind: ParamKind::Choice { of: &["nodes", "groups"] },
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
    "More makes it wait longer for a ring that orders nothing."
);

const LEVELING: Param = Param {
    name: "leveling",
    kind: ParamKind::Choice { of: &["demand", "paced"] },
    about: "When rings skip instances: when learners of other rings wait for them, or also at a steady rate.",
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
    1 << 20,
    "MRP 4, `lambda`",
    "The rate that rings are levelled to, in instances a second, where they are paced.",
    "It should be above that of every ring; a skip costs the same for any number. A ring has 2^44 instances: at the \
     highest rate those of half a year, at the usual one those of 60 years."
);
number!(
    PACK_BYTES = "pack_bytes",
    32 << 10,
    1,
    PACK_BYTES_MAX as u64,
    "MRP 7.2",
    "Bytes of small messages that are put into one instance.",
    "More is faster under load; no message waits for a batch to fill."
);
number!(
    PASS_BYTES = "pass_bytes",
    128 << 10,
    1,
    VALUES_BYTES_MAX as u64,
    "ours",
    "About how many bytes of values a member sends its successor in one message.",
    "More is a little faster, and delays heartbeats."
);
number!(
    PIPELINE_BYTES = "pipeline_bytes",
    2 << 20,
    1,
    1 << 30,
    "ours",
    "Bytes that a coordinator may have proposed and not decided.",
    "A new coordinator proposes them again. More hides latency."
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
    "Bytes that a member holds for its application, of a ring, or for its disk, of all, before it takes no more.",
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
    1,
    1 << 36,
    "MRP 7.1 (15,000 slots of 32 KB)",
    "Bytes of a ring's applied values that a member keeps in memory.",
    "Members that were away for longer are served from disk, or need the state of another replica."
);
number!(
    BEHIND_INSTANCES = "behind_instances",
    4096,
    2,
    1 << 32,
    "ours",
    "A member that is missing more instances of a ring than these is excluded from it until it has caught up, \
     where logs are on disk.",
    "With fewer, a member that is a little slow requests retransmissions of what goes round the ring."
);
number!(
    SPREAD = "spread",
    24,
    2,
    1 << 16,
    "ours",
    "From so many members on, a ring disseminates decided skips in a tree, not only round the ring.",
    "One more message for each member and skip; learners do not wait for the way round the ring."
);

pub(super) static PARAMS: &[Param] = &[
    RINGS,
    RING_SETS,
    AROUND,
    M,
    LEVELING,
    DELTA_US,
    LAMBDA,
    WINDOW.with(
        ParamKind::Number { default: 4096, min: 1, max: 1 << 20 },
        "ours; small messages are packed, and it takes many of them to fill an instance",
    ),
    WINDOW_BYTES.with(
        ParamKind::Number { default: 8 << 20, min: 64, max: 1 << 30 },
        "ours; a coordinator has some MB of proposals in flight (pipeline_bytes)",
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
    <MultiRingMutant as mutant::Mutant>::PARAM,
];

/// The rings of a configuration.
pub(super) fn topologies_of(config: &Config) -> Vec<RingTopology> {
    let kinds = [RingKinds::Global, RingKinds::Pairs, RingKinds::Independent];
    let kind = kinds[config.get(&RINGS) as usize];
    let around = [RingTraversal::Nodes, RingTraversal::Groups][config.get(&AROUND) as usize];
    topology::topologies(config.cluster(), kind, config.sets(&RING_SETS), around)
}

/// The configuration that the processes of a cluster agree on.
#[derive(Debug)]
pub(super) struct MultiRingConfig {
    pub(super) cluster: ClusterShape,
    pub(super) storage: AcceptorStorage,
    pub(super) rings: Vec<RingTopology>,
    /// By group: the rings that its replicas subscribe to, in the order in which they are merged.
    pub(super) subscriptions: Vec<Vec<RingId>>,
    pub(super) m: u64,
    /// The interval and rate of levelling, where it is paced.
    pub(super) pace: Option<(Span, u64)>,
    pub(super) limits: MultiRingLimits,
    pub(super) heartbeat: Span,
    pub(super) suspect: Span,
    pub(super) retry: Span,
    /// From so many members on, a ring disseminates skips in a tree.
    pub(super) spread: usize,
    pub(super) mutants: Mutants<MultiRingMutant>,
}

/// The bounds of the queues and buffers of a process: the parameters of the same names.
#[derive(Clone, Copy, Debug)]
pub(super) struct MultiRingLimits {
    pub(super) window: usize,
    pub(super) window_bytes: usize,
    pub(super) payload_max: usize,
    pub(super) pack_bytes: usize,
    pub(super) pass_bytes: usize,
    pub(super) pipeline_bytes: usize,
    pub(super) lag_bytes: usize,
    pub(super) held_bytes: usize,
    pub(super) apply_bytes: usize,
    pub(super) cache_bytes: usize,
    pub(super) behind_instances: usize,
}

impl MultiRingLimits {
    fn of(config: &Config) -> Self {
        let bytes = |param: &Param| config.get(param) as usize;
        Self {
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
        }
    }
}

impl MultiRingConfig {
    pub(super) fn of(storage: AcceptorStorage, config: &Config) -> Result<Self, ConfigError> {
        let get = |param: &Param| config.get(param);
        let cluster = *config.cluster();
        let rings = topologies_of(config);
        let mutants = Mutants::of(config);
        let subscribes = |g: Gid| {
            let mine = rings.iter().enumerate().filter(|(_, ring)| ring.set.contains(g));
            let mut mine: Vec<RingId> = mine.map(|(id, _)| id as RingId).collect();
            if mutants.is(MultiRingMutant::MergesInAnotherOrder) && g.index() % 2 == 1 {
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
            limits: MultiRingLimits::of(config),
            heartbeat: HEARTBEAT.get(config),
            suspect: SUSPECT.get(config),
            retry: RETRY.get(config),
            spread: get(&SPREAD) as usize,
            mutants,
        };
        shape.check(config)?;
        Ok(shape)
    }

    /// Refuses values that exclude each other.
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
    pub(super) fn subscribed(&self, group: Gid) -> (MergeOrder, &[RingId]) {
        let rings = &self.subscriptions[group.index()];
        (MergeOrder { rings: rings.len() as u64, m: self.m }, rings)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SYNCED;
    use amcast_core::{Entry, RawConfig};

    #[test]
    fn settings_whose_messages_fit_no_frame_are_refused() {
        let sound = |name: &str, value: &str| {
            let mut raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
            raw.set = [(name.into(), value.into())].into();
            raw.check(SYNCED.about().params).is_ok()
        };
        assert!(sound("pack_bytes", "1048576") && !sound("pack_bytes", "4194304"));
        assert!(sound("pass_bytes", "2097152") && !sound("pass_bytes", "4194304"));
    }
}
