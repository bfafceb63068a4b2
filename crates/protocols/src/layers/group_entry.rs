//! The frame of a catalog entry whose protocol runs on [virtual synchrony](super::vsync): the parameters that all of
//! them have, the settings of the layer from these, and packets as text. A protocol adds parameters of its own, and
//! the sizes of its casts ([`CastLimits`]).

use super::compact::LIST_MAX;
use super::vsync::{
    Dissemination, HEAD_BYTES, ViewQuorum, Vsync, VsyncMutant, VsyncPacket, VsyncSettings,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::config::ParamKind;
use amcast_core::groupcast::Groupcast;
use amcast_core::messages::{FramedProtocol, Lane};
use amcast_core::parameters::{
    DETECTOR, Detector, HEARTBEAT, LANE, LINK, PacketLane, RETRY, SUSPECT, WINDOW_BYTES,
    check_timers, check_window,
};
use amcast_core::{Config, ConfigError, Param, Pid, Protocol, ProtocolProcess, Span};

/// How long an acknowledgement may be held back.
pub(crate) const ACK_US: Param = Param {
    name: "ack_us",
    kind: ParamKind::Number { default: 500, min: 0, max: 1_000_000 },
    about: "How long an acknowledgement that no delivery waits for may be held back, in microseconds.",
    cost: "Less frees windows sooner, with more packets.",
    source: "ours",
};

/// How long a member whose application is full may hold the others back.
pub(crate) const FULL_US: Param = Param {
    name: "full_us",
    kind: ParamKind::Number { default: 30_000_000, min: 1_000, max: 3_600_000_000 },
    about: "How long a member whose application takes in too little may hold the others back, in microseconds. Then they \
            continue without it, and it joins again as much later.",
    cost: "Less has a member that is stuck stop the others for less time. More lets a large state come to a new member \
           while others broadcast much.",
    source: "ours",
};

/// How large a packet may be configured to be.
const PACKET_BYTES_MAX: u64 = 1 << 20;

/// For how many milliseconds of a link messages to one member may be on the way as datagrams.
const CHANNEL_MS: u64 = 5;

/// How many bytes of them may be at least, however slow links are: with half of that a link of 50 Mbit/s is not full, since
/// processes wait for a processor now and then.
const CHANNEL_BYTES_MIN: usize = 256 << 10;

// A packet that is full of its shortest items has no more of them than its receiver reads.
const _: () = assert!(PACKET_BYTES_MAX as usize / HEAD_BYTES <= LIST_MAX);

/// How large a packet is, about.
pub(crate) const PACKET_BYTES: Param = Param {
    name: "packet_bytes",
    kind: ParamKind::Number { default: 1_400, min: 64, max: PACKET_BYTES_MAX },
    about: "About how many bytes are put into one packet; a batch travels in as many as it needs.",
    cost: "More is faster under load; beyond the network's frame, datagrams are split by the system.",
    source: "ours",
};

/// How large a batch is at least, under load.
pub(crate) const BATCH_BYTES: Param = Param {
    name: "batch_bytes",
    kind: ParamKind::Number { default: 4 << 10, min: 1, max: 1 << 20 },
    about: "How many bytes a batch of messages has at least, while an earlier batch of its sender is not delivered.",
    cost: "More carries more under load, in larger steps; a message on an idle group never waits for it.",
    source: "FastCast 3.5: 4 KB",
};

/// The parameters of an entry on virtual synchrony: those of all, between them the transport of packets if it can be
/// chosen, and the detector, then its own, and last its mutants. One whose detector is given has none to choose: an empty
/// list before its own says so. Another empty list behind that: one where nobody continues without a member whose application is
/// full.
macro_rules! group_params {
    ($mutant:ty, [$($lane:expr)?], [$($own:expr),+ $(,)?]) => {
        $crate::layers::group_entry::group_params!(
            $mutant,
            [$($lane)?],
            [amcast_core::parameters::DETECTOR],
            [$($own),+]
        )
    };
    ($mutant:ty, [$($lane:expr)?], [$($detector:expr)?], [$($own:expr),+ $(,)?]) => {
        $crate::layers::group_entry::group_params!(
            $mutant,
            [$($lane)?],
            [$($detector)?],
            [$crate::layers::group_entry::FULL_US],
            [$($own),+]
        )
    };
    (
        $mutant:ty,
        [$($lane:expr)?],
        [$($detector:expr)?],
        [$($full:expr)?],
        [$($own:expr),+ $(,)?]
    ) => {
        &[
            amcast_core::parameters::WINDOW.param(),
            amcast_core::parameters::WINDOW_BYTES.param(),
            amcast_core::parameters::PAYLOAD_MAX.param(),
            $($lane.param(),)?
            $($detector.param(),)?
            amcast_core::parameters::HEARTBEAT.param(),
            amcast_core::parameters::SUSPECT.param(),
            amcast_core::parameters::RETRY.param(),
            $($full,)?
            $($own,)+
            #[cfg(feature = "mutants")]
            <$mutant as $crate::mutant::Mutant>::PARAM,
        ]
    };
}
pub(crate) use group_params;

/// How the casts of a member reach the others, and its packets to one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupTransport {
    pub(crate) lane: Lane,
    pub(crate) dissemination: Dissemination,
}

impl GroupTransport {
    /// By [`LANE`]. Where casts are multicast, packets to one process take the lane `beside` them.
    pub(crate) fn of(config: &Config, beside: Lane) -> Self {
        let (lane, dissemination) = match LANE.get(config) {
            PacketLane::Stream => (Lane::Stream, Dissemination::Unicast),
            PacketLane::Datagram => (Lane::Datagram, Dissemination::Unicast),
            PacketLane::Multicast => (beside, Dissemination::Group),
        };
        Self { lane, dissemination }
    }
}

/// Bytes of one member's casts that are on the way at a time, at most: the window, and where nothing else holds back a
/// sender of datagrams, no more than `datagrams`.
pub(crate) fn flight_bytes(config: &Config, datagrams: usize) -> usize {
    let bytes = WINDOW_BYTES.get(config);
    match LANE.get(config) {
        PacketLane::Stream => bytes,
        PacketLane::Datagram | PacketLane::Multicast => bytes.min(datagrams),
    }
}

/// The sizes of a protocol's casts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CastLimits {
    /// Casts of one sender that not all members are known to have.
    pub(crate) window: usize,
    /// Bytes of these.
    pub(crate) window_bytes: usize,
    /// Bytes of the largest message.
    pub(crate) message_bytes: usize,
}

/// Checks that the cluster is one group without clients, in which the members broadcast, and that its timers and windows
/// are sound.
///
/// # Errors
/// If it is not; the error says which setting to change.
pub(crate) fn check_group(name: &str, config: &Config) -> Result<(), ConfigError> {
    let cluster = config.cluster();
    if cluster.groups() != 1 {
        return Err(ConfigError::Relation(format!(
            "groups = {}: {name} broadcasts within one group; give groups = 1, or a protocol that \
             multicasts to several",
            cluster.groups()
        )));
    }
    if cluster.clients() != 0 {
        return Err(ConfigError::Relation(format!(
            "clients = {}: in {name} every member broadcasts; give clients = 0",
            cluster.clients()
        )));
    }
    check_timers(config, 1)?;
    check_window(config)
}

/// The settings of the layer: from the parameters of all, how packets travel, and the sizes of casts.
pub(crate) fn layer_settings(
    me: Pid,
    config: &Config,
    transport: GroupTransport,
    limits: CastLimits,
    broken: Option<VsyncMutant>,
) -> VsyncSettings {
    VsyncSettings {
        me,
        processes: config.cluster().replicas(),
        lane: transport.lane,
        dissemination: transport.dissemination,
        heartbeat: HEARTBEAT.get(config),
        suspect: SUSPECT.get(config),
        told_who_failed: DETECTOR.find(config) == Some(Detector::Connections),
        quorum: ViewQuorum::Majority,
        retry: RETRY.get(config),
        ack: Span::micros(config.get(&ACK_US)),
        full: config.has(&FULL_US).then(|| Span::micros(config.get(&FULL_US))),
        link: None,
        channel_bytes: channel_bytes(config),
        packet_bytes: config.get(&PACKET_BYTES) as usize,
        window: limits.window,
        window_bytes: limits.window_bytes,
        message_bytes: limits.message_bytes,
        broken,
    }
}

/// How many bytes of messages to one member may be on the way as datagrams: what a link carries in the time that these and
/// their acknowledgements take under load, which wait in the queues of both.
fn channel_bytes(config: &Config) -> usize {
    let link = LINK.find(config).map_or(0, |link| link.kilobytes_per_s() * CHANNEL_MS);
    (link as usize).max(CHANNEL_BYTES_MIN)
}

/// A process of the group that runs `inner`.
pub(crate) fn group_process<M, P>(settings: VsyncSettings, inner: P) -> ProtocolProcess
where
    M: Codec + core::fmt::Debug + Send + 'static,
    P: Protocol<Medium = Groupcast<M>> + Send + 'static,
{
    ProtocolProcess::Messages(Box::new(FramedProtocol::new(Vsync::new(settings, inner))))
}

/// A packet, for people.
pub(crate) fn show_packet(bytes: &[u8]) -> String {
    let mut reader = ByteReader::new(bytes);
    match VsyncPacket::decode(&mut reader) {
        Ok(packet) if reader.is_empty() => format!("{packet:?}"),
        Ok(packet) => format!("{packet:?}, and {} bytes too many", reader.rest().len()),
        Err(e) => format!("no packet of a group: {e}"),
    }
}
