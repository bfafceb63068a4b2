//! What processes say to each other.

use super::shared_bytes::SharedBytes;
use super::topology::{MergePosition, RingId};
use super::value::{InstanceEntry, RingBallot};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{Codec, CodecError, Reader};
use amcast_core::{Pid, messages};

/// A word and the life of who says it: what an earlier life said is not listened to any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RingPacket {
    pub(super) incarnation: u32,
    pub(super) message: RingMessage,
}

/// How far an acceptor has accepted what the coordinator of the ballot proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct AcceptorVote {
    /// The memory that the vote is from: [`super::acceptor_recovery`].
    pub(super) storage_epoch: u32,
    /// The instance behind the last one.
    pub(super) upto: u64,
}

/// Where a process stands in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PeerProgress {
    /// Decided instances that it holds, all up to here.
    pub(super) learned: u64,
    /// How far its application has applied them.
    pub(super) applied: u64,
    /// How far they may be trimmed for its sake (`k[x]p` of [MRP 5.2]).
    pub(super) trimmable: u64,
}

/// With whom of those who exchange signs of life with it a process does not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct BrokenLinks {
    /// Whom it does not hear.
    pub(super) unheard: Vec<Pid>,
    /// Whom it hears, and who says that it does not hear it.
    pub(super) unreached: Vec<Pid>,
}

/// Per process: the life in which it proposed last, and its last number in it.
pub(super) type ProposalTable = Vec<(u32, u64)>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RingMessage {
    /// The sender lives, has these gaps, and stands so in the rings that it shares with the receiver.
    Heartbeat { count: u64, fit: bool, broken: BrokenLinks, rings: Vec<(RingId, PeerProgress)> },
    /// To a coordinator: order these proposals of the sender's, which lie one behind the other.
    Propose { ring: RingId, proposals: SharedBytes },
    /// To a coordinator: order these proposals, which `sender` gave to who says this because it does not
    /// reach the coordinator.
    ForwardedPropose { ring: RingId, sender: Pid, proposals: SharedBytes },
    /// To a proposer: its proposals of this life up to this number are decided.
    ProposalsDecided { ring: RingId, incarnation: u32, upto: u64 },
    /// To a proposer: the ballot that the ring is in, for all the sender knows.
    CurrentBallot { ring: RingId, ballot: RingBallot },
    /// To a coordinator: others wait until this ring has come to this instance.
    LevelRequest { ring: RingId, upto: u64 },
    /// Before phase 1: the sender would begin this ballot.
    PreVote { ring: RingId, ballot: RingBallot },
    /// The sender, too, knows of nobody who leads.
    PreVoteGranted { ring: RingId, ballot: RingBallot },
    /// Phase 1A, for all instances that are not known to be decided.
    Prepare { ring: RingId, ballot: RingBallot },
    /// Before a promise: what the sender accepted last for some instances.
    PromisedEntry { ring: RingId, ballot: RingBallot, entry: InstanceEntry },
    /// Phase 1B: `count` entries went before, of the run of ballot `settled`. `memories` are what the
    /// sender knows of acceptors.
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
    /// Phases 2A and 2B and decisions, along the ring: `entries` of the ballot's run, which began
    /// at `start` and which the sender has up to `end`, and all votes it knows of. `out` are not
    /// in the ring, by the order of the coordinator that has this number.
    Phase2(Phase2),
    /// To the one before in the ring: the sender has the run up to here only.
    Phase2Gap { ring: RingId, ballot: RingBallot, from: u64 },
    /// Asks for decided instances from `from` on, and, if `table`, for who proposed what.
    RetransmitRequest { ring: RingId, from: u64, table: bool },
    /// Decided instances.
    Retransmission { ring: RingId, decided: DecidedEntries },
    /// The sender has lost its memory, and asks what it had promised and accepted.
    RecoveryRequest { request: RecoveryRequest },
    /// Part of the answer: what the sender accepted last for some instances.
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
    /// One of the three above, by way of another acceptor.
    Forwarded(Box<ForwardedMessage>),
    /// The sender lacks state: who of its group has which.
    Ask { attempt: u32 },
    /// The sender's application has applied everything up to this position.
    Offer { attempt: u32, position: u64 },
    /// Asks for a state, no older than `least`.
    Take { attempt: u32, least: u64 },
    /// The state is at hand: it holds every delivery up to `position`, and nothing else is
    /// delivered before `point`.
    State { attempt: u32, position: u64, point: MergePosition, bytes: u64 },
    /// Asks for the state from this byte on.
    Need { attempt: u32, offset: u64 },
    /// A piece of it.
    Piece { attempt: u32, offset: u64, bytes: Arc<[u8]> },
    /// The sender has the whole state.
    Thanks { attempt: u32 },
    /// A skip that is decided: [`super::skip_dissemination`].
    DecidedSkip { ring: RingId, entry: InstanceEntry },
    /// Asks an acceptor how far it has voted, for barriers.
    ReadIndexRequest { round: u64 },
    /// The answer to that round of the asker's life: behind the last message that the sender has voted for,
    /// in each ring of which the asker is a member.
    ReadIndexResponse { incarnation: u32, round: u64, rings: Vec<(RingId, u64)> },
}

/// What a process says of decided instances to one that asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DecidedEntries {
    pub(super) entries: Vec<InstanceEntry>,
    /// The sender knows all up to here.
    pub(super) learned: u64,
    /// It has nothing below.
    pub(super) floor: u64,
    /// Who proposed what before `known`.
    pub(super) table: Option<ProposalTable>,
}

/// A question of an acceptor that lost its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecoveryRequest {
    /// The memory that it begins.
    pub(super) storage_epoch: u32,
    /// Counts its questions.
    pub(super) number: u32,
}

/// A word of recovery of one who does not reach whom it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ForwardedMessage {
    pub(super) sender: Pid,
    /// The life in which the sender said it.
    pub(super) incarnation: u32,
    pub(super) to: Pid,
    pub(super) message: RingMessage,
}

/// See [`RingMessage::Phase2`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Phase2 {
    pub(super) ring: RingId,
    pub(super) ballot: RingBallot,
    pub(super) membership_number: u32,
    pub(super) excluded: Vec<Pid>,
    pub(super) start: u64,
    /// Where what the coordinator proposed again ends, and new values begin.
    pub(super) reproposed_end: u64,
    pub(super) end: u64,
    pub(super) votes: Vec<AcceptorVote>,
    /// Everything below is trimmed.
    pub(super) trim_end: u64,
    pub(super) entries: Vec<InstanceEntry>,
}

messages! {
    struct RingPacket { incarnation, message }
    struct AcceptorVote { storage_epoch, upto }
    struct PeerProgress { learned, applied, trimmable }
    struct BrokenLinks { unheard, unreached }
    struct MergePosition { merged, place }
    struct RecoveryRequest { storage_epoch, number }
    struct Phase2 { ring, ballot, membership_number, excluded, start, reproposed_end, end, votes, trim_end, entries }
    enum RingMessage {
        1 => Heartbeat { count, fit, broken, rings },
        2 => Propose { ring, proposals },
        3 => ProposalsDecided { ring, incarnation, upto },
        4 => CurrentBallot { ring, ballot },
        5 => LevelRequest { ring, upto },
        6 => Prepare { ring, ballot },
        7 => PromisedEntry { ring, ballot, entry },
        8 => Promise { ring, ballot, learned, adopted, count, storage_epochs },
        9 => Reject { ring, promised },
        10 => Phase2(pass),
        11 => Phase2Gap { ring, ballot, from },
        12 => RetransmitRequest { ring, from, table },
        13 => Retransmission { ring, decided },
        14 => RecoveryRequest { request },
        15 => RecoveryEntry { ring, request, entry },
        16 => RecoveryResponse { ring, request, promised, learned, adopted, count, storage_epochs },
        17 => Ask { attempt },
        18 => Offer { attempt, position },
        19 => Take { attempt, least },
        20 => State { attempt, position, point, bytes },
        21 => Need { attempt, offset },
        22 => Piece { attempt, offset, bytes },
        23 => Thanks { attempt },
        24 => DecidedSkip { ring, entry },
        25 => PreVote { ring, ballot },
        26 => PreVoteGranted { ring, ballot },
        27 => ForwardedPropose { ring, sender, proposals },
        28 => Forwarded(carried),
        29 => ReadIndexRequest { round },
        30 => ReadIndexResponse { incarnation, round, rings },
    }
}

/// The words that are carried: those of recovery.
const CARRIED: core::ops::RangeInclusive<u8> = 14..=16;

impl Codec for ForwardedMessage {
    fn encode(&self, to: &mut Vec<u8>) {
        self.sender.encode(to);
        self.incarnation.encode(to);
        self.to.encode(to);
        self.message.encode(to);
    }

    /// Only words of recovery are passed on: so none has another one in it, however often that is said.
    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let (sender, incarnation, to) =
            (Codec::decode(from)?, Codec::decode(from)?, Codec::decode(from)?);
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

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let (learned, floor, has_table) =
            (Codec::decode(from)?, Codec::decode(from)?, bool::decode(from)?);
        let entries = Codec::decode(from)?;
        let table = Some(Codec::decode(from)?).filter(|_| has_table);
        Ok(Self { entries, learned, floor, table })
    }
}
