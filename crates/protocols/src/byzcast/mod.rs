//! ByzCast's tree of groups, in message passing and without its Byzantine replicas: one process a group, no replication, as
//! [TRAM 8.6] runs it beside TRAM, which orders over the same trees.
//!
//! Source: P. Coelho, T. Ceolin Junior, A. Bessani, F. Dotti, F. Pedone, "Byzantine fault-tolerant atomic multicast", DSN 2018,
//! as [TRAM 9] tells of it.
//!
//! # Order and guarantees
//! Multicasts of clients to any set of groups. Validity, uniform agreement, uniform integrity, uniform prefix order and
//! uniform acyclic order. It is partially genuine: a message to one group involves no other, and one to several groups involves
//! only those on the tree's paths from their lowest common ancestor down to them. It does *not* promise FIFO order: two
//! multicasts of one client may begin at different groups.
//!
//! # Assumptions
//! No process crashes, and no stream breaks. Asynchronous otherwise: nothing is timed.
//!
//! # The normal case
//! ```text
//!                 client                    g0 is the parent of g1, which is that of g2 and g3
//!                   |--cast to {g2, g3}--> g1, their lowest common ancestor: no destination, delivers nothing
//!                                           |--relay--> g2: deliver, ack
//!                                           '--relay--> g3: deliver, ack
//!                   done when every destination acked
//! ```
//! As many message delays as groups lie on the longest of these paths.
//!
//! # Roles and phases
//! A **client** sends a multicast to the lowest common ancestor of its destinations and waits for the acknowledgements of
//! the destinations. A **replica** handles each message in one step:
//! 1. `[ByzCast 1]` The message comes, of a client or of the parent. Its place in the group's order is that of its arrival.
//! 2. `[ByzCast 2]` It is relayed to each child through which a destination is reached.
//! 3. `[ByzCast 3]` It is delivered and acknowledged, if the group is a destination.
//!
//! # Why the order is acyclic
//! Messages that have two destinations in common both pass the lowest common ancestor of these two groups, which gives
//! them one order. Streams are FIFO and each group relays in the order of its arrivals, so all groups below keep it. A cycle
//! over several groups would lie in the tree below one group that all its messages pass in an order, or would
//! need a second path between two groups, which a tree does not have.
//!
//! # Limits
//! - A client has at most `window` multicasts and `window_bytes` of payload in flight, from submission until the last
//!   acknowledgement; [`Protocol::room`] is 0 beyond that. It puts each into one of `window` numbered *slots*.
//! - A replica keeps nothing of a message but the number of the last one in each slot, by which it recognises repeated ones.
//!   Payloads on the way through it are at most clients times `window_bytes`.
//!
//! # Deviations
//! Groups are not replicated, so nothing here is fault-tolerant. Acknowledgements are ours. Messages that a broken stream
//! lost are not sent again; the break is noted.
//!
//! # Read first
//! `ByzCastReplica::on_cast`.

mod client;
mod message;
mod replica;
#[cfg(test)]
mod tests;

use crate::mutant::{self, Mutants};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::config::ParamKind;
use amcast_core::limits::PAYLOAD_BYTES_MAX;
use amcast_core::messages::FramedProtocol;
use amcast_core::parameters::{PAYLOAD_MAX, WINDOW, WINDOW_BYTES, check_window};
use amcast_core::{
    About, Assumption, Capabilities, ClusterShape, Config, ConfigError, Entry, MediumKind, Overlay,
    Param, Pid, Property, ProtocolProcess, Role, Senders,
};
use client::ByzCastClient;
use message::ByzCastMessage;
use replica::ByzCastReplica;

#[cfg(doc)]
use amcast_core::Protocol;

static PARAMS: &[Param] = &[
    WINDOW.with(
        ParamKind::Number { default: 16, min: 1, max: 256 },
        "ours; each replica keeps 8 bytes a multicast and client",
    ),
    WINDOW_BYTES.with(
        ParamKind::Number { default: 1 << 20, min: 64, max: 64 << 20 },
        "ours; so much of each client may be on its way through a replica",
    ),
    PAYLOAD_MAX.with(
        ParamKind::Number { default: 64 << 10, min: 0, max: PAYLOAD_BYTES_MAX as u64 },
        "ours; some have to fit into the smaller window_bytes at one time",
    ),
    #[cfg(feature = "mutants")]
    <ByzCastMutant as mutant::Mutant>::PARAM,
];

static ABOUT: About = About {
    summary: "Atomic multicast over a tree of groups by messages; one process a group, no failures.",
    paper: "TRAM 8.6; ByzCast, DSN 2018",
    medium: MediumKind::Messages,
    capabilities: Capabilities {
        several_groups: true,
        senders: Senders::Clients,
        suspicion_tolerance: true,
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
    assumes: &[Assumption::NoCrash, Assumption::StreamsHold, Assumption::StreamsOnly],
    params: PARAMS,
};

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum ByzCastMutant {
        SkipsAncestor = "skips-the-ancestor":
            "Clients send to each destination, and not to the ancestor that orders." breaks
            [UniformPrefixOrder, UniformAcyclicOrder];
        Overtakes = "relays-out-of-order":
            "A group relays every fourth message behind the next one." breaks
            [Validity, UniformAgreement, UniformPrefixOrder, UniformAcyclicOrder];
        Twice = "delivers-twice":
            "Every fourth message is delivered two times." breaks [UniformIntegrity];
        Drops = "drops-a-message":
            "Every fourth message is acknowledged and not delivered." breaks
            [Validity, UniformAgreement, UniformPrefixOrder];
        TellsAll = "relays-to-all-children":
            "A group relays to all its children, also where no destination is." breaks
            [PartiallyGenuine];
    }
}

/// ByzCast in the catalog.
#[derive(Debug)]
pub struct ByzCast;

impl Entry for ByzCast {
    fn name(&self) -> &'static str {
        "byzcast"
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let shape = ByzCastShape::of(config)?;
        Ok(ProtocolProcess::Messages(match shape.cluster.role(me) {
            Role::Replica { group, .. } => {
                Box::new(FramedProtocol::new(ByzCastReplica::new(group, shape)))
            }
            Role::Client { .. } => Box::new(FramedProtocol::new(ByzCastClient::new(me, shape))),
        }))
    }

    fn overlay<'a>(&self, config: &'a Config) -> Option<&'a Overlay> {
        Some(config.overlay())
    }

    fn show(&self, bytes: &[u8]) -> String {
        let mut reader = ByteReader::new(bytes);
        match ByzCastMessage::decode(&mut reader) {
            Ok(message) if reader.is_empty() => message.to_string(),
            Ok(message) => format!("{message}, and {} bytes too many", reader.rest().len()),
            Err(e) => format!("no message of ByzCast's: {e}"),
        }
    }
}

/// The common knowledge of the processes of a cluster.
#[derive(Clone, Debug)]
struct ByzCastShape {
    /// Of one replica a group.
    cluster: ClusterShape,
    /// The tree of groups.
    overlay: Overlay,
    /// Slots of each client.
    window: usize,
    /// Payload bytes of each client in flight, at most.
    window_bytes: usize,
    /// Payload bytes of one multicast, at most.
    payload_max: usize,
    mutants: Mutants<ByzCastMutant>,
}

impl ByzCastShape {
    fn of(config: &Config) -> Result<Self, ConfigError> {
        let shape = Self {
            cluster: *config.cluster(),
            overlay: config.overlay().clone(),
            window: WINDOW.get(config),
            window_bytes: WINDOW_BYTES.get(config),
            payload_max: PAYLOAD_MAX.get(config),
            mutants: Mutants::of(config),
        };
        if shape.cluster.replicas() != 1 {
            return Err(ConfigError::Relation(format!(
                "replicas = {}: byzcast has one process a group here and survives no crash; give \
                 replicas = 1, or a protocol that replicates its groups",
                shape.cluster.replicas()
            )));
        }
        check_window(config)?;
        Ok(shape)
    }
}
