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
    /// One node writes keys that nobody reads, and nodes do not compare their states.
    DiffersUnread,
}

impl ServiceMutant {
    /// All of them, with what each breaks.
    pub const ALL: &[(Self, MutantInfo)] = &[
        (
            Self::ForgetsSessions,
            MutantInfo {
                name: "forgets-sessions",
                what: "a session forgets what it ran: copies of a command are executed, too",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::NewerCheckpoint,
            MutantInfo {
                name: "newer-checkpoint",
                what: "the host reports a checkpoint as one position newer than it is",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::DropsInbox,
            MutantInfo {
                name: "drops-inbox",
                what: "what replicas deliver while a state is awaited is dropped",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::DropsMovedKeys,
            MutantInfo {
                name: "drops-moved-keys",
                what: "keys that move from a shard to a later one are dropped",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::ReadsAtOnce,
            MutantInfo {
                name: "reads-at-once",
                what: "a local read does not wait until its replica has passed a barrier",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::ExpiresByOwnClock,
            MutantInfo {
                name: "expires-by-own-clock",
                what: "what has expired is judged by each node's own clock, and not by ordered time",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::LosesCommand,
            MutantInfo {
                name: "loses-command",
                what: "one node loses a command now and then",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::UnfinishedCheckpoint,
            MutantInfo {
                name: "unfinished-checkpoint",
                what: "a checkpoint counts as durable before it is whole",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::TrustsAnyClock,
            MutantInfo {
                name: "trusts-any-clock",
                what: "any gateway's clock moves ordered time, against a majority of the nodes",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::DiffersUnread,
            MutantInfo {
                name: "differs-unread",
                what: "one node writes keys that nobody reads, and nodes do not compare their states",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
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
            Self::DropsMovedKeys => groups > 1,
            // Elsewhere no clock is wrong: nodes do not report theirs.
            Self::ExpiresByOwnClock | Self::TrustsAnyClock => can.senders == Senders::Replicas,
            Self::ForgetsSessions | Self::LosesCommand | Self::DiffersUnread => true,
        }
    }

    /// Whether it is a mistake of the key-value store, or one that only calls on the store show.
    pub const fn is_of_store(self) -> bool {
        matches!(self, Self::DropsMovedKeys | Self::TrustsAnyClock | Self::DiffersUnread)
    }

    /// The mutant of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, info)| info.name == name).map(|(mutant, _)| *mutant)
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
