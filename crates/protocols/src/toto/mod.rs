//! ToTo: total order from a causal order alone, by votes that travel with messages [ToTo 4], and its rival all-ack.
//!
//! Members multicast at any time, without a sequencer or a token. A message is delivered when the messages that follow it
//! say enough: those of a majority as a rule, of all members at worst.
//!
//! # Order and guarantees
//! Broadcasts of the members of one group: TO(NUA,WNUTO), in an order that extends the causal one, and so the order of
//! each sender. A process that fails may have delivered messages that nobody else has, and in an order that no other
//! one delivers them in: a message is delivered before a majority is known to have all that decided its place.
//!
//! # Assumptions
//! That a majority of the configured processes is fit at any time. Streams may break, datagrams may be lost; see
//! [`crate::layers::vsync`], which carries all of it.
//!
//! # The normal case
//! ```text
//! p0  m, follows nothing --> p1, p2, p3
//! p1                         vote: follows m --> all       p1 has the votes of p0 and p1
//! p2                         vote: follows m --> all       p3, with the votes of p0, p1 and p2 of four: delivers m
//! ```
//! A vote is the next message of a member, with or without payload. One that has nothing to send for `vote_us` casts a
//! message that carries nothing. So two message delays order a message, and where all members send all the time nothing
//! is cast for the sake of the order.
//!
//! # Roles and phases
//! All members do the same. `layers/causal.rs` holds each message until those that it follows are there; `order.rs` is the
//! rule that counts the votes and says which messages are next.
//!
//! ## When a view ends
//! All survivors were handed the same casts. No more votes come, as if all members had crashed (`Crash(q)` of the
//! paper, for the votes that are missing): they deliver what is left in the same order, which continues that of every
//! survivor, because votes that are missing change no decision that was taken. In the next view vectors begin anew, and a
//! sender sends again what it has not delivered. A member that is excluded drops its messages that are not delivered, and
//! has no room until it joins again: it may have delivered what nobody else has, and then they follow that.
//!
//! # Phi
//! `phi` is a part of the members in percent, so that it is known in a view of any size: `phi * members / 100`, rounded
//! down, and at most `members - 1`. The rule only counts whole members, and so rounding down changes no decision. At 50
//! a bare majority of votes may win; at 100 all votes are waited for, which is `all-ack`. More pays where several candidates are there at a
//! time: fewer members have to follow each of them.
//!
//! # Batches
//! The messages that are submitted in one round leave together at its end, as a batch of `batch_bytes` at most. None
//! waits for another one.
//!
//! # Limits
//! A process has at most `window` own messages and `window_bytes` of payload not yet delivered there; beyond that it
//! has no room. A member casts at most one message without payload for each round of deliveries. A silent member stops all-ack
//! until it is excluded; ToTo only where its vote decides.
//!
//! # Components
//! `toto` and `all-ack` continue where a majority of the configured processes is. `toto-partitionable` does in every
//! component of a partition, as in the paper, down to a process that hears nobody: each component forms an order of its
//! own, and when components merge they continue with one order, and each member keeps what it has delivered. See
//! [`crate::layers::vsync`] for the membership, and [`Property::AgreedMulticast`] for what holds then.
//!
//! # Deviations
//! The paper keeps acknowledgements that the messages of a network carry anyway, from which vectors follow; here a message
//! carries its vector.
//!
//! # Read first
//! `order.rs`, which is a pure rule, then `member.rs`. `tests/model.rs` has the definitions of the paper.

mod member;
mod message;
pub(crate) mod mutants;
pub mod order;
#[cfg(test)]
mod tests;

use crate::layers::group_entry::{
    ACK_US, BATCH_BYTES, CastLimits, GroupTransport, PACKET_BYTES, check_group, flight_bytes,
    group_params, group_process, layer_settings, show_packet,
};
use crate::layers::vsync::{STREAM_PART_BYTES, ViewQuorum, VsyncSettings};
use crate::mutant::Mutants;
use alloc::string::String;
use amcast_core::config::ParamKind;
use amcast_core::entry::Trials;
use amcast_core::messages::Lane;
use amcast_core::parameters::{DETECTOR, LANE, PAYLOAD_MAX, WINDOW, WINDOW_BYTES};
use amcast_core::{
    About, Assumption, Capabilities, Config, ConfigError, Datagrams, Entry, MediumKind, Param,
    PartitionMode, Pid, Property, ProtocolProcess, Span,
};
use member::{TotoMember, TotoSettings, VoteRule};
#[cfg(feature = "fuzzing")]
pub(crate) use message::TotoMessage;

/// Bytes of a message in a batch besides its payload, and of a count in a vector, at most.
const ENTRY_BYTES: usize = 64;

/// Bytes of datagrams of one member that are on the way at a time, at most: nothing else holds back a sender of them.
const DATAGRAMS_BYTES_MAX: usize = 128 << 10;

const PHI: Param = Param {
    name: "phi",
    kind: ParamKind::Number { default: 50, min: 50, max: 100 },
    about: "More votes than this part of the members let a message win, in percent, rounded down: 50 is a bare majority.",
    cost: "More waits for more votes where one message is on the way at a time, and for fewer where many are.",
    source: "ToTo 4.2: n/2 <= phi < n",
};

const VOTE_US: Param = Param {
    name: "vote_us",
    kind: ParamKind::Number { default: 100, min: 0, max: 10_000_000 },
    about: "How long a member without messages of its own waits before it casts its vote alone, in microseconds.",
    cost: "More votes travel with messages; those of a quiet group are delivered as much later.",
    source: "ours",
};

/// How many bytes of messages of one round go together.
const ROUND_BYTES: Param = Param {
    about: "How many bytes of messages of one round go into a batch, at most.",
    cost: "More carries more under load, in larger steps.",
    source: "as in fastcast",
    ..BATCH_BYTES
};

static TOTO_PARAMS: &[Param] =
    group_params!(mutants::TotoMutant, [LANE], [ACK_US, PACKET_BYTES, ROUND_BYTES, VOTE_US, PHI]);

/// Where each component decides for itself nobody continues without a member that is full.
static PARTITIONABLE_PARAMS: &[Param] = group_params!(
    mutants::TotoMutant,
    [LANE],
    [DETECTOR],
    [],
    [ACK_US, PACKET_BYTES, ROUND_BYTES, VOTE_US, PHI]
);

static ALL_ACK_PARAMS: &[Param] =
    group_params!(mutants::TotoMutant, [LANE], [ACK_US, PACKET_BYTES, ROUND_BYTES, VOTE_US]);

/// An order by votes in the catalog.
#[derive(Debug)]
pub struct VotedOrder {
    name: &'static str,
    about: &'static About,
    rule: fn(&Config) -> VoteRule,
    quorum: ViewQuorum,
    trials: &'static Trials,
}

/// All rows have these.
const CAPABILITIES: Capabilities = Capabilities {
    views: true,
    state_transfer: true,
    crash_tolerance: true,
    suspicion_tolerance: true,
    early_delivery: true,
    datagrams: Datagrams::Multicast,
    ..Capabilities::NONE
};

macro_rules! about {
    ($params:ident, $paper:literal, $summary:literal) => {
        &About {
            summary: $summary,
            paper: $paper,
            medium: MediumKind::Messages,
            capabilities: CAPABILITIES,
            promises: &[
                Property::Nuv,
                Property::Ui,
                Property::Nua,
                Property::Wnuto,
                Property::FifoOrder,
                Property::CausalOrder,
                Property::ViewSynchrony,
            ],
            assumes: &[Assumption::MajorityFit],
            params: $params,
        }
    };
}

/// ToTo(phi) in the catalog.
pub static TOTO: VotedOrder = VotedOrder {
    name: "toto",
    about: about!(
        TOTO_PARAMS,
        "ToTo 4",
        "Broadcast in total order from the causal order alone: messages are votes, and a majority decides as a rule; \
         TO(NUA,WNUTO)."
    ),
    rule: by_phi,
    quorum: ViewQuorum::Majority,
    trials: TOTO_TRIALS,
};

/// ToTo(phi) in every component of a partition in the catalog.
pub static TOTO_PARTITIONABLE: VotedOrder = VotedOrder {
    name: "toto-partitionable",
    about: &About {
        summary: "Broadcast by ToTo in every component of a partition, each with an order of its own; components merge, and \
                  the application reconciles.",
        paper: "ToTo 5",
        medium: MediumKind::Messages,
        capabilities: Capabilities {
            state_transfer: false,
            partitions: PartitionMode::EveryComponent,
            ..CAPABILITIES
        },
        promises: &[
            Property::Nuv,
            Property::Ui,
            Property::FifoOrder,
            Property::ViewSynchrony,
            Property::AgreedMulticast,
        ],
        assumes: &[],
        params: PARTITIONABLE_PARAMS,
    },
    rule: by_phi,
    quorum: ViewQuorum::Component,
    trials: TOTO_TRIALS,
};

static TOTO_TRIALS: &Trials =
    &[("phi", &["50", "50", "75", "100"]), ("vote_us", &["100", "0", "2000"])];

fn by_phi(config: &Config) -> VoteRule {
    VoteRule::Percent(config.get(&PHI))
}

/// All-ack in the catalog: ToTo's rival, which waits for a vote of each member.
pub static ALL_ACK: VotedOrder = VotedOrder {
    name: "all-ack",
    about: about!(
        ALL_ACK_PARAMS,
        "the rival in ToTo 1 and 6",
        "Broadcast in total order from the causal order alone: a message is delivered when one of each member \
         follows it or one beside it; TO(NUA,WNUTO)."
    ),
    rule: |_| VoteRule::All,
    quorum: ViewQuorum::Majority,
    trials: &[("vote_us", &["100", "0", "2000"])],
};

impl Entry for VotedOrder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static About {
        self.about
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        check_group(self.name, config)?;
        Ok(group_process(self.layer(me, config), TotoMember::new(self.settings(me, config))))
    }

    fn trials(&self) -> &'static Trials {
        self.trials
    }

    fn show(&self, bytes: &[u8]) -> String {
        show_packet(bytes)
    }
}

impl VotedOrder {
    fn settings(&self, me: Pid, config: &Config) -> TotoSettings {
        TotoSettings {
            me,
            processes: config.cluster().replicas(),
            window: WINDOW.get(config),
            window_bytes: WINDOW_BYTES.get(config),
            payload_max: PAYLOAD_MAX.get(config),
            batch_bytes: config.get(&BATCH_BYTES) as usize,
            rule: (self.rule)(config),
            vote: Span::micros(config.get(&VOTE_US)),
            mutants: Mutants::of(config),
        }
    }

    /// The settings of the layer below.
    fn layer(&self, me: Pid, config: &Config) -> VsyncSettings {
        let vector = (config.cluster().replicas() + 1) * ENTRY_BYTES;
        let messages = WINDOW.get(config);
        // A member may have a batch of each message on the way and a vote for each, in as many parts as the bytes need.
        let window_bytes =
            flight_bytes(config, DATAGRAMS_BYTES_MAX) + messages * (vector + ENTRY_BYTES);
        let batch = config.get(&BATCH_BYTES) as usize + PAYLOAD_MAX.get(config);
        let limits = CastLimits {
            window: 2 * messages + window_bytes / STREAM_PART_BYTES,
            window_bytes,
            message_bytes: batch + messages * ENTRY_BYTES + vector,
        };
        let transport = GroupTransport::of(config, Lane::Datagram);
        let broken = mutants::broken(Mutants::of(config));
        let settings = layer_settings(me, config, transport, limits, broken);
        VsyncSettings { quorum: self.quorum, ..settings }
    }
}
