//! FastCast: uniform total order by a fixed sequencer that carries no messages, for networks with IP multicast, and
//! with an allocation of bandwidth that lets all members send at once without overflow [FastCast 3].
//!
//! # Order and guarantees
//! Broadcasts of the members of one group: TO(UA,SUTO), and the order of each sender. A message is delivered when all
//! members of the view have it and its number: each of them can deliver it, even if all others fail.
//!
//! # Assumptions
//! That a majority of the configured processes is fit at any time. The paper assumes a perfect failure detector; here a
//! wrong suspicion costs a change of views, and the majority keeps two halves of a partition from making two orders.
//! Streams may break, and datagrams may be lost alike; see [`crate::layers::vsync`], which carries all of it.
//!
//! # The normal case
//! ```text
//! p0 (leader)    number 1 ---+---> p1, p2       |
//!                  ^          \                 | delivered: all have the message and its number
//! p1  Data ---+----'           ack to all       |
//!             '---> p2, ack to all              |
//! ```
//! Three message delays: the message to the leader, its number to all, and an acknowledgement of that from all. One
//! acknowledgement is for the message and its number.
//!
//! Acknowledgements from all to all would cost the square of the members for each message. Over multicast they go to the
//! leader, which tells all what all members have, and to a sender that is the only one (`layers/vsync`,
//! `collector.rs`): a message costs packets in proportion to the members, and no more time at a leader or a single sender.
//! Others deliver one message delay later.
//!
//! # Roles and phases
//! The most senior member of a view is its leader. It gives numbers to casts as they arrive (`sequence.rs`), its own
//! and those of others; all members deliver in the order of numbers.
//!
//! ## What the layer of casts does
//! Acknowledgements (`acks`), retransmission after a timeout, the exchange of `pendings` and `seqnos` when the view
//! changes, and the agreement on views are the layer's, for messages and numbers alike. The layer hands over a cast of
//! [`Grade::Stable`](amcast_core::groupcast::Grade::Stable) when all members have it, which is the condition of
//! [FastCast figure 2, line 30] for a message, and once more for its number. Its grade `Uniform` asks for a majority of
//! the configured processes alone: as safe where a majority is always fit, and sooner delivered where one member is slow.
//! The paper's condition is kept, since a member that has delivered needs none of the others to have everything
//! delivered by all.
//!
//! The leader must not wait until all have a message before it gives the number, or the order would take a message
//! delay more. So the layer announces each stable cast when it arrives
//! ([`Received`](amcast_core::groupcast::GroupcastInput::Received)).
//!
//! The layer closes these gaps of figure 2: an `Ack` that arrives before its `Data` is dropped for good there (line 23); a lost
//! `Ack` is sent again only on a message that some other process still has pending; and nobody repeats numbers. Here
//! messages and numbers are casts, each with a number of the layer, acknowledged and repeated until all have them.
//!
//! ## When a view ends
//! All survivors were handed the same casts. They deliver those with numbers in that order, past numbers whose message
//! died with its sender and the leader; nobody has delivered anything behind such a number. Then they deliver those
//! without a number, by the seniority of senders. In the next view numbers begin anew, and a sender sends again what it
//! has not delivered.
//!
//! ## Batches
//! The messages of a member gather into a batch of `batch_bytes` at least, the paper's 4 KB. Without contention none
//! waits: a batch of any size leaves when no batch of its sender is on the way.
//!
//! ## Numbers and acknowledgements under load
//! Each batch takes a number, and an acknowledgement of every member for both. On an idle group
//! all of these leave at once. Under load they go along with batches, and those that leave by themselves take a third of
//! what a link has to spare (`layers/paced.rs`).
//!
//! ## Bandwidth
//! Further full batches leave at the rate that `bandwidth.rs` allocates (figure 4), and at an equal part of what nobody
//! requires. While there is such a part, a few more may be on the way, beyond that rate: messages come at random, and what one
//! member leaves of the link at a moment another one uses. Deliveries hold these bursts back. All of them together
//! are about as large as the queue that is not yet taken for one of others' traffic, and where the shares are the whole link there
//! are none.
//!
//! A member measures what it needs (`pace.rs`): when full batches had to wait, it requires as much bandwidth as what left and
//! what still waits, and a sixteenth more; when it requires a quarter more than it uses, it gives the rest back. It measures
//! over longer times in large groups, and where few batches leave. `Incr` and `Decr` are casts that take numbers like any
//! other. They wait for no share themselves, and a batch may always leave when none of its sender is on the way: a member without
//! any bandwidth is slow, and never stuck. Requirements end with a view. In the next one each member requires anew what
//! it had, and what it was about to have: a change of views in the middle of an increase leaves nothing behind.
//!
//! ## A carrier without room
//! While too many bytes of datagrams wait at the own carrier (`MessageInput::Backlog`), no batch leaves: messages that come meanwhile
//! fill batches, and the demand that is measured then asks for no larger share, since the link carries less than the present one.
//!
//! ## Traffic of others
//! Over datagrams a member also judges what its link carries at present (`capacity.rs`): less than is configured when casts
//! are late, by a queue or by a retransmission, and stay so; then more again, a little at a time. It tells all by a
//! cast what changes the least that any link carries, and the shares are of that. So capacity that strangers take is given up
//! before much is lost, and taken back when they have gone; and several groups that share links come to shares of one
//! link. A member that sends alone has no casts to judge by, and takes back as long as its own ones are delivered.
//!
//! # Limits
//! A process has at most `window` own messages and `window_bytes` of payload not yet delivered there; beyond that it
//! has no room. Pending casts and numbers are casts of the layer, which bounds them by its window; see there.
//!
//! # Deviations
//! Membership is by a majority, and not by a perfect detector alone; `detector = connections` chooses the paper's.
//! Acknowledgements are gathered where the paper has all send them to all.
//! Figure 3 delivers messages without numbers by their hash; here by seniority and in the order of the sender. Messages
//! are named by sender and place, not by hash. Many numbers leave in one message. The paper's processes know what
//! bandwidth they require; here it is measured. They never exceed their shares; here bursts do while something of the link is
//! left. Their links carry the same at any time, and background traffic is future work
//! of the paper [FastCast 5]. `N - 1` acknowledgements of an increase include none where a member is
//! alone.
//!
//! # Read first
//! `bandwidth.rs` and `sequence.rs`, which are pure rules, then `member.rs`.

pub mod bandwidth;
mod capacity;
mod member;
mod message;
mod mutants;
mod pace;
mod perfect;
mod sequence;
#[cfg(test)]
mod tests;

use crate::layers::group_entry::{
    ACK_US, BATCH_BYTES, CastLimits, GroupTransport, PACKET_BYTES, check_group, flight_bytes,
    group_params, group_process, layer_settings, show_packet,
};
use crate::layers::paced::{BYTE_NS, LEAST_SPARE};
use crate::layers::vsync::{ACKS_IN_A_RETRY, VsyncSettings};
use crate::mutant::Mutants;
use alloc::string::String;
use amcast_core::config::ParamKind;
use amcast_core::entry::Trials;
use amcast_core::messages::Lane;
use amcast_core::parameters::{LANE, LINK, PAYLOAD_MAX, PacketLane, RETRY, WINDOW, WINDOW_BYTES};
use amcast_core::{
    About, Assumption, Capabilities, Config, ConfigError, Datagrams, Entry, MediumKind, Param, Pid,
    Property, ProtocolProcess, Span,
};
use capacity::CapacitySettings;
pub use member::{CAPACITY_CHANGES, INCREASE_BEGINS, INCREASE_ENDS};
use member::{FastCastMember, FastCastSettings, NUMBERS_BYTES};
#[cfg(feature = "fuzzing")]
pub(crate) use message::FastCastMessage;
#[cfg(feature = "mutants")]
pub(crate) use mutants::FastCastMutant;
pub use perfect::FastCastPerfect;

/// Bytes of one member's casts that are on the way at a time, at most, where nothing else holds back a sender of
/// datagrams: about what the buffers of a socket take. The share of the bandwidth is the tighter bound, most often.
const DATAGRAMS_BYTES_MAX: usize = 1 << 20;

/// One part in so many of a link is for what has no share of it: numbers, acknowledgements, and what is sent again. Under full load
/// the former two take up to two thirds of that ([`LEAST_SPARE`]), and a quarter to a half in the simulator. Where links are
/// so slow that numbers which leave often enough take more, it is as much as these.
const RESERVE: u64 = LEAST_SPARE;

/// Numbers that leave by themselves take one part in so many of a link at most, however soon their messages are repeated.
const NUMBERS_MOST: u64 = 50;

/// Members of a group in which demand is measured as often as is configured, at most.
const SMALL_GROUP: u64 = 8;

/// Bytes of a message besides payloads, and of a number in one, at most.
const ENTRY_BYTES: usize = 64;

const DEMAND_US: Param = Param {
    name: "demand_us",
    kind: ParamKind::Number { default: 5_000, min: 100, max: 10_000_000 },
    about: "Over what time a member of a group of eight or less measures the bandwidth that it needs, in microseconds. In a \
            larger group it is longer, by the square of its size, and up to eight times as long where few batches leave.",
    cost: "Less follows demand sooner, with more messages about it.",
    source: "ours; FastCast 4.2 measures 3.8 ms for an increase",
};

const QUEUE_US: Param = Param {
    name: "queue_us",
    kind: ParamKind::Number { default: 1_000, min: 0, max: 1_000_000 },
    about: "How long datagrams may wait in queues of the network, in microseconds, besides one batch of each member, \
            before members take the links to carry less than link_mbps. 0: they carry it at any time.",
    cost: "Less gives way to the traffic of others sooner, and to chance delays, too.",
    source: "ours; FastCast 5 leaves background traffic to future work",
};

const LINK_LEAST_PERCENT: Param = Param {
    name: "link_least_percent",
    kind: ParamKind::Number { default: 10, min: 1, max: 100 },
    about: "How much of link_mbps members use at least, in hundredths, however much the traffic of others takes.",
    cost: "More leaves less to others, and loses datagrams where they do not give way.",
    source: "ours",
};

static PARAMS: &[Param] = group_params!(
    FastCastMutant,
    [LANE],
    [ACK_US, PACKET_BYTES, BATCH_BYTES, LINK.param(), DEMAND_US, QUEUE_US, LINK_LEAST_PERCENT,]
);

/// Those of the entry whose detector is given.
static PERFECT_PARAMS: &[Param] = group_params!(
    FastCastMutant,
    [LANE],
    [],
    [ACK_US, PACKET_BYTES, BATCH_BYTES, LINK.param(), DEMAND_US, QUEUE_US, LINK_LEAST_PERCENT,]
);

static ABOUT: About = About {
    summary: "Uniform broadcast in total order: all members send at once, each within its share of the bandwidth, and \
              a leader broadcasts numbers; TO(UA,SUTO).",
    paper: "FastCast 3, figures 2 to 4",
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

/// FastCast in the catalog.
#[derive(Debug)]
pub struct FastCast;

impl Entry for FastCast {
    fn name(&self) -> &'static str {
        "fastcast"
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        check_group(self.name(), config)?;
        Ok(group_process(layer(me, config), FastCastMember::new(settings(me, config))))
    }

    fn trials(&self) -> &'static Trials {
        TRIALS
    }

    fn show(&self, bytes: &[u8]) -> String {
        show_packet(bytes)
    }
}

static TRIALS: &Trials = &[
    ("batch_bytes", &["4096", "4096", "64"]),
    ("link_mbps", &["942", "10", "4"]),
    ("demand_us", &["5000", "200"]),
    ("queue_us", &["1000", "50"]),
];

/// How far messages with numbers alone are apart at most, on links of this rate: nobody is to repeat a message whose number
/// follows soon.
fn numbers_apart(link: u64, retry: Span) -> Span {
    let soon = Span(retry.0 / ACKS_IN_A_RETRY);
    soon.max(Span(NUMBERS_BYTES * BYTE_NS * NUMBERS_MOST / link))
}

fn settings(me: Pid, config: &Config) -> FastCastSettings {
    let link = LINK.get(config).kilobytes_per_s();
    let numbers_apart = numbers_apart(link, RETRY.get(config));
    let numbers = NUMBERS_BYTES * BYTE_NS / numbers_apart.0;
    let share = link - (link / RESERVE).max(numbers).max(1);
    FastCastSettings {
        me,
        processes: config.cluster().replicas(),
        window: WINDOW.get(config),
        window_bytes: WINDOW_BYTES.get(config),
        payload_max: PAYLOAD_MAX.get(config),
        batch_bytes: config.get(&BATCH_BYTES) as usize,
        flight_bytes: flight_bytes(config, DATAGRAMS_BYTES_MAX) / 2,
        packet_bytes: config.get(&PACKET_BYTES) as usize,
        link: share,
        numbers_apart,
        demand: demand(config),
        capacity: capacity_settings(config, share),
        mutants: Mutants::of(config),
    }
}

/// The time over which demand is measured. All members acknowledge a larger requirement of each of them, so that in large
/// groups these would take all processors if they came as often.
fn demand(config: &Config) -> Span {
    let processes = config.cluster().replicas() as u64;
    let longer = (processes * processes / (SMALL_GROUP * SMALL_GROUP)).max(1);
    Span::micros(config.get(&DEMAND_US)).times(longer)
}

/// How links are judged. Streams notice by themselves what the network carries.
fn capacity_settings(config: &Config, link: u64) -> CapacitySettings {
    let queue = config.get(&QUEUE_US);
    let notices = queue > 0 && LANE.get(config) != PacketLane::Stream;
    CapacitySettings {
        link,
        floor: (link * config.get(&LINK_LEAST_PERCENT) / 100).max(1),
        queue: notices.then_some(Span::micros(queue)),
        interval: Span::micros(config.get(&DEMAND_US)),
    }
}

/// The settings of the layer below.
fn layer(me: Pid, config: &Config) -> VsyncSettings {
    // A cast for each message of all members, and for each number: the leader may give one at a time.
    let window = WINDOW.get(config) * config.cluster().replicas();
    let batch = config.get(&BATCH_BYTES) as usize + PAYLOAD_MAX.get(config);
    // Each message of a batch is smaller than the batch, but for its number and length.
    let entries = WINDOW.get(config) * ENTRY_BYTES;
    let limits = CastLimits {
        window,
        window_bytes: flight_bytes(config, DATAGRAMS_BYTES_MAX),
        // A batch, or numbers for all casts that may be without one.
        message_bytes: batch + entries + (window + 1) * ENTRY_BYTES,
    };
    let transport = GroupTransport::of(config, Lane::Datagram);
    let broken = mutants::broken(Mutants::of(config));
    VsyncSettings {
        link: Some(LINK.get(config).kilobytes_per_s()),
        ..layer_settings(me, config, transport, limits, broken)
    }
}
