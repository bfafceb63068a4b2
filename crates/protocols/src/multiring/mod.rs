//! Multi-Ring Paxos: atomic multicast out of many instances of Ring Paxos [MRP 4, 5].
//!
//! # Order and guarantees
//! Multicasts of replicas to any set of groups for which there is a ring. Validity, uniform
//! agreement, uniform integrity, uniform prefix order and uniform acyclic order. A message to one group
//! involves only that group; a message to several groups goes round the smallest ring that has them all.
//!
//! # Assumptions
//! For safety nothing about time, of streams only that they are in order. The promises and accepted
//! proposals of acceptors are on disk before they answer (`multi-ring`), some time later
//! (`multi-ring-async`: they survive the end of processes, and of a minority of machines at a time), or in
//! memory (`multi-ring-memory`: a majority of each group is caught up at any time). For progress one
//! acceptor of each ring and a majority of them, itself included, must hear each other.
//!
//! # The normal case
//! ```text
//!            coordinator      acceptor         acceptor
//!  propose ----> | 2A, own vote  |                |
//!                |-------------->| + vote: decided|
//!                |               |--------------->| learns the decision
//!                |<-------------------------------| votes only: learns the decision
//! ```
//! A vote is a counter, one for each acceptor: how far it has accepted the proposals of this ballot's coordinator.
//! Votes travel with the values, and a process that has those of a quorum knows what is decided; so there is no
//! message for a decision, and an acceptor that waits for its disk delays no process that does not need its vote.
//!
//! # Roles and phases
//! Each replica of a group is proposer, acceptor and learner in the ring of its group, and a learner
//! in rings of several groups, of which the replicas of the lowest group are the acceptors.
//!
//! | role | what it does | file |
//! |---|---|---|
//! | proposer | sends multicasts to the coordinator until they are decided | `proposer.rs`, `forward.rs` |
//! | candidate | pre-vote, then phase 1 for all instances at once | `election.rs`, `phase1.rs` |
//! | coordinator | phase 2: proposes again all values that may be decided, then orders batches and skips | `coordinator.rs` |
//! | acceptor | promises and votes, each durable before it is sent | `acceptor.rs`, `acceptor_recovery.rs` |
//! | learner | learns the values that a quorum accepted; catches up by retransmission | `learner.rs`, `catch_up.rs` |
//! | merge | delivers the rings of its group, `M` instances of each in turn | `merge.rs` |
//!
//! # Safety
//! Notation of Paxos: ballots `b`, instances `i`, values `v`, quorums `Q`: any majority of a ring's acceptors.
//!
//! *Agreement on one value per instance.* If `Q` accepted `(b, i, v)`, then every proposal `(b', i, v')` with
//! `b' > b` has `v' = v`. By induction over `b'`, from an invariant of each role:
//! 1. **One proposal for each `(b, i)`.** A ballot belongs to one process and one attempt (`RingBallot`);
//!    its coordinator numbers instances without gaps (assertion in `RingMember::accept`), and coordinates only
//!    after its own promise is durable, so that it does not use the ballot again after a crash
//!    (`RingMember::begin_phase2`; mutant `leads-before-it-is-written`).
//! 2. **A promise binds.** An acceptor that promised `b'` accepts nothing below (`RingMember::on_phase2`,
//!    `RingMember::adopt_ballot`; mutant `counts-below-its-promise`), and its promise is durable before it is
//!    sent, together with all that it accepted (`RingMember::on_prepare`, `PendingWrites::write`; mutants
//!    `promises-before-it-is-written`, `forgets-what-it-accepted`).
//! 3. **A vote is durable before it is sent** (`RingMember::accept`, `DurableAction::Vote`; mutants
//!    `votes-before-it-is-written`, `votes-for-all-it-took-in`).
//! 4. **The coordinator proposes only values that phase 1 allows.** Two quorums intersect: one promise of
//!    any `Q` comes from an acceptor of the quorum that accepted `(b, i, v)`. Its log is that of one ballot
//!    as a whole (`RingMember::adopt_ballot`; mutant `keeps-leftovers`); the log of the highest adopted ballot
//!    contains all that may be decided, and is proposed again before anything new (`RingMember::begin_phase2`;
//!    mutants `begins-with-nothing`, `begins-with-the-longest-log`, `begins-behind-what-is-known`).
//! 5. **A lost storage votes no more.** An acceptor that lost it recovers from `n - q + 1` others before it
//!    votes, and its earlier votes and promises are void (`acceptor_recovery.rs`; mutants
//!    `forgets-that-it-forgot`, `asks-too-few`, `remembers-nothing`, `remembers-the-longest-log`,
//!    `counts-on-lost-memories`, `passes-on-lost-votes`, `counts-lost-promises`,
//!    `takes-a-cut-log-for-whole`, `takes-a-torn-log-for-whole`).
//!
//! *A learner learns only decided values*: a quorum of votes of one ballot, counted on the log of that
//! ballot (`RingMember::accepted_by_quorum`, `RingMember::advance`; mutant `decides-with-one-vote-less`), or a
//! retransmission of entries that another learner has learned (`RingMember::learn_entry`; mutants
//! `counts-older-runs`, `forgets-what-it-passed`).
//!
//! *Prefix and acyclic order*: the merge is a function of the decided values alone, the same at all
//! replicas of a group, in the order of ring numbers at all groups (`merge.rs`, positions grow by
//! assertion; mutants `merges-in-another-order`, `delivers-undecided`).
//!
//! *Integrity*: the proposals of an incarnation of a process to a ring are numbered without gaps, and a
//! coordinator orders only the next number of the table that it has learned (`RingMember::on_propose`; mutant
//! `orders-twice`).
//!
//! *Agreement and validity after trimming*: an instance is trimmed only once a majority of nodes has it in
//! a checkpoint [MRP 5.2] (`RingMember::trimmable_by_majority`, `MultiRing::trim`; mutant `trims-for-one`).
//!
//! *Reads*: a read index is passed once everything is merged that a quorum of each ring had voted for when
//! it was asked (`read_index.rs`; mutants `passes-barriers-alone`, `answers-barriers-with-what-is-known`).
//! *Genuineness*: mutant `tells-everybody`.
//!
//! # Limits
//! - A process has at most `window` own messages of `window_bytes` for each ring that are not decided:
//!   beyond that it has no room. A coordinator queues as much of each process, and has at most
//!   `pipeline_bytes` undecided, and `lag_bytes` that a majority of some group has not applied.
//! - Unconfirmed bytes that a member has sent to its successor are four times `pipeline_bytes` at
//!   most.
//! - A member keeps at most `cache_bytes` of each ring in memory besides what its application has not
//!   applied, and takes in no more at `held_bytes` of that. Older values are read from disk again, by acceptors; a
//!   member without a vote forgets them.
//! - Where records must be durable, a member takes in no more either while `held_bytes` of values are not.
//! - The log is trimmed behind the checkpoints of a majority of nodes, the replicas of one rank [MRP 5.2].
//!
//! # Trimming in memory
//! Without disks a learned instance is trimmed at a member only if a majority of nodes has applied it, with all
//! that is merged with it in other groups (`MultiRing::trim`), its own application has, and
//! - each member with which it exchanges heartbeats has learned it, or is suspected;
//! - or more than `cache_bytes` of the ring are in its memory, and no older instance is.
//!
//! So a live member that got no processor for a while finds its missing instances at the others, and a member that
//! is dead or hopelessly slow costs them `cache_bytes` at most. That one finds its next instance trimmed
//! everywhere: it continues from the lowest floor (`RingMember::jump_to`), reports that it lags, and gets a
//! state (`transfer.rs`). All that an installed state holds counts as applied (`RingMerge::on_applied`).
//! A node that awaits a state does not count, also not with the groups whose replicas follow. While no majority
//! of nodes is caught up in all groups at once, since each lags in another one, values stay beyond
//! `cache_bytes`: otherwise no node would have a whole state to give.
//!
//! # Deviations
//! - Ring membership and the coordinator follow from heartbeats of acceptors, and from the coordinator's
//!   order; no coordination service is asked. Neither matters for safety. Before phase 1 a candidate asks the
//!   others for their pre-votes (`election.rs`).
//! - Proposals go directly to the coordinator, and values from there round the ring. Where the link to the
//!   coordinator is broken, another acceptor forwards them (`forward.rs`).
//! - Votes are cumulative counters, see above; the last acceptor does not make them a decision. The member
//!   that first has a quorum of them reports it directly to the coordinator (`successor.rs`).
//! - A lagging member is excluded from the ring until it has caught up (with logs on disk), and a member that
//!   cannot be reached is passed over (`successor.rs`, `membership.rs`).
//! - Where links of the ring are broken, so that too few members remain in it, the coordinator and the
//!   acceptors that it reaches use a direct channel (`direct.rs`, `connectivity.rs`).
//! - Rates are levelled on demand: a coordinator that orders a batch requests that the rings merged with
//!   its own come as far, at once, and further where it orders much while a request is open
//!   (`levelling.rs`); large rings disseminate decided skips in a tree (`skip_dissemination.rs`). With
//!   `leveling = paced` each also skips to `lambda` instances a second every `delta_us`, as [MRP 4] does.
//! - A read index (`read_index.rs`) lets services read without an order: the paper orders reads, too.
//! - A retried proposal is recognised by its number, which the log itself keeps without gaps.
//! - Nodes, which give each other the state of all their replicas, decide on trimming, and not each
//!   partition (`log_replay.rs`).
//! - An acceptor whose log is lost asks a majority of the others before it votes again
//!   (`acceptor_recovery.rs`); [MRP 5.1] supposes that logs survive.
//!
//! # Read first
//! `value.rs`, `topology.rs`, then `ring.rs` from `RingMember::on_phase2` on, `acceptor.rs`, `phase1.rs`,
//! `coordinator.rs`, `learner.rs`, `merge.rs`; then `process.rs`, which puts them together.

mod acceptor;
mod acceptor_recovery;
mod ballot_log;
mod catch_up;
mod connectivity;
mod coordinator;
mod direct;
mod dispatch;
mod election;
mod forward;
mod instance_log;
mod learner;
mod levelling;
mod log_replay;
mod membership;
mod merge;
mod message;
mod mutants;
mod params;
mod persistence;
mod phase1;
mod process;
mod proposal_queue;
mod proposer;
mod read_index;
mod ring;
mod shared_bytes;
mod skip_dissemination;
mod start_goals;
mod successor;
mod topology;
mod transfer;
mod trials;
mod value;

pub use mutants::MultiRingMutant;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::entry::Trials;
use amcast_core::messages::FramedProtocol;
use amcast_core::{
    About, Assumption, Capabilities, Config, ConfigError, Entry, GroupSet, MediumKind, Pid,
    Property, ProtocolProcess,
};
use message::RingPacket;
use params::{MultiRingConfig, PARAMS, topologies_of};
use persistence::{AcceptorStorage, LogRecord};
use process::MultiRing;

/// Multi-Ring Paxos with one kind of storage, in the catalog.
#[derive(Debug)]
pub struct MultiRingEntry {
    name: &'static str,
    storage: AcceptorStorage,
    about: &'static About,
}

macro_rules! row {
    ($NAME:ident = $name:literal, $storage:expr, $assumes:expr, $summary:literal) => {
        #[doc = $summary]
        pub static $NAME: MultiRingEntry = MultiRingEntry {
            name: $name,
            storage: $storage,
            about: &About {
                summary: $summary,
                paper: "MRP 4, 5",
                medium: MediumKind::Messages,
                capabilities: Capabilities {
                    several_groups: true,
                    read_index: true,
                    durability: $storage.durability(),
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
                assumes: $assumes,
                params: PARAMS,
            },
        };
    };
}

row!(
    SYNCED = "multi-ring",
    AcceptorStorage::Synced,
    &[Assumption::StreamsOnly],
    "Durable atomic multicast by rings of Paxos, merged; acceptors sync before they vote."
);
row!(
    WRITTEN = "multi-ring-async",
    AcceptorStorage::Written,
    &[Assumption::StreamsOnly, Assumption::MajorityFit],
    "As multi-ring; acceptors write to disk some time after they voted."
);
row!(
    MEMORY = "multi-ring-memory",
    AcceptorStorage::Memory,
    &[Assumption::StreamsOnly, Assumption::MajorityFit],
    "As multi-ring; acceptors keep everything in memory."
);

impl Entry for MultiRingEntry {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static About {
        self.about
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let shape = Arc::new(MultiRingConfig::of(self.storage, config)?);
        Ok(ProtocolProcess::Messages(Box::new(FramedProtocol::new(MultiRing::new(me, &shape)))))
    }

    fn together(&self, config: &Config) -> Vec<GroupSet> {
        topologies_of(config).into_iter().map(|ring| ring.set).collect()
    }

    fn trials(&self) -> &'static Trials {
        trials::TRIALS
    }

    fn show(&self, bytes: &[u8]) -> String {
        let mut reader = ByteReader::new(bytes);
        match RingPacket::decode(&mut reader) {
            Ok(packet) if reader.is_empty() => format!("{packet:?}"),
            _ => match LogRecord::read(bytes) {
                Some(record) => format!("{record:?}"),
                None => format!("{} bytes that are no message of Multi-Ring Paxos", bytes.len()),
            },
        }
    }
}
