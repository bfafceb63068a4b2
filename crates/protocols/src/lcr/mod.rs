//! LCR: uniform total order along a ring, ordered by vector clocks, with as much throughput as links allow
//! [LCR: R. Guerraoui, R. R. Levy, B. Pochon, V. Quéma: Throughput optimal total order broadcast for cluster
//! environments, ACM TOCS 28(2), 2010].
//!
//! It is the rival of [`crate::fastcast`], whose paper sums it up [FastCast 2 and 4]: nodes are a virtual ring, each of
//! them communicates with its successor only, all of them broadcast at a time, and latency grows with their number. It
//! needs no multicast. Both protocols share the layer below, batches and windows, so that a comparison is of the
//! protocols alone.
//!
//! # Order and guarantees
//! Broadcasts of the members of one group: TO(UA,SUTO), and the order of each sender. A message is delivered when all
//! members of the view have it, and every message before it is delivered: each of them can deliver it, even if all
//! others fail.
//!
//! # Assumptions
//! That a majority of the configured processes is fit at any time. The paper assumes a perfect failure detector; here a
//! wrong suspicion costs a change of views, and the majority keeps two halves of a partition from making two orders.
//! Streams may break, and datagrams be lost; see [`crate::layers::vsync`], which carries all of it.
//!
//! # The normal case
//! The members of a view are a ring in the order of seniority.
//! ```text
//!         first lap: the message             second lap: it is stable
//! p0  m, clock [1] --> p1 --> p2 --> p3      p3 --> p0 --> p1 --> p2
//!                                    |              |      |      |
//!                                    delivered at each of them, where nothing before it is left
//! ```
//! Of `N` members the last one has a message after `N - 1` message delays: the predecessor of its sender. It sends the
//! acknowledgement, and the last member to deliver does so after `2 N - 2`. A message crosses each link once, but for the
//! link that leads to its sender: where all send, each of them sends and receives at the rate of a link, and
//! delivers `N / (N - 1)` times as much.
//!
//! # Roles and phases
//! All members do the same. A message carries the vector clock of its sender: the messages that a sender had are before
//! the ones that it sends. Concurrent messages are in the order in which they pass the last member of the ring: the
//! one of the higher rank first (`order.rs`). All messages that precede one are in front of it, or of its
//! acknowledgement, on the links to each member. So when a member learns that a message is stable, all that precede
//! it are there, and pending.
//!
//! ## What the layer of casts does
//! It carries casts and acknowledgements along the ring, in order and once, over streams that break or datagrams, and announces
//! each stable cast ([`GroupcastInput::Stable`](amcast_core::groupcast::GroupcastInput::Stable)). It agrees on views,
//! and has all survivors hold the same casts when one ends.
//!
//! ## When a view ends
//! Acknowledgements on the way are void. All survivors were handed the same casts, which include every message that is
//! stable anywhere, and all that precede it. They deliver the pending ones in the order of clocks: the messages that
//! any process has delivered are the first of them, in that order. In the next view clocks begin anew, and a sender
//! sends again what it has not delivered.
//!
//! # Batches
//! The messages of a member gather into a batch of `batch_bytes` at least, 4 KB as in FastCast. Without contention none
//! waits: a batch of any size leaves when no batch of its sender is on the way. Clocks count batches.
//!
//! # Equal shares
//! A link carries everything but the messages of the member at its end. So links are full at a time only if all members
//! send equally, and a group delivers the rate of a link and that of its slowest sender. The bytes of a member that are on
//! the ring are bounded (`ring_bytes`) until the member learns that all have them: by then each batch has crossed every
//! link once, itself or as its acknowledgement, wherever its sender and a queue are. So equal bounds are equal rates.
//! Deliveries take longer for some. Where a queue is in front of member `k`, a batch of a member in front of it in the
//! ring passes the last member behind that queue. It is ordered behind all that members from `k` on have sent meanwhile, and
//! these then pass the queue, too: delivery takes two laps instead of one. A bound until delivery would have these members
//! send half as much as the others.
//!
//! # Limits
//! A process has at most `window` own messages and `window_bytes` of payload not yet delivered there; beyond that it
//! has no room. A member that is slow slows the ring down; a silent one stops it until it is excluded. The batches that wait for
//! a successor are on the ring, `ring_bytes` and a batch of each member at most: 12 MB of 32 members as set by default, a good third of what
//! a carrier keeps for a stream. So batches need not wait for room there, and the carrier says nothing of it. Datagrams wait until it has
//! room, and leave no faster than `link_mbps`: since only its predecessor sends to a member, no queue on their way grows then.
//!
//! # Deviations
//! Membership is by a majority, and not by a perfect detector alone; `detector = connections` chooses the paper's. The
//! paper's members send pending messages once more in the new view; here the old view ends with them. With
//! `lane=datagram` members send datagrams, which are numbered, acknowledged and repeated as a stream's bytes are. A clock travels
//! without the counts that no comparison reads, those of members behind its sender. The paper forwards and sends in turn
//! so that all members get equal shares; here links are first in, first out, and equal bounds on the ring give equal
//! shares.
//!
//! # Read first
//! `order.rs`, which is a pure rule, then `member.rs`, and `layers/vsync/casts/ring.rs` for the laps.

mod member;
mod message;
mod mutants;
mod order;
#[cfg(test)]
mod tests;

use crate::layers::group_entry::{
    ACK_US, BATCH_BYTES, CastLimits, GroupTransport, PACKET_BYTES, check_group, group_params,
    group_process, layer_settings, show_packet,
};
use crate::layers::vsync::{Dissemination, VsyncSettings, part_bytes};
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
use member::{LcrMember, LcrSettings};
#[cfg(feature = "fuzzing")]
pub(crate) use message::LcrMessage;
#[cfg(feature = "mutants")]
pub(crate) use mutants::LcrMutant;

/// Bytes of a message in a batch besides its payload, and of a count in a clock, at most.
const ENTRY_BYTES: usize = 64;

/// How much of a member is on the ring.
const RING_BYTES: Param = Param {
    name: "ring_bytes",
    kind: ParamKind::Number { default: 360_000, min: 1, max: 1 << 30 },
    about: "How many bytes of batches a member may have on the ring, until it learns that all others have them; a batch \
            always leaves when none of its sender is on the way. A member has no more there than its link carries in 50 ms.",
    cost: "More fills a faster or longer ring, less keeps the queues of links short. Where senders wait for deliveries \
           with less than twice as much on the way, some get half of the share of others.",
    source: "ours",
};

/// The transport of packets. A member sends to its successor alone, so there is nothing to multicast.
const RING_LANE: Param = Param {
    kind: ParamKind::Choice { of: &["stream", "datagram"] },
    about: "The transport of packets.",
    cost: "Streams bound what is on the way by themselves. Datagrams have shorter heads and fewer acknowledgements, and \
           are lost and sent again where a link carries less than link_mbps.",
    ..LANE.param()
};

/// For how many milliseconds of its link a member may have batches on the ring: on a slow link more of them would only wait.
const RING_MS: u64 = 50;

static PARAMS: &[Param] = group_params!(
    LcrMutant,
    [],
    [
        RING_LANE,
        LINK.param(),
        Param {
            about: "How long the predecessor may wait for the acknowledgement of what it sent, in microseconds.",
            cost: "Less frees its memory sooner, with more packets; deliveries never wait for it.",
            ..ACK_US
        },
        Param {
            about: "About how many bytes are put into one packet.",
            cost: "More is faster under load, in larger steps.",
            ..PACKET_BYTES
        },
        Param { source: "as in fastcast", ..BATCH_BYTES },
        RING_BYTES,
    ]
);

static ABOUT: About = About {
    summary: "Uniform broadcast in total order along a ring: all members send at once, each to its successor alone, and \
              vector clocks give the order; TO(UA,SUTO).",
    paper: "LCR (Guerraoui, Levy, Pochon, Quéma; TOCS 2010), the rival in FastCast 4",
    medium: MediumKind::Messages,
    capabilities: Capabilities {
        views: true,
        state_transfer: true,
        crash_tolerance: true,
        suspicion_tolerance: true,
        early_delivery: true,
        datagrams: Datagrams::Unicast,
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

/// LCR in the catalog.
#[derive(Debug)]
pub struct Lcr;

impl Entry for Lcr {
    fn name(&self) -> &'static str {
        "lcr"
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        check_group(self.name(), config)?;
        Ok(group_process(layer(me, config), LcrMember::new(settings(me, config))))
    }

    fn trials(&self) -> &'static Trials {
        &[
            ("batch_bytes", &["4096", "4096", "64"]),
            ("ring_bytes", &["360000", "360000", "100"]),
            ("link_mbps", &["942", "942", "10"]),
        ]
    }

    fn show(&self, bytes: &[u8]) -> String {
        show_packet(bytes)
    }
}

/// Packets travel to the successor alone.
fn lane(config: &Config) -> Lane {
    match LANE.get(config) {
        PacketLane::Stream => Lane::Stream,
        PacketLane::Datagram | PacketLane::Multicast => Lane::Datagram,
    }
}

/// How many bytes of batches a member may have on the ring.
fn ring_bytes(config: &Config) -> usize {
    let link = LINK.get(config).kilobytes_per_s() * RING_MS;
    (config.get(&RING_BYTES) as usize).min(link as usize)
}

fn settings(me: Pid, config: &Config) -> LcrSettings {
    LcrSettings {
        me,
        processes: config.cluster().replicas(),
        window: WINDOW.get(config),
        window_bytes: WINDOW_BYTES.get(config),
        payload_max: PAYLOAD_MAX.get(config),
        batch_bytes: config.get(&BATCH_BYTES) as usize,
        ring_bytes: ring_bytes(config),
        mutants: Mutants::of(config),
    }
}

/// The settings of the layer below.
fn layer(me: Pid, config: &Config) -> VsyncSettings {
    let clock = config.cluster().replicas() * ENTRY_BYTES;
    let messages = WINDOW.get(config);
    let entries = messages * ENTRY_BYTES;
    // A member may have a batch of each message on the way, in as many parts as the bytes need.
    let window_bytes = WINDOW_BYTES.get(config) + entries + messages * clock;
    let batch = config.get(&BATCH_BYTES) as usize + PAYLOAD_MAX.get(config);
    let lane = lane(config);
    let limits = CastLimits {
        window: messages + window_bytes / part_bytes(lane, config.get(&PACKET_BYTES) as usize),
        window_bytes,
        message_bytes: batch + entries + clock,
    };
    let transport = GroupTransport { lane, dissemination: Dissemination::Ring };
    layer_settings(me, config, transport, limits, mutants::broken(Mutants::of(config)))
}
