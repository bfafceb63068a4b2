//! TRAM: atomic multicast over shared memory and a tree of groups.
//!
//! Source: L. Martignetti, E. Batista, G. Cugola, F. Pedone, "Scaling atomic ordering in shared
//! memory", 2025 (cited as TRAM; `papers/tram.toml` ties each line of its algorithms to this code).
//!
//! # Order and guarantees
//! Clients multicast messages to sets of groups; every replica of a destination delivers them.
//! Validity, uniform agreement, uniform integrity, uniform prefix order, uniform acyclic order;
//! partially genuine: a message to one group involves no other, and a message to several involves only the
//! groups on the tree's paths from their lowest common ancestor down to them.
//!
//! # Assumptions
//! A majority of each group works at any time, where a replica that restarted counts as failed
//! until it has its state again. A client's buffers are leased to one living process. Nothing
//! about time: slow processes, late writes and wrong suspicions cost availability only.
//!
//! # The normal case
//! ```text
//! client      leader g0     followers g0        leader g1     followers g1      (g0 parent of g1)
//!   |--HM[c]--->|  (to all replicas of g0, the lowest ancestor of the destinations)
//!   |           |--LOG------->|  written, not answered by anyone: the write itself is the vote
//!   |        decided          |
//!   |        deliver          |
//!   |           |--HM[parent]------------------->|
//!   |           |--commit---->|                  |--LOG------->|
//!   |                      deliver            decided          |
//!   |                                         deliver --commit->| deliver
//! ```
//!
//! The tree stays, or, with the parameter `dynamic_overlay`, changes while messages flow: [`dynamic_overlay`].
//!
//! # Roles and phases
//! [`client`]; a [`replica`] is a follower, a candidate ([`takeover`]) or a [`leader`], and beside
//! that fit or missing state ([`transfer`]). [`follower`] is the common part of all of them. [`layout`] says
//! who owns which memory, [`forwarding`], [`incoming`] and [`fetching`] are the way down the tree, [`ring`], [`log_region`] and [`buffer`] what lies in it.
//!
//! # Limits, and why they suffice
//! - `HM` (`hm_lines`): a client or parent leader writes a record over lines only after its group
//!   has it in the decided log, as told by *any* replica of the group. Nobody needs the old record
//!   then: every later leader finds it in the log.
//! - `LOG` (`log_lines`): the leader writes over an entry only when every replica that counts, and
//!   every child, has told that it is past it. A follower that is suspected while the ring has
//!   little room counts no more; it finds the tail past its place and gets its state from
//!   another. Lines that are on the way to a replica stay until the carrier has answered, be it with `Lost`, so a carrier
//!   must not let writes to a process that is stopped wait for long.
//!   A full ring holds back the leader, then the clients: nothing is ever overwritten.
//!   A writer announces first which lines it may write over, and readers look at that afterwards ([`log_region`]).
//! - Work in a step: at most a ring's length of entries, and `batch_lines` from each buffer.
//!
//! # Links that fail for good
//! A client, or a leader of another group, that does not reach the leader of a group reaches followers of it. They name such
//! sources in their rows ([`overdue`]), and the leader reads the records from their memory ([`fetching`], with the proof that the
//! log stays the same). So while one link is dead each message over it waits for one or two suspicions, and where more follow, for some
//! heartbeats each. Where all links work followers look at their own memory, and the leader reads nothing, but while the last record of a
//! client lies there that was refused. A link between two replicas of one group is another
//! matter: the group continues without one of the two ([`retry`]).
//!
//! # Malformed input
//! - A record that a client should not have written costs the client its lease: its buffer is not read until the place's
//!   next holder.
//! - So does a number that does not grow, or lies beyond those of its lease, `lease << 32`. Every group keeps, along its
//!   log, one number for each client's place, over all leases: the last one from that client's own buffer. Numbers that
//!   come from the parent cannot be judged: messages of one client with different lowest ancestors reach a group by
//!   different ways, in any order of their numbers. A client that gives one number to two messages with different lowest
//!   ancestors has both delivered. Nor are numbers judged where the tree may change: a client requests anew behind later
//!   messages.
//! - A pad in a client's buffer is not judged. One that does not belong there harms that client's own messages alone: a
//!   later leader finds the next one elsewhere.
//! - A record that a replica of the parent should not have written is passed over: [`incoming`].
//!
//! # Deviations from the paper
//! 1. Commit index in place of "deliver STD when STD + 1 is there" (2:32): it covers the last
//!    message, and several slots on the way.
//! 2. A log is adopted as a whole, by installed term and length, in place of slot by slot
//!    (4:8); see [`takeover`].
//! 3. One region for each writer of `LOG` and `HM[parent]`, and two halves of each log, so that
//!    neither a deposed leader that wakes up nor a half-done takeover spoils what is in force.
//! 4. `slotin` and `slotout` are not stored in entries but follow from them: every entry names its
//!    source, and the log is the same everywhere.
//! 5. Tree catch-up resends from what a child told that it took over, not from the old `FUO`
//!    (5:4).
//! 6. Restarted replicas, leases, state transfer, back-pressure: not in the paper.
//! 7. A leader reads from its followers what does not reach it: the paper's links work ([`fetching`]).
//! 8. The tree may change, by an ordered message: future work in the paper; see [`dynamic_overlay`].
//! 9. A leader tells in a line of its own, before the first entry, that a term begins in a log, and a
//!    candidate looks at that line when it has read the log: in the paper memory is not used twice.
//!    So does the new holder of a client's place in its [`buffer`], before its first message.
//!
//! # The rival
//! [`ramcast`] is RamCast, on the same memory and the same replication of groups, as the paper measures it: it
//! puts an exchange of timestamps in the place of the tree.
//!
//! # Read first
//! [`ring`], then [`leader`], then [`follower`].

pub(crate) mod buffer;
pub(crate) mod client;
pub(crate) mod dynamic_overlay;
pub(crate) mod fetching;
pub(crate) mod follower;
pub(crate) mod forwarding;
pub(crate) mod hung;
pub(crate) mod incoming;
pub(crate) mod layout;
pub(crate) mod leader;
pub(crate) mod log_region;
pub(crate) mod mutants;
pub(crate) mod overdue;
pub(crate) mod params;
pub(crate) mod permissions;
pub(crate) mod progress;
pub(crate) mod ramcast;
pub(crate) mod replica;
pub(crate) mod retry;
pub(crate) mod ring;
pub(crate) mod takeover;
pub(crate) mod ticket;
pub(crate) mod transfer;

#[cfg(test)]
mod tests;

#[cfg(feature = "mutants")]
pub use mutants::TramMutant;
pub use ramcast::RamCast;
#[cfg(feature = "mutants")]
pub use ramcast::RamCastMutant;

use alloc::boxed::Box;
use alloc::string::String;
use amcast_core::entry::{About, Assumption, Entry, MediumKind, ProtocolProcess, Trials};
use amcast_core::memory::LINE_WORDS;
use amcast_core::{Capabilities, Config, ConfigError, Overlay, Pid, Property, Role, Senders};

/// The catalog's entry for TRAM.
#[derive(Debug)]
pub struct Tram;

static ABOUT: About = About {
    summary: "Atomic multicast over shared memory: groups of replicas in a tree, ordered by \
              writing to each other's memory under permissions.",
    paper: "TRAM: Scaling atomic ordering in shared memory, algorithms 1 to 5",
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
        Property::PartiallyGenuine,
    ],
    assumes: &[Assumption::MajorityFit, Assumption::ExclusiveLease],
    params: params::ALL,
};

impl Entry for Tram {
    fn name(&self) -> &'static str {
        "tram"
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let regions = layout::Layout::new(config)?.regions(me);
        Ok(match config.cluster().role(me) {
            Role::Client { .. } => {
                ProtocolProcess::Memory(Box::new(client::TramClient::new(me, config)?), regions)
            }
            Role::Replica { .. } => {
                ProtocolProcess::Memory(Box::new(replica::TramReplica::new(me, config)?), regions)
            }
        })
    }

    fn overlay<'a>(&self, config: &'a Config) -> Option<&'a Overlay> {
        (!self.has_dynamic_overlay(config)).then(|| config.overlay())
    }

    fn trials(&self) -> &'static Trials {
        // Where the tree may change, the simulator changes it.
        &[("dynamic_overlay", &["0", "1"])]
    }

    fn has_dynamic_overlay(&self, config: &Config) -> bool {
        config.get(&params::DYNAMIC_OVERLAY) == 1
    }

    fn show(&self, bytes: &[u8]) -> String {
        show_line(bytes)
    }
}

/// The first line of a record, for people.
pub(crate) fn show_line(bytes: &[u8]) -> String {
    let mut words = [0; LINE_WORDS];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    }
    match ring::RingRecord::parse(&words) {
        Some(record) => alloc::format!("{record:?}"),
        None => alloc::format!("{words:x?}"),
    }
}
