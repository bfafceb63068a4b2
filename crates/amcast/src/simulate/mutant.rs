//! Ways to break a service on purpose: each must be found.

use amcast_core::{Entry, MsgId, Property, Senders};
use amcast_mutants::mutant::MutantInfo;
use amcast_smr::{Envelope, Stamp};

/// A fault of the service above the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceMutant {
    /// A session forgets its commands at once: duplicates of a command are executed, too.
    ForgetsSessions,
    /// The host reports a checkpoint as one position newer than it is.
    NewerCheckpoint,
    /// Deliveries that arrive while a replica waits for a state are dropped.
    DropsInbox,
    /// Keys that move from a shard to a later one are dropped.
    DropsMovedKeys,
    /// A local read does not wait until its replica has passed a barrier.
    ReadsAtOnce,
    /// Each node decides by its own clock which keys have expired, and not by ordered time.
    ExpiresByOwnClock,
    /// One node loses a command now and then.
    LosesCommand,
    /// A checkpoint counts as durable before it is whole.
    UnfinishedCheckpoint,
    /// Any gateway's clock moves ordered time, against a majority of the nodes.
    TrustsAnyClock,
    /// A node hands commands in although ordered time is far behind its clock.
    HandsInTooSoon,
    /// One node writes keys that nobody reads, and nodes do not compare their states.
    DiffersUnread,
    /// The last command of a batch is answered and not executed.
    LosesBatched,
    /// A store does not count what the first commands of a batch take before it decides on the later ones.
    CountsNoneOfBatch,
    /// A new memory budget is answered, and the first one comes into force.
    KeepsBudget,
    /// Each command is answered as one that was refused.
    RefusesAll,
}

/// A judge of the runs of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceJudge {
    /// The calls of clients have an order that a model of the service allows.
    Linearizable,
    /// Nodes that live hold the same state at the end.
    OneState,
    /// No key expires before its time, by the clocks of a majority.
    Expiry,
    /// Only commands that may grow are refused for lack of memory, and only where a budget may be in force.
    Memory,
    /// The nodes do not refuse most of what clients ask for.
    Progress,
    /// The simulator's ledger: the protocol and the host above it keep what they owe each other.
    Breach,
    /// In the end every message is delivered where it has to be, and each process that lives works.
    Settling,
}

impl ServiceJudge {
    /// Its name in a report: that of its [`super::Finding`]s.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linearizable => "linearizable",
            Self::OneState => "one state",
            Self::Expiry => "expiry",
            Self::Memory => "memory",
            Self::Progress => "progress",
            Self::Breach => "breach",
            Self::Settling => "settling",
        }
    }
}

/// A mutant of the services, as it is declared.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredMutant {
    /// The mutant.
    pub mutant: ServiceMutant,
    /// Its name and mistake.
    pub info: MutantInfo,
    /// The judge that it was made for: a run shows it to this one.
    pub found_by: ServiceJudge,
}

impl DeclaredMutant {
    const fn new(
        mutant: ServiceMutant,
        name: &'static str,
        what: &'static str,
        found_by: ServiceJudge,
    ) -> Self {
        let breaks: &[Property] = match found_by {
            ServiceJudge::Linearizable => &[Property::Linearizable],
            ServiceJudge::OneState
            | ServiceJudge::Expiry
            | ServiceJudge::Memory
            | ServiceJudge::Progress
            | ServiceJudge::Breach
            | ServiceJudge::Settling => &[],
        };
        Self { mutant, info: MutantInfo { name, what, breaks, shown_by: None }, found_by }
    }

    /// Few runs show it; a test does, of this file.
    const fn shown_by(self, file: &'static str) -> Self {
        Self { info: MutantInfo { shown_by: Some(file), ..self.info }, ..self }
    }
}

impl ServiceMutant {
    /// All of them, each with the judge that finds it.
    pub const ALL: &[DeclaredMutant] = &[
        DeclaredMutant::new(
            Self::ForgetsSessions,
            "forgets-sessions",
            "a session forgets what it ran: copies of a command are executed, too",
            ServiceJudge::Linearizable,
        ),
        DeclaredMutant::new(
            Self::NewerCheckpoint,
            "newer-checkpoint",
            "the host reports a checkpoint as one position newer than it is",
            ServiceJudge::Breach,
        ),
        DeclaredMutant::new(
            Self::DropsInbox,
            "drops-inbox",
            "deliveries of replicas while a state is awaited are dropped",
            ServiceJudge::Settling,
        ),
        DeclaredMutant::new(
            Self::DropsMovedKeys,
            "drops-moved-keys",
            "keys that move from a shard to a later one are dropped",
            ServiceJudge::Linearizable,
        ),
        DeclaredMutant::new(
            Self::ReadsAtOnce,
            "reads-at-once",
            "a local read does not wait until its replica has passed a barrier",
            ServiceJudge::Linearizable,
        ),
        DeclaredMutant::new(
            Self::ExpiresByOwnClock,
            "expires-by-own-clock",
            "expiry is judged by each node's own clock, and not by ordered time",
            ServiceJudge::Linearizable,
        ),
        DeclaredMutant::new(
            Self::LosesCommand,
            "loses-command",
            "one node loses a command now and then",
            ServiceJudge::Linearizable,
        ),
        DeclaredMutant::new(
            Self::UnfinishedCheckpoint,
            "unfinished-checkpoint",
            "a checkpoint counts as durable before it is whole",
            ServiceJudge::Breach,
        ),
        DeclaredMutant::new(
            Self::TrustsAnyClock,
            "trusts-any-clock",
            "any gateway's clock moves ordered time, against a majority of the nodes",
            ServiceJudge::Expiry,
        ),
        DeclaredMutant::new(
            Self::HandsInTooSoon,
            "hands-in-too-soon",
            "a node hands commands in although ordered time is far behind its clock",
            ServiceJudge::Expiry,
        )
        // A shard has to order nothing for seconds, and then a key that does not live long: one run of some 2,000.
        .shown_by("crates/amcast/src/simulate/application.rs"),
        DeclaredMutant::new(
            Self::DiffersUnread,
            "differs-unread",
            "one node writes keys that nobody reads, and nodes do not compare their states",
            ServiceJudge::OneState,
        ),
        DeclaredMutant::new(
            Self::LosesBatched,
            "loses-batched",
            "the last command of a batch is answered and not executed",
            ServiceJudge::Linearizable,
        ),
        DeclaredMutant::new(
            Self::CountsNoneOfBatch,
            "counts-none-of-batch",
            "the memory of the first commands of a batch is not counted before the later ones: replicas refuse others of them",
            ServiceJudge::Breach,
        )
        // It takes a shard that is almost full, and commands that wait at one node only: one run of some 80 with a budget.
        .shown_by("crates/amcast/tests/simulate.rs"),
        DeclaredMutant::new(
            Self::KeepsBudget,
            "keeps-budget",
            "a new memory budget is answered, and the first one comes into force",
            ServiceJudge::Memory,
        ),
        DeclaredMutant::new(
            Self::RefusesAll,
            "refuses-all",
            "each command is answered as one that was refused",
            ServiceJudge::Progress,
        ),
    ];

    /// Whether the mistake can be made at all above this protocol, in a cluster of so many groups.
    pub fn applies(self, entry: &dyn Entry, groups: usize) -> bool {
        let can = entry.capabilities();
        match self {
            Self::NewerCheckpoint | Self::UnfinishedCheckpoint => can.durability.has_log(),
            // Nodes that lose their state and have no log get it from others.
            Self::DropsInbox => can.state_transfer,
            Self::ReadsAtOnce => can.read_index,
            // Of one shard all commands are executed in one order.
            Self::DropsMovedKeys | Self::CountsNoneOfBatch => groups > 1,
            // Elsewhere no clock is wrong: nodes do not report theirs.
            Self::ExpiresByOwnClock | Self::TrustsAnyClock | Self::HandsInTooSoon => {
                can.senders == Senders::Replicas
            }
            Self::ForgetsSessions
            | Self::LosesCommand
            | Self::DiffersUnread
            | Self::LosesBatched
            | Self::KeepsBudget
            | Self::RefusesAll => true,
        }
    }

    /// Whether it is a mistake of the key-value store, or one that only calls on the store show.
    pub const fn is_of_store(self) -> bool {
        matches!(
            self,
            Self::DropsMovedKeys
                | Self::TrustsAnyClock
                | Self::HandsInTooSoon
                | Self::DiffersUnread
                | Self::LosesBatched
                | Self::CountsNoneOfBatch
                | Self::KeepsBudget
        )
    }

    /// The mutant of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|one| one.info.name == name).map(|one| one.mutant)
    }
}

/// The broken node loses the deliveries whose positions this divides.
pub(super) const LOST_EVERY: u64 = 17;

/// Has a command come at this time.
pub(super) fn stamp_anew(payload: &mut Vec<u8>, stamp: Stamp) {
    let Some((envelope, body)) = Envelope::decode(payload) else { return };
    let body = body.to_vec();
    payload.clear();
    Envelope { stamp, ..envelope }.encode(payload);
    payload.extend_from_slice(&body);
}

/// Gives a command a session of its own.
pub(super) fn forget_session(payload: &mut Vec<u8>, msg: MsgId) {
    let Some((envelope, body)) = Envelope::decode(payload) else { return };
    let body = body.to_vec();
    let session = 1 << 62 | u64::from(msg.sender.0) << 40 | msg.seq & 0xff_ffff_ffff;
    payload.clear();
    Envelope { session, ..envelope }.encode(payload);
    payload.extend_from_slice(&body);
}
