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
//! # Flow control
//! A coordinator multicasts values as fast as `link_mbps` allows, and members propose no more at a time than the port in
//! front of it takes: those that propose share that. Acknowledgements go to the coordinator alone, and take a part of what
//! a link has to spare. So no buffer overflows under load. On streams, which slow down their senders themselves, proposals are bounded by windows alone.
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

use crate::layers::group_entry::{
    ACK_US, BATCH_BYTES, CastLimits, GroupTransport, PACKET_BYTES, check_group, flight_bytes,
    group_params, group_process, layer_settings, show_packet,
};
use crate::layers::vsync::{Dissemination, VsyncSettings};
use crate::mutant::Mutants;
use alloc::string::String;
use amcast_core::config::ParamKind;
use amcast_core::entry::Trials;
use amcast_core::messages::Lane;
use amcast_core::parameters::{LANE, LINK, PAYLOAD_MAX, PacketLane, WINDOW, WINDOW_BYTES};
use amcast_core::{
    About, Assumption, Capabilities, Config, ConfigError, Datagrams, Entry, MediumKind, Param, Pid,
    Property, ProtocolProcess,
};
use member::{RingPaxosMember, RingPaxosSettings};
#[cfg(feature = "fuzzing")]
pub(crate) use message::RingPaxosMessage;
#[cfg(feature = "mutants")]
pub(crate) use mutants::RingPaxosMutant;
use proposals::InstanceLimits;

/// Bytes of one member's multicasts that are on the way at a time, at most, where nothing else holds back a sender of
/// datagrams: about what the buffers of a socket take. The rate of the link is the tighter bound, most often.
const DATAGRAMS_BYTES_MAX: usize = 1 << 20;

/// Bytes of a message besides payloads, and of a part of one, at most.
const ENTRY_BYTES: usize = 64;

/// Bytes of proposals that are not delivered, where datagrams are lost if they fill the buffer of the coordinator's port: as
/// much as a link of 1 Gb/s carries while an instance takes its time under load.
const PROPOSED_BYTES: usize = 384 << 10;

/// One part in so many of a link is for votes, acknowledgements, and what is sent again.
const RESERVE: u64 = 100;

const INSTANCES: Param = Param {
    name: "instances",
    kind: ParamKind::Number { default: 32, min: 1, max: 4096 },
    about: "How many instances of consensus are open at a time, at most.",
    cost: "Memory at each member, times batch_bytes. More hides the latency of the ring, and lengthens queues.",
    source: "ours",
};

static PARAMS: &[Param] = group_params!(
    RingPaxosMutant,
    [LANE],
    [
        Param {
            about: "How long an acknowledgement may be held back, in microseconds: no delivery waits for one.",
            ..ACK_US
        },
        Param {
            about: "About how many bytes are put into one packet; a value travels in as many as it needs.",
            ..PACKET_BYTES
        },
        Param {
            about: "How many bytes of payload a value has at least, while an earlier value is not decided.",
            source: "ours; FastCast 3.5 has batches of 4 KB",
            ..BATCH_BYTES
        },
        INSTANCES,
        // The coordinator multicasts values no faster, and its driver paces all of its datagrams.
        LINK.param(),
    ]
);

static ABOUT: About = About {
    summary: "Uniform broadcast in total order: a coordinator multicasts values and decisions, and the votes of a majority \
              travel a ring; TO(UA,SUTO).",
    paper: "Ring Paxos (DSN 2010), algorithm 2",
    medium: MediumKind::Messages,
    capabilities: Capabilities {
        views: true,
        state_transfer: true,
        crash_tolerance: true,
        suspicion_tolerance: true,
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
        check_group(self.name(), config)?;
        Ok(group_process(layer(me, config), RingPaxosMember::new(settings(me, config))))
    }

    fn trials(&self) -> &'static Trials {
        &[
            ("batch_bytes", &["4096", "4096", "64"]),
            ("instances", &["32", "1", "3"]),
            ("link_mbps", &["942", "942", "10"]),
        ]
    }

    fn show(&self, bytes: &[u8]) -> String {
        show_packet(bytes)
    }
}

fn settings(me: Pid, config: &Config) -> RingPaxosSettings {
    let link = LINK.get(config).kilobytes_per_s();
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
        rate: link - link / RESERVE,
        packet_bytes: config.get(&PACKET_BYTES) as usize,
        proposed_bytes: match LANE.get(config) {
            PacketLane::Stream => usize::MAX,
            PacketLane::Datagram | PacketLane::Multicast => PROPOSED_BYTES,
        },
        mutants: Mutants::of(config),
    }
}

/// The settings of the layer below. Proposals and votes travel on streams where values and decisions are multicast.
fn layer(me: Pid, config: &Config) -> VsyncSettings {
    let messages = WINDOW.get(config) * config.cluster().replicas();
    let batch = config.get(&BATCH_BYTES) as usize;
    let limits = CastLimits {
        // Each message of all members may be a value of its own, with a decision.
        window: 2 * messages,
        window_bytes: flight_bytes(config, DATAGRAMS_BYTES_MAX),
        // A value takes proposals until it is full, and the last one may be a full batch or one large message. Messages
        // without payload wait for all that is open, so that each of all windows may be in a value.
        message_bytes: 2 * batch + PAYLOAD_MAX.get(config) + (messages + 1) * ENTRY_BYTES,
    };
    let transport = GroupTransport::of(config, Lane::Stream);
    let has_datagrams =
        transport.dissemination == Dissemination::Group || transport.lane == Lane::Datagram;
    let broken = mutants::broken(Mutants::of(config));
    VsyncSettings {
        link: has_datagrams.then_some(LINK.get(config).kilobytes_per_s()),
        ..layer_settings(me, config, transport, limits, broken)
    }
}
