//! The messages of Multi-Ring Paxos, with their codec. Tags and the order of fields are the wire format.

use super::shared_bytes::SharedBytes;
use super::topology::{MergePosition, RingId};
use super::value::{InstanceEntry, RingBallot};
use crate::layers::routing::BrokenLinks;
use alloc::boxed::Box;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec, CodecError};
use amcast_core::{Pid, messages};

/// A message and the incarnation of its sender: messages of earlier incarnations are dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RingPacket {
    pub(super) incarnation: u32,
    pub(super) message: RingMessage,
}

/// The vote of an acceptor: how far it has accepted the proposals of the ballot (phase 2B).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct AcceptorVote {
    /// The storage epoch that the vote is of: [`super::acceptor_recovery`].
    pub(super) storage_epoch: u32,
    /// The instance behind the last one that it votes for.
    pub(super) upto: u64,
}

/// The progress of a member of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PeerProgress {
    /// It has learned all instances below.
    pub(super) learned: u64,
    /// Its application has applied those below.
    pub(super) applied: u64,
    /// Instances below may be trimmed as far as it is concerned (`k[x]p` of [MRP 5.2]).
    pub(super) trimmable: u64,
}

/// By process: the incarnation in which it proposed last, and the number of its last proposal in it.
pub(super) type ProposalTable = Vec<(u32, u64)>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RingMessage {
    /// A heartbeat of the sender: its broken links, and its progress in the rings that it shares with the
    /// receiver.
    Heartbeat {
        count: u64,
        eligible: bool,
        broken: BrokenLinks,
        rings: Vec<(RingId, PeerProgress)>,
    },
    /// To a coordinator: order these proposals of the sender, which follow each other.
    Propose { ring: RingId, proposals: SharedBytes },
    /// To a coordinator or forwarder: order these proposals of `sender`, which does not reach the
    /// coordinator.
    ForwardedPropose { ring: RingId, sender: Pid, proposals: SharedBytes },
    /// To a proposer: its proposals of this incarnation up to this number are decided.
    ProposalsDecided { ring: RingId, incarnation: u32, upto: u64 },
    /// To a proposer: the ballot that the ring is in, as far as the sender knows.
    CurrentBallot { ring: RingId, ballot: RingBallot },
    /// To a coordinator: learners wait until this ring reaches this instance.
    LevelRequest { ring: RingId, upto: u64 },
    /// Pre-vote: the sender would begin phase 1 with this ballot.
    PreVote { ring: RingId, ballot: RingBallot },
    /// The sender does not hear a coordinator either.
    PreVoteGranted { ring: RingId, ballot: RingBallot },
    /// Phase 1A, for all instances that are not decided.
    Prepare { ring: RingId, ballot: RingBallot },
    /// Phase 1B, first part: an entry that the sender has accepted.
    PromisedEntry { ring: RingId, ballot: RingBallot, entry: InstanceEntry },
    /// Phase 1B: `count` entries came before, which the sender accepted in ballot `adopted`.
    /// `storage_epochs` are those of acceptors that it knows.
    Promise {
        ring: RingId,
        ballot: RingBallot,
        learned: u64,
        adopted: RingBallot,
        count: u32,
        storage_epochs: Vec<u32>,
    },
    /// The sender has promised a higher ballot.
    Reject { ring: RingId, promised: RingBallot },
    /// Phase 2A, 2B and decisions, along the ring.
    Phase2(Phase2),
    /// To the predecessor or the coordinator: the sender holds the ballot only up to `from`.
    Phase2Gap { ring: RingId, ballot: RingBallot, from: u64 },
    /// Requests decided instances from `from` on, and the table of decided proposals if `table`.
    RetransmitRequest { ring: RingId, from: u64, table: bool },
    /// Decided instances.
    Retransmission { ring: RingId, decided: DecidedEntries },
    /// The sender has lost its storage, and asks for its former promises and accepted values.
    RecoveryRequest { request: RecoveryRequest },
    /// Part of the answer: an entry that the sender has accepted.
    RecoveryEntry { ring: RingId, request: RecoveryRequest, entry: InstanceEntry },
    /// The answer for a ring, after `count` entries.
    RecoveryResponse {
        ring: RingId,
        request: RecoveryRequest,
        promised: RingBallot,
        learned: u64,
        adopted: RingBallot,
        count: u32,
        storage_epochs: Vec<u32>,
    },
    /// One of the three above, forwarded by another acceptor.
    Forwarded(Box<ForwardedMessage>),
    /// The sender needs a state: asks the replicas of its group which they have.
    StateQuery { attempt: u32 },
    /// The sender's application has applied everything up to this position, and nothing else is delivered
    /// before `point`.
    StateOffer { attempt: u32, position: u64, point: MergePosition },
    /// A decided skip: [`super::skip_dissemination`].
    DecidedSkip { ring: RingId, entry: InstanceEntry },
    /// Read index: asks an acceptor how far it has voted.
    ReadIndexRequest { round: u64 },
    /// The answer to that round of the asker's incarnation: the end of the last message that the sender has
    /// voted for, in each ring of which the asker is a member.
    ReadIndexResponse { incarnation: u32, round: u64, rings: Vec<(RingId, u64)> },
}

/// Decided instances for a member that requested them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DecidedEntries {
    pub(super) entries: Vec<InstanceEntry>,
    /// The sender has learned all instances below.
    pub(super) learned: u64,
    /// It has trimmed all instances below.
    pub(super) floor: u64,
    /// The table of proposals that are decided below `learned`.
    pub(super) table: Option<ProposalTable>,
}

/// A request of an acceptor that lost its storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecoveryRequest {
    /// The storage epoch that it begins.
    pub(super) storage_epoch: u32,
    /// Counts its requests.
    pub(super) number: u32,
}

/// A message of recovery between processes that do not reach each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ForwardedMessage {
    pub(super) sender: Pid,
    /// The incarnation of the sender that sent it.
    pub(super) incarnation: u32,
    pub(super) to: Pid,
    pub(super) message: RingMessage,
}

/// Proposals of a ballot, and the votes for them: see [`RingMessage::Phase2`]. The sender holds the ballot
/// up to `end`; the excluded members are those of the coordinator's order with this number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Phase2 {
    pub(super) ring: RingId,
    pub(super) ballot: RingBallot,
    pub(super) membership_number: u32,
    pub(super) excluded: Vec<Pid>,
    pub(super) start: u64,
    /// The coordinator proposed the instances below again; new values begin here.
    pub(super) reproposed_end: u64,
    pub(super) end: u64,
    pub(super) votes: Vec<AcceptorVote>,
    /// All instances below may be trimmed.
    pub(super) trim_end: u64,
    pub(super) entries: Vec<InstanceEntry>,
}

messages! {
    struct RingPacket { incarnation, message }
    struct AcceptorVote { storage_epoch, upto }
    struct PeerProgress { learned, applied, trimmable }
    struct MergePosition { merged, place }
    struct RecoveryRequest { storage_epoch, number }
    struct Phase2 { ring, ballot, membership_number, excluded, start, reproposed_end, end, votes, trim_end, entries }
    enum RingMessage {
        1 => Heartbeat { count, eligible, broken, rings },
        2 => Propose { ring, proposals },
        3 => ProposalsDecided { ring, incarnation, upto },
        4 => CurrentBallot { ring, ballot },
        5 => LevelRequest { ring, upto },
        6 => Prepare { ring, ballot },
        7 => PromisedEntry { ring, ballot, entry },
        8 => Promise { ring, ballot, learned, adopted, count, storage_epochs },
        9 => Reject { ring, promised },
        10 => Phase2(phase2),
        11 => Phase2Gap { ring, ballot, from },
        12 => RetransmitRequest { ring, from, table },
        13 => Retransmission { ring, decided },
        14 => RecoveryRequest { request },
        15 => RecoveryEntry { ring, request, entry },
        16 => RecoveryResponse { ring, request, promised, learned, adopted, count, storage_epochs },
        17 => StateQuery { attempt },
        18 => StateOffer { attempt, position, point },
        24 => DecidedSkip { ring, entry },
        25 => PreVote { ring, ballot },
        26 => PreVoteGranted { ring, ballot },
        27 => ForwardedPropose { ring, sender, proposals },
        28 => Forwarded(carried),
        29 => ReadIndexRequest { round },
        30 => ReadIndexResponse { incarnation, round, rings },
    }
}

/// The tags of messages that are forwarded: those of recovery.
const CARRIED: core::ops::RangeInclusive<u8> = 14..=16;

impl Codec for ForwardedMessage {
    fn encode(&self, to: &mut Vec<u8>) {
        self.sender.encode(to);
        self.incarnation.encode(to);
        self.to.encode(to);
        self.message.encode(to);
    }

    /// Only messages of recovery are forwarded: so no forwarded message contains another one.
    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let sender = Codec::decode(from)?;
        let incarnation = Codec::decode(from)?;
        let to = Codec::decode(from)?;
        match from.rest().first() {
            Some(tag) if !CARRIED.contains(tag) => Err(CodecError::Unknown(u64::from(*tag))),
            _ => Ok(Self { sender, incarnation, to, message: Codec::decode(from)? }),
        }
    }
}

impl Codec for DecidedEntries {
    fn encode(&self, to: &mut Vec<u8>) {
        self.learned.encode(to);
        self.floor.encode(to);
        self.table.is_some().encode(to);
        self.entries.encode(to);
        match &self.table {
            Some(table) => table.encode(to),
            None => 0_u32.encode(to),
        }
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let learned = Codec::decode(from)?;
        let floor = Codec::decode(from)?;
        let has_table = bool::decode(from)?;
        let entries = Codec::decode(from)?;
        let table = Some(Codec::decode(from)?).filter(|_| has_table);
        Ok(Self { entries, learned, floor, table })
    }
}
