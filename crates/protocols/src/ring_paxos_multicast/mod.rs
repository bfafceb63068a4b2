//! Ring Paxos over IP multicast: uniform total order by a coordinator that multicasts values and decisions, with the votes
//! of a majority on a ring [M-Ring Paxos: P. J. Marandi, M. Primi, N. Schiper, F. Pedone: Ring Paxos: a high-throughput
//! atomic broadcast protocol, DSN 2010, algorithm 2].
//!
//! # Order and guarantees
//! Broadcasts of the members of one group: TO(UA,SUTO), and the order of each sender. A message is delivered when a
//! majority of all configured processes holds its value and all earlier ones.
//!
//! # Assumptions
//! That a majority of the configured processes is fit at any time, as in the paper. All is in memory. Streams may break, and
//! datagrams may be lost alike; see [`crate::layers::vsync`], which carries all of it.
//!
//! # The normal case
//! Five members, of which p1, p2 and p0 are the ring:
//! ```text
//! p0 (coordinator)       .--> 2A: value and identity --> p1..p4     .--> decision --> p1..p4
//!                       /                                          /
//! p3   message --------'      p1 --- 2B ---> p2 --- 2B ---> p0 ---'     delivered when held and decided
//! ```
//! A message to the coordinator, one to all, a vote for each acceptor of the ring but the last, and the decision: three
//! message delays and as many as a minority has members until all deliver; the coordinator delivers one earlier.
//!
//! # Roles and phases
//! All members are proposers, acceptors and learners; the most senior one of a view is the coordinator of its round.
//! - A proposer sends its messages to the coordinator in batches, those of one round of its loop together.
//! - The coordinator (`proposals.rs`) gives each instance a value of many proposals, and multicasts it with its identity
//!   (phase 2A). Without contention a value of any size leaves at once; while an instance is open a value has
//!   `batch_bytes` at least, and at most `instances` are open.
//! - The first acceptor of the ring votes for a value that it holds, and sends its vote to the second one; an acceptor that
//!   holds the value votes, too, and passes the vote on (`ring.rs`). A vote has the identity of the value alone (phase 2B).
//! - The coordinator is the last acceptor. With its own vote the value is decided: it tells all with the next value that
//!   leaves at the same time, and otherwise at once.
//! - A learner delivers what it holds and what is decided, in the order of instances (`learned.rs`). The layer below asks
//!   again for missing values, and sends them again.
//!
//! # Rounds and views: phase 1
//! A round of Paxos is a view here, its coordinator the most senior member, its ring a majority of *all configured*
//! processes within the view. The change of views is phase 1 for all instances at once:
//! - *Promise.* A process that promises to end a view takes part in nothing of it any more: it is handed no value and passes
//!   no vote on. A majority of all configured processes has to promise, and one that lost its memory does not count.
//! - *The values that have votes.* With the promise each reports how many values of the coordinator it has. Values come in the order of
//!   instances, so the number says which. An acceptor votes only for what it was handed, so what it voted for it
//!   reports.
//! - *The value to choose.* If a value is decided, or may be, all acceptors of the ring voted for it. The ring and those
//!   that promised are both majorities of the same processes: one that voted is among them, and its report has the value and all
//!   before it. The layer takes the longest report, and fetches from its owner what others miss; in a round each instance
//!   has one value, so there is nothing else to choose between.
//! - *Phase 2 of the new round.* The layer's consensus on the next view includes that report: a member that continues accepts it
//!   when it holds all these values, which is a vote for them. All survivors then deliver them, decided or not, in the order of
//!   instances, before the next round begins with an instance 1 of its own.
//!
//! A proposal that is in none of the values is with its proposer, which proposes it again in the next round. If the
//! proposer was excluded meanwhile, it learns with the state of the others which of its messages were delivered.
//! So each message is delivered once, and an excluded member has delivered nothing that the survivors do not.
//!
//! # Limits
//! A process has at most `window` own messages and `window_bytes` of payload not yet delivered there; beyond that it
//! has no room. So the coordinator's queue holds as much of each proposer at most. Values are casts of the layer, which bounds
//! by its window what not all members have.
//!
//! # Deviations
//! The layer repeats values and decisions until all members have them; in the paper learners ask preferential acceptors.
//! The paper's coordinator also multicasts the ring to the acceptors in phase 1A; here it follows from the view. Votes and
//! decisions that fall together leave as one, for the last value. Identities are numbers and not hashes. A slow member
//! holds back all when the layer's window is full; the paper's coordinator slows down at a learner's request.
//!
//! # Read first
//! `ring.rs`, `proposals.rs` and `learned.rs`, which are pure rules, then `member.rs`.

mod learned;
mod member;
mod message;
mod mutants;
mod proposals;
mod ring;
#[cfg(test)]
mod tests;

use crate::layers::vsync::{Dissemination, Vsync, VsyncPacket, VsyncSettings};
use crate::mutant::Mutants;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::config::ParamKind;
use amcast_core::entry::Trials;
use amcast_core::messages::{FramedProtocol, Lane};
use amcast_core::parameters::{
    DETECTOR, Detector, HEARTBEAT, LANE, PAYLOAD_MAX, PacketLane, RETRY, SUSPECT, WINDOW,
    WINDOW_BYTES, check_timers, check_window,
};
use amcast_core::{
    About, Assumption, Capabilities, Config, ConfigError, Datagrams, Entry, MediumKind, Param, Pid,
    Property, ProtocolProcess, Span,
};
use member::{RingPaxosMember, RingPaxosSettings};
#[cfg(feature = "fuzzing")]
pub(crate) use message::RingPaxosMessage;
#[cfg(feature = "mutants")]
pub(crate) use mutants::RingPaxosMutant;
use proposals::InstanceLimits;

/// Bytes of one member's multicasts that are on the way at a time, at most, where nothing else holds back a sender of
/// datagrams: about what the buffers of a socket take.
const DATAGRAMS_BYTES_MAX: usize = 128 << 10;

/// Bytes of a message besides payloads, and of a part of one, at most.
const ENTRY_BYTES: usize = 64;

const ACK_US: Param = Param {
    name: "ack_us",
    kind: ParamKind::Number { default: 500, min: 0, max: 1_000_000 },
    about: "How long an acknowledgement may be held back, in microseconds: no delivery waits for one.",
    cost: "Less frees windows sooner, with more packets.",
    source: "ours",
};

const PACKET_BYTES: Param = Param {
    name: "packet_bytes",
    kind: ParamKind::Number { default: 1_400, min: 64, max: 1 << 20 },
    about: "About how many bytes are put into one packet; a value travels in as many as it needs.",
    cost: "More is faster under load; beyond the network's frame, datagrams are split by the system.",
    source: "ours",
};

const BATCH_BYTES: Param = Param {
    name: "batch_bytes",
    kind: ParamKind::Number { default: 4 << 10, min: 1, max: 1 << 20 },
    about: "How many bytes of payload a value has at least, while an earlier value is not decided.",
    cost: "More carries more under load, in larger steps; a message on an idle group never waits for it.",
    source: "ours; FastCast 3.5 has batches of 4 KB",
};

const INSTANCES: Param = Param {
    name: "instances",
    kind: ParamKind::Number { default: 32, min: 1, max: 4096 },
    about: "How many instances of consensus are open at a time, at most.",
    cost: "Memory at each member, times batch_bytes. More hides the latency of the ring, and lengthens queues.",
    source: "ours",
};

static PARAMS: &[Param] = &[
    WINDOW.param(),
    WINDOW_BYTES.param(),
    PAYLOAD_MAX.param(),
    LANE.param(),
    DETECTOR.param(),
    HEARTBEAT.param(),
    SUSPECT.param(),
    RETRY.param(),
    ACK_US,
    PACKET_BYTES,
    BATCH_BYTES,
    INSTANCES,
    #[cfg(feature = "mutants")]
    <RingPaxosMutant as crate::mutant::Mutant>::PARAM,
];

static ABOUT: About = About {
    summary: "Uniform broadcast in total order: a coordinator multicasts values and decisions, and the votes of a majority \
              travel a ring; TO(UA,SUTO).",
    paper: "Ring Paxos (DSN 2010), algorithm 2",
    medium: MediumKind::Messages,
    capabilities: Capabilities {
        views: true,
        state_transfer: true,
        crash_tolerance: true,
        datagrams: Datagrams::Multicast,
        ..Capabilities::NONE
    },
    promises: &[
        Property::Nuv,
        Property::Ui,
        Property::Ua,
        Property::Suto,
        Property::FifoOrder,
        Property::ViewSynchrony,
    ],
    assumes: &[Assumption::MajorityFit],
    params: PARAMS,
};

/// Ring Paxos over IP multicast in the catalog.
#[derive(Debug)]
pub struct RingPaxosMulticast;

impl Entry for RingPaxosMulticast {
    fn name(&self) -> &'static str {
        "ring-paxos-multicast"
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let layer = layer_settings(me, config)?;
        let member = RingPaxosMember::new(settings(me, config));
        Ok(ProtocolProcess::Messages(Box::new(FramedProtocol::new(Vsync::new(layer, member)))))
    }

    fn trials(&self) -> &'static Trials {
        &[("batch_bytes", &["4096", "4096", "64"]), ("instances", &["32", "1", "3"])]
    }

    fn show(&self, bytes: &[u8]) -> String {
        let mut reader = ByteReader::new(bytes);
        match VsyncPacket::decode(&mut reader) {
            Ok(packet) if reader.is_empty() => format!("{packet:?}"),
            Ok(packet) => format!("{packet:?}, and {} bytes too many", reader.rest().len()),
            Err(e) => format!("no packet of a group: {e}"),
        }
    }
}

fn settings(me: Pid, config: &Config) -> RingPaxosSettings {
    RingPaxosSettings {
        me,
        processes: config.cluster().replicas(),
        window: WINDOW.get(config),
        window_bytes: WINDOW_BYTES.get(config),
        payload_max: PAYLOAD_MAX.get(config),
        limits: InstanceLimits {
            batch_bytes: config.get(&BATCH_BYTES) as usize,
            instances: config.get(&INSTANCES),
        },
        mutants: Mutants::of(config),
    }
}

/// The settings of the layer below. Proposals and votes travel on streams where values and decisions are multicast.
fn layer_settings(me: Pid, config: &Config) -> Result<VsyncSettings, ConfigError> {
    let cluster = config.cluster();
    if cluster.groups() != 1 || cluster.clients() != 0 {
        return Err(ConfigError::Relation(format!(
            "groups = {}, clients = {}: in ring-paxos-multicast the members of one group broadcast; give groups = 1 and \
             clients = 0, or a protocol that multicasts to several groups",
            cluster.groups(),
            cluster.clients()
        )));
    }
    check_timers(config, 1)?;
    check_window(config)?;
    let (lane, dissemination) = match LANE.get(config) {
        PacketLane::Stream => (Lane::Stream, Dissemination::Unicast),
        PacketLane::Datagram => (Lane::Datagram, Dissemination::Unicast),
        PacketLane::Multicast => (Lane::Stream, Dissemination::Group),
    };
    let datagrams = dissemination == Dissemination::Group || lane == Lane::Datagram;
    let bytes = WINDOW_BYTES.get(config);
    let batch = config.get(&BATCH_BYTES) as usize;
    let processes = cluster.replicas();
    Ok(VsyncSettings {
        me,
        processes,
        lane,
        dissemination,
        heartbeat: HEARTBEAT.get(config),
        suspect: SUSPECT.get(config),
        told_who_failed: DETECTOR.get(config) == Detector::Connections,
        retry: RETRY.get(config),
        ack: Span::micros(config.get(&ACK_US)),
        link: None,
        packet_bytes: config.get(&PACKET_BYTES) as usize,
        // Each message of all members may be a value of its own, with a decision.
        window: 2 * WINDOW.get(config) * processes,
        window_bytes: if datagrams { bytes.min(DATAGRAMS_BYTES_MAX) } else { bytes },
        // A value takes proposals until it is full, and the last one may be a full batch or one large message. Messages
        // without payload wait for all that is open, so that each of all windows may be in a value.
        message_bytes: 2 * batch
            + PAYLOAD_MAX.get(config)
            + (WINDOW.get(config) * processes + 1) * ENTRY_BYTES,
        broken: mutants::broken(Mutants::of(config)),
    })
}
