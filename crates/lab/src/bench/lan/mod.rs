//! Broadcasts of one group on real sockets, where the links are what limits them [FastCast 4]: a process on each of some
//! hosts, which are network namespaces of this machine behind a switch, with links that are limited in rate.
//!
//! The link is measured in each run: the payload that it carries in UDP datagrams, and on a TCP connection.
//! `cluster.rs` starts the processes and gathers what they saw, each of them is `member.rs`, with its messages
//! (`source.rs`) and observations (`watch.rs`). Strangers may use the links meanwhile (`strangers.rs`, `contended.rs`).

mod cluster;
mod contended;
mod echo;
mod member;
mod source;
mod strangers;
mod watch;

pub use cluster::Lan;
pub use contended::{ContendedBroadcasts, ContendedResult, FramesLost};
pub use member::run as run_member;
pub use strangers::{LanStranger, StrangerFlow, StrangerResult};
pub use watch::COURSE_STEP;

use super::Latency;
use super::votes::VoteSource;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The usual rate of each direction of each link, in bits of Ethernet frames per second: one that two cores fill with eight
/// hosts, and not the twofold one, at which processors are the limit; datagrams of 10 kB take just above 49 Mbit/s, since the
/// rate of a link is set in whole megabits.
pub const LAN_BITS_PER_S: u64 = 50_300_000;

/// Bytes that wait in front of each direction of a link, as in the simulator.
pub const LAN_QUEUE_BYTES: u32 = 512 << 10;

/// How much an idle link passes at once.
#[derive(Clone, Copy, Debug)]
pub enum LanBursts {
    /// As much as lets a machine that is late by a millisecond reach the rate: more than a message of 10 kB, so that such
    /// a message takes no time on an idle link.
    Usual,
    /// Two frames: messages take the time on a link that they take on a wire.
    Short,
}

/// The links of the hosts, each direction of them.
#[derive(Clone, Copy, Debug)]
pub struct LanLinks {
    /// Their rate, in bits of Ethernet frames per second.
    pub bits_per_s: u64,
    /// How much an idle one passes at once.
    pub bursts: LanBursts,
    /// How long it takes from a host to any other one, besides what the rate makes it take.
    pub delay: Duration,
}

impl LanLinks {
    /// Links of the usual rate between hosts that are close to each other.
    pub const fn near(bursts: LanBursts) -> Self {
        Self { bits_per_s: LAN_BITS_PER_S, bursts, delay: Duration::ZERO }
    }
}

/// The payload that a link carries, in megabits a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LanLink {
    /// In UDP datagrams of 1472 bytes.
    pub udp_mbps: f64,
    /// On one TCP connection, as Netperf measures it.
    pub tcp_mbps: f64,
}

/// When the members of a group on hosts send.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LanLoad {
    /// All of them, with so many messages on the way.
    Full {
        /// On the way.
        outstanding: usize,
    },
    /// So many of them, each at times of its own that are so many nanoseconds apart on average.
    Open {
        /// How many send.
        senders: usize,
        /// Nanoseconds from one message of a sender to the next one.
        apart_ns: u64,
    },
    /// One of them, at random times.
    One {
        /// Which, by its place in the group: 0 is the most senior one.
        sender: usize,
        /// Nanoseconds from one of its messages to the next one, on average.
        apart_ns: u64,
    },
    /// All of them, each at a rate that changes from phase to phase.
    Phases {
        /// Nanoseconds that a phase takes; the last one lasts until the end.
        phase_ns: u64,
        /// By phase: the megabits a second of each member.
        mbps: Vec<Vec<f64>>,
        /// Bytes of a message, at least and at most.
        bytes: [u64; 2],
    },
    /// All of them, each at the times of such a source.
    Source {
        /// How its intervals are distributed.
        source: VoteSource,
        /// Nanoseconds from one message of a source to the next one, on average.
        apart_ns: u64,
    },
}

/// A measurement of one protocol.
#[derive(Clone, Debug)]
pub struct LanBroadcasts {
    /// Its name.
    pub protocol: &'static str,
    /// Its parameters.
    pub set: Vec<(String, String)>,
    /// Members, each on a host.
    pub members: usize,
    /// Bytes of each message.
    pub payload: usize,
    /// When they send.
    pub load: LanLoad,
    /// Seconds until it is measured, and for how long.
    pub seconds: [f64; 2],
    /// Whether packets of the protocol are counted by kind, which takes processor time.
    pub kinds: bool,
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct LanResult {
    /// Members, each on a host.
    pub members: usize,
    /// Megabits of payload a second that a member delivered, on average over the members.
    pub delivered_mbps: f64,
    /// The member that delivered least, and the one that delivered most.
    pub least_and_most_mbps: [f64; 2],
    /// Megabits a second of its own messages that each member delivered: the share of each sender.
    pub own_mbps: Vec<f64>,
    /// By tenth of a second: megabits a second that a member delivered, on average over the members.
    pub course_mbps: Vec<f64>,
    /// How long a member waited for each larger share of the bandwidth, where the protocol allocates it.
    pub increase_ns: Option<Latency>,
    /// From the broadcast, or when it was due, to the delivery at its sender.
    pub latency_ns: Latency,
    /// Messages whose latency was measured.
    pub messages: u64,
    /// Datagrams and frames that were lost while it was measured.
    pub lost: LanLosses,
    /// Packets of the processes' datagrams that were sent while it was measured, of all members.
    pub datagrams: u64,
    /// The share of the time in which a process had a processor, on average over the members.
    pub processor: f64,
    /// Messages a second that a member delivered, on average over the members.
    pub delivered_per_s: f64,
    /// Microseconds of a processor that all processes used together for each delivery of any of them.
    pub processor_us_per_delivery: f64,
    /// Datagrams that all processes sent together for each message.
    pub datagrams_per_message: f64,
    /// Of all processes together for each message, by kind: datagrams that carriers made for themselves, copies for members that
    /// do not hear the group's address, and, where they are counted, packets of the protocol to one member or to all, and its marks.
    pub sent_per_message: BTreeMap<String, f64>,
}

/// Losses, of all members together. Where the system does not tell it, none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LanLosses {
    /// Frames that found the queue in front of a link full. They are counted from the start of the processes.
    pub in_links: u64,
    /// Datagrams that found the buffer of their socket full.
    pub in_sockets: Option<u64>,
    /// Datagrams that found no room in the sending process.
    pub in_senders: u64,
}
