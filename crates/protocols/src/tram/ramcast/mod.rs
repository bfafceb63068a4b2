//! RamCast: genuine atomic multicast over shared memory, by timestamps.
//!
//! Source: L. H. Le, M. Eslahi-Kelorazi, P. Coelho, F. Pedone, "RamCast: RDMA-based atomic multicast",
//! Middleware 2021, as L. Martignetti et al. describe, rebuild and measure it in "Scaling atomic ordering in
//! shared memory" (cited as TRAM, sections 8 and 9). The timestamps are Skeen's (see [`crate::skeen`]).
//!
//! # Order and guarantees
//! Clients multicast messages to sets of groups; every replica of a destination delivers them. Validity,
//! uniform agreement, uniform integrity, uniform prefix order, uniform acyclic order. It is genuine: only the client
//! and the destinations hear of a message. It does *not* promise FIFO order.
//!
//! # Assumptions
//! As [`crate::tram`]: a majority of each group works at any time, where a replica that restarted counts as
//! failed until it has its state again; a client's buffers are leased to one living process.
//!
//! # The normal case
//! ```text
//! client        leader g0      followers g0      leader g1      followers g1
//!   |--HM[c]------->|--------------------------HM[c]->|    (to all replicas of both groups)
//!   |           timestamp 8                      timestamp 5
//!   |               |--LOG: 8 ------>|                |--LOG: 5 ------->|   the write is the vote
//!   |               |--clock 8 ---------------------->|--LOG: clock 8 ->|
//!   |           decided                           decided
//!   |               |--proposal 8 ------------------->|   (to all replicas of the other group)
//!   |               |<------------------- proposal 5 --|
//!   |           max(8, 5) = 8: deliver            max(8, 5) = 8: deliver
//!   |               |--LOG: 5 of g1 -->|              |--LOG: 8 of g0 -->|   the followers deliver
//! ```
//! A message to one group is delivered as soon as it is decided and in front of the queue.
//!
//! # Steps
//! The tags in the code name them:
//! 1. `[RamCast 1]` The leader of each destination takes the message from the client's buffer, puts a timestamp above its
//!    clock into it, and writes it to its followers under their permission. At once it announces its clock to the
//!    other destinations, whose leaders put that into their logs, too: their clocks pass it.
//! 2. `[RamCast 2]` Once the timestamp is decided the leader writes it to all replicas of the other
//!    destinations; their leaders put it into their logs.
//! 3. `[RamCast 3]` With a timestamp of every destination the message is final: the largest
//!    one counts, ties are broken by the message's id. It is delivered in front of the queue, once the group has
//!    decided that its clock is past the final timestamp: no later message gets a smaller one, under any leader.
//!
//! # Roles and phases
//! Clients and replicas are those of [`crate::tram`], which replicates a group's log: leader and followers,
//! write permissions, takeover, state transfer, pipelining and batching are the same code. In place of
//! the tree there are `exchange`, which carries timestamps between groups, and `order`, which delivers.
//!
//! # Crashes
//! - A leader that dies in the middle of anything: its successor adopts the decided log, and writes
//!   again what the other groups have not taken over, to the same positions. The clock of the successor is above
//!   every timestamp in the adopted log. No other group has learnt a timestamp that was not decided, but for a clock that
//!   theirs passed.
//! - A client, or a leader of another group, whose link to a leader fails for good: the leader reads from its followers what they have, as in
//!   [`crate::tram`]. It counts a proposal that it has read there only when its own group has decided that.
//! - A client that dies when it has written to some destinations only: a message in front of a queue that
//!   waits longer than a failed replica is waited for goes to the other destinations as a whole, by an entry in the log. They
//!   order it, and recognise the client's own copy if that comes later. A destination that has a message of the place's next
//!   holder by then refuses the proposals for it, and all drop it.
//!
//! # Limits, and why they suffice
//! As TRAM's. Beside that, messages that wait for other groups are held outside the log, so that a log never waits
//! for another group, and no two groups wait for each other's room. A client writes over a message in its buffer
//! only when its group has delivered it, so they are never more than the clients' buffers hold.
//! Proposals that another group has not taken over are held, too: 1 each for such a message, as a group delivers only what
//! all destinations have proposed. Of messages that were dropped there may be more, and refusals: a leader takes no message of a client
//! of which the other groups have not taken over a few times what its buffers hold. Of others' proposals for messages that did not come
//! here, as many are kept as those groups hold messages that wait. Of each client's place, for all of its leases, one number is kept, and beyond
//! it the numbers of messages that other groups brought and the client did not, as many as its buffer holds.
//!
//! # Malformed input
//! - A client numbers its messages in the order in which it sends them, over all leases of its place, as the runtime does.
//!   A number that does not grow is seen in the log, by all replicas alike: its message is not ordered. Another
//!   destination may have seen it grow, and propose: the proposal is answered by a refusal (a record in place of a
//!   proposal), and every destination drops the message: none can deliver it (`order`).
//! - A number under two sets of destinations is two messages, of which a group orders one and refuses the proposals for the
//!   other one. Proposals for one never count for the other, so they move no other message.
//! - Of each lease the numbers lie below its own bound, `lease << 32`: a larger one costs the client its lease and leaves the numbers
//!   of the place's later holders as they are.
//! - A client that writes a message to some of its destinations only holds up those behind it until it is passed on, as one does that died. One
//!   that writes another payload to each destination has each deliver its own.
//! - A record that a client should not have written costs the client its lease. One of another group's
//!   replica is passed over: the group's later leaders write the same records elsewhere (`incoming`).
//!
//! # Deviations
//! 1. The original has followers acknowledge a leader's timestamp by writes to all destinations. Here the leader counts the
//!    completions of its own writes, as TRAM does with the same permissions, and tells the others a timestamp when it is
//!    decided: a leader delivers after the same 3 write delays, of which the second is a write and its completion.
//! 2. Others' timestamps go through the log, too, and followers deliver by the log alone: one write later than their leader. In
//!    return the state of a replica follows from its group's log, and a restarted replica gets it from its own
//!    group.
//! 3. Restarted replicas, leases, state transfer, back-pressure and clients that die: the description has nothing of
//!    them.
//!
//! # Read first
//! `order` with `queue` and `progress`, then `exchange` with `stream` and `incoming`.

pub(crate) mod exchange;
pub(crate) mod incoming;
mod mutants;
mod order;
mod progress;
mod queue;
mod stream;
#[cfg(test)]
mod tests;

#[cfg(feature = "mutants")]
pub use mutants::RamCastMutant;
#[cfg(not(feature = "mutants"))]
use mutants::RamCastMutant;

use crate::tram::client::TramClient;
use crate::tram::layout::Layout;
use crate::tram::{params, show_line};
use alloc::boxed::Box;
use alloc::string::String;
use amcast_core::entry::{About, Assumption, Entry, MediumKind, ProtocolProcess};
use amcast_core::{Capabilities, Config, ConfigError, Param, Pid, Property, Role, Senders};

/// The catalog's entry for RamCast.
#[derive(Debug)]
pub struct RamCast;

static PARAMS: &[Param] = &[
    params::LOG_LINES,
    params::HM_LINES,
    params::LAP_LINES,
    params::XFER_LINES,
    params::BATCH_LINES,
    params::PIPELINE,
    params::HEARTBEAT_OF_MEMORY,
    amcast_core::parameters::SUSPECT.param(),
    #[cfg(feature = "mutants")]
    <RamCastMutant as crate::mutant::Mutant>::PARAM,
];

static ABOUT: About = About {
    summary: "Genuine atomic multicast over shared memory: the destinations exchange timestamps, \
              each group of replicas under write permissions.",
    paper: "TRAM 8 and 9, after RamCast: RDMA-based atomic multicast",
    medium: MediumKind::Memory,
    capabilities: Capabilities {
        several_groups: true,
        senders: Senders::Clients,
        state_transfer: true,
        crash_tolerance: true,
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
    assumes: &[Assumption::MajorityFit, Assumption::ExclusiveLease],
    params: PARAMS,
};

impl Entry for RamCast {
    fn name(&self) -> &'static str {
        "ramcast"
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let regions = Layout::of_exchange(config)?.regions(me);
        Ok(match config.cluster().role(me) {
            Role::Client { .. } => {
                ProtocolProcess::Memory(Box::new(TramClient::that_spreads(me, config)?), regions)
            }
            Role::Replica { .. } => {
                ProtocolProcess::Memory(Box::new(exchange::replica(me, config)?), regions)
            }
        })
    }

    fn show(&self, bytes: &[u8]) -> String {
        show_line(bytes)
    }
}
