//! Skeen's atomic multicast: the failure-free ancestor of the timestamp protocols, in message
//! passing. One process a group, no replication, as [TRAM 8.6] runs it; the timestamps go back to
//! Skeen and to Birman and Joseph's "Reliable communication in the presence of failures" (1987).
//!
//! # Order and guarantees
//! Multicasts of clients to any set of groups. Validity, uniform agreement, uniform integrity,
//! uniform prefix order and uniform acyclic order; it is genuine: only the client and the
//! destinations hear of a message. It does *not* promise FIFO order: of two multicasts of one
//! client, the first may get its timestamp from a group that the second does not go to.
//!
//! # Assumptions
//! No process crashes, and no stream breaks. Asynchronous otherwise: nothing is timed.
//!
//! # The normal case
//! ```text
//! client  --cast--+-----------.                           .--> done when every destination acked
//!                 v           |                           |
//! group 0      clock 8        |   propose 8  --.    max(8, 5) = 8: deliver, ack
//!                             v                 X
//! group 1                  clock 5, propose 5 --'   max(8, 5) = 8: deliver, ack
//! ```
//! Three message delays for several destinations, two for one.
//!
//! # Roles and phases
//! A **client** sends a multicast to its destinations and waits for their acknowledgements. A
//! **replica** takes each message through the steps that the tags in the code name:
//! 1. `[Skeen 1]` The message comes. It gets a timestamp above all that this group has seen, which
//!    is proposed to the other destinations, and a place in the queue.
//! 2. `[Skeen 2]` Proposals of the others arrive, perhaps ahead of the message. The final timestamp is
//!    the largest of all destinations' proposals; ties are broken by the message's id.
//! 3. `[Skeen 3]` The message is in front of the queue and its timestamp is final: it is delivered
//!    and acknowledged. No other can get in front any more: the timestamps of those behind it only
//!    grow, and what has not come yet gets one above the clock, which is never below a proposal
//!    that was seen.
//!
//! # Limits
//! - A client has at most `window` multicasts and `window_bytes` of payload in flight, from
//!   submission until the last acknowledgement; [`Protocol::room`] is 0 beyond that. It puts each
//!   into one of `window` numbered *slots*.
//! - A replica has a table of clients times `window` slots, made at the start, and a queue with as
//!   many places. They suffice: a replica acknowledges a message when it forgets it, and a client
//!   reuses a slot only when all destinations have acknowledged, so a slot never has to hold two.
//!   Payloads waiting at a replica are at most clients times `window_bytes`.
//! - Proposals never arrive after a delivery, which needs them all, so nothing is kept to recognise
//!   late ones but the sequence number of the last message in each slot.
//!
//! # Deviations
//! Acknowledgements are ours: the original has an unbounded client. The queue is ordered by the
//! largest proposal so far and not by the own one, which delivers no later and often earlier.
//! Messages that a broken stream lost are not sent again; the break is noted.
//!
//! # Read first
//! `SkeenReplica::on_cast`, `SkeenReplica::on_proposal`, `SkeenReplica::deliver_ready`.

mod message;
mod replica;

mod client;
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
    About, Assumption, Capabilities, ClusterShape, Config, ConfigError, Entry, MediumKind, Param,
    Pid, Property, ProtocolProcess, Role, Senders,
};
use client::SkeenClient;
use message::SkeenMessage;
use replica::SkeenReplica;

#[cfg(doc)]
use amcast_core::Protocol;

static PARAMS: &[Param] = &[
    WINDOW.with(
        ParamKind::Number { default: 16, min: 1, max: 256 },
        "ours; each replica sets aside 96 bytes a multicast and client",
    ),
    WINDOW_BYTES.with(
        ParamKind::Number { default: 1 << 20, min: 64, max: 64 << 20 },
        "ours; each replica holds the payloads of each client in memory",
    ),
    PAYLOAD_MAX.with(
        ParamKind::Number { default: 64 << 10, min: 0, max: PAYLOAD_BYTES_MAX as u64 },
        "ours; some have to fit into the smaller window_bytes at one time",
    ),
    #[cfg(feature = "mutants")]
    <SkeenMutant as mutant::Mutant>::PARAM,
];

static ABOUT: About = About {
    summary: "Genuine atomic multicast by exchanged timestamps; one process a group, no failures.",
    paper: "TRAM 8.6; Birman and Joseph 1987 after Skeen",
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
        Property::Genuine,
    ],
    assumes: &[Assumption::NoCrash, Assumption::StreamsHold, Assumption::StreamsOnly],
    params: PARAMS,
};

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum SkeenMutant {
        LeastProposal = "assigns-min-instead-of-max":
            "The final timestamp is the smallest proposal." breaks
            [UniformPrefixOrder, UniformAcyclicOrder];
        NoWaiting = "delivers-without-waiting-for-pending":
            "A message is delivered as soon as it is final, even behind pending ones." breaks
            [UniformPrefixOrder, UniformAcyclicOrder];
        NoTieBreak = "ignores-tie-break":
            "Of equal timestamps, the message that came first goes first." breaks
            [UniformPrefixOrder, UniformAcyclicOrder];
        Twice = "delivers-twice":
            "Every fourth message is delivered two times." breaks [UniformIntegrity];
        Drops = "drops-a-message":
            "Every fourth message is acknowledged and not delivered." breaks
            [Validity, UniformAgreement, UniformPrefixOrder];
        TellsAll = "tells-everybody":
            "Proposals go to all groups, destinations or not." breaks [Genuine];
    }
}

/// Skeen's atomic multicast in the catalog.
#[derive(Debug)]
pub struct Skeen;

impl Entry for Skeen {
    fn name(&self) -> &'static str {
        "skeen"
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let shape = SkeenShape::of(config)?;
        Ok(ProtocolProcess::Messages(match shape.cluster.role(me) {
            Role::Replica { group, .. } => {
                Box::new(FramedProtocol::new(SkeenReplica::new(group, shape)))
            }
            Role::Client { .. } => Box::new(FramedProtocol::new(SkeenClient::new(me, shape))),
        }))
    }

    fn show(&self, bytes: &[u8]) -> String {
        let mut reader = ByteReader::new(bytes);
        match SkeenMessage::decode(&mut reader) {
            Ok(message) if reader.is_empty() => message.to_string(),
            Ok(message) => format!("{message}, and {} bytes too many", reader.rest().len()),
            Err(e) => format!("no message of Skeen's: {e}"),
        }
    }
}

/// The common knowledge of the processes of a cluster.
#[derive(Clone, Copy, Debug)]
struct SkeenShape {
    /// Of one replica a group.
    cluster: ClusterShape,
    /// Slots of each client.
    window: usize,
    /// Payload bytes of each client in flight, at most.
    window_bytes: usize,
    /// Payload bytes of one multicast, at most.
    payload_max: usize,
    mutants: Mutants<SkeenMutant>,
}

impl SkeenShape {
    fn of(config: &Config) -> Result<Self, ConfigError> {
        let shape = Self {
            cluster: *config.cluster(),
            window: WINDOW.get(config),
            window_bytes: WINDOW_BYTES.get(config),
            payload_max: PAYLOAD_MAX.get(config),
            mutants: Mutants::of(config),
        };
        match shape.cluster.replicas() {
            1 => {}
            n => {
                return Err(ConfigError::Relation(format!(
                    "replicas = {n}: skeen has one process a group and survives no crash; give \
                     replicas = 1, or a protocol that replicates its groups"
                )));
            }
        }
        check_window(config)?;
        Ok(shape)
    }
}
