//! Total order broadcast on virtual synchrony: the ten combinations of [TO table 3], a member of
//! the catalog each.
//!
//! # Order and guarantees
//! Broadcasts of the members of one group. Non-uniform validity, uniform integrity, FIFO order of
//! each sender, and the agreement and order of the row:
//!
//! | protocol | broadcasts | specification |
//! |---|---|---|
//! | `bb-rcast-rcast` | message and number by `Rcast` | TO(NUA,WNUTO) |
//! | `bb-urcast-urcast` | both by `URcast` | TO(UA,SUTO) |
//! | `bb-rcast-urcast` | message by `Rcast`, number by `URcast` | TO(NUA,WUTO) |
//! | `bb-urcast-rcast` | message by `URcast`, number by `Rcast` | TO(UA,WNUTO) |
//! | `sb-rcast`, `sb-urcast` | by the sequencer | TO(NUA,WNUTO), TO(UA,SUTO) |
//! | `ab-rcast`, `ab-urcast` | by the sender, with a number it asked for | TO(NUA,WUTO), TO(UA,SUTO) |
//! | `pb-rcast`, `pb-urcast` | by the holder of the token | TO(NUA,WUTO), TO(UA,SUTO) |
//!
//! *Correct* is meant as in [TO 3.1]: a process that the group leaves out has failed, also if it
//! lives; when it comes back with the state of the others it is a new one.
//!
//! # Assumptions
//! That a majority of the configured processes is fit at any time. It uses streams that break and
//! datagrams that get lost alike; see [`crate::layers::vsync`], which carries all of it.
//!
//! # The normal case
//! ```text
//!      broadcast-broadcast       send-broadcast      ask-broadcast        privilege-based
//! p0   s--.------number--->      .--<m, 1>------>    .--1--.              token 1 --<m, 1>-->
//! p1   m-----> . . deliver   m---'   . deliver    ?--'     '-<m, 1>-->       '-> token 2 ..
//! ```
//!
//! # Roles and phases
//! The most senior member of a view is the sequencer, or makes the token. A numbered message is
//! delivered in the order of numbers; they begin with 1 in each view. When a view ends, those who
//! continue have been handed the same, so each delivers, without a word: first the numbered messages,
//! skipping numbers whose message nobody has, then (BB) what has none, by the seniority of senders.
//! A sender sends again in the next view what it has not delivered.
//!
//! # Limits
//! A process has at most `window` own messages and `window_bytes` of payload not yet delivered
//! there; beyond that it has no room. In one view everything that is in flight is at most as much
//! of each member; see the layer for what it keeps.
//!
//! # Deviations
//! The papers' pseudo-code is in a report that we do not have; the steps follow the text of
//! [TO 3.2]. The multicasts of a process in one round of its loop are a batch (`layers/batch.rs`): it travels, has a
//! number and is delivered as one. Numbers for many runs leave in one broadcast, and are asked for
//! together. The token rests for `rest_us` when it went round and nobody had anything to send, until
//! somebody asks for it. An excluded process delivers nothing more of its view, so that pattern EP3 of
//! [TO table 2] never appears in the rows of TO(NUA,WUTO): there a member delivers by number, and what it
//! delivered has no holes. In these rows the survivors break TO(NUA,SUTO) when they skip a message
//! that only failed members have delivered.
//!
//! # Read first
//! `ordering_base.rs`, `layers/batch.rs`, then `broadcast.rs`, `send.rs`, `ask.rs`, `token.rs`: a `Scheme` each.

mod ask;
mod broadcast;
mod message;
pub(crate) mod mutants;
mod ordering_base;
mod send;
#[cfg(test)]
mod tests;
mod token;

use crate::layers::group_entry::{
    ACK_US, CastLimits, GroupTransport, PACKET_BYTES, check_group, flight_bytes, group_params,
    group_process, layer_settings, show_packet,
};
use crate::layers::vsync::VsyncSettings;
use crate::mutant::Mutants;
use alloc::string::String;
use amcast_core::config::ParamKind;
use amcast_core::entry::Trials;
use amcast_core::groupcast::Grade;
use amcast_core::messages::Lane;
use amcast_core::parameters::{LANE, PAYLOAD_MAX, WINDOW, WINDOW_BYTES};
use amcast_core::{
    About, Assumption, Capabilities, Config, ConfigError, Datagrams, Entry, MediumKind, Param, Pid,
    Property, ProtocolProcess, Span,
};
use ask::AskBroadcast;
use broadcast::BroadcastBroadcast;
#[cfg(feature = "fuzzing")]
pub(crate) use message::OrderingMessage;
#[cfg(feature = "mutants")]
use mutants::TotalOrderMutant;
use ordering_base::{OrderingSettings, TotalOrderProtocol};
use send::SendBroadcast;
use token::PrivilegeBased;

/// Bytes of one member's broadcasts that are on the way at a time, at most, where nothing else holds
/// back who sends datagrams: about what the buffers of a socket take.
const DATAGRAMS_BYTES_MAX: usize = 128 << 10;

/// Bytes that a message of this protocol has for each message or run that it is about, and what it and
/// its packet have besides; payloads aside.
const ENTRY_BYTES: usize = 64;

macro_rules! number {
    ($NAME:ident = $name:literal, $default:expr, $min:expr, $max:expr, $about:literal, $cost:literal) => {
        const $NAME: Param = Param {
            name: $name,
            kind: ParamKind::Number { default: $default, min: $min, max: $max },
            about: $about,
            cost: $cost,
            source: "ours",
        };
    };
}

number!(
    HELD_BYTES = "held_bytes",
    16 << 20,
    1 << 10,
    1 << 30,
    "Of earlier versions, and without any effect: what is delivered before the application's state is in \
     force waits in the node, and not in the protocol.",
    "Nothing: files of clusters that set it are still read."
);
number!(
    BURST = "burst",
    64,
    1,
    4096,
    "Messages that a holder of the token sends before it passes it on.",
    "More is faster for one sender, and lets the others wait."
);
number!(
    REST_US = "rest_us",
    1_000,
    1,
    10_000_000,
    "How long the token rests at a member when nobody has anything to send, in microseconds.",
    "Packets while nothing happens; nobody waits for it."
);

static PARAMS: &[Param] = group_params!(
    TotalOrderMutant,
    [LANE],
    [
        ACK_US,
        Param {
            about: "About how many bytes are put into one packet; pieces of state have this size, too, and 32 KB at \
                    least on streams.",
            ..PACKET_BYTES
        },
        HELD_BYTES,
        BURST,
        REST_US,
    ]
);

/// How a row gives messages their numbers.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// Broadcast-broadcast; the primitives of the message and of its number.
    Broadcast(Grade, Grade),
    /// Send-broadcast.
    Send(Grade),
    /// Ask-broadcast.
    Ask(Grade),
    /// Privilege-based.
    Token(Grade),
}

/// A row of [TO table 3] in the catalog.
#[derive(Debug)]
pub struct TotalOrderRow {
    name: &'static str,
    pattern: Pattern,
    about: &'static About,
}

// [TO table 3] each row: its pattern, its primitives, and the specification that it enforces
macro_rules! row {
    ($NAME:ident = $name:literal, $pattern:expr, $agreement:ident, $order:ident, $summary:literal) => {
        #[doc = $summary]
        pub static $NAME: TotalOrderRow = TotalOrderRow {
            name: $name,
            pattern: $pattern,
            about: &About {
                summary: $summary,
                paper: "TO 3.2, table 3",
                medium: MediumKind::Messages,
                capabilities: Capabilities {
                    views: true,
                    state_transfer: true,
                    crash_tolerance: true,
                    suspicion_tolerance: true,
                    early_delivery: matches!($pattern, Pattern::Broadcast(..)),
                    datagrams: Datagrams::Multicast,
                    ..Capabilities::NONE
                },
                promises: &[
                    Property::Nuv,
                    Property::Ui,
                    Property::$agreement,
                    Property::$order,
                    Property::FifoOrder,
                    Property::ViewSynchrony,
                ],
                assumes: &[Assumption::MajorityFit],
                params: PARAMS,
            },
        };
    };
}

row!(
    BB_RCAST_RCAST = "bb-rcast-rcast",
    Pattern::Broadcast(Grade::Plain, Grade::Plain),
    Nua,
    Wnuto,
    "Broadcast in total order: senders broadcast, a sequencer broadcasts numbers; TO(NUA,WNUTO)."
);
row!(
    BB_URCAST_URCAST = "bb-urcast-urcast",
    Pattern::Broadcast(Grade::Uniform, Grade::Uniform),
    Ua,
    Suto,
    "Broadcast in total order: as bb-rcast-rcast, both uniformly; TO(UA,SUTO)."
);
row!(
    BB_RCAST_URCAST = "bb-rcast-urcast",
    Pattern::Broadcast(Grade::Plain, Grade::Uniform),
    Nua,
    Wuto,
    "Broadcast in total order: as bb-rcast-rcast, numbers uniformly; TO(NUA,WUTO)."
);
row!(
    BB_URCAST_RCAST = "bb-urcast-rcast",
    Pattern::Broadcast(Grade::Uniform, Grade::Plain),
    Ua,
    Wnuto,
    "Broadcast in total order: as bb-rcast-rcast, messages uniformly; TO(UA,WNUTO)."
);
row!(
    SB_RCAST = "sb-rcast",
    Pattern::Send(Grade::Plain),
    Nua,
    Wnuto,
    "Broadcast in total order: a sequencer broadcasts what it is sent; TO(NUA,WNUTO)."
);
row!(
    SB_URCAST = "sb-urcast",
    Pattern::Send(Grade::Uniform),
    Ua,
    Suto,
    "Broadcast in total order: as sb-rcast, uniformly; TO(UA,SUTO)."
);
row!(
    AB_RCAST = "ab-rcast",
    Pattern::Ask(Grade::Plain),
    Nua,
    Wuto,
    "Broadcast in total order: senders ask a sequencer for numbers; TO(NUA,WUTO)."
);
row!(
    AB_URCAST = "ab-urcast",
    Pattern::Ask(Grade::Uniform),
    Ua,
    Suto,
    "Broadcast in total order: as ab-rcast, uniformly; TO(UA,SUTO)."
);
row!(
    PB_RCAST = "pb-rcast",
    Pattern::Token(Grade::Plain),
    Nua,
    Wuto,
    "Broadcast in total order: who has the token broadcasts; TO(NUA,WUTO)."
);
row!(
    PB_URCAST = "pb-urcast",
    Pattern::Token(Grade::Uniform),
    Ua,
    Suto,
    "Broadcast in total order: as pb-rcast, uniformly; TO(UA,SUTO)."
);

/// The rows of [TO table 3], as printed.
pub const TABLE_3: [&TotalOrderRow; 10] = [
    &BB_RCAST_RCAST,
    &BB_URCAST_URCAST,
    &BB_RCAST_URCAST,
    &BB_URCAST_RCAST,
    &SB_RCAST,
    &SB_URCAST,
    &AB_RCAST,
    &AB_URCAST,
    &PB_RCAST,
    &PB_URCAST,
];

impl Entry for TotalOrderRow {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static About {
        self.about
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        check_group(self.name, config)?;
        let (layer, set) = (layer(me, config), self.setting(me, config));
        Ok(match self.pattern {
            Pattern::Broadcast(message, number) => {
                let scheme = BroadcastBroadcast::new(message, number);
                group_process(layer, TotalOrderProtocol::new(set, scheme))
            }
            Pattern::Send(grade) => {
                group_process(layer, TotalOrderProtocol::new(set, SendBroadcast::new(grade)))
            }
            Pattern::Ask(grade) => {
                group_process(layer, TotalOrderProtocol::new(set, AskBroadcast::new(grade)))
            }
            Pattern::Token(grade) => {
                group_process(layer, TotalOrderProtocol::new(set, PrivilegeBased::new(grade)))
            }
        })
    }

    fn trials(&self) -> &'static Trials {
        &[("burst", &["64", "2"]), ("held_bytes", &["4194304", "4194304", "8192"])]
    }

    fn show(&self, bytes: &[u8]) -> String {
        show_packet(bytes)
    }
}

impl TotalOrderRow {
    /// Whether messages go out uniformly: then nobody can have delivered what the survivors do not.
    const fn is_uniform(&self) -> bool {
        match self.pattern {
            Pattern::Broadcast(grade, _)
            | Pattern::Send(grade)
            | Pattern::Ask(grade)
            | Pattern::Token(grade) => matches!(grade, Grade::Uniform),
        }
    }

    fn setting(&self, me: Pid, config: &Config) -> OrderingSettings {
        OrderingSettings {
            me,
            processes: config.cluster().replicas(),
            window: WINDOW.get(config),
            window_bytes: WINDOW_BYTES.get(config),
            payload_max: PAYLOAD_MAX.get(config),
            run_bytes: run_bytes(config),
            run_messages: match self.pattern {
                Pattern::Token(_) => config.get(&BURST) as usize,
                _ => usize::MAX,
            },
            burst: config.get(&BURST) as usize,
            rest: Span::micros(config.get(&REST_US)),
            resends: self.is_uniform(),
            mutants: Mutants::of(config),
        }
    }
}

/// How large a run of more than one message gets: it fits into a packet.
fn run_bytes(config: &Config) -> usize {
    (config.get(&PACKET_BYTES) as usize).saturating_sub(ENTRY_BYTES)
}

/// The settings of the layer below.
fn layer(me: Pid, config: &Config) -> VsyncSettings {
    // The sequencer may broadcast for all.
    let window = WINDOW.get(config) * config.cluster().replicas();
    let limits = CastLimits {
        window,
        window_bytes: flight_bytes(config, DATAGRAMS_BYTES_MAX),
        // A payload, or some in a run, or numbers for all that may be without one.
        message_bytes: run_bytes(config).max(PAYLOAD_MAX.get(config)) + (window + 1) * ENTRY_BYTES,
    };
    let transport = GroupTransport::of(config, Lane::Datagram);
    layer_settings(me, config, transport, limits, mutants::broken(Mutants::of(config)))
}
