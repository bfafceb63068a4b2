//! What processes say to each other.

use super::bytes::Bytes;
use super::rings::{Point, RingId};
use super::value::{Ballot, Entry};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{Codec, CodecError, Reader};
use amcast_core::{Pid, messages};

/// A word and the life of who says it: what an earlier life said is not listened to any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) life: u32,
    pub(super) word: Word,
}

/// How far an acceptor has accepted what the coordinator of the ballot proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Vote {
    /// The memory that the vote is from: [`super::recovery`].
    pub(super) memory: u32,
    /// The instance behind the last one.
    pub(super) upto: u64,
}

/// Where a process stands in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Standing {
    /// Decided instances that it holds, all up to here.
    pub(super) known: u64,
    /// How far its application has applied them.
    pub(super) merged: u64,
    /// How far they may be trimmed for its sake (`k[x]p` of [MRP 5.2]).
    pub(super) safe: u64,
}

/// With whom of those who exchange signs of life with it a process does not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Gaps {
    /// Whom it does not hear.
    pub(super) unheard: Vec<Pid>,
    /// Whom it hears, and who says that it does not hear it.
    pub(super) unreached: Vec<Pid>,
}

/// Per process: the life in which it proposed last, and its last number in it.
pub(super) type Rows = Vec<(u32, u64)>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// The sender lives, has these gaps, and stands so in the rings that it shares with the receiver.
    Alive { count: u64, fit: bool, gaps: Gaps, rings: Vec<(RingId, Standing)> },
    /// To a coordinator: order these proposals of the sender's, which lie one behind the other.
    Propose { ring: RingId, proposals: Bytes },
    /// To a coordinator: order these proposals, which `sender` gave to who says this because it does not
    /// reach the coordinator.
    Relay { ring: RingId, sender: Pid, proposals: Bytes },
    /// To a proposer: its proposals of this life up to this number are decided.
    Done { ring: RingId, life: u32, upto: u64 },
    /// To a proposer: the ballot that the ring is in, for all the sender knows.
    Lead { ring: RingId, ballot: Ballot },
    /// To a coordinator: others wait until this ring has come to this instance.
    Want { ring: RingId, upto: u64 },
    /// Before phase 1: the sender would begin this ballot.
    Canvass { ring: RingId, ballot: Ballot },
    /// The sender, too, knows of nobody who leads.
    Consent { ring: RingId, ballot: Ballot },
    /// Phase 1A, for all instances that are not known to be decided.
    Prepare { ring: RingId, ballot: Ballot },
    /// Before a promise: what the sender accepted last for some instances.
    Accepted { ring: RingId, ballot: Ballot, entry: Entry },
    /// Phase 1B: `count` entries went before, of the run of ballot `settled`. `memories` are what the
    /// sender knows of acceptors.
    Promise {
        ring: RingId,
        ballot: Ballot,
        known: u64,
        settled: Ballot,
        count: u32,
        memories: Vec<u32>,
    },
    /// The sender has promised a higher ballot.
    Refuse { ring: RingId, promised: Ballot },
    /// Phases 2A and 2B and decisions, along the ring: `entries` of the ballot's run, which began
    /// at `start` and which the sender has up to `end`, and all votes it knows of. `out` are not
    /// in the ring, by the order of the coordinator that has this number.
    Pass(Pass),
    /// To the one before in the ring: the sender has the run up to here only.
    Lack { ring: RingId, ballot: Ballot, from: u64 },
    /// Asks for decided instances from `from` on, and, if `table`, for who proposed what.
    Fetch { ring: RingId, from: u64, table: bool },
    /// Decided instances.
    Learn { ring: RingId, lesson: Lesson },
    /// The sender has lost its memory, and asks what it had promised and accepted.
    Lost { question: Question },
    /// Part of the answer: what the sender accepted last for some instances.
    Recalled { ring: RingId, question: Question, entry: Entry },
    /// The answer for a ring, after `count` entries.
    Recall {
        ring: RingId,
        question: Question,
        promised: Ballot,
        known: u64,
        settled: Ballot,
        count: u32,
        memories: Vec<u32>,
    },
    /// One of the three above, by way of another acceptor.
    Carry(Box<Carried>),
    /// The sender lacks state: who of its group has which.
    Ask { attempt: u32 },
    /// The sender's application has applied everything up to this position.
    Offer { attempt: u32, position: u64 },
    /// Asks for a state, no older than `least`.
    Take { attempt: u32, least: u64 },
    /// The state is at hand: it holds every delivery up to `position`, and nothing else is
    /// delivered before `point`.
    State { attempt: u32, position: u64, point: Point, bytes: u64 },
    /// Asks for the state from this byte on.
    Need { attempt: u32, offset: u64 },
    /// A piece of it.
    Piece { attempt: u32, offset: u64, bytes: Arc<[u8]> },
    /// The sender has the whole state.
    Thanks { attempt: u32 },
    /// A skip that is decided: [`super::spread`].
    Skipped { ring: RingId, entry: Entry },
    /// Asks an acceptor how far it has voted, for barriers.
    Probe { round: u64 },
    /// The answer to that round of the asker's life: behind the last message that the sender has voted for,
    /// in each ring of which the asker is a member.
    Voted { life: u32, round: u64, rings: Vec<(RingId, u64)> },
}

/// What a process says of decided instances to one that asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lesson {
    pub(super) entries: Vec<Entry>,
    /// The sender knows all up to here.
    pub(super) known: u64,
    /// It has nothing below.
    pub(super) floor: u64,
    /// Who proposed what before `known`.
    pub(super) table: Option<Rows>,
}

/// A question of an acceptor that lost its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question {
    /// The memory that it begins.
    pub(super) memory: u32,
    /// Counts its questions.
    pub(super) number: u32,
}

/// A word of recovery of one who does not reach whom it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Carried {
    pub(super) sender: Pid,
    /// The life in which the sender said it.
    pub(super) life: u32,
    pub(super) to: Pid,
    pub(super) word: Word,
}

/// See [`Word::Pass`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pass {
    pub(super) ring: RingId,
    pub(super) ballot: Ballot,
    pub(super) layout: u32,
    pub(super) out: Vec<Pid>,
    pub(super) start: u64,
    /// Where what the coordinator proposed again ends, and new values begin.
    pub(super) fresh: u64,
    pub(super) end: u64,
    pub(super) votes: Vec<Vote>,
    /// Everything below is trimmed.
    pub(super) trim: u64,
    pub(super) entries: Vec<Entry>,
}

messages! {
    struct Packet { life, word }
    struct Vote { memory, upto }
    struct Standing { known, merged, safe }
    struct Gaps { unheard, unreached }
    struct Point { merged, place }
    struct Question { memory, number }
    struct Pass { ring, ballot, layout, out, start, fresh, end, votes, trim, entries }
    enum Word {
        1 => Alive { count, fit, gaps, rings },
        2 => Propose { ring, proposals },
        3 => Done { ring, life, upto },
        4 => Lead { ring, ballot },
        5 => Want { ring, upto },
        6 => Prepare { ring, ballot },
        7 => Accepted { ring, ballot, entry },
        8 => Promise { ring, ballot, known, settled, count, memories },
        9 => Refuse { ring, promised },
        10 => Pass(pass),
        11 => Lack { ring, ballot, from },
        12 => Fetch { ring, from, table },
        13 => Learn { ring, lesson },
        14 => Lost { question },
        15 => Recalled { ring, question, entry },
        16 => Recall { ring, question, promised, known, settled, count, memories },
        17 => Ask { attempt },
        18 => Offer { attempt, position },
        19 => Take { attempt, least },
        20 => State { attempt, position, point, bytes },
        21 => Need { attempt, offset },
        22 => Piece { attempt, offset, bytes },
        23 => Thanks { attempt },
        24 => Skipped { ring, entry },
        25 => Canvass { ring, ballot },
        26 => Consent { ring, ballot },
        27 => Relay { ring, sender, proposals },
        28 => Carry(carried),
        29 => Probe { round },
        30 => Voted { life, round, rings },
    }
}

/// The words that are carried: those of recovery.
const CARRIED: core::ops::RangeInclusive<u8> = 14..=16;

impl Codec for Carried {
    fn encode(&self, to: &mut Vec<u8>) {
        self.sender.encode(to);
        self.life.encode(to);
        self.to.encode(to);
        self.word.encode(to);
    }

    /// Only words of recovery are passed on: so none has another one in it, however often that is said.
    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let (sender, life, to) = (Codec::decode(from)?, Codec::decode(from)?, Codec::decode(from)?);
        match from.rest().first() {
            Some(tag) if !CARRIED.contains(tag) => Err(CodecError::Unknown(u64::from(*tag))),
            _ => Ok(Self { sender, life, to, word: Codec::decode(from)? }),
        }
    }
}

impl Codec for Lesson {
    fn encode(&self, to: &mut Vec<u8>) {
        self.known.encode(to);
        self.floor.encode(to);
        self.table.is_some().encode(to);
        self.entries.encode(to);
        match &self.table {
            Some(table) => table.encode(to),
            None => 0_u32.encode(to),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let (known, floor, has_table) =
            (Codec::decode(from)?, Codec::decode(from)?, bool::decode(from)?);
        let entries = Codec::decode(from)?;
        let table = Some(Codec::decode(from)?).filter(|_| has_table);
        Ok(Self { entries, known, floor, table })
    }
}
